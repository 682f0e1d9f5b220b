"""Noise inside the universe: integer noise conditioned on leaving fixed totals or margins as they are, exactly.

Rejection, and nothing else. All cells but the determined ones are drawn from the unconditioned law; the fixed sums
then determine the others, and the table is kept with probability w(determined)/w(0), where w is the weight of the
law. What is kept has probability proportional to the product of all weights: the conditioned law
(docs/theory/noise-inside.md). A coin of probability exp(-x) is compared with integers that enclose it, refined
without end, so every table with the right sums is possible and has exactly its probability.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.randomness.entropy import WORD_BITS, Entropy
from stirred.randomness.noise import Integers, integer_noise, table_of
from stirred.randomness.noise_steps import coin, weight
from stirred.spec.problems import refused, wrong
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace, Noise

MOST_DRAWS: Final = 1 << 33
"""Expected draws beyond which noise is refused: about a minute."""
_FEWER: Final = 1 << 5  # times fewer where the noise is too wide for a table
_BATCH: Final = 1 << 19
_LARGEST: Final = 1 << 29  # whose squares, added up over a column, fit into 64 bits


def zero_sum_noise(
    noise: Noise, *, groups: Sequence[int], entropy: Entropy, purpose: str, threads: int = 1
) -> Integers:
    """Return noise for the cells of several groups, side by side: independent but for each group's sum, which is zero.

    ``groups`` are the numbers of cells that share a fixed total. A group of n cells takes about sqrt(n) attempts. The
    same entropy, purpose and groups give the same noise.

    >>> noise = zero_sum_noise(DiscreteGaussian(4), groups=[3, 2, 1], entropy=Entropy.from_os(), purpose="example")
    >>> int(noise[:3].sum()), int(noise[3:5].sum()), int(noise[5])
    (0, 0, 0)
    """
    sizes = np.asarray(groups, dtype=np.int64)
    if sizes.ndim != 1 or (sizes < 1).any():
        raise wrong(
            f"groups of {', '.join(map(str, groups[:5]))} cells",
            where="zero-sum noise",
            remedy="give sizes of 1 or more",
        )
    _check_reach(noise, cells=int(sizes.max(initial=1)), draws=float((sizes * tries(noise, 1, sizes)).sum()))
    own, starts = entropy.child(purpose), np.cumsum(sizes) - sizes
    out = np.zeros(int(sizes.sum()), dtype=np.int64)
    pending, attempt = np.flatnonzero(sizes > 1), 0
    while pending.size:
        free = sizes[pending] - 1
        first = np.cumsum(free) - free
        drawn = integer_noise(noise, count=int(free.sum()), entropy=own, purpose=f"attempt {attempt}", threads=threads)
        last = -np.add.reduceat(drawn, first)
        kept = _kept(noise, _energy(noise, last), own, attempt)
        cells = np.repeat(kept, free)
        out[np.repeat(starts[pending] - first, free)[cells] + np.flatnonzero(cells)] = drawn[cells]
        out[starts[pending[kept]] + free[kept]] = last[kept]
        pending, attempt = pending[~kept], attempt + 1
    return out


def zero_margin_noise(
    noise: Noise, *, shape: tuple[int, int], entropy: Entropy, purpose: str, tables: int | None = None
) -> Integers:
    """Return noise for a small two-way table, or for so many ``tables``, that leaves both margins as they are.

    Of r x c cells with r <= c all columns but one are drawn with sum zero, which takes about c**((r - 1)/2) attempts:
    tables up to 12 x 12, 3 x 3,000 or 2 x 100,000 are within reach, and larger ones are refused.

    >>> noise = zero_margin_noise(DiscreteGaussian(4), shape=(3, 4), entropy=Entropy.from_os(), purpose="example")
    >>> noise.sum(axis=0).tolist(), noise.sum(axis=1).tolist()
    ([0, 0, 0, 0], [0, 0, 0])
    """
    if len(shape) != 2 or min(shape) < 1:
        raise wrong(f"a table of {shape}", where="zero-margin noise", remedy="give two sizes of 1 or more")
    wanted, (short, long) = 1 if tables is None else tables, sorted(shape)
    found = np.zeros((wanted, long, short), dtype=np.int64)
    if short > 1:
        check_tables(noise, shape=shape, tables=wanted)
        expected = wanted * float(tries(noise, short - 1, long))
        _fill_tables(noise, found, entropy.child(purpose), batch=min(math.ceil(expected), _BATCH // (short * long)))
    ordered = found if shape[0] == long else found.transpose(0, 2, 1)
    return np.ascontiguousarray(ordered[0] if tables is None else ordered)


def _fill_tables(noise: Noise, found: Integers, own: Entropy, *, batch: int) -> None:
    """Fill tables (tables, long, short) with noise of zero margins: the first candidates that are kept, in order."""
    wanted, long, short = found.shape
    batch, done, attempt = max(1, batch), 0, 0
    while done < wanted:
        groups = [short] * ((long - 1) * batch)
        drawn = zero_sum_noise(noise, groups=groups, entropy=own, purpose=f"columns {attempt}")
        candidates = drawn.reshape(batch, long - 1, short)
        last = -candidates.sum(axis=1)
        kept = np.flatnonzero(_kept(noise, _energy(noise, last).sum(axis=1), own, attempt))[: wanted - done]
        found[done : done + kept.size, :-1] = candidates[kept]
        found[done : done + kept.size, -1] = last[kept]
        done, attempt = done + kept.size, attempt + 1


def tries(noise: Noise, free: int, vectors: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return about how many attempts it takes to make vectors of so many free coordinates sum to zero."""
    # The square root of the determinant of the lattice; a constant for each coordinate more under Laplace noise.
    factor = math.pi if isinstance(noise, DiscreteLaplace) else 1.0
    return np.asarray(factor * np.asarray(vectors, dtype=np.float64)) ** (free / 2)


