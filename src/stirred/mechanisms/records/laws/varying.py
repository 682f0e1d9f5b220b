"""Permutation swapping at rates that depend on the values of records (R8), and imputed records that stay (R9).

A rule may name match, hold and swap variables. Rates may differ between strata if they depend on the stratum and the
invariants only (R0'), and inside a stratum if they depend on the record's own values by a rule fixed beforehand (R8). A
rate chosen from the confidential file in any other way voids the guarantee (docs/theory/conditions.md, condition 3).
The budget of a stratum follows from the rates that its values *can* meet: every hold value present with every swap
value present, whether or not a record has both. The two invariant tables say that much; which combinations occur
is what the swap protects.
"""

from __future__ import annotations

import decimal
import hashlib
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, by_pieces, count, encode
from stirred.data.columns import Columns
from stirred.data.microdata import Microdata, missing_column
from stirred.data.problems import PlanError, bad_plan, listed
from stirred.mechanisms.records.kernels.rates import Rates
from stirred.mechanisms.records.strata import (
    Positions,
    RateRange,
    Rule,
    Shares,
    Strata,
    StratumRow,
    text_of,
)
from stirred.spec.budget import Derived
from stirred.spec.exact import INFINITE, ZERO, Exact, exact, largest, ln
from stirred.spec.given_numbers import Number, probability
from stirred.spec.invariant import Named, records_of
from stirred.spec.problems import Problem
from stirred.spec.specification import Specification
from stirred.spec.swap_budget import checked_stratum, psa_sharp_epsilon

# ---- rules ----------------------------------------------------------------------------------------------

# Selecting exactly one record means drawing again; beyond this it would be a thousand times in a row.
MOST_EXACTLY_ONE: Final = Fraction(999, 1000)
_MOST_LISTED: Final = 12
_MOST_PROBLEMS: Final = 5
_MOST_CELLS: Final = 1 << 28

Flags = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.uint16]
Numbers = npt.NDArray[np.intp]


def rules_in_words(rules: Sequence[Rule], rate: Fraction) -> str:
    """Return rules in order, the last that fits winning, and the rate of all other records.

    >>> rules_in_words([({"tenure": "rented"}, Fraction(1, 2))], Fraction(1, 10))
    '1/2 where tenure = rented; 1/10 otherwise'
    """
    texts = [f"{rate} where {in_words(wanted)}" for wanted, rate in rules]
    if len(texts) > _MOST_LISTED:
        whole = hashlib.sha256("\n".join(texts).encode()).hexdigest()
        texts = [*texts[:_MOST_LISTED], f"{len(texts) - _MOST_LISTED:,} more rules (sha256 of all {whole})"]
    return "; ".join([*texts, f"{rate} otherwise"])


def in_words(wanted: Mapping[str, object]) -> str:
    """Return the condition of a rule.

    >>> in_words({"size": 1, "tenure": "rented"})
    'size = 1, tenure = rented'
    """
    return ", ".join(f"{name} = {value}" for name, value in wanted.items())


def declared_rules(
    rates: Sequence[Mapping[str, Any]], *, allowed: Sequence[str] | None, only: str, remedy: str
) -> tuple[Rule, ...]:
    """Return rules as they were written down, with exact rates; refuse one that names more than is ``allowed``.

    ``only`` says in words what is allowed. Where ``allowed`` is None, names are checked when the file is known.
    """
    found = []
    for place, rule in enumerate(rates, start=1):
        where, wanted = f"rates entry {place}", {name: value for name, value in rule.items() if name != "rate"}
        if "rate" not in rule:
            raise bad_plan("a rule without a rate", where=where, remedy="add rate = '1/20'")
        rate = probability(rule["rate"], where=where)
        if not wanted:
            raise bad_plan("a rule for nothing", where=where, remedy="name values of match, hold or swap variables")
        if other := [name for name in wanted if allowed is not None and name not in allowed]:
            raise bad_plan(f"{only} only, not on {listed(other)}", where=where, remedy=remedy)
        found.append((wanted, rate))
    return tuple(found)


