"""public/README.md: what the folder holds and what its reader may conclude."""

from __future__ import annotations

from collections.abc import Sequence

from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.release.tables import Table
from stirred.report.swap import NOTHING_SWAPPED, correction_in_words, nothing_swapped


def exactness(table: Table, mechanism: Swap, plan: SwapPlan, *, persons: Sequence[str]) -> str:
    """Say whether a table is one that swapping cannot change.

    Tables of match and swap variables, and tables of held variables, are exact; those that cross a
    swap variable with a held one that is not matched are disturbed (Proposition 4).
    """
    variables = set(table.variables)
    held = {*plan.hold, *persons}
    if isinstance(mechanism, NoisySwap):
        return "with noise, after swapping" if mechanism.crosses(table.variables) and mechanism.swaps else "with noise"
    if (
        nothing_swapped(plan)
        or variables <= held
        or (variables <= {*mechanism.match, *mechanism.swap} and not table.of_persons)
    ):
        return "exact"
    return "disturbed by swapping"


def public_readme(
    title: str,
    mechanism: Swap,
    plan: SwapPlan,
    tables: Sequence[Table],
    *,
    persons: Sequence[str],
    format_: str,
    purpose: str,
    in_parts: Sequence[str] = (),
) -> str:
    """Return the page for a reader who has only the public folder; ``in_parts`` names its files that are folders."""
    lines = [f"# {title}", "", mechanism.in_words, ""]
    if purpose:
        lines += [f"Purpose: {purpose}", ""]
    lines += [
        "## What you may conclude",
        "",
        *_conclusions(mechanism, plan),
        "- What is promised about confidentiality, and relative to what, is in specification.md and report.html.",
        *([f"- {plan.also_promised}"] if plan.also_promised else []),
        "",
        "## Files",
        "",
        f"- `data.{format_}`: the records, in an order that tells nothing",
    ]
    if plan.universe.persons:
        lines.append(
            f"- `persons.{format_}`: the persons in them; the household id is new and links to `data.{format_}`"
        )
    for table in tables:
        lines.append(
            f"- `tables/{table.name}.csv`: {table.title}, {exactness(table, mechanism, plan, persons=persons)}"
        )
    lines += [
        "- `invariants.parquet`: the two tables published exactly; column `table` says which",
        "- `strata.parquet`: match values, records, whether there is anything to swap, rate, expected share moved"
        + (", and what the second stage matched on and at which rate" if plan.strata.settings else ""),
        "- `specification.json`, `specification.md`: the promise; `report.html`: the same with figures",
    ]
    if in_parts:
        names = ", ".join(f"`{name}`" for name in in_parts)
        lines += [
            "",
            f"Long tables are folders of parts ({names}): read all files of such a folder, `part-00000` and on, in the "
            "order of their names, as one table. All have the same columns.",
        ]
    return "\n".join(lines) + "\n"


def _conclusions(mechanism: Swap, plan: SwapPlan) -> list[str]:
    if nothing_swapped(plan):
        return [f"- {NOTHING_SWAPPED}"]
    swapped, share = ", ".join(mechanism.swap), 100 * plan.strata.moved
    held = [name for name in plan.hold if name not in mechanism.match]
    undo = correction_in_words(mechanism)
    return [
        f"- Counts of {' x '.join([*mechanism.match, *mechanism.swap])}, and any sums of them, are exact.",
        f"- Counts of anything held ({', '.join(held) or 'nothing else'}), without {swapped}, are exact.",
        f"- Counts that cross {swapped} with held variables are disturbed: about {share:.1f}% of records carry another "
        f"record's {swapped}. Associations between {swapped} and held variables are weakened.",
        *([f"- {undo}"] if undo else []),
    ]
