"""The member of the swapping family that meets a custodian's wishes at the gentlest setting, and the others.

Every number used is a function of the invariants of the proposed swap, as condition 3 of use asks
(docs/theory/conditions.md): all members looked at have the same invariants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeVar

import polars as pl

from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata
from stirred.data.natural import sorted_values
from stirred.data.problems import PlanError, bad_plan, listed
from stirred.data.spelling import crossed
from stirred.mechanisms.advice.members import Member, members, plain_swap
from stirred.mechanisms.protocol import AdviceTable, Grid, share_changed, smallest_area
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.document import number_out, to_document
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import loss, probability
from stirred.spec.problems import Problem, StirredError

Number = Exact | Fraction | Decimal | float | int | str
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """An area by the value of one swap variable; with several swap variables it is all that lies in it."""

    variable: str
    value: str

    def share(self, areas: pl.DataFrame) -> float:
        """Return the share of its records that change, from the shares of all combinations of swap values."""
        own = areas.filter(pl.col(self.variable).cast(pl.String) == self.value)
        return float((own["records"] * own["share_changed"]).sum()) / float(own["records"].sum())

    def __str__(self) -> str:
        return f"{self.variable} {self.value}" if self.value.isdigit() else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a swap should do: margins that must be ``exact``, and what it may change.

    ``changed`` is the share of all records that should at least change their swap values; of the records of an
    ``undisturbed`` area at most a share of ``at_most`` may.
    """

    swap: tuple[str, ...]
    exact: tuple[tuple[str, ...], ...] = ()
    epsilon: Exact | None = None
    undisturbed: tuple[Area, ...] = ()
    at_most: Fraction = Fraction(1, 10)
    changed: Fraction = Fraction(1, 20)

    @property
    def match(self) -> tuple[str, ...]:
        """Return the variables to match on: only counts of match x swap stay exact, and all of those."""
        forced = [name for margin in self.exact if {*margin} & {*self.swap} for name in margin]
        return tuple(dict.fromkeys(name for name in forced if name not in self.swap))

    def unmet(self, epsilon: Exact, changed: float, shares: Sequence[tuple[Area, float]]) -> Iterator[tuple[str, str]]:
        """Yield the wishes that a swap does not meet: ``epsilon``, ``changed`` or ``undisturbed``, and by how much."""
        if self.epsilon is not None and epsilon > self.epsilon:
            yield "epsilon", f"epsilon {epsilon.shown()} > {self.epsilon.shown()}"
        if changed < self.changed:
            yield "changed", f"changed {tenths(changed)} < {tenths(float(self.changed))}"
        for area, share in shares:
            if share > self.at_most:
                yield "undisturbed", f"{area} {tenths(share)} > {tenths(float(self.at_most))}"


def wishes_for(
    data: Microdata,
    *,
    swap: Sequence[str],
    exact: str | Sequence[str | Sequence[str]] = (),
    epsilon: Number | None = None,
    undisturbed: str | Sequence[str] = (),
    at_most: Number = "10%",
    changed: Number = "5%",
    hold: Sequence[str] | None = None,
) -> Wishes:
    """Return the wishes, checked against the columns and areas of a file; all problems at once.

    >>> homes = pl.DataFrame({"county": ["A", "B"], "size": [1, 1], "tenure": ["owned", "rented"]})
    >>> wishes = wishes_for(Microdata(households=homes), swap=["county"], exact=["county x size", "size x tenure"])
    >>> wishes.match  # size x tenure holds no swap variable, and stays exact in any swap
    ('size',)
    """
    problems: list[Problem] = []

    def read(reading: Callable[..., T], value: Any, where: str, default: T) -> T:
        try:
            return reading(value, where=where)
        except StirredError as error:
            problems.extend(error.problems)
            return default

    given = (exact,) if isinstance(exact, str) else exact
    margins = tuple(tuple(crossed(each) if isinstance(each, str) else each) for each in given)
    for margin in margins:
        problems += _margin_problems(margin, data, swap, hold, where=f"--exact '{' x '.join(margin)}'")
    found = Wishes(
        swap=tuple(swap),
        exact=margins,
        epsilon=None if epsilon is None else read(_positive_loss, epsilon, "--epsilon", None),
        at_most=read(probability, at_most, "--at-most", Fraction(1, 10)),
        changed=read(probability, changed, "--changed", Fraction(1, 20)),
    )
    areas = [
        _area(name, data.households, swap) for name in ((undisturbed,) if isinstance(undisturbed, str) else undisturbed)
    ]
    problems += [area for area in areas if isinstance(area, Problem)]
    if problems:
        raise PlanError(problems)
    return replace(found, undisturbed=tuple(area for area in areas if isinstance(area, Area)))


