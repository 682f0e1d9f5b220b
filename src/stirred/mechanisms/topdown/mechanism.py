"""TopDown: noisy measurements over a hierarchy of areas (Theorem 2 of "A Refreshment Stirred, Not Shaken")."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, ClassVar, Final, Self
from weakref import finalize

import polars as pl

from stirred.data.bundle import BundleFiles, Findings, checksum
from stirred.data.codebook import Codebook
from stirred.data.frames import write_frame
from stirred.data.microdata import Microdata, as_microdata, columns_beside
from stirred.data.problems import bad_plan
from stirred.data.record_doubts import repeated_ids
from stirred.engines.local import LocalEngine
from stirred.engines.protocol import LOCAL, Engine, bad_engine
from stirred.mechanisms.protocol import (
    Check,
    Frames,
    Mechanism,
    Opening,
    Progress,
    PublicFile,
    Release,
    ReleasedColumns,
    Section,
    Settings,
    Typical,
    Workplace,
    Written,
)
from stirred.mechanisms.topdown.estimates import COLUMNS as ESTIMATES
from stirred.mechanisms.topdown.evidence import audited, small_law, small_universes, verified, verified_totals
from stirred.mechanisms.topdown.hierarchy.schema import DETAILED, TOTAL
from stirred.mechanisms.topdown.hierarchy.tree import AGREES
from stirred.mechanisms.topdown.measurements import measure, published_columns
from stirred.mechanisms.topdown.plan import TopDownPlan, area_doubts, cost_grid, noise_grid, unmeasured, with_earlier
from stirred.mechanisms.topdown.population import check_columns, populations, spine_of
from stirred.mechanisms.topdown.records import (
    AREAS,
    CERTIFICATE,
    CERTIFICATE_COLUMNS,
    EVENT_COLUMNS,
    EVENTS,
    DerivedFiles,
    Make,
)
from stirred.mechanisms.topdown.settings import CountSettings, RecordKind, TopDownDesign, TopDownSettings
from stirred.mechanisms.topdown.solve.files import Readiness
from stirred.mechanisms.topdown.spine import SPINE, SPINE_COLUMNS
from stirred.randomness.cell_law import half_width, variance_of
from stirred.spec.budget import Budget
from stirred.spec.composition import FRESH, TOTAL_BY, UnitFactor, compose
from stirred.spec.domain import Domain, after_imputation
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact, exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin, plural
from stirred.spec.multiverse import Hierarchy, Multiverse
from stirred.spec.output_premetric import ZCDP
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import ShiftLaw
from stirred.spec.specification import Flavor, Specification

_BYTES_OF_A_NUMBER: Final = 3  # two in the store, and about one in Parquet
_BYTES_OF_AN_ESTIMATE: Final = 12
_ASKED: Final = 16  # tasks ask workers whether they are ready: enough for each of a few to have some
_MOST_REHEARSED: Final = 20_000  # numbers of noise: above it a rehearsal is no longer a matter of seconds
THEOREM: Final = (
    'Theorem 2 of "A Refreshment Stirred, Not Shaken"',
    "Canonne, Kamath and Steinke (2020): noise of the discrete Gaussian law",
)
PARTS_ADDED: Final = "the noise of the two kinds of records is independent, and their losses add up (section 2.5)"
DECLARED: Final = "the areas, the codes, the queries and their budget were fixed beforehand, not read off the file"
ONE_HOME: Final = (
    "a change of one person record changes at most one record of a {unit} (factor 1, as the paper takes it; 2 if a "
    "person may move to another {unit})"
)
KEPT_HOMES: Final = "every {unit} has a record, occupied or not"


@dataclass(frozen=True, init=False, repr=False)
class TopDown(Mechanism):
    """Counts of persons over a hierarchy of areas, each with discrete Gaussian noise, by a budget file.

    Settings are given by keyword, as a plan has them. What ``totals`` and ``facilities`` name is published exactly, and
    fixed in the promise. ``area_list`` lists all areas, also those without persons.

    >>> from stirred import Entropy
    >>> wards = pl.DataFrame({"region": ["N", "N", "S", "S"], "ward": [1, 2, 1, 2]})
    >>> people = pl.DataFrame({"region": ["N", "N", "S"], "ward": [1, 2, 1], "sex": ["m", "f", "f"]})
    >>> topdown = TopDown(levels=["region", "ward"], attributes=["sex"], values={"sex": ["m", "f"]}, rho="1/2",
    ...                   totals=["region"], area_list=wards)
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
    area_list: pl.DataFrame | None = field(compare=False)
    tables: Sequence[Sequence[str]]
    engine: Engine | None = field(compare=False)
    design: TopDownDesign = field(compare=False)

    def __init__(
        self,
        settings: TopDownSettings | None = None,
        *,
        area_list: pl.DataFrame | None = None,
        tables: Sequence[Sequence[str]] = (),
        engine: Engine | None = None,
        design: TopDownDesign | None = None,
        **given: Any,
    ) -> None:
        super().__init__(settings, **given)
        if tables and "records" not in self.settings.publish:
            remedy = (
                'write publish = ["measurements", "records"]; or name what is counted as queries, without [[tables]]'
            )
            raise bad_plan("tables are counted from records, and none are released", where="tables", remedy=remedy)
        # What the settings decide is parsed once, and stays with copies that have the same settings.
        if design is None or design.settings is not self.settings:
            design = TopDownDesign.of(self.settings)
        for name, value in {"area_list": area_list, "tables": tables, "engine": engine, "design": design}.items():
            object.__setattr__(self, name, value)

    def with_settings(self, **changed: Any) -> Self:
        return replace(self, **changed)

    @classmethod
    def completed(cls, settings: Settings, codebook: Codebook, *, missing_as: str | None) -> Settings:
        assert isinstance(settings, TopDownSettings)
        units = settings.units
        own = {"values": _declared(settings, codebook)}
        if units is not None:
            own["units"] = units.model_copy(update={"values": _declared(units, codebook)})  # type: ignore[assignment]
        return settings.model_copy(update=own)

    def learned(self, codebook: Codebook) -> Sequence[str]:
        return [*self.settings.values]

    @property
    def in_words(self) -> str:
        levels = " > ".join(self.design.names)
        measured = " and ".join(
            f"{' x '.join(kind.schema.names)} ({plural(kind.unit)}, rho {kind.shares.rho})"
            for kind in self.design.kinds
            if kind.measured
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
        return replace(self, engine=None if engine.name == LOCAL else engine)

    # ---- the promise

    def specification(
        self, *, name: str, stage: str = "as-given", post_imputation: bool | None = None
    ) -> Specification:
        """Return the promise of the draw: rho-DP(X, D_c, d_HamS^person, D_NoR), units composed as in Theorem 2.

        That of a release includes the promises of earlier releases with which its records agree (``with_earlier``).
        """
        promised = [
            self._of_kind(kind, name=name, stage=stage, post_imputation=post_imputation)
            for kind in self.design.kinds
            if kind.measured
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
        both = compose(promised, unit=self.unit, units=[factor]).specification
        # One draw of one release: its two parts add up, and it is no total of several releases.
        theorem = tuple(PARTS_ADDED if each in TOTAL_BY else each for each in both.theorem)
        return replace(both, theorem=theorem, assumptions=tuple(each for each in both.assumptions if each != FRESH))

    def _of_kind(self, kind: RecordKind, *, name: str, stage: str, post_imputation: bool | None) -> Specification:
        zeros = [" and ".join(f"{a} {'/'.join(codes)}" for a, codes in zero.items()) for zero in kind.settings.zeros]
        kinds = [self.unit, *([self.settings.units.unit] if self.settings.units else [])]
        return Specification(
            flavor=Flavor(
                domain=Domain.of_file(name, stage=stage, record_types=tuple(kinds)),
                multiverse=self.multiverse,
                input_premetric=InputPremetric(
                    name="d_HamS", unit=kind.unit, post_imputation=after_imputation(stage, post_imputation)
                ),
                output_premetric=ZCDP,
            ),
            budget=Budget.constant(exact(kind.shares.rho)),
            assumptions=(DECLARED, *(f"no file has a record with {zero}: a structural zero" for zero in zeros)),
            theorem=THEOREM,
            settings_from=self.settings_from,
        )

    @property
    def multiverse(self) -> Multiverse:
        """Return where the protection extends: between files that agree on all that is published exactly."""
        found = [
            Margin(of=kind.unit, level=self.settings.levels[depth - 1] if depth else None)
            for kind in self.design.kinds
            for depth in self.design.depths(kind.settings)
            # How many persons there are is fixed by the distance itself, where nothing else is.
            if depth or kind.unit != self.unit or "records" in self.settings.publish
        ]
        given, leaf = self.settings.facilities, self.settings.levels[-1]
        if given is not None:
            unit = self.settings.units.unit if self.settings.units else "facility"
            found.append(Margin(of=unit, variables=(given.column,), level=leaf))
        levels = tuple(reversed(self.settings.levels))
        chain = (Hierarchy(name="geography", levels=levels),) if len(levels) > 1 else ()
        return Multiverse(invariants=tuple(found), hierarchies=chain)

    def check(self, data: Any) -> None:
        check_columns(self.design, as_microdata(data))

    def draft(self, data: Microdata, *, doubts: bool) -> TopDownPlan:
        check_columns(self.design, data)
        spine, read_off = spine_of(self.design, data, self.area_list)
        parts = populations(self.design, data, spine)
        own = self.specification(name=data.name, stage=data.stage, post_imputation=data.post_imputation)
        return TopDownPlan(
            specification=with_earlier(own, self.design.earlier),
            own=own,
            read_off=read_off,
            dropped=columns_beside(data, {name for names in self.design.columns for name in names}),
            design=self.design,
            spine=spine,
            one_file=data.persons is None,
            parts=tuple(parts),
        )

    def doubts(self, data: Microdata, plan: TopDownPlan) -> Iterator[Doubt]:
        yield from area_doubts(plan.spine, self.settings.levels)
        if "records" in self.settings.publish:
            yield from unmeasured(plan.parts)
        if data.persons is None:
            yield from repeated_ids(data, unit=self.unit)
        if plan.read_off:
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
        named = [table for kind in self.design.kinds if (table := kind.settings.agrees_with) is not None]
        found = {"the areas": codes.hexdigest(), **{f"agrees_with {table.file}": table.sha256 for table in named}}
        return found if areas is None else {**found, "areas": checksum(Path(areas))}

    def rehearsed_on(self, data: Microdata, plan: TopDownPlan) -> Microdata | None:
        """Return the file where few numbers are drawn: it is the areas that take time, and not the records."""
        return data if sum(part.numbers for part in plan.parts) <= _MOST_REHEARSED else None

    def ready(self, data: Any, plan: Any, workplace: Workplace | None = None) -> None:
        folder = workplace and workplace.folder.parent.absolute()
        ready = Readiness(folder=folder, solves="records" in self.settings.publish)
        if not all([ready(0), *([] if self.engine is None else self.engine.map_groups(range(_ASKED), ready))]):
            raise bad_engine(
                f"workers do not see the folder {folder}, in which areas are measured and solved",
                where="[release] out",
                remedy="name a place for the bundle that this machine and all workers see at the same path",
            )

    # ---- the act

    def make_release(self, opening: Opening, progress: Progress | None) -> Release:
        """Draw all noise once, into a store, and release it; all else follows from the store, and draws nothing."""
        microdata, plan, entropy, promised, convert, workplace = opening
        place = Path(mkdtemp(prefix="stirred-")) if workplace is None else workplace.folder
        engine = self.engine or LocalEngine(threads=os.cpu_count() or 1)
        stores = {
            part.name: measure(part, place / "store" / part.name, entropy, engine=engine, progress=progress)
            for part in plan.parts
        }
        derived = DerivedFiles(
            parts=plan.measured,
            stores=stores,
            settings=self.settings,
            work=place / "work" if workplace is None else workplace.progress,
            engine=engine,
            progress=progress,
        )
        tables = {" x ".join(each): (self.design.counted_by(each), each) for each in self.tables}
        made = derived.frames(microdata.types, tables=tables)
        frames: dict[str, Make] = {SPINE: plan.spine.frames}
        for part in plan.parts:
            for what in ("measurements", "constraints", "agreement"):
                frames[part.file(what)] = partial(stores[part.name].published, what)
        declared = {file.name for file in plan.files(self, microdata)}
        drawn = {name: frame for name, frame in frames.items() if name in declared}
        public = Frames({**drawn, **made}, convert=convert)
        if workplace is None:  # a store without a place of its own goes when nobody holds the release any more
            finalize(public, rmtree, place, ignore_errors=True)
        return Release(public=public, specification=promised, internal={"derived": derived})

    def inside(self, plan: TopDownPlan, release: Release) -> Sequence[Section]:
        return release.internal["derived"].sections()

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        if (found := release.internal["derived"]).made:
            write_frame(found.errors, written.internal / "accuracy_by_level.parquet", note=dict(note))

    # ---- files and checks

    def files(
        self, released: ReleasedColumns, data: Microdata | None = None, plan: TopDownPlan | None = None
    ) -> Sequence[PublicFile]:
        if plan is None:
            return [*declared_files(self.design)]
        sizes, absent = dict[str, int](), set[str]()
        for part in plan.parts:
            rows = sum(map(len, part.spine.parents)) * sum(query.size for query in part.queries.values())
            sizes[part.file("measurements")] = _BYTES_OF_A_NUMBER * part.numbers
            sizes[part.file("estimates")] = _BYTES_OF_AN_ESTIMATE * rows
            if all(rule.name == AGREES for rule in part.rules):
                absent.add(part.file("constraints"))
        makes = {SPINE: plan.spine.frames}
        return [
            replace(file, about_bytes=sizes.get(file.name, 0), make=makes.get(file.name))
            for file in declared_files(self.design)
            if file.name not in absent
        ]

    def conclusions(self, plan: TopDownPlan) -> Sequence[str]:
        found = [f"Exact is what `constraints.parquet` says: {plan.unchanged}."]
        if "measurements" in self.settings.publish:
            found += [
                "Every measurement is the true count plus noise of mean 0 and the variance of its row, all "
                "independent.",
                "Numbers may be negative, and areas do not add up to the areas above them. Cutting at 0 would bias "
                "small counts; `stirred topdown estimate` combines all numbers without bias, with intervals.",
            ]
        if "estimates" in self.settings.publish:
            found.append(
                "Estimates are unbiased and add up; they may be negative. Use them, with their errors, to infer."
            )
        if "records" in self.settings.publish:
            found.append(
                "Records add up, are whole and keep what is exact. They are made from the noisy counts and from what "
                "is exact, and biased where estimates are not: small counts tend to be too large, and large ones too "
                "small."
            )
        found += [
            f"In every area the records agree with {each.named}. Their counts are published again: what is promised "
            "here is for both releases together."
            for each in plan.includes
        ]
        return found

    def verify(self, data: Microdata, plan: TopDownPlan, release: Release, written: Written) -> list[Check]:
        return [*verified(plan, release, written)]

    def verify_exact(self, data: Microdata, plan: TopDownPlan, written: Written) -> list[Check]:
        return [*verified_totals(data, plan, written)]

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        domain = replace(bundle.specification.domain.whole, prepared=bundle.prepared)
        computed = with_earlier(self.specification(name="any").with_flavor(domain=domain), self.design.earlier)
        audited(self.design, computed, bundle, found)

    def number_of_records(self, data: Microdata) -> int:
        return data.households.height if data.persons is None else data.persons.height

    def setting_in_words(self, epsilon: Exact) -> str:
        return f"rho {epsilon.shown()}"

    def typical_errors(self, plan: TopDownPlan, corrected: Mapping[str, pl.DataFrame]) -> Sequence[Typical]:
        """Return the noise of a measured count at each level, the finest first; that of records has no closed form."""
        found = []
        for part in plan.measured if "measurements" in self.settings.publish else ():
            named = {TOTAL: part.name, DETAILED: f"{part.name} in all cells"}
            for level, own in reversed(part.shares.noise.items()):
                place = "the whole file" if level == plan.spine.names[0] else f"each {level}"
                for query, sigma2 in own.items():
                    error, within = float(variance_of(sigma2)) ** 0.5, half_width(sigma2, level=Fraction(9, 10))
                    table = f"{named.get(query, f'{part.name} by {query}')}, {place}"
                    found.append(Typical(table=table, error=error, within=within))
        return found

    def sections(self, plan: TopDownPlan) -> Sequence[Section]:
        noise = (
            "Standard deviation of each number. An area that is an only child has less noise: see sigma2 in its rows."
        )
        costs = (
            "What a change of one record costs. Epsilon is converted from rho by Canonne, Kamath and Steinke (2020); "
            "the summary quotes the larger one of Bun and Steinke (2016). Both hold for the same promise."
        )
        return [
            Section(
                title=f"Measurements of {part.records}",
                blocks=(noise, noise_grid(part.shares), costs, cost_grid(plan.costs(part))),
            )
            for part in plan.measured
        ]

    # ---- audits

    def law(self, dataset: Any) -> ShiftLaw:
        return small_law(self.design, dataset)

    def audit_universes(self) -> Sequence[Sequence[Hashable]]:
        return small_universes(self.design)

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return what is promised of the person measurements; those of units are composed with them."""
        return self._of_kind(self.design.kinds[0], name="small", stage="as-given", post_imputation=None)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        try:
            stated = json.loads((bundle.public / "specification.json").read_text(encoding="utf-8"))
            own = cls(TopDownSettings.model_validate(stated["mechanism"]["settings"]))
        except (OSError, ValueError, KeyError, TypeError, StirredError):
            found.unchecked.append("the budget and variances: specification.json does not state all settings")
        else:
            own.audit_bundle(bundle, found)


def declared_files(design: TopDownDesign) -> Iterator[PublicFile]:
    """Yield the files that a release may have, by the settings alone, in the order in which they are listed."""
    publish, measured = design.settings.publish, [kind for kind in design.kinds if kind.measured]
    one, side = partial(PublicFile, kind="side"), partial(PublicFile, kind="side", in_parts=True)
    yield one(name=SPINE, columns=SPINE_COLUMNS, words="all areas, each with its level and the area above it")
    for kind in design.kinds:
        own, known = published_columns(kind.schema), published_columns(kind.schema, constraints=True)
        if kind in measured and "measurements" in publish:
            words = "noisy counts, a row for each area and query: `value` in row-major order, `variance` of each number"
            yield side(name=kind.file("measurements"), columns=own, words=words, kind="measurements")
        words = "what is known exactly, a row for each area: `value` is met (=), not exceeded (<=) or reached (>=)"
        yield side(name=kind.file("constraints"), columns=known, words=words)
        if (earlier := kind.settings.agrees_with) is not None:
            words = f"the counts of the earlier release '{earlier.title}', with which the records agree, in the same"
            yield side(name=kind.file("agreement"), columns=known, words=f"{words} layout")
    for kind in measured:
        if "records" in publish:
            words = f"{kind.records} as records, made from the noisy counts: none is a record of the file"
            yield side(name=kind.file("records"), columns=design.record_columns(kind), words=words, kind="records")
            words = f"the same as counts: how many {kind.records} a leaf has in each cell, without zeros"
            yield side(name=kind.file("counts"), columns=("geocode", *kind.schema.names, "count"), words=words)
        if "estimates" in publish:
            words = "the best unbiased estimate of every measured count, from all measurements, with its standard error"
            yield side(name=kind.file("estimates"), columns=ESTIMATES, words=words, kind="estimates")
    if "records" in publish:
        columns = (*dict.fromkeys(("geocode", *design.settings.places)),)
        yield one(name=AREAS, columns=columns, words="the geocode of every leaf, and its own names")
        words = "what was compared in whole numbers, after all was made, and how often; all of it held"
        yield one(name=CERTIFICATE, columns=(*CERTIFICATE_COLUMNS,), words=words)
        words = "where counts had to be moved, or solved in another way, and why; often empty"
        yield one(name=EVENTS, columns=(*EVENT_COLUMNS,), words=words)


def _declared(settings: CountSettings, codebook: Codebook) -> dict[str, list[str]]:
    """Return the codes of attributes: those of the settings, or those that the codebook declares for their column."""
    found = {name: [*codebook.codes(settings.columns.get(name, name))] for name in settings.attributes}
    return {**{name: codes for name, codes in found.items() if codes}, **settings.values}
