"""Public tables that a plan names: their rows, their checksums, and the promises of releases that they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

import polars as pl
from pydantic import SerializationInfo

from stirred.data.bundle import checksum, release_of
from stirred.data.frames import read_frame
from stirred.data.problems import bad_file
from stirred.spec.document import from_document, to_document
from stirred.spec.specification import Specification

_FROM_A_RELEASE: Final = (
    "name a public file in the bundle of a finished release, or in the folder that was published; in Python give "
    "ReleasedTable('first/public/counts.parquet').read(Path())"
)


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A public table that a mechanism needs beside the confidential file: areas, codes, what was published before.

    A plan names its file; the release reads it, as text, and manifest and specification keep its name and checksum.
    A name without an ending is that of a table which the mechanism brings along.
    """

    file: str
    sha256: str = ""
    frame: pl.DataFrame | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, given: Any) -> Any:
        """Return the table that was named, kept in a manifest, or given as a frame; anything else as it is."""
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, Mapping):
            return cls(str(given.get("file", "")), str(given.get("sha256", "")))
        if not isinstance(given, pl.DataFrame):
            return given
        text = given.cast(pl.String)
        return cls("given", hashlib.sha256(text.write_json().encode()).hexdigest(), text)

    def read(self, folder: Path) -> Self:
        """Return the table with its rows and its checksum."""
        if self.frame is not None or "." not in self.file:
            return self
        frame = read_frame(folder / self.file).cast(pl.String)
        return replace(self, sha256=checksum(folder / self.file), frame=frame)

    def kept(self, info: SerializationInfo) -> dict[str, str]:
        """Return what is kept of it: its file, in public without the folder, and the checksum."""
        file = Path(self.file).name if info.context else self.file
        return {"file": file, "sha256": self.sha256} if self.sha256 else {"file": file}


@dataclass(frozen=True, slots=True)
class ReleasedTable(PublicTable):
    """A public table of an earlier release, with the promise that its loss was stated by.

    A plan names the file in the bundle, or in the folder that was published. Reading it checks that the release is
    whole and unchanged. ``release`` is its checksum; manifest and specification keep all but the rows.
    """

    title: str = ""
    release: str = ""
    promise: Specification | None = None

    @classmethod
    def of(cls, given: Any) -> Any:
        """Return the table that was named or kept in a manifest; rows alone have no promise, and are refused later."""
        table = PublicTable.of(given)
        if not isinstance(table, PublicTable) or isinstance(table, cls):
            return table
        kept: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        stated = kept.get("specification")
        return cls(
            table.file,
            table.sha256,
            table.frame,
            title=str(kept.get("title", "")),
            release=str(kept.get("release", "")),
            promise=None if stated is None else from_document(stated, source=f"{table.file} specification"),
        )

    def read(self, folder: Path) -> Self:
        """Return the table with its rows, its checksum, and the release that it belongs to."""
        if self.frame is not None or "." not in self.file:
            return self
        read = PublicTable.read(self, folder)
        found = release_of(folder / self.file)
        return replace(read, title=found.title, release=found.sha256, promise=found.specification)

    def kept(self, info: SerializationInfo) -> dict[str, Any]:
        """Return what is kept of it: file and checksum, and the release with its promise."""
        own = {"title": self.title, "release": self.release}
        more = {} if self.promise is None else {**own, "specification": to_document(self.promise)}
        return {**PublicTable.kept(self, info), **more}

    @property
    def named(self) -> str:
        """Name the release in a sentence: its title, what it promises, and the file with its checksum."""
        loss = "nothing that is stated here" if self.promise is None else self.promise.budget_text
        return f"'{self.title}', which promises {loss} ({Path(self.file).name}, SHA-256 {self.sha256})"

    @property
    def expected(self) -> ReleasedTable:
        """Return the table itself; refuse one that was not read, and rows that belong to no release."""
        if self.frame is None:
            raise bad_file(f"the table '{self.file}' was not read", where="", remedy=_FROM_A_RELEASE)
        if self.promise is None:
            raise bad_file("these counts belong to no release that was checked", where="", remedy=_FROM_A_RELEASE)
        return self
