"""`stirred compare`: swaps side by side on the custodian's own file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from stirred.cli.option_words import bad_plan, no_area
from stirred.cli.options import Json, Names, Place, arg, opt
from stirred.cli.output import bullets, emit, emit_json, exactly, heading, paragraph, picked, shown_progress, table
from stirred.cli.swap_options import NOWHERE, Quiet, names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stirred.data.microdata import Microdata
    from stirred.mechanisms.protocol import Progress
    from stirred.release.prepared import Prepared
    from stirred.risk.attackers import AttackerColumns
    from stirred.risk.attacks import PlanRisk
    from stirred.utility.comparison import MechanismComparison

_OF_AREA = ("area", "records", "share_changed")


def compare(
    plans: Annotated[list[Path], arg("PLAN.toml...", "Plans for one and the same file.")],
    family: Annotated[bool, opt("--family", "With one plan: all members of the swapping family beside it.")] = False,
    equal: Annotated[
        str, opt("--equal NAME", "With --family: at an equal share 'changed', or an equal 'epsilon'.")
    ] = "changed",
    expect_from: Annotated[
        str, opt("--expect-from FILE", "Error of the plan's tables from: margins, or this-data (confidential).")
    ] = "margins",
    attack: Annotated[
        bool, opt("--attack", "Also draw each plan once as a test and attack it: CONFIDENTIAL, spends nothing.")
    ] = False,
    area: Annotated[
        Names, opt("--area COLUMN", "With --attack: the area of the tables (default: block); repeat.")
    ] = None,
    known: Annotated[
        Names, opt("--known COLUMN", "With --attack: what is known of a person (default: sex, age); repeat.")
    ] = None,
    learn: Annotated[
        Names, opt("--learn COLUMN", "With --attack: what is to be learned (default: race, hispanic); repeat.")
    ] = None,
    out: Annotated[Place, opt("--out FILE", "Also write a page with a plot; must not exist.")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Compare plans on a file: promise, cost, and who is exposed.

    Nothing random happens, but for the test draws of --attack.
    """
    from stirred.data.place import file_at
    from stirred.inference.swap_moments import expected_errors
    from stirred.release.advice import relatives
    from stirred.release.ledger.row import by_part
    from stirred.release.plan_file import read_plan
    from stirred.release.prepared import prepare
    from stirred.report.comparison import (
        INSIDE,
        NOT_RANKED,
        block_by_block,
        comparison_page,
        promises,
        rests_on,
        risks,
        rows,
    )
    from stirred.utility.comparison import compare_mechanisms

    if family == (len(plans) > 1):
        what = "one plan is compared with its family, or several with each other"
        raise bad_plan(what, where="stirred compare", remedy="give one plan and --family, or two plans and more")
    if expect_from not in ("margins", "this-data"):
        raise bad_plan(f"'{expect_from}' is not known", where="--expect-from", remedy="write margins or this-data")
    if out is not None and out.exists():
        raise bad_plan("something is already there", where=str(out), remedy="choose a new file")
    _check_attack(attack=attack, family=family, others={"--area": area, "--known": known, "--learn": learn})
    prepared = [prepare(read_plan(path, out=NOWHERE)) for path in plans]
    first = prepared[0]
    persons = {each.inputs["persons"] for each in prepared if "persons" in each.inputs}
    # One plan may name the persons too; the records tell whether it is the same file.
    if len({by_part(each.inputs)["records"] for each in prepared}) > 1 or len(persons) > 1:
        raise bad_plan(
            "the plans are for different files", where="stirred compare", remedy="compare plans for the same files"
        )
    wanted = list(dict.fromkeys(table.variables for each in prepared for table in each.tables))
    if family:
        swaps = relatives(first.data, first.mechanism, equal=equal)
        errors = partial(expected_errors, tables=wanted, source=expect_from)
        found = compare_mechanisms(first.data, swaps, errors=errors)
    else:
        found = [_planned(path.stem, each, wanted, expect_from) for path, each in zip(plans, prepared, strict=True)]
    faced: list[PlanRisk] = []
    if not family:
        asked = _asked(first.data, area, known, learn) if attack else None
        with shown_progress(quiet=quiet or not attack) as progress:
            faced = _faced(prepared, asked, wanted, beside=out, progress=progress)
    header, lines = rows(found)
    kind = "Swaps of" if family else "Plans for"
    if out is not None:
        title = f"{'CONFIDENTIAL: ' if attack else ''}{kind} {first.data.name} side by side"
        with file_at(out, private=True) as half:  # who is exposed is computed from the confidential file
            half.write_text(comparison_page(title, found, source=expect_from, faced=faced), encoding="utf-8")
    if json:
        told = [each.facts for each in faced] or [{}] * len(found)
        both = [{**_facts(each), **more} for each, more in zip(found, told, strict=True)]
        emit_json({"equal": equal if family else None, "confidential": attack, "swaps": both})
        return
    how = {"changed": "at an equal share of changed records", "epsilon": "at an equal loss"}[equal]
    heading(f"{kind} {first.data.name}, {how if family else 'as planned'}")
    table(header, lines)
    paragraph(rests_on(found, source=expect_from))
    if len(found) > 1:
        bullets(block_by_block(found))
    if faced:
        names_ = ["", *(each.name for each in found)]
        heading("The promises, and what an attacker can do")
        table(names_, [*promises(found), *risks(faced)])
        paragraph(NOT_RANKED)
        paragraph(
            INSIDE if attack else "Attacks and measured errors need a test draw: --attack. They are confidential."
        )
    if out is not None:
        emit(f"page  {out}")


