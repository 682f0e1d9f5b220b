"""Where a table lies: a file, a folder of parts, or one table of a database, written ``file.duckdb#table``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stirred.data.problems import DataError, bad_file, listed
from stirred.data.spelling import near
from stirred.spec.problems import Problem

CSV: Final = (".csv", ".tsv")
PARQUET: Final = (".parquet", ".pq")
ARROW: Final = (".arrow", ".feather", ".ipc")
DATABASES: Final = (".duckdb", ".ddb", ".sqlite", ".sqlite3", ".db")
LABELLED: Final = (".sav", ".zsav", ".dta", ".sas7bdat", ".xpt")
_SPREADSHEETS: Final = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
# Between names these are not read as separators; a comma, a semicolon, a tab and a bar are.
_OTHER_SEPARATORS: Final = ("~", "^", ":", "!", "#", "/", " ", "\x1f", "\x01", "§", "¦")
READS: Final = (*CSV, *PARQUET, *ARROW, *DATABASES, *LABELLED)


@dataclass(frozen=True, slots=True)
class Source:
    """A path and, for a database, the table in it.

    >>> Source.of("census.duckdb#households").table
    'households'
    """

    path: Path
    table: str | None = None

    @classmethod
    def of(cls, source: Path | str) -> Source:
        """Return what ``source`` names; a file whose own name holds a ``#`` is that file."""
        path = Path(source)
        if "#" not in path.name or path.exists():
            return cls(path)
        file, _, table = path.name.rpartition("#")
        return cls(path.with_name(file), table) if file else cls(path)

    def __str__(self) -> str:
        return str(self.path) if self.table is None else f"{self.path}#{self.table}"

    @property
    def kind(self) -> str:
        """Return the ending in small letters, or ``folder``."""
        return "folder" if self.path.is_dir() else self.path.suffix.lower()

    def checked(self) -> Source:
        """Return this source; refuse one that does not exist or is of no kind that can be read."""
        if not self.path.exists():
            raise bad_file("there is no such file", where=str(self), remedy="check the path")
        if self.kind != "folder" and self.kind not in READS:
            kind = f"a file ending in '{self.path.suffix}'" if self.path.suffix else "a file without an ending"
            first = "save it as 'CSV UTF-8', or " if self.kind in _SPREADSHEETS else ""
            raise bad_file(
                f"cannot read {kind}",
                where=str(self),
                remedy=f"{first}give a file ending in {', '.join(READS)}, or a folder of Parquet or of CSV files",
            )
        if self.table is not None and self.kind not in DATABASES:
            raise bad_file(
                f"'#{self.table}' names a table, and this is not a database",
                where=str(self),
                remedy=f"leave it out, or give a file ending in {', '.join(DATABASES)}",
            )
        return self


def other_separator(absent: Sequence[str], there: Sequence[str], *, where: str) -> Problem | None:
    """Return the problem of a file that is one column because its separator is none that is read.

    It names no wanted column, so that it is told once, however many are wanted.

    >>> print(other_separator(["size"], ["size~county"], where="homes.csv"))
    homes.csv: the file has one column, "size~county". Mend: is its separator another one? stirred reads , ; tab and |.
    """
    if len(there) != 1 or not any(part in there[0] for part in (*absent, *_OTHER_SEPARATORS)):
        return None
    remedy = "is its separator another one? stirred reads , ; tab and |"
    return Problem(what=f"the file has one column, {listed(there)}", where=where, remedy=remedy)


def missing_columns(absent: Sequence[str], there: Sequence[str], *, where: str) -> DataError:
    """Return (not raise) the error for wanted columns that a file does not have."""
    if (one := other_separator(absent, there, where=where)) is not None:
        return DataError([one])
    return bad_file(
        f"there is no column {listed(absent)}; there are {listed(list(there)[:30])}",
        where=where,
        remedy=which_column(absent, there),
    )


def which_column(absent: Sequence[str], there: Sequence[str]) -> str:
    """Say what to do about columns that a file does not have.

    >>> which_column(["HHGroese"], ["Kreis", "HHGroesse"])
    'did you mean "HHGroesse"? Or name another column'
    """
    hints = [found for name in absent if (found := near(name, there))]
    return f"{f'did you mean {listed(hints)}? Or' if hints else 'check the spelling, or'} name another column"


def unreadable(reason: str, *, where: str) -> DataError:
    """Return (not raise) the error for a file that its reader gives up on."""
    return bad_file(
        f"cannot read it ({reason})", where=where, remedy="check that the file is complete and of this kind"
    )


def first_line(error: Exception) -> str:
    """Return what an error says, at most a line of it."""
    return next(iter(str(error).strip().splitlines()), "")[:200] or type(error).__name__


def unreadable_because(place: Source, error: Exception) -> DataError:
    """Return the problem of a file that a reader gave up on, in its words but without values of the file."""
    # A reader may quote the data it stumbled over, between backquotes: that is not for a message.
    text = re.sub(r"`.*?(`|$)", "a value", str(error).strip(), flags=re.DOTALL)
    reason = next(iter(text.splitlines()), "")[:200] or type(error).__name__
    return unreadable(reason, where=str(place))
