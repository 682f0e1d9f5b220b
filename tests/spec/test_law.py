"""Finite laws: exact probabilities on a named space."""

from collections.abc import Hashable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import Law, SpecificationError
from stirred.spec.law import likelihood_pairs
from tests.spec.strategies import SOME, law, laws


@pytest.mark.parametrize(
    "shares",
    [{}, {0: Fraction(1, 2)}, {0: Fraction(3, 2), 1: Fraction(-1, 2)}, {0: Fraction(1, 3), 1: Fraction(1, 3)}],
)
def test_probabilities_that_do_not_sum_to_one_are_refused(shares: dict[Hashable, Fraction]) -> None:
    with pytest.raises(SpecificationError) as caught:
        Law(shares)
    assert caught.value.problems[0].remedy


def test_a_law_of_doubles_that_only_nearly_sum_to_one_is_refused() -> None:
    with pytest.raises(SpecificationError):
        Law({0: Fraction(0.1), 1: Fraction(0.9)})


def test_outcomes_of_probability_zero_do_not_count() -> None:
    assert Law({0: Fraction(1), 1: Fraction(0)}) == Law.certain(0)
    assert hash(Law({0: Fraction(1), 1: Fraction(0)})) == hash(Law.certain(0))
    assert len(law(1, 0, 2)) == 2
    assert law(1, 0, 2)[1] == 0


def test_laws_on_different_spaces_are_different() -> None:
    assert Law.certain(0, space="tables") != Law.certain(0, space="lists")


def test_a_law_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        law(1, 2).probabilities[0] = Fraction(1)  # type: ignore[index]


@SOME
@given(laws(), laws())
def test_a_product_has_the_products_of_the_probabilities(p: Law, q: Law) -> None:
    both = p.times(q)
    assert all(both[s, t] == p[s] * q[t] for s in p for t in q)
    assert sum(both.probabilities.values()) == 1


@SOME
@given(laws(outcomes=4), st.tuples(*[st.integers(0, 2)] * 4))
def test_a_pushed_law_has_the_probability_of_the_inverse_image(p: Law, images: tuple[int, ...]) -> None:
    pushed = p.pushed(lambda outcome: images[int(str(outcome))])
    for image in range(3):
        assert pushed[image] == sum((p[t] for t in range(4) if images[t] == image), Fraction(0))


@SOME
@given(laws(), laws())
def test_likelihood_pairs_hold_all_the_mass_of_both_laws(p: Law, q: Law) -> None:
    pairs = likelihood_pairs(p, q)
    assert (sum(a for a, _ in pairs), sum(b for _, b in pairs)) == (1, 1)
    assert all(a or b for a, b in pairs)
