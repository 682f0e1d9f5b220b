"""What is wrong with settings, samples, written estimates and bundles; and the sample as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.columns import select
from stirred.data.frames import as_read, read_frame
from stirred.data.microdata import Microdata, as_microdata, missing_column
from stirred.data.problems import DataError, listed, number
from stirred.data.record_doubts import PublishedTable, clamped_doubts
from stirred.mechanisms.protocol import Check, Written, failed
from stirred.mechanisms.tables.engine import audit_promise, audit_records
from stirred.mechanisms.tables.query import are_declared
from stirred.spec.doubts import Doubt
from stirred.spec.given_numbers import finite_loss, fraction
from stirred.spec.invariant import Invariant, Named
from stirred.spec.multiverse import Multiverse
from stirred.spec.problems import Problem, StirredError, wrong
from stirred.spec.spelling import meant
from stirred.survey.estimates import published
from stirred.survey.estimates.classes import TOTAL, Classes, read_classes
from stirred.survey.estimates.draw import check_draw, weight_ends
from stirred.survey.estimates.measure import Rows, added, all_columns, in_steps, inside_of, nearest
from stirred.survey.estimates.promise import SurveyPromise
from stirred.survey.estimates.published import LABELS, NUMBERS
from stirred.survey.estimates.queries import EstimateQueries, Public
from stirred.survey.estimates.settings import ATTESTED, Estimate, pair, place, setting_of
from stirred.survey.refusals import DataDependentSensitivity, WeightsNotFixed, refusal
from stirred.survey.sample_design import DrawnSample, SurveyDesign, not_a_number
from stirred.survey.settings import ELEVENTH, Setting

WAYS_OUT: Final = (
    "use design weights and calibrate after the noise ([adjust] when = 'after-noise'), or hold the counts of the "
    "classes fixed (when = 'counts-invariant')"
)
_CLOSE: Final = 1e-6


def settings_problems(mechanism: SurveyPromise) -> Iterator[Problem]:
    """Yield everything that is wrong with the settings themselves."""
    setting = setting_of(mechanism.setting)
    if finite_loss(mechanism.epsilon, where="epsilon") <= 0:
        yield Problem(what=f"{mechanism.epsilon} is not above 0", where="epsilon", remedy="write a number above 0")
    mechanism.sure  # noqa: B018 (a wrong confidence is refused with the plan)
    if not mechanism.estimates:
        yield Problem(
            what="is needed", where="estimates", remedy="add [[estimates]] kind = 'total' and so on to a plan"
        )
    titles = [each.title for each in mechanism.estimates]
    for each in mechanism.estimates:
        where = place(each, mechanism.estimates)
        yield from _estimate_problems(each, mechanism.values, where)
        if titles.count(each.title) > 1:
            yield Problem(what="is asked for twice", where=where, remedy="name it once")
    if mechanism.tables:
        what = "its tables are weighted, and stand among the estimates"
        yield Problem(what=what, where="tables", remedy="write [[estimates]] kind = 'table' and by")
    if not 0 < fraction(mechanism.variance_share, where="variance_share") < 1:
        yield Problem(what="it is not between 0 and 1", where="variance_share", remedy="write such as '1/5'")
    if mechanism.grid <= 0:
        yield Problem(what="it is not above 0", where="weight_grid", remedy="write such as '1/100'")
    try:
        mechanism.copies  # noqa: B018
    except StirredError as error:
        yield from error.problems
    if mechanism.donor_cap is not None and mechanism.imputation != "hot-deck":
        yield Problem(what="only a hot deck has donors", where="donor_cap", remedy="write imputation = 'hot-deck'")
    yield from _adjust_problems(mechanism, setting)
    yield from _attest_problems(mechanism, setting)


def _adjust_problems(mechanism: SurveyPromise, setting: Setting) -> Iterator[Problem]:
    adjust = mechanism.adjust
    if adjust is None:
        return
    if used := [name for name in adjust.poststrata if name in (*LABELS, *NUMBERS, TOTAL, "count", "table")]:
        yield Problem(what=f"files of estimates have their own {used[0]!r}", where="adjust", remedy="rename the column")
    for each in mechanism.estimates:
        if each.kind == "table" and {*each.by, *each.where} <= {*adjust.poststrata}:
            what = "the public totals already give this table"
            yield Problem(what=what, where=place(each, mechanism.estimates), remedy="leave it out")
    if adjust.when == "counts-invariant" and "sampling" in setting.amplifiers:
        yield Problem(
            what="the counts of the sample are held fixed, so the promise cannot start before the sample",
            where="setting", remedy="start at the sample, or calibrate after the noise (when = 'after-noise')",
        )  # fmt: skip
    if adjust.when == "counts-invariant" and mechanism.weight_bounds is not None:
        what = "the weights are total / count of each class, which are public"
        yield Problem(what=what, where="weight_bounds", remedy="leave it out")


def _estimate_problems(each: Estimate, declared: Any, where: str) -> Iterator[Problem]:
    if each.kind != "table" and each.variable is None:
        yield Problem(what=f"a {each.kind} is of a variable", where=where, remedy="name it with variable")
    if each.kind == "table" and (each.variable is not None or not (each.by or each.where)):
        yield Problem(what="a table is of the columns of by", where=where, remedy="write by, and no variable")
    if each.kind != "ratio" and (each.denominator or each.denominator_bounds or each.ratio_bounds):
        yield Problem(what="only a ratio has a denominator", where=where, remedy="write kind = 'ratio'")
    if each.kind == "ratio" and each.denominator is None:
        yield Problem(what="a ratio needs a denominator", where=where, remedy="name it, with denominator_bounds")
    if used := [name for name in each.by if name in (*LABELS, *NUMBERS)]:
        yield Problem(what=f"the file of estimates has its own {used[0]!r}", where=where, remedy="rename the column")
    # Of values that no record can have the estimate would be noise alone.
    for name, values in each.where.items():
        known = [str(value) for value in declared.get(name, values)]
        for value in values:
            if str(value) not in known:
                what = f'"{name}" cannot be {value!r}: its declared values are {listed(known)}'
                remedy = meant(str(value), known).rstrip() or "name one of them, or declare this one too"
                yield Problem(what=what, where=where, remedy=remedy)


def _attest_problems(mechanism: SurveyPromise, setting: Setting) -> Iterator[Problem]:
    if unknown := [name for name in mechanism.attest if name not in ATTESTED]:
        yield Problem(what=f"there is nothing called {unknown[0]!r}", where="attest", remedy=", ".join(ATTESTED))
    held = mechanism.adjust is not None and mechanism.adjust.when == "counts-invariant"
    needed = ["design-weights"] if setting.weights_fixed and not held else []
    needed += ["fixed-donors"] if mechanism.donor_cap is not None else []
    if setting.start == "population":
        yield Problem(
            what="with whom a changed population would fill the frame is not known, so nothing can be promised for it",
            where="setting", remedy="start at the frame (frame/frame-variables) or at the sample",
        )  # fmt: skip
    elif setting.start == "frame":
        needed += ["random-sample", "secret-sample"]
        if not mechanism.sampling:
            yield Problem(
                what="sampling amplifies here, and the draw is not stated", where="sampling",
                remedy="write sampling = {design = 'srswor', n = 100, N = 1000}",
            )  # fmt: skip
        if mechanism.sample is None:
            yield Problem(
                what="sampling amplifies here, and releases of the same sample are added up first: its name is needed",
                where="sample", remedy="write sample = the name of the sample in the ledger, such as 'acs-2020'",
            )  # fmt: skip
        if mechanism.sampling and setting != ELEVENTH and not mechanism.equal:
            yield Problem(
                what=f"in setting {setting.number} a unit can change its stratum, and then all weights vary with the "
                "frame: its loss is not known", where="setting", remedy="hold the frame variables fixed "
                "(frame/frame-variables), or draw by srswor, where all weights are N/n whatever the frame says",
            )  # fmt: skip
    elif mechanism.sampling or mechanism.sample is not None:
        what = f"the promise starts at the {setting.start}, where the draw protects nobody further"
        yield Problem(what=what, where="sampling", remedy="leave sampling and sample out, or use setting 11")
    for name in needed:
        if name not in mechanism.attest:
            ways = f"; otherwise {WAYS_OUT}" if name == "design-weights" else ""
            yield Problem(
                what=f"nobody vouches that {ATTESTED[name]}", where="attest",
                remedy=f"add {name!r} to attest if it is so{ways}",
            )  # fmt: skip


def design_of(data: Microdata) -> SurveyDesign:
    """Return the design of a sample."""
    if not data.design:
        remedy = "name the columns under [design]: ids, strata, fpc, weights"
        raise wrong("a sample without a design", where="design", remedy=remedy)
    return SurveyDesign(**data.design)


def check(mechanism: SurveyPromise, data: Any) -> None:
    """Raise all problems of a file's columns with these settings; nothing is computed."""
    data = as_microdata(data)
    file, design, problems = data.households, design_of(data), []
    numeric = {name for each in mechanism.estimates for name in (each.variable, each.denominator) if name}
    for name in dict.fromkeys([*mechanism.sample_columns, *design.columns]):
        if name not in file.columns:
            problems.append(_missing(mechanism, name, data))
        elif missing := file[name].null_count():
            what = f"{number(missing, 'record')} {'has' if missing == 1 else 'have'} no value"
            remedy = (
                "every record needs its design" if name in design.columns else "fill it in, and say how with imputation"
            )
            problems.append(Problem(what=what, where=f'"{name}"', remedy=remedy))
        elif name in numeric and not _finite(file[name]):
            problems += not_a_number(file[name], where=f'"{name}"')
    problems += _imputation_problems(mechanism, file)
    if problems:
        raise DataError(problems)


