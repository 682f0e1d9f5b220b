"""Settings to choose from: match and swap variables with what each would cost and publish, and what a policy allows.

Table 5 of the paper, computed from a file: for every pair of neighbouring geographic levels, swap the
finer ones within the coarser, alone or crossed with further match variables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

from stirred.data.codes import differing, encode
from stirred.data.microdata import Microdata, as_microdata, missing_column
from stirred.data.problems import DataError, bad_plan
from stirred.mechanisms import registry
from stirred.release.ledger import OverLimitError
from stirred.release.prepared import Prepared
from stirred.release.run import release_request
from stirred.spec.document import number_out
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact, exact
from stirred.spec.multiverse import Hierarchy, Multiverse
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem, StirredError
from stirred.spec.swap_budget import psa_sharp_epsilon, rate_not_above, smallest_psa_epsilon
from stirred.spec.text import Row

RATES: Final = (Fraction(1, 20), Fraction(1, 2))
CHOOSING: Final = (
    "Losses of different choices cannot be compared: a choice with smaller strata has a smaller number because more "
    "is published exactly. Choosing settings by looking at the confidential file voids the guarantee, unless you "
    "looked only at invariants of the choice you make. Such choices are marked 'from its invariants' (record "
    'settings_from = "invariants"). Otherwise decide by policy, or on an earlier census or the synthetic one.'
)


def plain_swap(**roles: Any) -> Any:
    """Return the default swap at a rate of one half: its plan has the strata and the invariants of all members."""
    made: Any = registry.mechanism_class(registry.DEFAULT)
    return made(**roles, rate="1/2")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """One choice of match and swap variables: strata, losses, and what it holds fixed.

    ``reaching`` is the gentlest rate that reaches the ``wanted`` loss. ``doubts`` are searched for the widest choice,
    which swaps all levels but the coarsest: a column that reveals any level is found there.
    """

    match: tuple[str, ...]
    swap: tuple[str, ...]
    strata: int
    live: int
    largest: int
    largest_values: tuple[object, ...]
    epsilons: tuple[tuple[Fraction, Exact], ...]
    least: Exact
    wanted: Exact | None
    reaching: Fraction | None
    multiverse: Multiverse
    safe: bool = False
    doubts: tuple[Doubt, ...] = ()

    @property
    def name(self) -> str:
        """Return the choice in a few words."""
        return f"{' x '.join(self.match) or '(no match)'} | {self.swap[0]}"

    @property
    def invariants(self) -> list[str]:
        """Return in words what would be published exactly."""
        return [str(invariant) for invariant in self.multiverse.invariants]

    @property
    def rows(self) -> list[Row]:
        """Return in words what it would do, cost and publish."""
        where = ", ".join(f"{k} = {v}" for k, v in zip(self.match, self.largest_values, strict=False))
        losses = "; ".join(f"{percent(rate, digits=6)}: epsilon {e.shown()}" for rate, e in self.epsilons)
        rate = self.reaching
        reached = "not reached by any rate" if rate is None else f"reached from a rate of {percent(rate)}"
        return [
            ("swaps", ", ".join(self.swap)),
            ("strata", f"{self.strata:,}, of which {self.live:,} have something to swap"),
            ("largest", f"{self.largest:,}{f' ({where})' if where else ''}"),
            ("loss", f"{losses}; smallest possible {self.least.shown()}"),
            *([] if self.wanted is None else [("target", reached)]),
            *(("fixes", f"the {words}") for words in self.invariants),
            ("choosing it", f"by this list: {'from its invariants' if self.safe else 'looks at the data'}"),
        ]

    @property
    def values(self) -> dict[str, Any]:
        """Return the same for JSON."""
        return {
            "match": list(self.match),
            "swap": list(self.swap),
            "strata": self.strata,
            "live_strata": self.live,
            "largest_live_stratum": self.largest,
            "epsilon_by_rate": [
                {"rate": str(rate), "epsilon": number_out(e), "epsilon_exact": str(e)} for rate, e in self.epsilons
            ],
            "smallest_epsilon": number_out(self.least),
            "rate_reaching_target": None if self.reaching is None else str(self.reaching),
            "invariants": self.invariants,
            "settings_from": "invariants" if self.safe else "this-data",
        }


def candidates(
    data: Any,
    *,
    levels: Sequence[str],
    cross: Sequence[str] = (),
    epsilon: Exact | None = None,
    unit: str = "household",
) -> list[Candidate]:
    """Return the choices for a geography whose ``levels`` are given from the finest to the coarsest.

    ``cross`` names further match variables, tried together. With ``epsilon`` each candidate says the
    gentlest rate that reaches it. Everything shown is a function of the candidate's own invariants;
    ``safe`` says whether it is also one of the invariants of *this* candidate for all the others, so
    that choosing it by looking at the whole list reveals nothing more (docs/theory/conditions.md, condition 3);
    that the levels nest is checked, and taken as publicly known.
    """
    microdata = as_microdata(data)
    _check_names(microdata, levels, cross)
    _check_nesting(microdata, levels)
    geography = Hierarchy(name="geography", levels=tuple(levels))
    found: list[Candidate] = []
    for place in range(len(levels) - 1, 0, -1):
        # Everything nested under the match level moves together; coarser levels are held with it.
        swap, match = list(reversed(levels[:place])), levels[place]
        for more in [[], list(cross)] if cross else [[]]:
            # Of a national file only one plan at a time fits: it holds the codes of every record.
            plan = plain_swap(match=[match, *more], swap=swap, unit=unit).plan(microdata, doubts=not found)
            choice = _candidate(plan, geography, epsilon=epsilon)
            found.append(choice if found else replace(choice, doubts=plan.doubts))
    return [
        replace(choice, safe=all(choice.multiverse.refines(other.multiverse) for other in found)) for choice in found
    ]


def _check_names(data: Microdata, levels: Sequence[str], cross: Sequence[str]) -> None:
    """Refuse names that cannot be levels or further match variables, all at once."""
    problems: list[Problem] = []
    if len(set(levels)) < 2:
        what, remedy = "a geography needs two levels or more", "name them from the finest to the coarsest: block, tract"
        problems.append(Problem(what=what, where="geography", remedy=remedy))
    for role, names in (("geography", levels), ("cross", cross)):
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                what = f'"{name}" is named {names.count(name)} times'
                problems.append(Problem(what=what, where=role, remedy="name it once"))
            if name in data.identifiers:
                remedy = f"remove it here, or from {'hid' if name == data.hid else 'id'}"
                problems.append(Problem(what=f'"{name}" is an identifier', where=role, remedy=remedy))
            elif name not in data.households.columns:
                columns = data.households.columns
                problems.append(missing_column(name, columns, where=data.household_source, role=role))
            elif role == "cross" and name in levels:
                what = f'"{name}" is a level of the geography, and every level is matched or swapped already'
                remedy = "remove it here, or from geography; cross is for other variables, such as the household size"
                problems.append(Problem(what=what, where=role, remedy=remedy))
    if problems:
        raise DataError(problems)


def _check_nesting(data: Microdata, levels: Sequence[str]) -> None:
    """Refuse levels that do not nest: then one level's table does not follow from another's."""
    for fine, coarse in pairwise(levels):
        inner, outer = encode(data.households, [fine]), encode(data.households, [coarse])
        broken = differing(inner.codes, outer.codes, count=inner.count)
        if broken.any():
            example = inner.levels[fine][int(broken.argmax())]
            what = f'{int(broken.sum()):,} values of "{fine}" lie in two or more values of "{coarse}"'
            raise bad_plan(
                f"{what}, such as {example}",
                public=what,
                where="geography",
                remedy="name the levels from the finest to the coarsest, with codes that are unique in the whole file",
            )


def _candidate(plan: Any, geography: Hierarchy, *, epsilon: Exact | None) -> Candidate:
    strata, largest = plan.strata, plan.strata.largest_live
    size = largest.records if largest else 0
    least, reaching = smallest_psa_epsilon(size, bound="sharp"), None
    if epsilon is not None and size and epsilon > least:
        reaching = rate_not_above(epsilon, largest_stratum=size, bound="sharp")
    return Candidate(
        match=plan.match,
        swap=plan.exact_swap,
        strata=strata.count,
        live=int(strata.live.sum()),
        largest=size,
        largest_values=largest.values if largest else (),
        epsilons=tuple((rate, psa_sharp_epsilon(rate, stratum=strata.largest_size)) for rate in RATES),
        least=least,
        wanted=epsilon,
        reaching=reaching,
        multiverse=replace(plan.specification.multiverse, hierarchies=(geography,), consequences=()),
    )


# ---- what a policy would allow -----------------------------------------------------------------------------

_STEPS = 1 << 10  # the loss that fits is found to a thousandth of the one that was refused
_MOST = 64  # where that is infinite, no limit is so high
_GRID = 10_000  # rates are given to a hundredth of a percent, where that is fine enough


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSetting:
    """A setting that the policy would allow: a rate, the setting that is the loss, or for others the loss alone."""

    setting: str
    value: Fraction
    epsilon: Exact

    def __str__(self) -> str:
        loss = f", epsilon {self.epsilon.shown()}" if self.setting == "rate" else ""
        return f"{self.setting} {float(self.value):.9g} (exactly {self.value}{loss})"


def gentlest_allowed(prepared: Prepared) -> AllowedSetting | None:
    """Return the gentlest setting that the policy would allow, all else equal; None if no setting is.

    A rate is one for all strata. It depends on the invariants, which are published, and on the ledger.
    """
    refused = prepared.plan.epsilon
    most = _MOST if refused.is_infinite else Fraction(math.ceil(refused.enclose().high * 1000), 1000)
    step = Fraction(most) / _STEPS
    low, high = 0, _STEPS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _allows(prepared, step * middle) else (low, middle)
    return _reaching(prepared, exact(step * low)) if low else None


def _allows(prepared: Prepared, epsilon: Fraction) -> bool:
    assert prepared.ledger is not None
    request = release_request(prepared, seeded=False)
    assert request.specification is not None
    try:
        prepared.ledger.would(replace(request, specification=request.specification.with_budget(epsilon)))
    except OverLimitError:
        return False
    return True


def _reaching(prepared: Prepared, epsilon: Exact) -> AllowedSetting | None:
    """Return the setting whose loss is at most ``epsilon``, as the plan would use it."""
    mechanism, plan = prepared.mechanism, prepared.plan
    by_rate = mechanism.rate_losses(plan)
    if by_rate is None or not by_rate.losses([Fraction(1, 2)]):
        value = Fraction(math.floor(Fraction(epsilon.enclose().low) * 1000), 1000)
        settings = prepared.plan_file.mechanism.settings.dumped()
        setting = "loss" if settings.get("epsilon") is None else "epsilon"
        return AllowedSetting(setting=setting, value=value, epsilon=exact(value)) if value else None
    with suppress(StirredError):  # no rate reaches it
        rate = by_rate.gentlest(epsilon)
        for candidate in (Fraction(math.ceil(rate * _GRID), _GRID), rate):
            ((_, loss),) = by_rate.losses([candidate])
            if loss <= epsilon:
                return AllowedSetting(setting="rate", value=candidate, epsilon=loss)
    return None
