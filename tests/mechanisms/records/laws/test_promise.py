"""The promise of permutation swapping: what it says, that it follows from invariants alone, and that it is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred import Entropy, PermutationSwap
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError, PlanError
from stirred.mechanisms.records.law import tables_with_margins
from stirred.spec import protection_loss
from stirred.spec.document import from_json, to_json
from stirred.spec.exact import INFINITE, ZERO, exact, largest, ln
from stirred.spec.explanation import explain
from stirred.spec.multiverse import Multiverse
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import psa_epsilon, psa_sharp_epsilon
from tests.depth import examples
from tests.mechanisms.records.files import File, files
from tests.mechanisms.records.oracles import strata_rows
from tests.mechanisms.records.sampling import swapped

RATES = [Fraction(text) for text in ("1/100", "1/10", "1/3", "1/2", "3/4", "9/10", "99/100")]
HOMES = pl.DataFrame(
    {
        "serial": range(9),
        "size": [1, 1, 1, 1, 2, 2, 2, 3, 4],
        "county": list("ABABABACA"),
        "tract": [1, 2, 1, 2, 1, 1, 2, 1, 1],
        "tenure": ["own", "rent", "own", "rent", "own", "own", "own", "rent", "own"],
        "rooms": [1, 2, 3, 4, 5, 6, 7, 8, 9],
    }
)


def specification(homes: object = HOMES, **settings: object) -> Specification:
    chosen = {"match": ["size"], "swap": ["county"], "rate": "1/2", **settings}
    return PermutationSwap(**chosen).plan(homes).specification  # type: ignore[arg-type]


# ---- kept: audited by enumeration -----------------------------------------------------------------


def as_frame(dataset: object) -> pl.DataFrame:
    return pl.DataFrame({"hold": [h for h, _ in dataset], "county": [s for _, s in dataset]})  # type: ignore[attr-defined]


MORE_UNIVERSES = [tables_with_margins(h, s) for h, s in (("aabc", "xxyz"), ("aaab", "xyyy"), ("aabbb", "xxxyy"))]


@pytest.mark.parametrize("rate", RATES, ids=str)
def test_the_exact_loss_over_all_pairs_of_a_universe_stays_within_the_specification(rate: Fraction) -> None:
    """Theorem 1, audited: enumerate every dataset of a universe and every outcome, and take the supremum."""
    swap = PermutationSwap(match=[], swap=["county"], rate=rate)
    universes = [*swap.audit_universes(), *MORE_UNIVERSES]
    for universe in universes:
        laws = {dataset: swap.law(dataset) for dataset in universe}
        promise = swap.plan(as_frame(universe[0])).specification
        flavor = replace(promise.flavor, multiverse=Multiverse(universes=(frozenset(universe),)))
        (found,) = protection_loss(flavor, laws)
        assert found.loss.high <= promise.budget.realised, f"the pair {found.witness} loses more than promised"
        assert found.loss.high > 0 or len(universe) == 1 or rate == Fraction(1, 2)


@pytest.mark.parametrize(
    ("hold", "swap", "squared"),
    [("aab", "xxy", "4/3"), ("aaab", "xxxy", "15/7"), ("aabb", "xxyy", "19/4"), ("aabc", "xxyz", "27/4")],
)
def test_the_audit_finds_the_exact_losses_of_the_theory(hold: str, swap: str, squared: str) -> None:
    """Power: T6 and T7 of the swapping theory at 1/2, each half a logarithm; a promise below them is seen."""
    mechanism = PermutationSwap(match=[], swap=["county"], rate="1/2")
    universe = tables_with_margins(hold, swap)
    promise = mechanism.plan(as_frame(universe[0])).specification
    flavor = replace(promise.flavor, multiverse=Multiverse(universes=(frozenset(universe),)))
    (found,) = protection_loss(flavor, {dataset: mechanism.law(dataset) for dataset in universe})
    assert found.loss.low <= ln(exact(Fraction(squared))) / 2 <= found.loss.high
    assert found.loss.low > ZERO


def test_every_dataset_of_a_universe_gets_the_same_promise() -> None:
    swap = PermutationSwap(match=[], swap=["county"], rate="1/3")
    for universe in swap.audit_universes():
        assert len({to_json(swap.plan(as_frame(dataset)).specification) for dataset in universe}) == 1


# ---- from invariants alone ------------------------------------------------------------------------


@st.composite
def two_files_of_one_universe(draw: st.DrawFn) -> tuple[File, Microdata]:
    """A file, and another with the same margins: swap values rearranged inside strata, rows and ids anew."""
    file = draw(files())
    homes = file.data.households
    swap = list(file.swap.swap)
    groups = homes.with_row_index("row").group_by(file.match, maintain_order=True).agg("row") if file.match else None
    rows = groups["row"].to_list() if groups is not None else [list(range(homes.height))]
    source = list(range(homes.height))
    for group in rows:
        for place, taken in zip(group, draw(st.permutations(group)), strict=True):
            source[place] = taken
    new = homes.with_columns(homes.select(swap)[source].get_columns())
    numbers = draw(st.permutations(range(homes.height)))
    renamed = dict(zip(homes["hid"].to_list(), [7000 + number for number in numbers], strict=True))
    new = new.with_columns(pl.col("hid").replace_strict(renamed))[list(draw(st.permutations(range(homes.height))))]
    persons = file.persons
    if persons is not None:
        persons = persons.with_columns(pl.col("hid").replace_strict(renamed)).sample(fraction=1, shuffle=True, seed=1)
    return file, Microdata(households=new, persons=persons, hid="hid", id=file.data.id)


@settings(deadline=None, max_examples=examples(80))
@given(both=two_files_of_one_universe())
def test_a_plan_depends_on_the_invariants_alone(both: tuple[File, Microdata]) -> None:
    """Two files with the same margins and another interior: nothing in the plan may tell them apart."""
    file, other = both
    ours, theirs = file.swap.plan(file.data), file.swap.plan(other)
    assert to_json(ours.specification) == to_json(theirs.specification)
    assert strata_rows(ours.strata) == strata_rows(theirs.strata)
    assert ours.strata.frame("permutation").equals(theirs.strata.frame("permutation"))
    assert ours.strata.moved == theirs.strata.moved
    assert (ours.hold, ours.dropped, ours.own_loss) == (theirs.hold, theirs.dropped, theirs.own_loss)


def test_doubts_depend_on_the_invariants_alone_or_say_that_they_look_further() -> None:
    """A custodian acts upon doubts, so settings would depend on what a doubt has looked at (condition 3)."""
    swap = PermutationSwap(match=[], swap=["county"], rate="1/2")
    tells = pl.DataFrame({"county": list("AABB") * 20, "kind": list("xxyy") * 20})
    tells_not = pl.DataFrame({"county": list("ABAB") * 20, "kind": list("xxyy") * 20})
    (inside,) = swap.plan(tells).doubts
    assert swap.plan(tells_not).doubts == ()
    assert inside.name == "tells:kind"
    assert "(this looks inside the file: correct the column's role by what it is" in inside.whole_remedy


@settings(deadline=None, max_examples=examples(60))
@given(file=files())
def test_strata_sizes_liveness_and_loss_agree_with_plain_counting(file: File) -> None:
    plan = file.swap.plan(file.data)
    hold = [*file.hold]
    found: dict[object, list[tuple[object, object]]] = {}
    people: dict[object, list[object]] = {}
    if file.persons is not None:
        for hid, *values in file.persons.select("hid", "age", "sex").rows():
            people.setdefault(hid, []).append(tuple(values))
    for row in file.data.households.to_dicts():
        inside = tuple(sorted(people.get(row["hid"], []), key=repr))
        held, swapped = (*(row[n] for n in hold), inside), tuple(row[n] for n in file.swap.swap)
        found.setdefault(tuple(row[n] for n in file.match), []).append((held, swapped))
    losses, paper = [ZERO], [ZERO]
    for stratum in strata_rows(plan.strata):
        records = found.pop(stratum.values)
        live = all(len(set(values)) > 1 for values in zip(*records, strict=True))
        assert (stratum.records, stratum.live) == (len(records), live)
        losses.append(psa_sharp_epsilon(stratum.rates.lowest, stratum=len(records) if live else 0))
        paper.append(psa_epsilon(stratum.rates.lowest, largest_stratum=len(records) if live else 0))
    assert not found, "a stratum is missing"
    assert plan.paper_epsilon == largest(paper)
    if any(stratum.live and stratum.rates.lowest == 1 for stratum in strata_rows(plan.strata)):
        assert plan.epsilon <= largest(losses)  # R2: the enumerated loss at rate 1 may be finite
    else:
        assert plan.epsilon == largest(losses)


def test_a_plan_uses_no_randomness(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a plan asked for randomness")

    monkeypatch.setattr(Entropy, "from_os", refuse)
    monkeypatch.setattr(Entropy, "from_seed", refuse)
    monkeypatch.setattr("os.urandom", refuse)
    PermutationSwap(match=["size"], swap=["county"], rate="1/2").plan(HOMES)


# ---- what it says ---------------------------------------------------------------------------------


def test_the_invariants_are_written_out_in_the_custodians_names() -> None:
    words = [str(invariant) for invariant in specification(hold=["tenure", "rooms"]).multiverse.invariants]
    assert words == [
        "number of households by size x county",
        "number of households by size x tenure x rooms",
    ]
    shown = explain(specification(match=[], swap=["county", "tract"], hold=["tenure"], unit="dwelling")).not_protected
    assert shown[:2] == ("the number of dwellings by county x tract", "the number of dwellings by tenure")


def test_persons_are_part_of_the_hold_invariant() -> None:
    data = Microdata(households=HOMES, persons=pl.DataFrame({"serial": [0, 1], "age": [30, 40]}), hid="serial")
    invariant = specification(data).multiverse.invariants[1]
    assert "all characteristics of its persons" in str(invariant)
    assert invariant.includes == ("person",)  # type: ignore[union-attr]
    assert specification(data).domain.record_types == ("household", "person")


def test_the_largest_live_stratum_counts_and_larger_dead_ones_do_not() -> None:
    """Size 1 has four records that differ; a stratum of six equal households cannot change."""
    dead = pl.DataFrame({"size": [9] * 6, "county": list("ABABAB"), "tenure": ["own"] * 6})
    homes = pl.concat([HOMES.select("size", "county", "tenure"), dead])
    plan = PermutationSwap(match=["size"], swap=["county"], rate="1/3").plan(homes)
    assert plan.strata.records.max() == 6
    assert plan.strata.largest_live is not None
    assert plan.strata.largest_live.records == 4
    assert plan.paper_epsilon == psa_epsilon(Fraction(1, 3), largest_stratum=4) == ln(10)
    assert plan.epsilon == psa_sharp_epsilon(Fraction(1, 3), stratum=4) == ln(6)  # half of ln 9, and ln 2


def test_persons_alone_can_make_a_stratum_live() -> None:
    homes = pl.DataFrame({"hid": [1, 2], "county": ["A", "B"], "tenure": ["own", "own"]})
    swap = PermutationSwap(match=[], swap=["county"], rate="1/10")
    assert swap.plan(Microdata(households=homes, hid="hid")).epsilon == 0
    for ages, loss in (([30, 40], ln(9)), ([30, 30], ZERO)):
        people = pl.DataFrame({"hid": [1, 2], "age": ages})
        assert swap.plan(Microdata(households=homes, persons=people, hid="hid")).epsilon == loss


@pytest.mark.parametrize("rate", ["0", "1/2", "1"])
@pytest.mark.parametrize("column", ["county", "tenure"])
def test_without_a_live_stratum_the_loss_is_0_at_every_rate(rate: str, column: str) -> None:
    """R2, T11: the universe holds one dataset. Constant swap values or constant hold values."""
    homes = HOMES.select("size", "county", "tenure").with_columns(pl.lit("same").alias(column))
    assert specification(homes, rate=rate).budget.realised == 0


@pytest.mark.parametrize("rate", ["0", "1"])
def test_at_rates_0_and_1_a_live_stratum_has_infinite_loss(rate: str) -> None:
    promise = specification(rate=rate)
    assert promise.budget.realised == INFINITE
    assert json.loads(to_json(promise))["budget"]["realised"] == "inf"


def test_strata_with_rates_of_their_own_lose_the_largest_of_their_losses() -> None:
    """R0': the largest over the strata; a rate of 0 where nothing is live costs nothing."""
    rules = [{"size": 2, "rate": "1/10"}, {"size": 3, "rate": 0}, {"size": 4, "rate": 1}]
    promise = specification(rates=rules)
    assert promise.budget.realised == largest(
        [psa_sharp_epsilon(Fraction(1, 2), stratum=4), psa_sharp_epsilon(Fraction(1, 10), stratum=3)]
    )


