"""`stirred spec budget`: quick sums with budgets, each with the companions that give it meaning."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Final, Literal

from pydantic import BaseModel

from stirred.cli.option_words import told_by_options
from stirred.cli.options import Text, option
from stirred.cli.output import exactly
from stirred.mechanisms.groups import FactRows, Outcome, OutputBlock, Title
from stirred.spec.convert_output import zcdp_to_epsilon
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import loss, probability
from stirred.spec.number_text import small
from stirred.spec.problems import wrong
from stirred.spec.swap_budget import (
    bounded_psa_epsilon,
    psa_existential_bound,
    psa_rates_for,
    rate_not_above,
    smallest_psa_epsilon,
    smallest_psa_rate,
)

_MOST_RECORDS: Final = 10**15
_RESULT: Final = {"paper": "the paper's bound", "sharp": "the sharp bound"}
_COMPANIONS: Final = (
    ("who", "any file with the same variables"),
    ("where", "only between versions that agree on the match x swap table and on the table of all hold variables"),
    ("what", "one record of the kind that is swapped (d_HamS); such versions are at least 2 records apart"),
    ("how", "D_Mult: the logarithm of the factor by which the odds of any output change"),
)
_NEIGHBOURS_ONLY: Final = (
    "This is for two files that differ in one unit; files further apart lose more than in proportion. The number means "
    "something only with the invariants and the unit of its release: `stirred spec show NAME --explain` writes them "
    "out."
)


class SpecBudgetOptions(BaseModel):
    """`stirred spec budget`."""

    stratum: int | None = option("Of a swap: records in the largest stratum that has something to swap.")
    rate: Text = option("With --stratum: the swap rate, exactly: 1/20, 0.05 or 5%.", form="RATE")
    epsilon: Text = option("With --stratum: target epsilon; gives both rates that reach it.", form="NUMBER")
    bound: Literal["paper", "sharp"] = option("As published, or never above it, as specifications carry it.", "paper")
    rho2: Text = option("Budget of zero-concentrated DP, the customary rho (our rho squared).", form="NUMBER")
    delta: Text = option("With --rho2: delta of the approximate budget, such as 1e-10.", form="NUMBER")
    copies: int | None = option("With --rho2: records that hold one person's answers after imputation.")
    method: Literal["bun-steinke", "cks"] = option("The Census Bureau's way, or the tighter one.", "bun-steinke")


def budget(options: SpecBudgetOptions, _: Any) -> Outcome:
    """Quick sums: epsilon of a swap, its rates, or zCDP as epsilon.

    With --stratum and a rate or epsilon; or with --rho2 and --delta, for two files that differ in one unit. With
    --copies for a person whose answers stand in several records, by group privacy.
    """
    of_swap, given = ("stratum", "rate", "epsilon", "bound"), options.model_fields_set
    wanted = of_swap if options.stratum is not None else ("rho2", "delta", "copies", "method")
    if (options.stratum is None) == (options.rho2 is None):
        what, remedy = "give either --stratum or --rho2", "such as --stratum 1000 --rate 5%, or --rho2 1 --delta 1e-10"
        raise wrong(what, where="stirred spec budget", remedy=remedy)
    for name in given:
        if name not in wanted:
            raise wrong("this option has no effect here", where=f"--{name}", remedy="leave it out, or see --help")
    with told_by_options():
        if options.stratum is None:
            return _converted(options)
        if (options.rate is None) == (options.epsilon is None):
            raise wrong("give either --rate or --epsilon", where="stirred spec budget", remedy="such as --rate 5%")
        if options.stratum > _MOST_RECORDS:
            raise wrong(f"no file has more than {_MOST_RECORDS:,} records", where="--stratum", remedy="write a number")
        if options.rate is not None:
            return _at_rate(options, options.stratum, options.rate)
        return _at_target(options, options.stratum, options.epsilon or "")


# ---- swaps ------------------------------------------------------------------------------------------------------


def _at_rate(options: SpecBudgetOptions, stratum: int, rate: str) -> Outcome:
    p, bound = probability(rate, where="--rate"), options.bound
    found = bounded_psa_epsilon(p, largest_stratum=stratum, bound=bound)
    exists = psa_existential_bound(p, largest_stratum=stratum)
    least, best = smallest_psa_epsilon(stratum, bound=bound), smallest_psa_rate(stratum, bound=bound)
    values = {
        "stratum": stratum,
        "bound": bound,
        "rate": float(p),
        "rate_exact": str(p),
        **exactly(epsilon=found, smallest_epsilon=least, smallest_rate=best),
        "existential_bound": rounded_down(exists),
        "existential_bound_exact": str(exists),
        "relative_to": dict(_COMPANIONS),
    }

    def shown() -> Iterator[OutputBlock]:
        yield Title(f"Permutation swapping at rate {p}, largest stratum {stratum:,}")
        how_much = f"epsilon {found.shown()} ({_RESULT[bound]}; exactly {found})"
        yield from (FactRows([*_COMPANIONS, ("how much", how_much)]), "")
        if found.is_infinite:
            yield "Nothing is promised: at this rate an output can give the file away."
            if p == 1:
                yield (
                    "At rate 1 infinity is the bound for the size alone. The loss is finite for a file in which no "
                    "stratum has both a hold value and a swap value that occur once; `stirred plan` looks at yours."
                )
        elif not stratum:
            yield (
                "No stratum has anything to swap: the file is published as it is, and a loss of 0 is not protection."
            )
        else:
            smallest = f"no rate gives less than epsilon {_shown_down(least, 3)}, reached near {_percent(best)}"
            tight = f"some file with this largest stratum loses at least {_shown_down(exists)}; that says nothing "
            yield FactRows([("smallest", smallest), ("tightness", f"{tight}about yours")])

    return Outcome(values=values, blocks=shown())


def _at_target(options: SpecBudgetOptions, stratum: int, epsilon: str) -> Outcome:
    target, bound = loss(epsilon, where="--epsilon"), options.bound
    rates = psa_rates_for(target, largest_stratum=stratum, bound=bound)
    usable = [rate_not_above(target, largest_stratum=stratum, high=high, bound=bound) for high in (False, True)]
    values = {
        "stratum": stratum,
        "bound": bound,
        **exactly(epsilon=target),
        "rates": [float(rates.low), float(rates.high)],
        "rates_exact": [str(rates.low), str(rates.high)],
        "usable_rates": [str(rate) for rate in usable],
        "relative_to": dict(_COMPANIONS),
    }

    def shown() -> Iterator[OutputBlock]:
        yield Title(f"Permutation swapping with epsilon {target.shown()}, largest stratum {stratum:,}")
        yield from (FactRows([*_COMPANIONS, ("how much", f"epsilon {target.shown()} ({_RESULT[bound]})")]), "")
        if target.is_infinite:
            yield "Nothing is promised, and every rate will do: ask for a finite epsilon to get rates that protect."
            return
        low, high = (_decimal(rate) for rate in usable)
        yield FactRows(
            [
                ("rates", f"{_percent(rates.low)} or {_percent(rates.high)} reach it"),
                ("to use", f"{low} or {high}: rounded so that the loss is not above the target"),
            ]
        )
        yield "At the high rate almost every record moves, so those that stay are easy to spot. Use the low rate."

    return Outcome(values=values, blocks=shown())


def _percent(value: Exact) -> str:
    number = float(value) * 100
    if 0 < number < 0.01:
        return f"{number:.1e}%"
    if value < 1 and number >= 99.99995:
        return "just below 100%"
    return f"{number:.2f}%" if number < 99.9 else f"{number:.4f}%"


def _decimal(rate: Fraction) -> str:
    """Write a rate of finitely many decimals with all of them: one less could put the loss above the target."""
    with localcontext(prec=60):
        return f"{(Decimal(rate.numerator) / rate.denominator).normalize():f}"


def rounded_down(value: Exact) -> float | str:
    """Return a lower bound as a double for JSON."""
    if value.is_infinite:
        return "inf"
    low = Fraction(value.enclose(40).low)
    double = low.numerator / low.denominator
    return double if Fraction(double) <= low else math.nextafter(double, -math.inf)


def _shown_down(value: Exact, places: int = 2) -> str:
    double = rounded_down(value)
    return "inf" if isinstance(double, str) else f"{math.floor(double * 10**places) / 10**places:.{places}f}"


# ---- zCDP as epsilon --------------------------------------------------------------------------------------------


def _converted(options: SpecBudgetOptions) -> Outcome:
    each, copies, method = loss(options.rho2 or "", where="--rho2"), options.copies, options.method
    if options.delta is None:
        raise wrong("is needed", where="--delta", remedy="write such as --delta 1e-10")
    if copies is not None and copies < 1:
        remedy = "count the person's own record too: 2 for one copy"
        raise wrong(f"{copies} is below 1", where="--copies", remedy=remedy)
    d, budget = probability(options.delta, where="--delta"), each * (copies or 1) * (copies or 1)
    epsilon = zcdp_to_epsilon(budget, delta=d, method=method)
    rest = {"delta": float(d), "delta_exact": str(d), "method": method}
    if copies is None:
        rows = [("epsilon", f"{epsilon.shown()} ({method}; exactly {epsilon})")]
        blocks: list[OutputBlock] = [
            Title(f"zCDP with rho squared {budget.shown()} at delta {small(d)}"),
            FactRows(rows),
        ]
        return Outcome(values={**exactly(rho2=budget, epsilon=epsilon), **rest}, blocks=[*blocks, _NEIGHBOURS_ONLY])
    records = f"{copies} record{'s' if copies > 1 else ''}"
    why = f"{copies} squared times: the distance grows {copies}-fold, and so does rho"
    blocks = [
        Title(f"A person whose answers stand in {records} of rho squared {each.shown()} each"),
        FactRows([("rho squared", f"{budget.shown()} ({why})"),
                  ("epsilon", f"{epsilon.shown()} at delta {small(d)} ({method})")]),
    ]  # fmt: skip
    values = {"copies": copies, **exactly(rho2_per_record=each, rho2=budget, epsilon=epsilon), **rest}
    return Outcome(values=values, blocks=[*blocks, _NEIGHBOURS_ONLY])
