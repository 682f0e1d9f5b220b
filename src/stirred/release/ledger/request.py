"""A request: what is asked of the ledger for one release, what speaks against it, and the total it would lead to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stirred.release.ledger.account import Account, Standing, without_collecting
from stirred.release.ledger.contradictions import Contradiction, contradictions, entries_in_words
from stirred.release.ledger.currency import Currency
from stirred.release.ledger.policy import Policy
from stirred.release.ledger.problems import LedgerError, bad_request
from stirred.release.ledger.row import Charge, OpeningFacts, canonical, numbers, plan_in
from stirred.release.ledger.total import Total, total
from stirred.spec.composition import compose
from stirred.spec.document import to_document
from stirred.spec.output_premetric import GDP, PURE, ZCDP, OutputPremetric
from stirred.spec.problems import StirredError, setting
from stirred.spec.specification import ONE_RUN, Specification

if TYPE_CHECKING:
    from stirred.release.ledger.samples import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of the ledger for one release, before anything random has happened.

    ``place`` is where the bundle will appear, so that a release interrupted after its bundle appeared
    can be found again. ``derived_from`` and ``includes`` are numbers or ids of entries. ``made`` is the day
    of a release made elsewhere, such as "2021-08-12", and ``unspecified`` the reason why it has no specification.
    """

    mechanism: str
    specification: Specification | None = None
    purpose: str = ""
    who: str | None = None
    parameters: Mapping[str, Any] | None = None
    inputs: Mapping[str, str] | None = None
    sample: str | None = None
    amplified: bool = False
    sampling: Sampling | None = None
    derived_from: Sequence[str | int] = ()
    includes: Sequence[str | int] = ()
    unspecified: str = ""
    place: str | Path | None = None
    bundle: str | None = None
    made: str | date | None = None


def checked_document(specification: Specification) -> str:
    """Return a specification as the ledger keeps it; letters without a value and test runs are refused."""
    if specification.budget.is_free:
        raise bad_request(
            "the budget is a letter without a value", where="specification", remedy="give it a value before releasing"
        )
    if specification.seeded:
        remedy = "run it without a ledger; whoever knows the seed can undo the protection"
        raise bad_request("a test run with a seed is no release", where="specification", remedy=remedy)
    return canonical(to_document(specification))


def opening_facts(account: Account, request: Request, *, at: str, who: str) -> OpeningFacts:
    """Return what the opening row will state; a request that makes no sense is refused."""
    if not request.mechanism.strip():
        raise bad_request("the mechanism has no name", where="mechanism", remedy="name what made the release")
    facts = OpeningFacts(
        at=at,
        who=who,
        mechanism=request.mechanism,
        purpose=request.purpose,
        made=None if request.made is None else _day(request.made, at=at),
        parameters=dict(request.parameters or {}),
        sample=request.sample,
        amplified=request.amplified,
        sampling=None if request.sampling is None else request.sampling.document(),
        derived_from=[_source(account, reference) for reference in request.derived_from],
        includes=[account.find(reference).opening.id for reference in request.includes],
        unspecified=request.unspecified.strip(),
        inputs=dict(request.inputs or {}),
        place=None if request.place is None else str(Path(request.place).absolute()),
        bundle=request.bundle,
    )
    _check(account, request)
    return facts


def _day(stated: str | date, *, at: str) -> str:
    """Return a day as it is kept; one that has not come yet anywhere on Earth is refused."""
    try:
        day = date.fromisoformat(str(stated).strip())
    except ValueError:
        raise bad_request(f"{str(stated)!r} is not a date", where="when", remedy="write such as 2021-08-12") from None
    if day > (datetime.fromisoformat(at).astimezone(UTC) + timedelta(days=1)).date():
        raise bad_request(f"{day} has not come yet", where="when", remedy="give the day on which the release was made")
    return day.isoformat()


def _source(account: Account, reference: str | int) -> str:
    """Return the id of an entry to derive from: something that is out already, or drawn."""
    standing = account.find(reference)
    if not standing.drawn and not standing.facts.derived_from:
        what = f"entry {standing.opening.number} is {standing.status} and nothing was drawn for it"
        raise bad_request(what, where="derived_from", remedy="derive from an entry whose output exists")
    return standing.opening.id


