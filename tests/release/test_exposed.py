"""Records that are unique on what is published unchanged: a doubt above a share that policy sets."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from stirred import PermutationSwap
from stirred.mechanisms.tables.cellkey.design import design_ptable
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.randomness import Entropy
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.spec.doubts import DoubtError
from tests.world import PLAN_OF_HOMES, households, persons, stirred

WITH_PERSONS = PLAN_OF_HOMES.replace(
    'id = ["hid"]', 'persons = "persons.parquet"\nhid = "hid"\nid = ["pid"]\nrecord = "household"'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """60 households, of which tenure and size make nobody unique, and the ages of their persons nearly everybody."""
    homes = households(60)
    homes.write_parquet(tmp_path / "homes.parquet")
    persons(homes).write_parquet(tmp_path / "persons.parquet")
    (tmp_path / "plan.toml").write_text(WITH_PERSONS, encoding="utf-8")
    return tmp_path


def test_a_release_of_unique_records_needs_a_persons_word(folder: Path) -> None:
    done = stirred("release", "plan.toml", "--quiet", cwd=folder)
    said = " ".join(done.stderr.split())
    assert done.returncode == 2
    assert "% of the households are unique on what is published unchanged (size, tenure, age)" in said
    assert "finds its record, and reads the rest of it. The default allows 33.3%" in said
    assert 'accept it: accept = ["exposed"] under [release].' in said
    assert "--accept" not in said  # `stirred release PLAN` has no such option
    assert not (folder / "out").exists()
    (folder / "plan.toml").write_text(WITH_PERSONS + 'accept = ["exposed"]\n', encoding="utf-8")
    assert stirred("release", "plan.toml", "--quiet", cwd=folder).returncode == 0
    for page in ("specification.md", "README.md"):
        assert "exposed (more records than the policy allows are unique" in " ".join(
            (folder / "out" / "public" / page).read_text(encoding="utf-8").split()
        )


def test_a_place_that_is_taken_and_a_second_run_refuse_before_anything_is_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = folder / "plan.toml"
    plan.write_text(PLAN_OF_HOMES + 'ledger = "homes.ledger"\n', encoding="utf-8")
    assert stirred("ledger", "init", "homes.ledger", "--dataset", "homes", cwd=folder).returncode == 0
    assert stirred("release", "plan.toml", "--quiet", cwd=folder).returncode == 0

    def looked(*_: object) -> None:
        raise AssertionError("doubts were looked for")

    monkeypatch.setattr("stirred.mechanisms.records.engine.Swap.doubts", looked)
    done = stirred("release", "plan.toml", "--quiet", cwd=folder)
    assert (done.returncode, "something is already there" in done.stderr) == (2, True)
    plan.write_text(plan.read_text(encoding="utf-8").replace('"out"', '"again"'), encoding="utf-8")
    done = stirred("release", "plan.toml", "--quiet", cwd=folder)
    assert (done.returncode, "Entry 1 ran this plan on this file before" in done.stderr) == (2, True)


def test_python_refuses_what_the_command_refuses(folder: Path) -> None:
    """Doubts are one list: a release in Python needs the same word."""
    prepared = prepare(read_plan(folder / "plan.toml"))
    mechanism, data = prepared.mechanism, prepared.data
    own = mechanism.plan(data)
    for given in (None, own, prepared.plan):
        with pytest.raises(DoubtError, match="are unique on what is published unchanged"):
            mechanism.release(data, Entropy.from_os(), plan=given)
    assert "are unique on what is published unchanged" in " ".join(str(own).split())
    release = mechanism.release(data, Entropy.from_os(), accept=["exposed"])
    assert any("exposed (more records" in line for line in release.specification.assumptions)


def test_a_release_is_judged_by_the_policy_of_its_plan(folder: Path) -> None:
    (folder / "policy.toml").write_text("exposed_share = 1\n", encoding="utf-8")
    assert (
        stirred("ledger", "init", "a.ledger", "--dataset", "homes", "--policy", "policy.toml", cwd=folder).returncode
        == 0
    )
    (folder / "plan.toml").write_text(WITH_PERSONS + 'ledger = "a.ledger"\n', encoding="utf-8")
    prepared = prepare(read_plan(folder / "plan.toml"))
    assert prepared.mechanism.release(prepared.data, Entropy.from_os(), plan=prepared.plan)
    with pytest.raises(DoubtError, match="The default allows"):
        prepared.mechanism.release(prepared.data, Entropy.from_os())


def test_records_that_stay_inside_expose_no_one() -> None:
    """Cell keys after a swap publish tables alone, and their swap is not refused for its records."""
    homes = households(60).with_columns(rooms=pl.int_range(60)).drop("hid")
    swap = PermutationSwap(rate="1/2", match=["size"], swap=["county"])
    with pytest.raises(DoubtError, match="unique on what is published unchanged"):
        swap.release(homes, Entropy.from_os(), accept=["identifier:rooms"])
    after = {"name": "permutation-swap", "rate": "1/2", "match": ["size"], "swap": ["county"]}
    values = {name: homes[name].unique().sort().to_list() for name in ("county", "rooms")}
    table = design_ptable(D=2, V=Fraction(9, 10)).table
    keys = CellKey(ptable=table, tables=[["county", "rooms"]], values=values, after=after)
    accept = [doubt.name for doubt in keys.plan(homes).doubts if doubt.refuses]
    assert "exposed" not in accept
    assert keys.release(homes, Entropy.from_os(), accept=accept)


def test_records_that_share_what_is_unchanged_raise_no_doubt(folder: Path) -> None:
    """The power check: the same file without its persons."""
    (folder / "plan.toml").write_text(PLAN_OF_HOMES, encoding="utf-8")
    assert stirred("plan", "plan.toml", cwd=folder).returncode == 0


def test_a_plan_may_be_stricter_and_never_laxer(folder: Path) -> None:
    homes = households(60).with_columns(rooms=pl.Series([*range(100, 106), *[1] * 54]))  # one in ten is unique
    homes.write_parquet(folder / "homes.parquet")
    plan = folder / "plan.toml"
    plan.write_text(PLAN_OF_HOMES, encoding="utf-8")
    assert stirred("plan", "plan.toml", cwd=folder).returncode == 0
    plan.write_text(PLAN_OF_HOMES + 'exposed_share = "5%"\n', encoding="utf-8")
    done = stirred("plan", "plan.toml", cwd=folder)
    assert done.returncode == 2
    assert "The plan allows 5%" in done.stderr
    plan.write_text(WITH_PERSONS + "exposed_share = 7\n", encoding="utf-8")
    done = stirred("plan", "plan.toml", cwd=folder)
    assert done.returncode == 2
    assert "exposed_share: 7 is not a probability" in done.stderr


@pytest.mark.parametrize(("share", "code"), [("1", 0), ('"1/100"', 2)])
def test_the_policy_of_a_ledger_sets_the_share(folder: Path, share: str, code: int) -> None:
    (folder / "policy.toml").write_text(f"exposed_share = {share}\n", encoding="utf-8")
    made = stirred("ledger", "init", "homes.ledger", "--dataset", "homes", "--policy", "policy.toml", cwd=folder)
    assert made.returncode == 0, made.stderr
    (folder / "plan.toml").write_text(WITH_PERSONS + 'ledger = "homes.ledger"\n', encoding="utf-8")
    done = stirred("plan", "plan.toml", cwd=folder)
    assert done.returncode == code, done.stderr
    assert ("The policy of the ledger allows 1%" in done.stderr) is bool(code)
    said = stirred("ledger", "policy", "homes.ledger", cwd=folder).stdout
    assert "unique records: at most" in " ".join(said.split())


def test_a_share_that_is_none_is_refused_in_a_policy(folder: Path) -> None:
    (folder / "policy.toml").write_text("exposed_share = 3\n", encoding="utf-8")
    done = stirred("ledger", "init", "homes.ledger", "--dataset", "homes", "--policy", "policy.toml", cwd=folder)
    assert done.returncode == 2
    assert "exposed_share: 3 is not a probability" in done.stderr


def test_a_plan_that_would_be_laxer_than_the_default_is_refused_and_not_passed_over(folder: Path) -> None:
    (folder / "plan.toml").write_text(WITH_PERSONS + 'exposed_share = "1/2"\n', encoding="utf-8")
    done = stirred("plan", "plan.toml", cwd=folder)
    assert done.returncode == 2
    assert "[release] exposed_share: 50% is more than 33.3%, which the default allows" in " ".join(done.stderr.split())
    assert "accept = ['exposed']" in done.stderr
