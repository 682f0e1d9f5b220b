"""The policy: how much may be spent in a declared flavor, who may release, which invariants are acceptable."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, WithJsonSchema

from stirred.release.ledger.currency import KNOWN_APART, Copies, Currency, as_proven
from stirred.release.ledger.problems import LedgerError, OverLimitError
from stirred.release.ledger.row import StrictFacts, numbers
from stirred.release.ledger.total import Aside, Total
from stirred.spec.composition import UnitFactor
from stirred.spec.exact import Exact
from stirred.spec.findings import empty
from stirred.spec.given_numbers import loss, probability
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Inequality, Invariant, Margin, Named, plural
from stirred.spec.misfits import Misfit, misfits, refusals
from stirred.spec.multiverse import Hierarchy, Multiverse, Verdict
from stirred.spec.number_text import percent, small
from stirred.spec.output_premetric import GDP, PURE, ZCDP, OutputPremetric, approximate
from stirred.spec.problems import MeasureProblem, Problem, placed, setting, wrong
from stirred.spec.specification import Specification

Totals = Callable[[Currency], Total]

_NO_TOML: Final = "correct it, or name a policy such as docs/ledger.md shows"

# Decimals of a file arrive as the text they are, so that 15.29 stays the number it shows.
Number = Annotated[str | int, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})]


class StatedFactor(StrictFacts):
    """A stated factor between two units, with its reason."""

    old: str = Field(description="The unit of a release, such as household.")
    new: str = Field(description="The unit of the limit, such as person.")
    factor: Number = Field(description="How many old records one new unit changes at most; a number, or such as 3/2.")
    because: str = Field(description="Why that is so; it stands with every step that uses it.")
    keeps_total: str | None = Field(
        default=None, description="Why the invariants already fix the number of old records, if they do."
    )


class StatedCopies(StrictFacts):
    """How many records one person's answers may have been copied into."""

    factor: Number = Field(description="The largest number of records that hold one person's answers, 1 or more.")
    because: str = Field(description="Why there are no more of them.")


# Changed, added or removed records, one by one: what a limit "per person" means unless the policy says more.
COUNTING: Final = ("d_HamS", "d_Ham", "d_SymDiff", "d_InsDel")
# By these one changed record is 2 apart, one removed and one added: the distance by which it is 1 apart.
CHANGED: Final = {"d_SymDiff": "d_HamS", "d_InsDel": "d_Ham"}
_Further = Annotated[Literal["d_SymDiff", "d_InsDel", "d_Edge", "d_Node", "d_Euclid"], Tag("name")]


class Limit(StrictFacts):
    """A limit: the total of everything, in this unit and output premetric, stays at or below ``budget``."""

    budget: Number = Field(
        description='The largest total loss: "60", 15.29 or such as "ln(3)"; for zcdp it is rho squared.'
    )
    output: Literal["pure", "zcdp", "gdp", "approximate"] = Field(description="How change in the output is measured.")
    delta: Number | None = Field(default=None, description='delta, for approximate alone: such as "1e-10".')
    unit: str = Field(description="Whose change the limit is about, such as person or household.")
    name: str = Field(default="", description="What messages call this limit.")
    units: list[StatedFactor] = Field(default=[], description="Factors between units, where releases have other ones.")
    distances: list[
        Annotated[
            _Further | Annotated[InputPremetric, Tag("own")],
            Discriminator(lambda value: "name" if isinstance(value, str) else "own"),
        ]
    ] = Field(
        default=[],
        description="Distances between files that the limit accepts as they stand, beside those that count changed "
        "records: d_SymDiff or d_InsDel for added or removed ones (by default one changed record counts as one removed "
        "and one added), a name such as d_Edge, or a distance of your own as a specification states it.",
    )
    copies: StatedCopies | None = Field(
        default=None, description="Protect people, whose answers may stand in several records after imputation."
    )

    @cached_property
    def most(self) -> Exact:
        """Return the largest total loss."""
        return loss(self.budget, where="budget")

    @cached_property
    def accepted(self) -> tuple[str | InputPremetric, ...]:
        """Return the distances that are accepted in addition to those that count records."""
        return tuple(self.distances)

    @cached_property
    def currency(self) -> Currency:
        """Return what the limit is expressed in."""
        return Currency(
            unit=self.unit,
            units=tuple(UnitFactor(**dict(unit)) for unit in self.units),
            output=self._measure(),
            copies=None if self.copies is None else Copies(**dict(self.copies)),
            distances={name: to for name, to in CHANGED.items() if name not in self.accepted},
            proven=True,
        )

    def _measure(self) -> OutputPremetric:
        if self.output == "approximate":
            if self.delta is None:
                raise wrong("approximate DP needs a delta", where="delta", remedy='write such as delta = "1e-10"')
            return approximate(str(self.delta))
        if self.delta is not None:
            raise wrong(f"a limit in {self.output} takes no delta", where="delta", remedy="leave it out")
        return {"pure": PURE, "zcdp": ZCDP, "gdp": GDP}[self.output]

    def accepts(self, premetric: InputPremetric) -> bool:
        """Say whether a loss by this distance is one that the limit is about."""
        return premetric.name in (*COUNTING, *self.accepted) or any(
            isinstance(each, InputPremetric) and each == replace(premetric, post_imputation=each.post_imputation)
            for each in self.accepted
        )

    def __str__(self) -> str:
        output = self.currency.output
        assert output is not None
        delta = f" at δ={small(output.delta)}" if output.delta else ""
        also = ", ".join(each if isinstance(each, str) else each.symbol for each in self.accepted)
        stated = f"{output.greek} ≤ {self.most.shown()}{delta} per {self.currency.unit} ({output.classic})"
        return f"{stated}, also by {also}" if also else stated


