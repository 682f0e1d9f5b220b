"""What a bundle publishes: data, tables, invariants, specification, and a page for readers."""

from __future__ import annotations

from pathlib import Path

from stirred.data.frames import write_frame
from stirred.mechanisms.protocol import Release
from stirred.release.contents import Contents
from stirred.release.prepared import Prepared
from stirred.spec.document import to_json
from stirred.spec.render import to_markdown
from stirred.spec.specification import Specification


def title_of(prepared: Prepared) -> str:
    """Return what the release is called."""
    return prepared.planned.plan.release.title or f"Release of {prepared.data.name}"


def notes_on(specification: Specification) -> dict[str, str]:
    """Return the Parquet metadata: the notation, and the mark of a test run."""
    notes = {"stirred.specification": specification.notation}
    return {**notes, "stirred.seeded": "test run with a seed, not for publication"} if specification.seeded else notes


def write_public(folder: Path, prepared: Prepared, contents: Contents, release: Release) -> None:
    """Write everything that may leave the house but the report, which tells of the checks."""
    public, specification = folder / "public", release.specification
    for table in prepared.tables:
        write_frame(contents.table(release, table), public / "tables" / f"{table.name}.csv")
    contents.write(release, folder, note=notes_on(specification))
    (public / "specification.json").write_text(to_json(specification), encoding="utf-8")
    page = to_markdown(specification, title=title_of(prepared), method=prepared.mechanism.in_words)
    (public / "specification.md").write_text(page, encoding="utf-8")
    (public / "README.md").write_text(contents.readme(title_of(prepared), public), encoding="utf-8")
