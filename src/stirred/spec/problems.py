"""What was wrong, where, and how to fix it: the one shape every error of the house has."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from stirred.spec.spelling import meant

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError

# A setting inside a message, as data; private characters of Unicode around JSON, which has none of them.
_MARKED: Final = re.compile("\ue000([^\ue001]*)\ue001")


class NamedSetting(NamedTuple):
    """A setting that a message names, with values if it has any: every reader gets it as they write it.

    ``planned`` says that who types options hears how a plan has it, too.
    """

    key: str
    values: tuple[str, ...] = ()
    planned: bool = False


def setting(key: str, *values: str, planned: bool = False) -> str:
    """Return a setting as it stands inside a message, which may be put together like any other text.

    >>> problem = Problem(what="it may identify", where="mark", remedy=f"name it with {setting('id', 'mark')}")
    >>> print(problem)
    mark: it may identify. Fix: name it with --id mark.
    >>> print(problem.written(in_python))
    mark: it may identify. Fix: name it with id=["mark"].
    >>> print(problem.written(in_plan))
    mark: it may identify. Fix: name it with id = ["mark"] under [data].
    """
    return f"\ue000{json.dumps([key, values, planned])}\ue001"


# Keys of a plan that have no option of their own.
_WITHOUT_OPTION: Final = (
    "format",
    "missing",
    "missing_as",
    "name",
    "post_imputation",
    "settings_from",
    "stage",
    "unit",
)


def in_option(named: NamedSetting) -> str:
    """Return a setting as it is typed on the command line.

    >>> print(in_option(NamedSetting("hold")), in_option(NamedSetting("id", ("house id",))))
    --hold --id 'house id'
    >>> print(in_option(NamedSetting("missing", ("", "NA"), planned=True)))
    --set missing=,NA (in a plan: missing = ["", "NA"] under [data])
    """
    key, values, planned = named
    typed = ",".join(values) if len(values) > 1 else as_option(*values) if values else ""
    if key == "kappa" and values:
        typed = "{}:{}={}".format(*values)
    option = f"--{key.replace('_', '-')}{' ' if values else ''}{typed}"
    if planned and key in _WITHOUT_OPTION:
        option = f"--set {key}={typed}"
    return f"{option} (in a plan: {in_plan(named)})" if planned else option


def in_plan(named: NamedSetting) -> str:
    """Return a setting as it stands in a plan, with its section.

    >>> print(in_plan(NamedSetting("hold")), in_plan(NamedSetting("unit", ("person",))), sep="; ")
    hold under [mechanism]; unit = "person" under [mechanism]
    """
    key, values, _ = named
    return f"{key}{f' = {_quoted(named)}' if values else ''} under [{_SECTIONS.get(key, 'mechanism')}]"


def in_python(named: NamedSetting) -> str:
    """Return a setting as an argument of Python.

    >>> print(in_python(NamedSetting("hold")), in_python(NamedSetting("accept", ("tells:size, all",))))
    hold= accept=["tells:size, all"]
    >>> print(in_python(NamedSetting("kappa", ("household", "person", "K"))))
    units=[UnitFactor(old="household", new="person", factor=K, because=...)]
    """
    key, values, _ = named
    if key == "kappa" and values:
        return 'units=[UnitFactor(old="{}", new="{}", factor={}, because=...)]'.format(*values)
    return _IN_PYTHON.get(key, f"{key}={{}}").format(_quoted(named) if values else "")


def key_alone(named: NamedSetting) -> str:
    """Return the name of a setting, for the place of a problem in Python."""
    return named.key


def _quoted(named: NamedSetting) -> str:
    quoted = ", ".join(json.dumps(value, ensure_ascii=False) for value in named.values)
    return f"[{quoted}]" if named.key in _LISTS else quoted


_LISTS: Final = ("accept", "hold", "id", "match", "missing", "swap")
_SECTIONS: Final = {
    **dict.fromkeys(("id", "hid", "persons", "missing", "missing_as", "codebook"), "data"),
    "accept": "release",
}
_IN_PYTHON: Final = {
    "kappa": "units=[UnitFactor(...)]",
    "missing": "Microdata.with_missing({})",
    "missing_as": "Microdata.with_missing_code(COLUMNS)",
}


class Worded(str):
    """A text that names settings: it reads as it is for who types options, and ``marked`` has them as data."""

    marked: str

    def __new__(cls, text: str) -> Worded:
        """Return the text for who types options."""
        worded = super().__new__(cls, written(text, in_option))
        worded.marked = marked(text)
        return worded


def marked(text: str) -> str:
    """Return a text with the settings it names as data, so that it can become part of another one."""
    return text.marked if isinstance(text, Worded) else text


def written(text: str, reader: Callable[[NamedSetting], str]) -> str:
    """Return a text with its settings as one reader writes them.

    >>> print(written(f"leave it out with {setting('hold')}", in_python))
    leave it out with hold=
    """

    def shown(found: re.Match[str]) -> str:
        try:
            key, values, planned = json.loads(found[1])
            return reader(NamedSetting(str(key), tuple(map(str, values)), bool(planned)))
        except (ValueError, TypeError):  # a name of a file that has such characters
            return found[0]

    return _MARKED.sub(shown, marked(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: the value, the place and the remedy.

    ``what`` is for the custodian's terminal and may quote confidential values; where it does, ``public`` says the same
    without them. JSON, which ends in logs and tickets, gets ``told``.

    >>> print(Problem(what="7/4 is not a probability", where="rate", remedy="write 0 to 1, such as '1/20'"))
    rate: 7/4 is not a probability. Fix: write 0 to 1, such as '1/20'.
    >>> print(Problem(what="no such key", where="", remedy="did you mean 'rate'? "))
    no such key. Fix: did you mean 'rate'?
    >>> Problem(what="code 7 is not declared", where="sex", remedy="", public="a code is not declared").told
    'a code is not declared'
    """

    what: str
    where: str
    remedy: str
    public: str = ""

    def __post_init__(self) -> None:
        for name in ("what", "where", "remedy", "public"):
            if "\ue000" in (text := getattr(self, name)):
                object.__setattr__(self, name, Worded(text))

    @property
    def told(self) -> str:
        """Return what is wrong without any value of a confidential file."""
        return self.public or self.what

    def __str__(self) -> str:
        return self.written(in_option)

    def written(self, reader: Callable[[NamedSetting], str]) -> str:
        """Return the problem in one line, settings as a reader writes them."""
        where = written(self.where, key_alone if reader is in_python else reader)
        what, remedy = (_sentence(written(text, reader)) for text in (self.what, self.remedy))
        return f"{where}{': ' if where else ''}{what}{f' Fix: {remedy}' if self.remedy.strip() else ''}"

    def inside(self, place: str) -> Problem:
        """Return the same problem with the outer place put in front, as the layer that knows the file does."""
        return replace(self, where=f"{place} {marked(self.where)}".strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureProblem(Problem):
    """A refusal because of how change is measured, and not of its unit or distance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesProblem(Problem):
    """A refusal of a stated number of copies."""


def option_names(value: str) -> list[str]:
    """Return the names that the value of an option lists, separated by commas; one with a comma stands in quotes.

    >>> option_names('county, "size, persons"')
    ['county', 'size, persons']
    """
    return [name.strip() for row in csv.reader([value], skipinitialspace=True) for name in row if name.strip()]


def as_option(name: str) -> str:
    """Return a name as it is typed after an option, one word of the shell.

    >>> print(as_option("mark"), as_option("house id"), as_option("size, persons"))
    mark 'house id' '"size, persons"'
    """
    doubled = name.replace('"', '""')
    return shlex.quote(f'"{doubled}"' if "," in name or name.startswith('"') else name)


def _sentence(text: str) -> str:
    """Return text with one mark at its end: its own question mark or the dots of a list cut short, or a full stop."""
    text = text.strip()
    return text if text.endswith(("?", "...")) else f"{text.rstrip('.')}."


class StirredError(Exception):
    """Bad input or a refused request, as one or more :class:`Problem`.

    Printed by themselves problems name settings as options (``--hold tenure``); the message, which Python shows, names
    its arguments.
    """

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problem.written(in_python) for problem in self.problems))

    def inside(self, place: str) -> StirredError:
        """Return the same error, each problem placed inside ``place``."""
        return type(self)(problem.inside(place) for problem in self.problems)


class SpecificationError(StirredError):
    """A specification, or a part of one, that does not make sense."""


class ConversionRefusedError(StirredError):
    """A conversion, composition or comparison for which no theorem is known."""


def place_of(steps: Iterable[int | str]) -> str:
    """Return a place inside a document as messages write it: entries of lists are counted from 1, as readers count.

    >>> place_of(("budget", "realised")), place_of(("estimates", 0, "bounds", 1))
    ('budget.realised', 'estimates entry 1 bounds entry 2')
    """
    found = ""
    for step in steps:
        dot = "." if found and not found.endswith(" ") else ""
        found += f" entry {step + 1} " if isinstance(step, int) else f"{dot}{step}"
    return found.replace("  ", " ").strip()


def wrong(what: str, *, where: str, remedy: str = "") -> SpecificationError:
    """Return (not raise) the error for one wrong value."""
    return SpecificationError([Problem(what=what, where=where, remedy=remedy)])


def unknown_name(value: object, choices: Iterable[str], *, where: str, called: str) -> SpecificationError:
    """Return (not raise) the error of a name that is none of the choices, with the one that was probably meant.

    >>> print(unknown_name("edited-fiel", ["as-given", "edited-file"], where="stage", called="a stage"))
    stage: 'edited-fiel' is not a stage. Fix: did you mean 'edited-file'? There are: as-given, edited-file.
    """
    listed = [*choices]
    remedy = f"{meant(str(value), listed)}There are: {', '.join(listed)}"
    return wrong(f"{value!r} is not {called}", where=where, remedy=remedy)


def refused(what: str, *, where: str, remedy: str = "", kind: type[Problem] = Problem) -> ConversionRefusedError:
    """Return (not raise) the refusal of one request."""
    return ConversionRefusedError([kind(what=what, where=where, remedy=remedy)])


REFUSED: Final = "refused"  # the type of a validation error that holds problems of ours


def refusal(problems: Iterable[Problem]) -> PydanticCustomError:
    """Return problems of ours as an error of pydantic, whose validation goes on and reports all that it finds."""
    from pydantic_core import PydanticCustomError

    return PydanticCustomError(REFUSED, "it is refused", {"problems": tuple(problems)})


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Put ``place`` in front of every problem raised inside the block."""
    try:
        yield
    except StirredError as error:
        raise error.inside(place) from None


def as_given(value: object) -> str:
    """Return a value as it was written in a file: numbers, true and false without the names that Python has for them.

    >>> from decimal import Decimal
    >>> from fractions import Fraction
    >>> as_given(Decimal("NaN")), as_given([Decimal("1.50"), "a"]), as_given(Fraction("1/4"))
    ('nan', "[1.50, 'a']", '1/4')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Fraction):
        return str(value)
    text = re.sub(r"Decimal\('([^']*)'\)", r"\1", repr(value))
    return text.replace("Infinity", "inf").replace("NaN", "nan") if text != repr(value) else text
