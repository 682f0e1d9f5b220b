"""The swapping family through the same plan, command, bundle, report and audit."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.mallows import MallowsSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap
from stirred.spec.document import from_json
from tests.mechanisms.records.sampling import swapped
from tests.world import CODEBOOK_OF_HOMES, PLAN_OF_HOMES, assert_complete, households, stirred, world

SETTINGS = {
    "permutation": ["--rate", "1/2"],
    "conditioned": ["--rate", "1/2"],
    "conditioned, proportional": ["--rate", "1/2", "--set", "redraw_law=proportional"],
    "mallows": ["--epsilon", "2"],
    "shuffle": ["--rate", "9/10"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return world(tmp_path, households(600))


def options(name: str) -> list[str]:
    member = name.partition(",")[0]
    roles = ["--id", "hid", "--match", "size", "--swap", "county", "--mechanism", member]
    return [*roles, *SETTINGS[name]]


@pytest.mark.parametrize("name", SETTINGS)
def test_every_member_makes_a_bundle_that_keeps_both_margins_and_passes_its_audit(folder: Path, name: str) -> None:
    homes = households(600)
    assert (
        command(["swap", "homes.parquet", *options(name), "--table", "county x tenure", "--out", "out", "--quiet"]) == 0
    )
    assert_complete(folder / "out", homes)
    assert audit_bundle(folder / "out").passed
    specification = from_json((folder / "out" / "public" / "specification.json").read_text(encoding="utf-8"))
    assert not specification.budget.realised.is_infinite
    report = (folder / "out" / "public" / "report.html").read_text(encoding="utf-8")
    assert f"{name.partition(',')[0].capitalize()} swapping".lower() in report.lower()
    strata = pl.read_parquet(folder / "out" / "public" / "strata.parquet")
    assert set(strata["stratum_law"]) == {name.partition(",")[0]}
    assert strata["stratum_expected_share_moved"].is_between(0, 1).all()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_plan_of_every_member_is_the_promise_of_its_bundle(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = facts(["plan", "homes.parquet", *options(name), "--json"], capsys)
    done = facts(["swap", "homes.parquet", *options(name), "--out", "out", "--json"], capsys)
    assert planned["epsilon_exact"] == done["epsilon_exact"]
    assert planned["specification"]["budget"]["exact"] == done["epsilon_exact"]


def facts(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    assert command(arguments) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["conditioned", "conditioned, proportional", "shuffle", "permutation"])
def test_a_target_gives_the_gentlest_rate_that_reaches_it(
    folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    roles = [*options(name)]
    place = roles.index("--rate")
    roles[place : place + 2] = []
    reached = facts(["plan", "homes.parquet", *roles, "--epsilon", "4", "--json"], capsys)
    assert reached["epsilon"] <= 4
    gentler = str(
        float(reached["usable_rates"][0].partition("/")[0]) / float(reached["usable_rates"][0].partition("/")[2] or 1)
        - 0.001
    )
    above = facts(["plan", "homes.parquet", *roles, "--rate", gentler, "--json"], capsys)
    assert above["epsilon"] > 4


@pytest.mark.parametrize("name", ["shuffle", "mallows"])
def test_tables_of_the_other_class_laws_can_be_corrected(folder: Path, name: str) -> None:
    """Many copies of the same strata: the mean of the corrected cells is the truth."""
    owned = pl.col("county").is_in(["East", "North"]) & (pl.col("hid") % 5 > 0)  # tenure goes with the county
    homes = households(600).with_columns(
        pl.when(owned).then(pl.lit("owned")).otherwise(pl.lit("rented")).alias("tenure")
    )
    many = pl.concat([homes.with_columns((pl.col("size") + 10 * copy).alias("size")) for copy in range(60)])
    many.with_row_index("hid_new").drop("hid").rename({"hid_new": "hid"}).write_parquet("many.parquet")
    settings = ["--rate", "1/2"] if name == "shuffle" else ["--epsilon", "4"]
    roles = ["--id", "hid", "--match", "size", "--swap", "county", "--mechanism", name, *settings]
    assert command(["swap", "many.parquet", *roles, "--out", "out", "--quiet"]) == 0
    found = unswap(["county", "tenure"], SwappedRelease.read(folder / "out")).table
    truth = many.group_by("county", "tenure").len("true")
    both = found.join(truth, on=["county", "tenure"])
    away = ((both["estimate"] - both["true"]) / both["standard_error"]).abs()
    assert away.max() < 4.5  # type: ignore[operator]
    plain = ((both["count"] - both["true"]) / both["standard_error"]).abs()
    assert plain.max() > 4.5, "the correction has nothing to do here"  # type: ignore[operator]


CORRECTED = {
    "conditioned": ["--mechanism", "conditioned", "--rate", "1/3"],
    "conditioned, proportional": ["--mechanism", "conditioned", "--rate", "1/3", "--set", "redraw_law=proportional"],
    "two-stage": [
        "--mechanism",
        "two-stage",
        "--rate",
        "1/5",
        "--set",
        "fine_match=household_type",
        "--set",
        "fine_rate=1/3",
    ],
}


@pytest.mark.parametrize("name", CORRECTED)
def test_tables_of_swaps_that_are_no_class_laws_are_corrected_from_the_public_folder_alone(
    folder: Path, name: str
) -> None:
    owned = pl.col("county").is_in(["East", "North"]) & (pl.col("hid") % 5 > 0)
    homes = households(6_000).with_columns(
        pl.when(owned).then(pl.lit("owned")).otherwise(pl.lit("rented")).alias("tenure"),
        (pl.col("hid") % 2).cast(pl.String).alias("household_type"),
    )
    homes.write_parquet("homes.parquet")
    roles = ["--id", "hid", "--match", "size", "--swap", "county", *CORRECTED[name], "--table", "county x tenure"]
    assert command(["swap", "homes.parquet", *roles, "--out", "out", "--quiet"]) == 0
    assert audit_bundle(folder / "out").passed
    (folder / "out" / "public").rename(folder / "published")
    table = ["unswap", "published/tables/county-x-tenure.csv", "--bundle", "published", "--out", "c.csv"]
    assert command(table) == 0
    both = pl.read_csv("c.csv").join(homes.group_by("county", "tenure").len("true"), on=["county", "tenure"])
    away = ((both["estimate"] - both["true"]) / both["standard_error"]).abs()
    assert away.max() < 4.5  # type: ignore[operator]
    assert (both["count"] - both["true"]).abs().sum() > 2 * (both["estimate"] - both["true"]).abs().sum()
    internal = (folder / "out" / "internal" / "report.html").read_text(encoding="utf-8")
    assert "after stirred unswap" in internal
    assert "expected before the run" in internal


DECLARED = """
[data]
households = "homes.parquet"
id = ["hid"]
[mechanism]
name = "conditioned-swap"
match = ["size"]
swap = ["county"]
rate = "1/3"
[mechanism.redraw_law]
{law}
[[tables]]
variables = ["county", "tenure"]
[release]
out = "out"
"""


def test_a_declared_law_is_read_from_the_specification_however_long(folder: Path) -> None:
    counties = households(600)["county"].unique().sort().to_list()
    short = {county: f"1/{len(counties) + 1}" for county in counties}
    long = {**short, **{f"a county far away, number {number}": "1/1000" for number in range(20)}}
    table = ["unswap", "out/public/tables/county-x-tenure.csv", "--bundle", "out", "--out"]
    found = []
    for name, law in (("short", short), ("long", long)):
        text = "\n".join(f'"{value}" = "{mass}"' for value, mass in law.items())
        (folder / "plan.toml").write_text(DECLARED.format(law=text), encoding="utf-8")
        assert command(["release", "plan.toml", "--quiet", "--seed", "x"]) == 0
        stated = json.loads((folder / "out/public/specification.json").read_text(encoding="utf-8"))["mechanism"]
        assert stated["name"] == "conditioned-swap"
        assert stated["settings"]["redraw_law"] == law
        assert command([*table, f"{name}-table.csv"]) == 0
        found.append(pl.read_csv(folder / f"{name}-table.csv"))
        (folder / "out").rename(folder / f"out-{name}")
    # The same seed and the same masses of the values that occur: the same release, and the same correction.
    assert found[0].equals(found[1])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--mechanism", "mallows", "--rate", "1/2"], "--epsilon"),
        (["--mechanism", "shuffle", "--rate", "1/2", "--set", "redraw_law=uniform"], "has no redraw_law"),
        (["--mechanism", "conditioned", "--rate", "1/2", "--set", "redraw_law=round"], "'round' is not known"),
        (["--mechanism", "rank", "--rate", "1/2"], "write one of permutation-swap, "),
    ],
)
def test_settings_a_member_does_not_have_are_refused(folder: Path, arguments: list[str], what: str) -> None:
    done = stirred(
        "plan", "homes.parquet", "--id", "hid", "--match", "size", "--swap", "county", *arguments, cwd=folder
    )
    assert done.returncode == 2
    assert what in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("equal", ["changed", "epsilon"])
def test_the_family_is_compared_at_an_equal_share_changed_or_an_equal_loss(
    folder: Path, equal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "plan.toml").write_text(PLAN_OF_HOMES, encoding="utf-8")
    swaps = facts(["compare", "plan.toml", "--equal", equal, "--out", "c.html", "--json"], capsys)["swaps"]
    by_name = {swap["name"]: swap for swap in swaps}
    assert stat.S_IMODE((folder / "c.html").stat().st_mode) == 0o600  # who is exposed is confidential
    assert {"permutation", "conditioned, uniform", "mallows"} <= set(by_name)
    given = by_name["permutation"]
    for name, swap in by_name.items():
        if equal == "epsilon":
            assert swap["epsilon"] <= given["epsilon"] + 1e-9, name
        elif name != "mallows":  # whose loss is chosen in steps of a hundredth
            assert swap["share_changed"] == pytest.approx(given["share_changed"], abs=0.002), name
        assert sum(area["records"] for area in swap["areas"]) == 600
        assert [error["table"] for error in swap["expected_error"]] == ["county x tenure"], name
        assert swap["expected_error"][0]["mean_absolute_error"] > 0
    page = (folder / "c.html").read_text(encoding="utf-8")
    assert "<svg " in page
    assert "conditioned, uniform" in page


def test_plans_for_one_file_are_compared_block_by_block(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.toml").write_text(PLAN_OF_HOMES, encoding="utf-8")
    (folder / "b.toml").write_text(PLAN_OF_HOMES.replace('match = ["size"]', "match = []"), encoding="utf-8")
    assert command(["compare", "a.toml", "b.toml"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "b beside a: multiverse: stronger" in out
    assert "confidential file" not in out
    assert command(["compare", "a.toml", "b.toml", "--expect-from", "this-data"]) == 0
    assert "The errors are from the confidential file" in " ".join(capsys.readouterr().out.split())
    assert command(["compare", "a.toml"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "at an equal share of changed records" in out
    assert "for this file's fixed figures" in out


def test_plans_of_one_file_are_compared_where_one_names_the_persons_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of tables nothing is called a swap, and their delta (0.6375) is never rounded down."""
    made = Path(__file__).parents[1] / "golden" / "set"
    keys, noise = ((made / name / "plan.toml").read_text("utf-8") for name in ("cell-keys", "noisy-tables"))
    (folder / "ptable.csv").write_bytes((made / "cell-keys" / "ptable.csv").read_bytes())
    book = CODEBOOK_OF_HOMES + '[link]\nhid = "hid"\n[[variables]]\nname = "hid"\nfile = "persons"\ntype = "id"\n'
    (folder / "codebook.toml").write_text(book, encoding="utf-8")
    pl.DataFrame({"hid": households(600)["hid"]}).write_parquet("people.parquet")
    (folder / "a.toml").write_text(keys, encoding="utf-8")
    with_persons = noise.replace("[data]", '[data]\npersons = "people.parquet"\nhid = "hid"')
    (folder / "b.toml").write_text(with_persons, encoding="utf-8")
    assert command(["compare", "a.toml", "b.toml"]) == 0
    out = capsys.readouterr().out
    assert "Plans for homes, as planned" in out
    assert "swap" not in out.lower()
    assert "delta 0.6375" in out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["a.toml", "b.toml", "--equal", "epsilon"], "one plan is compared with its family"),
        (["a.toml", "other.toml"], "different files"),
        (["a.toml", "--equal", "weight"], "'weight' is not known"),
    ],
)
def test_what_cannot_be_compared_is_refused(folder: Path, arguments: list[str], what: str) -> None:
    households(60).write_parquet("few.parquet")
    (folder / "a.toml").write_text(PLAN_OF_HOMES, encoding="utf-8")
    (folder / "other.toml").write_text(PLAN_OF_HOMES.replace("homes.parquet", "few.parquet"), encoding="utf-8")
    done = stirred("compare", *arguments, cwd=folder)
    assert done.returncode == 2
    assert what in done.stderr


