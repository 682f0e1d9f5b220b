"""Households of a national file are read column by column: what is released, refused and checked stays the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.data import columns, microdata
from stirred.data.columns import ParquetColumns
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.records.files import SwappedFile
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from stirred.spec.problems import StirredError
from tests.release.test_verify import content, in_parts
from tests.world import households, persons

Patch = pytest.MonkeyPatch
Tables = tuple[pl.DataFrame, pl.DataFrame]
__all__ = ["in_parts"]

HOMES = households(240)
PEOPLE = persons(HOMES)


def by_column(patch: Patch) -> None:
    patch.setattr(microdata, "_LARGE_FILE", -2)
    patch.setattr(columns, "_PIECE", 50)


def write(folder: Path, tables: Tables) -> None:
    """Write the households into two parts, and the persons into one."""
    homes, people = tables
    (folder / "homes.parquet").mkdir()
    for number, part in enumerate((homes.head(100), homes.slice(100))):
        part.write_parquet(folder / "homes.parquet" / f"{number}.parquet")
    people.write_parquet(folder / "people.parquet")


def released(folder: Path, name: str, *, format_: str = "parquet", **more: Any) -> tuple[dict[str, bytes], Any]:
    """Release with a seed; return the bytes of all public files, and what the manifest tells of doubts and checks."""
    plan = {**content(format_=format_), **more}
    plan["release"] = {**plan["release"], "out": name}
    bundle = run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_seed("by column"))
    public = bundle / "public"
    found = {path.relative_to(public).as_posix(): path.read_bytes() for path in public.rglob("*") if path.is_file()}
    manifest = json.loads((bundle / "manifest.json").read_text())
    return found, [manifest[key] for key in ("doubts", "checks", "public_files", "records", "released")]


SHAPES: dict[str, tuple[Callable[[], Tables], dict[str, Any]]] = {
    "as it is": (lambda: (HOMES, PEOPLE), {}),
    "persons in another order": (lambda: (HOMES, PEOPLE.sample(fraction=1, shuffle=True, seed=1)), {}),
    "pieces of persons in another order": (lambda: (HOMES, pl.concat([*PEOPLE.iter_slices(50)][::-1])), {}),
    "persons repeat a column": (lambda: (HOMES, PEOPLE.join(HOMES.select("hid", "county"), on="hid")), {}),
    "ids far apart": (lambda: (_hid(HOMES, 10**12), _hid(PEOPLE, 10**12)), {}),
    "ids of another type": (lambda: (_hid(HOMES, 1, pl.UInt16), PEOPLE), {}),
    "ids that are text": (lambda: (_hid(HOMES, 1, pl.String), _hid(PEOPLE, 1, pl.String)), {}),
    "a missing value": (lambda: (HOMES.with_columns(tenure=pl.col("tenure").replace("rented", None)), PEOPLE), {}),
    "fractional numbers": (lambda: (HOMES.with_columns(rent=pl.col("hid") % 7 / 2), PEOPLE), {}),
    "categories": (lambda: (HOMES.with_columns(pl.col("county").cast(pl.Categorical)), PEOPLE), {}),
    "text with a point": (lambda: (HOMES.with_columns(size=pl.format("{}.0", "size")), PEOPLE), {}),
    "CSV": (lambda: (HOMES, PEOPLE), {"format_": "csv"}),
    "texts that are missing": (
        lambda: (HOMES, PEOPLE),
        {"data": {**content()["data"], "missing": ["West"], "missing_as": "code"}},
    ),
    "a step before": (
        lambda: (HOMES, PEOPLE),
        {"prepare": [{"step": "recode", "column": "tenure", "map": {"owned": "o"}, "keep": True}]},
    ),
}


def _hid(frame: pl.DataFrame, factor: int, kind: type[pl.DataType] = pl.Int64) -> pl.DataFrame:
    return frame.with_columns((pl.col("hid") * factor).cast(kind))


@pytest.mark.parametrize(("tables", "more"), SHAPES.values(), ids=SHAPES.keys())
def test_what_is_released_is_the_same_to_the_byte(
    tmp_path: Path, tables: Callable[[], Tables], more: dict[str, Any], monkeypatch: Patch
) -> None:
    write(tmp_path, tables())
    whole = released(tmp_path, "whole", **more)
    by_column(monkeypatch)
    assert released(tmp_path, "by-column", **more) == whole


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_and_so_is_a_long_file_in_parts(tmp_path: Path, format_: str, monkeypatch: Patch) -> None:
    write(tmp_path, (HOMES, PEOPLE))
    whole = released(tmp_path, "whole", format_=format_)
    by_column(monkeypatch)
    # A file that is known to be long is written as it is made, with the same parts.
    monkeypatch.setattr("stirred.mechanisms.records.files.ROWS_IN_ONE_FILE", 10)
    assert released(tmp_path, "by-column", format_=format_) == whole


@pytest.mark.usefixtures("in_parts")
def test_the_households_of_a_nation_are_never_read_as_a_whole(tmp_path: Path, monkeypatch: Patch) -> None:
    """What a frame can do beside giving a column reads all of them: nothing in a long release may ask for it."""
    write(tmp_path, (HOMES, PEOPLE))
    by_column(monkeypatch)
    monkeypatch.setattr("stirred.release.tables.ROWS_IN_ONE_FILE", 10)
    monkeypatch.setattr("stirred.data.uniqueness.MOST_RECORDS", 10)
    monkeypatch.setattr("stirred.mechanisms.records.files.MOST_PERSONS", 10)
    asked: list[str] = []

    def beside(self: ParquetColumns, name: str) -> Any:
        asked.append(name)
        raise AttributeError(name)

    monkeypatch.setattr(ParquetColumns, "__getattr__", beside)
    most: list[int] = []
    right = ParquetColumns.select

    def select(self: ParquetColumns, *names: Any) -> pl.DataFrame:
        frame = right(self, *names)
        most.append(frame.width)
        return frame

    monkeypatch.setattr(ParquetColumns, "select", select)
    released(tmp_path, "bundle")
    assert [name for name in asked if not name.startswith("__")] == []
    assert max(most, default=0) < HOMES.width
    assert most  # tables are counted from some of them: the watch was there


def broken(homes: pl.DataFrame, people: pl.DataFrame) -> Iterator[Tables]:
    yield pl.concat([homes, homes.head(1)]), people
    yield homes.head(-1), people
    yield homes, people.with_columns(hid=pl.when(pl.col("age") < 80).then("hid"))
    yield homes.drop("county"), people
    yield homes.with_columns(county=pl.col("county").replace("East", None)), people
    yield homes.with_columns(near=pl.col("county")), people


@pytest.mark.parametrize("case", range(6))
def test_what_is_refused_is_refused_in_the_same_words(tmp_path: Path, case: int, monkeypatch: Patch) -> None:
    write(tmp_path, [*broken(HOMES, PEOPLE)][case])
    said = []
    for _ in range(2):
        with pytest.raises(StirredError) as caught:
            released(tmp_path, "bundle")
        said.append([(problem.what, problem.where, problem.remedy) for problem in caught.value.problems])
        by_column(monkeypatch)
    assert said[0] == said[1]


@pytest.mark.parametrize("format_", ["parquet", "csv"])
@pytest.mark.parametrize("long", [False, True], ids=["one file", "parts"])
def test_a_held_column_that_differs_from_the_input_is_never_released(
    tmp_path: Path, format_: str, long: bool, monkeypatch: Patch, request: pytest.FixtureRequest
) -> None:
    """The file is what was made, and what was made is not the input: only the input itself can tell."""
    if long:
        request.getfixturevalue("in_parts")
    write(tmp_path, (HOMES, PEOPLE))
    by_column(monkeypatch)
    right = SwappedFile.households

    def wrong(self: SwappedFile) -> Iterator[pl.DataFrame]:
        yield from (part.with_columns(pl.col("tenure").reverse()) for part in right(self))

    monkeypatch.setattr(SwappedFile, "households", wrong)
    with pytest.raises(VerificationError) as caught:
        released(tmp_path, "bundle", format_=format_, tables=[])
    assert 'hold variable "tenure" differs from the input' in str(caught.value)


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("when", ["before the draw", "after the draw"])
def test_a_file_that_changes_under_way_is_never_released(tmp_path: Path, when: str, monkeypatch: Patch) -> None:
    """Every column is read when it is needed: the checks themselves would read the other file."""
    write(tmp_path, (HOMES, PEOPLE))
    by_column(monkeypatch)
    prepared = prepare(plan_from(content(), source="plan", folder=tmp_path))
    drawn = []

    def change() -> None:
        PEOPLE.with_columns(pl.col("age").reverse()).write_parquet(tmp_path / "people.parquet")

    def draw_key(*given: Any) -> Entropy:
        drawn.append(given)
        change()
        return Entropy.from_seed("changed")

    monkeypatch.setattr("stirred.release.run.draw_key", draw_key)
    if when == "before the draw":
        change()
    with pytest.raises(StirredError, match="the file of persons was changed since it was planned"):
        run(prepared, entropy=Entropy.from_seed("changed"))
    assert bool(drawn) == (when == "after the draw")
    assert not (tmp_path / "bundle").exists()
