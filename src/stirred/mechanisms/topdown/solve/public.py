"""A public count of each leaf, such as its housing units, as a further hint at its total, if it is found to fit.

The total of a leaf with count h is modelled as theta h + e, with theta = total of its parent / sum of h, and e of
variance phi h. As a term of the objective, (N - theta h)^2 / (phi h) is one more measurement of the total: it keeps the
structure of the precision, is made of public numbers, and costs nothing. Leaves with h = 0 have no term.

phi is found by moments. A leaf's own answers give its total t without bias and with a known variance v. In a parent
with H = sum h and V = sum v, the residual r = t - h sum(t) / H has

    E r^2 = phi h (1 - h / H) + v (1 - 2 h / H) + h^2 V / H^2,

so any weights give an unbiased phi. h / (v + h)^2 are the best ones where phi is about 1. A standard error is added to
what is found (which counts as 0 if negative), so that chance does not make the term too strong.

The term takes the share k = v / (v + phi h) of the noise variance of a leaf away if the model holds. If the variance
of e is in truth tau, the error is (1 - k)^2 v + k^2 tau, less than v as long as tau < v + 2 phi h. Large leaves have
the smallest k: they gain least, and they are biased most where shares of occupied units differ, since tau then grows
like h^2. So the term is left out unless it tells at least as much as the measurements do where most units are:
k >= 1/2 on average, each leaf weighed by h.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stirred.mechanisms.topdown.solve.grid import Numbers
from stirred.mechanisms.topdown.solve.objective import Objective, precisions
from stirred.mechanisms.topdown.tree import Level

LEAST_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How well public counts predict the totals of leaves: phi with its standard error, and the average of k."""

    phi: float
    error: float
    share: float

    @property
    def used(self) -> bool:
        """Say whether the counts predict well enough."""
        return self.share >= LEAST_SHARE

    @property
    def told(self) -> tuple[str, str]:
        """Return what was done, and why."""
        what = "the public counts are used in the totals of leaves" if self.used else "the public counts are left out"
        if not np.isfinite(self.phi):
            return what, "no leaves in one parent have both measurements and a count above 0"
        fit = f"the variance of totals around them is {self.phi:.3g} (standard error {self.error:.2g}) times the count"
        take = "take" if self.used else "would take"
        return what, f"{fit}; they {take} {self.share:.0%} of the noise variance away, {LEAST_SHARE:.0%} is the least"


def counts_of(level: Level, public: Mapping[str, int]) -> Numbers:
    """Return the public counts of the areas of a level."""
    return np.array([public[code] for code in level.geocodes], dtype=np.float64)


def moments(level: Level, public: Mapping[str, int]) -> Numbers:
    """Return h, v, and the residuals' excess and what phi adds to it, of the leaves that say something (4, leaves).

    They stay apart, so that sums over all leaves do not depend on the pieces that leaves come in.
    """
    count, known, total = counts_of(level, public), np.zeros(level.areas), np.zeros(level.areas)
    # The cells of each query add up to the total, with independent noise. Pieces have queries in orders of their own.
    for each in sorted(level.answers, key=lambda own: own.query.groups):
        precision = precisions(each) / each.query.size
        known += precision
        total += precision * np.asarray(each.values).sum(axis=1)
    usable = (count > 0) & (known > 0)
    h, v, parent = count[usable], 1 / known[usable], level.parent[usable]
    t = total[usable] * v

    def inside(values: Numbers) -> Numbers:
        return np.asarray(np.bincount(parent, weights=values), dtype=np.float64)[parent]

    part = h / inside(h)
    residual = t - part * inside(t)
    return np.stack([h, v, residual**2 - v * (1 - 2 * part) - part**2 * inside(v), h * (1 - part)])


def fitted(parts: Sequence[Numbers]) -> Fit:
    """Return the fit over all leaves, given their moments."""
    h, v, excess, slope = np.concatenate(parts, axis=1)
    weight = h / (v + h) ** 2
    whole = float((weight * slope).sum())
    if whole <= 0:
        return Fit(phi=np.inf, error=np.inf, share=0.0)
    phi = max(0.0, float((weight * excess).sum()) / whole)
    error = float(np.sqrt(2 * (weight**2 * (v + phi * h) ** 2).sum())) / whole
    share = float((h * v / (v + (phi + error) * h)).sum() / h.sum())
    return Fit(phi=phi, error=error, share=share)


def with_public(objective: Objective, level: Level, public: Mapping[str, int], fit: Fit, held: Numbers) -> Objective:
    """Return the objective of leaves with the term added; ``held`` are the totals of their parents."""
    count, phi = counts_of(level, public), fit.phi + fit.error
    whole = np.bincount(level.parent, weights=count, minlength=len(held))
    theta = np.divide(held, whole, out=np.zeros(len(held)), where=whole > 0)[level.parent]
    added = np.divide(1.0, phi * count, out=np.zeros(len(count)), where=count > 0)
    pairs, kind = np.unique(np.stack([objective.kind, added], axis=1), axis=0, return_inverse=True)
    precision = objective.precision[pairs[:, 0].astype(np.int64)]
    precision[:, 0] += pairs[:, 1, None, None]  # the first set keeps no attribute: the total
    return replace(
        objective,
        kind=kind.reshape(-1).astype(np.int64),
        precision=precision,
        everywhere=added * theta * count,
    )
