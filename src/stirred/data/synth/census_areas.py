"""The areas of the synthetic census: states, counties, tracts, block groups, and how many blocks each has.

Everything down to block groups is planned before any household is drawn, in a few megabytes even for the
nation; blocks are laid out where they are needed. Area sizes are log-normal, so a few areas are large and
many small. A tract's own mixture of race groups, household sizes and owners comes from Dirichlet laws,
which differ between tracts and yet keep the national shares on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from stirred.data.synth.census_shares import BETWEEN_TRACTS, GQ_RATE, GROUP, OWNERS, SIZE, TRACT_RATES, Floats

Integers = npt.NDArray[np.int64]

# The nation, and how many areas a smaller file keeps of it: its share to this power.
NATION: Final = 140_000_000
STATES: Final = (51, 2, 0.4)  # at national size, at least, power
COUNTIES: Final = (3_143, 4, 0.7)
# Households per area on average; smaller files have smaller areas, so that there is something to swap.
PER_TRACT: Final = 1_650.0
FEWEST_TRACTS: Final = 12
GROUPS_PER_TRACT: Final = 2.85
PER_BLOCK: Final = 20.0
# Standard deviation of the logarithm of the sizes.
SPREAD: Final = {"state": 1.02, "counties of a state": 0.6, "county": 1.45, "tract": 0.4, "block_group": 0.45}
SPREAD_OF_BLOCKS: Final = 1.2
# How much of the segregation dial lies between states and between the counties of a state.
DIAL_STATES: Final = 0.1
DIAL_COUNTIES: Final = 0.2
CHUNK: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """Areas from states to block groups, numbered from 0, each with its parent and its households."""

    state_of_county: Integers
    county_of_tract: Integers
    tract_of_group: Integers
    households_of_group: Integers
    blocks_of_group: Integers
    size_shares: Floats
    group_shares: Floats
    owners: Floats
    gq_rate: Floats
    imputation: Floats

    def counts(self) -> dict[str, int]:
        """Return the number of areas at each level."""
        return {
            "states": int(self.state_of_county[-1]) + 1,
            "counties": self.state_of_county.size,
            "tracts": self.county_of_tract.size,
            "block_groups": self.tract_of_group.size,
            "blocks": int(self.blocks_of_group.sum()),
        }

    def chunks(self) -> Iterator[Chunk]:
        """Yield whole tracts, together about half a million households, in order."""
        groups = np.searchsorted(self.tract_of_group, np.arange(self.county_of_tract.size + 1))
        starts = _starts(self.households_of_group)[groups]
        blocks = _starts(self.blocks_of_group)
        cuts = np.flatnonzero(np.diff(starts[:-1] // CHUNK, prepend=-1, append=starts[-1]))
        for number, (low, high) in enumerate(pairwise(cuts.tolist())):
            yield Chunk(
                number=number,
                areas=self,
                tracts=slice(low, high),
                groups=slice(int(groups[low]), int(groups[high])),
                first_household=int(starts[low]),
                first_block=int(blocks[groups[low]]),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Consecutive tracts that are drawn, and written, together."""

    number: int
    areas: Areas
    tracts: slice
    groups: slice
    first_household: int
    first_block: int

    def households(self) -> Integers:
        """Return the households of each block group."""
        return self.areas.households_of_group[self.groups]


def plan_areas(households: int, *, segregation: float, rng: np.random.Generator) -> Areas:
    """Return the areas of a census with this many households.

    >>> areas = plan_areas(1_000_000, segregation=0.4, rng=np.random.default_rng(1))
    >>> int(areas.households_of_group.sum()), list(areas.counts())
    (1000000, ['states', 'counties', 'tracts', 'block_groups', 'blocks'])
    """
    per_tract = min(PER_TRACT, households / FEWEST_TRACTS)
    per_group = per_tract / GROUPS_PER_TRACT
    states = _number(households, *STATES)
    in_state = _split([households], [states], weights=_shuffled_sizes(states, rng=rng))
    counties = _split([_number(households, *COUNTIES)], [states], weights=_sizes(states, "counties of a state", rng))
    in_county = _split(in_state, counties, weights=_sizes(int(counties.sum()), "county", rng))
    tracts = _parts(in_county, per_tract)
    in_tract = _split(in_county, tracts, weights=_sizes(int(tracts.sum()), "tract", rng))
    groups = _parts(in_tract, per_group)
    in_group = _split(in_tract, groups, weights=_sizes(int(groups.sum()), "block_group", rng))
    density = np.exp(0.4 * rng.standard_normal(in_group.size) - 0.08)
    blocks = np.minimum(_parts(in_group * density, min(PER_BLOCK, per_group / 3)), in_group)
    state_of_county = np.repeat(np.arange(states), counties)
    county_of_tract = np.repeat(np.arange(tracts.size), tracts)
    count = county_of_tract.size
    size = np.array(list(SIZE.values())) / 1000
    owners = np.tile([OWNERS, 1 - OWNERS], (count, 1))
    return Areas(
        state_of_county=state_of_county,
        county_of_tract=county_of_tract,
        tract_of_group=np.repeat(np.arange(groups.size), groups),
        households_of_group=in_group,
        blocks_of_group=blocks,
        size_shares=dirichlet(np.tile(size, (count, 1)), between=BETWEEN_TRACTS["size"], rng=rng),
        group_shares=_balanced(
            _race_groups(state_of_county, county_of_tract, segregation=segregation, rng=rng), households=in_tract
        ),
        owners=dirichlet(owners, between=BETWEEN_TRACTS["owners"], rng=rng)[:, 0],
        gq_rate=GQ_RATE * _mean_one(TRACT_RATES["gq"], count, rng=rng),
        imputation=_mean_one(TRACT_RATES["imputation"], count, rng=rng),
    )


