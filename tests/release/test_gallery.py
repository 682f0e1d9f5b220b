"""Broken files and plans, each named after the message it must produce.

Every one of them: exit code 2 through the command line, all problems at once, each with its place and a
remedy, no traceback, and nothing written anywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from tests.snapshots import same_as_kept, steady
from tests.world import households, listing, persons, world

SWAP = ("swap", "homes.parquet", "--match", "size", "--swap", "county", "--rate", "1/2", "--hid", "hid", "--out", "out")
PERSONS = (*SWAP, "--persons", "people.parquet")
PLAN = """
[data]
households = "homes.parquet"
hid = "hid"

[mechanism]
match = ["size"]
swap = ["county"]
rate = "1/2"

[release]
out = "out"
"""


def homes(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], object]:
    return lambda folder: change(households()).write_parquet(folder / "homes.parquet")


def people(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], object]:
    return lambda folder: change(persons(households())).write_parquet(folder / "people.parquet")


def file(name: str, content: bytes | Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        whole = (folder / "homes.parquet").read_bytes()
        (folder / name).write_bytes(content(whole) if callable(content) else content)

    return write


def plan(change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda folder: (folder / "plan.toml").write_text(change(PLAN), encoding="utf-8")


def set_row(column: str, rows: list[int], value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    place = pl.int_range(pl.len()).is_in(rows)
    return lambda frame: frame.with_columns(pl.when(place).then(pl.lit(value)).otherwise(pl.col(column)).alias(column))


def of_file(name: str) -> tuple[str, ...]:
    return ("swap", name, *SWAP[2:])


def swapped(*more: str, **instead: str) -> tuple[str, ...]:
    words = list(SWAP)
    for option, value in instead.items():
        words[words.index(f"--{option}") + 1] = value
    return (*words, *more)


RELEASE = ("release", "plan.toml")


def GOOD(folder: Path) -> None:
    """Nothing is broken: the command alone is wrong."""


def inside_a_bundle(folder: Path) -> None:
    (folder / "public").mkdir()
    (folder / "manifest.json").write_text("{}")


HALF_NULL: Callable[[pl.DataFrame], pl.DataFrame] = set_row("county", [2, 5, 9, 11, 12, 40, 41], None)

GALLERY: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "there is no column": (homes(lambda f: f.rename({"size": "persons", "county": "place"})), SWAP),
    "values are missing": (homes(lambda f: set_row("size", [59], None)(HALF_NULL(f))), SWAP),
    "household ids are not unique": (homes(set_row("hid", [3, 4, 7], 5003)), SWAP),
    "household ids are missing": (homes(set_row("hid", [3], None)), SWAP),
    "persons whose household is not in the file": (people(set_row("hid", [0, 9], 1)), PERSONS),
    "persons without a link": (people(lambda f: f.rename({"hid": "household"})), PERSONS),
    "persons linked by another type": (people(lambda f: f.with_columns(pl.col("hid").cast(pl.String))), PERSONS),
    "persons disagree with their household": (
        people(lambda f: f.with_columns(pl.lit("East").alias("county"))),
        PERSONS,
    ),
    "persons with a list cannot be csv": (
        people(lambda f: f.with_columns(pl.concat_list("age").alias("ages"))),
        (*PERSONS, "--set", "format=csv"),
    ),
    "persons are given without hid": (GOOD, tuple(w for w in PERSONS if w not in ("--hid", "hid"))),
    "the file holds no records": (homes(lambda f: f.clear()), SWAP),
    "the file is empty": (file("empty.csv", b""), of_file("empty.csv")),
    "the file has a header only": (file("header.csv", b"hid,size,county,tenure\n"), of_file("header.csv")),
    "decimals to match on": (homes(lambda f: f.with_columns(pl.col("size") / 2)), SWAP),
    "values of type List": (homes(lambda f: f.with_columns(pl.concat_list("size").alias("tenure"))), SWAP),
    "values of type Duration": (
        homes(lambda f: f.with_columns(size=pl.duration(days="size"), tenure=pl.duration(days="size"))),
        SWAP,
    ),
    "cannot read a file ending in .xlsx": (file("homes.xlsx", b"PK"), of_file("homes.xlsx")),
    "there is no such file": (GOOD, of_file("nowhere.csv")),
    "truncated parquet": (file("homes.parquet", lambda whole: whole[: len(whole) // 2]), SWAP),
    "binary junk as csv": (file("junk.csv", lambda whole: whole * 3), of_file("junk.csv")),
    "a csv row that is too short": (
        file("short.csv", b"hid,size,county,tenure\n1,1,A,o\n2,1,B,r\n3,1,B\n"),
        of_file("short.csv"),
    ),
    "a csv column twice": (file("twice.csv", b"hid,size,county,county\n1,1,A,o\n2,1,B,r\n"), of_file("twice.csv")),
    "there is no setting called": (plan(lambda text: text.replace("match =", "mach =") + "colour = 1\n"), RELEASE),
    "a setting is missing": (
        plan(lambda text: text.replace('rate = "1/2"', "").replace('swap = ["county"]', "").replace('out = "out"', "")),
        RELEASE,
    ),
    "a needed setting and a section are misspelt": (
        plan(lambda text: text.replace("swap =", "swaps =").replace("households =", "household =") + "[[table]]\n"),
        RELEASE,
    ),
    "a mechanism without its ending": (
        plan(lambda text: text.replace("[mechanism]", '[mechanism]\nname = "permutation"')),
        RELEASE,
    ),
    "a mechanism that nothing is like": (
        plan(lambda text: text.replace("[mechanism]", '[mechanism]\nname = "Q"')),
        RELEASE,
    ),
    "a data file in the place of a plan": (file("homes.csv", b"size,county\n1,A\n"), ("release", "homes.csv")),
    "a plan without a release": (plan(lambda text: text.partition("[release]")[0]), RELEASE),
    "a column is misspelt": (GOOD, swapped(swap="Countie")),
    "an unusual separator": (
        file("tilde.csv", b"size~county~tenure\n1~A~o\n2~B~r\n"),
        ("swap", "tilde.csv", *(word for word in SWAP[2:] if word not in ("--hid", "hid"))),
    ),
    "a csv file that is Parquet": (file("homes.csv", lambda whole: whole), of_file("homes.csv")),
    "a csv file in Latin-1": (file("latin.csv", "size,county\n1,Köln\n".encode("latin-1")), of_file("latin.csv")),
    "this is not TOML": (plan(lambda text: text + "[["), RELEASE),
    "cannot read the plan": (GOOD, ("release", "nowhere.toml")),
    "a rate that is not a probability": (plan(lambda text: text.replace('"1/2"', "1.5")), RELEASE),
    "a rate that is not a number": (GOOD, swapped(rate="often")),
    "a rule for nobody": (plan(lambda text: text + '[[mechanism.rates]]\nsize = 77\nrate = "1/3"\n'), RELEASE),
    "a rule on a column that is not there": (
        plan(lambda text: text + '[[mechanism.rates]]\nrisk = "high"\nrate = "1/3"\n'),
        RELEASE,
    ),
    "no released column": (GOOD, swapped("--table", "county x income", "--table", "hid")),
    "a variable has two roles": (GOOD, swapped(swap="size")),
    "an identifier is swapped": (GOOD, swapped(swap="hid")),
    "a place inside a bundle": (inside_a_bundle, SWAP),
    "a place inside what was published": (lambda folder: (folder / "CHECKSUMS.sha256").write_text(""), SWAP),
    "something is already there": (lambda folder: (folder / "out").mkdir(), SWAP),
    "a file is already there": (lambda folder: (folder / "out").write_text("mine"), SWAP),
    "a dangling link is already there": (lambda folder: (folder / "out").symlink_to(folder / "elsewhere"), SWAP),
    "its parent folder does not exist, or may not be looked into": (GOOD, swapped(out="missing/out")),
    "an option is needed": (GOOD, ("swap", "homes.parquet")),
    "options that the two-stage swap needs": (GOOD, swapped("--mechanism", "Two-Stage-swap")),
    "options that the noisy swap needs": (GOOD, swapped("--mechanism", "noisy")),
    "a rate where the loss is told instead": (GOOD, swapped("--mechanism", "mallows")),
    "an option of another member": (GOOD, swapped("--set", "redraw_law=uniform")),
    "an unknown member": (GOOD, swapped("--mechanism", "malows")),
    "an unknown format": (GOOD, swapped("--set", "format=xlsx")),
    "an unknown option": (GOOD, swapped("--rato", "1")),
    "a bad rate and a missing file": (GOOD, ("swap", "nowhere.csv", *swapped(rate="7/4")[2:])),
    "two unreadable files": (
        lambda folder: [(folder / name).write_bytes(b"") for name in ("homes.parquet", "people.parquet")],
        PERSONS,
    ),
    "a missing column and repeated ids": (
        homes(lambda f: set_row("hid", [1], 5000)(f).rename({"size": "persons"})),
        SWAP,
    ),
    "missing values, repeated ids and persons without household": (
        lambda folder: (
            homes(lambda f: set_row("hid", [1], 5000)(HALF_NULL(f)))(folder),
            people(lambda f: f.filter(pl.col("hid") != 5001).pipe(set_row("hid", [0], 1)))(folder),
        ),
        PERSONS,
    ),
}


# What is wrong must show before anybody relies on the plan; places of output are looked at later.
OF_THE_PLACE = (
    "a place inside a bundle",
    "a place inside what was published",
    "something is already there",
    "a file is already there",
    "a dangling link is already there",
    "its parent folder does not exist, or may not be looked into",
    "an option is needed",
)


def good(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return world(folder, people=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return good(tmp_path / "inside", monkeypatch)


def as_plan(command: Sequence[str]) -> list[str]:
    """Return `stirred plan` with the options of a swap, but for those that a plan has not."""
    words = ["plan", *command[1:]]
    for name, count in (("--out", 2), ("--seed", 2), ("--quiet", 1)):
        while name in words:
            place = words.index(name)
            del words[place : place + count]
    return words


def everything(folder: Path) -> dict[str, str]:
    """The folder and what is beside it: a stray file anywhere near is seen."""
    return listing(folder.parent)


def refused(folder: Path, command: Sequence[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run a command that must refuse, with one line for each problem, and write nothing; return the lines."""
    before = everything(folder)
    code = run([*command, *(() if command[0] == "release" else ("--quiet",))])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err
    lines = err.strip().splitlines()
    assert all(". Fix: " in line for line in lines), "a problem without a remedy"
    assert everything(folder) == before
    return lines


