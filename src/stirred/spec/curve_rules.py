"""Trade-off curves from and to other output premetrics: the numbers, each with its theorem."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from stirred.spec.convert_output import at_most_one
from stirred.spec.exact import Exact, exact, exp, ln
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.output_reach import is_open, why_not
from stirred.spec.problems import refused
from stirred.spec.specification import Specification
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
