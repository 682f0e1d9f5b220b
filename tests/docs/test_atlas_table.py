"""The table of the atlas names functions and tests that exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "theory" / "atlas.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and line.count("`") >= 4
]
TESTS = {
    name
    for path in (ROOT / "tests" / "spec").glob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
}


def test_every_row_names_a_function_and_a_test_that_exist() -> None:
    assert len(ROWS) > 15
    for _, function, test in ROWS:
        module, _, name = function.rpartition(".")
        assert hasattr(import_module(f"stirred.spec.{module}" if module else "stirred.spec"), name), function
        assert test in TESTS
