"""The exhaustive audit passes what keeps its promise, and catches what does not, with a witness."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import stirred.mechanisms
from stirred import PermutationSwap
from stirred.audit import AuditVerdict, FiniteMechanism, Witness, audit
from stirred.audit.exhaustive import promise_for
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.records.laws.conditioned import ConditionedSwap
from stirred.mechanisms.records.laws.mallows import MallowsSwap
from stirred.mechanisms.records.laws.shuffle import ShuffleSwap
from stirred.spec import catalogue
from stirred.spec.exact import exact, ln
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Named
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import GDP, PURE, TOTAL_VARIATION, ZCDP, OutputPremetric, approximate
from stirred.spec.problems import StirredError
from tests.audit.contract import BETWEEN, EXAMPLES, mechanisms_in, without_audit
from tests.audit.faults import FAULTS, RIGHT, Understated

PROMISE = catalogue.load("pure-dp").specification
UNORDERED = PROMISE.with_flavor(input_premetric=InputPremetric(name="d_HamS", unit="record"))


def test_every_mechanism_of_the_package_is_audited() -> None:
    """The contract: a mechanism without an audit is not part of the package."""
    found = mechanisms_in(stirred.mechanisms)
    assert {PermutationSwap, ConditionedSwap, MallowsSwap, ShuffleSwap} <= set(found)
    assert not without_audit(found, EXAMPLES)


PLANTED = """
class Quiet:
    def specification(self, universe): ...
    def plan(self, data): ...
    def release(self, data, entropy): ...
