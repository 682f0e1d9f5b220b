"""Values that a codebook declares: taken from it where the plan leaves them out, and asked for where it has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit import audit_bundle
from stirred.data.problems import PlanError
from stirred.release.prepared import Prepared
from stirred.release.run import run
from stirred.spec.problems import StirredError
from tests.world import CODEBOOK_OF_HOMES, households, listing, manifest, planned, swap_plan

VACANT = '[[variables]]\nname = "vacant"\nfile = "households"\ntype = "true-false"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    homes = households().with_columns(vacant=pl.int_range(60) % 4 == 0)
    homes.write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "codebook.toml").write_text(CODEBOOK_OF_HOMES + VACANT, encoding="utf-8")
    return tmp_path


def prepared(folder: Path, tables: list[dict[str, Any]] | None = None, **mechanism: Any) -> Prepared:
    plan = swap_plan(data={"id": [], "codebook": "codebook.toml"}, **mechanism)
    return planned(folder, {**plan, "tables": tables or []})


def response(folder: Path, variable: str, **more: Any) -> Prepared:
    return prepared(folder, name="response-swap", respond=variable, change="1/5", **more)


def noisy(folder: Path, *variables: str) -> Prepared:
    return prepared(folder, [{"variables": [*variables]}], name="noisy-swap", noise_epsilon=1)


# ---- a response ---------------------------------------------------------------------------------------------


def test_true_and_false_are_the_values_of_what_is_true_or_false(folder: Path) -> None:
    bundle = run(response(folder, "vacant"), entropy=Entropy.from_os())
    assert manifest(bundle)["plan"]["mechanism"]["values"] == [True, False]
    assert pl.read_parquet(bundle / "public/data.parquet").schema["vacant"] == pl.Boolean
    audit = audit_bundle(bundle)
    assert audit.passed, audit.problems


def test_values_of_the_plan_go_before_those_of_the_codebook(folder: Path) -> None:
    found = response(folder, "tenure", values=["rented", "owned", "free"])
    assert found.settings.dumped()["values"] == ["rented", "owned", "free"]
    assert response(folder, "tenure").settings.dumped()["values"] == ["owned", "rented"]


@pytest.mark.parametrize("variable", ["rooms", "size"], ids=["not in the codebook", "a number without codes"])
def test_where_the_codebook_declares_no_codes_they_are_asked_for(folder: Path, variable: str) -> None:
    homes = pl.read_parquet(folder / "homes.parquet").with_columns(rooms=pl.lit("r"))
    homes.write_parquet(folder / "homes.parquet")
    before = listing(folder)
    with pytest.raises(StirredError, match="values") as caught:
        response(folder, variable, match=[])
    assert caught.value.exit_code == 2
    assert listing(folder) == before


def test_a_codebook_that_cannot_be_read_is_told_with_everything_else(folder: Path) -> None:
    (folder / "codebook.toml").write_text("[codebook", encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        response(folder, "tenure", swap=["parish"], values=["owned", "rented"])
    said = str(caught.value)
    assert "codebook.toml: this is not TOML" in said
    assert 'no column "parish"' in said
    with pytest.raises(PlanError, match=r"codebook\.toml: this is not TOML"):
        response(folder, "tenure")


# ---- the cells of noisy tables ------------------------------------------------------------------------------


def cells(found: Prepared) -> dict[str, list[str | None]]:
    return {name: list(values) for name, values in found.mechanism.values.items()}  # type: ignore[attr-defined]


def test_cells_are_the_codes_and_the_whole_numbers_of_the_range(folder: Path) -> None:
    assert cells(noisy(folder, "tenure", "size")) == {"tenure": ["owned", "rented"], "size": ["1", "2", "3"]}


def test_where_values_may_be_missing_that_is_a_cell_too(folder: Path) -> None:
    text = (folder / "codebook.toml").read_text(encoding="utf-8")
    declared = text.replace('name = "tenure"\n', 'name = "tenure"\nmissing = true\n')
    assert declared != text
    (folder / "codebook.toml").write_text(declared, encoding="utf-8")
    assert cells(noisy(folder, "county", "tenure"))["tenure"] == ["owned", "rented", None]


@pytest.mark.parametrize("variable", ["note", "rooms"], ids=["free text", "no range"])
def test_a_table_of_a_variable_without_declared_values_is_refused(folder: Path, variable: str) -> None:
    homes = pl.read_parquet(folder / "homes.parquet").with_columns(rooms=3, note=pl.lit("none"))
    homes.write_parquet(folder / "homes.parquet")
    text = (folder / "codebook.toml").read_text(encoding="utf-8")
    rooms = '[[variables]]\nname = "rooms"\nfile = "households"\ntype = "integer"\nmin = 1\n'
    note = '[[variables]]\nname = "note"\nfile = "households"\ntype = "text"\n'
    (folder / "codebook.toml").write_text(text + rooms + note, encoding="utf-8")
    with pytest.raises(StirredError, match="which values it can take was not declared") as caught:
        noisy(folder, "county", variable)
    assert f'"{variable}"' in str(caught.value)


def test_a_range_too_wide_for_any_table_is_refused_and_not_written_out(folder: Path) -> None:
    text = (folder / "codebook.toml").read_text(encoding="utf-8").replace("max = 3", "max = 999999999999999")
    (folder / "codebook.toml").write_text(text, encoding="utf-8")
    with pytest.raises(StirredError, match="cells") as caught:
        noisy(folder, "county", "size")
    assert caught.value.exit_code == 2
