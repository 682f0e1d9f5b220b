"""Everyday output names results in words: labels such as R13 or Theorem 1 belong to the theory pages and citations."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stirred.cli.main import run
from tests.world import CODEBOOK_OF_HOMES, households

SOURCE = Path(__file__).resolve().parents[2] / "src" / "stirred"
LABEL = re.compile(r"\bR\d+[a-z]?\b|Theorem|Lemma")
ROLES = ["homes.parquet", "--id", "hid", "--match", "size", "--swap", "county"]
MEMBERS = {
    "permutation": ["--rate", "1/2"],
    "sure": ["--rate", "1"],
    "conditioned": ["--mechanism", "conditioned", "--rate", "1/2"],
    "mallows": ["--mechanism", "mallows", "--epsilon", "3"],
    "shuffle": ["--mechanism", "shuffle", "--rate", "1/2"],
    "two-stage": ["--mechanism", "two-stage", "--rate", "1/2", "--set", "fine_match=tenure", "--set", "fine_rate=1/2"],
    "response": [
        "--mechanism", "response", "--rate", "1/2", "--set", "respond=tenure", "--set", "values=owned,rented",
        "--set", "change=1/10",
    ],
    "noisy": [
        "--mechanism", "noisy", "--rate", "1/2", "--set", "noise_epsilon=1", "--table", "county,tenure", "--codebook",
        "codes.toml",
    ],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    households().write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "codes.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def labels(text: str) -> list[str]:
    return LABEL.findall(text)


def messages() -> Iterator[tuple[str, str]]:
    """Yield every text in the code that is not a docstring, with its place."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented)
                      and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node.value


# What stands in `theorem[]` of a specification: a label with the page of its proof, or with the paper.
CITATION = re.compile(
    r'R\d.*\(docs/theory/[a-z-]+\.md\)|Theorem [12] of ("A Refreshment Stirred, Not Shaken")?', re.DOTALL
)


def test_no_message_in_the_code_has_a_label_but_citations() -> None:
    found = {place: text for place, text in messages() if labels(text) and not CITATION.fullmatch(text)}
    assert found == {}


def test_the_citations_of_a_specification_are_found_by_the_search() -> None:
    """The search sees what it must: otherwise it would pass on anything."""
    assert sum(CITATION.fullmatch(text) is not None for _, text in messages()) >= 10


def commands() -> list[list[str]]:
    """Return all commands, with those inside groups."""
    import typer.main

    from stirred.cli.main import app

    def below(command: object, words: list[str]) -> Iterator[list[str]]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, [*words, name])

    return list(below(typer.main.get_command(app), []))


def test_help_has_no_label(capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands():
        assert run([*words, "--help"]) == 0
        assert labels(capsys.readouterr().out) == [], words
    assert len(commands()) > 30


@pytest.mark.parametrize("options", MEMBERS.values(), ids=MEMBERS.keys())
def test_plans_have_no_label(options: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *ROLES, *options, "--verbose"]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert labels(out + err) == []


@pytest.mark.parametrize("member", ["permutation", "two-stage", "response", "noisy"])
def test_reports_and_readme_have_no_label(member: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["swap", *ROLES, *MEMBERS[member], "--out", "out", "--quiet"]) == 0, capsys.readouterr().err
    for name in ("public/report.html", "internal/report.html", "public/README.md"):
        text = re.sub(r"<(style|script|svg).*?</\1>", "", (folder / "out" / name).read_text("utf-8"), flags=re.DOTALL)
        assert labels(text) == [], name


def test_what_python_prints_has_no_label(folder: Path) -> None:
    program = (
        "import polars, stirred\n"
        "swap = stirred.PermutationSwap(match=['size'], swap=['county'], rate='1/2')\n"
        "homes = polars.read_parquet('homes.parquet').drop('hid')\n"
        "print(swap.plan(homes), swap.release(homes, stirred.Entropy.from_os()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert labels(done.stdout) == []


PLAN = """[data]
households = "homes.parquet"
id = "hid"
{steps}[mechanism]
match = "size"
swap = "county"
rate = {rate}
"""
DROPS = '[[prepare]]\nstep = "drop"\ncolumn = "county"\n'


@pytest.mark.parametrize(
    ("plan", "command", "said"),
    [
        (PLAN.format(steps="", rate="1/2"), "plan p.toml", 'Fix: put it in quotes: rate = "1/2".'),
        (PLAN.format(steps="", rate="5%"), "plan p.toml", 'Fix: put it in quotes: rate = "5%".'),
        (PLAN.format(steps="", rate="0,05"), "plan p.toml", "Fix: decimals have a point: write rate = 0.05."),
        (
            PLAN.format(steps=DROPS, rate="'1/2'") + '[release]\nout = "b"\n',
            "plan p.toml",
            "p.toml [[prepare]] entry 1: this step drops 'county', which [mechanism] names. Fix: leave the step out",
        ),
        (
            "",
            f"swap {' '.join(ROLES)} --rate 1/2 --set unit= --out b",
            "--set unit: it is empty. Fix: say what a record is",
        ),
        (
            "",
            "derive round nowhere --out d",
            "nowhere: there is no such folder. Fix: name the folder of a release",
        ),
        (
            "",
            "topdown interval swapped",
            "this is a release of permutation-swap, which measures nothing. Fix: name a release of topdown.",
        ),
    ],
)
def test_a_mistake_is_answered_with_what_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], plan: str, command: str, said: str
) -> None:
    (folder / "p.toml").write_text(plan, encoding="utf-8")
    if "swapped" in command:
        assert run(["swap", *ROLES, "--rate", "1/2", "--out", "swapped", "--seed", "s", "--quiet"]) == 0
    capsys.readouterr()
    assert run(shlex.split(command)) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_preparing_without_steps_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "p.toml").write_text(PLAN.format(steps="", rate="'1/2'"), encoding="utf-8")
    assert run(["plan", "p.toml", "--prepared", "homes.parquet"]) == 0
    assert "p.toml has no steps: the mechanism sees the file as it is." in " ".join(capsys.readouterr().out.split())
