"""`stirred swap`, `stirred plan` and `stirred release`: from a file, or a plan, to a bundle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph, say
from stirred.cli.progress import shown_progress

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from stirred.release.expectation import Expectation
    from stirred.release.ledger import Total
    from stirred.release.plan_file import Planned
    from stirred.release.run import Prepared
    from stirred.spec.exact import Exact

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE", help="The household file: CSV, Parquet, Arrow, a folder of parts, FILE.sqlite#table."
    ),
]
Match = Annotated[list[str] | None, typer.Option("--match", help="Swap only between records equal on this variable; repeat, or separate by commas.")]  # fmt: skip  # noqa: E501
Swap = Annotated[list[str] | None, typer.Option("--swap", help="Variable that is exchanged, such as the geography; repeat, or separate by commas.")]  # fmt: skip  # noqa: E501
Hold = Annotated[list[str] | None, typer.Option("--hold", help="Other variables to release (default: all); unnamed ones are dropped.")]  # fmt: skip  # noqa: E501
Rate = Annotated[str | None, typer.Option("--rate", help="Swap rate, exactly: 1/20, 0.05 or 5%.")]
Mechanism = Annotated[str, typer.Option("--mechanism", help="Member of the swapping family: permutation, conditioned, mallows, shuffle or two-stage.")]  # fmt: skip  # noqa: E501
FineMatch = Annotated[list[str] | None, typer.Option("--fine-match", help="For the two-stage swap: further variables that the second stage matches on.")]  # fmt: skip  # noqa: E501
FineRate = Annotated[str | None, typer.Option("--fine-rate", help="For the two-stage swap: rate of the second stage.")]
Kernel = Annotated[
    str | None,
    typer.Option("--kernel", help="For the conditioned swap: redraw from a uniform or a proportional law."),
]
Id = Annotated[list[str] | None, typer.Option("--id", help="Identifier column: never released.")]
Persons = Annotated[Path | None, typer.Option("--persons", help="File of the persons in the households.")]
CodebookFile = Annotated[Path | None, typer.Option("--codebook", help="Codebook to validate the files against.")]
Hid = Annotated[str | None, typer.Option("--hid", help="Column linking persons to households; re-issued on release.")]
Table = Annotated[
    list[str] | None, typer.Option("--table", help="Table to publish, such as 'county x tenure'; repeat.")
]
Unit = Annotated[str, typer.Option("--unit", help="What a record is.")]
Format = Annotated[str, typer.Option("--format", help="Of the released data: parquet or csv.")]
Epsilon = Annotated[
    str | None,
    typer.Option("--epsilon", help="Show which rates would reach this loss; for the Mallows swap, the loss itself."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
SettingsFrom = Annotated[str | None, typer.Option("--settings-from", help="On what the settings were based: policy, invariants, other-data or this-data.")]  # fmt: skip  # noqa: E501
LedgerPlace = Annotated[
    str | None, typer.Option("--ledger", help="Ledger to account in: a file, or postgresql://user@host/database.")
]
Purpose = Annotated[
    str, typer.Option("--purpose", help="What the release is for; kept in the manifest and the ledger.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")]
Seed = Annotated[
    str | None, typer.Option("--seed", help="FOR TESTS ONLY: reproducible randomness; the bundle is marked.")
]

# What a plan that is only shown has as its place.
_NOWHERE = Path("not-written")


def swap(
    file: File,
    match: Match = None,
    swap: Swap = None,
    rate: Rate = None,
    mechanism: Mechanism = "permutation",
    kernel: Kernel = None,
    fine_match: FineMatch = None,
    fine_rate: FineRate = None,
    hold: Hold = None,
    id: Id = None,
    persons: Persons = None,
    hid: Hid = None,
    codebook: CodebookFile = None,
    table: Table = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the bundle; must not exist.")] = None,
    unit: Unit = "household",
    settings_from: SettingsFrom = None,
    ledger: LedgerPlace = None,
    purpose: Purpose = "",
    format_: Format = "parquet",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; nothing random happens.")] = False,
    epsilon: Epsilon = None,
    seed: Seed = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Swap a household file and write the bundle: data, tables, specification, checks, report."""
    from stirred.release.run import prepare

    options = _Options(
        file=file,
        match=match,
        swap=swap,
        rate=rate,
        hold=hold,
        id=id,
        persons=persons,
        hid=hid,
        codebook=codebook,
        unit=unit,
        table=table,
        out=out or (_NOWHERE if dry_run else None),
        format_=format_,
        settings_from=settings_from,
        ledger=ledger,
        purpose=purpose,
        mechanism=mechanism,
        kernel=kernel,
        fine_match=fine_match,
        fine_rate=fine_rate,
        epsilon=epsilon if mechanism == "mallows" else None,
    )
    prepared = prepare(options.planned())
    if dry_run:
        _show_plan(prepared, epsilon=None if mechanism == "mallows" else epsilon, as_json=json)
        return
    _run(prepared, seed=seed, quiet=quiet, as_json=json)