def test_the_table_of_strata_shows_size_liveness_rate_and_expected_share_moved() -> None:
    plan = PermutationSwap(match=["size"], swap=["county"], rate="1/2", rates=[{"size": 2, "rate": "1/4"}]).plan(HOMES)
    frame = plan.strata.frame("permutation")
    own = ["stratum_records", "stratum_live", "stratum_law", "stratum_rate", "stratum_expected_share_moved"]
    assert frame.columns == ["size", *own]
    assert frame.drop("stratum_expected_share_moved").rows() == [
        (1, 4, True, "permutation", "1/2"),
        (2, 3, True, "permutation", "1/4"),
        (3, 1, False, "permutation", "1/2"),
        (4, 1, False, "permutation", "1/2"),
    ]
    moved = [Fraction(1, 2) * (1 - Fraction(1, 8)) / (1 - 4 * Fraction(1, 16)), None, 0, 0]
    p, n = Fraction(1, 4), 3
    moved[1] = p * (1 - (1 - p) ** (n - 1)) / (1 - n * p * (1 - p) ** (n - 1))
    assert frame["stratum_expected_share_moved"].to_list() == pytest.approx([float(share or 0) for share in moved])


@pytest.mark.parametrize(
    ("rate", "records", "share"),
    [("1/2", 2, Fraction(1, 2)), ("1/2", 3, Fraction(3, 5)), ("1/10", 5, Fraction(3439, 67195))],
)
def test_the_expected_share_moved_remembers_the_redraw(rate: str, records: int, share: Fraction) -> None:
    """T13 of the swapping theory (R3.1): section 3.3 of the paper forgets it."""
    homes = pl.DataFrame({"county": range(records), "kind": range(records)})
    plan = PermutationSwap(match=[], swap=["county"], rate=rate).plan(homes)
    assert plan.strata.moved == pytest.approx(float(share))


