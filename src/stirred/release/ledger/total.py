"""The total: the specification of everything together, or the parts side by side that cannot be added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple

from stirred.spec.compose import UnitFactor, compose
from stirred.spec.convert import change_unit
from stirred.spec.convert_output import change_output
from stirred.spec.derivation import Derivation
from stirred.spec.given_numbers import fraction
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.problems import Problem, StirredError, refused, wrong
from stirred.spec.specification import Flavor, Specification

_MOST_RUNS: Final = 12


class Charge(NamedTuple):
    """One entry as the total sees it: which specification, and why it may cost nothing.

    It covers what it ``includes`` once it is ``drawn``: a reservation may still be given up, and its parts were spent.
    """

    number: int
    id: str
    specification: str  # digest
    spent: bool = True
    drawn: bool = True
    reserved: bool = False
    sample: str | None = None
    amplified: bool = False
    derived_from: tuple[str, ...] = ()
    includes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """A stated bound on the number of records that one person's answers were copied into."""

    factor: int | Fraction | str
    because: str

    def __post_init__(self) -> None:
        if fraction(self.factor, where="copies") < 1:
            raise wrong(
                f"{self.factor} is below 1, but everybody's answers stand in at least one record",
                where="copies",
                remedy="write the largest number of records that hold one person's answers, 1 or more",
            )
        if not self.because.strip():
            raise wrong("no reason is given", where="copies", remedy="say why there are no more copies")


