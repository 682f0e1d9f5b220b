"""`stirred spec`: read, explain, compose, convert, check and export specifications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel

from stirred.cli.option_words import told_by_options
from stirred.cli.options import Names, Place, Text, argument, command, option
from stirred.cli.output import exactly, notes_of, picked, step_facts
from stirred.cli.spec_budget import SpecBudgetOptions, budget
from stirred.cli.spec_given import (
    BUDGET,
    STATED,
    UnitOptions,
    invariant,
    output_premetric,
    read,
    read_two,
)
from stirred.mechanisms.groups import Bullets, FactRows, Outcome, OutputBlock, Title
from stirred.spec import Derivation, catalogue, change_output, change_unit
from stirred.spec import compose as compose_specifications
from stirred.spec import refine as refine_specification
from stirred.spec.catalogue import CatalogueEntry, atlas
from stirred.spec.convert import pull_back as pulled_back
from stirred.spec.document import number_out, to_document, to_json
from stirred.spec.explanation import NOT_PROTECTED, explain
from stirred.spec.findings import SERIOUS
from stirred.spec.findings import lint as findings_of
from stirred.spec.invariant import records_of
from stirred.spec.problems import SpecificationError, wrong
from stirred.spec.render import to_markdown, to_registry


class _NameOptions(BaseModel):
    name: str = argument("NAME|FILE", "A name from `stirred spec list`, or a .json or .toml file.")
    budget: Text = option(BUDGET, form="NUMBER")


class _DerivedOptions(BaseModel):
    out: Place = option("Also write the resulting specification.json here.")


# ---- the catalogue ------------------------------------------------------------------------------------------


class ListOptions(BaseModel):
    """`stirred spec list`."""

    kind: Literal["release", "definition", "absent"] | None = option(
        "Only these; absent: definitions that do not fit, and why.", form="NAME"
    )


def list_(options: ListOptions, _: Any) -> Outcome:
    """List the catalogue of published specifications."""
    if options.kind == "absent":
        values = [{"name": name, "kind": "absent", "reason": reason} for name, reason in atlas.absent().items()]
        blocks = [block for one in values for block in (Title(one["name"]), f"    {one['reason']}")]
        return Outcome(values=values, blocks=blocks)
    entries = [catalogue.load(name) for name in catalogue.names(options.kind)]
    blocks = [block for each in entries for block in (Title(each.name), f"    {each.title}: {each.budget_text}")]
    last = _AFTER_DEFINITIONS if options.kind == "definition" else _AFTER_ALL
    return Outcome(values=[_entry_values(entry) for entry in entries], blocks=[*blocks, "", last])


_AFTER_DEFINITIONS: Final = (
    "`stirred spec show NAME` gives the five blocks and two toys, `stirred spec map --out FILE.svg` draws which "
    "implies which, `stirred spec list --kind absent` says which definitions do not fit, and why."
)
_AFTER_ALL: Final = (
    "The budgets are in different currencies and must not be ranked: `stirred spec show NAME --explain` says what each "
    "is relative to, `stirred compare A B` what differs."
)


def _entry_values(entry: CatalogueEntry) -> dict[str, Any]:
    """Return an entry of the catalogue for JSON; a definition with its toys."""
    found = {**picked(entry, "name", "kind", "title"), "notation": entry.specification.notation, "source": entry.source}
    if entry.kind != "definition":
        return found if entry.printed is None else {**found, "printed": entry.printed}
    toy = atlas.toy(entry.name)
    numbers = exactly(budget=toy.specification.budget.realised, broken=toy.broken_loss)
    return {**found, "toy": {"domain": toy.domain, "datasets": len(toy.laws), "words": toy.words, **numbers}}


class SpecShowOptions(_NameOptions):
    """`stirred spec show`."""

    explain: bool = option("In plain language, what is not protected first.", False)


def show(options: SpecShowOptions, _: Any) -> Outcome:
    """Show one specification, or explain it in plain language.

    Its notation, the five blocks and the listed invariants.
    """
    entry = read(options.name, budget=options.budget)
    if not options.explain:
        return Outcome(values=to_document(entry.specification), blocks=_shown(entry))
    words = explain(entry.specification)
    values = {
        "title": entry.title,
        "notation": entry.specification.notation,
        "not_protected": list(words.not_protected),
        "answers": {a.question: a.answer for a in words.answers},
        **picked(words, "how_to_read", "why_not_compare", "assumptions"),
    }
    blocks: list[OutputBlock] = [
        Title(entry.title), "", Title(f"{NOT_PROTECTED}:"), Bullets(words.not_protected), "", "What is promised:",
        FactRows([(a.question, a.answer) for a in words.answers], 2), "", words.how_to_read, "",
        f"{words.why_not_compare} `stirred compare A B` says which of them differ.",
    ]  # fmt: skip
    if words.assumptions:
        blocks += ["", "This holds if:", Bullets(words.assumptions)]
    return Outcome(values=values, blocks=blocks)


def _shown(entry: CatalogueEntry) -> Iterator[OutputBlock]:
    specification = entry.specification
    words = explain(specification)
    yield from (Title(entry.title), specification.notation, "")
    answers = {a.question: a.answer for a in words.answers}
    yield FactRows([(question, answers[question]) for question in ("who", "where", "what", "how", "how much")])
    yield from ("", "held fixed, and so not protected:", Bullets(words.fixed or ["nothing"]))
    if entry.steps:
        yield from ("", "derived by:", Bullets([str(step) for step in entry.steps]))
        if specification.assumptions:
            yield from ("", "this holds if:", Bullets(specification.assumptions))
    if entry.source:
        toy = [("toy", atlas.toy(entry.name).words)] if entry.kind == "definition" else []
        both = f"{entry.budget_text} (there cut off or rounded to nearest, here rounded up)"
        printed = [("printed", both)] if entry.prints_another else []
        yield from ("", FactRows([*toy, ("source", entry.source), *printed, *(("note", n) for n in entry.notes)]))


class MapOptions(BaseModel):
    """`stirred spec map`."""

    out: Place = option("Draw the map here, as SVG.")


def draw_map(options: MapOptions, _: Any) -> Outcome:
    """Which definition implies which, and by what factor.

    Factors are decided on small domains; with --out FILE.svg the map is drawn.
    """
    from stirred.report.atlas_map import atlas_svg

    out, arrows = options.out, atlas.arrows()
    if out is not None and out.suffix != ".svg":
        raise wrong("the map is drawn as SVG", where=f"--out {out}", remedy=f"write {out.with_suffix('.svg')}")
    values = [
        {**picked(arrow, "stronger", "weaker", "how", "words", "because"),
         "factor": None if arrow.there is None else number_out(arrow.there),
         "factor_back": None if arrow.back is None else number_out(arrow.back)}
        for arrow in arrows
    ]  # fmt: skip
    if out is not None:
        return Outcome(values=values, notes=notes_of(out, atlas_svg(arrows)))
    last = "A -> B: every mechanism that satisfies A satisfies B, at the factor times A's budget."
    rows = FactRows([(f"{arrow.stronger} -> {arrow.weaker}", arrow.because) for arrow in arrows])
    return Outcome(values=values, blocks=[rows, "", Bullets([last])])


# ---- checks, and other formats --------------------------------------------------------------------------------


class LintOptions(_NameOptions):
    """`stirred spec lint`."""

    before: Text = option("An earlier version, to see why its number fell.", form="NAME|FILE")
    records: int | None = option("Number of records, to judge delta.", ge=1)


def lint(options: LintOptions, _: Any) -> Outcome:
    """Check a specification for ways a number promises little.

    Exits with 1 on a serious finding.
    """
    name, before = options.name, options.before
    if before is None:
        now, earlier = read(name, budget=options.budget).specification, None
    else:
        now, earlier = (entry.specification for entry in read_two(name, before, budget=options.budget))
        if now.budget.is_free or earlier.budget.is_free:
            what = "the budget is a letter, so nothing says whether it fell"
            raise wrong(what, where=name if now.budget.is_free else before, remedy="give it: --budget 1")
    findings = findings_of(now, before=earlier, records=options.records)
    blocks: list[OutputBlock] = []
    for each in findings:
        blocks += [Title(f"{each.severity}: {each.check}"), f"  {each.message}", f"  Advice: {each.advice}"]
    return Outcome(
        values={"findings": [picked(each, "check", "severity", "message", "advice") for each in findings]},
        blocks=blocks or ["nothing found; that is not a proof of protection"],
        passed=not any(each.severity == SERIOUS for each in findings),
    )


class SpecExportOptions(_NameOptions):
    """`stirred spec export`."""

    format_: Text = option("opendp (registry YAML; default), json or markdown.", form="NAME")
    title: Text = option("Title of the release.")
    curator: str = option("Who publishes it, for the registry.", "")
    out: Place = option("Write to this file instead of printing.")


def export(options: SpecExportOptions, _: Any) -> Outcome:
    """Export a specification to another format.

    OpenDP deployments registry, JSON or Markdown.
    """
    entry, format_, out = read(options.name, budget=options.budget), options.format_ or "opendp", options.out
    title = options.title or entry.title
    writers = {
        "opendp": lambda: to_registry(entry.specification, name=title, curator=options.curator),
        "json": lambda: to_json(entry.specification),
        "markdown": lambda: to_markdown(entry.specification, title=title),
    }
    if format_ == "latex":
        raise wrong(
            "LaTeX is no longer written; the last commit that has it is 03070069",
            where="--format",
            remedy="write --format markdown, whose formula is plain text that LaTeX can show",
        )
    if format_ not in writers:
        raise wrong(f"{format_!r} is not a format", where="--format", remedy=f"one of {', '.join(writers)}")
    if options.title is not None and format_ == "json":
        raise idle("--title")
    if options.curator and format_ != "opendp":
        raise idle("--curator")
    text = writers[format_]()
    values = {"name": options.name, "format": format_, "text": text}
    return Outcome(values=values, text=text if out is None else "", notes=notes_of(out, text))


# ---- from one specification to another ------------------------------------------------------------------------


class SpecComposeOptions(_DerivedOptions, UnitOptions):
    """`stirred spec compose`."""

    names: Names = argument("NAME|FILE...", "Two or more specifications.")
    unit: Text = option("The common unit, where they differ.", form="NAME")
    delta: Text = option("delta, if some must become approximate.", form="NUMBER")


def compose(options: SpecComposeOptions, _: Any) -> Outcome:
    """Compose releases into one specification.

    Every conversion is shown with its theorem.
    """
    names, delta = options.names, options.delta
    if len(names) < 2:
        raise wrong("there is one specification", where="stirred spec compose", remedy="give two or more")
    parts = [read(name).specification for name in names]
    for name, part in zip(names, parts, strict=True):
        if part.budget.is_free:
            remedy = f"give it one first: `stirred spec export {name} --budget 1 --format json --out chosen.json`"
            raise wrong("the budget is a letter without a value", where=name, remedy=remedy)
    stated = options.factors()
    derivation = compose_specifications(parts, unit=options.unit, units=stated, delta=delta)
    reached, present = derivation.specification, {part.input_premetric.unit for part in parts}
    if any(factor.old not in present or factor.new != reached.input_premetric.unit for factor in stated):
        raise idle("--kappa")
    all_approximate = all(part.output_premetric.name == "D_Mult^delta" for part in parts)
    if delta is not None and (all_approximate or reached.output_premetric.name != "D_Mult^delta"):
        raise idle("--delta")
    return _derived(derivation, title=" + ".join(names), out=options.out)


class ConvertOptions(_NameOptions, _DerivedOptions):
    """`stirred spec convert`."""

    output: Text = option(
        "To another output premetric: zcdp, approximate, gdp, renyi, tv, kl, hellinger or chi2.", form="NAME"
    )
    delta: Text = option("delta, for --output approximate.", form="NUMBER")
    order: Text = option("Order, for --output renyi.", form="NUMBER")
    method: Text = option("sharp or bun-steinke to zcdp; bun-steinke or cks to approximate.", form="NAME")
    at_distance: int | None = option("Compare files this many records apart (default: the nearest there are).")
    unit: Text = option("To another unit, by group privacy.", form="NAME")
    factor: Text = option("Largest number of old units that one new unit changes, for --unit.", form="NUMBER")
    because: str = option("Why the factor holds; kept as an assumption.", "")
    people: bool = option("With --unit: from records after imputation to the people behind them.", False)
    refine: Names = option("Hold fixed as well: 'household: size x tenure @ county' or 'person @ state'.", [])


def convert(options: ConvertOptions, _: Any) -> Outcome:
    """Convert a specification to another unit or measure.

    First --refine, then --unit, then --output; impossible conversions are refused.
    """
    _check_idle(options)
    unit, because = options.unit, options.because or STATED
    entry = read(options.name, budget=options.budget)
    derivation = Derivation(specification=entry.specification)
    if unit is not None and options.factor is not None and not options.people:
        with told_by_options():
            by_part = entry.in_unit(unit, factor=options.factor, because=because)
        derivation, unit = (derivation, unit) if by_part is None else (by_part, None)
    if options.refine:
        invariants = [invariant(text, derivation.specification) for text in options.refine]
        derivation = derivation.then(refine_specification(derivation.specification, invariants=invariants))
    if unit is not None:
        if options.factor is None:
            old = records_of(derivation.specification.input_premetric.unit)
            raise wrong(
                f"nothing says how many old units one {unit} changes",
                where="--factor",
                remedy=f"state the largest number of {old} that one {unit} changes, and why: --factor 6 --because "
                "'...'",
            )
        with told_by_options():
            post_imputation = False if options.people else None
            step = change_unit(derivation.specification, unit=unit, factor=options.factor, because=because,
                               post_imputation=post_imputation)  # fmt: skip
        derivation = derivation.then(step)
    if options.output is not None:
        target = output_premetric(options.output, delta=options.delta, order=options.order, takes_order=True)
        before = derivation.specification
        with told_by_options():
            step = change_output(before, to=target, method=options.method, at_distance=options.at_distance)
        if options.at_distance is not None and step.specification.input_premetric == before.input_premetric:
            raise idle("--at-distance")
        derivation = derivation.then(step)
    return _derived(derivation, title=options.name, out=options.out)


def _check_idle(options: ConvertOptions) -> None:
    """Refuse options that would have no effect: a user who gives one expects an effect."""
    if options.output is None and options.unit is None and not options.refine:
        raise wrong("nothing to convert to", where="stirred spec convert", remedy="give --output, --unit or --refine")
    output = (options.output or "").lower()
    to_approximate, to_renyi = output in ("approximate", "d_mult^delta"), output in ("renyi", "d_renyi")
    needs = {
        "delta": to_approximate,
        "order": to_renyi,
        "method": options.output is not None,
        "at_distance": to_approximate or to_renyi or output in ("kl", "d_kl", "chi2", "d_chi2"),
        "factor": options.unit is not None,
        "because": options.unit is not None,
        "people": options.unit is not None,
    }
    for name, has_effect in needs.items():
        if name in options.model_fields_set and not has_effect:
            raise idle("--" + name.replace("_", "-"))


class PullBackOptions(_NameOptions, _DerivedOptions):
    """`stirred spec pull-back`."""

    step: str = option("What was done to the file: recode, clip, filter, impute-copies, ...", ..., form="NAME")
    lipschitz: Text = option("How many records one record becomes, or the factor of a step of your own.", form="NUMBER")
    because: str = option("Why the factor holds; kept as an assumption.", "")
    stage: Text = option("The stage that is reached, such as raw-responses.", form="NAME")


def pull_back(options: PullBackOptions, _: Any) -> Outcome:
    """What is promised about the data before a step.

    Before an edit, a recode, an imputation, a join. Steps without a factor are refused.
    """
    entry = read(options.name, budget=options.budget)
    with told_by_options():
        more = picked(options, "lipschitz", "because", "stage")
        derivation = pulled_back(entry.specification, options.step, **more)
    return _derived(derivation, title=options.name, out=options.out)


def _derived(derivation: Derivation, *, title: str, out: Path | None) -> Outcome:
    """Return a derived specification with its steps, and write it if that is asked for."""
    steps = [step_facts(step) for step in derivation.steps]
    entry = CatalogueEntry(
        name=title, title=title, source="", notes=(), specification=derivation.specification, steps=derivation.steps
    )
    return Outcome(
        values={"specification": to_document(derivation.specification), "steps": steps},
        blocks=_shown(entry),
        notes=notes_of(out, to_json(derivation.specification)),
    )


def idle(option: str) -> SpecificationError:
    """Return (not raise) the error of an option that would have no effect."""
    return wrong("this option has no effect here", where=option, remedy="leave it out, or see --help")


COMMANDS: Final = (
    command("list", ListOptions, list_),
    command("show", SpecShowOptions, show),
    command("compose", SpecComposeOptions, compose),
    command("convert", ConvertOptions, convert),
    command("budget", SpecBudgetOptions, budget),
    command("pull-back", PullBackOptions, pull_back),
    command("lint", LintOptions, lint),
    command("export", SpecExportOptions, export),
    command("map", MapOptions, draw_map),
)
