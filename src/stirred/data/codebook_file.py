"""codebook.toml at the door: read strictly, unknown keys refused, every problem at once."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from stirred.data.codebook import (
    Codebook,
    CodeHierarchy,
    EntryPlace,
    EntryProblem,
    File,
    StructuralZero,
    Type,
    Variable,
    contradictions,
)
from stirred.data.hrc import read_hrc
from stirred.data.problems import DataError, bad_file, listed
from stirred.data.sources import Dialect, read_text
from stirred.data.spelling import meant, misshapen, near, told_once
from stirred.spec.document_schema import Strict
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.problems import Problem, StirredError, as_given, place_of

_MOST_NAMES: Final = 5
Name = Annotated[str, Field(min_length=1)]
Decimals = Literal[".", ","]
# Neither a letter or digit, nor what a number, a quote or a line has.
Separator = Annotated[str, Field(pattern=r"^[^A-Za-z0-9 \"'\r\n.+_-]$")]


T = TypeVar("T", bound=Strict)


class TitleSection(Strict):
    """[codebook]: what it is about."""

    title: str = Field(default="", description="What the codebook is about.")
    draft: bool = Field(
        default=False, description="Whether nobody has checked it yet: `stirred codebook init` writes true."
    )
    decimal: Decimals = Field(default=".", description="Of text files: what begins the decimals of a number.")
    separator: Separator | None = Field(
        default=None, description="Of text files: what separates fields; default from the header."
    )


class VariableEntry(Strict):
    """[[variables]]: a column and what it may hold."""

    name: Name = Field(description="The column.")
    file: File = Field(description="The file it is in.")
    type: Type = Field(description="What kind of values it holds.")
    label: str = Field(default="", description="What it means, for readers.")
    codes: dict[str, str] = Field(default={}, description="For type code: every possible code, and its label.")
    min: int | None = Field(default=None, description="For type integer: the smallest possible value.")
    max: int | None = Field(default=None, description="For type integer: the largest possible value.")
    missing: bool | list[str] = Field(
        default=False, description='Whether values may be missing, or the texts that mean it, such as ["NA", "."].'
    )


class LevelsEntry(Strict):
    """[[hierarchies]]: columns that nest."""

    name: Name = Field(description="What the hierarchy is called.")
    levels: list[Name] = Field(description="Columns, the finest first.")
    geographic: bool = Field(default=True, description="Whether it is one of places.")


class HrcEntry(Strict):
    """[[hierarchies]]: the codes of one variable, in a tau-ARGUS file."""

    name: Name = Field(description="What the hierarchy is called.")
    variable: Name = Field(description="The variable whose codes it orders.")
    hrc: Name = Field(description="Path of the file, relative to the codebook.")
    geographic: bool = Field(default=True, description="Whether it is one of places.")


class LinkSection(Strict):
    """[link]: the identifiers."""

    hid: Name | None = Field(default=None, description="Column that links persons to households.")
    id: list[Name] = Field(default=[], description="Other columns that identify; never released.")


class ZeroEntry(Strict):
    """[[structural_zeros]]: a combination of values that cannot exist."""

    name: Name = Field(description="What cannot exist, in words.")
    file: File = Field(description="The file of its variables.")
    when: dict[str, Annotated[list[int | str | bool], Field(min_length=1)]] = Field(
        min_length=1, description="Variables and their values that no record has together."
    )


class CodebookFile(Strict):
    """A codebook: what the columns of a confidential file mean."""

    codebook: TitleSection = Field(default=TitleSection(), description="What the codebook is about.")
    variables: list[VariableEntry] = Field(min_length=1, description="The columns and what they may hold.")
    hierarchies: list[LevelsEntry | HrcEntry] = Field(default=[], description="Columns or codes that nest.")
    link: LinkSection = Field(default=LinkSection(), description="The identifiers.")
    structural_zeros: list[ZeroEntry] = Field(default=[], description="Combinations that cannot exist.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a codebook, for editors."""
    schema = CodebookFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:codebook:1", **schema}


def read_codebook(path: Path) -> Codebook:
    """Read codebook.toml; every problem is reported at once with the file and the key."""
    return parse_codebook(read_text(path, called="codebook", save="codebook"), source=str(path), folder=path.parent)


