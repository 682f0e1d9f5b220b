"""`stirred ledger`: the account of everything released from one confidential dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel

from stirred.cli.options import Names, Place, Text, argument, command, option
from stirred.cli.output import five_blocks, notes_of, picked, step_facts
from stirred.cli.spec_given import STATED, CurrencyOptions, read
from stirred.data.place import MANIFEST
from stirred.data.problems import number
from stirred.mechanisms.groups import Bullets, FactRows, Outcome, OutputBlock, Title
from stirred.mechanisms.protocol import Grid
from stirred.release.bundle import bundle_checksum, bundle_origin, stated_mechanism
from stirred.release.ledger import Entry, Ledger, Policy, Request, Total
from stirred.release.ledger.account import verify_store
from stirred.release.ledger.currency import Copies, Currency
from stirred.release.ledger.export import exported, imported
from stirred.release.ledger.policy import PolicyChange, left
from stirred.release.ledger.recover import give_up, recover
from stirred.release.ledger.row import Event, by_part, numbers
from stirred.release.ledger.store import store_at
from stirred.release.ledger.total import Aside, SummedEntries
from stirred.spec.document import to_document, to_json
from stirred.spec.explanation import explain
from stirred.spec.problems import CopiesProblem, SpecificationError, wrong

if TYPE_CHECKING:
    from stirred.release.ledger.samples import Sampling

_MOST_STEPS: Final = 30


class _LedgerOptions(BaseModel):
    ledger: str = argument("LEDGER", "The ledger: a file, or postgresql://user@host/database.")


class _ChangeOptions(_LedgerOptions):
    who: Text = option("Who does this (default: the user at work).", form="NAME")


class _EntryOptions(_ChangeOptions):
    entry: str = argument("ENTRY", "An entry: its number, or the beginning of its id.")
    reason: str = option("Why; it stays in the ledger.", ...)


# ---- making, and adding to it ----------------------------------------------------------------------------


class LedgerInitOptions(_ChangeOptions):
    """`stirred ledger init`."""

    dataset: Text = option("The confidential dataset it accounts for, in words.")
    policy: Place = option("policy.toml to put in force at once.", form="POLICY.toml")
    from_: Place = option("Copy the ledger that `stirred ledger export` wrote here, instead.", form="EXPORT.json")


def init(options: LedgerInitOptions, _: Any) -> Outcome:
    """Create a ledger for one confidential dataset.

    Or copy one from an export: a broken chain is refused, and nothing is written.
    """
    if (options.from_ is None) == (options.dataset is None):
        what, remedy = "a new ledger is for a dataset, or a copy of an export", "give --dataset TEXT, or --from FILE"
        raise wrong(what, where="stirred ledger init", remedy=remedy)
    if options.from_ is not None:
        if options.policy is not None:
            raise wrong("an export has its own policy", where="--policy", remedy="leave it out")
        made = imported(options.from_, options.ledger)
        more = f", {number(made.head.number + 1, 'row')}"
        rows: list[tuple[str, str]] = []
    else:
        rules = None if options.policy is None else Policy.read(options.policy)
        made = Ledger.create(options.ledger, dataset=options.dataset or "", policy=rules, who=options.who)
        more = ""
        rows = [("id", made.id), ("policy", "none" if rules is None else "in force")]
    values = {"ledger": made.name, "id": made.id, "dataset": made.dataset, "head": made.head.hash}
    return Outcome(values=values, blocks=[f"ledger of {made.dataset}: {made.name}{more}", FactRows(rows)])


class AddOptions(_ChangeOptions):
    """`stirred ledger add`."""

    specification: Text = argument("SPEC", "A specification (JSON or TOML), a bundle, or a catalogue name.", None)
    mechanism: Text = option("What made the release (default: what a bundle or specification says).", form="NAME")
    purpose: str = option("What it is for.", "")
    derived_from: Names = option("ENTRY whose output it was computed from: it costs nothing.", [], form="ENTRY")
    includes: Names = option("ENTRY that this specification already covers, so it counts once.", [], form="ENTRY")
    unspecified: Text = option("It has no specification: totals are then at least what is known.", form="REASON")
    sample: Text = option("Name of the sample it was computed from.", form="NAME")
    amplified: bool = option("The loss is already amplified by the sampling.", False)
    design: Text = option("How the sample was drawn, such as 'srswor n=100 N=1000'.")
    inner: Text = option("The loss on the sample itself, before amplification.", form="NUMBER")
    joint: Names = option(
        "A dependent sample, and the probability of being in both, or unknown (losses on the samples add up).",
        [], form="SAMPLE=RATE",
    )  # fmt: skip
    checksum: Text = option("Checksum of what was released.")
    name: Text = option("The dataset of the ledger, if the bundle is of that file as it was edited since.")
    when: Text = option("The day it was released, such as 2021-08-12, if that is known.", form="DAY")


def add(options: AddOptions, _: Any) -> Outcome:
    """Record a release made elsewhere.

    It happened, so the policy cannot refuse it.
    """
    stated = options.specification
    given = None if stated is None else read(stated).specification
    folder, bundle = Path(stated or ""), options.checksum
    if bundle is None and (folder / MANIFEST).is_file():
        bundle = bundle_checksum(folder)
    origin = bundle_origin(folder) if stated is not None else {}
    if options.name is not None:  # as a plan names it; it stays in the record
        parameters = origin.get("parameters", {})
        origin["parameters"] = {**parameters, "data": {**(parameters.get("data") or {}), "name": options.name}}
    request = Request(
        mechanism=options.mechanism or (stated_mechanism(folder) if stated else "") or "elsewhere",
        specification=given,
        unspecified=options.unspecified or "",
        sampling=_sampling(options.design, options.inner, options.joint),
        **picked(options, "purpose", "who", "derived_from", "includes", "sample", "amplified"),
        **origin,
        bundle=bundle,
        made=options.when,
    )
    return _changed(Ledger.open(options.ledger).add(request))


def _sampling(design: str | None, inner: str | None, joint: list[str]) -> Sampling | None:
    """Return how a sample was drawn, as options say it."""
    from stirred.release.ledger.samples import Sampling

    if design is None and inner is None and not joint:
        return None
    if design is None or inner is None:
        raise wrong("the design and the inner loss go together", where="--design", remedy="give --design and --inner")
    name, *given = design.split()
    pairs = [each.partition("=") for each in (*given, *joint)]
    if any(not sign or not value for _, sign, value in pairs):
        raise wrong("a number has no name, or a name no number", where="--design", remedy="'srswor n=100 N=1000'")
    numbers = {key: value for key, _, value in pairs[: len(given)]}
    dependent = {key: value for key, _, value in pairs[len(given) :]}
    return Sampling.of({"design": {"design": name, **numbers}, "inner": inner, "joint": dependent})


def _changed(entry: Entry) -> Outcome:
    blocks: list[OutputBlock] = [
        f"entry {entry.number} ({entry.mechanism}): {entry.state}",
        FactRows([("id", entry.id)]),
    ]
    return Outcome(values=entry_facts(entry), blocks=blocks)


def abort(options: _EntryOptions, _: Any) -> Outcome:
    """Give a reservation up.

    It is free if nothing was drawn, and spent otherwise. What was kept to finish the release is destroyed.
    """
    given_up = Ledger.open(options.ledger).abort(options.entry, reason=options.reason, who=options.who)
    give_up(given_up)
    return _changed(given_up)


def withdraw(options: _EntryOptions, _: Any) -> Outcome:
    """Record that a release was taken back.

    What readers saw still counts.
    """
    ledger = Ledger.open(options.ledger)
    return _changed(ledger.withdraw(options.entry, reason=options.reason, who=options.who))


class RecoverOptions(_ChangeOptions):
    """`stirred ledger recover`."""

    entries: Names = argument("ENTRY...", "Reservations to resolve (default: all open ones).", [])
    dry_run: bool = option("Say what would be done, and do nothing.", False)


def resolve(options: RecoverOptions, _: Any) -> Outcome:
    """Resolve reservations and publications of processes that died.

    The files they left show how far they came.
    """
    ledger = Ledger.open(options.ledger)
    done = recover(ledger, options.entries, who=options.who, dry_run=options.dry_run)
    lines = [f"entry {one.entry.number} ({one.entry.mechanism}): {one.because}" for one in done]
    if not done:
        lines.append("no reservation is open, and no publication")
    elif options.dry_run:
        lines.append("Nothing was done. A process that is still running would have to begin again.")
    values = [
        {**picked(one.entry, "number", "id", "status"), "spent": one.entry.is_spent, "because": one.because}
        for one in done
    ]
    return Outcome(values=values, blocks=lines)


# ---- its entries --------------------------------------------------------------------------------------------


class LedgerShowOptions(_LedgerOptions):
    """`stirred ledger show`."""

    entry: Text = argument("ENTRY", "One entry, with all its facts.", None)


def show(options: LedgerShowOptions, _: Any) -> Outcome:
    """List the entries, or show one with all its facts."""
    ledger = Ledger.open(options.ledger)
    if options.entry is not None:
        entry = ledger.entry(options.entry)
        return Outcome(values=entry_facts(entry), blocks=_entry_shown(entry))
    entries = list(ledger.entries())
    values = {**_of(ledger), "id": ledger.id, "entries": [entry_facts(entry) for entry in entries]}
    return Outcome(values=values, blocks=_entries_shown(ledger, entries))


def _of(ledger: Ledger) -> dict[str, Any]:
    head = {"number": ledger.head.number, "hash": ledger.head.hash}
    return {"ledger": ledger.name, "dataset": ledger.dataset, "head": head}


def _entries_shown(ledger: Ledger, entries: Sequence[Entry]) -> Iterator[OutputBlock]:
    yield Title(f"{ledger.dataset}: {number(len(entries), 'entry', 'entries')}")
    if entries:
        header = ("", "when", "what", "purpose", "loss", "status")
        yield Grid(
            header=header,
            rows=tuple((e.number, e.day, e.mechanism, e.purpose, _loss(e), _state(e)) for e in entries),
        )
    if [e.number for e in entries] != [*range(1, len(entries) + 1)]:
        yield "An entry has the number of its first row; its draw, commit and publication are rows of their own."
    parts: dict[str, tuple[str, dict[str, list[int]]]] = {}
    for entry in entries:
        for role, seen in entry.inputs.items() if entry.is_spent else ():
            (part,) = by_part({role: seen})
            parts.setdefault(part, (role, {}))[1].setdefault(seen, []).append(entry.number)
    for role, files in parts.values():
        if len(files) > 1:
            groups = "; ".join(f"entry {numbers(those)}" for those in files.values())
            yield f"They come from {len(files):,} different files of {role}: {groups}."
    yield "Losses stand in different currencies and must not be added up by hand: `stirred ledger total` does."


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


def _entry_shown(entry: Entry) -> Iterator[OutputBlock]:
    """Yield one entry with all its facts, and everything that happened to it."""
    yield Title(f"entry {entry.number}: {entry.mechanism}, {_state(entry)}")
    if entry.specification is not None:
        yield ""
        yield from _five(entry.specification)
        yield ""
    # Who did what, when and why is in the history.
    skipped = {"number", "mechanism", "status", "drawn", "specification", "who", "when", "reason", "history"}
    known = {k: v for k, v in entry_facts(entry).items() if k not in {*skipped, "spent", "parameters"}}
    yield FactRows([("spent", "yes" if entry.is_spent else "no"), *_lines(known)])
    if settings := _lines(entry.parameters):
        yield from ("", "settings:", FactRows(settings, 2))
    rows = []
    for event in entry.history:
        accepted = f", who accepted {', '.join(event.accepted)}" if event.accepted else ""
        rows.append(_dated(event, f"{event.what}, {event.who}{accepted}{f': {event.reason}' if event.reason else ''}"))
    yield from ("", "what happened:", FactRows(rows, 2))


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


def _five(specification: Any, *, bound: str = "") -> Iterator[OutputBlock]:
    yield f"{bound}{specification.notation}"
    yield from five_blocks(explain(specification), indent=2)


# ---- everything together -----------------------------------------------------------------------------------


class TotalOptions(_LedgerOptions, CurrencyOptions):
    """`stirred ledger total`."""

    copies: Text = option("Protect people, whose answers stand in at most this many records, say 2.", form="NUMBER")
    out: Place = option("Also write the specification.json of the total.")


def total(options: TotalOptions, _: Any) -> Outcome:
    """Show the specification of everything together.

    Every conversion is shown with its theorem.
    """
    currency = currency_of(options, options.copies)
    ledger = Ledger.open(options.ledger)
    found = ledger.total(currency)
    check_copies(found)
    if options.out is not None and found.specification is None:
        what, remedy = "the releases do not combine into one specification", "remove --out"
        raise wrong(what, where="--out", remedy=remedy)
    notes = [] if found.specification is None else notes_of(options.out, to_json(found.specification))
    return Outcome(values=total_facts(ledger, found), blocks=_total_shown(ledger, found), notes=notes)


def currency_of(options: CurrencyOptions, copies: str | None) -> Currency:
    """Return what the options express a total in."""
    return Currency(
        unit=options.unit,
        units=tuple(options.factors()),
        output=options.premetric(),
        copies=None if copies is None else Copies(factor=copies, because=options.because or STATED),
    )


def check_copies(found: Total) -> None:
    """Refuse --copies where it applies to nothing; where it applies to some, the others stand apart with the reason."""
    problems = [problem for aside in found.alone for problem in aside.problems if isinstance(problem, CopiesProblem)]
    if problems and not found.parts:
        raise SpecificationError(dict.fromkeys(problems))


def _total_shown(ledger: Ledger, found: Total) -> Iterator[OutputBlock]:
    """Yield the specification of everything together, or the parts, listed separately."""
    yield Title(f"Everything released from {ledger.dataset}")
    if not found.parts and not found.alone and not found.unspecified:
        yield "Nothing that counts has been released or reserved."
    if found.unbounded:
        named = [f"entry {number}, {ledger.entry(number).mechanism}" for number in found.unbounded]
        yield f"NO BOUND: {'; '.join(named)}"
        yield f"{found.no_bound[:1].upper()}{found.no_bound[1:]}: its loss is infinite."
        if found.others is not None and found.others.specification is not None:
            yield f"Without that: {found.others.bound}{found.others.specification.notation}"
        yield ""
    if not found.is_one:
        yield "These releases cannot be combined into one number. They are listed separately and must not be added up."
        yield Bullets([str(problem) for problem in found.apart])
    for part in found.parts:
        yield ""
        yield from _part_shown(part, bound=found.bound)
    for title, items in (
        ("released without a specification, so everything costs at least this:", map(_aside, found.unspecified)),
        ("contradicted inside this ledger, and what then holds:", map(str, found.contradicted)),
        ("alone, with their own loss:", map(_aside, found.alone)),
        ("at no further cost:", map(_aside, found.free)),
    ):
        if lines := [*items]:
            yield from ("", title, Bullets(lines))
    yield from ("", "The ledger knows only the releases that are recorded in it.")


def _part_shown(part: SummedEntries, *, bound: str) -> Iterator[OutputBlock]:
    yield from _five(part.specification, bound=bound)
    yield FactRows([("entry" if len(part.entries) == 1 else "entries", numbers(part.entries))], 2)
    if part.specification.assumptions:
        yield from ("  holds if:", Bullets(part.specification.assumptions, 4))
    steps = [str(step) for step in part.derivation.steps]
    if steps:
        shown = steps[: _MOST_STEPS - 1] + steps[_MOST_STEPS - 1 :][-1:]
        yield from ("  derived by:", Bullets(shown, 4))
        if len(steps) > _MOST_STEPS:
            yield f"    {len(steps) - _MOST_STEPS:,} further steps; --json lists all"


def _aside(one: Aside) -> str:
    notation = f"{one.specification.notation}: " if one.specification else ""
    return f"{numbers(one.entries)}: {notation}{one.reason}{f'. Fix: {one.remedy}' if one.remedy else ''}"


def total_facts(ledger: Ledger, found: Total) -> dict[str, Any]:
    """Return the total as plain data."""

    def asides(these: Iterable[Aside]) -> list[dict[str, Any]]:
        return [
            {"entries": list(one.entries), "reason": one.reason, "remedy": one.remedy,
             "specification": None if one.specification is None else to_document(one.specification)}
            for one in these
        ]  # fmt: skip

    return {
        **_of(ledger),
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
        "alone": asides(found.alone),
        "free": asides(found.free),
        "unspecified": asides(found.unspecified),
        "contradicted": [
            {"assumption": one.assumption, "kind": one.reliance.kind, **picked(one, "entries", "by", "certain", "then")}
            for one in found.contradicted
        ],
    }


class LedgerExportOptions(TotalOptions):
    """`stirred ledger export`."""

    format_: Literal["json", "opendp", "markdown"] = option(
        "json (everything), opendp (registry YAML) or markdown (for a website).", "json"
    )
    curator: str = option("Who publishes, for opendp and markdown.", "")
    out: Place = option("Write to this file instead of printing.")


def export(options: LedgerExportOptions, _: Any) -> Outcome:
    """Export the ledger.

    As json without loss, as opendp or markdown for the public.
    """
    currency = currency_of(options, options.copies)
    ledger, out = Ledger.open(options.ledger), options.out
    if options.copies is not None:
        check_copies(ledger.total(currency, reserved=False))
    text = exported(ledger, options.format_, currency=currency, curator=options.curator)
    notes = notes_of(out, text, private=options.format_ == "json")  # everything the ledger holds, so as private as it
    values = {"format": options.format_, "text": text, "out": None if out is None else str(out)}
    return Outcome(values=values, text=text if out is None else "", notes=notes)


# ---- checks and rules --------------------------------------------------------------------------------------


class VerifyOptions(_LedgerOptions):
    """`stirred ledger verify`."""

    head: Text = option("A hash written down earlier, which must still be there.", form="HASH")


def verify(options: VerifyOptions, _: Any) -> Outcome:
    """Check every hash, link, document and change of status.

    Exits with 1 at the first break.
    """
    found = verify_store(store_at(options.ledger), head=options.head)
    first = found.first_break
    if first is None:
        blocks: list[OutputBlock] = [
            f"sound: {number(found.rows, 'row')}, {number(found.entries, 'entry', 'entries')}",
            FactRows([("head", found.head)]),
            "Write the head down elsewhere: with --head it shows later whether rows were cut off at the end.",
        ]
    else:
        blocks = [Title("BROKEN"), Bullets([str(problem) for problem in first.problems])]
    if found.observations:
        blocks += ["Warnings (the chain is intact):" if first is None else "Warnings:", Bullets(found.observations)]
    values = {
        "sound": found.is_sound,
        **picked(found, "rows", "entries", "head"),
        "break": None if first is None else {"row": first.number, "kind": first.kind, "what": first.problems[0].what},
        "observations": list(found.observations),
    }
    return Outcome(values=values, blocks=blocks, passed=found.is_sound)


class PolicyOptions(_ChangeOptions):
    """`stirred ledger policy`."""

    file: Place = argument("POLICY.toml", "A policy to put in force.", None)
    none: bool = option("Put no policy in force.", False)
    reason: str = option("Why it changes; it stays in the ledger.", "")


def policy(options: PolicyOptions, _: Any) -> Outcome:
    """Show the policy in force, or put another one in force.

    Shows what is left as well, and every change.
    """
    ledger, file = Ledger.open(options.ledger), options.file
    if file is not None and options.none:
        raise wrong("a file and --none were given", where="stirred ledger policy", remedy="give one of them")
    if file is not None or options.none:
        rules = None if file is None else Policy.read(file)
        ledger.set_policy(rules, reason=options.reason, who=options.who)
    current, changes = ledger.policy, ledger.policy_changes
    rest = [] if current is None else [left(limit, ledger.total(limit.currency)) for limit in current.limits]
    problems = () if current is None else current.problems
    values = {
        "policy": None if current is None else current.document,
        "left": rest,
        "problems": [picked(problem, "what", "where", "remedy") for problem in problems],
        "changes": [
            {"row": change.number, **picked(change, "who", "when", "reason"),
             "policy": None if change.policy is None else change.policy.document}
            for change in changes
        ],
    }  # fmt: skip
    return Outcome(values=values, blocks=_policy_shown(ledger, current, changes, rest))


def _policy_shown(
    ledger: Ledger, current: Policy | None, changes: Sequence[PolicyChange], rest: list[str]
) -> Iterator[OutputBlock]:
    if current is None:
        yield "no policy is in force: nothing is refused"
    else:
        limits = zip(current.limits, rest, strict=True)
        rows = [(f"limit {limit.name}".strip(), f"{limit}: {what}") for limit, what in limits]
        who = "anybody" if current.who is None else ", ".join(current.who) or "nobody"
        yield FactRows([*rows, ("who", who), ("invariants", current.fixed)])
        for problem in current.problems:
            yield ""
            yield (
                f"No release is allowed under this policy. {problem} Then put it in force: stirred ledger policy "
                f"{ledger.name} POLICY.toml --reason '...'"
            )
    if len(changes) > 1 or current is not None:
        rows = []
        for change in changes:
            what = "none" if change.policy is None else str(change.policy)
            rows.append(_dated(change, f"{what} ({change.who}{f': {change.reason}' if change.reason else ''})"))
        yield from ("", "put in force:", FactRows(rows, 2))


COMMANDS: Final = (
    command("init", LedgerInitOptions, init),
    command("show", LedgerShowOptions, show),
    command("add", AddOptions, add),
    command("total", TotalOptions, total),
    command("verify", VerifyOptions, verify),
    command("recover", RecoverOptions, resolve),
    command("abort", _EntryOptions, abort),
    command("withdraw", _EntryOptions, withdraw),
    command("policy", PolicyOptions, policy),
    command("export", LedgerExportOptions, export),
)
