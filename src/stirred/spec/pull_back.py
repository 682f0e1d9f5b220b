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

from stirred.spec.convert import change_distance, scale_budget
from stirred.spec.derivation import Derivation, stepped
from stirred.spec.exact import exact
from stirred.spec.given_numbers import fraction
from stirred.spec.invariant import ALL
from stirred.spec.problems import refused, wrong
from stirred.spec.specification import Specification

RECODE: Final = "recode"
_UNBOUNDED: Final = ("d_SymDiff", "d_InsDel")
_ORDERED: Final = {"d_HamS": "d_Ham", "d_SymDiff": "d_InsDel"}
_IDENTIFIED: Final = dict.fromkeys(("d_HamS", "d_Ham", *_UNBOUNDED), "d_Ham")
_SIZE: Final = "it changes the number of records, and this distance never compares files of different size"


@dataclass(frozen=True, slots=True)
class Preparation:
    """A step that was done to the file before the mechanism saw it, and what it does to distances.

    ``factors`` has for each distance of the release the factor ``a k + b``, where ``k`` is stated by the caller: the
    largest number of records that one record becomes, or fixes. ``before`` names the distance of the promise about the
    file before, where it is another one. Where there is no factor, ``refused`` says why.
    """

    words: str
    factors: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    stated: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    assuming: str = "the rule was fixed beforehand, without looking at this file"
    people: bool = False
    refused: str = ""


def _each(names: Mapping[str, str] | tuple[str, ...], a: int, b: int) -> dict[str, tuple[int, int]]:
    return dict.fromkeys(names, (a, b))


# Every finite factor is attained on small files, which the tests list; those of refused steps grow with the file.
STEPS: Final = {
    RECODE: Preparation("recoded record by record", _each(_IDENTIFIED, 0, 1)),
    "edit": Preparation("edited record by record", _each(_IDENTIFIED, 0, 1)),
    "clip": Preparation("clipped to limits fixed beforehand", _each(_IDENTIFIED, 0, 1)),
    "forget-order": Preparation(
        "put into no order",
        _each(tuple(_ORDERED), 0, 1),
        before=_ORDERED,
        refused="a file in no order has no positions to compare",
    ),
    "filter": Preparation("filtered record by record", _each(_UNBOUNDED, 0, 1), refused=_SIZE),
    "deduplicate": Preparation(
        "rid of records that stood in it twice", {"d_SymDiff": (0, 1), "d_InsDel": (0, 2)}, refused=_SIZE
    ),
    "join": Preparation(
        "joined with a public table",
        _each(_UNBOUNDED, 1, 0),
        stated="the largest number of rows that one record can match",
        refused=_SIZE,
    ),
    "impute-copies": Preparation(
        "completed by imputation, donors fixed by public identifiers",
        _each(_IDENTIFIED, 1, 0),
        stated="1 + the largest number of copies of one record",
        before=_IDENTIFIED,
        assuming="who is a donor for whom was fixed by public identifiers",
        people=True,
    ),
    "impute-by-position": Preparation(
        "completed by imputation, donors fixed by position",
        {"d_Ham": (1, 0)},
        stated="1 + the largest number of copies of one record",
        assuming="who is a donor for whom was fixed by position",
        people=True,
        refused="files that differ only in their order are no distance apart, and have other donors",
    ),
    "clip-at-rank": Preparation(
        "clipped at the value of one rank, counted from the top",
        {**_each(("d_HamS", "d_Ham"), 1, 0), **_each(_UNBOUNDED, 2, -1)},
        stated="the rank, such as 2 for the second largest value",
        assuming="the rank was fixed beforehand; the value is that of this file",
    ),
    "impute-nearest": Preparation("", refused="one changed record may be the donor of all others, n of them"),
    "impute-sequential": Preparation("", refused="one changed record may be the donor of all others, n of them"),
    "impute-mean": Preparation("", refused="every record moves the mean, and with it all values put in, n of them"),
    "link": Preparation(
        "", refused="one record can join two clusters into one (3 records on a line), and there is no bound in general"
    ),
    "self-join": Preparation("", refused="one of n records is in up to 2n - 1 pairs"),
    "rank": Preparation("", refused="one record moves the ranks of all others, n of them"),
    "clip-at-median": Preparation("", refused="the median of n records moves up to (n + 1)/2 clipped values"),
    "clip-at-quantile": Preparation("", refused="a quantile of this file moves a share of all clipped values"),
}  # fmt: skip


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
    known, start = STEPS.get(step), Derivation(specification=specification)
    if known is not None and specification.input_premetric.name in known.before:
        start = change_distance(specification, to=known.before[specification.input_premetric.name])
    factor = _own(step, lipschitz, because) if known is None else _known(specification, step, known, lipschitz)
    words = f"changed by {step}" if known is None else known.words
    after = _stretched(start.specification, factor)
    premetric, domain = after.input_premetric, after.domain
    if known is not None and known.people:
        after = after.with_flavor(input_premetric=replace(premetric, post_imputation=False))
    done = ((ALL, words),) if prepared is None else prepared
    reached = stage or (domain.stage if prepared is not None else f"it was before the file was {words}")
    before = replace(domain, prepared=(*done, *domain.prepared), stage=reached)
    single = known is not None and known.factors == STEPS[RECODE].factors and not known.before
    return start.then(
        stepped(
            start.specification,
            after.with_flavor(domain=before),
            action=f"pull back along the preparation ({before.prepared_in_words}), factor {factor}",
            theorem="pull-back along a function of single records, factor 1 (Proposition 2.4.15)"
            if single
            else f"pull-back along a step that multiplies distances by at most {factor} (Proposition 2.4.15)",
            assuming=because
            or ("the preparation was fixed beforehand, without looking at this file" if known is None or single
                else known.assuming),
        )
    )  # fmt: skip


