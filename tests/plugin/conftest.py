"""The example plug-in, built and installed as anybody would, into a folder of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stirred.mechanisms import registry

PACKAGE = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the package with pip, and let this process find it for as long as a module of tests needs it."""
    place = tmp_path_factory.mktemp("installed")
    options = ["-q", "--no-deps", "--no-build-isolation", "--target", str(place)]
    command = [sys.executable, "-m", "pip", "install", *options, str(PACKAGE)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    sys.path.insert(0, str(place))
    registry.forget()
    yield place
    sys.path.remove(str(place))
    registry.forget()
