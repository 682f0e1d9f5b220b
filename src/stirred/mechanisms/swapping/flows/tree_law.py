"""Flow tables where distances are those of a tree (an ultrametric): drawn exactly in larger strata (theory R6).

Values at distance d or less form groups, and the groups of all distances a tree. With theta^h for values whose smallest
common group has diameter h, the kernel is a sum over the groups that hold both values: R(s,s') = sum of
w_v = theta^(h_v) - theta^(h_parent), none of them negative. So a record picks a group v that holds it, and exchanges
inside it. From the bottom: of the N_v records that come to node v, b_v are taken up and the others stay, with weight
C(N_v,b_v) w_v^(N_v-b_v) N_v!/b_v!; the values of all N_v are shuffled; a leaf has N = c records and the root takes none
up.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import WORD_BITS, WordReader
from stirred.randomness.integers import permutation

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A draw this close to a step, relative to the whole, is left to longer numbers: 2**21 roundings of 2**-53 are less than
# half of it. A number here has at most 8 for each record and level (``flows`` allows 2**18 of these).
_CLOSE: Final = 2.0**-30
_DIGITS: Final = 40
# So many are shuffled faster than compiled code is called.
_FEW: Final = 32


class Tree(NamedTuple):
    """Groups of values: leaves, then inner nodes, each after its children; the root is last and its own parent."""

    parent: Counts
    heights: Counts

    def cost(self, counts: Sequence[int]) -> tuple[int, int, int]:
        """Return the steps that drawing takes, the numbers kept meanwhile, and the records times levels."""
        family = _Family.of(self, counts)
        inner = sum(size * size for size in family.size[len(counts) :])
        levels = len(np.unique(self.heights))
        return 3 * inner // 2, sum(family.size) + sum(family.together), levels * sum(counts)

    def weights(self, powers: Sequence[Fraction]) -> list[Fraction]:
        """Return the w of all nodes, from theta^h for h = 0, 1, ..."""
        own = [powers[height] for height in self.heights.tolist()]
        return [own[v] - own[above] for v, above in enumerate(self.parent[:-1].tolist())] + [own[-1]]


def tree_of(steps: Counts) -> Tree | None:
    """Return the tree of a table of distances, or None if these are not those of a tree.

    >>> tree_of(np.array([[0, 1, 2], [1, 0, 2], [2, 2, 0]])).parent.tolist()
    [3, 3, 4, 4, 4]
    >>> tree_of(np.array([[0, 1, 2], [1, 0, 1], [2, 1, 0]])) is None  # a line
    True
    """
    top = list(range(len(steps)))  # the node that stands for each value so far
    parent, heights = [0] * len(steps), [0] * len(steps)
    for height in np.unique(steps[steps > 0]).tolist():
        near = steps <= height
        group = near.argmax(axis=1)
        if not np.array_equal(near, group[:, None] == group):
            return None
        members: dict[int, dict[int, None]] = {}
        for value, where in enumerate(group.tolist()):
            members.setdefault(where, {})[top[value]] = None
        for value, where in enumerate(group.tolist()):
            if len(members[where]) > 1 and where == value:
                for child in members[where]:
                    parent[child] = len(parent)
                parent.append(0)
                heights.append(height)
        top = [
            parent[top[value]] if len(members[where]) > 1 else top[value] for value, where in enumerate(group.tolist())
        ]
    parent[-1] = len(parent) - 1
    return Tree(np.array(parent), np.array(heights))


class _Family(NamedTuple):
    """The tree as the draws go through it: records below each node, with its elder siblings, and who these are."""

    size: list[int]
    together: list[int]
    elder: list[int]
    youngest: list[int]

    @classmethod
    def of(cls, tree: Tree, counts: Sequence[int]) -> _Family:
        parent, nodes = tree.parent.tolist(), len(tree.parent)
        size = [*counts, *[0] * (nodes - len(counts))]
        together, elder, youngest = [0] * nodes, [-1] * nodes, [-1] * nodes
        for u in range(nodes - 1):
            size[parent[u]] += size[u]
            elder[u], youngest[parent[u]] = youngest[parent[u]], u
            together[u] = size[u] + (together[elder[u]] if elder[u] >= 0 else 0)
        return cls(size, together, elder, youngest)


class TreeLaw:
    """The law of the flow table of one stratum by a tree; ``weights`` are the w of its nodes, ``floats`` in doubles.

    >>> from stirred.randomness.entropy import Entropy
    >>> tree = tree_of(np.array([[0, 1, 2], [1, 0, 2], [2, 2, 0]]))
    >>> law = TreeLaw([4, 2, 3], tree, [Fraction(1, 2)] * 2 + [Fraction(3, 4)] + [Fraction(1, 4)] * 2)
    >>> law.draw(Entropy.from_os().keystream("example").reader(0)).sum(axis=0).tolist()
    [4, 2, 3]
    """

    def __init__(
        self, counts: Sequence[int], tree: Tree, weights: Sequence[Fraction], floats: Floats | None = None
    ) -> None:
        self._counts, self._tree, self._weights = [int(count) for count in counts], tree, weights
        self._floats = np.array([float(weight) for weight in weights]) if floats is None else floats

    def draw(self, words: WordReader) -> Counts:
        """Return how many records of each value (rows) get each value (columns)."""
        return self._exchanged(*self.draw_taken(words), words)

    def draw_taken(self, words: WordReader) -> tuple[list[int], list[int]]:
        """Return for each node how many records are taken up, and how many came to it."""
        from stirred.mechanisms.swapping.flows.law_kernel import draw_tree

        nodes = len(self._weights)
        heads = words.take(2 * (nodes - 1)).astype(np.uint64)
        taken, pool = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
        counts = np.array(self._counts)
        points = heads[0::2] << np.uint64(32) | heads[1::2]
        if not draw_tree(counts, self._tree.parent, self._floats, points, _CLOSE, taken, pool):
            return self._by_digits(heads, words)
        return taken.tolist(), pool.tolist()

    def draw_taken_exactly(self, words: WordReader) -> tuple[list[int], list[int]]:
        """Return the same from the same words by decimals of as many digits as it takes: the oracle of the above."""
        return self._by_digits(words.take(2 * (len(self._weights) - 1)), words)

    def expected_moves(self, place: int | None = None) -> float:
        """Return how many records, of the value at a place or of all, are expected to get another value.

        Adding to w of a leaf adds to R(s,s) alone, so that the expected number of records that keep s is the
        derivative of the logarithm of the sum of all weights; here by a central difference.
        """
        from stirred.mechanisms.swapping.flows.law_kernel import log_total

        size = len(self._counts)
        which = slice(0, size) if place is None else slice(place, place + 1)
        weights = self._floats
        step, logs = 1e-4 * weights[:size].min(), []
        for side in (1, -1):
            moved = weights.copy()
            moved[which] += side * step
            logs.append(log_total(np.array(self._counts), self._tree.parent, moved))
        return float(sum(self._counts[which]) - (logs[0] - logs[1]) / (2 * step))

    def _exchanged(self, taken: list[int], pool: list[int], words: WordReader) -> Counts:
        """Return the flow table: in every pool values are shuffled, and those taken up take theirs with them."""
        size, parent = len(self._counts), self._tree.parent.tolist()
        flow: Counts = np.diag([count - up for count, up in zip(self._counts, taken, strict=False)]).astype(np.int64)
        # Records by their old value, and the values they hold.
        waiting: dict[int, tuple[list[int], list[int]]] = {}
        for u, above in enumerate(parent):
            olds, news = ([u] * taken[u], [u] * taken[u]) if u < size else waiting.pop(u, ([], []))
            if u >= size:  # records and values, each in a new order
                olds, news = _shuffled(olds, words), _shuffled(news, words)
                for old, new in zip(olds[taken[u] :], news[taken[u] :], strict=True):
                    flow[old, new] += 1
            held = waiting.setdefault(above, ([], []))
            held[0].extend(olds[: taken[u]])
            held[1].extend(news[: taken[u]])
        return flow

    # ---- decimals ---------------------------------------------------------------------------------------

    def _by_digits(self, heads: npt.NDArray[np.unsignedinteger], words: WordReader) -> tuple[list[int], list[int]]:
        points = [(int(a) << WORD_BITS | int(b), 2 * WORD_BITS) for a, b in zip(heads[0::2], heads[1::2], strict=True)]
        digits = _DIGITS
        while True:
            with decimal.localcontext(decimal.Context(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)):
                found = _Digits(self._counts, self._tree, self._weights, digits).draw(points)
            if not isinstance(found, int):
                return found
            point, bits = points[found]
            for word in (next(words) for _ in range(bits // WORD_BITS)):
                point = point << WORD_BITS | word
            points[found] = point, 2 * bits
            digits *= 2


def _shuffled(values: list[int], words: WordReader) -> list[int]:
    """Return the values in uniformly random order; the same order either way."""
    if len(values) <= _FEW:
        return [values[place] for place in permutation(len(values), words)]
    from stirred.randomness.kernel import shuffle_slices

    order = np.array(values, dtype=np.uint32)
    shuffle_slices(order, np.array([0, order.size]), words)
    return list(order.tolist())


class _Digits:
    """Messages and draws in decimals; all terms are positive, so that only the last digits are uncertain."""

    def __init__(self, counts: list[int], tree: Tree, weights: Sequence[Fraction], digits: int) -> None:
        self._family, self._leaves, self._nodes = _Family.of(tree, counts), len(counts), len(weights)
        self._weights = [Decimal(weight.numerator) / weight.denominator for weight in weights]
        # Ten digits for the roundings of all sums.
        self._close = Decimal(10) ** (10 - digits)
        family = self._family
        self._factorial = [*accumulate(range(1, family.size[-1] + 1), lambda f, k: f * k, initial=Decimal(1))]
        self._message: list[list[Decimal]] = [[]] * self._nodes
        self._joined: list[list[Decimal]] = [[]] * self._nodes
        for u in range(self._nodes - 1):
            self._message[u] = self._joined[u] = self._sent(u)
            if family.elder[u] >= 0:
                self._joined[u] = _convolved(self._message[u], self._joined[family.elder[u]])

    def _left(self, u: int) -> list[Decimal]:
        """Return the weight of 0, 1, ... records that stay at a node."""
        weight = self._weights[u]
        return [*accumulate(range(1, self._family.size[u] + 1), lambda p, k: p * weight / k, initial=Decimal(1))]

    def _pooled(self, u: int) -> list[Decimal]:
        below = self._joined[self._family.youngest[u]]
        return [term * self._factorial[n] ** 2 for n, term in enumerate(below)]

    def _sent(self, u: int) -> list[Decimal]:
        size, left = self._family.size[u], self._left(u)
        if u < self._leaves:
            return [left[size - b] / self._factorial[b] ** 2 for b in range(size + 1)]
        pooled = self._pooled(u)
        return [
            sum((pooled[n] * left[n - b] for n in range(b, size + 1)), Decimal(0)) / self._factorial[b] ** 2
            for b in range(size + 1)
        ]

    def draw(self, points: list[tuple[int, int]]) -> tuple[list[int], list[int]] | int:
        """Return what each node takes up and what comes to it; or the number of the point that cannot be told."""
        family, taken, pool = self._family, [0] * self._nodes, [0] * self._nodes
        pool[: self._leaves] = family.size[: self._leaves]
        used = iter(range(len(points)))
        for v in range(self._nodes - 1, self._leaves - 1, -1):
            pooled, left = self._pooled(v), self._left(v)
            terms = [pooled[n] * left[n - taken[v]] for n in range(taken[v], family.size[v] + 1)]
            found = self._place(terms, *points[number := next(used)])
            if found is None:
                return number
            rest = pool[v] = taken[v] + found
            u = family.youngest[v]
            while (elder := family.elder[u]) >= 0:
                low = max(0, rest - family.together[elder])
                terms = [
                    self._message[u][b] * self._joined[elder][rest - b]
                    for b in range(low, min(rest, family.size[u]) + 1)
                ]
                found = self._place(terms, *points[number := next(used)])
                if found is None:
                    return number
                taken[u] = low + found
                rest, u = rest - taken[u], elder
            taken[u] = rest
        return taken, pool

    def _place(self, terms: list[Decimal], point: int, bits: int) -> int | None:
        if len(terms) == 1:
            return 0
        steps = [*accumulate(terms)]
        total, margin = steps[-1], steps[-1] * self._close
        low, high = total * point / (1 << bits), total * (point + 1) / (1 << bits)
        place = next((i for i, step in enumerate(steps) if step > low), len(steps) - 1)
        begun = place == 0 or steps[place - 1] + margin <= low
        return place if begun and (place == len(steps) - 1 or high <= steps[place] - margin) else None


def _convolved(a: list[Decimal], b: list[Decimal]) -> list[Decimal]:
    return [
        sum((a[i] * b[k - i] for i in range(max(0, k - len(b) + 1), min(k, len(a) - 1) + 1)), Decimal(0))
        for k in range(len(a) + len(b) - 1)
    ]
