"""The command ``stirred topdown microdata``, from published measurements to checked files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.data.problems import PlanError
from stirred.mechanisms.topdown import published
from stirred.mechanisms.topdown.commands import COMMANDS, MicrodataOptions, run_microdata
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, Tree
from stirred.mechanisms.topdown.solve import files
from stirred.mechanisms.topdown.solve.problem import METHODS
from stirred.mechanisms.topdown.solve.tree import SolveOptions, solve
from tests.mechanisms.topdown.hierarchies import answer
from tests.mechanisms.topdown.layout import write_codebook, write_folders
from tests.mechanisms.topdown.wards import SCHEMA, people


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tree, list[np.ndarray]]:
    tree, truth = people(21, noise=2.0)
    root = tmp_path_factory.mktemp("published")
    write_folders(tree, root / "files")
    write_codebook(SCHEMA, root / "schema.toml")
    return root, tree, truth


def options(root: Path, out: Path, **more: Any) -> MicrodataOptions:
    return MicrodataOptions(measurements=root / "files", schema_=str(root / "schema.toml"), out=out, **more)


@pytest.mark.parametrize("arm", METHODS)
def test_published_measurements_give_the_microdata_that_a_tree_in_memory_gives(
    written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path, arm: str
) -> None:
    root, tree, truth = written
    outcome = run_microdata(options(root, tmp_path, arm=arm))
    assert outcome.passed
    found = pl.read_parquet(tmp_path / "counts.parquet")
    piece = next(solve(lambda: [tree], SolveOptions(method=METHODS[arm])))
    assert found.equals(piece.levels[-1].frame(tree.schema, tree.levels[-1].geocodes))
    assert found["count"].sum() == truth[0].sum() == pl.read_parquet(tmp_path / "persons.parquet").height
    told = dict(outcome.rows)
    assert told["areas"] == "L0 1, L1 2, L2 6, L3 30"
    assert told["check"].startswith("passed: ")
    assert told["spends"].startswith("nothing")
    assert outcome.values["certificate"]["passed"]
    assert len(outcome.values["sha256"]) == 64
    assert not (tmp_path / ".unfinished").exists()


def test_a_run_that_fails_before_its_first_area_leaves_nothing(
    written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(files, "solve", failing)
    with pytest.raises(MemoryError):
        run_microdata(options(written[0], tmp_path / "out"))
    assert not [*tmp_path.iterdir()]


def test_large_files_are_read_in_pieces_to_the_same_end(
    written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _, _ = written
    run_microdata(options(root, tmp_path / "whole"))
    monkeypatch.setattr(published, "_VALUES_AT_ONCE", 5 * SCHEMA.size)
    run_microdata(options(root, tmp_path / "pieces", threads=2))
    names = ("counts.parquet", "persons.parquet")
    assert all(
        pl.read_parquet(tmp_path / "whole" / name).equals(pl.read_parquet(tmp_path / "pieces" / name)) for name in names
    )


@pytest.mark.parametrize("level", [2, 3])
@pytest.mark.parametrize("arm", METHODS)
def test_totals_of_groups_hold_whether_the_file_is_read_whole_or_in_pieces(
    written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str, level: int
) -> None:
    """Groups of the tops of pieces, and of leaves inside the last piece."""
    root, tree, truth = written
    own = tree.levels[level]
    members = np.flatnonzero(own.parent == own.parent[-1])[:2]
    codes, value = [own.geocodes[place] for place in members], int(truth[level][members].sum())
    groups = pl.DataFrame({"geocode": ["group"], "value": [value], "members": [codes]})
    groups.write_parquet(tmp_path / "totals.parquet")
    found = []
    for name, many in (("whole", 1 << 24), ("pieces", 5 * SCHEMA.size)):
        monkeypatch.setattr(published, "_VALUES_AT_ONCE", many)
        more = options(root, tmp_path / name, arm=arm, totals=tmp_path / "totals.parquet")
        outcome = run_microdata(more)
        assert outcome.passed, outcome.values["certificate"]["failures"]
        found.append(pl.read_parquet(tmp_path / name / "counts.parquet"))
    assert found[0].equals(found[1])
    inside = pl.any_horizontal(pl.col("geocode").str.starts_with(code) for code in codes)
    assert found[0].filter(inside)["count"].sum() == value


@pytest.mark.parametrize("arm", METHODS)
def test_what_only_a_later_piece_asks_and_bounds_is_kept(
    written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    _, tree, truth = written
    race, leaves = SCHEMA.query("race"), tree.levels[-1]
    last = np.arange(leaves.areas) >= leaves.areas - 5  # the last piece
    counts = answer(race, truth[-1])
    most = Constraint(query=race, sign="<=", values=counts, given=last)
    more = Answers(query=race, values=counts, variance=np.where(last, 2.0, np.inf))
    leaves = replace(leaves, known=(*leaves.known, most), answers=(*leaves.answers, more))
    write_folders(replace(tree, levels=(*tree.levels[:-1], leaves)), tmp_path / "files")
    write_codebook(SCHEMA, tmp_path / "schema.toml")
    found = []
    for name, many in (("whole", 1 << 24), ("pieces", 5 * SCHEMA.size)):
        monkeypatch.setattr(published, "_VALUES_AT_ONCE", many)
        assert run_microdata(options(tmp_path, tmp_path / name, arm=arm)).passed
        found.append(pl.read_parquet(tmp_path / name / "counts.parquet"))
    assert found[0].equals(found[1])


def test_nothing_of_an_interrupted_run_on_other_measurements_is_taken_over(
    written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run dies with parts of many shards written; the second has one shard, and none of those people."""
    root, _, truth = written
    other, _ = people(22, noise=2.0)
    write_folders(other, tmp_path / "other" / "files")
    write_codebook(SCHEMA, tmp_path / "other" / "schema.toml")

    def dies(stage: str, done: int, whole: int) -> None:
        if stage == "top-down" and done == whole - 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as small:
        small.setattr(published, "_VALUES_AT_ONCE", 5 * SCHEMA.size)
        with pytest.raises(KeyboardInterrupt):
            run_microdata(options(tmp_path / "other", tmp_path / "out", threads=1), dies)
    assert not (tmp_path / "out").exists()
    assert len([*(tmp_path / ".out.unfinished").iterdir()]) > 2
    run_microdata(options(root, tmp_path / "out"))
    run_microdata(options(root, tmp_path / "alone"))
    for name in ("counts.parquet", "persons.parquet"):
        assert pl.read_parquet(tmp_path / "out" / name).equals(pl.read_parquet(tmp_path / "alone" / name))
    assert pl.read_parquet(tmp_path / "out" / "persons.parquet").height == truth[0].sum()


