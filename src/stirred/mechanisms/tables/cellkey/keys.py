"""Record keys: pseudo-random functions under a secret key, key files, and keys that a column of the file has.

A record key is a pseudo-random function of the record's identifier under the custodian's key: the same record has the
same key in every table and every year. Sums of keys are of 128 bits, and a second pseudo-random function of the sum is
looked up: sums of short keys are not independent of each other, and show more than independent noise (A, B and A u B).
Integers throughout: sums of decimals would depend on the order of rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic_core import PydanticCustomError

from stirred.data.microdata import Microdata
from stirred.data.problems import bad_file, bad_plan, number
from stirred.data.sources import read_text
from stirred.mechanisms.tables.cellkey.ptable import KEY_BYTES
from stirred.randomness.entropy import Entropy

Limbs = npt.NDArray[np.uint32]

_LIMBS: Final = 4  # of 32 bits; sums of up to 2^32 records fit into 64 bits
LIMBS: Final = [f"__key_{limb}" for limb in range(_LIMBS)]  # columns of keys
RECORD_KEY: Final = "__record_key"  # column of short keys of the file itself
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


def drawn_keys(records: int, entropy: Entropy) -> pl.DataFrame:
    """Return keys for so many records, drawn for one release."""
    words = entropy.words("record keys", chunk=0, count=_LIMBS * records)
    return limbs_frame(np.asarray(words).reshape(-1, _LIMBS))


def limbs_frame(limbs: Limbs) -> pl.DataFrame:
    """Return keys of 128 bits as columns whose sums do not overflow."""
    return pl.DataFrame({name: limbs[:, limb].astype(np.uint64) for limb, name in enumerate(LIMBS)})


def key_of_sums(sums: Mapping[str, Any]) -> bytes:
    """Return the key of a set of records, from the sums of the columns of their keys: modulo 2^128."""
    total = sum(int(sums[name]) << 32 * limb for limb, name in enumerate(LIMBS)) % (1 << _BITS)
    return total.to_bytes(_BITS // 8, "little")


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
