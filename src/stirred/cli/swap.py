"""`stirred swap`, `stirred plan` and `stirred release`: from a file, or a plan, to a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stirred.cli.advice_shown import Wished, show_advice
from stirred.cli.choices_shown import show_choices
from stirred.cli.output import emit, emit_json, facts, say
from stirred.cli.plan_shown import (
    account_of,
    expected_errors,
    five_answers,
    ledger_facts,
    ledger_text,
    numbers,
    other_file_lines,
    say_warnings,
    show_plan,
)
from stirred.cli.progress import shown_progress
from stirred.cli.swap_options import (
    NOWHERE,
    Advise,
    AtMost,
    Change,
    Changed,
    CodebookFile,
    DataName,
    DeclaredValues,
    Distances,
    Epsilon,
    Exact,
    File,
    FineMatch,
    FineRate,
    Format,
    Hid,
    Hold,
    Id,
    Json,
    LedgerPlace,
    Match,
    Mechanism,
    Nearly,
    NoiseEpsilon,
    Options,
    OwnEpsilon,
    Persons,
    Purpose,
    Quiet,
    Rate,
    RedrawLaw,
    Respond,
    Seed,
    SettingsFrom,
    Swap,
    Table,
    Undisturbed,
    Unit,
    Weights,
    Write,
    has_rate,
)

if TYPE_CHECKING:
    from stirred.release.prepared import Prepared

# With wishes the file and its columns are told, and everything else is what is proposed.
_BESIDE_WISHES = ("swap", "hold", "id", "persons", "hid", "codebook", "table", "unit", "epsilon")


def swap(
    file: File,
    match: Match = None,
    swap: Swap = None,
    rate: Rate = None,
    mechanism: Mechanism = "permutation",
    redraw_law: RedrawLaw = None,
    fine_match: FineMatch = None,
    fine_rate: FineRate = None,
    distances: Distances = None,
    weights: Weights = None,
    noise_epsilon: NoiseEpsilon = None,
    respond: Respond = None,
    values: DeclaredValues = None,
    change: Change = None,
    hold: Hold = None,
    id: Id = None,
    persons: Persons = None,
    hid: Hid = None,
    name: DataName = None,
    codebook: CodebookFile = None,
    table: Table = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Folder of the bundle; must not exist.")
    ] = None,
    unit: Unit = "household",
    settings_from: SettingsFrom = None,
    ledger: LedgerPlace = None,
    purpose: Purpose = "",
    format_: Format = "parquet",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; nothing random happens.")] = False,
    epsilon: OwnEpsilon = None,
    seed: Seed = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Swap a household file and write the bundle of the release.

    The bundle holds data, tables, specification, checks and report.
    """
    given = locals()
    from stirred.release.prepared import prepare

    options = Options.of(given, out=out or (NOWHERE if dry_run else None))
    options.refuse_epsilon_beside_rate(epsilon)
    prepared = prepare(options.planned())
    if dry_run:
        show_plan(prepared, epsilon=None, as_json=json)
        return
    _run(prepared, seed=seed, quiet=quiet, as_json=json)


