"""`stirred spec pull-back` and `price`: the promise about the data before, and what exact figures would cost."""

from __future__ import annotations

from typing import Annotated

from stirred.cli.option_words import told_by_options
from stirred.cli.options import Json, Text, opt
from stirred.cli.output import bullets, emit_json, heading, paragraph
from stirred.cli.spec import STATED, Because, Beta, Budget, Count, Kappa, Name, Out, derived
from stirred.cli.spec_export import app
from stirred.cli.spec_given import counted, factors, price_facts, read

__all__ = ["app"]  # with the commands below


@app.command("pull-back")
def pull_back(
    name: Name,
    step: Annotated[str, opt("--step NAME", "What was done to the file: recode, clip, filter, impute-copies, ...")],
    lipschitz: Annotated[
        Text, opt("--lipschitz NUMBER", "How many records one record becomes, or the factor of a step of your own.")
    ] = None,
    because: Because = "",
    stage: Annotated[Text, opt("--stage NAME", "The stage that is reached, such as raw-responses.")] = None,
    budget: Budget = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """What is promised about the data before a step.

    Before an edit, a recode, an imputation, a join. Steps without a factor are refused.
    """
    from stirred.spec.convert import pull_back as pulled

    entry = read(name, budget=budget)
    with told_by_options():
        derivation = pulled(entry.specification, step, lipschitz=lipschitz, because=because, stage=stage)
    derived(derivation, title=name, out=out, as_json=json)


@app.command()
def price(
    name: Name,
    count: Count = None,
    beta: Beta = "0.05",
    kappa: Kappa = None,
    budget: Budget = None,
    json: Json = False,
) -> None:
    """Price what is published exactly, as noise.

    The budget at which noise would almost surely leave the figures as they are: no guarantee.
    """
    from stirred.spec.prices import CALLED
    from stirred.spec.prices import price as priced

    entry = read(name, budget=budget)
    specification = entry.specification
    with told_by_options():
        prices = priced(specification, counts=counted(count), beta=beta, units=factors(kappa, STATED))
    if json:
        facts = {"notation": specification.notation, "budget": specification.budget_text, "called": CALLED}
        emit_json({**facts, "prices": [price_facts(each) for each in prices]})
        return
    heading(f"{entry.title}: {specification.budget_text}")
    paragraph(f"What is published exactly, priced as noise: {CALLED}.")
    bullets([str(each) for each in prices] or ["nothing is published exactly"])
    paragraph("A price is that of this noise. It is no bound, adds nothing to the budget, and protects nothing.")
