"""Queries of a table mechanism: what one unit can change, what may be lost, the noise that follows, and the answers.

Under discrete Gaussian noise a query loses rho = square/(2 sigma^2), under discrete Laplace noise epsilon = one*loss of
a unit, where ``one`` and ``square`` bound the sum of all changes of its numbers and of their squares. Losses of queries
add up, also where a later query is chosen by earlier answers: a mechanism asks one after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.protocol import failed
from stirred.randomness.cell_law import CellLaw, half_width, variance_of
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import Streams, fill_noise, integer_noise
from stirred.spec.shift_law import DiscreteGaussian, DiscreteLaplace

Integers = npt.NDArray[np.int64]

# What every noisy number is published with, and, where it is a count, the count before that. Types and files, and
# which columns an audit accepts, follow from here; `intervals` has one value for each, or fails.
Columns = Mapping[str, pl.DataType]
INTERVAL: Final[Columns] = {
    "variance": pl.Float64(),  # of the noise
    "low": pl.Int64(),  # of the interval that has the true number with the confidence that the page states
    "high": pl.Int64(),
}
COUNTED: Final[Columns] = {"count": pl.Int64(), **INTERVAL}


class Perturbation(Protocol):
    """How the numbers of a table are perturbed: by noise (``Query``), or by what the keys of their records look up."""

    @property
    def title(self) -> str:
        """Return the table to which the numbers belong."""

    @property
    def purpose(self) -> str:
        """Return by what the draw is addressed: the same address gives the same."""

    @property
    def columns(self) -> tuple[str, str]:
        """Return the columns in which true numbers and what was added to them stay inside."""

    @property
    def besides(self) -> Mapping[str, Any]:
        """Return further columns that stay inside."""

    def drawn(self, count: int, entropy: Entropy, *, chunk: int | None = None) -> Integers:
        """Return what is added to so many numbers; a ``chunk`` is a part of a query that is asked piece by piece."""

    def check_noise(self, noise: Integers) -> None:
        """Raise if what was kept cannot have been drawn here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Numbers that are perturbed alike: what they are called, what one unit can change in them, and what they lose.

    Noise is addressed by ``address``, or the title. Of several queries of one table ``role`` tells which it is.

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

    @property
    def besides(self) -> Mapping[str, Any]:
        return {}

    def drawn(self, count: int, entropy: Entropy, *, chunk: int | None = None) -> Integers:
        """Return the noise of so many of its numbers."""
        if chunk is None:
            return integer_noise(self.noise, count=count, entropy=entropy, purpose=self.purpose)
        out = np.empty(count, dtype=np.int64)
        fill_noise(self.noise, out, chunk=chunk, streams=Streams.of(entropy, self.purpose))
        return out

    def check_noise(self, noise: Integers) -> None:
        """Accept any noise: each number has its own."""


class Ask(Protocol):
    """What answers a query: the noisy numbers, from the true ones."""

    def __call__(self, query: Perturbation, true: Integers, *, chunk: int | None = None) -> Integers:
        """Return the answer."""


class DrawnAnswers:
    """Answers that are drawn, each once: the true numbers with noise. ``kept`` has both by table, by columns."""

    def __init__(self, entropy: Entropy, *, keep: bool = True) -> None:
        self._entropy, self._keep = entropy, keep
        self._asked: set[tuple[str, int | None]] = set()
        self.kept: dict[str, dict[str, Any]] = {}

    def __call__(self, query: Perturbation, true: Integers, *, chunk: int | None = None) -> Integers:
        """Draw the noise of a query."""
        # The same address twice would be the same noise twice, and two counts with it would show what it hides.
        address = query.purpose, chunk
        assert address not in self._asked, f"noise of {query.purpose} {chunk} was drawn already"
        self._asked.add(address)
        noise = query.drawn(true.size, self._entropy, chunk=chunk).reshape(true.shape)
        if self._keep:
            numbers = dict(zip(query.columns, (true, noise), strict=True))
            self.kept.setdefault(query.title, {}).update({**numbers, **query.besides})
        return true + noise


class KeptAnswers:
    """The answers of a release, once more: raise if a true number, counted again, is not what was kept inside."""

    def __init__(self, kept: Mapping[str, pl.DataFrame]) -> None:
        self._kept = kept

    def __call__(self, query: Perturbation, true: Integers, *, chunk: int | None = None) -> Integers:
        """Add the noise that was kept."""
        before, noise = (self._kept[query.title][name] for name in query.columns)
        if before.to_list() != true.tolist():
            raise failed(f"{query.title}, counted again, is not what it was made of")
        drawn: Integers = noise.to_numpy()
        query.check_noise(drawn)
        return true + drawn


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
