"""Microdata: truth without noise, limits in every area, the same on any number of threads and after interruptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.data.problems import PlanError
from stirred.mechanisms.topdown.hierarchy.tree import Constraint, GroupTotal, Level, Tree
from stirred.mechanisms.topdown.solve import tree as solving
from stirred.mechanisms.topdown.solve.check import Certificate, check_tree, read_counts
from stirred.mechanisms.topdown.solve.files import make
from stirred.mechanisms.topdown.solve.problem import METHODS
from stirred.mechanisms.topdown.solve.tree import LevelStore, SolveOptions, TreeCounts, solve
from tests.mechanisms.topdown.hierarchies import answer, random_tree
from tests.mechanisms.topdown.layout import made_from
from tests.mechanisms.topdown.wards import NO_BOUND, SCHEMA, people
from tests.mechanisms.topdown.watched import watched


@dataclass(frozen=True)
class Sharded:
    """A tree as a source in shards, which are the areas of its second level."""

    tree: Tree

    def top(self) -> Tree:
        bare = Level(name="L1", geocodes=self.tree.levels[1].geocodes, parent=self.tree.levels[1].parent)
        return replace(self.tree, levels=(self.tree.levels[0], bare))

    def shards(self) -> Iterator[Tree]:
        for area in range(self.tree.levels[1].areas):
            yield replace(self.tree, levels=tuple(self._cut(area)))

    def _cut(self, area: int) -> Iterator[Level]:
        own, above = np.array([area]), np.zeros(0, dtype=np.int64)
        for place, level in enumerate(self.tree.levels[1:]):
            own = np.flatnonzero(np.isin(level.parent, above)) if place else own
            answers = tuple(replace(a, values=a.values[own], variance=a.variance[own]) for a in level.answers)
            known = tuple(replace(k, values=k.values[own], given=k.given[own]) for k in level.known)
            parent = np.zeros(len(own), dtype=np.int64)
            parent[:] = np.searchsorted(above, level.parent[own]) if place else 0
            above = own
            codes = tuple(level.geocodes[each] for each in own)
            yield Level(name=level.name, geocodes=codes, parent=parent, answers=answers, known=known)


def solved(tree: Tree, arm: str = "default", **more: Any) -> TreeCounts:
    return next(solve(lambda: [tree], SolveOptions(method=METHODS[arm], **more)))


def histograms(piece: TreeCounts) -> list[np.ndarray]:
    return [counts.answers(piece.tree.schema.query("detailed")) for counts in piece.levels]


@pytest.mark.parametrize("arm", METHODS)
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_measurements_without_noise_give_the_truth(arm: str, noise: float) -> None:
    tree, truth = people(3, noise=noise)
    for found, true in zip(histograms(solved(tree, arm)), truth, strict=True):
        assert np.array_equal(found, true)


@pytest.mark.parametrize("arm", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_every_area_keeps_all_that_is_known_of_it(arm: str, seed: int) -> None:
    tree, truth = people(seed, noise=6.0)
    frame, made = made_from(lambda: [tree], SolveOptions(method=METHODS[arm]))
    assert made.certificate.passed, made.certificate.failures
    assert made.certificate.records == truth[0].sum() == frame["count"].sum()
    assert made.certificate.areas == 1 + 2 + 6 + 30
    assert not made.events


@pytest.mark.parametrize("arm", METHODS)
@pytest.mark.parametrize("seed", range(24))
def test_odd_hierarchies_keep_all_that_is_known_of_them_too(arm: str, seed: int) -> None:
    tree, groups, _ = random_tree(seed, gaps=False)
    _, made = made_from(lambda: [tree], SolveOptions(method=METHODS[arm], groups=tuple(groups)))
    assert made.certificate.passed, made.certificate.failures


def test_counts_are_the_same_on_any_number_of_threads_and_in_any_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, _ = people(5, fanout=(3, 6, 4), noise=4.0)
    one = histograms(solved(tree, threads=1))
    for threads, together in ((2, 16), (3, 1), (1, 2)):
        monkeypatch.setattr(solving, "_AT_ONCE", together)
        assert all(map(np.array_equal, histograms(solved(tree, threads=threads)), one))


@pytest.mark.parametrize("arm", METHODS)
def test_shards_one_after_the_other_give_what_the_whole_gives(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, _ = people(6, noise=3.0)
    whole, _ = made_from(lambda: [tree], SolveOptions(method=METHODS[arm]))
    for remembered in (1 << 29, 0):
        monkeypatch.setattr(solving, "_REMEMBERED", remembered)
        parts, made = made_from(Sharded(tree).shards, SolveOptions(method=METHODS[arm]), top=Sharded(tree).top())
        assert made.certificate.passed
        assert made.certificate.areas == 1 + 2 + 6 + 30
        assert parts.equals(whole)


def test_renaming_and_reordering_children_reorders_their_counts() -> None:
    tree, _ = people(7, fanout=(4, 3), noise=4.0)
    order = np.array([2, 0, 3, 1])
    leaves = np.concatenate([np.arange(3) + 3 * place for place in order])
    moved = [tree.levels[0]]
    for level, own in zip(tree.levels[1:], (order, leaves), strict=True):
        answers = tuple(replace(a, values=a.values[own], variance=a.variance[own]) for a in level.answers)
        known = tuple(replace(k, values=k.values[own], given=k.given[own]) for k in level.known)
        moved.append(replace(level, answers=answers, known=known))
    one, two = histograms(solved(tree)), histograms(solved(replace(tree, levels=tuple(moved))))
    assert np.array_equal(one[1][order], two[1])
    assert np.array_equal(one[2][leaves], two[2])


def test_children_add_up_to_any_parent_before_and_after_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, truth = people(8, noise=2.0)
    given = {
        code: (np.flatnonzero(row), row[row > 0])
        for level, true in zip(tree.levels[:-1], truth, strict=False)
        for code, row in zip(level.geocodes, true, strict=True)
    }
    children = watched(monkeypatch, given)
    piece = solved(tree)
    for parent, (cells, counts) in given.items():
        own = [values for (above, code), (_, values) in children.items() if above == parent != code]
        assert np.sum(own, axis=0) == pytest.approx(counts, abs=1e-6)
        assert all(np.array_equal(children[key][0], cells) for key in children if key[0] == parent != key[1])
    for level, found, true in zip(tree.levels[1:], histograms(piece)[1:], truth, strict=False):
        up = np.zeros_like(true)
        np.add.at(up, level.parent, found)
        assert np.array_equal(up, true), f"{level.name} adds up to the given parents, not to those solved"


def test_an_arm_that_uses_the_whole_subtree_is_more_accurate_than_one_that_uses_the_level() -> None:
    errors: dict[str, list[float]] = {arm: [] for arm in METHODS}
    for seed in range(6):
        tree, truth = people(seed, fanout=(3, 5, 6), noise=8.0)
        for arm in METHODS:
            errors[arm].append(float(np.abs(histograms(solved(tree, arm))[2] - truth[2]).sum()))
    better = np.array(errors["bureau"]) - np.array(errors["default"])
    assert better.mean() > 2 * better.std(ddof=1) / np.sqrt(len(better)), errors


# ---- what goes wrong --------------------------------------------------------------------------------------


def limited(tree: Tree, place: int, query: str, sign: str, values: np.ndarray) -> Tree:
    """Return a tree with something more known of a level."""
    level = tree.levels[place]
    fact = Constraint(query=SCHEMA.query(query), sign=sign, values=values, given=np.ones(level.areas, bool))  # type: ignore[arg-type]
    levels = [*tree.levels]
    levels[place] = replace(level, known=(*level.known, fact))
    return replace(tree, levels=tuple(levels))


def test_contradictions_stop_with_all_of_them_in_words() -> None:
    tree, truth = people(1)
    total = truth[1].sum(axis=1, keepdims=True)
    with pytest.raises(PlanError) as caught:
        solved(limited(tree, 2, "total", ">=", np.full((6, 1), int(total.max()))))
    text = str(caught.value)
    assert "L1 '00' must hold at least" in text
    assert "(all records)" in text
    with pytest.raises(PlanError, match="must hold at least 7 and at most 0 \\(home ward, adult n\\)"):
        solved(limited(tree, 3, "home * adult", ">=", np.tile([[0, 0, 7, 0, 0, 0]], (30, 1))))


def test_the_failsafe_moves_as_little_as_it_must_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, truth = people(4, facts=False)
    # Leaves of the first area can hold no hall at all, and their parents put two people there.
    most = np.full((30, 3), NO_BOUND)
    most[:5, 2] = 0
    tree = limited(tree, 3, "home", "<=", most)
    cells = np.arange(SCHEMA.size)
    held = truth[2].copy()
    held[0, 20:] = 0
    held[0, 21] = 2
    watched(
        monkeypatch, {c: (cells[row > 0], row[row > 0]) for c, row in zip(tree.levels[2].geocodes, held, strict=True)}
    )
    piece = solved(tree)
    event = next(each for each in piece.events if each.moves)
    assert (event.level, event.area, event.amount) == ("L3", "0000", 4)
    assert event.what == "the counts of this area were moved by 4 in all, so that its children can hold them"
    assert event.why == "no child admits anybody in 'home hall', and the parent holds 2 there"
    found = histograms(piece)
    assert found[3][:5].sum() == held[0].sum(), "the total stays"
    assert found[2][0, 20:].sum() == 0, "areas above follow from the leaves"
    assert found[2].sum() == found[3].sum() == found[0].sum()
    for _ in range(2):  # solved, and then taken from what was kept
        again = solved(tree, store=LevelStore(folder=tmp_path, mark="one"))
        assert again.events == piece.events
        assert all(map(np.array_equal, histograms(again), found))


def test_bounds_that_overlap_are_rounded_by_an_integer_program_and_kept() -> None:
    tree, truth = people(9, noise=3.0)
    race = answer(SCHEMA.query("race"), truth[2])
    tree = limited(tree, 2, "race", ">=", np.maximum(race - 1, 0))
    _, made = made_from(lambda: [limited(tree, 2, "race", "<=", race + 1)], SolveOptions(method=METHODS["default"]))
    assert made.certificate.passed, made.certificate.failures
    assert any(event.what.startswith("rounded by HiGHS") for event in made.events)


def test_the_total_of_a_group_of_areas_is_kept() -> None:
    tree, truth = people(10, fanout=(3, 2, 3), noise=5.0, facts=False)
    groups = (
        GroupTotal(level="L1", members=("00", "02"), value=int(truth[1][[0, 2]].sum())),
        GroupTotal(level="L1", members=("01",), value=int(truth[1][1].sum())),
    )
    for arm in METHODS.values():
        frame, made = made_from(lambda: [tree], SolveOptions(method=arm, groups=groups))
        assert made.certificate.passed, made.certificate.failures
        assert made.certificate.checks["L1: total of groups"] == 2
        assert frame["count"].sum() == truth[0].sum()


def test_an_unknown_level_or_nothing_measured_is_refused() -> None:
    tree, _ = people(1)
    with pytest.raises(PlanError, match="totals are given for the level 'L9'"):
        solved(tree, groups=(GroupTotal(level="L9", members=("x",), value=1),))
    bare = replace(tree, levels=tuple(replace(level, answers=()) for level in tree.levels))
    with pytest.raises(PlanError, match="there are no measurements"):
        solved(bare)


# ---- files, interruptions and the check -------------------------------------------------------------------


def test_files_are_written_checked_and_joined(tmp_path: Path) -> None:
    tree, truth = people(2, noise=2.0)
    made = make(
        Sharded(tree).shards,
        SolveOptions(method=METHODS["default"]),
        tmp_path,
        top=Sharded(tree).top(),
    )
    counts, persons = pl.read_parquet(tmp_path / "counts.parquet"), pl.read_parquet(tmp_path / "persons.parquet")
    assert counts.columns == ["geocode", "home", "adult", "race", "count"]
    assert persons.height == counts["count"].sum() == truth[0].sum()
    assert (
        persons.group_by("geocode", "home", "adult", "race")
        .len(name="count")
        .sort(pl.all())
        .equals(counts.cast({"count": pl.UInt32}).sort(pl.all()))
    )
    assert '"passed": true' in (tmp_path / "certificate.json").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "certificate.json",
        "counts.parquet",
        "persons.parquet",
    ]
    assert made.facts()["events"] == []


class StoppedError(Exception):
    """Somebody stopped the run."""


def test_an_interrupted_run_goes_on_where_it_stopped_and_ends_the_same(tmp_path: Path) -> None:
    tree, _ = people(11, noise=3.0)
    whole = histograms(solved(tree))

    def stop(stage: str, done: int, of: int) -> None:
        if stage == "L3":
            raise StoppedError

    with pytest.raises(StoppedError):
        solved(tree, store=LevelStore(folder=tmp_path, mark="one"), progress=stop)
    assert len([*tmp_path.glob("*.npz")]) == 3
    told: list[str] = []
    again = solved(tree, store=LevelStore(folder=tmp_path, mark="one"), progress=lambda stage, *_: told.append(stage))
    assert {*told} == {"L3"}
    assert all(map(np.array_equal, histograms(again), whole))
    told.clear()
    solved(tree, store=LevelStore(folder=tmp_path, mark="other noise"), progress=lambda stage, *_: told.append(stage))
    assert "L1" in told, "what other measurements left is not taken"
    for path in tmp_path.glob("*.npz"):
        path.write_bytes(path.read_bytes()[:100])
    again = solved(tree, store=LevelStore(folder=tmp_path, mark="one"))
    assert all(map(np.array_equal, histograms(again), whole)), "what is damaged is solved again"


def checked(tree: Tree, frame: pl.DataFrame, **more: Any) -> Certificate:
    certificate = Certificate()
    check_tree(tree, read_counts(frame, tree.schema, tree.levels[-1].geocodes, certificate), certificate, **more)
    return certificate


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"count": 0}, "a count is 0"),
        ({"geocode": "nowhere"}, "there is no leaf 'nowhere'"),
        ({"home": "tent"}, "home has no code 'tent'"),
        ({"home": "ward", "adult": "n", "count": 1}, "home * adult, cell 2, is 1 and must be <= 0"),
        ({"count": 1000}, "total, cell 0, is"),
    ],
)
def test_the_check_finds_what_is_wrong(change: Mapping[str, Any], said: str) -> None:
    tree, _ = people(12, noise=2.0)
    frame, made = made_from(lambda: [tree], SolveOptions(method=METHODS["default"]))
    assert checked(tree, frame).passed
    rows = frame.to_dicts()
    rows[0] = {**rows[0], **change}
    certificate = checked(tree, pl.DataFrame(rows, schema=frame.schema))
    assert not certificate.passed
    assert any(said in text for text in certificate.failures), certificate.failures
    twice = checked(tree, pl.concat([frame, frame[:1]]))
    assert "a cell of an area stands twice" in twice.failures
    assert "counts are not whole numbers" in checked(tree, frame.cast({"count": pl.Float64})).failures
    assert made.certificate.facts()["failed"] == 0


def test_the_check_compares_leaves_with_what_was_decided_above_them() -> None:
    tree, _ = people(13, noise=2.0, facts=False)
    piece = solved(tree)
    decided, leaves = piece.levels, piece.levels[-1].frame(tree.schema, tree.levels[-1].geocodes)
    assert checked(tree, leaves, decided=decided).passed
    rows = leaves.to_dicts()
    rows[0]["count"] += 1
    certificate = checked(tree, pl.DataFrame(rows, schema=leaves.schema), decided=decided)
    assert any("is not the sum of its leaves" in text for text in certificate.failures)
