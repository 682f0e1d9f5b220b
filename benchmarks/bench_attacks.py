"""The attack of Abowd et al. (2025) on a synthetic county, for several protections, beside their published figures.

    python benchmarks/bench_attacks.py [--households 16_000] [--seed 1]

Each release is drawn once with a seed, its summary-file tables are counted block by block, persons are reconstructed
from these tables alone, and matched to an attacker who knows block, sex and age of everybody. "Vulnerable" are persons
whose race and origin are not the most frequent of their block and who are alone in it with sex and age, in blocks with
one solution. The TopDown arm has rho and shares of the 2020 Demographic and Housing Characteristics File,
as far as the areas and columns here go: the shares of levels that a synthetic census does not have go to the next one
below, and those of queries about relationship and group quarters to the others in proportion.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl
from sections import machine

from stirred.data.synth.census import census
from stirred.mechanisms.registry import adviser
from stirred.release.plan_file import plan_from
from stirred.release.prepared import Prepared, prepare
from stirred.release.rehearsal import draw_without_release
from stirred.risk.attackers import AttackerColumns
from stirred.risk.attacks import DrawRisk, attack_draw
from stirred.risk.reidentification import ONE_SOLUTION
from stirred.risk.subject import Subject
from stirred.risk.table_lists import AGES

LEVELS = ["state", "county", "tract", "block_group", "block"]
SWAP = {"name": "permutation-swap", "match": ["county", "size"], "swap": LEVELS[2:], "settings_from": "policy"}
# Of production, in parts of 49,622 (rho 4.9622): the nation to the state; Prim and both tract subsets to the tract.
SHARES = {"all": 949, "state": 12987, "county": 4960, "tract": 6214 + 6214 + 13888, "block_group": 4300, "block": 110}
QUERIES = {"sex * age": 3, "sex * hispanic": 1, "hispanic * race": 1, "detailed": 3}
PUBLISHED = {"none": "100", "5%": "97.4", "50%": "77.9", "TopDown": "21.8"}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--households", type=lambda text: int(text.replace("_", "")), default=16_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    homes, persons = census(options.households, seed=options.seed)
    first = np.array(AGES)[np.searchsorted(AGES, persons["age"].to_numpy(), side="right") - 1]
    persons = persons.with_columns(pl.Series("age", first).cast(persons["age"].dtype))
    print(f"{persons.height:,} persons in {homes['block'].n_unique():,} blocks, seed {options.seed}. {machine()}.\n")
    print("| release | loss | agreement | by chance | vulnerable: matched | right | modal | proportional | published |")
    print("|---|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as place:
        folder = Path(place)
        homes.select("hid", *LEVELS, "size", "tenure", "household_type").write_parquet(folder / "households.parquet")
        persons.select("hid", "pid", "sex", "age", "race", "hispanic").write_parquet(folder / "persons.parquet")
        homes.select(LEVELS).unique().sort("block").write_csv(folder / "areas.csv")
        for name, section, said in arms(folder):
            measured(folder, name, section, said)


def arms(folder: Path) -> list[tuple[str, Mapping[str, Any], str]]:
    """Return each release: its name, the section of its plan, and the published precision on the vulnerable."""
    found: list[tuple[str, Mapping[str, Any], str]] = [("without protection", {}, PUBLISHED["none"])]
    for rate in ("5%", "50%"):
        swap = {**SWAP, "rate": rate}
        each = prepared(folder, swap)
        family = dict(adviser().relatives(each.data, each.mechanism, equal="changed"))
        own = family["conditioned, uniform"]
        found.append((f"permutation swap, {rate}", swap, PUBLISHED[rate]))
        found.append((f"conditioned swap, as many changed ({own.setting_in_words(each.plan.epsilon)})",
                      {**SWAP, "name": "conditioned-swap", "rate": str(own.rate)}, ""))  # type: ignore[attr-defined]  # fmt: skip
    return [*found, ("TopDown, rho of 2020", topdown(), PUBLISHED["TopDown"])]


def topdown() -> dict[str, Any]:
    """Return the section of the TopDown plan."""
    whole, asked = sum(SHARES.values()), sum(QUERIES.values())
    return {
        "name": "topdown",
        "levels": LEVELS,
        "areas": "areas.csv",
        "attributes": ["sex", "age", "hispanic", "race"],
        "values": {
            "sex": ["1", "2"],
            "age": [str(age) for age in AGES],
            "hispanic": ["0", "1"],
            "race": [str(race) for race in range(1, 64)],
        },
        "budget": {
            "title": "2020 DHC, persons, on these levels and columns",
            "rho": f"{whole}/10000",
            "levels": {level: f"{share}/{whole}" for level, share in SHARES.items()},
            "queries": {query: dict.fromkeys(SHARES, f"{share}/{asked}") for query, share in QUERIES.items()},
        },
        "totals": ["state"],
        "publish": ["measurements", "records"],
    }


def prepared(folder: Path, section: Mapping[str, Any]) -> Prepared:
    """Return the plan of a section on the files in a folder."""
    data = {"households": "households.parquet", "persons": "persons.parquet", "hid": "hid", "id": ["pid"]}
    plan = {"data": data, "mechanism": dict(section), "release": {"out": "unused"}}
    return prepare(plan_from(plan, source="benchmark", folder=folder))


def measured(folder: Path, name: str, section: Mapping[str, Any], said: str) -> None:
    """Draw, attack and print a line."""
    plan = prepared(folder, section or {**SWAP, "rate": "1/2"})
    truth = Subject(name="truth", data=plan.data, specification=plan.plan.specification)
    with TemporaryDirectory() as place:
        asked = AttackerColumns(within=("tract",))
        if section:
            draw = draw_without_release(plan, Path(place) / "draw", seed="attacks")
            found = attack_draw(draw, truth, asked, folder=Path(place) / "attack")
        else:
            found = unprotected(truth, asked, Path(place) / "attack")
    assert found.reconstruction is not None, found.why_not
    assert found.reidentified is not None, found.why_not
    own = found.reidentified[ONE_SOLUTION].facts
    loss = plan.plan.specification.budget_text if section else ""
    shares = (own["precision"], own["modal_guess"], own["proportional_guess"])
    right, modal, proportional = (f"{100 * share:.1f}" if share is not None else "" for share in shares)
    agreement, chance = (100 * found.reconstruction[key] for key in ("agreement", "agreement_by_chance"))
    matched = f"{own['putative']:,.0f} of {own['records']:,}"
    cells = (name, loss, f"{agreement:.1f}", f"{chance:.1f}", matched, right, modal, proportional, said)
    print(f"| {' | '.join(cells)} |", flush=True)


def unprotected(truth: Subject, asked: AttackerColumns, folder: Path) -> DrawRisk:
    """Attack the tables of the confidential records themselves."""
    from stirred.risk.areas import AREAS, RECORDS
    from stirred.risk.attacks import attacked, people_of
    from stirred.risk.reidentification import reidentify

    found = attacked(truth, asked.area, folder, truth=truth)
    ones = pl.read_parquet(folder / AREAS).filter(pl.col("outcome") == "one").select(asked.area)
    pool = pl.read_parquet(folder / RECORDS)
    matched = reidentify(people_of(truth, asked.area), pool, asked=asked, count="persons", one_solution=ones)
    return DrawRisk(reconstruction=found.facts, reidentified=matched)


if __name__ == "__main__":
    main()
