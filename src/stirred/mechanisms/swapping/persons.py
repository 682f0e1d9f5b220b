"""Persons travel with their household: they are part of its hold value and get its new swap values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.microdata import Microdata

# Two independent 64-bit fingerprints; equality of both stands for equality of the persons.
_SEEDS = (0x5717, 0x9E37)


def person_fingerprints(data: Microdata) -> list[pl.Series] | None:
    """Return two fingerprints of each household's multiset of persons, or None without persons.

    The fingerprints of the persons are added up, so the order of the persons does not matter.
    """
    if data.persons is None or data.hid is None:
        return None
    values = data.persons.select(data.person_variables) if data.person_variables else None
    hashes = [
        values.hash_rows(seed=seed)
        if values is not None
        else pl.repeat(1, data.persons.height, dtype=pl.UInt64, eager=True)
        for seed in _SEEDS
    ]
    summed = (
        pl.DataFrame({"hid": data.persons[data.hid], "a": hashes[0], "b": hashes[1]})
        .group_by("hid")
        .agg(pl.col("a").sum(), pl.col("b").sum(), pl.len().alias("n"))
    )
    joined = pl.DataFrame({"hid": data.households[data.hid]}).join(summed, on="hid", how="left", maintain_order="left")
    joined = joined.with_columns(pl.col("a", "b", "n").fill_null(0))
    mixed = joined.select(
        pl.struct("a", "n").hash(_SEEDS[0]).alias("__persons_a"),
        pl.struct("b", "n").hash(_SEEDS[1]).alias("__persons_b"),
    )
    return mixed.get_columns()


def fingerprint(hold: pl.DataFrame, people: list[pl.Series] | None) -> pl.Series:
    """Return a 64-bit fingerprint of each record's hold value, persons included."""
    frame = hold if people is None else hold.with_columns(people)
    if not frame.width:
        return pl.Series("hold", np.zeros(hold.height, dtype=np.uint64))
    return frame.hash_rows(seed=_SEEDS[0]).alias("hold")


def released_persons(
    data: Microdata, public: pl.DataFrame, order: npt.NDArray[np.uint32], *, swap: Sequence[str]
) -> dict[str, pl.DataFrame]:
    """Return the released households with new ids and their persons with new ids and swap values.

    A new household id is the position in the released order, which does not depend on the input. Inside
    a household persons are ordered by their released values.
    """
    assert data.persons is not None
    assert data.hid is not None
    hid = data.hid
    new = pl.DataFrame(
        {"__old": data.households[hid][order], hid: np.arange(1, len(order) + 1, dtype=np.int64)}
    ).with_columns(public.select(swap))
    values = data.person_variables
    persons = (
        data.persons.select(pl.col(hid).alias("__old"), *values)
        .join(new, on="__old", how="inner")
        .select(hid, *swap, *values)
        .sort([hid, *values], nulls_last=True)
    )
    return {"data": public.insert_column(0, new[hid]), "persons": persons}
