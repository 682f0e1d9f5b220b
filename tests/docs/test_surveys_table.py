"""The table of the chapters on surveys names functions and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from stirred import survey

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip(" `") for cell in line.strip("|").rsplit("|", 2)]
    for line in (ROOT / "docs" / "theory" / "surveys.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`" in line
]
TESTS = {
    name
    for path in (ROOT / "tests" / "survey").glob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
}


def test_every_row_names_a_function_and_a_test_that_exist() -> None:
    assert len(ROWS) > 20
    assert [function for _, function, _ in ROWS if function not in survey.__all__] == []
    assert [test for _, _, test in ROWS if test not in TESTS] == []
