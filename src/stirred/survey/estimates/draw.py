"""Where the draw amplifies: the loss on the sample, stratum by stratum, and whether the stated draw is the file's.

In a simple or stratified sample a unit of stratum h moves a weighted total by its own weight w_h, not by the largest
one. With ``shares[h]`` the part of the loss on the sample that such a unit can have, the frame loses
max over h of amp(inner shares[h], n_h/N_h) (docs/theory/survey-estimates.md).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from stirred.spec.exact import exact
from stirred.spec.problems import wrong
from stirred.survey.amplify import deamplify
from stirred.survey.attackers import attackers
from stirred.survey.designs import PPS, SRSWOR, SRSWR, Cluster, Design, Poisson, Stratified, Systematic, TwoStage
from stirred.survey.estimates.queries import FINE, Range, split
from stirred.survey.estimates.settings import pair
from stirred.survey.sample_design import DrawnSample

if TYPE_CHECKING:
    from stirred.survey.estimates.mechanism import SurveyEstimates


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


def shares(mechanism: SurveyEstimates, stated: Design) -> list[Fraction] | None:
    """Return which part of the loss on the sample a unit of each stratum has; None where no sharper rule is known."""
    strata = strata_of(stated)
    if strata is None or len(strata) == 1 or mechanism.weight_bounds is None:
        return None
    if mechanism.adjust or mechanism.copies > 1:  # a copy may stand in another stratum
        return None
    least, most = weight_ends(*pair(mechanism.weight_bounds, where="weight_bounds"), mechanism.grid)
    taken = [n for n, _ in strata]
    steps = [min(max(math.ceil(Fraction(there, n) / mechanism.grid), least), most) for n, there in strata]
    # All samples weigh the same, so a Hajek mean moves like a total; its noise is for the least that they could weigh.
    weighed = Fraction(
        most + (sum(taken) - 1) * least, sum(n * max(w - 1, least) for n, w in zip(taken, steps, strict=True))
    )
    paid, found = mechanism.paid or Fraction(0), []
    for w in steps:
        part, whole = Fraction(w, most), Fraction(1)
        mean, own = min(part * weighed + Fraction(1, FINE), whole), Fraction(0)
        for each, loss in zip(mechanism.estimates, split(mechanism.estimates, whole), strict=True):
            # The square of a score moves by the square of its part; rounding adds a step at most in each changed cell.
            spread = min(part * part + Fraction(2 if each.by else 1, FINE), whole)
            hajek = each.kind == "mean" and not (each.by or each.where)  # it also pays for the sum of its weights
            own += loss * ((1 - paid) * (mean if hajek else part) + paid * (max(part, spread) if hajek else spread))
        found.append(own)
    return found


def inner_loss(mechanism: SurveyEstimates, stated: Design) -> Fraction:
    """Return the largest loss on the sample with which the frame loses no more than is promised."""
    target = exact(mechanism.loss)
    # The noise covers replaced records of a sample of fixed size: other designs are refused here.
    generic = deamplify(target, stated, setting=mechanism.stage, inner="substitute").rational
    parts = shares(mechanism, stated)
    if parts is None:
        return generic
    rates = stated.shape.units or (stated.shape.rate,)
    worst = {rate: max(p for p, own in zip(parts, rates, strict=True) if own == rate) for rate in rates}
    return max(generic, min(deamplify(target, Poisson((rate,))).rational / part for rate, part in worst.items()))


def beside(mechanism: SurveyEstimates) -> tuple[tuple[str, str], ...]:
    """Return the loss before those who know more of the sample than its design, where it is amplified."""
    if mechanism.design is None:
        return ()
    _, *found = attackers(exact(mechanism.inner_loss), mechanism.design, inner="substitute")
    more = [(each.name, each.epsilon.shown(6)) for each in found if float(each.epsilon) > float(mechanism.loss)]
    return (("knows nothing", exact(mechanism.loss).shown(6)), *more)


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
