"""Section 5 from plans that run: seven products of a synthetic state in one ledger, swapping beside them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.files import example
from stirred.cli.main import run
from stirred.mechanisms.census_2020.account import Part, parts, totals
from stirred.mechanisms.topdown.budget import DELTA
from stirred.release.ledger import Ledger
from stirred.release.ledger.currency import Currency
from stirred.spec import Margin, UnitFactor, approximate, catalogue
from stirred.spec.exact import exact
from tests.paper.printed import assert_prints

ONE = UnitFactor(old="household", new="person", factor=1, because="household fixed", keeps_total="fixed numbers")
PRODUCTS = ("pl-persons", "pl-units", "dhc-persons", "dhc-units", "safetab-p", "safetab-h", "phsafe")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demonstration, on the smallest state that there is."""
    out = tmp_path_factory.mktemp("demo") / "census"
    assert run(["demo", "census-2020", "--households", "1000", "--out", str(out), "--quiet"]) == 0
    return out


def census(demo: Path) -> Ledger:
    return Ledger.open(demo / "census.ledger")


def test_the_ledger_of_the_plans_that_ran_has_the_total_of_section_5(demo: Path) -> None:
    """Table 4, fifth row, without the rounding of its parts: 55.375035 and 126.79."""
    total = census(demo).total(Currency(unit="person", units=(ONE,)))
    assert total.specification is not None
    assert total.specification.budget.realised == exact(totals()[1].rho2)
    assert_prints(total.specification.budget.realised, "55.375035")
    assert total.bound == "at least "
    epsilon = census(demo).total(Currency(unit="person", units=(ONE,), output=approximate(DELTA))).specification
    assert epsilon is not None
    assert_prints(epsilon.budget.realised, "126.790924")


def test_the_total_has_the_blocks_of_the_printed_specification(demo: Path) -> None:
    """Table 4: one post-imputation person, zCDP; population by state, and units and group quarters by block."""
    ours = census(demo).total(Currency(unit="person", units=(ONE,))).specification
    printed = catalogue.load("das-2020").specification
    assert ours is not None
    assert ours.input_premetric == printed.input_premetric
    assert ours.output_premetric == printed.output_premetric
    assert ours.domain.stage == printed.domain.stage
    assert {*ours.multiverse.invariants} == {
        Margin(of="person", level="state"),
        Margin(of="household", level="block"),
        Margin(of="facility", variables=("gq_type",), level="block"),
    }


@pytest.mark.parametrize("name", PRODUCTS)
def test_each_plan_promises_what_its_budget_file_says(name: str, demo: Path) -> None:
    """Tables 3 and 4, row by row: rho squared of the entry, and the unit."""
    part: Part = {part.name: part for part in parts()}[name]
    entries = [entry for entry in census(demo).entries() if entry.specification is not None]
    entry = entries[PRODUCTS.index(name)]
    assert entry.specification is not None
    assert entry.specification.budget.realised == exact(part.run)
    assert entry.specification.input_premetric.unit == part.unit
    public = json.loads((demo / name / "public" / "specification.json").read_text(encoding="utf-8"))
    assert public["budget"]["exact"] == str(exact(part.run))
    assert public["seeded"] is False


