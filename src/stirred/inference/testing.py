"""What any test can achieve on a release, what the best test does achieve, and how far a prior can be moved."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from stirred.inference.geometry import exponent
from stirred.inference.weights import Ends, Given, OutcomeWeights, settled
from stirred.spec.exact import INFINITE, ONE, ZERO, Exact, exact, exp, largest, ln, sqrt
from stirred.spec.given_numbers import Number, loss, probability
from stirred.spec.problems import wrong

# Beyond this, a limit is 1 to more digits than anyone has: it is rounded up to it.
_PRACTICALLY_INFINITE: Final = 10**5


def power_bounds(alpha: Number, epsilon: Number, distance: Number = 1) -> Ends:
    """Return between what the power of any test of size ``alpha`` lies (Corollary 5.5.2).

    The hypotheses are ``distance`` apart: for an attacker, the number of records that differ; for two models of the
    data, their `coupling_distance`. The upper end also holds for tests of level alpha and for randomised ones. One
    bit of randomised response attains both ends.

    >>> power_bounds("0.05", 1).doubles
    (0.018393..., 0.135914...)
    """
    size, far = probability(alpha, where="alpha"), exponent(epsilon, distance)
    return Ends(1 - _most(1 - size, far), _most(size, far))


def _most(size: Fraction, far: Exact) -> Exact:
    """Return min(size φ, 1 - (1 - size)/φ); the first is smaller while φ <= (1 - size)/size."""
    if far.is_infinite:
        return ONE
    if size in (0, 1):
        return exact(size)
    if size < Fraction(1, 2) and far <= ln((1 - size) / size):
        return size * exp(far)
    return ONE if far > _PRACTICALLY_INFINITE else 1 - (1 - size) * exp(-far)


def zcdp_power_bound(alpha: Number, rho2: Number, distance: Number = 1) -> Exact:
    """Return the largest power that a test of size ``alpha`` can have under zCDP, hypotheses ``distance`` apart.

    With rho times distance r: exp(-(sqrt(ln 1/alpha) - r)^2), by the best order of the Rényi divergence, or
    1 - exp(-(sqrt(ln 1/(1-alpha)) + r)^2), by the test turned round, whichever is smaller (theory pages).

    >>> zcdp_power_bound("0.05", "1/2").shown(4)
    '0.3507'
    """
    size, apart = probability(alpha, where="alpha"), loss(distance, where="distance", called="distance")
    far = exponent(rho2, apart * apart)
    if size in (0, 1) or far == 0:
        return ONE if far.is_infinite else exact(size)
    if far > _PRACTICALLY_INFINITE:
        return ONE
    r = sqrt(far)
    turned = 1 - exp(-((r + sqrt(ln(1 / (1 - size)))) ** 2))
    if ln(1 / size) <= far:
        return turned
    straight = exp(-((sqrt(ln(1 / size)) - r) ** 2))
    return straight if straight < turned else turned


def required_loss(alpha: Number, power: Number) -> Exact:
    """Return the smallest epsilon times distance at which a test of size ``alpha`` can have a power.

    A power below alpha also takes a loss: the same test, its verdict turned round, would then be a good one.

    >>> required_loss("0.05", "0.8")
    Exact('ln(16)')
    >>> required_loss("0.5", "0.1")
    Exact('ln(5)')
    """
    a, b = probability(alpha, where="alpha"), probability(power, where="power")
    ratios = [(b, a), (1 - a, 1 - b), (a, b), (1 - b, 1 - a)]
    if any(top and not bottom for top, bottom in ratios):
        return INFINITE
    return largest([ln(top / bottom) for top, bottom in ratios if top])


def guessing_bound(epsilon: Number, distance: Number = 1) -> Exact:
    """Return the largest chance to guess right between two equally likely versions.

    >>> guessing_bound("ln(3)")
    Exact('3/4')
    """
    far = exponent(epsilon, distance)
    return ONE if far.is_infinite or far > _PRACTICALLY_INFINITE else 1 / (1 + exp(-far))


def total_variation_bound(epsilon: Number, distance: Number = 1) -> Exact:
    """Return the largest change of any event's probability: tanh of half of epsilon times distance.

    >>> total_variation_bound("ln(3)")
    Exact('1/2')
    """
    return 2 * guessing_bound(epsilon, distance) - 1


def np_power(p0: Given, p1: Given, alpha: Number) -> Exact:
    """Return the power of the best test of size ``alpha`` between two known laws (Neyman and Pearson).

    >>> np_power({"0": "3/4", "1": "1/4"}, {"0": "1/4", "1": "3/4"}, "1/4")
    Exact('3/4')
    """
    first, second = OutcomeWeights.probabilities(p0, where="p0"), OutcomeWeights.probabilities(p1, where="p1")
    size = probability(alpha, where="alpha")
    power = sum((w for t, w in second.values.items() if not first[t]), Fraction(0))
    for t in sorted(first.values, key=lambda t: second[t] / first[t], reverse=True):
        taken = min(size, first[t])
        size, power = size - taken, power + taken * second[t] / first[t]
    return settled(min(power, Fraction(1)), rational=first.rational and second.rational)


def laplace_power(alpha: Number, shift: Number) -> Exact:
    """Return the power of the best test between Laplace laws of scale 1 that are ``shift`` apart.

    It attains the upper limit where alpha is at most exp(-shift)/2, or at least one half.

    >>> laplace_power("0.05", 1), power_bounds("0.05", 1).upper
    (Exact('1/20*exp(1)'), Exact('1/20*exp(1)'))
    """
    size, far = probability(alpha, where="alpha"), loss(shift, where="shift")
    if far.is_infinite:
        return ONE
    if size in (0, 1):
        return ZERO if size == 0 else ONE
    if size < Fraction(1, 2):
        return size * exp(far) if far <= -ln(2 * size) else 1 - exp(-far) / (4 * size)
    return 1 - exp(-far) * (1 - size)


# ---- from prior to posterior ---------------------------------------------------------------------------------------
# This is prior-to-posterior semantics: what one person believes before and after. It does not compare the posteriors
# that two versions of the file would have given.

_FORMS: Final = ("odds", "stated", "complemented")
# A double is widened by this much, so that its rounding never shows a band narrower than it is.
WIDER: Final = 2.0**-40


def posterior_bounds(prior: Number, epsilon: Number, distance: Number = 1, form: str = "odds") -> Ends:
    """Return between what the posterior probability of a statement lies.

    ``odds`` (the default) bounds the odds, and is always inside the others. ``stated`` is Theorem 5.6.3: the prior
    times or divided by exp(epsilon distance), where it is no more than 1. ``complemented`` uses that for the
    statement and for its opposite. The prior is the one *given what the invariants show*: see `exact_posterior`.

    >>> posterior_bounds("0.3", 1).doubles
    (0.136190..., 0.538101...)
    """
    if form not in _FORMS:
        raise wrong(f"there is no form {form!r}", where="form", remedy=f"write {', '.join(_FORMS)}")
    p, far = probability(prior, where="prior"), exponent(epsilon, distance)
    if p in (0, 1):  # what has no chance before has none after
        return Ends(exact(p), exact(p))
    if form == "complemented":
        return power_bounds(p, epsilon, distance)
    if far.is_infinite or far > 10**5:
        return Ends(ZERO, ONE)
    if form == "stated":
        return Ends(p * exp(-far), ONE if far >= ln(1 / p) else p * exp(far))
    against = (1 - p) / p
    return Ends(1 / (1 + against * exp(far)), 1 / (1 + against * exp(-far)))


def posterior_band(
    prior: Callable[[float], float], epsilon: Number, distance: Number = 1
) -> Callable[[float], tuple[float, float]]:
    """Return the band in which the posterior density lies at each value of the parameter (Theorem 5.6.3).

    >>> band = posterior_band(lambda theta: 1.0, "ln(2)")
    >>> band(0.5)
    (0.49999..., 2.0000...)
    """
    far = float(exponent(epsilon, distance))

    def at(theta: float) -> tuple[float, float]:
        density = prior(theta)
        upper = density * math.exp(far) * (1 + WIDER) if far < 700 else math.inf if density else 0.0
        return density * math.exp(-far) * (1 - WIDER), upper

    return at


def exact_posterior(prior: Given, likelihood: Given) -> OutcomeWeights:
    """Return the posterior by Bayes' rule, where prior and likelihood are known.

    With the probability of what the invariants show in place of a likelihood it is the prior *given the invariants*,
    the one that limits are about: noise limits what is learned beyond them.

    >>> exact_posterior({"A": "1/2", "B": "1/2"}, {"A": "0.9", "B": "0.1"}).values
    {'A': Fraction(9, 10), 'B': Fraction(1, 10)}
    """
    before, seen = OutcomeWeights.probabilities(prior, where="prior"), OutcomeWeights.of(likelihood, where="likelihood")
    joint = {theta: w * seen[theta] for theta, w in before.values.items() if seen[theta]}
    total = sum(joint.values(), Fraction(0))
    if not total:
        raise wrong("what was seen has no probability", where="likelihood", remedy="check the model")
    return OutcomeWeights({theta: w / total for theta, w in joint.items()}, before.rational and seen.rational)