def with_rates(
    strata: Strata,
    rules: Sequence[Rule],
    rate: Fraction,
    *,
    households: Columns,
    swap: Coded | None,
    followed: Sequence[str],
    declared: int,
) -> Strata:
    """Return the strata with the rates of each, and with those of its records where they follow hold or swap values.

    ``followed`` are the variables besides match that rules name; the first ``declared`` rules must fit a record.
    """
    places = () if swap is None else swap.levels.columns
    held = encode(households, [name for name in followed if name not in places])
    if swap is None or not {*followed} & {*places}:
        swap = encode(households, [])
    codes = strata.coded.codes
    match, by_hold, by_swap = (_Side.of(coded.levels, rules) for coded in (strata.coded, held, swap))
    values, table = _rate_table(rules, rate, match, by_hold, by_swap)
    holds, swaps = (_present(codes, side, coded.codes) for side, coded in ((by_hold, held), (by_swap, swap)))
    first, case = _cases(match.pattern, holds, swaps)
    found = []
    fitting = np.zeros(len(rules), dtype=np.bool_)
    for stratum in first.tolist():
        one, hold_there, swap_there = match.pattern[stratum], holds[stratum], swaps[stratum]
        fitting |= match.fits[one] & by_hold.fits[hold_there].any(axis=0) & by_swap.fits[swap_there].any(axis=0)
        found.append(_what_varies(table[one][np.ix_(hold_there, swap_there)], values))
    for (wanted, _), fits in zip(rules[:declared], fitting, strict=False):
        if not fits:
            raise bad_plan(
                f"no record has {in_words(wanted)}",  # a mistyped value would silently leave another rate
                where="rates",
                remedy="check the value, or remove the rule",
            )
    known = {each: number for number, each in enumerate(dict.fromkeys(found))}
    which = np.array([known[each] for each in found], dtype=np.uint32)[case]
    strata = replace(strata, rates=(*known,), which=which)
    if not followed:
        return strata
    kinds = _kinds(table, [(match, codes), (by_hold, held.codes), (by_swap, swap.codes)])
    strata = replace(strata, by_record=Rates(values=values, index=kinds, strata=strata.count, by_record=True))
    _refuse_certainties(strata)
    return strata


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """Match, hold or swap values by the rules they fit: ``pattern[level]`` numbers the rows of ``fits``."""

    pattern: Numbers
    fits: Flags  # patterns x rules: whether the rule asks for nothing else of these variables

    @property
    def patterns(self) -> int:
        return self.fits.shape[0]

    @classmethod
    def of(cls, levels: pl.DataFrame, rules: Sequence[Rule]) -> _Side:
        parts = [{name: text_of(wanted[name]) for name in levels.columns if name in wanted} for wanted, _ in rules]
        distinct = [dict(part) for part in dict.fromkeys(tuple(part.items()) for part in parts)]
        meets = np.ones((max(levels.height, 1), len(distinct)), dtype=np.bool_)
        for name in {name for part in distinct for name in part}:
            column = encode(levels, [name])
            # As text, like every rule; a missing value fits none.
            texts = np.array([None if v is None else text_of(v) for v in column.levels[name].to_list()], dtype=object)
            for number, part in enumerate(distinct):
                if name in part:
                    meets[:, number] &= (texts == part[name])[column.codes]
        rows, pattern = np.unique(meets, axis=0, return_inverse=True)
        return cls(pattern=pattern.reshape(-1), fits=rows[:, [distinct.index(part) for part in parts]])


def _rate_table(
    rules: Sequence[Rule], rate: Fraction, match: _Side, hold: _Side, swap: _Side
) -> tuple[tuple[Fraction, ...], Kinds]:
    """Return the distinct rates, and which of them each combination of patterns has."""
    rates = [rate, *(own for _, own in rules)]
    values = tuple(dict.fromkeys(rates))
    of_rule = np.array([values.index(own) for own in rates], dtype=np.uint16)
    table = np.zeros((match.patterns, hold.patterns, swap.patterns), dtype=np.uint16)
    for m, h, s in product(range(match.patterns), range(hold.patterns), range(swap.patterns)):
        fitting = np.flatnonzero(match.fits[m] & hold.fits[h] & swap.fits[s])
        table[m, h, s] = of_rule[fitting[-1] + 1 if fitting.size else 0]
    return values, table


