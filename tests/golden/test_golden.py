"""The golden set: the same seed releases the same public bytes, and what was made before can still be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stirred.audit.bundle import audit_bundle
from stirred.spec.document import from_json, to_json
from tests.golden.make import BUNDLE, PRINTED, SET, cases, internal_files, lasting, printed, public_bytes, released

CASES = cases()


@pytest.mark.parametrize("case", CASES)
def test_the_same_seed_releases_the_same_public_bytes(case: str, tmp_path: Path) -> None:
    place = released(case, tmp_path)
    then, now = public_bytes(SET / case / BUNDLE), public_bytes(place / BUNDLE)
    assert sorted(now) == sorted(then)
    assert [name for name in then if now[name] != then[name]] == []
    assert internal_files(place / BUNDLE) == internal_files(SET / case / BUNDLE)
    for name, text in printed(place):
        assert lasting(text) == lasting((SET / case / PRINTED / f"{name}.json").read_text(encoding="utf-8")), name


@pytest.mark.parametrize("case", CASES)
def test_a_bundle_made_before_is_read_and_passes(case: str, tmp_path: Path) -> None:
    bundle = shutil.copytree(SET / case / BUNDLE, tmp_path / BUNDLE)
    assert audit_bundle(bundle).problems == ()


@pytest.mark.parametrize("path", sorted((SET / "specifications").glob("*.json")), ids=lambda path: path.stem)
def test_a_specification_written_before_means_the_same(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert to_json(from_json(text)) == text
