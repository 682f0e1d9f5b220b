"""Designs that draw unit by unit: simple, with replacement, Poisson, stratified."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, product
from math import comb, factorial, prod
from typing import ClassVar

from stirred.spec.exact import Exact, exact, exp, ln
from stirred.spec.given_numbers import Number, fraction
from stirred.spec.problems import wrong
from stirred.survey.design import EXAMINE, NO_FORMULA, Design, Samples, amp, checked_take, rates, same_length, whole
from stirred.survey.refusals import AllocationFromData, SizeTotalNotPublic, UnsupportedDesign, refusal


@dataclass(frozen=True, slots=True)
class SRSWOR(Design):
    """A simple random sample of ``n`` out of ``N`` without replacement (Theorem 6.4.1).

    >>> SRSWOR(2, 4).loss(exact(1)).shown(6)
    '0.620115'
    """

    name: ClassVar[str] = "srswor"
    rated: ClassVar[bool] = True
    n: int
    N: int

    def __post_init__(self) -> None:
        checked_take(self.n, self.N)

    @property
    def rate(self) -> Fraction:
        return Fraction(self.n, self.N)

    def samples(self) -> Samples:
        each = Fraction(1, comb(self.N, self.n))
        return ((s, each) for s in combinations(range(self.N), self.n))

    def weighted(self) -> list[tuple[Fraction, Fraction]]:
        return [(1 / self.rate, self.rate)]


@dataclass(frozen=True, slots=True)
class _WithReplacement(Design):
    """Independent draws; a unit may be drawn more than once, so the loss can exceed epsilon."""

    n: int

    @property
    def chances(self) -> list[Fraction]:
        """Return the probability of each unit in one draw."""
        raise NotImplementedError

    @property
    def rate(self) -> Fraction:
        return max(self.chances)

    @property
    def most_copies(self) -> int:
        return self.n

    def loss(self, epsilon: Exact) -> Exact:
        return self.n * amp(epsilon, self.rate)

    def delta(self, epsilon: Exact, delta: Fraction) -> Exact | None:
        if delta == 0 or epsilon == 0:
            return exact(self.n * self.rate * delta)
        each = amp(epsilon, self.rate)
        return exact(self.rate * delta) * (exp(self.n * each) - 1) / (exp(each) - 1)

    def believed(self, epsilon: Exact, rho: Fraction) -> Exact:
        once = 1 - (1 - self.rate) ** self.n  # drawn at all; then by the law of the number of copies
        risen = (1 + exact(self.rate) * (exp(epsilon) - 1)) ** self.n - (1 - self.rate) ** self.n
        return ln(1 - rho + exact(rho / once) * risen)

    def samples(self) -> Samples:
        chances = self.chances
        for s in combinations_with_replacement(range(len(chances)), self.n):
            ways = factorial(self.n) // prod(factorial(s.count(u)) for u in {*s})
            yield s, ways * prod((chances[u] for u in s), start=Fraction(1))


@dataclass(frozen=True, slots=True)
class SRSWR(_WithReplacement):
    """``n`` draws with replacement out of ``N``: the loss adds up over draws, and can exceed epsilon.

    >>> SRSWR(3, 3).loss(exact(1)).shown(6)
    '1.358498'
    """

    name: ClassVar[str] = "srswr"
    N: int

    def __post_init__(self) -> None:
        whole(self.n, "n")
        whole(self.N, "N")

    @property
    def chances(self) -> list[Fraction]:
        return [Fraction(1, self.N)] * self.N

    @property
    def rate(self) -> Fraction:
        return Fraction(1, self.N)


@dataclass(frozen=True, slots=True)
class PPS(_WithReplacement):
    """``n`` draws with fixed public probabilities ``pi`` in each draw, proportional to size.

    ``method`` "fixed-size", without replacement, is refused: the design would have to be listed and examined.
    """

    name: ClassVar[str] = "pps"
    pi: tuple[Fraction, ...]
    method: str = "with-replacement"

    def __post_init__(self) -> None:
        whole(self.n, "n")
        if self.method == "fixed-size":
            raise refusal(UnsupportedDesign, NO_FORMULA, where="method", remedy=EXAMINE)
        if self.method != "with-replacement":
            raise wrong(f"{self.method!r} is not a method", where="method", remedy="with-replacement or fixed-size")
        object.__setattr__(self, "pi", rates(self.pi))
        if sum(self.pi) > 1:
            raise wrong(
                "the probabilities of one draw add up to more than 1", where="pi", remedy="give size over total"
            )

    @property
    def chances(self) -> list[Fraction]:
        rest = 1 - sum(self.pi, Fraction(0))  # units that are not listed
        return [*self.pi, *([rest] if rest else [])]

    @property
    def rate(self) -> Fraction:
        return max(self.pi)


@dataclass(frozen=True, slots=True)
class Poisson(Design):
    """Units drawn independently with fixed probabilities ``pi``; sample sizes vary, so the inner guarantee must too.

    >>> Poisson(("0.1", "0.3", "0.6")).loss(exact(1)).shown(6)
    '0.708514'
    """

    name: ClassVar[str] = "poisson"
    rated: ClassVar[bool] = True
    pi: tuple[Number, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "pi", rates(self.pi))

    @property
    def chances(self) -> list[Fraction]:
        """Return the probabilities."""
        return list(rates(self.pi))

    @classmethod
    def of_sizes(cls, n: int, sizes: tuple[Number, ...], *, total: Number | None) -> Poisson:
        """Return the design with probabilities n z / Z; the total Z must be public, and not move with a record."""
        whole(n, "n")
        if total is None:
            raise refusal(
                SizeTotalNotPublic, "probabilities n z / Z need a public, fixed total Z", where="total",
                remedy="declare the total of sizes with --total, as it was used for drawing",
            )  # fmt: skip
        found = [n * fraction(z, where="sizes") / fraction(total, where="total") for z in sizes]
        if max(found) > 1:
            what = "a unit is larger than the total over n, so its probability is above 1"
            raise wrong(what, where="sizes", remedy="take such units with certainty, and leave them out here")
        return cls(tuple(found))

    @property
    def inner(self) -> str:
        return "edit"

    @property
    def rate(self) -> Fraction:
        return max(self.chances)

    def only_added(self, epsilon: Exact) -> Exact:
        """Return the loss where a record is replaced in the frame, and the inner guarantee covers adding only."""
        rate = exact(self.rate)
        return ln(1 + rate * (exp(epsilon) - 1)) - ln(1 - rate * (1 - exp(-epsilon)))

    def samples(self) -> Samples:
        for s in (s for k in range(len(self.pi) + 1) for s in combinations(range(len(self.pi)), k)):
            yield s, prod((p if u in s else 1 - p for u, p in enumerate(self.chances)), start=Fraction(1))

    def weighted(self) -> list[tuple[Fraction, Fraction]]:
        return [(1 / p, p) for p in self.chances if p]


@dataclass(frozen=True, slots=True)
class Stratified(Design):
    """``n[h]`` out of ``N[h]`` in every stratum; membership is fixed, and so is the ``allocation``.

    "proportional" (takes that follow membership) and "neyman" (takes that follow the records) are refused.
    """

    name: ClassVar[str] = "stratified"
    rated: ClassVar[bool] = True
    n: tuple[int, ...]
    N: tuple[int, ...]
    allocation: str = "fixed"

    def __post_init__(self) -> None:
        same_length(self.n, self.N)
        if self.allocation in ("proportional", "neyman"):
            raise refusal(
                AllocationFromData, f"with {self.allocation} allocation the takes change with the records",
                where="allocation", remedy="fix the takes beforehand, from figures that are public or of another file",
                example=("neyman", "proportional").index(self.allocation),
            )  # fmt: skip
        if self.allocation != "fixed":
            raise wrong(f"{self.allocation!r} is not an allocation", where="allocation", remedy="write fixed")
        for take, size in zip(self.n, self.N, strict=True):
            checked_take(take, size)

    @property
    def rates(self) -> list[Fraction]:
        """Return the sampling fraction of each stratum."""
        return [Fraction(a, b) for a, b in zip(self.n, self.N, strict=True)]

    @property
    def rate(self) -> Fraction:
        return max(self.rates)

    def samples(self) -> Samples:
        first = [sum(self.N[:h]) for h in range(len(self.N))]
        each = [combinations(range(a, a + size), take) for a, size, take in zip(first, self.N, self.n, strict=True)]
        p = Fraction(1, prod(comb(size, take) for size, take in zip(self.N, self.n, strict=True)))
        return ((tuple(u for part in parts for u in part), p) for parts in product(*each))

    def weighted(self) -> list[tuple[Fraction, Fraction]]:
        return [(1 / f, f) for f in self.rates]
