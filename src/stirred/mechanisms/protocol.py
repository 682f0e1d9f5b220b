"""The contract: what a mechanism hands over to the rooms around it, and all that they know of it.

``release``, ``report``, ``audit``, ``utility``, ``inference`` and ``cli`` import this module and ``registry``, and no
mechanism's folder. They loop over what is declared here; sentences are made by the mechanism from its own data.

A mechanism must have ``name``, ``title``, ``settings_model``, ``in_words``, ``plan``, ``release``, ``law``,
``audit_universes`` and ``audit_specification``. Everything else has a default that suits a mechanism which releases
one file of records (docs/write-a-mechanism.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, Self, runtime_checkable

import polars as pl
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    SerializationInfo,
    ValidationError,
    WithJsonSchema,
)

from stirred.data.frames import as_read, read_frame
from stirred.data.pair_files import nested_pairs
from stirred.data.problems import bad_file, bad_plan
from stirred.data.sources import read_toml
from stirred.engines.protocol import LOCAL, Engine, bad_engine
from stirred.mechanisms.shown import (
    Bars,
    Block,
    Corrected,
    Curve,
    ExpectedError,
    Grid,
    Headline,
    Picture,
    Plot,
    Section,
    Tiles,
    TooLargeError,
    Typical,
    mean_of_absolute_normal,
    share_changed,
    smallest_area,
)
from stirred.randomness.entropy import Entropy
from stirred.spec.brief import promise_rows, published_exactly
from stirred.spec.doubts import Doubt, accepted_among
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import Problem, StirredError, place_of, placed
from stirred.spec.rows import Row, rows_text
from stirred.spec.specification import Specification
from stirred.spec.staged_law import OutputLaw

if TYPE_CHECKING:
    from stirred.data.bundle import BundleFiles, Findings
    from stirred.data.codebook import Codebook
    from stirred.data.microdata import Microdata

# What mechanisms and the rooms around them import, of this module and of ``shown``.
__all__ = [
    "PERSONS", "RECORDS", "Advised", "Adviser", "Bars", "Block", "Check", "Choice", "Command", "Corrected", "Curve",
    "ExpectedError", "Fact", "Frames", "Grid", "Headline", "Kind", "Mechanism", "Names", "Outcome", "Picture", "Plan",
    "Plot", "Progress", "PublicFile", "PublicTable", "Rate", "Rated", "Release", "Section", "Settings", "SettingsFrom",
    "StratumAudit", "StratumAudited", "Stronger", "Table", "TableFile", "Tiles", "TooLargeError", "Tunable", "Typical",
    "VerificationError", "Written", "as_part", "doubt_rows", "failed", "mean_of_absolute_normal", "not_done",
    "share_changed", "smallest_area", "tunable",
]  # fmt: skip

# stage, pieces done, pieces in all
Progress = Callable[[str, int, int], None]
Kind = Literal["records", "table", "measurements", "estimates", "side"]
SettingsFrom = Literal["policy", "invariants", "other-data", "this-data"]


# ---- settings ---------------------------------------------------------------------------------------------


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# A single name may be written without brackets, and the schema says so.
Names = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]


def _as_published(value: Any, info: SerializationInfo) -> Any:
    """Return a number as it was written, or in public in its one exact form: 1/20 for 5%."""
    if not info.context:
        return str(value) if isinstance(value, Decimal) else value
    try:
        return str(fraction(value, where=""))
    except StirredError:
        return str(value)


# A number that is exact in each form: "1/20", "5%", 2, or a decimal of a file.
Rate = Annotated[str | int | Decimal, PlainSerializer(_as_published, when_used="json")]


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
        return cls("given", frame=given.cast(pl.String)) if isinstance(given, pl.DataFrame) else given

    def read(self, folder: Path) -> Self:
        """Return the table with its rows and its checksum."""
        if self.frame is not None or "." not in self.file:
            return self
        from stirred.data.bundle import checksum

        frame = read_frame(folder / self.file).cast(pl.String)
        return replace(self, sha256=checksum(folder / self.file), frame=frame)

    def kept(self, info: SerializationInfo) -> dict[str, str]:
        """Return what is kept of it: its file, in public without the folder, and the checksum."""
        file = Path(self.file).name if info.context else self.file
        return {"file": file, "sha256": self.sha256} if self.sha256 else {"file": file}


# A setting that names a public table.
TableFile = Annotated[
    InstanceOf[PublicTable],
    BeforeValidator(PublicTable.of, json_schema_input_type=str),
    PlainSerializer(PublicTable.kept, return_type=dict[str, str]),
    WithJsonSchema({"type": "string"}),
]


class Settings(BaseModel):
    """The settings of a mechanism: the section [mechanism] of a plan, its schema, ``--set``, and what is kept of it.

    Every field has a description. ``json_schema_extra`` may say ``{"example": "1/20"}``, how a value is written;
    ``{"pairs": "distance"}``, that a text names a file with the columns from, to and this number, which the release
    reads; ``{"document": True}``, that a text may name a TOML file, and its content then stands in its place;
    ``{"path": True}``, that a text names a file that the mechanism reads itself, from the folder of the plan;
    ``{"section": True}``, that it may stand in a plan as a section of its own; and
    ``{"internal": True}``, that the setting stays inside the agency. A ``TableFile`` is read as well.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    unit: str = Field(default="household", description="What a record is.")
    settings_from: SettingsFrom | None = Field(
        default=None, description="On what the settings were based; this-data voids the guarantee and is refused."
    )

    @classmethod
    def mark(cls, key: str, name: str) -> Any:
        """Return what a setting is marked with: its example, the number of its pairs, whether it is internal."""
        extra = cls.model_fields[key].json_schema_extra
        return extra.get(name) if isinstance(extra, dict) else None

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the names of all settings, those that every mechanism has at the end."""
        common = [*Settings.model_fields]
        return [*(key for key in cls.model_fields if key not in common), *common]

    def dumped(self, *, mode: str = "json", exclude_defaults: bool = False, context: str = "") -> dict[str, Any]:
        """Return the settings as plain data; for JSON, decimals are exact texts."""
        found = self.model_dump(mode=mode, exclude_defaults=exclude_defaults, context=context)
        return {key: found[key] for key in self.setting_names() if key in found}

    def with_files(self, folder: Path) -> Self:
        """Return the settings with what the files hold that they name, from this folder on."""
        found: dict[str, Any] = {}
        for key in self.setting_names():
            given, number = getattr(self, key), self.mark(key, "pairs")
            with placed(key):
                if isinstance(given, Settings):
                    found[key] = given.with_files(folder)
                elif isinstance(given, PublicTable):
                    found[key] = given.read(folder)
                elif isinstance(given, BaseModel):  # a part of the settings
                    tables = {name: own.read(folder) for name, own in given if isinstance(own, PublicTable)}
                    found[key] = given.model_copy(update=tables)
                elif not isinstance(given, str):
                    continue
                elif number:
                    found[key] = nested_pairs(read_frame(folder / given), number=number, where=given)
                elif self.mark(key, "document") and given.endswith(".toml"):
                    found[key] = read_toml(folder / given, called=f"the {key}")
                elif self.mark(key, "path"):
                    found[key] = str((folder / given).absolute())
        return self.model_copy(update=found)

    @property
    def impossible(self) -> Sequence[Mapping[str, Sequence[str]]]:
        """Return the codes of some columns that no record has together, where the settings state any."""
        return ()

    def public(self) -> dict[str, Any]:
        """Return the settings that may be published, as plain data for JSON."""
        return {key: value for key, value in self.dumped(context="public").items() if not self.mark(key, "internal")}


def as_part(kind: type[Any], given: Any, *, where: str) -> Any:
    """Return a part of the settings from plain data, or as it is."""
    if isinstance(given, kind):
        return given
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = f"{place_of(first['loc'])}: {first['msg']}"
        raise bad_plan(what, where=where, remedy=f"it takes {', '.join(kind.model_fields)}") from None


def as_parts(kind: type[Any], given: Sequence[Any], *, where: str) -> tuple[Any, ...]:
    """Return a list of parts; a problem names the entry that it is in."""
    return tuple(as_part(kind, each, where=place_of((where, number))) for number, each in enumerate(given))


# ---- what a plan says -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing that a plan says: a label and a sentence for people, and the same as values for ``--json``.

    A fact without a sentence is for JSON alone; one without values is said in words only. Values that are lengthy
    are ``for_plans``, and left out where a run says what it has done.
    """

    label: str = ""
    sentence: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    for_plans: bool = False


