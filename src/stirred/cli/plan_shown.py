"""A plan on the screen: its promise, its strata, what it costs, and what to expect of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from stirred.release.expectation import Expectation
    from stirred.release.fitting import Fit
    from stirred.release.ledger import OverLimitError, Total
    from stirred.release.prepared import Prepared
    from stirred.spec.exact import Exact
    from stirred.spec.layered_budget import PerturbedBudget


def numbers(prepared: Prepared) -> dict[str, Any]:
    """Return the numbers of a plan for JSON."""
    from stirred.mechanisms.swapping.metric import MetricPlan
    from stirred.mechanisms.swapping.noisy_plan import NoisyPlan
    from stirred.mechanisms.swapping.response_plan import ResponsePlan
    from stirred.mechanisms.swapping.two_stage import TwoStagePlan
    from stirred.spec.document import number_out

    plan = prepared.plan
    fine = plan.fine_specification.budget.realised if isinstance(plan, TwoStagePlan) else None
    unit = plan.per_unit if isinstance(plan, MetricPlan) else None
    closer = plan.losses if isinstance(plan, NoisyPlan) else None
    both = plan.swap_specification.budget.realised if isinstance(plan, ResponsePlan) else None
    strata, epsilon = plan.strata, plan.epsilon
    paper, exact = prepared.plan.paper_epsilon, prepared.plan.exact_loss
    return {
        "epsilon": number_out(epsilon),
        "epsilon_exact": str(epsilon),
        **({} if fine is None else {"fine_epsilon": number_out(fine), "fine_epsilon_exact": str(fine)}),
        **({} if unit is None else {"epsilon_per_unit": number_out(unit), "epsilon_per_unit_exact": str(unit)}),
        **({} if closer is None else _noise_numbers(closer)),
        **({} if both is None else {"swap_flavor_epsilon": number_out(both), "swap_flavor_epsilon_exact": str(both)}),
        "paper_epsilon": number_out(paper),
        "paper_epsilon_exact": str(paper),
        "exact_loss": None if exact is None else number_out(exact),
        "exact_loss_expression": None if exact is None else str(exact),
        "records": prepared.data.households.height,
        "strata": len(strata.table),
        "live_strata": len(strata.live),
        "largest_live_stratum": strata.largest_live.records if strata.largest_live else 0,
        "expected_share_moved": strata.moved,
    }


def _noise_numbers(losses: PerturbedBudget) -> dict[str, Any]:
    """Return the losses of noise after a swap between files that agree on one margin, or on both."""
    from stirred.spec.document import number_out

    both = {"noise_epsilon": losses.one, "one_margin_epsilon": losses.one, "both_margins_epsilon": losses.both}
    return {f"{name}{end}": out(e) for name, e in both.items() for end, out in (("", number_out), ("_exact", str))}


def say_warnings(prepared: Prepared) -> None:
    """Print the warnings of a plan."""
    for warning in prepared.warnings:
        say(f"Warning: {warning}")


def five_answers(prepared: Prepared, *, with_paper: bool = True) -> None:
    """Print the five answers of a plan's specification, and how to read its number."""
    from stirred.report.swap import published_as_they_are
    from stirred.spec.explain import explain

    words = explain(prepared.plan.specification, with_paper=with_paper)
    heading(prepared.plan.specification.notation)
    emit()
    emit("NOT protected, because it is published exactly:")
    *fixed, rest = words.not_protected
    bullets([*fixed, *published_as_they_are(prepared.plan, prepared.mechanism), rest])
    emit()
    facts([(answer.question, answer.answer) for answer in words.answers])
    emit()
    paragraph(words.how_to_read)


def account_of(prepared: Prepared, out: Path) -> tuple[int, Total] | None:
    """Return the number of the run's entry and what everything promises together, where there is a ledger."""
    if prepared.ledger is None:
        return None
    import json

    number = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["ledger"]["number"]
    return number, prepared.ledger.total()


def ledger_text(account: Total) -> str:
    """Say what everything in the ledger promises together with this release."""
    if account.specification is not None:
        return f"with this release everything together promises {account.specification.notation}"
    parts = "; ".join(part.specification.notation for part in account.parts)
    return f"with this release there are {len(account.parts)} promises that do not add up to one: {parts}"


def other_file_lines(prepared: Prepared) -> list[tuple[str, str]]:
    """Say beside the promise, and not in a warning alone, that the ledger accounts for other files as the same one."""
    from stirred.release.ledger.total import numbers as listed

    return [
        (
            "files",
            f"the file of {role} is NOT that of entry {listed(entries)}; if it is no version of the same file, it "
            "needs a ledger of its own",
        )
        for role, entries in prepared.other_files.items()
    ]


def ledger_facts(account: Total) -> dict[str, Any]:
    """Return for JSON what everything in the ledger promises together."""
    from stirred.spec.document import to_document

    one = account.specification
    return {
        "total": None if one is None else to_document(one),
        "parts": [part.specification.notation for part in account.parts],
        "apart": [str(problem) for problem in account.apart],
    }


