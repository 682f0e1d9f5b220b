"""`stirred swap` and `release`: from a file, or a plan, to a bundle."""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from stirred.cli.options import Place, Text, argument, command, option
from stirred.cli.output import say
from stirred.cli.plan_options import FOLDER, PlanOptions
from stirred.mechanisms.groups import Outcome

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Progress
    from stirred.release.ledger import Total
    from stirred.release.plan_file import PlanFile
    from stirred.release.prepared import Prepared

_SEED: Final = "FOR TESTS ONLY: reproducible randomness; the bundle is marked."


class SwapOptions(PlanOptions):
    """`stirred swap`."""

    file: Path = argument(
        "FILE",
        "The household file: CSV, Parquet or a folder of parts, Arrow, a table of a database (FILE.sqlite#TABLE, "
        "FILE.duckdb#TABLE), SPSS, Stata or SAS.",
    )
    out: Place = option("Folder of the bundle; must not exist.", form="FOLDER")
    seed: Text = option(_SEED)
    as_json: bool = False


def swap(options: SwapOptions, progress: Progress | None) -> Outcome:
    """Swap a household file and write the bundle of the release.

    The bundle holds data, tables, specification, checks and report.
    """
    if options.out is not None:
        _refuse_what_is_there(options.out)
    options.refuse_epsilon(options.file)
    planned = options.planned(options.file, command="swap", out=options.out)
    return _released(planned, seed=options.seed, as_json=options.as_json, progress=progress)


class ReleaseOptions(BaseModel):
    """`stirred release`."""

    file: Path = argument("PLAN.toml|FOLDER", "The plan to carry out; with --resume, the folder of its bundle.")
    out: Place = option("Folder of the bundle, if the plan names none.", form="FOLDER")
    resume: bool = option("Finish the interrupted release that was to go to this folder, at no further cost.", False)
    ledger: Text = option("With --resume: where its ledger is now, if it moved or needs a password.", form="LEDGER")
    engine: Text = option("Where the bulk work runs: local, or spark (a cluster).", form="NAME")
    master: Text = option("The address of a Spark cluster, such as spark://head:7077.", form="URL")
    seed: Text = option(_SEED)
    as_json: bool = False


def release(options: ReleaseOptions, progress: Progress | None) -> Outcome:
    """Carry out a plan, or finish one with --resume.

    The files are validated, swapped and verified, and a complete bundle is left or none. With --resume the same files
    and the kept key make the same release, under the same entry of the ledger.
    """
    from stirred.data.problems import bad_plan

    file, out = options.file, options.out
    others = ("out", "seed") if options.resume else ("ledger",)
    for name in others:
        if name in options.model_fields_set:
            what = "a release is finished as it was begun" if options.resume else "this is for --resume"
            raise bad_plan(what, where=f"--{name}", remedy="leave it out")
    if options.resume:
        return _resumed(options, progress)
    named = _named_in(file)
    if out is not None and named is not None and named.absolute() != out.absolute():
        remedy = "change it in the plan: [release] out"
        raise bad_plan("the plan file already says this", where="--out", remedy=remedy)
    _refuse_what_is_there(named or out)
    from stirred.release.plan_file import read_plan

    plan = read_plan(file, out=out).on(options.engine, options.master)
    return _released(plan, seed=options.seed, as_json=options.as_json, progress=progress)


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
    return plan.parent / out if isinstance(out, str) and out.strip() and "\0" not in out else None


def _resumed(options: ReleaseOptions, progress: Progress | None) -> Outcome:
    """Finish an interrupted release."""
    from stirred.cli.plan import ledger_facts
    from stirred.release.ledger import Ledger
    from stirred.release.run import resume
    from stirred.spec.document import from_json
    from stirred.spec.explanation import promise_rows

    with _notes_said():
        more = {"ledger": options.ledger, "engine": options.engine, "master": options.master}
        bundle = resume(options.file, progress=progress, **more)
    stated = _ledger_of(bundle)
    report = str(bundle / "public" / "report.html")
    rows = [("bundle", str(bundle)), ("report", report)]
    values: dict[str, Any] = dict(rows)
    if options.as_json:  # reading a whole ledger takes time
        total = Ledger.open(options.ledger or stated["name"]).total()
        values["ledger"] = {"entry": stated["number"], **ledger_facts(total)}
    specification = from_json((bundle / "public" / "specification.json").read_text(encoding="utf-8"))
    rows += promise_rows(specification)
    rows.append(("ledger", "the entry is committed, and nothing more was spent"))
    if not specification.seeded:
        rows.append(("next", _next(bundle, nothing_promised=specification.budget.realised.is_infinite)))
    return Outcome(values=values, rows=rows)


