"""What a caller gave, in any library's frames, and the way back to the same kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from stirred.data.microdata import Microdata


def as_microdata(data: Any) -> Microdata:
    """Return microdata, from microdata or from one frame of any library."""
    if isinstance(data, Microdata):
        return data
    return Microdata(households=data)


def like(data: Any) -> Callable[[pl.DataFrame], Any]:
    """Return a function that turns a polars frame into the kind of frame the caller gave."""
    if isinstance(data, (Microdata, pl.DataFrame)):
        return lambda frame: frame
    if isinstance(data, pl.LazyFrame):
        return lambda frame: frame.lazy()
    import narwhals as nw

    given = nw.from_native(data, eager_only=True).implementation
    if given.is_pandas():
        return lambda frame: nw.from_native(frame).to_pandas()
    if given.is_pyarrow():
        return lambda frame: nw.from_native(frame).to_arrow()
    return lambda frame: frame
