"""The family beside one swap: who cannot be made equal is refused or left out."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from stirred.data.problems import PlanError
from stirred.mechanisms import registry
from stirred.mechanisms.swapping.advice.members import relatives
from stirred.mechanisms.swapping.core.swap import Swap
from stirred.utility.comparison import compare_mechanisms
from tests.release.bundles import households

RESPONSE = {"respond": "tenure", "values": ["owned", "rented"], "change": "1/5"}


def made(name: str, **settings: Any) -> Any:
    return registry.build(f"{name}-swap", {**settings, "match": ["size"], "swap": ["county"]})


def homes(**columns: pl.Expr) -> pl.DataFrame:
    return households().drop("hid").with_columns(**columns)


@pytest.mark.parametrize(
    ("swap", "equal", "what"),
    [
        (made("permutation", rate="1/2"), "weight", "'weight' cannot be made equal"),
        (made("permutation", rate="1/2", imputed="flag"), "changed", "the other members do not leave imputed records"),
        (
            made("response", rate="1/2", **RESPONSE),
            "epsilon",
            "the counts of tenure that the response protects",
        ),
    ],
    ids=["another measure", "imputed", "response"],
)
def test_what_the_other_members_cannot_do_is_not_compared(swap: Swap, equal: str, what: str) -> None:
    with pytest.raises(PlanError, match=what) as caught:
        relatives(homes(flag=pl.int_range(60) % 5 == 0), swap, equal=equal)
    assert caught.value.exit_code == 2
    assert caught.value.problems[0].remedy


def test_members_that_no_rate_brings_to_a_loss_are_left_out() -> None:
    """Strata of 20 records: permutations lose at least half of ln(380) at any rate, Mallows as little as asked."""
    found = dict(relatives(homes(), made("mallows", epsilon="1/100"), equal="epsilon"))
    assert "mallows" in found
    assert "permutation" not in found
    more = dict(relatives(homes(), made("mallows", epsilon="4"), equal="epsilon"))
    assert {"mallows", "permutation"} <= {*more}
    for name, swap in more.items():
        assert swap.plan(homes()).epsilon <= 4, name


def test_what_a_response_protects_is_not_shown_beside_others() -> None:
    """On a swap variable even the records of each area are protected; on a held one they are not."""
    on_swap = {"respond": "county", "values": ["East", "North", "South", "West"], "change": "1/5"}
    swaps = [(name, made("response", rate="1/2", **more)) for name, more in (("swap", on_swap), ("hold", RESPONSE))]
    one, other = compare_mechanisms(homes(), swaps)
    assert (one.areas, one.changed, one.smallest_area) == (None, None, None)
    assert other.smallest_area is not None
    assert other.smallest_area[1] == 15
