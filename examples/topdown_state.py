"""TopDown on a small synthetic state: measurements, records and errors by level, beside the Bureau's way to solve.

Run by ``make demo-topdown``. Persons and housing units are made up, so that errors against the "truth" may be shown
here; a real release keeps them inside the agency. Schema and budget are those of the 2020 redistricting data.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import polars as pl

from stirred.data.synth.census import CensusPlan, write_census
from stirred.mechanisms.protocol import Bars
from stirred.release.ledger import Ledger
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.run import run
from stirred.report.charts import bars
from stirred.report.first_screen import five_answers
from stirred.report.page import page, paragraph, section, table
from stirred.spec.document import from_json

PLAN = """[data]
households = "census/households.parquet"
persons = "census/persons.parquet"
hid = "hid"

[[prepare]]
step = "band"
column = "age"
breaks = [0, 18]

[[prepare]]
step = "recode"
column = "age"
map = { "0-17" = "1", "18+" = "2" }

[[prepare]]
step = "recode"
column = "hispanic"
map = { 0 = "1", 1 = "2" }

[mechanism]
name = "topdown"
levels = ["state", "county", "tract", "block_group", "block"]
attributes = "pl94-persons"
columns = { hhgq = "gq_type", votingage = "age", cenrace = "race" }
budget = "us-2020-pl-persons"
totals = ["state"]
publish = ["measurements", "records"]
compare = ["bureau"]

[mechanism.facilities]
attribute = "hhgq"
column = "gq_type"
empty = ["0"]

[mechanism.units]
attributes = ["tenure"]
values = { tenure = ["0", "1", "2", "3", "4"] }
rho = "1/14"
totals = ["block"]

[[tables]]
variables = ["county", "hispanic"]

[[tables]]
variables = ["county", "tenure"]

[release]
out = "bundle"
ledger = "state.ledger"
purpose = "demonstration"
"""


def main() -> None:
    """Make the state, release it through its plan and a ledger, and write one report."""
    out, households = arguments()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    say("making a state up")
    write_census(out / "census", plan=CensusPlan(households=households, seed=1))
    (out / "plan.toml").write_text(PLAN, encoding="utf-8")
    Ledger.create(out / "state.ledger", dataset="households")
    bundle = run(prepare(read_plan(out / "plan.toml")), progress=told)
    rows = pl.read_parquet(bundle / "internal/accuracy_by_level.parquet")
    specification = from_json((bundle / "public/specification.json").read_text(encoding="utf-8"))
    body = [
        '<span class="stamp">demonstration on a synthetic file</span><h1>A small state, from the top down</h1>',
        errors(rows),
        five_answers(specification),
        by_size(rows),
    ]
    report = out / "report.html"
    report.write_text(page("A small state, from the top down", body), encoding="utf-8")
    say("")
    print(f"bundle: {bundle}")
    print(f"report: {report}")


def errors(rows: pl.DataFrame) -> str:
    """Return the picture of errors by level, default and bureau, and its numbers."""
    whole = rows.filter(pl.col("records") == "persons", pl.col("group").is_null(), pl.col("size_from").is_null())
    finest = whole.filter(pl.col("query") == "detailed")
    both = finest.pivot("arm", index=["geolevel", "areas"], values="mean_l1")
    persons = 100 * (1 - both["default"] / both["bureau"])
    text = (
        "Records made twice from the same noisy counts: by the default, and by the two passes of the Bureau. The error "
        "of an area is the sum of absolute errors over all its cells (2,016 kinds of persons); shown is the mean of a "
        "level. Both keep every state total and the facilities of every block exactly."
    )
    grid = [
        (level, areas, f"{bureau:.1f}", f"{default:.1f}", f"{less:.0f}%")
        for (level, areas, default, bureau), less in zip(
            both.select("geolevel", "areas", "default", "bureau").iter_rows(), persons, strict=True
        )
    ]
    picture = Bars(
        bars=tuple(finest.select("geolevel", "arm", "mean_l1").iter_rows()), x="level", y="mean error of an area"
    )
    header = ["level", "areas", "bureau", "default", "less error"]
    return section(
        "Error by level",
        paragraph(text),
        bars(picture),
        table(header, grid, numbers=["bureau", "default", "less error"]),
    )


def by_size(rows: pl.DataFrame) -> str:
    """Return errors of block totals by size: small blocks come out too large, large ones too small."""
    own = rows.filter(records="persons", arm="default", geolevel="Block", query="total").drop_nulls("size_from")
    grid = [
        (f"{size:,} and more", areas, f"{error:.2f}", f"{bias:+.2f}")
        for size, areas, error, bias in own.select("size_from", "areas", "mean_l1", "bias").iter_rows()
    ]
    text = (
        "Records cannot be negative, and so they are biased: empty blocks get somebody, and large ones lose a few. "
        "Estimates (stirred topdown estimate) have no such bias."
    )
    header = ["persons in the block", "blocks", "mean absolute error of the total", "bias"]
    return section("Blocks by size", paragraph(text), table(header, grid, numbers=header[2:]))


def told(stage: str, done: int, whole: int) -> None:
    """Show how far the run is."""
    if sys.stderr.isatty() or done in (0, whole):
        say(f"{stage}: {done:,} of {whole:,}" if whole > 1 else stage)


def say(text: str) -> None:
    """Show progress on stderr: one line that is overwritten on a terminal, plain lines otherwise."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
    elif text:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()


def arguments() -> tuple[Path, int]:
    """Return the folder and the number of households."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="build/demo-topdown", help="folder to write, replaced if it exists")
    parser.add_argument("--households", type=int, default=40_000, help="how many households the state has")
    given = parser.parse_args()
    return Path(given.out), given.households


if __name__ == "__main__":
    main()
