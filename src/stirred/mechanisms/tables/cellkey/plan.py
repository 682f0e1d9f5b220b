"""The plan of cell keys: what is wrong with settings and files, what it says, what speaks against it, the audit."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, pairwise, product
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata, absent_variable, missing_column
from stirred.data.problems import DataError, bad_plan, listed
from stirred.mechanisms.protocol import Fact, Grid, Section, Typical
from stirred.mechanisms.tables.cellkey.perturbation import identified, summed, whole_keys
from stirred.mechanisms.tables.cellkey.ptable import KeyedBy, PTable
from stirred.mechanisms.tables.engine import TablePlan, audit_cells, audit_promise, audit_records, column_of
from stirred.spec.brief import published_exactly
from stirred.spec.convert import post_process
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import exact
from stirred.spec.law import Law
from stirred.spec.specification import Specification

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey

_LARGE: Final = Fraction(1, 1000)
_EPSILONS: Final = ("0", "1/2", "1", "2", "4")
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CellKeyPlan(TablePlan):
    """The plan; ``cells`` has every declared cell of each table."""

    persons: tuple[str, ...] = ()  # columns of persons that tables use

    @property
    def disturbed(self) -> str:
        table = self.mechanism.table
        most = max(max(abs(v) for v in row.values) for row in table.rows)
        last = table.rows[-1].count
        before = "" if self.before is None else f" (after: {self.before.disturbed})"
        sums = self.mechanism.sums
        added = (
            "" if sums is None else f"; and every sum of {sums.column} in these cells, in units of its largest values"
        )
        return (
            f"every count above 0, by at most {most}, with variance {float(table.variance(last)):.4g}, alike for the "
            f"same {'set of records' if self.mechanism.keyed_by == 'records' else 'cell'}{added}{before}"
        )

    @property
    def unchanged(self) -> str:
        before = self.mechanism.inner
        if before is not None:
            kept = published_exactly(self.before.specification)
            return f"nothing; {before.title} keeps, and this release does not publish, {kept}"
        return "which cells are empty" if self.mechanism.zeros == "fixed" else "nothing"

    @property
    def publishes_fixed(self) -> bool:
        return self.before is None

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        names = dict.fromkeys(name for cells in self.cells.values() for name in cells.columns)
        return {
            "households": [name for name in names if name not in self.persons],
            "persons": list(self.persons),
        }

    @property
    def facts(self) -> tuple[Fact, ...]:
        trade = self.mechanism.trade
        values = {} if trade is None else {f"delta_at_{e}": float(exact(trade.delta(exact(e)))) for e in _EPSILONS}
        rows = (Fact(label="promised", sentence=" ".join(promised(self))),)
        if trade is None:
            return rows
        words = ", ".join(f"{exact(trade.delta(exact(e))).shown()} at epsilon {e}" for e in _EPSILONS)
        if self.before is None:
            return (*rows, Fact(label="delta", sentence=words, values={"delta": values}))
        words = f"of the cell keys alone, for one {self.mechanism.unit} more or less and without the swap: {words}"
        return (*rows, Fact(label="delta", sentence=words, values={"delta_of_keys_alone": values}))


def promised(plan: CellKeyPlan) -> list[str]:
    """Return in three sentences what is promised and what is not."""
    mechanism, specification = plan.mechanism, plan.specification
    if mechanism.inner is not None:
        before = mechanism.inner.title
        what = f"What is promised is what {before} promises, {specification.budget_text}"
        if specification.budget.is_unbounded:
            what = f"Nothing is promised, because {before} promises nothing"
        return [
            f"{what}: cell keys come after it and use nothing but its output and fresh keys.",
            "Where every count above 0 moves up as far as it can, the output tells these tables of the swapped file: "
            "cell keys are not counted on to make the loss smaller."
            if _tells_tables(mechanism)
            else "No smaller loss is proven for both together.",
            "They make outputs that tell much less probable; by how much, for both together, is not computed.",
        ]
    delta = specification.output_premetric.delta
    if not delta:
        return [
            "Nothing is promised: the loss is infinite.",
            mechanism.no_promise,
            "Noise hides single counts from a casual reader, and nothing more is proven of it.",
        ]
    unit = mechanism.unit
    second = (
        "Cells with the same records show the same noise, so a difference between two of them proves that a record is "
        f"in one alone: at every epsilon this has a probability of up to {exact(delta).shown()}, more with more noise."
        if mechanism.trade is not None and mechanism.trade.ties
        else "Noise that is bounded can never hide more than its width: no finite loss holds without such a delta."
    )
    return [
        f"Between two files that differ by one {unit}, any set of outputs is at most e^{specification.budget.shown} "
        f"times as probable under one as under the other, plus {exact(delta).shown()}. This bounds probabilities and "
        "not odds: a single output may change odds by more.",
        second,
        "Nothing is promised about averages over many tables that split one total in different ways, nor once the key "
        "is known.",
    ]


def _tells_tables(mechanism: CellKey) -> bool:
    """Say whether counts that all move up as far as they can are shown and tell what they were."""
    highest = [row.count + max(row.law) for row in mechanism.table.rows]
    return highest[0] >= mechanism.threshold and all(one < other for one, other in pairwise(highest))


def typical_errors(mechanism: CellKey, plan: CellKeyPlan, corrected: Mapping[str, pl.DataFrame]) -> list[Typical]:
    """Return the noise of large counts by the perturbation table; nothing where something else was done before."""
    if plan.before is not None:
        return []
    table, last = mechanism.table, mechanism.table.rows[-1]
    error = math.sqrt(sum(many * value**2 for value, many in last.law.items()) / table.keys)
    inside = (k for k in range(max(map(abs, last.law)) + 1)
              if 10 * sum(many for value, many in last.law.items() if abs(value) <= k) >= 9 * table.keys)  # fmt: skip
    least = max(last.count, mechanism.threshold)  # below the threshold nothing is published
    size, within, error = f"{least:,} and more", next(inside) / table.step, error / table.step
    return [Typical(table=t, size=size, cells=c.height, error=error, within=within) for t, c in plan.cells.items()]


def sections(mechanism: CellKey, plan: CellKeyPlan) -> list[Section]:
    """Return the sections on the promise, the trade-off and the perturbation table."""
    found = [Section(title="What is promised", blocks=(mechanism.in_words, *promised(plan)))]
    if mechanism.trade is not None:
        rows = tuple((e, exact(mechanism.trade.delta(exact(e))).shown(6)) for e in _EPSILONS)
        own = "the cell keys alone, without the swap" if plan.before is not None else "these tables"
        grid = Grid(header=("epsilon", "delta"), rows=rows, numbers=("epsilon", "delta"))
        found.append(Section(title="Epsilon and delta", blocks=(f"Of {own}, exactly from the table.", grid)))
    table = mechanism.table
    shown = tuple(
        (row.count, f"{float(table.pstay(row.count)):.6f}", f"{float(table.bias(row.count)):.3g}",
         f"{float(table.variance(row.count)):.6f}", f"{min(row.values)} to {max(row.values)}")
        for row in table.rows[:_SHOWN]
    )  # fmt: skip
    header = ("count", "stays", "bias", "variance", "added")
    more = f"The last row serves all larger counts{'' if len(table.rows) <= _SHOWN else '; only the first are shown'}."
    found.append(
        Section(title="Perturbation table", blocks=(more, Grid(header=header, rows=shown, numbers=header[:-1])))
    )
    return found


def check_settings(mechanism: CellKey) -> None:
    """Refuse settings that do not go together."""
    for where, wrong, what, remedy in (
        ("tables", any(len({*t}) < len(t) or not t for t in mechanism.tables),
         "a table needs different variables", "name at least one, and each once"),
        ("ptable", mechanism.table.step != 1,
         "the table has fractions, and counts are whole", "use it for sums, as magnitude_ptable"),
        ("record_key", (mechanism.record_key is not None) != (mechanism.keys == "additive"),
         "a column of record keys goes with keys = 'additive', and with it alone", "give both or none"),
        ("key", mechanism.record_key is not None and mechanism.key is not None,
         "records have their keys in a column and in a file", "leave one out"),
        ("after", mechanism.inner is not None and (mechanism.key is not None or mechanism.record_key is not None),
         "after another mechanism come records whose keys are drawn for this release",
         "leave key, keys and record_key out"),
        ("keyed_by", mechanism.keyed_by == "definition" and mechanism.key is not None,
         "with a key that is kept, a cell would have the same noise next year, whoever is in it then, and the "
         "difference of the two would be exact", "leave key out, or write keyed_by = 'records'"),
        ("keyed_by", mechanism.keyed_by == "definition" and mechanism.keys == "additive",
         "additive keys are sums of records' keys", "write keyed_by = 'records'"),
    ):  # fmt: skip
        if wrong:
            raise bad_plan(what, where=where, remedy=remedy)


def check(mechanism: CellKey, data: Any) -> None:
    """Raise all problems of the columns; which values they can take is not known yet."""
    data = as_microdata(data)
    columns = [*data.variables, *data.person_variables]
    roles = dict.fromkeys(mechanism.declared_columns, ("table", columns))
    if mechanism.sums is not None:
        roles.setdefault(mechanism.sums.column, ("magnitude", columns))
    if mechanism.record_key is not None:
        roles[mechanism.record_key] = ("record_key", data.households.columns)
    where = data.household_source
    absent = [
        absent_variable(data, name, where=where, role=role)
        if there is columns
        else missing_column(name, there, where=where, role=role)
        for name, (role, there) in roles.items()
        if name not in there
    ]
    if absent:
        raise DataError(absent)
    of_persons = [name for name in mechanism.declared_columns if name in data.person_variables]
    if of_persons and mechanism.inner is None:  # a unit may have many records, and only a swap covers that
        raise bad_plan(
            f"{listed(of_persons)} is a variable of persons, and a {mechanism.unit} may change a count for each of "
            "them",
            where="tables",
            remedy="give the file of persons as [data] file with record = 'person'; or swap before, with after",
        )
    if mechanism.sums is not None:
        summed(column_of(data, mechanism.sums.column))
    if mechanism.inner is not None:
        mechanism.inner.check(data)
    elif mechanism.record_key is not None:
        whole_keys(data.households[mechanism.record_key], below=mechanism.table.keys)
    elif mechanism.key is not None:
        identified(data.households, data)


def check_released(mechanism: CellKey, releases: Mapping[str, Collection[str]], persons: Collection[str]) -> None:
    """Refuse a table of what the mechanism before does not release: it could not be counted after the draw."""
    homes, people = releases["households"], {*releases.get("persons", ())}
    for table in mechanism.tables:
        there = {*homes, *people} if {*table} & {*persons} else {*homes}
        wanted = [*table, *(() if mechanism.sums is None else (mechanism.sums.column,))]
        if absent := [name for name in wanted if name not in there]:
            what = f"{listed(absent)} of the table {' x '.join(table)} is not among the records that are released"
            raise bad_plan(what, where="after", remedy="let the mechanism release it, or leave it out of the table")


def doubts(mechanism: CellKey, data: Microdata, plan: CellKeyPlan) -> Iterator[Doubt]:
    """Yield what speaks against a release; after another mechanism, what speaks against that."""
    if plan.before is not None:
        yield from plan.before.doubts
        return
    yield from mechanism.usual_doubts(data, coded=mechanism.declared_columns)
    specification = plan.specification
    delta = specification.output_premetric.delta
    if specification.budget.realised.is_infinite:
        why = mechanism.no_promise or "Delta is 1."
        what = f"nothing is promised: {why[:1].lower()}{why[1:-1]}"
        yield nothing_promised(what, remedy=_instead(mechanism))
    elif delta > _LARGE:
        yield Doubt(
            kind="large-delta",
            what=f"delta is {exact(delta).shown()}, which is not small: so much is added to the bound on every "
            "probability",
            remedy="choose noise that is not bounded, or fewer tables; zeros = 'fixed' protects less and says so",
        )
    if mechanism.key is None and mechanism.record_key is None:
        yield Doubt(
            kind="keys-of-this-release",
            what="keys are drawn for this release alone: the same cell gets other noise in the next one",
            remedy="name a key file with key, made by `stirred ptable key`",
            refuses=False,
        )


def _instead(mechanism: CellKey) -> str:
    """Say what would promise something."""
    if mechanism.sums is not None:
        return "publish counts alone: leave magnitude out"
    if mechanism.keys == "additive" and len(mechanism.tables) > 1:
        return (
            "let keys be drawn: leave keys and record_key out. With additive keys one table can be published in all; "
            "another release by the same keys is not independent of it"
        )
    return "publish fewer tables; zeros = 'fixed' protects less and says so"


def audit_bundle(mechanism: CellKey, bundle: BundleFiles, found: Findings) -> None:
    """Check the cells of the tables, and the promise against the settings."""
    mechanism.audit_unstated(bundle, found)
    if mechanism.inner is not None:
        found.unchecked.append("the promise of the swap: its records are not published")
        return
    computed = "{} and delta: computed anew from the perturbation table"
    audit_promise(mechanism.specification, bundle, found, computed=computed, also=("theorem", "assumptions"))


def audit_unstated(kind: type[CellKey], bundle: BundleFiles, found: Findings) -> None:
    """Check that only tables are published, with every cell once and no count below 0."""
    audit_records(bundle, found)
    audit_cells(bundle, found, whole=False)
    found.unchecked.append("whether the noise was looked up as stated: counts and keys are confidential")


# ---- small files ------------------------------------------------------------------------------------------------

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


def law(mechanism: CellKey, dataset: Any) -> Law:
    """Return the exact law of the tables of a small file, records given by the values of ``names``, in order.

    After another mechanism the file is one of that, with a held and a disturbed value for each record.
    """
    if mechanism.inner is None:
        return _small(mechanism, {name: place for place, name in enumerate(mechanism.declared_columns)}).law([*dataset])
    small = _small(mechanism, {name: int(name in mechanism.inner.areas) for name in mechanism.declared_columns})
    before: Any = mechanism.inner.law(dataset)
    outcomes: dict[Hashable, Fraction] = {}
    for middle, chance in before.probabilities.items():
        for outcome, mass in small.law(middle).probabilities.items():
            outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + chance * mass
    return Law(outcomes)


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
    most = 3 if len(mechanism.declared_columns) == 1 else 2
    records = [*product(LETTERS, repeat=len(mechanism.declared_columns))]
    files = [file for n in range(most + 1) for file in combinations_with_replacement(records, n)]
    if mechanism.zeros != "fixed":
        return [[file for file in files if len(file) < most], [*files]]
    places = {name: place for place, name in enumerate(mechanism.declared_columns)}
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
