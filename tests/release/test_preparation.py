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
from stirred.data.microdata import Microdata
from stirred.data.prepare import Change, prepared_codebook, prepared_data
from stirred.data.problems import DataError, PlanError
from stirred.data.steps import Band, Cap, Recode, Round, words_of
from stirred.release.plan_file import planned
from stirred.release.prepared import prepare
from stirred.release.run import run
from stirred.spec import InputPremetric, compose, exact
from stirred.spec.document import from_json, to_json
from stirred.spec.problems import StirredError
from stirred.spec.pull_back import pull_back
from tests.release.bundles import stirred

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
    return planned(content, source="plan.toml", folder=folder)


def stepped(column: pl.Series, **step: Any) -> list[Any]:
    (parsed,) = of(Path(), [{"column": column.name, **step}]).plan.prepare
    return prepared_data(Microdata(households=column.to_frame()), [parsed]).households[column.name].to_list()


AGES = pl.Series("age", [0, 17, 18, 64, 65, 103, None])


@pytest.mark.parametrize(
    ("step", "after"),
    [
        ({"step": "top-code", "at": 90}, [0, 17, 18, 64, 65, 90, None]),
        ({"step": "bottom-code", "at": 18}, [18, 18, 18, 64, 65, 103, None]),
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


def test_a_top_code_in_words_and_decimals_of_a_csv_file_are_numbers_too() -> None:
    data = Microdata(households=pl.DataFrame({"age": ["1.0", "85+", "7", None, " 90"], "pay": list("12345")}))
    words = Recode(step="recode", column=["age"], map={"85+": 85}, keep=True)
    cap = Cap(step="top-code", column=["age"], at=85)
    with pytest.raises(StirredError, match=r"such as 85\+.*keep = true"):
        prepared_data(data, [cap])
    assert prepared_data(data, [words]).households["age"].to_list() == ["1.0", "85", "7", None, " 90"]
    bands = prepared_data(data, [words, cap, Band(step="band", column=["age"], breaks=[18, 65])])
    assert bands.households["age"].to_list() == ["under 18", "65+", "under 18", None, "65+"]
    pay = Microdata(households=pl.DataFrame({"pay": ["12000.5", "-5", "99999999", "50000.0", None]}))
    steps = [Cap(step="top-code", column=["pay"], at=50000), Cap(step="bottom-code", column=["pay"], at=0)]
    assert prepared_data(pay, steps).households["pay"].to_list() == ["12000.5", "0", "50000", "50000", None]
    rounded = [*steps, Round(step="round", column=["pay"], to=1000)]
    assert prepared_data(pay, rounded).households["pay"].to_list() == ["12000", "0", "50000", "50000", None]
    # A leading zero tells a code from a number.
    with pytest.raises(StirredError, match="not numbers, such as 012"):
        prepared_data(Microdata(households=pl.DataFrame({"age": ["012", "x"]})), [cap])


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
            {"step": "bottom-code", "column": "age", "at": 1},
            {"step": "top-code", "column": "age", "at": 4},
            {"step": "round", "column": "age", "to": 2},
            {"step": "missing", "column": "sex", "values": ["."]},
            {"step": "drop", "column": "note"},
        ],
    ).plan.prepare
    distance = InputPremetric(name="d_HamS", unit="person").distance
    records = [(age, sex, note) for age in (0, 3, 5) for sex in ("f", ".") for note in "ab"]
    files = [pl.DataFrame(rows, schema=["age", "sex", "note"], orient="row")
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
    ).plan.prepare
    after = prepared_codebook(codebook, [step.with_files(codebook, folder) for step in steps])
    assert (after.variable("size").min, after.variable("size").max) == (1, 4)  # type: ignore[union-attr]
    assert after.codes("rent") == ("0-499", "500-999", "1000-1499")
    assert after.codes("tenure") == ("o", "r", "(missing)")
    assert after.codes("county") == ("North", "South")
    assert after.variable("note") is None
    assert not after.trees


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
    assert sorted(released["size"].cast(pl.Int64).unique()) == [1, 2, 3, 4]
    assert {*released["county"]} == {"North", "South"}
    audit = audit_bundle(bundle)
    assert audit.passed, audit.problems
    page = (bundle / "public" / "specification.md").read_text()
    assert "size top-coded at 4" in page
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
    done = stirred("prepare", "homes.csv", "--plan", "plan.toml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["steps"]
    assert (first["before"], first["after"]) == ("7 values, 1 ... 7", "4 values, 1 ... 4")
    assert first["records_changed"] == sum(1 + n % 7 > 4 for n in range(240))
    assert second["after"] is None
    said = stirred("prepare", "homes.csv", "--plan", "plan.toml", cwd=folder)
    assert "keep it inside" in " ".join(said.stdout.split())


def test_changes_are_counted_by_what_the_values_say() -> None:
    (step,) = of(Path(), [{"step": "missing", "column": "age"}]).plan.prepare
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
    ).plan.prepare
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
    (step,) = of(Path(), [{"step": "round", "column": "ag", "to": 5}]).plan.prepare
    with pytest.raises(DataError, match="one column"):
        prepared_data(Microdata(households=AGES.to_frame()), [step])


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (
            {"prepare": [{"step": "round", "column": "size", "to": 2}, {"step": "topcode", "column": "size", "at": 3}]},
            "plan.toml [[prepare]] entry 2: there is no step 'topcode'. Fix: did you mean 'top-code'? There are "
            "recode, top-code, bottom-code, band, round, drop, missing, split.",
        ),
        (
            {"prepare": [{"column": "size"}]},
            "plan.toml [[prepare]] entry 1: 'step' is missing. Fix: add step: see docs/plans.md.",
        ),
        (
            {"prepare": {"step": "drop", "column": "note"}},
            "plan.toml [prepare]: it is a list, and this is one entry. Fix: write [[prepare]], with double brackets.",
        ),
        (
            {"tables": {"variables": ["county"]}},
            "plan.toml [tables]: it is a list, and this is one entry. Fix: write [[tables]], with double brackets.",
        ),
        (
            {"mechanism": {"name": "survey-estimates", "epsilon": 1}, "estimates": {"kind": "total"}},
            "plan.toml [estimates]: it is a list, and this is one entry. Fix: write [[estimates]], with double "
            "brackets.",
        ),
        (
            {"mechanism": {"name": "survey-estimates", "epsilon": 1}, "estimates": [{"kind": "table"}, {}]},
            "plan.toml [[estimates]] entry 2 kind: is needed. Fix: add kind.",
        ),
        (
            {"mechanism": {"name": "survey-estimates", "epsilon": 1, "estimates": [{"kind": "table"}, {}]}},
            "plan.toml [mechanism] estimates entry 2 kind: is needed. Fix: add kind.",
        ),
        (
            {"mechanism": {"name": "survey-estimates", "epsilon": 1}, "adjust": [{"poststrata": "sex"}]},
            "plan.toml [[adjust]]: it is no list. Fix: write [adjust], with single brackets.",
        ),
        (
            {"release": [{"out": "b"}]},
            "plan.toml [release]: it is no list. Fix: write [release], with single brackets.",
        ),
    ],
)
def test_sections_that_are_written_wrongly_are_told_by_the_section_that_was_written(
    sections: dict[str, Any], told: str
) -> None:
    with pytest.raises(PlanError) as error:
        of(Path(), sections.pop("prepare", []), **sections)
    assert [str(problem) for problem in error.value.problems] == [told]
