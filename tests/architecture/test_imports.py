"""Imports point one way: from the surfaces down to the mathematics."""

from pathlib import Path

import pytest

import stirred
from stirred.mechanisms.groups import GROUPS
from stirred.mechanisms.registry import BUILT_IN
from tests.architecture.import_direction import ALLOWED_BY_NAME, RANK, named_violations, violations

PACKAGE = Path(stirred.__file__).parent


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write a small package named ``stirred`` with the given modules."""
    for name, text in {"__init__.py": "", **files}.items():
        path = root / "stirred" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root / "stirred"


def test_every_import_points_down_to_spec() -> None:
    found = violations(PACKAGE)
    assert not found, "imports against the direction:\n" + "\n".join(found)


def test_modules_that_mechanisms_name_in_text_point_down_too_but_for_those_allowed_by_name() -> None:
    """The registry and the groups of commands import by name, which the syntax of imports does not show."""
    modules = [module for module, _ in (*BUILT_IN.values(), *GROUPS.values())]
    assert not named_violations(modules, room="mechanisms")
    assert ALLOWED_BY_NAME.keys() <= {*modules}, "one that is allowed is no longer named: take it out"


def test_a_module_named_in_text_against_the_direction_is_found() -> None:
    found = named_violations(["stirred.data.codes", "stirred.survey.amplify"], room="mechanisms")
    assert found == [
        "mechanisms must not import stirred.survey.amplify. It may import spec, randomness, data, engines."
    ]


@pytest.mark.parametrize(
    "line",
    [
        "import stirred.release",
        "import stirred.release.ledger as book",
        "from stirred import release",
        "from stirred.release import ledger",
        "from stirred.release.ledger import Ledger",
        "from .. import release",
        "from ..release import ledger",
        "def late():\n    from stirred.release import ledger",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stirred.release",
        "import importlib\nimportlib.import_module('stirred.release')",
        "from importlib import import_module\nimport_module('stirred.release')",
        "__import__('stirred.release')",
        "import stirred\nstirred.release.publish()",
        "import stirred.spec\nstirred.release.publish()",
    ],
)
@pytest.mark.parametrize("module", ["mechanisms/swapping.py", "mechanisms/__init__.py"])
def test_an_import_against_the_direction_is_found(tmp_path: Path, module: str, line: str) -> None:
    found = violations(plant(tmp_path, {module: line}))
    assert len(found) == 1
    assert found[0].startswith(
        f"stirred/{module}:{line.count(chr(10)) + 1}: mechanisms must not import stirred.release"
    )
    assert found[0].endswith("It may import spec, randomness, data, engines.")


def test_relative_imports_are_resolved_from_nested_rooms(tmp_path: Path) -> None:
    package = plant(
        tmp_path,
        {
            "mechanisms/swapping/kernel.py": "from ..tables import noise\nfrom ...spec import budget",
            "mechanisms/swapping/__init__.py": "from . import kernel\nfrom ...release import ledger",
        },
    )
    assert [sentence.split(": ")[0] for sentence in violations(package)] == [
        "stirred/mechanisms/swapping/__init__.py:2"
    ]


@pytest.mark.parametrize(("room", "neighbour"), [("data", "engines"), ("inference", "utility"), ("risk", "audit")])
def test_rooms_of_equal_rank_do_not_import_each_other(tmp_path: Path, room: str, neighbour: str) -> None:
    found = violations(plant(tmp_path, {f"{room}/a.py": f"import stirred.{neighbour}"}))
    assert found == [found[0]]
    assert f"{room} must not import stirred.{neighbour}" in found[0]


def test_spec_imports_nothing_of_ours(tmp_path: Path) -> None:
    rooms = [room for room in RANK if room != "spec"]
    lines = "\n".join(f"from stirred import {room}" for room in rooms)
    found = violations(plant(tmp_path, {"spec/budget.py": lines}))
    assert len(found) == len(rooms)
    assert all(sentence.endswith("It may import nothing of ours.") for sentence in found)


def test_a_room_without_a_rank_is_found(tmp_path: Path) -> None:
    found = violations(plant(tmp_path, {"cellar/wine.py": "", "helpers.py": ""}))
    assert [sentence.split(":")[0] for sentence in found] == ["stirred/cellar", "stirred/helpers"]
    assert all("Add it to RANK" in sentence for sentence in found)


def test_what_the_direction_allows_is_allowed(tmp_path: Path) -> None:
    package = plant(
        tmp_path,
        {
            "__main__.py": "from stirred.cli.main import main",
            "cli/main.py": "import stirred\nfrom stirred import release, spec\nstirred.__version__",
            "cli/spec.py": "import json, numpy\nfrom stirred.cli import main\nfrom . import main",
            "mechanisms/swapping.py": "from stirred.spec import Budget\nfrom ..randomness import entropy",
        },
    )
    assert violations(package) == []
