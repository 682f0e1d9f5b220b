"""Integer noise: enclosures hold the law, the table agrees with integers of any length, and near misses are caught.

False alarms: 1e-6 for each statistical test. Power: a scale wrong by 3% fails, in either direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt
import pytest

from stirred.randomness import noise_kernel, noise_wide
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import (
    CHUNK,
    NoiseTable,
    Streams,
    discrete_gaussian,
    fill_noise,
    fill_noise_rows,
    integer_noise,
    table_of,
)
from stirred.randomness.noise_steps import draw_exactly, exp_of, noise_steps, noise_variance
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise
from tests.randomness import cks

PValue = Callable[..., float]
FALSE_ALARM = 1e-6
DRAWS = 400_000
LAWS: list[Noise] = [
    DiscreteGaussian("1/4"),
    DiscreteGaussian(1),
    DiscreteGaussian("7/3"),
    DiscreteGaussian(100),
    DiscreteGaussian(10**6),
    DiscreteLaplace("ln(5)"),
    DiscreteLaplace("1/10"),
]


def named(noise: object) -> str:
    return str(noise)


def edges(noise: Noise) -> list[int]:
    """Where cells of a histogram end: about twenty on each side, as wide as the noise is."""
    width = max(1, round(math.sqrt(noise_variance(noise)) / 6))
    return [width * place for place in range(-20, 20)]


def law(noise: Noise) -> list[Fraction]:
    steps = noise_steps(noise, 96)

    def at_most(last: int) -> Fraction:
        place = max(-1, min(last + steps.reach, len(steps.low) - 1))
        return Fraction(0) if place < 0 else Fraction(steps.low[place], steps.total[0])

    below = [Fraction(0), *map(at_most, edges(noise)), Fraction(1)]
    return [high - low for low, high in pairwise(below)]


def binned(drawn: npt.NDArray[np.int64], noise: Noise) -> npt.NDArray[np.int64]:
    return np.bincount(np.searchsorted(edges(noise), drawn), minlength=len(law(noise)))


def wider(noise: Noise, factor: Fraction) -> Noise:
    if isinstance(noise, DiscreteGaussian):
        return DiscreteGaussian(noise.variance * factor**2)
    return DiscreteLaplace(noise.loss / factor)


@pytest.mark.parametrize(
    "exponent", [Fraction(-1, 8), Fraction(-1), Fraction(-7, 3), Fraction(-40), Fraction(-1, 10**9)]
)
def test_exp_is_enclosed_narrowly(exponent: Fraction) -> None:
    low, high = exp_of(exponent, 300)
    assert high - low <= 4
    finer_low, finer_high = exp_of(exponent, 700)
    assert low << 400 <= finer_low <= finer_high <= high << 400
    assert math.isclose(low / 2**300, math.exp(exponent), rel_tol=1e-12)


@pytest.mark.parametrize("noise", LAWS[:5], ids=named)
def test_steps_agree_with_the_law_that_specifications_are_judged_by(noise: Noise) -> None:
    """``spec.shift_law`` encloses the same sums by decimals, in code of its own."""
    assert isinstance(noise, DiscreteGaussian)
    steps, (least, most) = noise_steps(noise, 120), noise_steps(noise, 120).total
    for last in (-3, -1, 0, 2, 5):
        low, high = noise.at_most(last)
        place = last + steps.reach
        assert Fraction(steps.low[place], most) <= high
        assert low <= Fraction(steps.high[place], least)


@pytest.mark.parametrize("noise", LAWS, ids=named)
def test_steps_to_more_bits_lie_inside_those_to_fewer(noise: Noise) -> None:
    coarse, fine = noise_steps(noise, 64), noise_steps(noise, 160)
    for place in range(len(coarse.low)):
        other = place - coarse.reach + fine.reach
        assert Fraction(coarse.low[place], coarse.total[1]) <= Fraction(fine.low[other], fine.total[1])
        assert Fraction(fine.high[other], fine.total[0]) <= Fraction(coarse.high[place], coarse.total[0])


@pytest.mark.parametrize(("variance", "printed"), [("1/4", "0.215013"), ("1/2", "0.498979")])
def test_the_variance_of_the_noise_is_that_of_its_law(variance: str, printed: str) -> None:
    """Case 13 of the design of TopDown."""
    assert f"{float(noise_variance(DiscreteGaussian(variance))):.6f}" == printed


def test_the_variance_of_laplace_noise_is_the_closed_form() -> None:
    assert noise_variance(DiscreteLaplace("ln(5)")) == Fraction(2, 5) / Fraction(4, 5) ** 2
    assert math.isclose(noise_variance(DiscreteLaplace("1/10")), 2 * math.exp(-0.1) / (1 - math.exp(-0.1)) ** 2)


@pytest.mark.parametrize("noise", LAWS, ids=named)
def test_drawn_noise_follows_its_law(noise: Noise, p_value: PValue) -> None:
    drawn = integer_noise(noise, count=DRAWS, entropy=Entropy.from_seed(f"noise {noise}"), purpose="noise")
    assert p_value(binned(drawn, noise), law(noise)) > FALSE_ALARM


@pytest.mark.parametrize("noise", LAWS, ids=named)
@pytest.mark.parametrize("factor", [Fraction(97, 100), Fraction(103, 100)], ids=["too quiet", "too loud"])
def test_noise_of_a_slightly_wrong_scale_is_caught(noise: Noise, factor: Fraction, p_value: PValue) -> None:
    drawn = integer_noise(
        wider(noise, factor), count=DRAWS, entropy=Entropy.from_seed(f"near {noise}"), purpose="noise"
    )
    assert p_value(binned(drawn, noise), law(noise)) < FALSE_ALARM


@pytest.mark.parametrize("noise", [DiscreteGaussian("7/3"), DiscreteGaussian(50), DiscreteLaplace("1/3")], ids=named)
def test_the_rejection_method_follows_the_law_and_a_wrong_scale_does_not(noise: Noise, p_value: PValue) -> None:
    words = Entropy.from_seed(f"rejection {noise}").keystream("words").reader(0)
    drawn = np.array([cks.sample(noise, words) for _ in range(6_000)])
    assert p_value(binned(drawn, noise), law(noise)) > FALSE_ALARM
    other = np.array([cks.sample(wider(noise, Fraction(6, 5)), words) for _ in range(6_000)])
    assert p_value(binned(other, noise), law(noise)) < FALSE_ALARM


def as_oracle(noise: Noise, halves: list[int], further: Iterator[int]) -> list[int]:
    """The same bits, put together to one number and placed by integers alone."""
    table = table_of(noise)
    assert table is not None
    found: list[int] = []
    later: list[tuple[int, int]] = []
    open_places = [place for place, half in enumerate(halves) if table.cells[half] == noise_kernel.OPEN]
    rest = {}
    for place in open_places:
        high, low = next(further), next(further)
        rest[place] = high << 16 | low & 0xFFFF
    for place, half in enumerate(halves):
        if place in rest:
            later.append((place, half << 48 | rest[place]))
            found.append(0)
        else:
            outcome = noise_steps(noise, 200).place(half, 16)
            assert outcome is not None
            found.append(outcome)
    for place, point in later:
        outcome = noise_steps(noise, 200).place(point, 64)
        found[place] = draw_exactly(noise, further, point=point, bits=64) if outcome is None else outcome
    return found


@pytest.mark.parametrize("noise", LAWS, ids=named)
def test_the_table_decides_as_integers_of_any_length_do(noise: Noise) -> None:
    entropy = Entropy.from_seed(f"oracle {noise}")
    streams = Streams.of(entropy, "noise")
    out = np.empty(3_000, dtype=np.int64)
    fill_noise(noise, out, chunk=5, streams=streams)
    halves = streams.first.words(5, count=1_500).view(np.uint16).tolist()
    assert out.tolist() == as_oracle(noise, halves, streams.further.reader(5))


@pytest.mark.parametrize("noise", LAWS, ids=named)
def test_no_cell_and_no_point_is_decided_against_the_enclosures(noise: Noise) -> None:
    """Every cell of the table, and points next to every step: what the table says, longer integers say too."""
    table, steps = table_of(noise), noise_steps(noise, 200)
    assert table is not None
    decided = np.flatnonzero(table.cells != noise_kernel.OPEN)
    chosen = decided[:: max(1, decided.size // 4_000)]
    assert all(steps.place(int(cell), 16) == table.cells[cell] for cell in chosen)
    reach = (table.ends.size - 1) // 2
    places = np.arange(1, table.ends.size - 1)
    for place in places[:: max(1, places.size // 300)]:
        for point in (int(table.begins[place]), int(table.ends[place]) - 1):
            if table.begins[place] <= point < table.ends[place]:
                assert steps.place(point, 64) == place - reach


def test_a_tie_in_64_bits_reads_on_and_goes_either_way() -> None:
    noise = DiscreteGaussian(1)
    table = table_of(noise)
    assert table is not None
    point = int(table.ends[table.ends.size // 2])  # P(Z <= 0), cut after 64 bits
    assert noise_steps(noise, 200).place(point, 64) is None
    assert draw_exactly(noise, iter([0] * 2), point=point, bits=64) == 0
    assert draw_exactly(noise, iter([2**32 - 1] * 2), point=point, bits=64) == 1


def test_words_that_follow_a_step_for_long_are_read_for_long() -> None:
    """The first 640 bits of P(Z <= 0): nothing shorter can tell, and nothing is rounded."""
    noise = DiscreteGaussian(1)
    steps = noise_steps(noise, 900)
    bits = 640
    step = (steps.low[steps.reach] << bits) // steps.total[1]
    words = [step >> (bits - 32 * (k + 1)) & (2**32 - 1) for k in range(bits // 32)]
    assert draw_exactly(noise, chain(words, iter([0] * 64))) == 0
    assert draw_exactly(noise, chain(words, iter([2**32 - 1] * 64))) == 1


def test_a_point_in_the_far_tail_has_an_outcome() -> None:
    assert draw_exactly(DiscreteGaussian(1), chain([0] * 40, iter([1] * 400))) < -15


@pytest.mark.parametrize("threads", [2, 3])
def test_noise_does_not_depend_on_the_number_of_threads(threads: int) -> None:
    entropy = Entropy.from_seed("threads")
    one = discrete_gaussian(3, count=3 * CHUNK + 7, entropy=entropy, purpose="noise")
    other = discrete_gaussian(3, count=3 * CHUNK + 7, entropy=entropy, purpose="noise", threads=threads)
    assert np.array_equal(one, other)


def test_areas_have_noise_of_their_own_whatever_is_drawn_beside_them() -> None:
    streams = Streams.of(Entropy.from_seed("areas"), "noise")
    both = np.empty((2, 500), dtype=np.int64)
    for area in (0, 1):
        fill_noise(DiscreteGaussian(9), both[area], chunk=area, streams=streams)
    again = np.empty(500, dtype=np.int64)
    fill_noise(DiscreteGaussian(9), again, chunk=1, streams=streams)
    assert np.array_equal(both[1], again)
    assert not np.array_equal(both[0], both[1])
    assert abs(float((both[0] * both[1]).mean())) < 0.25 * 9


WIDE = [DiscreteGaussian(3 * 10**8), DiscreteLaplace("1/2000")]


@pytest.mark.parametrize("noise", WIDE, ids=named)
@pytest.mark.parametrize("factor", [Fraction(97, 100), Fraction(1), Fraction(103, 100)], ids=["quiet", "right", "loud"])
def test_noise_too_wide_for_a_table_follows_its_law(noise: Noise, factor: Fraction, p_value: PValue) -> None:
    assert table_of(wider(noise, factor)) is None
    entropy = Entropy.from_seed(f"wide {noise}")
    drawn = integer_noise(wider(noise, factor), count=DRAWS // 2, entropy=entropy, purpose="noise")
    assert (p_value(binned(drawn, noise), law(noise)) > FALSE_ALARM) == (factor == 1)


@pytest.fixture
def short_tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tables of at most 64 steps: narrow noise is drawn as wide noise is, with coins that matter."""
    for cached in (table_of, noise_wide._coarse):
        cached.cache_clear()
    monkeypatch.setattr("stirred.randomness.noise._MOST_STEPS", 64)
    yield
    for cached in (table_of, noise_wide._coarse):
        cached.cache_clear()