class Plan(ABC):
    """What a mechanism would do to a file: nothing random has happened. A frozen dataclass in practice.

    Printed, it says what leaves unchanged, what is disturbed, what is promised, and its doubts.
    """

    __slots__ = ()

    specification: Specification
    accepted: tuple[str, ...]  # names of the doubts that the specification has among its conditions
    dropped: tuple[str, ...]  # columns of the input that are not released

    @property
    @abstractmethod
    def doubts(self) -> tuple[Doubt, ...]:
        """Return what speaks against a release with this plan, as far as that was looked for."""

    @property
    @abstractmethod
    def disturbed(self) -> str:
        """Say what is disturbed, and how much."""

    @property
    def unchanged(self) -> str:
        """Say what is published exactly."""
        return published_exactly(self.specification)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Return what else there is to say: sentences for ``--verbose``, values for JSON."""
        return ()

    @property
    def also_promised(self) -> str:
        """Say what the release promises relative to further invariants, if anything."""
        return ""

    @property
    def why_this_number(self) -> str:
        """Say how the loss stands to published bounds and to the exact loss, if there is anything to say."""
        return ""

    @property
    def sampled(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return the sample whose draw amplifies the loss, for the ledger: its name, ``design`` and ``inner`` loss."""
        return None

    def promising(self, specification: Specification, *, accepted: tuple[str, ...] = ()) -> Self:
        """Return the same plan with its promise said more fully: with hierarchies, or with accepted doubts."""
        more: dict[str, Any] = {"accepted": accepted} if accepted else {}
        return replace(self, specification=specification, **more)  # type: ignore[type-var]

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of the input that may be in public files, by record type (households, persons)."""
        return {"households": self.specification.domain.columns}

    @property
    def epsilon(self) -> Exact:
        """Return the loss at the realised universe."""
        return self.specification.budget.realised

    @property
    def moved(self) -> float | None:
        """Return the share of all records that are expected to be disturbed; None where it is not said."""
        return None

    def outcome(self) -> list[Row]:
        """Return what leaves unchanged, what is disturbed, what is dropped, and the promise, as labelled sentences."""
        return [
            ("unchanged", self.unchanged),
            ("disturbed", self.disturbed),
            *([("dropped", ", ".join(self.dropped))] if self.dropped else []),
            *([("prepared", prepared)] if (prepared := self.specification.domain.prepared_in_words) else []),
            *promise_rows(self.specification),
        ]

    def __str__(self) -> str:
        return rows_text([*self.outcome(), *doubt_rows(self.doubts)])

    def __repr__(self) -> str:
        return str(self)


def doubt_rows(doubts: Sequence[Doubt], *, accepted: Sequence[Doubt] = ()) -> list[Row]:
    """Return one row for each doubt, by its name, with what became of it; what refuses nothing is a note.

    >>> mark = Doubt(kind="identifier", about="mark", what='"mark" is unique', remedy="name it with --id")
    >>> doubt_rows([mark])
    [('doubt', 'identifier:mark (refuses the release): "mark" is unique')]
    >>> doubt_rows([mark], accepted=[mark])
    [('doubt', 'identifier:mark (accepted): "mark" is unique')]
    >>> doubt_rows([])
    [('doubts', 'none')]
    """
    names = {each.name for each in accepted}
    rows = [
        ("doubt", f"{doubt.name} ({'accepted' if doubt.name in names else 'refuses the release'}): {doubt.what}")
        for doubt in doubts
        if doubt.refuses
    ]
    return [*(rows or [("doubts", "none")]), *(("note", doubt.what) for doubt in doubts if not doubt.refuses)]


# ---- what a release has -----------------------------------------------------------------------------------


class Frames(Mapping[str, Any]):
    """Released tables by name. Each is kept as parts, so that a national file never has to be one frame.

    ``frames["persons"]`` puts the parts together, in the caller's own kind of frame.
    """

    def __init__(
        self, parts: Mapping[str, Callable[[], Iterable[pl.DataFrame]]], *, convert: Callable[[pl.DataFrame], Any]
    ) -> None:
        self._parts = parts
        self._convert = convert

    def parts(self, name: str) -> Iterator[pl.DataFrame]:
        """Yield the parts of a table, in order; asking again yields the same parts again."""
        yield from self._parts[name]()

    def frame(self, name: str) -> pl.DataFrame:
        """Return a table as one polars frame."""
        return pl.concat(list(self.parts(name)))

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
                ("unchanged", published_exactly(self.specification)),
                *promise_rows(self.specification),
                *(("accepted", each) for each in accepted_among(self.specification.assumptions)),
                *(seeded if self.specification.seeded else []),
            ]
        )

    def __repr__(self) -> str:
        return str(self)


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


# ---- advice -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice of settings for a file: what it would mean, as rows for people and as values for ``--json``."""

    name: str
    rows: Sequence[Row]
    values: Mapping[str, Any]
    doubts: Sequence[Doubt] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Advised:
    """What fits a custodian's wishes, why, and what else there is; made of data, as a plan is.

    ``plan`` is that of the proposal; where there is none it shows what all candidates keep exactly, and its loss is
    none of theirs. ``section`` is the proposal as the section [mechanism] of a plan, and ``tables`` are the variables
    of those that the plan is to have. ``instead`` says what could be given up, and what would then be proposed.
    """

    title: str
    wishes: str
    why: Sequence[str]
    plan: Plan
    section: Mapping[str, Any] | None
    tables: Sequence[Sequence[str]]
    closest: str
    candidates: Grid
    rests_on: str
    notes: Sequence[str]
    instead: Sequence[tuple[str, str]]
    instead_note: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stronger:
    """A relative that promises more than a plan with the same invariants, unit and measure, and changes as much."""

    name: str
    setting: str
    epsilon: Exact
    changed: float


