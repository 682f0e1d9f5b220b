"""A ledger on the screen: its entries, one entry with its history, the total, the policy, and what a check found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stirred.cli.output import bullets, emit, emit_json, facts, five, heading, paragraph, picked, step_facts, table
from stirred.data.problems import number
from stirred.release.ledger.policy import left
from stirred.release.ledger.row import by_part, numbers
from stirred.spec.document import to_document
from stirred.spec.explanation import explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stirred.release.ledger import Entry, Ledger, Total
    from stirred.release.ledger.account import Verification
    from stirred.release.ledger.policy import Policy, PolicyChange
    from stirred.release.ledger.recover import Recovered
    from stirred.release.ledger.row import Event
    from stirred.release.ledger.total import Aside, SummedEntries


def show_entries(ledger: Ledger, *, as_json: bool) -> None:
    """List the entries of a ledger."""
    entries = list(ledger.entries())
    if as_json:
        emit_json(
            {
                "ledger": ledger.name,
                "id": ledger.id,
                "dataset": ledger.dataset,
                "head": {"number": ledger.head.number, "hash": ledger.head.hash},
                "entries": [entry_facts(entry) for entry in entries],
            }
        )
        return
    heading(f"{ledger.dataset}: {number(len(entries), 'entry', 'entries')}")
    if entries:
        table(
            ["", "when", "what", "purpose", "loss", "status"],
            [[str(e.number), e.day, e.mechanism, e.purpose, _loss(e), _state(e)] for e in entries],
        )
    if [e.number for e in entries] != [*range(1, len(entries) + 1)]:
        emit("An entry has the number of its first row; its draw, commit and publication are rows of their own.")
    parts: dict[str, tuple[str, dict[str, list[int]]]] = {}
    for entry in entries:
        for role, seen in entry.inputs.items() if entry.is_spent else ():
            (part,) = by_part({role: seen})
            parts.setdefault(part, (role, {}))[1].setdefault(seen, []).append(entry.number)
    for role, files in parts.values():
        if len(files) > 1:
            groups = "; ".join(f"entry {numbers(those)}" for those in files.values())
            paragraph(f"They come from {len(files):,} different files of {role}: {groups}.")
    emit("Losses stand in different currencies and must not be added up by hand: `stirred ledger total` does.")


def _state(entry: Entry) -> str:
    """Return the state of an entry, and that it is published where it is."""
    published = ", published" if entry.publications else ""
    return f"{entry.state}{published}{', being published' if entry.open_publications else ''}"


def _loss(entry: Entry) -> str:
    if entry.derived_from or entry.unspecified:
        return "none: derived" if entry.derived_from else "not specified"
    return "" if entry.specification is None else entry.specification.budget_text


def entry_facts(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data."""
    return {
        **picked(entry, "number", "id", "mechanism", "purpose", "status", "drawn"),
        "spent": entry.is_spent,
        **picked(entry, "elsewhere", "who", "when", "made"),
        "parameters": dict(entry.parameters),
        "inputs": dict(entry.inputs),
        **picked(entry, "sample", "amplified", "sampling"),
        "derived_from": list(entry.derived_from),
        "includes": list(entry.includes),
        **picked(entry, "unspecified", "place", "bundle", "reason", "previous", "hash"),
        "history": [_event_facts(event) for event in entry.history],
        "specification": None if entry.specification is None else to_document(entry.specification),
    }


def _event_facts(event: Event) -> dict[str, Any]:
    return {
        "row": event.number,
        "what": event.kind,
        **picked(event, "who", "when", "reason", "to"),
        **({"place": event.place} if event.place else {}),
        **({"began": event.began} if event.began is not None else {}),
        **({"accepted": list(event.accepted)} if event.accepted else {}),
    }


