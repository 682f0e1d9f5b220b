"""Make the state, run every plan in order, and write the page. Run by `stirred demo census-2020`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl

from stirred.release.ledger import Ledger, Request
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.run import run

from .accuracy import compared
from .page import Accounts, written
from .state import HOUSEHOLDS, files

PLANS = Path(__file__).with_name("plans")
DATASET = "the synthetic state"
UNSPECIFIED = "no specification is published for population estimates and special tabulations"
Say = Callable[[str, int, int], None]


def main(out: Path, *, households: int = HOUSEHOLDS, progress: Say | None = None) -> Path:
    """Run the whole demonstration in a new folder and return its page."""
    plans = sorted(PLANS.glob("*.toml"))
    steps = len(plans) + 3

    def say(what: str, done: int) -> None:
        if progress is not None:
            progress(what, done, steps)

    say("make the state", 0)
    made = files(households=households)
    out.mkdir(parents=True)
    try:
        return _made_in(out, made, plans, say)
    except BaseException:  # everybody in it is invented, so nothing is lost; a folder half-way would only be in the way
        shutil.rmtree(out)
        raise


def _made_in(out: Path, made: dict[str, pl.DataFrame], plans: list[Path], say: Callable[[str, int], None]) -> Path:
    """Write the files, run the plans and write the page, in a folder that is there."""
    steps = len(plans) + 3
    for name, frame in made.items():
        if name.endswith(".csv"):
            frame.write_csv(out / name)
        else:
            frame.write_parquet(out / name)
    for name in ("census", "swapping"):
        Ledger.create(out / f"{name}.ledger", dataset=DATASET)
    for number, plan in enumerate(plans, start=1):
        say(f"release {plan.stem}", number)
        shutil.copy(plan, out / plan.name)
        run(prepare(read_plan(out / plan.name)))
    say("estimate and compare", steps - 2)
    census = Ledger.open(out / "census.ledger")
    census.add(Request(mechanism="population estimates", unspecified=UNSPECIFIED))
    tables = compared(out)
    say("write the page", steps - 1)
    report = out / "report.html"
    accounts = Accounts(census=census, swapping=Ledger.open(out / "swapping.ledger"), compared=tables)
    report.write_text(written(accounts), encoding="utf-8")
    say("done", steps)
    return report
