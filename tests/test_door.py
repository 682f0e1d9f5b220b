"""The door: what `import stirred` offers releases, reads and refuses as the command line does."""

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stirred
from stirred.data import uniqueness
from stirred.spec.problems import StirredError
from tests.world import stirred as command

HOMES = pl.DataFrame(
    {
        "hid": range(400),
        "size": [1, 2, 3, 4] * 100,
        "county": list("ABCDE") * 80,
        "tenure": [*("own", "rent", "free") * 133, "own"],
    }
)
SETTINGS: dict[str, Any] = {"match": "size", "swap": "county", "rate": "1/4", "id": "hid"}
COUNTIES = {"county": list("ABCDE")}
OPTIONS = ("--match", "size", "--swap", "county", "--rate", "1/4", "--id", "hid")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("door") / "homes.csv"
    HOMES.write_csv(path)
    return path


def test_a_frame_comes_back_as_the_callers_kind_of_frame() -> None:
    for frame in (HOMES, HOMES.to_pandas()):
        released = stirred.swap(frame, **SETTINGS)
        data = released.data
        assert type(data) is type(frame)
        assert sorted(data["county"]) == sorted(HOMES["county"])
        assert "hid" not in data.columns
        assert released.specification == stirred.plan(frame, **SETTINGS).specification


def test_a_file_is_released_as_the_bundle_of_the_command_line(file: Path, tmp_path: Path) -> None:
    planned = stirred.plan(file, tables=[["county", "tenure"]], **SETTINGS)
    made = stirred.release(planned, out=tmp_path / "here")
    done = command("swap", file, *OPTIONS, "--table", "county x tenure", "--out", "there", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    there = stirred.read(tmp_path / "there")
    assert made.files == there.files
    assert made.specification == there.specification == planned.specification
    assert made.data.height == there.data.height == 400
    assert made.tables["county-x-tenure"]["count"].sum() == 400
    assert stirred.check(tmp_path / "here").passed
    publication = stirred.publish(tmp_path / "here", tmp_path / "published")
    assert set(publication.files) <= {*stirred.read(publication.place).files}
    assert stirred.read(publication.place).specification == made.specification


def test_a_plan_file_says_everything_itself(file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    assert command("plan", file, *OPTIONS, "--write", plan, cwd=tmp_path).returncode == 0
    made = stirred.release(plan)
    assert made.path == tmp_path / "plan-bundle"
    assert made.specification == stirred.plan(file, **SETTINGS).specification
    with pytest.raises(StirredError, match="the plan file already fixes rate"):
        stirred.plan(plan, rate="1/2")


def test_a_release_of_a_file_is_in_its_ledger(file: Path, tmp_path: Path) -> None:
    assert command("ledger", "init", "l", "--dataset", "homes", cwd=tmp_path).returncode == 0
    stirred.swap(file, out=tmp_path / "out", ledger=tmp_path / "l", **SETTINGS)
    assert len([*stirred.Ledger.open(str(tmp_path / "l")).entries()]) == 1


@pytest.mark.parametrize("kind", ["frame", "file"])
def test_a_doubt_refuses_until_it_is_accepted_by_name(kind: str, file: Path, tmp_path: Path) -> None:
    data = HOMES if kind == "frame" else file
    settings: dict[str, Any] = {**SETTINGS, "id": None, **({} if kind == "frame" else {"out": tmp_path / "out"})}
    planned = stirred.plan(data, **settings)
    assert [doubt.name for doubt in planned.standing] == ["identifier:hid"]
    assert 'accept=["identifier:hid"]' in str(planned)
    with pytest.raises(StirredError, match="identifier:hid"):
        stirred.release(planned)
    assert not (tmp_path / "out").exists()
    accepted = stirred.plan(data, accept=["identifier:hid"], **settings)
    assert accepted.standing == ()
    stirred.release(accepted)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rate": "7/4"}, r"rate: 7/4 is not a probability"),
        ({"swap": "conty"}, r'did you mean "county"'),
        ({"mechanism": "pram"}, r"sdcMicro does it"),
        ({"ratte": "1/4"}, r"did you mean 'rate'"),
    ],
)
@pytest.mark.parametrize("kind", ["frame", "file"])
def test_what_is_wrong_is_said_and_nothing_is_written(
    settings: dict[str, str], words: str, kind: str, file: Path, tmp_path: Path
) -> None:
    out = {} if kind == "frame" else {"out": tmp_path / "out"}
    with pytest.raises(StirredError, match=words):
        stirred.swap(HOMES if kind == "frame" else file, **{**SETTINGS, **settings, **out})
    assert not (tmp_path / "out").exists()