def parse_codebook(text: str, *, source: str, folder: Path) -> Codebook:
    """Return the codebook that a TOML text declares; ``source`` names it in messages."""
    try:
        content = tomllib.loads(text, parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise bad_file(f"this is not TOML ({error})", where=source, remedy="check quotes and brackets") from None
    reader = _Reader(content, source=source, folder=folder)
    codebook = reader.codebook()
    if reader.problems:
        raise DataError(problem.inside(source) for problem in _together(reader.problems))
    assert codebook is not None
    return codebook


class _Reader:
    """Reads entry by entry, so that one wrong entry does not hide what is wrong elsewhere."""

    def __init__(self, content: dict[str, Any], *, source: str, folder: Path) -> None:
        self.content, self.source, self.folder = content, source, folder
        self.problems: list[Problem] = []
        self.unread: set[str] = set()

    def codebook(self) -> Codebook | None:
        known = CodebookFile.model_fields
        unknown = [key for key in self.content if key not in known]
        self.problems += [_unknown(key, EntryPlace(key), known=list(known), hint=meant(key, known)) for key in unknown]
        title = self._section("codebook", TitleSection) or TitleSection()
        link = self._section("link", LinkSection) or LinkSection()
        entries = [self._entry(VariableEntry, item, place) for item, place in self._entries("variables")]
        variables = tuple(_variable(entry) for entry in entries if entry)
        if not self.content.get("variables") and not any(near(key, known) == "variables" for key in unknown):
            self._tell("no variable is declared", EntryPlace("variables"), "add a [[variables]] for each column")
        hierarchies, trees = self._hierarchies()
        zeros = tuple(
            StructuralZero(name=zero.name, file=zero.file, when={k: tuple(map(_text, v)) for k, v in zero.when.items()})
            for item, place in self._entries("structural_zeros")
            if (zero := self._entry(ZeroEntry, item, place))
        )
        unsure = self._unsure(variables)
        self.problems += contradictions(variables, hierarchies, trees, zeros, unsure=unsure, unread=self.unread)
        if self.problems:
            return None
        return Codebook(
            title=title.title,
            draft=title.draft,
            dialect=Dialect(title.separator, title.decimal),
            variables=variables,
            hierarchies=hierarchies,
            trees=trees,
            hid=link.hid,
            id=tuple(link.id),
            structural_zeros=zeros,
        )

    def _unsure(self, understood: tuple[Variable, ...]) -> set[str]:
        named = [item.get("name") for item, _ in self._entries("variables", quietly=True) if isinstance(item, dict)]
        return {name for name in named if isinstance(name, str)} - {v.name for v in understood}

    def _hierarchies(self) -> tuple[tuple[Hierarchy, ...], tuple[CodeHierarchy, ...]]:
        levels: list[Hierarchy] = []
        trees: list[CodeHierarchy] = []
        for item, place in self._entries("hierarchies"):
            if isinstance(item, dict) and not {"levels", "variable", "hrc"} & set(item):
                remedy = "give levels = [columns, the finest first], or variable and hrc"
                self._tell("neither levels nor a hierarchy file are given", place, remedy)
                continue
            try:
                if isinstance(item, dict) and "levels" in item:
                    if entry := self._entry(LevelsEntry, item, place):
                        levels.append(Hierarchy(**{**dict(entry), "levels": tuple(entry.levels)}))
                elif file := self._entry(HrcEntry, item, place):
                    tree = read_hrc(self.folder / file.hrc)
                    trees.append(CodeHierarchy(tree=tree, **dict(file)))
            except StirredError as error:
                self.problems += error.problems
                if "hrc" in item:
                    self.unread.add(item["variable"])
        return tuple(levels), tuple(trees)

    def _tell(self, what: str, where: EntryPlace, remedy: str) -> None:
        self.problems.append(where.problem(what, remedy))

    def _section(self, key: str, model: type[T]) -> T | None:
        return self._entry(model, self.content.get(key, {}), EntryPlace(f"[{key}]"))

    def _entries(self, key: str, *, quietly: bool = False) -> Iterator[tuple[Any, EntryPlace]]:
        items = self.content.get(key, [])
        if not isinstance(items, list):
            if not quietly:
                self._tell(f"{_brief(items)} is not a list", EntryPlace(key), f"write [[{key}]], in two brackets")
            return
        for number, item in enumerate(items, start=1):
            name = item.get("name") if isinstance(item, dict) else None
            named = EntryPlace(key, name) if isinstance(name, str) and name else EntryPlace(f"{key} entry {number}")
            yield item, named

    def _entry(self, model: type[T], item: Any, place: EntryPlace) -> T | None:
        try:
            return model.model_validate(item)
        except ValidationError as error:
            for detail, hint in told_once(error.errors(include_url=False), model):
                self.problems.append(_problem(detail, place=place, model=model, hint=hint))
            return None


def _variable(entry: VariableEntry) -> Variable:
    missing = entry.missing if isinstance(entry.missing, bool) else tuple(entry.missing)
    return Variable(**{**dict(entry), "missing": missing})


def _together(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems, the same slip in many entries told once with the names of the entries."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for problem in problems:
        place = problem.place if isinstance(problem, EntryProblem) else EntryPlace(problem.where)
        names = alike.setdefault((place.section, place.key, problem.what, problem.remedy), [])
        if place.name and place.name not in names:
            names.append(place.name)
    for (section, key, what, remedy), names in alike.items():
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        shown = f"{listed(names[:_MOST_NAMES])}{more}" if names else ""
        yield Problem(what=what, where=" ".join(part for part in (section, shown, key) if part), remedy=remedy)


def _unknown(key: str, where: EntryPlace, *, known: list[str], hint: str) -> Problem:
    remedy = f"{hint or 'remove it, or check its spelling; '}there are {', '.join(known)}"
    return where.problem(f"there is no setting called '{key}'", remedy)


def _problem(detail: Any, *, place: EntryPlace, model: type[BaseModel], hint: str) -> Problem:
    parts = [str(part) for part in detail["loc"]]
    where = place._replace(key=" ".join(place_of([part]) for part in detail["loc"]))
    if detail["type"] == "extra_forbidden":
        return _unknown(parts[-1], where, known=list(model.model_fields), hint=hint)
    if detail["type"] == "missing":
        return where.problem(f"'{parts[-1]}' is missing", "add it")
    if (found := misshapen(detail, model)) is not None:
        return where.problem(*found)
    message = str(detail["msg"])
    what = f"{_brief(detail.get('input'))}: {message[:1].lower()}{message[1:]}"
    return where.problem(what, "see `stirred plan --schema codebook`")


def _brief(value: Any) -> str:
    text = as_given(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _text(value: int | str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
