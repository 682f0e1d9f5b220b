"""The mechanism that fits a custodian's wishes, on the screen, as JSON, and as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from stirred.cli.option_words import bad_plan
from stirred.cli.output import emit, emit_json, facts, five, heading, paragraph, say, table
from stirred.cli.plan_shown import doubt_facts, errors_out
from stirred.cli.swap_options import Options, names
from stirred.data.microdata import Microdata
from stirred.mechanisms.protocol import doubt_rows
from stirred.release.advice import RESTS_ON, Advice, propose
from stirred.release.choices import CHOOSING, candidates
from stirred.release.plan_file import PlanFile, plan_from, write_plan
from stirred.release.prepared import Prepared, prepare
from stirred.release.scan import problems_of
from stirred.spec.doubts import Doubt, refuse_doubts
from stirred.spec.explanation import explain, promise_rows
from stirred.spec.given_numbers import loss
from stirred.spec.problems import StirredError


@dataclass(frozen=True, slots=True, kw_only=True)
class Wished:
    """The wishes as they were given on the command line."""

    exact: list[str] | None
    undisturbed: list[str] | None
    epsilon: str | None
    at_most: str | None
    changed: str | None
    write: Path | None

    @property
    def given(self) -> bool:
        """Say whether there is any wish that only advice can answer; a loss alone may be meant for one member."""
        return any((self.exact, self.undisturbed, self.at_most, self.changed, self.write))


def show_advice(options: Options, wished: Wished, *, verbose: bool, as_json: bool) -> None:
    """Print the advice, or its JSON, and write the plan where one was asked for."""
    if wished.at_most is not None and not wished.undisturbed:
        remedy = "name them with --undisturbed"
        raise bad_plan("it is a limit for undisturbed areas, and none is named", where="--at-most", remedy=remedy)
    if wished.write is not None and wished.write.exists():
        raise bad_plan("something is already there", where=str(wished.write), remedy="choose a new file")
    # Reads and checks the files as any plan does; the match variables are not known yet.
    data = prepare(replace(options, rate="1/2").planned()).data
    advice = propose(
        data,
        swap=names(options.swap),
        exact=wished.exact or (),
        epsilon=wished.epsilon,
        undisturbed=wished.undisturbed or (),
        at_most=wished.at_most or "10%",
        changed=wished.changed or "5%",
        hold=None if options.hold is None else names(options.hold),
        unit=options.unit,
    )
    if wished.write is not None:
        _write(advice, options, wished.write)
    doubts = advice.plan.doubts
    accepted = [doubt for doubt in doubts if doubt.name in (names(options.accept) or ()) and not doubt.final]
    problems = [*problems_of(lambda: refuse_doubts(doubt for doubt in doubts if doubt not in accepted))]
    if as_json:
        written = None if wished.write is None else str(wished.write)
        errors = {"errors": errors_out(problems)} if problems else {}
        emit_json({**advice.values, "doubts": doubt_facts(doubts, accepted), "written": written, **errors})
        if problems:
            raise typer.Exit(StirredError.exit_code)
        return
    _show(advice, accepted, verbose=verbose)
    if wished.write is not None:
        emit()
        next_step = [] if problems else [("next", f"stirred release {wished.write}")]
        facts([("plan", str(wished.write)), *next_step])
    elif advice.chosen is not None:
        paragraph("Nothing was written. --write PLAN.toml writes this as a plan.")
    if problems:
        raise StirredError(problems)


def _write(advice: Advice, options: Options, path: Path) -> None:
    if advice.chosen is None:
        raise bad_plan(
            f"no member meets all wishes, so there is no plan to write: {advice.proposals[0].name} comes closest",
            where=str(path),
            remedy="ask without --write to see what each falls short of, and wish for less",
        )
    asked = f"Proposed by `stirred plan`, wishes: {advice.wishes}."
    plan = plan_of(advice.chosen.section, advice.wishes.exact, options, path)
    write_plan(plan, path, remarks=[asked, RESTS_ON])


def write_options(prepared: Prepared, path: Path) -> None:
    """Write what the options say as a plan; doubts stay open in it, and a release refuses it until they are settled.

    A name that matches no doubt is refused first: in the plan it would be refused at every release.
    """
    if prepared.ledger is not None:
        what, remedy = "the place of a ledger is not written", "leave it out, and add it to the plan"
        raise bad_plan(what, where="--ledger", remedy=remedy)
    if {*prepared.plan_file.release.accept} - {doubt.name for doubt in prepared.doubts if doubt.refuses}:
        prepared.refuse()
    write_plan(prepared.plan_file, path, remarks=["The options of `stirred plan`, as a plan."])


def plan_of(section: Mapping[str, Any], tables: Sequence[Sequence[str]], options: Options, path: Path) -> PlanFile:
    """Return the plan of a proposal; the exact margins become tables, and the bundle gets the plan's name."""
    margins = [" x ".join(variables) for variables in tables]
    told = replace(
        options,
        rate="1/2",  # in place of the settings, which are not those of the options
        table=list(dict.fromkeys((*margins, *(options.table or ())))),
        out=Path(f"{path.stem}-bundle"),
    )
    content = told.planned().model_dump(exclude_defaults=True)
    return plan_from({**content, "mechanism": section}, source=str(path), folder=Path())


def _show(advice: Advice, accepted: Sequence[Doubt], *, verbose: bool) -> None:
    chosen, grid = advice.chosen, advice.grid
    if chosen is None:
        heading("No member meets all wishes")
    else:
        heading(f"Proposed: {chosen.name}, {chosen.setting}, epsilon {chosen.epsilon.shown()}")
    facts(
        [
            ("wishes", str(advice.wishes)),
            ("unchanged", advice.plan.unchanged),
            # Without a proposal there is no one loss: the table has each candidate's.
            *(promise_rows(advice.plan.specification) if chosen is not None else []),
            *doubt_rows(advice.plan.doubts, accepted=accepted),
        ]
    )
    if verbose:
        emit()
        five(explain(advice.plan.specification), without="" if chosen is not None else "how much")
    table(list(grid.header), [[str(cell) for cell in row] for row in grid.rows])
    paragraph(RESTS_ON)


def show_choices(
    file: Path,
    geography: list[str],
    cross: list[str] | None,
    id: list[str] | None,
    persons: Path | None,
    hid: str | None,
    *,
    unit: str,
    epsilon: str | None,
    as_json: bool,
) -> None:
    """Print the choices, or their JSON."""
    data = Microdata.read(file, persons, hid=hid, id=names(id))
    target = None if epsilon is None else loss(epsilon, where="--epsilon")
    found = candidates(data, levels=names(geography), cross=names(cross), epsilon=target, unit=unit)
    doubts = [doubt for choice in found for doubt in choice.doubts]
    if as_json:
        shown = {"choices": [choice.values for choice in found], "warning": CHOOSING}
        emit_json({**shown, "doubts": doubt_facts(doubts)})
        return
    for doubt in doubts:
        say(f"Doubt, {doubt.name}: {doubt}")
    for choice in found:
        heading(choice.name)
        facts(choice.rows, indent=2)
        emit()
    paragraph(CHOOSING)
