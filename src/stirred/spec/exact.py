"""Numbers that protect people: exact expressions with certified enclosures.

A budget is a rational number, a logarithm of one (``ln(264332)``), a root, or a short formula of
those such as ``2*sqrt(5537100/1000000*ln(10000000000))``. :class:`Exact` keeps the formula, prints
and parses it, and evaluates it to any number of digits as an interval that is certain to contain it.
Comparisons are decided by those intervals, never by floating point.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Final, NoReturn

from stirred.spec.enclosure import Enclosure, TooCoarseError
from stirred.spec.number_text import decimal_text, formula_text, places_for, rounded_up
from stirred.spec.problems import Problem, SpecificationError, refusal, wrong

if TYPE_CHECKING:
    from pydantic_core.core_schema import CoreSchema

_FIRST_DIGITS: Final = 34
_MOST_DIGITS: Final = 1_200
_MOST_BITS: Final = 200_000
_LARGEST_EXPONENT: Final = 10**7


@dataclass(frozen=True, slots=True)
class Exact:
    """An exact non-random number: a rational, or a formula of logarithms and roots, or infinity.

    Build one with :func:`exact`, :func:`ln`, :func:`sqrt` and ordinary arithmetic, or
    :meth:`Exact.parse`.

    >>> ln(264332) - ln(1)
    Exact('ln(264332)')
    >>> float(Exact.parse("1/2*ln(19/4)"))  # the double just above the value
    0.77907...
    >>> exact("1/20") < ln(2) < INFINITE
    True
    """

    kind: str
    rational: Fraction = Fraction(0)
    parts: tuple[Exact, ...] = ()

    @staticmethod
    def parse(text: str) -> Exact:
        """Read an expression such as ``"ln(264332)"``, ``"(3379/12343)^2"`` or ``"inf"``; raise with how to write one.

        >>> Exact.parse("1/2*ln(19/4)")
        Exact('1/2*ln(19/4)')
        """
        return _Parser(text).whole()

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> CoreSchema:
        """Read numbers of a file exactly, wherever a pydantic model has a field of this type."""
        return number_schema(exact)

    @property
    def is_infinite(self) -> bool:
        """Say whether this is infinity."""
        return self.kind == "infinite"

    @property
    def is_rational(self) -> bool:
        """Say whether this is stored as a rational number."""
        return self.kind == "rational"

    def enclose(self, digits: int = _FIRST_DIGITS) -> Enclosure:
        """Return an interval certain to contain the number, about ``digits`` digits wide."""
        if self.is_infinite:
            return Enclosure(Decimal("Infinity"), Decimal("Infinity"))
        working = digits + 4
        while True:
            try:
                return _enclose(self, working)
            except (decimal.DecimalException, TooCoarseError):
                # A logarithm, root or quotient of numbers that nearly cancel needs more digits first.
                working *= 2
                if working > _MOST_DIGITS:
                    raise ArithmeticError(f"{str(self)[:80]} is too large or too delicate to evaluate") from None

    def __float__(self) -> float:
        """Return the smallest double found that is not below the number: losses are rounded up."""
        if self.is_infinite:
            return math.inf
        if self.is_rational:
            return _double_not_below(self.rational)
        return _double_not_below(Fraction(self.enclose(40).high))

    def shown(self, places: int | None = None) -> str:
        """Return the number as text, rounded up: a loss is never shown smaller than it is.

        A decimal of up to four places is shown as it is; otherwise two decimals from 1 upwards and
        three significant digits below, unless ``places`` says how many.

        >>> ln(264332).shown(), exact("55.371").shown(), (ln(2) / 1000).shown(), INFINITE.shown()
        ('12.49', '55.371', '0.000694', 'inf')
        """
        if self.is_infinite:
            return "inf"
        if places is None and self.is_rational and (self.rational * 10**4).denominator == 1:
            return decimal_text(self.rational)
        wanted = places if places is not None else places_for(self.enclose().high)
        return f"{rounded_up(self, wanted):f}"

    def sign(self) -> int:
        """Return -1, 0 or 1."""
        if self.is_rational:
            return (self.rational > 0) - (self.rational < 0)
        return compare_exact(self, ZERO)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, Fraction)):
            other = exact(other)
        if not isinstance(other, Exact):
            return NotImplemented
        return (self.kind, self.rational, self.parts) == (other.kind, other.rational, other.parts)

    def __hash__(self) -> int:
        return hash(self.rational) if self.is_rational else hash((self.kind, self.rational, self.parts))

    def __lt__(self, other: Exact | int | Fraction) -> bool:
        return compare_exact(self, exact(other)) < 0

    def __le__(self, other: Exact | int | Fraction) -> bool:
        return compare_exact(self, exact(other)) <= 0

    def __gt__(self, other: Exact | int | Fraction) -> bool:
        return compare_exact(self, exact(other)) > 0

    def __ge__(self, other: Exact | int | Fraction) -> bool:
        return compare_exact(self, exact(other)) >= 0

    def __add__(self, other: Exact | int | Fraction) -> Exact:
        return _sum((self, exact(other)))

    __radd__ = __add__

    def __neg__(self) -> Exact:
        return _product((exact(-1), self))

    def __sub__(self, other: Exact | int | Fraction) -> Exact:
        return self + -exact(other)

    def __rsub__(self, other: Exact | int | Fraction) -> Exact:
        return exact(other) + -self

    def __mul__(self, other: Exact | int | Fraction) -> Exact:
        return _product((self, exact(other)))

    __rmul__ = __mul__

    def __truediv__(self, other: Exact | int | Fraction) -> Exact:
        return self * _reciprocal(exact(other))

    def __rtruediv__(self, other: Exact | int | Fraction) -> Exact:
        return exact(other) * _reciprocal(self)

    def __pow__(self, power: int) -> Exact:
        if power < 0:
            raise ArithmeticError("negative powers are written as quotients")
        return reduce(lambda a, b: a * b, [self] * power, ONE)

    def __str__(self) -> str:
        return formula_text(self)

    def __repr__(self) -> str:
        return f"Exact({str(self)!r})"

    def __bool__(self) -> NoReturn:
        raise TypeError("compare an Exact with 0 instead of asking whether it is true")


def exact(value: Exact | int | Fraction | str | Decimal | float) -> Exact:
    """Return ``value`` as an :class:`Exact`; a float counts as its shortest decimal, never as its bits.

    >>> exact(0.1) == Fraction(1, 10), exact("5%"), exact("1/20")
    (True, Exact('1/20'), Exact('1/20'))
    """
    if isinstance(value, Exact):
        return value
    if isinstance(value, bool):
        raise wrong(f"{value} is not a number", where="number", remedy="write a number such as 3/4")
    if isinstance(value, float):
        if math.isnan(value):
            raise wrong("NaN is not a number", where="number", remedy="write a number such as 3/4")
        return INFINITE if value == math.inf else exact(repr(float(value)))
    if isinstance(value, str):
        return Exact.parse(value)
    if isinstance(value, Decimal):
        return exact(str(value))
    return Exact("rational", Fraction(value))


def number_schema(read: Callable[[Any], Exact | Fraction]) -> CoreSchema:
    """Return how pydantic reads a number of a file: a text or number as it stands there, never through a double."""
    from pydantic_core import PydanticCustomError, core_schema

    def checked(value: Any) -> Exact | Fraction:
        if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal, Fraction, Exact)):
            raise PydanticCustomError("number_type", "a number")
        try:
            return read(value)
        except SpecificationError as error:
            raise refusal(replace(problem, where="") for problem in error.problems) from None

    given = core_schema.union_schema([core_schema.str_schema(), core_schema.float_schema()])
    text = core_schema.to_string_ser_schema()
    return core_schema.no_info_plain_validator_function(checked, json_schema_input_schema=given, serialization=text)


ZERO: Final = Exact("rational", Fraction(0))
ONE: Final = Exact("rational", Fraction(1))
INFINITE: Final = Exact("infinite")


def ln(value: Exact | int | Fraction) -> Exact:
    """Return the natural logarithm, exactly.

    >>> ln(1), ln(Fraction(1, 3))
    (Exact('0'), Exact('-ln(3)'))
    """
    number = exact(value)
    if number.is_infinite:
        return INFINITE
    if number.sign() <= 0:
        raise ArithmeticError(f"no logarithm of {number}")
    if number.is_rational:
        if number.rational == 1:
            return ZERO
        if number.rational < 1:  # one sign convention, so that equal numbers print alike
            return -ln(1 / number.rational)
    if number.kind == "exp":
        return number.parts[0]
    if number.kind == "sqrt":
        return ln(number.parts[0]) / 2
    return Exact("ln", parts=(number,))


def exp(value: Exact | int | Fraction) -> Exact:
    """Return the exponential, exactly; rational again where the exponent is a logarithm.

    >>> exp(-ln(3)), exp(1)
    (Exact('1/3'), Exact('exp(1)'))
    """
    number = exact(value)
    if number.is_infinite or number == ZERO:
        return INFINITE if number.is_infinite else ONE
    if number.kind == "ln":
        return number.parts[0]
    if abs(number.enclose().high) > _LARGEST_EXPONENT:
        raise ArithmeticError(f"exp({str(number)[:40]}) is beyond every use")
    log = _as_logarithm(number)
    if log is not None and log[0].denominator == 1 and abs(log[0]) <= 64:
        return exact(log[1] ** log[0].numerator)
    return Exact("exp", parts=(number,))


def sqrt(value: Exact | int | Fraction) -> Exact:
    """Return the square root, exactly; rational where the number is a square.

    >>> sqrt(Fraction(9, 4)), sqrt(2)
    (Exact('3/2'), Exact('sqrt(2)'))
    """
    number = exact(value)
    if number.is_infinite:
        return INFINITE
    if number.sign() < 0:
        raise ArithmeticError(f"no square root of {number}")
    if number.is_rational:
        # One form for each root: sqrt(a/b) = sqrt(ab)/b, square factors outside.
        inside = number.rational.numerator * number.rational.denominator
        outside, inside = _square_part(inside)
        outer = Fraction(outside, number.rational.denominator)
        root = Exact("sqrt", parts=(Exact("rational", Fraction(inside)),))
        return exact(outer) if inside == 1 else _product((exact(outer), root)) if inside else ZERO
    return Exact("sqrt", parts=(number,))


def _square_part(n: int) -> tuple[int, int]:
    """Return (a, b) with n = a^2 b, taking out small squares and a whole square."""
    whole = math.isqrt(n)
    if whole * whole == n:
        return whole, 1 if n else 0
    outside = 1
    for p in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47):
        while n % (p * p) == 0:
            outside, n = outside * p, n // (p * p)
    return outside, n


def add_up(values: Iterable[Exact]) -> Exact:
    """Return the sum of any number of values, gathered once rather than one after the other.

    >>> add_up([ln(2), exact("1/2"), ln(3)])
    Exact('1/2 + ln(6)')
    """
    return _sum(tuple(values))


def largest(values: list[Exact]) -> Exact:
    """Return the largest, compared exactly."""
    return reduce(lambda a, b: a if compare_exact(a, b) >= 0 else b, values)


def compare_exact(a: Exact, b: Exact) -> int:
    """Return -1, 0 or 1, decided by enclosures that are narrowed until they separate."""
    if a == b:
        return 0
    if a.is_infinite or b.is_infinite:
        return 1 if a.is_infinite else -1
    if a.is_rational and b.is_rational:
        return 1 if a.rational > b.rational else -1
    if (known := _compare_logarithms(a, b)) is not None:
        return known
    digits = _FIRST_DIGITS
    while digits <= _MOST_DIGITS:
        first, second = a.enclose(digits), b.enclose(digits)
        if first.low > second.high:
            return 1
        if first.high < second.low:
            return -1
        digits *= 2
    raise UndecidedError(
        [
            Problem(
                what=f"{str(a)[:60]} and {str(b)[:60]} agree to {_MOST_DIGITS // 2} digits",
                where="comparison",
                remedy="write both in the same form",
            )
        ]
    )


class UndecidedError(SpecificationError):
    """Two numbers that are equal as far as one can see, and not written alike."""


def _compare_logarithms(a: Exact, b: Exact) -> int | None:
    """Compare two rational multiples of logarithms of rationals exactly, where that is what they are."""
    first, second = _as_logarithm(a), _as_logarithm(b)
    if first is None or second is None:
        return None
    (p, u), (q, v) = first, second
    scale = math.lcm(p.denominator, q.denominator)
    powers = int(p * scale), int(q * scale)
    if max(abs(power) for power in powers) * max(map(_bits, (u, v))) > 200_000:
        return None
    left, right = u ** powers[0], v ** powers[1]
    return (left > right) - (left < right)


def _bits(value: Fraction) -> int:
    return value.numerator.bit_length() + value.denominator.bit_length()


def _as_logarithm(value: Exact) -> tuple[Fraction, Fraction] | None:
    """Return (q, r) where the number is q ln r with rational q and r; 0 is 0 ln 1."""
    if value.kind == "ln" and value.parts[0].is_rational:
        return Fraction(1), value.parts[0].rational
    if value == ZERO:
        return Fraction(0), Fraction(1)
    if value.kind == "product" and len(value.parts) == 2 and value.parts[0].is_rational:
        inner = _as_logarithm(value.parts[1])
        return None if inner is None else (value.parts[0].rational * inner[0], inner[1])
    return None


def _sum(terms: tuple[Exact, ...]) -> Exact:
    flat = [part for term in terms for part in (term.parts if term.kind == "sum" else (term,))]
    if any(term.is_infinite for term in flat):
        return INFINITE
    constant = sum((term.rational for term in flat if term.is_rational), Fraction(0))
    logarithms: list[tuple[Fraction, Fraction]] = []
    multiples: dict[Exact, Fraction] = {}
    for term in flat:
        if term.is_rational:
            continue
        if (log := _as_logarithm(term)) is not None:
            logarithms.append(log)
            continue
        coefficient, base = _coefficient(term)
        multiples[base] = multiples.get(base, Fraction(0)) + coefficient
    rest = [_product((exact(q), base)) for base, q in multiples.items() if q]
    rest += _one_logarithm(logarithms)
    if constant:
        rest.append(exact(constant))
    if len(rest) < 2:
        return rest[0] if rest else ZERO
    return Exact("sum", parts=tuple(sorted(rest, key=str)))


def _one_logarithm(logarithms: list[tuple[Fraction, Fraction]]) -> list[Exact]:
    """Write q ln a + r ln b + ... as one multiple of one logarithm, so that sums of budgets stay short."""
    if not logarithms:
        return []
    top = math.gcd(*(q.numerator for q, _ in logarithms))
    unit = Fraction(top, math.lcm(*(q.denominator for q, _ in logarithms)))
    if sum(abs(q / unit) * _bits(r) for q, r in logarithms) > 20_000:
        return [_product((exact(q), ln(r))) for q, r in logarithms]
    argument = math.prod((r ** (q / unit).numerator for q, r in logarithms), start=Fraction(1))
    return [_product((exact(unit), ln(argument)))] if argument != 1 else []


def _coefficient(term: Exact) -> tuple[Fraction, Exact]:
    if term.kind == "product" and term.parts[0].is_rational:
        rest = term.parts[1:]
        return term.parts[0].rational, rest[0] if len(rest) == 1 else Exact("product", parts=rest)
    return Fraction(1), term


def _product(factors: tuple[Exact, ...]) -> Exact:
    flat = [part for factor in factors for part in (factor.parts if factor.kind == "product" else (factor,))]
    if any(factor == ZERO for factor in flat):
        if any(factor.is_infinite for factor in flat):
            raise ArithmeticError("0 times infinity: use `allowance` for budget times distance")
        return ZERO
    if any(factor.is_infinite for factor in flat):
        negative = sum(factor.sign() < 0 for factor in flat if not factor.is_infinite) % 2
        if negative:
            raise ArithmeticError("a loss is never minus infinity")
        return INFINITE
    rationals = [factor.rational for factor in flat if factor.is_rational]
    if sum(map(_bits, rationals)) > _MOST_BITS:
        raise ArithmeticError("a number with more digits than anyone needs")
    constant = math.prod(rationals, start=Fraction(1))
    rest = sorted((factor for factor in flat if not factor.is_rational), key=str)
    if (merged := _square_roots(rest)) is not None:
        return _product((exact(constant), *merged))
    sums = [factor for factor in rest if factor.kind == "sum"]
    if sums and constant != 1:
        # A constant goes into the first sum, so that a product is written in one way only.
        rest.remove(sums[0])
        inner = _sum(tuple(_product((exact(constant), part)) for part in sums[0].parts))
        return _product((inner, *rest)) if rest else inner
    if not rest:
        return exact(constant)
    if len(rest) == 1 and (rooted := _rooted_logarithm(constant, rest[0])) is not None:
        return rooted
    if constant == 1 and len(rest) == 1:
        return rest[0]
    return Exact("product", parts=(*((exact(constant),) if constant != 1 else ()), *rest))


def _rooted_logarithm(constant: Fraction, log: Exact) -> Exact | None:
    """Write 1/2 ln 9 as ln 3, where the root is rational."""
    if constant.denominator % 2 or log.kind != "ln" or not log.parts[0].is_rational:
        return None
    root = sqrt(log.parts[0])
    return _product((exact(constant * 2), ln(root))) if root.is_rational else None


def _square_roots(factors: list[Exact]) -> list[Exact] | None:
    """Merge one pair of square roots of a product (sqrt a times sqrt a is a), or return None."""
    roots = [factor for factor in factors if factor.kind == "sqrt"]
    for i, first in enumerate(roots):
        for second in roots[i + 1 :]:
            a, b = first.parts[0], second.parts[0]
            if a == b or (a.is_rational and b.is_rational):
                rest = list(factors)
                rest.remove(first)
                rest.remove(second)
                return [*rest, a if a == b else sqrt(a * b)]
    return None


def _reciprocal(value: Exact) -> Exact:
    if value.is_infinite:
        return ZERO
    if value.is_rational:
        if not value.rational:
            raise ArithmeticError("division by zero")
        return exact(1 / value.rational)
    if value.kind == "reciprocal":
        return value.parts[0]
    return Exact("reciprocal", parts=(value,))


@lru_cache(maxsize=4096)  # plan, specification and report show the same losses many times
def _enclose(value: Exact, digits: int) -> Enclosure:
    if value.kind == "rational":
        return Enclosure.of(value.rational, digits=digits)
    parts = [_enclose(part, digits) for part in value.parts]
    if value.kind == "sum":
        return reduce(lambda a, b: a.plus(b, digits=digits), parts)
    if value.kind == "product":
        return reduce(lambda a, b: a.times(b, digits=digits), parts)
    if value.kind == "reciprocal":
        return parts[0].inverse(digits=digits)
    functions = {"ln": Enclosure.ln, "exp": Enclosure.exp, "sqrt": Enclosure.sqrt}
    return functions[value.kind](parts[0], digits=digits)


def _double_not_below(value: Fraction) -> float:
    try:
        double = value.numerator / value.denominator
    except OverflowError:
        return math.inf
    return double if Fraction(double) >= value else math.nextafter(double, math.inf)


_TOKEN: Final = re.compile(r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|(ln|sqrt|exp|inf(?:inity)?)|(.))")


class _Parser:
    """Recursive descent over +, -, *, /, ^, %, ln, sqrt, exp and parentheses; never ``eval``."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > 20_000:
            self.fail()
        self.tokens: list[tuple[str, str]] = []
        for number, name, mark in _TOKEN.findall(text.strip().lower().replace("infinity", "inf")):
            self.tokens.append(("number", number) if number else ("name", name) if name else ("mark", mark))
        self.at = 0
        self.depth = 0

    def fail(self) -> NoReturn:
        raise wrong(
            f"{self.text[:80]!r} is not a number",
            where="number",
            remedy="write such as '3/4', '0.75', '5%', 'ln(3)', 'sqrt(2)' or 'inf'",
        )

    def whole(self) -> Exact:
        try:
            value = self.total()
        except (ArithmeticError, ValueError, RecursionError):
            self.fail()
        if self.at != len(self.tokens) or not self.tokens:
            self.fail()
        return value

    def take(self, *marks: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at][1] in marks:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return None

    def total(self) -> Exact:
        value = self.term()
        while sign := self.take("+", "-"):
            value = value + self.term() if sign == "+" else value - self.term()
        return value

    def term(self) -> Exact:
        value = self.power()
        while mark := self.take("*", "/"):
            value = value * self.power() if mark == "*" else value / self.power()
        return value

    def power(self) -> Exact:
        if self.take("-"):
            return -self.power()
        value = self.factor()
        if self.take("%"):
            value = value / 100
        if self.take("^"):
            raised = self.factor()
            if not raised.is_rational or raised.rational.denominator != 1 or not 0 <= raised.rational <= 64:
                self.fail()
            value = value ** int(raised.rational)
        return value

    def factor(self) -> Exact:
        if self.at >= len(self.tokens):
            self.fail()
        self.depth += 1
        if self.depth > 60:
            self.fail()
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            number = Decimal(text)
            if not -400 < number.adjusted() < 4_000:  # '1e999999999' would fill the memory
                self.fail()
            value = exact(Fraction(number))
        elif text == "inf":
            value = INFINITE
        elif kind == "name":
            value = {"ln": ln, "sqrt": sqrt, "exp": exp}[text](self.parenthesis())
        elif text == "(":
            self.at -= 1
            value = self.parenthesis()
        else:
            self.fail()
        self.depth -= 1
        return value

    def parenthesis(self) -> Exact:
        if not self.take("("):
            self.fail()
        value = self.total()
        if not self.take(")"):
            self.fail()
        return value
