"""The package as installed."""

from importlib.metadata import version

import stirred


def test_the_version_in_the_code_is_the_version_installed() -> None:
    assert stirred.__version__ == version("stirred")
