"""The spine: which areas there are, how they nest, and where the records of each are found.

Areas of a level are in the order of their geocodes, and a geocode begins with that of the parent. Leaves that belong to
an area are therefore side by side, and so are its records once they are sorted by leaf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.columns import Columns, select
from stirred.data.problems import bad_file, counted, listed
from stirred.mechanisms.topdown.hierarchy.tree import Counts, GroupTotal, Level, Places

BYPASSED: Final = -1
SPINE: Final = "spine"  # the file of areas that is published
SPINE_COLUMNS: Final = ("geolevel", "geocode", "parent")
_JOINED: Final = 1 << 20
_LEAF: Final = "__leaf"
# A county in the nation, a region among regions of districts and wards; less deep, the whole is worked on at once.
_SHARD_DEPTH: Final = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Spine:
    """Areas by level, from the one at the top down to the leaves.

    ``names`` are those of the levels, ``geocodes`` and ``parents`` (places in the level above) go by level, and
    ``leaves`` has the columns by which a record finds its leaf, in the order of the leaves.
    """

    names: tuple[str, ...]
    geocodes: tuple[pl.Series, ...]
    parents: tuple[Places, ...]
    leaves: pl.DataFrame = field(default_factory=pl.DataFrame, repr=False)
    bypass: bool = True

    @classmethod
    def of_columns(
        cls, areas: pl.DataFrame, levels: Sequence[str], *, names: Sequence[str], bypass: bool = True
    ) -> Spine:
        """Return the spine of areas that are named by one column for each level, the largest first.

        A geocode is the parent's with the area's own code behind it, equally wide for all areas of a level: numbers get
        zeros in front, other codes get underscores behind. Codes that begin with the parent's already stay as they are.

        >>> wards = pl.DataFrame({"region": ["N", "N", "S"], "ward": [9, 10, 1]})
        >>> spine = Spine.of_columns(wards, ["region", "ward"], names=["all", "region", "ward"])
        >>> [codes.to_list() for codes in spine.geocodes], spine.parents[2].tolist()
        ([[''], ['N', 'S'], ['N09', 'N10', 'S01']], [0, 0, 1])
        """
        named = _without_gaps(areas.select(levels).unique())
        codes = pl.Series([""] * named.height, dtype=pl.String)
        found: list[pl.Series] = []
        for name in levels:
            own = _padded(named[name].cast(pl.String))
            pairs = pl.DataFrame({"own": own, "above": codes})
            begins = pl.col("own").str.starts_with(pl.col("above")) & (pl.col("own") != pl.col("above"))
            nested = found and pairs.select(begins.all()).item()
            codes = own if nested else codes + own
            found.append(codes.alias(name))
        return cls._of(named, found, names=tuple(names), bypass=bypass)

    @classmethod
    def of_geocodes(
        cls, areas: pl.DataFrame, column: str, *, widths: Sequence[int], names: Sequence[str], bypass: bool = True
    ) -> Spine:
        """Return the spine of leaves that are named by a geocode, of which the first so many letters name a level.

        >>> blocks = pl.DataFrame({"code": ["0250010", "0250011"]})
        >>> Spine.of_geocodes(blocks, "code", widths=[3, 7], names=["US", "State", "Block"]).geocodes[1].to_list()
        ['025']
        """
        named = _without_gaps(areas.select(column).unique())
        texts = named[column].cast(pl.String)
        odd = (texts.str.len_chars() != widths[-1]).arg_true()
        if len(odd):
            what = f"{len(odd):,} geocodes do not have {widths[-1]} letters, such as {listed([texts[int(odd[0])]])}"
            raise bad_file(what, where=f'areas "{column}"', remedy="write all geocodes in full, as text")
        found = [texts.str.slice(0, width).alias(name) for name, width in zip(names[1:], widths, strict=True)]
        return cls._of(named, found, names=tuple(names), bypass=bypass)

    @classmethod
    def _of(cls, named: pl.DataFrame, codes: Sequence[pl.Series], *, names: tuple[str, ...], bypass: bool) -> Spine:
        order = codes[-1].arg_sort()
        geocodes, parents = [pl.Series(names[0], [""])], [np.zeros(1, dtype=np.int64)]
        above = np.zeros(named.height, dtype=np.int64)
        for each in codes:
            ordered = each.gather(order)
            area = ordered.rle_id().to_numpy().astype(np.int64)
            first = np.flatnonzero(np.diff(area, prepend=-1))
            geocodes.append(ordered.gather(first))
            parents.append(above[first])
            above = area
        return cls(names=names, geocodes=tuple(geocodes), parents=tuple(parents), leaves=named[order], bypass=bypass)

    @classmethod
    def of_list(
        cls, areas: pl.DataFrame, *, names: Sequence[str] = (), where: str = SPINE, bypass: bool = True
    ) -> Spine:
        """Return the spine of a list (geolevel, geocode, parent); without names, levels are ordered by their parents.

        Where several areas are at the top, one without a name is above them.
        """
        by_level = {
            level: own
            for (level,), own in areas.unique(maintain_order=True).partition_by("geolevel", as_dict=True).items()
        }
        names = [*names] or _ordered(by_level, where)
        geocodes: list[pl.Series] = []
        parents: list[Places] = []
        for depth, name in enumerate(names):
            own = by_level.get(name, areas.clear()).select("geocode", "parent")
            if depth:
                above = geocodes[-1].to_frame("parent").with_row_index("place")
                own = own.join(above, on="parent", how="left").sort("place", "geocode")
            else:
                own = own.with_columns(place=pl.lit(0)).sort("geocode")
            lost = own.filter(pl.col("place").is_null() | pl.col("geocode").is_duplicated())
            for code, parent, _ in lost.iter_rows():
                what = f'the parent "{parent}" of {name} "{code}" is not in {names[depth - 1]}, or is not its only one'
                raise bad_file(what, where=where, remedy="give every area one parent in the level above")
            if not own.height:
                raise bad_file(f"it has no {name}", where=where, remedy="list the areas of all levels")
            geocodes.append(own["geocode"].alias(name))
            parents.append(own["place"].to_numpy().astype(np.int64))
        if len(geocodes[0]) > 1:
            names, geocodes = ["", *names], [pl.Series([""]), *geocodes]
            parents.insert(0, np.zeros(1, dtype=np.int64))
        return cls(names=tuple(names), geocodes=tuple(geocodes), parents=tuple(parents), bypass=bypass)

    @classmethod
    def of_prefixes(cls, codes: Mapping[str, Sequence[str]]) -> Spine:
        """Return the spine of areas by level whose parents are the prefixes that the level above has.

        Areas that only their parts are known of are added, and one area above all if there is none.

        >>> spine = Spine.of_prefixes({"County": ["001001", "002001"], "State": ["001"]})
        >>> spine.names, [own.to_list() for own in spine.geocodes]
        (('', 'State', 'County'), [[''], ['001', '002'], ['001001', '002001']])
        """
        widths = {level: sorted({len(code) for code in own}) for level, own in codes.items()}
        names = sorted(codes, key=lambda level: widths[level][0])
        wrong = [
            f"geocodes of {name} have {' and '.join(map(str, widths[name]))} letters"
            for name in names
            if len(widths[name]) > 1
        ]
        top = codes[names[0]]
        if len(top) == 1 and (names[0].strip().lower() == "us" or not top[0].isdigit()):
            widths[names[0]] = [0]  # one area above all, whatever it is called
        wrong += [
            f"geocodes of {one} and {two} have the same length, so that none is inside the other"
            for one, two in pairwise(names)
            if widths[one] == widths[two]
        ]
        if wrong:
            raise bad_file(wrong[0], where="geocode", remedy="name the parents of areas in a file: --spine")
        listed_areas: list[pl.DataFrame] = []
        below: list[str] = []
        for name, above in zip(names[::-1], [*names[-2::-1], ""], strict=True):
            (width,), (outer,) = widths[name], widths.get(above, [0])
            below = sorted({*codes[name], *(code[:width] for code in below)}) if width else [top[0]]
            parents = [code[:outer] for code in below] if outer else [top[0]] * len(below)
            listed_areas.append(pl.DataFrame({"geocode": below, "parent": parents}).with_columns(geolevel=pl.lit(name)))
        return cls.of_list(pl.concat(listed_areas), names=names)

    @property
    def depth(self) -> int:
        return len(self.names)

    @property
    def shard_depth(self) -> int:
        """Return the level whose areas are worked on one after the other."""
        return max(0, min(_SHARD_DEPTH, self.depth - 3))

    def areas(self, depth: int) -> int:
        """Return how many areas a level has."""
        return len(self.parents[depth])

    @cached_property
    def first_leaves(self) -> tuple[Places, ...]:
        """Return for each level where the leaves of its areas begin, and at the end where they stop."""
        found = [np.arange(self.areas(self.depth - 1) + 1, dtype=np.int64)]
        for below in range(self.depth - 1, 0, -1):
            begin = np.searchsorted(self.parents[below], np.arange(self.areas(below - 1) + 1))
            found.insert(0, found[0][begin])
        return tuple(found)

    @cached_property
    def bypassed(self) -> tuple[npt.NDArray[np.bool_], ...]:
        """Return for each level which areas are not measured, because they have one child."""
        found = [
            (np.bincount(self.parents[depth + 1], minlength=self.areas(depth)) == 1) & self.bypass
            for depth in range(self.depth - 1)
        ]
        return (*found, np.zeros(self.areas(self.depth - 1), dtype=np.bool_))

    @lru_cache(maxsize=8)  # noqa: B019 -- a few kinds of records, and a spine lives as long as its release
    def _passed_on(self, idle: frozenset[int]) -> tuple[tuple[npt.NDArray[np.bool_], Places], ...]:
        """Return for each level which areas leave their budget to areas inside, and since which level each has one."""
        found = [(np.zeros(1, dtype=np.bool_), np.zeros(1, dtype=np.int64))]
        for depth in range(self.depth):
            if depth:
                above, since = found[-1]
                parent = self.parents[depth]
                found.append((above, np.where(above[parent], since[parent], depth)))
            # An area that nothing inside is measured of keeps its budget.
            below = {*range(depth + 1, self.depth)} - idle
            passed = (self.bypassed[depth] | (depth in idle)) & bool(below)
            found[-1] = (passed, found[-1][1])
        return tuple(found)

    def carried(self, depth: int, areas: range, *, idle: frozenset[int] = frozenset()) -> Places:
        """Return for some areas of a level the first level whose budget each has; ``BYPASSED`` if it is not measured.

        It is its own level, or that of areas around it that left theirs: those with a single child, and those of
        ``idle`` levels, at which nothing is measured. The sum from the root to a leaf stays the same.
        """
        own = slice(areas.start, areas.stop)
        passed, since = self._passed_on(idle)[depth]
        return np.where(passed[own], BYPASSED, since[own])

    def within(self, depth: int, area: int, level: int) -> range:
        """Return the areas of a level that lie in an area of another level, at or above it."""
        first, last = area, area + 1
        for parent in self.parents[depth + 1 : level + 1]:
            first, last = (int(each) for each in np.searchsorted(parent, [first, last]))
        return range(first, last)

    def counts(self, leaves: Counts, depth: int, areas: range) -> Counts:
        """Return the counts of some areas of a level, given those of the leaves."""
        return leaves.between(self.first_leaves[depth][areas.start : areas.stop + 1])

    def below(self, depth: int, area: int, until: int) -> Iterator[tuple[int, range, Level]]:
        """Yield the levels of the tree below an area, from its own to the one before ``until``: depth, areas, level."""
        above = -1
        for own in range(depth, until):
            areas = self.within(depth, area, own)
            parent = self.parents[own][areas.start : areas.stop]
            parent = parent - (parent[:1] if above < 0 else above)
            codes = tuple(self.geocodes[own].slice(areas.start, len(areas)).to_list())
            yield own, areas, Level(name=self.names[own], geocodes=codes, parent=parent)
            above = areas.start

    def frames(self) -> Iterator[pl.DataFrame]:
        """Yield the spine as it is published, level by level: geocode, level and the geocode of the parent."""
        for depth, (name, codes) in enumerate(zip(self.names, self.geocodes, strict=True)):
            parent = self.geocodes[max(0, depth - 1)].gather(self.parents[depth])
            yield pl.DataFrame(
                {"geolevel": pl.repeat(name, len(codes), eager=True), "geocode": codes, "parent": parent}
            )

    def leaf_of(self, file: Columns, *, source: str) -> npt.NDArray[np.int32]:
        """Return the leaf of each record by its columns; refuse records of areas that are not there.

        Piece by piece: a join of all records at once was the peak of a state's memory.
        """
        names = self.leaves.columns
        own = select(file, names)
        known = self.leaves.cast(own.schema, strict=False).with_row_index(_LEAF)
        leaf = np.empty(own.height, dtype=np.int32)
        for start in range(0, own.height, _JOINED):
            found = own.slice(start, _JOINED).join(known, on=names, how="left", maintain_order="left")[_LEAF]
            leaf[start : start + _JOINED] = found.cast(pl.Int32).fill_null(-1).to_numpy()
        if (lost := np.flatnonzero(leaf < 0)).size:
            first = " ".join(str(value) for value in own.row(int(lost[0])))
            rows = counted(lost[:5].tolist(), total=lost.size)
            raise bad_file(
                f"records lie in areas that are not in the list, such as {first} ({rows})",
                public="records lie in areas that are not in the list",
                where=f"{source} {listed(names)}",
                remedy="add the areas to the list, or correct the records; no value may be missing",
            )
        return leaf


def _padded(codes: pl.Series) -> pl.Series:
    """Return codes as wide as the widest; numbers get zeros in front as long as they stay different."""
    width = int(codes.str.len_chars().max() or 0)  # type: ignore[arg-type]
    filled = codes.str.zfill(width)
    if codes.str.contains(r"^\d*$").all() and filled.n_unique() == codes.n_unique():
        return filled
    filled = codes.str.pad_end(width, "_")
    if filled.n_unique() != codes.n_unique():
        what = "codes become the same where underscores fill them up"
        raise bad_file(what, where=f'areas "{codes.name}"', remedy="write codes of one width")
    return filled


def _without_gaps(areas: pl.DataFrame) -> pl.DataFrame:
    gaps = [name for name in areas.columns if areas[name].null_count()]
    if gaps:
        what = f"{listed(gaps)} is missing in some areas"
        raise bad_file(what, where="areas", remedy="give every area a code at every level")
    return areas


def _ordered(levels: Mapping[str, pl.DataFrame], where: str) -> list[str]:
    """Return the names of levels from the top: parents of a level are in the one above it."""
    inside = {
        name: [
            other for other in levels if other != name and own["parent"].is_in(levels[other]["geocode"].implode()).any()
        ]
        for name, own in levels.items()
    }
    order = [name for name in levels if not inside[name]]
    while rest := [name for name in levels if name not in order and order[-1:] and order[-1] in inside[name]]:
        order.append(min(rest, key=lambda name: levels[name].height))
    if len(order) != len(levels) or inside[order[0]] or any(not inside[name] for name in order[1:]):
        what = f"its levels {listed([*levels])} are not one inside the other"
        raise bad_file(what, where=where, remedy="give every area a parent in the level above")
    return order


# ---- areas that published files name ----------------------------------------------------------------------


def plain(level: str) -> str:
    """Return the name of a level without the ways in which people write it.

    >>> plain("Block Group") == plain("block_group")
    True
    """
    return level.strip().lower().replace(" ", "_")


def listed_spine(spine: pl.DataFrame, codes: Mapping[str, Sequence[str]], where: str) -> Spine:
    """Return the areas that a file lists; one above all has no parent, and need not be listed."""
    given = {*spine["geolevel"].unique()}
    top = [(level, own[0], own[0]) for level, own in codes.items() if level not in given and len(own) == 1]
    schema = dict.fromkeys(SPINE_COLUMNS, pl.String)
    spine = pl.concat([spine.select(SPINE_COLUMNS).cast(pl.String), pl.DataFrame(top, schema=schema, orient="row")])
    for level, own in codes.items():
        there = spine.filter(geolevel=level)
        absent = pl.DataFrame({"geocode": own}, schema={"geocode": pl.String}).join(there, on="geocode", how="anti")
        if absent.height:
            what = f"it does not list {listed([f'{level} {code}' for code in absent['geocode'][:5]])}"
            raise bad_file(what, where=where, remedy="list all areas with their parents")
    return Spine.of_list(spine, where=where)


def groups_of(frame: pl.DataFrame, spine: Spine, where: str) -> Iterator[GroupTotal]:
    """Yield known totals; a geocode names an area, two digits both parts of a state, or it names its ``members``."""
    members = frame["members"].to_list() if "members" in frame.columns else [None] * frame.height
    level_of = {code: name for name, own in zip(spine.names, spine.geocodes, strict=True) for code in own}
    for row, (code, value, own) in enumerate(zip(frame["geocode"], frame["value"], members, strict=True)):
        if isinstance(own, str):
            own = [each for each in re.split(r"[\s,;|]+", own) if each]
        if not own:
            parts = [each for each in (f"0{code}", f"1{code}") if len(code) == 2 and each in level_of]
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