def test_a_broken_file_or_plan_is_refused_with_what_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json the same problems are said, and a plan refuses all but places of output."""
    pages = []
    for number, (name, (breaks, words)) in enumerate(GALLERY.items()):
        folder = good(tmp_path / str(number) / "inside", monkeypatch)
        breaks(folder)
        lines = refused(folder, words, capsys)
        pages.append("\n".join([f"## {name}", *(steady(line, folder) for line in lines)]))
        assert run([*words, "--json"]) == 2
        errors = json.loads(capsys.readouterr().out)["errors"]
        assert all(set(error) == {"what", "where", "remedy"} and all(error.values()) for error in errors)
        assert len(errors) == len(lines), name
        if words[0] == "swap" and name not in OF_THE_PLACE:
            assert run(as_plan(words)) == 2, name
            assert capsys.readouterr().out == ""
    same_as_kept("refusals", "\n\n".join(pages))


def test_a_parent_folder_that_cannot_be_written_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The administrator may write everywhere, so the answer of the system is played here."""
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode, **more: not mode & os.W_OK and allowed(path, mode, **more))
    before = everything(folder)
    assert run([*SWAP, "--quiet"]) == 2
    assert "out: its parent folder cannot be written" in capsys.readouterr().err
    assert everything(folder) == before


def test_a_full_disk_is_refused_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import errno

    from stirred.release import files

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "somewhere")

    monkeypatch.setattr(files, "write_parts", full)
    before = everything(folder)
    assert run([*SWAP, "--quiet"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert everything(folder) == before


def test_the_good_files_of_this_gallery_are_released(folder: Path) -> None:
    """Otherwise the gallery would prove nothing."""
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    assert run([*RELEASE, "--quiet"]) == 0
    assert run([*swapped(out="other"), "--persons", "people.parquet", "--quiet"]) == 0
