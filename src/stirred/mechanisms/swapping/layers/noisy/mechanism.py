"""Noise after a swap: only tables of the swapped file are published, with integer noise (swapping theory R15)."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar, Self

import polars as pl
from pydantic import Field

from stirred.data.bundle import BundleFiles, Findings
from stirred.data.codebook import Codebook
from stirred.data.microdata import Microdata
from stirred.data.missing import MISSING_CODE, missing_doubts
from stirred.data.problems import bad_plan, listed, taken_names
from stirred.mechanisms.doubts import repeated_ids
from stirred.mechanisms.protocol import (
    PERSONS,
    RECORDS,
    Progress,
    Rate,
    Release,
    Settings,
    Table,
    Written,
    settings_doubts,
)
from stirred.mechanisms.swapping.core.plan import SwapPlan, SwapUniverse
from stirred.mechanisms.swapping.core.roles import OtherRates, Roles, SwapRate, SwapSettings
from stirred.mechanisms.swapping.core.strata import OWN_COLUMNS, Strata
from stirred.mechanisms.swapping.core.swapping import Parts
from stirred.mechanisms.swapping.doubts.promise import similar_in_roles
from stirred.mechanisms.swapping.layers.budget import PerturbedBudget, perturbed_after
from stirred.mechanisms.swapping.layers.chains import chained, truncated_geometric
from stirred.mechanisms.swapping.layers.layer import Layer
from stirred.mechanisms.swapping.layers.noisy.files import (
    audit_noisy,
    noisy_files,
    noisy_sections,
    reading_noise,
    verify_noisy,
)
from stirred.mechanisms.swapping.layers.noisy.plan import NoisyPlan, closer_flavors
from stirred.mechanisms.swapping.layers.noisy.tables import (
    CELLS_OF_A_CHANGE,
    TAKEN_NAMES,
    NoisyTable,
    decay_for,
    noisy_table,
    share_of,
    table_loss,
)
from stirred.mechanisms.tables import cells as of_tables
from stirred.mechanisms.tables.cells import Values, declared_cells, declared_columns, values_of_tables
from stirred.mechanisms.tables.no_records import require_tables
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import Number, loss
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.specification import Specification


class NoisySettings(SwapSettings):
    """A rate, and the loss of the noise; the tables are those of the plan."""

    rate: SwapRate
    noise_epsilon: Rate = Field(
        description="The loss of the noise alone, for all tables together.", json_schema_extra={"example": 1}
    )
    rates: OtherRates = Field(default=[])
    noise: str = Field(default="geometric", description="The law of the noise, geometric; bounded noise is refused.")


NOISE = "R15, noise after a swap (docs/theory/swapping-family.md)"
TABLES_ONLY = "of the swapped file nothing is published but the tables with noise, and these as they were drawn"
DECLARED = "the values that the variables of the tables can take were declared beforehand, not read off the file"
# The files that are audited have these values.
_HOLD, _SWAP = "ab", "xy"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySwap(Layer):
    """Permutation swapping, and then only tables of the swapped file with two-sided geometric noise on every cell.

    The swapped records are never published. ``noise_epsilon`` is the loss of the noise for all ``tables`` together,
    split evenly between them; ``values`` declares which values the variables of the tables can take. Only the sizes
    of the strata stay exact. Relative to these few invariants the loss is that of the noise, *twice* for tables that
    cross swapped with held variables; the noise alone would lose it once. Relative to more invariants it is smaller,
    and the plan says what.

    >>> import polars as pl
    >>> homes = pl.DataFrame({"size": [1] * 4, "county": list("ABAB"), "tenure": list("oorr")})
    >>> tenures, counties = ["o", "r"], ["A", "B", "C"]
    >>> swap = NoisySwap(match=["size"], swap=["county"], rate="1/10", noise_epsilon="2*ln(5)",
    ...                  tables=[["county", "tenure"]], values={"tenure": tenures, "county": counties})
    >>> swap.plan(homes).specification.budget.shown, swap.plan(homes).noise_alone
    ('6.44', Exact('2*ln(5)'))
    >>> released = swap.release(homes, Entropy.from_os()).public["county x tenure"]
    >>> released.columns, released.height  # every cell, also those of county C, where nobody lives
    (['county', 'tenure', 'count'], 6)
    """

    name: ClassVar[str] = "noisy-swap"
    title: ClassVar[str] = "noisy swapping"
    settings_model: ClassVar[type[Settings]] = NoisySettings
    member: ClassVar[str] = "noisy"
    uncorrected: ClassVar[tuple[str, str] | None] = (
        "tables of a noisy swap are not corrected",
        "their noise has mean zero, and what the swap before it moved shows only in records, of which none are "
        "published; the report says how to read them",
    )
    counts_tables: ClassVar[bool] = False
    # Who changes a value depends on the margins, which are not invariant.
    unsaid: ClassVar[tuple[str, str] | None] = (
        "the noisy swap publishes tables and no records, and whom it moves depends on counts that it protects",
        "compare its loss by `stirred plan`, one plan at a time",
    )
    untunable: ClassVar[tuple[str, str] | None] = (
        "the loss of the noisy swap is that of its noise, whatever the rate",
        "choose noise_epsilon: half of the loss you want, where tables cross swapped with held variables",
    )

    noise_epsilon: Number
    tables: Sequence[Sequence[str]]
    values: Values = field(default_factory=dict)
    noise: str = "geometric"

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_epsilon", loss(self.noise_epsilon, where="noise_epsilon", finite=True))
        object.__setattr__(self, "tables", tuple((t,) if isinstance(t, str) else tuple(t) for t in self.tables))
        self._check_noise()
        Layer.__post_init__(self)
        self._check_tables()
        decay_for(share_of(self.noise_epsilon, tables=len(self.tables)))

    def _check_noise(self) -> None:
        if self.noise in ("cell-key", "cell-keys"):
            raise bad_plan(
                "cell-key noise is bounded: a count of 0 and one of 100 are told apart with certainty, so that its own "
                "loss is infinite and only the swap would protect",
                where="noise",
                remedy='write "geometric", or use permutation-swap and its promise',
            )
        if self.noise != "geometric":
            raise bad_plan(f"'{self.noise}' is not known", where="noise", remedy='write "geometric"')

    def _check_tables(self) -> None:
        if not self.tables:
            raise bad_plan(
                "there is no table, and nothing else is published", where="tables", remedy="name at least one table"
            )
        for variables in self.tables:
            title = " x ".join(variables)
            if not variables or len({*variables}) < len(variables):
                raise bad_plan("a table needs different variables", where=f"table '{title}'", remedy="name each once")
            if taken := [name for name in variables if name in TAKEN_NAMES]:
                raise bad_plan(
                    taken_names(taken, by="tables with noise"),
                    where=f"table '{title}'",
                    remedy="rename the column in the file",
                )
            if {*variables} <= {*self.match}:
                raise bad_plan(
                    f"counts of {title} are published exactly, being sizes of strata: noise would be spent for nothing",
                    where=f"table '{title}'",
                    remedy="leave the table out, or cross it with a swapped or a held variable",
                )
        sets = [frozenset(variables) for variables in self.tables]
        for variables in self.tables:
            if sets.count(frozenset(variables)) > 1:
                raise bad_plan(
                    "the same table is asked for twice, and would be paid for twice",
                    where=f"table '{' x '.join(variables)}'",
                    remedy="leave one of them out",
                )

    @classmethod
    def of_settings(cls, settings: Settings, **others: Any) -> Self:
        """Return the mechanism; without any table there is nothing to release."""
        require_tables(others.get("tables"))
        return super(NoisySwap, cls).of_settings(settings, **others)

    def with_codebook(self, codebook: Codebook, *, missing_as: str | None) -> Self:
        """Return the mechanism with the values that the variables of its tables can take."""
        names = {name for variables in self.tables for name in variables}
        values = values_of_tables(codebook, names)
        if missing_as == "code":
            codes = {*self.matched, *self.swap}
            values = {n: [MISSING_CODE if v is None and n in codes else v for v in own] for n, own in values.items()}
        return replace(self, values=values)

    def learned(self, codebook: Codebook) -> Sequence[str]:
        """Return the variables of the tables: their values are those of the codebook."""
        return [*self.values]

    @property
    def decay(self) -> Fraction:
        """Return the decay of the noise in every cell: its loss is ln(1/decay) for each unit of a count."""
        return decay_for(share_of(self.noise_epsilon, tables=len(self.tables)))

    @property
    def swaps(self) -> bool:
        """Say whether the settings let anything be swapped; with all rates 0 this is noise alone."""
        rules, rate = self.inner.rules()
        return any(each > 0 for each in (rate, *(own for _, own in rules)))

    def crosses(self, variables: Sequence[str]) -> bool:
        """Say whether a table crosses swapped with held variables: only such tables does the swap change."""
        swapped = {*variables} & {*self.swap}
        return bool(swapped) and not {*variables} <= {*self.swap, *self.match}

    def _losses(self, swap: Exact) -> PerturbedBudget:
        """Return the loss of the release in each flavor, given the loss of the swap in its own."""
        each = table_loss(self.decay)
        crossing = sum(self.crosses(variables) for variables in self.tables) if self.swaps else 0
        return perturbed_after(swap, each * len(self.tables), crossed=Fraction(crossing, len(self.tables)))

    @property
    def in_words(self) -> str:
        """Return in one sentence what was done."""
        titles = listed([" x ".join(variables) for variables in self.tables])
        return (
            f"Noisy swapping: {self.inner.exchanged}; of the swapped file only the tables {titles} are published, "
            f"two-sided geometric noise of decay {self.decay} on every cell, nothing rounded or cut off."
        )

    @property
    def promised(self) -> Derived:
        """Return the budget, a function of the settings alone."""
        each, tables = table_loss(self.decay), len(self.tables)
        crossing = sum(self.crosses(variables) for variables in self.tables)
        twice = f", and once more for the {crossing} that cross swapped with held variables"
        formula = (
            f"{each} for each of {tables} tables: a changed record changes {CELLS_OF_A_CHANGE} counts of a table by "
            f"1, each under noise of decay {self.decay}{twice if crossing and self.swaps else ''}"
        )
        return Derived(formula=formula, value=self._losses(exact(0)).neither)

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise between files with strata of the same sizes; nothing else is fixed."""
        promised = self.inner.specification(universe)
        multiverse = Multiverse(invariants=(Margin(of=self.unit, variables=universe.match),))
        return replace(
            promised.with_flavor(multiverse=multiverse),
            assumptions=(*promised.assumptions, TABLES_ONLY, DECLARED),
            theorem=(NOISE,),
        )

    def _roles(self, data: Microdata) -> Roles:
        if data.persons is not None:
            raise bad_plan(
                "persons are given, and a household may change as many cells of a table as it has persons: no noise "
                "of fixed size covers that",
                where="persons",
                remedy="leave the file of persons out; tables of households are published",
            )
        roles = Layer._roles(self, data)
        known = (*roles.hold, *self.swap)
        for variables in self.tables:
            if other := [name for name in variables if name not in known]:
                raise bad_plan(
                    f"no swapped or held column {listed(other)}",
                    where=f"table '{' x '.join(variables)}'",
                    remedy=f"there are {listed(known)}",
                )
        return roles

    def _prepare(self, data: Microdata, roles: Roles) -> SwapPlan:
        plan = self.inner._prepare(data, roles, alone=False)
        # Which strata have anything to swap is not invariant here: those of two records and more are taken as live.
        table = tuple(replace(stratum, live=stratum.records > 1) for stratum in plan.strata.table)
        strata = replace(plan.strata, table=table)
        strata = strata.with_shares(self.inner.moved_shares(strata, plan.swap))
        universe = replace(plan.universe, policy=self.promised)
        names = list(dict.fromkeys(name for variables in self.tables for name in variables))
        declared = declared_columns(names, self.values, data.households)
        losses = self._losses(strata.policy.realised)
        plan = replace(plan, strata=strata, universe=universe, specification=self.specification(universe))
        return plan.extended(
            NoisyPlan,
            cells={" x ".join(variables): declared_cells(variables, declared) for variables in self.tables},
            losses=losses,
            closer=closer_flavors(plan, self.inner.margins(universe), losses),
        )

    def _doubts(self, data: Microdata, plan: SwapPlan) -> Iterator[Doubt]:
        """Yield doubts; no record is published, and no column of one can tell anything."""
        yield from settings_doubts(self.settings_from)
        yield from missing_doubts(data.households, self.coded_columns, codes=data.not_missing)
        yield from repeated_ids(data, unit=self.unit)
        yield from similar_in_roles(plan.strata, plan.swap)
        if not self.swaps:
            yield Doubt(
                kind="noise-alone",
                what="at a rate of 0 nothing is swapped: this is the noise alone",
                remedy="if that is not meant, choose a rate above 0",
                refuses=False,
            )

    def _empty(self, plan: SwapPlan) -> Iterator[Doubt]:
        """Yield nothing: the noise protects, whatever moves."""
        return iter(())

    def _drawn(
        self, data: Microdata, plan: SwapPlan, entropy: Entropy, progress: Progress | None
    ) -> tuple[Parts, dict[str, Any]]:
        """Return the tables of the swapped file with their noise; the swapped file itself is not among them."""
        assert isinstance(plan, NoisyPlan)
        swapped = plan.swap.codes.copy()
        self._exchange(plan, swapped, entropy, progress)
        file = plan.swap.decoded(swapped)
        held = {name for cells in plan.cells.values() for name in cells.columns if name not in self.swap}
        file = file.with_columns([data.households[name] for name in held])
        noise = entropy.child("noise")
        tables: dict[str, NoisyTable] = {
            title: noisy_table(cells, file, decay=self.decay, entropy=noise.child(title))
            for title, cells in plan.cells.items()
        }
        internal = {"swapped": swapped, "drawn": {title: table.drawn for title, table in tables.items()}}
        return {title: lambda t=t: [t.released] for title, t in tables.items()}, internal

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Compute the promise of a bundle again from its plan, and check its strata and cells."""
        audit_noisy(bundle, self, found)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Check strata and cells of a bundle, which need no settings."""
        audit_noisy(bundle, None, found)

    @property
    def stratum_columns(self) -> tuple[str, ...]:
        """Return what ``strata.parquet`` has; whether there is anything to swap in a stratum is not fixed."""
        return tuple(name for name in OWN_COLUMNS if name != "stratum_live")

    def strata_table(self, strata: Strata) -> pl.DataFrame:
        """Return the strata as they are published: by what is fixed of them, their sizes."""
        return Layer.strata_table(self, strata).select(*strata.match, *self.stratum_columns)

    files = noisy_files
    verify = verify_noisy
    sections = noisy_sections
    reading_tables = reading_noise

    def allowed(self, released: Mapping[str, Collection[str]], fixed: Collection[str]) -> dict[str, set[str]]:
        """Return the columns that each file may have: of the strata their sizes, and none of records."""
        match = {*self.match}
        return {
            RECORDS: set(),
            PERSONS: set(),
            "invariants": match | {"table", "count"},
            "strata": match | {*self.stratum_columns},
        }

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:
        """Keep what went into each table."""
        of_tables.write_drawn(release, written.internal, note=note)

    def exact_tables(self, data: Microdata, plan: SwapPlan) -> dict[str, Sequence[str]]:
        """Return the one table that is fixed, the sizes of the strata."""
        return {"match": plan.strata.match}

    def table_in_words(self, table: Table, data: Microdata, plan: SwapPlan) -> str:
        """Say what was done to a table."""
        return "with noise, after swapping" if self.swaps and self.crosses(table.variables) else "with noise"

    def conclusions(self, plan: SwapPlan) -> list[str]:
        """Return that sizes of strata are exact, and what to know of the noise."""
        fixed = " x ".join(self.match)
        exact = f"The number of records{f' by {fixed}' if fixed else ''} is exact. Nothing else is."
        return [exact, *reading_noise(self, plan)]

    def file_notes(self, plan: SwapPlan) -> list[str]:
        """Return why there is no file of records."""
        return ["There is no file of records: the promise is about the tables alone."]

    def law(self, dataset: Any) -> Law:
        """Return the exact law of the noisy tables of a small file of one stratum, hold values a, b, swap values x, y.

        Each noisy count is cut to 0..n. That loses nothing: of all counts below 0, or above n, the likelihoods under
        different files have the same ratios.
        """
        records = [(h, s) for h, s in dataset]
        cells = [cell for variables in self.tables for cell in self._audited_cells(variables)]

        def noisy(rows: Any) -> Law:
            outcomes: dict[Hashable, Fraction] = {(): Fraction(1)}
            for cell in cells:
                count = sum(all(want in (None, has) for want, has in zip(cell, row, strict=True)) for row in rows)
                single = truncated_geometric(count, most=len(records), alpha=self.decay).probabilities
                outcomes = {(*o, z): p * q for (o, p), (z, q) in product(outcomes.items(), single.items())}  # type: ignore[misc]
            return Law(outcomes)

        return chained(self.inner.law(records), noisy)

    def _audited_cells(self, variables: Sequence[str]) -> list[tuple[str | None, str | None]]:
        """Return the cells of a table in the audited files; None stands for any value."""
        hold = _HOLD if {*variables} - {*self.swap, *self.match} else (None,)
        swap = _SWAP if {*variables} & {*self.swap} else (None,)
        return [*product(hold, swap)]

    def audit_universes(self) -> list[list[Hashable]]:
        """Return all files of one, two or three records: nothing but their number is fixed."""
        most = 3 if len(self.tables) == 1 else 2
        records = [*product(_HOLD, _SWAP)]
        return [[*combinations_with_replacement(records, n)] for n in range(1, most + 1)]

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a file of one stratum, which is the same for every file."""
        return self.specification(SwapUniverse(policy=self.promised, match=(), swap=self.swap[:1], hold=("held",)))  # type: ignore[arg-type]
