"""README.md of a release: the facts it states, the page they make, and the facts that a page states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stirred.report.release import NOTHING
from stirred.spec.specification import Specification
from stirred.spec.text import code, plain, raw, sentence

_CONCLUDE: Final = "## What you may conclude\n\n"
_PROMISE: Final = (
    "- What is promised about confidentiality, and relative to what, is in specification.md and report.html.\n"
)
_FILES: Final = "\n## Files\n\n"
_PAGES: Final = "- `specification.json`, `specification.md`: the promise; `report.html`: the same with figures\n"
_PURPOSE: Final = "Purpose: "
_PREPARED: Final = (
    "First, every record was changed by rules fixed beforehand. Exact figures are those after preparation."
)
WEAK_POINTS: Final = "The protection has known weak points: "
NO_RECORDS: Final = "There is no file of records: the promise is about the {} alone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Readme:
    """What the page for a reader who has only the public folder states, as plain text.

    ``conclusions`` stand before the line that says where the promise is, ``further`` sentences after it; ``files`` are
    places with what is in them.
    """

    title: str
    method: str
    purpose: str = ""
    conclusions: Sequence[str] = ()
    further: Sequence[str] = ()
    files: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()

    def page(self, specification: Specification) -> str:
        """Return the page of a release with this promise."""
        lines = [f"# {plain(self.title)}", "", plain(self.method), ""]
        if specification.budget.is_unbounded:
            lines += [f"**{NOTHING}: the loss is infinite, and a person accepted that by name.**", ""]
        if self.purpose:
            lines += [f"{_PURPOSE}{plain(self.purpose)}", ""]
        conclusions = "".join(f"- {sentence(each)}\n" for each in self.conclusions)
        further = "".join(f"- {plain(each)}\n" for each in self.further)
        steps = [f"- {code(column)}: {plain(words)}" for column, words in specification.domain.prepared]
        prepared = "\n".join(["", "## What was prepared", "", _PREPARED, "", *steps, ""]) if steps else ""
        files = "".join(f"- {code(place)}: {sentence(words)}\n" for place, words in self.files)
        notes = "".join(f"\n{sentence(each)}\n" for each in self.notes)
        head = "\n".join(lines)
        return f"{head}\n{_CONCLUDE}{conclusions}{_PROMISE}{further}{prepared}{_FILES}{files}{_PAGES}{notes}"

    @classmethod
    def read(cls, page: str) -> Readme:
        """Return what a page states, as far as it is one of ours: only then its facts make the same page again."""
        head, _, rest = page.partition(_CONCLUDE)
        first, files = rest.partition(_FILES)[::2]
        conclusions, further = first.partition(_PROMISE)[::2]
        listed, notes = files.partition(_PAGES)[::2]
        title, method = (*head.split("\n"), "", "", "")[:3:2]
        purpose = [line.removeprefix(_PURPOSE) for line in head.split("\n") if line.startswith(_PURPOSE)]
        return cls(
            title=raw(title.removeprefix("# ")),
            method=raw(method),
            purpose=raw("".join(purpose)),
            conclusions=tuple(_bullets(conclusions)),
            further=tuple(_bullets(further.partition("\n## ")[0])),
            files=tuple((place.removeprefix("`"), words) for place, _, words in _places(listed)),
            notes=tuple(raw(line) for line in notes.split("\n") if line),
        )


def known_notes(public: Path) -> set[str]:
    """Return every sentence that may stand below the list of files, as the page of a release in this folder has it."""
    return {*map(NO_RECORDS.format, ("tables", "estimates")), *in_parts(public)}


def in_parts(public: Path) -> Iterator[str]:
    """Yield a remark where long tables are folders."""
    if names := [path.name for path in sorted(public.iterdir()) if path.is_dir() and path.suffix]:
        yield (
            f"Long tables are folders of parts ({', '.join(f'`{name}`' for name in names)}): read all files of such a "
            "folder, `part-00000` and on, in the order of their names, as one table. All have the same columns."
        )


def _bullets(text: str) -> Iterator[str]:
    return (raw(line.removeprefix("- ")) for line in text.split("\n") if line)


def _places(text: str) -> Iterator[tuple[str, str, str]]:
    return (bullet.partition("`: ") for bullet in _bullets(text))
