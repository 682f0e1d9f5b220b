"""Section 3.5: the 2010 Census, had its swapping been permutation swapping."""

import pytest

from stirred.spec import ALL, Margin
from stirred.spec.swap_budget import psa_epsilon
from tests.paper.printed import assert_prints
from tests.paper.published import only_stratum, specification

ENTRIES = ["psa-2010-2pct", "psa-2010-4pct"]


@pytest.mark.parametrize(("name", "epsilon"), [("psa-2010-4pct", "18.29"), ("psa-2010-2pct", "19")])
def test_the_nominal_loss_lies_between_the_printed_ends(name: str, epsilon: str) -> None:
    """Section 3.5: between 18.29 and 19, for rates from 4% down to 2% and b = 3.65 million."""
    spec = specification(name)
    assert only_stratum(spec).largest_stratum == 3_650_000
    assert_prints(spec.budget.realised, epsilon)


def test_the_rates_are_the_purported_ones() -> None:
    """Section 3.5: a purported swap rate between 2% and 4%."""
    assert [100 * only_stratum(specification(name)).rate for name in ENTRIES] == [2, 4]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_flavor_is_the_one_of_section_3_5(name: str) -> None:
    """Section 3.5: (X_CEF, D_cSwap, d_HamS on households, D_Mult)."""
    assert str(specification(name).flavor) == "(X_CEF, D_c, d_HamS^household, D_Mult)"


@pytest.mark.parametrize("name", ENTRIES)
def test_household_sizes_by_block_and_everything_by_state_are_invariant(name: str) -> None:
    """Section 3.5: households by number of occupants in blocks, all cross-classifications in states."""
    assert set(specification(name).multiverse.invariants) == {
        Margin(of="household", variables=("household_size",), level="block", includes=("person",)),
        Margin(of="household", variables=(ALL,), level="state", includes=("person",)),
    }


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("finer", [3_649_999, 1_000_000, 2])
def test_a_finer_swap_key_would_give_a_smaller_loss(name: str, finer: int) -> None:
    """Section 3.5: the range is an overestimate, since the real swap key had a smaller b."""
    spec = specification(name)
    assert psa_epsilon(only_stratum(spec).rate, largest_stratum=finer) < spec.budget.realised
