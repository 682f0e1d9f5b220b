"""The confidential file: households, and optionally the persons in them; or records of any other kind.

A flat file of persons, a table of counts and the file of a survey are held as ``households`` too, and ``record`` says
what a row is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import polars as pl

from stirred.data.codes import all_different, all_known
from stirred.data.columns import Columns, ParquetColumns, as_polars, canonical_frame, select
from stirred.data.frames import check_reserved, parquet_parts, read_labels
from stirred.data.missing import MISSING_CODE, Declared, is_missing, with_missing, with_missing_code
from stirred.data.problems import DataError, bad_file, counted, listed, number
from stirred.data.sources import PLAIN, Dialect, Source, other_separator, which_column
from stirred.spec.domain import AS_GIVEN
from stirred.spec.problems import Problem, StirredError, setting


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Microdata:
    """Household records and their person records, linked by ``hid``; ``id`` columns are never released.

    ``stage`` says at which stage of its life the file is (`stirred.spec.domain.STAGES`), ``post_imputation`` whether
    its records are records after imputation; None says nothing.

    >>> data = Microdata(households=pl.DataFrame({"hid": [1, 2], "county": ["A", "B"]}), hid="hid")
    >>> data.variables
    ['county']
    """

    households: pl.DataFrame = field(kw_only=False)  # of a national file its columns, read when asked for
    persons: Columns | None = None
    hid: str | None = None
    id: tuple[str, ...] = ()
    keep_persons: tuple[str, ...] | None = None
    checked: bool = True
    called: str = ""
    # Labels of codes that the file itself keeps, by column.
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Texts that look like a missing value and are declared as codes, by column.
    not_missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # What a row of ``households`` is, and the columns that say how a sample was drawn, by their role.
    record: str = "household"
    design: Mapping[str, Any] = field(default_factory=dict)
    stage: str = AS_GIVEN
    post_imputation: bool | None = None
    household_source: str = field(default="households")
    person_source: str = field(default="persons")

    def __post_init__(self) -> None:
        homes: Columns = self.households
        if not isinstance(homes, ParquetColumns):
            homes = canonical_frame(as_polars(homes))
        if self.persons is not None and not isinstance(self.persons, ParquetColumns):
            object.__setattr__(self, "persons", canonical_frame(as_polars(self.persons)))
        object.__setattr__(self, "households", _with_link_like_persons(homes, self.persons, self.hid))
        check_reserved(homes.columns, where=self.household_source)
        check_reserved(() if self.persons is None else self.persons.columns, where=self.person_source)
        if self.checked:
            self.check()

    def check(self) -> None:
        """Raise all problems of the link between households and persons."""
        problems = list(_link_problems(self))
        if problems:
            raise DataError(problems)

    @classmethod
    def read(
        cls,
        households: Path,
        persons: Path | None = None,
        *,
        hid: str | None = None,
        id: Sequence[str] = (),
        checked: bool = True,
        by_column: bool = False,
        dialect: Dialect = PLAIN,
    ) -> Microdata:
        """Read the files; problems of both are reported together. ``checked=False`` leaves the link for later.

        ``by_column`` the households of a large Parquet file are read when they are asked for, as persons always are.
        ``dialect`` is what was declared of text files.
        """
        homes: pl.DataFrame | None = None
        people: Columns | None = None
        labels: dict[str, Mapping[str, str]] = {}
        problems: list[Problem] = []
        try:
            table, own = _read_table(households, dialect, large=_LARGE_FILE // 2 if by_column else None, plain=True)
            homes, labels = cast(pl.DataFrame, table), {**own}
        except StirredError as error:
            problems += error.problems
        try:
            if persons is not None:
                people, of_persons = _read_table(persons, dialect, large=_LARGE_FILE)
                labels = {**of_persons, **labels}
        except StirredError as error:
            problems += error.problems
        if homes is None or problems:
            raise DataError(problems)
        return cls(
            households=homes,
            persons=people,
            hid=hid,
            id=tuple(id),
            checked=checked,
            labels=labels,
            household_source=str(households),
            person_source=str(persons) if persons else "persons",
        )

    def excerpt(self, rows: int) -> Microdata:
        """Return some records with their persons, spread over the file; the file itself where it has no more.

        >>> data = Microdata(households=pl.DataFrame({"county": ["A", "B", "C", "D"]}))
        >>> data.excerpt(2).households["county"].to_list()
        ['A', 'C']
        """
        homes, persons = self.households, self.persons
        if homes.height <= rows:
            return self
        # Of a file that is read by column the first rows are at hand.
        by_column = any(isinstance(table, ParquetColumns) for table in (homes, persons))
        homes = homes.head(rows) if by_column else homes.gather_every(homes.height // rows).head(rows)
        if persons is not None:
            hid = str(self.hid)
            people = persons.head(_PERSONS_OF_A_HOUSEHOLD * rows) if by_column else as_polars(persons)
            persons = people.join(homes.select(pl.col(hid).cast(people[hid].dtype)), on=hid, how="semi")
        return replace(self, households=homes, persons=persons)

    def counted_by(self, count: str) -> Microdata:
        """Return the records of a table of counts: every row as often as its column ``count`` says.

        >>> table = pl.DataFrame({"region": ["north", "south"], "count": [2, 1]})
        >>> Microdata(households=table).counted_by("count").households["region"].to_list()
        ['north', 'north', 'south']
        """
        homes, where = self.households, f'{self.household_source} "{count}"'
        if count not in homes.columns:
            remedy = f"name the column of the numbers with count under [data]; there are {listed(homes.columns)}"
            raise bad_file(f"there is no column '{count}'", where=self.household_source, remedy=remedy)
        counts = homes[count].cast(pl.Int64, strict=False)
        if counts.null_count() or bool((counts < 0).any()):
            rows = (counts.is_null() | (counts < 0).fill_null(value=True)).arg_true()
            what = f"counts that are not whole numbers from 0 on ({counted(rows.head(5).to_list(), total=len(rows))})"
            raise bad_file(what, where=where, remedy="use a table of true counts, neither rounded nor suppressed")
        if (total := int(counts.sum())) > _MOST_COUNTED:
            what = f"{total:,} records are more than a table of counts may have here ({_MOST_COUNTED:,})"
            raise bad_file(what, where=where, remedy="give the records themselves, as Parquet")
        cells = homes.drop(count)
        if cells.width and len(twice := cells.is_duplicated().arg_true()):
            what = (
                f"cells of the table stand in it more than once ({counted(twice.head(5).to_list(), total=len(twice))})"
            )
            raise bad_file(what, where=self.household_source, remedy="give each combination of values one row")
        rows = pl.int_range(homes.height, eager=True).repeat_by(counts).explode().drop_nulls()
        return replace(self, households=cells[rows])

    def with_missing(self, declared: Declared) -> Microdata:
        """Return the data in which the declared texts are missing values."""
        if not any(declared.values() if isinstance(declared, Mapping) else declared):
            return self
        return self._changed(lambda frame: with_missing(frame, declared), lambda scan: with_missing(scan, declared))

    def with_missing_code(self, columns: Sequence[str]) -> Microdata:
        """Return the data in which a missing value of some columns is a code, published as ``(missing)``.

        A column that has this text already is refused: both could not be told apart.
        """
        gaps = [n for n in columns if n in self.households.columns and is_missing(self.households[n]).any()]
        if problems := [problem for name in gaps for problem in self._taken_code(name)]:
            raise DataError(problems)
        if not gaps:
            return self
        return self._changed(lambda frame: with_missing_code(frame, gaps), lambda scan: with_missing_code(scan, gaps))

    def _taken_code(self, name: str) -> Iterator[Problem]:
        for frame, source in ((self.households, self.household_source), (self.persons, self.person_source)):
            if frame is None or name not in frame.columns:
                continue
            column = frame[name]
            rows = int((column == MISSING_CODE).sum()) if column.dtype == pl.String else 0
            if rows:
                yield Problem(
                    what=f"it has missing values and, in {number(rows, 'row')}, the text '{MISSING_CODE}', which "
                    'missing_as = "code" writes for them',
                    where=f'{source} "{name}"',
                    remedy=f"if the text means a missing value, write missing = ['{MISSING_CODE}'] under [data]; "
                    "if not, give it another code",
                )

    def _changed(
        self, frame: Callable[[pl.DataFrame], pl.DataFrame], scan: Callable[[pl.LazyFrame], pl.LazyFrame]
    ) -> Microdata:
        homes, people = self.households, self.persons
        if isinstance(people, ParquetColumns):
            people = people.with_columns_changed(scan)
        elif people is not None:
            people = frame(as_polars(people))
        return replace(self, households=frame(homes.select(homes.columns)), persons=people)

    @property
    def name(self) -> str:
        """Return what a specification calls the data: their given name, or that of the file without its ending."""
        if self.called:
            return self.called
        source = Source.of(self.household_source)
        return source.table or source.stem

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Return the columns that identify: the household link and the ids; none is released."""
        return tuple(dict.fromkeys((*((self.hid,) if self.hid else ()), *self.id)))

    @property
    def variables(self) -> list[str]:
        """Return the household columns that are not identifiers."""
        return [name for name in self.households.columns if name not in self.identifiers]

    @property
    def lazy_persons(self) -> pl.LazyFrame | None:
        """Return the persons without reading them, or None."""
        if isinstance(self.persons, ParquetColumns):
            return self.persons.scan
        assert self.persons is None or isinstance(self.persons, pl.DataFrame)
        return None if self.persons is None else self.persons.lazy()

    @property
    def types(self) -> dict[str, pl.DataType]:
        """Return the types of all columns; where persons repeat a column of households, that of households."""
        persons = self.lazy_persons
        return {**({} if persons is None else persons.collect_schema()), **self.households.schema}

    @property
    def person_variables(self) -> list[str]:
        """Return the person columns that are neither identifiers nor already on the household."""
        if self.persons is None:
            return []
        taken = {*self.identifiers, *self.households.columns}
        kept = self.keep_persons
        return [n for n in self.persons.columns if n not in taken and (kept is None or n in kept)]

    @property
    def dropped_person_columns(self) -> list[str]:
        """Return the person columns that are not released, or come from the household instead."""
        if self.persons is None:
            return []
        kept = {self.hid, *self.person_variables}
        return [f"{name} (of persons)" for name in self.persons.columns if name not in kept]

    def disagreements(self, columns: Sequence[str]) -> list[Problem]:
        """Return a problem for each column on which persons disagree with their household."""
        if self.persons is None or self.hid is None:
            return []
        if self.hid not in self.households.columns or self.hid not in self.persons.columns:
            return []  # a problem of the link, which is reported as such
        problems = []
        for name in (n for n in _shared(self) if n in columns):
            own = select(self.households, [self.hid, name]).rename({name: "__household"})
            kinds = (self.persons[name].dtype, self.households[name].dtype)
            if kinds[0] != kinds[1] and not all(kind.is_integer() for kind in kinds):
                problems.append(
                    Problem(
                        what=f"it is {kinds[0]} here and {kinds[1]} in {self.household_source}",
                        where=f'{self.person_source} "{name}"',
                        remedy="store it with the same type in both files, or leave it out here",
                    )
                )
                continue
            both = select(self.persons, [self.hid, name]).join(own, on=self.hid, how="left", maintain_order="left")
            rows = both.select(pl.col(name).ne_missing(pl.col("__household")).arg_true()).to_series().to_list()
            if rows:
                problems.append(
                    Problem(
                        what=f"persons disagree with their household ({counted(rows)})",
                        where=f'{self.person_source} "{name}"',
                        remedy=f"correct them, or leave the column out: persons get it from {self.household_source}",
                    )
                )
        return problems


