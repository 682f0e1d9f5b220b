"""Doubts about a planned release that come from the ledger: what it and earlier releases assume of each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stirred.mechanisms.protocol import ReleasedTable
from stirred.release.ledger import Entry, Ledger, Request
from stirred.release.ledger.contradictions import Contradiction, entries_in_words
from stirred.release.ledger.entry import COMMITTED, RESERVED, entry_names
from stirred.spec.accepted import MORE_RUNS
from stirred.spec.doubts import Doubt
from stirred.spec.reliance import KeysAlone, OneRun
from stirred.spec.specification import Specification


def ledger_doubts(
    ledger: Ledger | None,
    *,
    mechanism: str,
    specification: Specification,
    parameters: Mapping[str, Any],
    inputs: Mapping[str, str],
    before: int | None = None,
) -> tuple[Doubt, ...]:
    """Return a doubt for each assumption that the release would contradict, or that earlier entries contradict of it.

    All of them refuse. A second run of a plan does so because no run of it is the one run then, as the first one may
    have told its readers. Each doubt has a name of its own, with the entries and the variables, so that whoever accepts
    one accepts no other. ``before`` is the entry of the release itself, where it was reserved already.
    """
    if ledger is None:
        return ()
    request = Request(mechanism=mechanism, specification=specification, parameters=parameters, inputs=inputs)
    return tuple(_doubt(one, ledger) for one in ledger.contradicted(request, before=before))


def earlier_entry(ledger: Ledger, table: ReleasedTable) -> Entry | None:
    """Return the entry of the release that a table belongs to: by its manifest, or by the files that were published."""
    for entry in ledger.entries():
        files = {entry.bundle, *(event.files for event in entry.history)} - {None, ""}
        if entry.status == COMMITTED and table.release in files and entry.specification == table.promise:
            return entry
    return None


def earlier_doubts(ledger: Ledger | None, tables: Iterable[ReleasedTable]) -> Iterator[Doubt]:
    """Yield a doubt for each earlier release that the ledger does not know: nothing shows that it was accounted for."""
    for table in tables:
        if ledger is not None and earlier_entry(ledger, table) is None:
            yield Doubt(
                kind="unknown-earlier",
                about=Path(table.file).name,
                what=f"{table.file} belongs to '{table.title}', which is not a release in the ledger of "
                f"'{ledger.dataset}'",
                remedy=f"record that release first, with its bundle: `stirred ledger add {ledger.name} BUNDLE`",
            )


def _doubt(one: Contradiction, ledger: Ledger) -> Doubt:
    known = max((*one.entries, *one.by))  # the planned release is the last entry
    if isinstance(one.reliance, OneRun):
        earlier = tuple(number for number in one.by if number != known)
        return Doubt(
            kind=MORE_RUNS,
            about=entry_names(earlier),
            what=f"{entries_in_words(earlier)} ran this plan on this file before. A release chosen among the runs has "
            "the loss of all of them together, and each run costs as much again",
            remedy=_instead(ledger, earlier),
        )
    if isinstance(one.reliance, KeysAlone) and known not in one.entries:
        column = f"{one.reliance.column}{', ' if one.reliance.column else ''}the column of these keys"
        return Doubt(
            kind="contradicts",
            about=f"{entry_names(one.entries)}:{one.reliance.about}",
            what=f"{entries_in_words(one.entries)} assumed that {one.assumption}, and this release "
            f"{f'uses {column}' if one.certain else f'may use {column}'}: if it is published, that noise is known",
            remedy=f"leave {one.reliance.column or 'that column'} out of this release",
        )
    if isinstance(one.reliance, KeysAlone):
        earlier = tuple(number for number in one.by if number != known)
        return Doubt(
            kind="contradicted-by",
            about=f"{entry_names(earlier)}:{one.reliance.about}",
            what=f"this release assumes that {one.assumption}, and {entries_in_words(earlier, lower=True)} "
            f"{'may use' if not one.certain else 'uses' if len(earlier) == 1 else 'use'} them too: nothing is proven "
            "of what they show together, and the ledger could state no total",
            remedy="let keys be drawn: leave keys and record_key out",
        )
    is_ours = known in one.entries
    others = tuple(number for number in (one.by if is_ours else one.entries) if number != known)
    others_in_words = entries_in_words(others, lower=is_ours)
    relying, publishing = ("this release", others_in_words) if is_ours else (others_in_words, "this release")
    single = {"this release": True, others_in_words: len(others) == 1}
    assume = "assumes" if single[relying] else "assume"
    publish = "may publish" if not one.certain else "publishes" if single[publishing] else "publish"
    what = " x ".join(one.reliance.figure.variables)
    said = f"{relying} {assume} that {one.assumption}, and {publishing} {publish} them exactly"
    return Doubt(
        kind="contradicted-by" if is_ours else "contradicts",
        about=f"{entry_names(others)}:{one.reliance.about}",
        what=f"{said}: the counts of {what} would not be protected",
        remedy=f"release without {what}, or protect it in the same way",
    )


def _instead(ledger: Ledger, earlier: Sequence[int]) -> str:
    """Say what to do instead of a further run: finish the one that is open, or use the one that was made."""
    unfinished = [entry for number in earlier if (entry := ledger.entry(number)).status == RESERVED]
    if unfinished:
        return f"finish that run, at no further cost: `stirred release --resume {unfinished[-1].place}`"
    return "use the earlier release; another plan, chosen after looking at it, is a choice among runs as well"
