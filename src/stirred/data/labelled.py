"""Reading SPSS, Stata and SAS files, with the labels that they keep of columns and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stirred.data.sources import Source, first_line, package_for, unreadable
from stirred.data.whole import as_whole


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labelled:
    """A table with the labels of its columns and, by column, of its values (as text)."""

    frame: pl.DataFrame
    columns: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def read_labelled(source: Source) -> Labelled:
    """Read a file of a statistics package.

    These files keep every number as a double: columns of whole numbers become integers. An empty text is a
    missing value, as in CSV; SPSS's declared missing values stay the codes that they are, Stata's and SAS's
    ``.a`` to ``.z`` become missing.
    """
    package = package_for(source, "pyreadstat", reading=f"a '{source.kind}' file", extra="labelled")
    read = {
        ".sav": package.read_sav,
        ".zsav": package.read_sav,
        ".dta": package.read_dta,
        ".sas7bdat": package.read_sas7bdat,
        ".xpt": package.read_xport,
    }[source.kind]
    options: dict[str, Any] = {"output_format": "polars"}
    if source.kind in (".sav", ".zsav"):
        options["user_missing"] = True
    try:
        frame, about = read(str(source.path), **options)
    except (package.PyreadstatError, package.ReadstatError, ValueError, OverflowError, OSError) as error:
        raise unreadable(first_line(error), where=str(source), public="cannot read it") from None
    return Labelled(
        frame=frame.select(_tidied(frame[name]) for name in frame.columns),
        columns={name: label for name, label in about.column_names_to_labels.items() if label},
        values={
            name: {_code(value): str(label) for value, label in labels.items()}
            for name, labels in about.variable_value_labels.items()
        },
    )


def _tidied(column: pl.Series) -> pl.Series:
    if column.dtype == pl.String:
        return column.set(column == "", None)
    if not column.dtype.is_float():
        return column
    return as_whole(column.fill_nan(None))


def _code(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
