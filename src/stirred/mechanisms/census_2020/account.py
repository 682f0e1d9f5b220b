"""The 2020 Census as one account: what its products cost together, as printed and by each mechanism's own structure.

Every part comes from a budget file: those of TopDown, of SafeTab and of PHSafe. All totals are rho squared for one
post-imputation person record replaced by another (docs/theory/census-2020.md says under which condition each holds).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, Field, create_model

from stirred.data.place import file_at
from stirred.data.problems import bad_plan
from stirred.data.sources import read_toml
from stirred.mechanisms.protocol import Command, Grid, Outcome, Progress
from stirred.mechanisms.tables.phsafe import PHSafe
from stirred.mechanisms.tables.query import Query
from stirred.mechanisms.tables.safetab import SafeTabH, SafeTabP
from stirred.mechanisms.tables.tabulator import Tabulator
from stirred.mechanisms.topdown.budget import DELTA, Shares
from stirred.spec import catalogue
from stirred.spec.convert_output import zcdp_to_epsilon
from stirred.spec.exact import Exact, exact

LARGEST: Final = 99_999
"""Persons in a household at most: the bound of the production system on group quarters."""
_TOPDOWN: Final = "stirred.mechanisms.topdown.reference"
_TABLES: Final = "stirred.mechanisms.tables"
# The budget file of each part: where it is, and what it is of.
FILES: Final[Mapping[str, tuple[str, str, str]]] = {
    "pl-persons": (_TOPDOWN, "us-2020-pl-persons", "TopDown, redistricting data, persons"),
    "dhc-persons": (_TOPDOWN, "us-2020-dhc-persons", "TopDown, DHC, persons"),
    "pl-units": (_TOPDOWN, "us-2020-pl-units", "TopDown, redistricting data, housing units"),
    "dhc-units": (_TOPDOWN, "us-2020-dhc-units", "TopDown, DHC, units"),
    "safetab-p": (_TABLES, "reference/us-2020-p", "SafeTab-P"),
    "safetab-h": (_TABLES, "reference/us-2020-h", "SafeTab-H"),
    "phsafe": (_TABLES, "reference/us-2020-phsafe", "PHSafe"),
}
# Of TopDown: the unit, the catalogue's entry of the printed budget, and what a person who moves costs.
_MEASURED: Final = {
    "pl-persons": ("person", "das-2020-pl-person-printed", 1),
    "dhc-persons": ("person", "das-2020-dhc-person-printed", 1),
    "pl-units": ("household", "das-2020-pl-household-printed", 2),
    "dhc-units": ("household", "das-2020-dhc-household-printed", 4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One product: its unit, rho as configured, and rho squared of one replaced person, in four accounts."""

    name: str
    unit: str
    rho: Fraction
    printed: Fraction
    run: Fraction  # with the factor behind the printed number
    in_place: Fraction  # by its structure, the person's household fixed
    may_move: Fraction
    measured: tuple[Query, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTotal:
    """One way to add up, and the same as epsilon."""

    name: str
    rho2: Fraction

    @property
    def epsilon(self) -> Exact:
        """Return epsilon at delta 10^-10 by the paper's formula."""
        return zcdp_to_epsilon(exact(self.rho2), delta=DELTA)


def budget_text(name: str) -> str:
    """Return the budget file of a part as it is shipped."""
    package, file, _ = FILES[name]
    return resources.files(package).joinpath(f"{file}.toml").read_text(encoding="utf-8")


def parts(given: Mapping[str, Mapping[str, Any]] | None = None) -> list[Part]:
    """Return all products of the 2020 Census; ``given`` are budgets to use instead of those of 2020.

    >>> [f"{part.name} {float(part.rho):.6g}" for part in parts()]
    ['pl-persons 2.55623', 'dhc-persons 4.9622', 'pl-units 0.0749437', 'dhc-units 7.7005', 'safetab-p 4.944',
     'safetab-h 8.8953', 'phsafe 1.25728']
    """
    own = given or {}
    files = {name: own.get(name) or tomllib.loads(budget_text(name), parse_float=Decimal) for name in FILES}
    return [*_topdown(files), *_tabulators(files)]


def _topdown(files: Mapping[str, Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the measurements of TopDown, which are about replaced records already."""
    for name, (unit, printed, moves) in _MEASURED.items():
        shares = Shares.read(files[name], where=name)
        asked = ((level, query) for level in shares.levels for query in shares.measured(level))
        yield Part(
            name=name,
            unit=unit,
            rho=shares.rho,
            printed=_realised(printed),
            run=shares.rho,
            in_place=shares.rho,
            may_move=moves * shares.rho,
            measured=tuple(
                Query(title=f"{level}, {query}", loss=rho, square=2)
                for level, query in asked
                if (rho := shares.of_query(level, query))
            ),
        )


def _tabulators(files: Mapping[str, Any]) -> Iterator[Part]:
    """Yield SafeTab and PHSafe, each of which says itself what a replaced record costs."""
    made: tuple[Tabulator, ...] = (
        SafeTabP(blocks="none", budget=files["safetab-p"]),
        SafeTabH(blocks="none", totals="none", budget=files["safetab-h"]),
        PHSafe(states=["all"], budget=files["phsafe"]),
    )
    for mechanism in made:
        in_place = mechanism.replaced[0]
        if isinstance(mechanism, PHSafe):  # two households change, possibly alike: 2^2
            move = sum((q.loss * q.table.moved for q in mechanism.spent.queries()), Fraction(0))
        else:  # a person stays one record for SafeTab-P; of SafeTab-H two households change, possibly alike
            move = in_place * (4 if mechanism.unit == "household" else 1)
        yield Part(
            name=mechanism.name,
            unit=mechanism.unit,
            rho=mechanism.rho,
            printed=_realised(f"das-2020-{mechanism.name}"),
            run=mechanism.printed[0],
            in_place=in_place,
            may_move=move,
            measured=mechanism.measured,
        )


def _realised(name: str) -> Fraction:
    return catalogue.load(name).specification.budget.realised.rational


def totals(found: Sequence[Part] | None = None, *, largest: int = LARGEST) -> list[AccountTotal]:
    """Return the totals side by side, for one person and for a whole household.

    >>> [(total.name, str(exact(total.rho2).shown(6))) for total in totals()][3]
    ('all by their structure, household fixed', '43.460881')
    """
    found = [*(found or parts())]
    persons = {"person": largest**2, "household": 1}
    accounts: dict[str, Callable[[Part], Fraction]] = {
        "as printed": lambda part: part.printed,
        "as plans run it, printed factors": lambda part: part.run,
        "SafeTab-P by its structure, others as printed": lambda part: (
            part.in_place if part.name == "safetab-p" else part.printed
        ),
        "all by their structure, household fixed": lambda part: part.in_place,
        "all by their structure, person may move": lambda part: part.may_move,
        "a whole household, as printed": lambda part: persons[part.unit] * part.printed,
        "a whole household, every part scaled": lambda part: largest**2 * part.printed,
        "a whole household, by their structure": lambda part: persons[part.unit] * part.in_place,
    }
    return [AccountTotal(name=name, rho2=sum(map(cost, found), Fraction(0))) for name, cost in accounts.items()]


# ---- the commands -----------------------------------------------------------------------------------------


_files = {
    name.replace("-", "_"): (Path | None, Field(default=None, description=f"Budget file to use, of {of}."))
    for name, (*_, of) in FILES.items()
}
_largest = (int, Field(default=LARGEST, ge=1, description="Persons in a household at most."))
TotalsOptions: Any = create_model("TotalsOptions", **_files, largest=_largest)  # type: ignore[call-overload]


def show_totals(options: Any, progress: Progress | None) -> Outcome:
    """Return parts, totals and the noise of every line of the budgets; of changed files, what changes."""
    files = {name: path for name in FILES if (path := getattr(options, name.replace("-", "_"))) is not None}
    found = parts({name: read_toml(path) for name, path in files.items()})
    sums = totals(found, largest=options.largest)
    by_part = [(p.name, p.unit, *map(_shown, (p.rho, p.printed, p.in_place, p.may_move))) for p in found]
    by_total = [(t.name, _shown(t.rho2), t.epsilon.shown(6)) for t in sums]
    by_line = [(part.name, *_noise(line)) for part in found for line in part.measured]
    before = parts() if files else found
    old, new = _lines(before, totals(before, largest=options.largest), files), _lines(found, sums, files)
    rows = ((what, *(each.get(what, "not measured") for each in (old, new))) for what in {**old, **new})
    changed = [(what, theirs, ours) for what, theirs, ours in rows if theirs != ours]
    grids = [
        Grid(header=("part", "unit", "rho", "printed", "in place", "may move"), rows=tuple(by_part)),
        Grid(header=("total", "rho squared", "epsilon at delta 1e-10"), rows=tuple(by_total)),
        Grid(header=("part", "counted", "rho", "sd", "95% within"), rows=tuple(by_line)),
    ]
    if files:  # who changed a number looks for this first
        grids = [Grid(header=("changed", "2020", "yours"), rows=tuple(changed)), *grids[:2]]
    accounts = ("rho", "printed", "run", "in_place", "may_move")
    return Outcome(
        rows=[
            ("unit", "one post-imputation person record replaced by another, household and number of records fixed"),
            ("", "except where the person may move, and where a whole household is replaced"),
            ("rho", "per part: TopDown one record replaced, the others one record added or removed"),
            ("digits", "rounded up in the last place"),
        ],
        grids=grids,
        values={
            "parts": [{"name": p.name, "unit": p.unit, **{a: str(getattr(p, a)) for a in accounts}} for p in found],
            "totals": [{"name": t.name, "rho2": str(t.rho2), "epsilon": float(t.epsilon)} for t in sums],
            "noise": [dict(zip(("part", "what", "rho", "sd", "within_95"), line, strict=True)) for line in by_line],
            "changed": [dict(zip(("what", "2020", "yours"), row, strict=True)) for row in changed],
        },
    )


def _lines(found: Sequence[Part], sums: Sequence[AccountTotal], names: Collection[str]) -> dict[str, str]:
    """Return the totals, and rho, noise and interval of each line of the named parts, in words."""
    lines = {each.name: f"{_shown(each.rho2)}, epsilon {each.epsilon.shown(3)}" for each in sums}
    for part in found:
        for what, rho, deviation, width in map(_noise, part.measured if part.name in names else ()):
            lines[f"{part.name}: {what}"] = f"rho {rho}, sd {deviation}, 95% within {width}"
    return lines


def _noise(line: Query) -> tuple[str, str, str, int]:
    return line.title, f"{float(line.loss):g}", f"{float(line.parameter) ** 0.5:.2f}", line.width


def _shown(value: Fraction) -> str:
    return exact(value).shown(6)


class BudgetOptions(BaseModel):
    """Which budget file, and where a copy goes."""

    part: Literal["pl-persons", "dhc-persons", "pl-units", "dhc-units", "safetab-p", "safetab-h", "phsafe"] = Field(
        description="Whose budget file."
    )
    out: Path = Field(description="Where the copy goes; must not exist.")


def copy_budget(options: BudgetOptions, progress: Progress | None) -> Outcome:
    """Write the budget file of a part to change it."""
    if options.out.exists():
        raise bad_plan("it exists already", where=f"--out {options.out}", remedy="choose a new file")
    with file_at(options.out, private=False) as half:
        half.write_text(budget_text(options.part), encoding="utf-8")
    then = f"stirred census totals --{options.part} {options.out}"
    rows = [("written", str(options.out)), ("then", f"change a number in it, and see what changes: {then}")]
    return Outcome(rows=rows, values={"written": str(options.out)})


COMMANDS: Final = (
    Command(
        name="totals",
        help="Show what the 2020 Census spends in all.\n\nAs printed, as it runs, and by each mechanism's structure; "
        "with a budget file of your own, what changes.",
        options=TotalsOptions,
        run=show_totals,
    ),
    Command(
        name="budget",
        help="Copy a budget file of 2020, to change it.",
        options=BudgetOptions,
        run=copy_budget,
    ),
)