def test_what_a_frame_has_no_use_for_is_refused() -> None:
    with pytest.raises(StirredError, match="ledger, purpose: a frame is released in memory"):
        stirred.plan(HOMES, ledger="l", purpose="p", **SETTINGS)
    with pytest.raises(StirredError, match="out: a frame is released in memory"):
        stirred.release(stirred.plan(HOMES, **SETTINGS), out="there")


def test_a_file_needs_a_folder_for_its_bundle(file: Path) -> None:
    with pytest.raises(StirredError, match="out: the folder of the bundle is needed"):
        stirred.swap(file, **SETTINGS)
    with pytest.raises(StirredError, match="out: the folder of the bundle is needed"):
        stirred.release(stirred.plan(file, **SETTINGS))
    with pytest.raises(StirredError, match="is not a plan"):
        stirred.release(3)


def test_noisy_tables_of_a_frame_are_frames() -> None:
    planned = stirred.plan(HOMES, mechanism="noisy-tables", tables=[["county"]], rho="1/2", values=COUNTIES)
    released = stirred.release(planned)
    assert isinstance(released.tables["county"], pl.DataFrame)
    assert released.specification == planned.specification


def test_results_print_themselves_also_in_a_notebook(file: Path, tmp_path: Path) -> None:
    planned = stirred.plan(HOMES.rename({"tenure": "<b>"}), **SETTINGS)
    assert "promise" in str(planned)
    assert "ε=" in planned._repr_html_()
    assert "<b>" not in planned._repr_html_()
    made = stirred.swap(file, out=tmp_path / "made", **SETTINGS)
    assert "data.parquet" in repr(made)
    assert made._repr_html_().startswith("<table>")
    checked = stirred.check(tmp_path / "made")
    assert str(checked).startswith(f"passed  yes, of {len(checked.checks)} checks")
    published = stirred.publish(tmp_path / "made", tmp_path / "published")
    assert f"folder  {tmp_path}" in str(published)
    assert "data.parquet" in str(published)
    assert max(published.files.values()) not in str(published)  # a checksum
    (tmp_path / "published" / "README.md").unlink()
    assert "problem" in str(stirred.check(tmp_path / "published"))
    with pytest.raises(StirredError, match="it has no persons"):
        _ = made.persons


def test_the_room_of_releases_is_the_function_too() -> None:
    """However it was imported first."""
    code = "import stirred.release.run, stirred; assert callable(stirred.release); stirred.release.run"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(StirredError, match="is not a plan"):
        stirred.release(None)


def test_a_name_that_is_not_there_is_private() -> None:
    with pytest.raises(AttributeError, match="it has Entropy"):
        _ = stirred.psa_epsilon
    assert {"swap", "plan", "release", "publish", "check", "read", "Ledger"} <= {*stirred.__all__}
    assert all(getattr(stirred, name) is not None for name in stirred.__all__)
    assert stirred.NoisyTables.name == "noisy-tables"


def test_what_is_about_the_file_and_what_is_a_setting_are_told_apart() -> None:
    """Noisy tables have a setting ``persons``, a number; a name of one column is a list of one."""
    settings: dict[str, Any] = {"mechanism": "noisy-tables", "rho": "1/2", "values": COUNTIES, "persons": 3}
    assert stirred.plan(HOMES, tables=[["county"]], **settings).mechanism.settings.persons == 3
    data = stirred.Microdata(households=HOMES)
    assert stirred.plan(data, **SETTINGS).specification == stirred.plan(HOMES, **SETTINGS).specification
    assert stirred.plan(HOMES, ledger=None, **SETTINGS).standing == ()


