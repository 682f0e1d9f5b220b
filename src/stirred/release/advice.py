"""The members of the swapping family on one file: which fits a custodian's wishes, and which changes or loses as much.

Each swap hands over its ``members`` on the file of a plan: its settings by steps, from the gentlest to the strongest,
with loss and share changed. Both follow from the invariants of the swap, and all members looked at have the same ones,
as condition 3 of use asks (docs/theory/conditions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import polars as pl

from stirred.data.microdata import Microdata, as_microdata
from stirred.data.natural import sorted_values
from stirred.data.problems import PlanError, bad_plan, listed
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import Grid
from stirred.release.choices import plain_swap
from stirred.spec.document import number_out, to_document
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import loss, probability
from stirred.spec.problems import Problem, StirredError
from stirred.spec.spelling import crossed
from stirred.utility.comparison import share_changed, smallest_area

Number = Exact | Fraction | Decimal | float | int | str
RESTS_ON: Final = (
    "All members shown keep the same counts exact. Their losses and shares follow from these counts alone. Choosing by "
    'this table therefore uses nothing that is protected: settings_from = "invariants".'
)
_MOST_MARGINS: Final = 50_000
_NOTICED: Final = 0.05  # of the loss: what is less is rounding of rates


# ---- the family -----------------------------------------------------------------------------------------------


def members(plan: Any) -> list[Any]:
    """Return all members on the file of a plan of any of them; refuse a plan that cannot be compared with them.

    >>> homes = pl.DataFrame({"county": ["A", "B"] * 50, "tenure": ["owned", "rented", "rented", "owned"] * 25})
    >>> found = {member.name: member for member in members(plain_swap(match=(), swap=("county",)).plan(homes))}
    >>> shuffle = found["shuffle"]
    >>> step = shuffle.changing(0.2)
    >>> shuffle.at(step).setting_in_words(shuffle.loss(step)), shuffle.loss(step).shown()
    ('rate 40.6%', '3.50')
    """
    found: list[Any] = [registry.mechanism_class(name) for name in registry.family()]
    return [member for made in found for member in made.members(plan)]


def relatives(data: Any, swap: Any, *, equal: str) -> list[tuple[str, Any]]:
    """Return the members of the family at an equal share of changed records, or at an equal loss, as ``swap``.

    ``equal`` is ``changed`` or ``epsilon``. Members that cannot reach it are left out.
    """
    if swap.family is None:
        raise bad_plan("this mechanism has no family", where="--equal", remedy="compare plans with each other")
    if equal not in ("changed", "epsilon"):
        raise bad_plan(f"'{equal}' cannot be made equal", where="--equal", remedy="write changed or epsilon")
    plan = swap.plan(data, doubts=False)
    family = members(plan)
    wanted = share_changed(swap.areas_changed(plan))
    found: list[tuple[str, Any]] = []
    for member in family:
        last = member.scale.steps
        one = None
        if member.has(swap):
            one = swap
        elif equal == "epsilon":
            one = member.with_loss(plan.epsilon)
        elif share_changed(member.areas(last)) >= wanted * (1 - 1e-3):
            one = member.at(member.changing(wanted) or last)
        if one is not None:
            found.append((member.name, one))
    return found


def stronger(mechanism: Any, plan: Any) -> tuple[Proposal, float] | None:
    """Return the member with the smallest loss of those that change as many records, if it is below the plan's.

    With it comes the share of records that the plan changes.

    All have the same invariants, unit and measure, so losses compare. From the margins alone, without a draw; None
    where whom a swap changes is protected, or where so many margins would take minutes.
    """
    if mechanism.family is None:
        return None
    try:
        others = [member for member in members(plan) if not member.has(mechanism)]
        areas = mechanism.areas_changed(plan) if plan.strata.margins.count.size <= _MOST_MARGINS else None
    except StirredError:
        return None  # it cannot be compared, or whom it changes is protected
    wanted = 0.0 if areas is None else share_changed(areas)
    steps = [(member, member.changing(wanted)) for member in others if wanted]
    found = [Proposal(member=member, step=step) for member, step in steps if step is not None]
    least = min(found, key=lambda each: each.epsilon, default=None)
    return (least, wanted) if least and float(least.epsilon) < float(plan.epsilon) * (1 - _NOTICED) else None


# ---- wishes -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """An area by the value of one swap variable; with several swap variables it is all that lies in it."""

    variable: str
    value: str

    @classmethod
    def named(cls, name: str, households: pl.DataFrame, swap: Sequence[str]) -> Area:
        """Return the area of a name: a value of a swap variable, or VARIABLE=VALUE where several have it."""
        values = {each: sorted_values(households[each].unique().cast(pl.String).drop_nulls()) for each in swap}
        found = [cls(variable=each, value=name) for each in swap if name in values[each]]
        variable, _, value = name.partition("=")
        if variable in values and value in values[variable]:
            found = [cls(variable=variable, value=value)]
        if len(found) == 1:
            return found[0]
        there = [text for each in swap for text in values[each]]
        more = ", ..." if len(there) > 30 else ""
        what, remedy = f"there is no such area; there are {listed(there[:30])}{more}", f"name a value of {listed(swap)}"
        if found:
            what = f"{listed([each.variable for each in found])} have this value"
            remedy = f"write such as '{found[0].variable}={name}'"
        raise bad_plan(what, where=f"--undisturbed '{name}'", remedy=remedy)

    def share(self, areas: pl.DataFrame) -> float:
        """Return the share of its records that change, from the shares of all combinations of swap values."""
        return share_changed(areas.filter(pl.col(self.variable).cast(pl.String) == self.value))

    def __str__(self) -> str:
        return f"{self.variable} {self.value}" if self.value.isdigit() else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a swap should do: margins that must be ``exact``, and what it may change.

    ``changed`` is the share of all records that should at least change their swap values; of the records of an
    ``undisturbed`` area at most a share of ``at_most`` may.
    """

    swap: tuple[str, ...]
    exact: tuple[tuple[str, ...], ...]
    epsilon: Exact | None
    undisturbed: tuple[Area, ...]
    at_most: Fraction
    changed: Fraction

    @property
    def match(self) -> tuple[str, ...]:
        """Return the variables to match on: only counts of match x swap stay exact, and all of those."""
        forced = [name for margin in self.exact if {*margin} & {*self.swap} for name in margin]
        return tuple(dict.fromkeys(name for name in forced if name not in self.swap))

    def __str__(self) -> str:
        parts = [
            *(f"{' x '.join(margin)} exact" for margin in self.exact),
            *([f"epsilon at most {self.epsilon.shown()}"] if self.epsilon is not None else []),
            f"at least {tenths(self.changed)} of all records change {', '.join(self.swap)}",
            *(f"at most {tenths(self.at_most)} of {area}" for area in self.undisturbed),
        ]
        return "; ".join(parts)

    @property
    def values(self) -> dict[str, Any]:
        """Return them for JSON."""
        return {
            "swap": list(self.swap),
            "exact": [" x ".join(margin) for margin in self.exact],
            "epsilon": None if self.epsilon is None else str(self.epsilon),
            "undisturbed": [str(area) for area in self.undisturbed],
            "at_most": str(self.at_most),
            "changed": str(self.changed),
        }


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
    margins = [crossed(each) if isinstance(each, str) else each for each in _several(exact)]
    problems = [problem for margin in margins for problem in _margin_problems(margin, data, swap, hold)]

    def read(reading: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            return reading(*given, **named)
        except StirredError as error:
            problems.extend(error.problems)
            return None

    found = Wishes(
        swap=tuple(swap),
        exact=tuple(map(tuple, margins)),
        epsilon=None if epsilon is None else read(_positive_loss, epsilon),
        undisturbed=tuple(read(Area.named, name, data.households, swap) for name in _several(undisturbed)),
        at_most=read(probability, at_most, where="--at-most"),
        changed=read(probability, changed, where="--changed"),
    )
    if problems:
        raise PlanError(problems)
    return found


def _several(given: Any) -> Sequence[Any]:
    return [given] if isinstance(given, str) else given


def _positive_loss(value: Number) -> Exact:
    number = loss(value, where="--epsilon", finite=True)
    if number.is_infinite or number.sign() == 0:
        remedy = "write the largest loss you accept, above 0, such as 3; or leave it out for the smallest there is"
        raise bad_plan(f"epsilon {number.shown()} cannot be wished for", where="--epsilon", remedy=remedy)
    return number


def _margin_problems(
    margin: Sequence[str], data: Microdata, swap: Sequence[str], hold: Sequence[str] | None
) -> Iterator[Problem]:
    where = f"--exact '{' x '.join(margin)}'"
    known = [*data.variables, *data.person_variables]
    unknown = [name for name in margin if name not in known]
    if unknown or not margin or len(set(margin)) < len(margin):
        such_as = " x ".join([*swap[:1], *(name for name in known if name not in swap)][:2])
        yield Problem(
            what=f"there is no variable {listed(unknown)}" if unknown else "a margin needs different variables",
            where=where,
            remedy=f"write such as '{such_as}', with {listed(known[:30])}",
        )
        return
    across = [name for name in margin if name in swap]
    if across and (of_persons := [name for name in margin if name not in data.variables]):
        yield Problem(
            what=f"{listed(of_persons)} belongs to persons, and no swap keeps counts of persons by {listed(across)} "
            "exactly: only variables of the household can be matched on",
            where=where,
            remedy="leave it out, or add what you need to the household file, such as the number of its adults, and "
            "name that",
        )
    if not across and hold is not None and (dropped := [name for name in margin if name not in hold]):
        remedy = "add it to --hold, or leave the margin out"
        yield Problem(what=f"{listed(dropped)} is not released", where=where, remedy=remedy)


# ---- the search ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposal:
    """A member at one step: its loss, whom it changes, and the wishes that it does not meet."""

    member: Any
    step: int
    wishes: Wishes | None = None

    @classmethod
    def gentlest(cls, member: Any, wishes: Wishes) -> Proposal:
        """Return a member at the gentlest step that reaches the loss and the share changed, or comes closest."""
        step = 1 if wishes.epsilon is None else member.losing(wishes.epsilon)
        step = max(step, member.changing(wishes.changed) or member.scale.steps)
        return cls(member=member, step=step, wishes=wishes)

    @property
    def name(self) -> str:
        """Return the name of the member."""
        return str(self.member.name)

    @cached_property
    def mechanism(self) -> Any:
        """Return the swap itself."""
        return self.member.at(self.step)

    @cached_property
    def epsilon(self) -> Exact:
        """Return its loss."""
        found: Exact = self.member.loss(self.step)
        return found

    @cached_property
    def areas(self) -> pl.DataFrame:
        """Return the records of each area, and the share of them that it is expected to change."""
        found: pl.DataFrame = self.member.areas(self.step)
        return found

    @property
    def changed(self) -> float:
        """Return the share of all records that it changes."""
        return share_changed(self.areas)

    @property
    def undisturbed(self) -> list[tuple[Area, float]]:
        """Return the areas that should stay, each with the share of its records that changes."""
        return [] if self.wishes is None else [(area, area.share(self.areas)) for area in self.wishes.undisturbed]

    @property
    def unmet(self) -> list[tuple[str, str]]:
        """Return the wishes that it does not meet: ``epsilon``, ``changed`` or ``undisturbed``, and by how much."""
        wishes, found = self.wishes, []
        if wishes is not None and wishes.epsilon is not None and self.epsilon > wishes.epsilon:
            found.append(("epsilon", f"epsilon {self.epsilon.shown()} > {wishes.epsilon.shown()}"))
        if wishes is not None and self.changed < wishes.changed:
            found.append(("changed", f"changed {tenths(self.changed)} < {tenths(wishes.changed)}"))
        for area, share in self.undisturbed:
            if wishes is not None and share > wishes.at_most:
                found.append(("undisturbed", f"{area} {tenths(share)} > {tenths(wishes.at_most)}"))
        return found

    @property
    def setting(self) -> str:
        """Return its number in words."""
        return str(self.mechanism.setting_in_words(self.epsilon))

    @property
    def section(self) -> dict[str, Any]:
        """Return it as the section [mechanism] of a plan."""
        return {"name": self.mechanism.name, **self.mechanism.settings.dumped(exclude_defaults=True)}

    @property
    def values(self) -> dict[str, Any]:
        """Return it for JSON."""
        area, records, share = smallest_area(self.areas)
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
    plan: Any

    @property
    def chosen(self) -> Proposal | None:
        """Return the proposal, or None if no member meets all wishes."""
        return None if self.proposals[0].unmet else self.proposals[0]

    @property
    def grid(self) -> Grid:
        """Return all members, the best first: name, setting, loss, share changed, wishes that are not met."""
        # The smallest area is the same for all: only the swaps differ.
        smallest, records, _ = smallest_area(self.proposals[0].areas)
        areas = self.wishes.undisturbed
        alone = smallest in [area.value for area in areas] and len(self.wishes.swap) == 1
        small = () if alone else (f"in {smallest}, the smallest ({records:,})",)
        rows = tuple(
            (
                each.name,
                each.setting,
                each.epsilon.shown(),
                tenths(each.changed),
                *(tenths(share) for _, share in each.undisturbed),
                *(() if alone else (tenths(smallest_area(each.areas)[2]),)),
                "; ".join(text for _, text in each.unmet) or "all met",
            )
            for each in self.proposals
        )
        shares = ("records changed", *(f"in {area}" for area in areas), *small)
        return Grid(header=("swap", "setting", "ε", *shares, "wishes"), rows=rows)

    @property
    def values(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        chosen, promised = self.chosen, self.plan.specification
        return {
            "meets_all": chosen is not None,
            "proposal": None if chosen is None else chosen.values,
            "wishes": self.wishes.values,
            "match": list(self.wishes.match),
            "settings_from": "invariants",
            "specification": None if chosen is None else to_document(promised),
            "invariants": [str(invariant) for invariant in promised.multiverse.invariants],
            "proposals": [each.values for each in self.proposals],
        }


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
    microdata, names = as_microdata(data), tuple(_several(swap))
    plain = plain_swap(match=(), swap=names, hold=hold, unit=unit, settings_from="invariants")
    plain.check(microdata)
    wished = wishes_for(microdata, swap=names, hold=hold, **wishes)
    plain = plain.with_settings(match=wished.match)
    plan = plain.plan(microdata, doubts=False)
    if plan.strata.largest_live is None:
        matched = f" by {' x '.join(wished.match)}" if wished.match else ""
        fewer = "ask for fewer exact margins, or swap another variable"
        raise bad_plan(
            f"nothing can be swapped: no group of records{matched} has two different values of {' x '.join(names)} "
            "and two different records besides",
            where=microdata.household_source,
            remedy=fewer if matched else "swap another variable, or hold more columns",
        )

    def rank(each: Proposal) -> tuple[float, ...]:
        # Who meets all wishes comes first; then who disturbs least, to a tenth of a percent, or without a loss loses
        # least.
        by_loss, by_share = (float(each.epsilon), each.changed), (round(each.changed, 3), float(each.epsilon))
        return (len({wish for wish, _ in each.unmet}), *(by_loss if wished.epsilon is None else by_share))

    ranked = sorted((Proposal.gentlest(member, wished) for member in members(plan)), key=rank)
    best = plain if ranked[0].unmet else ranked[0].mechanism
    return Advice(wishes=wished, proposals=tuple(ranked), plan=best.plan(microdata))


def tenths(share: float | Fraction) -> str:
    """Return a share to a tenth of a percent.

    >>> tenths(0.0123), tenths(1)
    ('1.2%', '100.0%')
    """
    return f"{100 * float(share):.1f}%"
