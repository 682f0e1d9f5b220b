"""`stirred survey estimate`: plain estimates of a sample, without noise, as R's survey package would print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from stirred.data.frames import read_frame
from stirred.data.natural import sorted_values
from stirred.data.sources import read_toml
from stirred.mechanisms.protocol import Grid, Outcome, Progress
from stirred.spec.problems import Problem, SpecificationError, wrong
from stirred.survey.linearise import Replicates, Statistic, replicate_scale, variance_of_sum
from stirred.survey.sample_design import SurveyDesign

CONFIDENTIAL = "computed without noise: do not publish"


def _option(described: str, form: str, default: Any = None) -> Any:
    return Field(default=default, description=described, json_schema_extra={"form": form})


class EstimateOptions(BaseModel):
    """`stirred survey estimate`."""

    file: Path = Field(description="The sample, one row for each record.", json_schema_extra={"argument": "FILE"})
    design: Path | None = _option("A plan.toml or other TOML file whose section [design] names the columns.", "FILE")
    ids: str | None = _option("Columns of the clusters, the largest first; none if rows were drawn.", "COLUMN[,...]")
    strata: str | None = _option("Columns of the strata, stage by stage.", "COLUMN[,...]")
    fpc: str | None = _option("Columns of population sizes or sampling fractions.", "COLUMN[,...]")
    weights: str | None = _option("Column of the weights; left out, they follow from --fpc.", "COLUMN")
    nest: bool = Field(default=False, description="Cluster numbers begin again in every stratum.")
    total: str | None = _option("Totals of columns; of a column of texts, by value.", "COLUMN[,...]")
    mean: str | None = _option("Means of columns; of a column of texts, the share of each value.", "COLUMN[,...]")
    ratio: str | None = _option("Ratios of totals.", "COLUMN/COLUMN[,...]")
    table: str | None = _option("A weighted table of these columns.", "COLUMN[,...]")
    by: str | None = _option("In each domain that these columns form.", "COLUMN[,...]")
    where: str | None = _option("Only records with this value, or one of several.", "COLUMN=VALUE[,...]")
    na_rm: bool = Field(default=False, description="Leave out missing values; otherwise they are refused.")
    lonely: Literal["fail", "remove", "certainty", "adjust", "average"] = _option(
        "What a stratum with one cluster counts, as R's survey.lonely.psu.", "NAME", "fail"
    )
    replicates: str | None = _option("Columns of replicate weights, used instead of linearisation.", "PATTERN")
    replicate_type: str = _option("brr, fay, jk1, jk2, acs, successive-difference or bootstrap.", "NAME", "brr")
    rho: float = _option("fay: by how much a replicate's weights shrink.", "NUMBER", 0.0)
    scale: float | None = _option("Of the replicates' squared deviations, instead of that of their type.", "NUMBER")
    mse: bool = Field(default=False, description="Replicates deviate from the estimate, not from their mean.")

    def drawn_by(self) -> SurveyDesign:
        """Return the design that the options name, or the section [design] of a file."""
        own: dict[str, Any] = {name: _names(getattr(self, name)) for name in ("ids", "strata", "fpc")}
        given = {name: value for name, value in own.items() if value and value not in (["0"], ["1"])}  # R's ids = ~1
        if self.design is None:
            return SurveyDesign(**given, weights=self.weights, nest=self.nest)
        if given or self.weights or self.nest:
            raise wrong("the design is given twice", where="design", remedy="name a file, or the columns")
        section = read_toml(self.design, called="the design").get("design", {})
        if unknown := [name for name in section if name not in ("ids", "strata", "fpc", "weights", "nest")]:
            raise wrong(f"there is no setting called {unknown[0]!r}", where="design", remedy="ids, strata, fpc, ...")
        lists: dict[str, Any] = {name: _names(section[name]) for name in ("ids", "strata", "fpc") if name in section}
        return SurveyDesign(**lists, weights=section.get("weights"), nest=section.get("nest", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """One estimate: of which kind, of what, in which domain, with its standard error and the records behind it."""

    kind: str
    variable: str
    level: str | None
    domain: dict[str, str]
    estimate: float
    se: float
    records: int

    @property
    def values(self) -> dict[str, Any]:
        """Return it for JSON."""
        number = {name: None if np.isnan(v) else v for name, v in (("estimate", self.estimate), ("se", self.se))}
        known = number["estimate"] and number["se"] is not None
        cv = abs(self.se / self.estimate) if known else None
        own = {"kind": self.kind, "variable": self.variable, "level": self.level, "by": self.domain}
        return {**own, **number, "cv": cv, "records": self.records}


class Sample:
    """A sample with its design, from which estimates are made."""

    def __init__(
        self, rows: pl.DataFrame, design: SurveyDesign, *, lonely: str = "fail", replicates: Replicates | None = None
    ) -> None:
        self.rows, self.lonely, self.replicates = rows, lonely, replicates
        known = [name for name in design.columns if name in rows.columns]
        if gaps := [name for name in known if rows[name].null_count()]:
            raise wrong(f"column {gaps[0]!r} has missing values", where="design", remedy="every row needs its design")
        self.drawn = design.drawn({name: rows[name].to_list() for name in known})

    def column(self, name: str, *, where: str) -> pl.Series:
        """Return a column; refuse one that is not there."""
        if name not in self.rows.columns:
            raise wrong(f"no column {name!r}", where=where, remedy=f"one of {', '.join(self.rows.columns)}")
        return self.rows[name]

    def quantities(self, name: str, *, where: str, na_rm: bool) -> Iterator[tuple[str | None, Any, Any]]:
        """Yield the numbers of a column, or of texts an indicator of each value, with the rows where it is known."""
        column = self.column(name, where=where)
        known = column.is_not_null().to_numpy()
        if not known.all() and not na_rm:
            what = f"column {name!r} has {int((~known).sum())} missing values"
            raise wrong(what, where=where, remedy="leave them out with --na-rm, or impute them")
        numbers = column.cast(pl.Float64, strict=False)
        if numbers.null_count() == column.null_count():
            if not bool(numbers.drop_nulls().is_finite().all()):
                raise wrong(f"column {name!r} has a value that is not a finite number", where=where, remedy="check it")
            yield None, numbers.fill_null(0.0).to_numpy(), known
            return
        texts = column.cast(pl.String)
        for value in _values(texts):
            yield value, (texts == value).fill_null(value=False).to_numpy().astype(np.float64), known

    def estimated(self, statistic: Statistic) -> tuple[float, float]:
        """Return an estimate and its standard error."""
        weights = self.drawn.weights
        value = statistic.value(weights)
        if np.isnan(value):
            return value, value
        if self.replicates is not None:
            return value, float(np.sqrt(self.replicates.variance(statistic, weights)))
        return value, float(np.sqrt(variance_of_sum(statistic.scores(weights), self.drawn, lonely=self.lonely)))

    def domains(self, by: Sequence[str], *, full: bool = False) -> Iterator[tuple[dict[str, str], NDArray[np.bool_]]]:
        """Yield the domains that columns form, with their rows; ``full`` also those with nobody in them."""
        texts = [self.column(name, where="by").cast(pl.String) for name in by]
        for values in product(*(_values(text) for text in texts)):
            inside = np.ones(self.rows.height, dtype=bool)
            for text, value in zip(texts, values, strict=True):
                inside &= (text == value).fill_null(value=False).to_numpy()
            if full or inside.any():
                yield dict(zip(by, values, strict=True)), inside


def estimate(options: EstimateOptions, _: Progress | None) -> Outcome:
    """Estimate from a sample without noise, to check against R."""
    design = options.drawn_by()
    rows = read_frame(options.file).with_columns(pl.col(pl.String).replace("NA", None))  # as R reads a file
    sample = Sample(rows, design, lonely=options.lonely, replicates=_replicates(options, rows))
    found = [*_estimates(sample, options)]
    if not found:
        raise wrong("nothing is asked for", where="total", remedy="name columns with --total, --mean, --ratio, --table")
    grids = [_grid(kind, [e for e in found if e.kind == kind]) for kind in dict.fromkeys(e.kind for e in found)]
    first = sample.drawn.stages[0]
    freedom = len(np.unique(first.unit)) - len(np.unique(first.stratum))
    values = {"estimates": [e.values for e in found], "records": rows.height, "degrees_of_freedom": freedom,
              "confidential": True, "note": CONFIDENTIAL}  # fmt: skip
    return Outcome(rows=[("confidential", CONFIDENTIAL)], grids=grids, values=values)


def _estimates(sample: Sample, options: EstimateOptions) -> Iterator[Estimated]:
    chosen = _chosen(sample, options.where)
    ones = np.ones(sample.rows.height)

    def of(kind: str, name: str, level: str | None, domain: dict[str, str], statistic: Statistic) -> Estimated:
        value, se = sample.estimated(statistic)
        records = int(statistic.inside.sum())
        return Estimated(
            kind=kind, variable=name, level=level, domain=domain, estimate=value, se=se, records=records
        )  # fmt: skip

    for domain, rows in sample.domains(_names(options.by)):
        inside = rows & chosen
        for kind, names in (("total", options.total), ("mean", options.mean)):
            for name in _names(names):
                for level, y, known in sample.quantities(name, where=kind, na_rm=options.na_rm):
                    x = ones if kind == "mean" else None
                    yield of(kind, name, level, domain, Statistic(y=y, x=x, inside=inside & known))
        for name in _names(options.ratio):
            top, below, known = _ratio(sample, name, na_rm=options.na_rm)
            yield of("ratio", name, None, domain, Statistic(y=top, x=below, inside=inside & known))
        if options.table is not None:
            for cell, rows_of_cell in sample.domains(_names(options.table), full=True):
                statistic = Statistic(y=ones, x=None, inside=inside & rows_of_cell)
                yield of("table", options.table, None, {**domain, **cell}, statistic)


def _ratio(sample: Sample, name: str, *, na_rm: bool) -> tuple[Any, Any, Any]:
    parts = [part.strip() for part in name.split("/")]
    if len(parts) != 2:
        raise wrong(
            f"{name!r} is not a ratio", where="ratio", remedy="write two columns, such as --ratio income/persons"
        )
    (one, y, known), (other, x, known_too) = (
        next(sample.quantities(part, where="ratio", na_rm=na_rm)) for part in parts
    )
    if one is not None or other is not None:
        raise wrong(f"a column of {name!r} has texts", where="ratio", remedy="name two columns of numbers")
    return y, x, known & known_too


def _chosen(sample: Sample, where: str | None) -> Any:
    if where is None:
        return np.ones(sample.rows.height, dtype=bool)
    name, equals, values = where.partition("=")
    if not equals:
        raise wrong(f"{where!r} is not a condition", where="where", remedy="write such as --where region=North,South")
    column = sample.column(name.strip(), where="where").cast(pl.String)
    if absent := [v for v in _names(values) if not bool((column == v).any())]:
        raise wrong(f"no record has {name} {absent[0]!r}", where="where", remedy="name values that occur")
    return column.is_in(_names(values)).fill_null(value=False).to_numpy()


def _replicates(options: EstimateOptions, rows: pl.DataFrame) -> Replicates | None:
    if options.replicates is None:
        return None
    names = [name for name in rows.columns if any(fnmatchcase(name, each) for each in _names(options.replicates))]
    if len(names) < 2:
        raise wrong(f"{len(names)} columns match", where="replicates", remedy="a pattern such as 'rep*' of 2 or more")
    if options.weights is None and options.design is None:
        raise wrong("replicates go with the weights of the estimate", where="weights", remedy="name their column")
    own = rows.select(pl.col(names).cast(pl.Float64, strict=False))
    if any(own[name].null_count() for name in names):
        raise SpecificationError([Problem(what="a replicate weight is not a number", where="replicates", remedy="")])
    scale, mse = replicate_scale(options.replicate_type, len(names), rho=options.rho)
    return Replicates(weights=own.to_numpy(), scale=options.scale or scale, mse=options.mse or mse)


def _grid(kind: str, found: Sequence[Estimated]) -> Grid:
    by = [*dict.fromkeys(name for e in found for name in e.domain)]
    header = (*by, *(() if kind == "table" else ("",)), "total" if kind == "table" else kind, "SE")
    rows = []
    for e in found:
        label = () if kind == "table" else (f"{e.variable}{e.level or ''}",)
        rows.append((*(e.domain[name] for name in by), *label, f"{e.estimate:.7g}", f"{e.se:.7g}"))
    return Grid(header=header, rows=tuple(rows), numbers=header[-2:])


def _names(given: str | Sequence[str] | None) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else list(given or ())
    return [part.strip() for part in parts if part.strip()]


def _values(texts: pl.Series) -> list[str]:
    return sorted_values(texts.drop_nulls().unique()).to_list()
