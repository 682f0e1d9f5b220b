"""The finite, exact output law of a mechanism: what an attacker could see, with which probability."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

from stirred.spec.problems import wrong


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """A probability law on finitely many outcomes, in exact fractions.

    ``space`` names the measurable space; laws on different spaces are infinitely far apart
    (Definition 2.4.16 of the dissertation). Outcomes of probability zero are dropped.

    >>> coin = Law({"heads": Fraction(1, 2), "tails": Fraction(1, 2)})
    >>> coin["heads"], coin["edge"]
    (Fraction(1, 2), Fraction(0, 1))
    """

    probabilities: Mapping[Hashable, Fraction]
    space: Hashable = None

    def __post_init__(self) -> None:
        kept = {t: Fraction(p) for t, p in self.probabilities.items() if p != 0}
        if any(p < 0 for p in kept.values()) or sum(kept.values()) != 1:
            raise wrong(
                f"the probabilities sum to {sum(kept.values(), Fraction(0))}",
                where="law",
                remedy="give non-negative fractions that sum to exactly 1",
            )
        object.__setattr__(self, "probabilities", MappingProxyType(kept))

    def __getitem__(self, outcome: Hashable) -> Fraction:
        return self.probabilities.get(outcome, Fraction(0))

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.probabilities)

    def __len__(self) -> int:
        return len(self.probabilities)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Law):
            return NotImplemented
        return self.space == other.space and dict(self.probabilities) == dict(other.probabilities)

    def __hash__(self) -> int:
        return hash((self.space, frozenset(self.probabilities.items())))

    def times(self, other: Law) -> Law:
        """Return the law of both outcomes together, drawn with fresh randomness."""
        pairs: dict[Hashable, Fraction] = {
            (s, t): p * q for s, p in self.probabilities.items() for t, q in other.probabilities.items()
        }
        return Law(pairs, space=(self.space, other.space))

    def pushed(self, function: Callable[[Hashable], Hashable], *, space: Hashable = None) -> Law:
        """Return the law of ``function`` of the outcome: post-processing."""
        pushed: dict[Hashable, Fraction] = {}
        for outcome, p in self.probabilities.items():
            image = function(outcome)
            pushed[image] = pushed.get(image, Fraction(0)) + p
        return Law(pushed, space=space)

    @classmethod
    def certain(cls, outcome: Hashable, *, space: Hashable = None) -> Law:
        """Return the law of a mechanism that always releases ``outcome``."""
        return cls({outcome: Fraction(1)}, space=space)


def likelihood_pairs(p: Law, q: Law) -> list[tuple[Fraction, Fraction]]:
    """Return (P(t), Q(t)) for every outcome either law can produce."""
    outcomes = list(dict.fromkeys([*p, *q]))
    return [(p[t], q[t]) for t in outcomes]
