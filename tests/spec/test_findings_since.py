"""Every manoeuvre of the perverse guide is noticed, and none of its look-alikes (section 4.3; atlas, section 8)."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from stirred.cli.main import run
from stirred.inference import UnsupportedFlavor, pure_loss
from stirred.spec import (
    GDP,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Budget,
    Domain,
    InputPremetric,
    Margin,
    Multiverse,
    OutputPremetric,
    Specification,
    SpecificationError,
    approximate,
    catalogue,
    compare,
    compose,
    pull_back,
)
from stirred.spec.budget import ByUniverse, Derived
from stirred.spec.convert import post_process
from stirred.spec.document import from_json, to_json
from stirred.spec.exact import exact
from stirred.spec.explanation import explain
from stirred.spec.findings import NOTE, SERIOUS, lint
from stirred.spec.output_premetric import trade_off
from stirred.spec.problems import ConversionRefusedError
from stirred.spec.tradeoff import TradeOff
from tests.spec.strategies import GEOGRAPHY
from tests.spec.test_findings import COUNTIES, HOUSEHOLDS, PERSONS, checks, fixing, specification, swapping

RENYI = OutputPremetric(name="D_Renyi", order=Fraction(3))


def at(stage: str, budget: str = "2", *, dataset: str = "a file", **more: Any) -> Specification:
    return specification(budget, domain=Domain(name="X", dataset=dataset, stage=stage), **more)


def of(unit: str, budget: str, name: str = "d_HamS", **more: Any) -> Specification:
    premetric = InputPremetric(name=name, unit=unit, post_imputation=False, **more)
    return specification(budget, premetric=premetric)


def since(before: Specification, now: Specification) -> dict[str, str]:
    """What is found because of the earlier version, and would not be found without it."""
    alone = checks(now)
    return {check: severity for check, severity in checks(now, before=before).items() if check not in alone}


TOTAL = compose([specification("1"), specification("1"), specification("1")]).specification
TOTAL = replace(TOTAL, settings_from="policy")
BY_UNIVERSE = specification(
    Budget(policy=Derived(formula="f", value=exact(2), varies=True)), multiverse=fixing(COUNTIES)
)
NEAR = PERSONS.neighbours()
SIZES = Margin(of="person", variables=("size",), level="county")
STRATA = fixing(SIZES, hierarchies=(GEOGRAPHY,))
THIS_DATA = replace(specification("1"), settings_from="this-data")
AROUND = Multiverse(universes=(frozenset({"x", "y"}),))

PULLED = pull_back(
    at("edited-file", "1", premetric=replace(PERSONS, post_imputation=True)),
    "impute-copies", lipschitz=2, stage="raw-responses",
).specification  # fmt: skip
EDITED = at("edited-file", "1", premetric=replace(PERSONS, name="d_Ham", post_imputation=True))
RAW = at("raw-responses", premetric=replace(PERSONS, name="d_Ham"))


def table(far: str, budget: str) -> Specification:
    """A distance of one's own between two datasets; a third is at another distance."""
    listed = (("a", "b", exact(far)), ("a", "c", exact(20)))
    return specification(
        budget,
        premetric=InputPremetric(name="d_Given", unit="person", relation="income", table=listed, post_imputation=False),
    )


def curve(corner: str) -> Specification:
    size = Fraction(corner)
    return specification(
        "1",
        premetric=NEAR,
        output=trade_off(TradeOff(((Fraction(0), Fraction(0)), (size, 1 - size), (Fraction(1), Fraction(1))))),
    )


def universe(at: str | None) -> Specification:
    policy = ByUniverse(budgets=(("a", exact(3)), ("b", exact(1))), at=at)
    return specification(Budget(policy=policy), multiverse=fixing(COUNTIES))


