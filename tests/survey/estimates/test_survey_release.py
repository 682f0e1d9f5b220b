"""Survey estimates through a plan: released, published, kept in the ledger, and refused where a promise would fail."""

from __future__ import annotations

import itertools
import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.frames import as_read
from stirred.data.microdata import Microdata
from stirred.data.missing import MISSING_CODE
from stirred.data.problems import PlanError
from stirred.mechanisms.registry import settings_for
from stirred.mechanisms.tables.query import schema_of
from stirred.randomness.entropy import Entropy
from stirred.spec.exact import exact
from stirred.spec.problems import StirredError
from stirred.survey.estimates.checks import fault
from stirred.survey.estimates.classes import Classes
from stirred.survey.estimates.measure import Rows, Values, totals, variances
from stirred.survey.estimates.mechanism import SurveyEstimates
from stirred.survey.estimates.published import columns_by, remark
from stirred.survey.estimates.queries import Public, asked
from stirred.survey.estimates.settings import Estimate
from stirred.survey.refusals import DataDependentSensitivity, WeightsNotFixed
from stirred.survey.settings import Setting
from tests.survey.estimates.asked import estimate

PLAN = f"""
[data]
sample = "sample.csv"
record = "person"
[design]
strata = "region"
fpc = "N"
weights = "w"
[mechanism]
name = "survey-estimates"
epsilon = 4
attest = {{attest}}
weight_bounds = [10, 20]
{{more}}
[mechanism.values]
sex = ["f", "m"]
{estimate("total", "income")}
{estimate("mean", "income", by="sex")}
{estimate("table", by="sex")}
[release]
out = "bundle"
{{ledger}}
"""
COLUMNS = ["name", "kind", "variable", "where", "sex", "estimate", "se_sampling", "se_privacy", "se", "moe90", "lci",
           "uci", "cv", "flag"]  # fmt: skip


def a_sample() -> pl.DataFrame:
    rng = np.random.default_rng(4)
    there = np.repeat([2000, 4000], 200)
    return pl.DataFrame({
        "region": np.repeat(["N", "S"], 200), "N": there, "w": there / 200, "sex": rng.choice(["f", "m"], 400),
        "income": rng.integers(0, 104, 400),  # a few are beyond the bounds of 0 to 100
    })  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    a_sample().write_csv(tmp_path / "sample.csv")
    return tmp_path


def write_plan(folder: Path, *, attest: str = '["design-weights"]', more: str = "", ledger: str = "") -> str:
    (folder / "plan.toml").write_text(PLAN.format(attest=attest, more=more, ledger=ledger))
    return str(folder / "plan.toml")