_MOST_COUNTED = 200_000_000
_PERSONS_OF_A_HOUSEHOLD = 10  # at most so many are looked through for those of an excerpt

ALIKE = "the household id must have the same name in both files: rename the column in one of them"

# From here persons are fetched column by column, and households from half of it: a national file does not fit.
_LARGE_FILE = 256 << 20


def _read_table(
    path: Path, dialect: Dialect, *, large: int | None, plain: bool = False
) -> tuple[Columns, Mapping[str, Mapping[str, str]]]:
    """Return a table and the labels that its file keeps; ``plain``, only columns that keep their types are fetched."""
    if large is not None and sum(part.path.stat().st_size for part in parquet_parts(path)) > large:
        table = ParquetColumns(path)
        if not plain or all(kind.is_integer() or kind in (pl.String, pl.Boolean) for kind in table.schema.values()):
            return table, {}
    labelled = read_labels(path, dialect)
    return labelled.frame, labelled.values


def _with_link_like_persons(households: Columns, persons: Columns | None, hid: str | None) -> Columns:
    """Return households whose id has the type of the persons' link, where both are whole numbers of some type."""
    if persons is None or hid is None or hid not in households.columns or hid not in persons.columns:
        return households
    stored, ids = persons.head(0)[hid].dtype, households[hid]
    link = stored if stored.is_integer() else persons[hid].dtype
    if ids.dtype == link or not (ids.dtype.is_integer() and link.is_integer()):
        return households
    same = ids.cast(link, strict=False)
    if same.null_count() != ids.null_count():
        return households
    if isinstance(households, ParquetColumns):
        return households.with_columns_changed(lambda scan: scan.with_columns(pl.col(hid).cast(link)))
    return as_polars(households).with_columns(same)


