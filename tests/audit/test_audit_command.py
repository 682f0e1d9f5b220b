"""`stirred audit` as a user runs it: facts, exit codes and messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run
from tests.release.tampering import retell
from tests.world import SWAP, households, persons

Out = pytest.CaptureFixture[str]


def facts(capsys: Out, *arguments: str, code: int = 0) -> dict[str, Any]:
    assert run([*([] if arguments[0] == "check" else ["audit"]), *arguments, "--json"]) == code
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_swap_prints_the_exact_loss_beside_its_bounds(capsys: Out) -> None:
    found = facts(capsys, "swap", "--hold-margin", "3,2", "--swap-margin", "2,2,1", "--rate", "1/2")
    assert found["exact_loss_expression"] == "1/2*ln(1237/248)"
    assert found["exact_loss"] <= found["sharp_bound"] <= found["theorem_bound"]
    assert found["existential_bound"] <= found["theorem_bound"]
    assert found["tables"] == 5
    assert "a factor of 1237/248" in found["witness"]["words"]
    assert found["witness"]["distance"] == 2


def test_a_rate_of_one_may_have_an_infinite_loss_and_is_still_json(capsys: Out) -> None:
    found = facts(capsys, "swap", "--hold-margin", "1,1", "--swap-margin", "1,1", "--rate", "1")
    assert found["exact_loss"] == found["sharp_bound"] == "inf"


def test_swap_in_words(capsys: Out) -> None:
    assert run(["audit", "swap", "--hold-margin", "2,2", "--swap-margin", "2,2", "--rate", "50%"]) == 0
    text = capsys.readouterr().out
    assert "0.7791" in text
    assert "1.6095" in text


MEMBERS = [
    (["--mechanism", "conditioned", "--redraw-law", "uniform", "--rate", "1/2"], "ln(4)"),
    (["--mechanism", "conditioned", "--redraw-law", "proportional", "--rate", "1/2"], "1/2*ln(21)"),
    (["--mechanism", "mallows", "--epsilon", "ln(3)"], "ln(3)"),
    (["--mechanism", "shuffle", "--rate", "1/2"], "ln(32/7)"),
]


@pytest.mark.parametrize(("arguments", "bound"), MEMBERS, ids=lambda value: str(value)[16:40])
def test_every_member_of_the_family_is_audited(capsys: Out, arguments: list[str], bound: str) -> None:
    found = facts(capsys, "swap", "--hold-margin", "3,2", "--swap-margin", "2,2,1", *arguments)
    assert found["passed"]
    assert 0 < found["exact_loss"] <= found["sharp_bound"]
    assert found["mechanism"] == arguments[1]
    assert "theorem_bound" not in found
    assert found["sharp_bound_exact"] == bound
    assert run(["audit", "swap", "--hold-margin", "3,2", "--swap-margin", "2,2,1", *arguments]) == 0
    assert arguments[1].capitalize() in capsys.readouterr().out


def test_the_published_cases_of_the_members_by_command(capsys: Out) -> None:
    """T17 to T22 of the theory pages, as a user asks for them."""
    singles = ["swap", "--hold-margin", "1,1,1", "--swap-margin", "1,1,1"]
    assert facts(capsys, *singles, "--mechanism", "conditioned", "--rate", "1/2")["exact_loss_expression"] == "ln(4)"
    pair = ["swap", "--hold-margin", "1,1", "--swap-margin", "1,1", "--mechanism", "shuffle", "--rate", "1/2"]
    assert facts(capsys, *pair)["exact_loss_expression"] == "1/2*ln(7)"


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        (["--mechanism", "mallows", "--rate", "1/2"], ["--rate", "--epsilon"]),
        (
            ["--mechanism", "shuffle", "--epsilon", "2", "--redraw-law", "uniform"],
            ["--redraw-law", "--epsilon", "--rate"],
        ),
        (["--mechanism", "conditioned", "--rate", "1/2", "--redraw-law", "x"], ["redraw_law"]),
        (["--mechanism", "conditioned", "--rate", "x"], ["rate"]),
        ([], ["--rate"]),
    ],
)
def test_options_of_another_member_are_refused_all_at_once(
    capsys: Out, arguments: list[str], places: list[str]
) -> None:
    found = facts(capsys, "swap", "--hold-margin", "2,2", "--swap-margin", "2,2", *arguments, code=2)
    assert [error["where"] for error in found["errors"]] == places


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--hold-margin", "0", "--swap-margin", "0", "--rate", "1/2", "--mechanism", "conditioned"], "not a margin"),
        (["--hold-margin", "3,2", "--swap-margin", "2,2", "--rate", "1/2"], "counts 5 records"),
        (["--hold-margin", "3;2", "--swap-margin", "2,2", "--rate", "1/2"], "'3;2' is not a margin"),
        (["--hold-margin", "2,2", "--swap-margin", "2,2", "--rate", "7/4"], "not a probability"),
        (["--hold-margin", "2,2", "--swap-margin", "2,2", "--rate", "1", "--mechanism", "x"], "'x' is not known"),
    ],
)
def test_bad_input_is_explained_with_exit_code_2(capsys: Out, arguments: list[str], what: str) -> None:
    found = facts(capsys, "swap", *arguments, code=2)
    assert what in found["errors"][0]["what"]


# ---- a mechanism of one's own ----------------------------------------------------------------------

MINE = """
from fractions import Fraction
from stirred.spec import Law, catalogue

