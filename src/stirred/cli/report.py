"""`stirred report`: an edition of the report of a release, and releases side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, Place, arg, opt
from stirred.cli.output import bullets, emit_json, facts, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stirred.report.editions import Edition

_OWN = "show"


class _OrBundle(TyperGroup):
    """A group whose first word is a command, or else the bundle of the command ``show``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in where it is left out."""
        if args and args[0] not in (*self.commands, "--help"):
            args = [_OWN, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_OrBundle,
    help="Hand out a report, or set releases side by side. "
    "`stirred report BUNDLE` is short for `stirred report show BUNDLE`.",
    no_args_is_help=True,
)
Which = Annotated[str, opt("--edition NAME", "public, or internal with errors against the truth.")]
Out = Annotated[Place, opt("--out FILE", "Write the page here, one file; must not exist.")]


@app.command(_OWN)
def show(
    bundle: Annotated[Path, arg("BUNDLE", "A finished release, or what was published of it.")],
    edition: Which = "public",
    out: Out = None,
    json: Json = False,
) -> None:
    """Hand out an edition of a report, as it was made with the release.

    `show` may be left out. The page is compared with the checksums of the release.
    """
    from stirred.report.editions import edition_of
    from stirred.spec.explanation import promise_rows

    found = edition_of(bundle, edition)
    if out is not None:
        _write(out, found.page.read_bytes(), bundles=[bundle], internal=edition == "internal")
    if json:
        emit_json({"edition": edition, "page": str(out or found.page), **_facts(found)})
        return
    odd = [(each["what"], each["in_words"]) for each in (found.facts.get("validity") or {}).get("findings", ())]
    public = [(each["what"], f"{each['public']}: {each['words']}") for each in found.facts.get("transparency", ())]
    facts([("edition", edition), ("page", str(out or found.page)), *promise_rows(found.specification)])
    facts([*odd, *public] or [("facts", "this page was made before reports carried their facts: read the page")])


@app.command()
def compare(
    bundles: Annotated[list[Path], arg("BUNDLE...", "Two finished releases or more.")],
    edition: Which = "public",
    out: Out = None,
    json: Json = False,
) -> None:
    """Set releases side by side: promise, exposure, accuracy, validity.

    Nothing is ranked across flavors.
    """
    from stirred.report.editions import comparison_of, edition_of, in_words, names_of, side_by_side, verdicts

    if len(bundles) < 2:
        what, remedy = "one release has nothing beside it", "name two bundles or more"
        raise bad_plan(what, where="stirred report compare", remedy=remedy)
    found = [edition_of(bundle, edition) for bundle in bundles]
    internal = edition == "internal"
    if out is not None:
        _write(out, comparison_of(found, internal=internal).encode(), bundles=bundles, internal=internal)
    seen = verdicts(found)
    if json:
        named = zip(names_of(found), found, strict=True)
        emit_json({"releases": [{"name": name, **_facts(each)} for name, each in named], "compared": _compared(seen)})
        return
    table(*side_by_side(found))
    bullets([f"{name}: {in_words(each)}" for name, each in seen])


def _facts(found: Edition) -> dict[str, Any]:
    from stirred.spec.document import to_document

    inside = {"measures": dict(found.measures)} if found.measures else {}
    return {"bundle": str(found.bundle), "specification": to_document(found.specification), **found.facts, **inside}


def _compared(seen: Sequence[tuple[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"what": name, "overall": each.overall, "because": each.because,
         "blocks": {b.block: {"verdict": b.verdict, "reason": b.reason} for b in each.blocks}}
        for name, each in seen
    ]  # fmt: skip


def _write(out: Path, page: bytes, *, bundles: Sequence[Path], internal: bool) -> None:
    """Write a page; what is computed from confidential data only its owner may read, and not among public files."""
    if internal and any(out.resolve().is_relative_to((bundle / "public").resolve()) for bundle in bundles):
        what, remedy = "the internal edition must not stand among public files", "choose a place inside the agency"
        raise bad_plan(what, where=str(out), remedy=remedy)
    if out.exists():
        raise bad_plan("something is already there", where=str(out), remedy="choose a new file")
    from stirred.data.place import file_at

    with file_at(out, private=internal) as half:
        half.write_bytes(page)
