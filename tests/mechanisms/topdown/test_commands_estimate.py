"""The commands that estimate, as they are run: from a bundle, from a website, from files of one's own."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run as command
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.topdown import published
from stirred.mechanisms.topdown.commands import (
    COMMANDS,
    HierarchyEstimateOptions,
    IntervalOptions,
    run_estimate,
    run_interval,
    where_query,
)
from stirred.mechanisms.topdown.hierarchy.least_squares import Residuals
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema, schema_named
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Level, Tree
from stirred.release.ledger import Ledger
from stirred.release.publish import publish
from tests.mechanisms.topdown.hierarchies import answer
from tests.mechanisms.topdown.layout import write_codebook, write_file
from tests.mechanisms.topdown.people import people, wards
from tests.mechanisms.topdown.test_topdown_release import PLAN, codebook


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Release the measurements of a few people."""
    folder = tmp_path_factory.mktemp("people")
    people().write_csv(folder / "people.csv")
    wards().write_csv(folder / "wards.csv")
    (folder / "codebook.toml").write_text(codebook(), encoding="utf-8")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    Ledger.create(folder / "a.ledger", dataset="people")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert command(["release", "plan.toml", "--quiet"]) == 0
    return folder / "out"


def test_an_interval_from_a_bundle_is_near_the_truth_and_exact_where_that_is_published(bundle: Path) -> None:
    outcome = run_interval(IntervalOptions(bundle=bundle, where=["sex=f"], level=0.999_999))
    low, high = outcome.values["interval"]
    assert low < people().filter(sex="f").height < high
    assert outcome.values["estimate"] == pytest.approx((low + high) / 2)
    spine = pl.read_parquet(bundle / "public/spine.parquet")
    for code in spine.filter(geolevel="region")["geocode"]:
        total = run_interval(IntervalOptions(bundle=bundle, area=[code]))
        assert total.values["std_dev"] == 0
        assert total.values["interval"] == [pytest.approx(total.values["estimate"])] * 2
        assert total.values["estimate"] == pytest.approx(round(total.values["estimate"]))


def test_areas_together_are_their_sum_and_two_that_make_up_a_third_are_the_third(bundle: Path) -> None:
    spine = pl.read_parquet(bundle / "public/spine.parquet")
    (district, *_) = spine.filter(geolevel="district")["geocode"].to_list()
    inside = spine.filter((pl.col("geolevel") == "ward") & (pl.col("parent") == district))["geocode"].to_list()
    whole = run_interval(IntervalOptions(bundle=bundle, area=[district], where=["age=65+"])).values
    parts = run_interval(IntervalOptions(bundle=bundle, area=inside, where=["age=65+"])).values
    assert parts["estimate"] == pytest.approx(whole["estimate"])
    assert parts["std_dev"] == pytest.approx(whole["std_dev"])


def test_a_website_answers_like_the_bundle(bundle: Path, tmp_path: Path) -> None:
    publish(bundle, tmp_path / "website")
    inside = run_interval(IntervalOptions(bundle=bundle, where=["sex=m"])).values
    assert run_interval(IntervalOptions(bundle=tmp_path / "website", where=["sex=m"])).values == inside


def test_estimates_of_a_bundle_add_up_and_agree_with_its_variances(bundle: Path, tmp_path: Path) -> None:
    public = bundle / "public"
    options = HierarchyEstimateOptions(
        measurements=public / "measurements.parquet",
        constraints=public / "constraints.parquet",
        spine=public / "spine.parquet",
        schema_=str(bundle.parent / "codebook.toml"),
        out=tmp_path / "e.parquet",
    )
    outcome = run_estimate(options)
    assert 1e-6 < outcome.values["probability_of_more"] < 1 - 1e-6
    found = pl.read_parquet(tmp_path / "e.parquet").filter(query_name="total_dpq")
    sums = found.group_by("geolevel").agg(pl.col("estimate").sum())["estimate"].to_list()
    assert sums == pytest.approx([people().height] * 4)


