"""Measurements in the published layout, traps included: estimates from files equal the dense solution in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.topdown import published as reader
from stirred.mechanisms.topdown.commands import HierarchyEstimateOptions, run_estimate
from stirred.mechanisms.topdown.hierarchy.schema import Attribute, Schema, shipped_schema
from stirred.mechanisms.topdown.hierarchy.tree import NO_BOUND, Answers, Constraint, GroupTotal, Level, Tree
from stirred.mechanisms.topdown.published import open_published
from stirred.randomness.cell_law import variance_of
from tests.mechanisms.topdown.dense import Dense
from tests.mechanisms.topdown.hierarchies import answer, random_tree
from tests.mechanisms.topdown.layout import (
    answer_rows,
    known_rows,
    write_codebook,
    write_file,
    write_folders,
    write_spine,
)

# The attributes of PL 94-171, with fewer codes: the dense solution takes fractions.
SMALL = Schema(
    name="small",
    attributes=(
        Attribute(name="hhgq", codes=("0", "1", "2", "3"), groupings={"hhinstlevels": (0, 1, 1, 2)}),
        Attribute(name="votingage", codes=("1", "2")),
        Attribute(name="cenrace", codes=("1", "2")),
    ),
)
BLOCKS = ("002001001" + "0" * 6 + "0020010010011000", "002001001" + "0" * 6 + "0020010010011001")
CODES = {
    "US": ("",),
    "State": ("002", "025", "102"),
    "County": ("002001001", "025001001", "102001001"),
    "Block": (*BLOCKS, "025001001" + "0" * 22, "102001001" + "0" * 22),
}
PARENTS = {"US": [0], "State": [0, 0, 0], "County": [0, 1, 2], "Block": [0, 0, 1, 2]}


def small_nation() -> tuple[Tree, list[GroupTotal]]:
    """Return a nation of two states, one of them in two parts."""
    rng = np.random.default_rng(5)
    counts = {"Block": rng.poisson(6, size=(4, SMALL.size))}
    nursing = SMALL.query("hhgq * votingage")
    counts["Block"][:, nursing.cell_of == 6] = 0  # hhgq 3, below voting age
    counts["Block"][:2, SMALL.query("hhgq").cell_of == 1] = 0
    for name, below in (("County", "Block"), ("State", "County"), ("US", "State")):
        counts[name] = np.zeros((len(CODES[name]), SMALL.size), dtype=np.int64)
        np.add.at(counts[name], PARENTS[below], counts[below])
    asked = {
        "US": ["hhgq", "detailed"],  # no total
        "State": ["total", "hhinstlevels", "cenrace"],
        "County": ["total", "hhgq * cenrace"],
        "Block": ["total", "detailed", "votingage * cenrace"],
    }
    # A county with a single child has no measurement; state 025 has none at all.
    without = {"State": [1], "County": [1, 2]}
    levels = []
    for name, codes in CODES.items():
        answers = []
        for number, query in enumerate(map(SMALL.query, asked[name])):
            variance = np.full(len(codes), np.float32(0.7 + number)).astype(np.float64)
            variance[without.get(name, [])] = np.inf
            values = answer(query, counts[name]) + rng.integers(-2, 3, size=(len(codes), query.size))
            answers.append(Answers(query=query, values=values, variance=variance))
        bound = np.where(answer(SMALL.query("hhgq"), counts[name]) == 0, 0, 99_999)
        barred = np.full((len(codes), nursing.size), NO_BOUND)
        barred[:, 6] = 0
        everywhere = np.ones(len(codes), dtype=np.bool_)
        known = [
            Constraint(query=SMALL.query("hhgq"), sign="<=", values=bound, given=everywhere),
            Constraint(query=SMALL.query("hhgq"), sign=">=", values=np.zeros_like(bound), given=everywhere),
            Constraint(query=nursing, sign="<=", values=barred, given=everywhere),
        ]
        parent = np.array(PARENTS[name], dtype=np.int64)
        levels.append(Level(name=name, geocodes=codes, parent=parent, answers=tuple(answers), known=tuple(known)))
    total = answer(SMALL.query("total"), counts["State"])[:, 0]
    groups = [
        GroupTotal(level="State", members=("002", "102"), value=int(total[0] + total[2])),
        GroupTotal(level="State", members=("025",), value=int(total[1])),
    ]
    return Tree(schema=SMALL, levels=tuple(levels)), groups


def as_published(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as the 2020 files have it: the nursing rule names one group, attributes are named by themselves."""
    if row["query_name"].startswith("hhgq * votingage"):
        one = {"query_name": "nurse_nva_0_con", "hhgq": "gqNursingTotal", "votingage": "nonvoting", "sign": "="}
        return {**row, **one, "query_shape": [1, 1, 1], "value": [0]}
    return {**row, "hhgq": "hhgq" if row["hhgq"] == "detailed" else row["hhgq"]}