def _missing(mechanism: SurveyPromise, name: str, data: Microdata) -> Problem:
    """Return the problem of a column that the file does not have, by the first entry or section that wants it."""
    source, where, role = data.household_source, "", "estimates"
    if first := next((each for each in mechanism.estimates if name in each.columns), None):
        where = place(first, mechanism.estimates)
        role = "by" if name in first.by else "where" if name in first.where else "variable"
    elif mechanism.adjust is not None and name in mechanism.adjust.poststrata:
        where, role = "adjust.poststrata", "poststrata"
    found = missing_column(name, [*data.households.columns], where=source, role=role)
    return replace(found, where=f"{where} ({source})" if where else f"{source} ({role})")


def _imputation_problems(mechanism: SurveyPromise, file: Any) -> Iterator[Problem]:
    """Yield flags of imputed answers about which the plan says nothing; a column `x_imputed` is taken as that of x."""
    flags = [f"{name}_imputed" for name in all_columns(mechanism.estimates)]
    for name in [mechanism.imputed] if mechanism.imputed else ["imputed", *flags]:
        if mechanism.imputation != "none" or name not in file.columns:
            continue
        if (file[name].cast(pl.String).is_in(["0", "0.0", "false", ""]).not_()).any():
            yield Problem(
                what=f'"{name}" marks answers that were filled in, and nothing says how', where="imputation",
                remedy="write imputation = 'own-values' if each was filled in from the record's own answers alone; "
                "'hot-deck' with donor_cap if answers were copied; or leave these records out",
            )  # fmt: skip