def test_what_is_no_frame_and_no_path_is_refused() -> None:
    for wrong in (3, None, ["size"], {"size": 1}):
        with pytest.raises(StirredError, match="cannot be read as a table"):
            stirred.plan(wrong, **SETTINGS)


def test_a_mechanism_may_be_given_itself(file: Path) -> None:
    swap = stirred.PermutationSwap(match=["size"], swap=["county"], rate="1/4")
    same = stirred.plan(HOMES, **SETTINGS)
    assert stirred.plan(HOMES, mechanism=swap, id="hid").specification == same.specification
    assert stirred.plan(file, mechanism=swap, id="hid").mechanism == same.mechanism
    noise = stirred.NoisyTables(rho="1/2", tables=[["county"]], values=COUNTIES)
    assert [*stirred.release(stirred.plan(HOMES, mechanism=noise)).tables] == ["county"]
    with pytest.raises(StirredError, match=r'a mechanism of tables is given by its name.*mechanism="noisy-tables"'):
        stirred.plan(file, mechanism=noise)
    with pytest.raises(StirredError, match=r"rate: the mechanism was given with its settings"):
        stirred.swap(HOMES, mechanism=swap, rate="1/2", id="hid")


@pytest.mark.parametrize("data", ["frame", "file"])
def test_what_is_no_mechanism_no_list_and_no_table_is_refused(data: str, file: Path) -> None:
    given = HOMES if data == "frame" else file
    wrong: Any
    for wrong in (3, stirred.PermutationSwap):
        with pytest.raises(StirredError, match=r"mechanism: .* is not a mechanism"):
            stirred.plan(given, mechanism=wrong)
    for key in ("id", "accept"):
        with pytest.raises(StirredError, match=f"{key}: 3 is not a list of names"):
            stirred.plan(given, **{**SETTINGS, key: 3})
    with pytest.raises(StirredError, match="tables: 3 does not name the columns of tables"):
        stirred.plan(given, **{**SETTINGS, "tables": 3})


def test_tables_of_a_swapped_frame_are_those_of_a_file() -> None:
    with pytest.raises(StirredError, match="tables: tables are counted with the bundle of a file"):
        stirred.swap(HOMES, tables=["county x tenure"], **SETTINGS)


def test_a_table_is_a_text_as_on_the_command_line(file: Path) -> None:
    settings: dict[str, Any] = {"mechanism": "noisy-tables", "rho": "1/2"}
    values = {**COUNTIES, "tenure": ["own", "rent", "free"]}
    for tables in (["county x tenure"], "county x tenure", [["county", "tenure"]]):
        found = stirred.release(stirred.plan(HOMES, tables=tables, values=values, **settings))
        assert [*found.tables] == ["county x tenure"]
    prepared = stirred.plan(file, tables=["county x tenure"], **SETTINGS).prepared
    assert prepared is not None
    assert prepared.plan_file.tables[0].variables == ["county", "tenure"]


def test_what_is_no_path_is_refused(tmp_path: Path) -> None:
    calls: list[Any] = [stirred.read, stirred.check, lambda it: stirred.publish(it, tmp_path / "new")]
    for call in calls:
        with pytest.raises(StirredError, match="None is not a path"):
            call(None)


def test_objects_that_are_made_otherwise_say_how(tmp_path: Path) -> None:
    with pytest.raises(StirredError, match=r"Ledger: a ledger is opened by its path\. Fix: write Ledger\.open\('l'\)"):
        stirred.Ledger("l")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Entropy\.from_os\(\)"):
        stirred.Entropy()


