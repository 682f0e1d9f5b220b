"""Mechanisms by name: those of stirred, and those of installed packages (entry points ``stirred.mechanisms``).

This is the one place that spells their names. A mechanism is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from stirred.mechanisms.groups import GROUPS
from stirred.spec.problems import Problem, SpecificationError, place_of

if TYPE_CHECKING:
    from pydantic import ValidationError

    from stirred.mechanisms.protocol import Command, Mechanism, Settings

GROUP: Final = "stirred.mechanisms"
DEFAULT: Final = "permutation-swap"

# name: (module, class)
BUILT_IN: Final[Mapping[str, tuple[str, str]]] = {
    "permutation-swap": ("stirred.mechanisms.records.laws.permutation", "PermutationSwap"),
    "conditioned-swap": ("stirred.mechanisms.records.laws.conditioned", "ConditionedSwap"),
    "shuffle-swap": ("stirred.mechanisms.records.laws.shuffle", "ShuffleSwap"),
    "mallows-swap": ("stirred.mechanisms.records.laws.mallows", "MallowsSwap"),
    "two-stage-swap": ("stirred.mechanisms.records.steps.two_stage", "TwoStageSwap"),
    "response-swap": ("stirred.mechanisms.records.steps.response", "ResponseSwap"),
    "noisy-swap": ("stirred.mechanisms.tables.noise.earlier", "NoisySwap"),
    "targeted-record-swap": ("stirred.mechanisms.records.pairs.targeted", "TargetedSwap"),
    "pairwise-swap-2010": ("stirred.mechanisms.records.pairs.pairwise2010", "PairwiseSwap"),
    "cell-key": ("stirred.mechanisms.tables.cellkey.mechanism", "CellKey"),
    "noisy-tables": ("stirred.mechanisms.tables.noise.mechanism", "NoisyTables"),
    "topdown": ("stirred.mechanisms.topdown.mechanism", "TopDown"),
    "safetab-p": ("stirred.mechanisms.tables.safetab", "SafeTabP"),
    "safetab-h": ("stirred.mechanisms.tables.safetab", "SafeTabH"),
    "phsafe": ("stirred.mechanisms.tables.phsafe", "PHSafe"),
    "survey-estimates": ("stirred.survey.estimates.mechanism", "SurveyEstimates"),
}

# Mechanisms that earlier versions had. The commit is the last that has them.
_REMOVED: Final = ("metric-swap", "gibbs-swap")
_LAST_COMMIT: Final = "6b6a3cd"
# Mechanisms that only earlier versions release: plans and bundles are read, and the pages of a bundle have other words.
EARLIER: Final = ("noisy-swap",)


class UnknownMechanismError(SpecificationError):
    """A mechanism that is not installed."""


@lru_cache(maxsize=1)
def _plugged_in() -> dict[str, EntryPoint]:
    """Return the mechanisms of other packages; none takes the name of one of ours."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def forget() -> None:
    """Look for installed packages again the next time: one may have been installed in this process."""
    _plugged_in.cache_clear()


def names() -> list[str]:
    """Return the names of all installed mechanisms, ours first.

    >>> names()[0]
    'permutation-swap'
    """
    return [*BUILT_IN, *sorted(_plugged_in())]


def home_of(name: str) -> str | None:
    """Return the module of one of our mechanisms by the name of its class, or None.

    >>> home_of("MallowsSwap")
    'stirred.mechanisms.records.laws.mallows'
    """
    return {attribute: module for module, attribute in BUILT_IN.values()}.get(name)


def package_of(name: str) -> str:
    """Return the package that a mechanism comes from, with its version if it is not ours."""
    if name in BUILT_IN:
        return "stirred"
    dist = _plugged_in()[name].dist
    return "unknown" if dist is None else f"{dist.name} {dist.version}"


def is_installed(name: str) -> bool:
    """Say whether there is a mechanism of this name."""
    return name in BUILT_IN or name in _plugged_in()


def _loaded(name: str) -> Any:
    """Return the mechanism of another package; refuse one that cannot be used, and name the package."""
    try:
        found: Any = _plugged_in()[name].load()
        wanting = [each for each in ("name", "title", "settings_model") if not hasattr(found, each)]
        unset = sorted(getattr(found, "__abstractmethods__", ()))
        if wanting or unset:
            why = f"it has no {', '.join([*wanting, *unset])}"
        elif found.name != name:
            why = f"its own name is '{found.name}'"
        else:
            return found
    except Exception as error:  # whatever goes wrong is reported as an error of that package
        why = f"{type(error).__name__}: {error}"
    what = f"the mechanism '{name}' of the package {package_of(name)} cannot be used ({why})"
    remedy = "correct or uninstall the package; docs/write-a-mechanism.md says what a mechanism needs"
    raise UnknownMechanismError([Problem(what=what, where="name", remedy=remedy)])


