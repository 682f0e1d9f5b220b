"""`stirred survey estimate`: plain estimates of a sample, without noise, as R's survey package would print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from stirred.data.problems import number
from stirred.data.sources import read_toml
from stirred.mechanisms.protocol import Grid, Outcome, Progress
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import SpecificationError, wrong
from stirred.survey.linearise import Replicates, Statistic, replicate_scale, student, variance_of_sum
from stirred.survey.margins import adjusted, read_margins, residuals
from stirred.survey.sample_design import SurveyDesign, not_a_number

CONFIDENTIAL = "computed without noise: do not publish"
_FEW = 10  # texts are categories where more than one in so many is no number


def _option(described: str, form: str, default: Any = None) -> Any:
    return Field(default=default, description=described, json_schema_extra={"form": form})


class SurveyEstimateOptions(BaseModel):
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
    totals: Path | None = _option("Known totals, last column: weights are post-stratified to them, or raked.", "FILE")
    pps: Literal["brewer", "poisson"] | None = _option("Drawn with the probabilities of --fpc or --weights.", "NAME")
    confidence: float = _option("Of the intervals, which use Student's t.", "NUMBER", 0.95)
    lonely: Literal["fail", "remove", "certainty", "adjust", "average"] = _option(
        "What a stratum with one cluster counts, as R's survey.lonely.psu.", "NAME", "fail"
    )
    replicates: str | None = _option("Columns of replicate weights, used instead of linearisation.", "PATTERN")
    replicate_type: str = _option(
        "brr, fay, jk1, jk2, jkn, acs, successive-difference, bootstrap or other.", "NAME", "brr"
    )
    rho: float | None = _option("fay: by how much a replicate's weights shrink.", "NUMBER")
    scale: float | None = _option("Of the replicates' squared deviations: jk1, jkn, bootstrap, other.", "NUMBER")
    rscales: str | None = _option("A scale of each replicate's own.", "NUMBER[,...]")
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
class SurveyEstimate:
    """One estimate: of which kind, of what, in which domain, with its standard error and the records behind it."""

    kind: str
    variable: str
    level: str | None
    domain: dict[str, str]
    estimate: float
    se: float
    reach: float  # of the interval, in standard errors
    records: int

    @property
    def interval(self) -> tuple[float, float]:
        """Return the ends of the interval."""
        return self.estimate - self.reach * self.se, self.estimate + self.reach * self.se

    @property
    def values(self) -> dict[str, Any]:
        """Return it for JSON."""
        (low, high), cv = self.interval, abs(self.se / self.estimate) if self.estimate else float("nan")
        numbers = {"estimate": self.estimate, "se": self.se, "cv": cv, "lci": low, "uci": high}
        own = {"kind": self.kind, "variable": self.variable, "level": self.level, "by": self.domain}
        known = {name: None if np.isnan(number) else number for name, number in numbers.items()}
        return {**own, **known, "records": self.records}


class Sample:
    """A sample with its design, from which estimates are made."""

    def __init__(self, rows: pl.DataFrame, options: SurveyEstimateOptions) -> None:
        design = options.drawn_by()
        self.rows, self.lonely, self.pps = rows, options.lonely, options.pps
        known = [name for name in design.columns if name in rows.columns]
        if gaps := [name for name in known if rows[name].null_count()]:
            raise wrong(f"column {gaps[0]!r} has missing values", where="design", remedy="every row needs its design")
        self.drawn = design.drawn({name: rows[name].to_list() for name in known}, unequal=self.pps is not None)
        own = design.ids or design.strata or options.totals or bool((self.drawn.weights < 1).any())
        if self.pps == "poisson" and own:
            what = "a Poisson sample has no clusters, strata or --totals here, and no weight below 1"
            raise wrong(what, where="pps", remedy="give --fpc (its probabilities) or --weights alone")
        if self.pps == "brewer" and not design.fpc:
            raise wrong("the probabilities are not named", where="fpc", remedy="name their column with --fpc")
        self.weights, self.replicates = self.drawn.weights, _replicates(options, rows, design.weights)
        self.margins = None if options.totals is None else read_margins(_read(options.totals), rows)
        if self.margins is not None:
            if bool((self.weights == 0).any()) and self.replicates is None:  # R scores such a row by its class's mean
                raise wrong("weights of 0 cannot be adjusted to totals", where="totals", remedy="leave the rows out")
            self.weights = adjusted(self.weights, self.margins)
            if self.replicates is not None:
                each = [adjusted(column, self.margins) for column in self.replicates.weights.T]
                self.replicates = replace(self.replicates, weights=np.stack(each, axis=1))

    def freedom(self, rows: NDArray[np.bool_]) -> int:
        """Return the degrees of freedom of a subset: its clusters without strata, or its replicates' rank less one."""
        if self.replicates is not None:
            return int(np.linalg.matrix_rank(self.replicates.weights[rows], rtol=1e-5)) - 1
        first, some = self.drawn.stages[0], (self.weights != 0) & rows
        return len(np.unique(first.unit[some])) - len(np.unique(first.stratum[some]))

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
            missing = number(int((~known).sum()), "record has", "records have")
            raise wrong(
                f"{missing} no value of {name!r}", where=where, remedy="leave them out with --na-rm, or impute them"
            )
        numbers = column.cast(pl.Float64, strict=False)
        if numbers.null_count() == column.null_count():
            if odd := [*not_a_number(column.fill_null(0), where=f"{where} {name}")]:
                raise SpecificationError(odd)
            yield None, numbers.fill_null(0.0).to_numpy(), known
            return
        texts = column.cast(pl.String)
        _check_texts(texts.drop_nulls(), where=f"{where} {name}")
        for value in _values(texts):
            yield value, (texts == value).fill_null(value=False).to_numpy().astype(np.float64), known

    def estimated(self, statistic: Statistic) -> tuple[float, float]:
        """Return an estimate and its standard error."""
        value = statistic.value(self.weights)
        return value, value if np.isnan(value) else float(np.sqrt(self._variance(statistic)))

    def _variance(self, statistic: Statistic) -> float:
        if self.replicates is not None:
            return self.replicates.variance(statistic, self.weights)
        scores, inside = statistic.scores(self.weights), statistic.inside
        if self.margins is not None:
            scores = residuals(scores, self.margins, self.drawn.weights, self.weights)
        if self.pps == "poisson":
            return float(((1 - 1 / self.drawn.weights) * scores**2).sum())
        whole = self.margins is not None or self.pps is not None  # R then keeps the rows outside a domain
        return variance_of_sum(scores, self.drawn, lonely=self.lonely, inside=None if whole else inside)

    def domains(
        self, by: Sequence[str], *, full: bool = False, where: str = "by"
    ) -> Iterator[tuple[dict[str, str], NDArray[np.bool_]]]:
        """Yield the domains that columns form, with their rows; ``full`` also those with nobody in them."""
        texts = [self.column(name, where=where).cast(pl.String) for name in by]
        for values in product(*(_values(text) for text in texts)):
            inside = np.ones(self.rows.height, dtype=bool)
            for text, value in zip(texts, values, strict=True):
                inside &= (text == value).fill_null(value=False).to_numpy()
            if full or bool((self.weights[inside] > 0).any()):
                yield dict(zip(by, values, strict=True)), inside


