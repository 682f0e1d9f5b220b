"""Section 5: the totals of the 2020 Census come out of budget files and plans, as printed and sharper."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.mechanisms.tables.census_2020 import LARGEST, mechanisms, parts, totals
from stirred.mechanisms.tables.phsafe import PHSafe
from stirred.release.ledger import Ledger, Request
from stirred.release.ledger.currency import Currency
from stirred.spec import UnitFactor, approximate, catalogue
from stirred.spec.exact import exact
from tests.paper.printed import assert_prints
from tests.paper.published import DELTA

SUMS = {total.name: total for total in totals()}
PRINTED, RUN, SHARP, PLACE, MOVE, *HOUSEHOLD = SUMS.values()


def test_the_budget_files_add_up_to_the_configured_totals() -> None:
    assert {part.name: str(exact(part.rho)) for part in parts()[4:]} == {
        "safetab-p": "618/125",
        "safetab-h": "4447651/500000",
        "phsafe": "1257281/1000000",
    }
    assert [float(part.rho) for part in parts()[4:]] == [4.944, 8.895302, 1.257281]


def test_replacing_a_record_costs_what_each_structure_says() -> None:
    """SafeTab-P 9.888 and not 19.776, SafeTab-H 17.790604, PHSafe 0.488408 and not 2.514562."""
    p, h, s = parts()[4:]
    assert (p.in_place, p.run) == (Fraction("9.888"), Fraction("19.776"))
    assert (h.in_place, h.run) == (Fraction("17.790604"), Fraction("17.790604"))
    assert_prints(s.in_place, "0.488408")
    assert s.run == Fraction("2.514562")
    assert_prints(s.may_move, "1.953631")
    assert_prints(h.may_move, "71.162")


def test_the_printed_total_comes_from_rounded_parts() -> None:
    """Table 4, fifth row: 55.371 and 126.78."""
    assert PRINTED.rho2 == Fraction("55.371")
    assert_prints(PRINTED.epsilon, "126.78")
    assert_prints(PRINTED.epsilon, "126.784287")


def test_running_plans_with_the_printed_factors_give_a_little_more() -> None:
    assert_prints(RUN.rho2, "55.375035")
    assert_prints(RUN.epsilon, "126.790924")
    assert_prints(RUN.epsilon, "126.79")


def test_safetab_p_by_its_structure_takes_a_fifth_off_the_total() -> None:
    assert SHARP.rho2 == Fraction("45.483")
    assert_prints(SHARP.epsilon, "110.206559")
    cks, gaussian = SHARP.sharper
    assert_prints(cks, "108.569142")
    assert_prints(gaussian, "105.389730")


def test_all_parts_tightened_and_where_the_person_may_move() -> None:
    assert_prints(PLACE.rho2, "43.460881")
    assert_prints(PLACE.epsilon, "106.729317")
    assert_prints(MOVE.rho2, "121.474360")


def test_a_household_is_not_charged_twice_for_what_is_about_households() -> None:
    printed, scaled, tightened = (total.rho2 for total in HOUSEHOLD)
    assert printed == Fraction("272954540855.371")
    assert scaled == Fraction("553698925855.371")
    assert_prints(tightened, "174060774568.858")
    entry = catalogue.load("das-2020").in_unit("household", factor=LARGEST, because="production bound")
    assert entry is not None
    assert entry.specification.budget.realised == exact(printed)


def test_a_record_that_moves_between_the_two_runs_costs_less_than_one_replaced() -> None:
    """The run of Puerto Rico has no nation: 4.944 + 2.643 = 7.587, below 9.888 (disjoint persons, take the larger)."""
    p = mechanisms()[0]
    island = sum((part.rho for part in p.parts if part.region not in ("USA", "AIANNH")), Fraction(0))  # type: ignore[attr-defined]
    assert island == Fraction("2.643")
    assert p.rho + island == Fraction("7.587")


def test_phsafe_costs_fifty_parts_of_121_and_18_of_49() -> None:
    tables = PHSafe(states=["1"]).spent.tables
    assert (tables["PH1n"].replaced, tables["PH3"].replaced) == (Fraction(50, 121), Fraction(18, 49))
    assert (tables["PH1d"].replaced, tables["PH1n"].moved) == (Fraction(1, 2), Fraction(200, 121))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Four measurements of TopDown, and the three other mechanisms with the printed factors."""
    made = Ledger.create(tmp_path_factory.mktemp("census") / "a.ledger", dataset="CEF")
    cef = catalogue.load("das-2020").specification.domain
    for name in ("pl-person", "dhc-person", "pl-household", "dhc-household"):
        made.add(Request(mechanism=name, specification=catalogue.load(f"das-2020-{name}").specification))
    blocks = pl.DataFrame({"block": ["1"]})
    for mechanism in mechanisms():
        more = {"totals": "none"} if mechanism.name == "safetab-h" else {}
        own = type(mechanism)(
            promise="as-printed", **({"states": ["1"]} if mechanism.name == "phsafe" else {"blocks": blocks}), **more
        )
        spec = own.specification(name="CEF", stage=cef.stage, post_imputation=True)
        made.add(Request(mechanism=mechanism.name, specification=spec.with_flavor(domain=cef)))
    return made


