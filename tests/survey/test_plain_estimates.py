"""Plain estimates agree with slow, obvious code that follows the recursion of R's survey package."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred.cli.main import run
from stirred.spec.problems import SpecificationError
from stirred.survey.linearise import LONELY, student, variance_of_sum
from stirred.survey.sample_design import SurveyDesign

Row = dict[str, Any]


def sums(rows: list[Row], key: str) -> dict[Any, float]:
    found: dict[Any, float] = {}
    for row in rows:
        found[row[key]] = found.get(row[key], 0.0) + row["z"]
    return found


def one_stratum(rows: list[Row], unit: str, population: float | None) -> float:
    totals = [*sums(rows, unit).values()]
    n = len(totals)
    left = 1.0 if population is None else 1 - n / population
    mean = sum(totals) / n
    return left * n / (n - 1) * sum((t - mean) ** 2 for t in totals) if left else 0.0


def recursion(rows: list[Row], stages: list[tuple[str | None, str, str | None]]) -> float:
    """Return the variance by recursion: a stage, and inside each cluster the stages after it."""
    (stratum, unit, size), *later = stages
    found = 0.0
    for h in {row[stratum] if stratum else 0 for row in rows}:
        inside = [row for row in rows if (row[stratum] if stratum else 0) == h]
        population = inside[0][size] if size else None
        found += one_stratum(inside, unit, population)
        if later and size and later[0][2]:
            n = len({row[unit] for row in inside})
            for cluster in {row[unit] for row in inside}:
                own = [row for row in inside if row[unit] == cluster]
                found += n / inside[0][size] * recursion(own, later)
    return found


def a_sample(seed: int) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for h in range(3):
        clusters, there = int(rng.integers(2, 5)), int(rng.integers(5, 9))
        for c in range(clusters):
            take, size = int(rng.integers(2, 5)), int(rng.integers(5, 12))
            for unit in range(take):
                weight = there / clusters * size / take
                rows.append({
                    "h": f"h{h}", "psu": f"{h}.{c}", "ssu": f"{h}.{c}.{unit}", "M": there, "N": size, "w": weight,
                    "y": float(rng.integers(0, 50)), "x": float(rng.integers(1, 9)), "d": str(rng.integers(0, 3)),
                })  # fmt: skip
    return rows


DESIGNS: list[tuple[dict[str, Any], list[tuple[str | None, str, str | None]]]] = [
    ({"weights": "w"}, [(None, "ssu", None)]),
    ({"weights": "w", "strata": ("h",)}, [("h", "ssu", None)]),
    ({"weights": "w", "ids": ("psu",)}, [(None, "psu", None)]),
    ({"weights": "w", "ids": ("psu",), "strata": ("h",), "fpc": ("M",)}, [("h", "psu", "M")]),
    ({"weights": "w", "ids": ("psu", "ssu"), "strata": ("h",)}, [("h", "psu", None)]),
    ({"weights": "w", "ids": ("psu", "ssu"), "strata": ("h",), "fpc": ("M",)}, [("h", "psu", "M")]),
    ({"ids": ("psu", "ssu"), "strata": ("h",), "fpc": ("M", "N")}, [("h", "psu", "M"), (None, "ssu", "N")]),
]


def scored(rows: list[Row], kind: str, inside: Callable[[Row], bool]) -> tuple[float, list[Row]]:
    """Return an estimate, and the rows with their scores z."""
    w = [row["w"] * inside(row) for row in rows]
    y = [row["y"] for row in rows]
    x = [1.0 if kind == "mean" else row["x"] for row in rows]
    top = sum(a * b for a, b in zip(w, y, strict=True))
    if kind == "total":
        return top, [{**row, "z": a * b} for row, a, b in zip(rows, w, y, strict=True)]
    below = sum(a * b for a, b in zip(w, x, strict=True))
    value = top / below
    return value, [{**r, "z": a * (b - value * c) / below} for r, a, b, c in zip(rows, w, y, x, strict=True)]


@pytest.mark.parametrize(("named", "stages"), DESIGNS)
def test_estimates_and_errors_are_those_of_the_recursion(
    named: dict[str, Any], stages: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        rows = a_sample(seed)
        file = tmp_path / f"{seed}.csv"
        pl.DataFrame(rows).write_csv(file)
        options = [x for k, v in named.items() for x in (f"--{k}", v if isinstance(v, str) else ",".join(v))]
        line = [*options, "--total", "y", "--mean", "y", "--ratio", "y/x"]
        for more, inside in (
            ([], lambda row: True),
            (["--where", "d=1"], lambda row: row["d"] == "1"),
        ):  # fmt: skip
            assert run(["survey", "estimate", str(file), *line, *more, "--json"]) == 0
            found = json.loads(capsys.readouterr().out)["estimates"]
            assert [each["kind"] for each in found] == ["total", "mean", "ratio"]
            for each in found:
                value, scores = scored(rows, each["kind"], inside)
                assert each["estimate"] == pytest.approx(value, rel=1e-10)
                assert each["se"] == pytest.approx(recursion(scores, stages) ** 0.5, rel=1e-9)


def test_the_variance_of_simple_random_samples_is_right_on_average() -> None:
    """Over all samples of two of five the mean of the estimated variance is the variance of the estimates."""
    values = [1.0, 4.0, 4.0, 9.0, 20.0]
    totals, variances = [], []
    for pair in combinations(values, 2):
        drawn = SurveyDesign(fpc=("N",)).drawn({"N": [5, 5]})
        scores = np.array(pair) * 2.5
        totals.append(scores.sum())
        variances.append(variance_of_sum(scores, drawn))
    assert np.mean(totals) == pytest.approx(sum(values))
    assert np.mean(variances) == pytest.approx(np.var(totals))


def test_the_variance_of_two_stages_is_right_on_average() -> None:
    clusters = [[1.0, 5.0, 6.0], [2.0, 2.0, 8.0], [0.0, 10.0, 3.0]]
    totals, variances = [], []
    rows = {"p": [0, 0, 1, 1], "s": [0, 1, 0, 1], "M": [3] * 4, "N": [3] * 4}
    drawn = SurveyDesign(ids=("p", "s"), fpc=("M", "N")).drawn(rows)
    for chosen in combinations(clusters, 2):
        for one, other in product(combinations(chosen[0], 2), combinations(chosen[1], 2)):
            scores = np.array([*one, *other]) * drawn.weights
            totals.append(scores.sum())
            variances.append(variance_of_sum(scores, drawn))
    assert np.mean(totals) == pytest.approx(38 - 1)
    assert np.mean(variances) == pytest.approx(np.var(totals))


def test_domains_tables_and_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = a_sample(5)
    file = tmp_path / "s.csv"
    pl.DataFrame(rows).write_csv(file)
    design = ["--ids", "psu", "--strata", "h", "--weights", "w"]
    asked = ["--mean", "y,d", "--total", "d", "--table", "d", "--by", "h"]
    assert run(["survey", "estimate", str(file), *design, *asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["estimates"]
    for h in ("h0", "h1", "h2"):
        own = [row for row in rows if row["h"] == h]
        weight = sum(row["w"] for row in own)
        for d in ("0", "1", "2"):
            cell = sum(row["w"] for row in own if row["d"] == d)
            (table,) = (e for e in found if e["kind"] == "table" and e["by"] == {"h": h, "d": d})
            assert table["estimate"] == pytest.approx(cell)
        mean = next(e for e in found if e["kind"] == "mean" and e["variable"] == "y" and e["by"] == {"h": h})
        assert mean["estimate"] == pytest.approx(sum(r["w"] * r["y"] for r in own) / weight)
    assert run(["survey", "estimate", str(file), *design, *asked]) == 0
    assert "do not publish" in capsys.readouterr().out


def test_texts_are_shares_of_their_values(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.csv"
    pl.DataFrame({"w": [2.0, 2.0, 4.0], "sex": ["f", "m", "f"]}).write_csv(file)
    assert run(["survey", "estimate", str(file), "--weights", "w", "--mean", "sex", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["estimates"]
    assert [(e["level"], e["estimate"]) for e in found] == [("f", 0.75), ("m", 0.25)]


def test_files_are_read_as_r_reads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NA is a missing value, and is left out like the rows of another domain; ids = 1 says that rows were drawn."""
    (tmp_path / "s.csv").write_text("w,y,d\n2,1,a\n2,NA,b\n2,5,a\n2,3,a\n")
    file, line = str(tmp_path / "s.csv"), ["--ids", "1", "--weights", "w", "--mean", "y", "--json"]
    found = []
    for more in (["--na-rm"], ["--na-rm", "--where", "d=a"]):
        assert run(["survey", "estimate", file, *line, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["estimates"][0])
    assert found[0]["estimate"] == 3
    assert found[0]["se"] == found[1]["se"] == pytest.approx((4 / 3 * (4 + 4) / 9) ** 0.5)
    assert run(["survey", "estimate", file, *line]) == 2


LONELY_ROWS = {"h": [1, 1, 2], "w": [3.0, 3.0, 5.0]}


def test_a_lonely_cluster_is_refused_with_the_options_of_r() -> None:
    drawn = SurveyDesign(strata=("h",), weights="w").drawn(LONELY_ROWS)
    with pytest.raises(SpecificationError) as caught:
        variance_of_sum(np.array([1.0, 3.0, 4.0]), drawn)
    assert all(option in str(caught.value) for option in LONELY if option != "fail")
    assert "1 stratum has one cluster at stage 1, which shows no variance: that of record 3" in str(caught.value)


@pytest.mark.parametrize(("lonely", "variance"), [("remove", 4.0), ("certainty", 4.0), ("adjust", 20), ("average", 8)])
def test_lonely_clusters_count_as_in_r(lonely: str, variance: float) -> None:
    drawn = SurveyDesign(strata=("h",), weights="w").drawn(LONELY_ROWS)
    assert variance_of_sum(np.array([1.0, 3.0, 4.0]), drawn, lonely=lonely) == pytest.approx(variance)


def test_a_cluster_that_is_its_stratum_is_not_lonely() -> None:
    drawn = SurveyDesign(strata=("h",), fpc=("N",)).drawn({"h": [1, 1, 2], "N": [4, 4, 1]})
    assert variance_of_sum(np.array([1.0, 3.0, 4.0]), drawn) == pytest.approx(2.0)


def test_a_design_may_stand_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = a_sample(2)
    pl.DataFrame(rows).write_csv(tmp_path / "s.csv")
    (tmp_path / "plan.toml").write_text('[design]\nids = "psu"\nstrata = "h"\nweights = "w"\n')
    found = []
    for line in (["--design", str(tmp_path / "plan.toml")], ["--ids", "psu", "--strata", "h", "--weights", "w"]):
        assert run(["survey", "estimate", str(tmp_path / "s.csv"), *line, "--total", "y", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--weights w", "nothing is asked for"),
        ("--weights v --total y", "no column 'v'"),
        ("--weights w --total q", "no column 'q'"),
        ("--weights w --total gap", "no value of 'gap'"),
        ("--weights w --total comma", "decimals with a point"),
        ("--weights w --mean odd", "'abc' in record 1 is not a number"),
        ("--weights w --table q", "--table: no column 'q'"),
        ("--weights w --total y --mse", "it is of replicate weights"),
        ("--weights w --ratio y", "not a ratio"),
        ("--weights w --total y --where d", "not a condition"),
        ("--weights w --total y --where d=p7", "no record has"),
        ("--total y", "nothing says with which probability"),
        ("--weights w --total y --replicates rep*", "0 columns match"),
        ("--weights w --total y --rho 0.3", "of replicate weights"),
        ("--weights w --total y --replicates [xM] --replicate-type fay", "fay needs its rho"),
        ("--weights w --total y --replicates [xM] --scale 2", "its own scale"),
        ("--weights w --total y --replicates [xM] --replicate-type jkn", "0 scales for 2 replicates"),
        ("--weights w --total y --replicates [xM] --replicate-type other --rscales 1,-1", "below 0"),
        ("--weights w --total y --replicates [xd]", "not a number"),
        ("--weights w --total y --replicates [xM] --replicate-type odd", "not a kind"),
        ("--weights w --total y --confidence 95", "not a confidence"),
        ("--weights w --total y --strata h --pps poisson", "no clusters, strata"),
        ("--weights w --total y --pps brewer", "probabilities are not named"),
        ("--fpc M --total y --pps brewer", "at most 1"),
        ("--ids ssu --fpc M --total y", "more than one population size"),
        ("--ids unit --strata h --weights w --total y", "more than one stratum"),
        ("--ids hole --weights w --total y", "missing values"),
        ("--weights d --total y", "not a number"),
        ("--weights zero --total y --totals good.csv", "weights of 0"),
        ("--weights w --total y --totals other.csv", "without a known total"),
        ("--weights w --total y --totals unknown.csv", "no column 'q'"),
        ("--weights w --total y --totals twice.csv", "two totals"),
        ("--weights w --total y --totals negative.csv", "not above 0"),
        ("--weights w --total y --totals extra.csv", "no weight in the sample"),
        ("--weights w --total y --totals against.csv", "contradict"),
    ],
)
def test_bad_input_is_refused(line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pl.DataFrame(a_sample(1)).with_columns(
        gap=pl.when(pl.col("y") > 20).then(pl.col("y")), hole=pl.when(pl.col("y") > 20).then(pl.lit("a")),
        unit=pl.col("psu").str.slice(2), zero=pl.when(pl.col("y") > 20).then(0.0).otherwise(1.0),
        sex=pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("f")).otherwise(pl.lit("m")),
        d=pl.lit("p") + pl.col("d"), comma=pl.lit("1,5"),
        odd=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("abc")).otherwise(pl.col("y").cast(pl.String)),
    )  # fmt: skip
    frame.write_csv(tmp_path / "s.csv")
    totals = {
        "good": "sex,N\nf,4\nm,5\n", "other": "sex,N\nf,4\nx,5\n", "unknown": "q,N\nf,4\n",
        "negative": "sex,N\nf,4\nm,-5\n",
        "twice": "sex,N\nf,4\nf,5\nm,4\n", "extra": "sex,N\nf,4\nm,5\nx,1\n",
        "against": "sex,h,N\nf,NA,4\nm,NA,5\nNA,h0,1\nNA,h1,2\nNA,h2,7\n",
    }  # fmt: skip
    for name, text in totals.items():
        (tmp_path / f"{name}.csv").write_text(text)
    words = [str(tmp_path / word) if word.endswith(".csv") else word for word in line.split()]
    assert run(["survey", "estimate", str(tmp_path / "s.csv"), *words]) == 2
    assert told in capsys.readouterr().err