def _shared(data: Microdata) -> list[str]:
    if data.persons is None:
        return []
    return [n for n in data.persons.columns if n in data.households.columns and n not in data.identifiers]


def _link_problems(data: Microdata) -> list[Problem]:
    problems: list[Problem] = []
    if not data.households.height or not data.households.columns:
        raise bad_file("the file holds no records", where=data.household_source, remedy="check the file")
    if data.persons is not None and data.hid is None:
        what = "persons are given, but not the column that links them to households"
        return [Problem(what=what, where="hid", remedy=f"name it: {setting('hid', 'COLUMN', planned=True)}")]
    if data.hid is not None:
        problems += _hid_problems(data, data.hid)
    known = set(data.households.columns) | (set(data.persons.columns) if data.persons is not None else set())
    for name in data.id:
        if name not in known:
            problems.append(missing_column(name, data.households.columns, where=data.household_source, role="id"))
    return problems


def _hid_problems(data: Microdata, hid: str) -> list[Problem]:
    problems = []
    for frame, source in ((data.households, data.household_source), (data.persons, data.person_source)):
        if frame is not None and hid not in frame.columns:
            problems.append(missing_column(hid, frame.columns, where=source, role="hid"))
    if len(problems) == 1 and data.persons is not None:
        return [replace(problems[0], remedy=f"{ALIKE}; {problems[0].remedy}")]
    if problems:
        return problems
    ids = data.households[hid]
    if ids.null_count():
        problems.append(_nulls(ids, data.household_source))
    if not all_different(ids):
        rows = (ids.is_duplicated() & ids.is_not_null()).arg_true().to_list()
        problems.append(
            Problem(
                what=f"household ids are not unique ({counted(rows)})",
                where=f'{data.household_source} "{hid}"',
                remedy="give every household one row and its own id",
            )
        )
    if data.persons is not None:
        problems += _person_link_problems(data.persons, ids, hid, data)
    return problems


