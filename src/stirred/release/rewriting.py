"""Public files written again by our own writers from what is read of them: nothing else in their bytes is published."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from stirred.data.frames import as_read, read_frame, write_frame
from stirred.data.natural import sort_naturally
from stirred.data.table_labels import label_columns
from stirred.report.page_reader import shown_alone
from stirred.report.readme import Readme
from stirred.spec.document_schema import AccountDocument
from stirred.spec.markdown import raw
from stirred.spec.problems import Problem, StirredError
from stirred.spec.render import to_markdown
from stirred.spec.specification import Specification


class RewritingError(StirredError):
    """A public file that our writers do not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """How the public files of a release are written again.

    ``variables`` are columns of the input: their codes are texts, whatever they look like.
    """

    specification: Specification
    account: AccountDocument | None = None
    variables: Collection[str] = ()

    def again(self, path: Path, name: str) -> pl.DataFrame | str | None:
        """Return what a public file is written from, a table or a text; None where it is published as it stands.

        ``name`` is its place below `public/`. Raise if it says the same otherwise than we do.
        """
        if path.suffix in (".parquet", ".csv"):
            return self._table(path, name)
        if name == "report.html":
            return shown_alone(path.read_text(encoding="utf-8"))
        if name == "specification.md":
            first, stated = (*path.read_text(encoding="utf-8").split("\n"), "", "", "")[:3:2]
            method = "" if stated.startswith("`") else raw(stated)
            title = raw(first.removeprefix("# "))
            return to_markdown(self.specification, title=title, method=method, account=self.account)
        if name == "README.md":
            page = path.read_text(encoding="utf-8")
            if page != Readme.read(page).page(self.specification):
                raise _other("it is not a page that `stirred` writes", name)
            return page
        return None

    def write(self, path: Path, name: str) -> None:
        """Write a file again in its place."""
        written = self.again(path, name)
        if isinstance(written, str):
            path.write_text(written, encoding="utf-8")
        elif written is not None:
            half = path.with_name(f".{path.name}")
            half.touch(mode=0o600, exist_ok=False)
            write_frame(written, half, note=self.specification.notes)
            half.replace(path)

    def _table(self, path: Path, name: str) -> pl.DataFrame:
        frame = _plain(read_frame(path, empty=True), name)
        if path.suffix == ".csv":
            own = (*label_columns(frame.columns), *self.variables)
            numbers = [column for column in frame.get_columns() if column.name not in own]
            if odd := next((text for column in numbers for text in misspelled(column)), None):
                raise _other(f"the number {odd!a} is not spelled as `stirred` does", name)
            if not as_read(frame, "csv").equals(frame):
                raise _other("written again, it is not the same table", name)
        variables = [column for column in frame.columns if column in self.variables]
        if name.startswith("tables/") or name == "strata.parquet":
            return sort_naturally(frame, variables)
        if name == "invariants.parquet" and "table" in frame.columns:
            tables = frame.partition_by("table", maintain_order=True)
            return pl.concat([frame.clear(), *(sort_naturally(table, variables) for table in tables)])
        return frame


# The types of columns that we write. Others have words of their own: names of fields, or of a type.
_TYPES: Final = (pl.Boolean, pl.String, pl.Date, pl.Time, pl.Datetime, pl.Duration, pl.Decimal)


def _plain(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return a table whose columns hold nothing but their values, as those that we write do.

    The dictionary of an enumeration also has values that no row has, and a not-a-number has digits that no reader sees.
    """
    types = {column: _plain_type(kind) for column, kind in frame.schema.items()}
    if odd := next((column for column, kind in types.items() if kind is None), None):
        raise _other(f"the column {odd!a} is of a type that `stirred` does not write ({frame.schema[odd]!r:.60})", name)
    return frame.cast(types).with_columns(pl.col(pl.Float32, pl.Float64).fill_nan(float("nan")))  # type: ignore[arg-type]


def _plain_type(kind: pl.DataType) -> pl.DataType | None:
    """Return the type of a column without words of its own; None where we write none like it."""
    if kind in (pl.Enum, pl.Categorical):
        return pl.String()
    if isinstance(kind, pl.List) and isinstance(kind.inner, pl.DataType):
        inner = _plain_type(kind.inner)
        return None if inner is None else pl.List(inner)
    return kind if kind in _TYPES or kind.is_integer() or kind.is_float() or kind == pl.Null else None


def _other(what: str, name: str) -> RewritingError:
    remedy = "do not publish it; make the release again"
    return RewritingError([Problem(what=what, where=f"public/{name}", remedy=remedy)])


def misspelled(column: pl.Series) -> Sequence[str]:
    """Return the texts of a column of numbers that are spelled otherwise than we write them, such as 059.

    A choice of spellings could hold a message. A column of words, such as a flag, has no numbers.

    >>> misspelled(pl.Series(["5", "059", "+7"])), misspelled(pl.Series(["5.0", "2.5"])), misspelled(pl.Series(["E"]))
    (['059', '+7'], [], [])
    """
    texts = column.drop_nulls()
    numbers = texts.cast(pl.Float64, strict=False)
    if texts.dtype != pl.String or 2 * numbers.null_count() >= max(len(texts), 1):
        return []
    whole = texts.cast(pl.Int64, strict=False)
    right = numbers if whole.null_count() > numbers.null_count() else whole
    written = right.to_frame().write_csv(include_header=False).split("\n")
    return [text for text, own in zip(texts, written, strict=False) if text != own]
