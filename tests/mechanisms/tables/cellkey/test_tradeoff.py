"""The trade-off of epsilon and delta: against closed forms, and against enumeration of all keys of small files."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from stirred.audit.exhaustive import audit
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.tables.cellkey.design import design_ptable
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.cellkey.plan import SmallTables
from stirred.mechanisms.tables.cellkey.ptable import KeyTradeOff, PTable, PTableRow, hockey_stick
from stirred.spec import InputPremetric, exact, ln

F = Fraction
NARROW = design_ptable(D=2, V=F("0.9")).table
WIDE = design_ptable(D=5, V=F(3), js=2).table
# Noise -1, 0, 0, +1 by four keys, for every count above 0.
FOUR = PTable(rows=tuple(PTableRow(count=n, values=(-1, 0, 1), weights=(1, 2, 1)) for n in (1, 2)), keys=4)


@pytest.mark.parametrize(
    ("table", "least", "expected"),
    [
        (NARROW, 1, [0.429638, 0.277515, 0.222383, 0.051546, 0.051546]),
        (NARROW, 2, [0.409277, 0.217669, 0.155245, 0.051546, 0.051546]),
        (WIDE, 1, [0.345091, 0.209173, 0.054485, 0.020147, 0.020147]),
        (WIDE, 8, [0.228801, 0.071584, 0.017269, 0.003792, 0.003792]),
        (NARROW, 0, [0.6375] * 5),
        (WIDE, 0, [0.345091, 0.26553, 0.26553, 0.26553, 0.26553]),
    ],
)
def test_delta_of_one_cell(table: PTable, least: int, expected: list[float]) -> None:
    trade = KeyTradeOff(table=table, least=least)
    assert [float(trade.delta(exact(e))) for e in ("0", "1/2", "1", "2", "30")] == pytest.approx(expected, abs=1e-6)


def test_delta_of_two_independent_cells_is_that_of_their_joint_law() -> None:
    two = KeyTradeOff(table=NARROW, tables=2, keyed_by="definition", least=2)  # T17
    assert [float(two.delta(exact(e))) for e in (0, 1, 2)] == pytest.approx([0.516425, 0.294025, 0.154097], abs=1e-6)
    ten = KeyTradeOff(table=WIDE, tables=10, keyed_by="definition", least=8)
    # Beyond three cells epsilon is shared out, which bounds 1 - (1 - delta)^10 = .037278 from above.
    assert 0.037278 <= float(ten.delta(exact(40))) < 0.038


def test_outputs_clipped_to_what_both_counts_can_show_have_a_finite_pure_loss() -> None:
    # T15: with V = 1, universes of n and n + 1, clipped to n - 1 .. n + 2: ln(1 + p_1 / p_2) = 1.575604.
    table = design_ptable(D=2, V=F(1)).table

    def clipped(n: int) -> dict[int, Fraction]:
        found: dict[int, Fraction] = {}
        for count, mass in table.law(n).items():
            kept = min(max(count, 9), 12)
            found[kept] = found.get(kept, F(0)) + mass
        return found

    one, other = clipped(10), clipped(11)
    worst = max(max(one[t] / other[t], other[t] / one[t]) for t in one)
    assert float(ln(worst).enclose().low) == pytest.approx(1.575604, abs=1e-5)


def small(*variables: Sequence[int], keyed_by: Any = "records", additive: bool = False) -> SmallTables:
    return SmallTables(table=FOUR, variables=variables, values="ab", keyed_by=keyed_by, additive=additive)


def divergence(tables: SmallTables, one: list[Any], other: list[Any], factor: Fraction) -> Fraction:
    return hockey_stick(tables.law(one).probabilities, tables.law(other).probabilities, factor)


def test_additive_keys_of_a_union_show_more_than_independent_noise() -> None:
    # T16: the cells A and B of a table and their union in another, one record more in A.
    one, other = [("a",), ("b",)], [("a",), ("a",), ("b",)]
    factors = [F(1), F(2), F(3), F(10**9)]
    by_sum = small([0], [], additive=True)
    assert [divergence(by_sum, one, other, f) for f in factors] == [F(5, 8), F(9, 16), F(9, 16), F(9, 16)]
    independent = small([0], [], keyed_by="definition")
    assert [divergence(independent, one, other, f) for f in factors] == [F(5, 8), F(9, 16), F(1, 2), F(7, 16)]


def test_the_same_set_with_the_same_noise_tells_that_a_record_is_there() -> None:
    # C and C with one record more: without it the two cells are one set and show the same.
    one, other = [("a", "a")], [("a", "a"), ("a", "b")]
    nested = small([0], [0, 1])
    tie = KeyTradeOff(table=FOUR, tables=2).common(1)
    assert 1 - tie == F(3, 4)  # T16
    # Here the cell of the record alone goes from 0 to 1 besides, and is shown as 0 in one of four cases.
    assert {divergence(nested, one, other, f) for f in (F(1), F(50))} == {1 - tie * F(1, 4)}
    leak = [1 - KeyTradeOff(table=t).common(n) for t, n in ((NARROW, 2), (WIDE, 8))]
    assert [float(each) for each in leak] == pytest.approx([0.775288, 0.850745], abs=1e-6)


@pytest.mark.parametrize("keyed_by", ["records", "definition"])
@pytest.mark.parametrize("variables", [[["x"]], [["x"], ["y"]], [["x"], ["x", "y"]]])
@pytest.mark.parametrize("zeros", ["protected", "fixed"])
def test_no_pair_of_small_files_loses_more_than_promised(keyed_by: Any, variables: list[list[str]], zeros: str) -> None:
    mechanism = CellKey(ptable=FOUR, tables=variables, keyed_by=keyed_by, zeros=zeros, epsilon="ln(2)")
    assert audit(mechanism).passed


def test_an_understated_delta_is_found() -> None:
    mechanism = CellKey(ptable=FOUR, tables=[["x"], ["y"]], epsilon="ln(2)")
    promise = mechanism.audit_specification([])
    universe = mechanism.audit_universes()[0]
    delta = promise.output_premetric.delta
    worst = max(
        divergence(small([0], [1]), list(x), list(y), F(2))  # type: ignore[call-overload]
        for x, y in product(universe, repeat=2)
        if abs(len(x) - len(y)) == 1 and not ({*x} - {*y} and {*y} - {*x})  # type: ignore[arg-type, misc]
    )
    assert worst <= delta
    # Two tables that tie: attained by (a,b), (b,a) and the record (a,a) that both would show.
    tied = divergence(small([0], [1]), [("a", "b"), ("b", "a")], [("a", "a"), ("a", "b"), ("b", "a")], F(2))
    assert tied == 1 - KeyTradeOff(table=FOUR, tables=2).common(1) ** 2


def test_after_a_swap_the_pure_loss_is_that_of_the_swap() -> None:
    # T18: (2, 2) x (2, 2) at rate 1/2 loses ln(19/4) / 2, with cell keys or without.
    after = {"name": "permutation-swap", "swap": ["s"], "rate": "1/2"}
    both = CellKey(ptable=NARROW, tables=[["h", "s"]], after=after, epsilon=1)
    files = [((0, 0), (0, 0), (1, 1), (1, 1)), ((0, 1), (0, 1), (1, 0), (1, 0)), ((0, 0), (0, 1), (1, 0), (1, 1))]
    swap = PermutationSwap(match=[], swap=["s"], rate="1/2")
    pairs = [(x, y) for x, y in product(files, repeat=2) if x != y]
    alone = [_ratio(swap.law(x), swap.law(y)) for x, y in pairs]
    assert [_ratio(both.law(x), both.law(y)) for x, y in pairs] == alone
    distance = InputPremetric(name="d_HamS", unit="household").distance
    losses = [ln(ratio) / distance([*x], [*y]) for (x, y), ratio in zip(pairs, alone, strict=True)]
    assert max(losses) == ln(F(19, 4)) / 2


def _ratio(p: Any, q: Any) -> Fraction:
    assert {*p.probabilities} == {*q.probabilities}
    return max(mass / q[t] for t, mass in p.probabilities.items())


def test_only_delta_gains_from_cell_keys_after_a_swap() -> None:
    swap = PermutationSwap(match=[], swap=["s"], rate="1/2")
    both = CellKey(ptable=NARROW, tables=[["h", "s"]], after={"swap": ["s"], "rate": "1/2"})
    x, y = ((0, 0), (0, 0), (1, 1), (1, 1)), ((0, 1), (0, 1), (1, 0), (1, 0))
    deltas = []
    for law in (swap.law, both.law):
        deltas.append(hockey_stick(law(x).probabilities, law(y).probabilities, F(5, 4)))
    assert 0 < deltas[1] < deltas[0]