def _person_link_problems(persons: Columns, ids: pl.Series, hid: str, data: Microdata) -> list[Problem]:
    link = persons[hid]
    if link.dtype != ids.dtype:
        return [
            Problem(
                what=f'"{hid}" is {link.dtype} here and {ids.dtype} in {data.household_source}',
                where=f'{data.person_source} "{hid}"',
                remedy="store the link with the same type in both files",
            )
        ]
    problems = [_nulls(link, data.person_source)] if link.null_count() else []
    if not all_known(link, ids):
        rows = (~link.is_in(ids.unique().implode()) & link.is_not_null()).arg_true().to_list()
        problems.append(
            Problem(
                what=f"persons whose household is not in {data.household_source} ({counted(rows)})",
                where=f'{data.person_source} "{hid}"',
                remedy="add the households, or remove these persons",
            )
        )
    return problems


def _nulls(column: pl.Series, source: str) -> Problem:
    rows = column.is_null().arg_true().to_list()
    return Problem(
        what=f"values are missing ({counted(rows)})",
        where=f'{source} "{column.name}"',
        remedy="fill them in, for instance with a code for 'unknown', or remove the records",
    )


def missing_column(name: str, available: Sequence[str], *, where: str, role: str) -> Problem:
    """Return the problem of a named column that is not there, with those that are."""
    if (one := other_separator([name], available, where=where)) is not None:
        return one
    spaced = next((each for each in available if each != name and each.strip() == name.strip()), None)
    if spaced is not None:
        remedy = f'the name in the file begins or ends with a space, "{spaced}": take the space out of its header'
    else:
        remedy = which_column([name], available)
    named = f"named {'as' if role.startswith(('a ', 'an ')) else 'in'} {role}"
    return Problem(
        what=f'there is no column "{name}" ({named}); there are {listed(list(available)[:30])}',
        where=where,
        remedy=remedy,
    )


