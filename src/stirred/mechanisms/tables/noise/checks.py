"""What is wrong with settings, files, written tables and bundles of noisy tables, and what speaks against a release."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data import uniqueness
from stirred.data.bundle import BundleFiles, Findings
from stirred.data.columns import select
from stirred.data.microdata import Microdata, absent_variable, as_microdata, null_problem
from stirred.data.problems import DataError, bad_plan, listed, taken_names
from stirred.data.record_doubts import PublishedTable, clamped_doubts, identifying_columns, similar_values
from stirred.data.steps import NUMBER
from stirred.data.uniqueness import exposed_doubt
from stirred.data.whole import decimal_commas
from stirred.mechanisms.protocol import Check, Release, Written, failed, plan_exposure, settings_doubts
from stirred.mechanisms.tables.cells import column_of
from stirred.mechanisms.tables.engine import (
    NO_TABLES,
    NOISE,
    STAYS_INSIDE,
    UNSTATED,
    TableMechanism,
    audit_promise,
    audit_records,
    kept_fault,
    kept_inside,
    stated_mechanism,
    table_fault,
    undeclared_fault,
)
from stirred.mechanisms.tables.noise.measures import Measure, keeping, people_of, table_key
from stirred.mechanisms.tables.noise.plan import COLUMNS, CONFIDENTIAL, NoisePlan, published
from stirred.mechanisms.tables.noise.promise import NoisePromise
from stirred.spec.domain import after_imputation
from stirred.spec.doubts import Doubt
from stirred.spec.problems import Problem, StirredError
from stirred.spec.spelling import crossed

_LARGEST_SUM: Final = 1 << 62
_ROUND: Final = 'round it first: step = "round", to = 1 under [[prepare]]'
_NO_SUM: Final = 'add up another column, or give each text a number by a step "recode" under [[prepare]]'
_SWAMPED: Final = 3  # deviations of the noise: smaller cells cannot be distinguished from empty ones


def settings_problems(mechanism: NoisePromise) -> Iterator[Problem]:
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


def _swap_problems(mechanism: NoisePromise) -> Iterator[Problem]:
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


def _check_before(mechanism: NoisePromise, data: Microdata) -> None:
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


def check(mechanism: NoisePromise, data: Any) -> None:
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


def doubts(mechanism: NoisePromise, data: Microdata, plan: NoisePlan) -> Iterator[Doubt]:
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


def _match_doubts(mechanism: NoisePromise, data: Microdata, plan: NoisePlan, swap: Any) -> Iterator[Doubt]:
    """Yield doubts about settings and match variables of the swap before the noise: their counts are exact."""
    yield from settings_doubts(swap.settings_from)
    if all(rate.highest == 0 for rate in plan.before.strata.rates):  # what could be exchanged is protected
        yield Doubt(
            kind="idle-swap",
            what=f"at a rate of 0 {swap.title} moves no record, and the noise that it doubles is spent for nothing",
            remedy="choose a rate above 0, or leave the swap out (after)",
            refuses=False,
        )
    yield from identifying_columns(data, swap.match)
    for name in swap.match:
        yield from similar_values(name, data.households[name].unique())
    found = plan_exposure(plan)
    if found is not None and (doubt := exposed_doubt(found, most=uniqueness.MOST_EXPOSED, set_by="the default")):
        yield doubt


def verify(
    mechanism: NoisePromise, data: Microdata, plan: NoisePlan, release: Release, written: Written
) -> list[Check]:
    """Compare the written tables; what a swap before made must be a swap of the input."""
    if (swapped := mechanism.swapped) is not None:  # no more than it exchanges: match x swap, and all that is held
        file = release.internal["counted"]
        held = [name for name in file.households.columns if name not in swapped.of]
        for names in ([*swapped.within, *swapped.of], held):
            before, after = (each.households.group_by(names).len("__records").sort(names) for each in (data, file))
            if not before.equals(after, null_equal=True):
                raise failed(f"the table {' x '.join(names)} of the swapped file differs from the input")
    return TableMechanism.verify(mechanism, data, plan, release, written)


def verify_kept(mechanism: NoisePromise, data: Microdata, plan: NoisePlan, written: Written) -> list[Check]:
    """Compare what is published exactly with the input, counted again."""
    if not mechanism.exact_margins:
        return []
    kept, wrong = mechanism.kept(data, plan), "invariants, as written, are not those of the input"
    for _ in written.parts("invariants", [kept], kind="side", wrong=wrong):
        pass
    return [Check(what="what is kept, counted again", cells=kept.height)]


def audit_published(kind: type[NoisePromise], bundle: BundleFiles, found: Findings) -> None:
    """Rebuild the mechanism from specification.json and the tables themselves, and audit as if it were stated."""
    for _, place, frame, by in bundle.tables():
        if not by and "sum" not in frame.columns:
            found.bad("it has no variables", where=place)
    tables = [by for _, _, frame, by in bundle.tables() if "sum" not in frame.columns]
    if mechanism := stated_mechanism(kind, bundle, tables):
        audit(mechanism, bundle, found)
    else:
        found.unchecked.append(UNSTATED)


def audit(mechanism: NoisePromise, bundle: BundleFiles, found: Findings) -> None:
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
    kept = kept_inside(bundle)
    _audit_numbers(mechanism, measures, own, found, kept=kept, total=_number_of_records(bundle))
    _audit_kept(bundle, mechanism, measures, {title: frame for title, (_, frame, _) in own.items()}, kept, found)
    words = "whether the numbers are those of the file and the noise is of the stated law"
    found.unchecked.append(f"{words}: {STAYS_INSIDE}")


def _key(variables: Iterable[str], place: str) -> tuple[str, frozenset[str]]:
    return place, frozenset(variables)


def _audit_numbers(
    mechanism: NoisePromise,
    measures: tuple[Measure, ...],
    tables: Mapping[str, tuple[str, pl.DataFrame, list[str]]],
    found: Findings,
    *,
    kept: Mapping[str, pl.DataFrame],
    total: int | None,
) -> None:
    """Check that every table has each combination of its values once, and that its columns follow from its numbers.

    Its numbers are compared with those that were ``kept`` inside, where they are there.
    """
    noisy = {}
    for each in measures:
        place, frame, by = tables[each.title]
        name = "count" if each.added_up is None else "sum"
        fault = undeclared_fault(frame, by, mechanism.values)
        fault = fault or table_fault(frame, by, number=name, cells=each.cells)
        if not fault and each.title in kept:
            fault = kept_fault(frame, by, kept[each.title], added=each.columns, number=name)
        if fault:
            found.bad(fault, where=place)
        else:
            noisy[each.title] = frame[name].cast(pl.Int64).to_numpy()
    if len(noisy) < len(measures):
        return
    cells = {each.title: tables[each.title][1].select(each.variables) for each in measures}
    for title, again in published(mechanism, measures, cells, noisy, total=total).items():
        place, frame, by = tables[title]
        columns = [name for name in again.columns if name not in by]
        gone = {name for name, column in COLUMNS.items() if column.written == "earlier"}
        earlier = gone & {*frame.columns} if "consistent" in columns else set()
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
    mechanism: NoisePromise,
    measures: Sequence[Measure],
    tables: Mapping[str, pl.DataFrame],
    counted: Mapping[str, pl.DataFrame],
    found: Findings,
) -> None:
    """Compare what is published exactly with the settings, and with the tables whose noise keeps it.

    Inside the bundle it is compared with the number of records, and with the true numbers that were ``counted``.
    """
    exact, place = mechanism.exact_margins, "public/invariants.parquet"
    if not exact or bundle.invariants is None:
        return
    columns = {"table", "count", *(name for by in exact.values() for name in by)}
    if {*bundle.invariants.columns} != columns or {*bundle.invariants["table"]} != {*exact}:
        found.bad("it is not what the specification fixes", where=place)
        return
    records = None if bundle.manifest is None else bundle.manifest.records
    inside = [each for each in measures if each.kept]
    for (title,), margin in bundle.invariants.group_by("table"):
        words = f"the {title} that is published exactly"
        for each in inside:
            by = [name for name in each.variables if name in crossed(str(title))]
            if not _sums(tables[each.title], by).equals(_sums(margin, by)):
                found.bad(f"{each.title} does not add up to {words}", where=place)
                return
        if isinstance(records, int) and (total := _sums(margin, [])["count"].item()) != records:
            found.bad(f"{words} adds up to {total:,}, and the release is of {records:,} records", where=place)
            return
        if other := _counted_otherwise(margin, exact[str(title)], measures, counted):
            found.bad(f"{words} is not that of {other} in internal/{NOISE}", where=place)
            return
    if inside:
        found.checks.append("tables add up to what is published exactly")


def _counted_otherwise(
    margin: pl.DataFrame, by: Sequence[str], measures: Sequence[Measure], counted: Mapping[str, pl.DataFrame]
) -> str:
    """Return the first table of records whose true counts, kept inside, do not add up to a margin; empty if all do."""
    for each in measures:
        own, true = counted.get(each.title), each.columns[0]
        if each.of_records and own is not None and {*by, true} <= {*own.columns}:
            both = (_sums(margin, by), _sums(own.rename({true: "count"}), by))
            one, other = (frame.filter(pl.col("count") != 0) for frame in both)  # strata are those that occur
            if not one.equals(other, null_equal=True):
                return each.title
    return ""


def _sums(table: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    count = pl.col("count").cast(pl.Int64, strict=False).sum()
    added = table.group_by(pl.col(by).cast(pl.String)).agg(count) if by else table.select(count)
    return added.sort(by) if by else added
