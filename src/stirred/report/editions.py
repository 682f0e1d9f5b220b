"""The report of a finished release, as it was made: which edition there is, its facts, and several side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from stirred.data.bundle import Manifest, checksum, public_folder, published_specification
from stirred.data.place import CHECKSUMS, MANIFEST
from stirred.data.problems import bad_file, bad_plan
from stirred.data.uniqueness import share_in_words
from stirred.report.facts import facts_in
from stirred.report.page import bullets, page, paragraph, section, table
from stirred.spec.comparison import Comparison, compare
from stirred.spec.explanation import published_exactly, why_nothing
from stirred.spec.specification import Specification

EDITIONS = ("public", "internal")
_NOT_SAID = "not said"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """One edition of the report of a bundle; ``facts`` are those of the public page, ``measures`` are internal."""

    bundle: Path
    page: Path
    specification: Specification
    facts: Mapping[str, Any]
    measures: Mapping[str, Mapping[str, float]]


def edition_of(bundle: Path, edition: str) -> Edition:
    """Return an edition of a bundle, or of what was published of it; refuse a page that is not as it was made."""
    if edition not in EDITIONS:
        raise bad_plan(f"'{edition}' is not known", where="--edition", remedy="write public or internal")
    public = public_folder(bundle)
    if edition == "internal" and not (bundle / "internal" / "report.html").exists():
        what = "this is what was published: it has no internal part" if public == bundle else "it has no internal part"
        remedy = "name the whole bundle, inside the agency; or ask for --edition public"
        raise bad_file(what, where=str(bundle), remedy=remedy)
    own = (public if edition == "public" else bundle / "internal") / "report.html"
    for path in (public / "report.html", own):
        _check(bundle, path)
    specification = published_specification(public)
    if specification is None:
        what, remedy = "its specification.json cannot be read", "name the folder of a finished release"
        raise bad_file(what, where=str(public), remedy=remedy)
    inside = bundle / "internal" / "measures.json"
    return Edition(
        bundle=bundle,
        page=own,
        specification=specification,
        facts=facts_in((public / "report.html").read_text(encoding="utf-8")),
        measures=json.loads(inside.read_text("utf-8")) if edition == "internal" and inside.exists() else {},
    )


def _check(bundle: Path, path: Path) -> None:
    """Refuse a page that is missing, other than manifest or published checksums say, or of which they say nothing."""
    if not path.exists():
        raise bad_file("there is no report", where=str(path), remedy="name the folder of a finished release")
    # The public folder of a bundle has its checksums beside it.
    inner = bundle.resolve().name == "public" and (bundle.resolve().parent / MANIFEST).exists()
    home = bundle.resolve().parent if inner else bundle.resolve()
    said = _recorded(home).get(path.resolve().relative_to(home).as_posix())
    if said is None:
        what = f"no checksum in {MANIFEST} or {CHECKSUMS} says that it is the page made with the release"
        remedy = "name the whole bundle, or the folder that `stirred publish` made"
        raise bad_file(what, where=str(path), remedy=remedy)
    if said != checksum(path):
        what, remedy = "it is not the page that was made with the release", "find out who changed it"
        raise bad_file(what, where=str(path), remedy=remedy)


def _recorded(home: Path) -> dict[str, str]:
    """Return the checksums of a bundle, or of what was published; none where they cannot be read."""
    if (home / MANIFEST).exists():
        manifest = Manifest.read((home / MANIFEST).read_bytes())
        return {} if manifest is None else dict(manifest.files)
    if not (home / CHECKSUMS).exists():
        return {}
    lines = (home / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    return {file: digest for digest, _, file in (line.partition("  ") for line in lines)}


# ---- side by side -----------------------------------------------------------------------------------------


def names_of(found: Sequence[Edition]) -> list[str]:
    """Return a short name for each bundle; where two would be alike, the whole path."""
    short = [each.bundle.resolve().name for each in found]
    return short if len({*short}) == len(short) else [str(each.bundle) for each in found]


def side_by_side(found: Sequence[Edition]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: promise, exposure, accuracy and facial validity, in the order that was given."""
    promises = [one.specification for one in found]
    rows = [
        ["who", *(each.domain.name for each in promises)],
        ["where: held fixed", *map(published_exactly, promises)],
        ["what", *(f"one {each.input_premetric.unit}" for each in promises)],
        ["how: measured in", *(each.output_premetric.measured for each in promises)],
        ["how much", *(f"{p.budget_text}{': nothing is promised' if why_nothing(p) else ''}" for p in promises)],
    ]
    rows.append(["alone with what is exact", *(_exposed(one.facts.get("exposure")) for one in found)])
    rows.append(["typical error", *(_accurate(one.facts.get("accuracy")) for one in found)])
    if any(one.measures for one in found):
        rows.append(["error against the truth", *(_measured(one.measures) for one in found)])
    odd = [
        {
            each["what"]: f"{each['found']:,}" if each["looked_at"] else "nothing to look at"
            for each in (one.facts.get("validity") or {}).get("findings", ())
        }
        for one in found
    ]
    for what in dict.fromkeys(name for each in odd for name in each):
        rows.append([what, *(each.get(what, _NOT_SAID) for each in odd)])
    return ["", *names_of(found)], rows


def _exposed(found: Mapping[str, Any] | None) -> str:
    if not found:
        return "nobody: no table of records is exact" if found is None else _NOT_SAID
    return f"{share_in_words(found['unique'], found['records'])} of the {found['of']} ({', '.join(found['keys'])})"


def _accurate(found: Sequence[Mapping[str, Any]] | None) -> str:
    return "; ".join(f"{e['table']}, {e['size']}: {e['error']:.3g}" for e in found) if found else _NOT_SAID


def _measured(found: Mapping[str, Mapping[str, float]]) -> str:
    told = (f"{title}: {each['mean_absolute_error']:.4g} on average" for title, each in found.items())
    return "; ".join(told) or _NOT_SAID


def verdicts(found: Sequence[Edition]) -> list[tuple[str, Comparison]]:
    """Return how each promise after the first stands to it, block by block; overall only where a theorem decides."""
    first, *others = found
    names = names_of(found)
    return [
        (f"{name} beside {names[0]}", compare(other.specification, first.specification))
        for name, other in zip(names[1:], others, strict=True)
    ]


def in_words(seen: Comparison) -> str:
    """Say in which blocks two promises differ, and whether one is stronger."""
    blocks = "; ".join(f"{each.question}: {each.verdict}" for each in seen.blocks)
    return f"{blocks}. Overall: {seen.overall or 'no verdict'}. {seen.because}"


def comparison_of(found: Sequence[Edition], *, internal: bool) -> str:
    """Return the page; one with errors against the truth says that it stays inside."""
    from stirred.report.release import INTERNAL_STAMP, PUBLIC_STAMP

    title = "Releases side by side"
    header, rows = side_by_side(found)
    lead = "In the order that was given, which is no ranking: losses of different flavors do not compare."
    return page(
        title,
        [
            f"{INTERNAL_STAMP if internal else PUBLIC_STAMP}<h1>{escape(title)}</h1>",
            section("What each promises, exposes and costs", paragraph(lead), table(header, rows, caption=title)),
            section("Block by block", bullets([f"{name}: {in_words(seen)}" for name, seen in verdicts(found)])),
        ],
    )
