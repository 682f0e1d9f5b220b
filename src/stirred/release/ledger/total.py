"""The total: the specification of everything together, or the parts side by side that cannot be added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stirred.release.ledger.contradictions import Contradiction, PlanOf, contradictions, rested
from stirred.release.ledger.currency import Currency, Summands, expressed
from stirred.release.ledger.entry import Charge, numbers
from stirred.release.ledger.samples import by_sample
from stirred.spec.composition import beside_others, compose
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import Derivation, Flavor, KeysAlone, Specification


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedEntries:
    """Entries that add up, their common specification and how it was reached."""

    derivation: Derivation
    entries: tuple[int, ...]

    @property
    def specification(self) -> Specification:
        """Return the specification of these entries together."""
        return self.derivation.specification


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """Entries that are left out of every sum, and why: they cost nothing, or they cannot be added up.

    ``problems`` are what stood in the way where the wanted currency could not be reached.
    """

    entries: tuple[int, ...]
    reason: str
    specification: Specification | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def remedy(self) -> str:
        """Return what would help, if anything."""
        return "; ".join(problem.remedy for problem in self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What all entries that count promise together.

    Where they cannot be brought to one flavor there is more than one part, ``apart`` says why, and nothing is added
    across parts. ``alone`` are entries whose losses add to nothing, not even to their like. ``free`` cost nothing.
    ``unspecified`` were released without a specification: whatever they cost comes on top, so every number is a lower
    bound (Remark 6 of the paper). ``contradicted`` are assumptions of entries that others of the same ledger
    contradict, with what then holds: no part rests on one of them. ``unbounded`` are entries whose loss is infinite:
    everything together promises nothing because of them, and ``others`` is what the rest promises.
    """

    parts: tuple[SummedEntries, ...] = ()
    apart: tuple[Problem, ...] = ()
    alone: tuple[Aside, ...] = ()
    free: tuple[Aside, ...] = ()
    unspecified: tuple[Aside, ...] = ()
    contradicted: tuple[Contradiction, ...] = ()
    unbounded: tuple[int, ...] = ()
    others: Total | None = None

    @property
    def no_bound(self) -> str:
        """Say because of which entries nothing is promised of everything together; empty where something is."""
        if not self.unbounded:
            return ""
        verb = "promises" if len(self.unbounded) == 1 else "promise"
        return f"nothing is promised of everything together, because entry {numbers(self.unbounded)} {verb} nothing"

    @property
    def is_one(self) -> bool:
        """Say whether one specification speaks for everything."""
        return len(self.parts) <= 1 and not self.alone

    @property
    def bound(self) -> str:
        """Return what stands before every number: "at least " where something was released without a specification."""
        return "at least " if self.unspecified else ""

    @property
    def specification(self) -> Specification | None:
        """Return the one specification of everything, if there is one."""
        return self.parts[0].specification if self.parts and self.is_one else None


@dataclass(slots=True)
class _Share:
    specification: Specification
    entries: list[int]
    once: bool = False  # the specification is of all entries together


