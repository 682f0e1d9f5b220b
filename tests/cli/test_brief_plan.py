"""A plan answers in about ten lines, on the command line and in Python, and ends with the command to run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from stirred import Entropy, PermutationSwap
from stirred.cli.main import run
from stirred.data.microdata import Microdata
from stirred.data.synth.massachusetts import massachusetts_1940
from stirred.mechanisms.protocol import doubt_rows
from stirred.spec.doubts import Doubt
from stirred.spec.text import rows_text
from tests.world import households, persons

MASSACHUSETTS = ["ma.parquet", "--match", "state,size", "--swap", "county", "--rate", "5%"]
WITH_PERSONS = [
    "homes.parquet", "--persons", "people.parquet", "--hid", "hid", "--id", "pid", "--match", "size", "--swap",
    "county", "--rate", "1/2",
]  # fmt: skip
ROLES = ["--match", "size", "--swap", "county", "--id", "hid"]
START = "stirred swap homes.parquet --match size --swap county"
LABELS = ["unchanged", "disturbed", "promise", "meaning", "doubts", "exposed", "stronger", "next"]


@pytest.fixture(autouse=True)
def _as_wide_as_python_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    homes = households()
    homes.write_parquet(tmp_path / "homes.parquet")
    persons(homes).write_parquet(tmp_path / "people.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run([*arguments]) == 0, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert err == ""
    return out


def labels(text: str) -> list[str]:
    return re.findall(r"^([a-z ]+[a-z])  ", text, re.M)


def test_a_plan_says_in_one_line_which_relative_promises_more_and_how_to_see_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    massachusetts_1940().write_parquet("ma.parquet")
    [line] = [line for line in shown(capsys, "plan", *MASSACHUSETTS).splitlines() if line.startswith("stronger")]
    assert line.endswith("at equal change; stirred compare PLAN.toml")
    told = json.loads(shown(capsys, "plan", *MASSACHUSETTS, "--json"))
    better = told["stronger"]
    assert better["epsilon"] < 0.95 * told["epsilon"]
    assert f"{better['name']}: ε=" in line
    # The command that is named shows the same member with the same numbers, once the options are a plan.
    assert shown(capsys, "plan", *MASSACHUSETTS).endswith("More: --verbose, --write\n")
    written = shown(capsys, "plan", *MASSACHUSETTS, "--write", "ma.toml")
    assert "stirred compare ma.toml" in written
    assert next_of(written) == ["stirred", "release", "ma.toml"]
    assert json.loads(shown(capsys, "plan", "ma.toml", "--json"))["epsilon"] == told["epsilon"]
    # Nor does the command need a folder for a release that it does not make.
    text = Path("ma.toml").read_text(encoding="utf-8")
    Path("ma.toml").write_text(text.partition("[release]")[0], encoding="utf-8")
    looked = shown(capsys, "plan", "ma.toml")
    assert "stirred compare ma.toml" in looked
    assert next_of(looked) == ["stirred", "release", "ma.toml", "--out", "FOLDER"]
    family = json.loads(shown(capsys, "compare", "ma.toml", "--json"))["swaps"]
    same = next(each for each in family if each["name"] == better["name"])
    assert (same["setting"], same["epsilon"]) == (better["setting"], better["epsilon"])
    assert same["share_changed"] == pytest.approx(better["changed"], abs=1e-4)
    assert same["epsilon"] == min(each["epsilon"] for each in family)


def test_the_strongest_member_names_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    massachusetts_1940().write_parquet("ma.parquet")
    assert "stronger" not in shown(capsys, "plan", *MASSACHUSETTS, "--mechanism", "conditioned-swap")


# ---- ten lines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "most"), [(100, 12), (80, 16)])
def test_a_plan_of_massachusetts_is_about_ten_lines(
    columns: int, most: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    massachusetts_1940().write_parquet("ma.parquet")
    monkeypatch.setenv("COLUMNS", str(columns))
    out = shown(capsys, "plan", *MASSACHUSETTS)
    assert len(out.splitlines()) <= most
    assert labels(out) == LABELS
    assert "on its own, practically no limit" in " ".join(out.split())
    assert all(len(line) <= columns for line in out.splitlines() if not line.startswith("next"))


@pytest.mark.parametrize(("columns", "most"), [(100, 13), (80, 17)])
def test_a_plan_with_persons_is_about_ten_lines(
    columns: int, most: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = shown(capsys, "plan", *WITH_PERSONS)
    assert len(out.splitlines()) <= most
    assert [label for label in labels(out) if label != "dropped"] == LABELS
    assert "x all characteristics of its persons" in " ".join(out.split())


def test_verbose_adds_what_explains_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    brief = shown(capsys, "plan", *WITH_PERSONS)
    verbose = shown(capsys, "plan", *WITH_PERSONS, "--verbose")
    assert verbose.startswith(brief.rpartition("Nothing random")[0])
    for said in ("\nwho  ", "\nstrata  ", "\nlargest  ", "\nby rate  ", "\nchosen  ", "NOT protected"):
        assert said in verbose
        assert said not in brief


def test_what_a_run_prints_is_as_short_and_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "swap", *WITH_PERSONS, "--out", "out", "--quiet")
    assert labels(out) == ["bundle", "report", "unchanged", "promise", "meaning", "ledger", "next"]
    assert len(out.splitlines()) <= 10
    assert out.splitlines()[-1].split(maxsplit=1) == ["next", "stirred publish out FOLDER"]
    assert run(["publish", "out", "published"]) == 0
    assert run(["swap", *WITH_PERSONS, "--out", "seeded", "--quiet", "--seed", "a"]) == 0
    assert "next" not in labels(capsys.readouterr().out)  # publish would refuse it


def test_many_held_columns_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    from polars import lit

    wide = households().with_columns(**{f"rooms_{n}": lit(n) for n in range(30)})
    wide.write_parquet("wide.parquet")
    out = shown(capsys, "plan", "wide.parquet", *ROLES, "--rate", "1/2")
    assert "and by size x tenure x rooms_0 x rooms_1 x" in " ".join(out.split())
    assert re.search(r"x \d+ more columns x rooms_29", " ".join(out.split()))
    assert "More: --verbose" in out
    assert len(out.splitlines()) <= 14
    swapped = [f"rooms_{n}" for n in range(9)]
    out = shown(capsys, "plan", "wide.parquet", *ROLES, "--rate", "1/2", *(w for n in swapped for w in ("--swap", n)))
    assert f"by size x county x {' x '.join(swapped)}, and" in " ".join(out.split()), "what is disturbed is named"


def test_columns_of_a_wide_file_that_are_not_released_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    from polars import lit

    households().with_columns(**{f"rooms_{n}": lit(n) for n in range(190)}).write_parquet("wide.parquet")
    out = shown(capsys, "plan", "wide.parquet", *ROLES, "--rate", "1/2", "--hold", "tenure")
    assert re.search(r"^dropped +191 columns, such as hid, rooms_0, rooms_1$", out, re.M)
    assert "rooms_189" not in out
    assert "rooms_189" in shown(
        capsys, "plan", "wide.parquet", *ROLES, "--rate", "1/2", "--hold", "tenure", "--verbose"
    )
    Path("tables.toml").write_text(
        '[data]\nhouseholds = "wide.parquet"\nid = ["hid"]\n[mechanism]\nname = "noisy-tables"\nrho = "1/2"\n'
        '[mechanism.values]\ntenure = ["owned", "rented"]\n[[tables]]\nvariables = ["tenure"]\n'
        '[release]\nout = "out"\n'
    )
    assert re.search(r"^not used +19\d columns, such as ", shown(capsys, "plan", "tables.toml"), re.M)


# ---- what to do next ------------------------------------------------------------------------------


def next_of(out: str) -> list[str]:
    (line,) = re.findall(r"^next +(.*)$", out, re.M)
    return shlex.split(line)


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (
            ["--rate", "1/2", "--table", "county x tenure"],
            f"{START} --rate 1/2 --id hid --table 'county x tenure' --out FOLDER",
        ),
        (
            ["--mechanism", "mallows", "--epsilon", "3"],
            f"{START} --epsilon 3 --mechanism mallows-swap --id hid --out FOLDER",
        ),
        (
            ["--rate", "1/2", "--expect-from", "margins", "--table", "tenure", "--epsilon", "4", "--verbose"],
            f"{START} --rate 1/2 --id hid --table tenure --out FOLDER",
        ),
    ],
    ids=["options", "a loss that is a setting", "only asked"],
)
def test_the_next_command_has_the_same_options_and_runs(
    asked: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["homes.parquet", *ROLES, *asked]
    told = next_of(shown(capsys, "plan", *asked))
    assert shlex.join(told) == wanted
    assert told[0] == "stirred"
    planned = json.loads(shown(capsys, "plan", *asked, "--json"))
    done = json.loads(shown(capsys, *told[1:], "--json"))
    assert done["epsilon_exact"] == planned["epsilon_exact"]


def test_a_target_without_a_rate_becomes_the_rate_that_reaches_it(capsys: pytest.CaptureFixture[str]) -> None:
    told = next_of(shown(capsys, "plan", "homes.parquet", *ROLES, "--epsilon", "4"))
    assert "--epsilon" not in told
    assert json.loads(shown(capsys, *told[1:], "--json"))["epsilon"] <= 4


def test_after_a_plan_file_the_next_command_is_the_run_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plan.toml").write_text(
        '[data]\nhouseholds = "homes.parquet"\nid = ["hid"]\n[mechanism]\nmatch = "size"\nswap = "county"\n'
        'rate = "1/2"\n[release]\nout = "out"\n',
        encoding="utf-8",
    )
    assert next_of(shown(capsys, "plan", "plan.toml")) == ["stirred", "release", "plan.toml"]


# ---- doubts ---------------------------------------------------------------------------------------

MARK = Doubt(kind="identifier", about="mark", what='"mark" is unique', remedy="name it with --id")
NOTE = Doubt(kind="draft", what="the codebook is a draft", remedy="declare the values", refuses=False)


def test_doubts_are_one_row_each_by_name() -> None:
    assert doubt_rows([MARK, NOTE], accepted=[]) == [
        ("doubt", 'identifier:mark (refuses the release): "mark" is unique'),
        ("note", "the codebook is a draft"),
    ]
    assert doubt_rows([NOTE]) == [("doubts", "none"), ("note", "the codebook is a draft")]
    assert doubt_rows([MARK], accepted=[MARK]) == [("doubt", 'identifier:mark (accepted): "mark" is unique')]
    assert doubt_rows([]) == [("doubts", "none")]


# ---- Python ---------------------------------------------------------------------------------------


def test_a_plan_in_python_prints_the_same_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    plan = swap.plan(Microdata.read(Path("homes.parquet"), Path("people.parquet"), hid="hid", id=["pid"]))
    assert str(plan) == repr(plan) == rows_text([*plan.outcome(), *doubt_rows(plan.doubts)])
    assert len(str(plan).splitlines()) <= 10
    assert shown(capsys, "plan", *WITH_PERSONS).startswith(str(plan))


def test_a_release_and_a_specification_print_their_promise_and_no_record() -> None:
    homes = households().drop("hid")
    swap = PermutationSwap(match=["size"], swap=["county"], rate="1/2")
    release = swap.release(homes, Entropy.from_os())
    text = str(release)
    assert text == repr(release)
    assert len(text.splitlines()) <= 10
    assert labels(text) == ["public", "internal", "held fixed", "promise", "meaning"]
    assert 'release.public["data"]' in text
    assert "seed" not in text
    assert "nothing of it may be published" in str(swap.release(homes, Entropy.from_seed("a")))
    specification = release.specification
    assert repr(specification) == f"Specification({specification.notation})"
    assert str(specification) in text
