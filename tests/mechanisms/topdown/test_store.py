"""The store: what was drawn is read back, changes to it are seen, and a second draw is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stirred.data.problems import DataError
from stirred.mechanisms.topdown import measurements as measuring
from stirred.mechanisms.topdown.measurements import JOURNAL, MeasurementStore, measure
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.randomness.entropy import Entropy
from tests.mechanisms.topdown.people import people, topdown


def drawn(
    folder: Path, mechanism: TopDown | None = None, *, count: int = 1_500, seed: str = "store"
) -> MeasurementStore:
    plan = (mechanism or topdown(totals=["region"])).plan(people(count))
    return measure(plan.parts[0], folder / "store", Entropy.from_seed(seed))


def test_the_trees_of_a_store_hold_what_its_published_rows_say(tmp_path: Path) -> None:
    store = drawn(tmp_path)
    rows = pl.concat([*store.published()])
    told = {(r["geolevel"], r["geocode"], r["query_name"]): r for r in rows.iter_rows(named=True)}
    top = store.top()
    assert top is not None
    assert top.names == ("all", "region")
    assert top.levels[1].answers == (), "a shard has its answers in its own tree"
    trees = [shard() for shard in store.shards()]
    assert [tree.levels[0].geocodes for tree in trees] == [(code,) for code in top.levels[1].geocodes]
    seen = 0
    for tree in (top, *trees):
        for level in tree.levels:
            for answers in level.answers:
                for code, values, variance in zip(level.geocodes, answers.values, answers.variance, strict=True):
                    row = told.get((level.name, code, f"{answers.query.name}_dpq"))
                    assert (row is None) == bool(np.isinf(variance))
                    if row is not None:
                        seen += 1
                        assert row["value"] == values.tolist()
                        assert row["variance"] == variance
                        assert row["query_shape"] == [*answers.query.shape]
                        assert tuple(row[name] for name in ("sex", "age", "work")) == answers.query.kept
    assert seen == rows.height == 45 * 3 + (12 - 1) * 3 + 4 * 3 + 2


def test_parents_in_a_tree_are_places_in_the_level_above(tmp_path: Path) -> None:
    store = drawn(tmp_path)
    top = store.top()
    assert top is not None
    for tree in (top, *(shard() for shard in store.shards())):
        for above, level in zip(tree.levels, tree.levels[1:], strict=False):
            for code, parent in zip(level.geocodes, level.parent.tolist(), strict=True):
                assert code.startswith(above.geocodes[parent])


def test_what_is_known_is_read_back_with_its_sign(tmp_path: Path) -> None:
    mechanism = topdown(totals=["region", "ward"], zeros=[{"age": ["0-17"], "work": ["yes"]}])
    grown = people().filter(pl.col("age") != "0-17")
    store = measure(mechanism.plan(grown).parts[0], tmp_path / "store", Entropy.from_seed(1))
    tree = next(store.shards())()
    total, zero = tree.levels[0].known
    assert (total.query.name, total.sign, total.values.tolist()) == ("total", "=", [[grown.filter(region="E").height]])
    assert (zero.query.name, zero.sign) == ("age * work", "<=")
    assert zero.values[0].tolist() == [0, *[np.iinfo(np.int32).max] * 5]
    assert [known.query.name for known in tree.levels[1].known] == ["age * work"]
    rows = pl.concat([*store.published("constraints")])
    assert rows.filter(query_name="total_con", geolevel="ward").height == 45
    assert rows.filter(query_name="age_work_0_con").height == 62
    assert rows.columns == ["geolevel", "geocode", "query_name", "sex", "age", "work", "query_shape", "value", "sign"]


def test_numbers_are_as_narrow_as_they_all_fit(tmp_path: Path) -> None:
    store = drawn(tmp_path, count=40_000)
    widths = {(e["level"], e["query"]): e["dtype"] for p in store.pieces for e in p["arrays"] if e["role"] == "answers"}
    assert widths["ward", "detailed"] == "<i2"
    known = [e for p in store.pieces for e in p["arrays"] if e["role"] == "known"]
    assert {e["dtype"] for e in known} == {"<i2"}
    wide = drawn(tmp_path / "wide", topdown(totals=["all"], levels=["ward"], queries=["sex"]), count=70_000)
    entry = next(e for p in wide.pieces for e in p["arrays"] if e["role"] == "known")
    assert entry["dtype"] == "<i4"
    assert next(wide.shards())().levels[0].known[0].values.tolist() == [[70_000]]


def test_the_noise_of_an_area_does_not_depend_on_how_the_work_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = pl.concat([*drawn(tmp_path / "a").published()])
    monkeypatch.setattr(measuring, "_NUMBERS", 7)
    monkeypatch.setattr(measuring, "_VALUES_IN_A_PART", 40)
    store = drawn(tmp_path / "b")
    parts = [*store.published()]
    assert len(parts) > 20
    assert max(part["value"].list.len().sum() for part in parts) <= 40
    assert pl.concat(parts).equals(whole)


def test_a_second_draw_into_a_store_is_refused_and_leaves_the_first(tmp_path: Path) -> None:
    first = drawn(tmp_path)
    before = pl.concat([*first.published()])
    with pytest.raises(DataError, match="noise was drawn into this store before, and a second draw would be a second"):
        drawn(tmp_path, seed="another")
    assert pl.concat([*MeasurementStore.open(tmp_path / "store").published()]).equals(before)


def test_a_draw_that_died_is_no_store_and_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, calls = measuring._arrays, []

    def dying(*given: object) -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return right(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(measuring, "_arrays", dying)
    with pytest.raises(KeyboardInterrupt):
        drawn(tmp_path)
    with pytest.raises(DataError, match="the draw was not finished"):
        MeasurementStore.open(tmp_path / "store")
    monkeypatch.setattr(measuring, "_arrays", right)
    with pytest.raises(DataError, match="noise was drawn into this store before"):
        drawn(tmp_path)


def test_every_changed_byte_of_a_store_is_seen(tmp_path: Path) -> None:
    store = drawn(tmp_path)
    assert store.check() == sum(len(piece["arrays"]) for piece in store.pieces)
    place = store.folder / "00002.bin"
    kept = place.read_bytes()
    entry = store.pieces[2]["arrays"][-1]
    changed = bytearray(kept)
    changed[entry["offset"]] ^= 1
    place.write_bytes(changed)
    with pytest.raises(DataError, match=r"00002\.bin is not as it was written"):
        store.check()
    place.write_bytes(kept[:40])
    with pytest.raises(DataError, match=r"00002\.bin is missing or too short"):
        [shard() for shard in store.shards()]
    place.unlink()
    with pytest.raises(DataError, match=r"00002\.bin is missing"):
        store.check()
    with pytest.raises(DataError, match=r"00002\.bin is missing or too short"):
        [shard() for shard in MeasurementStore.open(store.folder).shards()]


def test_a_changed_or_shortened_journal_is_refused(tmp_path: Path) -> None:
    store = drawn(tmp_path)
    journal = store.folder / JOURNAL
    lines = journal.read_text(encoding="utf-8").splitlines()
    header = json.loads(lines[0])
    header["budget"]["rho"] = "1"
    for changed, told in (
        ([json.dumps(header), *lines[1:]], "line 2 of its journal is not as it was written"),
        ([lines[0], *lines[2:]], "line 2 of its journal is not as it was written"),
        (["{}", *lines], "line 1 of its journal is not as it was written"),
        (lines[:-1], "the draw was not finished"),
    ):
        journal.write_text("\n".join(changed) + "\n", encoding="utf-8")
        with pytest.raises(DataError, match=told):
            MeasurementStore.open(store.folder)
    with pytest.raises(DataError, match="there is no measurement store here"):
        MeasurementStore.open(tmp_path)


def test_a_store_says_its_schema_budget_and_that_it_was_seeded(tmp_path: Path) -> None:
    store = drawn(tmp_path)
    assert store.schema.shape == (2, 3, 2)
    assert store.header["seeded"] is True
    assert store.header["budget"]["rho"] == "2"
    assert store.header["levels"] == ["all", "region", "district", "ward"]
    entry = next(e for e in store.pieces[1]["arrays"] if e["role"] == "answers" and e["level"] == "ward")
    assert entry["sigma2"] == {"0": "3/2", "1": "2/1", "2": "3/1", "3": "6/1"}
