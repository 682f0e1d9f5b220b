"""What all sampling designs share: what they do to a loss, and their samples where these are few.

``loss`` is the pure loss of "draw a sample, then run any inner mechanism with loss epsilon on it", for one unit of the
frame; ``samples`` lists the samples with their probabilities, by which the linear programme checks that formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Final

from stirred.spec.exact import Exact, exact, exp, ln
from stirred.spec.given_numbers import probability
from stirred.spec.problems import wrong

Samples = Iterator[tuple[tuple[int, ...], Fraction]]
RELATIONS: Final = ("substitute", "edit", "add-remove")
NO_FORMULA: Final = "no formula is known for a sample of fixed size with unequal probabilities"
EXAMINE: Final = "examine it with `stirred survey audit-design --samples`, or claim no sampling"
LONG: Final = 10_000  # exponents beyond which the bound epsilon is as good


def amp(epsilon: Exact, rate: Fraction) -> Exact:
    """Return ln(1 + rate (e^epsilon - 1)): the loss of one unit that is drawn with this probability.

    >>> amp(exact(1), Fraction(1, 2)).shown(6)
    '0.620115'
    """
    return ln(1 + exact(rate) * (exp(epsilon) - 1))


def clustered(epsilon: Exact, rate: Fraction, size: int) -> Exact:
    """Return the loss of a unit whose whole cluster of ``size`` comes with it; never above epsilon."""
    if rate == 1 or epsilon * size > LONG:
        return epsilon
    near, far = (1 + exact(rate) * (exp(epsilon * k) - 1) for k in (size - 1, size))
    return ln(far) - ln(near)


@dataclass(frozen=True, slots=True)
class Design:
    """What all designs share. ``inner`` is the relation between samples that the inner guarantee must cover."""

    name: ClassVar[str] = ""
    rated: ClassVar[bool] = False  # the loss is amp(epsilon, rate)

    @property
    def inner(self) -> str:
        """Return the relation that is needed: samples of one size, or of several ("edit")."""
        return "substitute"

    @property
    def rate(self) -> Fraction:
        """Return the largest probability with which a unit is drawn."""
        raise NotImplementedError

    @property
    def most_copies(self) -> int:
        """Return how often one unit can stand in a sample."""
        return 1

    def loss(self, epsilon: Exact) -> Exact:
        """Return the loss of one unit of the frame."""
        return amp(epsilon, self.rate)

    def delta(self, epsilon: Exact, delta: Fraction) -> Exact | None:
        """Return what becomes of delta; None where no formula is known."""
        return exact(self.rate * delta) if self.rated else None

    def believed(self, epsilon: Exact, rho: Fraction) -> Exact:
        """Return the loss before somebody who holds the unit for sampled with probability ``rho``."""
        return amp(epsilon, rho)

    def known_cluster(self, epsilon: Exact) -> Exact | None:
        """Return the loss before somebody who knows that the unit's cluster was drawn; None without clusters."""
        return None

    def samples(self) -> Samples:
        """List all samples, as units counted from 0, with their probabilities."""
        raise NotImplementedError

    def weighted(self) -> list[tuple[Fraction, Fraction]] | None:
        """Return (weight, probability) by stratum or unit for a Horvitz-Thompson total; None where not covered."""
        return None

    def document(self) -> dict[str, Any]:
        """Return the design as plain data, which :func:`design_from` reads."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: [str(x) for x in v] if isinstance(v, tuple) else v for k, v in given.items()}
        return {"design": self.name, **{k: str(v) if isinstance(v, Fraction) else v for k, v in plain.items() if v}}

    def __str__(self) -> str:
        rest = ((k, ",".join(v) if isinstance(v, list) else v) for k, v in self.document().items() if k != "design")
        return " ".join([self.name, *(f"{key}={value}" for key, value in rest)])


def whole(value: int, where: str) -> None:
    """Refuse what is not a whole number above 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wrong(f"{value} is not a whole number above 0", where=where, remedy="write a whole number, 1 or more")


def checked_take(take: int, size: int, *, names: tuple[str, str] = ("n", "N")) -> None:
    """Refuse to draw more than there are."""
    whole(take, names[0])
    whole(size, names[1])
    if take > size:
        raise wrong(f"{take} cannot be drawn from {size}", where=names[0], remedy=f"{names[0]} is at most {names[1]}")


def same_length(n: tuple[int, ...], N: tuple[int, ...], *, names: tuple[str, str] = ("n", "N")) -> None:
    """Refuse lists that do not belong together."""
    if len(n) != len(N) or not n:
        raise wrong(f"{len(n)} numbers against {len(N)}", where=names[0], remedy=f"as many as in {names[1]}")


def rates(pi: Any) -> tuple[Fraction, ...]:
    """Return probabilities, checked."""
    given = (pi,) if isinstance(pi, (str, Fraction, float, int)) else tuple(pi)
    if not given:
        raise wrong("there is no probability", where="pi", remedy="give one for each unit, such as 0.1,0.3")
    return tuple(probability(p, where="pi") for p in given)
