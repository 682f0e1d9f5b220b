"""Make the golden set: what today's version releases, keeps and prints, for the versions after it to be held to.

``python -m tests.golden.make`` releases every plan of the set with the same seed and writes bundles and printed JSON
in place of those that are there; a change of a public byte then shows in the diff of the commit that made it. Plans
and inputs are never made again. A name limits it to one plan: ``python -m tests.golden.make permutation``.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stirred.spec import catalogue
from stirred.spec.document import to_json
from tests.release.bundles import stirred

SET = Path(__file__).parent / "set"
SEED = "golden"
BUNDLE = "bundle"
PRINTED = "printed"
# Printed with --json for every plan, and again by the tests. The first two are of the plan, the others of its bundle.
COMMANDS = {
    "plan": ["plan", "plan.toml"],
    "audit": ["audit", "bundle", BUNDLE],
    "explain": ["spec", "explain", f"{BUNDLE}/public/specification.json"],
}
# What differs between two runs of the same plan.
_VOLATILE = {"created", "at", "seconds", "duration"}


def cases() -> list[str]:
    """Return the names of the plans of the set."""
    return sorted(path.parent.name for path in SET.glob("*/plan.toml"))


def laid_out(case: str, folder: Path) -> Path:
    """Copy a plan with its inputs to a folder, without what was made of it."""
    place = folder / case
    shutil.copytree(SET / case, place, ignore=shutil.ignore_patterns(BUNDLE, PRINTED, "published"))
    return place


def released(case: str, folder: Path) -> Path:
    """Release a plan of the set with its seed; return the folder it was laid out in."""
    place = laid_out(case, folder)
    done = stirred("release", "plan.toml", "--seed", SEED, "--quiet", cwd=place)
    assert done.returncode == 0, f"{case}: {done.stderr}"
    (place / "out").rename(place / BUNDLE)
    return place


def printed(place: Path) -> Iterator[tuple[str, str]]:
    """Yield what the commands print of a plan and its bundle."""
    for name, command in COMMANDS.items():
        done = stirred(*command, "--json", cwd=place)
        yield name, done.stdout


def public_bytes(bundle: Path) -> dict[str, bytes]:
    """Return all public files of a bundle."""
    public = bundle / "public"
    return {str(path.relative_to(public)): path.read_bytes() for path in sorted(public.rglob("*")) if path.is_file()}


def internal_files(bundle: Path) -> list[str]:
    """Return the names of all files that stay inside."""
    return sorted(str(path.relative_to(bundle)) for path in (bundle / "internal").rglob("*") if path.is_file())


def lasting(text: str) -> object:
    """Return printed JSON without what differs between two runs."""

    def kept(value: object) -> object:
        if isinstance(value, dict):
            return {key: kept(each) for key, each in value.items() if key not in _VOLATILE}
        return [kept(each) for each in value] if isinstance(value, list) else value

    return kept(json.loads(text))


def make(case: str) -> None:
    """Release one plan of the set, and keep the bundle and what commands print of it."""
    with tempfile.TemporaryDirectory() as scratch:
        place = released(case, Path(scratch))
        for name in (BUNDLE, PRINTED):
            shutil.rmtree(SET / case / name, ignore_errors=True)
        shutil.copytree(place / BUNDLE, SET / case / BUNDLE)
        (SET / case / PRINTED).mkdir()
        for name, text in printed(place):
            (SET / case / PRINTED / f"{name}.json").write_text(text, encoding="utf-8")


def make_specifications() -> None:
    """Keep every entry of the catalogue as a document."""
    folder = SET / "specifications"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in catalogue.names():
        (folder / f"{name}.json").write_text(to_json(catalogue.load(name).specification), encoding="utf-8")


if __name__ == "__main__":
    for case in sys.argv[1:] or cases():
        make(case)
        print(case, flush=True)
    if not sys.argv[1:]:
        make_specifications()
