"""Record swapping from plan to bundle: by the contract, and never published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.release.bundles import households, persons, stirred

TARGETED = """
name = "targeted-record-swap"
hierarchy = ["region", "county"]
similar = ["size"]
swaprate = "1/5"
risk_variables = ["age"]
k_anonymity = 2
rate_prior = { "1/10" = "1/2", "1/2" = "1/2" }
"""
PAIRWISE = """
name = "pairwise-swap-2010"
state = "region"
geography = ["county"]
adults = "size"
minors = "minors"
tenure = "tenure"
unique_on = ["age"]
unique_in = "county"
by_block_size = { 100 = "1/4" }
race = "race"
unique_race = "1/2"
cap = "1/2"
"""


def plan(folder: Path, mechanism: str, *, accept: str = '"nothing-promised"', ledger: str = "") -> None:
    (folder / "plan.toml").write_text(
        '[data]\nhouseholds = "homes.parquet"\npersons = "people.parquet"\nhid = "hid"\nid = ["pid"]\n'
        f'[mechanism]{mechanism}[[tables]]\nvariables = ["county", "tenure"]\n'
        f'[release]\nout = "out"\naccept = [{accept}]\n{ledger}'
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    homes = households(200).with_columns(
        region=pl.col("county").replace_strict({"East": "E", "North": "N", "South": "E", "West": "N"}),
        minors=pl.lit(0),
        race=pl.lit("w"),
    )
    homes.write_parquet(tmp_path / "homes.parquet")
    persons(homes).write_parquet(tmp_path / "people.parquet")
    return tmp_path


def done(folder: Path, *command: str | Path, code: int = 0) -> Any:
    result = stirred(*command, cwd=folder)
    assert result.returncode == code, result.stderr
    return result


@pytest.mark.parametrize("mechanism", [TARGETED, PAIRWISE], ids=["targeted", "pairwise"])
def test_a_release_is_made_audited_and_never_published(folder: Path, mechanism: str) -> None:
    plan(folder, mechanism, accept="")
    refused = done(folder, "release", "plan.toml", code=2)
    assert "nothing is promised" in refused.stderr
    plan(folder, mechanism)
    done(folder, "release", "plan.toml")
    files = {path.name for path in (folder / "out" / "public").iterdir()}
    assert files == {"data.parquet", "persons.parquet", "README.md", "report.html", "specification.json",
                     "specification.md", "tables"}  # fmt: skip
    inside = {path.name for path in (folder / "out" / "internal").iterdir()}
    assert {"pairs.parquet", "unswapped.parquet"} <= inside
    audit = done(folder, "audit", "bundle", "out").stdout
    assert "nothing is promised" in " ".join(audit.split())
    page = " ".join((folder / "out" / "public" / "README.md").read_text().split())
    assert "the loss is infinite" in page
    assert "an interval without a prior gains nothing" in page
    report = (folder / "out" / "public" / "report.html").read_text()
    assert "What is promised" in report
    stopped = done(folder, "publish", "out", "website", code=2)
    assert "infinite" in stopped.stderr or "promised" in stopped.stderr
    released = pl.read_parquet(folder / "out" / "public" / "data.parquet")
    before = pl.read_parquet(folder / "homes.parquet")
    names = ["region", "county", "size"]
    assert released.group_by(names).len().sort(names).equals(before.group_by(names).len().sort(names))


def test_the_plan_says_what_would_promise_something(folder: Path) -> None:
    plan(folder, TARGETED)
    told = json.loads(done(folder, "plan", "plan.toml", "--json").stdout)
    assert float(told["conditioned_swap"]) > 0
    assert told["obscurity"]["transparent"]["1/10"].startswith("2.1972")
    words = " ".join(done(folder, "plan", "plan.toml", "--verbose").stdout.split())
    assert "each becomes the other with certainty" in words


def test_a_ledger_keeps_no_account_of_what_promises_nothing(folder: Path) -> None:
    done(folder, "ledger", "init", "ledger.db", "--dataset", "homes")
    plan(folder, TARGETED, ledger='ledger = "ledger.db"')
    refused = done(folder, "release", "plan.toml", code=2)
    assert "the loss would be infinite" in refused.stderr


def test_plans_are_compared_with_a_permutation_swap(folder: Path) -> None:
    plan(folder, TARGETED)
    (folder / "plan.toml").rename(folder / "targeted.toml")
    plan(folder, '\nmatch = ["size"]\nswap = ["region", "county"]\nrate = "1/5"\n', accept="")
    compared = done(folder, "compare", "targeted.toml", "plan.toml").stdout
    assert "inf" in compared


def test_swapped_records_are_perturbed_by_cell_keys_in_one_plan(folder: Path) -> None:
    done(folder, "ptable", "design", "--D", "2", "--V", "9/10", "--out", "ptable.csv")
    codes = {"county": ["East", "North", "South", "West"], "tenure": ["owned", "rented"], "region": ["E", "N"]}
    text = "".join(
        f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "code"\ncodes = {{ '
        + ", ".join(f'{value} = ""' for value in values) + " }\n"
        for name, values in codes.items()
    )  # fmt: skip
    for name, file in (("size", "households"), ("minors", "households"), ("age", "persons")):
        text += f'[[variables]]\nname = "{name}"\nfile = "{file}"\ntype = "integer"\nmin = 0\nmax = 99\n'
    text += '[[variables]]\nname = "race"\nfile = "households"\ntype = "text"\n'
    text += '[link]\nhid = "hid"\nid = ["pid"]\n'
    (folder / "codebook.toml").write_text(text)
    plan(folder, '\nname = "cell-key"\nptable = "ptable.csv"\n[mechanism.after]' + TARGETED)
    written = (folder / "plan.toml").read_text().replace('hid = "hid"', 'hid = "hid"\ncodebook = "codebook.toml"', 1)
    (folder / "plan.toml").write_text(written)
    done(folder, "release", "plan.toml")
    assert not [*(folder / "out" / "public").glob("data.*")]
    promise = json.loads((folder / "out" / "public" / "specification.json").read_text())
    assert promise["budget"]["realised"] == "inf"
