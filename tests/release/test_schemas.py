"""The JSON Schemas of plans, codebooks, policies and specifications: published as made, with help for every key."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stirred.cli.main import run as command
from stirred.cli.plan import SCHEMAS
from stirred.data.codebook_file import parse_codebook
from stirred.release.ledger import LedgerError, Policy
from stirred.release.plan_file import PlanFile, plan_from
from tests.docs.code_blocks import read_blocks

ROOT = Path(__file__).resolve().parents[2]
Out = pytest.CaptureFixture[str]


def made(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = import_module(SCHEMAS[name]).json_schema()
    return schema


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schema_is_the_one_that_is_made(name: str, capsys: Out) -> None:
    published = ROOT / "docs" / "_static" / "schemas" / f"{name}.schema.json"
    assert command(["plan", "--schema", name]) == 0
    printed = capsys.readouterr().out
    assert published.read_text(encoding="utf-8") == printed, (
        f"run: stirred plan --schema {name} > {published.relative_to(ROOT)}"
    )
    assert json.loads(printed) == made(name)
    jsonschema.Draft202012Validator.check_schema(made(name))


def test_another_name_is_refused(capsys: Out) -> None:
    assert command(["plan", "--schema", "plans"]) == 2
    assert (
        "--schema: 'plans' is not known. Fix: one of plan, codebook, policy, specification." in capsys.readouterr().err
    )


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for title, part in {"": schema, **schema.get("$defs", {})}.items():
        for name, entry in part.get("properties", {}).items():
            yield f"{title}.{name}", entry


@pytest.mark.parametrize("name", ["plan", "codebook", "policy"])
def test_an_editor_can_show_help_for_every_key(name: str) -> None:
    found = dict(properties(made(name)))
    assert len(found) > 20
    assert [key for key, entry in found.items() if len(entry.get("description", "")) < 10] == []


def examples(*keys: str) -> list[Any]:
    """Every TOML block of README and docs that has these keys at its top, by page and line."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = []
    for page in pages:
        for block in read_blocks(page.read_text(encoding="utf-8"), page=page.name):
            if block.language == "toml" and all(key in tomllib.loads(block.text) for key in keys):
                found.append(pytest.param(block.text, id=f"{page.name}:{block.line}"))
    return found


PLANS, CODEBOOKS, POLICIES = examples("data", "mechanism", "release"), examples("variables"), examples("limits")


def test_there_are_examples_to_check() -> None:
    assert len(PLANS) >= 2
    assert CODEBOOKS
    assert len(POLICIES) >= 2


@pytest.mark.parametrize("text", PLANS)
def test_every_plan_of_the_documentation_validates(text: str) -> None:
    jsonschema.validate(tomllib.loads(text), made("plan"))


@pytest.mark.parametrize("text", CODEBOOKS)
def test_every_codebook_of_the_documentation_validates(text: str, tmp_path: Path) -> None:
    jsonschema.validate(tomllib.loads(text), made("codebook"))
    parse_codebook(text, source="codebook", folder=tmp_path)


@pytest.mark.parametrize("text", POLICIES)
def test_every_policy_of_the_documentation_validates(text: str) -> None:
    jsonschema.validate(tomllib.loads(text), made("policy"))
    Policy.from_toml(text)


LIMIT = {"budget": 1, "output": "zcdp", "unit": "person"}
COUNTIES = {"kind": "margin", "of": "household", "level": "county"}


@pytest.mark.parametrize(
    ("policy", "accepted"),
    [
        ({"limits": [{**LIMIT, "budget": "15.29"}], "invariants": {"acceptable": []}}, True),
        ({"limits": [LIMIT], "invariants": {"acceptable": "any"}}, True),
        ({"who": ["ana"], "invariants": {"acceptable": [COUNTIES], "hierarchies": []}}, True),
        ({"limits": [{**LIMIT, "budget": True}], "invariants": {"acceptable": []}}, False),
        ({"limits": [{**LIMIT, "output": "best"}], "invariants": {"acceptable": []}}, False),
        ({"limits": [{**LIMIT, "colour": "red"}], "invariants": {"acceptable": []}}, False),
        ({"invariants": {"acceptable": "all"}}, False),
        ({"invariants": {"acceptable": [{"kind": "margin"}]}}, False),
        ({"invariants": {"acceptable": [{**COUNTIES, "kind": "edge"}]}}, False),
        ({"who": "ana"}, False),
    ],
)
def test_schema_and_reader_agree_on_a_policy(policy: dict[str, Any], accepted: bool) -> None:
    with nullcontext() if accepted else pytest.raises(LedgerError):
        Policy.from_document(policy)
    with nullcontext() if accepted else pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(policy, made("policy"))


