"""Imputed records that are never swapped (swapping theory R9).

The flag joins the match variables, and its strata have rate 0: imputed records are published as they are. The
source compares only files that agree on them (its d'). Here the same is said by the multiverse: what is published
exactly is an invariant, so that universes hold only such files and the distance stays d_HamS.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stirred.data.problems import DataError, listed
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.spec.invariant import Named, records_of
from stirred.spec.law import Law
from stirred.spec.problems import Problem
from stirred.spec.specification import Specification

FLAGGED: Final = ("true", "True", "TRUE", "1")
_NOT_FLAGGED: Final = ("false", "False", "FALSE", "0")


def imputed_strata(strata: Strata, flag: str) -> npt.NDArray[np.bool_]:
    """Say of each stratum whether its records are imputed; refuse flags that are neither yes nor no."""
    place = strata.match.index(flag)
    values = [str(stratum.values[place]) for stratum in strata.table]
    other = sorted({value for value in values if value not in (*FLAGGED, *_NOT_FLAGGED)})
    if other:
        raise DataError(
            [
                Problem(
                    what=f"{listed(other[:5])} does not say whether a record is imputed",
                    where=f'"{flag}"',
                    remedy="write true and false, or 1 and 0",
                )
            ]
        )
    return np.array([value in FLAGGED for value in values], dtype=np.bool_)


def without_imputed(strata: Strata, flag: str) -> Strata:
    """Return the strata with imputed ones at rate 0 and not live: all files of a universe agree there."""
    both = zip(strata.table, imputed_strata(strata, flag).tolist(), strict=True)
    table = tuple(replace(each, live=False, rate=Fraction(0)) if imputed else each for each, imputed in both)
    return replace(strata, table=table)


def agreeing_on_imputed(specification: Specification, flag: str, *, unit: str) -> Specification:
    """Return the specification between files that agree on the imputed records."""
    records = Named(
        name=f"imputed {records_of(unit)} by {flag}",
        description=f"imputed {records_of(unit)} themselves (flagged by {flag}), with all that is released of them",
    )
    multiverse = replace(specification.multiverse, invariants=(*specification.multiverse.invariants, records))
    premetric = replace(specification.input_premetric, post_imputation=True)
    return replace(
        specification.with_flavor(multiverse=multiverse, input_premetric=premetric),
        theorem=("R9, imputed records left out (docs/theory/swapping-family.md)", *specification.theorem),
        assumptions=(
            *specification.assumptions,
            "nobody counts on protection for values that were copied from their record into an imputed one",
        ),
    )


# ---- small universes for audits ------------------------------------------------------------------------


def beside_imputed(universe: Sequence[Any]) -> list[Hashable]:
    """Return the tables of a universe with two imputed records that differ, the same two in each.

    >>> beside_imputed([(("a", "x"), ("b", "y"))])
    [((('false', 'a'), 'x'), (('false', 'b'), 'y'), (('true', 'a'), 'x'), (('true', 'b'), 'y'))]
    """
    first = universe[0]
    kept = [(("true", h), s) for h, s in (first[0], first[-1])]
    return [(*((("false", h), s) for h, s in table), *kept) for table in universe]


def law_beside_imputed(dataset: Any, law: Callable[[Any], Law]) -> Law:
    """Return the law of a table whose imputed records stay as they are while the others follow ``law``."""
    kept = [((flag, h), s) for (flag, h), s in dataset if flag in FLAGGED]
    swapped = law([(h, s) for (flag, h), s in dataset if flag not in FLAGGED])
    outcomes: dict[Hashable, Fraction] = {}
    for table, chance in swapped.probabilities.items():
        rows: Any = table
        outcomes[tuple(sorted([*((("false", h), s) for h, s in rows), *kept]))] = chance
    return Law(outcomes)
