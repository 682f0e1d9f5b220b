"""Exact numbers: their enclosures, their order, their text, and what is refused."""

import contextlib
import decimal
import math
import resource
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import mpmath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stirred.spec import INFINITE, Budget, Exact, SpecificationError, exact, ln
from stirred.spec.enclosure import Enclosure
from stirred.spec.exact import compare_exact, exp, largest, sqrt
from stirred.spec.given_numbers import fraction, loss, probability
from stirred.spec.number_text import small
from tests.spec.strategies import FEW, MANY, SOME, exacts, high_precision, losses, mp


def as_mp(value: Decimal | float) -> Any:
    return mp(Fraction(value))


# -- enclosures and order -------------------------------------------------------------------------


@MANY
@given(exacts(), st.sampled_from((1, 5, 34, 60)))
def test_an_enclosure_contains_the_number(value: Exact, digits: int) -> None:
    found = value.enclose(digits)
    with mpmath.workdps(400):
        assert as_mp(found.low) <= high_precision(value) <= as_mp(found.high)


@MANY
@given(exacts())
def test_more_digits_give_a_narrower_enclosure_around_the_same_number(value: Exact) -> None:
    wide, narrow = value.enclose(10), value.enclose(120)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@pytest.mark.parametrize("text", ["ln(264332)", "sqrt(2)", "exp(1)", "1/3", "ln(3)/7", "1/(1 + exp(12))"])
def test_an_enclosure_is_as_narrow_as_asked(text: str) -> None:
    found = Exact.parse(text).enclose(50)
    with decimal.localcontext(prec=80):
        assert found.high - found.low <= abs(found.high) * Decimal(10) ** -50


def test_an_enclosure_that_contains_nothing_is_an_error() -> None:
    with pytest.raises(ArithmeticError):
        Enclosure(Decimal(2), Decimal(1))


@MANY
@given(exacts(), exacts())
def test_the_order_is_that_of_the_numbers(a: Exact, b: Exact) -> None:
    with mpmath.workdps(400):
        difference = high_precision(a) - high_precision(b)
        assume(abs(difference) > mpmath.mpf(10) ** -200)
    sign = 1 if difference > 0 else -1
    assert compare_exact(a, b) == sign
    assert (a < b, a <= b, a > b, a >= b) == (sign < 0, sign < 0, sign > 0, sign > 0)
    assert (a - b).sign() == sign
    assert a != b


def test_numbers_that_differ_beyond_a_double_are_told_apart() -> None:
    nearly = ln(2) + exact(Fraction(1, 10**60))
    assert ln(2) < nearly
    assert float(ln(2)) == float(nearly)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (2 * ln(2), ln(4)),
        (ln(2) + ln(2), ln(4)),
        (ln(9) / 2, ln(3)),
        (ln(8) / 3, ln(2)),
        (Fraction(3, 2) * ln(4), ln(8)),
        (-ln(Fraction(1, 5)), ln(5)),
        (ln(6) - ln(2), ln(3)),
        (sqrt(2) * sqrt(8), exact(4)),
        (sqrt(3) * sqrt(3), exact(3)),
        (exp(ln(7)), exact(7)),
        (exp(2 * ln(3)), exact(9)),
        (ln(exp(exact("5/3"))), exact("5/3")),
        (1 / (1 / ln(2)), ln(2)),
        (ln(2) - ln(2), exact(0)),
    ],
)
def test_equal_numbers_written_differently_compare_equal(a: Exact, b: Exact) -> None:
    assert compare_exact(a, b) == 0
    assert a <= b <= a
    assert not a < b
    assert not a > b


def test_infinity_is_above_every_number_and_equal_to_itself() -> None:
    assert exact("1e3000") < INFINITE
    assert compare_exact(INFINITE, INFINITE) == 0
    assert INFINITE + 1 == INFINITE
    assert INFINITE * 2 == INFINITE
    assert 1 / INFINITE == 0
    assert float(INFINITE) == math.inf