def people(**more: object) -> Currency:
    one = UnitFactor(old="household", new="person", factor=1, because="household fixed", keeps_total="fixed numbers")
    return Currency(unit="person", units=(one,), **more)  # type: ignore[arg-type]


def test_one_ledger_of_all_plans_gives_the_total(ledger: Ledger) -> None:
    total = ledger.total(people()).specification
    assert total is not None
    assert total.budget.realised == exact(RUN.rho2)
    epsilon = ledger.total(people(output=approximate(DELTA))).specification
    assert epsilon is not None
    assert_prints(epsilon.budget.realised, "126.790924")
    assert {str(i) for i in total.multiverse.invariants} == {
        str(i) for i in catalogue.load("das-2020").specification.multiverse.invariants
    }


def test_a_release_without_a_specification_makes_the_total_a_lower_bound(ledger: Ledger) -> None:
    """Remark 6: accuracy metrics, estimates and projections come on top, and nobody published what they cost."""
    ledger.add(Request(mechanism="population estimates", unspecified="no specification is published"))
    total = ledger.total(people())
    assert total.bound == "at least "
    assert total.specification is not None
    assert total.specification.budget.realised == exact(RUN.rho2)
    assert any("at least" in line for line in total.specification.assumptions)


def test_one_changed_number_changes_totals_and_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json
    from importlib import resources

    text = resources.files("stirred.mechanisms.tables.safetab").joinpath("us-2020-p.toml").read_text(encoding="utf-8")
    changed = text.replace('region = "STATE", level = 2, rho = "2.134"', 'region = "STATE", level = 2, rho = "1.067"')
    assert changed != text
    (tmp_path / "half.toml").write_text(changed, encoding="utf-8")
    assert run(["census", "totals", "--safetab-p", str(tmp_path / "half.toml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    by_name = {total["name"]: Fraction(total["rho2"]) for total in told["totals"]}
    assert by_name["all by their structure, household fixed"] == PLACE.rho2 - 2 * Fraction("1.067")
    assert by_name["as printed"] == Fraction("55.371")
    noise = {line["what"]: line["within_95"] for line in told["noise"] if line["mechanism"] == "safetab-p"}
    assert noise["STATE level 2, tables"] > noise["USA level 2, tables"]


def test_a_budget_file_that_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.toml").write_text("rho = [", encoding="utf-8")
    assert run(["census", "totals", "--phsafe", str(tmp_path / "a.toml")]) == 2
    assert "this is not TOML" in capsys.readouterr().err
    assert run(["census", "totals", "--phsafe", str(tmp_path / "none.toml")]) == 2
    assert "cannot read it" in capsys.readouterr().err
