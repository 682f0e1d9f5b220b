"""What the tests of the paper share: the entries, the tables and the conversions the paper uses."""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from stirred.spec import Specification, UnitFactor, approximate, catalogue, change_output
from stirred.spec.budget import PermutationSwapping, SwappedStrata
from stirred.spec.exact import Exact

# The Census Bureau's choice (note of Table 3).
DELTA: Final = Fraction(1, 10**10)


class Table5Row(NamedTuple):
    """A row of Table 5: the name of our entries without the rate, V_Match, V_Swap, b and both epsilons."""

    name: str
    match: tuple[str, ...]
    swap: str
    b: int
    at_5_percent: str
    at_50_percent: str

    @property
    def entries(self) -> tuple[str, str]:
        """Return the names of the entries at 5% and at 50%."""
        return f"{self.name}-5pct", f"{self.name}-50pct"


TABLE_5: Final = (
    Table5Row("psa-2020-state-county", ("state",), "county", 13_475_623, "19.36", "16.42"),
    Table5Row("psa-2020-state-county-size", ("state", "size"), "county", 3_948_028, "18.13", "15.19"),
    Table5Row("psa-2020-county-tract", ("county",), "tract", 3_420_628, "17.99", "15.05"),
    Table5Row("psa-2020-county-tract-size", ("county", "size"), "tract", 939_185, "16.70", "13.75"),
    Table5Row("psa-2020-block-group-block", ("block_group",), "block", 6_204, "11.68", "8.73"),
    Table5Row("psa-2020-block-group-block-size", ("block_group", "size"), "block", 4_549, "11.37", "8.42"),
)

TABLE_5_ENTRIES: Final = tuple(name for row in TABLE_5 for name in row.entries)


def specification(name: str) -> Specification:
    """Return the specification of a catalogue entry."""
    return catalogue.load(name).specification


def epsilon_at_delta(of: Specification) -> Exact:
    """Return epsilon at delta = 10^-10 by the conversion of Remark 4."""
    converted = change_output(of, to=approximate(DELTA), method="bun-steinke").specification
    assert converted.output_premetric == approximate(DELTA)
    return converted.budget.realised


def only_stratum(of: Specification) -> SwappedStrata:
    """Return the rate and the largest stratum from which the budget of permutation swapping is computed."""
    policy = of.budget.policy
    assert isinstance(policy, PermutationSwapping)
    (stratum,) = policy.strata
    return stratum


def household_to_person(factor: int) -> UnitFactor:
    """Return a stated bound of household changes by person changes, as the overall row of Table 4 needs one."""
    return UnitFactor(
        old="household",
        new="person",
        factor=factor,
        because=f"a change of one person record changes at most {factor} household records",
        keeps_total="there is one household record for each housing unit and occupied group quarters, both fixed",
    )
