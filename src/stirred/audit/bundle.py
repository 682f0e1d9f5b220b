"""The audit of a finished bundle from its files alone: nothing of the confidential file is needed.

The released file must have the invariants it was published with, its identifiers must say nothing, and
every artefact must agree on whether it comes from a test run with a seed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from stirred.audit.bundle_persons import audit_persons
from stirred.audit.findings import Findings
from stirred.audit.leftover import leftover_order
from stirred.data.frames import read_frame, write_frame
from stirred.data.problems import bad_file
from stirred.spec.document import from_json
from stirred.spec.invariant import Margin
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import Specification

MANIFEST = "manifest.json"
SEEDED_MARK = "SEEDED-TEST-RUN.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleAudit:
    """What was checked and what was wrong."""

    checks: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def passed(self) -> bool:
        """Say whether nothing was wrong."""
        return not self.problems


def audit_bundle(folder: Path | str) -> BundleAudit:
    """Check a bundle and say all problems at once: checksums, specification, invariants, persons, ids, order, marks."""
    bundle = Path(folder)
    if not bundle.is_dir():
        raise bad_file("there is no such folder", where=str(bundle), remedy="name the folder of a finished release")
    found = Findings()
    manifest = _manifest(bundle, found)
    if manifest is not None:
        _checksums(bundle, manifest, found)
    specification = _specification(bundle, found)
    data = _readable(bundle, "data", found)
    try:
        if specification is not None and data is not None:
            _invariants(bundle, specification, data, found)
            ids = _identifiers(specification, data, found)
            _order(specification, data.drop(ids), found)
            persons = _readable(bundle, "persons", found) if any((bundle / "public").glob("persons.*")) else None
            joined = None if persons is None else audit_persons(persons, data, ids, found)
            _tables(bundle, data, joined, found)
    except pl.exceptions.PolarsError as error:
        found.bad(f"its columns are not of a kind that is released ({type(error).__name__})", where="public/data")
    _marks(bundle, manifest, specification, found)
    return BundleAudit(checks=tuple(found.checks), problems=tuple(found.problems))


def _manifest(bundle: Path, found: Findings) -> dict[str, Any] | None:
    try:
        manifest = json.loads((bundle / MANIFEST).read_text(encoding="utf-8"))
        if not isinstance(manifest["files"], dict):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        found.bad("it is missing or cannot be read, so no file can be trusted", where=MANIFEST)
        return None
    return dict(manifest)


def _checksums(bundle: Path, manifest: dict[str, Any], found: Findings) -> None:
    recorded: dict[str, str] = manifest["files"]
    present = {str(p.relative_to(bundle)) for p in bundle.rglob("*") if p.is_file()} - {MANIFEST}
    # Later evaluations are appended with checksums of their own.
    later = {name for name in present if name.startswith("internal/evaluations/")}
    for name in sorted(set(recorded) - present):
        found.bad("it is in the manifest and not in the folder", where=name)
    for name in sorted(present - set(recorded) - later):
        found.bad("it is in the folder and not in the manifest", where=name)
    for name in sorted(set(recorded) & present):
        with (bundle / name).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != recorded[name]:
                found.bad("it is not the file the manifest describes", where=name)
    found.checks.append(f"checksums of {len(recorded)} files")


def _specification(bundle: Path, found: Findings) -> Specification | None:
    name = "public/specification.json"
    try:
        specification = from_json((bundle / name).read_text(encoding="utf-8"), source=name)
    except StirredError as error:
        found.problems += error.problems
        return None
    except (OSError, ValueError):
        found.bad("it is missing or cannot be read", where=name)
        return None
    found.checks.append(f"specification read: {specification.notation}")
    return specification


def _readable(bundle: Path, name: str, found: Findings) -> pl.DataFrame | None:
    places = sorted((bundle / "public").glob(f"{name}.*"))
    if len(places) != 1:
        found.bad(f"there are {len(places)} such files instead of one", where=f"public/{name}")
        return None
    try:
        return read_frame(places[0])
    except StirredError as error:
        found.problems += error.problems
        return None


def _invariants(bundle: Path, specification: Specification, data: pl.DataFrame, found: Findings) -> None:
    """Count every table of the invariants anew from the released file."""
    place = bundle / "public" / "invariants.parquet"
    try:
        published = read_frame(place)
    except StirredError as error:
        found.problems += error.problems
        return
    if "table" not in published.columns or "count" not in published.columns:
        found.bad("it has no columns table and count", where="public/invariants.parquet")
        return
    margins = [margin for margin in specification.multiverse.invariants if isinstance(margin, Margin)]
    names = published["table"].unique(maintain_order=True).to_list()
    if len(margins) != len(names):
        found.bad(
            f"the specification fixes {len(margins)} tables and {len(names)} are published",
            where="public/invariants.parquet",
        )
    for name, margin in zip(names, margins, strict=False):
        variables = [variable for variable in margin.variables if variable in published.columns]
        missing = [variable for variable in variables if variable not in data.columns]
        if missing:
            found.bad(f"the released file has no column {', '.join(missing)}", where=f"invariant {margin}")
            continue
        cells = published.filter(pl.col("table") == name).select(*variables, "count")
        if not _same_cells(cells, data, variables):
            found.bad(f"the released file does not have the published table '{name}'", where=f"invariant {margin}")
        else:
            found.checks.append(f"{margin}: {cells.height:,} cells, counted anew")


def _same_cells(published: pl.DataFrame, data: pl.DataFrame, variables: Sequence[str]) -> bool:
    counted = data.group_by(variables).len("count") if variables else pl.DataFrame({"count": [data.height]})
    both = []
    for frame in (published, counted):
        # What is no number is kept, and then differs.
        kept = frame.filter(pl.col("count").cast(pl.Int64, strict=False).ne_missing(0)).select(*variables, "count")
        kept = _as_text(kept)
        both.append(kept.sort(kept.columns))
    return both[0].equals(both[1], null_equal=True)


def _as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame as a reader of CSV gets it, so that released CSV and Parquet compare."""
    if not frame.height:
        return frame.cast(pl.String)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "as-read.csv"
        write_frame(frame, path)
        return read_frame(path)


