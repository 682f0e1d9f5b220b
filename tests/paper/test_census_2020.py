"""Section 5: the totals of the 2020 Census come out of budget files and plans, as printed and sharper."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from stirred.audit.exhaustive import AuditVerdict, audit
from stirred.cli.main import run
from stirred.mechanisms.census_2020.account import FILES, LARGEST, budget_text, parts, totals
from stirred.mechanisms.tables.phsafe import PHSafe
from stirred.mechanisms.tables.safetab import SafeTabH, SafeTabP
from stirred.mechanisms.topdown.budget import Shares, read_budget
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.release.ledger import Ledger, Request
from stirred.release.ledger.currency import Currency
from stirred.spec import UnitFactor, approximate, catalogue
from stirred.spec.convert_output import gdp_to_epsilon, zcdp_to_epsilon
from stirred.spec.exact import exact, sqrt
from tests.paper.printed import assert_prints
from tests.paper.published import DELTA

SUMS = {total.name: total for total in totals()}
PRINTED, RUN, SHARP, PLACE, MOVE, *HOUSEHOLD = SUMS.values()


def test_the_budget_files_add_up_to_the_configured_totals() -> None:
    assert {part.name: part.rho for part in parts()[4:]} == {
        "safetab-p": Fraction("4.944"),
        "safetab-h": Fraction("8.895302"),
        "phsafe": Fraction("1.257281"),
    }


def test_the_budget_files_of_topdown_have_the_budgets_of_table_3() -> None:
    """Table 3, from the files: 2.56 and 0.07 of the PL, 4.96 and 7.70 of the DHC."""
    found = {part.name: part for part in parts()[:4]}
    printed = {"pl-persons": "2.56", "pl-units": "0.07", "dhc-persons": "4.96", "dhc-units": "7.70"}
    for name, text in printed.items():
        assert_prints(found[name].rho, text)
        assert found[name].printed == Fraction(text)
        entry = f"das-2020-{name.partition('-')[0]}-{found[name].unit}"
        assert catalogue.load(entry).specification.budget.realised == exact(found[name].rho)
    assert (found["dhc-persons"].rho, found["dhc-units"].rho) == (Fraction("4.9622"), Fraction("7.7005"))
    assert_prints(sum((part.rho for part in found.values()), Fraction(0)), "15.29")


def test_dhc_has_the_noise_of_production() -> None:
    """Of production: rho .0999 of a query at State, four times that for group quarters by age; three become one."""
    shares = Shares.read(read_budget("us-2020-dhc-persons"))
    assert shares.sigma2("State", "sex * age") == Fraction(10_000, 999)
    assert shares.sigma2("State", "gq3 * age") == Fraction(10_000, 4 * 999)
    assert shares.sigma2("State", "detailed") == Fraction(10_000, 3 * 999)
    assert shares.of_query("Block", "detailed") == Fraction("0.0033")
    assert shares.of_query("County", "relgq") == Fraction("0.124")
    units = Shares.read(read_budget("us-2020-dhc-units"))
    assert units.of_query("US", "tenvacgq") == Fraction("0.0259")
    assert units.of_query("State", "detailed") == Fraction("0.7147")  # 3216 and 3931 of two queries of production
    assert units.of_query("Block_Group", "ten2 * couple * hispanic") == Fraction("0.1162")


@pytest.mark.parametrize(
    ("kind", "unit", "totals"), [("persons", "person", ["State"]), ("units", "household", ["Block"])]
)
def test_the_budget_of_the_dhc_is_what_one_replaced_record_costs(kind: str, unit: str, totals: list[str]) -> None:
    """On all files of one and two records, by the exact law: not more than 4.9622 and 7.7005, and not less."""
    name = f"us-2020-dhc-{kind}"
    levels = [*Shares.read(read_budget(name)).levels][1:]
    own = TopDown(levels=levels, attributes=[f"dhc-small-{kind}"], budget=name, totals=totals, unit=unit)
    result = audit(own)
    assert result.verdict is AuditVerdict.PASSED
    assert result.loss.low == result.budget == exact({"persons": "4.9622", "units": "7.7005"}[kind])


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
    rho2 = exact(SHARP.rho2)
    assert_prints(zcdp_to_epsilon(rho2, delta=DELTA, method="cks"), "108.569142")
    assert_prints(gdp_to_epsilon(sqrt(2 * rho2), delta=DELTA), "105.389730")


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
    p = SafeTabP(blocks="none")
    island = sum((part.rho for part in p.parts if part.region not in ("USA", "AIANNH")), Fraction(0))
    assert island == Fraction("2.643")
    assert p.rho + island == Fraction("7.587")


def test_phsafe_costs_fifty_parts_of_121_and_18_of_49() -> None:
    tables = PHSafe(states=["1"]).spent.tables
    assert (tables["PH1n"].replaced, tables["PH3"].replaced) == (Fraction(50, 121), Fraction(18, 49))
    assert (tables["PH1d"].replaced, tables["PH1n"].moved) == (Fraction(1, 2), Fraction(200, 121))


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """The promises of all seven plans, with the printed factors; `test_census_demo.py` runs such plans."""
    made = Ledger.create(tmp_path_factory.mktemp("census") / "a.ledger", dataset="CEF")
    published = catalogue.load("das-2020-topdown").specification
    blocks = pl.DataFrame({"block": ["1"]})
    for part in parts()[:4]:
        product, kind = part.name.split("-")
        schema = f"pl94-{kind}" if product == "pl" else f"dhc-small-{kind}"
        budget = Shares.read(read_budget(f"us-2020-{part.name}"))
        topdown = TopDown(
            levels=[*budget.levels][1:], attributes=[schema], budget=f"us-2020-{part.name}", unit=part.unit
        )
        spec = topdown.specification(name="CEF", stage=published.domain.stage, post_imputation=True)
        spec = spec.with_flavor(domain=published.domain, multiverse=published.multiverse)
        made.add(Request(mechanism=part.name, specification=spec))
    for own in (
        SafeTabP(blocks=blocks, promise="as-printed"),
        SafeTabH(blocks=blocks, totals="none", promise="as-printed"),
        PHSafe(states=["1"], promise="as-printed"),
    ):
        spec = own.specification(name="CEF", stage=published.domain.stage, post_imputation=True)
        made.add(Request(mechanism=own.name, specification=spec.with_flavor(domain=published.domain)))
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


def changed_file(part: str, folder: Path, old: str, new: str) -> Path:
    """Return a copy of a budget file, made by the command, with one number changed."""
    place = folder / "mine.toml"
    assert run(["census", "budget", "--part", part, "--out", str(place)]) == 0
    text = place.read_text(encoding="utf-8")
    assert text.count(old) == 1
    place.write_text(text.replace(old, new), encoding="utf-8")
    return place


def test_one_changed_number_changes_totals_and_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half of one rho of SafeTab-P: the totals fall by what it costs, and the interval of its tables grows."""
    state = 'region = "STATE", level = 2, rho = "%s"'
    mine = changed_file("safetab-p", tmp_path, state % "2.134", state % "1.067")
    capsys.readouterr()
    assert run(["census", "totals", "--safetab-p", str(mine), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    by_name = {total["name"]: Fraction(total["rho2"]) for total in told["totals"]}
    assert by_name["all by their structure, household fixed"] == PLACE.rho2 - 2 * Fraction("1.067")
    assert by_name["as printed"] == Fraction("55.371")
    noise = {line["what"]: line["within_95"] for line in told["noise"] if line["part"] == "safetab-p"}
    assert noise["STATE level 2, tables"] > noise["USA level 2, tables"]
    changed = {line["what"]: (line["2020"], line["yours"]) for line in told["changed"]}
    assert changed["safetab-p: STATE level 2, tables"] == (
        "rho 1.9206, sd 1.53, 95% within 3",
        "rho 0.9603, sd 2.16, 95% within 4",
    )
    assert "as printed" not in changed
    assert not [what for what in changed if "USA" in what or what.startswith("phsafe")]


@pytest.mark.parametrize("part", FILES)
def test_a_copied_budget_changes_nothing_until_a_number_changes(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = changed_file(part, tmp_path, budget_text(part)[:40], budget_text(part)[:40])
    capsys.readouterr()
    assert run(["census", "totals", f"--{part}", str(mine), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] == []
    assert Fraction(told["totals"][1]["rho2"]) == RUN.rho2


def test_a_changed_rho_of_topdown_changes_its_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = changed_file("dhc-persons", tmp_path, 'rho = "24811/5000"', 'rho = "24811/10000"')
    capsys.readouterr()
    assert run(["census", "totals", "--dhc-persons", str(mine), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Fraction(told["totals"][1]["rho2"]) == RUN.rho2 - Fraction("2.4811")
    changed = {line["what"]: (line["2020"], line["yours"]) for line in told["changed"]}
    assert changed["dhc-persons: State, sex * age"] == (
        "rho 0.0999, sd 3.16, 95% within 6",
        "rho 0.04995, sd 4.47, 95% within 9",
    )


def test_a_copy_is_not_written_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.toml").write_text("kept", encoding="utf-8")
    assert run(["census", "budget", "--part", "phsafe", "--out", str(tmp_path / "mine.toml")]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "mine.toml").read_text(encoding="utf-8") == "kept"


def test_a_budget_file_that_cannot_be_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.toml").write_text("rho = [", encoding="utf-8")
    assert run(["census", "totals", "--phsafe", str(tmp_path / "a.toml")]) == 2
    assert "this is not TOML" in capsys.readouterr().err
    assert run(["census", "totals", "--phsafe", str(tmp_path / "none.toml")]) == 2
    assert "cannot read it" in capsys.readouterr().err
