"""Noise after a swap (R15): what is promised in each flavor, what is released, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.audit import Verdict, audit
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Rated, tunable
from stirred.mechanisms.swapping.layers.noisy.mechanism import NoisySwap
from stirred.mechanisms.swapping.layers.noisy.plan import NoisyPlan
from stirred.mechanisms.swapping.layers.noisy.tables import decay_for, table_loss
from stirred.spec.exact import Exact, compare_exact, exact, largest, ln
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import psa_sharp_epsilon
from tests.mechanisms.swapping.oracles import loss_of_laws

PValue = Callable[..., float]
ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"], "rate": "1/2"}
VALUES: dict[str, Sequence[Any]] = {"county": ["x", "y"], "tenure": ["a", "b"], "size": [1, 2]}
CROSSED = [["county", "tenure"]]
SWAP = NoisySwap(**ROLES, noise_epsilon="2*ln(5)", tables=CROSSED, values=VALUES)
HOMES = pl.DataFrame({"size": [1] * 8, "county": list("xxyyxxyy"), "tenure": list("ababaabb")})


def planned(swap: NoisySwap, data: Any = HOMES) -> NoisyPlan:
    plan = swap.plan(data)
    assert isinstance(plan, NoisyPlan)
    return plan


# ---- the losses, enumerated ------------------------------------------------------------------------------


def laws(swap: NoisySwap, records: int) -> dict[Any, Law]:
    """The law of every file of so many records: nothing but their number is fixed."""
    return {file: swap.law(file) for file in combinations_with_replacement([*product("ab", "xy")], records)}


def worst(by_file: dict[Any, Law], fixed: Callable[[Any], Hashable]) -> Exact:
    """The largest loss inside the universes of files that agree on what is fixed."""
    universes: dict[Hashable, dict[Any, Law]] = {}
    for file, law in by_file.items():
        universes.setdefault(fixed(file), {})[file] = law
    return largest([exact(0), *(loss_of_laws(universe) for universe in universes.values() if len(universe) > 1)])


def same(one: Exact, other: Exact) -> bool:
    """Whether two numbers are equal, however they are written."""
    return compare_exact(one, other) == 0


def held(file: Any) -> Hashable:
    return tuple(sorted(h for h, _ in file))


def swapped(file: Any) -> Hashable:
    return tuple(sorted(s for _, s in file))


@pytest.mark.parametrize("rate", ["1/10", "1/2", "1"])
def test_the_exact_loss_of_every_flavor_is_within_its_promise(rate: str) -> None:
    swap = replace(SWAP, rate=rate)
    by_file = laws(swap, 3)
    homes = pl.DataFrame({"size": [1] * 3, "county": list("xyx"), "tenure": list("aba")})
    plan = planned(swap, homes)
    assert worst(by_file, lambda file: None) <= plan.epsilon == 4 * ln(5)
    assert worst(by_file, held) <= plan.closer[0].budget.realised == 2 * ln(5)
    assert worst(by_file, swapped) <= plan.closer[1].budget.realised == 2 * ln(5)
    assert worst(by_file, lambda file: (held(file), swapped(file))) <= plan.closer[2].budget.realised


def test_swapping_first_weakens_the_noise_and_the_factor_of_two_is_reached_at_rate_1() -> None:
    alone = worst(laws(replace(SWAP, rate="0"), 2), lambda file: None)
    assert same(alone, 2 * ln(5))
    assert planned(SWAP).noise_alone == 2 * ln(5)
    assert alone < worst(laws(SWAP, 2), lambda file: None) < planned(SWAP).epsilon
    assert same(worst(laws(replace(SWAP, rate="1"), 2), lambda file: None), planned(SWAP).epsilon)


def test_tables_that_the_swap_does_not_change_are_charged_once_and_no_less() -> None:
    both = replace(SWAP, tables=[*CROSSED, ["county"]], noise_epsilon="4*ln(5)", rate="1")
    assert planned(both).epsilon == 6 * ln(5)
    assert same(worst(laws(both, 2), lambda file: None), 6 * ln(5))
    for tables in ([["county"]], [["tenure"]], [["county", "size"]], [["tenure", "size"]]):
        single = replace(SWAP, tables=tables)
        assert planned(single).epsilon == planned(single).noise_alone == 2 * ln(5)
        assert same(worst(laws(replace(single, rate="1"), 2), lambda file: None), 2 * ln(5))


def test_noise_alone_is_charged_once() -> None:
    still = replace(SWAP, rate="0")
    assert planned(still).epsilon == 2 * ln(5)
    (doubt,) = planned(still).doubts
    assert "noise alone" in doubt.what
    assert not doubt.refuses
    some = replace(SWAP, rate="0", rates=[{"size": 1, "rate": "1/2"}])
    assert planned(some).epsilon == 4 * ln(5)


class SoldAsNoiseAlone(NoisySwap):
    """The slip that R15 is about: the noise's own loss promised although the file is swapped first."""

    def audit_specification(self, universe: Any) -> Specification:
        return NoisySwap.audit_specification(self, universe).with_budget(table_loss(self.decay))


