"""What is wrong with settings and samples of survey estimates, and the sample as whole numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import Problem, wrong
from stirred.survey.designs import SRSWOR, Design, Stratified
from stirred.survey.estimates.measure import Rows, all_columns, in_steps
from stirred.survey.estimates.published import LABELS, NUMBERS
from stirred.survey.estimates.queries import Public
from stirred.survey.estimates.settings import ATTESTED, pair
from stirred.survey.refusals import DataDependentSensitivity, WeightsNotFixed, refusal
from stirred.survey.sample_design import Drawn, SurveyDesign
from stirred.survey.settings import ELEVENTH, PAIRS, Setting

if TYPE_CHECKING:
    from stirred.survey.estimates.mechanism import SurveyEstimates

__all__ = ["ATTESTED", "check", "design_of", "sampled", "setting_of", "settings_problems"]
WAYS_OUT: Final = (
    "use design weights and calibrate the published estimates after the noise, or hold the counts of the classes fixed "
    "(`stirred survey poststrat --counts public` gives the sensitivity)"
)
_CLOSE: Final = 1e-6


def setting_of(given: str | int) -> Setting:
    """Return a setting from its number, or from its start and what is held fixed.

    >>> setting_of("sample/frame").number, setting_of(11).start
    (6, 'frame')
    """
    text = str(given).strip()
    if text.isdigit():
        if not 1 <= int(text) <= len(PAIRS):
            raise wrong(f"there is no setting {text}", where="setting", remedy="1 to 11: `stirred survey settings`")
        return Setting(*PAIRS[int(text) - 1])
    start, _, invariant = (part.strip() for part in text.partition("/"))
    return Setting(start, invariant if invariant not in ("", "none") else None)


def settings_problems(mechanism: SurveyEstimates) -> Iterator[Problem]:
    """Yield everything that is wrong with the settings themselves."""
    setting = setting_of(mechanism.setting)
    if fraction(mechanism.epsilon, where="epsilon") <= 0:
        yield Problem(what="a loss of 0 hides everything", where="epsilon", remedy="write a number above 0")
    if not mechanism.estimates:
        yield Problem(what="is needed", where="estimates", remedy="add [[estimates]] kind = 'total' and so on")
    titles = [each.title for each in mechanism.estimates]
    for each in mechanism.estimates:
        yield from _estimate_problems(each)
        if titles.count(each.title) > 1:
            yield Problem(what="is asked for twice", where=f"estimate '{each.title}'", remedy="name it once")
    if mechanism.tables:
        what = "its tables are weighted, and stand among the estimates"
        yield Problem(what=what, where="tables", remedy="write [[estimates]] kind = 'table' and by")
    if not 0 < fraction(mechanism.variance_share, where="variance_share") < 1:
        yield Problem(what="it is not between 0 and 1", where="variance_share", remedy="write such as '1/5'")
    if fraction(mechanism.weight_grid, where="weight_grid") <= 0:
        yield Problem(what="it is not above 0", where="weight_grid", remedy="write such as '1/100'")
    if mechanism.imputation == "hot-deck":
        yield Problem(
            what="a hot deck copies answers of one record into others, so one person counts in many records",
            where="imputation",
            remedy="impute each record from its own answers (own-values), or estimate before imputation",
        )
    if mechanism.adjust:
        yield Problem(
            what="a release does not calibrate its estimates", where="adjust",
            remedy="leave it out, and calibrate the published estimates: that follows from them and costs nothing; "
            "for class counts that are held fixed see `stirred survey poststrat --counts public`",
        )  # fmt: skip
    yield from _attest_problems(mechanism, setting)


def _estimate_problems(each: Any) -> Iterator[Problem]:
    where = f"estimate '{each.title}'"
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


def _attest_problems(mechanism: SurveyEstimates, setting: Setting) -> Iterator[Problem]:
    if unknown := [name for name in mechanism.attest if name not in ATTESTED]:
        yield Problem(what=f"there is nothing called {unknown[0]!r}", where="attest", remedy=", ".join(ATTESTED))
    needed = ["design-weights"] if setting.weights_fixed else []
    if setting == ELEVENTH:
        needed += ["random-sample", "secret-sample"]
        if not mechanism.sampling or mechanism.sample is None:
            yield Problem(
                what="sampling amplifies here, and the draw is not stated", where="sampling",
                remedy="write sampling = {design = 'srswor', n = 100, N = 1000} and sample = its name in the ledger",
            )  # fmt: skip
    elif "sampling" in setting.amplifiers:
        yield Problem(
            what=f"in setting {setting.number} weights vary with the frame, and its loss is not computed here",
            where="setting", remedy="hold the frame variables fixed (frame/frame-variables), or start at the sample",
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


def check(mechanism: SurveyEstimates, data: Any) -> None:
    """Raise all problems of a file's columns with these settings; nothing is computed."""
    data = as_microdata(data)
    file, design, problems = data.households, design_of(data), []
    numeric = {name for each in mechanism.estimates for name in (each.variable, each.denominator) if name}
    for name in dict.fromkeys([*all_columns(mechanism.estimates), *design.columns]):
        if name not in file.columns:
            where = f"{data.household_source} (estimates)"
            problems.append(missing_column(name, [*file.columns], where=where, role="estimates"))
        elif file[name].null_count():
            remedy = "fill them in, or leave these records out and adjust nothing"
            problems.append(Problem(what="it has missing values", where=f'"{name}"', remedy=remedy))
        elif name in numeric and not _finite(file[name]):
            problems.append(
                Problem(what="it has values that are not numbers", where=f'"{name}"', remedy="correct them")
            )
    if problems:
        raise DataError(problems)


