"""Released records held against everything else that is published: from public files alone, in whole numbers.

After a release it reads the files as they were written; in an audit, as they are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from stirred.data.bundle import same_cells
from stirred.data.frames import read_frame
from stirred.data.table_labels import without_labels
from stirred.mechanisms.topdown.audit import SPINE, file_names
from stirred.mechanisms.topdown.prepare import PERSONS, UNITS, Design
from stirred.mechanisms.topdown.published import Published
from stirred.mechanisms.topdown.records import AREAS, CERTIFICATE, named
from stirred.mechanisms.topdown.schema import Schema
from stirred.mechanisms.topdown.settings import CountedSettings
from stirred.mechanisms.topdown.solve.check import Certificate, check_tree, read_counts
from stirred.mechanisms.topdown.spine import Spine
from stirred.spec.problems import StirredError

AGREEMENTS = {PERSONS: "agreement", UNITS: "unit_agreement"}


def file_at(public: Path, name: str) -> pl.DataFrame | None:
    """Return a published file, in whichever format it is; None where there is none, or none that can be read."""
    places = sorted(public.glob(f"{name}.*"))
    try:
        return read_frame(places[0], empty=True) if len(places) == 1 else None
    except StirredError:
        return None


def check_records(design: Design, public: Path) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Yield for every file of records what was compared, how often, and what was wrong."""
    areas, listed = file_at(public, AREAS), file_at(public, SPINE)
    spine = None if listed is None else Spine.of_published(listed, design.names, bypass=design.settings.bypass)
    counted: dict[str, pl.DataFrame] = {}
    for part, own, schema, shares in design.parts:
        if shares is None:
            continue
        files = named(part)
        counts, records = file_at(public, files.counts), file_at(public, files.records)
        if spine is None or areas is None or counts is None or records is None:
            yield files.records, 0, ["it cannot be compared: a file that belongs to it is missing or cannot be read"]
            continue
        counted[part] = records
        try:
            same = _same(design, own, schema, areas, counts, records)
            yield files.records, counts.height, [] if same else [f"its records are not those of {files.counts}"]
            certificate = _certified(part, schema, spine, public, counts)
            yield files.counts, sum(certificate.checks.values()), certificate.failures
        except (pl.exceptions.PolarsError, StirredError, LookupError, ValueError, TypeError) as error:
            yield files.counts, 0, [f"it, or what is known of its areas, is not of the kind that is released ({error})"]
    yield from _tables(design, public, counted)
    told = file_at(public, CERTIFICATE)
    if told is None or not {*counted} <= {*told.get_columns()[0].to_list()}:
        yield CERTIFICATE, 0, ["it does not certify all records"]


def _same(
    design: Design,
    own: CountedSettings,
    schema: Schema,
    areas: pl.DataFrame,
    counts: pl.DataFrame,
    records: pl.DataFrame,
) -> bool:
    """Say whether records are counts in the columns of the file."""
    columns = [*design.record_columns(own, schema)]
    names = {name: own.columns.get(name, name) for name in schema.names}
    made = counts.select(
        "geocode", pl.col("count").cast(pl.Int64), *(pl.col(a).alias(f" {b}") for a, b in names.items())
    )
    if "geocode" not in columns or areas.width > 1:
        made = made.join(areas.cast(pl.String), on="geocode", how="left")
    made = made.rename({f" {name}": name for name in names.values()}).select(*columns, "count")
    found = records.select(columns).group_by(columns).len("count")
    one, two = (
        each.with_columns(pl.col("count").cast(pl.Int64), *(_plain(each[name]) for name in columns)).sort(columns)
        for each in (made, found)
    )
    return one.equals(two)


def _plain(column: pl.Series) -> pl.Series:
    """Return codes as text; where all are numbers 01 is 1, as it is when records are read."""
    texts = column.cast(pl.String)
    numbers = len(texts) and texts.str.contains(r"^\d{1,18}$").all()
    return texts.cast(pl.Int64).cast(pl.String) if numbers else texts


def _certified(part: str, schema: Schema, spine: Spine, public: Path, counts: pl.DataFrame) -> Certificate:
    """Return the certificate of counts against all that is published exactly of the areas of any level."""
    names = (file_names(part)[1], AGREEMENTS[part])
    roots = [path for name in names if (path := public / f"{name}.parquet").exists()]
    tree = Published.of_spine(spine, schema, roots).tree()
    certificate = Certificate()
    check_tree(tree, read_counts(counts, schema, tree.levels[-1].geocodes, certificate), certificate)
    return certificate


def _tables(design: Design, public: Path, counted: dict[str, pl.DataFrame]) -> Iterator[tuple[str, int, Sequence[str]]]:
    """Count published tables once more from the records."""
    for path in sorted((public / "tables").glob("*.csv")):
        place = f"tables/{path.stem}"
        try:
            table = without_labels(read_frame(path))
        except StirredError:
            yield place, 0, ["it cannot be read"]
            continue
        variables = [name for name in table.columns if name != "count"]
        records = counted.get(table_part(design, variables))
        if "count" not in table.columns or records is None or not {*variables} <= {*records.columns}:
            yield place, 0, ["it cannot be counted anew from the released records"]
        else:
            same = same_cells(table, records, variables)
            yield place, table.height, [] if same else ["it is not the table of the released records"]


def table_part(design: Design, variables: Sequence[str]) -> str:
    """Return the kind of records that a table counts: units where they have all its variables, else persons.

    >>> from stirred.mechanisms.topdown.mechanism import TopDown
    >>> design = TopDown.of(levels=["ward"], attributes=["sex"], values={"sex": ["m", "f"]}, rho=1).design
    >>> table_part(design, ["ward", "sex"])
    'persons'
    """
    units = design.settings.units
    if units is None or design.unit_schema is None or design.unit_shares is None:
        return PERSONS
    own = design.record_columns(units, design.unit_schema)
    return UNITS if {*variables} <= {*own} else PERSONS
