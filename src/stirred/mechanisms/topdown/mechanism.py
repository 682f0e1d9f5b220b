"""TopDown: noisy measurements over a hierarchy of areas (Theorem 2 of "A Refreshment Stirred, Not Shaken")."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, ClassVar, Final, Self
from weakref import finalize

import polars as pl

from stirred.data.bundle import BundleFiles, Findings, checksum
from stirred.data.codebook import Codebook
from stirred.data.frames import write_frame
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata, columns_beside
from stirred.data.problems import bad_plan
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import LOCAL, Engine, bad_engine
from stirred.mechanisms.doubts import repeated_ids
from stirred.mechanisms.opening import opened
from stirred.mechanisms.protocol import (
    UNSEARCHED,
    Frames,
    Mechanism,
    PlanOrigin,
    Progress,
    Release,
    Section,
    Settings,
    Typical,
    Written,
    settings_doubts,
)
from stirred.mechanisms.topdown import handed
from stirred.mechanisms.topdown.accuracy import Accuracy
from stirred.mechanisms.topdown.audit import SPINE, file_names, small_law, small_universes
from stirred.mechanisms.topdown.measure import Part, measure
from stirred.mechanisms.topdown.plan import TopDownPlan, measured_sections, several_parents, typical_of, unmeasured
from stirred.mechanisms.topdown.prepare import PERSONS, Design, check_columns, columns_used, parts_of, spine_of
from stirred.mechanisms.topdown.records import Layout, follow
from stirred.mechanisms.topdown.records_check import AGREEMENTS, table_part
from stirred.mechanisms.topdown.rules import with_earlier
from stirred.mechanisms.topdown.settings import CountedSettings, TopDownSettings
from stirred.mechanisms.topdown.solve.files import Readiness
from stirred.mechanisms.topdown.spine import Spine
from stirred.mechanisms.topdown.tree import AGREES
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget
from stirred.spec.compose import UnitFactor, compose
from stirred.spec.domain import Domain, after_imputation
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact, exact
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin, plural
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import ZCDP
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import ShiftLaw
from stirred.spec.specification import Flavor, Specification

Make = Callable[[], Iterable[pl.DataFrame]]
_ASKED: Final = 16  # tasks ask workers whether they are ready: enough for each of a few to have some
_MOST_REHEARSED: Final = 20_000  # numbers of noise: above it a rehearsal is no longer a matter of seconds
PAPER: Final = '"A Refreshment Stirred, Not Shaken"'
THEOREM: Final = (f"Theorem 2 of {PAPER}", "Canonne, Kamath and Steinke (2020): noise of the discrete Gaussian law")
DECLARED: Final = "the areas, the codes, the queries and their budget were fixed beforehand, not read off the file"
ONE_HOME: Final = (
    "a change of one person record changes at most one record of a {unit} (factor 1, as the paper takes it; 2 if a "
    "person may move to another {unit})"
)
KEPT_HOMES: Final = "every {unit} has a record, occupied or not"


@dataclass(frozen=True, kw_only=True)
class TopDown(Mechanism):
    """Counts of persons over a hierarchy of areas, each with discrete Gaussian noise, by a budget file.

    What ``totals`` and ``facilities`` name is published exactly, and fixed in the promise. ``area_list`` lists all
    areas, also those without persons; ``workplace`` is where the store of the draw goes.

    >>> wards = pl.DataFrame({"region": ["N", "N", "S", "S"], "ward": [1, 2, 1, 2]})
    >>> people = pl.DataFrame({"region": ["N", "N", "S"], "ward": [1, 2, 1], "sex": ["m", "f", "f"]})
    >>> topdown = TopDown.of(levels=["region", "ward"], attributes=["sex"], values={"sex": ["m", "f"]}, rho="1/2",
    ...                      totals=["region"], area_list=wards)
    >>> topdown.plan(people).specification.notation
    'ρ²=0.5-DP(X_households, D_c, d_HamS^person, D_NoR)'
    >>> noisy = topdown.release(people, Entropy.from_os()).public["measurements"]
    >>> noisy.filter(geolevel="region")["query_name"].to_list()
    ['total_dpq', 'total_dpq', 'detailed_dpq', 'detailed_dpq']
    """

    name: ClassVar[str] = "topdown"
    title: ClassVar[str] = "TopDown measurements"
    settings_model: ClassVar[type[Settings]] = TopDownSettings
    counts_tables: ClassVar[bool] = False

    settings: TopDownSettings
    area_list: pl.DataFrame | None = field(default=None, compare=False, repr=False)
    tables: Sequence[Sequence[str]] = ()
    workplace: Path | None = field(default=None, compare=False, repr=False)
    progress_place: Path | None = field(default=None, compare=False, repr=False)
    engine: Engine | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        _ = self.design  # all problems of the settings

    @classmethod
    def of(cls, *, area_list: pl.DataFrame | None = None, **settings: Any) -> Self:
        """Return the mechanism with settings as a plan has them; all that is wrong with them is said at once."""
        from stirred.mechanisms.registry import settings_for

        checked = settings_for(cls.name, settings)
        assert isinstance(checked, TopDownSettings)
        return cls(settings=checked, area_list=area_list)

    @classmethod
    def of_settings(cls, settings: Settings, **others: Any) -> Self:
        """Return the mechanism; tables of a plan are counted from records, and refused where none are released."""
        assert isinstance(settings, TopDownSettings)
        if others.get("tables") and "records" not in settings.publish:
            remedy = (
                'write publish = ["measurements", "records"]; or name what is counted as queries, without [[tables]]'
            )
            raise bad_plan("tables are counted from records, and none are released", where="tables", remedy=remedy)
        return cls(settings=settings, **others)

    @classmethod
    def completed(cls, settings: Settings, codebook: Codebook, *, missing_as: str | None) -> Settings:
        """Return the settings with the codes that the codebook declares for attributes."""
        assert isinstance(settings, TopDownSettings)
        units = settings.units
        own = {"values": _declared(settings, codebook)}
        if units is not None:
            own["units"] = units.model_copy(update={"values": _declared(units, codebook)})  # type: ignore[assignment]
        return settings.model_copy(update=own)

    def learned(self, codebook: Codebook) -> Sequence[str]:
        """Return the attributes whose codes are those of the codebook."""
        return [*self.settings.values]

    @cached_property
    def design(self) -> Design:
        """Return what the settings decide by themselves."""
        return Design.of(self.settings)

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Return what a record is."""
        return self.settings.unit

    @property
    def settings_from(self) -> str | None:  # type: ignore[override]
        """Return on what the settings were based."""
        return self.settings.settings_from

    @property
    def in_words(self) -> str:
        """Return in one sentence what is done."""
        levels = " > ".join(self.design.names)
        measured = " and ".join(
            f"{' x '.join(schema.names)} ({plural(own.unit)}, rho {shares.rho})"
            for _, own, schema, shares in self.design.parts
            if shares is not None
        )
        further = [each for each in self.settings.publish if each != "measurements"]
        made = ""
        if further:
            made = f" {' and '.join(further).capitalize()} are made from these counts and what is published exactly."
        if self.design.earlier:
            titles = " and ".join(f"'{each.title}'" for each in self.design.earlier)
            made += f" Records agree with the earlier release {titles}, whose loss is part of the promise."
        return f"TopDown measurements: counts of {measured} in the areas {levels}, with discrete Gaussian noise.{made}"

    def on(self, engine: Engine) -> Self:
        """Return the mechanism whose areas are measured and solved on an engine."""
        return replace(self, engine=None if engine.name == LOCAL else engine)

    def working_in(self, folder: Path, *, progress: Path) -> Self:
        """Return the mechanism whose store goes into a folder of the bundle, and whose progress is kept beside it."""
        return replace(self, workplace=folder, progress_place=progress)

    # ---- the promise

    def specification(
        self, *, name: str, stage: str = "as-given", post_imputation: bool | None = None
    ) -> Specification:
        """Return the promise of the draw: rho-DP(X, D_c, d_HamS^person, D_NoR), units composed as in Theorem 2.

        That of a release includes the promises of earlier releases with which its records agree (``with_earlier``).
        """
        promised = [
            self._of_part(part, name=name, stage=stage, post_imputation=post_imputation)
            for part, _, _, shares in self.design.parts
            if shares is not None
        ]
        if len(promised) == 1:
            return promised[0]
        assert self.settings.units is not None
        unit = self.settings.units.unit
        factor = UnitFactor(
            old=unit,
            new=self.unit,
            factor=1,
            because=ONE_HOME.format(unit=unit),
            keeps_total=KEPT_HOMES.format(unit=unit),
        )
        return compose(promised, unit=self.unit, units=[factor]).specification

    def _of_part(self, part: str, *, name: str, stage: str, post_imputation: bool | None) -> Specification:
        _, own, _, shares = next(each for each in self.design.parts if each[0] == part)
        assert shares is not None
        zeros = [" and ".join(f"{a} {'/'.join(codes)}" for a, codes in zero.items()) for zero in own.zeros]
        kinds = [self.unit, *([self.settings.units.unit] if self.settings.units else [])]
        return Specification(
            flavor=Flavor(
                domain=Domain.of_file(name, stage=stage, record_types=tuple(kinds)),
                multiverse=self.multiverse,
                input_premetric=InputPremetric(
                    name="d_HamS", unit=own.unit, post_imputation=after_imputation(stage, post_imputation)
                ),
                output_premetric=ZCDP,
            ),
            budget=Budget.constant(exact(shares.rho)),
            assumptions=(DECLARED, *(f"no file has a record with {zero}: a structural zero" for zero in zeros)),
            theorem=THEOREM,
            settings_from=self.settings_from,
        )

    @property
    def multiverse(self) -> Multiverse:
        """Return where the protection extends: between files that agree on all that is published exactly."""
        found = [
            Margin(of=own.unit, level=self.design.column(depth) or None)
            for _, own, _, _ in self.design.parts
            for depth in self.design.depths(own)
            # How many persons there are is fixed by the distance itself, where nothing else is.
            if depth or own.unit != self.unit or "records" in self.settings.publish
        ]
        given, leaf = self.settings.facilities, self.settings.levels[-1]
        if given is not None:
            unit = self.settings.units.unit if self.settings.units else "facility"
            found.append(Margin(of=unit, variables=(given.column,), level=leaf))
        levels = tuple(reversed(self.settings.levels))
        chain = (Hierarchy(name="geography", levels=levels),) if len(levels) > 1 else ()
        return Multiverse(invariants=tuple(found), hierarchies=chain)

    def check(self, data: Any) -> None:
        """Raise the columns that are not there; nothing is computed."""
        check_columns(self.design, as_microdata(data))

    def plan(self, data: Any, *, doubts: bool = True) -> TopDownPlan:
        """Return the plan: the areas, and all rules checked against the file. Nothing random happens."""
        microdata = as_microdata(data)
        check_columns(self.design, microdata)
        spine, read_off = spine_of(self.design, microdata, self.area_list)
        parts = parts_of(self.design, microdata, spine)
        layouts = {
            part.name: Layout.of(spine, own, part.schema, microdata.types)
            for part, (_, own, _, _) in zip(parts, self.design.parts, strict=True)
        }
        own = self.specification(name=microdata.name, stage=microdata.stage, post_imputation=microdata.post_imputation)
        return TopDownPlan(
            origin=PlanOrigin(self, microdata),
            specification=with_earlier(own, self.design.earlier),
            own=own,
            doubts=tuple(self._doubts(microdata, spine, parts, read_off=read_off)) if doubts else (UNSEARCHED,),
            dropped=columns_beside(microdata, {name for names in columns_used(self.design) for name in names}),
            design=self.design,
            spine=spine,
            one_file=microdata.persons is None,
            parts=tuple(parts),
            layouts=layouts,
        )

    def _doubts(self, data: Microdata, spine: Spine, parts: Iterable[Part], *, read_off: bool) -> Iterator[Doubt]:
        yield from settings_doubts(self.settings_from)
        yield from several_parents(spine, self.settings.levels)
        if "records" in self.settings.publish:
            yield from unmeasured(parts)
        for above, name in spine.upside_down(self.settings.levels):
            yield Doubt(
                kind="levels",
                about=name,
                what=f"every {above} has just one {name}, and several have the same: {name} may be the larger area, "
                "and totals that are published exactly those of small areas",
                remedy=f"name the largest areas first under levels: {name} before {above}",
            )
        if data.persons is None:
            yield from repeated_ids(data, unit=self.unit)
        if read_off:
            yield Doubt(
                kind="areas-from-file",
                what="which areas exist was read off the confidential file: an area where nobody lives is missing from "
                "the release, and everybody sees that the others are not empty",
                remedy="name a file with all areas: areas = 'areas.csv'; accept this only if every area has records",
            )

    def premises(self, plan: TopDownPlan) -> Mapping[str, str]:
        """Return the checksum of the areas: the noise of each is addressed by its place among them."""
        codes = hashlib.sha256()
        for frame in plan.spine.frames():
            codes.update("\n".join(frame["geocode"].to_list()).encode())
        areas = self.settings.areas
        named = [own.agrees_with for _, own, _, _ in self.design.parts if own.agrees_with is not None]
        found = {"the areas": codes.hexdigest(), **{f"agrees_with {table.file}": table.sha256 for table in named}}
        return found if areas is None else {**found, "areas": checksum(Path(areas))}

    def rehearsed_on(self, data: Microdata, plan: TopDownPlan) -> Microdata | None:
        """Return the file where few numbers are drawn: it is the areas that take time, and not the records."""
        return data if sum(plan.numbers(part) for part in plan.parts) <= _MOST_REHEARSED else None

    def warm(self) -> None:
        """Load what the draw and all after it need, here and on workers, before anything is spent."""
        folder = self.workplace and self.workplace.parent.absolute()
        ready = Readiness(folder=folder, solves="records" in self.settings.publish)
        if not all([ready(0), *([] if self.engine is None else self.engine.map_groups(range(_ASKED), ready))]):
            raise bad_engine(
                f"workers do not see the folder {folder}, in which areas are measured and solved",
                where="[release] out",
                remedy="name a place for the bundle that this machine and all workers see at the same path",
            )

    # ---- the act

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: TopDownPlan | None = None,
        progress: Progress | None = None,
    ) -> Release:
        """Draw all noise once, into a store, and release it; all else follows from the store, and draws nothing."""
        microdata, plan, entropy, promised = opened(self, data, entropy, accept=accept, plan=plan)
        place = Path(mkdtemp(prefix="stirred-")) if self.workplace is None else self.workplace
        work = self.progress_place or place / "work"
        engine = self.engine or LocalEngine(threads=os.cpu_count() or 1)
        stores = {
            part.name: measure(part, place / "store" / part.name, entropy, engine=engine, progress=progress)
            for part in plan.parts
        }
        made: dict[str, Make] = {SPINE: plan.spine.frames}
        for part in plan.parts:
            store = stores[part.name]
            made |= zip(file_names(part.name), (store.published, store.constraints), strict=True)
            if any(rule.name == AGREES for rule in part.rules):
                made[AGREEMENTS[part.name]] = store.agreement
        followed = follow(
            [(part, plan.layouts[part.name]) for part, _ in plan.recorded],
            stores,
            self.settings,
            work=work,
            engine=engine,
            tables={" x ".join(each): (table_part(self.design, each), each) for each in self.tables},
            progress=progress,
        )
        declared = {file.name for file in self.files(microdata, plan)}
        made = {name: make for name, make in made.items() if name in declared}
        public = Frames({**made, **followed.frames}, convert=like(data))
        if self.workplace is None:  # a store without a place of its own goes when nobody holds the release any more
            finalize(public, rmtree, place, ignore_errors=True)
        compared = Accuracy(
            parts=[part for part, _ in plan.recorded] if followed.made else [],
            stores=stores,
            followed=followed,
            settings=self.settings,
            work=work,
            engine=self.engine,
        )
        kept = {"stores": stores, "followed": followed, "accuracy": compared}
        return Release(public=public, specification=promised, internal=kept)

    def inside(self, plan: TopDownPlan, release: Release) -> Sequence[Section]:
        """Return the errors of the records by level, beside those of other arms."""
        return release.internal["accuracy"].sections()

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        """Keep the errors by level, size of the area and group."""
        if (found := release.internal["accuracy"]).parts:
            write_frame(found.rows, written.internal / "accuracy_by_level.parquet", note=dict(note))

    # ---- what is handed over, in a module of its own

    files = handed.public_files
    allowed = handed.allowed_columns
    table_in_words = handed.table_in_words
    conclusions = handed.conclusions
    verify = handed.verify
    verify_exact = handed.verify_exact
    audit_bundle = handed.audit

    def number_of_records(self, data: Microdata) -> int:
        """Return the number of persons, which is fixed; that of households is not."""
        return data.households.height if data.persons is None else data.persons.height

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the budget, by its customary letter."""
        return f"rho {epsilon.shown()}"

    def typical_errors(self, plan: TopDownPlan, corrected: Mapping[str, pl.DataFrame]) -> Sequence[Typical]:
        """Return the noise of measurements, where they are published."""
        return typical_of(plan) if "measurements" in self.design.settings.publish else ()

    def sections(self, plan: TopDownPlan) -> Sequence[Section]:
        """Return the noise of every query at every level, and the cost of changes of one record."""
        return measured_sections(plan)

    # ---- audits

    def law(self, dataset: Any) -> ShiftLaw:
        """Return the exact law of the person measurements of a file of ``audit_universes``: records (leaf, cell)."""
        return small_law(self.design, dataset)

    def audit_universes(self) -> Sequence[Sequence[Hashable]]:
        """Return all files of one or two records in three leaves and two cells, apart where exact totals differ."""
        return small_universes(self.design)

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return what is promised of the person measurements; those of units are composed with them."""
        return self._of_part(PERSONS, name="small", stage="as-given", post_imputation=None)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Do the same with a published folder: its specification states the settings that noise depends on."""
        try:
            stated = json.loads((bundle.public / "specification.json").read_text(encoding="utf-8"))
            own = cls.of(**stated["mechanism"]["settings"])
        except (OSError, ValueError, KeyError, TypeError, StirredError):
            found.unchecked.append("the budget and variances: specification.json does not state all settings")
        else:
            own.audit_bundle(bundle, found)


def _declared(settings: CountedSettings, codebook: Codebook) -> dict[str, list[str]]:
    """Return the codes of attributes: those of the settings, or those that the codebook declares for their column."""
    found = {name: [*codebook.codes(settings.columns.get(name, name))] for name in settings.attributes}
    return {**{name: codes for name, codes in found.items() if codes}, **settings.values}
