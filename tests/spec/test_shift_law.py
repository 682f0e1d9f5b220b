"""Laws of integer noise: their distances are those of long finite pieces, and of closed forms."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from stirred.spec.exact import INFINITE, Exact, exact, ln, sqrt
from stirred.spec.output_premetric import (
    CHI_SQUARED,
    GDP,
    HELLINGER,
    KULLBACK_LEIBLER,
    PURE,
    TOTAL_VARIATION,
    WASSERSTEIN,
    ZCDP,
    Between,
    OutputPremetric,
    approximate,
    trade_off,
)
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise, ShiftLaw
from stirred.spec.tradeoff import TradeOff

RENYI = OutputPremetric(name="D_Renyi", order=Fraction(5, 2))
NOISES: list[Noise] = [
    DiscreteLaplace("ln(3)"),
    DiscreteLaplace("1/2"),
    DiscreteLaplace("2"),
    DiscreteGaussian(1),
    DiscreteGaussian("1/3"),
    DiscreteGaussian("9/2"),
]


def mass(noise: Noise, reach: int = 120) -> list[float]:
    """The noise by plain floating point, cut where nothing is left."""
    if isinstance(noise, DiscreteLaplace):
        weights = [math.exp(-float(noise.loss) * abs(z)) for z in range(-reach, reach + 1)]
    else:
        weights = [math.exp(-(z**2) / (2 * float(noise.variance))) for z in range(-reach, reach + 1)]
    return [w / math.fsum(weights) for w in weights]


def pairs(noise: Noise, k: int) -> list[tuple[float, float]]:
    p = mass(noise)
    return [*zip(p[k:], p[: len(p) - k], strict=True)]


def by_floats(premetric: OutputPremetric, noise: Noise, k: int) -> float:
    both = [(p, q) for p, q in pairs(noise, k) if p > 1e-290 and q > 1e-290]
    if premetric == TOTAL_VARIATION:
        return math.fsum(abs(p - q) for p, q in both) / 2
    if premetric.name == "D_Renyi":
        a = float(premetric.order or 0)
        return math.log(math.fsum(math.exp(a * math.log(p) + (1 - a) * math.log(q)) for p, q in both)) / (a - 1)
    if premetric == ZCDP:
        orders = [1 + 1.01**j / 1000 for j in range(1000)]
        logs = [(math.log(p), math.log(q)) for p, q in both]

        def ratio(a: float) -> float:
            parts = [a * p + (1 - a) * q for p, q in logs]
            top = max(parts)
            return (top + math.log(math.fsum(math.exp(part - top) for part in parts))) / (a - 1) / a

        limit = math.fsum(math.exp(p) * (p - q) for p, q in logs)  # as the order falls to 1
        return math.sqrt(max(limit, *(ratio(a) for a in orders)))
    best, here, there = 0.0, 0.0, 0.0
    for p, q in sorted(both, key=lambda pair: pair[0] / pair[1], reverse=True):
        here, there = here + p, there + q
        if here > premetric.delta:
            best = max(best, math.log((here - float(premetric.delta)) / there))
    return best


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("premetric", [TOTAL_VARIATION, RENYI, ZCDP, approximate("1/100")], ids=lambda p: p.name)
def test_distances_agree_with_plain_floating_point(premetric: OutputPremetric, k: int, noise: Noise) -> None:
    found = premetric.distance(ShiftLaw(7, noise), ShiftLaw(7 - k, noise))
    wanted = by_floats(premetric, noise, k)
    slack = 2e-5 if premetric == ZCDP else 1e-9  # the grid of orders of the oracle is coarse, and from below
    assert float(found.low) - 1e-9 <= wanted + slack
    assert wanted <= float(found.high) + slack
    assert float(found.high) - float(found.low) <= 1e-5


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("k", [1, 3])
def test_rarer_measures_agree_with_plain_floating_point(k: int, noise: Noise) -> None:
    both = [(p, q) for p, q in pairs(noise, k) if p > 1e-290 and q > 1e-290]
    wanted = {
        KULLBACK_LEIBLER: math.fsum(p * math.log(p / q) for p, q in both),
        HELLINGER: math.sqrt(1 - math.fsum(math.sqrt(p * q) for p, q in both)),
        CHI_SQUARED: math.fsum((p - q) / q * (p - q) for p, q in both),
        WASSERSTEIN: float(k),
    }
    for premetric, value in wanted.items():
        found = premetric.distance(ShiftLaw(7, noise), ShiftLaw(7 - k, noise))
        assert float(found.low) == pytest.approx(value, rel=1e-9)
        assert float(found.high) == pytest.approx(value, rel=1e-9)
    curve = trade_off(TradeOff.bounded([(3, 0)])).distance(ShiftLaw(0, noise), ShiftLaw(1, noise))
    if noise == DiscreteLaplace("ln(3)"):
        assert curve == exactly(exact(1))
    elif isinstance(noise, DiscreteGaussian):
        assert curve == Between(exact(0), INFINITE)


def test_a_very_large_chi_squared_distance_is_not_taken_for_an_infinite_one() -> None:
    found = CHI_SQUARED.distance(ShiftLaw(0, DiscreteGaussian("1/3")), ShiftLaw(5, DiscreteGaussian("1/3")))
    assert float(found.low) == pytest.approx(math.exp(75), rel=1e-9)


def exactly(value: Exact) -> Between:
    return Between(value, value)


def test_what_is_exact_is_exact() -> None:
    half, third = DiscreteLaplace("1/2"), DiscreteGaussian(3)
    assert PURE.distance(ShiftLaw(0, half), ShiftLaw(3, half)) == exactly(exact("3/2"))
    assert PURE.distance(ShiftLaw((0, 5), half), ShiftLaw((3, 4), half)) == exactly(exact(2))
    assert ZCDP.distance(ShiftLaw(0, third), ShiftLaw(-2, third)) == exactly(sqrt(Fraction(2, 3)))
    assert ZCDP.distance(ShiftLaw((0, 0), third), ShiftLaw((1, 1), third)) == exactly(sqrt(Fraction(1, 3)))
    assert PURE.distance(ShiftLaw(0, third), ShiftLaw(1, third)) == exactly(INFINITE)
    assert PURE.distance(ShiftLaw(4, third), ShiftLaw(4, third)) == exactly(exact(0))


def test_two_sided_geometric_noise_shifted_by_one_is_randomised_response() -> None:
    """R17: the pair attains epsilon tanh(epsilon/2) in rho squared."""
    noise = DiscreteLaplace("ln(3)")
    found = ZCDP.distance(ShiftLaw(0, noise), ShiftLaw(1, noise))
    rho2 = math.log(3) * math.tanh(math.log(3) / 2)
    assert float(found.low) ** 2 <= rho2 * (1 + 1e-12)
    assert rho2 <= float(found.high) ** 2 * (1 + 1e-12)
    assert TOTAL_VARIATION.distance(ShiftLaw(0, noise), ShiftLaw(1, noise)) == exactly(exact("1/2"))


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_log_ratios_are_those_of_the_noise(noise: Noise) -> None:
    here, there = ShiftLaw(2, noise), ShiftLaw(5, noise)
    p = mass(noise)
    for t in range(-3, 9):
        wanted = math.log(p[120 + t - 2] / p[120 + t - 5])
        assert float(here.log_ratio(there, (t,))) == pytest.approx(wanted, abs=1e-9)
    assert DiscreteLaplace("ln(2)").log_ratio(0, shift=1) == ln(2)


def test_several_numbers_with_gaussian_noise_are_enclosed_from_below_by_one_of_them() -> None:
    noise = DiscreteGaussian(2)
    one, both = ShiftLaw((1, 0), noise), ShiftLaw((1, 1), noise)
    origin = ShiftLaw((0, 0), noise)
    single, double = (approximate("1/100").distance(origin, law) for law in (one, both))
    assert double.low == single.low
    assert double.high.is_infinite
    tv = TOTAL_VARIATION.distance(origin, both)
    assert TOTAL_VARIATION.distance(origin, one).low <= tv.low < tv.high <= exact(1)


def test_gaussian_dp_of_gaussian_noise_is_only_bounded_from_below() -> None:
    found = GDP.distance(ShiftLaw(0, DiscreteGaussian(100)), ShiftLaw(1, DiscreteGaussian(100)))
    assert 0.099 < float(found.low) < 0.1001
    assert found.high.is_infinite


def test_noise_that_depends_on_the_data_has_no_bound() -> None:
    wide, narrow = ShiftLaw(0, DiscreteLaplace("1/2")), ShiftLaw(0, DiscreteLaplace("1/3"))
    assert PURE.distance(wide, narrow) == ZCDP.distance(wide, narrow) == exactly(INFINITE)
    assert TOTAL_VARIATION.distance(wide, narrow).low == 0
    assert PURE.distance(ShiftLaw((0, 0), wide.noise), wide) == exactly(INFINITE)


def test_noise_is_compared_by_value_and_not_by_spelling() -> None:
    one, other = DiscreteLaplace("ln(4)"), DiscreteLaplace("2*ln(2)")
    assert one != other  # they are not written alike
    assert PURE.distance(ShiftLaw(0, one), ShiftLaw(0, other)) == exactly(exact(0))
    apart = PURE.distance(ShiftLaw(0, one), ShiftLaw(3, other))
    assert apart == PURE.distance(ShiftLaw(0, one), ShiftLaw(3, one))
    assert not apart.high.is_infinite
    assert ZCDP.distance(ShiftLaw(0, one), ShiftLaw(1, other)) == ZCDP.distance(ShiftLaw(0, one), ShiftLaw(1, one))


@pytest.mark.parametrize("premetric", [PURE, ZCDP, TOTAL_VARIATION], ids=lambda p: p.name)
def test_noise_that_nobody_can_tell_equal_or_not_is_not_decided(premetric: OutputPremetric) -> None:
    """1 + ln 4 and 1 + 2 ln 2 agree to any number of digits, and no rule of ours says that they are equal."""
    one, other = DiscreteLaplace("1 + ln(4)"), DiscreteLaplace("1 + 2*ln(2)")
    assert premetric.distance(ShiftLaw(0, one), ShiftLaw(1, other)) == Between(exact(0), INFINITE)


def test_a_delta_beyond_our_digits_is_not_decided() -> None:
    found = approximate("1e-60").distance(ShiftLaw(0, DiscreteGaussian(1)), ShiftLaw(1, DiscreteGaussian(1)))
    assert found.high.is_infinite
    assert not found.low.is_infinite


@pytest.mark.parametrize("scale", ["0", "-1", "inf"])
def test_noise_without_a_scale_is_refused(scale: str) -> None:
    with pytest.raises(StirredError):
        DiscreteLaplace(scale)
    with pytest.raises(StirredError):
        DiscreteGaussian(scale)


@pytest.mark.parametrize("centre", [(), (1.5,), (True,)])
def test_a_centre_is_made_of_whole_numbers(centre: tuple[int, ...]) -> None:
    with pytest.raises(StirredError, match="whole numbers"):
        ShiftLaw(centre, DiscreteGaussian(1))


def test_numbers_with_different_noise_add_their_distances() -> None:
    half, third = DiscreteLaplace("1/2"), DiscreteLaplace("1/3")
    here, there = ShiftLaw((0, 5), (half, third)), ShiftLaw((3, 4), (half, third))
    assert PURE.distance(here, there) == exactly(exact("3/2") + exact("1/3"))
    assert here.log_ratio(there, (0, 5)) == exact("3/2") + exact("1/3"), "the centre attains it"
    narrow, wide = DiscreteGaussian(2), DiscreteGaussian(7)
    origin, moved = ShiftLaw((0, 0, 0), (narrow, wide, wide)), ShiftLaw((1, 2, -1), (narrow, wide, wide))
    assert ZCDP.distance(origin, moved) == exactly(sqrt(Fraction(1, 4) + Fraction(5, 14)))
    assert PURE.distance(origin, moved) == exactly(INFINITE)
    both = approximate("1/10").distance(origin, moved)
    assert both.low >= approximate("1/10").distance(ShiftLaw(0, narrow), ShiftLaw(1, narrow)).low
    assert both.high == INFINITE


def test_noise_that_is_not_the_same_number_by_number_is_told_apart() -> None:
    narrow, wide = DiscreteGaussian(2), DiscreteGaussian(7)
    one, other = ShiftLaw((0, 0), (narrow, wide)), ShiftLaw((0, 0), (wide, narrow))
    assert ZCDP.distance(one, other) == exactly(INFINITE)
    assert ShiftLaw((0, 0), (narrow, narrow)).same_noise(ShiftLaw((5, 5), narrow)) is True
    with pytest.raises(StirredError, match="2 laws of noise for 3 numbers"):
        ShiftLaw((0, 0, 0), (narrow, wide))


def test_a_variance_that_is_too_wide_is_not_called_a_loss() -> None:
    assert DiscreteGaussian(10**12).variance == 10**12
    with pytest.raises(
        StirredError, match=r"noise of variance 1e\+300 is wider than can be drawn. Fix: choose .* a coarser unit"
    ):
        DiscreteGaussian(10**400)
