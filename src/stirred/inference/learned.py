"""What could be learned from a release, read off its specification alone.

Limits on beliefs need a pure loss (``D_Mult``). No other output premetric gives them (Remark 5.6.4 of the
dissertation), and none is converted silently: the gate is `UnsupportedFlavor`. zCDP limits the power of tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from stirred.inference.geometry import binomial, count_distance, exponent
from stirred.inference.testing import posterior_bounds, power_bounds, zcdp_power_bound
from stirred.spec.budget import PermutationSwapping
from stirred.spec.convert import can_be_metric, to_metric
from stirred.spec.exact import Exact, exact
from stirred.spec.explanation import explain as explain_specification
from stirred.spec.given_numbers import Number, probability
from stirred.spec.invariant import plural, records_of
from stirred.spec.number_text import places_for, rounded_up
from stirred.spec.problems import ConversionRefusedError, Problem, wrong
from stirred.spec.specification import Specification

# Beyond exp(10) a limit is a number in the ten thousands, which reads like a limit and limits nothing.
NO_ASSURANCE_ABOVE: Final = 10
HOUSEHOLD, COPIES, AREA = 4, 1, 100
_SHARES: Final = ("50%", "55%")


class UnsupportedFlavor(ConversionRefusedError):  # noqa: N818 (the name is the contract)
    """A specification for which no limit of this kind exists: its loss is not pure."""


def pure_loss(specification: Specification, *, where: str = "output_premetric") -> Exact:
    """Return the epsilon of a pure specification; any other flavor is refused by name.

    >>> from stirred.spec import catalogue
    >>> pure_loss(catalogue.load("das-2020").specification)
    Traceback (most recent call last):
    stirred.inference.learned.UnsupportedFlavor: output_premetric: ...
    """
    output = specification.output_premetric
    if specification.measured_on:
        what = "unsupported flavor: the promise is about a part of the output only"
        raise UnsupportedFlavor([Problem(what=what, where=where, remedy="specify the release for all of its output")])
    if output.name != "D_Mult":
        raise UnsupportedFlavor(
            [
                Problem(
                    what="unsupported flavor: limits on tests and posteriors need pure differential privacy (D_Mult); "
                    f"this is {output.name}, {output.classic}, which lets some outputs change the odds by any factor",
                    where=where,
                    remedy="read its own meaning with `stirred spec show --explain`; it is not converted",
                )
            ]
        )
    return specification.budget.realised


def is_zcdp(specification: Specification) -> bool:
    """Say whether the promise is zCDP, which limits tests and not beliefs."""
    return specification.output_premetric.name == "D_NoR"


def loss_for_tests(specification: Specification, *, where: str = "output_premetric") -> Exact:
    """Return the epsilon of a pure specification or the rho squared of zCDP; any other flavor is refused by name."""
    if is_zcdp(specification) and not specification.measured_on:
        return specification.budget.realised
    return pure_loss(specification, where=where)


def _why_none(specification: Specification) -> str:
    """Say to the reader of a report why there are no limits."""
    if specification.measured_on:
        return f"the promise is about a part of the output only ({', '.join(specification.measured_on)})"
    return (
        f"this release promises {specification.output_premetric.classic}, which lets single outputs change the odds by "
        "any factor. Limits are worked out for pure differential privacy and for zCDP"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRow:
    """What could be learned about someone: how far the versions are apart, and the two limits.

    ``far`` is epsilon times distance; under zCDP rho squared times the squared distance. ``power`` and ``posterior``
    are None where there is no assurance: nothing is stated, or ``far`` is above 10. zCDP has no ``posterior``.
    """

    about: str
    distance: int
    far: Exact | None
    power: Exact | None
    posterior: Exact | None
    words: str

    @property
    def assured(self) -> bool:
        """Say whether there is a limit that means something."""
        return self.power is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What could be learned: a row for each who, what to keep in mind, and what the exact figures reveal.

    ``refused`` says why there are no rows, where the flavor has no such limits.
    """

    alpha: Fraction
    prior: Fraction
    rows: tuple[LearnedRow, ...]
    notes: tuple[str, ...]
    reveals: tuple[str, ...]
    refused: str = ""


