"""What a release has: the frames, the files that they become, and the checks of what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

import polars as pl

from stirred.data.frames import as_read, has_taken, read_frame
from stirred.data.microdata import Microdata
from stirred.randomness.entropy import Entropy
from stirred.spec.doubts import accepted_among
from stirred.spec.explanation import promise_rows, published_exactly
from stirred.spec.invariant import Margin
from stirred.spec.problems import Problem, StirredError
from stirred.spec.specification import Specification
from stirred.spec.text import rows_text

# The names of the files that hold records.
RECORDS: Final = "data"
PERSONS: Final = "persons"

Kind = Literal["records", "table", "measurements", "estimates", "side"]
# What a mechanism calls as it goes: the stage, pieces done, pieces in all.
Progress = Callable[[str, int, int], None]


class Frames(Mapping[str, Any]):
    """Released tables by name. Each is kept as parts, so that a national file never has to be one frame.

    ``frames["persons"]`` puts the parts together, in the caller's own kind of frame.
    """

    def __init__(
        self,
        parts: Mapping[str, Callable[[], Iterable[pl.DataFrame]]],
        *,
        convert: Callable[[pl.DataFrame], Any],
        files: Mapping[str, Sequence[Path]] | None = None,
    ) -> None:
        self._parts = parts
        self._convert = convert
        self._files = files or {}

    def parts(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield the parts of a table, in order; asking again yields the same parts again."""
        yield from self._parts[name]()

    def files(self, name: str) -> Sequence[Path]:
        """Return the Parquet files that a table is in already, as it may be published, or none."""
        return self._files.get(name, ())

    def frame(self, name: str) -> pl.DataFrame:
        """Return a table as one polars frame."""
        return pl.concat(list(self.parts(name)))

    def converted(self, convert: Callable[[pl.DataFrame], Any]) -> Frames:
        """Return the same tables as another kind of frame."""
        return Frames(self._parts, convert=convert, files=self._files)

    def __getitem__(self, name: str) -> Any:
        return self._convert(self.frame(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Release:
    """Protected data with the specification it satisfies. Printed, it says what is in it and what is promised.

    ``public`` may be published as far as the specification says; its rows are in an order that does
    not depend on the input. ``internal`` is computed from the confidential data and never published.
    """

    public: Frames
    specification: Specification
    internal: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kept = [("internal", f"{', '.join(self.internal)}: from the confidential file, never publish")]
        seeded = [("seeded", "a test run with a seed: nothing of it may be published")]
        return rows_text(
            [
                ("public", ", ".join(f'release.public["{name}"]' for name in self.public)),
                *(kept if self.internal else []),
                ("held fixed", published_exactly(self.specification)),
                *promise_rows(self.specification),
                *(("accepted", each) for each in accepted_among(self.specification.assumptions)),
                *(seeded if self.specification.seeded else []),
            ]
        )

    def __repr__(self) -> str:
        return str(self)


class Workplace(NamedTuple):
    """Where a mechanism may keep what it draws piece by piece: a folder of the bundle, below ``internal``.

    What it keeps in ``progress``, outside the bundle, outlives an interrupted run until its release is finished.
    """

    folder: Path
    progress: Path


class Opening(NamedTuple):
    """What a draw starts from: file, plan, randomness, and the promise with the doubts that were accepted.

    ``convert`` makes a released frame one of the caller's kind; a release in Python has no ``workplace``.
    """

    data: Microdata
    plan: Any
    entropy: Entropy
    specification: Specification
    convert: Callable[[Any], Any]
    workplace: Workplace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedColumns:
    """The columns of the input that may be in public files: of households, of persons, and the one that links them.

    ``fixed`` are those that the specification fixes, in its order.
    """

    households: tuple[str, ...] = ()
    persons: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    @classmethod
    def of(cls, specification: Specification, columns: Mapping[str, Iterable[str]], *, link: str | None) -> Self:
        """Return the columns by record type, with what a specification fixes."""
        margins = (each.variables for each in specification.multiverse.invariants if isinstance(each, Margin))
        return cls(
            households=tuple(columns.get("households", ())),
            persons=tuple(columns.get("persons", ())),
            link=() if link is None else (link,),
            fixed=tuple(dict.fromkeys(name for variables in margins for name in variables)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFile:
    """A file of a release as it is known before the draw: its name below ``public/``, its kind, its columns.

    ``words`` say what was done to it, for the page of readers, with other files of records and columns in backquotes;
    ``publish`` holds the file to ``columns``. Records are
    written in the format of the plan, everything else as Parquet, tables as CSV. ``make`` returns its parts where the
    file follows from the plan alone; where it is None it is what ``Release.public`` has under this name. With
    ``in_parts`` each part is a file of its own, so that memory holds one at a time; ``about_bytes`` says how large a
    file will be that is not one of records.
    """

    name: str
    kind: Kind
    columns: tuple[str, ...]
    words: str
    in_parts: bool = False
    about_bytes: int = 0
    make: Callable[[], Iterable[pl.DataFrame]] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table to publish: its name, its variables, whether it counts persons, and which codes are declared."""

    name: str
    variables: tuple[str, ...]
    of_persons: bool
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def title(self) -> str:
        """Return the table's variables in words."""
        return " x ".join(self.variables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was checked on the files as written, and what came out; or why it was not."""

    what: str
    cells: int
    result: str = "identical to the input"


def not_done(what: str, *, limit: int, of: str) -> Check:
    """Return the check that was not made because there is too much to compare."""
    return Check(what=what, cells=0, result=f"not done: there are more than {limit:,} {of}")


class VerificationError(StirredError):
    """A release that does not have the invariants it must have: a fault of ours, and the bundle is destroyed."""

    exit_code = 1


def failed(what: str) -> VerificationError:
    """Return the error of a release that is not what it must be."""
    return VerificationError(
        [
            Problem(
                what=what,
                where="verification of the written files",
                remedy="nothing was kept; this is a fault in stirred or in the storage, please report it",
            )
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Written:
    """The files of a release as they were written, to be read back: ``public`` and ``internal`` of the bundle.

    ``checked`` are the names of the files that a mechanism compared itself; the others are compared after it.
    """

    folder: Path
    format: str  # of records: parquet or csv
    tables: Sequence[Table]
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)

    @property
    def public(self) -> Path:
        """Return the folder of the public files."""
        return self.folder / "public"

    @property
    def internal(self) -> Path:
        """Return the folder that stays inside."""
        return self.folder / "internal"

    def ending(self, kind: Kind = "records") -> str:
        """Return the format in which files of a kind are written."""
        return self.format if kind == "records" else "csv" if kind == "table" else "parquet"

    def taken(self, name: str, release: Release) -> bool:
        """Say whether a file consists of the very files that its table was in already; who made them checks them."""
        if taken := has_taken(release.public.files(name), self.public / f"{name}.{self.format}"):
            self.checked.add(name)
        return taken

    def parts(
        self, name: str, released: Iterable[pl.DataFrame], *, kind: Kind = "records", wrong: str = ""
    ) -> Iterator[pl.DataFrame]:
        """Yield the parts of a file as they are read back; raise if one is not what was released."""
        ending = self.ending(kind)
        path = self.public / f"{name}.{ending}"
        self.checked.add(name)
        whole = not path.is_dir()
        places = [path] if whole else sorted(path.glob(f"*.{ending}"))
        number = 0
        for part in [pl.concat(list(released))] if whole else released:
            number += 1
            if number > len(places):
                raise failed(f"a part of {name} is missing")
            found = read_frame(places[number - 1], empty=kind != "records" or not part.height)
            expected = as_read(part, ending, self.public)
            if found.schema != expected.schema or not found.equals(expected, null_equal=True):
                raise failed(wrong or f"{path.name}, as written, is not what was released")
            del part, expected
            yield found
            del found  # nothing of a part is kept while the next one is made
        if number != len(places):
            raise failed(f"there are more parts of {name} than were written")
