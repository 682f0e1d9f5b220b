"""The report of survey estimates: what its pictures say, and which of them leave the agency."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Bars, Grid, Plot, Section
from stirred.randomness.entropy import Entropy
from stirred.survey.estimates.mechanism import SurveyEstimates
from stirred.survey.sensitivity import compare_settings
from tests.release.tampering import add, copied, frame, retell, specified
from tests.survey.estimates.test_survey_release import a_sample, write_plan
from tests.world import manifest

TOTAL = {"kind": "total", "variable": "income", "bounds": [0, 100]}
BY = {"kind": "table", "by": ["sex"]}
DESIGN = {"strata": ["region"], "weights": "w"}


def released(**more: Any) -> tuple[SurveyEstimates, Any, Any]:
    own: dict[str, Any] = {"attest": ["design-weights"], "estimates": [TOTAL, {**TOTAL, "by": ["sex"]}, BY]}
    values = {"sex": ["f", "m"]}
    mechanism = SurveyEstimates(**{"epsilon": 4, "weight_bounds": [10, 20], "values": values, **own, **more})
    data = Microdata(households=a_sample(), design=DESIGN)
    plan = mechanism.plan(data)
    return mechanism, plan, mechanism.release(data, Entropy.from_os(), plan=plan)


def only(kind: type, sections: list[Section], title: str) -> Any:
    (found,) = [block for each in sections if each.title.startswith(title) for block in each.blocks
                if isinstance(block, kind)]  # fmt: skip
    return found


def words(sections: list[Section], title: str) -> str:
    return " ".join(b for each in sections if each.title.startswith(title) for b in each.blocks if isinstance(b, str))


def test_both_errors_are_shares_of_the_published_variance() -> None:
    mechanism, plan, release = released()
    bars = only(Bars, mechanism.shown(plan, release.public), "Sampling")
    table = release.public["estimates"]
    assert bars.stacked
    shares: dict[str, dict[str, float]] = {}
    for group, series, share in bars.bars:
        shares.setdefault(group, {})["privacy" if series == "privacy noise" else "sampling"] = share
    assert [*shares] == ["total income", "f: total income by sex", "m: total income by sex", "f: table by sex",
                         "m: table by sex"]  # fmt: skip
    for share, row in zip(shares.values(), table.iter_rows(named=True), strict=True):
        assert share["privacy"] == pytest.approx(row["se_privacy"] ** 2 / row["se"] ** 2)
        assert sum(share.values()) == pytest.approx(1)


@pytest.mark.parametrize(("epsilon", "hidden"), [("1/1000", True), (10**9, False)])
def test_a_sampling_error_that_its_noise_hides_is_shown_as_such(epsilon: Any, hidden: bool) -> None:
    """At 1/1000 a variance comes out above the deviation of its noise with e^-1.41/2; all of two releases: 1e-9."""
    seen = set()
    for _ in range(2):
        mechanism, plan, release = released(epsilon=epsilon)
        seen |= {series for _, series, _ in only(Bars, mechanism.shown(plan, release.public), "Sampling").bars}
    assert ("sampling, hidden by its noise" in seen) is hidden


def test_a_plan_warns_of_sampling_errors_that_it_will_hide() -> None:
    """Before anything is drawn, and never as a refusal: few clusters and little budget show only large errors."""
    sample = a_sample().with_columns(pl.col("income").clip(0, 100), psu=pl.int_range(pl.len()) // 20)
    data = Microdata(households=sample, design={**DESIGN, "ids": ["psu"]})

    def doubts(**more: Any) -> Any:
        own = {"attest": ["design-weights"], "weight_bounds": [10, 20], "values": {"sex": ["f", "m"]}}
        return SurveyEstimates(estimates=[TOTAL, BY], most_in_cluster=20, **{**own, **more}).plan(data).doubts

    found = doubts(epsilon="1/100")
    assert [each.name for each in found] == ["hidden-variance:total income", "hidden-variance:table by sex"]
    assert not any(each.refuses for each in found)
    assert doubts(epsilon=10**6) == ()
    assert doubts(epsilon="1/100", variance="none") == ()


def test_an_unknown_sampling_error_is_shown_as_unknown() -> None:
    mechanism, plan, release = released(variance="none", quality="abs")
    sections = mechanism.shown(plan, release.public)
    bars = only(Bars, sections, "Sampling")
    assert {series for _, series, _ in bars.bars} == {"noise (sampling error not published)"}
    assert "not published" in words(sections, "Sampling")
    plot = only(Plot, sections, "Quality")
    assert plot.y == "cv of the noise alone"
    assert [height for _, height in plot.rules] == [0.25, 0.5]


def test_quality_stands_against_the_published_size_of_the_same_domain() -> None:
    mechanism, plan, release = released(epsilon=40)
    sections = mechanism.shown(plan, release.public)
    plot, rows = only(Plot, sections, "Quality"), [*release.public["estimates"].iter_rows(named=True)]
    sizes = [rows[3]["estimate"], rows[4]["estimate"]] * 2
    expected = [(row["kind"], size, row["cv"]) for row, size in zip(rows[1:], sizes, strict=True)]
    assert [*plot.points] == expected
    assert plot.rules == (("E above 16.5%", 0.165), ("F above 33.3%", 0.333))
    assert "Left out: 1 of 5" in words(sections, "Quality"), "the total of everybody has no domain"
    mechanism, plan, release = released(estimates=[TOTAL])
    assert words(mechanism.shown(plan, release.public), "Quality") == "No sizes of domains are published."
    assert "add [[estimates]]" in words(mechanism.inside(plan, release), "Sizes")


def test_the_noise_of_every_setting_is_that_of_the_comparison() -> None:
    """For one weighted total, the eleven settings are those of `survey compare`, which computes them by itself."""
    mechanism, plan, _ = released(estimates=[TOTAL], epsilon=1, variance="none")
    sections = mechanism.sections(plan)
    dots = only(Bars, sections, "Noise by").bars
    found = compare_settings(n=400, weights=(10, 20), bounds=(0, 100), epsilon=1)
    assert [sd for *_, sd in dots] == pytest.approx([float(each.sd) for each in found], rel=1e-4)
    assert [series for _, series, _ in dots].index("this release") == 5
    grid = only(Grid, sections, "Noise by")
    assert ["nosy neighbour" in str(row[2]) for row in grid.rows] == [bool(each.not_covered) for each in found]
    assert "but not where weights vary with the frame" in words(sections, "Noise by")


def test_settings_without_such_an_estimate_say_so_and_clusters_amplify_nothing() -> None:
    mean = {**TOTAL, "kind": "mean"}
    mechanism, plan, _ = released(estimates=[mean], variance="none")
    rows = only(Grid, mechanism.sections(plan), "Noise by").rows
    assert [str(row[1]).startswith("not possible") for row in rows] == [True] * 5 + [False] + [True] * 2 + [False] * 3
    data = Microdata(households=a_sample().with_row_index("psu"), design={"ids": ["psu"], "weights": "w"})
    mechanism = SurveyEstimates(epsilon=1, weight_bounds=[10, 20], estimates=[TOTAL], variance="none",
                                attest=["design-weights"])  # fmt: skip
    sections = mechanism.sections(mechanism.plan(data))
    noise = {str(row[0]).split(":")[0]: row[1] for row in only(Grid, sections, "Noise by").rows}
    assert noise["11"] == noise["6"]
    assert "clusters were drawn" in words(sections, "Noise by")


def test_the_weights_stay_inside(tmp_path: Path) -> None:
    sample = a_sample().with_columns(w=pl.Series(np.linspace(9.8, 17.123, 400)), N=pl.lit(10**6))
    sample.write_csv(tmp_path / "sample.csv")
    plan = Path(write_plan(tmp_path))
    plan.write_text(plan.read_text().replace('fpc = "N"\n', ""))
    assert run(["release", str(plan), "--quiet"]) == 0
    public, internal = ((tmp_path / "bundle" / part / "report.html").read_text() for part in ("public", "internal"))
    beyond = int((sample["w"] < 10).sum())
    assert f"from 9.8 to 17.12; {beyond} of 400 lie beyond" in internal
    assert "<h2>The weights</h2>" in internal
    for told in ("17.12", "lie beyond", "The weights</h2>", "Clamping"):
        assert told not in public
    for title in ("The estimates", "Sampling error and privacy error", "Quality by size", "Noise by setting"):
        assert title in public
        assert title in internal


# ---- what publish looks at --------------------------------------------------------------------------------

CSV, PARQUET = "estimates.csv", "estimates.parquet"
MORE = pl.col("estimate") * 1.5
TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a number of one file": (frame(CSV, lambda f: f.with_columns(estimate=MORE)), "estimates.csv does not say"),
    "a standard error": (
        lambda bundle: [frame(name, lambda f: f.with_columns(se=pl.col("se") / 2))(bundle) for name in (CSV, PARQUET)],
        "contradicts its other numbers",
    ),
    "a column": (frame(PARQUET, lambda f: f.with_columns(clamped=pl.lit(3))), "its columns are not"),
    "the noise": (copied("internal/noise/1.parquet", "public/noise.parquet"), "noise.parquet"),
    "a file of records": (add("public/data.csv", b"w,income\n10,3\n"), "data.csv"),
    "the loss": (specified(lambda d: d["mechanism"]["settings"].update(epsilon="9")), "specification.json"),
    "what is held fixed": (specified(lambda d: d["multiverse"].update(invariants=[])), "specification.json"),
}  # fmt: skip


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("survey")
    a_sample().write_csv(folder / "sample.csv")
    assert run(["release", write_plan(folder), "--quiet"]) == 0
    assert manifest(folder / "bundle")["public_files"]
    return folder / "bundle"


@pytest.mark.parametrize("name", TAMPERED)
def test_a_bundle_is_not_published_if_somebody_changed(
    name: str, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, says = TAMPERED[name]
    copy = shutil.copytree(bundle, tmp_path / "bundle")
    change(copy)
    retell(copy)
    assert run(["publish", str(copy), str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_same_bundle_is_published_as_it_is(bundle: Path, tmp_path: Path) -> None:
    assert run(["publish", str(bundle), str(tmp_path / "out")]) == 0
    assert math.isfinite(pl.read_csv(tmp_path / "out" / CSV)["se"].sum())