def expected_errors(prepared: Prepared, source: str, persons: Path | None) -> list[Expectation]:
    """Return the error to expect in every table of a plan, from the source that was named."""
    from stirred.data.frames import exists
    from stirred.data.problems import bad_file, bad_plan
    from stirred.release.bundle import checksum
    from stirred.release.expectation import expectations

    if not prepared.tables:
        raise bad_plan(
            "there is no table whose error to expect", where="--expect-from", remedy="add --table 'county x tenure'"
        )
    known = source in ("margins", "this-data")
    if not known and not exists(source):
        raise bad_file("there is no such file", where=f"--expect-from {source}", remedy="name a file, or write margins")
    if not known and Path(source).exists() and checksum(Path(source)) in prepared.inputs.values():
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
        "source": error.source,
        "exact": error.exact,
        "mark": expected.mark,
        "mean_absolute_error": error.mean_absolute_error,
        "mean_absolute_percentage_error": error.mean_absolute_percentage_error,
        "root_mean_square_error": error.root_mean_square_error,
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


# On what the settings rest, as the plan says it or leaves it unsaid.
_BASIS = {
    "policy": "the settings, by policy",
    "invariants": "the settings, from the invariants alone",
    "other-data": "the settings, on other data",
    "this-data": "the settings, on THIS FILE: that voids the guarantee, and a release is refused",
    None: "not said on what the settings rest (--settings-from): they must have been fixed beforehand, or follow from "
    "the invariants alone",
}


def show_plan(prepared: Prepared, *, epsilon: str | None, expected: Sequence[Expectation] = (), as_json: bool) -> None:
    """Print a plan, or its JSON."""
    from fractions import Fraction

    from stirred.data.problems import number
    from stirred.release.fitting import fitting

    strata = prepared.plan.strata
    account, refusal = _outlook(prepared)
    fit = None if refusal is None else fitting(prepared)
    rates = [Fraction(n, 100) for n in (1, 5, 10, 20, 50)]
    curve = prepared.mechanism.losses(prepared.plan, rates)
    target = _target(prepared, epsilon)
    if as_json:
        from stirred.spec.document import number_out, to_document

        emit_json(
            {
                "specification": to_document(prepared.plan.specification),
                **numbers(prepared),
                "largest_strata": [
                    {"match": dict(zip(strata.match, map(str, s.values), strict=True)), "records": s.records,
                     "live": s.live, "rate": s.rate_shown, "expected_share_moved": share}
                    for s, share in strata.largest_first[:50]
                ],
                "epsilon_by_rate": [
                    {"rate": str(r), "epsilon": number_out(e), "epsilon_exact": str(e)} for r, e in curve
                ],
                "dropped": list(prepared.plan.dropped),
                "warnings": list(prepared.warnings),
                "ledger": None if account is None else ledger_facts(account),
                "expected_error": [_expected_out(each) for each in expected],
                **target,
                **({} if refusal is None else {"would_fit": _fit_out(fit), "errors": _errors(refusal)}),
            }
        )  # fmt: skip
        if refusal is not None:
            raise typer.Exit(refusal.exit_code)
        return
    say_warnings(prepared)
    five_answers(prepared, with_paper=not prepared.plan.why_this_number)  # that names the paper's bound
    emit()
    largest = strata.largest_live
    values = ", ".join(f"{k} = {v}" for k, v in zip(strata.match, largest.values, strict=True)) if largest else ""
    where = f" ({values})" if values else ""
    facts(
        [
            ("chosen", _BASIS[prepared.mechanism.settings_from]),
            ("strata", f"{len(strata.table):,}, of which {len(strata.live):,} {_live_in_words(prepared)}"),
            ("largest", f"{number(largest.records, 'record')}{where}" if largest else "none is live"),
            _moved_line(prepared),
            *_exact_line(prepared),
            *_decisive_line(prepared),
            *_bounds_line(prepared),
            *([("by rate", _by_rate(curve))] if curve else []),
            *([("target", _target_text(target))] if target else []),
            *([("dropped", ", ".join(prepared.plan.dropped))] if prepared.plan.dropped else []),
            *(_expected_line(each) for each in expected),
            *([("ledger", ledger_text(account))] if account is not None else []),
            *other_file_lines(prepared),
            *(_refusal_lines(fit) if refusal is not None else []),
        ]
    )
    emit()
    paragraph("Nothing random has happened and nothing was written.")
    if refusal is not None:
        raise refusal


def _outlook(prepared: Prepared) -> tuple[Total | None, OverLimitError | None]:
    """Return what everything together would promise, or the refusal of the policy: the plan is shown before it."""
    from stirred.release.ledger import OverLimitError
    from stirred.release.run import remaining

    try:
        return remaining(prepared), None
    except OverLimitError as refusal:
        return None, refusal


