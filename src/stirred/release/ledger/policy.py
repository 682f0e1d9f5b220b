"""The policy: how much may be spent in a declared flavor, who may release, which invariants are acceptable."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from stirred.release.ledger.currency import KNOWN_APART, Copies, Currency, as_proven
from stirred.release.ledger.entry import numbers
from stirred.release.ledger.policy_file import CHANGED, COUNTING, LimitDocument, invariant_toml, policy_document
from stirred.release.ledger.problems import LedgerError, OverLimitError
from stirred.release.ledger.samples import UNSTATED
from stirred.release.ledger.total import Total
from stirred.spec.composition import UnitFactor
from stirred.spec.exact import Exact
from stirred.spec.findings import empty
from stirred.spec.given_numbers import loss, probability
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin, plural
from stirred.spec.multiverse import Multiverse, Verdict
from stirred.spec.number_text import percent, small
from stirred.spec.output_premetric import GDP, PURE, ZCDP, OutputPremetric, approximate
from stirred.spec.problems import MeasureProblem, Problem, placed, setting, wrong
from stirred.spec.specification import Specification

Totals = Callable[[Currency], Total]

_NO_TOML: Final = "correct it, or name a policy such as docs/ledger.md shows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit in a declared flavor; ``distances`` are accepted beside those that count records."""

    name: str
    budget: Exact
    currency: Currency
    distances: tuple[str | InputPremetric, ...] = ()

    def accepts(self, premetric: InputPremetric) -> bool:
        """Say whether a loss by this distance is one that the limit is about."""
        return premetric.name in (*COUNTING, *self.distances) or any(
            isinstance(each, InputPremetric) and each == replace(premetric, post_imputation=each.post_imputation)
            for each in self.distances
        )

    def __str__(self) -> str:
        output = self.currency.output
        assert output is not None
        delta = f" at δ={small(output.delta)}" if output.delta else ""
        also = ", ".join(each if isinstance(each, str) else each.symbol for each in self.distances)
        stated = f"{output.greek} ≤ {self.budget.shown()}{delta} per {self.currency.unit} ({output.classic})"
        return f"{stated}, also by {also}" if also else stated


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """A policy that was put in force, or that none was: in which row, by whom, when and why."""

    number: int
    who: str
    when: str
    reason: str
    policy: Policy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the custodian has bound themselves to. It is checked in the transaction that reserves.

    >>> policy = Policy.from_toml('who = ["ana"]' + chr(10) + '[[limits]]' + chr(10)
    ...     + 'budget = "20"' + chr(10) + 'output = "zcdp"' + chr(10) + 'unit = "person"' + chr(10)
    ...     + '[invariants]' + chr(10) + 'acceptable = []')
    >>> print(policy.limits[0])
    ρ² ≤ 20 per person (zCDP, zero-concentrated differential privacy)
    """

    limits: tuple[Limit, ...] = ()
    who: tuple[str, ...] | None = None
    acceptable: Multiverse | None = None
    exposed_share: Fraction | None = None
    leaves_out_unspecified: bool = False  # limits are about the entries that have a specification
    document: dict[str, Any]

    @classmethod
    def from_document(cls, data: Any, *, source: str = "policy") -> Policy:
        """Read a policy to put in force from plain data, strictly."""
        policy = cls.stored(data, source=source)
        if policy.is_unstated:
            raise LedgerError([_unstated(source)])
        return policy

    @classmethod
    def stored(cls, data: Any, *, source: str = "policy") -> Policy:
        """Read a policy that a ledger holds: one without a word on invariants can be shown, and allows nothing."""
        document = policy_document(data, source=source)
        with placed(source):
            stated = document.invariants
            acceptable = None
            if stated is not None and stated.acceptable != "any":
                acceptable = Multiverse(invariants=tuple(stated.acceptable), hierarchies=tuple(stated.hierarchies))
            limits = tuple(_limit(limit) for limit in document.limits)
            share = document.exposed_share
            exposed = None if share is None else probability(share, where="exposed_share")
        who = None if document.who is None else tuple(document.who)
        kept = document.model_dump(exclude_defaults=True)
        return cls(
            limits=limits,
            who=who,
            acceptable=acceptable,
            exposed_share=exposed,
            leaves_out_unspecified=document.unspecified == "not-counted",
            document=kept,
        )

    @classmethod
    def from_toml(cls, text: str, *, source: str = "policy") -> Policy:
        """Read policy.toml; decimals stay the exact numbers they show."""
        try:
            data = tomllib.loads(text, parse_float=str)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise LedgerError([Problem(what=f"this is not TOML: {error}", where=source, remedy=_NO_TOML)]) from None
        return cls.from_document(data, source=source)

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Read a policy file."""
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "this is not text in UTF-8"
            what, remedy = f"cannot read it: {reason}", "check the path and its permissions"
            raise LedgerError([Problem(what=what, where=str(path), remedy=remedy)]) from None
        return cls.from_toml(text, source=str(path))

    def __str__(self) -> str:
        limits = "; ".join(str(limit) for limit in self.limits) or "no limit"
        unique = "" if self.exposed_share is None else f"; unique records: at most {percent(self.exposed_share)}"
        counted = "; entries without a specification are not counted" if self.leaves_out_unspecified else ""
        return f"{limits}; may be held fixed: {self.fixed}{unique}{counted}"

    @property
    def fixed(self) -> str:
        """Return in words what may be held fixed."""
        if self.acceptable is None:
            return "not stated, so nothing may be released" if self.is_unstated else "anything"
        return "; ".join(str(invariant) for invariant in self.acceptable.invariants) or "nothing"

    @property
    def is_unstated(self) -> bool:
        """Say whether there are limits, but not a word on what may be held fixed."""
        return bool(self.limits) and "invariants" not in self.document

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return what keeps the policy from allowing any release that costs something."""
        return (_unstated("policy"),) if self.is_unstated else ()

    def check(
        self, *, who: str, specification: Specification | None, now: Totals, then: Totals, can_fall: bool = True
    ) -> None:
        """Refuse a release that would break the policy, saying all reasons and what is left.

        ``now`` and ``then`` give the total without and with the release, in any currency; ``can_fall`` is
        False where it is known that the second is not below the first. A derived product has no
        specification: it costs nothing, so no limit can be in its way.
        """
        problems = []
        if self.who is not None and who not in self.who:
            allowed = ", ".join(self.who) or "nobody"
            problems += [Problem(what=f"{who} may not release", where="policy who", remedy=f"ask one of: {allowed}")]
        if specification is not None:
            problems += [*self.problems, *self._invariant_problems(specification)]
            for limit in self.limits:
                problems += _promise_problems(limit, specification) or _limit_problems(
                    limit, specification, now=now, then=then, can_fall=can_fall, lenient=self.leaves_out_unspecified
                )
        if problems:
            raise OverLimitError(problems)

    def _invariant_problems(self, specification: Specification) -> list[Problem]:
        if self.acceptable is None:
            return []
        # What the release says about levels and included records may speak against it, and never for it.
        whole = specification.multiverse
        bare = tuple(replace(i, includes=()) if isinstance(i, Margin) else i for i in whole.invariants)
        stated = (replace(whole, invariants=bare, hierarchies=()), whole)
        answer = next((found for found in map(self.acceptable.refines, stated) if not found), None)
        if answer is None:
            return []
        missing = [i for i in stated[0].invariants if not self.acceptable.refines(replace(stated[0], invariants=(i,)))]
        missing = missing or [*answer.free, *answer.undecidable]
        listed = "; ".join(str(invariant) for invariant in missing)
        what = f"the release holds fixed what the policy does not accept: {listed or answer.reason}"
        if answer.verdict is Verdict.CANNOT_TELL:
            what = f"the release may hold fixed what the policy does not accept: {answer.reason}"
        # Whoever sets the policy can paste these lines.
        lines = ", ".join(invariant_toml(invariant) for invariant in missing)
        return [
            Problem(
                what=what,
                where="policy invariants",
                remedy="choose a mechanism with fewer invariants, or have the policy changed"
                f"{f': add to acceptable in its [invariants] {lines}' if lines else ''}; hierarchies that decide what "
                "follows from what belong in the policy",
            )
        ]


def _promise_problems(limit: Limit, specification: Specification) -> list[Problem]:
    """Return why a promise is none that the limit can measure: it is empty, or its distance is not accepted."""
    problems = [
        Problem(what=f"the release promises nothing. {finding.message}", where=_place(limit), remedy=finding.advice)
        for finding in empty(specification)
    ]
    if not limit.accepts(specification.input_premetric):
        problems += [_other_distance(limit, specification.input_premetric)]
    return problems + _said_apart(limit, specification)


def _said_apart(limit: Limit, specification: Specification) -> list[Problem]:
    """Return that a limit believes no further distance between files than margins are known to keep.

    A pure loss is the smaller in zCDP the farther apart the nearest files are, and who specifies a release says it.
    """
    said = specification.multiverse
    if said.nearest <= KNOWN_APART or limit.currency.output == PURE:
        return []
    return [
        Problem(
            what=f"the compared files are said to be at least {said.nearest:,} apart ({said.nearest_because}). "
            f"That makes the loss smaller, and nothing shows it: margins are known to keep files {KNOWN_APART} apart",
            where=_place(limit),
            remedy=f"specify the release with nearest {KNOWN_APART} or 1, or have a limit in pure DP",
        )
    ]


def _other_distance(limit: Limit, premetric: InputPremetric) -> Problem:
    return Problem(
        what=f"the limit {limit} counts changed, added or removed records, and this loss is by another distance, "
        f"{premetric.symbol} ({premetric.words}): a number by one says nothing about the other",
        where=_place(limit),
        remedy=f"specify the release by one of {', '.join(COUNTING)}; if those who set the limit accept this distance, "
        "they list it under distances in the policy (docs/ledger.md)",
    )


def _limit_problems(
    limit: Limit, own: Specification, *, now: Totals, then: Totals, can_fall: bool, lenient: bool
) -> list[Problem]:
    after = then(limit.currency)
    if after.unspecified and not lenient and not limit.budget.is_infinite:
        return [_unknown_cost(limit, after)]
    if after.unbounded and not limit.budget.is_infinite:
        return [_without_bound(limit, now(limit.currency), after)]
    if undrawn := [number for aside in after.alone if aside.reason == UNSTATED for number in aside.entries]:
        return [_unstated_design(limit, undrawn)]
    if after.specification is None:
        if not after.parts and not after.alone:
            return []
        problems = [*after.apart, *(problem for aside in after.alone for problem in aside.problems)]
        why = next((p.what for p in problems), "") or next(aside.reason for aside in after.alone)
        remedy = next(
            (p.remedy for p in problems[:1] if isinstance(p, MeasureProblem)), ""
        )  # not about unit or distance
        return [
            Problem(
                what=f"everything together cannot be compared with the limit {limit}: {why}",
                where=_place(limit),
                remedy=remedy
                or "state the missing factor in the policy, or specify the release in a flavor that the limit has; "
                "a limit on added or removed records lists d_SymDiff under distances",
            )
        ]
    if far := _said_apart(limit, after.specification):
        return far
    if not limit.accepts(after.specification.input_premetric):
        return [_other_distance(limit, after.specification.input_premetric)]
    if more := _larger_delta(limit, after.specification):
        return [more]
    value = after.specification.budget.realised
    if value <= limit.budget and not can_fall:
        return []  # the usual case, in which one total is enough
    before, would = now(limit.currency), _held(after.specification)
    if before.specification is not None and value < before.specification.budget.realised:
        # Holding more fixed leaves fewer datasets to compare, and can make earlier losses look smaller.
        return [
            Problem(
                what=f"a further release cannot win anything back, but the total would fall from "
                f"{_held(before.specification)} to {would}",
                where=_place(limit),
                remedy="release with fewer invariants, or have them looked at by those who set the limit",
            )
        ]
    if value <= limit.budget:
        return []
    what = f"the total would be {after.bound}{would}, {(value - limit.budget).shown()} above the limit {limit}"
    if limit.currency.output == ZCDP and own.output_premetric == PURE and as_proven(own) is not own:
        what += (
            f". That the compared files are at least {own.multiverse.nearest} apart "
            f"({own.multiverse.nearest_because}) does not count: no two tables of {plural(own.input_premetric.unit)} "
            "among what is held fixed show that none can change alone"
            f"{'' if own.domain.columns else '; list the columns that the release looks at in its domain'}"
        )
    remedy = f"{left(limit, before)}; release with a smaller loss, or derive from what is released"
    return [Problem(what=what, where=_place(limit), remedy=remedy)]


def _larger_delta(limit: Limit, together: Specification) -> Problem | None:
    """Return the refusal of a total whose delta is above that of the limit, however small its epsilon is."""
    assert limit.currency.output is not None
    delta, most = together.output_premetric.delta, limit.currency.output.delta
    if delta <= most:
        return None
    return Problem(
        what=f"the total would be {_spent(together)}, with a delta above the {small(most)} of the limit {limit}",
        where=_place(limit),
        remedy="release with a smaller delta, or by a method that has none",
    )


def _unknown_cost(limit: Limit, after: Total) -> Problem:
    """Return the refusal of a release beside others whose cost is not known: "at least" is within no limit."""
    entries = numbers([number for aside in after.unspecified for number in aside.entries])
    why = after.unspecified[0].reason
    return Problem(
        what=f"entry {entries} has no specification ({why}): what it cost is not known, and so nothing shows that "
        f"everything together is within the limit {limit}",
        where=_place(limit),
        remedy="have those who set the limit decide: with unspecified = 'not-counted' in the policy it is about the "
        "other entries alone, and says so",
    )


def _unstated_design(limit: Limit, entries: list[int]) -> Problem:
    """Return the refusal of amplified losses, or beside ones, of which nothing shows what the sample makes of them."""
    return Problem(
        what=f"entry {numbers(entries)}: {UNSTATED}, and so nothing shows that everything together is within the limit "
        f"{limit}",
        where=_place(limit),
        remedy=f"state how the sample was drawn and what was lost on it ({setting('design')}, {setting('inner')}), or "
        f"give the loss on the sample itself, without {setting('amplified')}; an entry that the ledger has already is "
        f"added once more so, with {setting('includes')} and its number",
    )


def _without_bound(limit: Limit, before: Total, after: Total) -> Problem:
    """Return the refusal of what has no bound, or comes after something that has none: no limit can hold it."""
    ours = {*after.unbounded} - {*before.unbounded}
    what = "this release has an infinite loss, which promises nothing" if ours else after.no_bound
    remedy = "release by a method that promises something" if ours else "have the limit looked at by those who set it"
    return Problem(what=f"{what}: no bound is within the limit {limit}", where=_place(limit), remedy=remedy)


def _held(specification: Specification) -> str:
    """Return a loss with what it holds fixed, without which it says nothing."""
    fixed = "; ".join(str(invariant) for invariant in specification.multiverse.invariants)
    return f"{_spent(specification)} with {f'this held fixed: {fixed}' if fixed else 'nothing held fixed'}"


def _spent(specification: Specification) -> str:
    """Return a loss, and between which files where these are not those that differ in one record."""
    premetric = specification.input_premetric
    if premetric.within in (None, 1):
        return specification.budget_text
    return f"{specification.budget_text} between files up to {premetric.counted(premetric.within)} apart"


def _place(limit: Limit) -> str:
    return f"policy limit {limit.name}".strip()


def left(limit: Limit, so_far: Total) -> str:
    """Say what is left, rounded down."""
    if so_far.unbounded and not limit.budget.is_infinite:
        return f"nothing is left: {so_far.no_bound}"
    if so_far.specification is None:
        if so_far.parts or so_far.apart or so_far.alone:
            return "what is left cannot be said: the releases have no total in the measure of this limit"
        return f"{'at most' if so_far.unspecified else 'all of'} {limit.budget.shown()} is left"
    spent = so_far.specification.budget.realised
    at_least, at_most = so_far.bound, "at most " if so_far.bound else ""
    if spent >= limit.budget:
        return f"nothing is left: {at_least}{_spent(so_far.specification)} is spent"
    if spent == 0 and so_far.specification.output_premetric.delta:
        return (
            f"what was released has a delta, and {at_least}{_spent(so_far.specification)} follows from it: "
            f"{at_most}{limit.budget.shown()} is left, and a part of the delta is gone"
        )
    down = "inf" if limit.budget.is_infinite else (spent - limit.budget).shown().removeprefix("-")
    return f"{at_least}{_spent(so_far.specification)} is spent and {at_most}{down} is left"


def _limit(document: LimitDocument) -> Limit:
    where = f"limits {document.name}".strip()
    with placed(where):
        units = tuple(UnitFactor(**dict(unit)) for unit in document.units)
        copies = None if document.copies is None else Copies(**dict(document.copies))
        distances = tuple(document.distances)
        changed = {name: to for name, to in CHANGED.items() if name not in distances}
        currency = Currency(
            unit=document.unit,
            units=units,
            output=_output(document),
            copies=copies,
            distances=changed,
            proven=True,
        )
        budget = loss(document.budget, where="budget")
        return Limit(name=document.name, budget=budget, currency=currency, distances=distances)


def _output(document: LimitDocument) -> OutputPremetric:
    if document.output == "approximate":
        if document.delta is None:
            raise wrong("approximate DP needs a delta", where="delta", remedy='write such as delta = "1e-10"')
        return approximate(str(document.delta))
    if document.delta is not None:
        raise wrong(f"a limit in {document.output} takes no delta", where="delta", remedy="leave it out")
    return {"pure": PURE, "zcdp": ZCDP, "gdp": GDP}[document.output]


def _unstated(source: str) -> Problem:
    return Problem(
        what="there are limits, and nothing says what may be held fixed: whoever fixes everything loses nothing",
        where=f"{source} invariants",
        remedy='add [invariants] with acceptable = [...] (see docs/ledger.md), or, knowing this, acceptable = "any"',
    )
