"""Universes that overlap, budgets that follow for finer ones, and noise that is scaled universe by universe."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from stirred.spec import PURE, Budget, InputPremetric, Law, Multiverse, Specification, approximate, catalogue, exact
from stirred.spec.budget import ByUniverse
from stirred.spec.implication import OverlappingUniverses, completion, implied_budget, implies, laplace_scale
from stirred.spec.problems import SpecificationError

ANSWERS = {"a": (0,), "b": (1,), "c": (11,)}


def promise(*universes: str, budgets: dict[str, Any] | None = None, far: Any = None) -> Specification:
    """Return pure DP on letters with these universes; all pairs are 1 apart unless a table says otherwise."""
    pure = catalogue.load("pure-dp").specification
    letters = sorted({*"".join(universes)})
    table = far or tuple((x, y, exact(1)) for x in letters for y in letters if x < y)
    own = pure.with_flavor(
        multiverse=Multiverse(universes=tuple(map(frozenset, universes))),
        input_premetric=InputPremetric(name="d_Given", relation="listed", unit="record", table=table),
    )
    listed = tuple((", ".join(sorted(u)), exact((budgets or {}).get(u, 1))) for u in universes)
    return replace(own, budget=Budget(policy=ByUniverse(budgets=listed)))


def test_budgets_of_finer_universes_are_the_least_of_those_that_hold_them() -> None:
    stated = promise("abc", "ab", budgets={"ab": "0.3"})
    found = implied_budget(stated, Multiverse(universes=(frozenset("ab"), frozenset("bc"), frozenset("cd"))), "abcd")
    assert [str(value) for value in found.values()] == ["3/10", "1", "inf"]
    assert stated.multiverse.refines(Multiverse(universes=(frozenset("abc"),)))  # one coarsens the other
    assert not Multiverse(universes=(frozenset("abc"),)).refines(promise("ab", "bc").multiverse)


def test_the_completion_promises_the_same_whatever_the_distances() -> None:
    far = (
        ("a", "b", exact(1)),
        ("b", "c", exact(5)),
        ("a", "c", exact(1)),
        ("d", "d", exact(0)),
    )  # no triangle inequality
    for stated in (promise("abc", "bcd", far=far), promise("abcd", far=(("a", "b", exact(1)), ("c", "d", exact(2))))):
        complete = completion(stated, "abcd")
        assert implies(stated, complete, "abcd")
        assert implies(complete, stated, "abcd")


def test_overlapping_universes_have_no_scale_of_their_own() -> None:
    with pytest.raises(OverlappingUniverses, match="several scales"):
        laplace_scale(promise("ab", "bc"), ANSWERS.__getitem__, "abc")
    scales = [laplace_scale(promise(pair), ANSWERS.__getitem__, pair).popitem()[1] for pair in ("ab", "bc")]
    assert [str(scale) for scale in scales] == ["1", "10"]
    # b drawn with the scale of its other universe: densities at 20, and the chance of more than 20.
    at_b, at_a = math.log(1 / 20) - 19 / 10, math.log(1 / 2) - 20
    assert at_b - at_a == pytest.approx(15.797, abs=5e-4)
    assert pytest.approx(18.1) == -1.9 - -20.0


def test_disjoint_universes_may_have_scales_of_their_own() -> None:
    apart = promise("ab", "cd", budgets={"cd": "1/2"})
    found = laplace_scale(apart, {**ANSWERS, "d": (14,)}.__getitem__, "abcd")
    assert [str(found[frozenset(pair)]) for pair in ("ab", "cd")] == ["1", "6"]
    none = promise("ab", budgets={"ab": 0})
    assert laplace_scale(none, ANSWERS.__getitem__, "ab")[frozenset("ab")].is_infinite
    assert laplace_scale(promise("a", far=(("a", "b", exact(1)),)), ANSWERS.__getitem__, "a")[frozenset("a")] == 0
    with pytest.raises(SpecificationError, match="D_Mult"):
        laplace_scale(promise("ab").with_flavor(output_premetric=approximate("0.1")), ANSWERS.__getitem__, "ab")


@pytest.mark.parametrize(("delta", "wanted"), [("0", 0.916291), ("0.05", 0.810930), ("0.1", 0.693147), ("0.3", 0.0)])
def test_the_loss_beyond_delta(delta: str, wanted: float) -> None:
    p, q = (Law(dict(zip("xyz", map(Fraction, own), strict=True)))
            for own in (("0.5", "0.3", "0.2"), ("0.2", "0.3", "0.5")))  # fmt: skip
    found = (approximate(Fraction(delta)) if Fraction(delta) else PURE).distance(p, q)
    assert float(found.high) == pytest.approx(wanted, abs=5e-7)
