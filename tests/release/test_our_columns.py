"""A column of a file may be called as we call columns ourselves: it works, or the plan refuses it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.data.problems import DataError
from stirred.release.prepared import OF_TABLES, OURS
from tests.release.test_public_edition import CASES, ptable
from tests.world import households, stirred

SOURCE = Path(__file__).parents[2] / "src" / "stirred"
NAMED = {"alias", "with_row_index", "len", "to_frame", "value_counts", "col", "Series", "group_by", "over", "sort"}
BY_KEYWORD = {"select", "with_columns", "agg", "DataFrame"}
# Columns of each case that stand for all that it does: some are matched, swapped, held, tabulated, summed or weights.
ROLES = {
    "permutation": ["county", "tenure", "size", "age"],
    "conditioned": ["tenure", "county", "size"],
    "mallows": ["county", "size", "tenure"],
    "shuffle": ["size", "tenure", "county"],
    "two stages": ["tenure", "county", "size"],
    "response": ["tenure", "county", "size"],
    "noisy swap": ["tenure", "county"],
    "targeted": ["county", "region", "tenure"],
    "pairwise": ["county", "region", "race", "tenure"],
    "noisy tables, a margin kept": ["tenure", "county"],
    "cell keys": ["tenure", "county"],
    "cell keys after a swap": ["tenure", "county"],
    "topdown": ["sex", "ward", "region", "work"],
    "safetab": ["block", "sex"],
    "phsafe": ["state", "cenrace"],
    "survey estimates": ["income", "work", "sex", "region"],
}


def literals(path: Path) -> Iterator[str]:
    """Yield the texts by which a file of ours names columns."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        given: list[object] = [*node.args] if node.func.attr in NAMED else []
        if node.func.attr in BY_KEYWORD:
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            given += [key for each in node.args if isinstance(each, ast.Dict) for key in each.keys]
        for each in given:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


def our_names() -> list[str]:
    found = {name for path in SOURCE.rglob("*.py") if "synth" not in path.parts for name in literals(path)}
    return sorted(name for name in found if re.fullmatch(r"[a-z]\w*", name))


# Names that once passed the plan and failed after the draw; the audit tries all others too.
FAILED = ["sum", "all", "left", "left2", "rows", "variance", "low", "high", "mean", "estimate", "kept", "len", "_cell"]
FAILED += ["published", "number", "value", "row", "cells", "n", "bias", "absolute_error"]


def renamed(text: str, names: dict[str, str]) -> str:
    return re.sub("|".join(rf"(?<![\w-]){name}(?![\w-])" for name in names), lambda found: names[found[0]], text)


def tried(case: str, names: dict[str, str], folder: Path) -> str:
    """Release a file whose columns have other names; return what is wrong, empty if it is released or refused."""
    of, truth = CASES[case], CASES[case].truth()
    folder.mkdir()
    for name, frame in truth.items():
        if {*names.values()} & {*frame.columns}:
            return ""  # the file has a column of that name already
        own = frame.rename({old: new for old, new in names.items() if old in frame.columns})
        own.write_parquet(folder / name) if name.endswith(".parquet") else own.write_csv(folder / name)
    for name, content in of.beside.items():
        (folder / name).write_bytes(renamed(content, names).encode() if isinstance(content, str) else content)
    if "ptable.csv" in of.plan:
        ptable(folder)
    plan = f'{renamed(of.plan, names)}[release]\nout = "out"\naccept = [{of.accept}]\n'
    (folder / "plan.toml").write_text(plan, encoding="utf-8")
    done = stirred("release", "plan.toml", "--quiet", cwd=folder)
    if done.returncode == 2 and len(names) > 1:  # one of them hides what would become of the others
        each = ((old, new, folder.with_name(f"{folder.name}-{new}")) for old, new in names.items())
        return "".join(tried(case, {old: new}, place) for old, new, place in each)
    return "" if done.returncode in (0, 2) else f"{names}: {done.stderr}"


