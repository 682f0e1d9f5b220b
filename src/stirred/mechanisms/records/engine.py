"""The engine of swaps: roles of columns, plan and doubts, the draw, the released file, its checks and pages.

A mechanism of this family is settings, a law (``law.SwapLaw``) and steps before or after the exchange
(``law.SwapStep``); everything else is here, once.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial, reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, cast

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codes import Coded, encode
from stirred.data.column_doubts import SwapColumns, revealing_columns
from stirred.data.microdata import Microdata, as_microdata
from stirred.data.missing import missing_doubts
from stirred.data.problems import DataError, PlanError, bad_plan, number
from stirred.data.record_doubts import identifier_doubts
from stirred.engines.protocol import LOCAL, ClusterEngine, Engine
from stirred.mechanisms.protocol import (
    Check,
    Exchange,
    Frames,
    Mechanism,
    Opening,
    PlanOrigin,
    Progress,
    PublicFile,
    RateLosses,
    Release,
    ReleasedColumns,
    StratumAudit,
    SwapCellLaw,
    SwapFamily,
    Workplace,
    Written,
)
from stirred.mechanisms.records import pages
from stirred.mechanisms.records.audit import audit_records
from stirred.mechanisms.records.family import FamilyMember, refuse_alone
from stirred.mechanisms.records.files import SwappedFile, record_files, swap_files
from stirred.mechanisms.records.law import StratumLaw, SwapStep
from stirred.mechanisms.records.plan import SwapPlan, empty_promise, similar_in_roles, swap_budget
from stirred.mechanisms.records.roles import Roles, SwapSettings, check_names, roles_in
from stirred.mechanisms.records.strata import Strata, held_parts, rate_for
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget
from stirred.spec.domain import Domain, after_imputation
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import OF_PERSONS, Margin, records_of
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import percent
from stirred.spec.output_premetric import PURE
from stirred.spec.problems import Problem
from stirred.spec.specification import ONE_RUN, Flavor, Specification

Values = npt.NDArray[np.uint32]

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
class RecordSwap(Mechanism):
    """Records of which some exchange their ``swap`` values: the life of a release, whatever decides who exchanges.

    Settings are given by keyword, ``PermutationSwap(match=["size"], swap=["county"], rate="1/20")``. ``swap_law`` is
    made of them, with exact numbers (``swap.swap_law.rate``). ``with_settings`` changes single ones.
    """

    # What changes other columns than the exchanged ones, for those where something does.
    perturbed_by: ClassVar[str] = ""

    if TYPE_CHECKING:
        steps: tuple[SwapStep, ...]
        hold: tuple[str, ...] | None  # variables to release besides; None where that is everything else
        swap_law: Any
        match: tuple[str, ...]
        swap: tuple[str, ...]
        outside: tuple[str, ...]  # the released variables that no invariant fixes: none for most swaps
    else:
        steps, hold = (), None

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
        Mechanism.__init__(self, settings, **given)
        for name, value in (("threads", threads), ("engine", engine), ("swap_law", self.settings.law())):
            object.__setattr__(self, name, value)

    def with_settings(self, **changed: Any) -> Self:
        return type(self)(self.settings, threads=self.threads, engine=self.engine, **changed)

    def __eq__(self, other: object) -> bool:
        # By exact numbers, however the settings write them.
        names = ("swap_law", "unit", "settings_from", "steps", "match", "swap", "hold")
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        return hash((type(self), self.match, self.swap))

    @property
    def areas(self) -> tuple[str, ...]:
        return self.swap

    # ---- the plan

    @abstractmethod
    def _roles(self, data: Microdata) -> Roles:
        """Return the roles of a file's columns; raise all problems with them."""

    def check(self, data: Any) -> None:
        self._roles(self._narrowed(as_microdata(data)))

    def _narrowed(self, data: Microdata) -> Microdata:
        """Return the data with only those person columns that are released."""
        return data if self.hold is None or data.persons is None else replace(data, keep_persons=self.hold)

    def _promise(
        self,
        data: Microdata,
        columns: Sequence[str],
        *,
        multiverse: Multiverse,
        budget: Budget,
        assumptions: tuple[str, ...],
        theorem: tuple[str, ...],
        post_imputation: bool | None = None,
    ) -> Specification:
        """Return a promise about a single record of files with these columns."""
        types = (self.unit,) if data.persons is None else (self.unit, "person")
        premetric = InputPremetric(name="d_HamS", unit=self.unit, post_imputation=post_imputation)
        domain = Domain.of_file(data.name, stage=data.stage, record_types=types, columns=tuple(columns))
        flavor = Flavor(domain=domain, multiverse=multiverse, input_premetric=premetric, output_premetric=PURE)
        return Specification(
            flavor=flavor,
            budget=budget,
            assumptions=assumptions,
            relies_on=(ONE_RUN,),
            theorem=theorem,
            settings_from=self.settings_from,
        )

    # ---- the release

    def make_release(self, opening: Opening, progress: Progress | None) -> Release:
        """Swap once. The result is an unordered table: rows come out in an order independent of the input."""
        microdata, plan, entropy, promised, convert, _ = opening
        drawn = self._swapped(self._narrowed(microdata), replace(plan, specification=promised), entropy, progress)
        file: SwappedFile = drawn["file"]
        public = Frames(file.tables, convert=convert, files=file.files)
        return Release(public=public, specification=promised, internal={"plan": plan, **drawn})

    def _swapped(self, data: Microdata, plan: Any, entropy: Entropy, progress: Progress | None) -> dict[str, Any]:
        """Return the swapped ``file``, which stays inside; the released tables are made of it in parts."""
        from stirred.mechanisms.records.kernels.partition import release_order

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
        return record_files(released, data, swap=self.swap, others=self.outside)

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        from stirred.mechanisms.records.evidence import verify_swap

        return verify_swap(data, plan, release, written, own=self.swap_law.checks(plan, release))

    # ---- small files, for audits

    @property
    def _audited(self) -> Any:
        """Return what decides which small files are enumerated: a step, or the law without any."""
        return self.steps[0] if self.steps else self.swap_law

    def law(self, dataset: Any) -> Law:
        law: StratumLaw = reduce(lambda known, step: step.on_small(known), self.steps, self.swap_law.on_small)
        return law(dataset)

    def audit_universes(self) -> list[list[Hashable]]:
        return cast(list[list[Hashable]], self._audited.universes())

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        columns, settings = self._audited.small(universe[0], swap=self.swap)
        return cast(
            Specification, self.with_settings(**settings).plan(pl.DataFrame(columns), doubts=False).specification
        )