def plan(
    file: Annotated[Path, typer.Argument(metavar="PLAN.toml|FILE", help="A plan, or a household file with options.")],
    match: Match = None,
    swap: Swap = None,
    rate: Rate = None,
    mechanism: Mechanism = "permutation",
    kernel: Kernel = None,
    fine_match: FineMatch = None,
    fine_rate: FineRate = None,
    hold: Hold = None,
    id: Id = None,
    persons: Persons = None,
    hid: Hid = None,
    codebook: CodebookFile = None,
    unit: Unit = "household",
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
        Path | None, typer.Option("--expect-persons", help="Persons of the file given to --expect-from.")
    ] = None,
    geography: Annotated[
        list[str] | None,
        typer.Option(
            "--geography",
            help="Levels from the finest to the coarsest: compare the choices of match and swap they allow.",
        ),
    ] = None,
    cross: Annotated[
        list[str] | None,
        typer.Option("--cross", help="With --geography: further match variables to try, such as the household size."),
    ] = None,
    json: Json = False,
) -> None:
    """Show what a release would promise, or with --geography which choices there are. Nothing random happens."""
    from stirred.data.problems import bad_plan
    from stirred.release.plan_file import read_plan
    from stirred.release.run import prepare

    if geography:
        for name, value in (("match", match), ("swap", swap), ("rate", rate), ("hold", hold), ("codebook", codebook)):
            if value:
                raise bad_plan("--geography tries all choices", where=f"--{name}", remedy="leave one of them out")
        if file.suffix == ".toml":
            raise bad_plan("a plan has made its choice", where=str(file), remedy="give the household file instead")
        _show_choices(file, geography, cross, id, persons, hid, unit=unit, epsilon=epsilon, as_json=json)
        return
    if cross:
        remedy = "name the levels with --geography, or leave it out; match variables are named with --match"
        raise bad_plan("--cross goes with --geography", where="--cross", remedy=remedy)
    if file.suffix == ".toml":
        _no_options_beside_plan(
            match=match, swap=swap, rate=rate, hold=hold, id=id, persons=persons, hid=hid, table=table
        )
        planned = read_plan(file)
    else:
        options = _Options(
            file=file,
            match=match,
            swap=swap,
            rate=rate,
            hold=hold,
            id=id,
            persons=persons,
            hid=hid,
            codebook=codebook,
            table=table,
            unit=unit,
            out=_NOWHERE,
            mechanism=mechanism,
            kernel=kernel,
            fine_match=fine_match,
            fine_rate=fine_rate,
            epsilon=epsilon if mechanism == "mallows" else None,
            command="plan",
        )
        planned = options.with_rate_for(epsilon).planned()
    if expect_persons is not None and expect_from in (None, "margins", "this-data"):
        raise bad_plan(
            "this file belongs to another file of households",
            where="--expect-persons",
            remedy="name that file with --expect-from FILE, or leave it out",
        )
    prepared = prepare(planned)
    expected = [] if expect_from is None else _expected(prepared, expect_from, expect_persons)
    target = None if prepared.planned.plan.mechanism.name == "mallows-swap" else epsilon
    _show_plan(prepared, epsilon=target, expected=expected, as_json=json)


