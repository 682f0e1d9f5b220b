"""Facial validity is found in the public files alone, and what of a mechanism is public is read off its contract."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stirred import Entropy
from stirred.mechanisms.registry import mechanism_class, settings_for
from stirred.release.run import run
from stirred.report import validity as module
from stirred.report.facts import facts_in
from stirred.report.transparency import transparency
from stirred.report.validity import EMPTY, FRACTIONS, IMPOSSIBLE, MARGINS, NEGATIVE, TABLES, facial_validity
from stirred.spec.document import from_json
from tests.release.test_public_edition import CASES, DECLARED, NOISY, Case, laid_out
from tests.world import CODEBOOK_OF_HOMES, households

KIND = mechanism_class("permutation-swap")


def folder(tmp_path: Path, **tables: dict[str, list[object]]) -> Path:
    (tmp_path / "tables").mkdir()
    for name, columns in tables.items():
        pl.DataFrame(columns, strict=False).write_csv(tmp_path / "tables" / f"{name}.csv")
    return tmp_path


def found(public: Path, **how: object) -> dict[str, tuple[int, int]]:
    seen = facial_validity(public, KIND, **how)  # type: ignore[arg-type]
    return {each.what: (each.found, each.looked_at) for each in seen.findings}


def test_negatives_fractions_and_empty_cells_are_counted(tmp_path: Path) -> None:
    public = folder(tmp_path, a={"x": ["u", "v", "w", "z"], "count": [-2, 3, None, 4]})
    pl.DataFrame({"area": ["n", "s"], "value": [[1, -7], [2, 3]]}).write_parquet(public / "m.parquet")
    pl.DataFrame({"area": ["n"], "estimate": [0.5]}).write_parquet(public / "e.parquet")
    seen = found(public)
    assert seen[NEGATIVE] == (2, 9)
    assert seen[FRACTIONS] == (1, 9)
    assert seen[EMPTY] == (1, 9)
    worst = facial_validity(public, KIND).findings[0].in_words
    assert worst.startswith("2 of 9 (the smallest -7, in m.parquet)")


def test_margins_and_tables_are_compared_on_what_they_share(tmp_path: Path) -> None:
    """x x y sums to x = (3, 7) and y = (4, 6); x is published as (3, 8), and y x z sums to y = (4, 5)."""
    public = folder(
        tmp_path,
        xy={"x": ["a", "a", "b", "b"], "y": [1, 2, 1, 2], "count": [1, 2, 3, 4]},
        x={"x": ["a", "b"], "count": [3, 8]},
        yz={"y": [1, 2], "z": ["p", "p"], "count": [4, 5]},
    )
    seen = found(public)
    assert seen[MARGINS] == (1, 2)  # x beside x x y
    assert seen[TABLES] == (2, 3)  # x x y beside y x z on y, and the totals of x and y x z
    assert "tables/xy.csv beside tables/yz.csv" not in facial_validity(public, KIND).findings[3].in_words


def test_sums_with_an_empty_cell_are_not_held_against_others(tmp_path: Path) -> None:
    public = folder(
        tmp_path,
        xy={"x": ["a", "a", "b"], "y": [1, 2, 1], "count": [1, None, 3]},
        x={"x": ["a", "b"], "count": [9, 3]},
    )
    assert found(public)[MARGINS] == (0, 1)


def test_tables_of_persons_are_not_held_against_tables_of_households(tmp_path: Path) -> None:
    public = folder(
        tmp_path, homes={"x": ["a"], "count": [2]}, people={"x": ["a", "a"], "age": [1, 2], "count": [3, 1]}
    )
    pl.DataFrame({"hid": [1, 2], "x": ["a", "a"]}).write_parquet(public / "data.parquet")
    pl.DataFrame({"hid": [1, 1, 1, 2], "x": ["a"] * 4, "age": [1, 1, 1, 2]}).write_parquet(public / "persons.parquet")
    assert found(public, records=["data", "persons"])[MARGINS] == (0, 0)


def test_numbers_of_records_are_values_and_no_counts(tmp_path: Path) -> None:
    public = folder(tmp_path, data={"x": ["a"], "count": [2]})
    pl.DataFrame({"x": ["a"], "value": [-3]}).write_csv(public / "data.csv")
    assert found(public, records=["data"])[NEGATIVE] == (0, 1)


def test_combinations_that_cannot_exist_are_found_in_tables_and_records(tmp_path: Path) -> None:
    public = folder(tmp_path, a={"age": ["child", "child", "adult"], "work": ["yes", "no", "yes"], "count": [2, 5, 9]})
    pl.DataFrame({"age": ["child", "adult"], "work": ["yes", "yes"]}).write_parquet(public / "data.parquet")
    assert found(public, records=["data"], zeros=[{"age": ["child"], "work": ["yes"]}])[IMPOSSIBLE] == (2, 5)
    assert found(public, zeros=[{"age": ["child"], "rent": ["yes"]}])[IMPOSSIBLE] == (0, 0)


def test_a_file_that_is_too_large_is_named_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = folder(tmp_path, a={"x": ["u"], "count": [-2]})
    monkeypatch.setattr(module, "MOST_BYTES", 3)
    seen = facial_validity(public, KIND)
    assert seen.skipped == ("tables/a.csv",)
    assert seen.clean


def test_a_report_counts_what_its_own_tables_show_and_the_zeros_of_the_codebook(tmp_path: Path) -> None:
    zero = (
        '[[structural_zeros]]\nname = "east"\nfile = "households"\nwhen = { county = ["East"], tenure = ["owned"] }\n'
    )
    others = households(240).filter((pl.col("county") != "East") | (pl.col("tenure") != "owned"))
    case = Case(
        plan=f'{DECLARED}{NOISY.replace("rho = 1", "rho = 0.001")}[[tables]]\nvariables = ["county", "tenure"]\n'
        '[[tables]]\nvariables = ["county"]\n',
        truth=lambda: {"homes.parquet": others},
        change=lambda truth, rng: truth,
        beside={"codebook.toml": CODEBOOK_OF_HOMES + zero},
    )  # fmt: skip
    out = run(laid_out(case, case.truth(), tmp_path / "noisy"), entropy=Entropy.from_seed("odd"))
    page = (out / "public" / "report.html").read_text(encoding="utf-8")
    seen = {each["what"]: each for each in facts_in(page)["validity"]["findings"]}
    fine, coarse = (pl.read_csv(out / "public" / "tables" / f"{name}.csv") for name in ("county-x-tenure", "county"))
    counts = pl.concat([fine["count"], coarse["count"]])
    assert seen[NEGATIVE]["found"] == (counts < 0).sum() > 0
    sums = fine.group_by("county").agg(pl.col("count").sum()).join(coarse, on="county")
    assert seen[MARGINS]["found"] == (sums["count"] != sums["count_right"]).sum() > 0
    east = fine.filter(county="East", tenure="owned")["count"].item()
    assert seen[IMPOSSIBLE]["found"] == int(east != 0)
    assert seen[IMPOSSIBLE]["looked_at"] == fine.height
    assert "Facial validity and transparency" in page
    assert "Facial validity and transparency" in (out / "internal" / "report.html").read_text(encoding="utf-8")


def test_a_setting_that_stays_inside_is_named_and_no_value_of_it(tmp_path: Path) -> None:
    out = run(laid_out(CASES["permutation"], CASES["permutation"].truth(), tmp_path / "p"), entropy=Entropy.from_os())
    specification = from_json((out / "public" / "specification.json").read_text(encoding="utf-8"))
    kind = mechanism_class("cell-key")
    settings = settings_for("cell-key", {"ptable": "ptable.csv", "key": "secret.key"}).public()
    told = {each.what: each for each in transparency(kind, settings, specification, code="stirred 1", exact="nothing")}
    assert told["its settings"].public == "in part"
    assert told["its settings"].words.endswith("kept inside: key")
    assert "secret" not in str(told)
    assert told["the random numbers"].public == told["what was drawn"].public == "no"
    # Keys of cells may come from a file of the custodian's, which stays.
    assert "the key was destroyed" not in told["the random numbers"].words