def show_entry(entry: Entry, *, as_json: bool) -> None:
    """Show one entry with all its facts, and everything that happened to it."""
    if as_json:
        emit_json(entry_facts(entry))
        return
    heading(f"entry {entry.number}: {entry.mechanism}, {_state(entry)}")
    if entry.specification is not None:
        emit()
        _five(entry.specification)
        emit()
    known = entry_facts(entry)
    # Who did what, when and why is told by the history.
    skipped = {"number", "mechanism", "status", "drawn", "specification", "who", "when", "reason", "history"}
    kept = {key: value for key, value in known.items() if key not in {*skipped, "spent", "parameters"}}
    facts([("spent", "yes" if entry.is_spent else "no"), *_lines(kept)])
    if settings := _lines(entry.parameters):
        emit()
        emit("settings:")
        facts(settings, indent=2)
    emit()
    emit("what happened:")
    rows = []
    for event in entry.history:
        accepted = f", who accepted {', '.join(event.accepted)}" if event.accepted else ""
        rows.append(_dated(event, f"{event.what}, {event.who}{accepted}{f': {event.reason}' if event.reason else ''}"))
    facts(rows, indent=2)


def _dated(row: Event | PolicyChange, what: str) -> tuple[str, str]:
    return f"row {row.number}", f"{row.when[:16].replace('T', ' ')} UTC  {what}"


def _lines(known: Mapping[str, Any], *, under: str = "") -> list[tuple[str, str]]:
    """Return facts as labelled lines, those inside others labelled by both; what is empty or no is left out."""
    lines: list[tuple[str, str]] = []
    for key, value in known.items():
        label = f"{under} {key.replace('_', ' ')}".strip()
        if isinstance(value, dict):
            lines += _lines(value, under=label)
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            lines += _lines({str(n): item for n, item in enumerate(value, start=1)}, under=label)
        elif isinstance(value, list):
            lines.append((label, ", ".join(map(str, value))))
        else:
            lines.append((label, "yes" if value is True else "" if value is None or value is False else str(value)))
    return [(label, text) for label, text in lines if text]


def _five(specification: Any, *, bound: str = "") -> None:
    emit(f"{bound}{specification.notation}")
    five(explain(specification), indent=2)


_MOST_STEPS = 30


def show_total(ledger: Ledger, found: Total, *, as_json: bool) -> None:
    """Show the specification of everything together, or the parts side by side."""
    if as_json:
        emit_json(total_facts(ledger, found))
        return
    heading(f"Everything released from {ledger.dataset}")
    if not found.parts and not found.alone and not found.unspecified:
        emit("Nothing that counts has been released or reserved.")
    if found.unbounded:
        named = [f"entry {number}, {ledger.entry(number).mechanism}" for number in found.unbounded]
        emit(f"NO BOUND: {'; '.join(named)}")
        paragraph(f"{found.no_bound[:1].upper()}{found.no_bound[1:]}: its loss is infinite.")
        if found.others is not None and found.others.specification is not None:
            emit(f"Without that: {found.others.bound}{found.others.specification.notation}")
        emit()
    if not found.is_one:
        paragraph("There is no one number: the following stand side by side and must not be added up.")
        bullets([str(problem) for problem in found.apart])
    for part in found.parts:
        emit()
        _show_part(part, bound=found.bound)
    _show_list("released without a specification, so everything costs at least this:", map(_aside, found.unspecified))
    _show_list("contradicted inside this ledger, and what then holds:", found.contradicted)
    _show_list("alone, with their own loss:", map(_aside, found.alone))
    _show_list("at no further cost:", map(_aside, found.free))
    emit()
    paragraph("The ledger knows only the releases that are recorded in it.")


def _show_part(part: SummedEntries, *, bound: str) -> None:
    _five(part.specification, bound=bound)
    facts([("entry" if len(part.entries) == 1 else "entries", numbers(part.entries))], indent=2)
    if part.specification.assumptions:
        emit("  holds if:")
        bullets(part.specification.assumptions, indent=4)
    steps = [str(step) for step in part.derivation.steps]
    if steps:
        emit("  derived by:")
        bullets(steps[: _MOST_STEPS - 1] + steps[_MOST_STEPS - 1 :][-1:], indent=4)
        if len(steps) > _MOST_STEPS:
            emit(f"    {len(steps) - _MOST_STEPS:,} further steps; --json lists all")


def _show_list(title: str, items: Iterable[object]) -> None:
    if lines := [str(item) for item in items]:
        emit()
        emit(title)
        bullets(lines)


def _aside(one: Aside) -> str:
    notation = f"{one.specification.notation}: " if one.specification else ""
    return f"{numbers(one.entries)}: {notation}{one.reason}{f'. Fix: {one.remedy}' if one.remedy else ''}"


