"""What the report of survey estimates shows: both errors, quality by size, noise by setting; inside, the weights.

``shown`` sees the published file, and ``sections`` public facts of the plan: both editions have them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np

from stirred.data.problems import number
from stirred.mechanisms.protocol import Bars, Block, Frames, Grid, Headline, Plot, Release, Section
from stirred.spec.doubts import Doubt
from stirred.spec.exact import exact
from stirred.spec.problems import StirredError
from stirred.survey.amplify import deamplify
from stirred.survey.designs import Poisson
from stirred.survey.estimates.checks import sampled
from stirred.survey.estimates.promise import SurveyPromise
from stirred.survey.estimates.published import ESTIMATES, FLAGS, OUTSIDE, ROLES, SurveyPlan, noise_of
from stirred.survey.estimates.queries import EstimateQueries, SurveyQuery, asked, bounded_variance
from stirred.survey.settings import Setting, all_settings

_MOST_BARS, _MOST_ROWS, _BINS = 40, 200, 10
_LITTLE: Final = 0.1  # of the largest possible total
_SAMPLING: Final = {"paid": "sampling", "public-bound": "sampling, its public bound"}
_HIDDEN, _PRIVACY = "sampling, hidden by its noise", "privacy noise"
_CLAMPED: Final = (
    "Intervals are for the clamped population: values and weights beyond their declared bounds count as the nearer one."
)
_NO_SIZES: Final = "No sizes of domains are published."
_NONE_SIZED: Final = (
    "Nothing is drawn: no estimate with a published sampling error is of a domain with a published size above 0."
)
_NOBODY: Final = "nobody by what they know of the sample"
Row = dict[str, Any]


def headline(mechanism: SurveyPromise, plan: SurveyPlan) -> Headline:
    """Return what is held fixed, which the files need not have, and what is disturbed."""
    held = f"Held fixed, and so not protected: {plan.unchanged}."
    return Headline(unchanged=held, disturbed=f"Disturbed: {plan.disturbed}.")


def shown(mechanism: SurveyPromise, plan: SurveyPlan, public: Frames) -> list[Section]:
    """Return the estimates, what their errors are made of, and their quality against the size of domains."""
    table, by = public.frame(ESTIMATES), plan.releases["households"]
    rows = [row for row in table.iter_rows(named=True) if row["estimate"] is not None]
    header = ("name", *by, "estimate", "se", "lci", "uci", "cv", "flag")
    first = [{**row, "cv": _percent(row["cv"])} for row in table.head(_MOST_ROWS).iter_rows(named=True)]
    cells = tuple(tuple("" if row[name] is None else row[name] for name in header) for row in first)
    lead = "Every estimate with its standard error, its interval and its quality. All columns are in estimates.csv."
    more = f" The first {_MOST_ROWS} of {table.height:,} are shown." if table.height > _MOST_ROWS else ""
    grid = Grid(header=header, rows=cells, numbers=header[1 + len(by) : -1])
    return [
        Section(title="The estimates", blocks=(lead + more, *_noise_alone(plan), _CLAMPED, *_outside(rows), grid)),
        Section(title="Sampling error and privacy error", blocks=tuple(_errors(plan, rows, by))),
        Section(title="Quality by size of the domain", blocks=tuple(_quality(mechanism, plan, rows, by))),
    ]


def _outside(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how many means and ratios came out beyond their bounds."""
    if beyond := sum(row["flag"].endswith(OUTSIDE) for row in rows):
        which = number(beyond, "mean or ratio lies", "means or ratios lie")
        yield f"{which} outside the declared bounds (flag {OUTSIDE}): the noise is larger than the estimate can bear."


def _noise_alone(plan: SurveyPlan) -> Iterator[str]:
    """Yield which intervals leave the sampling error out: a reader would take them for too precise."""
    left_out = "cover the noise alone. The sampling error is not published; it comes on top"
    if plan.mechanism.variance == "none":
        yield f"All standard errors, intervals, cv and flags {left_out}."
    elif plan.class_counts is not None:
        yield (
            f"In the rows '{plan.class_counts.title}', standard errors, intervals, cv and flags {left_out}. These rows "
            "are the counts of the sample by design weights, with noise, and not the public totals that the other "
            "estimates are calibrated to: a public total may well lie outside the interval."
        )


