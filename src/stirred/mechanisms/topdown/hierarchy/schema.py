"""Schemas: the attributes whose product is the histogram of an area, its queries, and the cell of every record."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codebook import Codebook
from stirred.data.problems import DataError, PlanError, bad_plan, counted, listed
from stirred.spec.problems import Problem

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

    @property
    def size(self) -> int:
        return len(self.codes)

    def groups(self, kept: str) -> tuple[int, ...]:
        """Return the group of each code where it is summed over (``*``), ``detailed`` or grouped by name."""
        if kept == SUMMED:
            return (0,) * self.size
        if kept == DETAILED:
            return tuple(range(self.size))
        return self.groupings[kept]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginalQuery:
    """A marginal query with disjoint cells: what is kept of each attribute, and the group of each code.

    Cells are in row-major order, the last attribute fastest. Two queries are equal if they ask the same, whatever
    they are called.
    """

    name: str = field(compare=False)
    kept: tuple[str, ...] = field(compare=False)
    groups: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(max(each) + 1 for each in self.groups)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def cell_of(self) -> Places:
        """Return for each cell of the histogram the cell of the query that counts it."""
        return self.cell_along(range(len(self.groups)))

    def cell_along(self, axes: Iterable[int]) -> Places:
        """Return the same over the codes of some attributes alone."""
        place = np.zeros((1,), dtype=np.int64)
        for axis in axes:
            groups = np.array(self.groups[axis])
            place = (place[:, None] * (groups.max() + 1) + groups[None, :]).reshape(-1)
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
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes)

    def query(self, name: str) -> MarginalQuery:
        """Return the query of a name: attributes and groupings joined by ``*``, or ``total``, or ``detailed``.

        >>> persons = shipped_schema("pl94-persons")
        >>> persons.query("hhgq * votingage_dpq").shape, persons.query("total").shape, persons.query("detailed").shape
        ((8, 2, 1, 1), (1, 1, 1, 1), (8, 2, 2, 63))
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

    def cell_name(self, query: MarginalQuery, cell: int) -> str:
        """Return which codes a cell of a query counts, in words.

        >>> persons = shipped_schema("pl94-persons")
        >>> persons.cell_name(persons.query("hhinstlevels * votingage"), 3)
        'hhinstlevels 1/2/3/4, votingage 2'
        """
        words = []
        parts = zip(self.attributes, query.kept, query.groups, np.unravel_index(cell, query.shape), strict=True)
        for attribute, kept, groups, group in parts:
            if max(groups) > 0:
                members = [code for code, own in zip(attribute.codes, groups, strict=True) if own == group]
                words.append(f"{attribute.name if kept == DETAILED else kept} {'/'.join(members)}")
        return ", ".join(words)

    def keeping(self, kept: Sequence[str], *, name: str = "") -> MarginalQuery:
        """Return the query that keeps this of each attribute: ``*``, ``detailed`` or a grouping."""
        pairs = [*zip(self.attributes, kept, strict=True)]
        # An attribute kept in full is asked for by its own name; all of them are the detailed query.
        full = [a.name if k == DETAILED else k for a, k in pairs if k != SUMMED]
        said = name or (DETAILED if [*kept] == [DETAILED] * len(pairs) else " * ".join(full) or TOTAL)
        return MarginalQuery(
            name=said, kept=tuple(kept), groups=tuple(attribute.groups(each) for attribute, each in pairs)
        )


def factors_of(name: str) -> list[str]:
    """Return the attributes and groupings that the name of a query joins."""
    for ending in _ENDINGS:
        name = name.removesuffix(ending)
    return [each.strip() for each in name.split("*")]


Cells = npt.NDArray[np.int32]
Values = Mapping[str, Sequence[str]]
Groupings = Mapping[str, Mapping[str, Sequence[Sequence[str]]]]

# Columns of our own in published measurements, and names that queries have.
TAKEN: Final = (
    *("geolevel", "geocode", "parent", "query_name", "query_shape", "value", "variance", "sigma2", "sign"),
    *(TOTAL, DETAILED),
)
MOST_CELLS: Final = 4_000_000
_REFERENCE: Final = "stirred.mechanisms.topdown.reference"
SCHEMAS: Final = ("pl94-persons", "pl94-units", "dhc-small-persons", "dhc-small-units")
BUDGETS: Final = ("us-2020-pl-persons", "us-2020-pl-units", "us-2020-dhc-persons", "us-2020-dhc-units")


@lru_cache(maxsize=8)
def shipped(name: str) -> dict[str, Any]:
    """Return a schema or a budget file that is shipped ready, as it is written."""
    text = resources.files(_REFERENCE).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@lru_cache(maxsize=8)
def shipped_schema(name: str) -> Schema:
    """Return a schema that is shipped ready.

    >>> shipped_schema("pl94-persons").shape, shipped_schema("pl94-persons").query("hhinstlevels").shape
    ((8, 2, 2, 63), (3, 1, 1, 1))
    """
    entries = {entry["name"]: entry for entry in shipped(name)["attributes"]}
    values = {each: entry["codes"] for each, entry in entries.items()}
    groupings = {each: entry.get("groupings", {}) for each, entry in entries.items()}
    return declared_schema(name, [*values], values=values, groupings=groupings)


