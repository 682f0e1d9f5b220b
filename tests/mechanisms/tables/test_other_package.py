"""A mechanism of tables of another package goes through plan, release, audit and publication on ``TableMechanism``."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stirred.audit.exhaustive import audit
from stirred.cli.main import run
from stirred.mechanisms import registry
from stirred.spec.problems import StirredError
from tests.mechanisms.tables.geometric_tables import GeometricTables

PLAN = """
[data]
households = "people.parquet"

[mechanism]
name = "geometric-tables"
loss = "1/2"
values = {ward = ["a", "b", "c"], sex = ["f", "m"]}

[[tables]]
variables = ["ward", "sex"]

[[tables]]
variables = ["ward"]

[release]
out = "out"
"""
VALUES = {"ward": ["a", "b", "c"], "sex": ["f", "m"]}


@pytest.fixture(autouse=True)
def one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "geometric-tables", (GeometricTables.__module__, "GeometricTables"))


def test_its_promise_holds_and_a_smaller_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = GeometricTables(tables=[["ward"]], values=VALUES, loss="1/2")
    assert audit(mechanism).passed
    less = mechanism.with_settings(loss="1/3")
    monkeypatch.setattr(GeometricTables, "audit_specification", lambda *_: less.specification("small", ["ward"]))
    assert not audit(mechanism).passed


def test_it_is_released_audited_and_published(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = pl.DataFrame({"ward": ["a", "b"] * 60, "sex": ["m", "f", "f"] * 40, "age": [*range(120)]})
    people.write_parquet(tmp_path / "people.parquet")
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert run(["release", str(tmp_path / "plan.toml"), "--quiet"]) == 0, capsys.readouterr().err
    out = tmp_path / "out"
    table = pl.read_csv(out / "public" / "tables" / "ward-x-sex.csv")
    assert table.select("ward", "sex").rows() == [(w, s) for w in "abc" for s in "fm"]
    assert run(["check", str(out)]) == 0
    assert "computed anew from the settings" in " ".join(capsys.readouterr().out.split())
    assert run(["publish", str(out), str(tmp_path / "published")]) == 0, capsys.readouterr().err


def test_a_value_that_was_not_declared_is_refused() -> None:
    with pytest.raises(StirredError, match='its values were not declared, such as "d"'):
        GeometricTables(tables=[["ward"]], values=VALUES, loss="1/2").plan(pl.DataFrame({"ward": ["a", "d"]}))