def test_another_arm_makes_as_many_records(written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path) -> None:
    root, _, truth = written
    outcome = run_microdata(options(root, tmp_path / "out", arm="blue"))
    assert outcome.passed
    assert outcome.values["arm"] == "blue"
    counts = pl.read_parquet(tmp_path / "out" / "counts.parquet")
    assert counts["count"].sum() == truth[0].sum()


def test_files_that_leave_records_without_a_place_are_refused(
    written: tuple[Path, Tree, list[np.ndarray]], tmp_path: Path
) -> None:
    _, tree, _ = written
    part = [*tree.levels]
    kept = np.arange(25)
    part[3] = replace(
        part[3],
        geocodes=part[3].geocodes[:25],
        parent=part[3].parent[:25],
        answers=tuple(replace(a, values=a.values[kept], variance=a.variance[kept]) for a in part[3].answers),
        known=tuple(replace(k, values=k.values[kept], given=k.given[kept]) for k in part[3].known),
    )
    write_folders(replace(tree, levels=tuple(part)), tmp_path / "files")
    write_codebook(SCHEMA, tmp_path / "schema.toml")
    with pytest.raises(PlanError, match='L2 "0102" has no L3 inside it'):
        run_microdata(options(tmp_path, tmp_path / "out"))
    bare = [replace(tree.levels[0], answers=()), *tree.levels[1:]]
    with pytest.raises(PlanError, match="the top has none"):
        next(solve(lambda: [replace(tree, levels=tuple(bare))], SolveOptions(method=METHODS["bureau"])))


def test_the_command_is_declared_with_its_options() -> None:
    command = next(each for each in COMMANDS if each.name == "microdata")
    assert (command.name, command.options, command.run) == ("microdata", MicrodataOptions, run_microdata)
    assert all(field.description for field in MicrodataOptions.model_fields.values())
