"""Swap beside its floors: reading, sorting and writing the same file, and a plain numpy version.

Everything is measured in one run on one machine, tasks taking turns, and reported as a ratio: the best of
three rounds after one that is not counted. Records are in random order, the worst case for the cache.

    python benchmarks/bench_swap.py [--rows 50_000_000] [--nation 1 10 140] [--write]

``--nation`` adds runs of the whole command on the synthetic census, with persons, of so many million
households, each in a process of its own, with its peak memory.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
from sections import machine, write_section

from stirred import Entropy, PermutationSwap
from stirred.data.frames import write_frame
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.kernels.selected import swap_in_place

ROUNDS = 3
COMMAND = "make bench-swap"


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(float(text.replace("_", ""))), default=50_000_000)
    parser.add_argument("--nation", type=int, nargs="*", metavar="MILLIONS", default=[])
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    options = parser.parse_args()
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows += kernel_rows(folder, options.rows)
        rows += whole_run_rows(folder, options.rows)
        rows += nation_rows(folder, options.nation)
    text = table(rows, options.rows)
    print(text)
    if options.write:
        write_section("Swap", text)


def table(rows: list[tuple[str, str, str]], count: int) -> str:
    """Return the results as Markdown."""
    lines = [
        f"Reproduce with `{COMMAND}`. {count:,} households, 6 columns, unless said; best of {ROUNDS} rounds.",
        f"{machine()}, polars {pl.__version__}, numpy {np.__version__}.",
        "Ratios travel between machines; seconds do not.",
        "",
        "| what | floor or peer | ratio |",
        "|---|---|---|",
        *(f"| {what} | {floor} | {ratio} |" for what, floor, ratio in rows),
        "",
    ]
    return "\n".join(lines)


def best_seconds(tasks: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the best time of each task; they take turns, and the first turn does not count."""
    best = dict.fromkeys(tasks, float("inf"))
    for turn in range(1 + rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            if turn or rounds == 0:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def write_homes(path: Path, rows: int) -> None:
    """Write households in random order: 51 states x 7 sizes = 357 strata, 3,100 counties."""
    rng = np.random.default_rng(1940)
    county = rng.integers(0, 3_100, rows, dtype=np.uint16)
    homes = pl.DataFrame(
        {
            "state": (county % 51).astype(np.uint8),
            "county": county,
            "size": rng.choice(7, rows, p=[0.28, 0.34, 0.15, 0.13, 0.06, 0.025, 0.015]).astype(np.uint8),
            "tenure": rng.integers(1, 5, rows, dtype=np.uint8),
            "type": rng.integers(1, 8, rows, dtype=np.uint8),
            "rooms": rng.integers(1, 10, rows, dtype=np.uint8),
        }
    )
    homes.write_parquet(path, compression="zstd", compression_level=1)


def kernel_rows(folder: Path, rows: int) -> list[tuple[str, str, str]]:
    """Measure the kernel against reading its columns, and against plain numpy."""
    results = []
    rng = np.random.default_rng(1)
    entropy = Entropy.from_os()
    rate = Fraction(1, 10)
    for strata in (357, 1_400_000):
        path = folder / f"codes-{strata}.parquet"
        stratum = rng.integers(0, strata, rows, dtype=np.uint32)
        swap = rng.integers(0, 3_000_000, rows, dtype=np.uint32)
        size, county = (stratum % 7).astype(np.uint8), (swap // 1_000).astype(np.uint16)
        frame = pl.DataFrame({"geography": stratum // 7, "size": size, "county": county, "block": swap})
        frame.write_parquet(path, compression="zstd", compression_level=1)
        del frame, size, county
        rates = Rates.constant(rate, strata=strata)
        times = best_seconds(
            {
                "read": lambda path=path: pl.read_parquet(path),
                "kernel": lambda s=stratum, w=swap, r=rates: swap_in_place(
                    s, w, rates=r, entropy=entropy.child("bench")
                ),
            }
        )
        ratio = times["kernel"] / times["read"]
        results.append(
            (f"swap kernel, {strata:,} strata, rate 10%", "polars read of the same four columns", f"{ratio:.2f}")
        )
        if strata > 1000:
            naive = best_seconds({"numpy": lambda s=stratum, w=swap: numpy_swap(s, w, 0.1, rng)}, rounds=0)
            speed = naive["numpy"] / times["kernel"]
            results.append(
                (
                    f"swap kernel, {strata:,} strata, rate 10%",
                    "plain numpy version (one run)",
                    f"{1 / speed:.3f} ({speed:.0f} times faster)",
                )
            )
        path.unlink()
    return results


def numpy_swap(stratum: np.ndarray, swap: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Swap as one would write it first: sort the selected by stratum, shuffle each until deranged."""
    selected = np.flatnonzero(rng.random(stratum.size) < rate)
    order = selected[np.argsort(stratum[selected], kind="stable")]
    edges = np.flatnonzero(np.diff(stratum[order])) + 1
    out = swap.copy()
    for rows in np.split(order, edges):
        if rows.size < 2:
            continue
        while True:
            moved = rng.permutation(rows.size)
            if not (moved == np.arange(rows.size)).any():
                break
        out[rows] = swap[rows[moved]]
    return out


def whole_run_rows(folder: Path, rows: int) -> list[tuple[str, str, str]]:
    """Measure reading, swapping, reordering and writing a file against plain read, sort and write."""
    path, out = folder / "homes.parquet", folder / "out"
    write_homes(path, rows)
    out.mkdir()
    mechanism = PermutationSwap(match=["state", "size"], swap=["county"], rate="1/10")

    def swap_file() -> None:
        release = mechanism.release(pl.read_parquet(path), Entropy.from_os())
        for number, part in enumerate(release.public.parts("data")):
            write_frame(part, out / f"part-{number:05d}.parquet")

    def sorted_copy() -> None:
        frame = pl.read_parquet(path).sort("county")
        frame.write_parquet(folder / "sorted.parquet", compression="zstd", compression_level=1)

    def copy() -> None:
        frame = pl.read_parquet(path)
        frame.write_parquet(folder / "copy.parquet", compression="zstd", compression_level=1)

    times = best_seconds({"swap": swap_file, "sorted": sorted_copy, "copy": copy})
    what = "whole run Parquet to Parquet, order independent of the input, 357 strata, rate 10%"
    return [
        (what, "polars read + sort by county + write", f"{times['swap'] / times['sorted']:.2f}"),
        (what, "polars read + write, no sort", f"{times['swap'] / times['copy']:.2f}"),
    ]


def nation_rows(folder: Path, sizes: list[int]) -> list[tuple[str, str, str]]:
    """Run the whole command with persons on the synthetic census of so many million households."""
    stirred = str(Path(sys.executable).with_name("stirred"))
    results = []
    for millions in sizes:
        census, out = folder / f"census-{millions}", folder / f"bundle-{millions}"
        made = seconds(
            [
                stirred,
                "synth",
                "census",
                "--households",
                str(millions * 10**6),
                "--seed",
                "1",
                "--out",
                str(census),
                "--quiet",
            ]
        )
        arguments = [
            stirred, "swap", str(census / "households.parquet"), "--match", "state,size,gq_type",
            "--swap", "county,tract,block_group,block", "--rate", "10%", "--persons", str(census / "persons.parquet"),
            "--hid", "hid", "--id", "pid", "--out", str(out), "--quiet",
        ]  # fmt: skip
        taken, peak = seconds(arguments), peak_memory()
        what = f"{millions} million households with their persons: swapped, written, verified, reported"
        results.append(
            (what, "making the same synthetic census", f"{taken / made:.1f} ({taken:.0f} s, peak {peak:.1f} GB)")
        )
        for path in (census, out):
            subprocess.run(["rm", "-rf", str(path)], check=True)
    return results


def seconds(arguments: list[str]) -> float:
    """Run a command and return how long it took."""
    start = time.perf_counter()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def peak_memory() -> float:
    """Return the largest resident memory of any process run so far, in GB."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
