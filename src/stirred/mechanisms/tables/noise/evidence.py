"""Evidence for noisy tables: the files as written against the input, and a bundle against its own settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.frames import read_frame
from stirred.data.microdata import Microdata
from stirred.data.spelling import crossed
from stirred.mechanisms.protocol import Check, Release, Written, failed
from stirred.mechanisms.tables.engine import (
    CONFIDENTIAL,
    ExpectedTable,
    audit_promise,
    audit_records,
    table_fault,
)
from stirred.mechanisms.tables.noise.budget import Measure
from stirred.mechanisms.tables.noise.plan import NoisePlan
from stirred.mechanisms.tables.noise.published import EARLIER, file_of, published
from stirred.spec.document import mechanism_in
from stirred.spec.problems import StirredError

if TYPE_CHECKING:
    from stirred.mechanisms.tables.noise.mechanism import NoisyTables


def expected(
    mechanism: NoisyTables, data: Microdata, plan: NoisePlan, release: Release, written: Written
) -> Iterator[ExpectedTable]:
    """Yield every table as its numbers, counted again, and the noise that was drawn make it."""
    file = release.internal.get("swapped", data)
    _check_swapped(mechanism, data, file)
    counted = mechanism.counted(file, plan)
    kept = {frame["table"][0]: frame for frame in map(read_frame, sorted((written.internal / "noise").iterdir()))}
    for title, true in counted.items():
        if kept[title]["true"].to_list() != true.tolist():
            raise failed(f"the table {title}, counted again, is not what it was made of")
    noisy = {title: true + kept[title]["noise"].to_numpy() for title, true in counted.items()}
    frames = published(mechanism, plan.measures, plan.cells, noisy, total=data.households.height)
    names = {table.title: f"tables/{table.name}" for table in written.tables}
    for each in plan.measures:
        _check_kept(each, kept[each.title]["noise"].to_numpy())
        yield ExpectedTable(
            file=file_of(each) if each.added_up is not None else names[each.title],
            frame=frames[each.title],
            wrong=f"the table {each.title}, as written, is not the true numbers with the noise drawn",
            what=f"{each.title}: every declared cell, once",
            result="the true numbers with the noise drawn; the rest follows from them",
        )


def _check_swapped(mechanism: NoisyTables, data: Microdata, file: Microdata) -> None:
    """Raise if a swap before the tables changed more than it exchanges: match x swap, and everything that is held."""
    swapped = mechanism.swapped
    if swapped is None:
        return
    held = [name for name in file.households.columns if name not in swapped.of]
    for names in ([*swapped.within, *swapped.of], held):
        before, after = (each.households.group_by(names).len().sort(names) for each in (data, file))
        if not before.equals(after, null_equal=True):
            raise failed(f"the table {' x '.join(names)} of the swapped file differs from the input")


def _check_kept(measure: Measure, noise: npt.NDArray[np.int64]) -> None:
    """Raise if noise changes what it must keep."""
    for margin in measure.kept:
        others = tuple(axis for axis, name in enumerate(measure.variables) if name not in margin)
        if noise.reshape(measure.sizes).sum(axis=others).any():
            raise failed(f"the noise of {measure.title} changes what is kept exactly")


def verify_kept(mechanism: NoisyTables, data: Microdata, plan: NoisePlan, written: Written) -> list[Check]:
    """Compare what is published exactly with the input, counted again."""
    if not [*mechanism.exact_titles()]:
        return []
    kept = mechanism.kept(data, plan)
    for _ in written.parts(
        "invariants", [kept], kind="side", wrong="invariants, as written, are not those of the input"
    ):
        pass
    return [Check(what="what is kept, counted again", cells=kept.height)]


def audit_published(kind: type[NoisyTables], bundle: BundleFiles, found: Findings) -> None:
    """Rebuild the mechanism from specification.json and the tables themselves, and audit as if it were stated."""
    for _, place, frame, by in bundle.tables():
        if not by and "sum" not in frame.columns:
            found.bad("it has no variables", where=place)
    try:
        stated = mechanism_in((bundle.public / "specification.json").read_text(encoding="utf-8"))
        tables = [by for _, _, frame, by in bundle.tables() if "sum" not in frame.columns]
        settings = kind.settings_model.model_validate(stated.settings if stated else {})
        mechanism = kind.of_settings(settings, tables=tables)
    except (OSError, ValueError, StirredError):
        found.unchecked.append("the budget, computed anew: the public files do not state all settings")
        return
    audit(mechanism, bundle, found)


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
    said = bundle.specification
    again = mechanism.specification(
        measures,
        name=said.domain.name,
        stage=said.domain.stage,
        columns=said.domain.columns,
        post_imputation=said.input_premetric.post_imputation,
    )
    audit_promise(bundle, again, found)
    keys = {
        each.title: _key(each.variables, f"public/{file_of(each)}.csv" if each.added_up else "") for each in measures
    }
    if {*tables} != {*keys.values()}:
        found.bad("the tables are not those of the plan", where="public/tables")
        return
    own = {title: tables[key] for title, key in keys.items()}
    _audit_numbers(mechanism, measures, own, found, total=_number_of_records(bundle))
    _audit_kept(bundle, mechanism, measures, {title: frame for title, (_, frame, _) in own.items()}, found)
    words = "whether the numbers are those of the file and the noise is of the stated law"
    found.unchecked.append(f"{words}: {CONFIDENTIAL}")


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
    if [*mechanism.exact_titles()] and bundle.invariants is not None:
        columns = {"table", "count", *(name for _, by in mechanism.exact_titles() for name in by)}
        titles = {title for title, _ in mechanism.exact_titles()}
        if {*bundle.invariants.columns} != columns or {*bundle.invariants["table"]} != titles:
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