def _label(row: Row, by: Sequence[str]) -> str:
    """Return a name in which the domain comes first: what does not fit beside a bar is cut at the end."""
    values = ", ".join(str(row[name]) for name in by if row[name] is not None)
    return f"{values}: {row['name']}" if values else str(row["name"])


def _errors(plan: SurveyPlan, rows: Sequence[Row], by: Sequence[str]) -> Iterator[Block]:
    """Yield both errors as shares of the variance, for standard errors do not add up; or the noise alone."""
    known = [row for row in rows if row["se_sampling"] is not None]
    first = [(_label(row, by), row) for row in (known or rows)[:_MOST_BARS]]
    more = _not_drawn(rows, known)
    if not rows:
        yield "No estimate could be made: every noisy denominator came out as 0 or less."
    elif not known:
        yield f"The sampling error is not published, so its share is not known. The bars are the noise alone.{more}"
        bars = [(label, "noise (sampling error not published)", row["cv"]) for label, row in first if row["cv"]]
        yield Bars(bars=tuple(bars), x="", y="standard error of the noise, % of the estimate", stacked=True)
    if not known:
        return
    yield (
        "Variances add up and standard errors do not: each bar is the whole variance of an estimate, divided between "
        f"both errors. Beside it is the coefficient of variation of both together, cv.{more}"
    )
    floors, parts = {each.title: _floor(each, plan) for each in plan.estimates}, []
    for label, row in first:
        hidden = row["se_sampling"] <= floors[row["name"]] * (1 + 1e-9)
        series = _HIDDEN if hidden else _SAMPLING[plan.mechanism.variance]
        for name, kind in ((_PRIVACY, "privacy"), (series, "sampling")):
            parts.append((label, name, (row[f"se_{kind}"] / row["se"]) ** 2))
    parts.sort(key=lambda part: [_PRIVACY, _SAMPLING[plan.mechanism.variance], _HIDDEN].index(part[1]))
    notes = {label: f"cv {_percent(row['cv'])}" for label, row in first}
    yield Bars(bars=tuple(parts), x="", y="share of the variance", stacked=True, notes=notes)
    if parts[-1][1] == _HIDDEN:
        yield (
            "Hidden by its noise: the paid sampling variance came out below the deviation of its noise, and that "
            "deviation is published instead."
        )


def _not_drawn(rows: Sequence[Row], known: Sequence[Row]) -> str:
    """Say how many estimates have no bar, and why."""
    able, why = known or rows, []
    if unknown := [row["name"] for row in rows if row["se_sampling"] is None and known]:
        names = ", ".join(f"'{name}'" for name in dict.fromkeys(unknown))
        why.append(f"of {len(unknown)} ({names}) the sampling error is not published")
    if len(able) > _MOST_BARS:
        why.append(f"only the first {_MOST_BARS} have room")
    return f" Drawn: {min(len(able), _MOST_BARS)} of {len(rows)}; {', and '.join(why)}." if why else ""


def _floor(each: EstimateQueries, plan: SurveyPlan) -> float:
    """Return the least sampling error that a paid variance can show; 0 where a number that is not public divides it."""
    if "variance" not in each.queries or each.estimate.kind not in ("total", "table") or each.classes:
        return 0.0
    return min(noise_of(each.queries["variance"], 1.0).variance ** 0.25, math.sqrt(bounded_variance(each, plan.public)))


def notes(plan: SurveyPlan) -> Iterator[Doubt]:
    """Yield before whom an amplified loss does not hold, and estimates whose sampling error is hidden by its noise."""
    if attackers := plan.mechanism.attackers:
        worst = max((Decimal(loss), loss) for _, loss in attackers)[1]
        yield Doubt(
            kind="known-sample", refuses=False,
            what=f"epsilon {attackers[0][1]} holds only before those who do not know the sample; before anybody "
            f"who knows that a unit was sampled it is up to {worst}",
            remedy="state both numbers, or start at the sample (setting 6) and use no amplification",
        )  # fmt: skip
    for each in plan.estimates:
        least, largest = 3 * _floor(each, plan), plan.public.n * plan.public.weights[1] * max(map(abs, each.y))
        if least > _LITTLE * float(largest * plan.public.weight_grid * each.grid):
            yield Doubt(
                kind="hidden-variance", about=each.title, refuses=False,
                what=f"{each.title}: the noise of its sampling variance hides a standard error below "
                f"{_amount(least / 3)}, so estimates below {_amount(least)} have a cv above a third",
                remedy="give it a larger share or variance_share, or write variance = 'public-bound' or 'none'",
            )  # fmt: skip


