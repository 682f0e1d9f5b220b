"""Designs that draw several units together: clusters, systematic and two-stage samples, and any that is listed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from math import ceil, comb, prod
from typing import ClassVar

from stirred.spec.exact import Exact, exact, exp, ln
from stirred.spec.problems import wrong
from stirred.survey.design import (
    EXAMINE,
    LONG,
    NO_FORMULA,
    Design,
    Samples,
    amp,
    checked_take,
    clustered,
    rates,
    same_length,
    whole,
)
from stirred.survey.refusals import OrderFromRecords, UnsupportedDesign, refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Design):
    """Whole clusters of at most ``K`` units: ``m`` of ``M`` at random, or one draw a stratum with probabilities ``pi``.

    A sample of households with persons protected is such a design, K being the persons of the largest household.

    >>> Cluster(m=1, M=10, K=15).loss(exact("0.1")).shown(6)
    '0.032146'
    """

    name: ClassVar[str] = "cluster"
    m: int = 0
    M: int = 0
    K: int
    pi: tuple[Fraction, ...] = ()
    sizes_differ: bool = False

    def __post_init__(self) -> None:
        whole(self.K, "K")
        object.__setattr__(self, "pi", rates(self.pi) if self.pi else ())
        if bool(self.pi) == bool(self.m or self.M):
            raise wrong("clusters are drawn m of M, or with probabilities pi", where="pi", remedy="give one of the two")
        if not self.pi:
            checked_take(self.m, self.M, names=("m", "M"))

    @property
    def inner(self) -> str:
        return "edit" if self.sizes_differ else "substitute"

    @property
    def rate(self) -> Fraction:
        return max(self.pi) if self.pi else Fraction(self.m, self.M)

    def loss(self, epsilon: Exact) -> Exact:
        return clustered(epsilon, self.rate, self.K)

    def believed(self, epsilon: Exact, rho: Fraction) -> Exact:
        return clustered(epsilon, rho, self.K)

    def known_cluster(self, epsilon: Exact) -> Exact | None:
        return epsilon

    def samples(self) -> Samples:
        def units(clusters: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(c * self.K + u for c in clusters for u in range(self.K))

        if self.pi:
            rest = 1 - sum(self.pi, Fraction(0))
            if rest < 0:
                raise UnsupportedDesign(wrong("these are several strata", where="pi", remedy="list one").problems)
            return ((units((c,)), p) for c, p in enumerate([*self.pi, *([rest] if rest else [])]))
        each = Fraction(1, comb(self.M, self.m))
        return ((units(s), each) for s in combinations(range(self.M), self.m))


@dataclass(frozen=True, slots=True)
class Systematic(Design):
    """Every ``step``-th unit of a list of ``N`` after a random start.

    ``order`` is "known" (public, and independent of the records), "random" (secret and truly random), or "by-record",
    which is refused: a record that moves in the list shifts all that follow.

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
        if self.order == "by-record":
            raise refusal(
                OrderFromRecords, "the list is sorted by the protected records", where="order",
                remedy="draw from an order that is independent of the records (known or random), or claim no sampling",
            )  # fmt: skip
        if self.order not in ("known", "random"):
            raise wrong(f"{self.order!r} is not an order", where="order", remedy="write known, random or by-record")

    @property
    def inner(self) -> str:
        return "edit" if self.N % self.step else "substitute"

    @property
    def rate(self) -> Fraction:
        return Fraction(1, self.step)

    @property
    def size(self) -> int:
        """Return the size of the largest sample."""
        return ceil(self.N / self.step)

    def loss(self, epsilon: Exact) -> Exact:
        return clustered(epsilon, self.rate, self.size) if self.order == "known" else amp(epsilon, self.rate)

    def delta(self, epsilon: Exact, delta: Fraction) -> Exact | None:
        return exact(self.rate * delta) if self.order == "random" else None

    def believed(self, epsilon: Exact, rho: Fraction) -> Exact:
        return clustered(epsilon, rho, self.size) if self.order == "known" else amp(epsilon, rho)

    def samples(self) -> Samples:
        if self.order == "known":
            return ((tuple(range(a, self.N, self.step)), self.rate) for a in range(self.step))
        starts = [len(range(a, self.N, self.step)) for a in range(self.step)]
        sizes = {k: Fraction(starts.count(k), self.step) for k in {*starts}}
        return ((s, p / comb(self.N, k)) for k, p in sizes.items() for s in combinations(range(self.N), k))


