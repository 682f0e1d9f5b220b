"""The five answers in words."""

from __future__ import annotations

from dataclasses import replace

from stirred.spec import PURE, Budget, exact
from stirred.spec.document import to_document
from stirred.spec.explain import explain
from tests.spec.strategies import specification


def how_much(budget: Budget) -> str:
    answer = explain(specification(PURE, budget)).answers[-1]
    assert answer.question == "how much"
    return answer.answer


def test_a_budget_sharper_than_the_papers_says_so() -> None:
    assert "The paper's bound is 3; this is a sharper one" in how_much(
        replace(Budget.constant("2"), paper_epsilon=exact("3"))
    )
    assert "paper" not in how_much(replace(Budget.constant("2"), paper_epsilon=exact("2")))


def test_a_budget_that_was_rounded_up_shows_the_exact_number() -> None:
    assert "rounded up from exactly ln(27)" in how_much(Budget.constant("ln(27)"))
    assert "exactly" not in how_much(Budget.constant("2.5"))


def test_the_papers_bound_is_told_once() -> None:
    sharper = specification(PURE, replace(Budget.constant("2"), paper_epsilon=exact("3")))
    assert "paper" not in explain(sharper, with_paper=False).answers[-1].answer


def test_an_exact_number_too_long_to_read_is_left_to_the_documents() -> None:
    budget = Budget.constant(f"ln({'7' * 280})")
    assert "(rounded up)" in how_much(budget)
    assert "777" not in how_much(budget)
    assert to_document(specification(PURE, budget))["budget"]["exact"] == f"ln({'7' * 280})"
    assert "(rounded up)" in how_much(Budget.constant("1/2*ln(15011730000000081/1000000000)"))
    assert "rounded up from exactly 1/2*ln(22)" in how_much(Budget.constant("1/2*ln(22)"))
