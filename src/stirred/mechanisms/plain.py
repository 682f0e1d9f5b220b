"""The simplest kind of mechanism: a file of records in which some values of each record are drawn.

Say what is promised and how values are drawn. Plan, doubts, the opening of a release and the random order of rows are
here. A whole mechanism, for files with one column of answers, 0 or 1. Each is kept or turned round by a biased coin:

>>> from fractions import Fraction
>>> from itertools import product
>>> from pydantic import Field
>>> from stirred.audit import audit
>>> from stirred.randomness import bernoulli_array
>>> from stirred.spec import PURE, Budget, Domain, InputPremetric, Law, Margin, Multiverse, ln
>>> from stirred.spec.specification import Flavor
>>> class CoinSettings(Settings):
...     keep: Probability = Field(ge=Fraction(1, 2), lt=1, description="The probability that an answer is kept.")
>>> class Coin(PlainMechanism):
...     name, title, settings_model = "coin", "randomised response", CoinSettings
...     in_words = "Each answer is kept with a probability, and turned round otherwise."
...     disturbed, columns = "answer", ("answer",)
...
...     def specification(self, data):
...         flavor = Flavor(
...             domain=Domain(name="survey", dataset="the answers of a survey", columns=("answer",)),
...             multiverse=Multiverse(invariants=(Margin(of=self.unit),)),
...             input_premetric=InputPremetric(name="d_HamS", unit=self.unit),
...             output_premetric=PURE,
...         )
...         keep = self.settings.keep
...         return Specification(flavor=flavor, budget=Budget.constant(ln(keep / (1 - keep))))
...
...     def draw(self, records, entropy):
...         kept = bernoulli_array(self.settings.keep, count=records.height, entropy=entropy, purpose="keep")
...         return records.with_columns(answer=records["answer"].to_numpy() ^ ~kept)
...
...     def law(self, dataset):
...         outcomes, keep = {}, self.settings.keep
...         for flips in product((0, 1), repeat=len(dataset)):
...             released = tuple(sorted(answer ^ flip for answer, flip in zip(dataset, flips)))
...             chance = keep ** flips.count(0) * (1 - keep) ** flips.count(1)
...             outcomes[released] = outcomes.get(released, 0) + chance
...         return Law(outcomes)
...
...     def audit_universes(self):
...         return [[(0,), (1,)], [(0, 0), (0, 1), (1, 1)]]

The audit compares the laws of all pairs of files with what was promised; a release says what it promises:

>>> coin = Coin(keep="3/4")
>>> coin
Coin(keep='3/4')
>>> audit(coin).passed
True
>>> release = coin.release(pl.DataFrame({"answer": [0, 1, 1]}), Entropy.from_os())
>>> release.public["data"].height, release.specification.budget.shown
(3, '1.10')

docs/write-a-mechanism.md goes through a larger one step by step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from stirred.data.microdata import Microdata, absent_variable, as_microdata, missing_column
from stirred.data.problems import DataError
from stirred.data.record_doubts import identifier_doubts
from stirred.mechanisms.protocol import (
    RECORDS,
    Fact,
    Frames,
    Mechanism,
    Opening,
    Plan,
    Probability,
    Progress,
    Release,
    Settings,
)
from stirred.randomness import random_permutation
from stirred.randomness.entropy import Entropy
from stirred.spec.doubts import Doubt
from stirred.spec.specification import Specification

__all__ = ["PlainMechanism", "PlainPlan", "Probability", "Settings"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PlainPlan(Plan):
    """The promise, what is disturbed, and the doubts: all that a plan must have."""

    disturbed: str
    facts: tuple[Fact, ...] = ()


class PlainMechanism(Mechanism):
    """A mechanism that draws values of records, and releases the columns of its specification, in random order."""

    @property
    @abstractmethod
    def disturbed(self) -> str:
        """Say what is disturbed, and how much."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return what --verbose and --json say besides."""
        return ()

    @property
    def columns(self) -> Sequence[str]:
        """Return the columns that a file must have."""
        return ()

    @abstractmethod
    def specification(self, data: Microdata | None) -> Specification:
        """Return the promise for a file; for None that of a small universe, which audits enumerate."""

    @abstractmethod
    def draw(self, records: pl.DataFrame, entropy: Entropy) -> pl.DataFrame:
        """Return the records with the values drawn; their order is drawn afterwards."""

    def check(self, data: Any) -> None:
        """Refuse a file that does not fit these settings: here, one without the columns they need."""
        microdata = as_microdata(data)
        there, where = microdata.variables, microdata.household_source
        if problems := [
            absent_variable(microdata, name, where=where, role="settings")
            if name in microdata.identifiers
            else missing_column(name, there, where=where, role="settings")
            for name in self.columns
            if name not in there
        ]:
            raise DataError(problems)

    def doubts(self, data: Microdata, plan: PlainPlan) -> Iterable[Doubt]:
        return identifier_doubts(data, data.variables, unit=self.unit)

    def draft(self, data: Microdata, *, doubts: bool) -> PlainPlan:
        self.check(data)
        specification = self.specification(data)
        unnamed = [name for name in data.variables if name not in specification.domain.columns]
        return PlainPlan(
            specification=specification,
            disturbed=self.disturbed,
            facts=self.facts,
            dropped=(*data.identifiers, *unnamed, *data.person_variables),
        )

    def make_release(self, opening: Opening, progress: Progress | None) -> Release:
        """Draw once, and release the records in random order."""
        microdata, plan, entropy, promised, convert, _ = opening
        drawn = self.draw(microdata.households.select(plan.releases["households"]), entropy)
        order = random_permutation(drawn.height, entropy=entropy, purpose="order")
        released = drawn[order.astype("int64")]
        return Release(public=Frames({RECORDS: lambda: [released]}, convert=convert), specification=promised)

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise in one of the small universes."""
        return self.specification(None)
