"""Regression on a swapped variable: naive intervals lose their level, corrected ones keep it.

An analyst wants the slope b of ``y = a + b x + error``, where x says whether a household lives in the city. Place was
swapped among households of equal size; y was held. Swapping mixes the two groups, so the slope on the released
file is too small by the share of records that moved: at a 5% swap its 95% interval already misses the truth far
more often than one time in twenty, and more data make it worse.

The correction uses that rate and margins are public. With v = y - mean(y), ordinary least squares is

    b = S / Sxx,   S = sum of v over the records with x = 1,   Sxx = c (1 - c/N),   c the number of records with x = 1.

Sxx, N and the distribution of y are not changed by swapping. S is a cell that counts v instead of records. In a
stratum of n records, c of them with x = 1, its swapped value Z has mean ``e + lambda (S - e)`` with
``e = c sum(v) / n`` (swapping theory R18: the formula is linear in the weights), so

    S^ = sum over strata of e + (Z - e)/lambda,   b^ = S^ / Sxx

is unbiased over the swap. Its variance is the sum of two parts: sigma^2/Sxx, which sampling alone gives, and
Var(S^)/Sxx^2 of the swap, from the exact second moments with the estimate put in.

Run: ``python examples/swapped_regression.py``. It writes ``build/swapped_regression.html`` in under a minute.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred import Entropy, PermutationSwap
from stirred.inference.swap_moments import Laws
from stirred.report.charts import ACCENT, SECOND, chart
from stirred.report.page import page, paragraph, section, table

RATES = tuple(Fraction(text) for text in ("0", "1/100", "1/20", "1/10", "1/5", "1/2"))
SLOPE, NOISE = 1.0, 0.8
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What many files showed at one swap rate: shares of 95% intervals with the true slope, and mean slopes."""

    rate: Fraction
    naive: float
    corrected: float
    naive_slope: float
    corrected_slope: float


