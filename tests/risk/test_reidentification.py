"""Reidentification: tiny cases by enumeration, exact matches without protection, and nothing gained from noise."""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stirred.data.synth.census import census
from stirred.risk.attackers import PERSON, AttackerColumns, attackers_file, given_attacker
from stirred.risk.reidentification import ONE_SOLUTION, VULNERABLE, LinkSums, reidentify
from stirred.spec.problems import StirredError
from tests.depth import examples

ASKED = AttackerColumns(learn=("race",))
TRACT = AttackerColumns(within=("tract",))


def people(*rows: tuple[int, int, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["block", "sex", "age", "race"], orient="row")


def test_a_person_who_is_not_there_and_one_without_a_match() -> None:
    """Ann (White), Zoe (absent), Cy (White) and Eve (no candidate) against four records."""
    pool = people((1, 2, 30, 1), (1, 2, 30, 2), (1, 1, 40, 1), (1, 1, 40, 1))
    truth = people((1, 2, 30, 1), (1, 1, 40, 1), (1, 2, 65, 1))
    file = pl.DataFrame(
        {"block": [1] * 4, "sex": [2, 2, 1, 2], "age": [30, 30, 40, 65], PERSON: [0, None, 1, 2]}
    )  # fmt: skip
    found = reidentify(truth, pool, asked=ASKED, attacker=file)["all"]
    assert (found.records, found.putative, found.confirmed, found.precision) == (4, 3, 1.5, 0.5)


def test_guesses_leave_the_person_out() -> None:
    """Nine White and one Asian: the modal guess is right for nine of ten, the proportional one for eight."""
    truth = people(*((1, 1, 20 + 5 * n, 1 if n else 4) for n in range(10)))
    found = reidentify(truth, truth, asked=ASKED)["all"]
    assert (found.modal, found.proportional) == pytest.approx((9, 8))


AGES = (30, 31, 40)  # 30 and 31 are of one group


def one_by_one(truth: pl.DataFrame, pool: pl.DataFrame) -> tuple[Fraction, Fraction]:
    """Match by every possible lot: putative and confirmed, on average."""
    file, there = truth.rows(), pool.rows()
    putative = confirmed = lots = 0
    orders = [*permutations(range(len(file)))], [*permutations(range(len(there)))]
    for mine in orders[0]:
        for theirs in orders[1]:
            first = matched(mine, theirs, file, there, group=False)
            left = [i for i in mine if i not in first], [j for j in theirs if j not in first.values()]
            # What is left over draws again.
            for again in permutations(left[0]):
                for others in permutations(left[1]):
                    found = first | matched(again, others, file, there, group=True)
                    weight = math.factorial(3) ** 2 // (math.factorial(len(left[0])) * math.factorial(len(left[1])))
                    lots += weight
                    putative += weight * len(found)
                    confirmed += weight * sum(file[i][3] == there[j][3] for i, j in found.items())
    return Fraction(putative, lots), Fraction(confirmed, lots)


def matched(mine: tuple[int, ...], theirs: tuple[int, ...], file: list, there: list, *, group: bool) -> dict[int, int]:
    waiting = defaultdict(list)
    for j in theirs:
        waiting[key(there[j], group)].append(j)
    found = {}
    for i in mine:
        if waiting[key(file[i], group)]:
            found[i] = waiting[key(file[i], group)].pop(0)
    return found


def key(row: tuple[int, ...], group: bool) -> tuple[int, ...]:
    return (row[0], row[1], row[2] // 5 if group else row[2])


PERSONS = st.lists(
    st.tuples(st.just(1), st.just(1), st.sampled_from(AGES), st.integers(1, 2)), min_size=1, max_size=3
).map(lambda rows: people(*rows))


@given(PERSONS, PERSONS)
@settings(max_examples=examples(120), deadline=None)
def test_expectations_are_those_over_all_lots(truth: pl.DataFrame, pool: pl.DataFrame) -> None:
    found = reidentify(truth, pool, asked=ASKED)["all"]
    assert (found.putative, found.confirmed) == pytest.approx(tuple(map(float, one_by_one(truth, pool))))


SOME = st.tuples(st.integers(1, 2), st.just(1), st.sampled_from(AGES), st.integers(1, 3))


@given(st.lists(SOME, min_size=2, max_size=4), st.randoms(use_true_random=False))
@settings(max_examples=examples(90), deadline=None)
def test_the_replaced_person_is_the_mean_over_all_others(rows: list[tuple[int, int, int, int]], draw: object) -> None:
    """The closed form, against one attack for each person and each other person whose values replace theirs."""
    truth = people(*rows)
    areas = [row[0] for row in rows]
    draw.shuffle(areas)  # type: ignore[attr-defined]
    pool = truth.with_columns(block=pl.Series(areas)).with_row_index("row")
    found = reidentify(truth, pool, asked=ASKED, origin="row")["all"]
    slowly = 0.0
    for person in range(truth.height):
        others = [each for each in range(truth.height) if each != person]
        for other in others:
            race = truth["race"].to_list()
            race[person] = race[other]
            again = reidentify(truth, pool.with_columns(race=pl.Series(race)), asked=ASKED, targets=[person])
            slowly += again["all"].confirmed / len(others)
    assert found.replaced == pytest.approx(slowly)


@pytest.fixture(scope="module")
def town() -> pl.DataFrame:
    households, persons = census(4_000, seed=1)
    return persons.join(households, on="hid", how="left", maintain_order="left")


def test_unprotected_records_give_everybody_who_is_alone_away(town: pl.DataFrame) -> None:
    found = reidentify(town, town.with_row_index("row"), asked=TRACT, origin="row")
    vulnerable = found[VULNERABLE]
    assert vulnerable.records > 100
    assert vulnerable.confirmed == vulnerable.putative == vulnerable.own == vulnerable.records
    assert vulnerable.modal == 0
    assert found["all"].putative == found["all"].records == town.height
    assert found["modal"].records + found["nonmodal"].records == town.height
    # Of the whole file much is learned about the population, of the vulnerable little.
    assert (vulnerable.excess or 0) > 0.8 > 0.5 > (found["all"].excess or 0)


def shuffled(town: pl.DataFrame, share: float, seed: int) -> pl.DataFrame:
    """Return the persons with a share of them exchanging their blocks at random."""
    draw = np.random.default_rng(seed)
    chosen = np.flatnonzero(draw.random(town.height) < share)
    rows = np.arange(town.height)
    rows[chosen] = draw.permutation(chosen)
    return town.with_columns(town["block"][rows]).with_row_index("row")


def excesses(found: LinkSums) -> tuple[float, float]:
    """Return how many more matches are right than by guessing, and than with the person replaced, over a root.

    On noise 40 seeds had means up to 0.45 roots of the putative matches (some records return to their block by chance)
    and standard deviations up to 0.29: 2 is more than five deviations away.
    """
    root = math.sqrt(found.putative)
    return (found.confirmed - found.proportional) / root, (found.confirmed - (found.replaced or 0.0)) / root


def test_noise_gives_no_more_than_guessing_and_a_tenth_that_stays_is_seen(town: pl.DataFrame) -> None:
    """A false alarm in fewer than one of a million; power: a tenth that stays is seen in every stratum."""
    noise = reidentify(town, shuffled(town, 1.0, seed=2), asked=TRACT, origin="row")
    some = reidentify(town, shuffled(town, 0.9, seed=2), asked=TRACT, origin="row")
    for name in ("all", "nonmodal", VULNERABLE):
        assert max(excesses(noise[name])) < 2 < min(excesses(some[name])), name
    assert noise["all"].confirmed < noise["all"].modal


def test_only_areas_with_one_solution_and_chosen_persons_count(town: pl.DataFrame) -> None:
    some = town.select("block").unique(maintain_order=True)[::2]
    found = reidentify(town, town, one_solution=some)
    inside = reidentify(town, town, targets=np.flatnonzero(town["block"].is_in(some["block"].implode())).tolist())
    assert 0 < found[ONE_SOLUTION].records == inside[VULNERABLE].records < found[VULNERABLE].records


def test_groups_of_ages_and_counts_of_a_reconstruction_match_like_records() -> None:
    truth = people((1, 1, 31, 1), (1, 1, 33, 1), (1, 2, 7, 2))
    pool = pl.DataFrame({"block": [1, 1], "sex": [1, 2], "age_from": [30, 7], "race": [1, 2], "persons": [2, 1]})
    found = reidentify(truth, pool, asked=ASKED, count="persons")["all"]
    assert (found.putative, found.confirmed) == (3, 3)


def test_an_attackers_file_has_the_declared_shares(town: pl.DataFrame) -> None:
    """Shares of about 10,000 persons, to six standard deviations (false alarms below 1e-8 each)."""
    file = attackers_file(town, coverage=0.6, age_error=0.2, address_error=0.1)
    true = town[file[PERSON].to_list()]
    for seen, share, whole in (
        (file.height, 0.6, town.height),
        (int((file["block"] != true["block"]).sum()), 0.1, file.height),
        (int((file["age"] != true["age"]).sum()), 0.2, file.height),
    ):
        assert abs(seen - share * whole) < 6 * math.sqrt(share * (1 - share) * whole)
    off = (file["age"].cast(pl.Int64) - true["age"].cast(pl.Int64)).abs()
    assert off.max() == 5
    assert (file["sex"] == true["sex"]).all()
    assert file.equals(attackers_file(town, coverage=0.6, age_error=0.2, address_error=0.1))
    assert not file.equals(attackers_file(town, coverage=0.6, age_error=0.2, address_error=0.1, seed=2))


def test_a_real_file_is_the_simulated_one_by_its_ids(town: pl.DataFrame) -> None:
    asked, ids = AttackerColumns(), pl.DataFrame({"pid": [f"p{n}" for n in range(town.height)]})
    simulated = attackers_file(town, coverage=0.3)
    real = simulated.with_columns(pl.col(name).cast(pl.String) for name in asked.keys)
    real = real.with_columns(pid=ids["pid"][simulated[PERSON].to_list()]).drop(PERSON)
    assert given_attacker(real, town, ids, asked, where="file").equals(simulated)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"drop": "sex"}, 'there is no column "sex"'),
        ({"age": "old"}, "3 values cannot be read as Int64"),
        ({"pid": 1}, "2 rows have an id that occurs before"),
        ({"pid": 77}, "none of its ids"),
        ({"rows": 0}, "it has no rows"),
    ],
)
def test_a_broken_file_of_an_attacker_is_refused(changed: dict[str, object], said: str) -> None:
    truth = people((1, 1, 31, 1), (1, 1, 33, 1), (1, 2, 7, 2))
    file = truth.drop("race").with_columns(pid=pl.Series([1, 2, 3]))
    match changed:
        case {"drop": name}:
            file = file.drop(str(name))
        case {"age": text}:
            file = file.with_columns(age=pl.lit(text))
        case {"pid": 1}:
            file = file.with_columns(pid=pl.lit(1))
        case {"pid": other}:
            file = file.with_columns(pid=pl.Series([1, 2, 3]) + other)
        case _:
            file = file.clear()
    with pytest.raises(StirredError, match=said):
        given_attacker(file, truth, pl.DataFrame({"pid": [1, 2, 3]}), ASKED, where="file")


@pytest.mark.parametrize("wrong", [{"coverage": 1.5}, {"age_error": -0.1}])
def test_shares_beyond_one_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(StirredError, match="is not a share"):
        attackers_file(people((1, 1, 1, 1)), **wrong)  # type: ignore[arg-type]