class Swap(RecordSwap):
    """A swap within strata of equal match values: a law of the family (``law.SwapLaw``), with ``steps`` around it."""

    settings_model: ClassVar[type[SwapSettings]]
    # Each is advised and compared with the others; ``registry.family`` lists them.
    family: ClassVar[SwapFamily] = SwapFamily()

    settings: SwapSettings

    if TYPE_CHECKING:
        matched: tuple[str, ...]  # all variables that any exchange matches on; they are held

        def plan(self, data: Any, *, doubts: bool = True) -> SwapPlan: ...

    def __init__(self, settings: SwapSettings | None = None, **given: Any) -> None:
        super().__init__(settings, **given)
        settings = self.settings
        steps, match, hold = settings.steps(), settings.matched, settings.hold
        parts = {
            "steps": steps,
            "match": match,
            "matched": (*match, *(name for step in steps for name in step.matched)),
            "swap": tuple(settings.swap),
            "hold": None if hold is None else tuple(hold),
            "outside": tuple(name for step in steps for name in step.outside),
        }
        for name, value in parts.items():
            object.__setattr__(self, name, value)
        check_names(matched=self.matched, swap=self.swap, hold=self.hold)

    @classmethod
    def members(cls, plan: SwapPlan) -> list[FamilyMember]:
        """Return what this swap could be on the file of a plan of the family; refuse a plan that cannot be compared."""
        refuse_alone(plan)
        return [FamilyMember(kind=cls, scale=scale, plan=plan) for scale in cls.family.scales]

    # ---- roles

    @property
    def coded_columns(self) -> tuple[str, ...]:
        return (*self.matched, *self.swap)

    @property
    def among(self) -> str:
        """Say who may exchange with whom."""
        return f"records with equal {', '.join(self.match)}" if self.match else "all records"

    @property
    def at_rate(self) -> str:
        """Say at which rate records are exchanged."""
        return "rates that depend on these" if self.swap_law.rules else f"a rate of {self.swap_law.base_rate}"

    def _roles(self, data: Microdata) -> Roles:
        # Refuses what contradicts itself.
        after_imputation(data.stage, data.post_imputation, flag=self.swap_law.imputed)
        further = [*self.swap_law.problems(data)]
        roles = roles_in(data, matched=self.matched, swap=self.swap, hold=self.hold, unit=self.unit, further=further)
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

    def draft(self, data: Microdata, *, doubts: bool) -> SwapPlan:
        origin = PlanOrigin(self, data)  # steps ask it for the file
        data = self._narrowed(data)
        roles, law, outside = self._roles(data), self.swap_law, {*self.outside}
        swap = encode(data.households, [name for name in self.swap if name not in outside])
        # Match variables are equal inside a stratum and can tell no records apart.
        held = held_parts(data, [name for name in roles.hold if name not in (*self.match, *outside)])
        find = partial(law.strata, data.households, match=self.match)
        found = find(swap=swap, held=held)
        exposed = strata = law.left_out(found)
        if outside:
            # Not even which strata are live may look at these variables: under the promise they could be anything.
            strata = find(swap=None if outside & {*self.swap} else swap, held=None if outside & {*roles.hold} else held)
        if self.engine is not None:
            _bulk().check_blocks(self.engine, strata)
        policy = reduce(lambda known, step: step.policy(known, exposed), self.steps, law.policy(exposed, swap))
        own = None if self.steps else law.own_loss(strata, swap=swap, held=held)
        untouched = 0 if outside else found.exact_records
        plan = SwapPlan(
            specification=self._specification(data, roles, swap_budget(policy, own), untouched=untouched),
            strata=strata.with_shares(law.moved(strata, swap)),
            exposed=exposed,
            match=self.match,
            hold=roles.hold,
            dropped=roles.dropped,
            perturbed=self.outside,
            own_loss=own,
            swap=swap,
            coded=strata.coded,
            origin=origin,
        )
        return reduce(lambda known, step: step.planned(self, known), self.steps, plan)

    def _specification(self, data: Microdata, roles: Roles, budget: Budget, *, untouched: int) -> Specification:
        """Return the promise, relative to the margins without what steps change.

        ``untouched`` counts the records of strata with nothing to swap: both margins together determine them.
        """
        multiverse = self.multiverse(roles.hold, persons=data.persons is not None, outside=self.outside)
        promised = self._promise(
            data,
            roles.columns,
            multiverse=replace(multiverse, consequences=self._determined(untouched, of=data.households.height)),
            budget=budget,
            assumptions=ASSUMPTIONS,
            theorem=self.swap_law.theorem,
            post_imputation=after_imputation(data.stage, data.post_imputation, flag=self.swap_law.imputed),
        )
        promised = self.swap_law.promised(promised, unit=self.unit)
        return reduce(lambda known, step: step.promised(known, unit=self.unit), self.steps, promised)

    def multiverse(self, hold: Sequence[str], *, persons: bool, outside: Sequence[str] = ()) -> Multiverse:
        """Return the files with the same margins (Proposition 4), as far as they are without the variables outside."""
        invariants = self.margins(hold, match=self.match, persons=persons, outside=outside)
        if outside:  # a single record can change its value alone
            return Multiverse(invariants=invariants)
        because = "swapping: with both tables fixed no record can change alone"
        return Multiverse(invariants=invariants, nearest=2, nearest_because=because)

    def margins(
        self, hold: Sequence[str], *, match: Sequence[str], persons: bool, outside: Sequence[str] = ()
    ) -> tuple[Margin, ...]:
        """Return the two tables that a swap keeps, match x swap and what is held, without the variables ``outside``."""
        of_persons = [OF_PERSONS] if persons else []
        swap = [name for name in self.swap if name not in outside]
        held = [*(name for name in hold if name not in (*match, *outside)), *of_persons]
        tables = (
            Margin(of=self.unit, variables=(*match, *swap)),
            Margin(of=self.unit, variables=(*match, *held), includes=("person",) if persons else ()),
        )
        # The sizes of the strata, all that a table of match variables says, follow from the other one.
        return tuple(each for each, own in zip(tables, (swap, held), strict=True) if own or not outside)

    def _determined(self, untouched: int, *, of: int) -> tuple[str, ...]:
        """Say about how many records the invariants say everything: in their strata one margin is a single cell."""
        if not untouched:
            return ()
        records = number(untouched, records_of(self.unit, 1))
        share = percent(Fraction(untouched, of), digits=2)
        where = f"their strata (equal {' x '.join(self.match)})" if self.match else "this file"
        return (
            f"everything released about {records} ({share} of all): all records of {where} have "
            f"the same {' x '.join(self.swap)}, or are alike in everything held, so nothing can be swapped there",
        )

    def doubts(self, data: Microdata, plan: SwapPlan) -> Iterator[Doubt]:
        data = self._narrowed(data)
        yield from self.steps[0].doubts(plan) if self.steps else empty_promise(plan)
        yield from missing_doubts(data.households, self.coded_columns, codes=data.not_missing)
        yield from identifier_doubts(data, plan.hold, swap=self.swap, unit=self.unit)
        searched = SwapColumns(
            match=self.match,
            swap=self.swap,
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

    @property
    def hidden(self) -> Problem | None:
        """Return why it is not said whom it changes, where that depends on counts that it protects."""
        return next((each.hidden for each in (self.swap_law, *self.steps) if each.hidden is not None), None)

    def areas_changed(self, plan: SwapPlan) -> Any:
        """Return for each combination of swap values how many records have it and which share is expected to change.

        A function of the invariants. Small areas are where swaps of the family differ most. None where a response
        protects the areas themselves.
        """
        if self.hidden is not None:
            raise PlanError([self.hidden])
        if {*plan.perturbed} & {*self.swap}:
            return None
        # The plan may be that of another member, whose invariants are the same.
        swap, margins, share = plan.swap, plan.strata.margins, self.swap_law.changed(plan.strata, plan.swap)
        records = np.bincount(margins.value, weights=margins.count, minlength=swap.count)
        changed = np.bincount(margins.value, weights=margins.count * share, minlength=swap.count)
        own = pl.DataFrame({"records": records.astype(np.int64), "share_changed": changed / records})
        return pl.concat([swap.levels, own], how="horizontal")

    # ---- the release

    @property
    def exchange(self) -> Exchange | None:
        by_sizes = self.swap_law.by_sizes and not self.steps
        return Exchange(within=self.match, of=self.swap) if by_sizes else None

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

    def ready(self, data: Any, plan: Any, workplace: Workplace | None = None) -> None:
        for name in ("partition", *self.swap_law.passes):
            import_module(f"stirred.mechanisms.records.kernels.{name}")
        if self.engine is not None:
            _bulk().check_blocks(self.engine, plan.strata)  # how much memory a task has is known only now
            _bulk().check_records(self.engine, self._narrowed(data), plan)

    def on(self, engine: Engine) -> Self:
        if engine.name == LOCAL:
            return replace(self, engine=None)
        if self.steps:
            return super().on(engine)  # refused
        _ = engine.sources["households"]  # refused here, in the plan, if the records are not those in the files
        return replace(self, engine=cast(ClusterEngine, engine))

    def premises(self, plan: SwapPlan) -> dict[str, str]:
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

    @cached_property
    def law_columns(self) -> Mapping[str, str]:
        """Return the settings of its steps that ``strata.parquet`` repeats for every stratum, by column."""
        return {name: text for step in self.steps for name, text in step.columns.items()}

    @property
    def stratum_law(self) -> str:
        return next((step.stratum_law for step in self.steps), self.swap_law.stratum_law)

    def strata_table(self, strata: Strata) -> pl.DataFrame:
        """Return the strata as they are published, with the settings a reader needs to know the law."""
        settings = [pl.lit(text).alias(name) for name, text in self.law_columns.items()]
        return strata.frame(self.stratum_law).with_columns(settings)

    def verify_exact(self, data: Microdata, plan: SwapPlan, written: Written) -> list[Check]:
        from stirred.mechanisms.records.evidence import verify_fixed

        return verify_fixed(data, plan, self.strata_table(plan.strata), written)

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        audit_records(bundle, self, found)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        audit_records(bundle, None, found)

    # ---- rates, accuracy, small universes

    @property
    def cell_law(self) -> SwapCellLaw | None:
        family, law = self.family, self.swap_law
        if law.hidden is not None or (family.moved is None and family.redrawn is None):
            return None
        found = SwapCellLaw(
            match=self.match,
            swap=self.swap,
            rate_of=partial(rate_for, rules=law.rules, default=law.base_rate),
            moved=family.moved,
            redrawn=family.redrawn,
            redraw_law=law.redraw_law,
        )
        return reduce(lambda known, step: step.cells(known), self.steps, found)

    @property
    def no_closed_form(self) -> str:
        return "" if self.cell_law is not None else f"the error of the {self.stratum_law} swap has no closed form"

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss on a stratum where hold and swap values occur this often, with every bound."""
        return self.swap_law.stratum_audit(hold, swap)


class RatedSwap(Swap):
    """A swap with a rate, which decides its loss."""

    def setting_in_words(self, epsilon: Exact) -> str:
        others = ", others by match value" if self.swap_law.rules else ""
        return "".join(
            [f"rate {percent(self.swap_law.base_rate)}{others}", *(step.words.setting for step in self.steps)]
        )

    def rate_losses(self, plan: SwapPlan) -> RateLosses:
        law, of_file = self.swap_law, (plan.exposed, plan.swap)
        found = RateLosses(
            losses=partial(law.losses, *of_file),
            gentlest=partial(law.rate_reaching, *of_file),
            reaching=partial(law.rates_reaching, *of_file),
        )
        return reduce(lambda known, step: step.rate_losses(known, plan), self.steps, found)


def _bulk() -> Any:
    """Return the bulk work on a cluster, loaded where one is used."""
    from stirred.mechanisms.records import bulk

    return bulk
