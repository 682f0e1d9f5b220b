"""Tables as they were published, or as somebody names them: by area, with the kinds of persons that they tell apart.

The kinds are the combinations of the tables' variables. Tables of a release that has records are counted from these and
agree with each other; tables of one without records were disturbed themselves, and are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.bundle import BundleFiles
from stirred.data.problems import bad_file, listed
from stirred.risk.table_lists import TableList
from stirred.spec.invariant import plural

_Array = npt.NDArray[Any]
MOST_CELLS: Final = 100_000
_PERSON: Final = "person "  # before the columns of persons in a domain


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PublishedCounts:
    """The counts of every area by table, NaN where one was left out; ``weight`` of each table if they are disturbed."""

    name: str
    of: str
    tables: TableList
    areas: pl.DataFrame
    counts: Sequence[Mapping[str, _Array]]
    weight: Mapping[str, float] | None = None
    public: bool = True

    @property
    def in_words(self) -> str:
        """Say what is attacked, and whether what is found here may be published."""
        how = "as counted from records" if self.weight is None else "with their noise"
        where = "public files alone" if self.public else "a confidential file: keep the results inside"
        return f"{self.name}: tables of {self.of} by {' x '.join(self.areas.columns)}, {how}, from {where}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Own:
    """A table with the area: its variables beside the area, its rows as text, and its variance."""

    title: str
    variables: tuple[str, ...]
    rows: pl.DataFrame
    variance: float


def of_records(
    frame: pl.DataFrame, asked: Sequence[str], *, area: Sequence[str], name: str, of: str, public: bool
) -> PublishedCounts:
    """Return the tables of records that are named, such as "sex x age", for every area."""
    named = [[each.strip() for each in one.split(" x ")] for one in asked]
    wanted = [[each for each in one if each not in area] for one in named]
    counted = [(by, frame.group_by([*area, *by]).len("__count")) for by in wanted]
    own = [
        _Own(title=" x ".join(by), variables=tuple(by), rows=rows.cast(pl.String), variance=1.0) for by, rows in counted
    ]
    return _published(own, area=area, name=name, of=of, exact=True, public=public)


def of_bundle(
    files: BundleFiles, *, area: Sequence[str], name: str, exact: bool, person_columns: Sequence[str] = ()
) -> PublishedCounts:
    """Return the published tables of a release that have the area; tables of persons where there are any.

    ``person_columns`` are those of its records; a specification names them only where some columns are not released.
    """
    columns = files.specification.domain.columns
    of_persons = {*person_columns} | {each.removeprefix(_PERSON) for each in columns if each.startswith(_PERSON)}
    found = [*_with_area(files, area)]
    people = [each for each in found if of_persons & {*each.variables}]
    unit = "person" if people else files.specification.input_premetric.unit
    if not found:
        known = dict.fromkeys(name for _, _, _, variables in files.tables() for name in variables)
        what = f"no published table has {listed([*area])}" if known else "this release has no tables and no records"
        remedy = f"name the area with --area: {listed([*known])}" if known else "name a release of records or tables"
        raise bad_file(what, where=name, remedy=remedy)
    return _published(people or found, area=area, name=name, of=plural(unit), exact=exact, public=True)


def _with_area(files: BundleFiles, area: Sequence[str]) -> Iterator[_Own]:
    for title, _, table, variables in files.tables():
        if "count" not in table.columns or not {*area} <= {*variables}:
            continue
        variance = float(table["variance"].cast(pl.Float64).mean() or 1.0) if "variance" in table.columns else 1.0  # type: ignore[arg-type]
        by = tuple(name for name in variables if name not in area)
        yield _Own(
            title=title, variables=by, rows=table.select(*area, *by, __count="count").cast(pl.String), variance=variance
        )


def _published(
    own: Sequence[_Own], *, area: Sequence[str], name: str, of: str, exact: bool, public: bool
) -> PublishedCounts:
    """Return tables by area; kinds of persons that a table has nowhere are none."""
    codes = _codes(own)
    size = math.prod(len(each) for each in codes.values())
    if size > MOST_CELLS:
        what = f"the tables tell {size:,} kinds of {of} apart, and an attack may have {MOST_CELLS:,}"
        raise bad_file(
            what, where=name, remedy="attack fewer or coarser tables, or name all columns of areas by --area"
        )
    shape = tuple(len(each) for each in codes.values())
    places = dict(zip(codes, np.unravel_index(np.arange(size), shape), strict=True)) if codes else {}
    areas = pl.concat([each.rows.select(area) for each in own]).unique().sort(area)
    categories, counts, possible = {}, {}, np.ones(size, dtype=np.bool_)
    for each in own:
        lengths = tuple(len(codes[variable]) for variable in each.variables)
        of_cell = np.zeros(size, dtype=np.int64)
        if lengths:
            of_cell = np.ravel_multi_index(tuple(places[variable] for variable in each.variables), lengths)
        category = _coded(each.rows, {variable: codes[variable] for variable in each.variables})
        grid = np.full((areas.height, math.prod(lengths)), 0.0 if exact else np.nan)
        grid[_row_of(each.rows.select(area), areas), category] = each.rows["__count"].cast(pl.Float64).to_numpy()
        possible &= np.isin(of_cell, category)
        categories[each.title], counts[each.title] = of_cell, grid.astype(np.int64) if exact else grid
    kept = np.flatnonzero(possible)
    project = np.full(size + 1, kept.size)  # what no table has is one cell more, which nobody finds
    project[kept] = np.arange(kept.size)
    tables = TableList(
        name="published",
        schema=f"{' x '.join(codes) or 'the number'}, {kept.size:,} kinds of {of}",
        cells=kept.size,
        project=project,
        tables={title: category[kept] for title, category in categories.items()},
        codes=codes,
    )
    return PublishedCounts(
        name=name,
        of=of,
        tables=tables,
        areas=areas,
        counts=[{title: grid[place] for title, grid in counts.items()} for place in range(areas.height)],
        weight=None if exact else {each.title: each.variance**-0.5 for each in own},
        public=public,
    )


def _codes(own: Sequence[_Own]) -> dict[str, tuple[str, ...]]:
    """Return the values of every variable, in all tables together."""
    found: dict[str, set[str]] = {}
    for each in own:
        for variable in each.variables:
            found.setdefault(variable, set()).update(each.rows[variable].fill_null("").unique())
    return {variable: tuple(sorted(values)) for variable, values in found.items()}


def _coded(frame: pl.DataFrame, codes: Mapping[str, Sequence[str]]) -> _Array:
    """Return the combination of values of each row; that of a row with another value is one beyond the last."""
    size = math.prod(len(each) for each in codes.values())
    if not codes:
        return np.zeros(frame.height, dtype=np.int64)
    place = [
        frame[name].cast(pl.String).fill_null("").replace_strict(own, range(len(own)), default=-1).to_numpy()
        for name, own in codes.items()
    ]
    outside = np.any([each < 0 for each in place], axis=0)
    inside = [np.where(outside, 0, each) for each in place]
    return np.where(outside, size, np.ravel_multi_index(tuple(inside), tuple(len(own) for own in codes.values())))


def _row_of(places: pl.DataFrame, areas: pl.DataFrame) -> _Array:
    numbered = areas.with_row_index("__area")
    return places.join(numbered, on=areas.columns, how="left", maintain_order="left", nulls_equal=True)[
        "__area"
    ].to_numpy()


def cells_in(frame: pl.DataFrame, tables: TableList) -> _Array:
    """Return the kind of each record as published tables tell them apart."""
    assert tables.codes is not None
    return tables.project[_coded(frame, tables.codes)]