@pytest.mark.parametrize("build", [lambda: INFINITE * 0, lambda: -INFINITE, lambda: INFINITE - INFINITE])
def test_undefined_arithmetic_with_infinity_is_an_error(build: Any) -> None:
    with pytest.raises(ArithmeticError):
        build()


def test_a_number_is_not_a_truth_value() -> None:
    with pytest.raises(TypeError, match="compare"):
        bool(ln(2))


def test_the_largest_of_several_is_found_exactly() -> None:
    assert largest([ln(2), exact("0.6931471805599453"), ln(2) - exact("1e-50")]) == ln(2)


# -- rounding up ----------------------------------------------------------------------------------


@MANY
@given(exacts())
def test_a_double_is_never_below_the_number(value: Exact) -> None:
    double = float(value)
    with mpmath.workdps(400):
        assert double == math.inf or as_mp(double) >= high_precision(value)


@SOME
@given(losses())
def test_a_double_is_the_next_one_above_or_equal(value: Exact) -> None:
    double = float(value)
    assume(math.isfinite(double))
    with mpmath.workdps(400):
        # Two steps: an enclosure may reach just past a double that the number itself does not pass.
        below = math.nextafter(math.nextafter(double, -math.inf), -math.inf)
        assert as_mp(below) < high_precision(value)


@MANY
@given(exacts(), st.one_of(st.none(), st.integers(0, 12)))
def test_the_shown_number_is_never_below_the_number(value: Exact, places: int | None) -> None:
    shown = Fraction(value.shown(places))
    with mpmath.workdps(400):
        assert mp(shown) >= high_precision(value)


@MANY
@given(losses(), st.integers(0, 12))
def test_the_shown_number_is_less_than_one_unit_of_its_last_place_above(value: Exact, places: int) -> None:
    assume(not value.is_infinite)
    # Up to the width of an enclosure: 146 tanh(73) is 146 to 60 digits.
    assert Fraction(value.shown(places)) - Fraction(1, 10**places) < value + Fraction(1, 10**50)


@MANY
@given(st.integers(0, 10**40), st.integers(0, 4))
def test_a_long_decimal_is_shown_in_full_or_rounded_up(digits: int, places: int) -> None:
    value = Fraction(digits, 10**places)
    assert Fraction(exact(value).shown()) >= value


@pytest.mark.parametrize("text", ["exp(200)", "exp(1000)", "sqrt(2)*1e100", "exp(-1000)", "1e90*ln(2)"])
def test_very_large_and_very_small_numbers_can_be_shown(text: str) -> None:
    value = Exact.parse(text)
    assert Fraction(value.shown()) >= value


def test_what_is_shown_does_not_depend_on_the_decimal_context_of_the_caller() -> None:
    values = [exact("55.371"), ln(264332), exact(Fraction(1, 3)), ln(2) / 1000, exact("12345.6789")]
    expected = [value.shown() for value in values]
    with decimal.localcontext(prec=3, rounding=decimal.ROUND_FLOOR):
        assert [value.shown() for value in values] == expected
        assert [float(value) for value in values] == [float(value) for value in values]
        assert ln(264332) < exact("12.5")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("12.4810001", "12.49"),
        ("ln(264332)", "12.49"),
        ("0", "0"),
        ("15.29", "15.29"),
        ("1/3", "0.334"),
        ("0.00012344", "0.000124"),
        ("1.00001", "1.01"),
        ("0.9999999", "1.000"),
        ("inf", "inf"),
    ],
)
def test_losses_are_shown_rounded_up(value: str, text: str) -> None:
    assert exact(value).shown() == text


# -- text -----------------------------------------------------------------------------------------


@MANY
@given(exacts())
def test_reading_what_was_written_gives_the_same_number(value: Exact) -> None:
    again = Exact.parse(str(value))
    with mpmath.workdps(400):
        size = max(abs(high_precision(value)), 1)
        assert abs(high_precision(again) - high_precision(value)) <= size * mpmath.mpf(10) ** -200


@MANY
@given(exacts())
def test_reading_what_was_written_gives_an_equal_object(value: Exact) -> None:
    assert Exact.parse(str(value)) == value