def _quality(mechanism: SurveyPromise, plan: SurveyPlan, rows: Sequence[Row], by: Sequence[str]) -> Iterator[Block]:
    """Yield cv against the published size of a domain: that of a weighted table of the same release."""
    domains = [(row["where"], *(row[name] for name in by)) for row in rows]
    sizes = {domain: row["estimate"] for domain, row in zip(domains, rows, strict=True) if row["kind"] == "table"}
    sized = [(row["kind"], sizes.get(domain, 0), row["cv"]) for domain, row in zip(domains, rows, strict=True)
             if plan.mechanism.variance == "none" or row["se_sampling"] is not None]  # fmt: skip
    points = tuple((kind, size, cv) for kind, size, cv in sized if cv and size > 0)
    if not points:
        yield _NONE_SIZED if sizes else _NO_SIZES
        return
    why = ((len(rows) - len(sized), "their sampling error is not published"),
           (len(sized) - len(points), "they have no published size above 0"))  # fmt: skip
    left = "".join(f" Left out: {count} of {len(rows)} estimates; {reason}." for count, reason in why if count)
    yield (
        "The size of a domain is its published weighted count, which has noise itself. Lines are those of the flags "
        f"({mechanism.quality}).{left}"
    )
    if mechanism.quality == "acs":  # the margin of error at 90% reaches 0 where cv is 1/1.645, if the error is normal
        rules: tuple[tuple[str, float], ...] = (("n above about 61%", 1 / 1.645),)
    else:
        *limits, some, much = FLAGS[mechanism.quality]
        rules = tuple((f"{f} above {_percent(limit)}", limit) for f, limit in zip((some, much), limits, strict=True))
    y = f"cv of {'the noise alone' if plan.mechanism.variance == 'none' else 'both errors'}"
    x = "published size of the domain, weighted"
    yield Plot(points=points, x=x, y=y, log="xy", percent=True, rules=rules)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.3g}%" if share < 10 else "above 1,000%"


def sections(mechanism: SurveyPromise, plan: SurveyPlan) -> list[Section]:
    """Return the noise of each estimate, who is not covered, and the noise that other settings would need."""
    rows = [
        (each.title, ROLES.get(role, role), query.cells, f"{float(query.loss):.4g}", _amount(_sd(query)))
        for each in plan.estimates
        for role, query in each.queries.items()
    ]
    header = ("estimate", "number", "cells", "epsilon on the sample", "noise sd")
    setting, (low, high) = plan.public.setting, _ends(plan)
    protected = f"Protected: {setting.protects}. Not covered: {'; '.join(setting.not_covered) or _NOBODY}."
    kind = "Weights total / count" if plan.public.held else "Design weights"
    weights = f"{kind} are taken between {low:g} and {high:g}, which are public."
    grid = Grid(header=header, rows=tuple(rows), numbers=header[2:])
    blocks: list[Block] = [mechanism.in_words, protected, weights, grid]
    if plan.mechanism.attackers:
        blocks.append("Before somebody who knows something of the sample:")
        blocks.append(Grid(header=("attacker", "epsilon"), rows=plan.mechanism.attackers, numbers=("epsilon",)))
    return [
        Section(title="Estimates and their noise", blocks=tuple(blocks)),
        Section(title="Noise by setting", blocks=tuple(_settings(mechanism, plan))),
    ]


def _sd(query: SurveyQuery) -> float:
    return math.sqrt(noise_of(query, 1.0).variance)


def _amount(number: float) -> str:
    return f"{float(f'{number:.4g}'):,.10g}"


def _ends(plan: SurveyPlan) -> tuple[float, float]:
    low, high = (float(end * plan.public.weight_grid) for end in plan.public.weights)
    return low, high


