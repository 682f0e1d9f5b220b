"""A randomised response before a swap (R14): both flavors, what may be looked at, the sampler, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred import Entropy
from stirred.audit import audit
from stirred.data.column_doubts import LOOKS_INSIDE
from stirred.data.microdata import Microdata
from stirred.mechanisms.records.kernels import addressing
from stirred.mechanisms.records.laws.permutation import PermutationLaw
from stirred.mechanisms.records.plan import SwapPlan
from stirred.mechanisms.records.steps.response import (
    Response,
    ResponseSwap,
    perturbed_before,
    respond,
    response_epsilon,
)
from stirred.randomness.entropy import BUFFER_WORDS
from stirred.spec.budget import Budget
from stirred.spec.doubts import Doubt
from stirred.spec.exact import INFINITE, ZERO, Exact, ln
from stirred.spec.invariant import Margin
from stirred.spec.law import Law
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import psa_sharp_epsilon
from tests.depth import examples
from tests.mechanisms.records.kernels.reference import response_reference
from tests.mechanisms.records.oracles import loss_of_laws
from tests.mechanisms.records.sampling import swapped

PValue = Callable[..., float]
TENTH, QUARTER = Fraction(1, 10), Fraction(1, 4)
ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"]}
ON_SWAP = ResponseSwap(**ROLES, rate="1/4", respond="county", values=["x", "y"], change="1/10")
ON_HOLD = ResponseSwap(**ROLES, rate="1/4", respond="tenure", values=["x", "y"], change="1/10")
BOTH_SIDES = pytest.mark.parametrize("on_swap", [True, False], ids=["swap", "hold"])


def planned(swap: ResponseSwap, data: Any) -> SwapPlan:
    plan = swap.plan(data)
    assert isinstance(plan, SwapPlan)
    return plan


def law(on_swap: bool, *, change: Fraction = TENTH, values: str = "xy") -> Response:
    return Response(respond="county", values=tuple(values), change=change, on_swap=on_swap)


def laws_of(one: Response, universe: list[Any], *, rate: Fraction = QUARTER) -> dict[Any, Law]:
    return {table: one.on_small(PermutationLaw(rate=rate).on_small)(table) for table in universe}


def swap_flavor(of: Response, laws: dict[Any, Law]) -> Exact:
    """The largest loss over the universes that fix the whole perturbed side as well."""
    groups: dict[Hashable, dict[Any, Law]] = {}
    for table, each in laws.items():
        groups.setdefault(tuple(sorted(of.sides(record)[0] for record in table)), {})[table] = each
    return max(loss_of_laws(group) for group in groups.values())


# ---- both flavors, exactly -----------------------------------------------------------------------------


@BOTH_SIDES
def test_t28_both_flavors_of_two_records(on_swap: bool) -> None:
    one = law(on_swap)
    laws = laws_of(one, one.universe("ab", "11"))
    assert loss_of_laws(laws) == ln(9)
    inside = swap_flavor(one, laws)
    assert float(inside) == pytest.approx(1.04662, abs=5e-6)
    homes = frame("xy") if on_swap else frame("xy").rename({"county": "tenure", "tenure": "county"})
    plan = planned(ON_SWAP if on_swap else ON_HOLD, homes)
    assert plan.epsilon == ln(9)
    assert plan.further[0].specification.budget.realised == ln(3) == psa_sharp_epsilon(QUARTER, stratum=2)
    assert inside <= ln(3)


@BOTH_SIDES
def test_the_case_of_two_and_two_records_through_the_member(on_swap: bool) -> None:
    """(2,2), S = 2, f = p = 1/10: 1.82357 under the flavor of the swap, at most min(2.19722, 2.65599)."""
    one = law(on_swap)
    laws = laws_of(one, one.universe("aabb", "1111"), rate=TENTH)
    inside = {t: each for t, each in laws.items() if sorted(one.sides(r)[0][1] for r in t) == ["x", "x", "y", "y"]}
    assert float(loss_of_laws(inside)) == pytest.approx(1.82357, abs=5e-6)
    assert loss_of_laws(laws) <= ln(9)


@BOTH_SIDES
@pytest.mark.parametrize("rest", ["12", "11"])
@pytest.mark.parametrize("values", ["xy", "xyz"])
@pytest.mark.parametrize(("change", "rate"), [("1/10", "1/10"), ("2/5", "1/20"), ("1/10", "1/2"), ("9/10", "4/5")])
def test_the_exact_loss_of_either_flavor_is_within_its_budget(
    on_swap: bool, rest: str, values: str, change: str, rate: str
) -> None:
    one = law(on_swap, change=Fraction(change), values=values)
    laws = laws_of(one, one.universe("ab", rest), rate=Fraction(rate))
    sharp = psa_sharp_epsilon(Fraction(rate), stratum=2)
    response = response_epsilon(Fraction(change), values=len(values))
    budget = perturbed_before(sharp, response, rest=sharp if rest == "12" else ZERO)
    assert loss_of_laws(laws) <= budget.one
    assert swap_flavor(one, laws) <= budget.both


@BOTH_SIDES
def test_beside_other_variables_both_losses_add_up_and_the_sum_is_attained(on_swap: bool) -> None:
    """The response's own loss alone is false as soon as something else is swapped or held with its variable."""
    one = law(on_swap, change=QUARTER)
    laws = laws_of(one, one.universe("ab", "12"), rate=TENTH)
    response, sharp = response_epsilon(QUARTER, values=2), psa_sharp_epsilon(TENTH, stratum=2)
    assert loss_of_laws(laws) == response + sharp > max(response, sharp)
    assert swap_flavor(one, laws) == sharp > response


