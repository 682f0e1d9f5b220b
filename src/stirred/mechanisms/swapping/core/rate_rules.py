"""Rates by rules on the values of records: who has which rate, and what can vary inside a stratum (R8).

A rule may name match, hold and swap variables. The budget of a stratum follows from the rates that its values *can*
meet: every hold value present with every swap value present, whether or not a record has both. That much is told by
the two invariant tables; which combinations occur is what the swap protects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import Coded, Codes, by_pieces, count, encode
from stirred.data.columns import Columns
from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.swapping.core.rates import RecordRates, Rule, VaryingRates, rate_for, text_of
from stirred.mechanisms.swapping.core.strata import Strata
from stirred.mechanisms.swapping.permutation.rates_budget import exactly_one_at_most
from stirred.spec.given_numbers import probability
from stirred.spec.problems import Problem

# Selecting exactly one record means drawing again; beyond this it would be a thousand times in a row.
MOST_EXACTLY_ONE: Final = Fraction(999, 1000)
_MOST_LISTED: Final = 12
_MOST_PROBLEMS: Final = 5
_MOST_CELLS: Final = 1 << 28

Flags = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.uint16]
Numbers = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRules:
    """Rules in order, the last that fits winning, and the rate of all other records.

    >>> rules = RateRules(rules=(({"tenure": "rented"}, Fraction(1, 2)),), rate=Fraction(1, 10))
    >>> print(rules)
    1/2 where tenure = rented; 1/10 otherwise
    >>> rules.of({"tenure": "owned"})
    Fraction(1, 10)
    """

    rules: tuple[Rule, ...]
    rate: Fraction

    def of(self, values: Mapping[str, object]) -> Fraction:
        """Return the rate of a record with these values."""
        return rate_for(values, self.rules, self.rate)

    def without(self, names: Iterable[str]) -> RateRules:
        """Return the rules that name none of these variables."""
        left = {*names}
        return replace(self, rules=tuple(rule for rule in self.rules if not left & {*rule[0]}))

    def __str__(self) -> str:
        texts = [f"{rate} where {in_words(wanted)}" for wanted, rate in self.rules]
        if len(texts) > _MOST_LISTED:
            whole = hashlib.sha256("\n".join(texts).encode()).hexdigest()
            texts = [*texts[:_MOST_LISTED], f"{len(texts) - _MOST_LISTED:,} more rules (sha256 of all {whole})"]
        return "; ".join([*texts, f"{self.rate} otherwise"])


def in_words(wanted: Mapping[str, object]) -> str:
    """Return the condition of a rule.

    >>> in_words({"size": 1, "tenure": "rented"})
    'size = 1, tenure = rented'
    """
    return ", ".join(f"{name} = {value}" for name, value in wanted.items())


def check_rule(rule: Mapping[str, Any], *, where: str) -> None:
    """Refuse a rule as it was written down if it has no rate, or is for no values."""
    if "rate" not in rule:
        raise bad_plan("a rule without a rate", where=where, remedy="add rate = '1/20'")
    probability(rule["rate"], where=where)
    if len(rule) < 2:
        raise bad_plan("a rule for nothing", where=where, remedy="name values of match, hold or swap variables")


def fits_nothing(wanted: Mapping[str, object]) -> PlanError:
    """Return the refusal of a rule that fits no record: a mistyped value would silently leave another rate."""
    return bad_plan(f"no record has {in_words(wanted)}", where="rates", remedy="check the value, or remove the rule")


def every_rule_fits(rules: Sequence[Rule], strata: Strata) -> None:
    """Refuse a rule that fits no stratum."""
    present = [dict(zip(strata.match, stratum.values, strict=True)) for stratum in strata.table] if rules else []
    for wanted, _ in rules:
        if not any(all(text_of(values[k]) == text_of(v) for k, v in wanted.items()) for values in present):
            raise fits_nothing(wanted)


def with_record_rates(
    strata: Strata, rules: RateRules, households: Columns, *, hold: Sequence[str], swap: Coded, declared: int
) -> Strata:
    """Return the strata with the rate of every record, and what can vary in each of them.

    ``hold`` are the held variables that rules name; the first ``declared`` rules must fit something.
    """
    held = encode(households, list(hold))
    codes = strata.coded.codes
    match, by_hold, by_swap = (_Side.of(coded.levels, rules.rules) for coded in (strata.coded, held, swap))
    values, table = _rate_table(rules, match, by_hold, by_swap)
    kinds = _kinds(table, [(match, codes), (by_hold, held.codes), (by_swap, swap.codes)])
    holds, swaps = (_present(codes, side, coded.codes) for side, coded in ((by_hold, held), (by_swap, swap)))
    first, case = _cases(match.pattern, holds, swaps)
    found = []
    fitting = np.zeros(len(rules.rules), dtype=np.bool_)
    for stratum in first.tolist():
        one, hold_there, swap_there = match.pattern[stratum], holds[stratum], swaps[stratum]
        fitting |= match.fits[one] & by_hold.fits[hold_there].any(axis=0) & by_swap.fits[swap_there].any(axis=0)
        found.append(_what_varies(table[one][np.ix_(hold_there, swap_there)], values))
    for (wanted, _), fits in zip(rules.rules[:declared], fitting, strict=False):
        if not fits:
            raise fits_nothing(wanted)
    both = zip(strata.table, case.tolist(), strict=True)
    whole = replace(
        strata,
        table=tuple(replace(stratum, rate=found[number][0], varying=found[number][1]) for stratum, number in both),
        by_record=RecordRates(values=values, kinds=kinds, strata=len(strata.table)),
    )
    _refuse_certainties(whole)
    return whole


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


def _rate_table(rules: RateRules, match: _Side, hold: _Side, swap: _Side) -> tuple[tuple[Fraction, ...], Kinds]:
    """Return the distinct rates, and which of them each combination of patterns has."""
    values = tuple(dict.fromkeys([rules.rate, *(rate for _, rate in rules.rules)]))
    place = {rate: number for number, rate in enumerate(values)}
    of_rule = np.array([place[rules.rate], *(place[rate] for _, rate in rules.rules)], dtype=np.uint16)
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


def _what_varies(kinds: Kinds, values: Sequence[Fraction]) -> tuple[Fraction, VaryingRates | None]:
    """Return the lowest of the rates that hold values (rows) and swap values (columns) can meet, and how they vary."""
    rates = sorted({values[kind] for kind in np.unique(kinds).tolist()})
    if len(rates) == 1:
        return rates[0], None
    by_hold, by_swap = bool((kinds == kinds[:, :1]).all()), bool((kinds == kinds[:1]).all())
    depends_on = "hold" if by_hold else "swap" if by_swap else "both"
    return rates[0], VaryingRates(lowest=rates[0], highest=rates[-1], depends_on=depends_on)


def _refuse_certainties(strata: Strata) -> None:
    """Refuse rates that promise nothing inside a stratum, or that would draw it again for ever; all at once."""
    seen: set[tuple[VaryingRates, int]] = set()
    problems = []
    for stratum in strata.table:
        if stratum.varying is None or (stratum.varying, stratum.records) in seen:
            continue
        seen.add((stratum.varying, stratum.records))
        where = in_words(dict(zip(strata.match, stratum.values, strict=True))) or "all records"
        problems += [
            Problem(what=f"{what} (stratum: {where})", where="rates", remedy=remedy)
            for what, remedy in _certainties(stratum.varying, stratum.records)
        ]
    if problems:
        raise PlanError(problems[:_MOST_PROBLEMS])


def _certainties(varying: VaryingRates, records: int) -> Iterator[tuple[str, str]]:
    if varying.lowest == 0 or varying.highest == 1:
        certain = "0 never move" if varying.lowest == 0 else "1 always move"
        yield (
            f"rates of {varying}: records with rate {certain}, beside others that may or may not, and nothing is "
            "promised",
            "choose rates between 0 and 1; to publish some records as they are, match on the variable, or use imputed",
        )
    elif _may_be_alone(varying, records):
        yield (
            f"rates of {varying} among {records:,} records may select exactly one nearly always, and then it is drawn "
            "again and again",
            "bring the lowest and the highest rate closer together",
        )


def _may_be_alone(varying: VaryingRates, records: int) -> bool:
    # With a record at rate p exactly one is selected with at most max(p, 1-p), and at one rate with at most 1/2.
    if min(max(rate, 1 - rate) for rate in (varying.lowest, varying.highest)) <= MOST_EXACTLY_ONE:
        return False
    return exactly_one_at_most(varying.lowest, varying.highest, records=records) > MOST_EXACTLY_ONE
