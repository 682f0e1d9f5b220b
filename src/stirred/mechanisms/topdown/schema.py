"""Schemas: the attributes whose product is the histogram of an area, and the queries that are asked of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import bad_plan, listed

Places = npt.NDArray[np.int64]

SUMMED: Final = "*"
DETAILED: Final = "detailed"
TOTAL: Final = "total"
_ENDINGS: Final = ("_dpq", "_con")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute: its codes in order, and groupings of them by name (for each code the number of its group).

    >>> age = Attribute(name="age", codes=("0-17", "18-64", "65+"), groupings={"adult": (0, 1, 1)})
    >>> age.size, age.groups("adult"), age.groups("*"), age.groups("detailed")
    (3, (0, 1, 1), (0, 0, 0), (0, 1, 2))
    """

    name: str
    codes: tuple[str, ...]
    groupings: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({*self.codes}) != len(self.codes) or not self.codes:
            raise bad_plan(
                "an attribute needs different codes", where=f"attribute {self.name}", remedy="list each once"
            )
        for name, groups in self.groupings.items():
            if len(groups) != len(self.codes) or {*groups} != {*range(max(groups, default=0) + 1)}:
                raise bad_plan(
                    f"the grouping '{name}' does not give each of {len(self.codes)} codes a group 0, 1, 2, ...",
                    where=f"attribute {self.name}",
                    remedy="list one group number for each code, without gaps",
                )

    @property
    def size(self) -> int:
        """Return how many codes there are."""
        return len(self.codes)

    def groups(self, kept: str) -> tuple[int, ...]:
        """Return the group of each code where it is summed over (``*``), ``detailed`` or grouped by name."""
        if kept == SUMMED:
            return (0,) * self.size
        if kept == DETAILED:
            return tuple(range(self.size))
        return self.groupings[kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A marginal query with disjoint cells: what is kept of each attribute, and the group of each code.

    Cells are in row-major order, the last attribute fastest. Two queries are equal if they ask the same, whatever
    they are called.
    """

    name: str = field(compare=False)
    kept: tuple[str, ...] = field(compare=False)
    groups: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of groups of each attribute."""
        return tuple(max(each) + 1 for each in self.groups)

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return prod(self.shape)

    def answer(self, histograms: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the answers for histograms (areas, cells), as (areas, cells of the query).

        >>> sex = Attribute(name="sex", codes=("m", "f"))
        >>> old = Attribute(name="old", codes=("n", "y"))
        >>> Schema(name="toy", attributes=(sex, old)).query("old").answer(np.array([[1, 2, 3, 4]])).tolist()
        [[4, 6]]
        """
        found = histograms.reshape(-1, *(len(each) for each in self.groups))
        for axis, (groups, size) in enumerate(zip(self.groups, self.shape, strict=True), start=1):
            if size == 1:
                found = found.sum(axis=axis, keepdims=True)
            elif size < len(groups):
                parts = [
                    found.take([c for c, g in enumerate(groups) if g == n], axis=axis).sum(axis) for n in range(size)
                ]
                found = np.stack(parts, axis=axis)
        return found.reshape(histograms.shape[0], self.size)

    @property
    def cell_of(self) -> Places:
        """Return for each cell of the histogram the cell of the query that counts it."""
        place = np.zeros((1,), dtype=np.int64)
        for groups, size in zip(self.groups, self.shape, strict=True):
            place = (place[:, None] * size + np.array(groups)[None, :]).reshape(-1)
        return place


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A histogram: the product of attributes, its cells in row-major order."""

    name: str
    attributes: tuple[Attribute, ...]

    def __post_init__(self) -> None:
        names = [*self._factors()]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise bad_plan(
                f"{listed(twice)} names more than one attribute or grouping",
                where=f"schema {self.name}",
                remedy="give attributes and groupings different names",
            )

    def _factors(self) -> Iterator[str]:
        for attribute in self.attributes:
            yield attribute.name
            yield from attribute.groupings

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of codes of each attribute."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the attributes."""
        return tuple(attribute.name for attribute in self.attributes)

    def query(self, name: str) -> Query:
        """Return the query of a name: attributes and groupings joined by ``*``, or ``total``, or ``detailed``.

        >>> sex = Attribute(name="sex", codes=("m", "f"))
        >>> age = Attribute(name="age", codes=("0-17", "18-64", "65+"), groupings={"adult": (0, 1, 1)})
        >>> toy = Schema(name="toy", attributes=(sex, age))
        >>> toy.query("sex * adult_dpq").shape, toy.query("total").shape, toy.query("detailed").shape
        ((2, 2), (1, 1), (2, 3))
        """
        factors = factors_of(name)
        if factors == [DETAILED]:
            return self.keeping([DETAILED] * len(self.attributes), name=name)
        wanted = [] if factors == [TOTAL] else factors
        kept = []
        for attribute in self.attributes:
            own = [each for each in wanted if each == attribute.name or each in attribute.groupings]
            if len(own) > 1:
                raise bad_plan(
                    f"'{name}' asks for {attribute.name} twice",
                    where="query",
                    remedy="name one of these: " + listed(own),
                )
            kept.append(SUMMED if not own else DETAILED if own[0] == attribute.name else own[0])
        if unknown := [each for each in wanted if each not in {*self._factors()}]:
            raise bad_plan(
                f"'{name}' asks for {listed(unknown)}, which the schema {self.name} does not have",
                where="query",
                remedy=f"there are {listed([*self._factors(), TOTAL, DETAILED])}",
            )
        return self.keeping(kept, name=name)

    def keeping(self, kept: Sequence[str], *, name: str = "") -> Query:
        """Return the query that keeps this of each attribute: ``*``, ``detailed`` or a grouping."""
        pairs = [*zip(self.attributes, kept, strict=True)]
        # An attribute kept in full is asked for by its own name; all of them are the detailed query.
        full = [a.name if k == DETAILED else k for a, k in pairs if k != SUMMED]
        said = name or (DETAILED if [*kept] == [DETAILED] * len(pairs) else " * ".join(full) or TOTAL)
        return Query(name=said, kept=tuple(kept), groups=tuple(attribute.groups(each) for attribute, each in pairs))


def factors_of(name: str) -> list[str]:
    """Return the attributes and groupings that the name of a query joins."""
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return [each.strip() for each in name.split("*")]
