"""`make docs` builds the documentation without a warning."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("builder", ["dummy", pytest.param("html", marks=pytest.mark.slow)])
def test_the_documentation_builds_without_a_warning(builder: str, tmp_path: Path) -> None:
    """The dummy reads all pages and resolves all references; it only writes none of them."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, "-d", str(tmp_path / "trees")]
    done = subprocess.run([*command, "docs", str(tmp_path / builder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sphinx -q -W --keep-going" in (ROOT / "Makefile").read_text(), "`make docs` does the same"


def test_every_example_is_listed() -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    for example in sorted((ROOT / "examples").glob("*.py")):
        assert f"| `{example.name}` |" in page
