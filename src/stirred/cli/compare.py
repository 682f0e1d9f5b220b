"""`stirred compare`: swaps side by side on the custodian's own file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, Place, arg, opt
from stirred.cli.output import bullets, emit, emit_json, exactly, heading, paragraph, picked, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stirred.data.microdata import Microdata
    from stirred.mechanisms.protocol import Mechanism
    from stirred.utility.comparison import Compared

_OF_AREA = ("area", "records", "share_changed")


def compare(
    plans: Annotated[list[Path], arg("PLAN.toml...", "Plans for one and the same file.")],
    family: Annotated[bool, opt("--family", "With one plan: all members of the swapping family beside it.")] = False,
    equal: Annotated[
        str, opt("--equal NAME", "With --family: at an equal share 'changed', or an equal 'epsilon'.")
    ] = "changed",
    expect_from: Annotated[
        str, opt("--expect-from FILE", "Error of the plan's tables from: margins, or this-data (confidential).")
    ] = "margins",
    out: Annotated[Place, opt("--out FILE", "Also write a page with a plot; must not exist.")] = None,
    json: Json = False,
) -> None:
    """Compare swaps on a file: promise, cost, and whom each changes.

    Nothing random happens.
    """
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare
    from stirred.report.comparison import block_by_block, comparison_page, rests_on, rows
    from stirred.utility.comparison import compare_mechanisms

    if family == (len(plans) > 1):
        what = "one plan is compared with its family, or several with each other"
        raise bad_plan(what, where="stirred compare", remedy="give one plan and --family, or two plans and more")
    if expect_from not in ("margins", "this-data"):
        raise bad_plan(f"'{expect_from}' is not known", where="--expect-from", remedy="write margins or this-data")
    if out is not None and out.exists():
        raise bad_plan("something is already there", where=str(out), remedy="choose a new file")
    prepared = [prepare(read_plan(path)) for path in plans]
    if len({tuple(sorted(each.inputs.items())) for each in prepared}) > 1:
        raise bad_plan(
            "the plans are for different files", where="stirred compare", remedy="compare plans for the same files"
        )
    first = prepared[0]
    swaps = (
        _relatives(first.data, first.mechanism, equal=equal)
        if family
        else [(path.stem, each.mechanism) for path, each in zip(plans, prepared, strict=True)]
    )
    wanted = list(dict.fromkeys(table.variables for each in prepared for table in each.tables))
    found = compare_mechanisms(first.data, swaps, tables=wanted, source=expect_from)
    header, lines = rows(found)
    if out is not None:
        title = f"Swaps of {first.data.name} side by side"
        out.write_text(comparison_page(title, found, source=expect_from), encoding="utf-8")
    if json:
        emit_json({"equal": equal if family else None, "swaps": [_facts(each) for each in found]})
        return
    how = {"changed": "at an equal share of changed records", "epsilon": "at an equal loss"}[equal]
    heading(f"Swaps of {first.data.name}, {how if family else 'as planned'}")
    table(header, lines)
    paragraph(rests_on(found, source=expect_from))
    if len(found) > 1:
        bullets(block_by_block(found))
    if out is not None:
        emit(f"page  {out}")


def _relatives(data: Microdata, mechanism: Mechanism, *, equal: str) -> Sequence[tuple[str, Mechanism]]:
    """Return the family of a plan's mechanism, where it has one."""
    adviser = mechanism.adviser()
    if adviser is None:
        what, remedy = "this mechanism has no family", "compare plans with each other"
        raise bad_plan(what, where="--family", remedy=remedy)
    return adviser.relatives(data, mechanism, equal=equal)


def _facts(each: Compared) -> dict[str, Any]:
    from stirred.spec.document import to_document

    smallest = each.smallest_area
    return {
        "name": each.name,
        "setting": each.setting,
        **exactly(epsilon=each.epsilon),
        "share_moved": each.plan.moved,
        "share_changed": each.changed,
        "smallest_area": None if smallest is None else dict(zip(_OF_AREA, smallest, strict=True)),
        "areas": None if each.areas is None else each.areas.to_dicts(),
        "expected_error": [
            {"table": name, **picked(error, "source", "mean_absolute_error", "mean_absolute_percentage_error")}
            for name, error in each.errors
        ],
        "specification": to_document(each.plan.specification),
    }
