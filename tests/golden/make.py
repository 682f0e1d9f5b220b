"""Make the golden set: what today's version releases, keeps and prints, for the versions after it to be held to.

``python -m tests.golden.make`` releases every plan of the set with the same seed and writes bundles and printed JSON in
place of those that are there; a change of a public byte then shows in the diff of the commit that made it. Plans and
inputs are never made again. Names limit it: ``python -m tests.golden.make permutation``. The ledger with its published
folders is made by name alone, ``python -m tests.golden.make account``: it is there to be read. Bundles below
``set/earlier`` are of mechanisms that are no longer released as they were, and are only read.
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
from tests.world import stirred

SET = Path(__file__).parent / "set"
SEED = "golden"
BUNDLE = "bundle"
PRINTED = "printed"
ACCOUNT = "account"
LEDGER = "homes.ledger"
# Printed with --json for every plan and its bundle, and again by the tests.
COMMANDS = {
    "plan": ["plan", "plan.toml"],
    "audit": ["check", BUNDLE],
    "explain": ["spec", "show", "--explain", f"{BUNDLE}/public/specification.json"],
}
OF_ACCOUNT = {
    "total": ["ledger", "total", LEDGER],
    "show": ["ledger", "show", LEDGER],
    "policy": ["ledger", "policy", LEDGER],
    "verify": ["ledger", "verify", LEDGER],
    "unswap": ["unswap", "swap/tables/county-x-tenure.csv", "--bundle", "swap", "--out", "corrected.csv"],
    "compare": ["compare", "swap", "tables", "--beta", "0.05"],
}
# What differs between two runs of the same plan.
_VOLATILE = {"created", "at", "seconds", "duration"}


def cases() -> list[str]:
    """Return the names of the plans of the set."""
    return sorted(path.parent.name for path in SET.glob("*/plan.toml"))


def released(case: str, folder: Path) -> Path:
    """Copy a plan and its inputs to a folder and release it with the seed; return where it is."""
    place = folder / case
    shutil.copytree(SET / case, place, ignore=shutil.ignore_patterns(BUNDLE, PRINTED))
    done = stirred("release", "plan.toml", "--seed", SEED, "--quiet", cwd=place)
    assert done.returncode == 0, f"{case}: {done.stderr}"
    (place / "out").rename(place / BUNDLE)
    return place


def printed(place: Path, commands: dict[str, list[str]] = COMMANDS) -> Iterator[tuple[str, str]]:
    """Yield what commands print in a folder."""
    for name, command in commands.items():
        yield name, stirred(*command, "--json", cwd=place).stdout


def lasting(text: str) -> object:
    """Return printed JSON without what differs between two runs, or in last digits between two processors."""

    def kept(value: object) -> object:
        if isinstance(value, dict):
            return {key: kept(each) for key, each in value.items() if key not in _VOLATILE}
        if isinstance(value, float):
            return float(f"{value:.12g}")
        return [kept(each) for each in value] if isinstance(value, list) else value

    return kept(json.loads(text))


def public_bytes(bundle: Path) -> dict[str, bytes]:
    """Return all public files of a bundle."""
    public = bundle / "public"
    return {str(path.relative_to(public)): path.read_bytes() for path in sorted(public.rglob("*")) if path.is_file()}


def internal_files(bundle: Path) -> list[str]:
    """Return the names of all files that stay inside."""
    return sorted(str(path.relative_to(bundle)) for path in (bundle / "internal").rglob("*") if path.is_file())


def make(case: str) -> None:
    """Release one plan of the set, and keep the bundle and what commands print of it."""
    with tempfile.TemporaryDirectory() as scratch:
        place = released(case, Path(scratch))
        for name in (BUNDLE, PRINTED):
            shutil.rmtree(SET / case / name, ignore_errors=True)
        shutil.copytree(place / BUNDLE, SET / case / BUNDLE)
        manifest = SET / case / BUNDLE / "manifest.json"  # it keeps where some inputs were, and that is of no interest
        manifest.write_text(manifest.read_text(encoding="utf-8").replace(f"{place}/", ""), encoding="utf-8")
        _keep(printed(place), SET / case / PRINTED)


def make_account() -> None:
    """Release the plans of the account without a seed, into a ledger with a policy, and publish them."""
    place = SET / ACCOUNT
    plans = sorted(path.stem for path in place.glob("*.toml") if path.stem not in ("policy", "codebook"))
    for path in (LEDGER, PRINTED, *plans):
        (place / path).unlink() if (place / path).is_file() else shutil.rmtree(place / path, ignore_errors=True)
    # The ledger keeps where a bundle was made: a place that says nothing of who made the set.
    scratch = Path(tempfile.gettempdir()) / "stirred-golden"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        work = shutil.copytree(place, scratch / ACCOUNT)
        _run("ledger", "init", LEDGER, "--dataset", "homes", "--policy", "policy.toml", cwd=work)
        for plan in plans:
            _run("release", f"{plan}.toml", "--quiet", cwd=work)
            _run("publish", f"{plan}-bundle", plan, cwd=work)
            shutil.copytree(work / plan, place / plan)
        shutil.copy(work / LEDGER, place / LEDGER)
        _keep(printed(work, OF_ACCOUNT), place / PRINTED)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def make_specifications() -> None:
    """Keep every entry of the catalogue as a document."""
    entries = ((name, to_json(catalogue.load(name).specification)) for name in catalogue.names())
    _keep(entries, SET / "specifications")


def _run(*command: str, cwd: Path) -> None:
    done = stirred(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}: {done.stderr}"


def _keep(texts: Iterator[tuple[str, str]], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in texts:
        (folder / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or [*cases(), "specifications"]:
        others = {ACCOUNT: make_account, "specifications": make_specifications}
        others[wanted]() if wanted in others else make(wanted)
        print(wanted, flush=True)
