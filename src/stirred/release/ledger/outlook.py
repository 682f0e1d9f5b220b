"""The outlook: what everything would promise with one more release, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from stirred.release.ledger.account import Account, without_collecting
from stirred.release.ledger.facts import OpeningFacts
from stirred.release.ledger.policy import Policy
from stirred.release.ledger.total import Charge, Currency, Total, total
from stirred.spec.specification import Specification


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outlook:
    """The total of an account now, and with one request; ``digest`` is that of the requested specification."""

    account: Account
    facts: OpeningFacts
    specification: Specification | None
    digest: str
    _charges: list[Charge] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_charges", self.account.charges())

    def check(self, policy: Policy) -> None:
        """Refuse what the policy forbids."""
        policy.check(
            who=self.facts.who,
            specification=self.specification,
            now=self.now,
            then=self.then,
            can_fall=not self._brings_nothing_new(),
        )

    def _brings_nothing_new(self) -> bool:
        """Say whether something of the same flavor counts already: then every other loss is converted as it was.

        The new loss is added to those, and the total cannot fall.
        """
        if self.specification is None or self.facts.sample is not None:
            return False
        covered = {inner for charge in self._charges for inner in charge.includes}
        counted = {
            charge.specification
            for charge in self._charges
            if charge.spent and charge.sample is None and not charge.derived_from and charge.id not in covered
        }
        return any(self._look_up(digest).flavor == self.specification.flavor for digest in counted)

    def now(self, currency: Currency | None = None) -> Total:
        """Return the total as it stands."""
        with without_collecting():
            return total(self._charges, self.account.specification, currency=currency)

    def then(self, currency: Currency | None = None, *, drawn: bool = False) -> Total:
        """Return the total with the request: reserved, when what it includes still counts, or drawn."""
        facts, last = self.facts, self.account.last
        new = Charge(
            number=0 if last is None else last.number + 1,
            id="",
            specification=self.digest,
            drawn=drawn,
            sample=facts.sample,
            amplified=facts.amplified,
            derived_from=tuple(facts.derived_from),
            includes=tuple(facts.includes),
        )
        with without_collecting():
            return total([*self._charges, new], self._look_up, currency=currency)

    def _look_up(self, digest: str) -> Specification:
        if digest == self.digest and self.specification is not None:
            return self.specification
        return self.account.specification(digest)