def _ledger_of(bundle: Path) -> Any:
    return json.loads((bundle / "manifest.json").read_text(encoding="utf-8"))["ledger"]


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


def _released(planned: PlanFile, *, seed: str | None, as_json: bool, progress: Progress | None) -> Outcome:
    from stirred.cli.plan import doubt_facts, ledger_facts, plan_numbers, shared
    from stirred.randomness.entropy import Entropy
    from stirred.release.engine import at_hand
    from stirred.release.prepared import prepare
    from stirred.release.run import run

    with _notes_said(planned), at_hand(planned, shown=shared(progress), releasing=True) as here:
        entropy = None if seed is None else Entropy.from_seed(seed)
        prepared = prepare(here, releasing=True)
        if not as_json:
            _say_doubts(prepared)  # while the run can still be stopped at no cost
        out = run(prepared, entropy=entropy, progress=progress)
        account = None if prepared.ledger is None else (_ledger_of(out)["number"], prepared.ledger.total())
        specification = prepared.plan.specification
        values = {
            "bundle": str(out),
            "report": str(out / "public" / "report.html"),
            "specification": str(out / "public" / "specification.json"),
            "notation": specification.notation,
            **plan_numbers(prepared),
            "seeded": seed is not None,
            "doubts": doubt_facts(prepared.doubts, prepared.accepted),
            "ledger": None if account is None else {"entry": account[0], **ledger_facts(account[1])},
        }
        rows = _rows(prepared, out, account, seeded=seed is not None)
    test = "This is a test run with a seed: nothing of it may be published."
    return Outcome(values=values, rows=rows, notes=[] if seed is None or as_json else [test])


def _say_doubts(prepared: Prepared) -> None:
    """Print the doubts of a plan that refuse nothing, or that were accepted: the others are raised as errors."""
    for doubt in prepared.doubts:
        if doubt in prepared.accepted:
            say(f"Accepted, {doubt.name}: {doubt.what}.")
        elif not doubt.refuses:
            say(f"Note: {doubt}")


def _rows(prepared: Prepared, out: Path, account: tuple[int, Total] | None, *, seeded: bool) -> list[tuple[str, str]]:
    """Return where the bundle is, what it promises, its account, and what to do next."""
    from stirred.cli.plan import ledger_text, other_file_rows
    from stirred.spec.explanation import promise_rows

    entry = "none: no ledger records this release (--ledger, or ledger under [release] in a plan)"
    if account is not None:
        entry = f"entry {account[0]}, committed; {ledger_text(account[1])}"
    return [
        ("bundle", str(out)),
        ("report", str(out / "public" / "report.html")),
        ("unchanged", prepared.plan.unchanged),
        *promise_rows(prepared.plan.specification),
        ("ledger", entry),
        *other_file_rows(prepared),
        *([] if seeded else [("next", _next(out, nothing_promised=prepared.plan.epsilon.is_infinite))]),
    ]


def _next(out: Path, *, nothing_promised: bool) -> str:
    """Return the command that publishes a bundle."""
    from stirred.spec.doubts import NOTHING_PROMISED

    publish = shlex.join(["stirred", "publish", str(out), FOLDER])
    refuses = f", which refuses, since nothing is promised, unless somebody adds --accept {NOTHING_PROMISED}"
    return f"{publish}{refuses}" if nothing_promised else publish


COMMANDS: Final = (
    command("swap", SwapOptions, swap, progress=True),
    command("release", ReleaseOptions, release, progress=True),
)