def test_a_bundle_that_does_not_say_its_schema_asks_for_it(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "measurements.parquet").write_bytes((bundle / "public/measurements.parquet").read_bytes())
    (tmp_path / "specification.json").write_text("{}")
    with pytest.raises(DataError, match="it does not say what was measured"):
        run_interval(IntervalOptions(bundle=tmp_path))


def test_what_no_measurement_tells_is_said_not_to_be_estimable(tmp_path: Path) -> None:
    schema = Schema(
        name="s", attributes=(Attribute(name="sex", codes=("m", "f")), Attribute(name="old", codes=("n", "y")))
    )
    query = schema.query("sex")
    answers = Answers(query=query, values=np.array([[5, 7]]), variance=np.array([2.0]))
    level = Level(name="all", geocodes=("",), parent=np.zeros(1, dtype=np.int64), answers=(answers,))
    write_file(Tree(schema=schema, levels=(level,)), tmp_path / "m.parquet")
    write_codebook(schema, tmp_path / "s.toml")
    for where, estimable in (("sex=f", True), ("sex=f,m", True), ("old=y", False), ("old=n,y", True)):
        options = IntervalOptions(bundle=tmp_path / "m.parquet", where=[where], schema_=str(tmp_path / "s.toml"))
        outcome = run_interval(options)
        assert outcome.values["estimable"] is estimable
        assert ("not estimable" in dict(outcome.rows)["estimate"]) is not estimable


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("height=3", "'height=3' is not in the schema"),
        ("sex=x", "'sex=x' is not in the schema. Fix: sex has the codes"),
    ],
)
def test_conditions_that_the_schema_does_not_have_are_refused(bundle: Path, where: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        run_interval(IntervalOptions(bundle=bundle, where=[where]))


def test_a_codebook_with_a_hierarchy_of_codes_has_groupings(tmp_path: Path) -> None:
    (tmp_path / "age.hrc").write_text("young\n@0\n@1\nold\n@2\n")
    (tmp_path / "book.toml").write_text(
        '[[variables]]\nname = "age"\nfile = "persons"\ntype = "code"\n'
        '[variables.codes]\n0 = ""\n1 = ""\n2 = ""\n'
        '[[hierarchies]]\nname = "grown"\nvariable = "age"\nhrc = "age.hrc"\ngeographic = false\n'
    )
    pl.DataFrame({"geolevel": ["a"], "age": ["*"], "other": [1]}).write_parquet(tmp_path / "m.parquet")
    measured = partial(published._measured_variables, tmp_path / "m.parquet")
    schema = schema_named(str(tmp_path / "book.toml"), attributes=measured)
    assert schema.names == ("age",)
    assert schema.query("grown").groups == ((0, 0, 1),)


def test_an_output_that_cannot_be_written_is_said(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "e.parquet")
    assert command(["topdown", "estimate", "--measurements", str(bundle), "--out", out]) == 2
    assert "the system refused" in capsys.readouterr().err


def test_residuals_far_from_their_freedom_have_almost_no_chance() -> None:
    assert Residuals(squares=3.0, freedom=0).chance is None
    many, few = (Residuals(squares=squares, freedom=10_000).chance for squares in (12_000.0, 8_000.0))
    assert many is not None
    assert few is not None
    assert many < 1e-6 < 1 - 1e-6 < few


def test_conditions_become_one_cell() -> None:
    schema = Schema(
        name="s", attributes=(Attribute(name="a", codes=("1", "2", "3")), Attribute(name="b", codes=("x", "y")))
    )
    counts = np.arange(6)[None, :]
    for where, expected in ((["a=2,3"], 14), (["a=1", "b=y"], 1), ([], 15), (["a=1,2,3", "b=x"], 6)):
        query, cell = where_query(schema, where)
        assert answer(query, counts)[0, cell] == expected


def test_the_commands_are_named_as_documented() -> None:
    assert [each.name for each in COMMANDS][:2] == ["estimate", "interval"]
    options = {name.rstrip("_") for name in HierarchyEstimateOptions.model_fields}
    assert options == {"measurements", "constraints", "totals", "spine", "schema", "areas", "targets", "out"}
