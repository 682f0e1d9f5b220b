"""The points of a publication at which it may die."""

from __future__ import annotations

from stirred.data import place
from stirred.release import publish
from stirred.release.ledger import Ledger
from tests.release.killed_run import patched

POINTS = ("copied", "not begun", "begun", "synced", "opened", "moved", "published")


def arrange(point: str) -> None:
    """Make the process die at a point."""
    if point == "not begun":
        patched(Ledger, "begin_publication", before=True)
    elif point == "begun":
        patched(Ledger, "begin_publication")
    elif point == "copied":
        patched(publish, "_copy")
    elif point == "synced":
        patched(publish, "_let_everybody_read", before=True)
    elif point == "opened":
        patched(place, "move_new", before=True)
    elif point == "moved":
        patched(Ledger, "publish", before=True)
    else:
        patched(Ledger, "publish")
