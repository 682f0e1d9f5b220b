"""`stirred report`: an edition as it was made, and releases side by side, ranked by nothing."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stirred import Entropy
from stirred.release.publish import publish
from stirred.release.run import run
from stirred.report.editions import edition_of, side_by_side
from stirred.report.facts import facts_in
from tests.release.test_public_edition import CASES, laid_out
from tests.world import stirred


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two releases of the same homes, by different methods, and what was published of one."""
    folder = tmp_path_factory.mktemp("reports")
    for name, case in (("swap", CASES["conditioned"]), ("noise", CASES["noisy tables"])):
        run(laid_out(case, case.truth(), folder / name), entropy=Entropy.from_os()).rename(folder / f"{name}-out")
    publish(folder / "swap-out", folder / "site", called="site")
    return folder


def done(place: Path, *words: str) -> str:
    result = stirred(*(words if words[0] == "compare" else ("report", *words)), cwd=place)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refused(place: Path, *command: str) -> str:
    result = stirred("report", *command, cwd=place)
    assert result.returncode == 2
    assert "Fix:" in result.stderr
    return result.stderr


@pytest.mark.parametrize("words", [("swap-out",), ("site",), ("--edition", "public", "swap-out")])
def test_the_public_edition_is_told_unless_another_is_asked_for(place: Path, words: tuple[str, ...]) -> None:
    told = " ".join(done(place, *words).split())
    assert told.startswith("edition public page")
    assert "negative numbers none among" in told
    assert "the random numbers no: no key is published" in told


def test_an_edition_is_written_as_it_was_made_and_the_internal_one_for_its_owner_alone(place: Path) -> None:
    for edition, mode in (("public", 0o644), ("internal", 0o600)):
        done(place, "swap-out", "--edition", edition, "--out", f"{edition}.html")
        written = place / f"{edition}.html"
        assert written.read_bytes() == (place / "swap-out" / edition / "report.html").read_bytes()
        assert stat.S_IMODE(written.stat().st_mode) & 0o077 == mode & 0o077
    assert "something is already there" in refused(place, "swap-out", "--out", "public.html")


def test_json_has_the_facts_of_the_page_and_the_specification(place: Path) -> None:
    told = json.loads(done(place, "swap-out", "--json"))
    page = facts_in((place / "swap-out/public/report.html").read_text(encoding="utf-8"))
    assert {key: told[key] for key in page} == page
    assert told["edition"] == "public"
    assert told["specification"]["schema_version"] == 1
    assert "measures" not in told
    assert json.loads(done(place, "swap-out", "--edition", "internal", "--json"))["measures"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("site", "--edition", "internal"), "this is what was published: it has no internal part"),
        (("swap-out", "--edition", "both"), "'both' is not known"),
        (("nowhere",), "there is no such folder"),
        (("site/report.html",), "this is a file, not a folder"),
        (("swap",), "this is not a bundle"),
        (("swap-out", "--edition", "internal", "--out", "swap-out/public/in.html"), "must not stand among public"),
    ],
)
def test_what_cannot_be_handed_out_is_refused(place: Path, words: tuple[str, ...], says: str) -> None:
    before = sorted(place.rglob("*"))
    assert says in refused(place, *words)
    assert sorted(place.rglob("*")) == before


def test_of_what_was_published_no_internal_editions_are_compared(place: Path) -> None:
    result = stirred("compare", "swap-out", "site", "--edition", "internal", cwd=place)
    assert (result.returncode, "it has no internal part" in result.stderr) == (2, True)


def test_a_page_that_was_changed_is_refused(place: Path, tmp_path: Path) -> None:
    case = CASES["conditioned"]
    bundle = run(laid_out(case, case.truth(), tmp_path / "changed"), entropy=Entropy.from_os())
    page = bundle / "public" / "report.html"
    page.write_text(page.read_text(encoding="utf-8").replace("ε=", "ε=0."), encoding="utf-8")
    assert "not the page that was made with the release" in refused(tmp_path, str(bundle))


def test_a_page_without_a_checksum_is_not_handed_out(place: Path, tmp_path: Path) -> None:
    assert "edition" in done(place, "swap-out/public")  # compared with the manifest beside it
    shutil.copytree(place / "swap-out", tmp_path / "emptied")
    (tmp_path / "emptied" / "manifest.json").write_text("", encoding="utf-8")
    shutil.copytree(place / "swap-out" / "public", tmp_path / "plain")
    for folder in ("emptied", "emptied/public", "plain"):
        assert "no checksum in manifest.json or CHECKSUMS.sha256" in refused(tmp_path, folder)


def test_what_could_not_be_looked_at_is_not_counted_as_zero(place: Path) -> None:
    both = [edition_of(place / name, "public") for name in ("swap-out", "noise-out")]
    rows = {name: found for name, *found in side_by_side(both)[1]}
    assert rows["negative numbers"][0] == "0"
    assert "nothing to look at" in rows["margins that do not add up"]


def test_releases_stand_side_by_side_in_the_given_order_and_no_flavor_beats_another(place: Path) -> None:
    told = json.loads(done(place, "compare", "noise-out", "swap-out", "--json"))
    assert [each["name"] for each in told["releases"]] == ["noise-out", "swap-out"]
    (compared,) = told["compared"]
    assert compared["overall"] is None
    assert compared["blocks"]["budget"]["verdict"] == "incomparable"
    assert "measures" not in told["releases"][0]
    text = " ".join(done(place, "compare", "noise-out", "swap-out").split())
    assert "no verdict. Neither was derived from the other" in text
    assert "error against the truth" not in text


def test_a_release_that_promises_nothing_says_so_beside_others(place: Path) -> None:
    found = edition_of(place / "swap-out", "public")
    nothing = replace(found, specification=found.specification.with_budget("inf"))
    (row,) = [row for row in side_by_side([found, nothing])[1] if row[0] == "how much"]
    assert row[2] == "ε=inf: nothing is promised"
    assert "nothing" not in row[1]


def test_the_page_of_a_comparison_says_whether_it_may_leave(place: Path) -> None:
    def page(edition: str) -> str:
        done(place, "compare", "swap-out", "noise-out", "--edition", edition, "--out", f"{edition}-both.html")
        return (place / f"{edition}-both.html").read_text(encoding="utf-8")

    public, internal = page("public"), page("internal")
    assert "never publish" in internal
    assert "error against the truth" in internal
    assert "never publish" not in public
    assert "error against the truth" not in public
    measures: Any = json.loads((place / "swap-out/internal/measures.json").read_text(encoding="utf-8"))
    error = f"{measures['county x tenure']['mean_absolute_error']:.4g} on average"
    assert error in internal
    assert error not in public
