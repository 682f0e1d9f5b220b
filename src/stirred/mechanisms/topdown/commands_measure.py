"""The command of measuring: ``stirred topdown budget`` checks a budget file.

To measure is to release: ``stirred release PLAN.toml`` of a plan with this mechanism, through the ledger.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from pydantic import BaseModel, Field

from stirred.data.codebook import Codebook
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Command, Outcome, Progress
from stirred.mechanisms.topdown.asked import listed_attributes
from stirred.mechanisms.topdown.budget import DELTA, Shares, read_budget
from stirred.mechanisms.topdown.plan import cost_grid, noise_grid
from stirred.mechanisms.topdown.schema import (
    BUDGETS,
    DETAILED,
    SCHEMAS,
    TOTAL,
    Schema,
    declared_schema,
    factors_of,
    shipped_schema,
)
from stirred.spec.given_numbers import probability


class BudgetOptions(BaseModel):
    """The options of ``stirred topdown budget``."""

    file: str = Field(
        description=f"A budget file (TOML), or one that is shipped: {', '.join(BUDGETS)}.",
        json_schema_extra={"argument": "FILE"},
    )
    schema_: str | None = Field(
        default=None,
        description=f"What the queries ask: {', '.join(SCHEMAS)}, or a codebook; default what the file says.",
    )
    delta: str = Field(default=str(DELTA), description="The delta at which epsilon is shown.")


def show_budget(options: BudgetOptions, progress: Progress | None = None) -> Outcome:
    """Check a budget file, and return the noise of every query and what a change of one record costs."""
    del progress
    shares = Shares.read(read_budget(options.file), where=options.file)
    schema = _schema(options.schema_ or shares.schema, shares)
    shares = shares.fitted(schema, [*shares.levels], where=options.file)
    delta = probability(options.delta, where="--delta")
    costs = shares.certificate(schema, delta=Fraction(delta))
    values = {
        "budget": shares.document(),
        "sigma2": {level: {q: str(shares.sigma2(level, q)) for q in shares.measured(level)} for level in shares.levels},
        "certificate": {cost.what: {"rho": str(cost.rho), "epsilon": float(cost.epsilon)} for cost in costs},
        "delta": str(delta),
        "neighbours": "bounded",
    }
    rows = [
        ("budget", shares.title or options.file),
        ("rho", f"{shares.rho} = {float(shares.rho):.4f} (zCDP, bounded neighbours: one record changed)"),
        ("counts", f"by {' x '.join(schema.names)}"),
        ("levels", ", ".join(f"{level} {float(share):.2%}" for level, share in shares.levels.items())),
        (
            "checked",
            "shares of the levels and of the queries at every level add up to 1, and every query is in the schema",
        ),
    ]
    return Outcome(rows=rows, grids=[noise_grid(shares), cost_grid(costs, delta=float(delta))], values=values)


def _schema(name: str, shares: Shares) -> Schema:
    """Return a schema by its name, or that of the attributes of a codebook that the queries name.

    Of a query of every detail, all coded variables of the codebook are attributes but those that are levels.
    """
    if name in SCHEMAS:
        return shipped_schema(name)
    if not name:
        remedy = f"write schema = '...' into it, or --schema: a codebook, a file of attributes, or {listed(SCHEMAS)}"
        raise bad_plan("the budget file does not say what its queries ask", where="schema", remedy=remedy)
    if Path(name).suffix == ".toml" and Path(name).is_file() and (own := listed_attributes(Path(name))) is not None:
        return own
    codebook = Codebook.read(name)
    coded = [each.name for each in codebook.variables if codebook.codes(each.name)]
    factors = dict.fromkeys(factor for query in shares.names for factor in factors_of(query))
    attributes = [factor for factor in factors if factor not in (TOTAL, DETAILED)]
    if unknown := [each for each in attributes if each not in coded]:
        remedy = f"it has {listed(coded)}; a budget with groupings of a plan is checked by `stirred plan`"
        raise bad_plan(f"queries ask for {listed(unknown)}, without codes in {name}", where="--schema", remedy=remedy)
    if DETAILED in factors or not attributes:
        levels = {level.casefold() for level in shares.levels}
        attributes = [each for each in dict.fromkeys(coded) if each in factors or each.casefold() not in levels]
    return declared_schema(name, attributes, values={each: codebook.codes(each) for each in attributes}, groupings={})


class GoneOptions(BaseModel):
    """The options of a command that is gone: none is read."""


def optimise_budget(options: GoneOptions, progress: Progress | None = None) -> Outcome:
    """Refuse: shares of a budget are no longer searched for."""
    what, remedy = (
        "budgets are no longer optimised",
        "write shares yourself; `stirred topdown budget` shows their noise",
    )
    raise bad_plan(what, where="topdown optimise-budget", remedy=remedy)


COMMANDS = (
    Command(
        name="budget",
        help="Check a budget file, and show its noise and costs.",
        options=BudgetOptions,
        run=show_budget,
    ),
    Command(
        name="optimise-budget",
        help="Gone.",
        options=GoneOptions,
        run=optimise_budget,
        gone=True,
    ),
)