@MANY
@given(exacts())
def test_reading_and_writing_again_changes_no_letter(value: Exact) -> None:
    once = Exact.parse(str(value))
    assert str(Exact.parse(str(once))) == str(once)


@MANY
@given(losses())
def test_budgets_survive_writing_and_reading(value: Exact) -> None:
    assert Exact.parse(str(value)) == value
    assert hash(Exact.parse(str(value))) == hash(value)


@pytest.mark.parametrize(
    "text",
    [
        "ln(264332)",
        "2*sqrt(5537100/1000000*ln(10000000000))",
        "(3379/12343)^2",
        "1/2*ln(19/4)",
        "3*(sqrt(2) + sqrt(3))*ln(2)",
        "156/25*(-1 + exp(624/25))*(1/(1 + exp(624/25)))",
        "1/(1 + exp(3))",
        "-ln(3) + 5",
        "inf",
    ],
)
def test_an_expression_is_a_fixed_point_after_one_reading(text: str) -> None:
    once = Exact.parse(text)
    assert Exact.parse(str(once)) == once


@pytest.mark.parametrize(
    "value", ["5%", "1/20", "0.05", "5e-2", "5E-2", ".05", " 5 % ", 0.05, Decimal("0.05"), Fraction(1, 20)]
)
def test_the_ways_to_write_one_rate_agree(value: Any) -> None:
    assert exact(value) == Fraction(1, 20)
    assert fraction(value, where="rate") == Fraction(1, 20)
    assert probability(value, where="rate") == Fraction(1, 20)


@MANY
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_counts_as_its_shortest_decimal(value: float) -> None:
    assume(value == 0 or abs(value) > 1e-300)
    assert exact(value) == Fraction(repr(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1 + 2*3", 7),
        ("(1 + 2)*3", 9),
        ("2 - 3 - 4", -5),
        ("12/3/2", 2),
        ("-2^2", -4),
        ("(-2)^2", 4),
        ("2^3*2", 16),
        ("50% + 1/2", 1),
        ("sqrt(9/4)*2", 3),
        ("exp(0)", 1),
        ("LN(1)", 0),
        ("exp(3*ln(2))", 8),
    ],
)
def test_arithmetic_follows_the_usual_precedence(text: str, value: int) -> None:
    assert Exact.parse(text) == value


MALFORMED = [
    "",
    " ",
    "\n",
    "1//2",
    "1/0",
    "0/0",
    "ln(0)",
    "ln(-1)",
    "ln(ln(1/2))",
    "sqrt(-1)",
    "sqrt(-ln(2))",
    "1e999999999",
    "1e-999999999",
    "1e99999999999999999999999",
    "nan",
    "-inf",
    "inf - inf",
    "inf/inf",
    "0*inf",
    "exp(-inf)",
    "ln()",
    "ln",
    "ln 3",
    "()",
    "(1",
    "1)",
    "1 2",
    "1,5",
    "1_000",
    "0x10",
    "2^0.5",
    "2^-1",
    "2^65",
    "2^2^2",
    "2**3",
    "--",
    "+1",
    "3/4 epsilon",
    "ε",
    "__import__",
    "__import__('os').system('true')",
    "1;2",
    "lambda: 1",
    "1 if 1 else 2",
    "(" * 5000 + "1" + ")" * 5000,
    "ln(" * 5000 + "3" + ")" * 5000,
    "-" * 5000 + "1",
    "9" * 1_000_000,
    "0." + "1" * 1_000_000,
    "1/(exp(1) - exp(1))",
]


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: repr(text[:30]))
def test_text_that_is_no_number_is_refused_and_says_what_to_write(text: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        Exact.parse(text)
    (problem,) = caught.value.problems
    assert problem.what
    assert problem.where
    assert problem.remedy
    assert len(str(problem)) < 400


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: repr(text[:30]))
@pytest.mark.parametrize("reader", [fraction, probability, loss])
def test_text_that_is_no_number_is_no_rate_and_no_loss(reader: Any, text: str) -> None:
    with pytest.raises(SpecificationError):
        reader(text, where="there")


