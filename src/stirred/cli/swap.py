"""`stirred swap`, `plan`, `release` and `resume`: from a file, or a plan, to a bundle."""

from __future__ import annotations

import os
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, Names, Place, Text, arg, opt
from stirred.cli.output import emit, emit_json, facts, say, shown_progress
from stirred.cli.swap_options import (
    NOWHERE,
    Engine,
    Master,
    Options,
    Quiet,
    Seed,
    Verbose,
    has_rate,
    taking_options,
)

if TYPE_CHECKING:
    from stirred.release.ledger import Total
    from stirred.release.plan_file import PlanFile
    from stirred.release.prepared import Prepared


# With wishes the file and its columns are told, and everything else is what is proposed.
_BESIDE = ["swap", "hold", "id", "persons", "hid", "codebook", "missing", "missing_as", "table", "unit", "accept"]


@taking_options
def swap(
    context: typer.Context,
    file: Annotated[
        Path,
        arg(
            "FILE",
            "The household file: CSV, Parquet or a folder of parts, Arrow, a table of a database "
            "(FILE.sqlite#TABLE, FILE.duckdb#TABLE), SPSS, Stata or SAS.",
        ),
    ],
    options: Options,
    out: Annotated[Place, opt("--out FOLDER", "Folder of the bundle; must not exist.")] = None,
    purpose: Annotated[
        str,
        opt(
            "--purpose TEXT",
            "What the release is for. Public: it is printed in public/README.md, in the manifest and in the ledger.",
        ),
    ] = "",
    format_: Annotated[str, opt("--format NAME", "Of the released data: parquet or csv.")] = "parquet",
    dry_run: Annotated[bool, opt("--dry-run", "Show the plan; nothing random happens.")] = False,
    epsilon: Annotated[
        Text,
        opt(
            "--epsilon NUMBER",
            "For the Mallows swap: the loss. The others take a rate; `stirred plan --epsilon` "
            "shows which rates reach a loss.",
        ),
    ] = None,
    seed: Seed = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Swap a household file and write the bundle of the release.

    The bundle holds data, tables, specification, checks and report.
    """
    if out is not None and not dry_run:
        _refuse_what_is_there(out)
    from stirred.cli.plan_shown import show_plan
    from stirred.release.prepared import prepare

    options = replace(options, out=out or (NOWHERE if dry_run else None), purpose=purpose, format_=format_)
    options = options.with_own_epsilon(epsilon)
    if dry_run:
        prepared = prepare(options.planned())
        show_plan(prepared, epsilon=None, next_step=run_command(context, prepared), verbose=verbose, as_json=json)
        return
    _run(options.planned(), seed=seed, verbose=verbose, quiet=quiet, as_json=json)


@taking_options
def plan(
    context: typer.Context,
    file: Annotated[Path, arg("PLAN.toml|FILE", "A plan, or a household file with options.")],
    options: Options,
    epsilon: Annotated[
        Text,
        opt(
            "--epsilon NUMBER",
            "Show which rates would reach this loss; for the Mallows swap, the loss itself.",
        ),
    ] = None,
    expect_from: Annotated[
        Text,
        opt(
            "--expect-from FILE|margins|this-data",
            "Show the error to expect in each table: from another file, from this file's invariant margins alone, "
            "or from this file (confidential; not for choosing settings).",
        ),
    ] = None,
    expect_persons: Annotated[
        Place, opt("--expect-persons FILE", "Persons of the file given to --expect-from.")
    ] = None,
    geography: Annotated[
        Names,
        opt(
            "--geography COLUMN",
            "Levels from the finest to the coarsest: compare the choices of match and swap they allow.",
        ),
    ] = None,
    cross: Annotated[
        Names, opt("--cross COLUMN", "With --geography: further match variables to try, such as the household size.")
    ] = None,
    advise: Annotated[
        bool,
        opt(
            "--advise", "Propose the member of the swapping family that fits the wishes; implied by any but --epsilon."
        ),
    ] = False,
    exact: Annotated[
        Names, opt("--exact TABLE", "Wish: counts that must stay exact, such as 'county x size'; repeat.")
    ] = None,
    undisturbed: Annotated[
        Names,
        opt("--undisturbed AREA", "Wish: an area, a value of a swap variable, that should be left alone; repeat."),
    ] = None,
    at_most: Annotated[
        Text, opt("--at-most SHARE", "Of the records of such an area so many may change (default 10%).")
    ] = None,
    changed: Annotated[
        Text,
        opt("--changed SHARE", "Wish: at least this share of all records should get another swap value (default 5%)."),
    ] = None,
    write: Annotated[
        Place,
        opt("--write PLAN.toml", "Write these options, or what is proposed for wishes, as a plan; must not exist."),
    ] = None,
    engine: Engine = None,
    master: Master = None,
    verbose: Verbose = False,
    json: Json = False,
) -> None:
    """Show what a release would promise; nothing is released.

    Shows as well the choices that a geography has, or what fits your wishes.
    """
    from stirred.cli.advice_shown import Wished, show_advice, show_choices, write_options
    from stirred.cli.plan_shown import expected_errors, show_plan
    from stirred.release.engine import at_hand
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare

    wished = Wished(
        exact=exact, undisturbed=undisturbed, epsilon=epsilon, at_most=at_most, changed=changed,
        write=write,
    )  # fmt: skip
    if (engine or master) and file.suffix != ".toml":
        remedy = "write the options as a plan with --write PLAN.toml, and plan that"
        raise bad_plan("an engine is for plans", where="--engine" if engine else "--master", remedy=remedy)
    # With match, rate or mechanism there is a plan to write, and without them a proposal.
    settled = write is not None and not (advise or replace(wished, write=None).given) and options.match_or_rate
    options = replace(options, out=Path(f"{write.stem}-bundle") if settled and write else NOWHERE, command="plan")
    advising = advise or (wished.given and not settled)
    if options.ledger and (geography or advising):
        remedy = "leave it out, and plan the choice you make with it"
        raise bad_plan("--ledger checks one plan; this command compares several", where="--ledger", remedy=remedy)
    if geography:
        if advising:
            what, remedy = "--geography and wishes do not go together", "name what is swapped with --swap"
            raise bad_plan(what, where="--geography", remedy=remedy)
        for option in ("match", "swap", "rate", "hold", "codebook", "accept"):
            if getattr(options, option):
                what = "--geography tries every choice of match and swap"
                raise bad_plan(what, where=f"--{option}", remedy="leave one of them out")
        _no_plan(file)
        show_choices(
            file, geography, cross, options.id, options.persons, options.hid, unit=options.unit, epsilon=epsilon,
            as_json=json,
        )  # fmt: skip
        return
    if cross:
        remedy = "name the levels with --geography, or leave it out; match variables are named with --match"
        raise bad_plan("--cross goes with --geography", where="--cross", remedy=remedy)
    if advising:
        _no_settings_beside_wishes(file, [*options.named(but=_BESIDE), *(["--expect-from"] if expect_from else [])])
        show_advice(options, wished, verbose=verbose, as_json=json)
        return
    if file.suffix == ".toml":
        _no_options_beside_plan(options.named(but=()))
        planned = read_plan(file, out=NOWHERE).on(engine, master)
    else:
        planned = options.with_rate_for(epsilon).planned()
    if expect_persons is not None and expect_from in (None, "margins", "this-data"):
        remedy = "name that file with --expect-from FILE, or leave it out"
        raise bad_plan("this file belongs to another file of households", where="--expect-persons", remedy=remedy)
    with at_hand(planned, shown=lambda: shown_progress(quiet=json)) as here:
        prepared = prepare(here)
        expected = [] if expect_from is None else expected_errors(prepared, expect_from, expect_persons)
        target = epsilon if has_rate(prepared.mechanism.name) else None
        if write is not None:
            write_options(prepared, write)
        next_step = run_command(context, prepared) if write is None else shlex.join(["stirred", "release", str(write)])
        show_plan(
            prepared, epsilon=target, expected=expected, next_step=next_step, verbose=verbose, as_json=json,
            written=write, writable=write is None and file.suffix != ".toml",
        )  # fmt: skip


def release(
    file: Annotated[Path, arg("PLAN.toml", "The plan to carry out.")],
    out: Annotated[Place, opt("--out FOLDER", "Folder of the bundle, if the plan names none.")] = None,
    engine: Engine = None,
    master: Master = None,
    seed: Seed = None,
    verbose: Verbose = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Carry out a plan, and leave a complete bundle or none.

    The files are validated, swapped and verified.
    """
    _refuse_what_is_there(_named_in(file) or out)
    from stirred.release.plan_file import read_plan

    plan = read_plan(file, out=out).on(engine, master)
    _no_options_beside_plan([] if out is None or plan.out == out.absolute() else ["--out"])
    _run(plan, seed=seed, verbose=verbose, quiet=quiet, as_json=json)


def _refuse_what_is_there(out: Path | None) -> None:
    """Refuse a folder that exists before anything is loaded that reads plans and data: that takes seconds."""
    from stirred.data.place import check_place

    if out is not None and os.path.lexists(out) and not os.path.isfile(out):  # the plan knows whether it is an input
        check_place(out)


def _named_in(plan: Path) -> Path | None:
    """Return the folder that a plan names for its bundle; None where it does not say, or cannot be read."""
    try:
        release = tomllib.loads(plan.read_text(encoding="utf-8-sig")).get("release")
        out = release.get("out") if isinstance(release, dict) else None
    except (OSError, ValueError, RecursionError):
        return None
    return plan.parent / out if isinstance(out, str) and out.strip() and ":" not in out and "\0" not in out else None


def _no_options_beside_plan(options: Sequence[str]) -> None:
    from stirred.data.problems import PlanError
    from stirred.spec.problems import Problem

    def fix(option: str) -> str:
        return "change it in the plan" + (": [release] out" if option == "--out" else "")

    if options:
        raise PlanError(
            Problem(what="the plan file already says this", where=name, remedy=fix(name)) for name in options
        )


def _no_plan(file: Path) -> None:
    if file.suffix == ".toml":
        what, remedy = "the plan file already fixes match and swap", "give the household file instead"
        raise bad_plan(what, where=str(file), remedy=remedy)


def _no_settings_beside_wishes(file: Path, options: Sequence[str]) -> None:
    """Refuse settings that the advice is asked for."""
    from stirred.data.problems import PlanError
    from stirred.spec.problems import Problem

    _no_plan(file)
    how = {"--match": "name the counts that must stay exact with --exact instead; what to match on follows from them"}
    other = "leave it out, or leave the wishes out"
    if options:
        raise PlanError(
            Problem(what="with wishes stirred proposes this setting itself", where=name, remedy=how.get(name, other))
            for name in options
        )


def resume(
    out: Annotated[Path, arg("FOLDER", "The folder that the release was to go to.")],
    ledger: Annotated[Text, opt("--ledger LEDGER", "Where its ledger is now, if it moved or needs a password.")] = None,
    engine: Engine = None,
    master: Master = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Finish an interrupted release, at no further cost.

    The same files and the kept key make the same release, under the same entry of the ledger.
    """
    from stirred.cli.plan_shown import ledger_facts, resumed_account
    from stirred.release.run import resume as finish

    with _notes_said(), shown_progress(quiet=quiet or json) as progress:
        bundle = finish(out, ledger=ledger, engine=engine, master=master, progress=progress)
    if json:
        entry, total = resumed_account(bundle, ledger)
        emit_json(
            {
                "bundle": str(bundle),
                "report": str(bundle / "public" / "report.html"),
                "ledger": {"entry": entry, **ledger_facts(total)},
            }
        )
        return
    facts([("bundle", str(bundle)), ("report", str(bundle / "public" / "report.html"))])
    facts([("ledger", "the entry is committed, and nothing more was spent")])


@contextmanager
def _notes_said(planned: PlanFile | None = None) -> Iterator[None]:
    """Say on an interrupt what becomes of the draw; without a ledger, that nothing is kept of it."""
    try:
        yield
    except KeyboardInterrupt as stop:
        for note in getattr(stop, "__notes__", ()):
            say(note)
        if planned is not None and planned.ledger is None and not planned.out.exists():
            say("Nothing was kept: run it again.")
        raise


def _run(planned: PlanFile, *, seed: str | None, verbose: bool, quiet: bool, as_json: bool) -> None:
    from stirred.release.engine import at_hand

    with (
        _notes_said(planned),
        at_hand(planned, shown=lambda: shown_progress(quiet=quiet or as_json), releasing=True) as here,
    ):
        _carry_out(here, seed=seed, verbose=verbose, quiet=quiet, as_json=as_json)


def _carry_out(planned: PlanFile, *, seed: str | None, verbose: bool, quiet: bool, as_json: bool) -> None:
    from stirred.cli.plan_shown import account_of, doubt_facts, five_answers, ledger_facts, numbers, say_doubts
    from stirred.randomness.entropy import Entropy
    from stirred.release.prepared import prepare
    from stirred.release.run import run

    entropy = None if seed is None else Entropy.from_seed(seed)
    prepared = prepare(planned, releasing=True)
    if not as_json:
        say_doubts(prepared)  # while the run can still be stopped at no cost
    with shown_progress(quiet=quiet or as_json) as progress:
        out = run(prepared, entropy=entropy, progress=progress)
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
                "seeded": seed is not None,
                "doubts": doubt_facts(prepared.doubts, prepared.accepted),
                "ledger": None if account is None else {"entry": account[0], **ledger_facts(account[1])},
            }
        )
        return
    _show_released(prepared, out, account, seeded=seed is not None)
    if verbose:
        emit()
        five_answers(prepared)
    if seed is not None:
        say("This is a test run with a seed: nothing of it may be published.")


def _show_released(prepared: Prepared, out: Path, account: tuple[int, Total] | None, *, seeded: bool) -> None:
    """Print where the bundle is, what it promises, its account, and what to do next."""
    from stirred.cli.plan_shown import ledger_text, other_file_lines
    from stirred.spec.doubts import NOTHING_PROMISED
    from stirred.spec.explanation import promise_rows

    publish = shlex.join(["stirred", "publish", str(out), FOLDER])
    if prepared.plan.epsilon.is_infinite:
        publish += f", which refuses, since nothing is promised, unless somebody adds --accept {NOTHING_PROMISED}"
    entry = "none: no ledger records this release (--ledger, or ledger under [release] in a plan)"
    if account is not None:
        entry = f"entry {account[0]}, committed; {ledger_text(account[1])}"
    facts(
        [
            ("bundle", str(out)),
            ("report", str(out / "public" / "report.html")),
            ("unchanged", prepared.plan.unchanged),
            *promise_rows(prepared.plan.specification),
            ("ledger", entry),
            *other_file_lines(prepared),
            *([] if seeded else [("next", publish)]),
        ]
    )


# What a plan may be asked for, and a run has no use for.
_ONLY_ASKED = ("dry_run", "json", "verbose", "quiet")
FOLDER = "FOLDER"


def run_command(context: typer.Context, prepared: Prepared) -> str:
    """Return the command that carries out the plan that was shown: with the same options, or from the same file."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    told = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    given = {name: context.params[name] for name in told}
    if given["file"].suffix == ".toml":
        nowhere = prepared.plan_file.out == NOWHERE.absolute()
        where = [word for name in ("engine", "master") if name in given for word in (f"--{name}", given[name])]
        return shlex.join(["stirred", "release", str(given["file"]), *(["--out", FOLDER] if nowhere else []), *where])
    if has_rate(prepared.mechanism.name):
        # With --epsilon alone the plan has the rate that reaches it, and a run takes only a rate.
        given.pop("epsilon", None)
        given.setdefault("rate", str(prepared.settings.dumped()["rate"]))
    if prepared.ledger is not None and "://" in given["ledger"]:
        given["ledger"] = prepared.ledger.name  # a password is not printed
    given.setdefault("out", FOLDER)
    assert context.parent is not None
    commands: Any = context.parent.command
    words = ["stirred", "swap"]
    for parameter in commands.commands["swap"].params:
        if parameter.name in given and parameter.name not in _ONLY_ASKED:
            words += _words(parameter, given[parameter.name])
    return shlex.join(words)


def _words(parameter: Any, value: Any) -> list[str]:
    """Return an option or argument as it is typed."""
    values = [str(each) for each in value] if isinstance(value, (list, tuple)) else [str(value)]
    if parameter.param_type_name == "argument":
        return values
    name = parameter.opts[0]
    return [name] if value is True else [word for each in values for word in (name, each)]
