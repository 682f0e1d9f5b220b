"""Publishing: the public part of a bundle, checked and scanned, copied to a new folder; complete or not at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stirred.release.bundle import check_place, folder_at
from stirred.release.reservation import accounted
from stirred.release.scan import scan_bundle
from stirred.spec.problems import Problem, StirredError

CHECKSUMS = "CHECKSUMS.sha256"
_BLOCK = 1 << 20


class PublishError(StirredError):
    """A bundle about which there is a doubt; nothing of it was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Where the public files are (or would be), what that is called, their checksums, and what was checked before."""

    place: Path
    called: str
    files: Mapping[str, str]
    checks: tuple[str, ...]


def publish(
    bundle: Path,
    place: Path,
    *,
    harmless: Sequence[str] = (),
    ledger: str | None = None,
    called: str | None = None,
    who: str | None = None,
    dry_run: bool = False,
) -> Published:
    """Copy `public/` of a finished bundle to the new folder ``place``, with a file of checksums for its readers.

    All doubts are raised at once, and then nothing is written. ``harmless`` names columns that differ for every
    record and still identify nobody. A release that was accounted for must stand committed in its ledger, with
    this manifest; ``ledger`` says where the ledger is, if it has moved. The ledger records who published and where
    to: ``called`` is the name of the place, by default that of the folder. The row is written when everything is
    copied and just before it appears, so that nothing is out that the ledger does not know. A dry run does everything
    but the copying.
    """
    scan = scan_bundle(bundle, harmless=harmless)
    account = accounted(scan.ledger, bundle, ledger=ledger)
    name = (place.absolute().name if called is None else called).strip()
    if problems := [*scan.doubts, *account.doubts, *_wrong_place(bundle, place), *_wrong_name(name)]:
        raise PublishError(problems)
    files = dict(sorted(scan.files.items()))
    if not dry_run:
        with folder_at(place) as folder:
            _copy(bundle / "public", folder, files)
            account.publish(to=name, who=who)
    return Published(place=place, called=name, files=files, checks=(*scan.checks, account.words))


def _wrong_name(name: str) -> Iterator[Problem]:
    if not name:
        yield Problem(what="the place has no name", where="--as", remedy="say what readers call it, such as website")


def _wrong_place(bundle: Path, place: Path) -> Iterator[Problem]:
    if place.resolve().is_relative_to(bundle.resolve()):
        yield Problem(
            what="this is inside the bundle", where=str(place), remedy="choose a folder outside, such as a web server's"
        )
    try:
        check_place(place)
    except StirredError as error:
        yield from error.problems


def _copy(public: Path, folder: Path, files: Mapping[str, str]) -> None:
    """Copy the files, hold what was copied against the manifest, and let everybody read it."""
    for name, recorded in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if _copied(public / name, target) != recorded:
            raise PublishError(
                [
                    Problem(
                        what="it changed between the check and the copy",
                        where=f"public/{name}",
                        remedy="find out who writes to the bundle, and publish again",
                    )
                ]
            )
    lines = [f"{digest}  {name}\n" for name, digest in files.items()]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _copied(source: Path, target: Path) -> str:
    """Copy the bytes of a file, not following a link, and return their SHA-256."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW), "rb") as read, target.open("xb") as written:
        while block := read.read(_BLOCK):
            digest.update(block)
            written.write(block)
    return digest.hexdigest()
