"""The tables of the atlas name functions and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from stirred import spec

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "theory" / "atlas.md").read_text(encoding="utf-8")
ROWS = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.endswith("` |")]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
}


def test_every_row_names_a_function_and_a_test_that_exist() -> None:
    assert len(ROWS) > 20
    assert [test for *_, test in ROWS if test not in TESTS] == []
    assert [function for _, function, _ in ROWS if not _exists(function)] == []


def _exists(function: str) -> bool:
    """Say whether the package or one of its modules has it."""
    named = re.compile(rf"^(def|class) {re.escape(function)}\b", flags=re.MULTILINE)
    return hasattr(spec, function) or any(
        named.search(path.read_text(encoding="utf-8")) for path in (ROOT / "src" / "stirred").rglob("*.py")
    )


def test_the_propositions_on_composition_and_post_processing_have_rows() -> None:
    items = " ".join(item for item, _, _ in ROWS)
    numbers = "2.4.15 2.5.3 2.5.4 2.5.5 A.5.2 A.5.3 A.6.1 A.6.2 A.6.3"
    assert [number for number in numbers.split() if number not in items] == []
