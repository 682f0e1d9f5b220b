"""A small ``.sas7bdat`` file: pyreadstat reads them only, but the C library inside it can write them."""

import ctypes as c
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyreadstat
import pytest

_STRING, _DOUBLE = 0, 5  # readstat_type_t
_POINTER = c.c_void_p
_WRITER = c.CFUNCTYPE(c.c_ssize_t, _POINTER, c.c_size_t, _POINTER)


def write_sas7bdat(frame: pl.DataFrame, path: Path, *, labels: Mapping[str, str]) -> None:
    """Write text columns and columns of numbers, as SAS stores them: fixed widths, doubles, missing values."""
    (library, *_) = Path(pyreadstat.__file__).parent.glob("_readstat_writer*")
    readstat = c.CDLL(str(library))
    if not hasattr(readstat, "readstat_begin_writing_sas7bdat"):
        pytest.skip("this build of pyreadstat hides the writer of its C library")
    readstat.readstat_writer_init.restype = _POINTER
    readstat.readstat_add_variable.restype = _POINTER
    content = bytearray()

    @_WRITER
    def keep(data: int, size: int, _: object) -> int:
        content.extend(c.string_at(data, size))
        return size

    writer = _POINTER(readstat.readstat_writer_init())
    readstat.readstat_set_data_writer(writer, keep)
    columns = []
    for name, dtype in frame.schema.items():
        kind, width = (_STRING, 40) if dtype == pl.String else (_DOUBLE, 0)
        column = _POINTER(readstat.readstat_add_variable(writer, name.encode(), kind, c.c_size_t(width)))
        readstat.readstat_variable_set_label(column, labels.get(name, "").encode())
        columns.append(column)
    assert readstat.readstat_begin_writing_sas7bdat(writer, None, c.c_long(frame.height)) == 0
    for row in frame.iter_rows():
        assert readstat.readstat_begin_row(writer) == 0
        for column, value in zip(columns, row, strict=True):
            if value is None:
                failed = readstat.readstat_insert_missing_value(writer, column)
            elif isinstance(value, str):
                failed = readstat.readstat_insert_string_value(writer, column, value.encode())
            else:
                failed = readstat.readstat_insert_double_value(writer, column, c.c_double(value))
            assert not failed
        assert readstat.readstat_end_row(writer) == 0
    assert readstat.readstat_end_writing(writer) == 0
    readstat.readstat_writer_free(writer)
    path.write_bytes(content)
