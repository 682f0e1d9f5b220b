"""Record keys, cell keys, and tables of counts and sums perturbed by what their keys look up.

A record key is a pseudo-random function of the record's identifier under the custodian's key: the same record has the
same key in every table and every year. The key of a cell is the sum of the keys of its records: the same set of
records has the same sum, whatever the table. Sums are of 128 bits, and a second pseudo-random function of the sum is
looked up: sums of short keys are not independent of each other, and show more than independent noise (A, B and A u B).
Integers throughout: sums of decimals would depend on the order of rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError, bad_file, bad_plan, number
from stirred.data.sources import read_text
from stirred.mechanisms.protocol import failed
from stirred.mechanisms.tables.cellkey.ptable import KEY_BYTES, PTable
from stirred.randomness.entropy import Entropy
from stirred.spec.problems import Problem

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey

Limbs = npt.NDArray[np.uint32]

_LIMBS: Final = 4  # of 32 bits; sums of up to 2^32 records fit into 64 bits
_NAMES: Final = [f"__key_{limb}" for limb in range(_LIMBS)]
_BITS: Final = 32 * _LIMBS
_MANY: Final = 40
_RECORD: Final = b"stirred record 1"
_CELL: Final = b"stirred cell 1"
_PRINT: Final = b"stirred print 1"


class KeyFile(str):
    """The path of a key file, as plans name it, and the key that it holds; printed and kept it is the path alone."""

    secret: bytes | None = None  # of a file that was not read

    @classmethod
    def of(cls, given: Any) -> KeyFile:
        """Return the key that a setting gives: a file of a plan, or in Python the key itself."""
        if isinstance(given, bytes) and len(given) == KEY_BYTES:
            return cls.holding(given)
        if isinstance(given, str):
            return given if isinstance(given, cls) else cls(given)
        remedy = f"name a key file of `stirred ptable key`; in Python also {KEY_BYTES} bytes"
        raise PydanticCustomError("exact", "{what}", {"what": "this is not a key", "remedy": remedy})

    @classmethod
    def read(cls, given: str, path: Path) -> KeyFile:
        """Return the key of a file with 64 hexadecimal digits, which nobody but its owner may read."""
        text = read_text(path, called="key", save="file", check="check the path; it is relative to the plan")
        if path.stat().st_mode & 0o077:
            raise bad_file("others may read it", where=given, remedy=f"close it: chmod 600 {path.name}")
        try:
            secret = bytes.fromhex(text.strip())
        except ValueError:
            secret = b""
        if len(secret) != KEY_BYTES:
            remedy = "make one with `stirred ptable key FILE`, and keep it as long as tables are to be consistent"
            raise bad_file(f"a key has {2 * KEY_BYTES} hexadecimal digits", where=given, remedy=remedy)
        return cls.holding(secret, given)

    @classmethod
    def holding(cls, secret: bytes, name: str = "a key given in Python") -> KeyFile:
        """Return a key with what it is called."""
        found = cls(name)
        found.secret = secret
        return found


@dataclass(frozen=True, slots=True, repr=False)
class Keys:
    """Two pseudo-random functions under one secret key: of records, and of sums of their keys."""

    secret: bytes

    @classmethod
    def drawn(cls, entropy: Entropy) -> Keys:
        """Return keys for one release alone."""
        return cls(entropy.words("cell keys", chunk=0, count=KEY_BYTES // 4).tobytes())

    @property
    def fingerprint(self) -> str:
        """Return a fingerprint of the key, which says nothing about it."""
        return blake2b(b"", key=self.secret, person=_PRINT, digest_size=16).hexdigest()

    def of_records(self, ids: Sequence[str]) -> pl.DataFrame:
        """Return the 128-bit key of each identifier, as four columns of 32 bits."""
        own = b"".join(blake2b(i.encode(), key=self.secret, person=_RECORD, digest_size=16).digest() for i in ids)
        return limbs_frame(np.frombuffer(own, dtype="<u4").reshape(-1, _LIMBS))

    def looked_up(self, what: bytes, *, below: int) -> int:
        """Return a number 0, ..., below - 1 for a cell; each is equally probable up to one part in 2^128."""
        digest = blake2b(what, key=self.secret, person=_CELL, digest_size=16).digest()
        return int.from_bytes(digest, "little") * below >> _BITS


def limbs_frame(limbs: Limbs) -> pl.DataFrame:
    """Return keys of 128 bits as columns whose sums do not overflow."""
    return pl.DataFrame({name: limbs[:, limb].astype(np.uint64) for limb, name in enumerate(_NAMES)})


def definition_key(cell: Mapping[str, Any]) -> bytes:
    """Return the key of a cell's definition: its variables and values, in whatever table and order they stand.

    >>> definition_key({"b": 1, "a": "x"}) == definition_key({"a": "x", "b": 1})
    True
    """
    values = sorted((name, None if value is None else str(value)) for name, value in cell.items())
    return json.dumps(values).encode()


def whole_keys(column: pl.Series, *, below: int) -> pl.Series:
    """Return record keys of a column as whole numbers modulo ``below``; decimals from 0 to 1 by their digits.

    >>> whole_keys(pl.Series("record_key", [0.25, 0.5]), below=100).to_list()
    [25, 50]
    >>> whole_keys(pl.Series("record_key", [4095, 256]), below=256).to_list()
    [255, 0]
    """
    where = f'"{column.name}"'
    if column.null_count():
        raise bad_file("records have no key", where=where, remedy="give every record one")
    whole = column.cast(pl.Int64, strict=False) if column.dtype == pl.String else column  # as CSV has them
    if whole.dtype.is_integer() and not whole.null_count() and int(whole.min() or 0) >= 0:  # type: ignore[arg-type]
        most = int(whole.max() or 0)  # type: ignore[arg-type]
        if 2 * most < below and len(whole) > _MANY:  # of uniform keys so many are below half with chance 2^-40
            what = f"the keys go up to {most:,}, and the table has {below:,}: sums of few look up its first"
            raise bad_file(what, where=where, remedy="give keys of the range of the table, or a table of their range")
        return whole.cast(pl.Int64) % below
    digits = len(str(below)) - 1
    known = column.cast(pl.Float64, strict=False)
    if below != 10**digits or known.null_count() or not bool(known.is_between(0, 1).all()):
        what = f"these are neither whole numbers nor decimals from 0 to 1 of {digits} digits"
        raise bad_file(what, where=where, remedy=f"the table has {below} keys: give whole numbers")
    return (known * below).round().cast(pl.Int64) % below


_MOST: Final = 6


class Magnitude(BaseModel):
    """[mechanism.magnitude]: which column is summed, and how large its noise is."""

    model_config = ConfigDict(strict=False, extra="forbid", frozen=True)

    column: str = Field(description="The column whose sums are published.")
    p_small: float = Field(default=0.2, gt=0, le=1, description="Noise as a share of small contributions.")
    p_large: float = Field(default=0.03, gt=0, le=1, description="Noise as a share of very large contributions.")
    flex: float = Field(default=1000, gt=0, description="The flex point: contributions above it are large.")
    q: float = Field(default=2, gt=0, description="How fast the share falls beyond the flex point.")
    epsilons: list[float] = Field(
        default=[1.0], min_length=1, max_length=_MOST, description="Weights of the largest contributions, in order."
    )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Magnitude:
        """Return the settings of plain data; all that is wrong with them is told at once."""
        try:
            return cls(**given)
        except ValidationError as error:
            raise PlanError(
                Problem(what=each["msg"].lower(), where=f"magnitude {each['loc'][0]}", remedy="see docs/cell-keys.md")
                for each in error.errors(include_url=False)
            ) from None

    def share(self, x: float) -> float:
        """Return m(x), the share of a large contribution that is a unit of noise.

        It is ``p_small`` at the flex point and tends to ``p_large``. It never rises above ``p_small`` only if
        q >= 2 p_small / (p_small - p_large); with q = 1 it tends to p_large + 2 p_small instead.

        >>> flex = Magnitude(column="turnover")
        >>> [round(flex.share(x), 6) for x in (1000, 2000, 10_000)]
        [0.2, 0.194444, 0.095124]
        """
        over = (self.p_small * x - self.p_large * self.flex) / (self.p_large * self.flex)
        return self.p_large * (1 + over * (2 * self.flex / (self.flex + x)) ** self.q)

    def unit(self, x: float, epsilon: float) -> float:
        """Return the unit of noise of one contribution; ``epsilon`` weighs large ones alone."""
        x = abs(x)
        return x * self.p_small if x < self.flex else x * epsilon * self.share(x)

    def perturbed(self, total: float, largest: Sequence[float], table: PTable, keys: Sequence[int]) -> float:
        """Return a sum with noise in units of its largest contributions, one key for each.

        >>> from stirred.mechanisms.tables.cellkey.ptable import PTableRow
        >>> table = PTable(rows=(PTableRow(count=1, values=(-2, 1), weights=(1, 2)),), keys=3, step=2)
        >>> flex = Magnitude(column="turnover")
        >>> round(flex.perturbed(1580, [1200, 300, 80], table, [2]), 6), round(flex.unit(1200, 1) / 2, 6)
        (1702.132231, 122.132231)
        """
        value = total
        for x, epsilon, key in zip(largest, self.epsilons, keys, strict=False):
            unit = min(self.unit(x, epsilon), abs(value)) if value else 0.0
            if unit > 0:
                noise = _between(abs(value) / unit, table, key)
                changed = abs(unit) * noise
                value = value + max(changed, -value) if value > 0 else value - max(changed, value)
        return value


def _between(size: float, table: PTable, key: int) -> float:
    """Return the noise for a value of so many units: that of its row, or between two rows at the same key."""
    last = len(table.rows)
    low = min(int(size), last)
    share = 0.0 if low == last else size - low
    return (1 - share) * _noise(low, table, key) + (share * _noise(low + 1, table, key) if share else 0.0)


def _noise(count: int, table: PTable, key: int) -> float:
    return table.rows[count - 1].at(key) / table.step if count else 0.0


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
class KeyedRecords:
    """The records of one release, by kind, with the keys of each; cells are looked up as the ``mechanism`` says."""

    mechanism: CellKey
    keys: Keys
    files: Mapping[str, pl.DataFrame]

    @classmethod
    def of(
        cls, mechanism: CellKey, files: Mapping[str, pl.DataFrame], data: Microdata, entropy: Entropy
    ) -> KeyedRecords:
        """Return records with their keys: of a column, of the key that is kept, or drawn."""

        def keyed(kind: str, frame: pl.DataFrame) -> pl.DataFrame:
            if mechanism.record_key is not None:
                own = whole_keys(frame[mechanism.record_key], below=mechanism.table.keys).alias(_RECORD_KEY)
                return frame.with_columns(own)
            if mechanism.key is not None:
                return frame.hstack(keys.of_records(identified(frame, data).to_list()))
            words = entropy.child(f"keys of {kind}").words("record keys", chunk=0, count=_LIMBS * frame.height)
            return frame.hstack(limbs_frame(np.asarray(words).reshape(-1, _LIMBS)))

        keys = Keys.drawn(entropy) if mechanism.key is None else Keys(mechanism.key.secret)
        return cls(mechanism=mechanism, keys=keys, files={kind: keyed(kind, own) for kind, own in files.items()})

    def counted(self, cells: pl.DataFrame, kind: str) -> pl.DataFrame:
        """Return each cell with its count, what its key looks up, and its perturbed sum."""
        names, keyed, sums = cells.columns, self.files[kind], self.mechanism.sums
        wanted = [pl.len().cast(pl.Int64).alias("pre_sd_count")]
        wanted += [pl.col(_NAMES if self.mechanism.record_key is None else _RECORD_KEY).sum()]
        if sums is not None:
            value = pl.col(sums.column)
            keyed = keyed.with_columns(summed(keyed[sums.column]))
            largest = value.drop_nulls().sort_by(value.drop_nulls().abs(), descending=True).head(len(sums.epsilons))
            wanted += [value.sum().alias(_TOTAL), largest.alias(_TOP)]
        found = cells.join(
            keyed.group_by(names).agg(wanted), on=names, how="left", nulls_equal=True, maintain_order="left"
        ).with_columns(pl.col("pre_sd_count").fill_null(0))
        schema = {"ckey": pl.Int64, "pcv": pl.Int64, "pvalue": pl.Int64, "sum": pl.Float64}
        rows = [self._looked_up(row, names) for row in found.iter_rows(named=True)]
        return found.select("pre_sd_count").hstack(pl.DataFrame(rows, schema=schema, orient="row"))

    def _looked_up(self, row: dict[str, Any], names: Sequence[str]) -> tuple[int | None, int, int, float]:
        """Return key, row of the table, noise and perturbed sum of a cell."""
        count, table, sums = int(row["pre_sd_count"]), self.mechanism.table, self.mechanism.sums
        if count == 0:
            return None, 0, 0, 0.0
        own = self._key_of({name: row[name] for name in names}, row)
        key = self._number(own, below=table.keys)
        total = 0.0
        if sums is not None:
            units = self.mechanism.sums_table
            keys = [self._number(own, below=units.keys, turn=turn) for turn in range(len(sums.epsilons))]
            total = sums.perturbed(float(row[_TOTAL]), row[_TOP], units, keys)
        return key, table.pcv(count), table.added(count, key=key), total

    def _key_of(self, cell: dict[str, Any], sums: dict[str, Any]) -> bytes | int:
        """Return what identifies a cell: the sum of its records' keys modulo 2^128, or its definition."""
        if self.mechanism.record_key is not None:
            return int(sums[_RECORD_KEY]) % self.mechanism.table.keys
        if self.mechanism.keyed_by == "definition":
            return definition_key(cell)
        total = sum(int(sums[name]) << 32 * limb for limb, name in enumerate(_NAMES)) % (1 << _BITS)
        return total.to_bytes(_BITS // 8, "little")

    def _number(self, own: bytes | int, *, below: int, turn: int = 0) -> int:
        """Return the key that is looked up; each ``turn`` gives another one for the same cell."""
        if isinstance(own, bytes):
            return self.keys.looked_up(own + bytes([turn] if turn else []), below=below)
        every = self.mechanism.table.keys
        digits = len(str(every)) - 1
        if turn and every == 10**digits:  # as cellKey does it: the digits rotated to the left
            text = f"{own:0{digits}d}"
            own = int(text[turn % digits :] + text[: turn % digits])
        return own * below // every


@dataclass(frozen=True, slots=True, eq=False)
class KeyedTable:
    """The perturbation of one table: nothing is drawn, each cell gets what its key looks up (``cells``)."""

    title: str
    cells: pl.DataFrame

    @property
    def purpose(self) -> str:
        return self.title

    @property
    def columns(self) -> tuple[str, str]:
        return "pre_sd_count", "pvalue"

    def drawn(self, count: int, entropy: Entropy, *, chunk: int | None = None) -> npt.NDArray[np.int64]:
        """Return what the keys look up."""
        return self.cells["pvalue"].to_numpy()

    def check_noise(self, noise: npt.NDArray[np.int64]) -> None:
        """Raise if noise that was kept is not what the keys look up: in an empty cell nothing."""
        if not np.array_equal(noise, self.cells["pvalue"].to_numpy()):
            raise failed(f"the noise of {self.title} is not what its keys look up")


def sums_of(title: str) -> str:
    """Return the name of the file with the sums of a table, beside that of its counts."""
    return "tables/sums-" + "".join(
        letter if letter.isalnum() else "-" for letter in title.lower().replace(" x ", "-x-")
    )