@dataclass(frozen=True, slots=True)
class TwoStage(Design):
    """``m`` of ``M`` clusters, then ``n2`` of ``N2`` units in each; lists where clusters differ.

    The largest take of *any* cluster counts for all of them (surveys, correction 3).

    >>> TwoStage(1, 2, 2, 3).loss(exact(1)).shown(6)
    '0.608375'
    """

    name: ClassVar[str] = "two-stage"
    m: int
    M: int
    n2: tuple[int, ...] | int
    N2: tuple[int, ...] | int

    def __post_init__(self) -> None:
        checked_take(self.m, self.M, names=("m", "M"))
        for key in ("n2", "N2"):
            value = getattr(self, key)
            object.__setattr__(self, key, (value,) if isinstance(value, int) else tuple(value))
        same_length(self.takes, self.sizes, names=("n2", "N2"))
        for take, size in zip(self.takes, self.sizes, strict=True):
            checked_take(take, size, names=("n2", "N2"))

    @property
    def takes(self) -> tuple[int, ...]:
        """Return the takes of the clusters."""
        return self.n2 if isinstance(self.n2, tuple) else (self.n2,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the sizes of the clusters."""
        return self.N2 if isinstance(self.N2, tuple) else (self.N2,)

    @property
    def inner(self) -> str:
        return "edit" if len({*self.takes}) > 1 else "substitute"

    @property
    def second(self) -> Fraction:
        """Return the largest sampling fraction inside a cluster."""
        return max(Fraction(a, b) for a, b in zip(self.takes, self.sizes, strict=True))

    @property
    def rate(self) -> Fraction:
        return Fraction(self.m, self.M) * self.second

    def loss(self, epsilon: Exact) -> Exact:
        first, most = Fraction(self.m, self.M), max(self.takes)
        if first == 1 or epsilon * most > LONG:  # no more than where the cluster is known
            return amp(epsilon, self.second)
        others, here = 1 - first, exact(first) * exp(epsilon * (most - 1))
        return ln(others + here * (1 + exact(self.second) * (exp(epsilon) - 1))) - ln(others + here)

    def believed(self, epsilon: Exact, rho: Fraction) -> Exact:
        return clustered(epsilon, rho, max(self.takes))

    def known_cluster(self, epsilon: Exact) -> Exact | None:
        return amp(epsilon, self.second)

    def samples(self) -> Samples:
        takes, sizes = (each * self.M if len(each) == 1 else each for each in (self.takes, self.sizes))
        if len(takes) != self.M:
            raise wrong(f"{len(takes)} takes for {self.M} clusters", where="n2", remedy="give one for each, or one")
        first = [sum(sizes[:c]) for c in range(self.M)]
        for clusters in combinations(range(self.M), self.m):
            p = Fraction(1, comb(self.M, self.m) * prod(comb(sizes[c], takes[c]) for c in clusters))
            for parts in product(*(combinations(range(first[c], first[c] + sizes[c]), takes[c]) for c in clusters)):
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
    def inner(self) -> str:
        return "edit" if len({len(s) for s, _ in self.drawn}) > 1 else "substitute"

    @property
    def rate(self) -> Fraction:
        units = {u for s, _ in self.drawn for u in s}
        return max(sum((p for s, p in self.drawn if u in s), Fraction(0)) for u in units)

    def loss(self, epsilon: Exact) -> Exact:
        raise refusal(UnsupportedDesign, NO_FORMULA, where="design", remedy=EXAMINE)

    def samples(self) -> Samples:
        return iter(self.drawn)
