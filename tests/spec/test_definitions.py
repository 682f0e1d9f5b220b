"""The atlas of definitions: every toy by exact enumeration, and which definition implies which."""

from __future__ import annotations

import math
from collections.abc import Hashable
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import pytest

from stirred.spec import (
    INFINITE,
    PURE,
    Budget,
    Exact,
    Flavor,
    InputPremetric,
    Law,
    Multiverse,
    Named,
    OutputPremetric,
    Specification,
    SpecificationError,
    approximate,
    catalogue,
    exact,
    ln,
    protection_loss,
)
from stirred.spec.catalogue import atlas
from stirred.spec.explanation import explain
from stirred.spec.implication import factor, implies, universes
from stirred.spec.input_premetric import allowance
from stirred.spec.multiverse import Verdict
from stirred.survey.programme import worst_loss
from tests.spec.strategies import law, specification

NAMES = catalogue.names("definition")
ENCLOSED = ("gaussian-dp", "zcdp", "renyi-dp")  # distances known between two bounds


def pairs(toy: atlas.Toy, laws: Any) -> list[tuple[Any, Exact]]:
    """Return the change between the laws of every ordered pair that is compared, and what the toy's budget allows."""
    flavor = toy.specification.flavor
    return [
        (flavor.output_premetric.distance(laws[x], laws[y]), allowance(budget, far))
        for universe, budget in universes(toy.specification, list(laws))
        for x, y in permutations([each for each in laws if each in universe], 2)
        if not (far := flavor.input_premetric.distance(x, y)).is_infinite
    ]


# -- every row of the catalogue -------------------------------------------------------------------


def test_there_are_thirty_definitions_and_the_named_ones_are_among_them() -> None:
    assert len(NAMES) >= 30
    asked = ["pure-dp", "unbounded-dp", "local-dp", "label-dp", "attribute-dp", "event-dp", "user-dp", "group-dp",
             "metric-dp", "blowfish", "pufferfish", "one-sided-dp", "free-lunch", "edge-dp", "node-dp",
             "personalised-dp"]  # fmt: skip
    assert set(asked) <= set(NAMES)
    assert {"random-dp", "computational-dp", "probabilistic-dp"} <= set(atlas.absent())


@pytest.mark.parametrize("name", NAMES)
def test_the_toy_satisfies_the_definition_and_attains_its_budget(name: str) -> None:
    toy = atlas.toy(name)
    found = pairs(toy, toy.laws)
    assert found
    slack = exact("1/1000000000")
    assert all(change.low <= most + slack for change, most in found)
    if name not in ENCLOSED:
        assert all(change.high <= most for change, most in found)
    assert any(change.high + slack >= most for change, most in found)


@pytest.mark.parametrize("name", NAMES)
def test_the_broken_toy_exceeds_the_budget_of_the_definition(name: str) -> None:
    toy = atlas.toy(name)
    assert any(change.low > most for change, most in pairs(toy, toy.broken))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "stratified-dp"])