def test_the_loss_of_a_response() -> None:
    assert response_epsilon(Fraction(1, 10), values=2) == ln(9)
    assert response_epsilon(Fraction(9, 10), values=2) == ln(9)
    assert response_epsilon(Fraction(1, 4), values=4) == ln(9)
    assert response_epsilon(Fraction(3, 4), values=4) == ZERO
    assert response_epsilon(Fraction(0), values=3) == response_epsilon(Fraction(1), values=3) == INFINITE
    with pytest.raises(StirredError, match="1 value"):
        response_epsilon(TENTH, values=1)


def test_an_understated_budget_is_caught_by_the_audit() -> None:
    """Power of the contract test: the response's loss alone, where something else is on its side, fails."""

    class Understated(ResponseSwap):
        __slots__ = ()

        def audit_specification(self, universe: Any) -> Any:
            return ResponseSwap.audit_specification(self, universe).with_budget(Budget.constant(ln(9)))

    understated = Understated(**ROLES, rate="1/4", respond="county", values=["x", "y"], change="1/10")
    assert not audit(understated).passed
    assert audit(ON_SWAP).passed


# ---- what a plan may look at ---------------------------------------------------------------------------


def frame(values: str, rest: str | None = None) -> pl.DataFrame:
    """One household for each value: the perturbed variable is ``county``; ``tenure`` is held."""
    n = len(values)
    columns: dict[str, Any] = {"size": [1] * n, "county": list(values), "tenure": list("xyxyxy"[:n])}
    return pl.DataFrame(columns if rest is None else {**columns, "rest": list(rest)})


@pytest.mark.parametrize("mechanism", [ON_SWAP, ON_HOLD], ids=["swap", "hold"])
def test_nothing_in_the_plan_depends_on_the_perturbed_variable(mechanism: ResponseSwap) -> None:
    """Section 9.4: liveness, shares and both losses are functions of the fewer invariants."""
    base = pl.DataFrame(
        {"size": [1, 1, 1, 1, 2, 2, 3], "county": list("xyxyxyx"), "tenure": list("xxyyxyx"), "kind": list("aabbaaa")}
    )
    variants = [
        base.with_columns(pl.Series(mechanism.settings.respond, list(text)))
        for text in ("xxxxxxx", "yxyxyxy", "xyyyyyx")
    ]
    for rates in ((), ({"size": 2, "rate": "1/2"},)):
        plans = [planned(mechanism.with_settings(rates=rates), homes) for homes in variants]
        for plan in plans[1:]:
            assert plan.specification == plans[0].specification
            assert plan.further[0].specification == plans[0].further[0].specification
            assert plan.also_promised == plans[0].also_promised
            assert outside(plan) == outside(plans[0])
            tables = [mechanism.strata_table(each.strata) for each in (plans[0], plan)]
            assert tables[0].equals(tables[1])
            assert plan.exposed.live.tolist() == plans[0].exposed.live.tolist()


def outside(plan: SwapPlan) -> list[Doubt]:
    """Return the doubts that do not say of themselves that they look inside the file."""
    return [doubt for doubt in plan.doubts if doubt.remark != LOOKS_INSIDE]


def variables(plan: SwapPlan) -> list[tuple[str, ...]]:
    return [m.variables for m in plan.specification.multiverse.invariants if isinstance(m, Margin)]


