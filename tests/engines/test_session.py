"""A session on a real cluster: what it starts with, what it leaves behind, and what it says when a task fails."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkConf, java_gateway

from stirred.engines.local import LocalEngine
from stirred.engines.protocol import Engine, EngineError
from stirred.engines.spark import session
from stirred.engines.spark.engine import SparkEngine
from stirred.randomness.entropy import Entropy
from tests.engines.conftest import Shared


def test_groups_come_back_in_their_order(spark_engine: SparkEngine) -> None:
    engines: list[Engine] = [spark_engine, LocalEngine()]
    groups = [*range(50, 0, -1)]
    assert [[*engine.map_groups(groups, lambda group: group * 7)] for engine in engines] == [
        [7 * g for g in groups]
    ] * 2
    assert [[*engine.map_groups([], lambda group: group)] for engine in engines] == [[], []]


def test_a_worker_with_one_core_runs_one_task_at_a_time(spark_engine: SparkEngine) -> None:
    assert spark_engine.session.together == 1
    assert spark_engine.memory == 700 << 20


def test_records_are_shown_nowhere_and_lie_encrypted(spark_engine: SparkEngine) -> None:
    conf = dict(spark_engine.session.context.getConf().getAll())
    assert conf["spark.ui.enabled"] == conf["spark.eventLog.enabled"] == "false"
    assert conf["spark.io.encryption.enabled"] == conf["spark.network.crypto.enabled"] == "true"
    assert spark_engine.session.context.uiWebUrl is None


def test_a_program_that_logs_everything_logs_no_key(
    spark_engine: SparkEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """What is said to Java is logged by its library at the level of debugging: tasks, and so the keys in them."""
    key = Entropy.from_seed("logged").kept
    with caplog.at_level(logging.DEBUG):
        assert [*spark_engine.map_groups([1], lambda group: key[group])] == [key[1]]
    assert not [each for each in caplog.records if each.name.startswith("py4j")]


def test_a_failed_task_says_where_and_repeats_no_value(spark_engine: SparkEngine, shared_cluster: Shared) -> None:
    with pytest.raises(EngineError) as caught:
        [*spark_engine.map_groups(["the-age-is-97"], lambda text: int(text))]
    assert "ValueError in test_session.py" in str(caught.value)
    logs = [path.read_text(errors="replace") for path in shared_cluster.cluster.folder.rglob("*") if _is_log(path)]
    assert any("TaskFailedError" in text for text in logs)
    assert not any("the-age-is-97" in text for text in [*logs, str(caught.value)])


def _is_log(path: Path) -> bool:
    return path.is_file() and (path.name in ("stdout", "stderr") or path.suffix == ".log")


def test_java_that_was_starting_when_somebody_interrupted_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would live on: nobody holds it yet."""
    launched: list[subprocess.Popen[bytes]] = []

    def launch(*_: object, **__: object) -> SimpleNamespace:
        launched.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        time.sleep(0.5)
        return SimpleNamespace(proc=launched[0], shutdown=lambda: None)

    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    threading.Timer(0.2, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        session.java(SparkConf(loadDefaults=False), tmp_path / "log")
    assert launched[0].poll() is not None
