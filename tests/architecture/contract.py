"""What the rooms around mechanisms may know of them: the contract and the registry, no folder and no name.

An import inside a function or under ``TYPE_CHECKING`` counts like any other. A name counts where code spells it: in a
text, a help text or a part of a formatted text; a docstring is for people and may give an example.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.architecture.import_direction import imports_of

OUTER = ("audit", "cli", "inference", "release", "report", "risk", "studio", "utility")
OPEN = ("stirred.mechanisms.protocol", "stirred.mechanisms.registry", "stirred.mechanisms.groups")


def closed_imports(package: Path) -> Iterator[str]:
    """Yield each import by an outer room of something of ``mechanisms`` that is neither contract nor registry."""
    for path in outer_modules(package):
        for found in imports_of(path, package=package):
            if found.target.startswith("stirred.mechanisms.") and not _is_open(found.target):
                yield f"{_place(path, package)}:{found.line}: {found.target}"


def spelled_names(package: Path, built_in: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield each place where an outer room spells the name or the class of a mechanism.

    The first word of a name of a swap (``mallows``), which may be left to stand for it, counts where it is a whole
    text: in sentences these are plain words.
    """
    classes = {attribute for _, attribute in built_in.values()}
    first = {name.removesuffix("-swap") for name in built_in if name.endswith("-swap")}
    wanted = re.compile(rf"\b({'|'.join(map(re.escape, [*built_in, *classes]))})\b")
    for path in outer_modules(package):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        docstrings = {id(_docstring(node)) for node in ast.walk(tree)}
        for node in ast.walk(tree):
            text = _spelled(node) if id(node) not in docstrings else ""
            member = text if isinstance(node, ast.Constant) and text in first else None
            if found := member or next(iter(wanted.findall(text)), None):
                yield f"{_place(path, package)}:{getattr(node, 'lineno', 0)}: {found}"


def outer_modules(package: Path) -> list[Path]:
    """Return the modules of all rooms that surround the mechanisms."""
    return [path for room in OUTER for path in sorted((package / room).rglob("*.py"))]


def _is_open(target: str) -> bool:
    return any(target == name or target.startswith(f"{name}.") for name in OPEN)


def _place(path: Path, package: Path) -> str:
    return path.relative_to(package).as_posix()


def _spelled(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name
    return ""


def _docstring(node: ast.AST) -> ast.AST | None:
    match node:
        case (
            ast.Module(body=[ast.Expr(value=first), *_])
            | ast.ClassDef(body=[ast.Expr(value=first), *_])
            | ast.FunctionDef(body=[ast.Expr(value=first), *_])
        ):
            return first
    return None
