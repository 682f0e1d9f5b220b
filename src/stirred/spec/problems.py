"""What was wrong, where, and how to fix it: the one shape every error of the house has."""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

# A setting as an option, with the value that ends its clause. What stands in backquotes is a command, to be typed.
_OPTION: Final = re.compile(
    r"`[^`]*`|--([a-z][a-z-]*)(?: ('[^']*'(?:\"'\"'[^']*')*|\S+(?= \()|[^\s;()\"']*\w(?=[.;:,)]|$)))?(:?)"
)
_LISTS: Final = ("accept", "hold", "id", "match", "missing", "swap")
_FACTOR: Final = re.compile(r"([^:=]+):([^:=]+)=(.+)")
_IN_PYTHON: Final = {
    "id": "Microdata(id={})",
    "hid": "Microdata(hid={})",
    "kappa": "units=[UnitFactor(...)]",
    "missing": "Microdata.with_missing({})",
    "missing-as": "Microdata.with_missing_code(COLUMNS)",
}


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

    @property
    def told(self) -> str:
        """Return what is wrong without any value of a confidential file."""
        return self.public or self.what

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" Fix: {_sentence(self.remedy)}" if self.remedy.strip() else ""
        return f"{place}{_sentence(self.what)}{remedy}"

    def inside(self, place: str) -> Problem:
        """Return the same problem with the outer place put in front, as the layer that knows the file does."""
        return replace(self, where=f"{place} {self.where}".strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureProblem(Problem):
    """A refusal because of how change is measured, and not of its unit or distance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesProblem(Problem):
    """A refusal of a stated number of copies."""


def in_python(text: str) -> str:
    """Return a message that names settings by options with the arguments of Python in their place.

    >>> print(in_python("leave it out with --hold; or accept it: --accept tells:zip"))
    leave it out with hold=; or accept it: accept=["tells:zip"]
    >>> print(in_python("--exact 'county x size': there is no such margin"))
    exact 'county x size': there is no such margin
    >>> print(in_python("--redraw-law: name it with --id mark, or type `stirred plan --rate 1/2`"))
    redraw_law: name it with Microdata(id=["mark"]), or type `stirred plan --rate 1/2`
    >>> print(in_python(f"name it with --id {as_option('house id')}; or --accept {as_option('tells:size, all')}"))
    name it with Microdata(id=["house id"]); or accept=["tells:size, all"]
    >>> print(in_python("say so with --set missing=NA; or --set unit=person"))
    say so with Microdata.with_missing(["NA"]); or unit="person"
    >>> print(in_python("state it: --kappa household:person=K"))
    state it: units=[UnitFactor(old="household", new="person", factor=K, because=...)]
    """
    return _OPTION.sub(_argument, text)


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


def _argument(found: re.Match[str]) -> str:
    option, value, colon = found.groups()
    if option is None:
        return found[0]
    if option == "set" and value is not None and "=" in value:
        option, _, value = value.partition("=")
        option = option.replace("_", "-")
    name = option.replace("-", "_")
    if colon:
        return f"{name}{':' if value is None else ' ' + value + ':'}"
    if option == "kappa" and value is not None and (factor := _FACTOR.fullmatch(value)):
        old, new, number = factor.groups()
        return f'units=[UnitFactor(old="{old}", new="{new}", factor={number}, because=...)]'
    if value is not None:
        value = shlex.split(value)[0] if value.startswith("'") else value
        values = ", ".join(f'"{each}"' for each in option_names(value))
        value = f"[{values}]" if option in _LISTS else f'"{value}"'
    return _IN_PYTHON.get(option, f"{name}={{}}").format(value or "")


def _sentence(text: str) -> str:
    """Return text with one mark at its end: its own question mark or the dots of a list cut short, or a full stop."""
    text = text.strip()
    return text if text.endswith(("?", "...")) else f"{text.rstrip('.')}."


class StirredError(Exception):
    """Bad input or a refused request, as one or more :class:`Problem`.

    Problems name settings as options (``--hold tenure``); the message, which Python shows, names its arguments.
    """

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(in_python("\n".join(str(problem) for problem in self.problems)))

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


def refused(what: str, *, where: str, remedy: str = "", kind: type[Problem] = Problem) -> ConversionRefusedError:
    """Return (not raise) the refusal of one request."""
    return ConversionRefusedError([kind(what=what, where=where, remedy=remedy)])


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
