"""Files that a swap would publish unprotected are refused, and honest ones are not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from stirred import Entropy, PermutationSwap
from stirred.data.problems import PlanError
from stirred.data.record_doubts import identifying, named_like_a_household_id
from stirred.spec.doubts import DoubtError

RANDOM = np.random.default_rng(20_261_116)


def names(swap: PermutationSwap, data: object) -> list[str]:
    return [doubt.name for doubt in swap.plan(data).doubts if doubt.refuses]


def people(rows: int, **columns: object) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "size": RANDOM.integers(1, 5, rows),
            "county": RANDOM.choice(list("ABCDE"), rows),
            "tenure": RANDOM.choice(["own", "rent"], rows),
            **columns,
        }
    )


def test_an_identifier_that_is_swapped_leaves_all_the_same() -> None:
    data = people(2_000, ssn=RANDOM.permutation(10**6)[:2_000])
    swap = PermutationSwap(match=["size"], swap=["county", "ssn"], rate="1/20")
    assert "identifier:ssn" in names(swap, data)
    with pytest.raises(DoubtError, match="all its values are released"):
        swap.release(data, Entropy.from_os())
    assert "identifier:ssn" not in names(
        PermutationSwap(match=["size"], swap=["county"], hold=["tenure"], rate="1/20"), data
    )


def test_coordinates_that_are_swapped_are_values_of_single_records_too() -> None:
    data = people(2_000, latitude=RANDOM.normal(48, 1, 2_000).round(5))
    assert "identifier:latitude" in names(
        PermutationSwap(match=["size"], swap=["county", "latitude"], rate="1/20"), data
    )


def test_where_swapped_records_get_the_values_they_had_nothing_is_protected() -> None:
    """All but one record of 2,000 live in one county: about 20 move, and 0.02 get another county."""
    data = people(2_000, county=["Tiny"] + ["Main"] * 1_999)
    (doubt,) = [d for d in PermutationSwap(match=[], swap=["county"], rate="1/100").plan(data).doubts if d.final]
    assert doubt.kind == "nothing-moves"
    assert "fewer than one record" in doubt.what


def test_matching_on_what_nearly_tells_the_area_does_not_hide_it() -> None:
    zips = np.repeat(np.arange(200), 100)
    county = np.where(RANDOM.random(20_000) < 0.99, zips % 5, RANDOM.integers(0, 5, 20_000))
    data = people(20_000, zip=zips, county=county)
    assert "mostly-unmoved" in names(PermutationSwap(match=["zip"], swap=["county"], rate="1/20"), data)
    assert "mostly-unmoved" not in names(
        PermutationSwap(match=["size"], swap=["county"], rate="1/20", hold=["tenure"]), data
    )


def test_a_rate_next_to_nothing_is_no_rate() -> None:
    data = people(6_000, k=[1] * 10 + [0] * 5_990)
    rules = [{"k": 1, "rate": "1/2"}]
    swap = PermutationSwap(match=["k"], swap=["county"], rate=Fraction(1, 10**12), rates=rules)
    assert "mostly-unmoved" in names(swap, data)


def test_a_frame_that_is_written_to_after_its_plan_is_not_released_by_it() -> None:
    frame = people(2_000).with_columns(income=pl.Series(RANDOM.integers(0, 50_000, 2_000))).to_pandas()
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/20")
    plan = swap.plan(frame)
    frame.loc[:, "income"] = frame["county"].map({name: 1_000 * place for place, name in enumerate("ABCDE")})
    with pytest.raises(PlanError, match="other data"):
        swap.release(frame, Entropy.from_os(), plan=plan)


# ---- honest files -----------------------------------------------------------------------------------------


def test_a_rare_flag_is_not_left_behind_because_it_stands_alone() -> None:
    """With one record of 10,000 flagged, the flag is a function of the block whenever that record is alone there."""
    block = np.concatenate([np.arange(4_000), 4_000 + RANDOM.integers(0, 900, 6_000)])
    flag = np.zeros(10_000, dtype=np.int64)
    flag[17] = 1
    data = people(10_000, block=block, inst=flag)
    swap = PermutationSwap(match=["size"], swap=["block"], hold=["tenure", "inst"], rate="1/20")
    assert "left-behind:inst" not in names(swap, data)


def test_a_rare_area_is_not_told_by_an_amount_that_is_independent_of_it() -> None:
    area = np.zeros(50_000, dtype=np.int64)
    area[[5, 50]] = 1
    data = people(50_000, area=area, income=RANDOM.integers(0, 150_000, 50_000))
    swap = PermutationSwap(match=["size"], swap=["area"], hold=["tenure", "income"], rate="1/2")
    assert not [name for name in names(swap, data) if name.startswith("tells:")]


def test_ages_of_a_few_dozen_persons_are_no_identifiers_and_numbers_with_a_point_are() -> None:
    ages = [pl.Series("age", [*RANDOM.permutation(np.arange(18, 95))[:23].tolist(), 40]) for _ in range(20)]
    assert not any(identifying(each) for each in ages if each.n_unique() < len(each))
    assert identifying(pl.Series("mark", [*map(float, range(2_000)), 0.5]))
    assert not identifying(pl.Series("spent", RANDOM.random(2_000)))
    income = [f"{amount:.2f}" if amount % 7 else "." for amount in RANDOM.permutation(5_000)[:2_000]]
    assert not identifying(pl.Series("income", income))


@pytest.mark.parametrize(
    "name", ["hid", "hh", "family_id", "famid", "dwelling_id", "HHSERIAL", "hh_ident", "nro_hogar"]
)
def test_ids_of_households_have_many_names(name: str) -> None:
    assert named_like_a_household_id(name)