def _kinds(table: Kinds, sides: Sequence[tuple[_Side, Codes]]) -> Kinds:
    """Return the kind of every record: the entry of ``table`` for the patterns of its codes."""
    steps = [stride // table.itemsize for stride in table.strides]
    places = [(side.pattern * step, codes) for (side, codes), step in zip(sides, steps, strict=True)]
    kinds = np.empty(sides[0][1].size, dtype=np.uint16)

    def assign(rows: slice) -> None:
        cells = sum(place.take(codes[rows]) for place, codes in places if place.size > 1)
        kinds[rows] = table.reshape(-1).take(cells)

    by_pieces(assign, kinds.size)
    return kinds


def _present(stratum: Codes, side: _Side, codes: Codes) -> Flags:
    """Say of each stratum which patterns its records have."""
    strata = int(stratum.max(initial=0)) + 1
    if side.patterns == 1:
        return np.ones((strata, 1), dtype=np.bool_)
    if strata * side.patterns > _MOST_CELLS:
        raise bad_plan(
            f"rules that tell {side.patterns:,} kinds of values apart in {strata:,} strata are too many to count",
            where="rates",
            remedy="give values that share a rate one code, or match on fewer variables",
        )
    cells = np.empty(stratum.size, dtype=np.uint32)

    def combine(rows: slice) -> None:
        np.multiply(stratum[rows], np.uint32(side.patterns), out=cells[rows])
        cells[rows] += side.pattern.astype(np.uint32).take(codes[rows])

    by_pieces(combine, stratum.size)
    return (count(cells, groups=strata * side.patterns) > 0).reshape(strata, side.patterns)


def _cases(pattern: Numbers, holds: Flags, swaps: Flags) -> tuple[Numbers, Numbers]:
    """Return one stratum of each case that differs in pattern or in what is present, and the case of each stratum."""
    parts = [pattern.astype(np.uint32)[:, None].view(np.uint8), np.packbits(holds, axis=1), np.packbits(swaps, axis=1)]
    rows = np.ascontiguousarray(np.hstack(parts))
    _, first, case = np.unique(rows.view(f"V{rows.shape[1]}").reshape(-1), return_index=True, return_inverse=True)
    return first, case


def _what_varies(kinds: Kinds, values: Sequence[Fraction]) -> RateRange:
    """Return the rates that hold values (rows) and swap values (columns) can meet, and what they follow."""
    rates = sorted({values[kind] for kind in np.unique(kinds).tolist()})
    if len(rates) == 1:
        return RateRange.one(rates[0])
    by_hold, by_swap = bool((kinds == kinds[:, :1]).all()), bool((kinds == kinds[:1]).all())
    depends_on = "hold" if by_hold else "swap" if by_swap else "both"
    return RateRange(rates[0], rates[-1], depends_on)


def _refuse_certainties(strata: Strata) -> None:
    """Refuse rates that promise nothing inside a stratum, or that would draw it again for ever; all at once."""
    varies = np.array([each.varies for each in strata.rates])[strata.which]
    kinds = pl.DataFrame({"which": strata.which[varies], "records": strata.records[varies]})
    first = np.flatnonzero(varies)[kinds.select(pl.struct("which", "records").is_first_distinct()).to_series()]
    problems = []
    for stratum in (strata[number] for number in first.tolist()):
        varying, records = stratum.rates, stratum.records
        if varying.lowest == 0 or varying.highest == 1:
            certain = "0 never move" if varying.lowest == 0 else "1 always move"
            what = (
                f"rates of {varying}: records with rate {certain}, beside others that may or may not, and nothing is "
                "promised"
            )
            remedy = (
                "choose rates between 0 and 1; to publish some records as they are, match on the variable, or use "
                "imputed"
            )
        # With a record at rate p exactly one is selected with at most max(p, 1-p), and at one rate with at most 1/2.
        elif (
            min(max(rate, 1 - rate) for rate in (varying.lowest, varying.highest)) > MOST_EXACTLY_ONE
            and exactly_one_at_most(varying.lowest, varying.highest, records=records) > MOST_EXACTLY_ONE
        ):
            what = (
                f"rates of {varying} among {records:,} records may select exactly one nearly always, and then it is "
                "drawn again and again"
            )
            remedy = "bring the lowest and the highest rate closer together"
        else:
            continue
        where = in_words(dict(zip(strata.match, stratum.values, strict=True))) or "all records"
        problems.append(Problem(what=f"{what} (stratum: {where})", where="rates", remedy=remedy))
    if problems:
        raise PlanError(problems[:_MOST_PROBLEMS])


# ---- the budget -------------------------------------------------------------------------------------------

_EXACT_POWERS: Final = 2_000
_UP: Final = decimal.Context(prec=60, rounding=decimal.ROUND_CEILING, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)


def varying_rate_epsilon(lowest: Number, highest: Number, *, stratum: int, depends_on: str = "hold") -> Exact:
    """Return the loss of permutation swapping on a stratum whose records have rates between two (R8).

    ``depends_on`` says what a record's rate is a function of: its ``hold`` value, its ``swap`` value or
    ``both``. Rates by ``stratum`` are constant inside each and cost no more than permutation swapping. Rates that
    depend on *other* records have no such budget (R8e), and no plan takes them.

    >>> varying_rate_epsilon("1/10", "1/2", stratum=4)
    Exact('ln(27)')
    """
    low, high = probability(lowest, where="lowest rate"), probability(highest, where="highest rate")
    if checked_stratum(stratum) == 0:
        return ZERO
    if low == 0 or high == 1:
        return INFINITE  # R8f: a rate of 0 shared by records that can differ, and R2
    if depends_on == "stratum":
        return largest([psa_sharp_epsilon(rate, stratum=stratum) for rate in {low, high}])
    if depends_on == "both":
        return _both(low, high, stratum)
    return _one_side(low, high, stratum)


def _one_side(low: Fraction, high: Fraction, n: int) -> Exact:
    """R8 b and c: the rate is a function of the hold value alone, or of the swap value alone."""
    a, b = ln(high / (1 - high)), -ln(low / (1 - low))
    if n == 2:
        return largest([a, b])
    if n == 3:
        return largest([a, (ln(2) + b) / 2, ln(2) / 3 + b, (a + b) / 2])
    return largest([a, _half_log(n) + b])


@lru_cache(maxsize=1 << 14)  # a plan asks for the loss of every size of its strata, more than once
def _both(low: Fraction, high: Fraction, n: int) -> Exact:
    """R8 d: the rate is a function of the record; the normaliser may change by 1/(1 - P1)."""
    a, b, m, two = ln(high / (1 - high)), -ln(low / (1 - low)), ln(high / low), ln(2)
    if n == 3:
        moves = [
            a, b + two / 3, (a + b) / 2, (a + b + m) / 3, (two + b + m) / 2, (two + b + 2 * m) / 3,
            (a - two + m) / 2, (a - two + 2 * m) / 3, m,
        ]  # fmt: skip
    else:
        moves = [a, b + (_half_log(n) if n > 3 else ZERO)]
    other = 1 - _short(exactly_one_at_most(low, high, records=n))
    return largest(moves) - ln(exact(other)) / 2 if other > 0 else INFINITE


def _short(chance: Fraction) -> Fraction:
    """Return a chance of at most 20 digits, rounded up where it had more: the loss is published in full."""
    return chance if chance.denominator <= 10**20 else Fraction(math.ceil(chance * 10**20), 10**20)


def _half_log(n: int) -> Exact:
    """Return L_n: the sharp budget (R1) at odds 1, where its other branch is 0."""
    return psa_sharp_epsilon(Fraction(1, 2), stratum=n)


def exactly_one_at_most(low: Fraction, high: Fraction, *, records: int) -> Fraction:
    """Return the largest chance, over all rates between two, that exactly one record is selected.

    It is affine in each rate, so each is at an end: j records at ``low`` and the others at ``high``. Going
    from j to j + 1 changes it by a factor that falls with j, so a bisection finds the largest. Rounded up
    for large strata.

    >>> exactly_one_at_most(Fraction(1, 2), Fraction(1, 2), records=2)
    Fraction(1, 2)
    """
    stay_low, stay_high = 1 - low, 1 - high
    odds_low, odds_high = low / stay_low, high / stay_high

    def falls(j: int) -> bool:
        one_more = (j + 1) * odds_low + (records - j - 1) * odds_high
        return stay_low * one_more <= stay_high * (j * odds_low + (records - j) * odds_high)

    first, last = 0, records
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if falls(middle) else (middle + 1, last)
    chances = first * odds_low + (records - first) * odds_high
    return _power(stay_low, first) * _power(stay_high, records - first) * chances


def _power(base: Fraction, exponent: int) -> Fraction:
    """Return a power, or a fraction not below it where its digits would grow without end."""
    if exponent <= _EXACT_POWERS // max(1, base.denominator.bit_length()):
        return base**exponent
    square = _UP.divide(Decimal(base.numerator), Decimal(base.denominator))
    result = Decimal(1)
    while exponent:
        if exponent & 1:
            result = _UP.multiply(result, square)
        square, exponent = _UP.multiply(square, square), exponent >> 1
    # An underflow to the smallest number is still not below; as a fraction it would be enormous.
    return Fraction(max(result, Decimal("1e-300")))


# What strata.parquet calls the law: it looks at more than the number of moved records, so R18 is not for it.
LAW: Final = "varying-rate"
THEOREM: Final = "R8, rates that vary inside a stratum (docs/theory/swapping-family.md)"


def varying_policy(strata: Strata, rules: Sequence[Rule], rate: Fraction) -> Derived:
    """Return the budget as a function of the invariants: the largest over the strata, by what can vary in each."""
    decisive = decisive_stratum(strata)
    here = "no stratum has anything to swap"
    if decisive is not None:
        at = "at rates of" if decisive.rates.varies else "at rate"
        here = f"here set by a stratum of {decisive.records:,} records {at} {decisive.rates}"
    formula = (
        "the largest over the strata with something to swap: the sharp bound where one rate applies; max{L_n - ln "
        "o_min, ln o_max} where rates follow the hold value or the swap value (for n < 4 as the theory page lists), "
        "and 1/2 ln(1/(1 - P1)) more where they follow both; o_min and o_max are the odds of the lowest and highest "
        f"rate that the values present in the stratum can meet. Rates: {rules_in_words(rules, rate)}; {here}"
    )
    return Derived(formula=formula, value=largest([ZERO, *map(stratum_epsilon, _worst(strata))]), varies=True)


def varying_shares(strata: Strata) -> Shares:
    """Return the expected share of each stratum that moves; not a number where rates follow both values.

    Where they follow one, an invariant table says how many records have which rate. Where they follow both, only the
    combinations that occur say it, and these are protected.
    """
    shares = permutation_share(strata.records, np.array([float(each.lowest) for each in strata.rates])[strata.which])
    follows, records = np.array([each.depends_on for each in strata.rates])[strata.which], strata.by_record
    one_side = (follows == "hold") | (follows == "swap")
    if records is not None and records.index is not None and one_side.any():
        kinds = len(records.values)
        cells = strata.coded.codes * np.uint32(kinds)
        cells += records.index
        counts = count(cells, groups=strata.count * kinds).reshape(-1, kinds)
        rates = np.array([float(rate) for rate in records.values])
        shares[one_side] = varying_share(counts[one_side], rates)
    shares[follows == "both"] = np.nan
    return shares


def stratum_epsilon(stratum: StratumRow) -> Exact:
    """Return the loss of a stratum: 0 where there is nothing to swap."""
    size, (lowest, highest, depends_on) = stratum.records if stratum.live else 0, stratum.rates
    return varying_rate_epsilon(lowest, highest, stratum=size, depends_on=depends_on)


def _worst(strata: Strata) -> list[StratumRow]:
    """Return live strata among which is the one that loses most: the largest at each rate."""
    found: list[int] = []
    for kind, rates in enumerate(strata.rates):
        own = np.flatnonzero(strata.live & (strata.which == kind))
        # The bound grows with the size, but where rates follow both values: there all sizes count (R8d).
        if rates.depends_on == "both":
            found += own[np.unique(strata.records[own], return_index=True)[1]].tolist()
        elif own.size:
            found.append(int(own[np.argmax(strata.records[own])]))
    return [strata[stratum] for stratum in sorted(found)]


def decisive_stratum(strata: Strata) -> StratumRow | None:
    """Return the stratum that sets the loss: the one whose size and rates lose most."""
    return max(_worst(strata), key=lambda each: (float(stratum_epsilon(each)), each.records), default=None)


def permutation_share(records: Shares | Positions, rate: Shares) -> Shares:
    """Return the share of records that get another record's swap values in permutation swapping.

    With the redraw of Algorithm 1 this is p(1-(1-p)^(n-1)) / (1 - np(1-p)^(n-1)), not the numerator
    alone as section 3.3 has it (swapping theory R3.1).

    >>> permutation_share(np.array([2.0, 3.0]), np.array([0.5, 0.5])).tolist()
    [0.5, 0.6]
    """
    stay = (1 - rate) ** (records - 1)
    some = (records > 1) & (rate > 0)
    return np.divide(rate * (1 - stay), 1 - records * rate * stay, out=np.zeros_like(stay), where=some)


def varying_share(counts: Positions, rates: Shares) -> Shares:
    """Return the same where records have different rates: ``counts[stratum, kind]`` of them have ``rates[kind]``.

    The expected number selected, given that it is not one: (E[k] - P1)/(1 - P1).

    >>> varying_share(np.array([[1, 1], [2, 0]]), np.array([0.5, 0.25])).round(6).tolist()
    [0.25, 0.5]
    """
    has = counts > 0
    inside = np.where(has, rates, 0.0)  # a rate of 1 that no record has must not spoil the sums
    none = np.exp((counts * np.log1p(-inside)).sum(axis=1))
    one = none * (counts * inside / (1 - inside)).sum(axis=1)
    return ((counts * inside).sum(axis=1) - one) / (1 - one) / counts.sum(axis=1)


def followed_problems(data: Microdata, names: Sequence[str]) -> Iterator[Problem]:
    """Yield why rates cannot depend on columns of a file, other than match and swap variables."""
    columns = data.households.columns
    for name in names:
        source = data.household_source
        if name in data.identifiers:
            what = "an identifier cannot set a rate: it tells one record from all others"
            remedy = "name values that records share"
        elif name not in columns and name in data.person_variables:
            source = data.person_source
            what = "rates are those of households, and this is a variable of persons"
            remedy = "put what matters into a column of the household file, such as the age of its reference person"
        elif name not in columns:
            yield missing_column(name, columns, where=source, role="rates")
            continue
        elif data.households[name].dtype.is_float():
            what = "a rate depends on codes, and this column holds fractional numbers"
            remedy = "turn it into classes or whole numbers first"
        else:
            continue
        yield Problem(what=what, where=f'{source} "{name}"', remedy=remedy)


# ---- small universes for audits ------------------------------------------------------------------------


def named(names: Sequence[str], value: Hashable) -> dict[str, Any]:
    """Return a value of one variable, or a tuple of several, by their names.

    >>> named(("tenure",), "rented"), named(("tenure", "rooms"), ("rented", "2"))
    ({'tenure': 'rented'}, {'tenure': 'rented', 'rooms': '2'})
    """
    values: Any = (value,) if len(names) == 1 else value
    return dict(zip(names, values, strict=True))


def as_named_values(letters: str, names: Sequence[str], rules: Sequence[Rule]) -> dict[str, Hashable]:
    """Return letters as values of variables: first those that rules name, as far as there are letters.

    >>> as_named_values("ab", ("tenure",), [({"tenure": "rented"}, Fraction(1, 2))])
    {'a': 'rented', 'b': 'b'}
    """
    wanted = [rule for rule, _ in rules if {*rule} & {*names}]
    values = [*dict.fromkeys(tuple(text_of(rule.get(name, "any")) for name in names) for rule in wanted)]
    values += [(letter,) * len(names) for letter in letters[len(values) :]]
    return {letter: each if len(names) > 1 else each[0] for letter, each in zip(letters, values, strict=False)}


def fitting(rules: Sequence[Rule], records: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """Return the rules whose values all occur among records, in whatever combination."""
    present = {(name, text_of(value)) for record in records for name, value in record.items()}
    return [rule for rule in rules if all((name, text_of(value)) in present for name, value in rule[0].items())]


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