def test_the_share_changed_by_a_swap_is_what_releases_show(folder: Path) -> None:
    """One long stratum with a small area, each member: the expected share is within five standard errors."""
    county = ["A"] * 3_000 + ["B"] * 900 + ["C"] * 100
    homes = pl.DataFrame({"county": county, "row": range(4_000)})
    for mechanism in (
        PermutationSwap(match=[], swap=["county"], rate="1/2"),
        ShuffleSwap(match=[], swap=["county"], rate="1/2"),
        ConditionedSwap(match=[], swap=["county"], rate="1/2"),
        ConditionedSwap(match=[], swap=["county"], rate="1/2", redraw_law="proportional"),
        MallowsSwap(match=[], swap=["county"], epsilon=7),
    ):
        plan = mechanism.plan(homes)
        released = swapped(mechanism, homes, Entropy.from_seed("shares")).public["data"]
        both = homes.join(released, on="row", suffix="_new")
        seen = both.group_by("county").agg((pl.col("county") != pl.col("county_new")).mean().alias("seen"))
        for _, records, share, found in mechanism.areas_changed(plan).join(seen, on="county").iter_rows():
            error = (max(share * (1 - share), 0.01) / records) ** 0.5
            assert abs(found - share) < 5 * error, (mechanism.in_words, records, share, found)