def test_large_totals_are_printed_in_whole_numbers_as_by_r(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.DataFrame({"w": [1000.0, 2000.0], "y": [12_345.25, 33_333.5]}).write_csv(tmp_path / "s.csv")
    assert run(["survey", "estimate", str(tmp_path / "s.csv"), "--weights", "w", "--total", "y"]) == 0
    assert " 79012250 " in capsys.readouterr().out


def test_the_weight_itself_is_not_a_replicate_and_their_number_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, rows = tmp_path / "s.csv", {"y": [1.0, 5.0, 2.0], "W": [2.0, 3.0, 4.0]}
    pl.DataFrame({**rows, "W1": [4.0, 0.0, 8.0], "W2": [0.0, 6.0, 0.0], "W3": [4.0, 6.0, 0.0]}).write_csv(file)
    found = []
    for pattern in ("W*", "W[0-9]*"):
        line = ["--weights", "W", "--replicates", pattern, "--replicate-type", "acs", "--mse", "--total", "y"]
        assert run(["survey", "estimate", str(file), *line, "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
        assert run(["survey", "estimate", str(file), *line]) == 0
        assert "3 columns: W1 to W3" in capsys.readouterr().out
    assert found[0] == found[1]
    assert found[0]["replicates"] == 3
    (tmp_path / "d.toml").write_text('[design]\nweights = "W"\n')
    line = ["--design", str(tmp_path / "d.toml"), "--replicates", "W*", "--replicate-type", "acs", "--total", "y"]
    assert run(["survey", "estimate", str(file), *line, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["replicates"] == 3


def test_degrees_of_freedom_are_those_of_the_subset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Six clusters in three strata; the subset has rows of three clusters in two strata, or of one cluster."""
    file = tmp_path / "s.csv"
    pl.DataFrame({
        "h": [1, 1, 2, 2, 3, 3], "p": [1, 2, 3, 4, 5, 6], "w": [2.0] * 6, "y": [1, 4, 2, 8, 3, 9],
        "d": list("aabbbc"), "r1": [4.0, 0, 4, 0, 4, 0], "r2": [0.0, 4, 4, 0, 0, 4], "r3": [4.0, 0, 0, 4, 4, 0],
    }).write_csv(file)  # fmt: skip
    line = ["survey", "estimate", str(file), "--weights", "w", "--total", "y", "--json"]
    design, replicated = ["--ids", "p", "--strata", "h"], ["--replicates", "r*", "--replicate-type", "bootstrap"]
    replicated += ["--scale", "1"]
    for options, where, df in (
        (design, [], 3), (design, ["--where", "d=b,c"], 2), (design, ["--where", "d=b"], 1),
        (replicated, [], 2), (replicated, ["--where", "d=a"], 1),
    ):  # fmt: skip
        assert run([*line, *options, *where]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["degrees_of_freedom"] == df
        (each,) = told["estimates"]
        assert (each["uci"] - each["estimate"]) / each["se"] == pytest.approx(student(0.95, df), rel=1e-12)
    assert run([*line, *design, "--where", "d=c"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["degrees_of_freedom"] == 0
    assert told["estimates"][0]["lci"] is None  # R's qt(0.975, 0) is not a number
