"""Which datasets are compared at all, how far apart they are, and how far apart two models of the data are."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

from stirred.inference.weights import Given, OutcomeWeights
from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.given_numbers import Number, loss, probability
from stirred.spec.input_premetric import allowance
from stirred.spec.problems import wrong

# A distance between datasets: `InputPremetric.distance`, or any function of two datasets.
Distance = Callable[[Any, Any], "Exact | int | Fraction | float"]

_MOST_PAIRS: Final = 4_000_000


def exponent(epsilon: Number, distance: Number, *, distinct: bool = False) -> Exact:
    """Return epsilon times distance, where nothing is promised at an infinite distance.

    At distance 0 it is 0, unless the datasets are ``distinct`` all the same (a premetric) and epsilon is infinite.

    >>> exponent(0, "inf"), exponent("inf", 0), exponent("inf", 0, distinct=True), exponent("1/2", 3)
    (Exact('inf'), Exact('0'), Exact('inf'), Exact('3/2'))
    """
    rate, apart = loss(epsilon, where="epsilon"), loss(distance, where="distance", called="distance")
    return INFINITE if distinct and rate.is_infinite else allowance(rate, apart)


def components(universe: Iterable[Hashable], d: Distance) -> list[frozenset[Any]]:
    """Return the sets of datasets that are at finite distances: nothing is promised between them.

    >>> [sorted(each) for each in components(["0", "1", "00"], lambda x, y: 1 if len(x) == len(y) else math.inf)]
    [['0', '1'], ['00']]
    """
    left = list(dict.fromkeys(universe))
    _check_size(len(left) ** 2)
    found = []
    while left:
        inside, queue = {left[0]}, deque([left[0]])
        while queue:
            x = queue.popleft()
            near = [y for y in left if y not in inside and not math.isinf(length(d(x, y)))]
            inside.update(near)
            queue.extend(near)
        found.append(frozenset(inside))
        left = [x for x in left if x not in inside]
    return found


def within_invariants(d: Distance, invariant: Callable[[Any], Hashable]) -> Distance:
    """Return the distance that is infinite between datasets on which an invariant differs."""
    return lambda x, y: d(x, y) if invariant(x) == invariant(y) else math.inf


def max_distance(first: Iterable[Any], second: Iterable[Any], d: Distance) -> Exact:
    """Return the largest distance from one set of datasets to another: ``d_**`` of Theorem 5.5.1.

    >>> max_distance(["00", "01"], ["11"], lambda x, y: sum(a != b for a, b in zip(x, y)))
    Exact('2')
    """
    a, b = list(first), list(second)
    _check_size(len(a) * len(b))
    longest = max((length(d(x, y)) for x in a for y in b), default=Fraction(0))
    return INFINITE if math.isinf(longest) else exact(Fraction(longest))


def is_unit_graph(universe: Iterable[Hashable], d: Distance) -> bool:
    """Say whether the distance counts steps of length 1 inside the universe (Assumption 5.3.3).

    Only then may an audit look at neighbours alone. With a fixed total no two datasets are 1 apart, and it may not.

    >>> is_unit_graph(["01", "10"], lambda x, y: sum(a != b for a, b in zip(x, y)))
    False
    """
    datasets = list(dict.fromkeys(universe))
    _check_size(len(datasets) ** 2)
    lengths = {(x, y): length(d(x, y)) for x in datasets for y in datasets}
    for start in datasets:
        steps, queue = {start: 0}, deque([start])
        while queue:
            x = queue.popleft()
            for y in datasets:
                if y not in steps and lengths[x, y] == 1:
                    steps[y] = steps[x] + 1
                    queue.append(y)
        if any(lengths[start, y] != steps.get(y, math.inf) for y in datasets):
            return False
    return True


def coupling_distance(p: Given, q: Given, d: Distance) -> Exact:
    """Return how far two models of the data are apart at most, under the best coupling: the W-infinity distance.

    Datasets drawn from both models can be paired so that no pair is further apart than this. A mechanism with loss
    epsilon then gives outputs within epsilon times this distance, as Lipschitz continuity says pair by pair. It is
    never above the largest distance between the two supports, and often far below.

    >>> coupling_distance({"00": 0.5, "11": 0.5}, {"00": 0.5, "01": 0.5},
    ...                   lambda x, y: sum(a != b for a, b in zip(x, y)))
    Exact('1')
    """
    first, second = _model(p, where="p"), _model(q, where="q")
    _check_size(len(first.values) * len(second.values))
    lengths = {(x, y): length(d(x, y)) for x in first.values for y in second.values}
    for reach in sorted({*lengths.values()}):
        if math.isinf(reach):
            break
        if _coupled(first, second, {pair for pair, far in lengths.items() if far <= reach}):
            return exact(Fraction(reach))
    return INFINITE


def count_distance(p: Given, q: Given) -> Exact:
    """Return the coupling distance of exchangeable yes-or-no records, from the laws of their number of yeses.

    Counts are coupled best in order: the distance is the largest gap between the two quantile functions.

    >>> count_distance(binomial(100, "0.50"), binomial(100, "0.55"))
    Exact('6')
    """
    first, second = (sorted((int(k), w) for k, w in _model(each, where="count").values.items()) for each in (p, q))
    gap, i, j = 0, 0, 0
    up, down = first[0][1], second[0][1]  # how much of the mass lies at or below the two quantiles
    while True:
        gap = max(gap, abs(first[i][0] - second[j][0]))
        if up == down == 1:
            return exact(gap)
        up_next, down_next = up <= down, down <= up
        if up_next:
            i, up = i + 1, up + first[i + 1][1]
        if down_next:
            j, down = j + 1, down + second[j + 1][1]


def binomial(n: int, share: Number) -> OutcomeWeights:
    """Return the law of the number of yeses among ``n`` independent records, exactly.

    >>> binomial(2, "1/2").values
    {0: Fraction(1, 4), 1: Fraction(1, 2), 2: Fraction(1, 4)}
    """
    p = probability(share, where="share")
    if not 0 <= n <= 1_000:
        raise wrong(f"{n} records are too many or too few", where="records", remedy="write 0 to 1,000")
    return OutcomeWeights({k: w for k in range(n + 1) if (w := math.comb(n, k) * p**k * (1 - p) ** (n - k))})


def length(value: Exact | int | Fraction | float) -> Fraction | float:
    """Return a distance as a fraction, or infinity; one that is not rational is rounded up."""
    if isinstance(value, (int, Fraction)):
        return Fraction(value)
    if isinstance(value, float):
        return value if math.isinf(value) else Fraction(repr(value))
    if value.is_infinite:
        return math.inf
    return value.rational if value.is_rational else Fraction(value.enclose().high)


def _check_size(pairs: int) -> None:
    if pairs > _MOST_PAIRS:
        raise wrong(
            f"{pairs:,} pairs of datasets are too many to list",
            where="universe",
            remedy=f"at most {_MOST_PAIRS:,}: use counts or another sufficient statistic, or a closed form",
        )


def _model(given: Given, *, where: str) -> OutcomeWeights:
    weights = OutcomeWeights.of(given, where=where)
    if not weights.rational or weights.total != 1:
        raise wrong(
            "a coupling needs probabilities that sum to exactly 1", where=where, remedy="write fractions such as '1/3'"
        )
    return weights


def _coupled(first: OutcomeWeights, second: OutcomeWeights, allowed: set[tuple[Any, Any]]) -> bool:
    """Say whether all mass can be moved along allowed pairs: a largest flow, in whole numbers."""
    scale = math.lcm(*(w.denominator for each in (first, second) for w in each.values.values()))
    left = {x: int(w * scale) for x, w in first.values.items()}
    room = {y: int(w * scale) for y, w in second.values.items()}
    near: dict[Any, list[Any]] = {x: [y for y in room if (x, y) in allowed] for x in left}
    flow: dict[tuple[Any, Any], int] = {}
    for x in left:
        while left[x]:
            path = _augmenting(x, near, room, flow)
            if path is None:
                return False
            forward = list(zip(path[::2], path[1::2], strict=True))
            backward = list(zip(path[2::2], path[1::2], strict=False))
            moved = min([left[x], room[path[-1]], *(flow[pair] for pair in backward)])
            for pair in forward:
                flow[pair] = flow.get(pair, 0) + moved
            for pair in backward:
                flow[pair] -= moved
            left[x], room[path[-1]] = left[x] - moved, room[path[-1]] - moved
    return True


def _augmenting(
    start: Any, near: dict[Any, list[Any]], room: dict[Any, int], flow: dict[tuple[Any, Any], int]
) -> Sequence[Any] | None:
    """Return a path x, y, x', y', ... to a dataset with room, which takes mass back from pairs on its way."""
    came: dict[tuple[int, Any], Any] = {(0, start): None}
    queue = deque([(0, start)])
    while queue:
        side, at = queue.popleft()
        if side and room[at]:
            path: list[Any] = []
            node: tuple[int, Any] | None = (side, at)
            while node is not None:
                path.append(node[1])
                node = came[node]
            return path[::-1]
        steps = near[at] if not side else [x for x in near if flow.get((x, at), 0)]
        for to in steps:
            if (1 - side, to) not in came:
                came[1 - side, to] = (side, at)
                queue.append((1 - side, to))
    return None
