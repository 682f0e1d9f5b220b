# ruff: noqa: E501  a few lines of tables are wide
"""Microdata from frozen noise: how near the truth each arm comes, and what it takes.

    python benchmarks/bench_microdata.py [few] [many] [small] [group] [state] [--files 10] [--blocks 3 30 300] [--write]

``few`` and ``many`` compare the arms on the same noise files, paired, for trees of about 300 and 4,000 blocks;
``small`` times a tree of about 300 blocks; ``group`` one block group against HiGHS and, where it is installed, PIQP,
with and without making the model; ``state`` a state shard by shard, each size in a process of its own. All use the PL 94-171 schema, the 2020 production budget, exact discrete Gaussian noise, and what the Bureau
knows: totals of states, facilities in every block, nobody under age in nursing homes. The people are made up: segregated
by race down to blocks, few kinds in each.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from sections import machine, write_section

from stirred.mechanisms.topdown.budget import Shares, read_budget, variance_of
from stirred.mechanisms.topdown.hierarchy.schema import MarginalQuery, Schema, shipped_schema
from stirred.mechanisms.topdown.hierarchy.tree import Answers, Constraint, Level, Tree
from stirred.mechanisms.topdown.solve.problem import METHODS
from stirred.mechanisms.topdown.solve.tree import SolveOptions, solve
from stirred.randomness.entropy import Entropy
from stirred.randomness.noise import discrete_gaussian

LEVELS: Final = ("US", "State", "County", "Tract", "Block_Group", "Block")
WIDTHS: Final = (0, 3, 6, 4, 2, 16)
SCHEMA: Final = shipped_schema("pl94-persons")
BUDGET: Final = Shares.read(read_budget("us-2020-pl-persons")).fitted(SCHEMA, LEVELS)
NO_BOUND: Final = (1 << 31) - 1
NURSING: Final = 3
MEASURING: Final = [0.0, 0.0]  # processor and clock time of drawing noise and answering queries
FIRST: Final = 10  # people 1 and noise 0 to 9 served to choose which margins come first; figures are from others
BLUEDOWN_SECONDS: Final = 92.0  # processor time of google-research/census-bluedown on 291 blocks


# ---- made-up people ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Nation:
    """A made-up nation: how many areas an area has inside, on average, from states down to blocks."""

    fanout: tuple[int, int, int, int, int]
    persons: float = 27.0  # in a block
    seed: int = 1

    def county(self, number: int) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Return the parents of tracts, block groups and blocks of a county, and counts and facilities of its blocks."""
        rng = np.random.default_rng([self.seed, number])
        base = np.random.default_rng(self.seed).dirichlet(np.r_[[60, 13, 1, 6, 0.2, 6], np.full(57, 0.12)] / 2)
        parents = [np.zeros(1, dtype=np.int64)]
        mix = rng.standard_gamma(np.maximum(40 * base, 1e-4))[None, :]
        for mean, alike in zip(self.fanout[2:], (25.0, 20.0, 8.0), strict=True):
            inside = 1 + rng.poisson(mean - 1, len(parents[-1]))
            parents.append(np.repeat(np.arange(len(parents[-1])), inside))
            mix = rng.standard_gamma(np.maximum(alike * (mix / mix.sum(axis=1, keepdims=True))[parents[-1]], 1e-4))
        blocks = len(parents[-1])
        hispanic = rng.beta(1.2, 5.0, len(parents[2]))[parents[3]]
        kinds = (mix / mix.sum(axis=1, keepdims=True))[:, None, :] * np.stack([1 - hispanic, hispanic], 1)[:, :, None]
        kinds = kinds.reshape(blocks, 126)
        people = rng.negative_binomial(1.2, 1.2 / (1.2 + self.persons), blocks) * (rng.random(blocks) > 0.12)
        counts = np.zeros((blocks, 8, 252), dtype=np.int32)
        facilities = np.zeros((blocks, 8), dtype=np.int64)
        by_age = np.concatenate([0.24 * kinds, 0.76 * kinds], axis=1)
        counts[:, 0] = rng.multinomial(people, by_age / by_age.sum(axis=1, keepdims=True))
        facilities[:, 0] = (people + 2) // 3 + rng.integers(0, 3, blocks)
        for block in np.flatnonzero(rng.random(blocks) < 0.03):
            kind = rng.integers(1, 8)
            young = 0.0 if kind == NURSING else 0.9 if kind == 2 else 0.02
            shares = np.concatenate([young * kinds[block], (1 - young) * kinds[block]])
            counts[block, kind] = rng.multinomial(rng.integers(1, 150), shares / shares.sum())
            facilities[block, kind] = 1
        return parents, counts.reshape(blocks, 2016), facilities


