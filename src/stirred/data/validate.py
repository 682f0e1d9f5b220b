"""Holding a file against its codebook: every departure at once, found on distinct values rather than on rows."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import polars as pl

from stirred.data.codebook import TRUTH, WHOLE, Codebook, File, StructuralZero, Variable, names_text, shown
from stirred.data.microdata import ALIKE
from stirred.data.missing import with_missing
from stirred.data.natural import sort_naturally, sorted_values
from stirred.data.problems import counted, listed, number
from stirred.data.whole import without_point
from stirred.spec.multiverse import Hierarchy
from stirred.spec.problems import Problem

_FIRST = 5
_WHOLE = f"^{WHOLE}$"
_DIGITS = r"^[+-]?[0-9]+$"
# The zeros at the end of a fraction, and the point where nothing else follows it.
NEEDLESS = r"^(-?[0-9]+(?:\.[0-9]*[1-9])?)\.?0*$"
# From here on neighbouring whole numbers are the same double.
_INEXACT = 2**53
_ISO_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

Frame = pl.DataFrame | pl.LazyFrame


def validate(
    households: Frame,
    persons: Frame | None,
    codebook: Codebook,
    *,
    household_source: str = "households",
    person_source: str = "persons",
) -> list[Problem]:
    """Return everything in the files that the codebook does not allow; nothing if they are as declared.

    Messages hold values of columns and numbers of rows (counted from 1), never records; ``told`` of a problem holds no
    values either. Lazy frames are read a few columns at a time. A file of persons may be given alone, in place of
    households. Whether household ids are unique and persons have a household is for
    :class:`~stirred.data.microdata.Microdata` to say.

    >>> sex = Variable(name="sex", file="households", type="code", codes={"1": "male", "2": "female"})
    >>> codebook = Codebook(variables=(sex,))
    >>> for problem in validate(pl.DataFrame({"sex": ["1", "7", "2"]}), None, codebook, household_source="a.csv"):
    ...     print(problem)
    a.csv "sex": code 7 is not in the codebook (1 row: 2). Fix: add it to codes, or recode.
    """
    # Texts that the codebook declares as missing are missing.
    given: dict[File, Any] = {"households": households, "persons": persons}
    sources = {"households": household_source, "persons": person_source}
    if persons is None and codebook.is_flat(households.collect_schema().names()):
        given, sources = {"persons": households}, {"persons": household_source}
    files = {
        file: _CheckedFile(with_missing(frame, codebook.missing_texts(file)), sources[file])
        for file, frame in given.items()
        if frame is not None
    }
    problems = list(_link_problems(files, codebook))
    for file, table in files.items():
        problems += _file_problems(table, file, codebook)
    return problems


@dataclass(slots=True)
class _CheckedFile:
    """A file as the checks see it: its columns one at a time, and what is distinct in each."""

    frame: Frame
    source: str
    columns: dict[str, pl.DataType] = field(init=False)
    distinct: dict[str, pl.Series] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = dict(self.frame.collect_schema())

    def column(self, name: str) -> pl.Series:
        if isinstance(self.frame, pl.DataFrame):
            return self.frame[name]
        return self.frame.select(name).collect()[name]

    def values(self, name: str) -> pl.Series:
        """Return the distinct values of a column; missing ones (null, not-a-number) are left out."""
        if name not in self.distinct:
            found = self.frame.lazy().select(name).unique().collect()[name].drop_nulls()
            self.distinct[name] = found.drop_nans() if found.dtype.is_float() else found
        return self.distinct[name]

    def any(self, found: pl.Expr) -> bool:
        """Say whether any row meets a condition."""
        return bool(self.frame.lazy().select(found.fill_null(False).any()).collect().item())

    def rows(self, found: pl.Expr) -> str:
        """Write how many rows meet a condition, and the first of them."""
        rows = self.frame.lazy().select(found.fill_null(False).arg_true().alias("row")).collect()["row"]
        return counted(rows.head(_FIRST).to_list(), total=len(rows))

    def problem(self, column: str, what: str, remedy: str, *, public: str = "") -> Problem:
        return Problem(what=what, where=f'{self.source} "{column}"', remedy=remedy, public=public)


# --- columns and links ----------------------------------------------------------------------------------


def _link_problems(files: Mapping[File, _CheckedFile], codebook: Codebook) -> Iterator[Problem]:
    hid, everywhere = codebook.hid, {name for table in files.values() for name in table.columns}
    if len(files) == 2 and hid is None:
        yield Problem(
            what="persons are given, but the codebook does not say which column links them to households",
            where="[link] hid",
            remedy='name it in the codebook: [link] hid = "..."',
        )
    flat = "households" not in files  # every record stands alone, whatever links it to others
    lacking = [table for table in files.values() if hid is not None and hid not in table.columns and not flat]
    alike = f"{ALIKE}; or " if len(lacking) == 1 and len(files) == 2 else ""
    for table in lacking:
        yield Problem(
            what=f'there is no column "{hid}" (named in hid); there are {names_text(list(table.columns))}',
            where=table.source,
            remedy=f"{alike}add it, or correct [link] in the codebook",
        )
    # Without the person file, its ids are not expected.
    absent = [name for name in codebook.id if name not in everywhere]
    if absent and ("persons" in files or not codebook.of("persons")):
        yield Problem(
            what=f"there is no column {listed(absent)} (named in id)",
            where=" and ".join(table.source for table in files.values()),
            remedy="add it, or correct [link] in the codebook",
        )


def _file_problems(table: _CheckedFile, file: File, codebook: Codebook) -> Iterator[Problem]:
    declared = codebook.of(file)
    links = {codebook.hid, *codebook.id}
    # Persons may repeat what their household has.
    known = {**codebook.of("households"), **declared} if file == "persons" else declared
    yield from _column_problems(table, declared, known={*known, *links})
    for name, variable in known.items():
        if name in table.columns:
            yield from _variable_problems(table, variable, codebook)
    for hierarchy in codebook.hierarchies:
        if all(level in known and level in table.columns for level in hierarchy.levels):
            yield from _nesting_problems(table, hierarchy)
    for zero in codebook.structural_zeros:
        if zero.file == file and all(name in table.columns for name in zero.when):
            yield from _zero_problems(table, zero, known)


def _column_problems(
    table: _CheckedFile, declared: Mapping[str, Variable], *, known: set[str | None]
) -> Iterator[Problem]:
    extra = [name for name in table.columns if name not in known]
    absent = [name for name in declared if name not in table.columns]
    if extra:
        yield Problem(
            what=f"{_columns(extra)} not in the codebook",
            where=table.source,
            remedy=f"declare {_them(extra)} under [[variables]], or remove {_them(extra)} from the file"
            + _likely(extra, absent),
        )
    if absent:
        there = names_text(list(table.columns))
        yield Problem(
            what=f"{_columns(absent)} in the codebook, but not in the file; there are {there}",
            where=table.source,
            remedy=f"add {_them(absent)} to the file, or remove {_them(absent)} from the codebook"
            + _likely(absent, extra),
        )


def _columns(names: Sequence[str]) -> str:
    return f"column{'s' if len(names) > 1 else ''} {names_text(names)} {'are' if len(names) > 1 else 'is'}"


def _them(names: Sequence[str]) -> str:
    return "them" if len(names) > 1 else "it"


def _likely(names: Sequence[str], others: Sequence[str]) -> str:
    """Write which of the other names may be meant."""
    small = {other.strip().lower(): other for other in others}
    pairs = [(name, difflib.get_close_matches(name.strip().lower(), small, n=1)) for name in names[:30]]
    told = [f'"{name}" may be "{small[match[0]]}"' for name, match in pairs if match]
    return f" ({', '.join(told)})" if told else ""


# --- one column -----------------------------------------------------------------------------------------


def _variable_problems(table: _CheckedFile, variable: Variable, codebook: Codebook) -> Iterator[Problem]:
    name, dtype = variable.name, table.columns[variable.name]
    if dtype.is_nested() or dtype in (pl.Binary, pl.Object):
        what = f"its values are {_kind(dtype)}, not single values"
        yield table.problem(name, what, "store one value a record")
        return
    # Missing links are told with the other problems of the link.
    if not variable.missing and name != codebook.hid:
        yield from _missing_problems(table, name, dtype)
    if dtype.is_float() and variable.type in ("code", "integer"):
        yield from _inexact_problems(table, name)
    if variable.type == "code":
        yield from _code_problems(table, variable, codebook.leaves(name))
    for check in _value_checks(variable, table, dtype):
        wrong = _bad(table, name, check.wrong)
        if len(wrong):
            several = len(wrong) > 1
            rest = f"{check.several if several else check.one} ({table.rows(_one_of(name, wrong))})"
            public = f"{number(len(wrong), 'value')} {rest}"
            yield table.problem(name, f"{_shown(wrong)} {rest}", check.remedy, public=public)


@dataclass(frozen=True, slots=True)
class _ValueCheck:
    """A condition on the text of a value that must not hold, in words for one such value and for several."""

    wrong: pl.Expr
    one: str
    several: str
    remedy: str


_TEXT = pl.col("text")
_IS_WHOLE = _TEXT.str.contains(_WHOLE)
_NUMBER = pl.when(_IS_WHOLE).then(_TEXT.str.strip_prefix("+")).cast(pl.Int128)


def _value_checks(variable: Variable, table: _CheckedFile, dtype: pl.DataType) -> Iterator[_ValueCheck]:
    """Yield what is checked of each value, by the type of the variable."""
    if variable.type == "true-false" and dtype != pl.Boolean:
        yield _ValueCheck(
            ~_TEXT.str.to_lowercase().is_in(list(TRUTH)),
            "is neither true nor false",
            "are neither true nor false",
            'write true or false (or 1, 0), or declare type = "code"',
        )
    elif variable.type == "date" and dtype not in (pl.Date, pl.Datetime):
        no_day = _TEXT.str.to_date("%Y-%m-%d", strict=False).is_null()
        yield _ValueCheck(
            ~_TEXT.str.contains(_ISO_DATE) | no_day, "is not a date", "are not dates", "write dates as 2020-12-31"
        )
    elif variable.type == "integer" and not _is_in_range(variable, table, dtype):
        digits = _TEXT.str.contains(_DIGITS)
        remedy = "write whole numbers, or declare another type"
        yield _ValueCheck(~digits, "is not a whole number", "are not whole numbers", remedy)
        remedy = 'write fewer digits, or declare type = "text"'
        yield _ValueCheck(digits & ~_IS_WHOLE, "has more than 38 digits", "have more than 38 digits", remedy)
        # What is not a whole number is null here, and not judged.
        outside = _nearer(variable.min) > _NUMBER if variable.min is not None else pl.lit(False)
        outside |= _nearer(variable.max) < _NUMBER if variable.max is not None else pl.lit(False)
        span, remedy = _span(variable), "correct the values, or widen min and max in the codebook"
        yield _ValueCheck(outside.fill_null(False), f"is not {span}", f"are not {span}", remedy)


def _is_in_range(variable: Variable, table: _CheckedFile, dtype: pl.DataType) -> bool:
    """Say whether a column of integers is in its range as a whole; then its values need no look."""
    if not dtype.is_integer():
        return False
    values = table.column(variable.name)
    low: Any = values.min()
    high: Any = values.max()
    above = variable.min is None or low is None or low >= variable.min
    return bool(above and (variable.max is None or high is None or high <= variable.max))


def _missing_problems(table: _CheckedFile, name: str, dtype: pl.DataType) -> Iterator[Problem]:
    missing = pl.col(name).is_null()
    if dtype.is_float():
        missing |= pl.col(name).is_nan()
    if table.any(missing):
        what = f"values are missing ({table.rows(missing)})"
        yield table.problem(name, what, "fill them in, or declare missing = true in the codebook")


def _inexact_problems(table: _CheckedFile, name: str) -> Iterator[Problem]:
    """Yield the problem of whole numbers so large that the file may hold another one than was meant."""
    large = (pl.col(name).abs() >= _INEXACT) & pl.col(name).is_finite()
    if table.any(large):
        what = f"it holds doubles, which from {_INEXACT:,} on may stand for another number ({table.rows(large)})"
        yield table.problem(name, what, "store the column as text or as whole numbers")


def _code_problems(table: _CheckedFile, variable: Variable, leaves: frozenset[str]) -> Iterator[Problem]:
    allowed = _as_stored([*variable.codes, *leaves], table.columns[variable.name])
    wrong = _bad(table, variable.name, ~_TEXT.is_in(allowed))
    if not len(wrong):
        return
    many = len(wrong) > 1
    remedy = f"add {'them' if many else 'it'} to codes, or recode"
    bare = {code.strip().lstrip("0") or "0" for code in allowed}
    if all((text.strip().lstrip("0") or "0") in bare for text in as_text(wrong)):
        remedy += "; but for leading zeros or spaces these are codes of the codebook"
    rows = table.rows(_one_of(variable.name, wrong))
    rest = f"{'are' if many else 'is'} not in the codebook ({rows})"
    what = f"code{'s' if many else ''} {_shown(wrong)} {rest}"
    yield table.problem(variable.name, what, remedy, public=f"{number(len(wrong), 'code')} {rest}")


def _span(variable: Variable) -> str:
    if variable.min is None:
        return f"at most {variable.max}"
    return f"{variable.min} or more" if variable.max is None else f"from {variable.min} to {variable.max}"


def _nearer(limit: int) -> int:
    """Return a limit that fits into 128 bits; no number here has more than 38 digits."""
    return max(-(10**38), min(limit, 10**38))


def _bad(table: _CheckedFile, name: str, wrong: pl.Expr) -> pl.Series:
    """Return the distinct values whose text is wrong, in order."""
    values = table.values(name)
    if not len(values):
        return values
    return sorted_values(values.filter(as_text(values).alias("text").to_frame().select(wrong).to_series()))


def as_text(values: pl.Series) -> pl.Series:
    """Return values as a codebook writes them: fractions without needless zeros, a truth as true or false.

    >>> as_text(pl.Series([1.0, 2.5])).to_list(), as_text(pl.Series([True])).to_list()
    (['1', '2.5'], ['true'])
    """
    if values.dtype.is_decimal():
        return values.cast(pl.String).str.replace(NEEDLESS, "$1")
    if not values.dtype.is_float():
        return values.cast(pl.String)
    whole = (values == values.floor()) & (values.abs() < 10.0**38)
    return pl.select(
        pl.when(whole).then(values.cast(pl.Int128, strict=False).cast(pl.String)).otherwise(values.cast(pl.String))
    ).to_series()


def _as_stored(codes: Sequence[str], dtype: pl.DataType) -> list[str]:
    """Return codes as a column stores them: without the needless zeros of a decimal point."""
    if not (dtype.is_decimal() or dtype.is_float()):
        return [*codes, *(plain for code in codes if (plain := without_point(code)) != code)]
    return [re.sub(NEEDLESS, r"\1", code) for code in codes]


def _one_of(name: str, values: pl.Series) -> pl.Expr:
    return pl.col(name).is_in(values.implode())


def _shown(values: pl.Series) -> str:
    return shown(as_text(values.head(_FIRST)).to_list() + [""] * (len(values) > _FIRST), most=_FIRST)


def _kind(dtype: pl.DataType) -> str:
    return "binary" if dtype == pl.Binary else f"of type {dtype}"


# --- several columns ------------------------------------------------------------------------------------


def _nesting_problems(table: _CheckedFile, hierarchy: Hierarchy) -> Iterator[Problem]:
    """Yield, for each level, the values that lie in more than one value of the next."""
    levels = list(hierarchy.levels)
    if any(table.columns[level].is_nested() for level in levels):
        return
    # Distinct tuples of 64-bit hashes are found several times faster than distinct tuples of texts. A collision
    # costs the exact search below, and hides a break with probability 2**-64 for each pair of parents.
    known = table.frame.lazy().select(_known(level, table.columns[level]) for level in levels)
    hashes = [pl.when(pl.col(level).is_not_null()).then(pl.col(level).hash()).alias(level) for level in levels]
    tuples = known.select(hashes).unique().collect(engine="streaming")
    for fine, coarse in pairwise(levels):
        pairs = tuples.lazy().select(fine, coarse).drop_nulls().unique()
        if pairs.select(pl.col(fine).is_duplicated().any()).collect().item():
            broken = _broken(known, fine, coarse)
            if broken.height:
                yield _nesting_problem(table, hierarchy, fine, coarse, broken)


def _known(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return a column in which not-a-number is missing, as it is everywhere here."""
    return pl.col(name).fill_nan(None) if dtype.is_float() else pl.col(name)


