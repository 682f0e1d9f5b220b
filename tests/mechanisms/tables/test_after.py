"""Noise after a swap (R15): what is promised in each flavor, what is released, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.audit import AuditVerdict, audit
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.tables.noise.earlier import NoisySwap, NoisySwapSettings
from stirred.mechanisms.tables.noise.mechanism import NoisyTables, decay_for
from stirred.spec.doubts import DoubtError
from stirred.spec.exact import Exact, exact, largest, ln
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification
from tests.mechanisms.records.oracles import loss_of_laws

PValue = Callable[..., float]
SWAPPED: dict[str, Any] = {"name": "permutation-swap", "match": ["size"], "swap": ["county"], "rate": "1/2"}
VALUES: dict[str, Sequence[Any]] = {"county": ["x", "y"], "tenure": ["a", "b"], "size": [1, 2]}
CROSSED = [["county", "tenure"]]
EPSILON = Fraction(13, 2)  # each unit of a count then loses a quarter of it
NOISY = NoisyTables(after=SWAPPED, noise="laplace", epsilon=EPSILON, tables=CROSSED, values=VALUES)
HOMES = pl.DataFrame({"size": [1] * 8, "county": list("xxyyxxyy"), "tenure": list("ababaabb")})


def at_rate(tables: NoisyTables, rate: str, **more: Any) -> NoisyTables:
    return tables.with_settings(after={**SWAPPED, "rate": rate, **more})


# ---- the losses, enumerated ------------------------------------------------------------------------------


def laws(tables: NoisyTables, records: int) -> dict[Any, Law]:
    """The law of every file of so many records: nothing but their number is fixed."""
    return {file: tables.law(file) for file in combinations_with_replacement([*product("ab", "xy")], records)}  # type: ignore[misc]


def worst(by_file: dict[Any, Law], fixed: Callable[[Any], Hashable]) -> Exact:
    """The largest loss inside the universes of files that agree on what is fixed."""
    universes: dict[Hashable, dict[Any, Law]] = {}
    for file, law in by_file.items():
        universes.setdefault(fixed(file), {})[file] = law
    return largest([exact(0), *(loss_of_laws(universe) for universe in universes.values() if len(universe) > 1)])


def near(one: Exact, other: Fraction) -> bool:
    """Whether a loss is this one but for a millionth, which the rational noise of small laws gives away."""
    return exact(other * Fraction(999_998, 1_000_000)) <= one <= exact(other)


def held(file: Any) -> Hashable:
    return tuple(sorted(h for h, _ in file))


def swapped(file: Any) -> Hashable:
    return tuple(sorted(s for _, s in file))


@pytest.mark.parametrize("swap", [
    {"rate": "1/10"}, {"rate": "1"}, {"name": "shuffle-swap", "rate": "1/2"},
    {"name": "mallows-swap", "epsilon": "ln(3)", "rate": None},
], ids=str)  # fmt: skip
def test_the_exact_loss_of_every_flavor_is_within_its_promise(swap: dict[str, Any]) -> None:
    own = {key: value for key, value in {**SWAPPED, **swap}.items() if value is not None}
    tables = NOISY.with_settings(after=own)
    by_file = laws(tables, 3)
    plan = tables.plan(HOMES)
    assert worst(by_file, lambda file: None) <= plan.specification.budget.realised == exact(EPSILON)
    assert plan.alone == EPSILON / 2
    assert worst(by_file, held) <= exact(EPSILON / 2)
    assert worst(by_file, swapped) <= exact(EPSILON / 2)
    assert tables.inner is not None
    swaps = {file: tables.inner.law([*file]) for file in by_file}
    margins = lambda file: (held(file), swapped(file))  # noqa: E731
    least = min(worst(swaps, margins), exact(EPSILON / 2))  # type: ignore[arg-type]
    assert worst(by_file, margins) <= least


def test_swapping_first_weakens_the_noise_and_the_factor_of_two_is_reached_at_rate_1() -> None:
    alone = worst(laws(at_rate(NOISY, "0"), 2), lambda file: None)
    assert near(alone, EPSILON / 2)
    assert alone < worst(laws(NOISY, 2), lambda file: None) < exact(EPSILON)
    assert near(worst(laws(at_rate(NOISY, "1"), 2), lambda file: None), EPSILON)


def test_tables_that_the_swap_does_not_change_are_charged_once_and_no_less() -> None:
    both = NOISY.with_settings(tables=[*CROSSED, ["county"]], shares={"county x tenure": 2, "county": 1}, epsilon=9)
    crossed, plain = both.measures()
    assert (crossed.one, plain.one) == (4, 2)
    assert crossed.cell.noise == plain.cell.noise
    assert both.plan(HOMES).alone == 6
    assert near(worst(laws(at_rate(both, "1"), 2), lambda file: None), Fraction(9))
    for table in (["county"], ["tenure"], ["county", "size"], ["tenure", "size"]):
        (_, single) = NOISY.with_settings(tables=[*CROSSED, table]).measures()
        assert single.one == 2


class SoldAsNoiseAlone(NoisyTables):
    """The slip that R15 is about: the noise's own loss promised although the file is swapped first."""

    def audit_specification(self, universe: Any) -> Specification:
        return NoisyTables.audit_specification(self, universe).with_budget(exact(EPSILON / 2))


