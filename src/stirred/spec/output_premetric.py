"""How change is measured: the distance between output laws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Annotated, ClassVar, Final

from stirred.spec.block import Block
from stirred.spec.enclosure import Enclosure
from stirred.spec.exact import INFINITE, ZERO, Exact, add_up, exact, largest, ln, sqrt
from stirred.spec.given_numbers import probability
from stirred.spec.law import Law, likelihood_pairs
from stirred.spec.normal import normal_quantile
from stirred.spec.number_text import small
from stirred.spec.problems import unknown_name, wrong
from stirred.spec.renyi import normalised_renyi, renyi
from stirred.spec.shift_law import OutputLaw
from stirred.spec.tradeoff import MOST_STEPS, TradeOff

SUM: Final = "sum"
ROOT: Final = "root of sum of squares"
PRODUCT: Final = "product of one plus each"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind; ``composes`` says how the customary numbers of fresh releases combine.

    ``metric`` says that the triangle inequality holds, ``infinite_on_disjoint`` that laws without a common outcome are
    infinitely far apart, ``immune`` that no function of the output increases the distance (Proposition 2.5.4).
    """

    measured: str  # in what, in everyday words
    words: str
    classic: str
    parameter: str  # the customary number a budget is stored and shown in
    greek: str
    metric: bool
    composes: str
    infinite_on_disjoint: bool
    immune: bool = True
    at_most_one: bool = False


KINDS: Final = {
    "D_Mult": Kind(
        "odds",
        "largest factor by which the probability of any output can change, as its logarithm",
        "pure differential privacy", "epsilon", "ε", True, SUM, True,
    ),
    "D_Max": Kind(
        "odds, one way",
        "largest factor by which an output is more probable under the first dataset than under the second, as its "
        "logarithm",
        "one-sided or asymmetric differential privacy", "epsilon", "ε", True, SUM, True,
    ),
    "D_Mult^delta": Kind(
        "probabilities, by a factor and delta",
        "logarithm of the smallest factor such that every set of outputs is at most that factor times as probable "
        "under one dataset as under another, plus delta",
        "approximate differential privacy", "epsilon", "ε", False, SUM, True,
    ),
    "D_NoR": Kind(
        "odds, on average",
        "normalised Rényi distance: an average, not the worst case, of the factor by which probabilities change",
        "zCDP, zero-concentrated differential privacy", "rho2", "ρ²", True, SUM, True,
    ),
    "D_Renyi": Kind(
        "odds, on average",
        "Rényi divergence of one order, in the worse direction",
        "Rényi differential privacy", "epsilon", "ε", False, SUM, True,
    ),
    "D_GDP": Kind(
        "how well versions can be told apart",
        "distance of two unit normals that are as hard to tell apart",
        "Gaussian differential privacy", "mu", "μ", True, ROOT, True,
    ),
    "D_TV": Kind(
        "probabilities",
        "largest change in the probability of any event",
        "total variation", "tau", "τ", True, SUM, False, at_most_one=True,
    ),
    "D_Tr": Kind(
        "how well versions can be told apart",
        "number of times that a curve of test power must be applied to cover every test between the two",
        "f-differential privacy, by a trade-off curve", "steps", "s", True, SUM, True,
    ),
    "D_KL": Kind(
        "odds, on average",
        "Kullback-Leibler divergence: the average logarithm of the factor by which probabilities change, in the worse "
        "direction",
        "KL privacy", "epsilon", "ε", False, SUM, True,
    ),
    "D_H": Kind(
        "overlap of probabilities",
        "Hellinger distance: the root of 1 minus the overlap of the two laws",
        "Hellinger privacy", "eta", "η", True, ROOT, False, at_most_one=True,
    ),
    "D_chi2": Kind(
        "squared change of probabilities",
        "chi-squared divergence: the average squared relative change of probabilities, in the worse direction",
        "chi-squared privacy", "chi2", "χ²", False, PRODUCT, True,
    ),
    "D_W1": Kind(
        "how far numbers move",
        "Wasserstein distance: how far a published number must be moved, on average, to turn one law into the other",
        "Wasserstein privacy", "w", "w", True, SUM, False, immune=False,
    ),
}  # fmt: skip

