"""Each closed form is the largest loss over all inner mechanisms, found by linear programmes; gates say what breaks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from stirred.spec.exact import exact
from stirred.spec.problems import SpecificationError, StirredError
from stirred.survey import refusals
from stirred.survey.amplify import amplify, deamplify
from stirred.survey.attackers import attackers, posterior_ratio
from stirred.survey.counterexamples import EXAMPLES
from stirred.survey.designs import (
    PPS,
    SRSWOR,
    SRSWR,
    Cluster,
    Design,
    Listed,
    Poisson,
    Stratified,
    Systematic,
    TwoStage,
    design_from,
)
from stirred.survey.programme import Law, programme_loss, worst_loss
from stirred.survey.refusals import SurveyRefusal
from stirred.survey.sensitivity import ht_sensitivity, poststrat_sensitivity
from stirred.survey.settings import Setting

HALF = Fraction(1, 2)


def lost(epsilon: Any, design: Design, **claimed: Any) -> float:
    return float(amplify(epsilon, design, **claimed).epsilon)


# Random designs as small as the programme likes, with a seed: the same ones in every run.
def _simple(draw: random.Random) -> Design:
    N = draw.randint(2, 6)
    return SRSWOR(draw.randint(1, N), N)


def _replaced(draw: random.Random) -> Design:
    return SRSWR(draw.randint(1, 3), draw.randint(2, 4))


def _sized(draw: random.Random) -> Design:
    sizes = [draw.randint(1, 5) for _ in range(draw.randint(2, 4))]
    return PPS(draw.randint(1, 3), tuple(Fraction(z, sum(sizes)) for z in sizes))


def _poisson(draw: random.Random) -> Design:
    return Poisson(tuple(Fraction(draw.randint(1, 9), 10) for _ in range(draw.randint(1, 4))))


def _strata(draw: random.Random) -> Design:
    N = [draw.randint(1, 4) for _ in range(2)]
    return Stratified(tuple(draw.randint(1, size) for size in N), tuple(N))


def _cluster(draw: random.Random) -> Design:
    M = draw.randint(2, 5)
    if draw.random() < 0.3:
        sizes = [draw.randint(1, 5) for _ in range(draw.randint(2, 4))]
        return Cluster(pi=tuple(Fraction(z, sum(sizes)) for z in sizes), K=draw.randint(1, 4))
    return Cluster(m=draw.randint(1, M), M=M, K=draw.randint(1, 3))


def _systematic(draw: random.Random) -> Design:
    return Systematic(draw.randint(2, 4), draw.randint(3, 7), draw.choice(["known", "random"]))


def _two_stage(draw: random.Random) -> Design:
    M = draw.randint(2, 3)
    if draw.random() < 0.5:
        size = draw.randint(1, 3)
        return TwoStage(draw.randint(1, M), M, draw.randint(1, size), size)
    sizes = tuple(draw.randint(1, 3) for _ in range(M))
    return TwoStage(1, M, tuple(draw.randint(1, size) for size in sizes), sizes)


MAKERS: list[Callable[[random.Random], Design]] = [
    _simple, _replaced, _sized, _poisson, _strata, _cluster, _systematic, _two_stage
]  # fmt: skip


def _closed_form_and_programme(maker: Callable[[random.Random], Design], seed: int) -> tuple[Design, float, float]:
    draw = random.Random(f"{maker.__name__} {seed}")
    design, epsilon = maker(draw), Fraction(draw.randint(1, 30), 20)
    return design, lost(epsilon, design), programme_loss(design, float(epsilon))


@pytest.mark.parametrize("maker", MAKERS)
def test_closed_forms_are_the_largest_loss_over_all_inner_mechanisms(maker: Callable[[random.Random], Design]) -> None:
    for seed in range(25):  # 200 designs in all
        design, formula, programme = _closed_form_and_programme(maker, seed)
        if isinstance(design, TwoStage) and len({*zip(design.takes, design.sizes, strict=True)}) > 1:
            assert programme <= formula + 1e-8, design  # the largest take need not be that of the largest share
        else:
            assert programme == pytest.approx(formula, abs=1e-8), design
