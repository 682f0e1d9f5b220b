"""The numbers behind conversions of output premetrics: what one budget gives in another measure, rounded up."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from stirred.spec.exact import INFINITE, ZERO, Exact, exact, exp, ln, sqrt
from stirred.spec.given_numbers import loss, probability
from stirred.spec.normal import gaussian_delta_at, normal_quantile
from stirred.spec.problems import refused


def zcdp_to_epsilon(rho2: Exact, *, delta: Fraction, method: str = "bun-steinke") -> Exact:
    """Return an epsilon such that rho2-zCDP implies (epsilon, delta)-DP for neighbours.

    ``bun-steinke``: ``rho2 + 2 sqrt(rho2 ln(1/delta))`` (Bun and Steinke 2016, Proposition 1.3; the
    Census Bureau's choice). ``cks``: the smaller ``a rho2 + [ln(1/delta) + (a-1) ln(1-1/a) - ln a]/(a-1)``
    for the best order a > 1 (Canonne, Kamath and Steinke 2020, Proposition 12). Every order gives a valid
    epsilon, so the search for a good rational one is free to use floating point.

    >>> zcdp_to_epsilon(exact("55.371"), delta=Fraction(1, 10**10)).shown()
    '126.79'
    """
    rho2 = loss(rho2, where="rho2")
    delta = checked_delta(delta)
    check_method(method, TO_APPROXIMATE)
    if rho2.is_infinite or rho2 == ZERO:
        return rho2
    return _cks(rho2, delta) if method == "cks" else rho2 + 2 * sqrt(rho2 * ln(1 / delta))


# Where a conversion can be made in several ways, their names; the first is the usual one.
TO_APPROXIMATE: Final = ("bun-steinke", "cks")
TO_ZCDP: Final = ("sharp", "bun-steinke")


def check_method(method: str, methods: tuple[str, ...]) -> None:
    """Refuse a way of converting that is none of these."""
    if method not in methods:
        remedy = f"choose {' or '.join(methods)}" if methods else "leave it out: there is nothing to choose here"
        raise refused(f"{method!r} is not a conversion", where="method", remedy=remedy)


def checked_delta(delta: Fraction) -> Fraction:
    """Return the delta, or refuse it: it must be above 0 and below 1."""
    delta = probability(delta, where="delta")
    if not 0 < delta < 1:
        why = "a positive budget of this kind never gives pure DP" if delta == 0 else "it would allow everything"
        raise refused(
            f"delta {delta} allows no conversion: {why}",
            where="delta",
            remedy="choose a delta above 0 and below 1, far below one over the number of records",
        )
    return delta


def _cks(rho2: Exact, delta: Fraction) -> Exact:
    rho, log = float(rho2), float(ln(1 / delta))

    def at(order: float) -> float:
        return order * rho + (log + (order - 1) * math.log1p(-1 / order) - math.log(order)) / (order - 1)

    best = _minimum(at, start=1 + math.sqrt(log / rho))
    a = 1 + Fraction(best - 1).limit_denominator(10**6)
    if a <= 1:  # a huge budget: the orders worth trying are too close to 1, and little is to be gained
        return zcdp_to_epsilon(rho2, delta=delta)
    value = a * rho2 + (ln(1 / delta) + (a - 1) * ln(1 - 1 / a) - ln(a)) / (a - 1)
    # Very large deltas make the formula negative: nothing is lost then.
    return value if value > ZERO else ZERO


def _minimum(f: Callable[[float], float], *, start: float) -> float:
    """Return a good argument of a unimodal function on (1, infinity), by golden section in ln(a - 1)."""
    low, high = math.log(start - 1) - 8, math.log(start - 1) + 8
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if f(1 + math.exp(left)) < f(1 + math.exp(right)):
            high = right
        else:
            low = left
    return 1 + math.exp((low + high) / 2)


def pure_to_rho2(epsilon: Exact, *, nearest: Exact | int = 1, method: str = "sharp") -> Exact:
    """Return rho squared such that epsilon-DP implies rho2-zCDP, for every distance of ``nearest`` or more.

    ``sharp``: ``(epsilon/n) tanh(epsilon n / 2)`` with n = ``nearest``; at n = 1 it is attained by
    binary randomised response (our Theorem R17: see the theory pages). ``bun-steinke``: epsilon^2 / 2.

    >>> pure_to_rho2(exact(1)).shown(6), pure_to_rho2(exact(1), nearest=2).shown(6)
    ('0.462118', '0.380798')
    """
    epsilon = loss(epsilon, where="epsilon")
    check_method(method, TO_ZCDP)
    if epsilon.is_infinite:
        return INFINITE
    if method == "bun-steinke":
        return epsilon * epsilon / 2
    ratio = exp(epsilon * nearest)
    return epsilon / nearest * ((ratio - 1) / (ratio + 1))


# exp(600) is far beyond every use, and fractions of it are slow.
_HUGE: Final = exact(600)


def gdp_to_epsilon(mu: Exact, *, delta: Fraction) -> Exact:
    """Return the smallest epsilon, to nine decimals upwards, with mu-GDP implying (epsilon, delta)-DP.

    Dong, Roth and Su (2022), Corollary 1: delta(epsilon) = Phi(-epsilon/mu + mu/2) -
    exp(epsilon) Phi(-epsilon/mu - mu/2), which falls in epsilon; each comparison is certified. Where mu is above 600
    or delta below 1e-1000, a simple bound instead.
    """
    mu = loss(mu, where="mu")
    delta = checked_delta(delta)
    if mu.is_infinite or mu == ZERO:
        return mu
    if mu > _HUGE or delta < Fraction(1, 10**1000):
        # delta(epsilon) <= Phi(-z) <= exp(-z^2/2) at epsilon = mu^2/2 + mu z: a bound, where searching takes too long.
        return mu * mu / 2 + mu * sqrt(2 * ln(1 / delta))
    m = Fraction(mu.enclose().high)  # a larger mu is the weaker promise
    if gaussian_delta_at(m, Fraction(0)) <= delta:
        return ZERO
    # In units of mu the answer lies within a few dozen: epsilon = mu z with z - mu/2 a normal quantile.
    low, high = Fraction(0), m / 2 + 1
    while gaussian_delta_at(m, m * high) > delta:
        low, high = high, high * 2
    grid = Fraction(1, 10**10)
    while high - low > grid:
        middle = Fraction(math.floor((low + high) / 2 / grid)) * grid
        low, high = (middle, high) if gaussian_delta_at(m, m * middle) > delta else (low, middle)
    return exact(m * high)


def pure_to_mu(epsilon: Exact) -> Exact:
    """Return mu such that epsilon-DP implies mu-GDP: ``2 Phi^-1(e^eps / (1 + e^eps))``, rounded up.

    The trade-off curve of epsilon-DP has its corner where both errors are 1/(1 + e^eps); the Gaussian
    curve through that corner lies below it elsewhere, being convex. The number is concave in epsilon
    and 0 at 0, so it covers every distance (proof in the theory pages).
    """
    epsilon = loss(epsilon, where="epsilon")
    if epsilon.is_infinite or epsilon == ZERO:
        return epsilon
    if epsilon > exact(600):
        # Phi(-x) <= exp(-x^2/2)/2 gives the quantile bound sqrt(2 ln((1 + e^eps)/2)) <= sqrt(2 eps).
        return 2 * sqrt(2 * epsilon)
    ratio = Fraction(exp(epsilon).enclose().high)
    return exact(2 * normal_quantile(ratio / (1 + ratio))[1])


def zcdp_to_mu(rho2: Exact) -> Exact:
    """Return mu such that rho2-zCDP implies mu-GDP between neighbours, rounded up.

    A test of size a has power at most exp(-(sqrt(ln 1/a) - rho)^2), and its complement the same the other way round.
    The Gaussian curve through the point where both meet lies above the rest (theory pages): ``2 Phi^-1(1 - a)`` with
    ``sqrt(ln 1/a) - sqrt(ln 1/(1-a)) = rho``. A smaller a gives a larger mu, so a is rounded down.

    >>> [zcdp_to_mu(exact(rho2)).shown(4) for rho2 in ("1/8", "1/2", "2")]
    ['0.7397', '1.4907', '3.0757']
    """
    rho2 = loss(rho2, where="rho2")
    if rho2.is_infinite or rho2 == ZERO:
        return rho2
    rho = sqrt(rho2)
    if rho2 > _HUGE:
        # Phi(-x) <= exp(-x^2/2) gives Phi^-1(1 - a) <= sqrt(2 ln 1/a), and sqrt(ln 1/(1-a)) is below 5/6.
        return 2 * sqrt(exact(2)) * (rho + Fraction(5, 6))
    low, high = math.sqrt(math.log(2)), float(rho) + 1
    for _ in range(60):
        middle = (low + high) / 2
        below = middle - math.sqrt(-math.log1p(-math.exp(-middle * middle))) < float(rho)
        low, high = (middle, high) if below else (low, middle)
    size = Fraction(math.exp(-high * high))
    while sqrt(ln(1 / size)) - sqrt(ln(1 / (1 - size))) < rho:
        size *= 1 - Fraction(1, 10**13)
    return exact(2 * normal_quantile(1 - size)[1])


# A budget above this is refused as promising nothing; so is what would become of it.
_MOST_LOGARITHM: Final = exact(27)


def pure_to_epsilon(epsilon: Exact, *, delta: Fraction, more: Fraction) -> Exact:
    """Return an epsilon' such that (epsilon, delta)-DP implies (epsilon', more)-DP between neighbours.

    ``ln(e^eps - c (1 + e^eps))`` with c = (more - delta)/(1 - delta), at least 0: of all laws with that promise,
    randomised response that tells the truth openly with probability delta is the easiest to tell apart. None is
    smaller; where so little can be saved that no digit shown would change, epsilon itself is kept.

    >>> pure_to_epsilon(ln(3), delta=Fraction(0), more=Fraction(1, 8))
    Exact('ln(5/2)')
    """
    part = (more - delta) / (1 - delta)
    # A small part saves little more than twice itself at most: all of a tiny epsilon, or nothing to speak of.
    if epsilon > _HUGE or (part < Fraction(1, 10**6) and epsilon > 2000 * part):
        return epsilon
    ratio = exp(epsilon)
    left = ratio - part * (1 + ratio)
    return ln(left) if left > 1 else ZERO


def pure_to_renyi(epsilon: Exact, *, order: Fraction) -> Exact:
    """Return the Rényi divergence of randomised response, the largest that epsilon-DP allows between neighbours.

    >>> pure_to_renyi(ln(3), order=Fraction(2))
    Exact('ln(7/3)')
    """
    if epsilon.is_infinite or epsilon > _HUGE / order or epsilon == ZERO:
        return epsilon
    return ln((exp(order * epsilon) + exp((1 - order) * epsilon)) / (1 + exp(epsilon))) / (order - 1)


def one_way_to_tv(epsilon: Exact) -> Exact:
    """Return ``1 - e^-eps``: if P is at most e^eps Q, no event loses more than that, and none gains more."""
    return exact(1) if epsilon > _HUGE else 1 - exp(-epsilon)


def pure_to_hellinger(epsilon: Exact) -> Exact:
    """Return the Hellinger distance of randomised response, ``sqrt(1 - sech(epsilon/2))``; it covers all distances."""
    if epsilon > _HUGE:
        return exact(1)
    ratio = exp(epsilon)
    return sqrt(1 - 2 * sqrt(ratio) / (1 + ratio))


def pure_to_chi2(epsilon: Exact) -> Exact:
    """Return the chi-squared divergence of randomised response, ``4 sinh(epsilon/2)^2``."""
    return INFINITE if epsilon > _MOST_LOGARITHM else exp(epsilon) + exp(-epsilon) - 2


def renyi_to_chi2(divergence: Exact) -> Exact:
    """Return the chi-squared divergence for a Rényi divergence of order 2, ``e^D - 1``."""
    return INFINITE if divergence > _MOST_LOGARITHM else exp(divergence) - 1


def kl_to_tv(divergence: Exact) -> Exact:
    """Return tanh(e/2) with e tanh(e/2) = ``divergence``, to twelve decimals upwards; randomised response attains it.

    For the event S where p > q, with v = P(S) - Q(S), both divergences together are at least v ln of the odds ratio of
    S, which is least where P(S) + Q(S) = 1, and there 2 v ln((1+v)/(1-v)) (theory pages).

    >>> kl_to_tv(exact("1/2")).shown(10)
    '0.4790984232'
    """
    if divergence == ZERO or divergence > _MOST_LOGARITHM:
        return ZERO if divergence == ZERO else exact(1)
    low, high, wanted = 0.0, 1.0, float(divergence)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if middle * 2 * math.atanh(middle) > wanted else (middle, high)
    grain = Fraction(1, 10**12)
    value = math.floor(Fraction(low) / grain) * grain
    while value < 1 and value * ln((1 + value) / (1 - value)) < divergence:
        value += grain
    return exact(value)


def overlap_to_hellinger(exponent: Exact) -> Exact:
    """Return ``sqrt(1 - e^-x)``."""
    return exact(1) if exponent > _HUGE else sqrt(1 - exp(-exponent))


def hellinger_to_tv(eta: Exact) -> Exact:
    """Return ``H sqrt(2 - H^2)``, the largest total variation at Hellinger distance H; at most 1."""
    return exact(1) if eta >= 1 else eta * sqrt(2 - eta * eta)


def group_delta(epsilon: Exact, delta: Fraction, *, size: int) -> Fraction:
    """Return the delta of (k epsilon, .)-DP for groups of k, ``delta (e^(k eps) - 1)/(e^eps - 1)``, rounded up.

    >>> group_delta(ln(2), Fraction(1, 100), size=3)
    Fraction(7, 100)
    """
    if epsilon == ZERO:
        return size * delta
    if size * epsilon > _HUGE:
        return Fraction(1)
    grown = delta * (exp(size * epsilon) - 1) / (exp(epsilon) - 1)
    return grown.rational if grown.is_rational else _rounded_up(Fraction(grown.enclose().high))


def _rounded_up(value: Fraction) -> Fraction:
    """Return a number above 0 rounded up to twelve digits or so: a delta is read by people."""
    unit = Fraction(10) ** (math.floor(math.log10(value)) - 12)
    return math.ceil(value / unit) * unit


def at_most_one(value: Exact) -> Exact:
    """Return the value, or 1 if it is above: total variation never exceeds 1."""
    return exact(1) if value > exact(1) else value
