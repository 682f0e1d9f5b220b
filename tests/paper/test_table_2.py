"""Table 2: swap rates and protection losses for Massachusetts in 1940 (section 3.4)."""

from fractions import Fraction
from itertools import pairwise

import pytest

from stirred.spec import PURE, Margin, catalogue, compare
from stirred.spec.comparison import STRONGER
from tests.paper.printed import assert_prints
from tests.paper.published import only_stratum, specification

ROWS = [
    ("psa-1940-massachusetts-1pct", "0.01", "17.08"),
    ("psa-1940-massachusetts-5pct", "0.05", "15.43"),
    ("psa-1940-massachusetts-10pct", "0.10", "14.68"),
    ("psa-1940-massachusetts-50pct", "0.50", "12.48"),
]


@pytest.mark.parametrize(("name", "rate", "epsilon"), ROWS)
def test_each_swap_rate_has_the_printed_loss(name: str, rate: str, epsilon: str) -> None:
    """Table 2, one column each, from the rate and b = 264,331 alone."""
    spec = specification(name)
    assert only_stratum(spec).rate == Fraction(rate)
    assert only_stratum(spec).largest_stratum == 264_331
    assert_prints(spec.budget.realised, epsilon)


@pytest.mark.parametrize("name", [row[0] for row in ROWS])
def test_the_flavor_is_pure_and_counts_households(name: str) -> None:
    """Section 3.4: county and tenure margins by household size are invariant (Proposition 4)."""
    spec = specification(name)
    assert spec.output_premetric == PURE
    assert (spec.input_premetric.name, spec.input_premetric.unit) == ("d_HamS", "household")
    assert {(m.variables, m.level) for m in spec.multiverse.invariants if isinstance(m, Margin)} == {
        (("household_size",), "county"),
        (("household_size", "tenure"), "state"),
    }


def test_the_four_losses_can_be_compared_because_the_invariants_are_the_same() -> None:
    """Section 3.4: with fixed invariants the values are guarantees of different strength."""
    specs = [specification(name) for name, _, _ in ROWS]
    for weaker, stronger in pairwise(specs):
        assert compare(stronger, weaker).overall == STRONGER


def test_the_table_has_no_other_entry() -> None:
    """Table 2 has four columns."""
    assert [name for name in catalogue.names() if name.startswith("psa-1940-massachusetts")] == [r[0] for r in ROWS]
