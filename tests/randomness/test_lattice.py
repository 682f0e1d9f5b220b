"""Noise inside the universe: it keeps the sums, follows the conditioned law, and near misses are caught.

False alarms: 1e-6 for each statistical test. Power: a scale wrong by 3% fails, in either direction.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import chain, pairwise, product

import numpy as np
import pytest

from stirred.randomness.entropy import Entropy
from stirred.randomness.lattice import zero_margin_noise, zero_sum_noise
from stirred.randomness.lattice_law import LatticeLaw, cell_steps, cell_variance
from stirred.randomness.noise_steps import NoiseSteps, coin, noise_variance, weight
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise

PValue = Callable[..., float]
FALSE_ALARM = 1e-6
LAWS: list[tuple[Noise, tuple[int, ...]]] = [
    (DiscreteGaussian("1/4"), (2,)),
    (DiscreteGaussian("7/3"), (3,)),
    (DiscreteGaussian(100), (40,)),
    (DiscreteGaussian(10**6), (1_000,)),
    (DiscreteLaplace("ln(5)"), (4,)),
    (DiscreteLaplace("1/10"), (25,)),
    (DiscreteGaussian(1), (2, 2)),
    (DiscreteGaussian("1/2"), (3, 3)),
    (DiscreteGaussian(50), (3, 4)),
    (DiscreteLaplace("1/2"), (5, 2)),
]


def drawn(noise: Noise, shape: tuple[int, ...], cells: int, seed: str) -> np.ndarray:
    """As many tables as have about so many cells, one after the other."""
    entropy, tables = Entropy.from_seed(seed), cells // math.prod(shape)
    if len(shape) == 1:
        flat = zero_sum_noise(noise, groups=[*shape] * tables, entropy=entropy, purpose="noise")
        return flat.reshape(tables, *shape)
    rows, columns = shape
    return zero_margin_noise(noise, shape=(rows, columns), entropy=entropy, purpose="noise", tables=tables)


def wider(noise: Noise, factor: Fraction) -> Noise:
    if isinstance(noise, DiscreteGaussian):
        return DiscreteGaussian(noise.variance * factor**2)
    return DiscreteLaplace(noise.loss / factor)


def binned(values: np.ndarray, steps: NoiseSteps) -> tuple[np.ndarray, list[Fraction]]:
    """Counts of a cell's values in about forty bins, and what the law says."""
    width = max(1, steps.reach // 50)
    edges = [width * place for place in range(-20, 20)]
    total = Fraction(sum(steps.total), 2)

    def at_most(last: int) -> Fraction:
        place = max(-1, min(last + steps.reach, len(steps.low) - 1))
        return Fraction(0) if place < 0 else Fraction(steps.low[place] + steps.high[place], 2) / total

    below = [Fraction(0), *map(at_most, edges), Fraction(1)]
    return np.bincount(np.searchsorted(edges, values), minlength=41), [b - a for a, b in pairwise(below)]


@pytest.mark.parametrize(("noise", "shape"), LAWS, ids=str)
def test_noise_keeps_every_fixed_sum(noise: Noise, shape: tuple[int, ...]) -> None:
    tables = drawn(noise, shape, 3_000, "sums")
    assert all(not tables.sum(axis=axis).any() for axis in range(1, tables.ndim))
    assert tables.any()


@pytest.mark.parametrize(("noise", "shape"), LAWS, ids=str)
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_cell_follows_its_law_wherever_it_stands(
    noise: Noise, shape: tuple[int, ...], place: str, p_value: PValue
) -> None:
    """The determined cells come last: they must not look different."""
    tables = drawn(noise, shape, 100_000, f"cells of {noise}").reshape(-1, math.prod(shape))
    observed, law = binned(tables[:, 0 if place == "first" else -1], cell_steps(noise, shape=shape))
    assert p_value(observed, law) > FALSE_ALARM


# Cells of one table are dependent, so that cells of different tables count: fewer of wide shapes.
@pytest.mark.parametrize(("noise", "shape"), [law for law in LAWS if math.prod(law[1]) <= 12], ids=str)
@pytest.mark.parametrize("factor", [Fraction(97, 100), Fraction(103, 100)], ids=["too quiet", "too loud"])
def test_noise_of_a_slightly_wrong_scale_is_caught(
    noise: Noise, shape: tuple[int, ...], factor: Fraction, p_value: PValue
) -> None:
    cells = 60_000 * math.prod(shape)
    right = drawn(noise, shape, cells, f"right {noise}").reshape(-1, math.prod(shape))[:, 0]
    near = drawn(wider(noise, factor), shape, cells, f"near {noise}").reshape(-1, math.prod(shape))[:, 0]
    steps = cell_steps(noise, shape=shape)
    assert p_value(*binned(right, steps)) > FALSE_ALARM
    assert p_value(*binned(near, steps)) < FALSE_ALARM


@pytest.mark.parametrize(
    ("noise", "shape"),
    [
        (DiscreteGaussian("1/2"), (3,)),
        (DiscreteGaussian("1/3"), (3, 3)),
        (DiscreteLaplace("ln(5)"), (4,)),
        (DiscreteLaplace("ln(5)"), (2, 3)),
    ],
    ids=str,
)
def test_whole_tables_follow_the_listed_law(noise: Noise, shape: tuple[int, ...], p_value: PValue) -> None:
    tables = drawn(noise, shape, 200_000, f"tables {noise}").reshape(-1, math.prod(shape))
    law = LatticeLaw.of(noise, shape)
    seen = Counter(map(tuple, tables.tolist()))
    listed = [table for table, _ in seen.most_common(60)]
    chances = [law.probability(table)[0] for table in listed]
    observed = np.array([*(seen[table] for table in listed), len(tables) - sum(seen[table] for table in listed)])
    assert p_value(observed, [*chances, 1 - sum(chances)]) > FALSE_ALARM


def brute(noise: Noise, shape: tuple[int, ...], reach: int) -> dict[tuple[int, ...], float]:
    """All tables of small cells with the right sums, weighted in floating point."""
    weights = {}
    for free in product(range(-reach, reach + 1), repeat=math.prod(size - 1 for size in shape)):
        array = np.array(free).reshape([size - 1 for size in shape])
        for axis in range(array.ndim):
            array = np.concatenate([array, -array.sum(axis=axis, keepdims=True)], axis=axis)
        table = tuple(array.reshape(-1).tolist())
        gaussian = isinstance(noise, DiscreteGaussian)
        weights[table] = math.exp(
            -float((array**2).sum() / (2 * noise.variance)) if gaussian else -float(noise.loss) * np.abs(array).sum()  # type: ignore[union-attr]
        )
    total = sum(weights.values())
    return {table: each / total for table, each in weights.items()}


@pytest.mark.parametrize(
    ("noise", "shape", "reach"),
    [
        (DiscreteGaussian("1/4"), (2,), 6),
        (DiscreteGaussian("1/2"), (4,), 5),
        (DiscreteGaussian("1/2"), (2, 3), 4),
        (DiscreteGaussian("1/4"), (3, 3), 2),
        (DiscreteLaplace("3"), (4,), 8),
        (DiscreteLaplace("4"), (2, 2), 9),
    ],
    ids=str,
)
def test_the_law_is_that_of_all_tables_with_these_sums(noise: Noise, shape: tuple[int, ...], reach: int) -> None:
    law, slow = LatticeLaw.of(noise, shape), brute(noise, shape, reach)
    for table, chance in slow.items():
        low, high = law.probability(table)
        assert 0 < low <= high
        assert high - low < high / 10**12
        assert math.isclose(float(low), chance, rel_tol=2e-6)
    low, high = cell_variance(noise, shape=shape)
    assert low <= high
    assert math.isclose(float(low), sum(table[0] ** 2 * chance for table, chance in slow.items()), rel_tol=2e-5)


def test_a_table_with_another_sum_has_probability_zero_and_a_remote_one_has_not() -> None:
    law = LatticeLaw.of(DiscreteGaussian(1), (3,))
    assert law.probability((1, 0, 0)) == (Fraction(0), Fraction(0))
    low, high = law.probability((90, -90, 0))
    assert 0 < low <= high < Fraction(1, 10**3000)


@pytest.mark.parametrize("variance", ["1/4", "1", "9"])
def test_two_cells_of_sum_zero_are_one_number_of_half_the_variance(variance: str) -> None:
    low, high = cell_variance(DiscreteGaussian(variance), shape=(2,))
    half = noise_variance(DiscreteGaussian(Fraction(variance) / 2))
    assert abs(low - half) < Fraction(1, 10**15)
    assert abs(high - half) < Fraction(1, 10**15)


def test_a_cell_varies_by_the_share_that_the_sum_leaves_where_noise_is_wide() -> None:
    for cells in (2, 5, 300, 5_000):
        low, high = cell_variance(DiscreteGaussian(400), shape=(cells,))
        assert high - low < Fraction(1, 10**9)
        assert abs(low - 400 * (1 - Fraction(1, cells))) < Fraction(1, 10**9)
    low, high = cell_variance(DiscreteGaussian(25), shape=(4, 5))
    assert abs(low - 15) < Fraction(1, 10**9)
    assert abs(high - 15) < Fraction(1, 10**9)


def test_narrow_noise_varies_less_than_its_parameter_says() -> None:
    low, high = cell_variance(DiscreteGaussian("1/4"), shape=(1_000,))
    assert low <= high < Fraction(215013, 10**6) < Fraction(1, 4) * Fraction(999, 1000)


def test_the_law_by_convolution_and_the_law_of_wide_noise_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = DiscreteGaussian(16)
    convolved = cell_steps.__wrapped__(noise, shape=(50,))
    monkeypatch.setattr("stirred.randomness.lattice_law._MOST_SUMS", 1)
    near = cell_steps.__wrapped__(noise, shape=(50,))
    for x in range(-30, 31, 3):
        a, b = x + convolved.reach, x + near.reach
        assert Fraction(convolved.low[a], convolved.total[1]) <= Fraction(near.high[b], near.total[0])
        assert Fraction(near.low[b], near.total[1]) <= Fraction(convolved.high[a], convolved.total[0])
        assert abs(Fraction(convolved.low[a], convolved.total[1]) - Fraction(near.low[b], near.total[1])) < 1e-12


def test_listed_tables_and_the_law_of_wide_noise_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = DiscreteGaussian(4)
    listed = cell_steps.__wrapped__(noise, shape=(3, 3))
    monkeypatch.setattr("stirred.randomness.lattice_law._listed_steps", lambda *_: None)
    near = cell_steps.__wrapped__(noise, shape=(3, 3))
    for x in range(-9, 10):
        a, b = x + listed.reach, x + near.reach
        assert Fraction(listed.low[a], listed.total[1]) <= Fraction(near.high[b], near.total[0])
        assert Fraction(near.low[b], near.total[1]) <= Fraction(listed.high[a], listed.total[0])


def test_the_same_address_has_the_same_noise_and_another_purpose_has_another() -> None:
    entropy, noise = Entropy.from_seed("address"), DiscreteGaussian(9)

    def of(purpose: str, whose: Entropy = entropy) -> list[int]:
        return zero_sum_noise(noise, groups=[7, 5, 30], entropy=whose, purpose=purpose).tolist()

    def table_of(purpose: str) -> list[list[int]]:
        return zero_margin_noise(noise, shape=(3, 5), entropy=entropy, purpose=purpose).tolist()

    assert of("a") == of("a")
    assert of("a") != of("b")
    assert of("a") != of("a", Entropy.from_seed("another"))
    assert table_of("a") == table_of("a")
    assert table_of("a") != table_of("b")


def test_noise_does_not_depend_on_the_number_of_threads() -> None:
    entropy, groups = Entropy.from_seed("threads"), [3] * 200_000
    one = zero_sum_noise(DiscreteGaussian(2), groups=groups, entropy=entropy, purpose="noise")
    two = zero_sum_noise(DiscreteGaussian(2), groups=groups, entropy=entropy, purpose="noise", threads=2)
    assert np.array_equal(one, two)


def test_groups_are_independent() -> None:
    tables = drawn(DiscreteGaussian(9), (2,), 80_000, "independent")[:, 0].reshape(-1, 2)
    assert abs(np.corrcoef(tables.T)[0, 1]) < 0.04  # 5.6 standard errors


def test_a_group_of_one_cell_and_a_table_of_one_row_get_no_noise() -> None:
    entropy = Entropy.from_seed("nothing to add")
    assert zero_sum_noise(DiscreteGaussian(9), groups=[1, 1], entropy=entropy, purpose="noise").tolist() == [0, 0]
    assert not zero_margin_noise(DiscreteGaussian(9), shape=(1, 6), entropy=entropy, purpose="noise").any()
    assert cell_variance(DiscreteGaussian(9), shape=(1,)) == (Fraction(0), Fraction(0))
    assert LatticeLaw.of(DiscreteGaussian(9), (1, 3)).probability((0, 0, 0)) == (Fraction(1), Fraction(1))


def test_a_coin_that_ties_reads_on_and_goes_either_way() -> None:
    noise, bits = DiscreteGaussian(1), 320
    low = weight(noise, 1, bits)[0]  # exp(-1/2), cut after 320 bits
    words = [low >> (bits - 32 * (k + 1)) & (2**32 - 1) for k in range(bits // 32 - 1)]
    assert coin(noise, 1, chain(words, [0] * 9))
    assert not coin(noise, 1, chain(words, [2**32 - 1] * 9))


def test_a_coin_of_the_far_tail_can_show_heads() -> None:
    assert coin(DiscreteGaussian(1), 10_000, chain([0] * 300, iter([2**32 - 1] * 9)))
    assert not coin(DiscreteGaussian(1), 10_000, iter([1]))


# All tables of a universe: three persons in three cells whose total is fixed, or a 2 x 3 table with fixed margins.
ONE_TOTAL = [table for table in product(range(4), repeat=3) if sum(table) == 3]
MARGINS = [
    (a, b, c, *rest)
    for a, b, c in product(range(3), repeat=3)
    if a + b + c == 2 and min(rest := (1 - a, 2 - b, 1 - c)) >= 0
]
UNIVERSES = [(ONE_TOTAL, (3,)), (MARGINS, (2, 3))]


def outputs(shape: tuple[int, ...], reach: int) -> list[tuple[int, ...]]:
    return [*brute(DiscreteGaussian(1), shape, reach)]


def log_of(law: LatticeLaw, output: tuple[int, ...], table: tuple[int, ...]) -> float:
    low, high = law.probability([t - x for t, x in zip(output, table, strict=True)])
    assert high - low < high / 10**12
    return math.log(low.numerator) - math.log(low.denominator)


@pytest.mark.parametrize(("universe", "shape"), UNIVERSES, ids=["one total", "margins"])
def test_the_loss_of_laplace_noise_is_its_rate_times_the_cells_that_differ(
    universe: list[tuple[int, ...]], shape: tuple[int, ...]
) -> None:
    """Claim 1 of the theory page, by listing: attained at every pair, so any smaller loss fails."""
    noise = DiscreteLaplace("ln(3)")
    law = LatticeLaw.of(noise, shape)
    released = [tuple(x + z for x, z in zip(universe[0], noise, strict=True)) for noise in outputs(shape, 4)]
    for x, y in product(universe, repeat=2):
        distance = sum(abs(a - b) for a, b in zip(x, y, strict=True))
        worst = max(log_of(law, output, x) - log_of(law, output, y) for output in released)
        assert math.isclose(worst, math.log(3) * distance, abs_tol=1e-9)


@pytest.mark.parametrize(("universe", "shape"), UNIVERSES, ids=["one total", "margins"])
def test_the_loss_of_gaussian_noise_is_the_squared_distance_over_twice_its_parameter(
    universe: list[tuple[int, ...]], shape: tuple[int, ...]
) -> None:
    """Claim 2, by listing: no order exceeds rho times the order, and order 2 attains it."""
    noise = DiscreteGaussian(2)
    law = LatticeLaw.of(noise, shape)
    released = [tuple(x + z for x, z in zip(universe[0], each, strict=True)) for each in outputs(shape, 16)]
    logs = {x: np.array([log_of(law, output, x) for output in released]) for x in universe}
    for x, y in product(universe, repeat=2):
        rho = sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) / (2 * 2)
        for order in (1.1, 1.5, 2.0, 2.5):
            found = math.log(np.exp(order * logs[x] + (1 - order) * logs[y]).sum()) / (order - 1)
            assert found <= order * rho + 1e-9
            assert order != 2.0 or found > order * rho - 1e-9


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda e: zero_sum_noise(DiscreteGaussian(1), groups=[3, 0], entropy=e, purpose="p"), "groups of 3, 0 cells"),
        (
            lambda e: zero_margin_noise(DiscreteGaussian(1), shape=(40, 40), entropy=e, purpose="p"),
            "takes about .* draws, more than",
        ),
        (
            lambda e: zero_sum_noise(DiscreteGaussian(10**12), groups=[2_000], entropy=e, purpose="p"),
            "is too wide for noise that keeps sums",
        ),
        (lambda e: zero_margin_noise(DiscreteGaussian(1), shape=(0, 4), entropy=e, purpose="p"), "a table of"),
        (lambda _: cell_variance(DiscreteLaplace("1/1000"), shape=(100,)), "exact law of .* is beyond reach"),
        (lambda _: LatticeLaw.of(DiscreteGaussian(100), (5, 5)), "exact law of .* on 5 x 5 cells"),
        (lambda _: cell_steps(DiscreteGaussian(1), shape=(6, 6)), "use a larger budget or fewer cells"),
    ],
)
def test_what_is_beyond_reach_is_refused_in_words(call: Callable[[Entropy], object], said: str) -> None:
    with pytest.raises(StirredError, match=said):
        call(Entropy.from_seed("refused"))
