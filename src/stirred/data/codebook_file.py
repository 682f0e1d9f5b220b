"""codebook.toml and its hierarchy files: read strictly, every problem at once; written; and drafted from a file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial, reduce
from math import gcd
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import polars as pl
from pydantic import Field, ValidationError

from stirred.data.codebook import (
    Codebook,
    CodeHierarchy,
    CodeTree,
    ColumnLevels,
    EntryPlace,
    EntryProblem,
    File,
    HierarchyFile,
    Name,
    StructuralZero,
    Variable,
    contradictions,
)
from stirred.data.formats import Labelled
from stirred.data.natural import sorted_values
from stirred.data.problems import DataError, bad_file, listed
from stirred.data.record_doubts import identifying
from stirred.data.sources import Dialect, read_text, toml_content
from stirred.data.validate import as_text
from stirred.data.whole import comma_columns, with_points
from stirred.spec.document import Strict
from stirred.spec.misfits import misfits
from stirred.spec.multiverse import Hierarchy
from stirred.spec.problems import Problem, StirredError, as_given, place_of
from stirred.spec.spelling import meant, near

_MOST_NAMES: Final = 5
_WIDE: Final = 100
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


class LinkSection(Strict):
    """[link]: the identifiers."""

    hid: Name | None = Field(default=None, description="Column that links persons to households.")
    id: list[Name] = Field(default=[], description="Other columns that identify; never released.")


class CodebookFile(Strict):
    """A codebook: what the columns of a confidential file mean."""

    codebook: TitleSection = Field(default=TitleSection(), description="What the codebook is about.")
    variables: list[Variable] = Field(min_length=1, description="The columns and what they may hold.")
    hierarchies: list[ColumnLevels | HierarchyFile] = Field(default=[], description="Columns or codes that nest.")
    link: LinkSection = Field(default=LinkSection(), description="The identifiers.")
    structural_zeros: list[StructuralZero] = Field(default=[], description="Combinations that cannot exist.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a codebook, for editors."""
    schema = CodebookFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:codebook:1", **schema}


def read_codebook(path: Path) -> Codebook:
    """Read codebook.toml; every problem is reported at once with the file and the key."""
    return parse_codebook(read_text(path, called="codebook", save="codebook"), source=str(path), folder=path.parent)


def parse_codebook(text: str, *, source: str, folder: Path) -> Codebook:
    """Return the codebook that a TOML text declares; ``source`` names it in messages."""
    reader = _Reader(toml_content(text, where=source, refusal=bad_file), source=source, folder=folder)
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
        variables = self._all("variables", Variable)
        if not self.content.get("variables") and not any(near(key, known) == "variables" for key in unknown):
            self._tell("no variable is declared", EntryPlace("variables"), "add a [[variables]] for each column")
        hierarchies, trees = self._hierarchies()
        zeros = self._all("structural_zeros", StructuralZero)
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
                    if entry := self._entry(ColumnLevels, item, place):
                        levels.append(Hierarchy(**dict(entry)))
                elif file := self._entry(HierarchyFile, item, place):
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

    def _all(self, key: str, model: type[T]) -> tuple[T, ...]:
        found = [self._entry(model, item, place) for item, place in self._entries(key)]
        return tuple(entry for entry in found if entry is not None)

    def _entry(self, model: type[T], item: Any, place: EntryPlace) -> T | None:
        try:
            return model.model_validate(item)
        except ValidationError as error:
            for found in misfits(error.errors(), item, model, remedy="see `stirred plan --schema codebook`"):
                where = place._replace(key=" ".join(place_of([part]) for part in found.place))
                if found.kind == "extra_forbidden":
                    key, known = str(found.place[-1]), list(model.model_fields)
                    self.problems.append(_unknown(key, where, known=known, hint=found.hint))
                else:
                    self.problems.append(where.problem(found.what, found.remedy))
            return None


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


