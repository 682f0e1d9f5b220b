"""The values that a variable may have, declared and not learned from the file, and a column as places among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from stirred.data.codes import Codes, encode
from stirred.data.problems import bad_plan, counted, listed
from stirred.spec.problems import Problem

Value = str | int | bool


def declared_texts(values: Sequence[Value], *, where: str) -> tuple[str, ...]:
    """Return declared values as files write them; refuse a list with which nothing can be perturbed.

    >>> declared_texts([1, True, "owned"], where="values")
    ('1', 'true', 'owned')
    """
    texts = tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice or len(texts) < 2:
        raise bad_plan(
            f"{listed(twice)} is declared twice" if twice else "a response needs two declared values or more",
            where=where,
            remedy="list every value that the variable may have once, such as ['owned', 'rented']; what the file "
            "happens to hold must not decide",
        )
    return texts


def undeclared(column: pl.Series, values: Sequence[str], *, source: str) -> Iterator[Problem]:
    """Yield what is wrong with a column that may have only declared values."""
    where = f'{source} "{column.name}"'
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Boolean, pl.Categorical)):
        yield Problem(
            what=f"a response needs codes, and this column holds values of type {column.dtype}",
            where=where,
            remedy="turn it into classes, text or whole numbers first",
        )
        return
    if column.null_count():
        rows = counted(column.is_null().arg_true().head(5).to_list(), total=column.null_count())
        yield Problem(
            what=f"values are missing, and no response can be given for them ({rows})",
            where=where,
            remedy="fill them in with a code of its own, such as 'unknown', and declare it",
        )
    present = column.unique().drop_nulls().sort().cast(pl.String).to_list()
    if other := [text for text in present if text not in values]:
        more = "" if len(other) <= 5 else f" and {len(other) - 5:,} more"
        yield Problem(
            what=f"{listed(other[:5])}{more}: not among the declared values",
            where=where,
            remedy="declare every value that may occur, under values or in the codebook, or recode",
        )
    typed = _typed(column, values)
    if odd := [text for text, value in zip(values, typed, strict=True) if value is None]:
        yield Problem(
            what=f"the declared {listed(odd)} cannot stand in a column of type {column.dtype}",
            where=where,
            remedy="declare values as the file writes them, or store the column as text",
        )


def declared_codes(column: pl.Series, values: Sequence[str]) -> Codes:
    """Return each record's place among the declared values.

    >>> declared_codes(pl.Series("tenure", ["r", "o", "r"]), ["o", "r", "free"]).tolist()
    [1, 0, 1]
    """
    coded = encode(column.to_frame(), [column.name])
    place = {text: number for number, text in enumerate(values)}
    table = np.array([place[text] for text in coded.levels[column.name].cast(pl.String)], dtype=np.uint32)
    return table[coded.codes]


def declared_column(column: pl.Series, values: Sequence[str], codes: Codes) -> pl.Series:
    """Return a column of the same name and type with the declared values of some codes."""
    return pl.Series(column.name, _typed(column, values), dtype=column.dtype).gather(codes)


def _typed(column: pl.Series, values: Sequence[str]) -> list[Value | None]:
    """Return declared values in the type of the column, None for one that it cannot hold as written."""
    if column.dtype == pl.Boolean:
        return [{"true": True, "false": False}.get(text) for text in values]
    typed = pl.Series(values).cast(column.dtype, strict=False)
    same = typed.cast(pl.String) == pl.Series(values)
    return [value if kept else None for value, kept in zip(typed.to_list(), same.to_list(), strict=True)]
