"""Strata small enough to be enumerated: the loss permutation swapping really has in this universe.

The sharp budget R1 knows only sizes. From the margins, which are invariants too, R0 gives the loss
itself; R2 says when swapping everybody (rate 1) has a finite one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, encode
from stirred.mechanisms.swapping.core.strata import Strata, Stratum
from stirred.mechanisms.swapping.core.swapped_file import Part
from stirred.mechanisms.swapping.laws.counting import count_tables, exact_loss
from stirred.spec.exact import INFINITE, Exact, largest
from stirred.spec.swap_budget import psa_sharp_epsilon

# What a plan may spend on enumeration: a second or so.
_MOST_RECORDS = 30
_MOST_TABLES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnLoss:
    """What is known of the loss beyond R1.

    ``exact`` is the loss itself, where every live stratum could be enumerated. ``bound`` is an upper
    bound that uses it for strata at rate 1, where R1 says only "infinite"; ``finite`` says whether the
    true loss is finite (R2).
    """

    exact: Exact | None
    bound: Exact
    finite: bool


def own_loss(strata: Strata, *, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
    """Return what the margins tell about the loss, or None where R1 is all there is to say."""
    live = [(code, stratum) for code, stratum in enumerate(strata.table) if stratum.live]
    at_one = [code for code, stratum in live if stratum.rate == 1]
    small = bool(live) and all(stratum.records <= _MOST_RECORDS for _, stratum in live)
    if not small and not at_one:
        return None
    wanted = np.zeros(len(strata.table), dtype=np.bool_)
    wanted[[code for code, _ in live] if small else at_one] = True
    margins = _margins(strata.coded, swap, held, wanted)
    losses = _enumerated({code: (margins[code], strata.table[code]) for code in margins})
    exact = None if losses is None or not small else largest(list(losses.values()))
    finite = all(stratum.rate > 0 and (stratum.rate < 1 or _always_reachable(*margins[code])) for code, stratum in live)
    # Strata by the hundred thousand are mostly alike: each kind is bounded once. Hashing a fraction is slow.
    found = {} if losses is None else losses
    each = ((stratum, found.get(code)) for code, stratum in live)
    kinds = {(s.rate.as_integer_ratio(), s.records, id(enumerated)): (s, enumerated) for s, enumerated in each}
    bounds = [_bound(*kind) for kind in kinds.values()]
    return OwnLoss(exact=exact, bound=largest(bounds), finite=finite)


def _bound(stratum: Stratum, enumerated: Exact | None) -> Exact:
    if stratum.rate == 1:
        return INFINITE if enumerated is None else enumerated
    return psa_sharp_epsilon(stratum.rate, stratum=stratum.records)


_Margins = tuple[tuple[int, ...], tuple[int, ...]]


def _margins(coded: Coded, swap: Coded, held: Sequence[Part], wanted: npt.NDArray[np.bool_]) -> dict[int, _Margins]:
    """Return for each wanted stratum how often each of its hold values and swap values occurs."""
    rows = wanted[coded.codes]
    parts = [part(rows).alias(str(number)) for number, part in enumerate(held)]
    hold = encode(pl.DataFrame(parts), [column.name for column in parts]).codes
    frame = pl.DataFrame({"stratum": coded.codes[rows], "hold": hold, "swap": swap.codes[rows]})

    def counts(name: str) -> dict[int, tuple[int, ...]]:
        found = frame.group_by("stratum", name).len().group_by("stratum").agg(pl.col("len").sort(descending=True))
        return {int(code): tuple(lengths) for code, lengths in found.rows()}

    held_counts, swap_counts = counts("hold"), counts("swap")
    return {code: (held_counts[code], swap_counts[code]) for code in held_counts}


def _enumerated(strata: dict[int, tuple[_Margins, Stratum]]) -> dict[int, Exact] | None:
    """Return the exact loss of each stratum, or None if that takes too long."""
    if any(stratum.records > _MOST_RECORDS for _, stratum in strata.values()):
        return None
    left = _MOST_TABLES
    kinds = {code: (margins, stratum.rate.as_integer_ratio()) for code, (margins, stratum) in strata.items()}
    cases: dict[tuple[_Margins, tuple[int, int]], Exact] = dict.fromkeys(kinds.values(), INFINITE)
    for margins, _ in cases:
        left -= count_tables(*margins, most=left)
        if left < 0:
            return None
    for margins, rate in cases:
        cases[margins, rate] = _loss(margins, Fraction(*rate))
    return {code: cases[kind] for code, kind in kinds.items()}


@lru_cache(maxsize=1024)  # plans that are compared differ in little, and their strata not at all
def _loss(margins: _Margins, rate: Fraction) -> Exact:
    return exact_loss(*margins, rate).loss


def _always_reachable(hold: tuple[int, ...], swap: tuple[int, ...]) -> bool:
    """Say whether at rate 1 every table can become every other: not both margins have a 1 (R2b)."""
    return min(hold) > 1 or min(swap) > 1
