"""The engine of swaps: roles of columns, plan and doubts, the draw, the released file, its checks and pages.

A mechanism of this family is settings and a law (``law.SwapLaw``); everything else is here, once. A step before or
after the exchange overrides what it changes (``steps``).
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import partial, reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codes import Coded, encode
from stirred.data.column_doubts import revealing_columns
from stirred.data.column_evidence import SwapColumns
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata
from stirred.data.missing import missing_doubts
from stirred.data.problems import DataError, bad_plan, number
from stirred.engines.protocol import LOCAL, ClusterEngine, Engine
from stirred.mechanisms.doubts import identifier_doubts
from stirred.mechanisms.opening import opened
from stirred.mechanisms.protocol import (
    SAMPLED,
    Check,
    Curve,
    Exchange,
    Frames,
    Progress,
    PublicFile,
    Release,
    ReleasedColumns,
    SettingsMechanism,
    StratumAudit,
    SwapCellLaw,
    Written,
    settings_doubts,
)
from stirred.mechanisms.records import pages
from stirred.mechanisms.records.audit import audit_records
from stirred.mechanisms.records.doubts import ExpectedChange, empty_promise, similar_in_roles
from stirred.mechanisms.records.files import record_files, swap_files
from stirred.mechanisms.records.law import MemberScale, SwapStep, tables_with_margins
from stirred.mechanisms.records.plan import SwapOrigin, SwapPlan, SwapUniverse
from stirred.mechanisms.records.roles import Roles, SwapSettings, check_names, roles_in
from stirred.mechanisms.records.strata import OWN_COLUMNS, Shares, Strata, SwapMargins, rate_for
from stirred.mechanisms.records.swapped_file import SwappedFile, held_parts
from stirred.randomness.entropy import Entropy
from stirred.spec.domain import Domain, after_imputation
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin, records_of
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import percent
from stirred.spec.output_premetric import PURE
from stirred.spec.reliance import ONE_RUN
from stirred.spec.specification import Flavor, Specification

Values = npt.NDArray[np.uint32]
_LEAST_SHARE: Final = 1 / 1_000  # see doubts.LEAST

# The conditions of use that no code can enforce (docs/theory/conditions.md).
ASSUMPTIONS: Final = (
    "the rates, the match, swap and hold variables and the collapsing of their values were fixed beforehand, or "
    "depend on the invariants alone",
    "neither the randomness, nor which records were selected, nor how many, nor accuracy measured against the "
    "confidential file is published",
    "no edit or structural zero is enforced by drawing again until an output satisfies it",
    ONE_RUN.words,
    "the operating system's generator and AES-256 in counter mode are taken as perfectly random",
    "a later release chosen after seeing this one keeps its own budget whatever this one shows",
)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class RecordSwap(SettingsMechanism):
    """Records of which some exchange their ``swap`` values: the life of a release, whatever decides who exchanges.

    Settings are given by keyword, ``PermutationSwap(match=["size"], swap=["county"], rate="1/20")``. ``swap_law`` is
    made of them, with exact numbers; its fields, such as ``rate``, are attributes of the swap too.
    ``dataclasses.replace`` changes single settings.
    """

    # What changes other columns than the exchanged ones, for those where something does.
    perturbed_by: ClassVar[str] = ""

    if TYPE_CHECKING:
        swap_law: Any
        match: tuple[str, ...]
        swap: tuple[str, ...]

    settings: Any
    threads: int | None = None
    engine: ClusterEngine | None = field(default=None, repr=False)

    def __init__(
        self,
        settings: Any = None,
        *,
        threads: int | None = None,
        engine: ClusterEngine | None = None,
        **given: Any,
    ) -> None:
        SettingsMechanism.__init__(self, settings, **given)
        for name, value in (("threads", threads), ("engine", engine), ("swap_law", self.settings.law())):
            object.__setattr__(self, name, value)

    def with_settings(self, **changed: Any) -> Self:
        """Return the same swap with some settings changed."""
        return type(self)(self.settings, threads=self.threads, engine=self.engine, **changed)

    def __getattr__(self, name: str) -> Any:
        # The exact settings of the law and of the steps around it.
        for part in (self.__dict__.get("swap_law"), *self.__dict__.get("steps", ())):
            if part is not None and name in {each.name for each in fields(part)}:
                return getattr(part, name)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordSwap) and type(self) is type(other) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash((type(self), self.match, self.swap))

    @property
    def _identity(self) -> tuple[Any, ...]:
        return (self.swap_law, self.unit, self.settings_from)

    @property
    def areas(self) -> tuple[str, ...]:
        """Return the swap variables."""
        return self.swap

    @property
    def grouped_by(self) -> tuple[str, ...]:
        """Return the swap variables: released records are grouped by them, and otherwise in random order."""
        return self.swap

    # ---- the plan

    @abstractmethod
    def _roles(self, data: Microdata) -> Roles:
        """Return the roles of a file's columns; raise all problems with them."""

    @abstractmethod
    def _prepare(self, data: Microdata, roles: Roles, *, origin: SwapOrigin) -> Any:
        """Return the plan for a file whose columns have these roles."""

    @abstractmethod
    def _doubts(self, data: Microdata, plan: Any) -> Iterator[Doubt]:
        """Yield everything that speaks against releasing a file with this plan."""

    def check(self, data: Any) -> None:
        """Raise all problems of a file's columns with these settings; nothing is computed."""
        self._roles(self._narrowed(as_microdata(data)))

    def _narrowed(self, data: Microdata) -> Microdata:
        """Return the data with only those person columns that are released."""
        return data

    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        """Return strata, loss, invariants and doubts for a file; nothing random happens.

        The search for doubts looks at every column of the file. Comparing losses, or planning a file that was released
        already, does without it.
        """
        microdata = as_microdata(data)
        narrowed = self._narrowed(microdata)
        plan = self._prepare(narrowed, self._roles(narrowed), origin=SwapOrigin(mechanism=self, data=microdata))
        if not doubts:
            return plan.sealed()
        return replace(plan, origin=replace(plan.origin, doubts=tuple(self._doubts(narrowed, plan)))).sealed()

    def for_sampling(self, plan: Any) -> Any:
        """Return a plan by which the law of a swap is tested, on files that a release would refuse."""
        return replace(plan, origin=replace(plan.origin, doubts=(SAMPLED,))).sealed()

    # ---- the release

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
    ) -> Release:
        """Swap once. The result is an unordered table: rows come out in an order independent of the input.

        A doubt about protection refuses, until ``accept`` names it. ``plan`` is this mechanism's plan for the same
        data, where it was made before; any other is refused.
        """
        microdata, plan, entropy, promised = opened(self, data, entropy, accept=accept, plan=plan)
        drawn = self._drawn(self._narrowed(microdata), replace(plan, specification=promised), entropy, progress)
        file: SwappedFile = drawn["file"]
        public = Frames(file.tables, convert=like(data), files=file.files())
        return Release(public=public, specification=promised, internal={"plan": plan, **drawn})

    def _drawn(self, data: Microdata, plan: Any, entropy: Entropy, progress: Progress | None) -> dict[str, Any]:
        """Return the swapped ``file``, which stays inside; the released tables are made of it in parts."""
        from stirred.mechanisms.records.kernels.order import release_order

        given, swap = self._before(data, plan, entropy)
        swapped = swap.codes.copy()
        kept = self._exchange(plan, swapped, entropy, progress)
        # Grouped by the released swap values and uniformly random inside: the input order is gone.
        order = release_order(swapped, entropy=entropy.child("release order"), groups=swap.count, threads=self.threads)
        return {"file": self._gathered(given, plan, swap=swap, swapped=swapped, order=order), **kept}

    def _before(self, data: Microdata, plan: Any, entropy: Entropy) -> tuple[Microdata, Coded]:
        """Return the file that is swapped, with its swap values as codes: the input itself for most swaps."""
        return data, plan.swap

    @abstractmethod
    def _exchange(self, plan: Any, swapped: Values, entropy: Entropy, progress: Progress | None) -> Mapping[str, Any]:
        """Exchange the swap codes of all records, in place; return what else of the draw is kept inside."""

    def _gathered(self, data: Microdata, plan: Any, **exchanged: Any) -> SwappedFile:
        return SwappedFile.of(data, plan.hold, **exchanged)

    # ---- the files and what is checked of them

    def files(self, released: ReleasedColumns, data: Any = None, plan: Any = None) -> list[PublicFile]:
        """Return the records, and the persons in them."""
        return record_files(released, data, swap=self.swap, others=self.outside)

    @property
    def outside(self) -> tuple[str, ...]:
        """Return the released variables that no invariant fixes: none for most swaps."""
        return ()

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        """Compare the written records with the confidential input."""
        from stirred.mechanisms.records.evidence import verify_swap

        return verify_swap(data, plan, release, written, own=self._own_checks(plan, release))

    def _own_checks(self, plan: Any, release: Release) -> list[Check]:
        """Return what a draw must satisfy besides the invariants."""
        return []

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the swapped table for a small dataset."""
        return cast(Law, self.swap_law.on_small(dataset))

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all tables with the margins of a few small strata, as multisets of (hold, swap) pairs."""
        return [tables_with_margins(hold, swap) for hold, swap in self.swap_law.audited]


