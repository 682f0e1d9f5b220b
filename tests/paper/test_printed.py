"""The comparison with printed numbers can fail: otherwise it would prove nothing."""

from fractions import Fraction

import pytest

from stirred.spec.exact import INFINITE, exact, ln
from tests.paper.printed import assert_encloses, assert_prints, assert_truncates


@pytest.mark.parametrize("text", ["12.47", "12.49", "12.486", "12.4", "13"])
def test_a_number_that_is_not_printed_so_is_refused(text: str) -> None:
    with pytest.raises(AssertionError, match="does not print as"):
        assert_prints(ln(264_332), text)


@pytest.mark.parametrize("text", ["12.48", "12.485", "12.5", "12", "12.48496"])
def test_every_correctly_rounded_text_is_accepted(text: str) -> None:
    assert_prints(ln(264_332), text)


@pytest.mark.parametrize("text", ["0.12", "0.13"])
def test_a_tie_may_go_either_way(text: str) -> None:
    assert_prints(exact("0.125"), text)


def test_a_number_just_past_a_tie_may_not() -> None:
    with pytest.raises(AssertionError, match="does not print as"):
        assert_prints(Fraction(125, 1000) + Fraction(1, 10**30), "0.12")


def test_infinity_prints_as_no_number() -> None:
    with pytest.raises(AssertionError, match="infinity"):
        assert_prints(INFINITE, "99")


@pytest.mark.parametrize("text", ["95.3", "95.1", "95.25"])
def test_a_text_that_was_not_cut_off_is_refused(text: str) -> None:
    with pytest.raises(AssertionError, match="is not cut off"):
        assert_truncates(Fraction(9526, 100), text)


def test_a_correctly_rounded_text_does_not_count_as_cut_off() -> None:
    with pytest.raises(AssertionError, match="is not cut off"):
        assert_truncates(Fraction(9523, 100), "95.2")


def test_a_difference_in_the_thirtieth_decimal_is_seen() -> None:
    with pytest.raises(AssertionError):
        assert_encloses(exact("1/3"), Fraction(1, 3) + Fraction(1, 10**30))
