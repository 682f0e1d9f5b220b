"""The total: equal to composing one by one, and never a sum of what does not add up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred import PermutationSwap
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.release.ledger import Ledger, LedgerError, OverLimitError
from stirred.release.ledger.currency import Copies, Currency
from stirred.release.ledger.row import Charge, numbers
from stirred.release.ledger.samples import Sampling
from stirred.release.ledger.total import Total, total
from stirred.spec import GDP, PURE, ZCDP, OutputPremetric, Specification, UnitFactor, approximate, compose
from stirred.spec.composition import FRESH
from stirred.spec.convert import pull_back
from stirred.spec.domain import Domain
from stirred.spec.exact import exact
from stirred.survey.designs import design_from
from stirred.survey.estimates.mechanism import SurveyEstimates
from tests.release.ledger.making import COUNTIES, limit, pure, request, specification
from tests.spec.strategies import FEW

HOUSEHOLDS = UnitFactor(old="household", new="person", factor=1, because="one household each")


def total_of(specifications: Sequence[Specification], currency: Currency | None = None, **facts: object) -> Total:
    charges = [Charge(number=i, id=str(i), specification=str(i), **facts) for i in range(len(specifications))]  # type: ignore[arg-type]
    return total(charges, lambda digest: specifications[int(digest)], currency=currency)


def one(found: Total) -> Specification:
    assert found.specification is not None, (found.apart, found.alone)
    return found.specification


@FEW
@given(st.lists(st.tuples(st.sampled_from(["1/3", "ln(3)", "0.2", "2"]), st.booleans()), min_size=1, max_size=12))
def test_grouping_equal_specifications_changes_nothing(drawn: list[tuple[str, bool]]) -> None:
    parts = [pure(b) if is_pure else specification(b, output=GDP) for b, is_pure in drawn]
    kinds = {"pure": PURE, "gdp": GDP}
    for wanted in [None, *kinds.values()]:
        if wanted == PURE and not all(is_pure for _, is_pure in drawn):
            continue
        distinct = list(dict.fromkeys(parts))
        charges = [Charge(number=i, id=str(i), specification=str(distinct.index(part))) for i, part in enumerate(parts)]
        by_digest = {str(i): part for i, part in enumerate(distinct)}
        grouped = one(total(charges, by_digest.__getitem__, currency=Currency(output=wanted)))
        single = compose(parts, output=wanted).specification
        assert grouped.flavor == single.flavor
        assert abs(float(grouped.budget.realised) - float(single.budget.realised)) < 1e-12


def test_a_thousand_equal_releases_cost_a_thousand_times_one() -> None:
    charges = [Charge(number=i, id=str(i), specification="x") for i in range(1000)]
    found = total(charges, lambda _: specification("0.001"))
    assert one(found).budget.realised == 1
    assert found.parts[0].entries == tuple(range(1000))
    assert "1,000 x ρ²=0.001" in found.parts[0].derivation.steps[-1].before


def test_pure_and_zcdp_are_added_up_in_zcdp_each_converted_first() -> None:
    found = total_of([pure("1"), pure("1"), specification("1/2")])
    assert one(found).output_premetric == ZCDP
    # 2 x tanh(1/2) + 1/2 (R17), below converting the sum of 2.
    assert abs(float(one(found).budget.realised) - (2 * 0.46211715726 + 0.5)) < 1e-9
    assert [step.action for step in found.parts[0].derivation.steps][:2] == [
        "entry 0: measure by D_NoR instead of D_Mult",
        "entry 1: measure by D_NoR instead of D_Mult",
    ]


def test_units_are_never_brought_together_by_an_unstated_factor() -> None:
    both = [specification("1"), specification("2", unit="household"), specification("4")]
    found = total_of(both)
    assert found.specification is None
    assert [(part.entries, part.specification.budget_text) for part in found.parts] == [
        ((0, 2), "ρ²=5"),
        ((1,), "ρ²=2"),
    ]
    assert "protect different units" in found.apart[0].what
    stated = total_of(both, Currency(unit="person", units=(HOUSEHOLDS,)))
    assert one(stated).budget.realised == 7


def test_a_unit_without_its_factor_stands_alone() -> None:
    found = total_of([specification("1"), specification("2", unit="household")], Currency(unit="person"))
    assert not found.is_one
    assert [part.entries for part in found.parts] == [(0,)]
    assert [(aside.entries, "nothing says how" in aside.reason) for aside in found.alone] == [((1,), True)]


def test_releases_from_another_file_stand_apart() -> None:
    other = Domain(name="other", dataset="another file")
    found = total_of([specification("1"), specification("2", domain=other), specification("3", domain=other)])
    assert [part.entries for part in found.parts] == [(0,), (1, 2)]
    assert "the domains differ: register, the households of a register (as-given), and other" in found.apart[0].what
    assert "write the same name, dataset and stage into the domain" in found.apart[0].remedy
    assert "keep a ledger for each" in found.apart[0].remedy
    mended = Domain(name="register", dataset="the households of a register")  # as the remedy says
    assert total_of([specification("1"), specification("2", domain=mended)]).is_one


def test_invariants_are_merged() -> None:
    found = total_of([specification("1"), specification("2", invariants=[COUNTIES])])
    assert one(found).multiverse.invariants == (COUNTIES,)


def test_deltas_that_add_up_to_one_promise_nothing() -> None:
    found = total_of([specification("1", output=approximate("1/2"))] * 2)
    assert not found.is_one
    assert "the deltas add up to 1" in found.alone[0].reason


def test_a_total_in_approximate_dp_is_converted_from_the_sum() -> None:
    found = total_of([specification("1")] * 4, Currency(output=approximate("1e-6")))
    assert one(found).output_premetric == approximate("1e-6")
    assert one(found).budget.realised == exact("4+2*sqrt(4*ln(1000000))")


def test_an_output_that_cannot_be_reached_gives_no_number() -> None:
    found = total_of([specification("1"), pure("1")], Currency(output=PURE))
    assert found.specification is None
    assert found.alone[0].entries == (0, 1)
    assert found.alone[0].specification == compose([specification("1"), pure("1")]).specification


def test_no_loss_of_one_is_shown_for_several() -> None:
    found = total_of(
        [specification("1", unit="household"), specification("2", unit="household")], Currency(unit="person")
    )
    shown = [(aside.entries, aside.specification and aside.specification.budget_text) for aside in found.alone]
    assert shown == [((0,), "ρ²=1"), ((1,), "ρ²=2")]


def test_copies_of_records_multiply_by_the_square() -> None:
    plain = specification("3")
    records = plain.with_flavor(input_premetric=replace(plain.input_premetric, post_imputation=True))
    found = total_of([records], Currency(copies=Copies(factor=2, because="at most one copy")))
    assert one(found).budget.realised == 12
    assert not one(found).input_premetric.post_imputation


# ---- what costs nothing, and what adds up to nothing --------------------------------------------


def charge(number: int, **facts: object) -> Charge:
    return Charge(number=number, id=f"id{number}", specification=f"{number}", **facts)  # type: ignore[arg-type]


def add_up(*charges: Charge) -> Total:
    return total(charges, lambda digest: specification(str(2 ** int(digest))))


def test_products_derived_from_a_release_cost_nothing() -> None:
    found = add_up(charge(1), charge(2, derived_from=("id1",)), charge(3, derived_from=("id1",)))
    assert one(found).budget.realised == 2
    assert [(aside.entries, aside.reason) for aside in found.free] == [
        ((2, 3), "derived from released entry 1 (post-processing)")
    ]


def test_what_is_derived_from_a_release_without_a_specification_costs_nothing_either() -> None:
    found = add_up(charge(1, unspecified="lost"), charge(2, derived_from=("id1",)), charge(3))
    assert one(found).budget.realised == 8
    assert [aside.entries for aside in (*found.unspecified, *found.free)] == [(1,), (2,)]


def test_what_another_specification_contains_counts_once() -> None:
    found = add_up(charge(1), charge(2), charge(3, includes=("id1",)))
    assert one(found).budget.realised == 4 + 8
    assert found.free[0].reason == "stated to be contained in the specification of entry 3"


def test_what_is_contained_counts_again_when_the_whole_never_happened() -> None:
    found = add_up(charge(1), charge(3, includes=("id1",), spent=False))
    assert one(found).budget.realised == 2


def test_what_is_contained_counts_beside_a_whole_that_is_not_drawn_yet() -> None:
    found = add_up(charge(1), charge(3, includes=("id1",), drawn=False))
    assert one(found).budget.realised == 2 + 8


def test_inclusion_is_handed_on() -> None:
    found = add_up(charge(1), charge(2, includes=("id1",)), charge(3, includes=("id2",)))
    assert one(found).budget.realised == 8


def test_a_derived_product_includes_nothing() -> None:
    found = add_up(charge(1), charge(2), charge(3, derived_from=("id2",), includes=("id1",)))
    assert one(found).budget.realised == 2 + 4


def test_amplified_losses_that_share_a_sample_are_never_added() -> None:
    found = add_up(charge(0), charge(1, sample="s", amplified=True), charge(2, sample="s", amplified=True))
    assert not found.is_one
    assert [part.entries for part in found.parts] == [(0,)]
    assert [aside.entries for aside in found.alone] == [(1,), (2,)]
    assert "compose on the sample first, then amplify once" in found.alone[0].reason


@pytest.mark.parametrize("other", ["s", "t", None])
def test_one_amplified_loss_adds_up_with_those_of_other_samples_only(other: str | None) -> None:
    known = {"1": at("frame", pure("0.2")), "2": at("frame", pure("2"))}
    amplified = charge(1, sample="s", amplified=True, sampling={**TENTH, "inner": "1"})
    found = total([amplified, charge(2, sample=other)], known.__getitem__)
    assert found.is_one is (other != "s")


@pytest.mark.parametrize("other", ["t", None])
def test_an_amplified_loss_without_its_design_is_in_no_total(other: str | None) -> None:
    """Nothing shows that a loss of 0.001 is what the sample made of the loss on it."""
    found = add_up(charge(1, sample="s", amplified=True), charge(2, sample=other))
    assert not found.is_one
    assert [part.entries for part in found.parts] == [(2,)]
    assert [aside.entries for aside in found.alone] == [(1,)]
    assert "states neither the design nor the loss on the sample" in found.alone[0].reason


def test_an_amplified_loss_without_its_design_is_within_no_limit(tmp_path: Path) -> None:
    frame = at("population", pure("0.001"))
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("1", output="pure"))
    with pytest.raises(OverLimitError, match=r"neither the design nor the loss on the sample.*design=, inner="):
        ledger.reserve(request(specification=frame, sample="s", amplified=True))
    elsewhere = ledger.add(request(specification=frame, sample="s", amplified=True))
    with pytest.raises(OverLimitError, match=rf"entry {elsewhere.number}: its loss is amplified") as refusal:
        ledger.reserve(request(specification=frame))
    assert "includes=" in str(refusal.value)
    stated = Sampling.of({**TENTH, "inner": "1"})
    whole = at("population", pure("0.158566"))
    again = request(specification=whole, sample="s", amplified=True, sampling=stated, includes=[elsewhere.number])
    ledger.add(again)
    ledger.reserve(request(specification=frame))
    assert one(ledger.total()).budget.realised == exact("0.159566")


def test_losses_stated_for_the_sample_itself_add_up() -> None:
    assert one(add_up(charge(1, sample="s"), charge(2, sample="s"))).budget.realised == 6


def test_nothing_released_is_no_specification() -> None:
    found = add_up()
    assert (found.parts, found.is_one, found.specification) == ((), True, None)


def test_runs_of_numbers_are_shortened() -> None:
    assert numbers([5, 1, 2, 3]) == "1-3, 5"
    assert numbers(list(range(0, 100, 2))).endswith("22, and 38 more")


def test_an_entry_without_a_specification_makes_every_number_a_lower_bound() -> None:
    """Remark 6 of the paper: what it costs comes on top, and is added to nothing."""
    known = [Charge(0, "0", "0"), Charge(1, "1", "", unspecified="special tabulation")]
    found = total(known, lambda digest: pure("1"))
    assert one(found).budget.realised == exact(1)
    assert (found.bound, found.is_one) == ("at least ", True)
    assert [(aside.entries, aside.reason) for aside in found.unspecified] == [((1,), "special tabulation")]
    assert any("entry 1 has no specification" in line for line in one(found).assumptions)
    alone = total(known[1:], lambda digest: pure("1"))
    assert (alone.specification, alone.bound) == (None, "at least ")
    assert total(known[:1], lambda digest: pure("1")).bound == ""


TENTH = {"design": {"design": "srswor", "n": 100, "N": 1000}}


def sampled(*stated: tuple[str, str, dict[str, object]], budgets: Sequence[str] | None = None) -> Total:
    """Add up amplified losses: the sample, the loss on it, and further statements of each."""
    design = design_from(dict(TENTH["design"]))
    losses = budgets or [str(design.loss(exact(inner))) for _, inner, _ in stated]
    charges = [
        Charge(number=i, id=str(i), specification=str(i), sample=name, amplified=True,
               sampling={**TENTH, "inner": inner, **more})
        for i, (name, inner, more) in enumerate(stated)
    ]  # fmt: skip
    return total(charges, lambda digest: pure(losses[int(digest)]))


def test_amplified_losses_of_one_sample_are_composed_on_it_and_amplified_once() -> None:
    found = sampled(("s", "1", {}), ("s", "2", {}))
    assert float(one(found).budget.realised) == pytest.approx(1.0676559446826, abs=1e-12)  # and not 0.65
    assert found.parts[0].entries == (0, 1)
    assert FRESH in one(found).assumptions
    assert any(
        "entry 0-1: who is in sample 's' stays secret; their losses on it were added, then amplified once; against "
        "somebody who knows the sample, the loss is 3" in line
        for line in one(found).assumptions
    )


def test_an_amplified_loss_says_that_the_sample_is_secret_and_what_is_lost_on_it() -> None:
    (said,) = one(sampled(("s", "1", {}))).assumptions
    assert said == ("entry 0: who is in sample 's' stays secret; against somebody who knows the sample, the loss is 1")


def test_an_entry_counts_at_least_what_its_design_makes_of_its_inner_loss() -> None:
    """An earlier version took 0.001 for a tenth of the units and a loss of 1 on them: that is 0.1586."""
    found = one(sampled(("s", "1", {}), budgets=["1/1000"]))
    assert float(found.budget.realised) == pytest.approx(math.log1p(math.expm1(1) / 10), abs=1e-12)


@pytest.mark.parametrize(
    ("stated", "said"),
    [("0.001", "is 0.158566 by this design, and the specification says 0.001"), ("0.15", "is 0.158566"),
     ("0.3", "is at most 0.158566 by this design"), ("0.158566", "")],
)  # fmt: skip
def test_an_entry_states_what_its_design_makes_of_its_inner_loss(tmp_path: Path, stated: str, said: str) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    drawn: dict[str, Any] = {"sample": "s", "amplified": True, "sampling": Sampling.of({**TENTH, "inner": "1"})}
    if not said:
        assert ledger.add(request(specification=pure(stated), **drawn)).number == 1
        return
    with pytest.raises(LedgerError, match=said):
        ledger.add(request(specification=pure(stated), **drawn))
    assert not [*ledger.entries()]


@pytest.mark.parametrize(
    ("output", "design", "said"),
    [(approximate("1e-6"), TENTH["design"], "is 0.158566 by this design, and the specification says 0.001"),
     (approximate("1e-6"), {"design": "cluster", "m": 1, "M": 10, "K": 5}, "no formula is known"),
     (ZCDP, TENTH["design"], "no formula is known for what srswor makes of a loss in zCDP"),
     (GDP, TENTH["design"], "no formula is known")],
)  # fmt: skip
def test_an_amplified_loss_that_is_not_pure_is_held_to_its_design(
    tmp_path: Path, output: OutputPremetric, design: dict[str, Any], said: str
) -> None:
    stated = {"design": design, "inner": "1"}
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    drawn: dict[str, Any] = {"sample": "s", "amplified": True, "sampling": Sampling.of(stated)}
    with pytest.raises(LedgerError, match=said):
        ledger.add(request(specification=specification("0.001", output=output), **drawn))
    # An earlier version took it: it counts with what the design implies, or stands apart.
    old = Charge(0, "0", "0", sample="s", amplified=True, sampling=stated)
    found = total([old], lambda digest: specification("0.001", output=output))
    if "is 0.158566" in said:
        assert float(one(found).budget.realised) == pytest.approx(math.log1p(math.expm1(1) / 10), abs=1e-12)
    else:
        assert (found.specification, [aside.entries for aside in found.alone]) == (None, [(0,)])
        assert "no formula is known" in found.alone[0].reason


STRATA = {"design": "stratified", "n": "100,50", "N": "1000,50"}


@pytest.mark.parametrize(
    ("design", "shares"),
    [(TENTH["design"], ["1/1000"]), (STRATA, ["1"]), (STRATA, ["1", "0"]), (STRATA, ["1", "1", "1"])],
)
def test_shares_of_a_loss_are_those_of_strata(tmp_path: Path, design: dict[str, Any], shares: list[str]) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    stated = Sampling.of({"design": design, "inner": "1", "shares": shares})
    with pytest.raises(LedgerError, match="share"):
        ledger.add(request(specification=pure("0.001"), sample="s", amplified=True, sampling=stated))


def test_a_total_says_which_shares_of_a_loss_were_stated() -> None:
    (said,) = one(sampled(("s", "1", {"design": STRATA, "shares": ["1", "1/20"]}), budgets=["0.16"])).assumptions
    assert said.endswith("units of its strata lose at most 1 and 1/20 of that, as somebody stated")


def test_losses_of_one_sample_are_added_stratum_by_stratum() -> None:
    """A tenth and a whole stratum, of which one release hardly touches the second and the other has no shares."""
    drawn: dict[str, object] = {"design": {"design": "stratified", "n": "100,50", "N": "1000,50"}}
    shared: tuple[str, str, dict[str, object]] = ("s", "3", {**drawn, "shares": ["1", "1/20"]})
    alike = sampled(shared, shared, budgets=["1.07", "1.07"])
    assert float(one(alike).budget.realised) == pytest.approx(math.log1p(math.expm1(6) / 10))
    mixed = sampled(shared, ("s", "2", drawn), budgets=["1.07", "2"])
    assert float(one(mixed).budget.realised) == pytest.approx(max(math.log1p(math.expm1(5) / 10), 3 / 20 + 2, 3.07))


def test_losses_of_samples_that_nobody_calls_dependent_are_added_and_that_is_stated() -> None:
    found = sampled(("s", "1", {}), ("t", "2", {}))
    assert float(one(found).budget.realised) == pytest.approx(0.6525937867846, abs=1e-12)
    assert "sample 's' and sample 't' were drawn independently of each other" in one(found).assumptions


@pytest.mark.parametrize(
    ("joint", "loss"),
    [("1/10", 1.0676559446826), ("1/100", 0.6525937867846), ("unknown", 3.0)],
)
def test_dependent_samples_are_composed_by_their_joint_probability(joint: str, loss: float) -> None:
    found = sampled(("s", "1", {"joint": {"of another ledger": "1/50"}}), ("t", "2", {"joint": {"s": joint}}))
    assert float(one(found).budget.realised) == pytest.approx(loss, abs=1e-12)
    rests = any("always the same number of units" in each for each in one(found).assumptions)
    assert rests is (joint != "unknown")
    assert ("not amplified" in str(one(found).budget.policy)) is (joint == "unknown")
    assert any("were added, then amplified once" in each for each in one(found).assumptions) is rests


def test_losses_of_samples_that_depend_in_an_unknown_way_are_added_for_any_design() -> None:
    cluster: dict[str, object] = {"design": {"design": "cluster", "m": 1, "M": 5, "K": 3}}
    found = sampled(("s", "1", cluster), ("t", "2", {"joint": {"s": "unknown"}}))
    assert one(found).budget.realised == 3
    joint: dict[str, object] = {"joint": {"s": "1/100"}}
    three = sampled(("s", "1", joint), ("t", "1", joint), ("u", "1", joint))
    assert one(three).budget.realised == 3  # a joint probability is known for two samples


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ([("s", "1", {}), ("s", "2", {"design": {"design": "srswor", "n": 1, "N": 2}})], "do not state one design"),
        ([("s", "1", {}), ("t", "2", {"joint": {"s": "1/2"}})], "not possible with 1/10 and 1/10"),
        (
            [
                ("s", "1", {"design": {"design": "cluster", "m": 1, "M": 5, "K": 3}}),
                ("t", "2", {"joint": {"s": "1/20"}}),
            ],
            "designs that draw unit by unit",
        ),
    ],
)
def test_what_cannot_be_composed_on_the_sample_stands_apart(
    stated: list[tuple[str, str, dict[str, object]]], told: str
) -> None:
    found = sampled(*stated)
    assert [aside.entries for aside in found.alone] == [(0,), (1,)]
    assert all(told in aside.reason for aside in found.alone)


_STATED = st.tuples(
    st.sampled_from(["s", "t", "u"]),
    st.sampled_from(["1/100", "1/5", "1", "3"]),
    st.dictionaries(st.sampled_from(["s", "t", "x"]), st.sampled_from(["1/100", "1/20", "unknown"]), max_size=1),
    st.booleans(),
)


@FEW
@given(st.lists(_STATED, min_size=2, max_size=5))
def test_no_further_release_from_a_sample_lowers_the_total(drawn: list[tuple[str, str, dict[str, str], bool]]) -> None:
    design = design_from(dict(TENTH["design"]))
    losses = [str(design.loss(exact(inner))) if kind else inner for _, inner, _, kind in drawn]
    charges = [
        Charge(number=i, id=str(i), specification=str(i), sample=name, amplified=kind,
               sampling={**TENTH, "inner": inner, "joint": joint} if kind else None)
        for i, (name, inner, joint, kind) in enumerate(drawn)
    ]  # fmt: skip
    found = [total(charges[:k], lambda digest: pure(losses[int(digest)])) for k in range(1, len(charges) + 1)]
    sums = [float(one(each).budget.realised) for each in found if each.is_one]
    assert sums == sorted(sums)


def test_a_composed_loss_is_never_below_the_losses_that_were_stated() -> None:
    found = sampled(("s", "1/100", {}), ("s", "1/100", {}), budgets=["3", "4"])
    assert one(found).budget.realised == 7


def test_a_loss_stated_for_the_sample_itself_joins_the_amplified_ones_of_it() -> None:
    charges = [
        Charge(number=0, id="0", specification="1", sample="s", amplified=True, sampling={**TENTH, "inner": "3"}),
        Charge(number=1, id="1", specification="1/2", sample="s"),
    ]
    found = one(total(charges, pure))
    assert float(found.budget.realised) == pytest.approx(math.log(1 + (math.exp(3.5) - 1) / 10), abs=1e-12)


@pytest.mark.parametrize("other", ["s", None])
def test_beside_a_promise_about_the_sample_an_amplified_loss_counts_unamplified(other: str | None) -> None:
    """Who knows the sample loses 3 by the amplified release and 1/2 by the other: from one sample or from two."""
    stages = {"frame": pure("1.07"), "sample": pure("1/2")}
    stages = {stage: own.with_flavor(domain=replace(own.domain, stage=stage)) for stage, own in stages.items()}
    amplified = Charge(0, "0", "frame", sample="s", amplified=True, sampling={**TENTH, "inner": "3"})
    plain = Charge(1, "1", "sample", sample=other)
    found = one(total([amplified, plain], stages.__getitem__))
    assert found.budget.realised == exact("7/2")
    assert found.domain.stage == "sample"
    assert any("entry 0 counts with its loss on the sample" in line for line in found.assumptions)
    assert float(one(total([amplified], stages.__getitem__)).budget.realised) == pytest.approx(1.07)
    unstated = amplified._replace(sampling=None)  # what it lost on the sample is not known: it stays apart
    assert not total([unstated, plain], stages.__getitem__).is_one


def at(stage: str, own: Specification, **words: Any) -> Specification:
    return own.with_flavor(domain=replace(own.domain, stage=stage, **words))


AMPLIFIED = Charge(0, "0", "amplified", sample="s", amplified=True, sampling={**TENTH, "inner": "3"})
FRAME, ON_SAMPLE = Charge(1, "1", "frame"), Charge(2, "2", "sample")
STAGES = {"amplified": at("frame", pure("1.07")), "frame": at("frame", pure("1")), "sample": at("sample", pure("1/2"))}


def parts_of(*charges: Charge, **known: Specification) -> list[tuple[Any, ...]]:
    """Return the stage, the entries and the loss of every part."""
    found = total(charges, {**STAGES, **known}.__getitem__)
    assert not found.alone
    return [(p.specification.domain.stage, p.entries, float(p.specification.budget.realised)) for p in found.parts]


@pytest.mark.parametrize("stage", ["frame", "population"])
@pytest.mark.parametrize("output", [PURE, ZCDP])
def test_the_file_as_given_is_the_sample_where_a_loss_is_amplified(stage: str, output: OutputPremetric) -> None:
    """A loss of 1.07 that the draw of the file makes of 3 is no part of what is lost on the file."""
    known = {"amplified": at(stage, pure("1.07")), "sample": specification("1/2", output=output)}
    apart = [(stage, (0,), pytest.approx(1.07)), ("sample", (2,), 0.5)]
    assert parts_of(AMPLIFIED, ON_SAMPLE, **known) == ([("sample", (0, 2), 3.5)] if output == PURE else apart)
    unstated = total([AMPLIFIED._replace(sampling=None), ON_SAMPLE], {**STAGES, **known}.__getitem__)
    assert ([p.entries for p in unstated.parts], [each.entries for each in unstated.alone]) == ([(2,)], [(0,)])
    if output == PURE:
        assert parts_of(AMPLIFIED, ON_SAMPLE._replace(sample="s"), **known) == [("sample", (0, 2), 3.5)]


def test_a_loss_stated_for_the_frame_is_not_taken_for_one_on_the_sample() -> None:
    """Of a release from the sample, with a promise that starts at the frame, nobody said what it lost on the sample."""
    found = total([AMPLIFIED, FRAME._replace(sample="s")], STAGES.__getitem__)
    assert found.specification is None
    assert [aside.entries for aside in found.alone] == [(0,), (1,)]
    assert "stated for the frame, and not for the sample" in found.alone[1].reason


@pytest.mark.parametrize("output", [approximate("1e-6"), ZCDP, GDP])
@pytest.mark.parametrize("which", ["both", "frame", "sample"])
def test_an_amplified_loss_that_is_not_pure_is_not_counted_on_the_sample(output: OutputPremetric, which: str) -> None:
    """The inner number is an epsilon: with an amplified delta of 1e-6 the delta on the sample is 1e-5."""
    known = {"amplified": at("frame", specification("1.07", output=output if which != "sample" else PURE))}
    known["sample"] = at("sample", specification("1/2", output=output if which != "frame" else PURE))
    if which != "sample" and output in (ZCDP, GDP):  # of which no design says what it makes
        found = total([AMPLIFIED, ON_SAMPLE], {**STAGES, **known}.__getitem__)
        assert ([p.entries for p in found.parts], [aside.entries for aside in found.alone]) == ([(2,)], [(0,)])
    else:
        assert parts_of(AMPLIFIED, ON_SAMPLE, **known) == [
            ("frame", (0,), pytest.approx(1.07, abs=1e-3)),
            ("sample", (2,), 0.5),
        ]


def test_no_limit_takes_an_inner_delta_for_an_amplified_one(tmp_path: Path) -> None:
    kind = approximate("1e-6")
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("4", output="approximate", delta="5e-6"))
    stated = Sampling.of({**TENTH, "inner": "3"})
    frame, sample = (
        at(stage, specification(loss, output=kind)) for stage, loss in (("frame", "1.07"), ("sample", ".5"))
    )
    ledger.reserve(request(specification=frame, sample="s", amplified=True, sampling=stated))
    with pytest.raises(OverLimitError, match="cannot be compared"):
        ledger.reserve(request(specification=sample))


def test_what_counts_on_the_sample_counts_beside_the_frame_as_well() -> None:
    """The loss before others of the frame does not fall by a promise about the sample."""
    before = parts_of(AMPLIFIED, FRAME)
    assert before == [("frame", (0, 1), pytest.approx(2.07))]
    for sample in ("s", None):
        found = parts_of(AMPLIFIED, FRAME, ON_SAMPLE._replace(sample=sample))
        assert sorted(found) == [*before, ("sample", (0, 2), 3.5)]


def test_amplified_losses_of_one_sample_are_still_composed_beside_the_frame() -> None:
    twice = [AMPLIFIED, AMPLIFIED._replace(number=3, id="3")]
    frame, sample = sorted(parts_of(*twice, FRAME, ON_SAMPLE._replace(sample="s")))
    assert frame == ("frame", (0, 1, 3), pytest.approx(1 + math.log1p(math.expm1(6) / 10)))
    assert sample == ("sample", (0, 2, 3), 6.5)


def test_amplified_losses_of_one_sample_are_composed_whatever_columns_they_look_at() -> None:
    """What is lost on the sample is lost by the same records: 6, amplified once."""
    known = {name: at("frame", pure("1.07"), columns=(name,)) for name in ("age", "income")}
    charges = [AMPLIFIED._replace(specification="age"), AMPLIFIED._replace(number=3, id="3", specification="income")]
    assert parts_of(*charges, **known) == [("frame", (0, 3), pytest.approx(math.log1p(math.expm1(6) / 10)))]


@pytest.mark.parametrize(
    "other",
    [
        at("sample", pure("1/2", unit="household")),
        at("sample", pure("1/2"), name="another"),
        at("sample", pure("1/2"), dataset="the dwellings of a register"),
    ],
)
def test_beside_a_promise_that_it_does_not_join_an_amplified_loss_stays(other: Specification) -> None:
    found = parts_of(AMPLIFIED, FRAME, ON_SAMPLE, sample=other)
    assert found == [("frame", (0, 1), pytest.approx(2.07)), ("sample", (2,), 0.5)]


def test_samples_of_one_name_and_different_datasets_are_told_apart() -> None:
    """Whichever comes last: the amplified loss goes to its own."""
    dwellings = at("sample", pure("1/4"), dataset="the dwellings of a register")
    for numbered in ((2, 3), (3, 2)):
        both = [
            ON_SAMPLE._replace(number=n, specification=of) for n, of in zip(numbered, ("sample", "other"), strict=True)
        ]
        found = parts_of(AMPLIFIED, *sorted(both), other=dwellings)
        assert sorted(loss for _, _, loss in found) == [0.25, 1.07, 3.5]


def test_a_stated_factor_between_units_joins_them_on_the_sample() -> None:
    known = {**STAGES, "sample": at("sample", pure("1/2", unit="household"))}
    currency = Currency(unit="person", units=(HOUSEHOLDS,))
    assert one(total([AMPLIFIED, ON_SAMPLE], known.__getitem__, currency=currency)).budget.realised == exact("7/2")


def test_settings_11_and_6_of_a_survey_are_of_one_file_in_different_words() -> None:
    def survey(attest: Sequence[str], **settings: Any) -> SurveyEstimates:
        asked: dict[str, Any] = {"estimates": [{"kind": "table", "by": ["sex"]}], "values": {"sex": ["f", "m"]}}
        asked |= {"weight_bounds": [1, 10], "variance": "none", "attest": ["design-weights", *attest]}
        return SurveyEstimates(epsilon="1/2", **asked, **settings)

    frame = survey(["random-sample", "secret-sample"], setting=11, sampling=TENTH["design"], sample="s")
    known = {"amplified": frame.specification(name="survey", columns=["sex"])}
    known["sample"] = survey([], setting=6).specification(name="survey", columns=["sex", "age"])
    amplified = AMPLIFIED._replace(sampling={**TENTH, "inner": str(frame.sample_loss)})
    assert parts_of(amplified, ON_SAMPLE, **known) == [
        ("sample", (0, 2), pytest.approx(float(frame.sample_loss) + 0.5))
    ]
    assert float(frame.sample_loss) > 1


@pytest.mark.parametrize("n", [1, 2])
def test_both_numbers_are_those_of_a_sample_of_three_that_is_enumerated(n: int) -> None:
    """Each release tells by a biased coin whether anybody has the trait: in the sample twice, and on the frame."""

    def told(odds: int, anybody: bool, answer: bool) -> Fraction:
        return Fraction(odds if anybody is answer else 1, odds + 1)

    frames, draws = list(product((False, True), repeat=3)), list(combinations(range(3), n))
    pairs = [(x, y) for x in frames for y in frames if sum(a is not b for a, b in zip(x, y, strict=True)) == 1]
    answers = list(product((False, True), repeat=2))

    def on_sample(x: tuple[bool, ...], drawn: tuple[int, ...], seen: tuple[bool, ...]) -> Fraction:
        there = any(x[unit] for unit in drawn)
        return told(3, there, seen[0]) * told(2, there, seen[1])

    def on_frame(x: tuple[bool, ...], seen: tuple[bool, ...]) -> Fraction:
        mixed = sum(told(3, any(x[unit] for unit in drawn), seen[0]) for drawn in draws) / Fraction(len(draws))
        return mixed * told(2, any(x), seen[1])

    known = max(on_sample(x, s, seen) / on_sample(y, s, seen) for x, y in pairs for s in draws for seen in answers)
    secret = max(on_frame(x, seen) / on_frame(y, seen) for x, y in pairs for seen in answers)
    drawn = {"design": "srswor", "n": n, "N": 3}
    amplified = AMPLIFIED._replace(sampling={"design": drawn, "inner": "ln(3)"})
    losses = {
        "amplified": at("frame", pure(str(design_from(drawn).loss(exact("ln(3)"))))),
        "frame": at("frame", pure("ln(2)")),
        "sample": at("sample", pure("ln(2)")),
    }
    assert sorted(parts_of(amplified, FRAME, ON_SAMPLE, **losses)) == [
        ("frame", (0, 1), pytest.approx(math.log(secret), abs=1e-12)),
        ("sample", (0, 2), pytest.approx(math.log(known), abs=1e-12)),
    ]


def test_a_total_keeps_what_one_release_did_to_the_file_before() -> None:
    """An unprepared release beside it makes the common file the one as it was; how figures came about is still said."""
    steps = pull_back(specification("1"), prepared=(("age", "top-coded at 90"),)).specification
    assert one(total_of([steps, steps])).domain.prepared == (("age", "top-coded at 90"),)
    together = one(total_of([steps, specification("2")]))
    assert together.domain.prepared == ()
    assert any("age top-coded at 90" in said for said in together.assumptions)
    assert not any("prepared file:" in said for said in one(total_of([specification("2")] * 2)).assumptions)


def test_noise_after_a_swap_says_nothing_that_a_swap_beside_it_contradicts() -> None:
    after = {"name": "permutation-swap", "match": ["size"], "swap": ["county"], "rate": "1/2"}
    homes = pl.DataFrame({"size": [1, 2] * 30, "county": ["E", "N", "S"] * 20, "tenure": ["o", "r", "r", "o"] * 15})
    values = {"county": ["E", "N", "S"], "tenure": ["o", "r"]}
    noise = NoisyTables(tables=[["county", "tenure"]], noise="laplace", epsilon="1", values=values, after=after)
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    found = one(total_of([each.plan(homes).specification for each in (noise, swap)]))
    assert not any("nothing is published but these tables" in said for said in found.assumptions)
    assert any("for these tables stay inside" in said for said in found.assumptions)
