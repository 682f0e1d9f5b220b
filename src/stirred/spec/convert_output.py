"""Changing how change is measured: pure to zCDP to approximate, Gaussian, Rényi, total variation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stirred.spec.budget import Budget, derived
from stirred.spec.convert import to_neighbours
from stirred.spec.derivation import Derivation, stepped
from stirred.spec.exact import INFINITE, ZERO, Exact, exact, exp, ln, sqrt
from stirred.spec.given_numbers import loss, probability
from stirred.spec.normal import normal_cdf, normal_quantile
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.problems import refused
from stirred.spec.specification import Specification


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
    delta = _checked_delta(delta)
    _check_method(method, _TO_APPROXIMATE)
    if rho2.is_infinite or rho2 == ZERO:
        return rho2
    return _cks(rho2, delta) if method == "cks" else rho2 + 2 * sqrt(rho2 * ln(1 / delta))


# Where a conversion can be made in several ways, their names; the first is the usual one.
_TO_APPROXIMATE: Final = ("bun-steinke", "cks")
_TO_ZCDP: Final = ("sharp", "bun-steinke")


def _check_method(method: str, methods: tuple[str, ...]) -> None:
    if method not in methods:
        remedy = f"choose {' or '.join(methods)}" if methods else "leave it out: there is nothing to choose here"
        raise refused(f"{method!r} is not a conversion", where="method", remedy=remedy)


def _checked_delta(delta: Fraction) -> Fraction:
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


def pure_to_rho2(epsilon: Exact, *, nearest: int = 1, method: str = "sharp") -> Exact:
    """Return rho squared such that epsilon-DP implies rho2-zCDP, for every distance of ``nearest`` or more.

    ``sharp``: ``(epsilon/n) tanh(epsilon n / 2)`` with n = ``nearest``; at n = 1 it is attained by
    binary randomised response (our Theorem R17: see the theory pages). ``bun-steinke``: epsilon^2 / 2.

    >>> pure_to_rho2(exact(1)).shown(6), pure_to_rho2(exact(1), nearest=2).shown(6)
    ('0.462118', '0.380798')
    """
    epsilon = loss(epsilon, where="epsilon")
    _check_method(method, _TO_ZCDP)
    if epsilon.is_infinite:
        return INFINITE
    if method == "bun-steinke":
        return epsilon * epsilon / 2
    ratio = exp(epsilon * nearest)
    return epsilon / nearest * ((ratio - 1) / (ratio + 1))


def gdp_to_epsilon(mu: Exact, *, delta: Fraction) -> Exact:
    """Return the smallest epsilon, to nine decimals upwards, with mu-GDP implying (epsilon, delta)-DP.

    Dong, Roth and Su (2022), Corollary 1: delta(epsilon) = Phi(-epsilon/mu + mu/2) -
    exp(epsilon) Phi(-epsilon/mu - mu/2), which falls in epsilon; each comparison is certified.
    """
    mu = loss(mu, where="mu")
    delta = _checked_delta(delta)
    if mu.is_infinite or mu == ZERO:
        return mu
    m = Fraction(mu.enclose().high)  # a larger mu is the weaker promise
    if _gdp_delta_high(m, Fraction(0)) <= delta:
        return ZERO
    # In units of mu the answer lies within a few dozen: epsilon = mu z with z - mu/2 a normal quantile.
    low, high = Fraction(0), m / 2 + 1
    while _gdp_delta_high(m, m * high) > delta:
        low, high = high, high * 2
    grid = Fraction(1, 10**10)
    while high - low > grid:
        middle = Fraction(math.floor((low + high) / 2 / grid)) * grid
        low, high = (middle, high) if _gdp_delta_high(m, m * middle) > delta else (low, middle)
    return exact(m * high)


def _gdp_delta_high(mu: Fraction, epsilon: Fraction) -> Fraction:
    first = normal_cdf(-epsilon / mu + mu / 2)[1]
    second = normal_cdf(-epsilon / mu - mu / 2)[0]
    return first - Fraction(exp(epsilon).enclose().low) * second


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


def change_output(
    specification: Specification,
    *,
    to: OutputPremetric,
    method: str | None = None,
    at_distance: int | None = None,
) -> Derivation:
    """Return the specification for a weaker output premetric, or refuse with the reason.

    Approximate DP and Rényi DP grow faster than the distance, so from zCDP and Gaussian DP they
    hold for neighbours only: the result compares datasets at most ``at_distance`` apart (by default
    the nearest pair the multiverse has: 2 for swapping).
    """
    old = specification.output_premetric
    rule = _RULES.get((old.name, to.name))
    if method is not None and (rule is not None or old == to):
        _check_method(method, rule.methods if rule is not None else ())
    if old == to:
        return Derivation(specification=specification)
    if rule is None:
        raise refused(
            f"{old.classic} gives no {to.classic}: {_why_not(old, to)}",
            where="output_premetric",
            remedy=_possible(old),
        )
    start = Derivation(specification=specification)
    if rule.neighbours_only and specification.input_premetric.is_metric:
        within = at_distance if at_distance is not None else specification.multiverse.nearest
        start = to_neighbours(specification, within=within)
    prepared = start.specification
    value, theorem, formula = rule.compute(prepared, to, method)
    policy = derived(formula, value, specification.budget)
    after = prepared.with_flavor(output_premetric=to).with_budget(Budget(policy=policy))
    used = prepared.multiverse.nearest_because if (old.name, to.name) == ("D_Mult", "D_NoR") else ""
    step = stepped(
        prepared, after, action=f"measure by {to.symbol} instead of {old.symbol}", theorem=theorem, assuming=used
    )
    return start.then(step)


_Computed = tuple[Exact, str, str]


@dataclass(frozen=True, slots=True)
class _Rule:
    compute: Callable[[Specification, OutputPremetric, str | None], _Computed]
    neighbours_only: bool = False
    methods: tuple[str, ...] = ()


def _pure_to_zcdp(spec: Specification, _to: OutputPremetric, method: str | None) -> _Computed:
    chosen, nearest = method or "sharp", spec.multiverse.nearest if spec.input_premetric.is_metric else 1
    value = pure_to_rho2(spec.budget.realised, nearest=nearest, method=chosen)
    if chosen == "bun-steinke":
        return value, "Bun and Steinke 2016, Proposition 1.4", "epsilon^2/2"
    return value, "sharp pure to zCDP (proved in our theory pages)", f"(epsilon/{nearest}) tanh({nearest} epsilon/2)"


def _looser_delta(spec: Specification, to: OutputPremetric, _method: str | None) -> _Computed:
    if to.delta < spec.output_premetric.delta:
        raise refused(
            f"delta cannot be made smaller ({spec.output_premetric.delta} -> {to.delta})",
            where="delta",
            remedy="start from a flavor with a smaller delta, or from zCDP",
        )
    return spec.budget.realised, "D_Mult^delta falls in delta", "the same epsilon"


def _zcdp_to_approximate(spec: Specification, to: OutputPremetric, method: str | None) -> _Computed:
    chosen = method or "bun-steinke"
    value = zcdp_to_epsilon(spec.budget.realised, delta=to.delta, method=chosen)
    theorems = {"bun-steinke": "Bun and Steinke 2016, Proposition 1.3",
                "cks": "Canonne, Kamath and Steinke 2020, Proposition 12"}  # fmt: skip
    return value, theorems[chosen], f"{chosen} conversion of rho^2 = {spec.budget.shown}"


def _zcdp_to_renyi(spec: Specification, to: OutputPremetric, _method: str | None) -> _Computed:
    assert to.order is not None
    return to.order * spec.budget.realised, "definition of zCDP (Appendix G)", "order x rho^2"


def _renyi_to_approximate(spec: Specification, to: OutputPremetric, _method: str | None) -> _Computed:
    order = spec.output_premetric.order
    assert order is not None
    value = spec.budget.realised + ln(1 / _checked_delta(to.delta)) / (order - 1)
    return value, "Mironov 2017, Proposition 3", "epsilon + ln(1/delta)/(order - 1)"


def _gdp_to_approximate(spec: Specification, to: OutputPremetric, _method: str | None) -> _Computed:
    value = gdp_to_epsilon(spec.budget.realised, delta=to.delta)
    return value, "Dong, Roth and Su 2022, Corollary 1", f"Gaussian trade-off curve of mu = {spec.budget.shown}"


def _pure_to_renyi(spec: Specification, to: OutputPremetric, _method: str | None) -> _Computed:
    """Return the smaller of two bounds: D_a <= D_infinity, and a times the sharp zCDP bound for distance 1.

    The second grows with the square of the distance, so it is used for neighbours only.
    """
    assert to.order is not None
    epsilon = spec.budget.realised
    if spec.input_premetric.is_metric:
        return epsilon, "the Rényi divergence grows with its order up to D_Mult", "the same epsilon"
    bound = to.order * pure_to_rho2(epsilon)
    value = epsilon if epsilon.is_infinite or epsilon <= bound else bound
    return value, "D_a <= D_Mult, and D_a <= a x rho^2 (theory pages)", "min(epsilon, order x epsilon tanh(epsilon/2))"


def _approximate_to_tv(spec: Specification, _to: OutputPremetric, _method: str | None) -> _Computed:
    epsilon, delta = spec.budget.realised, spec.output_premetric.delta
    theorem = "Kairouz, Oh and Viswanath 2017 (error region of a test)"
    if epsilon.is_infinite:
        return exact(1), theorem, "1"
    ratio = exp(epsilon)
    return (ratio - 1 + 2 * delta) / (ratio + 1), theorem, "(e^eps - 1 + 2 delta)/(e^eps + 1)"


def _zcdp_to_tv(spec: Specification, _to: OutputPremetric, _method: str | None) -> _Computed:
    value = at_most_one(sqrt(spec.budget.realised / 2))
    return value, "Pinsker's inequality, order 1 of D_NoR", "rho/sqrt(2), at most 1"


def _gdp_to_tv(spec: Specification, _to: OutputPremetric, _method: str | None) -> _Computed:
    if spec.budget.realised.is_infinite:
        return exact(1), "distance of two unit normals", "1"
    half = Fraction(spec.budget.realised.enclose().high) / 2
    return exact(2 * normal_cdf(half)[1] - 1), "distance of two unit normals", "2 Phi(mu/2) - 1"


def at_most_one(value: Exact) -> Exact:
    """Return the value, or 1 if it is above: total variation never exceeds 1."""
    return exact(1) if value > exact(1) else value


# Theorems of one line, each with its formula.
_CORNER: Final = ("corner of the trade-off curve (theory pages)", "2 Phi^-1(e^eps/(1+e^eps))")
_NORMAL: Final = ("Rényi divergence of the normal (Dong, Roth and Su 2022, Corollary B.6)", "mu^2/2")
_RULES: Final[dict[tuple[str, str], _Rule]] = {
    ("D_Mult", "D_NoR"): _Rule(_pure_to_zcdp, methods=_TO_ZCDP),
    ("D_Mult", "D_Mult^delta"): _Rule(lambda s, *_: (s.budget.realised, "D_Mult^delta <= D_Mult", "the same epsilon")),
    ("D_Mult", "D_GDP"): _Rule(lambda s, *_: (pure_to_mu(s.budget.realised), *_CORNER)),
    ("D_Mult", "D_Renyi"): _Rule(_pure_to_renyi),
    ("D_Mult", "D_TV"): _Rule(_approximate_to_tv),
    ("D_Mult^delta", "D_Mult^delta"): _Rule(_looser_delta),
    ("D_Mult^delta", "D_TV"): _Rule(_approximate_to_tv),
    ("D_NoR", "D_Mult^delta"): _Rule(_zcdp_to_approximate, neighbours_only=True, methods=_TO_APPROXIMATE),
    ("D_NoR", "D_Renyi"): _Rule(_zcdp_to_renyi, neighbours_only=True),
    ("D_NoR", "D_TV"): _Rule(_zcdp_to_tv),
    ("D_Renyi", "D_Mult^delta"): _Rule(_renyi_to_approximate),
    ("D_GDP", "D_Mult^delta"): _Rule(_gdp_to_approximate, neighbours_only=True),
    ("D_GDP", "D_NoR"): _Rule(lambda s, *_: (s.budget.realised * s.budget.realised / 2, *_NORMAL)),
    ("D_GDP", "D_TV"): _Rule(_gdp_to_tv),
}


def _why_not(old: OutputPremetric, to: OutputPremetric) -> str:
    if old.name == "D_TV":
        return "total variation stays finite when an outcome gives a dataset away, the others do not"
    if to.name == "D_Mult":
        return "a rare output may still give a dataset away with certainty"
    if old.name == "D_Mult^delta" and to.name == "D_GDP":
        return "with probability delta anything may be revealed, which no Gaussian curve allows"
    if old.name == "D_Mult^delta":
        return "with probability delta anything may be revealed, which makes the Rényi divergence infinite"
    return "no theorem gives it for every mechanism"


def _possible(old: OutputPremetric) -> str:
    targets = sorted({to for start, to in _RULES if start == old.name and to != old.name})
    return f"from {old.symbol} one can go to {', '.join(targets)}" if targets else "keep it as it is"
