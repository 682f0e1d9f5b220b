"""A specification on paper says the same as the specification, and can be read by what it is written for."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from jinja2 import UndefinedError

from stirred.spec import PURE, Budget, Domain, InputPremetric, OutputPremetric, Specification
from stirred.spec import catalogue as published
from stirred.spec.explanation import explain
from stirred.spec.render import filled, to_markdown, to_registry
from tests.spec.strategies import FEW, specification, specifications


def named(domain: str = "X", unit: str = "person", budget: str = "1", output: OutputPremetric = PURE) -> Specification:
    made = specification(output, Budget.constant(budget))
    return made.with_flavor(
        domain=Domain(name=domain, dataset="a file"), input_premetric=InputPremetric(name="d_HamS", unit=unit)
    )


@given(specifications())
@FEW
def test_the_registry_can_read_every_specification(drawn: Specification) -> None:
    tree = yaml.safe_load(to_registry(drawn, name="a: name", curator="#1 agency"))
    assert tree["status"] == "Draft"
    assert tree["deployment"]["name"] == "a: name"
    assert tree["deployment"]["data_curator"] == "#1 agency"
    assert "intended_use" not in tree["deployment"]
    loss = tree["deployment"]["privacy_loss"]
    assert drawn.notation in loss["privacy_parameters_description"]
    numbers = loss["privacy_parameters"]
    letter = {"rho2": "rho"}.get(drawn.output_premetric.parameter, drawn.output_premetric.parameter)
    if drawn.budget.is_free:
        assert letter not in numbers
    else:
        assert numbers[letter] == float(drawn.budget.realised)
    assert ("delta" in numbers) == bool(drawn.output_premetric.delta)
    flavor = tree["deployment"]["dp_flavor"]
    listed = "".join(f"- {item}\n" for item in explain(drawn).not_protected)
    assert flavor["unprotected_quantities"] == listed
    assert ("never compared" in loss["privacy_unit_description"]) == drawn.input_premetric.bounded


def test_an_infinite_budget_is_infinite_in_the_registry() -> None:
    numbers = yaml.safe_load(to_registry(named(budget="inf")))["deployment"]["privacy_loss"]["privacy_parameters"]
    assert numbers == {"epsilon": math.inf}


@pytest.mark.parametrize("name", published.names())
def test_markdown_says_first_what_is_not_protected_and_then_the_five_answers(name: str) -> None:
    made = published.load(name).specification
    page = to_markdown(made, title="A page", method="How it was made.")
    assert page.startswith(f"# A page\n\nHow it was made.\n\n`{made.notation}`\n\n## Not protected\n")
    for item in explain(made).not_protected:
        assert f"- {item}\n" in page
    rows = re.findall(r"^\| (who|where|what|how|how much) \|", page, flags=re.MULTILINE)
    assert rows == ["who", "where", "what", "how", "how much"]
    assert page.index("## Not protected") < page.index("## The five answers")


def test_markdown_marks_a_run_with_a_seed_and_keeps_its_table_whole() -> None:
    made = replace(named(domain="a|b"), seeded=True)
    page = to_markdown(made)
    assert "**Test run with a seed: not for publication.**" in page
    assert all(line.replace("\\|", "").count("|") == 4 for line in page.splitlines() if line.startswith("|"))


def test_a_template_that_names_a_fact_that_is_not_given_fails() -> None:
    with pytest.raises(UndefinedError, match="'words' is undefined"):
        filled("specification.md.j2", level=1, title="t", method="", specification=named(), account=None)
