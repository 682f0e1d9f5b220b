"""Published specifications as data: the files beside this one, each entry with its source.

The files hold settings (rates, largest strata, measured budgets, invariants) and never an answer:
whatever can be computed from them is computed when an entry is loaded.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from stirred.spec.composition import UnitFactor, compose
from stirred.spec.document import from_document
from stirred.spec.problems import wrong
from stirred.spec.specification import Derivation, DerivationStep, Specification

UNREAD: Final = "Named by the dissertation or its slides; the wording of the source itself was not checked."
FILES: Final = ("definitions.toml", "us-census-2020.toml", "swapping.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """A published specification: its name here, its title, where it comes from, and how it was derived.

    ``kind`` is ``definition`` for those of the literature, whose budget is a letter, and ``release`` otherwise.
    ``parts`` are the releases that it adds up, each for its own unit, where they are known. ``printed`` is the number
    of the source, cut off or rounded to nearest; ours is computed and rounded up.
    """

    name: str
    title: str
    source: str
    notes: tuple[str, ...]
    specification: Specification
    kind: str = "release"
    steps: tuple[DerivationStep, ...] = ()
    parts: tuple[Specification, ...] = ()
    printed: str | None = None

    @property
    def budget_text(self) -> str:
        """Return the budget, with the number as its source prints it where the two differ.

        >>> load("psa-1940-massachusetts-50pct").budget_text
        'ε=12.49, printed 12.48'
        """
        text = self.specification.budget_text
        return f"{text}, printed {self.printed}" if self.prints_another else text

    @property
    def prints_another(self) -> bool:
        """Return whether the source prints another number than ours."""
        return self.printed is not None and self.printed != self.specification.budget.shown

    def in_unit(self, unit: str, *, factor: int | Fraction | str, because: str) -> Derivation | None:
        """Return everything together for another unit, where some parts are about that unit already; else None.

        Only the other parts are scaled: converting their sum would scale all of it.
        """
        own = self.specification.input_premetric.unit
        if unit == own or {part.input_premetric.unit for part in self.parts} != {own, unit}:
            return None
        return compose(self.parts, unit=unit, units=[UnitFactor(old=own, new=unit, factor=factor, because=because)])


def names(kind: str | None = None) -> list[str]:
    """Return the names of all entries, or of those of a kind, in the order of the files.

    >>> "das-2020" in names()
    True
    """
    return [name for name, (entry, _) in _raw().items() if kind in (None, _kind(entry))]


def _kind(entry: dict[str, Any]) -> str:
    return "definition" if "toy" in entry else "release"


def load(name: str) -> CatalogueEntry:
    """Return an entry by name, or by another name of a definition.

    >>> load("bounded-dp").name
    'pure-dp'
    >>> load("psa-2020-state-county-50pct").specification.budget.realised
    Exact('ln(13475624)')
    """
    name = raw_atlas()["also"].get(name, name)
    if name in raw_atlas()["absent"]:
        remedy = "`stirred spec list --kind definition` shows those that are"
        raise wrong(f"{name} is not in the catalogue: {raw_atlas()['absent'][name]}", where="catalogue", remedy=remedy)
    if name not in _raw():
        near = get_close_matches(name, names(), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise wrong(
            f"there is no specification called {name!r}",
            where="catalogue",
            remedy=f"{hint}`stirred spec list` shows all names; a file ends in .json",
        )
    return _entry(name)


@lru_cache(maxsize=1)
def _raw() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return name -> (entry, the file it stands in)."""
    entries = {}
    for file in FILES:
        text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
        content = tomllib.loads(text, parse_float=str)
        for entry in content["entries"]:
            entries[entry["name"]] = (entry, content)
        for name, row in _definitions(content).items():
            known = entries[name][0] if name in entries else {**content["usual"], **row["blocks"], **row["facts"]}
            entries[name] = ({**known, "toy": row["toy"]}, content)
    return entries


@lru_cache(maxsize=1)
def raw_atlas() -> dict[str, Any]:
    """Return the atlas as it stands in the file: definitions by name, arrows, and what is absent."""
    content = tomllib.loads(resources.files(__package__).joinpath(FILES[0]).read_text(encoding="utf-8"))
    return {**content["atlas"], "definitions": _definitions(content), "absent": content["absent"],
            "also": content["also"]}  # fmt: skip


def _definitions(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    rows = {}
    for name, says, at, source, blocks, *toy in content.get("atlas", {}).get("definitions", ()):
        words = blocks.get("title", name.replace("-dp", " differential privacy"))
        unread = [UNREAD] if blocks.get("unread") else []
        facts = {"name": name, "title": f"{words[0].upper()}{words[1:]}: {says}", "source": source,
                 "notes": [*blocks.get("notes", ()), *unread]}  # fmt: skip
        rows[name] = {"says": says, "at": at, "blocks": blocks, "toy": toy, "facts": facts}
    return rows


@lru_cache(maxsize=256)
def _entry(name: str) -> CatalogueEntry:
    entry, file = _raw()[name]
    others = [other for other, meant in raw_atlas()["also"].items() if meant == name]
    called = [f"Also called {', '.join(others)}."] if others else []
    steps: tuple[DerivationStep, ...] = ()
    recipe = entry.get("compose", {})
    within = [load(part) for part in entry.get("parts", recipe.get("of", ()))]
    if recipe:
        units = [UnitFactor(**file["units"][name]) for name in recipe.get("units", ())]
        derivation = compose([part.specification for part in within], unit=recipe.get("unit"), units=units)
        specification, steps = derivation.specification, derivation.steps
    else:
        specification = from_document(_document(entry, file), source=f"catalogue {name}")
    return CatalogueEntry(
        name=name,
        title=entry["title"],
        source=entry["source"],
        notes=(*called, *entry.get("notes", ())),
        specification=specification,
        kind=_kind(entry),
        steps=steps,
        printed=entry.get("printed"),
        parts=tuple(each for part in within for each in part.parts or (part.specification,)),
    )


def _document(entry: dict[str, Any], file: dict[str, Any]) -> dict[str, Any]:
    """Return the entry as a specification document, its shared parts put in."""
    multiverse = dict(file["multiverses"][entry["multiverse"]])
    multiverse["hierarchies"] = [file["hierarchies"][name] for name in multiverse.get("hierarchies", ())]
    premetric = entry["input_premetric"]
    return {
        "schema_version": 1,
        "domain": file["domains"][entry["domain"]],
        "multiverse": multiverse,
        "input_premetric": file["premetrics"][premetric] if isinstance(premetric, str) else premetric,
        "output_premetric": entry["output_premetric"],
        "budget": entry["budget"],
        "assumptions": entry.get("assumptions", []),
        "theorem": entry.get("theorem", []),
        "settings_from": entry.get("settings_from"),
    }
