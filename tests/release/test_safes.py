"""The Five Safes sheet travels from the plan to manifest and report, and claims nothing for the specification."""

from __future__ import annotations

import copy
import html
from pathlib import Path
from typing import Any

import pytest

from stirred.release.plan_file import plan_from
from stirred.release.publish import publish
from stirred.report.safes import CONTEXT, SAFES, spoken_to
from stirred.spec import catalogue
from stirred.spec.problems import StirredError
from tests.world import manifest, released, world

SHEET: dict[str, Any] = {
    **{name: f"our <b>{name}</b> & more" for name in SAFES},
    "context": {name: f"the {name} of ours" for name in CONTEXT},
}
PLAN: dict[str, Any] = {
    "data": {"households": "homes.parquet", "id": ["hid"]},
    "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
    "release": {"out": "bundle"},
}


def release(folder: Path, safes: dict[str, Any] | None) -> Path:
    plan = copy.deepcopy(PLAN) if safes is None else {**copy.deepcopy(PLAN), "safes": safes}
    return released(world(folder), plan)


def page(bundle: Path, edition: str) -> str:
    return (bundle / edition / "report.html").read_text(encoding="utf-8")


def texts() -> list[str]:
    return [html.escape(text) for text in (*(SHEET[name] for name in SAFES), *SHEET["context"].values())]


def test_the_sheet_is_in_the_manifest_and_in_both_reports(tmp_path: Path) -> None:
    bundle = release(tmp_path, SHEET)
    recorded = manifest(bundle)["plan"]["safes"]
    assert recorded == {**SHEET, "public": True}
    for edition in ("public", "internal"):
        assert all(text in page(bundle, edition) for text in texts())
        assert "<b>people</b>" not in page(bundle, edition)
        assert "not recorded" not in page(bundle, edition)


def test_a_sheet_that_is_not_public_stays_inside(tmp_path: Path) -> None:
    bundle = release(tmp_path, {**SHEET, "public": False})
    assert all(text in page(bundle, "internal") for text in texts())
    publish(bundle, tmp_path / "out")
    for path in (tmp_path / "out").rglob("*"):
        if path.is_file():
            content = path.read_text(encoding="utf-8", errors="replace")
            assert not any(text in content for text in texts()), path.name
    assert page(bundle, "public").count("recorded, and kept inside the agency") == 10
    assert "does the specification speak to it?" in page(bundle, "public")


def test_what_was_left_out_is_said_to_be_missing(tmp_path: Path) -> None:
    shown = page(release(tmp_path, {"people": "anybody"}), "public")
    assert shown.count("not recorded") == 4
    assert "contextual integrity" not in shown


def test_without_a_sheet_there_is_no_section(tmp_path: Path) -> None:
    bundle = release(tmp_path, None)
    assert "five safes" not in page(bundle, "public").lower()
    assert manifest(bundle)["plan"]["safes"] is None


@pytest.mark.parametrize("name", catalogue.names())
def test_no_specification_speaks_to_people_projects_or_settings(name: str) -> None:
    """Claim 2, Remarks 8.4.2 and 8.4.3 of the dissertation."""
    verdicts = {each.safe: each.verdict for each in spoken_to(catalogue.load(name).specification)}
    assert verdicts == {"people": "no", "projects": "no", "settings": "no", "data": "partly", "outputs": "partly"}


def test_an_infinite_or_free_budget_is_not_called_a_bound() -> None:
    specification = catalogue.load("pure-dp").specification
    for budget, words in (("inf", "puts no bound"), ("1", "It bounds how far")):
        assert words in spoken_to(specification.with_budget(budget))[-1].words
    assert "puts no bound" in spoken_to(specification)[-1].words


@pytest.mark.parametrize(
    ("safes", "says"),
    [
        ({"poeple": "x"}, "there is no setting called 'poeple'"),
        ({"context": {"receiver": "x"}}, "there is no setting called 'receiver'"),
        ({"people": 3}, "people"),
        ({"public": "no"}, "public"),
        ({"context": "x"}, "context"),
    ],
)
def test_unknown_keys_and_other_things_than_text_are_refused(safes: dict[str, Any], says: str) -> None:
    with pytest.raises(StirredError) as caught:
        plan_from({**PLAN, "safes": safes}, source="plan.toml", folder=Path())
    assert says in str(caught.value)
    assert "plan.toml [safes]" in str(caught.value)
