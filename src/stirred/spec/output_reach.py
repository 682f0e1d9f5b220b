"""What a finite budget of an output premetric allows, and so why it gives no bound by another one."""

from __future__ import annotations

from fractions import Fraction

from stirred.spec.output_premetric import OutputPremetric


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