@pytest.mark.parametrize(
    "condition",
    [
        "fixed beforehand, or depend on the invariants alone",  # 3
        "nor which records were selected, nor how many",  # 2
        "accuracy measured against the confidential file",  # 2
        "no edit or structural zero is enforced by drawing again",  # 5
        "a later release chosen after seeing this one keeps its own budget",  # 8
        "the one run of the plan, not one chosen among several",  # 2
        "operating system's generator",  # 7
    ],
)
def test_the_conditions_of_use_that_code_cannot_enforce_are_stated_as_assumptions(condition: str) -> None:
    """docs/theory/conditions.md; conditions 1, 4, 6 and 7 are enforced (order, plan, Theorem 1, entropy)."""
    assert any(condition in assumption for assumption in specification().assumptions)


def test_a_rate_that_depends_on_what_is_not_released_is_refused() -> None:
    """Condition 3 of use, and R8e: a flag beside the released columns is made from who knows what."""
    with pytest.raises(PlanError, match=r"rates may depend on match, hold and swap variables only, not on \"risk\""):
        specification(hold=["tenure"], rates=[{"risk": "high", "rate": "1/10"}])


def test_the_four_other_blocks_are_those_of_theorem_1() -> None:
    promise = specification(settings_from="policy")
    assert promise.output_premetric.symbol == "D_Mult"
    assert (promise.input_premetric.name, promise.input_premetric.unit) == ("d_HamS", "household")
    assert promise.multiverse.nearest == 2
    assert promise.settings_from == "policy"
    assert not promise.seeded
    assert promise.theorem[0].startswith("R1 and R2")
    assert promise.theorem[1].startswith("Theorem 1")
    assert promise.budget.paper_epsilon == ln(5) > promise.budget.realised


