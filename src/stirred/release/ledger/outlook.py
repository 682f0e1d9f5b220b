"""The outlook: what everything would promise with one more release, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from stirred.release.ledger.account import Account, without_collecting
from stirred.release.ledger.contradictions import Contradiction, contradictions, entries_in_words
from stirred.release.ledger.currency import Currency
from stirred.release.ledger.entry import Charge
from stirred.release.ledger.policy import Policy
from stirred.release.ledger.problems import bad_request
from stirred.release.ledger.row import OpeningFacts, plan_in
from stirred.release.ledger.total import Total, total
from stirred.spec.specification import ONE_RUN, Specification


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
            if charge.spent and charge.specification and charge.sample is None and charge.id not in covered
        }
        return any(self._look_up(digest).flavor == self.specification.flavor for digest in counted)

    def now(self, currency: Currency | None = None) -> Total:
        """Return the total as it stands."""
        with without_collecting():
            return total(self._charges, self.account.specification, currency=currency, plan_of=self._plan_of)

    def then(self, currency: Currency | None = None, *, drawn: bool = False) -> Total:
        """Return the total with the request: reserved, when what it includes still counts, or drawn."""
        with without_collecting():
            charges = [*self._charges, self._charge(drawn=drawn)]
            return total(charges, self._look_up, currency=currency, plan_of=self._plan_of)

    @property
    def number(self) -> int:
        """Return the number that the entry would have."""
        return 0 if self.account.last is None else self.account.last.number + 1

    def contradicted(self) -> tuple[Contradiction, ...]:
        """Return the assumptions that the request would contradict, or that others contradict of its own."""
        charges = [*self._charges, self._charge(drawn=True)]
        found = contradictions(charges, self._look_up, plan_of=self._plan_of)
        return tuple(one for one in found if self.number in (*one.entries, *one.by))

    def check_only_run(self) -> None:
        """Refuse a request that says it is the one run of its plan while another run is open, or was made."""
        charges = [*(charge._replace(drawn=True) for charge in self._charges), self._charge(drawn=True)]
        found = contradictions(charges, self._look_up, plan_of=self._plan_of)
        claimed = [one for one in found if one.reliance == ONE_RUN and self.number in one.entries]
        if begun := [number for one in claimed for number in one.by if number != self.number]:
            verb = "runs" if len(begun) == 1 else "run"
            raise bad_request(
                f"{entries_in_words(begun, lower=True)} of the ledger {verb} this plan on this file too, since it was "
                "planned or still",
                where="ledger",
                remedy="plan again when that run has ended; `stirred ledger recover` ends one that died",
            )

    def _charge(self, *, drawn: bool) -> Charge:
        return Charge(self.number, "", self.digest, drawn=drawn, **self.facts.relations)

    def _plan_of(self, id_: str) -> str:
        return self.account.plan_of(id_) if id_ else plan_in(self.facts)

    def _look_up(self, digest: str) -> Specification:
        if digest == self.digest and self.specification is not None:
            return self.specification
        return self.account.specification(digest)
