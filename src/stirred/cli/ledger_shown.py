"""A ledger on the screen: its entries, one entry with its history, the total, the policy, and what a check found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph, table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stirred.release.ledger import Entry, Ledger, Total
    from stirred.release.ledger.entry import Event
    from stirred.release.ledger.policy import Policy, PolicyChange
    from stirred.release.ledger.recover import Recovered
    from stirred.release.ledger.total import Aside, Part
    from stirred.release.ledger.verify import Verification


# ---- entries ------------------------------------------------------------------------------------


def show_entries(ledger: Ledger, *, as_json: bool) -> None:
    """List the entries of a ledger."""
    from stirred.data.problems import number
    from stirred.release.ledger.total import numbers

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
    for role, files in _files(entries).items():
        if len(files) > 1:
            groups = "; ".join(f"entry {numbers(those)}" for those in files.values())
            paragraph(f"They come from {len(files):,} different files of {role}: {groups}.")
    emit("Losses stand in different currencies and must not be added up by hand: `stirred ledger total` does.")


def _files(entries: list[Entry]) -> dict[str, dict[str, list[int]]]:
    """Return the entries that count by each kind of file and its checksum."""
    found: dict[str, dict[str, list[int]]] = {}
    for entry in entries:
        for role, seen in entry.inputs.items():
            if entry.is_spent:
                found.setdefault(role, {}).setdefault(seen, []).append(entry.number)
    return found


def _state(entry: Entry) -> str:
    """Return the state of an entry, and that it is published where it is."""
    return f"{entry.state}, published" if entry.publications else entry.state


def _loss(entry: Entry) -> str:
    if entry.derived_from:
        return "none: derived"
    return "" if entry.specification is None else entry.specification.budget_text


def entry_facts(entry: Entry) -> dict[str, Any]:
    """Return an entry as plain data."""
    from stirred.spec.document import to_document

    return {
        "number": entry.number,
        "id": entry.id,
        "mechanism": entry.mechanism,
        "purpose": entry.purpose,
        "status": entry.status,
        "drawn": entry.drawn,
        "spent": entry.is_spent,
        "elsewhere": entry.elsewhere,
        "who": entry.who,
        "when": entry.when,
        "made": entry.made,
        "parameters": dict(entry.parameters),
        "inputs": dict(entry.inputs),
        "sample": entry.sample,
        "amplified": entry.amplified,
        "derived_from": list(entry.derived_from),
        "includes": list(entry.includes),
        "place": entry.place,
        "bundle": entry.bundle,
        "reason": entry.reason,
        "previous": entry.previous,
        "hash": entry.hash,
        "history": [_event_facts(event) for event in entry.history],
        "specification": None if entry.specification is None else to_document(entry.specification),
    }


def _event_facts(event: Event) -> dict[str, Any]:
    return {
        "row": event.number,
        "what": event.kind,
        "who": event.who,
        "when": event.when,
        "reason": event.reason,
        "to": event.to,
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
    facts([_event_line(event) for event in entry.history], indent=2)


def _event_line(event: Event) -> tuple[str, str]:
    return f"row {event.number}", f"{_moment(event.when)}  {event.what}, {event.who}{_why(event.reason)}"


def _moment(when: str) -> str:
    return when[:16].replace("T", " ") + " UTC"


def _why(reason: str) -> str:
    return f": {reason}" if reason else ""


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


def _five(specification: Any) -> None:
    from stirred.spec.explain import explain

    words = explain(specification)
    emit(specification.notation)
    emit("  NOT protected, because it is published exactly:")
    bullets(words.not_protected, indent=4)
    facts([(a.question, a.answer) for a in words.answers], indent=2)


# ---- the total ----------------------------------------------------------------------------------


_MOST_STEPS = 30


def show_total(ledger: Ledger, found: Total, *, as_json: bool) -> None:
    """Show the specification of everything together, or the parts side by side."""
    if as_json:
        emit_json(total_facts(ledger, found))
        return
    heading(f"Everything released from {ledger.dataset}")
    if not found.parts and not found.alone:
        emit("Nothing that counts has been released or reserved.")
    if not found.is_one:
        paragraph("There is no one number: the following stand side by side and must not be added up.")
        bullets([str(problem) for problem in found.apart])
    for part in found.parts:
        emit()
        _show_part(part)
    _show_asides("alone, with their own loss:", found.alone)
    _show_asides("at no further cost:", found.free)
    emit()
    paragraph("The ledger knows the releases it was told about, and no others.")


def _show_part(part: Part) -> None:
    from stirred.release.ledger.total import numbers

    _five(part.specification)
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


def _show_asides(title: str, asides: tuple[Aside, ...]) -> None:
    from stirred.release.ledger.total import numbers

    if asides:
        emit()
        emit(title)
        bullets(
            [
                f"{numbers(a.entries)}: {a.specification.notation + ': ' if a.specification else ''}{a.reason}"
                f"{'. Mend: ' + a.remedy if a.remedy else ''}"
                for a in asides
            ]
        )


def total_facts(ledger: Ledger, found: Total) -> dict[str, Any]:
    """Return the total as plain data."""
    from stirred.spec.document import to_document

    def aside(one: Aside) -> dict[str, Any]:
        kept = None if one.specification is None else to_document(one.specification)
        return {"entries": list(one.entries), "reason": one.reason, "remedy": one.remedy, "specification": kept}

    return {
        "ledger": ledger.name,
        "dataset": ledger.dataset,
        "head": {"number": ledger.head.number, "hash": ledger.head.hash},
        "one": found.is_one,
        "parts": [
            {
                "notation": part.specification.notation,
                "entries": list(part.entries),
                "specification": to_document(part.specification),
                "steps": [
                    {"action": s.action, "theorem": s.theorem, "before": s.before, "after": s.after}
                    for s in part.derivation.steps
                ],
            }
            for part in found.parts
        ],
        "apart": [str(problem) for problem in found.apart],
        "alone": [aside(one) for one in found.alone],
        "free": [aside(one) for one in found.free],
    }


# ---- the policy, and what a check found ---------------------------------------------------------


def show_policy(ledger: Ledger, *, as_json: bool) -> None:
    """Show the policy in force, what is left, and every change of it."""
    from stirred.release.ledger.policy import left

    current, changes = ledger.policy, ledger.policy_changes
    rest = [] if current is None else [left(limit, ledger.total(limit.currency)) for limit in current.limits]
    if as_json:
        problems = () if current is None else current.problems
        emit_json(
            {
                "policy": None if current is None else current.document,
                "left": rest,
                "problems": [{"what": p.what, "where": p.where, "remedy": p.remedy} for p in problems],
                "changes": [_change_facts(change) for change in changes],
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
        facts([_change_line(change) for change in changes], indent=2)


def _show_rules(ledger: Ledger, policy: Policy, rest: list[str]) -> None:
    facts(
        [
            *(
                (f"limit {limit.name}".strip(), f"{limit}: {what}")
                for limit, what in zip(policy.limits, rest, strict=True)
            ),
            ("who", "anybody" if policy.who is None else ", ".join(policy.who) or "nobody"),
            ("invariants", policy.fixed),
        ]
    )
    for problem in policy.problems:
        emit()
        paragraph(
            f"No release is allowed under this policy. {problem} Then put it in force: stirred ledger policy "
            f"{ledger.name} POLICY.toml --reason '...'"
        )


def _change_line(change: PolicyChange) -> tuple[str, str]:
    what = "none" if change.policy is None else str(change.policy)
    return f"row {change.number}", f"{_moment(change.when)}  {what} ({change.who}{_why(change.reason)})"


def _change_facts(change: PolicyChange) -> dict[str, Any]:
    return {
        "row": change.number,
        "who": change.who,
        "when": change.when,
        "reason": change.reason,
        "policy": None if change.policy is None else change.policy.document,
    }


def show_verification(found: Verification, *, as_json: bool) -> None:
    """Show what a check of the whole ledger found."""
    from stirred.data.problems import number

    first = found.first_break
    if as_json:
        place = None if first is None else {"row": first.number, "kind": first.kind, "what": first.problems[0].what}
        emit_json(
            {
                "sound": found.is_sound,
                "rows": found.rows,
                "entries": found.entries,
                "head": found.head,
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
    return {
        "number": one.entry.number,
        "id": one.entry.id,
        "status": one.entry.status,
        "spent": one.entry.is_spent,
        "because": one.because,
    }
