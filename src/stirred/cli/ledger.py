"""`stirred ledger`: the account of everything released from one confidential dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph, say, table
from stirred.cli.spec import Because, Json, Kappa
from stirred.cli.spec_given import factors, output_premetric, write_new
from stirred.cli.spec_given import read as read_specification

if TYPE_CHECKING:
    from stirred.release.ledger import Entry, Ledger, Total
    from stirred.release.ledger.recover import Recovered
    from stirred.release.ledger.total import Aside, Currency, Part

app = typer.Typer(
    help="The ledger: everything released from one confidential dataset, and what it promises together. "
    "LEDGER is a file, or postgresql://user@host/database for a team.",
    no_args_is_help=True,
)

Where = Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger: a file, or postgresql://user@host/database.")]
Reference = Annotated[str, typer.Argument(metavar="ENTRY", help="An entry: its number, or the beginning of its id.")]
Who = Annotated[str | None, typer.Option("--who", help="Who does this (default: the user at work).")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it stays in the ledger.")]
Unit = Annotated[str | None, typer.Option("--unit", help="The common unit, where entries differ.")]
Output = Annotated[str | None, typer.Option("--output", help="Express the total in: pure, zcdp, gdp, approximate.")]
Delta = Annotated[str | None, typer.Option("--delta", help="delta; alone it means --output approximate.")]
CopiesOption = Annotated[
    str | None,
    typer.Option("--copies", help="Protect people, whose answers stand in at most this many records, say 2."),
]


@app.command()
def init(
    ledger: Where,
    dataset: Annotated[str, typer.Option("--dataset", help="The confidential dataset it accounts for, in words.")],
    policy: Annotated[Path | None, typer.Option("--policy", help="policy.toml to put in force at once.")] = None,
    who: Who = None,
    json: Json = False,
) -> None:
    """Create a ledger for one confidential dataset."""
    from stirred.release.ledger import Ledger, Policy

    rules = None if policy is None else Policy.read(policy)
    made = Ledger.create(ledger, dataset=dataset, policy=rules, who=who)
    if json:
        emit_json({"ledger": made.name, "id": made.id, "dataset": made.dataset, "head": made.head.hash})
        return
    emit(f"ledger of {made.dataset}: {made.name}")
    facts([("id", made.id), ("policy", "none" if rules is None else "in force")])


@app.command()
def show(
    ledger: Where,
    entry: Annotated[str | None, typer.Argument(metavar="[ENTRY]", help="One entry, with all its facts.")] = None,
    json: Json = False,
) -> None:
    """List the entries, or show one with all its facts."""
    opened = _open(ledger)
    if entry is not None:
        _show_entry(opened.entry(entry), as_json=json)
        return
    entries = list(opened.entries())
    if json:
        emit_json(
            {
                "ledger": opened.name,
                "id": opened.id,
                "dataset": opened.dataset,
                "head": {"number": opened.head.number, "hash": opened.head.hash},
                "entries": [entry_facts(e) for e in entries],
            }
        )
        return
    heading(f"{opened.dataset}: {len(entries):,} entr{'y' if len(entries) == 1 else 'ies'}")
    if entries:
        table(
            ["", "when", "what", "purpose", "loss", "status"],
            [[str(e.number), e.when[:10], e.mechanism, e.purpose, _loss(e), e.state] for e in entries],
        )
    emit("Losses stand in different currencies and must not be added up by hand: `stirred ledger total` does.")


@app.command()
def add(
    ledger: Where,
    specification: Annotated[
        str | None, typer.Argument(metavar="[SPEC]", help="specification.json, a bundle, or a catalogue name.")
    ] = None,
    mechanism: Annotated[str, typer.Option("--mechanism", help="What made the release.")] = "elsewhere",
    purpose: Annotated[str, typer.Option("--purpose", help="What it is for.")] = "",
    derived_from: Annotated[
        list[str] | None,
        typer.Option("--derived-from", help="ENTRY whose output it was computed from: it costs nothing."),
    ] = None,
    includes: Annotated[
        list[str] | None,
        typer.Option("--includes", help="ENTRY that this specification already covers, so it counts once."),
    ] = None,
    sample: Annotated[str | None, typer.Option("--sample", help="Name of the sample it was computed from.")] = None,
    amplified: Annotated[
        bool, typer.Option("--amplified", help="The loss is already amplified by the sampling.")
    ] = False,
    bundle: Annotated[str | None, typer.Option("--checksum", help="Checksum of what was released.")] = None,
    who: Who = None,
    json: Json = False,
) -> None:
    """Record a release made elsewhere; it happened, so the policy cannot refuse it."""
    from stirred.release.bundle import MANIFEST, bundle_checksum
    from stirred.release.ledger import Request

    given = None if specification is None else read_specification(specification).specification
    folder = Path(specification or "")
    if bundle is None and (folder / MANIFEST).is_file():
        bundle = bundle_checksum(folder)
    request = Request(
        mechanism=mechanism,
        specification=given,
        purpose=purpose,
        who=who,
        derived_from=derived_from or (),
        includes=includes or (),
        sample=sample,
        amplified=amplified,
        bundle=bundle,
    )
    _changed(_open(ledger).add(request), as_json=json)


@app.command()
def total(
    ledger: Where,
    unit: Unit = None,
    kappa: Kappa = None,
    because: Because = "stated on the command line",
    output: Output = None,
    delta: Delta = None,
    copies: CopiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Also write the specification.json of the total.")] = None,
    json: Json = False,
) -> None:
    """Show the specification of everything together, every conversion with its theorem."""
    from stirred.spec.document import to_json
    from stirred.spec.problems import wrong

    currency = _currency(unit, kappa, because, output, delta, copies)
    opened = _open(ledger)
    found = opened.total(currency)
    if out is not None:
        if found.specification is None:
            raise wrong("there is not one specification of everything", where="--out", remedy="leave --out away")
        write_new(out, to_json(found.specification))
        say(f"wrote {out}")
    if json:
        emit_json(total_facts(opened, found))
        return
    _show_total(opened, found)


@app.command()
def verify(
    ledger: Where,
    head: Annotated[
        str | None, typer.Option("--head", help="A hash written down earlier, which must still be there.")
    ] = None,
    json: Json = False,
) -> None:
    """Check every hash, link, document and change of status; exits with 1 at the first break."""
    from stirred.release.ledger.store import store_at
    from stirred.release.ledger.verify import verify_store

    found = verify_store(store_at(ledger), head=head)
    first = found.first_break
    if json:
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
    elif first is None:
        emit(f"sound: {found.rows:,} rows, {found.entries:,} entries")
        facts([("head", found.head)])
        paragraph("Write the head down elsewhere: with --head it shows later whether rows were cut off at the end.")
    else:
        heading("BROKEN")
        bullets([str(problem) for problem in first.problems])
    if found.observations and not json:
        emit("noticed, and no break:")
        bullets(found.observations)
    if not found.is_sound:
        raise typer.Exit(1)


@app.command()
def recover(
    ledger: Where,
    entries: Annotated[
        list[str] | None, typer.Argument(metavar="[ENTRY...]", help="Reservations to resolve (default: all open ones).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    who: Who = None,
    json: Json = False,
) -> None:
    """Resolve reservations of processes that died, from what they left behind."""
    from stirred.release.ledger.recover import recover as resolve

    done = resolve(_open(ledger), entries or (), who=who, dry_run=dry_run)
    if json:
        emit_json([_recovered_facts(one) for one in done])
        return
    for one in done:
        emit(f"entry {one.entry.number} ({one.entry.mechanism}): {one.because}")
    if not done:
        emit("no reservation is open")
    elif dry_run:
        emit("Nothing was done. A process that is still running would have to begin again.")


@app.command()
def abort(ledger: Where, entry: Reference, reason: Reason, who: Who = None, json: Json = False) -> None:
    """Give a reservation up: free if nothing was drawn, spent otherwise."""
    _changed(_open(ledger).abort(entry, reason=reason, who=who), as_json=json)


@app.command()
def withdraw(ledger: Where, entry: Reference, reason: Reason, who: Who = None, json: Json = False) -> None:
    """Record that a release was taken back; what was seen goes on counting."""
    _changed(_open(ledger).withdraw(entry, reason=reason, who=who), as_json=json)


@app.command()
def policy(
    ledger: Where,
    file: Annotated[Path | None, typer.Argument(metavar="[POLICY.toml]", help="A policy to put in force.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Put no policy in force.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why it changes; it stays in the ledger.")] = "",
    who: Who = None,
    json: Json = False,
) -> None:
    """Show the policy in force and what is left, or put another one in force."""
    from stirred.release.ledger import Policy
    from stirred.release.ledger.policy import left
    from stirred.spec.problems import wrong

    opened = _open(ledger)
    if file is not None and none:
        raise wrong("a file and --none were given", where="stirred ledger policy", remedy="give one of them")
    if file is not None or none:
        opened.set_policy(None if file is None else Policy.read(file), reason=reason, who=who)
    current = opened.policy
    rest = [] if current is None else [left(limit, opened.total(limit.currency)) for limit in current.limits]
    if json:
        emit_json({"policy": None if current is None else current.document, "left": rest})
        return
    if current is None:
        emit("no policy is in force: nothing is refused")
        return
    facts(
        [
            *(
                (f"limit {limit.name}".strip(), f"{limit}: {what_is_left}")
                for limit, what_is_left in zip(current.limits, rest, strict=True)
            ),
            ("who", "anybody" if current.who is None else ", ".join(current.who) or "nobody"),
            ("invariants", _acceptable(current)),
        ]
    )


@app.command()
def export(
    ledger: Where,
    format_: Annotated[
        str, typer.Option("--format", help="json (everything), opendp (registry YAML) or markdown (for a website).")
    ] = "json",
    curator: Annotated[str, typer.Option("--curator", help="Who publishes, for opendp and markdown.")] = "",
    unit: Unit = None,
    kappa: Kappa = None,
    because: Because = "stated on the command line",
    output: Output = None,
    delta: Delta = None,
    copies: CopiesOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing.")] = None,
    json: Json = False,
) -> None:
    """Export the ledger: json without loss, opendp or markdown for the public."""
    from stirred.release.ledger.export import FORMATS, exported
    from stirred.spec.problems import wrong

    if format_ not in FORMATS:
        raise wrong(f"{format_!r} is not a format", where="--format", remedy=f"one of {', '.join(FORMATS)}")
    currency = _currency(unit, kappa, because, output, delta, copies)
    text = exported(_open(ledger), format_, currency=currency, curator=curator)
    if out is not None:
        write_new(out, text)
        if format_ == "json":
            out.chmod(0o600)  # everything the ledger holds, and so as private as it
        say(f"wrote {out}")
    if json:
        emit_json({"format": format_, "text": text, "out": None if out is None else str(out)})
    elif out is None:
        emit(text.rstrip("\n"))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `stirred ledger export --format json` wrote.")],
    ledger: Where,
    json: Json = False,
) -> None:
    """Make a ledger from an export; a broken chain is refused and nothing is written."""
    from stirred.release.ledger.export import imported

    made = imported(file, ledger)
    if json:
        emit_json({"ledger": made.name, "id": made.id, "dataset": made.dataset, "head": made.head.hash})
        return
    emit(f"ledger of {made.dataset}: {made.name}, {made.head.number + 1:,} rows")


# ---- saying -------------------------------------------------------------------------------------


def _open(url: str) -> Ledger:
    from stirred.release.ledger import Ledger

    return Ledger.open(url)


def _currency(
    unit: str | None, kappa: list[str] | None, because: str, output: str | None, delta: str | None, copies: str | None
) -> Currency:
    from stirred.release.ledger.total import Copies, Currency

    name = output or ("approximate" if delta is not None else None)
    return Currency(
        unit=unit,
        units=tuple(factors(kappa, because)),
        output=None if name is None else output_premetric(name, delta=delta, order=None),
        copies=None if copies is None else Copies(factor=copies, because=because),
    )


def _loss(entry: Entry) -> str:
    if entry.derived_from:
        return "none: derived"
    return "" if entry.specification is None else entry.specification.budget_text


def _changed(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        emit_json(entry_facts(entry))
        return
    emit(f"entry {entry.number} ({entry.mechanism}): {entry.state}")
    facts([("id", entry.id)])


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
        "specification": None if entry.specification is None else to_document(entry.specification),
    }


def _show_entry(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        emit_json(entry_facts(entry))
        return
    heading(f"entry {entry.number}: {entry.mechanism}, {entry.state}")
    known = entry_facts(entry)
    skipped = {"number", "mechanism", "status", "drawn", "specification"}
    rows = [(key.replace("_", " "), _shown(value)) for key, value in known.items() if key not in skipped]
    facts([(key, text) for key, text in rows if text])
    if entry.specification is not None:
        emit()
        _five(entry.specification)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{key} = {item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _five(specification: Any) -> None:
    from stirred.spec.explain import explain

    emit(specification.notation)
    facts([(a.question, a.answer) for a in explain(specification).answers], indent=2)


_MOST_STEPS = 30


def _show_total(ledger: Ledger, found: Total) -> None:
    heading(f"Everything released from {ledger.dataset}")
    if not found.parts and not found.alone:
        emit("Nothing that counts has been released or reserved.")
    if not found.is_one:
        paragraph("There is no one number: the following stand side by side and must not be added up.")
        bullets(found.apart)
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
    facts([("entries", numbers(part.entries))], indent=2)
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
                for a in asides
            ]
        )


def total_facts(ledger: Ledger, found: Total) -> dict[str, Any]:
    """Return the total as plain data."""
    from stirred.spec.document import to_document

    def aside(one: Aside) -> dict[str, Any]:
        kept = None if one.specification is None else to_document(one.specification)
        return {"entries": list(one.entries), "reason": one.reason, "specification": kept}

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
        "apart": list(found.apart),
        "alone": [aside(one) for one in found.alone],
        "free": [aside(one) for one in found.free],
    }


def _recovered_facts(one: Recovered) -> dict[str, Any]:
    return {
        "number": one.entry.number,
        "id": one.entry.id,
        "status": one.entry.status,
        "spent": one.entry.is_spent,
        "because": one.because,
    }


def _acceptable(policy: Any) -> str:
    if policy.acceptable is None:
        return "any"
    return "; ".join(str(invariant) for invariant in policy.acceptable.invariants) or "none"