def absent_variable(data: Microdata, name: str, *, where: str, role: str) -> Problem:
    """Return the problem of a named column that is an identifier, or is in no file."""
    if name in data.identifiers:
        what, remedy = f'"{name}" is declared an identifier', "name another column"
        elsewhere = "take it out of id under [data] of the plan, and out of [link] id and type id in the codebook"
        return Problem(what=what, where=where, remedy=f"if it is not, {elsewhere}; otherwise {remedy}")
    return missing_column(name, [*data.variables, *data.person_variables], where=where, role=role)


def null_problem(column: pl.Series, *, source: str, role: str) -> Problem | None:
    """Return the problem of missing values in a column that must not have any."""
    missing = is_missing(column)
    count = int(missing.sum())
    if not count:
        return None
    rows = missing.arg_true().head(5).to_list()
    return Problem(
        what=f"values are missing in the {role} variable ({counted(rows, total=count)})",
        where=f'{source} "{column.name}"',
        remedy="fill them in, for instance with a code for 'unknown', or remove the records; or let a missing value be "
        f"a code of its own: {setting('missing_as', 'code', planned=True)}",
    )


def columns_beside(data: Microdata, used: Collection[str]) -> tuple[str, ...]:
    """Return the columns of both files that are not among those used; the link is used where there are persons."""
    persons = [] if data.persons is None else [name for name in data.persons.columns if name != data.hid]
    of_homes = [name for name in data.households.columns if data.persons is None or name != data.hid]
    return (
        *(name for name in of_homes if name not in used),
        *(f"{name} (of persons)" for name in persons if name not in used),
    )


# ---- what a caller gave, in any library's frames, and the way back to the same kind --------------------------------


def as_microdata(data: Any) -> Microdata:
    """Return microdata, from microdata or from one frame of any library."""
    if isinstance(data, Microdata):
        return data
    return Microdata(households=data)


def same_data(one: Microdata, other: Microdata) -> bool:
    """Say whether both hold the same records, with the same said about them; large files are compared as objects.

    >>> homes = pl.DataFrame({"size": [1, None]})
    >>> same_data(as_microdata(homes), as_microdata(homes.clone()))
    True
    """
    if one is other:
        return True
    said = [each.name for each in fields(Microdata) if each.name not in ("households", "persons", "checked")]
    return (
        all(getattr(one, name) == getattr(other, name) for name in said)
        and same_frame(one.households, other.households)
        and same_frame(one.persons, other.persons)
    )


def same_frame(one: Any, other: Any) -> bool:
    """Say whether two tables hold the same; those that are read column by column are compared as objects."""
    if one is other:
        return True
    frames = isinstance(one, pl.DataFrame) and isinstance(other, pl.DataFrame)
    return frames and one.schema == other.schema and one.equals(other)


def like(data: Any) -> Callable[[pl.DataFrame], Any]:
    """Return a function that turns a polars frame into the kind of frame the caller gave."""
    if isinstance(data, (Microdata, pl.DataFrame)):
        return lambda frame: frame
    if isinstance(data, pl.LazyFrame):
        return lambda frame: frame.lazy()
    import narwhals as nw

    given = nw.from_native(data, eager_only=True).implementation
    if given.is_pandas():
        return lambda frame: nw.from_native(frame).to_pandas()
    if given.is_pyarrow():
        return lambda frame: nw.from_native(frame).to_arrow()
    return lambda frame: frame
