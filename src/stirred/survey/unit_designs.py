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
from stirred.survey.design import EXAMINE, NO_FORMULA, Design, Samples, Shape, checked, rates, shares, whole
from stirred.survey.refusals import AllocationFromData, SizeTotalNotPublic, UnsupportedDesign, refusal


@dataclass(frozen=True, slots=True)
class Stratified(Design):
    """``n[h]`` out of ``N[h]`` in every stratum; membership is fixed, and so is the ``allocation``.

    "proportional" (takes that follow membership) and "neyman" (takes that follow the records) are refused.
    """

    name: ClassVar[str] = "stratified"
    n: tuple[int, ...]
    N: tuple[int, ...]
    allocation: str = "fixed"

    def __post_init__(self) -> None:
        shares(self.n, self.N)
        checked(self.allocation, "allocation", "fixed", "proportional", "neyman")
        if self.allocation != "fixed":
            raise refusal(
                AllocationFromData, f"with {self.allocation} allocation the takes change with the records",
                where="allocation", remedy="fix the takes beforehand, from figures that are public or of another file",
                example=("neyman", "proportional").index(self.allocation),
            )  # fmt: skip

    @property
    def shape(self) -> Shape:
        drawn = shares(self.n, self.N)
        return Shape(max(drawn), units=drawn)

    @property
    def placed(self) -> bool:
        return len(self.n) > 1

    def samples(self) -> Samples:
        first = [sum(self.N[:h]) for h in range(len(self.N))]
        each = [combinations(range(a, a + size), take) for a, size, take in zip(first, self.N, self.n, strict=True)]
        p = Fraction(1, prod(comb(size, take) for size, take in zip(self.N, self.n, strict=True)))
        return ((tuple(u for part in parts for u in part), p) for parts in product(*each))


@dataclass(frozen=True, slots=True)
class SRSWOR(Design):
    """A simple random sample of ``n`` out of ``N`` without replacement (Theorem 6.4.1).

    >>> SRSWOR(2, 4).loss(exact(1)).shown(6)
    '0.620115'
    """

    name: ClassVar[str] = "srswor"
    n: int
    N: int

    def __post_init__(self) -> None:
        shares((self.n,), (self.N,))

    @property
    def shape(self) -> Shape:
        return Stratified((self.n,), (self.N,)).shape

    def samples(self) -> Samples:
        return Stratified((self.n,), (self.N,)).samples()


@dataclass(frozen=True, slots=True)
class PPS(Design):
    """``n`` draws with fixed public probabilities ``pi`` in each draw, proportional to size.

    ``method`` "fixed-size", without replacement, is refused: the design would have to be listed and examined.
    """

    name: ClassVar[str] = "pps"
    n: int
    pi: tuple[Fraction, ...]
    method: str = "with-replacement"

    def __post_init__(self) -> None:
        whole(self.n, "n")
        checked(self.method, "method", "with-replacement", "fixed-size")
        if self.method == "fixed-size":
            raise refusal(UnsupportedDesign, NO_FORMULA, where="method", remedy=EXAMINE)
        object.__setattr__(self, "pi", rates(self.pi))
        if sum(self.pi) > 1:
            raise wrong("the probabilities of one draw add up to more than 1", where="pi", remedy="use size over total")

    @property
    def shape(self) -> Shape:
        return Shape(max(self.pi), draws=self.n)

    @property
    def placed(self) -> bool:
        return any(p * len(self.pi) != 1 for p in self.pi)

    def samples(self) -> Samples:
        rest = 1 - sum(self.pi, Fraction(0))  # units that are not listed
        chances = [*self.pi, *([rest] if rest else [])]
        for s in combinations_with_replacement(range(len(chances)), self.n):
            ways = factorial(self.n) // prod(factorial(s.count(u)) for u in {*s})
            yield s, ways * prod((chances[u] for u in s), start=Fraction(1))


@dataclass(frozen=True, slots=True)
class SRSWR(Design):
    """``n`` draws with replacement out of ``N``: the loss adds up over draws, and can exceed epsilon.

    >>> SRSWR(3, 3).loss(exact(1)).shown(6)
    '1.358498'
    """

    name: ClassVar[str] = "srswr"
    n: int
    N: int

    def __post_init__(self) -> None:
        whole(self.n, "n")
        whole(self.N, "N")

    @property
    def shape(self) -> Shape:
        return Shape(Fraction(1, self.N), draws=self.n)

    def samples(self) -> Samples:
        return PPS(self.n, (Fraction(1, self.N),) * self.N).samples()


@dataclass(frozen=True, slots=True)
class Poisson(Design):
    """Units drawn independently with fixed probabilities ``pi``; sample sizes vary, so the inner guarantee must too.

    >>> Poisson(("0.1", "0.3", "0.6")).loss(exact(1)).shown(6)
    '0.708514'
    """

    name: ClassVar[str] = "poisson"
    pi: tuple[Number, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "pi", rates(self.pi))

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
    def shape(self) -> Shape:
        drawn = rates(self.pi)
        return Shape(max(drawn), "edit", units=drawn)

    def only_added(self, epsilon: Exact) -> Exact:
        """Return the loss where a record is replaced in the frame, and the inner guarantee covers adding only."""
        rate = exact(self.shape.rate)
        return ln(1 + rate * (exp(epsilon) - 1)) - ln(1 - rate * (1 - exp(-epsilon)))

    def samples(self) -> Samples:
        drawn = rates(self.pi)
        for s in (s for k in range(len(drawn) + 1) for s in combinations(range(len(drawn)), k)):
            yield s, prod((p if u in s else 1 - p for u, p in enumerate(drawn)), start=Fraction(1))
