"""Correcting by public files that were edited, or do not belong together: refused, and never a fault of ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.cli.main import run as command
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from tests.release.tampering import add, frame, specified
from tests.world import households

Change = Callable[[Path], object]
LAW = {"East": "1/2", "North": "1/6", "South": "1/6", "West": "1/6"}
MADE: dict[str, dict[str, Any]] = {
    "plain": {},
    "staged": {"name": "two-stage-swap", "fine_match": ["tenure"], "fine_rate": "1/3"},
    "redrawn": {"name": "conditioned-swap"},
    "declared": {"name": "conditioned-swap", "redraw_law": LAW},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    households(600).write_parquet(folder / "homes.parquet")
    for out, mechanism in MADE.items():
        plan = {
            "data": {"households": "homes.parquet", "id": ["hid"]},
            "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/5", **mechanism},
            "tables": [{"variables": ["county", "tenure"]}],
            "release": {"out": out},
        }
        run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())
    return folder


def corrected(bundle: Path) -> int:
    table, out = bundle / "public/tables/county-x-tenure.csv", bundle.parent / "corrected.csv"
    return command(["unswap", *map(str, (table, "--bundle", bundle, "--out", out))])


def strata(**columns: Any) -> Change:
    return frame("strata.parquet", lambda f: f.with_columns(**{name: pl.lit(c) for name, c in columns.items()}))


def stating(law: Any) -> Change:
    return specified(lambda document: document["mechanism"]["settings"].update(redraw_law=law))


def without(name: str, column: str) -> Change:
    return frame(name, lambda f: f.drop(column))


@pytest.mark.parametrize("name", MADE)
def test_what_nobody_edited_is_corrected(name: str, made: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(made / name, tmp_path / "bundle"))
    assert corrected(bundle) == 0
    assert (tmp_path / "corrected.csv").exists()


EDITED: dict[str, tuple[str, Change, str]] = {
    "no specification": (
        "plain",
        lambda bundle: (bundle / "public/specification.json").unlink(),
        "there is no specification.json, so this is not the bundle of a swap",
    ),
    "a specification that is no JSON": (
        "plain",
        add("public/specification.json", b"{"),
        "specification.json: it does not say which variables were swapped",
    ),
    "a specification that is no text": (
        "plain",
        add("public/specification.json", b"\xff"),
        "specification.json: it does not say which variables were swapped",
    ),
    "a specification of something else": (
        "plain",
        specified(lambda document: document["multiverse"].update(invariants=[])),
        "specification.json: it does not say which variables were swapped",
    ),
    "no rates": ("plain", without("strata.parquet", "stratum_rate"), "there is no column stratum_rate"),
    "a rate that is no number": ("plain", strata(stratum_rate="often"), "stratum_rate: 'often' is not a number"),
    "a rate above 1": ("plain", strata(stratum_rate="2"), "stratum_rate: 2 is not a probability"),
    "a rate of nothing": ("plain", strata(stratum_rate="1/0"), "stratum_rate: '1/0' is not a number"),
    "strata without a rate": ("plain", strata(stratum_rate=None), "some records lie in strata that the list"),
    "strata that are missing": ("plain", frame("strata.parquet", lambda f: f.head(1)), "some records lie in strata"),
    "strata that stand twice": (
        "plain",
        frame("strata.parquet", lambda f: pl.concat([f, f])),
        "strata.parquet: a stratum is listed twice",
    ),
    "strata without their values": ("plain", without("strata.parquet", "size"), "a stratum is listed twice"),
    "records without the values of strata": (
        "plain",
        without("data.parquet", "size"),
        'strata.parquet: the released microdata have no column "size"',
    ),
    "a law unheard of": ("plain", strata(stratum_law="magic"), "tables of the magic swap have no closed form"),
    "a second stage that is no list": ("staged", strata(stratum_fine_match="tenure"), "is not a list of released"),
    "a second stage of nothing": ("staged", strata(stratum_fine_match="[]"), "is not a list of released"),
    "a second stage by numbers": ("staged", strata(stratum_fine_match="[1]"), "is not a list of released"),
    "a second stage by what is not there": (
        "staged",
        strata(stratum_fine_match='["age"]'),
        "strata.parquet: stratum_fine_match is not a list of released variables",
    ),
    "a second rate that is no number": ("staged", strata(stratum_fine_rate="x"), "stratum_fine_rate: 'x' is not a"),
    "a second rate above 1": ("staged", strata(stratum_fine_rate="5/2"), "stratum_fine_rate: 5/2 is not a prob"),
    "no second rate": ("staged", without("strata.parquet", "stratum_fine_rate"), "what its second stage does"),
    "a law that is not said": (
        "redrawn",
        stating("odd"),
        "specification.json: it does not say which law the conditioned swap redraws from",
    ),
    "a law by something else than numbers": ("declared", stating({**LAW, "East": []}), "redraw law: '[]' is not a"),
    "no mechanism": (
        "redrawn",
        specified(lambda document: document.pop("mechanism")),
        "specification.json: it does not say which law the conditioned swap redraws from",
    ),
    "a swap that says it redraws": (
        "plain",
        strata(stratum_law="conditioned"),
        "specification.json: it does not say which law the conditioned swap redraws from",
    ),
    "a declared law above 1": (
        "declared",
        stating({**LAW, "East": "5/2"}),
        "specification.json: the probabilities of its redraw law sum to 3, or one is not above 0",
    ),
    "a declared law with a zero": (
        "declared",
        stating({**LAW, "East": 0}),
        "or one is not above 0",
    ),
    "a declared law that divides by zero": (
        "declared",
        stating({**LAW, "East": "1/0"}),
        "specification.json redraw law: '1/0' is not a number",
    ),
    "a declared law without a value": (
        "declared",
        stating({name: mass for name, mass in LAW.items() if name != "East"}),
        'no probability for "East"',
    ),
}


@pytest.mark.parametrize("name", EDITED)
def test_tables_are_not_corrected_by(name: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, change, what = EDITED[name]
    bundle = Path(shutil.copytree(made / source, tmp_path / "bundle"))
    change(bundle)
    assert corrected(bundle) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert what in err
    assert ". Fix: " in err
    assert not (tmp_path / "corrected.csv").exists()