def total(
    charges: Iterable[Charge],
    specification: Callable[[str], Specification],
    *,
    currency: Currency | None = None,
    reserved: bool = True,
    plan_of: PlanOf | None = None,
    known: tuple[Contradiction, ...] | None = None,
) -> Total:
    """Return the total of all charges, or of those that are no open reservations.

    Equal specifications are grouped first: k of them compose as one of them k times, exactly. ``plan_of`` gives the
    plan of an entry by its id, to see which plans were run more than once. ``known`` are the contradictions of a
    larger account, of which these charges are a part.
    """
    currency = currency or Currency()
    charges = list(charges)
    open_or_not = [charge for charge in charges if reserved or not charge.reserved]
    contradicted = contradictions(open_or_not, specification, plan_of=plan_of) if known is None else known
    beside = known is not None or sum(charge.spent and not charge.derived_from for charge in charges) > 1
    unknown = [charge for charge in charges if charge.unspecified and charge.spent]
    unspecified = tuple(Aside(entries=(charge.number,), reason=charge.unspecified) for charge in unknown)
    counted, free, claims, included = _counted([c for c in charges if not c.unspecified], reserved)
    if unknown:
        left_out = numbers([charge.number for charge in unknown])
        claims = (*claims, f"entry {left_out} has no specification and is not counted: everything costs at least this")
    covered = [specification(charge.specification) for charge in included]
    same_keys = {n: one.then for one in contradicted if isinstance(one.reliance, KeysAlone) for n in one.entries}
    summed = [charge for charge in counted if charge.number not in same_keys]
    sampled = by_sample(summed, specification, lambda those: not _refusal(those, currency))
    claims = (*claims, *sampled.claims)
    alone = [
        Aside(entries=(charge.number,), reason=reason, specification=specification(charge.specification))
        for charge, reason in (
            *((charge, same_keys[charge.number]) for charge in counted if charge.number in same_keys),
            *sampled.apart,
        )
    ]
    digests = {charge.specification for charge in counted}
    infinite = {digest for digest in digests if specification(digest).budget.is_unbounded}
    unbounded = [charge for charge in counted if charge.specification in infinite]
    shares: dict[str, _Share] = {}
    for charge in sampled.plain:
        if charge.specification not in shares:
            shares[charge.specification] = _Share(specification(charge.specification), [])
        shares[charge.specification].entries.append(charge.number)
    parts: list[SummedEntries] = []
    apart: dict[Problem, None] = {}
    together = [_Share(one, entries, once=True) for one, entries in sampled.composed]
    for group, problems in _groups([*shares.values(), *together], currency):
        apart |= dict.fromkeys(problems)
        try:
            part = _part(group, currency, covered)
            parts.append(_rested(part, claims, group, contradicted, beside=beside))
        except StirredError as error:
            alone += _apart(group, currency, covered, error.problems)
    return Total(
        parts=tuple(parts),
        apart=tuple(apart),
        alone=tuple(alone),
        free=tuple(free),
        unspecified=unspecified,
        contradicted=contradicted,
        unbounded=tuple(charge.number for charge in unbounded),
        others=_others(charges, unbounded, specification, currency=currency, reserved=reserved, known=contradicted),
    )


def _others(
    charges: list[Charge], unbounded: list[Charge], specification: Callable[[str], Specification], **asked: Any
) -> Total | None:
    """Return the total of the charges that have a bound, and were not derived from others that have none."""
    if not unbounded:
        return None
    left_out = {charge.id for charge in unbounded}
    for charge in charges:  # what is derived comes after its source
        if left_out & {*charge.derived_from}:
            left_out.add(charge.id)
    return total([charge for charge in charges if charge.id not in left_out], specification, **asked)


def _rested(
    part: SummedEntries,
    claims: tuple[str, ...],
    group: list[_Share],
    contradicted: tuple[Contradiction, ...],
    *,
    beside: bool,
) -> SummedEntries:
    """Return a part that assumes what was stated and cannot be checked, and nothing that the ledger contradicts.

    ``beside`` says that there are other releases, whether they are added up with these or not.
    """
    promise = beside_others(part.specification) if beside else part.specification
    assumed = tuple(dict.fromkeys((*promise.assumptions, *claims)))
    relying = [(share.specification.relies_on, tuple(share.entries)) for share in group]
    specification = rested(replace(promise, assumptions=assumed), relying, contradicted)
    return replace(part, derivation=replace(part.derivation, specification=specification))


def _apart(
    group: list[_Share], currency: Currency, covered: Sequence[Specification], problems: tuple[Problem, ...]
) -> list[Aside]:
    """Say what a group promises that cannot be expressed as wanted: together in its own currency, or one by one."""
    reason = "; ".join(problem.what for problem in problems)
    try:
        part = _part(group, Currency(unit=currency.unit, units=currency.units), covered)
    except StirredError:
        each = sorted(((n, share.specification) for share in group for n in share.entries), key=lambda one: one[0])
        return [Aside(entries=(n,), reason=reason, specification=alone, problems=problems) for n, alone in each]
    return [Aside(entries=part.entries, reason=reason, specification=part.specification, problems=problems)]


