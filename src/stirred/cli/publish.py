"""`stirred publish`: the public part of a bundle, and nothing else, to where readers find it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from stirred.cli.options import Json, Names, Text, arg, opt
from stirred.cli.output import bullets, emit, emit_json, facts, heading


def publish(
    bundle: Annotated[Path, arg("BUNDLE", "The folder of a finished release.")],
    place: Annotated[Path, arg("DEST", "The folder to make; must not exist.")],
    accept: Annotated[
        Names,
        opt(
            "--accept NAME",
            "Doubt that you accept, such as identifier:income; repeat. Those that the release accepted need no "
            "repeating.",
        ),
    ] = None,
    ledger: Annotated[
        Text, opt("--ledger LEDGER", "Where the ledger is now, if not where it was at the release.")
    ] = None,
    called: Annotated[
        Text, opt("--as NAME", "What the ledger calls the place (default: the name of the folder).")
    ] = None,
    who: Annotated[Text, opt("--who NAME", "Who publishes (default: the user at work).")] = None,
    require_ledger: Annotated[bool, opt("--require-ledger", "Refuse a release that no ledger accounts for.")] = False,
    dry_run: Annotated[bool, opt("--dry-run", "Check and scan; copy nothing.")] = False,
    json: Json = False,
) -> None:
    """Check and scan a bundle, and copy its public part to a folder.

    Any doubt refuses, and then nothing is copied.
    """
    from stirred.data.place import CHECKSUMS
    from stirred.release.publish import publish as publish_bundle

    done = publish_bundle(
        bundle,
        place,
        accept=accept or (),
        ledger=ledger,
        called=called,
        who=who,
        require_ledger=require_ledger,
        dry_run=dry_run,
    )
    if json:
        emit_json(
            {
                "bundle": str(bundle),
                "published": None if dry_run else str(place),
                "as": done.called,
                "dry_run": dry_run,
                "files": dict(done.files),
                "checksums": None if dry_run else str(place / CHECKSUMS),
                "checks": list(done.checks),
            }
        )
        return
    heading(f"{bundle}: {'nothing speaks against publishing it' if dry_run else 'published'}")
    bullets(done.checks)
    emit()
    if dry_run:
        facts([("files", f"{len(done.files)}, not copied")])
    else:
        facts([("folder", str(place)), ("files", f"{len(done.files)}; {CHECKSUMS} lets readers check them")])
