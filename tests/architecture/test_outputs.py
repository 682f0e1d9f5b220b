"""One rule for every output of every command: complete or absent. What a command writes, it writes through one door."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import stirred

SRC = Path(stirred.__file__).parent
DOORS = {"file_at", "folder_at"}
WRITES = {"write_text", "write_bytes", "write_csv", "write_parquet", "write_frame", "sink_csv", "sink_parquet", "touch"}
COMMANDS = sorted({*(SRC / "cli").rglob("*.py"), *(p for p in SRC.rglob("*.py") if "COMMANDS" in p.read_text("utf-8"))})


def written_past_the_doors(source: str) -> list[str]:
    """Calls that write to a path and stand neither in the block of a door nor in a function that such a block calls."""
    tree = ast.parse(source)
    inside: set[ast.AST] = set()
    called: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(
            isinstance(call, ast.Call) and _name(call) in DOORS for item in node.items for call in ast.walk(item)
        ):
            inside |= {*ast.walk(node)}
    doors = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(each, ast.Name) and each.id == "contextmanager" for each in node.decorator_list)
        and any(each in inside for each in ast.walk(node))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(
            isinstance(call, ast.Call) and _name(call) in doors for item in node.items for call in ast.walk(item)
        ):
            inside |= {*ast.walk(node)}
    called = {_name(node) for node in inside if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in called:
            inside |= {*ast.walk(node)}
        if isinstance(node, ast.ClassDef) and node.name in called:
            inside |= {*ast.walk(node)}
    return [
        f"{node.lineno}: {ast.unparse(node)[:80]}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node not in inside and _writes(node)
    ]


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _writes(call: ast.Call) -> bool:
    name = _name(call)
    if name == "write_csv":
        return bool(call.args)  # without a path it returns the text
    if name == "open":
        modes = [
            each.value for each in [*call.args, *(k.value for k in call.keywords)] if isinstance(each, ast.Constant)
        ]
        return any(isinstance(mode, str) and set(mode) & set("wxa+") and set(mode) <= set("wxabt+") for mode in modes)
    return name in WRITES


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(SRC)))
def test_a_command_writes_through_one_door(path: Path) -> None:
    assert written_past_the_doors(path.read_text(encoding="utf-8")) == []


def test_what_is_written_past_the_door_is_seen() -> None:
    assert written_past_the_doors("def f(out):\n    out.write_text('x')") == ["2: out.write_text('x')"]
    assert written_past_the_doors("with file_at(out) as half:\n    half.write_text('x')") == []
    assert written_past_the_doors("with open(out, 'x') as half:\n    half.write('x')") == ["1: open(out, 'x')"]
