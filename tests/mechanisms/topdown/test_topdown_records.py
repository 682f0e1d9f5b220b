"""Records and estimates through a plan: ledger, bundle, audit, publication, interruption; and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.data.bundle import checksum, published_specification
from stirred.mechanisms.topdown import records
from stirred.mechanisms.topdown.commands import HierarchyEstimateOptions, MicrodataOptions, run_estimate, run_microdata
from stirred.mechanisms.topdown.mechanism import TopDown
from stirred.mechanisms.topdown.solve import files as solve_files
from stirred.mechanisms.topdown.solve import tree as solving
from stirred.randomness.entropy import Entropy
from stirred.release.ledger import Ledger
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.publish import publish
from stirred.release.run import resume, run
from stirred.spec.document import from_document
from stirred.spec.problems import StirredError
from tests.mechanisms.topdown.people import people, wards
from tests.release.forked import Forked
from tests.release.tampering import frame, retell
from tests.world import files_in

PLAN = """[data]
file = "people.parquet"
[mechanism]
name = "topdown"
levels = ["region", "district", "ward"]
areas = "wards.csv"
attributes = ["sex", "age", "work"]
values = { sex = ["m", "f"], age = ["0-17", "18-64", "65+"], work = ["yes", "no"] }
rho = "1/2"
publish = ["measurements", "estimates", "records"]
[[tables]]
variables = ["district", "age"]
[release]
out = "out"
ledger = "a.ledger"
"""
PAGES = {"README.md", "report.html", "specification.json", "specification.md"}
NO_TABLES = [("[[tables]]\n", ""), ('variables = ["district", "age"]\n', "")]
CELL = ["region", "district", "ward", "sex", "age", "work"]


def laid_out(folder: Path) -> Path:
    people().write_parquet(folder / "people.parquet")
    wards().write_csv(folder / "wards.csv")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    Ledger.create(folder / "a.ledger", dataset="people")
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return laid_out(tmp_path)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = laid_out(tmp_path_factory.mktemp("records"))
    assert command(["release", str(place / "plan.toml"), "--quiet"]) == 0
    return place / "out"


def test_the_reports_say_nothing_that_is_not_there(released: Path) -> None:
    """One arm is not compared with others, nothing was expected before, and "all" is the whole file."""
    inner, outer = ((released / part / "report.html").read_text(encoding="utf-8") for part in ("internal", "public"))
    for page in (inner, outer):
        assert "only the first was released" not in page
        assert "expected before the run" not in page
        assert "in each all" not in page
    assert "persons in all cells, the whole file" in outer


@pytest.fixture
def bundle(released: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(released, tmp_path / "out"))


def edited(folder: Path, *changes: tuple[str, str]) -> Path:
    text = (folder / "plan.toml").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    return folder / "plan.toml"


def public(bundle: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(bundle / "public" / f"{name}.parquet")


# ---- what is there ----------------------------------------------------------------------------------------


def test_a_plan_of_fifteen_lines_reaches_published_records(released: Path, tmp_path: Path) -> None:
    assert len(PLAN.splitlines()) == 15
    names = {name.removeprefix("public/") for name in files_in(released) if name.startswith("public/")}
    tables = {
        "measurements",
        "constraints",
        "spine",
        "estimates",
        "persons",
        "counts",
        "areas",
        "certificate",
        "events",
    }
    assert names == {*PAGES, *(f"{each}.parquet" for each in tables), "tables/district-x-age.csv"}
    persons = public(released, "persons")
    assert persons.columns == CELL
    assert persons.height == people().height == public(released, "counts")["count"].sum()
    assert persons["ward"].dtype == people()["ward"].dtype
    assert public(released, "certificate")["compared"].sum() > 1_000
    (entry,) = Ledger.open(released.parent / "a.ledger").entries()
    assert entry.state == "committed"
    assert entry.specification is not None
    assert entry.specification.budget.shown == "0.5"
    publish(released, tmp_path / "website")
    assert audit_bundle(tmp_path / "website").passed
    assert any(check.startswith("persons: agrees") for check in audit_bundle(tmp_path / "website").checks)


def test_tables_are_those_of_the_records_and_have_all_areas_and_codes(released: Path) -> None:
    table = pl.read_csv(released / "public/tables/district-x-age.csv")
    counted = public(released, "persons").group_by("district", "age").len("count")
    assert table.height == 3 * 3
    both = table.join(counted, on=["district", "age"], how="left").with_columns(pl.col("count_right").fill_null(0))
    assert both["count"].to_list() == both["count_right"].to_list()


def test_anybody_makes_the_same_records_from_the_published_measurements(released: Path, tmp_path: Path) -> None:
    assert run_microdata(MicrodataOptions(measurements=released, out=tmp_path / "again")).passed
    assert pl.read_parquet(tmp_path / "again/counts.parquet").equals(public(released, "counts"))


def test_estimates_are_those_of_the_command(released: Path, tmp_path: Path) -> None:
    run_estimate(HierarchyEstimateOptions(measurements=released, out=tmp_path / "e.parquet"))
    keys = ["geolevel", "area", "query_name", "cell"]
    ours, theirs = (
        each.sort(keys) for each in (public(released, "estimates"), pl.read_parquet(tmp_path / "e.parquet"))
    )
    assert ours.select(keys).equals(theirs.select(keys))
    for name in ("estimate", "std_dev"):
        assert ours[name].to_list() == pytest.approx(theirs[name].to_list(), abs=1e-9)


def test_without_noise_to_speak_of_records_are_the_truth_and_errors_zero(folder: Path) -> None:
    plan = edited(folder, ('rho = "1/2"', 'rho = "1000000000"'), ('ledger = "a.ledger"', ""))
    made = run(prepare(read_plan(plan)))
    truth = people().select(CELL).sort(CELL)
    assert public(made, "persons").sort(CELL).equals(truth)
    assert pl.read_parquet(made / "internal/accuracy_by_level.parquet")["mean_l1"].max() == 0


def test_errors_against_the_truth_stay_inside_and_are_right(folder: Path) -> None:
    plan = edited(folder, ("publish =", 'compare = "bureau"\npublish ='), ('ledger = "a.ledger"', ""))
    made = run(prepare(read_plan(plan)))
    rows = pl.read_parquet(made / "internal/accuracy_by_level.parquet")
    assert {*rows["arm"]} == {"default", "bureau"}
    own = rows.filter(arm="default", geolevel="district", query="sex").filter(pl.col("size_from").is_null())
    keys = ["region", "district", "sex"]
    both = (
        people()
        .group_by(keys)
        .len("true")
        .join(public(made, "persons").group_by(keys).len("made"), on=keys, how="full", coalesce=True)
        .with_columns(error=pl.col("made").fill_null(0).cast(pl.Int64) - pl.col("true").fill_null(0).cast(pl.Int64))
    )
    found = dict(own.select("group", "mean_l1").iter_rows())
    assert found["m"] == pytest.approx(both.filter(sex="m")["error"].abs().sum() / 12)
    assert found[None] == pytest.approx(both["error"].abs().sum() / 12)
    inner = (made / "internal/report.html").read_text(encoding="utf-8")
    assert inner.index("Error of the persons by level") < inner.index("Verified on the files")
    assert "bureau" in inner
    for page in PAGES:
        assert "bureau" not in (made / "public" / page).read_text(encoding="utf-8")


def test_records_may_be_csv_and_measurements_left_out(folder: Path) -> None:
    plan = edited(
        folder, ('["measurements", "estimates", "records"]', '"records"'), ("[release]", '[release]\nformat="csv"')
    )
    made = run(prepare(read_plan(plan)))
    assert pl.read_csv(made / "public/persons.csv").height == people().height
    assert not (made / "public/measurements.parquet").exists()
    publish(made, folder / "website")
    assert audit_bundle(folder / "website").passed


# ---- altered files are found ------------------------------------------------------------------------------


def one_moved(rows: pl.DataFrame) -> pl.DataFrame:
    first = rows["sex"][0]
    return rows.with_columns(
        sex=pl.when(pl.int_range(pl.len()) == 0).then(pl.lit("f" if first == "m" else "m")).otherwise("sex")
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (frame("persons.parquet", one_moved), "its records are not those of counts"),
        (frame("persons.parquet", lambda rows: rows.head(-1)), "its records are not those of counts"),
        (frame("counts.parquet", lambda rows: rows.with_columns(pl.col("count") + 1)), "must be ="),
        (frame("counts.parquet", lambda rows: rows.with_columns(count=-pl.col("count"))), "a count is -"),
        (frame("counts.parquet", lambda rows: rows.drop("sex")), "is not of the kind that is released"),
        (
            frame("areas.parquet", lambda rows: rows.with_columns(ward=rows["ward"].reverse())),
            "are not those of counts",
        ),
        (frame("tables/district-x-age.csv", lambda rows: rows.with_columns(pl.col("count") + 1)), "not the table of"),
        (frame("certificate.parquet", lambda rows: rows.head(0)), "does not certify all records"),
        (lambda bundle: (bundle / "public/counts.parquet").unlink(), "missing or cannot be read"),
    ],
)
def test_records_that_do_not_belong_to_the_other_files_are_found(
    bundle: Path, change: Callable[[Path], object], told: str
) -> None:
    change(bundle)
    retell(bundle)
    problems = audit_bundle(bundle).problems
    assert any(told in problem.what for problem in problems), problems
    assert command(["publish", str(bundle), str(bundle.parent / "website")]) == 2


# ---- the same whatever the machine ------------------------------------------------------------------------


def test_threads_and_batches_change_no_record(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = edited(folder, ('ledger = "a.ledger"', ""))
    found = []
    for number, (threads, batch, rows) in enumerate([(1, 16, 1 << 20), (2, 1, 7), (2, 3, 100)]):
        with monkeypatch.context() as patch:
            patch.setattr(os, "cpu_count", lambda threads=threads: threads)
            patch.setattr(solving, "_AT_ONCE", batch)
            patch.setattr(records, "_ROWS", rows)
            text = plan.read_text(encoding="utf-8").replace('out = "out"', f'out = "out{number}"')
            (folder / "own.toml").write_text(text, encoding="utf-8")
            made = run(prepare(read_plan(folder / "own.toml")), entropy=Entropy.from_seed("threads"))
        counts = made / "public/counts.parquet"
        whole = pl.read_parquet(sorted(counts.glob("*")) if counts.is_dir() else counts)
        found.append((whole, public(made, "persons"), (made / "public/tables/district-x-age.csv").read_bytes()))
    for other in found[1:]:
        assert other[0].equals(found[0][0])
        assert other[1].equals(found[0][1])
        assert other[2] == found[0][2]


# ---- interruptions ----------------------------------------------------------------------------------------


def test_an_interrupted_run_goes_on_at_its_level_and_spends_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopping(stage: str, done: int, whole: int) -> None:
        if stage == "persons top-down" and done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with pytest.raises(KeyboardInterrupt):
        run(prepare(read_plan(folder / "plan.toml")), progress=stopping)
    ledger = Ledger.open(folder / "a.ledger")
    (entry,) = ledger.entries()
    assert entry.drawn
    assert not (folder / "out").exists()
    assert [*folder.glob(".out.partial/progress/levels/*.npz")], "levels that are done outlive the run"
    told: list[str] = []
    load, taken = solving.LevelStore.load, []

    def loading(self: Any, name: str) -> Any:
        found = load(self, name)
        taken.append((name, found is not None))
        return found

    monkeypatch.setattr(solving.LevelStore, "load", loading)
    resume(folder / "out", progress=lambda stage, *_: told.append(stage))
    assert "persons top-down" in told
    assert {there for _, there in taken} == {True, False}, "some levels are taken over, and others were not done"
    assert not [*folder.glob(".out.partial")]
    (entry,) = ledger.entries()
    assert entry.state == "committed"
    assert run_microdata(MicrodataOptions(measurements=folder / "out", out=folder / "again")).passed
    assert pl.read_parquet(folder / "again/counts.parquet").equals(public(folder / "out", "counts"))


def slow_solve() -> None:
    """Make the solve of a release slow enough to be interrupted; the rehearsal before it solves nothing."""
    TopDown.rehearsed_on = not_rehearsed  # type: ignore[method-assign]
    names = vars(solving)
    solve = names["solve_children"]

    def slow(stage: Any, *rest: Any) -> Any:
        if stage.level.name == "ward":
            Path("at-wards").touch()
            time.sleep(0.2)
        return solve(stage, *rest)

    names["solve_children"] = slow


def not_rehearsed(self: TopDown, data: Any, plan: Any) -> None:
    return None


def test_a_signal_during_the_solve_leaves_a_run_that_can_be_resumed(folder: Path) -> None:
    process = Forked("release", "plan.toml", "--quiet", cwd=folder, arrange=slow_solve)
    ends = time.monotonic() + 300
    while not (folder / "at-wards").exists() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "stirred release --resume" in err
    assert not (folder / "out").exists()
    assert command(["release", "--resume", "out", "--quiet"]) == 0
    (entry,) = Ledger.open(folder / "a.ledger").entries()
    assert entry.state == "committed"
    assert audit_bundle(folder / "out").passed


def test_a_full_disk_is_told_and_the_run_is_finished_when_there_is_room(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(self: solve_files.FileParts, number: int, frame: pl.DataFrame) -> Path:
        frame.write_parquet("/dev/full")
        return Path("/dev/full")

    with monkeypatch.context() as patched:
        patched.setattr(TopDown, "rehearsed_on", not_rehearsed)
        patched.setattr(solve_files.FileParts, "write", full)
        assert command(["release", "plan.toml", "--quiet"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "the system refused: No space left on device" in said
    assert "stirred release --resume" in said
    assert command(["release", "--resume", "out", "--quiet"]) == 0


# ---- a later, more detailed release -----------------------------------------------------------------------

LATER = """[data]
file = "people.parquet"
[mechanism]
name = "topdown"
levels = ["region", "district", "ward"]
areas = "wards.csv"
attributes = ["sex", "age", "work"]
values = { sex = ["m", "f"], age = ["0-17", "18-64", "65+"], work = ["yes", "no"] }
groupings = { age = { adult = [["0-17"], ["18-64", "65+"]] } }
rho = "1/2"
publish = ["measurements", "estimates", "records"]
totals = ["region"]
agrees_with = "first/public/counts.parquet"
agreed_codes = { adult = ["no", "yes"] }
[release]
out = "later"
ledger = "a.ledger"
"""
FIRST = (
    LATER.replace('attributes = ["sex", "age", "work"]', 'attributes = ["sex", "adult"]')
    .replace('age = ["0-17", "18-64", "65+"], work = ["yes", "no"]', 'adult = ["no", "yes"]')
    .replace('"later"', '"first"')
)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a first release in it, which counts adults, and the plan of the later one."""
    place = laid_out(tmp_path_factory.mktemp("first"))
    grown = people().with_columns(adult=pl.when(pl.col("age") == "0-17").then(pl.lit("no")).otherwise(pl.lit("yes")))
    grown.write_parquet(place / "people.parquet")
    kept = [line for line in FIRST.splitlines() if not line.startswith(("agree", "groupings"))]
    (place / "first.toml").write_text("\n".join(kept), encoding="utf-8")
    (place / "plan.toml").write_text(LATER, encoding="utf-8")
    assert command(["release", str(place / "first.toml"), "--quiet"]) == 0
    return place