def test_every_key_of_a_policy_is_in_the_documentation() -> None:
    text = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    rows = "".join(line for line in text.splitlines() if line.startswith("| `"))
    own = ("Policy", "Limit", "StatedFactor", "StatedCopies", "AcceptableInvariants")
    keys = {key.rpartition(".")[2] for key, _ in properties(made("policy")) if key.startswith((".", *own))}
    assert len(keys) > 12
    assert [key for key in sorted(keys) if f"`{key}`" not in rows] == []


def good() -> dict[str, Any]:
    return {
        "data": {"households": "homes.parquet"},
        "mechanism": {"swap": ["county"], "rate": "1/2"},
        "release": {"out": "out"},
    }


ACCEPTED: list[tuple[str, str, Any]] = [
    ("mechanism", "swap", "county"),
    ("mechanism", "match", "size"),
    ("mechanism", "match", ["size", "tenure"]),
    ("mechanism", "hold", []),
    ("mechanism", "rate", 1),
    ("mechanism", "rates", [{"size": 2, "rate": "1/3"}]),
    ("data", "id", "hid"),
    ("release", "format", "csv"),
    ("mechanism", "settings_from", "policy"),
]
REFUSED: list[tuple[str, str, Any]] = [
    ("mechanism", "swap", 3),
    ("mechanism", "swap", [3]),
    ("mechanism", "rate", True),
    ("mechanism", "rates", [3]),
    ("mechanism", "name", "topdown"),
    ("mechanism", "colour", "red"),
    ("data", "households", None),
    ("release", "format", "xlsx"),
    ("release", "out", 1),
    ("mechanism", "settings_from", "feeling"),
]


def with_setting(section: str, key: str, value: Any) -> dict[str, Any]:
    plan = good()
    plan[section][key] = value
    return plan


@pytest.mark.parametrize(("section", "key", "value"), ACCEPTED)
def test_schema_and_reader_accept(section: str, key: str, value: Any) -> None:
    plan_from(with_setting(section, key, value), source="plan", folder=Path())
    jsonschema.validate(with_setting(section, key, value), made("plan"))


@pytest.mark.parametrize(("section", "key", "value"), REFUSED)
def test_schema_and_reader_refuse(section: str, key: str, value: Any) -> None:
    from stirred.data.problems import PlanError

    with pytest.raises(PlanError):
        plan_from(with_setting(section, key, value), source="plan", folder=Path())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(with_setting(section, key, value), made("plan"))


def test_every_key_of_a_plan_is_in_the_documentation() -> None:
    text = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `[")]
    for section in ("data", "design", "mechanism", "tables", "release", "safes", "engine"):
        of_section = " ".join(row for row in rows if f"[{section}" in row)
        parts = made("plan")["$defs"]
        entries = parts[f"{'Table' if section == 'tables' else section.capitalize()}Section"]
        alternatives = [one["$ref"] for one in entries.get("oneOf", []) if "$ref" in one]
        models = [parts[one.rpartition("/")[2]] for one in alternatives] or [entries]
        assert [key for model in models for key in model["properties"] if key not in of_section] == [], section
    steps = " ".join(row for row in rows if "[[prepare]]" in row)
    for step in made("plan")["properties"]["prepare"]["items"]["oneOf"]:
        model = parts[step["$ref"].rpartition("/")[2]]
        assert [key for key in model["properties"] if f"`{key}`" not in steps.replace("[[prepare]] ", "`")] == []
    assert set(PlanFile.model_fields) == {
        "data",
        "design",
        "prepare",
        "mechanism",
        "tables",
        "release",
        "safes",
        "engine",
    }
