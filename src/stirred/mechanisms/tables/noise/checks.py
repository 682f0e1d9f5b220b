"""What is wrong with settings, files, written tables and bundles of noisy tables, and what speaks against a release."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from stirred.data import exposed
from stirred.data.bundle import BundleFiles, Findings
from stirred.data.columns import select
from stirred.data.exposed import exposed_doubt
from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata, absent_variable, null_problem
from stirred.data.problems import DataError, bad_plan, listed, taken_names
from stirred.data.record_doubts import PublishedTable, clamped_doubts, identifying_columns, similar_values
from stirred.data.steps import NUMBER
from stirred.data.whole import decimal_commas
from stirred.mechanisms.protocol import Check, Release, Written, failed, plan_exposure, settings_doubts
from stirred.mechanisms.tables.engine import (
    NO_TABLES,
    STAYS_INSIDE,
    UNSTATED,
    TableMechanism,
    audit_promise,
    audit_records,
    column_of,
    counted_persons,
    stated_mechanism,
    table_fault,
)
from stirred.mechanisms.tables.noise.measures import Measure, Sum, keeping, people_of, table_key
from stirred.mechanisms.tables.noise.pages import COLUMNS, CONFIDENTIAL, EARLIER, NoisePlan, published
from stirred.spec.domain import after_imputation
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact, exact, exp
from stirred.spec.law import Law
from stirred.spec.problems import Problem, StirredError
from stirred.spec.problems import wrong as wrong_setting
from stirred.spec.shift_law import Noise, ShiftLaw
from stirred.spec.specification import Specification
from stirred.spec.spelling import crossed
from stirred.spec.staged_law import OutputLaw

if TYPE_CHECKING:
    from stirred.mechanisms.tables.noise.mechanism import NoisyTables

_LARGEST_SUM: Final = 1 << 62
_ROUND: Final = 'round it first: step = "round", to = 1 under [[prepare]]'
_NO_SUM: Final = 'add up another column, or give each text a number by a step "recode" under [[prepare]]'
_SWAMPED: Final = 3  # deviations of the noise: smaller cells cannot be distinguished from empty ones


def settings_problems(mechanism: NoisyTables) -> Iterator[Problem]:
    """Yield everything that is wrong with the settings themselves."""
    mechanism.sure  # noqa: B018 (a wrong confidence is refused with the plan)
    mine, other = ("rho", "epsilon") if mechanism.gaussian else ("epsilon", "rho")
    if getattr(mechanism, other) is not None:
        yield Problem(what=f"{mechanism.noise} noise has no {other}", where=other, remedy=f"write {mine} instead")
    elif mechanism.total is not None and mechanism.total <= 0:
        yield Problem(what=f"{mechanism.total} is not above 0", where=mine, remedy="write a loss above 0")
    if mechanism.tables is not None and not [*mechanism.tables, *mechanism.sums]:
        yield Problem(what="is needed", where="tables", remedy=NO_TABLES)
    keys = [table_key(each.title) for each in mechanism.wanted]
    for place, (title, variables, added_up) in enumerate(mechanism.wanted):
        where = f"table '{title}'"
        if len({*variables}) < len(variables) or (added_up is None and not variables):
            yield Problem(what="a table needs different variables", where=where, remedy="name each once")
        elif keys[place] in keys[:place]:
            what = "the same table is asked for twice, and would be paid for twice"
            yield Problem(what=what, where=where, remedy="leave one of them out")
        elif used := [name for name in variables if name in (*COLUMNS, *CONFIDENTIAL)]:
            what = taken_names(used, by="tables with noise")
            yield Problem(what=what, where=where, remedy="rename the column in the file")
        elif added_up is not None and added_up.low >= added_up.high:
            what = f"the bounds {added_up.low} and {added_up.high} leave nothing to add up"
            yield Problem(what=what, where=where, remedy="write low below high")
    if mechanism.inner is not None:
        yield from _swap_problems(mechanism)
    if mechanism.consistent and len(mechanism.wanted) < 2 and not mechanism.keep:
        what = "there is one table, and nothing that it must agree with"
        yield Problem(what=what, where="consistent", remedy="leave it out, or publish more tables")
    if mechanism.rounded == 1 and not mechanism.consistent:
        what = "counts with noise are whole numbers already"
        yield Problem(what=what, where="rounded", remedy="leave it out, or round to multiples such as 5")


def _swap_problems(mechanism: NoisyTables) -> Iterator[Problem]:
    """Yield what is not covered by the theorem on noise after a swap (R15)."""
    assert mechanism.inner is not None
    swapped = mechanism.swapped
    if swapped is None:
        what = f"the sizes of strata alone do not decide what {mechanism.inner.name} does, and nothing is proven of it"
        remedy = "name a permutation swap with rates that match variables decide, a Mallows swap or a shuffle swap"
        yield Problem(what=what, where="after", remedy=remedy)
        return
    if mechanism.gaussian:
        remedy = 'write noise = "laplace" and epsilon'
        yield Problem(what="after a swap a promise is proven for laplace noise alone", where="noise", remedy=remedy)
    for where, given in (("keep", mechanism.keep), ("persons", mechanism.persons)):
        if given:
            what = "after a swap nothing is proven of it"
            yield Problem(what=what, where=where, remedy="leave it out, or leave the swap out")
    for each in mechanism.wanted:
        if {*each.columns} <= {*swapped.within}:
            what = "its counts are published exactly, being sizes of strata: noise would be spent for nothing"
            remedy = "leave the table out, or cross it with a swapped or a held variable"
            yield Problem(what=what, where=f"table '{each.title}'", remedy=remedy)


def _check_before(mechanism: NoisyTables, data: Microdata) -> None:
    """Refuse persons, and tables of columns that the swap before does not have."""
    assert mechanism.inner is not None
    if data.persons is not None:
        what = "persons are given, and a household that is swapped may change as many cells as it has persons"
        remedy = "leave the file of persons out, or the swap (after)"
        raise bad_plan(f"{what}: no noise of fixed size covers that", where="persons", remedy=remedy)
    mechanism.inner.check(data)
    hold = getattr(mechanism.inner, "hold", None)
    assert mechanism.swapped is not None
    known = (*mechanism.swapped.within, *mechanism.swapped.of, *(hold or ()))
    for each in mechanism.wanted:
        if hold is not None and (other := [name for name in each.columns if name not in known]):
            what = f"no swapped or held column {listed(other)}"
            raise bad_plan(what, where=f"table '{each.title}'", remedy=f"there are {listed(known)}")


def check(mechanism: NoisyTables, data: Any) -> None:
    """Raise all problems of a file's columns with these settings; nothing is computed."""
    data = as_microdata(data)
    after_imputation(data.stage, data.post_imputation)
    if data.persons is not None and mechanism.unit != "household":
        what = f"the unit is a {mechanism.unit}, and households are given whose number would be published"
        remedy = 'give one flat file, [data] file with record = "person", or let the unit be the household'
        raise bad_plan(what, where="unit", remedy=remedy)
    columns = [*data.variables, *data.person_variables]
    problems = []
    for each in mechanism.wanted:
        names, title, added_up = each.columns, each.title, each.added_up
        where = f"{data.household_source} (table '{title}')"
        problems += [absent_variable(data, n, where=where, role="tables") for n in names if n not in columns]
        if (of_persons := [n for n in names if n in data.person_variables]) and mechanism.persons is None:
            what = f"it counts persons ({listed(of_persons)}), and a household may have any number of them"
            remedy = "declare how many of a household count at most, such as persons = 8; the others are left out"
            problems.append(Problem(what=f"{what}: no noise covers that", where=f"table '{title}'", remedy=remedy))
        if added_up is not None and added_up.column in columns:
            column = column_of(data, added_up.column)
            text = column.dtype == pl.String  # as of files of text, whatever the codebook declares
            if text and column.cast(pl.Int64, strict=False).null_count() > column.null_count():
                what = "it has other texts, and only whole numbers are added up"
                numbers = bool(column.drop_nulls().str.contains(NUMBER).all())
                remedy = f"{_ROUND}; or correct them in the file" if numbers else _NO_SUM
                remedy = decimal_commas(column) or remedy
                problems.append(Problem(what=what, where=f'{data.household_source} "{column.name}"', remedy=remedy))
            elif not (text or column.dtype.is_integer()):
                what, remedy = f"it is {column.dtype}, and only whole numbers are added up", _ROUND
                problems.append(Problem(what=what, where=f'{data.household_source} "{column.name}"', remedy=remedy))
            elif wrong := null_problem(column, source=data.household_source, role="sum"):
                problems.append(replace(wrong, remedy="fill them in, such as with 0, or remove the records"))
    if problems:
        raise DataError(problems)
    keeping(mechanism.keep, data.variables)
    if mechanism.inner is not None:
        _check_before(mechanism, data)


