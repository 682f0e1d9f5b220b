"""Example 3: the invariants of the 2020 Census are the invariants of no swapping."""

from itertools import product

import pytest

from stirred.spec import ALL, Hierarchy, Margin, Multiverse, Verdict
from tests.paper.published import TABLE_5_ENTRIES, specification

GEOGRAPHY = Hierarchy(name="geography", levels=("block", "block_group", "tract", "county", "state", "nation"))
SIZES: tuple[tuple[str, ...], ...] = ((), ("household_size",))
SCHEMES = [
    (match, swap, size)
    for (i, swap), (j, match), size in product(enumerate(GEOGRAPHY.levels), enumerate(GEOGRAPHY.levels), SIZES)
    if i < j
]


def topdown() -> Multiverse:
    return specification("das-2020-topdown").multiverse


def swapping(unit: str, match: str, swap: str, size: tuple[str, ...]) -> Multiverse:
    """Return the invariants of swapping (Proposition 4) for one choice of V_Match and V_Swap."""
    carried = ("person",) if unit == "household" else ()
    return Multiverse(
        invariants=(
            Margin(of=unit, variables=size, level=swap, includes=carried if size else ()),
            Margin(of=unit, variables=(ALL,), level=match, includes=carried),
        ),
        hierarchies=(GEOGRAPHY,),
    )


@pytest.mark.parametrize("name", [*TABLE_5_ENTRIES, "psa-2010-2pct"])
def test_neither_multiverse_refines_the_other(name: str) -> None:
    """Example 3, for every published swapping scheme: refinement is not affirmed in either direction."""
    published = specification(name).multiverse
    assert topdown().refines(published).verdict is not Verdict.YES
    assert published.refines(topdown()).verdict is not Verdict.YES


@pytest.mark.parametrize("unit", ["household", "person"])
@pytest.mark.parametrize(("match", "swap", "size"), SCHEMES)
def test_no_choice_of_match_and_swap_gives_the_invariants_of_2020(
    unit: str, match: str, swap: str, size: tuple[str, ...]
) -> None:
    """Example 3: regardless of V_Match and V_Swap, and of the records swapped."""
    scheme = swapping(unit, match, swap, size)
    assert topdown().refines(scheme).verdict is Verdict.NO
    assert not (topdown().refines(scheme) and scheme.refines(topdown()))


@pytest.mark.parametrize("name", TABLE_5_ENTRIES)
def test_the_number_of_young_adults_is_fixed_by_swapping_only(name: str) -> None:
    """Example 3: how many persons of each age there are in the country is invariant under any swapping."""
    ages = Multiverse(invariants=(Margin(of="person", variables=("age",)),))
    assert specification(name).multiverse.refines(ages).verdict is Verdict.YES
    assert topdown().refines(ages).verdict is Verdict.NO
