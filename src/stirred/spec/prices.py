"""The price of an invariant: the budget at which noise would almost surely leave its counts as they are.

It is a pragmatic equivalent and not a guarantee: what is published exactly is not protected at any budget, and a price
is that of one kind of noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stirred.spec.composition import UnitFactor
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import fraction, probability
from stirred.spec.invariant import Invariant, Margin, the
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import percent
from stirred.spec.problems import wrong
from stirred.spec.specification import Specification

CALLED: Final = "a pragmatic equivalent, not a guarantee"
BETA: Final = Fraction(1, 20)
_HALVINGS: Final = 100
_LEAST: Final = Fraction(1, 10**30)
_MOST: Final = 10**15  # counts
_NEVER: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one invariant would cost if its counts were published with noise that leaves all of them unchanged.

    ``rho2`` is by discrete Gaussian and ``epsilon`` by discrete Laplace noise, with probability 1 - ``beta`` for all
    ``counts`` together. ``moved`` is how many of the counted records one unit moves, None where it is not stated and 1
    is taken. ``unchanged`` is the probability at the budget of the specification. ``missing`` says why there is none.
    """

    invariant: Invariant
    unit: str
    beta: Fraction
    counts: int | None = None
    moved: Fraction | None = None
    rho2: Exact | None = None
    epsilon: Exact | None = None
    unchanged: float | None = None
    missing: str = ""

    def __str__(self) -> str:
        if self.rho2 is None or self.epsilon is None:
            return f"{the(self.invariant)}: no price, {self.missing}"
        many = "its one count" if self.counts == 1 else f"all {self.counts:,} counts"
        text = (
            f"{the(self.invariant)}: at ρ²={self.rho2.shown()} Gaussian noise, or at ε={self.epsilon.shown()} Laplace "
            f"noise, would leave {many} unchanged with probability {_nearly(1 - self.beta)}"
        )
        if self.moved is None and isinstance(self.invariant, Margin):
            text += f", if one {self.unit} moves one {self.invariant.of}"
        if self.unchanged is not None:
            text += "; at the budget itself "
            text += f"with probability {_nearly(self.unchanged)}" if self.unchanged > _NEVER else "almost surely not"
        return text


def _nearly(share: Fraction | float) -> str:
    """Write a probability below 1 that a double may have rounded to 1."""
    return percent(share) if share < 1 - _NEVER else f"above {percent(1 - _NEVER, digits=12)}"


def noise_price(counts: int, *, beta: Fraction | str = BETA) -> Exact:
    """Return the rho squared at which discrete Gaussian noise leaves all counts alone with probability 1 - beta.

    For records that are added or removed, where one count moves by one; a changed record moves two, and costs twice as
    much. With theta(r) the sum of exp(-r z^2) over all whole z, all noise is zero with probability theta^-counts, so r
    solves theta(r) = (1 - beta)^(-1/counts). Rounded up.

    >>> noise_price(51).shown(10)
    '7.5946651449'
    """
    return _gaussian(_log(counts, _share(beta)))


def price(
    specification: Specification,
    *,
    counts: Mapping[str, int] | None = None,
    beta: Fraction | str = BETA,
    units: Iterable[UnitFactor] = (),
) -> tuple[Price, ...]:
    """Return the price of each invariant, beside which the budget can be read.

    ``counts`` says how many values each level or variable has, such as ``{"state": 51}``, which no specification knows.
    ``units`` says how many counted records one unit moves: six persons of a household cost 36 times as much.

    >>> from stirred.spec import catalogue
    >>> first, *_ = price(catalogue.load("das-2020").specification, counts={"state": 51})
    >>> first.rho2.shown(10), round(first.unchanged, 6)
    ('15.1893302898', 1.0)
    """
    share, stated, many = _share(beta), tuple(units), dict(counts or {})
    known = axes(specification)
    for name in {name for name, value in many.items() if name not in known or not 1 <= value <= _MOST}:
        what = f"{many[name]} is not a number of values" if name in known else f"{name!r} is no level or variable here"
        listed = f"give 1 to {_MOST:,} of: {', '.join(sorted(known))}"
        remedy = listed if known else "leave it out: no invariant needs it"
        raise wrong(what, where="count", remedy=remedy)
    return tuple(_priced(specification, i, many, share, stated) for i in specification.multiverse.invariants)


def axes(specification: Specification) -> set[str]:
    """Return the levels and variables that the invariants count by."""
    return {name for i in specification.multiverse.invariants if isinstance(i, Margin) for name in _axes(i)}


def _axes(margin: Margin) -> list[str]:
    return [*margin.variables, *([margin.level] if margin.level else [])]


