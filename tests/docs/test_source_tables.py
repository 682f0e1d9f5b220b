"""The tables of the theory pages name functions and tests that exist, and leave out no numbered result."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {page: (ROOT / "docs" / "theory" / page).read_text(encoding="utf-8") for page in ("limits.md", "atlas.md")}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def is_header(line: str) -> bool:
    return [cell.lower().removesuffix(" item") for cell in cells(line)] == ["source", "function", "test"]


def rows(page: str) -> list[list[str]]:
    """The rows of all tables of a page that have the three columns."""
    found, inside = [], False
    for line in PAGES[page].splitlines():
        inside = line.startswith("|") and (inside or is_header(line))
        if inside and not is_header(line) and set(line) - set("|-: "):
            found.append(cells(line))
    return found


def names(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


def defined(folder: str, pattern: str) -> set[str]:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.py"))
    return {name for text in texts for name in re.findall(pattern, text, flags=re.MULTILINE)}


FUNCTIONS = defined("src/stirred", r"^ *(?:def|class) (\w+)") | defined("src/stirred", r"^([A-Z]\w+)(?:: .*)? =")
TESTS = defined("tests", r"^def (test_\w+)")


@pytest.mark.parametrize("page", PAGES)
def test_every_row_names_functions_and_tests_that_exist(page: str) -> None:
    table = rows(page)
    assert len(table) >= 8
    assert [row for row in table if len(row) != 3 or not names(row[1]) or not names(row[2])] == []
    functions = [part for row in table for name in names(row[1]) for part in name.split(".")[-1:]]
    assert [name for name in functions if name not in FUNCTIONS] == []
    assert [name for row in table for name in names(row[2]) if name not in TESTS] == []


def test_every_numbered_result_of_chapter_5_and_its_appendix_has_a_row() -> None:
    """But for those that the page itself says have none."""
    items = " ".join(row[0] for row in rows("limits.md"))
    results = "5.2.1 5.2.2 5.2.3 5.3.1 5.3.2 5.3.3 5.3.4 5.3.5 5.3.6 5.3.7 5.4.1 5.4.2 5.4.3 5.4.4 5.5.1 5.5.2 5.6.1"
    results += " 5.6.2 5.6.3 5.6.4 5.6.5 5.7.1 5.7.2 5.7.3 5.8.1 5.8.2 5.8.3 5.8.4 5.8.5 5.8.6 5.8.7"
    results += " C.3.1 C.3.2 C.3.3 C.3.4 C.4.1 C.4.2 C.4.3 C.4.4 C.5.2 C.5.3 C.5.4 C.5.5"
    assert [number for number in results.split() if number not in items] == []


def test_every_worked_case_of_the_limits_has_a_row() -> None:
    named = " ".join(row[2] for row in rows("limits.md"))
    numbers = {int(n) for test in TESTS for n in re.findall(r"^test_t(\d+)_", test)} & set(range(1, 25))
    assert [n for n in sorted(numbers) if f"test_t{n}_" not in named] == []
