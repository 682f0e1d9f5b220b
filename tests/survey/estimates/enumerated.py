"""Small universes of samples and frames, and the largest loss of survey estimates over all of their pairs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from stirred.survey.design import Design
from stirred.survey.estimates.draw import weight_ends
from stirred.survey.estimates.measure import Rows, totals, variances
from stirred.survey.estimates.mechanism import SurveyEstimates, _values
from stirred.survey.estimates.queries import EstimateQueries, Public
from stirred.survey.estimates.settings import pair

TOTAL = {"kind": "total", "variable": "y", "bounds": [-1, 3]}
BY = {**TOTAL, "by": ["a"]}
WHERE = {**TOTAL, "where": {"a": ["1"]}}
TABLE = {"kind": "table", "by": ["a"]}
MEAN = {"kind": "mean", "variable": "y", "bounds": [0, 2]}
MEAN_BY = {**MEAN, "by": ["a"]}
MEAN_WHERE = {**MEAN, "where": {"a": ["1"]}}
RATIO = {"kind": "ratio", "variable": "y", "bounds": [0, 2], "denominator": "x", "denominator_bounds": [1, 2],
         "ratio_bounds": [0, 2]}  # fmt: skip
SECRET = ["design-weights", "random-sample", "secret-sample"]


_MECHANISMS: dict[str, SurveyEstimates] = {}


class Record(NamedTuple):
    """A sampled record: its weight in steps, the cluster it stands in, and what it answers."""

    weight: int
    cluster: int
    answers: tuple[Any, ...]


class Numbers(NamedTuple):
    """The numbers of a sample without noise, the rate of the noise of each, and the query that it belongs to."""

    centre: tuple[int, ...]
    rates: tuple[Fraction, ...]
    roles: tuple[tuple[str, Fraction], ...]


def survey(*estimates: dict[str, Any], **settings: Any) -> SurveyEstimates:
    given: dict[str, Any] = {
        "epsilon": 1, "attest": ["design-weights"], "weight_bounds": [1, 3], "weight_grid": 1, "variance": "none",
    }  # fmt: skip
    return SurveyEstimates(**{**given, **settings}, estimates=estimates)


def answers(mechanism: SurveyEstimates) -> list[tuple[Any, ...]]:
    """Return all answers of a record: columns at their bounds, inside and outside of domains."""
    return [*product(*(values for name, values in mechanism._axes().items() if name))]


@lru_cache(maxsize=64)
def _asked(document: str, n: int, drawn: tuple[int, ...], most: int) -> tuple[EstimateQueries, ...]:
    """Return the queries of a mechanism for samples of a size: the loss on the sample is searched for only once."""
    mechanism, grid = _MECHANISMS[document], Fraction(1)
    ends = weight_ends(*pair(mechanism.weight_bounds, where="weights"), grid, mechanism.design)
    public = Public(
        setting=mechanism.stage, n=n, weights=ends, weight_grid=grid, strata=drawn, clustered=most > 1, most=most,
        equal=mechanism.equal,
    )  # fmt: skip
    return mechanism.asked(public, [2 ** len(e.by) for e in mechanism.estimates])


def numbers(
    mechanism: SurveyEstimates, sample: Sequence[Record], *, stratum: Sequence[int], most: int = 1, around: int = 0
) -> Numbers:
    """Return the numbers of a sample whose clusters stand in these strata; ``around`` is which published ratio."""
    drawn = tuple(int(k) for k in np.bincount(stratum))
    _MECHANISMS[repr(mechanism)] = mechanism
    rows = Rows(
        weights=np.array([record.weight for record in sample], dtype=np.int64),
        cluster=np.array([record.cluster for record in sample], dtype=np.int64),
        stratum=np.array(stratum, dtype=np.int64), drawn=drawn, left=(Fraction(1),) * len(drawn),
    )  # fmt: skip
    names = [name for name in mechanism._axes() if name]
    records = [dict(zip(names, record.answers, strict=True)) for record in sample]
    found = Numbers((), (), ())
    for each in _asked(repr(mechanism), len(sample), drawn, most):
        values = _values(each, records)
        own: dict[str, Any] = dict(totals(each, rows, values))
        if "variance" in each.queries:
            low, high = each.ratio
            ratio = [(low, (low + high) // 2, high)[around]] * each.queries["variance"].cells
            own["variance"] = variances(each, rows, values, ratio)
        for role, z in own.items():
            query = each.queries[role]
            rate = query.noise.loss.rational  # of the very law that the noise is drawn from
            found = Numbers(
                (*found.centre, *z.tolist()), (*found.rates, *[rate] * z.size),
                (*found.roles, *[(role, query.loss)] * z.size),
            )  # fmt: skip
    return found


def largest(found: Sequence[Numbers], apart: np.ndarray) -> tuple[float, dict[str, float]]:
    """Return the largest loss for each changed record over all pairs, in all and of each query as part of its own."""
    centre = np.array([each.centre for each in found], dtype=np.float64)
    lost = np.zeros(apart.shape)
    worst: dict[str, float] = {}
    for role in dict.fromkeys(found[0].roles):
        own = np.zeros(apart.shape)
        for k, (this, rate) in enumerate(zip(found[0].roles, found[0].rates, strict=True)):
            if this == role:
                own += np.abs(centre[:, None, k] - centre[None, :, k]) * float(rate)
        worst[role[0]] = max(worst.get(role[0], 0.0), float((own / apart).max() / float(role[1])))
        lost += own
    return float((lost / apart).max()), worst


def changed(kinds: Sequence[Sequence[Any]]) -> np.ndarray:
    """Return how many records of each pair of samples differ; infinite for a sample and itself."""
    places = {kind: k for k, kind in enumerate(dict.fromkeys(kind for sample in kinds for kind in sample))}
    counts = np.zeros((len(kinds), len(places)))
    for row, sample in zip(counts, kinds, strict=True):
        for kind in sample:
            row[places[kind]] += 1
    found: np.ndarray = np.zeros((len(kinds), len(kinds)))
    for k in range(len(places)):
        found += np.abs(counts[:, None, k] - counts[None, :, k]) / 2
    return found


def frame_loss(
    mechanism: SurveyEstimates, design: Design, *, cluster: Sequence[int], stratum: Sequence[int],
    weight: Sequence[int], most: int = 1, around: int = 0, faster: float = 1.0,
) -> float:  # fmt: skip
    """Return the largest loss between frames that differ in one unit, with the draw: exactly.

    Between two centres each density is a sum of a rising and a falling exponential in each coordinate, so the ratio
    of two mixtures is monotone there, and its supremum lies where every coordinate is that of some centre.
    ``faster`` multiplies the rates of the noise. Units have a cluster, and clusters a stratum.
    """
    drawn = [(s, float(p)) for s, p in design.samples()]
    kinds, size = answers(mechanism), len(cluster)
    kept: dict[Any, Numbers] = {}

    def law(frame: tuple[Any, ...]) -> tuple[np.ndarray, np.ndarray]:
        centres = []
        for s, _ in drawn:
            key = tuple(sorted((weight[u], cluster[u] if most > 1 else stratum[cluster[u]], frame[u]) for u in s))
            if key not in kept:
                inside = sorted({cluster[u] for u in s})
                sample = [Record(weight[u], inside.index(cluster[u]), frame[u]) for u in s]
                kept[key] = numbers(mechanism, sample, stratum=[stratum[c] for c in inside], most=most, around=around)
            centres.append(kept[key].centre)
        return np.array(centres, dtype=np.float64), np.array([p for _, p in drawn])

    frames = [*product(kinds, repeat=size)]
    laws = {frame: law(frame) for frame in frames}
    rates = np.array([float(r) for r in next(iter(kept.values())).rates]) * faster

    def logs(own: tuple[np.ndarray, np.ndarray], grid: np.ndarray) -> np.ndarray:
        apart = -(np.abs(grid[:, None, :] - own[0][None, :, :]) * rates).sum(axis=2)
        top = apart.max(axis=1, keepdims=True)
        found: np.ndarray = top[:, 0] + np.log((np.exp(apart - top) * own[1]).sum(axis=1))
        return found

    worst = 0.0
    for frame in frames:
        for unit in range(size):
            for other in kinds:
                if other <= frame[unit]:
                    continue
                near = (*frame[:unit], other, *frame[unit + 1 :])
                both = np.concatenate([laws[frame][0], laws[near][0]])
                grid = np.array([*product(*(np.unique(column) for column in both.T))])
                worst = max(worst, float(np.abs(logs(laws[frame], grid) - logs(laws[near], grid)).max()))
    return worst