def main() -> None:
    """Study coverage at several rates and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/swapped_regression.html", help="page to write")
    parser.add_argument("--copies", type=int, default=600, help="files at each rate")
    arguments = parser.parse_args()
    studies = [coverage(rate, copies=arguments.copies, entropy=Entropy.from_os()) for rate in RATES]
    out = Path(arguments.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(report(studies, copies=arguments.copies), encoding="utf-8")
    for study in studies:
        print(
            f"swap rate {100 * float(study.rate):g}%: coverage naive {100 * study.naive:.1f}%, "
            f"corrected {100 * study.corrected:.1f}%"
        )
    print(f"report: {out}")


def coverage(rate: Fraction, *, copies: int, entropy: Entropy, records: int = 4_000) -> Study:
    """Draw files, swap each of them, and see which intervals contain the true slope."""
    files = drawn(copies, records, entropy)
    swap = PermutationSwap(match=["file", "size"], swap=["city"], hold=["record"], rate=rate)
    # The number of a record only brings its answer back after the swap; nothing here is published.
    kept = files.select("file", "size", "city", "record")
    accept = ["identifier:record"]
    released = swap.release(kept, entropy.child("swap"), accept=accept).public["data"] if rate else kept
    data = released.join(files.select("record", "v"), on="record")
    sums = data.group_by("file", "size").agg(
        pl.len().alias("n"),
        pl.col("city").sum().alias("c"),
        pl.col("v").sum().alias("hold"),
        (pl.col("v") ** 2).sum().alias("hold_squares"),
        pl.col("v").filter(pl.col("city") == 1).sum().alias("cell"),
        (pl.col("v") ** 2).filter(pl.col("city") == 1).sum().alias("cell_squares"),
    )
    found = slopes(sums, rate)
    inside = {
        kind: ((found[kind] - SLOPE).abs() <= 1.96 * found[f"{kind}_error"]).mean() for kind in ("naive", "corrected")
    }
    return Study(
        rate=rate,
        naive=float(inside["naive"]),
        corrected=float(inside["corrected"]),
        naive_slope=float(found["naive"].mean()),
        corrected_slope=float(found["corrected"].mean()),
    )


def slopes(sums: pl.DataFrame, rate: Fraction) -> pl.DataFrame:
    """Return naive and corrected slope of each file with their standard errors, from sums by file and stratum."""
    n, c, r, rr, z, zz = (
        sums[name].to_numpy().astype(np.float64) for name in ("n", "c", "hold", "hold_squares", "cell", "cell_squares")
    )
    laws = Laws.of(sums["n"].to_numpy().astype(np.int64), [rate] * sums.height)
    e, kept = c * r / n, laws.kept
    cell, squares = e + (z - e) / kept, c * rr / n + (zz - c * rr / n) / kept
    _, variance = laws.moments(cell=cell, cell_squares=squares, hold=r, hold_squares=rr, swap=c)
    # Put into a quadratic, the estimate brings the factor q / lambda^2; this takes it out again.
    by_file = (
        sums.with_columns(pl.Series("estimate", cell), pl.Series("swap_variance", variance / laws.kept_squares))
        .group_by("file")
        .agg(pl.col("n", "c", "hold_squares", "cell", "estimate", "swap_variance").sum())
        .with_columns((pl.col("c") * (1 - pl.col("c") / pl.col("n"))).alias("sxx"))
    )
    sxx = pl.col("sxx")

    def sampling(total: str) -> pl.Expr:
        """Return sigma^2 / Sxx with sigma^2 from the residuals that this slope leaves."""
        return (pl.col("hold_squares") - pl.col(total) ** 2 / sxx) / (pl.col("n") - 2) / sxx

    return by_file.select(
        naive=pl.col("cell") / sxx,
        naive_error=sampling("cell").sqrt(),
        corrected=pl.col("estimate") / sxx,
        corrected_error=(sampling("estimate") + pl.col("swap_variance") / sxx**2).sqrt(),
    )


def drawn(copies: int, records: int, entropy: Entropy) -> pl.DataFrame:
    """Draw files of households: size, whether in the city (rarer for large households), and v = y - mean(y)."""
    total = copies * records
    words = [entropy.words(f"draw {number}", chunk=0, count=total, dtype=np.uint64) for number in range(4)]
    first, second, where, size = ((w >> np.uint64(11)).astype(np.float64) + 0.5 for w in words)
    unit = 2.0**-53
    normal = np.sqrt(-2 * np.log(first * unit)) * np.cos(2 * np.pi * second * unit)
    sizes = 1 + (size * unit * 4).astype(np.int64)
    city = (where * unit < 0.6 - 0.1 * sizes).astype(np.int64)
    files = pl.DataFrame(
        {
            "file": np.repeat(np.arange(copies), records),
            "record": np.arange(total),
            "size": sizes,
            "city": city,
            "y": SLOPE * city + NOISE * normal,
        }
    )
    return files.with_columns((pl.col("y") - pl.col("y").mean().over("file")).alias("v"))


def report(studies: list[Study], *, copies: int) -> str:
    """Return the page: coverage against rate, and the numbers."""
    rows = [
        {"rate": float(study.rate), "coverage": getattr(study, kind), "kind": name}
        for study in studies
        for kind, name in (("naive", "naive"), ("corrected", "corrected"))
    ]
    colour = {"field": "kind", "title": None, "scale": {"domain": ["naive", "corrected"], "range": [SECOND, ACCENT]}}
    encoding = {
        "x": {"field": "rate", "type": "quantitative", "axis": {"title": "swap rate", "format": "~%"}},
        "y": {"field": "coverage", "type": "quantitative", "axis": {"title": "coverage of intervals", "format": "~%"}},
        "color": colour,
    }
    rule = {"data": {"values": [{"y": 0.95}]}, "mark": {"type": "rule", "strokeDash": [4, 4]},
            "encoding": {"y": {"field": "y", "type": "quantitative"}}}  # fmt: skip
    lines = {"data": {"values": rows}, "mark": {"type": "line", "point": True}, "encoding": encoding}
    text = (
        f"{copies:,} files of 4,000 households at each rate; true slope {SLOPE:g}. Naive: least squares on the "
        "released file as if nothing had been swapped. Corrected: the same with the cross moment unswapped by stratum, "
        "and the variance of the swap added. Dashed: 95%."
    )
    header = ["swap rate", "coverage, naive", "coverage, corrected", "mean slope, naive", "mean slope, corrected"]
    numbers = [
        [
            f"{100 * float(s.rate):g}%", f"{100 * s.naive:.1f}%", f"{100 * s.corrected:.1f}%",
            f"{s.naive_slope:.4f}", f"{s.corrected_slope:.4f}",
        ]
        for s in studies
    ]  # fmt: skip
    title = "Regression on a swapped variable"
    body = [
        f"<h1>{title}</h1>",
        section(
            "Coverage of confidence intervals", paragraph(text), chart({"layer": [rule, lines]}, title="Coverage"),
            table(header, numbers),
        ),
    ]  # fmt: skip
    return page(title, body)


if __name__ == "__main__":
    main()
