"""The rooms around mechanisms know them through the contract alone, so that a stranger's is as much at home as ours."""

from pathlib import Path

import pytest

import stirred
from stirred.mechanisms.protocol import Mechanism
from stirred.mechanisms.registry import BUILT_IN
from tests.architecture.contract import closed_imports, outer_modules, spelled_names
from tests.architecture.cost import PLUGIN, cost_of, files_that_know
from tests.architecture.test_imports import plant

PACKAGE = Path(stirred.__file__).parent


def test_no_outer_room_imports_a_mechanism() -> None:
    found = list(closed_imports(PACKAGE))
    assert not found, "mechanisms are known through protocol and registry:\n" + "\n".join(found)


def test_no_outer_room_spells_a_mechanism() -> None:
    found = list(spelled_names(PACKAGE, BUILT_IN))
    assert not found, "names of mechanisms stand in the registry alone:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "import stirred.mechanisms.swapping",
        "from stirred.mechanisms import swapping",
        "from stirred.mechanisms.records.engine import Swap",
        "from ..mechanisms.swapping import family",
        "def late():\n    from stirred.mechanisms.swapping import family",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import stirred.mechanisms.swapping",
        "from importlib import import_module\nimport_module('stirred.mechanisms.swapping')",
    ],
)
def test_an_import_of_a_mechanism_is_found(line: str, tmp_path: Path) -> None:
    package = plant(tmp_path, {"release/run.py": line})
    assert len(list(closed_imports(package))) == 1


def test_the_contract_and_the_registry_may_be_imported(tmp_path: Path) -> None:
    lines = "from stirred.mechanisms import protocol, registry\nfrom stirred.mechanisms.protocol import Mechanism"
    assert not list(closed_imports(plant(tmp_path, {"audit/bundle.py": lines})))


@pytest.mark.parametrize(
    "line",
    [
        "if plan.name == 'noisy-swap':\n    pass",
        "HELP = f'such as mallows-swap, or {other}'",
        "isinstance(mechanism, swapping.PermutationSwap)",
        "from stirred import PermutationSwap",
        "LAWS = {'shuffle-swap': 1}",
        "if release.member == 'mallows':\n    pass",
    ],
)
def test_a_name_that_code_spells_is_found(line: str, tmp_path: Path) -> None:
    package = plant(tmp_path, {"cli/plan.py": line})
    assert len(list(spelled_names(package, BUILT_IN))) == 1


def test_a_plain_word_of_a_sentence_is_no_name(tmp_path: Path) -> None:
    assert not list(spelled_names(plant(tmp_path, {"report/page.py": "WORDS = 'a random permutation'"}), BUILT_IN))


def test_a_name_in_a_docstring_or_inside_mechanisms_is_no_code(tmp_path: Path) -> None:
    files = {
        "cli/plan.py": '"""Such as noisy-swap."""\n\ndef show():\n    """Show a noisy-swap."""\n',
        "mechanisms/registry.py": "NAME = 'noisy-swap'",
    }
    assert not list(spelled_names(plant(tmp_path, files), BUILT_IN))


def test_every_outer_room_is_looked_at() -> None:
    assert {path.relative_to(PACKAGE).parts[0] for path in outer_modules(PACKAGE)} >= {"audit", "cli", "release"}


def test_a_built_in_mechanism_is_known_to_three_source_files_at_most() -> None:
    """The registry, and for one the front door; see ``tests/architecture/cost.py``."""
    assert {name: len(cost_of(name)) for name in BUILT_IN if len(cost_of(name)) > 3} == {}


def test_the_plug_in_is_known_to_no_source_file() -> None:
    assert files_that_know(PLUGIN) == []


def test_the_page_for_third_parties_names_every_hook() -> None:
    page = (PACKAGE.parents[1] / "docs" / "write-a-mechanism.md").read_text(encoding="utf-8")
    own = {name for name in vars(Mechanism) if not name.startswith("_")}
    kept = {"unit", "settings_from", "with_settings"}  # they follow from the settings
    assert sorted(name for name in own - kept if f"`{name}" not in page) == []
