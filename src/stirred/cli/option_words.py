"""Problems of a plan in the words of the command line: the option that was meant, and how to write it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from stirred.data.problems import PlanError
    from stirred.spec.problems import Problem

SOURCE: Final = "command line"
# Keys of a plan that have an option, and how it is written. All others are given by --set.
EXAMPLES: Final = {
    "swap": "--swap county",
    "match": "--match size",
    "hold": "--hold tenure",
    "rate": "--rate 1/20",
    "epsilon": "--epsilon 2",
    "tables": "--table 'county x tenure'",
    "unit": "--set unit=household",
    "settings_from": "--set settings_from=policy",
    "households": "FILE",
    "persons": "--persons persons.csv",
    "hid": "--hid hid",
    "id": "--id name",
    "codebook": "--codebook codebook.toml",
    "missing": "--set missing=NA",
    "missing_as": "--set missing_as=code",
    "stage": "--set stage=edited-file",
    "post_imputation": "--set post_imputation=true",
    "out": "--out bundle",
    "format": "--set format=csv",
    "purpose": "--set purpose='a test'",
    "ledger": "--ledger census.ledger",
    "accept": "--accept identifier:mark",
}
# Keys of [data] and [release] without an option of their own, and the section of each.
PLAN_KEYS: Final = {
    **dict.fromkeys(("name", "missing", "missing_as", "stage", "post_imputation", "decimal", "separator"), "data"),
    **dict.fromkeys(("format", "purpose", "title", "exposed_share"), "release"),
}
# Keys of [data] and [release] that a mechanism may have as settings too: those are given by --set.
_OF_FILES: Final = ("households", "persons", "hid", "id", "codebook", "ledger", "out")
# The same key in two sections is another option.
_IN_SECTION: Final = {("data", "name"): "--set name", ("mechanism", "name"): "--mechanism"}

# Where the conversions of `stirred.spec` say that a number is wrong, and the option it was given by.
_PLACES: Final = {
    **{name: f"--{name}" for name in ("because", "budget", "delta", "epsilon", "factor", "method", "order", "rho2")},
    **{name: f"--{name}" for name in ("stratum", "unit")},
    **{name: f"--{name}" for name in ("alpha", "area", "at", "copies", "distance", "household", "power", "prior")},
    **{name: f"--{name}" for name in ("beta", "count", "kappa", "lipschitz", "records", "step")},
    "input_premetric unit": "--unit",
    "input_premetric within": "--at-distance",
    "output_premetric": "--output",
    "output_premetric delta": "--delta",
    "output_premetric order": "--order",
}


def no_area(column: str) -> PlanError:
    """Return the refusal of an attack without a named area; ``column`` is the one that was looked for."""
    from stirred.data.problems import bad_plan

    remedy = "name the smallest area whose tables are published, such as --area tract"
    return bad_plan(f'no area is named, and there is no column "{column}"', where="--area", remedy=remedy)


@contextmanager
def told_by_options() -> Iterator[None]:
    """Name the option in problems that name the argument it was passed on as.

    >>> from stirred.spec.given_numbers import loss
    >>> from stirred.spec.problems import StirredError
    >>> try:
    ...     with told_by_options():
    ...         loss("-1", where="epsilon")
    ... except StirredError as error:
    ...     print(*error.problems)
    --epsilon: -1 is negative. Fix: write a loss of 0 or more.
    """
    from stirred.spec.problems import StirredError

    try:
        yield
    except StirredError as error:
        told = (replace(problem, where=_PLACES.get(problem.where, problem.where)) for problem in error.problems)
        raise type(error)(told) from None


def option(key: str) -> str:
    """Return the option for a key of a plan.

    >>> option("settings_from"), option("fine_match")
    ('--set settings_from', '--set fine_match')
    """
    example = EXAMPLES.get(key, "--set")
    return f"--set {key}" if example.startswith("--set") else example.split()[0]


def option_of_setting(key: str) -> str:
    """Return the option for a setting of a mechanism: --persons names a file, and not how many persons count.

    >>> option_of_setting("rate"), option_of_setting("persons")
    ('--rate', '--set persons')
    """
    return f"--set {key}" if key in _OF_FILES else option(key)


class InOptions:
    """How settings are written on the command line of one command, as ``PlanWords`` of the registry for plans."""

    def __init__(self, command: str) -> None:
        self.command = command

    def place(self, key: str) -> str:
        """Return the option."""
        return option_of_setting(key)

    def called(self, key: str) -> str:
        """Return the option, or the key that is given by --set."""
        return option(key) if key in EXAMPLES and key not in _OF_FILES else key

    def taken(self, keys: Sequence[str]) -> str:
        """List options."""
        return ", ".join(map(option_of_setting, keys))

    def needed(self, key: str, example: Any = None) -> str:
        """Say how to write an option that is needed."""
        texts = ",".join(map(str, example)) if isinstance(example, list) else example
        such = EXAMPLES.get(key, f"--set {key}={'...' if texts is None else texts}")
        return f"such as {such}; see `stirred {self.command} --help`, or write a plan.toml"


def in_options(problem: Problem) -> Problem:
    """Return a problem of a plan that was told by options with the option in the place of the key.

    >>> from stirred.spec.problems import Problem
    >>> print(in_options(Problem(what="is no column", where="command line [mechanism] fine_match", remedy="")))
    --set fine_match: is no column.
    """
    from stirred.mechanisms.registry import is_setting

    if place := re.match(rf"{SOURCE} \[\[tables\]\]( entry \d+)?(, )?", problem.where):
        return replace(problem, where=problem.where[place.end() :] or "--table")
    if (place := re.fullmatch(rf"{SOURCE} \[\[(\w+)\]\](.*)", problem.where, flags=re.DOTALL)) and is_setting(place[1]):
        return replace(problem, where=f"--set {place[1]}{place[2]}")
    place = re.fullmatch(rf"{SOURCE} \[(\w+)\] (\w+)(.*)", problem.where, flags=re.DOTALL)
    if place is None:
        return problem
    section, key, rest = place.groups()
    if (section, key) in _IN_SECTION:
        return replace(problem, where=_IN_SECTION[section, key] + rest)
    known = key in EXAMPLES or key in PLAN_KEYS or (section == "mechanism" and is_setting(key))
    named = option_of_setting(key) if section == "mechanism" else option(key)
    return replace(problem, where=named + rest) if known else problem
