"""What somebody believes of one record after a release: measures of the literature that have an exact form.

`docs/risk.md` says which of the measures that the paper's discussion cites are not here, and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import Number, probability
from stirred.spec.problems import wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A probability before and after, with their ratio and difference (absolute disclosure risk: Reiter 2005)."""

    prior: float
    posterior: float

    @property
    def ratio(self) -> float:
        """Return how many times as likely it has become."""
        return self.posterior / self.prior

    @property
    def difference(self) -> float:
        """Return by how much it has become more likely."""
        return self.posterior - self.prior


def share_that_moves(rate: Number, records: int) -> Fraction:
    """Return the probability that a record of a stratum moves, if each is selected with ``rate`` and one never alone.

    >>> share_that_moves("1/2", 4)
    Fraction(7, 12)
    """
    p = probability(rate, where="rate")
    if records < 2:
        return Fraction(0)
    stay = (1 - p) ** (records - 1)
    return p * (1 - stay) / (1 - records * p * stay)


def released_is_true(counts: Sequence[int], moves: Fraction) -> Fraction:
    """Return the probability that the released value of a record of a stratum is its true one.

    ``counts`` are how often each value occurs there, ``moves`` the probability that a record moves
    (`share_that_moves`); who moves gets the value of one of the others, each equally likely. A record that f share
    their keys with is found, with its true value, with this probability over f.

    >>> released_is_true([2, 2], share_that_moves("1/2", 4))
    Fraction(11, 18)
    """
    n = sum(counts)
    return 1 - moves + moves * Fraction(sum(c * (c - 1) for c in counts), n * (n - 1)) if n > 1 else Fraction(1)


def belief_in_released(count: int, records: int, moves: Fraction) -> Belief:
    """Return how likely a released value of ``count`` among the ``records`` of a stratum is true, before and after.

    Before, all records are exchangeable: the margins are published. (Swap as in `released_is_true`.)

    >>> belief_in_released(2, 4, share_that_moves("1/2", 4))
    Belief(prior=0.5, posterior=0.611111...)
    """
    if not 1 <= count <= records:
        raise wrong(f"{count} of {records} is no count", where="count", remedy="a released value occurs at least once")
    after = (
        released_is_true([count], Fraction(0)) if records < 2 else 1 - moves + moves * Fraction(count - 1, records - 1)
    )
    return Belief(prior=count / records, posterior=float(after))


def effective_privacy(epsilon: Number, group: int) -> Exact:
    """Return the loss of the posterior with a record against that with the record replaced, keeping the invariants.

    Ashmead et al. (2019): the odds of the two differ by a factor of at most exp(2 epsilon s), where s is the size
    of the smallest group of records that has to change together for the invariants to stay. In a swap's universe no
    record can change alone, so s is 2 or more; for a column that is an invariant by itself there is no such group,
    and no bound. Always say s with the number.

    >>> effective_privacy("1/2", 2)
    Exact('2')
    """
    if group < 1:
        raise wrong(f"a group of {group} records", where="group", remedy="at least one record changes")
    return exact(epsilon) * (2 * group)


def belief_after_noisy_count(prior: float, *, observed: float, others: float, variance: float) -> Belief:
    """Return how likely it is that a person is in a cell, before and after its count with Gaussian noise.

    The attacker knows how many ``others`` are there (Kazan and Reiter 2025, in the setting of one count): the odds
    are multiplied by exp((2 (observed - others) - 1) / (2 variance)), for discrete Gaussian noise with that parameter
    too. What post-processing makes of the count is not taken into account.

    >>> belief_after_noisy_count(0.01, observed=8, others=7, variance=0.25).posterior
    0.069453...
    """
    if not 0 < prior < 1 or variance <= 0:
        what, remedy = f"a prior of {prior} and a variance of {variance}", "take 0 < prior < 1 and 0 < variance"
        raise wrong(what, where="belief", remedy=remedy)
    log_odds = math.log(prior / (1 - prior)) + (2 * (observed - others) - 1) / (2 * variance)
    return Belief(prior=prior, posterior=0.5 * (1 + math.tanh(log_odds / 2)))
