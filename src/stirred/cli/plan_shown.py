"""A plan on the screen: its promise, its strata, what it costs, and what to expect of its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import typer

from stirred.cli.option_words import bad_plan
from stirred.cli.output import emit, emit_json, exactly, facts, five, heading, paragraph, picked, say
from stirred.cli.risk import uniqueness_out
from stirred.data.bundle import checksum
from stirred.data.frames import exists
from stirred.data.problems import bad_file
from stirred.data.sources import local_path
from stirred.data.uniqueness import EXPOSED
from stirred.mechanisms.protocol import doubt_rows
from stirred.release.advice import stronger
from stirred.release.choices import AllowedSetting, gentlest_allowed
from stirred.release.ledger import OverLimitError, Total
from stirred.release.ledger.row import numbers as listed
from stirred.release.prepared import Prepared
from stirred.release.run import remaining
from stirred.release.scan import problems_of
from stirred.release.tables import Expectation, expectations
from stirred.spec.document import to_document
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact
from stirred.spec.explanation import explain
from stirred.spec.given_numbers import loss
from stirred.spec.number_text import percent
from stirred.spec.problems import Problem, StirredError, placed


def numbers(prepared: Prepared) -> dict[str, Any]:
    """Return the numbers of a plan for JSON."""
    own = [fact.values for fact in prepared.plan.facts if not fact.for_plans]
    letter = prepared.plan.specification.output_premetric.parameter
    found = {**exactly(**{letter: prepared.plan.epsilon}), **_joined(own)}
    return found if "records" in found else {**found, "records": prepared.data.households.height}


def _joined(values: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for each in values for key, value in each.items()}


def say_doubts(prepared: Prepared) -> None:
    """Print the doubts of a plan that refuse nothing, or that were accepted: the others are raised as errors."""
    for doubt in prepared.doubts:
        if doubt in prepared.accepted:
            say(f"Accepted, {doubt.name}: {doubt.what}.")
        elif not doubt.refuses:
            say(f"Note: {doubt}")


def doubt_facts(doubts: Sequence[Doubt], accepted: Sequence[Doubt] = ()) -> list[dict[str, Any]]:
    """Return doubts for JSON."""
    return [
        {"name": each.name, "kind": each.kind, "about": each.about, "what": each.public or each.what,
         "remedy": each.whole_remedy, "refuses": each.refuses, "accepted": each in accepted}
        for each in doubts
    ]  # fmt: skip


def five_answers(prepared: Prepared, *, with_paper: bool = True) -> None:
    """Print the five answers of a plan's specification, and how to read its number."""
    words = explain(prepared.plan.specification, with_paper=with_paper)
    heading(prepared.plan.specification.notation)
    emit()
    five(words)
    emit()
    paragraph(words.how_to_read)


def account_of(prepared: Prepared, out: Path) -> tuple[int, Total] | None:
    """Return the number of the run's entry and what everything promises together, where there is a ledger."""
    if prepared.ledger is None:
        return None
    number = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["ledger"]["number"]
    return number, prepared.ledger.total()


def resumed_account(out: Path, ledger: str | None) -> tuple[int, Total]:
    """Return the number of a finished run's entry and what everything promises together."""
    import json

    from stirred.release.ledger import Ledger

    stated = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["ledger"]
    return stated["number"], Ledger.open(ledger or stated["name"]).total()


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


def other_file_lines(prepared: Prepared) -> list[tuple[str, str]]:
    """Say beside the promise, and not in a warning alone, that the ledger accounts for other files as the same one."""
    return [
        (
            "files",
            f"the file of {role} is NOT that of entry {listed(entries)}; if it is not a version of the same file, it "
            "needs its own ledger",
        )
        for role, entries in prepared.other_files.items()
    ]


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


def expected_errors(prepared: Prepared, source: str, persons: Path | None) -> list[Expectation]:
    """Return the error to expect in every table of a plan, from the source that was named."""
    if not prepared.tables:
        raise bad_plan(
            "there is no table whose error to expect", where="--expect-from", remedy="add --table 'county x tenure'"
        )
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


_BUILDS_ON_SEED = "it builds on a release that was made with a seed, and can only be a test run too"
# On what the settings rest, as the plan says it or leaves it unsaid.
_BASIS = {
    "policy": "the settings, by policy",
    "invariants": "the settings, from the invariants alone",
    "other-data": "the settings, on other data",
    "this-data": "the settings, on THIS FILE: that voids the guarantee, and a release is refused",
    None: "the plan does not say what the settings are based on (--settings-from); they must be fixed in advance or "
    "follow from the invariants alone",
}


