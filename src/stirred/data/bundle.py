"""A bundle as its readers find it: the files, their checksums, the manifest, and the promise.

Everything that reads a bundle (audit, publish, recovery, corrections, reports) goes through here.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import BaseModel, ConfigDict

from stirred import __version__
from stirred.data.child import is_unread, parquet_below, unreadable_parquet
from stirred.data.columns import has_text
from stirred.data.frames import as_read, read_frame
from stirred.data.place import CHECKSUMS, MANIFEST
from stirred.data.problems import DataError, bad_file, control_letters
from stirred.data.sources import is_read
from stirred.data.table_labels import ENDING, label_columns, without_labels
from stirred.spec.document import MechanismDocument, from_json, mechanism_in
from stirred.spec.domain import file_identity
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import Specification

SEEDED_MARK: Final = "SEEDED-TEST-RUN.txt"
SPECIFICATION: Final = "specification.json"
_PAGES: Final = (".json", ".md", ".html", ".sha256", ".txt", ".jsonl")
_LONGEST_PAGE: Final = 1 << 28


# ---- the manifest -----------------------------------------------------------------------------------------


class _Kept(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Data(_Kept):
    households: str | None = None
    file: str | None = None
    counts: str | None = None
    sample: str | None = None
    name: str | None = None
    stage: str | None = None  # bundles from before plans could say it have none
    post_imputation: bool | None = None


class _ManifestTable(_Kept):
    variables: list[str]
    level: str | None = None


class _Release(_Kept):
    ledger: str | None = None
    accept: list[str] = []
    purpose: str | None = None


class _Plan(_Kept):
    data: _Data = _Data()
    prepare: list[dict[str, Any]] = []
    mechanism: dict[str, Any] = {}
    tables: list[_ManifestTable] = []
    release: _Release = _Release()


class _Released(_Kept):
    households: list[str]
    persons: list[str]
    link: str | None


class PublicFileListed(_Kept):
    """A public file as the run listed it: its name below ``public/``, its kind, and every column it may have."""

    name: str
    kind: str
    columns: list[str]


class _Doubt(_Kept):
    name: str
    what: str
    refuses: bool
    accepted: bool


class Manifest(_Kept):
    """What manifest.json says of a bundle; what it does not say is empty."""

    files: dict[str, str]
    inputs: dict[str, str] = {}
    records: Any = None
    stirred: str = ""
    seeded: bool = False
    identifiers: list[str] = []
    released: _Released | None = None
    public_files: list[PublicFileListed] | None = None
    plan: _Plan | None = None
    doubts: list[_Doubt] | None = None
    ledger: dict[str, str | int] | None = None
    readme: str | None = None  # README.md as it was written; bundles from before it was kept have none

    @classmethod
    def read(cls, written: bytes) -> Manifest | None:
        """Return the manifest in these bytes, or None if there is none."""
        try:
            return cls.model_validate(json.loads(written.decode("utf-8")))
        except (ValueError, RecursionError):
            return None

    @property
    def public(self) -> dict[str, str]:
        """Return the public files, named from `public/` on, with their checksums."""
        return {name.removeprefix("public/"): c for name, c in self.files.items() if name.startswith("public/")}

    @property
    def accepted(self) -> list[str]:
        """Return the names of the doubts that the release accepted."""
        return [doubt.name for doubt in self.doubts or () if doubt.accepted]

    @property
    def mechanism(self) -> tuple[str, dict[str, Any]]:
        """Return the name of the mechanism, empty if it is not said, and its settings."""
        section = {} if self.plan is None else self.plan.mechanism
        settings = {key: value for key, value in section.items() if key != "name"}
        return str(section.get("name", "")), settings

    @property
    def tables(self) -> list[list[str]]:
        """Return the variables of the plan's tables."""
        tables = () if self.plan is None else self.plan.tables
        return [[*table.variables, *([table.level] if table.level else [])] for table in tables]


# ---- the files --------------------------------------------------------------------------------------------


def public_folder(bundle: Path) -> Path:
    """Return the public folder: that of a bundle, or the given one if it is what was published."""
    if not bundle.is_dir():
        what = "this is a file, not a folder" if bundle.exists() else "there is no such folder"
        raise bad_file(what, where=str(bundle), remedy="name the folder of a finished release")
    whole = os.path.lexists(bundle / "public") or os.path.lexists(bundle / MANIFEST)
    if whole or os.path.lexists(bundle / SPECIFICATION):
        if odd := [*odd_files(bundle)]:
            raise DataError(odd)
        return bundle / "public" if whole else bundle
    raise bad_file(
        "this is not a bundle: there is neither manifest.json nor public/ in it, nor a specification.json",
        where=str(bundle),
        remedy="name the folder that `stirred release` or `stirred swap` made, or one that was published",
    )


