"""Doubts about a bundle that is to be published: whatever must not leave the agency, looked for in its files.

The audit of the bundle counts everything anew; here every file of `public/` is held against the list of what
may be there, column by column. What no rule allows is a doubt, and a doubt is enough to refuse.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape, unescape
from pathlib import Path

import polars as pl

from stirred import __version__
from stirred.audit.bundle import NO_BOUND, audit_bundle, seeded_marks
from stirred.data.bundle import (
    SEEDED_MARK,
    SPECIFICATION,
    Manifest,
    PublicFileListed,
    checksum,
    published_specification,
)
from stirred.data.child import is_unread
from stirred.data.csv_text import csv_header, formula_doubts
from stirred.data.frames import read_frame
from stirred.data.place import MANIFEST
from stirred.data.problems import DataError, bad_file, invisible_letters, listed
from stirred.data.record_doubts import identifier_doubt, identifying
from stirred.data.sources import Source
from stirred.data.table_labels import label_columns
from stirred.mechanisms.protocol import Mechanism, ReleasedColumns
from stirred.mechanisms.registry import EARLIER
from stirred.release.rewriting import Rewriting
from stirred.report.page_reader import unshown
from stirred.report.readme import WEAK_POINTS, Readme
from stirred.report.release import INTERNAL_STAMP, PUBLIC_STAMP
from stirred.spec.document import account_in, mechanism_in, to_json
from stirred.spec.doubts import Doubt, accepted_in_words, nothing_promised, refuse_doubts
from stirred.spec.markdown import plain
from stirred.spec.problems import Problem, StirredError
from stirred.spec.reliance import KeysAlone, Unpublished
from stirred.spec.specification import Specification

_PART = r"(/part-\d{5}\.(parquet|csv))?"
_ENDINGS = {"records": "(parquet|csv)", "table": "csv"}
_PAGES = r"specification\.(json|md)|README\.md|report\.html"
TABLES = "tables"
_NOTES = {"ARROW:schema", "stirred.specification", "stirred.seeded"}
Unread = Mapping[Path, str]  # Parquet files that must not be opened, each with its reason
_AGAIN = "do not publish it; make the release again"
_INSTEAD = "release it by a method that promises something"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What was looked at, what gives doubt, and the public files with their checksums.

    ``manifest`` is the checksum of the very bytes that all of it was compared with.
    """

    files: Mapping[str, str]
    checks: tuple[str, ...]
    doubts: tuple[Problem, ...]
    ledger: Mapping[str, str | int] | None = None
    accepted: tuple[str, ...] = ()
    manifest: str = ""
    rewriting: Rewriting | None = None


