"""What every release by swapping shares: roles of columns, plan and doubts, the released file, its checks and pages."""

from __future__ import annotations

import hashlib
import importlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codes import Coded
from stirred.data.column_doubts import revealing_columns
from stirred.data.column_evidence import SwapColumns
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata
from stirred.data.missing import missing_doubts
from stirred.data.packed import Packed
from stirred.data.problems import bad_plan
from stirred.engines.protocol import Cluster
from stirred.mechanisms.doubts import identifier_doubts
from stirred.mechanisms.opening import opened
from stirred.mechanisms.protocol import (
    SAMPLED,
    Check,
    Curve,
    Frames,
    Mechanism,
    Progress,
    Release,
    Written,
    settings_doubts,
)
from stirred.mechanisms.swapping.core import words
from stirred.mechanisms.swapping.core.bundle_audit import audit_records
from stirred.mechanisms.swapping.core.files import WITH_PERSONS, allowed_columns, fixed_tables, swap_files
from stirred.mechanisms.swapping.core.plan import Origin, SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.roles import Roles, check_names, roles_in
from stirred.mechanisms.swapping.core.strata import OWN_COLUMNS, Strata
from stirred.mechanisms.swapping.core.swapped_file import Persons, SwappedFile
from stirred.mechanisms.swapping.doubts.promise import Changed, empty_promise, similar_in_roles
from stirred.randomness.entropy import Entropy
from stirred.spec.domain import after_imputation
from stirred.spec.doubts import Doubt
from stirred.spec.given_numbers import loss, probability
from stirred.spec.specification import Specification

