"""The commands of measuring: ``stirred topdown budget`` checks a budget file, ``optimise-budget`` improves one.

To measure is to release: ``stirred release PLAN.toml`` of a plan with this mechanism, through the ledger.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from stirred.data.codebook import Codebook
from stirred.data.place import file_at
from stirred.data.problems import bad_plan, listed
from stirred.mechanisms.protocol import Command, Grid, Outcome, Progress
from stirred.mechanisms.topdown.asked import listed_attributes
from stirred.mechanisms.topdown.budget import DELTA, Shares, read_budget
from stirred.mechanisms.topdown.optimise import AREAS_2020, Criterion, Hierarchy, Optimised, optimised
from stirred.mechanisms.topdown.plan import cost_grid, noise_grid
from stirred.mechanisms.topdown.schema import DETAILED, TOTAL, Schema, factors_of
from stirred.mechanisms.topdown.schemas import BUDGETS, SCHEMAS, declared_schema, shipped_schema
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


class OptimiseOptions(BaseModel):
    """The options of ``stirred topdown optimise-budget``."""

    file: str = Field(
        description="A budget file (TOML), or one that is shipped: us-2020-pl-persons.",
        json_schema_extra={"argument": "FILE"},
    )
    schema_: str | None = Field(default=None, description="What the queries ask; default what the file says.")
    areas: list[str] = Field(
        default=[],
        description="How many areas a level has, for every level from the top; default those of the 2020 census.",
        json_schema_extra={"form": "LEVEL=COUNT"},
    )
    known: str | None = Field(
        default=None,
        description="The lowest level whose totals are published exactly; the number of all records always is.",
    )
    criterion: Literal["worst-ratio", "sum-of-variances"] = Field(
        default="worst-ratio",
        description="What is made small: the worst standard error relative to the given shares, or the sum of all "
        "variances.",
    )
    out: Path | None = Field(default=None, description="Where the new budget file goes; must not exist.")


def optimise_budget(options: OptimiseOptions, progress: Progress | None = None) -> Outcome:
    """Find the shares that are best by the criterion at equal rho, and say what improves and what worsens."""
    del progress
    if options.out is not None and options.out.exists():
        raise bad_plan("it exists already", where=f"--out {options.out}", remedy="choose a new file")
    shares = Shares.read(read_budget(options.file), where=options.file)
    schema = _schema(options.schema_ or shares.schema, shares)
    areas = _areas(options.areas, [*shares.levels])
    shares = shares.fitted(schema, [*areas], where=options.file)
    if options.known is not None and options.known not in areas:
        raise bad_plan(f"there is no level '{options.known}'", where="--known", remedy=f"there are {listed([*areas])}")
    # The promise is for files with the same number of records: the total of the one area at the top has no error.
    whole = next((level for level, many in areas.items() if many == 1), None)
    of_rho = {level: {q: shares.levels[level] * own for q, own in shares.queries[level].items()} for level in areas}
    worst = options.criterion == "worst-ratio"
    found = optimised(
        Hierarchy.of(schema, areas=areas, shares=of_rho, known=options.known or whole),
        of_rho,
        criterion=Criterion(power=math.inf if worst else 1, relative=worst),
        rho=shares.rho,
    )
    improves = found.loss[1] < found.loss[0]
    better = _of_shares(shares, found) if improves else shares
    measure = "worst variance relative to the given shares" if worst else "sum of all variances"
    if options.out is not None and improves:
        with file_at(options.out, private=False, replace=True) as half:
            half.write_text(_as_toml(better), encoding="utf-8")
    return Outcome(
        rows=[
            ("budget", shares.title or options.file),
            ("rho", f"{shares.rho} = {float(shares.rho):.4f}, the same before and after"),
            (
                "criterion",
                f"{measure}: {found.loss[0]:.6g} before, {found.loss[1]:.6g} after",
            ),
            ("at best", f"no shares have less than {found.bound:.6g}"),
            (
                "changes",
                f"{len(found.improved)} standard errors become smaller, {len(found.worsened)} larger"
                if improves
                else "none: no better shares found",
            ),
            *([("written", str(options.out) if improves else "nothing")] if options.out is not None else []),
        ],
        grids=[_changes(found)] if improves else [],
        values={
            "improved": improves,
            "budget": better.document(),
            "loss": [*found.loss],
            "bound": found.bound,
            "changes": [
                {"level": c.level, "query": c.query, "share": [*map(str, c.share)], "error": [*c.error]}
                for c in found.changes
            ],
        },
    )


def _areas(given: list[str], levels: list[str]) -> dict[str, int]:
    """Return how many areas each level of a budget has, as given or as in 2020."""
    found: dict[str, int] = {}
    for each in given:
        level, _, count = each.partition("=")
        if not count.isdigit() or int(count) < 1:
            raise bad_plan(f"'{each}' does not say how many areas", where="--areas", remedy="write LEVEL=COUNT")
        found[level] = int(count)
    found = found or {level: AREAS_2020[level] for level in levels if level in AREAS_2020}
    if [level.casefold() for level in found] != [level.casefold() for level in levels]:
        remedy = " and ".join(f"{level}=COUNT" for level in levels)
        raise bad_plan(f"the levels of the budget are {listed(levels)}", where="--areas", remedy=f"give {remedy}")
    counts = [*found.values()]
    if counts != sorted(counts):
        raise bad_plan("a level has fewer areas than the one above it", where="--areas", remedy="count them again")
    return found


def _of_shares(shares: Shares, found: Optimised) -> Shares:
    """Return a budget with the shares of rho that were found, as shares of levels and of queries in them."""
    levels = {level: sum(own.values(), Fraction(0)) for level, own in found.shares.items()}
    queries = {
        level: {query: own / levels[level] for query, own in found.shares[level].items() if own}
        if levels[level]
        else {}
        for level in levels
    }
    return replace(shares, levels=levels, queries=queries, title=f"{shares.title or 'A budget'}, optimised", source="")


def _as_toml(shares: Shares) -> str:
    content = shares.document()
    levels, queries = content.pop("levels"), content.pop("queries")
    lines = [f"{key} = {json.dumps(value)}" for key, value in content.items()]
    lines += ["", "[levels]", *(f"{json.dumps(level)} = {json.dumps(share)}" for level, share in levels.items())]
    lines += ["", "[queries]"]
    for query, own in queries.items():
        inside = ", ".join(f"{json.dumps(level)} = {json.dumps(share)}" for level, share in own.items())
        lines.append(f"{json.dumps(query)} = {{ {inside} }}")
    return "\n".join(lines) + "\n"


def _changes(found: Optimised) -> Grid:
    rows = tuple(
        (
            c.level,
            c.query,
            f"{float(c.share[0]):.2%}",
            f"{float(c.share[1]):.2%}",
            f"{c.error[0]:.4g}",
            f"{c.error[1]:.4g}",
            f"{c.ratio:.3f}",
        )
        for c in (*found.improved, *reversed(found.worsened))
    )
    header = ("level", "query", "share before", "after", "error before", "after ", "ratio")
    return Grid(header=header, rows=rows, numbers=header[2:])


COMMANDS = (
    Command(
        name="budget",
        help="Check a budget file, and show its noise and costs.",
        options=BudgetOptions,
        run=show_budget,
    ),
    Command(
        name="optimise-budget",
        help="Find better shares of a budget at equal rho.",
        options=OptimiseOptions,
        run=optimise_budget,
    ),
)
