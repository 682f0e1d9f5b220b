"""A driver that dies after its draw: the entry stays reserved, and the same release is finished at no further cost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from examples.loopback_cluster import LoopbackCluster

from stirred.cli.main import run
from stirred.release.ledger import Ledger
from tests.engines.conftest import CONF, SWAP

# The power fails when the cluster has made the first exchange: the key is drawn, and records lie in the scratch folder.
DRIVER = """
import sys
from stirred.cli.main import run
from stirred.engines.spark.engine import SparkEngine
from tests.release.killed_run import patched
patched(SparkEngine, "exchange")
sys.exit(run(sys.argv[1:]))
"""


def plan_in(folder: Path, master: str) -> None:
    homes = pl.DataFrame(
        {
            "county": [f"c{number % 7}" for number in range(3000)],
            "size": [1 + number % 3 for number in range(3000)],
            "tenure": [f"t{number * number % 5}" for number in range(3000)],
        }
    )
    homes.write_parquet(folder / "homes.parquet")
    (folder / "shared").mkdir()
    conf = "\n".join(f'"{name}" = "{value}"' for name, value in CONF.items())
    (folder / "plan.toml").write_text(
        f"""
[data]
file = "homes.parquet"
{SWAP}
[engine]
name = "spark"
master = "{master}"
scratch = "shared"

[engine.conf]
{conf}
"""
    )


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_driver_killed_after_its_draw_is_resumed_at_no_cost(
    engine: str, free_cluster: LoopbackCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan_in(tmp_path, free_cluster.master)
    ledger = Ledger.create("homes.ledger", dataset="homes", who="ana")
    root = str(Path(__file__).parents[2])
    environment = {**free_cluster.environment, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", DRIVER, "release", "plan.toml"]
    died = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    (entry,) = ledger.entries()
    assert entry.status == "reserved"
    assert entry.drawn
    assert not Path("bundle").exists()
    assert [*Path("shared").iterdir()], "nothing was there to be removed"

    assert run(["ledger", "recover", "homes.ledger"]) == 0
    assert [*Path("shared").iterdir()] == []
    assert [each.status for each in ledger.entries()] == ["reserved"]

    until_alone(free_cluster)
    assert run(["release", "--resume", "bundle", "--engine", engine, "--quiet"]) == 0
    (entry,) = ledger.entries()
    assert entry.status == "committed"
    assert json.loads(Path("bundle/manifest.json").read_text())["engine"]["name"] == engine
    assert [*Path("shared").iterdir()] == []
    columns = ["size", "tenure"]
    before, after = (pl.read_parquet(path).group_by(columns).len().sort(columns)
                     for path in ("homes.parquet", "bundle/public/data.parquet"))  # fmt: skip
    assert before.equals(after)


def until_alone(cluster: LoopbackCluster) -> None:
    """Wait until the executors of the dead driver are gone: nobody stays behind with records."""
    deadline = time.monotonic() + 120
    while cluster.executors():
        assert time.monotonic() < deadline, "executors of a dead driver are still there"
        time.sleep(0.1)
