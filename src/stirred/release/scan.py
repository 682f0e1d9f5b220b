"""Doubts about a bundle that is to be published: whatever must not leave the agency, looked for in its files.

The audit of the bundle counts everything anew; here every file of `public/` is held against the list of what
may be there, column by column. What no rule allows is a doubt, and a doubt is enough to refuse.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from pydantic import BaseModel, ConfigDict

from stirred.audit.bundle import audit_bundle, seeded_marks
from stirred.audit.bundle_files import MANIFEST
from stirred.data.codes import tells_records_apart
from stirred.data.frames import read_frame
from stirred.data.problems import bad_file, listed
from stirred.mechanisms.swapping.response_swap import RESPONSE_COLUMNS
from stirred.mechanisms.swapping.two_stage import FINE_COLUMNS
from stirred.release.bundle import SEEDED_MARK, checksum
from stirred.report.swap import INTERNAL_STAMP, PUBLIC_STAMP
from stirred.spec.document import from_json
from stirred.spec.invariant import Margin
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import Specification

_PART = r"(/part-\d{5}\.(parquet|csv))?"
_MAY_BE_THERE = re.compile(
    rf"(data|persons)\.(parquet|csv){_PART}|(invariants|strata)\.parquet{_PART}|tables/[^/]+\.csv"
    r"|specification\.(json|md)|README\.md|report\.html"
)
_NOTES = {"ARROW:schema", "stirred.specification", "stirred.seeded"}
_OF_STRATA = {"stratum_records", "stratum_live", "stratum_law", "stratum_rate", "stratum_expected_share_moved"}
_AGAIN = "do not publish it; make the release again"


class _Lenient(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Released(_Lenient):
    households: list[str]
    persons: list[str]
    link: str | None


class _Mechanism(_Lenient):
    name: str = "permutation-swap"
    match: list[str]
    swap: list[str]
    imputed: str | None = None
    respond: str | None = None


class _Release(_Lenient):
    ledger: str | None = None


class _Plan(_Lenient):
    mechanism: _Mechanism
    release: _Release = _Release()


class Manifest(_Lenient):
    """What publishing needs to know from manifest.json."""

    seeded: bool
    files: dict[str, str]
    identifiers: list[str]
    released: _Released
    plan: _Plan
    ledger: dict[str, str | int] | None = None

    @property
    def public(self) -> dict[str, str]:
        """Return the public files, named from `public/` on, with their checksums."""
        return {name.removeprefix("public/"): c for name, c in self.files.items() if name.startswith("public/")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What was looked at, what gives doubt, and the public files with their checksums."""

    files: Mapping[str, str]
    checks: tuple[str, ...]
    doubts: tuple[Problem, ...]
    ledger: Mapping[str, str | int] | None = None


def scan_bundle(bundle: Path, *, harmless: Sequence[str] = ()) -> Scan:
    """Return every doubt about publishing a bundle.

    ``harmless`` names columns that differ for every record and still identify nobody.
    """
    public = bundle / "public"
    if not bundle.is_dir() or not public.is_dir():
        raise bad_file(
            "there is no bundle here",
            where=str(bundle),
            remedy="name the folder of a finished release, with public/ and manifest.json in it",
        )
    audit = audit_bundle(bundle)
    doubts = [*audit.problems, *_paths(public), *_permissions(bundle)]
    manifest, specification = _manifest(bundle), _specification(public)
    if manifest is None:
        doubts.append(_doubt("it does not say what was released", MANIFEST, _AGAIN))
        return Scan(files={}, checks=audit.checks, doubts=tuple(dict.fromkeys(doubts)))
    doubts += _test_run(bundle, manifest, specification)
    if manifest.ledger is None and manifest.plan.release.ledger is not None:
        doubts.append(_doubt("its plan names a ledger, and the manifest no entry in one", MANIFEST, _AGAIN))
    doubts += _from_internal(bundle, manifest)
    doubts += _report(public)
    if specification is not None:
        doubts += _promise(specification)
        doubts += _columns(public, manifest, specification)
        doubts += _notes(public, specification)
    doubts += _identifying(public, manifest, harmless)
    checks = (
        *audit.checks,
        f"{len(manifest.public)} public files: nothing hidden, no links, no file without a rule",
        "columns: all in the specification, no identifiers",
        "nothing of internal/, which only its owner may read",
        *(f'"{name}" identifies nobody, as you say' for name in harmless),
    )
    return Scan(files=manifest.public, checks=checks, doubts=tuple(dict.fromkeys(doubts)), ledger=manifest.ledger)


