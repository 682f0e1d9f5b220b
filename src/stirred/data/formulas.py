"""Texts in CSV files: what cannot be written into one, and what a spreadsheet runs when it opens one.

A cell that begins with = + - @ is taken for a formula.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import polars as pl

from stirred.spec.doubts import Doubt
from stirred.spec.problems import Problem

# Full-width signs are read as their plain twins, blanks before a sign are dropped on import, and where a semicolon
# separates the columns a cell begins after it.
_FORMULA: Final = r"^[\s\u00a0\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]|;[=@]"
_NUMBER: Final = r"^[+-]?(\d+([.,]\d*)*|[.,]\d+|(?i:inf|nan))([eE][+-]?\d+)?\s*%?$"


def unwritable(columns: Iterable[pl.Series]) -> Iterator[Problem]:
    """Yield a problem for each column with texts that no CSV file can hold so that readers get them back.

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
    return tuple(_doubt(column.name) for column in columns if _is_run(pl.Series([column.name])) or _is_run(column))


def _is_run(column: pl.Series) -> bool:
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return False
    texts = column.unique().cast(pl.String).drop_nulls()
    return bool((texts.str.contains(_FORMULA) & ~texts.str.strip_chars(" ").str.contains(_NUMBER)).any())


def _doubt(name: str) -> Doubt:
    return Doubt(
        kind="formula",
        about=name,
        what=f'"{name}" has texts (or a name) that begin with = + - or @, perhaps after a blank: a spreadsheet '
        "runs them as formulas when it opens a CSV file",
        remedy="recode them",
    )
