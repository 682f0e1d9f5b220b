"""A mechanism that is no swap is written, verified, explained and reported through the contract alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from stirred import Entropy
from stirred.data.frames import write_parts
from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import (
    Fact,
    Frames,
    Grid,
    Mechanism,
    Opening,
    Plan,
    Progress,
    PublicFile,
    Release,
    ReleasedColumns,
    Section,
    Settings,
    VerificationError,
)
from stirred.release import files as writing
from stirred.release.prepared import Prepared
from stirred.release.run import run
from stirred.spec.budget import Budget, Derived
from stirred.spec.domain import Domain
from stirred.spec.exact import ln
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import PURE
from stirred.spec.specification import Flavor, Specification
from tests.world import listing, manifest, planned, swap_plan, world

COLUMNS = ("county", "size", "tenure")
Patch = pytest.MonkeyPatch


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CoinPlan(Plan):
    dropped: tuple[str, ...] = ("hid",)

    @property
    def disturbed(self) -> str:
        return "tenure of a quarter of the records"

    @property
    def facts(self) -> tuple[Fact, ...]:
        return (Fact(label="coins", sentence="two for each record", values={"coins": 2}),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coins(Mechanism):
    """Replace tenure by a fair coin with probability 1/2; a side file says how many coins there were."""

    name: ClassVar[str] = "coins"
    title: ClassVar[str] = "tossing coins"
    settings_model: ClassVar[type[Settings]] = Settings
    unit: str = "household"
    settings_from: str | None = None
    forgets: bool = False

    @property
    def in_words(self) -> str:
        return "Tossing coins: tenure replaced by a fair coin with probability 1/2."

    def draft(self, data: Any, *, doubts: bool) -> CoinPlan:
        flavor = Flavor(
            domain=Domain(name="homes", dataset="homes", columns=COLUMNS),
            multiverse=Multiverse(invariants=()),
            input_premetric=InputPremetric(name="d_HamS", unit=self.unit),
            output_premetric=PURE,
        )
        budget = Budget(policy=Derived(formula="two coins", value=ln(3)))
        return CoinPlan(specification=Specification(flavor=flavor, budget=budget, assumptions=("coins are fair",)))

    def make_release(self, opening: Opening, progress: Progress | None) -> Release:
        homes = opening.data.households.select(COLUMNS)
        tossed = pl.when(pl.int_range(pl.len()) % 4 == 0).then(pl.lit("owned")).otherwise("tenure")
        released = homes.with_columns(tossed.alias("tenure")).sort(COLUMNS)
        public = Frames({"data": lambda: [released.head(7), released.tail(-7)]}, convert=lambda frame: frame)
        return Release(public=public, specification=opening.specification)

    def law(self, dataset: Any) -> Law:
        return Law({(): Fraction(1)})

    def audit_universes(self) -> Sequence[Sequence[Hashable]]:
        return ()

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        raise NotImplementedError

    def files(self, released: ReleasedColumns, data: Any = None, plan: Any = None) -> Sequence[PublicFile]:
        if data is None and self.forgets:
            return Mechanism.files(self, released)
        coins = pl.DataFrame({"coins": [0 if data is None else 2 * data.households.height]})
        words = "how many coins were tossed for `data`; column `coins` counts them"
        side = PublicFile(name="coins", kind="side", columns=("coins",), words=words, make=lambda: [coins])
        return [*Mechanism.files(self, released), side]

    def sections(self, plan: Any) -> Sequence[Section]:
        return [Section(title="Coins", blocks=("They are fair.", Grid(header=("coin",), rows=(("heads",),))))]


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., Prepared]:
    def make(**settings: Any) -> Prepared:
        found = planned(world(tmp_path), swap_plan())
        coins = Coins(**settings)
        return replace(found, mechanism=coins, plan=coins.plan(found.data), doubts=(), accepted=())

    return make


def test_its_files_are_written_and_listed_as_it_says(prepared: Callable[..., Prepared]) -> None:
    out = run(prepared(), entropy=Entropy.from_os())
    assert {path.name for path in (out / "public").iterdir()} == {
        *("data.parquet", "coins.parquet", "tables", "specification.json", "specification.md", "README.md"),
        "report.html",
    }
    assert pl.read_parquet(out / "public" / "coins.parquet")["coins"].to_list() == [120]
    assert manifest(out)["public_files"] == [
        {"name": "data", "kind": "records", "columns": [*COLUMNS]},
        {"name": "coins", "kind": "side", "columns": ["coins"]},
        {"name": "tables/county-x-tenure", "kind": "table", "columns": ["county", "tenure", "count"]},
    ]
    assert manifest(out)["released"] == {"households": [*COLUMNS], "persons": [], "link": None}


def test_its_tables_are_counted_from_its_records_and_counted_again(prepared: Callable[..., Prepared]) -> None:
    out = run(prepared(), entropy=Entropy.from_os())
    (check,) = manifest(out)["checks"]
    assert check["what"] == "table county x tenure, counted from the written file"
    table = pl.read_csv(out / "public" / "tables" / "county-x-tenure.csv")
    released = pl.read_parquet(out / "public" / "data.parquet")
    assert dict(table.rows_by_key("tenure", named=False)).keys() == {"owned", "rented"}
    assert table["count"].sum() == released.height == 60


def test_pages_say_what_it_says(prepared: Callable[..., Prepared]) -> None:
    out = run(prepared(), entropy=Entropy.from_os())
    readme = (out / "public" / "README.md").read_text(encoding="utf-8")
    assert "- What is disturbed: tenure of a quarter of the records." in readme
    assert "- `data.parquet`: the records\n" in readme
    assert "- `coins.parquet`: how many coins were tossed for `data.parquet`; column `coins` counts them" in readme
    assert "`tables/county-x-tenure.csv`: county x tenure, counted from the released records" in readme
    for edition in ("public", "internal"):
        report = (out / edition / "report.html").read_text(encoding="utf-8")
        assert "60 household records, tossing coins." in report
        assert "<h2>Coins</h2><p>They are fair.</p>" in report
    inside = json.loads((out / "internal" / "measures.json").read_text(encoding="utf-8"))
    assert [*inside] == ["county x tenure"]


@pytest.mark.parametrize("name", ["data", "coins"])
def test_a_file_that_is_not_what_was_released_destroys_the_bundle(
    name: str, prepared: Callable[..., Prepared], tmp_path: Path, monkeypatch: Patch
) -> None:
    right, ready = write_parts, prepared()

    def twice(frame: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([frame, frame.head(1)])

    def write(parts: Iterable[pl.DataFrame], path: Path, **more: Any) -> None:
        right([twice(pl.concat(parts))] if path.stem == name else parts, path, **more)

    monkeypatch.setattr(writing, "write_parts", write)
    before = listing(tmp_path)
    with pytest.raises(VerificationError):
        run(ready, entropy=Entropy.from_os())
    assert listing(tmp_path) == before


def test_a_file_that_publishing_would_refuse_is_told_before_the_draw(prepared: Callable[..., Prepared]) -> None:
    with pytest.raises(PlanError, match=r"public/coins: such a file is not allowed, and `publish` would refuse it"):
        run(prepared(forgets=True), entropy=Entropy.from_os())
