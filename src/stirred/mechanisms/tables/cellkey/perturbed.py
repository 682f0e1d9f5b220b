"""One table, perturbed: counts and sums of every declared cell, with the noise that its key looks up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import bad_file, bad_plan, number
from stirred.mechanisms.tables.cellkey.keys import (
    Keys,
    definition_key,
    drawn_records,
    set_key,
    summed_keys,
    whole_keys,
)
from stirred.mechanisms.tables.cellkey.magnitudes import Magnitude
from stirred.mechanisms.tables.cellkey.ptable import PTable
from stirred.mechanisms.tables.cellkey.tradeoff import KeyedBy
from stirred.randomness.entropy import Entropy

_RECORD_KEY: Final = "__record_key"
_TOP: Final = "__largest"
_TOTAL: Final = "__sum"


def identified(frame: pl.DataFrame, data: Microdata) -> pl.Series:
    """Return what identifies each record, from which its key is made; refuse records that share it or have none."""
    ids = [name for name in data.identifiers if name in frame.columns]
    if not ids:
        raise bad_plan(
            "a key is a function of each record's identifier, and none is named",
            where="key",
            remedy="name it with id under [data]; it must stay the same from year to year",
        )
    text = frame.select(pl.struct(pl.col(ids).cast(pl.String)).struct.json_encode()).to_series()
    if text.n_unique() < len(text) or frame.select(pl.any_horizontal(pl.col(ids).is_null()).any()).item():
        twice = number(int(text.is_duplicated().sum()), "record")
        raise bad_plan(
            f"{twice} share their identifier, or have none, and would share their key",
            where="key",
            remedy="name columns with id that tell records apart",
        )
    return text


def summed(column: pl.Series) -> pl.Series:
    """Return the contributions of a column as numbers; a missing one adds nothing."""
    known = column.cast(pl.Float64, strict=False)
    if known.null_count() > column.null_count() or not known.drop_nulls().is_finite().all():
        remedy = "sum a column of numbers; declare what means a missing value with missing under [data]"
        raise bad_file("it has values that are not numbers", where=f'magnitude "{column.name}"', remedy=remedy)
    return known


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Perturbation:
    """The perturbation table and the keys of one release; ``entropy`` draws record keys where no key is kept."""

    table: PTable
    keys: Keys
    entropy: Entropy | None
    keyed_by: KeyedBy
    record_key: str | None
    threshold: int
    magnitude: Magnitude | None
    magnitude_table: PTable

    def keyed(self, frame: pl.DataFrame, kind: str, data: Microdata) -> pl.DataFrame:
        """Return the records with their keys."""
        if self.record_key is not None:
            own = whole_keys(frame[self.record_key], below=self.table.keys).alias(_RECORD_KEY)
            return frame.with_columns(own)
        if self.entropy is not None:
            return frame.hstack(drawn_records(frame.height, self.entropy.child(f"keys of {kind}")))
        return frame.hstack(self.keys.of_records(identified(frame, data).to_list()))

    def key_of(self, cell: dict[str, Any], sums: dict[str, Any]) -> bytes | int:
        """Return what identifies a cell: the sum of its records' keys, or its definition."""
        if self.record_key is not None:
            return int(sums[_RECORD_KEY]) % self.table.keys
        return set_key(sums) if self.keyed_by == "records" else definition_key(cell)

    def number(self, own: bytes | int, *, below: int, turn: int = 0) -> int:
        """Return the key that is looked up; each ``turn`` gives another one for the same cell."""
        if isinstance(own, bytes):
            return self.keys.looked_up(own + bytes([turn] if turn else []), below=below)
        digits = len(str(self.table.keys)) - 1
        if turn and self.table.keys == 10**digits:  # as cellKey does it: the digits rotated to the left
            text = f"{own:0{digits}d}"
            own = int(text[turn % digits :] + text[: turn % digits])
        return own * below // self.table.keys


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Perturbed:
    """A table: ``released`` and ``sums`` may be published; ``cells`` has true counts, keys and noise."""

    released: pl.DataFrame
    cells: pl.DataFrame
    sums: pl.DataFrame | None = None


def perturbed_table(cells: pl.DataFrame, keyed: pl.DataFrame, how: Perturbation) -> Perturbed:
    """Count the records in each cell and add what its key looks up; a cell of 0 stays 0."""
    names, magnitude = cells.columns, how.magnitude
    wanted = [pl.len().cast(pl.Int64).alias("pre_sd_count")]
    wanted += [pl.col(_RECORD_KEY).sum()] if how.record_key is not None else summed_keys()
    if magnitude is not None:
        keyed = keyed.with_columns(summed(keyed[magnitude.column]))
        value = pl.col(magnitude.column)
        largest = value.drop_nulls().sort_by(value.drop_nulls().abs(), descending=True).head(len(magnitude.epsilons))
        wanted += [value.sum().alias(_TOTAL), largest.alias(_TOP)]
    counted = keyed.group_by(names).agg(wanted)
    drawn = cells.join(counted, on=names, how="left", nulls_equal=True, maintain_order="left")
    drawn = drawn.with_columns(pl.col("pre_sd_count").fill_null(0))
    looked_up = [_looked_up(row, names, how) for row in drawn.iter_rows(named=True)]
    schema = {"ckey": pl.Int64, "pcv": pl.Int64, "pvalue": pl.Int64, "sum": pl.Float64}
    noise = pl.DataFrame(looked_up, schema=schema, orient="row")
    kept = drawn.select(*names, "pre_sd_count").hstack(noise.select("ckey", "pcv", "pvalue"))
    count = pl.col("pre_sd_count") + pl.col("pvalue")
    released = kept.select(*names, count=pl.when(count >= how.threshold).then(count))
    shown = pl.when(released["count"].is_not_null()).then(noise["sum"]).alias("sum")
    sums = None if magnitude is None else released.select(*names, shown)
    return Perturbed(released=released, cells=kept, sums=sums)


def _looked_up(row: dict[str, Any], names: list[str], how: Perturbation) -> tuple[int | None, int, int, float]:
    """Return key, row of the table, noise and perturbed sum of a cell."""
    count = int(row["pre_sd_count"])
    if count == 0:
        return None, 0, 0, 0.0
    own = how.key_of({name: row[name] for name in names}, row)
    key = how.number(own, below=how.table.keys)
    total = 0.0
    if how.magnitude is not None:
        table = how.magnitude_table
        keys = [how.number(own, below=table.keys, turn=turn) for turn in range(len(how.magnitude.epsilons))]
        total = how.magnitude.perturbed(float(row[_TOTAL]), row[_TOP], table, keys)
    return key, how.table.pcv(count), how.table.added(count, key=key), total


def sums_of(title: str) -> str:
    """Return the name of the file with the sums of a table, beside that of its counts."""
    return "tables/sums-" + "".join(
        letter if letter.isalnum() else "-" for letter in title.lower().replace(" x ", "-x-")
    )