def test_the_audit_refutes_the_promise_of_the_noise_alone() -> None:
    settings = {"after": SWAPPED, "noise": "laplace", "epsilon": EPSILON, "tables": CROSSED, "values": VALUES}
    assert audit(SoldAsNoiseAlone(**settings)).verdict is AuditVerdict.FAILED  # type: ignore[arg-type]
    assert audit(NOISY).passed


# ---- the promise -----------------------------------------------------------------------------------------


def test_only_the_sizes_of_strata_are_fixed_and_closer_files_are_promised_more() -> None:
    plan = NOISY.plan(HOMES)
    assert plan.specification.multiverse.invariants == (Margin(of="household", variables=("size",)),)
    assert "swapping first can weaken the noise's own guarantee" in plan.also_promised
    assert "agree on both at most the smaller of that and of the swap's own loss" in plan.also_promised
    assert NOISY.with_settings(after=None).plan(HOMES).also_promised == ""


def test_nothing_of_the_plan_follows_from_more_than_the_sizes_of_strata() -> None:
    """Liveness, levels and margins differ; the sizes do not (condition 4 of use)."""
    other = HOMES.with_columns(county=pl.lit("x"), tenure=pl.lit("a"))
    one, two = NOISY.plan(HOMES), NOISY.plan(other)
    assert one.specification == two.specification
    assert one.facts == two.facts
    assert one.also_promised == two.also_promised
    assert one.doubts == two.doubts
    for title, cells in one.cells.items():
        assert cells.equals(two.cells[title])


def test_the_noise_of_small_laws_loses_at_most_what_was_asked_and_hardly_less() -> None:
    for asked in ("1/100", "1/4", "1", "ln(2)", "5", "40"):
        decay = decay_for(exact(asked))
        assert ln(1 / decay) <= exact(asked)
        assert ln(1 / decay) > exact(asked) * Fraction(999_998, 1_000_000)
        assert decay.denominator < 10**6 or exact(asked) > exact(10)


# ---- what is released ------------------------------------------------------------------------------------


def test_every_declared_cell_is_released_whether_or_not_anybody_is_in_it() -> None:
    values = {**VALUES, "county": ["x", "y", "nowhere"]}
    released = NOISY.with_settings(values=values).release(HOMES, Entropy.from_seed("cells"))
    assert list(released.public) == ["county x tenure", "invariants"]
    table = released.public["county x tenure"]
    assert table.columns == ["county", "tenure", "count", "variance", "low", "high"]
    assert table.select("county", "tenure").rows() == [*product(["x", "y", "nowhere"], "ab")]
    assert released.public["invariants"].rows() == [("size", 1, 8)]
    drawn = released.internal["drawn"]["county x tenure"]
    assert drawn["true"].sum() == HOMES.height
    assert table["count"].equals((drawn["true"] + drawn["noise"]).alias("count"))


