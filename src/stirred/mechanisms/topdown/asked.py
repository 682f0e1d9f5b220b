"""What estimates are asked for: of which schema, in which areas, of which cells."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import BaseModel, Field

from stirred.data.codebook import Codebook
from stirred.data.problems import DataError, PlanError, bad_file, bad_plan, listed
from stirred.mechanisms.topdown.estimates import COLUMNS
from stirred.mechanisms.topdown.prepare import Design
from stirred.mechanisms.topdown.published import Published, open_published
from stirred.mechanisms.topdown.published_files import columns_of, parquet_in, plain
from stirred.mechanisms.topdown.schema import SCHEMAS, Query, Schema, declared_schema, shipped_schema
from stirred.mechanisms.topdown.settings import TopDownSettings
from stirred.spec.problems import Problem

UNION: Final = "union"
SPECIFICATION: Final = "specification.json"
MEASUREMENTS: Final = "measurements.parquet"
SCHEMA_HELP: Final = (
    f"{', '.join(SCHEMAS)}, a codebook, or a file of attributes; default what the bundle says, or pl94-persons."
)

SPENDS: Final = "nothing: no noise was drawn, and no ledger is concerned"


class PublishedOptions(BaseModel):
    """The options of commands that read published measurements."""

    measurements: Path = Field(
        description="A bundle of TopDown, or published measurements: a folder by level, or one Parquet file."
    )
    constraints: Path | None = Field(
        default=None, description="Constraints; default the Constraint folders beside the measurements."
    )
    totals: Path | None = Field(default=None, description="Known totals: geocode, value and, for groups, members.")
    spine: Path | None = Field(
        default=None, description="Parents of areas: geocode, geolevel, parent; default prefixes."
    )
    schema_: str = Field(default="", description=SCHEMA_HELP)

    def opened(self, *, mentioned: Sequence[tuple[str, str]] = ()) -> Published:
        """Return the measurements, with what is known beside them."""
        return open_given(
            self.measurements,
            schema=self.schema_,
            constraints=self.constraints,
            totals=self.totals,
            spine=self.spine,
            mentioned=mentioned,
        )


def refuse_taken(out: Path, *, endings: Sequence[str]) -> None:
    """Refuse a file of a kind that is not written, or to write over one that is there and has no estimates."""
    if out.exists() and not (out.is_file() and out.suffix in endings and tuple(_columns_in(out)) == COLUMNS):
        raise bad_plan("it exists already", where=f"--out {out}", remedy="choose a new name")
    if out.suffix not in endings:
        raise bad_plan(f"'{out.name}' does not end in {' or '.join(endings)}", where="--out", remedy="name such a file")


def _columns_in(path: Path) -> list[str]:
    try:
        scan = pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)
        return scan.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError):
        return []


def open_given(
    path: Path,
    *,
    schema: str = "",
    constraints: Path | None = None,
    totals: Path | None = None,
    spine: Path | None = None,
    mentioned: Sequence[tuple[str, str]] = (),
) -> Published:
    """Return the measurements of a bundle with its constraints, areas and schema; or published ones as they are."""
    # A website has the files of public/ beside each other.
    near = (path / "public", path, path.parent if path.name == MEASUREMENTS else path)
    places = [place for place in near if (place / SPECIFICATION).exists()]
    if not places:
        found = schema_named(schema or "pl94-persons", path)
    else:
        public, path = places[0], places[0] / MEASUREMENTS
        if not path.exists():
            what, remedy = "this release has no measurements", "publish them too: publish = ['measurements', ...]"
            if (name := _mechanism_of(public / SPECIFICATION)) not in ("", "topdown"):
                what, remedy = f"this is a release of {name}, which measures nothing", "name a release of topdown"
            raise bad_file(what, where=str(public), remedy=remedy)
        found = _measured_schema(public / SPECIFICATION)
        if schema and [(a.name, a.codes) for a in schema_named(schema, path).attributes] != [
            (a.name, a.codes) for a in found.attributes
        ]:
            what = f"'{schema}' has other attributes or codes, or in another order, than were measured"
            raise bad_plan(what, where="--schema", remedy="leave it out: the bundle says what was measured")
        constraints = constraints or _if_there(public / "constraints.parquet")
        spine = spine or _if_there(public / "spine.parquet")
    return open_published(path, schema=found, constraints=constraints, totals=totals, spine=spine, mentioned=mentioned)


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def _mechanism_of(specification: Path) -> str:
    """Return the mechanism that a specification states; nothing where it is not readable."""
    try:
        return str(json.loads(specification.read_text(encoding="utf-8"))["mechanism"]["name"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def _measured_schema(specification: Path) -> Schema:
    try:
        told = json.loads(specification.read_text(encoding="utf-8"))["mechanism"]["settings"]
        return Design.of(TopDownSettings.model_validate(told)).schema
    except (OSError, ValueError, KeyError, TypeError):  # of a model that does not fit too: a ValueError
        remedy = "take the measurements out of the folder, and give --schema, --constraints and --spine"
        raise bad_file("it does not say what was measured", where=str(specification), remedy=remedy) from None


def schema_named(name: str, measurements: Path) -> Schema:
    """Return a schema that is shipped, of a file with ``[[attributes]]``, or of those a codebook declares.

    Of a codebook's variables, those that are columns of the measurements are taken, in the order of the columns.
    """
    if name in SCHEMAS:
        return shipped_schema(name)
    path = Path(name)
    if not path.is_file():
        remedy = f"name a codebook, or {listed(SCHEMAS)}"
        raise bad_plan(f"there is no schema '{name}'", where="--schema", remedy=remedy)
    if (own := listed_attributes(path)) is not None:
        return own
    codebook = Codebook.read(path)
    first = parquet_in(measurements, option="--measurements")[0]
    attributes = [each for each in columns_of(first) if codebook.codes(each)]
    attributes = attributes or [each.name for each in codebook.variables if codebook.codes(each.name)]
    values = {each: [*codebook.codes(each)] for each in attributes}
    groupings: dict[str, dict[str, list[list[str]]]] = {each: {} for each in attributes}
    for tree in codebook.trees:
        if tree.variable in groupings:
            parents = tree.tree.parents
            coarse = {code: parents[code] or code for code in tree.tree.leaves}
            groups = dict.fromkeys(coarse.values())
            groupings[tree.variable][tree.name] = [[c for c in coarse if coarse[c] == group] for group in groups]
    return declared_schema(path.stem, attributes, values=values, groupings=groupings)


def listed_attributes(path: Path) -> Schema | None:
    """Return the schema of a file with ``[[attributes]]``; None of another file, such as a codebook."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise bad_file(f"this is not TOML ({error})", where=str(path), remedy="check quotes and brackets") from None
    if "attributes" not in content:
        return None
    parts = [part for part in content["attributes"] if isinstance(part, dict) and {"name", "codes"} <= {*part}]
    values = {part["name"]: [str(code) for code in part["codes"]] for part in parts}
    groupings = {part["name"]: part.get("groupings", {}) for part in parts}
    return declared_schema(path.stem, [*values], values=values, groupings=groupings)


