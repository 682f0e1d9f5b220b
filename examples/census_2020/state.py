"""One synthetic state as the files that the plans name: everybody in it is invented, and so are its groups.

Columns have the codes of the mechanisms' budget files and schemas. Detailed races and ethnicities are drawn from the
invented iterations that stirred brings along; vacant housing units, places and tribal areas are invented here.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl

from stirred.data.synth.census import census

HOUSEHOLDS, SEED = 40_000, 2020
CODES = [f"race{n}" for n in range(1, 9)]
_VACANT = 9  # occupied housing units for each vacant one
_AGES = (0, 5, 10, 15, 18, 20, 25, 35, 45, 55, 65, 75)
_AREAS = ["state", "county", "prim", "tract_subset_group", "tract_subset", "tract", "block_group", "block"]
# Codes of the synthetic census -> those of the products. Where the sex of the householder decides: (male, female).
_RELSHIP = {1: 20, 4: 25, 5: 30, 6: 29, 7: 28, 8: 33, 9: 36, 10: 37, 11: 38}
_RELGQ = {2: 2, 3: 2, 4: 3, 5: 4, 6: 4, 7: 4, 8: 4, 9: 5, 10: 6, 11: 7}
_HHT = {1: (1, 1), 2: (1, 1), 3: (2, 3), 4: (5, 7), 5: (3, 3), 6: (2, 2), 7: (6, 6), 8: (4, 4), 9: (2, 3), 10: (5, 7)}
_HHT2 = {
    1: (1, 1), 2: (2, 2), 3: (3, 3), 4: (4, 4), 5: (6, 6), 6: (10, 10), 7: (5, 5), 8: (9, 9), 9: (11, 7), 10: (12, 8),
}  # fmt: skip
_HHTYPE = {0: 1, 1: 1, 2: 2, 3: 3, 4: 3, 5: 5, 6: 4, 7: 6, 8: 6, 9: 7, 10: 7}
_T3 = {1: 1, 2: 2, 3: 3, 4: 4, 6: 4, 5: 5, 7: 5}
_RACES = [own for many in range(1, 7) for own in combinations(range(6), many)]  # of the codes 1 to 63


def files(*, households: int = HOUSEHOLDS, seed: int = SEED) -> dict[str, pl.DataFrame]:
    """Return the files by name: units, persons, and what single products are made from.

    Of a synthetic census the largest state is taken.
    """
    homes, people = census(households, seed=seed)
    state = homes.group_by("state").len().sort("len")["state"][-1]
    homes = homes.filter(pl.col("state") == state)
    people = people.join(homes.select("hid"), on="hid", how="semi").sort("hid", "pid")
    rng = np.random.default_rng(seed)
    units = _units(_with_vacant(_with_areas(homes), rng), people)
    detailed = _detailed(people, rng)
    codes = detailed.select(codes=pl.concat_str(CODES, separator=" ", ignore_nulls=True))
    persons = pl.concat([_persons(people, units), codes], how="horizontal")
    place = people.select("hid").join(units.select("hid", "block"), on="hid", maintain_order="left")
    residents = pl.concat([place, detailed, people.select("sex", "age")], how="horizontal")
    heads = residents.filter(people["relationship"] == 1).drop("sex", "age")
    types = units.select("hid", pl.col("hht").replace_strict(_T3, default=None).alias("household_type"), tenure="ten")
    return {
        "units.parquet": units,
        "persons.parquet": persons,
        "housing_units.parquet": units.filter(pl.col("gq_type") == 0).select("hid", *_AREAS, "occupancy"),
        "residents.parquet": residents.drop("hid"),
        "householders.parquet": heads.join(types, on="hid", maintain_order="left"),
        "blocks.csv": _blocks(units, rng),
    }


def _with_areas(homes: pl.DataFrame) -> pl.DataFrame:
    """Name areas by geocodes that contain each other, with the levels of 2020 that the synthetic census does not have.

    Tracts stand for tract subsets, and three of them for a group of tract subsets.
    """

    def number(name: str, above: str) -> pl.Expr:
        return (pl.col(name).rank("dense").over(above) - 1).cast(pl.Int64)

    numbers = homes.with_columns(
        c=number("county", "state"), t=number("tract", "county"), g=number("block_group", "tract"),
        b=number("block", "block_group"),
    )  # fmt: skip
    coded = numbers.with_columns(state=pl.lit("1"), county=pl.format("1{}", pl.col("c").cast(pl.String).str.zfill(2)))
    coded = coded.with_columns(prim=pl.format("{}P", "county"))
    coded = coded.with_columns(
        tract_subset_group=pl.format("{}{}", "prim", (pl.col("t") // 3).cast(pl.String).str.zfill(2))
    )
    coded = coded.with_columns(tract=pl.format("{}{}", "tract_subset_group", pl.col("t") % 3))
    coded = coded.with_columns(
        tract_subset="tract", block_group=pl.format("{}{}", "tract", pl.col("g").cast(pl.String).str.zfill(2))
    )
    block = pl.format("{}{}", "block_group", pl.col("b").cast(pl.String).str.zfill(3))
    return coded.with_columns(block=block).drop("c", "t", "g", "b")


def _with_vacant(homes: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Add vacant housing units in blocks that have others."""
    many = int((homes["gq_type"] == 0).sum()) // _VACANT
    where = homes.filter(pl.col("gq_type") == 0)[rng.integers(0, int((homes["gq_type"] == 0).sum()), many)]
    first = int(homes["hid"].max()) + 1  # type: ignore[call-overload]
    vacant = where.with_columns(
        pl.int_range(first, first + many).cast(homes["hid"].dtype).alias("hid"),
        *(pl.lit(0).cast(homes[name].dtype).alias(name) for name in ("size", "tenure", "household_type", "gq_type")),
    )
    return pl.concat([homes, vacant])