def test_released_tables_follow_their_law(p_value: PValue) -> None:
    """Many strata of three records, each with its 2 x 2 table cut to 0..3 as in the exact law; false alarms: 1e-6."""
    many = 20_000
    homes = pl.DataFrame({"size": range(many)}).join(
        pl.DataFrame({"county": [*"xyx"], "tenure": [*"aba"]}), how="cross"
    )
    tables = NOISY.with_settings(tables=[["size", "tenure", "county"]], values={**VALUES, "size": range(many)})
    table = tables.release(homes, Entropy.from_seed("law")).public["size x tenure x county"]
    file = (("a", "x"), ("b", "y"), ("a", "x"))
    exact_law = NOISY.law(file).probabilities  # type: ignore[union-attr]
    places = {outcome: number for number, outcome in enumerate(exact_law)}
    drawn = map(tuple, table["count"].clip(0, 3).to_numpy().reshape(many, 4).tolist())
    observed = np.bincount([places[outcome] for outcome in drawn], minlength=len(places))
    assert p_value(observed, list(exact_law.values())) > 1e-6
    # Power: noise whose loss is off by a twentieth, and the same noise without the swap.
    for other in (NOISY.with_settings(epsilon=EPSILON * 21 / 20), at_rate(NOISY, "0")):
        wrong = other.law(file).probabilities  # type: ignore[union-attr]
        assert p_value(observed, [wrong[outcome] for outcome in exact_law]) < 1e-6


def test_missing_values_and_true_or_false_have_cells() -> None:
    homes = HOMES.with_columns(vacant=pl.col("county") == "x", tenure=pl.Series([None, *"babaabb"]))
    values = {**VALUES, "tenure": ["a", "b", None]}
    tables = NOISY.with_settings(tables=[["county", "vacant"], ["tenure"]], values=values)
    released = tables.release(homes, Entropy.from_seed("null"))
    assert released.public["county x vacant"].select("county", "vacant").rows() == [*product("xy", [False, True])]
    assert released.internal["drawn"]["tenure"]["true"].to_list() == [3, 4, 1]


# ---- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"noise": "gaussian", "epsilon": None, "rho": 1}, "laplace noise alone"),
        ({"after": {**SWAPPED, "rates": [{"county": "x", "rate": "1/4"}]}}, "sizes of strata alone do not decide"),
        ({"after": {**SWAPPED, "name": "conditioned-swap"}}, "sizes of strata alone do not decide"),
        ({"keep": ["total"]}, "nothing is proven of it"),
        ({"persons": 2}, "nothing is proven of it"),
        ({"tables": [*CROSSED, ["size"]]}, "published exactly"),
        ({"tables": [["county", "size"]]}, "changes none of their counts"),
        ({"tables": [["county", "tenure"], ["tenure", "county"]]}, "asked for twice"),
    ],
)
def test_settings_that_nothing_is_proven_of_or_that_waste_noise_are_refused(settings: Any, what: str) -> None:
    given = {"after": SWAPPED, "noise": "laplace", "epsilon": 1, "tables": CROSSED, **settings}
    with pytest.raises(StirredError, match=what):
        NoisyTables(**given)


def test_columns_that_the_swap_does_not_have_are_refused() -> None:
    with pytest.raises(StirredError, match="no swapped or held column"):
        at_rate(NOISY, "1/2", hold=["size", "other"]).plan(HOMES.with_columns(other=1))
    with pytest.raises(StirredError, match="not declared, and those that occur are confidential"):
        NOISY.with_settings(values={}).plan(HOMES)


