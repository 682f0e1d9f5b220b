"""The currency of a total: its unit and its measure of change, and how releases are brought to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, NamedTuple

from stirred.spec.budget import PermutationSwapping
from stirred.spec.composition import UnitFactor, added, alike, reach
from stirred.spec.convert import change_distance, change_unit, to_neighbours
from stirred.spec.given_numbers import fraction
from stirred.spec.invariant import Margin
from stirred.spec.output_premetric import GDP, PURE, ZCDP, OutputPremetric, approximate
from stirred.spec.output_rules import change_output
from stirred.spec.problems import (
    ConversionRefusedError,
    CopiesProblem,
    MeasureProblem,
    StirredError,
    refused,
    wrong,
)
from stirred.spec.specification import Derivation, Specification

KNOWN_APART: Final = 2  # two margins that cover a record: no record can change alone (swapping)


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
    """What a total is to be expressed in: unit, stated factors between units, output premetric, people or records.

    ``distances`` says by which other distance a total is expressed that is by one of these. With ``proven`` a release
    counts with the distance of its nearest files that its margins show, and not with one that it merely states.
    """

    unit: str | None = None
    units: tuple[UnitFactor, ...] = ()
    output: OutputPremetric | None = None
    copies: Copies | None = None
    distances: Mapping[str, str] = field(default_factory=dict)
    proven: bool = False


class Summands(NamedTuple):
    """Releases that are added up: each specification, how often it was released, and what messages call it."""

    specifications: Sequence[Specification]
    times: Sequence[int]
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Part:
    """A release by the distance and for the unit of the total, how often it was made and what messages call it."""

    derivation: Derivation
    times: int
    name: str

    @property
    def output(self) -> OutputPremetric:
        return self.derivation.specification.output_premetric


def expressed(counted: Summands, currency: Currency, *, covered: Sequence[Specification] = ()) -> Derivation:
    """Return the specification of all releases together in the wanted currency, or refuse.

    Each release is brought to the distance, the unit and the people of the currency first, and to its measure last:
    a delta grows with the distance, and would be more than the wanted one afterwards. ``covered`` are releases that
    another one includes: they cost nothing, but a total does not fall because of them.
    """
    wanted = currency.output
    if currency.proven and wanted == ZCDP:  # in other measures a larger distance never makes a loss smaller
        counted = counted._replace(specifications=[*map(as_proven, counted.specifications)])
    parts = _alike(counted, currency)
    if wanted is None or wanted.is_metric:
        return _added(parts, wanted)
    found = _approximate(parts, wanted, within=_within(counted, currency, covered))
    _check_delta(found.specification.output_premetric.delta, wanted)
    return found


def _alike(counted: Summands, currency: Currency) -> list[_Part]:
    """Return each release by one distance, in one unit and for the people whom the currency is about."""
    specifications, times, names = counted
    parts = []
    for part, often, name in zip(
        alike(specifications, unit=currency.unit, units=currency.units, times=times), times, names, strict=True
    ):
        own = part.specification
        to = currency.distances.get(own.input_premetric.name)
        changed = part if to is None else part.then(change_distance(own, to=to))
        parts.append(_Part(_people(changed, currency), often, name))
    return parts


def _added(parts: Sequence[_Part], output: OutputPremetric | None) -> Derivation:
    times, names = [part.times for part in parts], [part.name for part in parts]
    return added([part.derivation for part in parts], output=output, times=times, names=names)


def as_proven(specification: Specification) -> Specification:
    """Return a specification without a stated distance of the nearest files that its margins do not show."""
    multiverse, premetric = specification.multiverse, specification.input_premetric
    margins = [each for each in multiverse.invariants if isinstance(each, Margin) and each.of == premetric.unit]
    of_swap = isinstance(specification.budget.policy, PermutationSwapping)
    shown = premetric.name in ("d_HamS", "d_Ham") and multiverse.keeps_each(
        premetric.unit, specification.domain, of_swap=of_swap
    )
    # Any margin fixes the number of records: one that is added comes with one that is removed.
    shown = shown or (premetric.name in ("d_SymDiff", "d_InsDel") and bool(margins))
    nearest = min(multiverse.nearest, KNOWN_APART if shown else 1)
    if nearest == multiverse.nearest:
        return specification
    because = multiverse.nearest_because if nearest > 1 else ""
    return specification.with_flavor(multiverse=replace(multiverse, nearest=nearest, nearest_because=because))


def _sums(specifications: Sequence[Specification]) -> tuple[OutputPremetric | None, ...]:
    """Return the sums by which approximate DP can be reached; None is the measure that all releases share.

    Fewer sums are possible for more kinds of releases, and never others: this is what keeps totals from falling.
    """
    kinds = {specification.output_premetric.name for specification in specifications}
    if not kinds <= {"D_Mult", "D_GDP", "D_NoR"}:
        return (None,)
    alone: dict[str, OutputPremetric] = {"D_Mult": PURE, "D_GDP": GDP}
    return (*(alone[kind] for kind in kinds if len(kinds) == 1 and kind in alone), ZCDP)


def _approximate(parts: Sequence[_Part], wanted: OutputPremetric, *, within: int) -> Derivation:
    """Return the smallest bound that any sum gives between files at most ``within`` apart.

    Converting each release first would cost more, in epsilon and in delta. Every sum is a valid bound and grows with
    each release, and a further release never makes another sum possible. So the smallest of them never falls.
    """
    own = [part for part in parts if part.output.delta]
    others = [part for part in parts if not part.output.delta]
    if own and any(part.output.name != "D_Mult" for part in others):
        return _beside_deltas(own, others, wanted, within=within)
    bounds = []
    if own and others:  # what they cost together where a further release needs a part of the delta
        with suppress(ConversionRefusedError):  # nothing is left of it, and pure losses need none
            bounds.append(_beside_deltas(own, others, wanted, within=within))
    for output in _sums([part.derivation.specification for part in parts]):
        together = _added(parts, output)
        _check_delta(together.specification.output_premetric.delta, wanted)
        if together.specification.input_premetric.is_metric:
            together = together.then(to_neighbours(together.specification, within=within))
        bounds.append(together.then(change_output(together.specification, to=wanted)))
    return min(bounds, key=lambda one: float(one.specification.budget.realised))


def _beside_deltas(
    own: Sequence[_Part], others: Sequence[_Part], wanted: OutputPremetric, *, within: int
) -> Derivation:
    """Return the sum of releases that have a delta and others that need one, which get what is left of it together."""
    near = [
        replace(part, derivation=part.derivation.then(to_neighbours(part.derivation.specification, within=within)))
        for part in own
    ]
    spent = sum((part.times * part.output.delta for part in near), Fraction(0))
    _check_delta(spent, wanted, others=True)
    rest = _approximate(others, approximate(wanted.delta - spent), within=within)
    name = ", ".join(part.name for part in others)
    together = _added([_Part(Derivation(specification=rest.specification), 1, name), *near], None)
    return rest.then(together)


def _check_delta(spent: Fraction, wanted: OutputPremetric, *, others: bool = False) -> None:
    """Refuse what has a larger delta than the wanted one, or leaves nothing of it to ``others`` that need one."""
    if spent > wanted.delta or (others and spent == wanted.delta):
        raise refused(
            f"the delta is {float(spent):.4g} already, and {float(wanted.delta):.4g} in all: no bound follows",
            where="compose how",
            kind=MeasureProblem,
            remedy="release with a smaller delta (of cell keys: a larger epsilon, or wider noise)",
        )


def _people(release: Derivation, currency: Currency) -> Derivation:
    """Go from records to the people behind them, where the currency says so."""
    copies, premetric = currency.copies, release.specification.input_premetric
    if copies is None:
        return release
    if not premetric.post_imputation:
        what = "these releases promise nothing about records after imputation, of which a person may have several"
        raise refused(what, where="copies", remedy="leave copies out", kind=CopiesProblem)
    step = change_unit(
        release.specification, unit=premetric.unit, factor=copies.factor, because=copies.because, post_imputation=False
    )
    return release.then(step)


def _within(counted: Summands, currency: Currency, covered: Sequence[Specification]) -> int:
    """Return the smallest distance at which every release tells some files apart.

    A swap is the same for any two files at distance 1 that it allows, there being none. A limit judged there would
    count it as nothing as soon as another release brings such files in.
    """
    far = reach(counted.specifications, unit=currency.unit, units=currency.units)
    for one in covered:
        try:
            far = max(far, reach([one], unit=currency.unit, units=currency.units))
        except StirredError:  # a release of another unit, which stands apart
            continue
    if currency.copies is None:
        return far
    return math.ceil(far / fraction(currency.copies.factor, where="copies"))