@pytest.fixture(scope="module")
def nation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tree, list[GroupTotal]]:
    """Write the nation as folders by level, a state for each partition."""
    folder = tmp_path_factory.mktemp("nation")
    tree, groups = small_nation()
    root = folder / "US_Person_PL_PROD"
    number = 0
    for level in tree.levels:
        for kind, rows in (("DPQuery", answer_rows(SMALL, level)), ("Constraint", known_rows(SMALL, level))):
            for state in sorted({row["geocode"][:3] for row in rows}):
                own = [as_published(row) for row in rows if row["geocode"][:3] == state][::-1]
                place = root / f"{level.name}.parquet" / kind / (f"State={state}" if state else "")
                place.mkdir(parents=True, exist_ok=True)
                number += 1
                frame = pl.DataFrame(own, infer_schema_length=None).with_columns(
                    pl.col("value").cast(pl.List((pl.Int64, pl.Int32)[number % 2])),
                    pl.col("query_shape").cast(pl.List((pl.Int16, pl.Int64)[number % 2])),
                    plb=pl.lit("1/3"),
                )
                if kind == "DPQuery":
                    frame = frame.with_columns(pl.col("variance").cast(pl.Float32))
                frame.write_parquet(place / "part-00000-x.snappy.parquet")
                (place / "_SUCCESS").touch()
    write_codebook(SMALL, folder / "small.toml")
    pl.DataFrame({"geocode": ["02", "025"], "value": [each.value for each in groups]}).write_csv(folder / "totals.csv")
    return folder, tree, groups


def options_of(folder: Path, **more: Any) -> HierarchyEstimateOptions:
    """Return the options that all estimates of the nation have."""
    common = {"measurements": folder / "US_Person_PL_PROD", "totals": folder / "totals.csv"}
    return HierarchyEstimateOptions(
        **{**common, "schema_": str(folder / "small.toml"), "out": folder / "e.parquet", **more}
    )


@pytest.fixture(scope="module")
def solved(nation: tuple[Path, Tree, list[GroupTotal]]) -> tuple[Dense, list[Any], list[Any]]:
    """Return the dense solution, what is asked of it, and its answers."""
    _, tree, groups = nation
    dense = Dense(tree, groups)
    targets: list[Any] = []
    exact: list[Any] = []
    for name in ("total", "hhgq * votingage_dpq", "cenrace", "votingage * cenrace_dpq", "detailed"):
        query = SMALL.query(name)
        for height, level in enumerate(tree.levels):
            for place, code in enumerate(level.geocodes):
                for cell in range(query.size):
                    targets.append((level.name, code, name, cell))
                    exact.append(dense.estimate(dense.functional([(height, place)], query, cell)))
        for cell in range(query.size):
            targets.append((None, "town", name, cell))
            exact.append(dense.estimate(dense.functional([(3, 1), (2, 1)], query, cell)))
    return dense, targets, exact


