"""SafeTab-P and SafeTab-H: the toy census by hand, stability, noise, what is refused, and what replacing costs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.audit.exhaustive import AuditVerdict, audit
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.tables.query import DrawnAnswers, KeptAnswers, Query, in_order
from stirred.mechanisms.tables.safetab import SafeTabP, persons
from stirred.mechanisms.tables.safetab.groups import Iterations
from stirred.mechanisms.tables.safetab.persons import StageQueries
from stirred.mechanisms.tables.tabulator import with_intervals
from stirred.randomness.cell_law import half_width, variance_of
from stirred.spec.exact import exact
from tests.mechanisms.tables.making import (
    cells,
    every_total,
    published,
    shipped,
    toy_budget,
    toy_h,
    toy_p,
    without_noise,
)
from tests.mechanisms.tables.toy import BLOCKS, HOUSEHOLDS, ITERATIONS, PERSONS

PEOPLE = PERSONS.drop("hid")
HOMES = HOUSEHOLDS.drop("hid")


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(persons, "half_width", lambda *_: 0)  # without noise nothing is hidden but what is empty
        return without_noise(toy_p(), PEOPLE)


# ---- the toy census, by hand


def test_the_nation_has_the_counts_of_the_toy(tables: dict[str, pl.DataFrame]) -> None:
    level_1 = {"1001": 7, "1002": 8, "2001": 2, "2002": 3, "4001": 2}
    level_2 = {"1101": 3, "1102": 6, "1201": 1, "1202": 5, "2101": 2, "2102": 3, "4101": 2}
    assert cells(tables["t1"], region_type="USA") == {**level_1, **level_2}


def test_a_place_has_no_row_for_empty_groups(tables: dict[str, pl.DataFrame]) -> None:
    fives = dict.fromkeys(("1001", "1002", "1102"), 5)
    ones = dict.fromkeys(("2001", "2002", "2101", "2102"), 1)
    assert cells(tables["t1"], region_type="PLACE") == {**fives, "1101": 2, **ones}


def test_there_are_as_many_rows_as_by_hand(tables: dict[str, pl.DataFrame]) -> None:
    """Zeros and sex margins included; groups for nation and states alone are nowhere below."""
    assert (tables["t1"].height, tables["t2"].height) == (60, 484)
    below = tables["t1"].filter(~pl.col("region_type").is_in(["USA", "STATE"]))
    assert not {"1201", "1202"} & {*below["iteration_code"]}


def test_thresholds_choose_no_table_or_four_nine_and_23_ages(tables: dict[str, pl.DataFrame]) -> None:
    nation = tables["t1"].filter(pl.col("region_type") == "USA")
    measured = dict(zip(nation["iteration_code"], nation["cells"], strict=True))
    assert (measured["1002"], measured["1001"], measured["1102"], measured["2002"]) == (46, 18, 18, 8)
    assert {measured[code] for code in ("2001", "4001", "1201", "1202", "4101")} == {1}


def test_a_table_has_everybody_in_the_right_cell(tables: dict[str, pl.DataFrame]) -> None:
    rows = tables["t2"].filter((pl.col("region_type") == "USA") & (pl.col("iteration_code") == "1001"))
    full = rows.filter((pl.col("agestart") != "*") & (pl.col("count") != 0))
    men = {("5", "17"): 1, ("18", "24"): 1, ("35", "44"): 1}
    women = {("0", "4"): 1, ("25", "34"): 2, ("35", "44"): 1}
    for sex, by_age in (("1", men), ("2", women)):
        own = full.filter(pl.col("sex") == sex)
        assert dict(zip(zip(own["agestart"], own["ageend"], strict=True), own["count"], strict=True)) == by_age
    assert rows.filter(pl.col("agestart") == "*")["count"].to_list() == [3, 4]
    assert rows["ageend"].cast(pl.Int64, strict=False).max() == 115


def test_household_tables_follow_the_published_totals(tables: dict[str, pl.DataFrame]) -> None:
    found = without_noise(toy_h(totals=tables["t1"]), HOMES)
    t3 = {code: cells(found["t3"], "t3_data_cell", region_type="USA", iteration_code=code) for code in ("1002", "2002")}
    assert t3["1002"] == {"0": 2, "1": 2, "2": 1, "3": 1, "4": 0, "5": 1, "6": 0, "7": 0, "8": 0}
    assert t3["2002"] == {"0": 1, "1": 0, "6": 1}
    assert cells(found["t3"], "t3_data_cell", region_type="USA", iteration_code="4001") == {"0": 1}
    t4 = cells(found["t4"], "t4_data_cell", region_type="USA", iteration_code="1001")
    assert t4 == {"0": 2, "1": 1, "2": 0, "3": 1}


def test_groups_without_a_published_total_get_nothing(tables: dict[str, pl.DataFrame]) -> None:
    some = tables["t1"].filter(pl.col("region_type") == "STATE")
    found = without_noise(toy_h(totals=some), HOMES)
    assert {*found["t3"]["region_type"]} == {"STATE"}


# ---- stability and noise


def test_the_stability_of_the_tables_of_2020_is_nine() -> None:
    safetab = SafeTabP(blocks=BLOCKS)
    assert safetab.stability == 9
    assert toy_p().stability == 3  # two race codes, one ethnicity


def test_two_records_can_have_eighteen_different_groups() -> None:
    """What makes the factor 2 sharp: eight codes and an ethnicity each, nothing in common, in all four maps."""
    iterations = SafeTabP(blocks=BLOCKS).groups
    regions = [codes[0] for codes in iterations.table.filter(level=1, kind="alone")["codes"]]
    ethnic = [codes[0] for codes in iterations.table.filter(level=1, kind="ethnicity")["codes"]]
    kinds = pl.DataFrame({"races": [regions[:8], regions[8:16]], "ethnicity": ethnic[:2]})
    for level in (1, 2):
        for coarse in (False, True):
            members = iterations.members(kinds, level, coarse=coarse)
            assert np.diff(members.starts).tolist() == [9, 9]
            assert np.unique(members.iterations).size == 18


def test_unpaired_iterations_are_charged_for_alone_and_in_combination() -> None:
    """Where no iteration in combination has the codes of the one alone, a record may be in both and in eight others."""
    rows = [("1", "alone", "1", "false", "false", "a b"), ("2", "combination", "1", "false", "false", "a")]
    table = pl.DataFrame(rows, schema=ITERATIONS.columns, orient="row")
    assert Iterations.of(table, where="x").stability(8) == 1 + 8


def test_the_noise_is_that_of_2020() -> None:
    part = next(p for p in SafeTabP(blocks=BLOCKS).parts if p.name == "USA level 2")
    noise = StageQueries.of(part, stability=9, stage_1=Fraction(1, 10))
    assert [round(float(q.parameter), 5) for q in noise] == [21.08716, 2.34302, 2.34302, 2.10872]
    below = {
        float(p.rho): StageQueries.of(p, stability=9, stage_1=Fraction(1, 10)).tables.parameter
        for p in SafeTabP(blocks=BLOCKS).parts
    }
    assert [half_width(below[rho], 1, Fraction("0.9998")) for rho in (0.159, 0.008)] == [21, 93]
    assert [half_width(below[rho]) for rho in (2.134, 0.159, 0.008)] == [3, 11, 49]


@pytest.mark.parametrize(("cells_", "combined"), [(8, 9.923370), (18, 14.058107), (46, 17.636534)])
def test_the_free_gain_combines_the_first_total_with_the_sum(cells_: int, combined: float) -> None:
    first, table = 21.0871603, 2.3430178
    assert first * cells_ * table / (first + cells_ * table) == pytest.approx(combined, abs=1e-5)


def test_combined_totals_are_published_with_their_variance(tables: dict[str, pl.DataFrame]) -> None:
    rows = tables["t1"].filter((pl.col("region_type") == "USA") & (pl.col("iteration_code") == "1101"))
    part = next(p for p in toy_p().parts if p.name == "USA level 2")
    noise = StageQueries.of(part, stability=3, stage_1=Fraction(1, 10))
    own = float(variance_of(noise.tables.parameter) * 8)
    assert rows["variance"][0] == pytest.approx(own)
    assert rows["combined_variance"][0] == pytest.approx(
        own * float(noise.first.parameter) / (own + float(noise.first.parameter))
    )
    assert rows["combined"][0] == rows["count"][0]  # without noise both say the same


def many_regions(rho: str) -> tuple[SafeTabP, pl.DataFrame]:
    """A domain of 3,000 counties without suppression, and one person."""
    budget = shipped("us-2020-p")
    budget["regions"] = [{"type": "COUNTY", "column": "county", "iterations": "coarse"}]
    budget["parts"] = [{"region": "COUNTY", "level": 1, "rho": rho, "thresholds": [4971, 19971, 149971]}]
    names = [str(n) for n in range(3000)]
    blocks = pl.DataFrame({"block": names, "county": names})
    return toy_p(blocks=blocks, budget=budget), PEOPLE.head(1).with_columns(block=pl.lit("7"))


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (0.85, False), (1.15, False)])
def test_the_noise_of_all_groups_has_its_variance(factor: float, right: bool) -> None:
    """15,000 groups: the variance is known to 1.2% (one sigma); a sampler 15% off is seen, the right one is not."""
    safetab, people = many_regions("0.15")
    table = safetab.release(people, Entropy.from_seed(5)).public["t1"]
    assert table.height == 3000 * 5
    stated = table["variance"].to_numpy() * factor
    empty = table.filter(pl.col("region_id") != "7")["count"].to_numpy()
    chi = (empty**2).mean() / stated[0]
    assert bool(abs(chi - 1) < 0.07) is right
    assert abs(empty.mean()) < 6 * (stated[0] / empty.size) ** 0.5
    first = (table["combined"] - table["count"]).to_numpy()
    assert np.abs(first).max() > 0


def test_the_released_rows_do_not_depend_on_the_order_of_the_file() -> None:
    one, other = (toy_p().release(file, Entropy.from_seed(3)).public["t1"] for file in (PEOPLE, PEOPLE.reverse()))
    assert one.equals(other)


def test_both_stages_follow_again_from_the_noise_that_stays_inside() -> None:
    safetab = toy_p()
    release = safetab.release(PEOPLE, Entropy.from_seed("inside"))
    drawn, records = release.internal["drawn"], release.internal["counted"]
    again = safetab.answered(records, None, KeptAnswers(drawn), lambda *_: None)
    assert all(again[name].equals(release.public[name]) for name in ("t1", "t2"))
    # Of groups that are not published no noise is kept.
    tracts = release.public["t1"].filter(pl.col("region_type") == "TRACT").height
    assert sum(kept.height for name, kept in drawn.items() if name.startswith("TRACT") and "first" in name) == tracts
    name = next(name for name in drawn if name.endswith("first"))
    wrong = {**drawn, name: drawn[name].with_columns(pl.col("true") + 1)}
    with pytest.raises(VerificationError, match="counted again, is not what it was made of"):
        safetab.answered(records, None, KeptAnswers(wrong), lambda *_: None)


# ---- the promise


def test_the_promise_is_attained_where_records_have_nothing_in_common() -> None:
    """All parts of the budget at once: 9.888, and not a hair less."""
    blocks = BLOCKS.head(1).with_columns(aiannh=pl.lit("A"))
    result = audit(SafeTabP(blocks=blocks))
    assert result.verdict is AuditVerdict.PASSED
    assert result.loss.low == result.budget == exact("9.888")


def test_a_budget_a_hair_too_small_fails_with_a_witness() -> None:
    class TooProud(SafeTabP):
        @property
        def replaced(self) -> tuple[Fraction, str]:
            return 2 * self.rho - Fraction(1, 1000), "a hair less"

    budget = toy_budget("us-2020-p")
    budget["parts"] = budget["parts"][:1]
    result = audit(TooProud(blocks=BLOCKS, budget=budget))
    assert result.verdict is AuditVerdict.FAILED
    assert result.witness is not None
    assert "is likelier from the dataset" in str(result.witness)


def test_every_rho_says_its_neighbours() -> None:
    plan = toy_p().plan(PEOPLE)
    (fact,) = plan.facts
    assert "per one person added or removed" in fact.sentence
    assert fact.values["neighbours"] == "one person added or removed"
    assert "one person added or removed" in plan.specification.budget.policy.formula
    assert plan.specification.input_premetric.symbol == "d_HamS^person"
    added = toy_p(promise="add-remove").plan(PEOPLE).specification
    assert (added.input_premetric.symbol, added.budget.realised) == ("d_SymDiff^person", exact("4.944"))


def test_intervals_of_totals_that_are_published_for_their_size_do_not_cover_small_groups() -> None:
    """A tract's total is shown above 21, its interval is 11 wide: ten persons are never in it, and readers are told."""
    noise = StageQueries.of(toy_p().parts[-1], stability=9, stage_1=Fraction(1, 10))
    shown = half_width(noise.tables.parameter, 1, 2 * Fraction("0.9999") - 1) + 1
    assert (shown, half_width(noise.tables.parameter)) == (22, 11)
    assert any("fewer than 95% of their intervals hold" in line for line in toy_p().reading_tables(None))