def all_tried(case: str, names: list[str], folder: Path) -> str:
    """Give each of the names to some column, several at a time."""
    roles, said = ROLES[case], ""
    for turn, begin in enumerate(range(0, len(names), len(roles))):
        own = [*roles[turn % len(roles) :], *roles[: turn % len(roles)]]
        said += tried(case, dict(zip(own, names[begin : begin + len(roles)], strict=False)), folder / str(turn))
    return said


OFTEN = {"permutation", "conditioned", "noisy tables, a margin kept", "topdown", "survey estimates"}


@pytest.mark.parametrize(
    "case", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in ROLES]
)
def test_a_column_called_as_one_of_ours_is_released_or_refused_in_the_plan(case: str, tmp_path: Path) -> None:
    assert not all_tried(case, FAILED, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(OFTEN))
def test_any_name_of_ours_is_released_or_refused_in_the_plan(case: str, tmp_path: Path) -> None:
    assert not all_tried(case, our_names(), tmp_path)


def test_the_names_that_failed_are_among_those_that_are_looked_for() -> None:
    found = our_names()
    assert len(found) > 100
    assert {"mean", "variance", "low", "estimate", "kept"} <= {*found}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_names_that_begin_as_ours_do_are_refused_on_reading(ending: str, tmp_path: Path) -> None:
    homes = households().rename({"tenure": "__tenure"})
    place = tmp_path / f"homes.{ending}"
    homes.write_csv(place) if ending == "csv" else homes.write_parquet(place)
    with pytest.raises(DataError, match=r'begin with __ are reserved: "__tenure".*rename or remove it in the file'):
        Microdata.read(place)
    with pytest.raises(DataError, match="reserved"):
        Microdata(households=homes)


def test_the_index_of_pandas_is_answered_with_how_to_leave_it_out() -> None:
    with pytest.raises(DataError, match="index=False"):
        Microdata(households=pl.DataFrame({"a": [1], "__index_level_0__": [0]}))


def attack_tried(name: str, folder: Path, *, area: bool) -> str:
    """Attack the tables of a file with a column of this name; return what is wrong, empty if it works or is refused."""
    file, out = folder / f"{name}.csv", folder / f"{name}-{area}"
    households().head(40).rename({"county" if area else "tenure": name}).write_csv(file)
    by, table = (name, "tenure") if area else ("county", name)
    options = ["--area", by, "--table", f"{table} x size", "--out", str(out), "--quiet", "--seconds", "1"]
    done = stirred("attack", str(file), *options, cwd=folder)
    half = done.returncode != 0 and out.exists()
    return "" if done.returncode in (0, 2) and not half else f"{name}: {done.stderr}"


@pytest.mark.parametrize("area", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        ["persons", "outcome", "certain", "by_chance", "cells", "counts", "sure", "count"],
        pytest.param(our_names(), marks=pytest.mark.slow),
    ],
    ids=["often", "all"],
)
def test_an_attack_works_or_is_refused_before_it_writes(names: list[str], area: bool, tmp_path: Path) -> None:
    taken = households().columns
    assert not "".join(attack_tried(name, tmp_path, area=area) for name in names if name not in taken)


def test_an_attack_that_is_refused_for_a_name_says_which(tmp_path: Path) -> None:
    households().head(40).rename({"tenure": "certain"}).write_csv(tmp_path / "homes.csv")
    done = stirred("attack", "homes.csv", "--area", "county", "--table", "certain", "--out", "att", cwd=tmp_path)
    assert done.returncode == 2
    assert 'columns of their own with these names: "certain". Fix: rename them in a copy' in done.stderr
    assert not (tmp_path / "att").exists()


def test_the_names_that_are_taken_stand_in_the_documentation() -> None:
    page = (SOURCE.parents[1] / "docs" / "codebooks.md").read_text(encoding="utf-8")
    assert not [name for name in (*OURS, *OF_TABLES) if f"`{name}`" not in page.partition("## Names that are taken")[2]]