Pairs = list[tuple[Fraction, Fraction]]


@dataclass(frozen=True, slots=True)
class Between:
    """A number known to lie from ``low`` to ``high``; both are the number where it is known exactly."""

    low: Exact
    high: Exact

    @classmethod
    def exactly(cls, value: Exact) -> Between:
        """Return a number that is known."""
        return cls(value, value)

    @property
    def is_exact(self) -> bool:
        """Say whether the two ends are the same number."""
        return self.low == self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPremetric(Block):
    """A distance between the output laws of two datasets; it can be computed on finite laws.

    Names: ``D_Mult`` (pure DP), ``D_Max`` (the same, one way), ``D_Mult^delta`` (approximate; needs ``delta``),
    ``D_NoR`` (zCDP), ``D_Renyi`` (needs ``order``), ``D_GDP`` (Gaussian DP), ``D_TV`` (total variation), ``D_KL``,
    ``D_H`` (Hellinger), ``D_chi2``, ``D_W1`` (Wasserstein, for published numbers) and ``D_Tr`` (f-DP; needs a symmetric
    ``curve``: the fewest repetitions of it that cover the two laws, so that a budget of 1 is f-DP between neighbours).
    Budgets are stored in the customary number (:attr:`parameter`): for ``D_NoR`` that is rho squared, whose root is
    the distance.

    >>> from stirred.spec.law import Law
    >>> fair = Law({0: Fraction(1, 2), 1: Fraction(1, 2)})
    >>> bent = Law({0: Fraction(3, 4), 1: Fraction(1, 4)})
    >>> OutputPremetric(name="D_Mult").distance(fair, bent).high
    Exact('ln(2)')
    """

    in_file: ClassVar = ("name", "delta", "order", "curve")
    choices: ClassVar = {"name": tuple(KINDS)}
    left_out: ClassVar = ("order", "curve")

    name: str
    delta: Fraction = Fraction(0)
    order: Fraction | None = None
    curve: Annotated[TradeOff | None, "for D_Tr: size and power of the best test, at the corners of the curve"] = None

    def __post_init__(self) -> None:
        if self.name not in KINDS:
            raise unknown_name(self.name, KINDS, where="output_premetric name", called="an output premetric")
        delta = probability(self.delta, where="output_premetric delta")
        object.__setattr__(self, "delta", delta)
        if (self.name == "D_Mult^delta") != (delta > 0) or delta >= 1:
            raise wrong(
                f"delta {delta} does not fit {self.name}",
                where="output_premetric delta",
                remedy="D_Mult^delta needs a delta above 0 and below 1; the others take none",
            )
        if (self.name == "D_Renyi") != (self.order is not None):
            missing = "D_Renyi without an order" if self.order is None else f"{self.name} has no order"
            raise wrong(missing, where="output_premetric order", remedy="D_Renyi, and only it, needs an order")
        if self.order is not None:
            object.__setattr__(self, "order", Fraction(self.order))
        if self.order is not None and self.order <= 1:
            raise wrong(f"{self.order} is not above 1", where="output_premetric order", remedy="write a number above 1")
        self._check_curve()

    def _check_curve(self) -> None:
        where = "output_premetric curve"
        if (self.name == "D_Tr") != (self.curve is not None):
            missing = "D_Tr without a curve" if self.curve is None else f"{self.name} has no curve"
            raise wrong(missing, where=where, remedy="D_Tr, and only it, needs a curve")
        if self.curve is None:
            return
        if self.curve != self.curve.symmetric:
            raise wrong(
                f"the curve {self.curve} is not the same both ways",
                where=where,
                remedy=f"the promise is for both orders of two datasets: write {self.curve.symmetric}",
            )
        if len(self.curve.corners) == 2 and self.curve.corners[0][1] == 0:
            raise wrong("the curve allows no change at all", where=where, remedy="give it a corner above the diagonal")

    @property
    def parameter(self) -> str:
        """Return the customary name of the budget, such as epsilon, rho2, mu or tau."""
        return KINDS[self.name].parameter

    @property
    def greek(self) -> str:
        """Return the budget's letter."""
        return KINDS[self.name].greek

    @property
    def classic(self) -> str:
        """Return the name under which the literature knows flavors with this output premetric."""
        return KINDS[self.name].classic

    @property
    def words(self) -> str:
        """Return in plain words what the distance measures."""
        extra = f" (delta = {small(self.delta)})" if self.delta else f" (order {self.order})" if self.order else ""
        extra = f" (size and power at its corners: {self.curve})" if self.curve else extra
        return KINDS[self.name].words + extra

    @property
    def measured(self) -> str:
        """Return in everyday words what a budget is measured in."""
        return KINDS[self.name].measured

    @property
    def symbol(self) -> str:
        """Return the symbol as in the paper."""
        if self.name == "D_Mult^delta":
            return f"D_Mult^{small(self.delta)}"
        if self.curve is not None:
            inner = [f"{a}:{b}" for a, b in self.curve.corners if a < 1 and b > 0]
            return f"D_Tr[{' '.join(inner[:3])}{' ...' if inner[3:] else ''}]"
        return f"D_Renyi^{self.order}" if self.order else self.name

    @property
    def is_metric(self) -> bool:
        """Say whether the triangle inequality holds; if not, a bound for neighbours does not add up along a path."""
        return KINDS[self.name].metric

    @property
    def composes(self) -> str:
        """Return how customary budgets of releases with fresh randomness combine."""
        return KINDS[self.name].composes

    @property
    def infinite_on_disjoint(self) -> bool:
        """Say whether laws without a common outcome are infinitely far apart (the premise of Proposition 1)."""
        if self.curve is not None and self.curve.corners[0][1] > 0:  # repeated often enough, it covers every test
            return False
        return KINDS[self.name].infinite_on_disjoint

    @property
    def immune(self) -> bool:
        """Say whether no function of the output increases the distance (Proposition 2.5.4)."""
        return KINDS[self.name].immune

    @property
    def at_most_one(self) -> bool:
        """Say whether no two laws are further than 1 apart."""
        return KINDS[self.name].at_most_one

    def to_distance(self, customary: Exact) -> Exact:
        """Return the Lipschitz constant for a customary budget: rho for rho squared, otherwise itself."""
        return sqrt(customary) if self.name == "D_NoR" else customary

    def distance(self, p: OutputLaw, q: OutputLaw) -> Between:
        """Return the distance between two laws, exactly where it can be, else tightly enclosed.

        P(S)/Q(S) is 1 where both are 0 and infinite where only Q(S) is; different spaces are
        infinitely far apart; the distance of a law to itself is 0.
        """
        if p == q:
            return Between.exactly(ZERO)
        if not isinstance(p, Law) or not isinstance(q, Law):
            from stirred.spec.shift_distance import shift_distance  # it compares finite laws of this module

            # Shifted symmetric noise is as far one way as the other.
            return shift_distance(PURE if self.name == "D_Max" else self, p, q)
        if p.space != q.space:
            return Between.exactly(INFINITE)
        if self.name == "D_W1":
            return Between.exactly(exact(_wasserstein(p, q)))
        if self.curve is not None:
            return _steps(self.curve, TradeOff.highest([TradeOff.of(p, q), TradeOff.of(q, p)]))
        return _DISTANCES[self.name](self, likelihood_pairs(p, q))


