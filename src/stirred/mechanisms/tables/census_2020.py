"""The 2020 Census as one account: what its products cost together, as printed and by each mechanism's own structure.

The parts of TopDown come from the catalogue, those of SafeTab and PHSafe from their budget files. All totals are rho
squared for one post-imputation person record replaced by another (docs/theory/census-2020.md says under which
condition each holds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from stirred.data.sources import read_toml
from stirred.mechanisms.protocol import Command, Grid, Outcome, Progress
from stirred.mechanisms.tables.phsafe import PHSafe
from stirred.mechanisms.tables.safetab import SafeTabH, SafeTabP
from stirred.mechanisms.tables.tabulator import Tabulator
from stirred.spec import catalogue
from stirred.spec.convert_output import gdp_to_epsilon, zcdp_to_epsilon
from stirred.spec.exact import Exact, exact, sqrt

DELTA: Final = Fraction(1, 10**10)
LARGEST: Final = 99_999
"""Persons in a household at most: the bound of the production system on group quarters."""
# Of TopDown: the catalogue's entry of the printed and of the configured budget, and what a person who moves costs.
_TOPDOWN: Final = {"pl-person": 1, "dhc-person": 1, "pl-household": 2, "dhc-household": 4}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One way to add up, and the same as epsilon."""

    name: str
    rho2: Fraction

    @property
    def epsilon(self) -> Exact:
        """Return epsilon at delta 10^-10 by the paper's formula."""
        return zcdp_to_epsilon(exact(self.rho2), delta=DELTA)

    @property
    def sharper(self) -> tuple[Exact, Exact]:
        """Return epsilon by the conversion of Canonne, Kamath and Steinke, and for continuous Gaussian noise."""
        rho2 = exact(self.rho2)
        return zcdp_to_epsilon(rho2, delta=DELTA, method="cks"), gdp_to_epsilon(sqrt(2 * rho2), delta=DELTA)


def mechanisms(
    *, safetab_p: Any = "us-2020", safetab_h: Any = "us-2020", phsafe: Any = "us-2020"
) -> Sequence[Tabulator]:
    """Return the three mechanisms with these budgets."""
    return (
        SafeTabP(blocks="none", budget=safetab_p),
        SafeTabH(blocks="none", totals="none", budget=safetab_h),
        PHSafe(states=["all"], budget=phsafe),
    )


def parts(own: Sequence[Tabulator] | None = None) -> list[Part]:
    """Return all products of the 2020 Census.

    >>> [part.name for part in parts()]
    ['pl-person', 'dhc-person', 'pl-household', 'dhc-household', 'safetab-p', 'safetab-h', 'phsafe']
    """
    found = [*_topdown()]
    for mechanism in own or mechanisms():
        in_place = mechanism.replaced[0]
        if isinstance(mechanism, PHSafe):  # two households change, possibly alike: 2^2
            move = sum((q.rho * q.table.moved for q in mechanism.spent.queries()), Fraction(0))
        else:  # a person stays one record for SafeTab-P; of SafeTab-H two households change, possibly alike
            move = in_place * (4 if mechanism.unit == "household" else 1)
        found.append(
            Part(
                name=mechanism.name,
                unit=mechanism.unit,
                rho=mechanism.rho,
                printed=_realised(f"das-2020-{mechanism.name}"),
                run=mechanism.printed[0],
                in_place=in_place,
                may_move=move,
            )
        )
    return found


def _topdown() -> Iterator[Part]:
    """Yield the measurements of TopDown, which are about replaced records already."""
    for name, moves in _TOPDOWN.items():
        rho = _realised(f"das-2020-{name}")
        yield Part(
            name=name,
            unit=name.rpartition("-")[2],
            rho=rho,
            printed=_realised(f"das-2020-{name}-printed"),
            run=rho,
            in_place=rho,
            may_move=moves * rho,
        )


def _realised(name: str) -> Fraction:
    return catalogue.load(name).specification.budget.realised.rational


