"""Missing values: what a file writes for them, what a person declares, and what has to be asked.

``NA`` may be a missing value or Namibia. In a held column it is published as it is, and its reader decides. As a match
or swap value it would be an area or a group of its own, so somebody has to say which it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import polars as pl

from stirred.data.columns import Columns
from stirred.data.natural import sorted_values
from stirred.data.problems import number
from stirred.data.whole import MISSING_LIKE
from stirred.spec.doubts import Doubt
from stirred.spec.problems import setting

# How a missing match or swap value is published where somebody declared that it is a code.
MISSING_CODE: Final = "(missing)"
_TEXT: Final = (pl.String, pl.Categorical, pl.Enum)
Frame = TypeVar("Frame", pl.DataFrame, pl.LazyFrame)
# Texts that mean a missing value: in every column, or by column.
Declared = Sequence[str] | Mapping[str, Sequence[str]]


def missing_doubts(
    frame: Columns, columns: Sequence[str], *, codes: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Doubt]:
    """Yield a doubt for each match or swap column with texts that may mean a missing value.

    ``codes`` are such texts that somebody declared as codes, by column.

    >>> homes = pl.DataFrame({"county": ["NA", "A", "NA", " "]})
    >>> print(*(f"{doubt.name}: {doubt.what}" for doubt in missing_doubts(homes, ["county"])))
    missing:county: "county" has 'NA' in 2 rows and blanks in 1 row: is that a missing value or a code (NA is ...
    """
    for name in dict.fromkeys(columns):
        column = frame[name]
        if column.dtype not in _TEXT:
            continue
        known = {*(codes or {}).get(name, ())}
        levels = column.unique().drop_nulls().cast(pl.String)
        found = [value for value in sorted_values(levels.filter(means_missing(levels))) if value not in known]
        if found:
            yield _doubt(name, {value: int((column.cast(pl.String) == value).sum()) for value in found})


def means_missing(text: pl.Series) -> pl.Series:
    """Say of each text whether people commonly write it for a missing value."""
    return text.str.strip_chars().is_in([*MISSING_LIKE, ""])


def _doubt(name: str, rows: Mapping[str, int]) -> Doubt:
    blanks = sum(count for value, count in rows.items() if not value.strip())
    told = [f"'{value}' in {number(count, 'row')}" for value, count in rows.items() if value.strip()]
    told += [f"blanks in {number(blanks, 'row')}"] if blanks else []
    namibia = " (NA is the ISO code of Namibia)" if "NA" in rows else ""
    texts = sorted({value.strip() for value in rows})
    return Doubt(
        kind="missing",
        about=name,
        what=f'"{name}" has {" and ".join(told)}: is that a missing value or a code{namibia}?',
        public=f'"{name}" has texts that may mean a missing value',
        remedy=f"if it is missing, say so: {setting('missing', *texts, planned=True)}, and for a match or swap "
        f"variable {setting('missing_as', 'code', planned=True)}, too; "
        "if it is a code, list it among the codes of the codebook",
    )


def with_missing(frame: Frame, declared: Declared) -> Frame:
    """Return the frame in which the declared texts are missing values; blanks around them do not count.

    >>> with_missing(pl.DataFrame({"a": ["NA", "1"], "b": ["NA", "x"]}), {"a": ["NA"]}).rows()
    [(None, 'NA'), ('1', 'x')]
    """
    schema = frame.collect_schema()
    texts = declared if isinstance(declared, Mapping) else dict.fromkeys(schema, declared)
    return frame.with_columns(
        pl.when(~pl.col(name).cast(pl.String).str.strip_chars().is_in(list(own))).then(name).alias(name)
        for name, own in texts.items()
        if own and schema.get(name) in _TEXT
    )


def with_missing_code(frame: Frame, columns: Sequence[str]) -> Frame:
    """Return the frame in which a missing value of some columns is a code of its own; these columns become text.

    >>> with_missing_code(pl.DataFrame({"a": [1, None], "b": [1, 2]}), ["a"]).rows()
    [('1', 1), ('(missing)', 2)]
    """
    schema = frame.collect_schema()
    there = [name for name in columns if name in schema]
    known = {name: pl.col(name).fill_nan(None) if schema[name].is_float() else pl.col(name) for name in there}
    return frame.with_columns(known[name].cast(pl.String).fill_null(MISSING_CODE) for name in there)


def is_missing(column: pl.Series) -> pl.Series:
    """Say of each value whether it is missing: null, or not-a-number."""
    return column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()
