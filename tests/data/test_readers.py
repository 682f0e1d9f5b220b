"""Every kind of file gives the same table, and a broken one says what is wrong with it."""

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl
import pyreadstat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from stirred.data.frames import exists, read_frame, read_labels, scan_frame, write_frame
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError
from tests.data.gallery import exhibits, is_named_after
from tests.depth import examples

TABLE = pl.DataFrame(
    {
        "county": ["001", "003", "003", "Dukes, MA"],
        "size": [1, 2, None, 4],
        "name": ["Ann", 'Zoë "Z"', None, "a;b\tc"],
        "tenure": [1, 2, 2, 1],
    }
)
LABELS = {"tenure": {1: "owned", 2: "rented"}}
COLUMN_LABELS = {"county": "County", "tenure": "Tenure"}


def in_duckdb(path: Path) -> str:
    with closing(duckdb.connect(str(path / "t.duckdb"))) as connection:
        connection.execute("CREATE TABLE households (county TEXT, size BIGINT, name TEXT, tenure BIGINT)")
        connection.executemany("INSERT INTO households VALUES (?, ?, ?, ?)", TABLE.rows())
        connection.execute("CREATE TABLE other AS SELECT 1 AS a")
    return str(path / "t.duckdb#households")


def in_sqlite(path: Path, *, name: str = "t.sqlite") -> str:
    with closing(sqlite3.connect(path / name)) as connection:
        connection.execute("CREATE TABLE households (county TEXT, size INTEGER, name TEXT, tenure INTEGER)")
        connection.executemany("INSERT INTO households VALUES (?, ?, ?, ?)", TABLE.rows())
        connection.execute("CREATE VIEW other AS SELECT 1 AS a")
        connection.commit()
    return str(path / f"{name}#households")


def in_parts(path: Path) -> Path:
    folder = path / "parts"
    folder.mkdir()
    TABLE.tail(2).write_parquet(folder / "part-2.parquet")
    TABLE.head(2).write_parquet(folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def in_csv_parts(path: Path) -> Path:
    folder = path / "t.csv"
    folder.mkdir()
    TABLE.tail(2).write_csv(folder / "part-2.csv")
    TABLE.head(2).write_csv(folder / "part-1.csv")
    TABLE.clear().write_csv(folder / "part-3.csv")
    (folder / "_SUCCESS").touch()
    return folder


def in_package(ending: str, write: Callable[..., None]) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        frame = TABLE.with_columns(pl.col("size", "tenure").cast(pl.Float64)).to_pandas()
        options = {} if ending == "xpt" else {"variable_value_labels": LABELS}
        write(frame, path / f"t.{ending}", column_labels=["County", "", "", "Tenure"], **options)
        return path / f"t.{ending}"

    return make


def as_csv(**options: Any) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        TABLE.write_csv(path / "t.csv", **options)
        return path / "t.csv"

    return make


def written(name: str, write: Callable[[Path], None]) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        write(path / name)
        return path / name

    return make


TYPED: dict[str, Callable[[Path], Path | str]] = {
    "parquet": written("t.parquet", TABLE.write_parquet),
    "parquet with brackets in its name": written("t[1]*.parquet", TABLE.write_parquet),
    "parquet with a # in its name": written("t#1.parquet", TABLE.write_parquet),
    "capital ending": written("T.PARQUET", TABLE.write_parquet),
    "folder of parquet": in_parts,
    "arrow": written("t.arrow", TABLE.write_ipc),
    "feather": written("t.feather", lambda path: TABLE.write_ipc(path, compression="zstd")),
    "arrow stream": written("t.ipc", TABLE.write_ipc_stream),
    "duckdb": in_duckdb,
    "sqlite": in_sqlite,
    "sqlite named db": lambda path: in_sqlite(path, name="t.db"),
    "spss": in_package("sav", pyreadstat.write_sav),
    "stata": in_package("dta", pyreadstat.write_dta),
    "sas transport": in_package("xpt", pyreadstat.write_xport),
    # TABLE once more: no program here writes this format, so that the file is kept.
    "sas": lambda _: Path(__file__).with_name("homes.sas7bdat"),
}
AS_TEXT: dict[str, Callable[[Path], Path]] = {
    "csv": as_csv(),
    "folder of csv": in_csv_parts,
    "semicolons": as_csv(separator=";"),
    "tabs": as_csv(separator="\t"),
    "bars": as_csv(separator="|"),
    "byte order mark": as_csv(include_bom=True),
    "everything quoted": as_csv(quote_style="always"),
    "windows lines": as_csv(line_terminator="\r\n"),
    "tsv": written("t.tsv", lambda path: TABLE.write_csv(path, separator="\t")),
}


@pytest.mark.parametrize("make", TYPED.values(), ids=TYPED.keys())
def test_files_with_types_give_the_same_table(make: Callable[[Path], Path | str], tmp_path: Path) -> None:
    source = make(tmp_path)
    assert exists(source)
    assert_frame_equal(read_frame(source), TABLE)
    assert_frame_equal(scan_frame(source).collect(), TABLE)


@pytest.mark.parametrize("make", AS_TEXT.values(), ids=AS_TEXT.keys())
def test_text_files_give_the_same_table_as_text(make: Callable[[Path], Path], tmp_path: Path) -> None:
    source, expected = make(tmp_path), TABLE.cast(pl.String)
    assert_frame_equal(read_frame(source), expected)
    assert_frame_equal(scan_frame(source).collect(), expected)


CELLS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1, max_size=6)


