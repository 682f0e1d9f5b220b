"""The audit of a finished bundle from its files alone: nothing of the confidential file is needed.

Every artefact must agree on the promise and on whether it comes from a test run, the order of records must say
nothing, and published tables must be those of the released records. What else its files show, the mechanism checks.

``CHECKS`` is the list of what is looked at. Publishing looks at more (``stirred.release.scan``); a rehearsal, before
the draw, at what can be known then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from stirred import __version__
from stirred.audit.leftover import leftover_order
from stirred.data.bundle import (
    SEEDED_MARK,
    SPECIFICATION,
    BundleFiles,
    Findings,
    Manifest,
    audit_manifest,
    audit_published,
    probe_parquet,
    public_folder,
    same_cells,
)
from stirred.data.place import MANIFEST
from stirred.data.problems import number
from stirred.mechanisms.protocol import Mechanism
from stirred.mechanisms.registry import EARLIER, build, is_installed, mechanism_class, settings_for
from stirred.spec.document import account_in, from_json, mechanism_in
from stirred.spec.explanation import explain
from stirred.spec.problems import Problem, StirredError, in_python
from stirred.spec.render import to_markdown
from stirred.spec.specification import Specification
from stirred.spec.text import rows_text

NO_BOUND: Final = "nothing is promised: the loss is infinite, and no bound on what can be learned is proven"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleAudit:
    """What was checked, what was wrong, what a reader must know although nothing is wrong, and what was not checked.

    ``bundle`` is what was looked at; None where there is no promise that can be read.
    """

    checks: tuple[str, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    bundle: CheckedBundle | None = field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Say whether nothing was wrong."""
        return not self.problems

    def __str__(self) -> str:
        rows = [
            ("passed", f"{'yes' if self.passed else 'no'}, of {number(len(self.checks), 'check')}"),
            *(("problem", problem.written(in_python)) for problem in self.problems),
            *(("note", warning) for warning in self.warnings),
            *(("unchecked", each) for each in self.unchecked),
        ]
        return rows_text(rows)


class When(Flag):
    """When something is looked at: in a rehearsal, before the draw; by anybody, in a bundle; before it is published."""

    REHEARSAL = auto()
    AUDIT = auto()
    PUBLISHING = auto()


class BundleCheck(NamedTuple):
    """One thing to look at in a bundle: the function yields what is wrong, or notes it in the findings."""

    name: str
    when: When
    look: Callable[[CheckedBundle], Iterable[Problem] | None]


@dataclass(kw_only=True, eq=False)
class CheckedBundle(BundleFiles):
    """A bundle that is looked at, with its mechanism; ``kind`` alone where the settings are not all there.

    ``folder`` is the whole bundle, or what was published of it.
    """

    folder: Path
    kind: type[Mechanism] | None = None
    mechanism: Mechanism | None = None
    rehearsed: bool = False  # made here, and without a manifest
    variables: Sequence[str] = ()  # columns of the input, where there is no manifest to name them

    @property
    def same_version(self) -> bool:
        """Say whether this version of stirred made it, so that every sentence in it can be compared."""
        return self.rehearsed or super().same_version

    @property
    def method(self) -> str | None:
        """Return the sentence that says what was done, where it is known."""
        known = self.mechanism is not None and self.same_version and self.mechanism.name not in EARLIER
        return self.mechanism.in_words if self.mechanism is not None and known else None

    @cached_property
    def records(self) -> pl.DataFrame | None:
        """Return the released records; None for tables alone."""
        return None if self.kind is not None and not self.kind.counts_tables else self.data

    @cached_property
    def marks(self) -> dict[str, bool]:
        """Return for every artefact that can say so whether it says that this is a test run with a seed."""
        return _seeded_marks(self.folder, self.manifest, self.specification, unread=self.found.unread)

    def forget_tables(self) -> None:
        """Let go of the tables that were read: those of a national file fill the memory."""
        for name in ("data", "persons", "invariants", "strata", "records"):
            self.__dict__.pop(name, None)

    def look(self, checks: Iterable[BundleCheck], when: When) -> None:
        """Make the checks that belong to a moment."""
        for check in checks:
            if check.when & when:
                self.found.problems += check.look(self) or ()


