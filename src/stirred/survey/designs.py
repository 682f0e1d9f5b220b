"""All sampling designs by name, and how they are read from plain data."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, Final

from stirred.spec.given_numbers import fraction
from stirred.spec.problems import SpecificationError, wrong
from stirred.survey.cluster_designs import Cluster, Listed, Systematic, TwoStage
from stirred.survey.design import RELATIONS, Design, amp
from stirred.survey.unit_designs import PPS, SRSWOR, SRSWR, Poisson, Stratified

__all__ = [
    "KINDS", "PPS", "RELATIONS", "SRSWOR", "SRSWR", "Cluster", "Design", "Listed", "Poisson", "Stratified",
    "Systematic", "TwoStage", "amp", "design_from",
]  # fmt: skip

KINDS: Final[dict[str, type[Design]]] = {
    kind.name: kind for kind in (SRSWOR, SRSWR, PPS, Poisson, Stratified, Cluster, Systematic, TwoStage)
}


_WORDS: Final = ("order", "allocation", "method")


def design_from(given: dict[str, Any]) -> Design:
    """Return the design of plain data: its name under ``design``, and its numbers, as numbers, texts or lists.

    >>> design_from({"design": "stratified", "n": "10,5", "N": "100,5"})
    Stratified(n=(10, 5), N=(100, 5), allocation='fixed')
    >>> str(design_from({"design": "poisson", "pi": ["1/10", "0.3"]}))
    'poisson pi=1/10,3/10'
    """
    name = given.get("design")
    if name not in KINDS:
        raise wrong(f"{name!r} is not a design", where="design", remedy=f"one of {', '.join(KINDS)}")
    kind = KINDS[name]
    known = {f.name: f for f in fields(kind)}
    values = {k: _read(k, v, listed="tuple" in str(known[k].type)) for k, v in given.items() if k in known}
    unknown = [key for key in given if key not in known and key != "design"]
    lacking = [key for key, f in known.items() if key not in values and f.default is MISSING]
    if unknown or lacking:
        what = f"{name} has no {unknown[0]}" if unknown else f"{name} needs {lacking[0]}"
        raise wrong(what, where=(unknown or lacking)[0], remedy=f"it takes {', '.join(known)}")
    return kind(**values)


def _read(key: str, value: Any, *, listed: bool) -> Any:
    if isinstance(value, (bool, int)) or key in _WORDS:
        return (value,) if listed and type(value) is int else value
    texts = value if isinstance(value, (list, tuple)) else str(value).split(",")
    read = tuple(fraction(x, where=key) if key == "pi" else integer(x, key) for x in texts)
    if not listed and len(read) != 1:
        raise wrong(f"{value} is a list", where=key, remedy="give one number, or --design stratified")
    return read if listed else read[0]


def integer(value: Any, where: str) -> int:
    """Return a whole number, however it is written."""
    try:
        number = fraction(value, where=where)
    except SpecificationError:
        number = None
    if number is None or number.denominator != 1:
        raise wrong(f"{value} is not a whole number", where=where, remedy="write a whole number, 1 or more")
    return int(number)
