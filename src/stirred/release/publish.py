"""Publishing: the public part of a bundle, checked and scanned, copied to a new folder; complete or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field, ValidationError

from stirred.data.bundle import checksum, odd_files
from stirred.data.place import CHECKSUMS, PLAIN, check_place, folder_at, remove_leftovers, sweep
from stirred.data.problems import control_letters
from stirred.release.ledger.row import StrictFacts
from stirred.release.reservation import NOTICE, Accounted, accounted
from stirred.release.scan import Rewriting, Scan, problems_of, scan_bundle
from stirred.spec.doubts import MORE_RUNS, Doubt, DoubtError, refuse_doubts
from stirred.spec.problems import Problem, StirredError, place_of
from stirred.spec.text import rows_text

_BLOCK = 1 << 20
# Doubts that come from the ledger, which knows more by now than the release did.
_OF_LEDGER = (f"{MORE_RUNS}:", "contradicted-by:")
_NOTICE = """# What is not so

The specification in this folder was written when the release was made. Since then the ledger of the data knows more:

{}

The release was published all the same, and a person answers for it by name in the ledger.
"""


class PublishError(StirredError):
    """A bundle about which there is a doubt; nothing of it was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """Where the public files are (or would be), what that is called, their checksums, and what was checked before."""

    place: Path
    called: str
    files: Mapping[str, str]
    checks: tuple[str, ...]

    def __str__(self) -> str:
        return rows_text(
            [("folder", str(self.place)), ("files", ", ".join(self.files)), ("checks", f"{len(self.checks)} passed")]
        )


def publish(
    bundle: Path,
    place: Path,
    *,
    accept: Sequence[str] = (),
    ledger: str | None = None,
    called: str | None = None,
    who: str | None = None,
    require_ledger: bool = False,
    dry_run: bool = False,
) -> Publication:
    """Copy `public/` of a finished bundle to the new folder ``place``, with a file of checksums for its readers.

    All doubts are raised at once, and then nothing is written. ``accept`` names doubts that somebody answers for, in
    addition to those that the release accepted. A release that was accounted for must stand committed in its ledger,
    with this manifest; ``ledger`` says where the ledger is, if it has moved. The ledger records who published, the
    names in ``accept``, and where to: ``called`` is the name of the place, by default that of the folder. One row
    announces the publication before it can appear, and another one says that it did. Tables are written again from
    their values, pages from what they state. The copy is closed to everybody but its owner until all of it is on the
    disk. ``require_ledger`` refuses a release that no ledger accounts for; so does the keeper of the place by a file
    `.stirred-publish.toml` beside it or above. A dry run makes all checks and writes nothing.
    """
    if not dry_run:
        # A run that died when its bundle had appeared may hold other names of files; any may have left its rehearsal.
        remove_leftovers(bundle.absolute())
        sweep(bundle.absolute().parent)
    if odd := [*odd_files(bundle, linked=False)]:
        raise PublishError(odd)
    of_ledger = [name for name in accept if name.startswith(_OF_LEDGER)]
    scan = scan_bundle(bundle, accept=[name for name in accept if name not in of_ledger])
    account = accounted(scan.ledger, bundle, manifest=scan.manifest, ledger=ledger)
    name = (place.absolute().name if called is None else called).strip()
    required: list[Problem] = []
    policy = problems_of(
        lambda: required.extend(policy_for(place, require_ledger=require_ledger).doubts(_ledger_id(scan, account)))
    )
    wrong, false = _false(account, scan.accepted, of_ledger)
    problems = [*scan.doubts, *account.doubts, *wrong, *required, *policy]
    if problems := [*problems, *_wrong_place(bundle, place, name)]:
        raise PublishError(problems)
    files = dict(sorted(scan.files.items()))
    notice = _NOTICE.format("\n".join(f"- {doubt.what}" for doubt in false)) if false else ""
    notices = {NOTICE: notice} if notice else {}
    if not dry_run:
        assert scan.rewriting is not None, "a promise that cannot be read is a doubt"
        appearing = account.publication(to=name, place=place, who=who, accepted=accept)
        with appearing as begin, folder_at(place, finish=_let_everybody_read, private=False) as folder:
            files = _copy(bundle / "public", folder, files, scan.rewriting)
            listed = "".join(f"{digest}  {file}\n" for file, digest in {**files, **_sums(notices)}.items())
            begin(_sha256(listed))
            for file, text in {**notices, CHECKSUMS: listed}.items():
                with os.fdopen(_new_file(folder / file), "w", encoding="utf-8") as written:
                    written.write(text)
    files = {**files, **_sums(notices)}
    said = [f"{doubt.name}: accepted by you, and {NOTICE} tells readers what is not so" for doubt in false]
    return Publication(place=place, called=name, files=files, checks=(*scan.checks, account.words, *said))