def check_tables(noise: Noise, *, shape: tuple[int, ...], tables: int) -> None:
    """Refuse too much noise that sums to zero in groups of n cells (n,) or in both margins (r, c) of so many tables.

    This needs no randomness: a plan asks it before anything is drawn.
    """
    short, long = sorted([1, *shape][-2:])
    tried = tries(noise, 1, long) if len(shape) == 1 else tries(noise, short - 1, long) * tries(noise, 1, short)
    _check_reach(noise, cells=short * long, draws=float(tables * tried * short * long))


def _check_reach(noise: Noise, *, cells: int, draws: float) -> None:
    """Refuse what takes too long, and numbers whose sums could leave 64 bits."""
    limit = MOST_DRAWS if table_of(noise) is not None else MOST_DRAWS // _FEWER
    scale = noise.variance if isinstance(noise, DiscreteGaussian) else 2 / noise.loss**2
    if draws > limit:
        raise refused(
            f"noise that keeps these sums takes about {draws:.0e} draws, more than {limit:.0e}",
            where="noise inside the universe",
            remedy="fix fewer totals, or add noise without conditioning and adjust afterwards",
        )
    if cells * scale > 1 << 50:
        raise refused(
            f"{noise} on {cells:,} cells is too wide for noise that keeps sums",
            where="noise inside the universe",
            remedy="use a larger budget or fewer cells",
        )


def _energy(noise: Noise, values: Integers) -> Integers:
    """Return what the logarithm of a weight is proportional to: squares or absolute values."""
    if isinstance(noise, DiscreteLaplace):
        return np.abs(values)
    if np.abs(values).max(initial=0) >= _LARGEST:  # more than sixteen standard deviations away
        raise OverflowError(f"noise of {np.abs(values).max()} does not fit")
    return np.square(values)


def _kept(noise: Noise, energy: Integers, own: Entropy, attempt: int) -> npt.NDArray[np.bool_]:
    """Flip for each energy a coin that shows heads with probability w(z)/w(0)."""
    energies, place = np.unique(energy, return_inverse=True)
    beyond = _nearly_never(noise)
    bounds = [weight(noise, each, WORD_BITS) if each < beyond else (0, 1) for each in energies.tolist()]
    points = own.words("coins", chunk=attempt, count=energy.size).astype(np.int64)
    sure, likely = np.array(bounds, dtype=np.int64)[place].T
    kept = points < sure
    undecided = np.flatnonzero(~kept & (points < likely)).tolist()
    more = own.keystream("coins decided by more words").reader(attempt)
    for each in undecided:
        kept[each] = coin(noise, int(energies[place[each]]), more, point=int(points[each]), bits=WORD_BITS)
    return np.asarray(kept)


@lru_cache(maxsize=256)
def _nearly_never(noise: Noise) -> int:
    """Return an energy from which on coins show heads with a probability of at most 2**-32."""
    energy = 1
    while weight(noise, energy, WORD_BITS)[1] > 1:
        energy *= 2
    return energy
