"""What all sampling designs share: what they do to a loss.

``loss`` is the pure loss of "draw a sample, then run any inner mechanism with loss epsilon on it", for one unit of the
frame; ``samples`` lists the samples with their probabilities, by which the linear programme checks that formula.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Final, NamedTuple

from stirred.spec.exact import Exact, exact, exp, ln
from stirred.spec.given_numbers import probability
from stirred.spec.problems import wrong

Samples = Iterator[tuple[tuple[int, ...], Fraction]]
RELATIONS: Final = ("substitute", "edit", "add-remove")
NO_FORMULA: Final = "no formula is known for a sample of fixed size with unequal probabilities"
EXAMINE: Final = "examine it with `stirred survey audit-design --samples`, or claim no sampling"
_LONG: Final = 10_000  # exponents beyond which the bound is as good


class Shape(NamedTuple):
    """What decides a loss: how units are drawn, and what comes with them.

    ``rate`` is the largest probability of a unit, given its cluster; ``first`` that of a cluster, where there are any,
    and ``most`` the largest number of units drawn from one. ``draws`` counts draws with replacement. ``units`` are the
    probabilities by stratum or unit, where units are drawn one by one.
    """

    rate: Fraction
    inner: str = "substitute"  # or "edit": the relation between samples that the inner guarantee must cover
    first: Fraction | None = None
    most: int = 1
    draws: int = 1
    units: tuple[Fraction, ...] = ()


def amp(epsilon: Exact, rate: Fraction) -> Exact:
    """Return ln(1 + rate (e^epsilon - 1)): the loss of one unit that is drawn with this probability.

    >>> amp(exact(1), Fraction(1, 2)).shown(6)
    '0.620115'
    """
    return ln(1 + exact(rate) * (exp(epsilon) - 1))


def together(epsilon: Exact, *, first: Fraction, second: Fraction, most: int) -> Exact:
    """Return the loss of a unit drawn with probability ``second`` from a cluster, ``most`` units of which are drawn.

    Units that come along give away that the cluster was drawn; known for certain, amp(epsilon, second) is left.
    """
    if first == 1 or epsilon * most > _LONG:
        return amp(epsilon, second)
    others, here = 1 - first, exact(first) * exp(epsilon * (most - 1))
    return ln(others + here * (1 + exact(second) * (exp(epsilon) - 1))) - ln(others + here)


@dataclass(frozen=True, slots=True)
class Design(ABC):
    """A sampling design as a value. Each says its shape, and lists its samples."""

    name: ClassVar[str] = ""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Return what decides the loss."""

    @abstractmethod
    def samples(self) -> Samples:
        """List all samples, as units counted from 0, with their probabilities."""

    @property
    def rated(self) -> bool:
        """Say whether units are drawn one by one, so that the loss is amp(epsilon, rate)."""
        return self.shape.first is None and self.shape.draws == 1

    @property
    def placed(self) -> bool:
        """Say whether the stratum, cluster, size or place of a unit decides how it is drawn, and its record may not."""
        return self.shape.first is not None

    def loss(self, epsilon: Exact) -> Exact:
        """Return the loss of one unit of the frame."""
        rate, _, first, most, draws, _ = self.shape
        return draws * together(epsilon, first=Fraction(1) if first is None else first, second=rate, most=most)

    def delta(self, epsilon: Exact, delta: Fraction) -> Exact | None:
        """Return what becomes of delta; None where no formula is known."""
        rate, draws = self.shape.rate, self.shape.draws
        if self.shape.first is not None:
            return None
        if draws == 1 or delta == 0 or epsilon == 0:
            return exact(draws * rate * delta)
        each = amp(epsilon, rate)
        return exact(rate * delta) * (exp(draws * each) - 1) / (exp(each) - 1)

    def believed(self, epsilon: Exact, rho: Fraction) -> Exact:
        """Return the loss before somebody who holds the unit for sampled with probability ``rho``."""
        rate, draws = self.shape.rate, self.shape.draws
        if draws == 1:
            return together(epsilon, first=rho, second=Fraction(1), most=self.shape.most)
        never = (1 - rate) ** draws  # once drawn, the number of copies follows its law
        risen = (1 + exact(rate) * (exp(epsilon) - 1)) ** draws - never
        return ln(1 - rho + exact(rho / (1 - never)) * risen)

    def known_cluster(self, epsilon: Exact) -> Exact | None:
        """Return the loss before somebody who knows that the unit's cluster was drawn; None without clusters."""
        return None if self.shape.first is None else amp(epsilon, self.shape.rate)

    def document(self) -> dict[str, Any]:
        """Return the design as plain data, which :func:`stirred.survey.designs.design_from` reads."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: [str(x) for x in v] if isinstance(v, tuple) else v for k, v in given.items() if v}
        return {"design": self.name, **plain}

    def __str__(self) -> str:
        rest = ((k, ",".join(v) if isinstance(v, list) else v) for k, v in self.document().items() if k != "design")
        return " ".join([self.name, *(f"{key}={value}" for key, value in rest)])


def checked(value: str, name: str, *choices: str) -> None:
    """Refuse a word that is not one of the choices."""
    if value not in choices:
        raise wrong(f"{value!r} is not possible here", where=name, remedy=f"one of {', '.join(choices)}")


def whole(value: int, where: str) -> None:
    """Refuse what is not a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wrong(f"{value} is not a whole number above 0", where=where, remedy="write a whole number, 1 or more")


def shares(n: tuple[int, ...], N: tuple[int, ...], *names: str) -> tuple[Fraction, ...]:
    """Return what share of each N is drawn, checked."""
    drawn, there = names or ("n", "N")
    if len(n) != len(N) or not n:
        raise wrong(f"{len(n)} numbers against {len(N)}", where=drawn, remedy=f"as many as in {there}")
    for take, size in zip(n, N, strict=True):
        whole(take, drawn)
        whole(size, there)
        if take > size:
            raise wrong(f"{take} cannot be drawn from {size}", where=drawn, remedy=f"{drawn} is at most {there}")
    return tuple(Fraction(take, size) for take, size in zip(n, N, strict=True))


def rates(pi: Any) -> tuple[Fraction, ...]:
    """Return probabilities, checked."""
    given = (pi,) if isinstance(pi, (str, Fraction, float, int)) else tuple(pi)
    if not given:
        raise wrong("there is no probability", where="pi", remedy="give one for each unit, such as 0.1,0.3")
    return tuple(probability(p, where="pi") for p in given)
