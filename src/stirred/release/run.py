"""From a plan to a bundle: run, write, verify, and only then let it appear; and finish a run that died.

The same files, plan and key make the same release, at no cost.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import polars as pl

from stirred import __version__
from stirred.data.bundle import checksum
from stirred.data.place import Place, claimed, reopened
from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.protocol import Check, Progress, Release, Workplace, check_seeded, plan_doubts
from stirred.mechanisms.registry import package_of
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import bundle_in, mark_seeded, write_manifest
from stirred.release.engine import at_hand, working
from stirred.release.files import public_files, verify_public, write_public
from stirred.release.ledger import Ledger, LedgerError, Request, Total
from stirred.release.ledger.recover import whole_bundle
from stirred.release.ledger.row import ABORTED, RESERVED
from stirred.release.plan_file import PlanFile, plan_from, to_toml
from stirred.release.prepared import Prepared, prepare
from stirred.release.reading import input_checksums
from stirred.release.rehearsal import rehearse
from stirred.release.reports import write_reports
from stirred.release.reservation import Reservation, earlier_entry, reserved, tell_how_to_finish
from stirred.spec.problems import Problem

if TYPE_CHECKING:
    from stirred.release.ledger.samples import Sampling


def run(prepared: Prepared, *, entropy: Entropy | None = None, progress: Progress | None = None) -> Path:
    """Carry a prepared plan out and return the bundle. It is complete, or it does not exist.

    What can fail without a draw fails first. Then the cost is reserved and the draw recorded, and only then a key is
    taken from the operating system (``entropy`` is for tests). A run that dies after its draw can be resumed.
    """
    if entropy is not None:
        Entropy.expected(entropy)
    prepared.refuse()
    check_seeded(prepared.plan, seeded=entropy is not None and entropy.seeded)
    seeded = entropy is not None and entropy.seeded
    request = release_request(prepared, seeded=seeded)
    with claimed(prepared.plan_file.out) as place, working(prepared.engine, prepared.plan_file, place, progress):
        if prepared.ledger is not None:
            prepared.ledger.would(request)  # what the policy forbids is not even rehearsed
        rehearse(place, prepared, request)
        with reserved(prepared.ledger, request, place) as reservation, bundle_in(place) as folder:
            log = Log(folder)
            log.add("started", records=prepared.data.households.height)
            if reservation.facts is not None:
                place.keep_record(RunRecord.of(prepared, ledger=reservation.facts).written)
            reservation.draw()
            drawn = draw_key(reservation, place, entropy)
            make_bundle(folder, prepared, drawn, reservation, log, progress)
    reservation.commit(place.out)
    return place.out


def draw_key(reservation: Reservation, place: Place, entropy: Entropy | None) -> Entropy:
    """Return the randomness of this release alone; with a ledger its key is kept until the bundle appears.

    It is bound to the entry of the ledger, or to a number of its own. A seed is used as it is, since it must repeat
    itself; no ledger accepts one.
    """
    if entropy is not None and entropy.seeded:
        return entropy
    source = Entropy.from_os() if entropy is None else entropy.for_release()
    facts = reservation.facts
    if facts is None:
        return source.child(f"bundle {uuid4()}")
    own = source.child(f"ledger {facts['id']} entry {facts['entry']}")
    place.keep_key(own.kept)
    return own


def make_bundle(
    folder: Path,
    prepared: Prepared,
    entropy: Entropy,
    reservation: Reservation,
    log: Log,
    progress: Progress | None,
) -> None:
    """Release, write, verify and report. All of it follows from the plan, the files and the key."""
    advance = progress or (lambda stage, done, total: None)
    log.add("drawn")
    # Other doubts are known to the release alone.
    own = {doubt.name for doubt in plan_doubts(prepared.plan)}
    accept = [doubt.name for doubt in prepared.accepted if doubt.name in own]
    release = prepared.mechanism.release(
        prepared.data,
        entropy,
        accept=accept,
        plan=prepared.plan,
        progress=advance,
        workplace=Workplace(folder / "internal", folder.parent / "progress"),
    )
    release = replace(release, specification=replace(release.specification, seeded=entropy.seeded))
    log.add("swapped", **release.internal.get("log", {}))
    advance("write", 0, 1)
    write_public(folder, prepared, release, account=reservation.account)
    if not any((folder / "public" / "tables").iterdir()):
        (folder / "public" / "tables").rmdir()
    log.add("written")
    advance("verify", 0, 1)
    checks = verify_public(folder, prepared, release)
    log.add("verified", checks=[f"{check.what}: {check.result}" for check in checks])
    advance("report", 0, 1)
    write_reports(folder, prepared, release, checks)
    prepared.check_unchanged()  # of what was read and checked meanwhile, some came from the files
    if entropy.seeded:
        mark_seeded(folder)
    log.add("complete")
    readme = (folder / "public" / "README.md").read_text(encoding="utf-8")
    facts = {"ledger": reservation.facts, "readme": readme}
    write_manifest(folder, {**_manifest(prepared, release, checks), **facts})
    advance("done", 1, 1)


def release_request(prepared: Prepared, *, seeded: bool) -> Request:
    """Return what the ledger is asked for: the promise of this run, and enough to explain it years later."""
    plan_file, sampled = prepared.plan_file, prepared.plan.sampled
    return Request(
        mechanism=plan_file.mechanism.name,
        specification=replace(prepared.plan.specification, seeded=seeded),
        purpose=plan_file.release.purpose,
        parameters=prepared.parameters,
        inputs=prepared.inputs,
        place=plan_file.out,
        includes=_included(prepared),
        sample=None if sampled is None else sampled[0],
        amplified=sampled is not None,
        sampling=_sampling(sampled),
    )


def _sampling(sampled: tuple[str, Mapping[str, Any]] | None) -> Sampling | None:
    """Return how the sample of a release was drawn; surveys are loaded for releases from samples alone."""
    if sampled is None:
        return None
    from stirred.release.ledger.samples import Sampling

    return Sampling.of(sampled[1])


def _included(prepared: Prepared) -> list[int]:
    """Return the entries whose promises are part of this one, so that a ledger counts them once."""
    ledger = prepared.ledger
    known = [] if ledger is None else [earlier_entry(ledger, table) for table in prepared.plan.includes]
    return [entry.number for entry in known if entry is not None]


def remaining(prepared: Prepared) -> Total | None:
    """Return the total the ledger would have after this run, refusing what its policy forbids; nothing is written."""
    return None if prepared.ledger is None else prepared.ledger.would(release_request(prepared, seeded=False))


class Log:
    """internal/log.jsonl: what happened and when; never a record of the file."""

    def __init__(self, folder: Path) -> None:
        (folder / "public" / "tables").mkdir(parents=True)
        (folder / "internal").mkdir(mode=0o700)
        self.path = folder / "internal" / "log.jsonl"

    def add(self, event: str, **facts: Any) -> None:
        """Append one line."""
        line = json.dumps({"at": _now(), "event": event, **facts})
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _manifest(prepared: Prepared, release: Release, checks: Sequence[Check]) -> dict[str, Any]:
    plan_file, released = prepared.plan_file, prepared.plan.released_columns(prepared.data)
    # A file that a setting names may be gone when somebody audits the bundle.
    mechanism = {**prepared.parameters["mechanism"], **prepared.settings.dumped()}
    return {
        "stirred": __version__,
        "python": platform.python_version(),
        "polars": pl.__version__,
        "created": _now(),
        "engine": dict(prepared.engine.facts),
        "purpose": plan_file.release.purpose,
        "plan": {**prepared.parameters, "mechanism": mechanism},
        "inputs": dict(prepared.inputs),
        "records": prepared.data.households.height,
        "identifiers": list(prepared.data.identifiers),
        "released": {
            "households": [*released.households],
            "persons": [*released.persons],
            "link": next(iter(released.link), None),
        },
        "public_files": public_files(prepared),
        "seeded": release.specification.seeded,
        "doubts": [
            {"name": doubt.name, "what": doubt.what, "refuses": doubt.refuses, "accepted": doubt in prepared.accepted}
            for doubt in prepared.doubts
        ],
        "checks": [asdict(check) for check in checks],
    }


# ---- what is kept, to finish a run that died ---------------------------------------------------------------

_SECRETS: Final = ("password", "sslpassword")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What is kept of a run until its bundle appears: enough to make the same release again, should the run die.

    Decisions are addressed by a key (``stirred.randomness.entropy``): the same plan (``plan`` is its TOML) on the same
    files with the same key is the same release, and to finish it costs nothing. ``premises`` are checksums of all that
    must be equal.
    """

    version: str
    plan: str
    folder: str
    source: str
    premises: Mapping[str, str]
    ledger: Mapping[str, Any]
    libraries: Mapping[str, str]

    @classmethod
    def of(cls, prepared: Prepared, *, ledger: Mapping[str, Any]) -> RunRecord:
        """Return what is kept of a run, before its draw."""
        asked = prepared.plan_file
        plan = asked.changed("release", ledger=_without_password(asked.release.ledger))
        return cls(
            version=__version__,
            plan=to_toml(plan),
            folder=str(asked.folder.absolute()),
            source=asked.source,
            premises=premises(prepared),
            ledger=ledger,
            libraries=libraries(),
        )

    @classmethod
    def read(cls, record: bytes, *, where: str) -> RunRecord:
        """Read what was kept; refuse what another version wrote, whose draws may differ."""
        try:
            kept = cls(**json.loads(record))
            if not isinstance(kept.plan, str):
                raise TypeError("its plan is not text")
        except (ValueError, TypeError) as error:
            raise bad_plan(
                f"what was kept of the release cannot be read ({error})",
                where=where,
                remedy="give the release up: `stirred ledger abort LEDGER ENTRY --reason TEXT`; `stirred ledger show "
                "LEDGER` lists open entries",
            ) from None
        if kept.version != __version__:
            raise bad_plan(
                f"it was begun with stirred {kept.version}, and this is {__version__}",
                where=where,
                remedy=f"finish it with stirred {kept.version}, which makes the same release",
            )
        now = libraries()
        if other := {name: was for name, was in kept.libraries.items() if was != now.get(name)}:
            begun = " and ".join(f"{name} {was}" for name, was in other.items())
            here = " and ".join(f"{name} {now.get(name, 'missing')}" for name in other)
            raise bad_plan(
                f"it was begun with {begun}, and here is {here}, which may read or draw otherwise",
                where=where,
                remedy=f"install {' '.join(f'{name}=={was}' for name, was in other.items())}, and resume again",
            )
        return kept

    @property
    def written(self) -> bytes:
        """Return the record as it is kept."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @property
    def plan_file(self) -> PlanFile:
        """Return the plan, ready to be carried out."""
        content = tomllib.loads(self.plan, parse_float=Decimal)
        return plan_from(content, source=self.source, folder=Path(self.folder))


def premises(prepared: Prepared) -> dict[str, str]:
    """Return the checksums of what a release depends on besides its plan: files, codebook, numbers, codes, code."""
    found = dict(prepared.inputs)
    found |= prepared.mechanism.premises(prepared.plan)
    if prepared.plan_file.codebook is not None:
        found["codebook"] = checksum(prepared.plan_file.codebook)
    settings = json.dumps(prepared.settings.dumped(), sort_keys=True, default=str)
    found["the settings of the mechanism"] = hashlib.sha256(settings.encode()).hexdigest()
    found["the package of the mechanism"] = package_of(prepared.mechanism.name)
    # A version number does not change when somebody edits the code: another draw under the same entry of the ledger.
    for package in dict.fromkeys(("stirred", type(prepared.mechanism).__module__.partition(".")[0])):
        found[f"the code of {package}"] = _code_of(package)
    return found


@cache
def _code_of(package: str) -> str:
    """Return a checksum of all Python files of a package, as they were when a process first asked."""
    module = import_module(package)
    folders = [Path(folder) for folder in getattr(module, "__path__", ())]
    files = {str(path.relative_to(top)): path for top in folders for path in top.rglob("*.py")}
    if not folders and module.__file__ is not None:
        files = {package: Path(module.__file__)}
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0{checksum(path)}\n".encode())
    return digest.hexdigest()


def libraries() -> dict[str, str]:
    """Return the versions of the libraries that read the files and make the draw."""
    return {name: version(name) for name in ("polars", "numpy", "numba")}


def _without_password(ledger: str | None) -> str | None:
    """Return the address of a ledger without its password; who resumes gives it again, as for any other command.

    >>> _without_password("postgresql://ana:secret@db.example.org/census?sslmode=require&password=secret")
    'postgresql://ana@db.example.org/census?sslmode=require'
    >>> _without_password("census.ledger")
    'census.ledger'
    """
    if ledger is None or "://" not in ledger:
        return ledger
    parts = urlsplit(ledger)
    user, at, host = parts.netloc.rpartition("@")
    settings = [each for each in parts.query.split("&") if each.partition("=")[0].lower() not in _SECRETS]
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}", query="&".join(settings)))


def resume(
    out: Path,
    *,
    ledger: str | None = None,
    engine: str | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> Path:
    """Finish the release that was to go to ``out``, under the same entry of its ledger, and return the bundle.

    ``ledger`` says where the ledger is now, if it has moved or its name needs a password; ``engine`` and ``master``
    where to run, if not where the run died: the same key makes the same release anywhere.
    """
    with reopened(out) as place:
        kept = RunRecord.read(place.record or b"", where=str(out))
        plan_file = kept.plan_file.on(engine, master).accounted_in(ledger)
        reservation = _reservation(kept, plan_file, out)
        assert reservation.ledger is not None
        assert reservation.entry is not None
        try:
            _finish(place, kept, plan_file, reservation, progress)
        except BaseException as error:
            tell_how_to_finish(error, reservation.ledger, reservation.entry, place)
            raise
    reservation.commit(out)
    return out


def _finish(
    place: Place, kept: RunRecord, plan_file: PlanFile, reservation: Reservation, progress: Progress | None
) -> None:
    entry = reservation.entry
    assert entry is not None
    if os.path.lexists(place.out):
        if whole_bundle(entry, at=place.out)[0] is None:
            what, remedy = "something else is at the place of the release", "move it away, and resume again"
            raise bad_plan(what, where=str(place.out), remedy=remedy)
        place.give_up()  # the bundle appeared just before its run died; only the ledger did not know
        return
    if place.is_sealed and whole_bundle(entry, at=place.folder)[0] is not None:
        with bundle_in(place):
            return  # everything but its appearance was done
    if place.key is None and place.was_keyed:
        raise bad_plan(
            "the key of the draw is gone, and another key would make another release",
            where=str(place.out),
            remedy=f"give the release up: `{place.abort_command}`; it counts as spent",
        )
    with at_hand(plan_file, shown=lambda: nullcontext(progress)) as plan_file:
        _make_the_same(place, kept, plan_file, reservation, progress)


def _make_the_same(
    place: Place, kept: RunRecord, plan_file: PlanFile, reservation: Reservation, progress: Progress | None
) -> None:
    entry = reservation.entry
    assert entry is not None
    _check_same(kept, input_checksums(plan_file), place)
    prepared = prepare(plan_file, before=entry.number)
    _check_same(kept, premises(prepared), place, whole=True)
    request = release_request(prepared, seeded=False)
    if request.specification != entry.specification:
        remedy = f"give the release up: `{place.abort_command}`"
        raise bad_plan("the plan would promise something else than was reserved", where=str(place.out), remedy=remedy)
    place.clear()
    with working(prepared.engine, plan_file, place, progress):
        rehearse(place, prepared, request)
        with bundle_in(place) as folder:
            log = Log(folder)
            log.add("resumed", records=prepared.data.households.height)
            if not entry.drawn:
                reservation.draw()
            key = place.key
            entropy = draw_key(reservation, place, None) if key is None else Entropy.from_kept(key, same_release=True)
            make_bundle(folder, prepared, entropy, reservation, log, progress)


def _reservation(kept: RunRecord, plan_file: PlanFile, out: Path) -> Reservation:
    """Return the open entry of the release; one that was given up after its draw may still be finished."""
    name = plan_file.ledger or str(kept.ledger["name"])
    opened = Ledger.open(name)
    if opened.id != kept.ledger["id"]:
        raise bad_plan(
            f"{name} is another ledger than that of the release", where=str(out), remedy="name it with --ledger"
        )
    try:
        entry = opened.entry(str(kept.ledger["entry"]))
    except LedgerError as error:
        raise bad_plan(
            f"its entry is not in the ledger ({error.problems[0].what})",
            where=str(out),
            remedy="use the ledger in which it was reserved (--ledger), not an older copy",
        ) from None
    if not (entry.status == RESERVED or (entry.status == ABORTED and entry.drawn)):
        remedy = f"plan the release again; `stirred ledger recover {name}` removes what is kept"
        raise bad_plan(f"entry {entry.number} of the ledger is {entry.state}", where=str(out), remedy=remedy)
    return Reservation(ledger=opened, entry=entry)


def _check_same(kept: RunRecord, now: Mapping[str, str], place: Place, *, whole: bool = False) -> None:
    """Refuse files, settings or code other than those of the draw: the release would be another one."""
    problems = [
        Problem(
            what=f"{name}: not as it was at the draw, and so it would make another release",
            where=str(place.out),
            remedy=f"put it back as it was; or give the release up: `{place.abort_command}`",
        )
        for name in (dict.fromkeys((*now, *kept.premises)) if whole else now)
        if kept.premises.get(name) != now.get(name)
    ]
    if problems:
        raise PlanError(problems)
