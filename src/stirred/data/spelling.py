"""Names that were probably meant: columns, options, and keys of plans, codebooks and policies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel

from stirred.spec.block import Block
from stirred.spec.problems import as_given


def near(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, whatever its case of letters.

    >>> near("Countie", ["county", "size"]), near("x", ["county"])
    ('county', None)
    """
    by_letters = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_letters, n=1)
    return by_letters[found[0]] if found else None


def meant(name: str, known: Iterable[str]) -> str:
    """Write the beginning of a remedy that asks for the name that was probably meant, or nothing.

    >>> meant("countie", ["county", "size"]), meant("x", ["county"])
    ("did you mean 'county'? ", '')
    """
    found = near(name, known)
    return f"did you mean '{found}'? " if found else ""


# Methods that people ask for by the names of other programs, which have them.
_SDCMICRO: Final = {
    "pram": "pram()", "localsuppression": "localSuppression()", "kanon": "kAnon()", "kanonymity": "kAnon()",
    "microaggregation": "microaggregation()", "mdav": "microaggregation()", "addnoise": "addNoise()",
    "noise": "addNoise()", "rankswap": "rankSwap()", "shuffle": "shuffle()", "localrecprog": "LocalRecProg()",
}  # fmt: skip
_TAU_ARGUS: Final = {
    **dict.fromkeys(("p%", "p%rule", "ppercent", "ppercentrule", "pq", "pqrule"), 'the safety rule "P%"'),
    **dict.fromkeys(("dominance", "dominancerule", "nk", "nkrule"), "the dominance rule"),
    **dict.fromkeys(("suppression", "secondarysuppression", "cellsuppression", "hypercube"), "secondary suppression"),
    "controlledrounding": "controlled rounding",
    "cta": "controlled tabular adjustment",
    "controlledtabularadjustment": "controlled tabular adjustment",
}
_OF_R: Final = {
    **dict.fromkeys(("synthpop", "synthesis", "syntheticdata"), "the R package synthpop does it: syn()"),
    **dict.fromkeys(("smallcountrounding", "plsrounding"), "the R package SmallCountRounding does it: PLSrounding()"),
    **dict.fromkeys(("gausssuppression", "suppresssmallcounts"), "the R package GaussSuppression does it"),
}
# Methods that are here, under another name or as another command.
_HERE: Final = {
    **dict.fromkeys(("ckm", "cellkeymethod", "ptable"), 'the mechanism "cell-key" does it'),
    **dict.fromkeys(("recordswap", "recordswapping", "trs"), 'the mechanism "targeted-record-swap" does it'),
    **dict.fromkeys(("suda", "dissuda"), "it measures, and changes nothing: `stirred risk FILE --keys COLUMNS`"),
    **dict.fromkeys(
        ("ldiversity", "tcloseness"),
        "it measures, and changes nothing: `stirred risk FILE --keys COLUMNS --sensitive COLUMN`",
    ),
}


def elsewhere(name: str) -> tuple[str, str] | None:
    """Return what to answer to the name of a method that another program has.

    >>> print(*elsewhere("localSuppression"), sep=". ")
    'localSuppression' is not in stirred. sdcMicro does it: localSuppression()
    >>> print(*elsewhere("CKM"), sep=": ")
    'CKM' is called otherwise here: the mechanism "cell-key" does it
    >>> elsewhere("top-code") is None
    True
    """
    plain = re.sub("[^a-z%]", "", name.lower())
    if plain in _HERE:
        return f"'{name}' is called otherwise here", _HERE[plain]
    if plain in _OF_R:
        return f"'{name}' is not in stirred", _OF_R[plain]
    for program, methods in (("sdcMicro", _SDCMICRO), ("tau-ARGUS", _TAU_ARGUS)):
        if plain in methods:
            return f"'{name}' is not in stirred", f"{program} does it: {methods[plain]}"
    return None


