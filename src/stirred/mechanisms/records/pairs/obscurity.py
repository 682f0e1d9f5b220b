"""Obscurity: what it adds that nobody outside knows the rate, for an attacker with a stated prior on it.

To such an attacker the release is drawn from a mixture over rates. The mixture treats all permutations of a stratum
that move as many records alike, so its loss is computed exactly, like that of a known rate, from the mean weights. It
is never above the largest transparent loss on the support of the prior, and may be above that of the true rate. If all
priors on an interval are allowed, it *is* that supremum: an interval without a prior gains nothing. Strata share the
rate, so with many of them the rate shows and the gain is gone; it is gone at once when the rate leaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Fact
from stirred.mechanisms.records.laws.counting import psa_weights
from stirred.spec.exact import INFINITE, ZERO, Exact, largest, ln
from stirred.spec.given_numbers import probability

Prior = Mapping[Fraction, Fraction]
_MANY: Final = (1, 2, 3, 10, 100)


def prior_of(given: Mapping[str, Any]) -> dict[Fraction, Fraction]:
    """Return a prior of plain data: rates with their probabilities.

    >>> prior_of({"1/10": "1/2", "1/2": "1/2"})
    {Fraction(1, 10): Fraction(1, 2), Fraction(1, 2): Fraction(1, 2)}
    """
    found = {probability(r, where="rate_prior"): probability(p, where="rate_prior") for r, p in given.items()}
    if sum(found.values()) != 1:
        remedy = "write each rate with its probability; an interval without a prior gains nothing"
        raise bad_plan("the probabilities do not add up to 1", where="rate_prior", remedy=remedy)
    return found


def mixture_loss(prior: Prior, *, records: int) -> Exact:
    """Return the loss of the mixture on one stratum of so many records, all different: exact.

    Outputs that move k and j records differ in at least max(2, abs(k - j)) records.

    >>> half = Fraction(1, 2)
    >>> mixture_loss({Fraction(1, 10): half, half: half}, records=2)
    Exact('1/2*ln(61/21)')
    """
    weights = [Fraction(0)] * (records + 1)
    for rate, chance in prior.items():
        weights = [w + chance * u for w, u in zip(weights, psa_weights(records, rate), strict=True)]
    kinds = [k for k in range(records + 1) if k != 1]
    return _largest([(weights[k], weights[j], max(2, abs(k - j))) for k in kinds for j in kinds if k != j])


def mixture_loss_of_pairs(prior: Prior, *, strata: int) -> Exact:
    """Return the loss of the mixture on several strata of two different records each, which share their rate.

    >>> half = Fraction(1, 2)
    >>> mixture_loss_of_pairs({Fraction(1, 10): half, half: half}, strata=1)
    Exact('1/2*ln(61/21)')
    """
    chances = [(psa_weights(2, rate)[2], chance) for rate, chance in prior.items()]
    exchanged = [
        sum((chance * p**j * (1 - p) ** (strata - j) for p, chance in chances), Fraction(0)) for j in range(strata + 1)
    ]
    steps = [(exchanged[j], exchanged[j + 1]) for j in range(strata)]
    return _largest([(one, other, 2) for pair in steps for one, other in (pair, pair[::-1])])


def _largest(ratios: Sequence[tuple[Fraction, Fraction, int]]) -> Exact:
    found = [ZERO]
    for one, other, apart in ratios:
        if one and not other:
            return INFINITE
        if one > other:
            found.append(ln(one / other) / apart)
    return largest(found)


def obscurity_facts(prior: Prior | None) -> tuple[Fact, ...]:
    """Return what secrecy of the rate would add for a permutation swap of the same file, and what takes it away."""
    if prior is None:
        words = "no prior on the rate is stated: an interval without one gains nothing over the worst rate in it"
        return (Fact(label="obscurity", sentence=words),)
    open_ = {str(rate): mixture_loss({rate: Fraction(1)}, records=2) for rate in prior}
    hidden = {str(m): mixture_loss_of_pairs(prior, strata=m) for m in _MANY}
    words = (
        "for an attacker with the stated prior a secret rate would make a permutation swap of strata of two records "
        f"lose {', '.join(f'{loss.shown(3)} with {m} of them' for m, loss in hidden.items())}; known, the rates lose "
        f"{', '.join(f'{loss.shown(3)} at {rate}' for rate, loss in open_.items())}, which holds if the rate leaks"
    )
    values = {"hidden": {m: loss.shown(6) for m, loss in hidden.items()}}
    values |= {"transparent": {rate: loss.shown(6) for rate, loss in open_.items()}}
    return (Fact(label="obscurity", sentence=words, values={"obscurity": values}),)
