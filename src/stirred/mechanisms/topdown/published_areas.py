"""The areas of published measurements: their levels, their parents by prefix or by a file, and groups with a total."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from stirred.data.problems import bad_file, listed
from stirred.mechanisms.topdown.tree import GroupTotal, Places

# How many letters geocodes have in the 2020 files; the last of a block are those of the tabulation block.
WIDTHS: Final = {0: "US", 3: "State", 9: "County", 13: "Tract", 15: "Block_Group", 31: "Block"}
TABULATION: Final = 16
Areas = tuple[tuple[str, ...], tuple[tuple[str, ...], ...], tuple[Places, ...]]


def areas_by_prefix(codes: Mapping[str, Sequence[str]]) -> Areas:
    """Return levels from the top, their areas and the parent of each: the prefix that the level above has.

    Areas that only their parts are known of are added, and one area above all if there is none.

    >>> areas_by_prefix({"County": ["001001", "002001"], "State": ["001"]})[:2]
    (('', 'State', 'County'), (('',), ('001', '002'), ('001001', '002001')))
    """
    widths = {level: sorted({len(code) for code in own}) for level, own in codes.items()}
    if uneven := [level for level, own in widths.items() if len(own) > 1]:
        what = f"geocodes of {uneven[0]} have {' and '.join(map(str, widths[uneven[0]]))} letters"
        raise bad_file(what, where="geocode", remedy="name the parents of areas in a file: --spine")
    names = sorted(codes, key=lambda level: widths[level][0])
    top = codes[names[0]]
    if len(top) == 1 and (plain(names[0]) == "us" or not top[0].isdigit()):
        widths[names[0]] = [0]  # one area above all, whatever it is called
    for one, two in pairwise(names):
        if widths[one] == widths[two]:
            what = f"geocodes of {one} and {two} have the same length, so that none is inside the other"
            raise bad_file(what, where="geocode", remedy="name the parents of areas in a file: --spine")
    found: list[list[str]] = []
    below: Sequence[str] = ()
    for name in names[::-1]:
        width = widths[name][0]
        own = sorted({*codes[name], *(code[:width] for code in below)}) if width else [codes[name][0]]
        found.insert(0, own)
        below = own
    if len(found[0]) > 1:
        names, found = ["", *names], [[""], *found]
        widths[""] = [0]
    parents = [np.zeros(1, dtype=np.int64)]
    for name, above, own in zip(names, found, found[1:], strict=False):
        width, place = widths[name][0], {code: number for number, code in enumerate(above)}
        parents.append(np.array([place[code[:width]] if width else 0 for code in own], dtype=np.int64))
    return tuple(names), tuple(tuple(own) for own in found), tuple(parents)


def with_mentioned(codes: Mapping[str, Sequence[str]], mentioned: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return areas by level with those that are asked for by level or by length: they exist, and were not measured."""
    found = {level: {*own} for level, own in codes.items()}
    named = {plain(level): level for level in found}
    widths = {len(code): level for level, own in found.items() for code in own}
    for level, code in mentioned:
        own = named.get(plain(level)) or (level if level and len(code) not in widths else widths.get(len(code), ""))
        if (own in found and len(code) == len(next(iter(found[own])))) or (own and own not in found):
            found.setdefault(own, set()).add(code)
            named[plain(own)], widths[len(code)] = own, own
    return {level: sorted(own) for level, own in found.items()}