class Adviser(Protocol):
    """Who advises on the settings of a family of mechanisms; nothing random happens, and nothing is written."""

    choosing: str  # what to know before choosing by a list of choices

    def choices(
        self, data: Microdata, *, levels: Sequence[str], cross: Sequence[str], epsilon: Exact | None, unit: str
    ) -> Sequence[Choice]:
        """Return the choices that a geography allows; its levels are given from the finest to the coarsest."""
        ...

    def advise(self, data: Microdata, **wishes: Any) -> Advised:
        """Return what fits the wishes: ``swap``, ``exact``, ``nearly``, ``epsilon``, ``undisturbed`` and so on."""
        ...

    def relatives(self, data: Microdata, mechanism: Any, *, equal: str) -> Sequence[tuple[str, Mechanism]]:
        """Return the members of the family, by name, that change as much, or lose as much, as a mechanism."""
        ...

    def stronger(self, mechanism: Any, plan: Any) -> Stronger | None:
        """Return the relative that promises most of those that change as many records, if it is more than a plan."""
        ...


# ---- commands of its own ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command found: rows and tables for people, the same as values for ``--json``.

    ``pictures`` are drawn into new SVG files. A check that failed is not ``passed``: the command then leaves with 1.
    """

    rows: Sequence[Row] = ()
    grids: Sequence[Grid] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[Path, Picture] = field(default_factory=dict)
    passed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that a mechanism brings along, such as one that estimates from published files.

    ``options`` is a pydantic model: each field with its description is an option ``--name``, or an argument where it
    is marked ``json_schema_extra={"argument": "FILE"}``. ``run`` never prints; it reports its progress.
    """

    name: str
    help: str
    options: type[BaseModel]
    run: Callable[[Any, Progress | None], Outcome]