def answer(query: MarginalQuery, histograms: Any) -> Any:
    """Return the answers for histograms (areas, cells)."""
    found = np.zeros((query.size, len(histograms)), dtype=histograms.dtype)
    np.add.at(found, query.cell_of, histograms.T)
    return found.T


def level_of(
    name: str, codes: Sequence[str], parent: np.ndarray, true: np.ndarray, kinds: np.ndarray, noise: Entropy
) -> Level:
    """Return a level as it is measured, with what is known of it."""
    answers = []
    began = time.process_time(), time.perf_counter()
    for query_name in BUDGET.measured(name):
        query, sigma2 = SCHEMA.query(query_name), BUDGET.sigma2(name, query_name)
        values = answer(query, true)
        drawn = discrete_gaussian(sigma2, count=values.size, entropy=noise, purpose=f"{name} {query_name}")
        variance = np.full(len(codes), variance_of(sigma2))
        answers.append(
            Answers(query=query, values=(values + drawn.reshape(values.shape)).astype(np.int32), variance=variance)
        )
    MEASURING[0] += time.process_time() - began[0]
    MEASURING[1] += time.perf_counter() - began[1]
    return Level(
        name=name, geocodes=tuple(codes), parent=parent, answers=tuple(answers), known=facts(name, true, kinds)
    )


def facts(name: str, true: np.ndarray, kinds: np.ndarray) -> tuple[Constraint, ...]:
    """Return what the Bureau knows of areas of a level."""
    everywhere = np.ones(len(true), dtype=np.bool_)
    least = kinds.copy()
    least[:, 0] = 0
    barred = np.full((len(true), 16), NO_BOUND)
    barred[:, 2 * NURSING] = 0
    hhgq = SCHEMA.query("hhgq")
    found = [
        Constraint(query=SCHEMA.query("hhgq * votingage"), sign="<=", values=barred, given=everywhere),
        Constraint(query=hhgq, sign=">=", values=least, given=everywhere),
        Constraint(query=hhgq, sign="<=", values=99_999 * kinds, given=everywhere),
    ]
    if name in ("US", "State"):
        total = true.sum(axis=1, keepdims=True).astype(np.int64)
        found.append(Constraint(query=SCHEMA.query("total"), sign="=", values=total, given=everywhere))
    return tuple(found)