def _finite(column: pl.Series) -> bool:
    numbers = column.cast(pl.Float64, strict=False)
    return not numbers.null_count() and bool(numbers.is_finite().all())


def sampled(mechanism: SurveyEstimates, data: Microdata) -> tuple[Rows, Public]:
    """Return the records as whole numbers, and what is public of the sample."""
    setting, design = mechanism.stage, design_of(data)
    drawn = design.drawn({name: data.households[name].to_list() for name in design.columns})
    if setting.weights_fixed:
        _check_design_weights(design, drawn)
    if mechanism.design is not None:
        _check_draw(mechanism.design, drawn)
    grid = fraction(mechanism.weight_grid, where="weight_grid")
    low, high = _weight_bounds(mechanism, setting, drawn)
    ends = max(math.floor(low / grid), 1), math.ceil(high / grid)
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
    if mechanism.variance != "none" and any(n == 1 and left[h] for h, n in enumerate(counts.tolist())):
        what = "a stratum has one sampled cluster, which shows no sampling variance"
        raise wrong(what, where="variance", remedy="collapse strata, or write variance = 'none'")
    most = _most(mechanism, design, np.bincount(cluster))
    rows = Rows(weights=weights, cluster=cluster.astype(np.int64), stratum=stratum, drawn=tuple(counts.tolist()),
                left=tuple(left))  # fmt: skip
    public = Public(
        setting=setting, n=data.households.height, weights=ends, weight_grid=grid, strata=rows.drawn,
        clustered=bool(design.ids), most=most,
    )  # fmt: skip
    return rows, public


def _weight_bounds(mechanism: SurveyEstimates, setting: Setting, drawn: Drawn) -> tuple[Fraction, Fraction]:
    if mechanism.weight_bounds is not None:
        low, high = pair(mechanism.weight_bounds, where="weight_bounds")
        if low <= 0:
            raise wrong(f"{low} is not above 0", where="weight_bounds", remedy="weights are above 0")
        return low, high
    if setting.invariant != "sample":
        raise refusal(
            DataDependentSensitivity, "the weights have no public bounds, and those of the sample are not public",
            where="weight_bounds", remedy="give the smallest and the largest weight of the frame",
        )  # fmt: skip
    return Fraction(float(drawn.weights.min())), Fraction(float(drawn.weights.max()))


def _most(mechanism: SurveyEstimates, design: SurveyDesign, sizes: Any) -> int:
    if not design.ids or mechanism.variance == "none":
        return 1
    if mechanism.most_in_cluster is None:
        what = "a sampling variance of clusters needs a public bound on the records of one"
        raise wrong(what, where="most_in_cluster", remedy="declare it, or write variance = 'none'")
    if int(sizes.max()) > mechanism.most_in_cluster:
        what = f"a cluster has more than {mechanism.most_in_cluster} records"
        raise wrong(what, where="most_in_cluster", remedy="declare the largest number that the design allows")
    return mechanism.most_in_cluster


def _check_draw(stated: Design, drawn: Drawn) -> None:
    """Refuse a stated draw that is not the file's, as far as the file shows it: a lower rate would promise too much."""
    if not isinstance(stated, SRSWOR | Stratified):
        return
    stage = drawn.stages[0]
    n, there = ((stated.n,), (stated.N,)) if isinstance(stated, SRSWOR) else (stated.n, stated.N)
    _, first = np.unique(stage.stratum, return_index=True)
    counts, sizes = (
        stage.sampled[first].tolist(),
        None if stage.population is None else stage.population[first].tolist(),
    )
    found = sorted(counts) if sizes is None else sorted(zip(counts, sizes, strict=True))
    if found != (sorted(n) if sizes is None else sorted(zip(n, there, strict=True))):
        raise wrong(
            "the stated draw is not that of the file: its strata have other sizes", where="sampling",
            remedy="state n and N of the strata of [design]; with nonresponse start at the responses instead",
        )  # fmt: skip


def _check_design_weights(design: SurveyDesign, drawn: Drawn) -> None:
    """Refuse weights that are not those of the design, where the file shows them."""
    last = drawn.stages[-1].unit
    shown = np.unique(last).size == last.size and all(stage.population is not None for stage in drawn.stages)
    if design.weights is None or not shown:  # further stages are in the weights alone
        return
    own = np.ones(drawn.weights.size)
    for stage in drawn.stages:
        assert stage.population is not None
        own = own * stage.population / stage.sampled
    if not np.allclose(own, drawn.weights, rtol=_CLOSE):
        raise refusal(
            WeightsNotFixed, f"the weights {design.weights!r} are not those that fpc gives: adjusted or calibrated "
            "weights are never fixed", where="design weights", remedy=WAYS_OUT,
        )  # fmt: skip