@pytest.mark.parametrize("value", [math.nan, -math.inf, True, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")])
def test_values_that_are_no_number_are_refused(value: Any) -> None:
    with pytest.raises(SpecificationError):
        exact(value)


SYMBOLS = ["ln(", "exp(", "sqrt(", ")", "(", "inf", "^", "%", "/", "*", "+", "-", ".", "e", " "]


@MANY
@given(st.text(max_size=30))
def test_any_text_is_a_number_or_a_specification_error(text: str) -> None:
    with contextlib.suppress(SpecificationError):
        Exact.parse(text)


@MANY
@given(st.lists(st.one_of(st.sampled_from(SYMBOLS), st.integers(0, 99).map(str)), max_size=14).map("".join))
def test_any_formula_is_a_number_or_a_specification_error(text: str) -> None:
    try:
        value = Exact.parse(text)
    except SpecificationError:
        return
    assert Exact.parse(str(value)) is not None


@MANY
@given(st.lists(st.one_of(st.sampled_from(SYMBOLS), st.integers(0, 99).map(str)), max_size=14).map("".join))
def test_any_formula_is_a_budget_or_a_specification_error(text: str) -> None:
    try:
        budget = Budget.constant(text)
    except SpecificationError:
        return
    assert budget.realised.sign() >= 0


@pytest.mark.parametrize(
    "text",
    [
        "exp(1)*exp(1) - exp(2)",  # zero, but not known to be
        "1/(exp(1)*exp(1) - exp(2))",
        "sqrt(2) + sqrt(8) - 3*sqrt(2)",
        "exp(exp(100))",
        "exp(10^30)",
        "exp(-10^30)",
        "1e3000*1e3000",
    ],
)
def test_a_budget_whose_size_cannot_be_decided_is_a_specification_error_or_a_budget(text: str) -> None:
    try:
        budget = Budget.constant(text)
    except SpecificationError:
        return
    assert budget.realised >= 0
    assert Exact.parse(str(budget.realised)) == budget.realised
    assert budget.shown


def test_towers_of_powers_do_not_fill_the_memory() -> None:
    """64 to the fifth power is a number of a billion bits; reading it must fail, and quickly."""
    program = (
        "from stirred.spec import Exact, SpecificationError\n"
        "try:\n    Exact.parse('((((2^64)^64)^64)^64)^64')\n"
        "except SpecificationError:\n    print('refused')\n"
    )

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        resource.setrlimit(resource.RLIMIT_CPU, (10, 10))

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limited,
        check=False,
    )
    assert done.stdout.strip() == "refused", done.stderr[-300:]


@pytest.mark.parametrize("value", ["7/4", "-1/20", "101%", 1.5, -1, "ln(2)", "inf"])
def test_what_is_not_from_zero_to_one_is_no_probability(value: Any) -> None:
    with pytest.raises(SpecificationError) as caught:
        probability(value, where="rate")
    assert caught.value.problems[0].where == "rate"
    assert str(value) in caught.value.problems[0].what


@pytest.mark.parametrize("value", ["-1", -1, "-ln(2)", "ln(1/2)", "1 - sqrt(2)"])
def test_a_loss_is_not_negative(value: Any) -> None:
    with pytest.raises(SpecificationError) as caught:
        loss(value, where="budget")
    assert "negative" in caught.value.problems[0].what


@FEW
@given(st.integers(1, 10**6), st.integers(0, 39))
def test_small_probabilities_are_written_without_loss(n: int, exponent: int) -> None:
    value = Fraction(n, 10**exponent)
    assert Fraction(small(value)) == value


def test_building_a_logarithm_or_root_that_does_not_exist_is_an_error() -> None:
    for build in (lambda: ln(0), lambda: ln(-1), lambda: sqrt(-1), lambda: sqrt(-ln(2)), lambda: exact(1) / 0):
        with pytest.raises(ArithmeticError):
            build()
