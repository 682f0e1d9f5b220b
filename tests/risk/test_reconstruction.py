"""Blocks with exactly one, two and no solutions, and blocks of a synthetic census."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from stirred.data.synth.census import census
from stirred.risk.bounds import solutions
from stirred.risk.reconstruction import BlockSolution, block_system, largest_difference, reconstruct
from stirred.risk.systems import propagated
from stirred.risk.table_lists import TableList, cells_of, described, parts, table_list

SF = table_list("sf")
WHITE, BLACK, ASIAN = 1, 2, 4
TWO = [(2, 30, BLACK, 1), (2, 30, ASIAN, 0), (1, 40, BLACK, 0), (1, 40, ASIAN, 1)]
ONE = [(2, 30, BLACK, 1), (2, 30, ASIAN, 1), (1, 40, BLACK, 0), (1, 40, ASIAN, 0)]


def cells(persons: list[tuple[int, int, int, int]]) -> np.ndarray:
    frame = pl.DataFrame(persons, schema=["sex", "age", "race", "hispanic"], orient="row")
    return cells_of(frame, where="test")


def attacked(persons: list[tuple[int, int, int, int]]) -> BlockSolution:
    return reconstruct(SF.counts(cells(persons)), SF)


def many(persons: list[tuple[int, int, int, int]]) -> int | None:
    made = block_system(SF.counts(cells(persons)), SF)
    assert made is not None
    return solutions(made[0])


def test_a_block_with_two_solutions() -> None:
    found = attacked(TWO)
    assert (found.outcome, found.difference, found.certain.sum(), many(TWO)) == ("several", found.persons, 0, 2)


def test_a_block_with_one_solution_gives_the_exact_records() -> None:
    found = attacked(ONE)
    assert (found.outcome, found.difference, found.certain.sum(), many(ONE)) == ("one", 0, 4, 1)
    assert sorted(np.repeat(found.cells, found.counts)) == sorted(cells(ONE))


def test_a_block_with_no_solution_is_told_apart() -> None:
    counts = SF.counts(cells(ONE))
    _, _, race, hispanic = parts()
    for kind, total in (((BLACK, 1), 2), ((ASIAN, 0), 2), ((BLACK, 0), 0), ((ASIAN, 1), 0)):
        adults = SF.tables["P1-P4"][(race == kind[0] - 1) & (hispanic == kind[1])].max()
        counts["P1-P4"][adults] = total
    assert reconstruct(counts, SF).outcome == "none"


def test_what_everybody_sees_stays_certain_beside_two_solutions() -> None:
    more = [*TWO, (2, 30, WHITE, 0), (1, 40, WHITE, 0)]
    found = attacked(more)
    assert (found.outcome, found.difference, found.persons, found.certain.sum()) == ("several", 4, 6, 2)
    assert many(more) == 2


def test_the_redistricting_list_alone_is_its_own_solution() -> None:
    pl_list = table_list("pl")
    own = pl_list.project[cells(TWO)]
    found = reconstruct(pl_list.counts(own), pl_list)
    assert (found.outcome, found.agreement(own)) == ("one", 4)


def test_the_tables_of_the_summary_file_fix_sex_by_38_ages() -> None:
    sex, age, _, _ = parts()
    by_age, single = SF.tables["P12"], SF.tables["P14"]
    kinds = {(int(s), int(a)): set() for s, a in zip(sex, age, strict=True)}  # type: ignore[var-annotated]
    for s, a, one, other in zip(sex.tolist(), age.tolist(), by_age.tolist(), single.tolist(), strict=True):
        kinds[s, a].add((one, other))
    assert len(kinds) == 76
    assert len({next(iter(each)) for each in kinds.values()}) == 76


@pytest.fixture(scope="module")
def blocks() -> list[np.ndarray]:
    """The persons of a small county, as cells, block by block."""
    households, persons = census(1_000, seed=3)
    people = persons.join(households.select("hid", "block"), on="hid")
    found = people.with_columns(cell=pl.Series(cells_of(people, where="persons")))
    return [part["cell"].to_numpy() for part in found.partition_by("block")]


def test_every_solution_has_the_published_tables_and_the_truth_is_among_them(blocks: list[np.ndarray]) -> None:
    ones = 0
    for truth in blocks:
        counts = SF.counts(truth)
        found = reconstruct(counts, SF)
        again = SF.counts(np.repeat(found.cells, found.counts))
        assert all((again[name] == counts[name]).all() for name in counts)
        if found.outcome == "one":
            ones += 1
            assert sorted(np.repeat(found.cells, found.counts)) == sorted(truth)
        # The truth is another solution, or this one: it is within the largest difference, and has all who are certain.
        assert truth.size - found.agreement(truth) <= found.difference
        certain = np.repeat(found.cells, found.certain)
        assert (np.bincount(certain, minlength=9576) <= np.bincount(truth, minlength=9576)).all()
    assert 0 < ones < len(blocks)


def around(truth: np.ndarray, tables: TableList) -> int:
    """Return how far another solution can be from the truth."""
    made = block_system(tables.counts(truth), tables)
    assert made is not None
    found = propagated(made[0])
    assert found is not None
    values = np.bincount(truth, minlength=tables.cells)[made[1]]
    return largest_difference(made[0], values, *found)[0]


def test_a_further_table_never_raises_the_largest_difference_from_the_truth(blocks: list[np.ndarray]) -> None:
    fewer = replace(SF, tables={name: each for name, each in SF.tables.items() if name not in ("P12B", "P12H", "P12I")})
    some = [truth for truth in blocks if truth.size < 60][:10]
    wider, closer = ([around(truth, tables) for truth in some] for tables in (fewer, SF))
    assert all(a >= b for a, b in zip(wider, closer, strict=True))
    assert sum(closer) < sum(wider)


def test_kinds_of_persons_are_described_as_they_were_given() -> None:
    assert described(cells(ONE)).rows() == ONE
