"""The ten persons of a toy census: three households, two persons in group quarters, one vacant unit; all by hand."""

from __future__ import annotations

import polars as pl

RACES = ("race1", "race2")
BLOCKS = pl.DataFrame(
    {
        "block": ["b1", "b2"],
        "state": ["S", "S"],
        "county": ["SC", "SC"],
        "tract": ["SC1", "SC2"],
        "place": ["SP", None],
        "aiannh": pl.Series([None, None], dtype=pl.String),
    }
)


def _iterations() -> pl.DataFrame:
    rows = []
    for stem, level, codes, only in (
        ("100", 1, "1110 1120", "false"),
        ("110", 2, "1110", "false"),
        ("120", 2, "1120", "true"),
        ("200", 1, "3110", "false"),
        ("210", 2, "3110", "false"),
    ):
        rows += [
            (f"{stem}{n}", kind, str(level), only, "false", codes) for n, kind in ((1, "alone"), (2, "combination"))
        ]
    rows += [("4001", "ethnicity", "1", "false", "false", "2100"), ("4101", "ethnicity", "2", "false", "false", "2100")]
    names = ["iteration_code", "kind", "level", "detailed_only", "coarse_only", "codes"]
    return pl.DataFrame(rows, schema=names, orient="row")


ITERATIONS = _iterations()

# hid, block, age, sex, race codes, ethnicity, relationship, race (7 groups), hispanic (1 no, 2 yes)
_PERSONS = [
    ("u1", "b1", 40, "1", ("1110",), "", "20", 1, 1),
    ("u1", "b1", 38, "2", ("1110", "1120"), "", "21", 1, 1),
    ("u1", "b1", 10, "1", ("1110", "1120"), "", "25", 1, 1),
    ("u1", "b1", 3, "2", ("1110", "1120"), "", "25", 1, 1),
    ("u2", "b2", 70, "2", ("3110",), "", "20", 2, 1),
    ("u3", "b2", 30, "2", ("1120",), "2100", "20", 1, 2),
    ("u3", "b2", 5, "1", ("1120", "3110"), "2100", "25", 7, 2),
    ("u3", "b2", 33, "2", ("1110",), "", "34", 1, 1),
    ("gq", "b1", 19, "1", ("3110",), "", "38", 2, 1),
    ("gq", "b1", 20, "1", ("1110",), "", "38", 1, 1),
]
PERSONS = pl.DataFrame(
    [
        {
            "hid": hid,
            "block": block,
            "age": str(age),
            "sex": sex,
            "race1": races[0],
            "race2": races[1] if len(races) > 1 else None,
            "ethnicity": ethnicity,
            "relship": relationship,
            "cenrace": str(race),
            "cenhisp": str(hispanic),
        }
        for hid, block, age, sex, races, ethnicity, relationship, race, hispanic in _PERSONS
    ]
)
HOUSEHOLDS = pl.DataFrame(
    {
        "hid": ["u1", "u2", "u3"],
        "block": ["b1", "b2", "b2"],
        "race1": ["1110", "3110", "1120"],
        "race2": pl.Series([None, None, None], dtype=pl.String),
        "ethnicity": ["", "", "2100"],
        "household_type": ["1", "4", "3"],
        "tenure": ["1", "2", "3"],
    }
)
THRESHOLDS = [3, 5, 8]

# The units of PHSafe: three households, a vacant unit, and group quarters, which are no housing unit.
UNITS = pl.DataFrame(
    {
        "hid": ["u1", "u2", "u3", "empty", "gq"],
        "state": ["S"] * 5,
        "hhrace": ["1", "2", "1", None, None],
        "hhspan": ["1", "1", "2", None, None],
        "ten": ["1", "2", "3", None, None],
        "hht": ["1", "6", "3", None, None],
        "hht2": ["01", "05", "06", None, None],
        "cplt": ["1", "0", "0", None, None],
    }
)
RESIDENTS = PERSONS.select("hid", qage="age", relship="relship", cenrace="cenrace", cenhisp="cenhisp")