def plan(
    file: Annotated[Path, typer.Argument(metavar="PLAN.toml|FILE", help="A plan, or a household file with options.")],
    match: Match = None,
    swap: Swap = None,
    rate: Rate = None,
    mechanism: Mechanism = "permutation",
    redraw_law: RedrawLaw = None,
    fine_match: FineMatch = None,
    fine_rate: FineRate = None,
    distances: Distances = None,
    weights: Weights = None,
    noise_epsilon: NoiseEpsilon = None,
    respond: Respond = None,
    values: DeclaredValues = None,
    change: Change = None,
    hold: Hold = None,
    id: Id = None,
    persons: Persons = None,
    hid: Hid = None,
    name: DataName = None,
    codebook: CodebookFile = None,
    unit: Unit = "household",
    settings_from: SettingsFrom = None,
    ledger: LedgerPlace = None,
    epsilon: Epsilon = None,
    table: Table = None,
    expect_from: Annotated[
        str | None,
        typer.Option(
            "--expect-from",
            metavar="FILE|margins|this-data",
            help="Show the error to expect in each table: from another file, from this file's invariant margins alone, "
            "or from this file (confidential; not for choosing settings).",
        ),
    ] = None,
    expect_persons: Annotated[
        Path | None,
        typer.Option("--expect-persons", metavar="FILE", help="Persons of the file given to --expect-from."),
    ] = None,
    geography: Annotated[
        list[str] | None,
        typer.Option(
            "--geography",
            metavar="COLUMN",
            help="Levels from the finest to the coarsest: compare the choices of match and swap they allow.",
        ),
    ] = None,
    cross: Annotated[
        list[str] | None,
        typer.Option(
            "--cross",
            metavar="COLUMN",
            help="With --geography: further match variables to try, such as the household size.",
        ),
    ] = None,
    advise: Advise = False,
    exact: Exact = None,
    nearly: Nearly = None,
    undisturbed: Undisturbed = None,
    at_most: AtMost = None,
    changed: Changed = None,
    write: Write = None,
    json: Json = False,
) -> None:
    """Show what a release would promise; nothing is released.

    Shows as well the choices that a geography has, or what fits your wishes.
    """
    given = locals()
    from stirred.data.problems import bad_plan
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare

    wished = Wished(
        exact=exact, nearly=nearly, undisturbed=undisturbed, epsilon=epsilon, at_most=at_most, changed=changed,
        write=write,
    )  # fmt: skip
    advising = advise or wished.given
    if ledger and (geography or advising):
        remedy = "leave it out, and plan the choice you make with it"
        raise bad_plan("one plan is checked against a ledger, and here are many", where="--ledger", remedy=remedy)
    if geography:
        if advising:
            raise bad_plan("--geography has no wishes", where="--geography", remedy="name what is swapped with --swap")
        for option, value in (("match", match), ("swap", swap), ("rate", rate), ("hold", hold), ("codebook", codebook)):
            if value:
                raise bad_plan("--geography tries all choices", where=f"--{option}", remedy="leave one of them out")
        if file.suffix == ".toml":
            raise bad_plan("a plan has made its choice", where=str(file), remedy="give the household file instead")
        show_choices(file, geography, cross, id, persons, hid, unit=unit, epsilon=epsilon, as_json=json)
        return
    if cross:
        remedy = "name the levels with --geography, or leave it out; match variables are named with --match"
        raise bad_plan("--cross goes with --geography", where="--cross", remedy=remedy)
    if advising:
        _no_settings_beside_wishes(
            file, [*Options.named(given, but=_BESIDE_WISHES), *(["--expect-from"] if expect_from else [])]
        )
        show_advice(Options.of(given, out=NOWHERE, command="plan"), wished, as_json=json)
        return
    if file.suffix == ".toml":
        _no_options_beside_plan(Options.named(given, but=["epsilon"]))
        planned = read_plan(file)
    else:
        planned = Options.of(given, out=NOWHERE, command="plan").with_rate_for(epsilon).planned()
    if expect_persons is not None and expect_from in (None, "margins", "this-data"):
        raise bad_plan(
            "this file belongs to another file of households",
            where="--expect-persons",
            remedy="name that file with --expect-from FILE, or leave it out",
        )
    prepared = prepare(planned)
    expected = [] if expect_from is None else expected_errors(prepared, expect_from, expect_persons)
    target = epsilon if has_rate(prepared.mechanism.member) else None
    show_plan(prepared, epsilon=target, expected=expected, as_json=json)


def release(
    file: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="The plan to carry out.")],
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", hidden=True)] = None,
    seed: Seed = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Carry out a plan, and leave a complete bundle or none.

    The files are validated, swapped and verified.
    """
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare

    _no_options_beside_plan([] if out is None else ["--out"])
    _run(prepare(read_plan(file)), seed=seed, quiet=quiet, as_json=json)


def _no_options_beside_plan(options: Sequence[str]) -> None:
    from stirred.data.problems import PlanError
    from stirred.spec.problems import Problem

    def mend(option: str) -> str:
        return "change it in the plan" + (": [release] out" if option == "--out" else "")

    if options:
        raise PlanError(Problem(what="a plan says this already", where=name, remedy=mend(name)) for name in options)


def _no_settings_beside_wishes(file: Path, options: Sequence[str]) -> None:
    """Refuse settings that the advice is asked for."""
    from stirred.data.problems import PlanError, bad_plan
    from stirred.spec.problems import Problem

    if file.suffix == ".toml":
        raise bad_plan("a plan has made its choice", where=str(file), remedy="give the household file instead")
    how = {"--match": "name the counts that must stay exact with --exact instead; what to match on follows from them"}
    other = "leave it out, or leave the wishes out"
    if options:
        raise PlanError(
            Problem(what="with wishes this is what is proposed", where=name, remedy=how.get(name, other))
            for name in options
        )


def _run(prepared: Prepared, *, seed: str | None, quiet: bool, as_json: bool) -> None:
    from stirred.randomness.entropy import Entropy
    from stirred.release.run import run

    entropy = Entropy.from_os() if seed is None else Entropy.from_seed(seed)
    if not as_json:
        say_warnings(prepared)  # while the run can still be stopped at no cost
    try:
        with shown_progress(quiet=quiet or as_json) as progress:
            out = run(prepared, entropy=entropy, progress=progress)
    except KeyboardInterrupt as stop:
        for note in getattr(stop, "__notes__", ()):
            say(note)
        raise
    specification = prepared.plan.specification
    account = account_of(prepared, out)
    if as_json:
        emit_json(
            {
                "bundle": str(out),
                "report": str(out / "public" / "report.html"),
                "specification": str(out / "public" / "specification.json"),
                "notation": specification.notation,
                **numbers(prepared),
                "seeded": entropy.seeded,
                "warnings": list(prepared.warnings),
                "ledger": None if account is None else {"entry": account[0], **ledger_facts(account[1])},
            }
        )
        return
    five_answers(prepared)
    emit()
    alone = [("ledger", "none: nobody keeps account of this release (--ledger)")] if account is None else []
    facts([*alone, ("bundle", str(out)), ("report", str(out / "public" / "report.html"))])
    if account is not None:
        done = f"entry {account[0]}, committed; {ledger_text(account[1])}"
        facts([("ledger", done), *other_file_lines(prepared)])
    if entropy.seeded:
        say("This is a test run with a seed: nothing of it may be published.")
