"""Reading and writing: what is read is what was written, and what cannot be read says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stirred.data.frames import read_frame, write_frame
from stirred.data.problems import DataError
from tests.depth import examples

FRAME = pl.DataFrame({"code": ["01", "1", "é"], "count": [1, 2, 3]})


def parquet_bytes(folder: Path) -> bytes:
    path = folder / "whole.parquet"
    FRAME.write_parquet(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("missing.csv", None, "there is no such file"),
        ("folder.csv", "folder", "this is a folder"),
        ("homes.xlsx", b"PK", "cannot read a file ending in '.xlsx'"),
        ("homes", b"a,b\n1,2\n", "cannot read a file without an ending"),
        ("empty.csv", b"", "the file holds no records"),
        ("header.csv", b"size,county\n", "the file holds no records"),
        ("empty.parquet", b"", "cannot read it"),
        ("cut.parquet", lambda whole: whole[: len(whole) // 2], "cannot read it"),
        ("tail.parquet", lambda whole: whole[:-1], "cannot read it"),
        ("text.parquet", b"size,county\n1,2\n", "cannot read it"),
        ("junk.csv", bytes(range(256)) * 20, ""),
        ("latin.csv", "size,county\n1,Köln\n".encode("latin-1"), "UTF-8"),
        ("wide.csv", b"size,county\n1,2,3\n", "lines have more fields"),
        ("short.csv", b"size,county,tenure\n1,2,own\n1,2\n", "lines end before the last"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.count(".") == 1 and " " not in value else "",
)
def test_a_file_that_cannot_be_read_says_why_and_what_to_do(
    name: str, content: bytes | str | Callable[[bytes], bytes] | None, what: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content(parquet_bytes(tmp_path)) if callable(content) else content)  # type: ignore[arg-type]
    with pytest.raises(DataError) as caught:
        read_frame(path)
    (problem,) = caught.value.problems
    assert what in problem.what
    assert problem.where == str(path)
    assert problem.remedy


def test_codes_of_a_csv_file_keep_their_zeros_and_empty_fields_are_missing(tmp_path: Path) -> None:
    (tmp_path / "homes.csv").write_text("county,size\n01,\n1,2\n", encoding="utf-8")
    assert read_frame(tmp_path / "homes.csv").rows() == [("01", None), ("1", "2")]


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path: Path) -> None:
    (tmp_path / "homes.csv").write_bytes(b"\xef\xbb\xbfcounty,size\nA,1\n")
    assert read_frame(tmp_path / "homes.csv").columns == ["county", "size"]


@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")), min_size=1))
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_text_that_is_written_is_read_back(ending: str, values: list[str], tmp_path: Path) -> None:
    """In CSV an empty text is a missing value, as documented; everything else comes back as it was."""
    frame = pl.DataFrame({"a": values, "b": ["x"] * len(values)})
    path = tmp_path / f"frame.{ending}"
    write_frame(frame, path)
    if ending == "csv":
        frame = frame.with_columns(pl.when(pl.col("a") != "").then("a"))
    assert read_frame(path).equals(frame)


def test_a_note_becomes_parquet_metadata(tmp_path: Path) -> None:
    write_frame(FRAME, tmp_path / "a.parquet", note={"stirred.seeded": "yes"})
    assert pl.read_parquet_metadata(tmp_path / "a.parquet")["stirred.seeded"] == "yes"
