"""The codebook of the synthetic census: its variables, codes, hierarchy and structural zeros as TOML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from stirred.data.synth.census_codes import (
    CODES,
    HIERARCHY,
    HOUSEHOLD_COLUMNS,
    LABELS,
    LARGEST_GQ,
    OLDEST,
    PERSON_COLUMNS,
    RELATIONSHIP,
    YOUNGEST,
)


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
