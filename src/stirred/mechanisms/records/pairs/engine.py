"""What methods that swap disjoint pairs share: the file they release, and the plain word that they promise nothing.

Disjoint pairs are not transitive (Appendix C.2): some file with the same invariants cannot become another one, an
output proves which of two files it came from, and the loss is infinite. The plan names the step, shows two files that
prove it, says what the nearest permutation and conditioned swaps would promise, and what secrecy of the rate adds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codes import encode
from stirred.data.column_doubts import KEEP
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import DataError
from stirred.mechanisms.doubts import identifier_doubts
from stirred.mechanisms.opening import opened
from stirred.mechanisms.protocol import (
    RECORDS,
    UNSEARCHED,
    Check,
    Fact,
    Frames,
    Mechanism,
    Plan,
    PlanOrigin,
    Progress,
    PublicFile,
    Release,
    Section,
    Written,
    failed,
    settings_doubts,
)
from stirred.mechanisms.records.doubts import nothing_moves
from stirred.mechanisms.records.files import allowed_records, record_files
from stirred.mechanisms.records.law import tables_with_margins
from stirred.mechanisms.records.pairs.choices import Choices, RandomChoices, Rows
from stirred.mechanisms.records.pairs.obscurity import Prior, obscurity_facts
from stirred.mechanisms.records.swapped_file import SwappedFile
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Budget
from stirred.spec.domain import Domain
from stirred.spec.doubts import Doubt, nothing_promised
from stirred.spec.exact import INFINITE, Exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RecordPlan(Plan):
    """The plan of a swap of pairs."""

    specification: Specification
    doubts: tuple[Doubt, ...] = (UNSEARCHED,)
    accepted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    origin: PlanOrigin | None = field(default=None, repr=False)
    mechanism: RecordSwap
    data: Microdata
    persons: tuple[str, ...] = ()

    @property
    def disturbed(self) -> str:
        """Say what is exchanged."""
        return f"{', '.join(self.mechanism.swapped)}: exchanged between pairs of records, {self.mechanism.how_many}"

    def outcome(self) -> list[Row]:
        """Return the rows of every plan, with what is only said inside: how many records are at risk."""
        rows = Plan.outcome(self)
        told = self.mechanism.inside_plan(self.data)
        return [*rows[:2], *([("inside", told)] if told else []), *rows[2:]]

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        """Return the released columns."""
        return {"households": self.specification.domain.columns, "persons": self.persons}

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return the step that breaks the promise, the two files, the nearest promise, and what secrecy adds."""
        found = [
            Fact(label="breaks", sentence=self.mechanism.breaks),
            Fact(label="witness", sentence=self.mechanism.witness),
        ]
        rate = self.mechanism.nominal_rate
        # Of the columns that are published exactly alone: the report is public, and shows the loss.
        columns = self.specification.domain.columns
        held = [n for n in columns if n not in (*self.mechanism.swapped, *self.mechanism._resampled)]
        for name in ("permutation-swap", "conditioned-swap"):
            try:
                loss = (
                    self.mechanism.nearest(name, hold=[*held, *self.persons])
                    .plan(self.data, doubts=False)
                    .epsilon.shown()
                )
            except StirredError as error:
                loss = f"nothing ({error.problems[0].what})"
            words = f"a {name.replace('-', ' ')} of the same columns at rate {rate} would promise epsilon {loss}"
            found.append(Fact(label="nearest", sentence=words, values={name.replace("-", "_"): loss}))
        return (*found, *obscurity_facts(self.mechanism.prior))


