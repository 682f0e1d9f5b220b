"""`stirred attack` on bundles of every kind: swapped records, those of TopDown, noisy and cell-keyed tables."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred.cli.main import run
from stirred.data.synth.census import census

TABLES = "".join(
    f'[[tables]]\nvariables = ["block", {names}]\n'
    for names in ('"sex", "age3"', '"race7", "hispanic"', '"sex", "race7"')
)
DATA = '[data]\nfile = "people.csv"\nrecord = "person"\ncodebook = "codebook.toml"\n[mechanism]\n'
CODES = {
    "sex": ["1", "2"],
    "age3": ["0-17", "18-64", "65+"],
    "race7": ["1", "2", "3", "4", "5", "6", "7"],
    "hispanic": ["0", "1"],
}
MECHANISMS = {
    "swapped": 'name = "permutation-swap"\nmatch = ["county", "sex"]\nswap = ["block"]\nrate = "1/20"\n',
    "noisy": 'name = "noisy-tables"\nrho = 2\nsettings_from = "policy"\n',
    "keyed": 'name = "cell-key"\nptable = "ptable.csv"\nthreshold = 2\n',
    "topdown": 'name = "topdown"\nlevels = ["county", "block"]\nareas = "areas.csv"\nrho = 2\n'
    'attributes = ["sex", "age3", "race7", "hispanic"]\nqueries = ["total", "detailed"]\n'
    'publish = ["measurements", "records"]\n',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("attack")
    homes, persons = census(1_000, seed=1)
    age = pl.when(pl.col("age") < 18).then(pl.lit("0-17")).when(pl.col("age") < 65).then(pl.lit("18-64"))
    people = persons.join(homes.select("hid", "county", "block"), on="hid").select(
        *("county", "block", "sex", "hispanic"), age.otherwise(pl.lit("65+")).alias("age3"),
        pl.col("race").cast(pl.Int64).clip(1, 7).alias("race7"),
    )  # fmt: skip
    people.write_csv(place / "people.csv")
    people.select("county", "block").unique().sort("block").write_csv(place / "areas.csv")
    codes = {**CODES, **{name: [str(code) for code in sorted(people[name].unique())] for name in ("county", "block")}}
    book = '[codebook]\ntitle = "test"\n'
    for name, own in codes.items():
        listed = ", ".join(f'"{code}" = "{code}"' for code in own)
        book += f'[[variables]]\nname = "{name}"\nfile = "households"\ntype = "code"\ncodes = {{ {listed} }}\n'
    (place / "codebook.toml").write_text(book, encoding="utf-8")
    assert run(["ptable", "design", "--D", "2", "--V", "9/10", "--out", str(place / "ptable.csv")]) == 0
    for name, section in MECHANISMS.items():
        accept = 'accept = ["large-delta"]\n' if name == "keyed" else ""
        text = f'{DATA}{section}{TABLES}[release]\nout = "{name}"\n{accept}'
        (place / f"{name}.toml").write_text(text, encoding="utf-8")
        assert run(["release", str(place / f"{name}.toml"), "--seed", "test", "--quiet"]) == 0
    return place


def attacked(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["attack", *map(str, arguments), "--quiet", "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("kind", ["noisy", "keyed"])
def test_disturbed_tables_are_fitted_and_beat_chance(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    found = attacked(capsys, folder / kind, "--out", tmp_path / "public")
    assert (found["public"], found["agreement"]) == (True, None)
    assert found["areas_by_outcome"] == {"fitted": found["areas"]}
    assert found["residual"] > 0
    against = attacked(capsys, folder / kind, "--out", tmp_path / "inside", "--truth", folder / f"{kind}.toml")
    assert against["public"] is False
    assert against["agreement"] > against["agreement_by_chance"] + 0.05
    assert found["residual"] == against["residual"]


@pytest.mark.parametrize("kind", ["swapped", "topdown"])
def test_tables_of_released_records_have_exact_solutions(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    found = attacked(capsys, folder / kind, "--out", tmp_path / "public")
    assert found["public"] is True
    assert (found["residual"], found["areas_by_outcome"].get("fitted", 0)) == (0, 0)
    assert 0 < found["areas_by_outcome"]["one"] < found["areas"]
    named = attacked(capsys, folder / kind, "--out", tmp_path / "named", "--table", "sex x age3 x race7 x hispanic")
    assert (named["agreement"], named["share_of_areas_with_one_solution"]) == (1.0, 1.0)
    against = attacked(capsys, folder / kind, "--out", tmp_path / "inside", "--truth", folder / f"{kind}.toml")
    assert against["agreement"] < found["agreement"]


def test_screen_says_what_was_fitted_and_what_chance_alone_finds(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    arguments = ["attack", folder / "noisy", "--out", tmp_path / "out", "--truth", folder / "noisy.toml", "--quiet"]
    assert run([*map(str, arguments)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "tables of persons by block, with their noise, from public files alone" in shown
    assert "tables that were disturbed or contradict each other: the nearest" in shown
    assert "(keep this inside)" in shown
    assert "another area of about this size" in shown
    assert "one solution" not in shown


KNOWN = ["--known", "sex", "--known", "age3", "--learn", "race7,hispanic"]


def plans(folder: Path, *names: str) -> list[str]:
    return [str(folder / f"{name}.toml") for name in names]


def test_plans_of_every_kind_are_compared_by_promise_and_by_what_attacks_find(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    names = ["swapped", "topdown", "noisy"]
    capsys.readouterr()
    assert run(["compare", *plans(folder, *names), "--attack", *KNOWN, "--out", str(page), "--quiet", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["confidential"] is True
    swapped, topdown, noisy = facts["swaps"]
    assert (swapped["exposed"]["of"], topdown["exposed"], noisy["revealed"]) == ("persons", None, None)
    for each in facts["swaps"]:
        found = each["attack"]["reconstruction"]
        assert found["agreement"] > found["agreement_by_chance"]
        assert each["attack"]["reidentification"]["nonmodal unique"]["putative"] > 0
    # The noise of a table, and a swap of one record in twenty: the error of its cells is smaller by far.
    error = [each["attack"]["mean_absolute_error"]["block x sex x race7"] for each in facts["swaps"]]
    assert 0 < 3 * error[0] < min(error[1:])
    text = page.read_text(encoding="utf-8")
    assert "CONFIDENTIAL" in text
    assert text.count("<svg ") >= 1
    assert page.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html"]  # nothing of the draws is left


def test_a_comparison_without_attacks_draws_nothing_and_ranks_no_losses(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stirred.release.rehearsal.draw_without_release", None)
    capsys.readouterr()
    assert run(["compare", *plans(folder, "swapped", "topdown", "keyed")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Losses are not ranked" in shown
    assert "ρ²=2" in shown
    assert "rho 2" in shown
    assert "They are confidential" in shown
    assert "CONFIDENTIAL:" not in shown


def test_a_table_that_a_release_does_not_have_has_no_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    less = (folder / "noisy.toml").read_text(encoding="utf-8").replace('variables = ["block", "sex", "race7"]', "", 1)
    less = less.replace("[[tables]]\n\n", "")
    (folder / "less.toml").write_text(less, encoding="utf-8")
    arguments = ["compare", *plans(folder, "swapped", "less"), "--attack", "--quiet", "--json"]
    capsys.readouterr()
    assert run(arguments) == 0
    swapped, noisy = json.loads(capsys.readouterr().out)["swaps"]
    assert noisy["attack"]["mean_absolute_error"]["block x sex x race7"] is None
    assert swapped["attack"]["mean_absolute_error"]["block x sex x race7"] > 0
    assert 'no column "age"' in noisy["attack"]["not_measured"]
    assert noisy["attack"]["reconstruction"]["areas"] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--area", "block"], "it is about attacks"),
        (["--attack"], "no plan names are not drawn"),
        (["--attack", "--learn", "none"], 'there is no column "none"'),
    ],
)
def test_options_of_attacks_that_say_nothing_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    names = ["swapped"] if "no plan names" in said else ["swapped", "noisy"]
    capsys.readouterr()
    assert run(["compare", *plans(folder, *names), *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["noisy", "--tables", "sf"], "no records to count tables from"),
        (["noisy", "--table", "sex"], "no records to count tables from"),
        (["noisy", "--area", "tract"], 'no published table has "tract"'),
        (["noisy", "--reidentify", "tables"], "this release has no records"),
        (["swapped", "--reidentify", "tables"], "persons are looked for in tables of the census alone"),
        (["people.csv", "--tables", "published"], "a file has published nothing"),
        (["people.csv", "--tables", "sf", "--table", "sex"], "both name the tables"),
        (["people.csv", "--tables", "sf2"], "'sf2' is no list of tables"),
        (["people.csv", "--table", "sex x years"], '"years"'),
        (["people.csv"], 'no column "age", "race"'),
    ],
)
def test_what_cannot_be_attacked_is_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    capsys.readouterr()
    assert run(["attack", str(folder / options[0]), *options[1:], "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_with_codes_of_its_own_persons_are_looked_for_in_the_released_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    homes, persons = census(1_000, seed=1)
    homes.select("hid", "county", "size", quarter="block").write_csv("homes.csv")
    own = {"sex": {1: "m", 2: "f"}, "hispanic": {0: "no", 1: "yes"}}
    persons.with_columns(pl.col(name).replace_strict(codes) for name, codes in own.items()).write_csv("persons.csv")
    for name, rate in (("little", "1/50"), ("much", "9/10")):
        data = '[data]\nhouseholds = "homes.csv"\npersons = "persons.csv"\nhid = "hid"\nid = ["pid"]\n'
        swap = f'[mechanism]\nmatch = ["county", "size"]\nswap = ["quarter"]\nrate = "{rate}"\n'
        Path(f"{name}.toml").write_text(data + swap, encoding="utf-8")
    command = ["compare", "little.toml", "much.toml", "--attack", "--quiet", "--json"]
    capsys.readouterr()
    assert run(command) == 2
    assert "no area is named" in capsys.readouterr().out
    assert run([*command, "--area", "quarter"]) == 0
    little, much = (each["attack"] for each in json.loads(capsys.readouterr().out)["swaps"])
    assert (little["reconstruction"], little["reidentified_in"]) == (None, "records")
    right = [each["reidentification"]["nonmodal unique"]["precision"] for each in (little, much)]
    # Nearly everybody stays in their quarter, or nearly nobody does.
    assert right[0] > 0.9 > 0.6 > right[1]


def test_tables_of_persons_in_codes_of_their_own_are_attacked_without_naming_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    homes = range(60)
    pl.DataFrame({"hid": homes, "place": ["EWN"[n % 3] for n in homes], "rooms": [n % 4 for n in homes]}).write_csv(
        "h.csv"
    )
    people = [*range(120)]
    pl.DataFrame({"hid": [n // 2 for n in people], "work": ["ynr"[n // 3 % 3] for n in people]}).write_csv("p.csv")
    options = [
        "--persons",
        "p.csv",
        "--hid",
        "hid",
        "--match",
        "rooms",
        "--swap",
        "place",
        "--rate",
        "1/2",
        "--out",
        "made",
        "--seed",
        "s",
        "--quiet",
    ]
    assert run(["swap", "h.csv", *options, "--table", "place x work", "--table", "place x rooms"]) == 0
    for more in ([], ["--table", "place x work"]):
        capsys.readouterr()
        assert run(["attack", "made", "--area", "place", "--out", f"x{len(more)}", "--quiet", "--json", *more]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["persons"], found["agreement"], found["schema"]) == (120, 1.0, "work, 3 kinds of persons")


def test_the_help_says_what_a_file_in_codes_of_its_own_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["attack", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "a file or plan in codes of its own needs --table" in told
    pl.DataFrame({"ward": ["A", "A", "B"], "job": ["x", "y", "x"]}).write_csv(tmp_path / "own.csv")
    attack = ["attack", str(tmp_path / "own.csv"), "--area", "ward", "--out", str(tmp_path / "out"), "--quiet"]
    assert run(attack) == 2
    assert "or name tables of your own: --table" in capsys.readouterr().err
    assert run([*attack, "--table", "job"]) == 0
