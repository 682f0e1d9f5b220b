"""How far a release with a pure loss can move anyone from prior to posterior.

This is prior-to-posterior semantics: what one person believes before and after. It does not compare the posteriors that
two versions of the file would have given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from stirred.inference.geometry import exponent
from stirred.inference.testing import power_bounds
from stirred.inference.weights import Ends, Given, OutcomeWeights
from stirred.spec.exact import ONE, ZERO, exact, exp, ln
from stirred.spec.given_numbers import Number, probability
from stirred.spec.problems import wrong

_FORMS: Final = ("odds", "stated", "complemented")
# A double is widened by this much, so that its rounding never shows a band narrower than it is.
WIDER: Final = 2.0**-40


def posterior_bounds(prior: Number, epsilon: Number, distance: Number = 1, form: str = "odds") -> Ends:
    """Return between what the posterior probability of a statement lies.

    ``odds`` (the default) bounds the odds, and is always inside the others. ``stated`` is Theorem 5.6.3: the prior
    times or divided by exp(epsilon distance), where it is no more than 1. ``complemented`` uses that for the
    statement and for its opposite. The prior is the one *given what the invariants show*: see `exact_posterior`.

    >>> posterior_bounds("0.3", 1).doubles
    (0.136190..., 0.538101...)
    """
    if form not in _FORMS:
        raise wrong(f"there is no form {form!r}", where="form", remedy=f"write {', '.join(_FORMS)}")
    p, far = probability(prior, where="prior"), exponent(epsilon, distance)
    if p in (0, 1):  # what has no chance before has none after
        return Ends(exact(p), exact(p))
    if form == "complemented":
        return power_bounds(p, epsilon, distance)
    if far.is_infinite or far > 10**5:
        return Ends(ZERO, ONE)
    if form == "stated":
        return Ends(p * exp(-far), ONE if far >= ln(1 / p) else p * exp(far))
    against = (1 - p) / p
    return Ends(1 / (1 + against * exp(far)), 1 / (1 + against * exp(-far)))


def posterior_band(
    prior: Callable[[float], float], epsilon: Number, distance: Number = 1
) -> Callable[[float], tuple[float, float]]:
    """Return the band in which the posterior density lies at each value of the parameter (Theorem 5.6.3).

    >>> band = posterior_band(lambda theta: 1.0, "ln(2)")
    >>> band(0.5)
    (0.49999..., 2.0000...)
    """
    far = float(exponent(epsilon, distance))

    def at(theta: float) -> tuple[float, float]:
        density = prior(theta)
        upper = density * math.exp(far) * (1 + WIDER) if far < 700 else math.inf if density else 0.0
        return density * math.exp(-far) * (1 - WIDER), upper

    return at


def exact_posterior(prior: Given, likelihood: Given) -> OutcomeWeights:
    """Return the posterior by Bayes' rule, where prior and likelihood are known.

    With the probability of what the invariants show in place of a likelihood it is the prior *given the invariants*,
    the one that limits are about: noise limits what is learned beyond them.

    >>> exact_posterior({"A": "1/2", "B": "1/2"}, {"A": "0.9", "B": "0.1"}).values
    {'A': Fraction(9, 10), 'B': Fraction(1, 10)}
    """
    before, seen = OutcomeWeights.probabilities(prior, where="prior"), OutcomeWeights.of(likelihood, where="likelihood")
    joint = {theta: w * seen[theta] for theta, w in before.values.items() if seen[theta]}
    total = sum(joint.values(), Fraction(0))
    if not total:
        raise wrong("what was seen has no probability", where="likelihood", remedy="check the model")
    return OutcomeWeights({theta: w / total for theta, w in joint.items()}, before.rational and seen.rational)
