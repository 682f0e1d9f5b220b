"""Public counts of leaves: used where they fit, left out where they do not, and never by default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.topdown import published
from stirred.mechanisms.topdown.commands_microdata import MicrodataOptions, run_microdata
from stirred.mechanisms.topdown.solve.arms import ARMS
from stirred.mechanisms.topdown.solve.grid import Grid
from stirred.mechanisms.topdown.solve.microdata import solve
from stirred.mechanisms.topdown.solve.objective import own_objective
from stirred.mechanisms.topdown.solve.pieces import Piece, Settings, Whole
from stirred.mechanisms.topdown.solve.public import Fit, fitted, moments, with_public
from stirred.mechanisms.topdown.tree import Answers, Level, Tree
from tests.mechanisms.topdown.hierarchies import summed_up
from tests.mechanisms.topdown.layout import write_folders
from tests.mechanisms.topdown.wards import SCHEMA, people

NONE = np.zeros(1, dtype=np.int64)


def town(*, related: bool) -> tuple[Callable[[int], Tree], np.ndarray, dict[str, int]]:
    """Return measurements by seed, the true totals of 120 leaves in 6 parents, and their units, for two people each.

    Nine tenths of all places are taken, by the leaf more or less (standard deviation 0.065); or else totals and units
    have nothing to do with each other. The variance of a total from all answers of a leaf is 30.
    """
    rng = np.random.default_rng(1)
    parent = np.repeat(np.arange(6), 20)
    units = rng.integers(3, 30, len(parent))
    totals = rng.binomial(2 * units, rng.beta(18, 2, len(parent)))
    totals = totals if related else rng.permutation(totals)
    mixed = rng.dirichlet(np.full(SCHEMA.size, 0.3), len(parent))
    counts = np.array([rng.multinomial(total, own) for total, own in zip(totals, mixed, strict=True)])
    shell = [
        Level(name="town", geocodes=("",), parent=NONE),
        Level(name="ward", geocodes=tuple(map(str, range(6))), parent=np.repeat(NONE, 6)),
        Level(name="leaf", geocodes=tuple(f"{up}{n:03d}" for n, up in enumerate(parent)), parent=parent),
    ]
    truth = summed_up(counts, shell)

    def measured(seed: int) -> Tree:
        noise = np.random.default_rng(seed)
        levels = []
        for level, true in zip(shell, truth, strict=True):
            answers = []
            for name, variance in (("total", 32.0), ("detailed", 16.0)):
                query = SCHEMA.query(name)
                drawn = np.rint(noise.normal(0, np.sqrt(variance), (level.areas, query.size))).astype(np.int64)
                spread = np.full(level.areas, variance)
                answers.append(Answers(query=query, values=query.answer(true) + drawn, variance=spread))
            levels.append(replace(level, answers=tuple(answers)))
        return Tree(schema=SCHEMA, levels=tuple(levels))

    return measured, totals, dict(zip(shell[-1].geocodes, map(int, units), strict=True))


def solved(tree: Tree, public: dict[str, int] | None) -> Piece:
    (piece,) = solve(Whole(tree=tree), Settings(arm=ARMS["default"], public=public))
    return piece


def dense(piece: Piece) -> list[np.ndarray]:
    return [counts.dense(SCHEMA.size) for counts in piece.levels]


def test_totals_of_leaves_err_less_where_the_counts_fit() -> None:
    """The error falls by 56% (40 seeds, standard deviation 3%): 35% is seven deviations off, a false alarm in 1e-10."""
    measured, truth, units = town(related=True)
    gains = []
    for seed in range(6):
        tree = measured(100 + seed)
        without, with_them = solved(tree, None), solved(tree, units)
        assert with_them.events[0].what == "the public counts are used in the totals of leaves"
        assert not without.events
        for above, same in zip(dense(without)[:-1], dense(with_them)[:-1], strict=True):
            assert np.array_equal(above, same)  # only leaves differ
        wards, leaves = dense(with_them)[1:]
        assert np.array_equal(summed_up(leaves, tree.levels)[1], wards)
        errors = [np.abs(dense(each)[-1].sum(axis=1) - truth).mean() for each in (without, with_them)]
        gains.append(1 - errors[1] / errors[0])
    assert min(gains) > 0.35, gains


def test_counts_that_do_not_fit_are_left_out_and_change_nothing() -> None:
    measured, _, units = town(related=False)
    tree = measured(100)
    without, with_them = solved(tree, None), solved(tree, units)
    assert all(np.array_equal(a, b) for a, b in zip(dense(without), dense(with_them), strict=True))
    (event,) = with_them.events
    assert event.what == "the public counts are left out"
    assert "times the count; they would take" in event.why
    assert event.amount > 5
    (nothing,) = solved(tree, dict.fromkeys(units, 0)).events
    assert nothing.why.startswith("no leaves in one parent have both")


def test_precise_measurements_need_no_public_count() -> None:
    _, _, units = town(related=True)
    tree = town(related=True)[0](100)
    leaves = tree.levels[-1]
    exact = tuple(replace(each, variance=np.full(leaves.areas, 0.1)) for each in leaves.answers)
    assert fitted([moments(leaves, units)]).used
    assert not fitted([moments(replace(leaves, answers=exact), units)]).used


@pytest.mark.parametrize("phi", [0.0, 0.4, 3.0])
def test_the_moments_find_the_variance_around_the_counts(phi: float) -> None:
    """Six standard errors: a false alarm in 1e-8; that a third too little noise is taken off would be seen."""
    rng = np.random.default_rng(5)
    parent = np.repeat(np.arange(4_000), 8)
    count = rng.integers(0, 30, len(parent))
    rate = rng.uniform(0.5, 3, 4_000)[parent]
    variance = rng.uniform(2, 20, len(parent))
    total = rate * count + rng.normal(0, np.sqrt(phi * count)) + rng.normal(0, np.sqrt(variance - 1 / 12))
    codes = tuple(map(str, range(len(parent))))
    query = SCHEMA.query("total")
    answers = Answers(query=query, values=np.rint(total).astype(np.int64)[:, None], variance=variance)
    level = Level(name="leaf", geocodes=codes, parent=parent, answers=(answers,))
    public = dict(zip(codes, map(int, count), strict=True))
    found = fitted([moments(level, public)])
    assert abs(found.phi - phi) < 6 * found.error
    assert found.error < 0.05
    wrong = replace(level, answers=(replace(answers, variance=variance * 2 / 3),))
    assert abs(fitted([moments(wrong, public)]).phi - phi) > 6 * found.error


def test_the_term_is_one_more_measurement_of_the_total() -> None:
    tree, _ = people(4, facts=False)
    leaves, grid = tree.levels[-1], Grid.of(SCHEMA, [each.query for each in tree.levels[-1].answers])
    count = np.arange(leaves.areas) % 4
    held = np.linspace(50, 90, tree.levels[-2].areas)
    whole = np.bincount(leaves.parent, weights=count)
    public = dict(zip(leaves.geocodes, map(int, count), strict=True))
    found = with_public(
        own_objective(grid, leaves, dense=False), leaves, public, Fit(phi=0.5, error=0.25, share=1), held
    )
    expected: Any = (held / whole)[leaves.parent, None] * count[:, None]
    spread = np.where(count > 0, 0.75 * count, np.inf)
    more = Answers(query=SCHEMA.query("total"), values=expected, variance=spread)
    same = own_objective(grid, replace(leaves, answers=(*leaves.answers, more)), dense=False)
    assert np.allclose(found.precision[found.kind], same.precision[same.kind])
    cells = np.arange(SCHEMA.size).reshape(1, -1)
    assert np.allclose(found.at(slice(3, 9), cells), same.at(slice(3, 9), cells))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, pl.DataFrame]:
    """Measurements with bounds, zeros and totals, so noisy that the counts are worth something; some are 0."""
    tree, truth = people(21, noise=40.0)
    root = tmp_path_factory.mktemp("public")
    write_folders(tree, root / "files")
    lines = [f'[[attributes]]\nname = "{each.name}"\ncodes = {[*each.codes]}\n' for each in SCHEMA.attributes]
    lines[0] += 'groupings = { shared = [["house"], ["ward", "hall"]] }\n'
    (root / "schema.toml").write_text("\n".join(lines).replace("'", '"'))
    count = np.where(np.arange(30) % 10 == 3, 0, truth[-1].sum(axis=1))
    return root, truth[0], pl.DataFrame({"geocode": tree.levels[-1].geocodes, "count": count})


def options(root: Path, out: Path, public: Path | None, **more: Any) -> MicrodataOptions:
    schema = str(root / "schema.toml")
    return MicrodataOptions(measurements=root / "files", schema_=schema, out=out, public=public, **more)


def test_the_command_keeps_what_is_known_and_is_the_same_whole_in_pieces_and_after_another_run(
    written: tuple[Path, np.ndarray, pl.DataFrame], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, truth, counts = written
    public = tmp_path / "units.csv"
    counts.reverse().write_csv(public)
    whole = run_microdata(options(root, tmp_path / "whole", public))
    assert whole.passed
    assert "the public counts are used" in dict(whole.rows)["event"]
    assert whole.values["certificate"]["passed"]
    monkeypatch.setattr(published, "_VALUES_AT_ONCE", 5 * SCHEMA.size)

    def dies(stage: str, done: int, whole: int) -> None:
        if stage == "top-down" and done == whole - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_microdata(options(root, tmp_path / "pieces", None, threads=1), dies)  # nothing of it is taken over
    pieces = run_microdata(options(root, tmp_path / "pieces", public, threads=2))
    run_microdata(options(root, tmp_path / "plain", None))
    found = {name: pl.read_parquet(tmp_path / name / "counts.parquet") for name in ("whole", "pieces", "plain")}
    assert found["whole"].equals(found["pieces"])
    assert not found["whole"].equals(found["plain"])
    assert found["whole"]["count"].sum() == truth.sum()
    assert pieces.values["events"] == whole.values["events"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows[1:], '1 of 30 leaves have no count, such as "000000"'),
        (lambda rows: rows.with_columns(count=pl.col("count") - 20), 'the count of "000000" is "-'),
        (lambda rows: rows.with_columns(count=pl.lit("many")), 'the count of "000000" is "many"'),
        (lambda rows: rows.with_columns(count=pl.lit(1.5)), 'the count of "000000" is "1.5"'),
        (lambda rows: rows.with_columns(count=pl.lit(None)), 'the count of "000000" is ""'),
        (lambda rows: pl.concat([rows, rows[2:3]]), '"000002" has several rows'),
        (lambda rows: rows.rename({"count": "units"}), 'it has no column "count"'),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_is_wrong_is_refused_before_anything_is_written(
    written: tuple[Path, np.ndarray, pl.DataFrame],
    tmp_path: Path,
    change: Callable[[pl.DataFrame], pl.DataFrame],
    said: str,
    kind: str,
) -> None:
    root, _, counts = written
    rows, path = change(counts), tmp_path / f"units.{kind}"
    rows.write_csv(path) if kind == "csv" else rows.write_parquet(path)
    with pytest.raises(DataError) as caught:
        run_microdata(options(root, tmp_path / "out", path))
    assert said in str(caught.value)
    assert f"public {path}" in str(caught.value)
    assert caught.value.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_other_arms_have_no_public_counts(written: tuple[Path, np.ndarray, pl.DataFrame], tmp_path: Path) -> None:
    root, _, counts = written
    counts.write_parquet(tmp_path / "units.parquet")
    with pytest.raises(PlanError, match="the arm bureau has no public counts"):
        run_microdata(options(root, tmp_path / "out", tmp_path / "units.parquet", arm="bureau"))
