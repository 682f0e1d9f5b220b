"""Sentences of a bundle and of its reports that an inspection found to be false, each held against the facts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.mechanisms.records.plan import SwapPlan
from stirred.release.ledger import Ledger
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.spec import compose
from stirred.spec.document import from_json, to_json
from stirred.spec.explanation import explain
from stirred.spec.number_text import percent
from tests.world import households, persons, released, stirred, swap_plan

RESPONSE = {"name": "response-swap", "respond": "tenure", "values": ["owned", "rented"], "change": "1/5"}


def write(folder: Path, homes: pl.DataFrame) -> None:
    homes.write_parquet(folder / "homes.parquet")
    persons(homes).write_parquet(folder / "people.parquet")


def content(*, people: bool = False, tables: list[list[str]] | None = None, out: str = "out", **more: Any) -> Any:
    release = {"out": out, **({"ledger": more.pop("ledger")} if "ledger" in more else {})}
    data = {"hid": "hid", "id": ["pid"] if people else []}
    return swap_plan(people=people, tables=tables or (), data=data, release=release, **more)


# ---- what was compared, record by record ---------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [{}, RESPONSE], ids=["plain", "response on a held variable"])
def test_only_variables_that_stayed_as_they_were_are_called_identical_to_the_input(
    tmp_path: Path, mechanism: dict[str, Any]
) -> None:
    write(tmp_path, households())
    out = released(tmp_path, content(**mechanism))
    page = (out / "public" / "report.html").read_text()
    rows = re.findall(r"<tr><td>([^<]*record by record)</td><td[^>]*>[^<]*</td><td>([^<]*)</td>", page)
    found = dict(rows)
    if not mechanism:
        assert found == {"all hold variables, record by record": "identical to the input"}
        return
    assert found == {
        "all hold variables but tenure, record by record": "identical to the input",
        "tenure, record by record": "identical to the file after the response on tenure",
        "all columns but tenure after the response, record by record": "identical to the input",
    }


# ---- records that no swap can change -------------------------------------------------------------------


def with_untouched(count: int = 4, of: int = 60) -> pl.DataFrame:
    """Households of which ``count`` have a size that occurs in one county only."""
    homes = households(of)
    return homes.with_columns(
        size=pl.when(pl.int_range(pl.len()) < count).then(9).otherwise("size"), tenure=pl.col("tenure")
    )


def test_records_published_exactly_stand_in_specification_ledger_and_pages(tmp_path: Path) -> None:
    write(tmp_path, with_untouched())
    Ledger.create(tmp_path / "ledger.db", dataset="homes")
    out = released(tmp_path, content(ledger="ledger.db"))
    text = (out / "public" / "specification.json").read_text()
    specification = from_json(text)
    (sentence,) = specification.multiverse.consequences
    assert sentence.startswith("everything released about 4 household records (6.7% of all): all records of")
    assert from_json(to_json(specification)).multiverse.consequences == (sentence,)
    for page in ("README.md", "specification.md", "report.html"):
        assert sentence in (out / "public" / page).read_text(), page
    total = Ledger.open(tmp_path / "ledger.db").total().specification
    assert total is not None
    assert total.multiverse.consequences == (sentence,)
    shown = stirred("ledger", "total", "ledger.db", cwd=tmp_path)
    assert "everything released about 4 household records" in " ".join(shown.stdout.split())


def test_a_bundle_that_conceals_them_fails_its_audit(tmp_path: Path) -> None:
    write(tmp_path, with_untouched())
    out = released(tmp_path, content())
    assert audit_bundle(out).passed
    place = out / "public" / "specification.json"
    document = json.loads(place.read_text())
    del document["multiverse"]["consequences"]
    place.write_text(json.dumps(document))
    problems = [str(problem) for problem in audit_bundle(out).problems]
    assert any("multiverse consequences" in problem for problem in problems)


def test_the_sentence_counts_every_record_of_a_stratum_with_nothing_to_swap_and_no_other(tmp_path: Path) -> None:
    write(tmp_path, households())
    plan = prepare(plan_from(content(), source="plan", folder=tmp_path)).plan
    assert isinstance(plan, SwapPlan)
    assert plan.strata.exact_records == 0
    assert plan.specification.multiverse.consequences == ()


def test_what_follows_from_the_invariants_is_kept_by_compositions_and_refinements(tmp_path: Path) -> None:
    write(tmp_path, with_untouched())
    one = prepare(plan_from(content(), source="plan", folder=tmp_path)).plan.specification
    other = prepare(plan_from(content(swap=["tenure"]), source="plan", folder=tmp_path)).plan.specification
    together = compose([one, other]).specification
    assert {*one.multiverse.consequences} <= {*together.multiverse.consequences}
    assert {*one.multiverse.consequences} <= {*explain(together).not_protected}


# ---- shares ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "digits", "text"),
    [
        (0.996, 2, "99.6%"),
        (1.0, 2, "100%"),
        (0.99999, 2, "99.999%"),
        (1e-6, 4, "0.0001%"),
        (0.0, 2, "0%"),
        (0.5, 2, "50%"),
    ],
)
def test_a_percentage_is_written_out_and_is_100_only_where_it_is_all(share: float, digits: int, text: str) -> None:
    assert percent(share, digits=digits) == text


def test_nearly_all_records_are_not_called_1e02_percent(tmp_path: Path) -> None:
    homes = with_untouched(598, of=600)
    write(tmp_path, homes.with_columns(county=pl.when(pl.col("size") == 9).then(pl.lit("East")).otherwise("county")))
    plan = prepare(plan_from(content(match=["size"]), source="plan", folder=tmp_path)).plan
    (sentence,) = plan.specification.multiverse.consequences
    assert "e+0" not in sentence
    assert "600 household records (100% of all)" in sentence or "% of all" in sentence


# ---- the page for readers ------------------------------------------------------------------------------


def test_a_file_that_holds_persons_only_is_not_said_to_hold_nothing_else(tmp_path: Path) -> None:
    homes = households().drop("tenure")
    write(tmp_path, homes)
    out = released(tmp_path, content(people=True))
    page = (out / "public" / "README.md").read_text()
    assert "nothing else" not in page
    assert "Counts of anything held (everything about persons), without county, are exact." in page


# ---- long tables ---------------------------------------------------------------------------------------


def test_reports_say_when_they_show_the_first_rows_of_a_table_only(tmp_path: Path) -> None:
    homes = households(600).with_columns(kind=pl.int_range(600) % 60)
    write(tmp_path, homes)
    out = released(tmp_path, content(tables=[["county", "kind"], ["county", "tenure"]]))
    for edition, place in (("public", "tables/county-x-kind.csv"), ("internal", "internal/accuracy.parquet")):
        page = (out / edition / "report.html").read_text()
        assert page.count(f"Showing the first 200 of 240 rows; all are in {place}.") == 1, edition
        assert (out / edition / place.removeprefix("internal/")).exists()


# ---- tables of persons beside swaps --------------------------------------------------------------------


def test_swaps_are_compared_on_tables_of_persons_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, households(120))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(
        '[data]\nhouseholds = "homes.parquet"\npersons = "people.parquet"\nhid = "hid"\nid = ["pid"]\n'
        '[mechanism]\nmatch = ["size"]\nswap = ["county"]\nrate = "1/2"\n'
        '[[tables]]\nvariables = ["county", "tenure"]\n[[tables]]\nvariables = ["county", "age"]\n'
        '[release]\nout = "out"\n'
    )
    assert command(["compare", "plan.toml", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["swaps"]
    for swap in facts["swaps"]:
        assert [each["table"] for each in swap["expected_error"]] == ["county x tenure", "county x age"], swap["name"]
        assert all(each["mean_absolute_error"] > 0 for each in swap["expected_error"])
