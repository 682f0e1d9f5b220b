"""The parts of a report that are about noise after a swap: its loss in each flavor, and how to read the tables."""

from __future__ import annotations

from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.noisy_plan import NoisyPlan
from stirred.mechanisms.swapping.swap_plan import SwapPlan
from stirred.report.page import paragraph, section, table


def reading_noise(mechanism: NoisySwap, plan: SwapPlan) -> list[str]:
    """Return what a reader of the tables must know, from public facts alone."""
    decay = mechanism.decay
    deviation = float(2 * decay / (1 - decay) ** 2) ** 0.5
    share = 100 * (plan.strata.moved or 0)
    return [
        f"Every count is that of the swapped file plus noise of mean 0 and standard deviation {deviation:.4g}, "
        "independent from cell to cell; a sum of k cells has noise of standard deviation "
        f"{deviation:.4g} times the root of k.",
        "Counts may be negative, and tables do not add up to each other. Cutting at 0, or forcing sums, would bias "
        "small counts; sums of many counts are right on average only as the counts stand.",
        f"About {share:.1f}% of records were counted with another record's {', '.join(mechanism.swap)}, which draws "
        "tables that cross it with held variables towards independence.",
    ]


def noise_section(mechanism: NoisySwap, plan: SwapPlan) -> str:
    """Return the section on the loss: one release, three flavors, and the noise alone."""
    assert isinstance(plan, NoisyPlan)
    held, crossed, both = plan.closer
    rows = [
        [str(plan.specification.multiverse.invariants[0]), plan.epsilon.shown(), "the promise of this release"],
        [f"moreover the {held.multiverse.invariants[0]}", held.budget.shown, "closer files only"],
        [f"moreover the {crossed.multiverse.invariants[0]}", crossed.budget.shown, "closer files only"],
        ["both of these", both.budget.shown, "closer files only"],
        ["noise without the swap, as in the first line", plan.noise_alone.shown(), "not what was done"],
    ]
    return section(
        "Noise and loss",
        paragraph(mechanism.in_words),
        table(["compared are files that agree on", "loss", "what it is"], rows),
        paragraph(plan.also_promised),
    )


def sizes_section(plan: SwapPlan, *, shown: int) -> str:
    """Return the strata by what is fixed of them, their size."""
    strata = plan.strata
    header = [*strata.match, "records", "rate", "expected share moved"]
    rows = [
        [*map(str, s.values), s.records, str(s.rate), f"{100 * (share or 0):.2f}%"]
        for s, share in strata.largest_first[:shown]
    ]
    more = f" The {shown} largest are shown." if len(strata.table) > shown else ""
    return section(
        "Strata", paragraph(f"{len(strata.table):,} of them.{more}"), table(header, rows, numbers=header[-2:])
    )
