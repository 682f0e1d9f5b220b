"""The folder in which an engine works is removed, with what is written there at the last moment."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from stirred.data import place as places
from stirred.data.place import Place


@pytest.mark.parametrize("elsewhere", [True, False])
@pytest.mark.parametrize("times", [2, 100])
def test_what_a_dying_executor_writes_is_removed_or_told(
    times: int, elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors that were told to stop may write while their folder is removed, and removing then failed unseen."""
    place = Place(out=tmp_path / "bundle")
    place.hidden.mkdir(mode=0o700)
    (tmp_path / "shared").mkdir()
    folder = place.new_scratch(tmp_path / "shared" if elsewhere else None)
    monkeypatch.setattr(places, "_WAITS", (0, 0, 0))
    removed, left = shutil.rmtree, [*range(times)]

    def remove(path: Path | str, **how: Any) -> None:
        removed(path, **how)
        if left:
            left.pop()
            folder.mkdir()
            (folder / "records.parquet").touch()

    monkeypatch.setattr(shutil, "rmtree", remove)
    if times == 2:
        place.remove_scratch()
        assert not folder.exists()
        return
    with pytest.warns(UserWarning, match=f"records may be left in {folder}"):
        place.remove_scratch()