class Coin:
    budget = "ln(3)"
    def universe(self):
        return [((0,),), ((1,),)]
    def law(self, dataset):
        truth = dataset[0][0]
        return Law({truth: Fraction(3, 4), 1 - truth: Fraction(1, 4)})
    def specification(self):
        return catalogue.load("pure-dp").specification.with_budget(self.budget)

class Boast(Coin):
    budget = "1"

class Unclaimed(Coin):
    specification = None

class Told(Coin):
    # The truth nine times out of ten.
    def pair(self):
        return self.universe()
    def sample(self, dataset, entropy):
        draw = int(entropy.words("coin", chunk=0, count=1)[0]) % 10
        return dataset[0][0] if draw else 1 - dataset[0][0]

class Modest(Told):
    budget = "3"

class Broken(Told):
    def sample(self, dataset, entropy):
        raise RuntimeError("no such luck")

class AsItCame:
    id = "hid"
    def data(self):
        import polars as pl
        return pl.DataFrame({"hid": [7, 3, 5, 1, 9, 2], "county": list("AABBCC"), "tenure": list("ororoo")})
    def release(self, data, entropy):
        return data.drop("hid")

class Sorted(AsItCame):
    def release(self, data, entropy):
        return data.drop("hid").sort("county", "tenure")

nothing = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "audited_mechanisms.py").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_mechanism_of_ones_own_is_audited(capsys: Out) -> None:
    assert facts(capsys, "mechanism", "audited_mechanisms:Coin")["verdict"] == "passed"
    found = facts(capsys, "mechanism", "audited_mechanisms:Boast", code=1)
    assert found["verdict"] == "failed"
    assert "a factor of 3" in found["witness"]
    assert run(["audit", "mechanism", "audited_mechanisms:Boast"]) == 1
    assert "The promise is broken" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "target", ["nowhere:Coin", "audited_mechanisms:Missing", "audited_mechanisms", "audited_mechanisms:nothing"]
)
def test_what_cannot_be_loaded_or_audited_is_refused(capsys: Out, target: str) -> None:
    found = facts(capsys, "mechanism", target, code=2)
    assert found["errors"][0]["remedy"]


@pytest.mark.usefixtures("folder")
def test_without_a_specification_a_mechanism_is_only_searched(capsys: Out) -> None:
    found = facts(capsys, "mechanism", "audited_mechanisms:Unclaimed")
    assert (found["verdict"], found["budget"], found["witness"]) == ("passed", "inf", None)


