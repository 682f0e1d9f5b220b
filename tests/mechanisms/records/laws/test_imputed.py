"""Imputed records left out (R9): published as they are, and the promise says so."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap, stage
from stirred.mechanisms.records.strata import Strata
from stirred.release.tables import expectations, wanted_tables
from stirred.spec.document import from_json, to_json
from stirred.spec.exact import ln
from stirred.spec.explanation import explain
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import psa_sharp_epsilon
from tests.mechanisms.records.oracles import files, loss_of_laws, psa_law
from tests.mechanisms.records.sampling import swapped
from tests.world import households, stirred

ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"], "imputed": "flag"}
SWAP = PermutationSwap(**ROLES, rate="1/2")


def homes(count: int = 120) -> pl.DataFrame:
    return households(count).drop("hid").with_columns(flag=pl.int_range(count) % 5 == 0, row=pl.int_range(count))


def test_t24_one_imputed_of_four_different_records() -> None:
    """The loss between files that agree on the imputed record is that of the three others."""
    data = pl.DataFrame({"size": [1] * 4, "county": list("wxyz"), "held": list("abcd"), "flag": [0, 0, 0, 1]})
    plan = SWAP.plan(data)
    assert plan.epsilon == ln(2) / 2
    assert plan.epsilon == psa_sharp_epsilon(Fraction(1, 2), stratum=3)
    # By enumeration: one stratum of three at rate 1/2, one imputed record that keeps its value.
    swap = stage(lambda records: psa_law(records, rate=Fraction(1, 2)), within=lambda flag: flag)
    agreeing = [file for file in files((0, 0, 0, 1), "abcd", "wxyz") if (1, "d", "z") in file]
    assert loss_of_laws({file: swap(file) for file in agreeing}) == ln(2) / 2


def test_the_loss_is_that_of_the_records_that_are_not_imputed_however_many_are() -> None:
    data = homes()
    kept = data.filter(~pl.col("flag"))
    alone = PermutationSwap(match=["size"], swap=["county"], rate="1/2").plan(kept)
    assert SWAP.plan(data).epsilon == alone.epsilon
    none = SWAP.plan(data.with_columns(flag=False))
    assert none.epsilon == PermutationSwap(match=["size"], swap=["county"], rate="1/2").plan(data).epsilon


@pytest.mark.parametrize("kind", [pl.Boolean, pl.Int8, pl.String])
def test_imputed_records_stay_and_others_move(kind: Any) -> None:
    data = homes().with_columns(pl.col("flag").cast(kind))
    released = swapped(SWAP, data, Entropy.from_seed("imputed")).public["data"]
    both = data.join(released, on="row", suffix="_new")
    changed = both.group_by(pl.col("flag").cast(pl.String)).agg((pl.col("county") != pl.col("county_new")).sum())
    by_flag = {flag.lower() in ("true", "1"): count for flag, count in changed.rows()}
    assert by_flag[True] == 0
    assert by_flag[False] > 10


def test_the_promise_says_what_it_rests_on_and_what_is_not_protected() -> None:
    specification = SWAP.plan(homes()).specification
    assert specification.input_premetric.post_imputation
    assert "R9" in specification.theorem[0]
    words = explain(specification).not_protected
    assert any("imputed household records themselves" in item for item in words)
    assert any("copied into several records" in item for item in words)
    assert from_json(to_json(specification)) == specification
    plain = PermutationSwap(match=["size", "flag"], swap=["county"], rate="1/2").plan(homes()).specification
    assert specification.multiverse.refines(plain.multiverse)
    assert not plain.multiverse.refines(specification.multiverse)


def test_records_that_are_all_imputed_are_published_as_they_are_with_a_warning() -> None:
    plan = SWAP.plan(homes().drop("row").with_columns(flag=True))
    assert [doubt.name for doubt in plan.doubts] == ["nothing-moves"]
    assert plan.strata.moved == 0


@pytest.mark.parametrize("flags", [["yes", "no"], ["2", "0"]])
def test_flags_that_are_neither_yes_nor_no_are_refused(flags: list[str]) -> None:
    data = homes(2).with_columns(flag=pl.Series(flags))
    with pytest.raises(StirredError, match="does not say whether a record is imputed"):
        SWAP.plan(data)


def test_two_stages_do_not_leave_imputed_records_out() -> None:
    with pytest.raises(PlanError, match="the two stage swap has no imputed"):
        TwoStageSwap(**ROLES, fine_match=["tenure"], rate="1/2", fine_rate="1/2")


def test_the_expected_error_of_a_table_of_imputed_records_alone_is_none() -> None:
    data = homes()
    (table,) = wanted_tables([(None, ["flag", "county", "tenure"])], households=data.columns, persons=[])
    (found,) = expectations(SWAP, [table], Microdata(households=data), source="this-data")
    by_flag = dict(found.error.table.group_by("flag").agg(pl.col("absolute_error").max()).rows())
    assert by_flag[True] == 0
    assert by_flag[False] > 0


PLAN = """
[data]
households = "homes.parquet"
[mechanism]
match = ["size"]
swap = ["county"]
hold = ["tenure"]
imputed = "flag"
rate = "1/2"
[release]
out = "out"
"""


def test_a_plan_with_imputed_records_makes_a_bundle_that_can_be_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    homes(600).write_parquet("homes.parquet")
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    assert audit_bundle(tmp_path / "out").passed
    assert command(["publish", "out", "dest"]) == 0
    report = (tmp_path / "dest" / "report.html").read_text(encoding="utf-8")
    assert "imputed records, each with its own swap values" in report
    done = stirred("compare", "plan.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "do not leave imputed records out" in done.stderr


def test_an_imputed_record_that_was_swapped_is_seen_when_the_files_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that exchanges within imputed strata keeps every margin; only the check of these records sees it."""
    everywhere = property(lambda strata: Rates.constant(Fraction(1, 2), strata=strata.count))
    monkeypatch.setattr(Strata, "kernel_rates", everywhere)
    monkeypatch.chdir(tmp_path)
    homes(600).write_parquet("homes.parquet")
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 1
    assert not (tmp_path / "out").exists()
