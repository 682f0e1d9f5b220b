"""Budgets and mechanisms for the toy census."""

from __future__ import annotations

import tomllib
from typing import Any

import polars as pl

from stirred.data.microdata import as_microdata
from stirred.mechanisms.protocol import ReleasedTable
from stirred.mechanisms.tables.budgets import REFERENCE
from stirred.mechanisms.tables.phsafe import PHSafe
from stirred.mechanisms.tables.query import Integers, Query, TableAnswers
from stirred.mechanisms.tables.safetab import SafeTabH, SafeTabP
from stirred.mechanisms.tables.tabulator import Tabulator
from tests.mechanisms.tables.toy import BLOCKS, ITERATIONS, RACES, THRESHOLDS


def shipped(name: str) -> dict[str, Any]:
    """Return a budget that is brought along, as plain data."""
    return tomllib.loads(REFERENCE.joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def toy_budget(name: str) -> dict[str, Any]:
    """Return the budget of 2020 with thresholds that ten persons can reach."""
    budget = shipped(name)
    for part in budget["parts"]:
        part["thresholds"] = [5] if part.get("table") == "t4" else THRESHOLDS
    return budget


def toy_p(**settings: Any) -> SafeTabP:
    """Return SafeTab-P on the toy census."""
    given = {"blocks": BLOCKS, "iterations": ITERATIONS, "races": RACES, "budget": toy_budget("us-2020-p")}
    return SafeTabP(**{**given, **settings})


def every_total() -> pl.DataFrame:
    """Return a published total for every group of the toy, small and large ones."""
    rows = []
    for kind, region in (("USA", "1"), ("STATE", "S"), ("COUNTY", "SC"), ("TRACT", "SC1"), ("PLACE", "SP")):
        own = ITERATIONS if kind in ("USA", "STATE") else ITERATIONS.filter(pl.col("detailed_only") == "false")
        rows += [(region, kind, code, str(number)) for number, code in enumerate(own["iteration_code"])]
    return pl.DataFrame(rows, schema=["region_id", "region_type", "iteration_code", "count"], orient="row")


def toy_h(**settings: Any) -> SafeTabH:
    """Return SafeTab-H on the toy census."""
    given = {"blocks": BLOCKS, "iterations": ITERATIONS, "races": RACES, "budget": toy_budget("us-2020-h")}
    return SafeTabH(**{**given, "totals": published(every_total()), **settings})


def published(totals: pl.DataFrame) -> ReleasedTable:
    """Return totals as those of a release by SafeTab-P."""
    return ReleasedTable("t1.csv", "0" * 64, totals, title="toy", promise=toy_p().specification(name="toy"))


def one_table(at_most: int, *, name: str = "PH1n", rho: str = "1/2") -> PHSafe:
    """Return PHSafe with one table for everybody in the nation, and at most so many persons of a household."""
    budget = shipped("us-2020-phsafe")
    table = {**budget["tables"][name], "groups": ["ALL"], "rho": "only"}
    if at_most:
        table["at_most"] = at_most
    budget |= {"tables": {name: table}, "ratios": {}, "rho": {"only": {"nation": {"ALL": rho}}}}
    return PHSafe(states=["S"], budget=budget)


class TrueAnswers(TableAnswers):
    """The true numbers as answers."""

    def __call__(self, query: Query, true: Integers, **more: Any) -> Integers:
        return true


def without_noise(mechanism: Tabulator, data: Any) -> dict[str, pl.DataFrame]:
    """Return the tables with noise of 0."""
    return {**mechanism.answered(as_microdata(data), None, TrueAnswers(), lambda stage, done, total: None)}


def cells(table: pl.DataFrame, key: str = "iteration_code", **where: str) -> dict[str, int]:
    """Return counts by one column, of the rows with these values."""
    rows = table.filter(pl.col(name) == value for name, value in where.items())
    return dict(zip(rows[key], rows["count"], strict=True))
