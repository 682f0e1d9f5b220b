"""How a bundle was made: the mechanism as its manifest states it, or as far as the public files show it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from pydantic import BaseModel, ConfigDict

from stirred import __version__
from stirred.mechanisms.swapping.family import FAMILY, swap_named
from stirred.mechanisms.swapping.response_swap import RESPONSE_COLUMNS
from stirred.mechanisms.swapping.swap import Swap
from stirred.spec.budget import Derived
from stirred.spec.family_budget import mallows_epsilon
from stirred.spec.given_numbers import probability
from stirred.spec.invariant import Margin
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification

# Rates of single strata become rules, and every rule is held against every stratum.
_MOST_RULES: Final = 1_000
_Setting = str | int | float | None


_SETTINGS: Final = {
    *("rate", "epsilon", "redraw_law", "rates", "fine_match", "fine_rate", "imputed", "respond", "values", "change"),
    *("noise_epsilon", "noise", "distances", "weights"),
}


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Data(_Section):
    households: str
    name: str | None = None


class _Mechanism(_Section):
    name: str
    match: list[str]
    swap: list[str]
    hold: list[str] | None
    rate: _Setting
    epsilon: _Setting
    redraw_law: str | dict[str, str | int | float] | None
    rates: list[dict[str, str | int | float | bool]]
    fine_match: list[str] = []
    fine_rate: _Setting = None
    imputed: str | None = None
    distances: list[str] | dict[str, dict[str, _Setting]] | None = None
    weights: dict[str, dict[str, _Setting]] | None = None
    noise_epsilon: _Setting = None
    noise: str | None = None
    respond: str | None = None
    values: list[str | int | bool] = []
    change: _Setting = None
    unit: str
    settings_from: str | None


class _Table(_Section):
    variables: list[str]
    level: str | None = None


class _Plan(_Section):
    data: _Data
    mechanism: _Mechanism
    tables: list[_Table] = []

    @property
    def noisy_tables(self) -> dict[str, Any]:
        """Return the tables as a setting of the mechanism that makes nothing else."""
        if self.mechanism.name != "noisy-swap":
            return {}
        return {"tables": [[*table.variables, *([table.level] if table.level else [])] for table in self.tables]}


class _Manifest(_Section):
    stirred: str
    plan: _Plan
    ledger: dict[str, str | int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """A mechanism and the file it was run on, as far as a bundle tells.

    ``source`` is how the plan calls the household file and ``called`` the name it gives the data, if any. ``source``
    is None if only the public files are known, and then the mechanism is one with the same strata and budget, of
    which the words may differ. ``same_version`` says whether the bundle was made by this version of stirred, so that
    every sentence in it can be compared.
    """

    mechanism: Swap
    source: str | None = None
    called: str = ""
    same_version: bool = False


def stated_in(manifest: Mapping[str, Any]) -> Making | None:
    """Return how the plan in a manifest says the bundle was made, or None if it says nothing usable."""
    try:
        stated = _Manifest.model_validate(manifest)
        section = stated.plan.mechanism
        mechanism = swap_named(
            section.name,
            section.model_dump(include=_SETTINGS) | stated.plan.noisy_tables,
            match=section.match,
            swap=section.swap,
            hold=section.hold,
            unit=section.unit,
            settings_from=section.settings_from,
        )
    except (ValueError, StirredError):
        return None
    data, same = stated.plan.data, stated.stirred == __version__
    called = data.name or str((stated.ledger or {}).get("dataset", ""))
    return Making(mechanism=mechanism, source=data.households, called=called, same_version=same)


def shown_by(specification: Specification, strata: pl.DataFrame) -> Making | None:
    """Return a mechanism with the strata and the budget that public files show, or None if they do not tell."""
    if not {"stratum_rate", "stratum_law"} <= {*strata.columns}:
        return None
    match = [name for name in strata.columns if not name.startswith("stratum_")]
    laws = strata["stratum_law"].unique().to_list()
    try:
        settings = _settings(specification, strata, match, str(laws[0]))
        swap = _swapped(specification, strata, match)
        if len(laws) != 1 or settings is None or not swap:
            return None
        mechanism = swap_named(
            f"{laws[0]}-swap",
            settings,
            match=match,
            swap=swap,
            unit=specification.input_premetric.unit,
            settings_from=specification.settings_from,
        )
    except (StirredError, ZeroDivisionError, ValueError):
        return None
    return Making(mechanism=mechanism)


def _swapped(specification: Specification, strata: pl.DataFrame, match: Sequence[str]) -> list[str]:
    """Return the swapped variables: those of the first of two tables of invariants, and that of a response."""
    margins = [margin for margin in specification.multiverse.invariants if isinstance(margin, Margin)]
    responded = _response(strata)
    on_swap = responded.get("on") == "swap"
    if len(margins) == 1 and responded:
        crossed = [] if on_swap else margins
    else:
        crossed = margins[:1] if len(margins) == 2 else []
    names = [name for margin in crossed for name in margin.variables if name not in match]
    return [*names, responded["response"]] if on_swap else names


def _response(strata: pl.DataFrame) -> dict[str, str]:
    """Return the settings of a randomised response before the swap, empty if there was none."""
    names = ("response", "on", "change", "values")
    columns = [RESPONSE_COLUMNS[name] for name in names]
    if not {*columns} <= {*strata.columns} or not strata.height:
        return {}
    rows = strata.select(pl.col(columns).cast(pl.String)).unique().rows()
    return dict(zip(names, rows[0], strict=True)) if len(rows) == 1 else {}


def _settings(
    specification: Specification, strata: pl.DataFrame, match: list[str], member: str
) -> dict[str, Any] | None:
    rates = Counter(strata["stratum_rate"].cast(pl.String).to_list())
    usual = rates.most_common(1)[0][0]
    if f"{member}-swap" not in FAMILY or (len(rates) > 1 and member not in ("permutation", "response")):
        return None
    response = _response(strata) if member == "response" else {}
    own = (
        {"respond": response["response"], "change": response["change"], "values": json.loads(response["values"])}
        if response
        else {}
    )
    if member == "mallows":  # the weight of a moved record stands in the place of a rate
        return {"epsilon": mallows_epsilon(probability(usual, where="stratum_rate"))}
    if member == "conditioned":
        policy = specification.budget.policy
        formula = policy.formula if isinstance(policy, Derived) else ""
        laws = [law for law in ("uniform", "proportional") if f"the law is {law}" in formula]
        return {"rate": usual, "redraw_law": laws[0]} if laws else None
    others = strata.filter(pl.col("stratum_rate").cast(pl.String).ne_missing(pl.lit(usual))).select(
        *match, pl.col("stratum_rate").alias("rate")
    )
    if others.height > _MOST_RULES or (others.height and "rate" in match):
        return None
    return {"rate": usual, **own, **({"rates": others.to_dicts()} if others.height else {})}
