"""What a bundle holds, what is marked on it, and that it is checked before it appears."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from stirred import Entropy
from stirred.cli.main import run as command
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import VerificationError
from stirred.release import files, reports
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.run import run
from stirred.spec.document import from_json
from stirred.spec.doubts import DoubtError
from stirred.spec.problems import StirredError
from tests.world import (
    assert_complete,
    files_in,
    households,
    listing,
    manifest,
    margin,
    persons,
    read,
    released,
    swap_plan,
    undoubted,
)

SEED = "a seed that must not be written anywhere"


def content(*, persons_too: bool = True, format_: str = "parquet", **mechanism: Any) -> dict[str, Any]:
    release = {"out": "bundle", "format": format_, "purpose": "a test"}
    plan = swap_plan(people=persons_too, data={"hid": "hid"}, release=release, **mechanism)
    plan["data"] |= {} if persons_too else {"id": []}
    plan["tables"] += [{"name": "Ages", "variables": ["county", "age"]}] if persons_too else []
    return plan


def write_files(folder: Path) -> pl.DataFrame:
    homes = households()
    homes.write_parquet(folder / "homes.parquet")
    persons(homes).write_parquet(folder / "people.parquet")
    return homes


def release(folder: Path, entropy: Entropy | None = None, plan: dict[str, Any] | None = None) -> Path:
    return released(folder, plan or content(), entropy)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file and two bundles of it, one of them seeded."""
    folder = tmp_path_factory.mktemp("bundles")
    write_files(folder)
    release(folder)
    (folder / "bundle").rename(folder / "real")
    release(folder, Entropy.from_seed(SEED))
    (folder / "bundle").rename(folder / "seeded")
    return folder


CONTENTS = {
    "manifest.json",
    "public/data.parquet",
    "public/persons.parquet",
    "public/tables/county-x-tenure.csv",
    "public/tables/ages.csv",
    "public/invariants.parquet",
    "public/strata.parquet",
    "public/specification.json",
    "public/specification.md",
    "public/README.md",
    "public/report.html",
    "internal/report.html",
    "internal/accuracy.parquet",
    "internal/log.jsonl",
    "internal/measures.json",
    "internal/expected/ages.parquet",
    "internal/expected/county-x-tenure.parquet",
}


def test_a_bundle_holds_exactly_what_the_contract_says(folder: Path) -> None:
    assert files_in(folder / "real") == CONTENTS
    assert files_in(folder / "seeded") - CONTENTS == {"SEEDED-TEST-RUN.txt", "public/SEEDED-TEST-RUN.txt"}


def test_the_manifest_has_the_right_checksums_of_everything_and_of_the_input(folder: Path) -> None:
    assert_complete(folder / "real", households())
    from tests.world import sha256

    inputs = manifest(folder / "real")["inputs"]
    assert inputs == {"households": sha256(folder / "homes.parquet"), "persons": sha256(folder / "people.parquet")}


def test_the_manifest_says_what_was_done_with_what(folder: Path) -> None:
    facts = manifest(folder / "real")
    assert {"schema_version", "stirred", "python", "created", "purpose", "plan", "checks", "files", "seeded"} <= set(
        facts
    )
    assert facts["records"] == 60
    assert facts["purpose"] == "a test"
    assert facts["plan"]["mechanism"]["match"] == ["size"]
    assert facts["plan"]["mechanism"]["rate"] == "1/2"
    said = " ".join(check["what"] for check in facts["checks"])
    for words in ("match x swap", "hold variables", "persons", "county x tenure"):
        assert words in said


def marked(bundle: Path) -> dict[str, bool]:
    """Every place that must say of a seeded run that it is one."""
    public = bundle / "public"
    notes = [pl.read_parquet_metadata(path) for path in sorted(public.glob("*.parquet"))]
    text = {
        name: (bundle / name).read_text(encoding="utf-8") for name in ("public/report.html", "internal/report.html")
    }
    return {
        "manifest": manifest(bundle)["seeded"],
        "specification.json": json.loads((public / "specification.json").read_text())["seeded"],
        "specification.md": "Test run with a seed" in (public / "specification.md").read_text(),
        **{name: "Test run with a seed" in page for name, page in text.items()},
        **{f"parquet {number}": "stirred.seeded" in note for number, note in enumerate(notes)},
        "marker": (bundle / "SEEDED-TEST-RUN.txt").exists(),
        "marker in public": (public / "SEEDED-TEST-RUN.txt").exists(),
    }