def explain(epsilon: Number, distance: Number = 1, alpha: Number = "0.05", prior: Number = "0.1") -> str:
    """Return in words what epsilon means for somebody ``distance`` records large.

    >>> explain(1)
    'a 5% test has power at most 13.6%; a prior of 1 in 10 can become at most 23.2%'
    >>> explain(1, 11)
    'no assurance: epsilon times distance is 11, and limits beyond 10 rule out almost nothing'
    """
    far = exponent(epsilon, distance)
    return _words(far, probability(alpha, where="alpha"), probability(prior, where="prior"), zcdp=False)


def _words(far: Exact, alpha: Fraction, prior: Fraction, *, zcdp: bool) -> str:
    if far.is_infinite:
        return "no assurance: nothing is promised between such versions"
    if far > NO_ASSURANCE_ABOVE:
        product = "rho squared times the squared distance" if zcdp else "epsilon times distance"
        return f"no assurance: {product} is {far.shown()}, and limits beyond 10 rule out almost nothing"
    if zcdp:
        return f"a {_share(exact(alpha), up=False)} test has power at most {_share(zcdp_power_bound(alpha, far))}"
    power, posterior = power_bounds(alpha, far).upper, posterior_bounds(prior, far).upper
    # What is stated before is rounded down: a limit for more than that holds for it, and not the other way round.
    one_in = f"1 in {prior.denominator}" if prior.numerator == 1 < prior.denominator else _share(exact(prior), up=False)
    return (
        f"a {_share(exact(alpha), up=False)} test has power at most {_share(power)}; "
        f"a prior of {one_in} can become at most {_share(posterior)}"
    )


def _share(value: Exact, *, up: bool = True) -> str:
    """Write a probability in percent, to a tenth or three digits; never 100% where it is less."""
    share = value * 100
    least = 1 if value == 0 or share >= 1 else places_for(share.enclose().high)
    places = next((p for p in range(least, least + 20) if rounded_up(share, p) < 100), least)
    text = f"{rounded_up(share, places) if up else abs(rounded_up(-share, places)):f}"
    return f"{text.rstrip('0').rstrip('.')}%"


def what_could_be_learned(
    specification: Specification,
    *,
    household: int = HOUSEHOLD,
    copies: int = COPIES,
    area: int = AREA,
    alpha: Number = "0.05",
    prior: Number = "0.1",
) -> Learned:
    """Return what could be learned about one unit, a household, a person with copies, and an area.

    >>> from stirred.spec import catalogue
    >>> pure = catalogue.load("pure-dp").specification.with_budget(1)
    >>> print(what_could_be_learned(pure).rows[0].words)
    a 5% test has power at most 13.6%; a prior of 1 in 10 can become at most 23.2%
    """
    for name, number in (("household", household), ("copies", copies), ("area", area)):
        if not 1 <= number <= 1_000:
            raise wrong(f"{number} is not a number of records", where=name, remedy="write 1 to 1,000")
    size, before = probability(alpha, where="alpha"), probability(prior, where="prior")
    reveals = explain_specification(specification).not_protected
    found: dict[str, Any] = {"alpha": size, "prior": before, "reveals": reveals}
    if specification.input_premetric.within == 1 and can_be_metric(specification):
        specification = to_metric(specification).specification  # the same promise, for all distances
    try:
        loss = loss_for_tests(specification)
    except UnsupportedFlavor:
        return Learned(**found, rows=(), notes=(), refused=_why_none(specification))
    if _nothing_moves(specification):
        what = "nothing can be swapped and the file is published as it is: a loss of 0 is not protection here"
        return Learned(**found, rows=(), notes=(), refused=what)
    rows = tuple(
        _row(specification, loss, about, distance, size, before)
        for about, distance in _subjects(specification, household, copies, area)
    )
    assured = any(row.assured for row in rows)
    return Learned(**found, rows=rows, notes=tuple(_notes(specification, assured=assured)))


