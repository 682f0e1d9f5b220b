"""Areas: how they nest, which are bypassed, and where the records of each are."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.data.problems import DataError
from stirred.mechanisms.topdown.budget import Shares
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema
from stirred.mechanisms.topdown.hierarchy.tree import Counts
from stirred.mechanisms.topdown.spine import BYPASSED, Spine
from tests.mechanisms.topdown.hierarchies import answer, summed_up
from tests.mechanisms.topdown.people import CODES, LEVELS, people, topdown, wards

NAMES = ["all", *LEVELS]


def spine(areas: pl.DataFrame | None = None, **more: Any) -> Spine:
    return Spine.of_columns(wards() if areas is None else areas, LEVELS, names=NAMES, **more)


def carried(found: Spine, *, idle: frozenset[int] = frozenset()) -> list[list[int]]:
    """Return for each area since which level it has the budget."""
    return [found.carried(depth, range(found.areas(depth)), idle=idle).tolist() for depth in range(found.depth)]


def test_geocodes_of_children_begin_with_that_of_their_parent_and_are_in_order() -> None:
    found = spine()
    assert [len(codes) for codes in found.geocodes] == [1, 4, 12, 45]
    for depth in range(1, 4):
        codes, above = found.geocodes[depth].to_list(), found.geocodes[depth - 1].to_list()
        assert codes == sorted(codes)
        assert all(code.startswith(above[p]) for code, p in zip(codes, found.parents[depth].tolist(), strict=True))
        assert len({*map(len, codes)}) == 1


def test_numbers_are_filled_with_zeros_and_texts_with_underscores() -> None:
    areas = pl.DataFrame({"region": ["N", "South"], "district": ["7", "12"], "ward": ["1", "01"]})
    assert spine(areas).geocodes[3].to_list() == ["N____071_", "South1201"], "1 and 01 stay different"
    codes = Spine.of_columns(areas, ["region", "district"], names=["all", "region", "district"]).geocodes[2]
    assert codes.to_list() == ["N____07", "South12"]
    alike = pl.DataFrame({"region": ["N", "N_"]})
    with pytest.raises(DataError, match="codes become the same where underscores fill them up"):
        Spine.of_columns(alike, ["region"], names=["all", "region"])


def test_an_area_without_a_code_is_refused() -> None:
    areas = wards().with_columns(ward=pl.when(pl.col("region") == "N").then(pl.col("ward")))
    with pytest.raises(DataError, match='"ward" is missing in some areas'):
        spine(areas)


def test_geocodes_nest_by_their_first_letters_as_in_published_files() -> None:
    codes = [f"0{state}{county}{block:04d}" for state in "12" for county in "345" for block in range(3)]
    blocks = pl.DataFrame({"geocode": codes})
    found = Spine.of_geocodes(blocks, "geocode", widths=[2, 3, 7], names=["US", "State", "County", "Block"])
    assert found.geocodes[1].to_list() == ["01", "02"]
    assert found.parents[2].tolist() == [0, 0, 0, 1, 1, 1]
    short = pl.DataFrame({"geocode": [*codes, "01"]})
    with pytest.raises(DataError, match="1 geocodes do not have 7 letters"):
        Spine.of_geocodes(short, "geocode", widths=[2, 3, 7], names=["US", "State", "County", "Block"])


def test_an_only_child_carries_the_budget_of_the_bypassed_areas_above_it() -> None:
    one = pl.DataFrame({"region": ["N", "N", "S", "S", "S"], "district": [1, 1, 1, 1, 2], "ward": [1, 2, 1, 2, 1]})
    found = spine(one)
    # North has one district, which carries its region's budget; district 2 of the south has one ward.
    assert [each.tolist() for each in found.bypassed] == [[False], [True, False], [False, False, True], [False] * 5]
    assert carried(found) == [[0], [BYPASSED, 1], [1, 2, BYPASSED], [3, 3, 3, 3, 2]]
    assert not any(each.any() for each in spine(one, bypass=False).bypassed)


def test_a_chain_of_only_children_hands_the_whole_budget_to_the_leaf() -> None:
    found = spine(pl.DataFrame({"region": ["N"], "district": [1], "ward": [1]}))
    assert [each.tolist() for each in found.bypassed] == [[True], [True], [True], [False]]
    assert carried(found)[3] == [0]
    # Nothing is measured in wards: the district keeps what it has.
    assert carried(found, idle=frozenset({3})) == [[BYPASSED], [BYPASSED], [0], [3]]


def test_a_level_without_queries_passes_the_budget_of_bypassed_areas_on() -> None:
    wards = pl.DataFrame({"region": ["N", "N", "S", "S"], "district": [1, 1, 1, 2], "ward": [1, 2, 1, 1]})
    # North leaves its budget to its district, and that to both wards: without queries it would be lost.
    assert carried(spine(wards), idle=frozenset({2}))[3] == [1, 1, 2, 2]


@given(
    st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=12),
    st.sets(st.integers(0, 3), max_size=3),
)
def test_every_path_spends_the_whole_budget_whatever_is_bypassed_or_not_measured(
    rows: list[tuple[int, ...]], idle: set[int]
) -> None:
    found = spine(pl.DataFrame(rows, schema=["region", "district", "ward"], orient="row"))
    table = {"detailed": {name: "1" for depth, name in enumerate(found.names) if depth not in idle}}
    own = [n for n in range(4) if n not in idle]
    levels = {name: f"{n in own:d}/{len(own)}" for n, name in enumerate(found.names)}
    shares = Shares.read({"rho": 1, "levels": levels, "queries": table})
    assert shares.idle == idle
    since, paths = carried(found, idle=shares.idle), []
    for leaf in range(found.areas(3)):
        spent, places = list[Fraction](), [leaf]
        for depth in range(3, -1, -1):
            first = since[depth][places[0]]
            rho = (
                Fraction(0)
                if first == BYPASSED
                else shares.of_query(found.names[depth], "detailed", since=NAMES[first])
            )
            spent.insert(0, rho)
            places.insert(0, int(found.parents[depth][places[0]]))
        paths.append((places[1:], spent))
        assert sum(spent) == 1
    left = [name for name, some in zip(NAMES, found.bypassed, strict=True) if some.any()]
    schema = Schema(name="s", attributes=(Attribute(name="a", codes=("0", "1")),))
    costs = {each.what: each.rho for each in shares.certificate(schema, bypassed=left)}
    for (one, spent), (two, other) in product(paths, paths):
        # A move changes one count in every area of both paths that is not in both.
        moved = sum(spent[d] + other[d] for d in range(4) if one[d] != two[d]) / 2
        for depth in range(3):
            if one[depth] == two[depth]:
                assert moved <= costs[f"ward within {NAMES[depth]}"]


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=25))
def test_the_areas_inside_an_area_are_those_whose_geocodes_begin_with_its_own(rows: list[tuple[int, ...]]) -> None:
    found = spine(pl.DataFrame(rows, schema=LEVELS, orient="row"))
    for depth in range(4):
        for area, code in enumerate(found.geocodes[depth].to_list()):
            for level in range(depth, 4):
                inside = [found.geocodes[level][place] for place in found.within(depth, area, level)]
                assert inside == [each for each in found.geocodes[level].to_list() if each.startswith(code)]


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3, st.integers(0, 5)), min_size=1, max_size=40))
def test_answers_counted_from_sorted_records_are_those_of_dense_histograms(rows: list[tuple[int, ...]]) -> None:
    records = pl.DataFrame(rows, schema=[*LEVELS, "cell"], orient="row")
    found = spine(records.select(LEVELS))
    a, b = Attribute(name="a", codes=("0", "1")), Attribute(name="b", codes=("x", "y", "z"), groupings={"g": (0, 1, 1)})
    schema = Schema(name="toy", attributes=(a, b))
    leaf = found.leaf_of(records, source="test")
    counts = Counts.of(leaf, records["cell"].cast(pl.Int32).to_numpy(), areas=found.areas(3))
    dense = np.zeros((found.areas(3), schema.size), dtype=np.int64)
    np.add.at(dense, (leaf, records["cell"].to_numpy()), 1)
    levels = [level for _, _, level in found.below(0, 0, 4)]
    for depth, histograms in enumerate(summed_up(dense, levels)):
        for name in ("total", "a", "g", "a * g", "b", "detailed"):
            query = schema.query(name)
            middle = found.areas(depth) // 2
            halves = (range(middle), range(middle, found.areas(depth)))
            pieces = [found.counts(counts, depth, half).answers(query) for half in halves]
            assert np.array_equal(np.concatenate(pieces), answer(query, histograms)), name


def test_records_of_unknown_areas_are_refused_with_their_rows() -> None:
    lost = people(20).with_columns(ward=pl.when(pl.int_range(20) == 4).then(99).otherwise(pl.col("ward")))
    with pytest.raises(DataError, match=r"records lie in areas that are not in the list, such as .* 99 \(1 row: 5\)"):
        spine().leaf_of(lost, source="people.csv")


def test_codes_of_areas_are_found_whatever_type_the_file_has() -> None:
    texts = people(50).with_columns(pl.col("ward").cast(pl.String))
    numbers = people(50)
    assert np.array_equal(spine().leaf_of(texts, source="a"), spine().leaf_of(numbers, source="b"))


def test_a_published_list_of_areas_gives_the_same_spine_and_a_broken_one_is_refused() -> None:
    found = spine()
    table = pl.concat([*found.frames()])
    for again in (Spine.of_list(table, names=NAMES), Spine.of_list(table.sample(fraction=1, shuffle=True, seed=1))):
        assert again.names == found.names
        assert all(np.array_equal(a, b) for a, b in zip(found.parents, again.parents, strict=True))
        assert carried(found) == carried(again)
    other = pl.lit(table.filter(geolevel="district")["geocode"][-1])
    moved = table.filter(geolevel="ward").head(1).with_columns(parent=other)
    for broken, message in [
        (table.filter(pl.col("geocode") != "N"), "is not in region, or is not its only one"),
        (table.filter(pl.col("geolevel") != "ward"), "it has no ward"),
        (pl.concat([table, moved]), "is not in district, or is not its only one"),
    ]:
        with pytest.raises(DataError, match=message):
            Spine.of_list(broken, names=NAMES)


def test_shards_are_counties_in_the_nation_and_the_whole_where_it_is_not_deep() -> None:
    def depth(levels: int) -> int:
        names = [f"l{n}" for n in range(levels)]
        areas = pl.DataFrame({name: ["1"] for name in names[1:]})
        return Spine.of_columns(areas, names[1:], names=names).shard_depth

    assert [depth(levels) for levels in (2, 3, 4, 5, 6, 8)] == [0, 0, 1, 2, 2, 2]


def test_areas_where_nobody_lives_are_measured_and_without_a_list_a_doubt_refuses() -> None:
    plan = topdown().plan(people())
    assert plan.spine.areas(3) == 45
    assert not plan.doubts
    read_off = topdown(area_list=None).plan(people())
    assert [doubt.name for doubt in read_off.doubts] == ["areas-from-file"]
    assert read_off.doubts[0].refuses
    assert read_off.spine.areas(3) == 44, "the last ward has nobody"
    assert {*CODES} == {*plan.parts[0].schema.names}
    assert all(a < b for a, b in pairwise(plan.spine.geocodes[3].to_list()))


def test_codes_that_begin_with_the_code_of_their_parent_are_not_written_twice() -> None:
    wards = pl.DataFrame({"region": ["R0", "R0", "R1"], "ward": ["R0W1", "R0W2", "R1W1"]})
    nested = Spine.of_columns(wards, ["region", "ward"], names=["all", "region", "ward"])
    assert nested.geocodes[2].to_list() == ["R0W1", "R0W2", "R1W1"]
    other = Spine.of_columns(
        wards.with_columns(ward=pl.Series(["R0W1", "W2", "R1W1"])), ["region", "ward"], names=["all", "region", "ward"]
    )
    assert other.geocodes[2].to_list() == ["R0R0W1", "R0W2__", "R1R1W1"]
