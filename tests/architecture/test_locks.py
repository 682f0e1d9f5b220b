"""What custodians install is pinned and hashed, extra by extra, and is what was tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NAMES = ("core", *EXTRAS)


def plain_name(requirement: str) -> str:
    return re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def locked(name: str) -> dict[str, str]:
    """Return the requirements of a lock file, each with all that stands about it."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8").replace("\\\n", " ")
    return {plain_name(line): line for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("name", [*NAMES, "dev"])
def test_every_requirement_is_pinned_and_hashed(name: str) -> None:
    found = locked(name)
    assert len(found) > 20
    for line in found.values():
        assert re.match(r"[A-Za-z0-9._\-\[\]]+==\S+", line), line
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line
        assert "://" not in line


@pytest.mark.parametrize("name", EXTRAS)
def test_the_lock_of_an_extra_covers_it_and_the_core(name: str) -> None:
    found = locked(name)
    assert {plain_name(requirement) for requirement in [*EXTRAS[name], *PROJECT["dependencies"]]} <= set(found)
    core = locked("core")
    assert {package: found[package] for package in core} == core


@pytest.mark.parametrize("name", NAMES)
def test_custodians_get_the_versions_that_were_tested(name: str) -> None:
    tested = {package: line.split()[0] for package, line in locked("dev").items()}
    for package, line in locked(name).items():
        assert tested[package] == line.split()[0]


def test_make_lock_knows_every_extra() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = [line for line in makefile.splitlines() if line.startswith("EXTRAS :=")]
    assert set(line.split()[2:]) == set(EXTRAS)
