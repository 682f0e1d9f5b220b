"""An independent check of microdata: whole numbers only, from the counts as they were written.

It shares no code with what made the counts, only the type that holds them: all sums are its own. Areas are summed up
from the leaves, and everything that is known of any area of any level is compared with these sums; so are the counts
that were decided on for areas above.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from stirred.mechanisms.topdown.hierarchy.schema import Schema
from stirred.mechanisms.topdown.hierarchy.tree import (
    Constraint,
    Counts,
    Entries,
    GroupTotal,
    Integers,
    Level,
    Tree,
    Whole,
)

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
        return {
            "passed": self.passed,
            "areas": self.areas,
            "records": self.records,
            "checks": dict(sorted(self.checks.items())),
            "failed": self.failed,
            "failures": self.failures,
        }


def read_counts(frame: pl.DataFrame, schema: Schema, leaves: Sequence[str], certificate: Certificate) -> Counts:
    """Return the counts of a file (geocode, attributes, count); rows of no leaf or cell are noted and left out."""
    entries = Entries.of(frame, schema, leaves)
    unknown = entries.strange.get("geocode", [])
    certificate.note("geocodes are leaves", frame.height, unknown, (f"there is no leaf {code!r}" for code in unknown))
    for name in schema.names:
        bad = entries.strange.get(name, [])
        certificate.note("codes are declared", frame.height, bad, (f"{name} has no code {each!r}" for each in bad))
    if not frame["count"].dtype.is_integer():
        certificate.note("counts are whole numbers", 1, ["counts are not whole numbers"])
    count = frame["count"].cast(pl.Int64).to_numpy()
    wrong = np.flatnonzero(count <= 0)
    certificate.note(
        "counts are above zero", frame.height, wrong, (f"a count is {count[each]}" for each in wrong[:_SHOWN])
    )
    kept = np.flatnonzero((entries.area >= 0) & (entries.cell >= 0))
    kept = kept[np.argsort(entries.area[kept], kind="stable")]
    area, cell = entries.area[kept], entries.cell[kept]
    twice = len(kept) - len(np.unique(area * schema.size + cell))
    certificate.note("cells stand once", frame.height, ["a cell of an area stands twice"] * min(twice, 1))
    certificate.records += int(count[kept].sum())
    return Counts(starts=np.searchsorted(area, np.arange(len(leaves) + 1)), cells=cell, counts=count[kept])


def check_tree(
    tree: Tree,
    leaves: Counts,
    certificate: Certificate,
    *,
    decided: Sequence[Counts] = (),
    groups: Sequence[GroupTotal] = (),
    leaves_too: bool = False,
) -> Counts:
    """Check all levels of a tree against the counts of its leaves, and return those of its top.

    ``decided`` are the counts that areas of each level were given before those inside them; ``leaves_too`` compares
    those of the leaves as well, where they were summed up from trees of their own.
    """
    found = leaves
    for place in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[place]
        certificate.areas += 0 if leaves_too and place == len(tree.levels) - 1 else level.areas
        area = np.repeat(np.arange(level.areas), np.diff(found.starts))
        for known in level.known:
            answers = np.zeros((level.areas, known.query.size), dtype=np.int64)
            np.add.at(answers, (area, known.query.cell_of[found.cells]), found.counts)
            _check_known(level, known, answers, certificate)
        for each in groups:
            if each.level == level.name:
                _check_group(level, each, area, found.counts, certificate)
        if decided and (leaves_too or place < len(tree.levels) - 1):
            _check_sums(tree.schema, level, found, decided[place], certificate)
        if place > 0:
            # Children stand side by side: an area has the counts of its children, one after the other.
            first = np.searchsorted(level.parent, np.arange(tree.levels[place - 1].areas + 1))
            found = Counts(starts=found.starts[first], cells=found.cells, counts=found.counts)
    return found


def _check_known(level: Level, known: Constraint, found: Integers, certificate: Certificate) -> None:
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


def _check_group(level: Level, group: GroupTotal, area: Integers, counts: Whole, certificate: Certificate) -> None:
    members = np.array([code in group.members for code in level.geocodes])
    found = int(counts[members[area]].sum())
    wrong = [f"{level.name} {', '.join(group.members)} hold {found:,} and must hold {group.value:,}"]
    certificate.note(f"{level.name}: total of groups", 1, wrong if found != group.value else [])


def _check_sums(schema: Schema, level: Level, found: Counts, decided: Counts, certificate: Certificate) -> None:
    """Compare sums over leaves with what was decided on, cell by cell, without making tables of zeros."""
    both, areas = (found, decided), np.arange(level.areas) * schema.size
    keys = np.concatenate([np.repeat(areas, np.diff(each.starts)) + each.cells for each in both])
    counts = np.concatenate([found.counts, -decided.counts])
    cells, inverse = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(cells), dtype=np.int64)
    np.add.at(sums, inverse.reshape(-1), counts)
    wrong = cells[sums != 0]
    said = (
        f"{level.name} {level.geocodes[key // schema.size]!r}: cell {key % schema.size} is not the sum of its leaves"
        for key in wrong[:_SHOWN]
    )
    certificate.note(f"{level.name}: leaves add up", level.areas * schema.size, wrong, said)