def _positive_loss(value: Number, *, where: str) -> Exact | None:
    number = loss(value, where=where, finite=True)
    if number.is_infinite or number.sign() == 0:
        remedy = "write the largest loss you accept, above 0, such as 3; or leave it out for the smallest there is"
        raise PlanError([Problem(what=f"epsilon {number.shown()} cannot be wished for", where=where, remedy=remedy)])
    return number


def _margin_problems(
    margin: tuple[str, ...], data: Microdata, swap: Sequence[str], hold: Sequence[str] | None, *, where: str
) -> Iterator[Problem]:
    homes, people = data.variables, data.person_variables
    known = [*homes, *people]
    unknown = [name for name in margin if name not in known]
    if unknown or not margin or len(set(margin)) < len(margin):
        yield Problem(
            what=f"there is no variable {listed(unknown)}" if unknown else "a margin needs different variables",
            where=where,
            remedy=f"write such as '{_such_as(known, swap)}', with {listed(known[:30])}",
        )
        return
    of_persons = [name for name in margin if name not in homes]
    across = bool(set(margin) & set(swap))
    if of_persons and across:
        yield Problem(
            what=f"{listed(of_persons)} belongs to persons, and no swap keeps counts of persons by "
            f"{listed([name for name in margin if name in swap])} exactly: only variables of the household can be "
            "matched on",
            where=where,
            remedy="leave it out, or add what you need to the household file, such as the number of its adults, and "
            "name that",
        )
    dropped = [] if hold is None or across else [name for name in margin if name not in hold]
    if dropped:
        remedy = "add it to --hold, or leave the margin out"
        yield Problem(what=f"{listed(dropped)} is not released", where=where, remedy=remedy)


def _such_as(known: Sequence[str], swap: Sequence[str]) -> str:
    """Return a margin of columns that the file has, across the swap if it can be."""
    own = [name for name in swap if name in known][:1]
    return " x ".join([*own, *(name for name in known if name not in swap)][:2])


def _area(name: str, households: pl.DataFrame, swap: Sequence[str]) -> Area | Problem:
    """Return the area of a name: a value of a swap variable, or VARIABLE=VALUE where several have it."""
    variables = [variable for variable in swap if variable in households.columns]
    values = {
        variable: sorted_values(households[variable].unique().cast(pl.String).drop_nulls()) for variable in variables
    }
    named, _, value = name.partition("=")
    if named in variables and value in set(values[named]):
        return Area(variable=named, value=value)
    holding = [variable for variable in variables if name in set(values[variable])]
    if len(holding) == 1:
        return Area(variable=holding[0], value=name)
    there = [text for variable in variables for text in values[variable].head(30)]
    where = f"--undisturbed '{name}'"
    if holding:
        remedy = f"write such as '{holding[0]}={name}'"
        return Problem(what=f"{listed(holding)} have this value", where=where, remedy=remedy)
    what = f"there is no such area; there are {listed(there[:30])}{', ...' if len(there) > 30 else ''}"
    return Problem(what=what, where=where, remedy=f"name a value of {listed(list(swap))}")