def audit_bundle(folder: Path | str) -> BundleAudit:
    """Check a bundle, or its public folder alone, and say all problems at once.

    Checksums, specification, what the mechanism shows, order, tables, pages and marks of a test run.
    """
    path = Path(folder)
    public, found, manifest = public_folder(path), Findings(), None
    if public == path:
        audit_published(public, found)
    else:
        manifest = audit_manifest(path, found)
    probe_parquet(public, found)
    specification = _specification(public, found)
    kind, mechanism = _making(public, manifest, found)
    bundle = None
    if specification is not None:
        bundle = CheckedBundle(
            folder=path,
            public=public,
            specification=specification,
            manifest=manifest,
            found=found,
            beside=() if kind is None else kind.table_columns,
            kind=kind,
            mechanism=mechanism,
        )
        bundle.look(CHECKS, When.AUDIT)
        bundle.forget_tables()
    elif manifest is not None:
        _agree(_seeded_marks(path, manifest, None, unread=found.unread), found)
    listed = {name: tuple(getattr(found, name)) for name in ("checks", "problems", "warnings", "unchecked")}
    return BundleAudit(**listed, bundle=bundle)


class _Making(NamedTuple):
    kind: type[Mechanism] | None = None
    mechanism: Mechanism | None = None


def _making(public: Path, manifest: Manifest | None, found: Findings) -> _Making:
    """Return the mechanism as the plan in the manifest states it, or as specification.json does."""
    try:
        text = (public / SPECIFICATION).read_text(encoding="utf-8")
    except (OSError, ValueError):
        text = ""
    published = mechanism_in(text)
    if manifest is None:
        return _Making() if published is None else _built(published.name, published.settings, tables=None)
    name, settings = manifest.mechanism
    making = _built(name, settings, tables=manifest.tables)
    if name and not is_installed(name):
        remedy = "install the package that it comes from, in the version of the release, and try again"
        found.bad(f"its mechanism '{name}' is not installed here", where=MANIFEST, remedy=remedy)
    elif making.mechanism is None:
        found.bad("it does not say how the release was made", where=MANIFEST)
    elif published is None:
        if manifest.stirred == __version__:
            found.bad("it does not name the mechanism", where=f"public/{SPECIFICATION} mechanism")
    else:
        stated = settings_for(name, settings).public()
        other = sorted(key for key in {*stated, *published.settings} if stated.get(key) != published.settings.get(key))
        if other or published.name != name:
            found.bad(
                f"it says another {', '.join(other or ['name'])} than the plan of the bundle",
                where=f"public/{SPECIFICATION} mechanism",
            )
    return making


def _built(name: str, settings: Mapping[str, object], *, tables: list[list[str]] | None) -> _Making:
    if not is_installed(name):
        return _Making()
    kind = mechanism_class(name)
    if not kind.counts_tables and tables is None:
        return _Making(kind=kind)
    try:
        return _Making(kind=kind, mechanism=build(name, settings, **({} if kind.counts_tables else {"tables": tables})))
    except (StirredError, ValueError, TypeError):
        return _Making(kind=kind)


def _by_the_mechanism(bundle: CheckedBundle) -> None:
    """Check the order of records, and let the mechanism say what else its files show."""
    try:
        if bundle.records is not None:
            _order(bundle.records.drop(bundle.issued), bundle.mechanism, bundle.found)
        if bundle.mechanism is not None:
            bundle.mechanism.audit_bundle(bundle, bundle.found)
        elif bundle.kind is not None:
            bundle.kind.audit_unstated(bundle, bundle.found)
        else:
            bundle.found.unchecked.append(
                "invariants and budget, computed anew: no file here names a mechanism that is installed"
            )
        if bundle.records is not None:
            _audit_tables(bundle, bundle.records, bundle.found)
    except pl.exceptions.PolarsError as error:  # no change is known that gets here; it would still be one
        bundle.found.bad(f"its files are not of a kind that is released ({type(error).__name__})", where="public")


