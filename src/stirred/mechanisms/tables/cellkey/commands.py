"""`stirred ptable`: design a perturbation table, look at one, and make a key."""

from __future__ import annotations

import secrets
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from stirred.data.frames import read_frame
from stirred.data.place import file_at
from stirred.data.problems import bad_file, bad_plan
from stirred.mechanisms.protocol import Command, Grid, Outcome, Progress
from stirred.mechanisms.tables.cellkey.design import KEYS, design_ptable
from stirred.mechanisms.tables.cellkey.keys import KEY_BYTES
from stirred.mechanisms.tables.cellkey.ptable import PTable, read_ptable
from stirred.mechanisms.tables.cellkey.tradeoff import TradeOff
from stirred.spec.exact import exact
from stirred.spec.given_numbers import fraction, probability

_WIDTH: Final = 24
_DRAWN: Final = 12  # rows
_ONS_KEYS: Final = 1 << 16
_EPSILONS: Final = ("0", "1/2", "1", "2")
_FILE: Final[dict[str, Any]] = {"argument": "FILE"}


class DesignOptions(BaseModel):
    """`stirred ptable design`."""

    D: int = Field(description="The largest change of a count.")
    V: str = Field(description="The variance of the noise, such as 2 or 9/10.")
    js: int = Field(default=0, description="Perturbed counts from 1 to js do not occur.")
    pstay: list[str] = Field(
        default=[], description="The probability that a count stays: of count 1, 2, ...; the last for all others."
    )
    mono: Literal["yes", "no"] = Field(default="yes", description="Whether probabilities rise up to no change.")
    step: int = Field(default=1, description="For sums: values of noise are multiples of 1/step.")
    keys: int = Field(default=KEYS, description="How many keys there are: probabilities are whole numbers of them.")
    compat: bool = Field(default=False, description="As the R package ptable: V a ceiling, pstay a floor it may lower.")
    out: Path | None = Field(default=None, description="Where to write the table; must not exist.")
    format: Literal["ptable", "ons"] = Field(default="ptable", description="Columns i;j;p;v;p_int_ub, or one a key.")


class ShowOptions(BaseModel):
    """`stirred ptable show`."""

    file: Path = Field(description="A perturbation table.", json_schema_extra=_FILE)
    tables: int = Field(default=1, ge=1, description="For how many tables delta is computed.")


class KeyOptions(BaseModel):
    """`stirred ptable key`."""

    file: Path = Field(description="Where the key goes; must not exist.", json_schema_extra=_FILE)


def design(options: Any, progress: Progress | None) -> Outcome:
    """Compute a table, say which constraints it meets, and write it."""
    del progress
    ons = options.format == "ons"
    if options.out is not None:
        _check_free(options.out)
    if ons and options.keys > _ONS_KEYS:
        what = f"the format of the ONS has a row for each of {options.keys:,} keys"
        raise bad_plan(what, where="--keys", remedy="write as many as record keys have values: --keys 256 or 4096")
    designed = design_ptable(
        D=options.D,
        V=fraction(options.V, where="--V"),
        js=options.js,
        pstay=[probability(each, where="--pstay") for each in options.pstay] or [None],
        mono=[options.mono == "yes"],
        step=options.step,
        keys=options.keys,
        compat=options.compat,
    )
    rows = [("note", note) for note in designed.notes]
    if options.out is not None:
        with file_at(options.out, private=False) as half:
            designed.table.frame(ons=ons).write_csv(half, separator="," if ons else ";")
        rows.append(("wrote", str(options.out)))
    return _shown(designed.table, rows=rows, values={"notes": list(designed.notes), "tries": list(designed.tries)})


def show(options: Any, progress: Progress | None) -> Outcome:
    """Draw a table, and say what it would promise."""
    del progress
    table = read_ptable(read_frame(options.file), where=str(options.file))
    if table.step != 1:
        return _shown(table, rows=[("use", "for sums: it has fractions")], values={})
    many = options.tables
    rows, values = [], dict[str, Any]()
    for label, trade in (
        ("one table", TradeOff(table=table)),
        ("zeros fixed", TradeOff(table=table, zeros_fixed=True)),
        ("keys used again", TradeOff(table=table, tables=many, alone=False)),
        ("by definition", TradeOff(table=table, tables=many, keyed_by="definition")),
    ):
        deltas = {e: exact(trade.delta(exact(e))) for e in _EPSILONS}
        rows.append((label, ", ".join(f"delta {each.shown(6)} at epsilon {e}" for e, each in deltas.items())))
        values[label.replace(" ", "_")] = {e: float(each) for e, each in deltas.items()}
    return _shown(table, rows=rows, values={"delta": values})


def key(options: Any, progress: Progress | None) -> Outcome:
    """Write a new key, for its owner alone."""
    del progress
    _check_free(options.file)
    with file_at(options.file, private=True) as half:
        half.write_text(secrets.token_hex(KEY_BYTES) + "\n", encoding="utf-8")
    keep = "keep it secret, as long as tables are to be consistent; whoever has it can undo the noise"
    return Outcome(rows=[("wrote", str(options.file)), ("keep", keep)], values={"file": str(options.file)})


def _check_free(path: Path) -> None:
    if path.exists() or not path.parent.is_dir():
        what = "something is already there" if path.exists() else "there is no such folder"
        raise bad_file(what, where=str(path), remedy="choose a new file")


def _shown(table: PTable, *, rows: list[tuple[str, str]], values: dict[str, Any]) -> Outcome:
    told, drawn, moments = [], [], []
    for row in table.rows:
        v = [float(Fraction(each, table.step)) for each in row.law]
        p = [float(Fraction(each, table.keys)) for each in row.law.values()]
        own = {name: float(getattr(table, name)(row.count)) for name in ("bias", "variance", "pstay")}
        told.append({"count": row.count, "values": v, "probabilities": p, **own})
        if row.count <= _DRAWN:
            moments.append((row.count, *(f"{number:.8g}" for number in own.values())))
            bars = ["#" * round(_WIDTH * each / max(p)) for each in p]
            drawn += [(row.count, f"{x:+g}", f"{y:.8f}", bar) for x, y, bar in zip(v, p, bars, strict=True)]
    grids = [
        Grid(header=("count", "bias", "variance", "stays"), rows=tuple(moments)),
        Grid(header=("count", "added", "probability", ""), rows=tuple(drawn)),
    ]
    return Outcome(rows=rows, grids=grids, values={"keys": table.keys, "rows": told, **values})


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="design", help="Compute a perturbation table by maximum entropy.", options=DesignOptions, run=design),
    Command(name="show", help="Draw a perturbation table, and say what it promises.", options=ShowOptions, run=show),
    Command(name="key", help="Make a secret key for record keys.", options=KeyOptions, run=key),
)
