"""Publishing copies the public files of a bundle and nothing else, and refuses at any doubt."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import Entropy
from stirred.audit.bundle import audit_bundle
from stirred.cli.main import run as command
from stirred.data.frames import read_frame
from stirred.release import publish as module
from stirred.release.plan_file import plan_from
from stirred.release.prepared import prepare
from stirred.release.publish import PublishError, publish
from stirred.release.run import run
from stirred.release.scan import scan_bundle
from stirred.spec.doubts import DoubtError
from tests.release.tampering import add, copied, frame, retell, specified, text, told
from tests.world import (
    files_in,
    households,
    in_own_process,
    listing,
    manifest,
    released,
    sha256,
    swap_plan,
    undoubted,
    world,
)

Out = pytest.CaptureFixture[str]


def content(format_: str = "parquet", **mechanism: Any) -> dict[str, Any]:
    plan = swap_plan(people=True, release={"out": "bundle", "format": format_}, **mechanism)
    return {**plan, "tables": [*plan["tables"], {"name": "Ages", "variables": ["county", "age"]}]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of one file: in both formats, seeded, and at a rate that promises nothing."""
    folder = world(tmp_path_factory.mktemp("made"), people=True)
    plans = {"parquet": content(), "csv": content("csv"), "seeded": content(), "infinite": content(rate="1")}
    plans["infinite"]["release"]["accept"] = ["nothing-promised"]
    for name, plan in plans.items():
        released(folder, plan, Entropy.from_seed("x") if name == "seeded" else None)
        (folder / "bundle").rename(folder / name)
    return folder


@pytest.fixture
def bundle(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "parquet", tmp_path / "bundle"))


# ---- what is published -----------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_the_public_files_are_copied_and_nothing_else(format_: str, made: Path, tmp_path: Path) -> None:
    done = publish(made / format_, tmp_path / "out")
    public = files_in(made / format_ / "public")
    assert files_in(tmp_path / "out") == public | {"CHECKSUMS.sha256"}
    assert set(done.files) == public
    for name, digest in done.files.items():
        assert sha256(tmp_path / "out" / name) == digest
        assert digest == sha256(made / format_ / "public" / name) or name == "report.html"


def test_readers_can_check_the_files_with_a_common_tool(made: Path, tmp_path: Path) -> None:
    publish(made / "parquet", tmp_path / "out")
    tool = shutil.which("sha256sum")
    assert tool is not None
    check = [tool, "--check", "--strict", "CHECKSUMS.sha256"]
    assert subprocess.run(check, cwd=tmp_path / "out", capture_output=True).returncode == 0
    with (tmp_path / "out" / "data.parquet").open("ab") as file:
        file.write(b" ")
    assert subprocess.run(check, cwd=tmp_path / "out", capture_output=True).returncode == 1


