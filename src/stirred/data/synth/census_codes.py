"""The columns and codes of the synthetic census: what each number in the files means, and its codebook."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final

import polars as pl

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
