"""Household and person files drawn by Hypothesis, and the plain counts that swapping must not change."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from hypothesis import strategies as st

from stirred import PermutationSwap
from stirred.data.microdata import Microdata

RATES = ["0", "1", "1/2", "1/20", "9/10", "1/3"]
PLACES: dict[str, list[Any]] = {
    "text": ["Ashby", "Bourne", "", "ünïcode, with a comma"],
    "whole numbers": [-5, 0, 7, 10**12],
    "dates": [datetime.date(1940, 4, 1), datetime.date(1900, 1, 1), datetime.date(2020, 2, 29)],
    "true or false": [True, False],
}


@dataclass(frozen=True)
class File:
    """A confidential file and the swap to make of it."""

    data: Microdata
    swap: PermutationSwap
    match: list[str] = field(default_factory=list)

    @property
    def persons(self) -> pl.DataFrame | None:
        return self.data.persons if isinstance(self.data.persons, pl.DataFrame) else None

    @property
    def hold(self) -> list[str]:
        return [name for name in self.data.variables if name not in self.swap.swap]


@st.composite
def files(draw: st.DrawFn, *, with_persons: bool | None = None) -> File:
    """Strata of no, one, two, three and more records; hold and swap values may be constant."""
    match = draw(st.sampled_from([[], ["size"], ["size", "state"]]))
    sizes = draw(st.lists(st.sampled_from([0, 1, 1, 2, 2, 3, 3, 6]), min_size=1, max_size=6))
    strata = [(number % 3, f"state {number // 3}") for number, size in enumerate(sizes) for _ in range(size)]
    strata = draw(st.permutations(strata or [(0, "state 0")]))
    rows = len(strata)

    def column(values: Sequence[Any]) -> list[Any]:
        kept = values[:1] if draw(st.integers(0, 4)) == 0 else values  # constant in one file of five
        return draw(st.lists(st.sampled_from(kept), min_size=rows, max_size=rows))

    county = column(PLACES[draw(st.sampled_from(sorted(PLACES)))])
    households = pl.DataFrame(
        {
            "hid": draw(st.permutations(range(100, 100 + rows))),
            "county": county,
            "size": [size for size, _ in strata],
            "tenure": column(["owned", "rented", None]),
            "tract": column([1, 2, 3]),
            "state": [state for _, state in strata],
        },
        schema_overrides={"tenure": pl.String},
    )
    living = draw(st.booleans()) if with_persons is None else with_persons
    persons = draw(person_files(households["hid"].to_list())) if living else None
    swap = draw(st.sampled_from([["county"], ["county", "tract"], ["tract", "county"]]))
    return File(
        data=Microdata(households=households, persons=persons, hid="hid", id=("pid",) if persons is not None else ()),
        swap=PermutationSwap(
            match=match, swap=swap, rate=draw(st.sampled_from(RATES)), rates=draw(rules(match, strata))
        ),
        match=match,
    )


def rules(match: list[str], strata: Sequence[tuple[int, str]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rates of their own for some strata."""
    if not match:
        return st.just([])
    size = st.sampled_from(sorted({size for size, _ in strata}))
    return st.lists(st.fixed_dictionaries({"size": size, "rate": st.sampled_from(RATES)}), max_size=2)


@st.composite
def person_files(draw: st.DrawFn, households: list[int]) -> pl.DataFrame:
    """Persons of some of the households, in any order; many are alike."""
    living = draw(st.lists(st.sampled_from(households), min_size=1, max_size=12))
    return pl.DataFrame(
        {
            "pid": list(range(len(living))),
            "age": draw(st.lists(st.sampled_from([0, 34, 35]), min_size=len(living), max_size=len(living))),
            "hid": living,
            "sex": draw(st.lists(st.sampled_from(["f", "m", None]), min_size=len(living), max_size=len(living))),
        },
        schema_overrides={"sex": pl.String},
    )


def counts(frame: pl.DataFrame, columns: Sequence[str]) -> Counter[Hashable]:
    """How often every combination of values occurs, by plain counting."""
    return Counter(frame.select(columns).rows()) if columns else Counter({(): frame.height})


def households_with_persons(
    households: pl.DataFrame,
    persons: pl.DataFrame | None,
    *,
    hid: str,
    columns: Sequence[str],
    of_persons: Sequence[str],
) -> Counter[Hashable]:
    """Every household as its values and the multiset of its persons, by plain counting."""
    inside: dict[Any, list[tuple[Any, ...]]] = {}
    if persons is not None:
        for key, *values in persons.select(hid, *of_persons).rows():
            inside.setdefault(key, []).append(tuple(values))
    return Counter(
        (tuple(values), tuple(sorted(inside.get(key, []), key=repr)))
        for key, *values in households.select(hid, *columns).rows()
    )
