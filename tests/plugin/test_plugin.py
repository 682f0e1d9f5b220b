"""A mechanism of another package goes through plan, release, ledger, bundle, report, publish and audit unchanged."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit.bundle import audit_bundle
from stirred.audit.exhaustive import audit
from stirred.cli.main import run
from stirred.mechanisms import registry

SETTINGS = ["--set", "column=smokes", "--set", "values=yes,no", "--set", "keep=3/4"]
CHOICE = ["--mechanism", "coin-answers", "--set", "unit=person", *SETTINGS]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("people") / "people.csv"
    pl.DataFrame(
        {
            "age": [str(20 + n % 7) for n in range(400)],
            "region": [["north", "south", "east"][n % 3] for n in range(400)],
            "smokes": ["yes" if n % 5 == 0 else "no" for n in range(400)],
        }
    ).write_csv(path)
    return path


@pytest.fixture(scope="module")
def bundle(installed: Path, people: Path) -> Path:
    ledger, out = people.parent / "people.ledger", people.parent / "bundle"
    assert run(["ledger", "init", str(ledger), "--dataset", "people"]) == 0
    words = ["release", str(plan_file(people, out, ledger)), "--quiet"]
    assert run(words) == 0
    return out


def plan_file(people: Path, out: Path, ledger: Path) -> Path:
    path = people.parent / "plan.toml"
    path.write_text(
        f"""
[data]
households = "{people.name}"

[mechanism]
name = "coin-answers"
unit = "person"
column = "smokes"
values = ["yes", "no"]
keep = "3/4"

[[tables]]
variables = ["region", "smokes"]

