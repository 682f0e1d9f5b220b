"""What sampling does to a loss, and back: every gate is a refusal with its counterexample."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from stirred.spec.exact import ZERO, Exact, UndecidedError, exact
from stirred.spec.given_numbers import Number, fraction, loss, probability
from stirred.spec.problems import wrong
from stirred.survey.designs import RELATIONS, Design, Poisson, amp
from stirred.survey.refusals import (
    AllocationFromData,
    IncompatibleRelation,
    NoAmplification,
    UnboundedValues,
    UnsupportedDesign,
    UnverifiedAmplification,
    WeightsNotFixed,
    refusal,
)
from stirred.survey.settings import ELEVENTH, Setting

ESTIMATORS: Final = ("any", "ht-total")
SECRET: Final = "who was sampled is secret: no one outside knows or can see it"
IN_PROPORTION: Final = "the noise loses for a part of the sensitivity that part of epsilon, as Laplace noise does"
ALIKE: Final = "the design does not depend on the protected records, and was followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is claimed of a design and of the mechanism that runs on its sample.

    ``inner`` is the relation that the inner guarantee covers (default: the one the design needs); ``frames`` says how
    two frames differ. ``estimator`` "ht-total" claims that the release is a function of one Horvitz-Thompson total of
    values within ``bounds``, plus noise for the ``sensitivity`` (default: the largest weighted range) that loses in
    proportion to a change, as Laplace noise does; it amplifies better. ``response`` and ``coverage`` are largest
    probabilities, used only with ``assume_known``. ``duplicates`` is the largest number of frame units of one entity.
    """

    inner: str | None = None
    frames: str = "substitute"
    estimator: str = "any"
    bounds: tuple[Number, Number] | None = None
    sensitivity: Number | None = None
    setting: Setting = ELEVENTH
    secret: bool = True
    response: Number | None = None
    coverage: Number | None = None
    assume_known: bool = False
    duplicates: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Amplified:
    """The loss of one unit of the frame, what the inner mechanism must guarantee for it, and what is assumed."""

    epsilon: Exact
    delta: Exact
    inner: Exact
    relation: str
    reason: str
    assumptions: tuple[str, ...]

    @property
    def amplifies(self) -> bool:
        """Say whether sampling makes the loss smaller at all."""
        return _below(self.epsilon, self.inner)


def amplify(epsilon: Number, design: Design, *, delta: Number = 0, **claimed: Any) -> Amplified:
    """Return the loss of "draw a sample, then run a mechanism with loss epsilon on it"; ``claimed`` are of Claim.

    >>> from stirred.survey.designs import SRSWOR, Stratified
    >>> amplify(1, SRSWOR(2, 4)).epsilon.shown(6)
    '0.620115'
    >>> certain = Stratified((10, 5), (100, 5))  # one stratum is taken whole
    >>> sharp = amplify(1, certain, estimator="ht-total", bounds=(0, 1))
    >>> amplify(1, certain).epsilon.shown(), sharp.epsilon.shown(6)
    ('1', '0.158566')
    """
    claim = Claim(**claimed)
    inner = loss(epsilon, where="epsilon")
    if inner.is_infinite:
        raise wrong("epsilon is infinite", where="epsilon", remedy="give the loss of the inner mechanism")
    small = fraction(delta, where="delta")
    if not 0 <= small < 1:
        raise wrong(f"{delta} is not a delta", where="delta", remedy="write a number from 0 to below 1")
    relation = _checked(design, claim)
    risen, reason, left = _lost(inner, design, claim, relation), _reason(design, claim), ZERO
    if small:
        found = design.delta(inner, small) if claim == Claim(inner=claim.inner, setting=claim.setting) else None
        if found is None or relation == "add-remove":
            raise wrong("no formula for delta is known here", where="delta", remedy="use an inner mechanism without it")
        left = found
    mechanism = f"the inner mechanism has loss {inner} over all samples, by the relation {relation!r}"
    return Amplified(
        epsilon=risen, delta=left, inner=inner, relation=relation, reason=reason,
        assumptions=(*assumptions(design, **claimed), mechanism),
    )  # fmt: skip


