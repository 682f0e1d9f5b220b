"""The order and identifier audit: does the place or the id of a released record tell anything about the input?

The guarantee of swapping is about the unordered table; a file left in input order gives every true
location away (swapping theory, section 9, condition 1). The mechanism is run many times on one small
file, each time with its rows in a uniformly random order and their ids dealt out anew. If place and id
tell nothing, the released files are independent of these orders, so that every way of pairing releases
with input orders was equally likely: an exact test, whatever the mechanism does to the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.microdata import Microdata
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import permutation
from stirred.spec.problems import wrong

Matrix = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Run = Callable[[pl.DataFrame, Entropy], pl.DataFrame]
Progress = Callable[[str, int, int], None]

# Simulated audits behind the statement of power.
_SIMULATED: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAudit:
    """What repeated runs say about the order and the ids of released records.

    ``p_value`` is that of an exact test at ``level``; ``finding`` names the relation that stood out most.
    ``detectable`` is a share of runs: had that many left their rows in input order, an alarm would have
    had probability ``power``. It is infinite where the records are too few or too alike to show it.
    """

    p_value: float
    level: float
    finding: str
    detectable: float
    power: float
    runs: int

    @property
    def alarm(self) -> bool:
        """Say whether order or ids depend on the input, at the level of the test."""
        return self.p_value <= self.level

    @property
    def passed(self) -> bool:
        """Say whether nothing was found; that is not a proof."""
        return not self.alarm

    @property
    def in_words(self) -> str:
        """Return the finding, and what would have been found."""
        if self.alarm:
            return (
                f"The order gives the input away: {self.finding} (p-value {self.p_value:.2g} from {self.runs} runs). "
                "Release the records sorted on released values or in random order, and issue ids anew"
            )
        if math.isinf(self.detectable):
            seen = "These records are too few or too alike to show anything"
        else:
            seen = (
                f"If one run in {max(1, math.floor(1 / self.detectable))} had left its rows in input order, this would "
                f"have been seen with {self.power:.0%} probability"
            )
        return f"No trace of the input order found in {self.runs} runs (p-value {self.p_value:.2g}). {seen}"


def audit_order(
    mechanism: Any,
    data: pl.DataFrame,
    *,
    id: str | None = None,
    runs: int = 200,
    pairings: int = 1_999,
    level: float = 0.005,
    power: float = 0.99,
    entropy: Entropy | None = None,
    progress: Progress | None = None,
) -> OrderAudit:
    """Run a mechanism on reordered copies of a small file, and test whether what it releases depends on the order.

    ``mechanism`` is a function of a frame and entropy that returns the released frame or a release, or has
    such a ``release``. ``id`` names an identifier; its values are dealt out to the records anew in every run.
    A right mechanism raises an alarm with probability at most ``level``.

    >>> homes = pl.DataFrame({"county": list("AABBCC"), "tenure": list("ororoo")})
    >>> found = audit_order(lambda frame, entropy: frame, homes, runs=60)  # publishes the file as it is
    >>> found.alarm, audit_order(lambda frame, entropy: frame.sort("county", "tenure"), homes, runs=60).p_value
    (True, 1.0)
    """
    if id is not None and id not in data.columns:
        raise wrong(f"there is no column {id!r}", where="id", remedy=f"choose one of {', '.join(data.columns)}")
    if data.height < 2 or runs < 2 or pairings < 1:
        raise wrong(
            f"{data.height} records, {runs} runs and {pairings} pairings show nothing",
            where="order audit",
            remedy="give two records or more, and at least two runs and one pairing",
        )
    entropy = entropy or Entropy.from_os()
    trials = [*_trials(_runnable(mechanism, id), data, id, runs, entropy, progress)]
    codings = _codings(data, [name for name in data.columns if name != id], trials)
    names, scores = [], []
    for name, matrix in _relations(codings, trials, keep_ids=id is not None):
        if (scaled := _standardised(matrix)) is not None:
            names.append(name)
            scores.append(scaled)
    if not scores:
        return OrderAudit(p_value=1.0, level=level, finding="nothing", detectable=math.inf, power=power, runs=runs)
    stacked = np.stack(scores)
    observed = np.abs(np.trace(stacked, axis1=1, axis2=2))
    null = _null(stacked, pairings, entropy.child("pairings"))
    # Sums in another order differ in the last digits; a tie counts as at least as extreme.
    reached = int((null >= observed.max() - 1e-9).sum())
    limit = float(np.quantile(null, 1 - level / 2))
    return OrderAudit(
        p_value=(1 + reached) / (1 + pairings),
        level=level,
        finding=names[int(observed.argmax())],
        detectable=_detectable(codings[0], trials, limit, power, entropy.child("power")),
        power=power,
        runs=runs,
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """One run: where each record stood, the rank of its id, and the released rows in released and in id order."""

    place: Codes
    rank: Codes
    released: tuple[pl.DataFrame, ...]


@dataclass(frozen=True, slots=True)
class _Coding:
    """Values of some columns as numbers: of the records of the file, and of each release; new values are dropped."""

    name: str
    base: Codes
    released: tuple[tuple[Codes, ...], ...]

    @property
    def values(self) -> int:
        return int(self.base.max()) + 1


def _runnable(mechanism: Any, id: str | None) -> Run:
    """Return how to run it once: a mechanism of the package is told which column identifies."""
    run = getattr(mechanism, "release", mechanism)
    ours = id is not None and hasattr(mechanism, "plan")

    def released(frame: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        found = run(Microdata(households=frame, id=(str(id),)) if ours else frame, entropy)
        frame = found.public["data"] if hasattr(found, "public") else found
        if not isinstance(frame, pl.DataFrame):
            raise wrong(
                f"it releases a {type(frame).__name__}",
                where="order audit",
                remedy="return the released records as a polars frame",
            )
        return frame

    return released


def _trials(
    run: Run, data: pl.DataFrame, id: str | None, runs: int, entropy: Entropy, progress: Progress | None
) -> Iterator[_Trial]:
    orders, deals = entropy.keystream("input orders"), entropy.keystream("ids")
    for number in range(runs):
        order = permutation(data.height, orders.reader(number))
        dealt = permutation(data.height, deals.reader(number))
        given = data if id is None else data.with_columns(data[id].gather(dealt))
        released = run(given[order], entropy.child(f"run {number}"))
        by_id = (released.sort(id),) if id is not None and id in released.columns else ()
        place = np.argsort(np.array(order))
        ranks = place if id is None else np.argsort(given[id].arg_sort().to_numpy())
        yield _Trial(place, ranks, (released, *by_id))
        if progress is not None:
            progress("running", number + 1, runs)


def _codings(data: pl.DataFrame, columns: Sequence[str], trials: Sequence[_Trial]) -> list[_Coding]:
    """Number whole records, and the values of every column alone, where a release has them."""
    released = trials[0].released[0].columns
    shared = [name for name in columns if name in released]
    groups = [shared, *([name] for name in shared if len(shared) > 1)]
    return [_coded(data, group, trials) for group in groups if group]


def _coded(data: pl.DataFrame, columns: Sequence[str], trials: Sequence[_Trial]) -> _Coding:
    known: dict[tuple[Any, ...], int] = {}
    base = np.array([known.setdefault(row, len(known)) for row in data.select(columns).rows()])

    def codes(frame: pl.DataFrame) -> Codes:
        return np.array([known.get(row, -1) for row in frame.select(columns).rows()], dtype=np.int64)

    name = "records" if len(columns) > 1 else f'values of "{columns[0]}"'
    return _Coding(name, base, tuple(tuple(codes(frame) for frame in trial.released) for trial in trials))


def _relations(codings: Sequence[_Coding], trials: Sequence[_Trial], *, keep_ids: bool) -> Iterator[tuple[str, Matrix]]:
    """Yield a score of every release against every input order, for each thing that might be related."""
    before = {"place": np.stack([trial.place for trial in trials])}
    if keep_ids:
        before["id"] = np.stack([trial.rank for trial in trials])
    after = ["place", "id"][: len(trials[0].released)]
    for coding in codings:
        for number, seen in enumerate(after):
            rows = [codes[number] for codes in coding.released]
            for told, key in before.items():
                yield (
                    f"the {seen} of released {coding.name} goes with their {told} in the input",
                    _trend(coding, rows, key),
                )
                yield (
                    f"{coding.name} that are neighbours by {told} in the input are neighbours by released {seen}",
                    (_neighbours(coding, rows, key)),
                )


def _trend(coding: _Coding, released: Sequence[Codes], key: Codes) -> Matrix:
    """Score how released positions go along with the mean input position of records of equal value."""
    counts = np.bincount(coding.base, minlength=coding.values)
    weights = np.stack([_pulls(codes, coding.values)[coding.base] / counts[coding.base] for codes in released])
    matrix: Matrix = weights @ (key - key.mean(axis=1, keepdims=True)).T
    return matrix


def _pulls(codes: Codes, values: int) -> Matrix:
    """Return, for each value, the sum of the centred released positions at which it stands."""
    place = np.arange(codes.size) - (codes.size - 1) / 2
    return np.bincount(codes[codes >= 0], weights=place[codes >= 0], minlength=values).astype(np.float64)


def _neighbours(coding: _Coding, released: Sequence[Codes], key: Codes) -> Matrix:
    """Count neighbours in a release whose values are neighbours in an input order."""
    values = coding.values
    sequence = coding.base[np.argsort(key, axis=1)]
    pairs = sequence[:, :-1] * values + sequence[:, 1:]
    rows = []
    for codes in released:
        known = (codes[:-1] >= 0) & (codes[1:] >= 0)
        a, b = codes[:-1][known], codes[1:][known]
        beside = np.bincount(a * values + b, minlength=values**2) + np.bincount(b * values + a, minlength=values**2)
        rows.append(beside[pairs].sum(axis=1))
    return np.stack(rows).astype(np.float64)


def _standardised(matrix: Matrix) -> Matrix | None:
    """Scale scores so that the sum over a random pairing has mean 0 and variance 1; None if it cannot vary."""
    centred = matrix - matrix.mean(axis=0) - matrix.mean(axis=1, keepdims=True) + matrix.mean()
    spread = math.sqrt(float((centred**2).sum()) / (len(matrix) - 1))
    return centred / spread if spread > 1e-9 * (1 + float(np.abs(matrix).max())) else None


def _null(stacked: Matrix, pairings: int, entropy: Entropy) -> Matrix:
    """Return the largest score of any relation in each of many random pairings of releases and input orders."""
    runs = stacked.shape[1]
    words, rows = entropy.keystream("pairing"), np.arange(runs)
    largest = np.empty(pairings)
    for number in range(pairings):
        paired = np.argsort(words.words(number, count=runs, dtype=np.uint64))
        largest[number] = np.abs(stacked[:, rows, paired].sum(axis=1)).max()
    return largest


def _detectable(coding: _Coding, trials: Sequence[_Trial], limit: float, power: float, entropy: Entropy) -> float:
    """Return the smallest share of runs that, left in input order, raise an alarm with the given probability.

    Simulated: some releases are put in input order, the others paired with a random input order, and the
    trend of whole records, one of the relations tested, must reach the limit.
    """
    key = np.stack([trial.place for trial in trials])
    plain = [codes[0] for codes in coding.released]
    means = [_mean_places(coding, places) for places in key]
    kept = [codes[np.argsort(place[codes], kind="stable")] for codes, place in zip(plain, means, strict=True)]
    honest, leaking = _trend(coding, plain, key), _trend(coding, kept, key)
    runs = len(trials)
    draws = [entropy.words("simulation", chunk=n, count=2 * runs, dtype=np.uint64) for n in range(_SIMULATED)]

    def seen(share: float) -> float:
        threshold = int(share * 2**53) << 11
        alarms = 0
        for draw in draws:
            leaks = (draw[:runs] < threshold) if share < 1 else np.ones(runs, dtype=np.bool_)
            paired = np.where(leaks, np.arange(runs), np.argsort(draw[runs:]))
            mixed = np.where(leaks[:, None], leaking, honest)
            scaled = _standardised(mixed)
            alarms += scaled is not None and abs(scaled[np.arange(runs), paired].sum()) > limit
        return alarms / _SIMULATED

    if seen(1.0) < power:
        return math.inf
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) >= power else (middle, high)
    return high


def _mean_places(coding: _Coding, places: Codes) -> Matrix:
    """Return the mean input position of each value; values that are new come last."""
    sums = np.bincount(coding.base, weights=places, minlength=coding.values)
    means = sums / np.bincount(coding.base, minlength=coding.values)
    return np.append(means, math.inf)  # index -1
