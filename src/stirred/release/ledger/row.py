"""One row of a ledger: an event, bound to the row before it by a hash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, Final, NamedTuple

from stirred.release.ledger.problems import bad_request
from stirred.spec.exact import Exact

SCHEMA_VERSION: Final = 1
NOTHING: Final = "0" * 64  # what the first row names as the hash before it

# Every kind of row there is. A published meaning never changes: new meaning, new kind.
GENESIS, POLICY = "genesis", "policy"
RESERVE, DRAW, COMMIT, ABORT, WITHDRAW, ADD = "reserve", "draw", "commit", "abort", "withdraw", "add"
PUBLISH = "publish"
OPENING: Final = frozenset({RESERVE, ADD})
KINDS: Final = frozenset({GENESIS, POLICY, RESERVE, DRAW, COMMIT, ABORT, WITHDRAW, ADD, PUBLISH})


class Row(NamedTuple):
    """One event. ``facts`` is canonical JSON text, ``specification`` the digest of a document.

    The hash covers every other column and the hash of the row before, so that no row can be changed,
    removed, inserted or moved without breaking every hash from there on.
    """

    number: int
    id: str
    kind: str
    entry: str  # the entry the row is about; empty for genesis and policy
    specification: str  # digest of the specification; empty where there is none
    facts: str
    previous: str
    hash: str

    @property
    def computed_hash(self) -> str:
        """Return the hash the row should have."""
        return row_hash(*self[:7])


def row_hash(number: int, id_: str, kind: str, entry: str, specification: str, facts: str, previous: str) -> str:
    """Return SHA-256 over the columns, one a line; canonical JSON holds no line break, so nothing is ambiguous."""
    text = f"{number}\n{id_}\n{kind}\n{entry}\n{specification}\n{previous}\n{facts}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def next_row(last: Row | None, *, id_: str, kind: str, entry: str, specification: str, facts: Any) -> Row:
    """Return the row that follows ``last``."""
    number = 0 if last is None else last.number + 1
    previous = NOTHING if last is None else last.hash
    text = canonical(facts)
    hashed = row_hash(number, id_, kind, entry, specification, text, previous)
    return Row(number, id_, kind, entry, specification, text, previous, hashed)


def canonical(value: Any) -> str:
    """Return JSON with sorted keys and no spaces; fractions and decimals become text, so no digit is lost.

    >>> canonical({"rate": Fraction(1, 20), "columns": ("b", "a"), "Größe": 0.1})
    '{"Größe":0.1,"columns":["b","a"],"rate":"1/20"}'
    """
    text = json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise bad_request("the text holds half a character", where="ledger", remedy="use proper Unicode") from None
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise bad_request(
                "a key is not text", where="parameters", remedy="use text as keys, as in a TOML or JSON file"
            )
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (Fraction, Decimal, PurePath, Exact)):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise bad_request(f"{value} is not a number in JSON", where="parameters", remedy='write "inf" as text')
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise bad_request(
        f"a {type(value).__name__} cannot be kept in a ledger",
        where="parameters",
        remedy="use text, numbers, lists and tables",
    )


def digest_of(text: str) -> str:
    """Return the name of a document: the SHA-256 of its text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
