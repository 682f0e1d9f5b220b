"""The audit of permutation swapping on one stratum: its exact loss beside every bound."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from stirred.mechanisms.swapping.counting import LossWitness, Margins, exact_loss
from stirred.spec.exact import Exact, probability
from stirred.spec.swap_budget import psa_epsilon, psa_existential_bound, psa_sharp_epsilon


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapAudit:
    """The loss permutation swapping really has on one stratum, and the bounds on it."""

    exact_loss: Exact
    sharp_bound: Exact
    theorem_bound: Exact
    existential_bound: Exact
    tables: int
    witness: LossWitness | None

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