def release(
    file: Annotated[Path, typer.Argument(metavar="PLAN.toml", help="The plan to carry out.")],
    seed: Seed = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Carry out a plan: validate, swap, verify, and leave a complete bundle or none."""
    from stirred.release.plan_file import read_plan
    from stirred.release.run import prepare

    _run(prepare(read_plan(file)), seed=seed, quiet=quiet, as_json=json)


def _no_options_beside_plan(**options: Any) -> None:
    from stirred.data.problems import bad_plan

    for name, value in options.items():
        if value:
            raise bad_plan("a plan says this already", where=f"--{name}", remedy="change it in the plan")


def _names(values: list[str] | None) -> list[str]:
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """What `swap` and `plan` may be told on the command line instead of in a plan."""

    file: Path
    match: list[str] | None
    swap: list[str] | None
    rate: str | None
    hold: list[str] | None
    id: list[str] | None
    persons: Path | None
    hid: str | None
    codebook: Path | None
    unit: str
    out: Path | None
    table: list[str] | None = None
    format_: str = "parquet"
    settings_from: str | None = None
    ledger: str | None = None
    purpose: str = ""
    mechanism: str = "permutation"
    kernel: str | None = None
    fine_match: list[str] | None = None
    fine_rate: str | None = None
    epsilon: str | None = None
    command: str = "swap"

    def with_rate_for(self, epsilon: str | None) -> _Options:
        """Return the options with the gentlest rate that reaches a target, where a target and no rate was given."""
        if self.rate or epsilon is None or self.mechanism == "mallows":
            return self
        from stirred.release.run import prepare
        from stirred.spec.exact import loss

        prepared = prepare(replace(self, rate="1/2").planned())
        target = loss(epsilon, where="--epsilon")
        live = prepared.plan.strata.largest_live is not None
        rate = str(prepared.mechanism.rate_reaching(prepared.plan, target)) if live else "1/2"
        return replace(self, rate=rate)

    def planned(self) -> Planned:
        """Return the plan that the options amount to; refuse where one is wanting."""
        from stirred.data.problems import PlanError
        from stirred.release.plan_file import planned
        from stirred.release.tables import parse_table
        from stirred.spec.problems import Problem

        rate = {"--epsilon": self.epsilon} if self.mechanism == "mallows" else {"--rate": self.rate}
        needed = {"--swap": self.swap, **rate, "--out": self.out}
        missing = [name for name, value in needed.items() if not value]
        if missing:
            remedy = f"see `stirred {self.command} --help`, or write a plan.toml"
            raise PlanError(Problem(what="is needed", where=name, remedy=remedy) for name in missing)
        content: dict[str, Any] = {
            "data": {"households": str(self.file), "id": _names(self.id)},
            "mechanism": {
                "name": f"{self.mechanism}-swap",
                "match": _names(self.match),
                "swap": _names(self.swap),
                "rate": self.rate,
                "epsilon": self.epsilon,
                "redraw_law": self.kernel,
                "fine_match": _names(self.fine_match),
                "fine_rate": self.fine_rate,
                "unit": self.unit,
            },
            "tables": [{"variables": parse_table(text)[1]} for text in self.table or ()],
            "release": {"out": str(self.out), "format": self.format_, "purpose": self.purpose, "ledger": self.ledger},
        }
        if self.settings_from is not None:
            content["mechanism"]["settings_from"] = self.settings_from
        if self.hold is not None:
            content["mechanism"]["hold"] = _names(self.hold)
        for name, value in (("persons", self.persons), ("hid", self.hid), ("codebook", self.codebook)):
            if value is not None:
                content["data"][name] = str(value)
        return planned(content, source="command line", folder=Path())


def _run(prepared: Prepared, *, seed: str | None, quiet: bool, as_json: bool) -> None:
    from stirred.randomness.entropy import Entropy
    from stirred.release.run import run

    entropy = Entropy.from_os() if seed is None else Entropy.from_seed(seed)
    try:
        with shown_progress(quiet=quiet or as_json) as progress:
            out = run(prepared, entropy=entropy, progress=progress)
    except KeyboardInterrupt as stop:
        for note in getattr(stop, "__notes__", ()):
            say(note)
        raise
    specification = prepared.plan.specification
    account = _account(prepared, out)
    if as_json:
        emit_json(
            {
                "bundle": str(out),
                "report": str(out / "public" / "report.html"),
                "specification": str(out / "public" / "specification.json"),
                "notation": specification.notation,
                **_numbers(prepared),
                "seeded": entropy.seeded,
                "ledger": None if account is None else {"entry": account[0], **_ledger_out(account[1])},
            }
        )
        return
    _five(prepared)
    emit()
    facts([("bundle", str(out)), ("report", str(out / "public" / "report.html"))])
    if account is not None:
        facts([("ledger", f"entry {account[0]}, committed; {_ledger_text(account[1])}")])
    if entropy.seeded:
        say("This is a test run with a seed: nothing of it may be published.")


def _numbers(prepared: Prepared) -> dict[str, Any]:
    from stirred.mechanisms.swapping.two_stage import TwoStagePlan
    from stirred.spec.document import number_out

    plan = prepared.plan
    fine = plan.fine_specification.budget.realised if isinstance(plan, TwoStagePlan) else None
    strata, epsilon = plan.strata, plan.epsilon
    paper, exact = prepared.plan.paper_epsilon, prepared.plan.exact_loss
    return {
        "epsilon": number_out(epsilon),
        "epsilon_exact": str(epsilon),
        **({} if fine is None else {"fine_epsilon": number_out(fine), "fine_epsilon_exact": str(fine)}),
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


def _five(prepared: Prepared) -> None:
    from stirred.spec.explain import explain

    for warning in prepared.warnings:
        say(f"Warning: {warning}")
    words = explain(prepared.plan.specification)
    heading(prepared.plan.specification.notation)
    emit()
    emit("NOT protected, because it is published exactly:")
    bullets(words.not_protected)
    emit()
    facts([(answer.question, answer.answer) for answer in words.answers])


def _account(prepared: Prepared, out: Path) -> tuple[int, Total] | None:
    """Return the number of the run's entry and what everything promises together, where there is a ledger."""
    if prepared.planned.ledger is None:
        return None
    import json

    from stirred.release.ledger import Ledger

    number = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["ledger"]["number"]
    return number, Ledger.open(prepared.planned.ledger).total()


def _ledger_text(account: Total) -> str:
    """Say what everything in the ledger promises together with this release."""
    if account.specification is not None:
        return f"with this release everything together promises {account.specification.notation}"
    parts = "; ".join(part.specification.notation for part in account.parts)
    return f"with this release there are {len(account.parts)} promises that do not add up to one: {parts}"


def _ledger_out(account: Total) -> dict[str, Any]:
    from stirred.spec.document import to_document

    one = account.specification
    return {
        "total": None if one is None else to_document(one),
        "parts": [part.specification.notation for part in account.parts],
        "apart": list(account.apart),
    }


def _expected(prepared: Prepared, source: str, persons: Path | None) -> list[Expectation]:
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


def _show_plan(prepared: Prepared, *, epsilon: str | None, expected: Sequence[Expectation] = (), as_json: bool) -> None:
    from fractions import Fraction

    from stirred.release.run import remaining

    strata, account = prepared.plan.strata, remaining(prepared)
    rates = [Fraction(n, 100) for n in (1, 5, 10, 20, 50)]
    curve = prepared.mechanism.losses(prepared.plan, rates)
    target = _target(prepared, epsilon)
    if as_json:
        from stirred.spec.document import number_out, to_document

        emit_json(
            {
                "specification": to_document(prepared.plan.specification),
                **_numbers(prepared),
                "largest_strata": [
                    {"match": dict(zip(strata.match, map(str, s.values), strict=True)), "records": s.records,
                     "live": s.live, "rate": str(s.rate), "expected_share_moved": share}
                    for s, share in strata.largest_first[:50]
                ],
                "epsilon_by_rate": [
                    {"rate": str(r), "epsilon": number_out(e), "epsilon_exact": str(e)} for r, e in curve
                ],
                "dropped": list(prepared.plan.dropped),
                "warnings": list(prepared.warnings),
                "ledger": None if account is None else _ledger_out(account),
                "expected_error": [_expected_out(each) for each in expected],
                **target,
            }
        )  # fmt: skip
        return
    _five(prepared)
    emit()
    largest = strata.largest_live
    where = ", ".join(f"{k} = {v}" for k, v in zip(strata.match, largest.values, strict=True)) if largest else ""
    facts(
        [
            ("strata", f"{len(strata.table):,}, of which {len(strata.live):,} have something to swap"),
            ("largest", f"{largest.records:,} records{f' ({where})' if where else ''}" if largest else "none is live"),
            ("moved", f"{100 * strata.moved:.2f}% of records are expected to get another record's values"),
            *_exact_line(prepared),
            *_decisive_line(prepared),
            *_bounds_line(prepared),
            *([("by rate", _by_rate(curve))] if curve else []),
            *([("target", _target_text(target))] if target else []),
            *([("dropped", ", ".join(prepared.plan.dropped))] if prepared.plan.dropped else []),
            *(_expected_line(each) for each in expected),
            *([("ledger", _ledger_text(account))] if account is not None else []),
        ]
    )
    emit()
    paragraph("Nothing random has happened and nothing was written.")


def _exact_line(prepared: Prepared) -> list[tuple[str, str]]:
    strata, total = prepared.plan.strata, prepared.data.households.height
    if not strata.exact_records:
        return []
    share = 100 * strata.exact_records / total
    text = f"{strata.exact_records:,} records ({share:.1f}%) lie in strata with nothing to swap: published as they are"
    return [("unchanged", text)]


def _by_rate(curve: Sequence[tuple[Fraction, Exact]]) -> str:
    losses = "; ".join(f"{100 * float(rate):.0f}%: epsilon {e.shown()}" for rate, e in curve)
    return f"if one rate applied everywhere: {losses}"


def _bounds_line(prepared: Prepared) -> list[tuple[str, str]]:
    why, also = prepared.plan.why_this_number, prepared.plan.also_promised
    return [*([("bounds", why)] if why else []), *([("also", also)] if also else [])]


def _decisive_line(prepared: Prepared) -> list[tuple[str, str]]:
    """Say which stratum sets the loss, where rates differ."""
    strata = prepared.plan.strata
    if len({stratum.rate for stratum in strata.live}) < 2 or (stratum := strata.decisive) is None:
        return []
    values = ", ".join(f"{k} = {v}" for k, v in zip(strata.match, stratum.values, strict=True))
    return [("loss set by", f"{values}: {stratum.records:,} records at rate {stratum.rate}")]


def _show_choices(
    file: Path,
    geography: list[str],
    cross: list[str] | None,
    id: list[str] | None,
    persons: Path | None,
    hid: str | None,
    *,
    unit: str,
    epsilon: str | None,
    as_json: bool,
) -> None:
    from stirred.data.microdata import Microdata
    from stirred.mechanisms.swapping.candidates import candidates
    from stirred.spec.exact import loss

    data = Microdata.read(file, persons, hid=hid, id=_names(id))
    target = None if epsilon is None else loss(epsilon, where="--epsilon")
    found = candidates(data, levels=_names(geography), cross=_names(cross), epsilon=target, unit=unit)
    if as_json:
        facts_ = {"choices": [_choice_facts(choice) for choice in found], "warning": CHOOSING}
        emit_json({**facts_, "warnings": list(dict.fromkeys(w for choice in found for w in choice.warnings))})
        return
    for warning in dict.fromkeys(w for choice in found for w in choice.warnings):
        say(f"Warning: {warning}")
    for choice in found:
        heading(choice.name)
        where = ", ".join(f"{k} = {v}" for k, v in zip(choice.match, choice.largest_values, strict=False))
        losses = "; ".join(f"{100 * float(rate):g}%: epsilon {e.shown()}" for rate, e in choice.epsilons)
        rows = [
            ("swaps", ", ".join(choice.swap)),
            ("strata", f"{choice.strata:,}, of which {choice.live:,} have something to swap"),
            ("largest", f"{choice.largest:,}{f' ({where})' if where else ''}"),
            ("loss", f"{losses}; smallest possible {choice.least.shown()}"),
        ]
        if target is not None:
            rate = choice.reaching
            rows.append(
                (
                    "target",
                    "not reached by any rate" if rate is None else f"reached from a rate of {100 * float(rate):.4g}%",
                )
            )
        rows += [("fixes", f"the {words}") for words in choice.invariants]
        rows.append(
            ("choosing it", "by this list: from its invariants" if choice.safe else "by this list: looks at the data")
        )
        facts(rows, indent=2)
        emit()
    paragraph(CHOOSING)


CHOOSING = (
    "Losses of different choices are in different currencies: a choice with smaller strata has the smaller number "
    "because more is published exactly. And choosing settings by looking at the confidential file voids the guarantee, "
    "unless what you looked at are invariants of the choice you make: such choices are marked 'from its "
    "invariants' (record "
    'settings_from = "invariants"). Otherwise decide by policy, or on an earlier census or the synthetic one.'
)


def _choice_facts(choice: Any) -> dict[str, Any]:
    from stirred.spec.document import number_out

    return {
        "match": list(choice.match),
        "swap": list(choice.swap),
        "strata": choice.strata,
        "live_strata": choice.live,
        "largest_live_stratum": choice.largest,
        "epsilon_by_rate": [
            {"rate": str(rate), "epsilon": number_out(e), "epsilon_exact": str(e)} for rate, e in choice.epsilons
        ],
        "smallest_epsilon": number_out(choice.least),
        "rate_reaching_target": None if choice.reaching is None else str(choice.reaching),
        "invariants": list(choice.invariants),
        "settings_from": "invariants" if choice.safe else "this-data",
    }


def _target(prepared: Prepared, epsilon: str | None) -> dict[str, Any]:
    """Return both rates for a target loss, as exact expressions and as rates one could use."""
    if epsilon is None:
        return {}
    from stirred.mechanisms.swapping.permutation import PermutationSwap
    from stirred.spec.exact import loss
    from stirred.spec.problems import placed
    from stirred.spec.swap_budget import psa_rates_for, rate_not_above

    largest = prepared.plan.strata.largest_live
    size = largest.records if largest else 0
    with placed("--epsilon"):
        wanted = loss(epsilon, where="")
        if not isinstance(prepared.mechanism, PermutationSwap):
            rate = prepared.mechanism.rate_reaching(prepared.plan, wanted)
            return {"target_epsilon": epsilon, "target_rates": [float(rate)], "usable_rates": [str(rate)]}
        rates = psa_rates_for(wanted, largest_stratum=size, bound="sharp")
        usable = [str(rate_not_above(wanted, largest_stratum=size, high=high, bound="sharp")) for high in (False, True)]
    return {"target_epsilon": epsilon, "target_rates": [float(rates.low), float(rates.high)], "usable_rates": usable}


def _target_text(target: dict[str, Any]) -> str:
    reached = ", or at ".join(f"{100 * rate:.6g}%" for rate in target["target_rates"])
    return f"epsilon {target['target_epsilon']} is reached at rate {reached}"
