"""The atlas on the command line: what `stirred spec list`, `show` and `map` tell about definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from stirred.cli.option_words import wrong
from stirred.cli.options import Json, Place, opt
from stirred.cli.output import bullets, emit, emit_json, exactly, facts, heading, picked, say, wrapped
from stirred.cli.spec_given import write_new

if TYPE_CHECKING:
    from stirred.spec.catalogue import CatalogueEntry


def entry_facts(entry: CatalogueEntry) -> dict[str, Any]:
    """Return an entry of the catalogue for JSON; a definition with its toys."""
    from stirred.spec.catalogue import atlas

    found = {**picked(entry, "name", "kind", "title"), "notation": entry.specification.notation, "source": entry.source}
    if entry.kind != "definition":
        return found if entry.printed is None else {**found, "printed": entry.printed}
    toy = atlas.toy(entry.name)
    budget = toy.specification.budget.realised
    return {**found, "toy": {"domain": toy.domain, "datasets": len(toy.laws), "words": toy.words,
                             **exactly(budget=budget, broken=toy.broken_loss)}}  # fmt: skip


def toy_rows(entry: CatalogueEntry) -> list[tuple[str, str]]:
    """Return the toys of a definition as a row to print."""
    from stirred.spec.catalogue import atlas

    return [("toy", atlas.toy(entry.name).words)] if entry.kind == "definition" else []


def list_absent(*, json: bool) -> None:
    """List the definitions that are not in the catalogue, and why."""
    from stirred.spec.catalogue import atlas

    if json:
        emit_json([{"name": name, "kind": "absent", "reason": reason} for name, reason in atlas.absent().items()])
        return
    for name, reason in atlas.absent().items():
        heading(name)
        emit(wrapped(reason, first="    ", rest="    "))


def on_the_map(first: CatalogueEntry, second: CatalogueEntry) -> list[str]:
    """Return the arrows that lead from one definition to the other, in whichever direction; none for a release."""
    from stirred.spec.catalogue import atlas

    if {first.kind, second.kind} != {"definition"}:
        return []
    found = atlas.path(first.name, second.name) or atlas.path(second.name, first.name)
    return [f"{arrow.stronger} implies {arrow.weaker}: {arrow.because}" for arrow in found]


def draw_map(out: Annotated[Place, opt("--out FILE", "Draw the map here, as SVG.")] = None, json: Json = False) -> None:
    """Which definition implies which, and by what factor.

    Factors are decided on small domains; with --out FILE.svg the map is drawn.
    """
    from stirred.report.atlas_map import atlas_svg
    from stirred.spec.catalogue import atlas
    from stirred.spec.document import number_out

    if out is not None and out.suffix != ".svg":
        raise wrong("the map is drawn as SVG", where=f"--out {out}", remedy=f"write {out.with_suffix('.svg')}")
    arrows = atlas.arrows()
    if out is not None:
        write_new(out, atlas_svg(arrows))
        say(f"wrote {out}")
    if json:
        numbers = [{key: None if value is None else number_out(value) for key, value in
                    (("factor", arrow.there), ("factor_back", arrow.back))} for arrow in arrows]  # fmt: skip
        told = [picked(arrow, "stronger", "weaker", "how", "words", "because") for arrow in arrows]
        emit_json([{**one, **two} for one, two in zip(told, numbers, strict=True)])
        return
    if out is None:
        facts([(f"{arrow.stronger} -> {arrow.weaker}", arrow.because) for arrow in arrows])
        emit()
        bullets(["A -> B: every mechanism that satisfies A satisfies B, at the factor times A's budget."])
