"""The example on regression, in a fast version."""

from __future__ import annotations

import importlib.util
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

from stirred import Entropy

EXAMPLE = Path(__file__).parents[2] / "examples" / "swapped_regression.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    found = importlib.util.spec_from_file_location("swapped_regression", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["swapped_regression"] = module
    found.loader.exec_module(module)
    return module


def test_a_5_percent_swap_breaks_naive_intervals_and_corrected_ones_keep_their_level(example: ModuleType) -> None:
    """400 files: the coverage of an honest 95% interval has a standard error of 1.1 points."""
    study = example.coverage(Fraction(1, 20), copies=400, entropy=Entropy.from_seed("regression"))
    assert study.naive < 0.75
    assert abs(study.corrected - 0.95) < 0.025
    assert study.naive_slope == pytest.approx(0.95, abs=0.005)
    assert study.corrected_slope == pytest.approx(1.0, abs=0.005)


def test_without_swapping_both_are_the_same(example: ModuleType) -> None:
    study = example.coverage(Fraction(0), copies=200, entropy=Entropy.from_seed("regression"))
    assert study.naive == study.corrected
    assert abs(study.naive - 0.95) < 0.06


def test_at_one_half_naive_intervals_never_cover_and_corrected_ones_do(example: ModuleType) -> None:
    study = example.coverage(Fraction(1, 2), copies=400, entropy=Entropy.from_seed("regression"))
    assert study.naive == 0
    assert abs(study.corrected - 0.95) < 0.025


def test_the_example_writes_its_page_with_a_chart(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--copies", "20", "--out", str(page)])
    example.main()
    assert "swap rate 5%: coverage naive" in capsys.readouterr().out
    assert "<svg " in page.read_text(encoding="utf-8")
