"""public/README.md: what the folder holds and what its reader may conclude."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stirred.mechanisms.swapping.response_swap import ResponseSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.release.tables import Table
from stirred.report.swap import NOTHING_SWAPPED, correction_in_words, nothing_swapped, published_as_they_are


def exactness(table: Table, mechanism: Swap, plan: SwapPlan, *, persons: Sequence[str]) -> str:
    """Say whether a table is one that swapping cannot change.

    Tables of match and swap variables, and tables of held variables, are exact; those that cross a
    swap variable with a held one that is not matched are disturbed (Proposition 4). So are all tables of a variable
    that got a randomised response (R14).
    """
    variables = set(table.variables)
    if plan.perturbed in variables:
        return "disturbed by the response and by swapping"
    held = {*plan.exact_hold, *persons}
    if (
        nothing_swapped(plan)
        or variables <= held
        or (variables <= {*mechanism.match, *plan.exact_swap} and not table.of_persons)
    ):
        return "exact"
    return "disturbed by swapping"


def public_readme(
    title: str,
    mechanism: Swap,
    plan: SwapPlan,
    tables: Mapping[Table, str],
    *,
    format_: str,
    purpose: str,
    in_parts: Sequence[str] = (),
) -> str:
    """Return the page for a reader who has only the public folder.

    ``tables`` says for each table how exact it is; ``in_parts`` names the files that are folders.
    """
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
    lines += [
        *(f"- `tables/{table.name}.csv`: {table.title}, {words}" for table, words in tables.items()),
        "- `invariants.parquet`: the tables published exactly; column `table` says which",
        "- `strata.parquet`: match values, records, whether there is anything to swap, rate, expected share moved"
        + ("" if plan.perturbed is None else f"; the response on {plan.perturbed}, its values and how often it changes")
        + ("; what the second stage matches on, and its rate" if mechanism.member == "two-stage" else ""),
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
    swapped, share = ", ".join(mechanism.swap), plan.strata.moved
    many = "records" if share is None else f"about {100 * share:.1f}% of records"
    held = [name for name in plan.exact_hold if name not in mechanism.match]
    undo = correction_in_words(mechanism)
    crossed = " x ".join([*mechanism.match, *plan.exact_swap])
    return [
        *([f"- Counts of {crossed}, and any sums of them, are exact."] if crossed else []),
        f"- Counts of anything held ({', '.join(held) or 'nothing else'}), without {swapped}, are exact.",
        *_of_the_response(mechanism, plan),
        f"- Counts that cross {swapped} with held variables are disturbed: {many} carry another "
        f"record's {swapped}. Associations between {swapped} and held variables are weakened.",
        *(f"- Published as it is: {item}." for item in published_as_they_are(plan, mechanism)),
        *([f"- {undo}"] if undo else []),
    ]


def _of_the_response(mechanism: Swap, plan: SwapPlan) -> list[str]:
    if plan.perturbed is None:
        return []
    assert isinstance(mechanism, ResponseSwap)
    return [
        f"- No count of {plan.perturbed} is exact: with probability {mechanism.change} a record's value was replaced "
        f"by another of its {len(mechanism.values)} declared values, each equally likely, before the swap."
    ]
