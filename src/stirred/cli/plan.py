"""`stirred plan`: what a release would promise, what it costs, and what to expect of its tables."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from stirred.cli.options import Names, Place, argument, command, option
from stirred.cli.output import exactly, five_blocks, picked, uniqueness_out
from stirred.cli.plan_options import NOWHERE, PlanOptions, has_rate, run_command
from stirred.data.bundle import checksum
from stirred.data.frames import exists
from stirred.data.natural import sorted_values
from stirred.data.problems import PlanError, bad_file, bad_plan
from stirred.data.sources import local_path
from stirred.data.uniqueness import EXPOSED
from stirred.mechanisms.groups import FactRows, Outcome, OutputBlock, Title
from stirred.mechanisms.protocol import Grid, doubt_rows
from stirred.release.advice import Proposal, stronger
from stirred.release.choices import AllowedSetting, gentlest_allowed
from stirred.release.ledger import OverLimitError, Total
from stirred.release.ledger.row import numbers as entry_numbers
from stirred.release.plan_file import read_plan, write_plan
from stirred.release.prepared import Prepared, prepare
from stirred.release.reading import rehearsed
from stirred.release.run import remaining
from stirred.release.scan import problems_of
from stirred.release.tables import Expectation, expectations
from stirred.spec.document import to_document
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact
from stirred.spec.explanation import explain
from stirred.spec.given_numbers import loss
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem, placed

if TYPE_CHECKING:
    import polars as pl

    from stirred.mechanisms.protocol import Progress

# Where the schema of each kind of file is made; `docs/_static/schemas/` publishes them.
SCHEMAS: Final = {
    "plan": "stirred.release.plan_file",
    "codebook": "stirred.data.codebook_file",
    "policy": "stirred.release.ledger.policy",
    "specification": "stirred.spec.document",
}
_BUILDS_ON_SEED: Final = "it builds on a release that was made with a seed, and can only be a test run too"
# On what the settings rest, as the plan says it or leaves it unsaid.
_BASIS: Final[Mapping[str | None, str]] = {
    "policy": "the settings, by policy",
    "invariants": "the settings, from the invariants alone",
    "other-data": "the settings, on other data",
    "this-data": "the settings, on THIS FILE: that voids the guarantee, and a release is refused",
    None: "the plan does not say what the settings are based on (--set settings_from=...); they must be fixed in "
    "advance or follow from the invariants alone",
}


class ShownPlanOptions(PlanOptions):
    """`stirred plan`."""

    file: Place = argument("PLAN.toml|FILE", "A plan, or a household file with options.", None)
    expect_from: Names = option(
        "Show the error to expect in each table: from another file (and a second one, of its persons), from this "
        "file's invariant margins alone, or from this file (confidential; not for choosing settings).",
        [], form="FILE|margins|this-data",
    )  # fmt: skip
    write: Place = option("Write these options as a plan; must not exist.", form="PLAN.toml")
    prepared: Place = option("Show what the [[prepare]] steps of the plan do to this file, instead.")
    schema_: Literal["plan", "codebook", "policy", "specification"] | None = option(
        "Print the JSON Schema of a kind of file, instead."
    )
    verbose: bool = option("Print the five answers in full, strata, bounds and losses by rate as well.", False)


def plan(options: ShownPlanOptions, progress: Progress | None) -> Outcome:
    """Show what a release would promise; nothing is released.

    With --schema the JSON Schema of a file is printed instead, for editors and programs.
    """
    from stirred.release.engine import at_hand

    if options.schema_ is not None:
        schema = import_module(SCHEMAS[options.schema_]).json_schema()
        return Outcome(values=schema, text=json.dumps(schema, indent=2, ensure_ascii=False))
    file, write, epsilon = options.file, options.write, options.epsilon
    if file is None:
        raise bad_plan("is needed", where="PLAN.toml|FILE", remedy="name a plan, or a household file")
    if options.prepared is not None:
        return _prepared(file, options.prepared)
    if file.suffix == ".toml":
        _no_options_with_plan(options)
        planned = read_plan(file, out=NOWHERE)
    else:
        out = NOWHERE if write is None else Path(f"{write.stem}-bundle")
        own: PlanOptions = options
        if has_rate(own.method) and not own.rate and epsilon is not None:
            own = own.model_copy(update={"rate": str(own.rate_for(epsilon, file) or "1/2")})
        planned = own.planned(file, command="plan", out=out)
    source, persons = ([*options.expect_from, None, None])[:2]
    if persons is not None and source in ("margins", "this-data"):
        remedy = "name that file with --expect-from FILE first, or leave it out"
        raise bad_plan("this file belongs to another file of households", where="--expect-from", remedy=remedy)
    with at_hand(planned, shown=shared(progress)) as here:
        ready = prepare(here)
        expected = [] if source is None else _expected_errors(ready, source, None if persons is None else Path(persons))
        if write is not None:
            _write(ready, write)
        next_step = run_command(options, file, ready)
        if write is not None:
            next_step = shlex.join(["stirred", "release", str(write)])
        target = epsilon if has_rate(ready.mechanism.name) else None
        return plan_outcome(
            ready, epsilon=target, expected=expected, next_step=next_step, verbose=options.verbose, written=write,
            writable=write is None and file.suffix != ".toml",
        )  # fmt: skip


def shared(progress: Progress | None) -> Callable[[], Any]:
    """Return what yields the progress that is shown already, for a reader that would open one of its own."""
    from contextlib import nullcontext

    return lambda: nullcontext(progress)


def _no_options_with_plan(options: PlanOptions) -> None:
    """Refuse options for what a plan file says."""
    if given := [name for name in PlanOptions.model_fields if name in options.model_fields_set and name != "epsilon"]:
        raise PlanError(
            Problem(
                what="the plan file already says this",
                where=f"--{name.strip('_').replace('_', '-')}",
                remedy="change it in the plan",
            )
            for name in given
        )


def _write(prepared: Prepared, path: Path) -> None:
    """Write what the options say as a plan; doubts stay open in it, and a release refuses it until they are settled.

    A name that matches no doubt is refused first: in the plan it would be refused at every release.
    """
    if not prepared.plan_file.source.endswith(".toml"):
        if prepared.ledger is not None:
            what, remedy = "the place of a ledger is not written", "leave it out, and add it to the plan"
            raise bad_plan(what, where="--ledger", remedy=remedy)
        if {*prepared.plan_file.release.accept} - {doubt.name for doubt in prepared.doubts if doubt.refuses}:
            prepared.refuse()
    write_plan(prepared.plan_file, path, remarks=["The options of `stirred plan`, as a plan."])


# ---- the steps of [[prepare]] ---------------------------------------------------------------------

_NOTE: Final = (
    "Every step is a function of one record, declared in the plan: what the mechanism promises about the prepared file "
    "it promises about the file as it was. What is shown here comes from the confidential file: keep it inside."
)


def _prepared(plan: Path, file: Path) -> Outcome:
    """Return what the [[prepare]] steps of a plan do to a file, before and after; nothing is written."""
    done = rehearsed(read_plan(plan, out=NOWHERE), file)
    rows = [
        (each.step.called, each.column, each.step.words, each.changed, _values(each.before), _values(each.after))
        for each in done.changes
    ]
    names = ("step", "column", "what", "records_changed", "before", "after")
    people, homes = done.data.persons, done.data.households
    persons = [] if people is None else [("persons", f"{people.height:,}: {', '.join(people.columns)}")]
    header = ("step", "column", "changed", "before", "after")
    lines = tuple((row[0], row[1], f"{row[3]:,}", row[4] or "", row[5] or "dropped") for row in rows)
    note = _NOTE if rows else f"{plan} has no steps: the mechanism sees the file as it is."
    return Outcome(
        values={"file": str(file), "steps": [dict(zip(names, row, strict=True)) for row in rows]},
        rows=[(f"{done.data.record}s", f"{homes.height:,}: {', '.join(homes.columns)}"), *persons],
        blocks=[*([Grid(header=header, rows=lines)] if rows else []), note],
    )


def _values(column: pl.Series | None) -> str | None:
    """Return how many values a column has, and the first and last of them."""
    if column is None:
        return None
    values = sorted_values(column.unique().drop_nulls())
    ends = "" if not len(values) else f", {values[0]}" if len(values) == 1 else f", {values[0]} ... {values[-1]}"
    missing = f", {column.null_count():,} missing" if column.null_count() else ""
    return f"{len(values):,} value{'' if len(values) == 1 else 's'}{ends}{missing}"


# ---- the facts of a plan, for JSON ----------------------------------------------------------------


def plan_numbers(prepared: Prepared) -> dict[str, Any]:
    """Return the numbers of a plan for JSON."""
    own = [fact.values for fact in prepared.plan.facts if not fact.for_plans]
    letter = prepared.plan.specification.output_premetric.parameter
    found = {**exactly(**{letter: prepared.plan.epsilon}), **_joined(own)}
    return found if "records" in found else {**found, "records": prepared.data.households.height}


def _joined(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for each in values for key, value in each.items()}


def doubt_facts(doubts: Sequence[Doubt], accepted: Sequence[Doubt] = ()) -> list[dict[str, Any]]:
    """Return doubts for JSON."""
    return [
        {"name": each.name, "kind": each.kind, "about": each.about, "what": each.public or each.what,
         "remedy": each.whole_remedy, "refuses": each.refuses, "accepted": each in accepted}
        for each in doubts
    ]  # fmt: skip


def ledger_facts(account: Total) -> dict[str, Any]:
    """Return for JSON what everything in the ledger promises together."""
    one = account.specification
    return {
        "total": None if one is None else to_document(one),
        "at_least": bool(account.unspecified),
        "parts": [part.specification.notation for part in account.parts],
        "apart": [str(problem) for problem in account.apart],
        "unbounded": list(account.unbounded),
    }


def _expected_out(expected: Expectation) -> dict[str, Any]:
    error = expected.error
    return {
        "table": expected.table.title,
        **picked(error, "source", "exact"),
        "mark": expected.mark,
        **picked(error, "mean_absolute_error", "mean_absolute_percentage_error", "root_mean_square_error"),
        # Cells of the confidential file are written to internal/ by the release, and nowhere else.
        "cells": None if error.confidential else error.table.to_dicts(),
    }


def _fit_out(fit: AllowedSetting | None) -> dict[str, Any] | None:
    """Return for JSON the setting that the policy would allow."""
    if fit is None:
        return None
    return {"setting": fit.setting, "value": str(fit.value), **exactly(epsilon=fit.epsilon)}


# ---- the same in words ----------------------------------------------------------------------------


def five_answers(prepared: Prepared, *, with_paper: bool = True) -> Iterator[OutputBlock]:
    """Yield the five answers of a plan's specification, and how to read its number."""
    words = explain(prepared.plan.specification, with_paper=with_paper)
    yield from (Title(prepared.plan.specification.notation), "")
    yield from five_blocks(words)
    yield from ("", words.how_to_read)