def total_facts(ledger: Ledger, found: Total) -> dict[str, Any]:
    """Return the total as plain data."""

    def aside(one: Aside) -> dict[str, Any]:
        kept = None if one.specification is None else to_document(one.specification)
        return {"entries": list(one.entries), "reason": one.reason, "remedy": one.remedy, "specification": kept}

    return {
        "ledger": ledger.name,
        "dataset": ledger.dataset,
        "head": {"number": ledger.head.number, "hash": ledger.head.hash},
        "one": found.is_one,
        "unbounded": list(found.unbounded),
        "without_them": None if found.others is None else total_facts(ledger, found.others),
        "at_least": bool(found.unspecified),
        "parts": [
            {
                "notation": part.specification.notation,
                "entries": list(part.entries),
                "specification": to_document(part.specification),
                "steps": [step_facts(step) for step in part.derivation.steps],
            }
            for part in found.parts
        ],
        "apart": [str(problem) for problem in found.apart],
        "alone": [aside(one) for one in found.alone],
        "free": [aside(one) for one in found.free],
        "unspecified": [aside(one) for one in found.unspecified],
        "contradicted": [
            {"assumption": one.assumption, "kind": one.reliance.kind, **picked(one, "entries", "by", "certain", "then")}
            for one in found.contradicted
        ],
    }


def show_policy(ledger: Ledger, *, as_json: bool) -> None:
    """Show the policy in force, what is left, and every change of it."""
    current, changes = ledger.policy, ledger.policy_changes
    rest = [] if current is None else [left(limit, ledger.total(limit.currency)) for limit in current.limits]
    if as_json:
        problems = () if current is None else current.problems
        emit_json(
            {
                "policy": None if current is None else current.document,
                "left": rest,
                "problems": [picked(problem, "what", "where", "remedy") for problem in problems],
                "changes": [
                    {
                        "row": change.number,
                        **picked(change, "who", "when", "reason"),
                        "policy": None if change.policy is None else change.policy.document,
                    }
                    for change in changes
                ],
            }
        )
        return
    if current is None:
        emit("no policy is in force: nothing is refused")
    else:
        _show_rules(ledger, current, rest)
    if len(changes) > 1 or current is not None:
        emit()
        emit("put in force:")
        rows = []
        for change in changes:
            what = "none" if change.policy is None else str(change.policy)
            rows.append(_dated(change, f"{what} ({change.who}{f': {change.reason}' if change.reason else ''})"))
        facts(rows, indent=2)


def _show_rules(ledger: Ledger, policy: Policy, rest: list[str]) -> None:
    limits = zip(policy.limits, rest, strict=True)
    rows = [(f"limit {limit.name}".strip(), f"{limit}: {what}") for limit, what in limits]
    who = "anybody" if policy.who is None else ", ".join(policy.who) or "nobody"
    facts([*rows, ("who", who), ("invariants", policy.fixed)])
    for problem in policy.problems:
        emit()
        paragraph(
            f"No release is allowed under this policy. {problem} Then put it in force: stirred ledger policy "
            f"{ledger.name} POLICY.toml --reason '...'"
        )


def show_verification(found: Verification, *, as_json: bool) -> None:
    """Show what a check of the whole ledger found."""
    first = found.first_break
    if as_json:
        place = None if first is None else {"row": first.number, "kind": first.kind, "what": first.problems[0].what}
        emit_json(
            {
                "sound": found.is_sound,
                **picked(found, "rows", "entries", "head"),
                "break": place,
                "observations": list(found.observations),
            }
        )
        return
    if first is None:
        emit(f"sound: {number(found.rows, 'row')}, {number(found.entries, 'entry', 'entries')}")
        facts([("head", found.head)])
        paragraph("Write the head down elsewhere: with --head it shows later whether rows were cut off at the end.")
    else:
        heading("BROKEN")
        bullets([str(problem) for problem in first.problems])
    if found.observations:
        emit("noticed, and no break:")
        bullets(found.observations)


def recovered_facts(one: Recovered) -> dict[str, Any]:
    """Return a resolved reservation as plain data."""
    return {**picked(one.entry, "number", "id", "status"), "spent": one.entry.is_spent, "because": one.because}