def declared_schema(name: str, attributes: Sequence[str], *, values: Values, groupings: Groupings) -> Schema:
    """Return the schema of these attributes, from the codes that were declared for them; all problems at once.

    >>> codes = {"sex": ["m", "f"], "age": ["0-17", "18-64", "65+"]}
    >>> adults = {"age": {"adult": [["0-17"], ["18-64", "65+"]]}}
    >>> declared_schema("people", ["sex", "age"], values=codes, groupings=adults).query("adult").shape
    (1, 2)
    """
    problems: list[Problem] = [*_undeclared(attributes, values), *_wrong_groupings(attributes, values, groupings)]
    if problems:
        raise PlanError(problems)
    made = []
    for each in attributes:
        number = {g: {c: n for n, group in enumerate(own) for c in group} for g, own in groupings.get(each, {}).items()}
        numbers = {label: tuple(own[code] for code in values[each]) for label, own in number.items()}
        made.append(Attribute(name=each, codes=tuple(values[each]), groupings=numbers))
    schema = Schema(name=name, attributes=tuple(made))
    if schema.size > MOST_CELLS:
        raise bad_plan(
            f"{' x '.join(attributes)} has {schema.size:,} cells, and a histogram may have {MOST_CELLS:,}",
            where="attributes",
            remedy="leave an attribute out, or recode it to fewer codes",
        )
    return schema


def schema_named(name: str, *, attributes: Callable[[Codebook], Sequence[str]]) -> Schema:
    """Return a schema that is shipped, or that of ``attributes`` of a codebook."""
    if name in SCHEMAS:
        return shipped_schema(name)
    path = Path(name)
    if not path.is_file():
        remedy = f"name a codebook, or {listed(SCHEMAS)}"
        raise bad_plan(f"there is no schema '{name}'", where="--schema", remedy=remedy)
    codebook = Codebook.read(path)
    names = attributes(codebook)
    values = {each: [*codebook.codes(each)] for each in names}
    groupings: dict[str, dict[str, list[list[str]]]] = {each: {} for each in names}
    for tree in codebook.trees:
        if tree.variable in groupings:
            parents = tree.tree.parents
            coarse = {code: parents[code] or code for code in tree.tree.leaves}
            groups = dict.fromkeys(coarse.values())
            groupings[tree.variable][tree.name] = [[c for c in coarse if coarse[c] == group] for group in groups]
    return declared_schema(path.stem, names, values=values, groupings=groupings)


def coded_variables(codebook: Codebook) -> list[str]:
    """Return the variables for which a codebook declares codes."""
    return [*dict.fromkeys(each.name for each in codebook.variables if codebook.codes(each.name))]


def _undeclared(attributes: Sequence[str], values: Values) -> Iterator[Problem]:
    if not attributes:
        yield Problem(what="no attribute is named", where="attributes", remedy="name the columns to count by")
    for name in dict.fromkeys(attributes):
        where = f'attributes "{name}"'
        if name in TAKEN:
            remedy = "rename the column in the file"
            yield Problem(what="published measurements use this name for something else", where=where, remedy=remedy)
        if len(own := values.get(name, ())) < 2:
            undeclared = "its codes are not declared, and which of them occur is confidential"
            yield Problem(
                what=f"it has one code, {listed(own)}, and nothing to count by" if own else undeclared,
                where=where,
                remedy="leave it out of attributes, or declare its other codes"
                if own
                else f'declare all codes under values, such as {{ {name} = ["1", "2"] }}, or in a codebook '
                "([data] codebook)",
            )


def _wrong_groupings(attributes: Sequence[str], values: Values, groupings: Groupings) -> Iterator[Problem]:
    for name, own in groupings.items():
        if name not in attributes:
            remedy = f"there are {listed(attributes)}"
            yield Problem(what=f"there is no attribute '{name}'", where=f"groupings {name}", remedy=remedy)
            continue
        for label, groups in own.items():
            grouped = [code for group in groups for code in group]
            if sorted(grouped) != sorted(values.get(name, ())) or not all(groups):
                other = sorted({*grouped} ^ {*values.get(name, ())}) or [c for c in grouped if grouped.count(c) > 1]
                wrong = f"it does not put every code of {name} into one group: see {listed(other[:5])}"
                yield Problem(
                    what=wrong if other else "it has a group without codes",
                    where=f"groupings {name}.{label}",
                    remedy='list the codes of each group, such as [["0"], ["1", "2"]]',
                )


def code_places(column: pl.Series, attribute: Attribute, *, source: str) -> Cells:
    """Return the place of each value among the codes; codes that are numbers are compared as numbers: 01 is 1."""
    numbers = all(code.isascii() and code.isdigit() for code in attribute.codes)
    place = {str(int(code)) if numbers else code: n for n, code in enumerate(attribute.codes)}
    present = column.unique()
    texts = present.cast(pl.String).to_list()
    keys = [str(int(text)) if numbers and text and text.isascii() and text.isdigit() else text for text in texts]
    other = [str(text) for text, key in zip(texts, keys, strict=True) if key not in place]
    if other:
        missing = "missing values" if None in texts else "values"
        rows = column.is_null().arg_true() if None in texts else (column.cast(pl.String) == other[0]).arg_true()
        said = f"{missing} that are no declared codes ({counted(rows.head(5).to_list(), total=len(rows))})"
        problem = Problem(
            what=said if None in texts else f"{listed(sorted(other)[:5])}: {said}",
            public="values that are no declared codes",
            where=f'{source} "{column.name}"',
            remedy=f"declare them for {attribute.name}, or correct the file",
        )
        raise DataError([problem])
    new = [place[str(key)] for key in keys]
    return column.replace_strict(present, new, return_dtype=pl.Int32).to_numpy()