def test_the_audit_refutes_the_promise_of_the_noise_alone() -> None:
    result = audit(SoldAsNoiseAlone(**ROLES, noise_epsilon="2*ln(5)", tables=CROSSED))
    assert result.verdict is Verdict.FAILED
    assert audit(replace(SWAP, rate="0")).passed


# ---- the promise -----------------------------------------------------------------------------------------


def test_only_the_sizes_of_strata_are_fixed_and_closer_files_are_promised_more() -> None:
    plan = planned(replace(SWAP, noise_epsilon=10))
    assert plan.specification.multiverse.invariants == (Margin(of="household", variables=("size",)),)
    assert [[m.variables for m in spec.multiverse.invariants] for spec in plan.closer] == [  # type: ignore[union-attr]
        [("size", "tenure")],
        [("size", "county")],
        [("size", "county"), ("size", "tenure")],
    ]
    assert plan.closer[2].budget.realised == psa_sharp_epsilon(Fraction(1, 2), stratum=8)
    assert "swapping first can weaken the noise's own guarantee" in plan.also_promised
    assert plan.closer[2].multiverse.nearest == 2


def test_nothing_of_the_plan_follows_from_more_than_the_sizes_of_strata() -> None:
    """Liveness, levels and margins differ; the sizes do not (condition 4 of use)."""
    other = HOMES.with_columns(county=pl.lit("x"), tenure=pl.lit("a"))
    one, two = planned(SWAP), planned(SWAP, other)
    assert one.specification == two.specification
    assert one.closer == two.closer
    assert one.also_promised == two.also_promised
    assert one.strata.frame("noisy").equals(two.strata.frame("noisy"))
    assert one.strata.moved == two.strata.moved
    assert one.strata.moved
    assert one.doubts == two.doubts
    for title, cells in one.cells.items():
        assert cells.equals(two.cells[title])


def test_the_loss_is_at_most_what_was_asked_and_hardly_less() -> None:
    for asked in ("1/100", "1/4", "1", "ln(2)", "5", "40"):
        decay = decay_for(exact(asked))
        assert ln(1 / decay) <= exact(asked)
        assert ln(1 / decay) > exact(asked) * Fraction(999_998, 1_000_000)
        assert decay.denominator < 10**6 or exact(asked) > exact(10)


# ---- what is released ------------------------------------------------------------------------------------


def test_every_declared_cell_is_released_whether_or_not_anybody_is_in_it() -> None:
    values = {**VALUES, "county": ["x", "y", "nowhere"]}
    released = replace(SWAP, values=values).release(HOMES, Entropy.from_seed("cells"))
    assert list(released.public) == ["county x tenure"]
    table = released.public["county x tenure"]
    assert table.columns == ["county", "tenure", "count"]
    assert table.select("county", "tenure").rows() == [*product(["x", "y", "nowhere"], "ab")]
    drawn = released.internal["drawn"]["county x tenure"]
    assert drawn["swapped"].sum() == HOMES.height
    assert table["count"].equals((drawn["swapped"] + drawn["noise"]).alias("count"))


def test_counts_below_zero_are_released_as_they_are() -> None:
    values = {**VALUES, "county": ["x", "y", *(f"empty {n}" for n in range(200))]}
    table = replace(SWAP, values=values).release(HOMES, Entropy.from_seed("below")).public["county x tenure"]
    empty = table.filter(pl.col("county").str.starts_with("empty"))["count"]
    assert empty.min() < 0 < empty.max()
    assert abs(float(empty.mean())) < 5 * (0.625 / 400) ** 0.5


def test_released_tables_follow_their_law(p_value: PValue) -> None:
    """Many strata of three records, each with its 2 x 2 table cut to 0..3 as in the exact law; false alarms: 1e-6."""
    many = 20_000
    homes = pl.DataFrame({"size": range(many)}).join(
        pl.DataFrame({"county": [*"xyx"], "tenure": [*"aba"]}), how="cross"
    )
    values = {**VALUES, "size": range(many)}
    swap = replace(SWAP, tables=[["size", "tenure", "county"]], values=values)
    table = swap.release(homes, Entropy.from_seed("law")).public["size x tenure x county"]
    exact_law = SWAP.law((("a", "x"), ("b", "y"), ("a", "x"))).probabilities
    places = {outcome: number for number, outcome in enumerate(exact_law)}
    drawn = map(tuple, table["count"].clip(0, 3).to_numpy().reshape(many, 4).tolist())
    observed = np.bincount([places[outcome] for outcome in drawn], minlength=len(places))
    assert p_value(observed, list(exact_law.values())) > 1e-6
    # Power: noise whose loss is off by a twentieth, and the same noise without the swap.
    for other in (replace(SWAP, noise_epsilon="2.1*ln(5)"), replace(SWAP, rate="0")):
        wrong = other.law((("a", "x"), ("b", "y"), ("a", "x"))).probabilities
        assert p_value(observed, [wrong[outcome] for outcome in exact_law]) < 1e-6


