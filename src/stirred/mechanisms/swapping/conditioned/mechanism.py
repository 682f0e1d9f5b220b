"""The conditioned swap: randomised response on the swap values, given that every value stays as frequent (R6)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import Field

from stirred.data.codes import Coded
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan, listed, number
from stirred.mechanisms.protocol import CellLaw, Rate, RedrawnStratum, Settings, StratumAudit
from stirred.mechanisms.swapping.conditioned.budget import redraw_epsilon, redraw_kernel
from stirred.mechanisms.swapping.conditioned.law import conditioned_law, exact_loss_of_conditioned
from stirred.mechanisms.swapping.conditioned.moments import ConditionedMoments
from stirred.mechanisms.swapping.core.margins import Shares, SwapMargins, conditioned_changes
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.core.roles import SwapRate, SwapSettings
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.core.swap import RatedSwap, RateLike, Swap
from stirred.mechanisms.swapping.core.swapping import Kernel
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.exact import INFINITE, ZERO, Exact, largest
from stirred.spec.given_numbers import fraction
from stirred.spec.law import Law


class ConditionedSettings(SwapSettings):
    """A rate, and the law that values are redrawn from."""

    rate: SwapRate
    redraw_law: str | dict[str, Rate] = Field(
        default="uniform",
        description="The law of redrawn values: uniform, proportional, or a probability for each swap value.",
        json_schema_extra={"example": "uniform"},
    )


LAWS: Final = ("uniform", "proportional")
_CLOSE: Final = 1e-9

# Beside a release, the errors of tables with more strata are not worth their time.
_MOST_STRATA: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionedSwap(RatedSwap):
    """Redraw swap values with probability ``rate``, conditioned on every value occurring as often as before.

    The redrawn value comes from ``redraw_law``: ``"uniform"`` over the swap values of the stratum, ``"proportional"``
    to their counts there, or a mapping from each swap value to its probability, fixed beforehand. The loss does
    not grow with the stratum: with S swap values it is ln(1 + S/o) for the uniform law, o the odds.

    >>> import polars as pl
    >>> from stirred.randomness.entropy import Entropy
    >>> swap = ConditionedSwap(match=["size"], swap=["county"], rate="1/2")
    >>> homes = pl.DataFrame({"size": [1] * 8, "county": list("ABABABAB"), "tenure": list("oorroorr")})
    >>> swap.plan(homes).specification.budget.shown  # ln 3, and 1e-12 for the lattice of the sampler
    '1.10'
    >>> released = swap.release(homes, Entropy.from_os()).public["data"]
    >>> "".join(sorted(released["county"]))
    'AAAABBBB'
    """

    name: ClassVar[str] = "conditioned-swap"
    title: ClassVar[str] = "conditioned swapping"
    settings_model: ClassVar[type[Settings]] = ConditionedSettings
    member: ClassVar[str] = "conditioned"
    redrawn_stratum: ClassVar[RedrawnStratum | None] = staticmethod(ConditionedMoments.of)
    rests_on: ClassVar[str] = "R6, the conditioned swap (docs/theory/swapping-family.md)"
    stratum_settings: ClassVar[Mapping[str, str | None]] = {"rate": None, "redraw_law": "uniform"}
    moved_get: ClassVar[str] = "another value"

    redraw_law: str | Mapping[Any, RateLike] = "uniform"

    def __post_init__(self) -> None:
        Swap.__post_init__(self)
        if isinstance(self.redraw_law, str):
            if self.redraw_law not in LAWS:
                raise bad_plan(
                    f"'{self.redraw_law}' is not known",
                    where="redraw_law",
                    remedy=f"write one of {listed(LAWS)}, or give the probability of each swap value",
                )
            return
        if len(self.swap) != 1:
            raise bad_plan(
                "probabilities can be declared for one swap variable only",
                where="redraw_law",
                remedy="use the uniform or the proportional law, or swap one variable",
            )
        masses = {str(value): fraction(mass, where="redraw_law") for value, mass in self.redraw_law.items()}
        if any(mass <= 0 for mass in masses.values()) or sum(masses.values()) > 1:
            raise bad_plan(
                f"the probabilities sum to {sum(masses.values())}, or one is not above 0",
                where="redraw_law",
                remedy="every value needs a probability above 0, and all together at most 1",
            )
        object.__setattr__(self, "redraw_law", masses)

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        law = {"uniform": "a uniform law", "proportional": "a law by size"}.get(str(self.redraw_law), "a declared law")
        return (
            f"Conditioned swapping: {', '.join(self.swap)} redrawn among {self.among} from {law} at a rate of "
            f"{self.rate}, conditioned on all counts; everything else is held."
        )

    @property
    def known_law(self) -> str | dict[str, Fraction]:
        """Return the redraw law: its name, or the probability of each swap value."""
        if isinstance(self.redraw_law, str):
            return self.redraw_law
        return {str(value): fraction(mass, where="redraw_law") for value, mass in self.redraw_law.items()}

    @property
    def cell_law(self) -> CellLaw:
        """Return what the moments of its tables follow from: one rate, and the law that values are redrawn from."""
        return CellLaw(
            match=tuple(self.match),
            swap=tuple(self.swap),
            rate_of=lambda values: Fraction(self.rate),
            redrawn=type(self).redrawn_stratum,
            redraw_law=self.known_law,
        )

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss (R6) on a stratum where hold and swap values occur this often, beside its bound.

        >>> ConditionedSwap(match=[], swap=["county"], rate="1/2").stratum_audit((1, 1, 1), (1, 1, 1)).exact_loss
        Exact('ln(4)')
        """
        if not isinstance(self.redraw_law, str):
            raise bad_plan("a stratum has no such values", where="redraw_law", remedy=f"write one of {listed(LAWS)}")
        masses = [self._mass(None, count, sum(swap) or 1, len(swap)) for count in swap]
        found = exact_loss_of_conditioned(hold, swap, redraw_kernel(Fraction(self.rate), masses))
        return found.audit(redraw_epsilon(Fraction(self.rate), masses), for_every=" with these margins")

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset of one stratum.

        The sampler may be off by the factor that the budget contains (``LATTICE_EPSILON``).
        """
        rate = Fraction(self.rate)
        swap = [s for _, s in dataset]
        masses = {s: self._mass(s, swap.count(s), len(swap), len({*swap})) for s in swap}
        return conditioned_law(dataset, lambda row, s: (1 - rate) * (row[1] == s) + rate * masses[s])

    def _mass(self, value: Any, count: int, records: int, present: int) -> Fraction:
        if not isinstance(self.redraw_law, str):
            return fraction(self.redraw_law[str(value)], where="redraw_law")
        return Fraction(1, present) if self.redraw_law == "uniform" else Fraction(count, records)

    def within_reach(self, data: Microdata) -> bool:
        """Say whether there are few strata: each has moments of its own."""
        match = list(self.match)
        return not match or data.households.select(match).n_unique() <= _MOST_STRATA

    def _masses(self, swap: Coded) -> dict[int, Fraction] | None:
        """Return the declared mass of each swap code, or None for a law by the counts."""
        if isinstance(self.redraw_law, str):
            return None
        values = swap.levels[self.swap[0]].to_list()
        if missing := [value for value in values if str(value) not in self.redraw_law]:
            raise bad_plan(
                f"no probability for {listed([str(value) for value in missing[:5]])}",
                public=f"no probability for {number(len(missing), 'swap value')}",
                where="redraw_law",
                remedy="give every swap value that occurs a probability above 0",
            )
        return {code: fraction(self.redraw_law[str(value)], where="redraw_law") for code, value in enumerate(values)}

    @property
    def _declared(self) -> str:
        """Return a declared law in full where it is short, and by its checksum otherwise."""
        assert not isinstance(self.redraw_law, str)
        text = ", ".join(f"{value}: {mass}" for value, mass in self.redraw_law.items())
        return text if len(text) <= 200 else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"

    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        which = {
            "uniform": "uniform over the swap values of the stratum, a function of the invariants",
            "proportional": "proportional to the counts of the stratum, a function of the invariants",
        }.get(str(self.redraw_law)) or f"fixed beforehand ({self._declared})"
        formula = (
            "half the sum of ln(1 + 1/(o pi)) over the two smallest masses pi of a live stratum, o the odds of rate "
            f"{self.rate}, and the error bound of the sampler; the law is {which}"
        )
        return Derived(formula=formula, value=self._loss(strata, swap), varies=True)

    def _loss(self, strata: Strata, swap: Coded) -> Exact:
        """Return the largest loss over the live strata: screened in double precision, decided exactly."""
        from stirred.mechanisms.swapping.conditioned.selected_counts import LATTICE_EPSILON

        declared = self._masses(swap)
        rate = Fraction(self.rate)
        if not strata.live or rate == 1:
            return ZERO
        if rate == 0:
            return INFINITE
        margins = strata.margins
        sizes, present = margins.records, margins.values_present
        masses = self._float_masses(swap, margins)
        first, second = margins.smallest(masses)
        live = strata.live_flags[margins.stratum[first]]
        first, second = first[live], second[live]
        odds = float(rate / (1 - rate))
        ratio = (1 + 1 / (odds * masses[first])) * (1 + 1 / (odds * masses[second]))
        pairs = set()
        for place in np.flatnonzero(ratio >= ratio.max() * (1 - _CLOSE)).tolist():
            here = [first[place], second[place]]
            pairs.add(tuple(self._exact_mass(margins, int(i), declared, sizes, present) for i in here))
        return largest([redraw_epsilon(rate, pair) for pair in sorted(pairs)]) + LATTICE_EPSILON

    def _exact_mass(self, margins: Any, place: int, declared: Any, sizes: Any, present: Any) -> Fraction:
        stratum = int(margins.stratum[place])
        if declared is not None:
            return Fraction(declared[int(margins.value[place])])
        return self._mass(None, int(margins.count[place]), int(sizes[stratum]), int(present[stratum]))

    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum."""
        margins = strata.margins
        changed = self.changed_shares(strata, swap) * margins.count
        return np.bincount(margins.stratum, weights=changed, minlength=margins.strata) / margins.records

    def changed_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that change their swap value, for each value of each stratum."""
        rate, margins = Fraction(self.rate), strata.margins
        odds = math.inf if rate == 1 else float(rate / (1 - rate))
        return conditioned_changes(margins, odds=odds, masses=self._float_masses(swap, margins))

    def _float_masses(self, swap: Coded, margins: SwapMargins) -> Shares:
        """Return the mass of every value of every stratum, in double precision."""
        declared = self._masses(swap)
        if declared is not None:
            return np.array([float(declared[code]) for code in range(swap.count)])[margins.value]
        if self.redraw_law == "uniform":
            return 1 / margins.values_present[margins.stratum]
        return margins.count / margins.records[margins.stratum]

    def _kernel(self, plan: SwapPlan) -> Kernel:
        from stirred.mechanisms.swapping.conditioned.selected_counts import ConditionedCounting
        from stirred.mechanisms.swapping.kernels.counted import swap_counted_in_place

        law = self.redraw_law if isinstance(self.redraw_law, str) else "declared"
        counting = ConditionedCounting(rate=Fraction(self.rate), law=law, masses=self._masses(plan.swap))
        strata, values = plan.strata.coded.count, plan.swap.count
        return partial(swap_counted_in_place, strata=strata, values=values, counting=counting)
