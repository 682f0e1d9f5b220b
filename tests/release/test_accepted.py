"""Doubts from plan to publication: refused before anything is reserved, accepted by name, kept in every artefact."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit import audit_bundle
from stirred.cli.main import run as command
from stirred.release.ledger import Ledger
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import PublishError, publish
from stirred.release.run import run
from stirred.spec.document import from_json
from stirred.spec.doubts import DoubtError
from tests.world import households, listing, manifest, persons, released, swap_plan, undoubted, world

Out = pytest.CaptureFixture[str]
NAMES = ["identifier:mark", "tells:place"]
SENTENCE = (
    "a person accepted these doubts about protection by name: identifier:mark (mark may identify records), tells:place "
    "(place shows which records were swapped, and from where)"
)


def homes() -> pl.DataFrame:
    """A place that is the county by another name, and a number that is different for nearly every record."""
    frame = households(240)
    mark = pl.Series([(7919 * n) % 10_007 for n in range(235)] + [0] * 5)
    return frame.with_columns(place=pl.col("county").str.to_lowercase(), mark=mark)


def plan(out: str = "out", **release: Any) -> dict[str, Any]:
    return swap_plan(release={"out": out, **release})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return world(tmp_path, homes(), ledger="homes")


def test_nothing_is_reserved_or_written_while_a_doubt_stands(folder: Path) -> None:
    before = listing(folder)
    with pytest.raises(DoubtError) as caught:
        released(folder, plan(ledger="a.ledger", accept=["tells:place"]))
    assert [problem.where for problem in caught.value.problems] == ["mark"]
    with pytest.raises(DoubtError, match="called 'tells:tenure'"):
        released(folder, plan(ledger="a.ledger", accept=[*NAMES, "tells:tenure"]))
    assert listing(folder) == before
    assert list(Ledger.open(folder / "a.ledger").entries()) == []


def test_what_was_accepted_stands_in_bundle_ledger_report_and_readme(folder: Path) -> None:
    bundle = released(folder, plan(ledger="a.ledger", accept=NAMES))
    facts = manifest(bundle)
    assert [(doubt["name"], doubt["accepted"]) for doubt in facts["doubts"]] == [(name, True) for name in NAMES]
    specification = from_json((bundle / "public/specification.json").read_text(encoding="utf-8"))
    assert specification.assumptions[-1] == SENTENCE
    (entry,) = Ledger.open(folder / "a.ledger").entries()
    assert entry.parameters["release"]["accept"] == NAMES
    assert entry.specification == specification
    for name in ("public/README.md", "public/report.html", "internal/report.html", "public/specification.md"):
        assert SENTENCE in (bundle / name).read_text(encoding="utf-8")
    inside = (bundle / "internal/report.html").read_text(encoding="utf-8")
    public = [path.read_bytes() for path in (bundle / "public").rglob("*") if path.is_file()]
    assert " values in 240 records" in inside
    assert not any(b" values in 240 records" in content or b"determines the swap" in content for content in public)
    assert audit_bundle(bundle).passed
    done = publish(bundle, folder / "site")
    assert "identifier:mark: accepted by the release" in done.checks
    assert 'columns: all in the specification, accepted although they may identify: "mark"' in done.checks


def test_an_audit_sees_that_an_accepted_doubt_was_taken_out_of_the_conditions(folder: Path) -> None:
    bundle = released(folder, plan(accept=NAMES))
    facts = manifest(bundle)
    facts["plan"]["release"]["accept"] = []
    (bundle / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")
    assert any("assumptions" in problem.where for problem in audit_bundle(bundle).problems)


def test_a_plan_shows_all_doubts_and_ends_as_a_release_would(folder: Path, capsys: Out) -> None:
    options = ["homes.parquet", "--id", "hid", "--match", "size", "--swap", "county", "--rate", "1/2"]
    assert command(["plan", *options]) == 2
    out, err = capsys.readouterr()
    assert "how much" in out, "the plan is shown all the same"
    assert 'tells:place (refuses the release): "place" ' in " ".join(out.split())
    for name in NAMES:
        assert f"--accept {name}" in err
    assert command(["plan", *options, "--json", "--accept", "tells:place"]) == 2
    facts = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["refuses"], each["accepted"]) for each in facts["doubts"]] == [
        ("identifier:mark", True, False),
        ("tells:place", True, True),
    ]
    assert {"name", "kind", "about", "what", "remedy", "refuses", "accepted"} == {*facts["doubts"][0]}
    assert [error["where"] for error in facts["errors"]] == ["mark"]
    accept = [word for name in NAMES for word in ("--accept", name)]
    assert command(["plan", *options, *accept]) == 0
    assert command(["swap", *options, "--out", "out", "--quiet"]) == 2
    assert not (folder / "out").exists()
    assert command(["swap", *options, *accept, "--out", "out", "--quiet"]) == 0
    assert "Accepted, tells:place: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "mechanism"),
    [({"county": "East"}, {}), ({"tenure": "owned", "size": 1}, {"hold": ["tenure"]}), ({}, {"rate": "0"})],
    ids=["one area", "no live stratum", "a rate of 0"],
)
def test_a_file_in_which_nothing_can_move_is_never_released_nor_published(
    change: dict[str, Any], mechanism: dict[str, Any], tmp_path: Path, capsys: Out
) -> None:
    households(60).with_columns(**{k: pl.lit(v) for k, v in change.items()}).write_parquet(tmp_path / "homes.parquet")
    content = plan()
    content["mechanism"] |= mechanism
    for accept in ([], ["nothing-moves"]):
        content["release"]["accept"] = accept
        with pytest.raises(DoubtError) as caught:
            released(tmp_path, content)
        assert caught.value.problems[0].where == "nothing-moves"
        assert "--accept" not in caught.value.problems[0].remedy
    assert not (tmp_path / "out").exists()
    # A bundle that another program made, or another version.
    content["release"]["accept"] = []
    bundle = run(undoubted(prepare(plan_from(content, source="plan", folder=tmp_path))), entropy=Entropy.from_os())
    with pytest.raises(PublishError, match=r"nothing can be swapped|nothing is promised"):
        publish(bundle, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def with_persons(folder: Path, people: pl.DataFrame) -> dict[str, Any]:
    people.write_parquet(folder / "people.parquet")
    own = {"households": "homes.parquet", "persons": "people.parquet", "hid": "hid", "id": ["pid"]}
    return {**plan(), "data": own}


def test_an_infinite_loss_is_published_only_if_whoever_publishes_accepts_it_too(tmp_path: Path) -> None:
    households(60).write_parquet(tmp_path / "homes.parquet")
    content = with_persons(tmp_path, persons(households(60)))
    content["mechanism"]["rate"] = "1"
    with pytest.raises(DoubtError, match=r'accept=\["nothing-promised"\]'):
        released(tmp_path, content)
    content["release"]["accept"] = ["nothing-promised"]
    bundle = released(tmp_path, content)
    page = (bundle / "public" / "README.md").read_text(encoding="utf-8")
    assert "nothing-promised (the loss is infinite: nothing is promised)" in page
    with pytest.raises(PublishError, match="the loss is infinite"):
        publish(bundle, tmp_path / "site")
    assert not (tmp_path / "site").exists()
    done = publish(bundle, tmp_path / "site", accept=["nothing-promised"])
    assert "nothing-promised: accepted by you" in done.checks
    report = (tmp_path / "site" / "report.html").read_text(encoding="utf-8")
    assert '<h1 class="nothing">Nothing is promised about confidentiality: ' in report
    assert "**Nothing is promised about confidentiality:" in (tmp_path / "site" / "README.md").read_text("utf-8")


def test_what_to_do_next_does_not_hide_that_publishing_asks_again(folder: Path, capsys: Out) -> None:
    options = ["homes.parquet", "--id", "hid,mark", "--hold", "tenure", "--match", "size", "--swap", "county"]
    options += ["--rate", "1", "--quiet"]
    assert command(["swap", *options, "--out", "out"]) == 2
    assert "choose a rate above 0 and below 1; or accept it: --accept nothing-promised" in capsys.readouterr().err
    assert command(["swap", *options, "--out", "out", "--accept", "nothing-promised"]) == 0
    assert "which refuses, since nothing is promised, unless" in " ".join(capsys.readouterr().out.split())


def test_a_manifest_whose_doubts_were_changed_is_refused(folder: Path) -> None:
    bundle = released(folder, plan(accept=NAMES))
    for number, change in enumerate(
        (
            lambda facts: facts.pop("doubts"),
            lambda facts: facts["doubts"][0].update(accepted=False),
        )
    ):
        other = Path(shutil.copytree(bundle, folder / f"other{number}"))
        facts = manifest(other)
        change(facts)
        (other / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")
        with pytest.raises(PublishError, match=r"which doubts the plan had|a doubt that nobody accepted"):
            publish(other, folder / "site")


def test_settings_from_this_data_are_refused_in_python_too(tmp_path: Path) -> None:
    from stirred import PermutationSwap

    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2", settings_from="this-data")
    with pytest.raises(DoubtError, match="void the guarantee"):
        swap.release(households().drop("hid"), Entropy.from_os(), accept=["settings-from-this-data"])


def test_a_person_column_that_is_the_county_is_refused(tmp_path: Path) -> None:
    frame = households(240)
    people = persons(frame).join(frame.select("hid", birthplace="county"), on="hid", how="left")
    frame.write_parquet(tmp_path / "homes.parquet")
    with pytest.raises(DoubtError, match=r'accept=\["tells:birthplace"\]'):
        released(tmp_path, with_persons(tmp_path, people))