def test_a_plan_is_released_and_published(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = write_plan(folder)
    assert run(["plan", plan, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["variance"] == "paid"
    assert run(["release", plan]) == 0
    bundle = folder / "bundle"
    frames = [pl.read_parquet(bundle / "public/estimates.parquet"), pl.read_csv(bundle / "public/estimates.csv")]
    assert all(frame.columns == COLUMNS and frame.height == 5 for frame in frames)
    document = json.loads((bundle / "public/specification.json").read_text())
    assert document["domain"]["stage"] == "sample"
    assert "frame" in json.dumps(document["multiverse"])
    published = "".join(path.read_text(errors="ignore") for path in (bundle / "public").iterdir() if path.is_file())
    assert "values clamped" not in published  # how many were clamped stays inside
    assert "Estimates and intervals are for the clamped population" in published
    assert "weights 10 to 20; income 0 to 100" in published
    kept = pl.concat([pl.read_parquet(path) for path in (bundle / "internal/noise").iterdir()], how="diagonal")
    assert kept.filter(pl.col("table") == "total income")["clamped"].to_list() == [
        int((a_sample()["income"] > 100).sum())
    ]
    assert run(["check", str(bundle)]) == 0
    assert run(["publish", str(bundle), str(folder / "out")]) == 0
    assert {path.name for path in (folder / "out").iterdir()} >= {"estimates.parquet", "estimates.csv"}


def test_a_secret_sample_amplifies_and_the_ledger_knows_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = str(folder / "ledger.db")
    assert run(["ledger", "init", ledger, "--dataset", "survey"]) == 0
    more = ('setting = "frame/frame-variables"\nsample = "survey-2026"\n'
            'sampling = {design = "stratified", n = "200,200", N = "2000,4000"}')  # fmt: skip
    attest = '["design-weights", "random-sample", "secret-sample"]'
    plan = write_plan(folder, attest=attest, more=more, ledger='ledger = "ledger.db"')
    capsys.readouterr()
    assert run(["release", plan]) == 0
    capsys.readouterr()
    assert run(["ledger", "show", ledger, "--json"]) == 0
    told = capsys.readouterr().out
    assert "survey-2026" in told
    assert '"amplified": true' in told
    kept = json.loads(told)["entries"][0]["sampling"]
    assert [float(Fraction(share)) for share in kept["shares"]] == pytest.approx([0.45, 1.0], abs=0.01)


def test_a_stratum_drawn_rarely_decides_the_loss_on_the_sample() -> None:
    """One stratum is taken whole. By the rule for any mechanism nothing would amplify."""
    draw = {"design": "stratified", "n": "200,200", "N": "200,4000"}
    whole = a_sample().with_columns(
        N=pl.when(pl.col("region") == "N").then(200).otherwise(4000),
        w=pl.when(pl.col("region") == "N").then(1.0).otherwise(20.0),
    )
    attest = ["design-weights", "random-sample", "secret-sample"]
    settings: dict[str, Any] = {
        "setting": 11,
        "attest": attest,
        "sample": "s",
        "sampling": draw,
        "weight_bounds": [1, 20],
    }
    plan = planned(whole, **settings, variance="none")
    inner = plan.mechanism.inner_loss
    assert float(inner) == pytest.approx(math.log1p(20 * math.expm1(1)))  # all of it from the rare stratum
    assert plan.sampled[1]["shares"] == ["1/20", "1"]
    assert dict(plan.mechanism.attackers)["knows nothing"] == "1.000000"
    assert planned(whole, **settings).mechanism.inner_loss == inner  # a paid variance moves by the square of the weight


@pytest.mark.parametrize(
    ("ids", "sampling", "fits"),
    [
        ("pair", {"design": "srswor", "n": 200, "N": 2000}, False),  # clusters of two are not drawn one by one
        ("pair", {"design": "cluster", "m": 200, "M": 2000, "K": 2, "equal": 1}, True),
        ("pair", {"design": "cluster", "m": 200, "M": 2000, "K": 1, "equal": 1}, False),
        ("pair", {"design": "cluster", "m": 200, "M": 2000, "K": 3, "equal": 1}, False),  # not all clusters have three
        ("pair", {"design": "cluster", "m": 20, "M": 2000, "K": 2, "equal": 1}, False),  # it has 200 clusters
        ("pair", {"design": "two-stage", "m": 200, "M": 1000, "n2": 2, "N2": 4}, True),
        ("pair", {"design": "two-stage", "m": 1, "M": 1000, "n2": 2, "N2": 4}, False),
        ("one", {"design": "systematic", "step": 10, "N": 4000, "order": "random"}, True),
        ("one", {"design": "systematic", "step": 100, "N": 4000, "order": "random"}, False),  # it has 400, not 40
        ("one", {"design": "srswr", "n": 400, "N": 4000}, True),
        ("one", {"design": "srswr", "n": 4, "N": 4000}, False),
        ("one", {"design": "srswor", "n": 400, "N": 4000}, True),
        ("one", {"design": "srswor", "n": 400, "N": 8000}, False),  # weights say 1 in 10
    ],
)
def test_clusters_are_drawn_as_clusters(ids: str, sampling: dict[str, Any], fits: bool) -> None:
    rows = pl.int_range(pl.len())
    file = a_sample().with_columns(pair=rows // 2, one=rows, w=pl.lit(10.0))
    settings = {
        "setting": 11, "attest": ["design-weights", "random-sample", "secret-sample"], "sample": "s",
        "sampling": sampling, "design": {"ids": [ids], "weights": "w"}, "most_in_cluster": 2,
    }  # fmt: skip
    if fits:
        assert planned(file, **settings).epsilon == 1
    else:
        with pytest.raises(StirredError, match="not that of the file"):
            planned(file, **settings)


def test_weights_beside_the_stated_ones_are_refused() -> None:
    """The part of the loss that a stratum has counts N/n in steps: a weight three steps above it has more."""
    draw = {"design": "stratified", "n": "200,200", "N": "2000,2000000"}
    heavy = pl.when(pl.col("region") == "N").then(10.0).otherwise(10000.0)
    settings: dict[str, Any] = {
        "setting": 11, "attest": ["design-weights", "random-sample", "secret-sample"], "sample": "s", "sampling": draw,
        "weight_bounds": [1, 20000], "design": {"strata": ["region"], "weights": "w"}, "variance": "none",
    }  # fmt: skip
    planned(a_sample().with_columns(w=heavy), **settings)
    with pytest.raises(StirredError, match="half a step of weight_grid"):
        planned(a_sample().with_columns(w=heavy * 1.000003), **settings)


def test_weights_of_zero_are_refused() -> None:
    with pytest.raises(StirredError, match="a weight is 0"):
        planned(a_sample().with_columns(w=pl.lit(0.0)), design={"weights": "w"}, variance="none")


BAD: list[tuple[dict[str, Any], str]] = [
    ({"attest": []}, "after-noise.*, or hold the counts"),
    ({"attest": ["design-weights", "honesty"]}, "nothing called 'honesty'"),
    ({"setting": 1}, "changed population"),
    ({"setting": 2}, "the draw is not stated"),
    (
        {"setting": 3, "sampling": {"design": "stratified", "n": "1,1", "N": "2,2"}, "sample": "s"},
        "weights vary with the",
    ),
    ({"setting": "moon"}, "not a stage"),
    ({"setting": 12}, "no setting 12"),
    ({"setting": 11}, "the draw is not stated"),
    (
        {"setting": 11, "sampling": {"design": "srswor", "n": 100, "N": 1000}},
        "^sample: .* its name is needed",
    ),
    (
        {
            "setting": 11,
            "sample": "s",
            "attest": ["design-weights", "random-sample", "secret-sample"],
            "sampling": {"design": "poisson", "pi": "0.1,0.2"},
        },
        "samples differ in size",
    ),
    ({"sampling": {"design": "srswor", "n": 1, "N": 2}}, "protects nobody further"),
    ({"imputation": "hot-deck"}, "hot deck copies answers"),
    ({"estimates": []}, "is needed"),
    ({"estimates": [{"kind": "total"}]}, "of a variable"),
    ({"estimates": [{"kind": "table"}]}, "columns of by"),
    ({"estimates": [{"kind": "ratio", "variable": "y", "bounds": [0, 1]}]}, "needs a denominator"),
    ({"estimates": [{"kind": "table", "by": ["sex"]}] * 2}, "asked for twice"),
    ({"epsilon": 0}, "0 is not above 0"),
    ({"confidence": 95}, "did you mean 95%"),
    ({"setting": "sampel/frame"}, "setting: 'sampel' is not a stage"),
    ({"estimates": [{"kind": "table", "where": {"sex": "ff"}}], "values": {"sex": ["f", "m"]}}, "cannot be 'ff'"),
    ({"tables": [["sex"]]}, "among the estimates"),
    ({"variance_share": 1}, "between 0 and 1"),
]


@pytest.mark.parametrize(("settings", "told"), BAD)
def test_bad_settings_are_refused(settings: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {
        "epsilon": 1, "attest": ["design-weights"], "weight_bounds": [1, 3],
        "estimates": [{"kind": "table", "by": ["sex"]}],
    }  # fmt: skip
    with pytest.raises(StirredError, match=told):
        SurveyEstimates(**{**given, **settings})


def planned(file: pl.DataFrame, **settings: Any) -> Any:
    given: dict[str, Any] = {
        "epsilon": 1, "attest": ["design-weights"], "weight_bounds": [10, 20], "values": {"sex": ["f", "m"]},
        "estimates": [{"kind": "table", "by": ["sex"]}],
    }  # fmt: skip
    design = settings.pop("design", {"strata": ["region"], "fpc": ["N"], "weights": "w"})
    return SurveyEstimates(**{**given, **settings}).plan(Microdata(households=file, design=design))


def test_calibrated_weights_given_as_fixed_are_refused_with_both_ways_out() -> None:
    calibrated = a_sample().with_columns(w=pl.col("w") * 1.01)
    with pytest.raises(WeightsNotFixed, match=r"after-noise.*or hold the counts"):
        planned(calibrated)


@pytest.mark.parametrize(
    ("sampling", "fits"),
    [
        ({"design": "stratified", "n": "200,200", "N": "2000,4000"}, True),
        ({"design": "stratified", "n": "200,200", "N": "4000,4000"}, False),
        ({"design": "stratified", "n": "100,200", "N": "2000,4000"}, False),
        ({"design": "srswor", "n": 400, "N": 6000}, False),
    ],
)
def test_a_stated_draw_must_be_that_of_the_file(sampling: dict[str, Any], fits: bool) -> None:
    attest = ["design-weights", "random-sample", "secret-sample"]
    settings = {"setting": 11, "attest": attest, "sample": "s", "sampling": sampling}
    if fits:
        plan = planned(a_sample(), **settings)
        note = next(each for each in plan.doubts if each.kind == "known-sample")
        assert plan.epsilon == 1
        assert note.what.endswith(f"it is up to {exact(plan.mechanism.inner_loss).shown(6)}")
    else:
        with pytest.raises(StirredError, match="not that of the file"):
            planned(a_sample(), **settings)


@pytest.mark.parametrize("setting", [6, 9, 10])
def test_weights_without_public_bounds_are_refused(setting: int) -> None:
    """In setting 10 too: the sample is held fixed, and the file has only those of it who responded."""
    with pytest.raises(DataDependentSensitivity, match="no public bounds"):
        planned(a_sample(), weight_bounds=None, setting=setting)


@pytest.mark.parametrize("setting", [9, 10])
def test_weights_of_respondents_are_not_computed_from_their_counts(setting: int) -> None:
    """Records may change their stratum here: N over the count of respondents would move the weights of all others."""
    settings = {"setting": setting, "weight_bounds": [10, 80], "variance": "none"}
    responded = a_sample().filter(pl.int_range(pl.len()) % 4 != 0)
    with pytest.raises(WeightsNotFixed, match="adjusted for nonresponse"):
        planned(responded, **settings, design={"strata": ["region"], "fpc": ["N"]})
    planned(responded, **settings)  # design weights are below N over the count, and are taken
    with pytest.raises(WeightsNotFixed, match="not those that fpc gives"):
        planned(responded.with_columns(pl.col("w") * 1.5), **settings)
    planned(responded, **{**settings, "setting": 7, "attest": []}, design={"strata": ["region"], "fpc": ["N"]})


@pytest.mark.parametrize(
    ("change", "settings", "told"),
    [
        (pl.lit(None).cast(pl.String).alias("sex"), {}, "400 records have no value"),
        (pl.lit("x").alias("sex"), {}, "not declared"),
        (pl.lit("x").alias("income"), {"estimates": [{"kind": "mean", "variable": "income", "bounds": [0, 1]}]},
         "'x' in record 1 is not a number"),
        (pl.lit("1,5").alias("income"), {"estimates": [{"kind": "mean", "variable": "income", "bounds": [0, 1]}]},
         "decimals with a point"),
        (pl.lit("40%").alias("w"), {}, "without the percent sign"),
        (pl.lit(1).alias("y"), {"estimates": [{"kind": "mean", "variable": "y"}]}, "two public numbers"),
        (pl.lit(1).alias("y"), {"estimates": [{"kind": "mean", "variable": "y", "bounds": [0, "1/2"]}]}, "on the grid"),
        (pl.lit(1).alias("y"), {"estimates": [{"kind": "total", "variable": "y", "bounds": [0, 10**11]}]},
         "is wider than can be drawn"),
        (pl.lit(1).alias("y"), {"design": {}}, "without a design"),
        (pl.lit(1).alias("y"), {"design": {"ids": ["region"], "weights": "w"}}, "records of one"),
        (pl.int_range(pl.len()).alias("h"), {"design": {"strata": ["h"], "weights": "w"}}, "one sampled cluster"),
        (pl.lit(1).alias("y"), {"setting": "sample", "attest": []}, "needs weights that are fixed"),
    ],
)  # fmt: skip
def test_samples_that_do_not_fit_are_refused(change: pl.Expr, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(StirredError, match=told):
        planned(a_sample().with_columns(change), **settings)


def test_a_plan_with_estimates_for_another_mechanism_is_refused(folder: Path) -> None:
    text = PLAN.format(attest="[]", more="", ledger="").replace("survey-estimates", "noisy-tables")
    (folder / "plan.toml").write_text(text)
    assert run(["plan", str(folder / "plan.toml")]) == 2


def test_problems_are_told_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        SurveyEstimates(epsilon=0, estimates=[], attest=["x"])
    assert len(caught.value.problems) >= 3


@pytest.mark.parametrize(
    ("estimate", "told"),
    [
        ({"kind": "total", "varible": "y"}, "there is no setting called 'varible'. Fix: did you mean 'variable'?"),
        ({"variable": "y"}, "estimates entry 1 kind: is needed. Fix: add kind."),
        ({"kind": "total", "bounds": [0, Decimal("NaN")]}, "estimates entry 1 bounds entry 2: nan is not a number"),
    ],
)  # fmt: skip
def test_a_wrong_key_of_an_estimate_is_told_once_in_everyday_words(estimate: dict[str, Any], told: str) -> None:
    with pytest.raises(StirredError) as caught:
        settings_for("survey-estimates", {"epsilon": 1, "estimates": [estimate]})
    (problem,) = caught.value.problems
    assert told in str(problem)


def test_a_wrong_estimate_is_named_by_its_place_counted_from_1() -> None:
    good = {"kind": "table", "by": ["sex"]}
    with pytest.raises(StirredError, match=r"^estimates entry 2 kind: is needed"):
        SurveyEstimates(epsilon=1, estimates=[good, {"variable": "y"}])


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            'kind = "mean"\nvariable = "incme"\nbounds = [0, 100]',
            "[[estimates]] entry 2 'mean incme' (sample.csv): there is no column \"incme\" (named in variable)",
        ),
        (
            'kind = "table"\nby = "sexx"',
            "[[estimates]] entry 2 'table by sexx' (sample.csv): there is no column \"sexx\"",
        ),
        (
            'kind = "mean"\nvariable = "income"\nbounds = [150, 0]',
            "[[estimates]] entry 2 'mean income' bounds: 150 is above 0",
        ),
        ('kind = "mean"', "[[estimates]] entry 2 'mean': a mean is of a variable"),
        ('kind = "sum"', "[[estimates]] entry 2 kind: 'sum': input should be"),
    ],
)
def test_a_mistake_in_a_plan_is_told_by_its_file_and_entry(
    entry: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Path(write_plan(folder))
    first, _, rest = plan.read_text().partition("[[estimates]]")
    good = '[[estimates]]\nkind = "total"\nvariable = "income"\nbounds = [0, 100]\n'
    release = rest[rest.index("[release]") :]
    plan.write_text(f"{first}{good}\n[[estimates]]\n{entry}\n\n{release}")
    assert run(["plan", str(plan)]) == 2
    assert f"{plan} {told}" in capsys.readouterr().err.replace(f"({folder}/", "(")


# ---- beyond the bounds


def doubts_of(file: pl.DataFrame, **settings: Any) -> dict[str, Any]:
    total = {"kind": "total", "variable": "income", "bounds": [0, 100]}
    return {each.name: each for each in planned(file, **{"estimates": [total], **settings}).doubts}


def test_weights_and_values_beyond_their_bounds_are_counted_and_refused_above_a_share() -> None:
    few = doubts_of(a_sample())
    count = int((a_sample()["income"] > 100).sum())
    assert not few["clamped:income"].refuses
    assert f"{count} of 400 values" in few["clamped:income"].what
    assert "clamped:w" not in few
    weights = doubts_of(a_sample(), weight_bounds=[1, 5])["clamped:w"]
    assert weights.refuses
    assert '400 of 400 values of "w" lie beyond the declared bounds 1 and 5' in weights.what
    assert "400" not in weights.public
    rich = a_sample().with_columns(income=pl.when(pl.int_range(pl.len()) == 7).then(10**6).otherwise(50))
    assert doubts_of(rich)["clamped:income"].refuses  # one record, and nearly all of the total
    assert "clamped:income" not in doubts_of(rich, estimates=[{"kind": "table", "by": ["sex"]}])
    only = [{"kind": "total", "variable": "income", "bounds": [0, 100], "where": {"region": ["S"]}}]
    assert "clamped:income" not in doubts_of(rich, estimates=only)  # the record is not in that domain
    ratio = {"kind": "ratio", "variable": "income", "bounds": [0, 200], "denominator": "N",
             "denominator_bounds": [0, 100], "ratio_bounds": [0, 1]}  # fmt: skip
    assert doubts_of(a_sample(), estimates=[ratio])["clamped:N"].refuses


def test_a_domain_whose_values_or_weights_are_clamped_refuses_however_large_the_file_is() -> None:
    sample = pl.concat([a_sample()] * 10)
    rich = sample.with_columns(
        sector=pl.when(pl.int_range(pl.len()) % 100 == 7).then(pl.lit("mining")).otherwise(pl.lit("other")),
        income=pl.when(pl.int_range(pl.len()) % 100 == 7).then(300).otherwise(80),
    )
    total = {"kind": "total", "variable": "income", "bounds": [0, 100]}
    drawn = {"strata": ["region"], "weights": "w"}
    values = {"values": {"sector": ["mining", "other"]}, "epsilon": 20, "design": drawn}
    assert not doubts_of(rich, estimates=[total], **values)["clamped:income"].refuses  # 2.5% of the whole
    found = doubts_of(rich, estimates=[total, {**total, "by": ["sector"]}], **values)["clamped:income"]
    assert found.refuses
    assert "where sector is 'mining' it is 40 of 40, and changes its weighted sum by 66.7%" in found.what
    assert "mining" not in found.public
    heavy = rich.with_columns(income=80, w=pl.when(pl.col("sector") == "mining").then(45.0).otherwise("w"))
    table = {"kind": "table", "by": ["sector"]}
    found = doubts_of(heavy, estimates=[table], **values)["clamped:w"]
    assert found.refuses
    assert "where sector is 'mining' it is 40 of 40" in found.what
    # What the noise of the domain hides does not mislead: its interval says more than that.
    quiet = {**values, "epsilon": "1/100"}
    assert not doubts_of(rich, estimates=[{**total, "by": ["sector"]}], **quiet)["clamped:income"].refuses


def test_numbers_that_the_grid_rounds_into_the_bounds_are_not_clamped() -> None:
    third = a_sample().with_columns(N=pl.lit(2000), w=pl.lit(2000 / 200 + 1 / 300), income=pl.lit(100.4))
    found = doubts_of(third, weight_bounds=[1, 10], design={"strata": ["region"], "weights": "w"})
    assert not [name for name in found if name.startswith("clamped")]


def test_a_release_of_clamped_weights_needs_a_person_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Path(write_plan(folder))
    plan.write_text(plan.read_text().replace("weight_bounds = [10, 20]", "weight_bounds = [1, 5]"))
    assert run(["release", str(plan)]) == 2
    assert "clamped:w" in capsys.readouterr().err
    assert not (folder / "bundle").exists()
    plan.write_text(plan.read_text().replace('out = "bundle"', 'out = "bundle"\naccept = ["clamped:w"]'))
    assert run(["release", str(plan)]) == 0
    assert (
        "many values of w lie beyond their declared bounds" in (folder / "bundle/public/specification.md").read_text()
    )


def test_a_mean_outside_its_bounds_is_published_with_a_remark(folder: Path) -> None:
    estimate = Estimate(kind="mean", variable="score", bounds=[200, 1000])
    assert [remark(estimate, value) for value in (199.0, 200.0, 1000.0, 1909.0)] == ["o", "", "", "o"]
    assert remark(Estimate(kind="total", variable="score", bounds=[200, 1000]), -5.0) == ""
    plan = Path(write_plan(folder))
    plan.write_text(plan.read_text().replace("epsilon = 4", "epsilon = '1/100'"))
    assert run(["release", str(plan), "--quiet"]) == 0
    table = pl.read_parquet(folder / "bundle/public/estimates.parquet").filter(pl.col("estimate").is_not_null())
    for row in table.iter_rows(named=True):
        outside = row["kind"] == "mean" and not 0 <= row["estimate"] <= 100
        assert row["flag"].endswith("o") is outside
    told = (folder / "bundle/public/README.md").read_text()
    assert "o after the flag: a mean or ratio came out beyond its declared bounds" in " ".join(told.split())
    assert run(["check", str(folder / "bundle")]) == 0


def test_a_bundle_of_before_without_the_remark_is_still_whole() -> None:
    mechanism = SurveyEstimates(epsilon=1, attest=["design-weights"], weight_bounds=[1, 2],
                                estimates=[{"kind": "mean", "variable": "y", "bounds": [0, 1]}])  # fmt: skip
    row = {"name": "mean y", "kind": "mean", "variable": "y", "where": "", "estimate": 5.0, "se_sampling": 3.0,
           "se_privacy": 4.0, "se": 5.0, "moe90": 8.0, "lci": -5.0, "uci": 15.0, "cv": 1.0}  # fmt: skip
    for flag, fine in (("F", True), ("F o", True), ("", False), ("E o", False)):
        table = pl.DataFrame([{**row, "flag": flag}], schema=schema_of(columns_by([])))
        assert (fault(mechanism, table, as_read(table, "csv")) == "") is fine


# ---- denominators that the design fixes


def test_means_of_strata_pay_for_no_denominator() -> None:
    mean = {"kind": "mean", "variable": "income", "bounds": [0, 100]}
    domains = [{**mean, "by": ["region"]}, {**mean, "where": {"region": ["N"]}}, {**mean, "by": ["sex"]}, mean]
    values = {"sex": ["f", "m"], "region": ["N", "S", "W"]}
    plan = planned(a_sample(), estimates=domains, values=values)
    assert [[*each.queries] for each in plan.estimates] == [
        ["top", "variance"], ["top", "variance"], ["top", "below", "variance"], ["mean", "variance"]
    ]  # fmt: skip
    region, _, sex, _ = plan.estimates
    assert region.queries["top"].loss == 2 * sex.queries["top"].loss
    # A record is replaced by one of its own stratum, and not taken out of one cell into another.
    assert 2 * region.queries["top"].one == sex.queries["top"].one
    for settings in (
        {"variance": "none"},  # then the sampled counts are not held fixed
        {"setting": 9},  # who responds is not fixed
        {"design": {"strata": ["region"], "weights": "w"}},  # without fpc nothing shows the sizes
        {"design": {"ids": ["person"], "strata": ["region"], "fpc": ["N"], "weights": "w"}, "most_in_cluster": 1},
    ):
        file = a_sample().with_row_index("person")
        paid = planned(file, estimates=domains[:1], values=values, **settings)
        assert "below" in paid.estimates[0].queries


def test_a_stratum_with_nobody_has_no_mean() -> None:
    sample = a_sample().with_columns(pl.col("income").clip(0, 100))
    data = Microdata(households=sample, design={"strata": ["region"], "fpc": ["N"], "weights": "w"})
    mean = {"kind": "mean", "variable": "income", "bounds": [0, 100]}
    mechanism = SurveyEstimates(
        epsilon=10**9, attest=["design-weights"], weight_bounds=[10, 20], values={"region": ["N", "S", "W"]},
        estimates=[{**mean, "by": ["region"]}, mean],
    )  # fmt: skip
    found = mechanism.release(data, Entropy.from_os()).public["estimates"]
    assert found["flag"].to_list()[2] == "x"  # nobody was drawn there


def test_means_of_strata_lose_what_is_promised() -> None:
    """All samples of two strata, two records in each: a record is replaced by one of its own stratum."""
    public = Public(
        setting=Setting("sample", "frame"), n=4, weights=(1, 3), weight_grid=Fraction(1), strata=(2, 2),
        sizes=Classes(frame=pl.DataFrame({"h": ["0", "1"]}), totals=(Fraction(2), Fraction(6)), counts=(2, 2)),
    )  # fmt: skip
    mean = Estimate(kind="mean", variable="y", bounds=[0, 2], by=["h"])
    own = asked(mean, public, cells=2, loss=Fraction(1), paid=Fraction(1, 5))
    rows = Rows(weights=np.array([1, 1, 3, 3]), cluster=np.arange(4), stratum=np.array([0, 0, 1, 1]), drawn=(2, 2),
                left=(Fraction(1), Fraction(1)))  # fmt: skip
    samples = [*itertools.product((0, 1, 2), repeat=4)]
    numbers = []
    for y in samples:
        values = Values(y=np.array(y), x=np.ones(4, dtype=np.int64), cell=np.array([0, 0, 1, 1]))
        numbers.append((*totals(own, rows, values)["top"].tolist(), *variances(own, rows, values, [0, 0]).tolist()))
    rates = [own.queries[role].noise.loss.rational for role in ("top", "top", "variance", "variance")]
    tight = Fraction(0)
    for (a, one), (b, other) in itertools.combinations(zip(samples, numbers, strict=True), 2):
        apart = sum(x != y for x, y in zip(a, b, strict=True))
        lost = sum(abs(x - y) * rate for x, y, rate in zip(one, other, rates, strict=True))
        tight = max(tight, Fraction(lost) / apart)
    assert Fraction(9, 10) < tight <= 1


def test_missing_values_that_are_a_code_are_a_declared_domain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = a_sample().with_columns(
        pl.col("w").cast(pl.Int64), sex=pl.when(pl.int_range(pl.len()) % 4 > 0).then("sex")
    )
    sample.write_parquet(folder / "sample.parquet")
    integer = 'integer"'
    types = {"region": 'code"\ncodes = { N = "", S = "" }', "sex": 'code"\nmissing = true\ncodes = { f = "", m = "" }'}
    declared = [
        f'[[variables]]\nname = "{name}"\nfile = "persons"\ntype = "{types.get(name, integer)}\n'
        for name in sample.columns
    ]
    (folder / "codebook.toml").write_text('[codebook]\ntitle = "t"\n' + "".join(declared))
    plan = Path(write_plan(folder)).read_text().replace('[mechanism.values]\nsex = ["f", "m"]\n', "")
    coded = 'sample = "sample.parquet"\ncodebook = "codebook.toml"\nmissing_as = "code"'
    (folder / "plan.toml").write_text(plan.replace('sample = "sample.csv"', coded))
    assert run(["release", str(folder / "plan.toml"), "--quiet"]) == 0, capsys.readouterr().err
    estimates = pl.read_parquet(folder / "bundle" / "public" / "estimates.parquet")
    assert {*estimates.filter(pl.col("kind") == "table")["sex"]} == {"f", "m", MISSING_CODE}
