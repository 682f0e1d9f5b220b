"""Rates that follow hold or swap values (R8): the promise, from invariants alone, kept and audited; R8e refused."""

from __future__ import annotations

import json
from collections.abc import Hashable
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred import Entropy, PermutationSwap
from stirred.audit import audit_bundle
from stirred.audit.exhaustive import audit
from stirred.cli.main import run as command
from stirred.data.microdata import Microdata
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.records.law import tables_with_margins
from stirred.mechanisms.records.laws.permutation import varying_rate_law
from stirred.mechanisms.records.laws.varying import (
    exactly_one_at_most,
    rules_in_words,
    stratum_epsilon,
    varying_rate_epsilon,
)
from stirred.mechanisms.records.steps.two_stage import TwoStageSwap
from stirred.mechanisms.records.strata import RateRange, rate_for
from stirred.release.advice import relatives
from stirred.release.tables import expectations, wanted_tables, within_reach
from stirred.spec.document import from_json, to_json
from stirred.spec.exact import ZERO, ln
from stirred.spec.problems import StirredError
from stirred.spec.swap_budget import psa_sharp_epsilon
from stirred.utility.comparison import compare_mechanisms
from tests.depth import examples
from tests.mechanisms.records.oracles import loss_of_laws, strata_rows
from tests.mechanisms.records.sampling import swapped
from tests.world import households, persons, stirred

ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"]}
HALF, TENTH = Fraction(1, 2), Fraction(1, 10)
BY_HOLD = PermutationSwap(**ROLES, rate="1/10", rates=[{"tenure": "rented", "rate": "1/2"}])
BY_SWAP = PermutationSwap(**ROLES, rate="1/10", rates=[{"county": "East", "rate": "1/2"}])
BY_BOTH = PermutationSwap(**ROLES, rate="1/10", rates=[{"tenure": "rented", "county": "East", "rate": "1/2"}])
SIDES = {"hold": BY_HOLD, "swap": BY_SWAP, "both": BY_BOTH}


def homes(count: int = 120) -> pl.DataFrame:
    return households(count).drop("hid").with_columns(row=pl.int_range(count) % 7)


def one_stratum(hold: str, swap: str) -> pl.DataFrame:
    return pl.DataFrame({"size": [1] * len(hold), "county": list(swap), "held": list(hold)})


# ---- the number ----------------------------------------------------------------------------------------


def test_t23_rates_by_hold_value_of_four_different_records() -> None:
    rules = [{"held": value, "rate": "1/10"} for value in "ab"]
    plan = PermutationSwap(**ROLES, rate="1/2", rates=rules).plan(one_stratum("abcd", "wxyz"))
    assert plan.epsilon == ln(27)
    law = PermutationSwap(**ROLES, rate="1/2", rates=rules).law
    universe = tables_with_margins("abcd", "wxyz")
    assert loss_of_laws({table: law(table) for table in universe}) == ln(27)


@pytest.mark.parametrize("side", ["hold", "swap", "both"])
def test_the_loss_is_that_of_the_theory_for_the_largest_stratum(side: str) -> None:
    plan = SIDES[side].plan(homes())
    assert plan.epsilon == varying_rate_epsilon("1/10", "1/2", stratum=40, depends_on=side)
    assert plan.epsilon > psa_sharp_epsilon(TENTH, stratum=40) or side != "both"
    assert {plan.strata.rates[kind] for kind in plan.strata.which[plan.strata.live]} == {RateRange(TENTH, HALF, side)}


def test_a_stratum_in_which_one_rate_applies_has_the_sharp_loss() -> None:
    """Size 3 is all rented, size 2 is in one county, and size 1 has a rule of its own that wins."""
    data = homes().with_columns(
        tenure=pl.when(size=3).then(pl.lit("rented")).otherwise("tenure"),
        county=pl.when(size=2).then(pl.lit("East")).otherwise("county"),
    )
    swap = BY_HOLD.with_settings(rates=[*BY_HOLD.settings.rates, {"size": 1, "rate": "1/4"}])
    plan = swap.plan(data)
    assert [str(stratum.rates) for stratum in strata_rows(plan.strata)] == ["1/4", "1/10 to 1/2 by hold value", "1/2"]
    assert plan.strata.live.tolist() == [True, False, True]
    assert plan.epsilon == psa_sharp_epsilon(Fraction(1, 4), stratum=40)
    assert plan.decisive == plan.strata[0]