def test_a_seeded_run_is_marked_in_every_artefact(folder: Path) -> None:
    assert len(marked(folder / "seeded")) == 11
    assert all(marked(folder / "seeded").values())


def test_a_real_run_is_marked_in_none(folder: Path) -> None:
    assert not any(marked(folder / "real").values())


def test_the_seed_is_nowhere(folder: Path) -> None:
    for path in (folder / "seeded").rglob("*"):
        if path.is_file():
            assert SEED.encode() not in path.read_bytes(), path.name


def test_the_specification_is_that_of_the_plan(folder: Path) -> None:
    plan = prepare(plan_from(content(), source="plan", folder=folder)).plan
    written = from_json((folder / "real" / "public" / "specification.json").read_text(encoding="utf-8"))
    assert written == plan.specification


def test_internal_is_for_its_owner_alone(folder: Path) -> None:
    for name in ("internal", "."):
        mode = stat.S_IMODE((folder / "real" / name).stat().st_mode)
        assert mode == 0o700, f"{name} has mode {mode:o}"


@pytest.mark.parametrize("word", ["mean absolute", "percentage error", "before and after", ">true<", ">error<"])
def test_the_public_report_holds_no_accuracy(word: str, folder: Path) -> None:
    public = (folder / "real" / "public" / "report.html").read_text(encoding="utf-8")
    assert word not in public.lower()
    internal = (folder / "real" / "internal" / "report.html").read_text(encoding="utf-8")
    assert word in internal.lower()


def test_nothing_in_public_holds_a_true_count_that_is_not_invariant(folder: Path) -> None:
    """The truth about county by tenure differs from the release, and is in internal only."""
    truth = margin(households(), ["county", "tenure"])
    accuracy = pl.read_parquet(folder / "real" / "internal" / "accuracy.parquet")
    cells = accuracy.filter(pl.col("table") == "county x tenure")
    assert {tuple(cell.split(" | ")): count for cell, count in cells.select("cell", "true").rows()} == dict(truth)
    table = read(folder / "real" / "public" / "tables" / "county-x-tenure.csv")
    released = margin(read(folder / "real" / "public" / "data.parquet"), ["county", "tenure"])
    assert {(c, t): int(n) for c, t, n in table.rows()} == dict(released)
    assert cells.select(pl.col("released") - pl.col("true")).to_series().to_list() == cells["error"].to_list()


def test_tables_of_persons_count_persons_with_their_households_released_places(folder: Path) -> None:
    table = read(folder / "real" / "public" / "tables" / "ages.csv")
    people = margin(read(folder / "real" / "public" / "persons.parquet"), ["county", "age"])
    assert {(c, a): int(n) for c, a, n in table.rows() if n != "0"} == dict(people)


def test_released_ids_are_1_to_n_in_order(folder: Path) -> None:
    data = read(folder / "real" / "public" / "data.parquet")
    assert data["hid"].to_list() == list(range(1, 61))
    assert set(read(folder / "real" / "public" / "persons.parquet")["hid"]) == set(range(1, 61))


def test_the_invariants_file_equals_both_margins_counted_from_the_input(folder: Path) -> None:
    invariants = pl.read_parquet(folder / "real" / "public" / "invariants.parquet")
    homes = households()
    for table, columns in (("match x swap", ["size", "county"]), ("hold", ["size", "tenure"])):
        rows = invariants.filter(pl.col("table") == table).select(*columns, "count").rows()
        assert {tuple(map(str, row[:-1])): row[-1] for row in rows} == dict(margin(homes, columns))