def estimate(options: SurveyEstimateOptions, _: Progress | None) -> Outcome:
    """Estimate from a sample without noise, to check against R."""
    if not 0 < options.confidence < 1:
        raise wrong(f"{options.confidence} is not a confidence", where="confidence", remedy="write such as 0.95")
    rows = _read(options.file)
    sample = Sample(rows, options)
    chosen = _chosen(sample, options.where)
    freedom = sample.freedom(chosen)
    found = [*_estimates(sample, options, chosen, student(options.confidence, freedom))]
    if not found:
        raise wrong("nothing is asked for", where="total", remedy="name columns with --total, --mean, --ratio, --table")
    names = () if sample.replicates is None else sample.replicates.names
    grids = [_grid(kind, [e for e in found if e.kind == kind]) for kind in dict.fromkeys(e.kind for e in found)]
    values = {"estimates": [e.values for e in found], "records": rows.height, "degrees_of_freedom": freedom,
              "replicates": len(names), "confidential": True, "note": CONFIDENTIAL}  # fmt: skip
    used = [("replicates", f"{_used(names)}, taken as {options.replicate_type}")] if names else []
    return Outcome(rows=[("confidential", CONFIDENTIAL), *used], grids=grids, values=values)


def _used(names: Sequence[str]) -> str:
    """Say how many columns are replicates, and which.

    >>> _used(["W1", "W2", "W3"])
    '3 columns: W1 to W3'
    """
    return f"{len(names)} columns: {names[0]} to {names[-1]}"


def _read(file: Path) -> pl.DataFrame:
    return read_frame(file).with_columns(pl.col(pl.String).replace("NA", None))  # as R reads a file


