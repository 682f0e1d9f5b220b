"""`stirred unswap`: a published table without the bias that swapping put into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, arg, opt
from stirred.cli.output import bullets, emit, emit_json, facts

if TYPE_CHECKING:
    from stirred.inference.unswap import CorrectedTable


def unswap(
    table: Annotated[Path, arg("TABLE.csv", "A published table in long form: variables and count.")],
    bundle: Annotated[Path, opt("--bundle FOLDER", "The bundle it belongs to, or its public folder.")],
    out: Annotated[Path, opt("--out FILE", "The corrected table: CSV or Parquet.")],
    project: Annotated[
        bool, opt("--project", "Add the nearest table that the margins allow, without negative cells.")
    ] = False,
    level: Annotated[float, opt("--level NUMBER", "Of the confidence intervals.")] = 0.95,
    json: Json = False,
) -> None:
    """Correct a table for swapping, from public files alone.

    Gives unbiased estimates, standard errors and intervals.
    """
    from stirred.data.frames import read_frame, write_frame
    from stirred.data.place import file_at
    from stirred.inference.unswap import correct

    found = correct(read_frame(table), bundle, level=level, project=project, where=str(table))
    _check_out(out, table=table, bundle=bundle)
    with file_at(out, private=False) as half:
        write_frame(found.table, half)
    if json:
        emit_json({"out": str(out), **found.values})
        return
    _show(found, out)


def _check_out(out: Path, *, table: Path, bundle: Path) -> None:
    place, whole = out.resolve(), bundle.resolve()
    if whole.name == "public" and (whole.parent / "manifest.json").exists():
        whole = whole.parent
    if place == table.resolve() or place.is_relative_to(whole):
        what = "a corrected table must not replace or join what was published"
        raise bad_plan(what, where=f"--out {out}", remedy="name a file outside the bundle")
    if out.suffix not in (".csv", ".parquet"):
        raise bad_plan(
            f"{out.suffix or 'no ending'} is not a kind of table", where=f"--out {out}", remedy="write .csv or .parquet"
        )
    if out.exists():
        raise bad_plan("this file exists already", where=f"--out {out}", remedy="choose another name, or remove it")
    if not out.parent.is_dir():
        raise bad_plan("its folder does not exist", where=f"--out {out}", remedy=f"make {out.parent} first")


_AGREEING = "the counts that agree with the estimate, within what the margins allow"


def _show(found: CorrectedTable, out: Path) -> None:
    from stirred.data.problems import number
    from stirred.spec.number_text import percent

    rows = [("table", f"{' x '.join(found.variables)}, {number(found.table.height, 'cell')}")]
    if not found.exact:
        rows += [
            ("corrected", f"the correction moves {100 * found.moved:.1f}% of the table's total to other cells"),
            ("intervals", f"{percent(found.level, digits=6)}: {_AGREEING}"),
        ]
    facts([*rows, ("written", str(out))])
    if found.notes:
        emit()
        bullets(found.notes)
