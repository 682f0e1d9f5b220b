"""Designs that draw several units together: clusters, systematic and two-stage samples, and any that is listed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import ceil, comb, prod
from typing import ClassVar

from stirred.spec.exact import Exact
from stirred.spec.problems import wrong
from stirred.survey.design import EXAMINE, NO_FORMULA, Design, Samples, Shape, checked, rates, shares, whole
from stirred.survey.refusals import OrderFromRecords, UnsupportedDesign, refusal

ONE = Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Design):
    """Whole clusters of at most ``K`` units: ``m`` of ``M`` at random, or one draw a stratum with probabilities ``pi``.

    A sample of households with persons protected is such a design, K being the persons of the largest household.

    >>> from stirred.spec.exact import exact
    >>> Cluster(m=1, M=10, K=15).loss(exact("0.1")).shown(6)
    '0.032146'
    """

    name: ClassVar[str] = "cluster"
    m: int = 0
    M: int = 0
    K: int
    pi: tuple[Fraction, ...] = ()
    equal: bool = False  # all clusters have K units

    def __post_init__(self) -> None:
        whole(self.K, "K")
        if bool(self.pi) == bool(self.m or self.M):
            raise wrong("clusters are drawn m of M, or with probabilities pi", where="pi", remedy="give one of the two")
        object.__setattr__(self, "pi", rates(self.pi) if self.pi else ())
        if not self.pi:
            shares((self.m,), (self.M,), "m", "M")

    @property
    def shape(self) -> Shape:
        first = max(self.pi) if self.pi else Fraction(self.m, self.M)
        return Shape(ONE, "substitute" if self.equal else "edit", first=first, most=self.K)

    def samples(self) -> Samples:
        each = comb(self.M, self.m)
        drawn = [(s, Fraction(1, each)) for s in combinations(range(self.M), self.m)]
        if self.pi:
            rest = 1 - sum(self.pi, Fraction(0))
            if rest < 0:
                raise wrong("these are the clusters of several strata", where="pi", remedy="list those of one")
            drawn = [((c,), p) for c, p in enumerate([*self.pi, *([rest] if rest else [])])]
        return ((tuple(c * self.K + u for c in s for u in range(self.K)), p) for s, p in drawn)


@dataclass(frozen=True, slots=True)
class Systematic(Design):
    """Every ``step``-th unit of a list of ``N`` after a random start.

    ``order`` is "known" (public, and independent of the records), "random" (secret and truly random), or "by-record",
    which is refused: a record that moves in the list shifts all that follow.

    >>> from stirred.spec.exact import exact
    >>> Systematic(10, 50, "known").loss(exact("0.1")).shown(6)
    '0.014844'
    """

    name: ClassVar[str] = "systematic"
    step: int
    N: int
    order: str

    def __post_init__(self) -> None:
        whole(self.step, "step")
        whole(self.N, "N")
        checked(self.order, "order", "known", "random", "by-record")
        if self.order == "by-record":
            raise refusal(
                OrderFromRecords, "the list is sorted by the protected records", where="order",
                remedy="draw from an order that is independent of the records (known or random), or claim no sampling",
            )  # fmt: skip

    @property
    def shape(self) -> Shape:
        inner, rate = "edit" if self.N % self.step else "substitute", Fraction(1, self.step)
        if self.order == "random":
            return Shape(rate, inner)
        return Shape(ONE, inner, first=rate, most=ceil(self.N / self.step))

    def samples(self) -> Samples:
        each = Fraction(1, self.step)
        starts = [tuple(range(a, self.N, self.step)) for a in range(self.step)]
        if self.order == "known":
            return ((s, each) for s in starts)
        sizes = {len(s): sum(len(t) == len(s) for t in starts) * each / comb(self.N, len(s)) for s in starts}
        return ((s, p) for k, p in sizes.items() for s in combinations(range(self.N), k))


@dataclass(frozen=True, slots=True)
class TwoStage(Design):
    """``m`` of ``M`` clusters, then ``n2`` of ``N2`` units in each; lists where clusters differ.

    The largest take of *any* cluster counts for all of them (surveys, correction 3).

    >>> from stirred.spec.exact import exact
    >>> TwoStage(1, 2, 2, 3).loss(exact(1)).shown(6)
    '0.608375'
    """

    name: ClassVar[str] = "two-stage"
    m: int
    M: int
    n2: tuple[int, ...] | int
    N2: tuple[int, ...] | int

    def __post_init__(self) -> None:
        shares((self.m,), (self.M,), "m", "M")
        taken, there = self.takes
        shares(taken, there, "n2", "N2")
        object.__setattr__(self, "n2", taken)
        object.__setattr__(self, "N2", there)

    @property
    def takes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the takes and the sizes of clusters; one of each where all are alike."""
        taken, there = ((x,) if isinstance(x, int) else tuple(x) for x in (self.n2, self.N2))
        return taken, there

    @property
    def shape(self) -> Shape:
        taken, there = self.takes
        inner = "edit" if len({*taken}) > 1 else "substitute"
        return Shape(max(shares(taken, there)), inner, first=Fraction(self.m, self.M), most=max(taken))

    def samples(self) -> Samples:
        taken, there = (each * self.M if len(each) == 1 else each for each in self.takes)
        if len(taken) != self.M:
            raise wrong(f"{len(taken)} takes for {self.M} clusters", where="n2", remedy="give one for each, or one")
        first = [sum(there[:c]) for c in range(self.M)]
        for clusters in combinations(range(self.M), self.m):
            p = Fraction(1, comb(self.M, self.m) * prod(comb(there[c], taken[c]) for c in clusters))
            for parts in product(*(combinations(range(first[c], first[c] + there[c]), taken[c]) for c in clusters)):
                yield tuple(u for part in parts for u in part), p


@dataclass(frozen=True, slots=True)
class Listed(Design):
    """A design given by its samples and their probabilities: no formula, but the linear programme can examine it."""

    name: ClassVar[str] = "listed"
    drawn: tuple[tuple[tuple[int, ...], Fraction], ...]

    def __post_init__(self) -> None:
        if sum(p for _, p in self.drawn) != 1:
            raise wrong("the probabilities of the samples do not add up to 1", where="samples", remedy="list them all")

    @property
    def shape(self) -> Shape:
        chance = {u: sum((p for s, p in self.drawn if u in s), Fraction(0)) for s, _ in self.drawn for u in s}
        inner = "edit" if len({len(s) for s, _ in self.drawn}) > 1 else "substitute"
        return Shape(max(chance.values()), inner, first=ONE)

    def loss(self, epsilon: Exact) -> Exact:
        """Refuse: there is no formula."""
        raise refusal(UnsupportedDesign, NO_FORMULA, where="design", remedy=EXAMINE)

    def samples(self) -> Samples:
        return iter(self.drawn)