@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6), st.sampled_from([",", ";", "\t", "|"]))
def test_any_text_survives_csv(rows: list[tuple[str | None, ...]], separator: str) -> None:
    frame = pl.DataFrame(rows, schema=dict.fromkeys(("a", "b, c", "d;e"), pl.String), orient="row")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        frame.write_csv(path, separator=separator)
        assert_frame_equal(read_frame(path), frame)


# --- labels ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["spss", "stata"])
def test_labels_of_a_statistics_package_are_kept(kind: str, tmp_path: Path) -> None:
    labelled = read_labels(TYPED[kind](tmp_path))
    assert_frame_equal(labelled.frame, TABLE)
    assert labelled.values == {"tenure": {"1": "owned", "2": "rented"}}
    assert labelled.columns == COLUMN_LABELS


@pytest.mark.parametrize("kind", ["sas", "sas transport"])
def test_labels_of_the_columns_of_sas_are_kept(kind: str, tmp_path: Path) -> None:
    """The labels of values are in a catalogue of their own, which is not read."""
    labelled = read_labels(TYPED[kind](tmp_path))
    assert_frame_equal(labelled.frame, TABLE)
    assert (labelled.columns, labelled.values) == (COLUMN_LABELS, {})


def test_other_files_keep_no_labels(tmp_path: Path) -> None:
    labelled = read_labels(TYPED["parquet"](tmp_path))
    assert (labelled.columns, labelled.values) == ({}, {})
    assert_frame_equal(labelled.frame, TABLE)


def test_missing_values_that_spss_declares_stay_codes(tmp_path: Path) -> None:
    frame = pl.DataFrame({"x": [1.0, 99.0, None]}).to_pandas()
    pyreadstat.write_sav(frame, tmp_path / "x.sav", missing_ranges={"x": [99]})
    assert read_frame(tmp_path / "x.sav")["x"].to_list() == [1, 99, None]


def test_fractions_of_a_statistics_package_stay_fractions(tmp_path: Path) -> None:
    pyreadstat.write_dta(pl.DataFrame({"x": [1.0, 2.5, None]}).to_pandas(), tmp_path / "x.dta")
    assert read_frame(tmp_path / "x.dta")["x"].to_list() == [1.0, 2.5, None]


# --- databases ------------------------------------------------------------------------------------------