def assumptions(design: Design, **claimed: Any) -> tuple[str, ...]:
    """Return what a claim rests on, apart from the loss of the inner mechanism.

    >>> from stirred.survey.designs import SRSWOR
    >>> assumptions(SRSWOR(2, 4), response="0.3", assume_known=True)[-1]
    'units respond independently of each other, each with probability at most 3/10'
    """
    claim, found = Claim(**claimed), [SECRET, ALIKE]
    if not claim.setting.weights_fixed:
        found.append("the release is computed from the sample alone: no weights or totals in it vary with the frame")
        if len({*design.shape.units}) > 1:
            found.append(f"no unit could be drawn with a probability above {design.shape.rate}, whatever its record")
    if claim.estimator == "ht-total":
        found.append(IN_PROPORTION)
    if claim.response is not None:
        most = probability(claim.response, where="response")
        found.append(f"units respond independently of each other, each with probability at most {most}")
    if claim.coverage is not None:
        most = probability(claim.coverage, where="coverage")
        found.append(f"units are on the frame independently of each other, each with probability at most {most}")
        found.append("no frame is smaller than the design says")
    return (*found,)


def deamplify(target: Number, design: Design, **claimed: Any) -> Exact:
    """Return the largest inner loss, rounded down, with which a design loses no more than the target.

    >>> from stirred.survey.designs import Cluster
    >>> deamplify("0.1", Cluster(m=1, M=10, K=5)).shown(6)
    '0.316393'
    """
    claim, most = Claim(**claimed), loss(target, where="target")
    if most.is_infinite or most == 0:
        raise wrong("the target must be above 0 and finite", where="target", remedy="write the loss that is wanted")
    return _largest_inner(most, design, claim, _checked(design, claim))


@lru_cache(maxsize=256)  # a plan and its report ask for the same few losses many times
def _largest_inner(most: Exact, design: Design, claim: Claim, relation: str) -> Exact:
    def fits(inner: float) -> bool:
        return not _below(most, _lost(exact(inner), design, claim, relation))

    low, high = 0.0, float(most)
    while fits(high):
        low, high = high, 2 * high
        if high > 10**6:
            raise wrong("no inner loss reaches the target", where="target", remedy="a unit is never drawn here")
    while (middle := (low + high) / 2) not in (low, high):  # until two neighbouring doubles are left
        low, high = (middle, high) if fits(middle) else (low, middle)
    return exact(low)


def _checked(design: Design, claim: Claim) -> str:
    """Return the relation that the inner guarantee covers, or refuse what is claimed."""
    if "sampling" not in claim.setting.amplifiers or not claim.secret:
        late = f"the promise starts at the stage {claim.setting.start!r}" if claim.secret else "the sample is public"
        raise refusal(
            NoAmplification, f"{late}, so sampling protects nobody further", where="start",
            remedy="state the loss epsilon itself, or start at the frame and keep the sample secret",
        )  # fmt: skip
    if claim.coverage is not None and claim.setting.start != "population":
        raise refusal(
            NoAmplification, f"the promise starts at the {claim.setting.start}: being on the frame is not protected, "
            "so coverage lowers no loss", where="coverage", remedy="leave it out, or start at the population",
            example=1,
        )  # fmt: skip
    if design.placed and not claim.setting.weights_fixed:
        raise refusal(
            AllocationFromData, f"in setting {claim.setting.number} a unit can change its stratum, cluster, size or "
            f"place in the list, by which {design.name} draws", where="start",
            remedy="hold the frame variables fixed (--invariant frame-variables), or draw a simple random sample",
            example=2 if design.shape.first is None else 3,
        )  # fmt: skip
    if (claim.response is not None or claim.coverage is not None) and not claim.assume_known:
        raise refusal(
            UnverifiedAmplification, "response and coverage are not drawn by you, and their rates are not known",
            where="response" if claim.response is not None else "coverage",
            remedy="leave them out, or take the responsibility with --assume-known",
        )  # fmt: skip
    if claim.response is not None and design.shape.draws > 1:
        raise refusal(
            UnverifiedAmplification, "a unit that is drawn twice answers once: response does not lower the loss of "
            "each draw by itself", where="response", remedy="leave it out, or state a design without replacement",
        )  # fmt: skip
    if claim.duplicates > 1 and (claim.response is not None or claim.coverage is not None):
        raise refusal(
            UnverifiedAmplification, "the units of one entity answer, or are on the frame, together: response and "
            "coverage do not lower the loss of each by itself", where="duplicates",
            remedy="leave response and coverage out",
        )  # fmt: skip
    if claim.estimator not in ESTIMATORS:
        raise wrong(f"{claim.estimator!r} is not an estimator here", where="estimator", remedy="any or ht-total")
    if claim.estimator == "ht-total" and (not claim.setting.weights_fixed or claim.response is not None):
        raise refusal(
            WeightsNotFixed, "a Horvitz-Thompson total amplifies by weights that are fixed, and these vary",
            where="estimator", remedy="hold the frame variables fixed, with design weights alone; or estimator any",
        )  # fmt: skip
    needed = "edit" if claim.response is not None else design.shape.inner
    return _covering(needed, claim, poisson=isinstance(design, Poisson))


