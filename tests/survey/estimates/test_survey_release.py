"""Survey estimates through a plan: released, published, kept in the ledger, and refused where a promise would fail."""

from __future__ import annotations

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
from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError
from stirred.mechanisms.registry import settings_for
from stirred.randomness.entropy import Entropy
from stirred.spec.problems import StirredError
from stirred.survey.estimates.mechanism import SurveyEstimates
from stirred.survey.refusals import DataDependentSensitivity, WeightsNotFixed
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
        "income": rng.integers(0, 120, 400),
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
    assert "clamped" not in published  # how many values were clamped stays inside
    kept = pl.concat([pl.read_parquet(path) for path in (bundle / "internal/noise").iterdir()], how="diagonal")
    assert kept.filter(pl.col("table") == "total income")["clamped"].to_list() == [
        int((a_sample()["income"] > 100).sum())
    ]
    assert run(["audit", "bundle", str(bundle)]) == 0
    assert run(["publish", str(bundle), str(folder / "out")]) == 0
    assert {path.name for path in (folder / "out").iterdir()} >= {"estimates.parquet", "estimates.csv"}


def test_the_true_numbers_are_the_plain_estimates(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a huge loss the noise is small: what is left are the plain estimates and their errors."""
    sample = a_sample().with_columns(pl.col("income").clip(0, 100))
    sample.write_csv(folder / "sample.csv")
    data = Microdata(households=sample, design={"strata": ["region"], "fpc": ["N"], "weights": "w"})
    asked: list[dict[str, Any]] = [
        {"kind": "total", "variable": "income", "bounds": [0, 100]},
        {"kind": "mean", "variable": "income", "bounds": [0, 100]},
        {"kind": "mean", "variable": "income", "bounds": [0, 100], "by": ["sex"]},
        {"kind": "ratio", "variable": "income", "bounds": [0, 100], "denominator": "N", "ratio_bounds": [0, "0.03"],
         "denominator_bounds": [0, 4000]},
    ]  # fmt: skip
    mechanism = SurveyEstimates(
        epsilon=10**8, attest=["design-weights"], weight_bounds=[10, 20], estimates=asked, values={"sex": ["f", "m"]}
    )
    found = mechanism.release(data, Entropy.from_os()).public["estimates"]
    design = ["--strata", "region", "--fpc", "N", "--weights", "w"]
    line = ["--total", "income", "--mean", "income", "--ratio", "income/N"]
    plain = []
    for more in ([], ["--by", "sex"]):
        assert run(["survey", "estimate", str(folder / "sample.csv"), *design, *line, *more, "--json"]) == 0
        plain += json.loads(capsys.readouterr().out)["estimates"]
    wanted = [plain[0], plain[1], plain[4], plain[7], plain[2]]
    assert found["estimate"].to_list() == pytest.approx([each["estimate"] for each in wanted], rel=1e-4)
    assert found["se_sampling"].to_list() == pytest.approx([each["se"] for each in wanted], rel=1e-3)


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
    assert float(plan.inner) == pytest.approx(math.log1p(20 * math.expm1(1)))  # all of it from the rare stratum
    assert plan.shares == (Fraction(1, 20), 1)
    assert dict(plan.attackers)["knows nothing"] == "1.000000"
    assert planned(whole, **settings).inner == plan.inner  # a paid variance moves by the square of the weight


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
        assert note.what.endswith(f"it is up to {plan.inner.shown(6)}")
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
        ({"kind": "total", "bounds": [0, Decimal("NaN")]}, "estimates entry 1 bounds entry 2: NaN is not a number"),
    ],
)  # fmt: skip
def test_a_wrong_key_of_an_estimate_is_told_once_in_everyday_words(estimate: dict[str, Any], told: str) -> None:
    with pytest.raises(StirredError) as caught:
        settings_for("survey-estimates", {"epsilon": 1, "estimates": [estimate]})
    (problem,) = caught.value.problems
    assert told in str(problem)


def test_a_wrong_estimate_is_named_by_its_place_counted_from_1() -> None:
    good = {"kind": "table", "by": ["sex"]}
    with pytest.raises(StirredError, match=r"^estimates entry 2: kind: Field required"):
        SurveyEstimates(epsilon=1, estimates=[good, {"variable": "y"}])


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (
            'kind = "mean"\nvariable = "incme"\nbounds = [0, 100]',
            "[[estimates]] entry 2 'mean incme' (sample.csv): there is no column \"incme\" (wanted as variable)",
        ),
        (
            'kind = "table"\nby = "sexx"',
            "[[estimates]] entry 2 'table by sexx' (sample.csv): there is no column \"sexx\"",
        ),
        (
            'kind = "mean"\nvariable = "income"\nbounds = [150, 0]',
            "[[estimates]] entry 2 'mean income' bounds: 150 is above 0",
        ),
        ('kind = "mean"', "[[estimates]] entry 2 'mean None': a mean is of a variable"),
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
