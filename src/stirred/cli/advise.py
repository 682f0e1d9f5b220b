"""`stirred advise`: the mechanism that fits a custodian's wishes, or the choices that a geography has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from stirred.cli.options import Columns, Names, Place, Text, argument, command, option
from stirred.cli.output import five_blocks
from stirred.cli.plan import doubt_facts
from stirred.cli.plan_options import NOWHERE, SET_HELP, SWAP_HELP, PlanOptions, RecordOptions
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_plan
from stirred.mechanisms.groups import FactRows, Outcome, OutputBlock, Title
from stirred.mechanisms.protocol import doubt_rows
from stirred.release.advice import RESTS_ON, Advice, propose
from stirred.release.choices import CHOOSING, candidates
from stirred.release.plan_file import PlanFile, plan_from, write_plan
from stirred.release.prepared import prepare
from stirred.release.scan import problems_of
from stirred.spec.doubts import Doubt, refuse_doubts
from stirred.spec.explanation import explain, promise_rows
from stirred.spec.given_numbers import loss

# What a file has besides its choices of match and swap.
_OF_FILE: Final = ("file", "geography", "cross", "epsilon", "id", "persons", "hid", "set_")


class AdviseOptions(RecordOptions):
    """`stirred advise`."""

    file: Path = argument("FILE", "The household file.")
    swap: Columns = option(SWAP_HELP, [], form="COLUMN")
    set_: Names = option(SET_HELP, [], form="KEY=VALUE")
    exact: Names = option("Wish: counts that must stay exact, such as 'county x size'.", [], form="TABLE")
    undisturbed: Names = option(
        "Wish: an area, a value of a swap variable, that should be left alone.", [], form="AREA"
    )
    at_most: Text = option("Of the records of such an area so many may change (default 10%).", form="SHARE")
    changed: Text = option(
        "Wish: at least this share of all records should get another swap value (default 5%).", form="SHARE"
    )
    epsilon: Text = option("Wish: the loss.", form="NUMBER")
    geography: Columns = option(
        "Instead: levels from the finest to the coarsest; compare the choices of match and swap they allow.",
        [], form="COLUMN",
    )  # fmt: skip
    cross: Columns = option("With --geography: further match variables to try.", [], form="COLUMN")
    write: Place = option("Write what is proposed as a plan; must not exist.", form="PLAN.toml")
    verbose: bool = option("Print the five answers in full as well.", False)

    def in_plan(self, **changes: Any) -> PlanOptions:
        """Return what a plan takes of these options; a rate stands in for the settings that are asked for."""
        own = {name: getattr(self, name) for name in ("swap", "set_", *RecordOptions.model_fields)}
        return PlanOptions.model_construct(rate="1/2", **{**own, **changes})


def advise(options: AdviseOptions, _: Any) -> Outcome:
    """Propose the swap that fits your wishes.

    It is a member of the swapping family. Or, with --geography, show the choices of match and swap variables that a
    geography has. Nothing is released.
    """
    if options.file.suffix == ".toml":
        what, remedy = "the plan file already fixes match and swap", "give the household file instead"
        raise bad_plan(what, where=str(options.file), remedy=remedy)
    if options.geography:
        return _choices(options)
    if options.cross:
        remedy = "name the levels with --geography, or leave it out"
        raise bad_plan("--cross goes with --geography", where="--cross", remedy=remedy)
    return _proposal(options)


def _proposal(options: AdviseOptions) -> Outcome:
    """Return the advice, and write the plan if one is asked for."""
    write = options.write
    if options.at_most is not None and not options.undisturbed:
        remedy = "name them with --undisturbed"
        raise bad_plan("it is a limit for undisturbed areas, and none is named", where="--at-most", remedy=remedy)
    if write is not None and write.exists():
        raise bad_plan("something is already there", where=str(write), remedy="choose a new file")
    # Reads and checks the files as any plan does; the match variables are not known yet.
    plan = options.in_plan().planned(options.file, command="advise", out=NOWHERE)
    advice = propose(
        prepare(plan).data,
        swap=options.swap,
        exact=options.exact,
        epsilon=options.epsilon,
        undisturbed=options.undisturbed,
        at_most=options.at_most or "10%",
        changed=options.changed or "5%",
        hold=options.hold,
        unit=plan.settings.unit,
    )
    if write is not None:
        _write(advice, options, write)
    doubts = advice.plan.doubts
    accepted = [doubt for doubt in doubts if doubt.name in options.accept and not doubt.final]
    problems = [*problems_of(lambda: refuse_doubts(doubt for doubt in doubts if doubt not in accepted))]
    written = None if write is None else str(write)
    return Outcome(
        values={**advice.values, "doubts": doubt_facts(doubts, accepted), "written": written},
        blocks=_shown(advice, accepted, written, verbose=options.verbose, releasable=not problems),
        problems=problems,
    )


def _write(advice: Advice, options: AdviseOptions, path: Path) -> None:
    if advice.chosen is None:
        raise bad_plan(
            f"no member meets all wishes, so there is no plan to write: {advice.proposals[0].name} comes closest",
            where=str(path),
            remedy="ask without --write to see what each falls short of, and wish for less",
        )
    asked = f"Proposed by `stirred advise`, wishes: {advice.wishes}."
    plan = plan_of(advice.chosen.section, advice.wishes.exact, options, path)
    write_plan(plan, path, remarks=[asked, RESTS_ON])


def plan_of(
    section: Mapping[str, Any], tables: Sequence[Sequence[str]], options: AdviseOptions, path: Path
) -> PlanFile:
    """Return the plan of a proposal; the exact margins become tables, and the bundle gets the plan's name."""
    margins = [" x ".join(variables) for variables in tables]
    told = options.in_plan(table=list(dict.fromkeys((*margins, *options.table))))
    made = told.planned(options.file, command="advise", out=Path(f"{path.stem}-bundle"))
    content = made.model_dump(exclude_defaults=True)
    return plan_from({**content, "mechanism": section}, source=str(path), folder=Path())


