"""Permutation swapping at rates that differ inside a stratum (R8): its promise, its shares, its small universes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from stirred.data.codes import count
from stirred.data.microdata import Microdata, missing_column
from stirred.mechanisms.swapping.core.margins import Shares, permutation_share, varying_share
from stirred.mechanisms.swapping.core.rate_rules import RateRules
from stirred.mechanisms.swapping.core.rates import text_of
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.spec.budget import Derived
from stirred.spec.problems import Problem

# What strata.parquet calls the law: it looks at more than the number of moved records, so R18 is not for it.
LAW: Final = "varying-rate"
THEOREM: Final = "R8, rates that vary inside a stratum (docs/theory/swapping-family.md)"


def own_values(followed: Sequence[str]) -> str:
    """Return the condition that no code can see: a column made from other records voids the budget (R8e)."""
    names = ", ".join(followed)
    return (
        f"{names}, on which the rates depend, tell of a record itself: none is computed from other records, as scores "
        "of risk and flags of rareness are"
    )


def varying_policy(strata: Strata, rules: RateRules) -> Derived:
    """Return the budget as a function of the invariants: the largest over the strata, by what can vary in each."""
    decisive = strata.decisive
    here = "no stratum has anything to swap"
    if decisive is not None:
        rate = "at rate" if decisive.varying is None else "at rates of"
        here = f"here set by a stratum of {decisive.records:,} records {rate} {decisive.rate_shown}"
    formula = (
        "the largest over the strata with something to swap: the sharp bound where one rate applies; max{L_n - ln "
        "o_min, ln o_max} where rates follow the hold value or the swap value (for n < 4 as the theory page lists), "
        "and 1/2 ln(1/(1 - P1)) more where they follow both; o_min and o_max are the odds of the lowest and highest "
        f"rate that the values present in the stratum can meet. Rates: {rules}; {here}"
    )
    return Derived(formula=formula, value=strata.loss, varies=True)


def varying_shares(strata: Strata) -> Shares:
    """Return the expected share of each stratum that moves; not a number where rates follow both values.

    Where they follow one, how many records have which rate is told by an invariant table. Where they follow both it
    is told by the combinations that occur, which are protected.
    """
    records = strata.by_record
    assert records is not None
    own = np.fromiter((float(stratum.rate) for stratum in strata.table), dtype=np.float64, count=len(strata.table))
    shares = permutation_share(strata.sizes, own)
    one_side = np.array([s.varying is not None and s.varying.depends_on != "both" for s in strata.table])
    if one_side.any():
        kinds = len(records.values)
        cells = strata.coded.codes * np.uint32(kinds)
        cells += records.kinds
        counts = count(cells, groups=len(strata.table) * kinds).reshape(-1, kinds)
        rates = np.array([float(rate) for rate in records.values])
        shares[one_side] = varying_share(counts[one_side], rates)
    shares[[s.varying is not None and s.varying.depends_on == "both" for s in strata.table]] = np.nan
    return shares


def followed_problems(data: Microdata, names: Sequence[str]) -> Iterator[Problem]:
    """Yield why rates cannot depend on columns of a file, other than match and swap variables."""
    columns = data.households.columns
    for name in names:
        place = f'{data.household_source} "{name}"'
        if name in data.identifiers:
            yield Problem(
                what="an identifier cannot set a rate: it tells one record from all others",
                where=place,
                remedy="name values that records share",
            )
        elif name not in columns and name in data.person_variables:
            yield Problem(
                what="rates are those of households, and this is a variable of persons",
                where=f'{data.person_source} "{name}"',
                remedy="put what matters into a column of the household file, such as the age of its reference person",
            )
        elif name not in columns:
            yield missing_column(name, columns, where=data.household_source, role="rates")
        elif data.households[name].dtype.is_float():
            yield Problem(
                what="a rate depends on codes, and this column holds fractional numbers",
                where=place,
                remedy="turn it into classes or whole numbers first",
            )


# ---- small universes for audits ------------------------------------------------------------------------


def named(names: Sequence[str], value: Hashable) -> dict[str, Any]:
    """Return a value of one variable, or a tuple of several, by their names.

    >>> named(("tenure",), "rented"), named(("tenure", "rooms"), ("rented", "2"))
    ({'tenure': 'rented'}, {'tenure': 'rented', 'rooms': '2'})
    """
    values: Any = (value,) if len(names) == 1 else value
    return dict(zip(names, values, strict=True))


def as_named_values(letters: str, names: Sequence[str], rules: RateRules) -> dict[str, Hashable]:
    """Return letters as values of variables: first those that rules name, as far as there are letters.

    >>> from fractions import Fraction
    >>> rules = RateRules(rules=(({"tenure": "rented"}, Fraction(1, 2)),), rate=Fraction(1, 10))
    >>> as_named_values("ab", ("tenure",), rules)
    {'a': 'rented', 'b': 'b'}
    """
    wanted = [rule for rule, _ in rules.rules if {*rule} & {*names}]
    values = [*dict.fromkeys(tuple(text_of(rule.get(name, "any")) for name in names) for rule in wanted)]
    values += [(letter,) * len(names) for letter in letters[len(values) :]]
    return {letter: each if len(names) > 1 else each[0] for letter, each in zip(letters, values, strict=False)}


def fitting(rules: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rules whose values all occur among records, in whatever combination."""
    present = {(name, text_of(value)) for record in records for name, value in record.items()}
    return [rule for rule in rules if all((k, text_of(v)) in present for k, v in rule.items() if k != "rate")]
