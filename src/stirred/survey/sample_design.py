"""The design of a file: which columns say how its sample was drawn, with the names of R's survey package."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stirred.spec.problems import Problem, SpecificationError, wrong

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Codes = NDArray[np.int64]
    Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleStage:
    """One stage of a sample, row by row: the stratum, the cluster, and how many clusters its stratum has.

    Codes count from 0 and are unique in the file: clusters are nested in strata, and stages in the stage before.
    ``sampled`` is the number of clusters drawn in the row's stratum; ``population`` is None where the stage has no
    finite population correction, and is then treated as drawn with replacement.
    """

    stratum: Codes
    unit: Codes
    sampled: Codes
    population: Numbers | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnSample:
    """A sample as drawn: its stages, the largest units first, and the design weight of every row."""

    stages: tuple[SampleStage, ...]
    weights: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyDesign:
    """The columns that say how a sample was drawn: ``ids, strata, fpc, weights, nest`` as in R's ``svydesign``.

    ``ids`` are the clusters, the largest first; none means that rows were drawn. ``fpc`` gives, stage by stage, the
    population size of the stratum (or the sampling fraction, if all are at most 1). Without ``weights`` they follow
    from ``fpc``. ``nest`` says that cluster numbers begin again in every stratum.

    >>> design = SurveyDesign(ids=("psu",), strata=("region",), fpc=("N",))
    >>> rows = {"psu": [1, 1, 2, 7, 8], "region": [1, 1, 1, 2, 2], "N": [10, 10, 10, 4, 4]}
    >>> drawn = design.drawn(rows)
    >>> drawn.stages[0].unit.tolist(), drawn.weights.tolist()
    ([0, 0, 1, 2, 3], [5.0, 5.0, 5.0, 2.0, 2.0])
    """

    ids: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    fpc: tuple[str, ...] = ()
    weights: str | None = None
    nest: bool = False

    def __post_init__(self) -> None:
        for name in ("ids", "strata", "fpc"):  # a plan has lists
            object.__setattr__(self, name, tuple(getattr(self, name)))
        stages = max(len(self.ids), 1)
        problems = [
            Problem(what=f"there are {len(given)} columns for {stages} stage{'s' if stages > 1 else ''}",
                    where=f"design {name}", remedy="give at most one column for each column of ids")
            for name, given in (("strata", self.strata), ("fpc", self.fpc)) if len(given) > stages
        ]  # fmt: skip
        if self.weights is None and len(self.fpc) < stages:
            what = "nothing says with which probability a row was drawn"
            problems.append(Problem(what=what, where="design weights", remedy="name weights, or fpc for every stage"))
        if problems:
            raise SpecificationError(problems)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that the design names."""
        return (*self.ids, *self.strata, *self.fpc, *([self.weights] if self.weights else []))

    def drawn(self, rows: Mapping[str, Any]) -> DrawnSample:
        """Return the sample by columns, checked: clusters nested in strata, one population size for each stratum."""
        import numpy as np

        absent = [name for name in self.columns if name not in rows]
        if absent:
            raise wrong(f"no column {absent[0]!r}", where="design", remedy="name columns of the sample")
        length = len(next(iter(rows.values()))) if rows else 0
        stages: list[SampleStage] = []
        sizes = self._sizes(rows)
        outer = np.zeros(length, dtype=np.int64)
        for k in range(max(len(self.ids), 1)):
            stratum = _codes(outer, rows[self.strata[k]]) if k < len(self.strata) else _codes(outer)
            own = rows[self.ids[k]] if self.ids else np.arange(length)
            inside = stratum if self.nest or k else np.zeros(length, dtype=np.int64)
            unit = _codes(inside, own)
            _check_nested(unit, stratum, where=self.ids[k] if self.ids else "rows")
            stages.append(self._stage(k, sizes, stratum, unit))
            outer = unit
        return DrawnSample(stages=tuple(stages), weights=self._weights(rows, stages))

    def _sizes(self, rows: Mapping[str, Any]) -> list[tuple[Numbers, bool]]:
        """Return the columns of fpc, and whether they are fractions: all of them are, or none."""
        given = [_numbers(rows[name], where=f"design fpc {name}") for name in self.fpc]
        fraction = all(bool((each <= 1).all()) for each in given)
        if not fraction and any(bool((each < 1).any()) for each in given):
            raise wrong("some values are fractions and some are sizes", where="design fpc", remedy="use one for all")
        return [(each, fraction) for each in given]

    def _stage(self, k: int, sizes: list[tuple[Numbers, bool]], stratum: Codes, unit: Codes) -> SampleStage:
        import numpy as np

        _, first = np.unique(unit, return_index=True)
        sampled = np.bincount(stratum[first], minlength=int(stratum.max(initial=0)) + 1)[stratum]
        if k >= len(sizes):
            return SampleStage(stratum=stratum, unit=unit, sampled=sampled, population=None)
        name, (given, fraction) = self.fpc[k], sizes[k]
        population = sampled / given if fraction else given
        _check_constant(population, stratum, where=f"design fpc {name}")
        if bool((population < sampled - 1e-9).any()):
            raise wrong(
                "a stratum has fewer units than were drawn from it", where=f"design fpc {name}",
                remedy="fpc is the number of units in the population stratum, or the share drawn",
            )  # fmt: skip
        return SampleStage(stratum=stratum, unit=unit, sampled=sampled, population=population)

    def _weights(self, rows: Mapping[str, Any], stages: list[SampleStage]) -> Numbers:
        import numpy as np

        if self.weights is not None:
            return _numbers(rows[self.weights], where=f"design weights {self.weights}", zero=True)
        rates = [stage.population / stage.sampled for stage in stages if stage.population is not None]
        return np.prod(np.stack(rates), axis=0) if rates else np.ones(0)