def test_everybody_may_read_what_is_published_and_nobody_run_it(bundle: Path, tmp_path: Path) -> None:
    for path in (bundle / "public").rglob("*"):
        path.chmod(0o700)
    before = os.umask(0o077)
    try:
        publish(bundle, tmp_path / "out")
    finally:
        os.umask(before)
    for path in (tmp_path / "out", *(tmp_path / "out").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_a_dry_run_checks_the_same_and_writes_nothing(made: Path, tmp_path: Path) -> None:
    before = listing(made)
    done = publish(made / "parquet", tmp_path / "out", dry_run=True)
    assert len(done.files) == 10
    assert listing(tmp_path) == {}
    assert listing(made) == before
    with pytest.raises(PublishError):
        publish(made / "seeded", tmp_path / "out", dry_run=True)


def test_a_bundle_with_later_evaluations_is_published_without_them(bundle: Path, tmp_path: Path) -> None:
    later = bundle / "internal" / "evaluations"
    later.mkdir(mode=0o700)
    (later / "risk.json").write_text("{}")
    (later / "risk.json").chmod(0o600)
    publish(bundle, tmp_path / "out")
    assert not [name for name in files_in(tmp_path / "out") if "risk" in name]


def test_a_bundle_without_persons_tables_or_identifiers_is_published(tmp_path: Path) -> None:
    households().drop("hid").write_parquet(tmp_path / "homes.parquet")
    plan = {
        "data": {"households": "homes.parquet"},
        "mechanism": {"swap": ["county"], "rate": "1/2"},
        "release": {"out": "bundle"},
    }
    publish(released(tmp_path, plan), tmp_path / "out")
    assert "data.parquet" in files_in(tmp_path / "out")


# ---- what is refused -------------------------------------------------------------------------------


def free(document: dict[str, Any]) -> None:
    document["budget"] = {"policy": {"name": "free", "symbol": "epsilon"}}


def by_input(data: pl.DataFrame) -> pl.DataFrame:
    """Records sorted by something held, as an input file may be, with ids issued in that order."""
    return data.sort("tenure", "size").with_columns(data["hid"])


def accuracy_as_table(bundle: Path) -> None:
    pl.read_parquet(bundle / "internal" / "accuracy.parquet").write_csv(bundle / "public" / "tables" / "errors.csv")


def link(bundle: Path) -> None:
    (bundle / "public" / "README.md").unlink()
    (bundle / "public" / "README.md").symlink_to(bundle / "internal" / "report.html")


def hard_link(bundle: Path) -> None:
    """A name of a file that stays outside, in place of a page; the manifest is redone."""
    (bundle.parent / "confidential.md").write_text("East 41", encoding="utf-8")
    (bundle / "public" / "README.md").unlink()
    (bundle / "public" / "README.md").hardlink_to(bundle.parent / "confidential.md")


def listed_too(name: str, column: pl.Expr) -> Callable[[Path], object]:
    """Add a column to a public table, and to what the manifest says about it."""

    def write(bundle: Path) -> None:
        frame(name, lambda f: f.with_columns(column))(bundle)
        files = manifest(bundle)["public_files"]
        for file in files:
            if file["name"] == name.rpartition(".")[0]:
                file["columns"].append(column.meta.output_name())
        told(public_files=files)(bundle)

    return write


def another_file(name: str = "extra", kind: str = "side", *, like: str = "") -> Callable[[Path], object]:
    """Add a whole table of true values, or of the columns of another file, and list it in the manifest."""

    def write(bundle: Path) -> None:
        public = bundle / "public"
        added = pl.read_parquet(public / like) if like else pl.DataFrame({"true_county": ["N"]})
        notes = pl.read_parquet_metadata(public / "data.parquet")
        promise = {"stirred.specification": notes["stirred.specification"]}
        added.write_parquet(public / f"{name}.parquet", metadata=promise)
        extra = {"name": name, "kind": kind, "columns": added.columns}
        told(public_files=[*manifest(bundle)["public_files"], extra])(bundle)

    return write


@dataclass(frozen=True)
class Tampered:
    """How a good bundle is changed, what must be said, and whether the manifest was forged as well."""

    change: Callable[[Path], object]
    says: str
    forged: bool = True


TAMPERED = {
    "a file was changed": Tampered(
        text("README.md", lambda page: page + "."),
        "public/README.md: it is not the file the manifest describes",
        False,
    ),
    "a file is missing": Tampered(
        lambda bundle: (bundle / "public" / "strata.parquet").unlink(),
        "public/strata.parquet: it is in the manifest and not in the folder",
        False,
    ),
    "a file was added": Tampered(
        add("public/notes.txt"), "public/notes.txt: it is in the folder and not in the manifest", False
    ),
    "a file was added to both": Tampered(add("public/notes.txt"), "public/notes.txt: there is no rule"),
    "another table was added to both": Tampered(
        add("public/extra.csv", b"a,b\n1,2\n"), "public/extra.csv: there is no rule"
    ),
    "a hidden file": Tampered(add("public/.DS_Store"), "public/.DS_Store: it is hidden"),
    "a link": Tampered(link, "public/README.md: it is a link"),
    "a link to a folder": Tampered(
        lambda bundle: (bundle / "public" / "more").symlink_to(bundle / "internal"), "public/more: it is a link"
    ),
    "a pipe": Tampered(
        lambda bundle: os.mkfifo(bundle / "public" / "pipe.csv"),
        "public/pipe.csv: it is a pipe or a device, and not a file",
    ),
    "an identifier of persons": Tampered(
        frame("persons.parquet", lambda f: f.with_columns(pl.int_range(pl.len()).alias("pid"))),
        'public/persons.parquet: "pid" is an identifier by the plan',
    ),
    "the household id in a table": Tampered(
        frame("tables/county-x-tenure.csv", lambda f: f.with_columns(pl.lit(1).alias("hid"))),
        'public/tables/county-x-tenure.csv: "hid" is an identifier',
    ),
    "old identifiers": Tampered(
        frame("data.parquet", lambda f: f.with_columns(pl.col("hid") + 5000)), "old identifier"
    ),
    "a column of data outside the specification": Tampered(
        frame("data.parquet", lambda f: f.with_columns(pl.lit("N").alias("true_county"))),
        'public/data.parquet: "true_county" is not in the specification',
    ),
    "a column of persons outside the specification": Tampered(
        frame("persons.parquet", lambda f: f.with_columns(pl.lit("N").alias("name"))),
        'public/persons.parquet: "name" is not in the specification',
    ),
    "a column of the invariants outside the specification": Tampered(
        frame("invariants.parquet", lambda f: f.with_columns(pl.lit(1).alias("true"))),
        'public/invariants.parquet: "true" is not in the specification',
    ),
    "a column of the strata outside the specification": Tampered(
        frame("strata.parquet", lambda f: f.with_columns(pl.lit(1).alias("moved"))),
        'public/strata.parquet: "moved" is not in the specification',
    ),
    "a column of a table outside the specification": Tampered(
        frame("tables/ages.csv", lambda f: f.with_columns(pl.lit(1).alias("error"))),
        'public/tables/ages.csv: "error" is not in the specification',
    ),
    "a column of data that the manifest lists too": Tampered(
        listed_too("data.parquet", pl.lit("N").alias("true_county")),
        'public/data.parquet: "true_county" is not in the specification',
    ),
    "a column of the strata that the manifest lists too": Tampered(
        listed_too("strata.parquet", pl.lit(1).alias("moved")),
        'public/strata.parquet: "moved" is not in the specification',
    ),
    "a held column in the strata that the manifest lists too": Tampered(
        listed_too("strata.parquet", pl.lit("owned").alias("tenure")),
        'public/strata.parquet: "tenure" is not in the specification',
    ),
    "a column of a table that the manifest lists too": Tampered(
        listed_too("tables/ages.csv", pl.lit(1).alias("error")),
        'public/tables/ages.csv: "error" is not in the specification',
    ),
    "a file that the manifest lists too": Tampered(
        another_file(), 'public/extra.parquet: "true_county" is not in the specification'
    ),
    **{
        f"records among the tables that the manifest lists as {kind}": Tampered(
            another_file("tables/x", kind, like="data.parquet"),
            "public/tables/x.parquet: there is no rule that a release has such a file",
        )
        for kind in ("records", "side", "measurements", "table")
    },
    "a file named like another one that the manifest lists too": Tampered(
        another_file("invariants.true", like="invariants.parquet"),
        "public/invariants.true.parquet: there is no rule that a release has such a file",
    ),
    "a manifest without a list of files": Tampered(
        told(public_files=None), "manifest.json: it does not say what was released"
    ),
    "a note in the metadata": Tampered(
        frame("data.parquet", lambda f: f, pandas="{}"), 'its metadata hold "pandas", which no rule allows'
    ),
    "another specification in the metadata": Tampered(
        frame("data.parquet", lambda f: f, **{"stirred.specification": "ε=1"}),
        "its metadata name another specification",
    ),
    "another order": Tampered(frame("data.parquet", by_input), "records are not grouped by county"),
    "another order of persons": Tampered(
        frame("persons.parquet", lambda f: f.sort("age")), "persons are not in the order of the released households"
    ),
    "another count in a table": Tampered(
        frame("tables/ages.csv", lambda f: f.with_columns(pl.col("count") + 1)),
        "public/tables/ages.csv: it is not the table of the released file",
    ),
    "a count that is no number": Tampered(
        text("tables/ages.csv", lambda t: t + "East,7,many\n"),
        "public/tables/ages.csv: it is not the table of the released file",
    ),
    "another invariant": Tampered(
        frame("invariants.parquet", lambda f: f.with_columns(pl.col("count") + 1)), "does not have the published table"
    ),
    "the internal report": Tampered(
        copied("internal/report.html", "public/report.html"), "public/report.html: it is a copy of internal/report.html"
    ),
    "the internal report, changed a little": Tampered(
        lambda bundle: (
            copied("internal/report.html", "public/report.html")(bundle),
            text("report.html", lambda page: page + "\n")(bundle),
        ),
        "public/report.html: it is not the public edition",
    ),
    "the log": Tampered(copied("internal/log.jsonl", "public/README.md"), "it is a copy of internal/log.jsonl"),
    "the accuracy": Tampered(accuracy_as_table, '"table", "cell", "true", "released", "error" is not in'),
    "a way inside": Tampered(
        text("README.md", lambda page: page + "\n[errors](../internal/report.html)\n"),
        "public/README.md: it leads to ../internal/report.html",
    ),
    "a way out of the report": Tampered(
        text("report.html", lambda page: page.replace("</main>", '<img src="http://a.b/c.png"></main>')),
        "public/report.html: it leads to http://a.b/c.png",
    ),
    "a marker of a test run": Tampered(
        add("public/SEEDED-TEST-RUN.txt"), "this is a test run with a seed, say public/SEEDED-TEST-RUN.txt"
    ),
    "a manifest of a test run": Tampered(told(seeded=True), "this is a test run with a seed, say manifest.json"),
    "a specification of a test run": Tampered(
        specified(lambda d: d.update(seeded=True)), "this is a test run with a seed, say public/specification.json"
    ),
    "a Parquet file of a test run": Tampered(
        frame("strata.parquet", lambda f: f, **{"stirred.seeded": "yes"}),
        "this is a test run with a seed, say public/strata.parquet",
    ),
    "a specification that does not read": Tampered(
        specified(lambda d: d.pop("multiverse")), "public/specification.json"
    ),
    "a specification without a number": Tampered(
        specified(free), "nothing is promised: the budget is a letter without a value"
    ),
    "settings that looked at the data": Tampered(
        specified(lambda d: d.update(settings_from="this-data")), "which voids the promise"
    ),
    "an internal folder that others may read": Tampered(
        lambda bundle: (bundle / "internal").chmod(0o755), "internal: others than its owner may use internal. Fix"
    ),
    "an internal file that others may read": Tampered(
        lambda bundle: (bundle / "internal" / "accuracy.parquet").chmod(0o640),
        "others than its owner may use internal/accuracy.parquet",
    ),
    "a comment in the report": Tampered(
        text("report.html", lambda page: page.replace("</main>", "<!-- East 41 --></main>")),
        "public/report.html: it holds a comment, which no page of ours has",
    ),
    "a paragraph of the report that is not shown": Tampered(
        text("report.html", lambda page: page.replace("</main>", "<p hidden>East 41</p></main>")),
        "public/report.html: it holds <p hidden>, which no page of ours has",
    ),
    "a key in the facts of the report": Tampered(
        text("report.html", lambda page: page.replace("{&quot;schema", "{&quot;East&quot;: 41, &quot;schema")),
        "public/report.html: it holds facts with the key 'East', which no page of ours has",
    ),
    "a fact of the report that is not shown": Tampered(
        text("report.html", lambda page: re.sub("(of&quot;: &quot;)", r"\1East 41 ", page)),
        "public/report.html: it holds facts that the page does not show ('exposure.of')",
    ),
    "another script in the report": Tampered(
        text("report.html", lambda page: page.replace("</script>", "// East 41</script>")),
        "public/report.html: it holds another script",
    ),
    "empty elements in the report": Tampered(
        text("report.html", lambda page: page.replace("</main>", "<p></p><p> <b></b></p></main>")),
        "public/report.html: it holds an empty <p>, which no page of ours has",
    ),
    "elements around elements in the report": Tampered(
        text("report.html", lambda page: page.replace("</main>", "<p><b><b>Homes</b></b></p></main>")),
        "public/report.html: it holds <b> twice around the same, which no page of ours has",
    ),
    "a folded part of the report without a heading": Tampered(
        text("report.html", lambda page: page.replace("</main>", "<details>East 41</details></main>")),
        "public/report.html: it holds a folded part without a heading, which no page of ours has",
    ),
    "another line in the page for readers": Tampered(
        text("README.md", lambda page: page.replace("## Files\n", "East 41\n\n## Files\n")),
        "public/README.md: it is not a page that `stirred` writes",
    ),
    "another spelling of a letter in the page for readers": Tampered(
        text("README.md", lambda page: page.replace("Files", "F&#105;les")),
        "public/README.md: it is not a page that `stirred` writes",
    ),
    "another title of the page for readers": Tampered(
        text("README.md", lambda page: page.replace("# ", "# East 41 ", 1)),
        "public/README.md: it has another title than the release",
    ),
    "another purpose in the page for readers": Tampered(
        text("README.md", lambda page: page.replace("## What", "Purpose: East 41\n\n## What", 1)),
        "public/README.md: it has another purpose than the release",
    ),
    "another method in the page for readers": Tampered(
        text("README.md", lambda page: page.replace("Permutation", "East 41 permutation", 1)),
        "public/README.md: it has another method than the release",
    ),
    "another weak point in the page for readers": Tampered(
        text(
            "README.md",
            lambda page: page.replace("\n\n## Files", "\n- The protection has known weak points: 41.\n\n## Files"),
        ),
        "public/README.md: it has another statement of weak points than the release",
    ),
    "another order of files in the page for readers": Tampered(
        text("README.md", lambda page: re.sub(r"(- `data.*\n)(- `persons.*\n)", r"\2\1", page)),
        "public/README.md: it has another list of files than the release",
    ),
    "another note in the page for readers": Tampered(
        text("README.md", lambda page: page + "\nNothing is disturbed; every count is exact.\n"),
        "public/README.md: it has another note on files than the release",
    ),
    "another conclusion in the page for readers": Tampered(
        text("README.md", lambda page: page.replace("conclude\n\n", "conclude\n\n- Every count is exact.\n", 1)),
        "public/README.md: it does not say what manifest.json says it does",
    ),
    "another spelling of a count": Tampered(
        text("tables/ages.csv", lambda page: re.sub(r",(\d+)\n$", r",0\1\n", page)),
        "is not spelled as `stirred` does",
    ),
    "a comment in the page for readers": Tampered(
        text("README.md", lambda page: page + "\n<!-- East 41 -->\n"),
        "public/README.md: it is not a page that `stirred` writes",
    ),
    "a definition that Markdown does not show": Tampered(
        text("README.md", lambda page: page + "\n[//]: # (East 41)\n"),
        "public/README.md: it is not a page that `stirred` writes",
    ),
    "letters that nothing draws": Tampered(
        text("README.md", lambda page: page + "\nHomes" + "".join(chr(0xE0000 + ord(one)) for one in "East 41") + "\n"),
        "public/README.md: it holds letters that nothing draws (U+E0020, U+E0031, U+E0034)",
    ),
    "letters that nothing draws, by number": Tampered(
        text("report.html", lambda page: page.replace("</main>", "<p>Homes&#x200b;&#8203;</p></main>")),
        "public/report.html: it holds letters that nothing draws (U+200B)",
    ),
    "the title of a link": Tampered(
        text("README.md", lambda page: page + '\n[homes](https://a.b "East 41")\n'),
        "public/README.md: it is not a page that `stirred` writes",
    ),
    "the name of a block of code": Tampered(
        text("README.md", lambda page: page + "\n```East-41\nhomes\n```\n"),
        "README.md: it is not a page that `stirred` writes",
    ),
    "blanks at the end of lines": Tampered(
        text("specification.md", lambda page: page.replace("\n", " \t \t\n")),
        "public/specification.md: its words are not those of specification.json",
    ),
    "blanks in the specification": Tampered(
        text("specification.json", lambda page: page.replace("{", "{ \t \t\t ", 1)),
        "public/specification.json: it is not written as `stirred` writes it",
    ),
    "a hard link to another file": Tampered(
        hard_link, "public/README.md: it has another name elsewhere (a hard link), and may be another file"
    ),
    "a page without end": Tampered(
        lambda bundle: os.truncate(bundle / "public" / "README.md", 1 << 40), "and no page is that long", False
    ),
    "a name that is no text": Tampered(
        lambda bundle: Path(os.fsdecode(os.fsencode(bundle / "public") + b"/\xff.md")).write_text("hello"),
        "public/\\udcff.md: its name holds letters that no file of a bundle has",
        False,
    ),
    "no internal folder": Tampered(
        lambda bundle: shutil.rmtree(bundle / "internal"), "internal/log.jsonl: it is in the manifest", False
    ),
    "no manifest": Tampered(lambda bundle: (bundle / "manifest.json").unlink(), "manifest.json: it is missing", False),
    "a manifest that says nothing": Tampered(
        add("manifest.json", b'{"files": {}}'), "manifest.json: it does not say what was released", False
    ),
}


def refusal(bundle: Path, capsys: Out, *more: str) -> str:
    """Return what the command says; it must refuse and write nothing."""
    capsys.readouterr()
    before = listing_of_anything(bundle.parent)
    assert command(["publish", str(bundle), str(bundle.parent / "out"), *more]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    assert all(". Fix: " in line for line in err.strip().splitlines()), "a doubt without a remedy"
    assert listing_of_anything(bundle.parent) == before
    return err


def listing_of_anything(folder: Path) -> set[str]:
    return {f"{path.relative_to(folder)} {path.lstat().st_size}" for path in folder.rglob("*")}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_bundle_is_refused_if_there_is(name: str, bundle: Path, capsys: Out) -> None:
    tampered = TAMPERED[name]
    tampered.change(bundle)
    if tampered.forged:
        retell(bundle)
    assert tampered.says in refusal(bundle, capsys)


@pytest.mark.parametrize(
    "name", ["manifest.json", "public/specification.json", "public/data.parquet", "public/report.html"]
)
@pytest.mark.parametrize("odd", ["a pipe", "a device"])
def test_nothing_waits_for_a_pipe_or_reads_a_device_in_place_of_a_file(
    odd: str, name: str, bundle: Path, capsys: Out
) -> None:
    (bundle / name).unlink()
    if odd == "a pipe":
        os.mkfifo(bundle / name)
    else:
        (bundle / name).symlink_to("/dev/zero")
    said = "it is a pipe or a device" if odd == "a pipe" else "it is a link"
    assert f"{name}: {said}" in refusal(bundle, capsys)
    for other in (
        ["check", str(bundle)],
        ["report", str(bundle)],
        ["check", str(bundle / "public")],
    ):
        if name.startswith(Path(other[-1]).name) or other[-1] == str(bundle):
            assert command(other) == 2
            assert said in capsys.readouterr().err


def test_bytes_beside_the_values_of_a_table_are_not_published(bundle: Path, tmp_path: Path) -> None:
    """Readers of Parquet look where its footer tells them to, and nowhere else."""
    table, secret = bundle / "public" / "data.parquet", b"East 41 " * 40
    right = table.read_bytes()
    footer = len(right) - 8 - int.from_bytes(right[-8:-4], "little")
    table.write_bytes(right[:footer] + secret + right[footer:])
    retell(bundle)
    publish(bundle, tmp_path / "out")
    assert secret not in (tmp_path / "out" / "data.parquet").read_bytes()
    assert (tmp_path / "out" / "data.parquet").read_bytes() == right
    assert (
        f"{sha256(tmp_path / 'out' / 'data.parquet')}  data.parquet"
        in (tmp_path / "out" / "CHECKSUMS.sha256").read_text()
    )


UNSHOWN = {
    "a name of the page": "<meta name=x content='41'>",
    "a title in a drawing": "<svg><title>41</title><text>a</text></svg>",
    "a label in a drawing": "<svg><path aria-label='41' d='M0,0'/></svg>",
    "a text in a drawing that is not drawn": "<svg><text opacity='0'>41</text><text>a</text></svg>",
    "a text in a part of a drawing that is not drawn": "<svg><g display='none'><text>41</text></g><text>a</text></svg>",
    "a name in a drawing": "<svg><g id='41'></g></svg>",
    "a class of a paragraph": "<p class='41'>a</p>",
    "a label of a table": "<div aria-label='41'>a</div>",
    "a caption": "<table><caption>41</caption><tr><td>a</td></tr></table>",
}


def test_what_the_report_does_not_show_is_not_published(bundle: Path, tmp_path: Path) -> None:
    """Readers see the same report; what an insider put beside it is left out."""
    hidden = "".join(each.replace("41", f"East 41 {place}") for place, each in enumerate(UNSHOWN.values()))
    text("report.html", lambda page: page.replace("</main>", f"{hidden}<p \t\t>a</p></main>"))(bundle)
    text("report.html", lambda page: re.sub(r"(error&quot;: \d\.\d{3})\d*", r"\g<1>00041", page))(bundle)
    retell(bundle)
    publish(bundle, tmp_path / "out")
    published = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert [name for place, name in enumerate(UNSHOWN) if f"East 41 {place}" in published] == []
    assert "\t" not in published
    assert "00041" not in published


def test_the_script_of_another_version_is_not_published(bundle: Path, tmp_path: Path) -> None:
    """The manifest names the version, and whoever forges a page forges that too."""
    publish(bundle, tmp_path / "right")
    text("report.html", lambda page: page.replace("</script>", "// East 41</script>"))(bundle)
    told(stirred="0.0.9")(bundle)
    retell(bundle)
    publish(bundle, tmp_path / "out", accept=["other-version"])
    assert (tmp_path / "out" / "report.html").read_text() == (tmp_path / "right" / "report.html").read_text()


def test_pages_of_another_version_are_published_only_if_a_person_answers_for_them(bundle: Path, capsys: Out) -> None:
    """The version in the manifest is a word of whoever wrote it, and so is what the release accepted."""
    plan = manifest(bundle)["plan"]
    plan["release"]["accept"] = ["other-version"]
    told(stirred="0.0.9", plan=plan)(bundle)
    retell(bundle)
    assert "accept it: --accept other-version" in refusal(bundle, capsys)


def test_what_holds_alone_is_something_that_the_specification_states(bundle: Path, capsys: Out) -> None:
    specified(lambda document: document.update(alone=["East 41"]))(bundle)
    told(stirred="0.0.9")(bundle)
    retell(bundle)
    said = refusal(bundle, capsys, "--accept", "other-version")
    assert "it marks as true of this release alone what it does not state" in said


def test_parts_after_the_first_have_no_notes_of_their_own(bundle: Path, capsys: Out) -> None:
    path = bundle / "public" / "data.parquet"
    rows, notes = (
        pl.read_parquet(path),
        {"stirred.specification": pl.read_parquet_metadata(path)["stirred.specification"]},
    )
    path.unlink()
    path.mkdir()
    rows[:60].write_parquet(path / "part-00000.parquet", metadata=notes)
    rows[60:].write_parquet(path / "part-00001.parquet", metadata={**notes, "stirred.seeded": "East 41"})
    retell(bundle)
    assert "public/data.parquet" in refusal(bundle, capsys)


def test_an_enumeration_is_published_as_the_texts_that_rows_have(bundle: Path, tmp_path: Path) -> None:
    publish(bundle, tmp_path / "right")
    for name in ("strata.parquet", "invariants.parquet"):
        frame(name, enumerated)(bundle)
    retell(bundle)
    publish(bundle, tmp_path / "out")
    for name in ("strata.parquet", "invariants.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "right" / name).read_bytes(), name


def enumerated(rows: pl.DataFrame) -> pl.DataFrame:
    texts = [column for column in rows.get_columns() if column.dtype == pl.String]
    assert texts
    return rows.with_columns(column.cast(pl.Enum(sorted({*column.drop_nulls(), "East 41"}))) for column in texts)


def test_a_type_with_words_of_its_own_is_not_published(bundle: Path, capsys: Out) -> None:
    frame(
        "strata.parquet", lambda rows: rows.with_columns(pl.struct(pl.first().alias("East 41")).alias(rows.columns[0]))
    )(bundle)
    retell(bundle)
    assert "is of a type that `stirred` does not write" in refusal(bundle, capsys)


def backwards(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows in another order, tables of one file in theirs."""
    tables = rows.partition_by("table", maintain_order=True) if "table" in rows.columns else [rows]
    return pl.concat([table.reverse() for table in tables])


def test_a_title_and_a_purpose_of_any_signs_are_published(made: Path, tmp_path: Path) -> None:
    signs = "1. a|b  <i> *x* # `two` &lt; \\ _y_ ##"
    for name in ("homes.parquet", "people.parquet"):
        shutil.copyfile(made / name, tmp_path / name)
    plan = content()
    plan["release"] |= {"title": signs, "purpose": f"# {signs}"}
    assert publish(released(tmp_path, plan), tmp_path / "out", dry_run=True).files


def test_rows_of_tables_are_published_in_their_own_order(bundle: Path, tmp_path: Path) -> None:
    """An order that somebody chose could hold a message."""
    publish(bundle, tmp_path / "right")
    changed = ("tables/ages.csv", "invariants.parquet", "strata.parquet")
    for name in changed:
        frame(name, backwards)(bundle)
    retell(bundle)
    publish(bundle, tmp_path / "out")
    for name in changed:
        assert read_frame(tmp_path / "out" / name).equals(read_frame(tmp_path / "right" / name)), name


def test_the_words_of_the_specification_are_ours_whatever_version_the_manifest_names(
    bundle: Path, tmp_path: Path
) -> None:
    publish(bundle, tmp_path / "right")
    text("specification.md", lambda page: f"{page}\nEast 41 <!-- 41 -->\n")(bundle)
    told(stirred="0.0.9")(bundle)
    retell(bundle)
    publish(bundle, tmp_path / "out", accept=["other-version"])
    pages = [(tmp_path / folder / "specification.md").read_bytes() for folder in ("right", "out")]
    assert pages[0] == pages[1]


@pytest.mark.parametrize("name", ["another spelling of a count", "another line in the page for readers"])
def test_a_dry_run_refuses_what_cannot_be_written_again(name: str, bundle: Path, capsys: Out) -> None:
    TAMPERED[name].change(bundle)
    retell(bundle)
    assert TAMPERED[name].says in refusal(bundle, capsys, "--dry-run")


def test_all_doubts_are_said_at_once(bundle: Path, capsys: Out) -> None:
    for name in (
        "a file was added",
        "a hidden file",
        "a marker of a test run",
        "an internal folder that others may read",
    ):
        TAMPERED[name].change(bundle)
    (bundle.parent / "out").mkdir()
    said = refusal(bundle, capsys)
    for name in ("a hidden file", "a marker of a test run", "an internal folder that others may read"):
        assert TAMPERED[name].says in said
    assert "out: something is already there" in said


def test_a_test_run_is_refused(made: Path, tmp_path: Path, capsys: Out) -> None:
    bundle = Path(shutil.copytree(made / "seeded", tmp_path / "bundle"))
    said = refusal(bundle, capsys)
    for mark in ("SEEDED-TEST-RUN.txt", "manifest.json", "public/specification.json", "public/data.parquet"):
        assert mark in said


def test_a_release_that_promises_nothing_is_refused(made: Path, tmp_path: Path, capsys: Out) -> None:
    bundle = Path(shutil.copytree(made / "infinite", tmp_path / "bundle"))
    assert "nothing is promised: the loss is infinite" in refusal(bundle, capsys)


def test_a_column_that_tells_records_apart_is_refused_until_it_is_accepted_by_name(tmp_path: Path, capsys: Out) -> None:
    homes = households().with_columns((pl.col("hid") * 7919 % 10007).alias("income")).drop("hid")
    homes.write_parquet(tmp_path / "homes.parquet")
    plan = {
        "data": {"households": "homes.parquet"},
        "mechanism": {"match": ["size"], "swap": ["county"], "rate": "1/2"},
        "release": {"out": "bundle"},
    }
    with pytest.raises(DoubtError, match=r'accept=\["identifier:income"\]'):
        released(tmp_path, plan)
    # As a bundle that another version made, or somebody without these checks.
    prepared = undoubted(prepare(plan_from(plan, source="plan", folder=tmp_path)))
    bundle = run(prepared, entropy=Entropy.from_os())
    told = refusal(bundle, capsys)
    assert '"income" is different for every record, and it is released as it is' in told
    assert "name it with --id income; or accept it: --accept identifier:income" in told
    assert "no doubt that can be accepted is called 'identifier:size'" in refusal(
        bundle, capsys, "--accept", "identifier:income", "--accept", "identifier:size"
    )
    assert command(["publish", str(bundle), str(tmp_path / "out"), "--accept", "identifier:income"]) == 0
    assert "identifier:income: accepted by you" in capsys.readouterr().out


@pytest.mark.parametrize("inside", ["bundle/published", "bundle/public/again", "bundle"])
def test_nothing_is_published_into_the_bundle(inside: str, bundle: Path, capsys: Out) -> None:
    before = listing(bundle)
    assert command(["publish", str(bundle), str(bundle.parent / inside)]) == 2
    assert "this is inside the bundle" in capsys.readouterr().err
    assert listing(bundle) == before


@pytest.mark.parametrize("what", ["no such folder", "a file", "an empty folder", "public"])
def test_what_is_not_a_bundle_is_refused(what: str, bundle: Path, capsys: Out) -> None:
    place = bundle / "public" if what == "public" else bundle.parent / "thing"
    if what == "a file":
        place.write_text("hello")
    elif what == "an empty folder":
        place.mkdir()
    assert command(["publish", str(place), str(bundle.parent / "out")]) == 2
    assert "there is no bundle here" in capsys.readouterr().err
    assert not (bundle.parent / "out").exists()


# ---- complete or absent ----------------------------------------------------------------------------


def test_a_disk_that_fills_up_leaves_nothing(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    import errno

    right, copies = module._copied, []

    def full(source: Path, target: Path) -> str:
        copies.append(target)
        if len(copies) == 4:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return right(source, target)

    monkeypatch.setattr(module, "_copied", full)
    before = listing(tmp_path)
    assert command(["publish", str(bundle), str(tmp_path / "out")]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert listing(tmp_path) == before


@pytest.mark.parametrize("becomes", ["other bytes", "a link"])
def test_a_file_that_changes_after_the_check_is_not_published(
    becomes: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = scan_bundle

    def scanned(*arguments: Any, **more: Any) -> Any:
        scan = right(*arguments, **more)
        if becomes == "a link":
            link(bundle)
        else:
            text("README.md", lambda page: page + ".")(bundle)
        return scan

    monkeypatch.setattr(module, "scan_bundle", scanned)
    with pytest.raises((PublishError, OSError)):
        publish(bundle, tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"bundle"}


# ---- the command -----------------------------------------------------------------------------------


def test_the_command_says_what_was_checked(made: Path, tmp_path: Path, capsys: Out) -> None:
    capsys.readouterr()
    assert command(["publish", str(made / "parquet"), str(tmp_path / "out"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["published"] == str(tmp_path / "out")
    assert facts["checksums"] == str(tmp_path / "out" / "CHECKSUMS.sha256")
    assert set(facts["files"]) == files_in(made / "parquet" / "public")
    said = " ".join(facts["checks"])
    for words in ("checksums", "counted anew", "grouped by county", "no identifiers", "nothing of internal/"):
        assert words in said


def test_the_installed_command_refuses_a_second_time(made: Path, tmp_path: Path) -> None:
    assert publish(made / "csv", tmp_path / "out")
    before = listing(tmp_path)
    second = in_own_process("publish", made / "csv", "out", "--json", cwd=tmp_path)
    assert second.returncode == 2
    assert json.loads(second.stdout)["errors"][0]["what"] == "something is already there"
    assert listing(tmp_path) == before


def test_the_audit_of_a_bundle_looks_at_the_order_and_at_tables_of_persons(bundle: Path) -> None:
    checks = audit_bundle(bundle).checks
    assert any("grouped by county" in check for check in checks)
    assert any("table ages" in check for check in checks)
