"""The members of the swapping family on one file: which fits a custodian's wishes, and which changes or loses as much.

Each swap declares its ``scales``: its settings by steps, from the gentlest to the strongest. Losses and shares are
functions of the invariants of the swap, and all members looked at have the same ones, as condition 3 of use asks
(docs/theory/conditions.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import polars as pl

from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata
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
_ROLES: Final = ("match", "swap", "hold", "unit", "settings_from")


# ---- members ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """One member on the strata of one file; each step changes more records than the one before.

    ``plan`` is any swap's plan with the same match, swap and hold variables.

    >>> homes = pl.DataFrame({"county": ["A", "B"] * 50, "tenure": ["owned", "rented", "rented", "owned"] * 25})
    >>> roles = {"match": (), "swap": ("county",)}
    >>> found = {member.name: member for member in members(roles, plain_swap(**roles).plan(homes))}
    >>> shuffle = found["shuffle"]
    >>> step = shuffle.changing(0.2)
    >>> shuffle.at(step).rate, shuffle.loss(step).shown()
    (Fraction(203, 500), '3.50')
    """

    made: Callable[..., Any]
    scale: Any
    roles: dict[str, Any]
    plan: Any

    @property
    def name(self) -> str:
        """Return what it is called."""
        return str(self.scale.name)

    def at(self, step: int) -> Any:
        """Return the swap at a step."""
        return self.made(**self.roles, **self.scale.others, **{self.scale.setting: self.scale.value(step)})

    def loss(self, step: int) -> Exact:
        """Return its loss."""
        swap = self.at(step)
        found: Exact
        if self.scale.setting == "rate":
            ((_, found),) = swap.rate_losses(self.plan).losses([swap.swap_law.base_rate])
        else:
            found = swap.swap_law.policy(self.plan.strata, self.plan.swap).realised
        return found

    def areas(self, step: int) -> pl.DataFrame:
        """Return for each combination of swap values its records and the share that is expected to change."""
        areas: pl.DataFrame = self.at(step).areas_changed(self.plan)
        return areas

    def first(self, test: Callable[[int], bool], *, last: int) -> int | None:
        """Return the gentlest step that passes a test which all stronger ones pass too; None if the last does not."""
        low, high = 0, last
        if not test(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if test(middle) else (middle, high)
        return high

    def losing(self, epsilon: Exact) -> int:
        """Return the gentlest step with a loss of at most ``epsilon``, or the step that loses least."""
        # That is the last, unless its law loses more again at high rates.
        strongest = self.at(1).swap_law.strongest_rate(self.plan.strata)
        lowest = min(self.scale.steps, math.ceil((self.scale.steps + 1) * strongest))
        return self.first(lambda step: self.loss(step) <= epsilon, last=lowest) or lowest

    def changing(self, share: float | Fraction) -> int | None:
        """Return the gentlest step that is expected to change this share of all records."""
        return self.first(lambda step: share_changed(self.areas(step)) >= share, last=self.scale.steps)

    def with_loss(self, epsilon: Exact) -> Iterator[Any]:
        """Yield the swap with a loss of at most ``epsilon``, if there is one."""
        swap = self.at(1)
        try:
            wanted = swap.rate_losses(self.plan).gentlest(epsilon) if self.scale.setting == "rate" else epsilon
        except StirredError:
            return  # no rate of this member reaches the loss
        yield swap.with_settings(**{self.scale.setting: wanted})

    def has(self, swap: Any) -> bool:
        """Say whether a swap is of this member, at any setting."""
        own = self.at(1).swap_law
        same = (getattr(own, name) == getattr(swap.swap_law, name, None) for name in self.scale.others)
        return type(own) is type(swap.swap_law) and all(same)


def members(roles: dict[str, Any], plan: Any) -> list[Member]:
    """Return all members for these roles of columns; ``plan`` is that of any of them."""
    found: list[Any] = [registry.mechanism_class(name) for name in registry.family()]
    return [Member(made=made, scale=scale, roles=roles, plan=plan) for made in found for scale in made.family.scales]


def _relatives(swap: Any, plan: Any) -> list[Member]:
    return members({name: getattr(swap, name) for name in _ROLES}, plan)


def relatives(data: Any, swap: Any, *, equal: str) -> list[tuple[str, Any]]:
    """Return the members of the family at an equal share of changed records, or at an equal loss, as ``swap``.

    ``equal`` is ``changed`` or ``epsilon``. Members that cannot reach it are left out.
    """
    if swap.family is None:
        raise bad_plan("this mechanism has no family", where="--equal", remedy="compare plans with each other")
    if equal not in ("changed", "epsilon"):
        raise bad_plan(f"'{equal}' cannot be made equal", where="--equal", remedy="write changed or epsilon")
    plan = swap.plan(data, doubts=False)
    if plan.origin.mechanism.imputed_flag is not None:
        raise bad_plan(
            "the other members do not leave imputed records out",
            where="imputed",
            remedy="compare plans without it, or two plans with different rates",
        )
    if plan.perturbed:
        raise bad_plan(
            f"the other members publish the counts of {', '.join(plan.perturbed)} that the response protects",
            where="respond",
            remedy="compare plans one by one: the specifications differ in what is published exactly",
        )
    wanted = share_changed(swap.areas_changed(plan))
    found: list[tuple[str, Any]] = []
    for member in _relatives(swap, plan):
        last = member.scale.steps
        if member.has(swap):
            found.append((member.name, swap))
        elif equal == "epsilon":
            found += [(member.name, one) for one in member.with_loss(plan.epsilon)]
        elif share_changed(member.areas(last)) >= wanted * (1 - 1e-3):
            found.append((member.name, member.at(member.changing(wanted) or last)))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StrongerMember:
    """A relative that promises more than a plan with the same invariants, unit and measure, and changes as much."""

    name: str
    setting: str
    epsilon: Exact
    changed: float


def stronger(mechanism: Any, plan: Any) -> StrongerMember | None:
    """Return the member with the smallest loss of those that change as many records, if it is below the plan's.

    All have the same invariants, unit and measure, so losses compare. From the margins alone, without a draw; None
    where whom a swap changes is protected, or where so many margins would take minutes.
    """
    if mechanism.family is None or plan.origin.mechanism.imputed_flag is not None or plan.perturbed:
        return None
    try:
        areas = mechanism.areas_changed(plan) if plan.strata.margins.count.size <= _MOST_MARGINS else None
    except StirredError:
        return None  # whom it changes is protected
    wanted = 0.0 if areas is None else share_changed(areas)
    if not wanted:
        return None
    found = [
        StrongerMember(name=member.name, setting=member.at(step).setting_in_words(loss), epsilon=loss, changed=wanted)
        for member in _relatives(mechanism, plan)
        if not member.has(mechanism) and (step := member.changing(wanted)) is not None
        for loss in [member.loss(step)]
    ]
    least = min(found, key=lambda each: each.epsilon, default=None)
    return least if least and float(least.epsilon) < float(plan.epsilon) * (1 - _NOTICED) else None


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

    def unmet(self, epsilon: Exact, changed: float, shares: Sequence[tuple[Area, float]]) -> Iterator[tuple[str, str]]:
        """Yield the wishes that a swap does not meet: ``epsilon``, ``changed`` or ``undisturbed``, and by how much."""
        if self.epsilon is not None and epsilon > self.epsilon:
            yield "epsilon", f"epsilon {epsilon.shown()} > {self.epsilon.shown()}"
        if changed < self.changed:
            yield "changed", f"changed {tenths(changed)} < {tenths(self.changed)}"
        for area, share in shares:
            if share > self.at_most:
                yield "undisturbed", f"{area} {tenths(share)} > {tenths(self.at_most)}"

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """A member at its gentlest setting: loss, whom it changes, and the wishes it does not meet.

    ``areas`` has the records of each area and the share of them that changes, ``changed`` is the share of all.
    """

    name: str
    mechanism: Any
    epsilon: Exact
    areas: pl.DataFrame
    changed: float
    undisturbed: tuple[tuple[Area, float], ...]
    unmet: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, member: Member, wishes: Wishes) -> Proposal:
        """Return a member at the gentlest step that reaches the loss and the share changed, or comes closest."""
        step = 1 if wishes.epsilon is None else member.losing(wishes.epsilon)
        step = max(step, member.changing(wishes.changed) or member.scale.steps)
        areas, epsilon = member.areas(step), member.loss(step)
        changed, shares = share_changed(areas), tuple((area, area.share(areas)) for area in wishes.undisturbed)
        return cls(
            name=member.name,
            mechanism=member.at(step),
            epsilon=epsilon,
            areas=areas,
            changed=changed,
            undisturbed=shares,
            unmet=tuple(wishes.unmet(epsilon, changed, shares)),
        )

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
    plain_swap(match=(), swap=names, hold=hold, unit=unit).check(microdata)
    wished = wishes_for(microdata, swap=names, hold=hold, **wishes)
    roles = {"match": wished.match, "swap": names, "hold": hold, "unit": unit, "settings_from": "invariants"}
    plain = plain_swap(**roles)
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

    ranked = sorted((Proposal.of(member, wished) for member in members(roles, plan)), key=rank)
    best = plain if ranked[0].unmet else ranked[0].mechanism
    return Advice(wishes=wished, proposals=tuple(ranked), plan=best.plan(microdata))


def tenths(share: float | Fraction) -> str:
    """Return a share to a tenth of a percent.

    >>> tenths(0.0123), tenths(1)
    ('1.2%', '100.0%')
    """
    return f"{100 * float(share):.1f}%"
