"""The redraw law of a published conditioned swap, as its specification states it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import polars as pl

from stirred.data.frames import read_frame
from stirred.data.problems import bad_file
from stirred.mechanisms.swapping.moments.conditioned_cells import RedrawLaw
from stirred.spec.budget import Derived
from stirred.spec.document import from_json
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import StirredError, placed

PROBABILITY = "probability"

_LAW = re.compile(r"the law is (uniform|proportional|fixed beforehand \((.*)\))", re.DOTALL)
_MASS = re.compile(r"(.*?): (\d+(?:/\d+)?)(?:, |$)", re.DOTALL)


def stated_law(specification: Path, *, given: Path | None, swap: Sequence[str]) -> RedrawLaw:
    """Return the law; where the specification has only its checksum, from the table ``given``, which must agree."""
    try:
        policy = from_json(specification.read_text(encoding="utf-8")).budget.policy
    except (OSError, ValueError, StirredError):
        policy = None
    said = _LAW.search(policy.formula) if isinstance(policy, Derived) else None
    if said is None:
        raise bad_file(
            "it does not say which law the conditioned swap redraws from, or one that tables cannot be corrected for",
            where=str(specification),
            remedy="use the specification that was published with the data",
        )
    text = said.group(2)
    if text is None or not text.startswith("sha256 "):
        if given is not None:
            raise bad_file(
                "the specification states the law itself", where=f"--redraw-law {given}", remedy="leave it out"
            )
        return said.group(1) if text is None else _masses(text, where=str(specification))
    if given is None:
        raise bad_file(
            "the specification has only the checksum of the declared redraw law",
            where="--redraw-law",
            remedy=f"give the law as a table of {swap[0]} and {PROBABILITY}, in the order of the plan; its publisher "
            "has it",
        )
    law = _read(given, swap)
    if f"sha256 {_checksum(law)}" != text:
        raise bad_file(
            "this is not the law of the release: its checksum is another",
            where=f"--redraw-law {given}",
            remedy="use the law of the plan, its values and their order unchanged",
        )
    return law


def _masses(text: str, *, where: str) -> Mapping[str, Fraction]:
    with placed(where):
        law = {name: fraction(mass, where="redraw law") for name, mass in _MASS.findall(text)}
    if any(mass <= 0 for mass in law.values()) or not 0 < sum(law.values()) <= 1:
        raise bad_file(
            f"the probabilities of its redraw law sum to {sum(law.values())}, or one is not above 0",
            where=where,
            remedy="use the specification that was published with the data",
        )
    return law


def _read(path: Path, swap: Sequence[str]) -> Mapping[str, Fraction]:
    table = read_frame(path)
    if missing := [name for name in (swap[0], PROBABILITY) if name not in table.columns]:
        raise bad_file(
            f"there is no column {missing[0]}",
            where=f"--redraw-law {path}",
            remedy=f"it needs the columns {swap[0]} and {PROBABILITY}",
        )
    with placed(f"--redraw-law {path}"):
        rows = table.select(pl.col(swap[0], PROBABILITY).cast(pl.String)).rows()
        return {value: fraction(mass, where=value) for value, mass in rows}


def _checksum(law: Mapping[str, Fraction]) -> str:
    text = ", ".join(f"{value}: {mass}" for value, mass in law.items())
    return hashlib.sha256(text.encode()).hexdigest()
