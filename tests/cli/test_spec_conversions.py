"""`stirred spec compose` and `convert`: the numbers of their theorems, every step named, and files written once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stirred.spec import (
    GDP,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Derivation,
    Margin,
    OutputPremetric,
    UnitFactor,
    approximate,
    catalogue,
    change_output,
    change_unit,
    compose,
    refine,
)
from stirred.spec.document import from_document, from_json, to_document
from stirred.spec.output_premetric import CHI_SQUARED, KULLBACK_LEIBLER
from tests.cli.running import APPROXIMATE, SURVEY, Command, flat, load, told, words

TINY = approximate("1e-10")
STATED = "stated on the command line"
HOUSEHOLD_IN_PERSON = UnitFactor(old="household", new="person", factor=1, because=STATED)


def derived(derivation: Derivation) -> dict[str, Any]:
    steps = [{"action": s.action, "theorem": s.theorem, "before": s.before, "after": s.after} for s in derivation.steps]
    return {"specification": to_document(derivation.specification), "steps": steps}


CENSUS = ("das-2020-topdown", "das-2020-safetab-p", "das-2020-safetab-h", "das-2020-phsafe")


@pytest.mark.parametrize(
    ("names", "options", "exact"),
    [
        (("das-2020-topdown", "das-2020-phsafe"), ("--unit", "person", "--kappa", "household:person=1"), "3561/200"),
        (CENSUS, ("--unit", "person", "--kappa", "household:person=1"), "55371/1000"),
        (("das-2020-topdown", "das-2020-safetab-p"), (), "17533/500"),
        (("randomised-response", "randomised-response"), (), "ln(9)"),
    ],
)
def test_budgets_of_releases_add_up(
    names: tuple[str, ...], options: tuple[str, ...], exact: str, command: Command
) -> None:
    meant = compose([load(name) for name in names], unit="person" if options else None, units=[HOUSEHOLD_IN_PERSON])
    facts = told(command, "spec", "compose", *names, *options)
    assert facts == derived(meant)
    assert facts["specification"]["budget"]["exact"] == exact
    shown = words(command, "spec", "compose", *names, *options)
    assert shown.startswith(f"{' + '.join(names)} {meant.specification.notation} who ")
    assert all(flat(str(step)) in shown.split(" derived by: ")[1] for step in meant.steps)


def test_a_delta_lets_pure_and_approximate_releases_add_up(command: Command) -> None:
    for name, document in (("pure.json", SURVEY), ("approximate.json", APPROXIMATE)):
        Path(name).write_text(json.dumps(document), encoding="utf-8")
    reached = told(command, "spec", "compose", "pure.json", "approximate.json", "--delta", "1e-10")["specification"]
    assert (reached["budget"]["exact"], reached["output_premetric"]["delta"]) == ("3", "1/10000000000")


def by_parts(name: str, factor: int) -> Derivation:
    found = catalogue.load(name).in_unit("household", factor=factor, because="stated on the command line")
    assert found is not None
    return found


def by_unit(name: str, factor: int, *, unit: str = "household", people: bool = False) -> Derivation:
    return change_unit(load(name), unit=unit, factor=factor, because=STATED, post_imputation=False if people else None)


RENYI = OutputPremetric(name="D_Renyi", order=2)  # type: ignore[arg-type]
CONVERSIONS: list[tuple[list[str], str, Callable[[], Derivation]]] = [
    (["randomised-response", "--output", "zcdp"], "1/2*ln(3)",
     lambda: change_output(load("randomised-response"), to=ZCDP)),
    (["randomised-response", "--output", "zcdp", "--method", "bun-steinke"], "1/2*ln(3)*ln(3)",
     lambda: change_output(load("randomised-response"), to=ZCDP, method="bun-steinke")),
    (["randomised-response", "--output", "tv"], "1/2",
     lambda: change_output(load("randomised-response"), to=TOTAL_VARIATION)),
    (["randomised-response", "--output", "pure"], "ln(3)",
     lambda: change_output(load("randomised-response"), to=PURE)),
    (["das-2020", "--output", "approximate", "--delta", "1e-10"], "2*sqrt(55371/500*ln(100000)) + 55371/1000",
     lambda: change_output(load("das-2020"), to=TINY)),
    (["das-2020", "--output", "APPROXIMATE", "--delta", "1e-10"], "2*sqrt(55371/500*ln(100000)) + 55371/1000",
     lambda: change_output(load("das-2020"), to=TINY)),
    (["das-2020", "--output", "D_Mult^delta", "--delta", "1e-10", "--at-distance", "2"],
     "2*sqrt(55371/125*ln(100000)) + 55371/250", lambda: change_output(load("das-2020"), to=TINY, at_distance=2)),
    (["das-2020", "--output", "Renyi", "--order", "2"], "55371/500",
     lambda: change_output(load("das-2020"), to=RENYI)),
    (["das-2020", "--output", "D_Renyi", "--order", "2", "--at-distance", "3"], "498339/500",
     lambda: change_output(load("das-2020"), to=RENYI, at_distance=3)),
    (["das-2020", "--output", "kl", "--at-distance", "2"], "55371/250",
     lambda: change_output(load("das-2020"), to=KULLBACK_LEIBLER, at_distance=2)),
    (["randomised-response", "--output", "chi2"], "4/3",
     lambda: change_output(load("randomised-response"), to=CHI_SQUARED)),
    (["das-2020-safetab-p", "--unit", "household", "--factor", "6"], "88992/125",
     lambda: by_unit("das-2020-safetab-p", 6)),
    (["das-2020-topdown", "--unit", "household", "--factor", "6"], "27849/100",
     lambda: by_parts("das-2020-topdown", 6)),
    (["das-2020", "--unit", "person", "--factor", "2", "--people"], "55371/250",
     lambda: by_unit("das-2020", 2, unit="person", people=True)),
    (["das-2020", "--refine", "household: size x tenure @ county", "--refine", "person"], "55371/1000",
     lambda: refine(load("das-2020"), invariants=[
         Margin(of="household", variables=("size", "tenure"), level="county"), Margin(of="person")])),
]  # fmt: skip


@pytest.mark.parametrize(("options", "exact", "meant"), CONVERSIONS, ids=[" ".join(case[0]) for case in CONVERSIONS])
def test_a_conversion_has_the_number_of_its_theorem(
    options: list[str], exact: str, meant: Callable[[], Derivation], command: Command
) -> None:
    facts = told(command, "spec", "convert", *options)
    assert facts == derived(meant())
    assert facts["specification"]["budget"]["exact"] == exact
    shown = words(command, "spec", "convert", *options)
    assert shown.startswith(f"{options[0]} {meant().specification.notation} who ")
    assert all(flat(str(step)) in shown for step in meant().steps)


def test_a_conversion_refines_then_changes_the_unit_then_the_output(command: Command) -> None:
    options = ["--output", "gdp", "--unit", "household", "--factor", "2", "--because", "pairs", "--refine", "record"]
    facts = told(command, "spec", "convert", "pure-dp", "--budget", "1", *options)
    path = refine(load("pure-dp").with_budget("1"), invariants=[Margin(of="record")])
    path = path.then(change_unit(path.specification, unit="household", factor=2, because="pairs"))
    assert facts == derived(path.then(change_output(path.specification, to=GDP)))
    assert "pairs" in facts["specification"]["assumptions"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["compose", "das-2020-topdown", "das-2020-safetab-p"],
        ["convert", "das-2020", "--output", "approximate", "--delta", "1e-10"],
        ["export", "das-2020", "--format", "json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_written_specification_reads_back_and_is_never_overwritten(arguments: list[str], command: Command) -> None:
    out = Path("new.json")
    code, text, err = command("spec", *arguments, "--out", str(out), "--json")
    facts = json.loads(text)
    written = from_json(out.read_text(encoding="utf-8"))
    assert (code, err) == (0, "wrote new.json\n")
    assert written == (from_json(facts["text"]) if "text" in facts else from_document(facts["specification"]))
    out.write_text("mine", encoding="utf-8")
    assert command("spec", *arguments, "--out", str(out)) == (
        2, "", "new.json: this file exists already. Fix: choose another name, or remove it.\n"
    )  # fmt: skip
    assert out.read_text(encoding="utf-8") == "mine"