def test_the_combined_total_is_biased_by_at_most_what_the_documentation_says() -> None:
    """Exact sums, in standard deviations: 0.22 in all; at a threshold given the table, by its number of cells."""
    said = {"finer": {8: 0.55, 18: 0.65, 46: 0.73}, "coarser": {1: 0.28, 8: 0.6, 18: 0.72}}
    found: dict[str, dict[int, list[float]]] = {"finer": {}, "coarser": {}}
    page = " ".join(Path("docs/census-2020.md").read_text().split())
    assert "up to 0.55 deviations with 8 cells, 0.65 with 18 and 0.73 with 46" in page
    assert "up to 0.28 with 1 cell, 0.6 with 8 and 0.72 with 18" in page
    for part in SafeTabP(blocks=BLOCKS).parts:
        noise = StageQueries.of(part, stability=9, stage_1=Fraction(1, 10))
        first, table = float(noise.first.parameter), float(noise.tables.parameter)
        z = np.arange(-int(12 * first**0.5), int(12 * first**0.5) + 1)
        chance = np.exp(-(z**2) / (2 * first))
        chance /= chance.sum()
        for coarse, fine in ((1, 8), (8, 18), (18, 46)):
            weight = {size: size * table / (first + size * table) for size in (coarse, fine)}
            deviation = {size: (own * first) ** 0.5 for size, own in weight.items()}
            overall = []
            for beyond in np.linspace(-3, 3, 121) * first**0.5:
                shift = np.where(z >= -int(beyond), weight[fine], weight[coarse]) * z * chance
                overall.append(shift.sum() / deviation[fine])
            assert -0.01 < min(overall) <= max(overall) <= 0.22
            for which, size, own in (("finer", fine, z >= 0), ("coarser", coarse, z < 0)):
                bias = weight[size] * (z * chance)[own].sum() / chance[own].sum() / deviation[size]
                found[which].setdefault(size, []).append(abs(bias))
    for which, bounds in said.items():
        for size, bound in bounds.items():
            assert bound - 0.02 < max(found[which][size]) <= bound < 0.8