def test_what_counts_is_which_values_can_meet_and_not_which_records_there_are() -> None:
    """No record is rented and in East, but one of the same universe is: the rule applies, and the loss is the same."""
    without = pl.DataFrame(
        {"size": [1] * 4, "county": ["East", "East", "West", "West"], "tenure": ["owned", "owned", "rented", "rented"]}
    )
    with_some = without.with_columns(tenure=pl.Series(["owned", "rented", "owned", "rented"]))
    ours, theirs = BY_BOTH.plan(without), BY_BOTH.plan(with_some)
    assert ours.epsilon == theirs.epsilon == varying_rate_epsilon("1/10", "1/2", stratum=4, depends_on="both")
    assert to_json(ours.specification) == to_json(theirs.specification)
    assert ours.strata.frame("law").equals(theirs.strata.frame("law"), null_equal=True)


def test_a_rule_on_both_that_is_the_same_for_all_hold_values_follows_the_swap_value() -> None:
    """What varies is decided by the rates and not by the names in the rules."""
    rules = [{"tenure": tenure, "county": "East", "rate": "1/2"} for tenure in ("owned", "rented")]
    plan = BY_BOTH.with_settings(rates=rules).plan(homes())
    assert plan.epsilon == BY_SWAP.plan(homes()).epsilon < BY_BOTH.plan(homes()).epsilon


def test_the_loss_by_one_side_grows_with_the_stratum() -> None:
    """So that only the largest of each kind is looked at."""
    for low, high in (("1/100", "1/2"), ("1/10", "9/10"), ("3/5", "9/10"), ("49/50", "99/100")):
        for side in ("hold", "swap"):
            losses = [varying_rate_epsilon(low, high, stratum=n, depends_on=side) for n in range(2, 40)]
            assert losses == sorted(losses)


def test_where_rates_follow_both_a_smaller_stratum_may_lose_more() -> None:
    """P1 falls with the stratum: all sizes are looked at."""
    sizes = [1] * 2 + [2] * 3
    data = pl.DataFrame({"size": sizes, "county": list("ABABA"), "tenure": list("xyxyx")})
    rules = [{"county": "A", "tenure": "x", "rate": "9/10"}]
    plan = PermutationSwap(**ROLES, rate="1/100", rates=rules).plan(data)
    losses = [varying_rate_epsilon("1/100", "9/10", stratum=n, depends_on="both") for n in (2, 3)]
    assert plan.epsilon == max(losses)
    assert [stratum_epsilon(stratum) for stratum in strata_rows(plan.strata)] == losses


def test_the_last_rule_that_fits_wins_for_every_record() -> None:
    rules: list[dict[str, Any]] = [
        {"tenure": "rented", "rate": "1/2"},
        {"county": "East", "rate": "1/3"},
        {"size": 2, "county": "East", "tenure": "owned", "rate": "1/4"},
        {"size": 3, "rate": "1/5"},
    ]
    swap = PermutationSwap(**ROLES, rate="1/10", rates=rules)
    data = homes()
    rates = swap.plan(data).strata.by_record
    assert rates is not None
    given = [rates.of_record(row, 0) for row in range(data.height)]
    assert given == [rate_for(record, swap.swap_law.rules, swap.swap_law.rate) for record in data.to_dicts()]
    assert len({*given}) == 5


def test_missing_hold_values_fit_no_rule() -> None:
    data = homes().with_columns(tenure=pl.when(pl.int_range(120) % 4 == 0).then(None).otherwise("tenure"))
    rates = BY_HOLD.plan(data).strata.by_record
    assert rates is not None
    assert {rates.of_record(row, 0) for row in range(120) if data["tenure"][row] is None} == {TENTH}


# ---- from invariants alone -----------------------------------------------------------------------------


