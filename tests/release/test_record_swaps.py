"""Record swapping from plan to ledger and publication: by the contract, promising nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.world import households, stirred, world

AT_RISK = """
name = "targeted-record-swap"
hierarchy = ["region", "county"]
similar = ["size"]
swaprate = "1/5"
risk_variables = ["age"]
k_anonymity = 2
"""
TARGETED = AT_RISK + 'rate_prior = { "1/10" = "1/2", "1/2" = "1/2" }\n'
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
    return world(tmp_path, homes, people=True)


def done(folder: Path, *command: str | Path, code: int = 0) -> Any:
    result = stirred(*command, cwd=folder)
    assert result.returncode == code, result.stderr
    return result


@pytest.mark.parametrize("mechanism", [TARGETED, PAIRWISE], ids=["targeted", "pairwise"])
def test_a_release_is_made_audited_and_published_by_whoever_answers_for_it(folder: Path, mechanism: str) -> None:
    plan(folder, mechanism, accept="")
    refused = done(folder, "release", "plan.toml", code=2)
    assert "nothing is promised" in refused.stderr
    plan(folder, mechanism)
    assert "hid (re-issued)" in done(folder, "plan", "plan.toml", "--verbose").stdout
    done(folder, "release", "plan.toml")
    files = {path.name for path in (folder / "out" / "public").iterdir()}
    assert files == {"data.parquet", "persons.parquet", "README.md", "report.html", "specification.json",
                     "specification.md", "tables"}  # fmt: skip
    inside = {path.name for path in (folder / "out" / "internal").iterdir()}
    assert {"pairs.parquet", "unswapped.parquet"} <= inside
    audit = done(folder, "check", "out").stdout
    assert "nothing is promised" in " ".join(audit.split())
    page = " ".join((folder / "out" / "public" / "README.md").read_text().split())
    assert "the loss is infinite" in page
    assert "an interval without a prior gains nothing" in page
    report = (folder / "out" / "public" / "report.html").read_text()
    assert "What is promised" in report
    stopped = done(folder, "publish", "out", "website", code=2)
    assert "nothing is promised: the loss is infinite" in stopped.stderr
    assert not (folder / "website").exists()
    done(folder, "publish", "out", "website", "--accept", "nothing-promised")
    assert not [*(folder / "website").rglob("*pairs*"), *(folder / "website").rglob("*unswapped*")]
    done(folder, "derive", "round", "website", "--base", "5", "--out", "rounded")
    assert "nothing is promised" in (folder / "rounded" / "README.md").read_text()
    released = pl.read_parquet(folder / "out" / "public" / "data.parquet")
    before = pl.read_parquet(folder / "homes.parquet")
    names = ["region", "county", "size"]
    assert released.group_by(names).len().sort(names).equals(before.group_by(names).len().sort(names))


def test_how_many_were_exchanged_is_said_inside_and_nowhere_else(folder: Path) -> None:
    """The setting was published as if it were the number: 5% "and those at risk", where a fifth was exchanged."""
    plan(folder, TARGETED)
    shown = " ".join(done(folder, "plan", "plan.toml").stdout.split())
    assert "all households at risk, and others until 20% of each county are exchanged" in shown
    assert "of 200 households (" in shown
    assert "hid (re-issued)" in shown
    done(folder, "release", "plan.toml", "--quiet")
    pairs = pl.read_parquet(folder / "out" / "internal" / "pairs.parquet").height
    assert f"{2 * pairs:,} of 200 records" in (folder / "out" / "internal" / "report.html").read_text()
    lines = [json.loads(line) for line in (folder / "out" / "internal" / "log.jsonl").read_text().splitlines()]
    assert [line["exchanged"] for line in lines if line["event"] == "swapped"] == [2 * pairs]
    at_most = int(shown.split("at most ")[1].split()[0])
    assert 2 * pairs <= at_most
    for page in ("README.md", "report.html", "specification.md"):
        text = " ".join((folder / "out" / "public" / page).read_text().split())
        assert f"{2 * pairs} of 200" not in text
        assert "at most" not in text or f"at most {at_most}" not in text
        assert "of all and those at risk" not in text
    described = " ".join(done(folder, "mechanism", "show", "targeted-record-swap").stdout.split())
    assert "including those at risk" in described
    other = (folder / "plan.toml").read_text().replace('"1/5"', '"1/4"')
    (folder / "other.toml").write_text(other)
    compared = " ".join(done(folder, "compare", "plan.toml", "other.toml").stdout.split())
    assert "swaprate 20%" in compared
    assert "swaprate 25%" in compared


def test_advice_names_only_what_the_mechanism_has(folder: Path) -> None:
    homes = pl.read_parquet(folder / "homes.parquet")
    homes.with_columns(parish=pl.col("county") + "-1").write_parquet(folder / "homes.parquet")
    plan(folder, TARGETED)
    said = " ".join(done(folder, "plan", "plan.toml", code=2).stderr.split())
    assert 'carry it along (carry_along), or let [[prepare]] drop "parish"' in said
    assert "--hold" not in said


def test_a_person_as_the_record_is_answered_by_the_key_that_was_written(folder: Path) -> None:
    plan(folder, '\nmatch = ["size"]\nswap = ["county"]\nrate = "1/2"\n', accept="")
    text = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(text.replace("[mechanism]", 'record = "person"\n[mechanism]'))
    said = " ".join(done(folder, "plan", "plan.toml", code=2).stderr.split())
    assert "leave record under [data], or unit, out" in said


def test_a_column_that_stays_behind_and_tells_the_place_refuses(folder: Path) -> None:
    homes = pl.read_parquet(folder / "homes.parquet")
    homes.with_columns(parish=pl.col("county") + "-1").write_parquet(folder / "homes.parquet")
    plan(folder, TARGETED)
    refused = done(folder, "release", "plan.toml", code=2)
    assert '"parish" is published unchanged and determines the swap values' in refused.stderr
    plan(folder, TARGETED + 'carry_along = ["parish"]\n')
    done(folder, "release", "plan.toml", "--quiet")
    pairs = pl.read_parquet(folder / "out" / "internal" / "pairs.parquet")
    assert {"hid", "partner of hid"} <= {*pairs.columns}
    assert pairs["hid"].equals(homes["hid"][pairs["row"].to_list()])
    assert pairs["partner of hid"].to_list() == homes["hid"][pairs["partner"].to_list()].to_list()


def test_the_plan_says_what_would_promise_something(folder: Path) -> None:
    plan(folder, TARGETED)
    told = json.loads(done(folder, "plan", "plan.toml", "--json").stdout)
    assert float(told["conditioned_swap"]) > 0
    assert told["obscurity"]["transparent"]["1/10"].startswith("2.1972")
    words = " ".join(done(folder, "plan", "plan.toml", "--verbose").stdout.split())
    assert "each becomes the other with certainty" in words


def words(result: Any) -> str:
    return " ".join(f"{result.stdout} {result.stderr}".split())


PERMUTATION = '\nmatch = ["size"]\nswap = ["region", "county"]\nrate = "1/5"\n'
POLICY = '[[limits]]\nbudget = "20"\noutput = "pure"\nunit = "household"\n[invariants]\nacceptable = "any"\n'


def test_a_ledger_names_the_entry_because_of_which_nothing_is_promised(folder: Path) -> None:
    done(folder, "ledger", "init", "ledger.db", "--dataset", "homes")
    account = 'ledger = "ledger.db"'
    plan(folder, PERMUTATION, accept="", ledger=account)
    done(folder, "release", "plan.toml", "--quiet")
    finite = json.loads(done(folder, "ledger", "total", "ledger.db", "--json").stdout)
    assert finite["unbounded"] == []
    (folder / "out").rename(folder / "first")
    plan(folder, TARGETED, accept="", ledger=account)
    refused = done(folder, "release", "plan.toml", code=2)
    assert 'accept = ["nothing-promised"]' in refused.stderr
    plan(folder, TARGETED, ledger=account)
    assert "because entry 4 promises nothing; without that, ε=" in words(done(folder, "release", "plan.toml"))
    total = json.loads(done(folder, "ledger", "total", "ledger.db", "--json").stdout)
    assert total["unbounded"] == [4]
    assert total["parts"][0]["specification"]["budget"]["realised"] == "inf"
    assert total["without_them"]["parts"] == finite["parts"]
    assert "NO BOUND: entry 4, targeted-record-swap" in done(folder, "ledger", "total", "ledger.db").stdout
    done(folder, "publish", "out", "website", "--accept", "nothing-promised")
    shown = words(done(folder, "ledger", "show", "ledger.db", "4"))
    assert "release accept nothing-promised" in shown
    assert "published to website" in shown
    assert "who accepted nothing-promised" in shown


def test_a_policy_with_a_limit_refuses_what_has_no_bound_and_what_comes_after(folder: Path) -> None:
    (folder / "policy.toml").write_text(POLICY)
    done(folder, "ledger", "init", "ledger.db", "--dataset", "homes", "--policy", "policy.toml")
    plan(folder, TARGETED, ledger='ledger = "ledger.db"')
    refused = words(done(folder, "release", "plan.toml", code=2))
    assert "this release has an infinite loss, which promises nothing: no bound is within the limit ε ≤ 20" in refused
    assert "0 entries" in words(done(folder, "ledger", "show", "ledger.db"))
    plan(folder, TARGETED)
    done(folder, "release", "plan.toml", "--quiet")
    done(folder, "ledger", "add", "ledger.db", "out")  # it happened all the same
    (folder / "out").rename(folder / "first")
    plan(folder, PERMUTATION, accept="", ledger='ledger = "ledger.db"')
    later = words(done(folder, "release", "plan.toml", code=2))
    assert "because entry 1 promises nothing: no bound is within the limit" in later
    assert "nothing is left" in words(done(folder, "ledger", "policy", "ledger.db"))


def test_what_is_derived_from_a_release_without_bound_is_not_among_the_others(folder: Path) -> None:
    done(folder, "ledger", "init", "ledger.db", "--dataset", "homes")
    plan(folder, TARGETED)
    done(folder, "release", "plan.toml", "--quiet")
    done(folder, "ledger", "add", "ledger.db", "out")
    done(folder, "ledger", "add", "ledger.db", "--derived-from", "1", "--mechanism", "rounding")
    total = json.loads(done(folder, "ledger", "total", "ledger.db", "--json").stdout)
    assert total["unbounded"] == [1]
    assert total["free"][0]["entries"] == [2]
    assert total["without_them"]["parts"] == total["without_them"]["free"] == []


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
