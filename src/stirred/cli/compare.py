"""`stirred compare`: plans, releases or specifications side by side."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, Final, Literal

from stirred.cli.option_words import no_area, told_by_options
from stirred.cli.options import Columns, Names, Place, Text, argument, command, option
from stirred.cli.output import exactly, picked
from stirred.cli.publish import EDITION, EditionName, edition_facts, write_page
from stirred.cli.spec_given import BUDGET, UnitOptions, counted, price_facts, read, read_two
from stirred.data.place import claimed, file_at
from stirred.data.problems import DataError, bad_plan
from stirred.mechanisms.groups import Bullets, FactRows, Outcome, OutputBlock, Title
from stirred.mechanisms.protocol import Grid
from stirred.spec import compare as compare_specifications
from stirred.spec.catalogue import CatalogueEntry, atlas
from stirred.spec.document import to_document
from stirred.spec.prices import CALLED, Price, axes, price
from stirred.spec.problems import wrong

if TYPE_CHECKING:
    from stirred.data.microdata import Microdata
    from stirred.mechanisms.protocol import Progress
    from stirred.release.prepared import Prepared
    from stirred.risk.attackers import AttackerColumns
    from stirred.risk.attacks import PlanRisk
    from stirred.utility.comparison import MechanismComparison

_OF_AREA: Final = ("area", "records", "share_changed")
_OF_PLANS: Final = ("equal", "expect_from", "attack", "area", "known", "learn")
_OF_SPECIFICATIONS: Final = ("kappa", "because", "count", "beta", "budget")


class ThingsOptions(UnitOptions):
    """`stirred compare`."""

    things: Names = argument("PLAN.toml|BUNDLE|SPEC...", "All of one kind; a SPEC is a file, or a catalogue name.")
    equal: Literal["changed", "epsilon"] = option(
        "Of one plan: all members of the swapping family, at an equal share of changed records or an equal loss.",
        "changed",
    )
    expect_from: Literal["margins", "this-data"] = option(
        "Of plans: what errors of tables are expected from; this-data is confidential.", "margins"
    )
    attack: bool = option("Of plans: also draw each once as a test and attack it: CONFIDENTIAL, spends nothing.", False)
    area: Columns = option("With --attack: the area of the tables (default: block).", [], form="COLUMN")
    known: Columns = option("With --attack: what is known of a person (default: sex, age).", [], form="COLUMN")
    learn: Columns = option("With --attack: what is to be learned (default: race, hispanic).", [], form="COLUMN")
    edition: EditionName = option(f"Of bundles: the report to compare. {EDITION}", "public")
    count: Names = option(
        "Of specifications: how many values a level or variable has, for prices: state=51.", [], form="NAME=NUMBER"
    )
    beta: str = option("Chance, for prices, that noise changes any of the counts.", "0.05", form="SHARE")
    budget: Text = option(BUDGET, form="NUMBER")
    out: Place = option("Of plans and bundles: also write a page; must not exist.")


def compare(options: ThingsOptions, progress: Progress | None) -> Outcome:
    """Compare plans, releases or specifications, any number.

    Plans for one file: promise, cost, and who is exposed; one plan alone with its swapping family. Releases: promise,
    exposure, accuracy, validity. Specifications: block by block, with prices of what is published exactly; one
    specification is priced alone.
    There is an overall verdict only where a theorem gives one, and nothing is ranked across flavors.
    """
    kinds = {_kind(name) for name in options.things}
    given = options.model_fields_set
    if kinds == {"plan"}:
        _refuse_idle(given, {*_OF_SPECIFICATIONS, "edition"}, "plans")
        return _plans(options, [Path(name) for name in options.things], progress)
    if kinds == {"bundle"} and len(options.things) > 1 and not given & {*_OF_SPECIFICATIONS}:
        _refuse_idle(given, {*_OF_PLANS}, "bundles")
        return _releases(options, [Path(name) for name in options.things])
    if "plan" in kinds:
        what, remedy = "plans are compared with plans", "name plans alone, or the bundles that they made"
        raise wrong(what, where="stirred compare", remedy=remedy)
    _refuse_idle(given, {*_OF_PLANS, "edition", "out"}, "specifications")
    return _specifications(options)


def _kind(name: str) -> str:
    """Say whether a plan, a bundle or a specification is named."""
    path = Path(name)
    if path.is_dir():
        return "bundle"
    if path.suffix == ".toml":
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError, RecursionError):
            return "plan"  # whose reader says what is wrong
        return "specification" if "domain" in content or "schema_version" in content else "plan"
    return "specification"


def _refuse_idle(given: set[str], idle: set[str], kind: str) -> None:
    for name in sorted(given & idle):
        what = f"this option has no effect on {kind}"
        raise wrong(what, where=f"--{name.replace('_', '-')}", remedy="leave it out, or see --help")


# ---- specifications -------------------------------------------------------------------------------


def _specifications(options: ThingsOptions) -> Outcome:
    """Compare two specifications, or the first with each other one; price one alone."""
    first, *others = options.things
    if not others:
        return _priced(options, first)
    pairs = [_two(options, first, other) for other in others]
    if len(pairs) == 1:
        return pairs[0]
    blocks: list[OutputBlock] = []
    for each in pairs:
        blocks += [*each.blocks, ""]
    return Outcome(values={"comparisons": [each.values for each in pairs]}, blocks=blocks)


def _two(options: ThingsOptions, a: str, b: str) -> Outcome:
    first, second = read_two(a, b, budget=options.budget)
    units = {first.specification.input_premetric.unit, second.specification.input_premetric.unit}
    stated = options.factors()
    for factor in stated:
        if not {factor.old, factor.new} <= units:
            remedy = f"use {', '.join(sorted(units))}"
            raise wrong(f"{factor.old} and {factor.new} are not the units here", where="--kappa", remedy=remedy)
    comparison = compare_specifications(first.specification, second.specification, units=stated)
    counts = counted(options.count)
    if counts.keys() - axes(first.specification) - axes(second.specification):
        raise wrong("this option has no effect here", where="--count", remedy="leave it out, or see --help")
    prices = {name: _prices(entry, counts, options) for name, entry in (("first", first), ("second", second))}
    arrows = _on_the_map(first, second)
    values = {
        "first": {"name": a, "notation": comparison.first.notation},
        "second": {"name": b, "notation": comparison.second.notation},
        "blocks": {each.block: picked(each, "question", "verdict", "reason") for each in comparison.blocks},
        **picked(comparison, "overall", "because", "to_change"),
        "map": arrows,
        "prices": {name: [price_facts(each) for each in found] for name, found in prices.items()},
    }

    def shown() -> Iterator[OutputBlock]:
        yield Title(f"{first.title}: {first.specification.budget_text}")
        yield "  compared with"
        yield Title(f"{second.title}: {second.specification.budget_text}")
        yield ""
        yield FactRows([(each.question, f"{_verdict(each.verdict)}: {each.reason}") for each in comparison.blocks])
        overall = _verdict(comparison.overall) if comparison.overall else "no verdict"
        yield from ("", f"Overall: {overall}. {comparison.because}")
        for title, lines in (
            ("On the map of definitions, which knows how their units relate (`stirred spec map`):", arrows),
            ("For a verdict one would have to:", comparison.to_change),
            (f"What is published exactly, priced as noise ({CALLED}):",
             [f"{name}: {each}" for name, found in prices.items() for each in found]),
        ):  # fmt: skip
            if lines:
                yield from ("", title, Bullets(lines))

    return Outcome(values=values, blocks=[*shown()])


def _prices(entry: CatalogueEntry, counts: dict[str, int], options: ThingsOptions) -> tuple[Price, ...]:
    """Return the prices of the invariants, with those of the stated numbers of values that concern them."""
    known = axes(entry.specification)
    with told_by_options():
        own = {name: number for name, number in counts.items() if name in known}
        return price(entry.specification, counts=own, beta=options.beta)


def _priced(options: ThingsOptions, name: str) -> Outcome:
    """Price what one specification publishes exactly, as noise: the budget that would leave the figures as they are."""
    entry = read(name, budget=options.budget)
    specification = entry.specification
    with told_by_options():
        counts = counted(options.count)
        prices = price(specification, counts=counts, beta=options.beta, units=options.factors())
    values = {"notation": specification.notation, "budget": specification.budget_text, "called": CALLED}
    return Outcome(
        values={**values, "prices": [price_facts(each) for each in prices]},
        blocks=[
            Title(f"{entry.title}: {specification.budget_text}"),
            f"What is published exactly, priced as noise: {CALLED}.",
            Bullets([str(each) for each in prices] or ["nothing is published exactly"]),
            "A price is that of this noise. It is no bound, adds nothing to the budget, and protects nothing.",
        ],
    )


def _on_the_map(first: CatalogueEntry, second: CatalogueEntry) -> list[str]:
    """Return the arrows that lead from one definition to the other, in either direction; none for a release."""
    if {first.kind, second.kind} != {"definition"}:
        return []
    found = atlas.path(first.name, second.name) or atlas.path(second.name, first.name)
    return [f"{arrow.stronger} implies {arrow.weaker}: {arrow.because}" for arrow in found]


def _verdict(word: str) -> str:
    return f"the first is {word.upper()}" if word in ("stronger", "weaker") else word.upper()


# ---- releases -------------------------------------------------------------------------------------


def _releases(options: ThingsOptions, bundles: Sequence[Path]) -> Outcome:
    from stirred.report.editions import comparison_of, edition_of, in_words, names_of, side_by_side, verdicts

    found = [edition_of(bundle, options.edition) for bundle in bundles]
    internal = options.edition == "internal"
    if options.out is not None:
        write_page(options.out, comparison_of(found, internal=internal).encode(), bundles=bundles, internal=internal)
    seen = verdicts(found)
    named = zip(names_of(found), found, strict=True)
    header, rows = side_by_side(found)
    compared = [
        {"what": name, "overall": each.overall, "because": each.because,
         "blocks": {b.block: {"verdict": b.verdict, "reason": b.reason} for b in each.blocks}}
        for name, each in seen
    ]  # fmt: skip
    return Outcome(
        values={"releases": [{"name": name, **edition_facts(each)} for name, each in named], "compared": compared},
        blocks=[_grid(header, rows), Bullets([f"{name}: {in_words(each)}" for name, each in seen])],
    )


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    return Grid(header=tuple(header), rows=tuple(tuple(row) for row in rows))


# ---- plans ----------------------------------------------------------------------------------------


def _plans(options: ThingsOptions, plans: Sequence[Path], progress: Progress | None) -> Outcome:
    """Compare plans on a file; nothing random happens, but for the test draws of --attack."""
    from stirred.inference.swap_moments import expected_errors
    from stirred.release.advice import relatives
    from stirred.release.ledger.row import by_part
    from stirred.report.comparison import comparison_page
    from stirred.utility.comparison import compare_mechanisms

    attack, out, source = options.attack, options.out, options.expect_from
    equal = options.equal if len(plans) == 1 else None  # several plans are compared with each other, as they are
    if equal is None and "equal" in options.model_fields_set:
        what = "one plan is compared with its family, and several with each other"
        raise bad_plan(what, where="--equal", remedy="leave it out, or give one plan")
    if out is not None and out.exists():
        raise bad_plan("something is already there", where=str(out), remedy="choose a new file")
    _check_attack(options, family=equal is not None)
    prepared = _prepared(plans)
    first = prepared[0]
    persons = {each.inputs["persons"] for each in prepared if "persons" in each.inputs}
    # One plan may name the persons too; the records tell whether it is the same file.
    if len({by_part(each.inputs)["records"] for each in prepared}) > 1 or len(persons) > 1:
        what, remedy = "the plans are for different files", "compare plans for the same files"
        raise bad_plan(what, where="stirred compare", remedy=remedy)
    wanted = list(dict.fromkeys(table.variables for each in prepared for table in each.tables))
    faced: list[PlanRisk] = []
    if equal is not None:
        swaps = relatives(first.data, first.mechanism, equal=equal)
        errors = partial(expected_errors, tables=wanted, source=source)
        found = compare_mechanisms(first.data, swaps, errors=errors)
    else:
        found = [_planned(path.stem, each, wanted, source) for path, each in zip(plans, prepared, strict=True)]
        asked = _asked(first.data, options) if attack else None
        faced = _faced(prepared, asked, wanted, page=out, progress=progress if attack else None)
    title = f"{'Swaps of' if equal else 'Plans for'} {first.data.name}"
    if out is not None:
        page = f"{'CONFIDENTIAL: ' if attack else ''}{title} side by side"
        with file_at(out, private=True) as half:  # who is exposed is computed from the confidential file
            half.write_text(comparison_page(page, found, source=source, faced=faced), encoding="utf-8")
    told = [each.facts for each in faced] or [{}] * len(found)
    swaps_out = [{**_facts(each), **more} for each, more in zip(found, told, strict=True)]
    how = "as planned"
    if equal is not None:
        how = {"changed": "at an equal share of changed records", "epsilon": "at an equal loss"}[equal]
    return Outcome(
        values={"equal": equal, "confidential": attack, "swaps": swaps_out},
        blocks=_plans_shown(f"{title}, {how}", found, faced, options),
    )


def _plans_shown(
    title: str, found: Sequence[MechanismComparison], faced: Sequence[PlanRisk], options: ThingsOptions
) -> Iterator[OutputBlock]:
    from stirred.report.comparison import INSIDE, NOT_RANKED, block_by_block, promises, rests_on, risks, rows

    yield Title(title)
    yield _grid(*rows(found))
    yield rests_on(found, source=options.expect_from)
    if len(found) > 1:
        yield Bullets(block_by_block(found))
    if faced:
        yield Title("The promises, and what an attacker can do")
        yield _grid(["", *(each.name for each in found)], [*promises(found), *risks(faced)])
        yield NOT_RANKED
        yield (
            INSIDE
            if options.attack
            else ("Attacks and measured errors need a test draw: --attack. They are confidential.")
        )
    if options.out is not None:
        yield f"page  {options.out}"


def _prepared(plans: Sequence[Path]) -> list[Prepared]:
    from stirred.cli.plan_options import NOWHERE
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare

    return [prepare(read_plan(path, out=NOWHERE)) for path in plans]


def _planned(name: str, prepared: Prepared, tables: Sequence[Sequence[str]], source: str) -> MechanismComparison:
    """Return one plan on the file as it prepares it, with the promise that it makes."""
    from stirred.inference.swap_moments import expected_errors
    from stirred.utility.comparison import compare_mechanisms

    columns = {*prepared.data.households.columns, *prepared.data.person_variables}
    there = [names for names in tables if {*names} <= columns]
    own = [(name, prepared.mechanism)]
    errors = partial(expected_errors, tables=there, source=source)
    return compare_mechanisms(prepared.data, own, errors=errors, plans=[prepared.plan])[0]


def _check_attack(options: ThingsOptions, *, family: bool) -> None:
    """Refuse options that say nothing without the others."""
    if options.attack and family:
        what = "members of the family that no plan names are not drawn"
        raise bad_plan(what, where="--attack", remedy="write each as a plan, and compare the plans")
    for name in ("area", "known", "learn"):
        if getattr(options, name) and not options.attack:
            raise bad_plan("it is about attacks", where=f"--{name}", remedy="add --attack, or leave it out")


def _asked(data: Microdata, options: ThingsOptions) -> AttackerColumns:
    """Return what an attacker knows and wants; refuse columns that were named and are not there."""
    from stirred.data.microdata import missing_column
    from stirred.risk.attackers import AttackerColumns

    given = picked(options, "area", "known", "learn")
    columns = [*data.variables, *data.person_variables]
    problems = [
        missing_column(name, columns, where=f"--{role}", role="a column")
        for role, own in given.items()
        for name in own
        if name not in columns
    ]
    if problems:
        raise DataError(problems)
    asked = AttackerColumns(**{role: tuple(own) for role, own in given.items() if own})
    if not options.area and asked.area[0] not in columns:
        raise no_area(asked.area[0])
    return asked


def _faced(
    prepared: Sequence[Prepared],
    asked: AttackerColumns | None,
    tables: Sequence[Sequence[str]],
    *,
    page: Path | None,
    progress: Progress | None,
) -> list[PlanRisk]:
    """Return what each plan leaves to an attacker; if asked for, measured on a draw that is removed again."""
    from stirred.cli.risk import subject_of_plan
    from stirred.randomness.entropy import Entropy
    from stirred.release.rehearsal import draw_without_release
    from stirred.risk.attacks import attack_draw, plan_risk

    found = []
    for each in prepared:
        truth = subject_of_plan(each, name=each.plan_file.source)
        one = plan_risk(truth)
        if asked is not None:
            # On the custodian's own disk, for its owner alone; the next run there sweeps what a killed one left.
            folder = each.plan_file.folder if page is None else page.parent
            own = folder if os.access(folder, os.W_OK | os.X_OK) else Path(gettempdir())
            with claimed(own / f"stirred-compare-{os.getpid()}") as place:
                levels = [(name, asked.learn[0]) for name in dict.fromkeys((*each.mechanism.areas, *asked.area))]
                bundle, attack = place.folder / "draw", place.folder / "attack"
                draw_without_release(each, bundle, Entropy.from_seed("stirred compare"), progress=progress)
                drawn = attack_draw(bundle, truth, asked, folder=attack, tables=tables or levels, progress=progress)
            one = replace(one, drawn=drawn)
        found.append(one)
    return found


def _facts(each: MechanismComparison) -> dict[str, Any]:
    smallest = each.smallest_area
    return {
        "name": each.name,
        "setting": each.setting,
        **exactly(epsilon=each.epsilon),
        "share_moved": each.plan.moved,
        "share_changed": each.changed,
        "smallest_area": None if smallest is None else dict(zip(_OF_AREA, smallest, strict=True)),
        "areas": None if each.areas is None else each.areas.to_dicts(),
        "expected_error": [
            {"table": name, **picked(error, "source", "mean_absolute_error", "mean_absolute_percentage_error")}
            for name, error in each.errors
        ],
        "specification": to_document(each.plan.specification),
    }


COMMANDS: Final = (command("compare", ThingsOptions, compare, progress=True),)