def _warnings(bundle: CheckedBundle) -> None:
    """Warn of a promise that protects nothing, although nothing is wrong with the files."""
    if bundle.specification.budget.is_free:
        bundle.found.warnings.append("nothing is promised: the budget is a letter without a value")
    elif bundle.specification.budget.is_unbounded:
        bundle.found.warnings.append(NO_BOUND)


def _specification(public: Path, found: Findings) -> Specification | None:
    name = f"public/{SPECIFICATION}"
    try:
        specification = from_json((public / SPECIFICATION).read_text(encoding="utf-8"), source=name)
    except StirredError as error:
        found.problems += error.problems
        return None
    except (OSError, ValueError):
        found.bad("it is missing or cannot be read", where=name)
        return None
    found.checks.append(f"specification read: {specification.notation}")
    return specification


def _order(data: pl.DataFrame, mechanism: Mechanism | None, found: Findings) -> None:
    """Check that rows are grouped by released values and otherwise in random order (docs/theory/conditions.md, 1)."""
    if not data.width:
        return
    grouped = [] if mechanism is None else [name for name in mechanism.areas if name in data.columns]
    left = leftover_order(data, first=grouped)
    if not set(grouped) <= set(left.grouped):
        found.bad(
            f"records are not grouped by {', '.join(grouped)} as released: their order may be that of the input",
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
        found.checks.append(f"rows are {groups} and do not follow the order of {', '.join(left.seen)}")
    else:
        found.checks.append(f"rows are {groups}; too few of them, or too much alike, to see any other order")


def _audit_tables(bundle: BundleFiles, data: pl.DataFrame, found: Findings) -> None:
    """Count the published tables again: from households, or from persons with the variables of their household."""
    persons = bundle.joined
    for name, place, table, variables in bundle.tables():
        counted = data if set(variables) <= set(data.columns) else persons
        if "count" not in table.columns or counted is None or not set(variables) <= set(counted.columns):
            found.bad("it cannot be counted anew from the released files", where=place)
        elif not same_cells(table, counted, variables):
            found.bad("it is not the table of the released file", where=place)
        else:
            found.checks.append(f"table {name}{'' if counted is data else ' of persons'}: counted anew")


def _marks(bundle: CheckedBundle) -> None:
    _agree(bundle.marks, bundle.found)


def _agree(marks: Mapping[str, bool], found: Findings) -> None:
    """Check that all artefacts agree on whether this is a test run with a seed."""
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


def _seeded_marks(
    bundle: Path, manifest: Manifest | None, specification: Specification | None, *, unread: Mapping[Path, str]
) -> dict[str, bool]:
    """Return for every artefact that can say so whether it says that this is a test run with a seed."""
    marks = dict(_marks_of_files(bundle, unread))
    if manifest is not None:
        marks[MANIFEST] = manifest.seeded
    if specification is not None:
        marks[f"public/{SPECIFICATION}"] = specification.seeded
    return marks


def _marks_of_files(bundle: Path, unread: Mapping[Path, str]) -> Iterator[tuple[str, bool]]:
    public = public_folder(bundle)
    if public != bundle:
        yield SEEDED_MARK, (bundle / SEEDED_MARK).exists()
    yield f"public/{SEEDED_MARK}", (public / SEEDED_MARK).exists()
    for path in sorted(public.glob("*.parquet")):
        marked = [*_marks_of_parts(sorted(path.rglob("*.parquet")) if path.is_dir() else [path], unread)]
        if marked:
            yield f"public/{path.name}", any(marked)


def _marks_of_parts(parts: Sequence[Path], unread: Mapping[Path, str]) -> Iterator[bool]:
    for part in parts:
        if part in unread:
            continue
        try:
            yield "stirred.seeded" in pl.read_parquet_metadata(part)
        except (OSError, pl.exceptions.PolarsError):
            continue


# A budget as pages write it, such as ε=2.98.
_BUDGET: Final = re.compile(r"(?:ε|ρ²|μ|τ)=\w+(?:\.\w+)?")


def _pages(bundle: CheckedBundle) -> None:
    """Compare specification.md and report.html with the specification.

    Pages by another version of stirred may have other words; of them the notation and the budgets are compared.
    """
    public, specification, found, method = bundle.public, bundle.specification, bundle.found, bundle.method
    page = _text(public, "specification.md", found)
    if page is not None:
        lines = page.splitlines()
        title = lines[0].removeprefix("# ") if lines else ""
        stated = lines[2] if len(lines) > 2 and not lines[2].startswith("`") else ""
        account = account_in(_text(public, "specification.json", found) or "")
        # The title and, where it is not known, the method are taken as the page has them.
        head = [f"# {title}", "", *([stated, ""] if method is None and stated else [])]
        body = to_markdown(specification, title="", method=method or "", account=account).splitlines()[2:]
        written = "\n".join([*head, *body]) + "\n"
        _compare("specification.md", page, specification, same=page == written, whole=bundle.same_version, found=found)
    report = _text(public, "report.html", found)
    if report is not None:
        words = explain(specification)
        pieces = [*words.not_protected, *(answer.below for answer in words.answers), words.how_to_read]
        shown = [f">{escape(specification.budget_text)}<", f"<code>{escape(specification.notation)}</code>"]
        same = all(piece in report for piece in (*shown, *map(escape, pieces)))
        _compare("report.html", report, specification, same=same, whole=bundle.same_version, found=found)


def _readme(bundle: CheckedBundle) -> Iterator[Problem]:
    """Compare README.md with what the manifest keeps of it; sentences of a mechanism follow from its plan alone."""
    written = None if bundle.manifest is None else bundle.manifest.readme
    if written is not None and _text(bundle.public, "README.md", bundle.found) not in (None, written):
        remedy = "do not publish it, and find out who changed it"
        yield Problem(what=f"it does not say what {MANIFEST} says it does", where="public/README.md", remedy=remedy)


def _compare(name: str, text: str, specification: Specification, *, same: bool, whole: bool, found: Findings) -> None:
    place = f"public/{name}"
    others = sorted({*_BUDGET.findall(text)} - {*_BUDGET.findall(specification.budget_text)})
    if same:
        found.checks.append(f"{name}: says what specification.json says")
    elif others:
        found.bad(f"it says {', '.join(others)}, and specification.json {specification.budget_text}", where=place)
    elif escape(specification.notation) not in text and specification.notation not in text:
        found.bad(f"it does not say {specification.notation}, as specification.json does", where=place)
    elif whole:
        found.bad("its words are not those of specification.json", where=place)
    else:
        found.checks.append(f"{name}: has the notation of specification.json")
        found.unchecked.append(f"{name}, its other words: another version of stirred may have written them")


def _text(public: Path, name: str, found: Findings) -> str | None:
    try:
        return (public / name).read_text(encoding="utf-8")
    except (OSError, ValueError):
        found.bad("it is missing or cannot be read", where=f"public/{name}")
        return None


CHECKS: Final = (
    BundleCheck("order, mechanism and tables", When.AUDIT, _by_the_mechanism),
    BundleCheck("words of the pages", When.REHEARSAL | When.AUDIT, _pages),
    BundleCheck("words of README.md", When.AUDIT, _readme),
    BundleCheck("a promise that protects", When.AUDIT, _warnings),
    BundleCheck("marks of a test run", When.AUDIT, _marks),
)