def ledger_text(account: Total) -> str:
    """Say what everything in the ledger promises together with this release."""
    if account.unbounded:
        rest = account.others.specification if account.others is not None else None
        without = f"; without that, {rest.notation}" if rest is not None else ""
        return f"no bound: {account.no_bound}{without}"
    if account.specification is not None:
        return f"with this release everything together promises {account.bound}{account.specification.notation}"
    parts = "; ".join(part.specification.notation for part in account.parts)
    return (
        f"with this release there are {len(account.parts)} promises that do not add up to one: {account.bound}{parts}"
    )


def other_file_rows(prepared: Prepared) -> list[tuple[str, str]]:
    """Say with the promise, and not in a warning alone, that the ledger accounts for other files as the same one."""
    return [
        (
            "files",
            f"the file of {role} is NOT that of entry {entry_numbers(entries)}; if it is not a version of the same "
            "file, it needs its own ledger",
        )
        for role, entries in prepared.other_files.items()
    ]


def _expected_errors(prepared: Prepared, source: str, persons: Path | None) -> list[Expectation]:
    """Return the error to expect in every table of a plan, from the source that was named."""
    if not prepared.tables:
        what, remedy = "there is no table whose error to expect", "add --table 'county x tenure'"
        raise bad_plan(what, where="--expect-from", remedy=remedy)
    known = source in ("margins", "this-data")
    if not known and not exists(source):
        raise bad_file("there is no such file", where=f"--expect-from {source}", remedy="name a file, or write margins")
    if not known and (file := local_path(source)).exists() and checksum(file) in prepared.inputs.values():
        known, source = True, "this-data"  # the confidential file itself, by its path
    return expectations(
        prepared.mechanism,
        prepared.tables,
        prepared.data,
        source=source if known else "other-data",
        records=None if known else Path(source),
        persons=persons,
    )


