"""Mechanisms side by side on one file: what each promises, what each costs, whom it changes.

Losses, shares and the errors from the margins are functions of what is published exactly, so that looking at them is no
disclosure; errors from the interior are marked by their source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stirred.data.microdata import Microdata, as_microdata
from stirred.mechanisms.protocol import ExpectedError, Mechanism, Plan
from stirred.spec.exact import Exact

TitledErrors = tuple[tuple[str, ExpectedError], ...]


def share_changed(areas: pl.DataFrame) -> float:
    """Return the share of all records that change, from those of the areas (``Mechanism.areas_changed``)."""
    return float((areas["records"] * areas["share_changed"]).sum()) / float(areas["records"].sum())


def smallest_area(areas: pl.DataFrame) -> tuple[str, int, float]:
    """Return the area with the fewest records, how many it has, and which share of them changes."""
    row = areas.sort("records").row(0)
    return " ".join(str(value) for value in row[:-2]), int(row[-2]), float(row[-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MechanismComparison:
    """One mechanism on the file; without ``areas`` whom it changes is protected."""

    name: str
    mechanism: Mechanism
    plan: Plan
    areas: pl.DataFrame | None
    errors: TitledErrors = ()

    @property
    def epsilon(self) -> Exact:
        """Return its loss."""
        return self.plan.epsilon

    @property
    def setting(self) -> str:
        """Return its settings in a few words."""
        return self.mechanism.setting_in_words(self.epsilon)

    @property
    def changed(self) -> float | None:
        """Return the share of all records that change: what a table can notice."""
        return None if self.areas is None else share_changed(self.areas)

    @property
    def smallest_area(self) -> tuple[str, int, float] | None:
        """Return the area with the fewest records, how many it has, and which share of them changes."""
        return None if self.areas is None else smallest_area(self.areas)


def compare_mechanisms(
    data: Any,
    mechanisms: Sequence[tuple[str, Mechanism]],
    *,
    errors: Callable[[Mechanism, Microdata], TitledErrors] | None = None,
    plans: Sequence[Plan] = (),
) -> list[MechanismComparison]:
    """Return mechanisms side by side.

    ``errors`` gives tables by title with the error to expect, such as ``inference.swap_moments.expected_errors``.
    ``plans`` are those of the mechanisms, if they were made already: with what was prepared, and with the geography of
    a codebook.

    >>> from stirred import PermutationSwap
    >>> homes = pl.DataFrame({"size": [1] * 6, "county": list("AAABBC"), "tenure": list("oorror")})
    >>> one = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    >>> [(each.name, each.setting, each.epsilon.shown()) for each in compare_mechanisms(homes, [("ours", one)])]
    [('ours', 'rate 50%', '1.70')]
    """
    found, records = [], as_microdata(data)
    for number, (name, mechanism) in enumerate(mechanisms):
        plan = plans[number] if plans else mechanism.plan(data, doubts=False)
        own = () if errors is None else errors(mechanism, records)
        areas = mechanism.areas_changed(plan)
        found.append(MechanismComparison(name=name, mechanism=mechanism, plan=plan, areas=areas, errors=own))
    return found
