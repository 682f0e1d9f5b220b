"""What TopDown takes on a synthetic state, step by step: measuring, by the number of blocks.

Every step is a process of its own, so that its processor time and its peak memory are its own. The floor of measuring
is a process that only reads the same person file.

    python benchmarks/bench_topdown.py [--blocks 5 50 300] [--write]

``--write`` puts the table into RESULTS.md. A state of 300,000 blocks has about 15 million persons here.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import polars as pl
from sections import machine, write_section

HOUSEHOLDS_IN_A_BLOCK: Final = 19.8
LEVELS: Final = ["state", "county", "tract", "block_group", "block"]
SETTINGS: Final[dict[str, Any]] = {
    "attributes": ["pl94-persons"],
    "levels": LEVELS,
    "budget": "us-2020-pl-persons",
    "totals": ["state"],
}


def main() -> None:
    """Measure, print and write the results; or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=float, nargs="+", default=[5, 50, 300], metavar="THOUSANDS")
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    parser.add_argument("--step", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        STEPS[options.step[0]](Path(options.step[1]))
        return
    lines = [
        "Reproduce with `python benchmarks/bench_topdown.py --write`. The 2020 production budget: 2,603 noisy counts "
        "for each block.",
        f"{machine()}.",
        "",
        "| blocks | step | processor time | wall | peak memory | on disk |",
        "|---|---|---|---|---|---|",
    ]
    for thousands in options.blocks:
        with tempfile.TemporaryDirectory() as name:
            lines += measured(Path(name), round(1_000 * thousands))
    text = "\n".join(lines)
    print(text)
    if options.write:
        write_section("TopDown: measuring", text)


def measured(folder: Path, blocks: int) -> list[str]:
    """Make a state of about so many blocks, and return a line for each step."""
    (folder / "blocks").write_text(str(blocks))
    cost("make", folder)
    lines = []
    found = pl.read_parquet(folder / "areas.parquet").height
    for step, words in (("read", "floor: read the persons"), ("draw", "measure, into a store"), ("publish", "publish")):
        seconds, wall, memory = cost(step, folder)
        written = sorted(folder.glob({"draw": "store", "publish": "measurements.parquet"}.get(step, "none")))
        files = [path for top in written for path in (top, *top.rglob("*")) if path.is_file()]
        size = sum(path.stat().st_size for path in files) / 1e9
        lines.append(f"| {found:,} | {words} | {seconds:.1f} s | {wall:.1f} s | {memory:.2f} GB | {size:.2f} GB |")
        print(lines[-1], file=sys.stderr)
    return lines


def cost(step: str, folder: Path) -> tuple[float, float, float]:
    """Run a step in its own process; return processor time and wall in seconds, and peak memory in GB."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, __file__, "--step", step, str(folder)])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{step} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss / 1e6


def make_state(folder: Path) -> None:
    """Write persons.parquet and areas.parquet: all of a synthetic census as one state, in the schema of PL 94-171."""
    from stirred.data.synth.census import CensusPlan

    blocks = int((folder / "blocks").read_text())
    plan = CensusPlan(households=max(1_000, round(HOUSEHOLDS_IN_A_BLOCK * blocks)), seed=1)
    areas = []
    (folder / "persons.parquet").mkdir()
    for number, chunk in enumerate(plan.areas().chunks()):
        homes, people = plan.draw(chunk)
        places = homes.with_columns(state=pl.lit(1, dtype=pl.UInt8)).select("hid", *LEVELS, hhgq="gq_type")
        areas.append(places.select(LEVELS).unique())
        adult = (pl.col("age") >= 18).cast(pl.UInt8)
        own = people.select("hid", cenrace="race", hispanic=pl.col("hispanic") + 1, votingage=adult + 1)
        flat = own.join(places, on="hid", how="left").drop("hid")
        flat.write_parquet(folder / "persons.parquet" / f"part-{number:05d}.parquet")
    pl.concat(areas).write_parquet(folder / "areas.parquet")


def read_persons(folder: Path) -> pl.DataFrame:
    """Read the persons, and nothing else."""
    return pl.read_parquet(folder / "persons.parquet")


def draw(folder: Path) -> None:
    """Plan and draw, as a release does it, into a store."""
    from stirred.mechanisms.protocol import Workplace
    from stirred.mechanisms.topdown.mechanism import TopDown
    from stirred.randomness.entropy import Entropy

    areas = pl.read_parquet(folder / "areas.parquet")
    place = Workplace(folder, folder / "work")
    TopDown(**SETTINGS, area_list=areas).release(read_persons(folder), Entropy.from_os(), workplace=place)


def publish(folder: Path) -> None:
    """Write the store in the published layout."""
    from stirred.data.frames import write_parts
    from stirred.mechanisms.topdown.measurements import MeasurementStore

    write_parts(
        MeasurementStore.open(folder / "store" / "persons").published(), folder / "measurements.parquet", apart=True
    )


STEPS: Final = {"make": make_state, "read": read_persons, "draw": draw, "publish": publish}


if __name__ == "__main__":
    main()