def scan_bundle(bundle: Path, *, accept: Sequence[str] = ()) -> Scan:
    """Return every doubt about publishing a bundle; ``accept`` names those that somebody answers for."""
    public = bundle / "public"
    if not bundle.is_dir() or not public.is_dir():
        raise bad_file(
            "there is no bundle here",
            where=str(bundle),
            remedy="name the folder of a finished release, with public/ and manifest.json in it",
        )
    audit = audit_bundle(bundle)
    # What an audit warns of, since nothing is wrong with the files, is a promise that protects nothing. No bound at all
    # is what a person may answer for, here too: who made the release did not decide to publish it.
    doubts = [*audit.problems, *(_doubt(each, "promise", _AGAIN) for each in audit.warnings if each != NO_BOUND)]
    again = [nothing_promised(NO_BOUND, remedy=_INSTEAD)] if NO_BOUND in audit.warnings else []
    doubts += _permissions(bundle)
    manifest, specification = Manifest.read(audit.manifest), published_specification(public)
    allowed: dict[str, set[str]] = {}
    if audit.mechanism is not None and specification is not None and manifest is not None:
        allowed = may_have(audit.mechanism, _released(manifest, specification), specification)
    doubts += _paths(public, () if manifest is None else manifest.public_files or (), allowed)
    if manifest is None or manifest.released is None or manifest.plan is None or manifest.public_files is None:
        doubts.append(_doubt("it does not say what was released", MANIFEST, _AGAIN))
        return Scan(files={}, checks=audit.checks, doubts=tuple(dict.fromkeys(doubts)))
    marks = seeded_marks(bundle, manifest, specification, unread=audit.unread)
    if said := [name for name, seeded in marks.items() if seeded]:
        remedy = "make the release without --seed: whoever knows a seed can undo the protection"
        doubts.append(_doubt(f"this is a test run with a seed, say {', '.join(said)}", "marks of a test run", remedy))
    if manifest.ledger is None and manifest.plan.release.ledger is not None:
        doubts.append(_doubt("its plan names a ledger, and the manifest no entry in one", MANIFEST, _AGAIN))
    if manifest.stirred != __version__:
        again.append(_other_version(str(manifest.stirred)))
    doubts += _from_internal(bundle, manifest)
    doubts += page_doubts(public, same_version=manifest.stirred == __version__, unread=audit.unread)
    rewriting = None
    if specification is not None:
        rewriting = _rewriting(public, manifest, specification)
        doubts += not_rewritten(public, manifest.public, rewriting, audit.unread)
        doubts += _other_facts(public, manifest, audit.mechanism)
        doubts += _written_otherwise(public, specification, same_version=manifest.stirred == __version__)
        if {*specification.alone} - {*specification.assumptions, *specification.multiverse.consequences}:
            what = "it marks as true of this release alone what it does not state"
            doubts.append(_doubt(what, f"public/{SPECIFICATION} alone", _AGAIN))
        if specification.settings_from == "this-data":
            what = "its settings were chosen by looking at the confidential file, which voids the promise"
            doubts.append(_doubt(what, "public/specification.json", _AGAIN))
        if audit.mechanism is not None:  # otherwise the audit has said why not
            doubts += _columns(public, manifest, allowed, audit.unread)
        doubts += _notes(public, specification, audit.unread)
    doubts += _of_the_plan(manifest)
    found = [*_identifying(public, manifest, audit.unread), *_formulas(public)]
    left = {each.name: each for each in found if each.name not in manifest.accepted}
    doubts += problems_of(lambda: refuse_doubts([*left.values(), *again], accept=accept))
    checks = (
        *audit.checks,
        f"{len(manifest.public)} public files: nothing hidden, no links, no file without a rule",
        _of_columns([*manifest.accepted, *accept]),
        "nothing of internal/, which only its owner may read",
        *(f"{name}: accepted by the release" for name in manifest.accepted),
        *(f"{name}: accepted by you" for name in accept),
    )
    return Scan(
        files=manifest.public,
        checks=checks,
        doubts=tuple(dict.fromkeys(doubts)),
        ledger=manifest.ledger,
        accepted=tuple(manifest.accepted),
        manifest=hashlib.sha256(audit.manifest).hexdigest(),
        rewriting=rewriting,
    )


def _doubt(what: str, where: str, remedy: str) -> Problem:
    return Problem(what=what, where=where, remedy=remedy)


def _other_version(version: str) -> Doubt:
    """Return the doubt about pages that cannot be compared word by word because the manifest names another version.

    What the release accepted does not answer for it: a person who publishes does.
    """
    return Doubt(
        kind="other-version",
        what=f"its manifest names another version of stirred ({version[:20]!a}, and this is {__version__}): not all "
        "sentences of its pages, assumptions and theorems are compared",
        remedy="publish it with that version, or read README.md, specification.md and report.html first and answer for "
        "them with --accept (what its plan accepts does not count here)",
    )


