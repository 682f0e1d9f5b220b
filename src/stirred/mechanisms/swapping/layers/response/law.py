"""The randomised response before a swap: declared values, drawn on whole columns; the exact law on small files.

Whether a record changes is decided by exact coin flips, and to which of the other values by exact draws;
``response_reference`` (in the tests) is the plain Python twin of ``respond``, equal bit for bit. ``addressing`` says
which random words decide what. Which records changed, and how many, is as confidential as the input.

In the exact law a dataset is a tuple of (hold, swap) pairs of one stratum. The perturbed side of each is itself a pair:
what else is on it, and the perturbed value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import polars as pl

from stirred.data.codes import Codes, encode
from stirred.data.problems import bad_plan, counted, listed, number
from stirred.mechanisms.swapping.kernels import addressing
from stirred.mechanisms.swapping.layers.chains import chained, response
from stirred.mechanisms.swapping.permutation.law import psa_law
from stirred.randomness.bernoulli import bernoulli_array
from stirred.randomness.entropy import Entropy
from stirred.randomness.integers import integers_below
from stirred.spec.law import Law
from stirred.spec.problems import Problem


def respond(codes: Codes, *, values: int, change: Fraction, entropy: Entropy) -> Codes:
    """Return the codes after a randomised response over ``values`` values, for each record independently.

    >>> truth = np.zeros(6, dtype=np.uint32)
    >>> respond(truth, values=2, change=Fraction(1), entropy=Entropy.from_os()).tolist()
    [1, 1, 1, 1, 1, 1]
    >>> set(respond(truth, values=3, change=Fraction(1), entropy=Entropy.from_os()).tolist()) <= {1, 2}
    True
    """
    changes = bernoulli_array(change, count=codes.size, entropy=entropy, purpose=addressing.RESPOND)
    rows = np.flatnonzero(changes)
    others = integers_below(values - 1, count=rows.size, entropy=entropy, purpose=addressing.RESPOND_OTHER)
    answered = codes.copy()
    # The other values in order: those from the own one on move up by one place.
    answered[rows] = others + (others >= codes[rows])
    return answered


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLaw:
    """A response over ``values`` that changes with probability ``change``, then permutation swapping at ``rate``.

    ``on_swap`` says whether the perturbed side is the swapped one.

    >>> fair = ResponseLaw(values=("x", "y"), change=Fraction(1, 2), rate=Fraction(1, 10), on_swap=True)
    >>> sorted(fair.of((("a", ("", "x")), ("b", ("", "y")))).probabilities.values())
    [Fraction(1, 4), Fraction(1, 4), Fraction(1, 4), Fraction(1, 4)]
    """

    values: Sequence[str]
    change: Fraction
    rate: Fraction
    on_swap: bool

    def of(self, dataset: Any) -> Law:
        """Return the law of the released table."""
        rows = tuple((*side, other) for side, other in map(self.sides, dataset))
        return chained(response(self.values, change=self.change, place=1)(rows), self._swapped)

    @property
    def _swapped(self) -> Callable[[Any], Law]:
        return lambda rows: psa_law([self._pair((g, v), o) for g, v, o in rows], rate=self.rate)

    def sides(self, record: Any) -> tuple[Any, Any]:
        """Return the perturbed side of a (hold, swap) pair, and the other one."""
        hold, swap = record
        return (swap, hold) if self.on_swap else (hold, swap)

    def _pair(self, side: Any, other: Any) -> tuple[Any, Any]:
        return (other, side) if self.on_swap else (side, other)

    def universe(self, other: Sequence[str], rest: Sequence[str]) -> list[Hashable]:
        """Return every table with ``other`` on one side and ``rest``, beside any perturbed values, on the other.

        >>> law = ResponseLaw(values=("x", "y"), change=Fraction(1, 2), rate=Fraction(1, 10), on_swap=True)
        >>> len(law.universe("ab", "11")), len(law.universe("ab", "12"))
        (4, 8)
        """
        tables: set[Any] = {
            tuple(sorted(self._pair(side, o) for side, o in zip(zip(order, drawn, strict=True), other, strict=True)))
            for order in set(permutations(rest))
            for drawn in product(self.values, repeat=len(other))
        }
        return sorted(tables)


Value = str | int | bool


def declared_texts(values: Sequence[Value], *, where: str) -> tuple[str, ...]:
    """Return declared values as files write them; refuse a list with which nothing can be perturbed.

    >>> declared_texts([1, True, "owned"], where="values")
    ('1', 'true', 'owned')
    """
    texts = tuple(str(value).lower() if isinstance(value, bool) else str(value) for value in values)
    twice = sorted({text for text in texts if texts.count(text) > 1})
    if twice or len(texts) < 2:
        raise bad_plan(
            f"{listed(twice)} is declared twice" if twice else "a response needs two declared values or more",
            where=where,
            remedy="list every value that the variable may have once, such as ['owned', 'rented']; what the file "
            "happens to hold must not decide",
        )
    return texts


def undeclared(column: pl.Series, values: Sequence[str], *, source: str) -> Iterator[Problem]:
    """Yield what is wrong with a column that may have only declared values."""
    where = f'{source} "{column.name}"'
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Boolean, pl.Categorical)):
        yield Problem(
            what=f"a response needs codes, and this column holds values of type {column.dtype}",
            where=where,
            remedy="turn it into classes, text or whole numbers first",
        )
        return
    if column.null_count():
        rows = counted(column.is_null().arg_true().head(5).to_list(), total=column.null_count())
        yield Problem(
            what=f"values are missing, and no response can be given for them ({rows})",
            where=where,
            remedy="fill them in with a code of its own, such as 'unknown', and declare it",
        )
    present = column.unique().drop_nulls().sort().cast(pl.String).to_list()
    if other := [text for text in present if text not in values]:
        more = "" if len(other) <= 5 else f" and {len(other) - 5:,} more"
        yield Problem(
            what=f"{listed(other[:5])}{more}: not among the declared values",
            public=f"{number(len(other), 'value')} not among the declared values",
            where=where,
            remedy="declare every value that may occur, under values or in the codebook, or recode",
        )
    typed = _typed(column, values)
    if odd := [text for text, value in zip(values, typed, strict=True) if value is None]:
        yield Problem(
            what=f"the declared {listed(odd)} cannot stand in a column of type {column.dtype}",
            where=where,
            remedy="declare values as the file writes them, or store the column as text",
        )


def declared_codes(column: pl.Series, values: Sequence[str]) -> Codes:
    """Return each record's place among the declared values.

    >>> declared_codes(pl.Series("tenure", ["r", "o", "r"]), ["o", "r", "free"]).tolist()
    [1, 0, 1]
    """
    coded = encode(column.to_frame(), [column.name])
    place = {text: number for number, text in enumerate(values)}
    table = np.array([place[text] for text in coded.levels[column.name].cast(pl.String)], dtype=np.uint32)
    return table[coded.codes]


def declared_column(column: pl.Series, values: Sequence[str], codes: Codes) -> pl.Series:
    """Return a column of the same name and type with the declared values of some codes."""
    return pl.Series(column.name, _typed(column, values), dtype=column.dtype).gather(codes)


def _typed(column: pl.Series, values: Sequence[str]) -> list[Value | None]:
    """Return declared values in the type of the column, None for one that it cannot hold as written."""
    if column.dtype == pl.Boolean:
        return [{"true": True, "false": False}.get(text) for text in values]
    typed = pl.Series(values).cast(column.dtype, strict=False)
    same = typed.cast(pl.String) == pl.Series(values)
    return [value if kept else None for value, kept in zip(typed.to_list(), same.to_list(), strict=True)]
