"""`stirred risk`: how exposed people are, by what is published unchanged or by keys that an attacker may know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import BaseModel

from stirred.cli.options import Columns, Names, Place, Text, argument, command, option
from stirred.cli.output import uniqueness_out
from stirred.cli.plan_options import NOWHERE
from stirred.data.frames import read_given
from stirred.data.microdata import Microdata, missing_column
from stirred.data.place import file_at
from stirred.data.problems import DataError, bad_plan, number
from stirred.data.uniqueness import Diversity, ExactTable, Uniqueness, diversity, record_risks, share_in_words
from stirred.mechanisms.groups import Outcome
from stirred.release.plan_file import read_plan
from stirred.release.prepared import Prepared, prepare
from stirred.risk.bounds import CellRanges, Revealed, bounds, joint_system, solutions
from stirred.risk.column_guesses import ColumnGuess, column_guesses
from stirred.risk.combinations import MOST_SETS, MinimalUniques, minimal_uniques, number_of_sets
from stirred.risk.subject import (
    Subject,
    checked_keys,
    default_keys,
    from_bundle,
    is_bundle,
    margins_of,
    records_and_keys,
    revealed_by_tables,
    unique_records,
)
from stirred.spec.problems import Problem

# So many open ranges, added up, and fewer: then tables are counted one by one.
_FEW: Final = 60
_RECORDS: Final = "--records"


class RiskOptions(BaseModel):
    """`stirred risk`."""

    file: Path = argument("FILE|BUNDLE|PLAN.toml", "A file of records, a release, or a plan.")
    keys: Columns = option(
        "What an attacker knows of a record; or separate by commas (default: all that is published unchanged).",
        [], form="COLUMN",
    )  # fmt: skip
    sensitive: Columns = option("A value an attacker wants to learn: l-diversity, t-closeness.", [], form="COLUMN")
    weight: Text = option("The sampling weights, where the file is a sample.", form="COLUMN")
    population: Place = option("The file that the sample comes from.")
    persons: Place = option("With a file: the persons in the households.")
    hid: Text = option("With a file: the column linking persons to households.", form="COLUMN")
    id: Columns = option("With a file: an identifier column, left out unless it is named as a key.", [], form="COLUMN")
    target: Columns = option(
        "A value that other columns may tell, such as the county (default: what the swap exchanges).",
        [], form="COLUMN",
    )  # fmt: skip
    margin: Names = option(
        "A table published exactly, such as 'county x age': how far such tables determine records.", [], form="TABLE"
    )
    largest: int = option("Search sets of so many keys for minimal unique combinations.", 3, ge=1)
    records: Place = option("Write the risk of each record (fk, Fk, risk, suda) to a new CSV or Parquet file.")


def risk(options: RiskOptions, _: Any) -> Outcome:
    """Show how exposed people are: who is unique, and on what.

    Of a release only its public files are read. Nothing random happens, and only --records writes a file.
    """
    weight, population, records = options.weight, options.population, options.records
    if records is not None:
        _check_place(records)
    subject = subject_of(options.file, persons=options.persons, hid=options.hid, id=options.id)
    table = checked_keys(subject.data, options.keys) if options.keys else default_keys(subject)
    if weight is not None and population is not None:
        what, remedy = "weights and a population file answer the same question", "give one of them"
        raise bad_plan(what, where="--population", remedy=remedy)
    whole = None if population is None else read_given(population)
    if whole is not None:
        subject = replace(subject, public=False)  # what is found rests on that file too
    _check_columns(subject, table, options.sensitive, weight, None if whole is None else whole.columns)
    whole = None if whole is None else _population(subject, table, whole, where=f"--population {population}")
    found = unique_records(subject.data, table, weight=weight, population=whole)
    light = [] if weight is None else _light_weights(_weights(subject, weight))
    frame, keys = records_and_keys(subject.data, table)
    spread = [diversity(frame, keys, name) for name in options.sensitive]
    searched = number_of_sets(len(keys), options.largest) <= MOST_SETS
    minimal = minimal_uniques(frame, keys, largest=options.largest) if searched else None
    guessed = _told(subject, table, options.target)
    known = revealed_by_tables(subject, table)
    cells = _bounds(subject, options.margin)
    if records is not None:
        _write_records(records, subject, table, weight=weight, population=whole, minimal=minimal)
    values = {
        "file": str(options.file),
        "public": subject.public,
        "uniqueness": uniqueness_out(found),
        "notes": [words for _, words in light],
        "diversity": [asdict(each) for each in spread],
        "revealed": None if known is None else asdict(known),
        "bounds": None if cells is None else _bounds_out(cells),
        "told": [{**asdict(each), "kappa": each.kappa, "tells": each.tells} for each in guessed],
        "minimal_unique_combinations": None if minimal is None else _minimal_out(minimal),
    }
    counted = {"sample": weight is not None, "population": whole is not None}
    rows = [
        ("file", subject.in_words),
        *uniqueness_rows(found, default=not options.keys, **counted),
        *light,
        *(_diversity_row(each, found) for each in spread),
        *_minimal_rows(minimal, found, options.largest),
        *_told_rows(guessed),
        *_revealed_rows(known, found),
        *_bounds_rows(cells),
    ]
    return Outcome(values=values, rows=rows, blocks=["A missing value counts as a value of its own."])


def subject_of(file: Path, *, persons: Path | None, hid: str | None, id: Sequence[str] = ()) -> Subject:
    """Return what is looked at; options that belong to a file alone are refused beside a plan or a bundle."""
    plan, bundle = file.suffix == ".toml", is_bundle(file)
    given = {"--persons": persons is not None, "--hid": hid is not None, "--id": bool(id)}
    if (plan or bundle) and any(given.values()):
        what = f"the {'plan' if plan else 'bundle'} says this already"
        raise bad_plan(what, where=next(name for name in given if given[name]), remedy="leave it out")
    if bundle:
        return from_bundle(file)
    if plan:
        return subject_of_plan(prepare(read_plan(file, out=NOWHERE)), name=str(file))
    data = Microdata.read(file, persons, hid=hid, id=id)
    return Subject(name=str(file), data=data if persons is not None else replace(data, record="record"))


def subject_of_plan(prepared: Prepared, *, name: str) -> Subject:
    """Return the confidential records of a plan, with what it would publish unchanged."""
    return Subject(
        name=name,
        data=prepared.data,
        specification=prepared.plan.specification,
        exchanged=prepared.mechanism.areas,
        kept_persons=tuple(prepared.plan.releases.get("persons", ())),
        publishes_fixed=prepared.plan.publishes_fixed,
    )


def _check_columns(
    subject: Subject, table: ExactTable, sensitive: list[str], weight: str | None, population: list[str] | None
) -> None:
    """Refuse columns that are not there, or that cannot be what they are named as; all problems at once."""
    data, problems = subject.data, []
    known = [*data.variables, *(data.person_variables if table.by_persons else ())]
    for name in sensitive:
        if name not in known:
            problems.append(missing_column(name, known, where="--sensitive", role="sensitive"))
        elif name in table.keys:
            what, remedy = f'"{name}" is a key: who knows it need not learn it', "take it out of one of them"
            problems.append(Problem(what=what, where="--sensitive", remedy=remedy))
    if weight is not None and weight not in known:
        problems.append(missing_column(weight, known, where="--weight", role="weight"))
    elif weight is not None and (why := _no_weight(_weights(subject, weight))):
        remedy = "name the column with how many of the population a record stands for"
        problems.append(Problem(what=f'"{weight}" {why}', where="--weight", remedy=remedy))
    lacking = [] if population is None else [name for name in table.keys if name not in population]
    problems += [missing_column(name, population or (), where="--population", role="a key") for name in lacking]
    if population is not None and table.person_keys:
        what, remedy = "households are compared by their persons here", "name the keys: --keys size,tenure"
        problems.append(Problem(what=what, where="--population", remedy=remedy))
    if problems:
        raise DataError(problems)


def _population(subject: Subject, table: ExactTable, whole: pl.DataFrame, *, where: str) -> pl.DataFrame:
    """Return the keys of a population as the sample writes them; refuse what a sample cannot come from."""
    sample, keys = records_and_keys(subject.data, table)
    cast = whole.select(pl.col(name).cast(sample.schema[name], strict=False) for name in keys)
    none = [name for name in keys if not sample[name].is_in(cast[name].unique().implode()).any()]
    problems = [
        Problem(what="no value is one of the sample", where=f'{where} "{name}"', remedy="write the codes of the sample")
        for name in none
    ]
    if whole.height < sample.height:
        what = f"it has {whole.height:,} records, and the sample {sample.height:,}"
        problems.append(Problem(what=what, where=where, remedy="name the file that the sample comes from"))
    if problems:
        raise DataError(problems)
    return cast


def _weights(subject: Subject, name: str) -> pl.Series:
    data = subject.data
    return data.households[name] if name in data.households.columns else data.persons[name]  # type: ignore[index]


def _no_weight(column: pl.Series) -> str:
    """Say what keeps a column from being weights, how often and where first."""
    numbers = column.cast(pl.Float64, strict=False)
    known = numbers.is_finite().fill_null(value=False)
    kinds = [
        (~known, "value that is not a number", "values that are not numbers"),
        (numbers < 0, "negative weight", "negative weights"),
        (numbers == 0, "weight that is 0", "weights that are 0"),
    ]
    for bad, one, many in kinds:
        if count := int(bad.sum()):
            return f"has {number(count, one, many)}, the first in record {int(bad.arg_true()[0]) + 1:,}"
    return ""


def _light_weights(column: pl.Series) -> list[tuple[str, str]]:
    """Say how many weights are below 1: such a record stands for less than itself, as with normalised weights."""
    numbers = column.cast(pl.Float64)
    count, least = int((numbers < 1).sum()), int(numbers.arg_min() or 0)
    if not count:
        return []
    told = f"{count:,} of {len(numbers):,} are below 1, the smallest {numbers[least]:.4g} in record {least + 1:,}; "
    told += "a class counts at least its own records in the population"
    if float(numbers.sum()) < 1.05 * len(numbers):
        told += (
            ". They add up to no more than the file: if they were normalised, multiply them by the size of the "
            "population over the number of records; otherwise risks are those of a whole population"
        )
    return [("weights", told)]


def _told(subject: Subject, table: ExactTable, targets: list[str]) -> list[ColumnGuess]:
    """Return what the keys tell of the targets; of a swap, all that is held of what it exchanges."""
    data = subject.data
    problems = [
        missing_column(name, data.variables, where="--target", role="a target")
        for name in targets
        if name not in data.variables
    ]
    if problems:
        raise DataError(problems)
    wanted = targets or [*subject.exchanged]
    columns = [name for name in (*table.keys, *table.person_keys) if name not in (*wanted, *subject.match)]
    return column_guesses(data, targets=wanted, match=subject.match, columns=columns)


def _told_rows(found: list[ColumnGuess]) -> list[tuple[str, str]]:
    if not found:
        return []
    telling = [each for each in found if each.tells]
    if not telling:
        return [("told", f"no column or pair of columns tells much; the most telling: {found[0].in_words}")]
    more = [("told", f"{len(telling) - 5} more: --json")] if len(telling) > 5 else []
    return [*(("told", each.in_words) for each in telling[:5]), *more]


def _bounds(subject: Subject, margins: list[str]) -> tuple[CellRanges, int | None] | None:
    """Return the bounds that margins leave for the cells of their joint table, and how many tables these are."""
    if not margins:
        return None
    tables = margins_of(subject.data, margins)
    found = bounds(tables)
    assert found is not None  # tables of one file have at least this file
    few = int((found.cells["high"] - found.cells["low"]).sum()) <= _FEW
    return found, solutions(joint_system(tables)[0], most=10_000) if few else None


def _bounds_out(found: tuple[CellRanges, int | None]) -> dict[str, Any]:
    cells, tables = found
    return {
        "cells": cells.cells.height, "determined": cells.determined, "certain_records": cells.certain,
        "proven": cells.proven, "tables": tables,
    }  # fmt: skip


def _bounds_rows(found: tuple[CellRanges, int | None] | None) -> list[tuple[str, str]]:
    if found is None:
        return []
    cells, tables = found
    many = "" if tables is None else f"; {tables:,} table{'s have' if tables > 1 else ' has'} these margins"
    how = "" if cells.proven else " (by propagation; more may be)"
    return [
        (
            "margins",
            f"{cells.determined:,} of {cells.cells.height:,} cells that can be filled are determined{how}, and "
            f"{cells.certain:,} records are certain in all columns of the margins{many}",
        )
    ]


def _revealed_rows(found: Revealed | None, unique: Uniqueness) -> list[tuple[str, str]]:
    if found is None:
        return []
    share = partial(share_in_words, whole=found.records)
    return [
        (
            "revealed",
            f"the exact tables alone determine what was exchanged for {share(found.determined)} of the {unique.of}, "
            f"and place {share(found.at_least)} for certain",
        )
    ]


def uniqueness_rows(found: Uniqueness, *, default: bool, sample: bool, population: bool) -> list[tuple[str, str]]:
    """Say how many records share their keys with how many others."""

    def share(part: float) -> str:
        return share_in_words(part, found.records)

    rows = [
        ("keys", f"{', '.join(found.keys)}{', which are published unchanged' if default else ''}"),
        ("unique", f"{found.share_unique} of the {found.of}: {found.unique:,} of {found.records:,}"),
        (
            "k",
            f"{found.k}-anonymous; {share(found.below(3))} share their keys with fewer than 2 others (they violate "
            f"3-anonymity), {share(found.below(5))} with fewer than 4 (5-anonymity)",
        ),
    ]
    if sample or population:
        many = f"{'about ' if sample else ''}{found.population_uniques:,.0f}"
        rows.append(("population", f"{many} of the unique are so in the population too"))
    if found.unique_match is not None:
        rows.append(
            ("match", f"if exactly one record has a person's keys, it is theirs in {found.unique_match:.1%} of cases")
        )
    rows.append(
        (
            "found",
            f"who looks for every record by its keys finds {found.expected_matches:,.0f} of {found.records:,} "
            f"({share(found.expected_matches)}), in expectation",
        )
    )
    return rows


def _diversity_row(each: Diversity, found: Uniqueness) -> tuple[str, str]:
    return (
        "sensitive",
        f"{each.sensitive} is told for {share_in_words(each.told, found.records)} of the {found.of}, whose keys "
        f"leave one value; l-diversity {each.distinct} (by entropy {each.entropy:.3g}), "
        f"t-closeness {each.closeness:.3g}",
    )


def _minimal_rows(found: MinimalUniques | None, unique: Uniqueness, largest: int) -> list[tuple[str, str]]:
    if found is None:
        return [("minimal", f"sets of up to {largest} of these keys are too many to search; choose --largest 2")]
    share = share_in_words(found.affected, unique.records)
    text = f"{share} of the {unique.of} are unique on {number(found.largest, 'key')} or fewer"
    names = {1: "single value", 2: "pair", 3: "triple"}
    counted = [(size, number(many, names.get(size, "set"))) for size, many in found.by_size.items() if many]
    parts = [f"{words} of {size}" if size not in names else words for size, words in counted]
    if parts:
        last = counted[-1][0]
        of = "" if last == 1 else " values" if last not in names else " of values"
        verb = "is" if parts == [f"1 {names.get(last)}"] else "are"
        text += f": {' and '.join(filter(None, (', '.join(parts[:-1]), parts[-1])))}{of} {verb} unique"
    most = ", ".join(f"{key} {part:.0%}" for key, part in found.by_key[:5] if part)
    return [("minimal", text), *([("most by", f"share of these that each key is part of: {most}")] if most else [])]


def _minimal_out(found: MinimalUniques) -> dict[str, Any]:
    return {
        "largest": found.largest,
        "records": found.affected,
        "by_size": {str(size): many for size, many in found.by_size.items()},
        "by_key": dict(found.by_key),
        "highest_score": int(found.scores.max(initial=0)),
    }


# ---- the risk of each record, as a file ---------------------------------------------------------------------------


def _check_place(out: Path) -> None:
    """Refuse a place where nothing can be written, before anything is read."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise bad_plan(f"{out.name} is neither CSV nor Parquet", where=_RECORDS, remedy="name a .csv or .parquet file")
    if out.exists():
        raise bad_plan("something is already there", where=f"{_RECORDS} {out}", remedy="choose a new file")
    if not out.resolve().parent.is_dir():
        raise bad_plan("there is no such folder", where=f"{_RECORDS} {out}", remedy="make it first, or choose another")
    above = out.resolve().parents
    if any(folder.name == "public" and (folder.parent / "manifest.json").exists() for folder in above):
        what = "the risk of each record must not stand among public files"
        raise bad_plan(what, where=f"{_RECORDS} {out}", remedy="choose a place inside the agency")


def _write_records(
    out: Path,
    subject: Subject,
    table: ExactTable,
    *,
    weight: str | None,
    population: pl.DataFrame | None,
    minimal: MinimalUniques | None,
) -> None:
    """Write the number, keys and risks of each record, for its owner alone."""
    frame, keys = records_and_keys(subject.data, table)
    found = record_risks(frame, keys, weight=weight, population=population)
    if minimal is not None:
        found = found.with_columns(pl.Series("suda", minimal.scores))
    shown = frame.select(name for name in keys if name in table.keys)
    if taken := [name for name in shown.columns if name in ("row", *found.columns)]:
        what = f"a key is called {taken[0]}, as a column of this file is"
        raise bad_plan(what, where=_RECORDS, remedy="rename it in the data")
    rows = pl.concat([shown, found], how="horizontal").with_row_index("row", offset=1)
    with file_at(out, private=True) as half:
        if out.suffix.lower() == ".csv":
            rows.write_csv(half)
        else:
            rows.write_parquet(half)


COMMANDS: Final = (command("risk", RiskOptions, risk),)