def test_persons_are_refused_because_a_household_may_have_any_number() -> None:
    homes = HOMES.with_row_index("hid")
    people = pl.DataFrame({"hid": homes["hid"], "age": range(8)})
    with pytest.raises(StirredError, match="as many cells as it has persons"):
        NOISY.plan(Microdata(households=homes, persons=people, hid="hid"))


@pytest.mark.parametrize("mechanism", [NOISY, PermutationSwap(match=["size"], swap=["county"], rate="1/2")])
@pytest.mark.parametrize("given", [42, "seed", None])
def test_randomness_that_is_no_entropy_is_refused_in_words(mechanism: Any, given: Any) -> None:
    with pytest.raises(TypeError, match=r"an Entropy, not .* Write Entropy.from_os\(\)"):
        mechanism.release(HOMES, given)


# ---- the earlier name ------------------------------------------------------------------------------------


def earlier(tables: Sequence[Sequence[str]], **settings: Any) -> NoisySwap:
    roles = {"match": ["size"], "swap": ["county"], "rate": "1/2", "noise_epsilon": 1}
    return NoisySwap(NoisySwapSettings.model_validate({**roles, **settings}), tables=tables)


def test_the_earlier_name_promises_what_it_promised() -> None:
    """Twice the loss of the noise where tables cross swapped with held variables, and the same noise everywhere."""
    both = earlier([*CROSSED, ["county"]])
    assert both.total == Fraction(3, 2)
    assert [each.loss / each.one for each in both.measures()] == [Fraction(1, 4)] * 2
    irrational = earlier(CROSSED, noise_epsilon="2*ln(5)")
    assert 4 * ln(5) * Fraction(999_999, 1_000_000) < exact(irrational.epsilon) <= 4 * ln(5)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"noise_epsilon": "inf"}, "hides nothing"),
        ({"noise_epsilon": 0}, "hides everything"),
        ({"rates": [{"size": 1}]}, "rate"),
    ],
)
def test_settings_of_the_earlier_name_that_promise_nothing_are_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError, match=what):
        earlier(CROSSED, **settings)


@pytest.mark.parametrize("settings", [{"tables": [["county", "size"]]}, {"rate": 0}, {"rate": "0", "tables": CROSSED}])
def test_where_nothing_published_is_swapped_the_earlier_name_is_the_noise_alone(settings: dict[str, Any]) -> None:
    alone = earlier(**{"tables": CROSSED, **settings})
    assert alone.after is None
    assert alone.total == 1


def test_match_variables_of_the_swap_before_are_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.data.uniqueness.MOST_EXPOSED", Fraction(1, 3))
    homes = pl.DataFrame(
        {
            "pid": [f"P{number:04d}" for number in range(60)],
            "where": ["North", "north "] * 30,
            "size": [1, 2] * 30,
            "s": ["a", "b", "c"] * 20,
            "h": ["x", "y"] * 30,
        }
    )

    def doubts(*match: str) -> set[str]:
        after = {"name": "permutation-swap", "match": [*match], "swap": ["s"], "rate": "1/2"}
        values = {"s": ["a", "b", "c"], "h": ["x", "y"]}
        tables = NoisyTables(tables=[["h", "s"]], noise="laplace", epsilon="1", values=values, after=after)
        return {each.name for each in tables.plan(homes).doubts}

    assert {"identifier:pid", "exposed"} <= doubts("pid")
    assert "similar-values:where" in doubts("where")
    assert not {"identifier:size", "exposed"} & doubts("size")


