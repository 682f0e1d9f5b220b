"""Flow tables (R6 for any kernel, R11): laws by enumeration, samplers, near misses. False alarms: 1e-6 for a test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stirred.mechanisms.swapping.flows.kernel import swap_flow_in_place
from stirred.mechanisms.swapping.flows.law import FlowLaw
from stirred.mechanisms.swapping.flows.mechanism import Flows, summable
from stirred.mechanisms.swapping.flows.tree_law import TreeLaw, tree_of
from stirred.mechanisms.swapping.gibbs.mechanism import staying
from stirred.randomness.entropy import Entropy
from tests.mechanisms.swapping.kernels.reference import swap_flow_reference
from tests.mechanisms.swapping.kernels.test_counted_kernel import words_of
from tests.mechanisms.swapping.oracles import flow_weight
from tests.mechanisms.swapping.test_family_sampling import fit

PValue = Callable[..., float]
Table = tuple[tuple[int, ...], ...]
FALSE_ALARM = 1e-6
HALF, THIRD = Fraction(1, 2), Fraction(1, 3)
# Rows by columns; the third is no metric and not even: any positive kernel has a conditioned swap.
LINE = [[abs(a - b) for b in range(4)] for a in range(4)]
TREE = [[0, 1, 3, 3], [1, 0, 3, 3], [3, 3, 0, 2], [3, 3, 2, 0]]
UNEVEN = [[0, 2, -1, 1], [1, 0, 3, -2], [4, 1, 0, 1], [-1, 2, 2, 0]]
SMALL = [(1, 1), (2, 1), (3, 2), (1, 1, 1), (2, 1, 2), (3, 1, 1), (2, 2, 1), (1, 2, 1, 1), (1, 1, 1, 1)]


def weighted(steps: Sequence[Sequence[int]], weight: Fraction = THIRD) -> Callable[[int, int], Fraction]:
    return lambda a, b: weight ** steps[a][b]


def records(counts: Sequence[int]) -> list[int]:
    return [value for value, count in enumerate(counts) for _ in range(count)]


def flow_of(before: Sequence[int], after: Sequence[int], size: int) -> Table:
    flow = [[0] * size for _ in range(size)]
    for a, b in zip(before, after, strict=True):
        flow[a][b] += 1
    return tuple(map(tuple, flow))


def enumerated(
    counts: Sequence[int], chance: Callable[[tuple[int, ...], list[int]], Fraction]
) -> dict[Table, Fraction]:
    """The law of the flow table over all permutations, weighed by ``chance`` of the permutation and the values."""
    start = records(counts)
    law: dict[Table, Fraction] = {}
    for sigma in permutations(range(len(start))):
        flow = flow_of(start, [start[j] for j in sigma], len(counts))
        law[flow] = law.get(flow, Fraction(0)) + chance(sigma, start)
    total = sum(law.values())
    return {flow: weight / total for flow, weight in law.items()}


def conditioned(counts: Sequence[int], pair: Callable[[int, int], Fraction]) -> dict[Table, Fraction]:
    return enumerated(
        counts,
        lambda sigma, s: math.prod((pair(s[i], s[j]) for i, j in enumerate(sigma) if s[i] != s[j]), start=Fraction(1)),
    )


def gibbs(counts: Sequence[int], pair: Callable[[int, int], Fraction]) -> dict[Table, Fraction]:
    return enumerated(
        counts,
        lambda sigma, s: math.prod((pair(s[i], s[j]) for i, j in enumerate(sigma) if i != j), start=Fraction(1)),
    )


def same_law(law: FlowLaw, expected: dict[Table, Fraction]) -> bool:
    total = sum(flow_weight(law, flow) for flow in expected)
    return all(flow_weight(law, flow) / total == p for flow, p in expected.items())


# ---- the law ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [LINE, TREE, UNEVEN], ids=["line", "tree", "uneven"])
@pytest.mark.parametrize("counts", SMALL, ids=str)
def test_the_weight_of_a_flow_table_is_that_of_its_rearrangements(counts: tuple[int, ...], steps: Any) -> None:
    pair = weighted(steps)
    assert same_law(FlowLaw(counts, pair), conditioned(counts, pair))
    assert sum(counts) < 3 or not same_law(FlowLaw(counts, weighted(steps, HALF)), conditioned(counts, pair))


@pytest.mark.parametrize("own", ["1/2", "1", "3"])
@pytest.mark.parametrize("counts", SMALL, ids=str)
def test_the_weight_of_a_flow_table_under_gibbs_weights_counts_records_that_stay(
    counts: tuple[int, ...], own: str
) -> None:
    """R11: per value, the sum over j of C(F,j) (1-w)^j w^(F-j) (c-j)!, over F!."""

    def pair(a: int, b: int) -> Fraction:
        return Fraction(own) if a == b else weighted(UNEVEN)(a, b)

    law = FlowLaw(counts, pair, [staying(Fraction(own), count) for count in counts])
    assert same_law(law, gibbs(counts, pair))
    assert same_law(FlowLaw(counts, pair), gibbs(counts, pair)) == (own == "1" or max(counts) == 1)


def test_the_number_of_exchanges_between_two_values_is_the_closed_law() -> None:
    """P(D) proportional to C(c1,D) C(c2,D) theta^2D."""
    law = FlowLaw((4, 3), lambda a, b: THIRD)
    weights = [flow_weight(law, [[4 - d, d], [d, 3 - d]]) for d in range(4)]
    closed = [math.comb(4, d) * math.comb(3, d) * THIRD ** (2 * d) for d in range(4)]
    assert [w / sum(weights) for w in weights] == [w / sum(closed) for w in closed]


@pytest.mark.parametrize("counts", [(2, 1, 2), (1, 2, 1, 1), (2, 2, 1)], ids=str)
def test_the_counts_taken_up_a_tree_have_the_law_of_all_choices_of_groups(counts: tuple[int, ...]) -> None:
    """Every record picks a group that holds it, every permutation respects the groups: enumerate both."""
    size = len(counts)
    steps = np.array(TREE)[:size, :size]
    tree = tree_of(steps)
    assert tree is not None
    weights = tree.weights([THIRD**h for h in range(4)])
    parent, start = tree.parent.tolist(), records(counts)
    above = [_chain(parent, value) for value in range(size)]
    found: dict[tuple[int, ...], Fraction] = {}
    for chosen in product(*(above[value] for value in start)):
        chance = math.prod((weights[v] for v in chosen), start=Fraction(1))
        ways = sum(
            all(v in above[start[j]] for v, j in zip(chosen, sigma, strict=True))
            for sigma in permutations(range(len(start)))
        )
        taken = [0] * len(parent)
        for value, v in zip(start, chosen, strict=True):
            for below in above[value][: above[value].index(v)]:
                taken[below] += 1
        found[tuple(taken)] = found.get(tuple(taken), Fraction(0)) + chance * ways
    total = sum(found.values())
    claimed = {taken: _tree_weight(counts, parent, weights, taken) for taken in found}
    assert all(claimed[t] / sum(claimed.values()) == p / total for t, p in found.items())
    # The kernel is the sum over the groups that hold both values.
    for a, b in product(range(size), repeat=2):
        assert sum(weights[v] for v in above[a] if v in above[b]) == THIRD ** int(steps[a, b])


def _chain(parent: list[int], node: int) -> list[int]:
    return [node] if parent[node] == node else [node, *_chain(parent, parent[node])]


def _tree_weight(counts: Sequence[int], parent: list[int], weights: list[Fraction], taken: tuple[int, ...]) -> Fraction:
    total = Fraction(1)
    for v, b in enumerate(taken):
        n = counts[v] if v < len(counts) else sum(taken[u] for u in range(v) if parent[u] == v)
        total *= math.comb(n, b) * weights[v] ** (n - b) * Fraction(math.factorial(n), math.factorial(b))
    return total


def test_a_table_that_is_no_tree_is_seen() -> None:
    assert tree_of(np.array(LINE)) is None
    assert tree_of(np.array([[0, 7], [7, 0]])) is not None


# ---- double precision against exact numbers -----------------------------------------------------------

LARGER = [(4, 3, 2), (30, 3, 5), (1000, 4, 6), (2, 2, 2, 2), (12, 1, 1, 9)]


@pytest.mark.parametrize("counts", LARGER, ids=str)
@pytest.mark.parametrize("gibbs", [False, True])
def test_a_drawn_flow_table_is_the_one_that_integers_give(counts: tuple[int, ...], gibbs: bool) -> None:
    kept = [staying(Fraction(2, 3), c) for c in counts] if gibbs and sum(counts) < 100 else None
    law = FlowLaw(counts, weighted(UNEVEN), kept)
    for number in range(12):
        drawn = law.draw(words_of(f"{counts} {number}"))
        assert drawn.tolist() == law.draw_exactly(words_of(f"{counts} {number}")).tolist()
        assert drawn.sum(axis=0).tolist() == drawn.sum(axis=1).tolist() == list(counts)


def tree_law(counts: Sequence[int], weight: Fraction = THIRD) -> TreeLaw:
    tree = tree_of(np.array(TREE)[: len(counts), : len(counts)])
    assert tree is not None
    return TreeLaw(counts, tree, tree.weights([weight**h for h in range(4)]))


@pytest.mark.parametrize("counts", [*LARGER, (100, 90, 20, 40)], ids=str)
@pytest.mark.parametrize("weight", ["1/3", "1/1000", "1", "0", "99/100"])
def test_the_counts_taken_up_a_tree_are_those_that_decimals_give(counts: tuple[int, ...], weight: str) -> None:
    if sum(counts) > 500:
        counts = (200, *counts[1:])  # decimals take their time
    law = tree_law(counts, Fraction(weight))
    for number in range(6):
        seed = f"{counts} {number}"
        assert law.draw_taken(words_of(seed)) == law.draw_taken_exactly(words_of(seed))


def test_where_double_precision_cannot_tell_exact_numbers_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    from stirred.mechanisms.swapping.flows import law as flow_law
    from stirred.mechanisms.swapping.flows import tree_law as tree_module

    laws: list[Any] = [FlowLaw((4, 3, 2), weighted(UNEVEN)), tree_law((5, 3, 4, 2))]
    usual = [[law.draw(words_of(str(n))).tolist() for n in range(10)] for law in laws]
    for module in (flow_law, tree_module):
        monkeypatch.setattr(module, "_CLOSE", 0.6)
    assert [[law.draw(words_of(str(n))).tolist() for n in range(10)] for law in laws] == usual


def test_decimals_that_cannot_tell_are_lengthened(monkeypatch: pytest.MonkeyPatch) -> None:
    from stirred.mechanisms.swapping.flows import tree_law as module

    law = tree_law((5, 3, 4, 2))
    usual = [law.draw_taken_exactly(words_of(str(n))) for n in range(6)]
    # With eleven digits the margin is a tenth: nearly nothing can be told at first.
    monkeypatch.setattr(module, "_DIGITS", 11)
    assert [law.draw_taken_exactly(words_of(str(n))) for n in range(6)] == usual


# ---- sampling -----------------------------------------------------------------------------------------

DRAWS = 8_000


def drawn(law: FlowLaw | TreeLaw, seed: str) -> list[tuple[int, ...]]:
    words = words_of(seed)
    return [tuple(law.draw(words).ravel().tolist()) for _ in range(DRAWS)]


def flat(law: dict[Table, Fraction]) -> dict[tuple[int, ...], Fraction]:
    return {tuple(f for row in flow for f in row): p for flow, p in law.items()}


@pytest.mark.parametrize("counts", [(3, 2), (2, 1, 2), (1, 2, 1, 1)], ids=str)
@pytest.mark.parametrize("steps", [LINE, TREE], ids=["line", "tree"])
def test_flow_tables_follow_their_law_and_a_weight_slightly_wrong_is_caught(
    counts: tuple[int, ...], steps: Any, p_value: PValue
) -> None:
    """Power: the weight of a step wrong by one part in four."""
    law = flat(conditioned(counts, weighted(steps)))
    assert fit(drawn(FlowLaw(counts, weighted(steps)), f"flow {counts}"), law, p_value) > FALSE_ALARM
    near = weighted(steps, THIRD * Fraction(5, 4))
    assert fit(drawn(FlowLaw(counts, near), f"near {counts}"), law, p_value) < FALSE_ALARM


@pytest.mark.parametrize("counts", [(2, 1, 2), (1, 2, 1, 1), (2, 2, 1)], ids=str)
def test_flow_tables_by_a_tree_follow_the_same_law(counts: tuple[int, ...], p_value: PValue) -> None:
    law = flat(conditioned(counts, weighted(TREE)))
    assert fit(drawn(tree_law(counts), f"tree {counts}"), law, p_value) > FALSE_ALARM
    assert fit(drawn(tree_law(counts, THIRD * Fraction(5, 4)), f"near {counts}"), law, p_value) < FALSE_ALARM


@pytest.mark.parametrize("own", ["1/2", "3"])
def test_flow_tables_under_gibbs_weights_follow_their_law(own: str, p_value: PValue) -> None:
    counts = (3, 1, 2)

    def pair(a: int, b: int) -> Fraction:
        return Fraction(own) if a == b else weighted(LINE, HALF)(a, b)

    law = flat(gibbs(counts, pair))
    kept = [staying(Fraction(own), count) for count in counts]
    assert fit(drawn(FlowLaw(counts, pair, kept), f"gibbs {own}"), law, p_value) > FALSE_ALARM
    assert fit(drawn(FlowLaw(counts, pair), f"free {own}"), law, p_value) < FALSE_ALARM, "vacuous moves are not free"


def test_a_tree_and_the_sum_over_all_flow_tables_agree_in_larger_strata(p_value: PValue) -> None:
    """Counts (6, 5, 4): how many records of the first value move, by both samplers."""
    counts = (6, 5, 4)
    by_sums, by_tree = FlowLaw(counts, weighted(TREE)), tree_law(counts)
    words = words_of("agree")
    first = np.bincount([6 - int(by_sums.draw(words)[0, 0]) for _ in range(4_000)], minlength=7)
    second = np.bincount([6 - int(by_tree.draw(words)[0, 0]) for _ in range(4_000)], minlength=7)
    pooled = (first + second)[(first + second) > 20]
    assert pooled.size > 3
    kept = (first + second) > 20
    gap = float(((first - second)[kept] ** 2 / (first + second)[kept]).sum())
    assert gap < 40, "chi-squared with at most 6 degrees of freedom: 1e-6 is at 38.3 for 7"


# ---- expected moves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(3, 2), (2, 1, 2), (1, 2, 1, 1)], ids=str)
def test_expected_moves_are_those_of_the_law(counts: tuple[int, ...]) -> None:
    law, exact_law = FlowLaw(counts, weighted(UNEVEN)), conditioned(counts, weighted(UNEVEN))
    each = [float(sum(p * (c - flow[v][v]) for flow, p in exact_law.items())) for v, c in enumerate(counts)]
    assert [law.expected_moves(v) for v in range(len(counts))] == pytest.approx(each, rel=1e-12)
    assert law.expected_moves() == pytest.approx(sum(each), rel=1e-12)


@pytest.mark.parametrize("counts", [(2, 1, 2), (1, 2, 1, 1), (6, 5, 4, 3)], ids=str)
def test_expected_moves_by_a_tree_are_those_of_the_sum_over_all_flow_tables(counts: tuple[int, ...]) -> None:
    law, by_tree = FlowLaw(counts, weighted(TREE)), tree_law(counts)
    each = [law.expected_moves(v) for v in range(len(counts))]
    assert [by_tree.expected_moves(v) for v in range(len(counts))] == pytest.approx(each, rel=1e-6)
    assert by_tree.expected_moves() == pytest.approx(sum(each), rel=1e-6)


def flows_by(steps: Any, weight: Fraction = THIRD) -> Flows:
    table = np.array(steps)
    floats = float(weight) ** table.astype(np.float64)

    def of(codes: npt.NDArray[np.int64]) -> Any:
        return table[codes[:, None], codes]

    powers = [weight**h for h in range(8)]
    return Flows(weighted(steps, weight), lambda c: floats[c[:, None], c], steps=of, powers=powers)


@pytest.mark.parametrize("times", [1, 3])
def test_expected_moves_of_larger_strata_are_what_draws_show(times: int) -> None:
    """By the derivative up to a thousand records, by the peak above."""
    flows = flows_by(TREE)
    values, counts = [0, 1, 2, 3], [120 * times, 80 * times, 100 * times, 90 * times]
    assert not summable(counts)
    words = words_of("peak")
    found = np.mean(
        [
            np.array(counts) - np.diag(flows.draw(np.arange(4, dtype=np.uint32), np.array(counts), words))
            for _ in range(300)
        ],
        axis=0,
    )
    assert flows.expected_moves(values, counts) == pytest.approx(found.tolist(), rel=0.05)


def test_large_strata_beyond_a_tree_are_drawn_by_sums() -> None:
    """A tree would take minutes here, and has more roundings than its margin covers."""
    flows, counts = flows_by(TREE), np.array([200_000, 3, 2, 2])
    assert summable(counts.tolist())
    assert flows._by_tree([0, 1, 2, 3], counts.tolist()) is None
    assert flows._by_tree([0, 1, 2, 3], [2_000, 3, 2, 2]) is not None
    flow = flows.draw(np.arange(4, dtype=np.uint32), counts, words_of("large"))
    assert flow.sum(axis=0).tolist() == flow.sum(axis=1).tolist() == counts.tolist()


@pytest.mark.parametrize("far", [1, 75])
def test_weights_far_from_1_are_drawn_as_by_integers(far: int) -> None:
    """What is moved one way at 10^far comes back at its inverse: all tables count, far beyond the range of doubles."""
    weights = {(0, 1): Fraction(10) ** far, (1, 0): Fraction(1, 10**far)}
    own = [staying(Fraction(1, 2), 4)] * 2
    law, seen = FlowLaw([4, 4], lambda a, b: weights[a, b], own), set()
    for turn in range(60):
        flow = law.draw(words_of(f"far {turn}"))
        assert np.array_equal(flow, law.draw_exactly(words_of(f"far {turn}")))
        seen.add(int(flow[0, 1]))
    assert len(seen) > 2


# ---- the whole file -----------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [LINE, TREE], ids=["line", "tree"])
@pytest.mark.parametrize(("rows", "strata"), [(1, 1), (40, 1), (400, 70), (3000, 700)])
def test_the_flow_kernel_equals_its_twin(steps: Any, rows: int, strata: int) -> None:
    rng = np.random.default_rng(rows + strata)
    stratum = rng.integers(0, strata, rows).astype(np.uint32)
    swap = rng.integers(0, 4, rows).astype(np.uint32)
    live = rng.random(strata) < 0.8
    flows, entropy = flows_by(steps), Entropy.from_seed(f"flow {rows}")
    expected, tally = swap_flow_reference(
        stratum.tolist(), swap.tolist(), live=live.tolist(), flows=flows, entropy=entropy
    )
    for threads in (1, 3):
        swapped = swap.copy()
        found = swap_flow_in_place(stratum, swapped, live=live, values=4, flows=flows, entropy=entropy, threads=threads)
        assert swapped.tolist() == expected
        assert found == tally
    untouched = ~live[stratum]
    assert (swapped[untouched] == swap[untouched]).all()
