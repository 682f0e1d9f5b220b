"""How far one record moves a weighted total, by setting; and the eleven settings side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Final

from stirred.spec.exact import Exact, exact, sqrt
from stirred.spec.given_numbers import Number, fraction, loss
from stirred.spec.problems import wrong
from stirred.survey.amplify import deamplify
from stirred.survey.refusals import DataDependentSensitivity, EmptyCell, UnboundedValues, WeightsNotFixed, refusal
from stirred.survey.settings import Setting, all_settings
from stirred.survey.unit_designs import Poisson

Ends = tuple[Number, Number]
CHANGES: Final = ("replaced", "value", "add-remove")


def ht_sensitivity(
    setting: Setting,
    *,
    weights: Ends,
    bounds: Ends | None,
    n: int,
    change: str = "replaced",
    adjusted: bool = False,
    realised: bool = False,
) -> Fraction:
    """Return how far one record moves a Horvitz-Thompson total of values within bounds and weights within theirs.

    ``adjusted`` weights include nonresponse or calibration; ``realised`` ones are those of the sample at hand.

    >>> ht_sensitivity(Setting("sample", "frame"), weights=("5/4", 2), bounds=(10, 20), n=2)
    Fraction(55, 2)
    """
    (low, high), (least, most) = _bounds(bounds), (fraction(w, where="weights") for w in weights)
    if not 0 < least <= most:
        raise wrong("weights are above 0, the smaller first", where="weights", remedy="such as 5,40")
    if n < 1:
        raise wrong(f"{n} is not a size of a sample", where="n", remedy="write 1 or more")
    if change not in CHANGES:
        raise wrong(f"there is no change {change!r}", where="change", remedy=" or ".join(CHANGES))
    if adjusted and setting.weights_fixed:
        raise refusal(
            WeightsNotFixed, "weights adjusted for nonresponse or calibrated are never fixed", where="weights",
            remedy="calibrate after the noise, or declare the counts of the classes as invariant",
        )  # fmt: skip
    if realised and setting.invariant != "sample":
        raise refusal(
            DataDependentSensitivity, "the largest weight is read from the sample, and another sample has another one",
            where="weights", remedy="give the largest weight of the frame, or hold the sample fixed",
        )  # fmt: skip
    size = max(abs(low), abs(high))
    if change == "value" and setting.weights_fixed:
        return most * (high - low)
    moved = [w * x for w, x in product((least, most), (low, high))]
    one = most * size if change == "add-remove" else max(moved) - min(moved)
    return one if setting.weights_fixed else one + (n - 1) * (most - least) * size


def poststrat_sensitivity(
    N: Sequence[Number], n: Sequence[int], *, bounds: Ends | None, floor: int | None = None, public: bool = False
) -> Fraction:
    """Return how far one record moves a post-stratified total, with N[h] units in the population and n[h] sampled.

    With ``public`` counts a record stays in its cell. With a public ``floor`` under all counts the result holds for
    every sample; otherwise it holds at these counts only, which are confidential.

    >>> poststrat_sensitivity((100, 200), (10, 20), bounds=(0, 1), public=True)
    Fraction(10, 1)
    """
    low, high = _bounds(bounds)
    sizes, reach = [fraction(size, where="N") for size in N], high - low
    if len(sizes) != len(n) or not sizes or min(sizes) <= 0 or min(n) < 1 or (floor is not None and floor < 1):
        raise wrong("every cell needs a size and a count above 0", where="n", remedy="as many numbers in n as in N")
    if floor is not None and min(n) < floor:
        raise wrong(f"a count is below the floor {floor}", where="floor", remedy="collapse cells, or lower it")
    before = [floor or count for count in n]
    stay = [size * reach / count for size, count in zip(sizes, before, strict=True)]
    if public or len(sizes) == 1:
        return max(s * reach / c for s, c in zip(sizes, n, strict=True)) if public else max(stay)
    if floor is None and min(n) == 1:
        raise refusal(
            EmptyCell, "a post-stratum has one sampled member, and could lose it", where="n",
            remedy="collapse it with another one, or declare the counts with --counts public",
        )  # fmt: skip
    left = [size * reach / (floor + 1) for size in sizes] if floor else stay
    entered = [size * reach / (count + 1) for size, count in zip(sizes, before, strict=True)]
    return max(*stay, *(left[h] + entered[g] for h in range(len(n)) for g in range(len(n)) if g != h))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingNoise:
    """One setting for a Horvitz-Thompson total: the noise that it needs for the same loss."""

    setting: Setting
    sensitivity: Fraction
    inner: Exact
    amplified: bool

    @property
    def not_covered(self) -> tuple[str, ...]:
        """List attackers before whom the loss does not hold: none where the draw is not counted."""
        return self.setting.not_covered if self.amplified else ()

    @property
    def scale(self) -> Exact:
        """Return the scale of the Laplace noise."""
        return exact(self.sensitivity) / self.inner

    @property
    def sd(self) -> Exact:
        """Return its standard deviation."""
        return sqrt(2) * self.scale


def compare_settings(
    *, n: int, weights: Ends, bounds: Ends | None, epsilon: Number, estimator: str = "any"
) -> tuple[SettingNoise, ...]:
    """Return the eleven settings with the noise that each needs; sampling amplifies by the largest rate, 1/w.

    Weights that vary with the frame amplify nothing: a unit that was not drawn changes the weights of those that were.
    ``estimator`` "ht-total" counts the sharper rule for the eleventh, where weights are fixed.

    >>> rows = compare_settings(n=1000, weights=(10, 10), bounds=(0, 1), epsilon=1)
    >>> rows[5].scale.shown(), rows[1].scale.shown()
    ('10', '3.45')
    """
    wanted, rows = loss(epsilon, where="epsilon"), []
    alike = fraction(weights[0], where="weights") == fraction(weights[1], where="weights")
    for setting in all_settings():
        sensitivity, inner = ht_sensitivity(setting, weights=weights, bounds=bounds, n=n), wanted
        amplified = "sampling" in setting.amplifiers and (alike or setting.weights_fixed)
        if amplified:
            rarest = estimator == "ht-total" and setting.weights_fixed
            rate = 1 / fraction(weights[1 if rarest else 0], where="weights")
            if rate > 1:
                raise wrong("a weight is below 1", where="weights", remedy="a design weight is 1 over a probability")
            inner = deamplify(wanted, Poisson((rate,)))
        rows.append(SettingNoise(setting=setting, sensitivity=sensitivity, inner=inner, amplified=amplified))
    return tuple(rows)


def _bounds(bounds: Ends | None) -> tuple[Fraction, Fraction]:
    if bounds is None or any(str(end).strip().lower() in ("inf", "-inf", "nan", "") for end in bounds):
        raise refusal(UnboundedValues, "a value has no public bound", where="bounds", remedy="such as --bounds 0,1")
    low, high = (fraction(end, where="bounds") for end in bounds)
    if low > high:
        raise wrong("the lower bound is above the upper one", where="bounds", remedy="such as 0,1")
    return low, high