@pytest.fixture
def first(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "first"


def test_a_later_release_agrees_with_the_first_in_every_area(first: Path) -> None:
    folder = first.parent
    assert command(["release", "plan.toml", "--quiet"]) == 0
    adult = pl.when(pl.col("age") == "0-17").then(pl.lit("no")).otherwise(pl.lit("yes")).alias("adult")
    keys = ["region", "district", "ward", "sex", "adult"]
    later = public(folder / "later", "persons").with_columns(adult).group_by(keys).len().sort(keys)
    assert later.equals(public(first, "persons").group_by(keys).len().sort(keys))
    # Neither the truth nor a fact of the file: the first release had noise, and no constraint says it.
    assert "agrees_con" not in public(folder / "later", "constraints")["query_name"].to_list()
    assert {*public(folder / "later", "agreement")["query_name"]} == {"agrees_con"}
    assert audit_bundle(folder / "later").passed
    publish(folder / "later", folder / "website")
    site = audit_bundle(folder / "website")
    assert site.passed, site.problems
    assert any(check.startswith("persons: agrees") for check in site.checks)
    one, two = Ledger.open(folder / "a.ledger").entries()
    assert two.includes == [one.id], "the promise of the second is that of both, and the ledger counts it once"
    together = Ledger.open(folder / "a.ledger").total().specification
    assert together is not None
    assert together.budget.shown == "1", "half, and half again"


def test_the_promise_of_a_later_release_is_that_of_both(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The counts of the first are published again, so two honest halves are one."""
    folder, digest = first.parent, checksum(first / "public" / "counts.parquet")
    assert command(["release", "plan.toml", "--quiet"]) == 0
    promise = published_specification(folder / "later" / "public")
    assert promise is not None
    assert promise.budget.realised == 1
    settings = json.loads((folder / "later/public/specification.json").read_text())["mechanism"]["settings"]
    kept = settings["agrees_with"]
    assert (kept["title"], kept["sha256"]) == ("Release of people", digest)
    assert from_document(kept["specification"]) == published_specification(first / "public")
    for name in ("specification.md", "README.md", "report.html"):
        page = (folder / "later/public" / name).read_text(encoding="utf-8")
        assert digest in page, name
        assert "counts alone" not in page, name
    capsys.readouterr()
    edited(folder, ('"later"', '"again"'), ('ledger = "a.ledger"', ""))
    assert command(["plan", "plan.toml"]) == 0
    said = capsys.readouterr().out
    assert "records agree with the earlier release 'Release of people'" in " ".join(said.split())
    assert "ρ²=1" in said


def test_the_earlier_release_may_be_a_published_folder(first: Path) -> None:
    publish(first, first.parent / "site", ledger=str(first.parent / "a.ledger"))
    edited(first.parent, ("first/public", "site"))
    assert command(["release", "plan.toml", "--quiet"]) == 0
    ledger = Ledger.open(first.parent / "a.ledger")
    assert len([*ledger.entries()][1].includes) == 1, "the ledger knows what it published"
    together = ledger.total().specification
    assert together is not None
    assert together.budget.shown == "1"


def changed_counts(first: Path) -> None:
    place = first / "public" / "counts.parquet"
    pl.read_parquet(place).with_columns(pl.col("count") + 1).write_parquet(place)


def without_specification(first: Path) -> None:
    (first / "public" / "specification.json").unlink()


def without_manifest(first: Path) -> None:
    (first / "manifest.json").unlink()


def bare(first: Path) -> None:
    """The true counts in a file of their own, which once passed as an earlier release."""
    keys = ["region", "district", "ward", "sex", "adult"]
    true = pl.read_parquet(first.parent / "people.parquet").group_by(keys).len("count")
    codes = pl.concat_str("region", "district", "ward", separator="|").alias("geocode")
    true.select(codes, "sex", "adult", "count").write_parquet(first.parent / "exact.parquet")
    edited(first.parent, ("first/public/counts.parquet", "exact.parquet"))


def inside(first: Path) -> None:
    shutil.copy(first / "public/counts.parquet", first / "internal/counts.parquet")
    edited(first.parent, ("first/public", "first/internal"))


def other_file(first: Path) -> None:
    people = pl.read_parquet(first.parent / "people.parquet")
    people.with_columns(pl.col("sex").reverse()).write_parquet(first.parent / "others.parquet")
    edited(first.parent, ("people.parquet", "others.parquet"))


def other_file_of_equal_name(first: Path) -> None:
    """Once the name of a file was all that said which one it is."""
    people = pl.read_parquet(first.parent / "people.parquet")
    people.with_columns(pl.col("sex").reverse()).write_parquet(first.parent / "people.parquet")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (bare, "exact.parquet: it belongs to no release that states what it promises. Fix: name a public file"),
        (changed_counts, "its release cannot be checked (counts.parquet: it is not the file manifest.json describes)"),
        (without_specification, "it belongs to no release that states what it promises"),
        (without_manifest, "there is neither manifest.json nor CHECKSUMS.sha256 here"),
        (inside, "it belongs to no release that states what it promises"),
        (other_file, "it cannot be put together with this release: the domains differ"),
        (other_file_of_equal_name, "it cannot be put together with this release: the domains differ"),
    ],
)
def test_what_is_no_release_of_the_same_file_is_refused_as_an_earlier_one(
    first: Path, change: Callable[[Path], None], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(first.parent, ('ledger = "a.ledger"', ""))
    change(first)
    for words in (["plan", "plan.toml"], ["release", "plan.toml", "--quiet"]):
        assert command(words) == 2
        assert told in " ".join(capsys.readouterr().err.split())
    assert not (first.parent / "later").exists()


def test_an_earlier_release_that_the_ledger_does_not_know_is_doubted(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Ledger.create(first.parent / "b.ledger", dataset="people")
    edited(first.parent, ("a.ledger", "b.ledger"))
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert 'accept it: accept = ["unknown-earlier:counts.parquet"]' in " ".join(capsys.readouterr().err.split())
    edited(first.parent, ('out = "later"', 'out = "later"\naccept = ["unknown-earlier:counts.parquet"]'))
    assert command(["release", "plan.toml", "--quiet"]) == 0
    together = Ledger.open(first.parent / "b.ledger").total().specification
    assert together is not None
    assert together.budget.shown == "1", "what the ledger does not know is counted with the release that includes it"


SAME_DATASET = "earlier-dataset:counts.parquet"


def test_a_published_folder_without_a_ledger_does_not_show_which_dataset_it_is_of(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No checksum of a file is ever published: a person says that it is the same, and the release keeps that."""
    publish(first, first.parent / "site", ledger=str(first.parent / "a.ledger"))
    edited(first.parent, ("first/public", "site"), ('ledger = "a.ledger"', ""))
    assert command(["release", "plan.toml", "--quiet"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "nothing shows that site/counts.parquet ('Release of people') was released from the same dataset" in told
    edited(first.parent, ('out = "later"', f'out = "later"\naccept = ["{SAME_DATASET}"]'))
    assert command(["release", "plan.toml", "--quiet"]) == 0
    promise = published_specification(first.parent / "later" / "public")
    assert promise is not None
    assert any(SAME_DATASET in line for line in promise.assumptions)
    assert promise.budget.realised == 1


def test_an_edited_file_is_the_same_dataset_by_the_ledger_or_a_person(
    first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Checksums that differ speak against a name that both plans state."""
    folder = first.parent
    other_file_of_equal_name(first)
    edited(folder, ('file = "people.parquet"', 'file = "people.parquet"\nname = "people"'))
    assert command(["plan", "plan.toml"]) == 0  # the ledger knows the earlier release
    text = (folder / "first.toml").read_text(encoding="utf-8")
    named = text.replace('ledger = "a.ledger"', "").replace("[mechanism]", 'name = "people"\n[mechanism]')
    (folder / "first.toml").write_text(named.replace('"first"', '"other"'), encoding="utf-8")
    assert command(["release", "first.toml", "--quiet"]) == 0
    other_file_of_equal_name(first)
    edited(folder, ("first/public", "other/public"), ('ledger = "a.ledger"', ""))
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert "no stated name of files whose checksums do not differ" in " ".join(capsys.readouterr().err.split())
    edited(folder, ('out = "later"', f'out = "later"\naccept = ["{SAME_DATASET}"]'))
    assert command(["release", "plan.toml", "--quiet"]) == 0


def test_a_published_folder_is_of_the_dataset_that_both_plans_name(first: Path) -> None:
    folder = first.parent
    text = (folder / "first.toml").read_text(encoding="utf-8")
    named = text.replace('ledger = "a.ledger"', "").replace("[mechanism]", 'name = "Register 2024"\n[mechanism]')
    (folder / "first.toml").write_text(named.replace('"first"', '"other"'), encoding="utf-8")
    assert command(["release", "first.toml", "--quiet"]) == 0
    publish(folder / "other", folder / "site")
    edited(folder, ("first/public", "site"), ('ledger = "a.ledger"', ""))
    assert command(["release", "plan.toml", "--quiet"]) == 2
    edited(folder, ('file = "people.parquet"', 'file = "people.parquet"\nname = "Register 2024"'))
    assert command(["release", "plan.toml", "--quiet"]) == 0


def test_a_name_that_the_later_plan_alone_states_shows_nothing(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The published name may be that of a file, and files of other people may be called so."""
    publish(first, first.parent / "site", ledger=str(first.parent / "a.ledger"))
    other_file_of_equal_name(first)
    edited(
        first.parent,
        ("first/public", "site"),
        ('ledger = "a.ledger"', ""),
        ('file = "people.parquet"', 'file = "people.parquet"\nname = "people"'),
    )
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert SAME_DATASET in " ".join(capsys.readouterr().err.split())


def test_python_refuses_an_earlier_release_of_a_dataset_that_is_not_known(first: Path) -> None:
    edited(first.parent, ('ledger = "a.ledger"', ""))
    prepared = prepare(read_plan(first.parent / "plan.toml"))
    with pytest.raises(StirredError, match="released from the same dataset"):
        prepared.mechanism.release(prepared.data, Entropy.from_seed("a"))
    assert prepared.mechanism.release(prepared.data, Entropy.from_seed("a"), plan=prepared.plan)
    assert prepared.mechanism.release(prepared.data, Entropy.from_seed("a"), accept=[SAME_DATASET])


def test_a_release_does_not_build_on_a_test_run(first: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = first.parent
    shutil.rmtree(first)
    text = (folder / "first.toml").read_text(encoding="utf-8").replace('ledger = "a.ledger"', "")
    (folder / "first.toml").write_text(text, encoding="utf-8")
    edited(folder, ('ledger = "a.ledger"', ""))
    assert command(["release", "first.toml", "--quiet", "--seed", "1"]) == 0
    assert command(["plan", "plan.toml"]) == 0
    assert "stirred release plan.toml --seed TEXT" in capsys.readouterr().out
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert "it builds on a test run with a seed" in capsys.readouterr().err
    assert command(["release", "plan.toml", "--quiet", "--seed", "2"]) == 0
    promise = published_specification(folder / "later" / "public")
    assert promise is not None
    assert promise.seeded


def test_a_bundle_of_old_whose_promise_leaves_the_earlier_release_out_is_found(first: Path) -> None:
    folder = first.parent
    assert command(["release", "plan.toml", "--quiet"]) == 0
    place = folder / "later" / "manifest.json"
    manifest = json.loads(place.read_text(encoding="utf-8"))
    kept = manifest["plan"]["mechanism"]["agrees_with"]
    manifest["plan"]["mechanism"]["agrees_with"] = {key: kept[key] for key in ("file", "sha256")}
    place.write_text(json.dumps(manifest), encoding="utf-8")
    assert any("leaves out what that one costs" in problem.what for problem in audit_bundle(folder / "later").problems)


def test_records_that_do_not_agree_are_found(first: Path) -> None:
    folder = first.parent
    assert command(["release", "plan.toml", "--quiet"]) == 0
    fewer = pl.col("value").list.eval(pl.element() + 1)
    frame("agreement.parquet", lambda rows: rows.with_columns(fewer))(folder / "later")
    retell(folder / "later")
    assert any("agrees_con" in problem.what for problem in audit_bundle(folder / "later").problems)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            [('agreed_codes = { adult = ["no", "yes"] }\n', "")],
            "'adult' has 2 groups here, and 0 codes of then is given",
        ),
        ([('["no", "yes"]', '["n", "y"]')], 'it has "no", "yes", which is none of the codes'),
        ([("first/public/counts.parquet", "first/public/none.parquet")], "none.parquet"),
        ([("first/public/counts.parquet", "first/public/spine.parquet")], "it has no column 'count'"),
        (
            [('{ adult = [["0-17"], ["18-64", "65+"]] }', '{ grown = [["0-17"], ["18-64", "65+"]] }')],
            "'adult' is not counted here",
        ),
        ([('totals = ["region"]', 'totals = ["district"]')], "then, and total_con asks for = "),
        ([('totals = ["region"]', 'zeros = [{ sex = ["f"], age = ["0-17"] }]')], "would have no cell"),
        ([(', "records"]', "]")], "only records agree with an earlier release"),
    ],
)
def test_a_later_release_that_cannot_agree_is_refused_before_anything_is_spent(
    first: Path, changes: list[tuple[str, str]], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = first.parent
    if any("zeros" in new for _, new in changes):
        other = pl.read_parquet(folder / "people.parquet").filter((pl.col("sex") == "m") | (pl.col("age") != "0-17"))
        other.write_parquet(folder / "people.parquet")
    edited(folder, ('ledger = "a.ledger"', ""), *changes)
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (folder / "later").exists()


# ---- refused before the draw ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([('variables = ["district", "age"]', 'variables = ["district", "income"]')], 'no released column "income"'),
        ([('"wards.csv"', '"none.csv"')], "none.csv"),
        ([('attributes = ["sex"', 'attributes = ["income", "sex"')], "its codes are not declared"),
        ([('levels = ["region"', 'levels = ["town"')], 'there is no column "town"'),
        ([('"records"]', '"recrods"]')], "publish"),
        ([("publish =", 'arm = "best"\npublish =')], "arm"),
        ([(', "records"]', ']\narm = "bureau"'), *NO_TABLES], "arms make records, and none are published"),
        ([("publish =", 'zeros = [{ sex = ["m"] }]\npublish =')], "the file breaks it"),
        (
            [*NO_TABLES, ("publish =", 'columns = { sex = "ward" }\npublish =')],
            "would stand twice among the columns of the records",
        ),
    ],
)
def test_a_plan_that_cannot_be_carried_out_spends_nothing(
    folder: Path, changes: list[tuple[str, str]], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(folder, *changes)
    assert command(["release", "plan.toml", "--quiet"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (folder / "out").exists()
    assert not [*Ledger.open(folder / "a.ledger").entries()]


# ---- units beside persons ---------------------------------------------------------------------------------

TWO_FILES = """[data]
households = "homes.parquet"
persons = "members.parquet"
hid = "hid"
[mechanism]
name = "topdown"
levels = ["region", "district", "ward"]
areas = "wards.csv"
attributes = ["sex"ATTRIBUTE]
values = { sex = ["m", "f"], work = ["yes", "no"] }
rho = "1/2"
publish = "records"
AGREES
[mechanism.units]
attributes = ["tenure"UNIT]
values = { tenure = ["own", "rent"], size = ["1", "2"] }
rho = "1/2"
totals = ["district"]
UNITS_AGREE
[[tables]]
variables = ["region", "tenure"]
[[tables]]
variables = ["region", "sex"]
[release]
out = "OUT"
"""


def two_files(folder: Path, out: str, **more: str) -> Path:
    text = TWO_FILES.replace("OUT", out)
    for name in ("UNITS_AGREE", "AGREES", "ATTRIBUTE", "UNIT"):
        text = text.replace(name, more.get(name, ""))
    (folder / f"{out}.toml").write_text(text, encoding="utf-8")
    return run(prepare(read_plan(folder / f"{out}.toml")))


def test_units_and_persons_of_a_later_release_agree_with_the_first(folder: Path) -> None:
    members = people(600).with_row_index("place").with_columns(hid=pl.col("place") // 2)
    homes = members.group_by("hid", maintain_order=True).agg(
        pl.col("region", "district", "ward").first(),
        tenure=pl.when(pl.col("sex").first() == "m").then(pl.lit("own")).otherwise(pl.lit("rent")),
        size=pl.when(pl.col("age").first() == "65+").then(1).otherwise(2),
    )
    homes.write_parquet(folder / "homes.parquet")
    members.select("hid", "sex", "work").write_parquet(folder / "members.parquet")
    first = two_files(folder, "one")
    agrees = 'agrees_with = "one/public/{}.parquet"'
    later = two_files(
        folder,
        "two",
        ATTRIBUTE=', "work"',
        UNIT=', "size"',
        AGREES=agrees.format("counts"),
        UNITS_AGREE=agrees.format("unit_counts"),
    )
    for name, keys in {"persons": ["ward", "sex"], "units": ["ward", "tenure"]}.items():
        keys = ["region", "district", *keys]
        one, two = (public(each, name).group_by(keys).len().sort(keys) for each in (first, later))
        assert one.equals(two)
    assert public(later, "units")["size"].dtype == homes["size"].dtype
    assert public(later, "units").height == homes.height
    own = homes.group_by("region", "district").len().sort("region", "district")
    assert public(later, "units").group_by("region", "district").len().sort("region", "district").equals(own)
    for place in (first, later):
        assert audit_bundle(place).passed, audit_bundle(place).problems
    table = pl.read_csv(later / "public/tables/region-x-tenure.csv")
    assert table["count"].sum() == homes.height
    assert pl.read_csv(later / "public/tables/region-x-sex.csv")["count"].sum() == members.height
