"""An independent check of microdata: whole numbers only, from the counts as they were written.

It shares no code with what made the counts. Areas are summed up from the leaves, and everything that is known of any
area of any level is compared with these sums; so are the counts that were decided on for areas above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.mechanisms.topdown.schema import Query, Schema
from stirred.mechanisms.topdown.tree import GroupTotal, Known, Level, Tree

Integers = npt.NDArray[np.int64]
_SHOWN = 5


@dataclass(kw_only=True)
class Certificate:
    """What was checked, how often, and what was found wrong."""

    checks: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    failed: int = 0
    records: int = 0
    areas: int = 0

    @property
    def passed(self) -> bool:
        """Say whether nothing was found wrong and anything was checked."""
        return self.failed == 0 and bool(self.checks)

    def note(
        self, what: str, compared: int, wrong: Sequence[str] | Integers, said: Iterator[str] | None = None
    ) -> None:
        """Count comparisons, and keep the first of those that failed."""
        self.checks[what] = self.checks.get(what, 0) + compared
        self.failed += len(wrong)
        for text in said if said is not None else map(str, wrong):
            if len(self.failures) < 4 * _SHOWN:
                self.failures.append(text)

    def add(self, other: Certificate) -> None:
        """Add what was checked elsewhere."""
        for what, compared in other.checks.items():
            self.note(what, compared, ())
        self.failures += other.failures[: 4 * _SHOWN - len(self.failures)]
        self.failed += other.failed
        self.records += other.records
        self.areas += other.areas

    def facts(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "passed": self.passed,
            "areas": self.areas,
            "records": self.records,
            "checks": dict(sorted(self.checks.items())),
            "failed": self.failed,
            "failures": self.failures,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Cells:
    """Non-zero counts: area, cell of the histogram and count of each."""

    area: Integers
    cell: Integers
    count: Integers

    def up(self, parent: Integers) -> Cells:
        """Return the counts of the areas above, of which these are the children."""
        return Cells(area=parent[self.area], cell=self.cell, count=self.count)

    def answers(self, query: Query, areas: int) -> Integers:
        """Return the answers to a query (areas, cells of the query)."""
        found = np.zeros((areas, query.size), dtype=np.int64)
        np.add.at(found, (self.area, query.cell_of[self.cell]), self.count)
        return found


def read_cells(frame: pl.DataFrame, schema: Schema, leaves: Level, certificate: Certificate) -> Cells:
    """Return the counts of a file as cells; what is not one is noted."""
    places = {code: place for place, code in enumerate(leaves.geocodes)}
    codes = frame["geocode"].cast(pl.String)
    unknown = codes.filter(~codes.is_in([*places])).unique().to_list()
    certificate.note("geocodes are leaves", frame.height, unknown, (f"there is no leaf {code!r}" for code in unknown))
    area = codes.replace_strict([*places], [*places.values()], default=-1, return_dtype=pl.Int64).to_numpy()
    cell = np.zeros(frame.height, dtype=np.int64)
    for attribute in schema.attributes:
        own = frame[attribute.name].cast(pl.String)
        code = own.replace_strict(
            [*attribute.codes], [*range(attribute.size)], default=-1, return_dtype=pl.Int64
        ).to_numpy()
        bad = own.filter(pl.Series(code < 0)).unique().to_list()
        certificate.note(
            "codes are declared", frame.height, bad, (f"{attribute.name} has no code {each!r}" for each in bad)
        )
        cell = cell * attribute.size + np.maximum(code, 0)
    if not frame["count"].dtype.is_integer():
        certificate.note("counts are whole numbers", 1, ["counts are not whole numbers"])
    count = frame["count"].cast(pl.Int64).to_numpy()
    wrong = np.flatnonzero(count <= 0)
    certificate.note(
        "counts are above zero", frame.height, wrong, (f"a count is {count[each]}" for each in wrong[:_SHOWN])
    )
    keys = area * schema.size + cell
    twice = len(keys) - len(np.unique(keys))
    certificate.note("cells stand once", frame.height, ["a cell of an area stands twice"] * min(twice, 1))
    kept = area >= 0
    certificate.records += int(count[kept].sum())
    return Cells(area=area[kept], cell=cell[kept], count=count[kept])


def check_tree(
    tree: Tree,
    leaves: Cells,
    certificate: Certificate,
    *,
    decided: Sequence[Cells] = (),
    groups: Sequence[GroupTotal] = (),
    leaves_too: bool = False,
) -> Cells:
    """Check all levels of a tree against the counts of its leaves, and return those of its top.

    ``decided`` are the counts that areas of each level were given before those inside them; ``leaves_too`` compares
    those of the leaves as well, where they were summed up from trees of their own.
    """
    cells = leaves
    for place in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[place]
        certificate.areas += 0 if leaves_too and place == len(tree.levels) - 1 else level.areas
        for known in level.known:
            _check_known(level, known, cells.answers(known.query, level.areas), certificate)
        for each in groups:
            if each.level == level.name:
                _check_group(level, each, cells, certificate)
        if decided and (leaves_too or place < len(tree.levels) - 1):
            _check_sums(tree.schema, level, cells, decided[place], certificate)
        if place > 0:
            cells = cells.up(np.asarray(level.parent, dtype=np.int64))
    return cells


def _check_known(level: Level, known: Known, found: Integers, certificate: Certificate) -> None:
    values = np.asarray(known.values, dtype=np.int64)
    wrong = {"=": found != values, "<=": found > values, ">=": found < values}[known.sign] & known.given[:, None]
    places = np.argwhere(wrong)
    said = (
        f"{level.name} {level.geocodes[area]!r}: {known.query.name}, cell {cell}, is {found[area, cell]:,} and must be "
        f"{known.sign} {values[area, cell]:,}"
        for area, cell in places[:_SHOWN]
    )
    certificate.note(
        f"{level.name}: {known.query.name} {known.sign}", int(known.given.sum()) * known.query.size, places, said
    )


def _check_group(level: Level, group: GroupTotal, cells: Cells, certificate: Certificate) -> None:
    members = np.array([code in group.members for code in level.geocodes])
    found = int(cells.count[members[cells.area]].sum())
    wrong = [f"{level.name} {', '.join(group.members)} hold {found:,} and must hold {group.value:,}"]
    certificate.note(f"{level.name}: total of groups", 1, wrong if found != group.value else [])


def _check_sums(schema: Schema, level: Level, found: Cells, decided: Cells, certificate: Certificate) -> None:
    """Compare sums over leaves with what was decided on, cell by cell, without making tables of zeros."""
    keys = np.concatenate([found.area * schema.size + found.cell, decided.area * schema.size + decided.cell])
    counts = np.concatenate([found.count, -decided.count])
    cells, inverse = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(cells), dtype=np.int64)
    np.add.at(sums, inverse.reshape(-1), counts)
    wrong = cells[sums != 0]
    said = (
        f"{level.name} {level.geocodes[key // schema.size]!r}: cell {key % schema.size} is not the sum of its leaves"
        for key in wrong[:_SHOWN]
    )
    certificate.note(f"{level.name}: leaves add up", level.areas * schema.size, wrong, said)
