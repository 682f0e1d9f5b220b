"""What a release promises about the file before a step: an edit, an imputation, a join, a clip.

If d(g(x), g(x')) <= k d(x, x') for the step g, a mechanism run on g(x) with budget epsilon has budget k epsilon for x
(rho squared: k squared), in the universes that g maps into one. Steps that multiply multiply their factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Final

from stirred.spec.convert import change_distance
from stirred.spec.derivation import Derivation, stepped
from stirred.spec.exact import exact
from stirred.spec.given_numbers import fraction
from stirred.spec.group_privacy import scale_budget
from stirred.spec.invariant import ALL
from stirred.spec.problems import refused, wrong
from stirred.spec.specification import Specification

RECODE: Final = "recode"
BEFORE: Final = "it was before the file was"  # how a stage is told that has no name
_FIXED: Final = "the preparation was fixed beforehand, without looking at this file"
_COPIES: Final = "1 + the largest number of copies of one record"
_SIZE: Final = "it changes the number of records, and this distance never compares files of different size"
_ONE: Final = dict.fromkeys(("d_HamS", "d_Ham", "d_SymDiff", "d_InsDel"), (0, 1))
_TIMES: Final = dict.fromkeys(_ONE, (1, 0))
_ORDERED: Final = {"d_HamS": "d_Ham", "d_SymDiff": "d_InsDel"}


@dataclass(frozen=True, slots=True)
class PreparationStep:
    """A step that was done to the file before the mechanism saw it, and what it does to distances.

    ``factors`` has for each distance of the release the factor ``a k + b``, where the caller states ``k`` if ``stated``
    says what it is. ``before`` names the distance of the promise about the file before, where it is another one. For a
    distance without a factor ``refused`` says why.
    """

    words: str
    factors: Mapping[str, tuple[int, int]]
    refused: str = "nothing is known about this distance"
    stated: str = ""
    before: Mapping[str, str] = field(default_factory=dict)


# Every factor is attained on small files, which the tests list.
STEPS: Final = {
    RECODE: PreparationStep("recoded record by record", _ONE),
    "edit": PreparationStep("edited record by record", _ONE),
    "clip": PreparationStep("clipped to limits fixed beforehand", _ONE),
    "forget-order": PreparationStep("put into no order", dict.fromkeys(_ORDERED, (0, 1)), before=_ORDERED,
                                    refused="a file in no order has no positions to compare"),
    "filter": PreparationStep("filtered record by record", {"d_SymDiff": (0, 1), "d_InsDel": (0, 1)}, _SIZE),
    "deduplicate": PreparationStep("rid of repeated records", {"d_SymDiff": (0, 1), "d_InsDel": (0, 2)}, _SIZE),
    "join": PreparationStep("joined with a public table", {"d_SymDiff": (1, 0), "d_InsDel": (1, 0)}, _SIZE,
                            stated="the largest number of rows that one record can match"),
    "impute-copies": PreparationStep("completed by imputation, donors fixed by public identifiers", _TIMES,
                                     stated=_COPIES, before=dict.fromkeys(_ONE, "d_Ham")),
    "impute-by-position": PreparationStep("completed by imputation, donors fixed by position", {"d_Ham": (1, 0)},
                                "files that differ only in order are no distance apart, and have other donors",
                                stated=_COPIES),
    "clip-at-rank": PreparationStep("clipped at this file's own value of a rank fixed beforehand, counted from the top",
                                    {**_TIMES, "d_SymDiff": (2, -1), "d_InsDel": (2, -1)},
                                    stated="the rank, such as 2 for the second largest value"),
}  # fmt: skip
# Steps that have none, since it grows with the file.
REFUSED: Final = {
    "impute-nearest": "one changed record may be the donor of all others, n of them",
    "impute-sequential": "one changed record may be the donor of all others, n of them",
    "impute-mean": "every record moves the mean, and with it all values put in, n of them",
    "link": "one record can join two clusters into one (3 records on a line), and there is no bound in general",
    "self-join": "one of n records is in up to 2n - 1 pairs",
    "rank": "one record moves the ranks of all others, n of them",
    "clip-at-median": "the median of n records moves up to (n + 1)/2 clipped values",
    "clip-at-quantile": "a quantile of this file moves a share of all clipped values",
}


def pull_back(
    specification: Specification,
    step: str = RECODE,
    *,
    lipschitz: int | Fraction | str | None = None,
    because: str = "",
    stage: str | None = None,
    prepared: tuple[tuple[str, str], ...] | None = None,
) -> Derivation:
    """Return the specification of a mechanism that is run on a prepared file, for the file as it was.

    ``step`` is one of ``STEPS``, whose factor is known, or one of your own with its factor ``lipschitz`` and the reason
    ``because``. For some steps ``lipschitz`` says how far one record reaches: 2 for one copy by imputation. ``stage``
    names the stage that is reached. ``prepared`` says by column what was done by functions of single records; figures
    that are fixed are fixed in the prepared file. A step with no factor that holds for files of every size is refused.

    >>> from stirred.spec import catalogue
    >>> pull_back(catalogue.load("das-2020").specification, "impute-copies", lipschitz=2).specification.notation
    'ρ²=221.484-DP(X_CEF, D_c, d_Ham^person, D_NoR)'
    """
    if prepared == ():
        return Derivation(specification=specification)
    known, name, start = STEPS.get(step), specification.input_premetric.name, Derivation(specification=specification)
    factor = _own(step, lipschitz, because) if known is None else _known(specification, step, known, lipschitz)
    if known is not None and name in known.before:
        start = change_distance(specification, to=known.before[name])
    after = _stretched(start.specification, factor)
    if step.startswith("impute"):  # the people behind the records, whatever was copied
        after = after.with_flavor(input_premetric=replace(after.input_premetric, post_imputation=False))
    words = f"changed by {step}" if known is None else known.words
    done = ((ALL, words),) if prepared is None else prepared
    reached = stage or (after.domain.stage if prepared is not None else f"{BEFORE} {words}")
    before = replace(after.domain, prepared=(*done, *after.domain.prepared), stage=reached)
    along = "function of single records," if known and known.factors is _ONE else "step that multiplies distances by"
    step_back = stepped(
        start.specification,
        after.with_flavor(domain=before),
        action=f"pull back along the preparation ({before.prepared_in_words}), factor {factor}",
        theorem=f"pull-back along a {along} factor {factor} (Proposition 2.4.15)",
        assuming=because or _FIXED,
    )
    return start.then(step_back)


def _own(step: str, lipschitz: int | Fraction | str | None, because: str) -> Fraction:
    """Return the stated factor of a step that is not in the list."""
    if step in REFUSED:
        remedy = (
            "use a rule fixed beforehand, on public identifiers or on another file; or prove a factor for your own "
        )
        remedy += "rule and state it under a name of its own with --lipschitz K --because TEXT"
        raise refused(f"{step} has no factor: {REFUSED[step]}", where="--step", remedy=remedy)
    near = get_close_matches(step, [*STEPS, *REFUSED], n=1, cutoff=0.8)
    if lipschitz is None or near or not step.strip():
        remedy = f"did you mean {near[0]}? " if near else ""
        remedy += f"There are: {', '.join(STEPS)}; a step of your own needs --lipschitz K --because TEXT"
        raise wrong(f"there is no step called {step!r}", where="--step", remedy=remedy)
    if not because.strip():
        what = f"no reason is given why {step} multiplies distances by at most {lipschitz}"
        raise wrong(what, where="--because", remedy="say why one changed record changes no more records after the step")
    return _positive(lipschitz)


def _known(
    specification: Specification, step: str, known: PreparationStep, lipschitz: int | Fraction | str | None
) -> Fraction:
    """Return the true factor of a step in the list."""
    premetric = specification.input_premetric
    if premetric.name not in known.factors:
        remedy = f"specify the release with {' or '.join(known.factors)}"
        raise refused(f"{step} has no factor for {premetric.symbol}: {known.refused}", where="--step", remedy=remedy)
    given = None if lipschitz is None else _positive(lipschitz)
    if known.stated and (given is None or given.denominator != 1):
        raise wrong(f"{step} needs a whole number", where="--lipschitz", remedy=f"state {known.stated}")
    a, b = known.factors[premetric.name]
    true = a * (given or 1) + b
    if not known.stated and given is not None and given < true:
        raise refused(f"the factor of {step} is {true}, not {given}", where="--lipschitz", remedy="leave it out")
    return Fraction(true) if known.stated or given is None else given


def _positive(lipschitz: int | Fraction | str) -> Fraction:
    factor = fraction(lipschitz, where="--lipschitz")
    if factor <= 0:
        raise wrong(f"{factor} is not a factor", where="--lipschitz", remedy="write a number above 0, such as 2")
    return factor


def _stretched(specification: Specification, factor: Fraction) -> Specification:
    """Return the promise where distances may grow by ``factor``; neighbours must stay neighbours."""
    premetric, scale = specification.input_premetric, exact(factor)
    multiverse = specification.multiverse.nearest_in(scale, counts=premetric.counts)
    if premetric.is_metric:
        after = scale_budget(specification, scale, formula=f"{factor} x the budget after the step")
        return after.with_flavor(multiverse=multiverse)
    within = premetric.within or 1
    if factor > within:
        raise refused(
            f"{premetric.symbol} compares neighbours only, and the step makes them up to {factor} times as far apart",
            where="--step",
            remedy="pull back first and convert to neighbours afterwards",
        )
    if premetric.within is None or factor < 1:
        return specification
    return specification.with_flavor(
        input_premetric=replace(premetric, within=int(within // factor)), multiverse=multiverse
    )
