"""A second run of a plan refuses before it costs anything, and nothing false is published silently."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stirred.audit.bundle import audit_bundle
from stirred.release.ledger import Ledger
from stirred.release.prepared import Prepared
from stirred.release.publish import PublishError, publish
from stirred.release.run import resume, run
from stirred.spec.document import from_json
from stirred.spec.doubts import DoubtError
from stirred.spec.specification import ONE_RUN, Specification
from tests.world import households, planned, stirred, swap_plan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    households().write_parquet(tmp_path / "homes.parquet")
    Ledger.create(str(tmp_path / "homes.ledger"), dataset="homes")
    return tmp_path


def prepared(folder: Path, out: str, accept: Sequence[str] = (), **mechanism: Any) -> Prepared:
    release = {"out": out, "ledger": "homes.ledger", "accept": list(accept)}
    return planned(folder, swap_plan(tables=(), release=release, **mechanism))


def entries(folder: Path) -> int:
    return len([*Ledger.open(folder / "homes.ledger").entries()])


def promise(public: Path) -> Specification:
    return from_json((public / "specification.json").read_text())


@pytest.mark.parametrize("other", [{}, {"rate": "0.5"}, {"rate": "50%"}, {"hold": ["size", "tenure"]}])
def test_a_second_run_is_refused_before_anything_is_reserved(folder: Path, other: dict[str, Any]) -> None:
    run(prepared(folder, "first"))
    with pytest.raises(DoubtError, match="Entry 1 ran this plan on this file before"):
        run(prepared(folder, "second", **other))
    assert entries(folder) == 1
    assert not (folder / "second").exists()


def test_an_accepted_second_run_says_so_instead_of_being_the_one_run(folder: Path) -> None:
    first = run(prepared(folder, "first"))
    assert ONE_RUN in promise(first / "public").relies_on
    second = run(prepared(folder, "second", accept=["more-runs:1"]))
    promised = promise(second / "public")
    assert ONE_RUN not in promised.relies_on
    assert ONE_RUN.words not in promised.assumptions
    assert any("more-runs:1 (the plan was run more than once" in line for line in promised.assumptions)
    for page in ("specification.md", "README.md", "report.html"):
        assert ONE_RUN.words not in (second / "public" / page).read_text()
    assert audit_bundle(second).passed
    publish(second, folder / "site")  # nothing is named again
    assert not (folder / "site" / "NOTICE.md").exists()
    third = prepared(folder, "third", accept=["more-runs:1"])
    with pytest.raises(DoubtError, match="more-runs:1"):
        third.refuse()


def test_the_first_run_is_published_with_a_notice_of_what_is_not_so(folder: Path) -> None:
    first = run(prepared(folder, "first"))
    publish(first, folder / "site", dry_run=True)  # one run is one run
    run(prepared(folder, "second", accept=["more-runs:1"]))
    (number,) = [e.number for e in Ledger.open(folder / "homes.ledger").entries() if e.number > 1]
    with pytest.raises(PublishError, match="this is the one run of the plan") as caught:
        publish(first, folder / "site")
    assert not (folder / "site").exists()
    assert f"more-runs:{number}" in str(caught.value)
    with pytest.raises(PublishError, match="no doubt that can be accepted"):
        publish(first, folder / "site", accept=["more-runs:99"])
    done = publish(first, folder / "site", accept=[f"more-runs:{number}"])
    assert any("NOTICE.md tells readers what is not so" in line for line in done.checks)
    notice = (folder / "site" / "NOTICE.md").read_text()
    assert ONE_RUN.words in notice
    assert "that is not so" in notice
    assert "NOTICE.md" in (folder / "site" / "CHECKSUMS.sha256").read_text()
    assert audit_bundle(folder / "site").passed
    (event,) = Ledger.open(folder / "homes.ledger").entry(1).publications
    assert event.accepted == (f"more-runs:{number}",)


def test_a_run_that_was_given_up_is_not_another_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.release.run.make_bundle", _dies)
    with pytest.raises(RuntimeError):
        run(prepared(folder, "first"))
    monkeypatch.undo()
    (doubt,) = prepared(folder, "second").doubts
    assert doubt.name == "more-runs:1"  # it can still be resumed
    Ledger.open(folder / "homes.ledger").abort(1, reason="its disk is gone")
    assert prepared(folder, "second").doubts == ()
    publish(run(prepared(folder, "second")), folder / "site")


def test_a_second_run_that_died_is_resumed_as_it_was_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(prepared(folder, "first"))
    monkeypatch.setattr("stirred.release.run.make_bundle", _dies)
    with pytest.raises(RuntimeError):
        run(prepared(folder, "second", accept=["more-runs:1"]))
    monkeypatch.undo()
    publish(resume(folder / "second"), folder / "site")


def test_a_run_that_died_is_not_another_run_of_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stirred.release.run.make_bundle", _dies)
    with pytest.raises(RuntimeError):
        run(prepared(folder, "first"))
    monkeypatch.undo()
    publish(resume(folder / "first"), folder / "site")
    assert ONE_RUN in promise(folder / "site").relies_on


def _dies(*_: Any, **__: Any) -> None:
    raise RuntimeError("the power failed")


def test_a_bundle_that_was_recorded_afterwards_is_accounted_for(folder: Path) -> None:
    made = stirred(
        *("swap", "homes.parquet", "--match", "size", "--swap", "county", "--rate", "1/2"),
        *("--id", "hid", "--out", "first", "--quiet"),
        cwd=folder,
    )
    assert made.returncode == 0
    wanted = ("publish", "first", "site", "--require-ledger")
    refused = stirred(*wanted, cwd=folder)
    assert refused.returncode == 2
    assert "`stirred ledger add LEDGER BUNDLE`, and publish with --ledger LEDGER" in " ".join(refused.stderr.split())
    refused = stirred(*wanted, "--ledger", "homes.ledger", cwd=folder)
    assert "homes.ledger has no entry for it" in " ".join(refused.stderr.split())
    assert stirred("ledger", "add", "homes.ledger", "first", cwd=folder).returncode == 0
    done = stirred(*wanted, "--ledger", "homes.ledger", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("recorded afterwards as entry 1") for line in json.loads(done.stdout)["checks"])
    (event,) = Ledger.open(folder / "homes.ledger").entry(1).publications
    assert event.to == "site"
    (doubt,) = prepared(folder, "second").doubts
    assert doubt.name == "more-runs:1"


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\x7f"])
def test_a_place_whose_name_has_control_letters_is_refused(folder: Path, name: str) -> None:
    first = run(prepared(folder, "first"))
    with pytest.raises(PublishError, match="letters that cannot be published"):
        publish(first, folder / name)
    with pytest.raises(PublishError, match="letters that cannot be published"):
        publish(first, folder / "site", called=name)
