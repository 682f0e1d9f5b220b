"""The exact law of perturbed tables of a small file, by slow and obvious enumeration: the oracle of the trade-off."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any, Final

from stirred.data.problems import bad_plan
from stirred.mechanisms.tables.cellkey.ptable import PTable
from stirred.mechanisms.tables.cellkey.tradeoff import KeyedBy
from stirred.spec.convert import post_process
from stirred.spec.law import Law
from stirred.spec.specification import Specification

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey

LETTERS: Final = "ab"  # the values of every variable in the files that are audited
_MOST: Final = 100_000
_Cell = tuple[int, tuple[Any, ...], frozenset[int]]  # table, values, and which records are in it


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallTables:
    """Tables of records given as tuples: each table has the places of its ``variables``.

    ``values`` are those of every variable; None where cells without records are left out.
    """

    table: PTable
    variables: Sequence[Sequence[int]]
    values: str | None
    keyed_by: KeyedBy
    additive: bool = False
    threshold: int = 0

    def law(self, records: Sequence[Any]) -> Law:
        """Return the law of all published counts, cell by cell."""
        cells = [*self._cells(records)]
        outcomes: dict[Hashable, Fraction] = {}
        for counts, chance in self._keys(cells, len(records)) if self.additive else self._noise(cells):
            shown = frozenset(
                (cell[:2], None if count < self.threshold else count) for cell, count in zip(cells, counts, strict=True)
                if count or self.values  # a cell that is left out shows as 0
            )  # fmt: skip
            outcomes[shown] = outcomes.get(shown, Fraction(0)) + chance
        return Law(outcomes)

    def _cells(self, records: Sequence[Any]) -> Iterator[_Cell]:
        for number, places in enumerate(self.variables):
            own = [tuple(record[place] for place in places) for record in records]
            every = {*own} if self.values is None else {*product(self.values, repeat=len(places))}
            for cell in sorted(every):
                yield number, cell, frozenset(n for n, values in enumerate(own) if values == cell)

    def _noise(self, cells: Sequence[_Cell]) -> Iterator[tuple[list[int], Fraction]]:
        """Yield the counts and their probability where different sets, or definitions, have independent keys."""
        own: list[Hashable] = [cell[2] if self.keyed_by == "records" else cell[:2] for cell in cells]
        shared = {key: len(cell[2]) for key, cell in zip(own, cells, strict=True) if cell[2]}
        for drawn in product(*(self.table.law(count).items() for count in shared.values())):
            chance = Fraction(1)
            for _, mass in drawn:
                chance *= mass
            found = dict(zip(shared, (count for count, _ in drawn), strict=True))
            yield [found[key] if cell[2] else 0 for key, cell in zip(own, cells, strict=True)], chance

    def _keys(self, cells: Sequence[_Cell], records: int) -> Iterator[tuple[list[int], Fraction]]:
        """Yield the counts for every combination of record keys, whose sums are looked up as they are."""
        keys = self.table.keys
        if keys**records > _MOST:
            what = f"{keys} keys of {records} records are too many to enumerate"
            raise bad_plan(what, where="law", remedy="audit a table with fewer keys")
        for drawn in product(range(keys), repeat=records):
            sums = [(len(cell[2]), sum(drawn[n] for n in cell[2]) % keys) for cell in cells]
            yield [count + self.table.added(count, key=key) for count, key in sums], Fraction(1, keys**records)


def mixed_law(law: Law, then: Callable[[Any], Law]) -> Law:
    """Return the law of one mechanism after another."""
    outcomes: dict[Hashable, Fraction] = {}
    for middle, chance in law.probabilities.items():
        for outcome, mass in then(middle).probabilities.items():
            outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + chance * mass
    return Law(outcomes)


def law(mechanism: CellKey, dataset: Any) -> Law:
    """Return the exact law of the tables of a small file, records given by the values of ``names``, in order.

    After another mechanism the file is one of that, with a held and a disturbed value for each record.
    """
    if mechanism.inner is None:
        return _small(mechanism, {name: place for place, name in enumerate(mechanism.names)}).law([*dataset])
    small = _small(mechanism, {name: int(name in mechanism.inner.areas) for name in mechanism.names})
    before = mechanism.inner.law(dataset)
    assert isinstance(before, Law)
    return mixed_law(before, small.law)


def _small(mechanism: CellKey, places: Mapping[str, int]) -> SmallTables:
    return SmallTables(
        table=mechanism.table,
        variables=[sorted({places[name] for name in variables}) for variables in mechanism.tables],
        values=None if mechanism.inner is not None else LETTERS,
        keyed_by=mechanism.keyed_by,
        additive=mechanism.keys == "additive",
        threshold=mechanism.threshold,
    )


def audit_universes(mechanism: CellKey) -> list[list[Hashable]]:
    """Return all files of up to two records (three, of one variable), by which cells are empty if that is fixed."""
    if mechanism.inner is not None:
        # Four records in four cells have too many outputs to compare all pairs.
        return [[*files] for files in mechanism.inner.audit_universes() if all(len(f) < 4 for f in files)]  # type: ignore[arg-type]
    most = 3 if len(mechanism.names) == 1 else 2
    records = [*product(LETTERS, repeat=len(mechanism.names))]
    files = [file for n in range(most + 1) for file in combinations_with_replacement(records, n)]
    if mechanism.zeros != "fixed":
        return [[file for file in files if len(file) < most], [*files]]
    places = {name: place for place, name in enumerate(mechanism.names)}
    groups: dict[Hashable, list[Hashable]] = {}
    for file in files:
        full = frozenset((t, tuple(record[places[name]] for name in t)) for t in mechanism.tables for record in file)
        groups.setdefault(full, []).append(file)
    return [group for group in groups.values() if len(group) > 1]


def audit_specification(mechanism: CellKey, universe: Sequence[Hashable]) -> Specification:
    """Return the promise for such files."""
    if mechanism.inner is not None:
        return post_process(mechanism.inner.audit_specification(universe)).specification
    return mechanism.specification(name="small", stage="as-given")
