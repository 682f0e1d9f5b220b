"""What would fit: the gentlest setting with which the policy of the ledger would allow a plan that it refuses."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction

from stirred.release.ledger import OverLimitError
from stirred.release.prepared import Prepared
from stirred.release.run import release_request
from stirred.spec.exact import Exact, exact
from stirred.spec.problems import StirredError

_STEPS = 1 << 10  # the loss that fits is found to a thousandth of the one that was refused
_MOST = 64  # where that is infinite, nobody's limit is so high
_GRID = 10_000  # rates are told to a hundredth of a percent, where that is fine enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A setting that the policy would allow: a rate, the setting that is the loss, or for others the loss alone."""

    setting: str
    value: Fraction
    epsilon: Exact

    def __str__(self) -> str:
        loss = f", epsilon {self.epsilon.shown()}" if self.setting == "rate" else ""
        return f"{self.setting} {float(self.value):.9g} (exactly {self.value}{loss})"


def fitting(prepared: Prepared) -> Fit | None:
    """Return the gentlest setting that the policy would allow, all else equal; None if there is none.

    A rate is one for all strata. It depends on the invariants, which are published, and on the ledger.
    """
    refused = prepared.plan.epsilon
    most = _MOST if refused.is_infinite else Fraction(math.ceil(refused.enclose().high * 1000), 1000)
    step = Fraction(most) / _STEPS
    low, high = 0, _STEPS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _allows(prepared, step * middle) else (low, middle)
    return _reaching(prepared, exact(step * low)) if low else None


def _allows(prepared: Prepared, epsilon: Fraction) -> bool:
    assert prepared.ledger is not None
    request = release_request(prepared, seeded=False)
    assert request.specification is not None
    try:
        prepared.ledger.would(replace(request, specification=request.specification.with_budget(epsilon)))
    except OverLimitError:
        return False
    return True


def _reaching(prepared: Prepared, epsilon: Exact) -> Fit | None:
    """Return the setting whose loss is at most ``epsilon``, as the plan would use it."""
    mechanism, plan = prepared.mechanism, prepared.plan
    by_rate = mechanism.rate_losses(plan)
    if by_rate is None or not by_rate.losses([Fraction(1, 2)]):
        value = Fraction(math.floor(Fraction(epsilon.enclose().low) * 1000), 1000)
        settings = prepared.planned.plan.mechanism.settings.dumped()
        setting = "loss" if settings.get("epsilon") is None else "epsilon"
        return Fit(setting=setting, value=value, epsilon=exact(value)) if value else None
    with suppress(StirredError):  # no rate reaches it
        rate = by_rate.gentlest(epsilon)
        for candidate in (Fraction(math.ceil(rate * _GRID), _GRID), rate):
            ((_, loss),) = by_rate.losses([candidate])
            if loss <= epsilon:
                return Fit(setting="rate", value=candidate, epsilon=loss)
    return None
