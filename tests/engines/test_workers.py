"""Workers that differ from this machine, or do not come, are named before anything is drawn."""

from __future__ import annotations

import errno
import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import polars as pl
import pytest
from examples.loopback_cluster import LoopbackCluster
from py4j.java_gateway import GatewayClient

import stirred
from stirred.engines.protocol import EngineError
from stirred.engines.spark import engine as spark
from stirred.engines.spark import session
from stirred.engines.spark.engine import SparkEngine
from stirred.engines.spark.failures import TaskFailedError, explained, without_values
from stirred.engines.spark.session import _differences
from tests.engines.conftest import CONF


def started(cluster: LoopbackCluster, scratch: Path, **conf: str) -> SparkEngine:
    engine = SparkEngine(master=cluster.master, conf={**CONF, **conf})
    engine.start(scratch)
    return engine


def test_a_worker_that_lacks_the_package_is_named(
    free_cluster: LoopbackCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its Python is this one, but for the package: an import of it fails."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['stirred'] = None\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(EngineError) as caught:
        started(free_cluster, scratch)
    (problem,) = caught.value.problems
    assert problem.where == f"worker {os.uname().nodename}"
    assert problem.what.startswith("it lacks the package stirred")
    assert f"stirred=={stirred.__version__}" in problem.remedy


@pytest.mark.slow
def test_a_cluster_without_room_is_told_in_bounded_time(
    free_cluster: LoopbackCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_WORKERS_SECONDS", 2)
    with pytest.raises(EngineError, match="no worker took the application within 2 seconds"):
        started(free_cluster, tmp_path, **{"spark.executor.memory": "64g"})


def test_other_versions_are_named_with_what_to_install() -> None:
    here = {"stirred": stirred.__version__, **{name: version(name) for name in session._LIBRARIES}}
    same = {"host": "w7", "python": "{}.{}.99".format(*sys.version_info[:2]), **here}
    assert [*_differences(same)] == []
    (problem,) = _differences({**same, "numpy": "1.0"})
    assert str(problem).startswith(f"worker w7: it has numpy 1.0, and this machine has {here['numpy']}")
    (problem,) = _differences({**same, "python": "3.9.1"})
    assert "it runs Python 3.9.1" in problem.what


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    """Kernels run in this process here, and an executor freezes what it has loaded."""
    yield
    gc.unfreeze()


def test_a_worker_that_joins_later_draws_nothing_with_other_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those that were there at the start were asked."""
    task = spark._guarded(lambda record: record + 1)
    assert task(1) == 2
    session._check_versions.cache_clear()
    monkeypatch.setattr(session, "versions", lambda: {"stirred": "0.0"})  # as the worker sees itself
    with pytest.raises(TaskFailedError, match="OtherVersionsError") as caught:
        task(1)
    session._check_versions.cache_clear()
    assert "a worker that joined later" in str(explained(str(caught.value), doing="exchanging"))


def test_a_panic_says_where_and_repeats_no_value() -> None:
    """It is no Exception, and was passed on with its text."""

    def panic(record: str) -> None:
        raise pl.exceptions.PanicException(f"could not convert {record}")

    with pytest.raises(TaskFailedError, match=r"PanicException in test_workers\.py:\d+") as caught:
        spark._guarded(panic)("Smith")
    assert "Smith" not in str(caught.value)
    with pytest.raises(SystemExit):
        spark._guarded(sys.exit)(3)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version", "another version of Python"),
        ('java.io.IOException: Cannot run program "/opt/py/python"', "no such Python"),
        ("ModuleNotFoundError: No module named 'stirred'", "lack a package"),
        ("ExecutorLostFailure (executor 3 exited", "executors were lost"),
        ("Job 3 cancelled as part of cancellation of all jobs", "all workers were lost"),
        ("IllegalStateException: Cannot call methods on a stopped SparkContext.", "no master took the application"),
        ("java.io.IOException: No space left on device", "disk of a worker is full"),
        ("org.apache.spark.SparkException: the record of Smith", "(org.apache.spark.SparkException)"),
        ("Smith", "it does not say why"),
    ],
)
def test_what_spark_says_is_told_without_its_text(said: str, told: str) -> None:
    words = str(explained(said, doing="exchanging"))
    assert words.startswith("[engine]: exchanging failed on the cluster")
    assert told in words
    assert "Smith" not in words


def test_a_full_disk_under_a_task_is_told_and_nothing_else_of_the_message() -> None:
    @without_values
    def write() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "of Smith")

    with pytest.raises(TaskFailedError) as caught:
        write()
    assert "Smith" not in str(caught.value)
    assert "a disk of a worker is full" in str(explained(str(caught.value), doing="writing"))


def test_jobs_are_given_up_when_no_executor_is_left_and_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_WORKERS_SECONDS", 3)
    monkeypatch.setattr(session, "_LOOK_SECONDS", 0)
    closing, left, looked = threading.Event(), iter([2, 2, 0, 2]), list[int]()

    def executors(context: object) -> int:
        looked.append(next(left, 0))  # gone and back in time; then gone for good
        return looked[-1]

    monkeypatch.setattr(session, "_executors", executors)
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: len(looked)))  # a second for each look
    context = Mock()
    context.cancelAllJobs.side_effect = closing.set
    session._watch(context, closing)
    context.cancelAllJobs.assert_called_once_with()
    assert looked == [2, 2, 0, 2, 0, 0, 0, 0]


def test_an_interruption_leaves_no_trace_of_py4j(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = GatewayClient()
    client._get_connection = Mock(return_value=Mock(socket=None, send_command=Mock(side_effect=KeyboardInterrupt)))
    for filters, shown in (([], True), ([session._not_of_py4j], False)):
        caplog.clear()
        monkeypatch.setattr(logging.getLogger(), "filters", filters)
        with pytest.raises(KeyboardInterrupt):
            client.send_command("c")
        assert ("KeyboardInterrupt while sending command" in caplog.text) == shown