def odd_files(bundle: Path, *, linked: bool = True) -> Iterator[Problem]:
    """Yield a problem for what no bundle has, before any of it is opened.

    A link leads somewhere else, a pipe never ends, a device fills the memory. No page is that long, and a name that
    is no text cannot be listed. Unless files may be ``linked``, a public one with another name elsewhere is odd too.
    """
    for folder, folders, files in os.walk(bundle):
        for name in sorted([*folders, *files]):
            path = Path(folder) / name
            found, where = path.lstat(), ascii(str(path.relative_to(bundle)))[1:-1]
            what = ""
            if not name.isprintable() and control_letters(name):
                what = "its name holds letters that no file of a bundle has"
            elif stat.S_ISLNK(found.st_mode):
                what = "it is a link, and may lead elsewhere tomorrow"
            elif not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
                what = "it is a pipe or a device, and not a file"
            elif path.suffix in _PAGES and found.st_size > _LONGEST_PAGE:
                what = f"it has {found.st_size:,} bytes, and no page is that long"
            elif stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and not (linked or where.startswith("internal/")):
                what = "it has another name elsewhere (a hard link), and may be another file"
            if what:
                remedy = "remove it, or put a copy of the file itself there"
                yield Problem(what=what, where=where, remedy=f"find out who put it there, and {remedy}")


def published_specification(public: Path) -> Specification | None:
    """Return the promise in a public folder, or None if it cannot be read."""
    try:
        return from_json((public / SPECIFICATION).read_text(encoding="utf-8"))
    except (OSError, ValueError, StirredError):
        return None


