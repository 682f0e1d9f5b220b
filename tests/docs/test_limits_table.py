"""The table of chapter 5 names functions and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

from stirred import inference

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "theory" / "limits.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and "`" in line
]
TESTS = {
    name
    for path in (ROOT / "tests" / "inference").glob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
}


def test_every_row_names_a_function_and_a_test_that_exist() -> None:
    assert len(ROWS) > 30
    assert [function for _, function, _ in ROWS if function not in inference.__all__] == []
    assert [test for _, _, test in ROWS if test not in TESTS] == []


def test_every_numbered_result_of_the_chapter_has_a_row() -> None:
    items = " ".join(item for item, _, _ in ROWS)
    results = "5.2.1 5.2.2 5.2.3 5.3.1 5.3.2 5.3.3 5.3.5 5.4.1 5.4.3 5.4.4 5.5.1 5.5.2 5.6.2 5.6.3 5.6.4 5.6.5"
    results += " 5.8.3 5.8.4 5.8.5 5.8.6 5.8.7"
    assert [number for number in results.split() if number not in items] == []
