"""The mechanism in the docstring of ``mechanisms/plain.py`` works as it stands there, on the command line too."""

from __future__ import annotations

import sys
from doctest import DocTestParser
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit.exhaustive import audit
from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.mechanisms import plain, registry
from stirred.spec.problems import StirredError

DATA = pl.DataFrame({"answer": [0, 1, 1] * 60})


@pytest.fixture
def coin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class of the docstring, registered."""
    module = ModuleType("coin_of_the_docstring")
    module.__dict__.update(vars(plain))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for example in DocTestParser().get_examples(plain.__doc__ or ""):
        if example.source.startswith(("from", "class")):
            exec(example.source, module.__dict__)
    monkeypatch.setitem(registry.BUILT_IN, "coin", (module.__name__, "Coin"))
    return module.__dict__["Coin"]


def test_the_example_is_planned_released_audited_and_published(
    coin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DATA.write_parquet(tmp_path / "survey.parquet")
    choice = [str(tmp_path / "survey.parquet"), "--mechanism", "coin", "--set", "keep=3/4"]
    out = tmp_path / "out"
    assert run(["plan", *choice]) == 0
    assert run(["swap", *choice, "--out", str(out), "--quiet"]) == 0, capsys.readouterr().err
    report = (out / "public" / "report.html").read_text(encoding="utf-8")
    assert "under these conditions" not in report  # the example states none
    assert "The proofs are cited" not in report
    assert run(["check", str(out)]) == 0
    assert run(["publish", str(out), str(tmp_path / "published")]) == 0, capsys.readouterr().err
    assert (tmp_path / "published" / "data.parquet").exists()


def test_the_example_can_be_planned_and_released_from_a_plan(
    coin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DATA.write_parquet(tmp_path / "survey.parquet")
    (tmp_path / "plan.toml").write_text(
        '[data]\nhouseholds = "survey.parquet"\n[mechanism]\nname = "coin"\nkeep = "3/4"\n[release]\nout = "out"\n',
        encoding="utf-8",
    )
    assert run(["release", str(tmp_path / "plan.toml"), "--quiet"]) == 0, capsys.readouterr().err
    assert run(["check", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("keep", "bound"), [("0", "greater than or equal to 1/2"), ("1/4", "or equal to 1/2"), ("1", "less than 1")]
)
def test_the_example_refuses_a_coin_that_it_cannot_promise(coin: Any, keep: str, bound: str) -> None:
    """A bound of a ``Probability`` was taken, and never checked."""
    with pytest.raises(StirredError, match=f"^keep: {keep}: input should be .*{bound}"):
        coin(keep=keep)


def test_the_example_keeps_its_promise_with_a_fair_coin(coin: Any) -> None:
    assert audit(coin(keep="1/2")).passed
    assert audit(coin(keep="99/100")).passed


def test_an_identifier_is_not_taken_for_the_column_that_is_needed(coin: Any) -> None:
    data = Microdata(households=DATA.with_row_index("age"), id=("answer",))
    with pytest.raises(StirredError, match='"answer" is declared an identifier'):
        coin(keep="3/4").plan(data)


def test_columns_that_the_specification_does_not_name_are_listed_as_dropped(
    coin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are not in the release, and the plan listed identifiers alone."""
    wide = DATA.with_columns(street=pl.lit("Elm"), hiv=pl.lit(0)).with_row_index("id")
    data = Microdata(households=wide, id=("id",))
    assert coin(keep="3/4").plan(data).dropped == ("id", "street", "hiv")
    assert coin(keep="3/4").release(data, Entropy.from_os()).public["data"].columns == ["answer"]
    wide.write_parquet(tmp_path / "survey.parquet")
    choice = [str(tmp_path / "survey.parquet"), "--id", "id", "--mechanism", "coin", "--set", "keep=3/4"]
    assert run(["plan", *choice]) == 0
    assert "dropped    id, street, hiv" in capsys.readouterr().out


def test_a_file_without_a_column_that_is_needed_is_refused(
    coin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = DATA.select(pl.lit(1).alias("age"), pl.col("answer").alias("answers"))
    for act in (coin(keep="3/4").plan, lambda frame: coin(keep="3/4").release(frame, Entropy.from_os())):
        with pytest.raises(StirredError, match=r'there is no column "answer" .*; there are "age", "answers"'):
            act(other)
    other.write_parquet(tmp_path / "survey.parquet")
    assert run(["plan", str(tmp_path / "survey.parquet"), "--mechanism", "coin", "--set", "keep=3/4"]) == 2
    shown = capsys.readouterr().err
    assert 'there is no column "answer"' in shown
    assert "fault in stirred" not in shown