def _planned(name: str, prepared: Prepared, tables: Sequence[Sequence[str]], source: str) -> MechanismComparison:
    """Return one plan on the file as it prepares it, with the promise that it makes."""
    from stirred.inference.swap_moments import expected_errors
    from stirred.utility.comparison import compare_mechanisms

    columns = {*prepared.data.households.columns, *prepared.data.person_variables}
    there = [names for names in tables if {*names} <= columns]
    own = [(name, prepared.mechanism)]
    errors = partial(expected_errors, tables=there, source=source)
    return compare_mechanisms(prepared.data, own, errors=errors, plans=[prepared.plan])[0]


def _check_attack(*, attack: bool, family: bool, others: Mapping[str, Sequence[str] | None]) -> None:
    """Refuse options that say nothing without the others."""
    if attack and family:
        what = "members of the family that no plan names are not drawn"
        raise bad_plan(what, where="--attack", remedy="write each as a plan, and compare the plans")
    for name, given in others.items():
        if given and not attack:
            raise bad_plan("it is about attacks", where=name, remedy="add --attack, or leave it out")


def _asked(
    data: Microdata, area: list[str] | None, known: list[str] | None, learn: list[str] | None
) -> AttackerColumns:
    """Return what an attacker knows and wants; refuse columns that were named and are not there."""
    from stirred.data.microdata import missing_column
    from stirred.data.problems import DataError
    from stirred.risk.attackers import AttackerColumns

    given = {"area": names(area), "known": names(known), "learn": names(learn)}
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
    if not area and asked.area[0] not in columns:
        raise no_area(asked.area[0])
    return asked


def _faced(
    prepared: Sequence[Prepared],
    asked: AttackerColumns | None,
    tables: Sequence[Sequence[str]],
    *,
    beside: Path | None,
    progress: Progress | None,
) -> list[PlanRisk]:
    """Return what each plan leaves to an attacker, measured on a draw that is removed again where one is asked for."""
    import os
    from dataclasses import replace
    from tempfile import gettempdir

    from stirred.data.place import claimed
    from stirred.randomness.entropy import Entropy
    from stirred.release.trial import trial_draw
    from stirred.risk.attacks import attack_draw, plan_risk
    from stirred.risk.subject import Subject

    found = []
    for each in prepared:
        truth = Subject(
            name=each.planned.source,
            data=each.data,
            specification=each.plan.specification,
            exchanged=each.mechanism.areas,
            kept_persons=tuple(each.plan.releases.get("persons", ())),
            publishes_fixed=each.plan.publishes_fixed,
        )
        one = plan_risk(truth)
        if asked is not None:
            # On the custodian's own disk, for its owner alone; the next run there sweeps what a killed one left.
            folder = each.planned.folder if beside is None else beside.parent
            own = folder if os.access(folder, os.W_OK | os.X_OK) else Path(gettempdir())
            with claimed(own / f"stirred-compare-{os.getpid()}") as place:
                levels = [(name, asked.learn[0]) for name in dict.fromkeys((*each.mechanism.areas, *asked.area))]
                bundle, attack = place.folder / "draw", place.folder / "attack"
                trial_draw(each, bundle, Entropy.from_seed("stirred compare"), progress=progress)
                drawn = attack_draw(bundle, truth, asked, folder=attack, tables=tables or levels, progress=progress)
            one = replace(one, drawn=drawn)
        found.append(one)
    return found


def _facts(each: MechanismComparison) -> dict[str, Any]:
    from stirred.spec.document import to_document

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