def _finite(column: pl.Series) -> bool:
    numbers = column.cast(pl.Float64, strict=False)
    return not numbers.null_count() and bool(numbers.is_finite().all())


def sampled(mechanism: SurveyPromise, data: Microdata) -> tuple[Rows, Public]:
    """Return the records as whole numbers, and what is public of the sample."""
    setting, design = mechanism.stage, design_of(data)
    drawn = design.drawn({name: data.households[name].to_list() for name in design.columns})
    if not bool((drawn.weights > 0).all()):
        raise wrong("a weight is 0", where=f"design weights {design.weights}", remedy="leave the record out")
    classes, of = (None, None) if mechanism.adjust is None else read_classes(mechanism.adjust, data.households)
    if classes is not None and classes.counts is not None:
        assert of is not None
        return _held(mechanism, classes, of, design, drawn)
    if setting.weights_fixed or mechanism.equal:
        _check_design_weights(design, drawn, responding=setting.start == "responding")
        if classes is not None and of is not None and not design.fpc:
            _check_not_calibrated(classes, np.bincount(of, drawn.weights, len(classes.totals)))
    grid = mechanism.grid
    if mechanism.design is not None:
        check_draw(mechanism.design, drawn, grid)
    low, high = _weight_bounds(mechanism)
    ends = weight_ends(low, high, grid, mechanism.design)
    weights, _ = in_steps(drawn.weights, ends, grid)
    stage = drawn.stages[0]
    _, first, cluster = np.unique(stage.unit, return_index=True, return_inverse=True)
    stratum = stage.stratum[first]
    counts = np.bincount(stratum)
    left = [Fraction(1)] * counts.size
    if stage.population is not None and len(drawn.stages) == 1:
        for h, n, there in zip(stratum.tolist(), stage.sampled[first].tolist(), stage.population[first].tolist(),
                               strict=True):  # fmt: skip
            left[h] = max(1 - n / Fraction(there), Fraction(0))
    alone = [h for h, n in enumerate(counts.tolist()) if n == 1 and left[h]]
    if mechanism.variance != "none" and alone:
        which = f"{number(len(alone), 'stratum has', 'strata have')} one sampled cluster"
        what = f"{which}, which shows no sampling variance: that of record {first[stratum == alone[0]][0] + 1}"
        raise wrong(what, where="variance", remedy="collapse strata, or write variance = 'none'")
    most = _most(mechanism, design, np.bincount(cluster))
    rows = Rows(weights=weights, cluster=cluster.astype(np.int64), stratum=stratum, drawn=tuple(counts.tolist()),
                left=tuple(left), classes=of, given=drawn.weights)  # fmt: skip
    public = Public(
        setting=setting, n=data.households.height, weights=ends, weight_grid=grid, strata=rows.drawn,
        clustered=bool(design.ids), most=most, classes=classes, equal=mechanism.equal,
    )  # fmt: skip
    return rows, replace(public, sizes=_sizes(mechanism, design, drawn, rows, data.households))


