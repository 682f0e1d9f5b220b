"""The audit of a swap on one stratum: its exact loss beside every bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from stirred.mechanisms.swapping.laws.counting import (
    LossWitness,
    Margins,
    UniverseExact,
    exact_loss,
    exact_loss_of_weights,
)
from stirred.mechanisms.swapping.laws.family import exact_loss_of_conditioned, mallows_weights, shuffle_weights
from stirred.spec.exact import ZERO, Exact
from stirred.spec.family_budget import Number, mallows_epsilon, mallows_weight, redraw_epsilon, redraw_kernel
from stirred.spec.given_numbers import probability
from stirred.spec.problems import wrong
from stirred.spec.shuffle_budget import shuffle_epsilon
from stirred.spec.swap_budget import psa_epsilon, psa_existential_bound, psa_sharp_epsilon

REDRAW_LAWS: Final = ("uniform", "proportional")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAudit:
    """The loss a swap really has on one stratum, and the bound its theorem gives."""

    exact_loss: Exact
    sharp_bound: Exact
    tables: int
    witness: LossWitness | None

    @property
    def passed(self) -> bool:
        """Say whether the exact loss keeps within the bound."""
        return self.exact_loss <= self.sharp_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapAudit(MemberAudit):
    """The loss permutation swapping really has on one stratum, and the bounds on it."""

    theorem_bound: Exact
    existential_bound: Exact

    @property
    def passed(self) -> bool:
        """Say whether the exact loss keeps within the sharp bound, and that within Theorem 1."""
        return self.exact_loss <= self.sharp_bound and self.sharp_bound <= self.theorem_bound


def audit_swap(hold: Margins, swap: Margins, rate: Fraction | str) -> SwapAudit:
    """Return the exact loss of permutation swapping on a stratum with these margins, beside its bounds.

    ``sharp_bound`` holds for every stratum of this size (swapping theory R1 and R2), ``theorem_bound`` is
    the paper's, and some stratum of this size loses at least ``existential_bound`` (Theorem 3).

    >>> found = audit_swap((3, 2), (2, 2, 1), "1/2")
    >>> found.passed, found.tables, found.exact_loss <= found.sharp_bound <= found.theorem_bound
    (True, 5, True)
    """
    p = probability(rate, where="rate")
    found = exact_loss(hold, swap, p)
    # A stratum with one hold value or one swap value has a single table: nothing to swap (R1, live).
    size = sum(hold) if len(hold) > 1 and len(swap) > 1 else 0
    return SwapAudit(
        exact_loss=found.loss,
        sharp_bound=psa_sharp_epsilon(p, stratum=size),
        theorem_bound=psa_epsilon(p, largest_stratum=size),
        existential_bound=psa_existential_bound(p, largest_stratum=size),
        tables=found.tables,
        witness=found.witness,
    )


def audit_conditioned(hold: Margins, swap: Margins, rate: Number, *, redraw_law: str = "uniform") -> MemberAudit:
    """Return the exact loss of the conditioned swap (R6) on a stratum; ``redraw_law`` is the law values are redrawn by.

    ``uniform`` over the swap values of the stratum, or ``proportional`` to their counts.

    >>> audit_conditioned((1, 1, 1), (1, 1, 1), "1/2").exact_loss
    Exact('ln(4)')
    """
    if redraw_law not in REDRAW_LAWS:
        raise wrong(f"{redraw_law!r} is not known", where="redraw_law", remedy=f"write {' or '.join(REDRAW_LAWS)}")
    q = probability(rate, where="rate")
    n, size = sum(swap), len(swap)
    masses = [Fraction(1, size) if redraw_law == "uniform" else Fraction(count, n or 1) for count in swap]
    found = exact_loss_of_conditioned(hold, swap, redraw_kernel(q, masses))
    return _member(found, redraw_epsilon(q, masses))


def audit_mallows(hold: Margins, swap: Margins, epsilon: Number) -> MemberAudit:
    """Return the exact loss of the Mallows swap (R5) with this parameter on a stratum.

    >>> audit_mallows((2, 2), (2, 2), "ln(3)").passed
    True
    """
    weight = mallows_weight(epsilon)
    found = exact_loss_of_weights(hold, swap, mallows_weights(sum(hold), weight))
    return _member(found, mallows_epsilon(weight))


def audit_shuffle(hold: Margins, swap: Margins, rate: Number) -> MemberAudit:
    """Return the exact loss of the shuffle swap (R7) on a stratum, beside the bound by its margins.

    >>> audit_shuffle((2, 2), (2, 1, 1), "1/2").exact_loss
    Exact('1/2*ln(8)')
    """
    p = probability(rate, where="rate")
    found = exact_loss_of_weights(hold, swap, shuffle_weights(sum(hold), p))
    return _member(found, shuffle_epsilon(hold, swap, p))


def _member(found: UniverseExact, bound: Exact) -> MemberAudit:
    # A single table is public: whatever the mechanism, nothing is lost and nothing protected.
    sharp = ZERO if found.tables == 1 else bound
    return MemberAudit(exact_loss=found.loss, sharp_bound=sharp, tables=found.tables, witness=found.witness)