def _doubt(what: str, where: str, remedy: str) -> Problem:
    return Problem(what=what, where=where, remedy=remedy)


def _manifest(bundle: Path) -> Manifest | None:
    try:
        return Manifest.model_validate(json.loads((bundle / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return None


def _specification(public: Path) -> Specification | None:
    """Return the specification; what is wrong with it, the audit says."""
    try:
        return from_json((public / "specification.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, StirredError):
        return None


def _paths(public: Path) -> Iterator[Problem]:
    """Look at every name below public/: links, hidden files, and files for which there is no rule."""
    for top in (public, public.parent / "internal"):
        if top.is_symlink():
            yield _doubt("it is a link and not a folder", top.name, "put the folder itself there")
    for folder, folders, files in os.walk(public):
        for name in sorted([*folders, *files]):
            path = Path(folder) / name
            place, mode = f"public/{path.relative_to(public).as_posix()}", path.lstat().st_mode
            if stat.S_ISLNK(mode):
                yield _doubt("it is a link: nobody knows where it leads tomorrow", place, "remove it")
            elif name.startswith("."):
                yield _doubt("it is hidden", place, "remove it")
            elif stat.S_ISDIR(mode):
                continue
            elif not stat.S_ISREG(mode):
                yield _doubt("it is not a file", place, "remove it")
            elif name != SEEDED_MARK and not _MAY_BE_THERE.fullmatch(place.removeprefix("public/")):
                yield _doubt("there is no rule that a release has such a file", place, "remove it")


def _permissions(bundle: Path) -> Iterator[Problem]:
    """Look whether anybody but the owner may read what was computed from confidential data."""
    internal = bundle / "internal"
    if not internal.is_dir():
        return
    open_ = [path for path in (internal, *sorted(internal.rglob("*"))) if path.lstat().st_mode & 0o077]
    if open_:
        names = ", ".join(path.relative_to(bundle).as_posix() for path in open_[:3])
        yield _doubt(
            f"others than its owner may use {names}{', ...' if len(open_) > 3 else ''}",
            "internal",
            f"find out who read it, and run `chmod -R go= {internal}`",
        )


def _test_run(bundle: Path, manifest: Manifest, specification: Specification | None) -> Iterator[Problem]:
    marks = seeded_marks(bundle, {"seeded": manifest.seeded}, specification)
    if said := [name for name, seeded in marks.items() if seeded]:
        yield _doubt(
            f"this is a test run with a seed, say {', '.join(said)}",
            "marks of a test run",
            "make the release without --seed: whoever knows a seed can undo the protection",
        )


def _from_internal(bundle: Path, manifest: Manifest) -> Iterator[Problem]:
    """Look for copies of internal files; later evaluations are not in the manifest, and are read."""
    inside = {digest: name for name, digest in manifest.files.items() if name.startswith("internal/")}
    for path in sorted((bundle / "internal").rglob("*")):
        name = path.relative_to(bundle).as_posix()
        if path.is_file() and name not in manifest.files:
            inside[checksum(path)] = name
    for name, digest in manifest.public.items():
        if digest in inside:
            yield _doubt(f"it is a copy of {inside[digest]}", f"public/{name}", _AGAIN)


_LINK = re.compile(r"""\b(?:href|src)\s*=\s*["']?\s*(?!#|data:)([^"'\s>]+)""", re.IGNORECASE)
_WAY_INSIDE = re.compile(r"""(?:\]\(|\]:\s*|<|["'])\s*((?:file:|[^\s()<>"']*\binternal/)[^\s()<>"']*)""")


def _report(public: Path) -> Iterator[Problem]:
    """Look whether the report is the public edition, and whether any page leads inside."""
    for path in sorted(public.glob("*")):
        if path.suffix not in (".html", ".md") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        place = f"public/{path.name}"
        if path.suffix == ".html" and (PUBLIC_STAMP not in text or INTERNAL_STAMP in text):
            yield _doubt("it is not the public edition of the report", place, _AGAIN)
        links = _LINK if path.suffix == ".html" else _WAY_INSIDE
        for target in sorted(set(links.findall(text))):
            yield _doubt(f"it leads to {target}, outside of what is published", place, _AGAIN)


def _promise(specification: Specification) -> Iterator[Problem]:
    place = "public/specification.json"
    if specification.budget.is_free:
        yield _doubt("its budget is a letter without a value, so nothing is promised", place, _AGAIN)
    elif specification.budget.realised.is_infinite:
        remedy = "choose a rate between 0 and 1, and make the release again"
        yield _doubt("its loss is infinite, so nothing is promised", place, remedy)
    if specification.settings_from == "this-data":
        yield _doubt(
            "its settings were chosen by looking at the confidential file, which voids the promise", place, _AGAIN
        )


def _columns(public: Path, manifest: Manifest, specification: Specification) -> Iterator[Problem]:
    """Hold the columns of every table against the specification, the plan's released columns and its identifiers."""
    released, mechanism = manifest.released, manifest.plan.mechanism
    promised = {v for m in specification.multiverse.invariants if isinstance(m, Margin) for v in m.variables}
    exact = promised & set(released.households)
    # The variable of a response is released and in no invariant: never in a table that is published exactly.
    homes = exact if mechanism.respond is None else exact | ({mechanism.respond} & set(released.households))
    of_strata = _OF_STRATA if mechanism.respond is None else {*_OF_STRATA, *RESPONSE_COLUMNS.values()}
    if mechanism.name == "two-stage-swap":
        of_strata = {*of_strata, *FINE_COLUMNS.values()}
    link = set() if released.link is None else {released.link}
    allowed: dict[str, set[str]] = {
        "data": homes | link,
        "persons": {*(homes & {*mechanism.swap}), *released.persons} | link,
        "invariants": exact | {"table", "count"},
        "strata": (exact & {*mechanism.match, mechanism.imputed}) | of_strata,
        "tables": homes | {*released.persons, "count"},
    }
    if mechanism.name == "noisy-swap":
        # No records, and of the strata their sizes; which have anything to swap is protected.
        fixed = {*mechanism.match, "table", "count"}
        strata = {*mechanism.match} | _OF_STRATA - {"stratum_live"}
        allowed = {"invariants": fixed, "strata": strata, "tables": {*released.households, "count"}}
    for path in _tables(public):
        place = path.relative_to(public)
        rules = allowed.get(place.parts[0].split(".")[0], set())
        names = _header(path)
        if names is None:
            yield _doubt("it cannot be read", f"public/{place}", _AGAIN)
            continue
        may_link = rules & link
        named = [name for name in names if name in manifest.identifiers and name not in may_link]
        other = [name for name in names if name not in rules and name not in named]
        if named:
            yield _doubt(f"{listed(named)} is an identifier by the plan", f"public/{place}", _AGAIN)
        if other:
            yield _doubt(f"{listed(other)} is not in the specification", f"public/{place}", _AGAIN)


def _tables(public: Path) -> list[Path]:
    return [path for path in sorted(public.rglob("*")) if path.suffix in (".parquet", ".csv") and path.is_file()]


def _header(path: Path) -> list[str] | None:
    try:
        if path.suffix == ".csv":
            return pl.read_csv(path, n_rows=0, infer_schema=False).columns
        return list(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError):
        return None


def _notes(public: Path, specification: Specification) -> Iterator[Problem]:
    """Look at what Parquet files say beside their columns."""
    for path in _tables(public):
        if path.suffix != ".parquet":
            continue
        place = f"public/{path.relative_to(public)}"
        try:
            notes = pl.read_parquet_metadata(path)
        except (pl.exceptions.PolarsError, OSError):
            continue  # said by the columns
        if other := sorted(set(notes) - _NOTES):
            yield _doubt(f"its metadata hold {listed(other)}, which no rule allows", place, _AGAIN)
        if notes.get("stirred.specification") != specification.notation:
            yield _doubt("its metadata name another specification, or none", place, _AGAIN)


def _identifying(public: Path, manifest: Manifest, harmless: Sequence[str]) -> Iterator[Problem]:
    """Look for identifiers that nobody named as such: columns that are different for every record."""
    for kind in ("data", "persons"):
        for path in sorted(public.glob(f"{kind}.*")):
            try:
                frame = read_frame(path)
            except StirredError:
                continue  # said by the audit
            for column in frame.get_columns():
                if column.name in (manifest.released.link, *harmless) or not tells_records_apart(column):
                    continue
                yield _doubt(
                    f'"{column.name}" is different for every record, as an identifier is',
                    f"public/{path.name}",
                    f"name it with --id {column.name}, or in a plan under [data] id, and release again; if it "
                    f"identifies nobody, publish with --harmless {column.name}",
                )
