"""`stirred publish`: the public part of a bundle, and nothing else, to where readers find it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stirred.cli.output import bullets, emit, emit_json, facts, heading


def publish(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder of a finished release.")],
    place: Annotated[Path, typer.Argument(metavar="DEST", help="The folder to make; must not exist.")],
    harmless: Annotated[
        list[str] | None,
        typer.Option(
            "--harmless", metavar="COLUMN", help="Column that differs for every record and identifies nobody; repeat."
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option("--ledger", metavar="LEDGER", help="Where the ledger is now, if not where it was at the release."),
    ] = None,
    called: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="What the ledger calls the place (default: the name of the folder)."),
    ] = None,
    who: Annotated[
        str | None, typer.Option("--who", metavar="NAME", help="Who publishes (default: the user at work).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and scan; copy nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")] = False,
) -> None:
    """Check and scan a bundle, and copy its public part to a folder.

    Any doubt refuses, and then nothing is copied.
    """
    from stirred.release.publish import CHECKSUMS
    from stirred.release.publish import publish as publish_bundle

    done = publish_bundle(
        bundle, place, harmless=harmless or (), ledger=ledger, called=called, who=who, dry_run=dry_run
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
