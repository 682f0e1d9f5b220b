"""How time and memory grow: swapping by the number of households, the exhaustive audit by the number of tables.

Every run is a process of its own, so that its processor time and its peak memory are its own. The floor of a swap is
reading and writing the same file; that of an audit is the smallest one, which is start-up and little else.

    python benchmarks/bench_growth.py [--households 0.1 1 10] [--write]

``--write`` puts the table into RESULTS.md and the figure into growth.svg beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sections import machine, write_section

from stirred.mechanisms.records.laws.counting import all_tables
from stirred.report.charts import draw

FIGURE = Path(__file__).with_name("growth.svg")
STIRRED = str(Path(sys.executable).with_name("stirred"))
# Hold and swap margins whose universes grow from a few tables to the most that are enumerated.
STRATA = (
    "2,2 2,2",
    "3,3 3,3",
    "3,3,3 3,3,3",
    "4,4,4 4,4,4",
    "5,5,5 5,5,5",
    "6,6,6 6,6,6",
    "7,7,6 7,7,6",
)
COPY = "import polars as pl, sys; pl.read_parquet(sys.argv[1]).write_parquet(sys.argv[2])"


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--households", type=float, nargs="+", default=[0.1, 0.3, 1, 3, 10], metavar="MILLIONS")
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md and growth.svg")
    options = parser.parse_args()
    points = [*swap_points(options.households), *audit_points()]
    text = table(points)
    print(text)
    if options.write:
        FIGURE.write_text(figure(points), encoding="utf-8")
        write_section("Growth", f"{text}\n\n![How time and memory grow](growth.svg)")


def swap_points(millions: list[float]) -> list[dict[str, Any]]:
    """Swap synthetic households, file to bundle, beside a copy of the file."""
    points = []
    for size in millions:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            homes = folder / "census" / "households.parquet"
            many = str(int(size * 1e6))
            cost(
                [STIRRED, "synth", "census", "--households", many, "--seed", "1", "--out", str(homes.parent), "--quiet"]
            )
            swap = [
                STIRRED,
                "swap",
                str(homes),
                "--match",
                "state,size,gq_type",
                "--swap",
                "county,tract,block_group,block",
            ]
            swap += ["--rate", "10%", "--id", "hid", "--out", str(folder / "bundle"), "--quiet"]
            floor = cost([sys.executable, "-c", COPY, str(homes), str(folder / "copy.parquet")])
            points.append(point("swap", size * 1e6, cost(swap), floor))
    return points


def audit_points() -> list[dict[str, Any]]:
    """Audit single strata exactly, from three tables to thousands."""
    points: list[dict[str, Any]] = []
    floor = None
    for stratum in STRATA:
        hold, swap = stratum.split()
        tables = len(all_tables(margin(hold), margin(swap)))
        taken = cost(
            [STIRRED, "audit", "swap", "--hold-margin", hold, "--swap-margin", swap, "--rate", "1/2", "--json"]
        )
        floor = floor or taken
        points.append(point("audit", tables, taken, floor))
    return points


def margin(text: str) -> tuple[int, ...]:
    """Read a margin."""
    return tuple(int(count) for count in text.split(","))


def point(what: str, size: float, taken: tuple[float, float], floor: tuple[float, float]) -> dict[str, Any]:
    """Return one measurement."""
    return {"what": what, "size": size, "seconds": taken[0], "gigabytes": taken[1], "ratio": taken[0] / floor[0]}


def cost(arguments: list[str]) -> tuple[float, float]:
    """Run a command; return its processor time in seconds and its peak memory in GB."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6


def table(points: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    floors = {"swap": "polars read + write of the same file", "audit": "the smallest audit: start-up"}
    names = {
        "swap": "{:,.0f} households swapped, file to bundle",
        "audit": "exact audit of a stratum of {:,.0f} tables",
    }
    lines = [
        "Reproduce with `python benchmarks/bench_growth.py --write`. Processor time and peak memory of whole commands.",
        f"{machine()}.",
        "",
        "| what | floor | ratio | processor time | peak memory |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {names[p['what']].format(p['size'])} | {floors[p['what']]} | {p['ratio']:.1f} | {p['seconds']:.1f} s "
        f"| {p['gigabytes']:.2f} GB |"
        for p in points
    ]
    return "\n".join(lines)


def figure(points: list[dict[str, Any]]) -> str:
    """Return four small plots: time above memory, swapping beside the audit."""

    def plot(what: str, field: str, across: str, up: str) -> dict[str, Any]:
        log = {"type": "log"}
        return {
            "width": 280,
            "height": 180,
            "data": {"values": [p for p in points if p["what"] == what]},
            "mark": {"type": "line", "point": {"size": 45, "filled": True}, "color": "#0b6e99"},
            "encoding": {
                "x": {"field": "size", "type": "quantitative", "scale": log, "axis": {"title": across, "format": "~s"}},
                "y": {"field": field, "type": "quantitative", "scale": log, "axis": {"title": up, "format": "~g"}},
            },
        }

    rows = [
        {"hconcat": [plot("swap", f, "households", f"swap: {u}"), plot("audit", f, "tables", f"audit: {u}")]}
        for f, u in (("seconds", "processor seconds"), ("gigabytes", "peak GB"))
    ]
    return draw(json.dumps({"background": "white", "vconcat": rows}))


if __name__ == "__main__":
    main()
