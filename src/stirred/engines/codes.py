"""Columns of codes on a cluster: rows that belong together meet in one part, a kernel runs there, a column comes back.

Every part gets its rows in the order of the file, so what a kernel does there does not depend on the number of
machines, of parts and of attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from stirred.engines.protocol import ClusterEngine, EngineError, bad_engine

Messages = list[tuple[int, bytes]]
Codes = npt.NDArray[np.unsignedinteger]
Rows = npt.NDArray[np.uint32]
# From the numbers of the rows of a part and their codes, a column each, to the new codes of its rows.
CodesKernel = Callable[[Sequence[Rows]], Rows]


def exchange_codes(
    cluster: ClusterEngine,
    columns: Mapping[str, Codes],
    *,
    part_of: npt.NDArray[np.int64],
    shift: int,
    most: int,
    kernel: CodesKernel,
    out: Rows,
) -> None:
    """Write the new codes that a kernel makes of the columns, row by row; ``out`` may be one of these.

    The first column says where a row belongs: to the part of its code without the lower ``shift`` bits. ``most`` rows
    are sent at once.
    """
    rows = next(iter(columns.values())).size
    saved = [cluster.scratch / f"{name}.npy" for name in columns]
    for path, codes in zip(saved, columns.values(), strict=True):
        np.save(path, codes)
    pieces = [range(begin, min(begin + most, rows)) for begin in range(0, rows, most)]
    split = partial(_by_part, saved, cluster.share(part_of), shift)
    work = partial(_changed, kernel, len(columns), cluster.scratch)
    seen, came = np.zeros(rows, dtype=np.bool_), 0
    for path in cluster.exchange(pieces, split, work, parts=int(part_of.max(initial=0)) + 1):
        own, new = np.load(path)
        out[own], seen[own], came = new, True, came + own.size
    if came != rows or not seen.all():  # a forgotten record would be released as it is, and no table would show it
        raise lost("records")


def lost(what: str) -> EngineError:
    """Return the error that the cluster has lost something."""
    return bad_engine(f"{what} were lost on the cluster", remedy="this is a fault of ours, please report it")


def grouped(parts: npt.NDArray[np.integer]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield the parts that occur, and the rows of each in their order.

    >>> [(part, rows.tolist()) for part, rows in grouped(np.array([2, 0, 2]))]
    [(0, [1]), (2, [0, 2])]
    """
    order = np.argsort(parts.astype(np.min_scalar_type(int(parts.max(initial=0)))), kind="stable")  # in two bytes: fast
    found, begins = np.unique(parts[order], return_index=True)
    for part, begin, end in zip(found.tolist(), begins, [*begins[1:], order.size], strict=True):
        yield part, order[begin:end]


def _by_part(saved: Sequence[Path], part_of: Callable[[], npt.NDArray[np.int64]], shift: int, own: range) -> Messages:
    """Send every row, as its number and its codes, to its part."""
    codes = [np.load(path, mmap_mode="r")[own.start : own.stop] for path in saved]
    records = np.stack([np.arange(own.start, own.stop, dtype=np.uint32), *codes], dtype=np.uint32)
    parts = part_of()[records[1] >> np.uint32(shift)]
    return [(part, records.take(rows, axis=1).tobytes()) for part, rows in grouped(parts)]


def _changed(kernel: CodesKernel, columns: int, folder: Path, part: int, messages: list[bytes]) -> Path:
    """Run the kernel on the rows of a part, in the order of the file; write their numbers and new codes."""
    received = [np.frombuffer(message, dtype=np.uint32).reshape(columns + 1, -1) for message in messages]
    records = np.concatenate(received, axis=1)
    records = records.take(np.argsort(records[0], kind="stable"), axis=1)
    np.save(path := folder / f"codes-{part}-{uuid4()}.npy", [records[0], kernel([*records])])
    return path
