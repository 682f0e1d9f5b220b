"""What a TopDown release hands over: its files with their columns, and the checks of the files as they were written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Check, PublicFile, Release, Table, Written, failed
from stirred.mechanisms.topdown.audit import SPINE, audit_measurements, file_names, found_classes, parquet_files
from stirred.mechanisms.topdown.estimates import COLUMNS as ESTIMATES
from stirred.mechanisms.topdown.measure import class_counts
from stirred.mechanisms.topdown.plan import TopDownPlan
from stirred.mechanisms.topdown.prepare import UNITS
from stirred.mechanisms.topdown.records import (
    AREAS,
    CERTIFICATE,
    CERTIFIED,
    EVENTS,
    TOLD,
    further_files,
    named,
)
from stirred.mechanisms.topdown.records_check import AGREEMENTS, check_records
from stirred.mechanisms.topdown.rules import with_earlier
from stirred.mechanisms.topdown.store import published_columns
from stirred.mechanisms.topdown.tree import AGREES

if TYPE_CHECKING:
    from stirred.mechanisms.topdown.mechanism import TopDown

_BYTES_OF_A_NUMBER: Final = 3  # two in the store, and about one in Parquet
_SPINE_COLUMNS: Final = ("geolevel", "geocode", "parent")


def public_files(self: TopDown, data: Microdata, plan: TopDownPlan) -> Sequence[PublicFile]:
    """Return the measurements, what is published exactly, the areas, and what is made of all this."""
    return [*_measured_files(self, plan), *further_files(self.design, [*plan.recorded])]


def _measured_files(self: TopDown, plan: TopDownPlan) -> Iterator[PublicFile]:
    yield PublicFile(
        name=SPINE,
        kind="side",
        columns=_SPINE_COLUMNS,
        words="all areas, each with its level and the area above it",
        make=plan.spine.frames,
    )
    for part in plan.parts:
        names, known = file_names(part.name), published_columns(part.schema, constraints=True)
        if part.shares is not None and "measurements" in self.settings.publish:
            yield PublicFile(
                name=names[0],
                kind="measurements",
                columns=published_columns(part.schema),
                words="noisy counts, a row for each area and query: `value` in row-major order, `variance` of each "
                "number",
                in_parts=True,
                about_bytes=_BYTES_OF_A_NUMBER * plan.numbers(part),
            )
        if any(rule.name != AGREES for rule in part.rules):
            words = "what is known exactly, a row for each area: `value` is met (=), not exceeded (<=) or reached (>=)"
            yield PublicFile(name=names[1], kind="side", columns=known, words=words, in_parts=True)
        if any(rule.name == AGREES for rule in part.rules):
            title = plan.design.agreed(part.name).title
            words = f"the counts of the earlier release '{title}', with which the records agree, in the same layout"
            yield PublicFile(name=AGREEMENTS[part.name], kind="side", columns=known, words=words, in_parts=True)


def allowed_columns(
    self: TopDown, released: Mapping[str, Collection[str]], fixed: Collection[str]
) -> Mapping[str, Collection[str]]:
    """Return the columns that each file may have, by the settings alone."""
    settings, design = self.settings, self.design
    found: dict[str, Collection[str]] = {SPINE: _SPINE_COLUMNS}
    for part, own, schema, shares in design.parts:
        files, known = named(part), published_columns(schema, constraints=True)
        found[file_names(part)[1]] = known
        if own.agrees_with is not None:
            found[AGREEMENTS[part]] = known
        if shares is None:
            continue
        if "measurements" in settings.publish:
            found[file_names(part)[0]] = published_columns(schema)
        if "estimates" in settings.publish:
            found[files.estimates] = ESTIMATES
        if "records" in settings.publish:
            found[files.records] = design.record_columns(own, schema)
            found[files.counts] = ("geocode", *schema.names, "count")
    if "records" in settings.publish:
        found |= {AREAS: ("geocode", *settings.places), CERTIFICATE: CERTIFIED, EVENTS: TOLD}
    return found


def table_in_words(self: TopDown, table: Table, data: Microdata, plan: TopDownPlan) -> str:
    """Say what was done to a table."""
    return "counted from the released records"


def conclusions(self: TopDown, plan: TopDownPlan) -> Sequence[str]:
    """Return how to read the files."""
    found = [f"Exact is what `constraints.parquet` says: {plan.unchanged}."]
    if "measurements" in self.settings.publish:
        found += [
            "Every measurement is the true count plus noise of mean 0 and the variance of its row, all independent.",
            "Numbers may be negative, and areas do not add up to the areas above them. Cutting at 0 would bias small "
            "counts; `stirred topdown estimate` combines all numbers without bias, with intervals.",
        ]
    if "estimates" in self.settings.publish:
        found.append("Estimates are unbiased and add up; they may be negative. Use them, with their errors, to infer.")
    if "records" in self.settings.publish:
        found.append(
            "Records add up, are whole and keep what is exact. They are made from the noisy counts and from what is "
            "exact, and biased where estimates are not: small counts tend to be too large, and large ones too small."
        )
    found += [
        f"In every area the records agree with {each.named}. Their counts are published again: what is promised here "
        "is for both releases together."
        for each in plan.includes
    ]
    return found


# ---- files as written, and as found -----------------------------------------------------------------------


def verify(self: TopDown, data: Microdata, plan: TopDownPlan, release: Release, written: Written) -> list[Check]:
    """Compare the store with its checksums, the written rows with the budget, and the records with all else."""
    checks = []
    for part in plan.parts:
        arrays = release.internal["stores"][part.name].check()
        checks.append(Check(what=f"store of {part.records}", cells=arrays, result="as it was written"))
        if part.shares is None or "measurements" not in self.settings.publish:
            continue
        expected = class_counts(plan.spine, part.schema, part.shares)
        if found_classes(written.public / f"{file_names(part.name)[0]}.parquet") != expected:
            raise failed(f"the measurements of {part.records}, as written, do not have the noise of the budget")
        what = f"measurements of {part.records}: noise of every area and query"
        checks.append(Check(what=what, cells=sum(expected.values()), result="that of the budget"))
    if "records" in self.settings.publish:
        checks += _verified_records(self, release, written)
    return checks


def _verified_records(self: TopDown, release: Release, written: Written) -> Iterator[Check]:
    for part, made in release.internal["followed"].made.items():
        own, many = made.certificate, len(made.events)
        if not own.passed:
            raise failed(f"the counts of {part} do not keep all that is known: {'; '.join(own.failures[:3])}")
        moved = f"all held; {many:,} events, see {EVENTS}.parquet" if many else "all held; no event"
        checks = sum(own.checks.values())
        yield Check(what=f"counts of {part}: sums, bounds, zeros and totals of every area", cells=checks, result=moved)
    for name, cells, wrong in check_records(self.design, written.public):
        if wrong:
            raise failed(f"{name}, as written: {'; '.join(wrong)}")
        yield Check(what=f"{name}, against the other public files", cells=cells, result="agrees")


def verify_exact(self: TopDown, data: Microdata, plan: TopDownPlan, written: Written) -> list[Check]:
    """Count the totals that are published exactly once more, from the records of the input."""
    checks = []
    for part in plan.parts:
        for rule in (rule for rule in part.rules if rule.sign == "=" and rule.name != AGREES):
            rows = pl.scan_parquet(parquet_files(written.public / f"{file_names(part.name)[1]}.parquet"))
            published = rows.filter(query_name=rule.name).select("geolevel", total=pl.col("value").list.first())
            sums = dict(published.group_by("geolevel").agg(pl.col("total").sum()).collect().iter_rows())
            file = data.households if part.name == UNITS or data.persons is None else data.persons
            names = [plan.spine.names[depth] for depth in rule.depths]
            if sums != dict.fromkeys(names, file.height):
                raise failed(f"the totals of {part.records}, as written, do not add up to the records of the file")
            what = f"totals of {part.records} by {', '.join(names)}"
            checks.append(Check(what=what, cells=len(names), result="add up to the records of the input"))
    return checks


def audit(self: TopDown, bundle: BundleFiles, found: Findings) -> None:
    """Compute the promise again, compare the noise of all rows with the budget, and records with all else."""
    measured = "measurements" in self.settings.publish
    domain = replace(bundle.specification.domain.whole, prepared=bundle.prepared)
    computed = with_earlier(self.specification(name="any").with_flavor(domain=domain), self.design.earlier)
    if any(table.promise is None for table in self.design.earlier):
        what = "its records agree with an earlier release, and its promise leaves out what that one costs"
        found.bad(what, where="public/specification.json budget", remedy="make it again with this version")
    audit_measurements(self.design, computed, bundle, found, measured=measured)
    if "records" not in self.settings.publish:
        return
    for name, cells, wrong in check_records(self.design, bundle.public):
        for text in wrong:
            found.bad(text, where=f"public/{name}")
        if not wrong:
            found.checks.append(f"{name}: agrees with the other public files ({cells:,} comparisons)")
    again = measured and not any(own.agrees_with for _, own, _, _ in self.design.parts)
    how = ": `stirred topdown microdata` makes them again" if again else ""
    found.unchecked.append(f"whether the measurements give these records{how}")
