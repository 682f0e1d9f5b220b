"""`stirred unswap`: a published table without the bias that swapping put into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.output import bullets, emit, emit_json, facts

if TYPE_CHECKING:
    from stirred.inference.unswap import Unswapped


def unswap(
    table: Annotated[
        Path, typer.Argument(metavar="TABLE.csv", help="A published table in long form: variables and count.")
    ],
    bundle: Annotated[
        Path, typer.Option("--bundle", metavar="FOLDER", help="The bundle it belongs to, or its public folder.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The corrected table: CSV or Parquet.")],
    project: Annotated[
        bool, typer.Option("--project", help="Add the nearest table that the margins allow, without negative cells.")
    ] = False,
    level: Annotated[float, typer.Option("--level", metavar="NUMBER", help="Of the confidence intervals.")] = 0.95,
    redraw_law: Annotated[
        Path | None,
        typer.Option(
            "--redraw-law",
            metavar="FILE",
            help="Declared law of a conditioned swap: a table of swap value, probability.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")] = False,
) -> None:
    """Correct a table for swapping, from public files alone.

    Gives unbiased estimates, standard errors and intervals.
    """
    from stirred.data.frames import read_frame, write_frame
    from stirred.inference.released import SwappedRelease
    from stirred.inference.unswap import unswap as correct

    release = SwappedRelease.read(bundle, redraw_law=redraw_law)
    _check_out(out, table=table, bundle=bundle)
    found = correct(read_frame(table), release, level=level, project=project, where=str(table))
    write_frame(found.table, out)
    if json:
        emit_json(_facts(found, out))
        return
    _show(found, out)


def _check_out(out: Path, *, table: Path, bundle: Path) -> None:
    from stirred.data.problems import bad_plan

    place, whole = out.resolve(), bundle.resolve()
    if whole.name == "public" and (whole.parent / "manifest.json").exists():
        whole = whole.parent
    if place == table.resolve() or place.is_relative_to(whole):
        raise bad_plan(
            "a corrected table must not replace or join what was published",
            where=f"--out {out}",
            remedy="name a file outside the bundle",
        )
    if out.suffix not in (".csv", ".parquet"):
        raise bad_plan(
            f"{out.suffix or 'no ending'} is not a kind of table", where=f"--out {out}", remedy="write .csv or .parquet"
        )
    if out.exists():
        raise bad_plan("this file exists already", where=f"--out {out}", remedy="choose another name, or remove it")
    if not out.parent.is_dir():
        raise bad_plan("its folder does not exist", where=f"--out {out}", remedy=f"make {out.parent} first")


def _facts(found: Unswapped, out: Path) -> dict[str, Any]:
    errors = found.table["standard_error"]
    return {
        "out": str(out),
        "variables": list(found.variables),
        "cells": found.table.height,
        "added": found.added,
        "swapped": found.swapped,
        "exact": found.exact,
        "level": found.level,
        "strata": found.strata,
        "strata_kept": found.strata_kept,
        "tolerance": found.tolerance,
        "moved": found.moved,
        "uninformative": found.uninformative,
        "negative": found.negative,
        "largest_standard_error": float(errors.max() or 0.0),  # type: ignore[arg-type]
        "projected": "projected" in found.table.columns,
        "notes": found.notes,
    }


def _show(found: Unswapped, out: Path) -> None:
    from stirred.data.problems import number

    rows = [("table", f"{' x '.join(found.variables)}, {number(found.table.height, 'cell')}")]
    if not found.exact:
        rows += [
            ("corrected", f"the correction moves {100 * found.moved:.1f}% of the table's total to other cells"),
            ("intervals", f"{100 * found.level:g}%, normal approximation, cut at what the margins allow"),
        ]
    facts([*rows, ("written", str(out))])
    if found.notes:
        emit()
        bullets(found.notes)