def _shown(
    advice: Advice, accepted: Sequence[Doubt], written: str | None, *, verbose: bool, releasable: bool
) -> Iterator[OutputBlock]:
    chosen = advice.chosen
    if chosen is None:
        yield Title("No member meets all wishes")
    else:
        yield Title(f"Proposed: {chosen.name}, {chosen.setting}, epsilon {chosen.epsilon.shown()}")
    specification = advice.plan.specification
    rows = [
        ("wishes", str(advice.wishes)),
        ("unchanged", advice.plan.unchanged),
        # Without a proposal there is no one loss: the table has each candidate's.
        *(promise_rows(specification) if chosen is not None else []),
        *doubt_rows(advice.plan.doubts, accepted=accepted),
    ]
    yield FactRows(rows)
    if verbose:
        yield ""
        yield from five_blocks(explain(specification), without="" if chosen is not None else "how much")
    yield from (advice.grid, RESTS_ON)
    if written is not None:
        yield ""
        yield FactRows([("plan", written), *([("next", f"stirred release {written}")] if releasable else [])])
    elif chosen is not None:
        yield "Nothing was written. --write PLAN.toml writes this as a plan."


def _choices(options: AdviseOptions) -> Outcome:
    """Return the choices of match and swap variables that a geography has."""
    for name in options.model_fields_set:
        if name not in _OF_FILE:
            what = "--geography tries every choice of match and swap"
            raise bad_plan(what, where=f"--{name.replace('_', '-')}", remedy="leave one of them out")
    unit = dict(each.partition("=")[::2] for each in options.set_).get("unit", "household")
    data = Microdata.read(options.file, options.persons, hid=options.hid, id=options.id)
    target = None if options.epsilon is None else loss(options.epsilon, where="--epsilon")
    found = candidates(data, levels=options.geography, cross=options.cross, epsilon=target, unit=unit)
    doubts = [doubt for choice in found for doubt in choice.doubts]
    blocks = [block for choice in found for block in (Title(choice.name), FactRows(choice.rows, 2), "")]
    return Outcome(
        values={
            "choices": [choice.values for choice in found], "warning": CHOOSING, "doubts": doubt_facts(doubts)
        },
        blocks=[*blocks, CHOOSING],
        notes=[f"Doubt, {doubt.name}: {doubt}" for doubt in doubts],
    )  # fmt: skip


COMMANDS: Final = (command("advise", AdviseOptions, advise),)
