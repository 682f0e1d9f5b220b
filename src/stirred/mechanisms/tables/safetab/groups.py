"""Population groups: a region and a race or ethnicity iteration, and who belongs to which.

A person belongs to an iteration *alone* if every race code of the person is in it, *in combination* if one of them is,
and to an ethnicity iteration by the ethnicity code. The stability is how many groups of one region type and level a
record can be in: what a record that comes or goes can change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.problems import DataError, listed
from stirred.spec.problems import Problem

Ints = npt.NDArray[np.int64]
ALONE, COMBINATION, ETHNICITY = "alone", "combination", "ethnicity"
_COLUMNS: Final = ("iteration_code", "kind", "level", "detailed_only", "coarse_only", "codes")
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False, "t": True, "f": False}


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The iterations of one level, and those that each kind of record is in, one after the other (``starts``)."""

    codes: tuple[str, ...]
    detailed_only: npt.NDArray[np.bool_]
    starts: Ints
    iterations: Ints

    def expanded(self, kind: Ints) -> tuple[Ints, Ints]:
        """Return for records of these kinds the row and the iteration of every membership."""
        many = np.diff(self.starts)[kind]
        rows = np.repeat(np.arange(kind.size), many)
        inside = np.arange(rows.size) - np.repeat(np.cumsum(many) - many, many)
        return rows, self.iterations[np.repeat(self.starts[kind], many) + inside]


@dataclass(frozen=True, slots=True, eq=False)
class Iterations:
    """The iterations as the table declares them, one row for each."""

    table: pl.DataFrame

    @classmethod
    def of(cls, given: pl.DataFrame, *, where: str) -> Iterations:
        """Return the iterations of a table; all problems at once."""
        if problems := [*_problems(given, where)]:
            raise DataError(problems)
        truths = [pl.col(name).str.to_lowercase().replace_strict(_TRUTHS) for name in _COLUMNS[3:5]]
        codes = pl.col("codes").str.split(" ").list.eval(pl.element().filter(pl.element() != "")).list.unique()
        return cls(given.with_columns(pl.col("level").cast(pl.Int64), *truths, codes).sort("iteration_code"))

    def of_level(self, level: int, *, coarse: bool) -> pl.DataFrame:
        """Return the iterations of a level that regions of a kind are tabulated for."""
        out = pl.col("detailed_only") if coarse else pl.col("coarse_only")
        return self.table.filter((pl.col("level") == level) & ~out)

    def stability(self, races: int) -> int:
        """Return how many groups of one region type and level a record with this many race codes can be in at most.

        A code is in h iterations of a kind. Where those alone and in combination come in pairs of the same codes, a
        iterations alone, shared by all k codes, leave h - a others to each, so 2a + k(h - a) <= max(2, k) h.

        >>> def row(code, kind, codes): return (code, kind, "1", "false", "false", codes)
        >>> rows = [row("1", "alone", "a"), row("2", "combination", "a"), row("3", "ethnicity", "x")]
        >>> Iterations.of(pl.DataFrame(rows, schema=list(_COLUMNS), orient="row"), where="").stability(8)
        9
        """
        return max(self._stability(own, races) for own in self._domains())

    def _domains(self) -> Iterator[pl.DataFrame]:
        for level in self.table["level"].unique():
            for coarse in (False, True):
                yield self.of_level(level, coarse=coarse)

    def _stability(self, own: pl.DataFrame, races: int) -> int:
        by_kind = {kind: own.filter(pl.col("kind") == kind) for kind in (ALONE, COMBINATION, ETHNICITY)}
        most = {k: int(f.explode("codes")["codes"].value_counts()["count"].max() or 0) for k, f in by_kind.items()}  # type: ignore[arg-type]
        sets = [sorted(tuple(sorted(codes)) for codes in by_kind[kind]["codes"]) for kind in (ALONE, COMBINATION)]
        paired = sets[0] == sets[1]
        of_race = max(2, races) * most[ALONE] if paired else most[ALONE] + races * most[COMBINATION]
        return of_race + most[ETHNICITY]

    def members(self, kinds: pl.DataFrame, level: int, *, coarse: bool) -> Members:
        """Return who is in what: ``kinds`` has a row for each kind of record, its codes in ``races``, and ethnicity."""
        own = self.of_level(level, coarse=coarse).with_row_index("iteration")
        each = own.select("iteration", "kind", "codes").explode("codes")
        indexed = kinds.with_row_index("record")
        race = indexed.select("record", "races").explode("races").drop_nulls().unique()
        many = race.group_by("record").len("codes_in_all")
        found = race.join(each.filter(pl.col("kind") != ETHNICITY), left_on="races", right_on="codes")
        shared = found.group_by("record", "iteration", "kind").len("codes_inside").join(many, on="record")
        in_it = (pl.col("kind") == COMBINATION) | (pl.col("codes_inside") == pl.col("codes_in_all"))
        of_race = shared.filter(in_it).select("record", "iteration")
        of_ethnicity = indexed.select("record", "ethnicity").join(
            each.filter(pl.col("kind") == ETHNICITY), left_on="ethnicity", right_on="codes"
        )
        pairs = pl.concat([of_race, of_ethnicity.select("record", "iteration")]).unique().sort("record", "iteration")
        counts = np.bincount(pairs["record"].to_numpy(), minlength=kinds.height)
        return Members(
            codes=tuple(own["iteration_code"]),
            detailed_only=own["detailed_only"].to_numpy(),
            starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            iterations=pairs["iteration"].to_numpy().astype(np.int64),
        )


def _problems(given: pl.DataFrame, where: str) -> Iterator[Problem]:
    if missing := [name for name in _COLUMNS if name not in given.columns]:
        remedy = f"the table of iterations has the columns {listed(_COLUMNS)}"
        yield Problem(what=f"there is no column {listed(missing)}", where=where, remedy=remedy)
        return
    for name, allowed in (("kind", (ALONE, COMBINATION, ETHNICITY)), *((n, (*_TRUTHS,)) for n in _COLUMNS[3:5])):
        if odd := sorted({str(v) for v in given[name] if str(v).lower() not in allowed}):
            yield Problem(
                what=f"{odd[0]!r} is not known", where=f'{where} "{name}"', remedy=f"one of {listed(allowed)}"
            )
    if given["level"].cast(pl.Int64, strict=False).null_count():
        yield Problem(what="a level is not a whole number", where=f'{where} "level"', remedy="write 1 or 2")
    if given["iteration_code"].is_duplicated().any() or given["iteration_code"].null_count():
        remedy = "give every iteration one row and one code"
        yield Problem(what="a code is missing or stands twice", where=f'{where} "iteration_code"', remedy=remedy)


def kinds_of(records: pl.DataFrame, races: Sequence[str], ethnicity: str) -> tuple[Ints, pl.DataFrame]:
    """Return the kind of each record, and each kind's race codes and ethnicity: one kind has the same codes."""
    texts = [pl.col(name).cast(pl.String).fill_null("") for name in (*races, ethnicity)]
    keys = records.select(pl.concat_str(texts, separator="\x1f").alias("key"))
    unique = keys.unique().sort("key").with_row_index("kind")
    kind = keys.join(unique, on="key", how="left", maintain_order="left")["kind"].to_numpy().astype(np.int64)
    split = unique["key"].str.split("\x1f")
    given = pl.DataFrame({"races": split.list.head(len(races)), "ethnicity": split.list.last()})
    races_given = pl.col("races").list.eval(pl.element().filter(pl.element() != "")).list.unique()
    return kind, given.with_columns(races_given)
