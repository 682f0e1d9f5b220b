"""Files as people have them: first lines that are records, headers that are too long, and what is not a file."""

from __future__ import annotations

import gzip
import os
import random
import signal
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import duckdb
import polars as pl
import pytest

from stirred.cli.main import run as command
from stirred.data import child as child_process
from stirred.data import formats
from stirred.data.child import child, unreadable_parquet
from stirred.data.codebook import Codebook
from stirred.data.columns import ParquetColumns
from stirred.data.frames import read_frame, read_given, read_labels, scan_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError
from stirred.data.sources import Dialect
from stirred.release.plan_file import plan_from, read_plan
from stirred.release.prepared import prepare
from stirred.spec.problems import StirredError
from tests.world import PLAN_OF_HOMES, households


def written(tmp_path: Path, text: str, name: str = "homes.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


# --- text files as R, SAS and half of Europe write them -------------------------------------------------


@pytest.mark.parametrize("name", ["homes.txt", "homes.csv.gz", "homes.TXT.GZ", "parts/a.csv.gz"])
def test_text_files_of_any_ending_and_packed_ones_are_read(name: str, tmp_path: Path) -> None:
    text = b"county;rent\nA;1\nB;2\n"
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(text) if path.suffix.lower() == ".gz" else text)
    found = Microdata.read(path if name.startswith("homes") else path.parent)
    assert found.households.rows() == [("A", "1"), ("B", "2")]
    assert not name.startswith("homes") or found.name == "homes"


@pytest.mark.parametrize(
    "content",
    [b"no gzip", gzip.compress(b"a,b\n" * 99)[:-12], gzip.compress(b"a,b\n1,\0\n")],
    ids=["not packed", "cut short", "a zero byte"],  # gzip writes the time, and names of tests must not change
)
def test_a_packed_file_that_is_damaged_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "homes.csv.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read it|NUL byte"):
        read_given(tmp_path / "homes.csv.gz")


def test_decimal_commas_and_separators_are_declared(tmp_path: Path) -> None:
    path = written(tmp_path, "county~rent~note\nA~1,50~a,b\nB~-,5~\nC~7~1,2,3\n")
    found = read_given(path, Dialect(separator="~", decimal=","))
    assert found.rows() == [("A", "1.50", "a,b"), ("B", "-.5", None), ("C", "7", "1,2,3")]
    with pytest.raises(DataError, match=r'"rent": with decimal commas the point in 1.500 is unclear'):
        read_given(written(tmp_path, "county;rent\nA;1,5\nB;1.500\n"), Dialect(decimal=","))


@pytest.mark.parametrize("where", ["plan", "codebook"])
def test_what_a_plan_or_a_codebook_declares_of_a_text_file_is_used(where: str, tmp_path: Path) -> None:
    rows = "".join(f"{'AB'[n % 2]}!{n % 3}!{n},5\n" for n in range(60))
    written(tmp_path, f"county!size!rent\n{rows}")
    variables = "".join(
        f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "text"\n' for name in ("county", "size", "rent")
    )
    told = "decimal = ','\nseparator = '!'\n"
    written(tmp_path, f"[codebook]\n{told if where == 'codebook' else ''}{variables}", "codebook.toml")
    data = {"households": "homes.csv", "codebook": "codebook.toml"}
    content = {
        "data": {**data, **({"decimal": ",", "separator": "!"} if where == "plan" else {})},
        "prepare": [{"step": "round", "column": "rent", "to": 100}],
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "release": {"out": "b"},
    }
    found = prepare(plan_from(content, source="plan.toml", folder=tmp_path))
    assert {*found.data.households["rent"].cast(pl.String)} == {"0", "100"}


# --- headers --------------------------------------------------------------------------------------------

WITHOUT_HEADER = {
    "numbers alone": "1,3,2\n2,1,2\n1,2,1\n",
    "numbers alone, repeated": "1,1,2\n2,1,2\n1,2,1\n",
    "a repeated number among words": "1,Essex,1,owned\n2,Suffolk,3,owned\n",
    "decimals and an empty field": "1.5,,2\n2.5,1,2\n",
    "codes and words": "17,Essex,owned\n18,Essex,rented\n19,Suffolk,owned\n",
    "half of the fields occur again": "H01,17 High Street,Essex,owned\nH02,3 Low Road,Essex,owned\n",
}


@pytest.mark.parametrize("text", WITHOUT_HEADER.values(), ids=WITHOUT_HEADER.keys())
def test_a_first_line_that_is_a_record_is_refused_and_not_quoted(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    for read in (Microdata.read, read_labels, lambda path: scan_frame(path, given=True)):
        with pytest.raises(DataError, match="line 1 looks like a record and not like the names of columns") as refusal:
            read(path)
        assert all(value not in str(refusal.value).replace(str(path), "") for value in ("Essex", "owned", "17", "1.5"))


def test_the_first_line_of_a_folder_of_parts_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    written(tmp_path / "parts", "1,2\n3,4\n", "a.csv")
    with pytest.raises(DataError, match="line 1 looks like a record"):
        read_given(tmp_path / "parts")


def test_a_header_that_stands_again_among_the_records_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "county,size\nA,1\ncounty,size\nB,2\n")
    with pytest.raises(DataError, match="line 1 stands again as record 2"):
        Microdata.read(path)