Acceptable = list[Annotated[Margin | Named | Inequality, Field(discriminator="kind")]]


class AcceptableInvariants(StrictFacts):
    """What may be held fixed: every invariant of a release must follow from these, or ``"any"`` may be."""

    acceptable: Annotated[
        Annotated[Acceptable, Tag("list")] | Annotated[Literal["any"], Tag("any")],
        Discriminator(lambda value: "any" if isinstance(value, str) else "list"),
    ] = Field(description='Invariants, or "any" if you look at the invariants of every release yourself.')
    hierarchies: list[Hierarchy] = Field(
        default=[], description="Levels that nest, the finest first; they decide what follows from what."
    )


class Policy(StrictFacts):
    """What the custodian has bound themselves to, by policy.toml. It is checked in the transaction that reserves.

    A limit means nothing without a word on what may be held fixed: a release that fixes everything loses nothing.
    """

    limits: list[Limit] = Field(default=[], description="How much everything together may cost.")
    who: list[str] | None = Field(default=None, description="Who may release; default anybody.")
    invariants: AcceptableInvariants | None = Field(
        default=None, description="What may be held fixed; needed wherever there is a limit."
    )
    exposed_share: Number | None = Field(
        default=None,
        description="The share of records that may be unique on what is published unchanged before the doubt `exposed` "
        'refuses, such as "1/10"; default 1/3.',
    )
    unspecified: Literal["refuse", "not-counted"] = Field(
        default="refuse",
        description="What limits make of entries without a specification: refuse further releases, since what was "
        "spent is not known, or leave these entries out of what is counted.",
    )

    @classmethod
    def from_document(cls, data: Any, *, source: str = "policy") -> Policy:
        """Read a policy to put in force from plain data, strictly."""
        policy = cls.stored(data, source=source)
        if policy.is_unstated:
            raise LedgerError([_unstated(source)])
        return policy

    @classmethod
    def stored(cls, data: Any, *, source: str = "policy") -> Policy:
        """Read a policy that a ledger holds: one without a word on invariants can be shown, and allows nothing.

        Every problem of its form is reported at once.
        """
        try:
            policy = cls.model_validate(data)
        except ValidationError as error:
            found = misfits(error.errors(), data, cls, remedy="see docs/ledger.md")
            refused = [problem.inside(source) for problem in refusals(error.errors(), data)]
            raise LedgerError([*(_problem(each, source) for each in found), *refused]) from None
        with placed(source):  # a number that cannot be read is found now, and not at the next release
            _ = policy.acceptable, policy.most_exposed
            for limit in policy.limits:
                with placed(f"limits {limit.name}".strip()):
                    _ = limit.most, limit.currency
        return policy

    @classmethod
    def from_toml(cls, text: str, *, source: str = "policy") -> Policy:
        """Read policy.toml; decimals stay the exact numbers they show.

        >>> policy = Policy.from_toml('who = ["ana"]' + chr(10) + '[[limits]]' + chr(10)
        ...     + 'budget = "20"' + chr(10) + 'output = "zcdp"' + chr(10) + 'unit = "person"' + chr(10)
        ...     + '[invariants]' + chr(10) + 'acceptable = []')
        >>> print(policy.limits[0])
        ρ² ≤ 20 per person (zCDP, zero-concentrated differential privacy)
        """
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
        unique = "" if self.most_exposed is None else f"; unique records: at most {percent(self.most_exposed)}"
        counted = "; entries without a specification are not counted" if self.leaves_out_unspecified else ""
        return f"{limits}; may be held fixed: {self.fixed}{unique}{counted}"

    @cached_property
    def acceptable(self) -> Multiverse | None:
        """Return what may be held fixed; nothing where that is anything, or not stated."""
        stated = self.invariants
        if stated is None or stated.acceptable == "any":
            return None
        return Multiverse(invariants=tuple(stated.acceptable), hierarchies=tuple(stated.hierarchies))

    @cached_property
    def most_exposed(self) -> Fraction | None:
        """Return the share of records that may be unique on what is published unchanged, where it is stated."""
        return None if self.exposed_share is None else probability(self.exposed_share, where="exposed_share")

    @property
    def leaves_out_unspecified(self) -> bool:
        """Say whether limits are about the entries that have a specification, and no others."""
        return self.unspecified == "not-counted"

    @property
    def document(self) -> dict[str, Any]:
        """Return the policy as a ledger keeps it."""
        return self.model_dump(exclude_defaults=True)

    @property
    def fixed(self) -> str:
        """Return in words what may be held fixed."""
        if self.acceptable is None:
            return "not stated, so nothing may be released" if self.is_unstated else "anything"
        return "; ".join(str(invariant) for invariant in self.acceptable.invariants) or "nothing"

    @property
    def is_unstated(self) -> bool:
        """Say whether there are limits, but not a word on what may be held fixed."""
        return bool(self.limits) and self.invariants is None

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
        # Those who set the policy can paste these lines.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChange:
    """A policy that was put in force, or that none was: in which row, by whom, when and why."""

    number: int
    who: str
    when: str
    reason: str
    policy: Policy | None


