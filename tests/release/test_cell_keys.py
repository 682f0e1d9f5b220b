"""Cell keys from plan to publication, alone and after a swap; everything by the contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.data.missing import MISSING_CODE
from tests.world import CODEBOOK_OF_HOMES, households, persons, stirred, world

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
    world(tmp_path, codebook=True)
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
    said = " ".join(refused.stderr.split())
    assert "Fix: publish noisy-tables, whose noise is not bounded" in said
    assert "or fewer tables" not in said  # there is one


def test_tables_go_through_bundle_report_audit_and_publication(folder: Path) -> None:
    written(folder, settings='key = "record.key"\nthreshold = 3', tables='[[tables]]\nvariables = ["county"]')
    done(folder, "release", "plan.toml")
    done(folder, "check", "out")
    done(folder, "publish", "out", "website")
    files = {str(path.relative_to(folder / "website")) for path in (folder / "website").rglob("*") if path.is_file()}
    assert files == {
        "CHECKSUMS.sha256", "README.md", "report.html", "specification.json", "specification.md",
        "tables/county-x-tenure.csv", "tables/county.csv",
    }  # fmt: skip
    assert "A published count of 3 and more " in (folder / "website" / "report.html").read_text()
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
    inside = pl.read_parquet(folder / "out" / "internal" / "noise" / "1.parquet")
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
    found = stirred("check", "out", cwd=folder)
    assert found.returncode == 1
    said = " ".join((found.stdout + found.stderr).split())
    assert "specification.json output_premetric: it says" in said
    assert "and the settings give" in said


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
    done(folder, "check", "out")
    assert not [*(folder / "out" / "public").glob("data.*")]
    page = " ".join((folder / "out" / "public" / "README.md").read_text().split())
    assert "cell keys are not counted on to make the loss smaller" in page
    done(folder, "publish", "out", "website")


def test_what_the_swap_keeps_is_called_published_nowhere(folder: Path) -> None:
    """Margins of a swap stay inside: no page says that they are published, and none shows who is alone in them."""
    # "tract" tells the county, but no table has it; counts of one county and size alone are 1.
    homes = households().with_columns(
        tract=pl.col("county") + "-1", size=pl.when(pl.col("hid") < 5002).then(3).otherwise("size")
    )
    homes.write_parquet(folder / "homes.parquet")
    tract = '[[variables]]\nname = "tract"\nfile = "households"\ntype = "code"\ncodes = { '
    codes = ", ".join(f'{name}-1 = ""' for name in ("East", "North", "South", "West"))
    (folder / "codebook.toml").write_text(CODEBOOK_OF_HOMES + tract + codes + " }\n")
    written(folder, settings=AFTER, accept="")
    plan = json.loads(done(folder, "plan", "plan.toml", "--json").stdout)
    assert plan["exposed"] is None
    assert [each for each in plan["doubts"] if each["refuses"]] == []  # "tract" determines the county, and stays inside
    assert "delta" not in plan
    said = " ".join(done(folder, "plan", "plan.toml", "--verbose").stdout.split())
    assert "unchanged nothing; permutation swapping keeps, and this release does not publish, the number" in said
    assert "exposed" not in said
    assert "delta of the cell keys alone, for one household more or less and without the swap: 0.6375" in said
    done(folder, "release", "plan.toml")
    for name in ("report.html", "README.md", "specification.md"):
        page = (folder / "out" / "public" / name).read_text()
        for false in ("Published exactly: the number", "unique on what is", "published unchanged", "60 household",
                      "right on average", "Past the mechanism"):  # fmt: skip
            assert false not in page, (name, false)
    assert "of these figures none is published" in page_of(folder, "specification.md")
    assert "counts after permutation swapping, which are not the true ones on average" in page_of(folder, "README.md")


def page_of(folder: Path, name: str) -> str:
    return " ".join((folder / "out" / "public" / name).read_text().split())


@pytest.mark.parametrize(
    ("settings", "true", "false"),
    [
        ("", "Noise is 0 on average.", "too large"),
        ("threshold = 3", "only the larger results are shown, which are too large on average", "right on average"),
        (f"threshold = 3\n{AFTER}", "the output tells these tables of the swapped file", "No smaller loss"),
        (f"threshold = 4\n{AFTER}", "No smaller loss is proven for both together", "the output tells"),
    ],
)
def test_pages_say_of_averages_and_outputs_what_is_true(folder: Path, settings: str, true: str, false: str) -> None:
    written(folder, settings=settings, accept="" if "after" in settings else '"large-delta"')
    done(folder, "release", "plan.toml")
    page = page_of(folder, "README.md")
    assert true in page
    assert false not in page


def test_epsilon_and_delta_bound_probabilities_and_not_odds(folder: Path) -> None:
    """An empty cell against one household: the output 0 changes odds by 80/29 > e, with certainty."""
    written(folder)
    done(folder, "release", "plan.toml")
    for name in ("README.md", "report.html"):
        page = page_of(folder, name)
        assert "is at most e^1 times as probable under one as under the other, plus 0.6375" in page
        assert "except with probability" not in page


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
    done(folder, "check", "out")
    done(folder, "publish", "out", "website", "--accept", "nothing-promised")
    assert not [*(folder / "website").glob("sums-*")]  # they stand beside the counts, in the same format
    sums = pl.read_csv(folder / "website" / "tables" / "sums-county-x-tenure.csv")
    assert sums.columns == ["county", "tenure", "sum"]
    assert sums.height == pl.read_csv(folder / "website" / "tables" / "county-x-tenure.csv").height


@pytest.mark.parametrize("after", ["", AFTER])
def test_plan_report_and_doubts_name_the_column_whose_sums_are_published(folder: Path, after: str) -> None:
    earning = households().with_columns(income=pl.col("hid") % 7 * 100)
    earning.write_parquet(folder / "homes.parquet")
    income = '[[variables]]\nname = "income"\nfile = "households"\ntype = "integer"\nmin = 0\nmax = 1000\n'
    (folder / "codebook.toml").write_text(CODEBOOK_OF_HOMES + income)
    accept = "" if after else '"nothing-promised"'
    written(folder, settings=f'magnitude = {{ column = "income" }}\n{after}', accept=accept)
    plan = json.loads(done(folder, "plan", "plan.toml", "--json").stdout)
    assert "income" not in plan["dropped"]
    said = " ".join(done(folder, "plan", "plan.toml").stdout.split())
    assert "every sum of income in these cells" in said
    assert after or "nothing is promised: sums of income are published" in said
    done(folder, "release", "plan.toml")
    page = page_of(folder, "report.html")
    assert "every sum of income" in page
    assert "Columns not released: hid, size." in page


def test_what_cannot_be_looked_up_is_refused_before_anything_is_spent(folder: Path) -> None:
    done(folder, "ledger", "init", "ledger.db", "--dataset", "homes")
    written(folder, settings='keys = "additive"\nrecord_key = "nokey"', ledger='ledger = "ledger.db"')
    refused = stirred("release", "plan.toml", cwd=folder)
    assert refused.returncode == 2
    assert 'there is no column "nokey" (named in record_key)' in refused.stderr
    assert not (folder / "out").exists()
    assert json.loads(done(folder, "ledger", "show", "ledger.db", "--json").stdout)["entries"] == []


def test_missing_values_that_are_a_code_have_a_declared_cell(folder: Path) -> None:
    homes = households().with_columns(tenure=pl.when(pl.col("hid") % 5 > 0).then("tenure"))
    homes.write_parquet(folder / "homes.parquet")
    codes = CODEBOOK_OF_HOMES.replace("codes = { owned", "missing = true\ncodes = { owned")
    (folder / "codebook.toml").write_text(codes)
    assert codes != CODEBOOK_OF_HOMES
    written(folder)
    plan = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(plan.replace("[mechanism]", 'missing_as = "code"\n[mechanism]', 1))
    done(folder, "release", "plan.toml", "--quiet")
    table = pl.read_csv(folder / "out" / "public" / "tables" / "county-x-tenure.csv")
    assert {*table["tenure"]} == {"owned", "rented", MISSING_CODE}
    assert table.filter(pl.col("tenure") == MISSING_CODE)["count"].sum() > 0
