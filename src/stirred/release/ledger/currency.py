"""The currency of a total: its unit and its measure of change, and how releases are brought to it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, NamedTuple

from stirred.spec.compose import UnitFactor, compose, reach
from stirred.spec.convert import change_distance, change_unit, to_neighbours
from stirred.spec.derivation import Derivation
from stirred.spec.given_numbers import fraction
from stirred.spec.invariant import Margin
from stirred.spec.output_premetric import GDP, PURE, ZCDP, OutputPremetric, approximate
from stirred.spec.output_rules import change_output
from stirred.spec.problems import CopiesProblem, MeasureProblem, StirredError, refused, wrong
from stirred.spec.specification import Specification

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


def expressed(counted: Summands, currency: Currency, *, covered: Sequence[Specification] = ()) -> Derivation:
    """Return the specification of all releases together in the wanted currency, or refuse.

    ``covered`` are releases that another one includes: they cost nothing, but a total does not fall because of them.
    """
    wanted = currency.output
    if currency.proven and wanted == ZCDP:  # in other measures a larger distance never makes a loss smaller
        counted = counted._replace(specifications=[*map(as_proven, counted.specifications)])
    if wanted is None or wanted.is_metric:
        return _people(_together(counted, currency, output=wanted), currency)
    return _approximate(counted, currency, wanted, within=_within(counted, currency, covered))


def as_proven(specification: Specification) -> Specification:
    """Return a specification without a stated distance of the nearest files that its margins do not show."""
    multiverse, premetric = specification.multiverse, specification.input_premetric
    margins = [each for each in multiverse.invariants if isinstance(each, Margin) and each.of == premetric.unit]
    shown = premetric.name in ("d_HamS", "d_Ham") and multiverse.keeps_each(premetric.unit, specification.domain)
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


def _approximate(counted: Summands, currency: Currency, wanted: OutputPremetric, *, within: int) -> Derivation:
    """Return the smallest bound that any sum gives between files at most ``within`` apart.

    Converting each release first would cost more, in epsilon and in delta. Every sum is a valid bound and grows with
    each release, and a further release never makes another sum possible. So the smallest of them never falls.
    """
    own, others = (_some(counted, with_delta=with_delta) for with_delta in (True, False))
    if own.specifications and {one.output_premetric.name for one in others.specifications} - {"D_Mult"}:
        return _beside_deltas(own, others, currency, wanted, within=within)
    bounds = []
    for output in _sums(counted.specifications):
        together = _people(_together(counted, currency, output=output), currency)
        _check_delta(together.specification.output_premetric.delta, wanted)
        if together.specification.input_premetric.is_metric:
            together = together.then(to_neighbours(together.specification, within=within))
        bounds.append(together.then(change_output(together.specification, to=wanted)))
    return min(bounds, key=lambda one: float(one.specification.budget.realised))


def _some(counted: Summands, *, with_delta: bool) -> Summands:
    specifications, times, names = counted
    chosen = [at for at, one in enumerate(specifications) if bool(one.output_premetric.delta) == with_delta]
    return Summands([specifications[at] for at in chosen], [times[at] for at in chosen], [names[at] for at in chosen])


def _beside_deltas(
    own: Summands, others: Summands, currency: Currency, wanted: OutputPremetric, *, within: int
) -> Derivation:
    """Return the sum of releases that have a delta and others that need one, which get what is left of it together.

    The deltas that are there grow on the way to a common distance and unit: a first sum, in which the others get a
    small one, shows how far.
    """
    alike = replace(currency, copies=None, distances={})

    def joined(delta: Fraction) -> Derivation:
        rest = _approximate(others, alike, approximate(delta), within=within)
        together = Summands(
            [rest.specification, *own.specifications], [1, *own.times], [", ".join(others.names), *own.names]
        )
        return _people(rest.then(_together(together, currency, output=None)), currency)

    small = wanted.delta / 1000
    spent = joined(small).specification.output_premetric.delta - small
    _check_delta(spent + small, wanted)
    return joined(wanted.delta - spent)


def _check_delta(spent: Fraction, wanted: OutputPremetric) -> None:
    if spent > wanted.delta:
        raise refused(
            f"the delta is {float(spent):.4g} already, and {float(wanted.delta):.4g} in all: no bound follows",
            where="compose how",
            kind=MeasureProblem,
            remedy="release with a smaller delta (of cell keys: a larger epsilon, or wider noise)",
        )


def _together(counted: Summands, currency: Currency, *, output: OutputPremetric | None) -> Derivation:
    specifications, times, names = counted
    found = compose(specifications, unit=currency.unit, units=currency.units, output=output, times=times, names=names)
    own = found.specification
    to = currency.distances.get(own.input_premetric.name)
    return found if to is None else found.then(change_distance(own, to=to))


def _people(together: Derivation, currency: Currency) -> Derivation:
    """Go from records to the people behind them, where the currency says so."""
    copies, premetric = currency.copies, together.specification.input_premetric
    if copies is None:
        return together
    if not premetric.post_imputation:
        what = "these releases promise nothing about records after imputation, of which a person may have several"
        raise refused(what, where="copies", remedy="leave copies out", kind=CopiesProblem)
    step = change_unit(
        together.specification, unit=premetric.unit, factor=copies.factor, because=copies.because, post_imputation=False
    )
    return together.then(step)


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