@pytest.mark.parametrize("bundle", ["pl-persons", "dhc-persons", "dhc-units"])
def test_estimates_lie_around_the_truth_as_their_standard_errors_say(bundle: str, demo: Path) -> None:
    """No estimate is nine standard errors off: one of 1,000 is with chance below 10^-15. Of a wrong area one is."""
    estimates = pl.read_parquet(demo / "estimates" / f"{bundle}.parquet").filter(pl.col("std_dev") > 0)
    homes = pl.read_parquet(demo / "units.parquet")
    file = homes if bundle == "dhc-units" else pl.read_parquet(demo / "persons.parquet").join(homes, on="hid")
    ages = [0, 5, 10, 15, 18, 20, 25, 35, 45, 55, 65, 75]
    age = pl.col("age").replace_strict(ages, range(len(ages)), default=-1) if bundle == "dhc-persons" else pl.lit(0)
    level, query, cell = {
        "pl-persons": ("Block_Group", "total", pl.lit(0)),
        "dhc-persons": ("County", "sex * age", (pl.col("sex") - 1) * len(ages) + age),
        "dhc-units": ("Block_Group", "tenvacgq", pl.col("tenvacgq") - 1),
    }[bundle]
    own = estimates.filter((pl.col("geolevel") == level) & (pl.col("query_name") == query))
    truth = file.group_by(area=pl.col(level.lower()), cell=cell.cast(pl.Int64)).len("true")
    both = own.with_columns(pl.col("cell").cast(pl.Int64)).join(truth, on=["area", "cell"], how="left").fill_null(0)
    assert both.height >= 20
    off = ((both["estimate"] - both["true"]) / both["std_dev"]).abs()
    assert off.max() < 9  # type: ignore[operator]
    elsewhere = ((both["estimate"] - both["true"].reverse()) / both["std_dev"]).abs()
    assert elsewhere.max() > 9, "the test has no power"  # type: ignore[operator]


def test_the_swap_keeps_the_households_of_each_size_in_every_block(demo: Path) -> None:
    keys = ["county", "size", "tract", "block_group", "block"]
    before, after = (
        pl.read_parquet(demo / "units.parquet"),
        pl.read_parquet(demo / "swapped" / "public" / "data.parquet"),
    )
    counts = [frame.group_by(keys).len().sort(keys) for frame in (before, after)]
    assert counts[0].equals(counts[1])
    assert (
        not before.group_by("block", "tenvacgq")
        .len()
        .sort("block", "tenvacgq")
        .equals(after.group_by("block", "tenvacgq").len().sort("block", "tenvacgq"))
    ), "nothing was swapped"


def test_the_page_shows_both_promises_and_is_complete_in_itself(demo: Path) -> None:
    page = (demo / "report.html").read_text(encoding="utf-8")
    for heading in ("Seven plans, one total", "Two promises, block by block", "Accuracy, on the same tables"):
        assert f"<h2>{heading}" in page
    for number in ("55.375036", "126.790925", "55.371", "126.78", "45.483", "43.460881", "at least"):
        assert number in page
    swap = Ledger.open(demo / "swapping.ledger").total().specification
    assert swap is not None
    assert f"ε = {swap.budget.shown}" in page
    for invariant in swap.multiverse.invariants:
        assert str(invariant) in page
    assert page.count("<script") == page.count("<script>") == 1, "the page's own, without a source"
    assert not [url for url in re.findall(r"https?://[^\s\"'<>)]+", page) if "www.w3.org" not in url]
    assert "<svg " in page
    assert "invented" in page


def test_a_folder_that_exists_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "census-2020", "--out", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
    assert run(["demo", "census-2020", "--households", "10", "--out", str(tmp_path / "new")]) == 2
    assert "10 is too few" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_demonstration_that_stops_half_way_leaves_no_folder(
    stop: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next run must not be refused for what an interrupted one left."""

    def stopped(_: Path) -> None:
        raise stop

    monkeypatch.setattr(example("census_2020", "demo"), "read_plan", stopped)
    assert run(["demo", "census-2020", "--households", "1000", "--out", str(tmp_path / "new"), "--quiet"]) != 0
    assert [*tmp_path.iterdir()] == []
    capsys.readouterr()


def test_the_page_names_both_sides_and_says_why_they_share_a_domain(demo: Path) -> None:
    page = (demo / "report.html").read_text(encoding="utf-8")
    assert "only swapping fixes the number of households by county x size x tract" in page
    assert "only the 2020 system fixes the number of facilities" in page
    assert not re.search(r"the (first|second)\b(?! four)", page)
    assert "changing one record of the file changes at most one record of the released columns" in page
    assert "at least ρ²=55.38" in page
    assert "certified upper bound" not in page
