"""`noisy-swap`, an earlier name of noisy tables after a permutation swap: its plans and bundles stay readable.

A plan becomes noisy tables with ``after``, of the same promise. Bundles of earlier versions have noise whose decay is a
fraction and a list of strata, and are audited as they were made.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from stirred.data.bundle import BundleFiles, Findings, as_text
from stirred.data.problems import bad_plan
from stirred.mechanisms.protocol import Exchange, Names, PublicFile, Rate, ReleasedColumns, Settings
from stirred.mechanisms.tables.engine import (
    STAYS_INSIDE,
    UNSTATED,
    TableMechanism,
    audit_cells,
    audit_records,
    stated_mechanism,
)
from stirred.mechanisms.tables.noise import checks
from stirred.mechanisms.tables.noise.mechanism import NoisyTables, decay_for
from stirred.mechanisms.tables.noise.promise import NoisyTablesSettings
from stirred.spec.exact import ZERO, Exact, ln
from stirred.spec.given_numbers import fraction, loss
from stirred.spec.invariant import Margin

_STRATA = ("stratum_records", "stratum_law", "stratum_rate", "stratum_expected_share_moved")


class NoisySwapSettings(Settings):
    """The roles of columns and a rate, of the swap; and the loss of the noise. The tables are those of the plan."""

    match: Names = Field(default=[], description="Variables that exchanging records must share; may be empty.")
    swap: Names = Field(
        description="Variables that are exchanged, all together.", json_schema_extra={"example": ["county"]}
    )
    hold: Names | None = Field(default=None, description="Other variables that tables may have; default all.")
    rate: Rate = Field(description="The swap rate.", json_schema_extra={"example": "1/20"})
    rates: list[dict[str, Any]] = Field(
        default=[], description="Other rates, each with the values of match variables it applies to."
    )
    noise_epsilon: Rate = Field(
        description="The loss of the noise alone, for all tables together.", json_schema_extra={"example": 1}
    )
    noise: Literal["geometric"] = Field(default="geometric", description="The law of the noise.")

    def crossing(self, tables: Collection[Sequence[str]]) -> list[str]:
        """Return the tables that cross swapped with held variables; with all rates 0 nothing is swapped."""
        rates = (self.rate, *(each.get("rate", 1) for each in self.rates))
        swaps = any(fraction(rate, where="rate") > 0 for rate in rates)
        exchange = Exchange(within=tuple(self.match), of=tuple(self.swap))
        return [" x ".join(each) for each in tables if swaps and exchange.crosses(each)]


class NoisySwap(NoisyTables):
    """Noisy tables after a permutation swap, by the settings of the earlier mechanism.

    ``noise_epsilon`` is what the noise alone loses. Tables that cross swapped with held variables lose it twice, and
    all cells have the same noise. Where no table does, nothing that is published was swapped: this is the noise alone.

    >>> roles = {"match": ["size"], "swap": ["county"]}
    >>> tables = NoisySwap(**roles, rate="1/10", noise_epsilon=1, tables=[["county", "tenure"], ["county"]])
    >>> tables.epsilon, tables.after["match"]
    ('3/2', ['size'])
    """

    name: ClassVar[str] = "noisy-swap"
    title: ClassVar[str] = "noisy tables after a swap"
    settings_model: ClassVar[type[Settings]] = NoisySwapSettings
    otherwise: ClassVar[str] = "or write the plan for noisy-tables, which has values = {...}"

    stated: NoisySwapSettings

    def with_settings(self, **changed: Any) -> Self:
        return super().with_settings(**{"settings": self.stated, **changed})

    def check_settings(self) -> None:
        """Take the settings of noisy tables that the earlier ones amount to, and check these."""
        settings, tables = self.settings, self.tables
        TableMechanism.check_settings(self)
        given = loss(settings.noise_epsilon, where="noise_epsilon", finite=True)
        if given.is_infinite or given <= ZERO:
            what = f"noise of loss {given.shown()} hides {'nothing' if given.is_infinite else 'everything'}"
            raise bad_plan(what, where="noise_epsilon", remedy="write a loss above 0 and not infinite")
        # A fraction: itself, or less by at most a billionth.
        least = Fraction(math.floor(Fraction(given.enclose(40).low) * 10**9), 10**9)
        noise = given.rational if given.is_rational else least
        swap: dict[str, Any] = {}
        if crossing := settings.crossing(tables):
            own = {key: getattr(settings, key) for key in ("match", "swap", "hold", "rate", "rates")}
            titles = [" x ".join(each) for each in tables]
            swap = {"after": own, "shares": {title: 2 if title in crossing else 1 for title in titles}}
        epsilon = str(noise * (len(tables) + len(crossing)) / len(tables))
        meant = NoisyTablesSettings(
            noise="laplace", epsilon=epsilon, unit=settings.unit, settings_from=settings.settings_from, **swap
        )
        object.__setattr__(self, "stated", settings)
        object.__setattr__(self, "settings", meant)
        NoisyTables.check_settings(self)

    def files(self, released: ReleasedColumns, data: Any = None, plan: Any = None) -> list[PublicFile]:
        if plan is not None:
            return NoisyTables.files(self, released, data, plan)
        match = tuple(self.stated.match)
        return [
            PublicFile(name="invariants", kind="side", columns=("table", *match, "count"), words=""),
            PublicFile(name="strata", kind="side", columns=(*match, *_STRATA), words=""),
        ]

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        if (bundle.public / "strata.parquet").exists():
            _audit(self.stated, self.tables, bundle, found)
        else:
            checks.audit(self, bundle, found)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        if not (bundle.public / "strata.parquet").exists():
            checks.audit_published(cls, bundle, found)
            return
        tables = [by for _, _, _, by in bundle.tables()]
        _audit(getattr(stated_mechanism(cls, bundle, tables), "stated", None), tables, bundle, found)


def _audit(settings: NoisySwapSettings | None, tables: Any, bundle: BundleFiles, found: Findings) -> None:
    """Check promise, strata and cells of a bundle of an earlier version, and say what cannot be checked."""
    audit_records(bundle, found)
    _audit_sizes(bundle, found)
    said = bundle.specification
    if settings is None:
        found.unchecked.append(UNSTATED)
    elif said.budget.realised != (again := _promised(settings, tables)):
        what = f"it says {said.budget.shown}, and the settings give {again.shown()}"
        found.bad(what, where="public/specification.json budget")
    else:
        found.checks.append(f"budget {said.budget_text}: computed anew from the settings")
    audit_cells(bundle, found, whole=True)
    if sorted(sorted(by) for _, _, _, by in bundle.tables()) != sorted(map(sorted, tables)):
        found.bad("the tables are not those of the plan", where="public/tables")
    words = "whether the counts are those of the swapped file and the noise is of the stated law"
    found.unchecked.append(f"{words}: {STAYS_INSIDE}")


def _promised(settings: NoisySwapSettings, tables: Collection[Sequence[str]]) -> Exact:
    """Return the loss: noise of a rational decay on both cells that a record changes, twice where a table crosses."""
    decay = decay_for(loss(settings.noise_epsilon, where="noise_epsilon", finite=True) / (2 * len(tables)))
    return 2 * ln(1 / decay) * (len(tables) + len(settings.crossing(tables)))


def _audit_sizes(bundle: BundleFiles, found: Findings) -> None:
    """Compare the one published invariant with the specification and with the list of strata."""
    sizes, strata = bundle.invariants, bundle.strata
    if sizes is None or strata is None:
        return
    margins = [{*m.variables} for m in bundle.specification.multiverse.invariants if isinstance(m, Margin)]
    match = [name for name in sizes.columns if name not in ("table", "count")]
    if "count" not in sizes.columns or [{*match}] != margins:
        what = "it is not the one table that the specification fixes, the sizes of the strata"
        found.bad(what, where="public/invariants.parquet")
    elif other := {*strata.columns} ^ {*match, *_STRATA}:
        what = f"its columns are not those of sizes and rates: {', '.join(sorted(other))}"
        found.bad(what, where="public/strata.parquet")
    else:
        one, two = (as_text(each) for each in (sizes.select(*match, "count"), strata.select(*match, count=_STRATA[0])))
        if not one.sort(one.columns).equals(two.sort(two.columns), null_equal=True):
            found.bad("stratum_records is not what invariants.parquet says", where="public/strata.parquet")