def _sizes(
    mechanism: SurveyPromise, design: SurveyDesign, drawn: DrawnSample, rows: Rows, file: pl.DataFrame
) -> Classes | None:
    """Return strata of units with the sums of their weights, where the design fixes them and the promise lists them.

    Weights are N/n of the stratum, and the sampled counts are held fixed with the sampling variance.
    """
    stage = drawn.stages[0]
    if design.ids or stage.population is None or mechanism.variance == "none":
        return None
    names = file[design.strata[0]].cast(pl.String) if design.strata else pl.Series("", [""] * file.height)
    first = np.unique(stage.stratum, return_index=True)[1]
    grid = mechanism.grid
    sums = tuple(grid * each for each in added(rows.weights, stage.stratum, first.size).tolist())
    return Classes(frame=names.gather(first).to_frame(), totals=sums, counts=rows.drawn)


def clamping(
    mechanism: SurveyPromise, data: Microdata, rows: Rows, asked: Sequence[EstimateQueries]
) -> Iterator[Doubt]:
    """Yield how many weights and values lie beyond their declared bounds, rounded to their grids."""
    asked, file = asked[len(asked) - len(mechanism.estimates) :], data.households  # before them: counts of classes
    grid = float(mechanism.grid)
    weights = rows.given if rows.given.size else rows.weights * grid
    if rows.given.size:  # others follow from public counts
        name = design_of(data).weights or "weights"
        # A weight that moves by 1 moves the estimate by at most the largest value.
        tables = [_published(each, file, "top", per=float(max(map(abs, each.y)) * each.grid)) for each in asked]
        yield from clamped_doubts(name, np.rint(rows.given / grid) * grid, _weight_bounds(mechanism), published=tables)
    clamped: dict[str, tuple[str, Estimate, Any, list[PublishedTable]]] = {}
    for each in asked:
        of = each.estimate
        own = [("top", of.variable, of.bounds), ("below", of.denominator, of.denominator_bounds)]
        for role, column, bounds in own:
            if column is not None:  # estimates of the same values of the same records are judged together
                same = repr((column, of.where, bounds, of.grid))
                _, _, _, tables = clamped.setdefault(same, (column, of, bounds, []))
                tables.append(_published(each, file, role))
    for column, of, ends, tables in clamped.values():
        step, inside = float(fraction(of.grid, where="grid")), tables[0].inside
        values = np.rint(file[column].cast(pl.Float64).to_numpy() / step) * step
        domains = [replace(each, by=select(file.filter(inside), each.by.columns), inside=None) for each in tables]
        low_high = pair(ends, where="bounds")
        yield from clamped_doubts(column, values[inside], low_high, weights=weights[inside], published=domains)