@pytest.mark.parametrize(
    "text",
    [
        "urban,size\nurban,1\nrural,2\n",
        "country,2019,2020\nA,5,2020\nB,6,7\n",
        "a,b\n1,2\n",
        "yes,no,size\nyes,1,2\nno,2,3\n",
    ],
)
def test_a_header_may_share_a_word_with_its_column(text: str, tmp_path: Path) -> None:
    assert ",".join(Microdata.read(written(tmp_path, text)).households.columns) == text.split("\n")[0]


def test_what_we_write_ourselves_is_read_whatever_its_columns_are_called(tmp_path: Path) -> None:
    assert read_frame(written(tmp_path, "1,2\n1,2\n")).columns == ["1", "2"]


@pytest.mark.parametrize("value", ["x", '"x"', '"x,y"', '"x\ny"'])
def test_more_names_than_fields_is_an_error_and_not_an_empty_column(value: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"county,size,tenure\nA,{value}\nB,{value}\n")
    with pytest.raises(DataError, match="the header has 3 names, and every record 2 fields"):
        read_frame(path)


@pytest.mark.parametrize("value", ["x", '"x"', '"x\ny"'])
def test_one_record_that_ends_early_is_told_also_beside_quotes(value: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"county,size,tenure\nA,{value},1\nB,{value}\nC,1,2\n")
    with pytest.raises(DataError, match="lines end before the last of the 3 columns"):
        read_frame(path)


@pytest.mark.parametrize("value", ["1", '"1"'])
def test_more_fields_than_names_is_an_error_and_not_a_truncation(value: str, tmp_path: Path) -> None:
    path = written(tmp_path, f"county,size\nA,1,{value}\nB,2,{value}\n")
    with pytest.raises(DataError, match="lines have more fields than the 2 columns of the header"):
        read_frame(path)


def test_a_header_of_more_than_a_megabyte_is_refused_and_not_cut_off(tmp_path: Path) -> None:
    names = ",".join(f"column_{number}" for number in range(100_000))
    path = written(tmp_path, f"{names}\n{names.replace('column', 'value')}\n")
    with pytest.raises(DataError, match="line 1, which names the columns, is longer than 1,048,576 bytes"):
        read_frame(path)


def test_a_name_of_more_than_200_characters_is_refused_and_not_quoted(tmp_path: Path) -> None:
    path = written(tmp_path, f"county,{'x' * 201}\nA,1\n")
    with pytest.raises(DataError, match=r"names have more than 200 characters: column 2 \(201\)") as refusal:
        Microdata.read(path)
    assert "xxx" not in str(refusal.value)


# --- what is not a file ---------------------------------------------------------------------------------


@pytest.fixture
def at_once() -> Iterator[None]:
    """Fail after 20 seconds: whoever opens a pipe waits for ever."""

    def too_long(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(folder: Path, name: str) -> Path:
    os.mkfifo(folder / name)
    return folder / name


def device(folder: Path, name: str) -> Path:
    (folder / name).symlink_to("/dev/zero")
    return folder / name


def a_socket(folder: Path, name: str) -> Path:
    bound = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket may only have some hundred letters
    try:
        bound.bind(name)
    finally:
        os.chdir(here)
    bound.close()
    return folder / name


KINDS: dict[str, Callable[[Path, str], Path]] = {"a pipe": pipe, "a device": device, "a socket": a_socket}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow", ".sqlite", ".sav", ".txt"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pipe_a_device_and_a_socket_are_refused_at_once(kind: str, ending: str, tmp_path: Path) -> None:
    path = KINDS[kind](tmp_path, f"homes{ending}")
    for read in (read_frame, scan_frame, read_labels):
        with pytest.raises(DataError, match=f"this is {kind} and not a file. Fix: save its contents in a file"):
            read(path)


@pytest.mark.usefixtures("at_once")
def test_a_plan_that_names_a_pipe_is_refused_before_its_checksum_is_taken(tmp_path: Path) -> None:
    pipe(tmp_path, "homes.csv")
    content = {
        "data": {"households": "homes.csv"},
        "mechanism": {"swap": "county", "rate": "1/2"},
        "release": {"out": "out"},
    }
    with pytest.raises(StirredError, match="this is a pipe and not a file"):
        prepare(plan_from(content, source="plan", folder=tmp_path))


@pytest.mark.usefixtures("at_once")
def test_a_pipe_among_the_parts_of_a_folder_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "a.parquet")
    pipe(tmp_path, "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet: this is a pipe and not a file"):
        read_frame(tmp_path)


@pytest.mark.usefixtures("at_once")
def test_a_plan_and_a_codebook_are_files(tmp_path: Path) -> None:
    with pytest.raises(StirredError, match="this is a pipe and not a file"):
        read_plan(pipe(tmp_path, "plan.toml"))
    with pytest.raises(StirredError, match="this is a pipe and not a file"):
        Codebook.read(pipe(tmp_path, "codebook.toml"))


