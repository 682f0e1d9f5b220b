"""What is wrong with a file, where pydantic found that it does not fit its model: in the words of its author.

Every document of the package is read by such a model. What was given, where, and how to write it are found here, once;
the reader of a document adds its own place and names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, get_args

from pydantic import BaseModel

from stirred.spec.block import Block
from stirred.spec.problems import REFUSED, Problem, as_given, place_of
from stirred.spec.spelling import elsewhere, meant, near


class Misfit(NamedTuple):
    """One thing that does not fit: its place among keys and entries, what it is, how to fix it, and pydantic's kind."""

    place: tuple[int | str, ...]
    what: str
    remedy: str
    kind: str
    hint: str  # for a key that there is not: the one that was probably meant

    def problem(self, source: str) -> Problem:
        """Return it as a problem of a document."""
        return Problem(what=self.what, where=f"{source} {place_of(self.place)}".strip(), remedy=self.remedy)


def misfits(
    details: Iterable[Any],
    given: Any,
    model: type[BaseModel],
    *,
    remedy: str,
    called: Callable[[str], str] = str,
    examples: bool = True,
) -> Iterator[Misfit]:
    """Yield what pydantic found wrong with ``given``, each place once.

    ``remedy`` is for values whose own message says what they should be. ``called`` returns the name of a section in
    its file. Without ``examples``, which are in TOML, a value of the wrong shape has that remedy too.

    >>> from pydantic import ConfigDict, ValidationError
    >>> class Limit(BaseModel):
    ...     model_config = ConfigDict(extra="forbid")
    ...     budget: int
    >>> def told(given):
    ...     try:
    ...         Limit.model_validate(given)
    ...     except ValidationError as error:
    ...         return [each[:3] for each in misfits(error.errors(), given, Limit, remedy="see docs/ledger.md")]
    >>> told({"budget": "lots"})
    [(('budget',), "'lots' is not a whole number", 'write a whole number, such as budget = 3')]
    >>> told({"bugdet": 1})
    [(('bugdet',), "there is no setting called 'bugdet'", "did you mean 'budget'? ")]
    """
    seen: set[tuple[int | str, ...]] = set()
    for detail, hint in _without_misspelt([each for each in details if each["type"] != REFUSED], model):
        place = _keys_of(detail, given)
        if place in seen:
            continue  # of several kinds that a value may be of, it is none: the first says it
        seen.add(place)
        kind, last = detail["type"], place[-1] if place else ""
        what, how = _message(detail), detail.get("ctx", {}).get("remedy", remedy)
        if kind == "extra_forbidden":
            what, how = f"there is no setting called '{last}'", hint or "remove it, or check its spelling"
        elif kind == "missing":
            what, how = f"'{last}' is missing", "add it"
        elif kind == "too_short" and detail["ctx"]["min_length"] == 1:
            what, how = f"{_brief(detail)} is empty", "write one value or more"
        elif kind == "number_type" or (
            kind != "literal_error" and detail["loc"][-1:] != place[-1:] and detail["loc"][-1] in _NUMBERS
        ):
            what = f"{_brief(detail)} is not a number or text that can be used here"
            how = "write one such as 0.05 or '1/20'"
        elif found := _misshapen(detail, place, model, called=called, remedy=remedy):
            what, how = found[0], found[1] if examples or kind not in _SHAPES else remedy
        yield Misfit(place, what, how, kind, hint)


def refusals(details: Iterable[Any], given: Any) -> Iterator[Problem]:
    """Yield what blocks and numbers of ours refused in a file, where they do not know better by their place in it."""
    for detail in details:
        for problem in detail["ctx"]["problems"] if detail["type"] == REFUSED else ():
            yield replace(problem, where=problem.where or place_of(_keys_of(detail, given)))


_NUMBERS: Final = ("str", "int", "float", "decimal")


def _keys_of(detail: Any, given: Any) -> tuple[int | str, ...]:
    """Return a place without the names that pydantic gives to the kinds a value may be of: keys that are there."""
    place: list[int | str] = []
    steps = detail["loc"]
    for number, step in enumerate(steps, start=1):
        if isinstance(given, Mapping) and step in given:
            given = given[step]
        elif isinstance(step, int):
            given = given[step] if isinstance(given, Sequence) and step < len(given) else None
        elif detail["type"] != "missing" or number < len(steps):
            continue
        place.append(step)
    return tuple(place)


def _message(detail: Any) -> str:
    """Return pydantic's message, or that of a check of ours, which names the value itself."""
    text = str(detail["msg"])
    if "remedy" in detail.get("ctx", {}):
        return text
    text = text.removeprefix("Value error, ")
    return f"{_brief(detail)}: {text[:1].lower()}{text[1:]}"