def _false(
    account: Accounted, known: Sequence[str], accept: Sequence[str]
) -> tuple[Sequence[Problem], Sequence[Doubt]]:
    """Return the conditions of the promise that the ledger knows to be false: unanswered for, and accepted."""
    try:
        return (), refuse_doubts(account.contradicted(known=known), accept=accept)
    except DoubtError as error:
        return error.problems, ()


def _ledger_id(scan: Scan, account: Accounted) -> str | None:
    """Return the ledger that accounts for a release: that of its manifest, or one in which it was recorded later."""
    if scan.ledger is not None:
        return str(scan.ledger.get("id"))
    return None if account.ledger is None else account.ledger.id


def _sums(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: _sha256(text) for name, text in texts.items()}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _wrong_name(name: str, place: Path) -> Iterator[Problem]:
    if not name:
        yield Problem(what="the place has no name", where="--as", remedy="say what readers call it, such as website")
    for where, text in {"DEST": place.absolute().name, "--as": name}.items():
        if shown := control_letters(text):
            yield Problem(
                what=f"{text[:40]!a} holds letters that cannot be published ({shown})",
                where=where,
                remedy="write it without them",
            )


def _wrong_place(bundle: Path, place: Path, name: str) -> Iterator[Problem]:
    if place.resolve().is_relative_to(bundle.resolve()):
        yield Problem(
            what="this is inside the bundle", where=str(place), remedy="choose a folder outside, such as a web server's"
        )
    yield from problems_of(lambda: check_place(place))
    yield from _wrong_name(name, place)


def _copy(public: Path, folder: Path, files: Mapping[str, str], rewriting: Rewriting) -> dict[str, str]:
    """Copy the files, for their owner alone, and compare what was copied with the manifest; return their checksums.

    Each is written again from what is read of it, as the scan did on trial: nothing else is published.
    """
    found = {}
    for name, recorded in files.items():
        target = folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _copied(public / name, target) != recorded:
            what = "it changed between the check and the copy"
            remedy = "find out who writes to the bundle, and publish again"
            raise PublishError([Problem(what=what, where=f"public/{name}", remedy=remedy)])
        rewriting.write(target, name)
        found[name] = checksum(target)
    return found


def _let_everybody_read(folder: Path) -> None:
    """Open the permissions, those of the folder last: until then only their owner can open it."""
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600)


def _copied(source: Path, target: Path) -> str:
    """Copy the bytes of a file, not following a link, and return their SHA-256."""
    digest = hashlib.sha256()
    if source.is_symlink():
        return ""
    opened = os.open(source, os.O_RDONLY | PLAIN)
    with os.fdopen(opened, "rb") as read, os.fdopen(_new_file(target), "wb") as written:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return ""  # a pipe never ends
        while block := read.read(_BLOCK):
            digest.update(block)
            written.write(block)
    return digest.hexdigest()


POLICY_FILE: Final = ".stirred-publish.toml"


class PublishPolicy(StrictFacts):
    """The rules of a place; ``source`` is the file, empty where there is none."""

    require_ledger: bool = Field(default=False, description="Whether every release must be accounted for in a ledger.")
    ledgers: list[str] = Field(default=[], description="Ids of the ledgers that count; left out, any ledger does.")
    source: str = Field(default="", exclude=True)

    def doubts(self, ledger: str | None) -> Iterator[Problem]:
        """Yield what speaks against a release that is accounted for in the ledger of this id, or in none."""
        where = self.source or "--require-ledger"
        if ledger is None and (self.require_ledger or self.ledgers):
            remedy = (
                "record it, `stirred ledger add LEDGER BUNDLE`, and publish with --ledger LEDGER; another run would "
                "be a second release"
            )
            yield Problem(what="the release was made without a ledger, and one is required", where=where, remedy=remedy)
        elif self.ledgers and ledger not in self.ledgers:
            what = f"the release is accounted for in ledger {ledger}, which is not one that counts here"
            remedy = "publish what is accounted for in one of them, or ask the keeper of the place"
            yield Problem(what=what, where=where, remedy=remedy)


def policy_for(place: Path, *, require_ledger: bool = False) -> PublishPolicy:
    """Return the rules that hold at a place: those of the nearest file above it, and what the command asks for."""
    folders = place.absolute().parents
    found = next((folder / POLICY_FILE for folder in folders if (folder / POLICY_FILE).is_file()), None)
    policy = PublishPolicy() if found is None else _read(found)
    return policy.model_copy(update={"require_ledger": policy.require_ledger or require_ledger})


def _read(path: Path) -> PublishPolicy:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        if "source" in content:
            raise ValueError("source: there is no such key")
        return PublishPolicy.model_validate({**content, "source": str(path)})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"{place_of(first['loc'])}: {first['msg']}"
    except (OSError, ValueError) as error:
        what = str(error)
    remedy = "its keys are require_ledger = true and ledgers = [ids]"
    what = f"the rules of this place cannot be read ({what})"
    raise StirredError([Problem(what=what, where=str(path), remedy=remedy)])
