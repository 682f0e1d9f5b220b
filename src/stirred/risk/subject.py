"""What `stirred risk` looks at: a file, or the public records of a bundle, with the promise that belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from stirred.data.bundle import (
    BundleFiles,
    Findings,
    probe_parquet,
    public_folder,
    published_specification,
    stated_mechanism,
)
from stirred.data.codes import encode
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError, bad_file, listed, number
from stirred.data.uniqueness import ExactTable, Uniqueness, exposure, of_persons, person_code, unique_in, uniqueness
from stirred.mechanisms.registry import build, is_installed, mechanism_class
from stirred.risk.bounds import Revealed, revealed
from stirred.spec.invariant import Margin, plural
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """Records, the specification where there is one, and whether all of it is public."""

    name: str
    data: Microdata
    specification: Specification | None = None
    public: bool = False
    exchanged: tuple[str, ...] = ()  # columns that the mechanism gives to other records
    kept_persons: tuple[str, ...] | None = None  # the columns of persons that are released; all of them if None
    publishes_fixed: bool = True  # whether the figures that the specification holds fixed are published

    @property
    def exposure(self) -> tuple[Uniqueness, ExactTable] | None:
        """Return the published exact table that exposes most, with the uniqueness on it; None where there is none."""
        if self.specification is None or not self.publishes_fixed:
            return None
        # Who is unique on a column that is dropped is found by no one.
        shown = self.data if self.kept_persons is None else replace(self.data, keep_persons=self.kept_persons)
        return exposure(self.specification, shown, exchanged=self.exchanged)

    @property
    def match(self) -> tuple[str, ...]:
        """Return the columns that every exact table has: records exchange only among equals in them."""
        if self.specification is None or not self.exchanged:
            return ()
        margins = [{*each.variables} for each in self.specification.multiverse.invariants if isinstance(each, Margin)]
        common = set.intersection(*margins) if len(margins) > 1 else set()
        return tuple(name for name in self.data.variables if name in common and name not in self.exchanged)

    @property
    def persons(self) -> pl.DataFrame:
        """Return the persons with the columns of their household; of a flat file its records."""
        return self.data.households if self.data.persons is None else of_persons(self.data)

    @property
    def in_words(self) -> str:
        """Say how many records there are, and whether what is found here may be published."""
        data = self.data
        persons = "" if data.persons is None else f" with {number(data.persons.height, 'person')}"
        where = "public files alone" if self.public else "a confidential file: keep the results inside"
        return f"{self.name}: {data.households.height:,} {plural(data.record)}{persons}, from {where}"


def is_bundle(path: Path) -> bool:
    """Say whether a path is a bundle, or a folder that was published of one."""
    return path.is_dir() and any((path / name).exists() for name in ("public", "manifest.json", "specification.json"))


def bundle_files(folder: Path) -> BundleFiles:
    """Return the public files of a bundle, or of the folder that was published of it."""
    public, found = public_folder(folder), Findings()
    probe_parquet(public, found)
    specification = published_specification(public)
    if specification is None:
        raise bad_file("its specification.json cannot be read", where=str(public), remedy="name a finished release")
    stated = stated_mechanism(public)
    beside = mechanism_class(stated.name).table_columns if stated is not None and is_installed(stated.name) else ()
    return BundleFiles(public=public, specification=specification, found=found, beside=beside)


def from_bundle(folder: Path) -> Subject:
    """Return the public records of a bundle, or of the folder that was published of it."""
    files = bundle_files(folder)
    specification, public = files.specification, files.public
    flat = not any(public.glob("data.*"))  # persons alone, each with its areas
    if flat and not files.has_persons:
        remedy = "uniqueness is about records; name a release of records, or the file itself"
        raise bad_file("this release has no records", where=str(public), remedy=remedy)
    homes, persons = (files.persons, None) if flat else (files.data, files.persons)
    if homes is None or (files.has_persons and not flat and persons is None):
        raise DataError(files.found.problems)
    link = [] if persons is None else [name for name in files.issued if name in persons.columns]
    data = Microdata(
        households=homes,
        persons=persons if link else None,
        hid=link[0] if link else None,
        record=specification.input_premetric.unit,
    )
    exchanged = tuple(name for name in _exchanged(public) if name in data.variables)
    return Subject(name=str(folder), data=data, specification=specification, public=True, exchanged=exchanged)


def _exchanged(public: Path) -> Sequence[str]:
    """Return the columns that the stated mechanism exchanges; none where it does not state its settings."""
    stated = stated_mechanism(public)
    try:
        return () if stated is None else build(stated.name, stated.settings).areas
    except (ValueError, TypeError, StirredError):
        return ()


def checked_keys(data: Microdata, keys: Sequence[str]) -> ExactTable:
    """Return the keys that were declared: of persons, if one of them is a column of persons; refuse unknown ones."""
    known = [*data.variables, *data.person_variables, *data.identifiers]
    problems = [missing_column(name, known, where="--keys", role="a key") for name in keys if name not in known]
    if problems:
        raise DataError(problems)
    by_persons = any(name in data.person_variables for name in keys)
    return ExactTable(
        of="persons" if by_persons else plural(data.record), keys=tuple(dict.fromkeys(keys)), by_persons=by_persons
    )


def default_keys(subject: Subject) -> ExactTable:
    """Return the exact table that exposes most; refuse where the file promises nothing."""
    if subject.specification is None:
        what = "it is not known what of this file would be published unchanged"
        names = listed([*subject.data.variables, *subject.data.person_variables])
        remedy = f"name with --keys what an attacker may know, of {names}; or give a plan or a bundle"
        raise bad_file(what, where=subject.name, remedy=remedy)
    found = subject.exposure
    if found is None:
        what = "no table of characteristics is published exactly"
        raise bad_file(what, where=subject.name, remedy="name the keys an attacker may know: --keys age,sex,county")
    return found[1]


def records_and_keys(data: Microdata, table: ExactTable) -> tuple[pl.DataFrame, list[str]]:
    """Return the records of a table with its keys as columns; the persons of a household are one key, ``persons``."""
    if table.by_persons:
        return of_persons(data), [*table.keys]
    if not table.person_keys:
        return data.households, [*table.keys]
    code = person_code(data, table.person_keys)
    return data.households.with_columns(code), [*table.keys, code.name]


def revealed_by_tables(subject: Subject, table: ExactTable) -> Revealed | None:
    """Return what both exact tables of a swap say together; None where nothing is exchanged."""
    data = subject.data
    if subject.specification is None or not subject.exchanged or table.by_persons:
        return None
    margins = [{*each.variables} for each in subject.specification.multiverse.invariants if isinstance(each, Margin)]
    if not any({*subject.exchanged} <= each for each in margins):
        return None  # how often what is exchanged occurs is protected itself
    frame, keys = records_and_keys(data, table)
    held = [name for name in keys if name not in subject.exchanged]
    return revealed(
        encode(frame, [*subject.match]).codes,
        encode(frame, held).codes,
        encode(frame, [*subject.exchanged]).codes,
    )


def margins_of(data: Microdata, asked: Sequence[str]) -> list[pl.DataFrame]:
    """Return tables of counts by the variables asked for, such as 'county x tenure'; refuse unknown columns."""
    wanted = [[name.strip() for name in each.split(" x ")] for each in asked]
    known = [*data.variables, *data.person_variables]
    problems = [
        missing_column(name, known, where="--margin", role="a variable")
        for name in dict.fromkeys(name for by in wanted for name in by)
        if name not in known
    ]
    if problems:
        raise DataError(problems)
    by_persons = any(name in data.person_variables for by in wanted for name in by)
    frame = of_persons(data) if by_persons else data.households
    return [frame.group_by(by).len("count").cast({"count": pl.Int64}) for by in wanted]


def unique_records(
    data: Microdata, table: ExactTable, *, weight: str | None, population: pl.DataFrame | None
) -> Uniqueness:
    """Return the uniqueness of the records of a table in a sample, or in a population."""
    if population is None:
        return unique_in(data, table, weight=weight)
    frame, keys = records_and_keys(data, table)
    return uniqueness(frame, keys, of=table.of, population=population)