def _broken(frame: pl.LazyFrame, fine: str, coarse: str) -> pl.DataFrame:
    """Return the values of ``fine`` with more than one ``coarse``, and the smallest of these."""
    pairs = frame.select(pl.col(fine).alias("fine"), pl.col(coarse).alias("coarse")).drop_nulls().unique()
    parents = pairs.group_by("fine").agg(pl.len().alias("count"), pl.col("coarse").sort().head(2))
    return sort_naturally(parents.filter(pl.col("count") > 1).collect(), ["fine"])


def _nesting_problem(
    table: _CheckedFile, hierarchy: Hierarchy, fine: str, coarse: str, broken: pl.DataFrame
) -> Problem:
    examples = []
    for value, count, (one, other) in broken.head(3).iter_rows():
        places = " and ".join(
            f"{shown([parent])} ({table.rows((pl.col(fine) == value) & (pl.col(coarse) == parent))})"
            for parent in (one, other)
        )
        more = f", and {count - 2} more" if count > 2 else ""
        examples.append(f"{fine} {shown([value])} lies in {coarse} {places}{more}")
    rest = f"; and {broken.height - 3:,} more values of {fine}" if broken.height > 3 else ""
    return Problem(
        what=f"{'; '.join(examples)}{rest}",
        where=f'{table.source} "{fine}" in "{coarse}" ({hierarchy.name})',
        remedy=f"correct these rows, or give every {fine} a code of its own, such as its {coarse} and its number",
        public=f"{number(broken.height, f'value of {fine} lies', f'values of {fine} lie')} in more than one {coarse}",
    )