# ---- damaged Parquet files ---------------------------------------------------------------------------------


@pytest.fixture
def deadly(tmp_path: Path) -> Path:
    """One changed byte in the footer, by which the reader of polars 1 asks for more memory than there is."""
    path = tmp_path / "homes.parquet"
    households(60).write_parquet(path, compression="uncompressed", statistics=False)
    written = bytearray(path.read_bytes())
    found = unreadable_parquet([path], only_deadly=True)
    for place in range(600, len(written) - 8):
        if found:
            break
        changed = bytearray(written)
        changed[place] = 127
        path.write_bytes(changed)
        found = unreadable_parquet([path], only_deadly=True)
    if not found:  # pragma: no cover
        pytest.skip("this reader survives every such byte")
    return path


def test_a_parquet_file_that_would_end_the_process_is_refused_by_name(deadly: Path) -> None:
    for read in (read_given, lambda path: scan_frame(path, given=True), Microdata.read, ParquetColumns):
        with pytest.raises(DataError, match=r"homes.parquet: cannot read it \(it ends the process that reads it"):
            read(deadly)


def test_no_command_dies_of_changed_bytes_in_its_input(tmp_path: Path) -> None:
    """Would one get through, this very process would be gone."""
    path, source = tmp_path / "homes.parquet", random.Random(5)
    households(60).write_parquet(path)
    written = path.read_bytes()
    for _ in range(300):
        changed = bytearray(written)
        changed[source.randrange(len(changed))] = source.choice([0, 127, 128, 255])
        path.write_bytes(changed)
        with suppress(DataError):
            read_given(path)


# ---- files that swell, views that never end, names that are no text -------------------------------------------


def test_a_small_file_that_swells_in_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = tmp_path / "bomb.parquet"
    pl.select(a=pl.repeat(7, 3_000_000, dtype=pl.Int64), b=pl.repeat(7, 3_000_000, dtype=pl.Int64)).write_parquet(bomb)
    assert bomb.stat().st_size < 40_000
    assert child_process.reason(str(bomb)) is None
    monkeypatch.setattr(child_process, "memory", lambda: 10_000_000)
    monkeypatch.setattr(child, "ask", lambda function, arguments, seconds: child_process.reason(*arguments))
    with pytest.raises(DataError, match="it swells in memory: 3,000,000 rows need 0 GB"):
        read_given(bomb)
    households(2_000).write_parquet(tmp_path / "homes.parquet")
    assert read_given(tmp_path / "homes.parquet").height == 2_000


ENDLESS = "CREATE VIEW endless AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_view_that_never_ends_is_stopped(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_SECONDS", 0.3)
    path = tmp_path / f"t.{kind}"
    with closing(sqlite3.connect(path) if kind == "sqlite" else duckdb.connect(str(path))) as connection:
        connection.execute(ENDLESS)
    with pytest.raises(DataError, match=r"reading it does not end within [01] seconds") as refused:
        read_frame(f"{path}#endless")
    assert "CREATE TABLE" in refused.value.problems[0].remedy


def test_a_view_that_does_not_fit_into_memory_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "memory", lambda: 1_000_000)
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as connection:
        connection.execute(ENDLESS.replace("FROM n)", "FROM n LIMIT 400000)"))
    with pytest.raises(DataError, match="it does not fit into the memory of this machine"):
        read_frame(tmp_path / "t.sqlite#endless")


@pytest.mark.parametrize("inside", [False, True])
def test_a_file_whose_name_is_no_text_is_refused(inside: bool, tmp_path: Path) -> None:
    name = Path(os.fsdecode(os.fsencode(tmp_path) + b"/hom\xff.csv"))
    households().write_csv(tmp_path / "homes.csv")
    (tmp_path / "homes.csv").rename(name)
    with pytest.raises(DataError, match="its name is not UTF-8"):
        read_given(tmp_path if inside else name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "hom\udcff.csv", "--rate", "1/2"], "'hom\\udcff.csv' is not UTF-8, or holds a NUL"),
        (["plan", "homes.csv", "--out", "a\0b"], "is not UTF-8, or holds a NUL"),
        (["spec", "budget", "--stratum", "9" * 4299, "--rate", "5%"], "--stratum: no file has more than"),
        (["release", "nul.toml"], "[release] out: 'a\\x00b' holds letters that cannot be published (U+0000)"),
    ],
    ids=["a name that is no text", "a NUL", "a huge stratum", "a NUL in a plan"],
)
def test_no_name_and_no_number_is_a_fault_of_ours(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    households().write_csv("homes.csv")
    Path("nul.toml").write_text(
        PLAN_OF_HOMES.replace("homes.parquet", "homes.csv").replace('out = "out"', 'out = "a\\u0000b"')
    )
    assert command(arguments) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert said in err
    assert "fault in stirred" not in err
    assert sorted(os.listdir()) == ["homes.csv", "nul.toml"]