def _published(asked: EstimateQueries, file: pl.DataFrame, role: str, *, per: float = 1.0) -> PublishedTable:
    """Return the domains of an estimate, and the standard deviation of the noise of their totals."""
    estimate, query = asked.estimate, asked.queries.get(role)
    noise = 0.0 if query is None else float(query.step * query.one / query.loss) * 2**0.5
    by, inside = select(file, estimate.by), inside_of(estimate, file)
    return PublishedTable(title=asked.title, by=by, noise=noise / per, inside=inside)


def _held(
    mechanism: SurveyPromise, classes: Classes, of: Any, design: SurveyDesign, drawn: DrawnSample
) -> tuple[Rows, Public]:
    """Return records with the weights total / count, and classes as strata: the sample given its counts."""
    assert classes.counts is not None
    if design.ids and mechanism.variance != "none":
        what = "with clusters the sampling variance given the counts of classes is not computed"
        raise wrong(what, where="variance", remedy="write variance = 'none', or calibrate after the noise")
    first = np.array([drawn.weights[of == h][0] for h in range(len(classes.totals))])
    if not np.allclose(first[of], drawn.weights, rtol=_CLOSE):
        raise wrong(
            "design weights differ inside a class, where total / count gives all records the same one",
            where="adjust poststrata", remedy="add the columns that the weights follow, or calibrate after the noise",
        )  # fmt: skip
    grid = mechanism.grid
    pairs = [*zip(classes.totals, classes.counts, strict=True)]
    steps = np.array([max(nearest(total / n / grid), 1) for total, n in pairs], dtype=np.int64)
    if mechanism.variance != "none" and any(n == 1 < total for total, n in pairs):
        what = "a class has one sampled record, which shows no sampling variance"
        raise wrong(what, where="variance", remedy="collapse classes, or write variance = 'none'")
    rows = Rows(
        weights=steps[of], cluster=np.arange(of.size), stratum=of, drawn=classes.counts,
        left=tuple(1 - n / total for total, n in pairs), classes=of,
    )  # fmt: skip
    public = Public(
        setting=mechanism.stage, n=of.size, weights=(int(steps.min()), int(steps.max())), weight_grid=grid,
        strata=classes.counts, classes=classes,
    )  # fmt: skip
    return rows, public


def _check_not_calibrated(classes: Classes, sums: Any) -> None:
    """Refuse weights that add up to the totals of all classes: no draw does that by chance."""
    if len(classes.totals) > 1 and np.allclose(sums, classes.sizes, rtol=_CLOSE, atol=0):
        raise refusal(
            WeightsNotFixed, "the weights add up to the totals of all classes: they are already calibrated to them, "
            "and calibrated weights are never fixed", where="design weights", remedy=WAYS_OUT,
        )  # fmt: skip


def _weight_bounds(mechanism: SurveyPromise) -> tuple[Fraction, Fraction]:
    """Return the public bounds; never those of the file, which has the respondents alone where a sample is fixed."""
    if mechanism.weight_bounds is None:
        raise refusal(
            DataDependentSensitivity, "the weights have no public bounds, and those of the file are not public",
            where="weight_bounds", remedy="give the smallest and the largest weight of all units that are held fixed",
        )  # fmt: skip
    low, high = pair(mechanism.weight_bounds, where="weight_bounds")
    if low <= 0:
        raise wrong(f"{low} is not above 0", where="weight_bounds", remedy="weights are above 0")
    return low, high


def _most(mechanism: SurveyPromise, design: SurveyDesign, sizes: Any) -> int:
    if not design.ids or mechanism.variance == "none":
        return 1
    if mechanism.most_in_cluster is None:
        what = "a sampling variance of clusters needs a public bound on the records of one"
        raise wrong(what, where="most_in_cluster", remedy="declare it, or write variance = 'none'")
    if int(sizes.max()) > mechanism.most_in_cluster:
        what = f"a cluster has more than {mechanism.most_in_cluster} records"
        raise wrong(what, where="most_in_cluster", remedy="declare the largest number that the design allows")
    return mechanism.most_in_cluster


