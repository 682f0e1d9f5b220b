"""What is published exactly and so is not protected: the invariants of a release."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

from stirred.spec.block import Block
from stirred.spec.problems import wrong

# "Every variable of the record except geography": the saturated table of a swapping `hold`.
ALL: Final = "*"
# The same for the persons inside a household, where the household's own variables are named.
OF_PERSONS: Final = "all characteristics of its persons"

Function = Callable[[Any], Hashable]


class _Figure(Block):
    """What all invariants have in a file: their words."""

    __slots__ = ()

    @property
    def words(self) -> str:
        """Return the invariant in words."""
        return str(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin(_Figure):
    """An equality invariant: the counts of ``of`` by ``variables`` at a geographic ``level``.

    No variables and no level is the total. ``variables=("*",)`` is the table of all variables of the
    record. ``includes`` names other records carried inside these, so that their number follows: a table
    of households by size includes persons. ``function`` evaluates the invariant on a dataset, for
    audits; it is not written to files.

    >>> print(Margin(of="household", variables=("size",), level="block"))
    number of households by size in each block
    >>> print(Margin(of="person"))
    total number of persons
    """

    in_file: ClassVar = ("kind", "of", "variables", "level", "includes", "words")

    kind: ClassVar = "margin"
    of: Annotated[str, "what is counted, such as person or household"]
    variables: Annotated[tuple[str, ...], "variables the counts are broken down by"] = ()
    level: Annotated[str | None, "the geographic level of the counts"] = None
    includes: Annotated[tuple[str, ...], "records that are counted with these, such as person"] = ()
    function: Function | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.of.strip():
            raise wrong("a margin counts nothing", where="invariant", remedy="say what it counts: of='household'")
        if len(set(self.variables)) != len(self.variables):
            raise wrong("a variable is named twice", where=f"invariant {self}", remedy="name each variable once")

    def __str__(self) -> str:
        things = plural(self.of)
        if not self.variables and self.level is None:
            return f"total number of {things}"
        place = f" in each {self.level}" if self.level else ""
        if self.variables == (ALL,):
            return f"number of {things} with each combination of all their characteristics{place}"
        by = f" by {' x '.join(self.variables)}" if self.variables else ""
        return f"number of {things}{by}{place}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named(_Figure):
    """An equality invariant that is an arbitrary function of the data, known by its name.

    Two of them are the same only if their names are the same: nothing else about them is decidable.
    """

    in_file: ClassVar = ("kind", "name", "description", "words")

    kind: ClassVar = "named"
    name: Annotated[str, "what the function is called"]
    description: Annotated[str, "what it computes"] = field(default="", compare=False)
    function: Function | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise wrong("an invariant without a name", where="invariant", remedy="give it a name")

    def __str__(self) -> str:
        return self.description or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Inequality(_Figure):
    """An inequality invariant: whether ``condition`` holds is published exactly (Eq. 2.4).

    ``on`` is the margin the condition is a function of, where it is one: equality of the counts
    then implies that the condition does not change.

    >>> units = Margin(of="housing unit", level="block")
    >>> print(Inequality(name="some-housing", condition="at least one housing unit", on=units))
    whether there is at least one housing unit in each block
    """

    in_file: ClassVar = ("kind", "name", "condition", "on", "words")

    kind: ClassVar = "inequality"
    name: Annotated[str, "what the condition is called"]
    condition: Annotated[str, "the condition itself, in words"]
    on: Annotated[Margin | None, "the counts that the condition is about"] = None
    function: Function | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip() or not self.condition.strip():
            raise wrong("an inequality without name or condition", where="invariant", remedy="give both")

    def __str__(self) -> str:
        place = f" in each {self.on.level}" if self.on is not None and self.on.level else ""
        return f"whether there is {self.condition}{place}"


Invariant = Margin | Named | Inequality


def the(invariant: Invariant) -> str:
    """Return an invariant as it stands in a sentence."""
    words = str(invariant)
    return words if words.startswith("whether") else f"the {words}"


def records_of(unit: str, count: int = 2) -> str:
    """Return the records of a unit in words; where the unit is itself called a record, the word stands once.

    >>> records_of("household"), records_of("household", 1), records_of("record", 1), records_of("tax record")
    ('household records', 'household record', 'record', 'tax records')
    """
    one = unit if unit.endswith("record") else f"{unit} record"
    return one if count == 1 else f"{one}s"


def plural(noun: str) -> str:
    """Return the plural of a record type.

    >>> plural("household"), plural("group quarters"), plural("business"), plural("county"), plural("child")
    ('households', 'group quarters', 'businesses', 'counties', 'children')
    """
    if noun.endswith("child"):
        return noun + "ren"
    if noun.endswith(("quarters", "people", "data")):
        return noun
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"