def _paths(public: Path, declared: Sequence[PublicFileListed], names: Collection[str]) -> Iterator[Problem]:
    """Look at every name below public/ for hidden files, and for files that are not both listed and allowed.

    The list is the run's, and somebody may have changed it; ``names`` are what the mechanism has by its settings.
    Tables are CSV, which the audit counts again.
    """
    own = [file for file in declared if file.name in names]
    tables = [file.name for file in declared if re.fullmatch(rf"{TABLES}/[^/]+", file.name)]
    endings = [
        *(rf"{re.escape(file.name)}\.{_ENDINGS.get(file.kind, 'parquet')}{_PART}" for file in own),
        *(rf"{re.escape(name)}\.csv" for name in tables),
    ]
    may_be_there = re.compile("|".join([_PAGES, *endings]))
    for folder, folders, files in os.walk(public):
        for name in sorted([*folders, *files]):
            path = Path(folder) / name
            place = f"public/{path.relative_to(public).as_posix()}"
            if name.startswith("."):
                yield _doubt("it is hidden", place, "remove it")
            elif path.is_dir():
                continue
            elif name != SEEDED_MARK and not may_be_there.fullmatch(place.removeprefix("public/")):
                yield _doubt("there is no rule that a release has such a file", place, "remove it")


def _permissions(bundle: Path) -> Iterator[Problem]:
    """Look whether anybody but the owner may read what was computed from confidential data."""
    internal, manifest = bundle / "internal", bundle / MANIFEST
    inside = (manifest, internal, *sorted(internal.rglob("*")))
    open_ = [path for path in inside if os.path.lexists(path) and path.lstat().st_mode & 0o077]
    if open_:
        names = ", ".join(path.relative_to(bundle).as_posix() for path in open_[:3])
        yield _doubt(
            f"others than its owner may use {names}{', ...' if len(open_) > 3 else ''}",
            "internal",
            f"find out who read it, and run `chmod -R go= {internal} {manifest}`",
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
# Names are shown as text; only inside a tag do these letters lead anywhere.
_TAG = re.compile(r"""<[a-z/!](?:[^<>"']|"[^"]*"|'[^']*')*>""", re.IGNORECASE)
_WAY_INSIDE = re.compile(r"""(?:\]\(|\]:\s*|<|["'])\s*((?:file:|[^\s()<>"']*\binternal/)[^\s()<>"']*)""")


def page_doubts(public: Path, *, same_version: bool = True, unread: Unread | None = None) -> Iterator[Problem]:
    """Look whether the report is the public edition, whether any page leads inside, and for what pages do not show."""
    promise = public / SPECIFICATION
    said = [promise.read_text(encoding="utf-8", errors="replace")] if promise.is_file() else []
    said += [name for path in _tables(public) if path not in (unread or {}) for name in _header(path) or ()]
    for path in sorted(public.glob("*")):
        if path.suffix not in (".html", ".md") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        place = f"public/{path.name}"
        if path.suffix == ".html" and (PUBLIC_STAMP not in text or INTERNAL_STAMP in text):
            yield _doubt("it is not the public edition of the report", place, _AGAIN)
        html = path.suffix == ".html"
        links = [_LINK.findall(tag) for tag in _TAG.findall(text)] if html else [_WAY_INSIDE.findall(text)]
        for target in sorted({target for found in links for target in found}):
            yield _doubt(f"it leads to {target}, outside of what is published", place, _AGAIN)
        if letters := invisible_letters(unescape(text)):
            yield _doubt(f"it holds letters that nothing draws ({letters})", place, _AGAIN)
        for what in unshown(text, same_version=same_version, said=said) if html else ():
            yield _doubt(f"it holds {what}, which no page of ours has", place, _AGAIN)


def _rewriting(public: Path, manifest: Manifest, specification: Specification) -> Rewriting:
    released = manifest.released
    variables = () if released is None else (*released.households, *released.persons)
    account = account_in((public / SPECIFICATION).read_text(encoding="utf-8"))
    return Rewriting(specification=specification, account=account, variables=variables)


def not_rewritten(public: Path, names: Iterable[str], rewriting: Rewriting, unread: Unread) -> Iterator[Problem]:
    """Look whether every file can be written again, as it is when it is published."""
    for name in names:
        path = public / name
        try:
            if path.is_file() and is_unread(path, unread) is None:
                rewriting.again(path, name)
        except DataError:
            continue  # said by the audit
        except StirredError as error:
            yield from error.problems
        except ValueError:
            yield _doubt("it cannot be read", f"public/{name}", _AGAIN)


def _other_facts(public: Path, manifest: Manifest, mechanism: Mechanism | None) -> Iterator[Problem]:
    """Look whether README.md states what the manifest, the mechanism and the other pages do."""
    pages = {name: public / name for name in ("README.md", "specification.md", "report.html")}
    if not all(path.is_file() for path in pages.values()) or manifest.plan is None:
        return  # said by the audit
    text = {name: path.read_text(encoding="utf-8", errors="replace") for name, path in pages.items()}
    report = " ".join(text["report.html"].split())
    readme, tables = Readme.read(text["README.md"]), len(manifest.tables)
    own = [*(manifest.public_files or ())]
    own, counted = own[: len(own) - tables], own[len(own) - tables :]
    records = [file for file in own if file.kind == "records"]
    files = [file.name for file in (*records, *counted, *(file for file in own if file not in records))]
    accepted = " ".join(accepted_in_words(manifest.accepted).split())
    weak = [each for each in readme.further if each.startswith(WEAK_POINTS)]
    title = f"# {plain(readme.title)}\n"
    wrong = {
        "title": not text["specification.md"].startswith(title) or f"{escape(readme.title)}</h1>" not in report,
        "purpose": " ".join((manifest.plan.release.purpose or "").split()) != readme.purpose,
        "statement of weak points": weak != ([f"{WEAK_POINTS}{accepted}."] if accepted else []),
        "list of files": files != [place.rpartition(".")[0] for place, _ in readme.files],
    }
    if mechanism is not None and manifest.stirred == __version__ and mechanism.name not in EARLIER:
        wrong["method"] = readme.method != " ".join(mechanism.in_words.split())
    for what in (what for what, other in wrong.items() if other):
        yield _doubt(f"it has another {what} than the release", "public/README.md", _AGAIN)


def _written_otherwise(public: Path, specification: Specification, *, same_version: bool) -> Iterator[Problem]:
    """Look whether specification.json is written as we write it: blanks and signs can hide what no reader sees."""
    text = (public / SPECIFICATION).read_text(encoding="utf-8")
    account, mechanism = account_in(text), mechanism_in(text)
    # What reading adds to the documents of earlier versions is not in them.
    relies_on = tuple(one for one in specification.relies_on if not isinstance(one, KeysAlone))
    older = (replace(specification, alone=()), replace(specification, alone=(), relies_on=relies_on))
    again = [to_json(each, account=account, mechanism=mechanism) for each in (specification, *older)]
    if text not in again if same_version else json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n" != text:
        yield _doubt("it is not written as `stirred` writes it", f"public/{SPECIFICATION}", _AGAIN)


def may_have(mechanism: Mechanism, released: ReleasedColumns, specification: Specification) -> dict[str, set[str]]:
    """Return the columns that each public file may have, and under ``tables`` those of tables; no file else.

    In a table that is counted from records stand only columns that the specification speaks of: it fixes them, relies
    on their counts being kept, or lists them.
    """
    kept = {v for each in specification.relies_on if isinstance(each, Unpublished) for v in each.figure.variables}
    homes = {*released.households}
    if mechanism.counts_tables:
        homes &= {*released.fixed, *kept, *specification.domain.columns}
    # Tables that earlier versions wrote beside the others have the same names without a folder.
    files = {Path(file.name).name: {*file.columns} for file in mechanism.files(released)}
    return {**files, TABLES: {*homes, *released.persons, "count", *mechanism.table_columns}}


def _released(manifest: Manifest, specification: Specification) -> ReleasedColumns:
    """Return the columns that a manifest says were released."""
    found = manifest.released
    if found is None:
        return ReleasedColumns()
    columns = {"households": found.households, "persons": found.persons}
    return ReleasedColumns.of(specification, columns, link=found.link)


def _columns(
    public: Path, manifest: Manifest, allowed: Mapping[str, Collection[str]], unread: Unread
) -> Iterator[Problem]:
    """Hold the columns of every table against the list of the release, the mechanism, and the plan's identifiers."""
    assert manifest.released is not None
    link = set() if manifest.released.link is None else {manifest.released.link}
    declared = {file.name: {*file.columns} for file in manifest.public_files or ()}
    for path in _tables(public):
        place = path.relative_to(public)
        names = None if path in unread else _header(path)
        table = place.parts[0] == TABLES
        # Of a folder of parts, its name.
        name = place.with_suffix("").as_posix() if table else Path(place.parts[0]).stem
        rules = {*allowed.get(TABLES if table else name, ())} & declared.get(name, set())
        if table:
            # A column of labels goes with the column of its codes.
            rules |= {*label_columns(names or ())} & declared.get(name, set())
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


def _of_columns(accepted: Sequence[str]) -> str:
    """Say what was found about the columns: no identifiers, or those that somebody accepted."""
    names = sorted({name.partition(":")[2] for name in accepted if name.startswith("identifier:")})
    found = f"accepted although they may identify: {listed(names)}" if names else "no identifiers"
    return f"columns: all in the specification, {found}"


def _tables(public: Path) -> list[Path]:
    return [path for path in sorted(public.rglob("*")) if path.suffix in (".parquet", ".csv") and path.is_file()]


def _header(path: Path) -> list[str] | None:
    try:
        return csv_header(Source(path))[0] if path.suffix == ".csv" else list(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError, DataError):
        return None


def _notes(public: Path, specification: Specification, unread: Unread) -> Iterator[Problem]:
    """Look at what Parquet files say beside their columns."""
    for path in _tables(public):
        if path.suffix != ".parquet" or path in unread:
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


def _of_the_plan(manifest: Manifest) -> Iterator[Problem]:
    """Look whether the plan had doubts about protection that nobody accepted; no run makes such a bundle."""
    if manifest.doubts is None:
        yield _doubt("it does not say which doubts the plan had", MANIFEST, _AGAIN)
    for doubt in manifest.doubts or ():
        if doubt.refuses and not doubt.accepted:
            yield _doubt(f"its plan had a doubt that nobody accepted: {doubt.what}", f"{MANIFEST} {doubt.name}", _AGAIN)


def _identifying(public: Path, manifest: Manifest, unread: Unread) -> Iterator[Doubt]:
    """Look for identifiers that nobody named as such, by the rule that plans have."""
    for name in (file.name for file in manifest.public_files or () if file.kind == "records"):
        for path in sorted(public.glob(f"{name}.*")):
            if is_unread(path, unread) is not None:
                continue
            try:
                frame = read_frame(path)
            except StirredError:
                continue  # said by the audit
            for column in frame.get_columns():
                if manifest.released is not None and column.name == manifest.released.link:
                    continue
                if why := identifying(column):
                    yield identifier_doubt(column, why)


def _formulas(public: Path) -> Iterator[Doubt]:
    """Look for what a spreadsheet runs when it opens a CSV file, by the rule that plans have."""
    for path in _tables(public):
        if path.suffix == ".csv":
            try:
                yield from formula_doubts(read_frame(path, empty=True).get_columns())
            except StirredError:
                continue  # said by the audit


def problems_of(check: Callable[[], object]) -> list[Problem]:
    """Return what a check refuses for; nothing where it does not."""
    try:
        check()
    except StirredError as error:
        return [*error.problems]
    return []
