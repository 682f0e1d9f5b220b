"""Doubts about a bundle that is to be published: whatever must not leave the agency, looked for in its files.

The audit of the bundle counts everything again; here every file of `public/` is held against the list of what may be
there, column by column. What no rule allows is a doubt, and a doubt is enough to refuse. Every file is written again by
our own writers from what is read of it: nothing else in its bytes is published.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape, unescape
from pathlib import Path
from typing import Final

import polars as pl

from stirred import __version__
from stirred.audit.bundle import NO_BOUND, BundleAudit, BundleCheck, CheckedBundle, When, audit_bundle
from stirred.data.bundle import SEEDED_MARK, SPECIFICATION, Manifest, checksum, files_of
from stirred.data.child import is_unread
from stirred.data.csv_text import csv_header, formula_doubts
from stirred.data.frames import as_read, read_frame, write_frame
from stirred.data.natural import sort_naturally
from stirred.data.place import MANIFEST
from stirred.data.problems import DataError, bad_file, invisible_letters, listed
from stirred.data.record_doubts import identifier_doubt, identifying
from stirred.data.sources import Source
from stirred.data.table_labels import label_columns
from stirred.mechanisms.protocol import Mechanism, ReleasedColumns
from stirred.report.page_reader import shown_alone, unshown
from stirred.report.readme import WEAK_POINTS, Readme, known_notes
from stirred.report.release import INTERNAL_STAMP, PUBLIC_STAMP
from stirred.spec.document import AccountDocument, account_in, mechanism_in, to_json
from stirred.spec.doubts import Doubt, accepted_in_words, nothing_promised, refuse_doubts
from stirred.spec.problems import Problem, StirredError
from stirred.spec.render import to_markdown
from stirred.spec.specification import KeysAlone, Specification, Unpublished
from stirred.spec.text import plain, raw, sentence

_PART = r"(/part-\d{5}\.(parquet|csv))?"
_ENDINGS = {"records": "(parquet|csv)", "table": "csv"}
_PAGES = r"specification\.(json|md)|README\.md|report\.html"
TABLES = "tables"
_NOTES = {"ARROW:schema", "stirred.specification", "stirred.seeded"}
_AGAIN = "do not publish it; make the release again"
_INSTEAD = "release it by a method that promises something"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What was looked at, what gives doubt, and the public files with their checksums.

    ``manifest`` is the checksum of the very bytes that all of it was compared with.
    """

    checks: tuple[str, ...]
    doubts: tuple[Problem, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    ledger: Mapping[str, str | int] | None = None
    accepted: tuple[str, ...] = ()
    manifest: str = ""
    rewriting: Rewriting | None = None


def scan_bundle(bundle: Path, *, accept: Sequence[str] = ()) -> Scan:
    """Return every doubt about publishing a bundle; ``accept`` names those that somebody answers for."""
    if not bundle.is_dir() or not (bundle / "public").is_dir():
        raise bad_file(
            "there is no bundle here",
            where=str(bundle),
            remedy="name the folder of a finished release, with public/ and manifest.json in it",
        )
    audit = audit_bundle(bundle)
    if (audited := audit.bundle) is None or (manifest := audited.manifest) is None:
        return _without_promise(bundle, audit)
    # What an audit warns of, since nothing is wrong with the files, is a promise that protects nothing. No bound at all
    # is what a person may answer for, here too: who made the release did not decide to publish it.
    audited.found.problems += [_doubt(each, "promise") for each in audit.warnings if each != NO_BOUND]
    audited.look(CHECKS if _is_stated(manifest) else CHECKS[:_FIRST], When.PUBLISHING)
    accepted = manifest.accepted
    left = {doubt.name: doubt for doubt in _to_accept(audited) if doubt.name not in accepted}
    again = [nothing_promised(NO_BOUND, remedy=_INSTEAD)] if NO_BOUND in audit.warnings else []
    if manifest.stirred != __version__:
        again.append(_other_version(str(manifest.stirred)))
    refused = problems_of(lambda: refuse_doubts([*left.values(), *again], accept=accept))
    checks = (
        *audit.checks,
        f"{len(manifest.public)} public files: nothing hidden, no links, no file without a rule",
        _of_columns([*accepted, *accept]),
        "nothing of internal/, which only its owner may read",
        *(f"{name}: accepted by the release" for name in accepted),
        *(f"{name}: accepted by you" for name in accept),
    )
    return Scan(
        files=manifest.public if _is_stated(manifest) else {},
        checks=checks,
        doubts=tuple(dict.fromkeys([*audited.found.problems, *refused])),
        ledger=manifest.ledger,
        accepted=tuple(accepted),
        manifest=hashlib.sha256(audited.found.manifest).hexdigest(),
        rewriting=rewriting_of(audited),
    )


def _without_promise(bundle: Path, audit: BundleAudit) -> Scan:
    """Return the doubts about a bundle of which the promise or the manifest cannot be read."""
    written = (bundle / MANIFEST).read_bytes() if (bundle / MANIFEST).is_file() else b""
    manifest = Manifest.read(written)
    return Scan(
        checks=audit.checks,
        doubts=(*audit.problems, *_open_to_others(bundle)),
        ledger=None if manifest is None else manifest.ledger,
        manifest=hashlib.sha256(written).hexdigest(),
    )


def _is_stated(manifest: Manifest) -> bool:
    return None not in (manifest.released, manifest.plan, manifest.public_files)


def _doubt(what: str, where: str, remedy: str = _AGAIN) -> Problem:
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


def _paths(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look at every name below public/ for hidden files, and for files that are not both listed and allowed.

    The list is the run's, and somebody may have changed it; what is allowed, the mechanism has by its settings.
    Tables are CSV, which the audit counts again.
    """
    public, names = bundle.public, _allowed(bundle)
    declared = () if bundle.manifest is None else bundle.manifest.public_files or ()
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


def _permissions(bundle: CheckedBundle) -> Iterator[Problem]:
    return _open_to_others(bundle.folder)


def _open_to_others(bundle: Path) -> Iterator[Problem]:
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


def _from_internal(checked: CheckedBundle) -> Iterator[Problem]:
    """Look for copies of internal files; later evaluations are not in the manifest, and are read."""
    bundle, manifest = checked.folder, _manifest(checked)
    inside = {digest: name for name, digest in manifest.files.items() if name.startswith("internal/")}
    for path in sorted((bundle / "internal").rglob("*")):
        name = path.relative_to(bundle).as_posix()
        if path.is_file() and name not in manifest.files:
            inside[checksum(path)] = name
    for name, digest in manifest.public.items():
        if digest in inside:
            yield _doubt(f"it is a copy of {inside[digest]}", f"public/{name}")


_LINK = re.compile(r"""\b(?:href|src)\s*=\s*["']?\s*(?!#|data:)([^"'\s>]+)""", re.IGNORECASE)
# Names are shown as text; only inside a tag do these letters lead anywhere.
_TAG = re.compile(r"""<[a-z/!](?:[^<>"']|"[^"]*"|'[^']*')*>""", re.IGNORECASE)
_WAY_INSIDE = re.compile(r"""(?:\]\(|\]:\s*|<|["'])\s*((?:file:|[^\s()<>"']*\binternal/)[^\s()<>"']*)""")


def _page_doubts(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look whether the report is the public edition, whether any page leads inside, and for what pages do not show."""
    public = bundle.public
    promise = public / SPECIFICATION
    said = [promise.read_text(encoding="utf-8", errors="replace")] if promise.is_file() else []
    said += [name for path in _tables(public) if path not in bundle.found.unread for name in _header(path) or ()]
    for path in sorted(public.glob("*")):
        if path.suffix not in (".html", ".md") or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        place = f"public/{path.name}"
        if path.suffix == ".html" and (PUBLIC_STAMP not in text or INTERNAL_STAMP in text):
            yield _doubt("it is not the public edition of the report", place)
        html = path.suffix == ".html"
        links = [_LINK.findall(tag) for tag in _TAG.findall(text)] if html else [_WAY_INSIDE.findall(text)]
        for target in sorted({target for found in links for target in found}):
            yield _doubt(f"it leads to {target}, outside of what is published", place)
        if letters := invisible_letters(unescape(text)):
            yield _doubt(f"it holds letters that nothing draws ({letters})", place)
        for what in unshown(text, same_version=bundle.same_version, said=said) if html else ():
            yield _doubt(f"it holds {what}, which no page of ours has", place)


def rewriting_of(bundle: CheckedBundle) -> Rewriting:
    """Return how the public files of a bundle are written again."""
    text = (bundle.public / SPECIFICATION).read_text(encoding="utf-8")
    released = None if bundle.manifest is None else bundle.manifest.released
    variables = bundle.variables if released is None else (*released.households, *released.persons)
    return Rewriting(specification=bundle.specification, account=account_in(text), variables=variables)


def _not_rewritten(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look whether every file can be written again, as it is when it is published."""
    public, rewriting = bundle.public, rewriting_of(bundle)
    for name in sorted(files_of(public)) if bundle.manifest is None else bundle.manifest.public:
        path = public / name
        try:
            if path.is_file() and is_unread(path, bundle.found.unread) is None:
                rewriting.again(path, name)
        except DataError:
            continue  # said by the audit
        except StirredError as error:
            yield from error.problems
        except ValueError:
            yield _doubt("it cannot be read", f"public/{name}")


def _other_facts(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look whether README.md states what the manifest, the mechanism and the other pages do."""
    public, manifest = bundle.public, _manifest(bundle)
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
        "note on files": not {*map(sentence, readme.notes)} <= {*map(sentence, known_notes(public))},
        "list of files": files != [place.rpartition(".")[0] for place, _ in readme.files],
    }
    if bundle.method is not None:
        wrong["method"] = readme.method != " ".join(bundle.method.split())
    for what in (what for what, other in wrong.items() if other):
        yield _doubt(f"it has another {what} than the release", "public/README.md")


def _of_the_promise(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look whether specification.json is as we write it, and for a promise that does not hold."""
    specification, where = bundle.specification, f"public/{SPECIFICATION}"
    if not written_as_ours(bundle.public, specification, same_version=bundle.same_version):
        yield _doubt("it is not written as `stirred` writes it", where)
    if {*specification.alone} - {*specification.assumptions, *specification.multiverse.consequences}:
        yield _doubt("it marks as true of this release alone what it does not state", f"{where} alone")
    if specification.settings_from == "this-data":
        yield _doubt("its settings were chosen by looking at the confidential file, which voids the promise", where)


def written_as_ours(public: Path, specification: Specification, *, same_version: bool) -> bool:
    """Say whether specification.json is as we write it: blanks and signs can hide what no reader sees."""
    text = (public / SPECIFICATION).read_text(encoding="utf-8")
    if not same_version:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False) + "\n" == text
    account, mechanism = account_in(text), mechanism_in(text)
    # What reading adds to the documents of earlier versions is not in them.
    relies_on = tuple(one for one in specification.relies_on if not isinstance(one, KeysAlone))
    older = (replace(specification, alone=()), replace(specification, alone=(), relies_on=relies_on))
    return text in [to_json(each, account=account, mechanism=mechanism) for each in (specification, *older)]


def may_have(mechanism: Mechanism, released: ReleasedColumns, specification: Specification) -> dict[str, set[str]]:
    """Return the columns that each public file may have, and under ``tables`` those of tables; no file else.

    In a table that is counted from records stand only columns that the specification speaks of: it fixes them, relies
    on their counts being kept, or lists them.
    """
    kept = {v for each in specification.relies_on if isinstance(each, Unpublished) for v in each.figure.variables}
    homes = {*released.households}
    if mechanism.counts_tables:
        homes &= {*released.fixed, *kept, *specification.domain.columns}
    # Tables that earlier versions wrote next to the others have the same names without a folder.
    files = {Path(file.name).name: {*file.columns} for file in mechanism.files(released)}
    return {**files, TABLES: {*homes, *released.persons, "count", *mechanism.table_columns}}


def _allowed(bundle: CheckedBundle) -> dict[str, set[str]]:
    """Return what ``may_have`` says of a bundle; nothing where its mechanism is not known."""
    if bundle.mechanism is None:
        return {}
    found, released = _manifest(bundle).released, ReleasedColumns()
    if found is not None:
        columns = {"households": found.households, "persons": found.persons}
        released = ReleasedColumns.of(bundle.specification, columns, link=found.link)
    return may_have(bundle.mechanism, released, bundle.specification)


def _columns(bundle: CheckedBundle) -> Iterator[Problem]:
    """Hold the columns of every table against the list of the release, the mechanism, and the plan's identifiers."""
    public, manifest, unread, allowed = bundle.public, _manifest(bundle), bundle.found.unread, _allowed(bundle)
    if bundle.mechanism is None:
        return  # the audit has said why not
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
            yield _doubt("it cannot be read", f"public/{place}")
            continue
        may_link = rules & link
        named = [name for name in names if name in manifest.identifiers and name not in may_link]
        other = [name for name in names if name not in rules and name not in named]
        if named:
            yield _doubt(f"{listed(named)} is an identifier by the plan", f"public/{place}")
        if other:
            yield _doubt(f"{listed(other)} is not in the specification", f"public/{place}")


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


def _notes(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look at what Parquet files say in addition to their columns."""
    public, unread = bundle.public, bundle.found.unread
    for path in _tables(public):
        if path.suffix != ".parquet" or path in unread:
            continue
        place = f"public/{path.relative_to(public)}"
        try:
            notes = pl.read_parquet_metadata(path)
        except (pl.exceptions.PolarsError, OSError):
            continue  # said by the columns
        if other := sorted(set(notes) - _NOTES):
            yield _doubt(f"its metadata hold {listed(other)}, which no rule allows", place)
        if notes.get("stirred.specification") != bundle.specification.notation:
            yield _doubt("its metadata name another specification, or none", place)


def _of_the_plan(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look for marks of a test run, a ledger without an entry, and doubts that nobody accepted."""
    manifest = _manifest(bundle)
    if seeded := [name for name, mark in bundle.marks.items() if mark]:
        remedy = "make the release without --seed: whoever knows a seed can undo the protection"
        yield _doubt(f"this is a test run with a seed, say {', '.join(seeded)}", "marks of a test run", remedy)
    if manifest.ledger is None and manifest.plan is not None and manifest.plan.release.ledger is not None:
        yield _doubt("its plan names a ledger, and the manifest no entry in one", MANIFEST)
    if manifest.doubts is None:
        yield _doubt("it does not say which doubts the plan had", MANIFEST)
    for doubt in manifest.doubts or ():
        if doubt.refuses and not doubt.accepted:
            yield _doubt(f"its plan had a doubt that nobody accepted: {doubt.what}", f"{MANIFEST} {doubt.name}")


def _to_accept(bundle: CheckedBundle) -> Iterator[Doubt]:
    """Yield what a person may answer for, by the rules that plans have: identifiers and formulas of spreadsheets."""
    manifest = _manifest(bundle)
    if not _is_stated(manifest):
        return
    assert manifest.released is not None
    for name in (file.name for file in manifest.public_files or () if file.kind == "records"):
        for path in sorted(bundle.public.glob(f"{name}.*")):
            if is_unread(path, bundle.found.unread) is not None:
                continue
            for column in _columns_of(path):
                if column.name != manifest.released.link and (why := identifying(column)):
                    yield identifier_doubt(column, why)
    for path in _tables(bundle.public):
        if path.suffix == ".csv":
            yield from formula_doubts(_columns_of(path, empty=True))


def _columns_of(path: Path, *, empty: bool = False) -> list[pl.Series]:
    try:
        return read_frame(path, empty=empty).get_columns()
    except StirredError:
        return []  # said by the audit


def _manifest(bundle: CheckedBundle) -> Manifest:
    assert bundle.manifest is not None
    return bundle.manifest


def _stated(bundle: CheckedBundle) -> Iterator[Problem]:
    """Look whether the manifest says what was released."""
    if not _is_stated(_manifest(bundle)):
        yield _doubt("it does not say what was released", MANIFEST)


# The first ones need not know what was released.
_FIRST: Final = 3
CHECKS: Final = (
    BundleCheck("permissions", When.PUBLISHING, _permissions),
    BundleCheck("names of files", When.PUBLISHING, _paths),
    BundleCheck("what was released", When.PUBLISHING, _stated),
    BundleCheck("test run, ledger and doubts", When.PUBLISHING, _of_the_plan),
    BundleCheck("copies of internal files", When.PUBLISHING, _from_internal),
    BundleCheck("pages", When.REHEARSAL | When.PUBLISHING, _page_doubts),
    BundleCheck("written again", When.REHEARSAL | When.PUBLISHING, _not_rewritten),
    BundleCheck("README.md", When.PUBLISHING, _other_facts),
    BundleCheck("specification.json", When.PUBLISHING, _of_the_promise),
    BundleCheck("columns", When.PUBLISHING, _columns),
    BundleCheck("notes of Parquet files", When.PUBLISHING, _notes),
)


def problems_of(check: Callable[[], object]) -> list[Problem]:
    """Return what a check refuses for; nothing where it does not."""
    try:
        check()
    except StirredError as error:
        return [*error.problems]
    return []


# ---- written again -----------------------------------------------------------------------------------------


class RewritingError(StirredError):
    """A public file that our writers do not write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """How the public files of a release are written again.

    ``variables`` are columns of the input: their codes are texts, whatever they look like.
    """

    specification: Specification
    account: AccountDocument | None = None
    variables: Collection[str] = ()

    def again(self, path: Path, name: str) -> pl.DataFrame | str | None:
        """Return what a public file is written from, a table or a text; None where it is published as it stands.

        ``name`` is its place below `public/`. Raise if it says the same otherwise than we do.
        """
        if path.suffix in (".parquet", ".csv"):
            return self._table(path, name)
        if name == "report.html":
            return shown_alone(path.read_text(encoding="utf-8"))
        if name == "specification.md":
            first, stated = (*path.read_text(encoding="utf-8").split("\n"), "", "", "")[:3:2]
            method = "" if stated.startswith("`") else raw(stated)
            title = raw(first.removeprefix("# "))
            return to_markdown(self.specification, title=title, method=method, account=self.account)
        if name == "README.md":
            page = path.read_text(encoding="utf-8")
            if page != Readme.read(page).page(self.specification):
                raise _other("it is not a page that `stirred` writes", name)
            return page
        return None

    def write(self, path: Path, name: str) -> None:
        """Write a file again in its place."""
        written = self.again(path, name)
        if isinstance(written, str):
            path.write_text(written, encoding="utf-8")
        elif written is not None:
            half = path.with_name(f".{path.name}")
            half.touch(mode=0o600, exist_ok=False)
            write_frame(written, half, note=self.specification.notes)
            half.replace(path)

    def _table(self, path: Path, name: str) -> pl.DataFrame:
        frame = _plain(read_frame(path, empty=True), name)
        if path.suffix == ".csv":
            own = (*label_columns(frame.columns), *self.variables)
            numbers = [column for column in frame.get_columns() if column.name not in own]
            if odd := next((text for column in numbers for text in misspelled(column)), None):
                raise _other(f"the number {odd!a} is not spelled as `stirred` does", name)
            if not as_read(frame, "csv").equals(frame):
                raise _other("written again, it is not the same table", name)
        variables = [column for column in frame.columns if column in self.variables]
        if name.startswith("tables/") or name == "strata.parquet":
            return sort_naturally(frame, variables)
        if name == "invariants.parquet" and "table" in frame.columns:
            tables = frame.partition_by("table", maintain_order=True)
            return pl.concat([frame.clear(), *(sort_naturally(table, variables) for table in tables)])
        return frame


# The types of columns that we write. Others have words of their own: names of fields, or of a type.
_TYPES: Final = (pl.Boolean, pl.String, pl.Date, pl.Time, pl.Datetime, pl.Duration, pl.Decimal)


def _plain(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return a table whose columns hold nothing but their values, as those that we write do.

    The dictionary of an enumeration also has values that no row has, and a not-a-number has digits that no reader sees.
    """
    types = {column: _plain_type(kind) for column, kind in frame.schema.items()}
    if odd := next((column for column, kind in types.items() if kind is None), None):
        raise _other(f"the column {odd!a} is of a type that `stirred` does not write ({frame.schema[odd]!r:.60})", name)
    return frame.cast(types).with_columns(pl.col(pl.Float32, pl.Float64).fill_nan(float("nan")))  # type: ignore[arg-type]


def _plain_type(kind: pl.DataType) -> pl.DataType | None:
    """Return the type of a column without words of its own; None where we write none like it."""
    if kind in (pl.Enum, pl.Categorical):
        return pl.String()
    if isinstance(kind, pl.List) and isinstance(kind.inner, pl.DataType):
        inner = _plain_type(kind.inner)
        return None if inner is None else pl.List(inner)
    return kind if kind in _TYPES or kind.is_integer() or kind.is_float() or kind == pl.Null else None


def _other(what: str, name: str) -> RewritingError:
    remedy = "do not publish it; make the release again"
    return RewritingError([Problem(what=what, where=f"public/{name}", remedy=remedy)])


def misspelled(column: pl.Series) -> Sequence[str]:
    """Return the texts of a column of numbers that are spelled otherwise than we write them, such as 059.

    A choice of spellings could hold a message. A column of words, such as a flag, has no numbers.

    >>> misspelled(pl.Series(["5", "059", "+7"])), misspelled(pl.Series(["5.0", "2.5"])), misspelled(pl.Series(["E"]))
    (['059', '+7'], [], [])
    """
    texts = column.drop_nulls()
    numbers = texts.cast(pl.Float64, strict=False)
    if texts.dtype != pl.String or 2 * numbers.null_count() >= max(len(texts), 1):
        return []
    whole = texts.cast(pl.Int64, strict=False)
    right = numbers if whole.null_count() > numbers.null_count() else whole
    written = right.to_frame().write_csv(include_header=False).split("\n")
    return [text for text, own in zip(texts, written, strict=False) if text != own]
