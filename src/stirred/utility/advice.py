"""The member of the swapping family that fits a custodian's wishes, the others beside it, and why.

Every number used is a function of the invariants of the proposed swap, as condition 3 of use asks
(docs/theory/conditions.md): all members looked at have the same invariants. What it would take to give up a margin is
not: that is for a decision by policy, and never proposed by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.swapping.mallows import MallowsSwap
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.mechanisms.swapping.two_stage import TwoStageSwap
from stirred.spec.exact import Exact
from stirred.utility.dials import MEMBERS, Dial, share_changed, strata_changed
from stirred.utility.stages import Stages
from stirred.utility.wishes import Area, Number, Wishes, wishes_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A wish that a swap does not meet: ``epsilon``, ``changed`` or ``undisturbed``, and by how much."""

    wish: str
    text: str
    short: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Proposal:
    """One member at the gentlest setting that comes up to the wishes, and what it falls short of.

    ``bounded`` says that shares of areas are bounds from above, and ``changed`` that of areas spread evenly: of two
    stages no more can be told. ``mixed`` is the share of records that get values from a record that differs on
    the variables of nearly exact margins.
    """

    name: str
    mechanism: Swap
    epsilon: Exact
    areas: pl.DataFrame
    changed: float
    bounded: bool
    undisturbed: tuple[tuple[Area, float], ...]
    mixed: float | None
    shortfalls: tuple[Shortfall, ...]

    @property
    def meets_all(self) -> bool:
        """Say whether it meets all wishes."""
        return not self.shortfalls

    @property
    def setting(self) -> str:
        """Return its numbers in words."""
        if isinstance(self.mechanism, MallowsSwap):
            return f"epsilon {self.epsilon.shown()}"
        rate = f"rate {100 * float(self.mechanism.rules()[1]):.4g}%"
        if isinstance(self.mechanism, TwoStageSwap):
            return f"{rate}, then {100 * float(self.mechanism.fine_rate):.4g}%"
        return rate

    @property
    def smallest_area(self) -> tuple[str, int, float]:
        """Return the area with the fewest records, how many it has, and which share of them changes."""
        row = self.areas.sort("records").row(0)
        return " ".join(str(value) for value in row[:-2]), int(row[-2]), float(row[-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Concession:
    """What could be given up so that all other wishes are met, and by which swap.

    ``looks_inside`` marks those that rest on counts which the swap would then protect.
    """

    gives_up: str
    proposal: Proposal
    looks_inside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advice:
    """The proposals, best first, and for the first, if it meets all wishes, why it and what it promises."""

    wishes: Wishes
    proposals: tuple[Proposal, ...]
    why: tuple[str, ...]
    plan: SwapPlan
    concessions: tuple[Concession, ...] = ()

    @property
    def chosen(self) -> Proposal | None:
        """Return the proposal, or None if no member meets all wishes."""
        return self.proposals[0] if self.proposals[0].meets_all else None


def propose(
    data: Any,
    *,
    swap: str | Sequence[str],
    exact: str | Sequence[str | Sequence[str]] = (),
    nearly: str | Sequence[str | Sequence[str]] = (),
    epsilon: Number | None = None,
    undisturbed: str | Sequence[str] = (),
    at_most: Number = "10%",
    changed: Number = "5%",
    hold: Sequence[str] | None = None,
    unit: str = "household",
) -> Advice:
    """Return the member of the swapping family that meets the wishes with the least disturbance.

    ``exact`` names margins that must stay exact, as ``"county x size"``; ``nearly`` those that should only nearly;
    ``epsilon`` is the largest loss; of the records of an ``undisturbed`` area at most ``at_most`` may change
    their swap values, and of all records at least ``changed`` should. Without ``epsilon`` it is the smallest there is.

    >>> homes = pl.DataFrame({"county": ["A"] * 900 + ["B"] * 100, "tenure": ["owned", "rented"] * 500})
    >>> advice = propose(homes, swap="county", epsilon=2)
    >>> advice.chosen.name, advice.chosen.setting
    ('conditioned, uniform', 'rate 23.85%')
    >>> propose(homes, swap="county", epsilon=2, undisturbed="B").chosen is None
    True
    """
    microdata = as_microdata(data)
    names = (swap,) if isinstance(swap, str) else tuple(swap)
    PermutationSwap(match=(), swap=names, hold=hold, rate="1/2", unit=unit).check(microdata)
    wishes = wishes_for(
        microdata,
        swap=names,
        exact=(exact,) if isinstance(exact, str) else exact,
        nearly=(nearly,) if isinstance(nearly, str) else nearly,
        epsilon=epsilon,
        undisturbed=(undisturbed,) if isinstance(undisturbed, str) else undisturbed,
        at_most=at_most,
        changed=changed,
        hold=hold,
    )
    from stirred.utility.reasons import reasons

    search = _Search.of(microdata, wishes, hold=hold, unit=unit)
    ranked = _ranked(search.proposals(), wishes)
    best = ranked[0]
    return Advice(
        wishes=wishes,
        proposals=tuple(ranked),
        why=tuple(reasons(ranked, wishes, search.plan)),
        plan=best.mechanism.plan(microdata) if best.meets_all else search.plan,
        concessions=() if best.meets_all else tuple(search.concessions(ranked)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Search:
    """All members on the strata that the wishes force, each a dial to be turned."""

    data: Microdata
    wishes: Wishes
    roles: dict[str, Any]
    plan: SwapPlan
    stages: Stages | None

    @classmethod
    def of(cls, data: Microdata, wishes: Wishes, *, hold: Sequence[str] | None, unit: str) -> _Search:
        roles: dict[str, Any] = {"match": wishes.match, "swap": wishes.swap, "hold": hold, "unit": unit}
        roles["settings_from"] = "invariants"
        plan = PermutationSwap(**roles, rate="1/2").plan(data)
        if plan.strata.largest_live is None:
            matched = f" by {' x '.join(wishes.match)}" if wishes.match else ""
            raise bad_plan(
                f"nothing can be swapped: no group of records{matched} has two different values of "
                f"{' x '.join(wishes.swap)} and two different records besides",
                where=data.household_source,
                remedy="ask for fewer exact margins, or swap another variable"
                if wishes.match
                else "swap another variable, or hold more columns",
            )
        fine = wishes.fine_match
        stages = Stages.of(data, roles=roles, fine_match=fine) if fine else None
        return cls(data=data, wishes=wishes, roles=roles, plan=plan, stages=stages)

    @property
    def dials(self) -> list[Dial]:
        return [Dial(name=name, roles=self.roles, plan=self.plan) for name in MEMBERS]

    def proposals(self) -> list[Proposal]:
        found = [self.at(dial, self.gentlest(dial)) for dial in self.dials]
        return found if self.stages is None else [*found, self.staged(self.stages)]

    def gentlest(self, dial: Dial) -> int:
        """Return the gentlest step that reaches the loss and the share changed, or comes closest."""
        return max(self._for_loss(dial), self._for_share(dial))

    def _for_loss(self, dial: Dial) -> int:
        wanted = self.wishes.epsilon
        if wanted is None:
            return 1
        return dial.first(lambda step: dial.loss(step) <= wanted, last=dial.lowest) or dial.lowest

    def _for_share(self, dial: Dial) -> int:
        return dial.first(lambda step: dial.changed(step) >= self.wishes.changed) or dial.steps

    def leaving_alone(self, dial: Dial) -> int:
        """Return the strongest step that changes no more of the undisturbed areas than wished; 0 if none."""
        over = dial.first(lambda step: any(s > self.wishes.at_most for _, s in self._shares(dial.areas(step))))
        return dial.lowest if over is None else min(dial.lowest, over - 1)

    def _shares(self, areas: pl.DataFrame) -> tuple[tuple[Area, float], ...]:
        return tuple((area, area.share(areas)) for area in self.wishes.undisturbed)

    def at(self, dial: Dial, step: int) -> Proposal:
        swap, areas = dial.at(step), dial.areas(step)
        mixed = None if self.stages is None else self.stages.mixed(strata_changed(swap, self.plan))
        return self._proposal(
            dial.name, swap, epsilon=dial.loss(step), areas=areas, changed=share_changed(areas), mixed=mixed
        )

    def staged(self, stages: Stages) -> Proposal:
        """Return two stages: the first reaches the loss, the second moves what is wanted beyond."""
        first = Dial(name="permutation", roles=self.roles, plan=self.plan)
        step = self._for_loss(first)
        fine = next((f for f in range(100, 10_000, 100) if stages.changed(step, f) >= self.wishes.changed), 9_900)
        return self._proposal(
            "two-stage",
            stages.at(step, fine),
            epsilon=first.loss(step),
            areas=stages.areas(step, fine),
            changed=stages.changed(step, fine),
            mixed=stages.mixed_at(step),
            bounded=True,
        )

    def _proposal(
        self,
        name: str,
        swap: Swap,
        *,
        epsilon: Exact,
        areas: pl.DataFrame,
        changed: float,
        mixed: float | None,
        bounded: bool = False,
    ) -> Proposal:
        shares = self._shares(areas)
        return Proposal(
            name=name,
            mechanism=swap,
            epsilon=epsilon,
            areas=areas,
            changed=changed,
            bounded=bounded,
            undisturbed=shares,
            mixed=mixed,
            shortfalls=tuple(_shortfalls(self.wishes, epsilon, changed, shares)),
        )

    def concessions(self, ranked: Sequence[Proposal]) -> Iterator[Concession]:
        """Yield the least of each wish that would have to be given up so that all others are met."""
        wishes = self.wishes
        gentle = [self.at(dial, step) for dial in self.dials if (step := self.leaving_alone(dial))]
        if found := [p for p in gentle if [s.wish for s in p.shortfalls] == ["epsilon"]]:
            best = min(found, key=lambda each: float(each.epsilon))
            yield Concession(gives_up=best.shortfalls[0].text, proposal=best)
        if found := [p for p in ranked if {s.wish for s in p.shortfalls} == {"undisturbed"}]:
            best = min(found, key=lambda each: max(share for _, share in each.undisturbed))
            yield Concession(gives_up="; ".join(s.text for s in best.shortfalls), proposal=best)
        if found := [p for p in gentle if [s.wish for s in p.shortfalls] == ["changed"]]:
            best = max(found, key=lambda each: each.changed)
            yield Concession(gives_up=best.shortfalls[0].text, proposal=best)
        for margin in wishes.demanding:
            fewer = wishes.without(margin)
            if fewer.match == wishes.match:
                continue
            search = _Search.of(self.data, fewer, hold=self.roles["hold"], unit=self.roles["unit"])
            best = _ranked(search.proposals(), fewer)[0]
            if best.meets_all:
                # Chosen because of counts that it would protect: it must not say that its invariants were enough.
                best = replace(best, mechanism=replace(best.mechanism, settings_from="this-data"))
                yield Concession(gives_up=f"{' x '.join(margin)} is not exact", proposal=best, looks_inside=True)


def _shortfalls(
    wishes: Wishes, epsilon: Exact, changed: float, shares: Sequence[tuple[Area, float]]
) -> Iterator[Shortfall]:
    if wishes.epsilon is not None and epsilon > wishes.epsilon:
        reached, wanted = epsilon.shown(), wishes.epsilon.shown()
        text = f"epsilon {reached} instead of {wanted}"
        yield Shortfall(wish="epsilon", text=text, short=f"epsilon: {reached} > {wanted}")
    if changed < wishes.changed:
        reached, wanted = percent(changed), percent(float(wishes.changed))
        text = f"{reached} of all records change instead of {wanted}"
        yield Shortfall(wish="changed", text=text, short=f"changed: {reached} < {wanted}")
    for area, share in shares:
        if share > wishes.at_most:
            reached, wanted = percent(share), percent(float(wishes.at_most))
            text = f"{reached} of {area} change instead of {wanted}"
            yield Shortfall(wish="undisturbed", text=text, short=f"{area}: {reached} > {wanted}")


def _ranked(found: Sequence[Proposal], wishes: Wishes) -> list[Proposal]:
    """Return those that meet all wishes first; of these the one that disturbs least, or without a loss loses least.

    Shares are compared to a tenth of a percent, within which the smaller loss decides.
    """

    def key(each: Proposal) -> tuple[float, ...]:
        disturbance = each.changed if each.mixed is None else each.mixed
        by_loss = (float(each.epsilon), disturbance)
        by_share = (round(disturbance, 3), float(each.epsilon), round(each.changed, 3))
        return (len({s.wish for s in each.shortfalls}), *(by_loss if wishes.epsilon is None else by_share))

    return sorted(found, key=key)


def percent(share: float) -> str:
    """Return a share in words.

    >>> percent(0.0123), percent(1)
    ('1.2%', '100.0%')
    """
    return f"{100 * share:.1f}%"
