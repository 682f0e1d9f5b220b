"""Folders inside a room do not import each other in circles: a newcomer can read one and stop."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import stirred
from tests.architecture.import_direction import imports_of
from tests.architecture.test_imports import plant

PACKAGE = Path(stirred.__file__).parent
# The rooms of mechanisms that are held to it.
ROOMS = ("records",)


def folders_imported(room: Path, *, package: Path) -> dict[str, set[str]]:
    """Return which folders of a room each of its folders imports; the room itself is the folder of its own modules."""
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
    return "/".join(parts[:-1]) or "."


def _folder_of(room: Path, names: list[str]) -> str:
    """Return the folder of an imported name: as many names as are folders."""
    parts: list[str] = []
    for name in names:
        if not room.joinpath(*parts, name).is_dir():
            break
        parts.append(name)
    return "/".join(parts) or "."


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


@pytest.mark.parametrize("room", ROOMS)
def test_no_folder_is_imported_by_what_it_imports(room: str) -> None:
    found = [" -> ".join(way) for way in circles(folders_imported(PACKAGE / "mechanisms" / room, package=PACKAGE))]
    assert not found, "folders in a circle:\n" + "\n".join(found)


def test_the_engine_of_records_knows_neither_laws_nor_steps_nor_pairs() -> None:
    imported = folders_imported(PACKAGE / "mechanisms" / "records", package=PACKAGE)
    assert imported["."] == {"kernels"}
    assert "kernels" not in imported


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


def test_modules_of_the_room_do_not_import_each_other_in_circles() -> None:
    """Names that are only needed to check types, and imports inside a function, do not count."""
    room = PACKAGE / "mechanisms" / "records"
    imported: dict[str, set[str]] = defaultdict(set)
    for path in sorted(room.rglob("*.py")):
        here = path.relative_to(room).with_suffix("").as_posix().replace("/", ".")
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("stirred.mechanisms.records"):
                imported[here].add(str(node.module).removeprefix("stirred.mechanisms.records").strip("."))
    found = [" -> ".join(way) for way in circles(imported)]
    assert not found, "modules in a circle:\n" + "\n".join(found)