def lay_out_blocks(chunk: Chunk, *, rng: np.random.Generator) -> Integers:
    """Return the households of each block of a chunk: many blocks with a few, a few with hundreds."""
    parts = chunk.areas.blocks_of_group[chunk.groups]
    weights = np.exp(SPREAD_OF_BLOCKS * rng.standard_normal(int(parts.sum())))
    return _split(chunk.households(), parts, weights=weights)


def dirichlet(shares: Floats, *, between: float, rng: np.random.Generator) -> Floats:
    """Return one random mixture per row: its mean is the row, and ``between`` its part of the variance.

    A Dirichlet law with concentration a has the intraclass correlation 1/(1 + a), so ``between`` = 0
    gives back the row and ``between`` = 1 a single certain class, drawn with the row's shares.

    >>> dirichlet(np.array([[0.2, 0.8]]), between=0, rng=np.random.default_rng(1)).tolist()
    [[0.2, 0.8]]
    """
    if between <= 0:
        return shares
    shapes = np.maximum(shares, 1e-9) * (1 / min(between, 1 - 1e-6) - 1)
    # Gamma draws of a tiny shape underflow; their logarithms do not: log G(a) = log G(a + 1) + log(U) / a.
    logarithms = np.log(rng.standard_gamma(shapes + 1)) + np.log1p(-rng.random(shapes.shape)) / shapes
    draws = np.exp(logarithms - logarithms.max(axis=1, keepdims=True))
    mixtures: Floats = draws / draws.sum(axis=1, keepdims=True)
    return mixtures


def _race_groups(
    state_of_county: Integers, county_of_tract: Integers, *, segregation: float, rng: np.random.Generator
) -> Floats:
    """Return each tract's shares of the race groups.

    The dial is the share of the variance between tracts: a tenth of it between states and a fifth
    between counties, so that neighbours look alike, and the rest between tracts of a county.
    """
    nation = np.array(GROUP) / 1000
    above = (1 - DIAL_STATES * segregation) * (1 - DIAL_COUNTIES * segregation)
    tract_dial = 1 - (1 - segregation) / above
    states = np.tile(nation, (int(state_of_county[-1]) + 1, 1))
    states = dirichlet(states, between=DIAL_STATES * segregation, rng=rng)
    counties = dirichlet(states[state_of_county], between=DIAL_COUNTIES * segregation, rng=rng)
    return dirichlet(counties[county_of_tract], between=tract_dial, rng=rng)


def _balanced(shares: Floats, *, households: Integers) -> Floats:
    """Return the mixtures raked towards the national shares, from which a few states may lead far away.

    A group that no tract has at all, as happens in small files near the end of the dial, stays away.
    """
    nation = np.array(GROUP) / 1000
    for _ in range(20):
        found = households @ shares / households.sum()
        shares = shares * np.where(found > 1e-9, nation / np.maximum(found, 1e-9), 1.0)
        shares = shares / shares.sum(axis=1, keepdims=True)
    return shares


def _number(households: int, nation: int, least: int, power: float) -> int:
    return max(least, round(nation * min(1.0, households / NATION) ** power))


def _parts(households: npt.NDArray[np.generic], average: float) -> Integers:
    return np.maximum(1, np.rint(households / average)).astype(np.int64)  # type: ignore[operator]


def _sizes(count: int, level: str, rng: np.random.Generator) -> Floats:
    sizes: Floats = np.exp(SPREAD[level] * rng.standard_normal(count))
    return sizes


def _shuffled_sizes(count: int, *, rng: np.random.Generator) -> Floats:
    """Return the quantiles of the log-normal law in random order: no census has five Californias."""
    quantiles = [NormalDist().inv_cdf((rank + 0.5) / count) for rank in range(count)]
    return np.exp(SPREAD["state"] * rng.permutation(np.array(quantiles)))


def _mean_one(shape: float, count: int, *, rng: np.random.Generator) -> Floats:
    return rng.standard_gamma(shape, size=count) / shape


def _starts(counts: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(counts)])


def _split(totals: Sequence[int] | Integers, parts: Sequence[int] | Integers, *, weights: Floats) -> Integers:
    """Split each total into parts of at least one that add up exactly and follow the weights.

    >>> _split([10, 4], [3, 1], weights=np.array([1.0, 1.0, 5.0, 9.0])).tolist()
    [2, 2, 6, 4]
    """
    totals, parts = np.asarray(totals), np.asarray(parts)
    ends = np.cumsum(parts)
    running = np.cumsum(weights)
    before = np.concatenate([[0.0], running[ends[:-1] - 1]])
    spare = np.repeat((totals - parts) / (running[ends - 1] - before), parts)
    # Rounding the running totals, not the parts, makes them add up. The last of each is exact by definition.
    bounds = np.floor((running - np.repeat(before, parts)) * spare).astype(np.int64)
    bounds[ends - 1] = totals - parts
    sizes = np.diff(bounds, prepend=0)
    sizes[ends[:-1]] = bounds[ends[:-1]]
    return sizes + 1
