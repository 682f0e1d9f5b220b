"""A published table as its reader has it, held against the release that it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from stirred.data.problems import DataError, bad_file, counted, listed, number
from stirred.spec.problems import Problem

COUNT: Final = "count"
_SHOWN: Final = 3


def as_text(table: pl.DataFrame, *, where: str) -> pl.DataFrame:
    """Return a published table with its variables as text and its counts as integers.

    >>> as_text(pl.DataFrame({"size": [1, 2], "count": ["30", "12"]}), where="table").rows()
    [('1', 30), ('2', 12)]
    """
    if COUNT not in table.columns:
        raise bad_file(
            f"there is no column {listed([COUNT])}",
            where=where,
            remedy=f"write the table in long form, variables and count; it has {listed(table.columns)}",
        )
    counts = table[COUNT].cast(pl.Int64, strict=False)
    if counts.null_count():
        rows = counts.is_null().arg_true()
        raise bad_file(
            f"counts are not whole numbers ({counted(rows.head(5).to_list(), total=len(rows))})",
            where=f'{where} "{COUNT}"',
            remedy="use the table as published",
        )
    variables = [name for name in table.columns if name != COUNT]
    text = table.select(*(pl.col(name).cast(pl.String) for name in variables), counts)
    twice = text.select(variables).is_duplicated() if variables else pl.Series([False])
    if twice.any():
        rows = twice.arg_true()
        raise bad_file(
            f"cells occur more than once ({counted(rows.head(5).to_list(), total=len(rows))})",
            where=where,
            remedy="add them up, or remove what repeats",
        )
    return text


def matched(
    given: pl.DataFrame, found: pl.DataFrame, variables: Sequence[str], *, where: str
) -> tuple[pl.DataFrame, int]:
    """Return the cells of ``found`` in the order of the published table, and how many empty ones were added.

    Tables that are counted from records lack their empty cells; those follow at the end, because their
    estimates are not 0 and leaving them out would change every sum. Anything else that differs from the release is
    refused.
    """
    on = list(variables)
    _check_values(given, found, on, where=where)
    joined = given.rename({COUNT: "__given"}).join(found, on=on, how="left", nulls_equal=True, maintain_order="left")
    rest = [name for name in found.columns if name not in on]
    joined = joined.with_columns(pl.col(name).fill_null(0) for name in rest)  # cells that no stratum allows are 0
    other = (joined["__given"] != joined[COUNT]).arg_true()
    if len(other):
        raise bad_file(
            f"{number(len(other), 'count is not that', 'counts are not those')} of the released data "
            f"({counted(other.head(5).to_list(), total=len(other))})",
            where=f'{where} "{COUNT}"',
            remedy="use a table that was published with this bundle, unrounded and unchanged",
        )
    missing = found.join(given, on=on, how="anti", nulls_equal=True)
    _check_missing(missing.filter(pl.col(COUNT) != 0), on, where=where)
    return pl.concat([joined.drop("__given"), missing.select(joined.drop("__given").columns)]), missing.height


def _check_values(given: pl.DataFrame, found: pl.DataFrame, variables: Sequence[str], *, where: str) -> None:
    """Refuse cells that are not empty and have a value that the release does not know."""
    problems = []
    full = given.filter(pl.col(COUNT) != 0)
    for name in variables:
        known = found[name].unique()
        unknown = [str(value) for value in full[name].unique(maintain_order=True) if value not in known]
        if not unknown:
            continue
        short = {value.lstrip("0") for value in known.drop_nulls() if value.startswith("0")}
        lost = any(value.lstrip("0") in short for value in unknown)
        values = ", ".join(unknown[:_SHOWN]) + (", ..." if len(unknown) > _SHOWN else "")
        one = len(unknown) == 1
        what = (
            f"value {values} of {name} is unknown"
            if one
            else f"{len(unknown):,} values of {name} are unknown ({values})"
        )
        zeros = f"; {'it' if one else 'they'} may have lost leading zeros" if lost else ""
        problems.append(
            Problem(
                what=what + zeros,
                where=f'{where} "{name}"',
                remedy=f"read and write {name} as text" if lost else "use the codes of the released data",
            )
        )
    if problems:
        raise DataError(problems)


def _check_missing(missing: pl.DataFrame, variables: Sequence[str], *, where: str) -> None:
    if missing.is_empty():
        return
    first = ", ".join(f"{name} = {missing[name][0]}" for name in variables)
    cells = number(missing.height, "non-empty cell of the release is", "non-empty cells of the release are")
    raise bad_file(
        f"{cells} missing (first: {first})",
        where=where,
        remedy="use the whole table; select its cells after the correction",
    )
