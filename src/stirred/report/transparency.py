"""What of a mechanism is public and what never is; and the section of a report on this and on facial validity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stirred.data.problems import number
from stirred.mechanisms.protocol import Mechanism
from stirred.report.page import paragraph, section, table
from stirred.report.validity import Validity
from stirred.spec.specification import Specification


class TransparencyRow(NamedTuple):
    """One thing about a mechanism: whether it is public, and where it stands or why not."""

    what: str
    public: str  # yes, no, or in part
    words: str


def transparency(
    kind: type[Mechanism],
    settings: Mapping[str, Any],
    specification: Specification,
    *,
    code: str,
    exact: str,
    errors: Sequence[str] = (),
) -> tuple[TransparencyRow, ...]:
    """Return what of a mechanism is public, from its public settings and its specification.

    ``code`` is the package that made the release, with its version; ``exact`` says what is published exactly, and
    ``errors`` are the columns with errors of numbers.
    """
    model = kind.settings_model
    kept = [key for key in model.setting_names() if key not in settings and model.mark(key, "internal")]
    stated = f"{number(len(settings), 'setting')} in specification.json, numbers exactly"
    inside = f"; kept inside: {', '.join(kept)}" if kept else ""
    seeded = "a seed: this is a test run, and whoever knows the seed can undo it"
    return (
        TransparencyRow("the method", "yes", f"{kind.title}, {kind.name} in specification.json"),
        TransparencyRow("its settings", "in part" if kept else "yes", f"{stated}{inside}"),
        TransparencyRow("its law", "yes", "the probabilities of all outputs follow from the method and its settings"),
        TransparencyRow("the code", "yes", code),
        TransparencyRow("what is exact", "yes", f"{exact}; see specification.json"),
        *([TransparencyRow("the error of each number", "yes", f"the columns {', '.join(errors)}")] if errors else []),
        TransparencyRow("the random numbers", "no", seeded if specification.seeded else
              "no key is published; what the operating system gave was destroyed when the release was complete"),
        TransparencyRow("what was drawn", "no", "which records changed, and what was added to a number, stays inside"),
    )  # fmt: skip


def faces_section(validity: Validity | None, shown: Sequence[TransparencyRow]) -> str:
    """Return the section of a report: what looks odd in the files, and what is public of how they came about."""
    if validity is None:  # before the draw there are no files
        return ""
    lead = "Looked for in the public files alone; nothing here is a fault, and nothing was adjusted to hide it."
    rows = [[each.what, each.found, each.in_words] for each in validity.findings]
    skipped = [paragraph(f"Too large to be looked at: {', '.join(validity.skipped)}.", note=True)]
    return section(
        "Facial validity and transparency",
        paragraph(lead),
        table(["what looks odd", "found", "in words"], rows, caption="What looks odd in the public files"),
        *(skipped if validity.skipped else []),
        paragraph("What of the mechanism is public:"),
        table(["what", "public", "where, or why not"], shown, caption="What of the mechanism is public"),
    )
