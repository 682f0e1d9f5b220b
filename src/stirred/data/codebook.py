"""The codebook: what the columns of a confidential file mean, declared by its custodian, not learned from it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from stirred.data.problems import DataError, listed
from stirred.data.sources import PLAIN, Dialect
from stirred.spec.document import Strict, Texts
from stirred.spec.multiverse import Hierarchy, check_agreement
from stirred.spec.problems import Problem, StirredError

File = Literal["households", "persons"]
Type = Literal["code", "integer", "text", "date", "true-false", "id"]

FILES: Final[tuple[File, ...]] = ("households", "persons")
TRUTH: Final[Mapping[str, str]] = {"true": "true", "1": "true", "false": "false", "0": "false"}
# What numbers of 128 bits hold.
WHOLE: Final = "[+-]?[0-9]{1,38}"


Name = Annotated[str, Field(min_length=1)]


class Variable(Strict):
    """[[variables]]: a column and what it may hold; ``codes`` maps each code, as text, to its label."""

    name: Name = Field(description="The column.")
    file: File = Field(description="The file it is in.")
    type: Type = Field(description="What kind of values it holds.")
    label: str = Field(default="", description="What it means, for readers.")
    codes: dict[str, str] = Field(default={}, description="For type code: every possible code, and its label.")
    min: int | None = Field(default=None, description="For type integer: the smallest possible value.")
    max: int | None = Field(default=None, description="For type integer: the largest possible value.")
    missing: bool | Texts = Field(
        default=False, description='Whether values may be missing, or the texts that mean it, such as ["NA", "."].'
    )

    @property
    def missing_texts(self) -> tuple[str, ...]:
        """Return the texts that mean a missing value."""
        return () if isinstance(self.missing, bool) else self.missing

    def allows(self, value: str, *, leaves: frozenset[str] = frozenset()) -> bool:
        """Say whether a value, written as text, may occur; ``leaves`` are the codes a hierarchy file adds.

        >>> age = Variable(name="age", file="persons", type="integer", min=0, max=115)
        >>> age.allows("115"), age.allows("116"), age.allows("old")
        (True, False, False)
        """
        if self.type == "code":
            return value in self.codes or value in leaves
        if self.type == "true-false":
            return value.lower() in TRUTH
        if self.type != "integer":
            return True
        if not re.fullmatch(WHOLE, value):
            return False
        return (self.min is None or self.min <= int(value)) and (self.max is None or int(value) <= self.max)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """Codes inside coarser codes; ``parents`` gives the code above each, None at the top, in the file's order.

    >>> tree = CodeTree(parents={"North": None, "N1": "North", "N2": "North", "South": None, "S1": "South"})
    >>> tree.leaves, tree.parents["N2"], tree.levels
    (('N1', 'N2', 'S1'), 'North', (('North', 'South'), ('N1', 'N2', 'S1')))
    """

    parents: Mapping[str, str | None]

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the codes that have none below them: those that records carry."""
        inner = set(self.parents.values())
        return tuple(code for code in self.parents if code not in inner)

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Return the codes by depth, the coarsest first."""
        depths: dict[str, int] = {}
        for code, parent in self.parents.items():  # a parent stands before its children
            depths[code] = 0 if parent is None else depths[parent] + 1
        return tuple(
            tuple(code for code, depth in depths.items() if depth == level)
            for level in range(max(depths.values(), default=-1) + 1)
        )


class ColumnLevels(Strict):
    """[[hierarchies]]: columns that nest."""

    name: Name = Field(description="What the hierarchy is called.")
    levels: Annotated[tuple[Name, ...], Field(strict=False)] = Field(description="Columns, the finest first.")
    geographic: bool = Field(default=True, description="Whether it is one of places.")


class HierarchyFile(Strict):
    """[[hierarchies]]: the codes of one variable, in a tau-ARGUS file."""

    name: Name = Field(description="What the hierarchy is called.")
    variable: Name = Field(description="The variable whose codes it orders.")
    hrc: Name = Field(description="Path of the file, relative to the codebook.")
    geographic: bool = Field(default=True, description="Whether it is one of places.")


class CodeHierarchy(HierarchyFile):
    """A hierarchy of codes with the tree in its file; records carry its leaves."""

    tree: CodeTree


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


Value = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=int | str | bool)]


class StructuralZero(Strict):
    """[[structural_zeros]]: a combination of values that cannot exist: no record has one value of every column."""

    name: Name = Field(description="What cannot exist, in words.")
    file: File = Field(description="The file of its variables.")
    when: dict[str, Annotated[tuple[Value, ...], Field(min_length=1, strict=False)]] = Field(
        min_length=1, description="Variables and their values that no record has together."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Codebook:
    """Variables, hierarchies, the link between files, and what cannot exist.

    >>> tenure = Variable(name="tenure", file="households", type="code", codes={"1": "owned", "2": "rented"})
    >>> codebook = Codebook(title="A census", variables=(tenure,), hid="hid")
    >>> codebook.labels("tenure"), codebook.identifiers
    ({'1': 'owned', '2': 'rented'}, ('hid',))
    """

    title: str = ""
    variables: tuple[Variable, ...]
    hierarchies: tuple[Hierarchy, ...] = ()
    trees: tuple[CodeHierarchy, ...] = ()
    hid: str | None = None
    id: tuple[str, ...] = ()
    structural_zeros: tuple[StructuralZero, ...] = ()
    draft: bool = False
    dialect: Dialect = PLAIN

    def __post_init__(self) -> None:
        if problems := list(contradictions(self.variables, self.hierarchies, self.trees, self.structural_zeros)):
            raise DataError(problems)

    @classmethod
    def read(cls, path: Path | str) -> Codebook:
        """Read a codebook; every problem is reported at once with the file and the key."""
        from stirred.data.codebook_file import read_codebook

        return read_codebook(Path(path))

    @classmethod
    def from_toml(cls, text: str, *, source: str = "codebook", folder: Path | None = None) -> Codebook:
        """Return the codebook that a TOML text declares; ``folder`` is where its hierarchy files lie."""
        from stirred.data.codebook_file import parse_codebook

        return parse_codebook(text, source=source, folder=folder or Path())

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Return the columns that identify: the household link, the ids, and variables of type id."""
        declared = (variable.name for variable in self.variables if variable.type == "id")
        return tuple(dict.fromkeys((*((self.hid,) if self.hid else ()), *self.id, *declared)))

    def of(self, file: File) -> dict[str, Variable]:
        """Return the variables declared for a file, by name."""
        return {variable.name: variable for variable in self.variables if variable.file == file}

    def variable(self, name: str) -> Variable | None:
        """Return the variable of this name, if it is declared; households come before persons."""
        return self.of("households").get(name) or self.of("persons").get(name)

    def is_flat(self, columns: Collection[str]) -> bool:
        """Say whether a file that is given alone is one of persons, who may repeat what their household has.

        >>> age = Variable(name="age", file="persons", type="integer")
        >>> [Codebook(variables=(age,)).is_flat(columns) for columns in (["county"], ["county", "age"])]
        [False, True]
        """
        own = self.of("persons").keys() - self.of("households").keys()
        return 2 * len(own.intersection(columns)) >= max(len(own), 1)

    def labels(self, variable: str) -> dict[str, str]:
        """Return the label of every code, as text; none for a variable without codes."""
        found = self.variable(variable)
        return dict(found.codes) if found else {}

    def codes(self, variable: str) -> tuple[str, ...]:
        """Return the declared codes of a variable as text, with those of its hierarchy file; of others none."""
        found = self.variable(variable)
        if found is None or found.type not in ("code", "true-false"):
            return ()
        declared = ("false", "true") if found.type == "true-false" else found.codes
        return tuple(dict.fromkeys((*declared, *sorted(self.leaves(variable)))))

    def missing_texts(self, file: File) -> dict[str, tuple[str, ...]]:
        """Return the texts that mean a missing value in a file, by variable; persons may repeat their household's."""
        declared = {**self.of("households"), **self.of("persons")} if file == "persons" else self.of("households")
        return {name: variable.missing_texts for name, variable in declared.items() if variable.missing_texts}

    def leaves(self, variable: str) -> frozenset[str]:
        """Return the codes that a hierarchy file gives to a variable."""
        return frozenset(code for tree in self.trees if tree.variable == variable for code in tree.tree.leaves)


