"""Facts are data: no code reads a fact out of the words of a message."""

from __future__ import annotations

import ast
from itertools import pairwise
from pathlib import Path

import pytest

import stirred

SRC = Path(stirred.__file__).parent
# Fields that hold words for readers: of problems, doubts, answers, verdicts.
WORDS = {
    "answer", "how_to_read", "meaning", "not_protected", "reason", "remedy", "told", "what", "where", "why", "words",
}  # fmt: skip
READS = {
    "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rpartition", "rsplit",
    "split", "splitlines", "startswith",
}  # fmt: skip
PATTERNS = {"findall", "finditer", "fullmatch", "match", "search", "sub"}
# Places of today, to become data as well. The list may only get shorter.
KNOWN = {
    "cli/option_words.py": 3,  # the option in place of a section and its key
    "release/plan_file.py": 1,  # sections of a plan that are settings
}


def reads_of_prose(source: str) -> list[str]:
    """Return the lines that search, split or compare a field of words."""
    return [
        f"{getattr(node, 'lineno', '')}: {ast.unparse(node)}" for node in ast.walk(ast.parse(source)) if _reads(node)
    ]


def _reads(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in READS and _is_words(node.func.value):
            return True
        return node.func.attr in PATTERNS and any(map(_is_words, node.args))
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return any(
            (isinstance(how, ast.In | ast.NotIn) and _is_text(one) and _is_words(other))
            or (isinstance(how, ast.Eq | ast.NotEq) and _is_words(one) and _is_text(other))
            for (one, other), how in zip(pairwise(sides), node.ops, strict=True)
        )
    return False


def _is_words(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in WORDS


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_no_module_reads_a_fact_out_of_words() -> None:
    found = {path.relative_to(SRC).as_posix(): reads_of_prose(path.read_text("utf-8")) for path in SRC.rglob("*.py")}
    assert {name: len(lines) for name, lines in found.items() if lines} == KNOWN, found


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("problem.what.startswith('no column')", 1),
        ("'left open' in block.reason", 1),
        ("re.fullmatch(PLACE, problem.where)", 1),
        ("_OPTION.findall(self.remedy)", 1),
        ("problem.where == 'copies'", 1),
        ("words.how_to_read.removeprefix('How to read it: ')", 1),
        ("problem.remedy.strip()", 0),
        ("name in estimate.where", 0),
        ("aside.reason == UNSTATED", 0),
        ("replace(problem, where=f'{place} {problem.where}')", 0),
    ],
)
def test_reading_words_is_found(source: str, count: int) -> None:
    assert len(reads_of_prose(source)) == count
