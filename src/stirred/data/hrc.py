"""tau-ARGUS hierarchy files (``.hrc``): a tree of codes, one a line, whose depth is the number of leading '@'."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import gcd
from pathlib import Path

from stirred.data.problems import DataError, bad_file
from stirred.data.sources import read_text
from stirred.spec.problems import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """Codes inside coarser codes; ``parents`` gives the code above each, None at the top, in the file's order.

    >>> tree = parse_hrc("North\\n@N1\\n@N2\\nSouth\\n@S1\\n")
    >>> tree.leaves, tree.parents["N2"], tree.levels
    (('N1', 'N2', 'S1'), 'North', (('North', 'South'), ('N1', 'N2', 'S1')))
    """

    parents: Mapping[str, str | None]

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the codes that have none below them: those that records carry."""
        inner = set(self.parents.values())
        return tuple(code for code in self.parents if code not in inner)

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Return the codes by depth, the coarsest first."""
        depths: dict[str, int] = {}
        for code, parent in self.parents.items():  # a parent stands before its children
            depths[code] = 0 if parent is None else depths[parent] + 1
        return tuple(
            tuple(code for code, depth in depths.items() if depth == level)
            for level in range(max(depths.values(), default=-1) + 1)
        )


def read_hrc(path: Path) -> CodeTree:
    """Read a ``.hrc`` file; every problem is reported at once with its line."""
    check = "check the path; it is relative to the folder of the codebook"
    return parse_hrc(read_text(path, called="hierarchy", save="file", check=check), source=str(path))


def parse_hrc(text: str, *, source: str = "hrc") -> CodeTree:
    """Return the tree of codes; leading '@' or spaces give the depth."""
    lines = [(number, line.rstrip()) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise bad_file("the file holds no codes", where=source, remedy="write one code a line, '@' for each depth")
    problems: list[Problem] = []
    depths = _depths(lines, problems, source)
    parents: dict[str, str | None] = {}
    first: dict[str, int] = {}
    above: list[str] = []  # the codes from the top to the last line
    for (number, line), depth in zip(lines, depths, strict=True):
        code = line.lstrip("@ \t").strip()
        problem = _line_problem(code, depth, above=above, first=first)
        if problem:
            what, remedy = problem
            problems.append(Problem(what=what, where=f"{source} line {number}", remedy=remedy))
            # What lies below this line, or beside it, is not to blame for it.
            above += [code] * (depth - len(above))
        else:
            parents[code] = above[depth - 1] if depth else None
        first.setdefault(code, number)
        above = [*above[:depth], code]
    if problems:
        raise DataError(problems)
    return CodeTree(parents=parents)


def _line_problem(code: str, depth: int, *, above: list[str], first: dict[str, int]) -> tuple[str, str] | None:
    if not code:
        return "this line has a depth, but no code", "write the code after the leading characters"
    if code in first:
        return f"code {code} is already on line {first[code]}", "give every code one line"
    if depth > len(above):
        what = f"code {code} stands {depth - len(above) + 1} levels below the line before it"
        return what if above else f"code {code} stands below no other", "add the codes between them, or remove a depth"
    return None


def _depths(lines: list[tuple[int, str]], problems: list[Problem], source: str) -> list[int]:
    """Return the depth of each line; the shallowest is 0, so that a file may open with its total at '@'."""
    leads = [line[: len(line) - len(line.lstrip("@ \t"))] for _, line in lines]
    for (number, _), lead in zip(lines, leads, strict=True):
        if "@" in lead.strip() and lead.startswith((" ", "\t")):
            problems.append(
                Problem(
                    what="spaces stand before '@'",
                    where=f"{source} line {number}",
                    remedy="use '@' alone, or spaces alone, to give the depth",
                )
            )
    if any("@" in lead for lead in leads):
        depths = [lead.count("@") for lead in leads]
    else:
        # Spaces: as many to a level as divide every indent.
        unit = reduce(gcd, (len(lead) for lead in leads), 0) or 1
        depths = [len(lead) // unit for lead in leads]
    return [depth - min(depths) for depth in depths]
