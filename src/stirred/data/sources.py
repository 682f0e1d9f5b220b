"""Where a table lies: a file, a folder of parts, or one table of a database, written ``file.duckdb#table``."""

from __future__ import annotations

import gzip
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import unquote

import polars as pl

from stirred.data.problems import DataError, bad_file, bad_plan, listed
from stirred.spec.problems import Problem, StirredError
from stirred.spec.spelling import near

CSV: Final = (".csv", ".tsv", ".txt")
PARQUET: Final = (".parquet", ".pq")
ARROW: Final = (".arrow", ".feather", ".ipc")
DATABASES: Final = (".duckdb", ".ddb", ".sqlite", ".sqlite3", ".db")
LABELLED: Final = (".sav", ".zsav", ".dta", ".sas7bdat", ".xpt")
_SPREADSHEETS: Final = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
# Between names these are not read as separators; a comma, a semicolon, a tab and a bar are.
_OTHER_SEPARATORS: Final = ("~", "^", ":", "!", "#", "/", " ", "\x1f", "\x01", "§", "¦")
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)(.*)", re.DOTALL)
READS: Final = (*CSV, *PARQUET, *ARROW, *DATABASES, *LABELLED)
PACKED: Final = ".gz"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text file writes fields and numbers; without a separator it is told from the header."""

    separator: str | None = None
    decimal: str = "."


PLAIN: Final = Dialect()


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
        path = local_path(source)
        if "#" not in path.name or path.exists():
            return cls(path)
        file, _, table = path.name.rpartition("#")
        return cls(path.with_name(file), table) if file else cls(path)

    def __str__(self) -> str:
        return str(self.path) if self.table is None else f"{self.path}#{self.table}"

    @property
    def kind(self) -> str:
        """Return the ending in small letters, of a packed text file the one before ``.gz``; or ``folder``.

        >>> Source.of("homes.csv.gz").kind, Source.of("homes.parquet").kind, Source.of("homes.parquet.gz").kind
        ('.csv', '.parquet', '.gz')
        """
        if self.path.is_dir():
            return "folder"
        inside = Path(self.path.stem).suffix.lower()
        ending = self.path.suffix.lower()
        return inside if ending == PACKED and inside in CSV else ending

    @property
    def stem(self) -> str:
        """Return the name of the file without its ending."""
        return Path(self.path.stem).stem if self.is_packed else self.path.stem

    @property
    def is_packed(self) -> bool:
        """Say whether it is a text file that gzip made smaller."""
        return self.kind in CSV and self.path.suffix.lower() == PACKED

    def opened(self) -> BinaryIO:
        """Open the file for reading, unpacked."""
        return cast(BinaryIO, gzip.open(self.path, "rb")) if self.is_packed else self.path.open("rb")

    def checked(self) -> Source:
        """Return this source; refuse one that does not exist or is of no kind that can be read."""
        if not self.path.exists():
            raise bad_file("there is no such file", where=str(self), remedy="check the path")
        check_is_file(self.path, where=str(self))
        if self.kind != "folder" and self.kind not in READS:
            kind = f"a file ending in '{self.path.suffix}'" if self.path.suffix else "a file without an ending"
            first = "save it as 'CSV UTF-8', or " if self.kind in _SPREADSHEETS else ""
            first = "unpack it, or " if self.kind == PACKED else first
            raise bad_file(
                f"cannot read {kind}",
                where=str(self),
                remedy=f"{first}give a file ending in {', '.join(READS)}, .csv{PACKED}, or a folder of Parquet or of "
                "CSV files",
            )
        if self.table is not None and self.kind not in DATABASES:
            raise bad_file(
                f"'#{self.table}' names a table, and this is not a database",
                where=str(self),
                remedy=f"leave it out, or give a file ending in {', '.join(DATABASES)}",
            )
        return self


def address_of(source: Path | str) -> str | None:
    """Return a source that is an address of some other file system; None for a path of this machine.

    A path swallows slashes: they are put back. One letter and a colon would be a drive.

    >>> address_of(Path("s3a://lake/homes.parquet")), address_of("homes.parquet"), address_of("file:///homes.parquet")
    ('s3a://lake/homes.parquet', None, None)
    """
    found = _ADDRESS.fullmatch(str(source))
    if found is None or found[1].lower() == "file":
        return None
    return str(source) if found[2] != "/" else f"{found[1]}://{found[3]}"


def without_secret(address: str) -> str:
    """Return an address without what may be a password or a signature; such keys have slashes in them.

    >>> without_secret("s3a://AKIA:se/cret@lake/homes.parquet"), without_secret("abfss://homes@lake.example/?sig=a")
    ('s3a://...@lake/homes.parquet', 'abfss://homes@lake.example/')
    """
    return re.sub("//.*:.*@", "//...@", address).partition("?")[0]


def local_path(source: Path | str) -> Path:
    """Return a path; ``file:///path`` and ``file:/path`` are the path, and any other address is refused.

    >>> local_path("file:///data/homes.parquet"), local_path("homes.parquet")
    (PosixPath('/data/homes.parquet'), PosixPath('homes.parquet'))
    """
    if (address := address_of(source)) and not Path(source).exists():
        raise bad_file(
            f"this is an address ({address.partition(':')[0]}://), and a path of this machine is needed",
            where=without_secret(address),
            remedy="copy it to this machine and name the copy; Parquet at an address that Hadoop reads, such as "
            "hdfs:// or s3a://, may stay there for plan, release and resume of a plan with [engine] name = 'spark'",
        )
    scheme, _, rest = str(source).partition(":")
    if scheme.lower() != "file" or not rest.startswith("/"):
        return Path(source)
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "/", rest[1:])
    if host not in ("", "localhost") or not slash:
        remedy = "write file:///folder/file, with three slashes, or the path alone"
        raise bad_file(f"'{host}' would be another machine, whose files are not read", where=str(source), remedy=remedy)
    return Path("/", path.lstrip("/"))


def check_is_file(path: Path, *, where: str) -> None:
    """Refuse a pipe, a device or a socket: it may never end, and cannot be read again to verify the release.

    The file system is asked, and nothing is opened: opening a pipe waits for somebody to write.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        remedy = "rename it: nothing can read a file whose name is no text"
        raise bad_file("its name is not UTF-8", where=ascii(where)[1:-1], remedy=remedy) from None
    if not path.exists() or path.is_file() or path.is_dir():
        return
    kind = next((name for name, is_one in _OTHER_KINDS.items() if is_one(path)), "something else")
    raise bad_file(f"this is {kind} and not a file", where=where, remedy="save its contents in a file, and name that")


