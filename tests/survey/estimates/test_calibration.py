"""Survey estimates calibrated to public totals: after the noise, with counts held fixed, and files that do not fit."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.mechanisms.tables.query import DrawnAnswers
from stirred.randomness.entropy import Entropy
from stirred.spec.problems import StirredError
from stirred.survey.estimates.error_law import Noise, beyond, half_width
from stirred.survey.estimates.mechanism import SurveyEstimates
from stirred.survey.refusals import EmptyCell, WeightsNotFixed
from stirred.survey.sensitivity import poststrat_sensitivity
from tests.survey.estimates.test_survey_release import a_sample, write_plan

TOTALS = pl.DataFrame({"sex": ["f", "m"], "total": [3100, 2900]})
TOTAL = {"kind": "total", "variable": "income", "bounds": [0, 100]}
MEAN = {**TOTAL, "kind": "mean"}


def survey(*estimates: dict[str, Any], when: str = "after-noise", **settings: Any) -> SurveyEstimates:
    adjust = {"poststrata": ["sex"], "totals": settings.pop("totals", TOTALS), "when": when}
    bounds = None if when == "counts-invariant" else [15, 15]
    given: dict[str, Any] = {"epsilon": 4, "attest": ["design-weights"], "weight_bounds": bounds, "adjust": adjust,
                             "values": {"sex": ["f", "m"], "region": ["N", "S"]}}  # fmt: skip
    return SurveyEstimates(**{**given, **settings}, estimates=estimates)


def simple(file: pl.DataFrame | None = None, **design: Any) -> Microdata:
    """Return a simple sample of 400 from 6,000: all weights are 15."""
    own = (a_sample() if file is None else file).with_columns(N=pl.lit(6000), w=pl.lit(15.0))
    return Microdata(households=own, design=design or {"fpc": ["N"], "weights": "w"}, record="person")


def exact_poststratified(file: pl.DataFrame, column: str = "income") -> dict[str, float]:
    means = file.group_by("sex").agg(pl.col(column).clip(0, 100).mean())
    return dict(means.iter_rows())


@pytest.mark.parametrize("when", ["after-noise", "counts-invariant"])
def test_with_little_noise_the_estimates_are_the_post_stratified_ones(when: str) -> None:
    """Against the textbook: the sum of N times the class mean, and the variance given the counts."""
    file = a_sample()
    asked: list[dict[str, Any]] = [
        TOTAL,
        MEAN,
        {**MEAN, "by": ["sex"]},
        {**TOTAL, "where": {"sex": ["f"]}},
        {**MEAN, "by": ["region"]},
    ]
    made = survey(*asked, when=when, epsilon=10**9, weight_grid="1/10000").release(simple(file), Entropy.from_os())
    found = made.public["estimates"].filter(pl.col("name") != "table by sex")
    means, sizes = exact_poststratified(file), {"f": 3100, "m": 2900}
    whole = sum(sizes[sex] * means[sex] for sex in sizes)
    by_region = []
    for region in ("N", "S"):
        counts = dict(file.group_by("sex").len().iter_rows())
        inside = file.filter(pl.col("region") == region)
        top = sum(sizes[s] / counts[s] * y for s, y in zip(inside["sex"], inside["income"].clip(0, 100), strict=True))
        by_region.append(top / sum(sizes[s] / counts[s] for s in inside["sex"]))
    wanted = [whole, whole / 6000, means["f"], means["m"], 3100 * means["f"], *by_region]
    assert found["estimate"].to_list() == pytest.approx(wanted, rel=1e-4)
    if when == "counts-invariant":
        spread = 0.0
        for sex, size in sizes.items():
            own = file.filter(pl.col("sex") == sex)["income"].clip(0, 100).to_numpy()
            spread += size**2 * (1 - own.size / size) * float(own.var(ddof=1)) / own.size
        assert found["se_sampling"][0] == pytest.approx(spread**0.5, rel=1e-4)


def test_the_gain_of_calibration_is_in_the_sampling_error() -> None:
    """Classes that explain the variable: the error falls to that inside classes, and not further."""
    file = a_sample().with_columns(income=pl.when(pl.col("sex") == "f").then(90).otherwise(10) + pl.col("income") % 5)
    plain = SurveyEstimates(epsilon=10**9, attest=["design-weights"], weight_bounds=[15, 15], estimates=[TOTAL])
    before = plain.release(simple(file), Entropy.from_os()).public["estimates"]["se_sampling"][0]
    found = [survey(TOTAL, when=when, epsilon=10**9).release(simple(file), Entropy.from_os()).public["estimates"]
             for when in ("after-noise", "counts-invariant")]  # fmt: skip
    after, held = (frame.filter(pl.col("kind") == "total")["se_sampling"][0] for frame in found)
    assert after == pytest.approx(held, rel=0.02)  # the two differ by n/(n-1) of the whole and of classes
    assert after < before / 10


@pytest.mark.parametrize("when", ["after-noise", "counts-invariant"])
def test_intervals_cover_the_population(when: str) -> None:
    """120 draws of sample and noise; 95% intervals miss at most 21 times, or less than 1 in a million runs fails."""
    rng = np.random.default_rng(8)
    sex = rng.choice(["f", "m"], 4000)
    there = pl.DataFrame({"sex": sex, "income": np.rint(np.clip(rng.gamma(4, 6, 4000) + 25 * (sex == "f"), 0, 100))})
    totals = there.group_by("sex").len("total")
    mechanism = survey(TOTAL, when=when, totals=totals, epsilon=3, **(
        {"weight_bounds": [10, 10]} if when == "after-noise" else {}))  # fmt: skip
    truth, missed, shorter = float(there["income"].sum()), 0, 0
    for _ in range(120):
        drawn = there[rng.choice(4000, 400, replace=False)].with_columns(N=pl.lit(4000))
        data = Microdata(households=drawn, design={"fpc": ["N"]}, record="person")
        row = mechanism.release(data, Entropy.from_os()).public["estimates"].filter(pl.col("kind") == "total").row(
            0, named=True)  # fmt: skip
        missed += not row["lci"] <= truth <= row["uci"]
        half = (row["uci"] - row["lci"]) / 2 * row["se_privacy"] / row["se"] * 0.5
        shorter += abs(row["estimate"] - truth) > half
    assert missed <= 21  # binomial(120, 0.05)
    assert shorter > 21  # power: half the noise alone would not do


def test_more_than_two_noises_have_the_tail_of_their_sum() -> None:
    three = [Noise(1e-4, 1e-4), Noise(1e-4, 2e-4), Noise(1e-4, 1e-9)]
    assert beyond(3.0, 1.0, three) == pytest.approx(beyond(3.0, 1.0, three[:2]), abs=1e-8)
    # Three equal Laplace numbers: P(|S| > t) = exp(-t)(1 + 5t/8 + t^2/8), by integrating the density.
    equal = [Noise(1e-5, 1e-5)] * 3
    for t in (0.5, 2.0, 8.0):
        assert beyond(t, 0.0, equal) == pytest.approx(np.exp(-t) * (1 + 5 * t / 8 + t * t / 8), abs=1e-9)
    rng = np.random.default_rng(5)
    drawn = np.abs(rng.normal(0, 2, 10**6) + sum(rng.laplace(0, b, 10**6) for b in (1, 1, 3)))
    wide = half_width(0.95, 2.0, [Noise(1e-5, 1e-5), Noise(1e-5, 1e-5), Noise(1e-5, 3e-5)])
    assert float((drawn > wide).mean()) == pytest.approx(0.05, abs=0.00123)  # 5.6 deviations: 2e-8


def test_the_noise_is_that_of_the_published_sensitivity() -> None:
    counts = dict(a_sample().group_by("sex").len().iter_rows())
    wanted = poststrat_sensitivity((3100, 2900), (counts["f"], counts["m"]), bounds=(0, 100), public=True)
    query = survey(TOTAL, when="counts-invariant", variance="none").plan(simple()).estimates[0].queries["top"]
    assert float(query.one * query.step) == pytest.approx(float(wanted), rel=1e-3)  # weights are on a grid


def _adjusted(folder: Path, when: str, totals: str = "sex,total\nf,3100\nm,2900\n", **given: Any) -> str:
    plan = write_plan(folder, **given)
    text = (
        Path(plan)
        .read_text()
        .replace('strata = "region"\n', "")
        .replace('[[estimates]]\nkind = "table"\nby = "sex"', "")
    )
    if when == "counts-invariant":
        text = text.replace("weight_bounds = [10, 20]\n", "")
    Path(plan).write_text(f'{text}\n[adjust]\npoststrata = "sex"\ntotals = "totals.csv"\nwhen = "{when}"\n')
    simple().households.write_csv(folder / "sample.csv")
    (folder / "totals.csv").write_text(totals)
    return plan


@pytest.mark.parametrize("when", ["after-noise", "counts-invariant"])
def test_a_calibrated_plan_is_released_and_published(
    when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _adjusted(tmp_path, when)
    assert run(["release", plan]) == 0
    public = tmp_path / "bundle/public"
    found = pl.read_parquet(public / "estimates.parquet")
    document = json.loads((public / "specification.json").read_text())
    held = [each for each in document["multiverse"]["invariants"] if each["kind"] == "margin"]
    assert document["mechanism"]["settings"]["adjust"]["totals"]["file"] == "totals.csv"
    assert found.height == (5 if when == "after-noise" else 3)
    if when == "counts-invariant":
        assert held[0]["variables"] == ["sex"]
        listed = pl.read_parquet(public / "invariants.parquet")
        assert dict(listed.select("sex", "count").iter_rows()) == dict(a_sample().group_by("sex").len().iter_rows())
    else:
        assert not held
        assert not (public / "invariants.parquet").exists()
    assert run(["check", str(tmp_path / "bundle")]) == 0
    assert run(["publish", str(tmp_path / "bundle"), str(tmp_path / "out")]) == 0


def test_a_release_says_which_intervals_leave_the_sampling_error_out(tmp_path: Path) -> None:
    """Counts of classes have the noise alone: at their table, in the chart and in the README, and nowhere otherwise."""
    assert run(["release", _adjusted(tmp_path, "after-noise"), "--quiet"]) == 0
    public = tmp_path / "bundle/public"
    report = html.unescape((public / "report.html").read_text())
    alone = "In the rows 'table by sex', standard errors, intervals, cv and flags cover the noise alone."
    assert report.index("<h2>The estimates</h2>") < report.index(alone) < report.index("<h2>Sampling error")
    assert "Drawn: 3 of 5; of 2 ('table by sex') the sampling error is not published." in report
    assert "No sizes of domains are published" not in report
    readme = (public / "README.md").read_text()
    assert (
        "In the rows `table by sex` interval and margin are of the noise alone, and so are `se`, `cv` and `flag`."
        in readme
    )


def test_a_chart_says_why_estimates_of_other_domains_are_missing() -> None:
    """A total of everybody has no published size, and the counts of classes have no sampling error: none is drawn."""
    made = survey(TOTAL)
    plan = made.plan(simple())
    sections = made.shown(plan, made.release(simple(), Entropy.from_os(), plan=plan).public)
    (quality,) = [each for each in sections if each.title.startswith("Quality")]
    assert quality.blocks == (
        "Nothing is drawn: no estimate with a published sampling error is of a domain with a published size above 0.",
    )


def test_a_readme_without_sampling_errors_does_not_speak_of_both() -> None:
    made = survey(TOTAL, variance="none")
    plan = made.plan(simple())
    told = " ".join(made.conclusions(plan))
    assert "`se_sampling` is empty, and `se` is the error of the noise, `se_privacy`" in told
    assert "both" not in told
    sections = made.shown(plan, made.release(simple(), Entropy.from_os(), plan=plan).public)
    assert str(sections[0].blocks[1]).startswith("All standard errors, intervals, cv and flags cover the noise alone.")


BAD_TOTALS = [
    ("sex,total\nf,3100\n", "have no total"),
    ("sex,total\nf,3100\nm,0\n", "not a total above 0"),
    ("sex,total\nf,3100\nm,many\n", "not a total above 0"),
    ("sex,total\nf,3100\nm,2900\nx,5\n", "would have noise"),
    ("sex,total\nf,3100\nm,2900\nm,2900\n", "stands twice"),
    ("sex,size\nf,3100\nm,2900\n", "total"),
    ("sex,total\nf,31\nm,2900\n", "below the number of its records"),
    ("", "totals"),
]


@pytest.mark.parametrize(("totals", "told"), BAD_TOTALS)
def test_bad_totals_are_refused_and_nothing_is_spent(
    totals: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _adjusted(tmp_path, "after-noise", totals)
    assert run(["release", plan]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "bundle").exists()


def test_all_problems_of_totals_are_told_at_once(tmp_path: Path) -> None:
    totals = pl.DataFrame({"sex": ["f", "x"], "total": [31, 5]})
    with pytest.raises(StirredError) as caught:
        survey(TOTAL, totals=totals, when="counts-invariant").plan(simple())
    told = str(caught.value)
    assert all(words in told for words in ("have no total", "below the number", "EmptyCell"))


def test_an_empty_class_is_refused_by_its_name() -> None:
    totals = pl.DataFrame({"sex": ["f", "m", "x"], "total": [3100, 2900, 9]})
    with pytest.raises(EmptyCell, match="collapse it"):
        survey(TOTAL, totals=totals, when="counts-invariant").plan(simple())


def test_after_the_noise_an_empty_class_is_not_told_by_a_refusal() -> None:
    """One record decides whether a class is empty: with it and without it a release of one law must come out."""
    totals = pl.DataFrame({"sex": ["f", "m", "x"], "total": [3100, 2900, 900]})
    mechanism = survey(TOTAL, {**MEAN, "by": ["sex"]}, totals=totals, epsilon=20, values={"sex": ["f", "m", "x"]})
    one = pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("x")).otherwise("sex")
    told = []
    for file in (a_sample(), a_sample().with_columns(sex=one)):
        plan = mechanism.plan(simple(file))
        told.append([(each.title, dict(each.queries)) for each in plan.estimates])
        flags = mechanism.release(simple(file), Entropy.from_seed("x")).public["estimates"]["flag"]
        assert flags[3] == flags[6] == "x"  # the total of all classes, and the mean of the empty one
    assert told[0] == told[1]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"when": "counts-invariant", "weight_bounds": [1, 9]}, "leave it out"),
        ({"when": "counts-invariant", "setting": 11, "sample": "s",
          "attest": ["design-weights", "random-sample", "secret-sample"],
          "sampling": {"design": "srswor", "n": 400, "N": 6000}}, "cannot start before the sample"),
        ({"estimates": [{"kind": "table", "by": ["sex"]}]}, "already give this table"),
        ({"adjust": {"poststrata": ["total"], "totals": TOTALS, "when": "after-noise"}}, "their own 'total'"),
        ({"adjust": {"poststrata": ["sex"], "totals": TOTALS, "when": "before"}}, "when"),
    ],
)  # fmt: skip
def test_calibrations_that_cannot_be_are_refused(settings: dict[str, Any], told: str) -> None:
    asked = settings.pop("estimates", [TOTAL])
    with pytest.raises(StirredError, match=told):
        survey(*asked, **settings)


def test_samples_that_do_not_fit_a_calibration_are_refused() -> None:
    strata = Microdata(households=a_sample(), design={"strata": ["region"], "fpc": ["N"], "weights": "w"})
    with pytest.raises(StirredError, match="weights differ inside a class"):
        survey(TOTAL, when="counts-invariant").plan(strata)
    clusters = simple(a_sample().with_row_index("psu").with_columns(pl.col("psu") // 4), ids=["psu"], weights="w")
    with pytest.raises(StirredError, match="with clusters"):
        survey(TOTAL, when="counts-invariant").plan(clusters)
    survey(TOTAL, when="counts-invariant", variance="none").plan(clusters)
    with pytest.raises(StirredError, match="would have noise"):
        survey(TOTAL, epsilon="1/100").plan(simple())


def test_weights_that_are_calibrated_already_are_refused_with_both_ways_out() -> None:
    counts = dict(a_sample().group_by("sex").len().iter_rows())
    own = pl.when(pl.col("sex") == "f").then(3100 / counts["f"]).otherwise(2900 / counts["m"])
    data = Microdata(households=a_sample().with_columns(w=own), design={"weights": "w"})
    with pytest.raises(WeightsNotFixed, match=r"already calibrated.*after-noise.*counts-invariant"):
        survey(TOTAL).plan(data)


def test_a_noisy_count_near_zero_leaves_the_estimate_out_and_does_not_fail() -> None:
    from stirred.survey.estimates import published

    mechanism = survey(TOTAL, {**MEAN, "by": ["sex"]}, variance="none")
    plan = mechanism.plan(simple())
    ok = mechanism.noisy(simple(), plan, DrawnAnswers(Entropy.from_seed("x")))
    for count in (0, -(10**6), 10):
        noisy = {**ok, "table by sex": {"top": np.array([count, 10**6])}}
        table = published.published(mechanism, plan, noisy).filter(pl.col("kind") != "table")
        assert table["flag"].to_list()[:2] == ["x", "x"]  # the total needs both classes, the mean of f its own
        assert table["estimate"].is_null().to_list() == [True, True, False]