def _subjects(specification: Specification, household: int, copies: int, area: int) -> Iterator[tuple[str, int]]:
    """Yield whom something could be learned about, and how far apart the versions are that tell it."""
    premetric = specification.input_premetric
    unit = premetric.unit
    if not premetric.counts:
        yield f"two versions {f'related by {premetric.relation}' if premetric.related_only else 'at distance 1'}", 1
        return
    # A changed record is one that goes and one that comes, where these are what is counted. Where figures are held
    # fixed, it takes others with it.
    each = _each(specification)
    if not premetric.bounded:
        yield f"whether one {unit} is in the file", specification.multiverse.nearest
    yield "one household, or one person in it" if unit == "household" else f"one {unit}", each
    if unit == "person":
        yield f"a household of {household}", household * each
    if premetric.post_imputation is not False:
        known = "" if premetric.post_imputation else ", if imputation copies"
        yield f"a person copied into {copies} more {records_of(unit, copies)}{known}", (1 + copies) * each
    yield f"everything about an area of {area} {plural(unit)}", area * each
    apart = int(count_distance(*(binomial(area, share) for share in _SHARES)).rational)
    yield f"an analyst of that area: is a share {_SHARES[0]} or {_SHARES[1]}", apart * each


def _each(specification: Specification) -> int:
    """Return how far apart two versions are that differ in one unit."""
    return max(1 if specification.input_premetric.bounded else 2, specification.multiverse.nearest)


def _row(
    specification: Specification, loss: Exact, about: str, distance: int, alpha: Fraction, prior: Fraction
) -> LearnedRow:
    premetric = specification.input_premetric
    related = premetric.within is not None or not premetric.counts  # all versions that count are then 1 apart
    if not premetric.closure and premetric.within is not None and distance > premetric.within:
        words = f"no assurance: nothing is stated for versions more than {premetric.counted(premetric.within)} apart"
        return LearnedRow(about=about, distance=distance, far=None, power=None, posterior=None, words=words)
    apart, zcdp = 1 if related else distance, is_zcdp(specification)
    far = exponent(loss, apart * apart if zcdp else apart)
    words = _words(far, alpha, prior, zcdp=zcdp)
    if far > NO_ASSURANCE_ABOVE:
        return LearnedRow(about=about, distance=distance, far=far, power=None, posterior=None, words=words)
    if zcdp:
        power = zcdp_power_bound(alpha, far)
        return LearnedRow(about=about, distance=distance, far=far, power=power, posterior=None, words=words)
    power, posterior = power_bounds(alpha, far).upper, posterior_bounds(prior, far).upper
    return LearnedRow(about=about, distance=distance, far=far, power=power, posterior=posterior, words=words)


def _notes(specification: Specification, *, assured: bool) -> Iterator[str]:
    if assured and is_zcdp(specification):
        yield (
            "These limits hold for every test. For someone who knows that several records move together, the distance "
            "is their number. How far a single output can move a belief has no limit: zCDP makes outputs that move "
            "it far improbable, and does not exclude them."
        )
    elif assured:
        yield (
            "These limits hold for every test, and for every prior that gives the other records the same chances "
            "either way. For someone who knows that several records move together, the distance is their number. They "
            "bound how far the release moves a belief from before to after, not what was known before."
        )
    if specification.input_premetric.counts:
        yield "The analyst's distance is that of the best coupling of the two models, not of their furthest files."
    if not specification.multiverse.is_vacuous and specification.input_premetric.is_metric:
        more = math.ceil(_each(specification) / (1 if specification.input_premetric.bounded else 2)) - 1
        others = f"Each record that changes is taken to change {more} more. " if more else ""
        priors = "" if is_zcdp(specification) else " Priors are those of someone who has seen the exact figures."
        yield (
            f"{others}The exact figures may force more records to change; such versions are further apart than these "
            f"rows assume, and the limits weaker.{priors}"
        )
    if specification.budget.varies:
        yield "The loss depends on the exact figures; this is its value for those of this file."


def _nothing_moves(specification: Specification) -> bool:
    policy = specification.budget.policy
    return isinstance(policy, PermutationSwapping) and not any(part.largest_stratum for part in policy.strata)
