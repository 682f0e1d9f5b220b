"""CSV files as agencies have them: what separates the fields, which lines are damaged, and how to mend them."""

from __future__ import annotations

import csv
import io
import re
from mmap import ACCESS_READ, mmap
from typing import Final

import polars as pl

from stirred.data.problems import DataError, bad_file, counted, listed
from stirred.data.sources import Source, missing_columns, unreadable_because
from stirred.spec.problems import Problem

_SEPARATORS: Final = (",", ";", "\t", "|")
_HEADER_BYTES: Final = 1 << 20


def read_csv(place: Source, wanted: list[str] | None) -> pl.DataFrame:
    """Return the wanted columns of a file, or all, as text; refuse a file whose lines or signs are damaged."""
    header, separator = csv_header(place)
    if not header:
        return pl.DataFrame()
    if wanted is not None and (absent := [name for name in wanted if name not in header]):
        raise missing_columns(absent, header, where=str(place))
    _check_no_nul(place)
    # The last column is read in any case: a line that ends early shows there.
    last = len(header) - 1
    taken = [at for at, name in enumerate(header) if wanted is None or name in wanted or at == last]
    try:
        frame = pl.read_csv(
            place.path,
            columns=taken,
            separator=separator,
            infer_schema=False,
            encoding="utf8",
            null_values=[""],  # also where it is quoted
            glob=False,
        )
    except pl.exceptions.ComputeError as error:
        raise _csv_error(place, error, separator=separator, width=len(header)) from None
    frame.columns = [header[at] for at in taken]
    if last and frame[header[last]].null_count():
        frame = _without_short_lines(place, frame, separator=separator, width=len(header))
    return frame


def csv_header(place: Source) -> tuple[list[str], str]:
    """Return the names of the columns and what separates them."""
    with place.path.open("rb") as file:
        start = file.read(_HEADER_BYTES)
    if start.startswith(b"PAR1"):
        remedy = f"rename it to {place.path.with_suffix('.parquet').name}"
        raise bad_file("this is a Parquet file and not CSV", where=str(place), remedy=remedy)
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _not_utf8(place, "this is UTF-16", encoding="utf16")
    if b"\n" not in start and b"\r" in start:
        raise bad_file(
            "its lines end in a bare carriage return (old Macintosh)",
            where=str(place),
            remedy="save it with Unix or Windows line ends",
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
    separator = max(_SEPARATORS, key=bare.count)  # of equals the first: the comma
    try:
        names = next(csv.reader(io.StringIO(line, newline=""), delimiter=separator))
    except csv.Error:
        raise bad_file("the header cannot be read", where=str(place), remedy="check its quotes") from None
    _check_names(place, names)
    return names, separator


def _check_no_nul(place: Source) -> None:
    """Refuse NUL bytes, which no value has."""
    with place.path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        if (at := content.find(b"\0")) >= 0:
            line = content[:at].count(b"\n") + 1
            raise _damaged(place, f"line {line:,} has a NUL byte in it")


def _damaged(place: Source, what: str) -> DataError:
    remedy = "the file is damaged, or pasted together from others: export it again, as CSV UTF-8"
    return bad_file(what, where=str(place), remedy=remedy)


def _check_names(place: Source, names: list[str]) -> None:
    problems = []
    if repeated := sorted({name for name in names if name and names.count(name) > 1}):
        problems.append(
            Problem(
                what=f"more than one column is called {listed(repeated)}",
                where=str(place),
                remedy="give every column its own name",
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
    if problems:
        raise DataError(problems)


def _csv_error(place: Source, error: Exception, *, separator: str, width: int) -> DataError:
    text = str(error)
    if "utf-8" in text.lower() or "utf8" in text.lower():
        with place.path.open("rb") as file:
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
        if fields is not None and (fields > width).any():
            long = (fields > width).arg_true()
            lines = counted(long.head(5).to_list(), total=len(long)).replace("row", "line", 1)
            return bad_file(
                f"lines have more fields than the {width} columns of the header ({lines})",
                where=str(place),
                remedy="put fields that hold a separator into quotes",
            )
    return unreadable_because(place, error)


def _open_quote(place: Source) -> int:
    """Return the line after which the number of quotes stays odd."""
    found, odd = 1, False
    with place.path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.count(b'"') % 2:
                odd, found = not odd, number if not odd else found
    return found


def _not_utf8(place: Source, what: str, *, encoding: str = "latin1") -> DataError:
    how = f"in Excel as 'CSV UTF-8', or by `iconv -f {encoding} -t utf8 old.csv > new.csv`"
    return bad_file(what, where=str(place), remedy=f"save the file as UTF-8: {how}")


def _fields(place: Source, *, separator: str) -> pl.Series | None:
    """Return the number of fields of each line, or None where quotes make lines hard to tell."""
    lines = pl.read_csv(
        place.path,
        has_header=False,
        separator="\x1f",
        quote_char=None,
        infer_schema=False,
        new_columns=["line"],
        columns=[0],
        truncate_ragged_lines=True,
        glob=False,
    )["line"].fill_null("")
    if lines.str.contains('"', literal=True).any():
        return None
    return lines.str.count_matches(separator, literal=True) + 1


def _without_short_lines(place: Source, frame: pl.DataFrame, *, separator: str, width: int) -> pl.DataFrame:
    """Return the frame without blank lines at its end; refuse other lines that end early, as in a cut-off file."""
    fields = _fields(place, separator=separator)
    if fields is None or len(fields) != frame.height + 1:
        return frame
    kept = frame.height
    while kept and fields[kept] < width and frame.row(kept - 1) == (None,) * frame.width:
        kept -= 1
    short = (fields.head(kept + 1) < width).arg_true()
    if len(short):
        lines = counted(short.head(5).to_list(), total=len(short)).replace("row", "line", 1)
        raise bad_file(
            f"lines end before the last of the {width} columns ({lines})",
            where=str(place),
            remedy="check that the file is complete",
        )
    return frame.head(kept)
