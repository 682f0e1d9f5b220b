"""Schemas by name or as declared, and the cell of every record: what turns a file into a histogram."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import PlanError, bad_plan, counted, listed
from stirred.mechanisms.topdown.schema import DETAILED, TOTAL, Attribute, Schema
from stirred.spec.problems import Problem

Cells = npt.NDArray[np.int32]
Values = Mapping[str, Sequence[str]]
Groupings = Mapping[str, Mapping[str, Sequence[Sequence[str]]]]

# Columns of our own in published measurements, and names that queries have.
TAKEN: Final = (
    *("geolevel", "geocode", "parent", "query_name", "query_shape", "value", "variance", "sigma2", "sign"),
    *(TOTAL, DETAILED),
)
MOST_CELLS: Final = 4_000_000
_REFERENCE: Final = "stirred.mechanisms.topdown.reference"
SCHEMAS: Final = ("pl94-persons", "pl94-units", "dhc-small-persons", "dhc-small-units")
BUDGETS: Final = ("us-2020-pl-persons", "us-2020-pl-units", "us-2020-dhc-persons", "us-2020-dhc-units")


@lru_cache(maxsize=8)
def shipped(name: str) -> dict[str, Any]:
    """Return a schema or a budget file that is shipped ready, as it is written."""
    text = resources.files(_REFERENCE).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@lru_cache(maxsize=8)
def shipped_schema(name: str) -> Schema:
    """Return a schema that is shipped ready.

    >>> shipped_schema("pl94-persons").shape, shipped_schema("pl94-persons").query("hhinstlevels").shape
    ((8, 2, 2, 63), (3, 1, 1, 1))
    """
    parts = shipped(name)["attributes"]
    values = {part["name"]: part["codes"] for part in parts}
    groupings = {part["name"]: part.get("groupings", {}) for part in parts}
    return declared_schema(name, list(values), values=values, groupings=groupings)


def declared_schema(name: str, attributes: Sequence[str], *, values: Values, groupings: Groupings) -> Schema:
    """Return the schema of these attributes, from the codes that were declared for them; all problems at once.

    >>> codes = {"sex": ["m", "f"], "age": ["0-17", "18-64", "65+"]}
    >>> adults = {"age": {"adult": [["0-17"], ["18-64", "65+"]]}}
    >>> declared_schema("people", ["sex", "age"], values=codes, groupings=adults).query("adult").shape
    (1, 2)
    """
    problems: list[Problem] = [*_undeclared(attributes, values), *_wrong_groupings(attributes, values, groupings)]
    if problems:
        raise PlanError(problems)
    made = [
        Attribute(name=each, codes=tuple(values[each]), groupings=_group_numbers(values[each], groupings.get(each, {})))
        for each in attributes
    ]
    schema = Schema(name=name, attributes=tuple(made))
    if schema.size > MOST_CELLS:
        raise bad_plan(
            f"{' x '.join(attributes)} has {schema.size:,} cells, and a histogram may have {MOST_CELLS:,}",
            where="attributes",
            remedy="leave an attribute out, or recode it to fewer codes",
        )
    return schema


def _undeclared(attributes: Sequence[str], values: Values) -> Iterator[Problem]:
    if not attributes:
        yield Problem(what="no attribute is named", where="attributes", remedy="name the columns to count by")
    for name in dict.fromkeys(attributes):
        where = f'attributes "{name}"'
        if name in TAKEN:
            remedy = "rename the column in the file"
            yield Problem(what="published measurements use this name for something else", where=where, remedy=remedy)
        if len(own := values.get(name, ())) < 2:
            undeclared = "its codes are not declared, and which of them occur is confidential"
            yield Problem(
                what=f"it has one code, {listed(own)}, and nothing to count by" if own else undeclared,
                where=where,
                remedy="leave it out of attributes, or declare its other codes"
                if own
                else f'declare all codes under values, such as {{ {name} = ["1", "2"] }}, or in a codebook '
                "([data] codebook)",
            )


def _wrong_groupings(attributes: Sequence[str], values: Values, groupings: Groupings) -> Iterator[Problem]:
    for name, own in groupings.items():
        if name not in attributes:
            remedy = f"there are {listed(attributes)}"
            yield Problem(what=f"there is no attribute '{name}'", where=f"groupings {name}", remedy=remedy)
            continue
        for label, groups in own.items():
            grouped = [code for group in groups for code in group]
            if sorted(grouped) != sorted(values.get(name, ())):
                other = sorted({*grouped} ^ {*values.get(name, ())}) or [c for c in grouped if grouped.count(c) > 1]
                yield Problem(
                    what=f"it does not put every code of {name} into one group: see {listed(other[:5])}",
                    where=f"groupings {name}.{label}",
                    remedy='list the codes of each group, such as [["0"], ["1", "2"]]',
                )


def _group_numbers(
    codes: Sequence[str], groupings: Mapping[str, Sequence[Sequence[str]]]
) -> dict[str, tuple[int, ...]]:
    numbers = {label: {c: n for n, group in enumerate(own) for c in group} for label, own in groupings.items()}
    return {label: tuple(found[code] for code in codes) for label, found in numbers.items()}


def code_places(column: pl.Series, attribute: Attribute, *, source: str) -> Cells | Problem:
    """Return the place of each value among the codes; codes that are numbers are compared as numbers: 01 is 1."""
    numbers = all(code.isascii() and code.isdigit() for code in attribute.codes)
    place = {str(int(code)) if numbers else code: n for n, code in enumerate(attribute.codes)}
    present = column.unique()
    texts = present.cast(pl.String).to_list()
    keys = [str(int(text)) if numbers and text and text.isascii() and text.isdigit() else text for text in texts]
    other = [str(text) for text, key in zip(texts, keys, strict=True) if key not in place]
    if other:
        missing = "missing values" if None in texts else "values"
        rows = column.is_null().arg_true() if None in texts else (column.cast(pl.String) == other[0]).arg_true()
        said = f"{missing} that are no declared codes ({counted(rows.head(5).to_list(), total=len(rows))})"
        return Problem(
            what=said if None in texts else f"{listed(sorted(other)[:5])}: {said}",
            public="values that are no declared codes",
            where=f'{source} "{column.name}"',
            remedy=f"declare them for {attribute.name}, or correct the file",
        )
    new = [place[str(key)] for key in keys]
    return column.replace_strict(present, new, return_dtype=pl.Int32).to_numpy()
