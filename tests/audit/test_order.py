"""The order audit: silent about mechanisms whose order tells nothing, loud about those whose order does."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest

from stirred import PermutationSwap
from stirred.audit import OrderAudit, audit_order, order, order_relations
from stirred.data.microdata import Microdata
from stirred.randomness import Entropy
from stirred.randomness.integers import permutation
from stirred.spec.problems import StirredError
from tests.mechanisms.records.sampling import swapped as released_once

HOMES = pl.DataFrame(
    {
        "hid": range(100, 112),
        "county": list("AAABBBBCCCCC"),
        "size": [1, 2] * 6,
        "tenure": list("orororoorrro"),
    }
)
SWAP = PermutationSwap(match=["size"], swap=["county"], rate="1/2", threads=1)


def swapped(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
    """The swap with every released row still marked by its input place and id, as only a fault would have it."""
    return released_once(SWAP, frame.with_row_index("row"), entropy).public["data"]


def keeps_row_order(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
    return swapped(frame.drop("hid"), entropy).sort("row").drop("row")


def turns_row_order(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
    return keeps_row_order(frame, entropy).reverse()


def sorts_stably_on_hold_values(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
    return keeps_row_order(frame, entropy).sort("size", "tenure", maintain_order=True)


def sorts_stably_on_released_places(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
    return keeps_row_order(frame, entropy).sort("county", maintain_order=True)


def keeps_ids(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
    return swapped(frame, entropy).drop("row")


def numbers_by_input_row(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
    """Random rows with a new id that is the row of the input."""
    return swapped(frame.drop("hid"), entropy).rename({"row": "hid"})


FAULTS = [
    keeps_row_order,
    turns_row_order,
    sorts_stably_on_hold_values,
    sorts_stably_on_released_places,
    keeps_ids,
    numbers_by_input_row,
]


@pytest.fixture
def no_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many audits of which only the alarm counts: leave out the simulation behind the statement of power."""
    monkeypatch.setattr(order_relations, "ORDERS", 1)


@pytest.mark.usefixtures("no_statement")
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_of_the_order_are_caught(fault: order.Run) -> None:
    found = audit_order(fault, HOMES, id="hid", runs=60, entropy=Entropy.from_seed(f"fault {fault.__name__}"))
    assert found.alarm, found.in_words
    assert found.finding in found.in_words
    assert ("id" in found.finding) == (fault in (keeps_ids, numbers_by_input_row))


def test_the_release_of_the_package_raises_no_alarm() -> None:
    found = audit_order(SWAP, HOMES, id="hid", runs=120, entropy=Entropy.from_seed(0))
    assert found.passed, found.in_words
    assert found.detectable < 0.5


