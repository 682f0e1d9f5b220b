"""Small files on which the promise of noisy tables is checked by enumeration, and the exact law of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, Final

from stirred.mechanisms.tables.engine import (
    counted_persons,
)
from stirred.mechanisms.tables.noise.measures import Sum
from stirred.mechanisms.tables.noise.promise import NoisePromise
from stirred.spec.exact import Exact, exact, exp
from stirred.spec.law import Law
from stirred.spec.problems import wrong as wrong_setting
from stirred.spec.shift_law import Noise, ShiftLaw
from stirred.spec.specification import Specification
from stirred.spec.staged_law import OutputLaw

_HOLD, _SWAP = "ab", "xy"  # of the files that are audited where a swap comes before
_MOST: Final = 60  # files of one size: all pairs of them are compared


def _units(mechanism: NoisePromise) -> tuple[list[str], list[str], list[Any]]:
    """Return variables, columns of sums, and the units of small files; a variable has two values there.

    Of a column that is added up the bounds decide. A household has no persons, or as many alike as count, or one more.
    """
    variables = [*mechanism.coded_columns]
    bounds: dict[str, tuple[int, int]] = {}
    for each in mechanism.sums:
        low, high = bounds.get(each.column, (each.low, each.high))
        bounds[each.column] = (min(low, each.low), max(high, each.high))
    records: list[Any] = [*product(*([0, 1] for _ in variables), *bounds.values())]
    if mechanism.persons is not None:
        large = (records[0],) * mechanism.persons + (records[-1],)
        records = [(), *((each,) * mechanism.persons for each in records), large]
    return variables, [*bounds], records


def law(mechanism: NoisePromise, dataset: Any) -> OutputLaw:
    """Return the exact law of all tables of a small file: its numbers, each with its own integer noise."""
    if mechanism.inner is not None:
        return _swapped_law(mechanism, dataset)
    variables, added, _ = _units(mechanism)
    people = dataset
    if mechanism.persons is not None:
        people = [person for unit in dataset for person in counted_persons(unit, most=mechanism.persons)]
    centre: list[int] = []
    noises: list[Noise] = []
    fixed: list[list[int]] = []
    for each in mechanism.measures(of_persons=[*variables, *added] if mechanism.persons is not None else ()):
        places = [variables.index(name) for name in each.variables]
        cells = [*product((0, 1), repeat=len(places))]
        for margin in each.kept:
            key = [place for place, name in enumerate(each.variables) if name in margin]
            groups: dict[Hashable, list[int]] = {}
            for number, cell in enumerate(cells, start=len(centre)):
                groups.setdefault(tuple(cell[place] for place in key), []).append(number)
            fixed += groups.values()
        for cell in cells:
            inside = [person for person in people if tuple(person[place] for place in places) == cell]
            centre.append(_added(inside, each.added_up, len(variables) + added.index(each.added_up.column)) if
                          each.added_up else len(inside))  # fmt: skip
            noises.append(each.cell.noise)
    return ShiftLaw(centre, noises, fixed=fixed)


def audit_universes(mechanism: NoisePromise) -> list[list[Hashable]]:
    """Return small files: of one unit, of two, of three, that agree on what is kept."""
    if mechanism.inner is not None:  # of one stratum, with two held and two swapped values
        most = 3 if len(mechanism.wanted) == 1 else 2
        return [[*combinations_with_replacement([*product(_HOLD, _SWAP)], n)] for n in range(1, most + 1)]
    variables, _, records = _units(mechanism)
    kept = [[variables.index(name) for name in by] for by in mechanism.margins.values()]
    found = []
    for count in (1, 2, 3):
        files_of = [*combinations_with_replacement(records, count)]
        if count > 1 and len(files_of) > _MOST:
            break
        groups: dict[Hashable, list[Hashable]] = {}
        for file in files_of:
            margins = tuple(tuple(sorted(tuple(row[place] for place in by) for row in file)) for by in kept)
            groups.setdefault(margins, []).append(file)
        found += [group for group in groups.values() if len(group) > 1]
    return found


def audit_specification(mechanism: NoisePromise, universe: Sequence[Hashable]) -> Specification:
    """Return the promise for a small file."""
    variables, added, _ = _units(mechanism)
    columns = [*variables, *added]
    return mechanism.specification(
        mechanism.measures(of_persons=columns if mechanism.persons is not None else ()), name="small", columns=columns
    )


def _added(people: Sequence[Any], added_up: Sum, place: int) -> int:
    return sum(min(max(person[place], added_up.low), added_up.high) for person in people)


def _swapped_law(mechanism: NoisePromise, dataset: Any) -> Law:
    """Return the law of tables of a swapped file of one stratum, its records pairs of a held and a swapped value.

    Each noisy count is cut to 0..n, which loses nothing: of all counts below 0, or above n, the likelihoods under
    different files have the same ratios. Its noise has the smallest rational decay just above that of the release.
    """
    assert mechanism.inner is not None
    swap, records = mechanism.swapped, [*dataset]
    assert swap is not None
    tables = []
    for each in mechanism.measures():
        hold = _HOLD if {*each.variables} - {*swap.of, *swap.within} else (None,)
        own = _SWAP if {*each.variables} & {*swap.of} else (None,)
        tables.append(([*product(hold, own)], decay_for(exact(each.loss / each.one))))
    outcomes: dict[Hashable, Fraction] = {}
    inner: Any = mechanism.inner.law(records)
    for rows, chance in inner.probabilities.items():
        found: dict[tuple[int, ...], Fraction] = {(): chance}
        for cells, decay in tables:
            for cell in cells:
                count = sum(all(want in (None, has) for want, has in zip(cell, row, strict=True)) for row in rows)
                noisy = truncated_geometric(count, most=len(records), decay=decay)
                found = {(*o, z): p * q for (o, p), (z, q) in product(found.items(), enumerate(noisy))}
        for outcome, p in found.items():
            outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + p
    return Law(outcomes)


def truncated_geometric(count: int, *, most: int, decay: Fraction) -> list[Fraction]:
    """Return the chances of 0..``most`` for a count with geometric noise, cut to these: ln(1/decay) is lost per unit.

    >>> [str(p) for p in truncated_geometric(0, most=2, decay=Fraction(1, 5))]
    ['5/6', '2/15', '1/30']
    """
    inner, ends = (1 - decay) / (1 + decay), 1 / (1 + decay)  # what falls beyond the ends is added to them
    return [(inner if 0 < value < most else ends) * decay ** abs(value - count) for value in range(most + 1)]


_GIVEN_AWAY: Final = Fraction(1, 1 << 20)  # the decay is a short fraction, and at most so little is lost by that
_DIGITS: Final = 60
_LEAST: Final = Fraction(1, 10**6)


def decay_for(loss: Exact) -> Fraction:
    """Return exp(-loss), or the fraction of smallest denominator a little above it: at most a millionth is given away.

    >>> from stirred.spec.exact import ln
    >>> decay_for(ln(5)), decay_for(exact("1/4"))
    (Fraction(1, 5), Fraction(3468, 4453))
    """
    if loss.is_infinite or loss < exact(_LEAST):
        hides = "nothing" if loss.is_infinite else "everything"
        what = f"noise with a loss of {loss.shown()} for each unit of a count hides {hides}"
        remedy = f"write a loss above 0 and not infinite, from {float(_LEAST):g} for each unit"
        raise wrong_setting(what, where="noise", remedy=remedy)
    sought = exp(-loss)
    if sought.is_rational:
        return sought.rational
    least = Fraction(sought.enclose(_DIGITS).high)
    return _simplest_between(least, Fraction(exp(-loss * (1 - _GIVEN_AWAY)).enclose(_DIGITS).low))


def _simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction of smallest denominator from ``low`` to ``high``, by their continued fractions."""
    whole = low.numerator // low.denominator
    if low == whole:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / _simplest_between(1 / (high - whole), 1 / (low - whole))
