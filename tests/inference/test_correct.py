"""The front door of corrections: which mechanism made a release, its specification says."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from stirred.data.problems import DataError
from stirred.inference.unswap import correct
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import Mechanism
from stirred.mechanisms.registry import UnknownMechanismError
from tests.world import SWAP, households, stirred


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swap")
    households().drop("hid").write_csv(folder / "homes.csv")
    done = stirred("swap", "homes.csv", *SWAP, "--out", "b", "--seed", "x", "--quiet", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "b" / "public"


def stated(public: Path, tmp_path: Path, **mechanism: object) -> Path:
    """Return the public folder with another mechanism in its specification."""
    folder = tmp_path / "public"
    folder.mkdir()
    for path in public.glob("*.parquet"):
        (folder / path.name).write_bytes(path.read_bytes())
    document = json.loads((public / "specification.json").read_text(encoding="utf-8"))
    (folder / "specification.json").write_text(
        json.dumps({**document, "mechanism": {**document["mechanism"], **mechanism}}), encoding="utf-8"
    )
    return folder


def test_a_bundle_and_its_public_folder_are_corrected_alike(public: Path) -> None:
    one, other = (correct(["county", "tenure"], folder, project=True) for folder in (public, public.parent))
    assert one.table.equals(other.table)
    assert "projected" in one.table.columns
    assert one.values["cells"] == one.table.height
    table = one.table.select("county", "tenure", "count").with_columns(pl.col("count") + 1)
    with pytest.raises(DataError, match="counts are not those of the released data"):
        correct(table, public)


def test_a_mechanism_that_is_not_installed_is_refused_by_name(public: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownMechanismError, match="there is no mechanism called 'from-elsewhere'"):
        correct(["county", "tenure"], stated(public, tmp_path, name="from-elsewhere"))


def test_a_mechanism_without_a_correction_says_so(
    public: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "plain", (Mechanism.__module__, Mechanism.__name__))
    with pytest.raises(DataError, match="tables of this mechanism are not corrected"):
        correct(["county", "tenure"], stated(public, tmp_path, name="plain"))


def test_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such folder"):
        correct(["county"], tmp_path / "nowhere")
