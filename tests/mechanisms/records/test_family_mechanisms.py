"""The members of the family as mechanisms: what they promise for a file, what they release, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.kernels.redrawn import LATTICE_EPSILON
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap, redraw_epsilon
from stirred.mechanisms.records.laws.mallows import MallowsSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap, margin_epsilon
from stirred.mechanisms.records.strata import SwapMargins
from stirred.spec.doubts import DoubtError
from stirred.spec.exact import exact, ln
from stirred.spec.problems import StirredError
from tests.mechanisms.records.laws.test_frame_law import copies, fit
from tests.mechanisms.records.sampling import swapped

PValue = Callable[..., float]
HALF = Fraction(1, 2)
ROLES: dict[str, Any] = {"match": ["stratum"], "swap": ["swap"]}
MEMBERS: dict[str, Any] = {
    "uniform": ConditionedSwap(**ROLES, rate="1/3"),
    "proportional": ConditionedSwap(**ROLES, rate="1/3", redraw_law="proportional"),
    "declared": ConditionedSwap(**ROLES, rate=HALF, redraw_law={"x": "1/10", "y": "1/5", "z": "7/10"}),
    "mallows": MallowsSwap(**ROLES, epsilon="ln(3)"),
    "shuffle": ShuffleSwap(**ROLES, rate="2/5"),
}
HOMES = pl.DataFrame(
    {
        "stratum": [1] * 6 + [2] * 4 + [3] * 2,
        "swap": list("xxxyyz") + list("xyyy") + list("zz"),
        "tenure": list("oorror") + list("orro") + list("or"),
    }
)


@pytest.mark.parametrize("name", MEMBERS)
def test_released_tables_follow_the_exact_law(name: str, p_value: PValue) -> None:
    """Through the whole release: a file of many equal strata, row by row."""
    records = list(zip("aabb", "xxyz", strict=True))
    mechanism = MEMBERS[name]
    frame = swapped(mechanism, copies(records, strata=6_000), Entropy.from_seed(f"law {name}")).public["data"]
    assert fit(frame, records, mechanism.law(records), p_value) > 1e-6
    other = MEMBERS["shuffle" if name != "shuffle" else "mallows"]
    assert fit(frame, records, other.law(records), p_value) < 1e-6, "the test tells members apart"


@pytest.mark.parametrize("name", MEMBERS)
def test_both_margins_of_every_stratum_stay_as_they_are(name: str) -> None:
    released = swapped(MEMBERS[name], HOMES, Entropy.from_seed(name)).public["data"]
    for columns in (["stratum", "swap"], ["stratum", "tenure"]):
        before, after = (frame.select(columns).sort(columns) for frame in (HOMES, released))
        assert after.equals(before)


@pytest.mark.parametrize("name", MEMBERS)
def test_the_result_depends_neither_on_threads_nor_on_a_second_look(name: str) -> None:
    from dataclasses import replace

    frames = [
        swapped(replace(MEMBERS[name], threads=threads), HOMES, Entropy.from_seed("same")).public["data"]
        for threads in (1, 3)
    ]
    assert frames[0].equals(frames[1])


@pytest.mark.parametrize("name", MEMBERS)
def test_persons_travel_with_their_households(name: str) -> None:
    homes = HOMES.with_row_index("hid")
    persons = homes.select("hid", pl.col("tenure").alias("trait"))
    data = Microdata(households=homes, persons=persons, hid="hid")
    public = swapped(MEMBERS[name], data, Entropy.from_seed("persons")).public
    joined = public["persons"].join(public["data"], on="hid")
    assert (joined["trait"] == joined["tenure"]).all()


# ---- promises -----------------------------------------------------------------------------------------


def realised(mechanism: Swap, data: pl.DataFrame = HOMES) -> Any:
    return mechanism.plan(data).specification.budget.realised


def test_the_conditioned_budget_is_that_of_the_worst_live_stratum() -> None:
    """Stratum 1 has three values (3, 2, 1), stratum 2 two (1, 3); stratum 3 has one and is not live."""
    third, rate = Fraction(1, 3), Fraction(1, 3)
    assert realised(MEMBERS["uniform"]) == redraw_epsilon(rate, [third] * 3) + LATTICE_EPSILON
    by_size = redraw_epsilon(rate, [Fraction(1, 6), Fraction(2, 6)])
    assert by_size > redraw_epsilon(rate, [Fraction(1, 4), Fraction(3, 4)])
    assert realised(MEMBERS["proportional"]) == by_size + LATTICE_EPSILON
    declared = redraw_epsilon(HALF, [Fraction(1, 10), Fraction(1, 5)])
    assert realised(MEMBERS["declared"]) == declared + LATTICE_EPSILON


@pytest.mark.parametrize("size", [10, 1000])
def test_the_conditioned_budget_does_not_grow_with_the_stratum(size: int) -> None:
    homes = pl.DataFrame({"stratum": [1] * 2 * size, "swap": list("xy") * size, "tenure": list("oorr") * (size // 2)})
    assert realised(MEMBERS["uniform"], homes) == ln(1 + 2 / HALF) + LATTICE_EPSILON


def test_the_mallows_budget_is_its_parameter() -> None:
    assert realised(MEMBERS["mallows"]) == ln(3)
    assert realised(MallowsSwap(**ROLES, epsilon=2)) <= exact(2)
    assert MallowsSwap(**ROLES, epsilon="inf").plan(HOMES).specification.budget.realised.is_infinite


def test_the_shuffle_budget_is_that_of_the_rarest_value() -> None:
    bounds = [margin_epsilon(1, Fraction(2, 5), stratum=n) for n in (6, 4)]
    assert bounds[0] > bounds[1]
    assert realised(MEMBERS["shuffle"]) == bounds[0]


def test_the_shuffle_budget_looks_at_every_pair_of_rarest_value_and_size_that_can_decide() -> None:
    """A larger stratum with a more frequent rarest value, beside a smaller one with a rarer value."""
    homes = pl.DataFrame(
        {"stratum": [1] * 6 + [2] * 40, "swap": list("xxxxyy") + ["x"] * 37 + ["y"] * 3, "tenure": list("or") * 23}
    )
    bounds = [margin_epsilon(2, HALF, stratum=6), margin_epsilon(3, HALF, stratum=40)]
    assert bounds[1] > bounds[0]
    assert realised(ShuffleSwap(**ROLES, rate=HALF), homes) == bounds[1]


@pytest.mark.parametrize("name", MEMBERS)
def test_a_file_with_nothing_to_swap_has_budget_zero_and_is_never_released(name: str) -> None:
    homes = pl.DataFrame({"stratum": [1, 1], "swap": ["x", "y"], "tenure": ["o", "o"]})
    plan = MEMBERS[name].plan(homes)
    assert plan.epsilon == 0
    assert [doubt.name for doubt in plan.doubts if doubt.refuses] == ["nothing-moves"]
    with pytest.raises(DoubtError, match="the file would be published as it is"):
        MEMBERS[name].release(homes, Entropy.from_os(), accept=["nothing-moves"])


@pytest.mark.parametrize("mechanism", [ConditionedSwap(**ROLES, rate=0), ShuffleSwap(**ROLES, rate=0)])
def test_a_rate_of_zero_promises_nothing_and_says_so(mechanism: Swap) -> None:
    plan = mechanism.plan(HOMES)
    assert plan.epsilon.is_infinite
    (doubt,) = [doubt for doubt in plan.doubts if doubt.refuses]
    assert doubt.name == "nothing-moves"
    assert "nothing is promised" in doubt.what
    with pytest.raises(DoubtError):
        mechanism.release(HOMES, Entropy.from_seed("x"))
    released = swapped(mechanism, HOMES, Entropy.from_seed("x")).public["data"]
    assert released.sort(HOMES.columns).equals(HOMES.sort(HOMES.columns))


@pytest.mark.parametrize("mechanism", [ConditionedSwap(**ROLES, rate=1), ShuffleSwap(**ROLES, rate=1)])
def test_a_rate_of_one_loses_nothing(mechanism: Swap) -> None:
    assert realised(mechanism) == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("uniform", "a function of the invariants"),
        ("proportional", "proportional to the counts"),
        ("declared", "fixed beforehand"),
        ("mallows", "R5"),
        ("shuffle", "R7"),
    ],
)
def test_the_specification_says_what_the_budget_rests_on(name: str, says: str) -> None:
    specification = MEMBERS[name].plan(HOMES).specification
    # Labels of results stand among the citations, and words in the budget itself.
    assert says in (specification.theorem[0] if says[0] == "R" else str(specification.budget.policy))
    assert "swapping-family" in specification.theorem[0]
    assert MEMBERS[name].in_words.endswith("everything else is held.")
    assert specification.budget.paper_epsilon is None, "there is no published bound"


# ---- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rate": "7/4"}, "not a probability"),
        ({"rate": HALF, "redraw_law": "normal"}, "'normal' is not known"),
        ({"rate": HALF, "redraw_law": {"x": 0, "y": 1}}, "not above 0"),
        ({"rate": HALF, "redraw_law": {"x": "2/3", "y": "2/3"}}, "sum to 4/3"),
        ({"rate": HALF, "redraw_law": {"x": 1}, "swap": ["swap", "block"]}, "one swap variable only"),
    ],
)
def test_settings_of_the_conditioned_swap_that_make_no_sense_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(StirredError, match=message):
        ConditionedSwap(**(ROLES | settings))


def test_a_declared_law_without_a_value_that_occurs_is_refused_before_anything_is_swapped() -> None:
    with pytest.raises(StirredError, match='no probability for "z"'):
        ConditionedSwap(**ROLES, rate=HALF, redraw_law={"x": HALF, "y": HALF}).plan(HOMES)


def test_a_negative_mallows_parameter_is_refused() -> None:
    with pytest.raises(StirredError, match="negative"):
        MallowsSwap(**ROLES, epsilon=-1)


# ---- margins ------------------------------------------------------------------------------------------


def test_margins_are_counted_alike_in_place_and_by_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    from stirred.mechanisms.records import strata as module

    rng = np.random.default_rng(2)
    stratum, swap = (rng.integers(0, size, 500).astype(np.uint32) for size in (7, 11))
    dense = SwapMargins.of(stratum, swap, strata=8, values=11)
    monkeypatch.setattr(module, "_DENSE", 0)
    sparse = SwapMargins.of(stratum, swap, strata=8, values=11)
    for name in ("stratum", "value", "count", "records", "values_present"):
        assert np.array_equal(getattr(dense, name), getattr(sparse, name)), name
    assert dense.records.tolist() == np.bincount(stratum, minlength=8).tolist()