def test_a_release_says_what_belongs_to_the_plan() -> None:
    planned = stirred.plan(HOMES, **SETTINGS)
    with pytest.raises(StirredError, match=r"accept: this belongs to the plan\. Fix: give it to stirred\.plan"):
        stirred.release(planned, accept=["tells:tenure"])
    with pytest.raises(StirredError, match="plan: a value of the type DataFrame is not a plan"):
        stirred.release(HOMES)


def test_advice_in_python_is_what_works() -> None:
    (doubt,) = stirred.plan(HOMES, **{**SETTINGS, "id": None}).standing
    assert 'id=["hid"]' in str(StirredError([doubt.problem]))
    for data in (stirred.Microdata(HOMES, id=("hid",)), stirred.Microdata(households=HOMES, id=("hid",))):
        assert stirred.plan(data, **{**SETTINGS, "id": None}).standing == ()
    found = uniqueness.uniqueness(HOMES, ["size"], of="households")
    exposed = uniqueness.exposed_doubt(found, most=Fraction(-1), set_by="the default")
    assert exposed is not None
    assert "publish fewer columns, named with hold=, or coarser ones" in str(StirredError([exposed.problem]))


def test_the_folder_of_a_bundle_is_named_once(file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    assert command("plan", file, *OPTIONS, "--write", plan, cwd=tmp_path).returncode == 0
    (tmp_path / "plan-bundle").mkdir()  # what is said first is that it was named twice
    for planned in (plan, stirred.plan(plan), stirred.plan(file, out=tmp_path / "here", **SETTINGS)):
        with pytest.raises(StirredError, match="out: the plan already says this"):
            stirred.release(planned, out=tmp_path / "made")
    done = command("release", plan, "--out", "made", cwd=tmp_path)
    assert (done.returncode, "--out: the plan file already says this" in done.stderr) == (2, True)
    assert command("release", "plan.toml", "--out", "plan-bundle", cwd=tmp_path).returncode == 2
    (tmp_path / "plan-bundle").rmdir()
    assert command("release", "plan.toml", "--out", "plan-bundle", cwd=tmp_path).returncode == 0


def test_cell_keys_of_a_frame_read_their_table(tmp_path: Path) -> None:
    table = tmp_path / "pt.csv"
    assert command("ptable", "design", "--D", "3", "--V", "1", "--out", table, cwd=tmp_path).returncode == 0
    settings: dict[str, Any] = {"mechanism": "cell-key", "tables": ["county"], "values": COUNTIES, "id": "hid"}
    found = stirred.plan(HOMES, ptable=str(table), **settings)
    assert found.mechanism.settings.ptable["keys"] > 1
    assert stirred.plan(HOMES, ptable=table, **settings).specification == found.specification
    with pytest.raises(StirredError, match=r"none\.csv: there is no such file"):
        stirred.plan(HOMES, ptable=str(tmp_path / "none.csv"), **settings)


def test_a_mechanism_before_that_is_a_name_alone_is_refused_with_how_to_give_it() -> None:
    settings: dict[str, Any] = {"mechanism": "noisy-tables", "tables": ["county"], "rho": "1/2", "values": COUNTIES}
    with pytest.raises(
        StirredError, match=r"'permutation-swap' is not a table.*after=stirred\.PermutationSwap\(\.\.\.\)"
    ):
        stirred.plan(HOMES, after="permutation-swap", **settings)


def test_a_codebook_is_no_plan_and_a_number_no_section(file: Path, tmp_path: Path) -> None:
    book = tmp_path / "cb.toml"
    assert command("codebook", "init", file, "--out", book, cwd=tmp_path).returncode == 0
    with pytest.raises(StirredError, match="this is a codebook, and here a plan is read"):
        stirred.plan(book)
    plan = tmp_path / "plan.toml"
    plan.write_text('mechanism = 3\n[data]\nhouseholds = "homes.csv"\n[release]\nout = "out"\n', encoding="utf-8")
    with pytest.raises(StirredError, match=r"3 is not a section\. Fix: write \[mechanism\], and its keys below"):
        stirred.plan(plan)
