"""Drafting a codebook from a file: something to edit, never something to run with unread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import polars as pl

from stirred.data.codebook import File, Type, Variable, hierarchy_toml, link_toml, quoted, variable_toml
from stirred.data.labelled import Labelled
from stirred.data.validate import as_text
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
    "block",
    "block_group",
    "tract",
    "ward",
    "municipality",
    "district",
    "county",
    "province",
    "region",
    "state",
    "country",
)


def draft_codebook(
    households: Labelled, persons: Labelled | None = None, *, hid: str | None = None, title: str = ""
) -> str:
    """Return the TOML text of a codebook that fits the files, its guesses marked by comments."""
    return "\n".join(_sections(households, persons, hid=hid, title=title))


def _sections(households: Labelled, persons: Labelled | None, *, hid: str | None, title: str) -> Iterator[str]:
    yield "".join(f"# {line}\n" for line in ("A codebook " + WARNING).replace("; ", ";\n").split("\n"))
    yield f"[codebook]\ntitle = {quoted(title)}\ndraft = true  # remove this line when you have checked all below\n"
    ids: list[str] = []
    files: list[tuple[File, Labelled]] = [("households", households)]
    if persons is not None:
        files.append(("persons", persons))
    for file, table in files:
        for name in (column for column in table.frame.columns if column != hid):
            guess = _guess(table, name)
            if guess.type == "id" and name not in ids:
                ids.append(name)
            yield guess.toml(name, file=file, label=table.columns.get(name, ""))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guess:
    type: Type
    codes: Mapping[str, str] = field(default_factory=dict)
    min: int | None = None
    max: int | None = None
    missing: bool = False
    remark: str = ""

    def toml(self, name: str, *, file: File, label: str) -> str:
        variable = Variable(
            name=name,
            file=file,
            type=self.type,
            label=label,
            codes=self.codes,
            min=self.min,
            max=self.max,
            missing=self.missing,
        )
        remarks = [self.remark] if self.remark else []
        if self.missing:
            remarks.append("values are missing in the data: is that meant?")
        return variable_toml(variable, remarks=remarks)


def _guess(table: Labelled, name: str) -> _Guess:
    column = table.frame[name]
    if name.lower() in _IDS:
        return _Guess(type="id", remark="drafted from the name of the column: check that it identifies")
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        return _Guess(type="text", remark=f"values of type {column.dtype} cannot be declared: leave the column out")
    known = column.unique().drop_nulls()
    if known.dtype.is_float():
        known = known.drop_nans()
    missing = bool(column.null_count()) or (column.dtype.is_float() and bool(column.is_nan().any()))
    if column.dtype == pl.Boolean:
        return _Guess(type="true-false", missing=missing)
    if column.dtype in (pl.Date, pl.Datetime):
        return _Guess(type="date", missing=missing)
    labels = table.values.get(name, {})
    text = as_text(known)
    if labels and len({*labels, *text.head(MOST_CODES + 1)}) <= MOST_CODES:
        remark = "labels from the file; " + _CODES
        return _Guess(type="code", codes=_codes(text, labels), missing=missing, remark=remark)
    return _guess_from_text(text, every_row=len(known) == column.len(), missing=missing)


def _guess_from_text(text: pl.Series, *, every_row: bool, missing: bool) -> _Guess:
    if not len(text):
        return _Guess(type="text", missing=missing, remark="every value is missing: check the type")
    # A leading zero tells a code from a number.
    whole = bool(text.str.contains(r"^-?(0|[1-9][0-9]{0,37})$").all())
    numbers = text.cast(pl.Int128) if whole else None
    if every_row and len(text) > MOST_CODES:
        remark = "every record has a value of its own: an identifier? If not, declare its type"
        return _Guess(type="id", missing=missing, remark=remark)
    if numbers is not None:
        low, high = int(numbers.min()), int(numbers.max())  # type: ignore[arg-type]
        # Many numbers that begin near zero count or measure something; the others are codes.
        if len(text) > MOST_CODES or (len(text) > FEW and abs(low) <= len(text)):
            return _Guess(type="integer", min=low, max=high, missing=missing, remark=_RANGE)
    if text.str.contains(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$").all():
        return _Guess(type="date", missing=missing)
    if len(text) <= MOST_CODES:
        return _Guess(type="code", codes=_codes(text, {}), missing=missing, remark=_CODES)
    return _Guess(
        type="text", missing=missing, remark=f"more than {MOST_CODES} values: any text is allowed; list them as codes?"
    )


def _codes(text: pl.Series, labels: Mapping[str, str]) -> dict[str, str]:
    """Return every code with its label, or itself where it has none; numbers in the order of their size."""

    def order(code: str) -> tuple[bool, int, str]:
        number = int(code) if code.lstrip("-").isdecimal() else None
        return (number is None, number or 0, code)

    return {code: labels.get(code, code) for code in sorted({*labels, *text}, key=order)}