@pytest.mark.parametrize("noise", [DiscreteGaussian(400), DiscreteLaplace("1/300")], ids=named)
@pytest.mark.usefixtures("short_tables")
def test_digits_added_to_coarse_noise_leave_no_trace(noise: Noise, p_value: PValue) -> None:
    """Number by number around zero, where the signs meet and coarse steps are: some coins are decided exactly."""
    steps, entropy = noise_steps(noise, 96), Entropy.from_seed(f"digits {noise}")
    drawn = integer_noise(noise, count=DRAWS // 4, entropy=entropy, purpose="noise")
    weights = [b - a for a, b in pairwise(steps.low[steps.reach - 41 : steps.reach + 41])]
    chances = [Fraction(weight, steps.total[0]) for weight in weights]
    seen = np.array([np.count_nonzero(drawn == z) for z in range(-40, 41)])
    assert p_value(np.append(seen, drawn.size - seen.sum()), [*chances, 1 - sum(chances)]) > FALSE_ALARM
    assert p_value(binned(drawn, noise), law(noise)) > FALSE_ALARM


@pytest.mark.parametrize("noise", [DiscreteLaplace(Fraction(1, 10**12)), DiscreteGaussian(10**12)], ids=named)
def test_the_widest_noise_that_can_be_made_can_be_drawn(noise: Noise) -> None:
    drawn = integer_noise(noise, count=1000, entropy=Entropy.from_seed("wide"), purpose="noise")
    assert np.abs(drawn).max() > (2 * 10**12 if isinstance(noise, DiscreteLaplace) else 2 * 10**6)
    with pytest.raises(StirredError, match="is wider than can be drawn"):
        type(noise)(Fraction(1, 10**12 + 1) if isinstance(noise, DiscreteLaplace) else 10**12 + 1)


def test_a_table_is_made_once_for_each_law() -> None:
    assert table_of(DiscreteGaussian(5)) is table_of(DiscreteGaussian("5"))
    assert isinstance(table_of(DiscreteGaussian(5)), NoiseTable)


@pytest.mark.parametrize("noise", [DiscreteGaussian("1/4"), DiscreteGaussian(10), DiscreteGaussian(10**12)], ids=named)
@pytest.mark.parametrize("wide", [1, 2, 7, 63])
def test_rows_filled_together_have_the_noise_that_each_chunk_has_alone(noise: Noise, wide: int) -> None:
    streams = Streams.of(Entropy.from_seed("rows"), "noise")
    chunks = np.array([5, 0, 2**40, 7, *range(100, 100 + (2 if noise.variance > 10**9 else 400))], dtype=np.uint64)  # type: ignore[union-attr]
    together = np.empty((chunks.size, wide), dtype=np.int64)
    fill_noise_rows(noise, together, chunks=chunks, streams=streams)
    alone = np.empty_like(together)
    for row, chunk in enumerate(chunks.tolist()):
        fill_noise(noise, alone[row], chunk=chunk, streams=streams)
    assert np.array_equal(together, alone)


def test_a_row_that_64_bits_leave_open_is_drawn_like_its_chunk_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No seed shows such a row, so that the kernel is made to leave all rows open that it refines."""
    noise, streams = DiscreteGaussian(10), Streams.of(Entropy.from_seed("open"), "noise")
    table, chunks = NoiseTable.of(noise), np.arange(500, dtype=np.uint64)
    alone, together = (np.empty((500, 40), dtype=np.int64) for _ in range(2))
    for row in range(500):
        fill_noise(noise, alone[row], chunk=row, streams=streams)
    monkeypatch.setattr(noise_kernel, "refine", lambda *given: given[4].size)
    copied = lambda noise, out, *, chunk, streams: np.copyto(out, alone[chunk])  # noqa: E731
    monkeypatch.setattr("stirred.randomness.noise.fill_noise", copied)
    table.fill_rows(together, chunks, streams)
    assert np.array_equal(together, alone)
