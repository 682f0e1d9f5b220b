"""The page: two specifications block by block, seven plans that add up, what is exact, and how far both are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from stirred.mechanisms.census_2020.account import DELTA, Part, parts, totals
from stirred.release.ledger import Entry, Ledger, Total
from stirred.release.ledger.currency import Currency
from stirred.report.charts import ACCENT, SECOND, chart
from stirred.report.page import bullets, page, paragraph, section, table
from stirred.spec import UnitFactor, approximate, catalogue
from stirred.spec.comparison import compare
from stirred.spec.convert_output import zcdp_to_epsilon
from stirred.spec.exact import Exact, exact
from stirred.spec.explanation import explain
from stirred.spec.specification import Specification

from .accuracy import Compared

ONE_HOME = UnitFactor(
    old="household",
    new="person",
    factor=1,
    because="a changed person record changes at most one household record, as the paper takes it",
    keeps_total="every unit has a record, occupied or not",
)
PERSONS = Currency(unit="person", units=(ONE_HOME,))
NOISE, SWAP = "2020 system", "swapping"
_TITLE = "The 2020 Census, whole, on one synthetic state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """What the page is about: both ledgers, and the tables that are compared."""

    census: Ledger
    swapping: Ledger
    compared: Sequence[Compared]

    @property
    def total(self) -> Total:
        """Return everything of the 2020 system, for one person."""
        return self.census.total(PERSONS)

    @property
    def epsilon(self) -> Exact:
        """Return the same as epsilon at delta 10^-10."""
        found = self.census.total(Currency(unit="person", units=(ONE_HOME,), output=approximate(DELTA))).specification
        assert found is not None
        return found.budget.realised

    @property
    def both(self) -> tuple[Specification, Specification]:
        """Return what the 2020 system and the swap promise."""
        noise, swap = self.total.specification, self.swapping.total().specification
        assert noise is not None
        assert swap is not None
        return noise, swap


def written(accounts: Accounts) -> str:
    """Return the page."""
    return page(
        _TITLE,
        [
            f'<span class="stamp">demonstration on a synthetic state</span><h1>{escape(_TITLE)}</h1>',
            paragraph(
                "Seven plans, one ledger: TopDown measures the redistricting data (PL) and the demographic and housing "
                "characteristics (DHC), of persons and of units; SafeTab-P, SafeTab-H and PHSafe make the detailed and "
                "supplemental tables. Beside it stands the counterfactual of section 5 of the paper: the same state, "
                "swapped. Everybody in it is invented, so errors may be shown."
            ),
            _headline(accounts),
            _added_up(accounts),
            _side_by_side(accounts),
            _other_totals(),
            _accuracy(accounts.compared),
            _your_turn(),
        ],
    )


def _headline(accounts: Accounts) -> str:
    """Return both numbers, large, with what they are relative to."""
    noise, swap = accounts.both
    cards = [
        ("2020 system: seven plans", f"{accounts.total.bound}ρ² = {_digits(noise.budget.realised)}",
         f"one person, zCDP; ε = {_digits(accounts.epsilon)} at δ = 10⁻¹⁰. "
         f"{len(noise.multiverse.invariants)} kinds of totals are exact."),
        ("The paper, from rounded parts", "ρ² = 55.371",
         f"ε = 126.78 at δ = 10⁻¹⁰ ({_digits(totals()[0].epsilon)} before rounding)."),
        ("Swapping: one plan", f"ε = {swap.budget.shown}",
         "one household, pure differential privacy, relative to far more that is exact: in each county everything "
         "about its households but where they are, and in every block how many there are of each size."),
    ]  # fmt: skip
    inside = "".join(
        f'<div><b>{escape(name)}</b><span class="big">{escape(big)}</span><br><span>{escape(text)}</span></div>'
        for name, big, text in cards
    )
    warning = "These numbers are in different currencies: never compare them. Read them block by block."
    return f'<div class="five">{inside}</div>{paragraph(warning, note=True)}'


def _side_by_side(accounts: Accounts) -> str:
    """Return the five blocks of both promises, with how the swap's stands to the other."""
    noise, swap = accounts.both
    answers = [explain(each).answers for each in (noise, swap)]
    # The swap's promise holds for the whole file as well (_READING says why): who is eligible is the same.
    seen = compare(swap.with_flavor(domain=noise.domain), noise)
    rows = [
        [a.question, a.answer, b.answer, f"{block.verdict}: {_named(block.reason)}"]
        for a, b, block in zip(*answers, seen.blocks, strict=True)
    ]
    rows[-1][1] = (
        f"{accounts.total.bound}{rows[-1][1].removesuffix(_CERTIFIED)} (the seven plans; more is not specified)"
    )
    fixed = [table(["exact in the 2020 system"], [[item] for item in explain(noise).not_protected]),
             table(["exact after swapping"], [[item] for item in explain(swap).not_protected])]  # fmt: skip
    text = f"The printed specification of section 5 is: {catalogue.load('das-2020').specification.notation}."
    return section(
        "Two promises, block by block",
        table(["block", NOISE, SWAP, "swapping beside it"], rows),
        bullets(_READING),
        paragraph(text, note=True),
        f'<div class="five">{"".join(f"<div>{each}</div>" for each in fixed)}</div>',
    )