# ---- two stages of matching ----------------------------------------------------------------------------

TWO_STAGE = """
[data]
households = "homes.parquet"
id = ["hid"]
[mechanism]
name = "two-stage-swap"
match = ["size"]
fine_match = ["tenure"]
swap = ["county"]
rate = "1/10"
fine_rate = "1/2"
[[tables]]
variables = ["county", "tenure"]
[release]
out = "out"
"""


@pytest.fixture
def three_columns_held(folder: Path) -> pl.DataFrame:
    homes = households(600).with_columns(vacant=pl.col("hid") % 2)
    world(folder, homes, plan=TWO_STAGE)
    return homes


def test_two_stages_make_a_bundle_under_the_coarse_invariants_and_say_the_fine_promise(
    folder: Path, three_columns_held: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = facts(["plan", "plan.toml", "--json"], capsys)
    done = facts(["release", "plan.toml", "--json"], capsys)
    assert planned["fine_epsilon_exact"] == done["fine_epsilon_exact"]
    assert done["fine_epsilon"] < done["epsilon"]
    bundle = folder / "out"
    assert_complete(bundle, three_columns_held)
    assert audit_bundle(bundle).passed
    public = bundle / "public"
    specification = from_json((public / "specification.json").read_text(encoding="utf-8"))
    assert str(specification.budget.realised) == done["epsilon_exact"]
    assert [inv.variables for inv in specification.multiverse.invariants] == [  # type: ignore[union-attr]
        ("size", "county"),
        ("size", "tenure", "vacant"),
    ]
    released = pl.read_parquet(public / "data.parquet")
    fine = ["size", "tenure", "county"]
    assert not released.select(fine).sort(fine).equals(three_columns_held.select(fine).sort(fine))
    crossed = pl.read_parquet(public / "invariants.parquet").filter(pl.col("table") == "match x swap")
    assert crossed["tenure"].null_count() == crossed.height, "the fine margins are not published"
    assert (pl.read_parquet(public / "strata.parquet").columns)[0] == "size"
    assert "tenure" not in pl.read_parquet(public / "strata.parquet").columns
    for page in ("report.html", "README.md"):
        text = (public / page).read_text(encoding="utf-8")
        assert "neither keeps nor publishes" in text
    assert "county x tenure, disturbed by swapping" in (public / "README.md").read_text(encoding="utf-8")


def test_two_stages_from_the_command_line_are_those_of_the_plan(
    folder: Path, three_columns_held: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    del three_columns_held
    told = ["--mechanism", "two-stage", "--rate", "1/10", "--set", "fine_match=tenure", "--set", "fine_rate=1/2"]
    roles = ["homes.parquet", "--id", "hid", "--match", "size", "--swap", "county"]
    by_options = facts(["plan", *roles, *told, "--json"], capsys)
    by_plan = facts(["plan", "plan.toml", "--json"], capsys)
    assert by_options["specification"] == by_plan["specification"]
    assert by_options["fine_epsilon_exact"] == by_plan["fine_epsilon_exact"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["compare", "plan.toml"], "depends on counts that it protects"),
        (["compare", "plan.toml", "--equal", "epsilon"], "depends on counts that it protects"),
    ],
)
def test_what_two_stages_have_no_formula_for_is_refused(
    folder: Path, three_columns_held: pl.DataFrame, arguments: list[str], what: str
) -> None:
    del three_columns_held
    done = stirred(*arguments, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert what in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("source", ["margins", "this-data"])
def test_the_error_of_two_stages_is_foretold(
    folder: Path, three_columns_held: pl.DataFrame, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder, three_columns_held
    (found,) = facts(["plan", "plan.toml", "--expect-from", source, "--json"], capsys)["expected_error"]
    assert found["root_mean_square_error"] > 0
    assert (found["cells"] is None) == (source == "this-data")


def test_a_second_stage_without_its_settings_is_refused_with_all_that_is_missing(folder: Path) -> None:
    text = TWO_STAGE.replace('fine_match = ["tenure"]\n', "").replace('fine_rate = "1/2"\n', "")
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    done = stirred("plan", "plan.toml", cwd=folder)
    assert done.returncode == 2
    assert "fine_match" in done.stderr
    assert "fine_rate" in done.stderr


@pytest.mark.parametrize("name", ["metric-swap", "gibbs-swap"])
def test_a_plan_of_a_removed_member_says_which_commit_has_it_and_what_to_use(folder: Path, name: str) -> None:
    text = PLAN_OF_HOMES.replace('rate = "1/2"\n', f'name = "{name}"\nepsilon = 2\n')
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    for arguments in (("release", "plan.toml"), ("mechanism", "show", name.removesuffix("-swap"))):
        done = stirred(*arguments, cwd=folder)
        said = " ".join(done.stderr.split())
        assert done.returncode == 2, done.stdout
        assert "was removed" in said
        assert "small strata only" in said
        assert "6b6a3cd" in said
        assert "use conditioned-swap" in said
    assert not (folder / "out").exists()
