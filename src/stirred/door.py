"""The door: plan, swap, release, publish, check and read, in Python as on the command line.

Data may be a frame of any library or a file. A frame is released in memory, and comes back as the same kind of frame. A
file, or a plan.toml, is released as a bundle: the same checks, ledger and files as ``stirred release`` makes.

>>> import polars as pl
>>> homes = pl.DataFrame({"size": [1, 1, 2, 2] * 25, "county": list("ABAB") * 25, "tenure": ["own", "rent"] * 50})
>>> print(plan(homes, match="size", swap="county", rate="1/4"))
held fixed  the number of households by size x county, and by size x tenure
promise     ε=...
...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from stirred.audit.bundle import BundleAudit
    from stirred.mechanisms.protocol import Mechanism, Plan, Progress, Release
    from stirred.release.prepared import Prepared
    from stirred.release.publish import Publication
    from stirred.spec.doubts import Doubt
    from stirred.spec.specification import Specification

# Arguments that belong to sections of a plan file other than [mechanism].
_OF_DATA = (
    *("name", "persons", "codebook", "hid", "id", "missing", "decimal", "separator", "missing_as", "stage"),
    *("post_imputation", "record"),
)
_OF_RELEASE = ("out", "format", "title", "purpose", "ledger", "exposed_share")
_OF_FRAMES = ("persons", "hid", "id")
_RECORDS = ("data", "persons")
_NOWHERE = "no-folder-was-named"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlannedRelease:
    """What a release would promise and change. Nothing random has happened.

    ``doubts`` speak against it; those that refuse a release need an answer first: another setting, or ``accept``.
    """

    plan: Plan
    mechanism: Mechanism
    doubts: tuple[Doubt, ...]
    accept: tuple[str, ...] = ()
    prepared: Prepared | None = None  # of files
    data: Any = None  # of frames
    convert: Callable[[pl.DataFrame], Any] | None = None  # into the caller's kind of frame

    @property
    def specification(self) -> Specification:
        """Return the promise: its five blocks."""
        return self.plan.specification

    @property
    def standing(self) -> tuple[Doubt, ...]:
        """Return the doubts that refuse the release as it is planned."""
        return tuple(d for d in self.doubts if d.refuses and (d.final or d.name not in self.accept))

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return what is shown of it: label and text."""
        from stirred.spec.explanation import promise_rows, published_exactly
        from stirred.spec.problems import in_python

        return [
            ("held fixed", published_exactly(self.specification)),
            *promise_rows(self.specification),
            *(("doubt", doubt.problem.written(in_python)) for doubt in self.standing),
        ]

    def __str__(self) -> str:
        from stirred.spec.text import rows_text

        return rows_text(self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html(self.rows)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Released:
    """What was released, with its promise: a bundle, a published folder, or frames in memory.

    Files are read when they are asked for, and believed: ``stirred.check`` compares them with the promise. Of frames,
    ``release`` has the rest, such as what stays inside.
    """

    specification: Specification
    path: Path | None = None
    public: Path | None = None  # the folder of the public files
    release: Release | None = None

    @property
    def data(self) -> Any:
        """Return the released records."""
        return self._frame("data")

    @property
    def persons(self) -> Any:
        """Return the released persons."""
        return self._frame("persons")

    @property
    def tables(self) -> Mapping[str, Any]:
        """Return the released tables by name. Of files, codes are text; counts and what stands with them numbers."""
        if self.release is not None:
            return {name: self.release.public[name] for name in self.release.public if name not in _RECORDS}
        assert self.public is not None
        return {path.stem: _table(path, self.public) for path in sorted((self.public / "tables").glob("*.csv"))}

    def _frame(self, name: str) -> Any:
        from stirred.data.frames import read_frame
        from stirred.data.problems import bad_file

        if self.release is not None and name in self.release.public:
            return self.release.public[name]
        places = [] if self.public is None else sorted(self.public.glob(f"{name}.*"))
        if len(places) != 1:
            remedy = "see .tables; mechanisms for tables release no records, and files without persons have none"
            raise bad_file(f"it has no {name}", where=str(self.path or "release"), remedy=remedy)
        return read_frame(places[0])

    @property
    def files(self) -> tuple[str, ...]:
        """Return the names of the public files; none of frames in memory."""
        from stirred.data.bundle import files_of

        return () if self.public is None else tuple(sorted(files_of(self.public)))

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return what is shown of it: label and text."""
        from stirred.spec.explanation import promise_rows, published_exactly

        if self.path is None:
            place = [("released", ", ".join(() if self.release is None else self.release.public))]
        else:
            place = [("folder", str(self.path)), ("files", ", ".join(self.files))]
        return [*place, ("held fixed", published_exactly(self.specification)), *promise_rows(self.specification)]

    def __str__(self) -> str:
        from stirred.spec.text import rows_text

        return rows_text(self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _html(self.rows)


def plan(
    data: Any,
    /,
    *,
    mechanism: str | Mechanism | None = None,
    tables: str | Sequence[str | Sequence[str]] = (),
    accept: str | Sequence[str] | None = (),
    **settings: Any,
) -> PlannedRelease:
    """Return what a release would promise; nothing random happens.

    ``data`` is a frame, a data file, or a plan.toml, which then says everything. ``settings`` are those of the
    mechanism (``match``, ``swap``, ``rate``) and of the file (``id``, ``persons``, ``hid``, ``codebook``), and of a
    bundle ``out``, ``ledger``, ``purpose``, ``format``. ``tables`` are lists of columns, ``[["county", "size"]]``, or
    texts, ``["county x size"]``. A mechanism may be given itself, with its settings, in place of its name.
    """
    names = tuple(_listed(accept or (), "accept", example="identifier:mark"))
    tables = _tables(tables)
    _check_mechanism(mechanism, settings)
    if not isinstance(data, (str, Path)):
        return _of_frame(data, mechanism, tables=tables, accept=names, settings=settings)
    from stirred.data.problems import bad_plan
    from stirred.release.plan_file import plan_from, read_plan
    from stirred.release.prepared import prepare

    path = Path(data)
    if path.suffix == ".toml":
        given = {**settings, "mechanism": mechanism, "tables": tables, "accept": names}
        if others := [key for key, value in given.items() if value]:
            remedy = "leave it out, or change it in the plan"
            raise bad_plan(f"the plan file already fixes {', '.join(others)}", where=str(path), remedy=remedy)
        prepared = prepare(read_plan(path, out=Path(_NOWHERE)))
    else:
        content = _sections(path, mechanism, tables=tables, accept=names, settings=settings)
        prepared = prepare(plan_from(content, source="plan", folder=Path()))
    return PlannedRelease(
        plan=prepared.plan,
        mechanism=prepared.mechanism,
        doubts=tuple(prepared.doubts),
        accept=tuple(prepared.plan_file.release.accept),
        prepared=prepared,
    )


def release(plan: Any, *, out: str | Path | None = None, progress: Progress | None = None, **others: Any) -> Released:
    """Carry out what ``plan`` returned, or a plan.toml: the bundle of a file, or the released frames of a frame.

    A bundle is complete or absent. Doubts about protection refuse, until the plan accepts them by name.
    """
    from dataclasses import replace

    from stirred.data.problems import bad_plan
    from stirred.randomness.entropy import Entropy

    if others:
        remedy = "give it to stirred.plan(...) or stirred.swap(...), or write it into the plan.toml"
        raise bad_plan("this belongs to the plan", where=", ".join(others), remedy=remedy)
    if isinstance(plan, (str, Path)):
        plan = _planned(plan)
    if not isinstance(plan, PlannedRelease):
        remedy = "give what stirred.plan(...) returns, or the path of a plan.toml"
        raise bad_plan(f"{_shown(plan)} is not a plan", where="plan", remedy=remedy)
    if plan.prepared is None:
        if out is not None:
            raise _for_files(["out"])
        made: Release = plan.mechanism.release(
            plan.data, Entropy.from_os(), plan=plan.plan, accept=plan.accept, progress=progress
        )
        if plan.convert is not None:
            made = replace(made, public=made.public.converted(plan.convert))
        return Released(specification=made.specification, release=made)
    from stirred.release.run import run

    prepared = plan.prepared
    unnamed = prepared.plan_file.release.out in (_NOWHERE, str(Path(_NOWHERE).absolute()))
    if out is not None and not unnamed and prepared.plan_file.out.absolute() != Path(out).absolute():
        raise bad_plan("the plan already says this", where="out", remedy="leave it out, or change it in the plan")
    if out is not None:
        prepared = replace(prepared, plan_file=prepared.plan_file.changed("release", out=str(Path(out).absolute())))
    elif unnamed:
        raise _needs_folder()
    return read(run(prepared, progress=progress))


def swap(data: Any, /, *, match: Any = None, swap: Any = None, rate: Any = None, **settings: Any) -> Released:
    """Swap records: ``plan`` and ``release`` in one call, by permutation swapping unless ``mechanism`` names another.

    >>> import polars as pl
    >>> homes = pl.DataFrame({"size": [1, 2] * 60, "county": list("AABB") * 30, "tenure": list("xyz") * 40})
    >>> released = swap(homes, match="size", swap="county", rate="1/4")
    >>> sorted(released.data["county"]) == sorted(homes["county"])
    True
    """
    if isinstance(data, (str, Path)) and Path(data).suffix != ".toml" and "out" not in settings:
        raise _needs_folder()
    own = {key: value for key, value in (("match", match), ("swap", swap), ("rate", rate)) if value is not None}
    return release(plan(data, **own, **settings))


def publish(bundle: str | Path, place: str | Path, *, accept: str | Sequence[str] = (), **others: Any) -> Publication:
    """Copy the public files of a bundle to a new folder, after all checks; see ``stirred.release.publish``."""
    from stirred.release.publish import publish as published

    names = (accept,) if isinstance(accept, str) else accept
    return published(_path(bundle, "bundle"), _path(place, "place"), accept=names, **others)


def check(bundle: str | Path) -> BundleAudit:
    """Check a bundle or a published folder against its promise: ``passed``, ``problems``, ``checks``, ``warnings``."""
    from stirred.audit.bundle import audit_bundle

    return audit_bundle(_path(bundle, "bundle"))


def read(folder: str | Path) -> Released:
    """Return a bundle or a published folder: promise, records and tables."""
    from stirred.data.bundle import public_folder, published_specification
    from stirred.data.problems import bad_file

    path = _path(folder, "folder")
    public = public_folder(path)
    specification = published_specification(public)
    if specification is None:
        remedy = "stirred.check says what is wrong with it; ask who sent it for a complete copy"
        raise bad_file("its specification.json is missing or cannot be read", where=str(public), remedy=remedy)
    return Released(path=path, public=public, specification=specification)


_planned = plan  # where an argument has its name


def _of_frame(
    data: Any,
    mechanism: str | Mechanism | None,
    *,
    tables: Sequence[Any],
    accept: tuple[str, ...],
    settings: Mapping[str, Any],
) -> PlannedRelease:
    """Return the plan for a frame, or microdata, in memory."""
    from dataclasses import replace

    from stirred.data.microdata import Microdata, like
    from stirred.mechanisms.protocol import plan_doubts
    from stirred.mechanisms.registry import DEFAULT, mechanism_class

    others = [key for key, value in settings.items() if key in {*_OF_DATA, *_OF_RELEASE} and value is not None]
    if others := [key for key in others if key not in _OF_FRAMES]:
        raise _for_files(others)
    own = None if mechanism is None or isinstance(mechanism, str) else mechanism
    kind = mechanism_class(str(mechanism or DEFAULT)) if own is None else type(own)
    if tables and kind.counts_tables:
        raise _for_files(["tables"], what="tables are counted with the bundle of a file, and not of a frame in memory")
    of_file = {key: value for key, value in settings.items() if _of_a_file(key, value, _OF_FRAMES)}
    given = {key: value for key, value in settings.items() if key not in of_file and value is not None}
    of_file = {key: tuple(_listed(value, key)) if key == "id" else value for key, value in of_file.items()}
    frame = data
    if isinstance(data, Microdata):
        data = replace(data, **of_file)
    elif of_file:
        data = Microdata(households=data, **of_file)
    made: Any = kind(**given, **({"tables": tables} if tables else {})) if own is None else own
    found = made.plan(data)
    return PlannedRelease(
        plan=found, mechanism=made, doubts=plan_doubts(found), accept=accept, data=data, convert=like(frame)
    )


def _sections(
    path: Path,
    mechanism: str | Mechanism | None,
    *,
    tables: Sequence[Any],
    accept: tuple[str, ...],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what the arguments say as the sections of a plan file."""
    from stirred.data.problems import bad_plan
    from stirred.mechanisms.registry import DEFAULT

    if mechanism is not None and not isinstance(mechanism, str):
        if not mechanism.counts_tables:
            remedy = f'write mechanism="{mechanism.name}", and its settings by keyword'
            raise bad_plan("for a file, a mechanism of tables is given by its name", where="mechanism", remedy=remedy)
        own = mechanism.settings.dumped(mode="python", exclude_defaults=True)
        mechanism, settings = mechanism.name, {**settings, **own}

    plain = {key: _plain(value) for key, value in settings.items() if value is not None}
    of_data = {key: plain.pop(key) for key in _OF_DATA if _of_a_file(key, plain.get(key), _OF_DATA)}
    of_release = {key: plain.pop(key) for key in _OF_RELEASE if key in plain}
    if "id" in of_data:
        of_data["id"] = _listed(of_data["id"], "id")
    return {
        "data": {"households": str(path), **of_data},
        "mechanism": {"name": mechanism or DEFAULT, **plain},
        "tables": [{"variables": [*each]} for each in tables],
        "release": {"out": _NOWHERE, **of_release, "accept": list(accept)},
    }


def _of_a_file(key: str, value: Any, keys: Sequence[str]) -> bool:
    """Say whether an argument is about the file: a number of persons is a setting of noisy tables."""
    return key in keys and value is not None and not (key == "persons" and isinstance(value, int))


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return [_plain(each) for each in value] if isinstance(value, (tuple, list)) else value


def _listed(value: Any, where: str, *, example: str = "hid") -> list[Any]:
    """Return a name, or several, as a list."""
    from stirred.data.problems import bad_plan

    if isinstance(value, str):
        return [value]
    listed = [*value] if isinstance(value, Iterable) else [value]
    if not all(isinstance(each, str) for each in listed):
        remedy = f'give a list of names, such as {where}=["{example}"]'
        raise bad_plan(f"{_shown(value)} is not a list of names", where=where, remedy=remedy)
    return listed


def _tables(given: Any) -> Sequence[Sequence[str]]:
    """Return the columns of each table."""
    if isinstance(given, Sequence) and not given:
        return ()
    from stirred.mechanisms.tables.cells import as_tables

    return as_tables(given)


def _check_mechanism(given: Any, settings: Mapping[str, Any]) -> None:
    """Refuse what is neither the name of a mechanism nor one itself, and settings in addition to its own."""
    from stirred.data.problems import bad_plan
    from stirred.mechanisms.protocol import Mechanism

    if given is None or isinstance(given, str):
        return
    if not isinstance(given, Mechanism):
        remedy = 'name one, such as mechanism="mallows-swap", or give one with its settings: stirred.MallowsSwap(...)'
        raise bad_plan(f"{_shown(given)} is not a mechanism", where="mechanism", remedy=remedy)
    known = (*_OF_DATA, *_OF_RELEASE)
    own = [key for key, value in settings.items() if value is not None and not _of_a_file(key, value, known)]
    if own:
        remedy = f"give them to stirred.{type(given).__name__}(...), or name the mechanism: mechanism={given.name!r}"
        raise bad_plan("the mechanism was given with its settings", where=", ".join(own), remedy=remedy)


def _path(given: Any, where: str) -> Path:
    """Return a path."""
    from stirred.data.problems import bad_file

    if not isinstance(given, (str, Path)):
        raise bad_file(f"{_shown(given)} is not a path", where=where, remedy=f"name a folder, such as {where}='bundle'")
    return Path(given)


def _shown(given: Any) -> str:
    """Return a value for a message: a number or text as it is, anything else by its type, since it may be a frame."""
    plain = given is None or isinstance(given, (str, int, float))
    return f"{given!r:.60}" if plain else f"a value of the type {type(given).__name__}"


def _needs_folder() -> Exception:
    from stirred.data.problems import bad_plan

    remedy = "name a folder that does not exist yet, such as out='released'"
    return bad_plan("the folder of the bundle is needed", where="out", remedy=remedy)


def _for_files(keys: Sequence[str], *, what: str = "a frame is released in memory, without a bundle") -> Exception:
    from stirred.data.problems import bad_plan

    return bad_plan(
        what,
        where=", ".join(keys),
        remedy="leave it out, or write the frame to a file, such as homes.parquet, and name that",
    )


def _table(path: Path, public: Path) -> pl.DataFrame:
    import polars as pl

    from stirred.data.frames import read_frame
    from stirred.mechanisms.registry import is_installed, mechanism_class
    from stirred.spec.document import mechanism_in

    named = mechanism_in((public / "specification.json").read_text(encoding="utf-8"))
    known = named is not None and is_installed(named.name)
    numbers = ("count", *(mechanism_class(named.name).table_columns if named and known else ()))
    table = read_frame(path, empty=True)
    for name in numbers:
        if name in table.columns:
            kind = pl.Int64 if table[name].drop_nulls().str.contains(r"^-?\d+$").all() else pl.Float64
            table = table.with_columns(pl.col(name).cast(kind))
    return table


def _html(rows: Sequence[tuple[str, str]]) -> str:
    def cells() -> Iterator[str]:
        for label, text in rows:
            yield f'<tr><th style="text-align:left;vertical-align:top">{escape(label)}</th>'
            yield f'<td style="text-align:left">{escape(text)}</td></tr>'

    return f"<table>{''.join(cells())}</table>"
