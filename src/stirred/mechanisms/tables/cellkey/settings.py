"""The settings of cell-key perturbation, with the files that they name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field

from stirred.data.frames import read_frame
from stirred.data.problems import bad_file
from stirred.mechanisms.protocol import Rate, Settings
from stirred.mechanisms.tables.cellkey.perturbation import KeyFile
from stirred.mechanisms.tables.cellkey.ptable import PTable, PTableRow, read_ptable
from stirred.spec.problems import placed


class CellKeySettings(Settings):
    """The perturbation table, the keys, and what is done before and after; the tables are those of the plan."""

    ptable: str | dict[str, Any] = Field(
        description="The perturbation table: a file of the ptable package, of tau-ARGUS or of the ONS.",
        json_schema_extra={"example": "ptable.csv"},
    )
    epsilon: Rate = Field(default=1, description="The loss at which delta is stated.", json_schema_extra={"example": 1})
    threshold: int = Field(default=0, ge=0, description="Perturbed counts below it are left empty.")
    keyed_by: Literal["records", "definition"] = Field(
        default="records",
        description="What shares its noise: the same set of records in any table, or the same cell by its variables.",
    )
    zeros: Literal["protected", "fixed"] = Field(
        default="protected", description="With fixed, which cells are empty is published exactly and not protected."
    )
    key: str | None = Field(
        default=None,
        description="A file with the custodian's key; left out, keys are drawn for this release alone.",
        json_schema_extra={"example": "record-keys.key", "internal": True},
    )
    record_key: str | None = Field(
        default=None, description="With keys = additive: the column that has the record keys."
    )
    keys: Literal["prf", "additive"] = Field(
        default="prf",
        description="With additive, sums of short keys are looked up as they are, as other programs do; it promises "
        "less, and for several tables nothing.",
    )
    magnitude_ptable: str | dict[str, Any] | None = Field(
        default=None,
        description="For sums: a perturbation table of its own, which may have fractions; default that of counts.",
        json_schema_extra={"example": "magnitudes.csv"},
    )
    magnitude: dict[str, Any] | None = Field(
        default=None,
        description="Sums to publish beside the counts: their column, and p_small, p_large, flex, q and epsilons.",
    )
    after: dict[str, Any] | None = Field(
        default=None,
        description="A mechanism that releases records, with its name and settings: tables are counted from these.",
    )

    def with_files(self, folder: Path) -> Self:
        """Return the settings with the tables and the key that they name."""
        found: dict[str, Any] = {}
        for name in ("ptable", "magnitude_ptable"):
            if isinstance(given := getattr(self, name), str):
                with placed(name):
                    found[name] = plain_table(read_ptable(read_frame(folder / given), where=given))
        if self.key is not None:
            with placed("key"):
                found["key"] = KeyFile.read(self.key, folder / self.key)
        return super().with_files(folder).model_copy(update=found)

    def public(self) -> dict[str, Any]:
        """Return the settings that may be published; of the table its laws, which say all that matters."""
        found = super().public()
        for name in ("ptable", "magnitude_ptable"):
            if isinstance(table := found.get(name), dict):
                found[name] = {key: value for key, value in table.items() if key != "runs"}
        return found


def plain_table(table: PTable) -> dict[str, Any]:
    """Return a table as plain data, as manifest and specification keep it."""
    rows = {str(row.count): {str(v): w for v, w in row.law.items()} for row in table.rows}
    runs = [" ".join(f"{v}:{w}" for v, w in zip(row.values, row.weights, strict=True)) for row in table.rows]
    arranged = any([*row.law] != [*row.values] for row in table.rows)
    more = {**({"repeats": True} if table.repeats else {}), **({"runs": runs} if arranged else {})}
    return {"keys": table.keys, "step": table.step, "rows": rows, **more}


def table_of(plain: PTable | Mapping[str, Any]) -> PTable:
    """Return the table of plain data."""
    if isinstance(plain, PTable):
        return plain
    try:
        own = {int(i): [(int(v), int(w)) for v, w in law.items()] for i, law in plain["rows"].items()}
        for i, runs in enumerate(plain.get("runs", ()), start=1):
            own[i] = [(int(v), int(w)) for v, _, w in (run.partition(":") for run in runs.split())]
        return PTable(
            rows=tuple(
                PTableRow(count=i, values=tuple(v for v, _ in law), weights=tuple(w for _, w in law))
                for i, law in own.items()
            ),
            keys=int(plain["keys"]),
            step=int(plain.get("step", 1)),
            repeats=bool(plain.get("repeats", False)),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        remedy = "name a file, such as ptable.csv"
        raise bad_file("this is not a perturbation table", where="ptable", remedy=remedy) from None