# ---- the mechanism ----------------------------------------------------------------------------------------

RECORDS: Final = "data"
PERSONS: Final = "persons"


class Mechanism(ABC):
    """A data release mechanism with immutable settings. It never prints, and knows no ledger and no command line."""

    __slots__ = ()

    name: ClassVar[str]  # in plans and on the command line
    title: ClassVar[str]  # what a report calls it, such as "permutation swapping"
    settings_model: ClassVar[type[Settings]]
    # The setting that is the loss itself, where a mechanism has no rate and one is chosen.
    loss_setting: ClassVar[str] = ""
    # Whether the tables of a plan are counted from released records, or are what the mechanism itself releases.
    counts_tables: ClassVar[bool] = True
    # Whether it asks for households by single columns, so that those of a national file need not be in memory.
    by_column: ClassVar[bool] = False
    # Whether the tables that it releases are its own, so that a plan names none.
    own_tables: ClassVar[bool] = False
    # Columns that its tables may have beside their variables and the count, such as the bounds of an interval.
    table_columns: ClassVar[tuple[str, ...]] = ()
    # Columns of its public files that are published numbers, as opposed to codes and errors.
    number_columns: ClassVar[tuple[str, ...]] = ("count", "sum", "value", "estimate")
    # Why no rate can be given for a wanted loss, and what to do instead, where its rate does not decide the loss alone.
    untunable: ClassVar[tuple[str, str] | None] = None

    unit: str
    settings_from: str | None

    # ---- settings

    @classmethod
    def of_settings(cls, settings: Settings, **others: Any) -> Self:
        """Return the mechanism with these settings; ``others`` are the plan's tables where it releases tables alone."""
        return cls(**{name: getattr(settings, name) for name in type(settings).model_fields}, **others)

    @classmethod
    def completed(cls, settings: Settings, codebook: Codebook, *, missing_as: str | None) -> Settings:
        """Return the settings with what a codebook declares for them, so that manifest and ledger keep it."""
        return settings

    def with_codebook(self, codebook: Codebook, *, missing_as: str | None) -> Self:
        """Return the mechanism with the values that a codebook declares for its cells."""
        return self

    def learned(self, codebook: Codebook) -> Sequence[str]:
        """Return the variables whose declared values come from this codebook: a draft was read off the file."""
        return ()

    @property
    def coded_columns(self) -> Sequence[str]:
        """Return the columns in which a missing value may be a code of its own, where a plan says so."""
        return ()

    @property
    @abstractmethod
    def in_words(self) -> str:
        """Return in one sentence what is done."""

    # ---- the promise and the act

    def check(self, data: Any) -> None:
        """Raise all problems of a file's columns with these settings; nothing is computed."""
        self.plan(data, doubts=False)

    @abstractmethod
    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        """Return the plan; nothing random happens. Without ``doubts`` the file is not searched for them."""

    @abstractmethod
    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
    ) -> Release:
        """Run the mechanism once, with randomness that has made no release before (``entropy.for_release()``).

        ``Entropy.expected(entropy)`` comes first: nothing is done with the data in a process that may not draw
        (``opening.opened`` does all that comes before the draw).
        """

    @abstractmethod
    def law(self, dataset: Any) -> OutputLaw:
        """Return the exact law of the released object for a small dataset."""

    @abstractmethod
    def audit_universes(self) -> Sequence[Sequence[Hashable]]:
        """Return small universes on which the promise can be checked by enumeration."""

    @abstractmethod
    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise in one of these universes."""

    def warm(self) -> None:  # noqa: B027
        """Load and compile what the draw needs, before anything is spent."""

    def working_in(self, folder: Path, *, progress: Path) -> Self:
        """Return the mechanism with a folder of the bundle, below ``internal``, for what it draws piece by piece.

        What it keeps in ``progress``, outside the bundle, outlives an interrupted run until its release is finished.
        """
        return self

    def on(self, engine: Engine) -> Self:
        """Return the mechanism with the engine that its bulk work runs on; refuse one that it does not run on."""
        if engine.name == LOCAL:
            return self
        raise bad_engine(
            f"{self.name} does not run on {engine.name}",
            where="[engine] name",
            remedy=f"leave [engine] out, or write name = '{LOCAL}': it then runs on this machine",
        )

    def recheck(self, data: Any, plan: Any) -> None:  # noqa: B027
        """Raise what the machines of an engine read otherwise than was planned, before anything is spent."""

    def premises(self, plan: Any) -> Mapping[str, str]:
        """Return checksums of what the draw is addressed by, so that an interrupted run repeats itself exactly."""
        return {}

    # ---- the files of a release

    def files(self, data: Microdata, plan: Any) -> Sequence[PublicFile]:
        """Return the public files besides the plan's tables and the pages: by default the records."""
        columns = tuple(plan.releases["households"])
        return [PublicFile(name=RECORDS, kind="records", columns=columns, words="the records")]

    def allowed(self, released: Mapping[str, Collection[str]], fixed: Collection[str]) -> Mapping[str, Collection[str]]:
        """Return the columns that public files may have at most, by the settings alone: `publish` believes no manifest.

        ``released`` are the columns of the input by record type, and ``fixed`` those that the specification fixes. No
        file may be there that is not listed.
        """
        return {RECORDS: released["households"]}

    def table_in_words(self, table: Table, data: Microdata, plan: Any) -> str:
        """Say what was done to a table, in a few words."""
        return "counted from the released records"

    def write_internal(self, release: Release, written: Written, *, note: Mapping[str, str]) -> None:  # noqa: B027
        """Keep inside what was drawn, where the files do not show it."""

    def verify(self, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
        """Compare the written files with the confidential input; raise ``failed(...)`` if anything differs.

        That the files are what was released, and the tables those of the files, is checked for every mechanism.
        """
        return []

    def verify_exact(self, data: Microdata, plan: Any, written: Written) -> list[Check]:
        """Count what is published exactly once more from the confidential input; raise if anything differs."""
        return []

    # ---- pages

    def conclusions(self, plan: Any) -> Sequence[str]:
        """Return what a reader may conclude from the files, for README.md."""
        return [f"What is disturbed: {plan.disturbed}."]

    def file_notes(self, plan: Any) -> Sequence[str]:
        """Return closing remarks on the files for README.md."""
        return ()

    def number_of_records(self, data: Microdata) -> int | None:
        """Return how many records a report says there are: published exactly, or None."""
        return data.households.height

    def headline(self, plan: Any) -> Headline:
        """Return the first two sentences of the report."""
        return Headline(unchanged=f"Published exactly: {plan.unchanged}.", disturbed=f"Disturbed: {plan.disturbed}.")

    def typical_errors(self, plan: Any, corrected: Mapping[str, pl.DataFrame]) -> Sequence[Typical]:
        """Return how far off published counts are, where the law says it: the first is said on the first screen.

        ``corrected`` is what ``corrected`` found.
        """
        return ()

    def sections(self, plan: Any) -> Sequence[Section]:
        """Return what the report shows beyond the common pages."""
        return ()

    def shown(self, plan: Any, public: Frames) -> Sequence[Section]:
        """Return what both editions show of the published files, from these and public facts alone."""
        return ()

    def inside(self, plan: Any, release: Release) -> Sequence[Section]:
        """Return what the internal edition alone shows first: how far a release is from the confidential file."""
        return ()

    def reading_tables(self, plan: Any) -> Sequence[str]:
        """Return what a reader of the tables must know."""
        return ["Counted from the released records; each costs nothing beyond the release itself (post-processing)."]

    @property
    def areas(self) -> tuple[str, ...]:
        """Return the variables that are disturbed together, such as the geography: accuracy is shown by them."""
        return ()

    # ---- accuracy, before and after

    def setting_in_words(self, epsilon: Exact) -> str:
        """Return the settings in a few words; ``epsilon`` is the loss that they have for a file."""
        return f"epsilon {epsilon.shown()}"

    def areas_changed(self, plan: Any) -> pl.DataFrame | None:
        """Return for each area its ``records`` and the ``share_changed`` to expect; None where that is protected."""
        return None

    @property
    def no_closed_form(self) -> str:
        """Say why errors of tables cannot be computed beforehand; empty where they can."""
        return "the errors of this mechanism have no closed form"

    def within_reach(self, data: Microdata) -> bool:
        """Say whether errors of tables are worth their time beside a release of this file."""
        return not self.no_closed_form

    def expected_error(
        self,
        records: pl.DataFrame | pl.LazyFrame,
        *,
        variables: Sequence[str],
        source: str,
        persons: pl.DataFrame | pl.LazyFrame | None = None,
        key: str | None = None,
    ) -> ExpectedError:
        """Return the error to expect in a table of ``variables``; refuse where there is no closed form.

        ``source`` says where the records come from: ``this-data``, the file of the release; ``other-data``; or
        ``margins``, where only what is published exactly is used. ``persons`` are linked to the records by ``key``.
        """
        raise bad_plan(self.no_closed_form, where="mechanism", remedy="leave the expected error out")

    def corrected(
        self, release: Release, data: Microdata, plan: Any, tables: Sequence[Table]
    ) -> Mapping[str, pl.DataFrame]:
        """Return by title the tables (variables, ``count``) as any reader can correct them, where that is possible.

        They may have more columns that ``typical_errors`` needs; all come from public files alone.
        """
        return {}

    @classmethod
    def correct(
        cls,
        table: pl.DataFrame | Sequence[str],
        public: Path,
        *,
        level: float,
        project: bool,
        where: str,
    ) -> Corrected:
        """Return a published table, or one of these variables, without its bias: from public files alone.

        With ``project`` also the nearest table that the published margins allow.
        """
        raise bad_file("tables of this mechanism are not corrected", where=str(public), remedy="use them as published")

    @classmethod
    def adviser(cls) -> Adviser | None:
        """Return who advises on the settings of this mechanism and its relatives; None where nobody does."""
        return None

    # ---- audits

    @property
    def grouped_by(self) -> tuple[str, ...]:
        """Return the columns by which released records are grouped; inside the groups their order is random."""
        return ()

    def for_sampling(self, plan: Any) -> Any:
        """Return the plan by which its law is tested, on files that a release would refuse; nothing is published."""
        return plan

    def audit_bundle(self, bundle: BundleFiles, found: Findings) -> None:
        """Check what this mechanism's public files show, and add checks, problems and what cannot be checked.

        Checksums, pages, marks of a test run, the order of rows and tables counted from records are checked for every
        mechanism.
        """
        self.audit_unstated(bundle, found)

    @classmethod
    def audit_unstated(cls, bundle: BundleFiles, found: Findings) -> None:
        """Check what public files show where they do not state all settings of the mechanism."""
        found.unchecked.append("the budget, computed anew: this mechanism has no such check")


@runtime_checkable
class Rated(Protocol):
    """A mechanism with a rate, whose loss is known for other rates."""

    rate: Any

    def losses(self, plan: Any, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss that each rate would have for the same file; nothing where no rate changes it."""
        ...


@runtime_checkable
class Tunable(Rated, Protocol):
    """One whose rate decides its loss: there is a gentlest rate that reaches a loss."""

    def rate_reaching(self, plan: Any, epsilon: Exact) -> Fraction:
        """Return the gentlest rate whose loss is at most ``epsilon``; refuse where there is none."""
        ...

    def rates_reaching(self, plan: Any, epsilon: Exact) -> Sequence[tuple[float, Fraction]]:
        """Return all rates where the loss becomes ``epsilon``, each with a fraction that one could use."""
        ...


def tunable(mechanism: Mechanism) -> Tunable | None:
    """Return a mechanism whose rate decides its loss, or None; refuse one with a rate that does not decide it alone."""
    if mechanism.untunable is not None:
        what, remedy = mechanism.untunable
        raise bad_plan(what, where="epsilon", remedy=remedy)
    return mechanism if isinstance(mechanism, Tunable) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumAudit:
    """The loss that a mechanism really has on one stratum, and the bounds on it.

    ``sharp_bound`` is what the mechanism promises ``for_every`` such stratum, ``theorem_bound`` what was published
    before, and some stratum of this size loses at least ``existential_bound``. ``witness`` attains the loss; it prints
    itself, and ``facts`` has it for JSON.
    """

    exact_loss: Exact
    sharp_bound: Exact
    for_every: str
    tables: int
    witness: Any = None
    theorem_bound: Exact | None = None
    existential_bound: Exact | None = None

    @property
    def passed(self) -> bool:
        """Say whether the exact loss keeps within the sharp bound, and that within what was published."""
        within = self.theorem_bound is None or self.sharp_bound <= self.theorem_bound
        return self.exact_loss <= self.sharp_bound and within


@runtime_checkable
class StratumAudited(Protocol):
    """A mechanism whose loss on one stratum can be enumerated, given how often each held and each swapped value occurs.

    ``stratum_settings`` are the settings that matter there, with the default of those that have one.
    """

    stratum_settings: ClassVar[Mapping[str, str | None]]

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss beside every bound."""
        ...
