"""Files with a number for each pair of values: the columns from, to and the number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import polars as pl

from stirred.data.problems import PlanError, listed
from stirred.spec.problems import Problem

_SHOWN: Final = 5


def nested_pairs(frame: pl.DataFrame, *, number: str, where: str) -> dict[str, dict[str, str]]:
    """Return the pairs of a file with the columns from, to and ``number``; a pair that is given twice is refused.

    >>> nested_pairs(pl.DataFrame({"from": ["A"], "to": ["B"], "distance": ["3"]}), number="distance", where="d.csv")
    {'A': {'B': '3'}}
    """
    problems = [*_file_problems(frame, number, where)]
    if problems:
        raise PlanError(problems)
    found: dict[str, dict[str, str]] = {}
    for first, second, value in frame.select(pl.col("from", "to", number).cast(pl.String)).iter_rows():
        found.setdefault(first, {})[second] = value
    return found


def _file_problems(frame: pl.DataFrame, number: str, where: str) -> Iterator[Problem]:
    wanted = ("from", "to", number)
    if missing := [name for name in wanted if name not in frame.columns]:
        has = listed(frame.columns)
        yield Problem(
            what=f"there is no column {listed(missing)}",
            where=where,
            remedy=f"name the columns {listed(wanted)}, not {has}",
        )
        return
    for name in wanted:
        if frame[name].null_count():
            yield Problem(what="a field is empty", where=f'{where} "{name}"', remedy="fill it, or remove the line")
    twice = frame.group_by("from", "to").len().filter(pl.col("len") > 1)
    for first, second, times in twice.head(_SHOWN).sort("from", "to").iter_rows():
        yield Problem(
            what=f"{first} to {second} stands {times} times", where=where, remedy="keep one line for each pair"
        )
