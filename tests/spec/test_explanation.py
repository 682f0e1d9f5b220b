"""The five answers in words."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from stirred.spec import (
    GDP,
    PURE,
    TOTAL_VARIATION,
    ZCDP,
    Budget,
    InputPremetric,
    Margin,
    Multiverse,
    approximate,
    catalogue,
    exact,
)
from stirred.spec.budget import Free, PermutationSwapping, SwappedStrata
from stirred.spec.convert_output import zcdp_to_epsilon
from stirred.spec.document import to_document
from stirred.spec.explanation import explain
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.output_rules import change_output
from stirred.spec.render import to_markdown, to_registry
from tests.spec.strategies import specification


def test_nothing_can_be_worked_out_where_no_figure_is_published() -> None:
    unbounded = InputPremetric(name="d_SymDiff", unit="child", post_imputation=False)
    assert explain(specification(PURE, 1, premetric=unbounded)).not_protected == (
        "nothing: no figure is published exactly",
    )
    children = explain(specification(PURE, 1, premetric=replace(unbounded, name="d_HamS"))).not_protected
    assert children[0].startswith("the total number of children")
    assert "whatever can be worked out from these figures" in children[-1]


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


# ---- between which versions ---------------------------------------------------------------------------------


def stated(output: OutputPremetric, budget: str, **blocks: object) -> str:
    return explain(specification(output, Budget.constant(budget), **blocks)).answers[-1].answer  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (PURE, "ε=3 at distance 1, k times that at distance k"),
        (GDP, "μ=3 at distance 1, k times that at distance k"),
        (ZCDP, "ρ²=3 at distance 1, k² times that at distance k"),
        (TOTAL_VARIATION, "τ=3 at distance 1, k times that at distance k, and never above 1"),
        (
            approximate("1e-6"),
            "(ε=3, δ=1e-6) at distance 1; at distance k epsilon is k times that, and delta stays the",
        ),
    ],
)
def test_a_metric_says_something_about_every_distance(output: OutputPremetric, words: str) -> None:
    assert stated(output, "3").startswith(words)


def test_what_holds_for_neighbours_is_not_multiplied_for_versions_further_apart() -> None:
    """Twice the epsilon of neighbours would be 253.58, and the zCDP behind it allows more at distance 2."""
    census = catalogue.load("das-2020").specification
    delta = Fraction(1, 10**10)
    converted = change_output(census, to=approximate(delta)).specification
    answer = explain(converted).answers[-1].answer
    assert answer.startswith("(ε=126.79, δ=1e-10) between versions that differ in 1 post-imputation person record")
    assert "; nothing is stated for versions further apart" in answer
    assert "times" not in answer
    beyond = zcdp_to_epsilon(4 * census.budget.realised, delta=delta, method="cks")
    assert beyond > 2 * converted.budget.realised, "so the old sentence was false"
    assert "k times" not in to_markdown(converted)
    assert "k times" not in to_registry(converted)


def test_a_relation_of_ones_own_says_nothing_about_other_pairs() -> None:
    own = InputPremetric(name="d_r", unit="person", relation="same street")
    answer = stated(PURE, "1", premetric=own)
    assert answer == "ε=1 between versions related by same street; nothing is stated for any others"
    assert read(PURE, "ln(3)", premetric=own).startswith(
        "if the true file and another version of it are related by same"
    )


@pytest.mark.parametrize(
    ("premetric", "words"),
    [
        (InputPremetric(name="d_HamS", unit="person"), "is the number of records that must be changed"),
        (InputPremetric(name="d_HamS", unit="person", within=1), "is 1 where the number of records that must be"),
        (InputPremetric(name="d_r", unit="person", relation="same street"), "is 1 between two datasets related by"),
    ],
)
def test_the_distance_is_said_in_a_sentence(premetric: InputPremetric, words: str) -> None:
    answer = explain(specification(PURE, Budget.constant("1"), premetric=premetric)).answers[2].answer
    assert f"the distance between two versions of the file {words}" in answer


def test_the_loss_of_the_nearest_versions_is_told_where_these_are_further_apart() -> None:
    assert stated(PURE, "3", multiverse=TWO_APART).endswith(": 6 between the nearest two versions, 2 apart")
    assert stated(ZCDP, "3", multiverse=TWO_APART).endswith(": 12 between the nearest two versions, 2 apart")


def test_neighbours_that_the_invariants_do_not_allow_are_no_promise() -> None:
    near = InputPremetric(name="d_HamS", unit="person", within=1)
    assert stated(PURE, "3", premetric=near, multiverse=TWO_APART).endswith(
        "there are none so close, and nothing is promised"
    )
    assert read(PURE, "3", premetric=near, multiverse=TWO_APART).endswith("so close, so nothing is promised.")


@pytest.mark.parametrize(("far", "apart", "between"), [("3/2", "3/2", "27/4"), ("1", "1", ""), ("5", "2", "12")])
def test_a_table_of_distances_counts_where_it_says_less_than_what_is_stated(far: str, apart: str, between: str) -> None:
    own = InputPremetric(name="d_Given", unit="person", relation="mine", table=(("a", "b", exact(far)),))
    found = specification(ZCDP, Budget.constant("3"), premetric=own, multiverse=TWO_APART)
    words = " ".join(answer.answer for answer in explain(found).answers)
    assert (f"are at least {apart} apart" in words) is bool(between)
    assert "at least 2 apart" not in words or far == "5"
    if between:
        assert f": {exact(between).shown()} between the nearest two versions, {apart} apart" in words


# ---- how to read it ---------------------------------------------------------------------------------------


TWO_APART = Multiverse(invariants=(Margin(of="person", level="county"),), nearest=2, nearest_because="swapping")


def read(output: OutputPremetric, budget: Budget | str, **blocks: object) -> str:
    stated = Budget.constant(budget) if isinstance(budget, str) else budget
    text = explain(specification(output, stated, **blocks)).how_to_read  # type: ignore[arg-type]
    assert text.startswith("How to read it: ")
    return text.removeprefix("How to read it: ")


@pytest.mark.parametrize("output", [PURE, ZCDP, GDP, TOTAL_VARIATION, approximate("1e-6")])
def test_a_budget_that_promises_nothing_is_not_read_as_a_promise(output: OutputPremetric) -> None:
    assert read(output, "inf") == "the budget is infinite, so nothing is promised."
    assert read(output, "100001") == "the budget is so large that nothing is promised."


def test_a_letter_is_read_as_a_letter() -> None:
    assert read(PURE, Budget(policy=Free(symbol="epsilon"))).startswith("the smaller the letter's value")


def test_a_swap_without_anything_to_swap_is_not_read_as_protection() -> None:
    policy = PermutationSwapping(strata=(SwappedStrata(rate=Fraction(1, 2), largest_stratum=0),))
    assert "0 is not protection here" in read(PURE, Budget(policy=policy))
    live = PermutationSwapping(strata=(SwappedStrata(rate=Fraction(1, 2), largest_stratum=4),))
    assert "is not protection" not in read(PURE, Budget(policy=live))


@pytest.mark.parametrize(
    ("budget", "factor"),
    [
        ("ln(3)", "at most 3."),
        ("ln(270)", "at most 270.0."),
        ("ln(123456.5)", "at most 123,457."),
        ("ln(2500000)", "at most 3 million: on its own, practically no limit."),
        ("ln(7)*12", "at most 14 billion: on its own, practically no limit."),
        ("50", "at most 6 followed by 21 zeros: on its own, practically no limit."),
    ],
)
def test_the_factor_of_odds_is_written_so_that_people_can_take_it_in_and_never_rounded_down(
    budget: str, factor: str
) -> None:
    assert read(PURE, budget) == (
        "if the true file and another version of it differ in 1 person, seeing the output changes the odds between "
        f"them by a factor of {factor}"
    )


def test_epsilon_and_delta_bound_the_probability_of_sets_of_outputs_and_not_the_odds() -> None:
    """Odds may change by more than e^epsilon with certainty: delta is not the probability of that."""
    text = read(approximate("1e-6"), "ln(3)")
    assert "for every set of outputs, its probability under one is at most 3 times that under the other, plus" in text
    assert text.endswith("A single output may change the odds by more, and that may happen with a larger probability.")
    measured = approximate("1e-6").words
    for misread in ("aside", "apart from", "small probability", "anything may be revealed"):
        assert misread not in f"{text} {measured} {approximate('1e-6').measured}"


@pytest.mark.parametrize(
    ("output", "budget", "apart", "overlap"),
    [
        (ZCDP, "1/2", "1 apart", True),
        (ZCDP, "50", "10 apart", False),
        (GDP, "1", "1 apart", True),
        (GDP, "7", "7 apart", False),
    ],
)
def test_bell_curves_stand_for_concentrated_and_gaussian_promises_and_hardly_overlap_where_little_is_promised(
    output: OutputPremetric, budget: str, apart: str, overlap: bool
) -> None:
    text = read(output, budget)
    assert f"two bell curves of unit width whose centres are {apart}" in text
    assert ("they hardly overlap" in text) != overlap
    assert ("at δ=1e-10" in text) == (output is ZCDP)


def test_between_versions_that_are_two_apart_the_factor_is_squared() -> None:
    """A budget is per unit of distance: what counts is how far apart the nearest versions are."""
    assert "differ in 2 persons, seeing the output changes the odds between them by a factor of at most 9." in read(
        PURE, "ln(3)", multiverse=TWO_APART
    )
    assert "centres are 2 apart" in read(GDP, "1", multiverse=TWO_APART)
    assert "centres are 2 apart" in read(ZCDP, "1/2", multiverse=TWO_APART)


def test_a_neighbour_relation_is_read_up_to_its_width() -> None:
    near = InputPremetric(name="d_HamS", unit="person", within=3)
    text = read(PURE, "ln(3)", premetric=near, multiverse=TWO_APART)
    assert "differ in up to 3 persons" in text
    assert "at most 3." in text, "the relation covers all of them at once: nothing is multiplied"


@pytest.mark.parametrize(("budget", "probability", "nearest"), [("0.25", "0.25", 1), ("0.75", "1", 2), ("3", "1", 1)])
def test_a_probability_never_changes_by_more_than_1(budget: str, probability: str, nearest: int) -> None:
    text = read(TOTAL_VARIATION, budget, multiverse=TWO_APART if nearest == 2 else Multiverse())
    who = "1 person changes" if nearest == 1 else "2 persons change"
    assert f"changes by at most {probability} when {who}; one may still give a file away" in text


def test_a_divergence_of_some_order_is_called_an_average() -> None:
    assert "an average over outputs" in read(OutputPremetric(name="D_Renyi", order=Fraction(2)), "1")


def test_the_functions_are_where_people_look_for_them() -> None:
    import stirred.spec as room

    census = room.catalogue.load("das-2020").specification
    assert room.explain(census) == explain(census)
    assert room.lint(census)[0].check == "post-imputation-units"
