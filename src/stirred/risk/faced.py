"""What a plan leaves to an attacker, so that plans with different promises can be set side by side.

What is published exactly, and whom that exposes, follows from the plan. Everything else is measured on one draw,
against the confidential records: an estimate that stays inside the agency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from stirred.data.uniqueness import Uniqueness
from stirred.risk.areas import AREAS, RECORDS, Progress
from stirred.risk.attackers import AGE, AttackerColumns
from stirred.risk.attacks import attacked, has_records, people_of, target_of
from stirred.risk.bounds import Revealed
from stirred.risk.reidentification import VULNERABLE, Reidentified, reidentify
from stirred.risk.subject import Subject, bundle_files, from_bundle, revealed_by_tables
from stirred.spec.problems import StirredError


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
class Faced:
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


def faced(subject: Subject) -> Faced:
    """Return what follows from a plan alone: its specification, on its file."""
    found = subject.exposure
    if found is None:
        return Faced()
    unique, table = found
    return Faced(unique=unique, revealed=revealed_by_tables(subject, table))


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
        return "nobody vulnerable is matched"
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
