"""The distance between two laws of integer noise: exact where it can be, else in certified enclosures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from stirred.spec.exact import INFINITE, ZERO, add_up, exact, exp, largest, ln, sqrt
from stirred.spec.law import Law
from stirred.spec.normal import normal_quantile
from stirred.spec.output_premetric import Between, OutputPremetric
from stirred.spec.problems import refused, wrong
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Interval, Noise, OutputLaw, ShiftLaw, StagedLaw

Shifts = tuple[int, ...]

# Pooled outcomes of several numbers with Laplace noise; more take longer than an audit should.
_MOST_OUTCOMES: Final = 20_000
_NEARLY_ONE: Final = 1 + Fraction(1, 10**12)


def shift_distance(premetric: OutputPremetric, p: OutputLaw, q: OutputLaw) -> Between:
    """Return the distance between two laws of integer noise; what is not known is enclosed up to infinity."""
    if isinstance(p, StagedLaw) and isinstance(q, StagedLaw):
        if premetric.name != "D_NoR":
            return Between(ZERO, INFINITE)
        around = p.squared_distance(q)
        return Between.exactly(INFINITE) if around is None else Between(*(sqrt(exact(end)) for end in around))
    if not isinstance(p, ShiftLaw) or not isinstance(q, ShiftLaw):
        raise wrong(
            "a finite law and a law with integer noise are not compared",
            where="law",
            remedy="give the laws of all datasets in one form",
        )
    if len(p.centre) != len(q.centre):  # other spaces: infinitely far apart (Definition 2.4.16)
        return Between.exactly(INFINITE)
    if not p.agrees(q):
        return Between.exactly(INFINITE)
    same = p.same_noise(q)
    if not same:
        # The ratio of different tails has no bound, and large Rényi orders see nothing else.
        unbounded = same is False and premetric.name in ("D_Mult", "D_NoR")
        return Between(INFINITE if unbounded else ZERO, INFINITE)
    by_noise: dict[Noise, list[int]] = {}
    for noise, k in zip(p.noises, p.shift(q), strict=True):
        if k:
            by_noise.setdefault(noise, []).append(abs(k))
    if not by_noise:
        return Between.exactly(ZERO)
    if p.fixed and any((isinstance(n, DiscreteGaussian), premetric.name) not in _CONDITIONED for n in by_noise):
        raise refused(
            f"noise that keeps sums is not compared under {premetric.name}",
            where="shift law",
            remedy="compare Gaussian noise under D_NoR and Laplace noise under D_Mult",
        )
    return _together(premetric, [(n, _between(premetric, n, tuple(sorted(own)))) for n, own in by_noise.items()])


def _together(premetric: OutputPremetric, parts: Sequence[tuple[Noise, Between]]) -> Between:
    """Combine the distances of numbers with different laws of noise, which are independent."""
    if len(parts) == 1:
        return parts[0][1]
    lows, highs = [part.low for _, part in parts], [part.high for _, part in parts]
    if premetric.name == "D_Mult":  # outputs that attain each ratio attain the product
        return Between(add_up(lows), add_up(highs))
    if premetric.name == "D_NoR":
        low, high = (sqrt(add_up(each * each for each in ends)) for ends in (lows, highs))
        # At order 2 Gaussian noise of every variance attains its distance; of others the largest is a lower bound.
        attained = all(isinstance(noise, DiscreteGaussian) for noise, _ in parts)
        return Between(low if attained else largest(lows), high)
    return Between(largest(lows), INFINITE)


@lru_cache(maxsize=1_000)
def _between(premetric: OutputPremetric, noise: Noise, shifts: Shifts) -> Between:
    """Many pairs of a universe differ by the same shifts."""
    if isinstance(noise, DiscreteLaplace):
        return _laplace(premetric, noise, shifts)
    return _GAUSSIAN[premetric.name](premetric, noise, shifts)


def _moved(_premetric: OutputPremetric, _noise: Noise, shifts: Shifts) -> Between:
    """A shifted law lies as far away as it was shifted: no transport of its mean is shorter."""
    return Between.exactly(exact(sum(shifts)))


def _laplace(premetric: OutputPremetric, noise: DiscreteLaplace, shifts: Shifts) -> Between:
    """Compare pooled finite laws, for a rational decay below and one above the true one.

    Noise that decays more slowly is noise that decays faster plus independent noise (a geometric variable
    with ratio a is one with ratio a' < a plus a mixture of 0 and a geometric one), so by post-processing
    every distance falls as the decay grows.
    """
    if premetric.name == "D_Mult":  # at z = 0 of each number, and nowhere is the ratio larger
        return Between.exactly(noise.loss * sum(shifts))
    if premetric.name == "D_W1":
        return _moved(premetric, noise, shifts)
    if math.prod(k + 1 for k in shifts) > _MOST_OUTCOMES:
        raise refused(
            f"shifts of {', '.join(map(str, shifts))} have too many outcomes to compare under {premetric.name}",
            where="shift law",
            remedy="audit datasets that are closer together",
        )
    low, high = noise.decay
    fast = premetric.distance(*_pooled(shifts, low))
    slow = fast if low == high else premetric.distance(*_pooled(shifts, high))
    return Between(slow.low, fast.high)


def _pooled(shifts: Shifts, decay: Fraction) -> tuple[Law, Law]:
    here, there = DiscreteLaplace.shifted(shifts[0], decay)
    for k in shifts[1:]:
        one, other = DiscreteLaplace.shifted(k, decay)
        here, there = here.times(one), there.times(other)
    return here, there


def _interval(value: Interval) -> Between:
    return Between(exact(max(value[0], Fraction(0))), exact(value[1]))


def _normalised_renyi(_premetric: OutputPremetric, noise: DiscreteGaussian, shifts: Shifts) -> Between:
    """D_a = a k^2/(2 variance) + ln(theta(a k)/theta(0))/(a-1), theta largest at whole numbers: a = 2 attains."""
    return Between.exactly(sqrt(exact(Fraction(sum(k * k for k in shifts)) / (2 * noise.variance))))


def _renyi(premetric: OutputPremetric, noise: DiscreteGaussian, shifts: Shifts) -> Between:
    a = premetric.order
    assert a is not None
    low = high = a * sum(k * k for k in shifts) / (2 * noise.variance)
    whole = noise.theta()
    for k in shifts:
        if (a * k).denominator > 1:
            part = noise.theta(a * k)
            low += _ln(part[0] / whole[1])[0] / (a - 1)
            high += min(_ln(part[1] / whole[0])[1], Fraction(0)) / (a - 1)
    return _interval((low, high))


def _kullback_leibler(_premetric: OutputPremetric, noise: DiscreteGaussian, shifts: Shifts) -> Between:
    """Half the squared shift over the variance parameter; order 2, where theta cancels as well, is twice that."""
    return Between.exactly(exact(Fraction(sum(k * k for k in shifts)) / (2 * noise.variance)))


def _hellinger(_premetric: OutputPremetric, noise: DiscreteGaussian, shifts: Shifts) -> Between:
    """The overlap of one number is exp(-k^2/(8 variance)) theta(k/2)/theta(0), and overlaps multiply."""
    low = high = Fraction(1)
    whole = noise.theta()
    for k in shifts:
        part, decay = noise.theta(Fraction(k, 2)), exp(Fraction(-k * k) / (8 * noise.variance)).enclose()
        low, high = low * Fraction(decay.low) * part[0] / whole[1], high * Fraction(decay.high) * part[1] / whole[0]
    return Between(sqrt(max(1 - high, Fraction(0))), sqrt(1 - low))


def _nearer(noise: DiscreteGaussian, k: int) -> tuple[Interval, Interval]:
    """Return the probabilities, from both laws, of the outputs nearer to the first centre."""
    c = (k + 1) // 2 - 1
    return noise.at_most(c), noise.at_most(c - k)


def _total_variation(_premetric: OutputPremetric, noise: DiscreteGaussian, shifts: Shifts) -> Between:
    found = [(p[0] - q[1], p[1] - q[0]) for p, q in (_nearer(noise, k) for k in shifts)]
    return _interval((max(low for low, _ in found), min(sum((high for _, high in found), Fraction(0)), Fraction(1))))


def _approximate(premetric: OutputPremetric, noise: DiscreteGaussian, shifts: Shifts) -> Between:
    found = [_delta_divergence(premetric.delta, noise, k) for k in shifts]
    if len(found) == 1:
        return found[0]
    return Between(largest([between.low for between in found]), INFINITE)  # the best number alone is a lower bound


def _delta_divergence(delta: Fraction, noise: DiscreteGaussian, k: int) -> Between:
    """Enclose the largest ln of (P(S) - delta)/Q(S), or 0; the best events are Z <= m (Neyman and Pearson)."""
    m = 0
    while noise.at_most(m)[0] > 0 and noise.at_most(m)[1] > delta:  # events below are too rare to count
        m -= 1
    low = high = Fraction(1)
    while True:
        p, q = noise.at_most(m), noise.at_most(m - k)
        if p[1] > delta and q[0] == 0:  # a delta this small is beyond our digits
            return Between(ln(low), INFINITE)
        if p[1] > delta:
            low, high = max(low, (p[0] - delta) / q[1]), max(high, (p[1] - delta) / q[0])
        # From here on the quotient is at most 1/Q(S), which falls with m.
        if q[0] > 0 and (rest := 1 / q[0]) <= max(low, _NEARLY_ONE):
            return Between(ln(low), ln(max(high, rest) if rest > low else high))
        m += 1


def _ln(value: Fraction) -> Interval:
    if abs(value - 1) < Fraction(1, 10**20):
        return 1 - 1 / value, value - 1
    around = ln(value).enclose()
    return Fraction(around.low), Fraction(around.high)


def _gaussian(_premetric: OutputPremetric, noise: DiscreteGaussian, shifts: Shifts) -> Between:
    """Give the mu of the event nearer to the first centre; no upper bound is known to us."""
    events = [_nearer(noise, k) for k in shifts]
    found = [normal_quantile(power[0])[0] - normal_quantile(level[1])[1] for power, level in events]
    return Between(exact(max(Fraction(0), *found)), INFINITE)


# What holds for noise conditioned on fixed sums as it does without (docs/theory/noise-inside.md, claims 1 and 2).
_CONDITIONED: Final = {(True, "D_NoR"), (True, "D_Mult"), (False, "D_Mult")}

_GAUSSIAN: Final[dict[str, Callable[[OutputPremetric, DiscreteGaussian, Shifts], Between]]] = {
    "D_Mult": lambda *_: Between.exactly(INFINITE),  # ln of the ratio is linear in the output
    "D_Mult^delta": _approximate,
    "D_NoR": _normalised_renyi,
    "D_Renyi": _renyi,
    "D_GDP": _gaussian,
    "D_TV": _total_variation,
    "D_KL": _kullback_leibler,
    "D_chi2": lambda *given: Between.exactly(exp(2 * _kullback_leibler(*given).high) - 1),
    "D_H": _hellinger,
    "D_W1": _moved,
    "D_Tr": lambda *_: Between(ZERO, INFINITE),  # a curve of straight pieces is not computed here
}
