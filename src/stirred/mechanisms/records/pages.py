"""What a swap says for people: what a reader of its tables may conclude, and its part of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.microdata import Microdata
from stirred.data.problems import number
from stirred.mechanisms.protocol import Block, Grid, Headline, Mechanism, Section, Table, Typical
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.budget import Derived
from stirred.spec.invariant import plural
from stirred.spec.number_text import percent

UNDO: Final = "stirred unswap TABLE.csv --bundle DIR --out FILE.csv"
NOTHING_SWAPPED: Final = "Nothing was swapped: every count is exact, and the file is published as it is."
_RATES: Final = tuple(Fraction(n, 100) for n in (1, 5, 10, 20, 50, 80))
_STRATA_SHOWN: Final = 40
_NAMES_SHOWN: Final = 3
_SIZES: Final = ((1, 9), (10, 99), (100, 999), (1_000, 10**15))
_NINE_IN_TEN: Final = 1.645  # standard deviations of a normal error


def nothing_swapped(plan: SwapPlan) -> bool:
    """Say whether a plan leaves every record as it is, by its rate or because there is nothing to exchange."""
    return not plan.perturbed and (plan.strata.largest_live is None or plan.strata.moved == 0)


# ---- what a reader may conclude ---------------------------------------------------------------------------


def exactness(mechanism: Any, table: Table, data: Microdata, plan: SwapPlan) -> str:
    """Say whether a table is one that swapping cannot change.

    Tables of match and swap variables, and tables of held variables, are exact; those that cross a
    swap variable with a held one that is not matched are disturbed (Proposition 4). So are all tables of a variable
    that got a randomised response (R14).
    """
    variables = set(table.variables)
    if {*plan.perturbed} & variables:
        return "disturbed by the response and by swapping"
    held = {*plan.exact_hold, *data.person_variables}
    if (
        nothing_swapped(plan)
        or variables <= held
        or (variables <= {*mechanism.match, *plan.exact_swap} and not table.of_persons)
    ):
        return "exact"
    return "disturbed by swapping"


def swap_conclusions(mechanism: Any, plan: SwapPlan) -> list[str]:
    """Return what a reader of swapped records may conclude."""
    if nothing_swapped(plan):
        return [NOTHING_SWAPPED]
    swapped, share = ", ".join(mechanism.swap), plan.strata.moved
    many = "records" if share is None else f"about {100 * share:.1f}% of records"
    held = [name for name in plan.exact_hold if name not in mechanism.match]
    held += ["everything about persons"] if plan.has_persons else []
    undo, with_ = correction_in_words(mechanism, plan), crossed_with(plan)
    crossed = " x ".join([*mechanism.match, *plan.exact_swap])
    return [
        *([f"Counts of {crossed}, and any sums of them, are exact."] if crossed else []),
        *([f"Counts of anything held ({', '.join(held)}), without {swapped}, are exact."] if held else []),
        *(words for step in mechanism.steps for words in step.words.readers),
        f"Counts that cross {swapped} with {with_} are disturbed: {many} carry another "
        f"record's {swapped}. Associations between {swapped} and {with_} are weakened.",
        *(f"Not protected: {item}." for item in plan.specification.multiverse.consequences),
        *([undo] if undo else []),
    ]


def reading_tables(mechanism: Any, plan: SwapPlan) -> list[str]:
    """Say where tables come from, and how to undo their bias."""
    undo = "" if nothing_swapped(plan) else correction_in_words(mechanism, plan)
    return [*Mechanism.reading_tables(mechanism, plan), *([undo] if undo else [])]


def crossed_with(plan: SwapPlan) -> str:
    """Return what stays with its record while others are swapped: held variables, or that of a response alone."""
    held = plan.has_persons or any(name not in plan.match for name in plan.exact_hold)
    alone = [] if held else [name for name in plan.perturbed if name in plan.hold]
    return ", ".join(alone) or "held variables"


def correction_in_words(mechanism: Any, plan: SwapPlan) -> str:
    """Return how a reader undoes the bias of tables, or nothing where there is no closed form for it."""
    if mechanism.cell_law is None:
        return ""
    return (
        f"Tables that cross {', '.join(mechanism.swap)} with {crossed_with(plan)} are drawn towards independence. "
        f"`{UNDO}` undoes this bias from the public files alone, with "
        "standard errors and intervals; the formula is in docs/theory/moments.md of stirred."
    )


# ---- the report -------------------------------------------------------------------------------------------


def few(names: Sequence[str]) -> str:
    """Return names in a sentence, of many the first two.

    >>> few(["county"]), few(["county", "tract", "block"]), few(["a", "b", "c", "d"])
    ('county', 'county, tract and block', 'a, b and 2 more columns')
    """
    shown = [*names] if len(names) <= _NAMES_SHOWN else [*names[:2], f"{len(names) - 2} more columns"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]


def swap_headline(mechanism: Any, plan: SwapPlan) -> Headline:
    """Return what leaves unchanged and what was swapped, in two sentences."""
    if plan.perturbed:
        return Mechanism.headline(mechanism, plan)
    every = f"Every {mechanism.unit}{', with its persons,' if plan.has_persons else ''}"
    if nothing_swapped(plan):
        return Headline(unchanged=f"{every} leaves as it is.", disturbed="Nothing was disturbed.")
    units, swapped, records = plural(mechanism.unit), few(mechanism.swap), int(plan.strata.records.sum())
    among = f"{units} with equal {few(mechanism.match)}" if mechanism.match else f"all {units}"
    unchanged = f"{every} is published with all its values unchanged except {swapped}, exchanged among {among}."
    if plan.strata.moved is None:
        return Headline(unchanged=unchanged, disturbed=_moved_at_length(plan))
    share, changed = percent(plan.strata.moved, digits=2), plan.expected_change
    true = 0.0 if changed is None else 1 - changed.expected / max(records, 1)
    kept = f"; about {percent(true, digits=2)} are published with their true {swapped}" if true else ""
    disturbed = f"About {share} of the {records:,} {units} are expected to get {plan.moved_get}{kept}."
    return Headline(unchanged=unchanged, disturbed=disturbed)


def swap_errors(mechanism: Any, plan: SwapPlan, corrected: Mapping[str, pl.DataFrame]) -> list[Typical]:
    """Return the errors of published counts by their size, estimated without bias from the public files (R18).

    The estimate of one cell may be negative and is not shown: it is averaged over the cells of a size.
    """
    found = {}
    for title, cells in corrected.items():
        for low, high in _SIZES:
            own = cells.filter(pl.col("published").is_between(low, high))
            squared = float(own["squared_error"].sum()) / max(own.height, 1)
            if squared > 0:  # false where it is not a number, or the cells are too few to say
                # A cell that came out small by chance is taken for a small one.
                over = ", overstated" if low == 1 else ""
                size = f"{low:,} to {high:,}{over}" if high < _SIZES[-1][1] else f"{low:,} and more"
                error, unknown = math.sqrt(squared), bool((own["kept"] > 0).any())
                within = math.ceil(_NINE_IN_TEN * error)  # errors of counts are whole: half a record is none
                found[low == 1, -own.height, title, low] = Typical(
                    table=title, size=size, cells=own.height, error=error, within=within, at_least=unknown
                )
    # Counts of 10 and more come first, the most frequent of them; the smallest are not to be relied on.
    return [found[key] for key in sorted(found)]


def swap_sections(mechanism: Any, plan: SwapPlan) -> list[Section]:
    """Return the sections of a report on rate and loss, and on the strata."""
    return [Section(title="Rate and loss", blocks=tuple(_rate(mechanism, plan))), _strata(plan)]


def _rate(mechanism: Any, plan: SwapPlan) -> list[Block]:
    strata = plan.strata
    size = strata.largest_size
    if plan.perturbed:
        return _losses(mechanism, plan, size)
    if strata.largest_live is None:
        return [
            "No stratum has two different households in two different places: swapping changes nothing, and the "
            "loss of 0 is not protection. Everything in the file is published as it is."
        ]
    if nothing_swapped(plan):
        return [f"{NOTHING_SWAPPED} Nothing is promised."]
    curve = mechanism.swap_law.loss_curve(strata)
    if curve is None:
        return _losses(mechanism, plan, size)
    summary = (
        f"The largest stratum with something to swap has {size:,} records. A smaller one would give a smaller number, "
        "but only because more is then published exactly."
    )
    return [summary, *(text for text in (plan.why_this_number, plan.also_promised) if text), curve]


def _moved_at_length(plan: SwapPlan) -> str:
    """Say how many records are expected to get other values, or that this depends on what is protected."""
    share = plan.strata.moved
    if share is None:
        return (
            "How many records move is not said: where rates follow hold and swap values together it depends on counts "
            "that are protected."
        )
    return f"About {100 * share:.1f}% of all records are expected to get {plan.moved_get}."


def _losses(mechanism: Any, plan: SwapPlan, size: int) -> list[Block]:
    """Return rate and loss of the other members, whose loss is not a function of the largest size alone."""
    text = (
        f"{mechanism.in_words} The largest stratum with something to swap has {size:,} records. "
        f"{_moved_at_length(plan)}"
    )
    own = mechanism.rate_losses(plan)
    rows = () if own is None else tuple((percent(rate), e.shown()) for rate, e in own.losses(_RATES))
    policy = plan.specification.budget.policy
    if plan.strata.by_record is not None and isinstance(policy, Derived):
        text += f" The loss is {policy.formula}. For comparison, the loss if one rate applied everywhere:"
    header = ("rate", "ε (relative to the invariants)")
    by_rate = [Grid(header=header, rows=rows, numbers=header)] if rows else []
    return [text, *([plan.also_promised] if plan.also_promised else []), *by_rate]


def _strata(plan: SwapPlan) -> Section:
    strata = plan.strata
    live = int(strata.live.sum())
    count = f"{number(strata.count, 'stratum', 'strata')}, {live:,} of them with something to swap."
    more = f" The {_STRATA_SHOWN} largest are shown." if strata.count > _STRATA_SHOWN else ""
    header = (*strata.match, "records", "something to swap", "rate", "expected share moved")
    rows = tuple(
        (*map(str, s.values), s.records, s.live, str(s.rates), "" if s.share is None else f"{100 * s.share:.2f}%")
        for s in strata.largest(_STRATA_SHOWN)
    )
    return Section(title="Strata", blocks=(count + more, Grid(header=header, rows=rows, numbers=header[-2:])))
