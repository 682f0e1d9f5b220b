"""A referee's pass: mechanisms, models and tests listed one by one, against what the limits claim of all of them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product

import pytest

from stirred.inference import (
    DensityBand,
    DensityRatioBall,
    OutcomeWeights,
    coupling_distance,
    density_ratio_distance,
    exact_posterior,
    max_distance,
    multiplicative_distance,
    np_power,
    posterior_band,
    posterior_bounds,
    power_bounds,
    privacy_loss,
    pufferfish_loss,
    randomised_response,
    record_pairs,
    required_loss,
)
from stirred.inference.figures import count_posterior, gamma_prior
from stirred.inference.kernel import bits
from stirred.inference.pufferfish import Pair
from stirred.inference.weights import Ends
from stirred.spec.exact import Exact, exact, ln

F = Fraction
UNIVERSE = bits(3)


def hamming(x: str, y: str) -> float:
    return sum(a != b for a, b in zip(x, y, strict=True)) if len(x) == len(y) else math.inf


def law(rng: random.Random, size: int, *, least: int = 1) -> dict[int, Fraction]:
    weights = [rng.randint(least, 12) for _ in range(size)]
    return {t: F(w, sum(weights)) for t, w in enumerate(weights)}


def mechanisms(number: int, *, seed: int = 20) -> Iterator[dict[str, dict[int, Fraction]]]:
    rng = random.Random(seed)
    for _ in range(number):
        yield {x: law(rng, 4) for x in UNIVERSE}


def mixed(kernel: Mapping[str, Mapping[int, Fraction]], model: Mapping[str, Fraction]) -> dict[int, Fraction]:
    return {t: sum((w * kernel[x][t] for x, w in model.items()), F(0)) for t in range(4)}


def within(value: Fraction, limits: Ends) -> bool:
    return limits.lower <= value <= limits.upper


def models(rng: random.Random) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    found = []
    for _ in range(2):
        support = rng.sample(UNIVERSE, rng.randint(1, 4))
        found.append(dict(zip(support, law(rng, len(support)).values(), strict=True)))
    return found[0], found[1]


def test_the_loss_is_the_smallest_epsilon_over_all_pairs_and_events() -> None:
    for kernel in mechanisms(6):
        found = privacy_loss(kernel, UNIVERSE, hamming)
        worst = max(
            abs(math.log(sum(kernel[x][t] for t in event) / sum(kernel[y][t] for t in event))) / hamming(x, y)
            for x, y in product(UNIVERSE, repeat=2)
            if x != y
            for event in ([t for t in range(4) if mask >> t & 1] for mask in range(1, 16))
        )
        assert float(found.value) == pytest.approx(worst, rel=1e-12)


def test_no_test_between_two_models_beats_the_limit_at_their_coupling_distance() -> None:
    """Every deterministic rejection region, and the best randomised test, of 30 mechanisms and pairs of models."""
    rng, sharper = random.Random(5), 0
    for kernel in mechanisms(30, seed=21):
        epsilon = privacy_loss(kernel, UNIVERSE, hamming).value
        first, second = models(rng)
        apart = coupling_distance(first, second, hamming)
        widest = max_distance(first, second, hamming)
        assert apart <= widest
        sharper += apart < widest
        p0, p1 = mixed(kernel, first), mixed(kernel, second)
        assert multiplicative_distance(p0, p1) <= epsilon * apart.rational
        for mask in range(16):
            region = [t for t in range(4) if mask >> t & 1]
            size, power = (sum((p[t] for t in region), F(0)) for p in (p0, p1))
            assert within(power, power_bounds(size, epsilon, apart))
            if size != power:
                needed = required_loss(size, power)
                assert needed <= epsilon * apart.rational
        best = np_power(p0, p1, "1/20")
        assert best <= power_bounds("1/20", epsilon, apart).upper
    assert sharper > 5, "the coupling is often sharper than the furthest files"


def test_the_coupling_distance_is_what_strassen_says() -> None:
    """A coupling within r exists iff no event of one model outweighs its r-neighbourhood under the other."""
    rng, seen = random.Random(11), set()
    for _ in range(200):
        p, q = models(rng)
        events = [[x for i, x in enumerate(p) if mask >> i & 1] for mask in range(1, 2 ** len(p))]
        fits = [
            r
            for r in range(4)
            if all(
                sum(p[x] for x in event) <= sum(w for y, w in q.items() if any(hamming(x, y) <= r for x in event))
                for event in events
            )
        ]
        assert coupling_distance(p, q, hamming) == exact(min(fits)) == coupling_distance(q, p, hamming)
        seen.add(min(fits))
    assert seen >= {1, 2, 3}


def test_the_limits_are_attained_by_point_masses_at_the_worst_pair() -> None:
    attained = 0
    for kernel in mechanisms(40, seed=22):
        found = privacy_loss(kernel, UNIVERSE, hamming)
        assert found.witness is not None
        x, y, t = found.witness
        a, b = kernel[x][t], kernel[y][t]
        x, y, a, b = (x, y, a, b) if a < b else (y, x, b, a)
        limits = power_bounds(a, found.value, int(hamming(x, y)))
        assert within(b, limits)
        attained += required_loss(a, b) == found.value * int(hamming(x, y))
    assert attained == 40


def test_a_limit_a_tenth_too_small_is_broken() -> None:
    """The checks of this page can fail: with nine tenths of the loss, the worst output beats the limit."""
    for kernel in mechanisms(20, seed=23):
        found = privacy_loss(kernel, UNIVERSE, hamming)
        assert found.witness is not None
        x, y, t = found.witness
        low, high = sorted([kernel[x][t], kernel[y][t]])
        limits = power_bounds(low, found.value * F(9, 10), int(hamming(x, y)))
        assert high > limits.upper.enclose().high


def test_posteriors_stay_inside_the_odds_form_which_is_inside_the_stated_one() -> None:
    rng = random.Random(6)
    for kernel in mechanisms(12, seed=24):
        epsilon = privacy_loss(kernel, UNIVERSE, hamming).value
        parameters = [models(rng)[0] for _ in range(3)]
        prior = law(rng, 3)
        far = max((coupling_distance(p, q, hamming) for p in parameters for q in parameters), key=float)
        for t in range(4):
            likelihood = {i: mixed(kernel, model)[t] for i, model in enumerate(parameters)}
            told = exact_posterior(prior, likelihood)
            assert density_ratio_distance(told, prior) <= epsilon * far.rational
            for event in ([0], [1], [2], [0, 1], [1, 2]):
                before, after = sum(prior[i] for i in event), told.mass(event)
                odds = posterior_bounds(before, epsilon, far)
                assert within(after, odds)
                for form in ("stated", "complemented"):
                    wider = posterior_bounds(before, epsilon, far, form=form)
                    assert wider.lower <= odds.lower <= odds.upper <= wider.upper


def test_densities_of_any_model_stay_inside_the_band_and_the_envelope_is_inside_it() -> None:
    rng = random.Random(7)
    for kernel in mechanisms(40, seed=25):
        epsilon = privacy_loss(kernel, UNIVERSE, hamming).value
        model = models(rng)[0]
        band = DensityBand(UNIVERSE, hamming, lambda x, t: kernel[x][t], epsilon, support=model)  # noqa: B023
        for t in range(4):
            truth, wide, known = mixed(kernel, model)[t], band.at(t), band.at(t, method="envelope")
            assert wide.lower <= known.lower <= truth <= known.upper <= wide.upper


def test_with_an_invariant_limits_hold_beyond_what_it_reveals_and_only_then() -> None:
    """Files of two components; the prior given the component is what the limit is about."""
    rng, broken = random.Random(8), 0
    files = bits(1) + bits(2)
    for _ in range(20):
        kernel = {x: {(len(x), t): w for t, w in law(rng, 3, least=10).items()} for x in files}
        epsilon = privacy_loss(kernel, files, hamming).value
        theta = {i: dict(zip(files, law(rng, len(files)).values(), strict=True)) for i in range(2)}
        prior = law(rng, 2)
        for size, t in product((1, 2), range(3)):
            inside = [x for x in files if len(x) == size]
            mass = {i: sum(theta[i][x] for x in inside) for i in theta}
            seen = {i: sum(theta[i][x] * kernel[x][size, t] for x in inside) for i in theta}
            after = exact_posterior(prior, seen)[0]
            given = exact_posterior(prior, mass)[0]
            assert within(after, posterior_bounds(given, epsilon, size))
            broken += not within(after, posterior_bounds(prior[0], epsilon, size))
    assert broken > 0, "without the correction the statement fails"


def test_pufferfish_with_independent_records_is_the_loss_under_hamming_distance() -> None:
    """Remark 5.8.5: no independent attacker exceeds it, and point masses on the others attain it."""
    rng = random.Random(9)
    for kernel in mechanisms(8, seed=26):
        neighbours = [(x, y) for x in UNIVERSE for y in UNIVERSE if hamming(x, y) == 1]
        loss = max((multiplicative_distance(kernel[x], kernel[y]) for x, y in neighbours), key=float)
        shares = [[F(rng.randint(1, 7), 8) for _ in range(3)] for _ in range(10)]
        known = [[F(int(v)) if j != i else F(1, 2) for j, v in enumerate(x)] for x in UNIVERSE for i in range(3)]
        attackers = {
            str(k): {
                x: math.prod((s if b == "1" else 1 - s for b, s in zip(x, each, strict=True)), start=F(1))
                for x in UNIVERSE
            }
            for k, each in enumerate(shares + known)
        }
        independent = {k: v for k, v in attackers.items() if int(k) < 10}
        found = pufferfish_loss(kernel, independent, record_pairs(UNIVERSE)).value
        assert found is not None
        assert found <= loss
        assert pufferfish_loss(kernel, attackers, record_pairs(UNIVERSE)).value == loss


def test_pufferfish_on_a_partition_is_the_density_ratio_of_posterior_to_prior() -> None:
    """Theorem 5.8.4, both directions, on partitions into three cells."""
    rng = random.Random(10)
    cells = [UNIVERSE[:2], UNIVERSE[2:5], UNIVERSE[5:]]
    pairs = [Pair(frozenset(cells[i]), frozenset(cells[j]), f"{i}{j}") for i in range(3) for j in range(i)]
    for kernel in mechanisms(20, seed=27):
        attacker = dict(zip(UNIVERSE, law(rng, 8).values(), strict=True))
        prior = {i: sum(attacker[x] for x in cell) for i, cell in enumerate(cells)}
        moved: list[Exact] = []
        for t in range(4):
            chance = {i: sum(attacker[x] * kernel[x][t] for x in cell) / prior[i] for i, cell in enumerate(cells)}
            moved.append(density_ratio_distance(exact_posterior(prior, chance), prior))
        found = pufferfish_loss(kernel, {"a": attacker}, pairs).value
        assert found == max(moved, key=float)


T18 = {-3: 0.3009846305, 0: 0.3009846305, 3: 0.2801882474, 6: 0.2316573281, 20: 0.2316573281}


@pytest.mark.parametrize(("t", "wanted"), T18.items())
def test_t18_the_exact_posterior_of_one_noisy_count(t: float, wanted: float) -> None:
    assert count_posterior(2, t) == pytest.approx(wanted, abs=1e-9)
    grid = [k / 200 for k in range(1, 8_000)]  # it is a density: quadrature by the midpoint rule
    assert sum(count_posterior(theta - 1 / 400, t) for theta in grid) / 200 == pytest.approx(1, abs=1e-5)


def test_t18_band_mean_and_ratios() -> None:
    assert gamma_prior(2) == pytest.approx(0.2706705665, abs=1e-9)
    assert posterior_band(gamma_prior, 1)(2) == pytest.approx((0.0995741367, 0.7357588823), abs=1e-9)
    assert math.sqrt(2) * 6 == pytest.approx(8.4852813742, abs=1e-9)
    weights = [math.comb(x + 2, 2) / 2 ** (x + 3) * math.exp(-abs(20 - min(x, 6)) / 6) for x in range(200)]
    mean = sum(w * (3 + x) / 2 for x, w in enumerate(weights)) / sum(weights)
    assert mean == pytest.approx(3.3908693073, abs=1e-9)
    grid = [k / 100 for k in range(1, 5_000)]
    assert sum(theta * count_posterior(theta, 20) for theta in grid) / 100 == pytest.approx(mean, abs=1e-3)
    for t, ends in ((6, (0.5967748659, 1.6222022738)), (0, (0.5558584701, 1.5109799784))):
        ratios = [count_posterior(theta, t) / gamma_prior(theta) for theta in (1e-9, 60.0)]
        assert sorted(ratios) == pytest.approx(ends, abs=1e-7)
        assert math.log(ends[1] / ends[0]) == pytest.approx(1, abs=1e-9)


def test_the_band_contains_a_thousand_simulated_exact_posteriors() -> None:
    """Theta, count and noise drawn a thousand times; a band of 0.45 in place of 1 would not hold them."""
    rng = random.Random(18)
    band, narrow = posterior_band(gamma_prior, 1), posterior_band(gamma_prior, "0.45")
    thetas, left = [0.01, 0.5, 1, 2, 3, 5, 8, 13, 20], 0
    for _ in range(1_000):
        theta = rng.gammavariate(3, 1)
        count = min(next(x for x in range(10**6) if (theta := theta - rng.expovariate(1)) < 0), 6)
        t = count + rng.choice((-1, 1)) * rng.expovariate(1 / 6)
        for at in thetas:
            low, high = band(at)
            assert low <= count_posterior(at, t) <= high
            left += not narrow(at)[0] <= count_posterior(at, t) <= narrow(at)[1]
    assert left > 0


def test_a_thousand_finite_posteriors_are_inside_the_odds_form_exactly() -> None:
    """Randomised response on three records with a random model and prior: exact fractions throughout."""
    rng, epsilon = random.Random(19), ln(3)
    flips = [F(3, 4) ** (3 - k) * F(1, 4) ** k for k in range(4)]
    near_the_end = 0
    for _ in range(1_000):
        two = [models(rng)[0] for _ in range(2)]
        prior, t = law(rng, 2), rng.choice(UNIVERSE)
        seen = {i: sum((w * flips[int(hamming(x, t))] for x, w in two[i].items()), F(0)) for i in range(2)}
        after = exact_posterior(prior, seen)[0]
        far = coupling_distance(two[0], two[1], hamming)
        limits = posterior_bounds(prior[0], epsilon, far)
        assert within(after, limits)
        near_the_end += exact(after) in limits
    assert near_the_end > 0, "the ends are attained, by point masses"


def test_weights_that_are_not_rational_lose_no_digit_that_is_shown() -> None:
    flip = 1 / (1 + Exact.parse("exp(1)"))
    found = OutcomeWeights.probabilities({"yes": flip, "no": 1 - flip})
    assert abs(found.total - 1) < F(1, 10**58)
    assert abs(float(found["yes"]) - 1 / (1 + math.e)) < 1e-16


@pytest.mark.parametrize("digits", [44, 45, 50, 70])
def test_what_is_tiny_is_neither_nothing_nor_negative(digits: int) -> None:
    """The odds form at a prior of 5e-45 was shown from -1e-44, and at 1e-50 as at most 0."""
    prior = Fraction(5, 10**digits)
    low, high = DensityRatioBall({0: prior, 1: 1 - prior}, 1).event([0])
    truth = posterior_bounds(prior, 1)
    assert 0 <= low <= truth.lower < truth.upper <= high
    if digits < 60:  # probabilities are kept to sixty digits
        found = privacy_loss(randomised_response(1, f"1e-{digits}"), ["0", "1"], hamming).value
        assert found >= exact(Fraction(1, 10**digits))
