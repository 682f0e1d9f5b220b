"""`stirred budget`: quick sums with budgets, each with the companions that give it meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.option_words import told_by_options, wrong
from stirred.cli.options import Json, Text, opt
from stirred.cli.output import emit, emit_json, exactly, facts, heading, paragraph

if TYPE_CHECKING:
    from fractions import Fraction

    from stirred.spec.exact import Exact
    from stirred.spec.swap_budget import Bound

app = typer.Typer(help="Quick sums with budgets: swapping, conversions, copied records.", no_args_is_help=True)

_MOST_RECORDS = 10**15


@app.command()
def swap(
    stratum: Annotated[
        int, opt("--stratum NUMBER", "Number of records in the largest stratum that has something to swap.")
    ],
    rate: Annotated[Text, opt("--rate RATE", "Swap rate, exactly: 1/20, 0.05 or 5%.")] = None,
    epsilon: Annotated[Text, opt("--epsilon NUMBER", "Target epsilon; gives both rates that reach it.")] = None,
    bound: Annotated[
        str, opt("--bound NAME", "paper (as published) or sharp (never above it; what specifications carry).")
    ] = "paper",
    json: Json = False,
) -> None:
    """Epsilon of permutation swapping, or the rates for an epsilon.

    From the rate and the largest stratum.
    """
    if (rate is None) == (epsilon is None):
        raise wrong("give either --rate or --epsilon", where="stirred budget swap", remedy="such as --rate 5%")
    if stratum > _MOST_RECORDS:
        raise wrong(f"no file has more than {_MOST_RECORDS:,} records", where="--stratum", remedy="write a number")
    if bound not in ("paper", "sharp"):
        raise wrong(f"there is no bound '{bound}'", where="--bound", remedy="write paper or sharp")
    chosen: Bound = "sharp" if bound == "sharp" else "paper"
    with told_by_options():
        if rate is not None:
            _swap_rate(stratum, rate, chosen, as_json=json)
        else:
            assert epsilon is not None
            _swap_target(stratum, epsilon, chosen, as_json=json)


_RESULT = {"paper": "the paper's bound", "sharp": "the sharp bound"}


def _swap_rate(stratum: int, rate: str, bound: Bound, *, as_json: bool) -> None:
    from stirred.spec.given_numbers import probability
    from stirred.spec.swap_budget import (
        bounded_psa_epsilon,
        psa_existential_bound,
        smallest_psa_epsilon,
        smallest_psa_rate,
    )

    p = probability(rate, where="--rate")
    loss = bounded_psa_epsilon(p, largest_stratum=stratum, bound=bound)
    exists = psa_existential_bound(p, largest_stratum=stratum)
    least, best = smallest_psa_epsilon(stratum, bound=bound), smallest_psa_rate(stratum, bound=bound)
    if as_json:
        emit_json(
            {
                "stratum": stratum,
                "bound": bound,
                "rate": float(p),
                "rate_exact": str(p),
                **exactly(epsilon=loss, smallest_epsilon=least, smallest_rate=best),
                "existential_bound": _rounded_down(exists),
                "existential_bound_exact": str(exists),
                "relative_to": dict(_COMPANIONS),
            }
        )
        return
    heading(f"Permutation swapping at rate {p}, largest stratum {stratum:,}")
    _companions(f"epsilon {loss.shown()} ({_RESULT[bound]}; exactly {loss})")
    emit()
    if loss.is_infinite:
        paragraph("Nothing is promised: at this rate an output can give the file away.")
        if p == 1:
            paragraph(
                "At rate 1 infinity is the bound for the size alone. The loss is finite for a file in which no stratum "
                "has both a hold value and a swap value that occur once; `stirred plan` looks at yours."
            )
        return
    if not stratum:
        paragraph("No stratum has anything to swap: the file is published as it is, and a loss of 0 is not protection.")
        return
    facts(
        [
            ("smallest", f"no rate gives less than epsilon {_shown_down(least, 3)}, reached near {_percent(best)}"),
            ("tightness", f"some file with this largest stratum loses at least {_shown_down(exists)}; "
             "that says nothing about yours"),
        ]
    )  # fmt: skip


def _swap_target(stratum: int, epsilon: str, bound: Bound, *, as_json: bool) -> None:
    from stirred.spec.given_numbers import loss
    from stirred.spec.swap_budget import psa_rates_for, rate_not_above

    target = loss(epsilon, where="--epsilon")
    rates = psa_rates_for(target, largest_stratum=stratum, bound=bound)
    usable = [rate_not_above(target, largest_stratum=stratum, high=high, bound=bound) for high in (False, True)]
    if as_json:
        emit_json(
            {
                "stratum": stratum,
                "bound": bound,
                **exactly(epsilon=target),
                "rates": [float(rates.low), float(rates.high)],
                "rates_exact": [str(rates.low), str(rates.high)],
                "usable_rates": [str(rate) for rate in usable],
                "relative_to": dict(_COMPANIONS),
            }
        )
        return
    heading(f"Permutation swapping with epsilon {target.shown()}, largest stratum {stratum:,}")
    _companions(f"epsilon {target.shown()} ({_RESULT[bound]})")
    emit()
    if target.is_infinite:
        paragraph("Nothing is promised, and every rate will do: ask for a finite epsilon to get rates that protect.")
        return
    low, high = (_decimal(rate) for rate in usable)
    facts(
        [
            ("rates", f"{_percent(rates.low)} or {_percent(rates.high)} reach it"),
            ("to use", f"{low} or {high}: rounded so that the loss is not above the target"),
        ]
    )
    paragraph(
        "The high rate moves nearly everyone, and what stays put gives itself away; the low one is the usual choice."
    )


_COMPANIONS = (
    ("who", "any file with the same variables"),
    ("where", "only between versions that agree on the match x swap table and on the table of all hold variables"),
    ("what", "one record of the kind that is swapped (d_HamS); such versions are at least 2 records apart"),
    ("how", "D_Mult: the logarithm of the factor by which the odds of any output change"),
)


def _companions(how_much: str) -> None:
    facts([*_COMPANIONS, ("how much", how_much)])


def _percent(value: Exact) -> str:
    number = float(value) * 100
    if 0 < number < 0.01:
        return f"{number:.1e}%"
    if value < 1 and number >= 99.99995:
        return "just below 100%"
    return f"{number:.2f}%" if number < 99.9 else f"{number:.4f}%"


def _decimal(rate: Fraction) -> str:
    """Write a rate of finitely many decimals with all of them: one less could put the loss above the target."""
    from decimal import Decimal, localcontext

    with localcontext(prec=60):
        return f"{(Decimal(rate.numerator) / rate.denominator).normalize():f}"


def _rounded_down(value: Exact) -> float | str:
    import math
    from fractions import Fraction

    if value.is_infinite:
        return "inf"
    low = Fraction(value.enclose(40).low)
    double = low.numerator / low.denominator
    return double if Fraction(double) <= low else math.nextafter(double, -math.inf)


def _shown_down(value: Exact, places: int = 2) -> str:
    import math

    double = _rounded_down(value)
    return "inf" if isinstance(double, str) else f"{math.floor(double * 10**places) / 10**places:.{places}f}"


@app.command()
def convert(
    rho2: Annotated[str, opt("--rho2 NUMBER", "Budget of zero-concentrated DP, the customary rho (our rho squared).")],
    delta: Annotated[str, opt("--delta NUMBER", "delta of the approximate budget, such as 1e-10.")],
    method: Annotated[str, opt("--method NAME", "bun-steinke (the Census Bureau's) or cks (tighter).")] = "bun-steinke",
    json: Json = False,
) -> None:
    """Turn a zCDP budget into epsilon at a delta.

    For two files that differ in one unit.
    """
    from stirred.spec.convert_output import zcdp_to_epsilon
    from stirred.spec.given_numbers import loss, probability
    from stirred.spec.number_text import small

    budget, d = loss(rho2, where="--rho2"), probability(delta, where="--delta")
    with told_by_options():
        epsilon = zcdp_to_epsilon(budget, delta=d, method=method)
    if json:
        emit_json({**exactly(rho2=budget, epsilon=epsilon), **_at(d), "method": method})
        return
    heading(f"zCDP with rho squared {budget.shown()} at delta {small(d)}")
    facts([("epsilon", f"{epsilon.shown()} ({method}; exactly {epsilon})")])
    _neighbours_only()


@app.command()
def duplicates(
    rho2: Annotated[str, opt("--rho2 NUMBER", "Budget of zero-concentrated DP per record (rho squared).")],
    copies: Annotated[
        int, opt("--copies NUMBER", "Number of records that hold one person's answers after imputation.")
    ],
    delta: Annotated[str, opt("--delta NUMBER", "delta of the approximate budget, such as 1e-10.")],
    method: Annotated[str, opt("--method NAME", "bun-steinke or cks.")] = "bun-steinke",
    json: Json = False,
) -> None:
    """The budget of a person with answers in several records.

    By group privacy.
    """
    from stirred.spec.convert_output import zcdp_to_epsilon
    from stirred.spec.given_numbers import loss, probability
    from stirred.spec.number_text import small

    if copies < 1:
        raise wrong(
            f"{copies} is below 1", where="--copies", remedy="count the person's own record too: 2 for one copy"
        )
    d = probability(delta, where="--delta")
    each = loss(rho2, where="--rho2")
    budget = each * copies * copies
    with told_by_options():
        epsilon = zcdp_to_epsilon(budget, delta=d, method=method)
    if json:
        numbers = exactly(rho2_per_record=each, rho2=budget, epsilon=epsilon)
        emit_json({"copies": copies, **numbers, **_at(d), "method": method})
        return
    records = f"{copies} record{'s' if copies > 1 else ''}"
    heading(f"A person whose answers stand in {records} of rho squared {each.shown()} each")
    why = f"{copies} squared times: the distance grows {copies}-fold, and so does rho"
    rows = [("rho squared", f"{budget.shown()} ({why})")]
    facts([*rows, ("epsilon", f"{epsilon.shown()} at delta {small(d)} ({method})")])
    _neighbours_only()


def _at(delta: Fraction) -> dict[str, Any]:
    return {"delta": float(delta), "delta_exact": str(delta)}


def _neighbours_only() -> None:
    paragraph(
        "This is for two files that differ in one unit; files further apart lose more than in proportion. The number "
        "means something only with the invariants and the unit of its release: `stirred spec explain` writes them out."
    )
