"""Table 5: swapping applied to the 2020 Census (section 5.3)."""

from fractions import Fraction
from itertools import combinations

import pytest

from stirred.data.synth.census import census
from stirred.release.choices import Candidate, candidates
from stirred.spec import ALL, Margin, Verdict, catalogue
from stirred.spec.exact import ln
from stirred.spec.swap_budget import psa_sharp_epsilon
from tests.paper.printed import assert_prints, assert_truncates
from tests.paper.published import TABLE_5, TABLE_5_ENTRIES, Table5Row, only_stratum, specification

PAIRS = list(zip(TABLE_5[::2], TABLE_5[1::2], strict=True))


@pytest.mark.parametrize("row", TABLE_5, ids=lambda row: str(row.name))
def test_each_row_prints_its_stratum_and_both_losses(row: Table5Row) -> None:
    """Table 5, columns b, p = 5% and p = 50%."""
    for name, rate, epsilon in zip(
        row.entries, ("5/100", "50/100"), (row.at_5_percent, row.at_50_percent), strict=True
    ):
        spec = specification(name)
        assert only_stratum(spec).largest_stratum == row.b
        assert only_stratum(spec).rate == Fraction(rate)
        assert_prints(spec.budget.realised, epsilon)


@pytest.mark.parametrize("row", TABLE_5, ids=lambda row: str(row.name))
def test_each_row_fixes_match_by_swap_and_everything_held(row: Table5Row) -> None:
    """Table 5, columns V_Match and V_Swap: the invariants are n over V_Match x V_Swap and V_Hold (Proposition 4)."""
    match_level, *size = row.match
    for name in row.entries:
        margins = specification(name).multiverse.invariants
        assert all(isinstance(margin, Margin) and margin.of == "household" for margin in margins)
        assert {(margin.variables, margin.level) for margin in margins if isinstance(margin, Margin)} == {
            (("household_size",) if size else (), row.swap),
            ((ALL,), match_level),
        }


@pytest.mark.parametrize("row", TABLE_5, ids=lambda row: str(row.name))
def test_the_rate_does_not_change_the_invariants(row: Table5Row) -> None:
    """Table 5: both losses of a row have one flavor, and are comparable."""
    low, high = (specification(name) for name in row.entries)
    assert low.flavor == high.flavor
    assert high.budget.realised < low.budget.realised


@pytest.mark.parametrize(("uncrossed", "crossed"), PAIRS, ids=lambda row: str(row.name))
def test_crossing_with_household_size_is_strictly_more_constrained(uncrossed: Table5Row, crossed: Table5Row) -> None:
    """Section 5.3: within each level of V_Swap the two rows are nested, the latter logically stronger."""
    coarse, fine = (specification(row.entries[0]).multiverse for row in (uncrossed, crossed))
    assert fine.refines(coarse).verdict is Verdict.YES
    assert coarse.refines(fine).verdict is Verdict.NO


@pytest.mark.parametrize(("earlier", "later"), list(combinations(TABLE_5, 2)), ids=lambda row: str(row.name))
def test_every_later_row_holds_strictly_more_fixed(earlier: Table5Row, later: Table5Row) -> None:
    """Section 5.3 orders the rows by granularity; everything held at the finer level fixes the coarser tables."""
    coarse, fine = (specification(row.entries[0]).multiverse for row in (earlier, later))
    assert fine.refines(coarse).verdict is Verdict.YES
    assert coarse.refines(fine).verdict is Verdict.NO


@pytest.mark.parametrize(("uncrossed", "crossed"), PAIRS, ids=lambda row: str(row.name))
def test_more_invariants_give_a_smaller_nominal_loss(uncrossed: Table5Row, crossed: Table5Row) -> None:
    """Section 5.3: at a fixed rate, including more invariants decreases the nominal loss."""
    for coarse, fine in zip(uncrossed.entries, crossed.entries, strict=True):
        assert specification(fine).budget.realised < specification(coarse).budget.realised


def test_a_high_rate_across_the_state_costs_more_than_a_low_rate_within_block_groups() -> None:
    """Section 5.3: 16.42 at 50% against 11.37 at 5%."""
    across = specification("psa-2020-state-county-50pct").budget.realised
    within = specification("psa-2020-block-group-block-size-5pct").budget.realised
    assert_prints(across, "16.42")
    assert_prints(within, "11.37")
    assert within < across


