"""The member that fits the wishes: files for which the right answer is known by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.data.synth.massachusetts import massachusetts_1940
from stirred.release.advice import Advice, propose, wishes_for
from stirred.spec.problems import StirredError
from stirred.utility.comparison import smallest_area
from tests.mechanisms.records.oracles import exact_moves


def homes(*strata: Mapping[str, int]) -> pl.DataFrame:
    """Return a file with one stratum of ``size`` for each mapping of counties to records; all hold values differ."""
    rows = [(size, county) for size, areas in enumerate(strata) for county, n in areas.items() for _ in range(n)]
    return pl.DataFrame(rows, schema=["size", "county"], orient="row").with_columns(row=pl.int_range(pl.len()))


def named(advice: Advice, name: str) -> object:
    return next(each for each in advice.proposals if each.name == name)


# ---- each member where it is the right one ------------------------------------------------------------


def rate_of(proposal: Any) -> Fraction:
    return Fraction(proposal.mechanism.swap_law.rate)


def test_a_large_stratum_and_a_small_epsilon_want_the_uniform_conditioned_swap() -> None:
    """Its loss is ln(1 + S/o): 2 at odds of 3/(e^2 - 1), whatever the size; others must move far more."""
    advice = propose(homes({"A": 9_000, "B": 900, "C": 100}), swap="county", epsilon=2)
    assert advice.chosen is not None
    assert advice.chosen.name == "conditioned, uniform"
    odds = 3 / (math.e**2 - 1)
    rate = math.ceil(1e4 * odds / (1 + odds))
    assert rate_of(advice.chosen) == Fraction(rate, 10_000)
    assert advice.chosen.epsilon <= advice.wishes.epsilon  # type: ignore[operator]
    others = [each.changed for each in advice.proposals[1:] if not each.unmet]
    assert len(others) == 3
    assert min(others) > advice.chosen.changed + 0.01
    assert advice.wishes.match == ()


def test_a_small_area_that_must_stay_wants_the_proportional_one() -> None:
    """Uniform redraws change a tenth of a tenth of the file six times as often; proportional ones by size."""
    file = homes({"A": 9_000, "B": 900, "C": 100})
    free = propose(file, swap="county")
    assert free.chosen is not None
    assert free.chosen.name == "conditioned, uniform"
    careful = propose(file, swap="county", undisturbed=["C"], at_most="30%")
    assert careful.chosen is not None
    assert careful.chosen.name == "conditioned, proportional"
    rate = rate_of(careful.chosen)
    odds = float(rate / (1 - rate))
    by_hand = 0.5 * (math.log(1 + 100 / odds) + math.log(1 + 10_000 / 900 / odds))
    assert float(careful.chosen.epsilon) == pytest.approx(by_hand, abs=1e-6)
    ((area, share),) = careful.chosen.undisturbed
    assert str(area) == "C"
    assert share <= 0.3
    uniform = named(careful, "conditioned, uniform")
    assert [wish for wish, _ in uniform.unmet] == ["undisturbed"]  # type: ignore[attr-defined]


def test_strata_of_single_records_and_unlike_size_want_the_mallows_swap() -> None:
    """All values differ: conditioned and Mallows coincide in each stratum, but one rate does not fit all of them."""
    file = homes({f"a{n}": 1 for n in range(200)}, *({f"a{n}": 1 for n in range(40)} for _ in range(5)))
    advice = propose(file, swap="county", exact=["county x size"], changed="20%")
    assert advice.chosen is not None
    assert advice.chosen.name == "mallows"
    assert advice.wishes.match == ("size",)
    # It takes its movers from the largest stratum: who lives there and must stay excludes it.
    stays = propose(
        file, swap="county", exact=["county x size"], changed="20%", undisturbed=["county=a199"], at_most="25%"
    )
    assert stays.chosen is not None
    assert stays.chosen.name == "conditioned, uniform"
    assert [wish for wish, _ in named(stays, "mallows").unmet] == ["undisturbed"]  # type: ignore[attr-defined]


def test_pairs_and_a_tiny_epsilon_want_the_permutation_swap_at_one_half() -> None:
    """T1: a stratum of two at rate 1/2 has loss 0; redraws and shuffles come close to 0 at rate 1 only."""
    advice = propose(
        homes(*({"A": 1, "B": 1} for _ in range(50))), swap="county", exact=["county x size"], epsilon="1e-4"
    )
    assert advice.chosen is not None
    assert advice.chosen.name == "permutation"
    assert rate_of(advice.chosen) == Fraction(1, 2)
    assert str(advice.chosen.epsilon) == "0"


# ---- what is proposed is what was promised ----------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [None, 1, 4, 12])
@pytest.mark.parametrize("exact", [[], ["county x size"]])
def test_every_proposal_has_the_loss_and_the_shares_of_its_own_plan(epsilon: int | None, exact: list[str]) -> None:
    file = homes({"A": 300, "B": 120, "C": 30}, {"A": 40, "B": 50}, {"C": 9})
    advice = propose(file, swap="county", exact=exact, epsilon=epsilon, undisturbed=["C"])
    for each in advice.proposals:
        plan = each.mechanism.plan(file)
        assert plan.epsilon == each.epsilon, each.name
        areas = each.mechanism.areas_changed(plan)
        assert areas is not None
        assert areas.equals(each.areas), each.name
        assert plan.specification.settings_from == "invariants"
        assert plan.specification.multiverse == advice.plan.specification.multiverse


@pytest.mark.parametrize("name", ["permutation", "conditioned, uniform", "conditioned, proportional", "shuffle"])
def test_a_step_gentler_would_miss_a_wish(name: str) -> None:
    """The setting is the gentlest: at a hundredth of a percent less the loss or the share changed falls short."""
    file = homes({"A": 300, "B": 120, "C": 30}, {"A": 40, "B": 50})
    for epsilon in ("6", None):
        advice = propose(file, swap="county", epsilon=epsilon)
        each = named(advice, name)
        assert not each.unmet  # type: ignore[attr-defined]
        gentler = each.mechanism.with_settings(rate=rate_of(each) - Fraction(1, 10_000))  # type: ignore[attr-defined]
        plan = gentler.plan(file)
        areas = gentler.areas_changed(plan)
        changed = (areas["records"] * areas["share_changed"]).sum() / areas["records"].sum()
        assert changed < 0.05 or plan.epsilon > advice.wishes.epsilon


def test_the_numbers_follow_from_the_invariants() -> None:
    """Another file with the same margins gets the same advice (condition 3 of use): only who holds what differs."""
    file = homes({"A": 60, "B": 30, "C": 10}, {"A": 5, "B": 5})
    file = file.with_columns(tenure=pl.when(pl.col("row") % 2 == 0).then(pl.lit("owned")).otherwise(pl.lit("rented")))
    other = file.with_columns(county=pl.col("county").reverse().over("size"))
    assert not file.equals(other)
    first, second = (
        propose(each.drop("row"), swap="county", exact=["county x size"], epsilon=3, undisturbed=["C"])
        for each in (file, other)
    )
    for one, two in zip(first.proposals, second.proposals, strict=True):
        assert (one.name, one.setting, one.epsilon, one.changed) == (two.name, two.setting, two.epsilon, two.changed)


def test_shares_of_small_strata_are_those_of_the_law() -> None:
    file = homes(*({"A": 2, "B": 2} for _ in range(25)))
    advice = propose(file, swap="county", exact=["county x size"], epsilon=2, changed="1%")
    uniform = named(advice, "conditioned, uniform")
    rate = rate_of(uniform)
    moves = exact_moves((2, 2), rate, [Fraction(1, 2)] * 2)
    assert uniform.changed == pytest.approx(float(1 - moves[0][0]), rel=1e-7)  # type: ignore[attr-defined]


# ---- Massachusetts -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def massachusetts() -> pl.DataFrame:
    return massachusetts_1940()


def test_massachusetts_at_three_is_met_by_the_uniform_law_unless_nantucket_must_stay(
    massachusetts: pl.DataFrame,
) -> None:
    met = propose(massachusetts, swap="county", epsilon=3)
    assert met.chosen is not None
    assert met.chosen.name == "conditioned, uniform"
    name, _, share = smallest_area(met.chosen.areas)
    assert name == "Nantucket"
    assert share > 0.9
    refused = propose(massachusetts, swap="county", epsilon=3, undisturbed=["Nantucket"])
    assert refused.chosen is None
    ways = {each.name: [wish for wish, _ in each.unmet] for each in refused.proposals}
    assert ways["conditioned, uniform"] == ["undisturbed"]
    # At 10% by size: half of ln(1 + 9/pi) for the two smallest shares, Nantucket's and Dukes'.
    assert propose(massachusetts, swap="county", epsilon="8.9", undisturbed=["Nantucket"]).chosen is None
    reached = propose(massachusetts, swap="county", epsilon=9, undisturbed=["Nantucket"])
    assert reached.chosen is not None
    assert reached.chosen.name == "conditioned, proportional"


def test_two_areas_are_changed_alike_by_both_laws_of_the_conditioned_swap() -> None:
    """With two values only the odds of an exchange matter (R6): either will do."""
    advice = propose(homes({"A": 9_000, "B": 1_000}), swap="county", epsilon=2)
    uniform, proportional = (named(advice, f"conditioned, {law}") for law in ("uniform", "proportional"))
    assert uniform.changed == pytest.approx(proportional.changed, abs=2e-4)  # type: ignore[attr-defined]


def test_a_share_that_no_member_reaches_is_said_of_each() -> None:
    """Only four of a hundred records have anybody to exchange with: 2% can change, unless size is not matched on."""
    file = homes({"A": 2, "B": 2}, *({"A": 1} for _ in range(48)), *({"B": 1} for _ in range(48)))
    advice = propose(file, swap="county", exact=["county x size"])
    assert advice.chosen is None
    assert all("changed" in dict(each.unmet) for each in advice.proposals)
    assert max(each.changed for each in advice.proposals) == pytest.approx(0.02, abs=0.01)
    assert propose(file, swap="county").chosen is not None


# ---- wishes that cannot be ------------------------------------------------------------------------------------


def refusals(**wishes: object) -> list[str]:
    file = homes({"A": 5, "B": 5}, {"A": 5, "B": 5}).with_columns(hid=pl.col("row"))
    people = pl.DataFrame({"hid": [0, 1, 2], "age": [30, 40, 50]})
    data = Microdata(households=file, persons=people, hid="hid")
    given: dict[str, object] = {"swap": ["county"], **wishes}
    with pytest.raises(StirredError) as error:
        propose(data, **given)  # type: ignore[arg-type]
    assert all(problem.what and problem.where and problem.remedy for problem in error.value.problems)
    return [str(problem) for problem in error.value.problems]


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ({"exact": ["county x sise"]}, "there is no variable \"sise\". Fix: write such as 'county x size', with "),
        ({"exact": ["county x county"]}, "a margin needs different variables"),
        ({"exact": ["county x age"]}, '"age" belongs to persons'),
        ({"epsilon": 0}, "epsilon 0 cannot be wished for"),
        ({"epsilon": "inf"}, "cannot be wished for"),
        ({"epsilon": -1}, "-1 is negative. Fix: write a loss of 0 or more."),
        ({"undisturbed": ["Q"]}, 'there is no such area; there are "A", "B"'),
        ({"changed": "120%"}, "is not a probability"),
        ({"at_most": "x"}, "--at-most"),
        ({"exact": ["size x row"], "hold": ["size"]}, '"row" is not released'),
        ({"swap": ["shire"]}, 'no column "shire"'),
        ({"exact": ["county x row"]}, "nothing can be swapped"),
    ],
)
def test_a_wish_that_cannot_be_says_what_where_and_how_to_mend_it(wishes: dict[str, object], said: str) -> None:
    assert any(said in problem for problem in refusals(**wishes))


def test_all_wrong_wishes_are_reported_at_once() -> None:
    found = refusals(exact=["county x sise", "county x age"], epsilon=0, undisturbed=["Q"], changed="2")
    assert len(found) == 5


def test_an_area_that_two_swap_variables_have_is_named_with_its_variable() -> None:
    file = pl.DataFrame({"county": ["1", "1", "2", "2"], "tract": ["1", "2", "3", "3"], "row": range(4)})
    data = Microdata(households=file)
    with pytest.raises(StirredError, match="have this value"):
        wishes_for(data, swap=["county", "tract"], undisturbed=["1"])
    (area,) = wishes_for(data, swap=["county", "tract"], undisturbed=["county=1"]).undisturbed
    assert (area.variable, area.value) == ("county", "1")
    shares = file.unique(["county", "tract"], maintain_order=True).drop("row")
    shares = shares.with_columns(records=pl.Series([1, 3, 5]), share_changed=pl.Series([1.0, 0.0, 0.0]))
    assert area.share(shares) == 0.25


@pytest.mark.parametrize(
    ("exact", "match"),
    [
        ([], ()),
        (["county"], ()),
        (["size x row"], ()),
        (["county x size"], ("size",)),
        (["county x size", "row x county"], ("size", "row")),
    ],
)
def test_only_margins_across_the_swap_variable_force_a_match(exact: Sequence[str], match: tuple[str, ...]) -> None:
    assert wishes_for(Microdata(households=homes({"A": 1, "B": 1})), swap=["county"], exact=exact).match == match