def test_the_invariants_are_both_tables_without_the_perturbed_variable() -> None:
    homes = frame("xyxy", "1212")
    assert variables(planned(ON_SWAP, homes)) == [("size", "tenure", "rest")]
    assert variables(planned(ON_HOLD, homes)) == [("size", "county"), ("size", "rest")]
    assert variables(planned(ON_HOLD.with_settings(hold=["tenure"]), homes)) == [("size", "county")]
    two = ON_SWAP.with_settings(swap=["rest", "county"])
    assert variables(planned(two, homes)) == [("size", "rest"), ("size", "tenure")]
    plan = planned(ON_SWAP, homes)
    assert plan.specification.multiverse.nearest == 1
    assert plan.further[0].specification.multiverse.nearest == 2
    assert plan.further[0].specification.multiverse.refines(plan.specification.multiverse)
    assert not plan.specification.multiverse.refines(plan.further[0].specification.multiverse)
    assert "R14" in plan.specification.theorem[0]


def test_persons_are_something_else_on_the_side_of_a_held_variable() -> None:
    homes = frame("xyxy").with_row_index("hid")
    people = homes.select("hid", pl.Series("age", [1, 2, 3, 4]))
    data = Microdata(households=homes, persons=people, hid="hid")
    sharp = psa_sharp_epsilon(QUARTER, stratum=4)
    assert planned(ON_SWAP, data).epsilon == ln(9)
    assert planned(ON_HOLD, data).epsilon == ln(9) + sharp
    assert planned(ON_HOLD, homes.drop("hid")).epsilon == ln(9)
    alike = replace(data, persons=people.with_columns(age=1))
    assert planned(ON_HOLD, alike).epsilon == ln(9), "persons that are all alike can be held with nobody else"


def test_only_strata_where_the_others_differ_pay_for_both() -> None:
    homes = pl.DataFrame(
        {"size": [1] * 3 + [2] * 2, "county": list("xyxyx"), "tenure": list("xyxyx"), "rest": list("aaabc")}
    )
    plan = planned(ON_HOLD, homes)
    assert plan.epsilon == ln(9) + psa_sharp_epsilon(QUARTER, stratum=2)
    assert plan.strata.live.tolist() == [True, True]
    assert plan.exposed is not None
    assert plan.exposed.live.tolist() == [False, True]
    by_hand = max(psa_sharp_epsilon(QUARTER, stratum=2), min(ln(9), psa_sharp_epsilon(QUARTER, stratum=3)))
    assert plan.further[0].specification.budget.realised == by_hand


def test_a_lone_record_is_still_protected_by_its_response() -> None:
    plan = planned(ON_SWAP, pl.DataFrame({"size": range(10), "county": ["x"] * 10, "tenure": ["x"] * 10}))
    assert plan.epsilon == ln(9)
    assert plan.further[0].specification.budget.realised == ZERO
    (doubt,) = plan.doubts
    assert doubt.name == "nothing-swapped"
    assert "all that protects" in doubt.what
    assert doubt.refuses


@pytest.mark.parametrize("change", ["0", "1"])
def test_a_response_that_is_no_chance_promises_nothing(change: str) -> None:
    plan = planned(ON_SWAP.with_settings(change=change, rate="1/2"), frame("xyxy"))
    assert plan.epsilon.is_infinite
    assert [doubt.name for doubt in plan.doubts if doubt.refuses] == ["nothing-promised"]


# ---- the sampler ---------------------------------------------------------------------------------------


@settings(max_examples=examples(40), deadline=None)
@given(
    codes=st.lists(st.integers(0, 2), min_size=1, max_size=60),
    more=st.integers(0, 4),
    change=st.fractions(0, 1, max_denominator=50),
    seed=st.integers(0, 99),
)
def test_the_response_equals_its_twin(codes: list[int], more: int, change: Fraction, seed: int) -> None:
    chosen: dict[str, Any] = {"values": 3 + more, "change": change, "entropy": Entropy.from_seed(seed)}
    assert respond(np.array(codes, dtype=np.uint32), **chosen).tolist() == response_reference(codes, **chosen)


@pytest.mark.parametrize("change", [Fraction(1, 3), Fraction(1)])
def test_the_response_equals_its_twin_over_many_chunks(change: Fraction) -> None:
    codes = np.arange(2 * BUFFER_WORDS + 100, dtype=np.uint32) % 5
    chosen: dict[str, Any] = {"values": 5, "change": change, "entropy": Entropy.from_seed("chunks")}
    assert respond(codes, **chosen).tolist() == response_reference(codes.tolist(), **chosen)


