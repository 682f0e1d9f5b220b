"""Cell keys from plan to publication, alone and after a swap; everything by the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.release.bundles import CODEBOOK_OF_HOMES, households, persons, stirred

PLAN = """
[data]
households = "homes.parquet"
codebook = "codebook.toml"
[mechanism]
name = "cell-key"
ptable = "ptable.csv"
{settings}
[[tables]]
variables = ["county", "tenure"]
{tables}
[release]
out = "out"
accept = [{accept}]
{ledger}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    households().write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "codebook.toml").write_text(CODEBOOK_OF_HOMES)
    assert stirred("ptable", "design", "--D", "2", "--V", "9/10", "--out", "ptable.csv", cwd=tmp_path).returncode == 0
    assert stirred("ptable", "key", "record.key", cwd=tmp_path).returncode == 0
    return tmp_path


def written(folder: Path, **given: str) -> Path:
    parts = {"settings": "", "tables": "", "accept": '"large-delta"', "ledger": "", **given}
    (folder / "plan.toml").write_text(PLAN.format(**parts))
    return folder


def done(folder: Path, *command: str | Path) -> Any:
    result = stirred(*command, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result


def test_a_plan_says_delta_and_its_doubt_refuses(folder: Path) -> None:
    written(folder, accept="")
    plan = json.loads(stirred("plan", "plan.toml", "--json", cwd=folder).stdout)
    assert plan["delta"]["delta_at_1"] == pytest.approx(0.6375)
    refused = stirred("release", "plan.toml", cwd=folder)
    assert refused.returncode == 2
    assert "large-delta" in refused.stderr


def test_tables_go_through_bundle_report_audit_and_publication(folder: Path) -> None:
    written(folder, settings='key = "record.key"\nthreshold = 3', tables='[[tables]]\nvariables = ["county"]')
    done(folder, "release", "plan.toml")
    done(folder, "audit", "bundle", "out")
    done(folder, "publish", "out", "website")
    files = {str(path.relative_to(folder / "website")) for path in (folder / "website").rglob("*") if path.is_file()}
    assert files == {
        "CHECKSUMS.sha256", "README.md", "report.html", "specification.json", "specification.md",
        "tables/county-x-tenure.csv", "tables/county.csv",
    }  # fmt: skip
    promise = json.loads((folder / "website" / "specification.json").read_text())
    assert promise["output_premetric"]["name"] == "D_Mult^delta"
    assert promise["input_premetric"]["name"] == "d_SymDiff"
    assert "key" not in promise["mechanism"]["settings"]
    secret = (folder / "record.key").read_text().strip()
    for path in (folder / "out").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()
    page = (folder / "website" / "report.html").read_text()
    assert "show the same noise" in page
    assert "Perturbation table" in page
    inside = pl.read_parquet(folder / "out" / "internal" / "cells" / "1.parquet")
    assert {"pre_sd_count", "ckey", "pcv", "pvalue"} <= {*inside.columns}


def test_the_same_plan_with_the_same_key_gives_the_same_tables(folder: Path) -> None:
    written(folder, settings='key = "record.key"')
    tables = []
    for name in ("first", "second"):
        done(folder, "release", "plan.toml")
        tables.append((folder / "out" / "public" / "tables" / "county-x-tenure.csv").read_text())
        (folder / "out").rename(folder / name)
    assert tables[0] == tables[1]


def test_a_promise_that_is_too_good_is_found_by_the_audit(folder: Path) -> None:
    written(folder)
    done(folder, "release", "plan.toml")
    file = folder / "out" / "public" / "specification.json"
    promise = json.loads(file.read_text())
    promise["output_premetric"]["delta"] = "1/1000"
    file.write_text(json.dumps(promise))
    found = stirred("audit", "bundle", "out", cwd=folder)
    assert found.returncode == 1
    assert "is not what the perturbation table gives" in " ".join((found.stdout + found.stderr).split())


def test_a_ledger_accounts_for_cell_keys(folder: Path) -> None:
    done(folder, "ledger", "init", "ledger.db", "--dataset", "homes")
    written(folder, ledger='ledger = "ledger.db"')
    done(folder, "release", "plan.toml")
    shown = done(folder, "ledger", "show", "ledger.db").stdout
    assert "cell-key" in shown


def test_a_key_that_others_may_read_is_refused(folder: Path) -> None:
    (folder / "record.key").chmod(0o644)
    written(folder, settings='key = "record.key"')
    refused = stirred("plan", "plan.toml", cwd=folder)
    assert refused.returncode == 2
    assert "others may read it" in refused.stderr
    assert "chmod 600 record.key" in refused.stderr


AFTER = '[mechanism.after]\nname = "permutation-swap"\nmatch = ["size"]\nswap = ["county"]\nrate = "1/2"'


def test_a_swap_and_cell_keys_are_one_plan_with_the_loss_of_the_swap(folder: Path) -> None:
    swap = '[data]\nhouseholds = "homes.parquet"\ncodebook = "codebook.toml"\n' + AFTER.replace(".after", "")
    (folder / "swap.toml").write_text(swap + '\n[release]\nout = "other"\n')
    alone = json.loads(done(folder, "plan", "swap.toml", "--json").stdout)
    written(folder, settings=AFTER, accept="")
    both = json.loads(done(folder, "plan", "plan.toml", "--json").stdout)
    for block in ("input_premetric", "output_premetric", "budget"):
        assert both["specification"][block] == alone["specification"][block], block
    done(folder, "release", "plan.toml")
    done(folder, "audit", "bundle", "out")
    assert not [*(folder / "out" / "public").glob("data.*")]
    page = " ".join((folder / "out" / "public" / "README.md").read_text().split())
    assert "They do not make this loss smaller" in page
    done(folder, "publish", "out", "website")


def test_after_a_swap_tables_of_persons_are_perturbed_too(folder: Path) -> None:
    persons(households()).write_parquet(folder / "people.parquet")
    text = CODEBOOK_OF_HOMES + '[[variables]]\nname = "age"\nfile = "persons"\ntype = "integer"\nmin = 0\nmax = 90\n'
    text += '[[variables]]\nname = "pid"\nfile = "persons"\ntype = "id"\n[link]\nhid = "hid"\n'
    (folder / "codebook.toml").write_text(
        text.replace('[[variables]]\nname = "hid"\nfile = "households"\ntype = "id"\n', "")
    )
    written(folder, settings=AFTER, tables='[[tables]]\nvariables = ["county", "age"]', accept="")
    plan = (
        (folder / "plan.toml").read_text().replace("codebook", 'persons = "people.parquet"\nhid = "hid"\ncodebook', 1)
    )
    (folder / "plan.toml").write_text(plan)
    done(folder, "release", "plan.toml")
    table = pl.read_csv(folder / "out" / "public" / "tables" / "county-x-age.csv")
    assert table.height == 4 * 91


def test_plans_of_cell_keys_are_compared_with_swaps(folder: Path) -> None:
    written(folder)
    swap = '[data]\nhouseholds = "homes.parquet"\ncodebook = "codebook.toml"\n' + AFTER.replace(".after", "")
    (folder / "swap.toml").write_text(swap + '\n[release]\nout = "other"\n')
    compared = done(folder, "compare", "plan.toml", "swap.toml").stdout
    assert "delta" in compared


def test_sums_go_through_bundle_audit_and_publication(folder: Path) -> None:
    written(folder, settings='magnitude = { column = "size" }', accept='"nothing-promised"')
    done(folder, "release", "plan.toml")
    done(folder, "audit", "bundle", "out")
    done(folder, "publish", "out", "website", "--accept", "nothing-promised")
    sums = pl.read_parquet(folder / "website" / "sums-county-x-tenure.parquet")
    assert sums.columns == ["county", "tenure", "sum"]
    assert sums.height == pl.read_csv(folder / "website" / "tables" / "county-x-tenure.csv").height


def test_what_cannot_be_looked_up_is_refused_before_anything_is_spent(folder: Path) -> None:
    done(folder, "ledger", "init", "ledger.db", "--dataset", "homes")
    written(folder, settings='keys = "additive"\nrecord_key = "nokey"', ledger='ledger = "ledger.db"')
    refused = stirred("release", "plan.toml", cwd=folder)
    assert refused.returncode == 2
    assert "there is no column 'nokey'" in refused.stderr
    assert not (folder / "out").exists()
    assert json.loads(done(folder, "ledger", "show", "ledger.db", "--json").stdout)["entries"] == []