_CERTIFIED = " (a certified upper bound)"
_READING = [
    "Who: both promises are held against the whole edited file, as in Table 4. A swap of some of its columns keeps its "
    "promise there: changing one record of the file changes at most one record of the released columns, and files that "
    "agree on what the swap fixes agree on it in these columns.",
    "How much: everything counted from the swapped file is covered by its one number (section 5.3). The 2020 system "
    "pays for every product.",
    "Households here are units: housing units, occupied or vacant, and group quarters.",
]


def _named(reason: str) -> str:
    """Return a reason of the comparison with the names of both: the swap is the first there, and beside it here."""
    return reason.replace("the first", SWAP).replace("the second", f"the {NOISE}")


def _added_up(accounts: Accounts) -> str:
    """Return the entries of the ledger, each with what the paper prints for it, and their sum."""
    entries = [entry for entry in accounts.census.entries() if entry.specification is not None]
    rows = [_entry_row(entry, part) for entry, part in zip(entries, _in_order(), strict=True)]
    noise, _ = accounts.both
    rows.append(["all together", "", "person", _digits(noise.budget.realised), _digits(accounts.epsilon), "55.371",
                 "126.78"])  # fmt: skip
    header = ["product", "mechanism", "unit", "ρ² of the plan", "ε", "ρ² printed", "ε printed"]
    text = (
        "Each row is a plan that ran, and an entry of the ledger with its own promise, for one record replaced, with "
        "the factors behind the published total: 4 for SafeTab-P, 2 for SafeTab-H and PHSafe. ρ² adds up over "
        "products, ε does not. A household counts for a person with factor 1. The printed sum rests on the rounded "
        "parts of Table 4: 15.29 + 19.776 + 17.79 + 2.515. ε is at δ = 10⁻¹⁰; our numbers are rounded up."
    )
    more = (
        "The total says at least, as Remark 6 of the paper: the ledger also holds a release without a specification, "
        "which stands for population estimates and special tabulations."
    )
    return section(
        "Seven plans, one total",
        paragraph(text),
        table(header, rows, numbers=header[3:]),
        paragraph(more, note=True),
    )


_PRINTED_EPSILON = {"pl-persons": "17.90", "pl-units": "2.70", "dhc-persons": "26.34", "dhc-units": "34.33"}


def _in_order() -> list[Part]:
    by_name = {part.name: part for part in parts()}
    order = ("pl-persons", "pl-units", "dhc-persons", "dhc-units", "safetab-p", "safetab-h", "phsafe")
    return [by_name[name] for name in order]


def _entry_row(entry: Entry, part: Part) -> list[str]:
    assert entry.specification is not None
    found = entry.specification.budget.realised
    epsilon = zcdp_to_epsilon(found, delta=DELTA)
    printed = f"{float(part.printed):.2f}" if part.name in _PRINTED_EPSILON else f"{float(part.printed):g}"
    unit = entry.specification.input_premetric.unit
    return [entry.purpose, entry.mechanism, unit, _digits(found), _digits(epsilon), printed,
            _PRINTED_EPSILON.get(part.name, "")]  # fmt: skip