def test_a_database_with_one_table_needs_no_name(tmp_path: Path) -> None:
    with closing(duckdb.connect(str(tmp_path / "t.duckdb"))) as connection:
        connection.execute("CREATE SCHEMA s; CREATE TABLE s.t AS SELECT 7 AS a")
    for source in ("t.duckdb", "t.duckdb#s.t"):
        assert read_frame(tmp_path / source)["a"].to_list() == [7]


@pytest.mark.parametrize("make", [in_duckdb, in_sqlite])
def test_a_table_that_is_not_named_or_not_there_is_told_with_those_that_are(
    make: Callable[[Path], str], tmp_path: Path
) -> None:
    file = make(tmp_path).partition("#")[0]
    with pytest.raises(DataError, match='no table is named; there are "households", "other"') as refusal:
        read_frame(file)
    assert refusal.value.problems[0].remedy.endswith(f"{Path(file).name}#households")
    with pytest.raises(DataError, match='there is no table "persons"; there are "households", "other"'):
        read_frame(file + "#persons")


def test_sqlite_columns_that_mix_types_are_text(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute('CREATE TABLE t ("a ""b""", c, d, e)')
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(1, 1, None, 1), ("x", 2.5, None, 2)])
        connection.commit()
    frame = read_frame(tmp_path / "t.db")
    assert frame.to_dict(as_series=False) == {'a "b"': ["1", "x"], "c": [1.0, 2.5], "d": [None, None], "e": [1, 2]}


def test_sqlite_binary_columns_are_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("INSERT INTO t VALUES (x'00ff')")
        connection.commit()
    with pytest.raises(DataError, match='column "a" holds binary values'):
        read_frame(tmp_path / "t.db")


