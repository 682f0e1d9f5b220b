"""What goes wrong behind each gate: a claim, and what is really lost, as numbers that can be computed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Final

from stirred.spec.exact import exact
from stirred.survey.designs import SRSWOR, Cluster, Listed, Poisson, TwoStage, amp
from stirred.survey.programme import Law, Sample, programme_loss, worst_loss

HALF: Final = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A claim and the larger ``loss`` (or change of an estimate) that it hides; ``words`` say how it comes about."""

    refusal: str
    claim: float
    measure: Callable[[], float]
    words: str

    @property
    def loss(self) -> float:
        """Compute what is really lost."""
        return self.measure()


def _claim(epsilon: str | int, rate: Fraction) -> float:
    return float(amp(exact(epsilon), rate))


def _even(samples: Iterable[Sample]) -> Law:
    listed = list(samples)
    return {s: Fraction(1, len(listed)) for s in listed}


def _strata(first: list[str], takes: int, second: list[str], others: int) -> Law:
    """Return the law of a stratified sample of records."""
    return _even((*s, *t) for s in combinations(first, takes) for t in combinations(second, others))


def _sorted_list() -> float:
    # 1 becomes 4.5, and everybody between changes place; no sample of one list is closer than 2 to one of the other.
    before, after = (1, 2, 3, 4, 5, 6, 7, 8), (2, 3, 4, 4.5, 5, 6, 7, 8)
    return worst_loss(_even([before[::2], before[1::2]]), _even([after[::2], after[1::2]]), 0.5)


def _own_size() -> float:
    before, after = (Poisson.of_sizes(2, (z, 1, 1, 1, 1), total=z + 4) for z in (1, 4))
    laws: list[dict[Sample, Fraction]] = [{tuple((u, size) if u == 0 else u for u in s): p for s, p in design.samples()}
            for design, size in ((before, 1), (after, 4))]  # fmt: skip
    return worst_loss(laws[0], laws[1], 0.1, relation="edit")


def _neyman() -> float:
    rest = ["f", "g", "h", "i"]
    return worst_loss(_strata(["a", "b", "c", "d"], 2, rest, 2), _strata(["A", "b", "c", "d"], 0, rest, 4), 0.5)


def _moved_stratum() -> float:
    before = _strata(["a", "b", "c", "d"], 2, ["f", "g"], 1)
    return worst_loss(before, _strata(["b", "c", "d"], 1, ["A", "f", "g"], 2), 0.5)


def _fixed_takes() -> float:
    before = _strata(["a", "b", "c", "d"], 2, ["f", "g"], 1)
    return worst_loss(before, _strata(["b", "c", "d"], 2, ["A", "f", "g"], 1), 1.0)


def _moved_cluster() -> float:
    return worst_loss(_even([("a", "b"), ("c", "d")]), _even([("b",), ("A", "c", "d")]), 1.0, relation="edit")


def _realised_weight() -> float:
    # Laplace noise of scale (largest weight)/epsilon, which is 2 in one sample and 40 in its neighbour; ln of the
    # ratio of the densities at 100, both totals being 0.
    return abs((math.log(1 / 2) - 100 / 2) - (math.log(1 / 40) - 100 / 40))


