"""The largest loss over *all* inner mechanisms of a small design, by linear programmes.

An output of an inner mechanism with loss epsilon has a probability g(s) on every sample s, with
g(s) <= exp(epsilon d(s, s')) g(s'); and every such g, made small, is an output of some mechanism. So the largest ratio
of the sums of p g and q g over two laws of samples is the largest loss that any inner mechanism has between two frames.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from stirred.spec.problems import refused
from stirred.survey.design import Design

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Sample = tuple[Hashable, ...]
Law = Mapping[Sample, Fraction]
_MOST: Final = 400  # states of one programme


def distance(s: Sample, t: Sample, relation: str) -> float:
    """Return how many steps of the relation lead from one sample to the other; infinity where none do.

    >>> [distance((1, 2), (2, 3, 4), relation) for relation in ("edit", "substitute", "add-remove")]
    [2, inf, 3]
    """
    if relation == "substitute" and len(s) != len(t):
        return math.inf
    gone, come = (sum((Counter(a) - Counter(b)).values()) for a, b in ((s, t), (t, s)))
    return gone + come if relation == "add-remove" else max(gone, come)


def worst_loss(p: Law, q: Law, epsilon: float, *, relation: str = "substitute") -> float:
    """Return the largest loss between two laws of samples, over all inner mechanisms with loss epsilon."""
    import numpy as np

    states = list(dict.fromkeys((*p, *q)))
    if len(states) > _MOST:
        raise refused(f"{len(states):,} samples are too many (TooLarge)", where="design", remedy=f"at most {_MOST}")
    apart = np.array([[distance(s, t, relation) for t in states] for s in states])
    first, second = (np.array([float(law.get(s, 0)) for s in states]) for law in (p, q))
    return max(_ratio(second, first, apart * epsilon), _ratio(first, second, apart * epsilon))


def _ratio(up: NDArray[np.float64], down: NDArray[np.float64], cost: NDArray[np.float64]) -> float:
    """Return ln of the largest up.g where down.g = 1 and g is Lipschitz; infinite where that has no bound."""
    import highspy
    import numpy as np

    size = up.size
    rows, columns = np.nonzero(np.isfinite(cost) & ~np.eye(size, dtype=bool))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = size, 1 + rows.size
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = up, np.zeros(size), np.full(size, np.inf)
    lp.row_lower_ = np.concatenate([[1.0], np.full(rows.size, -np.inf)])
    lp.row_upper_ = np.concatenate([[1.0], np.zeros(rows.size)])
    matrix = lp.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kRowwise
    matrix.start_ = np.concatenate([[0], size + 2 * np.arange(rows.size + 1)]).astype(np.int32)
    matrix.index_ = np.concatenate([np.arange(size), np.stack([rows, columns], axis=1).ravel()]).astype(np.int32)
    # g(row) exp(-cost) <= g(column): the smaller side is scaled, so that no coefficient overflows.
    scaled = np.stack([np.exp(-cost[rows, columns]), np.full(rows.size, -1.0)], axis=1).ravel()
    matrix.value_ = np.concatenate([down, scaled])
    solver = highspy.Highs()
    for name, value in (("output_flag", False), ("threads", 1), ("primal_feasibility_tolerance", 1e-10),
                        ("dual_feasibility_tolerance", 1e-10)):  # fmt: skip
        solver.setOptionValue(name, value)
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return math.inf  # g = 0 but on samples that the other frame cannot give
    return math.log(max(solver.getInfo().objective_function_value, 1.0))


def programme_loss(design: Design, epsilon: float, *, inner: str | None = None, frames: str = "substitute") -> float:
    """Return the largest loss of a design over all inner mechanisms and all units of the frame.

    Records of different units are all different, so no two samples are closer than they can be.

    >>> from stirred.survey.designs import SRSWOR
    >>> round(programme_loss(SRSWOR(2, 4), 1.0), 8)
    0.62011451
    """
    drawn = list(design.samples())
    relation = inner or design.shape.inner
    pairs = (_laws(drawn, unit, frames=frames) for unit in sorted({u for s, _ in drawn for u in s}))
    return max((worst_loss(before, after, epsilon, relation=relation) for before, after in pairs), default=0.0)


def _laws(drawn: list[tuple[tuple[int, ...], Fraction]], unit: int, *, frames: str) -> tuple[Law, Law]:
    """Return the laws of the sample where one unit has one record, and where it has another or is not there."""
    before: dict[Sample, Fraction] = {}
    after: dict[Sample, Fraction] = {}
    for s, p in drawn:
        kept: Sample = tuple(u for u in s if u != unit)
        other: Sample = (*kept, *([(unit, "b")] * (len(s) - len(kept)))) if frames == "substitute" else kept
        before[s] = before.get(s, Fraction(0)) + p
        after[other] = after.get(other, Fraction(0)) + p
    return before, after