def _counted(charges: list[Charge], reserved: bool) -> tuple[list[Charge], list[Aside], tuple[str, ...], list[Charge]]:
    """Separate what costs from what does not; say why not, what was stated to make it so, and what others include."""
    sources_of = {source for charge in charges for source in charge.derived_from}
    number_of = {charge.id: charge.number for charge in charges if charge.id in sources_of}
    charges = [charge for charge in charges if reserved or not charge.reserved]
    covered: dict[str, int] = {}
    for charge in charges:
        if charge.includes and charge.drawn and charge.spent and not charge.derived_from:
            covered.update(dict.fromkeys(charge.includes, charge.number))
    counted: list[Charge] = []
    unspent: list[int] = []
    derived: dict[str, list[int]] = {}
    included: dict[int, list[Charge]] = {}
    for charge in charges:
        if not charge.spent:
            unspent.append(charge.number)
        elif charge.derived_from:
            sources = ", ".join(str(number_of[source]) for source in charge.derived_from)
            derived.setdefault(sources, []).append(charge.number)
        elif charge.id in covered:
            included.setdefault(covered[charge.id], []).append(charge)
        else:
            counted.append(charge)
    free = [Aside(entries=tuple(unspent), reason="aborted before anything random happened")] if unspent else []
    claims: list[str] = []
    for sources, those in derived.items():
        reason = f"derived from released entry {sources} (post-processing)"
        free.append(Aside(entries=tuple(those), reason=reason))
        claims.append(f"entry {numbers(those)} was computed from the output of entry {sources} and nothing else")
    for whole, inner in included.items():
        those = [charge.number for charge in inner]
        free.append(Aside(entries=tuple(those), reason=f"stated to be contained in the specification of entry {whole}"))
        claims.append(f"the specification of entry {whole} covers entry {numbers(those)} as well")
    return counted, free, tuple(claims), [charge for inner in included.values() for charge in inner]


def _groups(shares: list[_Share], currency: Currency) -> list[tuple[list[_Share], tuple[Problem, ...]]]:
    """Divide shares into groups that compose; each further group comes with the reasons why it stands apart.

    Whether specifications compose depends on their flavors, so one of each flavor is tried.
    """
    flavors: dict[Flavor, list[_Share]] = {}
    for share in shares:
        flavors.setdefault(share.specification.flavor, []).append(share)
    if not flavors or not _refusal([of[0].specification for of in flavors.values()], currency):
        return [(shares, ())] if shares else []
    groups: list[tuple[list[Specification], list[_Share], tuple[Problem, ...]]] = []
    for of in flavors.values():
        first = of[0].specification
        reason: tuple[Problem, ...] = ()
        for tried, whole, _ in groups:
            refusal = _refusal([*tried, first], currency)
            if not refusal:
                tried.append(first)
                whole.extend(of)
                break
            reason = reason or refusal
        else:
            groups.append(([first], list(of), reason or _refusal([first], currency)))
    return [(whole, reason) for _, whole, reason in groups]


def _refusal(specifications: Sequence[Specification], currency: Currency) -> tuple[Problem, ...]:
    """Return why specifications do not compose; nothing if they do."""
    delta = None if currency.output is None or not currency.output.delta else currency.output.delta / 1000
    try:
        compose(specifications, unit=currency.unit, units=currency.units, delta=delta)
    except StirredError as error:
        return error.problems
    return ()


def _part(group: list[_Share], currency: Currency, covered: Sequence[Specification]) -> SummedEntries:
    """Compose a group in the wanted currency."""
    counted = Summands(
        specifications=[share.specification for share in group],
        times=[1 if share.once else len(share.entries) for share in group],
        names=[f"entry {numbers(share.entries)}" for share in group],
    )
    entries = tuple(sorted(number for share in group for number in share.entries))
    return SummedEntries(derivation=expressed(counted, currency, covered=covered), entries=entries)