@pytest.mark.parametrize(("parameter", "true"), [(Fraction(5, 18), 0.2527), (Fraction(1, 8), 0.0353)])
def test_variances_are_those_of_the_noise_and_not_its_parameter(parameter: Fraction, true: float) -> None:
    """Narrow noise has less variance than its parameter: columns and standard deviations are of the noise."""
    counts = pl.DataFrame({"count": [5, 7]})
    query = Query(title="one", loss=1 / (2 * parameter))
    table = with_intervals(counts, [query], cells=np.array([1, 8]))
    assert table["variance"].to_list() == pytest.approx([true, 8 * true], abs=5e-4)
    assert query.deviation**2 == pytest.approx(true, abs=5e-5)


@pytest.mark.parametrize("declared", [["count"], ["count", "variance", "low"]])
def test_a_column_that_is_computed_or_declared_alone_is_not_left_out_silently(declared: list[str]) -> None:
    with pytest.raises(AssertionError, match=r"\['(low|variance)'\] are not as declared"):
        in_order(pl.DataFrame({"count": [1], "variance": [1.0]}), declared)


def test_noise_that_is_too_wide_is_refused_by_the_plan() -> None:
    part = {**_PART, "rho": "1e-9"}
    with pytest.raises(PlanError, match="too wide for tables and their sums"):
        toy_p(budget={**toy_budget("us-2020-p"), "parts": [part]}).plan(PEOPLE)


