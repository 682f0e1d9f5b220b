"""The total: the specification of everything together, or the parts side by side that cannot be added up.

``total`` takes charges out of a sum rule by rule, groups what is left by flavor and composes each group. What few
ledgers have stands in modules of its own: contradictions, currencies, and samples, which is imported when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Final, NamedTuple

from stirred.release.ledger.contradictions import Contradiction, PlanOf, contradictions, rested
from stirred.release.ledger.currency import Currency, Summands, expressed
from stirred.release.ledger.row import Charge, numbers
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

    ``problems`` are what stood in the way where the wanted currency could not be reached; ``needs_design`` says that
    an amplified loss states neither its design nor the loss on the sample.
    """

    entries: tuple[int, ...]
    reason: str
    specification: Specification | None = None
    problems: tuple[Problem, ...] = ()
    needs_design: bool = False

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


class Share(NamedTuple):
    """Entries of one specification, which is that of all of them together if it counts ``once``."""

    specification: Specification
    entries: list[int]
    once: bool = False


@dataclass(slots=True, kw_only=True)
class TotalInWork:
    """A total while it is worked out. Each rule takes out of ``left`` what it deals with, and says what becomes of it.

    ``claims`` are what was stated and cannot be checked; ``composed`` are shares that a rule composed itself.
    """

    left: list[Charge]
    specification: Callable[[str], Specification]
    currency: Currency
    everything: Sequence[Charge]
    contradicted: tuple[Contradiction, ...]
    counted: list[Charge] = field(default_factory=list)
    included: list[Charge] = field(default_factory=list)
    composed: list[Share] = field(default_factory=list)
    alone: list[Aside] = field(default_factory=list)
    free: list[Aside] = field(default_factory=list)
    unspecified: list[Aside] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)

    def take(self, taken: list[Charge]) -> list[Charge]:
        """Take charges out of what is left, and return them."""
        if taken:
            numbers_taken = {charge.number for charge in taken}
            self.left = [charge for charge in self.left if charge.number not in numbers_taken]
        return taken

    def joins(self, specifications: Sequence[Specification]) -> bool:
        """Say whether specifications compose in the currency of the total."""
        return not _refusal(specifications, self.currency)

    def set_apart(self, charge: Charge, reason: str, *, needs_design: bool = False) -> None:
        """Let a charge stand alone, with a loss that adds to no other."""
        own = self.specification(charge.specification)
        self.alone.append(Aside(entries=(charge.number,), reason=reason, specification=own, needs_design=needs_design))


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

    ``plan_of`` gives the plan of an entry by its id, to see which plans were run more than once. ``known`` are the
    contradictions of a larger account, of which these charges are a part.
    """
    charges = list(charges)
    counting = [charge for charge in charges if reserved or not charge.reserved]
    found = TotalInWork(
        left=counting,
        specification=specification,
        currency=currency or Currency(),
        everything=charges,
        contradicted=contradictions(counting, specification, plan_of=plan_of) if known is None else known,
    )
    for rule in (_unspent, _derived, _included, _unspecified, _same_keys, _rare):
        rule(found)
    beside = known is not None or sum(charge.spent and not charge.derived_from for charge in charges) > 1
    parts, apart = _parts(found, beside=beside)
    infinite = {d for d in {c.specification for c in found.counted} if specification(d).budget.is_unbounded}
    unbounded = [charge for charge in found.counted if charge.specification in infinite]
    others = None
    if unbounded:
        rest = _without({charge.id for charge in unbounded}, charges)
        others = total(rest, specification, currency=currency, reserved=reserved, known=found.contradicted)
    return Total(
        parts=tuple(parts),
        apart=apart,
        alone=tuple(found.alone),
        free=tuple(found.free),
        unspecified=tuple(found.unspecified),
        contradicted=found.contradicted,
        unbounded=tuple(charge.number for charge in unbounded),
        others=others,
    )


# ---- rules: what is not simply added up --------------------------------------------------------------------


def _unspent(found: TotalInWork) -> None:
    """Take out what was given up before anything random happened: it costs nothing."""
    if unspent := tuple(charge.number for charge in found.take([charge for charge in found.left if not charge.spent])):
        found.free.append(Aside(entries=unspent, reason="aborted before anything random happened"))


def _derived(found: TotalInWork) -> None:
    """Take out what was computed from the output of others: it costs nothing (Proposition 2.5.4)."""
    derived: dict[str, list[int]] = {}
    taken = found.take([charge for charge in found.left if charge.derived_from])
    number_of = {charge.id: charge.number for charge in found.everything} if taken else {}
    for charge in taken:
        sources = ", ".join(str(number_of[source]) for source in charge.derived_from)
        derived.setdefault(sources, []).append(charge.number)
    for sources, entries in derived.items():
        reason = f"derived from released entry {sources} (post-processing)"
        found.free.append(Aside(entries=tuple(entries), reason=reason))
        found.claims.append(
            f"entry {numbers(entries)} was computed from the output of entry {sources} and nothing else"
        )


def _included(found: TotalInWork) -> None:
    """Take out what the specification of another drawn entry covers already."""
    covered = {id_: charge.number for charge in found.left if charge.drawn for id_ in charge.includes}
    groups: dict[int, list[int]] = {}
    found.included = found.take([charge for charge in found.left if charge.id in covered]) if covered else []
    for charge in found.included:
        groups.setdefault(covered[charge.id], []).append(charge.number)
    for whole, entries in groups.items():
        reason = f"stated to be contained in the specification of entry {whole}"
        found.free.append(Aside(entries=tuple(entries), reason=reason))
        found.claims.append(f"the specification of entry {whole} covers entry {numbers(entries)} as well")


def _unspecified(found: TotalInWork) -> None:
    """Take out releases without a specification: whatever they cost comes on top of every number."""
    unknown = found.take([charge for charge in found.left if charge.unspecified])
    found.unspecified = [Aside(entries=(charge.number,), reason=charge.unspecified) for charge in unknown]
    if unknown:
        left_out = numbers([charge.number for charge in unknown])
        found.claims.append(f"entry {left_out} has no specification and is not counted: everything costs at least this")
    found.counted = found.left


def _same_keys(found: TotalInWork) -> None:
    """Let releases stand alone that use the same record keys: no bound is proven for them together."""
    then = {n: one.then for one in found.contradicted if isinstance(one.reliance, KeysAlone) for n in one.entries}
    for charge in found.take([charge for charge in found.left if charge.number in then]):
        found.set_apart(charge, then[charge.number])


# Rules for what few ledgers have, each in a module that is imported where a charge needs it: its function ``settle``.
RARE_RULES: Final[tuple[tuple[Callable[[Charge], bool], str], ...]] = (
    (lambda charge: charge.sample is not None, "stirred.release.ledger.samples"),
)


def _rare(found: TotalInWork) -> None:
    for concerns, module in RARE_RULES:
        if any(map(concerns, found.left)):
            import_module(module).settle(found)


def _without(left_out: set[str], charges: list[Charge]) -> list[Charge]:
    """Return the charges without these, and without what was derived from them."""
    for charge in charges:  # what is derived comes after its source
        if left_out & {*charge.derived_from}:
            left_out.add(charge.id)
    return [charge for charge in charges if charge.id not in left_out]


# ---- composition -------------------------------------------------------------------------------------------


def _parts(found: TotalInWork, *, beside: bool) -> tuple[list[SummedEntries], tuple[Problem, ...]]:
    """Compose what is left, and say why there is more than one part; ``beside`` says that there are other releases.

    Equal specifications are grouped first: k of them compose as one of them k times, exactly.
    """
    shares: dict[str, Share] = {}
    for charge in found.left:
        if charge.specification not in shares:
            shares[charge.specification] = Share(found.specification(charge.specification), [])
        shares[charge.specification].entries.append(charge.number)
    covered = [found.specification(charge.specification) for charge in found.included if charge.specification]
    parts: list[SummedEntries] = []
    apart: dict[Problem, None] = {}
    for group, problems in _groups([*shares.values(), *found.composed], found.currency):
        apart |= dict.fromkeys(problems)
        try:
            part = _part(group, found.currency, covered)
            parts.append(_rested(part, found, group, beside=beside))
        except StirredError as error:
            found.alone += _apart(group, found.currency, covered, error.problems)
    return parts, tuple(apart)


def _rested(part: SummedEntries, found: TotalInWork, group: list[Share], *, beside: bool) -> SummedEntries:
    """Return a part that assumes what was stated and cannot be checked, and nothing that the ledger contradicts."""
    promise = beside_others(part.specification) if beside else part.specification
    assumed = tuple(dict.fromkeys((*promise.assumptions, *found.claims)))
    relying = [(share.specification.relies_on, tuple(share.entries)) for share in group]
    specification = rested(replace(promise, assumptions=assumed), relying, found.contradicted)
    return replace(part, derivation=replace(part.derivation, specification=specification))


def _apart(
    group: list[Share], currency: Currency, covered: Sequence[Specification], problems: tuple[Problem, ...]
) -> list[Aside]:
    """Say what a group promises that cannot be expressed as wanted: together in its own currency, or one by one."""
    reason = "; ".join(problem.what for problem in problems)
    try:
        part = _part(group, Currency(unit=currency.unit, units=currency.units), covered)
    except StirredError:
        each = sorted(((n, share.specification) for share in group for n in share.entries), key=lambda one: one[0])
        return [Aside(entries=(n,), reason=reason, specification=alone, problems=problems) for n, alone in each]
    return [Aside(entries=part.entries, reason=reason, specification=part.specification, problems=problems)]


def _groups(shares: list[Share], currency: Currency) -> list[tuple[list[Share], tuple[Problem, ...]]]:
    """Divide shares into groups that compose; each further group comes with the reasons why it stands apart.

    Whether specifications compose depends on their flavors, so one of each flavor is tried.
    """
    flavors: dict[Flavor, list[Share]] = {}
    for share in shares:
        flavors.setdefault(share.specification.flavor, []).append(share)
    if not flavors or not _refusal([of[0].specification for of in flavors.values()], currency):
        return [(shares, ())] if shares else []
    groups: list[tuple[list[Specification], list[Share], tuple[Problem, ...]]] = []
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


def _part(group: list[Share], currency: Currency, covered: Sequence[Specification]) -> SummedEntries:
    """Compose a group in the wanted currency."""
    counted = Summands(
        specifications=[share.specification for share in group],
        times=[1 if share.once else len(share.entries) for share in group],
        names=[f"entry {numbers(share.entries)}" for share in group],
    )
    entries = tuple(sorted(number for share in group for number in share.entries))
    return SummedEntries(derivation=expressed(counted, currency, covered=covered), entries=entries)