_TAKES: Final = TwoStage(1, 2, (1, 2), (2, 3))
EXAMPLES: Final = (
    Counterexample("OrderFromRecords", 0.5, _sorted_list,
        "a list of 8 sorted by its records, every second drawn: one record that moves can cost 2 epsilon"),
    Counterexample("SizeTotalNotPublic", 0.1, _own_size,
        "of 5 units, one grows from size 1 to 4: with epsilon 0.1 the loss is above 0.1, for the chance of everybody "
        "falls"),
    Counterexample("AllocationFromData", 0.5, _neyman,
        "two strata of 4, n = 4 by Neyman's rule: one record changes the takes from 2, 2 to 0, 4, and the loss exceeds "
        "epsilon = 0.5"),
    Counterexample("AllocationFromData", _claim("1/2", Fraction(2, 3)), _moved_stratum,
        "strata of 4 and 2, takes 2 and 1: a unit that moves to the other stratum changes the takes to 1 and 2, and "
        "the loss exceeds that of the largest rate, 2/3"),
    Counterexample("AllocationFromData", _claim(1, HALF), _fixed_takes,
        "strata of 4 and 2, takes fixed at 2 and 1: a unit that moves to the other stratum leaves strata of 3 and 3; "
        "for epsilon 1 the loss is 0.857, not the 0.620 of the rate 1/2"),
    Counterexample("AllocationFromData", float(Cluster(m=1, M=2, K=3).loss(exact(1))), _moved_cluster,
        "one of two clusters is drawn: a unit that moves from one to the other changes both, and so every sample; the "
        "loss stays epsilon"),
    Counterexample("IncompatibleRelation", _claim(1, Fraction(3, 10)),
        lambda: programme_loss(Poisson(("0.3", "0.3")), 1.0, inner="substitute"),
        "a Poisson sample at 0.3 before a mechanism that publishes the size of the sample, as a guarantee for replaced "
        "records allows: the loss stays epsilon"),
    Counterexample("IncompatibleRelation", _claim(1, HALF),
        lambda: programme_loss(SRSWOR(2, 4), 1.0, inner="add-remove"),
        "2 of 4 drawn before a mechanism for added and removed records: replacing one is two steps, so epsilon counts "
        "twice"),
    Counterexample("IncompatibleRelation", float(_TAKES.loss(exact(1))),
        lambda: programme_loss(_TAKES, 1.0, inner="substitute"),
        "one of two clusters, 1 of 2 units from one and 2 of 3 from the other: samples of different size are not "
        "compared by a guarantee for replaced records, which leaves amplification by the second stage alone"),
    Counterexample("NoAmplification", _claim(1, Fraction(1, 10)),
        lambda: worst_loss({("a",): Fraction(1)}, {("b",): Fraction(1)}, 1.0),
        "somebody who knows that a unit was drawn, or sees the records after the draw, faces epsilon and not the "
        "smaller loss"),
    Counterexample("NoAmplification", float(amp(amp(exact(1), Fraction(1, 10)), HALF)),
        lambda: programme_loss(SRSWOR(1, 10), 1.0),
        "1 of 10 drawn from a frame that has half of the population: a unit that is known to be on the frame loses "
        "0.159 for epsilon 1, not 0.083"),
    Counterexample("UnverifiedAmplification", _claim(1, Fraction(1, 5)), lambda: programme_loss(Poisson(("0.6",)), 1.0),
        "response assumed at 0.2 and in truth 0.6 for one unit: the claim for epsilon 1 is 0.296, the loss 0.709"),
    Counterexample("UnsupportedDesign", _claim(1, HALF),
        lambda: programme_loss(Listed((((0, 1), HALF), ((2, 3), HALF))), 1.0),
        "samples {1, 2} and {3, 4}, each with probability 1/2: every unit has probability 1/2, and the loss is that of "
        "a cluster of 2, not that of a simple sample"),
    Counterexample("UnsupportedDesign", _claim(1, Fraction(1, 3)), lambda: programme_loss(Cluster(m=1, M=3, K=2), 1.0),
        "households of up to 2 drawn as 1 of 3, persons protected: the loss is that of a cluster of 2"),
    Counterexample("SharedSampleError", _claim(1, Fraction(1, 10)) + _claim(2, Fraction(1, 10)),
        lambda: programme_loss(SRSWOR(1, 10), 3.0),
        "two releases with losses 1 and 2 from one sample at 1/10: amplified and added they seem to cost 0.653, and "
        "cost 1.068"),
    Counterexample("WeightsNotFixed", 10.0, lambda: 100 * (1 / 10) + 100 * (1 / 11),
        "two post-strata of 100, 10 sampled in each: a record that moves changes both weights, and the total by 19.1 "
        "instead of the largest weight, 10"),
    Counterexample("DataDependentSensitivity", 1.0, _realised_weight,
        "noise scaled to the largest weight of the sample, 2 here and 40 in a neighbouring sample: at a published 100 "
        "the loss is above 44 for epsilon 1"),
    Counterexample("UnboundedValues", 40.0, lambda: 40.0 * 10**9,
        "one income of a billion with weight 40 changes the total by 40 billion: no noise chosen before hides it"),
    Counterexample("NotSeparable", 1.0, lambda: float(max(
        abs(sum(max(given) if y is None else y for y in (*given, None, None, None))
            - sum(max(other) if y is None else y for y in (*other, None, None, None)))
        for given in product((0, 1), repeat=4) for other in product((0, 1), repeat=4)
        if sum(a != b for a, b in zip(given, other, strict=True)) == 1)),
        "4 answers of 0 or 1, and 3 records that get a copy of the largest: one answer moves the sum by 4, not by 1"),
    Counterexample("EmptyCell", 100.0, lambda: math.inf,
        "a post-stratum with one member: it moves, and the mean of nothing is to be multiplied"),
)  # fmt: skip
