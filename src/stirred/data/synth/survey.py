"""A survey of the synthetic census: a stratified two-stage sample with nonresponse, imputation and two sets of weights.

States are strata. In each, block groups are drawn, and in each of those households, both without replacement and with
equal probabilities. Renters respond less often. Some incomes are missing, and are imputed from the household's own
tenure and size by a model; nobody's answer is copied. Weights come as designed, and calibrated to the number of
households by tenure. All of it is invented, and truth is kept in a folder of its own.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stirred.data.frames import write_frame
from stirred.data.place import folder_at
from stirred.data.problems import bad_plan
from stirred.data.synth.census import census

TAKE: Final = 20  # households of a block group
_SHARE: Final = 3  # one of so many block groups
_PLAN: Final = """[data]
sample = "sample.csv"
record = "household"

[design]
ids = "block_group"
strata = "state"
weights = "w_design"

[mechanism]
name = "survey-estimates"
setting = "responding/frame"
epsilon = 2
attest = ["design-weights"]
imputation = "own-values"
imputed = "income_imputed"
weight_bounds = {bounds}
most_in_cluster = {take}
values = {{ tenure = [1, 2, 3, 4] }}

[[estimates]]
kind = "total"
variable = "income"
bounds = [0, 200]

[[estimates]]
kind = "table"
by = "tenure"

[release]
out = "bundle"
"""


def with_income(homes: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return households that are not group quarters, each with an invented income in thousands."""
    own = homes.filter(pl.col("gq_type") == 0)
    rng = np.random.default_rng([seed, 1])
    middle = 20 + 12 * (own["tenure"].to_numpy() < 3) + 6 * np.minimum(own["size"].to_numpy(), 6)
    return own.with_columns(income=pl.Series(np.rint(middle * rng.lognormal(0, 0.5, own.height))))


def draw_survey(homes: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Return the responding households: ``w_design`` is the weight of the draw, and ``w`` is calibrated."""
    rng = np.random.default_rng([seed, 2])
    groups = _groups(homes)
    drawn = _chosen(groups, rng, pl.col("taken"), within="state")
    inside = homes.sort("hid").join(drawn, on=["state", "block_group"], maintain_order="left")
    sample = _chosen(inside, rng, pl.lit(TAKE), within="block_group")
    answers = rng.random(sample.height) < np.where(sample["tenure"].to_numpy() < 3, 0.9, 0.75)
    return _calibrated(_imputed(sample.filter(answers), rng), homes)


def _groups(homes: pl.DataFrame) -> pl.DataFrame:
    """Return the block groups of the frame, with how many are taken of each state's, and the weight of a household."""
    groups = homes.group_by("state", "block_group").len("there").sort("state", "block_group")
    taken = pl.max_horizontal(pl.col("clusters") // _SHARE, pl.min_horizontal(2, "clusters"))
    weight = pl.col("clusters") / pl.col("taken") * pl.col("there") / pl.min_horizontal("there", TAKE)
    return groups.with_columns(clusters=pl.len().over("state")).with_columns(taken=taken).with_columns(w_design=weight)


def _chosen(rows: pl.DataFrame, rng: np.random.Generator, take: pl.Expr, *, within: str) -> pl.DataFrame:
    """Return so many rows of each group, all equally likely."""
    chance = rows.with_columns(chance=pl.Series(rng.random(rows.height)))
    return chance.filter(pl.col("chance").rank().over(within) <= take).drop("chance")


def _imputed(sample: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """Return the sample with some incomes replaced by what the household's own tenure and size suggest."""
    lost = pl.Series(rng.random(sample.height) < 0.1)
    model = 22 + 12 * (pl.col("tenure") < 3) + 6 * pl.min_horizontal(pl.col("size"), 6)
    income = pl.when(lost).then(model.cast(pl.Float64)).otherwise(pl.col("income"))
    return sample.with_columns(income=income, income_imputed=lost.cast(pl.Int8))


def _calibrated(sample: pl.DataFrame, homes: pl.DataFrame) -> pl.DataFrame:
    known = homes.group_by("tenure").len("known")
    weights = pl.col("w_design") * pl.col("known") / pl.col("w_design").sum().over("tenure")
    found = sample.join(known, on="tenure", maintain_order="left").with_columns(w=weights)
    columns = ["state", "block_group", "clusters", "there", "w_design", "w", "tenure", "size", "household_type",
               "income", "income_imputed"]  # fmt: skip
    return found.sort("state", "block_group", "hid").select(columns)


def write_survey(out: Path, *, households: int, seed: int) -> dict[str, Any]:
    """Write ``sample.csv``, ``plan.toml`` and public ``totals.csv``; into ``truth`` all households and true totals."""
    if out.exists():
        raise bad_plan("this folder exists already", where=str(out), remedy="choose another one")
    homes = with_income(census(households, seed=seed)[0], seed)
    sample = draw_survey(homes, seed)
    truth = {"households": homes.height, "income": float(homes["income"].sum()),
             "tenure": {str(t): n for t, n in homes.group_by("tenure").len().sort("tenure").iter_rows()}}  # fmt: skip
    known = homes.group_by("tenure").len("total").sort("tenure")
    bounds = [1, math.ceil(_groups(homes)["w_design"].to_numpy().max())]
    out.parent.mkdir(parents=True, exist_ok=True)
    with folder_at(out, private=False) as folder:
        (folder / "truth").mkdir()
        write_frame(sample, folder / "sample.csv")
        write_frame(homes, folder / "truth" / "households.parquet")
        write_frame(known, folder / "totals.csv")
        (folder / "truth" / "totals.json").write_text(json.dumps(truth, indent=2) + "\n", encoding="utf-8")
        (folder / "plan.toml").write_text(_PLAN.format(bounds=bounds, take=TAKE), encoding="utf-8")
    return {"folder": str(out), "sampled": sample.height, "clusters": sample["block_group"].n_unique(), **truth}