# The earlier version, the later one, and the check that must speak.
MANOEUVRES: dict[str, tuple[Specification, Specification, str]] = {
    "domain narrowed by clipping": (
        at("sample", dataset="records with an income of any size"),
        at("sample", "1", dataset="records with an income from 0 to 100"),
        "fell-by-domain",
    ),
    "raw answers, now the edited file": (at("raw-responses"), at("edited-file", "1"), "fell-by-domain"),
    "raw answers, now a deduplicated file": (at("raw-responses"), at("deduplicated", "1"), "fell-by-domain"),
    "raw answers, now what is given": (at("raw-responses"), at("as-given", "1"), "fell-by-domain"),
    "raw answers, now pulled back to no stage with a name": (
        RAW,
        pull_back(EDITED, "edit").specification,
        "fell-by-domain",
    ),
    "population, now the sample": (at("population"), at("sample", "1"), "fell-by-domain"),
    "clipped at a percentile of this file": (specification("2"), THIS_DATA, "settings-from-this-data"),
    "strata counts fixed": (specification("19"), specification("11", multiverse=STRATA), "fell-by-invariants"),
    "invariants exchanged": (
        specification("2", multiverse=fixing(COUNTIES)),
        specification("1", multiverse=fixing(Margin(of="person", variables=("size",)))),
        "fell-by-invariants",
    ),
    "swapping in finer strata": (
        specification(swapping("1/20", 13_475_623), multiverse=fixing(COUNTIES)),
        specification(swapping("1/20", 4_549), multiverse=STRATA),
        "fell-by-invariants",
    ),
    "unbounded to bounded": (of("person", "2", "d_SymDiff"), of("person", "1"), "fell-by-invariants"),
    "unbounded to bounded without factor 2": (
        of("person", "2", "d_SymDiff"),
        of("person", "3"),
        "fell-by-distance",
    ),
    "household to person": (of("household", "3"), of("person", "1"), "fell-by-unit"),
    "user to user-day": (of("user", "3"), of("user-day", "1"), "fell-by-unit"),
    "node to edge": (of("node", "3"), of("edge", "1"), "fell-by-unit"),
    "company to employee": (of("company", "3"), of("employee", "1"), "fell-by-unit"),
    "household to transaction": (of("household", "3"), of("transaction", "1"), "fell-by-unit"),
    "per 100 to per 1": (of("100 persons", "3"), of("person", "1"), "fell-by-unit"),
    "people to records after imputation": (
        specification("2"),
        specification("1", premetric=replace(PERSONS, post_imputation=True)),
        "fell-by-unit",
    ),
    "unordered to ordered": (of("person", "2"), of("person", "1", "d_Ham"), "fell-by-distance"),
    "metric to neighbours under invariants": (
        specification("2", multiverse=fixing(COUNTIES)),
        specification("1", premetric=NEAR, multiverse=fixing(COUNTIES)),
        "fell-by-distance",
    ),
    "neighbours up to 2 to neighbours up to 1": (
        specification("2", premetric=PERSONS.neighbours(2), multiverse=fixing(COUNTIES)),
        specification("1", premetric=NEAR, multiverse=fixing(COUNTIES)),
        "fell-by-distance",
    ),
    "metric to neighbours where bounds do not add up": (
        specification("2", output=approximate("1e-9"), theorem=("proved",)),
        specification("1", output=approximate("1e-9"), premetric=NEAR),
        "fell-by-distance",
    ),
    "pure to approximate": (
        specification("2", premetric=NEAR),
        specification("1", premetric=NEAR, output=approximate("1e-6")),
        "fell-by-output-premetric",
    ),
    "delta up and epsilon down": (
        specification("2", premetric=NEAR, output=approximate("1e-9")),
        specification("1", premetric=NEAR, output=approximate("1e-6")),
        "fell-by-output-premetric",
    ),
    "order down": (
        specification("2", premetric=NEAR, output=RENYI),
        specification("1", premetric=NEAR, output=replace(RENYI, order=Fraction(2))),
        "fell-by-output-premetric",
    ),
    "pure to zCDP": (specification("2"), specification("1", output=ZCDP), "fell-by-output-premetric"),
    "pure to total variation": (
        specification("2"),
        specification("1/2", output=TOTAL_VARIATION),
        "fell-by-output-premetric",
    ),
    "a coarser sigma-algebra": (
        specification("2"),
        specification("1", measured_on=("the differences between areas",)),
        "fell-by-output-premetric",
    ),
    "some outputs only": (
        specification("2", measured_on=("the tables", "the map")),
        specification("1", measured_on=("the tables",)),
        "fell-by-output-premetric",
    ),
    "universes around one realised file": (
        specification("2", multiverse=fixing(COUNTIES)),
        specification("1", multiverse=AROUND),
        "fell-by-universes",
    ),
    "conditioned on what was realised": (
        specification("2"),
        replace(specification("2", multiverse=fixing(COUNTIES)), settings_from="this-data"),
        "settings-from-this-data",
    ),
    "the realised minimum for a function of the universe": (
        BY_UNIVERSE,
        specification("1", multiverse=fixing(COUNTIES)),
        "fell-by-one-number",
    ),
    "one release for the total": (TOTAL, specification("1"), "not-the-total"),
    "rho quoted for rho squared": (
        specification("15.29", output=ZCDP).with_budget("9"),
        specification("3", output=ZCDP),
        "looks-rescaled",
    ),
    "a hundredth": (specification("2"), specification("1/50"), "looks-rescaled"),
    "a constant equal to the answer": (
        specification("2"),
        replace(specification("0"), settings_from=None),
        "zero-budget",
    ),
}
MANOEUVRES |= {
    "a table of distances stretched": (table("1", "1"), table("10", "1/5"), "fell-by-distance"),
    "a pair left out of a table": (table("1", "1"), table("inf", "1/5"), "fell-by-distance"),
    "the file moved to a smaller universe": (universe("a"), universe("b"), "fell-by-universe"),
    "the file put in a smaller universe": (universe(None), universe("b"), "fell-by-universe"),
    "patient to visit": (of("patient", "3"), of("visit", "1"), "fell-by-unit"),
    "firm to establishment": (of("firm", "3"), of("establishment", "1"), "fell-by-unit"),
}
SUSPECTED = ("looks-rescaled", "zero-budget")  # a number alone proves nothing


