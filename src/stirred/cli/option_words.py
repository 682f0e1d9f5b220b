"""Problems of a plan in the words of the command line: the option that was meant, and how to write it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stirred.spec.problems import Problem

SOURCE: Final = "command line"
# Keys of a plan that have an option, and how it is written.
EXAMPLES: Final = {
    "swap": "--swap county",
    "match": "--match size",
    "hold": "--hold tenure",
    "rate": "--rate 1/20",
    "epsilon": "--epsilon 2",
    "redraw_law": "--redraw-law uniform",
    "fine_match": "--fine-match tenure",
    "fine_rate": "--fine-rate 1/2",
    "distances": "--distances distances.csv",
    "weights": "--weights weights.csv",
    "noise_epsilon": "--noise-epsilon 1",
    "tables": "--table 'county x tenure'",
    "respond": "--respond tenure",
    "values": "--values owned,rented",
    "change": "--change 1/10",
    "unit": "--unit household",
    "settings_from": "--settings-from policy",
    "name": "--mechanism permutation",
    "households": "FILE",
    "persons": "--persons persons.csv",
    "hid": "--hid hid",
    "id": "--id name",
    "codebook": "--codebook codebook.toml",
    "out": "--out bundle",
    "format": "--format csv",
    "purpose": "--purpose 'a test'",
    "ledger": "--ledger census.ledger",
}


# Where the conversions of `stirred.spec` say that a number is wrong, and the option it was given by.
_PLACES: Final = {
    **{name: f"--{name}" for name in ("because", "budget", "delta", "epsilon", "factor", "method", "order", "rho2")},
    **{name: f"--{name}" for name in ("stratum", "unit")},
    "input_premetric unit": "--unit",
    "input_premetric within": "--at-distance",
    "output_premetric": "--output",
    "output_premetric delta": "--delta",
    "output_premetric order": "--order",
}


@contextmanager
def told_by_options() -> Iterator[None]:
    """Name the option in problems that name the argument it was passed on as.

    >>> from stirred.spec.given_numbers import loss
    >>> with told_by_options():
    ...     loss("-1", where="epsilon")
    Traceback (most recent call last):
    stirred.spec.problems.SpecificationError: --epsilon: -1 is negative. Mend: write a loss of 0 or more.
    """
    from stirred.spec.problems import StirredError

    try:
        yield
    except StirredError as error:
        told = (replace(problem, where=_PLACES.get(problem.where, problem.where)) for problem in error.problems)
        raise type(error)(told) from None


def option(key: str) -> str:
    """Return the option for a key of a plan.

    >>> option("redraw_law"), option("fine_match")
    ('--redraw-law', '--fine-match')
    """
    return EXAMPLES[key].split()[0]


def needed(key: str, *, command: str) -> Problem:
    """Return the problem of an option that is needed and was not given."""
    from stirred.spec.problems import Problem

    remedy = f"such as {EXAMPLES[key]}; see `stirred {command} --help`, or write a plan.toml"
    return Problem(what="is needed", where=option(key), remedy=remedy)


def in_options(problem: Problem) -> Problem:
    """Return a problem of a plan that was told by options with the option in the place of the key.

    >>> from stirred.spec.problems import Problem
    >>> told = Problem(what="the noisy swap has no fine_match", where="command line [mechanism] fine_match", remedy="")
    >>> print(in_options(told))
    --fine-match: the noisy swap has no --fine-match.
    """
    if problem.where == f"{SOURCE} [data] name":
        return replace(problem, where="--name")
    place = re.match(rf"{SOURCE} \[\w+\] (\w+)(.*)", problem.where, flags=re.DOTALL)
    if place is None or place[1] not in EXAMPLES:
        return problem
    key, rest = place[1], place[2]
    if problem.what == "is needed":
        return replace(problem, where=option(key) + rest, remedy=f"such as {EXAMPLES[key]}")
    return replace(
        problem,
        what=re.sub(rf"(?<= has no ){key}$", option(key), problem.what),
        where=option(key) + rest,
        remedy=re.sub(r'"(\w+)"', _as_option, problem.remedy) if "it takes" in problem.remedy else problem.remedy,
    )


def _as_option(name: re.Match[str]) -> str:
    return option(name[1]) if name[1] in EXAMPLES else f"{name[1]} (only in a plan)"
