"""Changing how change is measured: which output premetric gives which, by which theorem, and why others do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stirred.spec import convert_output as number
from stirred.spec.budget import Budget, derived
from stirred.spec.convert import to_neighbours
from stirred.spec.convert_output import at_most_one
from stirred.spec.exact import ZERO, Exact, exact, exp, ln, sqrt
from stirred.spec.normal import normal_cdf
from stirred.spec.output_premetric import (
    KINDS,
    KULLBACK_LEIBLER,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    OutputPremetric,
    is_open,
    is_pure,
    order_falls,
    why_not,
)
from stirred.spec.problems import ConversionRefusedError, refused
from stirred.spec.specification import Derivation, Specification, stepped
from stirred.spec.tradeoff import MOST_STEPS, TradeOff

Computed = tuple[Exact, str, str]  # the budget, the theorem, and the formula in words

# Odds above e^40 leave less than 1e-17 of any test; counting so little exactly would take very long fractions.
_SURE: Final = exact(40)


def to_curve(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    """Return how often the curve must be applied to cover the highest curve that the budget allows."""
    old, budget, curve = spec.output_premetric, spec.budget.realised, to.curve
    assert curve is not None
    theorem, formula = "Blackwell's theorem: the curve decides (theory pages)", f"applications of the curve {curve}"
    if budget.is_infinite:
        return budget, theorem, formula
    most = Fraction(budget.enclose().high) if not budget.is_rational else budget.rational
    steepest = curve.lines[0][0]
    if old.curve is not None:
        found = _repeated(spec)
    elif old.name in ("D_Mult", "D_Mult^delta") and budget > (_SURE if is_open(to) else MOST_STEPS * ln(steepest)):
        found = TradeOff.bounded([(1, 1)])  # nothing is excluded, as far as this curve can tell
    elif old.name == "D_GDP":
        slopes = {slope for slope, _ in curve.lines if slope > 1} | {Fraction(2) ** i for i in range(11)}
        found = TradeOff.gaussian(most, ratios=sorted(slopes))
    elif old.name == "D_TV":
        found = TradeOff.bounded([(1, min(most, Fraction(1)))])
    else:
        ratio = exp(budget)
        found = TradeOff.bounded([(ratio.rational if ratio.is_rational else Fraction(ratio.enclose().high), old.delta)])
    steps = curve.steps_to(found)
    if steps is None:
        raise refused(
            f"no {MOST_STEPS} applications of the curve {curve} cover what {spec.budget_text} allows",
            where="output_premetric",
            remedy="choose a higher curve",
        )
    return exact(steps), theorem, formula


def _repeated(spec: Specification) -> TradeOff:
    curve, steps = spec.output_premetric.curve, spec.budget.realised
    assert curve is not None
    if steps > MOST_STEPS:
        raise refused(
            f"a curve applied {steps.shown()} times is not computed",
            where="output_premetric",
            remedy=f"state a higher curve, applied at most {MOST_STEPS} times",
        )
    return curve.repeated(int(steps.enclose().low))


def from_curve(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    """Measure two laws that have the curve: no others with the promise are further apart (Theorem 2.5.5).

    A metric adds up over repetitions, because laws with distribution functions f, f(f), ... realise them.
    """
    curve, steps = spec.output_premetric.curve, spec.budget.realised
    assert curve is not None
    theorem, formula = "immune to post-processing, so a function of the curve (theory pages)", f"of the curve {curve}"
    if steps.is_infinite:
        return (exact(1) if to.at_most_one else steps), theorem, formula
    once = to.distance(*(curve if to.is_metric else _repeated(spec)).laws).high
    if once.is_infinite:
        raise refused(
            f"{spec.output_premetric.classic} gives no {to.classic}: {why_not(spec.output_premetric, to)}",
            where="output_premetric",
            remedy="choose a larger delta, or another measure",
        )
    value = (steps if to.is_metric else 1) * once
    if to.name == "D_NoR":
        value = value * value
    return (at_most_one(value) if to.at_most_one else value), theorem, formula


def change_output(
    specification: Specification,
    *,
    to: OutputPremetric,
    method: str | None = None,
    at_distance: int | None = None,
) -> Derivation:
    """Return the specification for a weaker output premetric, or refuse with the reason.

    Where no theorem leads there at once, several are applied one after the other. Bounds that grow faster than
    the distance (approximate and Rényi DP from zCDP, for example) hold for neighbours only: the result compares
    datasets at most ``at_distance`` apart (by default the nearest pair the multiverse has: 2 for swapping). So do
    bounds that fall more slowly, where distances below 1 exist (places on a map).
    """
    old = specification.output_premetric
    if old.name == "D_Max" != to.name and not specification.input_premetric.directed:
        both = specification.with_flavor(output_premetric=PURE)
        step = stepped(specification, both, action="measure both ways", theorem="the distance is the same both ways")
        return step.then(change_output(both, to=to, method=method, at_distance=at_distance))
    chain = _chain(old, to)
    if method is not None and chain is not None:
        number.check_method(method, _RULES[old.name, to.name].methods if len(chain) == 1 and old != to else ())
    budget = specification.budget
    if old != to and not old.delta and not budget.is_free and not budget.varies and budget.realised == 0:
        action = f"measure by {to.symbol} instead of {old.symbol}"
        after = specification.with_flavor(output_premetric=to)
        return stepped(specification, after, action=action, theorem="a distance of 0 means equal laws")
    if chain is None:
        raise _refusal(old, to)
    path = Derivation(specification=specification)
    for target in chain:
        path = path.then(_step(path.specification, target, method, at_distance))
    return path


def can_change_output(old: OutputPremetric, to: OutputPremetric) -> bool:
    """Say whether every finite budget in one gives a finite one in the other, at least between neighbours."""
    chain = _chain(old, to)
    pairs = zip([old, *(chain or ())], chain or (), strict=False)
    return chain is not None and all(_RULES[a.name, b.name].always(a, b) for a, b in pairs)


_BETWEEN: Final = (PURE, ZCDP, OutputPremetric(name="D_Renyi", order=Fraction(2)), KULLBACK_LEIBLER, TOTAL_VARIATION)


def _chain(old: OutputPremetric, to: OutputPremetric) -> tuple[OutputPremetric, ...] | None:
    """Return the shortest way from one to the other, without the start; None if there is none."""
    if old == to:
        return ()
    ways: list[tuple[OutputPremetric, ...]] = [()]
    for way in ways:
        here = way[-1] if way else old
        for target in (to, *_BETWEEN):
            rule = _RULES.get((here.name, target.name))
            if rule is not None and target not in (old, *way) and rule.when(here, target):
                if target == to:
                    return (*way, to)
                ways.append((*way, target))
    return None


def _step(specification: Specification, to: OutputPremetric, method: str | None, at: int | None) -> Derivation:
    old = specification.output_premetric
    rule = _RULES[old.name, to.name]
    start = Derivation(specification=specification)
    if _needs_neighbours(specification, to, rule):
        start = _to_neighbours(specification, to, at if at is not None else specification.multiverse.nearest)
    prepared = start.specification
    value, theorem, formula = rule.compute(prepared, to, method)
    policy = derived(formula, value, specification.budget)
    after = prepared.with_flavor(output_premetric=to).with_budget(Budget(policy=policy))
    used = prepared.multiverse.nearest_because if (old.name, to.name) == ("D_Mult", "D_NoR") else ""
    action = f"measure by {to.symbol} instead of {old.symbol}"
    return start.then(stepped(prepared, after, action=action, theorem=theorem, assuming=used))


def _needs_neighbours(specification: Specification, to: OutputPremetric, rule: _Rule) -> bool:
    """Say whether the bound for one unit of distance does not hold, times the distance, at every distance there is."""
    if specification.input_premetric.one_step:
        return False
    faster = rule.neighbours_only or (not to.is_metric and specification.output_premetric.name == "D_Tr")
    return faster or (not rule.at_any_distance(to) and _nearest(specification) < 1)


def _to_neighbours(specification: Specification, to: OutputPremetric, within: int) -> Derivation:
    premetric = specification.input_premetric
    if premetric.is_metric and (premetric.counts or premetric.name == "d_Euclid"):
        return to_neighbours(specification, within=within)
    raise refused(
        f"{to.classic} does not grow as the distance does, and by {premetric.symbol} not all datasets compared are 1 "
        "apart",
        where="output_premetric",
        remedy="state the promise for a relation of neighbours, each 1 apart, and convert that",
    )


def _nearest(specification: Specification) -> Exact:
    """Return the smallest distance between different datasets, as far as it is known; else 0."""
    nearest, premetric = specification.multiverse.nearest, specification.input_premetric
    # A table or a shortest path may be shorter than the stated bound: what it says itself counts.
    own = premetric.least if premetric.table or premetric.closure else None
    return exact(nearest) if nearest > 1 and (own is None or own >= nearest) else premetric.least


@dataclass(frozen=True, slots=True)
class _Rule:
    """A theorem; ``when`` says for which parameters it holds, ``always`` for which it does whatever the budget is.

    A bound for one unit of distance holds, times the distance, from 1 upwards; if it is ``linear``, below 1 too.
    """

    compute: Callable[[Specification, OutputPremetric, str | None], Computed]
    neighbours_only: bool = False
    linear: bool = False
    methods: tuple[str, ...] = ()
    when: Callable[[OutputPremetric, OutputPremetric], bool] = lambda _old, _to: True
    always: Callable[[OutputPremetric, OutputPremetric], bool] = lambda _old, _to: True

    def at_any_distance(self, to: OutputPremetric) -> bool:
        """Say whether the bound holds below distance 1; what was cut off at 1 is too small there."""
        return self.linear and not to.at_most_one


def _plain(
    convert: Callable[[Exact], Exact], theorem: str, formula: str, *, near: bool = False, linear: bool = False
) -> _Rule:
    """Return the rule by which a budget alone decides."""
    return _Rule(lambda spec, *_: (convert(spec.budget.realised), theorem, formula), near, linear)


def _pure_to_zcdp(spec: Specification, _to: OutputPremetric, method: str | None) -> Computed:
    nearest = exact(1) if spec.input_premetric.one_step else _nearest(spec)
    chosen = method or ("sharp" if nearest > 0 else "bun-steinke")
    if chosen == "sharp" and nearest == 0:
        raise refused(
            f"by {spec.input_premetric.symbol} datasets may be as near as one likes, and there only epsilon^2/2 holds",
            where="method",
            remedy="choose bun-steinke",
        )
    value = number.pure_to_rho2(spec.budget.realised, nearest=nearest, method=chosen)
    if chosen == "bun-steinke":
        return value, "Bun and Steinke 2016, Proposition 1.4", "epsilon^2/2"
    return value, "sharp pure to zCDP (proved in our theory pages)", f"(epsilon/{nearest}) tanh({nearest} epsilon/2)"


def _pure_to_kl(spec: Specification, _to: OutputPremetric, _method: str | None) -> Computed:
    if not spec.input_premetric.one_step:
        return spec.budget.realised, "the average of a logarithm is at most the largest one", "the same epsilon"
    return (
        number.pure_to_rho2(spec.budget.realised),
        "randomised response is extremal (theory pages)",
        "eps tanh(eps/2)",
    )


def _to_approximate(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    """Return the same epsilon, which holds at every distance; between neighbours a smaller one is enough."""
    if not spec.input_premetric.one_step:
        return spec.budget.realised, "D_Mult^delta falls in delta", "the same epsilon"
    value = number.pure_to_epsilon(spec.budget.realised, delta=spec.output_premetric.delta, more=to.delta)
    if value == spec.budget.realised:
        return value, "D_Mult^delta falls in delta", "the same epsilon"
    return value, "randomised response is extremal (theory pages)", "ln(e^eps - c (1 + e^eps))"


def _zcdp_to_approximate(spec: Specification, to: OutputPremetric, method: str | None) -> Computed:
    chosen = method or "bun-steinke"
    value = number.zcdp_to_epsilon(spec.budget.realised, delta=to.delta, method=chosen)
    theorems = {"bun-steinke": "Bun and Steinke 2016, Proposition 1.3",
                "cks": "Canonne, Kamath and Steinke 2020, Proposition 12"}  # fmt: skip
    return value, theorems[chosen], f"{chosen} conversion of rho^2 = {spec.budget.shown}"


def _zcdp_to_renyi(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    assert to.order is not None
    return to.order * spec.budget.realised, "definition of zCDP (Appendix G)", "order x rho^2"


def _renyi_to_approximate(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    order = spec.output_premetric.order
    assert order is not None
    value = spec.budget.realised + ln(1 / number.checked_delta(to.delta)) / (order - 1)
    return value, "Mironov 2017, Proposition 3", "epsilon + ln(1/delta)/(order - 1)"


def _gdp_to_approximate(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    value = number.gdp_to_epsilon(spec.budget.realised, delta=to.delta)
    return value, "Dong, Roth and Su 2022, Corollary 1", f"Gaussian trade-off curve of mu = {spec.budget.shown}"


def _kl_to_approximate(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    """Bound ln(p/q) of an event with p above delta: KL is at least p (ln(p/q) - 1), as (1-p) ln(1-p) >= -p."""
    value = ZERO if spec.budget.realised == 0 else 1 + spec.budget.realised / number.checked_delta(to.delta)
    return value, "an event of probability delta or more (theory pages)", "1 + KL/delta"


def _tv_to_approximate(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    tau = spec.budget.realised
    if tau > exact(to.delta):
        raise refused(
            f"a total variation of {tau.shown()} gives approximate differential privacy only from delta "
            f"{tau.shown()} upwards: outputs of that probability in all may be possible under one dataset alone",
            where="output_premetric",
            remedy="choose a larger delta, or start from a measure that forbids such outputs",
        )
    return ZERO, "total variation tau is D_Mult^tau of 0 (theory pages)", "0"


def _pure_to_renyi(spec: Specification, to: OutputPremetric, _method: str | None) -> Computed:
    """Return the sharp bound between neighbours; at large distances it tends to epsilon for each unit."""
    assert to.order is not None
    epsilon = spec.budget.realised
    if not spec.input_premetric.one_step:
        return epsilon, "the Rényi divergence grows with its order up to D_Mult", "the same epsilon"
    value = number.pure_to_renyi(epsilon, order=to.order)
    return value, "randomised response is extremal (theory pages)", "its Rényi divergence"


def _approximate_to_tv(spec: Specification, _to: OutputPremetric, _method: str | None) -> Computed:
    epsilon, delta = spec.budget.realised, spec.output_premetric.delta
    theorem = "Kairouz, Oh and Viswanath 2017 (error region of a test)"
    if epsilon.is_infinite:
        return exact(1), theorem, "1"
    ratio = exp(epsilon)
    return (ratio - 1 + 2 * delta) / (ratio + 1), theorem, "(e^eps - 1 + 2 delta)/(e^eps + 1)"


def _gdp_to_tv(spec: Specification, _to: OutputPremetric, _method: str | None) -> Computed:
    if spec.budget.realised.is_infinite:
        return exact(1), "distance of two unit normals", "1"
    half = Fraction(spec.budget.realised.enclose().high) / 2
    return exact(2 * normal_cdf(half)[1] - 1), "distance of two unit normals", "2 Phi(mu/2) - 1"


# Theorems of one line, each with its formula.
_CORNER: Final = ("corner of the trade-off curve (theory pages)", "2 Phi^-1(e^eps/(1+e^eps))")
_TWO_BOUNDS: Final = (
    "power of a test under zCDP (theory pages)",
    "2 Phi^-1(1-a), sqrt(ln 1/a) - sqrt(ln 1/(1-a)) = rho",
)
_NORMAL: Final = ("Rényi divergence of the normal (Dong, Roth and Su 2022, Corollary B.6)", "mu^2/2")
_BOTH_WAYS: Final = ("divergences both ways (theory pages)", "tanh(e/2) with e tanh(e/2) the divergence")
_AFFINITY: Final = "the overlap is at least exp(-KL/2)"
_ORDERS: Final = "the Rényi divergence grows with its order"
_TWO: Final = ("order 2 of the Rényi divergence", "e^D - 1")


_RULES: Final[dict[tuple[str, str], _Rule]] = {
    ("D_Mult", "D_NoR"): _Rule(_pure_to_zcdp, linear=True, methods=number.TO_ZCDP),
    ("D_Mult", "D_Max"): _plain(
        lambda epsilon: epsilon, "the larger of two directions", "the same epsilon", linear=True
    ),
    ("D_Max", "D_TV"): _plain(number.one_way_to_tv, "no event is below e^-eps times as probable", "1 - e^-eps"),
    ("D_Mult", "D_Mult^delta"): _Rule(_to_approximate, linear=True),
    ("D_Mult", "D_GDP"): _plain(number.pure_to_mu, *_CORNER),
    ("D_Mult", "D_Renyi"): _Rule(_pure_to_renyi, linear=True),
    ("D_Mult", "D_TV"): _Rule(_approximate_to_tv),
    ("D_Mult", "D_KL"): _Rule(_pure_to_kl, linear=True),
    ("D_Mult", "D_H"): _plain(number.pure_to_hellinger, "randomised response is extremal", "sqrt(1 - sech(eps/2))"),
    ("D_Mult", "D_chi2"): _plain(number.pure_to_chi2, "randomised response is extremal", "4 sinh(eps/2)^2", near=True),
    ("D_Mult^delta", "D_Mult^delta"): _Rule(_to_approximate, linear=True, when=lambda old, to: to.delta >= old.delta),
    ("D_Mult^delta", "D_TV"): _Rule(_approximate_to_tv),
    ("D_NoR", "D_Mult^delta"): _Rule(_zcdp_to_approximate, neighbours_only=True, methods=number.TO_APPROXIMATE),
    ("D_NoR", "D_Renyi"): _Rule(_zcdp_to_renyi, neighbours_only=True),
    ("D_NoR", "D_GDP"): _plain(number.zcdp_to_mu, *_TWO_BOUNDS, near=True),
    ("D_NoR", "D_TV"): _plain(number.kl_to_tv, *_BOTH_WAYS),
    ("D_NoR", "D_KL"): _plain(lambda rho2: rho2, "order 1 of D_NoR", "rho^2", near=True),
    ("D_NoR", "D_H"): _plain(lambda rho2: number.overlap_to_hellinger(rho2 / 2), _AFFINITY, "sqrt(1 - e^(-rho^2/2))"),
    ("D_NoR", "D_chi2"): _plain(lambda rho2: number.renyi_to_chi2(2 * rho2), *_TWO, near=True),
    ("D_Renyi", "D_Mult^delta"): _Rule(_renyi_to_approximate),
    ("D_Renyi", "D_Renyi"): _Rule(
        lambda s, *_: (s.budget.realised, _ORDERS, "the same epsilon"), linear=True, when=order_falls
    ),
    ("D_Renyi", "D_KL"): _plain(lambda epsilon: epsilon, _ORDERS, "the same epsilon", linear=True),
    ("D_Renyi", "D_chi2"): _Rule(
        lambda s, *_: (number.renyi_to_chi2(s.budget.realised), *_TWO), neighbours_only=True, when=order_falls
    ),
    ("D_GDP", "D_Mult^delta"): _Rule(_gdp_to_approximate, neighbours_only=True),
    ("D_GDP", "D_NoR"): _plain(lambda mu: mu * mu / 2, *_NORMAL, linear=True),
    ("D_GDP", "D_TV"): _Rule(_gdp_to_tv),
    ("D_GDP", "D_H"): _plain(
        lambda mu: number.overlap_to_hellinger(mu * mu / 8), "distance of two unit normals", "sqrt(1 - e^(-mu^2/8))"
    ),
    ("D_TV", "D_Mult^delta"): _Rule(_tv_to_approximate, neighbours_only=True, always=lambda *_: False),
    ("D_TV", "D_H"): _plain(lambda tau: sqrt(number.at_most_one(tau)), "H^2 is at most total variation", "sqrt(tau)"),
    ("D_KL", "D_Mult^delta"): _Rule(_kl_to_approximate),
    ("D_KL", "D_TV"): _plain(number.kl_to_tv, *_BOTH_WAYS),
    ("D_KL", "D_H"): _plain(lambda kl: number.overlap_to_hellinger(kl / 2), _AFFINITY, "sqrt(1 - e^(-KL/2))"),
    ("D_H", "D_TV"): _plain(number.hellinger_to_tv, "Cauchy and Schwarz (theory pages)", "H sqrt(2 - H^2)"),
    ("D_chi2", "D_Renyi"): _Rule(lambda s, *_: (ln(1 + s.budget.realised), _TWO[0], "ln(1 + chi^2)"), when=order_falls),
    ("D_chi2", "D_KL"): _plain(lambda chi2: ln(1 + chi2), _ORDERS, "ln(1 + chi^2)"),
    **{
        (name, "D_Tr"): _Rule(to_curve, neighbours_only=True, when=lambda old, to: is_open(to) or is_pure(old))
        for name in ("D_Mult", "D_Mult^delta", "D_GDP", "D_TV", "D_Tr")
    },
    **{
        ("D_Tr", name): _Rule(
            from_curve,
            linear=True,
            when=lambda old, to: is_open(to) or is_pure(old),
            always=lambda old, to: to.name != "D_Mult^delta" or is_pure(old),
        )
        for name in KINDS
        if name not in ("D_Tr", "D_W1")
    },
}


def _refusal(old: OutputPremetric, to: OutputPremetric) -> ConversionRefusedError:
    samples = [*_SAMPLES, *(OutputPremetric(name=name) for name in KINDS if name not in _PARAMETERS)]
    targets = sorted({sample.name for sample in samples if sample.name != old.name and _chain(old, sample)})
    return refused(
        f"{old.classic} gives no {to.classic}: {why_not(old, to)}",
        where="output_premetric",
        remedy=f"from {old.symbol} one can go to {', '.join(targets)}" if targets else "keep it as it is",
    )


_PARAMETERS: Final = ("D_Mult^delta", "D_Renyi", "D_Tr")
_SAMPLES: Final = (
    OutputPremetric(name="D_Mult^delta", delta=Fraction(1, 2)),
    OutputPremetric(name="D_Renyi", order=Fraction(3, 2)),
    OutputPremetric(name="D_Tr", curve=TradeOff.bounded([(1, Fraction(1, 2))])),
)
