"""Which rooms of the house a module imports, and whether the direction allows it.

Imports point one way, from the surfaces down to the mathematics. A module may import its own room and rooms
of strictly lower rank. An import inside a function, under ``TYPE_CHECKING`` or through ``import_module``
counts like any other: it is a dependency all the same.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

RANK = {
    "spec": 0,
    "randomness": 1,
    "data": 1,
    "engines": 1,
    "mechanisms": 2,
    "survey": 3,  # its estimates are a mechanism, by the contract in mechanisms
    "inference": 4,
    "utility": 4,
    "audit": 5,
    "risk": 5,
    "report": 6,
    "release": 7,
    "cli": 8,
    "studio": 8,
}

# Modules that a room names in text and never imports itself, with the reason.
ALLOWED_BY_NAME = {
    "stirred.survey.estimates.mechanism": "survey estimates keep the contract of mechanisms and are listed with them; "
    "the registry imports the module when a plan asks for it",
    "stirred.survey.commands": "`stirred --help` lists the commands of surveys with those of mechanisms; "
    "they are imported when one is run",
}

# The package's own front door: it names the rooms lazily and may open any of them.
FRONT_DOOR = {"__init__", "__main__", "door"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One dotted name that a line of a module depends on."""

    target: str
    line: int


def violations(package: Path) -> list[str]:
    """Return one sentence for every import under ``package`` that points the wrong way."""
    files = sorted(package.rglob("*.py"))
    against = [
        f"{path.relative_to(package.parent).as_posix()}:{found.line}: {problem}"
        for path in files
        for found in imports_of(path, package=package)
        if (problem := _problem(_room(path, package=package), found.target, package=package.name))
    ]
    unranked = sorted({_room(path, package=package) for path in files} - {""} - RANK.keys())
    return against + [f"{package.name}/{room}: this room has no rank. Add it to RANK." for room in unranked]


def named_violations(modules: Iterable[str], *, room: str, package: str = "stirred") -> list[str]:
    """Return one sentence for each module that a room names in text against the direction, without being allowed to."""
    return [
        problem
        for module in modules
        if module not in ALLOWED_BY_NAME and (problem := _problem(room, module, package=package))
    ]


def imports_of(path: Path, *, package: Path) -> Iterator[Import]:
    """Yield every name of ``package`` that the module at ``path`` imports, however it does so."""
    inside = path.relative_to(package.parent).with_suffix("").parts
    prefix = f"{package.name}."
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        for target in _targets(node, inside=inside):
            if target.startswith(prefix):
                yield Import(target=target, line=getattr(node, "lineno", 0))


def _targets(node: ast.AST, *, inside: tuple[str, ...]) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            # Level 1 is the module's own folder, which for an __init__ is the package it opens.
            base = ".".join(inside[:-level] if level else ())
            origin = ".".join(filter(None, (base, module)))
            yield from (f"{origin}.{alias.name}" for alias in names)
        case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
            yield name
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            yield name
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == inside[0]:
            # `import stirred; stirred.release` reaches a room through the lazy front door.
            yield f"{name}.{attr}"


def _room(path: Path, *, package: Path) -> str:
    """Return the room a file stands in; the front door stands in none."""
    first = path.relative_to(package).with_suffix("").parts[0]
    return "" if first in FRONT_DOOR else first


def _problem(room: str, target: str, *, package: str) -> str | None:
    imported = target.removeprefix(f"{package}.").split(".")[0]
    if room not in RANK or imported not in RANK or imported == room or RANK[imported] < RANK[room]:
        return None
    below = ", ".join(name for name in RANK if RANK[name] < RANK[room]) or "nothing of ours"
    return f"{room} must not import {target}. It may import {below}."