def _check_design_weights(design: SurveyDesign, drawn: DrawnSample, *, responding: bool) -> None:
    """Refuse weights that are not those of the design, where the file shows them.

    A file of respondents does not show how many were drawn: N over its counts is adjusted for nonresponse, and moves
    with everyone who responds. Design weights are at most that.
    """
    if responding and design.weights is None:
        raise refusal(
            WeightsNotFixed, "the file has only those who responded, so the weights that fpc gives are adjusted for "
            "nonresponse, and such weights are never fixed", where="design weights",
            remedy=f"name a column of design weights under [design]; or {WAYS_OUT}",
        )  # fmt: skip
    last = drawn.stages[-1].unit
    shown = np.unique(last).size == last.size and all(stage.population is not None for stage in drawn.stages)
    if design.weights is None or not shown:  # further stages are in the weights alone
        return
    own = np.ones(drawn.weights.size)
    for stage in drawn.stages:
        assert stage.population is not None
        own = own * stage.population / stage.sampled
    if not np.allclose(np.maximum(own, drawn.weights) if responding else drawn.weights, own, rtol=_CLOSE):
        raise refusal(
            WeightsNotFixed, f"the weights {design.weights!r} are not those that fpc gives: adjusted or calibrated "
            "weights are never fixed", where="design weights", remedy=WAYS_OUT,
        )  # fmt: skip


def verify_exact(mechanism: SurveyPromise, data: Microdata, plan: Any, written: Written) -> list[Check]:
    """Count the classes once more, where their counts are published exactly."""
    if not plan.public.held:
        return []
    found = read_frame(written.public / f"{published.INVARIANTS}.parquet")
    again, _ = read_classes(mechanism.adjust, data.households)
    if tuple(found["count"].to_list()) != again.counts:
        raise failed("the counts of the classes, as written, are not those of the sample")
    return [Check(what="sampled counts of the classes", cells=found.height)]


def audit_bundle(mechanism: SurveyPromise, bundle: Any, found: Any) -> None:
    """Compare the promise with that of the settings; name and columns of the file are believed."""
    audit_records(bundle, found)
    text, table = (bundle.side(f"{published.ESTIMATES}.{ending}") for ending in ("csv", "parquet"))
    if text is not None and table is not None:
        if wrong := fault(mechanism, table, text):
            found.bad(wrong, where="public/estimates.parquet")
        else:
            found.checks.append(f"{table.height:,} estimates: both files alike; se, cv and flag computed anew")
    audit_promise(mechanism.specification, bundle, found, held=_of_any_columns)
    found.unchecked.append(
        "whether the numbers are those of the sample and the noise is of the stated law: both are confidential"
    )


def _of_any_columns(multiverse: Multiverse) -> list[Invariant]:
    """Return what is held fixed, by whichever columns of the design it is defined; earlier versions named none."""
    held = multiverse.invariants
    return [replace(each, name=each.name.partition(": ")[0]) if isinstance(each, Named) else each for each in held]


def fault(mechanism: SurveyPromise, table: pl.DataFrame, text: pl.DataFrame) -> str:
    """Say what is wrong with the published file: its columns, its copy as text, or numbers that contradict others."""
    columns = published.columns_by(name for name in table.columns if name not in (*LABELS, *NUMBERS))
    if not are_declared(table.columns, columns) or any(
        table[name].dtype != columns[name].type for name in table.columns
    ):
        return "its columns are not those of estimates"
    if not text.equals(as_read(table, "csv"), null_equal=True):
        return "estimates.csv does not say the same"
    own = {each.title: each for each in mechanism.wanted}
    for row in table.filter(pl.col("estimate").is_not_null()).iter_rows(named=True):
        privacy, moe = row["se_privacy"] or math.nan, row["moe90"] or math.nan
        se = math.hypot(row["se_sampling"] or 0.0, privacy)
        cv = se / abs(row["estimate"]) if row["estimate"] else None
        quality = published.flag(mechanism.quality, estimate=row["estimate"], cv=cv, moe90=moe)
        given = row["se"] or math.nan, row["cv"] or math.inf
        mark = (
            f"{quality} {published.remark(own[row['name']], row['estimate'])}".strip()
            if row["name"] in own
            else quality
        )
        # Earlier versions published no remark.
        if row["flag"] not in (quality, mark) or not np.allclose(given, (se, cv or math.inf), rtol=1e-9, atol=0):
            return f"se, cv or flag of {row['name']} contradicts its other numbers"
    return ""
