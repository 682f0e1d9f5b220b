"""Whom a plan exposes: records that are unique on what its release publishes unchanged, and the doubt about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from stirred.data import exposed
from stirred.data.exposed import counted, exposed_doubt, exposure
from stirred.data.microdata import Microdata
from stirred.data.uniqueness import Uniqueness
from stirred.spec.doubts import Doubt


def plan_exposure(mechanism: Any, data: Microdata, plan: Any) -> Uniqueness | None:
    """Return how many records are unique on what is published exactly; None where they are not counted."""
    if not plan.publishes_fixed or not counted(data):
        return None
    # Who is unique on a column that is dropped is found by no one.
    shown = replace(data, keep_persons=tuple(plan.releases.get("persons", ())))
    found = exposure(plan.specification, shown, exchanged=mechanism.areas)
    return None if found is None else found[0]


def exposed_doubts(
    found: Uniqueness | None,
    mechanism: Any,
    data: Microdata,
    plan: Any,
    *,
    most: Fraction | None = None,
    set_by: str = "the default",
) -> Iterator[Doubt]:
    """Yield the doubt about released records that are unique on what is published unchanged.

    ``most`` is how large their share may be, and ``set_by`` says who allows it.
    """
    if found is None or {*found.keys} & {*mechanism.areas}:
        return  # who is alone with exchanged values stands as a 1 in a table, and the record may be another's
    if not any(file.kind == "records" for file in plan.files(mechanism, data)):
        return
    most = exposed.MOST_EXPOSED if most is None else most
    if (doubt := exposed_doubt(found, most=most, set_by=set_by)) is not None:
        yield doubt