@pytest.mark.parametrize("case", MANOEUVRES)
def test_every_manoeuvre_is_noticed(case: str) -> None:
    before, now, check = MANOEUVRES[case]
    found = checks(now, before=before)
    assert found[check] == ("warning" if check in SUSPECTED else "serious")


LOOK_ALIKES: dict[str, tuple[Specification, Specification]] = {
    "the legal range of the codebook in both": (
        at("sample", dataset="records with an income from 0 to 100"),
        at("sample", "1", dataset="records with an income from 0 to 100"),
    ),
    "the factor of the step is stated, and covered": (RAW, PULLED),
    "a clip fixed beforehand, pulled back": (
        at("sample"),
        pull_back(at("sample", "1"), prepared=(("income", "top-coded at 100"),)).specification,
    ),
    "settings from an earlier or synthetic file": (
        specification("2"),
        replace(specification("1"), settings_from="other-data"),
    ),
    "an invariant that was implied already": (
        specification("2", multiverse=STRATA),
        specification("1", multiverse=fixing(SIZES, COUNTIES, hierarchies=(GEOGRAPHY,))),
    ),
    "fewer invariants": (specification("2", multiverse=STRATA), specification("1")),
    "person to household": (specification("2"), specification("1", premetric=HOUSEHOLDS)),
    "edge to node": (of("edge", "3"), of("node", "1")),
    "ordered to unordered": (of("person", "2", "d_Ham"), of("person", "1")),
    "bounded to unbounded": (of("person", "2"), of("person", "1", "d_SymDiff")),
    "records after imputation to people, with the factor": (EDITED, PULLED),
    "the edited file, pulled back to no stage with a name": (
        EDITED,
        pull_back(EDITED, "impute-copies", lipschitz=2).specification,
    ),
    "metric to neighbours where nothing is fixed": (specification("2"), specification("1", premetric=NEAR)),
    "neighbours to metric": (
        specification("2", premetric=NEAR, multiverse=fixing(COUNTIES)),
        specification("1", multiverse=fixing(COUNTIES)),
    ),
    "pure to zCDP by the sharp conversion": (specification("1"), specification("0.4621171573", output=ZCDP)),
    "approximate to pure": (
        specification("1", premetric=NEAR, output=approximate("1e-9")),
        specification("1/2", premetric=NEAR),
    ),
    "zCDP to Gaussian": (specification("1", output=ZCDP), specification("1", output=GDP)),
    "columns dropped before release": (
        at("sample"),
        specification("1", domain=Domain(name="X", dataset="a file", stage="sample", columns=("age",))),
    ),
    "all of the output again": (specification("2", measured_on=("the tables",)), specification("1")),
    "every value of the invariant": (
        specification("2", multiverse=fixing(COUNTIES)),
        specification("1", multiverse=fixing(COUNTIES)),
    ),
    "the function of the universe is stated": (BY_UNIVERSE, BY_UNIVERSE),
    "totals against totals": (TOTAL, replace(TOTAL, budget=Budget.constant("2"))),
    "the same parameter": (specification("9", output=ZCDP), specification("4", output=ZCDP)),
    "a constant fixed beforehand": (specification("2"), specification("0")),
    "the edited file, now the raw answers": (at("edited-file"), at("raw-responses", "1")),
    "a table of distances in another scale": (
        specification(
            "1", premetric=InputPremetric(name="d_Given", unit="person", relation="r", table=(("a", "b", exact(1)),))
        ),
        specification(
            "1/9", premetric=InputPremetric(name="d_Given", unit="person", relation="r", table=(("a", "b", exact(9)),))
        ),
    ),
    "a lower curve": (curve("1/9"), curve("1/4")),
    "the file in a universe of a larger budget": (universe("b"), universe("a")),
    "visit to patient": (of("visit", "3"), of("patient", "1")),
    "establishment to firm": (of("establishment", "3"), of("firm", "1")),
}


