"""The non-negative step: children of one parent, jointly, by alternating directions. Importing this loads numba.

Cells are pairs (a, e): ``a`` runs over the attributes whose codes differ (groupings, bounds, zeros), ``e`` over those
whose codes are exchangeable. A precision is then a sum over groupings U of the exchangeable part,

    W[(a, e), (a', e')] = sum_U M_U[a, a'] [e and e' agree on U]                     (sum form)
    W = sum_T Pi_T (x) B_T,   B_T = sum_{U >= T} (product of sizes outside U) M_U    (its ANOVA blocks)

and stays so when codes without anybody in the parent are dropped (a sub-grid keeps the form), when a
multiple of the identity is added and when it is inverted block by block. In coordinates whose first axis is constant in
each exchangeable attribute (Householder reflections, as cheap as subtracting means) it is block diagonal. So the step
for x needs only inverses of matrices of the size of ``a``; equalities over groups of ``a`` (a child's total, a
published margin) are eliminated in these inverses, and bounds add one more block to split. The step for z is a
projection onto a product of simplices: counts are at least 0 and add up to the parent's.
"""

from __future__ import annotations

import numpy as np

from stirred.mechanisms.topdown.hierarchy.tree import Flags, Numbers, Places
from stirred.randomness.compiled import compiled

_FLATTEST = 1e-6  # directions with less precision than this, relative to the largest, are taken for unmeasured
_UNEVEN = 8.0
_TILE = 256  # cells whose prices are found together, in the cache
_PATIENCE = 25  # iterations between looks at the balance of the two residuals


@compiled
def invert(matrix: Numbers) -> bool:
    """Replace a symmetric positive definite matrix by its inverse, by sweeps; say whether it was one."""
    n = matrix.shape[0]
    for k in range(n):
        pivot_row = matrix[k]
        pivot = pivot_row[k]
        if not pivot > 0.0:
            return False
        for j in range(n):
            pivot_row[j] /= pivot
        for i in range(n):
            if i == k:
                continue
            row = matrix[i]
            factor = row[k]
            if factor == 0.0:
                continue
            for j in range(n):
                row[j] -= factor * pivot_row[j]
            row[k] = -factor / pivot
        pivot_row[k] = 1.0 / pivot
    return True


@compiled
def to_blocks(sums: Numbers, contains: Flags, outside: Numbers, blocks: Numbers) -> None:
    """Turn the sum form M_U into ANOVA blocks B_T; ``outside[U]`` is the product of the sizes U does not keep."""
    groupings, n = sums.shape[0], sums.shape[1]
    for t in range(groupings):
        blocks[t] = 0.0
        for u in range(groupings):
            if contains[u, t]:
                for i in range(n):
                    for j in range(n):
                        blocks[t, i, j] += outside[u] * sums[u, i, j]


