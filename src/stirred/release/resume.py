"""Finishing a release that was drawn and died: the same files, plan and key make the same release, at no cost."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from stirred.data.place import Place, reopened
from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.protocol import Progress
from stirred.randomness.entropy import Entropy
from stirred.release.bundle import bundle_in
from stirred.release.engine import at_hand, working
from stirred.release.files import Files
from stirred.release.ledger import Ledger, LedgerError
from stirred.release.ledger.entry import ABORTED, RESERVED
from stirred.release.ledger.recover import whole_bundle
from stirred.release.plan_file import PlanFile
from stirred.release.prepared import Prepared, prepare
from stirred.release.reading import input_checksums
from stirred.release.rehearsal import rehearse
from stirred.release.reservation import Reservation, tell_how_to_finish
from stirred.release.run import Log, RunRecord, draw_key, make_bundle, premises, release_request
from stirred.spec.problems import Problem


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
        place.give_up()  # the bundle appeared just before its run died; only the ledger was not told
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
    files = prepared.plan.files(prepared.mechanism, prepared.data)
    place.clear()
    with working(prepared.engine, plan_file, place, progress):
        rehearse(place, prepared, files, request)
        _make_again(place, prepared, files, reservation, progress)


def _make_again(
    place: Place, prepared: Prepared, files: Files, reservation: Reservation, progress: Progress | None
) -> None:
    assert reservation.entry is not None
    with bundle_in(place) as folder:
        log = Log(folder)
        log.add("resumed", records=prepared.data.households.height)
        if not reservation.entry.drawn:
            reservation.draw()
        key = place.key
        entropy = draw_key(reservation, place, None) if key is None else Entropy.from_kept(key, same_release=True)
        make_bundle(folder, prepared, files, entropy, reservation, log, progress)


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
