"""Broken files and plans, each named after the message it must produce.

Every one of them: exit code 2 through the command line, all problems at once, each with its place and a
remedy, no traceback, and nothing written anywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pytest

from stirred.cli.main import run
from tests.release.bundles import households, listing, persons, stirred

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


@dataclass(frozen=True)
class Broken:
    """How a good folder is broken, the command, and what every line of the answer must hold."""

    breaks: Callable[[Path], object]
    says: list[list[str]]
    command: tuple[str, ...] = SWAP
    env: dict[str, str] = field(default_factory=dict)


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

GALLERY = {
    "there is no column": Broken(
        homes(lambda f: f.rename({"size": "persons", "county": "place"})),
        [
            ['homes.parquet: there is no column "size" (named in match)', '"hid", "place", "persons", "tenure"'],
            ['homes.parquet: there is no column "county" (named in swap)', "check the spelling"],
        ],
    ),
    "values are missing": Broken(
        homes(lambda f: set_row("size", [59], None)(HALF_NULL(f))),
        [
            ['homes.parquet "size": values are missing in the match variable (1 row: 60)', "fill them in"],
            ['homes.parquet "county": values are missing in the swap variable (7 rows: 3, 6, 10, 12, 13, ...)'],
        ],
    ),
    "household ids are not unique": Broken(
        homes(set_row("hid", [3, 4, 7], 5003)),
        [['homes.parquet "hid": household ids are not unique (3 rows: 4, 5, 8)', "its own id"]],
    ),
    "household ids are missing": Broken(
        homes(set_row("hid", [3], None)), [['homes.parquet "hid": values are missing (1 row: 4)', "fill them in"]]
    ),
    "persons whose household is not in the file": Broken(
        people(set_row("hid", [0, 9], 1)),
        [['people.parquet "hid": persons whose household is not in homes.parquet (2 rows: 1, 10)', "remove these"]],
        PERSONS,
    ),
    "persons without a link": Broken(
        people(lambda f: f.rename({"hid": "household"})),
        [
            [
                'people.parquet: there is no column "hid" (named in hid); there are "household", "pid", "age"',
                "the household id must have the same name in both files: rename the column in one of them",
            ]
        ],
        PERSONS,
    ),
    "persons linked by another type": Broken(
        people(lambda f: f.with_columns(pl.col("hid").cast(pl.String))),
        [['"hid" is String here and Int64 in homes.parquet', "same type in both files"]],
        PERSONS,
    ),
    "persons disagree with their household": Broken(
        people(lambda f: f.with_columns(pl.lit("East").alias("county"))),
        [['people.parquet "county": persons disagree with their household', "leave the column out"]],
        PERSONS,
    ),
    "persons with a list cannot be csv": Broken(
        people(lambda f: f.with_columns(pl.concat_list("age").alias("ages"))),
        [["ages", "List"]],
        (*PERSONS, "--set", "format=csv"),
    ),
    "persons are given without hid": Broken(
        GOOD,
        [["persons are given, but not the column that links them", "--hid COLUMN"]],
        tuple(w for w in PERSONS if w not in ("--hid", "hid")),
    ),
    "the file holds no records": Broken(
        homes(lambda f: f.clear()), [["homes.parquet: the file holds no records", "right file"]]
    ),
    "the file is empty": Broken(
        file("empty.csv", b""), [["empty.csv: the file holds no records"]], of_file("empty.csv")
    ),
    "the file has a header only": Broken(
        file("header.csv", b"hid,size,county,tenure\n"),
        [["header.csv: the file holds no records"]],
        of_file("header.csv"),
    ),
    "decimals to match on": Broken(
        homes(lambda f: f.with_columns(pl.col("size") / 2)),
        [
            [
                'homes.parquet "size": a match variable must hold codes',
                "decimals (Float64): few records would have a partner",
                "classes or whole",
            ],
        ],
    ),
    "values of type List": Broken(
        homes(lambda f: f.with_columns(pl.concat_list("size").alias("tenure"))),
        [['homes.parquet "tenure": values of type List(Int64) cannot be used as a hold variable', "store it as text"]],
    ),
    "values of type Duration": Broken(
        homes(lambda f: f.with_columns(size=pl.duration(days="size"), tenure=pl.duration(days="size"))),
        [
            ['homes.parquet "size": values of type Duration', "cannot be used as a match variable"],
            ['homes.parquet "tenure": values of type Duration', "cannot be used as a hold variable", "whole numbers"],
        ],
    ),
    "cannot read a file ending in .xlsx": Broken(
        file("homes.xlsx", b"PK"),
        [["cannot read a file ending in '.xlsx'", "Fix: save it as 'CSV UTF-8', or give", ".parquet"]],
        of_file("homes.xlsx"),
    ),
    "there is no such file": Broken(
        GOOD, [["nowhere.csv: there is no such file", "check the path"]], of_file("nowhere.csv")
    ),
    "truncated parquet": Broken(
        file("homes.parquet", lambda whole: whole[: len(whole) // 2]), [["homes.parquet: cannot read it", "complete"]]
    ),
    "binary junk as csv": Broken(file("junk.csv", lambda whole: whole * 3), [["junk.csv: "]], of_file("junk.csv")),
    "a csv row that is too short": Broken(
        file("short.csv", b"hid,size,county,tenure\n1,1,A,o\n2,1,B,r\n3,1,B\n"), [["short.csv"]], of_file("short.csv")
    ),
    "a csv column twice": Broken(
        file("twice.csv", b"hid,size,county,county\n1,1,A,o\n2,1,B,r\n"),
        [["twice.csv", "county"]],
        of_file("twice.csv"),
    ),
    "there is no setting called": Broken(
        plan(lambda text: text.replace("match =", "mach =") + "colour = 1\n"),
        [
            ["plan.toml [mechanism] mach: there is no setting called 'mach'", "did you mean 'match'?"],
            ["plan.toml [release] colour: there is no setting called 'colour'", "spelling"],
        ],
        RELEASE,
    ),
    "a setting is missing": Broken(
        plan(lambda text: text.replace('rate = "1/2"', "").replace('swap = ["county"]', "").replace('out = "out"', "")),
        [
            ["[mechanism] swap: is needed", "add swap, such as ['county']"],
            ["[mechanism] rate: is needed", "add rate, such as '1/20'"],
            ["[release] out: 'out' is missing"],
        ],
        RELEASE,
    ),
    "a needed setting and a section are misspelt": Broken(
        plan(lambda text: text.replace("swap =", "swaps =").replace("households =", "household =") + "[[table]]\n"),
        [
            ["[data] household: there is no setting called 'household'", "did you mean 'households'?"],
            ["[mechanism] swaps: there is no setting called 'swaps'", "did you mean 'swap'?"],
            ["[table]", "did you mean 'tables'?"],
        ],
        RELEASE,
    ),
    "a mechanism without its ending": Broken(
        plan(lambda text: text.replace("[mechanism]", '[mechanism]\nname = "permutation"')),
        [
            [
                "[mechanism] name: there is no mechanism called 'permutation'",
                "shuffle-swap",
                'you mean "permutation-swap"?',
            ]
        ],
        RELEASE,
    ),
    "a mechanism that nothing is like": Broken(
        plan(lambda text: text.replace("[mechanism]", '[mechanism]\nname = "Q"')),
        [["[mechanism] name: there is no mechanism called 'Q'", "Fix: write one of permutation-swap"]],
        RELEASE,
    ),
    "a data file in the place of a plan": Broken(
        file("homes.csv", b"size,county\n1,A\n"),
        [["homes.csv: this is a data file, and here a plan is read", "`stirred swap homes.csv`"]],
        ("release", "homes.csv"),
    ),
    "a plan without a release": Broken(
        plan(lambda text: text.partition("[release]")[0]),
        [["plan.toml [release]: 'release' is missing", 'add a line [release], and below it out = "bundle"']],
        RELEASE,
    ),
    "a column is misspelt": Broken(
        GOOD,
        [['there is no column "Countie" (named in swap)', 'did you mean "county"? Or name']],
        swapped(swap="Countie"),
    ),
    "an unusual separator": Broken(
        file("tilde.csv", b"size~county~tenure\n1~A~o\n2~B~r\n"),
        [
            # Once, although both the match and the swap variable are missing.
            [
                'tilde.csv: the file has one column, "size~county~tenure"',
                "Declare it, such as separator = '~' under [data]",
            ],
        ],
        ("swap", "tilde.csv", *(word for word in SWAP[2:] if word not in ("--hid", "hid"))),
    ),
    "a csv file that is Parquet": Broken(
        file("homes.csv", lambda whole: whole),
        [["homes.csv: this is a Parquet file and not CSV", "rename it to homes.parquet"]],
        of_file("homes.csv"),
    ),
    "a csv file in Latin-1": Broken(
        file("latin.csv", "size,county\n1,Köln\n".encode("latin-1")),
        [["latin.csv: line 2 is not UTF-8", "'CSV UTF-8'", "iconv -f latin1 -t utf8"]],
        of_file("latin.csv"),
    ),
    "this is not TOML": Broken(plan(lambda text: text + "[["), [["plan.toml: this is not TOML", "brackets"]], RELEASE),
    "cannot read the plan": Broken(
        GOOD, [["nowhere.toml: cannot read the plan: No such file"]], ("release", "nowhere.toml")
    ),
    "a rate that is not a probability": Broken(
        plan(lambda text: text.replace('"1/2"', "1.5")),
        [["plan.toml [mechanism] rate: 1.5 is not a probability", "fraction from 0 to 1"]],
        RELEASE,
    ),
    "a rate that is not a number": Broken(GOOD, [["--rate: 'often'", "5%"]], swapped(rate="often")),
    "a rule for nobody": Broken(
        plan(lambda text: text + '[[mechanism.rates]]\nsize = 77\nrate = "1/3"\n'),
        [["no record has size = 77", "remove the rule"]],
        RELEASE,
    ),
    "a rule on a column that is not there": Broken(
        plan(lambda text: text + '[[mechanism.rates]]\nrisk = "high"\nrate = "1/3"\n'),
        [['there is no column "risk" (named in rates)', "check the spelling"]],
        RELEASE,
    ),
    "no released column": Broken(
        GOOD,
        [
            [
                "table 'county x income': no released column \"income\"",
                'released columns: "county", "size", "tenure"',
            ],
            ["table 'hid': no released column \"hid\""],
        ],
        swapped("--table", "county x income", "--table", "hid"),
    ),
    "a variable has two roles": Broken(GOOD, [['"size" has two roles']], swapped(swap="size")),
    "an identifier is swapped": Broken(
        GOOD, [['"hid" is an identifier and cannot be a swap variable']], swapped(swap="hid")
    ),
    "a place inside a bundle": Broken(
        inside_a_bundle,
        [["is a release, and nothing may be added to it", "choose a place outside of it"]],
    ),
    "a place inside what was published": Broken(
        lambda folder: (folder / "CHECKSUMS.sha256").write_text(""),
        [["is a release, and nothing may be added to it"]],
    ),
    "something is already there": Broken(
        lambda folder: (folder / "out").mkdir(), [["out: something is already there", "choose a new folder"]]
    ),
    "a file is already there": Broken(
        lambda folder: (folder / "out").write_text("mine"), [["out: something is already there"]]
    ),
    "a dangling link is already there": Broken(
        lambda folder: (folder / "out").symlink_to(folder / "elsewhere"), [["out: something is already there"]]
    ),
    "its parent folder does not exist, or may not be looked into": Broken(
        GOOD, [["missing/out: its parent folder does not exist", "create missing first"]], swapped(out="missing/out")
    ),
    "an option is needed": Broken(
        GOOD, [["--swap: is needed"], ["--rate: is needed"], ["--out: is needed"]], ("swap", "homes.parquet")
    ),
    "options that the two-stage swap needs": Broken(
        GOOD,
        [
            ["--set fine_match: is needed", "such as --set fine_match=tenure"],
            ["--set fine_rate: is needed", "such as --set fine_rate=1/2"],
        ],
        swapped("--mechanism", "Two-Stage-swap"),
    ),
    "options that the noisy swap needs": Broken(
        GOOD,
        [["--set noise_epsilon: is needed"], ["--table: is needed", "such as --table 'county x tenure'"]],
        swapped("--mechanism", "noisy"),
    ),
    "a rate where the loss is told instead": Broken(
        GOOD,
        [
            ["--epsilon: is needed"],
            ["--rate: the mallows swap has no --rate", "leave it out; it takes --epsilon"],
        ],
        swapped("--mechanism", "mallows"),
    ),
    "an option of another member": Broken(
        GOOD,
        [["--set redraw_law: the permutation swap has no redraw_law", "it takes --rate, --set rates, --set imputed"]],
        swapped("--set", "redraw_law=uniform"),
    ),
    "an unknown member": Broken(
        GOOD,
        [
            [
                "--mechanism: there is no mechanism called 'malows'",
                'did you mean "mallows-swap"?',
                "There are permutation-swap, ",
            ]
        ],
        swapped("--mechanism", "malows"),
    ),
    "an unknown format": Broken(
        GOOD, [["--set format: 'xlsx'", "'parquet' or 'csv'"]], swapped("--set", "format=xlsx")
    ),
    "an unknown option": Broken(GOOD, [["No such option", "--help"]], swapped("--rato", "1")),
    # All problems at once, also where different parts find them.
    "a bad rate and a missing file": Broken(
        GOOD,
        [["rate: 7/4 is not a probability"], ["nowhere.csv: there is no such file"]],
        ("swap", "nowhere.csv", *swapped(rate="7/4")[2:]),
    ),
    "two unreadable files": Broken(
        lambda folder: [(folder / name).write_bytes(b"") for name in ("homes.parquet", "people.parquet")],
        [["homes.parquet: cannot read it"], ["people.parquet: cannot read it"]],
        PERSONS,
    ),
    "a missing column and repeated ids": Broken(
        homes(lambda f: set_row("hid", [1], 5000)(f).rename({"size": "persons"})),
        [['there is no column "size"'], ["household ids are not unique (2 rows: 1, 2)"]],
    ),
    "missing values, repeated ids and persons without household": Broken(
        lambda folder: (
            homes(lambda f: set_row("hid", [1], 5000)(HALF_NULL(f)))(folder),
            people(lambda f: f.filter(pl.col("hid") != 5001).pipe(set_row("hid", [0], 1)))(folder),
        ),
        [
            ["values are missing in the swap variable (7 rows"],
            ["household ids are not unique (2 rows: 1, 2)"],
            ["persons whose household is not in homes.parquet (1 row: 1)"],
        ],
        PERSONS,
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inside = tmp_path / "inside"
    inside.mkdir()
    good = households()
    good.write_parquet(inside / "homes.parquet")
    persons(good).write_parquet(inside / "people.parquet")
    monkeypatch.chdir(inside)
    return inside


def everything(folder: Path) -> dict[str, str]:
    """The folder and what is beside it: a stray file anywhere near is seen."""
    return listing(folder.parent)


@pytest.mark.parametrize("name", GALLERY)
def test_a_broken_file_or_plan_is_refused_with(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = GALLERY[name]
    broken.breaks(folder)
    before = everything(folder)
    code = run([*broken.command, *(() if broken.command[0] == "release" else ("--quiet",))])
    out, err = capsys.readouterr()
    assert (code, out) == (2, ""), err
    lines = err.strip().splitlines()
    for says in broken.says:
        assert any(all(part in line for part in says) for line in lines), f"no line says {says}:\n{err}"
    assert len(lines) == len(broken.says), err
    assert all(". Fix: " in line for line in lines), "a problem without a remedy"
    assert "Traceback" not in err
    assert everything(folder) == before


@pytest.mark.parametrize("name", GALLERY)
def test_with_json_the_same_problems_are_said(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = GALLERY[name]
    broken.breaks(folder)
    assert run([*broken.command, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err == ""
    errors = json.loads(out)["errors"]
    assert all(set(error) == {"what", "where", "remedy"} and all(error.values()) for error in errors)
    assert len(errors) == len(broken.says)


@pytest.mark.parametrize("name", ["there is no column", "truncated parquet", "there is no setting called"])
def test_the_installed_command_refuses_as_well(name: str, folder: Path) -> None:
    broken = GALLERY[name]
    broken.breaks(folder)
    before = everything(folder)
    done = stirred(*broken.command, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert all(part in done.stderr for says in broken.says for part in says)
    assert everything(folder) == before


def as_plan(command: Sequence[str]) -> list[str]:
    """Return `stirred plan` with the options of a swap, but for those that a plan has not."""
    words = ["plan", *command[1:]]
    for name, count in (("--out", 2), ("--seed", 2), ("--quiet", 1)):
        while name in words:
            place = words.index(name)
            del words[place : place + count]
    return words


@pytest.mark.parametrize(
    "name", [n for n, broken in GALLERY.items() if broken.command[0] == "swap" and "already" not in n]
)
def test_a_plan_refuses_what_a_run_refuses(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong must show before anybody relies on the plan; places of output are looked at later."""
    broken = GALLERY[name]
    later = ("--out", "parent folder", "is a release")
    if any(words in part for says in broken.says for part in says for words in later):
        return
    broken.breaks(folder)
    assert run(as_plan(broken.command)) == 2
    assert capsys.readouterr().out == ""


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