@compiled
def turn(values: Numbers, dims: Places) -> None:
    """Turn (rows, e) into coordinates whose first one along each attribute is constant, in place; twice is nothing."""
    rows, width = values.shape
    sums = np.empty(width)
    stride = width
    for size in dims:
        stride //= size
        if size == 1:
            continue
        root = np.sqrt(float(size))
        back = 1.0 / (root - 1.0)
        parts = values.reshape(rows * (width // (size * stride)), size, stride)
        for part in range(parts.shape[0]):
            if stride == 1:
                line = parts[part].reshape(size)
                total = 0.0
                for i in range(size):
                    total += line[i]
                mean = total / root
                shift = (mean - line[0]) * back
                for i in range(size):
                    line[i] -= shift
                line[0] = mean
                continue
            first = parts[part, 0]
            for s in range(stride):
                sums[s] = first[s]
            for i in range(1, size):
                line = parts[part, i]
                for s in range(stride):
                    sums[s] += line[s]
            for s in range(stride):
                mean = sums[s] / root
                sums[s] = (mean - first[s]) * back
                first[s] = mean
            for i in range(1, size):
                line = parts[part, i]
                for s in range(stride):
                    line[s] -= sums[s]


@compiled
def apply(blocks: Numbers, dims: Places, block: Places, given: Numbers, out: Numbers) -> None:
    """Write the product of a matrix in blocks (sets, rows, inner) with ``given`` (inner, e), turned meanwhile."""
    rows, inner, width = blocks.shape[1], blocks.shape[2], given.shape[1]
    if width == 1:
        line = out.reshape(rows)
        for i in range(rows):
            line[i] = 0.0
        for k in range(inner):
            factor = given[k, 0]
            if rows == inner:  # symmetric
                column = blocks[0, k]
                for i in range(rows):
                    line[i] += factor * column[i]
            else:
                for i in range(rows):
                    line[i] += factor * blocks[0, i, k]
        return
    turn(given, dims)
    last = dims[dims.size - 1]
    source, target = given.reshape(inner, width // last, last), out.reshape(rows, width // last, last)
    sums = np.empty(last)
    for part in range(width // last):  # along the last attribute, all but the first coordinate are in one block
        first, rest = block[part * last], block[part * last + last - 1]
        for i in range(rows):
            total = 0.0
            for e in range(last):
                sums[e] = 0.0
            for k in range(inner):
                line = source[k, part]
                total += blocks[first, i, k] * line[0]
                factor = blocks[rest, i, k]
                for e in range(last):
                    sums[e] += factor * line[e]
            line = target[i, part]
            for e in range(last):
                line[e] = sums[e]
            line[0] = total
    turn(out, dims)


@compiled
def restricted(sums: Numbers, row: Places, groups: Places, found: Numbers) -> None:
    """Write matrices in sum form as they are, for some cells: their rows a, and groups by each set (sets, cells)."""
    kinds, sets = sums.shape[0], sums.shape[1]
    cells = row.size
    for kind in range(kinds):
        for i in range(cells):
            for j in range(i + 1):
                total = 0.0
                for u in range(sets):
                    if groups[u, i] == groups[u, j]:
                        total += sums[kind, u, row[i], row[j]]
                found[kind, 0, i, j] = total
                found[kind, 0, j, i] = total


@compiled
def _step_operator(
    precision: Numbers,
    allowed: Flags,
    rho: float,
    bound_groups: Flags,
    bound_rho: float,
    equal_groups: Flags,
    equal_inside: Flags,
    contains: Flags,
    outside: Numbers,
    blocks: Numbers,
    fixes: Numbers,
) -> bool:
    """Write the inverse of the step for x, with equalities eliminated, and what fixes these, both in blocks."""
    groupings, n = precision.shape[0], precision.shape[1]
    equalities = equal_groups.shape[0]
    fixes[:] = 0.0
    to_blocks(precision, contains, outside, blocks)
    for t in range(groupings):
        for i in range(n):
            if not allowed[i]:
                blocks[t, i, :] = 0.0
                blocks[t, :, i] = 0.0
            blocks[t, i, i] += rho
    for g in range(bound_groups.shape[0]):  # a bound is on sums over all of e: it is in the block of no contrast
        for i in range(n):
            for j in range(n):
                if bound_groups[g, i] and bound_groups[g, j] and allowed[i] and allowed[j]:
                    blocks[0, i, j] += bound_rho * outside[0]
    for t in range(groupings):
        if not invert(blocks[t]):
            return False
        if not equal_inside[t] or equalities == 0:
            continue
        # x = N v + K (r - G N v), K = N G' (G N G')^-1: the equality G x = r holds whatever v is.
        across = np.zeros((n, equalities))
        inner = np.zeros((equalities, equalities))
        for g in range(equalities):
            for i in range(n):
                for j in range(n):
                    if equal_groups[g, j] and allowed[j]:
                        across[i, g] += blocks[t, i, j]
        for g in range(equalities):
            for h in range(equalities):
                for i in range(n):
                    if equal_groups[g, i] and allowed[i]:
                        inner[g, h] += across[i, h]
            if inner[g, g] == 0.0:  # nobody can be in this group: the equality says 0 = 0
                inner[g, g] = 1.0
        if not invert(inner):
            return False
        for i in range(n):
            for g in range(equalities):
                for h in range(equalities):
                    fixes[t, i, g] += across[i, h] * inner[h, g]
        for i in range(n):
            for j in range(n):
                for g in range(equalities):
                    blocks[t, i, j] -= fixes[t, i, g] * across[j, g]
    return True


@compiled
def _largest(matrix: Numbers, allowed: Flags, centred: bool) -> float:
    """Return the largest eigenvalue of a symmetric matrix among allowed rows, roughly, by the power method.

    ``centred`` leaves out the direction in which all rows move alike.
    """
    n = matrix.shape[0]
    vector, image = np.zeros(n), np.zeros(n)
    count, value = 0, 0.0
    for i in range(n):
        if allowed[i]:
            count += 1
            vector[i] = 1.0 + 0.1 * count * (-1.0) ** count
    for _ in range(8):
        mean, norm = 0.0, 0.0
        if centred:
            for i in range(n):
                mean += vector[i] / count
        for i in range(n):
            if allowed[i]:
                vector[i] -= mean
                norm += vector[i] * vector[i]
        if norm <= 0.0:
            return value
        norm, value = np.sqrt(norm), 0.0
        for i in range(n):
            image[i] = 0.0
            if allowed[i]:
                for j in range(n):
                    image[i] += matrix[i, j] * vector[j] / norm
                value += image[i] * vector[i] / norm
        vector, image = image, vector
    return value


@compiled
def _middle(precision: Numbers, allowed: Flags, equal_inside: Flags, contains: Flags, outside: Numbers) -> float:
    """Return about the geometric mean of the extreme eigenvalues of a precision: the step that converges fastest.

    ``equal_inside[t]`` says that an equality touches a block: the total has no part in it.
    """
    groupings, n = precision.shape[0], precision.shape[1]
    blocks = np.empty((groupings, n, n))
    to_blocks(precision, contains, outside, blocks)
    largest, least = 0.0, np.inf
    if not allowed.any():
        return 1.0
    for t in range(groupings):
        largest = max(largest, _largest(blocks[t], allowed, equal_inside[t]))
    if largest <= 0.0:
        return 1.0
    for t in range(groupings):
        for i in range(n):
            if not allowed[i]:
                blocks[t, i, :] = 0.0
                blocks[t, :, i] = 0.0
            blocks[t, i, i] += 1e-9 * largest if allowed[i] else largest
        if invert(blocks[t]):
            inverse = _largest(blocks[t], allowed, False)
            least = min(least, 1.0 / inverse if inverse > 0.0 else largest)
    least = min(max(least, _FLATTEST * largest), largest)
    # Far apart they ask for a larger step (measured: fewest iterations), near each other for none.
    return np.sqrt(least * largest) * (2.0 if largest > _UNEVEN * least else 1.0)


@compiled
def _levels(held: Numbers, aims: Numbers, masks: Numbers, rho: Numbers, threshold: Numbers, scratch: Numbers) -> bool:
    """Find by Newton's method where sum_c max(0, aim_c - level / rho_c) is what the parent holds; say if it can be.

    In every cell that sum is convex and falling in level. ``threshold`` has the levels of before, to begin with.
    """
    children = rho.size
    totals, steep = scratch
    for start in range(0, held.size, _TILE):
        own, level = held[start : start + _TILE], threshold[start : start + _TILE]
        many = own.size
        for _ in range(60):
            for k in range(many):
                totals[k], steep[k] = -own[k], 0.0
            for c in range(children):
                less = 1.0 / rho[c]
                aim, mask = aims[c, start : start + _TILE], masks[c, start : start + _TILE]
                for k in range(many):
                    part = aim[k] - level[k] * less
                    above = mask[k] if part > 0.0 else 0.0
                    totals[k] += above * part
                    steep[k] += above * less
            settled = True
            for k in range(many):
                if own[k] <= 0.0:
                    continue
                if steep[k] > 0.0:
                    level[k] += totals[k] / steep[k]
                    settled = settled and abs(totals[k]) <= 1e-13 * own[k]
                    continue
                settled = False
                level[k] = -np.inf
                for c in range(children):
                    if masks[c, start + k] > 0.0:
                        level[k] = max(level[k], (aims[c, start + k] - own[k]) * rho[c])
                if level[k] == -np.inf:
                    return False
            if settled:
                break
    return True


@compiled
def solve_parent(
    parent: Numbers,
    free_cells: Flags,
    precision: Numbers,
    kind: Places,
    linear: Numbers,
    place: Places,
    sizes: Places,
    contains: Flags,
    outside: Numbers,
    dims: Places,
    block: Places,
    equal_groups: Flags,
    equal_at: int,
    equal_to: Numbers,
    bound_groups: Flags,
    lowest: Numbers,
    highest: Numbers,
    tolerance: float,
    most: int,
    found: Numbers,
    report: Numbers,
) -> bool:
    """Minimise sum_c (x_c' W_c x_c / 2 - b_c' x_c) over children with x >= 0 that add up to the parent; say if solved.

    ``parent`` (a, e) is -1 throughout for an area that has none; ``free_cells`` (children, a, e) are those
    that may be filled; ``precision[kind[c]]`` is W_c in sum form and ``linear`` b_c (children, a, e). ``equal_to``
    (children, groups of a, groups of e by grouping ``equal_at``) are equalities over ``equal_groups``; ``lowest`` and
    ``highest`` bound sums over ``bound_groups`` and all of e. ``report`` gets iterations, both residuals, objective
    and gap.
    """
    children, n, width = linear.shape
    groupings = place.shape[0]
    equalities, bounds = equal_groups.shape[0], bound_groups.shape[0]
    rooted = parent[0, 0] >= 0.0 or parent.max() >= 0.0
    x, z, u = np.zeros((children, n, width)), np.zeros((children, n, width)), np.zeros((children, n, width))
    w, uw = np.zeros((children, bounds)), np.zeros((children, bounds))
    offset = np.zeros((children, n, width))
    cells = n * width
    x2, z2, u2 = x.reshape(children, cells), z.reshape(children, cells), u.reshape(children, cells)
    held, threshold, masks = parent.copy().reshape(cells), np.zeros(cells), np.zeros((children, cells))
    scratch, given = np.empty((2, _TILE)), np.empty((n, width))
    rho, bound_rho = np.empty(children), np.empty(children)
    inverse = np.zeros((children, groupings, n, n))
    fixing = np.zeros((children, groupings, n, equalities))
    alike = np.arange(children)  # the first child that has the same operator: its precision, and where it may be filled
    equal_inside = np.zeros(groupings, dtype=np.bool_)
    allowed = np.ones((children, n), dtype=np.bool_)
    largest_set = 1.0
    for g in range(bounds):
        largest_set = max(largest_set, float(bound_groups[g].sum()))
    for t in range(groupings):
        equal_inside[t] = equalities > 0 and contains[equal_at, t]
    for c in range(children):
        for a in range(n if width > 1 else 0):  # single cells are kept at 0 by z alone: one inverse serves all children
            allowed[c, a] = free_cells[c, a].any()
        for d in range(c):
            if kind[d] == kind[c] and np.all(allowed[d] == allowed[c]):
                alike[c] = d
                break
        if alike[c] == c:
            rho[c] = _middle(precision[kind[c]], allowed[c], equal_inside, contains, outside)
        rho[c] = rho[alike[c]]
        bound_rho[c] = rho[c] / (outside[0] * largest_set)
        for a in range(n):
            for e in range(width):
                if free_cells[c, a, e]:
                    z[c, a, e] = parent[a, e] / children if rooted else 0.0
                    masks[c, a * width + e] = 1.0
    first, look, factor = True, 0, 1.0
    over = 1.9 if equalities + bounds > 0 else 1.8  # over-relaxation (measured: fewest iterations)
    iterations, primal, dual = 0, np.inf, np.inf
    while iterations < most:
        if iterations == look:
            look += _PATIENCE + iterations // 2  # ever more rarely: the step settles
            factor = 1.0
            if not first and (primal > 5.0 * dual or dual > 5.0 * primal):
                factor = 2.0 if primal > dual else 0.5
        if first or factor != 1.0:
            for c in range(children):
                rho[c] *= factor
                bound_rho[c] *= factor
                u[c] /= factor
                uw[c] /= factor
                if alike[c] == c and not _step_operator(
                    precision[kind[c]],
                    allowed[c],
                    rho[c],
                    bound_groups,
                    bound_rho[c],
                    equal_groups,
                    equal_inside,
                    contains,
                    outside,
                    inverse[c],
                    fixing[c],
                ):
                    return False
                if equalities > 0:
                    # The right-hand side as a function on (groups of a, e), constant within groups of e.
                    offset[c] = 0.0
                    share = np.empty((equalities, width))
                    for g in range(equalities):
                        for e in range(width):
                            share[g, e] = equal_to[c, g, place[equal_at, e]] / outside[equal_at]
                    apply(fixing[alike[c]], dims, block, share, offset[c])
            first, factor = False, 1.0
        primal, dual = 0.0, 0.0
        for c in range(children):
            source, slack, aim, force = linear[c].reshape(cells), z2[c], u2[c], given.reshape(cells)
            for k in range(cells):
                force[k] = source[k] + rho[c] * (slack[k] - aim[k])
            for g in range(bounds):
                pull = bound_rho[c] * (w[c, g] - uw[c, g])
                for a in range(n):
                    if bound_groups[g, a]:
                        for e in range(width):
                            given[a, e] += pull
            out = x[c]
            apply(inverse[alike[c]], dims, block, given, out)
            if equalities > 0:
                for a in range(n):
                    for e in range(width):
                        out[a, e] += offset[c, a, e]
            for g in range(bounds):
                total = 0.0
                for a in range(n):
                    if bound_groups[g, a] and allowed[c, a]:
                        for e in range(width):
                            total += out[a, e]
                primal = max(primal, abs(total - w[c, g]))
                relaxed = over * total + (1.0 - over) * w[c, g]
                clipped = min(max(relaxed + uw[c, g], lowest[c, g]), highest[c, g])
                dual = max(dual, abs(clipped - w[c, g]))
                uw[c, g] += relaxed - clipped
                w[c, g] = clipped
            line = x2[c]
            for k in range(cells):
                aim[k] += over * line[k] + (1.0 - over) * slack[k]
        if rooted and not _levels(held, u2, masks, rho, threshold, scratch):
            return False
        for c in range(children):
            less = 1.0 / rho[c]
            line, slack, aim, mask = x2[c], z2[c], u2[c], masks[c]
            for k in range(cells):
                new = max(0.0, aim[k] - threshold[k] * less) * mask[k]
                primal = max(primal, abs(line[k] - new) * mask[k])
                dual = max(dual, abs(new - slack[k]))
                aim[k] -= new
                slack[k] = new
        iterations += 1
        if primal <= tolerance and dual <= tolerance:
            break
    found[:] = z
    report[0], report[1], report[2] = iterations, primal, dual
    # Prices: with r = W z - b + prices of equalities and bounds, every dual feasible point lies below the optimum by
    # sum z (r - min_c r) at most (complementary slackness), which is the duality gap.
    objective, gap = 0.0, 0.0
    blocks = np.empty((groupings, n, n))
    for c in range(children):
        to_blocks(precision[kind[c]], contains, outside, blocks)
        given[:] = z[c]
        out = x[c]
        apply(blocks, dims, block, given, out)
        for a in range(n):
            for e in range(width):
                objective += z[c, a, e] * (0.5 * out[a, e] - linear[c, a, e])
                out[a, e] -= linear[c, a, e]
                for g in range(bounds):
                    if bound_groups[g, a]:
                        out[a, e] += bound_rho[c] * uw[c, g]
        for g in range(equalities):
            price, count = np.zeros(sizes[equal_at]), np.zeros(sizes[equal_at])
            for a in range(n):
                for e in range(width):
                    if equal_groups[g, a] and z[c, a, e] > 0.0:
                        price[place[equal_at, e]] -= out[a, e] + rho[c] * u[c, a, e]
                        count[place[equal_at, e]] += 1.0
            for a in range(n):
                for e in range(width):
                    if equal_groups[g, a] and count[place[equal_at, e]] > 0.0:
                        out[a, e] += price[place[equal_at, e]] / count[place[equal_at, e]]
        for g in range(bounds):
            total, push = 0.0, bound_rho[c] * uw[c, g]
            for a in range(n):
                if bound_groups[g, a]:
                    total += z[c, a].sum()
            gap += push * (highest[c, g] - total) if push > 0.0 else push * (lowest[c, g] - total)
    for a in range(n):
        for e in range(width):
            least = 0.0
            if rooted:
                least = np.inf
                for c in range(children):
                    if free_cells[c, a, e]:
                        least = min(least, x[c, a, e])
            for c in range(children):
                if free_cells[c, a, e] and z[c, a, e] > 0.0:
                    gap += z[c, a, e] * (x[c, a, e] - least)
    report[3], report[4] = objective, gap
    return primal <= tolerance and dual <= tolerance
