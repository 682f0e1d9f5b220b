"""`stirred spec`: write, read, explain, compare, compose, convert, check and export specifications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.option_words import told_by_options, wrong
from stirred.cli.options import Json, Names, Place, Text, arg, opt
from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph, picked, say, step_facts, wrapped
from stirred.cli.spec_atlas import entry_facts, list_absent, on_the_map, toy_rows
from stirred.cli.spec_given import counted, factors, invariant, output_premetric, price_facts, read, read_two, write_new

if TYPE_CHECKING:
    from stirred.spec import Derivation
    from stirred.spec.catalogue import CatalogueEntry
    from stirred.spec.prices import Price
    from stirred.spec.problems import SpecificationError

app = typer.Typer(
    help="DP specifications: the five answers behind a budget. NAME is a catalogue name or a file (JSON or TOML).",
    no_args_is_help=True,
)

Name = Annotated[str, arg("NAME|FILE", "A name from `stirred spec list`, or a .json or .toml file.")]
Budget = Annotated[Text, opt("--budget NUMBER", "A value for a budget that is only a letter, such as 1.")]
Out = Annotated[Place, opt("--out FILE", "Also write the resulting specification.json here.")]
Kappa = Annotated[
    Names, opt("--kappa OLD:NEW=K", "OLD:NEW=K, one NEW unit changes at most K OLD records: household:person=1.")
]
Count = Annotated[Names, opt("--count NAME=NUMBER", "How many values a level or variable has, for prices: state=51.")]
Beta = Annotated[str, opt("--beta SHARE", "Chance, for prices, that noise changes any of the counts.")]
STATED = "stated on the command line"
Because = Annotated[str, opt("--because TEXT", "Why the factor holds; kept as an assumption.")]


@app.command("list")
def list_(
    kind: Annotated[
        Text, opt("--kind NAME", "Only these: release, definition, or absent (definitions that do not fit, and why).")
    ] = None,
    json: Json = False,
) -> None:
    """List the catalogue of published specifications."""
    from stirred.spec import catalogue

    if kind not in (None, "release", "definition", "absent"):
        raise wrong(f"{kind!r} is not a kind", where="--kind", remedy="one of release, definition, absent")
    if kind == "absent":
        list_absent(json=json)
        return
    entries = [catalogue.load(name) for name in catalogue.names(kind)]
    if json:
        emit_json([entry_facts(entry) for entry in entries])
        return
    for entry in entries:
        heading(entry.name)
        emit(wrapped(f"{entry.title}: {entry.budget_text}", first="    ", rest="    "))
    emit()
    if kind == "definition":
        paragraph(
            "`stirred spec show NAME` gives the five blocks and two toys, `stirred spec map --out FILE.svg` draws "
            "which implies which, `stirred spec list --kind absent` says which definitions do not fit, and why."
        )
        return
    paragraph(
        "The budgets are in different currencies and must not be ranked: `stirred spec explain NAME` says what each "
        "is relative to, `stirred spec compare A B` what differs."
    )


@app.command()
def show(name: Name, budget: Budget = None, json: Json = False) -> None:
    """Show one specification.

    Its notation, the five blocks and the listed invariants.
    """
    entry = read(name, budget=budget)
    if json:
        from stirred.spec.document import to_document

        emit_json(to_document(entry.specification))
        return
    _show(entry)


def _show(entry: CatalogueEntry) -> None:
    from stirred.spec.explanation import explain

    specification = entry.specification
    words = explain(specification)
    heading(f"{entry.title}")
    emit(specification.notation)
    emit()
    answers = {a.question: a.answer for a in words.answers}
    facts([(question, answers[question]) for question in ("who", "where", "what", "how", "how much")])
    emit()
    emit("held fixed, and so not protected:")
    bullets(words.fixed or ["nothing"])
    if entry.steps:
        emit()
        emit("derived by:")
        bullets([str(step) for step in entry.steps])
        if specification.assumptions:
            emit()
            emit("this holds if:")
            bullets(specification.assumptions)
    if entry.source:
        emit()
        both = f"{entry.budget_text} (there cut off or rounded to nearest, here rounded up)"
        printed = [("printed", both)] if entry.prints_another else []
        facts([*toy_rows(entry), ("source", entry.source), *printed, *(("note", note) for note in entry.notes)])


@app.command()
def explain(name: Name, budget: Budget = None, json: Json = False) -> None:
    """Explain a specification in plain language.

    What is not protected comes first.
    """
    from stirred.spec.explanation import NOT_PROTECTED
    from stirred.spec.explanation import explain as in_words

    entry = read(name, budget=budget)
    words = in_words(entry.specification)
    if json:
        emit_json(
            {
                "title": entry.title,
                "notation": entry.specification.notation,
                "not_protected": list(words.not_protected),
                "answers": {a.question: a.answer for a in words.answers},
                **picked(words, "how_to_read", "why_not_compare", "assumptions"),
            }
        )
        return
    heading(entry.title)
    emit()
    emit(f"{NOT_PROTECTED}:")
    bullets(words.not_protected)
    emit()
    emit("What is promised:")
    facts([(a.question, a.answer) for a in words.answers], indent=2)
    emit()
    paragraph(words.how_to_read)
    emit()
    paragraph(f"{words.why_not_compare} `stirred spec compare A B` says which of them differ.")
    if words.assumptions:
        emit()
        emit("This holds if:")
        bullets(words.assumptions)


@app.command()
def compare(
    a: Name,
    b: Name,
    kappa: Kappa = None,
    because: Because = STATED,
    count: Count = None,
    beta: Beta = "0.05",
    budget: Budget = None,
    json: Json = False,
) -> None:
    """Compare two specifications block by block.

    There is an overall verdict only where a theorem gives one.
    """
    from stirred.spec import compare as compare_specifications
    from stirred.spec.prices import CALLED, axes

    first, second = read_two(a, b, budget=budget)
    units = {first.specification.input_premetric.unit, second.specification.input_premetric.unit}
    for factor in factors(kappa, because):
        if not {factor.old, factor.new} <= units:
            remedy = f"use {', '.join(sorted(units))}"
            raise wrong(f"{factor.old} and {factor.new} are not the units here", where="--kappa", remedy=remedy)
    comparison = compare_specifications(first.specification, second.specification, units=factors(kappa, because))
    if counted(count).keys() - axes(first.specification) - axes(second.specification):
        raise idle("--count")
    prices = {name: _prices(entry, count, beta) for name, entry in (("first", first), ("second", second))}
    arrows = on_the_map(first, second)
    if json:
        emit_json(
            {
                "first": {"name": a, "notation": comparison.first.notation},
                "second": {"name": b, "notation": comparison.second.notation},
                "blocks": {each.block: picked(each, "question", "verdict", "reason") for each in comparison.blocks},
                **picked(comparison, "overall", "because", "to_change"),
                "map": arrows,
                "prices": {name: [price_facts(each) for each in found] for name, found in prices.items()},
            }
        )
        return
    heading(f"{first.title}: {first.specification.budget_text}")
    emit("  compared with")
    heading(f"{second.title}: {second.specification.budget_text}")
    emit()
    facts([(block.question, f"{_verdict(block.verdict)}: {block.reason}") for block in comparison.blocks])
    emit()
    overall = _verdict(comparison.overall) if comparison.overall else "no verdict"
    paragraph(f"Overall: {overall}. {comparison.because}")
    if arrows:
        emit()
        emit("On the map of definitions, which knows how their units relate (`stirred spec map`):")
        bullets(arrows)
    if comparison.to_change:
        emit()
        emit("For a verdict one would have to:")
        bullets(comparison.to_change)
    if any(prices.values()):
        emit()
        emit(f"What is published exactly, priced as noise ({CALLED}):")
        bullets([f"{name}: {each}" for name, found in prices.items() for each in found])


def _prices(entry: CatalogueEntry, count: list[str] | None, beta: str) -> tuple[Price, ...]:
    """Return the prices of the invariants, with those of the stated numbers of values that concern them."""
    from stirred.spec.prices import axes, price

    known = axes(entry.specification)
    with told_by_options():
        counts = {name: number for name, number in counted(count).items() if name in known}
        return price(entry.specification, counts=counts, beta=beta)


def _verdict(word: str) -> str:
    return f"the first is {word.upper()}" if word in ("stronger", "weaker") else word.upper()


@app.command()
def compose(
    names: Annotated[list[str], arg("NAME|FILE...", "Two or more specifications.")],
    unit: Annotated[Text, opt("--unit NAME", "The common unit, where they differ.")] = None,
    kappa: Kappa = None,
    because: Because = STATED,
    delta: Annotated[Text, opt("--delta NUMBER", "delta, if some must become approximate.")] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Compose releases into one specification.

    Every conversion is shown with its theorem.
    """
    from stirred.spec import compose as compose_specifications

    if len(names) < 2:
        raise wrong("there is one specification", where="stirred spec compose", remedy="give two or more")
    parts = [read(name).specification for name in names]
    for name, part in zip(names, parts, strict=True):
        if part.budget.is_free:
            remedy = f"give it one first: `stirred spec export {name} --budget 1 --format json --out chosen.json`"
            raise wrong("the budget is a letter without a value", where=name, remedy=remedy)
    stated = factors(kappa, because)
    derivation = compose_specifications(parts, unit=unit, units=stated, delta=delta)
    reached, present = derivation.specification, {part.input_premetric.unit for part in parts}
    if any(factor.old not in present or factor.new != reached.input_premetric.unit for factor in stated):
        raise idle("--kappa")
    if delta is not None and all(part.output_premetric.name == "D_Mult^delta" for part in parts):
        raise idle("--delta")
    if delta is not None and reached.output_premetric.name != "D_Mult^delta":
        raise idle("--delta")
    derived(derivation, title=" + ".join(names), out=out, as_json=json)


