"""`stirred ledger` as a custodian uses it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stirred.cli.main import run
from stirred.release.ledger import Ledger
from stirred.spec.document import to_json
from tests.release.ledger.making import COUNTIES, request, specification
from tests.snapshots import same_as_kept, steady

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["ledger", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


def told(command: Command, *arguments: str) -> Any:
    code, out, err = command(*arguments, "--json")
    assert code == 0, out + err
    return json.loads(out)


def test_the_account_of_a_census(command: Command) -> None:
    assert command("init", "a.ledger", "--dataset", "2020")[0] == 0
    for name in ("topdown", "safetab-p", "safetab-h", "phsafe"):
        code, out, _ = command("add", "a.ledger", f"das-2020-{name}", "--mechanism", name)
        assert code == 0
        assert "committed" in out
    code, out, _ = command("total", "a.ledger")
    assert code == 0
    assert "These releases cannot be combined into one number." in out
    code, out, _ = command("total", "a.ledger", "--unit", "person", "--kappa", "household:person=1")
    assert "ρ²=55.371-DP(X_CEF, D_c, d_HamS^person, D_NoR)" in out
    assert "entry 3: unit post-imputation household -> post-imputation person, factor 1" in " ".join(out.split())
    stated = ["--unit", "person", "--kappa", "household:person=1", "--delta", "1e-10"]
    facts = told(command, "total", "a.ledger", *stated, "--copies", "2")
    assert facts["parts"][0]["specification"]["budget"]["shown"] == "364.32"
    assert facts["parts"][0]["entries"] == [1, 2, 3, 4]
    assert facts["one"] is True


def test_everything_has_a_json_of_the_same_facts(command: Command, tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(to_json(specification("3")), encoding="utf-8")
    made = told(command, "init", "a.ledger", "--dataset", "d")
    added = told(
        command, "add", "a.ledger", "spec.json", "--purpose", "p", "--sample", "s", "--amplified", "--who", "bo"
    )
    assert (added["number"], added["spent"], added["sample"], added["who"]) == (1, True, "s", "bo")
    derived = told(command, "add", "a.ledger", "--derived-from", "1", "--mechanism", "table")
    assert derived["derived_from"] == [added["id"]]
    listed = told(command, "show", "a.ledger")
    assert [entry["id"] for entry in listed["entries"]] == [added["id"], derived["id"]]
    assert told(command, "show", "a.ledger", "1") == listed["entries"][0]
    assert told(command, "withdraw", "a.ledger", "1", "--reason", "r")["status"] == "withdrawn"
    assert told(command, "verify", "a.ledger")["sound"] is True
    assert told(command, "verify", "a.ledger", "--head", made["head"])["sound"] is True
    assert told(command, "recover", "a.ledger") == []
    policy = told(command, "policy", "a.ledger")
    assert (policy["policy"], policy["left"], policy["problems"], len(policy["changes"])) == (None, [], [], 1)
    text = told(command, "export", "a.ledger")["text"]
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    assert told(command, "init", "b.ledger", "--from", "x.json")["id"] == made["id"]


def test_copies_of_nothing_that_was_imputed_are_refused(command: Command, tmp_path: Path) -> None:
    command("init", "a.ledger", "--dataset", "d")
    assert command("total", "a.ledger", "--copies", "2")[0] == 0  # nothing is there, and nothing is wrong
    (tmp_path / "spec.json").write_text(to_json(specification("3")), encoding="utf-8")
    command("add", "a.ledger", "spec.json")
    for use in (["total"], ["export", "--format", "markdown"], ["export", "--format", "opendp"]):
        code, out, err = command(use[0], "a.ledger", *use[1:], "--copies", "2")
        assert code == 2
        assert out == ""
        assert "promise nothing about records after imputation" in err
    command("add", "a.ledger", "das-2020")  # of imputed records: to this one it applies
    code, out, _ = command("total", "a.ledger", "--copies", "2")
    assert code == 0
    assert "ρ²=221.484" in out
    assert "promise nothing about records after imputation" in " ".join(out.split())


def test_reservations_are_recovered_and_aborted(command: Command, tmp_path: Path) -> None:
    command("init", "a.ledger", "--dataset", "d")
    ledger = Ledger.open(tmp_path / "a.ledger")
    for _ in range(3):
        ledger.reserve(request())
    ledger.draw(2)
    assert told(command, "abort", "a.ledger", "1", "--reason", "r")["spent"] is False
    code, out, _ = command("recover", "a.ledger", "--dry-run")
    assert (code, "Nothing was done" in out) == (0, True)
    facts = told(command, "recover", "a.ledger")
    assert [(fact["number"], fact["spent"]) for fact in facts] == [(2, True), (3, False)]
    code, out, _ = command("show", "a.ledger")
    assert "aborted, spent" in " ".join(out.split())
    code, out, _ = command("total", "a.ledger")
    assert "aborted before anything random happened" in out


def test_what_is_not_protected_stands_first_in_the_total_and_in_an_entry(command: Command, tmp_path: Path) -> None:
    command("init", "a.ledger", "--dataset", "d")
    Ledger.open(tmp_path / "a.ledger").add(request(specification=specification("3", invariants=[COUNTIES])))
    for arguments in (["total", "a.ledger"], ["show", "a.ledger", "1"]):
        code, out, _ = command(*arguments)
        assert code == 0
        listed = out.index(
            "NOT protected, because it is held fixed (published exactly, or taken as known):\n"
            "    - the number of households in each county"
        )
        assert out.index("ρ²=3-DP") < listed < out.index("  who ")


def test_an_entry_shows_its_settings_line_by_line_and_leaves_out_what_is_empty(
    command: Command, tmp_path: Path
) -> None:
    command("init", "a.ledger", "--dataset", "d")
    parameters = {
        "data": {"households": "homes.csv", "codebook": None, "id": ["hid", "no"]},
        "mechanism": {"rate": "1/2", "seeds": 0, "hold": [], "fine_match": ["size"], "quick": False},
        "tables": [{"columns": ["county", "size"]}, {"name": "second", "columns": ["county"]}],
        "title": "",
    }
    ledger = Ledger.open(tmp_path / "a.ledger")
    ledger.reserve(request(parameters=parameters))
    ledger.add(request("2", sample="s", amplified=True))
    _, out, _ = command("show", "a.ledger", "1")
    settings = out.split("settings:\n")[1].split("\n\n")[0].splitlines()
    assert [tuple(re.split(" {2,}", line.strip())) for line in settings] == [
        ("data households", "homes.csv"),
        ("data id", "hid, no"),
        ("mechanism fine match", "size"),
        ("mechanism rate", "1/2"),
        ("mechanism seeds", "0"),
        ("tables 1 columns", "county, size"),
        ("tables 2 columns", "county"),
        ("tables 2 name", "second"),
    ]
    assert not {"None", "[]", "elsewhere", "amplified"} & set(out.split())
    _, out, _ = command("show", "a.ledger", "2")
    assert "settings:" not in out
    assert "elsewhere  yes" in out
    assert "amplified  yes" in out


def test_a_policy_is_set_shown_and_removed(command: Command, tmp_path: Path) -> None:
    command("init", "a.ledger", "--dataset", "d")
    (tmp_path / "policy.toml").write_text(
        "who = ['ana']\n[[limits]]\nbudget = 3\noutput = 'zcdp'\nunit = 'person'\n[invariants]\nacceptable = []\n"
    )
    assert command("policy", "a.ledger", "policy.toml")[0] == 2  # without a reason
    code, out, _ = command("policy", "a.ledger", "policy.toml", "--reason", "begin")
    assert code == 0
    assert "ρ² ≤ 3 per person" in out
    assert command("policy", "a.ledger", "policy.toml", "--none", "--reason", "r")[0] == 2
    code, out, _ = command("policy", "a.ledger", "--none", "--reason", "end")
    assert "no policy is in force" in out


def test_a_broken_ledger_exits_with_1_and_says_where(command: Command, tmp_path: Path) -> None:
    command("init", "a.ledger", "--dataset", "d")
    command("add", "a.ledger", "das-2020")
    path = tmp_path / "a.ledger"
    path.write_bytes(path.read_bytes().replace(b"elsewhere", b"nowhere !"))
    code, out, _ = command("verify", "a.ledger")
    assert code == 1
    assert "row 1: its content is not what was written (content)" in out
    facts = json.loads(command("verify", "a.ledger", "--json")[1])
    assert facts["break"] == {"row": 1, "kind": "content", "what": "its content is not what was written (content)"}
    assert command("total", "a.ledger")[0] == 1


MISTAKES = [
    ["total", "missing.ledger"],
    ["init", "b.ledger", "--dataset", " "],
    ["init", "no/a.ledger", "--dataset", "d"],
    ["init", "b.ledger", "--dataset", "d", "--policy", "missing.toml"],
    ["add", "a.ledger"],
    ["add", "a.ledger", "nothing-like-this"],
    ["add", "a.ledger", "zcdp"],
    ["show", "a.ledger", "7"],
    ["abort", "a.ledger", "7", "--reason", "r"],
    ["withdraw", "a.ledger", "7"],
    ["export", "a.ledger", "--format", "pdf"],
    ["init", "b.ledger", "--from", "missing.json"],
    ["total", "a.ledger", "--output", "approximate"],
    ["total", "a.ledger", "--kappa", "nonsense"],
    ["total", "a.ledger", "--copies", "none"],
    ["total", "a.ledger", "--copies", "0"],
    ["total", "a.ledger", "--copies", "2", "--because", " "],
    ["export", "a.ledger", "--copies", "-1"],
    ["add", "a.ledger", "das-2020", "--when", "soon"],
    ["verify", "a.ledger", "--head", "ab"],
    ["show", "oracle://x/y"],
]


def test_mistakes_exit_with_2_and_write_nothing(command: Command, tmp_path: Path) -> None:
    command("init", "a.ledger", "--dataset", "d")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    pages = []
    for arguments in MISTAKES:
        code, _, err = command(*arguments)
        assert code == 2, arguments
        pages.append(f"{' '.join(arguments)}\n    {err.strip()}")
        code, out, _ = command(*arguments, "--json")
        assert code == 2, arguments
        assert json.loads(out)["errors"][0].keys() == {"what", "where", "remedy"}
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, arguments
    same_as_kept("mistakes", steady("\n".join(pages), tmp_path))


def test_a_release_without_a_specification_is_recorded_and_totals_say_at_least(command: Command) -> None:
    command("init", "a.ledger", "--dataset", "2020")
    command("add", "a.ledger", "das-2020", "--mechanism", "DAS")
    code, out, _ = command("add", "a.ledger", "--unspecified", "no budget is published", "--mechanism", "estimates")
    assert (code, "entry 2 (estimates): committed" in out) == (0, True)
    total = command("total", "a.ledger")[1]
    assert "at least ρ²=55.371-DP(X_CEF" in total
    assert "2: no budget is published" in total
    facts = told(command, "total", "a.ledger")
    assert (facts["at_least"], facts["unspecified"][0]["entries"]) == (True, [2])
    assert told(command, "show", "a.ledger", "2")["unspecified"] == "no budget is published"
    assert "not specified" in command("show", "a.ledger")[1]
    page = command("export", "a.ledger", "--format", "markdown")[1]
    assert "Together, at least: entry 1" in page
    assert "- entry 2: no budget is published" in page
    assert "At least: other releases have no specification" in command("export", "a.ledger", "--format", "opendp")[1]
    assert told(command, "verify", "a.ledger")["sound"]
    command("export", "a.ledger", "--out", "all.json")
    assert command("init", "b.ledger", "--from", "all.json")[0] == 0
    assert told(command, "total", "b.ledger")["at_least"]


def test_limits_say_what_is_left_at_most(command: Command, tmp_path: Path) -> None:
    text = '[[limits]]\nbudget = "60"\noutput = "zcdp"\nunit = "person"\n[invariants]\nacceptable = "any"\n'
    (tmp_path / "policy.toml").write_text(text, encoding="utf-8")
    command("init", "a.ledger", "--dataset", "2020", "--policy", "policy.toml")
    command("add", "a.ledger", "das-2020")
    command("add", "a.ledger", "--unspecified", "a special tabulation")
    assert "at least ρ²=55.371 is spent and at most 4.629 is left" in " ".join(command("policy", "a.ledger")[1].split())
    command("add", "a.ledger", "das-2020-safetab-p")
    told_ = " ".join(command("policy", "a.ledger")[1].split())
    assert "nothing is left: at least ρ²=75.147 is spent" in told_


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--unspecified", " "], "there is no specification"),
        (["das-2020", "--unspecified", "why"], "a release without a specification is given one"),
        (["--unspecified", "why", "--derived-from", "1"], "or said to cost nothing"),
        (["das-2020", "--includes", "2"], "entry 2 has no specification, so nothing shows that it is contained"),
    ],
)
def test_what_is_unspecified_has_no_specification_and_is_contained_in_none(
    command: Command, more: list[str], what: str
) -> None:
    command("init", "a.ledger", "--dataset", "2020")
    command("add", "a.ledger", "das-2020-phsafe")
    command("add", "a.ledger", "--unspecified", "a special tabulation")
    code, _, err = command("add", "a.ledger", *more)
    assert code == 2
    assert what in err


def test_a_reservation_needs_a_specification(tmp_path: Path) -> None:
    from stirred.release.ledger import Request
    from stirred.spec.problems import StirredError

    ledger = Ledger.create(tmp_path / "a.ledger", dataset="2020")
    with pytest.raises(StirredError, match="only a release made elsewhere may have no specification"):
        ledger.reserve(Request(mechanism="x", unspecified="why"))


def test_making_a_ledger_loads_nothing_of_surveys(tmp_path: Path) -> None:
    """Samples are a rule of their own, which a ledger loads when an entry has one."""
    code = (
        "import sys; from stirred.cli.main import run\n"
        "assert not run(['ledger', 'init', 'a.ledger', '--dataset', 'd'])\n"
        "assert not run(['ledger', 'total', 'a.ledger'])\n"
        "print([name for name in sys.modules if name.startswith('stirred.survey')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