[release]
out = "{out.name}"
ledger = "{ledger.name}"
purpose = "a test"
""",
        encoding="utf-8",
    )
    return path


def test_it_is_listed_and_its_settings_are_shown(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["mechanism", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    (own,) = [each for each in listed["mechanisms"] if each["name"] == "coin-answers"]
    assert own["package"] == "coin-answers 0.1.0"
    assert run(["mechanism", "show", "coin-answers"]) == 0
    shown = capsys.readouterr().out
    assert "keep" in shown
    assert "probability that an answer is kept" in shown


def test_it_is_planned_from_options(people: Path, installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(people), *CHOICE, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["keep"] == "3/4"
    assert facts["specification"]["budget"]["exact"] == "ln(3)"
    assert facts["doubts"] == []
    assert run(["plan", str(people), *CHOICE]) == 0
    assert "smokes: each value is replaced by another one with probability 1/4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["--set", "column=smokes", "--set", "keep=3/4"], "values"),
        ([*SETTINGS, "--set", "rate=1/2"], "rate"),
        (["--set", "column=smokes", "--set", "values=yes,no", "--set", "keep=7/4"], "7/4"),
        (["--set", "column=smoke", "--set", "values=yes,no", "--set", "keep=3/4"], "smoke"),
        (["--set", "column=smokes", "--set", "values=yes,maybe", "--set", "keep=3/4"], "declare every value"),
    ],
)
def test_wrong_settings_are_refused_with_what_where_and_remedy(
    settings: Sequence[str], said: str, people: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(people), "--mechanism", "coin-answers", "--set", "unit=person", *settings]
    assert run(command) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert "Traceback" not in shown.err


def test_certainty_is_refused_as_a_promise_of_nothing(
    people: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sure = ["--set", "column=smokes", "--set", "values=yes,no", "--set", "keep=1"]
    command = ["plan", str(people), "--mechanism", "coin-answers", "--set", "unit=person", *sure]
    assert run(command) == 2
    assert "nothing-promised" in capsys.readouterr().err


def test_a_setting_given_twice_is_refused(people: Path, installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["plan", str(people), "--match", "age", "--swap", "region", "--rate", "1/5", "--set", "rate=1/10"]
    assert run(command) == 2
    assert "rate is given by an option and by --set" in capsys.readouterr().err


def test_a_broken_package_is_named_and_breaks_nothing_else(
    people: Path, installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("coin_answers.CoinAnswers.name", "other-name")
    assert run(["mechanism", "list"]) == 0
    assert "cannot be used (coin-answers 0.1.0)" in capsys.readouterr().out
    assert run(["plan", str(people), "--match", "age", "--swap", "region", "--rate", "1/5", "--set", "zzz=1"]) == 2
    assert "there is no setting called 'zzz'" in capsys.readouterr().err
    assert run(["plan", str(people), *CHOICE]) == 2
    assert "of the package coin-answers 0.1.0 cannot be used" in capsys.readouterr().err


def test_a_bundle_of_a_mechanism_that_is_not_installed_is_not_called_a_forgery(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stirred.audit.bundle.is_installed", lambda name: False)
    problems = [str(problem) for problem in audit_bundle(bundle).problems]
    assert len(problems) == 1
    assert "its mechanism 'coin-answers' is not installed here. Fix: install the package" in problems[0]


def test_the_bundle_has_data_table_specification_and_report(bundle: Path, people: Path) -> None:
    released = pl.read_parquet(bundle / "public" / "data.parquet")
    given = pl.read_csv(people)  # a column of numbers is one of numbers, as in what is released
    rest = ["age", "region"]
    assert released.select(rest).sort(rest).equals(given.select(rest).sort(rest))
    changed = int((released["smokes"] == "yes").sum()) - 80
    assert changed > 20  # 320 of 400 said no, and a quarter of them are expected to change
    table = pl.read_csv(bundle / "public" / "tables" / "region-x-smokes.csv", infer_schema=False)
    assert int(table["count"].cast(pl.Int64).sum()) == 400
    document = json.loads((bundle / "public" / "specification.json").read_text(encoding="utf-8"))
    assert document["mechanism"]["name"] == "coin-answers"
    assert document["mechanism"]["settings"]["keep"] == "3/4"
    assert "randomised response" in (bundle / "public" / "report.html").read_text(encoding="utf-8").lower()


def test_the_ledger_accounts_for_it(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ledger", "total", str(bundle.parent / "people.ledger"), "--json"]) == 0
    assert "1.0986" in capsys.readouterr().out


def test_its_bundle_passes_the_audit_and_a_changed_one_does_not(bundle: Path, tmp_path: Path) -> None:
    assert audit_bundle(bundle).passed
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(bundle), str(copy)], check=True)
    data = pl.read_parquet(copy / "public" / "data.parquet")
    data.with_columns(pl.lit("yes").alias("smokes")).write_parquet(copy / "public" / "data.parquet")
    assert not audit_bundle(copy).passed


def test_it_is_published(bundle: Path) -> None:
    assert run(["publish", str(bundle), str(bundle.parent / "published")]) == 0
    assert (bundle.parent / "published" / "data.parquet").exists()


def test_an_identifier_is_doubted_as_everywhere(
    people: Path, installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = people.parent / "named.csv"
    pl.read_csv(people, infer_schema=False).with_row_index("person_id").write_csv(named)
    assert run(["plan", str(named), *CHOICE]) == 2
    assert "identifier:person_id" in capsys.readouterr().err


def coin(installed: Path, **others: Any) -> Any:
    del installed
    given = {"column": "smokes", "values": ["yes", "no", "some"], "keep": "3/5", **others}
    return registry.build("coin-answers", given)


@pytest.mark.parametrize("keep", ["1/2", "3/5", "9/10", "1/10"])
@pytest.mark.parametrize("values", [["yes", "no"], ["yes", "no", "some"]])
def test_its_promise_holds_for_all_pairs_of_its_universes(installed: Path, keep: str, values: list[str]) -> None:
    assert audit(coin(installed, keep=keep, values=values)).passed


def test_the_command_audits_it_by_name(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", "mechanism", "coin-answers", *SETTINGS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "passed"
    assert found["budget_exact"] == "ln(3)"


def test_a_promise_a_tenth_too_small_fails_the_audit(installed: Path) -> None:
    mechanism = coin(installed)

    class TooSmall:
        law = staticmethod(mechanism.law)
        audit_universes = staticmethod(mechanism.audit_universes)

        @staticmethod
        def audit_specification(universe: Any) -> Any:
            promised = mechanism.audit_specification(universe)
            return promised.with_budget(promised.budget.realised * Fraction(9, 10))

    assert not audit(TooSmall()).passed


def test_what_is_drawn_follows_the_law(installed: Path) -> None:
    """400 answers of 'no' kept with probability 3/5: five standard deviations, a false alarm in a million."""
    frame = pl.DataFrame({"age": ["1"] * 20_000, "smokes": ["no"] * 20_000})
    accept = [doubt.name for doubt in coin(installed).plan(frame).doubts]
    released = coin(installed).release(frame, Entropy.from_seed("law"), accept=accept).public["data"]
    shares = {value: int((released["smokes"] == value).sum()) / 20_000 for value in ("no", "yes", "some")}
    assert abs(shares["no"] - 0.6) < 5 * (0.24 / 20_000) ** 0.5
    assert abs(shares["yes"] - 0.2) < 5 * (0.16 / 20_000) ** 0.5


def test_the_plug_in_touches_no_file_of_stirred() -> None:
    """The cost of a mechanism: nothing of ``src`` knows the plug-in, by name or by module."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py")]
    assert not [text for text in sources if "coin_answers" in text or "coin-answers" in text]
