"""Distances that are listed: tables of pairs of datasets, and shortest paths through them."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from typing import Any

from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.given_numbers import Number, loss
from stirred.spec.problems import SpecificationError, wrong

Table = tuple[tuple[str, str, Exact], ...]


def shortest(lengths: dict[tuple[Any, Any], Exact]) -> dict[tuple[Any, Any], Exact]:
    """Return the lengths of shortest weighted and directed paths between all pairs."""
    closed, points = dict(lengths), list(dict.fromkeys(point for pair in lengths for point in pair))
    for middle in points:
        into = [(i, closed[i, middle]) for i in points if not closed[i, middle].is_infinite]
        out = [(j, closed[middle, j]) for j in points if not closed[middle, j].is_infinite]
        for (i, first), (j, second) in product(into, out):
            if (through := first + second) < closed[i, j]:
                closed[i, j] = through
    return closed


def label(dataset: Any) -> str:
    """Return the label of a dataset in a table of distances: a text is its own, a list that of its parts.

    >>> label("north"), label((0, 1)), label(((0, 1), (1, 1))), label(())
    ('north', '0 1', '0 1 1 1', 'empty')
    """
    return (" ".join(map(label, dataset)) or "empty") if isinstance(dataset, (list, tuple)) else str(dataset)


def checked(table: Any, *, directed: bool) -> Table:
    """Return the entries of a table with exact distances; a pair stands once, a dataset is at distance 0 of itself."""
    entries = tuple((str(x), str(y), _far(far)) for x, y, far in table)
    seen: set[tuple[str, str]] = set()
    for x, y, far in entries:
        pair = (x, y) if directed else (min(x, y), max(x, y))
        if pair in seen or (x == y and far != 0):
            what = f"{x} and {y} stand in the table twice" if pair in seen else f"{x} is {far} from itself"
            raise wrong(what, where="input_premetric table", remedy="give each pair once, and 0 for a dataset itself")
        seen.add(pair)
    return entries


def _far(value: Number) -> Exact:
    try:
        return loss(value, where="input_premetric table")
    except SpecificationError:
        what, remedy = f"{str(value)[:60]!r} is not a distance", "write a number of 0 or more, 'ln(2)' or 'inf'"
        raise wrong(what, where="input_premetric table", remedy=remedy) from None


@lru_cache(maxsize=64)
def lengths_of(table: Table, *, directed: bool, closure: bool) -> dict[tuple[str, str], Exact]:
    """Return the distances of a table between all datasets it names, or their shortest paths."""
    points = dict.fromkeys(each for x, y, _ in table for each in (x, y))
    lengths = {(x, y): exact(0) if x == y else INFINITE for x in points for y in points}
    lengths |= {(x, y): far for x, y, far in table}
    if not directed:
        lengths |= {(y, x): far for x, y, far in table}
    return shortest(lengths) if closure else lengths
