"""CSV files as agencies have them: separators, damaged lines and their remedy, and what a spreadsheet would run."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Final

import polars as pl

from stirred.data.problems import DataError, bad_file, counted, listed
from stirred.data.sources import Source, unreadable_because
from stirred.spec.doubts import Doubt
from stirred.spec.problems import Problem

_SEPARATORS: Final = (",", ";", "\t", "|")
_HEADER_BYTES: Final = 1 << 20
_MOST_UNPACKED: Final = 16 << 30
# No column name is longer; a name that is, comes from a damaged file or from one without line ends.
LONGEST_NAME: Final = 200
_NUMBER: Final = r"^\s*[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?\s*$"
_NAMES: Final = "put a first line with the names of the columns into the file"

_PACKED: Final = (
    (b"\x1f\x8b", "a gzip file", "name it .csv.gz"),
    (b"PK\x03\x04", "a zip archive", "unpack it"),
)


def read_csv(place: Source, separator: str | None = None) -> pl.DataFrame:
    """Return the columns of a file as text; refuse a file whose lines or signs are damaged."""
    header, separator = csv_header(place, separator)
    if not header:
        return pl.DataFrame()
    _check_no_nul(place)
    try:
        frame = pl.read_csv(
            _for_polars(place),
            columns=list(range(len(header))),
            separator=separator,
            infer_schema=False,
            encoding="utf8",
            null_values=[""],  # also where it is quoted
            glob=False,
        )
    except pl.exceptions.ComputeError as error:
        raise _csv_error(place, error, separator=separator, width=len(header)) from None
    frame.columns = header
    # A line that ends early shows in the last column.
    if len(header) > 1 and frame[header[-1]].null_count():
        frame = _without_short_lines(place, frame, separator=separator, width=len(header))
    return frame


def _for_polars(place: Source) -> Path | bytes:
    """Return the file, or what is packed in it; nothing of it is written to a disk."""
    if not place.is_packed:
        return place.path
    with place.opened() as file:
        content = file.read(_MOST_UNPACKED + 1)
    if len(content) > _MOST_UNPACKED:
        raise bad_file(
            f"unpacked it has more than {_MOST_UNPACKED:,} bytes", where=str(place), remedy="unpack it first"
        )
    return content


def csv_header(place: Source, separator: str | None = None) -> tuple[list[str], str]:
    """Return the names of the columns and what separates them: the declared separator, or the most frequent one."""
    with place.opened() as file:
        start = file.read(_HEADER_BYTES)
    if start.startswith(b"PAR1"):
        remedy = f"rename it to {place.path.with_suffix('.parquet').name}"
        raise bad_file("this is a Parquet file and not CSV", where=str(place), remedy=remedy)
    for begin, kind, remedy in _PACKED:
        if start.startswith(begin):
            raise bad_file(f"this is {kind} and not CSV", where=str(place), remedy=remedy)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _not_utf8(place, "this is UTF-16", encoding="utf16")
    if b"\n" not in start and b"\r" in start:
        raise bad_file(
            "its lines end in a bare carriage return (old Macintosh)",
            where=str(place),
            remedy="save it with Unix or Windows line ends",
        )
    if b"\n" not in start and len(start) == _HEADER_BYTES:
        raise bad_file(
            f"line 1, which names the columns, is longer than {_HEADER_BYTES:,} bytes",
            where=str(place),
            remedy="check that this is a CSV file with line ends, and that its first line holds names alone",
        )
    text, _, rest = start.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    if text.count(b'"') % 2:  # a quoted name runs over the end of the line
        text += b"\n" + rest
    try:
        line = text.decode("utf-8").strip("\r")
    except UnicodeDecodeError:
        raise _not_utf8(place, "line 1 is not UTF-8") from None
    if not line.strip():
        return [], ","
    bare = re.sub(r'"[^"]*"', "", line).partition("\n")[0]
    if "\r" in bare:  # some readers end the line there, and lose the columns behind it
        raise _damaged(place, "line 1 has a carriage return in the middle")
    separator = separator or max(_SEPARATORS, key=bare.count)  # of equals the first: the comma
    try:
        names = next(csv.reader(io.StringIO(line, newline=""), delimiter=separator))
    except csv.Error:
        raise bad_file("the header cannot be read", where=str(place), remedy="check its quotes") from None
    check_repeated(place, names)
    return names, separator


def _check_no_nul(place: Source) -> None:
    """Refuse NUL bytes, which no value has."""
    if place.is_packed:
        content = _for_polars(place)
        assert isinstance(content, bytes)
        return _refuse_nul(place, content)
    with place.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
        _refuse_nul(place, mapped)


def _refuse_nul(place: Source, content: bytes | mmap) -> None:
    if (at := content.find(b"\0")) >= 0:
        line = content[:at].count(b"\n") + 1
        raise _damaged(place, f"line {line:,} has a NUL byte in it")


def _damaged(place: Source, what: str) -> DataError:
    remedy = "the file is damaged, or pasted together from others: export it again, as CSV UTF-8"
    return bad_file(what, where=str(place), remedy=remedy)


def _csv_error(place: Source, error: Exception, *, separator: str, width: int) -> DataError:
    text = str(error)
    if "utf-8" in text.lower() or "utf8" in text.lower():
        with place.opened() as file:
            for number, line in enumerate(file, start=1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return _not_utf8(place, f"line {number:,} is not UTF-8")
    if "could not parse" in text:
        return bad_file(
            f"a quote is opened in line {_open_quote(place):,} and not closed: fields and lines cannot be told apart",
            where=str(place),
            remedy="close it, or double a quote that belongs to a value",
        )
    if "more fields" in text:
        fields = _fields(place, separator=separator)
        if (fields > width).any():
            long = (fields > width).arg_true()
            lines = counted(long.head(5).to_list(), total=len(long)).replace("row", "line", 1)
            return bad_file(
                f"lines have more fields than the {width} columns of the header ({lines})",
                where=str(place),
                remedy="put fields that hold a separator into quotes"
                if width > 1
                else f"line 1 has no {separator!r}: declare the separator of the file, or put its fields into quotes",
            )
    return unreadable_because(place, error)


def _open_quote(place: Source) -> int:
    """Return the line after which the number of quotes stays odd."""
    found, odd = 1, False
    with place.opened() as file:
        for number, line in enumerate(file, start=1):
            if line.count(b'"') % 2:
                odd, found = not odd, number if not odd else found
    return found


def _not_utf8(place: Source, what: str, *, encoding: str = "latin1") -> DataError:
    how = f"in Excel as 'CSV UTF-8', or by `iconv -f {encoding} -t utf8 old.csv > new.csv`"
    return bad_file(what, where=str(place), remedy=f"save the file as UTF-8: {how}")


def _fields(place: Source, *, separator: str) -> pl.Series:
    """Return the number of fields of each line, or of each record where a quoted field has several lines."""
    lines = pl.read_csv(
        _for_polars(place),
        has_header=False,
        separator="\x1f",
        quote_char=None,
        infer_schema=False,
        new_columns=["line"],
        columns=[0],
        truncate_ragged_lines=True,
        glob=False,
    )["line"].fill_null("")
    # What stands in quotes may hold separators. A quote that is left over belongs to a field of several lines.
    lines = lines.str.replace_all('"[^"]*"', "")
    if lines.str.contains('"', literal=True).any():
        return _fields_of_records(place, separator=separator)
    return lines.str.count_matches(separator, literal=True) + 1


def _fields_of_records(place: Source, *, separator: str) -> pl.Series:
    """Return the number of fields of each record, read one by one: records may run over several lines."""
    with io.TextIOWrapper(place.opened(), encoding="utf-8-sig", newline="") as file:
        return pl.Series(values=[max(len(row), 1) for row in csv.reader(file, delimiter=separator)], dtype=pl.UInt32)


def _without_short_lines(place: Source, frame: pl.DataFrame, *, separator: str, width: int) -> pl.DataFrame:
    """Return the frame without blank lines at its end; refuse other lines that end early, as in a cut-off file."""
    fields = _fields(place, separator=separator)
    if len(fields) != frame.height + 1:
        return frame
    kept = frame.height
    while kept and fields[kept] < width and frame.row(kept - 1) == (None,) * frame.width:
        kept -= 1
    short = (fields.head(kept + 1) < width).arg_true()
    if len(short) and len(short) == kept and (fields.slice(1, kept) == fields[1]).all():
        raise bad_file(
            f"the header has {width} names, and every record {fields[1]} field{'s' * (fields[1] != 1)}",
            where=str(place),
            remedy="remove the names that have no column, or check the separator",
        )
    if len(short):
        lines = counted(short.head(5).to_list(), total=len(short)).replace("row", "line", 1)
        raise bad_file(
            f"lines end before the last of the {width} columns ({lines})",
            where=str(place),
            remedy="check that the file is complete",
        )
    return frame.head(kept)


# --- the first line: whether it holds names, or is a record that somebody would lose ----------------------


def check_repeated(place: Source, names: list[str]) -> None:
    """Refuse names that are repeated or absent: no table can have them."""
    problems = []
    if repeated := sorted({name for name in names if name and names.count(name) > 1}):
        problems.append(
            Problem(
                what=f"more than one column is called {listed(repeated)}",
                where=str(place),
                remedy="give every column its own name",
                public="more than one column has the same name",
            )
        )
    if nameless := [str(at) for at, name in enumerate(names, start=1) if not name]:
        problems.append(
            Problem(
                what=f"column {', '.join(nameless[:10])} has no name",
                where=str(place),
                remedy="name it or remove it (row names written by R: write.csv(..., row.names = FALSE))",
            )
        )
    if problems and all(_numbers(names)):
        raise _all_numbers(place)
    if any(_numbers(repeated)):
        raise _no_header(place, "a number stands there more than once")
    if problems:
        raise DataError(problems)


def check_header(place: Source, frame: pl.DataFrame) -> None:
    """Refuse names that are all numbers or absurdly long, and a first line that is a record; none is quoted."""
    if frame.width and all(_numbers(frame.columns)):
        raise _all_numbers(place)
    if long := [f"{at} ({len(name):,})" for at, name in enumerate(frame.columns, 1) if len(name) > LONGEST_NAME]:
        raise bad_file(
            f"names have more than {LONGEST_NAME} characters: column {', '.join(long[:10])}",
            where=str(place),
            remedy=f"shorten them, or check the quotes and line ends of line 1; if it is a record, {_NAMES}",
        )
    _check_first_line(place, frame)


def _all_numbers(place: Source) -> DataError:
    return _no_header(place, "every field of it is a number")


def _check_first_line(place: Source, frame: pl.DataFrame) -> None:
    """Refuse a file whose first line is a record, or stands again among the records.

    A name is suspect where it is also a value of its own column. A real column may have such a name (``urban`` with the
    values urban and rural); a file in which half of the columns do, or all but those named by a number, has no header.
    """
    suspect = [bool((frame[name] == name).any()) for name in frame.columns]
    if not any(suspect) or not frame.width:
        return
    if all(suspect) and frame.width > 1:
        same = pl.all_horizontal(pl.col(name) == name for name in frame.columns)
        if (rows := frame.select(same.fill_null(False).arg_true()).to_series()).len():
            raise bad_file(
                f"line 1 stands again as record {rows[0] + 1:,}",
                where=str(place),
                remedy=f"if files were pasted together, remove the header there; if line 1 is a record, {_NAMES}",
            )
    half = frame.width > 1 and 2 * sum(suspect) >= frame.width and sum(suspect) > 1
    if half or all(one or other for one, other in zip(suspect, _numbers(frame.columns), strict=True)):
        raise _no_header(place, f"{sum(suspect)} of its {frame.width} values also stand below it")


def _numbers(names: Sequence[str]) -> list[bool]:
    """Say of each name whether it is a number; an empty one may be a missing number, if any is a number."""
    numbers = pl.Series(values=list(names), dtype=pl.String).str.contains(_NUMBER).to_list()
    return (
        [number or not name.strip() for number, name in zip(numbers, names, strict=True)] if any(numbers) else numbers
    )


def _no_header(place: Source, why: str) -> DataError:
    return bad_file(
        f"line 1 looks like a record and not like the names of columns: {why}",
        where=str(place),
        remedy=f"{_NAMES}; if these are its names, rename the columns",
    )


# ---- texts that no CSV file can hold, or that a spreadsheet runs: a cell that begins with = + - @ is a formula -----

# Full-width signs are read as their plain twins, blanks before a sign are dropped on import, and where a semicolon
# separates the columns a cell begins after it.
_FORMULA: Final = r"^[\s\u00a0\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]|;[=@]"
_WRITTEN_NUMBER: Final = r"^[+-]?(\d+([.,]\d*)*|[.,]\d+|(?i:inf|nan))([eE][+-]?\d+)?\s*%?$"


def unwritable(columns: Iterable[pl.Series]) -> Iterator[Problem]:
    """Yield a problem for each column with texts that readers of a CSV file would not get back.

    >>> [problem.where for problem in unwritable([pl.Series("a", ["", None]), pl.Series("b", ["x", None])])]
    ['a']
    """
    for column in columns:
        if column.dtype != pl.String:
            continue
        texts = column.unique()
        if bool(texts.str.contains("\0", literal=True).any()):
            yield Problem(
                what=f'"{column.name}" has texts with a NUL byte, which no CSV file can hold',
                where=column.name,
                remedy="correct these values in the file first",
            )
        if texts.null_count() and bool((texts == "").any()):
            yield Problem(
                what=f'"{column.name}" has both empty texts and missing values: in a CSV file they are the same',
                where=column.name,
                remedy='if both are missing, write missing = [""] under [data]; or give one of them a code',
            )


def formula_doubts(columns: Iterable[pl.Series]) -> tuple[Doubt, ...]:
    r"""Return a doubt for each column whose name, or one of whose texts, a spreadsheet takes for a formula.

    Numbers such as -5 are numbers. The doubt refuses: opening the file would run what a respondent wrote into the data.

    >>> [doubt.name for doubt in formula_doubts([pl.Series("a", ["-5", "x"]), pl.Series("b", ["=1+1", "x"])])]
    ['formula:b']
    >>> texts = [" -5", "\n=1", "\uff1d1+1", " =1+1", "\u00a0=1", "x;=1", "a;b"]
    >>> [len(formula_doubts([pl.Series("c", [text])])) for text in texts]
    [0, 1, 1, 1, 1, 1, 0]
    """
    return tuple(
        _formula_doubt(column.name) for column in columns if _is_run(pl.Series([column.name])) or _is_run(column)
    )


def _is_run(column: pl.Series) -> bool:
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return False
    texts = column.unique().cast(pl.String).drop_nulls()
    return bool((texts.str.contains(_FORMULA) & ~texts.str.strip_chars(" ").str.contains(_WRITTEN_NUMBER)).any())


def _formula_doubt(name: str) -> Doubt:
    return Doubt(
        kind="formula",
        about=name,
        what=f'"{name}" has texts (or a name) that begin with = + - or @, perhaps after a blank: a spreadsheet '
        "runs them as formulas when it opens a CSV file",
        remedy="recode them",
    )
