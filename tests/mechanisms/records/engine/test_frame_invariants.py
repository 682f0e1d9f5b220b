"""A release keeps both margins exactly and never parts a person from the household, for any file."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from stirred import Entropy, PermutationSwap
from stirred.data.microdata import Microdata
from stirred.data.problems import DataError
from stirred.mechanisms.protocol import Release
from tests.depth import examples
from tests.mechanisms.records.files import File, counts, files, households_with_persons
from tests.mechanisms.records.sampling import swapped

PERSON = ["age", "sex"]


def released(file: File, *, seed: int) -> Release:
    return swapped(file.swap, file.data, Entropy.from_seed(seed))


@settings(deadline=None, max_examples=examples(100))
@given(file=files(), seed=st.integers(0, 10**6))
def test_both_margins_are_exactly_those_of_the_input(file: File, seed: int) -> None:
    event("with persons" if file.data.persons is not None else "households alone")
    event(f"match {file.match}")
    after = released(file, seed=seed).public["data"]
    before = file.data.households
    kept = [name for name in after.columns if name != "hid"]
    assert after.select(kept).schema == before.select(kept).schema, "a column changed its type"
    margin = [*file.match, *file.swap.swap]
    assert counts(after, margin) == counts(before, margin)
    assert counts(after, file.hold) == counts(before, file.hold)


@settings(deadline=None, max_examples=examples(50))
@given(file=files(with_persons=True), seed=st.integers(0, 10**6))
def test_every_released_household_has_the_persons_of_an_input_household_with_its_hold_values(
    file: File, seed: int
) -> None:
    public = released(file, seed=seed).public

    def whole(households: pl.DataFrame, persons: pl.DataFrame | None) -> object:
        return households_with_persons(households, persons, hid="hid", columns=file.hold, of_persons=PERSON)

    assert whole(public["data"], public["persons"]) == whole(file.data.households, file.persons)


@settings(deadline=None, max_examples=examples(50))
@given(file=files(with_persons=True), seed=st.integers(0, 10**6))
def test_persons_carry_the_released_swap_values_of_their_household(file: File, seed: int) -> None:
    public = released(file, seed=seed).public
    places = dict(public["data"].select("hid", pl.struct(file.swap.swap)).rows())
    for hid, place in public["persons"].select("hid", pl.struct(file.swap.swap)).rows():
        assert places[hid] == place


@settings(deadline=None, max_examples=examples(50))
@given(file=files(), seed=st.integers(0, 10**6))
def test_household_ids_are_dropped_or_issued_anew_from_1_in_released_order(file: File, seed: int) -> None:
    public = released(file, seed=seed).public
    if file.data.persons is None:
        assert "hid" not in public["data"].columns
        return
    assert public["data"]["hid"].to_list() == list(range(1, file.data.households.height + 1))
    assert "pid" not in public["persons"].columns
    assert public["persons"]["hid"].is_sorted()


@settings(deadline=None, max_examples=examples(50))
@given(file=files(with_persons=True), seed=st.integers(0, 10**6))
def test_the_order_of_the_persons_in_their_file_leaves_no_trace(file: File, seed: int) -> None:
    assert file.persons is not None
    shuffled = file.persons.sample(fraction=1, shuffle=True, seed=seed)
    other = Microdata(households=file.data.households, persons=shuffled, hid="hid", id=("pid",))
    first, second = (swapped(file.swap, data, Entropy.from_seed(seed)).public for data in (file.data, other))
    assert first["persons"].equals(second["persons"])
    assert first["data"].equals(second["data"])


@settings(deadline=None, max_examples=examples(50))
@given(file=files(), seed=st.integers(0, 10**6))
def test_the_swap_variables_of_a_record_move_together(file: File, seed: int) -> None:
    """Every released combination of swap values is one that a record of the same stratum had."""
    together = [*file.match, "county", "tract"]
    swap = PermutationSwap(match=file.match, swap=["county", "tract"], rate=file.swap.swap_law.rate)
    after = swapped(swap, file.data, Entropy.from_seed(seed)).public["data"]
    assert counts(after, together) == counts(file.data.households, together)


def pairs(strata: int) -> pl.DataFrame:
    """Strata of two records that differ in every respect."""
    return pl.DataFrame(
        {
            "stratum": [number // 2 for number in range(2 * strata)],
            "county": ["A", "B"] * strata,
            "tenure": ["owned", "rented"] * strata,
        }
    )


def exchanged(released: pl.DataFrame) -> pl.Series:
    """The strata in which the owned home is no longer in A."""
    return released.filter((pl.col("tenure") == "owned") & (pl.col("county") == "B"))["stratum"]


def test_at_rate_0_nothing_moves_and_at_rate_1_everything_does() -> None:
    homes = pairs(500)
    for rate, moved in (("0", 0), ("1", 500)):
        swap = PermutationSwap(match=["stratum"], swap=["county"], rate=rate)
        assert exchanged(swapped(swap, homes, Entropy.from_os()).public["data"]).len() == moved


def test_the_last_rule_that_fits_gives_a_stratum_its_rate() -> None:
    homes = pairs(3)
    rules: list[dict[str, Any]] = [{"stratum": 0, "rate": 0}, {"stratum": "1", "rate": 0}, {"stratum": 1, "rate": 1}]
    swap = PermutationSwap(match=["stratum"], swap=["county"], rate=1, rates=rules)
    for _ in range(20):
        released = swapped(swap, homes, Entropy.from_os()).public["data"]
        assert sorted(exchanged(released).to_list()) == [1, 2]


@pytest.mark.parametrize("records", [1, 2, 3])
@pytest.mark.parametrize("constant", ["tenure", "county", "neither"])
def test_tiny_files_without_match_variables_are_released_whole(records: int, constant: str) -> None:
    homes = pl.DataFrame({"county": list("ABC")[:records], "tenure": list("opq")[:records]})
    if constant != "neither":
        homes = homes.with_columns(pl.lit("z").alias(constant))
    for rate in ("0", "1/2", "1"):
        after = swapped(PermutationSwap(match=[], swap=["county"], rate=rate), homes, Entropy.from_os()).public["data"]
        for column in homes.columns:
            assert sorted(after[column]) == sorted(homes[column])


@settings(deadline=None, max_examples=examples(20))
@given(file=files(), seed=st.integers(0, 10**6))
def test_the_result_does_not_depend_on_the_number_of_threads(file: File, seed: int) -> None:
    def run(threads: int) -> Release:
        return swapped(PermutationSwap(file.swap.settings, threads=threads), file.data, Entropy.from_seed(seed))

    one, five = run(1), run(5)
    assert all(one.public[name].equals(five.public[name]) for name in one.public)


def test_a_large_file_comes_out_the_same_on_one_thread_and_on_three() -> None:
    rows = 300_000
    homes = pl.DataFrame({"row": range(rows)}).select(
        (pl.col("row") % 7).alias("size"), (pl.col("row") % 4001).alias("block"), pl.col("row").alias("unique")
    )
    frames = [
        swapped(
            PermutationSwap(match=["size"], swap=["block"], rate="1/10", threads=threads),
            homes,
            Entropy.from_seed("threads"),
        ).public["data"]
        for threads in (1, 3)
    ]
    assert frames[0].equals(frames[1])


def test_frames_of_other_libraries_are_accepted() -> None:
    homes = pairs(50)
    swap = PermutationSwap(match=["stratum"], swap=["county"], rate="1/2")
    expected = swapped(swap, homes, Entropy.from_seed(1)).public["data"]
    for other in (homes.lazy(), homes.to_pandas(), homes.to_arrow()):
        released = swapped(swap, other, Entropy.from_seed(1)).public["data"]
        frame = released.collect() if isinstance(released, pl.LazyFrame) else pl.DataFrame(released)
        assert frame.equals(expected)


def test_a_person_column_that_is_not_released_is_listed_as_dropped() -> None:
    """Persons get the columns of their household from it; what is left out of their file is told."""
    homes = pl.DataFrame({"hid": [1, 2], "county": list("AB"), "weight": [7, 8]})
    people = pl.DataFrame({"pid": [1, 1], "hid": [1, 2], "age": [30, 40], "weight": [7, 8], "county": list("AB")})
    data = Microdata(households=homes, persons=people, hid="hid", id=("pid",))
    swap = PermutationSwap(match=[], swap=["county"], rate="1/2")
    kept = swapped(swap, data, Entropy.from_os()).public["persons"].columns
    told = " ".join(swap.plan(data).dropped)
    assert [name for name in people.columns if name not in kept and name not in told] == []


def test_a_person_column_that_shares_a_name_with_another_household_column_is_refused() -> None:
    """A weight of the household and a weight of the person are two things: neither may vanish in silence."""
    homes = pl.DataFrame({"hid": [1, 2], "county": list("AB"), "weight": [7, 7]})
    people = pl.DataFrame({"hid": [1, 2], "age": [30, 40], "weight": [3, 4]})
    data = Microdata(households=homes, persons=people, hid="hid")
    with pytest.raises(DataError, match=r"\"weight\": persons disagree with their household \(2 rows: 1, 2\)"):
        PermutationSwap(match=[], swap=["county"], rate="1/2").plan(data)