@pytest.mark.parametrize("at_once", [1 << 25, 40])
def test_estimates_from_folders_equal_the_dense_solution(
    nation: tuple[Path, Tree, list[GroupTotal]],
    solved: tuple[Dense, list[Any], list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    at_once: int,
) -> None:
    folder, (dense, targets, exact) = nation[0], solved
    monkeypatch.setattr(reader, "_VALUES_AT_ONCE", at_once)
    pl.DataFrame({"area": ["town"] * 2, "geocode": [BLOCKS[1], "025001001"]}).write_csv(tmp_path / "areas.csv")
    columns = ["geolevel", "area", "query_name", "cell"]
    pl.DataFrame(targets, schema=columns, orient="row").write_csv(tmp_path / "targets.csv")
    options = options_of(folder, areas=tmp_path / "areas.csv", targets=tmp_path / "targets.csv", out=tmp_path / "e.csv")
    outcome = run_estimate(options)
    assert outcome.values["chi_squared"] == pytest.approx(float(dense.squares), rel=1e-7)
    assert outcome.values["degrees_of_freedom"] == dense.freedom
    found = pl.read_csv(tmp_path / "e.csv", schema_overrides={"area": pl.String})
    assert found.columns == [*columns, "estimate", "std_dev", "estimable"]
    for row, best in zip(found.iter_rows(named=True), exact, strict=True):
        assert row["estimable"] == (best is not None)
        if best is not None:
            assert row["estimate"] == pytest.approx(float(best[0]), rel=1e-9, abs=1e-9)
            assert row["std_dev"] == pytest.approx(sqrt(best[1]), rel=1e-9, abs=1e-9)
    assert found.filter(geolevel="US", query_name="total")["std_dev"].item() == 0
    assert found.filter(pl.col("area") == "town").height == 1 + 8 + 2 + 4 + 16


def test_all_queries_of_all_areas_are_written_without_targets(nation: tuple[Path, Tree, list[GroupTotal]]) -> None:
    folder, _, _ = nation
    outcome = run_estimate(options_of(folder))
    found = pl.read_parquet(folder / "e.parquet")
    names = ["total_dpq", "hhgq_dpq", "hhinstlevels_dpq", "cenrace_dpq", "hhgq * cenrace_dpq"]
    sizes = {**dict(zip(names, (1, 4, 3, 2, 8), strict=True)), "votingage * cenrace_dpq": 4, "detailed_dpq": 16}
    assert found.height == 11 * sum(sizes.values()) == outcome.values["rows"]
    assert {*found["query_name"]} == {*sizes}
    assert found["geolevel"].unique(maintain_order=True).to_list() == ["US", "State", "County", "Block"]
    assert outcome.values["spends"].startswith("nothing")
    assert len(outcome.values["sha256"]) == 64
    assert len(outcome.values["files"]) == 1 + len([*(folder / "US_Person_PL_PROD").rglob("*.parquet")]) - 4
    assert outcome.values["sha256"] == run_estimate(options_of(folder)).values["sha256"]


def test_one_file_equals_folders_and_a_spine_equals_prefixes(tmp_path: Path) -> None:
    tree, _, _ = random_tree(1)
    write_codebook(tree.schema, tmp_path / "schema.toml")
    write_file(tree, tmp_path / "m.parquet")
    write_folders(tree, tmp_path / "folders")
    write_spine(tree, tmp_path / "spine.csv")
    made = []
    for source in ("m.parquet", "folders"):
        options = HierarchyEstimateOptions(
            measurements=tmp_path / source,
            spine=tmp_path / "spine.csv",
            schema_=str(tmp_path / "schema.toml"),
            out=tmp_path / "e.parquet",
        )
        run_estimate(options)
        made.append(pl.read_parquet(tmp_path / "e.parquet").sort("geolevel", "area", "query_name", "cell"))
    assert made[0].height
    assert_frame_equal(made[0], made[1], abs_tol=1e-9)


# ---- rows ------------------------------------------------------------------------------------------------------


def one_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows of the small schema, each with what it does not say filled in."""
    total = {"hhgq": "*", "votingage": "*", "cenrace": "*", "query_shape": [1, 1, 1], "value": [7], "variance": 2.0}
    common = {"geolevel": "US", "geocode": "", "query_name": "total_dpq", **total, "sigma2": None, "sign": None}
    pl.DataFrame(
        [{**common, **row} for row in rows],
        infer_schema_length=None,
        schema_overrides={"sigma2": pl.String, "sign": pl.String},
    ).write_parquet(path)
    return path


def test_sigma2_wins_over_the_variance_and_is_that_of_discrete_noise(tmp_path: Path) -> None:
    path = one_file(tmp_path / "m.parquet", [{"sigma2": "1/4", "variance": 9.0}])
    (answers,) = open_published(path, schema=SMALL).tree().levels[0].answers
    assert answers.variance.tolist() == [float(variance_of(Fraction(1, 4)))]
    assert round(float(answers.variance[0]), 6) == 0.215013


def test_rows_without_information_leave_their_area_and_nothing_else(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {},
        {"geolevel": "State", "geocode": "001", "variance": None},
        {"geolevel": "State", "geocode": "002", "variance": np.inf, "value": [0]},
        {"geolevel": "State", "geocode": "003", "variance": np.nan, "value": [0]},
    ]
    tree = open_published(one_file(tmp_path / "m.parquet", rows), schema=SMALL).tree()
    assert tree.levels[1].geocodes == ("001", "002", "003")
    assert not tree.levels[1].answers


def test_a_row_without_noise_is_a_fixed_value(tmp_path: Path) -> None:
    tree = open_published(one_file(tmp_path / "m.parquet", [{"variance": 0.0}]), schema=SMALL).tree()
    (known,) = tree.levels[0].known
    assert (known.sign, known.values.tolist(), known.given.tolist()) == ("=", [[7]], [True])


def test_areas_that_only_their_parts_speak_of_are_added(tmp_path: Path) -> None:
    rows = [{"geolevel": "State", "geocode": "001"}, {"geolevel": "County", "geocode": "002000000"}]
    found = open_published(one_file(tmp_path / "m.parquet", rows), schema=SMALL)
    assert found.spine.names == ("", "State", "County")
    assert [own.to_list() for own in found.spine.geocodes] == [[""], ["001", "002"], ["002000000"]]


def test_an_area_without_rows_exists_if_a_spine_lists_it(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"value": [10]}, {"geolevel": "State", "geocode": "001", "value": [4]}]
    path = one_file(tmp_path / "m.parquet", rows)
    write_codebook(SMALL, tmp_path / "small.toml")
    options: dict[str, Any] = {"measurements": path, "schema_": str(tmp_path / "small.toml"), "out": tmp_path / "e.csv"}
    run_estimate(HierarchyEstimateOptions(**options))
    assert pl.read_csv(tmp_path / "e.csv")["estimate"].to_list() == pytest.approx([7, 7])
    (tmp_path / "t.csv").write_text("geolevel,area,query_name,cell\nstate,002,total,0\nstate,001,total,0\n")
    with pytest.raises(DataError, match=r'no cell 0 of it in state "002".*areas without rows exist'):
        run_estimate(HierarchyEstimateOptions(**options, targets=tmp_path / "t.csv"))
    (tmp_path / "spine.csv").write_text("geocode,geolevel,parent\n001,State,\n002,State,\n")
    run_estimate(HierarchyEstimateOptions(**options, targets=tmp_path / "t.csv", spine=tmp_path / "spine.csv"))
    found = pl.read_csv(tmp_path / "e.csv")
    assert found["estimate"].to_list() == pytest.approx([6, 4])
    assert (found["std_dev"] ** 2).to_list() == pytest.approx([4, 2])


def test_parts_that_only_rows_name_are_said_to_be_all_there_are(tmp_path: Path) -> None:
    """Of three counties with rows one is left out: without a list of areas nothing but the sums can tell."""
    counties: list[dict[str, Any]] = [
        {"geolevel": "County", "geocode": f"00100{n}", "value": [40 + n]} for n in range(3)
    ]
    states: list[dict[str, Any]] = [
        {"geolevel": "State", "geocode": "001", "value": [123]},
        {"geolevel": "State", "geocode": "002"},
    ]
    write_codebook(SMALL, tmp_path / "small.toml")
    (tmp_path / "spine.csv").write_text(
        "geocode,geolevel,parent\n001,State,\n002,State,\n"
        + "".join(f"{each['geocode']},County,001\n" for each in counties)
    )
    told = {}
    for name, kept in (("all", counties), ("some", counties[:2]), ("listed", counties[:2])):
        path = one_file(tmp_path / f"{name}.parquet", [*states, *kept])
        options: dict[str, Any] = {"schema_": str(tmp_path / "small.toml"), "out": tmp_path / f"{name}.csv"}
        if name == "listed":
            options["spine"] = tmp_path / "spine.csv"
        told[name] = run_estimate(HierarchyEstimateOptions(measurements=path, **options))
    assert [outcome.values["areas_named_by"] for outcome in told.values()] == ["rows", "rows", "spine"]
    assert "name them all with --spine" in dict(told["all"].rows)["parts"]
    assert "parts" not in dict(told["listed"].rows)
    assert told["some"].values["probability_of_more"] < 1e-6, "a part is missing"
    for name in ("all", "listed"):
        assert pl.read_csv(tmp_path / f"{name}.csv").filter(geolevel="State")["estimate"][0] == pytest.approx(123)


def test_constraints_of_every_area_name_them_all(nation: tuple[Path, Tree, list[GroupTotal]]) -> None:
    folder, _, _ = nation
    assert open_published(folder / "US_Person_PL_PROD", schema=SMALL).named_by == "constraints"


def test_a_tabulation_block_is_the_block_of_the_spine_that_ends_with_it(tmp_path: Path) -> None:
    rows = [{}, *({"geolevel": "Block", "geocode": code, "value": [4]} for code in BLOCKS)]
    found = open_published(one_file(tmp_path / "m.parquet", rows), schema=SMALL)
    assert found.block("0020010010011001") == BLOCKS[1]
    assert found.block("0020010010011009") == "0020010010011009"


def test_a_file_that_names_no_levels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    pl.DataFrame([{"geocode": "001", "query_name": "total", "value": [1], "variance": 1.0}]).write_parquet(path)
    with pytest.raises(DataError, match="rows have no geolevel"):
        open_published(path, schema=SMALL)


def test_zeros_among_fixed_values_need_not_tie_all_attributes_together(tmp_path: Path) -> None:
    """A whole histogram that is fixed has empty cells of all kinds: it is used as it is, with its race exchangeable."""
    schema = shipped_schema("pl94-persons")
    counts = np.zeros((1, schema.size), dtype=np.int64)
    counts[0, ::5] = 3
    detailed = schema.query("detailed")
    level = Level(
        name="Block",
        geocodes=("1",),
        parent=np.zeros(1, dtype=np.int64),
        answers=(Answers(query=detailed, values=counts + 1, variance=np.array([2.0])),),
        known=(Constraint(query=detailed, sign="=", values=counts, given=np.array([True])),),
    )
    write_file(Tree(schema=schema, levels=(level,)), tmp_path / "m.parquet")
    run_estimate(HierarchyEstimateOptions(measurements=tmp_path / "m.parquet", out=tmp_path / "e.parquet"))
    found = pl.read_parquet(tmp_path / "e.parquet")
    assert found["estimate"].to_list() == pytest.approx(counts[0].tolist(), abs=1e-9)
    assert found["std_dev"].max() == 0


def test_a_row_without_columns_of_attributes_is_read_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "m.parquet"
    row = {
        "geolevel": "US",
        "geocode": "",
        "query_name": "hhgq * cenrace_dpq",
        "value": list(range(8)),
        "variance": 1.0,
    }
    pl.DataFrame([row]).write_parquet(path)
    assert open_published(path, schema=SMALL).queries["hhgq * cenrace_dpq"].shape == (4, 1, 2)


BAD: dict[str, tuple[list[dict[str, Any]], str]] = {
    "sign": ([{"sign": "~"}], 'row 1: the sign "~" of total_dpq is not known'),
    "group": ([{}, {"query_name": "x_dpq", "hhgq": "races"}], 'row 2: x_dpq has "races" for hhgq'),
    "shape": (
        [{"query_shape": [4, 1, 1]}],
        "row 1: total_dpq has the shape 4x1x1, and in the schema small it has 1x1x1",
    ),
    "values": ([{"value": [1, 2]}], 'row 1: total_dpq of US "" has not 1 values'),
    "missing": ([{"value": [None]}], 'row 1: total_dpq of US "" has missing values'),
    "twice": ([{}, {}], 'row 1: total_dpq of US "" is measured twice in the same area'),
    "variance": ([{"variance": -1.0}], "row 1: variance -1 is not a variance"),
    "sigma2": ([{"sigma2": "1/0"}], "row 1: sigma2 1/0 is not a variance"),
    "level": ([{"geolevel": None}], "rows have no geolevel"),
    "bound": ([{}, {"query_name": "b", "value": [1, 2], "sign": "<="}], 'row 2: b of US "" has not 1 values'),
    "name": ([{"hhgq": None, "votingage": None, "cenrace": None, "query_name": "q"}], "row 1 query: 'q' asks for"),
    "uneven": ([{"geocode": "1"}, {"geocode": "12"}], "geocodes of US have 1 and 2 letters"),
    "same": (
        [{"geolevel": level, "geocode": code} for level, code in (("A", "1"), ("B", "2"))],
        "geocodes of A and B have the same length",
    ),
    "one group": ([{"query_name": "n", "hhgq": "gqNursingTotal"}], "n names one group and not the others"),
}


def read(path: Path) -> Tree:
    """Read a file as an estimate does."""
    published = open_published(path, schema=SMALL)
    published.model()
    return published.tree()


@pytest.mark.parametrize("name", [*BAD])
def test_bad_rows_are_refused_with_file_row_and_value(tmp_path: Path, name: str) -> None:
    rows, message = BAD[name]
    path = one_file(tmp_path / "m.parquet", rows)
    with pytest.raises(DataError) as error:
        read(path)
    assert message in str(error.value)


def test_bad_files_are_refused(tmp_path: Path, nation: tuple[Path, Tree, list[GroupTotal]]) -> None:
    folder, _, _ = nation
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("no")
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"geocode": ["1"], "query_name": ["q"], "value": [[1]]}).write_parquet(tmp_path / "b.parquet")
    for product in ("one", "two"):
        (tmp_path / "both" / product / "US.parquet").mkdir(parents=True)
        pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "both" / product / "US.parquet" / "0.parquet")
    for name, message in {
        "nowhere": "there is no such file or folder",
        "empty": "there is no Parquet file in it",
        "text.parquet": "it cannot be read",
        "a.parquet": 'it has no column "geocode", "query_name", "value"',
        "b.parquet": "rows have no geolevel",
        "both": 'there are several products: "one", "two"',
    }.items():
        with pytest.raises(DataError, match=message):
            open_published(tmp_path / name, schema=SMALL)
    with pytest.raises(DataError, match="has the shape 4x2x2"):
        run_estimate(options_of(folder, schema_="pl94-persons"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("geocode,value\n07,3\n", 'row 1: "07" is not in the measurements'),
        ("geocode,value\n02,many\n", "row 1: many is not a total of one level"),
        ("geocode,value,members\nx,3,002 025001001\n", "row 1: 3 is not a total of one level"),
        ("geocode\n02\n", 'it has no column "value"'),
    ],
)
def test_bad_totals_are_refused(
    nation: tuple[Path, Tree, list[GroupTotal]], tmp_path: Path, text: str, message: str
) -> None:
    folder, _, _ = nation
    (tmp_path / "totals.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        run_estimate(options_of(folder, totals=tmp_path / "totals.csv"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("geocode,geolevel,parent\n,US,\n001,State,\n", 'it does not list "State 002"'),
        ("geocode,geolevel,parent\n,US,\n001,State,\n002,State,x\n", 'the parent "x" of State "002" is not in US'),
        ("geocode,geolevel,parent\nq,US,\n001,State,y\n002,State,x\n", "are not one inside the other"),
    ],
)
def test_a_spine_that_does_not_hang_together_is_refused(tmp_path: Path, text: str, message: str) -> None:
    rows = [{"geolevel": "State", "geocode": code} for code in ("001", "002")]
    path = one_file(tmp_path / "m.parquet", rows)
    (tmp_path / "spine.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        open_published(path, schema=SMALL, spine=tmp_path / "spine.csv")


def test_targets_that_are_not_there_are_refused_all_at_once(
    nation: tuple[Path, Tree, list[GroupTotal]], tmp_path: Path
) -> None:
    folder, _, _ = nation
    text = "geolevel,area,query_name,cell\nState,07,total,0\nState,002,total,1\nState,002,income,0\n"
    (tmp_path / "targets.csv").write_text(text)
    with pytest.raises(DataError) as error:
        run_estimate(options_of(folder, targets=tmp_path / "targets.csv"))
    assert 'row 1: total: there is no cell 0 of it in State "07"' in str(error.value)
    assert "'income' asks for" in str(error.value)
    (tmp_path / "areas.csv").write_text(f"area,geocode\ntown,{BLOCKS[1]}\ntown,{BLOCKS[1][1:]}\n")
    with pytest.raises(PlanError, match=f'no area "{BLOCKS[1][1:]}".*did you mean "{BLOCKS[1]}".*if spine=? lists'):
        run_estimate(options_of(folder, areas=tmp_path / "areas.csv"))
    with pytest.raises(PlanError, match="there is no schema 'nothing'"):
        run_estimate(options_of(folder, schema_="nothing"))


def test_the_schema_of_the_2020_files_needs_no_file(tmp_path: Path) -> None:
    """Estimates of the whole PL 94-171 schema: a block of which the total is known."""
    schema = shipped_schema("pl94-persons")
    rng = np.random.default_rng(2)
    answers = tuple(
        Answers(query=query, values=rng.integers(0, 9, size=(1, query.size)), variance=np.array([float(2 + number)]))
        for number, query in enumerate(map(schema.query, ("total", "hhinstlevels", "hispanic * cenrace", "detailed")))
    )
    level = Level(name="Block", geocodes=("1",), parent=np.zeros(1, dtype=np.int64), answers=answers)
    write_file(Tree(schema=schema, levels=(level,)), tmp_path / "m.parquet")
    options = HierarchyEstimateOptions(measurements=tmp_path / "m.parquet", out=tmp_path / "e.parquet")
    outcome = run_estimate(options)
    assert outcome.values["rows"] == 1 + 3 + 126 + 2016
    assert outcome.values["degrees_of_freedom"] == 1 + 3 + 126
    found = pl.read_parquet(tmp_path / "e.parquet")
    total = found.filter(query_name="total_dpq")["estimate"].item()
    assert found.filter(query_name="detailed_dpq")["estimate"].sum() == pytest.approx(total)