class EntryPlace(NamedTuple):
    """Where something stands in a codebook: a list, the entry by its name or its number, and a key of that.

    >>> print(EntryPlace("variables", "rent", "codes"), EntryPlace("variables entry 2"), sep="; ")
    variables "rent" codes; variables entry 2
    """

    section: str
    name: str = ""
    key: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.section, f'"{self.name}"' if self.name else "", self.key) if part)

    def problem(self, what: str, remedy: str) -> EntryProblem:
        """Return what is wrong here."""
        return EntryProblem(what=what, where=str(self), remedy=remedy, place=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryProblem(Problem):
    """One thing that is wrong with an entry; the same slip in many entries is reported once."""

    place: EntryPlace


def contradictions(
    variables: Sequence[Variable],
    hierarchies: Sequence[Hierarchy],
    trees: Sequence[CodeHierarchy],
    structural_zeros: Sequence[StructuralZero],
    *,
    unsure: Iterable[str] = (),
    unread: Iterable[str] = (),
) -> Iterator[Problem]:
    """Yield what does not fit together.

    Names in ``unsure`` are declared, but it is not known how; the codes of those in ``unread`` are in a hierarchy
    file that cannot be read.
    """
    leaves = {tree.variable: frozenset(tree.tree.leaves) for tree in trees}
    unread = set(unread)
    names = {variable.name for variable in variables} | set(unsure)
    yield from _repeated("variables", [f"{v.file} {v.name}" for v in variables])
    yield from _repeated("hierarchies", [*(h.name for h in hierarchies), *(t.name for t in trees)])
    for variable in variables:
        yield from _variable_problems(variable, leaves.get(variable.name), unread=variable.name in unread)
    yield from _two_meanings(variables)
    yield from _level_problems(variables, hierarchies, names)
    for tree in trees:
        if tree.variable not in names:
            yield _undeclared(tree.variable, EntryPlace("hierarchies", tree.name, "variable"))
        elif any(v.name == tree.variable and v.type != "code" for v in variables):
            yield EntryPlace("hierarchies", tree.name, "variable").problem(
                f'"{tree.variable}" is not of type code',
                'declare it with type = "code"; its codes are those of the hierarchy file',
            )
    for zero in structural_zeros:
        yield from _zero_problems(zero, variables, leaves, unsure=set(unsure), unread=unread)


def _repeated(section: str, names: Sequence[str]) -> Iterator[Problem]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Problem(
                what=f"{name} is declared {count} times", where=section, remedy="keep one of the declarations"
            )


def _variable_problems(variable: Variable, leaves: frozenset[str] | None, *, unread: bool) -> Iterator[Problem]:
    def problem(key: str, what: str, remedy: str) -> Problem:
        return EntryPlace("variables", variable.name, key).problem(what, remedy)

    if variable.type == "code":
        if not variable.codes and leaves is None and not unread:
            what = "a variable of type code needs its codes"
            yield problem("codes", what, 'list them, codes = { 1 = "owned", ... }, or declare type = "text"')
        if leaves is not None and (outside := [code for code in variable.codes if code not in leaves]):
            what = f"codes {shown(outside)} are no leaves of the hierarchy file"
            yield problem("codes", what, "add them to the file, or remove them here")
    elif variable.codes:
        what = f"a variable of type {variable.type} has no codes"
        yield problem("codes", what, 'remove them, or declare type = "code"')
    if variable.type != "integer":
        for key, value in (("min", variable.min), ("max", variable.max)):
            if value is not None:
                what = f"a variable of type {variable.type} has no {key}"
                yield problem(key, what, 'remove it, or declare type = "integer"')
    elif variable.min is not None and variable.max is not None and variable.min > variable.max:
        yield problem("min", f"the minimum {variable.min} is above the maximum {variable.max}", "exchange them")


def _two_meanings(variables: Sequence[Variable]) -> Iterator[Problem]:
    """Yield names that both files have with different declarations: persons repeat what their household has."""
    households = {v.name: v for v in variables if v.file == "households"}
    for person in variables:
        household = households.get(person.name)
        if person.file != "persons" or household is None:
            continue
        pairs = {key: (getattr(household, key), getattr(person, key)) for key in ("type", "codes", "min", "max")}
        if different := [key for key, (one, other) in pairs.items() if one != other]:
            yield EntryPlace("variables", person.name).problem(
                f"households and persons declare {' and '.join(different)} differently",
                "declare it alike, or call one of the columns otherwise",
            )


def _level_problems(
    variables: Sequence[Variable], hierarchies: Sequence[Hierarchy], names: set[str]
) -> Iterator[Problem]:
    for hierarchy in hierarchies:
        where = EntryPlace("hierarchies", hierarchy.name, "levels")
        if absent := [level for level in hierarchy.levels if level not in names]:
            yield from (_undeclared(level, where) for level in absent)
            continue
        homes = [{v.file for v in variables if v.name == level} or set(FILES) for level in hierarchy.levels]
        if not set.intersection(*homes):
            yield where.problem("the levels are columns of different files", "name columns of one file")
    try:
        check_agreement(tuple(hierarchies))
    except StirredError as error:
        yield from error.problems


def _zero_problems(
    zero: StructuralZero,
    variables: Sequence[Variable],
    leaves: Mapping[str, frozenset[str]],
    *,
    unsure: set[str],
    unread: set[str],
) -> Iterator[Problem]:
    there = {variable.name: variable for variable in variables if variable.file == zero.file}
    for name, values in zero.when.items():
        where = EntryPlace("structural_zeros", zero.name, name)
        if name not in there:
            if name not in unsure:
                yield _undeclared(name, where, file=zero.file)
            continue
        if name in unread and there[name].type == "code":
            continue
        never = [v for v in values if not there[name].allows(v, leaves=leaves.get(name, frozenset()))]
        if never:
            what = f"{shown(never)} cannot occur in a variable of this kind"
            yield where.problem(what, "remove them, or declare them for the variable")


def _undeclared(name: str, where: EntryPlace, *, file: str | None = None) -> Problem:
    place = f" for {file}" if file else ""
    what = f'there is no variable "{name}"{place}'
    return where.problem(what, "declare it under [[variables]], or check the spelling")


def shown(values: Sequence[Any], *, most: int = 5) -> str:
    """Write values as a list that ends; those with odd edges stand in quotes.

    >>> shown(["7", " 9", ""]), shown([1, 2, 3], most=2)
    ('7, " 9", ""', '1, 2, ...')
    """

    def one(value: Any) -> str:
        text = str(value)
        text = text if len(text) <= 40 else text[:37] + "..."
        plain = text and text == text.strip() and text.isprintable() and "," not in text
        return text if plain else json.dumps(text, ensure_ascii=False)

    return ", ".join(one(value) for value in values[:most]) + (", ..." if len(values) > most else "")


def names_text(names: Sequence[str]) -> str:
    """Write names in quotes, at most thirty of them."""
    return listed(list(names)[:30]) + (", ..." if len(names) > 30 else "")
