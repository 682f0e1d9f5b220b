"""A specification on paper says the same as the specification, and can be read by what it is written for."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import given

from stirred.spec import GDP, PURE, ZCDP, Budget, Domain, InputPremetric, OutputPremetric, Specification, approximate
from stirred.spec import catalogue as published
from stirred.spec.explain import explain
from stirred.spec.render import to_latex, to_markdown, to_registry
from tests.spec.strategies import FEW, specification, specifications


def named(domain: str = "X", unit: str = "person", budget: str = "1", output: OutputPremetric = PURE) -> Specification:
    made = specification(output, Budget.constant(budget))
    return made.with_flavor(
        domain=Domain(name=domain, dataset="a file"), input_premetric=InputPremetric(name="d_HamS", unit=unit)
    )


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("census_2020", r"census\_2020"),
        ("100% sample & more #1", r"100\% sample \& more \#1"),
        ("a{b}$c", r"a\{b\}\$c"),
        ("x^2~y\\z", r"x\textasciicircum{}2\textasciitilde{}y\textbackslash{}z"),
    ],
)
def test_names_of_files_and_units_are_no_commands_in_latex(name: str, written: str) -> None:
    assert rf"\mathcal{{X}}_{{\text{{{written}}}}}" in to_latex(named(domain=name))
    assert rf"d_{{\text{{HamS}}}}^{{\text{{{written}}}}}" in to_latex(named(unit=name))


@given(specifications())
@FEW
def test_latex_is_one_formula_with_its_braces_closed(drawn: Specification) -> None:
    text = re.sub(r"\\[_%&#${}]", "", to_latex(drawn))
    assert text.count("{") == text.count("}")
    assert text.startswith("$")
    assert text.endswith("$")
    assert text.replace(r"$\leq$", "").count("$") == 2


@pytest.mark.parametrize(
    ("made", "beginning"),
    [
        (named(budget="inf"), r"$\varepsilon=\infty\text{-DP}("),
        (named(budget="ln(27)"), r"$\varepsilon=3.30\text{-DP}("),  # rounded up
        (named(output=ZCDP), r"$\rho^2=1\text{-DP}("),
        (named(output=GDP), r"$\mu=1\text{-DP}("),
        (named(output=approximate("1e-10")), r"$(\varepsilon=1, \delta=10^{-10})\text{-DP}("),
        (named(output=approximate("2.5e-7")), r"$(\varepsilon=1, \delta=2.5\cdot 10^{-7})\text{-DP}("),
    ],
)
def test_latex_has_the_letter_of_the_output_premetric(made: Specification, beginning: str) -> None:
    assert to_latex(made).startswith(beginning)


def test_latex_tells_neighbours_from_a_distance() -> None:
    made = named()
    near = made.with_flavor(input_premetric=made.input_premetric.neighbours())
    assert r"d_{\text{r[HamS$\leq$ 1]}}^{\text{person}}" in to_latex(near)
    assert r"D_{\text{Renyi}}^{3}" in to_latex(named(output=OutputPremetric(name="D_Renyi", order=3)))  # type: ignore[arg-type]


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