def show_plan(
    prepared: Prepared,
    *,
    epsilon: str | None,
    expected: Sequence[Expectation] = (),
    next_step: str,
    verbose: bool,
    as_json: bool,
    written: Path | None = None,
    writable: bool = False,
) -> None:
    """Print a plan in about ten lines, at length, or as JSON; ``written`` is the plan file that was made of it."""

    account, refusal = outlook(prepared)
    fit = None if refusal is None else gentlest_allowed(prepared)
    problems = [*problems_of(prepared.refuse), *(() if refusal is None else refusal.problems)]
    rates, mechanism = [Fraction(n, 100) for n in (1, 5, 10, 20, 50)], prepared.mechanism
    by_rate = mechanism.rate_losses(prepared.plan)
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
    better, better_shown = _stronger(prepared, written)
    if as_json:
        emit_json(
            {
                "specification": to_document(prepared.plan.specification),
                **numbers(prepared),
                **_joined(
                    fact.values
                    for fact in prepared.plan.facts
                    if fact.for_plans and not (problems and fact.confidential)
                ),
                "epsilon_by_rate": [{"rate": str(rate), **exactly(epsilon=loss)} for rate, loss in curve],
                "dropped": list(prepared.plan.dropped),
                "exposed": None if prepared.exposure is None else uniqueness_out(prepared.exposure),
                "stronger": better,
                "doubts": doubt_facts(prepared.doubts, prepared.accepted),
                "ledger": None if account is None else ledger_facts(account),
                "expected_error": [_expected_out(each) for each in expected],
                **target,
                **({} if written is None else {"written": str(written)}),
                **({} if refusal is None else {"would_fit": fit_out(fit)}),
                **({"errors": errors_out(problems)} if problems else {}),
            }
        )  # fmt: skip
        if problems:
            raise typer.Exit(StirredError.exit_code)
        return
    exposed = any(doubt.kind == EXPOSED for doubt in prepared.accepted)  # its row says the same
    seeded = prepared.plan.specification.seeded
    at = ", or at ".join(percent(rate, digits=6) for rate in target.get("target_rates", ()))
    facts(
        [
            *prepared.plan.outcome(),
            *([("chosen", _BASIS["this-data"])] if prepared.mechanism.settings_from == "this-data" else []),
            *([("target", f"epsilon {epsilon} is reached at rate {at}")] if target else []),
            *(_expected_line(each) for each in expected),
            *doubts_shown(prepared),
            *([("exposed", told)] if (told := prepared.exposed_in_words) and not exposed else []),
            *better_shown,
            *([("ledger", ledger_text(account))] if account is not None else []),
            *other_file_lines(prepared),
            *([] if refusal is None else refusal_lines(fit)),
            *([] if written is None else [("plan", str(written))]),
            *([("test run", _BUILDS_ON_SEED)] if seeded else []),
            *([] if problems else [("next", f"{next_step} --seed TEXT" if seeded else next_step)]),
        ]
    )
    if verbose:
        emit()
        _details(prepared, curve)
        emit()
    else_ = "" if written is None else "else "
    more = [*([] if verbose else ["--verbose"]), *(["--write"] if writable else [])]
    told = f" {'More' if writable else 'All details'}: {', '.join(more)}" if more else ""
    paragraph(f"Nothing random has happened and nothing {else_}was written.{told}")
    if problems:
        raise StirredError(problems)


def doubts_shown(prepared: Prepared) -> list[tuple[str, str]]:
    """Return the doubts of a plan as rows; those that refuse the release follow as errors too, with their remedies."""
    return doubt_rows(prepared.doubts, accepted=prepared.accepted)


def _stronger(prepared: Prepared, written: Path | None) -> tuple[dict[str, Any] | None, list[tuple[str, str]]]:
    """Return the relative that promises more at an equal share of changed records, and the one line that says so."""
    both = stronger(prepared.mechanism, prepared.plan)
    if both is None:
        return None, []
    found, changed = both
    source = written or Path(prepared.plan_file.source)
    plan = source if source.suffix == ".toml" else "PLAN.toml"
    words = f"{found.name}: ε={found.epsilon.shown()} at equal change"
    values = {**picked(found, "name", "setting"), "changed": changed, **exactly(epsilon=found.epsilon)}
    return values, [("stronger", f"{words}; stirred compare {plan} --family")]


def _details(prepared: Prepared, curve: Sequence[tuple[Fraction, Exact]]) -> None:
    """Print what a plan says at length: the five answers, its facts, bounds and losses by rate."""
    plan = prepared.plan
    five_answers(prepared, with_paper=not plan.why_this_number)  # that names the paper's bound
    emit()
    losses = "; ".join(f"{100 * float(rate):.0f}%: epsilon {e.shown()}" for rate, e in curve)
    facts(
        [
            ("chosen", _BASIS[prepared.mechanism.settings_from]),
            *([(plan.unreleased, every)] if (every := ", ".join(plan.dropped)) != plan.dropped_in_short else []),
            *((fact.label, fact.sentence) for fact in plan.facts if fact.sentence),
            *([("bounds", plan.why_this_number)] if plan.why_this_number else []),
            *([("also", plan.also_promised)] if plan.also_promised else []),
            *([("by rate", f"with one rate everywhere: {losses}")] if curve else []),
        ]
    )


def outlook(prepared: Prepared) -> tuple[Total | None, OverLimitError | None]:
    """Return what everything together would promise, or the refusal of the policy: the plan is shown before it."""
    try:
        return remaining(prepared), None
    except OverLimitError as refusal:
        return None, refusal


def refusal_lines(fit: AllowedSetting | None) -> list[tuple[str, str]]:
    """Say that the policy refuses, and which setting it would allow."""
    allowed = "no setting of this mechanism, all else equal" if fit is None else str(fit)
    return [("ledger", "REFUSED: its policy does not allow this release"), ("would fit", allowed)]


def fit_out(fit: AllowedSetting | None) -> dict[str, Any] | None:
    """Return for JSON the setting that the policy would allow."""
    if fit is None:
        return None
    return {"setting": fit.setting, "value": str(fit.value), **exactly(epsilon=fit.epsilon)}


def errors_out(problems: Sequence[Problem]) -> list[dict[str, str]]:
    """Return for JSON why a release would be refused."""
    return [{"what": p.told, "where": p.where, "remedy": p.remedy} for p in problems]
