"""Small files on which the promise of noisy tables is checked by enumeration, and the exact law of each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any, Final

from stirred.mechanisms.tables.noise.counting import counted_persons
from stirred.mechanisms.tables.noise.settings import Sum
from stirred.spec.shift_law import Noise, ShiftLaw
from stirred.spec.specification import Specification

if TYPE_CHECKING:
    from stirred.mechanisms.tables.noise.mechanism import NoisyTables

_MOST: Final = 60  # files of one size: all pairs of them are compared


def _units(mechanism: NoisyTables) -> tuple[list[str], list[str], list[Any]]:
    """Return variables, columns of sums, and the units of small files; a variable has two values there.

    Of a column that is added up the bounds decide. A household has nobody, or as many alike as count, or one more.
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


def law(mechanism: NoisyTables, dataset: Any) -> ShiftLaw:
    """Return the exact law of all tables of a small file: its numbers, each with its own integer noise."""
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


def audit_universes(mechanism: NoisyTables) -> list[list[Hashable]]:
    """Return small files: of one unit, of two, of three, that agree on what is kept."""
    variables, _, records = _units(mechanism)
    kept = [[variables.index(name) for name in by] for _, by in mechanism.kept_titles()]
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


def audit_specification(mechanism: NoisyTables, universe: Sequence[Hashable]) -> Specification:
    """Return the promise for a small file."""
    variables, added, _ = _units(mechanism)
    columns = [*variables, *added]
    return mechanism.specification(
        mechanism.measures(of_persons=columns if mechanism.persons is not None else ()), name="small", columns=columns
    )


def _added(people: Sequence[Any], added_up: Sum, place: int) -> int:
    return sum(min(max(person[place], added_up.low), added_up.high) for person in people)