def _both_ways(one_way: Callable[[Pairs], Between], pairs: Pairs) -> Between:
    there, back = one_way(pairs), one_way([(q, p) for p, q in pairs])
    return Between(largest([there.low, back.low]), largest([there.high, back.high]))


def _multiplicative(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    # The supremum over events is reached on single outcomes: a ratio of sums is at most the largest ratio.
    if any((p == 0) != (q == 0) for p, q in pairs):
        return Between.exactly(INFINITE)
    ratio = max(max(p / q, q / p) for p, q in pairs)
    return Between.exactly(ln(ratio))


def _one_way(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    return Between.exactly(_delta_divergence(pairs, Fraction(0)))


def _approximate(premetric: OutputPremetric, pairs: Pairs) -> Between:
    return _both_ways(lambda way: Between.exactly(_delta_divergence(way, premetric.delta)), pairs)


def _delta_divergence(pairs: Pairs, delta: Fraction) -> Exact:
    """Return the largest ln of (P(S) - delta)/Q(S), or 0.

    The best event takes outcomes in decreasing order of P/Q (Neyman and Pearson), so only as many
    events as outcomes need a look.
    """
    mass = sum((p for p, q in pairs if q == 0), Fraction(0))
    if mass > delta:
        return INFINITE
    best, other = Fraction(1), Fraction(0)
    for p, q in sorted(((p, q) for p, q in pairs if q > 0), key=lambda pair: pair[0] / pair[1], reverse=True):
        mass, other = mass + p, other + q
        best = max(best, (mass - delta) / other)
    return ln(best)


def _normalised_renyi(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    return _both_ways(lambda way: _rational_between(normalised_renyi(way)), pairs)


def _renyi(premetric: OutputPremetric, pairs: Pairs) -> Between:
    order = premetric.order
    assert order is not None
    return _both_ways(lambda way: _rational_between(renyi(way, order=order)), pairs)


def _rational_between(enclosure: Enclosure) -> Between:
    if enclosure.high == Decimal("Infinity"):
        return Between.exactly(INFINITE)
    return Between(exact(max(Fraction(enclosure.low), Fraction(0))), exact(Fraction(enclosure.high)))


def _gaussian(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    """Return the smallest mu whose Gaussian trade-off curve lies below that of the two laws.

    Both curves are convex and the one of finite laws is piecewise linear, so the corners decide.
    """
    return _both_ways(_gaussian_one_way, pairs)


def _gaussian_one_way(pairs: Pairs) -> Between:
    if any((p == 0) != (q == 0) for p, q in pairs):
        return Between.exactly(INFINITE)
    low, high, alpha, power = Fraction(0), Fraction(0), Fraction(0), Fraction(0)
    for p, q in sorted(pairs, key=lambda pair: pair[1] / pair[0], reverse=True):
        alpha, power = alpha + p, power + q
        if 0 < alpha < 1:
            # Quantiles of the power and of the level: mu = Phi^-1(power) - Phi^-1(alpha).
            (a, b), (c, d) = normal_quantile(power), normal_quantile(alpha)
            low, high = max(low, a - d), max(high, b - c)
    return Between(exact(low), exact(high))


def _total_variation(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    return Between.exactly(exact(sum((abs(p - q) for p, q in pairs), Fraction(0)) / 2))


def _kullback_leibler(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    return _both_ways(_one_kullback_leibler, pairs)


def _one_kullback_leibler(pairs: Pairs) -> Between:
    if any(q == 0 < p for p, q in pairs):
        return Between.exactly(INFINITE)
    return _closely(add_up(p * ln(p / q) for p, q in pairs if p))


def _hellinger(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    overlap = _closely(add_up(sqrt(p * q) for p, q in pairs))
    # Few digits more than 1 can come out where the laws hardly differ.
    low, high = (sqrt(largest([1 - end, ZERO])) for end in (overlap.high, overlap.low))
    return Between(low, high)


def _chi_squared(_premetric: OutputPremetric, pairs: Pairs) -> Between:
    if any((p == 0) != (q == 0) for p, q in pairs):
        return Between.exactly(INFINITE)
    both = [sum(((p - q) ** 2 / (q, p)[way] for p, q in pairs), Fraction(0)) for way in (0, 1)]
    return Between.exactly(exact(max(both)))


def _closely(value: Exact) -> Between:
    """Return the number where it is rational or one logarithm or root, which compare exactly, else enclose it."""
    if value.is_rational or len(value.parts) == 1 or (value.kind == "product" and value.parts[0].is_rational):
        return Between.exactly(value)
    around = value.enclose(40)
    return Between(exact(Fraction(around.low)), exact(Fraction(around.high)))


def _wasserstein(p: Law, q: Law) -> Fraction:
    """Return the area between the distribution functions of two laws of a number."""
    numbers = [outcome for outcome in {*p, *q} if isinstance(outcome, int | Fraction)]
    if len(numbers) < len({*p, *q}):
        raise wrong("an output is not a whole number or fraction", where="D_W1", remedy="publish numbers")
    area, ahead, numbers = Fraction(0), Fraction(0), sorted(numbers)
    for here, there in pairwise(numbers):
        ahead += p[here] - q[here]
        area += abs(ahead) * (there - here)
    return area


def _steps(curve: TradeOff, laws: TradeOff) -> Between:
    steps = curve.steps_to(laws)
    if steps is not None:
        return Between.exactly(exact(steps))
    reachable = curve.corners[0][1] > 0 or laws.corners[0][1] == 0
    return Between(exact(MOST_STEPS + 1), INFINITE) if reachable else Between.exactly(INFINITE)


_DISTANCES: Final[dict[str, Callable[[OutputPremetric, Pairs], Between]]] = {
    "D_Mult": _multiplicative,
    "D_Max": _one_way,
    "D_Mult^delta": _approximate,
    "D_NoR": _normalised_renyi,
    "D_Renyi": _renyi,
    "D_GDP": _gaussian,
    "D_TV": _total_variation,
    "D_KL": _kullback_leibler,
    "D_H": _hellinger,
    "D_chi2": _chi_squared,
}

PURE: Final = OutputPremetric(name="D_Mult")
ZCDP: Final = OutputPremetric(name="D_NoR")
GDP: Final = OutputPremetric(name="D_GDP")
TOTAL_VARIATION: Final = OutputPremetric(name="D_TV")
KULLBACK_LEIBLER: Final = OutputPremetric(name="D_KL")
HELLINGER: Final = OutputPremetric(name="D_H")
CHI_SQUARED: Final = OutputPremetric(name="D_chi2")
WASSERSTEIN: Final = OutputPremetric(name="D_W1")


def approximate(delta: Fraction | str | float) -> OutputPremetric:
    """Return the output premetric of approximate differential privacy at ``delta``."""
    return OutputPremetric(name="D_Mult^delta", delta=probability(delta, where="delta"))


def trade_off(curve: TradeOff) -> OutputPremetric:
    """Return the output premetric of f-DP for a curve, made symmetric: the promise is for both orders."""
    return OutputPremetric(name="D_Tr", curve=curve.symmetric)


def is_open(premetric: OutputPremetric) -> bool:
    """Say whether a finite budget allows outputs that only one of two datasets can give."""
    curve = premetric.curve
    return premetric.name in ("D_Mult^delta", "D_TV", "D_H") or (curve is not None and curve.corners[0][1] > 0)


def is_pure(premetric: OutputPremetric) -> bool:
    """Say whether a finite budget bounds the odds of every output."""
    return premetric.name == "D_Mult" or (premetric.curve is not None and not is_open(premetric))


def order_falls(old: OutputPremetric, to: OutputPremetric) -> bool:
    """Say whether the order of the divergence does not grow; chi-squared is one of order 2."""
    return (old.order or Fraction(2)) >= (to.order or Fraction(2))


def why_not(old: OutputPremetric, to: OutputPremetric) -> str:
    """Return the reason; each has a pair of laws in the tests that shows it."""
    if "D_W1" in (old.name, to.name):
        return "how far numbers move says nothing about their probabilities, nor these about how far numbers move"
    if is_open(old) and to.delta and not to.delta >= old.delta:
        alone = f"outputs of probability {old.delta} may be possible under one dataset alone"
        return f"{alone}, and delta {to.delta} allows less"
    if is_open(old):
        return "an output that only one of two datasets can give may still occur"
    if old.name == "D_Max":
        return "the promise is for one direction, and in the other the odds may change by any factor"
    if is_pure(to) or to.name == "D_Max":
        return "a rare output may still change the odds by any factor"
    return "it is an average over outputs of lower order, and a rare output can make the other as large as one likes"
