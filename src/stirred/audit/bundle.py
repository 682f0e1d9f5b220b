"""The audit of a finished bundle from its files alone: nothing of the confidential file is needed.

The released file must have the invariants it was published with and the budget that follows from them, its
identifiers must say nothing, and every artefact must agree on the promise and on whether it comes from a test run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from stirred.audit.bundle_counts import audit_invariants, audit_tables
from stirred.audit.bundle_files import MANIFEST, audit_manifest, audit_published, read_released
from stirred.audit.bundle_making import Making, shown_by, stated_in
from stirred.audit.bundle_noisy import audit_noisy, publishes_tables_only
from stirred.audit.bundle_pages import audit_pages
from stirred.audit.bundle_persons import audit_persons
from stirred.audit.bundle_promise import ReleasedFiles, audit_promise
from stirred.audit.findings import Findings
from stirred.audit.held_digest import MOST_PERSONS
from stirred.audit.leftover import leftover_order
from stirred.data.codes import tells_records_apart
from stirred.data.problems import bad_file
from stirred.mechanisms.swapping.response_swap import ResponseSwap
from stirred.spec.document import from_json
from stirred.spec.invariant import Margin
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import Specification

SEEDED_MARK = "SEEDED-TEST-RUN.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleAudit:
    """What was checked, what was wrong, what a reader must know although nothing is wrong, and what was not checked."""

    checks: tuple[str, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Say whether nothing was wrong."""
        return not self.problems


def audit_bundle(folder: Path | str) -> BundleAudit:
    """Check a bundle, or its public folder alone, and say all problems at once.

    Checksums, specification, invariants, budget, strata, persons, ids, order, tables, pages and marks of a test run.
    """
    bundle = Path(folder)
    public = public_folder(bundle)
    found = Findings()
    manifest = None
    if public == bundle:
        audit_published(public, found)
    else:
        manifest = audit_manifest(bundle, found)
    specification = _specification(public, found)
    making = None if manifest is None else stated_in(manifest)
    if manifest is not None and making is None:
        found.bad("it does not say how the release was made", where=MANIFEST)
    tables_only = publishes_tables_only(public, making)
    data = None if tables_only else _readable(public, "data", found)
    try:
        if tables_only and specification is not None:
            audit_noisy(public, specification, making, found)
        elif specification is not None and data is not None:
            _audit_files(public, specification, data, making, found)
    except pl.exceptions.PolarsError as error:  # no change is known that gets here; it would still be one
        found.bad(f"its files are not of a kind that is released ({type(error).__name__})", where="public")
    if specification is not None:
        _audit_words(public, specification, making, found)
    if specification is not None or manifest is not None:
        _marks(bundle, manifest, specification, found)
    return BundleAudit(
        checks=tuple(found.checks),
        problems=tuple(found.problems),
        warnings=tuple(found.warnings),
        unchecked=tuple(found.unchecked),
    )


def public_folder(bundle: Path) -> Path:
    """Return the public folder: that of a bundle, or the given one if it is what was published."""
    if not bundle.is_dir():
        raise bad_file("there is no such folder", where=str(bundle), remedy="name the folder of a finished release")
    if (bundle / "public").is_dir() or (bundle / MANIFEST).exists():
        return bundle / "public"
    if (bundle / "specification.json").exists():
        return bundle
    raise bad_file(
        "this is not a bundle: there is neither manifest.json nor public/ in it, nor a specification.json",
        where=str(bundle),
        remedy="name the folder that `stirred release` or `stirred swap` made, or one that was published",
    )


def _audit_files(
    public: Path, specification: Specification, data: pl.DataFrame, making: Making | None, found: Findings
) -> None:
    """Check everything that is counted from the released records."""
    digest = audit_invariants(public, specification, data, found)
    strata = read_released(public / "strata.parquet", found, where="public/strata.parquet")
    making = making or (None if strata is None else shown_by(specification, strata))
    ids = _identifiers(specification, data, making, found)
    _order(specification, data.drop(ids), making, found)
    has_persons = any(public.glob("persons.*"))
    persons = _readable(public, "persons", found) if has_persons else None
    if strata is not None and (persons is not None or not has_persons):
        files = ReleasedFiles(data=data, persons=persons, ids=ids, csv=any(public.glob("data.csv")))
        audit_promise(files, specification, strata, making, found)
    joined = None
    if persons is not None:
        if digest is None:
            _no_digest(persons, making, found)
        joined = audit_persons(persons, data, ids, _held(specification, data), digest, found)
    audit_tables(public, data, joined, found)


def _audit_words(public: Path, specification: Specification, making: Making | None, found: Findings) -> None:
    same_version = making is not None and making.same_version
    method = None if making is None or not same_version else making.mechanism.in_words
    audit_pages(public, specification, method=method, same_version=same_version, found=found)
    if specification.budget.is_free:
        found.warnings.append("nothing is promised: the budget is a letter without a value")
    elif specification.budget.realised.is_infinite:
        found.warnings.append("nothing is promised: the loss is infinite, and the release may be the confidential file")


def _specification(public: Path, found: Findings) -> Specification | None:
    name = "public/specification.json"
    try:
        specification = from_json((public / "specification.json").read_text(encoding="utf-8"), source=name)
    except StirredError as error:
        found.problems += error.problems
        return None
    except (OSError, ValueError):
        found.bad("it is missing or cannot be read", where=name)
        return None
    found.checks.append(f"specification read: {specification.notation}")
    return specification


