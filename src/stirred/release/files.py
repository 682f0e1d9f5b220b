"""The public files of a release: written as the mechanism lists them, read back, and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from stirred.data.frames import ROWS_IN_ONE_FILE, as_read, read_frame, scan_frame, take_parts, write_frame, write_parts
from stirred.data.problems import listed
from stirred.data.table_labels import ENDING, tells_more, with_labels
from stirred.mechanisms.protocol import (
    PERSONS,
    RECORDS,
    Check,
    Mechanism,
    PublicFile,
    Release,
    Table,
    Written,
    failed,
    not_done,
)
from stirred.release.prepared import Prepared
from stirred.release.tables import completed, lists_every_cell, tabulate
from stirred.report.readme import NO_RECORDS, WEAK_POINTS, Readme, in_parts
from stirred.spec.document import AccountDocument, MechanismDocument, to_json
from stirred.spec.doubts import accepted_in_words
from stirred.spec.render import to_markdown
from stirred.spec.specification import Specification


def title_of(prepared: Prepared) -> str:
    """Return what the release is called."""
    return prepared.plan_file.release.title or f"Release of {prepared.data.name}"


def _written(folder: Path, prepared: Prepared) -> Written:
    ending = prepared.plan_file.release.format
    return Written(folder=folder, format=ending, tables=prepared.tables, labels=prepared.labels)


def write_public(folder: Path, prepared: Prepared, release: Release, *, account: AccountDocument | None = None) -> None:
    """Write everything that may leave the house but the report, which lists the checks."""
    written, note = _written(folder, prepared), release.specification.notes
    for table in prepared.tables:
        beside = prepared.mechanism.table_columns
        counts = with_labels(table_counts(prepared, release, table), prepared.labels, beside=beside)
        write_frame(counts, written.public / "tables" / f"{table.name}.csv")
    for file in prepared.files:
        place = written.public / f"{file.name}.{written.ending(file.kind)}"
        if file.in_parts and place.suffix == ".parquet" and (made := release.public.files(file.name)):
            for part in made:
                _check_declared(file, [*pl.read_parquet_schema(part)])
            take_parts(made, place)
        else:
            parts = _parts(file, release, prepared)
            write_parts(parts, place, note=note, **({"apart": True} if file.in_parts else {}))
    prepared.mechanism.write_internal(release, written, note=note)
    write_pages(written.public, prepared, release.specification, account=account)


def write_pages(
    public: Path,
    prepared: Prepared,
    specification: Specification,
    *,
    account: AccountDocument | None = None,
) -> None:
    """Write the specification and the page for readers, which are known before the draw."""
    mechanism = MechanismDocument(name=prepared.mechanism.name, settings=prepared.settings.public())
    (public / "specification.json").write_text(
        to_json(specification, account=account, mechanism=mechanism), encoding="utf-8"
    )
    page = to_markdown(specification, title=title_of(prepared), method=prepared.mechanism.in_words, account=account)
    (public / "specification.md").write_text(page, encoding="utf-8")
    readme = _readme(prepared, public).page(specification)
    (public / "README.md").write_text(readme, encoding="utf-8")


def public_files(prepared: Prepared) -> list[dict[str, Any]]:
    """Return the files and tables with their columns, as the manifest lists them."""
    listed = []
    for file in prepared.files:
        columns = _with_labels(pl.DataFrame(schema=dict.fromkeys(file.columns, pl.String)), file, prepared).columns
        listed.append({"name": file.name, "kind": file.kind, "columns": columns})
    for table in prepared.tables:
        words = [f"{name}{ENDING}" for name in table.variables if tells_more(prepared.labels.get(name, {}))]
        columns = [*table.variables, *words, "count", *prepared.mechanism.table_columns]
        listed.append({"name": f"tables/{table.name}", "kind": "table", "columns": columns})
    return listed


def _with_labels(part: pl.DataFrame, file: PublicFile, prepared: Prepared) -> pl.DataFrame:
    """Return a table that the mechanism adds to those of the plan, such as sums, with labels as these have."""
    if not file.name.startswith("tables/"):
        return part
    return with_labels(part, prepared.labels, beside=prepared.mechanism.table_columns)


def _parts(file: PublicFile, release: Release, prepared: Prepared) -> Iterator[pl.DataFrame]:
    for part in release.public.parts(file.name) if file.make is None else file.make():
        _check_declared(file, part.columns)
        yield _with_labels(part, file, prepared)
        del part


def _check_declared(file: PublicFile, columns: Sequence[str]) -> None:
    if other := [name for name in columns if name not in file.columns]:
        raise failed(f"{file.name} has {listed(other)}, which the mechanism did not declare")


def table_counts(prepared: Prepared, release: Release, table: Table) -> pl.DataFrame:
    """Return a table as it is published: counted from the released records part by part, or as it was drawn."""
    if not prepared.mechanism.counts_tables:
        return release.public.frame(table.title)
    variables = list(table.variables)
    if table.of_persons:
        # Parts of persons and of households cover the same households.
        both = zip(release.public.parts(RECORDS), release.public.parts(PERSONS), strict=True)
        counts = [_columns(table, homes, people).group_by(variables).len("count") for homes, people in both]
    else:
        counts = [part.group_by(variables).len("count") for part in release.public.parts(RECORDS)]
    return completed(pl.concat(counts), variables, declared=table.declared)


def _columns(table: Table, homes: pl.DataFrame, people: pl.DataFrame | None) -> pl.DataFrame:
    """Return the variables of a table from records, persons with those of their household."""
    if people is None:
        return homes.select(table.variables)
    key = homes.columns[0]
    shared = [name for name in table.variables if name not in people.columns]
    own = people.select(key, *(name for name in table.variables if name in people.columns))
    joined = own.join(homes.select(key, *shared), on=key, how="left") if shared else own
    return joined.select(table.variables)


def verify_public(folder: Path, prepared: Prepared, release: Release) -> list[Check]:
    """Read the written files back, and compare them with the confidential input and with what was released."""
    written = _written(folder, prepared)
    mechanism, data, plan = prepared.mechanism, prepared.data, prepared.plan
    checks = [
        *mechanism.verify(data, plan, release, written),
        *(_recounted(table, written) for table in prepared.tables if mechanism.counts_tables),
        *mechanism.verify_exact(data, plan, written),
    ]
    for file in prepared.files:
        if file.name not in written.checked:
            for _ in written.parts(file.name, _parts(file, release, prepared), kind=file.kind):
                pass  # the comparison is made while they are read
    return checks


def _recounted(table: Table, written: Written) -> Check:
    """Count a published table once more, from the files as they were written."""
    folder, format_ = written.public, written.format
    what = f"table {table.title}, counted from the written file"
    if table.of_persons and (folder / f"{PERSONS}.{format_}").is_dir():
        # Too long to join here; the persons themselves are checked by the mechanism.
        return not_done(what, limit=ROWS_IN_ONE_FILE, of="persons")
    people = read_frame(folder / f"{PERSONS}.{format_}") if table.of_persons else None
    place = folder / f"{RECORDS}.{format_}"
    homes = scan_frame(place).select(table.variables).collect() if people is None else read_frame(place)
    records = _columns(table, homes, people)
    cells = tabulate(records, table.variables, declared=table.declared)
    counted = as_read(with_labels(cells, written.labels), "csv", folder)
    published = read_frame(folder / "tables" / f"{table.name}.csv")
    if not counted.sort(counted.columns).equals(published.sort(published.columns)):
        raise failed(f"the table {table.title}, as written, is not that of the released file")
    return Check(what=what, cells=counted.height, result="identical to the published table")


def _readme(prepared: Prepared, public: Path) -> Readme:
    """Return what the page for readers states, as far as the public folder is written."""
    mechanism, plan = prepared.mechanism, prepared.plan
    accepted = accepted_in_words(doubt.name for doubt in prepared.accepted)
    return Readme(
        title=title_of(prepared),
        method=mechanism.in_words,
        purpose=prepared.plan_file.release.purpose or "",
        conclusions=mechanism.conclusions(plan),
        further=[text for text in (plan.also_promised, accepted and f"{WEAK_POINTS}{accepted}.") if text],
        files=[
            *_files(prepared, records=True),
            *(_of_table(prepared, table, public) for table in prepared.tables),
            *_files(prepared, records=False),
        ],
        notes=[*_without_records(prepared.mechanism, prepared.files), *in_parts(public)],
    )


def _without_records(mechanism: Mechanism, files: Sequence[PublicFile]) -> Iterator[str]:
    """Yield a remark where there are tables or estimates alone."""
    kinds = {file.kind for file in files}
    if not kinds & {"records", "measurements"} or (mechanism.own_tables and "records" not in kinds):
        yield NO_RECORDS.format("estimates" if "estimates" in kinds else "tables")


def _files(prepared: Prepared, *, records: bool) -> Iterator[tuple[str, str]]:
    """Yield each file of records, or each of the others, with what is in it; words name records without ending."""
    ending = prepared.plan_file.release.format
    places = {file.name: f"{file.name}.{ending}" for file in prepared.files if file.kind == "records"}
    for file in prepared.files:
        if (file.kind == "records") == records:
            words = file.words
            for name, place in places.items():
                words = words.replace(f"`{name}`", f"`{place}`")
            other = f"{file.name}.{'csv' if file.kind == 'table' else 'parquet'}"
            yield places.get(file.name, other), words


def _of_table(prepared: Prepared, table: Table, public: Path) -> tuple[str, str]:
    """Say what was done to a table, and that it lacks empty cells where it would have too many of them."""
    place = public / "tables" / f"{table.name}.csv"
    # In a rehearsal the table is not there yet.
    whole = not place.exists() or lists_every_cell(read_frame(place), table.variables)
    words = prepared.mechanism.table_in_words(table, prepared.data, prepared.plan)
    left_out = "" if whole else "; combinations that no record has are left out"
    return f"tables/{table.name}.csv", f"{table.title}, {words}{left_out}"
