"""What is checked again of survey estimates: their numbers, held counts, and a bundle against its settings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from stirred.data.frames import as_read, read_frame
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import Check, Release, Written, failed
from stirred.mechanisms.tables.engine import audit_promise
from stirred.spec.invariant import Invariant, Named
from stirred.spec.multiverse import Multiverse
from stirred.survey.estimates import checks, published
from stirred.survey.estimates.classes import read_classes
from stirred.survey.estimates.measure import totals, values_of

if TYPE_CHECKING:
    from stirred.survey.estimates.mechanism import SurveyEstimates


def verify(mechanism: SurveyEstimates, data: Microdata, plan: Any, release: Release, written: Written) -> list[Check]:
    """Raise if a number, computed again from the file, is not the one that the estimates were made of."""
    rows, _ = checks.sampled(mechanism, data)
    for each, cells in zip(plan.estimates, plan.cells, strict=True):
        kept = release.internal["drawn"][each.title]
        for role, numbers in totals(each, rows, values_of(each, data.households, cells)).items():
            if kept[f"{role}_true"].to_list() != numbers.tolist():
                raise failed(f"{each.title}, computed again, is not what it was made of")
    count = release.internal["estimates"].height
    return [Check(what="every estimate, computed again", cells=count, result="the true numbers with the noise")]


def verify_exact(mechanism: SurveyEstimates, data: Microdata, plan: Any, written: Written) -> list[Check]:
    """Count the classes once more, where their counts are published exactly."""
    if not plan.public.held:
        return []
    found = read_frame(written.public / f"{published.INVARIANTS}.parquet")
    again, _ = read_classes(mechanism.adjust, data.households)
    if tuple(found["count"].to_list()) != again.counts:
        raise failed("the counts of the classes, as written, are not those of the sample")
    return [Check(what="sampled counts of the classes", cells=found.height)]


def audit_bundle(mechanism: SurveyEstimates, bundle: Any, found: Any) -> None:
    """Compare the promise with that of the settings; name and columns of the file are believed."""
    said = bundle.specification
    again = mechanism.specification(
        name=said.domain.name, columns=said.domain.columns, post_imputation=said.input_premetric.post_imputation
    )
    text, table = (bundle.side(f"{published.ESTIMATES}.{ending}") for ending in ("csv", "parquet"))
    if text is not None and table is not None:
        if wrong := fault(mechanism, table, text):
            found.bad(wrong, where="public/estimates.parquet")
        else:
            found.checks.append(f"{table.height:,} estimates: both files alike; se, cv and flag computed anew")
    audit_promise(bundle, again, found, held=_of_any_columns)
    found.unchecked.append(
        "whether the numbers are those of the sample and the noise is of the stated law: both are confidential"
    )


def _of_any_columns(multiverse: Multiverse) -> list[Invariant]:
    """Return what is held fixed, by whichever columns of the design it is defined; earlier versions named none."""
    held = multiverse.invariants
    return [replace(each, name=each.name.partition(": ")[0]) if isinstance(each, Named) else each for each in held]


def fault(mechanism: SurveyEstimates, table: pl.DataFrame, text: pl.DataFrame) -> str:
    """Say what is wrong with the published file: its columns, its copy as text, or numbers that contradict others."""
    if dict(table.schema) != published.schema_of(
        [name for name in table.columns if name not in (*published.LABELS, *published.NUMBERS)]
    ):
        return "its columns are not those of estimates"
    if not text.equals(as_read(table, "csv"), null_equal=True):
        return "estimates.csv does not say the same"
    own = {each.title: each for each in mechanism.wanted}
    for row in table.filter(pl.col("estimate").is_not_null()).iter_rows(named=True):
        privacy, moe = row["se_privacy"] or math.nan, row["moe90"] or math.nan
        se = math.hypot(row["se_sampling"] or 0.0, privacy)
        cv = se / abs(row["estimate"]) if row["estimate"] else None
        told = published.flag(mechanism.quality, estimate=row["estimate"], cv=cv, moe90=moe)
        given = row["se"] or math.nan, row["cv"] or math.inf
        mark = f"{told} {published.remark(own[row['name']], row['estimate'])}".strip() if row["name"] in own else told
        # Earlier versions published no remark.
        if row["flag"] not in (told, mark) or not np.allclose(given, (se, cv or math.inf), rtol=1e-9, atol=0):
            return f"se, cv or flag of {row['name']} contradicts its other numbers"
    return ""