def test_a_word_that_ties_with_the_probability_reads_on(
    scripted_entropy: Callable[[dict[tuple[str, int], list[int]]], Entropy],
) -> None:
    third = (2**32 - 1) // 3
    for further, changed in ((third - 1, True), (third + 1, False)):
        script = {(addressing.RESPOND, 0): [2**32 - 1, third], (f"{addressing.RESPOND}/ties", 1): [further]}
        entropy = scripted_entropy(script)
        chosen: dict[str, Any] = {"values": 2, "change": Fraction(1, 3), "entropy": entropy}
        found = respond(np.zeros(2, dtype=np.uint32), **chosen).tolist()
        assert found == response_reference([0, 0], **chosen) == [0, int(changed)]


def test_every_other_value_is_equally_likely_and_the_own_one_stays_as_often_as_declared(p_value: PValue) -> None:
    """300,000 records of each of three values; near misses: a draw from all values, and a change of 0.204."""
    values, change = 3, Fraction(1, 5)
    codes = np.repeat(np.arange(values, dtype=np.uint32), 300_000)
    found = respond(codes, values=values, change=change, entropy=Entropy.from_seed("response"))
    counts = np.bincount(codes * values + found, minlength=values**2)

    def fits(stays: Fraction) -> float:
        chances = [stays if i == j else (1 - stays) / 2 for i in range(values) for j in range(values)]
        return p_value(counts, [chance / values for chance in chances])

    assert fits(1 - change) > 1e-6
    assert fits(1 - change + change / values) < 1e-6, "drawn from all values"
    assert fits(1 - Fraction(204, 1000)) < 1e-6, "a change slightly off"


@BOTH_SIDES
def test_released_tables_follow_the_exact_law(on_swap: bool, p_value: PValue) -> None:
    """20,000 strata of three records, with another variable beside the perturbed one; near misses must fail."""
    strata = 20_000
    other, rest, values = "abc", "112", "xyx"
    side = {"rest": list(rest) * strata, "v": list(values) * strata}
    homes = pl.DataFrame({"size": np.repeat(np.arange(strata), 3), **side, "o": list(other) * strata})
    roles: dict[str, Any] = {"swap": ["rest", "v"]} if on_swap else {"swap": ["o"]}
    swap = ResponseSwap(match=["size"], **roles, rate="1/3", respond="v", values=["x", "y"], change="1/5")
    released = swapped(swap, homes, Entropy.from_seed("law")).public["data"]
    texts = (
        released.sort("size", "o", "rest", "v")
        .group_by("size", maintain_order=True)
        .agg(pl.concat_str("o", "rest", "v").str.join(" "))["o"]
    )
    seen = dict(texts.value_counts().rows())
    records = list(zip(zip(rest, values, strict=True), other, strict=True))

    def fits(*, change: Fraction = Fraction(1, 5), rate: Fraction = Fraction(1, 3)) -> float:
        one = law(on_swap, change=change)
        dataset = tuple((o, s) if on_swap else (s, o) for s, o in records)
        chances: dict[str, Fraction] = {}
        for table, chance in laws_of(one, [dataset], rate=rate)[dataset].probabilities.items():
            rows = sorted((o, *s) for s, o in (one.sides(record) for record in table))  # type: ignore[attr-defined]
            key = " ".join("".join(row) for row in rows)
            chances[key] = chances.get(key, Fraction(0)) + chance
        assert set(seen) <= set(chances)
        keys = sorted(chances)
        return p_value(np.array([seen.get(key, 0) for key in keys]), [chances[key] for key in keys])

    assert fits() > 1e-6
    assert fits(change=Fraction(22, 100)) < 1e-6, "a change slightly off is seen"
    assert fits(rate=Fraction(36, 100)) < 1e-6, "a rate slightly off is seen"


# ---- what is released ----------------------------------------------------------------------------------


@BOTH_SIDES
def test_everything_but_the_perturbed_variable_keeps_its_tables(on_swap: bool) -> None:
    row = np.arange(400)
    homes = pl.DataFrame(
        {
            "size": row % 3,
            "county": np.array(list("xy"))[row // 200],
            "tenure": np.array(list("xy"))[row % 2],
            "kind": row % 7,
        }
    )
    swap = (ON_SWAP if on_swap else ON_HOLD).with_settings(change="1/2", values=["x", "y", "z"])
    released = swapped(swap, homes, Entropy.from_seed("tables")).public["data"]
    exact = [["size", "tenure", "kind"]] if on_swap else [["size", "county"], ["size", "kind"]]
    for columns in exact:
        assert released.select(columns).sort(columns).equals(homes.select(columns).sort(columns)), columns
    assert released.schema == homes.schema
    changed = released[swap.settings.respond].value_counts().sort(swap.settings.respond)
    assert not changed.equals(homes[swap.settings.respond].value_counts().sort(swap.settings.respond))
    assert "z" in released[swap.settings.respond], "a declared value that nobody has can be answered"


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pl.Series([1, 2, 1, 2], dtype=pl.UInt8), [1, 2, 200]),
        (pl.Series([True, False, True, False]), [True, False]),
        (pl.Series(["01", "2", "01", "2"]), ["01", "2", ""]),
        (pl.Series(["a", "b", "a", "b"], dtype=pl.Categorical), ["a", "b", "c"]),
    ],
    ids=["integers", "true-false", "text", "categories"],
)
def test_released_values_have_the_type_of_the_file(column: pl.Series, values: list[Any]) -> None:
    homes = pl.DataFrame({"size": [1] * 4, "county": column, "tenure": list("abcd")})
    swap = ON_SWAP.with_settings(values=values, change="1/2")
    released = swapped(swap, homes, Entropy.from_seed("types")).public["data"]
    assert released.schema["county"] == Microdata(households=homes).households.schema["county"]
    assert set(released["county"].to_list()) <= set(values)


