"""Table 3: budgets of the TopDown Algorithm's measurements, and Theorem 2 (section 4)."""

from fractions import Fraction
from itertools import combinations

import pytest

from stirred.spec import ZCDP, ConversionRefusedError, Multiverse, Specification, compose, refine
from stirred.spec.convert_output import zcdp_to_epsilon
from stirred.spec.exact import exact, ln, sqrt
from tests.paper.printed import assert_prints
from tests.paper.published import DELTA, epsilon_at_delta, household_to_person, specification

ROWS = [
    ("das-2020-pl-household", "household", "0.07", "2.70"),
    ("das-2020-pl-person", "person", "2.56", "17.90"),
    ("das-2020-dhc-household", "household", "7.70", "34.33"),
    ("das-2020-dhc-person", "person", "4.96", "26.34"),
]
TOTAL = "das-2020-topdown-measured"


def rows() -> list[Specification]:
    return [specification(name) for name, _, _, _ in ROWS]


@pytest.mark.parametrize(("name", "unit", "rho2", "epsilon"), [*ROWS, (TOTAL, "person", "15.29", "52.83")])
def test_each_row_prints_its_rho_squared_and_epsilon(name: str, unit: str, rho2: str, epsilon: str) -> None:
    """Table 3, both columns, from the unrounded rho squared."""
    spec = specification(name)
    assert spec.output_premetric == ZCDP
    assert spec.input_premetric.unit == unit
    assert_prints(spec.budget.realised, rho2)
    assert_prints(epsilon_at_delta(spec), epsilon)


@pytest.mark.parametrize("name", [*(row[0] for row in ROWS), TOTAL])
def test_the_conversion_is_the_one_of_the_note(name: str) -> None:
    """Note of Table 3: epsilon = rho^2 + 2 rho sqrt(-ln delta), written out here."""
    rho2 = specification(name).budget.realised
    written_out = rho2 + 2 * sqrt(rho2) * sqrt(-ln(DELTA))
    difference = (written_out - zcdp_to_epsilon(rho2, delta=DELTA)).enclose()
    assert max(abs(difference.low), abs(difference.high)) < Fraction(1, 10**30)


def test_the_total_is_the_composition_of_the_four_rows() -> None:
    """Table 3, last row: rho squared adds up."""
    total = compose(rows(), unit="person", units=[household_to_person(1)]).specification
    assert total.budget.realised == specification(TOTAL).budget.realised
    assert total.budget.realised == sum((row.budget.realised for row in rows()), exact(0))


def test_the_total_epsilon_is_not_the_sum_of_the_epsilons() -> None:
    """Note of Table 3."""
    assert sum((epsilon_at_delta(row) for row in rows()), exact(0)) > exact("81")


def test_the_printed_total_needs_the_unrounded_rho_squared() -> None:
    """Table 3, last row: from the printed 15.29 the same conversion prints 52.82."""
    assert_prints(zcdp_to_epsilon(exact("15.29"), delta=DELTA), "52.82")


@pytest.mark.parametrize(
    ("name", "rho2"), [("das-2020-topdown-pl", "2.63"), (TOTAL, "15.29"), ("das-2020-topdown", "15.29")]
)
def test_the_topdown_algorithm_has_the_budgets_of_theorem_2(name: str, rho2: str) -> None:
    """Theorem 2: 2.63 for the PL, 15.29 for the DHC, which contains the PL; the same in every universe."""
    spec = specification(name)
    assert_prints(spec.budget.realised, rho2)
    assert not spec.budget.varies
    assert spec.flavor == specification("das-2020-topdown").flavor
    assert str(spec.flavor) == "(X_CEF, D_c, d_HamS^person, D_NoR)"


@pytest.mark.parametrize("kept", [kept for size in range(3) for kept in combinations(range(3), size)], ids=str)
def test_no_invariant_of_the_topdown_algorithm_can_be_dropped(kept: tuple[int, ...]) -> None:
    """Theorem 2, opposite direction: no finite budget relative to a proper subset of the invariants."""
    spec = specification("das-2020-topdown")
    fewer = Multiverse(
        invariants=tuple(spec.multiverse.invariants[i] for i in kept), hierarchies=spec.multiverse.hierarchies
    )
    with pytest.raises(ConversionRefusedError, match="does not refine"):
        refine(spec, to=fewer)