def totals(found: Sequence[Part] | None = None, *, largest: int = LARGEST) -> list[Total]:
    """Return the totals side by side, for one person and for a whole household.

    >>> [(total.name, str(exact(total.rho2).shown(6))) for total in totals()][3]
    ('all by their structure, household fixed', '43.460881')
    """
    found = [*(found or parts())]
    sharp_p = {part.name: part.in_place if part.name == "safetab-p" else part.printed for part in found}

    def household(account: str) -> Fraction:
        scale = {"person": largest**2, "household": 1}
        return sum((scale[part.unit] * getattr(part, account) for part in found), Fraction(0))

    def added(account: str) -> Fraction:
        return sum((getattr(part, account) for part in found), Fraction(0))

    return [
        Total(name="as printed", rho2=added("printed")),
        Total(name="as plans run it, printed factors", rho2=added("run")),
        Total(name="SafeTab-P by its structure, others as printed", rho2=sum(sharp_p.values(), Fraction(0))),
        Total(name="all by their structure, household fixed", rho2=added("in_place")),
        Total(name="all by their structure, person may move", rho2=added("may_move")),
        Total(name="a whole household, as printed", rho2=household("printed")),
        Total(name="a whole household, every part scaled", rho2=largest**2 * added("printed")),
        Total(name="a whole household, by their structure", rho2=household("in_place")),
    ]


# ---- the command ------------------------------------------------------------------------------------------


class TotalsOptions(BaseModel):
    """Budget files to use instead of those of 2020."""

    model_config = ConfigDict(frozen=True)

    safetab_p: Path | None = Field(default=None, description="Budget file of SafeTab-P.")
    safetab_h: Path | None = Field(default=None, description="Budget file of SafeTab-H.")
    phsafe: Path | None = Field(default=None, description="Budget file of PHSafe.")
    largest: int = Field(default=LARGEST, ge=1, description="Persons in a household at most.")


def show_totals(options: TotalsOptions, progress: Progress | None) -> Outcome:
    """Return parts, totals and the noise of every line of the budgets."""
    del progress
    files = {name: getattr(options, name) for name in ("safetab_p", "safetab_h", "phsafe")}
    own = mechanisms(**{name: read_toml(path) for name, path in files.items() if path is not None})
    found = parts(own)
    sums = totals(found, largest=options.largest)
    header = ("part", "unit", "rho", "printed", "in place", "may move")
    by_part = [(p.name, p.unit, *map(_shown, (p.rho, p.printed, p.in_place, p.may_move))) for p in found]
    by_total = [(t.name, _shown(t.rho2), t.epsilon.shown(2)) for t in sums]
    lines = [
        (m.name, line.what, f"{float(line.rho):g}", f"{float(line.variance) ** 0.5:.2f}", line.width)
        for m in own
        for line in m.measured
    ]
    return Outcome(
        rows=[
            ("unit", "one post-imputation person record replaced by another"),
            ("rho", "add or remove one, per part"),
        ],
        grids=[
            Grid(header=header, rows=tuple(by_part)),
            Grid(header=("total", "rho squared", "epsilon at delta 1e-10"), rows=tuple(by_total)),
            Grid(header=("mechanism", "counted", "rho", "sd", "95% within"), rows=tuple(lines)),
        ],
        values={
            "parts": [{"name": p.name, "unit": p.unit, **_numbers(p)} for p in found],
            "totals": [{"name": t.name, "rho2": str(t.rho2), "epsilon": float(t.epsilon)} for t in sums],
            "noise": [dict(zip(("mechanism", "what", "rho", "sd", "within_95"), line, strict=True)) for line in lines],
        },
    )


def _numbers(part: Part) -> dict[str, str]:
    return {name: str(getattr(part, name)) for name in ("rho", "printed", "run", "in_place", "may_move")}


def _shown(value: Fraction) -> str:
    return exact(value).shown(6)


COMMANDS: Final = (
    Command(
        name="totals",
        help="Show what the 2020 Census spends in all.\n\nAs printed, as it runs, and by each mechanism's structure.",
        options=TotalsOptions,
        run=show_totals,
    ),
)
