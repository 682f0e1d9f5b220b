"""Post-strata: classes of the population with public totals, to which estimates are calibrated.

With the sampled counts n held fixed the weights are N / n of the public totals N; otherwise estimates are calibrated
after the noise (``calibration``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.microdata import missing_column
from stirred.data.problems import PlanError, listed
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import Problem, StirredError
from stirred.survey.estimates.settings import Adjust, Estimate
from stirred.survey.refusals import EmptyCell, refusal

TOTAL: Final = "total"
WHERE: Final = "adjust totals"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """The classes as texts, with the public total of each; and the sampled counts, where they are held fixed."""

    frame: pl.DataFrame
    totals: tuple[Fraction, ...]
    counts: tuple[int, ...] | None = None

    @property
    def sizes(self) -> npt.NDArray[np.float64]:
        return np.array([float(total) for total in self.totals])

    def decide(self, estimate: Estimate) -> bool:
        """Say whether the class of a record decides its cell."""
        return {*estimate.by, *estimate.where} <= {*self.frame.columns}

    def reaching(self, estimate: Estimate, cell: Mapping[str, str]) -> npt.NDArray[np.bool_]:
        """Return which classes records of a cell can be in.

        >>> sexes = Classes(frame=pl.DataFrame({"sex": ["f", "m"]}), totals=(Fraction(1), Fraction(2)))
        >>> sexes.reaching(Estimate(kind="total", variable="y", by=["sex"]), {"sex": "m"}).tolist()
        [False, True]
        """
        wanted = {**{name: [cell[name]] for name in estimate.by}, **estimate.where}
        shared = wanted.keys() & {*self.frame.columns}
        return np.array([all(row[name] in wanted[name] for name in shared) for row in self.frame.rows(named=True)])


def read_classes(adjust: Adjust, file: pl.DataFrame) -> tuple[Classes, npt.NDArray[np.int64]]:
    """Return the classes of a totals file, and that of each record; raise all problems at once."""
    if problems := [*_table_problems(adjust)]:
        raise PlanError(problems)
    assert adjust.totals.frame is not None
    table, by = adjust.totals.frame, list(adjust.poststrata)
    own = file.select(pl.col(name).cast(pl.String) for name in by)
    numbered = table.select(by).with_row_index("__class")
    found = own.join(numbered, on=by, how="left", maintain_order="left")["__class"]
    if found.null_count():
        absent = own.filter(found.is_null()).unique().sort(by)
        what = f"{absent.height} classes of the sample have no total, such as {' '.join(absent.row(0))}"
        problems.append(Problem(what=what, where=WHERE, remedy="list every class that a record can be in",
                                public=f"{absent.height} classes of the sample have no total"))  # fmt: skip
    counts = np.bincount(found.drop_nulls().to_numpy(), minlength=table.height)
    sizes = tuple(fraction(given, where=WHERE) for given in table[TOTAL])
    known = [*zip((" ".join(row) for row in table.select(by).rows()), sizes, counts.tolist(), strict=True)]
    if less := [name for name, size, count in known if size < count]:
        what = f"the total of class {listed(less)} is below the number of its records in the sample"
        problems.append(Problem(what=what, where=WHERE, remedy="give units of the population"))
    held = tuple(counts.tolist()) if adjust.when == "counts-invariant" else None
    # After the noise an empty class is no error: a release that is refused for it would tell that no class is empty.
    if held and (empty := [name for name, _, count in known if not count]):
        remedy = "collapse it with another class, in the sample and in the totals"
        none = refusal(EmptyCell, f"no sampled record is in class {listed(empty)}", where=WHERE, remedy=remedy)
        problems += none.problems
        if len(problems) == 1:
            raise none
    if problems:
        raise PlanError(problems)
    return Classes(frame=table.select(by), totals=sizes, counts=held), found.cast(pl.Int64).to_numpy()


def _table_problems(adjust: Adjust) -> Iterator[Problem]:
    table = adjust.totals.frame
    if table is None:
        yield Problem(what="the file of totals was not read", where=WHERE, remedy="in Python give a data frame")
        return
    absent = [name for name in (*adjust.poststrata, TOTAL) if name not in table.columns]
    for name in absent:
        yield missing_column(name, table.columns, where=f"{adjust.totals.file} ({WHERE})", role="totals")
    if absent:
        return
    keys = table.select(adjust.poststrata)
    if keys.is_empty() or any(keys[name].null_count() for name in keys.columns) or keys.is_duplicated().any():
        yield Problem(what="a class stands twice, or is not named", where=WHERE, remedy="give each class one row")
    for place, given in enumerate(table[TOTAL].to_list(), start=1):
        if not _positive(given):
            yield Problem(what=f"{given!r} in row {place} is not a total above 0", where=WHERE, remedy="correct it")


def _positive(given: Any) -> bool:
    try:
        return given is not None and fraction(given, where=WHERE) > 0
    except StirredError:
        return False
