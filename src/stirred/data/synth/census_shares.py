"""The distributions behind the synthetic census, as tables one can read.

They were chosen to look like the United States in 2020 and are not estimates: round numbers in
thousandths, written down from general knowledge of published tables. Nothing here was fitted to
anybody's records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

Floats = npt.NDArray[np.float64]

# --- households -------------------------------------------------------------------------------------

# Household sizes in thousandths; the last class is "7 or more": 7 and a geometric tail up to 15.
SIZE: Final = {1: 282, 2: 348, 3: 151, 4: 127, 5: 57, 6: 23, 7: 12}
TAIL_STOPS: Final = 0.6

# Household type by size, thousandths. A couple with a child is at least three persons.
TYPE_BY_SIZE: Final[Mapping[int, Mapping[int, int]]] = {
    1: {7: 545, 8: 455},
    2: {2: 620, 4: 110, 5: 60, 6: 20, 9: 120, 10: 70},
    3: {1: 310, 2: 290, 3: 80, 4: 30, 5: 120, 6: 30, 9: 120, 10: 20},
    4: {1: 600, 2: 140, 3: 70, 4: 10, 5: 90, 6: 20, 9: 60, 10: 10},
    5: {1: 660, 2: 90, 3: 80, 4: 10, 5: 80, 6: 20, 9: 55, 10: 5},
    6: {1: 620, 2: 120, 3: 80, 4: 10, 5: 70, 6: 20, 9: 75, 10: 5},
    7: {1: 620, 2: 120, 3: 80, 4: 10, 5: 70, 6: 20, 9: 75, 10: 5},
}
# Age of the householder by type, thousandths in bands starting at AGE_BANDS (the last one is open).
AGE_BANDS: Final = (15, 25, 35, 45, 55, 65, 75, 85)
HOUSEHOLDER_AGE: Final[Mapping[int, Sequence[int]]] = {
    1: (15, 245, 420, 260, 52, 8, 0, 0),
    2: (12, 90, 60, 125, 265, 260, 145, 43),
    3: (70, 380, 350, 160, 35, 5, 0, 0),
    4: (130, 340, 130, 120, 140, 95, 38, 7),
    5: (60, 300, 375, 205, 50, 10, 0, 0),
    6: (40, 230, 360, 260, 90, 20, 0, 0),
    7: (35, 100, 80, 105, 195, 230, 170, 85),
    8: (45, 165, 135, 150, 215, 170, 85, 35),
    9: (35, 105, 110, 185, 230, 170, 110, 55),
    10: (210, 330, 130, 105, 115, 75, 27, 8),
}
HOUSEHOLDER_MALE: Final = {1: 540, 2: 560, 3: 500, 4: 520, 5: 0, 6: 1000, 7: 0, 8: 1000, 9: 420, 10: 540}
# Owners by age band of the householder: couples and others, thousandths.
OWNERS_COUPLE: Final = (280, 520, 690, 780, 840, 890, 900, 880)
OWNERS_OTHER: Final = (120, 260, 420, 530, 610, 670, 700, 670)
# Owners without a mortgage by age band, and tenants who pay no rent, thousandths.
FREE_AND_CLEAR: Final = (180, 140, 160, 240, 390, 600, 740, 830)
NO_RENT: Final = 50
# A household follows the table above with this probability, and the share of owners in its tract otherwise.
OWNERS_FOLLOW_TABLE: Final = 0.6
OWNERS: Final = 0.635

# --- group quarters ---------------------------------------------------------------------------------

# One record in about 550; by type: share of the facilities, median size, spread of its logarithm.
GQ_RATE: Final = 0.0018
GQ_SHARE: Final = {1: 35, 2: 12, 3: 100, 4: 13, 5: 170, 6: 15, 7: 655}
GQ_MEDIAN: Final = {1: 90, 2: 10, 3: 55, 4: 20, 5: 45, 6: 60, 7: 6}
GQ_SPREAD: Final = {1: 1.3, 2: 0.7, 3: 0.7, 4: 0.9, 5: 1.0, 6: 1.0, 7: 0.9}
# Ages: middle, spread, youngest, oldest; and males in thousandths.
GQ_AGE: Final = {
    1: (38, 11, 18, 90),
    2: (15, 1.5, 10, 20),
    3: (80, 10, 30, 110),
    4: (45, 20, 1, 100),
    5: (20, 1.5, 17, 35),
    6: (24, 5, 18, 60),
    7: (42, 17, 1, 100),
}
GQ_MALE: Final = {1: 910, 2: 820, 3: 350, 4: 580, 5: 460, 6: 840, 7: 600}

# --- persons ----------------------------------------------------------------------------------------

# Further members: child, grandchild, parent, brother or sister, other relative, nonrelative. By the
# household: with own children under 18; a couple without; other relatives (first, then further ones);
# nonrelatives only.
FURTHER: Final = {
    "with children": (900, 20, 30, 15, 20, 15),
    "couple": (650, 40, 150, 60, 70, 30),
    "relatives, first": (450, 100, 200, 170, 80, 0),
    "relatives": (350, 170, 120, 130, 130, 100),
    "nonrelatives": (0, 0, 0, 0, 0, 1000),
}
FURTHER_BY_TYPE: Final = {1: 0, 2: 1, 3: 0, 4: 1, 5: 0, 6: 0, 7: 4, 8: 4, 9: 3, 10: 4}
# Males by relationship (child ... nonrelative), thousandths.
MEMBER_MALE: Final = {4: 512, 5: 510, 6: 300, 7: 520, 8: 510, 9: 540}
# Couples of one sex, thousandths: married, cohabiting.
SAME_SEX: Final = {2: 12, 3: 60}

# Race x Hispanic: the six races alone and two or more races (not Hispanic), and Hispanic; thousandths.
GROUP: Final = (578, 121, 7, 59, 2, 5, 41, 187)
# A member shares the householder's group with this probability, and is drawn from the tract otherwise.
SAME_GROUP: Final = {"relative": 0.9, "nonrelative": 0.65}
# Pairs of races among non-Hispanic persons of two or more races, thousandths, in the order of the codes
# 7 to 21; what is missing to 1,000 goes to three races and more.
PAIRS: Final = (190, 240, 175, 20, 170, 25, 15, 5, 35, 6, 2, 3, 24, 20, 5)
# Races alone among Hispanic persons; what is missing to 1,000 goes to two races and more, most of it
# to White and Some Other Race.
HISPANIC_ALONE: Final = (203, 19, 24, 4, 1, 422)
HISPANIC_PAIRS: Final = (15, 15, 6, 2, 240, 2, 1, 1, 11, 1, 1, 10, 1, 4, 1)
# How often a race is one of three or more.
_MIXING: Final = (60, 25, 20, 15, 5, 15)

# Imputation: whole households (then 9 persons in 10), and single persons elsewhere: 3% of persons.
WHOLE_HOUSEHOLD: Final = 0.022
WITHIN_IMPUTED: Final = 0.9
SINGLE_PERSON: Final = 0.0105

# --- differences between areas --------------------------------------------------------------------

# Share of the variance that lies between tracts (a Dirichlet mixture keeps the national shares).
BETWEEN_TRACTS: Final = {"size": 0.02, "owners": 0.5}
# Shape of the gamma law of a tract's rate of group quarters and of imputation, mean one.
TRACT_RATES: Final = {"gq": 0.7, "imputation": 2.0}


def cumulative(weights: Sequence[float]) -> Floats:
    """Return the running shares of the weights; the last one is exactly 1.

    >>> cumulative([1, 1, 2]).tolist()
    [0.25, 0.5, 1.0]
    """
    running = np.cumsum(np.asarray(weights, dtype=np.float64))
    shares: Floats = running / running[-1]
    return shares


def race_weights(*, hispanic: bool) -> Floats:
    """Return the shares of the 63 race codes among Hispanic persons, or non-Hispanic of several races.

    >>> shares = race_weights(hispanic=False)
    >>> shares.size, bool(shares[:6].sum() == 0), bool(shares[6:].min() > 0)
    (63, True, True)
    """
    alone = HISPANIC_ALONE if hispanic else (0,) * 6
    pairs = HISPANIC_PAIRS if hispanic else PAIRS
    several = np.array([prod(_MIXING[race] / 60 for race in found) for found in RACE_SETS[21:]])
    rest = 1000 - sum(alone) - sum(pairs)
    weights: Floats = np.concatenate([alone, pairs, several * rest / several.sum()]) / 1000
    return weights


class Tables(NamedTuple):
    """The distributions as the compiled code reads them: running shares, indexed by code."""

    type_by_size: Floats
    age_bands: Floats
    householder_age: Floats
    householder_male: Floats
    owners: Floats
    free_and_clear: Floats
    gq_share: Floats
    gq_size: Floats
    gq_age: Floats
    gq_male: Floats
    further: Floats
    further_by_type: npt.NDArray[np.int64]
    member_male: Floats
    multiracial: Floats
    hispanic: Floats


def tables() -> Tables:
    """Return the distributions of this module for the compiled code."""
    types = range(max(HOUSEHOLD_TYPE) + 1)
    couple = np.array(OWNERS_COUPLE) / 1000
    other = np.array(OWNERS_OTHER) / 1000
    return Tables(
        type_by_size=_rows(TYPE_BY_SIZE, width=len(types)),
        age_bands=np.array(AGE_BANDS, dtype=np.float64),
        householder_age=_rows({kind: dict(enumerate(bands)) for kind, bands in HOUSEHOLDER_AGE.items()}, width=8),
        householder_male=_thousandths(HOUSEHOLDER_MALE),
        owners=np.array([couple if 1 <= kind <= 4 else other for kind in types]),
        free_and_clear=np.array(FREE_AND_CLEAR) / 1000,
        gq_share=_rows({0: GQ_SHARE}, width=8)[0],
        gq_size=np.array([(1, 0)] + [(np.log(GQ_MEDIAN[kind]), GQ_SPREAD[kind]) for kind in GQ_SHARE], dtype=float),
        gq_age=np.array([(0, 0, 0, 0), *GQ_AGE.values()], dtype=np.float64),
        gq_male=_thousandths(GQ_MALE),
        further=np.array([cumulative(weights) for weights in FURTHER.values()]),
        further_by_type=np.array([FURTHER_BY_TYPE.get(kind, 4) for kind in types], dtype=np.int64),
        member_male=_thousandths(MEMBER_MALE),
        multiracial=cumulative(race_weights(hispanic=False).tolist()),
        hispanic=cumulative(race_weights(hispanic=True).tolist()),
    )


def _rows(table: Mapping[int, Mapping[int, Any]], *, width: int) -> Floats:
    """Return running shares with one row per key; rows without a key stay empty."""
    rows = np.zeros((max(table) + 1, width))
    for key, weights in table.items():
        rows[key] = cumulative([weights.get(code, 0) for code in range(width)])
    return rows


def _thousandths(table: Mapping[int, int]) -> Floats:
    return np.array([table.get(code, 0) / 1000 for code in range(max(table) + 1)])


# ---- the columns and codes of the synthetic census: what each number in the files means, and its codebook ----------

HOUSEHOLD_COLUMNS: Final[Mapping[str, type[pl.DataType]]] = {
    "hid": pl.UInt32, "state": pl.UInt8, "county": pl.UInt16, "tract": pl.UInt32, "block_group": pl.UInt32,
    "block": pl.UInt32, "size": pl.UInt16, "tenure": pl.UInt8, "household_type": pl.UInt8, "gq_type": pl.UInt8,
}  # fmt: skip
PERSON_COLUMNS: Final[Mapping[str, type[pl.DataType]]] = {
    "hid": pl.UInt32, "pid": pl.UInt16, "relationship": pl.UInt8, "sex": pl.UInt8, "age": pl.UInt8, "race": pl.UInt8,
    "hispanic": pl.UInt8, "imputed": pl.UInt8,
}  # fmt: skip
# From the smallest area to the largest.
HIERARCHY: Final = ("block", "block_group", "tract", "county", "state")

TENURE: Final = {
    0: "not applicable: group quarters",
    1: "owned with a mortgage or loan",
    2: "owned free and clear",
    3: "rented",
    4: "occupied without payment of rent",
}
HOUSEHOLD_TYPE: Final = {
    0: "not applicable: group quarters",
    1: "married couple with own children under 18",
    2: "married couple without own children under 18",
    3: "cohabiting couple with own children under 18",
    4: "cohabiting couple without own children under 18",
    5: "female householder, no partner, own children under 18",
    6: "male householder, no partner, own children under 18",
    7: "female householder living alone",
    8: "male householder living alone",
    9: "householder with other relatives, no partner, no own children under 18",
    10: "householder with nonrelatives only",
}
GQ_TYPE: Final = {
    0: "household, not group quarters",
    1: "correctional facility for adults",
    2: "juvenile facility",
    3: "nursing facility",
    4: "other institutional facility",
    5: "college or university student housing",
    6: "military quarters",
    7: "other noninstitutional facility",
}
RELATIONSHIP: Final = {
    1: "householder",
    2: "spouse",
    3: "unmarried partner",
    4: "child",
    5: "grandchild",
    6: "parent or parent-in-law",
    7: "brother or sister",
    8: "other relative",
    9: "nonrelative",
    10: "resident of institutional group quarters",
    11: "resident of noninstitutional group quarters",
}
RACES: Final = (
    "White",
    "Black or African American",
    "American Indian and Alaska Native",
    "Asian",
    "Native Hawaiian and Other Pacific Islander",
    "Some Other Race",
)
# All 63 non-empty sets of the six races, fewest first, as the decennial census numbers them.
RACE_SETS: Final = tuple(found for count in range(1, 7) for found in combinations(range(6), count))
RACE: Final = {
    code: "; ".join(RACES[race] for race in found) + (" alone" if len(found) == 1 else "")
    for code, found in enumerate(RACE_SETS, start=1)
}

CODES: Final[Mapping[str, Mapping[int, str]]] = {
    "tenure": TENURE,
    "household_type": HOUSEHOLD_TYPE,
    "gq_type": GQ_TYPE,
    "relationship": RELATIONSHIP,
    "sex": {1: "male", 2: "female"},
    "race": RACE,
    "hispanic": {0: "not Hispanic or Latino", 1: "Hispanic or Latino"},
    "imputed": {0: "as reported", 1: "imputed"},
}
LABELS: Final = {
    "hid": "Household",
    "state": "State",
    "county": "County",
    "tract": "Tract",
    "block_group": "Block group",
    "block": "Block",
    "size": "Number of persons",
    "tenure": "Tenure",
    "household_type": "Household type",
    "gq_type": "Group quarters type",
    "pid": "Person within the household",
    "relationship": "Relationship to the householder",
    "sex": "Sex",
    "age": "Age in years",
    "race": "Race",
    "hispanic": "Hispanic or Latino origin",
    "imputed": "Whether the record was imputed",
}
OLDEST: Final = 115
LARGEST_HOUSEHOLD: Final = 15
LARGEST_GQ: Final = 9_999

# Ages that the generator never gives to a relationship: a householder is at least 15, a spouse or
# partner at least 18, a parent at least 33 (a child is at least 15 years younger).
YOUNGEST: Final = {1: 15, 2: 18, 3: 18, 6: 33}


def census_codebook(areas: Mapping[str, int], *, title: str) -> str:
    """Return the codebook of a census with these numbers of areas.

    >>> import tomllib
    >>> areas = {"states": 2, "counties": 4, "tracts": 12, "block_groups": 34, "blocks": 100}
    >>> book = tomllib.loads(census_codebook(areas, title="An example"))
    >>> book["hierarchies"][0]["levels"][0], len(book["variables"])
    ('block', 18)
    """
    limits = {
        "state": (1, areas["states"]),
        "county": (1, areas["counties"]),
        "tract": (1, areas["tracts"]),
        "block_group": (1, areas["block_groups"]),
        "block": (1, areas["blocks"]),
        "size": (1, LARGEST_GQ),
        "age": (0, OLDEST),
    }
    lines = ["[codebook]", f"title = {json.dumps(title)}"]
    for file, columns in (("households", HOUSEHOLD_COLUMNS), ("persons", PERSON_COLUMNS)):
        for name in columns:
            lines += _variable(name, file=file, limits=limits.get(name))
    lines += ["", "[[hierarchies]]", 'name = "geography"', f"levels = {json.dumps(list(HIERARCHY))}"]
    lines += ["", "[link]", 'hid = "hid"', 'id = ["pid"]']
    for role, youngest in YOUNGEST.items():
        lines += _never(f"{RELATIONSHIP[role]} under {youngest}", role=role, ages=range(youngest))
    return "\n".join(lines) + "\n"


def _variable(name: str, *, file: str, limits: tuple[int, int] | None) -> Iterator[str]:
    kind = "code" if name in CODES else "integer" if limits else "id"
    yield from ("", "[[variables]]", f'name = "{name}"', f'file = "{file}"', f'type = "{kind}"')
    yield f"label = {json.dumps(LABELS[name])}"
    if limits:
        yield from (f"min = {limits[0]}", f"max = {limits[1]}")
    if name in CODES:
        yield "[variables.codes]"
        yield from (f"{code} = {json.dumps(label)}" for code, label in CODES[name].items())


def _never(name: str, *, role: int, ages: range) -> Iterator[str]:
    yield from ("", "[[structural_zeros]]", f"name = {json.dumps(name)}", 'file = "persons"')
    yield f"when = {{ relationship = [{role}], age = {json.dumps(list(ages))} }}"
