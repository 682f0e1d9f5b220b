"""Codebooks in a release, choices of match and swap, frames of other libraries, and faults in parts."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.cli.main import run as command
from stirred.data import frames
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.records import evidence as verification
from stirred.mechanisms.records import files as record_files
from stirred.release import files
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from tests.world import released, swap_plan

CODEBOOK = """
[codebook]
title = "homes"
[[variables]]
name = "county"
file = "households"
type = "code"
codes = { A = "north", B = "south" }
[[variables]]
name = "size"
file = "households"
type = "integer"
min = 1
max = 9
[[variables]]
name = "tenure"
file = "households"
type = "code"
codes = { o = "owned", r = "rented" }
[[variables]]
name = "parcel"
file = "households"
type = "id"
[[variables]]
name = "age"
file = "persons"
type = "integer"
min = 0
max = 120
[link]
hid = "hid"
id = ["ssn"]
"""


def homes(n: int = 40) -> pl.DataFrame:
    rows = range(n)
    return pl.DataFrame(
        {
            "hid": [100 + i for i in rows],
            "county": ["AB"[i % 2] for i in rows],
            "size": [1 + i % 3 for i in rows],
            "tenure": ["or"[i % 5 % 2] for i in rows],
            "parcel": [f"p{i}" for i in rows],
        }
    )


def people(n: int = 40) -> pl.DataFrame:
    rows = [(100 + i, f"s{i}-{j}", (7 * i + j) % 90) for i in range(n) for j in range(1 + i % 3)]
    return pl.DataFrame(rows, schema=["hid", "ssn", "age"], orient="row")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    homes().write_parquet(tmp_path / "homes.parquet")
    people().write_parquet(tmp_path / "people.parquet")
    (tmp_path / "codebook.toml").write_text(CODEBOOK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(**data: str) -> dict[str, object]:
    made = swap_plan(tables=[("county", "age")], release={"out": "bundle"})
    return {**made, "data": {"households": "homes.parquet", "persons": "people.parquet", **data}}


def test_identifiers_of_the_codebook_are_never_released(folder: Path) -> None:
    bundle = released(folder, plan(codebook="codebook.toml"))
    assert pl.read_parquet(bundle / "public/data.parquet").columns == ["hid", "county", "size", "tenure"]
    assert pl.read_parquet(bundle / "public/persons.parquet").columns == ["hid", "county", "age"]


def test_the_command_obeys_the_codebook(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--match", "size", "--swap", "county", "--rate", "1/2", "--hid", "hid", "--out", "out"]
    assert command(["swap", "homes.parquet", *options, "--codebook", "nowhere.toml"]) == 2
    assert "nowhere.toml" in capsys.readouterr().err
    homes().with_columns(county=pl.lit("C")).write_parquet(folder / "other.parquet")
    assert command(["swap", "other.parquet", *options, "--codebook", "codebook.toml"]) == 2
    assert "code C is not in the codebook" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_frames_of_other_libraries_come_back_as_they_were() -> None:
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2", hold=["tenure"])
    frame = homes()
    assert type(swap.release(frame.to_pandas(), Entropy.from_os()).public["data"]).__name__ == "DataFrame"
    assert "pandas" in type(swap.release(frame.to_pandas(), Entropy.from_os()).public["data"]).__module__
    assert "pyarrow" in type(swap.release(frame.to_arrow(), Entropy.from_os()).public["data"]).__module__
    assert isinstance(swap.release(frame.lazy(), Entropy.from_os()).public["data"], pl.LazyFrame)
    data = Microdata(households=frame.to_pandas(), persons=people().to_arrow(), hid="hid", id=("parcel", "ssn"))
    whole = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    assert whole.release(data, Entropy.from_os()).public["persons"].height == people().height


INDEXED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a named column": (lambda frame: frame.set_index("parcel"), 'the index of the frame ("parcel") is no column'),
    "several columns": (
        lambda frame: frame.set_index(["hid", "parcel"]),
        'the index of the frame ("hid", "parcel") is no column',
    ),
    "labels without a name": (
        lambda frame: frame.set_axis([f"row {i}" for i in range(40)]),
        "the index of the frame is no column",
    ),
}


@pytest.mark.parametrize(("indexed", "told"), INDEXED.values(), ids=INDEXED.keys())
def test_the_index_of_a_pandas_frame_is_left_out_with_a_warning(indexed: Callable[[Any], Any], told: str) -> None:
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2", hold=["tenure"])
    frame = indexed(homes().to_pandas())
    with pytest.warns(UserWarning, match=re.escape(told)) as caught:
        released = swap.release(frame, Entropy.from_os()).public["data"]
    assert len(caught) == 1
    assert "pandas" in type(released).__module__
    assert list(released.index) == list(range(40))
    assert "parcel" not in released.columns


def test_row_numbers_left_by_a_filter_are_no_index_to_warn_of() -> None:
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2", hold=["tenure"])
    frame = homes().to_pandas()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(swap.release(frame[frame["size"] > 1], Entropy.from_os()).public["data"]) == 26


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_files, "PART", 7)
    monkeypatch.setattr(frames, "ROWS_IN_ONE_FILE", 10)
    monkeypatch.setattr(files, "ROWS_IN_ONE_FILE", 10)
    monkeypatch.setattr(verification, "ROWS_IN_ONE_FILE", 10)
    monkeypatch.setattr(verification, "PERSONS_RELINKED", 0)


@pytest.mark.usefixtures("in_parts")
def test_a_release_in_parts_has_every_household_and_person_once(folder: Path) -> None:
    bundle = released(folder, plan(hid="hid", codebook="codebook.toml"))
    assert len(list((bundle / "public/data.parquet").iterdir())) == 6
    data = frames.read_frame(bundle / "public/data.parquet")
    assert data["hid"].to_list() == list(range(1, 41))
    names = ["size", "tenure"]
    assert data.group_by(names).len().sort(names).equals(homes().group_by(names).len().sort(names))
    assert sorted(frames.read_frame(bundle / "public/persons.parquet")["age"]) == sorted(people()["age"])


def done_and_not(bundle: Path) -> tuple[list[str], list[str]]:
    """The checks that the manifest says were done, and those it says were not; the report must say the same."""
    checks = json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["checks"]
    report = (bundle / "public/report.html").read_text(encoding="utf-8")
    for check in checks:
        assert f"<td>{check['what']}</td>" in report
        assert f"<td>{check['result']}</td>" in report
        assert (check["cells"] > 0) == check["result"].startswith("identical to the ")
    done = [check["what"] for check in checks if check["cells"]]
    return done, [f"{check['what']}: {check['result']}" for check in checks if not check["cells"]]


BY_CODES = "match x swap table, counted anew by the codes of the values that were written"
HELD = ["all hold variables, record by record", "persons of every household, record by record"]
EXACT = [
    "invariants.parquet: match x swap, counted from the values of the input",
    "invariants.parquet: hold, counted from the values of the input",
    "strata.parquet: sizes, counted from the values of the input",
]
AGE = "table county x age, counted from the written file"


def test_a_release_says_what_was_checked(folder: Path) -> None:
    done, not_done = done_and_not(released(folder, plan(hid="hid", codebook="codebook.toml")))
    assert done == [BY_CODES, verification.RECOUNTED, *HELD, verification.RELINKED, AGE, *EXACT]
    assert not_done == []


@pytest.mark.usefixtures("in_parts")
def test_a_long_release_says_what_was_not_checked(folder: Path) -> None:
    done, not_done = done_and_not(released(folder, plan(hid="hid", codebook="codebook.toml")))
    assert done == [BY_CODES, *HELD]
    assert not_done == [
        f"{verification.RECOUNTED}: not done: there are more than 10 records",
        f"{verification.RELINKED}: not done: there are more than 0 persons",
        f"{AGE}: not done: there are more than 10 persons",
        *(f"{what}: not done: there are more than 10 records" for what in EXACT),
    ]


@pytest.mark.usefixtures("in_parts")
def test_a_release_in_csv_parts_can_be_swapped_again(folder: Path) -> None:
    content = plan(hid="hid", codebook="codebook.toml")
    content["release"] = {"out": "first", "format": "csv"}
    public = run(prepare(plan_from(content, source="plan", folder=folder)), entropy=Entropy.from_os()) / "public"
    assert len(list((public / "data.csv").iterdir())) == 6
    content["data"] = {"households": str(public / "data.csv"), "persons": str(public / "persons.csv"), "hid": "hid"}
    content["release"] = {"out": "second", "format": "csv"}
    again = run(prepare(plan_from(content, source="plan", folder=folder)), entropy=Entropy.from_os()) / "public"
    assert frames.read_frame(again / "data.csv").height == 40
    assert sorted(frames.read_frame(again / "persons.csv")["age"]) == sorted(people()["age"].cast(pl.String))


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_readme_names_the_files_that_are_folders_of_parts(
    ending: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    content = plan(hid="hid", codebook="codebook.toml")
    content["release"] = {"out": "short", "format": ending}
    short = run(prepare(plan_from(content, source="plan", folder=folder)), entropy=Entropy.from_os()) / "public"
    request.getfixturevalue("in_parts")
    content["release"] = {"out": "long", "format": ending}
    long = run(prepare(plan_from(content, source="plan", folder=folder)), entropy=Entropy.from_os()) / "public"
    assert "parts" not in (short / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in (long / "README.md").read_text(encoding="utf-8").splitlines() if "of parts" in line]
    folders = sorted(path.name for path in long.iterdir() if path.is_dir() and path.name != "tables")
    assert f"data.{ending}" in folders
    assert re.findall(r"`([^`]+\.[^`]+)`", line) == folders


def test_the_readme_names_persons_without_variables_of_their_own(folder: Path) -> None:
    people().select("hid").write_parquet(folder / "people.parquet")
    content = plan(hid="hid")
    content["tables"] = []
    content["release"] = {"out": "bundle", "accept": ["identifier:parcel"]}
    public = run(prepare(plan_from(content, source="plan", folder=folder)), entropy=Entropy.from_os()) / "public"
    assert (public / "persons.parquet").exists()
    assert "- `persons.parquet`: the persons in them" in (public / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("in_parts")
@pytest.mark.parametrize(
    ("fault", "what"),
    [
        ("persons stay where they were", "persons do not carry the swap values of their household"),
        ("old ids", "the household ids are not 1, 2, 3"),
        ("a part too many", "there are more parts of data than were written"),
    ],
)
def test_faults_in_parts_destroy_the_bundle(
    folder: Path, fault: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "persons stay where they were":
        right = record_files.SwappedFile.persons

        def persons(self: record_files.SwappedFile) -> Iterator[pl.DataFrame]:
            place = self.swap.levels.columns[0]
            for part in right(self):
                yield part.with_columns(pl.col(place).reverse())

        monkeypatch.setattr(record_files.SwappedFile, "persons", persons)
    elif fault == "old ids":
        plain = record_files.SwappedFile.households

        def households(self: record_files.SwappedFile) -> Iterator[pl.DataFrame]:
            for part in plain(self):
                yield part.with_columns((pl.col("hid") + 99).alias("hid"))

        monkeypatch.setattr(record_files.SwappedFile, "households", households)
    else:
        write = frames.write_parts

        def write_parts(parts: Iterator[pl.DataFrame], path: Path, **note: object) -> None:
            write(parts, path, **note)  # type: ignore[arg-type]
            if path.is_dir():
                first = path / "part-00000.parquet"
                (path / "part-99999.parquet").write_bytes(first.read_bytes())

        monkeypatch.setattr(files, "write_parts", write_parts)
    with pytest.raises(VerificationError, match=what):
        released(folder, plan(hid="hid", codebook="codebook.toml"))
    assert not (folder / "bundle").exists()