def _codes(outer: Any, inner: Any = None) -> Codes:
    """Return codes from 0 of the pairs of two columns, or of one, in order of first appearance by value."""
    import numpy as np

    _, first = np.unique(np.asarray(outer), return_inverse=True)
    if inner is None:
        return first.astype(np.int64)
    _, second = np.unique(np.asarray(inner), return_inverse=True)
    _, both = np.unique(first * (int(second.max(initial=0)) + 1) + second, return_inverse=True)
    return both.astype(np.int64)


def _numbers(column: Any, *, where: str, zero: bool = False) -> Numbers:
    import numpy as np

    try:
        given = np.asarray(column, dtype=np.float64)
        fine = bool((np.isfinite(given) & ((given >= 0) if zero else (given > 0))).all())
    except (TypeError, ValueError):
        fine = False
    if not fine:
        raise SpecificationError([*not_a_number(column, where=where, least=0, equal=zero)])
    return given


def not_a_number(
    column: Iterable[Any], *, where: str, least: float = -math.inf, equal: bool = False
) -> Iterator[Problem]:
    """Yield what is wrong with the first value that is not a finite number above ``least``.

    >>> print(*not_a_number(["1.5", "2,5"], where="rent"))
    rent: '2,5' in record 2 is not a number. Fix: write decimals with a point, and no signs for thousands.
    """
    for place, value in enumerate(column, 1):
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if math.isfinite(number) and (number > least or (equal and number == least)):
            continue
        what, remedy = "is not a number", "correct it"
        if math.isfinite(number):
            what = f"is {'below' if equal else 'not above'} {least:g}"
            remedy = "every record needs its number"
        elif "," in str(value):
            remedy = "write decimals with a point, and no signs for thousands"
        elif "%" in str(value):
            remedy = "write it without the percent sign"
        gap = value is None or value != value
        what, remedy = ("is missing", "every record needs its number") if gap else (what, remedy)
        shown = f"{'a value' if gap else repr(str(value)[:40])} in record {place} {what}"
        yield Problem(what=shown, where=where, remedy=remedy, public=f"a value in record {place} {what}")
        return


def _check_nested(unit: Codes, stratum: Codes, *, where: str) -> None:
    import numpy as np

    if np.unique(np.stack([unit, stratum]), axis=1).shape[1] != np.unique(unit).size:
        raise wrong(
            "a cluster stands in more than one stratum", where=f"design ids {where}",
            remedy="write nest = true if cluster numbers begin again in every stratum",
        )  # fmt: skip


def _check_constant(population: Numbers, stratum: Codes, *, where: str) -> None:
    import numpy as np

    _, first, back = np.unique(stratum, return_index=True, return_inverse=True)
    if not np.allclose(population, population[first][back]):
        raise wrong("a stratum has more than one population size", where=where, remedy="one value for each stratum")
