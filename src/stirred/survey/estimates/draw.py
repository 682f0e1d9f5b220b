"""The stated draw of a sample: its strata, the weights that follow from it, and whether it is the file's."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from stirred.spec.problems import wrong
from stirred.survey.designs import PPS, SRSWOR, SRSWR, Cluster, Design, Stratified, Systematic, TwoStage
from stirred.survey.estimates.queries import Range
from stirred.survey.sample_design import DrawnSample


def strata_of(stated: Design) -> list[tuple[int, int]] | None:
    """Return n and N by stratum, of a design that draws unit by unit with fixed takes."""
    if isinstance(stated, SRSWOR):
        return [(stated.n, stated.N)]
    return [*zip(stated.n, stated.N, strict=True)] if isinstance(stated, Stratified) else None


def weight_ends(low: Fraction, high: Fraction, grid: Fraction, stated: Design | None = None) -> Range:
    """Return the bounds of weights in steps of their grid: one and the same where all weights are N/n."""
    ends = max(math.floor(low / grid), 1), math.ceil(high / grid)
    if isinstance(stated, SRSWOR):
        one = min(max(round(Fraction(stated.N, stated.n) / grid), ends[0]), ends[1])
        return one, one
    return ends


def check_draw(stated: Design, drawn: DrawnSample, grid: Fraction) -> None:
    """Refuse a stated draw that is not the file's, as far as the file shows it: a lower rate would promise too much."""
    stage, strata = drawn.stages[0], strata_of(stated)
    sizes = np.unique(stage.unit, return_counts=True)[1]
    if strata is None:
        if why := _together(stated, drawn, sizes):
            raise _other(why)
        return
    if sizes.max() > 1:
        raise _other("its clusters have several records, so units are not drawn one by one")
    _, first, back = np.unique(stage.stratum, return_index=True, return_inverse=True)
    low, high = np.full(first.size, np.inf), np.zeros(first.size)
    np.minimum.at(low, back, drawn.weights)
    np.maximum.at(high, back, drawn.weights)
    if not np.allclose(low, high):
        raise _other("weights differ inside a stratum")
    found = sorted(zip(stage.sampled[first].tolist(), low.tolist(), high.tolist(), strict=True))
    wanted = sorted((n, there / n, there / n) for n, there in strata)
    if len(found) != len(wanted) or not np.allclose(found, wanted):
        raise _other("its strata have other sizes or weights")
    # The part of a stratum counts N/n in steps, rounded up: a weight beyond half a step could be rounded further.
    if len(strata) > 1 and float(np.abs(np.subtract(found, wanted)).max()) >= float(grid) / 2:
        raise _other("a weight is half a step of weight_grid or more from N/n")


def _together(stated: Design, drawn: DrawnSample, sizes: Any) -> str:
    """Say what the file shows against a stated draw of clusters, or of units with replacement or by steps."""
    stage, most = drawn.stages[0], stated.shape.most
    if isinstance(stated, (Cluster, TwoStage)):
        if (sizes != most).any():
            return f"a cluster has {sizes[sizes != most][0]} records and the draw takes {most} of each"
        if (stage.sampled != (stated.m or 1)).any():
            return f"{stage.sampled.max()} clusters of a stratum are in it and the draw takes {stated.m or 1}"
        there = [stated.M, *([min(stated.takes[1])] if isinstance(stated, TwoStage) else [])]
        for own, size in zip(drawn.stages, there, strict=False):
            if own.population is not None and (own.population < size - 1e-6).any():
                return f"its fpc gives fewer than {size} units to draw from"
    elif (strata := np.unique(stage.stratum).size) > 1:
        return f"it has {strata} strata, and {stated.name} draws without strata"
    elif isinstance(stated, Systematic) and stage.unit.size * stated.step != stated.N:
        return f"it has {stage.unit.size} records and the draw takes 1 in {stated.step} of {stated.N}"
    elif isinstance(stated, (SRSWR, PPS)) and (sizes.max() > 1 or stage.unit.size != stated.n):
        return f"it has {stage.unit.size} records and the draw takes {stated.n}"
    return ""


def _other(why: str) -> Any:
    return wrong(
        f"the stated draw is not that of the file: {why}", where="sampling",
        remedy="state n and N of the strata of [design], or clusters as they were drawn; with nonresponse start at the "
        "responses instead",
    )  # fmt: skip
