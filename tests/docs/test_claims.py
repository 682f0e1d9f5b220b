"""The page of claims names checks that exist, with their true numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.mechanisms.records import test_family_theory as theory
from tests.mechanisms.records.laws import test_counting as counting
from tests.mechanisms.records.laws import test_sharp_budget as sharp

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "theory" / "claims.md").read_text(encoding="utf-8")


def rows() -> dict[str, str]:
    return {line.split("|")[1].strip(): line for line in PAGE.splitlines() if line.startswith("| ")}


def test_every_file_that_is_named_exists() -> None:
    named = {*re.findall(r"`((?:tests/)?[\w/]*test_\w+\.py|tests/[\w/]+)`", PAGE)}
    assert len(named) > 20
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    missing = [name for name in named if not ((ROOT / name).exists() if "/" in name else name in tests)]
    assert not missing


def test_every_claim_names_code_that_exists() -> None:
    """Folders, modules, and functions or classes of modules as ``module.py:name``."""
    package, missing, named = ROOT / "src" / "stirred", [], 0
    for claim, row in rows().items():
        if claim == "claim":
            continue
        codes = re.findall(r"`([\w/.:]+)`", row.split("|")[3])
        assert codes, f"no code for {claim}"
        named += len(codes)
        for path, _, name in (code.partition(":") for code in codes):
            source = package / path if path.endswith(".py") else package / path / "__init__.py"
            if not source.exists() or (name and f"\ndef {name}(" not in source.read_text(encoding="utf-8")):
                missing.append(f"{path}:{name}")
    assert named > 20
    assert not missing


def given(test: Any) -> list[int]:
    """How many values each argument of a test takes, the one written first standing last."""
    return [len(mark.args[1]) for mark in test.pytestmark]


COUNTING = counting.test_no_stratum_up_to_five_records_exceeds_the_sharp_budget_and_singletons_attain_it
REDRAW = theory.test_no_stratum_up_to_five_records_exceeds_the_sharper_redraw_budget
MALLOWS = theory.test_no_stratum_up_to_five_records_exceeds_the_mallows_budget
SHUFFLE = theory.test_no_stratum_up_to_five_records_exceeds_the_shuffle_bound
MARGINS, RATES, SMALL = len(sharp.MARGINS), len(sharp.RATES), len(theory.SMALL)


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ("permutation swapping", f"{MARGINS} live margins of two to five records at {RATES} rates"),
        (
            "permutation swapping",
            f"all {len(counting.ALL_MARGINS)} margins of up to five records at {given(COUNTING)[0]} rates",
        ),
        (
            "conditioned swap",
            f"{SMALL} live margins of up to five records at {given(REDRAW)[0]} rates and {given(REDRAW)[1]} laws",
        ),
        ("Mallows swap", f"{SMALL} live margins at {given(MALLOWS)[0]} weights"),
        ("shuffle swap", f"{SMALL} live margins at {given(SHUFFLE)[0]} rates"),
    ],
)
def test_the_numbers_of_cases_are_those_of_the_tests(claim: str, says: str) -> None:
    assert says in rows()[claim]


@pytest.mark.parametrize("number", range(1, 9))
def test_every_condition_of_use_has_its_section(number: int) -> None:
    page = (ROOT / "docs" / "theory" / "conditions.md").read_text(encoding="utf-8")
    assert f"## Condition {number}: " in page


@pytest.mark.parametrize("result", [0, 1, 2, *range(5, 12), *range(13, 19)])
def test_every_numbered_result_has_a_heading_or_a_name_in_the_theory(result: int) -> None:
    """R3 and R4 are remarks on the paper; R12 is a step inside other proofs."""
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "theory").glob("*.md")]
    headings = [line for page in pages for line in page.splitlines() if line.startswith("#")]
    assert any(re.search(rf"\bR{result}\b", line) for line in headings)
