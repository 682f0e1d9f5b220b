"""`stirred prepare`: what the [[prepare]] steps of a plan do to a file, before and after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stirred.cli.options import Json, arg, opt
from stirred.cli.output import emit_json, facts, paragraph, table

if TYPE_CHECKING:
    import polars as pl

_NOTE = (
    "Every step is a function of one record, declared in the plan: what the mechanism promises about the prepared file "
    "it promises about the file as it was. What is shown here comes from the confidential file: keep it inside."
)


def prepare(
    file: Annotated[Path, arg("FILE", "The file to prepare, in the place of the one that the plan names.")],
    plan: Annotated[Path, opt("--plan PLAN.toml", "The plan with the steps.")],
    json: Json = False,
) -> None:
    """Show what the [[prepare]] steps of a plan do to a file.

    Nothing is written. Exits with 2 where a step has no answer for a value.
    """
    from stirred.cli.swap_options import NOWHERE
    from stirred.release.plan_file import read_plan
    from stirred.release.reading import rehearsed

    done = rehearsed(read_plan(plan, out=Path(NOWHERE)), file)
    rows = [
        (each.step.called, each.column, each.step.words, each.changed, _values(each.before), _values(each.after))
        for each in done.changes
    ]
    names = ("step", "column", "what", "records_changed", "before", "after")
    if json:
        emit_json({"file": str(file), "steps": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    people = done.data.persons
    persons = [] if people is None else [("persons", f"{people.height:,}: {', '.join(people.columns)}")]
    homes = done.data.households
    facts([(f"{done.data.record}s", f"{homes.height:,}: {', '.join(homes.columns)}"), *persons])
    if rows:
        header = ("step", "column", "changed", "before", "after")
        table(header, [(row[0], row[1], f"{row[3]:,}", row[4] or "", row[5] or "dropped") for row in rows])
    paragraph(_NOTE if rows else f"{plan} has no steps: the mechanism sees the file as it is.")


def _values(column: pl.Series | None) -> str | None:
    """Return how many values a column has, and the first and last of them."""
    from stirred.data.natural import sorted_values

    if column is None:
        return None
    values = sorted_values(column.unique().drop_nulls())
    ends = "" if not len(values) else f", {values[0]}" if len(values) == 1 else f", {values[0]} ... {values[-1]}"
    missing = f", {column.null_count():,} missing" if column.null_count() else ""
    return f"{len(values):,} value{'' if len(values) == 1 else 's'}{ends}{missing}"
