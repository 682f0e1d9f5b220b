"""Whatever a plan, a codebook, a specification or a manifest holds: a message, never a fault, nothing written."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stirred.audit.bundle import audit_bundle
from stirred.cli.main import run
from stirred.spec import catalogue
from stirred.spec.document import to_document
from tests.cli.mutations import mutated, mutated_json
from tests.depth import examples
from tests.world import households, listing, persons

PLAN = """\
[data]
households = "homes.parquet"
persons = "people.parquet"
codebook = "codebook.toml"
hid = "hid"
id = ["pid"]

[mechanism]
name = "permutation-swap"
match = ["size"]
swap = ["county", "state"]
hold = ["tenure", "age"]
rate = 0.5
settings_from = "policy"

[[mechanism.rates]]
size = 2
rate = "1/3"

[[tables]]
name = "tenures"
variables = ["county", "tenure"]

[release]
out = "out"
format = "csv"
title = "A title"
purpose = "to see"

[safes]
people = "anybody"

[safes.context]
sender = "us"
"""

CODEBOOK = """\
[codebook]
title = "Homes"

[[variables]]
name = "county"
file = "households"
type = "code"
codes = { East = "the east", North = "the north", South = "the south", West = "the west" }

[[variables]]
name = "state"
file = "households"
type = "code"
codes = { N = "northern", S = "southern" }

[[variables]]
name = "size"
file = "households"
type = "integer"
min = 1
max = 3

[[variables]]
name = "tenure"
file = "households"
type = "text"
missing = true

[[variables]]
name = "age"
file = "persons"
type = "integer"

[[hierarchies]]
name = "places"
levels = ["county", "state"]

[[structural_zeros]]
name = "no such place"
file = "households"
when = { state = ["N"], county = ["South"] }