def _identifiers(specification: Specification, data: pl.DataFrame, found: Findings) -> list[str]:
    """Check that a column outside every invariant is a number issued anew: 1, 2, ... in the released order."""
    margins = [m for m in specification.multiverse.invariants if isinstance(m, Margin)]
    known = {variable for margin in margins for variable in margin.variables}
    fresh = pl.Series(range(1, data.height + 1), dtype=pl.Int64)
    extra = [name for name in data.columns if name not in known]
    for name in extra:
        if not data[name].cast(pl.Int64, strict=False).equals(fresh, check_names=False):
            found.bad(
                f'"{name}" is in no invariant and is not 1 to {data.height}: an old identifier tells records apart',
                where="public/data",
            )
        else:
            found.checks.append(f'identifiers "{name}" are 1 to {data.height:,}')
    return extra


def _order(specification: Specification, data: pl.DataFrame, found: Findings) -> None:
    """Check that rows are grouped by released values and otherwise in random order (swapping theory, section 9.1)."""
    if not data.width:
        return
    margins = [m.variables for m in specification.multiverse.invariants if isinstance(m, Margin)]
    # The variables of one table of the invariants only are those that were swapped.
    swapped = [v for v in margins[0] if v in data.columns and v not in margins[1]] if len(margins) == 2 else []
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


def _tables(bundle: Path, data: pl.DataFrame, persons: pl.DataFrame | None, found: Findings) -> None:
    """Count the published tables anew: from households, or from persons with the variables of their household."""
    for path in sorted((bundle / "public" / "tables").glob("*.csv")):
        place = f"public/tables/{path.name}"
        try:
            table = read_frame(path)
        except StirredError as error:
            found.problems += error.problems
            continue
        variables = [name for name in table.columns if name != "count"]
        counted = data if set(variables) <= set(data.columns) else persons
        if "count" not in table.columns or counted is None or not set(variables) <= set(counted.columns):
            found.bad("it cannot be counted anew from the released files", where=place)
        elif not _same_cells(table, counted, variables):
            found.bad("it is not the table of the released file", where=place)
        else:
            found.checks.append(f"table {path.stem}{'' if counted is data else ' of persons'}: counted anew")


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
    for place in (SEEDED_MARK, f"public/{SEEDED_MARK}"):
        yield place, (bundle / place).exists()
    for path in sorted((bundle / "public").glob("*.parquet")):
        parts = sorted(path.glob("*.parquet"))[:1] if path.is_dir() else [path]
        for part in parts:
            try:
                yield f"public/{path.name}", "stirred.seeded" in pl.read_parquet_metadata(part)
            except (OSError, pl.exceptions.PolarsError):
                continue