def _check(account: Account, request: Request) -> None:
    given = () if request.bundle is None else map(account.entry, account.standings.values())
    known = [entry.number for entry in given if entry.bundle == request.bundle]
    if known:
        remedy = "a release counts once; if it was made twice, each has a bundle and a checksum of its own"
        raise bad_request(f"this release is entry {known[0]} already", where="bundle", remedy=remedy)
    if request.unspecified.strip() and (request.specification or request.derived_from or request.includes):
        what = "a release without a specification is given one, or said to cost nothing"
        raise bad_request(what, where="unspecified", remedy="leave unspecified out, or the other")
    if request.specification is None and not request.derived_from and not request.unspecified.strip():
        remedy = "give one, say from which entry the release is derived, or say why there is none (--unspecified)"
        raise bad_request("there is no specification", where="specification", remedy=remedy)
    if request.derived_from and request.specification is not None:
        raise bad_request(
            "a derived product costs nothing, so it has no specification of its own",
            where="derived_from",
            remedy="leave the specification out, or, if anything is drawn for it, leave derived_from out",
        )
    if request.derived_from and (request.includes or request.sample):
        what = "a derived product costs nothing, so it includes nothing and draws from no sample"
        raise bad_request(what, where="derived_from", remedy="leave out includes and sample")
    if request.sampling is not None and not request.amplified:
        remedy = (
            f"say {setting('amplified')}, or leave {setting('design')}, {setting('inner')} and {setting('joint')} out"
        )
        raise bad_request("a design is given for a loss that is not amplified", where="design", remedy=remedy)
    if request.sampling is not None and request.specification is not None:
        from stirred.release.ledger.samples import check_stated

        check_stated(request.sampling, request.specification)
    if request.amplified and request.sample is None:
        remedy = "name the sample, so that other releases from it are recognised"
        raise bad_request("the loss is amplified by a sample that has no name", where="sample", remedy=remedy)
    for standing in map(account.find, request.includes):
        if standing.is_unspecified:
            what = f"entry {standing.opening.number} has no specification, so nothing shows that it is contained"
            raise bad_request(what, where="includes", remedy="leave it out of includes")
    if request.includes and request.specification is not None:
        _check_inclusion(account, [account.find(reference) for reference in request.includes], request.specification)


def _check_inclusion(account: Account, inner: list[Standing], whole: Specification) -> None:
    """Refuse a whole that holds less fixed than its parts together, costs less, or cannot be compared with them."""
    named = f"entry {numbers([standing.opening.number for standing in inner])}"
    charges = [standing.charge for standing in inner]
    # An amplified loss without its design is in no sum, and this is how it is stated afterwards: as it stands here.
    stated = [c if c.sampling else c._replace(sample=None, amplified=False) if c.amplified else c for c in charges]
    together = total(stated, account.specification)
    if not together.parts and not together.alone:
        return  # nothing that costs is included
    parts = together.specification
    if parts is None:
        reason = [*(p.what for p in together.apart), *(aside.reason for aside in together.alone)][0]
        raise _not_included(f"{named} cannot be added up ({reason})")
    fixed = whole.multiverse.refines(parts.multiverse)
    if not fixed:
        raise _not_included(f"it does not hold fixed what {named} holds fixed ({fixed.reason})")
    if whole.input_premetric != parts.input_premetric:
        raise _not_included(f"it counts changes otherwise than {named}")
    try:
        common = compose([whole, parts]).specification.output_premetric
    except StirredError as error:
        raise _not_included(f"it cannot be compared with {named} ({error.problems[0].what})") from None
    # Delta adds up, so losses with one are compared as they stand, and only at a delta that is no smaller.
    _check_as_large(whole, parts, wanted=None if common.delta else common, named=named)
    # Files further apart make the same epsilon a smaller rho squared: no total may fall, in whichever measure it is.
    for output in (PURE, GDP, ZCDP):
        if output != common and _reaches(whole, output) and _reaches(parts, output):
            _check_as_large(whole, parts, wanted=output, named=named)


def _reaches(specification: Specification, output: OutputPremetric) -> bool:
    try:
        compose([specification], output=output)
    except StirredError:
        return False
    return True


def _check_as_large(whole: Specification, parts: Specification, *, wanted: OutputPremetric | None, named: str) -> None:
    """Refuse a whole that costs less than its parts in the wanted measure of change."""
    ours, theirs = (compose([one], output=wanted).specification for one in (whole, parts))
    less_delta = ours.output_premetric.delta < theirs.output_premetric.delta
    if less_delta or ours.output_premetric.name != theirs.output_premetric.name:
        raise _not_included(f"it cannot be compared with {named} (the deltas or the measures of change differ)")
    if ours.budget.realised < theirs.budget.realised:
        raise _not_included(f"{ours.budget_text} is less than the {theirs.budget_text} of {named}")


def _not_included(what: str) -> LedgerError:
    return bad_request(
        f"{what}, so it cannot contain it",
        where="includes",
        remedy="give the specification of everything together, or leave includes out",
    )


# ---- what would follow ---------------------------------------------------------------------------------------


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