# ---- what is refused

_PART = {"region": "USA", "level": 1, "rho": "1", "thresholds": [1, 2, 3]}
_REGION = {"type": "USA", "column": "state", "iterations": "detailed"}


def test_the_same_noise_is_never_drawn_twice() -> None:
    """Two counts of the same people with one noise at two scales would show the count itself."""
    answers, zeros = DrawnAnswers(Entropy.from_os()), np.zeros(3, dtype=np.int64)
    answers(Query(title="USA level 1 first"), zeros, chunk=0)
    answers(Query(title="USA level 1 first"), zeros, chunk=1)
    with pytest.raises(AssertionError, match="was drawn already"):
        answers(Query(title="USA level 1 first", square=4), zeros, chunk=0)


def test_files_that_would_give_noise_alone_are_refused() -> None:
    with pytest.raises(DataError, match="no record has a code of the iterations"):
        toy_p().plan(PEOPLE.with_columns(race1=pl.lit("999"), race2=pl.lit("x"), ethnicity=pl.lit("")))
    with pytest.raises(DataError, match="no iteration has level 7"):
        toy_p(budget={**toy_budget("us-2020-p"), "parts": [{**_PART, "level": 7}]}).plan(PEOPLE)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"age": "116"}, '"age": a value is missing or was not declared (10 rows: 1, 2, 3, 4, 5, ...)'),
        ({"sex": "3"}, '"sex": a value is missing or was not declared'),
        ({"block": "b9"}, '"block": a value is missing or was not declared'),
    ],
)
def test_values_that_were_not_declared_are_refused(change: dict[str, str], what: str) -> None:
    with pytest.raises(DataError) as told:
        toy_p().plan(PEOPLE.with_columns(pl.lit(value).alias(name) for name, value in change.items()))
    assert what in str(told.value)