@st.composite
def two_files_of_one_universe(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    sizes = draw(st.lists(st.integers(1, 2), min_size=4, max_size=14))
    column = st.lists(st.sampled_from("abc"), min_size=len(sizes), max_size=len(sizes))
    data = pl.DataFrame({"size": sizes, "county": draw(column), "tenure": draw(column)}).sort("size")
    order = [
        place
        for _, rows in data.with_row_index().group_by("size", maintain_order=True)
        for place in draw(st.permutations(rows["index"].to_list()))
    ]
    return data, data.with_columns(data["county"].gather(order))


RULES: list[list[dict[str, Any]]] = [
    [{"tenure": "a", "rate": "1/2"}],
    [{"county": "a", "rate": "1/2"}],
    [{"tenure": "a", "county": "b", "rate": "1/2"}, {"tenure": "b", "rate": "1/3"}],
]


@settings(deadline=None, max_examples=examples(100))
@given(both=two_files_of_one_universe(), rules=st.sampled_from(RULES))
def test_a_plan_depends_on_the_invariants_alone(
    both: tuple[pl.DataFrame, pl.DataFrame], rules: list[dict[str, Any]]
) -> None:
    """Budget, strata, shares and refusals: nothing may tell two files with the same margins apart."""
    swap = PermutationSwap(**ROLES, rate="1/10", rates=rules)

    def shown(data: pl.DataFrame) -> tuple[Any, ...]:
        try:
            plan = swap.plan(data)
        except StirredError as error:
            return (str(error),)
        return to_json(plan.specification), plan.strata.frame(swap.stratum_law).rows(), plan.strata.moved

    assert shown(both[0]) == shown(both[1])


def test_the_share_moved_is_published_only_where_the_invariants_tell_it() -> None:
    for side, swap in SIDES.items():
        plan = swap.plan(homes())
        unsaid = plan.strata.frame("law")["stratum_expected_share_moved"].null_count()
        assert (plan.strata.moved is None, unsaid) == ((True, 3) if side == "both" else (False, 0))


@pytest.mark.parametrize("side", ["hold", "swap"])
def test_the_expected_share_moved_is_what_releases_show(side: str) -> None:
    """Five standard errors; the share at the mean rate, without the redraw, is far outside in strata of two."""
    pairs = 20_000
    data = pl.DataFrame(
        {
            "size": np.repeat(np.arange(pairs), 2),
            "county": ["East", "West"] * pairs,
            "tenure": ["rented", "owned"] * pairs,
        }
    ).with_columns(was="county")
    swap = SIDES[side].with_settings(rate="1/4", rates=[{**SIDES[side].settings.rates[0], "rate": "3/4"}])
    plan = swap.plan(data)
    released = swapped(swap, data, Entropy.from_seed("share")).public["data"]
    seen = released.select((pl.col("county") != pl.col("was")).mean()).item()
    share = plan.strata.moved
    assert share is not None
    assert abs(share - 0.5) < 1e-9  # both with 3/16, none with 3/16
    assert abs(seen - share) < 5 * (share * (1 - share) / pairs) ** 0.5


# ---- kept ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["hold", "swap", "both"])
def test_every_small_universe_keeps_its_promise(side: str) -> None:
    result = audit(SIDES[side])
    assert result.passed
    assert result.loss.high <= result.budget


def test_the_audit_sees_a_mechanism_that_follows_other_records() -> None:
    """R8e, T35: the flag of a rare combination sets the rate of all. Its own promise, made as if by value, breaks."""

    class ByTheTable:
        """1/2 where some record is rented in East, 1/8 otherwise: rates well away from 0 and 1."""

        def audit_universes(self) -> list[list[Hashable]]:
            return [[*tables_with_margins("aabb", "xxyy")]]

        def law(self, dataset: Any) -> Any:
            rate = HALF if ("a", "x") in dataset else Fraction(1, 8)
            return varying_rate_law(dataset, lambda record: rate)

        def audit_specification(self, universe: Any) -> Any:
            rules = [{"held": "a", "county": "x", "rate": "1/2"}]
            swap = PermutationSwap(match=[], swap=["county"], rate="1/8", rates=rules)
            first = universe[0]
            return swap.plan(
                pl.DataFrame({"held": [h for h, _ in first], "county": [s for _, s in first]})
            ).specification

    found = audit(ByTheTable())
    assert not found.passed
    assert (
        found.loss.low >= ln(Fraction(4313, 4)) / 2 > varying_rate_epsilon("1/8", "1/2", stratum=4, depends_on="hold")
    )


@pytest.mark.parametrize("side", ["hold", "swap", "both"])
def test_a_release_keeps_both_tables(side: str) -> None:
    data = homes(600)
    released = swapped(SIDES[side], data, Entropy.from_os()).public["data"]
    for table in (["size", "county"], ["size", "tenure", "row"]):
        assert released.group_by(table).len().sort(table).equals(data.group_by(table).len().sort(table))
    assert not released.sort(data.columns).equals(data.sort(data.columns))


def test_released_tables_follow_the_exact_law(p_value: Any) -> None:
    """Through the whole release, rates by both values; the law at exchanged rates fails."""
    strata, records = 60_000, list(zip("aab", "xyy", strict=True))
    data = pl.DataFrame(
        {
            "size": np.tile(np.arange(strata), 3),
            "held": np.repeat(np.array([h for h, _ in records]), strata),
            "county": np.repeat(np.array([s for _, s in records]), strata),
        }
    )
    swap = PermutationSwap(**ROLES, rate="1/4", rates=[{"held": "a", "county": "x", "rate": "3/5"}])
    frame = swapped(swap, data, Entropy.from_seed("law")).public["data"]
    tables = frame.group_by("size").agg(pl.concat_str("held", "county").sort().str.join(" "))["held"]
    found = dict(tables.value_counts().rows())

    def fit(first: Fraction, other: Fraction) -> float:
        law = varying_rate_law(records, lambda record: first if record == ("a", "x") else other)
        names = [" ".join(h + s for h, s in table) for table in law]  # type: ignore[attr-defined]
        assert {*found} <= {*names}
        return float(p_value(np.array([found.get(name, 0) for name in names]), [law[table] for table in law]))

    assert fit(Fraction(3, 5), Fraction(1, 4)) > 1e-6
    assert fit(Fraction(1, 4), Fraction(3, 5)) < 1e-6
    assert fit(Fraction(3, 5), Fraction(27, 100)) < 1e-6


# ---- said ----------------------------------------------------------------------------------------------


def test_the_promise_cites_its_theorem_its_rules_and_its_condition() -> None:
    promise = BY_BOTH.plan(homes()).specification
    assert promise.theorem[0].startswith("R8")
    assert not any("Theorem 1 of" in each for each in promise.theorem)
    text = str(promise.budget.policy)
    assert promise.budget.varies
    assert "1/2 where tenure = rented, county = East; 1/10 otherwise" in text
    assert "40 records at rates of 1/10 to 1/2 by hold and swap value" in text
    assert any("none is computed from other records" in each for each in promise.assumptions)
    assert from_json(to_json(promise)) == promise
    assert "tenure, county" in BY_BOTH.in_words


def test_a_plan_of_many_rules_is_told_from_another() -> None:
    rules = [{"row": row, "rate": f"1/{row + 2}"} for row in range(7)] * 3
    swap = BY_HOLD.with_settings(rates=rules)
    laws = [swap.with_settings(rates=each).swap_law for each in (rules, [*rules[1:], rules[0]])]
    text, other = (rules_in_words(law.rules, law.rate) for law in laws)
    assert "9 more rules (sha256" in text
    assert text != other


def test_a_file_without_anything_to_swap_promises_nothing() -> None:
    plan = BY_HOLD.plan(homes().with_columns(county=pl.lit("East")))
    assert plan.epsilon == ZERO
    assert [doubt.name for doubt in plan.doubts] == ["nothing-moves"]


# ---- refused -------------------------------------------------------------------------------------------


def refusal(swap: PermutationSwap, data: Any) -> str:
    with pytest.raises(StirredError) as caught:
        swap.plan(data)
    return " | ".join(f"{each.what}. {each.remedy}" for each in caught.value.problems)


@pytest.mark.parametrize(("default", "rate"), [("0", "1/2"), ("1/2", "0"), ("1/2", "1"), ("1", "1/2")])
@pytest.mark.parametrize("name", ["tenure", "county"])
def test_rates_of_zero_and_one_inside_a_stratum_are_refused(default: str, rate: str, name: str) -> None:
    """R8f; and one record at rate 1 among others at 0 would be drawn again for ever."""
    value = {"tenure": "rented", "county": "East"}[name]
    text = refusal(PermutationSwap(**ROLES, rate=default, rates=[{name: value, "rate": rate}]), homes())
    assert "nothing is promised" in text
    assert "match on the variable" in text


def test_a_stratum_of_one_rate_may_have_rate_zero_beside_others() -> None:
    """By match values a rate of 0 or 1 is what it always was: an infinite loss, said so (R2)."""
    swap = BY_HOLD.with_settings(rates=[*BY_HOLD.settings.rates, {"size": 1, "rate": "0"}])
    plan = swap.plan(homes())
    assert plan.epsilon.is_infinite
    assert "infinite" in plan.doubts[0].what
    assert plan.doubts[0].name == "nothing-promised"


def test_rates_that_would_select_exactly_one_nearly_always_are_refused() -> None:
    rules = [{"tenure": "rented", "rate": "9999999/10000000"}]
    text = refusal(PermutationSwap(**ROLES, rate="1/100000000", rates=rules), homes(12))
    assert "drawn again and again" in text
    assert "closer together" in text


@pytest.mark.parametrize("low", ["1/10000", "1/500", "2/5", "99/100"])
@pytest.mark.parametrize("high", ["1/1000", "1/2", "99/100", "9999/10000"])
def test_exactly_one_is_at_most_as_likely_as_the_shortcut_says(low: str, high: str) -> None:
    """Where it decides without counting: with a record at rate p at most max(p, 1-p), at one rate at most 1/2."""
    p, q = sorted((Fraction(low), Fraction(high)))
    for records in (2, 3, 10, 500):
        bound = max(HALF, min(max(p, 1 - p), max(q, 1 - q)))
        assert exactly_one_at_most(p, q, records=records) <= bound


def test_a_rule_that_no_values_can_meet_is_refused() -> None:
    assert "no record has tenure = loaned" in refusal(
        BY_HOLD.with_settings(rates=[{"tenure": "loaned", "rate": "1/2"}]), homes()
    )
    apart = homes().with_columns(county=pl.when(size=1).then("county").otherwise(pl.lit("West")))
    rules = [{"size": 2, "county": "East", "rate": "1/2"}]
    assert "no record has size = 2, county = East" in refusal(BY_SWAP.with_settings(rates=rules), apart)


def test_rates_by_what_is_not_released_of_the_record_are_refused_with_the_reason() -> None:
    """R8e: a flag of risk beside the released columns."""
    with pytest.raises(StirredError, match="in proportion to the size of the stratum") as caught:
        PermutationSwap(**ROLES, hold=["tenure"], rate="1/10", rates=[{"risk": "high", "rate": "1/2"}])
    assert 'not on "risk"' in caught.value.problems[0].what


def test_identifiers_persons_fractions_and_missing_columns_cannot_set_a_rate_all_at_once() -> None:
    data = households(60).with_columns(income=pl.int_range(60) / 7, serial=pl.int_range(60))
    people = persons(data)
    file = Microdata(households=data, persons=people, hid="hid", id=("serial",))
    rules = [{name: 1, "rate": "1/2"} for name in ("serial", "age", "income", "nothing")]
    text = refusal(PermutationSwap(**ROLES, rate="1/10", rates=rules), file)
    for part in (
        "an identifier cannot set a rate",
        "a variable of persons",
        "fractional numbers",
        'no column "nothing"',
    ):
        assert part in text


def test_two_stages_take_rates_by_match_values_only() -> None:
    with pytest.raises(StirredError, match="match variables only") as caught:
        TwoStageSwap(
            **ROLES, fine_match=["tenure"], rate="1/10", fine_rate="1/2", rates=[{"county": "East", "rate": "1/2"}]
        )
    assert "permutation-swap" in caught.value.problems[0].remedy


def test_imputed_records_may_be_left_out_beside_rates_by_hold_value() -> None:
    data = homes().with_columns(flag=pl.int_range(120) % 5 == 0, own=pl.int_range(120))
    swap = BY_HOLD.with_settings(imputed="flag")
    plan = swap.plan(data)
    kept = BY_HOLD.plan(data.filter(~pl.col("flag")))
    assert plan.epsilon == kept.epsilon
    released = swapped(swap, data, Entropy.from_os()).public["data"]
    both = data.filter("flag").join(released, on="own", suffix="_new")
    assert both["county"].equals(both["county_new"], check_names=False)


def test_what_needs_the_moments_of_a_class_law_refuses_or_leaves_it_out() -> None:
    """R18 is for laws that look at the number of moved records alone."""
    data = homes()
    (table,) = wanted_tables([(None, ["county", "tenure"])], households=data.columns, persons=[])
    for swap in SIDES.values():
        assert not within_reach(swap, Microdata(households=data))
        with pytest.raises(StirredError, match="varying-rate swap has no closed form"):
            expectations(swap, [table], Microdata(households=data), source="margins")
        with pytest.raises(StirredError, match="counts that it protects"):
            compare_mechanisms(data, [("ours", swap)])
        with pytest.raises(StirredError, match="counts that it protects"):
            relatives(data, swap, equal="changed")


# ---- through the command -------------------------------------------------------------------------------

PLAN = """
[data]
households = "homes.parquet"
[mechanism]
match = ["size"]
swap = ["county"]
hold = ["tenure"]
rate = "1/10"
[[mechanism.rates]]
{rule}
rate = "1/2"
[[tables]]
variables = ["county", "tenure"]
[release]
out = "out"
format = "{format}"
"""
RULES_IN_PLANS = {
    "hold": 'tenure = "rented"',
    "swap": 'county = "East"',
    "both": 'tenure = "rented"\ncounty = "East"',
}


@pytest.mark.parametrize("format_", ["parquet", "csv"])
@pytest.mark.parametrize("side", ["hold", "swap", "both"])
def test_a_plan_makes_a_bundle_that_is_audited_and_published(
    side: str, format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    homes(600).write_parquet("homes.parquet")
    (tmp_path / "plan.toml").write_text(PLAN.format(rule=RULES_IN_PLANS[side], format=format_), encoding="utf-8")
    assert command(["plan", "plan.toml", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["expected_share_moved"] is None) == (side == "both")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    capsys.readouterr()
    result = audit_bundle(tmp_path / "out")
    assert result.passed
    assert any("computed anew from the released file" in check for check in result.checks)
    alone = audit_bundle(tmp_path / "out" / "public")
    assert alone.passed
    assert any("computed anew from the released file" in check for check in alone.checks)
    assert command(["publish", "out", "dest"]) == 0
    report = (tmp_path / "dest" / "report.html").read_text(encoding="utf-8")
    specification = (tmp_path / "dest" / "specification.json").read_text(encoding="utf-8")
    assert "R8, rates that vary inside a stratum" in specification
    assert "unswap" not in report
    assert ("How many records move is not said" in report) == (side == "both")
    with pytest.raises(StirredError, match="no closed form"):
        unswap(["county", "tenure"], SwappedRelease.read(tmp_path / "dest"))
    assert "nan" not in (tmp_path / "dest" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["flag", "size"])
def test_a_rule_on_true_and_false_is_found_again_in_a_csv_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a hold variable and as a match variable (there called size)."""
    monkeypatch.chdir(tmp_path)
    flags = pl.int_range(600) % 2 == 0
    homes(600).with_columns(flags.alias(name)).write_parquet("homes.parquet")
    text = PLAN.format(rule=f"{name} = true", format="csv").replace('hold = ["tenure"]', f'hold = ["tenure", "{name}"]')
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    assert audit_bundle(tmp_path / "out").passed


def test_a_budget_below_that_of_the_rules_is_seen_by_the_audit_of_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power: the manifest says other rates than the specification was made for."""
    monkeypatch.chdir(tmp_path)
    homes(600).write_parquet("homes.parquet")
    (tmp_path / "plan.toml").write_text(PLAN.format(rule=RULES_IN_PLANS["both"], format="parquet"), encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    place = tmp_path / "out" / "manifest.json"
    manifest = json.loads(place.read_text(encoding="utf-8"))
    manifest["plan"]["mechanism"]["rates"][0]["rate"] = "9/10"
    place.write_text(json.dumps(manifest), encoding="utf-8")
    assert any("budget" in str(problem) for problem in audit_bundle(tmp_path / "out").problems)


def test_the_command_explains_what_it_does_not_say(tmp_path: Path) -> None:
    homes(600).write_parquet(tmp_path / "homes.parquet")
    (tmp_path / "plan.toml").write_text(PLAN.format(rule=RULES_IN_PLANS["both"], format="csv"), encoding="utf-8")
    done = stirred("plan", "plan.toml", "--verbose", cwd=tmp_path)
    assert done.returncode == 0
    words = " ".join(done.stdout.split())
    assert "of how many records is not said, because it depends on protected counts" in words
    assert "counts that are protected" in words
    assert "1/10 to 1/2 by hold and swap value" in words


def test_small_universes_hold_the_values_that_rules_name() -> None:
    """All tables of a stratum, with two hold variables and a rule on each side."""
    rules: list[dict[str, Any]] = [{"tenure": "rented", "rooms": 2, "rate": "1/2"}, {"county": "East", "rate": "1/4"}]
    swap = PermutationSwap(**ROLES, rate="1/10", rates=rules)
    values = {value for universe in swap.audit_universes() for table in universe for pair in table for value in pair}  # type: ignore[attr-defined]
    assert {("rented", "2"), "East"} <= values
    (table, *_) = swap.audit_universes()[1]
    assert swap.law(table).probabilities.keys() == {*permuted(table)}


def permuted(table: Any) -> set[Any]:
    holds, swaps = [h for h, _ in table], [s for _, s in table]
    return {tuple(sorted(zip(holds, order, strict=True))) for order in permutations(swaps)}
