"""`stirred ledger`: the account of everything released from one confidential dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stirred.cli.option_words import wrong
from stirred.cli.options import Json, Names, Place, Text, arg, opt
from stirred.cli.output import emit, emit_json, facts, say
from stirred.cli.spec import STATED, Because, Kappa
from stirred.cli.spec_given import factors, output_premetric, write_new
from stirred.cli.spec_given import read as read_specification

if TYPE_CHECKING:
    from stirred.release.ledger import Entry, Ledger, Total
    from stirred.release.ledger.currency import Currency
    from stirred.release.ledger.samples import Sampling


Where = Annotated[str, arg("LEDGER", "The ledger: a file, or postgresql://user@host/database.")]
Reference = Annotated[str, arg("ENTRY", "An entry: its number, or the beginning of its id.")]
Who = Annotated[Text, opt("--who NAME", "Who does this (default: the user at work).")]
Reason = Annotated[str, opt("--reason TEXT", "Why; it stays in the ledger.")]
Unit = Annotated[Text, opt("--unit NAME", "The common unit, where entries differ.")]
Output = Annotated[
    Text, opt("--output NAME", "Express the total in: pure, zcdp, approximate, gdp, tv, kl, hellinger or chi2.")
]
Delta = Annotated[Text, opt("--delta NUMBER", "delta; alone it means --output approximate.")]
Copies = Annotated[
    Text, opt("--copies NUMBER", "Protect people, whose answers stand in at most this many records, say 2.")
]

app = typer.Typer(
    help="The ledger: all releases from one dataset, and their promise. "
    "LEDGER is a file, or postgresql://user@host/database for a team.",
    no_args_is_help=True,
)


@app.command()
def init(
    ledger: Where,
    dataset: Annotated[str, opt("--dataset TEXT", "The confidential dataset it accounts for, in words.")],
    policy: Annotated[Place, opt("--policy POLICY.toml", "policy.toml to put in force at once.")] = None,
    who: Who = None,
    json: Json = False,
) -> None:
    """Create a ledger for one confidential dataset."""
    from stirred.release.ledger import Ledger, Policy

    rules = None if policy is None else Policy.read(policy)
    made = Ledger.create(ledger, dataset=dataset, policy=rules, who=who)
    if json:
        _emit_made(made)
        return
    emit(f"ledger of {made.dataset}: {made.name}")
    facts([("id", made.id), ("policy", "none" if rules is None else "in force")])


def _emit_made(made: Ledger) -> None:
    emit_json({"ledger": made.name, "id": made.id, "dataset": made.dataset, "head": made.head.hash})


@app.command()
def show(
    ledger: Where, entry: Annotated[Text, arg("[ENTRY]", "One entry, with all its facts.")] = None, json: Json = False
) -> None:
    """List the entries, or show one with all its facts."""
    from stirred.cli.ledger_shown import show_entries, show_entry

    opened = _open(ledger)
    if entry is not None:
        show_entry(opened.entry(entry), as_json=json)
    else:
        show_entries(opened, as_json=json)


@app.command()
def add(
    ledger: Where,
    specification: Annotated[
        Text, arg("[SPEC]", "A specification (JSON or TOML), a bundle, or a catalogue name.")
    ] = None,
    mechanism: Annotated[
        Text, opt("--mechanism NAME", "What made the release (default: what a bundle or specification says).")
    ] = None,
    purpose: Annotated[str, opt("--purpose TEXT", "What it is for.")] = "",
    derived_from: Annotated[
        Names, opt("--derived-from ENTRY", "ENTRY whose output it was computed from: it costs nothing.")
    ] = None,
    includes: Annotated[
        Names, opt("--includes ENTRY", "ENTRY that this specification already covers, so it counts once.")
    ] = None,
    unspecified: Annotated[
        Text, opt("--unspecified REASON", "It has no specification: totals are then at least what is known.")
    ] = None,
    sample: Annotated[Text, opt("--sample NAME", "Name of the sample it was computed from.")] = None,
    amplified: Annotated[bool, opt("--amplified", "The loss is already amplified by the sampling.")] = False,
    design: Annotated[Text, opt("--design TEXT", "How the sample was drawn, such as 'srswor n=100 N=1000'.")] = None,
    inner: Annotated[Text, opt("--inner NUMBER", "The loss on the sample itself, before amplification.")] = None,
    joint: Annotated[
        Names,
        opt(
            "--joint SAMPLE=RATE",
            "A dependent sample, and the probability of being in both, or unknown (losses on the samples add up).",
        ),
    ] = None,
    bundle: Annotated[Text, opt("--checksum TEXT", "Checksum of what was released.")] = None,
    name: Annotated[
        Text, opt("--name DATASET", "The dataset of the ledger, if the bundle is of that file as it was edited since.")
    ] = None,
    when: Annotated[Text, opt("--when DAY", "The day it was released, such as 2021-08-12, if that is known.")] = None,
    who: Who = None,
    json: Json = False,
) -> None:
    """Record a release made elsewhere.

    It happened, so the policy cannot refuse it.
    """
    from stirred.data.place import MANIFEST
    from stirred.release.bundle import bundle_checksum, bundle_origin, stated_mechanism
    from stirred.release.ledger import Request

    given = None if specification is None else read_specification(specification).specification
    folder = Path(specification or "")
    if bundle is None and (folder / MANIFEST).is_file():
        bundle = bundle_checksum(folder)
    origin = bundle_origin(folder) if specification is not None else {}
    if name is not None:  # as a plan names it; it stays in the record
        parameters = origin.get("parameters", {})
        origin["parameters"] = {**parameters, "data": {**(parameters.get("data") or {}), "name": name}}
    request = Request(
        mechanism=mechanism or (stated_mechanism(folder) if specification else "") or "elsewhere",
        specification=given,
        purpose=purpose,
        who=who,
        derived_from=derived_from or (),
        includes=includes or (),
        unspecified=unspecified or "",
        sample=sample,
        amplified=amplified,
        sampling=_sampling(design, inner, joint or []),
        **origin,
        bundle=bundle,
        made=when,
    )
    _changed(_open(ledger).add(request), as_json=json)


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


@app.command()
def total(
    ledger: Where,
    unit: Unit = None,
    kappa: Kappa = None,
    because: Because = STATED,
    output: Output = None,
    delta: Delta = None,
    copies: Copies = None,
    out: Annotated[Place, opt("--out FILE", "Also write the specification.json of the total.")] = None,
    json: Json = False,
) -> None:
    """Show the specification of everything together.

    Every conversion is shown with its theorem.
    """
    from stirred.cli.ledger_shown import show_total
    from stirred.spec.document import to_json

    currency = currency_of(unit, kappa, because, output, delta, copies)
    opened = _open(ledger)
    found = opened.total(currency)
    check_copies(found)
    if out is not None:
        if found.specification is None:
            raise wrong("there is not one specification of everything", where="--out", remedy="leave --out away")
        write_new(out, to_json(found.specification))
        say(f"wrote {out}")
    show_total(opened, found, as_json=json)


@app.command()
def verify(
    ledger: Where,
    head: Annotated[Text, opt("--head HASH", "A hash written down earlier, which must still be there.")] = None,
    json: Json = False,
) -> None:
    """Check every hash, link, document and change of status.

    Exits with 1 at the first break.
    """
    from stirred.cli.ledger_shown import show_verification
    from stirred.release.ledger.account import verify_store
    from stirred.release.ledger.store import store_at

    found = verify_store(store_at(ledger), head=head)
    show_verification(found, as_json=json)
    if not found.is_sound:
        raise typer.Exit(1)


@app.command()
def recover(
    ledger: Where,
    entries: Annotated[Names, arg("[ENTRY...]", "Reservations to resolve (default: all open ones).")] = None,
    dry_run: Annotated[bool, opt("--dry-run", "Say what would be done, and do nothing.")] = False,
    who: Who = None,
    json: Json = False,
) -> None:
    """Resolve reservations and publications of processes that died.

    The files they left show how far they came.
    """
    from stirred.cli.ledger_shown import recovered_facts
    from stirred.release.ledger.recover import recover as resolve

    done = resolve(_open(ledger), entries or (), who=who, dry_run=dry_run)
    if json:
        emit_json([recovered_facts(one) for one in done])
        return
    for one in done:
        emit(f"entry {one.entry.number} ({one.entry.mechanism}): {one.because}")
    if not done:
        emit("no reservation is open, and no publication")
    elif dry_run:
        emit("Nothing was done. A process that is still running would have to begin again.")


@app.command()
def abort(ledger: Where, entry: Reference, reason: Reason, who: Who = None, json: Json = False) -> None:
    """Give a reservation up.

    It is free if nothing was drawn, and spent otherwise. What was kept to finish the release is destroyed.
    """
    from stirred.release.ledger.recover import give_up

    given_up = _open(ledger).abort(entry, reason=reason, who=who)
    give_up(given_up)
    _changed(given_up, as_json=json)


@app.command()
def withdraw(ledger: Where, entry: Reference, reason: Reason, who: Who = None, json: Json = False) -> None:
    """Record that a release was taken back.

    What readers saw still counts.
    """
    _changed(_open(ledger).withdraw(entry, reason=reason, who=who), as_json=json)


@app.command()
def policy(
    ledger: Where,
    file: Annotated[Place, arg("[POLICY.toml]", "A policy to put in force.")] = None,
    none: Annotated[bool, opt("--none", "Put no policy in force.")] = False,
    reason: Annotated[str, opt("--reason TEXT", "Why it changes; it stays in the ledger.")] = "",
    who: Who = None,
    json: Json = False,
) -> None:
    """Show the policy in force, or put another one in force.

    Shows what is left as well, and every change.
    """
    from stirred.cli.ledger_shown import show_policy
    from stirred.release.ledger import Policy

    opened = _open(ledger)
    if file is not None and none:
        raise wrong("a file and --none were given", where="stirred ledger policy", remedy="give one of them")
    if file is not None or none:
        opened.set_policy(None if file is None else Policy.read(file), reason=reason, who=who)
    show_policy(opened, as_json=json)


@app.command()
def export(
    ledger: Where,
    format_: Annotated[
        str, opt("--format NAME", "json (everything), opendp (registry YAML) or markdown (for a website).")
    ] = "json",
    curator: Annotated[str, opt("--curator TEXT", "Who publishes, for opendp and markdown.")] = "",
    unit: Unit = None,
    kappa: Kappa = None,
    because: Because = STATED,
    output: Output = None,
    delta: Delta = None,
    copies: Copies = None,
    out: Annotated[Place, opt("--out FILE", "Write to this file instead of printing.")] = None,
    json: Json = False,
) -> None:
    """Export the ledger.

    As json without loss, as opendp or markdown for the public.
    """
    from stirred.release.ledger.export import FORMATS, exported

    if format_ not in FORMATS:
        raise wrong(f"{format_!r} is not a format", where="--format", remedy=f"one of {', '.join(FORMATS)}")
    currency = currency_of(unit, kappa, because, output, delta, copies)
    opened = _open(ledger)
    if copies is not None:
        check_copies(opened.total(currency, reserved=False))
    text = exported(opened, format_, currency=currency, curator=curator)
    if out is not None:
        write_new(out, text, private=format_ == "json")  # everything the ledger holds, and so as private as it
        say(f"wrote {out}")
    if json:
        emit_json({"format": format_, "text": text, "out": None if out is None else str(out)})
    elif out is None:
        emit(text.rstrip("\n"))


@app.command("import")
def import_(
    file: Annotated[Path, arg("FILE", "What `stirred ledger export --format json` wrote.")],
    ledger: Where,
    json: Json = False,
) -> None:
    """Make a ledger from an export.

    A broken chain is refused, and nothing is written.
    """
    from stirred.data.problems import number
    from stirred.release.ledger.export import imported

    made = imported(file, ledger)
    if json:
        _emit_made(made)
        return
    emit(f"ledger of {made.dataset}: {made.name}, {number(made.head.number + 1, 'row')}")


def _open(url: str) -> Ledger:
    from stirred.release.ledger import Ledger

    return Ledger.open(url)


def _changed(entry: Entry, *, as_json: bool) -> None:
    from stirred.cli.ledger_shown import entry_facts

    if as_json:
        emit_json(entry_facts(entry))
        return
    emit(f"entry {entry.number} ({entry.mechanism}): {entry.state}")
    facts([("id", entry.id)])


def currency_of(
    unit: str | None, kappa: list[str] | None, because: str, output: str | None, delta: str | None, copies: str | None
) -> Currency:
    """Return what the options express a total in."""
    from stirred.release.ledger.currency import Copies, Currency

    name = output or ("approximate" if delta is not None else None)
    return Currency(
        unit=unit,
        units=tuple(factors(kappa, because)),
        output=None if name is None else output_premetric(name, delta=delta),
        copies=None if copies is None else Copies(factor=copies, because=because),
    )


def check_copies(found: Total) -> None:
    """Refuse --copies where it applies to nothing; where it applies to some, the others stand apart with the reason."""
    from stirred.spec.problems import CopiesProblem, SpecificationError

    problems = [problem for aside in found.alone for problem in aside.problems if isinstance(problem, CopiesProblem)]
    if problems and not found.parts:
        raise SpecificationError(dict.fromkeys(problems))