@pytest.mark.parametrize(
    "view", ["read_csv('{secret}')", "read_text('{secret}')", "read_blob('{secret}')", "read_parquet('{secret}')"]
)
def test_a_view_of_a_duckdb_file_reads_no_other_file(tmp_path: Path, view: str) -> None:
    secret = tmp_path / ("s.parquet" if "parquet" in view else "s.csv")
    frame = pl.DataFrame({"a": ["s3cret"]})
    frame.write_parquet(secret) if "parquet" in view else frame.write_csv(secret)
    with closing(duckdb.connect(str(tmp_path / "t.duckdb"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        connection.execute(f"CREATE VIEW v AS SELECT * FROM {view.format(secret=secret)}")
        connection.execute("CREATE VIEW fine AS SELECT a + 1 AS a FROM t")
    with pytest.raises(DataError, match="a view that reads another file") as refusal:
        read_frame(tmp_path / "t.duckdb#v")
    assert "s3cret" not in str(refusal.value)
    assert read_frame(tmp_path / "t.duckdb#t").rows() == [(1,)]
    assert read_frame(tmp_path / "t.duckdb#fine").rows() == [(2,)]


def test_duckdb_loads_no_extension_and_keeps_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    real = duckdb.connect

    def connect(*place: Any, **settings: Any) -> Any:
        connection = real(*place, **settings)
        wanted = (
            "SELECT name, value FROM duckdb_settings() WHERE name LIKE '%extensions' OR name LIKE '%external_access' "
        )
        seen.append(dict(connection.execute(wanted + "OR name = 'lock_configuration'").fetchall()))
        with pytest.raises(duckdb.Error, match="locked"):
            connection.execute("SET autoload_known_extensions = true")
        return connection

    source = in_duckdb(tmp_path)
    monkeypatch.setattr(duckdb, "connect", connect)
    read_frame(source)
    assert seen[0]["enable_external_access"] == "false"
    assert seen[0]["lock_configuration"] == "true"
    assert {seen[0][f"auto{what}_known_extensions"] for what in ("load", "install")} == {"false"}
    assert seen[0]["allow_community_extensions"] == "false"
    assert seen[0]["allow_unsigned_extensions"] == "false"


def test_duckdb_sums_are_ordinary_integers(tmp_path: Path) -> None:
    with closing(duckdb.connect(str(tmp_path / "t.duckdb"))) as connection:
        connection.execute("CREATE TABLE t AS SELECT sum(x) AS a, 7::DECIMAL(9, 0) AS b FROM range(4) AS r(x)")
    assert read_frame(tmp_path / "t.duckdb").schema == {"a": pl.Int64, "b": pl.Int64}


def test_reading_a_database_does_not_change_it(tmp_path: Path) -> None:
    for source in (in_duckdb(tmp_path), in_sqlite(tmp_path)):
        file = Path(source.partition("#")[0])
        before = file.read_bytes()
        file.chmod(0o444)
        read_frame(source)
        assert file.read_bytes() == before
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(f"{file.name}-")] == []


def test_reading_duckdb_ends_without_chatter(tmp_path: Path) -> None:
    import subprocess

    program = f"from stirred.data.frames import read_frame; read_frame({in_duckdb(tmp_path)!r})"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout + result.stderr == ""


# --- what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    exhibits("read", ".csv", ".db", ".parquet", ".arrow", ".sav", ".dta", ".sas7bdat", ".xlsx"),
    ids=lambda path: path.name,
)
def test_a_broken_file_gives_the_message_it_is_named_after(path: Path) -> None:
    for read in (read_frame, scan_frame, read_labels):
        with pytest.raises(DataError) as refusal:
            read(path)
        assert is_named_after(path, refusal.value.problems)
        assert refusal.value.problems[0].where == str(path)


# Bytes that a version control system might rewrite.
ODD_BYTES = {
    "line-3-is-not-utf-8": "a,b\n1,2\n3,caf\xe9\n".encode("latin-1"),
    "line-1-is-not-utf-8": "a,caf\xe9\n1,2\n".encode("latin-1"),
    "this-is-utf-16": "a,b\n1,2\n".encode("utf-16"),
    "its-lines-end-in-a-bare-carriage-return": b"a,b\r1,2\r",
    "line-1-has-a-carriage-return-in-the-middle": b"a,b\r,c\n1,2,3\n",
    "line-2-has-a-nul-byte-in-it": b"a,b\n1,\x002\n3,4\n",
    "a-quote-is-opened-in-line-3-and-not-closed": b'a,b\n"1",2\n3,"4\n"5",6\n',
    "the-file-holds-no-records": b"",
    "lines-end-before-the-last-of-the-2-columns-1-line-3": b"a,b\r\n1,2\r\n\r\n3,4\r\n",
}


@pytest.mark.parametrize(("name", "content"), ODD_BYTES.items(), ids=ODD_BYTES.keys())
def test_odd_bytes_give_the_message_they_are_named_after(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.csv"
    path.write_bytes(content)
    with pytest.raises(DataError) as refusal:
        read_frame(path)
    assert is_named_after(path, refusal.value.problems)


@pytest.mark.parametrize("header", ['a,"b\r\nc",d', '"a",b,d\r'])
def test_line_ends_inside_quotes_and_of_windows_lose_no_column(header: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(f"{header}\n1,2,3\n".encode())
    assert read_frame(tmp_path / "t.csv").width == 3
    assert read_frame(tmp_path / "t.csv").row(0)[2] == "3"


def test_an_unreadable_file_does_not_quote_its_values(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,b\n1,"secret\n2,3\n')
    with pytest.raises(DataError) as refusal:
        read_frame(path)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("ending", ["\n", "\n\n\n", "\r\n\r\n"])
def test_blank_lines_at_the_end_are_no_records(ending: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n1,\n3,4" + ending.encode())
    assert read_frame(tmp_path / "x.csv").rows() == [("1", None), ("3", "4")]


def test_records_whose_last_field_is_empty_are_whole(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,\n,\n,\n")
    assert read_frame(tmp_path / "x.csv").rows() == [("1", None), (None, None), (None, None)]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("x.csv", "x.duckdb#t", "x#y.csv"):
        assert not exists(tmp_path / name)
        with pytest.raises(DataError, match="there is no such file") as refusal:
            read_frame(tmp_path / name)
        assert refusal.value.problems[0].where == str(tmp_path / name)


def test_a_table_of_something_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match="'#t' names a table, and this is not a database"):
        read_frame(tmp_path / "x.csv#t")


def test_a_folder_without_parts_or_with_two_kinds_of_them_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    for read in (read_frame, scan_frame):
        with pytest.raises(DataError, match="this is a folder without Parquet or CSV files"):
            read(tmp_path)
    TABLE.write_parquet(tmp_path / "1.parquet")
    TABLE.write_csv(tmp_path / "2.csv")
    for read in (read_frame, scan_frame):
        with pytest.raises(DataError, match=r"a folder of Parquet files \(1.parquet\) and of CSV files \(2.csv\)"):
            read(tmp_path)


def test_csv_parts_that_differ_are_all_told(tmp_path: Path) -> None:
    for name, text in {
        "1.csv": "a,b\n1,x\n",
        "2.csv": "a,c\n1,x\n",
        "3.csv": "b,a\nx,1\n",
        "4.csv": "",
        "5.csv": "a,a\n1,x\n",
        "6.csv": "a;b\n1;x\n",  # separated otherwise, but the same columns
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as refusal:
        read_frame(tmp_path)
    assert [(Path(p.where).name, p.what) for p in refusal.value.problems] == [
        ("2.csv", 'this part does not have the columns of 1.csv: "b" is absent, "c" is new'),
        ("3.csv", "this part does not have the columns of 1.csv: its columns stand in another order"),
        ("4.csv", "the file holds no records"),
        ("5.csv", 'more than one column is called "a"'),
    ]


def test_csv_parts_that_cannot_be_read_are_all_told(tmp_path: Path) -> None:
    for name, text in {"1.csv": "a,b\n1,x,y\n", "2.csv": "a,b\n1,x\n", "3.csv": 'a,b\n1,"x\n'}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as refusal:
        read_frame(tmp_path)
    assert [Path(p.where).name for p in refusal.value.problems] == ["1.csv", "3.csv"]


def test_parts_that_differ_are_all_told(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1], "b": ["x"]}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"a": [1.5], "c": ["x"]}).write_parquet(tmp_path / "2.parquet")
    pl.DataFrame({"b": ["x"], "a": [1]}).write_parquet(tmp_path / "3.parquet")
    (tmp_path / "4.parquet").write_text("this is not Parquet")
    with pytest.raises(DataError) as refusal:
        read_frame(tmp_path)
    assert [(Path(p.where).name, p.what) for p in refusal.value.problems] == [
        (
            "2.parquet",
            "this part does not have the columns of 1.parquet: "
            '"a" is Float64, not Int64, "b" is absent, not String, "c" is String, not absent',
        ),
        ("3.parquet", "this part does not have the columns of 1.parquet: its columns stand in another order"),
        ("4.parquet", "cannot read it (parquet: File out of specification: The file must end with PAR1 or PARE)"),
    ]


@pytest.mark.parametrize(
    ("module", "extra", "kind"), [("duckdb", "databases", "duckdb"), ("pyreadstat", "labelled", "spss")]
)
def test_a_missing_extra_names_its_install_line(
    module: str, extra: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TYPED[kind](tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=f"needs the package {module}, which is not installed") as refusal:
        read_frame(source)
    assert refusal.value.problems[0].remedy == f"pip install 'stirred[{extra}]'"


# --- writing, and the whole way -------------------------------------------------------------------------


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_frame(TABLE, tmp_path / "t.parquet", note={"seeded": "yes"})
    write_frame(TABLE, tmp_path / "t.csv")
    assert_frame_equal(read_frame(tmp_path / "t.parquet"), TABLE)
    assert_frame_equal(read_frame(tmp_path / "t.csv"), TABLE.cast(pl.String))
    assert pl.read_parquet_metadata(tmp_path / "t.parquet")["seeded"] == "yes"


def test_microdata_are_read_from_a_database(tmp_path: Path) -> None:
    data = Microdata.read(Path(in_sqlite(tmp_path)))
    assert_frame_equal(data.households, TABLE)