def _other_totals() -> str:
    """Return the same noise in other accounts."""
    rows = [[each.name, _digits(exact(each.rho2)), _digits(each.epsilon)] for each in totals()]
    text = (
        "The noise is the same in every row; what differs is how the parts are added up, and for which change of the "
        "file. By the structure of SafeTab-P, replacing one person costs twice what removing one does, not four times. "
        "The first four rows are about one post-imputation person record replaced by another, the household fixed, and "
        "equal numbers of records; in the fifth the person may move to another household; in the last three all of a "
        "household of up to 99,999 persons is replaced. See docs/theory/census-2020.md."
    )
    header = ["total", "ρ²", "ε at δ = 10⁻¹⁰"]
    return section("The same noise, other accounts", paragraph(text), table(header, rows, numbers=header[1:]))


def _accuracy(compared: Sequence[Compared]) -> str:
    """Return the chart and the table of errors."""
    rows = [
        [each.title, each.area, each.product, each.cells, f"{each.mean:,.1f}", _error(each.noisy), _error(each.swapped)]
        for each in compared
    ]
    header = ["table", "by", "product", "cells", "mean true count", f"error, {NOISE}", f"error, {SWAP}"]
    text = (
        "Mean absolute error of one cell in one run of each. For the 2020 system it is that of the published counts of "
        "SafeTab-P and PHSafe (a total that is not published counts as 0) and of the best linear unbiased estimates "
        "from TopDown's measurements of that product alone, not of its records. Swapping exchanges tracts and what is "
        "in them between households of one county and size at 5%: what it leaves exact has the error 0, and that is "
        "what it does not protect."
    )
    return section(
        "Accuracy, on the same tables",
        paragraph(text),
        _chart(compared),
        table(header, rows, numbers=header[4:]),
    )


def _chart(compared: Sequence[Compared]) -> str:
    points = [
        {"table": each.name, "error": error, "release": name}
        for each in compared
        for name, error in ((NOISE, each.noisy), (SWAP, each.swapped))
    ]
    order = list(dict.fromkeys(str(point["table"]) for point in points))
    encoding = {
        "y": {"field": "table", "type": "nominal", "sort": order,
              "axis": {"title": None, "grid": True, "labelLimit": 320}},
        "x": {"field": "error", "type": "quantitative", "scale": {"type": "symlog", "constant": 1},
              "axis": {"title": "mean absolute error of a cell (0 is exact)", "values": [0, 1, 2, 5, 10, 20, 50, 100]}},
        "color": {"field": "release", "type": "nominal", "sort": [NOISE, SWAP], "title": None,
                  "scale": {"domain": [NOISE, SWAP], "range": [ACCENT, SECOND]},
                  "legend": {"orient": "top", "columnPadding": 40}},
        "shape": {"field": "release", "type": "nominal", "sort": [NOISE, SWAP], "title": None,
                  "scale": {"domain": [NOISE, SWAP], "range": ["circle", "diamond"]}},
    }  # fmt: skip
    mark = {"type": "point", "filled": True, "size": 90, "opacity": 1}
    # Room on the left: a reader's font may be wider than the one that was measured.
    room = {"left": 60, "right": 20, "top": 5, "bottom": 5}
    specification = {"data": {"values": points}, "mark": mark, "encoding": encoding, "padding": room}
    return chart(specification, title="Mean absolute error of a cell, 2020 system and swapping", width=520, height=380)


def _your_turn() -> str:
    """Return what a reader can do next."""
    return section(
        "Change a number",
        paragraph("Every budget is a file. Change one number, and see what changes in totals, noise and intervals:"),
        bullets(
            [
                "stirred census budget --part safetab-p --out mine.toml",
                "stirred census totals --safetab-p mine.toml",
                'then name it in a plan, budget = "mine.toml", and run the plan: stirred release 5-safetab-p.toml',
            ]
        ),
        paragraph(
            "Plans, files, bundles and both ledgers are beside this page. Iterations of race and ethnicity are "
            "invented; the DHC runs on a schema that a laptop holds, with the budget of production. The nation of "
            "these tables is this one state.",
            note=True,
        ),
    )


def _digits(value: Exact) -> str:
    """Return a loss, rounded up, with its thousands apart."""
    whole, dot, part = value.shown(6).partition(".")
    return f"{int(whole):,}{dot}{part}"


def _error(value: float) -> str:
    return "exact" if value == 0 else f"{value:.3g}"
