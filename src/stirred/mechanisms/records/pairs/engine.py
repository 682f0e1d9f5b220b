"""Swaps of disjoint pairs: what their law is, and why they promise nothing.

Disjoint pairs are not transitive (Appendix C.2): some file with the same invariants cannot become another one, an
output proves which of two files it came from, and the loss is infinite. The plan names the step, shows two files that
prove it, says what the nearest permutation and conditioned swaps would promise, and what secrecy of the rate adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codes import Coded, encode
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError, bad_plan
from stirred.data.record_doubts import KEEP, identifier_doubts
from stirred.mechanisms import registry
from stirred.mechanisms.protocol import (
    Check,
    Fact,
    Mechanism,
    Plan,
    Progress,
    Release,
    Section,
    Written,
    failed,
)
from stirred.mechanisms.records.engine import RecordSwap, Values
from stirred.mechanisms.records.law import SmallFile, tables_with_margins
from stirred.mechanisms.records.laws.counting import psa_weights
from stirred.mechanisms.records.pairs.choices import Choices, RandomChoices, Rows, law_of
from stirred.mechanisms.records.plan import RecordPlan, nothing_moves
from stirred.mechanisms.records.roles import Roles
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import INFINITE, ZERO, Exact, largest, ln
from stirred.spec.given_numbers import probability
from stirred.spec.invariant import OF_PERSONS, Margin
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import percent
from stirred.spec.problems import StirredError, marked
from stirred.spec.specification import ONE_RUN, Specification
from stirred.spec.text import Row

THEOREM: Final = "disjoint pairs are not a transitive action (Appendix C.2 of the paper): the loss is infinite"
_REVEALING: Final = ("tells", "nearly-tells", "partly-tells", "left-behind", "regroup", "unit", "missing")
SECRET: Final = "which households were swapped, and which found no partner, is published nowhere"


class PairProblem(Protocol):
    """A file as codes, of which pairs are drawn."""

    def pairs(self, choices: Choices) -> tuple[Rows, list[int]]:
        """Return the partner of each record, itself where it has none, and those that should have had one."""
        ...

    def stuck(self) -> str:
        """Say why no record can be swapped; empty where one can."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLaw(ABC):
    """Which disjoint pairs of records exchange their ``swapped`` columns; all pairs agree on the ``matched`` ones.

    ``used`` are all columns that the settings name, of which ``left_out`` are not released and ``resampled`` are
    changed besides. ``rate`` is the share of records that are meant to be swapped, ``how_many`` says it in words that
    may be published.
    """

    audited: ClassVar[tuple[tuple[str, str], ...]] = (("ab", "xy"), ("abc", "xyz"), ("aab", "xyy"))
    breaks: ClassVar[str]  # the step that breaks the flavor
    witness: ClassVar[str]  # two files that prove it

    settings: Any
    swapped: tuple[str, ...]
    matched: tuple[str, ...]
    used: tuple[str, ...]
    rate: Fraction
    how_many: str
    prior: Prior | None  # what an attacker believes about a secret rate
    left_out: tuple[str, ...] = ()
    resampled: tuple[str, ...] = ()

    @abstractmethod
    def problem(self, data: Microdata) -> PairProblem:
        """Return the file as codes."""

    @property
    @abstractmethod
    def small_settings(self) -> Mapping[str, Any]:
        """Return the settings of a small file of records (held, area), all equal in the column ``alike``."""

    def small(self, records: Any, *, swap: Sequence[str]) -> SmallFile:
        """Return such a file as columns."""
        columns = {"held": [held for held, _ in records], "area": [area for _, area in records]}
        return SmallFile({**columns, "alike": [0] * len(records)}, self.small_settings)

    def universes(self) -> list[list[Hashable]]:
        """Return small files by the margins that they share: audits compare all of a universe."""
        return [tables_with_margins(hold, swap) for hold, swap in self.audited]

    def on_small(self, dataset: Any) -> Law:
        """Return the exact law for records (held, area), all alike on what is matched."""
        columns, settings = self.small(dataset, swap=self.swapped)
        problem = self.settings.model_copy(update=settings).law().problem(Microdata(households=pl.DataFrame(columns)))
        held, area = columns["held"], columns["area"]

        def released(choices: Choices) -> tuple[Any, ...]:
            partner, _ = problem.pairs(choices)
            return tuple(sorted((h, area[partner[n]]) for n, h in enumerate(held)))

        return law_of(released)

    def check(self, data: Microdata) -> None:  # noqa: B027 (most laws read what a swap reads)
        """Raise what cannot be read, or not be drawn."""

    def changed(self, data: Microdata, choices: Choices) -> Microdata:
        """Return the file with whatever else is done to it, to the ``resampled`` columns."""
        return data

    def checks(self, plan: PairPlan, release: Release) -> list[Check]:
        """Check that pairs are disjoint and agree where they must."""
        partner = release.internal["partner"]
        if not np.array_equal(partner[partner], np.arange(partner.size)):
            raise failed("the pairs are not disjoint")
        if not np.array_equal(plan.coded.codes, plan.coded.codes[partner]):
            raise failed("a pair does not agree on what must be equal")
        # How many were swapped is not fixed by what is published, and checks stand in the public report.
        return [Check(what="pairs are disjoint", cells=partner.size, result="as it must be")]

    def inside_plan(self, data: Microdata) -> str:
        """Say how many records are exchanged, as far as it is known before the draw; for the custodian alone."""
        return ""

    def advised(self, remedy: str) -> str:
        """Return the advice to leave a column out of a permutation swap for a method that has no hold."""
        return marked(remedy).replace(KEEP, "let [[prepare]] drop")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PairPlan(RecordPlan):
    """The plan of a swap of pairs."""

    @property
    def disturbed(self) -> str:
        law = self.origin.mechanism.swap_law
        return f"{', '.join(law.swapped)}: exchanged between pairs of records, {law.how_many}"

    def outcome(self) -> list[Row]:
        """Return the rows of every plan, with what is only said inside: how many records are at risk."""
        rows = Plan.outcome(self)
        inside = self.origin.mechanism.swap_law.inside_plan(self.origin.data)
        return [*rows[:2], *([("inside", inside)] if inside else []), *rows[2:]]

    @property
    def facts(self) -> tuple[Fact, ...]:
        mechanism: PairSwap = self.origin.mechanism
        law = mechanism.swap_law
        found = [Fact(label="breaks", sentence=law.breaks), Fact(label="witness", sentence=law.witness)]
        # Of the columns that are published exactly alone: the report is public, and shows the loss.
        hold = [*self.exact_hold, *self.releases["persons"]]
        for name in ("permutation-swap", "conditioned-swap"):
            try:
                loss = mechanism.nearest(name, hold=hold).plan(self.origin.data, doubts=False).epsilon.shown()
            except StirredError as error:
                loss = f"nothing ({error.problems[0].what})"
            words = f"a {name.replace('-', ' ')} of the same columns at rate {law.rate} would promise epsilon {loss}"
            found.append(Fact(label="nearest", sentence=words, values={name.replace("-", "_"): loss}))
        return (*found, *obscurity_facts(law.prior))