def test_the_largest_strata_range_as_section_5_3_says() -> None:
    """Section 5.3: from 13.47 million, which is cut off (13.475623 rounds to 13.48), to 4,549."""
    strata = [only_stratum(specification(name)).largest_stratum for name in TABLE_5_ENTRIES]
    assert_truncates(Fraction(max(strata), 10**6), "13.47")
    assert min(strata) == 4_549


def test_the_table_has_no_other_entry() -> None:
    """Table 5 has six rows of two rates."""
    assert [name for name in catalogue.names() if name.startswith("psa-2020")] == list(TABLE_5_ENTRIES)


# --- the same table, planned on a synthetic census ---------------------------------------------------------


@pytest.fixture(scope="module", params=[1, 2])
def planned(request: pytest.FixtureRequest) -> dict[tuple[tuple[str, ...], str], Candidate]:
    """The planner's choices on 200,000 synthetic households, by match and first swap variable."""
    households, _ = census(200_000, seed=request.param)
    levels = ["block", "block_group", "tract", "county", "state"]
    found = candidates(households.drop("hid"), levels=levels, cross=["size"])
    return {(choice.match, choice.swap[0]): choice for choice in found}


def planned_rows(planned: dict[tuple[tuple[str, ...], str], Candidate]) -> list[Candidate]:
    return [planned[row.match, row.swap] for row in TABLE_5]


def nested(one: Table5Row, other: Table5Row) -> bool:
    """Whether the strata of the second row lie inside those of the first: then its b cannot be larger."""
    return set(one.match[1:]) <= set(other.match[1:])


@pytest.mark.parametrize(
    ("earlier", "later"),
    [(a, b) for a, b in combinations(range(len(TABLE_5)), 2) if nested(TABLE_5[a], TABLE_5[b])],
    ids=str,
)
def test_the_planner_orders_nested_choices_as_table_5_does(
    earlier: int, later: int, planned: dict[tuple[tuple[str, ...], str], Candidate]
) -> None:
    """b and both losses fall from row to row, and the strata become more; how steeply depends on the nation."""
    assert TABLE_5[later].b < TABLE_5[earlier].b
    rows = planned_rows(planned)
    coarse, fine = rows[earlier], rows[later]
    assert fine.largest < coarse.largest
    assert fine.strata > coarse.strata
    assert fine.live > coarse.live
    for (rate, larger), (_, smaller) in zip(coarse.epsilons, fine.epsilons, strict=True):
        assert smaller < larger, rate


def test_the_planner_charges_what_table_5_charges_for_a_lower_rate(
    planned: dict[tuple[tuple[str, ...], str], Candidate],
) -> None:
    """In every row 5% costs ln 19 = 2.94 more than 50%: both are in the branch of Theorem 1 that b decides."""
    for row, choice in zip(TABLE_5, planned_rows(planned), strict=True):
        assert abs(Fraction(row.at_5_percent) - Fraction(row.at_50_percent) - Fraction("2.944")) <= Fraction("0.01")
        (_, at_5), (_, at_50) = choice.epsilons
        assert at_5 == psa_sharp_epsilon(Fraction(1, 20), stratum=choice.largest)
        assert at_50 == psa_sharp_epsilon(Fraction(1, 2), stratum=choice.largest)
        assert at_5 - at_50 == ln(19)


def test_the_largest_crossed_strata_are_of_two_persons_as_in_table_5(
    planned: dict[tuple[tuple[str, ...], str], Candidate],
) -> None:
    """In states and counties, which have many tracts; in a single block group single persons may be more."""
    for row in (("state", "size"), "county"), (("county", "size"), "tract"):
        assert planned[row].largest_values[1] == 2


def test_a_high_rate_across_the_state_costs_more_in_the_plan_too(
    planned: dict[tuple[tuple[str, ...], str], Candidate],
) -> None:
    """Section 5.3, on the synthetic census."""
    rows = planned_rows(planned)
    assert rows[0].epsilons[1][1] > rows[-1].epsilons[0][1]


def test_only_the_finest_choice_may_be_made_by_looking_at_the_list(
    planned: dict[tuple[tuple[str, ...], str], Candidate],
) -> None:
    """Each row's invariants follow from those of the last, as the rows of Table 5 are nested."""
    assert [choice.match for choice in planned.values() if choice.safe] == [("block_group", "size")]