class Swap(RecordSwap):
    """A swap within strata of equal match values: a law of the family (``law.SwapLaw``), with ``steps`` around it."""

    settings_model: ClassVar[type[SwapSettings]]
    # Its settings by one number, from gentle to strong, where advice may propose it.
    scales: ClassVar[tuple[MemberScale, ...]] = ()
    by_column: ClassVar[bool] = True
    # Why it is not said whom it changes, and what to do instead, where that depends on what it protects.
    unsaid: ClassVar[tuple[str, str] | None] = None

    settings: SwapSettings

    if TYPE_CHECKING:
        steps: tuple[SwapStep, ...]

        def plan(self, data: Any, *, doubts: bool = True) -> SwapPlan: ...

    def __init__(self, settings: SwapSettings | None = None, **given: Any) -> None:
        super().__init__(settings, **given)
        object.__setattr__(self, "steps", self.settings.steps())
        check_names(matched=self.matched, swap=self.swap, hold=self.hold)

    @property
    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity, self.steps, self.match, self.swap, self.hold)

    # ---- roles

    @property
    def match(self) -> tuple[str, ...]:
        """Return the variables that exchanging records share."""
        return tuple(self.settings.match)

    @property
    def swap(self) -> tuple[str, ...]:
        """Return the variables that are exchanged, all together."""
        return tuple(self.settings.swap)

    @property
    def hold(self) -> tuple[str, ...] | None:
        """Return the variables to release besides, or None where that is everything else."""
        return None if self.settings.hold is None else tuple(self.settings.hold)

    @property
    def matched(self) -> tuple[str, ...]:
        """Return all variables that any exchange matches on; they are held."""
        return (*self.match, *(name for step in self.steps for name in step.matched))

    @property
    def outside(self) -> tuple[str, ...]:
        """Return the released variables that steps change: no invariant fixes them."""
        return tuple(name for step in self.steps for name in step.outside)

    @property
    def coded_columns(self) -> tuple[str, ...]:
        """Return the match and swap variables: a missing value there is a code, or refused."""
        return (*self.matched, *self.swap)

    @property
    def among(self) -> str:
        """Say who may exchange with whom."""
        return f"records with equal {', '.join(self.match)}" if self.match else "all records"

    @property
    def at_rate(self) -> str:
        """Say at which rate records are exchanged."""
        return "rates that depend on these" if self.swap_law.rules else f"a rate of {self.swap_law.base_rate}"

    @property
    def imputed_flag(self) -> str | None:
        """Return the column that flags imputed records, where a swap leaves these out."""
        return None

    def _narrowed(self, data: Microdata) -> Microdata:
        """Return the data with only those person columns that an explicit ``hold`` names."""
        if self.hold is None or data.persons is None:
            return data
        return replace(data, keep_persons=self.hold)

    def _roles(self, data: Microdata) -> Roles:
        after_imputation(data.stage, data.post_imputation, flag=self.imputed_flag)  # refuses what contradicts itself
        roles = roles_in(data, matched=self.matched, swap=self.swap, hold=self.hold, unit=self.unit)
        if {*roles.hold} <= {*self.match} and data.persons is None:
            raise bad_plan(
                "there is nothing to hold besides the match variables, so swapping changes nothing",
                where="hold",
                remedy="keep at least one more column, or match on fewer variables",
            )
        released = (*self.swap, *(name for name in roles.hold if name not in self.match))
        if problems := [each for step in self.steps for each in step.problems(data, released)]:
            raise DataError(problems)
        return roles

    # ---- the plan

    def _prepare(self, data: Microdata, roles: Roles, *, origin: SwapOrigin) -> SwapPlan:
        """Return strata, loss and promise for a file whose columns have these roles."""
        law, outside = self.swap_law, {*self.outside}
        swap = encode(data.households, [name for name in self.swap if name not in outside])
        # Match variables are equal inside a stratum and can tell no records apart.
        held = held_parts(data, [name for name in roles.hold if name not in (*self.match, *outside)])
        find = partial(law.strata, data.households, match=self.match)
        found = find(swap=swap, held=held)
        exposed = strata = law.left_out(found)
        if outside:
            # Not even which strata are live may look at these variables: under the promise they could be anything.
            strata = find(swap=None if outside & {*self.swap} else swap, held=None if outside & {*roles.hold} else held)
        policy = reduce(lambda known, step: step.policy(known, exposed), self.steps, law.policy(exposed, swap))
        universe = SwapUniverse(
            policy=policy,
            own=None if self.steps else law.own_loss(strata, swap=swap, held=held),
            untouched=0 if outside else found.exact_records,
            records=data.households.height,
            match=self.match,
            swap=self.swap,
            hold=roles.hold,
            persons=data.persons is not None,
            name=data.name,
            columns=roles.columns,
            stage=data.stage,
            post_imputation=after_imputation(data.stage, data.post_imputation, flag=self.imputed_flag),
            imputed=self.imputed_flag,
        )
        if self.engine is not None:
            _bulk().check_blocks(self.engine, strata)
        moved = strata.with_shares(law.moved(strata, swap))
        plan = SwapPlan(
            specification=self.specification(universe),
            strata=moved,
            exposed=exposed,
            hold=roles.hold,
            dropped=roles.dropped,
            universe=universe,
            swap=swap,
            coded=strata.coded,
            origin=origin,
            perturbed=self.outside,
            moved_get=law.moved_get,
            decisive=law.decisive(exposed if self.outside else moved),
        )
        return reduce(lambda known, step: step.planned(self, known), self.steps, plan)

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe, under the margins of Proposition 4."""
        promised = self.promised_by_law(universe, outside=self.outside)
        return reduce(lambda known, step: step.promised(known, unit=self.unit), self.steps, promised)

    def promised_by_law(self, universe: SwapUniverse, *, outside: Sequence[str] = ()) -> Specification:
        """Return the promise of the exchange alone, relative to what is left without the variables ``outside``."""
        multiverse = Multiverse(invariants=self.margins(universe, outside=outside))
        if not outside:  # otherwise a single record can change its value alone
            multiverse = replace(
                multiverse,
                nearest=2,
                nearest_because="swapping: with both tables fixed no record can change alone",
                consequences=self._determined(universe),
            )
        promised = Specification(
            flavor=Flavor(
                domain=Domain.of_file(
                    universe.name,
                    stage=universe.stage,
                    record_types=(self.unit, "person") if universe.persons else (self.unit,),
                    columns=universe.columns,
                ),
                multiverse=multiverse,
                input_premetric=InputPremetric(name="d_HamS", unit=self.unit, post_imputation=universe.post_imputation),
                output_premetric=PURE,
            ),
            budget=universe.budget,
            assumptions=ASSUMPTIONS,
            relies_on=(ONE_RUN,),
            theorem=self.swap_law.theorem,
            settings_from=self.settings_from,
        )
        return self.swap_law.promised(promised, unit=self.unit)

    def margins(self, universe: SwapUniverse, *, outside: Sequence[str] = ()) -> tuple[Margin, ...]:
        """Return the two tables that a swap keeps, match x swap and what is held, without the variables ``outside``."""
        inside = ("person",) if universe.persons else ()
        of_persons = ["all characteristics of its persons"] if universe.persons else []
        swap, hold = ([n for n in names if n not in outside] for names in (universe.swap, universe.hold))
        held = [*(name for name in hold if name not in universe.match), *of_persons]
        tables = (
            Margin(of=self.unit, variables=(*universe.match, *swap)),
            Margin(of=self.unit, variables=(*universe.match, *held), includes=inside),
        )
        # The sizes of the strata, all that a table of match variables says, follow from the other one.
        return tuple(each for each, own in zip(tables, (swap, held), strict=True) if own or not outside)

    def _determined(self, universe: SwapUniverse) -> tuple[str, ...]:
        """Say about how many records the invariants tell everything: in their strata one margin is a single cell."""
        if not universe.untouched:
            return ()
        records = number(universe.untouched, records_of(self.unit, 1))
        share = percent(Fraction(universe.untouched, universe.records), digits=2)
        where = f"their strata (equal {' x '.join(universe.match)})" if universe.match else "this file"
        return (
            f"everything released about {records} ({share} of all): all records of {where} have "
            f"the same {' x '.join(universe.swap)}, or are alike in everything held, so nothing can be swapped there",
        )

    def _doubts(self, data: Microdata, plan: SwapPlan) -> Iterator[Doubt]:
        """Yield everything that speaks against releasing a file with this plan."""
        yield from settings_doubts(self.settings_from)
        yield from self._empty(plan)
        yield from missing_doubts(data.households, self.coded_columns, codes=data.not_missing)
        yield from identifier_doubts(data, plan.hold, swap=self.swap, unit=self.unit)
        searched = SwapColumns(
            match=plan.universe.match,
            swap=plan.universe.swap,
            hold=plan.hold,
            strata=plan.strata.coded,
            coded=plan.swap,
            unit=self.unit,
            perturbed=next(iter(plan.perturbed), None),
            exact_hold=plan.exact_hold,
            exact_swap=plan.exact_swap,
        )
        yield from revealing_columns(data, searched)
        yield from similar_in_roles(plan.strata, plan.swap)

    def _empty(self, plan: SwapPlan) -> Iterator[Doubt]:
        """Yield the doubt about an empty promise: nothing to swap, or nothing promised."""
        yield from empty_promise(plan, self.expected_change(plan))

    def expected_change(self, plan: SwapPlan) -> ExpectedChange | None:
        """Return what is expected to change; None where it depends on what is protected."""
        if self.swap_law.protects_moves or self.unsaid is not None or plan.perturbed:
            return None
        records, share = plan.strata.margins.count, self.changed_where_live(plan.strata, plan.swap)
        still = int(records[share < _LEAST_SHARE].sum())
        return ExpectedChange(expected=float((records * share).sum()), still=still)

    def changed_where_live(self, strata: Strata, swap: Coded) -> Shares:
        """Return for each value of each stratum the share of its records that change it, 0 in strata not live."""
        return np.where(strata.live[strata.margins.stratum], self.swap_law.changed(strata, swap), 0.0)

    def areas_changed(self, plan: SwapPlan) -> Any:
        """Return for each combination of swap values how many records have it and which share is expected to change.

        A function of the invariants. Small areas are where swaps of the family differ most. None where a response
        protects the areas themselves.
        """
        if self.unsaid is not None:
            raise bad_plan(self.unsaid[0], where=self.name, remedy=self.unsaid[1])
        if {*plan.perturbed} & {*self.swap}:
            return None
        return by_area(plan.swap, plan.strata.margins, self.changed_where_live(plan.strata, plan.swap))

    # ---- the release

    @property
    def exchange(self) -> Exchange | None:
        """Return what is exchanged within which strata, where their sizes alone decide the law."""
        return Exchange(self.match, self.swap) if self.swap_law.by_sizes and not self.steps else None

    def swapped_file(self, data: Microdata, entropy: Entropy) -> pl.DataFrame:
        """Return the swapped records, for a mechanism that publishes none of them."""
        plan = self.plan(data, doubts=False)
        file: SwappedFile = self._drawn(self._narrowed(data), plan, entropy, None)["file"]
        return pl.concat([*file.households()])

    def _before(self, data: Microdata, plan: SwapPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
        data = reduce(lambda known, step: step.before(known, entropy), self.steps, data)
        # Codes of the changed file alone decide the released order: what was in the input leaves no trace in it.
        return data, encode(data.households, list(self.swap)) if self.outside else plan.swap

    def _exchange(self, plan: Any, swapped: Values, entropy: Entropy, progress: Progress | None) -> Mapping[str, Any]:
        own = entropy.child(f"{self.swap_law.name} swap")
        if self.engine is not None:
            advance = progress or (lambda stage, done, total: None)
            advance("exchanging", 0, 1)
            without_codes = Coded(plan.swap.codes[:0], plan.swap.levels)  # the kernel travels
            _bulk().exchange(self.engine, plan, self.swap_law.kernel(plan.strata, without_codes), swapped, own)
            advance("exchanging", 1, 1)
            advance("gathering", 0, 1)
            return {}
        kernel = self.swap_law.kernel(plan.strata, plan.swap)
        kernel(plan.strata.coded.codes, swapped, entropy=own, threads=self.threads, progress=progress)
        for step in self.steps:
            step.after(plan, swapped, entropy=entropy, threads=self.threads, progress=progress)
        return {}

    def _gathered(self, data: Microdata, plan: SwapPlan, **exchanged: Any) -> SwappedFile:
        if self.engine is not None:
            found: SwappedFile = _bulk().gathered(self.engine, data, plan, **exchanged)
            return found
        return SwappedFile.of(data, plan.hold, known=plan.strata.coded, **exchanged)

    def warm(self) -> None:
        """Load the compiled passes, which are otherwise loaded when they are needed."""
        for name in ("order", *self.swap_law.passes):
            import_module(f"stirred.mechanisms.records.kernels.{name}")

    def on(self, engine: Engine) -> Self:
        """Return the swap whose records are exchanged and gathered by the machines of an engine, or on this one."""
        if engine.name == LOCAL:
            return replace(self, engine=None)
        if self.steps:
            return super().on(engine)  # refused
        _ = engine.sources["households"]  # refused here, in the plan, if the records are not those in the files
        return replace(self, engine=cast(ClusterEngine, engine))

    def recheck(self, data: Microdata, plan: SwapPlan) -> None:
        """Compare what the machines of an engine read with what was planned."""
        if self.engine is not None:
            _bulk().check_blocks(self.engine, plan.strata)  # how much memory a task has is known only now
            _bulk().check_records(self.engine, self._narrowed(data), plan)

    def premises(self, plan: SwapPlan) -> dict[str, str]:
        """Return the checksum of the records as codes."""
        # The draw is addressed by these: files that are read otherwise would get the same decisions for other records.
        digest = hashlib.sha256()
        for array in (plan.strata.coded.codes, plan.swap.codes):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return {"the records as codes": digest.hexdigest()}

    # ---- the files, what is checked of them, and the pages

    files = swap_files
    table_in_words = pages.exactness
    conclusions = pages.swap_conclusions
    headline = pages.swap_headline
    typical_errors = pages.swap_errors
    sections = pages.swap_sections
    reading_tables = pages.reading_tables

    @property
    def law_columns(self) -> Mapping[str, str]:
        """Return the settings of its steps that ``strata.parquet`` repeats for every stratum, by column."""
        return {name: text for step in self.steps for name, text in step.columns.items()}

    @property
    def stratum_law(self) -> str:
        """Return the name of the law of its exchanges, as ``strata.parquet`` has it."""
        return self.swap_law.stratum_law

    @property
    def stratum_columns(self) -> tuple[str, ...]:
        """Return what ``strata.parquet`` has beside the match values."""
        return (*OWN_COLUMNS, *self.law_columns)

    def strata_table(self, strata: Strata) -> pl.DataFrame:
        """Return the strata as they are published, with the settings a reader needs to know the law."""
        settings = [pl.lit(text).alias(name) for name, text in self.law_columns.items()]
        return strata.frame(self.stratum_law).with_columns(settings)

    @property
    def strata_in_words(self) -> str:
        """Say what strata.parquet has."""
        own = "match values, records, whether there is anything to swap, rate, expected share moved"
        return "; ".join([own, *(step.columns_in_words for step in self.steps)])

    def verify_exact(self, data: Microdata, plan: SwapPlan, written: Written) -> list[Check]:
        """Count the invariants and the sizes of the strata once more from the input."""
        from stirred.mechanisms.records.evidence import verify_fixed

        return verify_fixed(data, plan, self.strata_table(plan.strata), written)

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Count invariants, identifiers, strata and persons of a bundle anew, and compute its promise again."""
        audit_records(bundle, self, self.outside, found)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Count anew what public files show, and hold the budget against the strata: no settings are needed."""
        audit_records(bundle, None, (), found)

    # ---- rates, accuracy, small universes

    def loss_curve(self, plan: SwapPlan) -> Curve | None:
        """Return the loss against the rate, where it is a function of the size of the largest stratum alone."""
        return self.swap_law.loss_curve(plan.strata)

    @property
    def cell_law(self) -> SwapCellLaw | None:
        """Return what the moments of its tables follow from, where permutations that move as many are as likely."""
        moved, law = type(self).number_moved, self.swap_law
        if moved is None or not law.closed_form:
            return None
        rate_of = partial(rate_for, rules=law.rules, default=law.base_rate)
        return SwapCellLaw(match=self.match, swap=self.swap, rate_of=rate_of, moved=moved)

    @property
    def no_closed_form(self) -> str:
        """Say why errors of tables cannot be computed beforehand; empty where they can."""
        return "" if self.cell_law is not None else f"the error of the {self.stratum_law} swap has no closed form"

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss on a stratum where hold and swap values occur this often, beside every bound."""
        return self.swap_law.stratum_audit(hold, swap)

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a file of one stratum, given the (hold, swap) pairs of all its tables."""
        first: Any = universe[0]
        records = {"held": [h for h, _ in first], self.swap[0]: [s for _, s in first]}
        return self._one_stratum().plan(pl.DataFrame(records), doubts=False).specification

    def _one_stratum(self) -> Self:
        """Return the same swap on a file of one stratum, with one swap and one hold variable."""
        return self.with_settings(match=(), swap=self.swap[:1], hold=("held",))


class RatedSwap(Swap):
    """A swap with a rate, which decides its loss."""

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the rate, and whether there are others."""
        others = ", others by match value" if self.swap_law.rules else ""
        return "".join([f"rate {percent(self.swap_law.base_rate)}{others}", *(s.setting_in_words for s in self.steps)])

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss that each rate would have for the same file."""
        return self.swap_law.losses(plan.strata, plan.swap, rates)

    def rate_reaching(self, plan: SwapPlan, epsilon: Exact) -> Fraction:
        """Return the gentlest rate whose loss is at most ``epsilon``; refuse where there is none."""
        return self.swap_law.rate_reaching(plan.strata, plan.swap, epsilon)

    def rates_reaching(self, plan: SwapPlan, epsilon: Exact) -> list[tuple[float, Fraction]]:
        """Return all rates where the loss becomes ``epsilon``."""
        return self.swap_law.rates_reaching(plan.strata, plan.swap, epsilon)


def _bulk() -> Any:
    """Return the bulk work on a cluster, loaded where one is used."""
    from stirred.mechanisms.records import bulk

    return bulk


def by_area(swap: Coded, margins: SwapMargins, share: Shares) -> pl.DataFrame:
    """Return for each combination of swap values its records, and the share of them that values of strata have."""
    records = np.bincount(margins.value, weights=margins.count, minlength=swap.count)
    changed = np.bincount(margins.value, weights=margins.count * share, minlength=swap.count)
    own = pl.DataFrame({"records": records.astype(np.int64), "share_changed": changed / records})
    return pl.concat([swap.levels, own], how="horizontal")
