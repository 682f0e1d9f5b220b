"""How far both releases are from the truth, in the same tables: estimates from noisy counts, and a swapped file.

Errors are against the synthetic truth, which is nobody's. Of a real census they would stay inside the agency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stirred.mechanisms.tables.safetab import SafeTabP
from stirred.mechanisms.topdown.commands import HierarchyEstimateOptions, run_estimate
from stirred.mechanisms.topdown.hierarchy.schema import shipped_schema

LEVELS = {"county": "County", "tract": "Tract", "block_group": "Block_Group", "block": "Block"}
_WORDS = {"county": "county", "tract": "tract", "block_group": "block group", "block": "block", "state": "state"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One table: how many cells it has, and the mean absolute error of a cell in both releases."""

    title: str
    area: str
    product: str
    cells: int
    mean: float
    noisy: float
    swapped: float

    @property
    def name(self) -> str:
        """Return what the chart calls it."""
        return f"{self.title}, {self.area}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A table that TopDown estimates: a query of a product, and how the same cells are counted in a file."""

    title: str
    areas: tuple[str, ...]
    bundle: str
    schema: str
    query: str
    of: str  # persons or units
    attributes: tuple[tuple[str, str], ...] = ()  # attribute or grouping, and the column that has its attribute

    def level(self, area: str) -> str:
        """Return what the budget file calls a level."""
        return "Tract_Subset" if area == "tract" and self.bundle.startswith("dhc") else LEVELS[area]


TABLES = (
    Asked(
        title="population",
        areas=("county", "tract", "block_group", "block"),
        bundle="pl-persons",
        schema="pl94-persons",
        query="total",
        of="persons",
    ),
    Asked(
        title="of voting age or not",
        areas=("tract", "block_group"),
        bundle="pl-persons",
        schema="pl94-persons",
        query="votingage",
        of="persons",
        attributes=(("votingage", "votingage"),),
    ),
    Asked(
        title="race, 7 groups",
        areas=("county", "tract", "block_group"),
        bundle="dhc-persons",
        schema="dhc-small-persons",
        query="race",
        of="persons",
        attributes=(("race", "race"),),
    ),
    Asked(
        title="sex by age",
        areas=("county", "tract"),
        bundle="dhc-persons",
        schema="dhc-small-persons",
        query="sex * age",
        of="persons",
        attributes=(("sex", "sex"), ("age", "age")),
    ),
    Asked(
        title="units by tenure",
        areas=("county", "tract", "block_group"),
        bundle="dhc-units",
        schema="dhc-small-units",
        query="tenvacgq",
        of="units",
        attributes=(("tenvacgq", "tenvacgq"),),
    ),
    Asked(
        title="tenure by household type",
        areas=("tract",),
        bundle="dhc-units",
        schema="dhc-small-units",
        query="ten2 * hhtype",
        of="units",
        attributes=(("ten2", "tenvacgq"), ("hhtype", "hhtype")),
    ),
)


def compared(folder: Path) -> list[Compared]:
    """Return all tables, in both releases."""
    truth, swapped = _files(folder), _files(folder / "swapped" / "public", units="data.parquet")
    found = []
    for asked, area, own in _estimated(folder):
        counts = [_counted(each[asked.of], asked, area) for each in (truth, swapped)]
        found.append(_compared(asked.title, area, asked.bundle, own.select("area", "cell"), counts[0], own, counts[1]))
    return [*found, *_detailed(folder, truth["persons"], swapped["persons"]), _ratio(folder, truth, swapped)]


def _files(folder: Path, *, units: str = "units.parquet") -> dict[str, pl.DataFrame]:
    """Return units, and persons with the areas of their units."""
    homes = pl.read_parquet(folder / units)
    people = pl.read_parquet(folder / "persons.parquet")
    missing = [name for name in LEVELS if name not in people.columns]  # persons of a swapped file have their own
    return {"units": homes, "persons": people.join(homes.select("hid", *missing), on="hid") if missing else people}


def _estimated(folder: Path) -> Iterator[tuple[Asked, str, pl.DataFrame]]:
    """Yield each table by each kind of area, with the best linear unbiased estimate of every cell."""
    blocks = pl.read_csv(folder / "blocks.csv", infer_schema=False)
    (folder / "estimates").mkdir()
    for bundle in dict.fromkeys(asked.bundle for asked in TABLES):
        own = [asked for asked in TABLES if asked.bundle == bundle]
        targets, out = (folder / "estimates" / f"{bundle}.{ending}" for ending in ("csv", "parquet"))
        pl.concat(_targets(asked, blocks) for asked in own).write_csv(targets)
        run_estimate(HierarchyEstimateOptions(measurements=folder / bundle, targets=targets, out=out))
        estimates = pl.read_parquet(out)
        for asked in own:
            for area in asked.areas:
                wanted = (pl.col("geolevel") == asked.level(area)) & (pl.col("query_name") == asked.query)
                yield asked, area, estimates.filter(wanted).select("area", "cell", count="estimate")