@app.command()
def convert(
    name: Name,
    output: Annotated[
        Text,
        opt("--output NAME", "To another output premetric: zcdp, approximate, gdp, renyi, tv, kl, hellinger or chi2."),
    ] = None,
    delta: Annotated[Text, opt("--delta NUMBER", "delta, for --output approximate.")] = None,
    order: Annotated[Text, opt("--order NUMBER", "Order, for --output renyi.")] = None,
    method: Annotated[
        Text, opt("--method NAME", "sharp or bun-steinke to zcdp; bun-steinke or cks to approximate.")
    ] = None,
    at_distance: Annotated[
        int | None,
        opt("--at-distance NUMBER", "Compare files this many records apart (default: the nearest there are)."),
    ] = None,
    unit: Annotated[Text, opt("--unit NAME", "To another unit, by group privacy.")] = None,
    factor: Annotated[
        Text, opt("--factor NUMBER", "Largest number of old units that one new unit changes, for --unit.")
    ] = None,
    because: Because = "",
    people: Annotated[
        bool, opt("--people", "With --unit: from records after imputation to the people behind them.")
    ] = False,
    refine: Annotated[
        Names, opt("--refine TEXT", "Hold fixed as well: 'household: size x tenure @ county' or 'person @ state'.")
    ] = None,
    budget: Budget = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Convert a specification to another unit or measure.

    First --refine, then --unit, then --output; impossible conversions are refused.
    """
    from stirred.spec import Derivation, change_output, change_unit
    from stirred.spec import refine as refine_specification
    from stirred.spec.invariant import records_of

    _no_idle_options(output=output, unit=unit, refine=refine, delta=delta, order=order, method=method,
                     at_distance=at_distance, factor=factor, because=because, people=people)  # fmt: skip
    entry = read(name, budget=budget)
    derivation = Derivation(specification=entry.specification)
    if unit is not None and factor is not None and not people:
        with told_by_options():
            by_part = entry.in_unit(unit, factor=factor, because=because or STATED)
        derivation, unit = (derivation, unit) if by_part is None else (by_part, None)
    if refine:
        invariants = [invariant(text, derivation.specification) for text in refine]
        derivation = derivation.then(refine_specification(derivation.specification, invariants=invariants))
    if unit is not None:
        if factor is None:
            raise wrong(
                f"nothing says how many old units one {unit} changes",
                where="--factor",
                remedy="state the largest number of "
                f"{records_of(derivation.specification.input_premetric.unit)} that one {unit} changes, and why: "
                "--factor 6 --because '...'",
            )
        with told_by_options():
            step = change_unit(
                derivation.specification,
                unit=unit,
                factor=factor,
                because=because or STATED,
                post_imputation=False if people else None,
            )
        derivation = derivation.then(step)
    if output is not None:
        target = output_premetric(output, delta=delta, order=order, takes_order=True)
        before = derivation.specification
        with told_by_options():
            step = change_output(before, to=target, method=method, at_distance=at_distance)
        if at_distance is not None and step.specification.input_premetric == before.input_premetric:
            raise idle("--at-distance")
        derivation = derivation.then(step)
    derived(derivation, title=name, out=out, as_json=json)


def derived(derivation: Derivation, *, title: str, out: Path | None, as_json: bool) -> None:
    """Show a derived specification with its steps, and write it where that is asked for."""
    from stirred.spec.catalogue import CatalogueEntry
    from stirred.spec.document import to_document, to_json

    if out is not None:
        write_new(out, to_json(derivation.specification))
        say(f"wrote {out}")
    if as_json:
        steps = [step_facts(step) for step in derivation.steps]
        emit_json({"specification": to_document(derivation.specification), "steps": steps})
        return
    _show(
        CatalogueEntry(
            name=title, title=title, source="", notes=(), specification=derivation.specification, steps=derivation.steps
        )
    )


def _no_idle_options(**options: Any) -> None:
    """Refuse options that would have no effect: whoever gave them expects one."""
    if options["output"] is None and options["unit"] is None and not options["refine"]:
        raise wrong("nothing to convert to", where="stirred spec convert", remedy="give --output, --unit or --refine")
    output = (options["output"] or "").lower()
    to_approximate, to_renyi = output in ("approximate", "d_mult^delta"), output in ("renyi", "d_renyi")
    needs = {
        "delta": to_approximate,
        "order": to_renyi,
        "method": options["output"] is not None,
        "at_distance": to_approximate or to_renyi or output in ("kl", "d_kl", "chi2", "d_chi2"),
        "factor": options["unit"] is not None,
        "because": options["unit"] is not None,
        "people": options["unit"] is not None,
    }
    absent = {"because": "", "people": False}
    for name, has_effect in needs.items():
        if options[name] != absent.get(name) and not has_effect:
            raise idle("--" + name.replace("_", "-"))


def idle(option: str) -> SpecificationError:
    """Return (not raise) the error of an option that would have no effect."""
    return wrong("this option has no effect here", where=option, remedy="leave it out, or see --help")
