"""Noisy tables in Python: what is released, how often intervals cover, what is kept, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.data.codebook import Codebook
from stirred.data.microdata import Microdata
from stirred.mechanisms.tables.cells import counted_persons
from stirred.mechanisms.tables.noise.measures import people_of
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.randomness.noise import integer_noise
from stirred.spec.doubts import DoubtError
from stirred.spec.exact import exact
from stirred.spec.invariant import Margin
from stirred.spec.output_premetric import PURE, ZCDP
from stirred.spec.problems import StirredError
from stirred.spec.shift_law import DiscreteGaussian

HOMES = pl.DataFrame(
    {"hid": [*range(8)], "county": list("AABBAABB"), "tenure": list("oroorroo"), "size": [1, 2, 3, 1, 2, 3, 1, 2]}
)
PEOPLE = HOMES.select("hid", pl.int_ranges(1, pl.col("size") + 1).alias("pid")).explode("pid")
PEOPLE = PEOPLE.with_columns(sex=(pl.col("hid") + pl.col("pid")) % 2, age=pl.col("hid") * 7 + pl.col("pid"))
BOTH = Microdata(households=HOMES, persons=PEOPLE, hid="hid")
VALUES: dict[str, Any] = {"county": "ABC", "tenure": "or", "sex": [0, 1], "size": [1, 2, 3]}


def noisy(**settings: Any) -> NoisyTables:
    return NoisyTables(**{"tables": [["county"], ["county", "tenure"]], "rho": 1, "values": VALUES, **settings})


def released(mechanism: NoisyTables, data: Any = HOMES, seed: str = "1", accept: Sequence[str] = ()) -> Any:
    return mechanism.release(data, Entropy.from_seed(seed), accept=accept)


def test_every_declared_cell_is_released_once_with_variance_and_interval() -> None:
    table = released(noisy()).public["county x tenure"]
    assert table.select("county", "tenure").rows() == [(c, t) for c in "ABC" for t in "or"]
    assert table.columns == ["county", "tenure", "count", "variance", "low", "high"]
    assert table["variance"].unique().to_list() == [pytest.approx(2.0, abs=1e-6)]
    assert (table["high"] - table["low"]).unique().to_list() == [6]


def test_the_same_seed_gives_the_same_noise_and_another_order_of_records_too() -> None:
    first, shuffled = released(noisy()), released(noisy(), HOMES.sample(8, shuffle=True, seed=3))
    for title in first.public:
        assert first.public[title].equals(shuffled.public[title])
        assert first.public[title]["count"].to_list() != released(noisy(), seed="2").public[title]["count"].to_list()
    assert first.specification.seeded


@pytest.mark.parametrize(
    "settings",
    [
        {"rho": "1/50"},
        {"rho": "1/50", "keep": ["total"]},
        {"rho": "1/50", "keep": ["a"]},
        {"noise": "laplace", "rho": None, "epsilon": "1/5"},
        {"noise": "laplace", "rho": None, "epsilon": "1/5", "keep": ["a"]},
    ],
    ids=str,
)
def test_intervals_cover_as_often_as_the_exact_law_says(settings: dict[str, Any]) -> None:
    """20,000 cells; false alarms below 1e-6. Power: noise of another width, by 3%, is told apart."""
    values = {"a": [*range(200)], "b": [*range(100)]}
    mechanism = NoisyTables(tables=[["a", "b"]], values=values, unit="record", **settings)
    file = pl.DataFrame({"a": [*range(200)] * 50, "b": [*range(100)] * 100})
    plan = mechanism.plan(file)
    found = released(mechanism, file)
    drawn = found.internal["drawn"]["a x b"]
    table = found.public["a x b"]
    covered = ((table["low"] <= drawn["true"]) & (drawn["true"] <= table["high"])).mean()
    law = plan.measures[0].cell
    chance = float(law.within(law.half_width(Fraction(95, 100))))
    assert chance >= 0.95
    band = 5 * math.sqrt(chance * (1 - chance) / 20_000)
    assert abs(covered - chance) < band
    spread = drawn["noise"].to_numpy().astype(float).var()
    assert spread == pytest.approx(float(law.variance), rel=0.06)
    widths = [int(0.97 * law.half_width(Fraction(n, 100))) for n in (68, 95)]
    missed = [float((drawn["noise"].abs() > width).mean()) for width in widths]
    assert any(miss > 1 - share + band / 2 for miss, share in zip(missed, (0.68, 0.95), strict=True))


@pytest.mark.parametrize("noise", [{"rho": "1/8"}, {"noise": "laplace", "rho": None, "epsilon": "1/2"}], ids=str)
@pytest.mark.parametrize("keep", [["total"], ["county"], ["tenure", "county"], ["county x tenure", "size"]])
def test_what_is_kept_is_exact_in_every_table_and_published(noise: dict[str, Any], keep: list[str]) -> None:
    by = ["county", "tenure", "size"] if "size" in keep else ["county", "tenure"]
    if "size" in keep and "epsilon" in noise:
        with pytest.raises(StirredError, match="on 6 x 3 cells with fixed sums is beyond reach"):
            noisy(tables=[by], keep=keep, **noise).plan(HOMES)
        return
    mechanism = noisy(tables=[by], keep=keep, **noise)
    found = released(mechanism)
    table, exactly = found.public[" x ".join(by)], found.public["invariants"]
    truth = HOMES.group_by(by).len()
    assert (
        table.join(truth, on=by, how="left")["count"].to_list() != table.join(truth, on=by, how="left")["len"].to_list()
    )
    for margin in keep:
        names = [] if margin == "total" else margin.split(" x ")
        own = exactly.filter(pl.col("table").is_in([margin, " x ".join(sorted(names))]))
        if not names:
            assert table["count"].sum() == own["count"].item() == HOMES.height
            continue
        sums = table.group_by(names).agg(pl.col("count").sum()).sort(names)
        assert own.height == math.prod(len(VALUES[name]) for name in names), "declared cells, empty ones too"
        assert sums.equals(own.select(*names, "count").sort(names))
        counted = HOMES.group_by(names).len("count").cast({"count": pl.Int64})
        assert sums.filter(pl.col("count") != 0).join(counted, on=[*names, "count"], how="anti").is_empty()
    assert {m.variables for m in found.specification.multiverse.invariants} == {
        () if margin == "total" else tuple(sorted(margin.split(" x "))) for margin in keep
    }


def test_noise_inside_the_universe_is_narrower_at_the_same_loss() -> None:
    plain, inside = noisy().plan(HOMES), noisy(keep=["total"]).plan(HOMES)
    for one, other in zip(plain.measures, inside.measures, strict=True):
        assert one.loss == other.loss
        assert float(other.cell.variance) == pytest.approx(float(one.cell.variance) * (1 - 1 / one.cells), rel=0.02)
    assert inside.specification.multiverse.invariants == (Margin(of="household"),)
    assert inside.unchanged == "the total number of households"
    both = noisy(tables=[["county", "tenure"]], keep=["county", "tenure"]).plan(HOMES)
    assert both.specification.multiverse.nearest == 2
    assert both.measures[0].cell.noise == DiscreteGaussian(Fraction(1, 2)), "half the variance at the same rho"
    more = noisy(tables=[["county", "tenure"], ["size"]], keep=["county", "tenure"]).plan(HOMES)
    assert more.specification.multiverse.nearest == 1, "a record may change its size alone"


def test_the_promise_states_all_five_blocks() -> None:
    promise = noisy(unit="person", settings_from="policy").plan(HOMES.drop("hid")).specification
    assert promise.output_premetric == ZCDP
    assert promise.input_premetric.symbol == "d_HamS^person"
    assert promise.budget.realised == exact(1)
    assert "county x tenure: rho 1/2" in str(promise.budget.policy)
    assert promise.settings_from == "policy"
    laplace = noisy(noise="laplace", rho=None, epsilon="3/2").plan(HOMES)
    assert laplace.specification.output_premetric == PURE
    assert laplace.specification.budget.shown == "1.5"
    assert "bounded neighbours" in laplace.why_this_number
    assert all("bounded neighbours, d_HamS^household" in f.sentence for f in laplace.facts if f.label == "noise")


def test_sums_are_clamped_and_counted_in_every_cell() -> None:
    sums = [{"column": "size", "by": ["county"], "low": 2, "high": 2 + 1}, {"column": "size", "high": 2}]
    found = released(noisy(sums=sums), accept=["clamped:size"])
    by_county = found.internal["drawn"]["sum of size by county"]
    assert by_county["true"].to_list() == [2 + 2 + 2 + 3, 3 + 2 + 2 + 2, 0]
    assert found.internal["drawn"]["sum of size"]["true"].to_list() == [1 + 2 + 2 + 1 + 2 + 2 + 1 + 2]
    assert found.public["tables/sum-of-size-by-county"].columns == ["county", "sum", "variance", "low", "high"]
    assert found.public["tables/sum-of-size"].height == 1


def test_whole_numbers_that_a_file_has_as_text_are_added_up_as_numbers() -> None:
    mechanism = noisy(sums=[{"column": "size", "by": ["county"], "high": 3}])
    texts = HOMES.with_columns(pl.col("size").cast(pl.String))
    numbers, found = released(mechanism), released(mechanism, texts)
    for name in numbers.public:
        assert found.public[name].equals(numbers.public[name])
    one = texts.with_columns(size=pl.when(pl.col("hid") == 0).then(pl.lit("1.5")).otherwise("size"))
    with pytest.raises(
        StirredError, match=r"it has other texts, and only whole numbers are added up. Fix: round it first"
    ):
        mechanism.plan(one)
    with pytest.raises(
        StirredError,
        match=r"it is Float64, and only whole numbers are added up. Fix: round it first: step = .round., to = 1",
    ):
        mechanism.plan(HOMES.with_columns(size=pl.col("size") / 2))


def test_a_sum_says_that_values_beyond_its_bounds_were_cut_and_only_inside_how_many() -> None:
    mechanism = noisy(sums=[{"column": "size", "by": ["county"], "low": 2, "high": 3}])
    plan, words = mechanism.plan(HOMES), "values beyond 2 to 3 are counted as the nearer bound, and the interval is for"
    assert f"of sum of size by county {words} that sum" in plan.disturbed
    facts = [fact.sentence for fact in plan.facts if fact.label == "noise"]
    assert [words in sentence for sentence in facts] == [False, False, True]
    told = mechanism.conclusions(plan)
    assert f"Of sum of size by county {words} that sum." in told
    assert "at least so often the true number (of a sum: that of the bounded values) lies in it." in told[0]
    assert words in plan.files(mechanism, Microdata(households=HOMES))[0].words
    assert any(words in str(block) for block in mechanism.sections(plan)[0].blocks)
    found = released(mechanism, accept=["clamped:size"])
    assert found.internal["drawn"]["sum of size by county"]["cut"].to_list() == [1, 2, 0]
    assert "cut" not in found.public["tables/sum-of-size-by-county"].columns
    assert "cut" not in found.internal["drawn"]["county"].columns
    assert not any("bound" in line for line in noisy().conclusions(noisy().plan(HOMES)))


def test_a_sum_whose_bounds_cut_many_values_refuses_and_one_that_cuts_few_notes_it() -> None:
    income = pl.DataFrame({"county": ["A"] * 100, "income": [*range(98), 500, 5000]})
    for high, count, refuses in ((6000, 0, False), (97, 2, True), (4900, 1, False)):
        mechanism = noisy(tables=[], sums=[{"column": "income", "by": ["county"], "low": 0, "high": high}])
        found = [doubt for doubt in mechanism.plan(income).doubts if doubt.name == "clamped:income"]
        assert [doubt.refuses for doubt in found] == [refuses] * (count > 0)
        assert all(f"{count} of 100 values" in doubt.what for doubt in found)
    with pytest.raises(DoubtError, match="clamped:income"):
        released(noisy(tables=[], sums=[{"column": "income", "high": 97}]), income)


def test_a_sum_that_cuts_most_values_of_one_cell_refuses_and_names_it_inside() -> None:
    homes = pl.DataFrame({"hid": range(1000), "county": ["A"] * 980 + ["B"] * 20, "income": [90] * 980 + [150] * 20})
    sums = [{"column": "income", "by": ["county"], "high": 100}]
    values = {"values": {"county": ["A", "B"]}, "rho": 50}
    (found,) = (each for each in noisy(tables=[], sums=sums, **values).plan(homes).doubts if each.kind == "clamped")
    assert found.refuses
    assert "where county is 'B' it is 20 of 20, and changes its sum by 33.3%" in found.what
    assert "'B'" not in found.public
    people = pl.DataFrame({"hid": homes["hid"], "income": homes["income"]})
    data = Microdata(households=homes.drop("income"), persons=people, hid="hid")
    (found,) = (e for e in noisy(tables=[], sums=sums, persons=1, **values).plan(data).doubts if e.kind == "clamped")
    assert found.refuses
    assert "where county is 'B' it is 20 of 20" in found.what


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"sums": [{"column": "size", "by": ["county"], "high": 10**12}], "tables": []}, "wider than can be drawn"),
        ({"sums": [{"column": "size", "by": ["county"], "high": 10**11}]}, None),
        ({"sums": [{"column": "size", "high": 10**18}], "tables": [], "epsilon": 10**9}, "may not fit into 64 bits"),
        ({"keep": ["county", "size"], "tables": [["county", "size"]], "epsilon": "1/100000"}, "beyond reach"),
        (
            {"keep": ["county", "size"], "tables": [["county", "size"]], "epsilon": "1/10000000000"},
            "too wide for noise",
        ),
    ],
)
def test_noise_that_cannot_be_drawn_is_refused_by_the_plan(settings: dict[str, Any], what: str | None) -> None:
    mechanism = {"noise": "laplace", "rho": None, "epsilon": 1, **settings}
    if what is None:
        released(noisy(**mechanism))
        return
    with pytest.raises(StirredError, match=what):
        noisy(**mechanism).plan(HOMES)


def test_noise_inside_margins_that_takes_too_many_draws_is_refused_by_the_plan() -> None:
    values = {"a": [*range(14)], "b": [*range(14)]}
    frame = pl.DataFrame({"a": [0, 1], "b": [0, 1]})
    mechanism = NoisyTables(tables=[["a", "b"]], rho="1/50", keep=["a", "b"], values=values)
    with pytest.raises(StirredError, match=r"table 'a x b' .*noise that keeps these sums takes about"):
        mechanism.plan(frame)


def test_of_large_households_only_some_persons_count_whatever_their_order() -> None:
    mechanism = noisy(tables=[["county", "sex"]], persons=2)
    found = released(mechanism, BOTH)
    assert found.internal["drawn"]["county x sex"]["true"].sum() == 1 + 2 + 2 + 1 + 2 + 2 + 1 + 2
    (measure,) = mechanism.plan(BOTH).measures
    assert (measure.one, measure.square) == (4, 8)
    other = Microdata(households=HOMES, persons=PEOPLE.sample(PEOPLE.height, shuffle=True, seed=1), hid="hid")
    counts = [people_of(each, ["county", "sex", "age"], most=2).sort(pl.all()) for each in (BOTH, other)]
    assert counts[0].equals(counts[1])
    assert people_of(BOTH, ["sex"], most=None).height == PEOPLE.height
    names = {doubt.name for doubt in mechanism.plan(BOTH).doubts}
    assert "left-out-persons:2" in names
    assert "left-out-persons:3" not in {doubt.name for doubt in mechanism.with_settings(persons=3).plan(BOTH).doubts}


def test_who_counts_of_a_household_is_not_decided_by_one_value() -> None:
    """Households of three with one person of each kind: each kind is left out about as often."""
    out = [0, 0, 0]
    for number in range(600):
        people = [("abc"[kind], number) for kind in range(3)]
        for kind in range(3):
            out[kind] += people[kind] not in counted_persons(people, most=2)
    assert sum(out) == 600
    assert min(out) > 130


def test_consistent_rounded_and_cut_off_numbers_stand_beside_the_noisy_ones() -> None:
    settings = {"consistent": True, "rounded": 5, "nonnegative": True, "rho": "1/20"}
    found, plain = released(noisy(**settings)), released(noisy(rho="1/20"))
    for title in ("county", "county x tenure"):
        table = found.public[title]
        assert table.select(plain.public[title].columns).equals(plain.public[title]), "the noisy numbers stay"
        assert (table["adjusted"] % 5 == 0).all()
        assert (table["adjusted"] >= 0).all()
        assert (table["consistent_variance"] <= table["variance"] + 1e-9).all()
        assert not [name for name in table.columns if name.startswith("consistent_l")]  # no interval without its law
        assert table["consistent"].sum() == pytest.approx(HOMES.height, abs=1e-5), "the number of records is exact"
    assert found.public["invariants"].rows() == [("total", HOMES.height)]
    crossed = found.public["county x tenure"].group_by("county", maintain_order=True).agg(pl.col("consistent").sum())
    assert np.allclose(crossed["consistent"], found.public["county"]["consistent"], atol=1e-5)
    only = released(noisy(nonnegative=True, rho="1/20")).public["county"]
    assert only["adjusted"].to_list() == [max(0, count) for count in only["count"]]


def test_the_plan_and_the_report_say_how_what_is_done_afterwards_is_biased() -> None:
    mechanism = noisy(consistent=True, rounded=5, nonnegative=True, rho="1/2")
    plan = mechanism.plan(HOMES)
    (after,) = [fact.sentence for fact in plan.facts if fact.label == "after"]
    for words in ("Nothing is biased", "up to 2.5", "small counts too large on average"):
        assert words in after
    noise, biased = mechanism.sections(plan)
    assert noise.title == "Noise and intervals"
    grid = biased.blocks[-1]
    assert grid.header[:2] == ("table", "count of 0")  # type: ignore[union-attr]
    deviation = math.sqrt(4)
    shown = float(grid.rows[0][1])  # type: ignore[union-attr, arg-type]
    assert shown == pytest.approx(deviation / math.sqrt(2 * math.pi), rel=0.03), "a clipped zero gains sigma/sqrt(2 pi)"
    drawn = integer_noise(DiscreteGaussian(4), count=200_000, entropy=Entropy.from_seed("x"), purpose="bias")
    assert np.maximum(drawn, 0).mean() == pytest.approx(shown, rel=0.02)


def test_a_table_that_noise_swamps_is_noted_and_does_not_refuse() -> None:
    names = [doubt.name for doubt in noisy(rho="1/50").plan(HOMES).doubts]
    assert names == ["swamped:county", "swamped:county+tenure"]
    assert not any(doubt.refuses for doubt in noisy(rho="1/50").plan(HOMES).doubts)
    assert not noisy(rho=100).plan(HOMES).doubts


def test_settings_chosen_on_the_file_refuse() -> None:
    with pytest.raises(DoubtError, match="void the guarantee"):
        released(noisy(settings_from="this-data"))


def test_cells_come_from_declarations_and_never_from_the_file() -> None:
    with pytest.raises(StirredError, match="was not declared, and those that occur are confidential"):
        noisy(values={}).plan(HOMES)
    with pytest.raises(StirredError, match="1 of its values were not declared, such as"):
        noisy(values={**VALUES, "county": "A"}).plan(HOMES)
    text = '[codebook]\ntitle = "t"\n' + "".join(
        f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "code"\ncodes = {{ {codes} }}\n'
        for name, codes in (("county", 'A = "", B = "", D = ""'), ("tenure", 'o = "", r = ""'))
    )
    declared = noisy(values={"tenure": "or"}).with_codebook(Codebook.from_toml(text), missing_as=None)
    assert [*declared.values["county"]] == ["A", "B", "D"]
    assert released(declared).public["county"]["county"].to_list() == ["A", "B", "D"]
    assert [
        *noisy(values={}).with_codebook(Codebook.from_toml(text), missing_as=None).learned(Codebook.from_toml(text))
    ]


@pytest.mark.parametrize(
    ("settings", "data", "what"),
    [
        ({"tables": [["town"]]}, HOMES, 'there is no column "town"'),
        ({"tables": [["county", "sex"]]}, BOTH, "no noise covers that"),
        ({"tables": [["county"]], "unit": "person"}, BOTH, "whose number would be published"),
        ({"sums": [{"column": "tenure", "high": 3}]}, HOMES, "only whole numbers are added up"),
        ({"sums": [{"column": "size", "high": 3}]}, HOMES.with_columns(size=None).cast({"size": pl.Int64}), "missing"),
        ({"keep": ["town"]}, HOMES, 'there is no column "town"'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_files_that_do_not_fit_are_refused_in_words(settings: dict[str, Any], data: Any, what: str) -> None:
    with pytest.raises(StirredError) as refused:
        noisy(**settings).plan(data)
    assert what in str(refused.value)
    assert "Fix: " in str(refused.value)


def test_the_expected_error_is_that_of_the_noise_and_of_those_who_are_not_counted() -> None:
    error = noisy().expected_error(HOMES, variables=["county"], source="this-data")
    assert error.table["bias"].to_list() == [0, 0, 0]
    assert error.root_mean_square_error == pytest.approx(math.sqrt(2), rel=1e-3)
    cut = noisy(tables=[["county", "sex"]], persons=2).expected_error(
        HOMES, variables=["county", "sex"], source="this-data", persons=PEOPLE, key="hid"
    )
    assert cut.table["bias"].sum() == -2
    with pytest.raises(StirredError, match="the same whatever the counts are"):
        noisy().expected_error(HOMES, variables=["county"], source="margins")
