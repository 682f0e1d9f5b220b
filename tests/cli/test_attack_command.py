"""`stirred attack` on bundles of every kind: swapped records, those of TopDown, noisy and cell-keyed tables."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.synth.census import census

TABLES = "".join(
    f'[[tables]]\nvariables = ["block", {names}]\n'
    for names in ('"sex", "age3"', '"race7", "hispanic"', '"sex", "race7"')
)
DATA = '[data]\nfile = "people.csv"\nrecord = "person"\ncodebook = "codebook.toml"\n[mechanism]\n'
CODES = {
    "sex": ["1", "2"],
    "age3": ["0-17", "18-64", "65+"],
    "race7": ["1", "2", "3", "4", "5", "6", "7"],
    "hispanic": ["0", "1"],
}
MECHANISMS = {
    "swapped": 'name = "permutation-swap"\nmatch = ["county", "sex"]\nswap = ["block"]\nrate = "1/20"\n',
    "noisy": 'name = "noisy-tables"\nrho = 2\nsettings_from = "policy"\n',
    "keyed": 'name = "cell-key"\nptable = "ptable.csv"\nthreshold = 2\n',
    "topdown": 'name = "topdown"\nlevels = ["county", "block"]\nareas = "areas.csv"\nrho = 2\n'
    'attributes = ["sex", "age3", "race7", "hispanic"]\nqueries = ["total", "detailed"]\n'
    'publish = ["measurements", "records"]\n',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("attack")
    homes, persons = census(1_000, seed=1)
    age = pl.when(pl.col("age") < 18).then(pl.lit("0-17")).when(pl.col("age") < 65).then(pl.lit("18-64"))
    people = persons.join(homes.select("hid", "county", "block"), on="hid").select(
        *("county", "block", "sex", "hispanic"), age.otherwise(pl.lit("65+")).alias("age3"),
        pl.col("race").cast(pl.Int64).clip(1, 7).alias("race7"),
    )  # fmt: skip
    people.write_csv(place / "people.csv")
    people.select("county", "block").unique().sort("block").write_csv(place / "areas.csv")
    codes = {**CODES, **{name: [str(code) for code in sorted(people[name].unique())] for name in ("county", "block")}}
    book = '[codebook]\ntitle = "test"\n'
    for name, own in codes.items():
        listed = ", ".join(f'"{code}" = "{code}"' for code in own)
        book += f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "code"\ncodes = {{ {listed} }}\n'
    (place / "codebook.toml").write_text(book, encoding="utf-8")
    assert run(["ptable", "design", "--D", "2", "--V", "9/10", "--out", str(place / "ptable.csv")]) == 0
    for name, section in MECHANISMS.items():
        accept = 'accept = ["large-delta"]\n' if name == "keyed" else ""
        text = f'{DATA}{section}{TABLES}[release]\nout = "{name}"\n{accept}'
        (place / f"{name}.toml").write_text(text, encoding="utf-8")
        assert run(["release", str(place / f"{name}.toml"), "--seed", "test", "--quiet"]) == 0
    return place


def attacked(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["attack", *map(str, arguments), "--quiet", "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("kind", ["noisy", "keyed"])
def test_disturbed_tables_are_fitted_and_beat_chance(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    found = attacked(capsys, folder / kind, "--out", tmp_path / "public")
    assert (found["public"], found["agreement"]) == (True, None)
    assert found["areas_by_outcome"] == {"fitted": found["areas"]}
    assert found["residual"] > 0
    against = attacked(capsys, folder / kind, "--out", tmp_path / "inside", "--truth", folder / f"{kind}.toml")
    assert against["public"] is False
    assert against["agreement"] > against["agreement_by_chance"] + 0.05
    assert found["residual"] == against["residual"]


@pytest.mark.parametrize("kind", ["swapped", "topdown"])
def test_tables_of_released_records_have_exact_solutions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    found = attacked(capsys, folder / kind, "--out", tmp_path / "public")
    assert found["public"] is True
    assert (found["residual"], found["areas_by_outcome"].get("fitted", 0)) == (0, 0)
    assert 0 < found["areas_by_outcome"]["one"] < found["areas"]
    named = attacked(capsys, folder / kind, "--out", tmp_path / "named", "--table", "sex x age3 x race7 x hispanic")
    assert (named["agreement"], named["share_of_areas_with_one_solution"]) == (1.0, 1.0)
    against = attacked(capsys, folder / kind, "--out", tmp_path / "inside", "--truth", folder / f"{kind}.toml")
    assert against["agreement"] < found["agreement"]


def test_screen_says_what_was_fitted_and_what_chance_alone_finds(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    arguments = ["attack", folder / "noisy", "--out", tmp_path / "out", "--truth", folder / "noisy.toml", "--quiet"]
    assert run([*map(str, arguments)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "tables of persons by block, with their noise, from public files alone" in shown
    assert "tables that were disturbed or contradict each other: the nearest" in shown
    assert "(keep this inside)" in shown
    assert "another area of about this size" in shown
    assert "one solution" not in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["noisy", "--tables", "sf"], "no records to count tables from"),
        (["noisy", "--table", "sex"], "no records to count tables from"),
        (["noisy", "--area", "tract"], 'no published table has "tract"'),
        (["people.csv", "--tables", "published"], "a file has published nothing"),
        (["people.csv", "--tables", "sf", "--table", "sex"], "both name the tables"),
        (["people.csv", "--tables", "sf2"], "'sf2' is no list of tables"),
        (["people.csv", "--table", "sex x years"], '"years"'),
        (["people.csv"], 'no column "age", "race"'),
    ],
)
def test_what_cannot_be_attacked_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    capsys.readouterr()
    assert run(["attack", str(folder / options[0]), *options[1:], "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
