"""What is published exactly is read back and counted anew: a file that is wrong never appears."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.data.frames import write_parts
from stirred.mechanisms.protocol import VerificationError
from stirred.mechanisms.records import evidence as verification
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.run import run
from tests.world import CODEBOOK_OF_HOMES, PLAN_OF_HOMES, households, listing, persons

NOISY = PLAN_OF_HOMES.replace("homes.parquet", "declared.parquet").replace(
    "[mechanism]", 'codebook = "codes.toml"\n[mechanism]\nname = "noisy-swap"\nnoise_epsilon = "1"'
)
IMPUTED = PLAN_OF_HOMES.replace('rate = "1/2"', 'rate = "1/2"\nimputed = "imputed"')
PEOPLE = PLAN_OF_HOMES.replace('id = ["hid"]', 'hid = "hid"\npersons = "people.parquet"')
RESPONSE = PLAN_OF_HOMES.replace(
    "[mechanism]",
    '[mechanism]\nname = "response-swap"\nrespond = "tenure"\nvalues = ["owned", "rented"]\nchange = "1/10"',
)
ALONE = RESPONSE.replace("[[tables]]", 'hold = ["tenure"]\n[[tables]]')  # nothing else is held
UNMATCHED = PLAN_OF_HOMES.replace('match = ["size"]', "match = []")
PLANS = {
    "permutation": PLAN_OF_HOMES,
    "imputed": IMPUTED,
    "persons": PEOPLE,
    "response": RESPONSE,
    "response on the only held variable": ALONE,
    "nothing matched": UNMATCHED,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    homes = households(601).with_columns((pl.col("hid") % 7 == 0).alias("imputed"))
    homes.write_parquet(tmp_path / "homes.parquet")
    homes.drop("imputed").write_parquet(tmp_path / "declared.parquet")
    persons(homes).write_parquet(tmp_path / "people.parquet")
    (tmp_path / "codes.toml").write_text(CODEBOOK_OF_HOMES, encoding="utf-8")
    return tmp_path


def written(folder: Path, plan: str) -> Path:
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    return run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_os())


@pytest.mark.parametrize("name", PLANS)
def test_a_right_release_passes_and_says_what_was_counted(folder: Path, name: str) -> None:
    text = (written(folder, PLANS[name]) / "public" / "report.html").read_text(encoding="utf-8")
    assert "strata.parquet: sizes, counted from the values of the input" in text
    assert "invariants.parquet: " in text


def one_more(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("count") + pl.int_range(pl.len()).eq(0).cast(pl.Int64))


def moved(frame: pl.DataFrame) -> pl.DataFrame:
    """One record is counted in another cell: the sum is right."""
    step = pl.int_range(pl.len()).replace_strict({0: 1, 1: -1}, default=0, return_dtype=pl.Int64)
    return frame.with_columns(pl.col("count") + step)


def exchanged(frame: pl.DataFrame) -> pl.DataFrame:
    """The sizes of strata are right, and stand beside other strata."""
    return frame.with_columns(pl.col("stratum_records").reverse())


def renamed(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(table=pl.lit("something else"))


def other_rate(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(stratum_rate=pl.lit("1/3"))


@pytest.mark.parametrize(
    ("file", "wrong", "what"),
    [
        ("invariants", one_more, "do not add up to the records"),
        ("invariants", moved, "they differ"),
        ("invariants", renamed, "a table that nothing fixes: 'something else'"),
        ("strata", exchanged, "is not the list of strata"),
        ("strata", other_rate, "is not the list of strata"),
    ],
)
@pytest.mark.parametrize("name", ["permutation", "imputed", "persons", "response"])
def test_wrong_invariants_or_strata_destroy_the_bundle(
    folder: Path,
    name: str,
    file: str,
    wrong: Callable[[pl.DataFrame], pl.DataFrame],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def parts_of(parts: Iterable[pl.DataFrame], path: Path, **note: Any) -> None:
        write_parts([wrong(pl.concat(parts))] if path.stem == file else parts, path, **note)

    monkeypatch.setattr("stirred.release.files.write_parts", parts_of)
    before = {*listing(folder)}
    with pytest.raises(VerificationError, match=what):
        written(folder, PLANS[name])
    assert {*listing(folder)} - before == {"plan.toml"}


@pytest.mark.parametrize("wrong", [one_more, moved, renamed])
def test_of_noisy_tables_wrong_sizes_of_strata_destroy_the_bundle(
    folder: Path, wrong: Callable[[pl.DataFrame], pl.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    def parts_of(parts: Iterable[pl.DataFrame], path: Path, **note: Any) -> None:
        write_parts([wrong(pl.concat(parts))] if path.stem == "invariants" else parts, path, **note)

    monkeypatch.setattr("stirred.release.files.write_parts", parts_of)
    with pytest.raises(VerificationError, match="invariants"):
        written(folder, NOISY)
    assert not (folder / "out").exists()


def test_files_too_long_to_be_counted_twice_are_held_to_the_number_of_records(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "ROWS_IN_ONE_FILE", 500)
    text = (written(folder, PLAN_OF_HOMES) / "public" / "report.html").read_text(encoding="utf-8")
    assert "not done: there are more than 500 records" in text