# ---- the search ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """A member at its gentlest setting: loss, whom it changes, and the wishes it does not meet.

    ``areas`` has the records of each area and the share of them that changes, ``changed`` is the share of all.
    """

    name: str
    mechanism: Swap
    epsilon: Exact
    areas: pl.DataFrame
    changed: float
    undisturbed: tuple[tuple[Area, float], ...]
    unmet: tuple[tuple[str, str], ...]

    @property
    def setting(self) -> str:
        """Return its number in words."""
        return self.mechanism.setting_in_words(self.epsilon)

    @property
    def smallest_area(self) -> tuple[str, int, float]:
        """Return the area with the fewest records, how many it has, and which share of them changes."""
        return smallest_area(self.areas)

    @property
    def section(self) -> dict[str, Any]:
        """Return it as the section [mechanism] of a plan."""
        return {"name": self.mechanism.name, **self.mechanism.settings.dumped(exclude_defaults=True)}

    @property
    def values(self) -> dict[str, Any]:
        """Return it for JSON."""
        area, records, share = self.smallest_area
        return {
            "name": self.name,
            "settings": self.section,
            "epsilon": number_out(self.epsilon),
            "epsilon_exact": str(self.epsilon),
            "share_changed": self.changed,
            "undisturbed": [{"area": str(area), "share_changed": share} for area, share in self.undisturbed],
            "smallest_area": {"area": area, "records": records, "share_changed": share},
            "meets_all": not self.unmet,
            "shortfalls": [{"wish": wish, "text": text} for wish, text in self.unmet],
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advice:
    """The proposals, best first, and the plan of the first if it meets all wishes; else that of any member."""

    wishes: Wishes
    proposals: tuple[Proposal, ...]
    plan: SwapPlan

    @property
    def chosen(self) -> Proposal | None:
        """Return the proposal, or None if no member meets all wishes."""
        return None if self.proposals[0].unmet else self.proposals[0]


def propose(
    data: Any, *, swap: str | Sequence[str], hold: Sequence[str] | None = None, unit: str = "household", **wishes: Any
) -> Advice:
    """Return the member of the swapping family that meets the wishes with the least disturbance.

    ``exact`` names margins that must stay exact, as ``"county x size"``; ``epsilon`` is the largest loss; of the
    records of an ``undisturbed`` area at most ``at_most`` may change their swap values, and of all records at least
    ``changed`` should (``wishes_for``). Without ``epsilon`` it is the smallest there is.

    >>> homes = pl.DataFrame({"county": ["A"] * 900 + ["B"] * 100, "tenure": ["owned", "rented"] * 500})
    >>> advice = propose(homes, swap="county", epsilon=2)
    >>> advice.chosen.name, advice.chosen.setting
    ('conditioned, uniform', 'rate 23.85%')
    >>> propose(homes, swap="county", epsilon=2, undisturbed="B").chosen is None
    True
    """
    microdata = as_microdata(data)
    names = (swap,) if isinstance(swap, str) else tuple(swap)
    plain_swap(match=(), swap=names, hold=hold, unit=unit).check(microdata)
    wished = wishes_for(microdata, swap=names, hold=hold, **wishes)
    roles = {"match": wished.match, "swap": names, "hold": hold, "unit": unit, "settings_from": "invariants"}
    plain = plain_swap(**roles)
    plan = plain.plan(microdata, doubts=False)
    _check_live(plan, wished, where=microdata.household_source)
    ranked = _ranked([_gentlest(member, wished) for member in members(roles, plan)], wished)
    best = plain if ranked[0].unmet else ranked[0].mechanism
    return Advice(wishes=wished, proposals=tuple(ranked), plan=best.plan(microdata))


def _check_live(plan: SwapPlan, wishes: Wishes, *, where: str) -> None:
    if plan.strata.largest_live is not None:
        return
    matched = f" by {' x '.join(wishes.match)}" if wishes.match else ""
    other = "ask for fewer exact margins, or swap another variable"
    raise bad_plan(
        f"nothing can be swapped: no group of records{matched} has two different values of {' x '.join(wishes.swap)} "
        "and two different records besides",
        where=where,
        remedy=other if wishes.match else "swap another variable, or hold more columns",
    )


def _gentlest(member: Member, wishes: Wishes) -> Proposal:
    """Return a member at the gentlest step that reaches the loss and the share changed, or comes closest."""
    step, wanted = 1, wishes.epsilon
    if wanted is not None:
        step = member.first(lambda step: member.loss(step) <= wanted, last=member.lowest) or member.lowest
    step = max(step, member.first(lambda step: member.changed(step) >= wishes.changed) or member.scale.steps)
    areas, epsilon = member.areas(step), member.loss(step)
    changed, shares = share_changed(areas), tuple((area, area.share(areas)) for area in wishes.undisturbed)
    return Proposal(
        name=member.name,
        mechanism=member.at(step),
        epsilon=epsilon,
        areas=areas,
        changed=changed,
        undisturbed=shares,
        unmet=tuple(wishes.unmet(epsilon, changed, shares)),
    )


def _ranked(found: Sequence[Proposal], wishes: Wishes) -> list[Proposal]:
    """Return those that meet all wishes first; of these the one that disturbs least, or without a loss loses least.

    Shares are compared to a tenth of a percent, within which the smaller loss decides.
    """

    def key(each: Proposal) -> tuple[float, ...]:
        by_loss, by_share = (float(each.epsilon), each.changed), (round(each.changed, 3), float(each.epsilon))
        return (len({wish for wish, _ in each.unmet}), *(by_loss if wishes.epsilon is None else by_share))

    return sorted(found, key=key)


# ---- what is shown ------------------------------------------------------------------------------------------

RESTS_ON: Final = (
    "All members shown keep the same counts exact. Their losses and shares follow from these counts alone. Choosing by "
    'this table therefore uses nothing that is protected: settings_from = "invariants".'
)


def advise(data: Any, **wishes: Any) -> AdviceTable:
    """Return what ``propose`` finds, as data to be shown."""
    advice = propose(data, **wishes)
    return AdviceTable(
        wishes=_wishes_in_words(advice.wishes),
        plan=advice.plan,
        section=None if advice.chosen is None else advice.chosen.section,
        tables=advice.wishes.exact,
        candidates=_grid(advice),
        rests_on=RESTS_ON,
        values=_values(advice),
    )


def _wishes_in_words(wishes: Wishes) -> str:
    parts = [
        *(f"{' x '.join(margin)} exact" for margin in wishes.exact),
        *([f"epsilon at most {wishes.epsilon.shown()}"] if wishes.epsilon is not None else []),
        f"at least {tenths(float(wishes.changed))} of all records change {', '.join(wishes.swap)}",
        *(f"at most {tenths(float(wishes.at_most))} of {area}" for area in wishes.undisturbed),
    ]
    return "; ".join(parts)


def _grid(advice: Advice) -> Grid:
    # The smallest area is the same for all: only the swaps differ.
    smallest, records, _ = advice.proposals[0].smallest_area
    areas = advice.wishes.undisturbed
    alone = smallest in [area.value for area in areas] and len(advice.wishes.swap) == 1
    small = () if alone else (f"in {smallest}, the smallest ({records:,})",)
    header = ("swap", "setting", "ε", "records changed", *(f"in {area}" for area in areas), *small, "wishes")
    rows = tuple(
        (
            each.name,
            each.setting,
            each.epsilon.shown(),
            tenths(each.changed),
            *(tenths(share) for _, share in each.undisturbed),
            *(() if alone else (tenths(each.smallest_area[2]),)),
            "; ".join(text for _, text in each.unmet) or "all met",
        )
        for each in advice.proposals
    )
    return Grid(header=header, rows=rows)


def _values(advice: Advice) -> dict[str, Any]:
    wishes, chosen = advice.wishes, advice.chosen
    return {
        "meets_all": chosen is not None,
        "proposal": None if chosen is None else chosen.values,
        "wishes": {
            "swap": list(wishes.swap),
            "exact": [" x ".join(margin) for margin in wishes.exact],
            "epsilon": None if wishes.epsilon is None else str(wishes.epsilon),
            "undisturbed": [str(area) for area in wishes.undisturbed],
            "at_most": str(wishes.at_most),
            "changed": str(wishes.changed),
        },
        "match": list(wishes.match),
        "settings_from": "invariants",
        "specification": None if chosen is None else to_document(advice.plan.specification),
        "invariants": [str(invariant) for invariant in advice.plan.specification.multiverse.invariants],
        "proposals": [each.values for each in advice.proposals],
    }


def tenths(share: float) -> str:
    """Return a share to a tenth of a percent.

    >>> tenths(0.0123), tenths(1)
    ('1.2%', '100.0%')
    """
    return f"{100 * share:.1f}%"