def _estimates(
    sample: Sample, options: SurveyEstimateOptions, chosen: NDArray[np.bool_], reach: float
) -> Iterator[SurveyEstimate]:
    ones = np.ones(sample.rows.height)

    def of(
        kind: str, name: str, level: str | None, domain: dict[str, str], statistic: Statistic, own: Any = True
    ) -> SurveyEstimate:
        value, se = sample.estimated(statistic)
        return SurveyEstimate(
            kind=kind, variable=name, level=level, domain=domain, estimate=value, se=se, reach=reach,
            records=int((statistic.inside & own).sum()),
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
            for cell, rows_of_cell in sample.domains(_names(options.table), full=True, where="table"):
                statistic = Statistic(y=ones * rows_of_cell, x=None, inside=inside)
                yield of("table", options.table, None, {**domain, **cell}, statistic, rows_of_cell)


def _check_texts(texts: pl.Series, *, where: str) -> None:
    """Refuse a column of numbers of which some cannot be read: each number would count as a category of its own."""
    numbers = texts.str.replace(",", ".", literal=True).str.strip_suffix("%").cast(pl.Float64, strict=False)
    if numbers.null_count() * _FEW < texts.len():
        raise SpecificationError([*not_a_number(texts, where=where)])


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


def _replicates(options: SurveyEstimateOptions, rows: pl.DataFrame, weight: str | None) -> Replicates | None:
    if options.replicates is None:
        if lost := [n for n in ("rho", "scale", "rscales", "mse") if getattr(options, n) not in (None, False)]:
            raise wrong("it is of replicate weights", where=lost[0], remedy="name their columns with --replicates")
        return None
    patterns = _names(options.replicates)  # 'W*' also matches the weight W itself, which is not a replicate
    names = [name for name in rows.columns if name != weight and any(fnmatchcase(name, each) for each in patterns)]
    if len(names) < 2:
        raise wrong(f"{len(names)} columns match", where="replicates", remedy="a pattern such as 'rep*' of 2 or more")
    if options.weights is None and options.design is None:
        raise wrong("replicates go with the weights of the estimate", where="weights", remedy="name their column")
    own = rows.select(pl.col(names).cast(pl.Float64, strict=False))
    if odd := [each for name in names for each in not_a_number(rows[name], where=f"replicates {name}")]:
        raise SpecificationError(odd)
    kind, scale = options.replicate_type, replicate_scale(options.replicate_type, len(names), rho=options.rho)
    if options.scale is not None and kind not in ("jk1", "jkn", "bootstrap", "other"):
        raise wrong(f"{kind} has its own scale", where="scale", remedy="leave it out, or write --replicate-type other")
    given = [fraction(each, where="rscales") for each in _names(options.rscales)]
    if (given and (len(given) != len(names) or min(given) < 0)) or (kind == "jkn" and not given):
        what = f"there are {len(given)} scales for {len(names)} replicates, or one is below 0"
        raise wrong(what, where="rscales", remedy="one for each column; of jkn (n-1)/n of its stratum")
    rscales = np.array([float(each) for each in given]) if given else np.ones(len(names))
    scale = scale if options.scale is None else options.scale
    return Replicates(names=tuple(names), weights=own.to_numpy(), scale=scale, rscales=rscales, mse=options.mse)


def _grid(kind: str, found: Sequence[SurveyEstimate]) -> Grid:
    by = [*dict.fromkeys(name for e in found for name in e.domain)]
    header = (*by, *(() if kind == "table" else ("",)), "total" if kind == "table" else kind, "SE", "from", "to")
    rows = []
    for e in found:
        label = () if kind == "table" else (f"{e.variable}{e.level or ''}",)
        rows.append((*(e.domain[n] for n in by), *label, *(_digits(x) for x in (e.estimate, e.se, *e.interval))))
    return Grid(header=header, rows=tuple(rows), numbers=header[-4:])


def _digits(number: float) -> str:
    """Write seven digits or all whole ones, as R does, and no power of ten for large numbers.

    >>> _digits(18809741.24), _digits(0.38183603), _digits(40.0)
    ('18809741', '0.381836', '40')
    """
    return f"{number:.0f}" if abs(number) >= 1e7 else f"{number:.7g}"


def _names(given: str | Sequence[str] | None) -> list[str]:
    parts = given.split(",") if isinstance(given, str) else list(given or ())
    return [part.strip() for part in parts if part.strip()]


def _values(texts: pl.Series) -> list[str]:
    return sorted_values(texts.drop_nulls().unique()).to_list()
