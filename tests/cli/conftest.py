"""Fixtures of the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from stirred.cli.main import run
from tests.cli.running import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call
