"""Two stages of matching on one file, as far as the invariants of the first stage tell whom they move (R13).

Who changes a value in the second stage depends on counts that the first one protects; whom it moves follows from the
sizes of the fine strata, which are published. The share changed is therefore that of areas spread evenly over the
fine strata, and shares of single areas are bounds from above.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import count
from stirred.data.microdata import Microdata
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.shares import Positions, Shares, class_law_changes, permutation_share, staged_moves
from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.mechanisms.swapping.two_stage import TwoStagePlan, TwoStageSwap
from stirred.utility.dials import STEPS, strata_changed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """The fine strata of a file: how many records each has, and in which coarse stratum it lies."""

    roles: dict[str, Any]
    fine_match: tuple[str, ...]
    plan: SwapPlan
    sizes: Shares
    within: Positions

    @classmethod
    def of(cls, data: Microdata, *, roles: dict[str, Any], fine_match: tuple[str, ...]) -> Stages:
        """Find them.

        >>> homes = pl.DataFrame({"county": list("ABAB"), "size": [1, 1, 2, 2], "tenure": list("oror")})
        >>> roles = {"match": (), "swap": ("county",)}
        >>> stages = Stages.of(Microdata(households=homes), roles=roles, fine_match=("size",))
        >>> stages.apart.round(3).tolist()  # of the three others, two have another size
        [0.667]
        """
        plan = TwoStageSwap(**roles, fine_match=fine_match, rate="1/2", fine_rate="1/2").plan(data)
        assert isinstance(plan, TwoStagePlan)
        within = np.zeros(plan.fine.count, dtype=np.int64)
        within[plan.fine.codes] = plan.strata.coded.codes
        sizes = count(plan.fine.codes, groups=plan.fine.count).astype(np.float64)
        return cls(roles=roles, fine_match=fine_match, plan=plan, sizes=sizes, within=within)

    def at(self, step: int, fine_step: int) -> TwoStageSwap:
        """Return the swap with both rates at their steps."""
        rate, fine_rate = Fraction(step, STEPS), Fraction(fine_step, STEPS)
        return TwoStageSwap(**self.roles, fine_match=self.fine_match, rate=rate, fine_rate=fine_rate)

    @property
    def apart(self) -> Shares:
        """Return for each stratum how likely two of its records lie in different fine strata."""
        records = self.plan.strata.sizes
        pairs = np.bincount(self.within, weights=self.sizes * (self.sizes - 1), minlength=records.size)
        return np.asarray(1 - pairs / np.maximum(records * (records - 1), 1))

    def mixed(self, changed: Shares) -> float:
        """Return the share of records that get values from another fine stratum, from the shares changed in strata."""
        records = self.plan.strata.sizes
        return float(records @ (changed * self.apart) / records.sum())

    def mixed_at(self, step: int) -> float:
        """Return the same for two stages: the second one never leaves a fine stratum."""
        return self.mixed(strata_changed(PermutationSwap(**self.roles, rate=Fraction(step, STEPS)), self.plan))

    def _moved(self, step: int, fine_step: int) -> Shares:
        strata = self.plan.strata
        coarse = permutation_share(strata.sizes, np.full(strata.sizes.size, step / STEPS))
        fine = permutation_share(self.sizes, np.full(self.sizes.size, fine_step / STEPS))
        moved = staged_moves(strata.sizes, coarse=coarse, fine=fine, within=self.within)
        return np.where(_live(strata)[self.within], moved, 0.0)

    def changed(self, step: int, fine_step: int) -> float:
        """Return the share of all records that change their swap values, if these are spread evenly inside strata."""
        strata, margins = self.plan.strata, self.plan.strata.margins
        moved = np.bincount(self.within, weights=self.sizes * self._moved(step, fine_step), minlength=strata.sizes.size)
        share = class_law_changes(margins, moved / strata.sizes)
        return float(share @ margins.count / margins.count.sum())

    def areas(self, step: int, fine_step: int) -> pl.DataFrame:
        """Return the records of each area and the largest share of them that may move: as if all lay in the worst."""
        margins, swap = self.plan.strata.margins, self.plan.swap
        worst = np.zeros(self.plan.strata.sizes.size)
        np.maximum.at(worst, self.within, self._moved(step, fine_step))
        records = np.bincount(margins.value, weights=margins.count, minlength=swap.count)
        moved = np.bincount(margins.value, weights=margins.count * worst[margins.stratum], minlength=swap.count)
        own = pl.DataFrame({"records": records.astype(np.int64), "share_changed": moved / records})
        return pl.concat([swap.levels, own], how="horizontal")


def _live(strata: Strata) -> npt.NDArray[np.bool_]:
    return np.fromiter((stratum.live for stratum in strata.table), dtype=np.bool_, count=len(strata.table))