def stated_mechanism(public: Path) -> MechanismDocument | None:
    """Return the mechanism that a public folder states, with its public settings; None if it states none."""
    try:
        return mechanism_in((public / SPECIFICATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def checksum(path: Path) -> str:
    """Return the SHA-256 of a file, or of the parts of a folder one after the other, with what its folders say."""
    if path.is_dir():
        inside = [each for each in sorted(path.iterdir()) if is_read(each.name, folder=each.is_dir())]
        folders = {each: each.name for each in inside if each.is_dir()}  # their names are values of their records
        parts = "".join(folders.get(each, "") + checksum(each) for each in inside if each in folders or each.is_file())
        return hashlib.sha256(parts.encode()).hexdigest()
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def files_of(folder: Path) -> set[str]:
    """Return the names of all files of a bundle but the manifest, from the folder on."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {MANIFEST}


@dataclass(slots=True)
class Findings:
    """Checks that passed, in words; problems; warnings about a bundle without fault; and what was not checked."""

    checks: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    unread: dict[Path, str] = field(default_factory=dict)  # files that must not be parsed here, each with its reason

    manifest: bytes = b""  # as it was read, once

    def bad(self, what: str, *, where: str, remedy: str = "do not publish it, and find out who changed it") -> None:
        """Add a problem."""
        self.problems.append(Problem(what=what, where=where, remedy=remedy))


@dataclass(kw_only=True, eq=False)
class BundleFiles:
    """The public folder of a bundle with its promise, and the manifest where the whole bundle is there.

    Tables are read when they are first asked for; what cannot be read is None, and ``found`` says so once.
    """

    public: Path
    specification: Specification
    found: Findings
    manifest: Manifest | None = None
    beside: Sequence[str] = ()  # columns of tables that are neither variables nor counts

    @property
    def same_version(self) -> bool:
        """Say whether this version of stirred made it, so that every sentence in it can be compared."""
        return self.manifest is not None and self.manifest.stirred == __version__

    @property
    def source(self) -> str | None:
        """Return how the plan calls the file of the records; None where there is no plan."""
        plan = None if self.manifest is None else self.manifest.plan
        return None if plan is None else plan.data.households or plan.data.file or plan.data.counts or plan.data.sample

    @property
    def called(self) -> str:
        """Return the name that plan or ledger give the data, if any."""
        if self.manifest is None or self.manifest.plan is None:
            return ""
        return self.manifest.plan.data.name or str((self.manifest.ledger or {}).get("dataset", ""))

    @property
    def stage(self) -> tuple[str, bool | None] | None:
        """Return the stage of processing that the plan states, and whether that is after imputation."""
        plan = None if self.manifest is None else self.manifest.plan
        return None if plan is None or plan.data.stage is None else (plan.data.stage, plan.data.post_imputation)

    @property
    def prepared(self) -> tuple[tuple[str, str], ...]:
        """Return what the plan does to columns before its mechanism; without a plan the specification is believed."""
        from stirred.data.steps import words_in

        plan = None if self.manifest is None else self.manifest.plan
        try:
            return self.specification.domain.prepared if plan is None else words_in(plan.prepare)
        except ValueError:  # steps that cannot be written
            return ()

    @property
    def accepted(self) -> list[str]:
        """Return the names of the doubts that the plan accepts."""
        plan = None if self.manifest is None else self.manifest.plan
        return [] if plan is None else plan.release.accept

    @cached_property
    def data(self) -> pl.DataFrame | None:
        """Return the released records."""
        return self._one("data")

    @property
    def has_persons(self) -> bool:
        """Say whether persons are released."""
        return any(self.public.glob("persons.*"))

    @cached_property
    def persons(self) -> pl.DataFrame | None:
        """Return the released persons, if there are any."""
        return self._one("persons") if self.has_persons else None

    @cached_property
    def invariants(self) -> pl.DataFrame | None:
        """Return the published tables of the invariants."""
        return self.side("invariants.parquet")

    @cached_property
    def strata(self) -> pl.DataFrame | None:
        """Return the published strata."""
        return self.side("strata.parquet")

    def side(self, name: str) -> pl.DataFrame | None:
        """Return another file of the public folder."""
        return read_released(self.public / name, self.found, where=f"public/{name}", empty=True)

    def _one(self, name: str) -> pl.DataFrame | None:
        places = sorted(self.public.glob(f"{name}.*"))
        if len(places) != 1:
            self.found.bad(f"there are {len(places)} such files instead of one", where=f"public/{name}")
            return None
        return read_released(places[0], self.found, where=f"public/{name}")

    def tables(self) -> Iterator[tuple[str, str, pl.DataFrame, list[str]]]:
        """Yield each table that can be read, with its name, its place for messages, and its variables."""
        for path in sorted((self.public / "tables").glob("*.csv")):
            where = f"public/tables/{path.name}"
            table = read_released(path, self.found, where=where)
            if table is None:
                continue
            for label in label_columns(table.columns):
                # Anything may stand in a column of labels; a label belongs to its code, and says nothing of a cell.
                codes = table.select(label.removesuffix(ENDING))
                if codes.hstack(table.select(label)).n_unique() != codes.n_unique():
                    self.found.bad(f"{label} has two labels for one code", where=where)
            table = without_labels(table)
            yield path.stem, where, table, [name for name in table.columns if name not in ("count", *self.beside)]

    @property
    def issued(self) -> list[str]:
        """Return the columns of the records that are newly issued numbers, 1, 2, ... in any order."""
        if self.data is None:
            return []
        return [c.name for c in self.data.get_columns() if issued_anew(c.cast(pl.Int64, strict=False).sort())]

    @property
    def joined(self) -> pl.DataFrame | None:
        """Return the persons with all variables of their household; None where they cannot be linked."""
        data, persons = self.data, self.persons
        links = [] if persons is None else [name for name in self.issued if name in persons.columns]
        if data is None or persons is None or len(links) != 1:
            return None
        rows = rows_of(persons[links[0]], data[links[0]])
        if rows is None:
            return None
        homes = data.drop(self.issued)[rows]
        own = [name for name in persons.columns if name not in (*links, *homes.columns)]
        return pl.concat([homes, persons.select(own)], how="horizontal")


def issued_anew(column: pl.Series) -> bool:
    """Say whether a column is 1, 2, ... in its order."""
    fresh = pl.int_range(1, len(column) + 1, eager=True)
    return column.cast(pl.Int64, strict=False).equals(fresh, check_names=False)


def rows_of(link: pl.Series, ids: pl.Series) -> pl.Series | None:
    """Return the row of each person's household, found by its id, or None if an id is unknown or stands twice."""
    index = pl.DataFrame({"id": ids.cast(pl.String)}).with_row_index("row")
    if index["id"].is_duplicated().any():
        return None
    rows = pl.DataFrame({"id": link.cast(pl.String)}).join(index, on="id", how="left", maintain_order="left")["row"]
    return None if rows.null_count() else rows


def same_cells(published: pl.DataFrame, data: pl.DataFrame, variables: Sequence[str]) -> bool:
    """Say whether a published table has the counts of the data; cells of 0 may be left out."""
    counted = data.group_by(variables).len("count") if variables else pl.DataFrame({"count": [data.height]})
    both = []
    for frame in (published, counted):
        # What is no number is kept, and then differs.
        kept = frame.filter(pl.col("count").cast(pl.Int64, strict=False).ne_missing(0)).select(*variables, "count")
        kept = as_text(kept)
        both.append(kept.sort(kept.columns))
    return both[0].equals(both[1], null_equal=True)


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame as a reader of CSV gets it, so that released CSV and Parquet compare."""
    if not frame.height:
        return frame.cast(pl.String)
    return as_read(frame, "csv")


# ---- checksums --------------------------------------------------------------------------------------------


def audit_manifest(bundle: Path, found: Findings) -> Manifest | None:
    """Return the manifest after comparing all files with it, or None if it cannot be read."""
    try:
        found.manifest = (bundle / MANIFEST).read_bytes()
    except OSError:
        found.manifest = b""
    manifest = Manifest.read(found.manifest)
    if manifest is None:
        found.bad("it is missing or cannot be read, so no file can be trusted", where=MANIFEST)
        return None
    # Later evaluations are appended with checksums of their own.
    present = {name for name in files_of(bundle) if not name.startswith("internal/evaluations/")}
    _compare(bundle, present, manifest.files, "the manifest", found)
    return manifest


def audit_published(public: Path, found: Findings) -> None:
    """Compare the files of a published folder with the checksums that were published with them, if any."""
    try:
        lines = (public / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        found.unchecked.append(f"checksums: there is neither {MANIFEST} nor {CHECKSUMS} here")
        return
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    _compare(public, files_of(public) - {CHECKSUMS}, recorded, CHECKSUMS, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRelease:
    """A release of ours, whole and unchanged, as another one finds it: its title, its promise, and its checksum.

    The checksum is that of its manifest, or of the list that was published with it. Of a bundle the promise knows which
    file it is of, by its checksum and stated name; of what was published, its ledger alone.
    """

    title: str
    specification: Specification
    sha256: str


def release_of(file: Path) -> FinishedRelease:
    """Return the release that a public file belongs to; refuse a file of none, and a release that was changed."""
    remedy = (
        "name a public file in the bundle of a finished release, or in the folder that was published: its "
        "specification.json and its checksums are read there"
    )
    public = next((folder for folder in file.parents if (folder / SPECIFICATION).is_file()), None)
    if public is None:
        raise bad_file("it belongs to no release that states what it promises", where=str(file), remedy=remedy)
    found, listed, known = Findings(), public / CHECKSUMS, frozenset[str]()
    if public.name == "public" and (public.parent / MANIFEST).is_file():
        listed = public.parent / MANIFEST
        manifest = Manifest.read(listed.read_bytes())
        _compare(public, files_of(public), {} if manifest is None else manifest.public, MANIFEST, found)
        if manifest is not None:
            name = "" if manifest.plan is None else manifest.plan.data.name or ""
            known = file_identity(files=manifest.inputs.values(), name=name)
    else:
        audit_published(public, found)
    specification = published_specification(public)
    if found.problems or found.unchecked or specification is None:
        wrong = [*(f"{each.where}: {each.what}" for each in found.problems[:1]), *found.unchecked]
        why = wrong[0] if wrong else f"{SPECIFICATION} cannot be read"
        raise bad_file(f"its release cannot be checked ({why})", where=str(file), remedy=remedy)
    try:
        heading = (public / "specification.md").read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        heading = ""
    title = heading.removeprefix("# ").replace("\\", "")[:200].strip()
    sha256 = checksum(listed)
    known |= specification.domain.identity | file_identity(releases=[sha256])
    domain = replace(specification.domain, identity=known)
    return FinishedRelease(
        title=title or domain.name, specification=specification.with_flavor(domain=domain), sha256=sha256
    )


def probe_parquet(public: Path, found: Findings) -> None:
    """Try the Parquet files of a public folder in a process of its own; those with a wrong checksum are not tried."""
    files = [path for path in parquet_below(public) if path not in found.unread]
    found.unread |= unreadable_parquet(files)


def read_released(path: Path, found: Findings, *, where: str, empty: bool = False) -> pl.DataFrame | None:
    """Return a table of a bundle; what cannot be read, or is of a kind that is never released, is a finding."""
    if (why := is_unread(path, found.unread)) is not None:
        found.bad(f"it cannot be read: {why}", where=where)
        return None
    try:
        frame = read_frame(path, empty=empty)
    except StirredError as error:
        for problem in error.problems:
            found.bad(f"it cannot be read: {problem.what}", where=where)
        return None
    odd = [f'"{name}" ({kind})' for name, kind in frame.schema.items() if kind != pl.Null and not has_text(kind)]
    if odd:
        found.bad(f"it has values of a kind that is never released: {', '.join(odd)}", where=where)
    return None if odd else frame


def _compare(folder: Path, present: set[str], recorded: Mapping[str, str], where: str, found: Findings) -> None:
    before = len(found.problems)
    for name in sorted(set(recorded) - present):
        found.bad(f"it is in {where} and not in the folder", where=name)
    for name in sorted(present - set(recorded)):
        found.bad(f"it is in the folder and not in {where}", where=name)
    for name in sorted(set(recorded) & present):
        if checksum(folder / name) != recorded[name]:
            found.bad(f"it is not the file {where} describes", where=name)
            if name.endswith(".parquet"):
                found.unread[folder / name] = "it was changed, so it is not opened"
    if len(found.problems) == before:
        found.checks.append(f"checksums of {len(recorded)} files")