def mechanism_class(name: str) -> type[Mechanism]:
    """Return the mechanism of this name, imported.

    >>> mechanism_class("mallows-swap").__name__
    'MallowsSwap'
    """
    if name in BUILT_IN:
        module, attribute = BUILT_IN[name]
        found: Any = getattr(import_module(module), attribute)
    elif name in _plugged_in():
        found = _loaded(name)
    else:
        raise _unknown(name)
    return found


def commands_of(group: str) -> Sequence[Command]:
    """Return the commands of a group, imported."""
    found: Sequence[Command] = import_module(GROUPS[group][0]).COMMANDS
    return found


def family() -> list[str]:
    """Return the swaps within strata, which are compared with each other: those with a ``family``.

    One of another package is among them, unless the package is broken.

    >>> family()[:2]
    ['permutation-swap', 'conditioned-swap']
    """
    return [name for name, each in usable().items() if each.family is not None]


def full_name(name: str, *, where: str = "name") -> str:
    """Return the name of a mechanism as it is registered; of ours, "-swap" may be left out, and letters be capital.

    >>> full_name("Two-Stage"), full_name("mallows_swap")
    ('two-stage-swap', 'mallows-swap')
    """
    if is_installed(name):
        return name
    written = name.strip().lower().replace("_", "-").replace(" ", "-")
    for each in (written, f"{written}-swap"):
        if is_installed(each):
            return each
    raise _unknown(name, where=where)


def _unknown(name: str, *, where: str = "name") -> UnknownMechanismError:
    from stirred.spec.spelling import elsewhere, near

    written = name.strip().lower().replace("_", "-")
    found = f"{written}-swap" if f"{written}-swap" in names() else near(written, names())
    hint = f'did you mean "{found}"? There are' if found else "write one of"
    what = f"there is no mechanism called '{name}'"
    remedy = f"{hint} {', '.join(names())}; `stirred mechanism list` says what each does"
    if written in _REMOVED or f"{written}-swap" in _REMOVED:
        what = f"the mechanism '{name}' was removed after version 0.1: it could draw small strata only"
        remedy = (
            "use conditioned-swap, whose loss does not grow with the stratum, or mallows-swap for a loss of your "
            f"choice; the last commit of stirred that has it is {_LAST_COMMIT}"
        )
    elif f"{written}-swap" not in names() and (known := elsewhere(name)) is not None:
        what, remedy = known
    return UnknownMechanismError([Problem(what=what, where=where, remedy=remedy)])


# ---- settings: from a plan, the command line or keywords of Python to the one model -------------------------------


class PlanWords:
    """How settings are written in a plan, for what is said of them; the command line has words of its own."""

    def place(self, key: str) -> str:
        """Return where a setting is given."""
        return key

    def called(self, key: str) -> str:
        """Return what a setting is called."""
        return key

    def taken(self, keys: Sequence[str]) -> str:
        """List settings that a mechanism takes."""
        return ", ".join(f'"{key}"' for key in keys)

    def needed(self, key: str, example: Any = None) -> str:
        """Say how to give a setting that is needed."""
        return f"add {key}" if example is None else f"add {key}, such as {example!r}"


def settings_for(
    mechanism: str | type[Mechanism], given: Mapping[str, Any], *, words: Any = None, keep_empty: bool = False
) -> Any:
    """Return the settings of a mechanism, checked; all problems are reported together.

    They may come from a plan, the command line, or keywords of Python: tuples, fractions and floats are taken as well.
    What is None was not given, nor is an empty list, unless leaving it out means everything, or ``keep_empty`` takes
    it as it stands: an option that was not used is an empty list, and a keyword of Python is not.

    >>> settings_for("mallows-swap", {"swap": ("county",), "epsilon": 0.5}).epsilon
    Decimal('0.5')
    >>> from stirred.data.problems import PlanError
    >>> try:
    ...     settings_for("mallows-swap", {"swap": "county", "rate": "5%"})
    ... except PlanError as error:
    ...     print(*error.problems, sep="\\n")
    epsilon: is needed. Fix: add epsilon, such as 2.
    rate: the mallows swap has no rate. Fix: leave it out; it takes "epsilon".
    """
    from pydantic import ValidationError

    from stirred.data.problems import PlanError

    kind = mechanism_class(mechanism) if isinstance(mechanism, str) else mechanism
    fields = kind.settings_model.model_fields

    def was_given(key: str, value: Any) -> bool:
        empty = isinstance(value, list) and not value and not keep_empty
        return value is not None and (not empty or (key in fields and fields[key].get_default() is None))

    plain = {key: _plain(value) for key, value in given.items()}
    try:
        return kind.settings_model.model_validate({key: plain[key] for key in plain if was_given(key, plain[key])})
    except ValidationError as error:
        raise PlanError(_problems(error, plain, kind, words or PlanWords())) from None


