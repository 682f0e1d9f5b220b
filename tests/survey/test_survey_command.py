"""`stirred survey`: the options of the issue, the same facts as JSON, and refusals with exit code 2."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from stirred.cli.main import run
from stirred.spec.document import to_json
from stirred.survey.amplify import amplify
from stirred.survey.designs import SRSWOR
from tests.release.ledger.making import pure

LOSSES = [
    ("srswor --n 2 --N 4", 0.6201145070),
    ("srswr --n 3 --N 3", 1.3584972758),
    ("stratified --n 2,1 --N 4,4", 0.6201145070),
    ("cluster --m 1 --M 2 --K 2", 0.8136663235),
    ("cluster --pi 1/2,1/4,1/4 --K 2", 0.8136663235),
    ("systematic --step 2 --N 4 --order known", 0.8136663235),
    ("systematic --step 2 --N 5 --order random", 0.6201145070),
    ("two-stage --m 1 --M 2 --n2 2 --N2 3", 0.6083749933),
    ("poisson --pi 0.1,0.3,0.6 --inner edit", 0.7085130669),
    ("poisson --pi 0.3 --inner add-remove", 0.6260071783),
    ("poisson --n 1 --sizes 1,3 --total 10", 0.4157352218),
    ("pps --n 2 --pi 1/4,3/4", 2 * math.log1p(math.expm1(1) * 3 / 4)),
]


def told(capsys: pytest.CaptureFixture[str], line: str, *more: str) -> Any:
    code = run(["survey", *line.split(), *more, "--json"])
    out = capsys.readouterr().out
    assert code == 0, out
    return json.loads(out)


@pytest.mark.parametrize(("design", "loss"), LOSSES)
def test_amplify_takes_every_design(design: str, loss: float, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, f"amplify --design {design} --epsilon 1")
    assert found["epsilon"] == pytest.approx(loss, abs=1e-9)
    assert found["inner_epsilon"] == 1
    assert {row["attacker"] for row in found["attackers"]} >= {"knows nothing", "nosy neighbour", "journalist"}
    assert run(["survey", *f"amplify --design {design} --epsilon 1".split()]) == 0


@pytest.mark.parametrize(("design", "loss"), LOSSES)
def test_audit_design_agrees_with_the_formula(design: str, loss: float, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, f"audit-design --design {design} --epsilon 1")
    assert found["within"] is True
    assert found["epsilon"] == pytest.approx(loss, abs=1e-8)


def test_audit_design_examines_a_design_without_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "audit-design --epsilon 1", "--samples", "1,2: 1/2; 3,4: 1/2")
    assert found["epsilon"] == pytest.approx(0.8136663235, abs=1e-8)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("deamplify --design poisson --pi 0.2 --epsilon 1", "epsilon", 2.2608678168),
        ("deamplify --design poisson --pi 0.2 --target 1", "epsilon", 2.2608678168),
        ("compose --epsilon 1,2 --pi 0.1,0.1 --joint 0.1", "epsilon", 1.0676559447),
        ("compose --epsilon 1,2 --pi 0.1", "epsilon", 1.0676559447),
        ("compose --epsilon 0.5,1 --pi 1/2,1/2 --joint 1/4", "epsilon", 0.9010443106),
        ("compose --epsilon 1,2 --pi 0.1,0.1 --joint unknown", "epsilon", 3),
        ("poststrat --N 100,200 --n 10,20 --bounds 0,1", "sensitivity", 410 / 21),
        ("poststrat --N 100,200 --n 10,20 --bounds 0,1 --counts public", "sensitivity", 10),
        ("poststrat --N 100,200 --n 10,20 --bounds 0,1 --floor 10", "sensitivity", 300 / 11),
        ("amplify --design stratified --n 10,5 --N 100,5 --epsilon 1 --estimator ht-total --bounds 0,1", "epsilon",
         0.1585650787),
        ("amplify --design srswor --n 2 --N 4 --epsilon 1 --response 0.3 --assume-known", "epsilon", 0.2293182679),
        ("amplify --design srswor --n 2 --N 4 --epsilon 1 --duplicates 2", "epsilon", 1.2402290139),
    ],
)  # fmt: skip
def test_numbers_of_the_other_commands(line: str, key: str, value: float, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, line)[key] == pytest.approx(value, abs=1e-9)
    assert run(["survey", *line.split()]) == 0


def test_the_rule_for_totals_says_which_noise_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    """A mechanism may spend all of epsilon on a change of half the sensitivity: then nothing is lost by half."""
    of_total = "--design srswor --n 2 --N 4 --epsilon 1 --estimator ht-total --bounds 0,1"
    for line in (f"amplify {of_total}", f"deamplify {of_total}",
                 "compare --n 100 --weights 5,40 --bounds 0,1 --epsilon 1 --estimator ht-total"):  # fmt: skip
        assert any("as Laplace noise does" in each for each in told(capsys, line)["assumptions"])
        assert run(["survey", *line.split()]) == 0
        assert "as Laplace noise does" in " ".join(capsys.readouterr().out.split())
    plain = line.removesuffix(" --estimator ht-total")
    assert "Laplace" not in json.dumps(told(capsys, plain))


def test_assumptions_are_shown_and_not_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    line = "--design srswor --n 2 --N 4 --epsilon 1 --response 0.3 --assume-known"
    found = told(capsys, f"amplify {line}")
    for command in ("amplify", "deamplify", "attacker"):
        assert run(["survey", command, *line.split()]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "respond independently of each other" in shown
        if command == "amplify":
            assert all(each in shown for each in found["assumptions"])
    for line in ("--pi 0.1", "--pi 0.1,0.1 --joint 0.02", "--pi 0.1,0.1 --joint independent"):
        assumed = told(capsys, f"compose --epsilon 1,2 {line}")["assumptions"]
        assert run(["survey", "compose", "--epsilon", "1,2", *line.split()]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert assumed
        assert all(each in shown for each in assumed)


def test_settings_statement_attacker_and_compare(capsys: pytest.CaptureFixture[str]) -> None:
    listed = told(capsys, "settings")["settings"]
    assert [row["number"] for row in listed] == list(range(1, 12))
    assert told(capsys, "settings --start sample --invariant frame")["settings"][0]["number"] == 6
    stated = told(capsys, "statement --start frame --invariant frame-variables")
    assert stated["weights_fixed"] is True
    assert "frame variables" in stated["protects"]
    attacked = told(capsys, "attacker --epsilon 1 --rate 0.1 --rho 0.3")["attackers"]
    rows = {row["attacker"]: row["epsilon"] for row in attacked}
    assert rows["believes"] == pytest.approx(0.4157352218, abs=1e-9)
    assert rows["nosy neighbour"] == 1
    compared = told(capsys, "compare --n 1000 --weights 5,40 --bounds 0,1 --epsilon 1")["rows"]
    assert len(compared) == 11
    assert [row["scale"] for row in compared[:4]] == [35005] * 4
    for line in ("settings", "statement --start sample", "attacker --epsilon 1 --rate 0.1", "compare"):
        assert run(["survey", *line.split()]) == 0


@pytest.mark.parametrize(
    ("line", "where", "said"),
    [
        ("amplify --design systematic --step 2 --N 8 --order by-record --epsilon 1", "--order", "OrderFromRecords"),
        ("amplify --design stratified --n 1 --N 2 --allocation neyman --epsilon 1", "--allocation", "0, 4"),
        ("amplify --design poisson --pi 0.3 --epsilon 1 --inner substitute", "--inner", "IncompatibleRelation"),
        ("amplify --design poisson --n 1 --sizes 1,2 --epsilon 1", "--total", "SizeTotalNotPublic"),
        ("amplify --design poisson --sizes 1,2 --epsilon 1", "--sizes", "--n and --total"),
        ("amplify --design srswor --n 1 --N 2 --epsilon 1 --start responding", "--start", "NoAmplification"),
        ("amplify --design srswor --n 1 --N 2 --epsilon 1 --membership public", "--start", "NoAmplification"),
        ("amplify --design srswor --n 1 --N 2 --epsilon 1 --response 0.2", "--response", "UnverifiedAmplification"),
        (
            "amplify --design srswor --n 1 --N 10 --epsilon 1 --coverage .5 --assume-known",
            "--coverage",
            "population",
        ),
        ("deamplify --design srswor --n 1 --N 2 --epsilon 1 --coverage .5 --assume-known", "--coverage", "population"),
        ("attacker --rate 0.1 --epsilon 1 --coverage .5 --assume-known", "--coverage", "population"),
        ("amplify --design stratified --n 2,1 --N 4,2 --start frame --epsilon 1", "--start", "AllocationFromData"),
        (
            "deamplify --design cluster --m 1 --M 9 --K 2 --start frame --epsilon 1",
            "--start",
            "AllocationFromData",
        ),
        ("attacker --design two-stage --m 1 --M 2 --n2 1 --N2 2 --start frame --epsilon 1", "--start", "change"),
        ("amplify --design pps --n 2 --pi 0.2,0.3 --method fixed-size --epsilon 1", "--method", "UnsupportedDesign"),
        ("amplify --design srswor --n 3 --N 2 --epsilon 1", "--n", "cannot be drawn"),
        ("amplify --design srswor --n 1 --N 2 --epsilon x", "--epsilon", "not a loss"),
        ("amplify --design srswor --n 1 --N 2", "--epsilon", "is needed"),
        ("amplify --design census --epsilon 1", "--design", "not a design"),
        ("deamplify --design srswor --n 1 --N 2 --target 0", "--target", "above 0"),
        ("deamplify --design srswor --n 1 --N 2", "--epsilon", "given once"),
        ("deamplify --design srswor --n 1 --N 2 --epsilon 0", "--epsilon", "above 0"),
        ("compare --epsilon 0", "--epsilon", "above 0"),
        ("compare --weights 40,5", "--weights", "such as 5,40"),
        ("compare --n 0", "--n", "write 1 or more"),
        ("attacker --rate 2 --epsilon 1", "--rate", "did you mean 2%"),
        ("compose --epsilon 1,2 --pi 0.1,0.1", "--joint", "SharedSampleError"),
        ("poststrat --N 9,9 --n 1,5 --bounds 0,1", "--n", "EmptyCell"),
        ("poststrat --N 9,9 --n 2,5", "--bounds", "UnboundedValues"),
        ("poststrat --N 9,9 --n 2,5 --bounds 0,1,2", "--bounds", "not two numbers"),
        ("attacker --epsilon 1", "--rate", "a rate, or a design"),
        ("statement", "--start", "one setting"),
        ("settings --start census", "--start", "not a stage"),
        ("settings --start frame --invariant sample", "--invariant", "frame-variables"),
        ("audit-design --design srswor --n 6 --N 12 --epsilon 1", "--design", "TooLarge"),
        ("audit-design --samples 1,2 --epsilon 1", "--samples", "a colon"),
    ],
)
def test_refusals_name_the_option_and_leave_with_2(
    line: str, where: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["survey", *line.split(), "--json"]) == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["where"] == where
    assert said in error["what"] + error["remedy"]
    assert error["remedy"]


DRAWN = ["--sample", "2026", "--amplified", "--design", "srswor n=100 N=1000", "--inner"]


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    for inner in ("1", "2"):
        loss = amplify(inner, SRSWOR(100, 1000)).epsilon
        (tmp_path / f"{inner}.json").write_text(to_json(pure(str(loss))), encoding="utf-8")
    assert run(["ledger", "init", "a.ledger", "--dataset", "a survey"]) == 0
    assert run(["ledger", "add", "a.ledger", "1.json", *DRAWN, "1"]) == 0
    return "a.ledger"


@pytest.mark.parametrize(
    ("more", "loss"), [(["2"], 1.0676559447), (["2", "--sample", "2027", "--joint", "2026=1/100"], 0.6525937868)]
)
def test_the_ledger_composes_on_the_sample(
    ledger: str, more: list[str], loss: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ledger", "add", ledger, "2.json", *DRAWN, *more]) == 0
    capsys.readouterr()
    assert run(["ledger", "total", ledger, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["one"] is True
    assert found["parts"][0]["specification"]["budget"]["realised"] == pytest.approx(loss, abs=1e-9)
    assert run(["ledger", "show", ledger, "2"]) == 0
    assert run(["ledger", "verify", ledger]) == 0
    assert run(["ledger", "export", ledger, "--out", "copy.json"]) == 0
    assert run(["ledger", "init", "copy.ledger", "--from", "copy.json"]) == 0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--sample", "s", "--design", "srswor n=1 N=2", "--inner", "1"], "not amplified"),
        (["--sample", "s", "--amplified", "--design", "srswor n=1 N=2"], "go together"),
        (["--sample", "s", "--amplified", "--design", "srswor 1 2", "--inner", "1"], "no name"),
        (["--sample", "s", "--amplified", "--design", "srswor n=1 N=2", "--inner", "inf"], "infinite"),
        ([*DRAWN, "2", "--joint", "2025=2"], "not a probability"),
        ([*DRAWN, "1"], "is at most 0.158566 by this design"),
    ],
)
def test_samplings_that_make_no_sense_are_refused(
    ledger: str, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ledger", "add", ledger, "2.json", *more]) == 2
    assert said in capsys.readouterr().err


FIGURE_6_1 = {0.5: (0.125709, 0.158565), 1: (0.317130, 0.494029), 2: (0.988057, 1.849999), 3: (2.135312, 3.719478),
              5: (5.512578, 7.697823)}  # fmt: skip


def test_figures_have_the_numbers_of_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "figures")
    points = {point["epsilon"]: (point["naive"], point["true"]) for point in found["figure_6_1"]}
    assert points.keys() == FIGURE_6_1.keys()
    for epsilon, pair in FIGURE_6_1.items():
        assert points[epsilon] == pytest.approx(pair, abs=1.5e-6)
    numbers = [panel["setting"] and panel["setting"]["number"] for panel in found["figure_7_2"]]
    assert numbers == [None, 3, 9]
    assert run(["survey", "figures"]) == 0
