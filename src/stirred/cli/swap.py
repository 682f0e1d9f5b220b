"""`stirred swap`, `stirred plan` and `stirred release`: from a file, or a plan, to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph, say
from stirred.cli.progress import shown_progress

if TYPE_CHECKING:
    from stirred.release.plan_file import Planned
    from stirred.release.run import Prepared

File = Annotated[Path, typer.Argument(metavar="FILE", help="The household file: CSV or Parquet.")]
Match = Annotated[list[str] | None, typer.Option("--match", help="Swap only between records equal on this variable; repeat, or separate by commas.")]  # fmt: skip  # noqa: E501
Swap = Annotated[list[str] | None, typer.Option("--swap", help="Variable that is exchanged, such as the geography; repeat, or separate by commas.")]  # fmt: skip  # noqa: E501
Hold = Annotated[list[str] | None, typer.Option("--hold", help="Other variables to release (default: all); unnamed ones are dropped.")]  # fmt: skip  # noqa: E501
Rate = Annotated[str | None, typer.Option("--rate", help="Swap rate, exactly: 1/20, 0.05 or 5%.")]
Id = Annotated[list[str] | None, typer.Option("--id", help="Identifier column: never released.")]
Persons = Annotated[Path | None, typer.Option("--persons", help="File of the persons in the households.")]
Hid = Annotated[str | None, typer.Option("--hid", help="Column linking persons to households; re-issued on release.")]
Table = Annotated[
    list[str] | None, typer.Option("--table", help="Table to publish, such as 'county x tenure'; repeat.")
]
Unit = Annotated[str, typer.Option("--unit", help="What a record is.")]
Format = Annotated[str, typer.Option("--format", help="Of the released data: parquet or csv.")]
Epsilon = Annotated[str | None, typer.Option("--epsilon", help="Show which rates would reach this loss.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")]
Seed = Annotated[
    str | None, typer.Option("--seed", help="FOR TESTS ONLY: reproducible randomness; the bundle is marked.")
]


def swap(
    file: File,
    match: Match = None,
    swap: Swap = None,
    rate: Rate = None,
    hold: Hold = None,
    id: Id = None,
    persons: Persons = None,
    hid: Hid = None,
    table: Table = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the bundle; must not exist.")] = None,
    unit: Unit = "household",
    format_: Format = "parquet",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan; nothing random happens.")] = False,
    epsilon: Epsilon = None,
    seed: Seed = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Swap a household file and write the bundle: data, tables, specification, checks, report."""
    from stirred.release.run import prepare

    place = out if out is not None else Path("not-written") if dry_run else None
    planned = _from_options(file, match, swap, rate, hold, id, persons, hid, table, place, unit, format_)
    prepared = prepare(planned)
    if dry_run:
        _show_plan(prepared, epsilon=epsilon, as_json=json)
        return
    _run(prepared, seed=seed, quiet=quiet, as_json=json)


def plan(
    file: Annotated[Path, typer.Argument(metavar="PLAN.toml|FILE", help="A plan, or a household file with options.")],
    match: Match = None,
    swap: Swap = None,
    rate: Rate = None,
    hold: Hold = None,
    id: Id = None,
    persons: Persons = None,
    hid: Hid = None,
    unit: Unit = "household",
    epsilon: Epsilon = None,
    json: Json = False,
) -> None:
    """Show what a release would promise and fix: strata, loss, invariants. Nothing random happens."""
    from stirred.release.plan_file import read_plan
    from stirred.release.run import prepare

    if file.suffix == ".toml":
        planned = read_plan(file)
    else:
        nowhere = Path("not-written")
        planned = _from_options(file, match, swap, rate, hold, id, persons, hid, None, nowhere, unit, "parquet")
    _show_plan(prepare(planned), epsilon=epsilon, as_json=json)


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


def _names(values: list[str] | None) -> list[str]:
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def _from_options(
    file: Path,
    match: list[str] | None,
    swap: list[str] | None,
    rate: str | None,
    hold: list[str] | None,
    id: list[str] | None,
    persons: Path | None,
    hid: str | None,
    table: list[str] | None,
    out: Path | None,
    unit: str,
    format_: str,
) -> Planned:
    from stirred.data.problems import PlanError
    from stirred.release.plan_file import planned
    from stirred.release.tables import parse_table
    from stirred.spec.problems import Problem

    needed = {"--swap": swap, "--rate": rate, "--out": out}
    missing = [name for name, value in needed.items() if not value]
    if missing:
        what = "is needed"
        raise PlanError(
            Problem(what=what, where=name, remedy="see `stirred swap --help`, or write a plan.toml") for name in missing
        )
    content: dict[str, Any] = {
        "data": {"households": str(file), "id": _names(id)},
        "mechanism": {"match": _names(match), "swap": _names(swap), "rate": rate, "unit": unit},
        "tables": [{"variables": parse_table(text)[1]} for text in table or ()],
        "release": {"out": str(out), "format": format_},
    }
    if hold is not None:
        content["mechanism"]["hold"] = _names(hold)
    if persons is not None:
        content["data"]["persons"] = str(persons)
    if hid is not None:
        content["data"]["hid"] = hid
    return planned(content, source="command line", folder=Path())