@pytest.mark.parametrize("case", LOOK_ALIKES)
def test_no_look_alike_is_accused(case: str) -> None:
    before, now = LOOK_ALIKES[case]
    assert since(before, now) == {}


EXPLAINED = {
    "more invariants at the same number": (specification("2"), specification("2", multiverse=fixing(COUNTIES))),
    "delta up at the same epsilon": (
        specification("1", premetric=NEAR, output=approximate("1e-9")),
        specification("1", premetric=NEAR, output=approximate("1e-6")),
    ),
    "unordered to ordered at the same number": (of("person", "2"), of("person", "2", "d_Ham")),
    "a higher curve": (curve("1/4"), curve("1/9")),
    "a table stretched at the same number": (table("1", "1"), table("10", "1")),
    "a part of the output at the same number": (specification("2"), specification("2", measured_on=("the tables",))),
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_what_is_weaker_with_its_number_explained_is_a_note(case: str) -> None:
    before, now = EXPLAINED[case]
    assert since(before, now) == {"weaker": "note"}
    (finding,) = [each for each in lint(now, before=before) if each.check == "weaker"]
    assert "follows from the earlier promise" in finding.message


def test_a_number_that_stayed_is_not_said_to_have_moved() -> None:
    node, edge = (catalogue.load(name).specification.with_budget("1") for name in ("node-dp", "edge-dp"))
    messages = [finding.message for finding in lint(edge, before=node) if finding.check.startswith("fell")]
    assert messages
    assert all(message.startswith("The budget is ε=1 as before while ") for message in messages)


def test_a_renamed_unit_or_a_reworded_domain_that_did_not_fall_is_a_doubt() -> None:
    assert since(of("person", "2"), of("tree", "1")) == {"fell-by-unit": "warning"}
    assert since(at("sample", "1"), at("sample", "2", dataset="another file")) == {"fell-by-domain": "warning"}


def test_datasets_that_are_listed_decide_whether_a_domain_was_narrowed() -> None:
    whole, half = (
        Domain(name="X", dataset=words, stage="sample", datasets=sets)
        for words, sets in (("all", ((0,), (1,))), ("some", ((0,),)))
    )
    wide, narrow = specification("1", domain=whole), specification("1", domain=half)
    assert "fell-by-domain" in checks(replace(narrow, budget=Budget.constant("1/2")), before=wide)
    assert "fell-by-domain" not in checks(replace(wide, budget=Budget.constant("1/2")), before=narrow)


def test_the_command_exits_with_1_on_a_manoeuvre_and_with_0_on_a_look_alike(tmp_path: Path) -> None:
    def code(before: Specification, now: Specification) -> int:
        places = [tmp_path / "a.json", tmp_path / "b.json"]
        for place, each in zip(places, (before, now), strict=True):
            place.write_text(to_json(each), encoding="utf-8")
        return run(["spec", "lint", str(places[1]), "--before", str(places[0])])

    cases = [case for case in MANOEUVRES.values() if case[2] not in SUSPECTED and case[1].multiverse is not AROUND]
    assert {code(before, now) for before, now, _ in cases} == {1}
    assert {code(before, now) for before, now in LOOK_ALIKES.values()} == {0}


def test_a_promise_about_a_part_of_the_output_is_told_and_goes_no_further() -> None:
    part, whole = specification("2", measured_on=("the tables",)), specification("2")
    assert from_json(to_json(part)) == part
    assert "measured on the tables only" in {a.question: a.answer for a in explain(part).answers}["how"]
    assert (compare(part, whole).overall, compare(whole, part).overall) == ("weaker", "stronger")
    for refused in (lambda: compose([part, whole]), lambda: post_process(part)):
        with pytest.raises((ConversionRefusedError, SpecificationError)):
            refused()
    with pytest.raises(UnsupportedFlavor, match="part of the output"):
        pure_loss(part)
    assert pure_loss(specification("2", output=PURE)) == exact(2)


def test_tables_of_one_release_are_no_total_and_a_loss_that_grew_did_not_fall_by_its_invariants() -> None:
    """Noisy tables, then a swap: what is fixed is new, and so is a larger number that nobody takes for a better one."""
    made = Path(__file__).parents[1] / "golden" / "set"
    tables, swap = (
        from_json((made / name / "bundle" / "public" / "specification.json").read_text("utf-8"))
        for name in ("noisy-tables-laplace-sums", "permutation")
    )
    assert swap.budget.realised > tables.budget.realised
    found = {finding.check: finding.severity for finding in lint(swap, before=tables)}
    assert "not-the-total" not in found
    assert found["fell-by-invariants"] == NOTE
    gentler = swap.with_budget("1/10")
    assert {each.check: each.severity for each in lint(gentler, before=tables)}["fell-by-invariants"] == SERIOUS
