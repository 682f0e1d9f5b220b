"""What is refused before anything starts: software that is missing, addresses, settings that would expose records."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.engines.protocol import EngineError
from stirred.engines.spark import checks
from stirred.engines.spark.checks import check_cluster
from stirred.engines.spark.engine import SparkEngine
from stirred.engines.spark.session import Session
from stirred.release.ledger import Ledger
from tests.engines.conftest import SWAP

PLAN = f"""
[data]
households = "homes.parquet"
{SWAP}"""


def told(master: str, **conf: str) -> str:
    with pytest.raises(EngineError) as caught:
        check_cluster(master, {f"spark.{name.replace('_', '.')}": value for name, value in conf.items()})
    return str(caught.value)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    assert "pip install 'stirred[spark]'" in told("local[1]")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392", None])
def test_another_java_names_the_package_to_install(
    version: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version is not None:
        program = tmp_path / "bin" / "java"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = told("local[1]")
    assert "openjdk-17-jre-headless" in said
    assert ("there is none" if version is None else f"here is Java {version.split('.')[0]}") in said


@pytest.mark.parametrize(
    "master", ["yarn", "head:7077", "spark://head", "spark://head:port", "http://head:80", "local[x]", ""]
)
def test_what_is_no_address_of_a_master_is_refused(master: str) -> None:
    assert "spark://HOST:PORT" in told(master)


def test_a_master_that_does_not_answer_is_named() -> None:
    with socket.socket() as taken:  # bound, and listening to nobody
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"no Spark master answers ({address}" in told(f"spark://{address}")


def test_one_of_several_masters_that_answers_is_enough() -> None:
    with socket.socket() as taken, socket.create_server(("127.0.0.1", 0)) as living:
        taken.bind(("127.0.0.1", 0))
        dead, alive = taken.getsockname()[1], living.getsockname()[1]
        check_cluster(f"spark://127.0.0.1:{dead},127.0.0.1:{alive}", {})


def test_records_do_not_leave_the_machine_unencrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_unreachable", lambda master: ())
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    site = tmp_path / "spark-defaults.conf"
    site.write_text("# the site\nspark.authenticate true\nspark.network.crypto.enabled=TRUE\n")
    assert "spark.io.encryption.enabled not set to true" in told("spark://head.agency.example:7077")
    assert "spark.authenticate" not in told("spark://head.agency.example:7077")
    # A plan cannot switch off what the site switched on.
    assert "spark.authenticate" in told("spark://head.agency.example:7077", authenticate="false")
    site.write_text(site.read_text() + "spark.io.encryption.enabled : true\n")
    check_cluster("spark://head.agency.example:7077", {})
    check_cluster("spark://127.0.0.1:7077", {})


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("spark.ui.enabled", "could be seen"),
        ("spark.eventLog.enabled", "could be seen"),
        ("spark.authenticate.secret", "is a secret"),
        ("spark.hadoop.fs.s3a.access.key", "is a secret"),
        ("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "is a secret"),
        ("spark.hadoop.fs.azure.sas.homes.lake.dfs.core.windows.net", "is a secret"),
        ("spark.master", "would lead elsewhere"),
        ("spark.remote", "would lead elsewhere"),
        ("executor.memory", "is not a setting of Spark"),
        ("spark.executor.memory", "spark.executor.memory = true is not understood. Fix: .* '8g'"),
        ("spark.executor.cores", "spark.executor.cores = true is not understood"),
    ],
)
def test_settings_that_expose_are_refused(setting: str, why: str) -> None:
    with pytest.raises(EngineError, match=why):
        check_cluster("local[1]", {setting: "true"})


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame({"county": ["a", "b"] * 50, "size": [1, 1, 2, 2] * 25, "tenure": [*("xxyyx" * 20)]})
    frame.write_parquet("homes.parquet")
    (tmp_path / "plan.toml").write_text(PLAN)
    Ledger.create("homes.ledger", dataset="homes", who="ana")
    return tmp_path


@pytest.mark.parametrize(
    ("section", "options", "words"),
    [
        ('[engine]\nname = "spark"\n', [], "[engine]: 'master' is missing"),
        ('[engine]\nmaster = "spark://head:7077"\n', [], "only a cluster has these settings"),
        ('[engine]\nname = "yarn"\n', [], "[engine] name"),
        ('[engine]\nname = "spark"\nmaster = "spark://127.0.0.1:1"\n', [], "no Spark master answers"),
        ('[engine]\nname = "spark"\nmaster = "local[1]"\nscratch = "none"\n', [], "there is no folder none"),
        ("", ["--engine", "spark"], "--master: 'master' is missing"),
        ("", ["--engine", "dask"], "there is no engine 'dask'"),
        ("", ["--master", "yarn"], "plan.toml [engine] master: 'yarn' is not the address"),
        ("", ["--engine", "local", "--master", "local[1]"], "only a cluster has these settings"),
    ],
)
def test_a_bad_engine_is_refused_and_nothing_is_spent(
    section: str, options: list[str], words: str, homes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = homes / "plan.toml"
    plan.write_text(plan.read_text() + section)
    before = {path.name for path in homes.iterdir()}
    for command in ["release"] if options else ["plan", "release"]:
        assert run([command, "plan.toml", *options]) == 2
        assert words in capsys.readouterr().err
    assert {path.name for path in homes.iterdir()} == before
    assert not [*Ledger.open("homes.ledger").entries()]


def test_a_scratch_folder_without_permission_is_refused_in_the_plan(
    homes: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = homes / "plan.toml"
    plan.write_text(plan.read_text() + '[engine]\nname = "spark"\nmaster = "local[1]"\nscratch = "shared"\n')
    (homes / "shared").mkdir()
    assert run(["plan", "plan.toml"]) == 0
    monkeypatch.setattr(os, "access", lambda path, mode: "shared" not in str(path))  # root may write everywhere
    assert run(["plan", "plan.toml"]) == 2
    assert "[engine] scratch: nothing can be written to shared" in capsys.readouterr().err


def test_the_tasks_of_an_executor_share_its_memory() -> None:
    engine = SparkEngine(master="local[1]", conf={"spark.executor.memory": "8g"})
    assert engine.memory == 8 << 30
    engine.running = Session(context=cast(Any, None), version="4", hosts=("node07",), together=16)
    assert engine.memory == 512 << 20
    assert [SparkEngine(master="local[1]", conf={"spark.executor.memory": size}).memory for size in ("1KB", "3")] == [
        1 << 10,
        3 << 20,
    ]


def test_the_command_line_overrules_the_plan_where_it_runs(homes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = homes / "plan.toml"
    plan.write_text(plan.read_text() + '[engine]\nname = "spark"\nmaster = "spark://127.0.0.1:1"\n')
    assert run(["release", "plan.toml", "--engine", "local"]) == 0
    assert '"engine": {\n    "name": "local"\n  }' in (homes / "bundle" / "manifest.json").read_text()
    assert "engine" not in (homes / "bundle" / "public" / "specification.json").read_text()
    capsys.readouterr()


def test_a_file_without_a_plan_has_no_engine(homes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--swap", "county", "--match", "size", "--rate", "1/2", "--engine", "spark"]
    assert run(["plan", "homes.parquet", *options]) == 2
    assert "`stirred plan --engine` is now [engine] in the plan" in capsys.readouterr().err


def test_a_mechanism_that_does_not_run_there_is_refused_in_the_plan(
    homes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = homes / "plan.toml"
    text = plan.read_text()
    begin, end = text.index("[mechanism]"), text.index("[release]")
    tables = '[mechanism]\nname = "noisy-tables"\nrho = "1"\n\n[[tables]]\nvariables = ["county"]\n\n'
    plan.write_text(text[:begin] + tables + text[end:] + '[engine]\nname = "spark"\nmaster = "local[1]"\n')
    assert run(["plan", "plan.toml"]) == 2
    assert "does not run on spark" in capsys.readouterr().err