def test_the_log_tells_the_story_and_no_record(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "real" / "internal" / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["started", "drawn", "swapped", "written", "verified", "complete"]


# ---- verification of the written files ------------------------------------------------------------


def altered(column: str, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Change one cell."""
    return lambda frame: frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 7)
        .then(pl.lit(value))
        .otherwise(pl.col(column))
        .cast(frame[column].dtype)
        .alias(column)
    )


def exchanged(column: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Exchange two different values of one column: its own counts stay, those by other columns do not."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        values = frame[column].to_list()
        other = next(row for row in range(1, len(values)) if values[row] != values[0])
        values[0], values[other] = values[other], values[0]
        return frame.with_columns(pl.Series(column, values, dtype=frame[column].dtype))

    return change


FAULTS: dict[str, tuple[str, Callable[[pl.DataFrame], pl.DataFrame]]] = {
    "a county": ("data", altered("county", "Atlantis")),
    "another county that exists": ("data", altered("county", "West")),
    "a size": ("data", altered("size", 9)),
    "a tenure": ("data", altered("tenure", "unknown")),
    "two sizes exchanged": ("data", exchanged("size")),
    "a household missing": ("data", lambda frame: frame.head(-1)),
    "a household twice": ("data", lambda frame: pl.concat([frame, frame.tail(1)])),
    "an age": ("persons", altered("age", 99)),
    "a person in another household": ("persons", altered("hid", 60)),
    "a person in another county than the household": ("persons", exchanged("county")),
    "a person missing": ("persons", lambda frame: frame.head(-1)),
}


@pytest.fixture
def damage(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the written file differ from what was to be written."""

    def break_(fault: str) -> None:
        name, change = FAULTS[fault]
        from stirred.data import frames

        right = frames.write_frame

        def write(frame: pl.DataFrame, path: Path, **kwargs: Any) -> None:
            right(change(frame) if path.stem == name else frame, path, **kwargs)

        monkeypatch.setattr(frames, "write_frame", write)
        for module in (files, reports):
            monkeypatch.setattr(module, "write_frame", write)

    return break_


@pytest.mark.parametrize("format_", ["parquet", "csv"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_written_file_that_differs_destroys_the_bundle(
    fault: str, format_: str, damage: Callable[[str], None], tmp_path: Path
) -> None:
    write_files(tmp_path)
    before = listing(tmp_path)
    damage(fault)
    with pytest.raises(VerificationError) as caught:
        release(tmp_path, plan=content(format_=format_))
    homes = "the household file, as written, is not what was swapped"
    people = "persons and households, as written, do not belong together as in the input"
    assert [problem.what for problem in caught.value.problems] == [homes if FAULTS[fault][0] == "data" else people]
    assert all(problem.remedy for problem in caught.value.problems)
    assert listing(tmp_path) == before


def test_a_swap_that_changed_a_place_itself_destroys_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the writing is at fault here but the swap: the written file is what was swapped, and still wrong."""
    from stirred.data.codes import Coded

    right = Coded.decoded

    def wrong(self: Coded, codes: Any) -> pl.DataFrame:
        frame = right(self, codes)
        if "county" not in frame.columns:
            return frame
        return frame.with_columns(
            pl.when(pl.col("county") == "East").then(pl.lit("West")).otherwise("county").alias("county")
        )

    write_files(tmp_path)
    before = listing(tmp_path)
    monkeypatch.setattr(Coded, "decoded", wrong)
    with pytest.raises(VerificationError, match="match x swap table of the written file differs from the input"):
        release(tmp_path, plan=content(persons_too=False))
    assert listing(tmp_path) == before


def test_a_swap_that_mixed_up_persons_itself_destroys_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every person is given to the next household: what was written is what was made, and still wrong."""
    from stirred.data import packed
    from stirred.data.household_rows import household_rows as rows
    from stirred.data.household_rows import pieces_of_rows as pieces
    from stirred.mechanisms.records import files

    def next_one(house: npt.NDArray[np.uint32], data: Microdata) -> npt.NDArray[np.uint32]:
        return (house + np.uint32(1)) % np.uint32(data.households.height)

    for module in (packed, files):
        monkeypatch.setattr(module, "household_rows", lambda data: next_one(rows(data), data))
    monkeypatch.setattr(packed, "pieces_of_rows", lambda data: (next_one(p, data) for p in pieces(data)))
    write_files(tmp_path)
    before = listing(tmp_path)
    with pytest.raises(VerificationError, match="persons, as written, are not in the households they came from"):
        release(tmp_path)
    assert listing(tmp_path) == before


def test_the_command_says_that_a_check_failed_with_exit_code_1(
    damage: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit codes: 1 is a check that failed, 2 is bad input or refused."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    damage("a tenure")
    arguments = ["swap", "homes.parquet", "--match", "size", "--swap", "county", "--rate", "1/2", "--id", "hid"]
    assert command([*arguments, "--out", "out", "--quiet"]) == 1
    assert "verification of the written files" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# ---- any column, any type, any settings -----------------------------------------------------------


@pytest.mark.parametrize("format_", ["parquet", "csv"])
@pytest.mark.parametrize("role", ["hold", "swap", "match"])
@pytest.mark.parametrize(
    "kind", ["dates", "moments", "moments in UTC", "times", "booleans", "categories", "decimals", "text"]
)
def test_every_kind_of_column_can_be_released_in_both_formats(
    kind: str, role: str, format_: str, tmp_path: Path
) -> None:
    import datetime

    day = datetime.date(2020, 1, 1)
    moments = pl.Series([datetime.datetime(2020, 1, 1, hour, 30) for hour in (1, 2)])
    kinds: dict[str, pl.Series] = {
        "dates": pl.Series([day, day.replace(year=1900)]),
        "moments": moments,
        "moments in UTC": moments.dt.replace_time_zone("UTC"),
        "times": pl.Series([datetime.time(1, 2), datetime.time(3, 4, 5)]),
        "booleans": pl.Series([True, False]),
        "categories": pl.Series(["z", "a"], dtype=pl.Categorical),
        "decimals": pl.Series(["1.50", "0.10"]).cast(pl.Decimal(10, 2)),
        "text": pl.Series(['a "quoted", comma\nand line', ""]),
    }
    column = pl.concat([kinds[kind]] * 6)
    homes = pl.DataFrame({"a": column, "b": [1, 1, 2, 2] * 3, "c": list("opqrstuvwxyz")})
    roles = {"hold": ("b", "c", "a"), "swap": ("b", "a", "c"), "match": ("a", "b", "c")}
    match, swap, _ = roles[role]
    asked = kind == "text" and role != "hold"
    homes.write_parquet(tmp_path / "homes.parquet")
    plan = {
        "data": {"households": "homes.parquet"},
        "mechanism": {"match": [match], "swap": [swap], "rate": "1/2"},
        # Every record has a text of its own. An empty text may mean a missing value; here it is a code.
        "release": {"out": "bundle", "format": format_, "accept": ["identifier:c", *(["missing:a"] if asked else [])]},
    }
    released = read(release(tmp_path, plan=plan) / "public" / f"data.{format_}")
    assert released.height == 12
    if format_ == "parquet":
        # The codes of categories tell which came first in the file: they are released as text.
        assert released.schema == homes.cast({pl.Categorical: pl.String}).schema


def test_without_match_variables_a_bundle_is_made_too(tmp_path: Path) -> None:
    homes = write_files(tmp_path)
    bundle = release(tmp_path, plan=content(match=[]))
    released = read(bundle / "public" / "data.parquet")
    assert margin(released, ["county"]) == margin(homes, ["county"])
    assert pl.read_parquet(bundle / "public" / "strata.parquet")["stratum_records"].to_list() == [60]


def test_a_bundle_at_rate_1_is_made_once_that_is_accepted_and_says_that_its_loss_is_infinite(tmp_path: Path) -> None:
    write_files(tmp_path)
    plan = content(rate="1")
    plan["release"]["accept"] = ["nothing-promised"]
    bundle = release(tmp_path, plan=plan)
    assert json.loads((bundle / "public" / "specification.json").read_text())["budget"]["realised"] == "inf"
    assert "ε=inf" in (bundle / "public" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("member", ["permutation", "shuffle", "conditioned"])
def test_readers_are_told_how_to_undo_the_bias_where_that_is_known(tmp_path: Path, member: str) -> None:
    write_files(tmp_path)
    bundle = release(tmp_path, plan=content(persons_too=False, name=f"{member}-swap"))
    told = "`stirred unswap TABLE.csv --bundle DIR --out FILE.csv` undoes" in (
        bundle / "public" / "README.md"
    ).read_text(encoding="utf-8")
    shown = "stirred unswap TABLE.csv --bundle DIR" in (bundle / "public" / "report.html").read_text(encoding="utf-8")
    assert told is shown is True
    inside = (bundle / "internal" / "report.html").read_text(encoding="utf-8")
    assert "after stirred unswap" in inside


def test_at_rate_0_readers_are_told_that_nothing_was_swapped(tmp_path: Path) -> None:
    write_files(tmp_path)
    with pytest.raises(DoubtError, match="at a rate of 0 nothing is swapped"):
        release(tmp_path, plan=content(rate="0"))
    prepared = undoubted(prepare(plan_from(content(rate="0"), source="plan", folder=tmp_path)))
    bundle = run(prepared, entropy=Entropy.from_os())
    readme = (bundle / "public" / "README.md").read_text(encoding="utf-8")
    assert "- Nothing was swapped: every count is exact, and the file is published as it is." in readme
    assert "tables/county-x-tenure.csv`: county x tenure, exact" in readme
    for word in ("disturbed", "weakened", "unswap"):
        assert word not in readme
    report = (bundle / "public" / "report.html").read_text(encoding="utf-8")
    assert "Nothing was swapped" in report
    assert "About 0.0%" not in report


def test_the_internal_report_shows_the_error_after_correction_and_by_size(folder: Path) -> None:
    """The correction is that of the public files, and its error is measured here once more."""
    from stirred.inference.swapped_release import SwappedRelease
    from stirred.inference.unswap import unswap

    report = (folder / "real" / "internal" / "report.html").read_text(encoding="utf-8")
    for table in (["county", "tenure"], ["county", "age"]):
        found = unswap(table, SwappedRelease.read(folder / "real")).table
        frame = pl.read_parquet(folder / "homes.parquet")
        if "age" in table:
            frame = pl.read_parquet(folder / "people.parquet").join(frame, on="hid")
        truth = frame.with_columns(pl.col(table).cast(pl.String)).group_by(table).len("true")
        both = found.join(truth, on=table, how="full", coalesce=True).with_columns(pl.col("true").fill_null(0))
        error = float((both["estimate"].fill_null(0) - both["true"].cast(pl.Int64)).abs().mean())  # type: ignore[arg-type]
        assert (
            f"<td class=n>{error:.4g}</td>" in report.split(f"<h3>{' x '.join(table)}</h3>")[1].split("percentage")[0]
        )
    assert "By true size of the area (county):" in report
    assert "10 to 99" in report
    assert "10 and more" not in report


def test_a_bundle_with_nothing_to_swap_says_that_0_is_not_protection(tmp_path: Path) -> None:
    households().with_columns(pl.lit("owned").alias("tenure")).write_parquet(tmp_path / "homes.parquet")
    with pytest.raises(DoubtError, match="nothing can be swapped"):
        release(tmp_path, plan=content(persons_too=False))
    prepared = undoubted(prepare(plan_from(content(persons_too=False), source="plan", folder=tmp_path)))
    bundle = run(prepared, entropy=Entropy.from_os())
    assert json.loads((bundle / "public" / "specification.json").read_text())["budget"]["realised"] == 0
    assert "not protection" in (bundle / "public" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("role", ["match", "swap", "hold"])
@pytest.mark.parametrize(
    "name", ["count", "table", "true", "released", "error", "records", "live", "rate", "cell", "hold", "<b>&"]
)
def test_a_column_with_a_name_that_we_use_ourselves_is_released_rightly_or_refused_by_name(
    name: str, role: str, tmp_path: Path
) -> None:
    names = {"match": "size", "swap": "county", "hold": "tenure"}
    homes = households().drop("hid").rename({names[role]: name})
    homes.write_parquet(tmp_path / "homes.parquet")
    names[role] = name
    plan = {
        "data": {"households": "homes.parquet"},
        "mechanism": {"match": [names["match"]], "swap": [names["swap"]], "rate": "1/2"},
        "tables": [{"variables": [names["swap"], names["hold"]], "name": "t"}],
        "release": {"out": "bundle"},
    }
    try:
        bundle = release(tmp_path, plan=plan)
    except StirredError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert f'"{name}"' in refusal
        return
    table = read(bundle / "public" / "tables" / "t.csv")
    assert sum(int(count) for count in table[table.columns[-1]]) == 60
    assert table.columns[:2] == [names["swap"], names["hold"]]
    strata = pl.read_parquet(bundle / "public" / "strata.parquet")
    assert sorted(strata[names["match"]].to_list()) == [1, 2, 3]