@dataclass(frozen=True, slots=True, kw_only=True)
class Currency:
    """What a total is to be expressed in: unit, stated factors between units, output premetric, people or records."""

    unit: str | None = None
    units: tuple[UnitFactor, ...] = ()
    output: OutputPremetric | None = None
    copies: Copies | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
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

    Where they cannot be brought to one flavor there is more than one part, ``apart`` says why, and
    nothing is added across parts. ``alone`` are entries whose losses add to nothing, not even to
    their like. ``free`` cost nothing.
    """

    parts: tuple[Part, ...] = ()
    apart: tuple[Problem, ...] = ()
    alone: tuple[Aside, ...] = ()
    free: tuple[Aside, ...] = ()

    @property
    def is_one(self) -> bool:
        """Say whether one specification speaks for everything."""
        return len(self.parts) <= 1 and not self.alone

    @property
    def specification(self) -> Specification | None:
        """Return the one specification of everything, if there is one."""
        return self.parts[0].specification if self.parts and self.is_one else None


@dataclass(slots=True)
class _Share:
    specification: Specification
    entries: list[int]


def total(
    charges: Iterable[Charge],
    specification: Callable[[str], Specification],
    *,
    currency: Currency | None = None,
    reserved: bool = True,
) -> Total:
    """Return the total of all charges, or of those that are no open reservations.

    Equal specifications are grouped first: k of them compose as one of them k times, exactly.
    """
    currency = currency or Currency()
    counted, free, claims = _counted(list(charges), reserved)
    alone, added = _by_sample(counted, specification)
    shares: dict[str, _Share] = {}
    for charge in added:
        if charge.specification in shares:
            shares[charge.specification].entries.append(charge.number)
        else:
            shares[charge.specification] = _Share(specification(charge.specification), [charge.number])
    parts: list[Part] = []
    apart: dict[Problem, None] = {}
    for group, problems in _groups(list(shares.values()), currency):
        apart |= dict.fromkeys(problems)
        try:
            parts.append(_claiming(_part(group, currency), claims))
        except StirredError as error:
            alone += _apart(group, currency, error.problems)
    return Total(parts=tuple(parts), apart=tuple(apart), alone=tuple(alone), free=tuple(free))


def _apart(group: list[_Share], currency: Currency, problems: tuple[Problem, ...]) -> list[Aside]:
    """Say what a group promises that cannot be expressed as wanted: together in its own currency, or one by one."""
    reason = "; ".join(problem.what for problem in problems)
    try:
        part = _part(group, Currency(unit=currency.unit, units=currency.units))
    except StirredError:
        each = sorted(((n, share.specification) for share in group for n in share.entries), key=lambda one: one[0])
        return [Aside(entries=(n,), reason=reason, specification=alone, problems=problems) for n, alone in each]
    return [Aside(entries=part.entries, reason=reason, specification=part.specification, problems=problems)]


def _claiming(part: Part, claims: tuple[str, ...]) -> Part:
    """Keep what somebody stated, and nobody can check, among the assumptions."""
    specification = part.specification
    kept = replace(specification, assumptions=tuple(dict.fromkeys((*specification.assumptions, *claims))))
    return replace(part, derivation=replace(part.derivation, specification=kept))


def _counted(charges: list[Charge], reserved: bool) -> tuple[list[Charge], list[Aside], tuple[str, ...]]:
    """Separate what costs from what does not; say why not, and what was stated to make it so."""
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
    included: dict[int, list[int]] = {}
    for charge in charges:
        if not charge.spent:
            unspent.append(charge.number)
        elif charge.derived_from:
            sources = ", ".join(str(number_of[source]) for source in charge.derived_from)
            derived.setdefault(sources, []).append(charge.number)
        elif charge.id in covered:
            included.setdefault(covered[charge.id], []).append(charge.number)
        else:
            counted.append(charge)
    free = [Aside(entries=tuple(unspent), reason="aborted before anything random happened")] if unspent else []
    claims: list[str] = []
    for sources, those in derived.items():
        reason = f"derived from released entry {sources} (Proposition 2.5.4, post-processing)"
        free.append(Aside(entries=tuple(those), reason=reason))
        claims.append(f"entry {numbers(those)} was computed from the output of entry {sources} and nothing else")
    for whole, those in included.items():
        free.append(Aside(entries=tuple(those), reason=f"stated to be contained in the specification of entry {whole}"))
        claims.append(f"the specification of entry {whole} covers entry {numbers(those)} as well")
    return counted, free, tuple(claims)


def _by_sample(
    charges: list[Charge], specification: Callable[[str], Specification]
) -> tuple[list[Aside], list[Charge]]:
    """Set aside losses amplified by one and the same sample: they do not add up (section 6.5.2).

    Adding them would understate the loss; they would have to be composed on the sample and amplified
    once. Losses stated for the sample itself add up as any others.
    """
    samples: dict[str, list[Charge]] = {}
    for charge in charges:
        if charge.sample is not None:
            samples.setdefault(charge.sample, []).append(charge)
    shared = {
        name: group for name, group in samples.items() if len(group) > 1 and any(charge.amplified for charge in group)
    }
    alone = [
        Aside(
            entries=(charge.number,),
            reason=f"shares sample {name!r} with entry "
            f"{', '.join(str(other.number) for other in group if other is not charge)}, and a loss amplified by a "
            "sample adds up with no other of that sample: compose on the sample first, then amplify once",
            specification=specification(charge.specification),
        )
        for name, group in shared.items()
        for charge in group
    ]
    if not shared:
        return [], charges
    return alone, [charge for charge in charges if charge.sample not in shared]


def _groups(shares: list[_Share], currency: Currency) -> list[tuple[list[_Share], tuple[Problem, ...]]]:
    """Divide shares into groups that compose; each further group comes with the reasons why it stands apart.

    Whether specifications compose depends on their flavors, so one of each flavor is tried.
    """
    flavors: dict[Flavor, list[_Share]] = {}
    for share in shares:
        flavors.setdefault(share.specification.flavor, []).append(share)
    if not flavors or not _refusal([of[0] for of in flavors.values()], currency):
        return [(shares, ())] if shares else []
    groups: list[tuple[list[_Share], list[_Share], tuple[Problem, ...]]] = []
    for of in flavors.values():
        reason: tuple[Problem, ...] = ()
        for tried, whole, _ in groups:
            refusal = _refusal([*tried, of[0]], currency)
            if not refusal:
                tried.append(of[0])
                whole.extend(of)
                break
            reason = reason or refusal
        else:
            groups.append(([of[0]], list(of), reason or _refusal([of[0]], currency)))
    return [(whole, reason) for _, whole, reason in groups]


def _refusal(shares: Sequence[_Share], currency: Currency) -> tuple[Problem, ...]:
    """Return why shares do not compose; nothing if they do."""
    try:
        compose([share.specification for share in shares], unit=currency.unit, units=currency.units)
    except StirredError as error:
        return error.problems
    return ()


def numbers(entries: Sequence[int]) -> str:
    """Write numbers of entries, runs of them shortened.

    >>> numbers((1, 2, 3, 7))
    '1-3, 7'
    """
    runs: list[list[int]] = []
    for number in sorted(entries):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs[:_MOST_RUNS]]
    return ", ".join([*shown, *([f"and {len(runs) - _MOST_RUNS:,} more"] if len(runs) > _MOST_RUNS else [])])


def _part(group: list[_Share], currency: Currency) -> Part:
    """Compose a group in the wanted currency.

    Approximate differential privacy is reached from the sum: converting each release first would cost
    more, in epsilon and in delta.
    """
    wanted = currency.output
    at_the_end = wanted is not None and not wanted.is_metric
    derivation = compose(
        [share.specification for share in group],
        unit=currency.unit,
        units=currency.units,
        output=None if at_the_end else wanted,
        times=[len(share.entries) for share in group],
        names=[f"entry {numbers(share.entries)}" for share in group],
    )
    if currency.copies is not None:
        if not derivation.specification.input_premetric.post_imputation:
            raise refused(
                "these releases promise nothing about records after imputation, of which a person may have several",
                where="copies",
                remedy="leave copies out",
            )
        step = change_unit(
            derivation.specification,
            unit=derivation.specification.input_premetric.unit,
            factor=currency.copies.factor,
            because=currency.copies.because,
            post_imputation=False,
        )
        derivation = derivation.then(step)
    if at_the_end and wanted is not None:
        derivation = derivation.then(change_output(derivation.specification, to=wanted))
    return Part(derivation=derivation, entries=tuple(sorted(number for share in group for number in share.entries)))