@pytest.mark.usefixtures("folder")
def test_a_mechanism_is_run_on_two_datasets(capsys: Out) -> None:
    """ln 9 = 2.197 is promised to be 1.0986, or 3."""
    found = facts(capsys, "statistical", "audited_mechanisms:Told", "--runs", "2000", "--quiet", code=1)
    assert found["alarm"]
    assert 1.0986 < found["lower_bound"] < 2.198
    quiet = facts(capsys, "statistical", "audited_mechanisms:Modest", "--runs", "2000", "--quiet")
    assert not quiet["alarm"]
    assert quiet["words"].startswith("No violation found")
    assert run(["audit", "statistical", "audited_mechanisms:Told", "--runs", "2000"]) == 1
    printed = capsys.readouterr()
    assert "The promise is broken" in printed.out
    assert "running" in printed.err


@pytest.mark.usefixtures("folder")
def test_the_order_of_a_release_is_audited(capsys: Out) -> None:
    found = facts(capsys, "order", "audited_mechanisms:AsItCame", "--runs", "60", "--quiet", code=1)
    assert found["alarm"]
    assert "in the input" in found["finding"]
    assert not facts(capsys, "order", "audited_mechanisms:Sorted", "--runs", "60", "--quiet")["alarm"]
    assert run(["audit", "order", "audited_mechanisms:AsItCame", "--runs", "60"]) == 1
    assert "The order gives the input away" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "target", "what"),
    [
        ("statistical", "Coin", "it has no sample and no pair"),
        ("statistical", "Broken", "it failed while it was audited (RuntimeError: no such luck)"),
        ("order", "Coin", "it has no release and no data"),
    ],
)
def test_what_an_audit_by_runs_needs_is_said(capsys: Out, command: str, target: str, what: str) -> None:
    found = facts(capsys, command, f"audited_mechanisms:{target}", "--quiet", code=2)
    assert found["errors"][0]["what"] == what
    assert found["errors"][0]["remedy"]


# ---- a finished bundle -----------------------------------------------------------------------------