@pytest.mark.parametrize(("swap", "idle"), [
    ({"rate": "0"}, True), ({"rate": "0", "rates": [{"size": 1, "rate": "1/2"}]}, False), ({}, False),
    ({"name": "shuffle-swap", "rate": "0"}, True), ({"name": "mallows-swap", "epsilon": "ln(3)", "rate": None}, False),
], ids=str)  # fmt: skip
def test_a_swap_before_at_rate_0_is_noted(swap: dict[str, Any], *, idle: bool) -> None:
    """Noise was doubled for it, and nothing said that it does nothing."""
    tables = NOISY.with_settings(after={key: own for key, own in {**SWAPPED, **swap}.items() if own is not None})
    found = [each for each in tables.plan(HOMES).doubts if each.kind == "idle-swap"]
    assert [each.refuses for each in found] == [False] * idle
    assert all("moves no record" in each.what for each in found)


def test_doubts_of_the_swap_before_refuse_the_tables() -> None:
    """The swap draws its file without a search of its own: what speaks against its match variables is found before."""
    homes = pl.DataFrame(
        {"size": ["1", "2", "N/A"] * 40, "s": ["a", "b", "c", "c"] * 30, "h": ["x", "y", "x", "x", "y"] * 24}
    )

    def release(data: pl.DataFrame, **more: Any) -> Release:
        after = {"name": "permutation-swap", "match": ["size"], "swap": ["s"], "rate": "1/2", **more}
        values = {"s": ["a", "b", "c"], "h": ["x", "y"]}
        tables = NoisyTables(tables=[["h", "s"]], noise="laplace", epsilon="1", values=values, after=after)
        return tables.release(data, Entropy.from_os())

    with pytest.raises(DoubtError, match="missing:size"):
        release(homes)
    known = homes.with_columns(size=pl.col("size").replace("N/A", "3"))
    with pytest.raises(DoubtError, match="void the guarantee"):
        release(known, settings_from="this-data")
    assert release(known).public


def test_what_python_can_be_given_works_or_is_refused_with_a_remedy() -> None:
    swap = PermutationSwap(swap=["county"], rate="1/2")
    before = {"name": "permutation-swap", "swap": ["county"], "rate": "1/2"}
    assert NOISY.with_settings(after=swap) == NOISY.with_settings(after=before)
    for wrong in (5, [5], [["county", 5]]):
        with pytest.raises(StirredError, match=r"tables: .* Fix: list the columns of each table"):
            NOISY.with_settings(tables=wrong)
    alone: dict[str, Any] = {"noise": "laplace", "epsilon": 1, "values": VALUES}
    assert NoisyTables(tables="county", **alone) == NoisyTables(tables=[["county"]], **alone)
    for values in (3, {"county": 3}):
        with pytest.raises(StirredError, match=r"values: .* does not list values of variables\. Fix: list them"):
            NoisyTables(tables="county", **{**alone, "values": values})
    with pytest.raises(StirredError, match=r"settings: .* is not a model of settings\. Fix: give settings by keyword"):
        NoisyTables({"rho": 1}, tables="county")
    with pytest.raises(StirredError, match=r"after: noisy-tables releases tables, .* Fix: name a swap"):
        NOISY.with_settings(after=NoisyTables(tables="county", **alone))
    released = NoisyTables(tables="county", **alone).release(HOMES, Entropy.from_os(), accept=None)  # type: ignore[arg-type]
    assert "county" in released.public
    with pytest.raises(StirredError, match=r"accept: 5 is not a list of names\. Fix:"):
        NOISY.release(HOMES, Entropy.from_os(), accept=5)  # type: ignore[arg-type]


def test_the_earlier_name_changes_its_own_settings_in_python() -> None:
    single = NoisySwap(match=["size"], swap=["county"], rate="1/10", noise_epsilon=1, tables="county")
    assert (single.epsilon, single.with_settings(noise_epsilon=3).epsilon) == ("1", "3")
    with pytest.raises(StirredError, match="the noisy swap has no epsilon"):
        single.with_settings(epsilon=3)


def test_advice_to_the_earlier_name_is_about_settings_that_exist() -> None:
    with pytest.raises(StirredError, match="write the plan for noisy-tables, which has values"):
        earlier(CROSSED).plan(HOMES)