@settings(deadline=None, max_examples=examples(60))
@given(file=files())
def test_a_specification_survives_the_trip_through_json(file: File) -> None:
    promise = file.swap.plan(file.data).specification
    assert from_json(to_json(promise)) == promise


# ---- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"swap": []}, "nothing is swapped"),
        ({"match": ["county"], "swap": ["county"]}, '"county" has two roles'),
        ({"hold": ["county"]}, '"county" has two roles'),
        ({"rates": [{"size": 1}]}, "a rule without a rate"),
        ({"rates": [{"rate": "1/2"}]}, "a rule for nothing"),
        ({"rates": [{"size": 99, "rate": "1/2"}]}, "no record has size = 99"),
        ({"hold": []}, "there is nothing to hold besides the match variables"),
    ],
)
def test_a_swap_that_makes_no_sense_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError) as caught:
        specification(**settings)
    assert message in str(caught.value)
    assert all(problem.remedy and problem.where for problem in caught.value.problems)


@pytest.mark.parametrize("rate", ["7/4", -0.5, "1.0001", "half", "", float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate: object) -> None:
    from stirred.spec.problems import StirredError

    with pytest.raises(StirredError):
        specification(rate=rate)


@pytest.mark.parametrize("rate", ["1/20", "5%", "0.05", 0.05, Fraction(1, 20)])
def test_rates_are_read_exactly(rate: object) -> None:
    assert PermutationSwap(match=[], swap=["county"], rate=rate).swap_law.rate == Fraction(1, 20)


def test_unnamed_columns_are_dropped_and_listed_when_hold_is_given() -> None:
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2", hold=["tenure"])
    assert swap.plan(HOMES).dropped == ("serial", "tract", "rooms")
    assert swapped(swap, HOMES, Entropy.from_os()).public["data"].columns == ["size", "county", "tenure"]


def test_an_identifier_cannot_be_matched_swapped_or_held() -> None:
    data = Microdata(households=HOMES, id=("serial",))
    for role in ("match", "swap", "hold"):
        with pytest.raises(DataError, match=f'"serial" is an identifier and cannot be a {role} variable'):
            specification(data, **{role: ["serial"]})