[link]
hid = "hid"
id = ["pid"]
"""

SOME = settings(
    max_examples=examples(40),
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
FEW = settings(SOME, max_examples=examples(20))


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with files, plan and codebook, in which a fault of ours is raised and not reported."""
    folder = tmp_path_factory.mktemp("outer") / "room"
    folder.mkdir()
    northern = pl.col("county").is_in(["East", "North"])
    homes = households().with_columns(pl.when(northern).then(pl.lit("N")).otherwise(pl.lit("S")).alias("state"))
    homes.write_parquet(folder / "homes.parquet")
    persons(households()).write_parquet(folder / "people.parquet")
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8")
    (folder / "codebook.toml").write_text(CODEBOOK, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("STIRRED_DEBUG", "1")
        yield folder


def told(*arguments: str) -> tuple[int, str]:
    """Run a command; STIRRED_DEBUG lets a fault of ours through, which then fails the test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(arguments))
    assert code in (0, 1, 2), err.getvalue()
    if code == 2:
        said = out.getvalue() if "--json" in arguments else err.getvalue()
        assert "Fix: " in said or '"remedy"' in said
    if "--json" in arguments:
        json.loads(out.getvalue())
    return code, err.getvalue()


def written(room: Path, name: str, content: str | bytes) -> Path:
    path = room / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", errors="surrogatepass"))
    return path


def unwritten(room: Path, *commands: tuple[str, ...]) -> list[int]:
    """Run commands and check that nothing appeared in the folder or beside it."""
    before = listing(room.parent)
    codes = [told(*command)[0] for command in commands]
    assert listing(room.parent) == before
    return codes


def test_the_files_are_right_before_anything_is_changed(room: Path) -> None:
    """Otherwise every mutation would stop at the first mistake."""
    check = ("codebook", "check", "homes.parquet", "--persons", "people.parquet", "--codebook", "codebook.toml")
    assert unwritten(room, ("plan", "plan.toml"), check) == [0, 0]


def test_a_fault_of_ours_would_be_seen(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(*_: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr("stirred.cli.plan.prepare", fault)  # importing it first, if it was not
    with pytest.raises(ValueError, match="a fault"):
        told("plan", "plan.toml")


def test_a_file_that_appears_would_be_seen(room: Path) -> None:
    with pytest.raises(AssertionError):
        unwritten(room, ("codebook", "init", "homes.parquet", "--out", "new.toml"))
    (room / "new.toml").unlink()


# ---- plans -----------------------------------------------------------------------------------------


@SOME
@given(st.one_of(mutated(PLAN), st.binary(max_size=300)))
def test_any_plan_is_shown_or_refused(room: Path, content: str | bytes) -> None:
    written(room, "fuzzed.toml", content)
    unwritten(room, ("plan", "fuzzed.toml"), ("plan", "fuzzed.toml", "--json"))


@FEW
@given(mutated(PLAN))
def test_any_plan_is_carried_out_completely_or_not_at_all(room: Path, content: str) -> None:
    written(room, "fuzzed.toml", content)
    before = listing(room.parent)
    code, _ = told("release", "fuzzed.toml", "--quiet")
    new = {name.split("/")[1] for name in set(listing(room.parent)) - set(before) if "/" in name}
    assert len(new) == (1 if code == 0 else 0)
    for name in new:
        assert audit_bundle(room / name).passed
        shutil.rmtree(room / name)
    assert listing(room.parent) == before


@FEW
@given(st.binary(max_size=300))
def test_bytes_are_no_plan(room: Path, content: bytes) -> None:
    written(room, "fuzzed.toml", content)
    assert unwritten(room, ("release", "fuzzed.toml", "--quiet")) == [2]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"\xef\xbb\xbf" + PLAN.encode(), 0),  # a mark that editors put in front
        (PLAN.replace("rate = 0.5", f"rate = {'9' * 5000}").encode(), 2),
        (PLAN.replace("rate = 0.5", "rate = 1e-999999999").encode(), 2),
        (PLAN.replace("rate = 0.5", f"rate = {'[' * 5000}").encode(), 2),
        (PLAN.encode("utf-16"), 2),
    ],
    ids=["byte order mark", "5,000 digits", "no digits left", "5,000 brackets", "UTF-16"],
)
def test_plans_that_parsers_stumble_over(room: Path, content: bytes, code: int) -> None:
    written(room, "fuzzed.toml", content)
    assert unwritten(room, ("plan", "fuzzed.toml")) == [code]


# ---- codebooks -------------------------------------------------------------------------------------


@SOME
@given(st.one_of(mutated(CODEBOOK), st.binary(max_size=300)))
def test_any_codebook_is_used_or_refused(room: Path, content: str | bytes) -> None:
    written(room, "fuzzed-codebook.toml", content)
    files = ("homes.parquet", "--persons", "people.parquet", "--codebook", "fuzzed-codebook.toml")
    swap = ("--hid", "hid", "--match", "size", "--swap", "county,state", "--rate", "1/2")
    unwritten(room, ("codebook", "check", *files), ("plan", *files, *swap, "--json"))


# ---- specifications --------------------------------------------------------------------------------

DOCUMENTS = [to_document(catalogue.load(name).specification) for name in catalogue.names()]
COMMANDS: list[Callable[[str], tuple[str, ...]]] = [
    lambda file: ("spec", "show", file),
    lambda file: ("spec", "show", "--explain", file, "--json"),
    lambda file: ("spec", "lint", file),
    lambda file: ("compare", file, "das-2020", "--json"),
    lambda file: ("spec", "compose", file, "pure-dp", "--json"),
    lambda file: ("spec", "convert", file, "--output", "zcdp"),
    lambda file: ("spec", "export", file, "--format", "markdown"),
]


@settings(SOME, max_examples=examples(100))
@given(
    st.one_of(
        st.sampled_from(DOCUMENTS).flatmap(mutated_json),
        st.sampled_from(DOCUMENTS).flatmap(lambda document: mutated(json.dumps(document, indent=1))),
        st.binary(max_size=300),
    ),
    st.sampled_from(COMMANDS),
)
def test_any_specification_is_read_or_refused(
    room: Path, content: str | bytes, command: Callable[[str], tuple[str, ...]]
) -> None:
    written(room, "fuzzed.json", content)
    unwritten(room, command("fuzzed.json"))


# ---- bundles ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundle(room: Path) -> Path:
    assert told("release", "plan.toml", "--quiet")[0] == 0
    return room / "out"


@settings(SOME, max_examples=examples(25))
@given(st.data(), st.sampled_from(["manifest.json", "public/specification.json"]))
def test_any_manifest_or_specification_of_a_bundle_is_published_or_refused(
    room: Path, bundle: Path, data: st.DataObject, name: str
) -> None:
    right = (bundle / name).read_text(encoding="utf-8")
    document: Any = json.loads(right)
    content = data.draw(st.one_of(mutated_json(document), mutated(right), st.binary(max_size=100)))
    try:
        written(bundle, name, content)
        changed = (bundle / name).read_bytes() != right.encode()
        codes = unwritten(room, ("publish", "out", "elsewhere", "--dry-run"), ("check", "out", "--json"))
    finally:
        written(bundle, name, right)
    assert codes[0] in (0, 2)
    if changed and name != "manifest.json":
        assert codes == [2, 1]
