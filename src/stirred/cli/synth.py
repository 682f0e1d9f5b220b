"""`stirred synth`: synthetic files to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, opt
from stirred.cli.output import emit, emit_json, say

app = typer.Typer(help="Synthetic files to try things on: nobody's data.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Synthetic files to try things on: nobody's data."""


@app.command("massachusetts-1940")
def massachusetts(
    out: Annotated[Path, opt("--out FOLDER", "Folder to create, with households.parquet in it.")], json: Json = False
) -> None:
    """The households of Massachusetts in 1940, by the paper.

    1,144,424 of them, by Table 1; other sizes are ours.
    """
    from stirred.data.frames import write_frame
    from stirred.data.place import file_at
    from stirred.data.synth.massachusetts import massachusetts_1940

    path = out / "households.parquet"
    if path.exists():
        raise bad_plan("this file exists already", where=str(path), remedy="choose another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        homes = massachusetts_1940()
        with file_at(path, private=False) as half:
            write_frame(homes, half)
    except OSError as error:
        raise bad_plan(f"cannot write: {error.strerror}", where=str(path), remedy="choose another place") from None
    if json:
        emit_json({"file": str(path), "households": homes.height, "columns": homes.columns})
    else:
        say("county x tenure is Table 1 of the paper; household sizes other than two persons are ours")
        emit(str(path))


@app.command("census")
def census(
    households: Annotated[int, opt("--households NUMBER", "Household records to make: 1,000 to 200 million.")],
    seed: Annotated[int, opt("--seed NUMBER", "A whole number; the same one gives the same census.")],
    out: Annotated[Path, opt("--out FOLDER", "Folder to create, with households, persons and codebook.toml in it.")],
    segregation: Annotated[
        float, opt("--segregation NUMBER", "0: the same mixture of races everywhere; 1: nearly homogeneous tracts.")
    ] = 0.2,
    json: Json = False,
    quiet: Annotated[bool, opt("--quiet", "Show no progress.")] = False,
) -> None:
    """Households and persons in nested areas, all invented.

    From a town to a nation, made to look like the US in 2020.
    """
    from stirred.cli.output import facts, shown_progress
    from stirred.data.synth.census import CensusPlan, write_census

    plan = CensusPlan(households=households, seed=seed, segregation=segregation)
    with shown_progress(quiet=quiet) as progress:
        made = write_census(out, plan=plan, progress=progress)
    if json:
        emit_json(made)
        return
    areas = ", ".join(
        f"{made[name]:,} {name.replace('_', ' ')}" for name in ("states", "counties", "tracts", "block_groups")
    )
    facts(
        [
            ("households", f"{made['households']:,}, of which {made['group_quarters']:,} are group quarters"),
            ("persons", f"{made['persons']:,}"),
            ("areas", f"{areas}, {made['blocks']:,} blocks"),
            ("files", ", ".join(str(out / name) for name in made["files"])),
        ]
    )


@app.command("survey")
def survey(
    households: Annotated[int, opt("--households NUMBER", "Households of the census that is sampled.")],
    seed: Annotated[int, opt("--seed NUMBER", "A whole number; the same one gives the same survey.")],
    out: Annotated[Path, opt("--out FOLDER", "Folder to create: sample.csv, plan.toml, totals.csv and truth.")],
    json: Json = False,
) -> None:
    """A stratified two-stage sample of the synthetic census.

    With nonresponse, imputation flags and calibrated weights; the truth is kept apart.
    """
    from stirred.cli.output import facts
    from stirred.data.synth.survey import write_survey

    made = write_survey(out, households=households, seed=seed)
    if json:
        emit_json(made)
    else:
        facts([("sampled", f"{made['sampled']:,} households in {made['clusters']:,} clusters"),
               ("files", f"{out}/sample.csv, plan.toml, totals.csv, truth/")])  # fmt: skip
