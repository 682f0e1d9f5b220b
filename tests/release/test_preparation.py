"""[[prepare]]: declared functions of one record, in any plan; the promise is pulled back to the file as it was."""

from __future__ import annotations

import json
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit.bundle import audit_bundle
from stirred.data.codebook import Codebook, Variable
from stirred.data.columns import ParquetColumns
from stirred.data.frames import read_frame
from stirred.data.microdata import Microdata
from stirred.data.prepare import Change, prepared_codebook, prepared_data
from stirred.data.problems import DataError, PlanError
from stirred.data.steps import Recode, words_of
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from stirred.spec import InputPremetric, compose, exact
from stirred.spec.convert import pull_back
from stirred.spec.document import from_json, to_json
from stirred.spec.problems import StirredError
from tests.snapshots import same_as_kept
from tests.world import stirred

MECHANISM = {"match": ["size"], "swap": ["county"], "rate": "1/2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepare")
    rows = range(240)
    homes = pl.DataFrame(
        {
            "county": [f"{'NS'[n % 2]}{n % 3}" for n in rows],
            "size": [1 + n % 7 for n in rows],
            "rent": [100 + 13 * (n % 11) for n in rows],
            "tenure": [["o", "r", "NA"][n // 5 % 3] for n in rows],
            "note": ["x"] * 240,
        }
    )
    homes.write_csv(folder / "homes.csv")
    flat = pl.DataFrame(
        {
            "house": [n // 2 for n in rows],
            "county": ["ABC"[n // 2 % 3] for n in rows],
            "size": [2] * 240,
            "age": [(7 * n) % 80 for n in rows],
        }
    )
    flat.write_csv(folder / "people.csv")
    (folder / "county.hrc").write_text("North\n@N0\n@N1\n@N2\nSouth\n@S0\n@S1\n@S2\n")
    return folder


def of(folder: Path, steps: list[dict[str, Any]], data: dict[str, Any] | None = None, **sections: Any) -> Any:
    content = {
        "data": data or {"households": "homes.csv"},
        "prepare": steps,
        "mechanism": MECHANISM,
        "release": {"out": "bundle"},
        **sections,
    }
    return plan_from(content, source="plan.toml", folder=folder)


def stepped(column: pl.Series, **step: Any) -> list[Any]:
    (parsed,) = of(Path(), [{"column": column.name, **step}]).prepare
    return prepared_data(Microdata(households=column.to_frame()), [parsed]).households[column.name].to_list()


AGES = pl.Series("age", [0, 17, 18, 64, 65, 103, None])


@pytest.mark.parametrize(
    ("step", "after"),
    [
        ({"step": "top-code", "at": 90}, ["0", "17", "18", "64", "65", "90+", None]),
        ({"step": "bottom-code", "at": 18}, [*["18 or less"] * 3, "64", "65", "103", None]),
        ({"step": "top-code", "at": 90, "label": False}, [0, 17, 18, 64, 65, 90, None]),
        ({"step": "round", "to": 1}, AGES.to_list()),
        ({"step": "round", "to": 5}, [0, 15, 20, 65, 65, 105, None]),
        ({"step": "round", "to": 10}, [0, 20, 20, 60, 70, 100, None]),
        ({"step": "band", "width": 10}, ["0-9", "10-19", "10-19", "60-69", "60-69", "100-109", None]),
        ({"step": "band", "breaks": [1, 18, 65]}, ["under 1", "1-17", "18-64", "18-64", "65+", "65+", None]),
        ({"step": "recode", "map": {"0": 7}, "other": 9}, [7, 9, 9, 9, 9, 9, None]),
        ({"step": "missing"}, ["0", "17", "18", "64", "65", "103", "(missing)"]),
    ],
)
def test_each_step_does_to_a_column_what_it_says(step: dict[str, Any], after: list[Any]) -> None:
    assert stepped(AGES, **step) == after


def test_texts_that_mean_a_missing_value_become_the_code_and_others_stay() -> None:
    column = pl.Series("tenure", ["o", "NA", " . ", "", None, "r"])
    found = stepped(column, step="missing", values=["NA", ".", ""], code="unknown")
    assert found == ["o", "unknown", "unknown", "unknown", "unknown", "r"]


def test_a_hierarchy_file_recodes_every_leaf_to_its_level(folder: Path) -> None:
    found = prepare(of(folder, [{"step": "recode", "column": "county", "hrc": "county.hrc", "level": 1}]))
    assert sorted(found.data.households["county"].unique()) == ["North", "South"]


@pytest.mark.parametrize(
    ("step", "what", "remedy"),
    [
        ({"step": "top-code", "quantile": 0.99}, "n - ceil(q n) + 1", "declare the value"),
        ({"step": "top-code", "at": "99%"}, "computed from the file", "declare the value"),
        ({"step": "recode", "fewer_than": 5, "other": "x"}, "by the factor k", "declare the map"),
        ({"step": "drop", "where": "age > 90"}, "files of different size", "a code of their own"),
        ({"step": "recode"}, "either a map", "write one of them"),
        ({"step": "band", "breaks": [3, 2]}, "breaks that rise", "breaks = [0, 18, 65]"),
    ],
)
def test_a_step_that_looks_at_the_whole_file_is_refused_with_the_declared_one(
    folder: Path, step: dict[str, Any], what: str, remedy: str
) -> None:
    with pytest.raises(PlanError) as caught:
        of(folder, [{"column": "age", **step}])
    (problem,) = caught.value.problems
    assert what in problem.what
    assert remedy in problem.remedy
    assert problem.where.startswith("plan.toml [[prepare]] entry 1")


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ({"step": "recode", "column": "tenure", "map": {"o": "own"}}, "no answer for 2 of its values, such as NA, r"),
        ({"step": "top-code", "column": "tenure", "at": 3}, "values that are not numbers, such as NA, o, r"),
        ({"step": "drop", "column": "tenur"}, "did you mean"),
        ({"step": "recode", "column": "county", "hierarchy": "places", "level": 1}, "no hierarchy of codes 'places'"),
        ({"step": "recode", "column": "county", "hrc": "county.hrc", "level": 3}, "the hierarchy has 2 levels"),
        ({"step": "missing", "column": "note", "code": "x"}, "its code is taken, by 1 of its values"),
        (
            {"step": "missing", "column": "tenure"},
            "is taken, by 1 of its values, such as NA",
        ),
        ({"step": "split", "hid": "size", "households": ["county"]}, "it differs between persons of one household"),
    ],
)
def test_what_a_step_cannot_do_is_said_with_its_place(folder: Path, step: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError) as caught:
        prepare(of(folder, [step]))
    told = " ".join(map(str, caught.value.problems))
    assert what in told
    assert "plan.toml [[prepare]] entry 1" in told


def test_numbers_of_a_csv_file_are_numbers_however_they_are_written() -> None:
    long = pl.Series("pay", ["-5809.400000000001", "1e+05", ".5", "12000.5", "0", None])
    assert stepped(long, step="round", to=1000) == ["-6000", "100000", "0", "12000", "0", None]
    assert stepped(long, step="round", to="0.1") == ["-5809.4", "100000", "0.5", "12000.5", "0", None]
    assert stepped(long, step="top-code", at=12000, label=False)[1::2] == ["12000", "12000", None]
    # A leading zero tells a code from a number.
    with pytest.raises(StirredError, match="not numbers, such as 012"):
        stepped(pl.Series("age", ["012", "7"]), step="round", to=5)
    with pytest.raises(StirredError, match="this file has decimal commas: declare decimal = ','"):
        stepped(pl.Series("pay", ["1,5", "7"]), step="round", to=5)


@pytest.mark.parametrize("kind", [pl.String, pl.Float64, pl.Decimal(10, 2)])
def test_decimals_are_rounded_and_banded_exactly(kind: Any) -> None:
    tenths = pl.Series("x", ["0.1", "0.25", "0.3", "0.35", "0.7"]).cast(kind)
    assert list(map(float, stepped(tenths, step="round", to="0.1"))) == [0.1, 0.3, 0.3, 0.4, 0.7]
    # 0.3 / 0.1 is below 3 in floating point.
    bands = [f"{low} to under {high}" for low, high in (("0.1", "0.2"), ("0.2", "0.3"), ("0.3", "0.4"))]
    assert stepped(tenths, step="band", width="0.1")[:4] == [*bands, bands[2]]
    assert stepped(tenths, step="band", breaks=["0.3", 1])[1:3] == ["under 0.3", "0.3 to under 1"]
    # With whole bands a decimal counts by its whole part, as ages do.
    assert stepped(pl.Series("age", ["0.5", "4.99", "5"]).cast(kind), step="band", width=5) == ["0-4", "0-4", "5-9"]


def test_what_was_capped_says_so_in_every_step_after_it() -> None:
    ages = pl.Series("age", [3, 17, 84, 85, 99])
    cap, low = {"step": "top-code", "at": 85}, {"step": "bottom-code", "at": 17}

    def after(*steps: dict[str, Any]) -> list[Any]:
        parsed = of(Path(), [{"column": "age", **step} for step in steps]).prepare
        return prepared_data(Microdata(households=ages.to_frame()), parsed).households["age"].to_list()

    assert after(cap, {"step": "band", "width": 5}) == ["0-4", "15-19", "80-84", "85+", "85+"]
    assert after(cap, {"step": "round", "to": 5}) == ["5", "15", "85", "85+", "85+"]
    assert after(cap, {"step": "top-code", "at": 80})[2:] == ["80+"] * 3
    assert after(low, {"step": "band", "breaks": [18, 65]})[:2] == ["under 18"] * 2
    assert after(low, cap)[:2] == ["17 or less"] * 2
    for wrong in ({"step": "band", "width": 10}, {"step": "band", "breaks": [0, 65, 90]}, {"step": "round", "to": 10}):
        with pytest.raises(StirredError, match=r"no answer for 1 of its values, such as 85\+.*cap at another number"):
            after(cap, wrong)


DAYS = pl.Series("born", ["2020-02-29", "1999-12-31", "2000-01-01", None])


@pytest.mark.parametrize(
    "days", [DAYS, DAYS.str.to_date(), DAYS.str.to_date().cast(pl.Datetime)], ids=["text", "date", "time"]
)
@pytest.mark.parametrize(
    ("step", "after"),
    [
        ({"step": "date", "to": "month"}, ["2020-02", "1999-12", "2000-01", None]),
        ({"step": "date", "to": "quarter"}, ["2020-Q1", "1999-Q4", "2000-Q1", None]),
        ({"step": "date", "to": "year"}, ["2020", "1999", "2000", None]),
        ({"step": "date", "to": "age", "on": "2020-12-31"}, ["0", "21", "20", None]),
        ({"step": "date", "to": "age", "on": "2021-02-28"}, ["0", "21", "21", None]),
        (
            {"step": "band", "breaks": ["2000-01-01", "2010-01-01"]},
            ["from 2010-01-01", "before 2000-01-01", "2000-01-01 to 2009-12-31", None],
        ),
    ],
)
def test_days_become_months_quarters_years_ages_and_bands(
    days: pl.Series, step: dict[str, Any], after: list[Any]
) -> None:
    found = stepped(days, **step)
    assert [None if each is None else str(each) for each in found] == after


def test_days_that_are_none_are_refused_and_other_ways_to_write_them_declared() -> None:
    born = pl.Series("born", ["31.12.1999", "1.2.2000"])
    with pytest.raises(StirredError, match=r'2 of its values, such as 1.2.2000, 31.12.1999.*format = "%d.%m.%Y"'):
        stepped(born, step="date", to="year")
    assert stepped(born, step="date", to="month", format="%d.%m.%Y") == ["1999-12", "2000-02"]
    with pytest.raises(StirredError, match=r"1999-03-25"):  # by the format there is no month 25
        stepped(pl.Series("born", ["2000-01-02", "1999-03-25"]), step="date", to="month", format="%Y-%d-%m")
    with pytest.raises(StirredError, match="after on = 2019-12-31, on which the age is counted"):
        stepped(pl.Series("born", ["2020-01-01"]), step="date", to="age", on="2019-12-31")
    with pytest.raises(StirredError, match="an age needs the day"):
        stepped(born, step="date", to="age")


def test_the_first_characters_of_codes_are_kept() -> None:
    assert stepped(pl.Series("region", ["DE212", "DE21", "D", None]), step="first", characters=4) == [
        "DE21", "DE21", "D", None
    ]  # fmt: skip
    assert stepped(pl.Series("work", [1120, 2310]), step="first", characters=2) == ["11", "23"]
    with pytest.raises(StirredError, match="leading zeros may be lost: 1 of its values, such as 110"):
        stepped(pl.Series("work", [1120, 110]), step="first", characters=2)


def test_kept_codes_stay_declared() -> None:
    variable = Variable(name="tenure", file="households", type="code", codes={"o": "", "r": "", "f": ""})
    words = Recode(step="recode", column=["tenure"], map={"f": "r"}, keep=True)
    assert {*words.declares(variable).codes} == {"o", "r"}
    with pytest.raises(ValueError, match="keep goes with a map"):
        Recode(step="recode", column=["tenure"], map={"f": "r"}, keep=True, other="x")


def test_confidential_values_stay_out_of_what_json_tells(folder: Path) -> None:
    with pytest.raises(StirredError) as caught:
        prepare(of(folder, [{"step": "recode", "column": "tenure", "map": {"o": "own"}}]))
    assert "NA" not in caught.value.problems[0].told


def test_a_split_comes_first(folder: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"step": "drop", "column": "age"},
        {"step": "split", "hid": "house", "households": ["county", "size"]},
    ]
    with pytest.raises(StirredError, match="make it the first step"):
        prepare(of(folder, steps, {"file": "people.csv"}))


def test_a_flat_file_is_split_into_households_and_their_persons(folder: Path) -> None:
    step = {"step": "split", "hid": "house", "households": ["county", "size"]}
    found = prepare(of(folder, [step], {"file": "people.csv"}))
    assert found.data.households.columns == ["house", "county", "size"]
    assert found.data.households.height == 120
    assert found.data.persons is not None
    assert found.data.persons.columns == ["house", "age"]
    assert found.plan.specification.input_premetric.unit == "household"


def test_the_draft_of_a_codebook_proposes_the_columns_of_households(folder: Path, tmp_path: Path) -> None:
    done = stirred("codebook", "init", folder / "people.csv", "--hid", "house", "--out", "c.toml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "c.toml").read_text()
    assert '# households = ["county", "size"]' in text
    assert Codebook.read(tmp_path / "c.toml").of("persons").keys() == {"age"}


def test_files_one_record_apart_stay_at_most_one_apart_on_every_small_file() -> None:
    steps = of(
        Path(),
        [
            {"step": "bottom-code", "column": "age", "at": 2},
            {"step": "top-code", "column": "age", "at": 4},
            {"step": "round", "column": "age", "to": 2},
            {"step": "date", "column": "born", "to": "year"},
            {"step": "first", "column": "sex", "characters": 1},
            {"step": "missing", "column": "sex", "values": ["."]},
            {"step": "drop", "column": "note"},
        ],
    ).prepare
    distance = InputPremetric(name="d_HamS", unit="person").distance
    born = ("2000-01-01", "2000-12-31")
    records = [(age, sex, day, note) for age in (0, 3, 5) for sex in ("f", ".") for day in born for note in "ab"]
    files = [pl.DataFrame(rows, schema=["age", "sex", "born", "note"], orient="row")
             for rows in combinations_with_replacement(records, 2)]  # fmt: skip
    after = [prepared_data(Microdata(households=each), steps).households for each in files]
    closer = 0
    for x, fx in zip(files, after, strict=True):
        for y, fy in zip(files, after, strict=True):
            before, now = distance(x.rows(), y.rows()), distance(fx.rows(), fy.rows())
            assert now <= before
            closer += now < before
    assert closer  # the steps do something


def test_a_quantile_cap_would_cost_the_factor_that_its_refusal_states() -> None:
    # T21: at quantile .6 of n = 5 one changed record can change 3 = n - ceil(qn) + 1 capped ones.
    def capped(values: tuple[int, ...]) -> list[int]:
        cap = sorted(values)[2]
        return sorted(min(value, cap) for value in values)

    distance = InputPremetric(name="d_HamS", unit="record").distance
    files = [*combinations_with_replacement(range(4), 5)]
    worst = max(distance(capped(x), capped(y)) for x in files for y in files if distance(list(x), list(y)) == exact(1))
    assert worst == exact(3)


def test_the_promise_names_what_was_done_and_keeps_its_loss(folder: Path) -> None:
    plain = prepare(of(folder, [])).plan.specification
    coarse = prepare(of(folder, [{"step": "top-code", "column": "rent", "at": 200}])).plan.specification
    assert coarse.domain.prepared == (("rent", "top-coded at 200"),)
    assert coarse.budget == plain.budget
    assert coarse.domain.whole == plain.domain.whole  # it is still a promise about the file as it was
    assert any("pull-back" in line for line in coarse.theorem)
    assert from_json(to_json(coarse)) == coarse
    assert pull_back(plain, prepared=()).specification == plain


def test_releases_prepared_differently_are_added_up_with_their_columns_told_apart(folder: Path) -> None:
    fine = prepare(of(folder, [])).plan.specification
    steps = [{"step": "recode", "column": "county", "hrc": "county.hrc", "level": 1}]
    coarse = prepare(of(folder, steps)).plan.specification
    both = compose([fine, coarse]).specification
    assert both.budget.realised == fine.budget.realised + coarse.budget.realised
    fixed = " ".join(map(str, both.multiverse.invariants))
    assert "county (recoded by level 1 of county.hrc)" in fixed
    assert compose([coarse, coarse]).specification.domain.prepared == coarse.domain.prepared


CODEBOOK = """
[[variables]]
name = "county"
file = "households"
type = "code"
codes = { N0 = "", N1 = "", N2 = "", S0 = "", S1 = "", S2 = "" }
[[variables]]
name = "size"
file = "households"
type = "integer"
min = 1
max = 9
[[variables]]
name = "rent"
file = "households"
type = "integer"
min = 0
max = 1000
[[variables]]
name = "tenure"
file = "households"
type = "code"
codes = { o = "owned", r = "rented" }
missing = ["NA"]
[[variables]]
name = "note"
file = "households"
type = "text"
[[hierarchies]]
name = "county"
variable = "county"
hrc = "county.hrc"
"""


def test_what_is_declared_of_the_prepared_file_follows_from_the_codebook_alone(folder: Path) -> None:
    codebook = Codebook.from_toml(CODEBOOK, folder=folder)
    steps = of(
        folder,
        [
            {"step": "top-code", "column": "size", "at": 4},
            {"step": "band", "column": "rent", "width": 500},
            {"step": "missing", "column": "tenure"},
            {"step": "recode", "column": "county", "hierarchy": "county", "level": 1},
            {"step": "drop", "column": "note"},
        ],
    ).prepare
    after = prepared_codebook(codebook, [step.with_files(codebook, folder) for step in steps])
    assert after.codes("size") == ("1", "2", "3", "4+")
    assert after.codes("rent") == ("0-499", "500-999", "1000-1499")
    assert after.codes("tenure") == ("o", "r", "(missing)")
    assert after.codes("county") == ("North", "South")
    assert after.variable("note") is None
    assert not after.trees


@pytest.mark.parametrize(
    ("steps", "codes"),
    [
        # However wide the range: what is listed are the codes that are left.
        (
            [{"step": "top-code", "at": 100_000}, {"step": "band", "width": 50_000}],
            ("0-49999", "50000-99999", "100000+"),
        ),
        ([{"step": "bottom-code", "at": 10}, {"step": "band", "breaks": [11, 20]}], ("under 11", "11-19", "20+")),
        ([{"step": "top-code", "at": 300_000}, {"step": "round", "to": 200_000}, {"step": "missing"}], None),
        ([{"step": "top-code", "at": 400_000}, {"step": "round", "to": 200_000}], ("0", "200000", "400000+")),
        ([{"step": "band", "breaks": ["0.5"]}], ("under 0.5", "0.5+")),
        ([{"step": "top-code", "at": 2}, {"step": "recode", "map": {"2+": "many"}, "keep": True}], ("0", "1", "many")),
    ],
)
def test_declared_codes_are_all_that_the_steps_can_leave(steps: list[dict[str, Any]], codes: Any) -> None:
    pay = Variable(name="pay", file="households", type="integer", min=0, max=1_000_000)
    parsed = of(Path(), [{"column": "pay", **step} for step in steps]).prepare
    after = prepared_codebook(Codebook(variables=(pay,)), parsed)
    values = pl.Series("pay", [0, 10, 11, 99, 60_000, 400_000, 1_000_000])
    if codes is None:
        with pytest.raises(StirredError, match="no answer"):
            prepared_data(Microdata(households=values.to_frame()), parsed)
        return
    assert after.codes("pay") == codes
    found = prepared_data(Microdata(households=values.to_frame()), parsed).households["pay"]
    assert {*found} <= {*codes}


def test_the_size_of_a_household_is_counted_from_its_persons(folder: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"step": "split", "hid": "house", "households": ["county"]},
        {"step": "drop", "column": "size"},
        {"step": "count", "column": "persons"},
        {"step": "top-code", "column": "persons", "at": 2},
    ]
    mechanism = {**MECHANISM, "match": ["persons"]}
    found = prepare(of(folder, steps, {"file": "people.csv"}, mechanism=mechanism))
    assert found.data.households["persons"].to_list() == ["2+"] * 120
    assert found.plan.specification.input_premetric.unit == "household"
    said = ("persons", "computed as the number of persons of the household")
    assert said in found.plan.specification.domain.prepared
    declared = Variable(name="county", file="households", type="code", codes={"A": "", "B": "", "C": ""})
    parsed = of(folder, steps, {"file": "people.csv"}, mechanism=mechanism).prepare
    assert prepared_codebook(Codebook(variables=(declared,)), parsed).codes("persons") == ("0", "1", "2+")


@pytest.mark.parametrize("name", ["noisy-tables", "permutation-swap"])
def test_a_release_that_counts_persons_says_that_it_looks_at_them(name: str, tmp_path: Path) -> None:
    pl.DataFrame({"hid": [*range(120)], "county": [*"ABC"] * 40, "tenure": [*"or"] * 60}).write_csv(
        tmp_path / "homes.csv"
    )
    people = pl.DataFrame({"hid": [each // 2 for each in range(240)], "sex": [*"fm"] * 120})
    people.write_csv(tmp_path / "people.csv")
    data = {"households": "homes.csv", "persons": "people.csv", "hid": "hid"}
    steps: list[dict[str, Any]] = [
        {"step": "count", "column": "persons"},
        {"step": "top-code", "column": "persons", "at": 3},
        {"step": "drop", "column": "sex"},
    ]
    counted = {"county": ["A", "B", "C"], "persons": ["0", "1", "2", "3+"]}
    noisy = {"name": name, "rho": 1, "values": counted}
    swap = {"name": name, "rate": "1/2", "match": ["persons"], "swap": ["county"]}
    plan = of(
        tmp_path, steps, data, mechanism=noisy if name == "noisy-tables" else swap,
        tables=[{"variables": ["county", "persons"]}], release={"out": "out"},
    )  # fmt: skip
    found = prepare(plan)
    assert found.plan.specification.domain.record_types == ("household", "person")
    run(found)
    assert not audit_bundle(tmp_path / "out").problems


def test_the_size_of_a_household_is_refused_where_it_is_not_part_of_the_record(folder: Path, tmp_path: Path) -> None:
    step = {"step": "count", "column": "persons"}
    with pytest.raises(StirredError, match="there are no persons to count"):
        prepare(of(folder, [step]))
    pl.DataFrame({"hid": [*range(12)], "county": [*"ABC"] * 4, "size": [1] * 12}).write_csv(tmp_path / "homes.csv")
    pl.DataFrame({"hid": [*range(12)], "sex": [*"fm"] * 6}).write_csv(tmp_path / "people.csv")
    data = {"households": "homes.csv", "persons": "people.csv", "hid": "hid"}
    assert prepare(of(tmp_path, [step], data)).data.households["persons"].to_list() == [1] * 12
    with pytest.raises(StirredError, match="there is a column 'size' already"):
        prepare(of(tmp_path, [{"step": "count", "column": "size"}], data))
    (tmp_path / "areas.csv").write_text("county\nA\nB\nC\n")
    topdown = {
        "name": "topdown", "levels": ["county"], "areas": "areas.csv", "attributes": ["sex"],
        "values": {"sex": ["f", "m"]}, "rho": 1, "queries": ["detailed"],
    }  # fmt: skip
    with pytest.raises(StirredError, match=r"entry 1: the promise is about each person, .* more than one record"):
        prepare(of(tmp_path, [step], data, mechanism=topdown))


def test_a_name_that_no_file_has_is_said_with_both_files(tmp_path: Path) -> None:
    pl.DataFrame({"hid": [1, 2], "county": ["A", "B"], "size": [1, 1]}).write_csv(tmp_path / "homes.csv")
    pl.DataFrame({"hid": [1, 2], "age": [5, 6]}).write_csv(tmp_path / "people.csv")
    data = {"households": "homes.csv", "persons": "people.csv", "hid": "hid"}
    with pytest.raises(StirredError, match=r'homes.csv and .*people.csv: there is no column "agee"'):
        prepare(of(tmp_path, [{"step": "drop", "column": "agee"}], data))


def test_a_prepared_release_goes_through_bundle_codebook_and_audit(folder: Path, tmp_path: Path) -> None:
    (folder / "codebook.toml").write_text(CODEBOOK)
    steps: list[dict[str, Any]] = [
        {"step": "top-code", "column": "size", "at": 4},
        {"step": "recode", "column": "county", "hierarchy": "county", "level": 1},
        {"step": "missing", "column": "tenure"},
        {"step": "drop", "column": "note"},
    ]
    data = {"households": "homes.csv", "codebook": "codebook.toml"}
    asked = of(folder, steps, data, tables=[{"variables": ["county", "tenure"]}], release={"out": str(tmp_path / "b")})
    bundle = run(prepare(asked))
    released = pl.read_parquet(bundle / "public" / "data.parquet")
    assert "note" not in released.columns
    assert sorted(released["size"].unique()) == ["1", "2", "3", "4+"]
    assert {*released["county"]} == {"North", "South"}
    audit = audit_bundle(bundle)
    assert audit.passed, audit.problems
    page = (bundle / "public" / "specification.md").read_text()
    assert "size top-coded at 4" in page
    assert "- `size`: top-coded at 4\n" in (bundle / "public" / "README.md").read_text()
    # A specification that says less than the plan does is found.
    file = bundle / "public" / "specification.json"
    changed = json.loads(file.read_text())
    changed["domain"]["prepared"] = changed["domain"]["prepared"][:1]
    file.write_text(json.dumps(changed))
    assert any("domain prepared" in problem.where for problem in audit_bundle(bundle).problems)


def test_the_command_shows_each_column_before_and_after(folder: Path) -> None:
    (folder / "plan.toml").write_text(
        '[data]\nhouseholds = "homes.csv"\n[[prepare]]\nstep = "top-code"\ncolumn = "size"\nat = 4\n'
        '[[prepare]]\nstep = "drop"\ncolumn = "note"\n[mechanism]\nmatch = "size"\nswap = "county"\nrate = "1/2"\n'
    )
    done = stirred("plan", "plan.toml", "--prepared", "homes.csv", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["steps"]
    assert (first["before"], first["after"]) == ("7 values, 1 ... 7", "4 values, 1 ... 4+")
    assert first["records_changed"] == sum(1 + n % 7 >= 4 for n in range(240))
    assert second["after"] is None
    said = stirred("plan", "plan.toml", "--prepared", "homes.csv", cwd=folder)
    assert "keep it inside" in " ".join(said.stdout.split())


def test_changes_are_counted_by_what_the_values_say() -> None:
    (step,) = of(Path(), [{"step": "missing", "column": "age"}]).prepare
    seen: list[Change] = []
    prepared_data(Microdata(households=AGES.to_frame()), [step], seen=seen)
    assert seen[0].changed == 1
    assert words_of([step]) == (("age", "with missing values as the code (missing)"),)


def test_persons_that_are_fetched_column_by_column_are_prepared_when_they_are_read(tmp_path: Path) -> None:
    people = pl.DataFrame({"hid": [1, 1, 2], "age": [5, 95, 40], "note": list("abc")})
    people.write_parquet(tmp_path / "people.parquet")
    homes = pl.DataFrame({"hid": [1, 2], "county": ["A", "B"]})
    steps = of(
        Path(),
        [{"step": "band", "column": "age", "width": 50}, {"step": "drop", "column": "note"}],
    ).prepare
    for persons in (people, ParquetColumns(tmp_path / "people.parquet")):
        after = prepared_data(Microdata(households=homes, persons=persons, hid="hid"), steps)
        assert after.persons is not None
        assert after.persons["age"].to_list() == ["0-49", "50-99", "0-49"]
        assert after.persons.columns == ["hid", "age"]
        assert after.person_variables == ["age"]


def test_the_plan_says_what_is_prepared(folder: Path) -> None:
    found = prepare(of(folder, [{"step": "round", "column": "rent", "to": 10}]))
    assert ("prepared", "rent rounded to 10") in found.plan.outcome()


def test_a_column_that_is_not_there_is_said() -> None:
    (step,) = of(Path(), [{"step": "round", "column": "ag", "to": 5}]).prepare
    with pytest.raises(DataError, match="one column"):
        prepared_data(Microdata(households=AGES.to_frame()), [step])


WRONG_SECTIONS: list[dict[str, Any]] = [
    {"prepare": [{"step": "round", "column": "size", "to": 2}, {"step": "topcode", "column": "size", "at": 3}]},
    {"prepare": [{"step": "localSuppression", "column": "size"}]},
    {"mechanism": {"name": "CKM"}},
    {"mechanism": {"name": "synthpop"}},
    {"mechanism": {"name": "suda2"}},
    {"mechanism": {"name": "l-diversity"}},
    {"prepare": [{"step": "date", "column": "born", "to": "year", "format": "%Q"}]},
    {"prepare": [{"step": "date", "column": "born", "to": "month", "format": "%d %Y"}]},
    {"prepare": [{"step": "date", "column": "born", "to": "year", "format": "day"}]},
    {"mechanism": {"name": "p%"}},
    {"prepare": [{"column": "size"}]},
    {"prepare": {"step": "drop", "column": "note"}},
    {"tables": {"variables": ["county"]}},
    {"mechanism": {"name": "survey-estimates", "epsilon": 1}, "estimates": {"kind": "total"}},
    {"mechanism": {"name": "survey-estimates", "epsilon": 1}, "estimates": [{"kind": "table"}, {}]},
    {"mechanism": {"name": "survey-estimates", "epsilon": 1, "estimates": [{"kind": "table"}, {}]}},
    {"mechanism": {"name": "survey-estimates", "epsilon": 1}, "adjust": [{"poststrata": "sex"}]},
    {"release": [{"out": "b"}]},
]


def test_sections_that_are_written_wrongly_are_told_by_the_section_that_was_written() -> None:
    pages = []
    for sections in WRONG_SECTIONS:
        with pytest.raises(PlanError) as error:
            of(Path(), sections.get("prepare", []), **{k: v for k, v in sections.items() if k != "prepare"})
        (problem,) = error.value.problems
        pages.append(f"{sections}\n    {problem}")
    same_as_kept("wrong sections", "\n".join(pages))


def test_numbers_of_a_text_file_are_numbers_in_parquet_and_codes_keep_their_zeros(tmp_path: Path) -> None:
    rows = range(240)
    pl.DataFrame(
        {
            "hid": [str(n) for n in rows],
            "county": [f"0{n % 3}" for n in rows],
            "size": [str(1 + n % 4) for n in rows],
            "income": ["-5809.400000000001" if n % 2 else "12" for n in rows],
            "rooms": [str(n % 5) if n % 7 else None for n in rows],
            "zone": [f"{n % 2:02d}" for n in rows],
            "trade": [["10.1", "10.10"][n % 2] for n in rows],
            "coded": [str(n % 2) for n in rows],
        }
    ).write_csv(tmp_path / "homes.csv")
    pl.DataFrame({"hid": [str(n) for n in rows], "age": [str(n % 40) for n in rows]}).write_csv(tmp_path / "people.csv")
    texts = ["county", "income", "rooms", "zone", "trade"]
    kinds = {**dict.fromkeys(texts, "text"), "size": "integer", "coded": "code", "age": "integer"}
    entries = [
        f'[[variables]]\nname = "{name}"\nfile = "{"persons" if name == "age" else "households"}"\ntype = "{kind}"\n'
        + "missing = true\n"
        + ('codes = { 0 = "no", 1 = "yes" }\n' if kind == "code" else "")
        for name, kind in kinds.items()
    ]
    (tmp_path / "codebook.toml").write_text('[link]\nhid = "hid"\n' + "".join(entries))
    data = {"households": "homes.csv", "persons": "people.csv", "hid": "hid", "codebook": "codebook.toml"}
    typed = ["Int64", "Float64", "Int64", "String", "String", "String"]
    for ending, wanted in (("parquet", typed), ("csv", ["String"] * 6)):
        release = {"out": str(tmp_path / ending), "format": ending}
        public = run(prepare(of(tmp_path, [], data, release=release))) / "public"
        found = read_frame(public / f"data.{ending}")
        assert [str(found[name].dtype) for name in ("size", "income", "rooms", "zone", "trade", "coded")] == wanted
        assert found["county"].dtype == pl.String  # the codes that are exchanged
        assert {*found["income"].cast(pl.String)} <= {"-5809.400000000001", "12", "12.0"}
        assert {*found["zone"]} == {"00", "01"}
        age = read_frame(public / f"persons.{ending}")["age"]
        assert str(age.dtype) == ("Int64" if ending == "parquet" else "String")
    assert audit_bundle(tmp_path / "parquet").passed
