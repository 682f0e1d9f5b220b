"""Several releases from samples: one sample, dependent ones, or samples of which nobody knows how they depend."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Final

from stirred.spec.exact import Exact, add_up, exp, ln
from stirred.spec.given_numbers import Number, loss, probability
from stirred.spec.problems import wrong
from stirred.survey.amplify import SECRET, greatest
from stirred.survey.design import amp
from stirred.survey.refusals import SharedSampleError, refusal

_ONE_BY_ONE: Final = "units are drawn one by one: no clusters"
_INDEPENDENT: Final = "the samples were drawn independently of each other"
_JOINT: Final = (
    "they are simple random samples that share always the same number of units, all such pairs being equally likely; "
    "or each unit is drawn into both independently of all others"
)


def compose(epsilons: Sequence[Number], rates: Sequence[Number], *, joint: Number | None = None) -> Exact:
    """Return the loss of several releases from samples drawn with these probabilities.

    One rate means one sample: inner losses are added, then amplified once. Two need the ``joint`` probability of
    being in both, or "independent". Where the dependence is "unknown" the sum of the inner losses is left: who is in
    one sample may show who is in the other. :func:`conditions` says what the other cases rest on.

    >>> compose([1, 2], ["0.1"]).shown(6)
    '1.067656'
    >>> compose(["0.5", 1], ["1/2", "1/2"], joint="1/4").shown(6)
    '0.901045'
    """
    losses = [loss(e, where="epsilon") for e in epsilons]
    chances = [probability(p, where="pi") for p in rates]
    if any(e.is_infinite for e in losses) or len(chances) not in (1, len(losses)) or not losses:
        what = f"{len(losses)} losses and {len(chances)} rates do not fit, or a loss is infinite"
        raise wrong(what, where="epsilon", remedy="one finite loss for each rate, or one rate for one shared sample")
    whole = add_up(losses)
    if len(chances) == 1:
        return amp(whole, chances[0])
    if joint is None:
        raise refusal(
            SharedSampleError, "amplified losses of samples that may depend on each other do not add up",
            where="joint", remedy="give the probability of being in both, or independent, or unknown for a bound",
        )  # fmt: skip
    if joint == "unknown":
        return whole
    if joint == "independent":
        return add_up([amp(e, p) for e, p in zip(losses, chances, strict=True)])
    if len(losses) != 2:
        raise wrong("joint probabilities are known for two samples", where="joint", remedy="write unknown for more")
    return compose_joint(losses[0], losses[1], chances[0], chances[1], probability(joint, where="joint"))


def conditions(samples: int, joint: Number | None) -> tuple[str, ...]:
    """Return what a composed loss rests on; the sum of inner losses, for unknown dependence, rests on nothing more.

    >>> conditions(2, "unknown")
    ()
    """
    if samples > 1 and joint == "unknown":
        return ()
    return (SECRET, _ONE_BY_ONE, *([] if samples == 1 else [_INDEPENDENT if joint == "independent" else _JOINT]))


def compose_joint(first: Exact, second: Exact, p: Fraction, q: Fraction, both: Fraction) -> Exact:
    """Return the loss of two releases whose samples a unit enters together with probability ``both``.

    Given the rest, a unit's entry must change one record of each sample. A number of shared units that varies breaks
    that: an output can make large overlaps likely, and with them that the unit is in both.
    """
    if not max(Fraction(0), p + q - 1) <= both <= min(p, q):
        low, high = max(Fraction(0), p + q - 1), min(p, q)
        raise wrong(f"{both} is not possible with {p} and {q}", where="joint", remedy=f"from {low} to {high}")
    chance = {(1, 1): both, (1, 0): p - both, (0, 1): q - both, (0, 0): 1 - p - q + both}

    def weighed(a: int, b: int) -> Exact:
        return add_up([cell * exp(i * a * first + j * b * second) for (i, j), cell in chance.items() if cell])

    return greatest([ln(weighed(a, b)) - ln(weighed(a - 1, b - 1)) for a, b in product((1, 0), repeat=2)])
