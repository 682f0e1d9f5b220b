"""Perturbation tables as files, and the commands that make and show them."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.data.frames import read_frame
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.tables.cellkey.design import design_ptable
from stirred.mechanisms.tables.cellkey.ptable import PTable, PTableRow, plain_table, read_ptable, table_of
from tests.world import stirred


def test_a_table_reads_as_it_was_written_in_both_formats(tmp_path: Path) -> None:
    table = design_ptable(D=5, V=Fraction(3), js=2).table
    table.frame().write_csv(tmp_path / "p.csv", separator=";")
    assert read_ptable(read_frame(tmp_path / "p.csv"), where="p.csv") == table
    small = design_ptable(D=2, V=Fraction(9, 10), keys=256).table
    small.frame(ons=True).write_csv(tmp_path / "o.csv")
    again = read_ptable(read_frame(tmp_path / "o.csv"), where="o.csv")
    assert again.rows == small.rows
    assert [again.added(2, key=k) for k in range(256)] == [small.added(2, key=k) for k in range(256)]


@pytest.mark.parametrize("keys", [256, 1000, 4096, 10**8, 10**9, 1 << 20])
def test_a_written_table_has_the_same_law_and_no_bias_however_many_keys_it_has(keys: int, tmp_path: Path) -> None:
    table = design_ptable(D=2, V=Fraction(9, 10), keys=keys).table
    table.frame().write_csv(tmp_path / "p.csv", separator=";")
    again = read_ptable(read_frame(tmp_path / "p.csv"), where="p.csv")
    for count in (1, 2, 3):
        assert again.law(count) == table.law(count)
        assert again.bias(count) == 0
    assert again.keys <= max(keys, 10**8)
    assert again.keys == keys or keys < 10**8


def test_keys_and_steps_without_finite_decimals_are_not_rounded_into_a_file(tmp_path: Path) -> None:
    table = design_ptable(D=2, V=Fraction(8, 9), keys=9 * 10**4).table
    with pytest.raises(PlanError, match="90,000 keys have no finite decimals"):
        table.frame()
    assert table.frame(ons=True).height == 2 * 9 * 10**4
    with pytest.raises(PlanError, match="step 3 have no finite decimals"):
        design_ptable(D=2, V=Fraction(1), step=3).table.frame()


def test_a_rearranged_table_keeps_its_order_and_has_the_same_law() -> None:
    # As the package rearranges one: a wide interval is split, and the row is permuted.
    plain = {"i": [1] * 3, "p": [0.25, 0.5, 0.25], "v": [-1, 0, 1], "p_int_ub": [0.25, 0.75, 1.0]}
    other = {"i": [1] * 4, "p": [0.3, 0.25, 0.2, 0.25], "v": [0, 1, 0, -1], "p_int_ub": [0.3, 0.55, 0.75, 1.0]}
    one, two = (read_ptable(pl.DataFrame(each), where="p.csv") for each in (plain, other))
    assert one.law(3) == two.law(3)
    assert one.pstay(1) == two.pstay(1) == Fraction(1, 2)
    places = [k * one.keys // 100 for k in (10, 40, 60, 90)]
    assert [one.added(1, key=k) for k in places] == [-1, 0, 0, 1]
    assert [two.added(1, key=k) for k in places] == [0, 1, 0, -1]
    assert [table_of(plain_table(each)) for each in (one, two)] == [one, two]
    assert "runs" not in plain_table(one)


def test_a_table_of_the_ons_that_repeats_does_so_without_its_keys(tmp_path: Path) -> None:
    added = {"pcv": [i for i in range(1, 751) for _ in range(2)], "ckey": [0, 1] * 750, "pvalue": [1, -1] * 750}
    table = read_ptable(pl.DataFrame(added), where="o.csv")
    assert (table.pcv(751), table.added(7, key=0), table.added(7, key=1)) == (501, 1, -1)
    public = {key: value for key, value in plain_table(table).items() if key != "runs"}
    assert table_of(public).pcv(751) == 501  # what is published says it too: delta depends on it
    assert table_of(plain_table(table)) == table


def test_every_key_is_answered_and_each_value_as_often_as_its_weight_says() -> None:
    table = design_ptable(D=2, V=Fraction(9, 10), keys=256).table
    for row in table.rows:
        added = [table.added(row.count, key=key) for key in range(table.keys)]
        assert tuple(added.count(v) for v in row.values) == row.weights
    assert {table.added(0, key=key) for key in range(256)} == {0}


@pytest.mark.parametrize(("count", "pcv"), [(750, 750), (751, 501), (1000, 750), (1001, 501), (100_001, 501)])
def test_large_counts_are_looked_up_as_the_ons_does(count: int, pcv: int) -> None:
    rows = tuple(PTableRow(count=i, values=(0,), weights=(1,)) for i in range(1, 751))
    ons = PTable(rows=rows, keys=1, repeats=True)
    assert ons.pcv(count) == pcv  # T11
    assert PTable(rows=rows[:8], keys=1).pcv(count) == 8


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        ({"a": [1]}, "are not those of a perturbation table"),
        ({"i": ["x"], "p": ["1"], "v": ["0"]}, "i, p and v are not all numbers"),
        ({"i": ["2"], "p": ["1"], "v": ["0"]}, "count 1 has no row"),
        ({"i": ["1"], "p": ["0.5"], "v": ["0"]}, "do not add up to 1"),
        ({"i": ["1"], "p": ["1"], "v": ["-2"]}, "count 1 could become negative"),
        ({"i": ["1"] * 2, "p": ["0.5"] * 2, "v": ["0", "1"], "p_int_ub": ["1", "0.5"]}, "p_int_ub is not the sum"),
        ({"pcv": [1, 1], "ckey": [0, 2], "pvalue": [0, 0]}, "it does not have every key"),
        ({"i": [], "p": [], "v": []}, "it has no rows"),
    ],
)
def test_a_file_that_is_no_table_is_refused(frame: dict[str, Any], what: str) -> None:
    with pytest.raises(DataError, match=what):
        read_ptable(pl.DataFrame(frame), where="p.csv")


def test_commands_design_show_and_make_keys(tmp_path: Path) -> None:
    done = stirred("ptable", "design", "--D", "2", "--V", "0.9", "--out", "p.csv", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["rows"][0]
    assert (first["bias"], first["variance"], first["pstay"]) == (0, 0.9, 0.3625)
    shown = json.loads(stirred("ptable", "show", "p.csv", "--json", cwd=tmp_path).stdout)
    assert shown["delta"]["one_table"]["1"] == pytest.approx(0.6375)
    assert shown["delta"]["zeros_fixed"]["1"] == pytest.approx(0.222383, abs=1e-6)
    words = stirred("ptable", "show", "p.csv", cwd=tmp_path).stdout
    assert "########" in words
    lowered = stirred("ptable", "design", "--D", "4", "--V", "1.5", "--pstay", "0.8", "--compat", cwd=tmp_path)
    assert lowered.returncode == 2
    assert "name its file" in lowered.stderr
    assert stirred("ptable", "key", "k.key", cwd=tmp_path).returncode == 0
    assert os.stat(tmp_path / "k.key").st_mode & 0o077 == 0
    again = stirred("ptable", "key", "k.key", cwd=tmp_path)
    assert again.returncode == 2
    assert "something is already there" in again.stderr
    sums = stirred("ptable", "design", "--D", "2", "--V", "1", "--step", "2", "--out", "m.csv", cwd=tmp_path)
    assert sums.returncode == 0
    assert "it has fractions" in stirred("ptable", "show", "m.csv", cwd=tmp_path).stdout
