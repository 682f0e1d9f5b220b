"""With one more release: the second total is left out only where it cannot matter."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from stirred.release.ledger import Ledger, LedgerError, OverLimitError, Request
from stirred.release.ledger import request as module
from stirred.release.ledger.account import without_collecting
from stirred.release.ledger.currency import Currency
from stirred.release.ledger.request import Outlook, opening_facts
from stirred.release.ledger.row import digest_of
from stirred.release.ledger.total import Total, total
from stirred.spec import Margin, Specification
from stirred.spec.output_premetric import GDP, PURE, ZCDP, approximate
from tests.release.ledger.making import COUNTIES, limit, pure, request, specification

EVERYTHING = Margin(of="person", variables=("*",))
FLAVORS: tuple[Any, ...] = (
    specification("1/2"),
    pure("1/2"),
    pure("1/2", invariants=[COUNTIES]),
    specification("1/2", invariants=[EVERYTHING]),
)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many totals were computed, as one number that grows."""
    calls = [0]
    real = total

    def counting(*arguments: Any, **settings: Any) -> Total:
        calls[0] += 1
        return real(*arguments, **settings)

    monkeypatch.setattr(module, "total", counting)
    return calls


def reserve(ledger: Ledger, made: Request, counted: list[int]) -> int:
    before = counted[0]
    ledger.reserve(made)
    return counted[0] - before


def test_a_reservation_of_a_flavor_that_counts_already_adds_up_once(tmp_path: Path, counted: list[int]) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("10"))
    assert reserve(ledger, request("1"), counted) == 2
    assert reserve(ledger, request("2"), counted) == 1
    assert reserve(ledger, request(specification=pure("1")), counted) == 2
    assert reserve(ledger, request(specification=pure("1/3")), counted) == 1
    assert reserve(ledger, request("1/5", sample="s"), counted) == 2
    with pytest.raises(OverLimitError, match="is left"):
        ledger.reserve(request("9"))


def test_a_flavor_that_does_not_count_any_more_is_new(tmp_path: Path, counted: list[int]) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("30"))
    ledger.abort(ledger.reserve(request("1")).id, reason="unspent")
    assert reserve(ledger, request("1"), counted) == 2
    other = Ledger.create(tmp_path / "b.ledger", dataset="d", policy=limit("30"))
    part = other.add(request("1"))
    other.add(request("1", specification=specification("3", invariants=[COUNTIES]), includes=[part.id]))
    assert reserve(other, request("1"), counted) == 2


def outlook_of(ledger: Ledger, new: Specification) -> Outlook:
    account = ledger._refresh()
    facts = opening_facts(account, request(specification=new), at="2030-01-01T00:00:00+00:00", who="ana")
    return Outlook(account=account, facts=facts, specification=new, digest=digest_of("new"))


@pytest.mark.parametrize("output", [None, PURE, ZCDP, GDP, approximate("1e-6")])
def test_a_total_falls_only_with_a_new_flavor(tmp_path: Path, output: Any) -> None:
    """Every pair of flavors before, every flavor after, in every currency: what is said to be sure is so."""
    sure = 0
    for number, (first, second, new) in enumerate(product(FLAVORS, FLAVORS, FLAVORS)):
        ledger = Ledger.create(tmp_path / f"{number}.ledger", dataset="d")
        for one in (first, second):
            ledger.add(request(specification=one))
        outlook = outlook_of(ledger, new)
        if not outlook._brings_nothing_new():
            assert new.flavor not in (first.flavor, second.flavor)
            continue
        now, then = (way(Currency(output=output)).specification for way in (outlook.now, outlook.then))
        if now is None:
            assert then is None
            continue
        assert then is not None
        assert then.budget.realised >= now.budget.realised
        sure += 1
    assert sure > 5


def test_a_plan_is_told_what_a_reservation_would_be_told(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("2"))
    ledger.add(request("1"))
    head = ledger.head
    for asked in (request("3"), request("1", amplified=True), request("1", includes=[7])):
        with pytest.raises(LedgerError) as told:
            ledger.would(asked)
        with pytest.raises(LedgerError) as refused:
            ledger.reserve(asked)
        assert told.value.problems == refused.value.problems
    assert ledger.head == head


def test_what_is_read_without_collecting_is_collected_later_and_frozen_objects_stay_frozen() -> None:
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    with without_collecting():
        assert not gc.isenabled()
        gone = weakref.ref(lost := _Thing())
        lost.itself = lost
        del lost
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gone() is None, "a cycle that was made meanwhile is never found"
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with without_collecting():
            pass
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()


class _Thing:
    itself: object = None
