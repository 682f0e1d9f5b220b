"""Reading exact numbers from text: ``"ln(264332)"``, ``"(3379/12343)^2"``, ``"5%"``."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Final, NoReturn

from stirred.spec.exact import INFINITE, Exact, exact, exp, ln, sqrt
from stirred.spec.problems import wrong

_TOKEN: Final = re.compile(r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|(ln|sqrt|exp|inf(?:inity)?)|(.))")


def parse(text: str) -> Exact:
    """Return the number a text stands for, or raise with how to write one.

    >>> parse("1/2*ln(19/4)")
    Exact('1/2*ln(19/4)')
    """
    return _Parser(text).whole()


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
