"""Drafting a codebook from a file: something to edit, never something to run with unread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import polars as pl

from stirred.data.codebook import File, Variable
from stirred.data.codebook_file import hierarchy_toml, link_toml, quoted, variable_toml
from stirred.data.identifying import identifying
from stirred.data.labelled import Labelled
from stirred.data.natural import sorted_values
from stirred.data.validate import as_text
from stirred.data.whole import comma_columns, with_points
from stirred.spec.hierarchy import Hierarchy

MOST_CODES: Final = 60
FEW: Final = 12
WARNING: Final = (
    "drafted from the data: check that every possible code is listed, not only those that occur; "
    "choosing settings by looking at the data voids the guarantee"
)
_CODES: Final = "drafted from the data: check that every possible code is listed, and write the labels"
_RANGE: Final = "drafted from the data: check that min and max are what can occur, not what does"
# Names under which identifiers are commonly kept.
_IDS: Final = ("id", "hid", "pid", "serial", "serialno")
# Names under which places are commonly kept, the finest first.
_PLACES: Final = (
    "block", "block_group", "tract", "ward", "municipality", "district", "county", "province", "region", "state",
    "country",
)  # fmt: skip


def draft_codebook(
    households: Labelled, persons: Labelled | None = None, *, hid: str | None = None, title: str = ""
) -> str:
    """Return the TOML text of a codebook that fits the files, its guesses marked by comments."""
    commas = any(comma_columns(table.frame) for table in (households, persons) if table is not None)
    homes, people = _with_points(households), None if persons is None else _with_points(persons)
    return "\n".join(_sections(homes, people, hid=hid, title=title, commas=commas))


def _with_points(table: Labelled) -> Labelled:
    commas = [with_points(pl.col(name)) for name in comma_columns(table.frame)]
    return replace(table, frame=table.frame.with_columns(commas)) if commas else table


def _sections(
    households: Labelled, persons: Labelled | None, *, hid: str | None, title: str, commas: bool
) -> Iterator[str]:
    yield "".join(f"# {line}\n" for line in ("A codebook " + WARNING).replace("; ", ";\n").split("\n"))
    decimal = 'decimal = ","  # columns of the file have numbers with decimal commas\n' if commas else ""
    draft = "draft = true  # remove this line when you have checked all below\n"
    yield f"[codebook]\ntitle = {quoted(title)}\n{decimal}{draft}"
    ids: list[str] = []
    files: list[tuple[File, Labelled]] = [("households", households)]
    if persons is not None:
        files.append(("persons", persons))
    shared = () if persons is not None or hid is None else _of_households(households.frame, hid)
    if shared:
        yield _SPLIT.format(hid=quoted(hid or ""), columns=", ".join(map(quoted, shared)))
    for file, table in files:
        for name in (column for column in table.frame.columns if column != hid):
            variable, remark = _guess(table, name, file="persons" if shared and name not in shared else file)
            if variable.type == "id" and name not in ids:
                ids.append(name)
            gaps = "values are missing in the data: is that meant?" if variable.missing else ""
            yield variable_toml(variable, remarks=[each for each in (remark, gaps) if each])
    places = [name for name in _PLACES if name in households.frame.columns]
    if len(places) > 1:
        remark = "drafted from the names of the columns: check that each lies in the next, the finest first"
        yield hierarchy_toml(Hierarchy(name="geography", levels=tuple(places)), remarks=[remark])
    if hid is not None or ids:
        yield link_toml(hid, ids)
    yield (
        "# Combinations that cannot exist, if there are any:\n# [[structural_zeros]]\n"
        '# name = "young householders"\n# file = "persons"\n# when = { relationship = [1], age = [0, 1, 2] }\n'
    )


_SPLIT: Final = """# This seems to be a file of persons. What is the same for all persons of a household may belong
# to it: check that it always does, not only in this file, and split the file in the plan:
# [[prepare]]
# step = "split"
# hid = {hid}
# households = [{columns}]
"""


def _of_households(flat: pl.DataFrame, hid: str) -> list[str]:
    """Return the columns that are the same for all persons of a household; none if each has one row."""
    if flat[hid].n_unique() == flat.height:
        return []
    others = [name for name in flat.columns if name != hid and flat[name].dtype != pl.Object]
    most = flat.group_by(hid).agg(pl.col(others).n_unique()).select(pl.col(others).max()).row(0)
    return [name for name, values in zip(others, most, strict=True) if values == 1]


# A variable as it seems to be, and what its reader should check.
_Guess = tuple[Variable, str]


def _guess(table: Labelled, name: str, *, file: File) -> _Guess:
    column = table.frame[name]
    seems = partial(Variable, name=name, file=file, label=table.columns.get(name, ""))
    if name.lower() in _IDS:
        return seems(type="id"), "drafted from the name of the column: check that it identifies"
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        return seems(type="text"), f"values of type {column.dtype} cannot be declared: leave the column out"
    known = column.unique().drop_nulls()
    if known.dtype.is_float():
        known = known.drop_nans()
    missing = bool(column.null_count()) or (column.dtype.is_float() and bool(column.is_nan().any()))
    seems = partial(seems, missing=missing)
    if column.dtype == pl.Boolean:
        return seems(type="true-false"), ""
    if column.dtype in (pl.Date, pl.Datetime):
        return seems(type="date"), ""
    labels = table.values.get(name, {})
    text = as_text(known)
    if labels and len({*labels, *text.head(MOST_CODES + 1)}) <= MOST_CODES:
        return seems(type="code", codes=_codes(text, labels)), "labels from the file; " + _CODES
    if len(known) > MOST_CODES and (why := identifying(column)):
        return seems(type="id"), f"it {why}: an identifier? If not, declare its type"
    return _guess_from_text(text, seems)


def _guess_from_text(text: pl.Series, seems: Callable[..., Variable]) -> _Guess:
    if not len(text):
        return seems(type="text"), "every value is missing: check the type"
    # A leading zero tells a code from a number.
    whole = bool(text.str.contains(r"^-?(0|[1-9][0-9]{0,37})$").all())
    numbers = text.cast(pl.Int128) if whole else None
    if numbers is not None:
        low, high = int(numbers.min()), int(numbers.max())  # type: ignore[arg-type]
        # Many numbers that begin near zero count or measure something; the others are codes.
        if len(text) > MOST_CODES or (len(text) > FEW and abs(low) <= len(text)):
            return seems(type="integer", min=low, max=high), _RANGE
    if text.str.contains(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$").all():
        return seems(type="date"), ""
    if len(text) <= MOST_CODES:
        return seems(type="code", codes=_codes(text, {})), _CODES
    return seems(type="text"), f"more than {MOST_CODES} values: any text is allowed; list them as codes?"


def _codes(text: pl.Series, labels: Mapping[str, str]) -> dict[str, str]:
    """Return every code with its label, or itself where it has none; numbers in the order of their size."""
    codes = sorted_values(pl.Series(values=[*{*labels, *text}], dtype=pl.String))
    return {code: labels.get(code, code) for code in codes}
