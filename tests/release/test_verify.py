"""Faults of the swap, of the writing and of the storage: each is seen by the check that is there for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.cli.main import run as command
from stirred.data import frames
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.records import evidence as verification
from stirred.mechanisms.records import files as record_files
from stirred.mechanisms.records.files import SwappedFile
from stirred.mechanisms.records.kernels import partition
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.mechanisms.records.steps.response import ResponseSwap
from stirred.release import files
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from tests.world import households, listing, swap_plan, world

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    return world(tmp_path, people=True)


@pytest.fixture
def in_parts(monkeypatch: Patch) -> None:
    """Let 60 households be a file that is too long for one frame."""
    monkeypatch.setattr(record_files, "PART", 7)
    monkeypatch.setattr(frames, "ROWS_IN_ONE_FILE", 10)
    monkeypatch.setattr(files, "ROWS_IN_ONE_FILE", 10)
    monkeypatch.setattr(verification, "ROWS_IN_ONE_FILE", 10)
    monkeypatch.setattr(verification, "PERSONS_RELINKED", 0)


def content(*, format_: str = "parquet", **mechanism: Any) -> dict[str, Any]:
    tables = [("county", "tenure"), ("county", "age")]
    return swap_plan(people=True, tables=tables, release={"out": "bundle", "format": format_}, **mechanism)


def refused(folder: Path, plan: dict[str, Any]) -> str:
    """Run a plan that must fail its verification and leave nothing behind; return what it says."""
    before = listing(folder)
    with pytest.raises(VerificationError) as caught:
        run(prepare(plan_from(plan, source="plan", folder=folder)), entropy=Entropy.from_os())
    assert listing(folder) == before
    assert caught.value.exit_code == 1
    (problem,) = caught.value.problems
    assert "nothing was kept" in problem.remedy
    return problem.what


# ---- the swap is at fault: what was written is what was made, and still wrong ---------------------------


def ordered(change: Callable[[Any], Any]) -> Fault:
    def plant(patch: Patch) -> None:
        right = partition.release_order
        patch.setattr(partition, "release_order", lambda *args, **options: change(right(*args, **options)))

    return plant


def doubled(rows: Any) -> Any:
    return np.concatenate([rows[:1], rows[:-1]])


def exchanged(change: Callable[[Any], object]) -> Fault:
    """Let something happen to the swapped codes after the right exchange."""

    def plant(patch: Patch) -> None:
        right = PermutationSwap._exchange

        def exchange(self: PermutationSwap, plan: Any, swapped: Any, *rest: Any) -> Mapping[str, Any]:
            kept = right(self, plan, swapped, *rest)
            change(swapped)
            return kept

        patch.setattr(PermutationSwap, "_exchange", exchange)

    return plant


def to_another(swapped: Any) -> None:
    """Give one household a county that another household of its size would have to give up."""
    swapped[0] = (swapped[0] + 1) % 4


def across_strata(swapped: Any) -> None:
    """Exchange the counties of households of different sizes: the counties alone are as often as before."""
    other = next(row for row in range(1, swapped.size) if row % 3 and swapped[row] != swapped[0])
    swapped[0], swapped[other] = swapped[other], swapped[0]


def parts_of(name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Fault:
    """Let every part of the households or of the persons be made otherwise."""

    def plant(patch: Patch) -> None:
        right = getattr(SwappedFile, name)

        def parts(self: SwappedFile) -> Iterator[pl.DataFrame]:
            for part in right(self):
                yield change(part)

        patch.setattr(SwappedFile, name, parts)

    return plant


THE_SWAP: dict[str, tuple[Fault, str]] = {
    "a household twice and another lost": (ordered(doubled), "the released households are not those of the input"),
    "a household lost": (ordered(lambda rows: rows[:-1]), "the released households are not those of the input"),
    "an order by something else": (ordered(lambda rows: rows[::-1]), "the released order is not by released values"),
    "a county made up": (exchanged(to_another), "the match x swap table differs from the input"),
    "an exchange across strata": (exchanged(across_strata), "the match x swap table differs from the input"),
    "a person lost": (parts_of("persons", lambda part: part.head(-1)), "120 persons went in and 119 came out"),
}


@pytest.mark.parametrize("format_", ["parquet", "csv"])
@pytest.mark.parametrize(("fault", "what"), THE_SWAP.values(), ids=THE_SWAP.keys())
def test_a_wrong_swap_is_never_released(
    folder: Path, fault: Fault, what: str, format_: str, monkeypatch: Patch
) -> None:
    fault(monkeypatch)
    assert what in refused(folder, content(format_=format_))


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(("fault", "what"), THE_SWAP.values(), ids=THE_SWAP.keys())
def test_a_wrong_swap_is_never_released_in_parts(folder: Path, fault: Fault, what: str, monkeypatch: Patch) -> None:
    """Of a long file fewer things are checked; these are."""
    fault(monkeypatch)
    found = refused(folder, content())
    assert found == "120 persons went in and 111 came out" if "persons" in what else what in found


@pytest.mark.usefixtures("in_parts")
def test_households_lost_from_parts_are_never_released(folder: Path, monkeypatch: Patch) -> None:
    """The order has all of them, and the written parts are as they were made: only their number tells."""
    plan = content()
    del plan["data"]["persons"], plan["data"]["hid"]
    plan["data"]["id"], plan["tables"] = ["hid"], []
    right = SwappedFile.households

    def all_but_the_last(self: SwappedFile) -> Iterator[pl.DataFrame]:
        yield from list(right(self))[:-1]

    monkeypatch.setattr(SwappedFile, "households", all_but_the_last)
    assert refused(folder, plan) == "60 households went in and 56 came out"


def test_the_command_names_the_failed_check_and_ends_with_1(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Patch
) -> None:
    before = listing(folder)
    exchanged(to_another)(monkeypatch)
    told = ["--match", "size", "--swap", "county", "--rate", "1/2", "--id", "hid", "--out", "out", "--quiet"]
    assert command(["swap", "homes.parquet", *told]) == 1
    assert "the match x swap table differs from the input" in capsys.readouterr().err
    assert listing(folder) == before


def test_an_imputed_record_that_was_swapped_is_never_released(folder: Path, monkeypatch: Patch) -> None:
    """Two imputed records of one size exchange their counties: every table of the invariants is as it was."""
    homes = households().with_columns(imputed=pl.int_range(60) % 2 == 0)
    homes.write_parquet(folder / "homes.parquet")
    flagged = homes["imputed"].to_numpy() & (homes["size"].to_numpy() == 1)

    def exchange_two(swapped: Any) -> None:
        one, *others = np.flatnonzero(flagged)
        other = next(row for row in others if swapped[row] != swapped[one])
        swapped[one], swapped[other] = swapped[other], swapped[one]

    exchanged(exchange_two)(monkeypatch)
    assert refused(folder, content(imputed="imputed")) == "an imputed record was swapped"


# ---- a response that does more than it may --------------------------------------------------------------


def answered(change: pl.Expr) -> Fault:
    """Let the response change something else too, after the right answers."""

    def plant(patch: Patch) -> None:
        right = ResponseSwap._before

        def before(self: ResponseSwap, data: Any, plan: Any, entropy: Any) -> Any:
            changed, swap = right(self, data, plan, entropy)
            return replace(changed, households=changed.households.with_columns(change)), swap

        patch.setattr(ResponseSwap, "_before", before)

    return plant


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (pl.col("hid").reverse(), 'the response changed more than "tenure"'),
        (pl.col("county").reverse(), 'the response changed more than "tenure"'),
        (pl.col("tenure") == "owned", 'the response changed the type of "tenure"'),
    ],
    ids=["the ids, so that persons change homes", "the swap variable", "the type of its own variable"],
)
def test_a_response_that_does_more_than_answer_is_never_released(
    folder: Path, change: pl.Expr, what: str, monkeypatch: Patch
) -> None:
    answered(change)(monkeypatch)
    response: dict[str, Any] = {
        "name": "response-swap",
        "respond": "tenure",
        "values": ["owned", "rented"],
        "change": "1/5",
    }
    assert refused(folder, content(**response)) == what


# ---- the writing or the storage is at fault ---------------------------------------------------------------


def one_more(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("count") + (pl.int_range(pl.len()) == 0).cast(pl.Int64))


@pytest.mark.parametrize("change", [one_more, lambda frame: frame.head(-1)], ids=["a count", "a cell less"])
@pytest.mark.parametrize("table", ["county-x-tenure", "county-x-age"])
def test_a_written_table_that_is_not_of_the_released_file_is_never_released(
    folder: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame], monkeypatch: Patch
) -> None:
    right = frames.write_frame

    def write(frame: pl.DataFrame, path: Path, **more: Any) -> None:
        right(change(frame) if path.stem == table else frame, path, **more)

    monkeypatch.setattr(files, "write_frame", write)
    told = f"the table {table.replace('-', ' ')}, as written, is not that of the released file"
    assert refused(folder, content()) == told


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("name", ["data", "persons"])
def test_a_part_that_is_missing_on_disk_destroys_the_bundle(folder: Path, name: str, monkeypatch: Patch) -> None:
    right = frames.write_parts

    def write(parts: Iterator[pl.DataFrame], path: Path, **more: Any) -> None:
        right(parts, path, **more)
        if path.stem == name:
            max(path.iterdir()).unlink()

    monkeypatch.setattr(files, "write_parts", write)
    assert refused(folder, content()) == f"a part of {name} is missing"


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_a_part_in_which_nobody_lives_is_released_like_any_other(folder: Path, format_: str) -> None:
    """It failed after the draw: a file without records was taken for a damaged one."""
    people = pl.read_parquet(folder / "people.parquet")
    people.head(11).write_parquet(folder / "people.parquet")
    bundle = run(
        prepare(plan_from(content(format_=format_), source="plan", folder=folder)), entropy=Entropy.from_seed("parts")
    )
    parts = sorted((bundle / "public" / f"persons.{format_}").iterdir())
    rows = [frames.read_frame(part, empty=True).height for part in parts]
    assert 0 in rows
    assert sum(rows) == 11
