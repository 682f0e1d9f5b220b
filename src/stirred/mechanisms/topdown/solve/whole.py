"""Whole counts of one parent's children, beside the non-negative optimum: by a flow, or by HiGHS."""

from __future__ import annotations

import numpy as np

from stirred.mechanisms.topdown.solve.feasible import Demands
from stirred.mechanisms.topdown.solve.grid import Flags, Numbers, Places
from stirred.mechanisms.topdown.solve.limits import NO_LIMIT
from stirred.mechanisms.topdown.solve.rounding import WHOLE, round_by_program
from stirred.mechanisms.topdown.solve.stage import Board, Event, Stage, impossible


def rounded(
    stage: Stage,
    board: Board,
    demands: Demands,
    values: Numbers,
    cells: Places,
    counts: Places | None,
    totals: Places,
    margin: Places | None,
    parent: str,
) -> tuple[Places, Event | None]:
    """Return whole counts of the children (children, cells)."""
    from stirred.mechanisms.topdown.solve.flow_kernel import round_children

    chain, low, high, off_chain, allowed = _along_chain(stage, board, demands, cells, totals, margin)
    if counts is None:
        total = totals[0] if totals[0] >= 0 else int(np.rint(values.sum()))
        need, column = np.array([total], dtype=np.int64), np.zeros(len(cells), dtype=np.int64)
    else:
        need, column = counts, np.arange(len(cells), dtype=np.int64)
    found = np.zeros(values.shape, dtype=np.int64)
    weights = stage.rounder.weights(len(chain))
    if not off_chain:
        for slack in (0, 1, 3):
            left = round_children(
                np.ascontiguousarray(values),
                need,
                column,
                chain,
                low,
                high,
                allowed,
                demands.group,
                demands.group_total,
                weights,
                stage.rounder.pre_rounded,
                slack,
                WHOLE,
                found,
            )
            if left == 0:
                why = "the optimum misses a limit by more than its tolerance"
                what = f"counts were rounded by up to {slack + 1}"
                event = Event(level=stage.name, area=parent, what=what, why=why, amount=slack) if slack else None
                return found, event
    sets = [*off_chain, *_sets_of(chain, low, high)]
    for slack in (0, 1, 3, 100):
        better = round_by_program(
            values,
            need=need,
            column=column,
            chain=chain,
            sets=sets,
            allowed=allowed,
            group=demands.group,
            group_total=demands.group_total,
            rounder=stage.rounder,
            slack=slack,
        )
        if better is not None:
            what, why = f"rounded by HiGHS, by up to {slack + 1}", "limits overlap, so that rounding is not a flow"
            return better, Event(level=stage.name, area=parent, what=what, why=why, amount=slack)
    raise impossible(stage, parent, "no whole counts beside the optimum keep all limits")


_Set = tuple[Flags, Places, Places]  # cells, and the least and most that each child has in them


def _along_chain(
    stage: Stage, board: Board, demands: Demands, cells: Places, totals: Places, margin: Places | None
) -> tuple[Places, Places, Places, list[_Set], Flags]:
    """Return the groups of cells along the chain, their limits by child, the limits off it, and what may be filled."""
    chain = np.empty((len(stage.chain.queries), len(cells)), dtype=np.int64)
    labels = []
    for level, groups in enumerate(stage.chain.groups):
        present, chain[level] = np.unique(groups[cells], return_inverse=True)
        labels.append(present)
    widest = max(map(len, labels))
    low = np.zeros((len(totals), len(chain), widest), dtype=np.int64)
    high = np.full(low.shape, NO_LIMIT, dtype=np.int64)
    low[:, 0, 0] = np.maximum(demands.low[:, 0], np.maximum(totals, 0))
    high[:, 0, 0] = np.where(totals >= 0, totals, demands.high[:, 0])
    row = board.support[0]
    off_chain: list[_Set] = []
    for place in range(1, len(demands.sets)):
        inside = demands.sets[place][row]
        levels = [k for k, own in enumerate(chain) if _is_group(own, inside)]
        if not levels:
            off_chain.append((inside, demands.low[:, place], demands.high[:, place]))
        for level in levels[:1]:
            group = chain[level][inside][0]
            low[:, level, group] = np.maximum(low[:, level, group], demands.low[:, place])
            high[:, level, group] = np.minimum(high[:, level, group], demands.high[:, place])
    allowed = demands.allowed[:, row]
    published = stage.rules.margin
    if margin is not None and published is not None and np.all(margin >= 0) and published in stage.chain.queries:
        level = stage.chain.queries.index(published)
        low[:, level, : len(labels[level])] = high[:, level, : len(labels[level])] = margin[:, labels[level]]
        allowed &= margin[:, published.cell_of[cells]] > 0
    return chain, low, high, off_chain, allowed


def _is_group(own: Places, inside: Flags) -> bool:
    """Say whether cells are exactly one group of a level of the chain."""
    groups = np.unique(own[inside])
    return len(groups) == 1 and bool(np.all((own == groups[0]) == inside))


def _sets_of(chain: Places, low: Places, high: Places) -> list[_Set]:
    found = []
    for level, own in enumerate(chain):
        for group in range(own.max() + 1):
            least, most = low[:, level, group], high[:, level, group]
            if np.any(least > 0) or np.any(most < NO_LIMIT):
                found.append((own == group, least, most))
    return found
