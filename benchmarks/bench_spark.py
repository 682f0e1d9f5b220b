"""Swap on a Spark cluster of this machine beside the local engine: overhead, growth by workers, memory.

    python benchmarks/bench_spark.py [--millions 10 50] [--workers 1 2] [--memory 2000] [--write]

The same plan on the same Parquet file is released by the local engine, and by a real standalone cluster of one and of
two workers of one core each, whole commands in processes of their own: reading, planning, verification and reports are
in all of them. Spark says how long it took to start and how long all tasks were under way together; the rest is what
the driver did alone.
Numbers below a million are allowed, for a quick look.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sections import machine, write_section

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from loopback_cluster import LoopbackCluster
from spark_cluster import PLAN

from stirred.data.synth.census import CensusPlan, write_census

FAR = 20  # workers that the growth is carried on to


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One command: its seconds, those of the start of Spark and of all tasks together, and peaks of memory in MB.

    An executor's peak is with the Python processes below it; the driver's without its Java process.
    """

    workers: int
    seconds: float
    start: float = 0.0
    tasks: float = 0.0
    memory: float
    executors: Sequence[float] = ()

    @property
    def driver(self) -> float:
        """Return the seconds in which no task was under way, if all workers had equally much to do."""
        return self.seconds - self.start - (self.tasks / self.workers if self.workers else 0)

    def carried_on(self, workers: int) -> float:
        """Return the seconds that so many workers would take: tasks divide evenly, all else takes as long."""
        return self.start + self.driver + self.tasks / workers


def main() -> None:
    """Measure, print and write the results."""
    options = arguments()
    lines = []
    for millions in options.millions:
        with tempfile.TemporaryDirectory(dir=options.folder) as name:
            lines += measured(Path(name), int(millions * 1_000_000), options.workers, options.memory)
    text = table(lines, options.memory)
    print(text)
    if options.write:
        write_section("Spark", text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--millions", type=float, nargs="+", default=[10, 50])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--memory", type=int, default=2000, help="of each executor, in MB")
    parser.add_argument("--folder", default=None, help="where the files go")
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    return parser.parse_args()


def table(lines: Sequence[str], memory: int) -> str:
    """Return the results as Markdown."""
    return "\n".join(
        [
            f"Reproduce with `make bench-spark`. {machine()}. Whole commands on synthetic households without persons,",
            f"the cluster on this machine, one core and {memory:,} MB of Java memory for each worker. Tasks are the",
            "seconds of all tasks together, on all workers. The driver is the rest: the command without the start of",
            "Spark and without the tasks, divided by the workers. With two workers three processes share two cores, so",
            f"that all of them are slower. {FAR} workers are carried on from one: start + driver + tasks / {FAR}. That",
            "assumes that tasks divide evenly and that network and disks are as fast for each worker as they are here.",
            "",
            "| households | engine | seconds | ratio to local | start | driver | tasks | driver MB | executors MB |",
            "|---|---|---|---|---|---|---|---|---|",
            *lines,
        ]
    )


def measured(folder: Path, households: int, workers: Sequence[int], memory: int) -> list[str]:
    """Return the lines of the table for one number of households."""
    write_census(folder / "census", plan=CensusPlan(households=households, seed=2020))
    local = released(folder, "local", None, {**os.environ})
    lines = [f"| {households:,} | local | {local.seconds:.1f} | 1 | | {local.driver:.1f} | | {local.memory:,.0f} | |"]
    runs: list[Run] = []
    for count in workers:
        with LoopbackCluster(workers=count, memory=f"{memory + 400}m") as cluster:
            run = released(folder, f"spark{count}", cluster, cluster.environment, workers=count, memory=memory)
        runs.append(run)
        lines.append(
            f"| {households:,} | Spark, {count} worker{'s' if count > 1 else ''} | {run.seconds:.1f} | "
            f"{run.seconds / local.seconds:.1f} | {run.start:.1f} | {run.driver:.1f} | {run.tasks:.1f} | "
            f"{run.memory:,.0f} | {', '.join(f'{each:,.0f}' for each in run.executors)} |"
        )
    few = min(runs, key=lambda run: run.workers)
    far = few.carried_on(FAR)
    lines.append(
        f"| {households:,} | Spark, {FAR} workers, carried on | {far:.1f} | {far / local.seconds:.1f} | "
        f"{few.start:.1f} | {few.driver:.1f} | {few.tasks:.1f} | | |"
    )
    return lines


def released(
    folder: Path,
    name: str,
    cluster: LoopbackCluster | None,
    environment: dict[str, str],
    *,
    workers: int = 0,
    memory: int = 0,
) -> Run:
    """Run the command, and look at the memory of executors while it runs."""
    text = PLAN.format(master=cluster.master if cluster else "", memory=memory)
    text = text.replace('out = "bundle"', f'out = "{name}"')
    plan = folder / f"{name}.toml"
    plan.write_text(text if cluster else text[: text.index("[engine]")], encoding="utf-8")
    peaks: dict[int, float] = {}
    done = threading.Event()
    if cluster:
        threading.Thread(target=watched, args=(cluster, peaks, done), daemon=True).start()
    command = [sys.executable, "-m", "stirred", "release", str(plan), "--quiet"]
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    usage: resource.struct_rusage
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    done.set()
    if status:
        sys.exit(f"the release on {name} failed")
    manifest = json.loads((folder / name / "manifest.json").read_text(encoding="utf-8"))
    spent = manifest["engine"].get("seconds", {})
    shutil.rmtree(folder / name)
    peak = usage.ru_maxrss / 1000
    return Run(workers=workers, seconds=seconds, memory=peak, executors=[*peaks.values()], **spent)


def watched(cluster: LoopbackCluster, peaks: dict[int, float], done: threading.Event) -> None:
    """Keep the largest resident memory of each executor with the Python processes below it, in MB."""
    while not done.wait(0.2):
        children = parents()
        for pid in cluster.executors():
            peaks[pid] = max(peaks.get(pid, 0), sum(resident(each) for each in below(pid, children)) / 1000)


def parents() -> dict[int, list[int]]:
    """Return the processes below each one."""
    found: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            found.setdefault(parent, []).append(int(place.name))
    return found


def below(pid: int, children: dict[int, list[int]]) -> list[int]:
    """Return a process and all below it."""
    return [pid, *(each for child in children.get(pid, ()) for each in below(child, children))]


def resident(pid: int) -> float:
    """Return what a process alone holds in memory, in KB: its share of pages that it has with others."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1])
    except OSError:
        pass
    return 0.0


if __name__ == "__main__":
    main()
