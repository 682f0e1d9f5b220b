"""Exact discrete Gaussian noise beside OpenDP's exact sampler and numpy's rounded normal, in one run, as ratios.

Tasks take turns; the best of five rounds after one that is not counted. Ours includes the words of the cipher and, in
the first round, the table. numpy's numbers are not exact and its generator is not cryptographic.

    python benchmarks/bench_noise.py [--write]

OpenDP is a dependency of this benchmark only: install it beside stirred, ``pip install opendp``. Without it the rest is
measured and the column stays empty.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from fractions import Fraction
from importlib.metadata import version
from typing import Final

import numpy as np
from sections import machine, write_section

from stirred import Entropy
from stirred.randomness import discrete_gaussian, zero_margin_noise, zero_sum_noise
from stirred.randomness.noise import NoiseTable, table_of
from stirred.spec import DiscreteGaussian

ROUNDS: Final = 5
OURS: Final = 8_000_000
THEIRS: Final = 20_000
SIGMAS: Final = ("1/2", "1", "4", "20", "100", "1000")
WIDE: Final = ("100000", "1000000")
Task = Callable[[], object]


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    options = parser.parse_args()
    opendp = opendp_sampler()
    known = f"OpenDP {version('opendp')}" if opendp else "OpenDP not installed (pip install opendp)"
    lines = [
        f"Reproduce with `make bench-noise`. {machine()}, numpy {np.__version__}, {known}; best of {ROUNDS} rounds, "
        "taking turns. Millions of samples per second. OpenDP and ours are exact, numpy's rounded normal is not. "
        "With more load than cores the second thread gains nothing.",
        "",
        "| sigma | ours, 1 thread | ours, 2 threads | numpy | OpenDP | ours / OpenDP, 1 and 2 threads "
        "| ours / numpy, 1 thread | table made in |",
        "|---|---|---|---|---|---|---|---|",
        *(row(sigma, opendp) for sigma in SIGMAS),
        *(row(sigma, opendp, count=1_000_000) for sigma in WIDE),
        "",
        *inside(),
    ]
    text = "\n".join(lines)
    print(text)
    if options.write:
        write_section("Exact noise", text)


def opendp_sampler() -> Callable[[float], Task] | None:
    """Return what makes a task of OpenDP, or None if it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        print("OpenDP is not installed, so it is left out. To compare with it: pip install opendp")
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    zeros = [0] * THEIRS

    def task(sigma: float) -> Task:
        measurement = dp.m.make_gaussian(*space, scale=sigma)
        return lambda: measurement(zeros)

    return task


def rates(tasks: dict[str, tuple[Task, int]]) -> dict[str, float]:
    """Return the best samples per second of each task; they take turns, and the first turn does not count."""
    best = dict.fromkeys(tasks, math.inf)
    for turn in range(1 + ROUNDS):
        for name, (task, _) in tasks.items():
            start = time.perf_counter()
            task()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return {name: count / best[name] for name, (_, count) in tasks.items()}


def row(sigma: str, opendp: Callable[[float], Task] | None, *, count: int = OURS) -> str:
    """Return a row of the table."""
    variance, scale, entropy = Fraction(sigma) ** 2, float(Fraction(sigma)), Entropy.from_os()
    rng = np.random.default_rng(1)
    made = ""
    if table_of(DiscreteGaussian(variance)) is not None:
        start = time.perf_counter()
        NoiseTable.of(DiscreteGaussian(variance))
        made = f"{time.perf_counter() - start:.3f} s"

    def ours(threads: int) -> Task:
        return lambda: discrete_gaussian(variance, count=count, entropy=entropy, purpose="bench", threads=threads)

    tasks: dict[str, tuple[Task, int]] = {
        "one": (ours(1), count),
        "two": (ours(2), count),
        "numpy": (lambda: np.rint(rng.normal(0, scale, count)).astype(np.int64), count),
    }
    if opendp:
        tasks["opendp"] = (opendp(scale), THEIRS)
    found = rates(tasks)
    peer = found.get("opendp")
    return (
        f"| {sigma} | {found['one'] / 1e6:.3g} | {found['two'] / 1e6:.3g} | {found['numpy'] / 1e6:.3g} | "
        + (f"{peer / 1e6:.3f} | {found['one'] / peer:,.0f} and {found['two'] / peer:,.0f}" if peer else "- | -")
        + f" | {found['one'] / found['numpy']:.2g} | {made or 'no table'} |"
    )


def inside() -> list[str]:
    """Return how long noise takes that keeps totals or margins, beside noise that does not."""
    noise, entropy = DiscreteGaussian(100), Entropy.from_os()
    lines = ["| noise that keeps sums, sigma 10 | cells | milliseconds | cost of a cell, beside independent noise |"]
    lines.append("|---|---|---|---|")
    free = rates({"free": (lambda: discrete_gaussian(100, count=OURS, entropy=entropy, purpose="free"), OURS)})["free"]
    groups = {f"{1_000_000 // size:,} groups of {size:,}": [size] * (1_000_000 // size) for size in (2, 10, 100, 5_000)}
    tasks: dict[str, tuple[Task, int]] = {
        name: (lambda g=sizes: zero_sum_noise(noise, groups=g, entropy=entropy, purpose="sums"), sum(sizes))
        for name, sizes in groups.items()
    }
    tasks |= {
        f"both margins of {r} x {c}": (
            lambda s=(r, c): zero_margin_noise(noise, shape=s, entropy=entropy, purpose="margins"),
            r * c,
        )
        for r, c in ((2, 50), (3, 3), (5, 5), (10, 10))
    }
    for name, rate in rates(tasks).items():
        cells = tasks[name][1]
        lines.append(f"| {name} | {cells:,} | {1e3 * cells / rate:.1f} | {free / rate:.3g} |")
    return lines


if __name__ == "__main__":
    main()