def test_missing_columns_and_bad_tables_are_refused() -> None:
    with pytest.raises(DataError, match=r'no column "race2"\. Fix: name your columns with races\. The file has'):
        toy_p().plan(PEOPLE.drop("race2"))
    with pytest.raises(DataError, match=r'no column "place"\. Fix: rename yours to "place", which the budget names'):
        toy_p(blocks=BLOCKS.drop("place")).plan(PEOPLE)
    with pytest.raises(DataError, match="a block is missing or appears twice"):
        toy_p(blocks=pl.concat([BLOCKS, BLOCKS])).plan(PEOPLE)
    with pytest.raises(DataError, match='no column "kind"'):
        toy_p(iterations=ITERATIONS.drop("kind")).plan(PEOPLE)
    bad = ITERATIONS.with_columns(kind=pl.lit("both"), level=pl.lit("one"), iteration_code=pl.lit("1"))
    with pytest.raises(DataError) as told:
        toy_p(iterations=bad).plan(PEOPLE)
    assert all(what in str(told.value) for what in ("'both' is not known", "not a whole number", "appears twice"))
    with pytest.raises(PlanError, match="there is no table called 'real'"):
        toy_p(iterations="real").plan(PEOPLE)
    with pytest.raises(PlanError, match="the table of blocks was not read"):
        toy_p(blocks="blocks.csv").plan(PEOPLE)
    with pytest.raises(PlanError, match="the table was not read"):
        toy_p(iterations="iterations.csv").plan(PEOPLE)
    with pytest.raises(PlanError, match="publishes tables of its own"):
        toy_p(tables=[["age"]])


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("stage_1", "1", "a share between 0 and 1"),
        ("stage_1", True, "write an exact number"),
        ("parts", [{"region": "USA", "level": 1, "rho": "-1", "thresholds": [1]}], "it is below 0"),
        ("parts", [{"region": "USA", "level": 1, "rho": "x", "thresholds": [1]}], "x"),
        ("parts", [{"region": "USA", "level": 1, "rho": "1", "thresholds": [2, 1, 3]}], "thresholds and edges rise"),
        (
            "parts",
            [{"region": "USA", "level": 1, "rho": "1", "thresholds": [1]}],
            "one threshold for each list of ages",
        ),
        ("parts", [{"region": "MOON", "level": 1, "rho": "1", "thresholds": [1, 2, 3]}], 'no region type "MOON"'),
        ("parts", [{"region": "USA", "level": 1, "rho": "0", "thresholds": [1, 2, 3]}], "every rho is 0"),
        ("parts", [_PART, {**_PART, "rho": "4"}], "part t2, USA level 1 appears twice"),
        ("regions", [_REGION, _REGION], "region type USA appears twice"),
        ("regions", [_REGION, {**_REGION, "type": "WORLD"}], "region column state appears twice"),
        ("sexes", ["1", "1"], "sex 1 appears twice"),
        ("ages", [[0, 5], [1], [2]], "age edges lie above 0"),
        ("colour", "red", "there is no setting called 'colour'"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(key: str, value: object, what: str) -> None:
    with pytest.raises(PlanError) as told:
        toy_p(budget={**toy_budget("us-2020-p"), key: value})
    assert what in str(told.value)


def test_a_budget_of_households_that_makes_no_sense_is_refused() -> None:
    budget = toy_budget("us-2020-h")
    t4 = budget["tables"]["t4"]
    for changed, what in (
        ({"t4": {**t4, "levels": [["0"], ["1", "9"]]}}, "there is no cell 9"),
        ({"t4": {**t4, "levels": [["0"], ["1", "2"]]}}, "have every value once"),
        ({"t4": {**t4, "levels": [["0"]]}}, "one threshold less than its table has levels"),
    ):
        with pytest.raises(PlanError) as told:
            toy_h(budget={**budget, "tables": {**budget["tables"], **changed}})
        assert what in str(told.value)
    with pytest.raises(PlanError, match="the tables are t3 and t4"):
        toy_h(budget={**budget, "tables": {"t3": budget["tables"]["t3"]}})
    with pytest.raises(PlanError, match="there is no budget called 'us-1790'"):
        toy_h(budget="us-1790")


def test_published_totals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"the table 't1\.csv' was not read"):
        toy_h(totals="t1.csv").plan(HOMES)
    with pytest.raises(DataError, match="belong to no release that was checked"):
        toy_h(totals=every_total()).plan(HOMES)  # they may be the true ones
    with pytest.raises(DataError, match='no column "count"'):
        toy_h(totals=published(every_total().drop("count"))).plan(HOMES)
    with pytest.raises(DataError, match="a count is not a whole number"):
        toy_h(totals=published(every_total().with_columns(count=pl.lit("few")))).plan(HOMES)
    other = every_total().with_columns(region_id=pl.lit("elsewhere"))
    with pytest.raises(DataError, match="are not those of blocks and iterations"):
        toy_h(totals=published(other)).plan(HOMES)  # before anything is drawn or spent
    with pytest.raises(DataError, match="are not those of blocks and iterations"):
        toy_h(totals=published(pl.concat([every_total(), every_total()]))).plan(HOMES)
    for name in ("region_type", "iteration_code"):
        with pytest.raises(DataError, match=f"\"{name}\": 'other' is not known"):
            toy_h(totals=published(every_total().with_columns(pl.lit("other").alias(name)))).plan(HOMES)
