"""What a law of swaps is: how the records of a stratum exchange their swap values, and what that promises.

A law is a value with exact settings. It sees strata, codes and fractions, and no file, bundle or page: ``engine`` owns
the life of a release and asks its law. Exact laws on small files, by enumeration, are at the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import polars as pl

from stirred.data.codes import Coded, Codes
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import (
    Check,
    Curve,
    Progress,
    RateLosses,
    RedrawLaw,
    Release,
    StratumAudit,
    SwapCellLaw,
)
from stirred.mechanisms.records.plan import OwnLoss, SwapPlan, empty_promise
from stirred.mechanisms.records.strata import Part, Rule, Shares, Strata, StratumRow, find_strata
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived, PermutationSwapping
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact
from stirred.spec.law import Law
from stirred.spec.problems import Problem
from stirred.spec.specification import Specification

PAPER: Final = "Bailie, Gong and Meng, A Refreshment Stirred, Not Shaken"
# A pass over the columns of strata and of swap codes; the latter is changed in place.
Kernel = partial[int]
Policy = PermutationSwapping | Derived


# From the (hold, swap) pairs of one stratum to the law of the released pairs.
StratumLaw = Callable[[Any], Law]
# The records of a small file: match, hold and swap values.
File = tuple[tuple[Any, ...], ...]


class SmallFile(NamedTuple):
    """A file of one stratum as columns, and the settings of a swap that are other ones there."""

    columns: Mapping[str, Sequence[Any]]
    settings: Mapping[str, Any]


class SwapLaw(ABC):
    """One law of the family, a frozen dataclass in practice; both tables of Proposition 4 are its invariants."""

    __slots__ = ()

    name: ClassVar[str]  # as strata.parquet has it
    rests_on: ClassVar[str]  # the result that its promise rests on, with Proposition 4 of the paper
    passes: ClassVar[tuple[str, ...]]  # the modules of ``kernels`` that its draw needs
    # Whether its permutation of the records is drawn by the sizes of the strata alone, whatever the records hold: then
    # noise on tables of the swapped file has a promise of its own (R15). A law that does not claim it gets none.
    by_sizes: ClassVar[bool] = False
    # What a moved record gets. Some laws redraw values instead of exchanging records: there "moved" means "changed".
    moved_get: ClassVar[str] = "another record's values, which may be the same"
    # The hold and swap values of the strata that audits enumerate.
    audited: ClassVar[tuple[tuple[str, str], ...]] = (("aab", "xxy"), ("ab", "xy"), ("abc", "xyz"), ("aabb", "xxyy"))

    # ---- the promise

    @abstractmethod
    def policy(self, strata: Strata, swap: Coded) -> Policy:
        """Return the budget as a function of the invariants."""

    @property
    def theorem(self) -> tuple[str, ...]:
        """Return what the promise rests on."""
        return (self.rests_on, f"Proposition 4 of {PAPER}")

    def promised(self, specification: Specification, *, unit: str) -> Specification:
        """Return the promise with the conditions that this law adds."""
        return specification

    def own_loss(self, strata: Strata, *, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        """Return the loss of the enumerated margins, where a law enumerates them."""
        return None

    # ---- the strata, and whom the law moves in them

    def problems(self, data: Microdata) -> Iterator[Problem]:
        """Yield what is wrong with the columns of a file that only this law reads."""
        yield from ()

    @property
    def rules(self) -> Sequence[Rule]:
        """Return the rates of strata with given match values."""
        return ()

    @property
    def imputed(self) -> str | None:
        """Return the column that flags imputed records, where these are left out."""
        return None

    @property
    def redraw_law(self) -> RedrawLaw | None:
        """Return from what swap values are redrawn, where they are not exchanged."""
        return None

    @property
    def base_rate(self) -> Fraction:
        """Return the rate of all other strata; a law without one has its weight of a moved record here."""
        rate: Fraction = self.rate  # type: ignore[attr-defined]
        return rate

    def strata(
        self, households: pl.DataFrame, *, match: Sequence[str], swap: Coded | None, held: Sequence[Part] | None
    ) -> Strata:
        """Return the strata of a file with their rates."""
        return find_strata(households, match=match, swap=swap, held=held, rate=self.base_rate)

    def left_out(self, strata: Strata) -> Strata:
        """Return the strata with those marked as not live that are published as they are."""
        return strata

    @abstractmethod
    def moved(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum; not a number where that is protected."""

    def changed(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that change their swap value, for each value of each stratum.

        It is 0 in strata that are not live.
        """
        margins, moved = strata.margins, self.moved(strata, swap)
        # Permutations that move as many are as likely: a moved record goes to any other's place.
        stratum = margins.stratum
        n = strata.records[stratum].astype(np.float64)
        changed = moved[stratum] * (n - margins.count) / np.maximum(n - 1, 1)
        return np.where(strata.live[stratum], changed, 0.0)

    @property
    def hidden(self) -> Problem | None:
        """Return why it is not said whom it changes, where that depends on counts that it protects.

        Mean and variance of cells depend on these, too (R18).
        """
        return None

    def decisive(self, strata: Strata) -> StratumRow | None:
        """Return the stratum that sets the loss, where rates differ; None where there is nothing to say."""
        return None

    @property
    def stratum_law(self) -> str:
        """Return the name of the law in strata.parquet."""
        return self.name

    # ---- the draw and the exact law

    @abstractmethod
    def kernel(self, strata: Strata, swap: Coded) -> Kernel:
        """Return the exchange of swap codes within strata, with everything it needs but the codes themselves."""

    def checks(self, plan: SwapPlan, release: Release) -> list[Check]:
        """Return what a draw must satisfy besides the invariants; raise where it does not."""
        return []

    @abstractmethod
    def on_small(self, records: Any) -> Law:
        """Return the exact law of the swapped table for the (hold, swap) pairs of one small stratum."""

    def universes(self) -> list[list[Hashable]]:
        """Return small files of one stratum, by the margins that they share: audits compare all of a universe."""
        return [tables_with_margins(hold, swap) for hold, swap in self.audited]

    def small(self, records: Any, *, swap: Sequence[str]) -> SmallFile:
        """Return such a file as columns: one variable on each side."""
        columns = {"held": [held for held, _ in records], swap[0]: [value for _, value in records]}
        return SmallFile(columns, {"match": (), "swap": swap[:1], "hold": ("held",)})

    @abstractmethod
    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss on a stratum where hold and swap values occur this often, with its bounds."""

    # ---- other rates

    def strongest_rate(self, strata: Strata) -> float:
        """Return about the rate with the smallest loss for these strata."""
        return 1.0

    def losses(self, strata: Strata, swap: Coded, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss that each rate would have for the same strata."""
        return [(rate, replace(self, rate=rate).policy(strata, swap).realised) for rate in rates]  # type: ignore[type-var]

    def rate_reaching(self, strata: Strata, swap: Coded, epsilon: Exact) -> Fraction:
        """Return the gentlest rate, to a hundredth of a percent, whose loss is at most ``epsilon``.

        For laws whose loss falls with the rate.
        """
        low, high, steps = 0, 10_000, 10_000
        while high - low > 1:
            middle = (low + high) // 2
            ((_, found),) = self.losses(strata, swap, [Fraction(middle, steps)])
            low, high = (low, middle) if found <= epsilon else (middle, high)
        return Fraction(high, steps)

    def rates_reaching(self, strata: Strata, swap: Coded, epsilon: Exact) -> list[tuple[float, Fraction]]:
        """Return all rates where the loss becomes ``epsilon``: here one, since the loss falls with the rate."""
        rate = self.rate_reaching(strata, swap, epsilon)
        return [(float(rate), rate)]

    def loss_curve(self, strata: Strata) -> Curve | None:
        """Return the loss against the rate, where it is a function of the size of the largest stratum alone."""
        return None


class StepWords(NamedTuple):
    """What pages say of a step."""

    setting: str  # behind the rate
    columns: str  # that it adds to strata.parquet
    moved: str = ""  # whom it changes besides the swap
    readers: tuple[str, ...] = ()  # what readers of the released tables must know


class SwapStep(ABC):
    """Something done to the records before they exchange values, or after: a value, a frozen dataclass in practice.

    The engine takes the steps of a swap one after the other; the first one decides which small files are audited. What
    has a default here does nothing.
    """

    __slots__ = ()

    stratum_law: ClassVar[str]  # the name of a swap with this step in strata.parquet

    @property
    @abstractmethod
    def words(self) -> StepWords:
        """Return what pages say of it."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, str]:
        """Return its settings that ``strata.parquet`` repeats for every stratum, by column."""

    @property
    def outside(self) -> tuple[str, ...]:
        """Return the columns that it changes: their counts are no invariants, and nothing may look at them."""
        return ()

    @property
    def matched(self) -> tuple[str, ...]:
        """Return what it matches on besides the match variables."""
        return ()

    @property
    def hidden(self) -> Problem | None:
        """Return why it is not said whom the swap changes, where that depends on counts that it protects."""
        return None

    def problems(self, data: Microdata, released: Sequence[str]) -> Iterator[Problem]:
        """Yield what is wrong with the columns of a file, of which those are released and not matched."""
        yield from ()

    def policy(self, policy: Policy, strata: Strata) -> Policy:
        """Return the budget with this step; ``strata`` are those of the file without the columns outside."""
        return policy

    @abstractmethod
    def promised(self, specification: Specification, *, unit: str) -> Specification:
        """Return the promise with what the step adds."""

    @abstractmethod
    def planned(self, swap: Any, plan: SwapPlan) -> SwapPlan:
        """Return the plan of a swap with what the step says and needs."""

    def doubts(self, plan: SwapPlan) -> Iterator[Doubt]:
        """Yield the doubts about a promise as a whole: too little moves, or nothing is promised."""
        return empty_promise(plan)

    def rate_losses(self, losses: RateLosses, plan: SwapPlan) -> RateLosses:
        """Return how the loss follows from a rate with this step, from how it does without."""
        return losses

    def cells(self, law: SwapCellLaw) -> SwapCellLaw:
        """Return how a swap with this step treats the cells of tables, from how it does without."""
        return law

    def before(self, data: Microdata, entropy: Entropy) -> Microdata:
        """Return the file that is swapped."""
        return data

    def after(  # noqa: B027 (most steps come before)
        self, plan: SwapPlan, swapped: Codes, *, entropy: Entropy, threads: int | None, progress: Progress | None
    ) -> None:
        """Exchange once more, in place."""

    # ---- small files of one stratum, for audits

    @abstractmethod
    def on_small(self, swap: StratumLaw) -> StratumLaw:
        """Return the exact law of a small file with this step, from that of the exchange alone."""

    @abstractmethod
    def universes(self) -> list[list[Hashable]]:
        """Return small files by what they share: audits compare all of a universe."""

    @abstractmethod
    def small(self, records: Any, *, swap: Sequence[str]) -> SmallFile:
        """Return such a file as columns."""


# ---- exact laws on small files ----------------------------------------------------------------------------


def class_law(records: Sequence[tuple[Hashable, Hashable]], weights: Sequence[Fraction]) -> Law:
    """Return the law of any swap that gives each permutation moving k records the probability ``weights[k]``."""
    return permutation_law(records, lambda sigma: weights[sum(i != j for i, j in enumerate(sigma))])


def permutation_law(records: Sequence[tuple[Hashable, Hashable]], chance: Callable[[tuple[int, ...]], Fraction]) -> Law:
    """Return the law of the released multiset when record i gets the swap value of record sigma[i].

    ``chance`` is proportional to the probability of sigma.
    """
    outcomes: dict[Hashable, Fraction] = {}
    for sigma in permutations(range(len(records))):
        table = tuple(sorted((records[i][0], records[j][1]) for i, j in enumerate(sigma)))
        outcomes[table] = outcomes.get(table, Fraction(0)) + chance(sigma)
    total = sum(outcomes.values())
    return Law({table: p / total for table, p in outcomes.items()})


def chained(first: Law, then: Callable[[Any], Law]) -> Law:
    """Return the law of a second mechanism applied to what the first released."""
    outcomes: dict[Hashable, Fraction] = {}
    for middle, p in first.probabilities.items():
        for outcome, q in then(middle).probabilities.items():
            outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + p * q
    return Law(outcomes)


def together(laws: Iterable[Law], rows: Callable[[Any], Iterable[Any]]) -> Law:
    """Return the law of the rows of independent outcomes, taken together in one file."""
    law = Law.certain(())
    for each in laws:
        law = law.times(each).pushed(lambda both: tuple(sorted([*both[0], *rows(both[1])])))  # type: ignore[index]
    return law


def tables_with_margins(hold: Sequence[str], swap: str) -> list[Hashable]:
    """Return every multiset of (hold, swap) pairs with the given hold and swap values.

    >>> len(tables_with_margins("ab", "xy"))
    2
    """
    tables = {tuple(sorted(zip(hold, order, strict=True))) for order in permutations(swap)}
    return [*sorted(tables)]
