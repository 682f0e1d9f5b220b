"""Published tables without the bias of their mechanism, from what was published alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import polars as pl

from stirred.data.problems import bad_file
from stirred.data.table_labels import labels_in, with_labels
from stirred.inference.swapped_release import SwappedRelease
from stirred.inference.unswap import unswap
from stirred.mechanisms.protocol import SwapFamily
from stirred.mechanisms.registry import DEFAULT, mechanism_class


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CorrectedTable:
    """A published table without the bias of its mechanism.

    ``table`` has the variables, the published ``count``, ``estimate``, ``standard_error`` and the interval ``low`` to
    ``high`` of a ``level``. ``exact`` says that the published counts are the true ones, ``moved`` which share of the
    total is moved to other cells; ``values`` are for JSON.
    """

    table: pl.DataFrame
    variables: tuple[str, ...]
    level: float
    exact: bool
    moved: float
    notes: Sequence[str]
    values: Mapping[str, Any]


def correct(
    table: pl.DataFrame | Sequence[str],
    bundle: Path,
    *,
    level: float = 0.95,
    project: bool = False,
    where: str = "table",
) -> CorrectedTable:
    """Return the unbiased estimate of a table, with standard errors and intervals of a ``level``.

    ``table`` is a published table in long form (variables and ``count``) or only its variables, and ``bundle`` the
    folder of its release, or the public one in it. With ``project`` there is also the nearest table that the published
    margins allow. Labels of the table are kept.
    """
    public = bundle / "public" if (bundle / "public").is_dir() else bundle
    if not public.is_dir():
        raise bad_file("there is no such folder", where=str(bundle), remedy="name the folder of a bundle")
    mechanism = mechanism_class(_stated_mechanism(public / "specification.json"))
    family = mechanism.family or SwapFamily()
    if family.moved is None and family.redrawn is None:
        what, remedy = family.uncorrected or ("tables of this mechanism are not corrected", "use them as published")
        raise bad_file(what, where=str(public), remedy=remedy)
    undone = unswap(table, SwappedRelease.read(public), level=level, project=project, where=where)
    found = CorrectedTable(**{each.name: getattr(undone, each.name) for each in fields(CorrectedTable)})
    labels = labels_in(table) if isinstance(table, pl.DataFrame) else {}
    beside = [name for name in found.table.columns if name not in found.variables]
    return replace(found, table=with_labels(found.table, labels, beside=beside)) if labels else found


def _stated_mechanism(specification: Path) -> str:
    """Return the name that a specification states; where none is readable, the reader of the files says so."""
    try:
        return str(json.loads(specification.read_text(encoding="utf-8"))["mechanism"]["name"])
    except (OSError, ValueError, LookupError, TypeError):
        return DEFAULT