def told_once(details: Sequence[Any], model: type[BaseModel]) -> Iterator[tuple[Any, str]]:
    """Yield what pydantic found wrong, each with the hint of :func:`meant`.

    A key that is missing because it is misspelt is told once, as the misspelt one.
    """
    hints, found = {}, set()
    for detail in details:
        *inside, key = detail["loc"] or ("",)
        if detail["type"] == "extra_forbidden" and (key_meant := near(str(key), keys(model, inside))):
            hints[detail["loc"]] = f"did you mean '{key_meant}'? "
            found.add((*inside, key_meant))
    for detail in details:
        if detail["type"] != "missing" or detail["loc"] not in found:
            yield detail, hints.get(detail["loc"], "")


def misshapen(detail: Any, model: type[BaseModel], *, called: str = "") -> tuple[str, str] | None:
    """Return what is wrong with the brackets of a section, or with the name that says what an entry is; and the remedy.

    What was given is not shown: it is a whole section. ``called`` is its name where that is not its key.
    """
    (key, *inside), kind, given = detail["loc"] or ("",), detail["type"], detail.get("input")
    if kind == "union_tag_not_found":
        word = detail["ctx"]["discriminator"].strip("'")
        return f"'{word}' is missing", f"add {word}: see docs/plans.md"
    if kind == "union_tag_invalid":
        tag, word = str(detail["ctx"]["tag"]), detail["ctx"]["discriminator"].strip("'")
        if (known := elsewhere(tag)) is not None:
            return known
        names = re.findall("'([^']*)'", detail["ctx"]["expected_tags"])
        begin = f"{hint}There are" if (hint := meant(tag, names)) else "write one of"
        return f"there is no {word} '{tag}'", f"{begin} {', '.join(names)}"
    if not inside and key in model.model_fields and [*_models(model.model_fields[key].annotation)]:
        if kind == "list_type" and isinstance(given, dict):
            return "it is a list, and this is one entry", f"write [[{called or key}]], with double brackets"
        if kind == "model_type" and isinstance(given, list):
            return "it is no list", f"write [{called or key}], with single brackets"
    if kind not in _SHAPES:
        return None
    shape, example = _SHAPES[kind]
    *_, last = (part for part in detail["loc"] if isinstance(part, str))
    if kind == "list_type" and isinstance(given, str | int):
        example = f'["{given}"]'
    if detail["loc"][-1] != last:  # of an entry of a list
        example = f"[{example}]"
    return f"{as_given(given)[:60]} is not {shape}", f"write {shape}, such as {last} = {example}"


# What a value should be, by the error of pydantic, and how such a value is written.
_SHAPES: Final = {
    "list_type": ("a list", '["..."]'),
    "dict_type": ("a table", '{ a = "b" }'),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), ("a whole number", "3")),
}


def keys(model: type[BaseModel], place: Sequence[Any]) -> list[str]:
    """Return the keys that a model has at a place inside it: names of keys, and numbers of entries of lists."""
    kinds: list[type[BaseModel]] = []  # of an entry that says itself which of several it is
    for part in place:
        if not isinstance(part, str):
            continue
        if kinds:
            models = [each for each in kinds if part in _tags(each)]
        elif part in model.model_fields:
            models = [*_models(model.model_fields[part].annotation)]
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


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif isinstance(annotation, type) and issubclass(annotation, Block):
        yield annotation.shape()
    for inner in get_args(annotation):
        yield from _models(inner)


def crossed(text: str) -> list[str]:
    """Return the variables of a table as custodians write it.

    >>> crossed("county x size"), crossed("county"), crossed("county,size"), crossed("county*size")
    (['county', 'size'], ['county'], ['county', 'size'], ['county', 'size'])
    """
    parts = re.split(r"\s+[x*×]\s+", text)
    if len(parts) == 1:
        parts = re.split(r"[,*]", text)
    return [part.strip() for part in parts if part.strip()]
