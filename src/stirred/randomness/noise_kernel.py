"""Integer noise by the table, in compiled code. Importing this module loads numba."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Words

Places = npt.NDArray[np.int32]
Points = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]

OPEN = np.int32(-(1 << 31))  # a cell in which the first sixteen bits do not decide
_SIXTEEN = np.uint64(16)
_FIRST = np.uint64(48)
_LOW = np.uint64(0xFFFF)


@compiled
def look_up(halves: npt.NDArray[np.uint16], cells: Places, out: npt.NDArray[np.int64], undecided: Indices) -> int:
    """Write the outcome of every 16-bit number; list where it is undecided, and return how many those are."""
    found = 0
    for place in range(out.size):
        value = cells[halves[place]]
        out[place] = value
        undecided[found] = place
        found += value == OPEN
    return found


@compiled
def refine(
    halves: npt.NDArray[np.uint16],
    guide: Places,
    begins: Points,
    ends: Points,
    undecided: Indices,
    words: Words,
    out: npt.NDArray[np.int64],
    points: Points,
) -> int:
    """Decide the listed numbers with 48 more bits each; what is still open moves to the front, with its point."""
    still = 0
    reach = (ends.size - 1) // 2
    for turn in range(undecided.size):
        place = undecided[turn]
        first = np.uint64(halves[place])
        rest = np.uint64(words[2 * turn]) << _SIXTEEN | np.uint64(words[2 * turn + 1]) & _LOW
        point = first << _FIRST | rest
        step = guide[halves[place]]
        while step < ends.size and point >= ends[step]:
            step += 1
        if step < ends.size and point >= begins[step]:
            out[place] = step - reach
        else:
            undecided[still] = place
            points[still] = point
            still += 1
    return still
