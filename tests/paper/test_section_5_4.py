"""Section 5.4: the 2020 disclosure avoidance system and swapping, block by block."""

import pytest

from stirred.spec import Multiverse, Verdict, compare
from stirred.spec.comparison import EQUAL, INCOMPARABLE, STRONGER, WEAKER
from tests.paper.published import TABLE_5_ENTRIES, household_to_person, specification

VERDICTS = {
    "domain": EQUAL,
    "multiverse": INCOMPARABLE,
    "input_premetric": WEAKER,
    "output_premetric": WEAKER,
    "budget": INCOMPARABLE,
}
SEEN_FROM_SWAPPING = {STRONGER: WEAKER, WEAKER: STRONGER, EQUAL: EQUAL, INCOMPARABLE: INCOMPARABLE}


@pytest.mark.parametrize("name", TABLE_5_ENTRIES)
def test_the_verdicts_are_those_of_section_5_4(name: str) -> None:
    """Section 5.4: same domain; invariants not nested; persons and zCDP weaker than households and pure DP."""
    comparison = compare(specification("das-2020"), specification(name))
    assert {block.block: block.verdict for block in comparison.blocks} == VERDICTS


@pytest.mark.parametrize("name", TABLE_5_ENTRIES)
def test_the_verdicts_turn_round_with_the_question(name: str) -> None:
    """Section 5.4, asked from the side of swapping."""
    comparison = compare(specification(name), specification("das-2020"))
    assert {block.block: block.verdict for block in comparison.blocks} == {
        block: SEEN_FROM_SWAPPING[verdict] for block, verdict in VERDICTS.items()
    }


@pytest.mark.parametrize("name", TABLE_5_ENTRIES)
@pytest.mark.parametrize("stated", [False, True], ids=["no factor stated", "factor stated"])
def test_there_is_no_overall_verdict(name: str, stated: bool) -> None:
    """Section 5.4: converting budgets does not make them comparable, not even with a factor between the units."""
    units = [household_to_person(1)] if stated else []
    comparison = compare(specification("das-2020"), specification(name), units=units)
    assert comparison.overall is None
    assert "cannot be compared" in comparison.because
    assert comparison.to_change


@pytest.mark.parametrize("name", TABLE_5_ENTRIES)
def test_swapping_need_not_fix_the_group_quarters_of_topdown(name: str) -> None:
    """Section 5.4: swapping fixes more, and yet not necessarily the TopDown Algorithm's group quarters."""
    topdown, swapping = specification("das-2020-topdown").multiverse, specification(name).multiverse
    quarters = Multiverse(
        invariants=tuple(i for i in topdown.invariants if "group quarters" in str(i)), hierarchies=topdown.hierarchies
    )
    assert len(quarters.invariants) == 1
    assert swapping.refines(quarters).verdict is not Verdict.YES