def _run(prepared: Prepared, *, seed: str | None, quiet: bool, as_json: bool) -> None:
    from stirred.randomness.entropy import Entropy
    from stirred.release.run import run

    entropy = Entropy.from_os() if seed is None else Entropy.from_seed(seed)
    with shown_progress(quiet=quiet or as_json) as progress:
        out = run(prepared, entropy=entropy, progress=progress)
    specification = prepared.plan.specification
    if as_json:
        emit_json(
            {
                "bundle": str(out),
                "report": str(out / "public" / "report.html"),
                "specification": str(out / "public" / "specification.json"),
                "notation": specification.notation,
                **_numbers(prepared),
                "seeded": entropy.seeded,
            }
        )
        return
    _five(prepared)
    emit()
    facts([("bundle", str(out)), ("report", str(out / "public" / "report.html"))])
    if entropy.seeded:
        say("This is a test run with a seed: nothing of it may be published.")


def _numbers(prepared: Prepared) -> dict[str, Any]:
    from stirred.spec.document import number_out

    strata, epsilon = prepared.plan.strata, prepared.plan.epsilon
    return {
        "epsilon": number_out(epsilon),
        "epsilon_exact": str(epsilon),
        "records": prepared.data.households.height,
        "strata": len(strata.table),
        "live_strata": len(strata.live),
        "largest_live_stratum": strata.largest_live.records if strata.largest_live else 0,
        "expected_share_moved": strata.moved,
    }


def _five(prepared: Prepared) -> None:
    from stirred.spec.explain import explain

    words = explain(prepared.plan.specification)
    heading(prepared.plan.specification.notation)
    emit()
    emit("NOT protected, because it is published exactly:")
    bullets(words.not_protected)
    emit()
    facts([(answer.question, answer.answer) for answer in words.answers])


def _show_plan(prepared: Prepared, *, epsilon: str | None, as_json: bool) -> None:
    from fractions import Fraction

    strata = prepared.plan.strata
    rates = [Fraction(n, 100) for n in (1, 5, 10, 20, 50)]
    curve = [(rate, strata.epsilon(rate)) for rate in rates]
    target = _target(prepared, epsilon)
    if as_json:
        from stirred.spec.document import number_out, to_document

        emit_json(
            {
                "specification": to_document(prepared.plan.specification),
                **_numbers(prepared),
                "largest_strata": [
                    {"match": dict(zip(strata.match, map(str, s.values), strict=True)), "records": s.records,
                     "live": s.live, "rate": str(s.rate), "expected_share_moved": s.moved}
                    for s in sorted(strata.table, key=lambda s: -s.records)[:50]
                ],
                "epsilon_by_rate": [
                    {"rate": str(r), "epsilon": number_out(e), "epsilon_exact": str(e)} for r, e in curve
                ],
                "dropped": list(prepared.plan.dropped),
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
            ("by rate", "; ".join(f"{100 * float(rate):.0f}%: epsilon {e.shown()}" for rate, e in curve)),
            *([("target", _target_text(target))] if target else []),
            *([("dropped", ", ".join(prepared.plan.dropped))] if prepared.plan.dropped else []),
        ]
    )
    emit()
    paragraph("Nothing random has happened and nothing was written.")


def _target(prepared: Prepared, epsilon: str | None) -> dict[str, Any]:
    """Return both rates for a target loss, as exact expressions and as rates one could use."""
    if epsilon is None:
        return {}
    from stirred.spec.exact import loss
    from stirred.spec.problems import placed
    from stirred.spec.swap_budget import psa_rates_for, rate_not_above

    largest = prepared.plan.strata.largest_live
    size = largest.records if largest else 0
    with placed("--epsilon"):
        wanted = loss(epsilon, where="")
        rates = psa_rates_for(wanted, largest_stratum=size)
        usable = [str(rate_not_above(wanted, largest_stratum=size, high=high)) for high in (False, True)]
    return {"target_epsilon": epsilon, "target_rates": [float(rates.low), float(rates.high)], "usable_rates": usable}


def _target_text(target: dict[str, Any]) -> str:
    low, high = target["target_rates"]
    return f"epsilon {target['target_epsilon']} is reached at rate {100 * low:.4g}%, or at {100 * high:.6g}%"
