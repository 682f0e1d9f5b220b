"""Options of `stirred ledger`: where the ledger is, who acts and why, and what a total is expressed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stirred.cli.spec_given import factors, output_premetric

if TYPE_CHECKING:
    from stirred.release.ledger import Total
    from stirred.release.ledger.total import Currency

Where = Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger: a file, or postgresql://user@host/database.")]
Reference = Annotated[str, typer.Argument(metavar="ENTRY", help="An entry: its number, or the beginning of its id.")]
Who = Annotated[str | None, typer.Option("--who", metavar="NAME", help="Who does this (default: the user at work).")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it stays in the ledger.")]
Unit = Annotated[str | None, typer.Option("--unit", metavar="NAME", help="The common unit, where entries differ.")]
Output = Annotated[
    str | None,
    typer.Option("--output", metavar="NAME", help="Express the total in: pure, zcdp, approximate, gdp or tv."),
]
Delta = Annotated[
    str | None, typer.Option("--delta", metavar="NUMBER", help="delta; alone it means --output approximate.")
]
Copies = Annotated[
    str | None,
    typer.Option(
        "--copies", metavar="NUMBER", help="Protect people, whose answers stand in at most this many records, say 2."
    ),
]
STATED = "stated on the command line"


def currency_of(
    unit: str | None, kappa: list[str] | None, because: str, output: str | None, delta: str | None, copies: str | None
) -> Currency:
    """Return what the options express a total in."""
    from stirred.release.ledger.total import Copies, Currency

    name = output or ("approximate" if delta is not None else None)
    return Currency(
        unit=unit,
        units=tuple(factors(kappa, because)),
        output=None if name is None else output_premetric(name, delta=delta),
        copies=None if copies is None else Copies(factor=copies, because=because),
    )


def check_copies(found: Total) -> None:
    """Refuse --copies where it applies to nothing; where it applies to some, the others stand apart with the reason."""
    from stirred.spec.problems import SpecificationError

    problems = [problem for aside in found.alone for problem in aside.problems if problem.where == "copies"]
    if problems and not found.parts:
        raise SpecificationError(dict.fromkeys(problems))
