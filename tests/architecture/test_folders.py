"""Folders inside a room do not import each other in circles: a newcomer can read one and stop."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import stirred
from stirred.mechanisms.registry import BUILT_IN
from tests.architecture.import_direction import imports_of
from tests.architecture.test_imports import plant

PACKAGE = Path(stirred.__file__).parent
MECHANISMS = PACKAGE / "mechanisms"
# The contract is written in a folder, and the modules beside it belong to it.
FRONT = ("contract",)


def folders_imported(room: Path, *, package: Path) -> dict[str, set[str]]:
    """Return which folders of a room each of its folders imports, also inside functions.

    The room itself is the folder of its own modules, and of those of ``FRONT``.
    """
    own = ".".join(room.relative_to(package.parent).parts)
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(room.rglob("*.py")):
        here = _folder(path.relative_to(room).with_suffix("").parts)
        for each in imports_of(path, package=package):
            if f"{each.target}.".startswith(f"{own}."):
                there = _folder_of(room, each.target.removeprefix(own).strip(".").split("."))
                if there != here:
                    found[here].add(there)
    return found


def _folder(parts: tuple[str, ...]) -> str:
    return "." if parts[0] in FRONT else "/".join(parts[:-1]) or "."


def _folder_of(room: Path, names: list[str]) -> str:
    """Return the folder of an imported name: as many names as are folders."""
    parts: list[str] = []
    for name in names:
        if not room.joinpath(*parts, name).is_dir():
            break
        parts.append(name)
    return _folder((*parts, "name"))


def circles(imported: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield each way from a folder back to itself that a search finds first."""
    for start in sorted(imported):
        ways = [[start]]
        seen = {start}
        while ways:
            way = ways.pop(0)
            for other in sorted(imported.get(way[-1], ())):
                if other == start:
                    yield [*way, start]
                    ways = []
                    break
                if other not in seen:
                    seen.add(other)
                    ways.append([*way, other])


def test_no_folder_of_mechanisms_is_imported_by_what_it_imports() -> None:
    found = [" -> ".join(way) for way in circles(folders_imported(MECHANISMS, package=PACKAGE))]
    assert not found, "folders in a circle:\n" + "\n".join(found)


def test_the_solver_knows_areas_and_cells_alone() -> None:
    imported = folders_imported(MECHANISMS / "topdown", package=PACKAGE)
    assert imported["solve"] == {"hierarchy"}
    assert "hierarchy" not in imported


def test_the_engine_of_records_knows_neither_laws_nor_steps_nor_pairs() -> None:
    imported = folders_imported(MECHANISMS / "records", package=PACKAGE)
    assert imported["."] == {"kernels"}
    assert "kernels" not in imported


def laws_that_import_laws(package: Path) -> list[str]:
    """Return each module of laws that imports one in which a built-in mechanism stands.

    What several laws need stands in modules without a mechanism, such as `counting`.
    """
    own = "stirred.mechanisms.records.laws."
    laws = {module for module, _ in BUILT_IN.values() if module.startswith(own)}
    return [
        f"{path.stem} imports {law.removeprefix(own)}"
        for path in sorted((package / "mechanisms" / "records" / "laws").glob("*.py"))
        for law in sorted(laws - {own + path.stem})
        if any(f"{each.target}.".startswith(f"{law}.") for each in imports_of(path, package=package))
    ]


def test_no_law_of_a_swap_imports_another_law() -> None:
    assert laws_that_import_laws(PACKAGE) == []


def test_a_law_that_imports_another_is_found(tmp_path: Path) -> None:
    line = "from stirred.mechanisms.records.laws.{} import ONE".format
    laws = "mechanisms/records/laws"
    files = {f"{laws}/mallows.py": line("counting"), f"{laws}/shuffle.py": line("mallows"), f"{laws}/counting.py": ""}
    assert laws_that_import_laws(plant(tmp_path, files)) == ["shuffle imports mallows"]


@pytest.mark.parametrize(
    "line",
    [
        "from stirred.mechanisms.records.engine import Swap",
        "from stirred.mechanisms.records import engine",
        "def late():\n    from stirred.mechanisms.records.engine import Swap",
        "from ..engine import Swap",
    ],
)
def test_a_circle_is_found(tmp_path: Path, line: str) -> None:
    files = {
        "mechanisms/records/engine.py": "from stirred.mechanisms.records.laws.permutation import Law",
        "mechanisms/records/laws/permutation.py": line,
        "mechanisms/records/steps/response.py": "from stirred.mechanisms.records.laws.permutation import Law",
    }
    package = plant(tmp_path, files)
    found = list(circles(folders_imported(package / "mechanisms" / "records", package=package)))
    assert found == [[".", "laws", "."], ["laws", ".", "laws"]]


@pytest.mark.parametrize("name", ["records", "tables", "topdown"])
def test_modules_of_a_room_do_not_import_each_other_in_circles(name: str) -> None:
    """Names that are only needed to check types, and imports inside a function, do not count."""
    room, own = MECHANISMS / name, f"stirred.mechanisms.{name}"
    imported: dict[str, set[str]] = defaultdict(set)
    for path in sorted(room.rglob("*.py")):
        here = path.relative_to(room).with_suffix("").as_posix().replace("/", ".")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(own):
                imported[here].add(str(node.module).removeprefix(own).strip("."))
    found = [" -> ".join(way) for way in circles(imported)]
    assert not found, "modules in a circle:\n" + "\n".join(found)


def test_modules_of_topdown_do_not_import_each_other_in_circles_even_late_or_for_types() -> None:
    own, imported = "stirred.mechanisms.topdown.", defaultdict[str, set[str]](set)
    paths = [*(MECHANISMS / "topdown").rglob("*.py")]
    modules = {
        path.relative_to(MECHANISMS / "topdown").with_suffix("").as_posix().replace("/", "."): path for path in paths
    }
    for here, path in modules.items():
        for each in imports_of(path, package=PACKAGE):
            target = each.target.removeprefix(own)
            imported[here] |= {target, target.rpartition(".")[0]} & {*modules} - {here}
    assert imported["solve.tree"] >= {"solve.parent", "hierarchy.tree"}
    found = [" -> ".join(way) for way in circles(imported)]
    assert not found, "modules in a circle:\n" + "\n".join(found)