def _targets(asked: Asked, blocks: pl.DataFrame) -> pl.DataFrame:
    size = shipped_schema(asked.schema).query(asked.query).size
    cells = pl.DataFrame({"query_name": [asked.query] * size, "cell": range(size)})
    areas = [
        blocks.select(geolevel=pl.lit(asked.level(area)), area=pl.col(area)).unique().sort("area")
        for area in asked.areas
    ]
    return pl.concat(areas).join(cells, how="cross")


def _counted(frame: pl.DataFrame, asked: Asked, area: str) -> pl.DataFrame:
    """Return a table counted from a file: cells are numbered as in the query, the last attribute fastest."""
    schema, cell = shipped_schema(asked.schema), pl.lit(0)
    for name, column in asked.attributes:
        attribute = next(each for each in schema.attributes if each.name == name or name in each.groupings)
        groups = attribute.groups("detailed" if attribute.name == name else name)
        place = dict(zip(attribute.codes, groups, strict=True))
        cell = cell * (max(groups) + 1) + pl.col(column).cast(pl.String).replace_strict(place, return_dtype=pl.Int64)
    return frame.group_by(area=pl.col(area), cell=cell).agg(pl.len().alias("count"))


def _compared(
    title: str, area: str, product: str, cells: pl.DataFrame, truth: pl.DataFrame, noisy: pl.DataFrame,
    swapped: pl.DataFrame,
) -> Compared:  # fmt: skip
    """Return the mean absolute errors over these cells; a cell without a row counts as 0."""
    keys = ["area", "cell"]
    both = cells.with_columns(pl.col("cell").cast(pl.String))
    for name, table in (("true", truth), ("noisy", noisy), ("swapped", swapped)):
        own = table.select("area", pl.col("cell").cast(pl.String), pl.col("count").cast(pl.Float64).alias(name))
        both = both.join(own, on=keys, how="left")
    both = both.fill_null(0)
    errors = [(both[name] - both["true"]).abs().mean() for name in ("noisy", "swapped")]
    return Compared(
        title=title, area=_WORDS[area], product=product, cells=both.height, mean=float(both["true"].mean()),  # type: ignore[arg-type]
        noisy=float(errors[0]), swapped=float(errors[1]),  # type: ignore[arg-type]
    )  # fmt: skip


def _detailed(folder: Path, truth: pl.DataFrame, swapped: pl.DataFrame) -> Iterator[Compared]:
    """Yield the totals of detailed races, alone or in combination, that SafeTab-P published; a missing one counts 0."""
    groups = SafeTabP(blocks="none").groups.table
    single = groups.filter((pl.col("kind") == "combination") & (pl.col("level") == 2) & ~pl.col("detailed_only"))
    codes = single.select("iteration_code", cell=pl.col("codes").list.first())
    t1 = pl.read_parquet(folder / "safetab-p" / "public" / "t1.parquet").join(codes, on="iteration_code")

    def counts(frame: pl.DataFrame, area: str) -> pl.DataFrame:
        rows = frame.select(area=pl.col(area), cell=pl.col("codes").str.split(" ")).explode("cell").drop_nulls()
        return rows.group_by("area", "cell").agg(pl.len().alias("count"))

    for area in ("county", "tract"):
        cells = truth.select(area=pl.col(area)).unique().join(codes.select("cell"), how="cross")
        own = t1.filter(pl.col("region_type") == area.upper()).select("cell", "count", area="region_id")
        yield _compared("detailed race", area, "safetab-p", cells, counts(truth, area), own, counts(swapped, area))


def _ratio(folder: Path, truth: dict[str, pl.DataFrame], swapped: dict[str, pl.DataFrame]) -> Compared:
    """Return persons per household in the state, which a swap inside counties leaves exact."""
    ratios = pl.read_parquet(folder / "phsafe" / "public" / "ratios.parquet")
    own = ratios.filter(
        (pl.col("ratio") == "PH1_1") & (pl.col("region_type") == "STATE") & (pl.col("iteration_code") == "*")
    )
    occupied = pl.col("tenvacgq").cast(pl.Int64) <= 3
    per, after = (float(f["units"].filter(occupied)["size"].cast(pl.Int64).mean()) for f in (truth, swapped))  # type: ignore[arg-type]
    return Compared(
        title="persons per household", area="state", product="phsafe", cells=1, mean=per,
        noisy=abs(float(own["value"][0]) - per), swapped=abs(after - per),
    )  # fmt: skip
