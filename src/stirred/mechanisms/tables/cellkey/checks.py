"""What is wrong with settings, files, written tables and bundles of cell keys, and what speaks against a release."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.given import as_microdata
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Release, Written, failed
from stirred.mechanisms.tables.cellkey.perturbation import identified, summed, sums_of, whole_keys
from stirred.mechanisms.tables.engine import ExpectedTable, audit_promise, audit_records, table_fault
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import exact

if TYPE_CHECKING:
    from stirred.mechanisms.tables.cellkey.mechanism import CellKey
    from stirred.mechanisms.tables.cellkey.pages import CellKeyPlan

_LARGE: Final = Fraction(1, 1000)


def check_settings(mechanism: CellKey) -> None:
    """Refuse settings that do not go together."""
    for where, wrong, what, remedy in (
        ("tables", not mechanism.tables or any(len({*t}) < len(t) or not t for t in mechanism.tables),
         "a table needs different variables", "name at least one table, and each variable once"),
        ("ptable", mechanism.table.step != 1,
         "the table has fractions, and counts are whole", "use it for sums, as magnitude_ptable"),
        ("record_key", (mechanism.record_key is not None) != (mechanism.keys == "additive"),
         "a column of record keys goes with keys = 'additive', and with it alone", "give both or none"),
        ("key", mechanism.record_key is not None and mechanism.key is not None,
         "records have their keys in a column and in a file", "leave one out"),
        ("after", mechanism.inner is not None
         and (not mechanism.inner.counts_tables or mechanism.key is not None or mechanism.record_key is not None),
         "before cell keys comes a mechanism that releases records, whose keys are drawn for this release",
         "name such a mechanism, and leave key, keys and record_key out"),
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
    microdata = as_microdata(data)
    person_columns(mechanism, microdata)
    for name in mechanism.names:
        column(microdata, name)
    if mechanism.sums is not None:
        summed(column(microdata, mechanism.sums.column, where="magnitude"))
    if mechanism.inner is not None:
        mechanism.inner.check(microdata)
    elif mechanism.record_key is not None:
        whole_keys(column(microdata, mechanism.record_key, where="record_key"), below=mechanism.table.keys)
    elif mechanism.key is not None:
        identified(microdata.households, microdata)


def person_columns(mechanism: CellKey, data: Microdata) -> tuple[str, ...]:
    """Return the variables of persons; a unit may then have many records, and only a swap covers that."""
    own = tuple(name for name in mechanism.names if name in data.person_variables)
    if own and mechanism.inner is None:
        raise bad_plan(
            f"{listed(own)} is a variable of persons, and a {mechanism.unit} may change a count for each of them",
            where="tables",
            remedy="give the file of persons as [data] file with record = 'person'; or swap before, with after",
        )
    return own


def check_released(mechanism: CellKey, releases: Mapping[str, Collection[str]], persons: Collection[str]) -> None:
    """Refuse a table of what the mechanism before does not release: it could not be counted after the draw."""
    homes, people = releases["households"], {*releases.get("persons", ())}
    for table in mechanism.tables:
        there = {*homes, *people} if {*table} & {*persons} else {*homes}
        wanted = [*table, *(() if mechanism.sums is None else (mechanism.sums.column,))]
        if absent := [name for name in wanted if name not in there]:
            what = f"{listed(absent)} of the table {' x '.join(table)} is not among the records that are released"
            raise bad_plan(what, where="after", remedy="let the mechanism release it, or leave it out of the table")


def column(data: Microdata, name: str, *, where: str = "tables") -> pl.Series:
    """Return a column of households or persons; refuse one that is not there, or is not to be used."""
    if name in (data.households.columns if where == "record_key" else data.variables):
        return data.households[name]
    if data.persons is not None and name in data.person_variables:
        return data.persons[name]
    there = [*data.variables, *data.person_variables]
    raise bad_plan(f"there is no column '{name}'", where=where, remedy=f"there are {listed(there)}")


def doubts(mechanism: CellKey, data: Microdata, plan: CellKeyPlan) -> Iterator[Doubt]:
    """Yield what speaks against a release; after another mechanism, what speaks against that."""
    if plan.inner is not None:
        yield from plan.inner.doubts
        return
    yield from mechanism.usual_doubts(data, coded=mechanism.names)
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


def expected(
    mechanism: CellKey, data: Microdata, plan: Any, release: Release, written: Written
) -> Iterator[ExpectedTable]:
    """Yield the tables as the counts and the noise that was looked up make them, cell by cell."""
    result = "the counts with what was looked up"
    for table in written.tables:
        cells = release.internal["drawn"][table.title]
        if cells.filter((pl.col("pre_sd_count") == 0) & (pl.col("pvalue") != 0)).height:
            raise failed(f"an empty cell of {table.title} was perturbed")
        count = pl.col("pre_sd_count") + pl.col("pvalue")
        frame = cells.select(*table.variables, count=pl.when(count >= mechanism.threshold).then(count))
        wrong = f"the table {table.title}, as written, is not {result}"
        yield ExpectedTable(f"tables/{table.name}", frame, wrong, f"table {table.title}", result)
        if mechanism.sums is not None:
            name, wrong = sums_of(table.title), f"the sums of {table.title}, as written, are not those drawn"
            yield ExpectedTable(name, release.internal["sums"][name], wrong)


def audit_bundle(mechanism: CellKey, bundle: BundleFiles, found: Findings) -> None:
    """Check the cells of the tables, and the promise against the settings."""
    mechanism.audit_unstated(bundle, found)
    if mechanism.inner is not None:
        found.unchecked.append("the promise of the swap: its records are not published")
        return
    said = bundle.specification
    again = mechanism.specification(
        name=said.domain.name, stage=said.domain.stage, post_imputation=said.input_premetric.post_imputation
    )
    computed = "{} and delta: computed anew from the perturbation table"
    audit_promise(bundle, again, found, computed=computed, also=("theorem", "assumptions"))


def audit_unstated(kind: type[CellKey], bundle: BundleFiles, found: Findings) -> None:
    """Check that only tables are published, with every cell once and no count below 0."""
    audit_records(bundle, found)
    for name, place, table, variables in bundle.tables():
        column = "sum" if "sum" in table.columns else "count"
        if not variables:
            found.bad("it has no variables", where=place)
        elif fault := table_fault(table, variables, number=column, whole=False):
            found.bad(fault, where=place)
        elif column == "count" and (table[column].cast(pl.Float64, strict=False) < 0).any():
            found.bad("it has counts below 0", where=place)
        else:
            found.checks.append(f"table {name}: {table.height:,} cells, every combination of its values once")
    found.unchecked.append("whether the noise was looked up as stated: counts and keys are confidential")
