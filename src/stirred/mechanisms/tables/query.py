"""Queries of a table mechanism: what one unit can change, what may be lost, the noise that follows, and the answers.

Under discrete Gaussian noise a query loses rho = square/(2 sigma^2), under discrete Laplace noise epsilon = one*loss of
a unit, where ``one`` and ``square`` bound the sum of all changes of its numbers and of their squares. Losses of queries
add up, also where a later query is chosen by earlier answers: a mechanism asks one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.protocol import failed
from stirred.randomness.cell_law import CellLaw, half_width, variance_of
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import Streams, fill_noise, integer_noise
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
NOTHING: Final[Mapping[str, Any]] = {}
CHUNK, PLACE = "__chunk", "__place"  # of a number in a query that is asked in chunks
_NOT_KEPT: Final = -(1 << 40)


@dataclass(frozen=True, slots=True)
class Column:
    """A published column: its type, and which versions of stirred write it.

    A column that a later version adds is written ``from_later`` versions on: tables made before lack it. One that is no
    longer written is in tables of ``earlier`` versions alone.
    """

    type: pl.DataType
    written: Literal["always", "from_later", "earlier"] = "always"


TEXT, WHOLE, DECIMAL = Column(pl.String()), Column(pl.Int64()), Column(pl.Float64())
# The columns of a published table, in order: what is written and what an audit accepts follow from here.
Columns = Mapping[str, Column]
# What every noisy number is published with, and, where it is a count, the count before that; `intervals` has one value
# for each, or fails.
INTERVAL: Final[Columns] = {
    "variance": DECIMAL,  # of the noise
    "low": WHOLE,  # of the interval that has the true number with the confidence that the page states
    "high": WHOLE,
}
COUNTED: Final[Columns] = {"count": WHOLE, **INTERVAL}


def schema_of(columns: Columns) -> dict[str, pl.DataType]:
    """Return the columns that this version writes, with their types."""
    return {name: column.type for name, column in columns.items() if column.written != "earlier"}


def are_declared(found: Sequence[str], columns: Columns) -> bool:
    """Say whether a table has its declared columns in order, as this version or an earlier one writes them.

    >>> declared = {"count": WHOLE, "low": Column(pl.Int64(), "earlier"),
    ...             "cv": Column(pl.Float64(), "from_later")}
    >>> [are_declared(names, declared) for names in (["count", "cv"], ["count", "low"], ["count"], ["cv"])]
    [True, True, True, False]
    """
    known = [name for name in columns if name in found]
    always = {name for name, column in columns.items() if column.written == "always"}
    return [*found] == known and always <= {*found}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Numbers that are perturbed alike: what they are called, what one unit can change in them, and what they lose.

    They get noise, or what something else adds (cell keys look it up). Noise is addressed by ``address``, or the title.
    Of several queries of one table ``role`` tells which it is.

    >>> query = Query(title="persons by county", loss=Fraction(1, 2), square=2)
    >>> query.noise.variance, query.width, round(query.deviation, 4)
    (Fraction(2, 1), 3, 1.4142)
    """

    title: str
    loss: Fraction = Fraction(1)
    one: int = 1
    square: int = 1
    gaussian: bool = True
    address: str = ""
    role: str = ""

    @property
    def noise(self) -> DiscreteGaussian | DiscreteLaplace:
        """Return the law of the noise; its parameter is rational."""
        if self.gaussian:
            return DiscreteGaussian(self.square / (2 * self.loss))
        return DiscreteLaplace(self.loss / self.one)

    @property
    def cell(self) -> CellLaw:
        return CellLaw(self.noise)

    @property
    def parameter(self) -> Fraction:
        """Return the variance parameter of Gaussian noise."""
        assert isinstance(self.noise, DiscreteGaussian)
        return self.noise.variance

    @property
    def width(self) -> int:
        return half_width(self.parameter)

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the noise itself, which for narrow noise is less than its parameter."""
        return float(variance_of(self.parameter)) ** 0.5

    @property
    def purpose(self) -> str:
        """Return by what its noise is addressed."""
        return self.address or self.title

    @property
    def columns(self) -> tuple[str, str]:
        """Return the columns of true numbers and noise, of several queries of one table by their role."""
        role = f"{self.role}_" if self.role else ""
        return f"{role}true", f"{role}noise"

    def drawn(self, count: int, entropy: Entropy, *, chunk: int | None = None) -> Integers:
        """Return the noise of so many of its numbers."""
        if chunk is None:
            return integer_noise(self.noise, count=count, entropy=entropy, purpose=self.purpose)
        out = np.empty(count, dtype=np.int64)
        fill_noise(self.noise, out, chunk=chunk, streams=Streams.of(entropy, self.purpose))
        return out

    def check_noise(self, noise: Integers) -> None:
        """Accept any noise: each number has its own."""


class TableAnswers(ABC):
    """What answers queries: the noisy numbers, from the true ones."""

    @abstractmethod
    def __call__(
        self, query: Query, true: Integers, *, chunk: int | None = None, inside: Mapping[str, Any] = NOTHING
    ) -> Integers:
        """Return the answer. A ``chunk`` is a part of a query; ``inside`` are further columns that stay inside."""

    def keep_only(self, query: Query, chosen: Mask, *, chunk: int) -> None:  # noqa: B027 (nothing to do for most)
        """Keep of a chunk these numbers inside: nothing that is published follows from the others."""


class DrawnAnswers(TableAnswers):
    """TableAnswers that are drawn, each once: the true numbers with noise. Both are kept."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._tables: dict[str, dict[str, Any]] = {}  # by title: columns of all cells
        self._chunks: dict[tuple[str, int], pl.DataFrame] = {}  # by address
        self._asked: set[tuple[str, int | None]] = set()

    def __call__(
        self, query: Query, true: Integers, *, chunk: int | None = None, inside: Mapping[str, Any] = NOTHING
    ) -> Integers:
        """Draw the noise of a query."""
        # The same address twice would be the same noise twice, and two counts with it would show what it hides.
        address = query.purpose, chunk
        assert address not in self._asked, f"noise of {query.purpose} {chunk} was drawn already"
        self._asked.add(address)
        noise = query.drawn(true.size, self._entropy, chunk=chunk).reshape(true.shape)
        numbers = dict(zip(query.columns, (true, noise), strict=True))
        if chunk is None:
            self._tables.setdefault(query.title, {}).update({**numbers, **inside})
        else:
            flat = {name: own.ravel() for name, own in numbers.items()}
            self._chunks[query.purpose, chunk] = pl.DataFrame({PLACE: np.arange(true.size), **flat})
        return true + noise

    def keep_only(self, query: Query, chosen: Mask, *, chunk: int) -> None:
        """Keep of a chunk these numbers alone."""
        self._chunks[query.purpose, chunk] = self._chunks[query.purpose, chunk].filter(pl.Series(chosen))

    def kept(self, cells: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """Return true numbers and noise by title, with the ``cells`` of the table; of chunks by address."""
        found = {title: with_numbers(cells[title], numbers) for title, numbers in self._tables.items()}
        parts: dict[str, list[pl.DataFrame]] = {}
        for (purpose, chunk), frame in sorted(self._chunks.items(), key=lambda one: one[0]):
            if frame.height:
                parts.setdefault(purpose, []).append(frame.select(pl.lit(chunk).alias(CHUNK), pl.all()))
        return {**found, **{purpose: pl.concat(own) for purpose, own in parts.items()}}


class KeptAnswers(TableAnswers):
    """The answers of a release, once more: raise if a true number, counted again, is not what was kept inside."""

    def __init__(self, kept: Mapping[str, pl.DataFrame]) -> None:
        self._tables = {title: frame for title, frame in kept.items() if CHUNK not in frame.columns}
        self._chunks = {
            (purpose, *key): own
            for purpose, frame in kept.items()
            if CHUNK in frame.columns
            for key, own in frame.partition_by(CHUNK, as_dict=True, include_key=False).items()
        }

    def __call__(
        self, query: Query, true: Integers, *, chunk: int | None = None, inside: Mapping[str, Any] = NOTHING
    ) -> Integers:
        """Add the noise that was kept; a number that was not kept comes back so far below that nothing uses it."""
        if chunk is None:
            return true + _noise_kept(query, self._tables[query.title], true)
        flat, answers = true.ravel(), np.full(true.size, _NOT_KEPT)
        if (kept := self._chunks.get((query.purpose, chunk))) is not None:
            place = kept[PLACE].to_numpy()
            answers[place] = flat[place] + _noise_kept(query, kept, flat[place])
        return answers.reshape(true.shape)


def _noise_kept(query: Query, kept: pl.DataFrame, true: Integers) -> Integers:
    before, noise = (kept[name].to_numpy() for name in query.columns)
    if not np.array_equal(before, true):
        raise failed(f"{query.title}, counted again, is not what it was made of")
    query.check_noise(noise)
    return noise


def with_numbers(cells: pl.DataFrame, numbers: Mapping[str, Any]) -> pl.DataFrame:
    """Return cells with columns of numbers beside them; without variables there is one cell.

    >>> with_numbers(pl.DataFrame(), {"sum": [3]}).rows()
    [(3,)]
    """
    return pl.DataFrame([*cells.get_columns(), *(pl.Series(name, own) for name, own in numbers.items())])


def intervals(noisy: Integers, *, variance: Any, width: Any) -> dict[str, Any]:
    """Return the columns of ``INTERVAL`` for noisy numbers.

    >>> {name: values.tolist() for name, values in intervals(np.array([3, 5]), variance=np.ones(2), width=2).items()}
    {'variance': [1.0, 1.0], 'low': [1, 3], 'high': [5, 7]}
    """
    return dict(zip(INTERVAL, (variance, noisy - width, noisy + width), strict=True))


def in_order(table: pl.DataFrame, columns: Collection[str]) -> pl.DataFrame:
    """Return a table with its columns as declared; one that is computed and not declared is not left out silently."""
    assert {*table.columns} == {*columns}, f"columns {sorted({*table.columns} ^ {*columns})} are not as declared"
    return table.select(*columns)