"""


def test_a_mechanism_without_an_audit_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted in a new subpackage, and as a new member of an old family; neither is registered."""
    folder = tmp_path / "planted"
    folder.mkdir()
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "quiet.py").write_text(PLANTED, encoding="utf-8")
    (folder / "louder.py").write_text(
        "from stirred import PermutationSwap\n\nclass Louder(PermutationSwap):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.setattr(stirred.mechanisms, "__path__", [*stirred.mechanisms.__path__, str(tmp_path)])
    found = without_audit(mechanisms_in(stirred.mechanisms), EXAMPLES)
    for name in [name for name in sys.modules if name.startswith("stirred.mechanisms.planted")]:
        del sys.modules[name]
    del stirred.mechanisms.planted  # type: ignore[attr-defined]
    assert sorted(found) == ["Louder", "Quiet"]


def test_an_example_of_a_subclass_is_no_audit_of_the_class() -> None:
    assert without_audit([Swap], {Swap: EXAMPLES[PermutationSwap]}) == ["Swap"]


@pytest.mark.parametrize(
    "mechanism",
    [
        pytest.param(example, marks=[pytest.mark.slow] if number in BETWEEN.get(cls, ()) else [])
        for cls, examples in EXAMPLES.items()
        for number, example in enumerate(examples)
    ],
    ids=lambda m: type(m).__name__,
)
def test_every_mechanism_of_the_package_keeps_its_promise(mechanism: Any) -> None:
    """The contract: a mechanism registers small universes and passes the audit on all of them."""
    universes = mechanism.audit_universes()
    assert sum(len(universe) > 1 for universe in universes) >= 2, "nothing is compared"
    result = audit(mechanism)
    assert result.passed, result.in_words
    assert result.universes == len(universes)
    assert result.orders > 0


@pytest.mark.parametrize("cls", EXAMPLES, ids=lambda cls: cls.__name__)
def test_a_budget_a_tenth_too_small_breaks_the_contract(cls: type) -> None:
    """The power of the contract: of every mechanism an example comes near its budget, and less is seen to be wrong."""
    found = [audit(Understated(example)) for example in EXAMPLES[cls]]
    if all(each.budget.is_infinite for each in found):
        # Nothing is promised: an output that gives a file away must be found instead.
        assert all(each.loss.low.is_infinite and each.witness is not None for each in found)
    else:
        assert AuditVerdict.FAILED in {each.verdict for each in found}


@pytest.mark.parametrize("rate", ["1/100", "1/10", "1/2", "9/10"])
def test_permutation_swapping_is_audited_where_its_budget_is_attained(rate: str) -> None:
    """R1 has a formula for two, one for three and one for four and more records; each is met by equality."""
    swap = PermutationSwap(match=["size"], swap=["county"], rate=rate)
    for universe in swap.audit_universes():
        found = audit(FiniteMechanism(function=swap.law, datasets=universe, promise=promise_for(swap, universe)))
        assert found.passed
        if len({h for h, _ in universe[0]}) == len(universe[0]):  # type: ignore[arg-type, attr-defined]
            assert not found.loss.low < found.budget


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_caught_with_a_witness(fault: str) -> None:
    result = audit(FAULTS[fault])
    assert result.verdict is AuditVerdict.FAILED, f"{fault} was not seen"
    assert result.loss.low > result.budget
    witness = result.witness
    assert isinstance(witness, Witness)
    laws = [FAULTS[fault].law(dataset) for dataset in (witness.dataset, witness.other)]
    assert tuple(law[witness.output] for law in laws) == witness.probabilities
    assert "The promise is broken" in result.in_words
    assert str(witness) in result.in_words


def test_the_same_mechanism_without_a_fault_passes() -> None:
    result = audit(RIGHT)
    assert result.passed, result.in_words
    assert "No violation" in result.in_words


@pytest.mark.parametrize("rate", ["1/20", "1/2", "3/4"])
def test_faults_of_the_output_are_caught_at_other_rates_too(rate: str) -> None:
    for fault in ("a fixed number of swaps", "an output that keeps row order"):
        result = audit(replace(FAULTS[fault], rate=Fraction(rate)))
        assert result.loss.low.is_infinite, fault


def test_keeping_the_row_order_is_seen_by_reordering_the_input() -> None:
    result = audit(FAULTS["an output that keeps row order"])
    assert result.witness is not None
    assert result.witness.distance == 0
    assert "the same records in another order" in result.in_words


# ---- any output premetric --------------------------------------------------------------------------


def coin(premetric: OutputPremetric, budget: str) -> FiniteMechanism:
    """Randomised response that tells the truth with probability 3/4."""

    def answer(dataset: Any) -> Law:
        truth = dataset[0][0]
        return Law({truth: Fraction(3, 4), 1 - truth: Fraction(1, 4)})

    promise = PROMISE.with_flavor(output_premetric=premetric).with_budget(budget)
    return FiniteMechanism(function=answer, datasets=[((0,),), ((1,),)], promise=promise)


@pytest.mark.parametrize(
    ("premetric", "enough", "too_little"),
    [
        (PURE, "ln(3)", "1.0986"),
        (approximate("1/4"), "ln(2)", "0.6931"),
        (ZCDP, "0.5494", "0.5493"),  # ln 3 tanh(ln(3)/2) = 0.549306
        (TOTAL_VARIATION, "1/2", "0.4999"),
        (GDP, "1.34898", "1.34897"),
        (OutputPremetric(name="D_Renyi", order=Fraction(2)), "0.8474", "0.8472"),
    ],
    ids=["D_Mult", "D_Mult^delta", "D_NoR", "D_TV", "D_GDP", "D_Renyi"],
)
def test_every_output_premetric_is_understood(premetric: OutputPremetric, enough: str, too_little: str) -> None:
    assert audit(coin(premetric, enough)).verdict is AuditVerdict.PASSED
    failed = audit(coin(premetric, too_little))
    assert failed.verdict is AuditVerdict.FAILED
    assert failed.witness is not None


def test_what_no_enclosure_decides_is_neither_passed_nor_failed() -> None:
    """At a budget inside the enclosure of a Rényi distance the audit cannot tell, and says so."""
    found = audit(coin(ZCDP, "1")).loss
    if found.is_exact:
        pytest.fail("the enclosure is a point: choose another law")
    inside = (found.low + found.high) / 2
    mechanism = coin(ZCDP, "1")
    assert mechanism.promise is not None
    result = audit(replace(mechanism, promise=mechanism.promise.with_budget(inside)))
    assert result.verdict is AuditVerdict.CANNOT_TELL
    assert not result.passed
    assert result.in_words.startswith("Cannot tell")


# ---- what is claimed -------------------------------------------------------------------------------


def test_a_mechanism_that_claims_nothing_is_searched_for_a_witness_of_infinity() -> None:
    honest = FiniteMechanism(function=Law.certain, datasets=[((0,),), ((1,),)], promise=PROMISE.with_budget("inf"))
    result = audit(honest)
    assert result.passed
    assert result.loss.low.is_infinite
    assert "Nothing is promised" in result.in_words
    assert "told apart with certainty" in result.in_words


def test_without_a_specification_the_likeliest_output_that_gives_a_dataset_away_is_found() -> None:
    """Rounding to even numbers with a coin: 1 may become 0, 2 never does."""

    class Rounded:
        def universe(self) -> list[int]:
            return [0, 1, 2]

        def law(self, dataset: int) -> Law:
            if dataset == 1:
                return Law({0: Fraction(1, 4), 2: Fraction(3, 4)})
            return Law.certain(dataset)

    result = audit(Rounded())
    assert result.passed
    assert result.budget.is_infinite
    witness = result.witness
    assert isinstance(witness, Witness)
    assert witness.probabilities == (Fraction(1), Fraction(0))
    assert {witness.dataset, witness.other} == {0, 2}
    assert "Nothing is promised; an output gives the dataset away" in result.in_words
    assert "at distance" not in result.in_words


def test_without_a_specification_a_mechanism_that_hides_something_is_not_accused() -> None:
    mechanism = replace(coin(PURE, "1"), promise=None)
    result = audit(mechanism)
    assert result.passed
    assert result.witness is None
    assert result.loss.high == ln(3)
    assert "no output gives the dataset away, and the loss found is epsilon 1.10" in result.in_words


def test_a_witness_of_infinity_is_found_whatever_the_output_premetric() -> None:
    """Total variation never exceeds 1, and the dataset is given away all the same."""
    promise = PROMISE.with_flavor(output_premetric=TOTAL_VARIATION).with_budget("inf")
    leaky = FiniteMechanism(
        function=lambda x: Law({"?": Fraction(9, 10), x: Fraction(1, 10)}), datasets=[((0,),), ((1,),)], promise=promise
    )
    result = audit(leaky)
    assert result.loss.high == exact("1/10")
    assert result.witness is not None
    assert result.witness.is_certain


def test_universes_are_split_by_invariants_that_can_be_evaluated() -> None:
    """The total is invariant and published; only within it is anything promised."""

    def total(dataset: Any) -> int:
        return sum(row[0] for row in dataset)

    promise = PROMISE.with_budget(0)
    datasets = [((0,), (0,)), ((0,), (1,)), ((1,), (0,)), ((1,), (1,))]
    plain = FiniteMechanism(function=lambda x: Law.certain(total(x)), datasets=datasets, promise=promise)
    assert audit(plain).verdict is AuditVerdict.FAILED
    inside = promise.with_flavor(multiverse=Multiverse(invariants=(Named(name="total", function=total),)))
    result = audit(replace(plain, promise=inside))
    assert result.passed
    assert (result.universes, result.pairs) == (3, 1)


# ---- nothing compared is nothing certified ---------------------------------------------------------


@pytest.mark.parametrize("budget", ["0", "inf"])
def test_one_dataset_alone_certifies_nothing(budget: str) -> None:
    alone = FiniteMechanism(function=Law.certain, datasets=[((0,),)], promise=PROMISE.with_budget(budget))
    for mechanism in (alone, replace(alone, promise=None)):
        result = audit(mechanism)
        assert result.verdict is AuditVerdict.CANNOT_TELL
        assert result.pairs == 0
        assert result.loss.high.is_infinite
        assert result.in_words == (
            "Cannot tell: nothing was compared, because there are no two datasets in one universe."
        )


def test_datasets_infinitely_far_apart_are_not_compared_and_not_counted() -> None:
    near = InputPremetric(name="d_HamS", unit="record", within=1)
    promise = PROMISE.with_flavor(input_premetric=near).with_budget(0)
    zeros, ones, mixed = ((0,), (0,)), ((1,), (1,)), ((0,), (1,))
    identity = FiniteMechanism(
        function=lambda x: Law.certain(tuple(sorted(x))), datasets=[zeros, ones], promise=promise
    )
    result = audit(identity)
    assert (result.verdict, result.pairs, result.left_out) == (AuditVerdict.CANNOT_TELL, 0, 1)
    assert "the datasets of each universe are infinitely far apart" in result.in_words
    failed = audit(replace(identity, datasets=[zeros, ones, mixed]))
    assert (failed.verdict, failed.pairs, failed.left_out) == (AuditVerdict.FAILED, 2, 1)
    assert "over 2 pairs in 1 universe (1 more are infinitely far apart and were not compared)" in failed.in_words


def test_orders_that_the_mechanism_has_no_law_for_are_said_not_to_have_been_tried() -> None:
    """The law of the first order tried is unknown; a later one differs, and is still found."""
    datasets = [((0,), (1,)), ((0,), (2,)), ((1,), (2,))]
    table = {x: Law({"a": Fraction(1, 2), "b": Fraction(1, 2)}) for x in datasets}
    mechanism = FiniteMechanism(function=table.__getitem__, datasets=datasets, promise=UNORDERED.with_budget(0))
    result = audit(mechanism)
    assert (result.verdict, result.orders, result.untried) == (AuditVerdict.PASSED, 0, 3)
    assert "no law for 3 other orders of the same records, and 0 were tried" in result.in_words
    table[((2,), (1,))] = Law.certain("a")
    assert audit(mechanism).verdict is AuditVerdict.FAILED


def test_orders_of_plain_values_are_tried_too() -> None:
    first = FiniteMechanism(
        function=lambda x: Law.certain(x[0]), datasets=[(0, 1), (0, 2)], promise=UNORDERED.with_budget(0)
    )
    result = audit(first)
    assert result.verdict is AuditVerdict.FAILED
    assert "the same records in another order" in result.in_words


def test_the_promise_of_swapping_depends_on_the_universe() -> None:
    swap = PermutationSwap(match=["a", "b"], swap=["c", "d"], rate="1/2", hold=["e"])
    small, large = (
        promise_for(swap, [u]) for u in ((("a", "x"), ("b", "y")), tuple(zip("abcde", "vwxyz", strict=True)))
    )
    assert small is not None
    assert large is not None
    assert small.budget.realised < large.budget.realised


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (object(), "it has no law"),
        (FiniteMechanism(function=Law.certain, datasets=[], promise=PROMISE.with_budget(1)), "no dataset to audit"),
        (
            FiniteMechanism(function=lambda x: {x: 1}, datasets=[(1,), (2,)], promise=PROMISE.with_budget(1)),  # type: ignore[arg-type, return-value]
            "is a dict",
        ),
        (FiniteMechanism(function=Law.certain, datasets=[(1,)], promise=3), "its specification is a int"),  # type: ignore[arg-type]
        (FiniteMechanism(function=Law.certain, datasets=[(1,), (2,)], promise=PROMISE), "a letter without a value"),
    ],
)
def test_what_cannot_be_audited_is_explained(broken: Any, message: str) -> None:
    with pytest.raises(StirredError, match=message):
        audit(broken)


def test_the_loss_reported_is_exact() -> None:
    assert audit(coin(PURE, "2")).loss.high == ln(3)
    assert audit(coin(TOTAL_VARIATION, "1")).loss.high == exact("1/2")