def _readable(public: Path, name: str, found: Findings) -> pl.DataFrame | None:
    places = sorted(public.glob(f"{name}.*"))
    if len(places) != 1:
        found.bad(f"there are {len(places)} such files instead of one", where=f"public/{name}")
        return None
    return read_released(places[0], found, where=f"public/{name}")


def _no_digest(persons: pl.DataFrame, making: Making | None, found: Findings) -> None:
    """Say that nothing is published with which the persons could be compared; where it should be, that is wrong."""
    if making is not None and making.same_version and persons.height <= MOST_PERSONS:
        found.bad("the checksum of the hold table with persons is missing", where="public/invariants.parquet")
        return
    found.unchecked.append(
        "whether the persons are those of the input: invariants.parquet has the variables of households only, and no "
        "checksum of what they hold with their persons"
    )


def _held(specification: Specification, data: pl.DataFrame) -> list[str]:
    """Return the columns that were held: those of the last table of the invariants."""
    margins = [m.variables for m in specification.multiverse.invariants if isinstance(m, Margin)]
    return [name for name in data.columns if margins and name in margins[-1]]


def _identifiers(specification: Specification, data: pl.DataFrame, making: Making | None, found: Findings) -> list[str]:
    """Check that a column outside every invariant is a number issued anew: 1, 2, ... in the released order.

    The variable of a randomised response is in no invariant either.
    """
    margins = [m for m in specification.multiverse.invariants if isinstance(m, Margin)]
    known = {variable for margin in margins for variable in margin.variables}
    if making is not None and isinstance(making.mechanism, ResponseSwap):
        known.add(making.mechanism.respond)
    extra = [name for name in data.columns if name not in known]
    for name in extra:
        if wrong := _not_issued_anew(data[name]):
            found.bad(f'"{name}" is in no invariant and {wrong}', where="public/data")
        else:
            found.checks.append(f'identifiers "{name}" are 1 to {data.height:,}')
    return extra


def _not_issued_anew(column: pl.Series) -> str | None:
    """Return what is wrong with a column that should be 1, 2, ... in the released order."""
    fresh = pl.int_range(1, len(column) + 1, eager=True)
    numbers = column.cast(pl.Int64, strict=False)
    if numbers.equals(fresh, check_names=False):
        return None
    if numbers.sort().equals(fresh, check_names=False):
        return f"is 1 to {len(column):,} in another order than the rows: the rows were put in another order"
    if tells_records_apart(column):
        return f"is not 1 to {len(column):,}: an old identifier tells records apart"
    return "is no new identifier: the specification says nothing about it"


def _order(specification: Specification, data: pl.DataFrame, making: Making | None, found: Findings) -> None:
    """Check that rows are grouped by released values and otherwise in random order (docs/theory/conditions.md, 1)."""
    if not data.width:
        return
    margins = [m.variables for m in specification.multiverse.invariants if isinstance(m, Margin)]
    # The variables of one table of the invariants only are those that were swapped.
    swapped = [v for v in margins[0] if v in data.columns and v not in margins[1]] if len(margins) == 2 else []
    if making is not None and isinstance(making.mechanism, ResponseSwap):
        swapped = [name for name in making.mechanism.swap if name in data.columns]
    left = leftover_order(data, first=swapped)
    if not set(swapped) <= set(left.grouped):
        found.bad(
            f"records are not grouped by {', '.join(swapped)} as released: their order may be that of the input",
            where="public/data",
        )
    groups = f"grouped by {', '.join(left.grouped)}" if left.grouped else "in no groups"
    if left.ordered:
        found.bad(
            f"the rows are {groups}, and otherwise in an order that goes with {', '.join(left.ordered)}: it may be "
            "the order of the input",
            where="public/data",
        )
    elif left.seen:
        seen = ", ".join(left.seen)
        found.checks.append(f"rows are {groups} and otherwise in no order; one by {seen} would have been seen")
    else:
        found.checks.append(f"rows are {groups}; too few of them, or too much alike, to see any other order")


def _marks(bundle: Path, manifest: dict[str, Any] | None, specification: Specification | None, found: Findings) -> None:
    """Check that all artefacts agree on whether this is a test run with a seed."""
    marks = seeded_marks(bundle, manifest, specification)
    if len(set(marks.values())) > 1:
        marked = [name for name, seeded in marks.items() if seeded]
        bare = [name for name, seeded in marks.items() if not seeded]
        found.bad(
            f"{', '.join(marked)} say that this is a test run with a seed, and {', '.join(bare)} do not",
            where="marks of a test run",
            remedy="do not publish it",
        )
        return
    found.checks.append("a test run with a seed, marked everywhere" if any(marks.values()) else "not a test run")


def seeded_marks(bundle: Path, manifest: dict[str, Any] | None, specification: Specification | None) -> dict[str, bool]:
    """Return for every artefact that can say so whether it says that this is a test run with a seed."""
    marks = dict(_marks_of_files(bundle))
    if manifest is not None:
        marks[MANIFEST] = manifest.get("seeded") is True
    if specification is not None:
        marks["public/specification.json"] = specification.seeded
    return marks


def _marks_of_files(bundle: Path) -> Iterator[tuple[str, bool]]:
    public = public_folder(bundle)
    if public != bundle:
        yield SEEDED_MARK, (bundle / SEEDED_MARK).exists()
    yield f"public/{SEEDED_MARK}", (public / SEEDED_MARK).exists()
    for path in sorted(public.glob("*.parquet")):
        parts = sorted(path.glob("*.parquet"))[:1] if path.is_dir() else [path]
        for part in parts:
            try:
                yield f"public/{path.name}", "stirred.seeded" in pl.read_parquet_metadata(part)
            except (OSError, pl.exceptions.PolarsError):
                continue