def refuse_unknown_areas(codes: Sequence[str], published: Published) -> None:
    """Refuse codes that no area has; a geocode has the codes of the areas around it in front, and may be filled up."""
    every = [code for own in published.geocodes for code in own]
    problems = []
    for code in sorted({*codes} - {*every}):
        near = [each for each in every if each.rstrip("_").endswith(code)] or get_close_matches(code, every, n=3)
        remedy = f"did you mean {listed(near[:3])}? " if near else ""
        remedy += "Geocodes of all areas are in spine.parquet" if not published.by_prefix else "Write it in full"
        problems.append(Problem(what=f'there is no area "{code}"', where="--area", remedy=remedy))
    if problems:
        raise PlanError(problems)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Target:
    """Cells of one query in areas of one level, or in unions: rows (row, area, cell)."""

    level: str | None
    query: Query
    rows: pl.DataFrame


def targets_of(frame: pl.DataFrame, published: Published, unions: Mapping[str, Any], where: str) -> list[Target]:
    """Return what a file asks for; an area is a geocode of its level, or the name of a union."""
    levels = {plain(name): depth for depth, name in enumerate(published.names)}
    codes = [{*own} for own in published.geocodes]
    found, problems = [], []
    numbered = frame.with_row_index("row").with_columns(pl.col("cell").cast(pl.Int64, strict=False))
    for (level, name), rows in numbered.partition_by(
        "geolevel", "query_name", as_dict=True, maintain_order=True
    ).items():
        try:
            query = published.queries[name] if name in published.queries else published.schema.query(name)
        except PlanError as error:
            problems += [problem.inside(where) for problem in error.problems]
            continue
        depth = levels.get(plain(level)) if level else None
        if depth == 0:  # the uppermost area has an empty geocode, whatever a reader calls it
            rows = rows.with_columns(
                pl.when(pl.col("area").is_in(["", level]))
                .then(pl.lit(published.geocodes[0][0]))
                .otherwise("area")
                .alias("area")
            )
        rows = rows.with_columns(pl.Series("area", [published.block(area) for area in rows["area"]], dtype=pl.String))
        inside = pl.Series(
            [area in codes[depth] for area in rows["area"]] if depth is not None else [False] * rows.height
        )
        joined = pl.Series([area in unions for area in rows["area"]]) & ~inside
        wrong = rows.filter(~(inside | joined) | ~pl.col("cell").is_between(0, query.size - 1).fill_null(value=False))
        if wrong.height:
            row = wrong.row(0, named=True)
            what = f'{name}: there is no cell {row["cell"]} of it in {level or UNION} "{row["area"]}"'
            remedy = (
                f"there are the levels {listed([*filter(None, published.names)])}, and cells 0 to {query.size - 1:,}"
            )
            problems.append(Problem(what=what, where=f"{where} row {row['row'] + 1}", remedy=remedy))
        for at, chosen in ((None if depth is None else published.names[depth], inside), (None, joined)):
            if chosen.any():
                found.append(Target(level=at, query=query, rows=rows.filter(chosen).select("row", "area", "cell")))
    if problems:
        raise DataError(problems)
    return found


