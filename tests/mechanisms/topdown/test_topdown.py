"""The mechanism: what it promises, its exact law and the converse, and every setting that is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.audit import AuditVerdict, FiniteMechanism, audit
from stirred.data.codebook import Codebook
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.registry import build, settings_for
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.mechanisms.topdown.population import areas_by_noise
from stirred.randomness.entropy import Entropy, EntropyError
from stirred.spec import catalogue
from stirred.spec.composition import FRESH, TOTAL_BY
from stirred.spec.doubts import DoubtError
from stirred.spec.exact import exact
from stirred.spec.findings import lint
from stirred.spec.multiverse import Multiverse
from stirred.spec.shift_law import DiscreteGaussian
from tests.mechanisms.topdown.people import CODES, LEVELS, people, topdown
from tests.mechanisms.topdown.test_population import FACILITIES, UNITS, data, mechanism

PRODUCTION: dict[str, Any] = {
    "levels": ["state", "county", "tract", "block_group", "block"],
    "attributes": ["pl94-persons"],
    "budget": "us-2020-pl-persons",
    "totals": ["state"],
    "units": {"attributes": ["pl94-units"], "budget": "us-2020-pl-units", "totals": ["block"], "unit": "household"},
    "facilities": {"attribute": "hhgq", "column": "gq_type", "empty": ["0"]},
}


def test_the_production_settings_promise_what_theorem_2_says() -> None:
    promised = TopDown(**PRODUCTION).specification(name="CEF", stage="edited-file")
    known = catalogue.load("das-2020-topdown-pl").specification
    assert promised.budget.realised == known.budget.realised
    assert promised.budget.realised == exact(Fraction(542, 339) ** 2 + Fraction(3379, 12343) ** 2)
    assert promised.notation == known.notation == "ρ²=2.64-DP(X_CEF, D_c, d_HamS^person, D_NoR)"
    assert promised.input_premetric == known.input_premetric
    # The number of households in each block follows from that by type.
    fixed = {str(each) for each in promised.multiverse.invariants}
    assert fixed == {"number of persons in each state", "number of households by gq_type in each block"}
    assert any("factor 1, as the paper takes it; 2 if" in each for each in promised.assumptions)


def test_levels_are_called_as_the_budget_file_spells_them() -> None:
    names = TopDown(**PRODUCTION).design.names
    assert names == ("US", "State", "County", "Tract", "Block_Group", "Block")
    assert topdown().design.names == ("all", *LEVELS)


SMALL = [
    topdown(levels=["region", "ward"], queries=["total", "sex", "detailed"]),
    topdown(levels=["region", "ward"], queries=["total", "sex", "detailed"], totals=["region"]),
    topdown(levels=["ward"], rho="1/3"),
    topdown(levels=LEVELS, queries=["detailed"], totals=["ward"]),
]


@pytest.mark.parametrize("number", range(len(SMALL)))
def test_the_loss_over_all_small_files_keeps_the_promise(number: int) -> None:
    result = audit(SMALL[number])
    assert result.verdict is AuditVerdict.PASSED, result.in_words
    assert result.loss.is_exact


@pytest.mark.parametrize("bypass", [True, False])
def test_the_exact_audit_has_bypassed_areas_and_levels_without_queries(bypass: bool) -> None:
    """All of rho is spent, also below an only child whose level asks nothing."""
    shares = {"all": "1/4", "region": "1/2", "district": "0", "ward": "1/4"}
    table = {"detailed": {level: "1" for level, share in shares.items() if share != "0"}}
    own = topdown(
        levels=LEVELS, rho=None, queries=[], bypass=bypass, budget={"rho": "1", "levels": shares, "queries": table}
    )
    result = audit(own)
    assert result.passed
    assert result.loss.high == exact(1)
    variances = {noise.variance for noise in own.law([("aaa", 0)]).noises}  # type: ignore[union-attr]
    # The region with one district leaves its half to the ward inside.
    assert (Fraction(4, 3) in variances) == bypass


def test_the_promise_is_attained_where_no_total_is_measured() -> None:
    """A total of everything never changes, so that its share is not spent; without it the loss is all of rho."""
    result = audit(topdown(levels=["region", "ward"], queries=["detailed"], rho="3/7"))
    assert result.passed
    assert result.loss.high == exact("3/7")


def test_noise_by_a_smaller_sigma_is_caught() -> None:
    louder, quieter = (
        topdown(levels=["ward"], queries=["detailed"], rho=1),
        topdown(levels=["ward"], queries=["detailed"], rho="99/100"),
    )
    promise = quieter.audit_specification([])
    (first, *_) = louder.audit_universes()
    result = audit(FiniteMechanism(function=louder.law, datasets=first, promise=promise))
    assert result.verdict is AuditVerdict.FAILED


@pytest.mark.parametrize("level", ["region", "ward"])
def test_dropping_an_invariant_from_the_multiverse_makes_the_loss_infinite(level: str) -> None:
    """The converse of Theorem 2: with totals published exactly, no finite rho holds without fixing them."""
    own = topdown(levels=["region", "ward"], totals=[level], rho="1/2")
    files = [file for universe in own.audit_universes() for file in universe]
    promise = own.audit_specification(files).with_flavor(multiverse=Multiverse())
    result = audit(FiniteMechanism(function=own.law, datasets=files, promise=promise.with_budget(10**6)))
    assert result.verdict is AuditVerdict.FAILED
    assert result.loss.low.is_infinite
    assert audit(own).passed


def test_the_law_has_the_noise_and_the_counts_that_are_drawn() -> None:
    own = topdown(levels=["region", "ward"], queries=["detailed"], totals=["region"])
    law = own.law([("aa", 0), ("aa", 11), ("ba", 0)])
    # Two cells at the top, in the region with two wards, and in three wards; beside the exact totals of both regions.
    assert len(law.centre) == 2 + 2 + 6 + 2
    assert law.centre[:2] == (2, 1)
    assert [law.centre[place] for (place,) in law.fixed] == [2, 1]
    drawn = [noise for place, noise in enumerate(law.noises) if (place,) not in law.fixed]
    # The ward that is an only child has the budget of its region too.
    assert {*drawn} == {DiscreteGaussian("3/2"), DiscreteGaussian("3/4")}


def test_a_release_has_the_measurements_of_every_area_and_a_second_one_is_refused() -> None:
    entropy = Entropy.from_os()
    own = topdown(totals=["region"])
    release = own.release(people(), entropy)
    assert [*release.public] == ["spine", "measurements", "constraints"]
    rows = release.public["measurements"]
    plan = own.plan(people())
    counts = areas_by_noise(plan.parts[0], plan.spine)
    assert rows.height == sum(counts.values())
    totals = release.public["constraints"]
    truth = dict(people().group_by("region").len().iter_rows())
    assert dict(zip(totals["geocode"], totals["value"].list.first(), strict=True)) == truth
    with pytest.raises(EntropyError, match="has been used for a release"):
        own.release(people(), entropy)


def test_a_release_from_pandas_is_given_back_as_pandas() -> None:
    released = topdown().release(people().to_pandas(), Entropy.from_os()).public["measurements"]
    assert type(released).__module__.startswith("pandas")


def test_persons_and_units_are_measured_with_independent_noise() -> None:
    own = mechanism(units=UNITS, facilities=FACILITIES)
    release = own.release(data(), Entropy.from_seed("both"))
    assert [*release.public] == [
        *("spine", "measurements", "constraints", "unit_measurements", "unit_constraints"),
    ]
    assert release.specification.notation == "ρ²=2-DP(X_households, D_c, d_HamS^person, D_NoR)"
    assert release.public["unit_measurements"].filter(geolevel="block", query_name="detailed_dpq").height == 4
    names = {*release.public["constraints"]["query_name"]}
    assert names == {"place_total_lb_con", "place_total_ub_con", "total_con"}
    only = mechanism(units={**UNITS, "rho": None}, facilities=FACILITIES)
    assert only.specification(name="x").budget.realised == exact(1)
    published = only.release(data(), Entropy.from_seed("both")).public
    assert published.frame("unit_constraints").height == 4


def test_facilities_without_an_area_of_their_own_are_refused_by_column() -> None:
    homes = pl.DataFrame({"hid": ["1", "2"], "place": ["h", "g"]})
    persons = pl.DataFrame({"hid": ["1", "1", "2"], "ward": ["a", "a", "b"], "place": ["h", "h", "g"]})
    own = TopDown(
        levels=["ward"],
        attributes=["place"],
        values={"place": ["h", "g"]},
        rho="1/2",
        facilities={"attribute": "place", "column": "place"},
        area_list=pl.DataFrame({"ward": ["a", "b"]}),
    )
    with pytest.raises(PlanError, match=r'households: there is no column "ward"'):
        own.plan(Microdata(households=homes, persons=persons, hid="hid"))


def test_two_kinds_of_records_of_one_release_are_no_total_of_several() -> None:
    """Their losses add up in one draw; a later release of persons alone is no part that poses as a total."""
    both, before = (mechanism(units=each, facilities=FACILITIES) for each in ({**UNITS, "rho": None}, UNITS))
    now, was = (each.specification(name="x") for each in (both, before))
    assert not {*TOTAL_BY} & {*was.theorem}
    assert FRESH not in was.assumptions
    assert now.budget.realised < was.budget.realised
    assert "not-the-total" not in str(lint(now, before=was))


def test_areas_read_off_the_file_refuse_a_release_until_somebody_accepts_it() -> None:
    own = topdown(area_list=None)
    with pytest.raises(DoubtError, match="which areas exist was read off the confidential file"):
        own.release(people(), Entropy.from_os())
    release = own.release(people(), Entropy.from_os(), accept=["areas-from-file"])
    assert any("areas-from-file" in each for each in release.specification.assumptions)


def test_other_settings_have_another_design_and_the_same_list_of_areas() -> None:
    areas = pl.DataFrame({"region": ["N"], "ward": [1]})
    own = TopDown(levels=["region", "ward"], attributes=["sex"], values={"sex": ["m", "f"]}, rho=1, area_list=areas)
    other = own.with_settings(rho=2, queries=["sex"])
    shares = other.design.persons.shares
    assert shares.rho == 2
    assert shares.names == ["sex"]
    assert other.area_list is areas
    assert other != own == own.with_settings()


@pytest.mark.parametrize(
    ("settings", "piece"),
    [
        ({"rho": None}, "budget: no budget is given"),
        ({"budget": "us-2020-pl-persons"}, "budget: a budget file says rho and queries itself"),
        ({"budget": "none.toml", "rho": None, "queries": []}, "cannot read the budget file"),
        ({"levels": []}, "there are no levels"),
        ({"publish": []}, "publish: nothing that is measured would be published"),
        ({"levels": ["ward", "Ward"]}, "levels: there are no levels, or two of one name"),
        ({"widths": [3, 4]}, "widths: widths do not fit the levels"),
        ({"geocode": "code", "widths": [4, 3, 5]}, "widths: widths do not fit the levels"),
        ({"values": {"sex": ["m"]}}, 'attributes "sex": it has one code, "m", and nothing to count by'),
        ({"values": {"sex": ["m", "f"]}}, 'attributes "age": its codes are not declared'),
        (
            {"attributes": ["sex", "value"], "values": {**CODES, "value": ["1", "2"]}},
            "use this name for something else",
        ),
        ({"groupings": {"age": {"adult": [["0-17"], ["18-64"]]}}}, "it does not put every code of age into one group"),
        ({"groupings": {"rage": {}}}, "groupings rage: there is no attribute 'rage'"),
        ({"groupings": {"age": {"adult": [["0-17"], [], ["18-64", "65+"]]}}}, "it has a group without codes"),
        ({"queries": ["colour"]}, 'asks for "colour", which the schema declared does not have'),
        ({"values": {**CODES, "age": [str(n) for n in range(1_200_000)]}}, "has 4,800,000 cells"),
        ({"rho": "-1"}, "budget rho: -1 is negative"),
        ({"colour": 1}, "there is no setting called 'colour'"),
    ],
)
def test_settings_that_cannot_be_carried_out_are_refused(settings: dict[str, Any], piece: str) -> None:
    with pytest.raises((PlanError, DataError)) as told:
        topdown(**settings)
    assert any(piece in str(problem) for problem in told.value.problems), told.value.problems


def test_all_that_is_wrong_with_settings_is_told_at_once() -> None:
    with pytest.raises(PlanError) as told:
        topdown(values={"sex": ["m", "f"]}, widths=[1], totals=["city"], units={"attributes": ["pl94-units"]})
    joined = "\n".join(map(str, told.value.problems))
    for piece in ("widths do not fit", 'attributes "age"', 'attributes "work"', "no budget is given"):
        assert piece in joined


def test_columns_and_codes_that_do_not_fit_the_file_are_told_at_once() -> None:
    with pytest.raises(PlanError) as plan:
        topdown().plan(people().drop("ward", "age"))
    assert {'"ward"' in str(p) or '"age"' in str(p) for p in plan.value.problems} == {True}
    assert len(plan.value.problems) == 2
    odd = people(30).with_columns(
        sex=pl.when(pl.int_range(30) == 3).then(pl.lit("x")).otherwise("sex"),
        age=pl.when(pl.int_range(30) == 9).then(None).otherwise("age"),
    )
    with pytest.raises(DataError) as file:
        topdown().plan(odd)
    joined = "\n".join(map(str, file.value.problems))
    assert '"x": values that are no declared codes (1 row: 4)' in joined
    assert "missing values that are no declared codes (1 row: 10)" in joined
    with pytest.raises(PlanError, match='there is no column "ward"'):
        topdown(area_list=people().select("region", "district")).plan(people())


def test_codes_that_are_numbers_are_compared_as_numbers() -> None:
    coded = people(40).with_columns(sex=pl.when(pl.col("sex") == "m").then(pl.lit("01")).otherwise(pl.lit("2")))
    own = topdown(values={**CODES, "sex": ["1", "2"]})
    found = own.plan(coded).parts[0]
    truth = coded.group_by("sex").len().sort("sex")["len"].to_list()
    assert found.answers(found.schema.query("sex"), 0, range(1)).tolist() == [truth]


def test_attributes_may_be_called_otherwise_in_the_file_and_grouped() -> None:
    renamed = people().rename({"age": "years"})
    groups = {"age": {"adult": [["0-17"], ["18-64", "65+"]]}}
    own = topdown(columns={"age": "years"}, groupings=groups, queries=["adult", "sex * adult", "detailed"])
    part = own.plan(renamed).parts[0]
    counts = people()["age"].value_counts()
    young = counts.filter(age="0-17")["count"].item()
    assert part.answers(part.schema.query("adult"), 0, range(1)).tolist() == [[young, 1_500 - young]]


def test_codes_come_from_the_codebook_and_are_kept_in_the_settings() -> None:
    text = "".join(
        f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "code"\n'
        f"codes = {{ {', '.join(f'{chr(34)}{code}{chr(34)} = {chr(34)}{chr(34)}' for code in codes)} }}\n"
        for name, codes in CODES.items()
    )
    codebook = Codebook.from_toml(text)
    given = settings_for("topdown", {"levels": LEVELS, "attributes": [*CODES], "rho": 1, "columns": {"age": "age"}})
    complete = TopDown.completed(given, codebook, missing_as=None)
    assert complete.public()["values"] == CODES
    own = build("topdown", complete)
    assert own.learned(codebook) == [*CODES]
    with pytest.raises(PlanError, match="tables are counted from records, and none are released"):
        build("topdown", complete, tables=[["sex"]])


def test_geocodes_name_areas_instead_of_columns() -> None:
    coded = people().with_columns(code=pl.concat_str("region", "district", pl.col("ward").cast(pl.String)))
    own = topdown(geocode="code", widths=[1, 3, 4], area_list=None)
    plan = own.plan(coded)
    assert [plan.spine.areas(depth) for depth in range(4)] == [1, 4, 12, 44]
    by_columns = topdown(area_list=people().select(LEVELS)).plan(people())
    for one, other in zip(plan.spine.geocodes, by_columns.spine.geocodes, strict=True):
        assert one.to_list() == other.to_list()
    query = plan.parts[0].schema.query("detailed")
    answers = [each.parts[0].answers(query, 3, range(44)) for each in (plan, by_columns)]
    assert np.array_equal(answers[0], answers[1])


def test_a_plan_says_areas_noise_and_what_each_change_costs() -> None:
    plan = topdown(totals=["region"]).plan(people())
    facts = {fact.label: fact for fact in plan.facts}
    assert facts["areas"].sentence == "1 all, 4 region, 12 district, 45 ward; 1 with one child leave their budget to it"
    assert facts["noise of persons"].values["persons_sigma2"]["ward"]["total"] == "6"
    assert facts["noise of persons"].values["persons_sigma2"]["all"] == {"sex * age": "4", "detailed": "4"}
    costs = facts["cost of persons"].values["persons_certificate"]
    assert costs["ward within district"]["rho"] == "1/2"
    assert costs["work"]["rho"] == "3/4"
    assert plan.disturbed == "each of 1,158 counts in 61 areas gets discrete Gaussian noise"
    assert plan.unchanged == "the number of persons in each region"


def test_noise_that_is_too_wide_to_draw_is_refused_before_anything_is_spent() -> None:
    message = (
        r"^budget queries total ward: noise of variance 9e\+30 is wider than can be drawn. Fix: choose a larger rho"
    )
    with pytest.raises(PlanError, match=message):
        topdown(levels=["region", "ward"], rho="1e-30").plan(people())
    assert topdown(levels=["region", "ward"], rho="1e-11").plan(people()).parts


def test_whole_numbers_are_codes_as_in_other_mechanisms() -> None:
    texts = {"age": ["0", "1", "2"], "sex": ["1", "2"]}
    told = {"levels": ["ward"], "areas": "areas.csv", "attributes": ["age", "sex"], "rho": 1, "queries": ["detailed"]}
    zeros = [{"age": ["0"], "sex": ["2"]}]
    groups = {"age": {"adult": [["0"], ["1", "2"]]}}
    numbers = settings_for(
        "topdown", {**told, "values": {"age": [0, 1, 2], "sex": [1, 2]}, "zeros": [{"age": 0, "sex": [2]}],
                    "groupings": {"age": {"adult": [[0], [1, 2]]}}},
    )  # fmt: skip
    assert numbers == settings_for("topdown", {**told, "values": texts, "zeros": zeros, "groupings": groups})


def test_a_list_of_areas_that_is_a_file_of_records_is_doubted(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    people().write_csv(file)
    found = topdown(area_list=None, areas=str(file)).plan(people())
    assert "areas-from-file" in {each.name for each in found.doubts}