@pytest.fixture(params=["parquet", "csv"])
def bundle(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    homes = households()
    homes.write_parquet(tmp_path / "homes.parquet")
    persons(homes).write_parquet(tmp_path / "people.parquet")
    out = tmp_path / "bundle"
    files = [str(tmp_path / "homes.parquet"), "--persons", str(tmp_path / "people.parquet")]
    more = [
        "--hid",
        "hid",
        "--table",
        "county x tenure",
        "--table",
        "county x tenure x age",
        "--set",
        f"format={request.param}",
        "--out",
        str(out),
    ]
    assert run(["swap", *files, *SWAP, *more]) == 0
    return out


def test_a_finished_bundle_passes(bundle: Path, capsys: Out) -> None:
    capsys.readouterr()
    found = facts(capsys, "check", str(bundle))
    assert found["passed"]
    assert any("counted anew" in check for check in found["checks"])
    assert any("identifiers" in check for check in found["checks"])
    assert "table county-x-tenure-x-age of persons: counted anew" in found["checks"]
    assert "persons have the county of their household" in found["checks"]
    assert "persons of a household are in an order that their values decide" in found["checks"]
    assert any(check.startswith("rows are grouped by county") for check in found["checks"])


def problems(capsys: Out, bundle: Path) -> str:
    capsys.readouterr()
    found = facts(capsys, "check", str(bundle), code=1)
    assert not found["passed"]
    return json.dumps(found["problems"])


def change(bundle: Path, columns: list[pl.Expr]) -> None:
    rewrite(bundle, "data", lambda frame: frame.with_columns(columns))


def rewrite(bundle: Path, name: str, how: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change a released file as nobody should, and forge the manifest: a file with a wrong checksum is not opened."""
    path = next((bundle / "public").glob(f"{name}.*"))
    if path.suffix == ".csv":
        how(pl.read_csv(path)).write_csv(path)
    else:
        how(pl.read_parquet(path)).write_parquet(path)
    retell(bundle)


def test_a_changed_count_is_seen_by_checksum_and_by_counting(bundle: Path, capsys: Out) -> None:
    manifest = (bundle / "manifest.json").read_text(encoding="utf-8")
    change(bundle, [pl.lit("East").alias("county")])
    text = problems(capsys, bundle)
    assert "does not have the published table" in text
    (bundle / "manifest.json").write_text(manifest, encoding="utf-8")
    text = problems(capsys, bundle)
    assert "not the file the manifest describes" in text
    opened = "does not have the published table" in text
    assert opened == (bundle / "public" / "data.csv").exists()
    assert opened or "it cannot be read: it was changed, so it is not opened" in text


def test_old_identifiers_are_seen(bundle: Path, capsys: Out) -> None:
    change(bundle, [pl.col("hid") + 5000])
    assert "an old identifier" in problems(capsys, bundle)


def test_persons_who_do_not_live_where_their_household_does_are_seen(bundle: Path, capsys: Out) -> None:
    rewrite(bundle, "persons", lambda frame: frame.with_columns(pl.lit("East").alias("county")))
    text = problems(capsys, bundle)
    assert 'county\\" of some persons is not that of their household' in text


def test_a_changed_person_is_seen_in_the_tables_of_persons(bundle: Path, capsys: Out) -> None:
    rewrite(bundle, "persons", lambda frame: frame.with_columns(pl.col("age") + 1))
    text = problems(capsys, bundle)
    assert "tables/county-x-tenure-x-age.csv" in text
    assert "it is not the table of the released file" in text


def test_persons_of_no_released_household_are_seen(bundle: Path, capsys: Out) -> None:
    rewrite(bundle, "persons", lambda frame: frame.with_columns(pl.col("hid") + 5000))
    assert "of some persons is no released household" in problems(capsys, bundle)


def test_persons_in_another_order_than_their_households_are_seen(bundle: Path, capsys: Out) -> None:
    rewrite(bundle, "persons", lambda frame: frame.reverse())
    assert "not in the order of the released households" in problems(capsys, bundle)


def test_the_order_inside_a_household_is_seen(bundle: Path, capsys: Out) -> None:
    """Two homes have the same two persons, in different orders."""

    def mix(frame: pl.DataFrame) -> pl.DataFrame:
        couples = frame.filter(pl.len().over("hid") == 2)["hid"].unique(maintain_order=True)[:2].to_list()
        age = pl.int_range(pl.len()).over("hid")
        turned = pl.when(pl.col("hid") == couples[1]).then(1 - age).otherwise(age)
        ages = pl.when(pl.col("hid").is_in(couples)).then(turned).otherwise("age").alias("age")
        return frame.with_columns(ages).drop("pid")

    rewrite(bundle, "persons", mix)
    assert "list them in different orders" in problems(capsys, bundle)


def test_rows_in_an_order_that_released_values_do_not_explain_are_seen(bundle: Path, capsys: Out) -> None:
    """As if the file had been swapped and left sorted by size and tenure inside the old counties."""
    rewrite(bundle, "data", lambda frame: frame.sort(pl.col("size").shuffle(1) % 2, "county", "size", "tenure"))
    assert "otherwise in an order that goes with" in problems(capsys, bundle)


def test_missing_and_added_files_are_seen(bundle: Path, capsys: Out) -> None:
    (bundle / "public" / "README.md").unlink()
    (bundle / "public" / "notes.txt").write_text("hello", encoding="utf-8")
    text = problems(capsys, bundle)
    assert "in the manifest and not in the folder" in text
    assert "in the folder and not in the manifest" in text


def test_a_mark_that_was_removed_or_added_is_seen(bundle: Path, capsys: Out) -> None:
    (bundle / "public" / "SEEDED-TEST-RUN.txt").write_text("test", encoding="utf-8")
    assert "test run with a seed" in problems(capsys, bundle)


def test_a_bundle_without_manifest_or_specification_fails(bundle: Path, capsys: Out) -> None:
    (bundle / "manifest.json").unlink()
    (bundle / "public" / "specification.json").write_text("{}", encoding="utf-8")
    text = problems(capsys, bundle)
    assert "manifest.json" in text
    assert "specification" in text


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: Out) -> None:
    assert "no such folder" in facts(capsys, "check", str(tmp_path / "none"), code=2)["errors"][0]["what"]
