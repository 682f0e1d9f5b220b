"""Swaps in which the flow table of every stratum is drawn first. Importing this module loads numba.

In every stratum: draw how many records of each swap value get each value (``law``); write these values down, kind
by kind; shuffle them inside each kind; and hand them out. ``swap_flow_reference`` (in the tests) is the plain Python
twin, equal bit for bit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.kernels.counted import Counts
from stirred.mechanisms.swapping.kernels.excerpt import Excerpt
from stirred.mechanisms.swapping.kernels.partition import (
    Codes,
    Flags,
    Items,
    Offsets,
    Progress,
    Scratch,
    Values,
    Workers,
    every_row,
    partition_rows,
    require_columns,
    sort_block,
    unsort_block,
)
from stirred.randomness.compiled import compiled
from stirred.randomness.entropy import Entropy, WordReader
from stirred.randomness.kernel import shuffle_slices

Kinds = npt.NDArray[np.uint32]

_LOW = np.uint64(0xFFFF_FFFF)


class Flowing(Protocol):
    """How many records of each swap value of a stratum get each value."""

    def draw(self, values: Values, counts: Counts, words: WordReader) -> npt.NDArray[np.int64]:
        """Return the flow table; ``values`` are the swap codes, in order of first appearance."""
        ...


def swap_flow_in_place(
    stratum: Codes,
    swap: Values,
    *,
    live: Flags,
    values: int,
    flows: Flowing,
    entropy: Entropy,
    threads: int | None = None,
    progress: Progress | None = None,
    excerpt: Excerpt | None = None,
) -> int:
    """Swap the column ``swap`` within the live strata, in place, and return how many records were selected.

    ``live`` has one flag for each stratum: the others stay as they are, where exchanging changes nothing that is
    released. The result does not depend on the threads, and the rows stay in input order.
    """
    require_columns(stratum, swap)
    workers = Workers(threads=threads, progress=progress)
    shift = (excerpt or Excerpt(of=stratum.size)).shift(live.size)
    rows = partition_rows(stratum, groups=live.size, shift=shift, mark=every_row(stratum.size), workers=workers)
    listed, inner = rows.gather(swap, workers=workers)
    moved = np.zeros(rows.blocks, dtype=np.int64)
    streams = [entropy.keystream(purpose) for purpose in (addressing.FLOW, addressing.ARRANGE)]
    scratch = Scratch()

    def work(block: int) -> None:
        entries = slice(*rows.bounds[block : block + 2])
        first = block << shift
        items, offsets = sort_block(listed[entries], inner[entries], codes=min(1 << shift, live.size - first))
        kinds, have, starts, codes = _group_values(items, offsets, values=values)
        given, moved[block] = _draw_flows(flows, codes, have, starts, live[first:], streams[0].reader(block))
        slices = np.concatenate([[0], np.cumsum(have)]).astype(np.int64)
        shuffle_slices(given, slices, streams[1].reader(block, buffer=scratch.words))
        _hand_out(items, kinds, slices, given)
        unsort_block(items, offsets, inner[entries], listed=listed[entries])

    workers.run("draw flows and exchange", work, rows.largest_first())
    rows.give_back(listed, swap, workers=workers)
    return int(moved.sum())


def _group_values(items: Items, offsets: Offsets, *, values: int) -> tuple[Kinds, Counts, Offsets, Values]:
    """Return the kind of every record of a block, the size of each kind, where those of a stratum begin, their codes.

    A kind is a swap value of a stratum; they are numbered in order of first appearance.
    """
    kinds: Kinds = np.empty(items.size, dtype=np.uint32)
    starts = np.zeros(offsets.size, dtype=np.int64)
    room = min(items.size, values * (offsets.size - 1))
    codes, have = np.empty(room, dtype=np.uint32), np.zeros(room, dtype=np.int64)
    seen = np.full(values, -1, dtype=np.int64)
    found = _number_values(items, offsets, seen, kinds, have, starts, codes)
    return kinds, have[:found], starts, codes[:found]


def _draw_flows(
    flows: Flowing, codes: Values, have: Counts, starts: Offsets, live: Flags, words: WordReader
) -> tuple[Values, int]:
    """Return the new swap codes of a block, kind by kind, and how many records change theirs."""
    parts: list[Values] = []
    moved = 0
    for stratum, (begin, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        own, counts = codes[begin:end], have[begin:end]
        if end - begin < 2 or not live[stratum]:
            parts.append(np.repeat(own, counts))
            continue
        flow = flows.draw(own, counts, words)
        moved += int(counts.sum() - np.trace(flow))
        parts.append(np.repeat(np.tile(own, end - begin), flow.ravel()))
    return (np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)), moved


@compiled
def _number_values(
    items: Items, offsets: Offsets, seen: Offsets, kinds: Kinds, have: Counts, starts: Offsets, codes: Values
) -> int:
    """Number the swap values of each stratum in order of first appearance; ``seen`` holds the last number of each."""
    found = 0
    for part in range(offsets.size - 1):
        starts[part] = found
        for record in range(offsets[part], offsets[part + 1]):
            code = items[record] & _LOW
            if seen[code] < starts[part]:
                seen[code] = found
                codes[found] = code
                found += 1
            kinds[record] = seen[code]
            have[seen[code]] += 1
    starts[offsets.size - 1] = found
    return found


@compiled
def _hand_out(items: Items, kinds: Kinds, slices: Offsets, given: Values) -> None:
    """Give the records of every kind its codes in order."""
    next_of = slices.copy()
    for record in range(items.size):
        kind = kinds[record]
        items[record] = given[next_of[kind]]
        next_of[kind] += 1