def test_the_result_depends_on_no_threads_and_rows_are_in_the_order_of_released_values() -> None:
    homes = frame("xyxyxy")
    frames = [
        swapped(replace(ON_SWAP, threads=threads), homes, Entropy.from_seed("same")).public["data"]
        for threads in (1, 3)
    ]
    assert frames[0].equals(frames[1])
    assert frames[0]["county"].is_sorted()


def test_persons_stay_with_their_household_and_carry_its_released_place() -> None:
    homes = frame("xyxyxy").with_row_index("hid").with_columns(tag=pl.Series(list("abcdef")))
    people = homes.select("hid", pl.col("tag").alias("trait"), "county")
    data = Microdata(households=homes, persons=people, hid="hid")
    public = swapped(ON_SWAP.with_settings(change="1/2"), data, Entropy.from_seed("persons")).public
    joined = public["persons"].join(public["data"], on="hid", suffix="_home")
    assert (joined["trait"] == joined["tag"]).all()
    assert (joined["county"] == joined["county_home"]).all()


# ---- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"respond": "size"}, "matched on size"),
        ({"respond": "tenure", "hold": ["kind"]}, "tenure is not released"),
        ({"values": ["x"]}, "two declared values"),
        ({"values": ["x", "y", "x"]}, "declared twice"),
        ({"change": "7/4"}, "not a probability"),
        ({"rates": [{"tenure": "x", "rate": "1/2"}]}, "match variables only"),
        ({"swap": []}, "nothing is swapped"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(StirredError, match=what):
        replace(ON_SWAP, **changes)


@pytest.mark.parametrize(
    ("column", "values", "what"),
    [
        (["x", "y", "q", "x"], ["x", "y"], "not among the declared values"),
        (["x", None, "y", "x"], ["x", "y"], "missing"),
        ([0.5, 1.5, 0.5, 1.5], ["0.5", "1.5"], "fractional numbers|type Float64"),
        ([1, 2, 1, 2], ["1", "2", "many"], "cannot stand in a column"),
        ([1, 2, 1, 2], ["1", "2", "03"], "cannot stand in a column"),
    ],
)
@BOTH_SIDES
def test_values_that_do_not_fit_are_refused(on_swap: bool, column: list[Any], values: list[str], what: str) -> None:
    name = "county" if on_swap else "tenure"
    homes = frame("xyxy").with_columns(pl.Series(name, column, strict=False))
    with pytest.raises(StirredError, match=what):
        (ON_SWAP if on_swap else ON_HOLD).with_settings(values=values).plan(homes)


def test_a_variable_of_persons_or_of_nobody_is_refused() -> None:
    homes = frame("xyxy").with_row_index("hid")
    data = Microdata(households=homes, persons=homes.select("hid", age=1), hid="hid")
    with pytest.raises(StirredError, match="of persons is no released column of households"):
        ON_HOLD.with_settings(respond="age", values=[1, 2]).plan(data)
    with pytest.raises(StirredError, match="no released column"):
        ON_HOLD.with_settings(respond="missing").plan(data)


def test_whom_it_moves_is_shown_only_where_that_is_no_secret() -> None:
    homes = frame("xyxy", "1212")
    assert ON_SWAP.areas_changed(ON_SWAP.plan(homes)) is None
    areas = ON_HOLD.areas_changed(ON_HOLD.plan(homes))
    assert areas is not None
    assert areas["records"].sum() == 4


def test_rates_for_a_loss_are_not_guessed() -> None:
    by_rate = ON_HOLD.rate_losses(ON_HOLD.plan(frame("xyxy", "1212")))
    assert by_rate is not None
    with pytest.raises(StirredError, match="on the rate and on change"):
        by_rate.gentlest(ln(2))