def read_text(path: Path, *, called: str, save: str, check: str = "check the path") -> str:
    """Return the text of a file that somebody wrote by hand; messages say what it is ``called``."""
    check_is_file(path, where=str(path))
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise bad_file("this is not UTF-8", where=str(path), remedy=f"save the {save} as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise bad_file(f"cannot read the {called}: {reason}", where=str(path), remedy=check) from None


_OTHER_KINDS: Final = {
    "a pipe": Path.is_fifo,
    "a device": lambda path: path.is_char_device() or path.is_block_device(),
    "a socket": Path.is_socket,
}


def other_separator(absent: Sequence[str], there: Sequence[str], *, where: str) -> Problem | None:
    """Return the problem of a file that is one column because its separator is none that is read.

    It names no wanted column, so that it is told once, however many are wanted.

    >>> print(other_separator(["size"], ["size~county"], where="homes.csv"))
    homes.csv: the file has one column, "size~county". Fix: is its separator another one? Declare it, such as ...
    """
    if len(there) != 1 or not any(part in there[0] for part in (*absent, *_OTHER_SEPARATORS)):
        return None
    remedy = "is its separator another one? Declare it, such as separator = '~' under [data] or in the codebook"
    return Problem(what=f"the file has one column, {listed(there)}", where=where, remedy=remedy)


def which_column(absent: Sequence[str], there: Sequence[str]) -> str:
    """Say what to do about columns that a file does not have.

    >>> which_column(["HHGroese"], ["Kreis", "HHGroesse"])
    'did you mean "HHGroesse"? Or name another column'
    """
    hints = [found for name in absent if (found := near(name, there))]
    return f"{f'did you mean {listed(hints)}? Or' if hints else 'check the spelling, or'} name another column"


def package_for(source: Source, name: str, *, reading: str, extra: str) -> Any:
    """Return a package that reads files of a kind, or say how to install it."""
    try:
        return import_module(name)
    except ImportError:
        raise bad_file(
            f"reading {reading} needs the package {name}, which is not installed",
            where=str(source),
            remedy=f"pip install 'stirred[{extra}]'",
        ) from None


def unreadable(reason: str, *, where: str, public: str = "") -> DataError:
    """Return (not raise) the error for a file that its reader gives up on; ``public`` where the reason may quote it."""
    remedy = "check that the file is complete and of this kind"
    return bad_file(f"cannot read it ({reason})", where=where, remedy=remedy, public=public)


def first_line(error: Exception) -> str:
    """Return what an error says, at most a line of it."""
    return next(iter(str(error).strip().splitlines()), "")[:200] or type(error).__name__


def unreadable_because(place: Source, error: BaseException) -> DataError:
    """Return the problem of a file that a reader gave up on, in its words but without values of the file."""
    if type(error).__name__ == "PanicException":  # its words are for whoever wrote the reader
        return unreadable("its reader gives up in the middle of it: the file is damaged", where=str(place))
    if isinstance(error, PermissionError) or "Permission denied" in str(error):
        remedy = "ask its owner for the right to read it"
        return bad_file("you may not read it", where=str(place), remedy=remedy)
    # A reader may quote the data it stumbled over, between backquotes: that is not for a message.
    text = re.sub(r"`.*?(`|$)", "a value", str(error).strip(), flags=re.DOTALL)
    reason = next(iter(text.splitlines()), "")[:200] or type(error).__name__
    return unreadable(reason, where=str(place))


def read_toml(path: Path, *, called: str = "it") -> dict[str, Any]:
    """Return the content of a TOML file; decimals stay exact, and messages say what it is ``called``."""
    check_is_file(path, where=str(path))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason, remedy = getattr(error, "strerror", None), "check the path"
        if reason is None:
            reason, remedy = "it is not UTF-8", "save it as UTF-8"
        raise bad_plan(f"cannot read {called}: {reason}", where=str(path), remedy=remedy) from None
    return toml_content(text, where=str(path))


def toml_content(text: str, *, where: str, refusal: Callable[..., StirredError] = bad_plan) -> dict[str, Any]:
    """Return the content of a TOML text; decimals stay exact. ``refusal`` makes the error of what is not TOML."""
    try:
        # Decimals stay decimals: rate = 0.05 is exactly 1/20.
        return tomllib.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        remedy = (
            'check quotes and brackets: text, names with other letters than a-z ("Größe" = 1) and codes with '
            'leading zeros ("01") need quotes'
        )
        if bare := re.search(r"^\s*([\w.-]+)\s*=\s*(\d+\s*/\s*\d+|\d[\d.]*\s*%)\s*(#.*)?$", text, re.MULTILINE):
            remedy = f'put it in quotes: {bare[1]} = "{bare[2]}"'
        elif comma := re.search(r"^\s*([\w.-]+)\s*=\s*([+-]?\d+),(\d+)\s*(#.*)?$", text, re.MULTILINE):
            remedy = f"decimals have a point: write {comma[1]} = {comma[2]}.{comma[3]}"
        elif re.search(r"overwrite a value|twice|immutable", str(error)):
            remedy = "the same key or section stands twice: leave one out"
        raise refusal(f"this is not TOML ({error})", where=where, remedy=remedy) from None


# ---- the files of a table: one, the parts in a folder, or parts in folders such as ``state=01``, as Spark writes ---

# A .txt file among the parts of a table is rather a note about it.
_PARTS_OF_TEXT: Final = tuple(kind for kind in CSV if kind != ".txt")
_FILE: Final = "__the file of a record"
# How Hive and Spark name the folder of records without a value.
_MISSING: Final = ("__HIVE_DEFAULT_PARTITION__", "")


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file, and what the names of its folders say about all its records: texts, or a missing value."""

    path: Path
    values: tuple[tuple[str, str | None], ...] = ()


def is_read(name: str, *, folder: bool) -> bool:
    """Say whether a file or folder inside a folder belongs to its table: as Spark does, by the name alone.

    >>> is_read("part-0.parquet", folder=False), is_read("_SUCCESS", folder=False), is_read("old", folder=True)
    (True, False, False)
    >>> is_read("state=01", folder=True), is_read("_kind=a", folder=True), is_read(".part-0.parquet", folder=False)
    (True, True, False)
    """
    value = name.find("=") > 0
    return not name.startswith(".") and (value or not name.startswith("_")) and (value or not folder)


def parts_of(place: Source) -> list[FilePart]:
    """Return the Parquet or the CSV files of a folder in the order of their paths, or the one file."""
    if place.kind != "folder":
        return [FilePart(place.path)]
    files = sorted(_below(place.path, ()), key=lambda part: part.path)
    parquet, text = ([part for part in files if Source(part.path).kind in kind] for kind in (PARQUET, _PARTS_OF_TEXT))
    for part in (*parquet, *text):
        check_is_file(part.path, where=str(part.path))
    if parquet and text:
        raise bad_file(
            f"this is a folder of Parquet files ({parquet[0].path.name}) and of CSV files ({text[0].path.name})",
            where=str(place),
            remedy="keep the parts of one table in a folder of their own",
        )
    if not parquet and not text:
        raise bad_file(
            "this is a folder without Parquet or CSV files",
            where=str(place),
            remedy="name a file, or a folder that itself holds the files ending in .parquet or .csv (also in folders "
            "such as state=01)",
        )
    _check_levels(place, parquet or text)
    return parquet or text


def scan_parts(parts: Sequence[FilePart]) -> pl.LazyFrame:
    """Return the table of Parquet files that have the same columns; what folders say are further columns, of text."""
    paths = [str(part.path) for part in parts]
    names = [name for name, _ in parts[0].values]
    if not names:
        return pl.scan_parquet(paths, glob=False, hive_partitioning=False)
    # A scan for each folder would be slow: of 1,000 it took 8 seconds to read one column.
    scan = pl.scan_parquet(paths, glob=False, hive_partitioning=False, include_file_paths=_FILE)
    told = {name: pl.Series([dict(part.values)[name] for part in parts], dtype=pl.String) for name in names}
    of_file = [pl.col(_FILE).replace_strict(paths, own, return_dtype=pl.String).alias(n) for n, own in told.items()]
    return scan.with_columns(of_file).drop(_FILE)


def _below(folder: Path, values: tuple[tuple[str, str | None], ...]) -> Iterator[FilePart]:
    for path in (inside := [*folder.iterdir()]):
        is_folder = path.is_dir()
        if not is_read(path.name, folder=is_folder):
            among = is_folder and path.name[0] not in "._" and (values or any("=" in each.name for each in inside))
            if among and any(each.suffix.lower() in PARQUET for each in path.iterdir()):
                what = "this folder has Parquet files, and its name is that of no column"
                raise bad_file(what, where=str(path), remedy="move it elsewhere, or call it such as state=01")
            continue
        if not is_folder:
            yield FilePart(path, values)
            continue
        name, value = map(unquote, path.name.split("=", 1))
        if name in dict(values):
            remedy = "name every level of folders after another column"
            raise bad_file(f"two levels of folders are both called '{name}'", where=str(path), remedy=remedy)
        yield from _below(path, (*values, (name, None if value in _MISSING else value)))


def _check_levels(place: Source, parts: Sequence[FilePart]) -> None:
    first = [name for name, _ in parts[0].values]
    for part in parts:
        if (own := [name for name, _ in part.values]) != first:
            raise bad_file(
                f"its folders say {listed(own) if own else 'nothing'}, and those of {parts[0].path} "
                f"{listed(first) if first else 'nothing'}",
                where=str(part.path),
                remedy="write the table with the same levels of folders for all of its files",
            )
    if first and parts[0].path.suffix.lower() in CSV:
        remedy = "write the table as Parquet, or as CSV with these columns in its files"
        raise bad_file("folders such as state=01 are read for Parquet files only", where=str(place), remedy=remedy)
