"""Whole numbers by network flow: controlled rounding, feasibility and least violation. Importing this loads numba.

One algorithm serves all three: successive shortest paths on a network whose arcs have convex costs with whole slopes.
Arc ``a`` carries ``flow[a]`` between ``low[a]`` and ``high[a]``; one unit more costs ``-outer[a]`` below ``base[a]``,
``mid[a]`` at it and ``outer[a]`` above it. The network matrix is totally unimodular, so the whole-number optimum is the
optimum of the linear program. Nodes and arcs are visited in the order in which they are
numbered, children by geocode and then cells, which settles ties the same way everywhere.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from stirred.mechanisms.topdown.hierarchy.tree import Flags, Numbers, Places
from stirred.randomness.compiled import compiled

SCALE = 1 << 20  # costs of rounding are whole multiples of 1 / SCALE
_FAR = np.int64(1) << np.int64(60)


@compiled
def _adjacency(ends: Places, nodes: int) -> tuple[Places, Places]:
    """Return where the ends at each node begin, and the ends, by their numbers."""
    starts = np.zeros(nodes + 1, dtype=np.int64)
    for node in ends:
        starts[node + 1] += 1
    for node in range(nodes):
        starts[node + 1] += starts[node]
    place, found = starts.copy(), np.empty(ends.size, dtype=np.int64)
    for end, node in enumerate(ends):
        found[place[node]] = end
        place[node] += 1
    return starts, found


@compiled
def settle(
    tail: Places,
    head: Places,
    low: Places,
    high: Places,
    base: Places,
    mid: Places,
    outer: Places,
    excess: Places,
    flow: Places,
    cut: Flags,
) -> int:
    """Find the cheapest flow; return how much could not be placed: 0 if the network can carry everything.

    ``excess`` holds what each node supplies (negative: demands) and ends with what is left there. If something is
    left, ``cut`` marks the nodes that it can still reach: their supply exceeds what may leave them.
    """
    nodes, arcs = excess.size, tail.size
    for arc in range(arcs):
        # Each arc starts at its own cheapest flow, so that no residual arc has a negative cost.
        best = base[arc] + 1 if mid[arc] < 0 else base[arc]
        flow[arc] = min(max(best, low[arc]), high[arc])
        excess[tail[arc]] -= flow[arc]
        excess[head[arc]] += flow[arc]
    starts, ends = _adjacency(np.concatenate((tail, head)), nodes)
    potential = np.zeros(nodes, dtype=np.int64)
    distance = np.full(nodes, _FAR, dtype=np.int64)
    through = np.full(nodes, -1, dtype=np.int64)
    done = np.zeros(nodes, dtype=np.bool_)
    seen = np.empty(nodes, dtype=np.int64)
    left = 0
    for source in range(nodes):
        while excess[source] > 0:
            count, found = 1, -1
            distance[source], seen[0] = 0, source
            heap = [(np.int64(0), np.int64(source))]
            while len(heap) > 0:
                node = int(heappop(heap)[1])
                if done[node]:
                    continue
                done[node] = True
                if excess[node] < 0:
                    found = node
                    break
                for end in ends[starts[node] : starts[node + 1]]:  # arcs that leave the node, then those that enter it
                    forward = end < arcs
                    arc = end if forward else end - arcs
                    other = head[arc] if forward else tail[arc]
                    if done[other] or (flow[arc] >= high[arc] if forward else flow[arc] <= low[arc]):
                        continue
                    beyond = flow[arc] - base[arc] - (not forward)
                    slope = mid[arc] if beyond == 0 else outer[arc] if beyond > 0 else -outer[arc]
                    step = (slope if forward else -slope) + potential[node] - potential[other]
                    if distance[node] + step < distance[other]:
                        if distance[other] == _FAR:
                            seen[count] = other
                            count += 1
                        distance[other] = distance[node] + step
                        through[other] = end
                        heappush(heap, (distance[other], other))
            if found >= 0:
                amount = min(excess[source], -excess[found])
                node = found
                while node != source:
                    forward = through[node] < arcs
                    arc = through[node] if forward else through[node] - arcs
                    amount = min(amount, high[arc] - flow[arc] if forward else flow[arc] - low[arc])
                    # Units that cost the same: up to the base, the one at it, or all beyond.
                    alike = base[arc] - flow[arc] if forward else flow[arc] - base[arc] - 1
                    if alike >= 0 and (outer[arc] != 0 or mid[arc] != 0):
                        amount = min(amount, max(alike, 1))
                    node = tail[arc] if forward else head[arc]
                node = found
                while node != source:
                    forward = through[node] < arcs
                    arc = through[node] if forward else through[node] - arcs
                    flow[arc] += amount if forward else -amount
                    node = tail[arc] if forward else head[arc]
                excess[source] -= amount
                excess[found] += amount
            reach = distance[found] if found >= 0 else 0
            for index in range(count):
                node = seen[index]
                if found >= 0:
                    if done[node]:
                        potential[node] += distance[node] - reach
                elif done[node]:
                    cut[node] = True
                distance[node] = _FAR
                through[node] = -1
                done[node] = False
            if found < 0:
                left += excess[source]
                break
    return left


@compiled
def round_children(
    values: Numbers,
    need: Places,
    column: Places,
    chain: Places,
    low: Places,
    high: Places,
    allowed: Flags,
    group: Places,
    group_total: Places,
    weight: Places,
    pre_rounded: int,
    slack: int,
    tolerance: float,
    rounded: Places,
) -> int:
    """Round the children of one parent together; return how many units could not be placed (0: done).

    ``values[c, j]`` are the counts to be rounded. Cells of one ``column`` add up to ``need`` (the parent's count);
    ``chain[l, j]`` numbers the group of cell j at level l, from the total down, each level inside the one before;
    ``low`` and ``high`` bound the groups of each child (children, levels, groups). Children of one ``group`` have a
    known total together where ``group_total`` is not negative. The cost of a group is the distance of its count from
    its value, times ``weight`` of its level. ``pre_rounded`` is 0 for distances interpolated between whole numbers (the
    documented objective); 1 for distances from values rounded beforehand (what production did;
    ties there go to the nearer cell); 2 for the latter in groups and the former in cells (BlueDown). A child's
    total is always rounded to one of its two neighbours. ``slack`` lets cells move further.
    """
    children, cells = values.shape
    levels = chain.shape[0]
    columns, groups, widest = need.size, group_total.size, low.shape[2]
    floors = np.zeros((children, cells), dtype=np.int64)
    parts = np.zeros((children, cells))
    taking = np.zeros((children, cells), dtype=np.bool_)
    free = 0
    for c in range(children):
        for j in range(cells):
            if not allowed[c, j]:
                continue
            floors[c, j] = np.int64(np.floor(values[c, j] + tolerance))
            part = values[c, j] - floors[c, j]
            parts[c, j] = part if part > tolerance else 0.0
            taking[c, j] = parts[c, j] > 0.0 or slack > 0
            free += taking[c, j]
    # Nodes: columns, then groups of children, then the sink, then the chains of all children.
    most = free * (levels + 1) + groups
    tail, head = np.empty(most, np.int64), np.empty(most, np.int64)
    lows, highs = np.empty(most, np.int64), np.empty(most, np.int64)
    base, mid, outer = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    cell_of = np.full(most, -1, dtype=np.int64)
    sink = columns + groups
    nodes, arcs = sink + 1, 0
    grouped = np.zeros(groups, dtype=np.int64)
    fine = SCALE // (4 * (free + 1))
    node_of = np.full((levels, widest), -1, dtype=np.int64)
    sums = np.zeros((levels, widest))
    whole = np.zeros((levels, widest), dtype=np.int64)
    sizes = np.zeros((levels, widest), dtype=np.int64)
    supply = np.zeros(columns + groups + 1 + free * levels, dtype=np.int64)
    supply[:columns] = need
    for c in range(children):
        node_of[:] = -1
        sums[:] = 0.0
        whole[:] = 0
        sizes[:] = 0
        for j in range(cells):
            supply[column[j]] -= floors[c, j]
            grouped[group[c]] += floors[c, j]
            for level in range(levels):
                g = chain[level, j]
                whole[level, g] += floors[c, j]
                if taking[c, j]:
                    sums[level, g] += parts[c, j]
                    sizes[level, g] += 1
                    if node_of[level, g] < 0:
                        node_of[level, g] = nodes
                        nodes += 1
        for j in range(cells):
            if not taking[c, j]:
                continue
            part = parts[c, j]
            tail[arcs], head[arcs] = column[j], node_of[levels - 1, chain[levels - 1, j]]
            lows[arcs], highs[arcs], base[arcs] = -min(floors[c, j], slack), 1 + slack, 0
            cost = np.int64(np.rint((1.0 - 2.0 * part) * SCALE))
            unit = int(weight[levels])
            if pre_rounded == 1:
                near = np.int64(np.rint((1.0 - 2.0 * part) * fine))
                mid[arcs] = unit * (SCALE if part <= 0.5 else -SCALE) + near
            else:
                mid[arcs] = unit * cost
            outer[arcs] = max(unit * SCALE, 1) + (fine if pre_rounded == 1 else 0)
            cell_of[arcs] = c * cells + j
            arcs += 1
        for level in range(levels):
            for g in range(widest):
                node = node_of[level, g]
                if node < 0:
                    continue
                total = sums[level, g]
                floor = np.int64(np.floor(total + tolerance))
                part = total - floor if total - floor > tolerance else 0.0
                unit = weight[level] * SCALE
                tail[arcs] = node
                if level > 0:
                    # The group above: any cell of this group tells it.
                    above = -1
                    for j in range(cells):
                        if chain[level, j] == g:
                            above = node_of[level - 1, chain[level - 1, j]]
                            break
                    head[arcs] = above
                    lows[arcs], highs[arcs] = -sizes[level, g] * slack, sizes[level, g] * (1 + slack)
                else:
                    head[arcs] = columns + group[c]
                    lows[arcs], highs[arcs] = floor - slack, (floor if part == 0.0 else floor + 1) + slack
                lows[arcs] = max(lows[arcs], low[c, level, g] - whole[level, g])
                highs[arcs] = min(highs[arcs], high[c, level, g] - whole[level, g])
                if pre_rounded > 0:
                    base[arcs], mid[arcs] = np.int64(np.rint(total)), unit
                else:
                    base[arcs] = floor
                    mid[arcs] = weight[level] * np.int64(np.rint((1.0 - 2.0 * part) * SCALE))
                outer[arcs] = unit
                if lows[arcs] > highs[arcs]:
                    return 1
                arcs += 1
    for g in range(groups):
        tail[arcs], head[arcs] = columns + g, sink
        base[arcs], mid[arcs], outer[arcs] = 0, 0, 0
        lows[arcs], highs[arcs] = -_FAR, _FAR
        if group_total[g] >= 0:
            lows[arcs] = highs[arcs] = group_total[g] - grouped[g]
            base[arcs] = lows[arcs]
        arcs += 1
    supply[sink] = -supply[:columns].sum()
    flow = np.zeros(arcs, dtype=np.int64)
    cut = np.zeros(nodes, dtype=np.bool_)
    left = settle(
        tail[:arcs],
        head[:arcs],
        lows[:arcs],
        highs[:arcs],
        base[:arcs],
        mid[:arcs],
        outer[:arcs],
        supply[:nodes],
        flow,
        cut,
    )
    rounded[:] = floors
    for arc in range(arcs):
        if cell_of[arc] >= 0:
            rounded[cell_of[arc] // cells, cell_of[arc] % cells] += flow[arc]
    return left
