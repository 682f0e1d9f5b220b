"""One attack on whatever was released, and what a plan and its draws leave to an attacker.

What is published exactly, and whom that exposes, follows from the plan. Everything else is measured on one draw,
against the confidential records: an estimate that stays inside the agency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stirred.data.bundle import BundleFiles
from stirred.data.microdata import missing_column
from stirred.data.problems import DataError, bad_plan
from stirred.data.uniqueness import Uniqueness, of_persons
from stirred.risk.areas import AREAS, RECORDS, Progress, Reconstructed, reconstruct_areas, reconstruct_published
from stirred.risk.attackers import AGE, AttackerColumns
from stirred.risk.bounds import Revealed
from stirred.risk.published import PublishedCounts, of_bundle, of_records
from stirred.risk.reidentification import VULNERABLE, Reidentified, reidentify
from stirred.risk.subject import Subject, bundle_files, from_bundle, revealed_by_tables
from stirred.risk.table_lists import cells_of
from stirred.spec.problems import StirredError

if TYPE_CHECKING:
    import numpy as np

PUBLISHED: Final = "published"


def has_records(files: BundleFiles) -> bool:
    """Say whether a release has records: its tables are then counted from these, and exact in them."""
    return files.has_persons or any(files.public.glob("data.*"))


def target_of(
    subject: Subject | None,
    files: BundleFiles | None,
    by: Sequence[str],
    *,
    name: str,
    tables: str | None = None,
    own: Sequence[str] = (),
) -> Subject | PublishedCounts:
    """Return what is attacked: records, whose tables are counted, or tables as they were published.

    ``subject`` are the records, if there are any, and ``files`` those of a bundle. ``own`` are tables to count, such as
    "sex x age"; otherwise ``tables`` are those of a list, those that are published, or what suits.
    """
    if tables == PUBLISHED and files is None:
        raise bad_plan("a file has published nothing", where="--tables", remedy="name the tables with --table")
    if subject is None and (own or tables not in (None, PUBLISHED)):
        what, remedy = "this release has no records to count tables from", "attack the tables that it has published"
        raise bad_plan(what, where="--table" if own else "--tables", remedy=remedy)
    inside = () if subject is None else subject.data.person_variables
    if files is not None and (subject is None or tables == PUBLISHED):
        return of_bundle(files, area=by, name=name, exact=subject is not None, person_columns=inside)
    assert subject is not None
    frame = people_of(subject, by)
    if own:
        people_of(subject, [each.strip() for one in own for each in one.split(" x ")], where="--table")
        of = "persons" if subject.data.persons is not None else "records"
        return of_records(frame, own, area=by, name=name, of=of, public=subject.public)
    try:
        cells_of(frame, where=subject.name)
    except DataError:
        # Codes of its own, which the lists of the census do not have: what it has published itself is left.
        if tables is None and files is not None and any(True for _ in files.tables()):
            return of_bundle(files, area=by, name=name, exact=True, person_columns=inside)
        raise
    return subject


def attacked(
    target: Subject | PublishedCounts,
    by: Sequence[str],
    folder: Path,
    *,
    truth: Subject | None,
    tables: str = "sf",
    seconds: float = 30.0,
    progress: Progress | None = None,
) -> Reconstructed:
    """Reconstruct the persons of all areas, and compare them with the truth, or released records with themselves."""

    def census(subject: Subject) -> tuple[np.ndarray, pl.DataFrame]:
        people = people_of(subject, by)
        return cells_of(people, where=subject.name), people.select(by)

    if isinstance(target, PublishedCounts):
        assert target.tables.codes is not None
        true = None if truth is None else people_of(truth, [*by, *target.tables.codes], where=truth.name, of=target.of)
        return reconstruct_published(target, folder=folder, truth=true, seconds=seconds, progress=progress)
    compared = None if truth is None else census(truth)
    return reconstruct_areas(
        *census(target), tables=tables, folder=folder, truth=compared, seconds=seconds, progress=progress
    )


def people_of(subject: Subject, needed: Sequence[str], *, where: str = "--area", of: str = "persons") -> pl.DataFrame:
    """Return all persons with the columns of their household, or other records; refuse if columns are not there."""
    data = subject.data
    people = data.households if data.persons is None or of != "persons" else of_persons(data)
    lacking = [name for name in dict.fromkeys(needed) if name not in people.columns]
    if lacking:
        role = "an area" if where == "--area" else "a variable"
        raise DataError(missing_column(name, people.columns, where=where, role=role) for name in lacking)
    return people


# ---- plans with different promises compared by what they leave to an attacker ---------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawRisk:
    """What one draw gives away, and how far its tables are off; what could not be measured says why.

    Persons are looked for among those reconstructed, or, where no tables can be attacked, in the released records.
    ``errors`` are the mean absolute errors of tables by their title; None where a release does not have the table.
    """

    reconstruction: Mapping[str, Any] | None = None
    reidentified: Reidentified | None = None
    errors: Mapping[str, float | None] = field(default_factory=dict)
    why_not: str = ""
    in_records: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return {
            "reconstruction": self.reconstruction,
            "reidentification": None if self.reidentified is None else self.reidentified.facts,
            "mean_absolute_error": dict(self.errors),
            "reidentified_in": None if self.reidentified is None else "records" if self.in_records else "tables",
            "not_measured": self.why_not or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanRisk:
    """Who is alone on what a plan publishes exactly, what that determines, and what a draw gave away."""

    unique: Uniqueness | None = None
    revealed: Revealed | None = None
    drawn: DrawRisk | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        one = self.unique
        alone = None if one is None else {"of": one.of, "records": one.records, "unique": one.unique}
        told = None if self.revealed is None else asdict(self.revealed)
        return {"exposed": alone, "revealed": told, "attack": None if self.drawn is None else self.drawn.facts}


def plan_risk(subject: Subject) -> PlanRisk:
    """Return what follows from a plan alone: its specification, on its file."""
    found = subject.exposure
    if found is None:
        return PlanRisk()
    unique, table = found
    return PlanRisk(unique=unique, revealed=revealed_by_tables(subject, table))


def attack_draw(
    bundle: Path,
    truth: Subject,
    asked: AttackerColumns,
    *,
    folder: Path,
    tables: Sequence[Sequence[str]] = (),
    progress: Progress | None = None,
) -> DrawRisk:
    """Attack the public files of a draw, and compare it with the truth: persons, matches, and tables."""
    files = bundle_files(bundle)
    subject = from_bundle(bundle) if has_records(files) else None
    errors = {" x ".join(by): _error(bundle, subject, truth, by) for by in tables}
    try:
        target = target_of(subject, files, asked.area, name="the test draw")
        found = attacked(target, asked.area, folder, truth=truth, progress=progress).facts
    except StirredError as error:
        seen = None if subject is None else _in_records(subject, truth, asked)
        return DrawRisk(errors=errors, why_not=error.problems[0].what, reidentified=seen, in_records=seen is not None)
    pool = pl.read_parquet(folder / RECORDS)
    lacking = [name for name in (*asked.known, *asked.learn) if name not in pool and name != AGE]
    try:
        people = people_of(truth, [*asked.keys, *asked.learn], where="reidentification")
    except StirredError as error:
        return DrawRisk(reconstruction=found, errors=errors, why_not=error.problems[0].what)
    if lacking:
        seen = None if subject is None else _in_records(subject, truth, asked)
        why = f"no attacked table has {', '.join(lacking)}"
        return DrawRisk(
            reconstruction=found, errors=errors, why_not=why, reidentified=seen, in_records=seen is not None
        )
    ones = pl.read_parquet(folder / AREAS).filter(pl.col("outcome") == "one").select(asked.area)
    matched = reidentify(people, pool, asked=asked, count="persons", one_solution=ones)
    return DrawRisk(reconstruction=found, reidentified=matched, errors=errors)


def _in_records(subject: Subject, truth: Subject, asked: AttackerColumns) -> Reidentified | None:
    """Return who is found in released records; None where they lack what is known or is to be learned."""
    needed = [*asked.keys, *asked.learn]
    try:
        true, released = (people_of(each, needed) for each in (truth, subject))
    except StirredError:
        return None
    return reidentify(true, released, asked=asked)


def vulnerable_in_words(found: Reidentified) -> str:
    """Say how often an attacker is right about the vulnerable, beside a guess from their neighbours."""
    own = found[VULNERABLE].facts
    if own["precision"] is None:
        return "no vulnerable person is matched"
    return f"{own['precision']:.1%} of {own['putative']:,.0f} matches right (guessed: {own['proportional_guess']:.1%})"


def _error(bundle: Path, subject: Subject | None, truth: Subject, by: Sequence[str]) -> float | None:
    """Return the mean absolute error of a table that a release has, or that its records have; None if neither."""
    published = next(
        (t for _, _, t, names in bundle_files(bundle).tables() if {*names} == {*by} and "count" in t), None
    )
    try:
        true = _counted(truth, by)
        own = (
            published.drop_nulls("count")
            if published is not None
            else None
            if subject is None
            else _counted(subject, by)
        )
    except StirredError:
        return None
    if own is None:
        return None
    texts = [pl.col(name).cast(pl.String) for name in by]
    shown = own.select(*texts, pl.col("count").cast(pl.Int64).alias("shown"))
    both = true.select(*texts, "count").join(shown, on=[*by], how="full", coalesce=True, nulls_equal=True).fill_null(0)
    return float(both.select((pl.col("shown") - pl.col("count")).abs().mean()).item() or 0.0)


def _counted(subject: Subject, by: Sequence[str]) -> pl.DataFrame:
    persons = any(name in subject.data.person_variables for name in by)
    frame = people_of(subject, by, of="persons" if persons else "records")
    return frame.group_by([*by]).len("count").cast({"count": pl.Int64})
