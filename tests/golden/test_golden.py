"""The golden set: the same seed releases the same public bytes, and what was made before can still be read.

Where a step must change bytes, ``python -m tests.golden.make`` writes them again and the commit says why.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stirred.audit.bundle import audit_bundle
from stirred.data.bundle import published_specification
from stirred.data.codebook import Codebook
from stirred.release.ledger import Ledger
from stirred.release.scan import written_as_ours
from stirred.spec.document import from_json, to_json
from tests.golden.make import (
    ACCOUNT,
    BUNDLE,
    LEDGER,
    OF_ACCOUNT,
    PRINTED,
    SET,
    cases,
    internal_files,
    lasting,
    printed,
    public_bytes,
    released,
)

CASES = cases()
EARLIER = sorted(path.parent for path in (SET / "earlier").glob("*/manifest.json"))
PUBLISHED = sorted(path.parent.name for path in (SET / ACCOUNT).glob("*/CHECKSUMS.sha256"))


def golden(folder: Path, name: str) -> object:
    return lasting((folder / PRINTED / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_the_same_seed_releases_the_same_public_bytes(case: str, tmp_path: Path) -> None:
    place = released(case, tmp_path)
    then, now = public_bytes(SET / case / BUNDLE), public_bytes(place / BUNDLE)
    assert sorted(now) == sorted(then)
    assert [name for name in then if now[name] != then[name]] == []
    assert internal_files(place / BUNDLE) == internal_files(SET / case / BUNDLE)
    for name, text in printed(place):
        assert lasting(text) == golden(SET / case, name), name


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_made_before_is_read_and_passes(case: str, tmp_path: Path) -> None:
    bundle = shutil.copytree(SET / case / BUNDLE, tmp_path / BUNDLE)
    assert audit_bundle(bundle).problems == ()


@pytest.mark.parametrize("earlier", EARLIER, ids=lambda path: path.name)
def test_a_bundle_that_is_no_longer_made_is_read_and_passes(earlier: Path, tmp_path: Path) -> None:
    audit = audit_bundle(shutil.copytree(earlier, tmp_path / BUNDLE))
    assert audit.problems == ()
    assert any("computed anew from the settings" in check for check in audit.checks)


def test_a_ledger_made_before_is_read_and_says_the_same(tmp_path: Path) -> None:
    place = shutil.copytree(SET / ACCOUNT, tmp_path / ACCOUNT)
    assert len(list(Ledger.open(place / LEDGER).entries())) == len(PUBLISHED) > 3
    for name, text in printed(place, OF_ACCOUNT):
        assert lasting(text) == golden(SET / ACCOUNT, name), name


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_folder_published_before_is_read_and_passes(name: str, tmp_path: Path) -> None:
    assert audit_bundle(shutil.copytree(SET / ACCOUNT / name, tmp_path / name)).problems == ()


def test_a_specification_that_does_not_mark_what_holds_alone_is_as_it_was_written() -> None:
    """The account was made before specifications did: its tables can still be published."""
    public = SET / ACCOUNT / "tables"
    read = published_specification(public)
    assert read is not None
    assert read.alone
    assert '"alone"' not in (public / "specification.json").read_text(encoding="utf-8")
    assert written_as_ours(public, read, same_version=True)


@pytest.mark.parametrize("path", sorted((SET / "specifications").glob("*.json")), ids=lambda path: path.stem)
def test_a_specification_written_before_means_the_same(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert to_json(from_json(text)) == text


@pytest.mark.parametrize("path", sorted(SET.glob("*/codebook.toml")), ids=lambda path: path.parent.name)
def test_a_codebook_written_before_is_read(path: Path) -> None:
    assert Codebook.read(path).variables