class RecordSwap(Mechanism):
    """A method that exchanges ``swapped`` columns between disjoint pairs of records that agree on ``matched`` ones."""

    __slots__ = ()

    breaks: ClassVar[str]  # the step that breaks the flavor
    witness: ClassVar[str]  # two files that prove it

    # ---- what a method knows

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
    def nominal_rate(self) -> Any:
        """Return the share of records that are meant to be swapped."""

    @property
    @abstractmethod
    def prior(self) -> Prior | None:
        """Return what an attacker believes about a secret rate."""

    @property
    @abstractmethod
    def used(self) -> Sequence[str]:
        """Return all columns that the settings name."""

    @abstractmethod
    def pairs(self, data: Microdata, choices: Choices) -> tuple[Rows, list[int]]:
        """Return the partner of each record, itself where it has none, and those that should have had one."""

    @abstractmethod
    def stuck(self, data: Microdata) -> str:
        """Say why no record of this file can be swapped; empty where one can."""

    @property
    @abstractmethod
    def how_many(self) -> str:
        """Say how many records are exchanged, in words that may be published."""

    def inside_plan(self, data: Microdata) -> str:
        """Say how many records are exchanged, as far as it is known before the draw; for the custodian alone."""
        return ""

    def changed(self, data: Microdata, choices: Choices) -> Microdata:
        """Return the file with whatever else is done to it."""
        return data

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the rate, and not a loss that is infinite whatever the settings are."""
        return f"rate {float(self.nominal_rate):.2%}"

    def nearest(self, name: str, *, rate: Any = None, hold: Sequence[str] | None = None) -> Mechanism:
        """Return the member of the swapping family that does most of the same, at the same rate if none is given."""
        from stirred.mechanisms import registry

        swap = [name for name in self.swapped if name not in self.matched]
        own = {"match": list(self.matched), "swap": swap, "rate": str(rate or self.nominal_rate)}
        held = {} if hold is None else {"hold": list(hold)}
        return registry.build(name, {**own, **held, "unit": self.unit})

    # ---- the promise and the act

    def specification(self, *, name: str, stage: str, columns: Sequence[str], persons: bool = False) -> Specification:
        """Return what is fixed, and that nothing is promised relative to it."""
        held = tuple(each for each in columns if each not in (*self.swapped, *self._resampled))
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

    def check(self, data: Any) -> None:
        """Raise all problems of the columns."""
        microdata = as_microdata(data)
        there = [*microdata.households.columns, *microdata.person_variables]
        where = microdata.household_source
        problems = [missing_column(n, there, where=where, role="setting") for n in self.used if n not in there]
        if problems:
            raise DataError(problems)

    def plan(self, data: Any, *, doubts: bool = True) -> RecordPlan:
        """Return the plan; nothing random happens."""
        microdata = as_microdata(data)
        self.check(microdata)
        columns = [n for n in microdata.variables if n not in self._left_out]
        promise = self.specification(
            name=microdata.name, stage=microdata.stage, columns=columns, persons=microdata.persons is not None
        )
        found = self._doubts(microdata, columns) if doubts else (UNSEARCHED,)
        link = microdata.hid if microdata.persons is not None else None
        homes = microdata.households.columns
        dropped = [f"{n} (re-issued)" if n == link else n for n in homes if n not in columns]
        return RecordPlan(
            origin=PlanOrigin(self, microdata),
            specification=promise,
            doubts=tuple(found),
            dropped=tuple(dropped),
            mechanism=self,
            data=microdata,
            persons=tuple(microdata.person_variables),
        )

    @property
    def _left_out(self) -> Collection[str]:
        """Return columns that are used and not released."""
        return ()

    def _doubts(self, data: Microdata, columns: Sequence[str]) -> Iterator[Doubt]:
        yield from settings_doubts(self.settings_from)
        held = [name for name in columns if name not in self.swapped]
        yield from identifier_doubts(data, held, swap=self.swapped, unit=self.unit)
        yield from self._telling(data, columns)
        if why := self.stuck(data):
            yield nothing_moves(why)
            return
        yield nothing_promised(
            f"nothing is promised: {self.breaks[:1].lower()}{self.breaks[1:-1]}",
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
                yield replace(each, remedy=self._advised(each.remedy))

    def _advised(self, remedy: str) -> str:
        """Return the advice to leave a column out of a permutation swap for a method that has no hold."""
        return remedy.replace(KEEP, "let [[prepare]] drop")

    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
    ) -> Release:
        """Swap once; rows come out in an order that does not depend on the input."""
        from stirred.mechanisms.records.kernels.order import release_order

        del progress
        microdata, plan, entropy, promised = opened(self, data, entropy, accept=accept, plan=plan)
        partner, unswapped = self.pairs(microdata, RandomChoices(entropy.child("pairs")))
        given = self.changed(microdata, RandomChoices(entropy.child("changes")))
        swap = encode(microdata.households, list(self.swapped))
        swapped = swap.codes[partner]
        order = release_order(swapped, entropy=entropy.child("release order"), groups=swap.count)
        held = [n for n in plan.specification.domain.columns if n not in self.swapped]
        file = SwappedFile.of(given, held, swap=swap, swapped=swapped, order=order)
        return Release(
            public=Frames(file.tables, convert=like(data)),
            specification=promised,
            internal={"file": file, "partner": partner, "unswapped": unswapped, "log": _exchanged(partner, unswapped)},
        )

    # ---- files and pages

    def files(self, data: Microdata, plan: Any) -> list[PublicFile]:
        """Return the records, and the persons in them."""
        return record_files(data, plan.releases, self.swapped)

    def allowed(self, released: Mapping[str, Collection[str]], fixed: Collection[str]) -> dict[str, set[str]]:
        """Return the columns that each file may have."""
        homes = {*fixed, *self._resampled} & {*released["households"]}
        return allowed_records(released, homes, self.swapped)

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

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        """Check that pairs are disjoint and agree where they must, and that the fixed tables are those of the input."""
        partner, rows = release.internal["partner"], np.arange(data.households.height)
        if not np.array_equal(partner[partner], rows):
            raise failed("the pairs are not disjoint")
        both = data.households.select(self.matched) if self.matched else None
        if both is not None and not both.equals(both[partner], null_equal=True):
            raise failed("a pair does not agree on what must be equal")
        file = pl.concat(list(release.public.parts(RECORDS)))
        checks = []
        held = [n for n in plan.releases["households"] if n not in (*self.swapped, *self._resampled)]
        for names in ([*self._crossed], held):
            one, other = (f.group_by(names or pl.lit(0)).len("__len") for f in (data.households, file))
            if not one.sort(one.columns).equals(other.sort(other.columns), null_equal=True):
                raise failed(f"the table of {', '.join(names)} differs from the input")
            checks.append(Check(what=f"table of {', '.join(names)}", cells=one.height))
        # How many were swapped is not fixed by what is published, and checks stand in the public report.
        return [*checks, Check(what="pairs are disjoint", cells=rows.size, result="as it must be")]

    @property
    def _crossed(self) -> tuple[str, ...]:
        """Return what is counted exactly together; a level of the geography may be among what must be equal."""
        return tuple(dict.fromkeys((*self.matched, *self.swapped)))

    @property
    def _resampled(self) -> Collection[str]:
        """Return columns that are changed besides."""
        return ()

    @property
    def in_three(self) -> tuple[str, str, str]:
        """Return in three sentences what is promised and what is not."""
        kept = " x ".join(self._crossed)
        return (
            f"Exact are the counts by {kept}, and everything that does not contain "
            f"{', '.join((*self.swapped, *self._resampled))}.",
            f"Nothing is promised beyond that, the loss is infinite: {self.breaks[:1].lower()}{self.breaks[1:]}",
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
            f"pairs: {self.how_many}. {found['without_partner']:,} that should have been found no partner."
        )
        return [Section(title="How many were exchanged", blocks=(words,))]

    @property
    def areas(self) -> tuple[str, ...]:
        """Return the columns that are exchanged."""
        return self.swapped

    @property
    def grouped_by(self) -> tuple[str, ...]:
        """Return the columns by which released records are grouped."""
        return self.swapped

    # ---- audits

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all tables with the margins of a few small files, as pairs (held, swapped)."""
        return [tables_with_margins(hold, swap) for hold, swap in (("ab", "xy"), ("abc", "xyz"), ("aab", "xyy"))]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return that nothing is promised."""
        return self.specification(name="small", stage="as-given", columns=("held", *self.swapped))

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Say what cannot be checked: the promise is none."""
        if not bundle.specification.budget.realised.is_infinite:
            found.bad("it promises something, and swaps of disjoint pairs do not", where="public/specification.json")
        found.unchecked.append("which records were swapped: that is confidential, and nothing is promised of it")


def _exchanged(partner: Rows, unswapped: Sequence[int]) -> dict[str, int]:
    """Return for the log how many records have a partner, and how many should have had one."""
    return {"exchanged": int((partner != np.arange(partner.size)).sum()), "without_partner": len(unswapped)}


def apart(alike: Rows, area: Rows) -> bool:
    """Say whether two records that are alike lie in different areas."""
    both = pl.DataFrame({"alike": alike, "area": area}).unique()
    return both.height > both["alike"].n_unique()
