"""Folders as Spark writes them: what is a part, what folder names say, and what is refused; and ``file:`` addresses."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.bundle import checksum
from stirred.data.columns import Columns, ParquetColumns, row_ranges, schema_of
from stirred.data.frames import read_frame, read_given, scan_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError
from stirred.data.sources import Source
from stirred.release.plan_file import plan_from


def written(path: Path, **columns: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(path)
    return path


@pytest.fixture
def homes(tmp_path: Path) -> Path:
    """A table as Spark writes it by two columns, inside a folder whose own name must say nothing."""
    folder = tmp_path / "release=3"
    written(folder / "state=01" / "kind=a%2Fb" / "part-0.snappy.parquet", size=[1, 2])
    written(folder / "state=01" / "kind=a%2Fb" / "part-1.snappy.parquet", size=[3])
    written(folder / "state=01" / "kind=__HIVE_DEFAULT_PARTITION__" / "part-0.parquet", size=[4])
    written(folder / "state=1" / "kind=é" / "part-0.parquet", size=[5, 6])
    (folder / "_SUCCESS").touch()
    (folder / "state=01" / "kind=a%2Fb" / ".part-0.snappy.parquet.crc").write_bytes(b"crc")
    written(folder / "_temporary" / "0" / "part-9.parquet", size=[99])
    written(folder / "state=1" / "kind=é" / "_part-9.parquet", size=[99])
    written(folder / "state=1" / "kind=é" / ".part-9.parquet", size=[99])
    return folder


ROWS = [
    (4, "01", None),
    (1, "01", "a/b"),
    (2, "01", "a/b"),
    (3, "01", "a/b"),
    (5, "1", "é"),
    (6, "1", "é"),
]


def test_folder_names_become_columns_of_text_that_keep_their_zeros(homes: Path) -> None:
    frame = read_given(homes)
    assert frame.columns == ["size", "state", "kind"]
    assert frame.rows() == ROWS
    assert frame.schema["state"] == pl.String


def test_all_ways_of_reading_see_the_same_records(homes: Path) -> None:
    table = ParquetColumns(homes)
    assert table.height == len(ROWS)
    assert [*zip(*(table[name].to_list() for name in table.columns), strict=True)] == ROWS
    assert scan_frame(homes).select("kind", "size").collect().rows() == [(kind, size) for size, _, kind in ROWS]
    names = ["kind", "size", "state"]
    for most in (1, 2, 100):
        pieces = [*row_ranges([homes], most=most)]
        read = pl.concat([piece.read(schema_of(table, names)) for piece in pieces])
        assert read.equals(table.select(names))
        assert [row for piece in pieces for row in range(*piece.slice.indices(99))] == [*range(len(ROWS))]


def test_large_tables_in_folders_are_read_column_by_column(homes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.data.microdata._LARGE_FILE", 1000)
    table: Columns = Microdata.read(homes, by_column=True).households
    assert isinstance(table, ParquetColumns)
    assert table["state"].to_list() == [state for _, state, _ in ROWS]


def test_the_checksum_knows_folder_names_and_no_files_that_are_not_read(homes: Path) -> None:
    first = checksum(homes)
    (homes / "_SUCCESS").unlink()
    (homes / "state=1" / "kind=é" / "_part-9.parquet").unlink()
    assert checksum(homes) == first
    (homes / "state=1").rename(homes / "state=2")
    assert checksum(homes) != first


def test_a_plain_folder_keeps_the_checksum_that_ledgers_know(tmp_path: Path) -> None:
    written(tmp_path / "homes" / "a.parquet", size=[1])
    before = checksum(tmp_path / "homes")
    written(tmp_path / "homes" / "old" / "b.parquet", size=[1])
    assert checksum(tmp_path / "homes") == before
    assert read_frame(tmp_path / "homes").height == 1


@pytest.mark.parametrize(
    ("extra", "what"),
    [
        ("part-0.parquet", "its folders say"),
        ("state=2/part-0.parquet", "its folders say"),
        ("kind=a/state=2/part-0.parquet", "its folders say"),
        ("state=2/state=3/part-0.parquet", "two levels of folders are both called 'state'"),
        ("state=0/kind=a/part-0.csv", "of Parquet files .* and of CSV files"),
        ("late/part-0.parquet", "late: this folder has Parquet files, and its name is that of no column"),
        ("state=1/late/part-0.parquet", "late: this folder has Parquet files, and its name is that of no column"),
    ],
)
def test_folders_that_say_different_things_are_refused(extra: str, what: str, homes: Path) -> None:
    written(homes / extra, size=[1])
    with pytest.raises(DataError, match=what):
        read_frame(homes)


def test_a_column_in_files_and_in_folder_names_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "homes" / "size=1" / "part-0.parquet", size=[1])
    with pytest.raises(DataError, match=r'"size" is a column of the files and the name of folders \(such as size=1\)'):
        read_frame(tmp_path / "homes")


def test_text_files_in_such_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "state=1").mkdir()
    (tmp_path / "state=1" / "a.csv").write_text("size\n1\n")
    with pytest.raises(DataError, match="for Parquet files only"):
        read_frame(tmp_path)


def test_a_file_named_itself_has_no_more_columns(homes: Path) -> None:
    assert read_frame(homes / "state=1" / "kind=é" / "part-0.parquet").columns == ["size"]


# --- addresses ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begin", ["file://", "file:", "FILE://localhost"])
def test_a_file_address_is_the_path(begin: str, tmp_path: Path) -> None:
    path = written(tmp_path / "homes.parquet", size=[1])
    assert read_frame(f"{begin}{path}").rows() == [(1,)]
    assert read_frame(Path(f"file://{path}")).rows() == [(1,)]
    assert Source.of(f"{begin}{tmp_path}/a.duckdb#homes") == Source(tmp_path / "a.duckdb", "homes")


def test_files_of_another_machine_are_refused() -> None:
    with pytest.raises(DataError, match="'nas' would be another machine"):
        Source.of("file://nas/homes.parquet")


@pytest.mark.parametrize("address", ["s3a://lake/homes.parquet", "https://lake.example/homes.csv", "hdfs:///homes"])
def test_an_address_is_refused_as_what_it_is(address: str) -> None:
    with pytest.raises(DataError) as caught:
        read_frame(address)
    (problem,) = caught.value.problems
    assert f"({address.partition(':')[0]}://)" in problem.what
    assert "copy it to this machine" in problem.remedy


MECHANISM = {"swap": "county", "match": "size", "rate": "1/2"}


def plan_of(**data: str) -> dict[str, object]:
    return {"data": data, "mechanism": MECHANISM, "release": {"out": "bundle"}}


def test_a_plan_may_name_its_files_by_file_addresses(tmp_path: Path) -> None:
    found = plan_from(plan_of(households="file:///a.parquet", persons="file:/b"), source="plan", folder=tmp_path)
    assert (found.records, found.persons) == (Path("/a.parquet"), Path("/b"))


def test_an_address_in_a_plan_is_never_told_as_a_path(tmp_path: Path) -> None:
    found = plan_from(plan_of(households="hdfs:///homes"), source="plan.toml", folder=tmp_path)
    with pytest.raises(DataError, match=r"hdfs:///homes: this is an address \(hdfs://\)"):
        _ = found.records
    found = plan_from(plan_of(households="s3a://me:hunter2@lake/homes"), source="plan.toml", folder=tmp_path)
    with pytest.raises(DataError, match=r"s3a://...@lake/homes: this is an address"):
        _ = found.records


@pytest.mark.parametrize("key", ["codebook", "out"])
def test_addresses_where_a_path_is_needed_are_refused(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "homes.parquet", size=[1, 1, 2, 2] * 9, county=[*"abab"] * 9, tenure=[*"xxyyx"] * 7 + ["y"])
    data = {"households": "homes.parquet", **({"codebook": "s3a://lake/x"} if key == "codebook" else {})}
    sections = {"data": data, "mechanism": MECHANISM, "release": {"out": "s3a://lake/x" if key == "out" else "b"}}
    lines = [
        f"[{name}]\n" + "\n".join(f'{key} = "{text}"' for key, text in own.items()) for name, own in sections.items()
    ]
    (tmp_path / "plan.toml").write_text("\n".join(lines))
    assert run(["release", "plan.toml"]) == 2
    assert "s3a://lake/x: this is an address (s3a://)" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"homes.parquet", "plan.toml"}


def test_the_command_line_takes_file_addresses_and_refuses_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "homes.parquet", size=[1, 1, 2, 2] * 9, county=[*"abab"] * 9, tenure=[*"xxyyx"] * 7 + ["y"])
    options = ["--swap", "county", "--match", "size", "--rate", "1/2"]
    assert run(["plan", f"file://{tmp_path}/homes.parquet", *options, "--write", "plan.toml"]) == 0
    assert f'households = "{tmp_path}/homes.parquet"' in Path("plan.toml").read_text()
    assert run(["plan", "s3a://lake/homes.parquet", *options]) == 2
    assert "this is an address (s3a://)" in capsys.readouterr().err