def added(values: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Return the sums over the children of each parent."""
    found = np.zeros((int(parent.max()) + 1, values.shape[1]), dtype=np.int64)
    np.add.at(found, parent, values)
    return found


def inside(codes: Sequence[str], parent: np.ndarray, width: int) -> list[str]:
    """Return geocodes of areas inside others."""
    own = np.arange(len(parent)) - np.searchsorted(parent, parent)
    return [f"{codes[up]}{place:0{width}d}" for up, place in zip(parent, own, strict=True)]


def shard_levels(
    nation: Nation, number: int, code: str, noise: Entropy
) -> tuple[list[Level], list[np.ndarray], np.ndarray]:
    """Return the levels of a county as they are measured, the truth of each, and the facilities of the county."""
    parents, leaves, facilities = nation.county(number)
    truth, kinds, codes = [leaves], [facilities], [[code]]
    for parent in parents[:0:-1]:
        truth.insert(0, added(truth[0], parent))
        kinds.insert(0, added(kinds[0], parent))
    for parent, width in zip(parents[1:], WIDTHS[3:], strict=True):
        codes.append(inside(codes[-1], parent, width))
    own = noise.child(f"county {number}")
    levels = [level_of(*each, own) for each in zip(LEVELS[2:], codes, parents, truth, kinds, strict=True)]
    return levels, truth, kinds[0]


def tree_of(nation: Nation, noise: Entropy) -> tuple[Tree, list[np.ndarray]]:
    """Return a nation in memory as one tree, and the truth of its levels."""
    states, counties = nation.fanout[:2]
    state_codes = [f"{place:03d}" for place in range(states)]
    up = np.repeat(np.arange(states), counties)
    codes = inside(state_codes, up, WIDTHS[2])
    parts = [shard_levels(nation, number, code, noise) for number, code in enumerate(codes)]
    levels, truth = [], []
    for depth in range(4):
        starts = np.cumsum([0, *(len(levels_[max(depth - 1, 0)].geocodes) for levels_, _, _ in parts)])
        parent = np.concatenate([p[0][depth].parent + start for p, start in zip(parts, starts, strict=False)])
        levels.append(joined([p[0][depth] for p in parts], up if depth == 0 else parent))
        truth.append(np.concatenate([p[1][depth] for p in parts]))
    kinds = np.concatenate([kinds for _, _, kinds in parts])
    above = [added(truth[0], up)]
    upper_kinds = [added(kinds, up)]
    above.insert(0, above[0].sum(axis=0, keepdims=True))
    upper_kinds.insert(0, upper_kinds[0].sum(axis=0, keepdims=True))
    flat = np.zeros(states, dtype=np.int64)
    tops = [
        level_of("US", [""], flat[:1], above[0], upper_kinds[0], noise),
        level_of("State", state_codes, flat, above[1], upper_kinds[1], noise),
    ]
    return Tree(schema=SCHEMA, levels=(*tops, *levels)), [*above, *truth]


def joined(levels: Sequence[Level], parent: np.ndarray) -> Level:
    """Return the areas of several levels of the same name as one."""
    answers, known = [], []
    for each in zip(*(level.answers for level in levels), strict=True):
        values, variance = np.concatenate([a.values for a in each]), np.concatenate([a.variance for a in each])
        answers.append(Answers(query=each[0].query, values=values, variance=variance))
    for each in zip(*(level.known for level in levels), strict=True):
        values, given = np.concatenate([k.values for k in each]), np.concatenate([k.given for k in each])
        known.append(Constraint(query=each[0].query, sign=each[0].sign, values=values, given=given))
    codes = tuple(code for level in levels for code in level.geocodes)
    return Level(name=levels[0].name, geocodes=codes, parent=parent, answers=tuple(answers), known=tuple(known))


# ---- accuracy ---------------------------------------------------------------------------------------------


def accuracy(nation: Nation, files: int, *, outside: str) -> list[str]:
    """Return the mean L1 errors of the arms on the same noise files, by level, with paired standard errors.

    ``outside`` says by how much BlueDown lowered the error of its own Bureau baseline on such a tree. That baseline
    rounds cells to the nearest where `bureau` does as production did: it is an arm here too, for comparison.
    """
    queries = {"Hispanic x race": SCHEMA.query("hispanic * cenrace"), "all cells": SCHEMA.query("detailed")}
    arms = {**METHODS, "outside rounder": replace(METHODS["bureau"], pre_rounded=2)}
    errors = {arm: np.zeros((files, len(queries), len(LEVELS))) for arm in arms}
    bias: dict[str, list[np.ndarray]] = {arm: [] for arm in arms}
    bins = ("0", "1-20", "21-59", "60+")
    for number in range(files):
        tree, truth = tree_of(nation, Entropy.from_seed(f"noise {FIRST + number}"))
        sizes = np.digitize(truth[5].sum(axis=1), [1, 21, 60])
        for name, arm in arms.items():
            piece = next(iter(solve(lambda tree=tree: [tree], SolveOptions(method=arm))))
            for depth, true in enumerate(truth):
                off = piece.levels[depth].answers(SCHEMA.query("detailed")) - true
                for place, query in enumerate(queries.values()):
                    errors[name][number, place, depth] = np.abs(answer(query, off)).sum(axis=1).mean()
            totals = off.sum(axis=1)
            bias[name].append(np.array([totals[sizes == each].mean() for each in range(4)]))
        print(f"  noise file {number + 1} of {files}", file=sys.stderr)
    count = [level.areas for level in tree.levels]
    lines = [
        f"**{count[5]:,} blocks**, {int(truth[0].sum()):,} persons (seed {nation.seed}), areas by level "
        f"{', '.join(map(str, count))}; {files} noise files (seeds `noise {FIRST}` to `noise {FIRST + files - 1}`). Mean L1 error of "
        "an area; change against another arm on the same file in %, (standard error).",
        "",
        f"| what | arm | {' | '.join(LEVELS)} |",
        f"|---|---|{'---|' * len(LEVELS)}",
    ]
    pairs = [("blue", "bureau"), ("default", "bureau"), ("default", "blue"), ("outside rounder", "bureau")]
    for place, what in enumerate(queries):
        lines.append(
            f"| {what} | `bureau` | " + " | ".join(f"{v:.1f}" for v in errors["bureau"][:, place].mean(axis=0)) + " |"
        )
        for one, two in pairs:
            change = 100 * (errors[one][:, place] / errors[two][:, place] - 1)
            spread = change.std(axis=0, ddof=1) / np.sqrt(files)
            cells = " | ".join(f"{m:+.1f} ({s:.1f})" for m, s in zip(change.mean(axis=0), spread, strict=True))
            lines.append(f"| | `{one}` / `{two}` | {cells} |")
    lines += ["", f"Outside figures for Hispanic x race, BlueDown against its own Bureau baseline: {outside}.", ""]
    lines += ["Mean error of the total of a block by its true size in persons, (standard error over files).", ""]
    lines += [f"| arm | {' | '.join(bins)} |", f"|---|{'---|' * 4}"]
    for name in METHODS:
        own = np.array(bias[name])
        spread = own.std(axis=0, ddof=1) / np.sqrt(files)
        cells = " | ".join(f"{m:+.2f} ({s:.2f})" for m, s in zip(own.mean(axis=0), spread, strict=True))
        lines.append(f"| `{name}` | {cells} |")
    return [*lines, ""]


# ---- speed ------------------------------------------------------------------------------------------------


def small(nation: Nation, rounds: int = 3) -> list[str]:
    """Return processor time for a small tree in memory, from measurements to whole counts."""
    tree, _ = tree_of(nation, Entropy.from_seed("small"))
    lines = ["| arm | processor time | times BlueDown's 92 s on 291 blocks |", "|---|---|---|"]
    for name, arm in METHODS.items():
        best = np.inf
        for _ in range(rounds + 1):
            began = time.process_time()
            next(iter(solve(lambda: [tree], SolveOptions(method=arm))))
            best = min(best, time.process_time() - began)
        lines.append(f"| `{name}` | {best:.2f} s | {BLUEDOWN_SECONDS / best:.0f} x faster |")
    return [f"**{tree.levels[5].areas} blocks**, best of {rounds}, compiled beforehand.", "", *lines, ""]


def group(nation: Nation) -> list[str]:
    """Return the time for the blocks of a block group, against HiGHS and PIQP."""
    from stirred.mechanisms.topdown.solve import parent
    from stirred.mechanisms.topdown.solve.programs import Program

    tree, _ = tree_of(nation, Entropy.from_seed("group"))
    problems: list[parent.Quadratic] = []
    usual = parent.quadratic

    def kept(own: parent.Parent, *others: Any, by_cell: bool) -> Any:
        found = usual(own, *others, by_cell=by_cell)
        if own.step.level.name == "Block" and by_cell:
            problems.append(found)
        return found

    parent.quadratic = kept
    next(iter(solve(lambda: [tree], SolveOptions(method=METHODS["default"]))))
    parent.quadratic = usual
    sizes = np.array([each[4].shape[0] * each[4].shape[1] for each in problems])
    chosen = [problems[place] for place in np.argsort(np.abs(sizes - np.median(sizes)))[:5]]
    ours = theirs = alone = 0.0
    solving: list[float] = []
    others: list[tuple[float, float, float]] = []
    solver = Program.solve

    def timed(program: Program) -> Any:
        began = time.process_time()
        found = solver(program)
        solving.append(time.process_time() - began)
        others.extend(by_piqp(program, found[1] if found is not None else 0.0))
        return found

    Program.solve = timed  # type: ignore[method-assign]
    for each in chosen:
        began = time.process_time()
        for _ in range(20):
            each.by_kernel(1e-10, 20_000)
        ours += (time.process_time() - began) / 20
        began = time.process_time()
        each.by_highs()
        theirs += time.process_time() - began - sum(each for pair in others[len(solving) - 1 :] for each in pair[:2])
    Program.solve = solver  # type: ignore[method-assign]
    alone = sum(solving)
    count, cells = chosen[0][4].shape[:2]
    made, solved = (1e3 * sum(each[place] for each in others) / 5 for place in (0, 1))
    piqp = [
        f"| PIQP, model given | {solved:.1f} ms | {solved / (200 * ours):.0f} |",
        f"| PIQP, with making the model in Python | {1e3 * (theirs - alone) / 5 + made + solved:.0f} ms "
        f"| {(1e3 * (theirs - alone) / 5 + made + solved) / (200 * ours):.0f} |",
        "",
        f"The optima of PIQP and HiGHS differ by {max(each[2] for each in others):.0e} at most, relative to their cost.",
    ]
    return [
        f"A typical block group: {count} blocks, {cells} cells that are not empty ({count * cells:,} unknowns); mean of 5.",
        "",
        "| solver | processor time | ratio |",
        "|---|---|---|",
        f"| alternating directions to 1e-10 | {1e3 * ours / 5:.2f} ms | 1 |",
        f"| HiGHS QP, model given | {1e3 * alone / 5:.0f} ms | {alone / ours:.0f} |",
        f"| HiGHS QP, with making the model in Python | {1e3 * theirs / 5:.0f} ms | {theirs / ours:.0f} |",
        *(piqp if others else ["| PIQP | not installed | |"]),
        "",
    ]


def by_piqp(program: Any, cost: float) -> list[tuple[float, float, float]]:
    """Return seconds for making the matrices of a program and for solving it by PIQP, and how the cost differs."""
    try:
        import piqp
        from scipy import sparse
    except ImportError:
        return []
    began = time.process_time()
    size = len(program.cost)
    pairs = np.array([*program.quadratic])
    values = np.array([*program.quadratic.values()])
    lower = sparse.csc_matrix((values, (pairs[:, 0], pairs[:, 1])), shape=(size, size))
    quadratic = sparse.csc_matrix(lower + lower.T - sparse.diags(lower.diagonal()))
    table = sparse.lil_matrix((len(program.rows), size))
    for place, (columns, own, _, _) in enumerate(program.rows):
        table[place, columns] = own
    low, high = np.array([row[2] for row in program.rows]), np.array([row[3] for row in program.rows])
    high[high >= NO_BOUND] = np.inf
    rows, same = table.tocsc(), low == high
    linear, least = np.array(program.cost), np.array(program.low)
    made = time.process_time() - began
    began = time.process_time()
    solver = piqp.SparseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-8
    bounds = {"G": rows[~same], "h_l": low[~same], "h_u": high[~same]} if np.any(~same) else {}
    solver.setup(quadratic, linear, rows[same], low[same], x_l=least, **bounds)
    if (status := solver.solve()) != piqp.PIQP_SOLVED:
        raise SystemExit(f"PIQP did not solve a block group: {status}")
    found = solver.result.x
    solved = time.process_time() - began
    value = float(0.5 * found @ (quadratic @ found) + linear @ found)
    return [(made, solved, abs(value - cost) / max(1.0, abs(cost)))]


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """A measured state on disk, county by county, as a source of microdata."""

    folder: Path
    nation: Nation

    @property
    def schema(self) -> Schema:
        """Return the schema."""
        return SCHEMA

    @property
    def codes(self) -> list[str]:
        """Return the geocodes of counties."""
        return [f"000{place:06d}" for place in range(self.nation.fanout[1])]

    def write(self) -> int:
        """Draw all noise, and return the number of blocks."""
        noise, blocks, total, kinds = Entropy.from_seed("state"), 0, np.zeros((1, 2016)), np.zeros((1, 8), np.int64)
        for number, code in enumerate(self.codes):
            levels, truth, own = shard_levels(self.nation, number, code, noise)
            blocks += levels[-1].areas
            total, kinds = total + truth[0], kinds + own
            self._save(code, levels)
        zero = np.zeros(1, dtype=np.int64)
        total = total.astype(np.int64)
        self._save("top", [level_of(n, c, zero, total, kinds, noise) for n, c in (("US", [""]), ("State", ["000"]))])
        return blocks

    def _save(self, name: str, levels: Sequence[Level]) -> None:
        for depth, level in enumerate(levels):
            own = self.folder / name / str(depth)
            own.mkdir(parents=True)
            np.save(own / "geocodes.npy", np.array(level.geocodes))
            np.save(own / "parent.npy", level.parent)
            for place, answers in enumerate(level.answers):
                narrow = np.int16 if np.abs(answers.values).max() < 1 << 15 else np.int32
                np.save(own / f"{place:02d}.npy", answers.values.astype(narrow))
            for place, known in enumerate(level.known):
                np.save(own / f"known{place}.npy", known.values)

    def _load(self, name: str, names: Sequence[str]) -> list[Level]:
        found = []
        for depth, level in enumerate(names):
            own = self.folder / name / str(depth)
            codes = tuple(np.load(own / "geocodes.npy").tolist())
            answers = []
            for place, query in enumerate(BUDGET.measured(level)):
                values = np.load(own / f"{place:02d}.npy", mmap_mode="r")
                variance = np.full(len(codes), variance_of(BUDGET.sigma2(level, query)))
                answers.append(Answers(query=SCHEMA.query(query), values=values, variance=variance))
            like = facts(level, np.zeros((1, 1)), np.zeros((1, 8), np.int64))
            everywhere = np.ones(len(codes), dtype=np.bool_)
            known = tuple(
                Constraint(
                    query=each.query, sign=each.sign, values=np.load(own / f"known{place}.npy"), given=everywhere
                )
                for place, each in enumerate(like)
            )
            parent = np.load(own / "parent.npy")
            found.append(Level(name=level, geocodes=codes, parent=parent, answers=tuple(answers), known=known))
        return found

    def top(self) -> Tree:
        """Return the areas above counties."""
        codes = tuple(self.codes)
        last = Level(name="County", geocodes=codes, parent=np.zeros(len(codes), dtype=np.int64))
        return Tree(schema=SCHEMA, levels=(*self._load("top", LEVELS[:2]), last))

    def shards(self) -> Iterator[Tree]:
        """Yield counties."""
        for code in self.codes:
            yield Tree(schema=SCHEMA, levels=tuple(self._load(code, LEVELS[2:])))


def state(thousands: Sequence[float], folder: Path) -> list[str]:
    """Return what states of several sizes take, each in a process of its own."""
    lines = [
        "Measuring is on one core, the rest on two; people are made up and written beforehand, outside these times. "
        f"Load average at the start {os.getloadavg()[0]:.1f}.",
        "",
        "| blocks | counties | persons | measure | estimate, microdata, check | processor time of both | peak memory | check |",
        "|---|---|---|---|---|---|---|---|",
    ]
    per_block: list[float] = []
    for each in thousands:
        counties = max(1, round(67 * each / 300))
        place = folder / f"{each:g}"
        MEASURING[:] = [0.0, 0.0]
        blocks = Shelf(folder=place, nation=Nation(fanout=(1, counties, 37, 4, 30))).write()
        began = time.perf_counter()
        process = subprocess.Popen([sys.executable, __file__, "--step", str(place), str(counties)])
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"microdata ended with {process.returncode}")
        wall, cpu = time.perf_counter() - began, used.ru_utime + used.ru_stime
        persons, passed = (place / "made").read_text().split()
        lines.append(
            f"| {blocks:,} | {counties} | {int(persons):,} | {MEASURING[1]:.1f} s | {wall:.1f} s "
            f"| {MEASURING[0] + cpu:.1f} s | {used.ru_maxrss / 1e6:.2f} GB | {passed} |"
        )
        per_block.append((MEASURING[0] + cpu) / blocks)
        shutil.rmtree(place)
        print(lines[-1], file=sys.stderr)
    nation = per_block[-1] * 5.9e6
    return [
        *lines,
        "",
        f"Processor time for a block: {', '.join(f'{1e6 * each:.0f}' for each in per_block)} microseconds, from the "
        f"smallest to the largest. At the last, 5.9 million blocks take {nation / 60:.0f} minutes of processor time, "
        f"{nation / 120:.0f} minutes on two cores (not run).",
        "",
    ]


def one_state(folder: Path, counties: int) -> None:
    """Make the microdata of a state, and check it: the process that is timed."""
    from stirred.mechanisms.topdown.solve.files import make

    shelf = Shelf(folder=folder, nation=Nation(fanout=(1, counties, 37, 4, 30)))
    options = SolveOptions(method=METHODS["default"], threads=os.cpu_count() or 1)
    made = make(shelf.shards, options, folder / "out", top=shelf.top())
    passed = "passed" if made.certificate.passed else "FAILED"
    (folder / "made").write_text(f"{made.certificate.records} {passed}")
    for event in made.events[:5]:
        print(event, file=sys.stderr)


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["few", "many", "small", "group", "state"])
    parser.add_argument("--files", type=int, default=10, help="noise files for accuracy")
    parser.add_argument("--blocks", type=float, nargs="+", default=[3, 30, 300], metavar="THOUSANDS")
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        one_state(Path(options.step[0]), int(options.step[1]))
        return
    few, many = Nation(fanout=(2, 2, 3, 3, 8), seed=2), Nation(fanout=(1, 6, 7, 4, 25), seed=2)
    sections = {}
    for part, nation, outside in (
        (
            "few",
            few,
            "-40 (1.2) / -34 (0.9) / -24 (0.4) / -5.5 (0.3) at county, tract, block group, block of 291 blocks",
        ),
        ("many", many, "-34 / -19 / -11 / -2.2 at county, tract, block group, block of 4,248 blocks"),
    ):
        if part in options.parts:
            title = f"accuracy on about {'300' if part == 'few' else '4,000'} blocks"
            sections[title] = accuracy(nation, options.files, outside=outside)
    if "small" in options.parts:
        sections["speed on a small tree"] = small(few)
    if "group" in options.parts:
        sections["one block group"] = group(Nation(fanout=(1, 1, 4, 4, 30)))
    if "state" in options.parts:
        with tempfile.TemporaryDirectory() as name:
            sections["a state"] = state(options.blocks, Path(name))
    for title, lines in sections.items():
        text = "\n".join([f"Reproduce with `python benchmarks/bench_microdata.py --write`. {machine()}.", "", *lines])
        print(f"\n## {title}\n\n{text}")
        if options.write:
            write_section(f"TopDown microdata: {title}", text)


if __name__ == "__main__":
    main()
