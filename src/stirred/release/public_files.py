"""What a bundle publishes: data, tables, invariants, specification, and a page for readers."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stirred.data.frames import write_frame, write_parts
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.release.invariants import invariant_tables
from stirred.release.noisy import noisy_readme, strata_sizes
from stirred.release.prepared import Prepared
from stirred.release.readme import public_readme
from stirred.release.tables import Table, completed
from stirred.spec.document import to_json
from stirred.spec.render import to_markdown
from stirred.spec.specification import Specification


def title_of(prepared: Prepared) -> str:
    """Return what the release is called."""
    return prepared.planned.plan.release.title or f"Release of {prepared.data.name}"


def notes_on(specification: Specification) -> dict[str, str]:
    """Return the Parquet metadata: the notation, and the mark of a test run."""
    notes = {"stirred.specification": specification.notation}
    return {**notes, "stirred.seeded": "test run with a seed, not for publication"} if specification.seeded else notes


def write_public(folder: Path, prepared: Prepared, release: Release) -> None:
    """Write everything that may leave the house but the report, which tells of the checks."""
    public, ending = folder / "public", prepared.planned.plan.release.format
    notes = notes_on(release.specification)
    for table in prepared.tables:
        write_frame(released_table(release, table), public / "tables" / f"{table.name}.csv")
    strata = prepared.mechanism.strata_table(prepared.plan.strata)
    if isinstance(prepared.mechanism, NoisySwap):
        # Sizes of strata are all that is fixed: no other margin, and no word on what there is to swap.
        write_frame(strata_sizes(prepared.plan), public / "invariants.parquet", note=notes)
        strata = strata.drop("stratum_live")
    else:
        for name in release.public:
            write_parts(release.public.parts(name), public / f"{name}.{ending}", note=notes)
        write_parts(invariant_tables(prepared.data, prepared.plan), public / "invariants.parquet", note=notes)
    write_frame(strata, public / "strata.parquet", note=notes)
    (public / "specification.json").write_text(to_json(release.specification), encoding="utf-8")
    page = to_markdown(release.specification, title=title_of(prepared), method=prepared.mechanism.in_words)
    (public / "specification.md").write_text(page, encoding="utf-8")
    (public / "README.md").write_text(_readme(prepared, public), encoding="utf-8")


def _readme(prepared: Prepared, public: Path) -> str:
    purpose = prepared.planned.plan.release.purpose
    if isinstance(prepared.mechanism, NoisySwap):
        return noisy_readme(title_of(prepared), prepared.mechanism, prepared.plan, prepared.tables, purpose=purpose)
    return public_readme(
        title_of(prepared),
        prepared.mechanism,
        prepared.plan,
        prepared.tables,
        persons=prepared.data.person_variables,
        format_=prepared.planned.plan.release.format,
        purpose=purpose,
        in_parts=[path.name for path in sorted(public.iterdir()) if path.is_dir() and path.suffix],
    )


def released_table(release: Release, table: Table) -> pl.DataFrame:
    """Count a table from the released data, part by part; or take it where it was released itself."""
    if "drawn" in release.internal:
        return release.public.frame(table.title)
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
