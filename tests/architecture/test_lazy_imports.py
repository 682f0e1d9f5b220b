"""Starting up loads no heavy library: each is imported where it is first needed."""

import subprocess
import sys
from functools import cache

import pytest

HEAVY = ("numba", "jinja2", "polars", "numpy", "pydantic", "highspy", "pyspark", "duckdb", "pandas", "pyarrow")

IMPORT = "import stirred"
HELP = """
import sys
sys.argv = ["stirred", "--help"]
from stirred.cli.main import main
try:
    code = main()
except SystemExit as stop:
    code = stop.code
assert not code, f"stirred --help exits with {code}"
"""


@cache
def loaded_by(program: str) -> frozenset[str]:
    """Return the top-level modules that a fresh interpreter has loaded after ``program``."""
    report = "\nimport sys; print('\\nloaded', *{name.partition('.')[0] for name in sys.modules})"
    result = subprocess.run([sys.executable, "-c", program + report], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return frozenset(result.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("library", HEAVY)
def test_importing_stirred_does_not_load(library: str) -> None:
    assert library not in loaded_by(IMPORT)


@pytest.mark.parametrize("library", HEAVY)
def test_asking_for_help_does_not_load(library: str) -> None:
    assert library not in loaded_by(HELP)


def test_importing_stirred_leaves_its_rooms_closed() -> None:
    result = subprocess.run(
        [
            sys.executable,
            "-c",
            "import stirred, sys; print(*[m for m in sys.modules if m.startswith('stirred.')])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == []


def test_asking_for_help_opens_no_room_but_the_command_line() -> None:
    """The names of groups that mechanisms bring along are in a module that imports nothing."""
    rooms = (
        "\nimport sys; names = {name for name in sys.modules if name.startswith('stirred.')}"
        "\nnames = sorted({'stirred.cli' if name.startswith('stirred.cli') else name for name in names})"
        "\nprint('\\nrooms', *names)"
    )
    result = subprocess.run([sys.executable, "-c", HELP + rooms], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1].split() == [
        "rooms",
        "stirred.cli",
        "stirred.mechanisms",
        "stirred.mechanisms.groups",
    ]


def test_a_library_that_is_loaded_is_seen() -> None:
    assert "numpy" in loaded_by("import stirred\nimport numpy.linalg")


def test_a_room_that_does_not_exist_is_refused_by_name() -> None:
    import stirred

    with pytest.raises(AttributeError, match=r"no attribute 'cellar'; it has Entropy"):
        stirred.cellar  # noqa: B018