def test_household_ids_issued_anew_raise_no_alarm() -> None:
    """With persons the household id is the position; the persons are linked by the ids dealt out."""

    def with_persons(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        persons = frame.select("hid", age=pl.col("tenure").replace_strict({"o": 50, "r": 20}))
        data = Microdata(households=frame, persons=persons, hid="hid")
        return released_once(SWAP, data, entropy).public["data"]

    found = audit_order(with_persons, HOMES, id="hid", runs=120, entropy=Entropy.from_seed("persons"))
    assert found.passed, found.in_words


def test_sorting_on_all_released_values_tells_nothing() -> None:
    def in_order_of_values(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        return keeps_row_order(frame, entropy).sort("county", "size", "tenure")

    assert audit_order(in_order_of_values, HOMES, runs=60, entropy=Entropy.from_seed("sorted")).passed


# ---- level and power -------------------------------------------------------------------------------


def sometimes_in_input_order(share: float) -> order.Run:
    """Rows in random order, but a share of the runs leaves them as they came."""

    def run(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        if int(entropy.words("leak", chunk=0, count=1)[0]) < share * 2**32:
            return frame
        return frame[permutation(frame.height, entropy.keystream("order").reader(0))]

    return run


FEW = HOMES.drop("hid").head(8)
RUNS = 60


def alarms(share: float, audits: int) -> int:
    run = sometimes_in_input_order(share)
    seeds = [Entropy.from_seed(f"{share} {number}") for number in range(audits)]
    return sum(audit_order(run, FEW, runs=RUNS, pairings=599, entropy=seed).alarm for seed in seeds)


def stated_share() -> float:
    found = audit_order(sometimes_in_input_order(0), FEW, runs=RUNS, entropy=Entropy.from_seed("stated"))
    assert 0 < found.detectable < 1
    return found.detectable


def test_what_is_said_to_be_seen_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power, stated as 99%: at least 19 of 20 audits alarm. Without a leak at most 1 of 20 does, at level 0.5%."""
    share = stated_share()
    monkeypatch.setattr(order_relations, "ORDERS", 1)
    assert alarms(share, 20) >= 19
    assert alarms(0.0, 20) <= 1
    assert alarms(share / 8, 20) < 19, "the statement of power says nothing if a trickle is always seen"


@pytest.mark.slow
def test_what_is_said_to_be_seen_is_seen_in_500_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    share = stated_share()
    monkeypatch.setattr(order_relations, "ORDERS", 1)
    assert alarms(share, 500) >= 490
    assert alarms(0.0, 500) <= 8


@dataclass(frozen=True)
class Swap:
    """Values of s exchanged among a share ``rate`` of the records; some runs leave the rows in input order."""

    rate: float
    share: float = 0.0
    swap: tuple[str, ...] = ("s",)

    def release(self, frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        rng = np.random.default_rng(int(entropy.words("swap", chunk=0, count=1, dtype=np.uint64)[0]))
        source = np.arange(frame.height)
        chosen = rng.permutation(np.flatnonzero(rng.random(frame.height) < self.rate))
        source[chosen] = np.roll(chosen, 1)
        swapped = frame.with_columns(frame["s"].gather(source))
        return swapped if rng.random() < self.share else swapped[rng.permutation(frame.height)]

    def alarms(self, data: pl.DataFrame, audits: int) -> int:
        seeds = [Entropy.from_seed(f"{self} {number}") for number in range(audits)]
        return sum(audit_order(self, data, runs=RUNS, pairings=599, entropy=seed).alarm for seed in seeds)


CROSSED = pl.DataFrame({"h": [0, 1] * 20, "s": [0] * 20 + [1] * 20})
ONE_APART = pl.DataFrame({"h": [0] * 29 + [1], "s": range(30)})
SWAPPED = [(CROSSED, 0.5), (CROSSED, 0.9), (ONE_APART, 0.95)]


def stated_for(swap: Swap, data: pl.DataFrame) -> float:
    found = audit_order(swap, data, runs=RUNS, pairings=599, entropy=Entropy.from_seed("stated"))
    assert found.followed
    assert 0 < found.detectable < 1
    return found.detectable


@pytest.mark.parametrize(("data", "rate"), [SWAPPED[0], SWAPPED[-1]])
def test_a_swap_left_in_input_order_is_seen_as_often_as_said(
    data: pl.DataFrame, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that stand where their records stood carry the values of others; few hold values are left to see it by."""
    share = stated_for(Swap(rate), data)
    monkeypatch.setattr(order_relations, "ORDERS", 1)
    assert Swap(rate, share).alarms(data, 20) >= 19
    assert Swap(rate, share / 4).alarms(data, 20) < 19, "the statement is too modest"


@pytest.mark.slow
@pytest.mark.parametrize(("data", "rate"), SWAPPED)
def test_a_swap_left_in_input_order_is_seen_as_often_as_said_in_300_audits(
    data: pl.DataFrame, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = stated_for(Swap(rate), data)
    monkeypatch.setattr(order_relations, "ORDERS", 1)
    assert Swap(rate, share).alarms(data, 300) >= 294
    assert Swap(rate).alarms(data, 300) <= 6


# ---- words and refusals ----------------------------------------------------------------------------


def test_the_words_say_what_would_have_been_seen() -> None:
    quiet = OrderAudit(p_value=0.4, level=0.005, finding="nothing", detectable=0.1, power=0.99, runs=200)
    assert quiet.in_words == (
        "No trace of the input order found in 200 runs (p-value 0.4). If one run in 10 had left the rows in input "
        "order, this would have been seen with 99% probability"
    )

    most = replace(quiet, detectable=0.703)
    assert "If 71% of the runs had left the rows in input order, this would" in most.in_words


def test_what_would_have_been_seen_is_not_stated_where_rows_cannot_be_followed() -> None:
    """A function that exchanges values, and does not say which columns it leaves as they are."""
    swap = Swap(rate=0.9)
    found = audit_order(swap.release, CROSSED, runs=20, pairings=199, entropy=Entropy.from_seed(1))
    assert not found.followed
    assert math.isinf(found.detectable)
    assert "What would have been seen is not stated" in found.in_words
    told = audit_order(swap.release, CROSSED, hold=["h"], runs=20, pairings=199, entropy=Entropy.from_seed(1))
    assert told.followed
    with pytest.raises(StirredError, match="does not leave h, s as it is"):
        audit_order(swap.release, CROSSED, hold=["h", "s"], runs=20, pairings=199, entropy=Entropy.from_seed(1))


def test_rows_sorted_on_their_values_would_have_been_seen_in_input_order() -> None:
    """The releases are all alike, and still the audit knows what others would have looked like."""
    found = audit_order(lambda frame, _: frame.sort(frame.columns), FEW, runs=RUNS, entropy=Entropy.from_seed(1))
    assert found.p_value == 1
    assert 0 < found.detectable < 1


@pytest.mark.usefixtures("no_statement")
def test_records_that_are_all_alike_show_nothing_and_it_says_so() -> None:
    alike = pl.DataFrame({"county": ["A"] * 5, "tenure": ["o"] * 5})
    found = audit_order(lambda frame, _: frame, alike, runs=10, entropy=Entropy.from_seed(1))
    assert found.passed
    assert math.isinf(found.detectable)
    assert "too alike" in found.in_words


def test_what_cannot_be_audited_is_explained() -> None:
    with pytest.raises(StirredError, match="no column 'pid'"):
        audit_order(keeps_row_order, HOMES, id="pid")
    with pytest.raises(StirredError, match="show nothing"):
        audit_order(keeps_row_order, HOMES.head(1))
    with pytest.raises(StirredError, match="releases a list"):
        audit_order(lambda frame, _: frame.rows(), HOMES, runs=5)