def _units(homes: pl.DataFrame, people: pl.DataFrame) -> pl.DataFrame:
    """Return all units: housing units, occupied or vacant, and group quarters, with their householder's values."""
    head = people.filter(pl.col("relationship") == 1).select(
        "hid", head_sex="sex", head_age="age", head_race="race", head_hispanic="hispanic"
    )
    partner = people.filter(pl.col("relationship").is_in([2, 3])).select("hid", partner_sex="sex")
    full = homes.join(head, on="hid", how="left", maintain_order="left").join(
        partner, on="hid", how="left", maintain_order="left"
    )
    headed, kind = pl.col("head_sex").is_not_null(), pl.col("household_type")
    same = (pl.col("head_sex") == pl.col("partner_sex")).fill_null(value=False).cast(pl.Int64)
    group = pl.when(pl.col("gq_type") <= 4).then(5).otherwise(6)
    without = pl.when(pl.col("gq_type") > 0).then(group).otherwise(4)
    couple = pl.when(kind <= 2).then(1 + same).when(kind <= 4).then(3 + same).otherwise(0)

    def by_sex(codes: dict[int, tuple[int, int]]) -> pl.Expr:
        male, female = (kind.replace_strict({k: v[n] for k, v in codes.items()}, default=None) for n in (0, 1))
        return pl.when(pl.col("head_sex") == 1).then(male).when(headed).then(female)

    return full.select(
        "hid", *_AREAS, "size", "gq_type",
        occupancy=pl.when(pl.col("size") > 0).then(pl.lit("occupied")).otherwise(pl.lit("vacant")),
        tenvacgq=pl.when(headed).then(pl.min_horizontal("tenure", 3)).otherwise(without),
        hhtype=kind.replace_strict(_HHTYPE),
        hh_hispanic=1 + pl.col("head_hispanic").fill_null(0),
        hh_race=pl.min_horizontal(pl.col("head_race").fill_null(1), 7),
        hhage=pl.when(headed & (pl.col("head_age") >= 65)).then(65).when(headed & (pl.col("head_age") >= 35)).then(35)
        .otherwise(15),
        hhrace="head_race", hhspan=1 + pl.col("head_hispanic"), ten=pl.when(headed).then("tenure"), hht=by_sex(_HHT),
        hht2=by_sex(_HHT2).cast(pl.String).str.zfill(2), cplt=pl.when(headed).then(couple),
    )  # fmt: skip


def _persons(people: pl.DataFrame, units: pl.DataFrame) -> pl.DataFrame:
    """Return the persons, without areas: they live where their unit is."""
    full = people.join(units.select("hid", "size", "gq_type", "cplt"), on="hid", maintain_order="left")
    role, same = pl.col("relationship"), pl.col("cplt").is_in([2, 4]).cast(pl.Int64)
    age = pl.col("age").replace_strict({year: max(e for e in _AGES if e <= year) for year in range(116)})
    relship = pl.when(role == 2).then(21 + 2 * same).when(role == 3).then(22 + 2 * same)
    return full.select(
        "hid",
        hhgq="gq_type",
        votingage=1 + (pl.col("age") >= 18).cast(pl.Int64),
        hispanic=1 + pl.col("hispanic").cast(pl.Int64),
        cenrace="race",
        relgq=pl.when(role == 1).then((pl.col("size") > 1).cast(pl.Int64)).otherwise(
            role.replace_strict(_RELGQ, default=0)
        ),
        sex="sex",
        age=age,
        race=pl.min_horizontal("race", 7),
        qage="age",
        cenhisp=1 + pl.col("hispanic").cast(pl.Int64),
        relship=relship.otherwise(role.replace_strict(_RELSHIP, default=0)),
    )  # fmt: skip


def _detailed(people: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return an invented detailed code for each race of a person, and an invented ethnicity of Hispanic persons.

    Each of the six races stands for three of the eighteen invented regions; a household has its codes in common.
    """
    house = people["hid"].rank("dense").to_numpy().astype(np.int64) - 1
    region, group = (rng.integers(0, many, (int(house.max()) + 1, 6))[house] for many in (3, 2))
    has = np.zeros((64, 6), dtype=bool)
    for code, own in enumerate(_RACES, start=1):
        has[code, [*own]] = True
    number = 3 * np.arange(6) + region  # from 0
    codes = 1110 + 100 * number + 10 * group
    wanted = np.where(has[people["race"].to_numpy()], codes, 0)
    wanted = -np.sort(-wanted, axis=1)  # those that there are come first
    named = {f"race{n + 1}": [str(code) if code else None for code in wanted[:, n].tolist()] for n in range(6)}
    none = {f"race{n}": [None] * people.height for n in (7, 8)}
    ethnic = np.array([2110, 2120, 2210, 2220])[rng.integers(0, 4, int(house.max()) + 1)[house]]
    spoken = np.where(people["hispanic"].to_numpy() == 1, ethnic, 0).tolist()
    return pl.DataFrame(
        {**named, **none, "ethnicity": [str(code) if code else "" for code in spoken]},
        schema=dict.fromkeys([*CODES, "ethnicity"], pl.String),
    )


def _blocks(units: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return the public table of blocks with their areas; places and tribal areas are invented."""
    blocks = units.select(_AREAS).unique().sort("block")
    inside = rng.random(blocks.height)
    place = pl.format("P{}", "tract_subset_group")
    return blocks.with_columns(
        place=pl.when(pl.Series(inside) < 0.6).then(place),
        aiannh=pl.when(pl.Series(inside) > 0.97).then(pl.format("A{}", "county")),
    )
