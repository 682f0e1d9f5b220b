"""What all swaps share: roles of columns, strata, invariants, and the released file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, encode
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata
from stirred.data.packed import Packed
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Frames, Progress, Release
from stirred.mechanisms.swapping.identifiers import identifier_doubts
from stirred.mechanisms.swapping.laws.permutation import tables_with_margins
from stirred.mechanisms.swapping.margins import SwapMargins
from stirred.mechanisms.swapping.persons import Part, Persons, held_parts
from stirred.mechanisms.swapping.rate_rules import fits_nothing
from stirred.mechanisms.swapping.rates import Rule, text_of
from stirred.mechanisms.swapping.roles import Roles, check_names, roles_in
from stirred.mechanisms.swapping.shares import Shares, class_law_changes
from stirred.mechanisms.swapping.similar_values import similar_values
from stirred.mechanisms.swapping.small_strata import OwnLoss
from stirred.mechanisms.swapping.strata import Strata, find_strata
from stirred.mechanisms.swapping.swap_plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.swapped_file import SwappedFile
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget, Derived, PermutationSwapping
from stirred.spec.domain import Domain
from stirred.spec.exact import Exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE
from stirred.spec.specification import Flavor, Specification

PAPER = "Bailie, Gong and Meng, A Refreshment Stirred, Not Shaken"

RateLike = Fraction | str | float | int | Decimal
Values = npt.NDArray[np.uint32]

# The conditions of use that no code can enforce (docs/theory/conditions.md).
ASSUMPTIONS = (
    "the rates, the match, swap and hold variables and the collapsing of their values were fixed beforehand, or "
    "depend on the invariants alone",
    "neither the randomness, nor which records were selected, nor how many, nor accuracy measured against the "
    "confidential file is published",
    "no edit or structural zero is enforced by drawing again until an output satisfies it",
    "this is the one run of the plan, not one chosen among several after looking at them",
    "the operating system's generator and AES-256 in counter mode are taken as perfectly random",
    "a later release chosen after seeing this one keeps its own budget whatever this one shows",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap(ABC):
    """What all swaps share: roles of columns, strata, invariants, and the released file.

    A member says which rates its strata have (``rules``), what it promises (``_policy``, ``_theorem``) and how the
    swap codes of a file are exchanged (``_exchange``).
    """

    member: ClassVar[str]  # its name in the family
    # What a moved record gets. Where a law is one of values and not of records, moved records are the changed ones.
    moved_get: ClassVar[str] = "another record's values, which may be the same"
    # Or only tables of them, and then no held column can undo the swap.
    releases_records: ClassVar[bool] = True
    # The hold and swap values of the strata that audits enumerate.
    audited: ClassVar[tuple[tuple[str, str], ...]] = (("aab", "xxy"), ("ab", "xy"), ("abc", "xyz"), ("aabb", "xxyy"))

    match: Sequence[str]
    swap: Sequence[str]
    hold: Sequence[str] | None = None
    unit: str = "household"
    settings_from: str | None = None
    threads: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("match", "swap", "hold"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        check_names(matched=self.matched, swap=self.swap, hold=self.hold)

    @property
    def matched(self) -> tuple[str, ...]:
        """Return all variables that any exchange matches on; they are held."""
        return tuple(self.match)

    @property
    @abstractmethod
    def in_words(self) -> str:
        """Return in one sentence what was done."""

    @property
    def stratum_law(self) -> str:
        """Return the name of the law of its exchanges, as ``strata.parquet`` has it."""
        return self.member

    @abstractmethod
    def rules(self) -> tuple[Sequence[Rule], Fraction]:
        """Return the rates of strata with given match values, and the rate of all others."""

    def _declared_rules(self) -> Sequence[Rule]:
        """Return the rules that somebody wrote down, each of which must fit something."""
        return self.rules()[0]

    def _flag(self) -> str | None:
        """Return the column that flags imputed records, where a swap leaves these out."""
        return None

    def _left_out(self, strata: Strata) -> Strata:
        """Return the strata with those marked as not live that are published as they are."""
        return strata

    @abstractmethod
    def _policy(self, strata: Strata, swap: Coded) -> PermutationSwapping | Derived:
        """Return the budget as a function of the invariants."""

    @abstractmethod
    def _theorem(self) -> tuple[str, ...]:
        """Return what the promise rests on."""

    @abstractmethod
    def moved_shares(self, strata: Strata, swap: Coded) -> Shares:
        """Return the expected share of records that move, for each stratum."""

    def changed_shares(self, strata: Strata, swap: Coded, margins: SwapMargins) -> Shares:
        """Return the expected share of records that change their swap value, for each value of each stratum."""
        del swap
        return class_law_changes(margins, strata.shares)

    def changes(self, plan: SwapPlan) -> pl.DataFrame:
        """Return for each combination of swap values how many records have it and which share is expected to change.

        A function of the invariants. Small areas are where swaps of the family differ most.
        """
        strata, swap = plan.strata, plan.swap
        margins = strata.margins
        live = np.fromiter((stratum.live for stratum in strata.table), dtype=np.bool_, count=len(strata.table))
        share = np.where(live[margins.stratum], self.changed_shares(strata, swap, margins), 0.0)
        records = np.bincount(margins.value, weights=margins.count, minlength=swap.count)
        changed = np.bincount(margins.value, weights=margins.count * share, minlength=swap.count)
        own = pl.DataFrame({"records": records.astype(np.int64), "share_changed": changed / records})
        return pl.concat([swap.levels, own], how="horizontal")

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss that each rate would have for the same file; empty for a swap without a rate."""
        others: list[tuple[Fraction, dict[str, Any]]] = [(rate, {"rate": rate}) for rate in rates]
        return [(rate, replace(self, **other)._policy(plan.strata, plan.swap).realised) for rate, other in others]

    def rate_reaching(self, plan: SwapPlan, epsilon: Exact) -> Fraction:
        """Return the gentlest rate, to a hundredth of a percent, whose loss is at most ``epsilon``.

        The losses of the conditioned and the shuffle swap fall with the rate.
        """
        low, high, steps = 0, 10_000, 10_000
        while high - low > 1:
            middle = (low + high) // 2
            ((_, found),) = self.losses(plan, [Fraction(middle, steps)])
            low, high = (low, middle) if found <= epsilon else (middle, high)
        return Fraction(high, steps)

    def _own_loss(self, strata: Strata, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        """Return the loss of the enumerated margins, where a member enumerates them."""
        del strata, swap, held
        return None

    @property
    def declared_pairs(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return what was declared for pairs of swap values, by the name of the setting; nothing for most swaps."""
        return {}

    @abstractmethod
    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        """Exchange the swap codes of all records, in place."""

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe, under the margins of Proposition 4."""
        return Specification(
            flavor=Flavor(
                domain=Domain(
                    name=universe.name,
                    dataset=f"the released columns of the confidential file '{universe.name}'",
                    stage="edited-file",
                    record_types=(self.unit, "person") if universe.persons else (self.unit,),
                    columns=universe.columns,
                ),
                multiverse=Multiverse(
                    invariants=self._invariants(universe),
                    nearest=2,
                    nearest_because="swapping: with both tables fixed no record can change alone",
                ),
                input_premetric=InputPremetric(name="d_HamS", unit=self.unit),
                output_premetric=PURE,
            ),
            budget=universe.budget,
            assumptions=ASSUMPTIONS,
            theorem=self._theorem(),
            settings_from=self.settings_from,
        )

    def _invariants(self, universe: SwapUniverse) -> tuple[Margin, ...]:
        held = [name for name in universe.hold if name not in universe.match]
        inside = ("person",) if universe.persons else ()
        of_persons = ["all characteristics of its persons"] if universe.persons else []
        return (
            Margin(of=self.unit, variables=(*universe.match, *universe.swap)),
            Margin(of=self.unit, variables=(*universe.match, *held, *of_persons), includes=inside),
        )

    def plan(self, data: Any) -> SwapPlan:
        """Return strata, loss and invariants for a file; nothing random happens."""
        return self._prepare(as_microdata(data))

    def release(
        self, data: Any, entropy: Entropy, *, plan: SwapPlan | None = None, progress: Progress | None = None
    ) -> Release:
        """Swap once. The result is an unordered table: rows come out in an order independent of the input.

        ``plan`` is this mechanism's plan for the same data, where it was made before.
        """
        from stirred.mechanisms.swapping.kernels.order import release_order

        microdata = self._narrowed(as_microdata(data))
        plan = plan or self._prepare(microdata)
        microdata, swap = self._before(microdata, plan, entropy)
        swapped = swap.codes.copy()
        self._exchange(plan, swapped, entropy, progress)
        # Grouped by the released swap values and uniformly random inside: the input order is gone.
        order = release_order(swapped, entropy=entropy.child("release order"), groups=swap.count, threads=self.threads)
        people = Persons.of(microdata) if microdata.persons is not None else None
        held = Packed.of(
            (microdata.households[name] for name in plan.hold if name not in plan.strata.match), coded=plan.strata.coded
        )
        swapped_file = SwappedFile(data=microdata, held=held, swap=swap, swapped=swapped, order=order, people=people)
        parts: dict[str, Callable[[], Iterable[pl.DataFrame]]] = {"data": swapped_file.households}
        if people is not None:
            parts["persons"] = swapped_file.persons
        specification = replace(plan.specification, seeded=entropy.seeded)
        internal = {"plan": plan, "file": swapped_file}
        return Release(public=Frames(parts, convert=like(data)), specification=specification, internal=internal)

    def _before(self, data: Microdata, plan: SwapPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
        """Return the file that is swapped, with its swap values as codes: the input itself for most swaps."""
        del entropy
        return data, plan.swap

    def strata_table(self, strata: Strata) -> pl.DataFrame:
        """Return the strata as they are published, with the settings a reader needs to know the law."""
        return strata.frame(self.stratum_law)

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all tables with the margins of a few small strata, as multisets of (hold, swap) pairs."""
        return [tables_with_margins(hold, swap) for hold, swap in self.audited]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a file of one stratum, given the (hold, swap) pairs of all its tables."""
        first: Any = universe[0]
        records = {"held": [h for h, _ in first], self.swap[0]: [s for _, s in first]}
        return self._one_stratum().plan(pl.DataFrame(records)).specification

    def _one_stratum(self) -> Swap:
        """Return the same swap on a file of one stratum, with one swap and one hold variable."""
        return replace(self, match=(), swap=self.swap[:1], hold=("held",))

    def _prepare(self, data: Microdata) -> SwapPlan:
        data = self._narrowed(data)
        roles = self._roles(data)
        hold = roles.hold
        swap = encode(data.households, list(self.swap))
        # Match variables are equal inside a stratum and can tell no records apart.
        held = held_parts(data, [name for name in hold if name not in self.match])
        strata = self._left_out(self._strata(data, swap, held))
        strata = strata.with_shares(self.moved_shares(strata, swap))
        universe = SwapUniverse(
            policy=self._policy(strata, swap),
            match=tuple(self.match),
            swap=tuple(self.swap),
            hold=hold,
            persons=data.persons is not None,
            name=data.name,
            imputed=self._flag(),
            own=self._own_loss(strata, swap, held),
            columns=roles.columns,
        )
        return SwapPlan(
            specification=self.specification(universe),
            strata=strata,
            hold=hold,
            dropped=roles.dropped,
            universe=universe,
            swap=swap,
            warnings=(
                *identifier_doubts(data, hold, unit=self.unit),
                *similar_values(strata, swap),
                *_empty(strata, universe.budget),
            ),
        )

    def _strata(self, data: Microdata, swap: Coded, held: Sequence[Part]) -> Strata:
        """Return the strata of a file with their rates."""
        rules, rate = self.rules()
        strata = find_strata(data.households, match=self.match, swap=swap, held=held, rates=rules, rate=rate)
        every_rule_fits(self._declared_rules(), strata)
        return strata

    def check(self, data: Any) -> None:
        """Raise all problems of a file's columns with these settings; nothing is computed."""
        self._roles(self._narrowed(as_microdata(data)))

    def _narrowed(self, data: Microdata) -> Microdata:
        """Return the data with only those person columns that an explicit ``hold`` names."""
        if self.hold is None or data.persons is None:
            return data
        return replace(data, keep_persons=tuple(self.hold))

    def _roles(self, data: Microdata) -> Roles:
        roles = roles_in(data, matched=self.matched, swap=self.swap, hold=self.hold, unit=self.unit)
        if set(roles.hold) <= set(self.match) and data.persons is None:
            raise bad_plan(
                "there is nothing to hold besides the match variables, so swapping changes nothing",
                where="hold",
                remedy="keep at least one more column, or match on fewer variables",
            )
        return roles


def _empty(strata: Strata, budget: Budget) -> Iterator[str]:
    """Warn where the promise is empty: nothing to swap, or nothing promised."""
    if strata.largest_live is None:
        yield "nothing can be swapped: the file would be published as it is, and epsilon 0 is not protection"
    elif budget.realised.is_infinite:
        yield "at a rate of 0 or 1 nothing is promised: epsilon is infinite"


def every_rule_fits(rules: Sequence[Rule], strata: Strata) -> None:
    """Refuse a rule that fits no stratum: a mistyped value would silently leave the default rate."""
    if not rules:
        return
    present = [dict(zip(strata.match, stratum.values, strict=True)) for stratum in strata.table]
    for wanted, _ in rules:
        if not any(all(text_of(values[k]) == text_of(v) for k, v in wanted.items()) for values in present):
            raise fits_nothing(wanted)
