"""The commands of TopDown: ``estimate`` and ``interval``, ``microdata``, ``budget``.

They read what anybody may read. No noise is drawn and no budget is spent: to measure is to release, through the ledger.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from stirred import __version__
from stirred.data.codebook import Codebook
from stirred.data.place import folder_at
from stirred.data.problems import PlanError, bad_plan, listed
from stirred.mechanisms.protocol import Command, Outcome, Progress
from stirred.mechanisms.topdown import commands_estimate
from stirred.mechanisms.topdown.budget import DELTA, Shares, read_budget
from stirred.mechanisms.topdown.hierarchy.schema import (
    BUDGETS,
    DETAILED,
    SCHEMAS,
    TOTAL,
    coded_variables,
    factors_of,
    schema_named,
)
from stirred.mechanisms.topdown.plan import cost_grid, noise_grid
from stirred.mechanisms.topdown.published import SPENDS, PublishedMeasurements, PublishedOptions
from stirred.mechanisms.topdown.published_files import damage_said
from stirred.mechanisms.topdown.settings import MethodName
from stirred.mechanisms.topdown.solve.files import SolverOutcome, make
from stirred.mechanisms.topdown.solve.tree import ARMS, LevelStore, SolveOptions
from stirred.spec.given_numbers import probability
from stirred.spec.problems import Problem

# ---- records ----------------------------------------------------------------------------------------------


class MicrodataOptions(PublishedOptions):
    """The options of ``stirred topdown microdata``."""

    arm: MethodName = Field(default="default", description="How to solve: default, or for comparison blue or bureau.")
    parents: Path | None = Field(default=None, description="Gone.", json_schema_extra={"gone": True})
    unrounded: Path | None = Field(default=None, description="Gone.", json_schema_extra={"gone": True})
    public: Path | None = Field(
        default=None, description="Gone: records come from measurements alone.", json_schema_extra={"gone": True}
    )
    records: str = Field(default="persons", description="What records are called: the name of their file.")
    threads: int = Field(default=0, ge=0, description="Threads; 0 for one per core. The counts do not depend on it.")
    out: Path = Field(description="A folder for counts.parquet, the records and certificate.json.")


@damage_said
def run_microdata(options: MicrodataOptions, progress: Progress | None = None) -> Outcome:
    """Make microdata from published measurements, check it as it was written, and say what happened.

    A run that was interrupted goes on where it stopped if it is started again with the same files and options.
    """
    _check_out(options)
    published = options.opened()
    kept = LevelStore(folder=_kept(options.out), mark=_mark(options, published))
    settings = SolveOptions(
        arm=ARMS[options.arm],
        groups=published.totals,
        threads=options.threads or os.cpu_count() or 1,
        store=kept,
        progress=progress,
    )
    out = options.out
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    # What an interrupted run is continued from stays beside the folder.
    with folder_at(out.absolute(), private=False, replace=True) as folder:
        made = make(published.shards, settings, folder, top=published.top(), records=options.records)
    made = replace(made, files=tuple(out / path.name for path in made.files))
    shutil.rmtree(kept.folder, ignore_errors=True)
    return _outcome(options, published, made)


def _kept(out: Path) -> Path:
    """Return the folder of what an interrupted run has solved; all of it follows from published files."""
    return out.absolute().with_name(f".{out.absolute().name}.unfinished")


def _check_out(options: MicrodataOptions) -> None:
    """Refuse to write over what is there, but for an empty folder."""
    out, problems = options.out, []
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        remedy = "choose a new folder"
        problems.append(Problem(what="it exists already", where=f"--out {out}", remedy=remedy))
    if Path(options.records).name != options.records or options.records in ("", ".", "..", "counts"):
        remedy = "write a plain name, such as persons"
        problems.append(Problem(what=f"'{options.records}' is no name of a file", where="--records", remedy=remedy))
    if options.public is not None:
        remedy = "leave it out: records are made from the measurements alone"
        problems.append(Problem(what="public counts are no longer used", where="--public", remedy=remedy))
    for name in ("parents", "unrounded"):
        if getattr(options, name) is not None:
            remedy = "leave it out; --arm compares how records are made"
            problems.append(Problem(what="this option is no longer there", where=f"--{name}", remedy=remedy))
    if problems:
        raise PlanError(problems)


def _mark(options: MicrodataOptions, published: PublishedMeasurements) -> str:
    return f"{__version__} {published.sha256} {options.arm} {options.schema_}"


def _outcome(options: MicrodataOptions, published: PublishedMeasurements, made: SolverOutcome) -> Outcome:
    certificate = made.certificate
    checks = sum(certificate.checks.values())
    values: dict[str, Any] = {
        **made.facts(),
        "arm": options.arm,
        "files": [str(path) for path in made.files],
        "areas": published.areas,
        "sha256": published.sha256,
        "spends": SPENDS,
    }
    rows = [
        ("records", f"{certificate.records:,} in {options.out}"),
        ("areas", ", ".join(f"{name} {count:,}" for name, count in published.areas.items())),
        ("solved", f"{made.parents:,} problems, {made.iterations:,} iterations, largest gap {made.largest_gap:.1e}"),
        ("check", f"passed: {checks:,} comparisons" if certificate.passed else f"FAILED: {certificate.failed:,} times"),
        *(("failed", text) for text in certificate.failures[:5]),
        *(("event", f"{event.level} in {event.area!r}: {event.what} ({event.why})") for event in made.events[:5]),
        ("measured", f"{len(published.files):,} files, SHA-256 {published.sha256}"),
        ("spends", SPENDS),
    ]
    if len(made.events) > 5:
        rows.append(("events", f"{len(made.events):,} in all, see {options.out / 'certificate.json'}"))
    return Outcome(rows=rows, values=values, passed=certificate.passed)


# ---- budgets ----------------------------------------------------------------------------------------------


class TopDownBudgetOptions(BaseModel):
    """The options of ``stirred topdown budget``."""

    file: str = Field(
        description=f"A budget file (TOML), or one that is shipped: {', '.join(BUDGETS)}.",
        json_schema_extra={"argument": "FILE"},
    )
    schema_: str | None = Field(
        default=None,
        description=f"What the queries ask: {', '.join(SCHEMAS)}, or a codebook; default what the file says.",
    )
    delta: str = Field(default=str(DELTA), description="The delta at which epsilon is shown.")


def show_budget(options: TopDownBudgetOptions, progress: Progress | None = None) -> Outcome:
    """Check a budget file, and return the noise of every query and what a change of one record costs."""
    del progress
    shares = Shares.read(read_budget(options.file), where=options.file)
    if not (name := options.schema_ or shares.schema):
        remedy = f"write schema = '...' into it, or --schema: a codebook, a file of attributes, or {listed(SCHEMAS)}"
        raise bad_plan("the budget file does not say what its queries ask", where="schema", remedy=remedy)
    schema = schema_named(name, attributes=partial(_asked_variables, shares))
    shares = shares.fitted(schema, [*shares.levels], where=options.file)
    delta = probability(options.delta, where="--delta")
    costs = shares.certificate(schema, delta=Fraction(delta))
    values = {
        "budget": shares.document(),
        "sigma2": {level: {q: str(shares.sigma2(level, q)) for q in shares.measured(level)} for level in shares.levels},
        "certificate": {cost.what: {"rho": str(cost.rho), "epsilon": float(cost.epsilon)} for cost in costs},
        "delta": str(delta),
        "neighbours": "bounded",
    }
    rows = [
        ("budget", shares.title or options.file),
        ("rho", f"{shares.rho} = {float(shares.rho):.4f} (zCDP, bounded neighbours: one record changed)"),
        ("counts", f"by {' x '.join(schema.names)}"),
        ("levels", ", ".join(f"{level} {float(share):.2%}" for level, share in shares.levels.items())),
        (
            "checked",
            "shares of the levels and of the queries at every level add up to 1, and every query is in the schema",
        ),
    ]
    return Outcome(rows=rows, grids=[noise_grid(shares), cost_grid(costs, delta=float(delta))], values=values)


def _asked_variables(shares: Shares, codebook: Codebook) -> list[str]:
    """Return the variables of a codebook that the queries of a budget name.

    Of a query of every detail, all coded variables are attributes but those that are levels.
    """
    coded = coded_variables(codebook)
    factors = dict.fromkeys(factor for query in shares.names for factor in factors_of(query))
    attributes = [factor for factor in factors if factor not in (TOTAL, DETAILED)]
    if unknown := [each for each in attributes if each not in coded]:
        remedy = f"it has {listed(coded)}; a budget with groupings of a plan is checked by `stirred plan`"
        what = f"queries ask for {listed(unknown)}, without codes in the codebook"
        raise bad_plan(what, where="--schema", remedy=remedy)
    if DETAILED in factors or not attributes:
        levels = {level.casefold() for level in shares.levels}
        attributes = [each for each in coded if each in factors or each.casefold() not in levels]
    return attributes


class GoneOptions(BaseModel):
    """The options of a command that is gone: none is read."""


def optimise_budget(options: GoneOptions, progress: Progress | None = None) -> Outcome:
    """Refuse: shares of a budget are no longer searched for."""
    remedy = "write shares yourself; `stirred topdown budget` shows their noise"
    raise bad_plan("budgets are no longer optimised", where="topdown optimise-budget", remedy=remedy)


COMMANDS = (
    *commands_estimate.COMMANDS,
    Command(
        name="microdata",
        help="Make records from published measurements.",
        options=MicrodataOptions,
        run=run_microdata,
    ),
    Command(
        name="budget",
        help="Check a budget file, and show its noise and costs.",
        options=TopDownBudgetOptions,
        run=show_budget,
    ),
    Command(name="optimise-budget", help="Gone.", options=GoneOptions, run=optimise_budget, gone=True),
)