def _priced(
    specification: Specification,
    invariant: Invariant,
    many: Mapping[str, int],
    beta: Fraction,
    units: tuple[UnitFactor, ...],
) -> Price:
    premetric, multiverse = specification.input_premetric, specification.multiverse
    missing = "since how far apart related files are is not known" if not premetric.counts else ""
    if missing := missing or _missing(invariant, many, multiverse):
        return Price(invariant=invariant, unit=premetric.unit, beta=beta, missing=missing)
    assert isinstance(invariant, Margin)
    total = math.prod(many[name] for name in _axes(invariant))
    factors = {u.old: fraction(u.factor, where="kappa") for u in units if u.new == premetric.unit}
    moved = Fraction(1) if invariant.of == premetric.unit else factors.get(invariant.of)
    # Counts that move, and by how much: neighbours may differ in several units at once.
    at_once = (2 if premetric.bounded else 1, (moved or Fraction(1)) * (premetric.within or 1))
    log = _log(total, beta)
    return Price(
        invariant=invariant,
        unit=premetric.unit,
        beta=beta,
        counts=total,
        moved=moved,
        rho2=at_once[0] * at_once[1] ** 2 * _gaussian(log),
        epsilon=at_once[0] * at_once[1] * _laplace(log),
        unchanged=_unchanged(specification, total, *at_once),
    )


def _missing(invariant: Invariant, many: Mapping[str, int], multiverse: Multiverse) -> str:
    """Return why an invariant has no price of its own; empty where it has one."""
    if not isinstance(invariant, Margin):
        return "since it is no table of counts"

    def only(*kept: Invariant) -> Multiverse:
        return Multiverse(invariants=kept, hierarchies=multiverse.hierarchies)

    after = multiverse.invariants[multiverse.invariants.index(invariant) :]
    same = [i for i in after if only(invariant).refines(only(i))]  # of two that say the same, the first has the price
    others = only(*(i for i in multiverse.invariants if i not in same))
    if not others.is_vacuous and others.refines(only(invariant)):
        return "since it follows from the others and comes with theirs"
    unknown = [name for name in _axes(invariant) if name not in many]
    return f"since how many there are is not said: {' '.join(f'--count {n}=K' for n in unknown)}" if unknown else ""


def _unchanged(specification: Specification, counts: int, moving: int, moved: Fraction) -> float | None:
    """Return the probability that noise for the whole budget would leave all counts alone, where that is known."""
    budget, name = specification.budget, specification.output_premetric.name
    if budget.is_free or budget.realised.is_infinite or budget.realised == 0:
        return None
    if name == "D_Mult":
        return math.tanh(float(budget.realised) / float(moving * moved) / 2) ** counts
    r = float(budget.realised) / float(moving * moved**2)
    if name != "D_NoR" or r < 1e-4:  # below it no count is likely to stay as it is
        return None
    theta = 2 * sum(math.exp(-r * z * z) for z in range(1, math.ceil(28 / math.sqrt(r))))
    return math.exp(-counts * math.log1p(theta))


def _share(beta: Fraction | str) -> Fraction:
    share = probability(beta, where="beta")
    if not _LEAST <= share <= Fraction(1, 2):
        raise wrong(f"beta {share} is out of range", where="beta", remedy="choose a share from 1e-30 to 1/2")
    return share


def _log(counts: int, beta: Fraction) -> float:
    """Return -ln(1 - beta)/counts: minus the logarithm of the probability with which each count stays as it is."""
    return -math.log1p(-float(beta)) / counts


def _gaussian(log: float) -> Exact:
    """Return r with ln theta(r) = log, by halving in x = exp(-r), where theta = 1 + 2 (x + x^4 + x^9 + ...)."""
    target = math.expm1(log) / 2
    low, high = 0.0, target  # since x itself is at most the sum
    for _ in range(_HALVINGS):
        x = (low + high) / 2
        low, high = (x, high) if math.fsum(x ** (z * z) for z in range(1, 12)) < target else (low, x)
    return _rounded_up(-math.log(low))


def _laplace(log: float) -> Exact:
    """Return ln((1 + t)/(1 - t)) with t = exp(-log): the loss of one count whose noise is zero with probability t."""
    return _rounded_up(math.log((1 + math.exp(-log)) / -math.expm1(-log)))


def _rounded_up(value: float) -> Exact:
    """Return a price with twelve decimals, rounded up by more than arithmetic in doubles can have lost."""
    return exact(Fraction(math.ceil(Fraction(value * (1 + 1e-14)) * 10**12), 10**12))
