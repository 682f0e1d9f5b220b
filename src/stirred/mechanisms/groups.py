"""Commands: what one is and what it returns, and the groups of commands that mechanisms bring along.

It imports nothing at run time: `stirred --help` lists the groups, and loads no other room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import BaseModel

    from stirred.mechanisms.contract.release import Progress
    from stirred.mechanisms.contract.shown import Grid, Picture
    from stirred.spec.problems import Problem
    from stirred.spec.text import Row

# group: (the module that has its COMMANDS, what the group is for)
GROUPS: Final[Mapping[str, tuple[str, str]]] = {
    "ptable": (
        "stirred.mechanisms.tables.cellkey.design",
        "Perturbation tables for cell keys.",
    ),
    "derive": ("stirred.mechanisms.tables.derived", "Round or suppress released tables: it costs nothing."),
    "topdown": (
        "stirred.mechanisms.topdown.commands",
        "Estimates and records from noisy measurements.",
    ),
    "survey": ("stirred.survey.commands", "Surveys: settings, sampling designs, amplification, attackers."),
    "census": ("stirred.mechanisms.census_2020.account", "The 2020 US Census as one account."),
}


@dataclass(frozen=True, slots=True)
class Title:
    """A line that stands out, such as the name of what follows."""

    text: str


@dataclass(frozen=True, slots=True)
class FactRows:
    """Rows of a label and a text."""

    rows: Sequence[Row]
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: Sequence[str]
    indent: int = 2


# What is printed for people, in order: a text is a paragraph, indented as it begins, and an empty one a blank line.
OutputBlock: TypeAlias = "str | Title | FactRows | Bullets | Grid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command found: rows, tables and further blocks for people, the same as values for ``--json``.

    ``text`` is printed as it is: a document. ``pictures`` are drawn into new SVG files, and ``notes`` are conversation,
    on stderr. A check that failed is not ``passed``: the command then leaves with 1. With ``problems`` it shows what it
    found, then them, and leaves with 2.
    """

    rows: Sequence[Row] = ()
    grids: Sequence[Grid] = ()
    blocks: Iterable[OutputBlock] = ()
    text: str = ""
    values: Any = field(default_factory=dict)
    pictures: Mapping[Path, Picture] = field(default_factory=dict)
    notes: Sequence[str] = ()
    passed: bool = True
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that a mechanism brings along, such as one that estimates from published files.

    ``options`` is a pydantic model: each field with its description is an option ``--name``, or an argument where it
    is marked ``json_schema_extra={"argument": "FILE"}``. ``run`` never prints; it reports
    its progress. A field ``as_json`` is no option: it says whether --json was given.
    """

    name: str
    help: str
    options: type[BaseModel]
    run: Callable[[Any, Progress | None], Outcome]
    progress: bool = False  # it reports its progress, and so has --quiet
