"""What a caller gave, in any library's frames, and the way back to the same kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import polars as pl

from stirred.data.microdata import Microdata


def as_microdata(data: Any) -> Microdata:
    """Return microdata, from microdata or from one frame of any library."""
    if isinstance(data, Microdata):
        return data
    return Microdata(households=data)


def same_data(one: Microdata, other: Microdata) -> bool:
    """Say whether both hold the same records, with the same said about them; large files are compared as objects.

    >>> homes = pl.DataFrame({"size": [1, None]})
    >>> same_data(as_microdata(homes), as_microdata(homes.clone()))
    True
    """
    if one is other:
        return True
    said = [each.name for each in fields(Microdata) if each.name not in ("households", "persons", "checked")]
    return (
        all(getattr(one, name) == getattr(other, name) for name in said)
        and same_frame(one.households, other.households)
        and same_frame(one.persons, other.persons)
    )


def same_frame(one: Any, other: Any) -> bool:
    """Say whether two tables hold the same; those that are read column by column are compared as objects."""
    if one is other:
        return True
    frames = isinstance(one, pl.DataFrame) and isinstance(other, pl.DataFrame)
    return frames and one.schema == other.schema and one.equals(other)


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
