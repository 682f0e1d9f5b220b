"""Missing values as a plan and its codebook declare them: which texts mean one, and whether one is a code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stirred.data.codebook import Codebook
from stirred.data.microdata import Microdata, missing_column
from stirred.data.whole import MISSING_LIKE
from stirred.mechanisms.protocol import Mechanism
from stirred.release.plan_file import Planned
from stirred.spec.problems import Problem


def as_declared(data: Microdata, planned: Planned, codebook: Codebook | None) -> Microdata:
    """Return the data in which every text that the plan or the codebook declares as missing is missing."""
    data = data.with_missing(planned.plan.data.missing)
    if codebook is None:
        return data
    codes = {
        variable.name: [text for text in MISSING_LIKE if text in variable.codes] for variable in codebook.variables
    }
    return replace(data.with_missing(codebook.missing_texts("persons")), not_missing=codes)


def with_missing_as_declared(data: Microdata, planned: Planned, mechanism: Mechanism | None) -> Microdata:
    """Return the data in which missing values of the mechanism's codes are a code, where the plan says so."""
    if planned.plan.data.missing_as != "code" or mechanism is None:
        return data
    return data.with_missing_code([*mechanism.coded_columns])


def undeclared_columns(data: Microdata, planned: Planned) -> Iterator[Problem]:
    """Yield a problem for each column that the plan declares missing texts for and no file has."""
    declared = planned.plan.data.missing
    there = [*data.households.columns, *(data.persons.columns if data.persons is not None else ())]
    for name in declared if isinstance(declared, Mapping) else ():
        if name not in there:
            yield missing_column(name, there, where=f"{planned.source} [data] missing", role="missing")
