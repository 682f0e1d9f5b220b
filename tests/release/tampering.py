"""Ways to change a finished bundle so that its checksums are right again: only its contents can betray it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from tests.world import files_in, manifest


def retell(bundle: Path) -> None:
    """Forge the manifest after a change: then the scan alone must see it."""
    facts = manifest(bundle)
    names = files_in(bundle) - {"manifest.json"}
    facts["files"] = {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in sorted(names)}
    (bundle / "manifest.json").write_text(json.dumps(facts), encoding="utf-8")


def frame(name: str, change: Callable[[pl.DataFrame], pl.DataFrame], **notes: str) -> Callable[[Path], object]:
    """Write a public table anew, keeping its metadata."""

    def write(bundle: Path) -> None:
        path = bundle / "public" / name
        if path.suffix == ".csv":
            change(pl.read_csv(path)).write_csv(path)
            return
        kept = {k: v for k, v in pl.read_parquet_metadata(path).items() if k.startswith("stirred.")}
        change(pl.read_parquet(path)).write_parquet(path, metadata={**kept, **notes})

    return write


def text(name: str, change: Callable[[str], str]) -> Callable[[Path], object]:
    def write(bundle: Path) -> None:
        path = bundle / "public" / name
        path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")

    return write


def add(name: str, content: bytes = b"hello") -> Callable[[Path], object]:
    return lambda bundle: (bundle / name).write_bytes(content)


def copied(source: str, target: str) -> Callable[[Path], object]:
    return lambda bundle: shutil.copyfile(bundle / source, bundle / target)


def told(**facts: Any) -> Callable[[Path], object]:
    def write(bundle: Path) -> None:
        (bundle / "manifest.json").write_text(json.dumps({**manifest(bundle), **facts}), encoding="utf-8")

    return write


def specified(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def write(bundle: Path) -> None:
        path = bundle / "public" / "specification.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        change(document)
        path.write_text(json.dumps(document), encoding="utf-8")

    return write
