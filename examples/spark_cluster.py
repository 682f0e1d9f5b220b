"""Swap ten million synthetic households on a Spark cluster, as an agency would on its own: `make demo-spark`.

The cluster is a real one, of one master and two workers, and runs on this machine alone. An agency leaves out the lines
that start it, and writes the address of its cluster under [engine].
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

from loopback_cluster import LoopbackCluster

from stirred.data.synth.census import CensusPlan, write_census

PLAN = """\
[data]
households = "census/households.parquet"
id = "hid"

[mechanism]
name = "permutation-swap"
match = ["state", "size"]
swap = ["county", "tract", "block_group", "block"]
rate = "1/20"

[[tables]]
variables = ["county", "tenure"]

[release]
out = "bundle"
purpose = "a demonstration on synthetic households"

[engine]
name = "spark"
master = "{master}"

[engine.conf]
"spark.executor.memory" = "{memory}m"
"""


def main() -> None:
    """Make the households, start the cluster, release, and say where the report is."""
    options = arguments()
    out = Path(options.out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    begin = time.monotonic()
    write_census(out / "census", plan=CensusPlan(households=options.households, seed=2020))
    say(f"{options.households:,} synthetic households", begin)
    begin = time.monotonic()
    with LoopbackCluster(workers=options.workers, memory=f"{options.memory + 400}m") as cluster:
        say(f"a cluster of {options.workers} workers at {cluster.master}", begin)
        plan = out / "plan.toml"
        plan.write_text(PLAN.format(master=cluster.master, memory=options.memory), encoding="utf-8")
        begin = time.monotonic()
        # The administrator's settings, with the secret of the cluster, are in a file that the environment names.
        command = [sys.executable, "-m", "stirred", "release", str(plan)]
        code = subprocess.run(command, env=cluster.environment, check=False).returncode
    if code:
        sys.exit(code)
    say("released", begin)
    report = out / "report.html"
    shutil.copyfile(out / "bundle" / "public" / "report.html", report)
    print(f"bundle: {out / 'bundle'}")
    print(f"report: {report}")


def say(what: str, begin: float) -> None:
    sys.stderr.write(f"{what}: {time.monotonic() - begin:.0f} s\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="build/demo-spark")
    parser.add_argument("--households", type=int, default=10_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", type=int, default=2000, help="of each executor, in MB")
    return parser.parse_args()


if __name__ == "__main__":
    main()
