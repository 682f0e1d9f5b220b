"""The statistical audit of a mechanism on a chosen pair of datasets: run, choose an event, count, conclude."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from operator import ge, le
from typing import Any

from stirred.audit.statistical import StatisticalAudit, statistical_audit
from stirred.audit.witness import shown
from stirred.randomness.entropy import Entropy
from stirred.spec.exact import ZERO
from stirred.spec.problems import wrong
from stirred.spec.specification import Specification

Sample = Callable[[Any, Entropy], Hashable]
Progress = Callable[[str, int, int], None]

# For five runs that are counted, one that chooses the event.
_PILOT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAudit:
    """What repeated runs on two datasets say about a promise; the event is counted on ``first`` and ``second``."""

    result: StatisticalAudit
    event: str
    first: Hashable
    second: Hashable

    @property
    def passed(self) -> bool:
        """Say whether no violation was found; that is not a proof."""
        return not self.result.alarm

    @property
    def in_words(self) -> str:
        """Return the finding, what would have been found, and the event that was counted."""
        a, b = self.result.hits
        return (
            f"{self.result.in_words} Counted: {self.event}, {a:,} times from {shown(self.first)} and {b:,} times "
            f"from {shown(self.second)} in {self.result.runs:,} runs each."
        )


def audit_pair(
    sample: Sample,
    pair: Sequence[Any],
    promise: Specification,
    *,
    event: Callable[[Any], bool] | None = None,
    runs: int = 10_000,
    confidence: float = 0.99,
    power: float = 0.99,
    entropy: Entropy | None = None,
    progress: Progress | None = None,
) -> PairAudit:
    """Run a mechanism on two datasets and bound its loss from below, against its promise.

    ``sample(dataset, entropy)`` runs it once and returns a hashable output. ``event`` says of an output
    whether it counts. From which dataset it comes more often, and without one which event to count, is decided
    in pilot runs that are not counted.

    >>> from stirred.randomness.bernoulli import bernoulli
    >>> from stirred.spec import catalogue
    >>> from fractions import Fraction
    >>> def answer(dataset, entropy):  # the truth with probability 9/10
    ...     told = bernoulli(Fraction(9, 10), entropy.keystream("coin").reader(0))
    ...     return dataset[0][0] if told else 1 - dataset[0][0]
    >>> promise = catalogue.load("pure-dp").specification.with_budget(1)
    >>> audit_pair(answer, [((0,),), ((1,),)], promise, runs=2000).passed  # its loss is ln 9
    False
    """
    if runs < 2 * _PILOT:
        raise wrong(f"{runs} runs show nothing", where="runs", remedy="run it some thousand times")
    if len(pair) != 2:
        raise wrong(f"{len(pair)} datasets", where="pair", remedy="give two datasets to compare")
    first, second = pair
    distance, budget = _promised(promise, first, second)
    entropy = entropy or Entropy.from_os()
    outputs = _Outputs(sample, entropy, progress, total=2 * (runs + runs // _PILOT))
    pilot = [[*outputs.of(x, runs // _PILOT, f"pilot {i}")] for i, x in enumerate((first, second))]
    if event is None:
        turned, words, event = _chosen(pilot, float(promise.output_premetric.delta))
    else:
        turned, words = sum(map(event, pilot[1])) > sum(map(event, pilot[0])), "your event"
    first, second = (second, first) if turned else (first, second)
    hits = [sum(map(event, outputs.of(x, runs, f"counted {i}"))) for i, x in enumerate((first, second))]
    result = statistical_audit(
        hits=(hits[0], hits[1]),
        runs=runs,
        distance=distance,
        budget=budget,
        delta=float(promise.output_premetric.delta),
        confidence=confidence,
        power=power,
    )
    return PairAudit(result=result, event=words, first=first, second=second)


def _promised(promise: Specification, x: Any, y: Any) -> tuple[float, float]:
    """Return the distance of the two datasets and the budget, both rounded so that no alarm is false."""
    premetric = promise.output_premetric
    if premetric.name not in ("D_Mult", "D_Mult^delta"):
        remedy = "audit a promise under D_Mult or D_Mult^delta, or enumerate a small domain"
        raise wrong(f"counts of events bound no loss under {premetric.name}", where="output_premetric", remedy=remedy)
    apart, budget = promise.input_premetric.distance(x, y), promise.budget.realised
    if apart == ZERO or apart.is_infinite or budget.is_infinite:
        what = "nothing is promised" if budget.is_infinite else f"the two datasets are at distance {apart}"
        raise wrong(
            f"{what}, so nothing can be broken", where="pair", remedy="choose two datasets the promise is about"
        )
    return float(apart), float(budget)


class _Outputs:
    """Runs with fresh randomness, counted for whoever waits."""

    def __init__(self, sample: Sample, entropy: Entropy, progress: Progress | None, *, total: int) -> None:
        self.sample, self.entropy, self.progress, self.total = sample, entropy, progress, total
        self.done = 0

    def of(self, dataset: Any, runs: int, purpose: str) -> Iterator[Hashable]:
        fresh = self.entropy.child(purpose)
        for number in range(runs):
            yield self.sample(dataset, fresh.child(f"run {number}"))
            self.done += 1
            if self.progress is not None and (self.done % 100 == 0 or self.done == self.total):
                self.progress("running", self.done, self.total)


def _chosen(pilot: Sequence[Sequence[Hashable]], delta: float) -> tuple[bool, str, Callable[[Any], bool]]:
    """Return the event that shows most in the pilot runs, and whether it is likelier from the second dataset.

    The first half of the pilot runs proposes events and the second half chooses among them, so that an
    event made of outputs seen once by chance is not preferred.
    """
    half = len(pilot[0]) // 2
    proposing, choosing = ([Counter(outputs[part]) for outputs in pilot] for part in (slice(half), slice(half, None)))
    best, chosen = -math.inf, None
    for turned in (False, True):
        a, b = (1, 0) if turned else (0, 1)
        for words, event in _events(proposing[a], proposing[b]):
            hits = _count(choosing[a], event), _count(choosing[b], event)
            runs = len(pilot[0]) - half
            found = statistical_audit(hits=hits, runs=runs, distance=1.0, budget=0.0, delta=delta, confidence=0.9)
            # Where nothing is shown, the larger difference is the better choice.
            score = found.lower_bound or (hits[0] - hits[1]) / runs / 1e6
            if score > best:
                best, chosen = score, (turned, words, event)
    assert chosen is not None
    return chosen


# Events proposed in each direction.
_MOST_EVENTS = 60


def _events(here: Counter[Hashable], there: Counter[Hashable]) -> Iterator[tuple[str, Callable[[Any], bool]]]:
    """Yield the outputs that are likelier here, the most telling first (Neyman and Pearson), and more and more of them.

    Numbers also as thresholds, which reach outputs that the pilot runs never saw.
    """
    outputs = list(dict.fromkeys([*here, *there]))
    ranked = sorted(outputs, key=lambda t: (here[t] + 0.5) / (there[t] + 0.5), reverse=True)
    for size in sorted({max(1, round(len(ranked) * (k / _MOST_EVENTS) ** 2)) for k in range(1, _MOST_EVENTS + 1)}):
        words = f"the output {shown(ranked[0])}" if size == 1 else f"one of {size:,} outputs chosen in pilot runs"
        yield words, frozenset(ranked[:size]).__contains__
    if all(isinstance(t, Real) for t in outputs):
        values: list[Any] = sorted(outputs)
        for value in values[:: max(1, len(values) // _MOST_EVENTS)]:
            yield f"an output of at least {value}", partial(le, value)
            yield f"an output of at most {value}", partial(ge, value)


def _count(outputs: Counter[Hashable], event: Callable[[Any], bool]) -> int:
    return sum(number for output, number in outputs.items() if event(output))