def check_draw(measure: Measure, *, values: int) -> None:
    """Refuse noise inside margins that takes too many draws, and sums that may not fit into 64 bits."""
    from stirred.randomness.lattice import check_tables

    if measure.kept:
        check_tables(measure.cell.noise, shape=measure.shape, tables=measure.cells // math.prod(measure.shape))
    if (added_up := measure.added_up) is not None:
        largest = max(abs(added_up.low), abs(added_up.high))
        if values * largest >= _LARGEST_SUM:
            what = f"the sum of {values:,} values of up to {largest:,} may not fit into 64 bits"
            raise bad_plan(what, where="sums", remedy="declare smaller bounds, or add up in a coarser unit")


def doubts(mechanism: NoisyTables, data: Microdata, plan: NoisePlan) -> Iterator[Doubt]:
    """Yield doubts; no record is published, and of columns only the match variables of a swap before the noise."""
    yield from mechanism.usual_doubts(data, coded=plan.releases["households"])
    if mechanism.inner is not None:
        yield from _match_doubts(mechanism, data, plan, mechanism.inner)
    sums: dict[Hashable, list[Measure]] = {}  # together those of the same values, records and bounds
    for each in plan.measures:
        if each.added_up is not None:
            sums.setdefault(each.counts, []).append(each)
        average = data.households.height / each.cells
        if each.of_records and average < _SWAMPED * each.deviation:
            yield Doubt(
                kind="swamped",
                about=each.title.replace(" x ", "+"),
                what=f"{each.title} has {each.cells:,} cells for {data.households.height:,} records: {average:.3g} "
                f"in a cell on average, and its noise has a standard deviation of {each.deviation:.3g}",
                remedy="most cells cannot be distinguished from empty ones: use fewer or coarser variables, or more "
                "budget",
                refuses=False,
            )
    for measures in sums.values():
        added_up, people = measures[0].added_up, measures[0].of_persons
        assert added_up is not None
        names = [*dict.fromkeys([added_up.column, *(name for each in measures for name in each.variables)])]
        records = people_of(data, names, most=None) if people else select(data.households, names)
        tables = [
            PublishedTable(title=each.title, by=records.select(each.variables), noise=each.deviation)
            for each in measures
        ]
        values = records[added_up.column].cast(pl.Int64).to_numpy()
        yield from clamped_doubts(added_up.column, values, (added_up.low, added_up.high), published=tables)
    if plan.releases["persons"] and mechanism.persons is not None and data.hid is not None and data.persons is not None:
        many = data.persons[data.hid].value_counts()["count"]
        if cut := int((many > mechanism.persons).sum()):
            yield Doubt(
                kind="left-out-persons",
                about=str(mechanism.persons),
                what=f"{cut:,} households have more than {mechanism.persons} persons, and the others are not counted",
                public="some households have more persons than are counted",
                remedy="declare a larger number; the noise grows with it",
                refuses=False,
            )


def _match_doubts(mechanism: NoisyTables, data: Microdata, plan: NoisePlan, swap: Any) -> Iterator[Doubt]:
    """Yield doubts about settings and match variables of the swap before the noise: their counts are exact."""
    yield from settings_doubts(swap.settings_from)
    yield from identifying_columns(data, swap.match)
    for name in swap.match:
        yield from similar_values(name, data.households[name].unique())
    found = plan_exposure(plan)
    if found is not None and (doubt := exposed_doubt(found, most=exposed.MOST_EXPOSED, set_by="the default")):
        yield doubt


def verify(mechanism: NoisyTables, data: Microdata, plan: NoisePlan, release: Release, written: Written) -> list[Check]:
    """Compare the written tables; what a swap before made must be a swap of the input."""
    if (swapped := mechanism.swapped) is not None:  # no more than it exchanges: match x swap, and all that is held
        file = release.internal["counted"]
        held = [name for name in file.households.columns if name not in swapped.of]
        for names in ([*swapped.within, *swapped.of], held):
            before, after = (each.households.group_by(names).len("__records").sort(names) for each in (data, file))
            if not before.equals(after, null_equal=True):
                raise failed(f"the table {' x '.join(names)} of the swapped file differs from the input")
    return TableMechanism.verify(mechanism, data, plan, release, written)


def verify_kept(mechanism: NoisyTables, data: Microdata, plan: NoisePlan, written: Written) -> list[Check]:
    """Compare what is published exactly with the input, counted again."""
    if not mechanism.exact_margins:
        return []
    kept, wrong = mechanism.kept(data, plan), "invariants, as written, are not those of the input"
    for _ in written.parts("invariants", [kept], kind="side", wrong=wrong):
        pass
    return [Check(what="what is kept, counted again", cells=kept.height)]


def audit_published(kind: type[NoisyTables], bundle: BundleFiles, found: Findings) -> None:
    """Rebuild the mechanism from specification.json and the tables themselves, and audit as if it were stated."""
    for _, place, frame, by in bundle.tables():
        if not by and "sum" not in frame.columns:
            found.bad("it has no variables", where=place)
    tables = [by for _, _, frame, by in bundle.tables() if "sum" not in frame.columns]
    if mechanism := stated_mechanism(kind, bundle, tables):
        audit(mechanism, bundle, found)
    else:
        found.unchecked.append(UNSTATED)


def audit(mechanism: NoisyTables, bundle: BundleFiles, found: Findings) -> None:
    """Compute the promise of a bundle from its settings, and from the noisy numbers all that follows from them.

    That the numbers are those of the file, and that the noise follows its law, nothing shows that may be published.
    """
    audit_records(bundle, found)
    tables = {_key(by, place if "sum" in frame.columns else ""): (place, frame, by)
              for _, place, frame, by in bundle.tables()}  # fmt: skip
    sizes = {name: frame[name].n_unique() for _, frame, by in tables.values() for name in by}
    columns = bundle.specification.domain.columns
    of_persons = [name.removeprefix("person ") for name in columns if name.startswith("person ")]
    try:
        measures = mechanism.measures(of_persons=of_persons, sizes=sizes)
    except StirredError as error:
        found.problems += error.problems
        return
    audit_promise(partial(mechanism.specification, measures), bundle, found)
    keys = {each.title: _key(each.variables, f"public/{each.file}.csv" if each.added_up else "") for each in measures}
    if {*tables} != {*keys.values()}:
        found.bad("the tables are not those of the plan", where="public/tables")
        return
    own = {title: tables[key] for title, key in keys.items()}
    _audit_numbers(mechanism, measures, own, found, total=_number_of_records(bundle))
    _audit_kept(bundle, mechanism, measures, {title: frame for title, (_, frame, _) in own.items()}, found)
    words = "whether the numbers are those of the file and the noise is of the stated law"
    found.unchecked.append(f"{words}: {STAYS_INSIDE}")


def _key(variables: Iterable[str], place: str) -> tuple[str, frozenset[str]]:
    return place, frozenset(variables)


def _audit_numbers(
    mechanism: NoisyTables,
    measures: tuple[Measure, ...],
    tables: Mapping[str, tuple[str, pl.DataFrame, list[str]]],
    found: Findings,
    *,
    total: int | None,
) -> None:
    """Check that every table has each combination of its values once, and that its columns follow from its numbers."""
    noisy = {}
    for each in measures:
        place, frame, by = tables[each.title]
        name = "count" if each.added_up is None else "sum"
        if fault := table_fault(frame, by, number=name, cells=each.cells):
            found.bad(fault, where=place)
        else:
            noisy[each.title] = frame[name].cast(pl.Int64).to_numpy()
    if len(noisy) < len(measures):
        return
    cells = {each.title: tables[each.title][1].select(each.variables) for each in measures}
    for title, again in published(mechanism, measures, cells, noisy, total=total).items():
        place, frame, by = tables[title]
        columns = [name for name in again.columns if name not in by]
        earlier = {*EARLIER} & {*frame.columns} if "consistent" in columns else set()
        if earlier:
            found.unchecked.append(f"{', '.join(sorted(earlier))} of {title}: an earlier version made them, too narrow")
        if {*frame.columns} - {*by} - earlier != {*columns}:
            found.bad(f"its columns are not {', '.join(columns)}", where=place)
        elif wrong := [name for name in columns if not _close(frame[name], again[name])]:
            found.bad(f"{', '.join(wrong)} do not follow from its numbers", where=place)
        else:
            found.checks.append(f"table {title}: {frame.height:,} cells, each once; all else follows from its numbers")


def _number_of_records(bundle: BundleFiles) -> int | None:
    """Return the number of records, where it is published as such."""
    exact = bundle.invariants if (bundle.public / "invariants.parquet").exists() else None
    if exact is None or not {"table", "count"} <= {*exact.columns}:
        return None
    numbers = exact.filter(pl.col("table") == "total")["count"].cast(pl.Int64, strict=False)
    return int(numbers[0]) if numbers.len() == 1 and numbers[0] is not None else None


def _close(said: pl.Series, again: pl.Series) -> bool:
    number = said.cast(pl.Float64, strict=False)
    return not number.null_count() and bool(np.allclose(number, again.cast(pl.Float64), rtol=1e-9, atol=2e-6))


def _audit_kept(
    bundle: BundleFiles,
    mechanism: NoisyTables,
    measures: Sequence[Measure],
    tables: Mapping[str, pl.DataFrame],
    found: Findings,
) -> None:
    """Compare what is published exactly with the settings, and with the tables whose noise keeps it."""
    if (exact := mechanism.exact_margins) and bundle.invariants is not None:
        columns = {"table", "count", *(name for by in exact.values() for name in by)}
        if {*bundle.invariants.columns} != columns or {*bundle.invariants["table"]} != {*exact}:
            found.bad("it is not what the specification fixes", where="public/invariants.parquet")
            return
    inside = [each for each in measures if each.kept]
    if not inside or bundle.invariants is None:
        return
    for (title,), margin in bundle.invariants.group_by("table"):
        for each in inside:
            by = [name for name in each.variables if name in crossed(str(title))]
            if not _sums(tables[each.title], by).equals(_sums(margin, by)):
                place = "public/invariants.parquet"
                found.bad(f"{each.title} does not add up to the {title} that is published exactly", where=place)
                return
    found.checks.append("tables add up to what is published exactly")


def _sums(table: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    count = pl.col("count").cast(pl.Int64, strict=False).sum()
    added = table.group_by(pl.col(by).cast(pl.String)).agg(count) if by else table.select(count)
    return added.sort(by) if by else added


# ---- small files ------------------------------------------------------------------------------------------------

_HOLD, _SWAP = "ab", "xy"  # of the files that are audited where a swap comes before
_MOST: Final = 60  # files of one size: all pairs of them are compared


def _units(mechanism: NoisyTables) -> tuple[list[str], list[str], list[Any]]:
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


def law(mechanism: NoisyTables, dataset: Any) -> OutputLaw:
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


def audit_universes(mechanism: NoisyTables) -> list[list[Hashable]]:
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


def audit_specification(mechanism: NoisyTables, universe: Sequence[Hashable]) -> Specification:
    """Return the promise for a small file."""
    variables, added, _ = _units(mechanism)
    columns = [*variables, *added]
    return mechanism.specification(
        mechanism.measures(of_persons=columns if mechanism.persons is not None else ()), name="small", columns=columns
    )


def _added(people: Sequence[Any], added_up: Sum, place: int) -> int:
    return sum(min(max(person[place], added_up.low), added_up.high) for person in people)


def _swapped_law(mechanism: NoisyTables, dataset: Any) -> Law:
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
