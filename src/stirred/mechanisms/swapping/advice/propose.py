"""The member of the swapping family that fits a custodian's wishes, the others beside it, and why.

Every number used is a function of the invariants of the proposed swap, as condition 3 of use asks
(docs/theory/conditions.md): all members looked at have the same invariants. What it would take to give up a margin is
not: that is for a decision by policy, and never proposed by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Advised, Grid, share_changed
from stirred.mechanisms.swapping.advice.members import MEMBERS, Dial, Stages, strata_changed
from stirred.mechanisms.swapping.advice.proposals import (
    Advice,
    Concession,
    Proposal,
    Shortfall,
    as_percent,
    reasons,
    tenths,
)
from stirred.mechanisms.swapping.advice.wishes import Area, Number, Wishes, wishes_for
from stirred.mechanisms.swapping.core.plan import SwapPlan
from stirred.mechanisms.swapping.permutation.mechanism import PermutationSwap
from stirred.spec.document import number_out, to_document
from stirred.spec.exact import Exact


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
    search = _Search.of(microdata, wishes, hold=hold, unit=unit)
    ranked = _ranked(search.proposals(), wishes)
    best = ranked[0]
    return Advice(
        wishes=wishes,
        proposals=tuple(ranked),
        why=tuple(reasons(ranked, wishes, search.plan)),
        plan=(best.mechanism if best.meets_all else search.plain).plan(microdata),
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

    @property
    def plain(self) -> PermutationSwap:
        """Return permutation swapping on these strata."""
        return PermutationSwap(**self.roles, rate="1/2")

    @classmethod
    def of(cls, data: Microdata, wishes: Wishes, *, hold: Sequence[str] | None, unit: str) -> _Search:
        roles: dict[str, Any] = {"match": wishes.match, "swap": wishes.swap, "hold": hold, "unit": unit}
        roles["settings_from"] = "invariants"
        plan = PermutationSwap(**roles, rate="1/2").plan(data, doubts=False)
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
        changed, epsilon = share_changed(areas), dial.loss(step)
        return self._judged(name=dial.name, mechanism=swap, epsilon=epsilon, areas=areas, changed=changed, mixed=mixed)

    def staged(self, stages: Stages) -> Proposal:
        """Return two stages: the first reaches the loss, the second moves what is wanted beyond."""
        first = Dial(name="permutation", roles=self.roles, plan=self.plan)
        step = self._for_loss(first)
        fine = next((f for f in range(100, 10_000, 100) if stages.changed(step, f) >= self.wishes.changed), 9_900)
        return self._judged(
            name="two-stage",
            mechanism=stages.at(step, fine),
            epsilon=first.loss(step),
            areas=stages.areas(step, fine),
            changed=stages.changed(step, fine),
            mixed=stages.mixed_at(step),
            bounded=True,
        )

    def _judged(self, *, epsilon: Exact, areas: pl.DataFrame, changed: float, **given: Any) -> Proposal:
        shares = self._shares(areas)
        short = tuple(_shortfalls(self.wishes, epsilon, changed, shares))
        return Proposal(epsilon=epsilon, areas=areas, changed=changed, undisturbed=shares, shortfalls=short, **given)

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
        reached, wanted = tenths(changed), tenths(float(wishes.changed))
        text = f"{reached} of all records change instead of {wanted}"
        yield Shortfall(wish="changed", text=text, short=f"changed: {reached} < {wanted}")
    for area, share in shares:
        if share > wishes.at_most:
            reached, wanted = tenths(share), tenths(float(wishes.at_most))
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


RESTS_ON: Final = (
    "All members shown keep the same counts exact. Their losses and shares follow from these counts alone. Choosing by "
    'this table therefore uses nothing that is protected: settings_from = "invariants".'
)
STAGES: Final = (
    "Which records a second stage changes depends on protected counts. Its share of changed records assumes areas "
    "spread evenly; its shares of single areas are upper bounds."
)
GIVING_UP: Final = (
    "Giving up a margin is a policy decision. The figures shown for it come from counts that would then be protected: "
    "choosing by them would void the guarantee."
)


def advise(data: Any, **wishes: Any) -> Advised:
    """Return what ``propose`` finds, as data to be shown."""
    advice = propose(data, **wishes)
    chosen = advice.chosen
    return Advised(
        title="No member meets all wishes" if chosen is None else f"Proposed: {chosen.in_words}",
        wishes=_wishes_in_words(advice.wishes),
        why=advice.why,
        plan=advice.plan,
        section=None if chosen is None else chosen.section,
        tables=advice.wishes.exact,
        closest=advice.proposals[0].name,
        candidates=_grid(advice),
        rests_on=RESTS_ON,
        notes=[STAGES] if any(each.bounded for each in advice.proposals) else [],
        instead=[(each.gives_up, each.proposal.in_words) for each in advice.concessions],
        instead_note=GIVING_UP if any(each.looks_inside for each in advice.concessions) else "",
        values=_values(advice),
    )


def _wishes_in_words(wishes: Wishes) -> str:
    parts = [
        *(f"{' x '.join(margin)} exact" for margin in wishes.exact),
        *(f"{' x '.join(margin)} nearly exact" for margin in wishes.nearly),
        *([f"epsilon at most {wishes.epsilon.shown()}"] if wishes.epsilon is not None else []),
        f"at least {tenths(float(wishes.changed))} of all records change {', '.join(wishes.swap)}",
        *(f"at most {tenths(float(wishes.at_most))} of {area}" for area in wishes.undisturbed),
    ]
    return "; ".join(parts)


def _grid(advice: Advice) -> Grid:
    # The smallest area is the same for all: only the swaps differ.
    smallest, records, _ = advice.proposals[0].smallest_area
    areas = advice.wishes.undisturbed
    apart = advice.wishes.fine_match
    alone = smallest in [area.value for area in areas] and len(advice.wishes.swap) == 1
    header = (
        "swap",
        "setting",
        "ε",
        "records changed",
        *(f"in {area}" for area in areas),
        *([] if alone else [f"in {smallest}, the smallest ({records:,})"]),
        *([f"mixed by {' x '.join(apart)}"] if apart else []),
        "wishes",
    )
    rows = []
    for each in advice.proposals:
        about, most = ("about ", "at most ") if each.bounded else ("", "")
        rows.append(
            (
                each.name,
                each.setting,
                each.epsilon.shown(),
                about + tenths(each.changed),
                *(most + tenths(share) for _, share in each.undisturbed),
                *([] if alone else [most + tenths(each.smallest_area[2])]),
                *([tenths(each.mixed or 0.0)] if apart else []),
                "; ".join(short.short for short in each.shortfalls) or "all met",
            )
        )
    return Grid(header=header, rows=tuple(rows))


def _values(advice: Advice) -> dict[str, Any]:
    wishes, chosen = advice.wishes, advice.chosen
    return {
        "meets_all": chosen is not None,
        "proposal": None if chosen is None else _proposal_values(chosen),
        "why": list(advice.why),
        "wishes": {
            "swap": list(wishes.swap),
            "exact": [" x ".join(margin) for margin in wishes.exact],
            "nearly": [" x ".join(margin) for margin in wishes.nearly],
            "epsilon": None if wishes.epsilon is None else str(wishes.epsilon),
            "undisturbed": [str(area) for area in wishes.undisturbed],
            "at_most": str(wishes.at_most),
            "changed": str(wishes.changed),
        },
        "match": list(wishes.match),
        "fine_match": list(wishes.fine_match),
        "settings_from": "invariants",
        "specification": None if chosen is None else to_document(advice.plan.specification),
        "invariants": [str(invariant) for invariant in advice.plan.specification.multiverse.invariants],
        "proposals": [_proposal_values(each) for each in advice.proposals],
        "concessions": [
            {
                "gives_up": each.gives_up,
                "settings_from": "this-data" if each.looks_inside else "invariants",
                "proposal": _proposal_values(each.proposal),
            }
            for each in advice.concessions
        ],
    }


def _proposal_values(each: Proposal) -> dict[str, Any]:
    swap: Any = each.mechanism
    name, records, share = each.smallest_area
    return {
        "name": each.name,
        "mechanism": swap.name,
        "match": list(swap.match),
        "rate": as_percent(getattr(swap, "rate", None)),
        "redraw_law": getattr(swap, "redraw_law", None),
        "fine_match": list(getattr(swap, "fine_match", ())),
        "fine_rate": as_percent(getattr(swap, "fine_rate", None)),
        "epsilon": number_out(each.epsilon),
        "epsilon_exact": str(each.epsilon),
        "share_changed": each.changed,
        "shares_are_bounds": each.bounded,
        "undisturbed": [{"area": str(area), "share_changed": share} for area, share in each.undisturbed],
        "smallest_area": {"area": name, "records": records, "share_changed": share},
        "share_mixed": each.mixed,
        "meets_all": each.meets_all,
        "shortfalls": [{"wish": short.wish, "text": short.text} for short in each.shortfalls],
    }
