"""A request: what is asked of the ledger for one release, and what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from stirred.release.ledger.account import Account, Standing
from stirred.release.ledger.entry import numbers
from stirred.release.ledger.problems import LedgerError, bad_request
from stirred.release.ledger.row import OpeningFacts, canonical
from stirred.release.ledger.samples import Sampling, check_stated
from stirred.release.ledger.total import total
from stirred.spec.composition import compose
from stirred.spec.document import to_document
from stirred.spec.output_premetric import GDP, PURE, ZCDP, OutputPremetric
from stirred.spec.problems import StirredError, setting
from stirred.spec.specification import Specification


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