def where_query(schema: Schema, where: Sequence[str]) -> tuple[Query, int]:
    """Return the query whose one cell counts these codes, and which cell that is.

    >>> query, cell = where_query(shipped_schema("pl94-persons"), ["hispanic=2", "cenrace=1,2"])
    >>> query.shape, cell
    ((1, 1, 2, 2), 2)
    """
    chosen: dict[str, list[str]] = {}
    for each in where:
        name, _, text = each.partition("=")
        if name.strip() in chosen:
            remedy = f"write the codes together: {name.strip()}=CODE,CODE"
            raise bad_plan(f"'{name.strip()}' is given twice", where="--where", remedy=remedy)
        chosen[name.strip()] = [code.strip() for code in text.split(",")]
    known = {attribute.name: attribute.codes for attribute in schema.attributes}
    for name, codes in chosen.items():
        if name not in known or not {*codes} <= {*known[name]}:
            there = (
                f"{name} has the codes {listed(known[name][:9])}" if name in known else f"there are {listed([*known])}"
            )
            raise bad_plan(f"'{name}={','.join(codes)}' is not in the schema", where="--where", remedy=there)
    groups, cell = [], 0
    for attribute in schema.attributes:
        wanted = [code in chosen.get(attribute.name, attribute.codes) for code in attribute.codes]
        # The group of the first code is 0, as in every query; all codes are no condition.
        groups.append(tuple(int(each != wanted[0]) for each in wanted))
        cell = cell * (max(groups[-1]) + 1) + int(not wanted[0])
    return Query(name=" and ".join(where), kept=("",) * len(groups), groups=tuple(groups)), cell
