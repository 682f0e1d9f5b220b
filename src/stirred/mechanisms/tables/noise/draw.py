"""The noise of a table, drawn once: independent in every cell, or inside a universe that keeps some margins."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.tables.noise.budget import Measure
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import integer_noise


def drawn_noise(measure: Measure, entropy: Entropy) -> npt.NDArray[np.int64]:
    """Return the noise of every cell, in the order of the cells.

    What is kept adds up to 0: in groups of cells with the same values of the kept variables, or in both margins of
    a two-way table, one for each value of the variables that the two margins share.
    """
    noise = measure.cell.noise
    # Not the title: variables "a" and "b" are not one variable "a x b".
    purpose = repr((measure.counts, measure.variables))
    if not measure.kept:
        return integer_noise(noise, count=measure.cells, entropy=entropy, purpose=purpose)
    from stirred.randomness.lattice import zero_margin_noise, zero_sum_noise

    first, last = measure.kept[0], measure.kept[-1]
    sides = [first & last, first - last, last - first, {*measure.variables} - (first | last)]
    order = [measure.variables.index(name) for side in sides for name in sorted(side)]
    sizes = [measure.sizes[place] for place in order]
    number = measure.cells // math.prod(measure.shape)
    if len(measure.kept) == 1:
        drawn = zero_sum_noise(noise, groups=[*measure.shape] * number, entropy=entropy, purpose=purpose)
    else:
        rows, columns = measure.shape
        drawn = zero_margin_noise(noise, shape=(rows, columns), entropy=entropy, purpose=purpose, tables=number)
    return drawn.reshape(sizes).transpose(np.argsort(order)).reshape(-1)
