"""The family beside one swap: who cannot be made equal is refused or left out."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from stirred.data.problems import PlanError
from stirred.mechanisms import registry
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.kernels import changed as selected_shares
from stirred.release.advice import relatives, stronger
from stirred.utility.comparison import compare_mechanisms
from tests.world import households

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


def test_no_share_is_computed_twice_on_the_way_to_a_stronger_member(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, expected = [], selected_shares.expected_changes

    def counting(stratum: Any, counts: Any, rates: Any) -> Any:
        asked.append(rates.tobytes())
        return expected(stratum, counts, rates)

    monkeypatch.setattr(selected_shares, "expected_changes", counting)
    swap = made("permutation", rate="1/2")
    unequal = pl.when(pl.int_range(pl.len()) % 7 < 3).then(pl.col("county").first()).otherwise("county")
    assert stronger(swap, swap.plan(homes(county=unequal), doubts=False)) is not None
    assert len(asked) == len(set(asked)) > 10
