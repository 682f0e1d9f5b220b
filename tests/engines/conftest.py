"""A real standalone cluster on loopback, one for all tests of this folder: one master, two workers, separate processes.

It starts when the first test asks for it, and stops with the last one. Of several test processes one at a time has a
cluster: the others wait. Its two cores go to one application at a time. Tests that need no more than a running engine
share one, ``spark_engine``; a test that starts drivers of its own asks for ``free_cluster``, which ends the shared one.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from examples.loopback_cluster import QUICK_START, LoopbackCluster

from stirred.engines.protocol import Sources
from stirred.engines.spark.engine import SparkEngine

# Small enough for any machine that runs the tests; the cluster's workers have 1500 MB each.
CONF = {
    "spark.executor.memory": "700m",
    "spark.driver.memory": "700m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.extraJavaOptions": QUICK_START,
}

# What every plan here releases, below its [data].
SWAP = """
[mechanism]
swap = "county"
match = "size"
rate = "1/2"

[release]
out = "bundle"
ledger = "homes.ledger"
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's Python side leaves sockets to the collector."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


class Shared:
    """The cluster, and the one engine that tests share on it."""

    def __init__(self, cluster: LoopbackCluster) -> None:
        self.cluster = cluster
        self.engine: SparkEngine | None = None

    def running(self) -> SparkEngine:
        if self.engine is None:
            self.engine = SparkEngine(master=self.cluster.master, conf=CONF)
            self.engine.start(Path(tempfile.mkdtemp(prefix="scratch-", dir=self.cluster.folder)))
        self.engine.sources = Sources()
        return self.engine

    def close(self) -> None:
        if self.engine is not None:
            assert self.engine.scratch is not None
            self.engine.close()
            shutil.rmtree(self.engine.scratch, ignore_errors=True)
            self.engine = None


@pytest.fixture(scope="package")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    assert shutil.which("java"), "no Java: run `make java`, which installs it, or `make test`, which does so first"
    with _alone(tmp_path_factory), LoopbackCluster(workers=2) as cluster, pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name not in cluster.environment:
                patch.delenv(name)
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        shared = Shared(cluster)
        yield shared
        shared.close()
        gc.collect()  # here, where an unclosed socket is no error


@contextmanager
def _alone(folders: pytest.TempPathFactory) -> Iterator[None]:
    """Hold a lock that all processes of a test run know."""
    base = folders.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        base = base.parent
    with (base / "spark.lock").open("w") as lock:
        deadline = time.monotonic() + 900
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                assert time.monotonic() < deadline, "another test process has the cluster and does not end"
                time.sleep(0.2)
        yield


@pytest.fixture
def spark_engine(shared_cluster: Shared) -> SparkEngine:
    """A running engine on two executors; tests leave it running, and may set its ``sources``."""
    return shared_cluster.running()


@pytest.fixture
def free_cluster(shared_cluster: Shared) -> LoopbackCluster:
    """The cluster with all its cores free, for drivers that a test starts itself (in its environment)."""
    shared_cluster.close()
    return shared_cluster.cluster