def _own(step: str, lipschitz: int | Fraction | str | None, because: str) -> Fraction:
    """Return the stated factor of a step that is not in the list."""
    near = get_close_matches(step, STEPS, n=1, cutoff=0.8)
    if lipschitz is None or near or not step.strip():
        raise wrong(
            f"there is no step called {step!r}",
            where="--step",
            remedy=f"{f'did you mean {near[0]}? ' if near else ''}There are: {', '.join(STEPS)}; a step of your own "
            "needs --lipschitz K --because TEXT",
        )
    if not because.strip():
        raise wrong(
            f"no reason is given why {step} multiplies distances by at most {lipschitz}",
            where="--because",
            remedy="say why one changed record changes no more records after the step",
        )
    return _positive(lipschitz)


def _known(
    specification: Specification, step: str, known: Preparation, lipschitz: int | Fraction | str | None
) -> Fraction:
    """Return the true factor of a step in the list."""
    name = specification.input_premetric.name
    if name not in known.factors:
        raise refused(
            f"{step} has no factor for {specification.input_premetric.symbol}: "
            + (known.refused or "nothing is known about this distance"),
            where="--step",
            remedy=_remedy(known),
        )
    if known.stated and lipschitz is None:
        raise wrong(f"{step} needs a number", where="--lipschitz", remedy=f"state {known.stated}")
    given = Fraction(1) if lipschitz is None else _positive(lipschitz)
    if known.stated and (given.denominator != 1):
        raise wrong(f"{given} is not a number of records", where="--lipschitz", remedy=f"state {known.stated}")
    a, b = known.factors[name]
    true = a * given + b
    if not known.stated and lipschitz is not None and given < true:
        raise refused(f"the factor of {step} is {true}, not {given}", where="--lipschitz", remedy="leave it out")
    return true if known.stated or lipschitz is None else given


def _remedy(known: Preparation) -> str:
    if known.factors:
        return f"specify the release with {' or '.join(known.factors)}"
    return (
        "use a rule fixed beforehand, on public identifiers or on another file; or prove a factor for your own rule "
        "and state it under a name of its own with --lipschitz K --because TEXT"
    )


def _positive(lipschitz: int | Fraction | str) -> Fraction:
    factor = fraction(lipschitz, where="--lipschitz")
    if factor <= 0:
        raise wrong(f"{factor} is not a factor", where="--lipschitz", remedy="write a number above 0, such as 2")
    return factor


def _stretched(specification: Specification, factor: Fraction) -> Specification:
    """Return the promise where distances may grow by ``factor``; neighbours must stay neighbours."""
    premetric, scale = specification.input_premetric, exact(factor)
    multiverse = specification.multiverse.nearest_in(scale)
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
    return specification.with_flavor(input_premetric=replace(premetric, within=int(within // factor)))