def _covering(needed: str, claim: Claim, *, poisson: bool) -> str:
    given = claim.inner or needed
    if given not in RELATIONS or claim.frames not in ("substitute", "add-remove"):
        where = "inner" if given not in RELATIONS else "frames"
        raise wrong("there is no such relation", where=where, remedy=f"one of {', '.join(RELATIONS)}")
    if claim.frames == "add-remove" and not poisson:
        raise wrong("a design of fixed size is of one frame", where="frames", remedy="write substitute")
    if given == "add-remove" and (not poisson or claim.response is not None or claim.estimator != "any"):
        raise refusal(
            IncompatibleRelation, "the inner guarantee covers added and removed records, and here one is replaced",
            where="inner", remedy="count it twice: a loss epsilon for adding is 2 epsilon for substitute",
            example=1,
        )  # fmt: skip
    if given == "substitute" and needed == "edit":
        raise refusal(
            IncompatibleRelation, "samples differ in size, and the inner guarantee compares samples of one size",
            where="inner", remedy="use a mechanism whose guarantee covers replaced, added and removed records: edit",
            example=0 if poisson else 2,
        )  # fmt: skip
    return given


def _lost(inner: Exact, design: Design, claim: Claim, relation: str) -> Exact:
    """Return the loss, stage by stage from the responses up to the population."""
    if claim.response is not None:
        inner = amp(inner, probability(claim.response, where="response"))
    if claim.estimator == "ht-total":
        found = _of_total(inner, design, claim)
    elif relation == "add-remove" and claim.frames == "substitute" and isinstance(design, Poisson):
        found = design.only_added(inner)
    else:
        found = design.loss(inner)
    if claim.coverage is not None:
        found = amp(found, probability(claim.coverage, where="coverage"))
    if claim.duplicates < 1:
        raise wrong(f"{claim.duplicates} units for one entity", where="duplicates", remedy="write 1 or more")
    return claim.duplicates * found


def _of_total(inner: Exact, design: Design, claim: Claim) -> Exact:
    """Return the largest amp(epsilon w c / sensitivity, pi): each unit moves the total by its own weighted range."""
    drawn = [p for p in design.shape.units if p]
    if not drawn:
        raise refusal(
            UnsupportedDesign, f"no formula for a Horvitz-Thompson total is known for {design.name}",
            where="estimator", remedy="write estimator any",
        )  # fmt: skip
    if claim.bounds is None:
        what = "a total of values without public bounds"
        raise refusal(UnboundedValues, what, where="bounds", remedy="give them, such as --bounds 0,1")
    low, high = (fraction(end, where="bounds") for end in claim.bounds)
    if isinstance(design, Poisson):  # a unit that is not drawn counts as 0
        low, high = min(low, Fraction(0)), max(high, Fraction(0))
    if low >= high:
        raise wrong("the lower bound is not below the upper one", where="bounds", remedy="such as 0,1")
    most = (high - low) / min(drawn)
    scale = most if claim.sensitivity is None else fraction(claim.sensitivity, where="sensitivity")
    if scale < most:
        raise wrong(f"one record changes the total by up to {most}", where="sensitivity", remedy=f"{most} or more")
    # (exp(epsilon w c / scale) - 1) / w grows with the weight w: the unit that is drawn most rarely decides.
    return amp(inner * (most / scale), min(drawn))


def greatest(values: list[Exact]) -> Exact:
    """Return the largest; numbers that agree to 600 digits count as equal."""
    best = values[0]
    for value in values[1:]:
        best = value if _below(best, value) else best
    return best


def _below(a: Exact, b: Exact) -> bool:
    try:
        return a < b
    except UndecidedError:
        return False


def _reason(design: Design, claim: Claim) -> str:
    if claim.estimator == "ht-total":
        return "each unit moves the total by its own weight, and the heaviest are drawn most rarely"
    if design.shape.draws > 1:
        return "a unit can be drawn several times, so the loss adds up over the draws"
    if design.rated:
        return f"a unit is drawn with probability at most {design.shape.rate}"
    return "units are drawn together, and those drawn with a unit give away that it was drawn"