def unspoken(every: Mapping[str, Sequence[str]], codes: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the areas that no row speaks of, nor any of an area inside them."""
    measured = {code for own in codes.values() for code in own}
    more = {code for own in every.values() for code in own} - measured
    return more - {code[:width] for width in {len(each) for each in more} for code in measured}


def plain(level: str) -> str:
    """Return the name of a level without the ways in which people write it.

    >>> plain("Block Group") == plain("block_group")
    True
    """
    return level.strip().lower().replace(" ", "_")


def areas_by_spine(codes: Mapping[str, Sequence[str]], spine: pl.DataFrame, where: str) -> Areas:
    """Return levels from the top, their areas and the parent of each, as a file lists them."""
    given: dict[str, dict[str, str]] = {}
    for code, level, parent in spine.select("geocode", "geolevel", "parent").iter_rows():
        given.setdefault(level, {})[code] = parent
    for level, alone in codes.items():
        if level not in given and len(alone) == 1:
            given[level] = {alone[0]: alone[0]}  # the area above all has no parent, and need not be listed
    absent = [f"{level} {code}" for level, own in codes.items() for code in own if code not in given.get(level, {})]
    if absent:
        raise bad_file(
            f"it does not list {listed(absent[:5])}", where=where, remedy="list all areas with their parents"
        )
    names = _ordered(given, where)
    found: list[list[str]] = []
    parents: list[Places] = []
    for depth, name in enumerate(names):
        own = given[name]
        place = {code: number for number, code in enumerate(found[-1])} if depth else {}
        if depth and (lost := [code for code in own if own[code] not in place]):
            what = f'the parent "{own[lost[0]]}" of {name} "{lost[0]}" is not in {names[depth - 1]}'
            raise bad_file(what, where=where, remedy="give every area a parent in the level above")
        order = sorted(own, key=lambda code: (place.get(own[code], 0), code))
        parents.append(np.array([place.get(own[code], 0) for code in order], dtype=np.int64))
        found.append(order)
    if len(found[0]) > 1:
        names, found = ["", *names], [[""], *found]
        parents = [np.zeros(1, dtype=np.int64), np.zeros(len(found[1]), dtype=np.int64), *parents[1:]]
    return tuple(names), tuple(tuple(own) for own in found), tuple(parents)


def _ordered(levels: Mapping[str, Mapping[str, str]], where: str) -> list[str]:
    """Return the names of levels from the top: parents of a level are in the one above it."""
    inside = {
        name: [other for other, codes in levels.items() if other != name and {*own.values()} & {*codes}]
        for name, own in levels.items()
    }
    order = [name for name in levels if not inside[name]]
    while rest := [name for name in levels if name not in order and order[-1:] and order[-1] in inside[name]]:
        order.append(min(rest, key=lambda name: len(levels[name])))
    if len(order) != len(levels) or inside[order[0]] or any(not inside[name] for name in order[1:]):
        what = f"its levels {listed([*levels])} are not one inside the other"
        raise bad_file(what, where=where, remedy="give every area a parent in the level above")
    return order


def groups_of(
    frame: pl.DataFrame, names: Sequence[str], codes: Sequence[Sequence[str]], where: str
) -> Iterator[GroupTotal]:
    """Yield known totals; a geocode names an area, two digits both parts of a state, or it names its ``members``."""
    members = frame["members"].to_list() if "members" in frame.columns else [None] * frame.height
    level_of = {code: name for name, own in zip(names, codes, strict=True) for code in own}
    for row, (code, value, own) in enumerate(zip(frame["geocode"], frame["value"], members, strict=True)):
        if isinstance(own, str):
            own = [each for each in re.split(r"[\s,;|]+", own) if each]
        if not own:
            parts = [each for level in codes for each in level if len(code) == 2 and each in (f"0{code}", f"1{code}")]
            own = [code] if code in level_of else parts
        lost = [each for each in own if each not in level_of] if own else [code]
        at = {level_of[each] for each in own if each in level_of}
        try:
            total = int(str(value))
        except ValueError:
            total = -1
        if lost or len(at) != 1 or total < 0:
            what = f"{listed(lost)} is not in the measurements" if lost else f"{value} is not a total of one level"
            raise bad_file(
                what, where=f"--totals {where} row {row + 1}", remedy="correct its geocode, members or value"
            )
        yield GroupTotal(level=at.pop(), members=tuple(own), value=total)