def test_tables_draw_noise_of_their_own() -> None:
    both = replace(SWAP, tables=[["county", "tenure"], ["tenure"]], noise_epsilon="1/10")
    drawn = both.release(HOMES, Entropy.from_seed("own")).internal["drawn"]
    crossed = drawn["county x tenure"].group_by("tenure", maintain_order=True).agg(pl.col("noise").sum())
    assert crossed["noise"].to_list() != drawn["tenure"]["noise"].to_list()


def test_missing_values_and_true_or_false_have_cells() -> None:
    homes = HOMES.with_columns(vacant=pl.col("county") == "x", tenure=pl.Series([None, *"babaabb"]))
    swap = replace(SWAP, tables=[["county", "vacant"], ["tenure"]], values={**VALUES, "tenure": ["a", "b", None]})
    released = swap.release(homes, Entropy.from_seed("null"))
    assert released.public["county x vacant"].select("county", "vacant").rows() == [*product("xy", [False, True])]
    assert released.internal["drawn"]["tenure"]["swapped"].to_list() == [3, 4, 1]


# ---- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"noise": "cell-key"}, "its own loss is infinite"),
        ({"noise": "gaussian"}, "not known"),
        ({"noise_epsilon": 0}, "hides everything"),
        ({"noise_epsilon": "inf"}, "hides nothing"),
        ({"noise_epsilon": "-1"}, "noise_epsilon"),
        ({"tables": []}, "nothing else is published"),
        ({"tables": [["size"]]}, "published exactly"),
        ({"tables": [["county", "county"]]}, "different variables"),
        ({"tables": [["county", "tenure"], ["tenure", "county"]]}, "asked for twice"),
    ],
)
def test_settings_that_promise_nothing_or_waste_noise_are_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError, match=what):
        NoisySwap(**{**ROLES, "noise_epsilon": 1, "tables": CROSSED, **settings})


@pytest.mark.parametrize("name", ["noise", "swapped", "count", "table"])
def test_a_variable_may_not_have_the_name_of_a_confidential_column(name: str) -> None:
    """A variable called noise would be published with the noise as its values, and the counts could be told."""
    with pytest.raises(StirredError, match=f'"{name}" is a name that tables with noise use for something else'):
        NoisySwap(match=[], swap=["county"], rate="1/10", noise_epsilon=1, tables=[[name, "county"]])


def test_cells_that_would_follow_from_the_file_are_refused() -> None:
    with pytest.raises(StirredError, match="not declared, and those that occur are confidential") as undeclared:
        replace(SWAP, values={}).plan(HOMES)
    assert len(undeclared.value.problems) == 2
    with pytest.raises(StirredError, match="1 of its values were not declared, such as"):
        replace(SWAP, values={**VALUES, "tenure": ["a"]}).plan(HOMES)
    with pytest.raises(StirredError, match="not of the type"):
        replace(SWAP, tables=[["size", "county"]], values={**VALUES, "size": ["one"]}).plan(HOMES)
    with pytest.raises(StirredError, match="no swapped or held column"):
        replace(SWAP, tables=[["age"]]).plan(HOMES)
    many = {**VALUES, "county": [*"xy", *map(str, range(600_000))]}
    with pytest.raises(StirredError, match="cells, and every one of them gets noise"):
        replace(SWAP, values=many).plan(HOMES)


def test_persons_are_refused_because_a_household_may_have_any_number() -> None:
    homes = HOMES.with_row_index("hid")
    people = pl.DataFrame({"hid": homes["hid"], "age": range(8)})
    with pytest.raises(StirredError, match="as many cells of a table as it has persons"):
        SWAP.plan(Microdata(households=homes, persons=people, hid="hid"))


def test_no_rate_reaches_a_loss() -> None:
    with pytest.raises(StirredError, match="whatever the rate"):
        tunable(SWAP)
    assert not isinstance(SWAP, Rated)


@pytest.mark.parametrize("swap", [SWAP, PermutationSwap(**ROLES)])
@pytest.mark.parametrize("given", [42, "seed", None])
def test_randomness_that_is_no_entropy_is_refused_in_words(swap: PermutationSwap, given: Any) -> None:
    with pytest.raises(TypeError, match=r"an Entropy, not .* Write Entropy.from_os\(\)"):
        swap.release(HOMES, given)
