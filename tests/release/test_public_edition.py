"""The public edition says nothing of the truth but what its specification fixes: to the last byte.

A truth is changed inside its universe, so that everything the specification states as invariant stays as it is. The
released file and all randomness are kept: the mechanism draws from the first truth with the same seed, and everything
around it (plan, pages, tables, checks, report) sees the second. Then the two public folders must have the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from stirred import Entropy
from stirred.mechanisms.contract.plan import PlanOrigin
from stirred.mechanisms.protocol import Release
from stirred.mechanisms.records.engine import Swap
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.engine import TableMechanism
from stirred.mechanisms.tables.query import Query, TableAnswers
from stirred.mechanisms.tables.tabulator import Tabulator
from stirred.release import reports
from stirred.release.plan_file import read_plan
from stirred.release.prepared import Prepared, prepare
from stirred.release.run import run
from tests.mechanisms.tables.test_table_bundles import GROUPS, PLANS, toy_toml
from tests.mechanisms.tables.toy import BLOCKS, ITERATIONS, PERSONS, RESIDENTS, UNITS
from tests.mechanisms.topdown.people import CODES, people, wards
from tests.release import test_record_swaps
from tests.survey.estimates.asked import estimate
from tests.world import CODEBOOK_OF_HOMES, households, persons, stirred

Frames = Mapping[str, pl.DataFrame]
Change = Callable[[Frames, np.random.Generator], Frames]
HOMES = '[data]\nhouseholds = "homes.parquet"\nid = ["hid"]\n'
WITH_PERSONS = '[data]\nhouseholds = "homes.parquet"\npersons = "people.parquet"\nhid = "hid"\nid = ["pid"]\n'
DECLARED = '[data]\nhouseholds = "homes.parquet"\ncodebook = "codebook.toml"\n'
CROSSED = '[[tables]]\nvariables = ["county", "tenure"]\n'


@dataclass(frozen=True, kw_only=True)
class Case:
    """A plan, the first truth, and how a truth is changed without leaving its universe."""

    plan: str
    truth: Callable[[], Frames]
    change: Change
    accept: str = ""
    beside: Mapping[str, str | bytes] = field(default_factory=dict)
    own_pairs: bool = False  # whether what is kept inside can be that of the other truth and of other randomness


# ---- changes ----------------------------------------------------------------------------------------------


def exchanged(*columns: str, within: tuple[str, ...] = ()) -> Change:
    """Permute columns, together, among the homes that agree on others: the universe of a swap."""

    def change(truth: Frames, rng: np.random.Generator) -> Frames:
        homes = truth["homes.parquet"]
        drawn = homes.with_columns(pl.Series("__u", rng.random(homes.height)), pl.int_range(pl.len()).alias("__row"))
        place = {name: pl.col(name).sort_by("__u") for name in columns}
        moved = drawn.with_columns(**({k: e.over(within) for k, e in place.items()} if within else place))
        return {**truth, "homes.parquet": moved.sort("__row").drop("__u", "__row")}

    return change


def redrawn(name: str, **columns: list[Any]) -> Change:
    """Draw columns anew from their codes: all files of this many records."""

    def change(truth: Frames, rng: np.random.Generator) -> Frames:
        frame = truth[name]
        own = [pl.Series(column, rng.choice(codes, frame.height)) for column, codes in columns.items()]
        return {**truth, name: frame.with_columns(own)}

    return change


def fewer(name: str) -> Change:
    """Leave a third of the records out: all files, where neighbours come or go."""

    def change(truth: Frames, rng: np.random.Generator) -> Frames:
        frame = truth[name]
        return {**truth, name: frame[np.sort(rng.choice(frame.height, frame.height * 2 // 3, replace=False))]}

    return change


def homes_alone() -> Frames:
    return {"homes.parquet": households(240)}


def homes_and_people() -> Frames:
    """Homes with their people; every fifth stands empty."""
    homes = households(240)
    return {"homes.parquet": homes, "people.parquet": persons(homes).filter(pl.col("hid") % 5 != 0)}


def homes_with_notes() -> Frames:
    """Homes with columns that are not released, and may be anything."""
    notes = [pl.Series("note", [f"note {row}" for row in range(240)]), pl.Series("worth", range(240))]
    return {"homes.parquet": households(240).with_columns(notes)}


def regions() -> Frames:
    region = pl.col("county").replace_strict({"East": "E", "North": "N", "South": "E", "West": "N"})
    homes = households(240).with_columns(region=region, minors=pl.lit(0), race=pl.lit("w"))
    return {"homes.parquet": homes, "people.parquet": persons(homes)}


def at_risk() -> Frames:
    """Homes that are alike in all that is released, but for their county; who is in danger is not released."""
    homes = households(240).with_columns(pl.lit("owned").alias("tenure"), (pl.col("hid") // 7 % 3).alias("danger"))
    return {"homes.parquet": homes}


def ptable(tmp: Path) -> bytes:
    assert stirred("ptable", "design", "--D", "2", "--V", "9/10", "--out", "ptable.csv", cwd=tmp).returncode == 0
    return (tmp / "ptable.csv").read_bytes()


def swap(name: str, **settings: str) -> str:
    own = {"match": '["size"]', "swap": '["county"]', "rate": '"1/5"', **settings}
    return f'[mechanism]\nname = "{name}"\n' + "".join(f"{key} = {value}\n" for key, value in own.items() if value)


COUNTIES, TENURES = ["East", "North", "South", "West"], ["owned", "rented"]
COUNTY_IN_SIZE = exchanged("county", within=("size",))
TOPDOWN = """[data]
file = "people.csv"
record = "person"
[mechanism]
name = "topdown"
levels = ["region", "district", "ward"]
areas = "wards.csv"
attributes = ["sex", "age", "work"]
values = { sex = ["m", "f"], age = ["0-17", "18-64", "65+"], work = ["yes", "no"] }
rho = "1/2"
totals = ["region"]
"""
AT_RISK = """[mechanism]
name = "targeted-record-swap"
hierarchy = ["county"]
similar = ["size"]
swaprate = "1/5"
risk = ["danger"]
risk_threshold = 2
"""
TARGETED, PAIRWISE = (f"[mechanism]{each}" for each in (test_record_swaps.AT_RISK, test_record_swaps.PAIRWISE))
NOISY = '[mechanism]\nname = "noisy-tables"\nrho = 1\n'
KEYED = '[mechanism]\nname = "cell-key"\nptable = "ptable.csv"\n'


SURVEY = f"""[data]
sample = "sample.csv"
record = "person"
[design]
strata = "region"
weights = "w"
{{design}}
[mechanism]
name = "survey-estimates"
epsilon = 4
weight_bounds = [2, 10]
values = {{{{ sex = ["f", "m"], work = ["yes", "no", "other"] }}}}
{{more}}
{estimate("total", "income", by="work")}
{estimate("table", by=["sex", "work"])}
{{mean}}
"""
MEANS = estimate("mean", "income") + estimate("mean", "income", by="work")
VOUCHED = 'attest = ["design-weights"]'
SAMPLED = """setting = 11
variance = "public-bound"
quality = "acs"
attest = ["design-weights", "random-sample", "secret-sample"]
sample = "one"
sampling = { design = "stratified", n = "120,120", N = "480,960" }"""
# TableAnswers may be anything, beyond their bounds too.
ANSWERS = {"sex": ["f", "m"], "work": ["yes", "no"], "income": [*range(140)]}
WEIGHTS = [2, 3.5, 7.25, 12]
CLAMPED = '"clamped:w", "clamped:income"'


def a_sample() -> Frames:
    rng = np.random.default_rng(7)
    own = {name: rng.choice(codes, 240) for name, codes in {**ANSWERS, "w": WEIGHTS}.items()}
    return {"sample.csv": pl.DataFrame({"region": ["N"] * 120 + ["S"] * 120, "block": [*range(40)] * 6, **own})}


def a_stratified_sample() -> Frames:
    """The draw that ``SAMPLED`` states: its weights are those of the strata."""
    return {"sample.csv": a_sample()["sample.csv"].with_columns(w=pl.Series([4] * 120 + [8] * 120))}


def moved_inside(truth: Frames, rng: np.random.Generator) -> Frames:
    """Move people to other wards of their region, with other attributes: totals of regions stay."""
    frame = truth["people.csv"]
    places = wards().sort("region", maintain_order=True)
    rows = {region: np.flatnonzero((places["region"] == region).to_numpy()) for region in "NESW"}
    drawn = places[np.array([rng.choice(rows[region]) for region in frame["region"]])]
    own = [pl.Series(column, rng.choice(codes, frame.height)) for column, codes in CODES.items()]
    return {**truth, "people.csv": drawn.with_columns(own)}


CASES = {
    "permutation": Case(
        plan=WITH_PERSONS + swap("permutation-swap") + CROSSED, truth=homes_and_people, change=COUNTY_IN_SIZE
    ),
    "conditioned": Case(
        plan=HOMES + swap("conditioned-swap", hold='["tenure"]') + CROSSED, truth=homes_with_notes,
        change=lambda truth, rng: redrawn("homes.parquet", hid=[*range(10**6)], note=["seen", "lost"], worth=[0, 1, 2])(
            COUNTY_IN_SIZE(truth, rng), rng),
    ),
    "shuffle": Case(plan=HOMES + swap("shuffle-swap") + CROSSED, truth=homes_alone, change=COUNTY_IN_SIZE),
    "noisy swap": Case(
        plan=DECLARED + swap("noisy-swap", noise_epsilon="1") + CROSSED, truth=homes_alone,
        change=redrawn("homes.parquet", tenure=TENURES, county=COUNTIES),
        beside={"codebook.toml": CODEBOOK_OF_HOMES},
    ),
    "targeted": Case(
        plan=WITH_PERSONS + TARGETED + CROSSED, truth=regions, change=exchanged("region", "county", within=("size",)),
        accept='"nothing-promised"', own_pairs=True,
    ),
    "targeted, risks given": Case(
        plan=HOMES + AT_RISK + '[[tables]]\nvariables = ["county", "size"]\n', truth=at_risk,
        change=redrawn("homes.parquet", danger=[1]), accept='"nothing-promised"', own_pairs=True,
    ),
    "pairwise": Case(
        plan=WITH_PERSONS + PAIRWISE + CROSSED, truth=regions,
        change=exchanged("county", within=("region", "size", "minors", "tenure")), accept='"nothing-promised"',
        own_pairs=True,
    ),
    "noisy tables": Case(
        plan=DECLARED + NOISY + CROSSED, truth=homes_alone,
        change=redrawn("homes.parquet", tenure=TENURES, county=COUNTIES), beside={"codebook.toml": CODEBOOK_OF_HOMES},
    ),
    "noisy tables, a margin kept": Case(
        plan=DECLARED + NOISY + 'keep = ["county"]\nconsistent = true\n' + CROSSED, truth=homes_alone,
        change=redrawn("homes.parquet", tenure=TENURES), beside={"codebook.toml": CODEBOOK_OF_HOMES},
    ),
    "cell keys": Case(
        plan=DECLARED + KEYED + CROSSED, truth=homes_alone, change=fewer("homes.parquet"), accept='"large-delta"',
        beside={"codebook.toml": CODEBOOK_OF_HOMES},
    ),
    "topdown": Case(
        plan=TOPDOWN, truth=lambda: {"people.csv": people(900)},
        change=moved_inside, beside={"wards.csv": wards().write_csv()},
    ),
    "safetab": Case(
        plan=PLANS["p"] + GROUPS, truth=lambda: {"persons.csv": PERSONS.drop("hid")},
        change=redrawn("persons.csv", block=["b1", "b2"], sex=["1", "2"]),
        beside={"budget.toml": toy_toml(), "blocks.csv": BLOCKS.write_csv(), "iterations.csv": ITERATIONS.write_csv()},
    ),
    "phsafe": Case(
        plan=PLANS["s"], truth=lambda: {"units.csv": UNITS, "residents.csv": RESIDENTS},
        change=redrawn("residents.csv", cenrace=["1", "2"]),
    ),
    # Another sample of the same frame has other weights; the strata have as many clusters.
    "survey estimates": Case(
        plan=SURVEY.format(design="", more=VOUCHED, mean=MEANS), truth=a_sample,
        change=redrawn("sample.csv", **ANSWERS, w=WEIGHTS), accept=CLAMPED,
    ),
    # Without a sampling variance nothing of the design is held fixed but its weights: clusters and strata may differ.
    "survey estimates of clusters": Case(
        plan=SURVEY.format(design='ids = "block"\nnest = true', mean=MEANS,
                           more=VOUCHED + '\nsetting = "responding/frame"\nvariance = "none"'), truth=a_sample,
        change=redrawn("sample.csv", **ANSWERS, w=WEIGHTS, region=["N", "S", "W"], block=[*range(70)]),
        accept=CLAMPED,
    ),
    "survey estimates, weights that vary": Case(
        plan=SURVEY.format(design="", more='setting = "sample"\nvariance = "public-bound"\nquality = "abs"', mean=""),
        truth=a_sample, change=redrawn("sample.csv", **ANSWERS, w=WEIGHTS), accept=CLAMPED,
    ),
    "survey estimates, amplified": Case(
        plan=SURVEY.format(design="", more=SAMPLED, mean=MEANS), truth=a_stratified_sample,
        change=redrawn("sample.csv", **ANSWERS), accept='"clamped:income"',
    ),
    "two stages": Case(
        plan=HOMES + swap("two-stage-swap", fine_match='["tenure"]', fine_rate='"1/2"') + CROSSED, truth=homes_alone,
        change=exchanged("county", within=("size", "tenure")),
    ),
    "mallows": Case(
        plan=HOMES + swap("mallows-swap", rate="", epsilon="2") + CROSSED, truth=homes_alone, change=COUNTY_IN_SIZE
    ),
    "response": Case(
        plan=HOMES + swap("response-swap", respond='"tenure"', change='"1/10"', values='["owned", "rented"]')
        + CROSSED, truth=homes_alone,
        change=redrawn("homes.parquet", tenure=TENURES),
    ),
    "cell keys after a swap": Case(
        plan=DECLARED + KEYED + 'after = { name = "permutation-swap", match = ["size"], swap = ["county"], '
        'rate = "1/5" }\n' + CROSSED, truth=homes_alone, change=COUNTY_IN_SIZE,
        beside={"codebook.toml": CODEBOOK_OF_HOMES},
    ),
    "rates by what is held": Case(
        plan=HOMES + swap("permutation-swap", rates='[{ tenure = "owned", county = "East", rate = "1/3" }]') + CROSSED,
        truth=homes_alone, change=COUNTY_IN_SIZE,
    ),
}  # fmt: skip


# ---- the comparison ---------------------------------------------------------------------------------------


def laid_out(case: Case, truth: Frames, folder: Path) -> Prepared:
    """Write the files of a truth and its plan, and read them as a release does."""
    folder.mkdir()
    for name, frame in truth.items():
        frame.write_parquet(folder / name) if name.endswith(".parquet") else frame.write_csv(folder / name)
    for name, content in case.beside.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    if "ptable.csv" in case.plan:
        ptable(folder)
    plan = f'{case.plan}[release]\nout = "out"\naccept = [{case.accept}]\n'
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    return prepare(read_plan(folder / "plan.toml"))


def public(bundle: Path) -> dict[str, bytes]:
    """Return the bytes of every public file."""
    root = bundle / "public"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


class SameAnswers(TableAnswers):
    """The answers that were given, to true numbers that may be others: the noise is what remains."""

    def __init__(self, kept: Frames) -> None:
        self._kept = kept
        self.kept: dict[str, dict[str, Any]] = {}

    def __call__(self, query: Query, true: Any, *, chunk: int | None = None, inside: Any = None) -> Any:
        before, noise = (self._kept[query.title][name].to_numpy() for name in query.columns)
        own = zip(query.columns, (true, before + noise - true), strict=True)
        self.kept.setdefault(query.title, {}).update(own)
        return before + noise


def as_if(release: Release, seen: Prepared) -> Release:
    """Return a release with what would have made it from another truth, where a mechanism keeps its noise inside.

    The file of that truth is taken as it is, nothing exchanged, and the noise is what remains.
    """
    mechanism = seen.mechanism
    if not isinstance(mechanism, TableMechanism) or isinstance(mechanism, (CellKey, Tabulator)):
        return release
    counted, ask = seen.data, SameAnswers(release.internal["drawn"])
    mechanism.answered(counted, seen.plan, ask, lambda stage, done, total: None)
    drawn = {
        title: release.internal["drawn"][title].with_columns(pl.Series(name, each) for name, each in numbers.items())
        for title, numbers in ask.kept.items()
    }
    return replace(release, internal={**release.internal, "counted": counted, "drawn": drawn})


def editions(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch, *, changes: int = 1) -> list[dict[str, bytes]]:
    """Return the public folder of the first truth, and those of others that release the same file."""
    first = laid_out(case, case.truth(), folder / "0")
    drawn = type(first.mechanism).release
    found = [public(run(first, entropy=Entropy.from_seed("one")))]
    for number in range(1, changes + 1):
        truth = case.change(case.truth(), np.random.default_rng(number))
        assert any(not truth[name].equals(frame) for name, frame in case.truth().items()), "nothing was changed"
        other = laid_out(case, truth, folder / str(number))

        def released(mechanism: Any, data: Any, entropy: Entropy, *, seen: Prepared = other, **how: Any) -> Release:
            # The first truth's draw, under the other's settings: they name files in another folder.
            plan: Any = first.plan
            if isinstance(plan.origin, PlanOrigin):
                plan = replace(plan, origin=replace(plan.origin, mechanism=mechanism))
            found = as_if(drawn(mechanism, first.data, entropy, **{**how, "plan": plan}), seen)
            if case.own_pairs:
                other = drawn(mechanism, data, Entropy.from_seed("two"), **how)
                return replace(found, internal={**other.internal, "file": found.internal["file"]})
            return found

        with monkeypatch.context() as patched:
            patched.setattr(type(first.mechanism), "release", released)
            found.append(public(run(other, entropy=Entropy.from_seed("one"))))
    return found


def differing(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


SLOW = (
    "mallows",
    "two stages",
    "shuffle",
    "phsafe",
    "rates by what is held",
    "cell keys after a swap",
    "survey estimates, weights that vary",
    "survey estimates, amplified",
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in CASES])
def test_the_public_edition_is_the_same_for_every_truth_of_its_universe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = editions(CASES[name], tmp_path, monkeypatch)
    for other in others:
        assert differing(first, other) == []
    assert ADVICE.findall(first["report.html"].decode()) == []


ADVICE = re.compile(r"\[\[\w+\]\]|variance_share|\b(?:add|write|declare) \w+ = |plan\.toml", flags=re.IGNORECASE)


def test_a_number_from_the_truth_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One count that no invariant fixes, planted in each place where words meet the public folder."""

    def owned_in_the_east(data: Any) -> str:
        return str(data.households.filter(county="East", tenure="owned").height)

    planted: dict[str, tuple[Any, str, Callable[..., Any]]] = {
        "report.html": (reports, "title_of", lambda prepared: owned_in_the_east(prepared.data)),
        "README.md": (Swap, "conclusions", lambda own, plan: [owned_in_the_east(plan.origin.data)]),
    }
    for number, (file, (place, name, leak)) in enumerate(planted.items()):
        with monkeypatch.context() as patched:
            patched.setattr(place, name, leak)
            (tmp_path / str(number)).mkdir()
            one, other = editions(CASES["permutation"], tmp_path / str(number), patched)
        assert file in differing(one, other)
