"""The package as installed, and the files that describe the project."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

import stirred
from tests.commit_subject import problems

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_version_in_the_code_is_the_version_installed() -> None:
    assert stirred.__version__ == version("stirred")


def test_the_version_is_written_once_and_the_citation_repeats_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"] == {"path": "src/stirred/__init__.py"}
    assert str(read_yaml(ROOT / "CITATION.cff")["version"]) == stirred.__version__


# The keys of CFF 1.2.0 (schema-guide.md of the Citation File Format), at the top.
CFF_KEYS = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact"),
    *("repository-code", "title", "type", "url", "version"),
}


def test_the_citation_is_cff_and_names_the_paper() -> None:
    citation = read_yaml(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert set(citation) <= CFF_KEYS
    assert citation["type"] == "software"
    for cited in (citation, *citation["references"]):
        assert cited["title"]
        assert cited["type"]
        assert all({"name"} == set(each) or {"family-names", "given-names"} == set(each) for each in cited["authors"])
    paper = citation["references"][0]
    assert paper["title"].startswith("A Refreshment Stirred, Not Shaken")
    assert [author["family-names"] for author in paper["authors"]] == ["Bailie", "Gong", "Meng"]


def test_wheel_and_sdist_are_built_offline_with_the_one_version_and_the_project_files(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    named = f"stirred-{stirred.__version__}"
    with zipfile.ZipFile(tmp_path / f"{named}-py3-none-any.whl") as wheel:
        metadata = wheel.read(f"{named}.dist-info/METADATA").decode()
    assert f"\nVersion: {stirred.__version__}\n" in metadata
    with tarfile.open(tmp_path / f"{named}.tar.gz") as sdist:
        names = {name.removeprefix(f"{named}/") for name in sdist.getnames()}
    kept = {"SECURITY.md", "CITATION.cff", "CHANGELOG.md", "LICENSE", "README.md", "docs/releasing.md"}
    assert kept <= names
    assert not [name for name in names if name.startswith((".venv", "build/"))]


def test_every_issue_template_warns_of_confidential_data() -> None:
    forms = [path for path in TEMPLATES if path.name != "config.yml"]
    assert {path.name for path in forms} == {"bug.yml", "question.yml"}
    for path in forms:
        form = read_yaml(path)
        assert form["name"]
        assert form["description"]
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids))
        assert "confidential data" in form["body"][0]["attributes"]["value"]
        assert form["body"][-1]["attributes"]["options"][0]["required"]
    assert read_yaml(ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml")["blank_issues_enabled"] is False
    security = (ROOT / ".github" / "ISSUE_TEMPLATE" / "security.md").read_text(encoding="utf-8")
    _, front, body = security.split("---\n", 2)
    assert set(yaml.safe_load(front)) == {"name", "about"}
    assert "SECURITY.md" in body


def test_the_security_page_says_how_to_report_and_what_is_in_scope() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    found = re.findall(r"^## (.*)", page, re.M)
    assert found == ["How to report", "In scope", "Out of scope", "What somebody inside can do", "Supported versions"]
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (ROOT / link).exists(), link


def test_the_hooks_before_a_commit_need_no_network() -> None:
    repos = read_yaml(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    hooks = {hook["id"]: hook for repo in repos for hook in repo["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format", "mypy", "commit-subject"}
    for hook in hooks.values():
        assert hook["language"] == "system"
        assert hook["entry"].startswith(".venv/bin/")
    assert hooks["commit-subject"]["stages"] == ["commit-msg"]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Refuse to compare budgets across flavors\n\nBecause.", []),
        ("# a comment\nRefuse it\n", []),
        ("x" * 71, []),
        ("Merge branch 'a' " + "x" * 80, []),
        ("x" * 72, ["the subject has 72 characters; write fewer than 72"]),
        ("Refuse it\nat once", ["the second line is not empty"]),
        ("Refuse it.", ["the subject ends with a full stop"]),
        ("", ["there is no subject"]),
        ("\nRefuse it", ["there is no subject", "the second line is not empty"]),
    ],
)
def test_commit_subjects_are_checked(message: str, found: list[str], tmp_path: Path) -> None:
    assert problems(message) == found
    (tmp_path / "message").write_text(message, encoding="utf-8")
    command = [sys.executable, str(ROOT / "tests" / "commit_subject.py"), str(tmp_path / "message")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == bool(found)
    assert done.stderr.count("commit message: ") == len(found)