def _expected_line(expected: Expectation) -> tuple[str, str]:
    error = expected.error
    if error.exact:
        where = " in the other file" if error.source == "other-data" else ""
        return ("expected", f"{expected.table.title}: exact, swapping does not change it{where}")
    where = {
        "margins": "chance alone, from the margins: the bias towards independence comes on top and may be far larger",
        "this-data": f"FROM THE CONFIDENTIAL FILE: {expected.mark}",
        "other-data": "from the other file",
    }[error.source]
    return (
        "expected",
        f"{expected.table.title}: mean absolute error {error.mean_absolute_error:.4g}, "
        f"{100 * error.mean_absolute_percentage_error:.2f}% of non-empty cells, root mean square "
        f"{error.root_mean_square_error:.4g} ({where})",
    )


def plan_outcome(
    prepared: Prepared,
    *,
    epsilon: str | None,
    expected: Sequence[Expectation] = (),
    next_step: str,
    verbose: bool,
    written: Path | None = None,
    writable: bool = False,
) -> Outcome:
    """Return a plan in about ten lines or at length; ``written`` is the plan file that was made of it."""
    account, refusal = _outlook(prepared)
    fit = None if refusal is None else gentlest_allowed(prepared)
    problems = [*problems_of(prepared.refuse), *(() if refusal is None else refusal.problems)]
    rates, mechanism, found = [Fraction(n, 100) for n in (1, 5, 10, 20, 50)], prepared.mechanism, prepared.plan
    by_rate = mechanism.rate_losses(found)
    curve = [] if by_rate is None else by_rate.losses(rates)
    target: dict[str, Any] = {}
    if epsilon is not None:
        with placed("--epsilon"):
            wanted = loss(epsilon, where="")
            if by_rate is None:
                remedy = "leave it out, and change the settings that decide it"
                raise bad_plan(f"no rate decides the loss of {mechanism.title}", where="", remedy=remedy)
            both = by_rate.reaching(wanted)
        rates_in_words = {"target_rates": [rate for rate, _ in both], "usable_rates": [str(rate) for _, rate in both]}
        target = {"target_epsilon": epsilon, **rates_in_words} if both else {}
    better = stronger(mechanism, found)
    values = {
        "specification": to_document(found.specification),
        **plan_numbers(prepared),
        **_joined(fact.values for fact in found.facts if fact.for_plans and not (problems and fact.confidential)),
        "epsilon_by_rate": [{"rate": str(rate), **exactly(epsilon=each)} for rate, each in curve],
        "dropped": list(found.dropped),
        "exposed": None if prepared.exposure is None else uniqueness_out(prepared.exposure),
        "stronger": None if better is None else {
            **picked(better[0], "name", "setting"), "changed": better[1], **exactly(epsilon=better[0].epsilon)
        },
        "doubts": doubt_facts(prepared.doubts, prepared.accepted),
        "ledger": None if account is None else ledger_facts(account),
        "expected_error": [_expected_out(each) for each in expected],
        **target,
        **({} if written is None else {"written": str(written)}),
        **({} if refusal is None else {"would_fit": _fit_out(fit)}),
    }  # fmt: skip
    exposed = any(doubt.kind == EXPOSED for doubt in prepared.accepted)  # its row says the same
    seeded = found.specification.seeded
    at = ", or at ".join(percent(rate, digits=6) for rate in target.get("target_rates", ()))
    rows = [
        *found.outcome(),
        *([("chosen", _BASIS["this-data"])] if mechanism.settings_from == "this-data" else []),
        *([("target", f"epsilon {epsilon} is reached at rate {at}")] if target else []),
        *(_expected_line(each) for each in expected),
        *doubt_rows(prepared.doubts, accepted=prepared.accepted),
        *([("exposed", told)] if (told := prepared.exposed_in_words) and not exposed else []),
        *([] if better is None else [("stronger", _stronger_words(prepared, better[0], written))]),
        *([("ledger", ledger_text(account))] if account is not None else []),
        *other_file_rows(prepared),
        *([] if refusal is None else _refusal_rows(fit)),
        *([] if written is None else [("plan", str(written))]),
        *([("test run", _BUILDS_ON_SEED)] if seeded else []),
        *([] if problems else [("next", f"{next_step} --seed TEXT" if seeded else next_step)]),
    ]
    blocks: list[OutputBlock] = []
    if verbose:
        blocks += ["", *_details(prepared, curve), ""]
    else_ = "" if written is None else "else "
    more = [*([] if verbose else ["--verbose"]), *(["--write"] if writable else [])]
    told = f" {'More' if writable else 'All details'}: {', '.join(more)}" if more else ""
    blocks.append(f"Nothing random has happened and nothing {else_}was written.{told}")
    return Outcome(values=values, rows=rows, blocks=blocks, problems=problems)


