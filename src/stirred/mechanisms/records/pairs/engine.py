"""Swaps of disjoint pairs: what their law is, and the plain word that they promise nothing.

Disjoint pairs are not transitive (Appendix C.2): some file with the same invariants cannot become another one, an
output proves which of two files it came from, and the loss is infinite. The plan names the step, shows two files that
prove it, says what the nearest permutation and conditioned swaps would promise, and what secrecy of the rate adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codes import Coded, encode
from stirred.data.column_doubts import KEEP
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError
from stirred.data.record_doubts import identifier_doubts
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
    settings_doubts,
)
from stirred.mechanisms.records.doubts import nothing_moves
from stirred.mechanisms.records.engine import RecordSwap, Values
from stirred.mechanisms.records.pairs.choices import Choices, RandomChoices, Rows
from stirred.mechanisms.records.pairs.obscurity import Prior, obscurity_facts, prior_of
from stirred.mechanisms.records.plan import RecordPlan, SwapOrigin
from stirred.mechanisms.records.roles import Roles
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget
from stirred.spec.domain import Domain
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import INFINITE, Exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import percent
from stirred.spec.output_premetric import PURE
from stirred.spec.problems import StirredError
from stirred.spec.reliance import ONE_RUN
from stirred.spec.rows import Row
from stirred.spec.specification import Flavor, Specification

THEOREM: Final = "disjoint pairs are not a transitive action (Appendix C.2 of the paper): the loss is infinite"
_TELLING: Final = ("tells", "nearly-tells", "partly-tells", "left-behind", "regroup", "unit", "missing")
SECRET: Final = "which households were swapped, and which found no partner, is published nowhere"


@dataclass(frozen=True, slots=True)
class PairLaw(ABC):
    """Which disjoint pairs of records exchange their ``swapped`` columns; all pairs agree on the ``matched`` ones."""

    audited: ClassVar[tuple[tuple[str, str], ...]] = (("ab", "xy"), ("abc", "xyz"), ("aab", "xyy"))
    breaks: ClassVar[str]  # the step that breaks the flavor
    witness: ClassVar[str]  # two files that prove it

    settings: Any

    @property
    @abstractmethod
    def swapped(self) -> tuple[str, ...]:
        """Return the columns that are exchanged, all together."""

    @property
    @abstractmethod
    def matched(self) -> tuple[str, ...]:
        """Return the columns on which all pairs agree."""

    @property
    @abstractmethod
    def rate(self) -> Fraction:
        """Return the share of records that are meant to be swapped."""

    @property
    @abstractmethod
    def used(self) -> Sequence[str]:
        """Return all columns that the settings name."""

    @property
    @abstractmethod
    def how_many(self) -> str:
        """Say how many records are exchanged, in words that may be published."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """Return in one sentence what is done."""

    @property
    @abstractmethod
    def rate_in_words(self) -> str:
        """Return the rate in a few words, and not a loss that is infinite whatever the settings are."""

    @abstractmethod
    def pairs(self, data: Microdata, choices: Choices) -> tuple[Rows, list[int]]:
        """Return the partner of each record, itself where it has none, and those that should have had one."""

    @abstractmethod
    def stuck(self, data: Microdata) -> str:
        """Say why no record of this file can be swapped; empty where one can."""

    @abstractmethod
    def on_small(self, dataset: Any) -> Law:
        """Return the exact law for records (held, area), all alike on what is matched."""

    def check(self, data: Microdata) -> None:  # noqa: B027 (most laws read what a swap reads)
        """Raise what cannot be read, or not be drawn."""

    def changed(self, data: Microdata, choices: Choices) -> Microdata:
        """Return the file with whatever else is done to it, to the ``resampled`` columns."""
        return data

    @property
    def resampled(self) -> tuple[str, ...]:
        """Return columns that are changed besides."""
        return ()

    @property
    def left_out(self) -> Collection[str]:
        """Return columns that are used and not released."""
        return ()

    @property
    def prior(self) -> Prior | None:
        """Return what an attacker believes about a secret rate."""
        return None if self.settings.rate_prior is None else prior_of(self.settings.rate_prior)

    def inside_plan(self, data: Microdata) -> str:
        """Say how many records are exchanged, as far as it is known before the draw; for the custodian alone."""
        return ""

    def advised(self, remedy: str) -> str:
        """Return the advice to leave a column out of a permutation swap for a method that has no hold."""
        return remedy.replace(KEEP, "let [[prepare]] drop")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PairPlan(RecordPlan):
    """The plan of a swap of pairs."""

    @property
    def disturbed(self) -> str:
        law = self.origin.mechanism.swap_law
        return f"{', '.join(law.swapped)}: exchanged between pairs of records, {law.how_many}"

    def outcome(self) -> list[Row]:
        """Return the rows of every plan, with what is only said inside: how many records are at risk."""
        rows = Plan.outcome(self)
        told = self.origin.mechanism.swap_law.inside_plan(self.origin.data)
        return [*rows[:2], *([("inside", told)] if told else []), *rows[2:]]

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
        """Return what all pairs agree on."""
        return self.swap_law.matched

    @property
    def swap(self) -> tuple[str, ...]:
        """Return what is exchanged."""
        return self.swap_law.swapped

    @property
    def outside(self) -> tuple[str, ...]:
        return self.swap_law.resampled

    @property
    def in_words(self) -> str:
        """Return in one sentence what is done."""
        return self.swap_law.in_words

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the rate."""
        return self.swap_law.rate_in_words

    def nearest(self, name: str, *, rate: Any = None, hold: Sequence[str] | None = None) -> Mechanism:
        """Return the member of the swapping family that does most of the same, at the same rate if none is given."""
        swap = [name for name in self.swap if name not in self.match]
        own = {"match": list(self.match), "swap": swap, "rate": str(rate or self.swap_law.rate)}
        held = {} if hold is None else {"hold": list(hold)}
        return registry.build(name, {**own, **held, "unit": self.unit})

    # ---- the promise and the plan

    def specification(self, *, name: str, stage: str, columns: Sequence[str], persons: bool = False) -> Specification:
        """Return what is fixed, and that nothing is promised relative to it."""
        held = tuple(each for each in columns if each not in (*self.swap, *self.outside))
        inside = ("all characteristics of its persons",) if persons else ()
        return Specification(
            flavor=Flavor(
                domain=Domain.of_file(
                    name,
                    stage=stage,
                    record_types=(self.unit, "person") if persons else (self.unit,),
                    columns=tuple(columns),
                ),
                multiverse=Multiverse(
                    invariants=(
                        Margin(of=self.unit, variables=self._crossed),
                        Margin(of=self.unit, variables=(*held, *inside), includes=("person",) if persons else ()),
                    )
                ),
                input_premetric=InputPremetric(name="d_HamS", unit=self.unit),
                output_premetric=PURE,
            ),
            budget=Budget.constant(INFINITE),
            assumptions=(SECRET, ONE_RUN.words),
            relies_on=(ONE_RUN,),
            theorem=(THEOREM,),
            settings_from=self.settings_from,
        )

    @property
    def _crossed(self) -> tuple[str, ...]:
        """Return what is counted exactly together; a level of the geography may be among what must be equal."""
        return tuple(dict.fromkeys((*self.match, *self.swap)))

    def _roles(self, data: Microdata) -> Roles:
        there, where = [*data.households.columns, *data.person_variables], data.household_source
        used = [name for name in self.swap_law.used if name not in there]
        if used:
            raise DataError([missing_column(name, there, where=where, role="setting") for name in used])
        self.swap_law.check(data)
        columns = tuple(name for name in data.variables if name not in self.swap_law.left_out)
        link = data.hid if data.persons is not None else None
        dropped = [f"{n} (re-issued)" if n == link else n for n in data.households.columns if n not in columns]
        hold = tuple(name for name in columns if name not in self.swap)
        return Roles(hold=hold, dropped=tuple(dropped), columns=columns)

    def _prepare(self, data: Microdata, roles: Roles, *, origin: SwapOrigin) -> PairPlan:
        persons = data.persons is not None
        return PairPlan(
            specification=self.specification(name=data.name, stage=data.stage, columns=roles.columns, persons=persons),
            hold=roles.hold,
            dropped=roles.dropped,
            swap=encode(data.households, list(self.swap)),
            coded=encode(data.households, list(dict.fromkeys(self.match))),
            origin=origin,
        )

    def _doubts(self, data: Microdata, plan: PairPlan) -> Iterator[Doubt]:
        yield from settings_doubts(self.settings_from)
        yield from identifier_doubts(data, plan.hold, swap=self.swap, unit=self.unit)
        yield from self._telling(data, plan.specification.domain.columns)
        if why := self.swap_law.stuck(data):
            yield nothing_moves(why)
            return
        breaks = self.swap_law.breaks
        yield nothing_promised(
            f"nothing is promised: {breaks[:1].lower()}{breaks[1:-1]}",
            remedy="use permutation-swap or conditioned-swap, which the plan compares with (--verbose)",
        )

    def _telling(self, data: Microdata, columns: Sequence[str]) -> Iterator[Doubt]:
        """Yield the doubts about held columns that tell where a record was: those of a permutation swap."""
        try:
            found = self.nearest("permutation-swap", rate="1/2").plan(data).doubts
        except StirredError:  # what it cannot plan is said where it is compared
            return
        known = {*columns, *data.person_variables}
        for each in found:
            if each.kind in _TELLING and {*each.about.split("+")} <= known:
                yield replace(each, remedy=self.swap_law.advised(each.remedy))

    # ---- the draw

    def _before(self, data: Microdata, plan: PairPlan, entropy: Entropy) -> tuple[Microdata, Coded]:
        return self.swap_law.changed(data, RandomChoices(entropy.child("changes"))), plan.swap

    def _exchange(self, plan: Any, swapped: Values, entropy: Entropy, progress: Progress | None) -> Mapping[str, Any]:
        partner, unswapped = self.swap_law.pairs(plan.origin.data, RandomChoices(entropy.child("pairs")))
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

    def _own_checks(self, plan: PairPlan, release: Release) -> list[Check]:
        """Check that pairs are disjoint and agree where they must."""
        partner = release.internal["partner"]
        if not np.array_equal(partner[partner], np.arange(partner.size)):
            raise failed("the pairs are not disjoint")
        if not np.array_equal(plan.coded.codes, plan.coded.codes[partner]):
            raise failed("a pair does not agree on what must be equal")
        # How many were swapped is not fixed by what is published, and checks stand in the public report.
        return [Check(what="pairs are disjoint", cells=partner.size, result="as it must be")]

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
        """Return the three sentences."""
        return [*self.in_three]

    def sections(self, plan: Any) -> list[Section]:
        """Return the promise and what it lacks."""
        told = [fact.sentence for fact in plan.facts]
        return [Section(title="What is promised", blocks=(self.in_words, *self.in_three, *told))]

    def inside(self, plan: Any, release: Release) -> list[Section]:
        """Return how many were exchanged: nothing that is published tells it."""
        found, records = release.internal["log"], release.internal["partner"].size
        share = percent(Fraction(found["exchanged"], max(records, 1)), digits=3)
        words = (
            f"{found['exchanged']:,} of {records:,} records ({share}) were exchanged, in {found['exchanged'] // 2:,} "
            f"pairs: {self.swap_law.how_many}. {found['without_partner']:,} that should have been found no partner."
        )
        return [Section(title="How many were exchanged", blocks=(words,))]

    # ---- audits

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return that nothing is promised."""
        return self.specification(name="small", stage="as-given", columns=("held", *self.swap))

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Say what cannot be checked: the promise is none."""
        if not bundle.specification.budget.realised.is_infinite:
            found.bad("it promises something, and swaps of disjoint pairs do not", where="public/specification.json")
        found.unchecked.append("which records were swapped: that is confidential, and nothing is promised of it")


def apart(alike: Rows, area: Rows) -> bool:
    """Say whether two records that are alike lie in different areas."""
    both = pl.DataFrame({"alike": alike, "area": area}).unique()
    return both.height > both["alike"].n_unique()