def _settings(mechanism: SurveyPromise, plan: SurveyPlan) -> Iterator[Block]:
    """Yield the noise of one estimate in all settings, with the same loss."""
    own = [each for each in plan.estimates if each is not plan.class_counts]
    one = next((each for each in own if each.estimate.kind in ("total", "table")), own[0])
    before, why = _amplified(mechanism, plan)
    (least, most), strata = plan.public.weights, plan.public.strata
    simple = mechanism.equal or (mechanism.design is None and least == most and len(strata) == 1)
    yield (
        f"The standard deviation of the noise of {one.title!r} for epsilon {mechanism.loss} in each of the eleven "
        f"settings, written as start/held fixed. Where the promise starts before the draw, {why}"
        f"{'' if simple else '; but not where weights vary with the frame (1 to 3)'}."
    )
    rows, dots = [], []
    for setting in all_settings():
        # Where weights and strata vary with the frame, sampling amplifies nothing.
        amplified = "sampling" in setting.amplifiers and (setting.weights_fixed or simple)
        inner = before if amplified else mechanism.loss
        sd, here = _in_setting(one, plan, setting, share=inner / mechanism.sample_loss), setting == plan.public.setting
        name = f"{setting.number}: {setting.start}/{setting.invariant or 'none'}"
        noise = "not possible: weights vary" if sd is None else _amount(sd)
        missed = "; ".join(setting.not_covered) if amplified else ""
        rows.append((f"{name}{' (this release)' if here else ''}", noise, missed or _NOBODY))
        dots += [] if sd is None else [(name, "this release" if here else "in another setting", sd)]
    yield Bars(bars=tuple(dots), x="", y=f"noise sd of {one.title}", log=True)
    yield Grid(header=("setting", "noise sd", "attackers not covered"), rows=tuple(rows), numbers=("noise sd",))


def _amplified(mechanism: SurveyPromise, plan: SurveyPlan) -> tuple[Fraction, str]:
    """Return the loss on the sample where the draw amplifies, and by which draw."""
    if mechanism.design is not None:
        return mechanism.sample_loss, f"the draw amplifies as {mechanism.design}"
    if plan.public.clustered or plan.public.held:
        what = (
            "counts of the sample are held fixed" if plan.public.held else "clusters were drawn, and how is not stated"
        )
        return mechanism.loss, f"no amplification is counted: {what}"
    rate = min(1 / (plan.public.weights[0] * plan.public.weight_grid), Fraction(1))
    words = f"the draw amplifies by the largest rate that the weights allow, {float(rate):.3g}"
    return deamplify(exact(mechanism.loss), Poisson((rate,))).rational, words


def _in_setting(one: EstimateQueries, plan: SurveyPlan, setting: Setting, *, share: Fraction) -> float | None:
    """Return the noise of an estimate's first number in another setting; None where there is no such estimate."""
    role, own = next(iter(one.queries.items()))
    loss = own.loss * share * (2 if one.is_ratio else 1)
    try:
        other = asked(one.estimate, replace(plan.public, setting=setting), cells=1, loss=loss, paid=None)
    except StirredError:
        return None
    return _sd(other.queries[role])


def inside(mechanism: SurveyPromise, plan: SurveyPlan, release: Release) -> list[Section]:
    """Return how many values were clamped, the weights between their public bounds, and what could be shown."""
    drawn, weights = release.internal["drawn"], sampled(mechanism, release.internal["counted"])[0].given
    clamped = [(title, int(frame["clamped"][0]), plan.public.n) for title, frame in drawn.items()]
    lead = "Values beyond the declared bounds count as the nearer bound. Their number is confidential."
    grid = Grid(header=("estimate", "values clamped", "records"), rows=tuple(clamped))
    found = [Section(title="Clamping", blocks=(lead, grid))]
    if not any(each.estimate.kind == "table" for each in plan.estimates):
        advice = f"{_NO_SIZES} To show quality by size, add [[estimates]] kind = 'table' with the same by to the plan."
        found.append(Section(title="Sizes of domains", blocks=(advice,)))
    if not weights.size:  # they follow from public counts
        return found
    low, high = _ends(plan)
    edges = np.linspace(low, high, _BINS + 1 if low < high else 2)
    counts, _ = np.histogram(weights, edges)
    beyond = int((weights < low).sum()), int((weights > high).sum())
    names = [f"below {low:.4g}", *(f"{a:.4g} to {b:.4g}" for a, b in pairwise(edges)), f"above {high:.4g}"]
    said = (
        f"The public bounds are {low:g} and {high:g}. The weights of this sample run from {weights.min():.4g} to "
        f"{weights.max():.4g}; {sum(beyond):,} of {weights.size:,} lie beyond, and count as the nearer bound. Weights "
        "of the sample are confidential: bounds that were moved to them would no longer be public."
    )
    heights = [beyond[0], *counts.tolist(), beyond[1]]
    bars = tuple((name, "records", float(height)) for name, height in zip(names, heights, strict=True))
    return [*found, Section(title="The weights", blocks=(said, Bars(bars=bars, x="weight", y="records of the sample")))]
