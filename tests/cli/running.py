"""Running commands in the tests' own process, and what the tests compare their words with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from stirred.spec import Specification, catalogue

Command = Callable[..., tuple[int, str, str]]
SURVEY: dict[str, Any] = {
    "schema_version": 1,
    "domain": {"name": "survey", "dataset": "the household survey of 2026", "stage": "sample"},
    "multiverse": {"invariants": [{"kind": "margin", "of": "household", "level": "region"}]},
    "input_premetric": {"name": "d_HamS", "unit": "household"},
    "output_premetric": {"name": "D_Mult"},
    "budget": {"policy": {"name": "constant", "value": "3/2"}},
}
APPROXIMATE = {**SURVEY, "output_premetric": {"name": "D_Mult^delta", "delta": "1e-10"}}


def told(command: Command, *arguments: str) -> Any:
    code, out, err = command(*arguments, "--json")
    assert (code, err) == (0, ""), out
    return json.loads(out)


def words(command: Command, *arguments: str) -> str:
    """Return what is printed as one line, so that it does not matter where lines were broken."""
    code, out, err = command(*arguments)
    assert (code, err) == (0, "")
    return " ".join(out.split())


def load(name: str) -> Specification:
    return catalogue.load(name).specification


def flat(text: str) -> str:
    return " ".join(text.split())
