"""`stirred publish`, `check`, `report` and `unswap`: what is done with a finished release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel

from stirred.audit.bundle import audit_bundle
from stirred.cli.options import Names, Place, Text, argument, command, option
from stirred.cli.output import picked
from stirred.data.frames import read_frame, write_frame
from stirred.data.place import CHECKSUMS, file_at
from stirred.data.problems import bad_plan, number
from stirred.mechanisms.groups import Bullets, FactRows, Outcome, OutputBlock, Title
from stirred.report.editions import Edition, edition_of
from stirred.spec.document import to_document
from stirred.spec.explanation import promise_rows
from stirred.spec.number_text import percent

EditionName = Literal["public", "internal"]
EDITION: Final = "Internal has errors against the truth."


class PublishOptions(BaseModel):
    """`stirred publish`."""

    bundle: Path = argument("BUNDLE", "The folder of a finished release.")
    place: Path = argument("DEST", "The folder to make; must not exist.")
    accept: Names = option(
        "Doubt that you accept, such as identifier:income. Those that the release accepted need no repeating.",
        [], form="NAME",
    )  # fmt: skip
    ledger: Text = option("Where the ledger is now, if not where it was at the release.", form="LEDGER")
    as_: Text = option("What the ledger calls the place (default: the name of the folder).", form="NAME")
    who: Text = option("Who publishes (default: the user at work).", form="NAME")
    require_ledger: bool = option("Refuse a release that no ledger accounts for.", False)
    dry_run: bool = option("Check and scan; copy nothing.", False)


def publish(options: PublishOptions, _: Any) -> Outcome:
    """Check and scan a bundle, and copy its public part to a folder.

    Any doubt refuses, and then nothing is copied.
    """
    from stirred.release.publish import publish as publish_bundle

    bundle, place, dry_run = options.bundle, options.place, options.dry_run
    more = picked(options, "accept", "ledger", "who", "require_ledger", "dry_run")
    done = publish_bundle(bundle, place, called=options.as_, **more)
    values = {
        "bundle": str(bundle),
        "published": None if dry_run else str(place),
        "as": done.called,
        "dry_run": dry_run,
        "files": dict(done.files),
        "checksums": None if dry_run else str(place / CHECKSUMS),
        "checks": list(done.checks),
    }
    copied = [("folder", str(place)), ("files", f"{len(done.files)}; {CHECKSUMS} lets readers check them")]
    rows = [("files", f"{len(done.files)}, not copied")] if dry_run else copied
    title = Title(f"{bundle}: {'ready to publish' if dry_run else 'published'}")
    return Outcome(values=values, blocks=[title, Bullets(done.checks), "", FactRows(rows)])


class BundleCheckOptions(BaseModel):
    """`stirred check`."""

    folder: Path = argument("BUNDLE", "A finished release, or what was published of it.")


def check(options: BundleCheckOptions, _: Any) -> Outcome:
    """Check a finished bundle from its files alone.

    Also what was published of one; every figure is computed again.
    """
    result = audit_bundle(options.folder)
    empty = ", but read the warning" if result.passed and result.warnings else ""
    blocks: list[OutputBlock] = [Title(f"Audit of {options.folder}: {f'passed{empty}' if result.passed else 'failed'}")]
    for title, items in (
        ("Problems", [str(problem) for problem in result.problems]),
        ("Warnings", result.warnings),
        ("Found right", result.checks),
        ("Not checked", result.unchecked),
    ):
        if items:
            blocks += ["", Title(title), Bullets(items)]
    problems = [picked(problem, "what", "where", "remedy") for problem in result.problems]
    values = {"passed": result.passed, "problems": problems, **picked(result, "warnings", "checks", "unchecked")}
    return Outcome(values=values, blocks=blocks, passed=result.passed)


# ---- reports ------------------------------------------------------------------------------------------------


class ReportOptions(BaseModel):
    """`stirred report`."""

    bundle: Path = argument("BUNDLE", "A finished release, or what was published of it.")
    edition: EditionName = option(EDITION, "public")
    out: Place = option("Write the page here, one file; must not exist.")


def report(options: ReportOptions, _: Any) -> Outcome:
    """Hand out an edition of a report.

    As it was made with the release: the page is compared with the checksums of the release.
    """
    found = edition_of(options.bundle, options.edition)
    if options.out is not None:
        internal = options.edition == "internal"
        write_page(options.out, found.page.read_bytes(), bundles=[options.bundle], internal=internal)
    page = str(options.out or found.page)
    odd = [(each["what"], each["in_words"]) for each in (found.facts.get("validity") or {}).get("findings", ())]
    public = [(each["what"], f"{each['public']}: {each['words']}") for each in found.facts.get("transparency", ())]
    return Outcome(
        rows=[("edition", options.edition), ("page", page), *promise_rows(found.specification)],
        blocks=[
            FactRows([*odd, *public] or [("facts", "this page was made before reports carried their facts: read it")])
        ],
        values={"edition": options.edition, "page": page, **edition_facts(found)},
    )


def edition_facts(found: Edition) -> dict[str, Any]:
    """Return what a report says for JSON."""
    inside = {"measures": dict(found.measures)} if found.measures else {}
    return {"bundle": str(found.bundle), "specification": to_document(found.specification), **found.facts, **inside}


def write_page(out: Path, page: bytes, *, bundles: Sequence[Path], internal: bool) -> None:
    """Write a page; what is computed from confidential data only its owner may read, and not among public files."""
    if internal and any(out.resolve().is_relative_to((bundle / "public").resolve()) for bundle in bundles):
        what, remedy = "the internal edition must not stand among public files", "choose a place inside the agency"
        raise bad_plan(what, where=str(out), remedy=remedy)
    if out.exists():
        raise bad_plan("something is already there", where=str(out), remedy="choose a new file")
    with file_at(out, private=internal) as half:
        half.write_bytes(page)


# ---- correcting a published table -------------------------------------------------------------------------------


class UnswapOptions(BaseModel):
    """`stirred unswap`."""

    table: Path = argument("TABLE.csv", "A published table in long form: variables and count.")
    bundle: Path = option("The bundle it belongs to, or its public folder.", ..., form="FOLDER")
    out: Path = option("The corrected table: CSV or Parquet.", ...)
    project: bool = option("Add the nearest table that the margins allow, without negative cells.", False)
    level: float = option("Of the confidence intervals.", 0.95)


def unswap(options: UnswapOptions, _: Any) -> Outcome:
    """Correct a table for swapping, from public files alone.

    Gives unbiased estimates, standard errors and intervals.
    """
    from stirred.inference.unswap import correct

    table, out = options.table, options.out
    found = correct(read_frame(table), options.bundle, level=options.level, project=options.project, where=str(table))
    _check_out(out, table=table, bundle=options.bundle)
    with file_at(out, private=False) as half:
        write_frame(found.table, half)
    rows = [("table", f"{' x '.join(found.variables)}, {number(found.table.height, 'cell')}")]
    if not found.exact:
        agreeing = "the counts that agree with the estimate, within what the margins allow"
        rows += [
            ("corrected", f"the correction moves {100 * found.moved:.1f}% of the table's total to other cells"),
            ("intervals", f"{percent(found.level, digits=6)}: {agreeing}"),
        ]
    notes: list[OutputBlock] = ["", Bullets(found.notes)] if found.notes else []
    return Outcome(rows=[*rows, ("written", str(out))], blocks=notes, values={"out": str(out), **found.values})


def _check_out(out: Path, *, table: Path, bundle: Path) -> None:
    place, whole = out.resolve(), bundle.resolve()
    if whole.name == "public" and (whole.parent / "manifest.json").exists():
        whole = whole.parent
    if place == table.resolve() or place.is_relative_to(whole):
        what = "a corrected table must not replace or join what was published"
        raise bad_plan(what, where=f"--out {out}", remedy="name a file outside the bundle")
    if out.suffix not in (".csv", ".parquet"):
        what = f"{out.suffix or 'no ending'} is not a kind of table"
        raise bad_plan(what, where=f"--out {out}", remedy="write .csv or .parquet")
    if out.exists():
        raise bad_plan("this file exists already", where=f"--out {out}", remedy="choose another name, or remove it")
    if not out.parent.is_dir():
        raise bad_plan("its folder does not exist", where=f"--out {out}", remedy=f"make {out.parent} first")


COMMANDS: Final = (
    command("publish", PublishOptions, publish),
    command("check", BundleCheckOptions, check),
    command("report", ReportOptions, report),
    command("unswap", UnswapOptions, unswap),
)