def _refusal_lines(fit: Fit | None) -> list[tuple[str, str]]:
    allowed = "no setting of this mechanism, all else equal" if fit is None else str(fit)
    return [("ledger", "REFUSED: its policy does not allow this release"), ("would fit", allowed)]


def _fit_out(fit: Fit | None) -> dict[str, Any] | None:
    from stirred.spec.document import number_out

    if fit is None:
        return None
    loss = {"epsilon": number_out(fit.epsilon), "epsilon_exact": str(fit.epsilon)}
    return {"setting": fit.setting, "value": str(fit.value), **loss}


def _errors(refusal: OverLimitError) -> list[dict[str, str]]:
    return [{"what": p.what, "where": p.where, "remedy": p.remedy} for p in refusal.problems]


def _live_in_words(prepared: Prepared) -> str:
    return "have two records or more" if prepared.mechanism.member == "noisy" else "have something to swap"


def _moved_line(prepared: Prepared) -> tuple[str, str]:
    """Say how many records are expected to move, or to change where the law is one of values and not of records."""
    from stirred.mechanisms.swapping.response_swap import ResponseSwap

    mechanism, share = prepared.mechanism, prepared.plan.strata.moved
    if share is None:
        why = "with rates by hold and swap values together it depends on counts that are protected"
        return ("moved", f"not said: {why}")
    label = "changed" if mechanism.moved_get == "another value" else "moved"
    text = f"{100 * share:.2f}% of records are expected to get {mechanism.moved_get}"
    if isinstance(mechanism, ResponseSwap):
        chance = f"{100 * float(mechanism.change):.4g}%"
        text += f", by the swap; the response changes each {mechanism.respond} with probability {chance} besides"
    return (label, text + (", by the swap" if mechanism.member == "noisy" else ""))


def _exact_line(prepared: Prepared) -> list[tuple[str, str]]:
    """Say which records a swap leaves alone and the response does not; others are listed with what is not protected."""
    from stirred.data.problems import number

    count, perturbed = prepared.plan.strata.exact_records, prepared.plan.perturbed
    if not count or perturbed is None:
        return []
    return [
        ("unchanged", f"{number(count, 'record')} in strata with nothing to swap, but for the response on {perturbed}")
    ]


def _by_rate(curve: Sequence[tuple[Fraction, Exact]]) -> str:
    losses = "; ".join(f"{100 * float(rate):.0f}%: epsilon {e.shown()}" for rate, e in curve)
    return f"if one rate applied everywhere: {losses}"


def _bounds_line(prepared: Prepared) -> list[tuple[str, str]]:
    why, also = prepared.plan.why_this_number, prepared.plan.also_promised
    return [*([("bounds", why)] if why else []), *([("also", also)] if also else [])]


def _decisive_line(prepared: Prepared) -> list[tuple[str, str]]:
    """Say which stratum sets the loss, where rates differ."""
    from stirred.data.problems import number
    from stirred.mechanisms.swapping.response_plan import ResponsePlan

    strata = prepared.plan.exposed if isinstance(prepared.plan, ResponsePlan) else prepared.plan.strata
    one = strata.by_record is None and len({stratum.rate for stratum in strata.live}) < 2
    if prepared.mechanism.member == "noisy" or one or (stratum := strata.decisive) is None:
        return []
    values = ", ".join(f"{k} = {v}" for k, v in zip(strata.match, stratum.values, strict=True)) or "all records"
    return [("loss set by", f"{values}: {number(stratum.records, 'record')} at rate {stratum.rate_shown}")]


def _target(prepared: Prepared, epsilon: str | None) -> dict[str, Any]:
    """Return both rates for a target loss, as exact expressions and as rates one could use."""
    if epsilon is None:
        return {}
    from stirred.mechanisms.swapping.permutation import PermutationSwap
    from stirred.spec.given_numbers import loss
    from stirred.spec.problems import placed
    from stirred.spec.swap_budget import psa_rates_for, rate_not_above

    largest = prepared.plan.strata.largest_live
    size = largest.records if largest else 0
    with placed("--epsilon"):
        wanted = loss(epsilon, where="")
        if not isinstance(prepared.mechanism, PermutationSwap) or prepared.mechanism.member == "noisy":
            rate = prepared.mechanism.rate_reaching(prepared.plan, wanted)
            return {"target_epsilon": epsilon, "target_rates": [float(rate)], "usable_rates": [str(rate)]}
        rates = psa_rates_for(wanted, largest_stratum=size, bound="sharp")
        usable = [str(rate_not_above(wanted, largest_stratum=size, high=high, bound="sharp")) for high in (False, True)]
    return {"target_epsilon": epsilon, "target_rates": [float(rates.low), float(rates.high)], "usable_rates": usable}


def _target_text(target: dict[str, Any]) -> str:
    reached = ", or at ".join(f"{100 * rate:.6g}%" for rate in target["target_rates"])
    return f"epsilon {target['target_epsilon']} is reached at rate {reached}"
