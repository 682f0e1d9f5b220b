"""A ledger for others: everything as JSON and back without loss; for the public, registry YAML and Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from stirred.release.ledger.account import verify_rows
from stirred.release.ledger.currency import Currency
from stirred.release.ledger.ledger import Ledger
from stirred.release.ledger.problems import LedgerError, bad_request
from stirred.release.ledger.row import (
    ABORTED,
    COMMITTED,
    SCHEMA_VERSION,
    WITHDRAW,
    WITHDRAWN,
    Entry,
    Event,
    Row,
    StrictFacts,
    canonical,
    numbers,
)
from stirred.release.ledger.store import store_at
from stirred.release.ledger.total import Total
from stirred.spec.misfits import misfits
from stirred.spec.render import filled, to_markdown, to_registry

FORMATS: Final = ("json", "opendp", "markdown")
_NAME: Final = "stirred-ledger"
_REMEDY: Final = "give what `stirred ledger export --format json` wrote, unchanged"


def exported(ledger: Ledger, format_: str, *, currency: Currency | None = None, curator: str = "") -> str:
    """Return the ledger in one of the formats; ``currency`` is what the total is expressed in."""
    if format_ == "json":
        return to_json(ledger)
    found, entries = ledger.total(currency, reserved=False), list(ledger.entries())
    if format_ == "opendp":
        return to_registries(ledger, found, entries, curator=curator)
    return to_page(ledger, found, entries, curator=curator)


def to_json(ledger: Ledger) -> str:
    """Return every row and document, so that the same ledger can be made from it elsewhere."""
    rows, documents = ledger.store.rows(), ledger.store.documents()
    tree = {
        "format": _NAME,
        "schema_version": SCHEMA_VERSION,
        "rows": [{**row._asdict(), "facts": json.loads(row.facts)} for row in rows],
        "documents": {digest: json.loads(text) for digest, text in sorted(documents.items())},
    }
    return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


class RowDocument(StrictFacts):
    """One row of an export."""

    number: int
    id: str
    kind: str
    entry: str
    specification: str
    facts: dict[str, Any]
    previous: str
    hash: str


class LedgerDocument(StrictFacts):
    """A whole export."""

    format: str
    schema_version: int
    rows: list[RowDocument]
    documents: dict[str, dict[str, Any]]


def imported(path: Path, url: str | Path) -> Ledger:
    """Make a ledger at ``url`` from an export; whatever is not a sound ledger is refused, and nothing is written."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise bad_request("this is not text in UTF-8", where=str(path), remedy=_REMEDY) from None
    except OSError as error:
        raise bad_request(f"cannot read it: {error.strerror}", where=str(path), remedy="check the path") from None
    rows, documents = from_json(text, source=str(path))
    store = store_at(url)
    store.create(rows, documents)
    return Ledger.open(url)


def from_json(text: str, *, source: str = "export") -> tuple[list[Row], dict[str, str]]:
    """Read an export and check it as `stirred ledger verify` would."""
    try:
        # Not from the text itself: pydantic's reader would keep the last of two equal keys.
        tree = json.loads(text, object_pairs_hook=_no_key_twice, parse_constant=_no_constant)
        document = LedgerDocument.model_validate(tree)
    except ValidationError as error:
        wrong = misfits(error.errors()[:10], tree, LedgerDocument, remedy=_REMEDY, examples=False)
        raise LedgerError(each._replace(remedy=_REMEDY).problem(source) for each in wrong) from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise bad_request(f"this is not an export of a ledger: {reason}", where=source, remedy=_REMEDY) from None
    if document.format != _NAME or document.schema_version != SCHEMA_VERSION:
        raise bad_request(
            f"this is {document.format[:40]!r} of version {document.schema_version}, and not {_NAME!r} of version "
            f"{SCHEMA_VERSION}",
            where=source,
            remedy=_REMEDY,
        )
    try:
        rows = [Row(**{**dict(row), "facts": canonical(row.facts)}) for row in document.rows]
        documents = {digest: canonical(content) for digest, content in document.documents.items()}
        found = verify_rows(rows, documents)
    except (RecursionError, UnicodeEncodeError):
        raise bad_request("it holds text that cannot be kept", where=source, remedy=_REMEDY) from None
    if found.first_break is not None:
        raise found.first_break.inside(source)
    return rows, documents


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one place")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number in JSON")


def to_registries(ledger: Ledger, found: Total, entries: list[Entry], *, curator: str = "") -> str:
    """Return YAML for OpenDP's deployments registry: a document for each release, then the total.

    Only releases are listed; reservations, people's names and files stay inside. What was drawn and given up
    counts in the total, for somebody may have seen it.
    """
    documents = [
        to_registry(
            entry.specification,
            name=_line(f"{ledger.dataset}: {entry.mechanism}"),
            curator=curator,
            intended_use=_line(entry.purpose),
            description=_line("; ".join(map(_told, _public_events(entry)))),
            publication_date=entry.made or (entry.publications[0].when[:10] if entry.publications else entry.day),
        )
        for entry in _released(entries)
        if entry.specification is not None
    ]
    documents += [
        to_registry(
            part.specification,
            name=_line(f"{ledger.dataset}: everything together, {_entries(part.entries)}"),
            curator=curator,
            description="At least: other releases have no specification." if found.unspecified else "",
        )
        for part in found.parts
    ]
    return "".join(f"---\n{document}" for document in documents)


def to_page(ledger: Ledger, found: Total, entries: list[Entry], *, curator: str = "") -> str:
    """Return a Markdown page for a website: the releases, the total and what it does not know.

    Of the policies it says what they allowed and from when on; who may release, and why a policy changed, stay inside.
    """
    bound = ", at least" if found.bound else ""
    titles = [f"Together{bound}: {_entries(part.entries)}" for part in found.parts]
    promises = [to_markdown(p.specification, title=t, level=2) for p, t in zip(found.parts, titles, strict=True)]
    changes = ledger.policy_changes
    return filled(
        "ledger.md.j2",
        of="stirred.release.ledger",
        dataset=ledger.dataset,
        curator=curator,
        releases=[_cells(entry) for entry in _released(entries)],
        hidden=[entry.number for entry in entries if entry.status == ABORTED and entry.drawn],
        found=found,
        parts=[*zip(found.parts, promises, strict=True)],
        limits=changes if any(change.policy for change in changes) else (),
        head=ledger.head,
        numbers=numbers,
    )


def _entries(entries: Sequence[int]) -> str:
    return f"{'entry' if len(entries) == 1 else 'entries'} {numbers(entries)}"


def _released(entries: list[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.status in (COMMITTED, WITHDRAWN)]


def _cells(entry: Entry) -> list[str]:
    unknown = "not specified" if entry.unspecified else "none: derived"
    spent = unknown if entry.specification is None else entry.specification.budget_text
    since = "; ".join(map(_told, _public_events(entry)))
    return [str(entry.number), entry.day, entry.mechanism, entry.purpose, spent, entry.status, since]


def _public_events(entry: Entry) -> list[Event]:
    return [event for event in entry.history if event in entry.publications or event.kind == WITHDRAW]


def _told(event: Event) -> str:
    return f"{event.what} on {event.when[:10]}"


def _line(text: str) -> str:
    """Return text on one line, with nothing in it that Markdown would take for a tag."""
    return " ".join(text.split()).replace("<", "&lt;")
