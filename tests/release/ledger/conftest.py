"""Ledgers on both kinds of storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stirred.release.ledger import Ledger
from tests.release.ledger.server import Server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of a ledger that does not exist yet, once on each storage."""
    if request.param == "sqlite":
        return str(tmp_path / "file.ledger")
    server: Server = request.getfixturevalue("postgres")
    return server.new_url()


@pytest.fixture
def ledger(url: str) -> Ledger:
    return Ledger.create(url, dataset="the register", who="ana")