def test_the_broken_toy_loses_what_is_stated(name: str) -> None:
    toy = atlas.toy(name)
    rate = toy.specification.output_premetric.to_distance(toy.specification.budget.realised)
    found = [(change, float(most / rate)) for change, most in pairs(toy, toy.broken) if most != 0]
    low, high = (max(float(getattr(change, end)) / far for change, far in found) for end in ("low", "high"))
    stated = float(toy.specification.output_premetric.to_distance(toy.broken_loss))
    assert low - 1e-9 <= stated <= high + 1e-9 or low == stated
    assert low == high or high - low < (1e-6 if name in ENCLOSED else 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_definition_is_a_specification_with_an_open_budget(name: str) -> None:
    entry = catalogue.load(name)
    assert entry.kind == "definition"
    assert entry.specification.budget.is_free
    assert entry.title
    assert entry.source
    assert explain(entry.specification.with_budget("1")).how_to_read


@pytest.mark.parametrize("name", list(atlas.absent()))
def test_a_definition_that_does_not_fit_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        catalogue.load(name)
    assert atlas.absent()[name] in caught.value.problems[0].what


# -- what the rows say besides --------------------------------------------------------------------


def flavored(premetric: InputPremetric, output: OutputPremetric, **named: Any) -> Flavor:
    invariants = tuple(Named(name=name, function=function) for name, function in named.items())
    one = specification(output, 1, premetric=premetric)
    return Flavor(domain=one.domain, multiverse=Multiverse(invariants=invariants), input_premetric=premetric,
                  output_premetric=output)  # fmt: skip


def worst(flavor: Flavor, laws: Any) -> Exact:
    return max(one.loss.high for one in protection_loss(flavor, laws))


RECORDS = InputPremetric(name="d_Ham", unit="record")
ONE_STEP = InputPremetric(name="d_HamS", unit="record", within=1)


@pytest.mark.parametrize(("name", "loss"), [("laws", ln(Fraction(8, 3))), ("broken", ln(Fraction(231, 64)))])
def test_shuffling_gains_in_the_approximate_measure_only(name: str, loss: Exact) -> None:
    assert worst(flavored(ONE_STEP, approximate("1/16")), getattr(atlas.toy("shuffle-dp"), name)) == loss


def test_what_a_weaker_definition_accepts_can_be_worthless_for_a_stronger() -> None:
    """Label, noiseless, one-sided and individual: the same toys under the stronger definition."""
    assert worst(flavored(RECORDS, PURE), atlas.toy("label-dp").laws) == INFINITE
    noiseless, one_sided, individual = (atlas.toy(name) for name in ("noiseless", "one-sided-dp", "individual-dp"))
    assert worst(flavored(noiseless.specification.input_premetric, PURE), noiseless.laws) == INFINITE
    assert worst(flavored(one_sided.specification.input_premetric, PURE), one_sided.laws) == INFINITE
    assert worst(flavored(RECORDS, PURE), individual.laws) == INFINITE


def test_three_unknown_bits_are_too_few_for_an_eighth() -> None:
    sums = {("0",): law(1, 2, 1, 0), ("1",): law(0, 1, 2, 1)}
    same = InputPremetric(name="d_Given", unit="secret", relation="same model", table=(("0", "1", exact(1)),))
    assert worst(flavored(same, approximate("1/8")), sums) == INFINITE
    assert worst(flavored(same, approximate("1/4")), sums) != INFINITE


@pytest.mark.parametrize(("kind", "odds"), [("laws", 3), ("broken", 4)])
def test_the_laws_of_pufferfish_are_mixtures_of_randomised_response(kind: str, odds: int) -> None:
    """Two bits with correlation c, the first one secret; the rows are computed again from the model."""
    keep = Fraction(odds, odds + 1)
    found = getattr(atlas.toy("pufferfish"), kind)
    losses = []
    for correlation in (Fraction(0), Fraction(1, 2), Fraction(1)):
        for secret in (0, 1):
            second = [(1 + correlation) / 2 if bit == secret else (1 - correlation) / 2 for bit in (0, 1)]
            rows = [
                (keep if a == secret else 1 - keep)
                * sum(second[bit] * (keep if b == bit else 1 - keep) for bit in (0, 1))
                for a, b in product((0, 1), repeat=2)
            ]
            assert found[(f"{secret}|{correlation}",)] == Law(dict(enumerate(rows)))
        two = [found[(f"{secret}|{correlation}",)] for secret in (0, 1)]
        losses.append(PURE.distance(*two).high)
    assert losses == ([ln(3), ln(5), ln(9)] if odds == 3 else [ln(4), ln(Fraction(52, 7)), ln(16)])


def test_conditioning_on_what_is_published_can_raise_a_loss_of_ln_2_to_ln_3() -> None:
    whole = Law({0: Fraction(2, 16), 1: Fraction(4, 16), 2: Fraction(10, 16)})
    other = Law({0: Fraction(1, 16), 1: Fraction(8, 16), 2: Fraction(7, 16)})
    assert PURE.distance(whole, other).high == ln(2)
    assert PURE.distance(law(2, 4), law(1, 8)).high == ln(3)


def test_a_projection_that_is_published_exactly_is_an_invariant() -> None:
    """Subspace privacy of (sum, noisy difference): infinite as it stands, ln 2 where the sum is fixed."""
    noisy = {-1: law(4, 1, 1), 0: law(2, 2, 2), 1: law(1, 1, 4)}
    laws = {x: Law.certain(sum(x)).times(noisy[x[0] - x[1]]) for x in product((0, 1), repeat=2)}
    assert worst(flavored(RECORDS, PURE), laws) == INFINITE
    assert worst(flavored(RECORDS, PURE, total=sum), laws) == ln(2)


def test_random_privacy_is_not_decided_pair_by_pair() -> None:
    """On a path of four datasets, a third of the steps excused, each cut passes and all of them together do not."""
    path = range(4)
    cuts = [[int(x > cut) for x in path] for cut in range(3)]

    def passes(values: list[Any]) -> bool:
        broken = sum(values[x] != values[x + 1] for x in range(3))
        return Fraction(broken, 3) <= Fraction(1, 3)

    assert all(passes(cut) for cut in cuts)
    assert not passes(list(zip(*cuts, strict=True)))
    # Whatever five blocks accept of single cuts they accept of their pairs: each pair is told apart by one of the cuts.
    assert all(any(cut[x] != cut[y] for cut in cuts) for x, y in combinations(path, 2))


def test_mutual_information_is_not_decided_pair_by_pair() -> None:
    def information(blocks: list[int]) -> float:
        return -sum(size / 3 * math.log(size / 3) for size in blocks)

    assert information([1, 2]) == pytest.approx(0.6365141683, abs=1e-9)
    assert information([1, 1, 1]) == pytest.approx(math.log(3), abs=1e-9)


# -- which implies which --------------------------------------------------------------------------

FACTORS = {
    ("free-lunch", "generic-dp"): ("1", "inf"),
    ("free-lunch", "user-dp"): ("1", "2"),
    ("free-lunch", "group-dp"): ("1", "2"),
    ("user-dp", "event-dp"): ("1", "2"),
    ("group-dp", "pure-dp"): ("1", "2"),
    ("unbounded-dp", "shuffle-dp"): ("2", "inf"),
    ("unbounded-dp", "per-record-dp"): ("1/ln(2)", "ln(4)"),
    ("shuffle-dp", "pure-dp"): ("1", "inf"),
    ("node-dp", "edge-dp"): ("1", "2"),
    ("pure-dp", "blowfish"): ("1", "2"),
    ("pure-dp", "metric-dp"): ("1", "2"),
    ("pure-dp", "attribute-dp"): ("1", "2"),
    ("pure-dp", "label-dp"): ("1", "inf"),
    ("pure-dp", "invariants-dp"): ("1", "inf"),
    ("pure-dp", "individual-dp"): ("1", "inf"),
    ("pure-dp", "one-sided-dp"): ("1", "inf"),
    ("pure-dp", "personalised-dp"): ("1/ln(2)", "ln(3)"),
    ("metric-dp", "geo-indistinguishability"): ("1", "1"),
    ("invariants-dp", "semi-dp"): ("2", "1/2"),
}


def test_the_map_decides_the_factors_of_the_atlas() -> None:
    found = {(a.stronger, a.weaker): (a.there, a.back) for a in atlas.arrows() if a.how == "decided"}
    assert found == {pair: (exact(there), exact(back)) for pair, (there, back) in FACTORS.items()}


def test_every_definition_is_on_the_map_and_every_arrow_has_its_reason() -> None:
    arrows = atlas.arrows()
    assert {name for a in arrows for name in (a.stronger, a.weaker)} == set(NAMES)
    assert all(a.because for a in arrows)
    assert len({(a.stronger, a.weaker) for a in arrows}) == len(arrows)


BITS = list(product((0, 1), repeat=3))


def on_bits(name: str, **settings: Any) -> Flavor:
    return flavored(InputPremetric(name=name, unit="record", **settings), PURE)


@pytest.mark.parametrize(
    ("a", "b", "there", "back"),
    [
        (on_bits("d_Ham"), on_bits("d_Ham", within=3), 3, 1),  # free-lunch: all are neighbours
        (on_bits("d_Ham"), on_bits("d_Ham", within=2, closure=True), 2, 1),
        (on_bits("d_Ham"), on_bits("d_Ham", within=1), 1, 1),  # neighbours and metric are equivalent on all of {0,1}^n
        (on_bits("d_HamS"), on_bits("d_Ham"), 1, INFINITE),
        (on_bits("d_SymDiff"), on_bits("d_HamS"), 2, Fraction(1, 2)),  # the size is fixed here
    ],
)
def test_factors_by_closure_on_three_bits(a: Flavor, b: Flavor, there: Any, back: Any) -> None:
    assert (factor(a, b, BITS), factor(b, a, BITS)) == (exact(there), exact(back))


def test_arrows_that_are_stated_hold_for_the_toys() -> None:
    # Local: each bit answered with odds 3 gives ln 3 for a file of two.
    assert worst(flavored(RECORDS, PURE), atlas.toy("pure-dp").laws) == ln(3)
    # Pufferfish: never above the loss between any two files, which mixtures attain at correlation 1.
    assert (
        atlas.toy("pufferfish").specification.budget.realised <= atlas.toy("free-lunch").specification.budget.realised
    )
    # A sample: randomised response with odds 3 loses ln 3 itself, and less for a population that is sampled.
    sampled = atlas.toy("sampled-dp")
    assert sampled.specification.budget.realised < ln(3)
    assert sampled.broken_loss < ln(3)
    # Noiseless: delta excuses, so a pure bound for the same laws is a bound too.
    for name in ("laws", "broken"):
        both = list(getattr(atlas.toy("pufferfish"), name).values())
        assert approximate("1/4").distance(*both[:2]).high <= PURE.distance(*both[:2]).high
    # Blowfish: the policy graph as a relation, and its closure.
    path = atlas.toy("blowfish").specification.flavor
    steps = flavored(InputPremetric(**{**_facts(path.input_premetric), "closure": False}), PURE)
    values = [("0",), ("1",), ("2",)]
    assert factor(steps, path, values) == factor(path, steps, values) == 1


def test_arrows_say_where_they_hold() -> None:
    said = {(a.stronger, a.weaker): f"{a.words} {a.because}" for a in atlas.arrows()}
    # Of three persons two are drawn, of two both: with a person less, one sample is certain.
    drawn: dict[tuple[Hashable, ...], Fraction] = {s: Fraction(1, 3) for s in combinations("iab", 2)}
    found = worst_loss(drawn, {("a", "b"): Fraction(1)}, 1.0, relation="add-remove")
    assert found == pytest.approx(math.log((2 * math.e**2 + 1) / 3))
    assert f"fixed size can lose more (2 of 3 persons: {found:.2f} for 1)" in said["unbounded-dp", "sampled-dp"]
    assert "independent draws" in said["unbounded-dp", "sampled-dp"]
    # A constraint that excludes the middle of a path of two steps leaves no neighbours.
    path = atlas.toy("blowfish").specification.flavor
    steps = flavored(InputPremetric(**{**_facts(path.input_premetric), "closure": False}), PURE)
    assert factor(steps, path, [("0",), ("2",)]) == INFINITE
    assert "no constraints" in said["generic-dp", "blowfish"]
    # Where the nearest files that agree are four records apart, `within 2` promises nothing.
    far = [(0, 0, 1, 1), (1, 1, 0, 0)]
    assert factor(on_bits("d_Ham"), on_bits("d_Ham", within=2), far) == 0
    assert factor(on_bits("d_Ham", within=2), on_bits("d_Ham"), far) == INFINITE
    assert factor(on_bits("d_Ham"), on_bits("d_Ham", within=4), far) == 4
    assert said["invariants-dp", "semi-dp"].startswith("sums: ")
    assert any("within 2 would promise nothing" in note for note in catalogue.load("semi-dp").notes)


def _facts(premetric: InputPremetric) -> dict[str, Any]:
    return {key: getattr(premetric, key) for key in ("name", "unit", "relation", "table", "directed")}


def test_the_smallest_budget_under_invariants_implies_the_budgets_by_universe() -> None:
    toy = atlas.toy("stratified-dp").specification
    constant = toy.with_budget("0")
    assert implies(constant, toy, BITS)
    between = {x for x in BITS if sum(x) in (1, 2)}
    assert implies(toy.with_budget("ln(2)"), toy, sorted(between))
    assert implies(toy.with_budget("ln(3)"), toy, sorted(between)).verdict is Verdict.NO


def test_changing_nothing_but_the_size_of_steps_is_told_apart() -> None:
    """Two flavors of the catalogue that the map does not join: neither edges nor records imply the other way at 1."""
    edge, node = (catalogue.load(name).specification.flavor for name in ("edge-dp", "node-dp"))
    graphs = atlas.domain("graphs 3")
    assert factor(edge, node, graphs) == 2
    one, two = (Specification(flavor=each, budget=Budget.constant(1)) for each in (edge, node))
    assert implies(two, one, graphs)
    refused = implies(one, two, graphs)
    assert refused.verdict is Verdict.NO
    assert refused.pair is not None
    assert node.input_premetric.distance(*refused.pair) < edge.input_premetric.distance(*refused.pair)