Values = npt.NDArray[np.uint32]
# A pass over the columns of strata and of swap codes; the latter is changed in place.
Kernel = partial[int]
Parts = Mapping[str, Callable[[], Iterable[pl.DataFrame]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Swapping(Mechanism):
    """What a member of the family (``Swap``) and a layer around one (``Layer``) share.

    Each says what it does to a file (``_prepare``), what it promises (``specification``) and how swap codes are
    exchanged (``_exchange``).
    """

    member: ClassVar[str]  # its name in the family

    match: Sequence[str]
    swap: Sequence[str]
    hold: Sequence[str] | None = None
    unit: str = "household"
    settings_from: str | None = None
    threads: int | None = field(default=None, compare=False)
    engine: Cluster | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, read in (("rate", probability), ("epsilon", loss)):
            if name in self.settings_model.model_fields:
                object.__setattr__(self, name, read(getattr(self, name), where=name))
        for name in ("match", "swap", "hold"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        check_names(matched=self.matched, swap=self.swap, hold=self.hold)

    # ---- roles

    @property
    def matched(self) -> tuple[str, ...]:
        """Return all variables that any exchange matches on; they are held."""
        return tuple(self.match)

    @property
    def coded_columns(self) -> tuple[str, ...]:
        """Return the match and swap variables: a missing value there is a code, or refused."""
        return (*self.matched, *self.swap)

    @property
    def areas(self) -> tuple[str, ...]:
        """Return the swap variables."""
        return tuple(self.swap)

    @property
    def grouped_by(self) -> tuple[str, ...]:
        """Return the swap variables: released records are grouped by them, and otherwise in random order."""
        return tuple(self.swap)

    @property
    def among(self) -> str:
        """Say who may exchange with whom."""
        return f"records with equal {', '.join(self.match)}" if self.match else "all records"

    @property
    def outside(self) -> tuple[str, ...]:
        """Return the released variables that no invariant fixes: none for most swaps."""
        return ()

    @property
    def imputed_flag(self) -> str | None:
        """Return the column that flags imputed records, where a swap leaves these out."""
        return None

    def check(self, data: Any) -> None:
        """Raise all problems of a file's columns with these settings; nothing is computed."""
        self._roles(self._narrowed(as_microdata(data)))

    def _narrowed(self, data: Microdata) -> Microdata:
        """Return the data with only those person columns that an explicit ``hold`` names."""
        if self.hold is None or data.persons is None:
            return data
        return replace(data, keep_persons=tuple(self.hold))

    def _after_imputation(self, data: Microdata) -> bool | None:
        """Return whether the records of a file are records after imputation; refuse what contradicts itself."""
        return after_imputation(data.stage, data.post_imputation, flag=self.imputed_flag)

    def _roles(self, data: Microdata) -> Roles:
        self._after_imputation(data)
        roles = roles_in(data, matched=self.matched, swap=self.swap, hold=self.hold, unit=self.unit)
        if set(roles.hold) <= set(self.match) and data.persons is None:
            raise bad_plan(
                "there is nothing to hold besides the match variables, so swapping changes nothing",
                where="hold",
                remedy="keep at least one more column, or match on fewer variables",
            )
        return roles

    # ---- the plan

    @abstractmethod
    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise in one universe."""

    @abstractmethod
    def _prepare(self, data: Microdata, roles: Roles) -> SwapPlan:
        """Return strata, loss and promise for a file whose columns have these roles."""

    def plan(self, data: Any, *, doubts: bool = True) -> SwapPlan:
        """Return strata, loss, invariants and doubts for a file; nothing random happens.

        The search for doubts looks at every column of the file. Whoever only compares losses, or plans a file that was
        released already, does without it.
        """
        plan = self._planned(microdata := as_microdata(data))
        if not doubts:
            return plan
        found = tuple(self._doubts(self._narrowed(microdata), plan))
        return replace(plan, origin=Origin(mechanism=self, data=microdata, doubts=found))

    def _planned(self, data: Microdata) -> SwapPlan:
        narrowed = self._narrowed(data)
        return replace(self._prepare(narrowed, self._roles(narrowed)), origin=Origin(mechanism=self, data=data))

    def _laid_out(self, data: Microdata, roles: Roles, *, strata: Strata, swap: Coded, **known: Any) -> SwapPlan:
        """Return the plan for these strata and swap codes; ``known`` is what else the universe tells."""
        universe = SwapUniverse(
            match=tuple(self.match),
            swap=tuple(self.swap),
            hold=roles.hold,
            persons=data.persons is not None,
            name=data.name,
            columns=roles.columns,
            stage=data.stage,
            post_imputation=self._after_imputation(data),
            **known,
        )
        return SwapPlan(
            specification=self.specification(universe),
            strata=strata,
            hold=roles.hold,
            dropped=roles.dropped,
            universe=universe,
            swap=swap,
        )

    def _doubts(self, data: Microdata, plan: SwapPlan) -> Iterator[Doubt]:
        """Yield everything that speaks against releasing a file with this plan."""
        yield from settings_doubts(self.settings_from)
        yield from self._empty(plan)
        yield from missing_doubts(data.households, self.coded_columns, codes=data.not_missing)
        yield from identifier_doubts(data, plan.hold, swap=self.swap, unit=self.unit)
        yield from revealing_columns(data, _searched(plan, unit=self.unit))
        yield from similar_in_roles(plan.strata, plan.swap)

    def _empty(self, plan: SwapPlan) -> Iterator[Doubt]:
        """Yield the doubt about an empty promise: nothing to swap, or nothing promised."""
        yield from empty_promise(plan, self._changed(plan))

    def _changed(self, plan: SwapPlan) -> Changed | None:
        """Return what is expected to change; None where it depends on what is protected."""
        return None

    def for_sampling(self, plan: SwapPlan) -> SwapPlan:
        """Return a plan by which the law of a swap is tested, on files that a release would refuse."""
        assert plan.origin is not None
        return replace(plan, origin=replace(plan.origin, doubts=(SAMPLED,)))

    # ---- the release

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: SwapPlan | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """Swap once. The result is an unordered table: rows come out in an order independent of the input.

        A doubt about protection refuses, until ``accept`` names it. ``plan`` is this mechanism's plan for the same
        data, where it was made before; any other is refused.
        """
        Entropy.expected(entropy)
        microdata, plan, entropy, promised = opened(self, data, entropy, accept=accept, plan=plan)
        told = replace(plan, specification=promised)  # what is written meanwhile carries the promise
        parts, internal = self._drawn(self._narrowed(microdata), told, entropy, progress)
        return Release(
            public=Frames(parts, convert=like(data), files=internal["file"].files() if "file" in internal else None),
            specification=promised,
            internal={"plan": plan, **internal},
        )

    def _drawn(
        self, data: Microdata, plan: SwapPlan, entropy: Entropy, progress: Progress | None
    ) -> tuple[Parts, dict[str, Any]]:
        """Return the released tables as parts, and what stays inside: the swapped file."""
        from stirred.mechanisms.swapping.kernels.order import release_order

        data, swap = self._before(data, plan, entropy)
        swapped = swap.codes.copy()
        self._exchange(plan, swapped, entropy, progress)
        # Grouped by the released swap values and uniformly random inside: the input order is gone.
        order = release_order(swapped, entropy=entropy.child("release order"), groups=swap.count, threads=self.threads)
        file = self._file(data, plan, swap=swap, swapped=swapped, order=order)
        parts: dict[str, Callable[[], Iterable[pl.DataFrame]]] = {"data": file.households}
        return parts if data.persons is None else {**parts, "persons": file.persons}, {"file": file}

    def _file(self, data: Microdata, plan: SwapPlan, *, swap: Coded, swapped: Values, order: Values) -> SwappedFile:
        """Return the swapped file, in the released order."""
        people = Persons.of(data) if data.persons is not None else None
        held = Packed.of(
            (data.households[name] for name in plan.hold if name not in plan.strata.match), coded=plan.strata.coded
        )
        return SwappedFile(data=data, held=held, swap=swap, swapped=swapped, order=order, people=people)

    def _before(self, data: Microdata, plan: SwapPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
        """Return the file that is swapped, with its swap values as codes: the input itself for most swaps."""
        return data, plan.swap

    @abstractmethod
    def _exchange(self, plan: SwapPlan, swapped: Values, entropy: Entropy, progress: Progress | None) -> None:
        """Exchange the swap codes of all records, in place."""

    def warm(self) -> None:
        """Load the compiled passes, which are otherwise loaded when they are needed."""
        importlib.import_module("stirred.mechanisms.swapping.kernels.warm")

    def premises(self, plan: SwapPlan) -> dict[str, str]:
        """Return the checksum of the records as codes."""
        # The draw is addressed by these: files that are read otherwise would get the same decisions for other records.
        return {"the records as codes": _digest_of(plan.strata.coded.codes, plan.swap.codes)}

    # ---- the files, what is checked of them, and the pages

    files = swap_files
    allowed = allowed_columns
    table_in_words = words.exactness
    conclusions = words.swap_conclusions
    headline = words.swap_headline
    typical_errors = words.swap_errors
    sections = words.swap_sections
    reading_tables = words.reading_tables

    @property
    def stratum_law(self) -> str:
        """Return the name of the law of its exchanges, as ``strata.parquet`` has it."""
        return self.member

    @property
    def law_columns(self) -> dict[str, str]:
        """Return the settings of its law that ``strata.parquet`` repeats for every stratum, by column."""
        return {}

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
        return "match values, records, whether there is anything to swap, rate, expected share moved"

    @property
    def before_in_words(self) -> list[str]:
        """Say what was done to the records before the swap, if anything."""
        return []

    def exact_tables(self, data: Microdata, plan: SwapPlan) -> dict[str, Sequence[str]]:
        """Return the tables that are fixed, by name, with their variables."""
        return fixed_tables(data, plan)

    def verify(self, data: Microdata, plan: SwapPlan, release: Release, written: Written) -> list[Check]:
        """Compare the written records with the confidential input."""
        from stirred.mechanisms.swapping.core.verification import verify_swap

        return verify_swap(data, plan, release, written)

    def verify_exact(self, data: Microdata, plan: SwapPlan, written: Written) -> list[Check]:
        """Count the invariants and the sizes of the strata once more from the input."""
        from stirred.mechanisms.swapping.core.verification import verify_invariants, verify_strata

        others = [] if data.persons is None else [WITH_PERSONS]
        return [
            *verify_invariants(data.households, self.exact_tables(data, plan), written, others=others),
            verify_strata(data.households, plan, self.strata_table(plan.strata), written),
        ]

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Count invariants, identifiers, strata and persons of a bundle anew, and compute its promise again."""
        audit_records(bundle, self, self.outside, found)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Count anew what public files show, and hold the budget against the strata: no settings are needed."""
        audit_records(bundle, None, (), found)

    # ---- accuracy

    def loss_curve(self, plan: SwapPlan) -> Curve | None:
        """Return the loss against the rate, where it is a function of the size of the largest stratum alone."""
        return None

    @property
    def no_closed_form(self) -> str:
        """Say why errors of tables cannot be computed beforehand; empty where they can."""
        return "" if self.cell_law is not None else f"the error of the {self.stratum_law} swap has no closed form"


def _searched(plan: SwapPlan, *, unit: str) -> SwapColumns:
    """Return the columns that are searched for what tells swap values."""
    return SwapColumns(
        match=tuple(plan.universe.match),
        swap=tuple(plan.universe.swap),
        hold=tuple(plan.hold),
        strata=plan.strata.coded,
        coded=plan.swap,
        unit=unit,
        perturbed=plan.perturbed,
        exact_hold=tuple(plan.exact_hold),
        exact_swap=tuple(plan.exact_swap),
    )


def _digest_of(*arrays: npt.NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
