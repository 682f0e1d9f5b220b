"""Labels beside the codes of a published table: ``tenure, tenure_label, count``.

A table in long form has its variables, then a column of labels for each variable that has labels, then its counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from stirred.data.validate import as_text
from stirred.data.whole import without_point

ENDING: Final = "_label"
# By variable, the label of each code, both as text.
Labels = Mapping[str, Mapping[str, str]]


def with_labels(table: pl.DataFrame, labels: Labels, *, beside: Sequence[str] = ()) -> pl.DataFrame:
    """Return a table with a column of labels for each variable that has some, before the counts and what is beside.

    >>> homes = pl.DataFrame({"tenure": [1, 2], "count": [3, 4]})
    >>> with_labels(homes, {"tenure": {"1": "owned", "2": "rented"}}).rows()
    [(1, 'owned', 3), (2, 'rented', 4)]
    """
    numbers = [name for name in table.columns if name == "count" or name in beside]
    variables = table.drop(numbers).get_columns()
    words = [
        labelled(column, labels[column.name]).alias(f"{column.name}{ENDING}")
        for column in variables
        if tells_more(labels.get(column.name, {}))
    ]
    return pl.DataFrame([*variables, *words, *table.select(numbers).get_columns()])


def labelled(column: pl.Series, labels: Mapping[str, str]) -> pl.Series:
    """Return the label of each code; none where it has none.

    >>> labelled(pl.Series([1, 3]), {"1": "owned"}).to_list()
    ['owned', None]
    """
    known = {without_point(code): label for code, label in labels.items() if label}
    known = {**known, **{code: label for code, label in labels.items() if label}}
    text = as_text(column)
    return text.replace_strict([*known], [*known.values()], default=None, return_dtype=pl.String) if known else text


def tells_more(labels: Mapping[str, str]) -> bool:
    """Say whether a label says more than its code.

    >>> tells_more({"owned": "owned", "rented": ""}), tells_more({"1": "owned"})
    (False, True)
    """
    return any(label not in ("", code) for code, label in labels.items())


def label_columns(columns: Sequence[str]) -> list[str]:
    """Return the columns of labels among those of a table.

    >>> label_columns(["tenure", "age", "tenure_label", "count"])
    ['tenure_label']
    """
    return [name for name in columns if name.endswith(ENDING) and name.removesuffix(ENDING) in columns]


def labels_in(table: pl.DataFrame) -> dict[str, dict[str, str]]:
    """Return the labels that a published table has, by variable.

    >>> labels_in(pl.DataFrame({"tenure": ["1"], "tenure_label": ["owned"], "count": [3]}))
    {'tenure': {'1': 'owned'}}
    """
    found = {}
    for name in label_columns(table.columns):
        variable = name.removesuffix(ENDING)
        pairs = table.select(as_text(table[variable]), as_text(table[name])).drop_nulls().unique(maintain_order=True)
        found[variable] = dict(pairs.rows())
    return found


def without_labels(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with its codes and counts alone."""
    return table.drop(label_columns(table.columns))
