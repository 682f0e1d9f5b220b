"""Every worked case of chapter 5 (limits of inference), and each by a second route: enumeration or Bayes' rule."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from stirred.inference import (
    DensityBand,
    DensityRatioBall,
    OutcomeWeights,
    ProbabilityInterval,
    binomial,
    components,
    constant_odds_distance,
    count_distance,
    coupling_distance,
    density_ratio_distance,
    exact_posterior,
    exponent,
    geometric_counts,
    geometric_sum,
    guessing_bound,
    is_unit_graph,
    laplace_power,
    linear_vacuous_distance,
    max_distance,
    multiplicative_distance,
    np_power,
    posterior_bounds,
    power_bounds,
    privacy_loss,
    pufferfish_distance,
    pufferfish_loss,
    randomised_response,
    record_pairs,
    required_loss,
    rr_bounds,
    sum_bounds,
    total_variation_bound,
    within_invariants,
)
from stirred.inference.kernel import bits
from stirred.inference.pufferfish import Pair, correlated
from stirred.spec.exact import INFINITE, exact, exp, ln
from stirred.spec.problems import SpecificationError

TINY = 1e-9


def near(found: Any, *wanted: float) -> None:
    values = found.doubles if hasattr(found, "doubles") else (float(found),)
    assert values == pytest.approx(wanted, abs=TINY, rel=0)


def hamming(x: Sequence[Any], y: Sequence[Any]) -> float:
    return sum(a != b for a, b in zip(x, y, strict=True)) if len(x) == len(y) else math.inf


def symmetric(x: Iterable[Any], y: Iterable[Any]) -> int:
    a, b = Counter(x), Counter(y)
    return sum((a - b).values()) + sum((b - a).values())


def by_events(p: Sequence[Fraction], q: Sequence[Fraction]) -> tuple[float, float]:
    """Both distances by going through all events: the second route of T1 to T5."""
    events = [e for e in product((0, 1), repeat=len(p)) if any(e)]
    logs = [math.log(sum(w for w, in_ in zip(p, e, strict=True) if in_)) for e in events]
    others = [math.log(sum(w for w, in_ in zip(q, e, strict=True) if in_)) for e in events]
    gaps = [a - b for a, b in zip(logs, others, strict=True)]
    return max(map(abs, gaps)), max(gaps) - min(gaps)


F = Fraction
NINE = [F(9, 10), *[F(1, 80)] * 8], [F(1, 5), *[F(1, 10)] * 8]


@pytest.mark.parametrize(
    ("p", "q", "mult", "ratio"),
    [
        (*NINE, ln(8), ln(36)),  # T1
        ([F(1, 3), F(2, 3)], [F(2, 3), F(1, 3)], ln(2), ln(4)),  # T2
        ([1, 2, 3], [2, 4, 6], ln(2), exact(0)),  # T3
        ([F(9, 20), F(9, 20), F(1, 20), F(1, 20)], [F(9, 20), F(1, 20), F(9, 20), F(1, 20)], ln(9), ln(81)),  # T5
    ],
)
def test_distances_are_exact_and_agree_with_all_events(p: Any, q: Any, mult: Any, ratio: Any) -> None:
    assert multiplicative_distance(p, q) == mult
    assert density_ratio_distance(p, q) == ratio
    assert by_events([F(w) for w in p], [F(w) for w in q]) == pytest.approx((float(mult), float(ratio)), abs=1e-12)


def test_constant_odds_and_supports_that_differ() -> None:
    assert constant_odds_distance(*NINE) == exact("35/36")
    assert multiplicative_distance([1, 0], [0, 1]) == density_ratio_distance([1, 0], [0, 1]) == INFINITE
    assert constant_odds_distance([1, 0], [0, 1]) == exact(1)
    assert density_ratio_distance([0, 0], [0, 0]) == multiplicative_distance([], []) == exact(0)


def test_t4_neither_distance_is_convex() -> None:
    p1 = [F(1, 10)] * 10
    p2, p3 = [F(1, 5), *[F(8, 90)] * 9], [F(3, 10), *[F(7, 90)] * 9]
    mixed = [(a + b) / 2 for a, b in zip(p2, p3, strict=True)]
    average = (multiplicative_distance(p1, p2) + multiplicative_distance(p1, p3)) / 2
    near(multiplicative_distance(p1, mixed), 0.9162907319)
    near(average, 0.8958797346)
    assert linear_vacuous_distance([F(1, 2)] * 2, [F(6, 10), F(4, 10)]) == exact("1/6")
    assert linear_vacuous_distance([F(1, 2)] * 2, [F(7, 10), F(3, 10)]) / 2 == exact("1/7")


def test_t5_product_distances() -> None:
    sharp, fair = [F(9, 10), F(1, 10)], [F(1, 2)] * 2
    one = multiplicative_distance(sharp, fair)
    near(2 * one, 3.2188758249)
    near(ln(9), 2.1972245773)
    assert 2 * density_ratio_distance(sharp, fair) == 2 * ln(9)  # which T5 above finds for the products: it adds up


def test_for_probabilities_the_ratio_distance_is_between_one_and_two_multiplicative_ones() -> None:
    for a, b in product(range(1, 8), repeat=2):
        p, q = [F(a, 8), F(8 - a, 8)], [F(b, 8), F(8 - b, 8)]
        mult, ratio = multiplicative_distance(p, q), density_ratio_distance(p, q)
        assert mult <= ratio <= 2 * mult
    assert ratio != mult or mult == 0


LAWS = [[F(n, 6) for n in parts] for parts in product(range(7), repeat=3) if sum(parts) == 6]


def test_both_distances_are_metrics_and_quasi_convex() -> None:
    """On all laws over three outcomes in sixths: C.3.3, C.3.4 and C.8; zero only between equal laws."""
    for distance in (multiplicative_distance, density_ratio_distance):
        apart = {(i, j): distance(p, q) for i, p in enumerate(LAWS) for j, q in enumerate(LAWS)}
        assert all(apart[i, j] == apart[j, i] and (apart[i, j] == 0) == (i == j) for i, j in apart)
        doubles = {pair: math.inf if d.is_infinite else float(d) for pair, d in apart.items()}
        for i, j in apart:
            assert all(doubles[i, j] <= doubles[i, k] + doubles[k, j] + 1e-12 for k in range(len(LAWS)))
    for p, q, r in product(LAWS[::5], repeat=3):
        mixed = [(a + b) / 2 for a, b in zip(q, r, strict=True)]
        larger = max(multiplicative_distance(p, q), multiplicative_distance(p, r))
        assert multiplicative_distance(p, mixed) <= larger


def test_the_multiplicative_distance_is_continuous_only_where_no_outcome_is_impossible() -> None:
    """Proposition 9 of appendix C with its own delta, and a law nearby at the edge that is infinitely far away."""
    law, epsilon = [F(1, 2), F(3, 10), F(1, 5)], ln(F(5, 4))
    shift = F(1, 5) * F(1, 5) * F(99, 100)  # below min f (1 - e^-epsilon)
    moved = [law[0] + shift, law[1], law[2] - shift]
    assert multiplicative_distance(law, moved) < epsilon
    tiny = F(1, 10**9)
    assert multiplicative_distance([F(1), F(0)], [1 - tiny, tiny]) == INFINITE


def test_an_interval_around_a_law_is_the_ball_of_its_radius() -> None:
    """Lemma 5.3.4 on all laws over three outcomes in sixths, the loss ln 2 being attained by some."""
    for p in LAWS:
        interval = ProbabilityInterval.around(p, ln(2))
        assert [interval.contains(q) for q in LAWS] == [multiplicative_distance(p, q) <= ln(2) for q in LAWS]


def test_t6_two_laplace_densities() -> None:
    at = 1 - math.log(20) / 2
    assert at == pytest.approx(-0.4978661368, abs=TINY)
    density = {q: (lambda t, q=q: math.exp(-2 * abs(t - q))) for q in (0, 1)}
    assert (density[1](at), density[0](at)) == pytest.approx((0.05, 0.3694528049), abs=TINY)


@pytest.mark.parametrize(
    ("epsilon", "t", "lower", "upper"),
    [
        ("0.1", 0, 0.0183939721, 0.05),
        ("0.1", 5, 0.0183939721, 0.0824360635),
        ("0.1", 10, 0.0183939721, 0.05),
        ("0.1", "5.5", 0.0174968875, None),
        ("0.25", 5, 0.0102606248, 0.4362928697),
        ("0.5", 5, None, 3.0456234902),  # the text's "more than 0.4" at 0.5 is the panel of 0.25
    ],
)
def test_t7_the_sum_of_ten_bits_by_closed_form(epsilon: str, t: Any, lower: float | None, upper: float | None) -> None:
    found = sum_bounds(t, records=10, epsilon=epsilon).doubles
    for value, wanted in zip(found, (lower, upper), strict=True):
        assert wanted is None or value == pytest.approx(wanted, abs=TINY)


def laplace(epsilon: float, query: Any = sum) -> Any:
    return lambda x, t: epsilon / 2 * math.exp(-epsilon * abs(t - query(x)))


def test_t7_by_listing_files_of_one_to_six_records() -> None:
    """All files of n bits; the closed form is the same for every n, and that of ten equals the envelope over n."""
    for n in range(1, 7):
        band = DensityBand(list(product((0, 1), repeat=n)), hamming, laplace(0.1), "0.1")
        for t in (-1, 0, 0.5, 2, n, n + 3):
            low, high = sum_bounds(t, records=n, epsilon="0.1").doubles
            assert (band.at(t).lower, band.at(t).upper) == pytest.approx((low, high), rel=1e-9)
            low, high = sum_bounds(t, records=n, epsilon="0.1", method="envelope").doubles
            known = band.at(t, method="envelope")
            assert (known.lower, known.upper) == pytest.approx((low, high), rel=1e-9)


def test_t8_adding_and_removing_records() -> None:
    """Files as multisets (zeros, ones) of one to ten records: distances 10 to 20, not a constant 10."""
    files = [(z, o) for z in range(11) for o in range(11) if 1 <= z + o <= 10]

    def d(x: tuple[int, int], y: tuple[int, int]) -> int:
        return symmetric("0" * x[0] + "1" * x[1], "0" * y[0] + "1" * y[1])

    assert {max(d(x, y) for y in files) - 10 - abs(x[0] - x[1]) for x in files} == {0}
    band = DensityBand(files, d, laplace(0.1, lambda x: x[1]), "0.1")
    wanted = {0: (0.0166435542, 0.0824360635), 5: (0.0183939721, 0.0911059400), 10: (0.0111565080, 0.0552585459)}
    for t, ends in wanted.items():
        assert (band.at(t).lower, band.at(t).upper) == pytest.approx(ends, abs=TINY)


def test_t9_randomised_response_by_the_extremes_of_its_kernel() -> None:
    wanted = {1: (0.2689414214, 0.7310585786), 2: (0.0723294881, 0.5344466454), 3: (0.0194523953, 0.3907118049)}
    for n, ends in wanted.items():
        near(rr_bounds(n, 1), *ends)
        law = randomised_response(n, 1)["0" * n].values.values()
        assert (float(min(law)), float(max(law))) == pytest.approx(ends, abs=TINY)
    near(rr_bounds(5, 1), 0.0014069818, 0.2088146135)
    gaps = [float(rr_bounds(n, 1).upper - rr_bounds(n, 1).lower) for n in range(1, 8)]
    assert gaps[:2] == pytest.approx([0.4621171573] * 2, abs=TINY)
    assert gaps[1:] == sorted(gaps[1:], reverse=True)


def test_t10_the_loss_of_randomised_response_is_exact() -> None:
    found = privacy_loss(randomised_response(2, "ln(3)"), bits(2), hamming)
    assert found.value == ln(3)
    assert found.connected
    assert found.witness is not None
    x, y, t = found.witness
    kernel = randomised_response(2, "ln(3)")
    ratio = kernel[x][t] / kernel[y][t]
    assert max(ratio, 1 / ratio) == 3 ** int(hamming(x, y))


def test_t11_with_a_fixed_total_neighbours_are_not_enough() -> None:
    kernel, fixed = randomised_response(2, 1), ["01", "10"]
    assert multiplicative_distance(kernel["01"], kernel["10"]) == exact(2)
    assert privacy_loss(kernel, fixed, hamming).value == exact(1)
    identity = {x: {x: 1} for x in fixed}
    assert not is_unit_graph(fixed, hamming)
    assert not [1 for x in fixed for y in fixed if hamming(x, y) == 1]  # an audit of neighbours would pass it
    assert privacy_loss(identity, fixed, hamming).value == INFINITE
    ten = [x for x in product((0, 1), repeat=10) if sum(x) == 3]
    assert {hamming(x, y) for x in ten for y in ten} == {0, 2, 4, 6}
    assert max_distance(ten, ten, hamming) == exact(6)
    assert is_unit_graph(bits(3), hamming)


def test_of_two_directions_the_shorter_one_binds() -> None:
    kernel = randomised_response(1, "ln(3)")
    assert privacy_loss(kernel, "01", lambda x, y: 1 if x < y else math.inf).value == ln(3)
    assert privacy_loss(kernel, "01", lambda x, y: math.inf if x < y else 2).value == ln(3) / 2


def test_releasing_an_invariant_costs_nothing_where_it_separates_components_and_everything_where_not() -> None:
    files = ["0", "1", "00", "01", "10", "11"]
    length_of = {x: {len(x): 1} for x in files}
    found = privacy_loss(length_of, files, hamming)
    assert (found.value, found.connected) == (exact(0), False)
    assert privacy_loss(length_of, files, symmetric).value == INFINITE
    assert [len(each) for each in components(files, hamming)] == [2, 4]
    by_total = components(bits(3), within_invariants(hamming, lambda x: x.count("1")))
    assert sorted(map(len, by_total)) == [1, 1, 3, 3]


@pytest.mark.parametrize(
    ("alpha", "ends"),
    [
        ("0.05", (0.0183939721, 0.1359140914)),
        ("0.3", (0.1103638324, 0.7424843912)),
        ("0.9", (0.7281718172, 0.9632120559)),
    ],
)
def test_t12_power_limits_are_attained_by_one_bit(alpha: str, ends: tuple[float, float]) -> None:
    near(power_bounds(alpha, 1, 1), *ends)
    bit = randomised_response(1, 1)
    near(np_power(bit["0"], bit["1"], alpha), ends[1])
    near(1 - np_power(bit["0"], bit["1"], 1 - F(alpha)), ends[0])


def test_power_limits_are_exact_where_the_factor_is_rational() -> None:
    bit = randomised_response(1, "ln(3)")
    for alpha in (F(k, 20) for k in range(21)):
        assert power_bounds(alpha, "ln(3)").upper == np_power(bit["0"], bit["1"], alpha)
        found = required_loss(alpha, power_bounds(alpha, "ln(3)").upper.rational)
        assert found == (exact(0) if alpha in (0, 1) else ln(3))


@pytest.mark.parametrize(
    ("alpha", "epsilon", "distance", "ends"),
    [
        ("0.2", 0, 3, (0.2, 0.2)),
        ("0.2", 0, "inf", (0, 1)),
        ("0.2", "inf", 0, (0.2, 0.2)),
        (0, 5, 5, (0, 0)),
        (0, "inf", 1, (0, 1)),
        (1, 5, 5, (1, 1)),
        ("0.2", 10**6, 10**6, (0, 1)),
    ],
)
def test_edges_of_the_power_limits(alpha: Any, epsilon: Any, distance: Any, ends: tuple[float, float]) -> None:
    assert power_bounds(alpha, epsilon, distance).doubles == pytest.approx(ends, abs=1e-15)


def test_the_exponent_never_is_not_a_number() -> None:
    assert exponent(0, "inf") == INFINITE
    assert exponent("inf", 0) == exact(0)
    assert exponent("inf", 0, distinct=True) == INFINITE
    assert exponent("1/3", 6) == exact(2)


def test_required_loss_inverts_the_power_limits_on_both_sides() -> None:
    assert required_loss("0.05", "0.8") == ln(16)
    assert required_loss("0.5", "0.9") == ln(5)
    assert required_loss("0.5", "0.1") == ln(5)  # a power below alpha: correction 3
    assert required_loss("0.9", "0.5") == ln(5)
    assert required_loss("0.3", "0.3") == exact(0)
    assert required_loss(0, "0.1") == required_loss("0.1", 0) == required_loss("0.1", 1) == INFINITE
    for alpha, power in (("0.05", "0.01"), ("0.05", "0.6"), ("0.7", "0.2")):
        limits = power_bounds(alpha, required_loss(alpha, power))
        assert F(power) in (limits.lower.rational, limits.upper.rational)


def test_guessing_and_total_variation() -> None:
    near(guessing_bound(1), math.e / (1 + math.e))
    near(total_variation_bound(1, 2), math.tanh(1))
    assert guessing_bound(0) == exact("1/2")


@pytest.mark.parametrize(
    ("epsilon", "wanted", "attains"),
    [("0.1", 0.1359140914, True), ("0.25", 0.5895750069, False), ("0.5", 0.9663102650, False)],
)
def test_t13_the_best_test_between_two_laplace_laws(epsilon: str, wanted: float, attains: bool) -> None:
    shift = 10 * exact(epsilon)
    near(laplace_power("0.05", shift), wanted)
    assert (laplace_power("0.05", shift) == power_bounds("0.05", epsilon, 10).upper) is attains
    assert laplace_power("0.05", shift) <= power_bounds("0.05", epsilon, 10).upper


def test_t13_the_bound_is_attained_up_to_a_threshold_and_from_one_half() -> None:
    below, above = exact("2.302585"), exact("2.302586")
    assert laplace_power("0.05", below) == power_bounds("0.05", below).upper
    assert laplace_power("0.05", above) < power_bounds("0.05", above).upper
    near(power_bounds("0.05", "0.25", 10).upper, 0.6091246980)
    assert laplace_power("0.6", 3) == power_bounds("0.6", 3).upper


def test_t15_three_forms_of_the_posterior_limit() -> None:
    near(posterior_bounds("0.3", 1, form="stated"), 0.1103638324, 0.8154845485)
    near(posterior_bounds("0.3", 1, form="complemented"), 0.1103638324, 0.7424843912)
    near(posterior_bounds("0.3", 1), 0.1361904714, 0.5381015262)
    law = randomised_response(1, 1)
    for t, end in (("0", 0), ("1", 1)):  # Bayes' rule on one bit attains both ends of the odds form
        told = exact_posterior({"0": "0.7", "1": "0.3"}, OutcomeWeights({x: law[x][t] for x in law}, rational=False))
        assert float(told["1"]) == pytest.approx(posterior_bounds("0.3", 1).doubles[end], abs=1e-15)
    assert posterior_bounds("0.3", 10, 10**6).doubles == posterior_bounds("0.3", 1, "inf").doubles == (0, 1)
    assert posterior_bounds("0.3", 0, 5) == (exact("0.3"), exact("0.3"))
    assert posterior_bounds("0.9", 1, form="stated").upper == exact(1)


def test_t16_without_the_mass_of_the_component_the_lower_bound_fails() -> None:
    files, law = bits(1) + bits(2), randomised_response(1, 1) | randomised_response(2, 1)
    model = {x: F(1, 10) / 2 if len(x) == 1 else F(9, 10) / 4 for x in files}
    truth = float(sum(model[x] * law[x]["0"] for x in files))
    assert truth == pytest.approx(0.05, abs=TINY)

    def chance(x: str, t: str) -> Fraction:
        return law[x][t]

    with pytest.raises(SpecificationError, match="not connected"):
        DensityBand(files, hamming, chance, 1)
    wrong = DensityBand(bits(1), hamming, chance, 1).at("0")
    right = DensityBand(bits(1), hamming, chance, 1, mass="0.1").at("0")
    assert wrong.lower == pytest.approx(0.2689414214, abs=TINY)
    assert truth < wrong.lower
    assert (right.lower, right.upper) == pytest.approx((0.0268941421, 0.0731058579), abs=TINY)
    assert right.lower <= truth <= right.upper


def test_t17_the_prior_is_the_one_given_the_component() -> None:
    law, prior = randomised_response(1, 1), {0: "1/2", 1: "1/2"}
    long, yes = {0: F(9, 10), 1: F(1, 10)}, {0: F(2, 10), 1: F(7, 10)}
    seen = {a: long[a] * (yes[a] * law["1"]["0"] + (1 - yes[a]) * law["0"]["0"]) for a in long}
    told = float(exact_posterior(prior, OutcomeWeights(seen, rational=False))[1])
    assert told == pytest.approx(0.0662156254, abs=TINY)
    assert told < posterior_bounds("1/2", 1, form="stated").doubles[0] == pytest.approx(0.1839397206, abs=TINY)
    conditional = exact_posterior(prior, long)[1]
    assert conditional == F(1, 10)
    band = posterior_bounds(conditional, 1)
    near(band, 0.0392703006, 0.2319693167)
    assert band.doubles[0] <= told <= band.doubles[1]


@pytest.mark.parametrize(("correlation", "wanted"), [(0, 1), ("0.5", 1.4706149197), ("0.9", 1.8854616085), (1, 2)])
def test_t19_dependence_between_records_raises_the_pufferfish_loss(correlation: Any, wanted: float) -> None:
    attacker = correlated(2, F(1, 2), F(correlation))
    found = pufferfish_loss(randomised_response(2, 1), {"a": attacker}, record_pairs(bits(2)))
    near(found.value, wanted)
    kernel = randomised_response(2, 1)  # Bayes' rule: how far the odds of record 1 move, at the worst output
    moved = max(
        abs(math.log(sum(attacker[x] * kernel[x][t] for x in bits(2) if x[0] == "0")
                     / sum(attacker[x] * kernel[x][t] for x in bits(2) if x[0] == "1")))
        for t in bits(2)
    )  # fmt: skip
    assert moved == pytest.approx(wanted, abs=TINY)


def test_t19_equal_records_in_a_noisy_sum() -> None:
    found = pufferfish_loss(geometric_sum(3, "0.7"), {"a": correlated(3, F(1, 3), F(1))}, record_pairs(bits(3)))
    assert found.value == exact("2.1")


def test_t20_independent_attackers_lose_epsilon_and_any_two_files_twice_that() -> None:
    shares = [F(k, 4) for k in range(5)]
    attackers = {
        f"{a} {b}": {x: (a if x[0] == "1" else 1 - a) * (b if x[1] == "1" else 1 - b) for x in bits(2)}
        for a in shares
        for b in shares
    }
    kernel = randomised_response(2, 1)
    found = pufferfish_loss(kernel, attackers, record_pairs(bits(2)))
    assert found.value == exact(1)
    assert len(found.skipped) == 2 * 5 * 2  # a share of 0 or 1 leaves one conjecture without a chance
    singles = [Pair(frozenset([x]), frozenset([y]), f"{x} or {y}") for x in bits(2) for y in bits(2) if x < y]
    assert pufferfish_loss(kernel, {"fair": correlated(2, F(1, 2), F(0))}, singles).value == exact(2)
    assert pufferfish_distance({"00": 1}, {"11": 1}, attackers, record_pairs(bits(2))) == exact(2)
    fair, bent = correlated(2, F(1, 2), F(0)), correlated(2, F(1, 3), F(0))
    assert pufferfish_distance(fair, bent, attackers, record_pairs(bits(2))) == INFINITE
    assert pufferfish_distance(fair, fair, {}, []) == exact(0)


def test_t20_the_density_ratio_form_is_tight() -> None:
    factor = exp(exact("0.8"))
    prior, posterior = [F(1, 2)] * 2, OutcomeWeights.of([factor / (1 + factor), 1 / (1 + factor)])
    assert density_ratio_distance(posterior, prior) == exact("0.8")
    near(multiplicative_distance(posterior, prior), 0.4779534854)


def test_pairs_without_a_chance_are_reported_and_never_pass_as_zero() -> None:
    found = pufferfish_loss(randomised_response(2, 1), {"sure": {"00": 1}}, record_pairs(bits(2)))
    assert (found.value, found.vacuous, len(found.skipped)) == (None, True, 2)
    assert "probability 0 of the second conjecture" in found.skipped[0].reason


def test_t21_credal_sets_agree_with_their_corners() -> None:
    p, g = [F(1, 2), F(3, 10), F(1, 5)], [F(0), F(1), F(3)]
    interval, ball = ProbabilityInterval.around(p, "ln(2)"), DensityRatioBall(p, "ln(2)")
    assert interval.expect(g) == (exact("0.45"), exact("1.55"))
    assert ball.expect(g) == (exact("0.6"), exact("1.25"))
    assert interval.event([1]) == (exact("0.15"), exact("0.6"))  # the second atom
    assert interval.odds([0], [1]) == (exact("5/12"), exact("20/3"))
    assert ball.odds([0], [1]) == (exact("5/6"), exact("10/3"))
    corners = [[w * f for w, f in zip(p, factors, strict=True)] for factors in product((1, 2), repeat=3)]
    laws = [[w / sum(corner) for w in corner] for corner in corners]
    assert all(ball.contains(law) for law in laws)
    means = [sum(a * b for a, b in zip(law, g, strict=True)) for law in laws]
    assert ball.expect(g) == (exact(min(means)), exact(max(means)))
    chances = [law[1] + law[2] for law in laws]
    assert ball.event([1, 2]) == (exact(min(chances)), exact(max(chances)))
    overlapping = [(law[0] + law[1]) / (law[1] + law[2]) for law in laws]
    assert ball.odds([0, 1], [1, 2]) == (exact(min(overlapping)), exact(max(overlapping)))


def test_an_interval_contains_the_ball_of_its_radius_and_refuses_what_holds_no_probability() -> None:
    p = [F(1, 2), F(3, 10), F(1, 5)]
    interval = ProbabilityInterval.around(p, 1)
    assert interval.contains(p)
    assert not interval.contains([F(1, 10), F(1, 10), F(4, 5)])
    ball = DensityRatioBall(p, 1).expect([0, 1, 3])
    assert interval.expect([0, 1, 3]).lower <= ball.lower <= ball.upper <= interval.expect([0, 1, 3]).upper
    with pytest.raises(SpecificationError, match="no probability lies between"):
        ProbabilityInterval([F(1, 10)] * 2, [F(1, 5)] * 2)
    with pytest.raises(SpecificationError, match="exceeds the upper"):
        ProbabilityInterval([F(1, 2), F(1, 2)], [F(1, 4), F(3, 4)])


def test_t22_a_binomial_model_inside_both_bands() -> None:
    truth = sum(float(w) * laplace(0.1, int)(k, 4) for k, w in binomial(10, "0.3").values.items())
    assert truth == pytest.approx(0.0436136480, abs=TINY)
    near(sum_bounds(4, records=10, epsilon="0.1"), 0.0183939721, 0.0745912349)
    near(sum_bounds(4, records=10, epsilon="0.1", method="envelope"), 0.0274405818, 0.05)


def test_t23_where_the_density_bounds_are_attained() -> None:
    files, density = list(product((0, 1), repeat=4)), laplace(0.3)
    band = DensityBand(files, hamming, density, "0.3")
    ones = (1, 1, 1, 1)
    assert band.at(-1).lower == pytest.approx(0.0334695240, abs=TINY)
    assert band.at(-1).lower == pytest.approx(density(ones, -1), rel=1e-11)
    assert band.at(6).upper == pytest.approx(0.0823217454, abs=TINY)
    assert max(files, key=lambda x: density(x, -1)) == (0, 0, 0, 0)  # the text swaps the roles


def test_correction_1_centres_outside_the_support_are_tighter() -> None:
    files = list(product((0, 1), repeat=10))
    ends = [files[0], files[-1]]
    band = DensityBand(files, hamming, laplace(0.1), "0.1", support=ends)
    assert band.at(5).lower == pytest.approx(0.03033, abs=1e-5)
    assert band.at(5).lower == pytest.approx(laplace(0.1)(ends[0], 5), rel=1e-11)  # the truth
    only = DensityBand(ends, hamming, laplace(0.1), "0.1")
    assert only.at(5).lower == pytest.approx(0.01116, abs=1e-5)
    assert DensityBand(files[:2], hamming, laplace(0.1), "inf").at(5).vacuous is True


def test_t24_and_correction_2_the_coupling_distance_of_two_models() -> None:
    laws, models = geometric_counts(10, "0.5"), [binomial(10, share) for share in ("0.3", "0.6")]
    p0, p1 = (
        OutcomeWeights(
            {t: sum((w * laws[k][t] for k, w in model.values.items()), F(0)) for t in range(11)},
            rational=False,
        )
        for model in models
    )
    near(np_power(p0, p1, "0.05"), 0.2199836555)
    near(power_bounds("0.05", "0.5", 10).upper, 0.9935989504)
    apart = count_distance(*models)
    assert apart == exact(4)
    assert power_bounds("0.05", "0.5", apart).doubles[1] == pytest.approx(0.3695, abs=5e-5)
    assert count_distance(binomial(100, "0.5"), binomial(100, "0.55")) == exact(6)
    assert count_distance(binomial(7, "0.5"), binomial(7, "0.5")) == exact(0)


def test_the_coupling_distance_of_files_is_that_of_their_counts() -> None:
    """A largest flow between all files, against the quantile functions of the count."""
    for n, a, b in ((3, "0.5", "0.6"), (3, "0.2", "0.7"), (4, "0.1", "0.9")):
        first, second = (correlated(n, F(share), F(0)) for share in (a, b))
        assert coupling_distance(first, second, hamming) == count_distance(binomial(n, a), binomial(n, b))
    assert coupling_distance({"0": 1}, {"00": 1}, hamming) == INFINITE
    with pytest.raises(SpecificationError, match="sum to exactly 1"):
        coupling_distance({"0": 0.4}, {"1": 1}, hamming)


def test_universes_too_large_to_list_are_refused_with_the_way_out() -> None:
    with pytest.raises(SpecificationError, match="use counts or another sufficient statistic"):
        components(range(3_000), lambda x, y: 1)