def _zero_problems(table: _CheckedFile, zero: StructuralZero, known: Mapping[str, Variable]) -> Iterator[Problem]:
    found = pl.lit(True)
    for name, wanted in zero.when.items():
        if table.columns[name].is_nested():
            return
        values = table.values(name)
        text = as_text(values)
        if name in known and known[name].type == "true-false":
            wanted = tuple(TRUTH.get(value.lower(), value) for value in wanted)
            text = text.str.to_lowercase().replace(TRUTH)
        elif name in known and known[name].type == "integer":
            wanted = tuple(str(int(value)) for value in wanted)
            text = _canonical(text)
        else:
            wanted = tuple(_as_stored(wanted, table.columns[name]))
        found &= _one_of(name, values.filter(text.is_in(wanted)))
    if table.any(found):
        told = " and ".join(f"{name} {shown(values)}" for name, values in zero.when.items())
        yield Problem(
            what=f"records have {told}, which the codebook rules out ({table.rows(found)})",
            where=f"{table.source} {listed(list(zero.when))} (structural zero '{zero.name}')",
            remedy="correct them, or remove the structural zero from the codebook",
        )


def _canonical(text: pl.Series) -> pl.Series:
    """Return whole numbers without sign and leading zeros that they do not need; others as they are."""
    return text.alias("text").to_frame().select(pl.coalesce(_NUMBER.cast(pl.String), _TEXT)).to_series()