def _stronger_words(prepared: Prepared, found: Proposal, written: Path | None) -> str:
    """Say in one line which relative promises more at an equal share of changed records."""
    source = written or Path(prepared.plan_file.source)
    plan = source if source.suffix == ".toml" else "PLAN.toml"
    return f"{found.name}: ε={found.epsilon.shown()} at equal change; stirred compare {plan}"


def _details(prepared: Prepared, curve: Sequence[tuple[Fraction, Exact]]) -> Iterator[OutputBlock]:
    """Yield what a plan says at length: the five answers, its facts, bounds and losses by rate."""
    plan = prepared.plan
    yield from five_answers(prepared, with_paper=not plan.why_this_number)  # that names the paper's bound
    yield ""
    losses = "; ".join(f"{100 * float(rate):.0f}%: epsilon {e.shown()}" for rate, e in curve)
    rows = [
        ("chosen", _BASIS[prepared.mechanism.settings_from]),
        *([(plan.unreleased, every)] if (every := ", ".join(plan.dropped)) != plan.dropped_in_short else []),
        *((fact.label, fact.sentence) for fact in plan.facts if fact.sentence),
        *([("bounds", plan.why_this_number)] if plan.why_this_number else []),
        *([("also", plan.also_promised)] if plan.also_promised else []),
        *([("by rate", f"with one rate everywhere: {losses}")] if curve else []),
    ]
    yield FactRows(rows)


def _outlook(prepared: Prepared) -> tuple[Total | None, OverLimitError | None]:
    """Return what everything together would promise, or the refusal of the policy: the plan is shown before it."""
    try:
        return remaining(prepared), None
    except OverLimitError as refusal:
        return None, refusal


def _refusal_rows(fit: AllowedSetting | None) -> list[tuple[str, str]]:
    """Say that the policy refuses, and which setting it would allow."""
    allowed = "no setting of this mechanism, all else equal" if fit is None else str(fit)
    return [("ledger", "REFUSED: its policy does not allow this release"), ("would fit", allowed)]


COMMANDS: Final = (command("plan", ShownPlanOptions, plan),)
