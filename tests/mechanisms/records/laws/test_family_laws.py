"""Every member of the swapping family draws by the law that its audit compares, and two laws never share a name.

One small stratum is repeated under thousands of match values in one file, and each stratum is one draw. The
frequencies of the released tables are compared with ``law()`` in Pearson's test. False-alarm rate: 1e-6 for each
comparison. Settings a fifth off, and a kernel that nearly does what the law says, fail the same test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.mechanisms import registry
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.law import SwapLaw
from stirred.mechanisms.records.laws.shuffle import ShuffleLaw
from tests.mechanisms.records.laws.coin_swap import CoinSwap
from tests.mechanisms.records.sampling import swapped

FALSE_ALARM = 1e-6
QUICK, DEEP = 20_000, 300_000
PValue = Callable[..., float]
Row = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A small stratum, settings to draw it with, and settings that are a little wrong."""

    given: dict[str, Any]
    wrong: dict[str, Any]
    rows: tuple[Row, ...] = (("a", "x"), ("b", "y"), ("c", "z"))
    columns: tuple[str, ...] = ("hold", "swap")
    record: Callable[[Row], Any] = field(default=lambda row: row)  # a row as the law has it

    def frame(self, strata: int) -> pl.DataFrame:
        """The rows under each match value; those of one stratum are far apart."""
        rows = pl.DataFrame(self.rows, schema=self.columns, orient="row")
        return rows.join(pl.DataFrame({"stratum": range(strata)}), how="cross")

    def p_value(self, mechanism: Swap, strata: int, *, seed: str, law: Any, p_value: PValue) -> float:
        """The p-value of a release of ``mechanism`` under a law."""
        released = swapped(mechanism, self.frame(strata), Entropy.from_seed(seed)).public["data"]
        tables = released.sort("stratum", *self.columns).select(
            "stratum", pl.concat_str(self.columns, separator=",").alias("row")
        )
        counts = tables.group_by("stratum", maintain_order=True).agg("row")["row"].list.join(";").value_counts()
        assert counts["count"].sum() == strata
        seen = dict(counts.iter_rows())
        names = {self.name(table): law[table] for table in law}
        assert len(names) == len([*law]), "two outcomes have one name"
        assert seen.keys() <= names.keys(), "a table that the law cannot produce"
        return p_value(np.array([seen.get(name, 0) for name in names]), [*names.values()])

    def name(self, table: Any) -> str:
        rows = {self.record(row): row for row in self.possible}
        return ";".join(sorted(",".join(rows[record]) for record in table))

    @property
    def possible(self) -> list[Row]:
        """Every row that a release can have."""
        return [*product(*(sorted({*column}) for column in zip(*self.rows, strict=True)))]


UNEVEN = (("a", "x"), ("a", "y"), ("b", "y"), ("c", "z"))
SAMPLES: dict[str, Sample] = {
    "permutation-swap": Sample(given={"rate": "3/10"}, wrong={"rate": "9/25"}, rows=UNEVEN),
    "conditioned-swap": Sample(given={"rate": "3/10"}, wrong={"rate": "9/25"}, rows=UNEVEN),
    "shuffle-swap": Sample(given={"rate": "2/5"}, wrong={"rate": "12/25"}, rows=UNEVEN),
    "mallows-swap": Sample(given={"epsilon": "1"}, wrong={"epsilon": "6/5"}, rows=UNEVEN),
    "two-stage-swap": Sample(
        given={"rate": "3/10", "fine_match": ["fine"], "fine_rate": "1/2"},
        wrong={"rate": "3/10", "fine_match": ["fine"], "fine_rate": "3/5"},
        rows=(("m", "a", "x"), ("m", "b", "y"), ("n", "a", "z")),
        columns=("fine", "hold", "swap"),
        record=lambda row: ((row[0], row[1]), row[2]),
    ),
    "response-swap": Sample(
        given={"rate": "3/10", "respond": "swap", "values": ["x", "y", "z"], "change": "1/4"},
        wrong={"rate": "3/10", "respond": "swap", "values": ["x", "y", "z"], "change": "3/10"},
        record=lambda row: (row[0], ("", row[1])),
    ),
    "coin-swap": Sample(given={"rate": "1/2"}, wrong={"rate": "3/5"}, rows=UNEVEN),
}


@pytest.fixture(autouse=True)
def new_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "coin-swap", (CoinSwap.__module__, "CoinSwap"))


def member(name: str, settings: dict[str, Any]) -> Any:
    return registry.mechanism_class(name)(match=["stratum"], swap=["swap"], **settings)


def fit(name: str, settings: dict[str, Any], p_value: PValue, *, strata: int = QUICK) -> float:
    """The p-value of draws with these settings under the law of the given ones."""
    sample = SAMPLES[name]
    law = member(name, sample.given).law(tuple(map(sample.record, sample.rows)))
    return sample.p_value(member(name, settings), strata, seed=f"{name} {strata}", law=law, p_value=p_value)


def test_every_member_has_a_sample() -> None:
    """A new member is drawn as well: without a sample here, its draw and its law are compared by nothing."""
    assert SAMPLES.keys() == {*registry.family(), "coin-swap"}


@pytest.mark.parametrize("name", SAMPLES)
def test_draws_follow_the_law_and_those_with_other_settings_do_not(name: str, p_value: PValue) -> None:
    assert fit(name, SAMPLES[name].given, p_value) > FALSE_ALARM
    assert fit(name, SAMPLES[name].wrong, p_value) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.family())
def test_many_draws_follow_the_law(name: str, p_value: PValue) -> None:
    assert fit(name, SAMPLES[name].given, p_value, strata=DEEP) > FALSE_ALARM


def test_a_kernel_that_leaves_no_value_in_its_place_fails(p_value: PValue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Power: the shuffle swap drawn as permutation swapping would draw it."""
    right = ShuffleLaw.kernel
    monkeypatch.setattr(ShuffleLaw, "kernel", lambda *given: partial(right(*given), derange=True))
    assert fit("shuffle-swap", SAMPLES["shuffle-swap"].given, p_value) < FALSE_ALARM


def law_names(kind: type[Any] = SwapLaw) -> dict[str, str]:
    """The names that laws give themselves, by module and class."""
    found: dict[str, str] = {}
    for each in kind.__subclasses__():
        own = {f"{each.__module__}.{each.__qualname__}": vars(each)["name"]} if "name" in vars(each) else {}
        found |= {**own, **law_names(each)}
    return found


def test_two_laws_never_have_one_name() -> None:
    """Names separate the random bits of laws, and say in strata.parquet whose draw it was."""
    for name in registry.names():
        registry.mechanism_class(name)
    named = law_names()
    assert {"permutation", "conditioned", "shuffle", "mallows", "coin"} <= {*named.values()}
    assert len({*named.values()}) == len(named), named