class PairSwap(RecordSwap):
    """A method that exchanges columns between disjoint pairs of records."""

    perturbed_by: ClassVar[str] = "the draw of synthetic values"

    swap_law: PairLaw

    @property
    def match(self) -> tuple[str, ...]:
        return self.swap_law.matched

    @property
    def swap(self) -> tuple[str, ...]:
        return self.swap_law.swapped

    @property
    def outside(self) -> tuple[str, ...]:
        return self.swap_law.resampled

    def setting_in_words(self, epsilon: Exact) -> str:
        return self.swap_law.how_many  # and not a loss that is infinite whatever the settings are

    def nearest(self, name: str, *, rate: Any = None, hold: Sequence[str] | None = None) -> Mechanism:
        """Return the member of the swapping family that does most of the same, at the same rate if none is given."""
        swap = [name for name in self.swap if name not in self.match]
        own = {"match": list(self.match), "swap": swap, "rate": str(rate or self.swap_law.rate)}
        held = {} if hold is None else {"hold": list(hold)}
        return registry.build(name, {**own, **held, "unit": self.unit})

    # ---- the promise and the plan

    def _specification(self, data: Microdata, columns: Sequence[str]) -> Specification:
        """Return what is fixed, and that nothing is promised relative to it."""
        persons = data.persons is not None
        held = [each for each in columns if each not in (*self.swap, *self.outside)]
        kept = (*held, OF_PERSONS) if persons else tuple(held)
        invariants = (
            Margin(of=self.unit, variables=self._crossed),
            Margin(of=self.unit, variables=kept, includes=("person",) if persons else ()),
        )
        return self._promise(
            data,
            columns,
            multiverse=Multiverse(invariants=invariants),
            budget=Budget.constant(INFINITE),
            assumptions=(SECRET, ONE_RUN.words),
            theorem=(THEOREM,),
        )

    @property
    def _crossed(self) -> tuple[str, ...]:
        """Return what is counted exactly together; a level of the geography may be among what must be equal."""
        return tuple(dict.fromkeys((*self.match, *self.swap)))

    def _roles(self, data: Microdata) -> Roles:
        there, where = [*data.households.columns, *data.person_variables], data.household_source
        used = [name for name in self.swap_law.used if name not in there]
        if used:
            raise DataError([missing_column(name, there, where=where, role="settings") for name in used])
        self.swap_law.check(data)
        columns = tuple(name for name in data.variables if name not in self.swap_law.left_out)
        link = data.hid if data.persons is not None else None
        dropped = [f"{n} (re-issued)" if n == link else n for n in data.households.columns if n not in columns]
        hold = tuple(name for name in columns if name not in self.swap)
        return Roles(hold=hold, dropped=tuple(dropped), columns=columns)

    def draft(self, data: Microdata, *, doubts: bool) -> PairPlan:
        roles = self._roles(data)
        return PairPlan(
            specification=self._specification(data, roles.columns),
            match=self.match,
            hold=roles.hold,
            dropped=roles.dropped,
            perturbed=self.outside,
            swap=encode(data.households, list(self.swap)),
            coded=encode(data.households, list(dict.fromkeys(self.match))),
        )

    def doubts(self, data: Microdata, plan: PairPlan) -> Iterator[Doubt]:
        yield from identifier_doubts(data, plan.hold, swap=self.swap, unit=self.unit)
        yield from self._revealing(data, plan.specification.domain.columns)
        if why := self.swap_law.problem(data).stuck():
            yield nothing_moves(why)
            return
        breaks = self.swap_law.breaks
        yield nothing_promised(
            f"nothing is promised: {breaks[:1].lower()}{breaks[1:-1]}",
            remedy="use permutation-swap or conditioned-swap, which the plan compares with (--verbose)",
        )

    def _revealing(self, data: Microdata, columns: Sequence[str]) -> Iterator[Doubt]:
        """Yield the doubts about held columns that reveal where a record was: those of a permutation swap."""
        try:
            found = self.nearest("permutation-swap", rate="1/2").plan(data).doubts
        except StirredError:  # what it cannot plan is said where it is compared
            return
        known = {*columns, *data.person_variables}
        for each in found:
            if each.kind in _REVEALING and {*each.about.split("+")} <= known:
                yield replace(each, remedy=self.swap_law.advised(each.remedy))

    # ---- the draw

    def _before(self, data: Microdata, plan: PairPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
        return self.swap_law.changed(data, RandomChoices(entropy.child("changes"))), plan.swap

    def _exchange(self, plan: Any, swapped: Values, entropy: Entropy, progress: Progress | None) -> Mapping[str, Any]:
        partner, unswapped = self.swap_law.problem(plan.origin.data).pairs(RandomChoices(entropy.child("pairs")))
        swapped[:] = plan.swap.codes[partner]
        exchanged = int((partner != np.arange(partner.size)).sum())
        log = {"exchanged": exchanged, "without_partner": len(unswapped)}
        return {"partner": partner, "unswapped": unswapped, "log": log}

    # ---- files and pages

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        """Keep inside who was swapped with whom, by row and identifier, and who found no partner."""
        from stirred.data.frames import write_frame

        partner, data = release.internal["partner"], release.internal["file"].data
        rows = pl.DataFrame({"row": np.arange(partner.size), "partner": partner})
        ids = [data.households[n] for n in data.identifiers if n in data.households.columns and n not in rows.columns]
        rows = rows.hstack(ids)
        others = [each.gather(partner).alias(f"partner of {each.name}") for each in ids]
        pairs = rows.hstack(others).filter(pl.col("row") < pl.col("partner"))
        write_frame(pairs, written.internal / "pairs.parquet", note=dict(note))
        lone = rows.drop("partner")[release.internal["unswapped"]]
        write_frame(lone, written.internal / "unswapped.parquet", note=dict(note))

    @property
    def in_three(self) -> tuple[str, str, str]:
        """Return in three sentences what is promised and what is not."""
        kept, breaks = " x ".join(self._crossed), self.swap_law.breaks
        return (
            f"Exact are the counts by {kept}, and everything that does not contain "
            f"{', '.join((*self.swap, *self.outside))}.",
            f"Nothing is promised beyond that, the loss is infinite: {breaks[:1].lower()}{breaks[1:]}",
            "What protects is that nobody knows who was swapped; that is not a bound, nor is secrecy of the rate: an "
            "interval without a prior gains nothing, and with many strata the rate shows.",
        )

    def conclusions(self, plan: Any) -> list[str]:
        return [*self.in_three]

    def sections(self, plan: Any) -> list[Section]:
        facts = [fact.sentence for fact in plan.facts]
        return [Section(title="What is promised", blocks=(self.in_words, *self.in_three, *facts))]

    def inside(self, plan: Any, release: Release) -> list[Section]:
        """Return how many were exchanged: nothing that is published says it."""
        found, records = release.internal["log"], release.internal["partner"].size
        share = percent(Fraction(found["exchanged"], max(records, 1)), digits=3)
        words = (
            f"{found['exchanged']:,} of {records:,} records ({share}) were exchanged, in {found['exchanged'] // 2:,} "
            f"pairs: {self.swap_law.how_many}. {found['without_partner']:,} that should have been found no partner."
        )
        return [Section(title="How many were exchanged", blocks=(words,))]

    # ---- audits

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Say what cannot be checked: the promise is none."""
        if not bundle.specification.budget.realised.is_infinite:
            found.bad("it promises something, and swaps of disjoint pairs do not", where="public/specification.json")
        found.unchecked.append("which records were swapped: that is confidential, and nothing is promised of it")


def apart(alike: Rows, area: Rows) -> bool:
    """Say whether two records that are alike lie in different areas."""
    both = pl.DataFrame({"alike": alike, "area": area}).unique()
    return both.height > both["alike"].n_unique()


# ---- what secrecy of the rate adds -------------------------------------------------------------------------------

Prior = Mapping[Fraction, Fraction]
_MANY: Final = (1, 2, 3, 10, 100)


def mixture_loss_of_pairs(prior: Prior, *, strata: int) -> Exact:
    """Return the loss of a permutation swap of strata of two different records each, for a prior on their one rate.

    To an attacker with this prior the release is drawn from a mixture over rates. Its loss is never above the largest
    on the support of the prior, and may be above that of the true rate. Over all priors on an interval it *is* that
    supremum: an interval without a prior gains nothing. Strata share the rate, so with many of them it shows.

    >>> half = Fraction(1, 2)
    >>> mixture_loss_of_pairs({Fraction(1, 10): half, half: half}, strata=1)
    Exact('1/2*ln(61/21)')
    """
    chances = [(psa_weights(2, rate)[2], chance) for rate, chance in prior.items()]
    exchanged = [
        sum((chance * p**j * (1 - p) ** (strata - j) for p, chance in chances), Fraction(0)) for j in range(strata + 1)
    ]
    ratios = [pair for j in range(strata) for pair in permutations(exchanged[j : j + 2])]
    if any(one and not other for one, other in ratios):
        return INFINITE
    return largest([ZERO, *(ln(one / other) / 2 for one, other in ratios if one > other)])


def prior_of(given: Mapping[str, Any] | None) -> Prior | None:
    """Return a prior of plain data: rates with their probabilities."""
    if given is None:
        return None
    found = {probability(r, where="rate_prior"): probability(p, where="rate_prior") for r, p in given.items()}
    if sum(found.values()) != 1:
        remedy = "write each rate with its probability; an interval without a prior gains nothing"
        raise bad_plan("the probabilities do not add up to 1", where="rate_prior", remedy=remedy)
    return found


def obscurity_facts(prior: Prior | None) -> tuple[Fact, ...]:
    """Return what secrecy of the rate would add for a permutation swap of the same file, and what takes it away."""
    if prior is None:
        words = "no prior on the rate is stated: an interval without one gains nothing over the worst rate in it"
        return (Fact(label="obscurity", sentence=words),)
    known = {str(rate): mixture_loss_of_pairs({rate: Fraction(1)}, strata=1) for rate in prior}
    hidden = {str(m): mixture_loss_of_pairs(prior, strata=m) for m in _MANY}
    words = (
        "for an attacker with the stated prior a secret rate would make a permutation swap of strata of two records "
        f"lose {', '.join(f'{loss.shown(3)} with {m} of them' for m, loss in hidden.items())}; known, the rates lose "
        f"{', '.join(f'{loss.shown(3)} at {rate}' for rate, loss in known.items())}, which holds if the rate leaks"
    )
    values = {"hidden": {m: loss.shown(6) for m, loss in hidden.items()}}
    values |= {"transparent": {rate: loss.shown(6) for rate, loss in known.items()}}
    return (Fact(label="obscurity", sentence=words, values={"obscurity": values}),)
