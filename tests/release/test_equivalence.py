"""Different ways to the same release: plan or options, CSV or Parquet, one thread or several."""

from __future__ import annotations

import os
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import PermutationSwap
from stirred.cli.main import run as command
from stirred.release.plan_file import plan_from, read_plan
from tests.release.forked import Forked
from tests.world import files_in, households, persons, read, stirred, world

PLAN = """
[data]
households = "homes.parquet"
persons = "people.parquet"
hid = "hid"
id = ["pid"]

[mechanism]
name = "permutation-swap"
match = ["size"]
swap = ["county"]
hold = ["tenure"]
rate = 0.5

[[tables]]
variables = ["county", "tenure"]

[release]
out = "from-plan"
"""
OPTIONS = [
    "--match", "size", "--swap", "county", "--hold", "tenure", "--rate", "50%", "--persons", "people.parquet",
    "--hid", "hid", "--id", "pid", "--table", "county x tenure", "--seed", "same", "--quiet",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    homes = households()
    homes.write_csv(tmp_path / "homes.csv")
    persons(homes).write_csv(tmp_path / "people.csv")
    return world(tmp_path, people=True)


def public(bundle: Path) -> dict[str, bytes]:
    """Everything in public that does not carry the time of making."""
    return {name: (bundle / name).read_bytes() for name in sorted(files_in(bundle)) if name.startswith("public/")}


def test_a_plan_and_the_same_options_give_the_same_public_files(folder: Path) -> None:
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert command(["release", "plan.toml", "--seed", "same", "--quiet"]) == 0
    assert command(["swap", "homes.parquet", *OPTIONS, "--out", "from-options"]) == 0
    assert public(folder / "from-plan") == public(folder / "from-options")


def test_the_same_seed_gives_the_same_release_and_another_seed_another(folder: Path) -> None:
    for out, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert command(["swap", "homes.parquet", *OPTIONS[:-2], seed, "--quiet", "--out", out]) == 0
    assert public(folder / "a") == public(folder / "b")
    assert not read(folder / "a/public/data.parquet").equals(read(folder / "c/public/data.parquet"))


def test_without_a_seed_no_two_releases_are_alike(folder: Path) -> None:
    for out in ("a", "b"):
        assert command(["swap", "homes.parquet", "--swap", "county", "--match", "size", "--rate", "1/2",
                        "--id", "hid", "--quiet", "--out", out]) == 0  # fmt: skip
    assert not read(folder / "a/public/data.parquet").equals(read(folder / "b/public/data.parquet"))


@pytest.mark.parametrize("source", ["parquet", "csv"])
def test_csv_and_parquet_releases_are_equal_in_content(source: str, folder: Path) -> None:
    options = [word.replace(".parquet", f".{source}") for word in OPTIONS]
    for format_ in ("parquet", "csv"):
        assert command(["swap", f"homes.{source}", *options, "--set", f"format={format_}", "--out", format_]) == 0
    for name in ("data", "persons"):
        parquet = read(folder / "parquet" / "public" / f"{name}.parquet").select(pl.all().cast(pl.String))
        assert parquet.equals(read(folder / "csv" / "public" / f"{name}.csv"))
    table = Path("public/tables/county-x-tenure.csv")
    assert (folder / "parquet" / table).read_bytes() == (folder / "csv" / table).read_bytes()


def test_a_csv_input_and_a_parquet_input_give_the_same_release(folder: Path) -> None:
    for source in ("parquet", "csv"):
        options = [word.replace(".parquet", f".{source}") for word in OPTIONS]
        assert command(["swap", f"homes.{source}", *options, "--set", "format=csv", "--out", source]) == 0
    for name in ("data.csv", "persons.csv"):
        ours, theirs = (read(folder / source / "public" / name) for source in ("parquet", "csv"))
        assert ours.columns == theirs.columns
        assert ours.height == theirs.height
    # Ages are numbers in one input and text in the other, so persons inside a household may stand otherwise.
    assert read(folder / "parquet/public/data.csv").equals(read(folder / "csv/public/data.csv"))


def test_the_release_does_not_depend_on_the_number_of_processors(folder: Path) -> None:
    one = partial(os.sched_setaffinity, 0, {min(os.sched_getaffinity(0))})
    many = partial(os.putenv, "POLARS_MAX_THREADS", "4")
    for out, arrange in (("one", one), ("many", many)):
        done = Forked("swap", "homes.parquet", *OPTIONS, "--out", out, cwd=folder, arrange=arrange)
        _, said = done.communicate()
        assert done.returncode == 0, said
    assert public(folder / "one") == public(folder / "many")


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("0.05", "1/20"),
        ('"5%"', "1/20"),
        ('"1/20"', "1/20"),
        ("0.1", "1/10"),
        ("1", "1"),
        ("0.30000000000000004", None),
    ],
)
def test_rates_in_a_plan_are_read_exactly(text: str, rate: str | None, folder: Path) -> None:
    from stirred.release.reading import mechanism_of

    (folder / "plan.toml").write_text(PLAN.replace("rate = 0.5", f"rate = {text}"), encoding="utf-8")
    expected = Fraction(rate) if rate else Fraction("0.30000000000000004")
    assert mechanism_of(read_plan(folder / "plan.toml")) == PermutationSwap(
        match=["size"], swap=["county"], hold=["tenure"], rate=expected
    )


def test_paths_in_a_plan_are_relative_to_the_plan(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    done = stirred("release", folder / "plan.toml", "--quiet", cwd=tmp_path_factory.mktemp("elsewhere"))
    assert done.returncode == 0, done.stderr
    assert (folder / "from-plan" / "manifest.json").exists()


def content(**changes: Any) -> dict[str, Any]:
    return {
        "data": {"households": "homes.parquet", "hid": "hid"},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "release": {"out": "out"},
        **changes,
    }


def test_the_schema_of_a_plan_accepts_this_plan_and_refuses_unknown_keys() -> None:
    import jsonschema

    from stirred.release.plan_file import json_schema

    schema = json_schema()
    jsonschema.validate(content(), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(content(colour={}), schema)


def test_a_variable_alone_may_be_written_without_brackets() -> None:
    plan = plan_from(
        content(mechanism={"match": "size", "swap": "county", "rate": "1/2"}), source="plan", folder=Path()
    )
    settings = plan.settings.dumped()
    assert (settings["match"], settings["swap"]) == (["size"], ["county"])
