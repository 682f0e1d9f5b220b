"""The exhaustive audit: every dataset, every output and every pair of a small universe, exactly.

A mechanism passes if the loss it really has is certified not to exceed the budget it promises, in
every universe it is audited on; it fails with a witness if the loss is certified to exceed it. Where no
two datasets could be compared, the audit cannot tell.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import combinations
from typing import Any

from stirred.audit.witness import ShiftWitness, Witness, certain_witness, shown, try_orders, witness_between
from stirred.spec.exact import INFINITE, ZERO, Exact, largest
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE, Between, OutputPremetric
from stirred.spec.problems import wrong
from stirred.spec.shift_law import OutputLaw, ShiftLaw, StagedLaw
from stirred.spec.specification import Specification, protection_loss


class AuditVerdict(Enum):
    """What an audit found."""

    PASSED = "passed"
    FAILED = "failed"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """What the audit found, in the universe that matters most.

    ``loss`` and ``budget`` are in the customary number of the output premetric (rho squared for zCDP),
    the loss enclosed where it is not known exactly. A budget of infinity claims nothing and cannot be
    exceeded; an output that gives the dataset away is then looked for, and is the witness if there is one.
    ``pairs`` were compared and ``left_out`` were not, being infinitely far apart; ``orders`` of the same
    records were tried, and ``untried`` were not, because the mechanism has no law for them.
    """

    verdict: AuditVerdict
    loss: Between
    budget: Exact
    parameter: str
    witness: Witness | ShiftWitness | None
    universes: int
    pairs: int
    left_out: int = 0
    orders: int = 0
    untried: int = 0

    @property
    def passed(self) -> bool:
        """Say whether the promise is certified; 'cannot tell' is not a pass."""
        return self.verdict is AuditVerdict.PASSED

    @property
    def in_words(self) -> str:
        """Return the finding in one or two sentences."""
        loss = self.loss.high.shown()
        found = f"{self.parameter} {loss} over {_many(self.pairs, 'pair')} in {_many(self.universes, 'universe')}"
        if self.left_out:
            found += f" ({self.left_out:,} more are infinitely far apart and were not compared)"
        if self.verdict is AuditVerdict.CANNOT_TELL and not self.pairs:
            apart = "the datasets of each universe are infinitely far apart, where nothing is promised"
            why = apart if self.left_out else "there are no two datasets in one universe"
            text = f"Cannot tell: nothing was compared, because {why}"
        elif self.budget.is_infinite:
            text = f"Nothing is promised; {self._unclaimed(found)}"
        elif self.verdict is AuditVerdict.PASSED:
            text = f"No violation: the loss is {found}, and the promise is {self.budget.shown()}"
        elif self.verdict is AuditVerdict.FAILED:
            text = f"The promise is broken: the loss is {found}, and the promise is {self.budget.shown()}"
        else:
            low, high = self.loss.low.shown(12), self.loss.high.shown(12)
            text = f"Cannot tell: the loss lies from {low} to {high}, and the promise of {self.budget} between"
        sentences = [text]
        if self.witness is not None:
            lead = "Witness" if self.verdict is AuditVerdict.FAILED or self.budget.is_infinite else "The tightest pair"
            sentences.append(f"{lead}: {self.witness}")
        if self.untried and self.verdict is not AuditVerdict.FAILED:
            sentences.append(
                f"Whether the order of the records matters was not fully tried: the mechanism has no law for "
                f"{_many(self.untried, 'other order')} of the same records, and {self.orders:,} were tried"
            )
        return ". ".join(sentences) + "."

    def _unclaimed(self, found: str) -> str:
        if self.witness is not None and self.witness.is_certain:
            return "an output gives the dataset away"
        if self.loss.low.is_infinite:
            return f"no single output gives the dataset away, and yet the loss has no bound: {found}"
        return f"no output gives the dataset away, and the loss found is {found}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FiniteMechanism:
    """A function from dataset to law, with its finitely many datasets and what it promises about them.

    The law is a :class:`~stirred.spec.Law` or, for whole numbers with integer noise, a
    :class:`~stirred.spec.ShiftLaw`. Without a promise it claims nothing.

    >>> from fractions import Fraction
    >>> from stirred.spec import catalogue
    >>> def answer(dataset):  # randomised response: the truth with probability 3/4
    ...     return Law({dataset: Fraction(3, 4), ((1 - dataset[0][0],),): Fraction(1, 4)})
    >>> promise = catalogue.load("pure-dp").specification.with_budget("ln(3)")
    >>> coin = FiniteMechanism(function=answer, datasets=[((0,),), ((1,),)], promise=promise)
    >>> audit(coin).passed, audit(replace(coin, promise=promise.with_budget(1))).passed
    (True, False)
    """

    function: Callable[[Any], OutputLaw]
    datasets: Sequence[Hashable]
    promise: Specification | None = None

    def universe(self) -> Sequence[Hashable]:
        """Return the datasets."""
        return self.datasets

    def law(self, dataset: Any) -> OutputLaw:
        """Return the output law of one dataset."""
        return self.function(dataset)

    def specification(self, universe: Any) -> Specification | None:
        """Return the promise."""
        del universe
        return self.promise


def promise_for(mechanism: Any, universe: Sequence[Hashable]) -> Specification | None:
    """Return what a mechanism promises in a universe given by its datasets, or None if it claims nothing.

    A mechanism may have ``audit_specification(universe)``; otherwise ``specification`` is taken, as a
    value or as a function of the universe or of nothing.
    """
    given = getattr(mechanism, "audit_specification", None) or getattr(mechanism, "specification", None)
    if callable(given):
        given = given(universe) if inspect.signature(given).parameters else given()
    if given is not None and not isinstance(given, Specification):
        remedy = "return a stirred.spec.Specification, or None to claim nothing"
        raise wrong(f"its specification is a {type(given).__name__}", where=_name(mechanism), remedy=remedy)
    return given


def audit(mechanism: Any) -> AuditResult:
    """Audit a mechanism on its own small universes, against its own specification.

    It needs ``law(dataset)``, ``specification`` and either ``audit_universes()`` (a list of universes,
    each a list of datasets) or ``universe()`` (the datasets; split by the invariants of the
    specification where these can be evaluated). Without a specification it claims nothing, and an output
    that gives the dataset away is looked for.
    """
    results = [_audit_universe(mechanism, universe) for universe in _universes(mechanism)]
    order = [AuditVerdict.FAILED, AuditVerdict.CANNOT_TELL, AuditVerdict.PASSED]
    first = min(order.index(result.verdict) for result in results)
    worst = [result for result in results if order.index(result.verdict) == first]
    chosen = worst[0]
    for result in worst[1:]:
        chosen = result if result.loss.high > chosen.loss.high else chosen
    added = ("pairs", "left_out", "orders", "untried")
    sums = {name: sum(getattr(result, name) for result in results) for name in added}
    chosen = replace(chosen, universes=len(results), **sums)
    if chosen.passed and not chosen.pairs:
        return replace(chosen, verdict=AuditVerdict.CANNOT_TELL, loss=Between(ZERO, INFINITE))
    return chosen


def _universes(mechanism: Any) -> list[list[Hashable]]:
    listed = [name for name in ("audit_universes", "universe") if hasattr(mechanism, name)]
    if not hasattr(mechanism, "law") or not listed:
        raise wrong(
            f"it has no {'universe()' if hasattr(mechanism, 'law') else 'law'}",
            where=_name(mechanism),
            remedy="an audit needs law(dataset), specification and universe(), the list of all datasets",
        )
    if listed[0] == "audit_universes":
        universes = [list(universe) for universe in mechanism.audit_universes()]
    else:
        universes = _split(mechanism, list(mechanism.universe()))
    universes = [universe for universe in universes if universe]
    if not universes:
        raise wrong("there is no dataset to audit", where=_name(mechanism), remedy="list at least two datasets")
    return universes


def _split(mechanism: Any, datasets: list[Hashable]) -> list[list[Hashable]]:
    promise = promise_for(mechanism, datasets) if datasets else None
    multiverse = Multiverse() if promise is None else promise.multiverse
    evaluable = multiverse.universes is not None or all(i.function is not None for i in multiverse.invariants)
    if not evaluable:
        return [datasets]  # the listing itself is one universe
    return [[x for x in datasets if x in universe] for universe in multiverse.universes_of(datasets)]


def _audit_universe(mechanism: Any, universe: list[Hashable]) -> AuditResult:
    promise = promise_for(mechanism, universe)
    laws = {dataset: _law(mechanism, dataset) for dataset in universe}
    if promise is None:
        return _unclaimed(laws)
    premetric, budget = promise.output_premetric, promise.budget.realised
    flavor = replace(promise.flavor, multiverse=Multiverse(universes=(frozenset(universe),)))
    (found,) = protection_loss(flavor, laws)
    orders = try_orders(partial(_law, mechanism), flavor.input_premetric, laws)
    loss = Between(largest([found.loss.low, orders.loss.low]), largest([found.loss.high, orders.loss.high]))
    witness = orders.witness
    if budget.is_infinite and witness is None:
        witness = certain_witness(laws, flavor.input_premetric.distance)
    if witness is None and not orders.loss.low.is_infinite and found.witness is not None:
        (x, y), most = found.witness, premetric.to_distance(budget)
        apart = flavor.input_premetric.distance(x, y)
        witness = witness_between(x, y, laws[x], laws[y], apart, beyond=ZERO if most.is_infinite else most * apart)
    apart_from, pairs = flavor.input_premetric.distance, [*combinations(laws, 2)]
    left_out = sum(apart_from(x, y).is_infinite and apart_from(y, x).is_infinite for x, y in pairs)
    # Only what is certified not to exceed the budget passes, and only what is certified to exceed it fails.
    most = premetric.to_distance(budget)
    failed = AuditVerdict.FAILED if loss.low > most else AuditVerdict.CANNOT_TELL
    return AuditResult(
        verdict=AuditVerdict.PASSED if loss.high <= most else failed,
        loss=Between(_customary(premetric, loss.low), _customary(premetric, loss.high)),
        budget=budget,
        parameter=premetric.parameter,
        witness=witness,
        universes=1,
        pairs=len(pairs) - left_out,
        left_out=left_out,
        orders=orders.tried,
        untried=orders.untried,
    )


def _unclaimed(laws: dict[Hashable, OutputLaw]) -> AuditResult:
    """Look for an output that gives the dataset away, where there is no promise and no distance to hold on to."""
    losses = [PURE.distance(laws[x], laws[y]) for x, y in combinations(laws, 2)]
    loss = Between(*(largest([ZERO, *ends]) for ends in ([b.low for b in losses], [b.high for b in losses])))
    return AuditResult(
        verdict=AuditVerdict.PASSED,
        loss=loss,
        budget=INFINITE,
        parameter=PURE.parameter,
        witness=certain_witness(laws, None),
        universes=1,
        pairs=len(losses),
    )


def _customary(premetric: OutputPremetric, distance: Exact) -> Exact:
    return distance * distance if premetric.name == "D_NoR" and not distance.is_infinite else distance


def _law(mechanism: Any, dataset: Hashable) -> OutputLaw:
    law = mechanism.law(dataset)
    if not isinstance(law, Law | ShiftLaw | StagedLaw):
        remedy = "return a stirred.spec.Law (probabilities by outcome, fractions that sum to 1), ShiftLaw or StagedLaw"
        raise wrong(f"its law of {shown(dataset)} is a {type(law).__name__}", where=_name(mechanism), remedy=remedy)
    return law


def _name(mechanism: Any) -> str:
    return getattr(mechanism, "__name__", type(mechanism).__name__)


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