def _plain(value: Any) -> Any:
    """Return a value as a plan would have it: exact numbers as text, a float by its shortest decimal.

    A mechanism, which may come before tables, is its name with its settings.
    """
    import polars as pl
    from pydantic import BaseModel

    from stirred.mechanisms.protocol import Mechanism, PublicTable

    if isinstance(value, Mechanism):
        return {"name": value.name, **value.settings.dumped(mode="python", exclude_defaults=True)}
    if value is None or isinstance(value, str | bytes | int | Decimal | BaseModel | PublicTable | pl.DataFrame):
        return value  # parts of settings and public tables are checked as they are
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [_plain(each) for each in value]
    return str(value)


def _problems(error: ValidationError, given: Any, kind: type[Mechanism], words: Any) -> Iterator[Problem]:
    from stirred.spec.misfits import misfits

    model = kind.settings_model

    def called(key: str) -> str:
        return key if model.mark(key, "section") else f"mechanism.{key}"

    for found in misfits(
        error.errors(), given, model, remedy=f"see `stirred mechanism show {kind.name}`", called=called
    ):
        key, *inside = found.place or ("settings",)
        what, remedy = found.what, found.remedy
        if found.kind == "extra_forbidden" and not inside:
            yield _unknown_setting(str(key), kind, found.hint, words)
            continue
        if found.kind == "missing":
            example = None if inside else model.mark(str(key), "example")
            what, remedy = "is needed", words.needed(str(found.place[-1]), example)
        elif key == "after" and found.kind == "dict_type":
            table = 'after = { name = "permutation-swap", swap = "county", rate = "5%" }'
            remedy = f"write its name and settings, such as {table}; in Python after=stirred.PermutationSwap(...)"
        yield Problem(what=what, where=place_of((words.place(str(key)), *inside)), remedy=remedy)


def _unknown_setting(key: str, kind: type[Mechanism], hint: str, words: Any) -> Problem:
    # What a family shares is known to its users; what only this mechanism has is told, wherever it was declared.
    model = kind.settings_model
    others = [each.settings_model for each in usable().values() if not issubclass(each.settings_model, model)]
    base = next(each for each in model.__mro__[1:] if any(issubclass(other, each) for other in others))
    if is_setting(key):
        takes = words.taken([each for each in model.model_fields if each not in getattr(base, "model_fields", {})])
        what = f"the {kind.name.replace('-', ' ')} has no {words.called(key)}"
        return Problem(what=what, where=words.place(key), remedy=f"leave it out; it takes {takes}")
    remedy = (
        f"{hint}{'I' if hint else 'remove it, or check its spelling: i'}t takes {words.taken(model.setting_names())}"
    )
    return Problem(what=f"there is no setting called '{key}'", where=words.place(key), remedy=remedy)


def is_setting(key: str) -> bool:
    """Say whether any installed mechanism has a setting of this name."""
    return any(key in each.settings_model.model_fields for each in usable().values())


def usable() -> dict[str, type[Mechanism]]:
    """Return the installed mechanisms by name, but for those of packages that are broken."""
    found = {}
    for name in names():
        with suppress(UnknownMechanismError):
            found[name] = mechanism_class(name)
    return found


def build(name: str, settings: Mapping[str, Any] | Settings, **others: Any) -> Mechanism:
    """Return a mechanism with these settings, which are checked first where they are plain data.

    ``others`` are the plan's tables where the mechanism releases tables alone.

    >>> build("mallows-swap", {"match": "size", "swap": "county", "epsilon": 2}).in_words[:16]
    'Mallows swapping'
    """
    found = mechanism_class(name)
    checked = settings_for(name, settings) if isinstance(settings, Mapping) else settings
    return found(checked, **others)