def _promise_problems(limit: Limit, specification: Specification) -> list[Problem]:
    """Return why the limit cannot measure a promise: it is empty, or its distance is not accepted."""
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
    if after.unspecified and not lenient and not limit.most.is_infinite:
        return [_unknown_cost(limit, after)]
    if after.unbounded and not limit.most.is_infinite:
        return [_without_bound(limit, now(limit.currency), after)]
    if undrawn := [aside for aside in after.alone if aside.needs_design]:
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
    if value <= limit.most and not can_fall:
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
    if value <= limit.most:
        return []
    what = f"the total would be {after.bound}{would}, {(value - limit.most).shown()} above the limit {limit}"
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
    """Return the refusal of a release after others whose cost is not known: "at least" is within no limit."""
    entries = numbers([number for aside in after.unspecified for number in aside.entries])
    why = after.unspecified[0].reason
    return Problem(
        what=f"entry {entries} has no specification ({why}): what it cost is not known, and so nothing shows that "
        f"everything together is within the limit {limit}",
        where=_place(limit),
        remedy="have those who set the limit decide: with unspecified = 'not-counted' in the policy it is about the "
        "other entries alone, and says so",
    )


def _unstated_design(limit: Limit, undrawn: Sequence[Aside]) -> Problem:
    """Return the refusal of amplified losses, or of others after them, where no design shows what the sample does."""
    entries = numbers([number for aside in undrawn for number in aside.entries])
    return Problem(
        what=f"entry {entries}: {undrawn[0].reason}, and so nothing shows that everything together is within the limit "
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
    if so_far.unbounded and not limit.most.is_infinite:
        return f"nothing is left: {so_far.no_bound}"
    if so_far.specification is None:
        if so_far.parts or so_far.apart or so_far.alone:
            return "what is left cannot be said: the releases have no total in the measure of this limit"
        return f"{'at most' if so_far.unspecified else 'all of'} {limit.most.shown()} is left"
    spent = so_far.specification.budget.realised
    at_least, at_most = so_far.bound, "at most " if so_far.bound else ""
    if spent >= limit.most:
        return f"nothing is left: {at_least}{_spent(so_far.specification)} is spent"
    if spent == 0 and so_far.specification.output_premetric.delta:
        return (
            f"what was released has a delta, and {at_least}{_spent(so_far.specification)} follows from it: "
            f"{at_most}{limit.most.shown()} is left, and a part of the delta is gone"
        )
    down = "inf" if limit.most.is_infinite else (spent - limit.most).shown().removeprefix("-")
    return f"{at_least}{_spent(so_far.specification)} is spent and {at_most}{down} is left"


def _unstated(source: str) -> Problem:
    return Problem(
        what="there are limits, and nothing says what may be held fixed: whoever fixes everything loses nothing",
        where=f"{source} invariants",
        remedy='add [invariants] with acceptable = [...] (see docs/ledger.md), or, knowing this, acceptable = "any"',
    )


def _problem(found: Misfit, source: str) -> Problem:
    if found.kind == "extra_forbidden" and found.place[-1] in Policy.model_fields:
        found = found._replace(remedy="write it at the top of the file, above the first line in brackets")
    return found.problem(source)


def invariant_toml(invariant: Invariant) -> str:
    """Return an invariant as a policy lists it among what is acceptable, on one line.

    >>> from stirred.spec.invariant import Margin
    >>> print(invariant_toml(Margin(of="household", variables=("size", "county"))))
    { kind = "margin", of = "household", variables = ["size", "county"] }
    """
    from stirred.data.codebook_file import toml_value

    return toml_value({key: value for key, value in invariant.plain(brief=True).items() if value})


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a policy, for editors."""
    schema = Policy.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:policy:1", **schema}