def _brief(detail: Any) -> str:
    text = as_given(detail.get("input"))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _without_misspelt(details: Sequence[Any], model: type[BaseModel]) -> Iterator[tuple[Any, str]]:
    """Yield what was found, each with a hint; a key that is missing because it is misspelt is the misspelt one."""
    hints, found = {}, set()
    for detail in details:
        *inside, key = detail["loc"] or ("",)
        if detail["type"] == "extra_forbidden" and (key_meant := near(str(key), keys(model, inside))):
            hints[detail["loc"]] = f"did you mean '{key_meant}'? "
            found.add((*inside, key_meant))
    for detail in details:
        if detail["type"] != "missing" or detail["loc"] not in found:
            yield detail, hints.get(detail["loc"], "")


def _misshapen(
    detail: Any, place: Sequence[int | str], model: type[BaseModel], *, called: Callable[[str], str], remedy: str
) -> tuple[str, str] | None:
    """Return what is wrong with the brackets of a section, with the word for a kind of entry, or with a shape.

    A whole section is not shown.
    """
    kind, given = detail["type"], detail.get("input")
    if kind == "union_tag_not_found":
        word = detail["ctx"]["discriminator"].strip("'")
        return f"'{word}' is missing", f"add {word}: {remedy}"
    if kind == "union_tag_invalid":
        tag, word = str(detail["ctx"]["tag"]), detail["ctx"]["discriminator"].strip("'")
        if (known := elsewhere(tag)) is not None:
            return known
        names = re.findall("'([^']*)'", detail["ctx"]["expected_tags"])
        begin = f"{hint}There are" if (hint := meant(tag, names)) else "write one of"
        return f"there is no {word} '{tag}'", f"{begin} {', '.join(names)}"
    if len(place) == 1 and (key := str(place[0])) in model.model_fields and _parts(model, key):
        if kind in ("list_type", "tuple_type") and isinstance(given, dict):
            return "it is a list, and this is one entry", f"write [[{called(key)}]], with double brackets"
        if kind == "model_type" and isinstance(given, list):
            return "it is not a list", f"write [{called(key)}], with single brackets"
        if kind == "model_type":
            return f"{_brief(detail)} is not a section", f"write [{called(key)}], and its keys below, on a line each"
    if kind not in _SHAPES:
        return None
    shape, example = _SHAPES[kind]
    if kind in ("list_type", "tuple_type") and isinstance(given, str | int):
        example = f'["{given}"]'
    *_, last = ("", *(part for part in place if isinstance(part, str)))
    if not last:
        return f"{_brief(detail)} is not {shape}", remedy
    if place[-1] != last:  # of an entry of a list
        example = f"[{example}]"
    return f"{_brief(detail)} is not {shape}", f"write {shape}, such as {last} = {example}"


# What a value should be, by the kind of error, and how such a value is written.
_SHAPES: Final = {
    **dict.fromkeys(("list_type", "tuple_type", "frozen_set_type"), ("a list", '["..."]')),
    **dict.fromkeys(("dict_type", "model_type"), ("a table", '{ a = "b" }')),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), ("a whole number", "3")),
    **dict.fromkeys(("float_type", "float_parsing"), ("a number", "0.5")),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("true or false", "true")),
    "string_type": ("text", '"..."'),
}


def keys(model: type[BaseModel], place: Collection[Any]) -> list[str]:
    """Return the keys that a model has at a place inside it: names of keys, and numbers of entries of lists."""
    kinds: list[type[BaseModel]] = []  # of an entry that says itself which of several it is
    for part in place:
        if not isinstance(part, str):
            continue
        if kinds:
            models = [each for each in kinds if part in _tags(each)]
        elif part in model.model_fields:
            models = _parts(model, part)
        else:
            return []
        model, kinds = (models[0], []) if len(models) == 1 else (model, models)
        if not models:
            return []
    return [] if kinds else list(model.model_fields)


def _tags(model: type[BaseModel]) -> Iterator[str]:
    """Yield the words by which an entry says that it is of this model."""
    for each in model.model_fields.values():
        yield from (word for word in get_args(each.annotation) if isinstance(word, str))


def _parts(model: type[BaseModel], key: str) -> list[type[BaseModel]]:
    """Return the models that a key holds."""
    return [*_models(model.model_fields[key].annotation)]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    if isinstance(annotation, type) and issubclass(annotation, Block):
        yield annotation.shape()
    for inner in get_args(annotation):
        yield from _models(inner)
