"""The life of a release: planned, reserved, drawn, written, verified, committed; nothing lost, nothing spent twice."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from stirred import Entropy
from stirred.cli.main import run as command
from stirred.data.problems import PlanError
from stirred.release.bundle import bundle_checksum
from stirred.release.ledger import Ledger, LedgerError, OverLimitError, Policy
from stirred.release.ledger.problems import StorageError
from stirred.release.ledger.recover import recover
from stirred.release.plan_file import read_plan
from stirred.release.prepared import prepare
from stirred.release.publish import PublishError, publish
from stirred.release.run import remaining, resume, run
from stirred.spec.document import from_json
from stirred.spec.doubts import DoubtError
from tests.release.forked import Forked, exit_code_of
from tests.release.killed_run import POINTS, arrange
from tests.world import PLAN_OF_HOMES, files_in, households, listing, sha256, stirred, world

LIMIT = """
[[limits]]
budget = "{budget}"
output = "pure"
unit = "household"
[invariants]
acceptable = "any"
"""


def plan_text(*, out: str = "out", rate: str = "1/2", ledger: str = "a.ledger") -> str:
    plan = PLAN_OF_HOMES.replace('rate = "1/2"', f'rate = "{rate}"').replace('out = "out"', f'out = "{out}"')
    return f'{plan}purpose = "a test"\nledger = "{ledger}"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return world(tmp_path, households(600), plan=plan_text(), ledger="six hundred homes")


def released(folder: Path, **settings: str) -> Path:
    (folder / "plan.toml").write_text(plan_text(**settings), encoding="utf-8")
    return run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_os())


def assert_whole(out: Path) -> None:
    files = json.loads((out / "manifest.json").read_text(encoding="utf-8"))["files"]
    assert {name: sha256(out / name) for name in files} == files
    assert {name for name in files_in(out) if name != "manifest.json"} == set(files)


def partials(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.endswith(".partial")]


def test_a_release_is_committed_with_its_promise_its_inputs_and_the_checksum_of_its_bundle(folder: Path) -> None:
    out = released(folder)
    ledger = Ledger.open(folder / "a.ledger")
    (entry,) = ledger.entries()
    assert (entry.status, entry.drawn, entry.purpose) == ("committed", True, "a test")
    assert entry.bundle == bundle_checksum(out)
    assert entry.specification == from_json((out / "public" / "specification.json").read_text(encoding="utf-8"))
    manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["ledger"]["entry"] == entry.id
    assert manifest["ledger"]["id"] == ledger.id
    assert entry.inputs == manifest["inputs"]
    assert entry.parameters == manifest["plan"]
    assert ledger.verify().is_sound


def test_without_a_ledger_a_release_is_as_before(folder: Path) -> None:
    (folder / "plan.toml").write_text(plan_text().replace('ledger = "a.ledger"', ""), encoding="utf-8")
    out = run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_os())
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8"))["ledger"] is None
    assert not list(Ledger.open(folder / "a.ledger").entries())


def test_the_total_of_two_releases_is_known_before_the_second(folder: Path) -> None:
    first = prepare(read_plan(folder / "plan.toml"))
    before = remaining(first)
    assert before is not None
    assert before.specification is not None
    assert before.specification.budget.realised == first.plan.epsilon
    assert not list(Ledger.open(folder / "a.ledger").entries()), "a plan writes nothing"
    released(folder)
    released(folder, out="second", rate="1/5")
    second = prepare(read_plan(folder / "plan.toml"))
    together = Ledger.open(folder / "a.ledger").total().specification
    assert together is not None
    assert together.budget.realised == first.plan.epsilon + second.plan.epsilon


def test_a_release_the_policy_forbids_is_refused_before_anything_random(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(folder / "a.ledger")
    ledger.set_policy(Policy.from_toml(LIMIT.format(budget="7")), reason="a test")
    released(folder)
    prepared = prepare(read_plan(folder / "plan.toml"))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("something random happened")

    monkeypatch.setattr("stirred.mechanisms.records.laws.permutation.PermutationSwap.release", never)
    (folder / "plan.toml").write_text(plan_text(out="second", rate="1/3"), encoding="utf-8")
    prepared = prepare(read_plan(folder / "plan.toml"))
    with pytest.raises(OverLimitError, match="is left"):
        remaining(prepared)
    with pytest.raises(OverLimitError, match="is left"):
        run(prepared, entropy=Entropy.from_os())
    assert [entry.status for entry in ledger.entries()] == ["committed"]
    assert not (folder / "second").exists()
    assert not partials(folder)


@pytest.mark.parametrize("way", ["plan file", "options"])
def test_a_refused_plan_shows_its_promise_and_what_would_fit(folder: Path, way: str) -> None:
    Ledger.open(folder / "a.ledger").set_policy(Policy.from_toml(LIMIT.format(budget="7")), reason="a test")
    (folder / "plan.toml").write_text(plan_text(rate="1/1000"), encoding="utf-8")
    options = ["homes.parquet", "--match", "size", "--swap", "county", "--id", "hid", "--ledger", "a.ledger"]
    plan = ["plan.toml"] if way == "plan file" else [*options, "--rate", "1/1000"]
    done = stirred("plan", *plan, cwd=folder)
    assert done.returncode == 2
    for words in ("how much", "ε=", "REFUSED", "would fit", "nothing was written"):
        assert words in done.stdout
    assert re.search(r"the total would be ε=\S+ with .*, \d\S* above the limit ε ≤ 7", done.stderr)
    facts = json.loads(stirred("plan", *plan, "--json", cwd=folder).stdout)
    assert facts["epsilon"] > 7
    assert facts["errors"][0].keys() == {"what", "where", "remedy"}
    fit = facts["would_fit"]
    assert fit["setting"] == "rate"
    assert 6.5 < fit["epsilon"] <= 7
    again = stirred("plan", *options, "--rate", fit["value"], "--json", cwd=folder)
    assert again.returncode == 0
    assert json.loads(again.stdout)["epsilon"] == fit["epsilon"]
    rougher = stirred("plan", *options, "--rate", str(Fraction(fit["value"]) * Fraction(9, 10)), cwd=folder)
    assert rougher.returncode == 2, "a rate far below the one that fits is allowed, so another one would have done"
    assert not list(Ledger.open(folder / "a.ledger").entries())


def test_where_nothing_is_left_nothing_would_fit(folder: Path) -> None:
    ledger = Ledger.open(folder / "a.ledger")
    released(folder)
    ledger.set_policy(Policy.from_toml(LIMIT.format(budget="1")), reason="passed already")
    done = stirred("plan", "plan.toml", "--json", cwd=folder)
    assert done.returncode == 2
    assert json.loads(done.stdout)["would_fit"] is None
    assert "no setting of this mechanism" in stirred("plan", "plan.toml", cwd=folder).stdout


def test_the_loss_of_a_swap_without_a_rate_is_fitted_itself(folder: Path) -> None:
    Ledger.open(folder / "a.ledger").set_policy(Policy.from_toml(LIMIT.format(budget="2")), reason="a test")
    options = ["homes.parquet", "--match", "size", "--swap", "county", "--id", "hid", "--ledger", "a.ledger"]
    mallows = [*options, "--mechanism", "mallows", "--json", "--epsilon"]
    fit = json.loads(stirred("plan", *mallows, "9", cwd=folder).stdout)["would_fit"]
    assert (fit["setting"], 1.95 < fit["epsilon"] <= 2) == ("epsilon", True)
    assert stirred("plan", *mallows, fit["value"], cwd=folder).returncode == 0


def test_a_ledger_is_named_once(folder: Path) -> None:
    done = stirred("plan", "plan.toml", "--ledger", "a.ledger", cwd=folder)
    assert (done.returncode, "--ledger: the plan file already says this" in done.stderr) == (2, True)
    done = stirred(
        "plan", "homes.parquet", "--match", "size", "--swap", "county", "--rate", "1/2", "--ledger", "no", cwd=folder
    )
    assert (done.returncode, "there is no ledger here" in done.stderr) == (2, True)


def test_the_command_refuses_with_exit_2_and_says_what_is_left(folder: Path) -> None:
    Ledger.open(folder / "a.ledger").set_policy(Policy.from_toml(LIMIT.format(budget="1")), reason="a test")
    for verb in ("plan", "release"):
        done = stirred(verb, "plan.toml", cwd=folder)
        assert done.returncode == 2
        assert "above the limit" in done.stderr
        assert "left" in done.stderr
    assert not (folder / "out").exists()


def test_a_test_run_with_a_seed_is_no_entry(folder: Path) -> None:
    with pytest.raises(LedgerError, match="seed"):
        run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_seed("x"))
    assert not list(Ledger.open(folder / "a.ledger").entries())
    assert not (folder / "out").exists()


def test_a_ledger_that_is_not_there_is_refused_and_not_made(folder: Path) -> None:
    (folder / "plan.toml").write_text(plan_text(ledger="nowhere.ledger"), encoding="utf-8")
    with pytest.raises(StorageError, match=r"nowhere\.ledger"):
        run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_os())
    assert not (folder / "nowhere.ledger").exists()
    assert not (folder / "out").exists()


def test_a_place_that_is_taken_is_refused_before_anything_is_reserved(folder: Path) -> None:
    (folder / "out").mkdir()
    with pytest.raises(PlanError, match="already there"):
        run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_os())
    assert not list(Ledger.open(folder / "a.ledger").entries())


def test_a_failure_after_the_draw_is_spent_and_can_be_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("the verification failed")

    with monkeypatch.context() as patch:
        patch.setattr("stirred.release.rehearsal._excerpt", lambda *_: None)  # otherwise it fails before the draw
        patch.setattr("stirred.mechanisms.records.evidence.verify_swap", fails)
        with pytest.raises(RuntimeError) as caught:
            released(folder)
    assert "stirred release --resume" in caught.value.__notes__[0]
    ledger = Ledger.open(folder / "a.ledger")
    (entry,) = ledger.entries()
    assert (entry.state, entry.is_spent) == (KEPT, True)
    assert not (folder / "out").exists()
    assert_whole(resume(folder / "out"))
    (entry,) = ledger.entries()
    assert entry.status == "committed"


def test_a_ledger_that_goes_away_before_the_commit_leaves_the_bundle_and_says_how_to_recover(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("stirred.release.ledger.ledger.Ledger.commit", _fails_with("the database is gone"))
        with pytest.raises(StorageError, match=r"the bundle is complete.*ledger recover"):
            released(folder)
    assert_whole(folder / "out")
    (done,) = recover(Ledger.open(folder / "a.ledger"))
    assert (done.entry.status, done.entry.bundle) == ("committed", bundle_checksum(folder / "out"))


def _fails_with(text: str):  # type: ignore[no-untyped-def]
    from stirred.release.ledger.problems import bad_storage

    def fails(*_: object, **__: object) -> None:
        raise bad_storage(text, where="ledger", remedy="wait")

    return fails


KEPT = "reserved, drawing"  # what repeats the draw is kept, so that the release can be finished
EXPECTED = {
    "before reserve": None,
    "reserved": "aborted, unspent",
    "drawn": KEPT,
    "key kept": KEPT,
    "started": "aborted, unspent",
    "swapped": KEPT,
    "written": KEPT,
    "verified": KEPT,
    "complete": KEPT,
    "sealed": KEPT,
    "moved": "committed",
    "committed": "committed",
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_boundary_the_ledger_knows_what_was_spent(folder: Path, point: str) -> None:
    assert exit_code_of(arrange, point, "release", "plan.toml", "--quiet", cwd=folder) == -signal.SIGKILL
    if recovered(folder, EXPECTED[point]) == KEPT:
        resume(folder / "out")
        assert recovered(folder, "committed") == "committed"
        assert len(list(Ledger.open(folder / "a.ledger").entries())) == 1, "spent twice"


def recovered(folder: Path, expected: str | tuple[str, ...] | None) -> str | None:
    """Recover, and check that ledger and folder agree; return what became of the entry."""
    ledger = Ledger.open(folder / "a.ledger")
    recover(ledger)
    states = [entry.state for entry in ledger.entries()]
    state = states[-1] if states else None
    if not isinstance(expected, tuple):
        assert state == expected
    there = (folder / "out").exists()
    assert there == (state == "committed")
    if there:
        assert_whole(folder / "out")
    if state is None:  # the place was claimed and nothing else done; the next run takes it over
        assert not [path for place in partials(folder) for path in place.rglob("*") if path.is_file()]
    else:
        assert bool(partials(folder)) == (state == KEPT), "half a bundle was left behind"
    assert ledger.verify().is_sound
    total = ledger.total().specification
    assert (total is None) == all(s == "aborted, unspent" for s in states)
    return state


def kill_at_random_moments(folder: Path, *, runs: int, seed: int) -> set[str | None]:
    """Start real releases and kill each after a random time; after every one the books must be right."""
    generator = random.Random(seed)
    plans = (plan_text(rate=f"{100 + 10 * seed + number}/1000") for number in range(runs + 1))  # none is run twice
    (folder / "plan.toml").write_text(next(plans), encoding="utf-8")
    began = time.monotonic()
    assert Forked("release", "plan.toml", "--quiet", cwd=folder).wait() == 0
    whole = time.monotonic() - began  # of a process like those that are killed, on this machine as it is at first
    shutil.rmtree(folder / "out")
    seen: set[str | None] = set()
    entries = len(list(Ledger.open(folder / "a.ledger").entries()))
    for plan in plans:
        (folder / "plan.toml").write_text(plan, encoding="utf-8")
        process = Forked("release", "plan.toml", "--quiet", cwd=folder)
        try:
            process.wait(timeout=generator.uniform(0.1, 1.1) * whole)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        ledger = Ledger.open(folder / "a.ledger")
        now = len(list(ledger.entries()))
        assert now - entries in (0, 1), "an entry was lost or doubled"
        if now > entries:
            seen.add(recovered_last(folder))
        else:
            whole *= 1.1  # killed before it reserved anything: the machine may be busier than it was
        entries = now
        shutil.rmtree(folder / "out", ignore_errors=True)
    return seen


def recovered_last(folder: Path) -> str | None:
    ledger = Ledger.open(folder / "a.ledger")
    recover(ledger)
    was = list(ledger.entries())[-1].state
    if was == KEPT:
        resume(folder / "out")
    entry = list(ledger.entries())[-1]
    assert (folder / "out").exists() == (entry.status == "committed")
    if entry.status == "committed":
        assert_whole(folder / "out")
        assert entry.bundle == bundle_checksum(folder / "out")
    assert not partials(folder)
    assert ledger.verify().is_sound
    return was


def test_killed_at_random_moments_no_entry_is_lost_or_doubled(folder: Path) -> None:
    seen: set[str | None] = set()
    for seed in range(1, 6):  # a machine that is busy may let all of them die before they reserve anything
        seen = seen or kill_at_random_moments(folder, runs=4, seed=seed)
    assert seen


@pytest.mark.slow
def test_killed_two_hundred_times_no_entry_is_lost_or_doubled(folder: Path) -> None:
    seen = kill_at_random_moments(folder, runs=200, seed=2)
    assert {"committed", KEPT} <= seen
    assert "aborted, spent" not in seen, "a draw was paid for and lost"


@pytest.mark.parametrize("limit", [20_000, 90_000])
def test_a_full_disk_leaves_no_bundle_and_an_account_that_can_be_settled(folder: Path, limit: int) -> None:
    """A limit on the size of files stands for a full disk: every write beyond it fails (Python ignores SIGXFSZ)."""
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    households(400_000).write_parquet(folder / "homes.parquet")
    done = Forked("release", "plan.toml", "--quiet", cwd=folder, arrange=full)
    _, said = done.communicate()
    assert done.returncode == 2, said
    assert "Traceback" not in said
    assert not (folder / "out").exists()
    ledger = Ledger.open(folder / "a.ledger")
    recover(ledger)
    assert ledger.verify().is_sound
    states = [entry.state for entry in ledger.entries()]
    assert set(states) <= {"aborted, unspent", KEPT}
    if KEPT in states:  # now there is room
        assert "stirred release --resume" in said
        assert_whole(resume(folder / "out"))
    assert not partials(folder)
    assert len(states) <= 1


def test_a_read_only_target_is_refused_before_anything_is_reserved(folder: Path) -> None:
    """Root may write everywhere, and so gives up its rights for the run; everybody else has none to give up."""
    place = Path(tempfile.mkdtemp())  # pytest's own folders may not be looked into by others
    plan = (folder / "plan.toml").read_text(encoding="utf-8")
    (folder / "plan.toml").write_text(plan.replace('"out"', f'"{place}/out"'), encoding="utf-8")
    prepared = prepare(read_plan(folder / "plan.toml"))
    place.chmod(0o555)
    as_root = os.geteuid() == 0
    try:
        if as_root:
            os.seteuid(65534)
        with pytest.raises(PlanError, match="cannot be written"):
            run(prepared, entropy=Entropy.from_os())
    finally:
        if as_root:
            os.seteuid(0)
        left = list(place.iterdir())
        place.rmdir()
    assert not left
    assert not list(Ledger.open(folder / "a.ledger").entries())


def test_a_target_in_a_folder_that_may_not_be_looked_into_is_refused(folder: Path) -> None:
    prepared = prepare(read_plan(folder / "plan.toml"))
    folder.chmod(0o000)
    as_root = os.geteuid() == 0
    try:
        if as_root:
            os.seteuid(65534)
        with pytest.raises(PlanError, match=r"looked into|cannot be written"):
            run(prepared, entropy=Entropy.from_os())
    finally:
        if as_root:
            os.seteuid(0)
        folder.chmod(0o700)
    assert not list(Ledger.open(folder / "a.ledger").entries())


def test_a_committed_release_is_published_and_a_withdrawn_or_changed_one_is_not(folder: Path) -> None:
    out = released(folder)
    done = publish(out, folder / "site")
    assert any(check.startswith("committed as entry 1") for check in done.checks)
    ledger = Ledger.open(folder / "a.ledger")
    manifest = (out / "manifest.json").read_text(encoding="utf-8")
    (out / "manifest.json").write_text(manifest.replace("a test", "a jest"), encoding="utf-8")
    with pytest.raises(PublishError, match="not the one that was committed"):
        publish(out, folder / "other")
    (out / "manifest.json").write_text(manifest, encoding="utf-8")
    ledger.withdraw(1, reason="a test")
    with pytest.raises(PublishError, match="entry 1 in the ledger is withdrawn"):
        publish(out, folder / "other")
    assert not (folder / "other").exists()


def test_every_publication_is_recorded_and_changes_no_total(folder: Path) -> None:
    out = released(folder)
    ledger = Ledger.open(folder / "a.ledger")
    before, head = ledger.total(), ledger.head.number
    publish(out, folder / "dry", dry_run=True)
    assert ledger.head.number == head
    publish(out, folder / "site")
    assert stirred("publish", "out", "again", "--as", "data portal", "--who", "bo", cwd=folder).returncode == 0
    found = ledger.entry(1).publications
    assert [event.to for event in found] == ["site", "data portal"]
    assert found[1].who == "bo"
    assert ledger.total() == before
    assert ledger.verify().is_sound
    assert stirred("publish", "out", "third", "--as", " ", cwd=folder).returncode == 2
    assert not (folder / "third").exists()
    assert len(ledger.entry(1).publications) == 2


def test_a_ledger_that_cannot_be_written_keeps_a_release_from_being_published(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = released(folder)
    ledger = Ledger.open(folder / "a.ledger")
    monkeypatch.setattr("stirred.release.ledger.sqlite._PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr("stirred.release.publish._copy", _never)
    other = sqlite3.connect(folder / "a.ledger", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for dry_run in (True, False):
        with pytest.raises(PublishError, match=r"a publication is recorded, and .*a\.ledger refuses: another process"):
            publish(out, folder / "site", dry_run=dry_run)
    other.execute("ROLLBACK")
    other.close()
    assert not (folder / "site").exists()
    assert not ledger.entry(1).publications


def _never(*_: object, **__: object) -> None:
    raise AssertionError("something was copied")


def test_a_ledger_that_refuses_at_the_last_moment_lets_nothing_appear(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = released(folder)
    gone = _fails_with("the database is gone")
    monkeypatch.setattr("stirred.release.ledger.ledger.Ledger.begin_publication", gone)
    with pytest.raises(StorageError, match="the database is gone"):
        publish(out, folder / "site")
    assert not (folder / "site").exists()
    assert not partials(folder)


def test_a_copy_that_fails_is_no_publication(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = released(folder)

    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr("stirred.release.publish._copied", full)
    with pytest.raises(OSError, match="no space"):
        publish(out, folder / "site")
    assert not Ledger.open(folder / "a.ledger").entry(1).publications


def test_a_ledger_that_moved_is_named_and_another_one_is_refused(folder: Path) -> None:
    out = released(folder)
    (folder / "a.ledger").rename(folder / "moved.ledger")
    with pytest.raises(PublishError, match=r"a\.ledger"):
        publish(out, folder / "site")
    Ledger.create(folder / "b.ledger", dataset="another file")
    with pytest.raises(PublishError, match="another ledger"):
        publish(out, folder / "site", ledger=str(folder / "b.ledger"))
    assert publish(out, folder / "site", ledger=str(folder / "moved.ledger")).place.exists()


def test_releases_from_one_dataset_add_up_whatever_the_file_is_called_and_whatever_is_dropped(folder: Path) -> None:
    released(folder)
    (folder / "homes.parquet").rename(folder / "again.parquet")
    text = plan_text(out="second", rate="1/3").replace("homes.parquet", "again.parquet")
    (folder / "plan.toml").write_text(text.replace('rate = "1/3"', 'rate = "1/3"\nhold = ["size"]'), encoding="utf-8")
    with pytest.raises(PlanError):
        prepare(read_plan(folder / "plan.toml"))  # nothing is left to hold
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    prepared = prepare(read_plan(folder / "plan.toml"))
    assert not [doubt for doubt in prepared.doubts if "released before" in doubt.what]
    run(prepared, entropy=Entropy.from_os())
    assert Ledger.open(folder / "a.ledger").total().specification is not None


def test_a_file_the_ledger_has_not_seen_is_refused_until_somebody_says_it_is_the_same_dataset(folder: Path) -> None:
    released(folder)
    households(601).write_parquet(folder / "homes.parquet")
    plan = plan_text(out="second")
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    with pytest.raises(PlanError, match="not the file of entry 1, released before from 'six hundred homes'"):
        prepare(read_plan(folder / "plan.toml"))
    for called, refused in (("homes", True), ("six hundred homes", False)):
        said = plan.replace("[data]\n", f'[data]\nname = "{called}"\n')
        (folder / "plan.toml").write_text(said, encoding="utf-8")
        if refused:
            with pytest.raises(PlanError, match="name = 'six hundred homes' under"):
                prepare(read_plan(folder / "plan.toml"))
    (doubt,) = prepare(read_plan(folder / "plan.toml")).doubts
    assert doubt.name == "other-file:households"
    assert "is not that of entry 1, released before" in doubt.what
    assert not doubt.refuses, "the plan names the dataset"


def test_another_file_under_the_same_dataset_is_told_wherever_one_looks(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    released(folder)
    monkeypatch.chdir(folder)
    households(601).write_parquet(folder / "others.parquet")
    options = ["others.parquet", "--match", "size", "--swap", "county", "--rate", "1/2", "--id", "hid"]
    options += ["--ledger", "a.ledger"]
    before = listing(folder)
    for arguments in (["plan", *options], ["swap", *options, "--quiet", "--out", "second"]):
        assert command(arguments) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert "FILE: this is not the file of entry 1, released before from 'six hundred homes'. Fix: if it is" in err
    assert listing(folder) == before
    options += ["--set", "name=six hundred homes"]
    # Told before the run, in its result, and again once the ledger holds releases from both files.
    for arguments in (
        ["plan", *options],
        ["swap", *options, "--quiet", "--out", "second"],
        ["swap", *options, "--quiet", "--out", "third", "--accept", "more-runs:4"],
    ):
        assert command(arguments) == 0
        out, err = capsys.readouterr()
        shown = " ".join(out.split())
        note = "the file of households is not that of entry 1, released before from"
        assert f"note {note}" in shown if arguments[0] == "plan" else f"Note: {note}" in err
        assert "the file of households is NOT that of entry 1;" in shown
    options += ["--accept", "more-runs:4+7"]
    for arguments in (["plan", *options, "--json"], ["swap", *options, "--out", "fourth", "--json"]):
        assert command(arguments) == 0
        assert any(
            "is not that of entry 1, released before" in doubt["what"]
            for doubt in json.loads(capsys.readouterr().out)["doubts"]
        )
    said = plan_text(out="fifth").replace("[data]\n", '[data]\nname = "six hundred homes"\n')
    said += 'accept = ["more-runs:1"]\n'
    (folder / "plan.toml").write_text(said, encoding="utf-8")
    assert command(["release", "plan.toml", "--quiet", "--json"]) == 0
    # The plan of entry 1 runs once more, on its own file.
    doubts = {doubt["kind"]: doubt for doubt in json.loads(capsys.readouterr().out)["doubts"]}
    assert set(doubts) == {"other-file", "more-runs"}
    assert "is not that of entry 4, 7, 10" in doubts["other-file"]["what"]
    command(["ledger", "show", "a.ledger"])
    assert "2 different files of households: entry 1, 13; entry 4, 7, 10." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (('rate = "1/2"', 'rate = "0"'), "nothing-moves", "at a rate of 0 nothing is swapped and nothing is promised"),
        (('rate = "1/2"', 'rate = "1e-30"'), "nothing-moves", "fewer than one record is expected to get other values"),
        (('rate = "1/2"', 'rate = "1"'), "nothing-promised", "at a rate of 0 or 1 nothing is promised"),
        (('id = ["hid"]\n', ""), "hid", '"hid" is named like an identifier and has 600 values in 600 records'),
    ],
)
def test_nothing_is_spent_on_what_could_not_be_published(
    folder: Path, change: tuple[str, str], where: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "plan.toml").write_text(plan_text().replace(*change), encoding="utf-8")
    before = listing(folder)
    for verb in ("plan", "release"):
        assert command([verb, str(folder / "plan.toml")]) == 2
        err = " ".join(capsys.readouterr().err.split())
        assert f"{where}: {what}" in err
    assert listing(folder) == before
    # Without a ledger, or with the column named among those that go out, it is doubted all the same.
    alone = plan_text().replace(*change).replace('ledger = "a.ledger"\n', "")
    held = plan_text().replace(*change).replace("[[tables]]", 'hold = ["tenure", "hid"]\n[[tables]]')
    for text in (alone, *([held] if where == "hid" else [])):
        (folder / "plan.toml").write_text(text, encoding="utf-8")
        with pytest.raises(DoubtError):
            run(prepare(read_plan(folder / "plan.toml")), entropy=Entropy.from_os())


def test_the_same_file_again_is_no_other_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    released(folder)
    (folder / "plan.toml").write_text(plan_text(out="second", rate="1/3"), encoding="utf-8")
    assert command(["release", str(folder / "plan.toml"), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "NOT that of entry" not in out + err
    command(["ledger", "show", str(folder / "a.ledger")])
    assert "different files" not in capsys.readouterr().out


def test_a_failure_after_the_draw_tells_the_user_what_was_spent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stirred.release.rehearsal._excerpt", lambda *_: None)  # otherwise it fails before the draw
    monkeypatch.setattr("stirred.mechanisms.records.evidence.verify_swap", interrupted)
    monkeypatch.chdir(folder)
    assert command(["release", "plan.toml", "--quiet"]) == 130
    said = capsys.readouterr().err
    for words in ("entry 1 of the ledger", "stirred release --resume out", "stirred ledger abort a.ledger 1", "spent"):
        assert words in said


def test_the_command_says_where_the_release_stands_in_the_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert command(["release", "plan.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ledger"]["entry"] == 1


def test_a_release_that_is_in_the_ledger_cannot_be_added_to_it_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    released(folder)
    monkeypatch.chdir(folder)
    assert command(["ledger", "add", "a.ledger", "out"]) == 2
    assert "entry 1 already" in capsys.readouterr().err
