"""A release of swapped records: its files, and what is verified of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stirred.audit.held_digest import WITH_PERSONS
from stirred.data.frames import write_frame, write_parts
from stirred.mechanisms.protocol import Release
from stirred.release.invariants import fixed_tables, invariant_tables
from stirred.release.prepared import Prepared
from stirred.release.readme import exactness, public_readme
from stirred.release.tables import Table, completed
from stirred.release.verify import Check, verify_swap, verify_tables
from stirred.release.verify_counts import verify_invariants, verify_strata


@dataclass(frozen=True, slots=True)
class Records:
    """Swapped records, tables counted from them, and the invariants."""

    prepared: Prepared

    def columns(self) -> set[str]:
        """Return the columns of households that may be in public files: those held and those swapped."""
        return {*self.prepared.plan.hold, *self.prepared.mechanism.swap}

    def table(self, release: Release, table: Table) -> pl.DataFrame:
        """Count a table from the released records, part by part."""
        variables = list(table.variables)
        if not table.of_persons:
            counts = [part.group_by(variables).len("count") for part in release.public.parts("data")]
            return completed(pl.concat(counts), variables)
        counts = []
        # Parts of persons and of households cover the same households.
        for people, homes in zip(release.public.parts("persons"), release.public.parts("data"), strict=True):
            key = homes.columns[0]
            shared = [name for name in variables if name not in people.columns]
            joined = people.select(key, *(n for n in variables if n in people.columns))
            if shared:
                joined = joined.join(homes.select(key, *shared), on=key, how="left")
            counts.append(joined.group_by(variables).len("count"))
        return completed(pl.concat(counts), variables)

    def exactness(self, table: Table) -> str:
        """Say whether a table is one that swapping cannot change."""
        prepared = self.prepared
        return exactness(table, prepared.mechanism, prepared.plan, persons=prepared.data.person_variables)

    def write(self, release: Release, folder: Path, *, note: Mapping[str, str]) -> None:
        """Write records, invariants and strata."""
        prepared, public = self.prepared, folder / "public"
        for name in release.public:
            path = public / f"{name}.{prepared.planned.plan.release.format}"
            write_parts(release.public.parts(name), path, note=dict(note))
        write_parts(invariant_tables(prepared.data, prepared.plan), public / "invariants.parquet", note=dict(note))
        strata = prepared.mechanism.strata_table(prepared.plan.strata)
        write_frame(strata, public / "strata.parquet", note=dict(note))

    def readme(self, title: str, public: Path) -> str:
        """Return the page for a reader who has only the public folder."""
        prepared = self.prepared
        return public_readme(
            title,
            prepared.mechanism,
            prepared.plan,
            {table: self.exactness(table) for table in prepared.tables},
            format_=prepared.planned.plan.release.format,
            purpose=prepared.planned.plan.release.purpose,
            in_parts=[path.name for path in sorted(public.iterdir()) if path.is_dir() and path.suffix],
        )

    def verify(self, release: Release, folder: Path) -> list[Check]:
        """Compare the written records with the confidential input, and the tables with the records."""
        prepared, public = self.prepared, folder / "public"
        ending = prepared.planned.plan.release.format
        homes, plan = prepared.data.households, prepared.plan
        return [
            *verify_swap(prepared.data, plan, release, public, format_=ending),
            *verify_tables(release, prepared.tables, public, format_=ending),
            *verify_invariants(homes, fixed_tables(prepared.data, plan), public, others=[WITH_PERSONS]),
            verify_strata(homes, plan, prepared.mechanism.strata_table(plan.strata), public),
        ]