def _brief(value: Any) -> str:
    text = as_given(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- tau-ARGUS hierarchy files (``.hrc``): a tree of codes, one a line; the number of leading '@' is its depth ---


def read_hrc(path: Path) -> CodeTree:
    """Read a ``.hrc`` file; every problem is reported at once with its line."""
    check = "check the path; it is relative to the folder of the codebook"
    return parse_hrc(read_text(path, called="hierarchy", save="file", check=check), source=str(path))


def parse_hrc(text: str, *, source: str = "hrc") -> CodeTree:
    """Return the tree of codes; leading '@' or spaces give the depth."""
    lines = [(number, line.rstrip()) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise bad_file("the file holds no codes", where=source, remedy="write one code a line, '@' for each depth")
    problems: list[Problem] = []
    depths = _depths(lines, problems, source)
    parents: dict[str, str | None] = {}
    first: dict[str, int] = {}
    above: list[str] = []  # the codes from the top to the last line
    for (number, line), depth in zip(lines, depths, strict=True):
        code = line.lstrip("@ \t").strip()
        problem = _line_problem(code, depth, above=above, first=first)
        if problem:
            what, remedy = problem
            problems.append(Problem(what=what, where=f"{source} line {number}", remedy=remedy))
            # What lies below this line, or beside it, is not to blame for it.
            above += [code] * (depth - len(above))
        else:
            parents[code] = above[depth - 1] if depth else None
        first.setdefault(code, number)
        above = [*above[:depth], code]
    if problems:
        raise DataError(problems)
    return CodeTree(parents=parents)


def _line_problem(code: str, depth: int, *, above: list[str], first: dict[str, int]) -> tuple[str, str] | None:
    if not code:
        return "this line has a depth, but no code", "write the code after the leading characters"
    if code in first:
        return f"code {code} is already on line {first[code]}", "give every code one line"
    if depth > len(above):
        what = f"code {code} stands {depth - len(above) + 1} levels below the line before it"
        return what if above else f"code {code} stands below no other", "add the codes between them, or remove a depth"
    return None


def _depths(lines: list[tuple[int, str]], problems: list[Problem], source: str) -> list[int]:
    """Return the depth of each line; the shallowest is 0, so that a file may open with its total at '@'."""
    leads = [line[: len(line) - len(line.lstrip("@ \t"))] for _, line in lines]
    for (number, _), lead in zip(lines, leads, strict=True):
        if "@" in lead.strip() and lead.startswith((" ", "\t")):
            problems.append(
                Problem(
                    what="spaces stand before '@'",
                    where=f"{source} line {number}",
                    remedy="use '@' alone, or spaces alone, to give the depth",
                )
            )
    if any("@" in lead for lead in leads):
        depths = [lead.count("@") for lead in leads]
    else:
        # Spaces: as many to a level as divide every indent.
        unit = reduce(gcd, (len(lead) for lead in leads), 0) or 1
        depths = [len(lead) // unit for lead in leads]
    return [depth - min(depths) for depth in depths]


# ---- writing --------------------------------------------------------------------------------------------


def variable_toml(variable: Variable, *, remarks: Sequence[str] = ()) -> str:
    """Return one ``[[variables]]`` entry, with remarks as comments."""
    facts = {key: getattr(variable, key) for key in ("label", "min", "max", "missing", "codes")}
    given = {key: value for key, value in facts.items() if value or (key in ("min", "max") and value is not None)}
    needed = {"name": variable.name, "file": variable.file, "type": variable.type}
    return entry_toml("variables", remarks=remarks, **needed, **given)


def hierarchy_toml(hierarchy: Hierarchy, *, remarks: Sequence[str] = ()) -> str:
    """Return one ``[[hierarchies]]`` entry of columns."""
    name, levels, geographic = hierarchy.name, hierarchy.levels, hierarchy.geographic
    return entry_toml("hierarchies", remarks=remarks, name=name, levels=levels, geographic=geographic)


def link_toml(hid: str | None, id: Sequence[str]) -> str:
    """Return the ``[link]`` section."""
    lines = ([f"hid = {quoted(hid)}"] if hid is not None else []) + ([f"id = {toml_value(id)}"] if id else [])
    return "\n".join(["[link]", *lines, ""])


def entry_toml(section: str, *, remarks: Sequence[str] = (), **facts: Any) -> str:
    """Return one entry of a list of tables, with remarks as comments."""
    lines = [f"[[{section}]]", *(f"# {remark}" for remark in remarks)]
    tables = []
    for key, value in facts.items():
        line = f"{key} = {toml_value(value)}"
        if isinstance(value, Mapping) and len(line) > _WIDE:
            # An inline table may not be broken over lines; a long one becomes a table of its own, at the end.
            tables += [f"[{section}.{key}]", *(f"{_key(k)} = {toml_value(v)}" for k, v in value.items())]
        else:
            lines.append(line)
    return "\n".join([*lines, *tables, ""])


def toml_value(value: Any) -> str:
    """Return a value as TOML writes it on one line.

    >>> toml_value({"a b": [1, True]})
    '{ "a b" = [1, true] }'
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    return "[" + ", ".join(toml_value(item) for item in value) + "]"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else quoted(key)


def quoted(text: str) -> str:
    r"""Return a text as a TOML basic string.

    >>> print(quoted('a "b"\n'))
    "a \"b\"\n"
    """
    # JSON escapes what TOML does, but for the delete character.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# ---- drafting from a file: something to edit, never something to run with unread -----------------------------------

MOST_CODES: Final = 60
FEW: Final = 12
WARNING: Final = (
    "drafted from the data: check that every possible code is listed, not only those that occur; "
    "choosing settings by looking at the data voids the guarantee"
)
_CODES: Final = "drafted from the data: check that every possible code is listed, and write the labels"
_RANGE: Final = "drafted from the data: check that min and max are what can occur, not what does"
# Names under which identifiers are commonly kept.
_IDS: Final = ("id", "hid", "pid", "serial", "serialno")
# Names under which places are commonly kept, the finest first.
_PLACES: Final = (
    "block", "block_group", "tract", "ward", "municipality", "district", "county", "province", "region", "state",
    "country",
)  # fmt: skip


def draft_codebook(
    households: Labelled,
    persons: Labelled | None = None,
    *,
    hid: str | None = None,
    id: Sequence[str] = (),
    title: str = "",
) -> str:
    """Return the TOML text of a codebook that fits the files, its guesses marked by comments; ``id`` is known."""
    commas = any(comma_columns(table.frame) for table in (households, persons) if table is not None)
    homes, people = _with_points(households), None if persons is None else _with_points(persons)
    return "\n".join(_sections(homes, people, hid=hid, id=id, title=title, commas=commas))


def _with_points(table: Labelled) -> Labelled:
    commas = [with_points(pl.col(name)) for name in comma_columns(table.frame)]
    return replace(table, frame=table.frame.with_columns(commas)) if commas else table


def _sections(
    households: Labelled,
    persons: Labelled | None,
    *,
    hid: str | None,
    id: Sequence[str],
    title: str,
    commas: bool,
) -> Iterator[str]:
    yield "".join(f"# {line}\n" for line in ("A codebook " + WARNING).replace("; ", ";\n").split("\n"))
    decimal = 'decimal = ","  # columns of the file have numbers with decimal commas\n' if commas else ""
    draft = "draft = true  # remove this line when you have checked all below\n"
    yield f"[codebook]\ntitle = {quoted(title)}\n{decimal}{draft}"
    ids: list[str] = []
    files: list[tuple[File, Labelled]] = [("households", households)]
    if persons is not None:
        files.append(("persons", persons))
    shared = () if persons is not None or hid is None else _of_households(households.frame, hid)
    if shared:
        yield _SPLIT.format(hid=quoted(hid or ""), columns=", ".join(map(quoted, shared)))
    for file, table in files:
        for name in (column for column in table.frame.columns if column != hid):
            of = "persons" if shared and name not in shared else file
            variable, remark = (
                (Variable(name=name, file=of, type="id"), "") if name in id else _guess(table, name, file=of)
            )
            if variable.type == "id" and name not in ids:
                ids.append(name)
            gaps = "values are missing in the data: is that meant?" if variable.missing else ""
            yield variable_toml(variable, remarks=[each for each in (remark, gaps) if each])
    places = [name for name in _PLACES if name in households.frame.columns]
    if len(places) > 1:
        remark = "drafted from the names of the columns: check that each lies in the next, the finest first"
        yield hierarchy_toml(Hierarchy(name="geography", levels=tuple(places)), remarks=[remark])
    if hid is not None or ids:
        yield link_toml(hid, ids)
    yield (
        "# Combinations that cannot exist, if there are any:\n# [[structural_zeros]]\n"
        '# name = "young householders"\n# file = "persons"\n# when = { relationship = [1], age = [0, 1, 2] }\n'
    )


_SPLIT: Final = """# This seems to be a file of persons. What is the same for all persons of a household may belong
# to it: check that it always does, not only in this file, and split the file in the plan:
# [[prepare]]
# step = "split"
# hid = {hid}
# households = [{columns}]
"""


def _of_households(flat: pl.DataFrame, hid: str) -> list[str]:
    """Return the columns that are the same for all persons of a household; none if each has one row."""
    if flat[hid].n_unique() == flat.height:
        return []
    others = [name for name in flat.columns if name != hid and flat[name].dtype != pl.Object]
    most = flat.group_by(hid).agg(pl.col(others).n_unique()).select(pl.col(others).max()).row(0)
    return [name for name, values in zip(others, most, strict=True) if values == 1]


# A variable as it seems to be, and what its reader should check.
_Guess = tuple[Variable, str]


def _guess(table: Labelled, name: str, *, file: File) -> _Guess:
    column = table.frame[name]
    seems = partial(Variable, name=name, file=file, label=table.columns.get(name, ""))
    if name.lower() in _IDS:
        return seems(type="id"), "drafted from the name of the column: check that it identifies"
    if column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        return seems(type="text"), f"values of type {column.dtype} cannot be declared: leave the column out"
    known = column.unique().drop_nulls()
    if known.dtype.is_float():
        known = known.drop_nans()
    missing = bool(column.null_count()) or (column.dtype.is_float() and bool(column.is_nan().any()))
    seems = partial(seems, missing=missing)
    if column.dtype == pl.Boolean:
        return seems(type="true-false"), ""
    if column.dtype in (pl.Date, pl.Datetime):
        return seems(type="date"), ""
    labels = table.values.get(name, {})
    text = as_text(known)
    if labels and len({*labels, *text.head(MOST_CODES + 1)}) <= MOST_CODES:
        return seems(type="code", codes=_codes(text, labels)), "labels from the file; " + _CODES
    if len(known) > MOST_CODES and (why := identifying(column)):
        return seems(type="id"), f"it {why}: an identifier? If not, declare its type"
    return _guess_from_text(text, seems)


def _guess_from_text(text: pl.Series, seems: Callable[..., Variable]) -> _Guess:
    if not len(text):
        return seems(type="text"), "every value is missing: check the type"
    # A leading zero tells a code from a number.
    whole = bool(text.str.contains(r"^-?(0|[1-9][0-9]{0,37})$").all())
    numbers = text.cast(pl.Int128) if whole else None
    if numbers is not None:
        low, high = int(numbers.min()), int(numbers.max())  # type: ignore[arg-type]
        # Many numbers that begin near zero count or measure something; the others are codes.
        if len(text) > MOST_CODES or (len(text) > FEW and abs(low) <= len(text)):
            return seems(type="integer", min=low, max=high), _RANGE
    if text.str.contains(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$").all():
        return seems(type="date"), ""
    if len(text) <= MOST_CODES:
        return seems(type="code", codes=_codes(text, {})), _CODES
    return seems(type="text"), f"more than {MOST_CODES} values: any text is allowed; list them as codes?"


def _codes(text: pl.Series, labels: Mapping[str, str]) -> dict[str, str]:
    """Return every code with its label, or itself where it has none; numbers in the order of their size."""
    codes = sorted_values(pl.Series(values=[*{*labels, *text}], dtype=pl.String))
    return {code: labels.get(code, code) for code in codes}
