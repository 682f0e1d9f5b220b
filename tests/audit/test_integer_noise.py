"""Counts with integer noise of infinite support, audited through their shift laws."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from stirred.audit import AuditVerdict, FiniteMechanism, ShiftWitness, audit
from stirred.spec import catalogue
from stirred.spec.exact import INFINITE, exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.output_premetric import GDP, PURE, TOTAL_VARIATION, ZCDP, OutputPremetric, approximate
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise, ShiftLaw

PROMISE = catalogue.load("pure-dp").specification
# All files of up to three records of two kinds.
FILES: list[Hashable] = [tuple((kind,) for kind in kinds) for n in range(4) for kinds in product("ab", repeat=n)]
SAME_SIZE: list[Hashable] = [file for file in FILES if len(file) == 3]  # type: ignore[arg-type]


@dataclass(frozen=True)
class Histogram:
    """The number of records of each kind, each with noise: adding a record changes one number by one."""

    noise: Noise

    def __call__(self, dataset: Any) -> ShiftLaw:
        return ShiftLaw([sum(row == (kind,) for row in dataset) for kind in "ab"], self.noise)


@dataclass(frozen=True)
class Total:
    """The number of records of one kind, with noise."""

    noise: Noise

    def __call__(self, dataset: Any) -> ShiftLaw:
        return ShiftLaw(sum(row == ("a",) for row in dataset), self.noise)


@dataclass(frozen=True)
class Inside:
    """The number of records of each kind, with noise that leaves their sum alone."""

    noise: Noise

    def __call__(self, dataset: Any) -> ShiftLaw:
        counts = [sum(row == (kind,) for row in dataset) for kind in "ab"]
        return ShiftLaw(counts, self.noise, fixed=[(0, 1)])


def promising(function: Any, premetric: OutputPremetric, budget: str, *, bounded: bool = False) -> FiniteMechanism:
    distance = InputPremetric(name="d_HamS" if bounded else "d_SymDiff", unit="record")
    # Approximate DP is no metric: it is promised for neighbours.
    distance = distance.neighbours() if premetric.delta else distance
    promise = PROMISE.with_flavor(output_premetric=premetric, input_premetric=distance)
    return FiniteMechanism(
        function=function, datasets=SAME_SIZE if bounded else FILES, promise=promise.with_budget(budget)
    )


RIGHT = {
    "geometric histogram, unbounded": promising(Histogram(DiscreteLaplace("1/4")), PURE, "1/4"),
    "geometric histogram, one record changes two numbers": promising(
        Histogram(DiscreteLaplace("1/4")), PURE, "1/2", bounded=True
    ),
    "geometric total": promising(Total(DiscreteLaplace("ln(3)")), PURE, "ln(3)", bounded=True),
    # rho squared 1/(2 variance) for one number, twice that where two change
    "gaussian histogram, unbounded": promising(Histogram(DiscreteGaussian(8)), ZCDP, "1/16"),
    "gaussian histogram, bounded": promising(Histogram(DiscreteGaussian(8)), ZCDP, "1/8", bounded=True),
    "geometric total under zCDP": promising(Total(DiscreteLaplace("ln(3)")), ZCDP, "0.5494"),
    "geometric noise inside": promising(Inside(DiscreteLaplace("1/4")), PURE, "1/2", bounded=True),
    "gaussian noise inside": promising(Inside(DiscreteGaussian(8)), ZCDP, "1/8", bounded=True),
    "gaussian total at delta": promising(Total(DiscreteGaussian(4)), approximate("1/100"), "0.9079"),
    "gaussian total in total variation": promising(Total(DiscreteGaussian(4)), TOTAL_VARIATION, "0.19948"),
}
# The same with noise one step of the scale too small for the promise.
FAULTS = {
    "geometric scale 3 sold as 4": promising(Histogram(DiscreteLaplace("1/3")), PURE, "1/4"),
    "bounded sold as unbounded": promising(Histogram(DiscreteLaplace("1/4")), PURE, "1/4", bounded=True),
    "gaussian variance 7 sold as 8": promising(Histogram(DiscreteGaussian(7)), ZCDP, "1/16"),
    "gaussian noise sold as pure": promising(Total(DiscreteGaussian(100)), PURE, "10"),
    "geometric noise inside, scale 3 sold as 4": promising(Inside(DiscreteLaplace("1/3")), PURE, "1/2", bounded=True),
    "gaussian noise inside, variance 7 sold as 8": promising(Inside(DiscreteGaussian(7)), ZCDP, "1/8", bounded=True),
    "gaussian noise inside sold as pure": promising(Inside(DiscreteGaussian(100)), PURE, "10", bounded=True),
    "a sum that is kept, sold beyond its universe": promising(Inside(DiscreteLaplace("1/4")), PURE, "10"),
    "geometric total under zCDP": promising(Total(DiscreteLaplace("ln(3)")), ZCDP, "0.5493"),
    "gaussian total at delta, variance 3 sold as 4": promising(
        Total(DiscreteGaussian(3)), approximate("1/100"), "0.98"
    ),
    "gaussian total in total variation": promising(Total(DiscreteGaussian(4)), TOTAL_VARIATION, "0.19946"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_noise_of_the_right_scale_keeps_its_promise(name: str) -> None:
    result = audit(RIGHT[name])
    assert result.verdict is AuditVerdict.PASSED, result.in_words
    assert result.orders > 0


@pytest.mark.parametrize("name", FAULTS)
def test_noise_one_step_too_small_is_caught_with_a_witness(name: str) -> None:
    mechanism = FAULTS[name]
    result = audit(mechanism)
    assert result.verdict is AuditVerdict.FAILED, result.in_words
    witness = result.witness
    assert isinstance(witness, ShiftWitness)
    here, there = mechanism.law(witness.dataset), mechanism.law(witness.other)
    assert isinstance(here, ShiftLaw)
    assert isinstance(there, ShiftLaw)
    assert witness.log_ratio == here.log_ratio(there, witness.output)
    assert "is likelier from the dataset" in result.in_words


def test_the_loss_of_geometric_noise_is_exact_and_that_of_gaussian_noise_too() -> None:
    assert audit(RIGHT["geometric histogram, unbounded"]).loss.high == exact("1/4")
    gaussian = audit(RIGHT["gaussian histogram, bounded"]).loss
    assert gaussian.is_exact
    assert gaussian.high == exact("1/8")


def test_the_witness_against_a_pure_promise_of_gaussian_noise_exceeds_it() -> None:
    result = audit(FAULTS["gaussian noise sold as pure"])
    assert result.loss.low.is_infinite
    witness = result.witness
    assert isinstance(witness, ShiftWitness)
    assert witness.distance is not None
    assert witness.log_ratio > witness.distance * 10


def test_noise_that_keeps_the_row_order_of_its_input_is_caught() -> None:
    """The number released is the position of the first record of a kind, with noise."""

    def first(dataset: Any) -> ShiftLaw:
        return ShiftLaw(next((i for i, row in enumerate(dataset) if row == ("a",)), 0), DiscreteLaplace("1/100"))

    result = audit(promising(first, PURE, "1"))
    assert result.verdict is AuditVerdict.FAILED
    assert "the same records in another order" in result.in_words


def test_a_scale_that_depends_on_the_row_order_is_caught() -> None:
    """The listed files are all in one order, and only another order of the same records has the other scale."""

    def scaled(dataset: Any) -> ShiftLaw:
        return ShiftLaw(len(dataset), DiscreteLaplace("1/2" if list(dataset) == sorted(dataset) else "1/3"))

    mechanism = promising(scaled, PURE, "10")
    files = [file for file in FILES if list(file) == sorted(file)]  # type: ignore[call-overload]
    result = audit(replace(mechanism, datasets=files))
    assert result.verdict is AuditVerdict.FAILED
    assert result.loss.low.is_infinite


def test_a_scale_that_depends_on_the_row_order_in_spelling_only_keeps_its_promise() -> None:
    def scaled(dataset: Any) -> ShiftLaw:
        return ShiftLaw(len(dataset), DiscreteLaplace("ln(4)" if list(dataset) == sorted(dataset) else "2*ln(2)"))

    assert audit(promising(scaled, PURE, "ln(4)")).passed


def test_a_scale_that_depends_on_the_data_is_caught() -> None:
    def local(dataset: Any) -> ShiftLaw:
        return ShiftLaw(len(dataset), DiscreteLaplace(Fraction(1, 2 + len(dataset))))

    result = audit(promising(local, PURE, "100"))
    assert result.verdict is AuditVerdict.FAILED
    assert result.loss.low == INFINITE


def test_what_is_only_bounded_from_below_is_not_certified_and_can_still_be_refuted() -> None:
    """Gaussian DP of discrete Gaussian noise: mu is about 1/sigma, and no upper bound is proven here."""
    noise = Total(DiscreteGaussian(100))
    assert audit(promising(noise, GDP, "1/9", bounded=True)).verdict is AuditVerdict.CANNOT_TELL
    assert audit(promising(noise, GDP, "1/11", bounded=True)).verdict is AuditVerdict.FAILED


def test_noise_that_claims_nothing_gives_no_dataset_away_with_certainty() -> None:
    unclaimed = FiniteMechanism(function=Total(DiscreteGaussian(1)), datasets=FILES)
    result = audit(unclaimed)
    assert result.passed
    assert "no single output gives the dataset away, and yet the loss has no bound" in result.in_words


def test_a_sum_that_the_noise_keeps_gives_files_of_other_sums_away() -> None:
    result = audit(promising(Inside(DiscreteGaussian(8)), ZCDP, "10"))
    assert result.loss.low.is_infinite
    assert result.witness is not None
    assert result.witness.is_certain


def test_noise_that_keeps_sums_is_not_judged_by_a_distance_without_a_theorem() -> None:
    with pytest.raises(StirredError, match="noise that keeps sums is not compared under D_TV"):
        audit(promising(Inside(DiscreteGaussian(8)), TOTAL_VARIATION, "1", bounded=True))
