"""Noise after a swap: only tables of the swapped file are published, with integer noise (swapping theory R15)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar

from stirred.data.codes import Coded
from stirred.data.given import as_microdata, like
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Frames, Progress, Release
from stirred.mechanisms.swapping.identifiers import repeated_ids
from stirred.mechanisms.swapping.laws.chains import chained, truncated_geometric
from stirred.mechanisms.swapping.laws.permutation import psa_law
from stirred.mechanisms.swapping.margins import SwapMargins
from stirred.mechanisms.swapping.noisy_plan import NoisyPlan, closer_flavors
from stirred.mechanisms.swapping.noisy_tables import (
    TAKEN_NAMES,
    NoisyTable,
    Values,
    declared_cells,
    declared_columns,
    noisy_table,
)
from stirred.mechanisms.swapping.permutation import PermutationSwap
from stirred.mechanisms.swapping.persons import Part
from stirred.mechanisms.swapping.roles import Roles
from stirred.mechanisms.swapping.shares import Shares
from stirred.mechanisms.swapping.similar_values import similar_values
from stirred.mechanisms.swapping.small_strata import OwnLoss
from stirred.mechanisms.swapping.strata import Strata
from stirred.mechanisms.swapping.swap import Swap
from stirred.mechanisms.swapping.swap_plan import SwapPlan, SwapUniverse
from stirred.randomness.entropy import Entropy
from stirred.spec.budget import Derived
from stirred.spec.exact import Exact, exact
from stirred.spec.family_budget import Number
from stirred.spec.geometric_noise import CELLS_OF_A_CHANGE, decay_for, share_of, table_loss
from stirred.spec.given_numbers import loss
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.layered_budget import PerturbedBudget, perturbed_after
from stirred.spec.multiverse import Multiverse
from stirred.spec.specification import Specification

NOISE = "R15, noise after a swap (docs/theory/swapping-family.md)"
TABLES_ONLY = "of the swapped file nothing is published but the tables with noise, and these as they were drawn"
DECLARED = "the values that the variables of the tables can take were declared beforehand, not read off the file"
# The files that are audited have these values.
_HOLD, _SWAP = "ab", "xy"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySwap(PermutationSwap):
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

    member: ClassVar[str] = "noisy"
    # The rules of R15 are for class laws, one rate in a stratum.
    rates_inside: ClassVar[bool] = False
    releases_records: ClassVar[bool] = False

    noise_epsilon: Number
    tables: Sequence[Sequence[str]]
    values: Values = field(default_factory=dict)
    noise: str = "geometric"

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_epsilon", loss(self.noise_epsilon, where="noise_epsilon"))
        object.__setattr__(self, "tables", tuple((t,) if isinstance(t, str) else tuple(t) for t in self.tables))
        self._check_noise()
        if self.imputed is not None:
            raise bad_plan(
                "the noisy swap does not leave imputed records out",
                where="imputed",
                remedy="use permutation-swap, or leave it out",
            )
        PermutationSwap.__post_init__(self)
        self._check_tables()
        decay_for(share_of(self.noise_epsilon, tables=len(self.tables)))

    def _check_noise(self) -> None:
        if self.noise in ("cell-key", "cell-keys"):
            raise bad_plan(
                "cell-key noise is bounded: a count of 0 and one of 100 are told apart with certainty, so that its own "
                "loss is infinite and only the swap would protect (R15)",
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
                    f"{listed(taken)} is a name that tables with noise use for something else",
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

    @property
    def decay(self) -> Fraction:
        """Return the decay of the noise in every cell: its loss is ln(1/decay) for each unit of a count."""
        return decay_for(share_of(self.noise_epsilon, tables=len(self.tables)))

    @property
    def swaps(self) -> bool:
        """Say whether the settings let anything be swapped; with all rates 0 this is noise alone."""
        rules, rate = self.rules()
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
        swapped = PermutationSwap.in_words.fget(self).partition(": ")[2].partition(";")[0]  # type: ignore[attr-defined]
        titles = listed([" x ".join(variables) for variables in self.tables])
        return (
            f"Noisy swapping: {swapped}; of the swapped file only the tables {titles} are published, two-sided "
            f"geometric noise of decay {self.decay} on every cell, nothing rounded or cut off."
        )

    def _policy(self, strata: Strata, swap: Coded) -> Derived:
        del strata, swap
        return self.promised

    @property
    def promised(self) -> Derived:
        """Return the budget, a function of the settings alone."""
        each, tables = table_loss(self.decay), len(self.tables)
        crossing = sum(self.crosses(variables) for variables in self.tables)
        twice = f", and once more for the {crossing} that cross swapped with held variables (R15)"
        formula = (
            f"{each} for each of {tables} tables: a changed record changes {CELLS_OF_A_CHANGE} counts of a table by "
            f"1, each under noise of decay {self.decay}{twice if crossing and self.swaps else ''}"
        )
        return Derived(formula=formula, value=self._losses(exact(0)).neither)

    def specification(self, universe: SwapUniverse) -> Specification:
        """Return the promise between files with strata of the same sizes; nothing else is fixed."""
        promised = Swap.specification(self, universe)
        multiverse = Multiverse(invariants=(Margin(of=self.unit, variables=universe.match),))
        promised = promised.with_flavor(multiverse=multiverse)
        return replace(promised, assumptions=(*promised.assumptions, TABLES_ONLY, DECLARED))

    def _theorem(self) -> tuple[str, ...]:
        return (NOISE,)

    def _own_loss(self, strata: Strata, swap: Coded, held: Sequence[Part]) -> OwnLoss | None:
        # Over the tables with given margins; here no margin but the sizes is fixed.
        del strata, swap, held
        return None

    def _left_out(self, strata: Strata) -> Strata:
        """Take strata of two records and more as live: which of them have anything to swap is no invariant here."""
        table = tuple(replace(stratum, live=stratum.records > 1) for stratum in strata.table)
        return replace(strata, table=table)

    def _roles(self, data: Microdata) -> Roles:
        if data.persons is not None:
            raise bad_plan(
                "persons are given, and a household may change as many cells of a table as it has persons: no noise "
                "of fixed size covers that",
                where="persons",
                remedy="leave the file of persons out; tables of households are published",
            )
        roles = PermutationSwap._roles(self, data)
        known = (*roles.hold, *self.swap)
        for variables in self.tables:
            if other := [name for name in variables if name not in known]:
                raise bad_plan(
                    f"no swapped or held column {listed(other)}",
                    where=f"table '{' x '.join(variables)}'",
                    remedy=f"there are {listed(known)}",
                )
        return roles

    def _prepare(self, data: Microdata) -> SwapPlan:
        plan = PermutationSwap._prepare(self, data)
        names = list(dict.fromkeys(name for variables in self.tables for name in variables))
        declared = declared_columns(names, self.values, data.households)
        losses = self._losses(plan.strata.policy.realised)
        given = {each.name: getattr(plan, each.name) for each in fields(plan)}
        alone = () if self.swaps else ("at a rate of 0 nothing is swapped: this is the noise alone",)
        given["warnings"] = (*repeated_ids(data, unit=self.unit), *similar_values(plan.strata, plan.swap), *alone)
        return NoisyPlan(
            **given,
            cells={" x ".join(variables): declared_cells(variables, declared) for variables in self.tables},
            losses=losses,
            closer=closer_flavors(plan, self._invariants(plan.universe), losses),
        )

    def release(
        self, data: Any, entropy: Entropy, *, plan: SwapPlan | None = None, progress: Progress | None = None
    ) -> Release:
        """Swap once, count the tables of the swapped file, and add the noise. The swapped file is not in the result."""
        microdata = self._narrowed(as_microdata(data))
        plan = plan or self._prepare(microdata)
        assert isinstance(plan, NoisyPlan)
        swapped = plan.swap.codes.copy()
        self._exchange(plan, swapped, entropy, progress)
        file = plan.swap.decoded(swapped)
        held = {name for cells in plan.cells.values() for name in cells.columns if name not in self.swap}
        file = file.with_columns([microdata.households[name] for name in held])
        noise = entropy.child("noise")
        tables: dict[str, NoisyTable] = {
            title: noisy_table(cells, file, decay=self.decay, entropy=noise.child(title))
            for title, cells in plan.cells.items()
        }
        public = Frames({title: lambda t=t: [t.released] for title, t in tables.items()}, convert=like(data))  # type: ignore[misc]
        specification = replace(plan.specification, seeded=entropy.seeded)
        internal = {"plan": plan, "swapped": swapped, "drawn": {title: t.drawn for title, t in tables.items()}}
        return Release(public=public, specification=specification, internal=internal)

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

        return chained(psa_law(records, rate=Fraction(self.rate)), noisy)

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
        del universe
        return self.specification(SwapUniverse(policy=self.promised, match=(), swap=self.swap[:1], hold=("held",)))  # type: ignore[arg-type]

    def losses(self, plan: SwapPlan, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return nothing: the loss is that of the noise, whatever the rate."""
        del plan, rates
        return []

    def rate_reaching(self, plan: SwapPlan, epsilon: Exact) -> Fraction:
        """Refuse: no rate changes the loss."""
        del plan, epsilon
        raise bad_plan(
            "the loss of the noisy swap is that of its noise, whatever the rate",
            where="epsilon",
            remedy="choose noise_epsilon: half of the loss you want, where tables cross swapped with held variables",
        )

    def changed_shares(self, strata: Strata, swap: Coded, margins: SwapMargins) -> Shares:
        """Refuse: who changes a value depends on the margins, which are no invariant."""
        raise bad_plan(
            "the noisy swap publishes tables and no records, and whom it moves depends on counts that it protects",
            where="noisy-swap",
            remedy="compare its loss by `stirred plan`, one plan at a time",
        )
