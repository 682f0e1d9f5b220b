"""`stirred synth`: synthetic files to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stirred.cli.output import emit, emit_json, say

app = typer.Typer(help="Synthetic files to try things on: nobody's data.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Synthetic files to try things on: nobody's data."""


@app.command("massachusetts-1940")
def massachusetts(
    out: Annotated[Path, typer.Option(help="Folder to create, with households.parquet in it.")],
    json: Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")] = False,
) -> None:
    """The 1,144,424 households of Massachusetts in 1940, by the paper's Table 1; other sizes are ours."""
    from stirred.data.frames import write_frame
    from stirred.data.problems import bad_plan
    from stirred.data.synth.massachusetts import massachusetts_1940

    path = out / "households.parquet"
    if path.exists():
        raise bad_plan("this file exists already", where=str(path), remedy="choose another folder")
    try:
        out.mkdir(parents=True, exist_ok=True)
        homes = massachusetts_1940()
        write_frame(homes, path)
    except OSError as error:
        raise bad_plan(f"cannot write: {error.strerror}", where=str(path), remedy="choose another place") from None
    if json:
        emit_json({"file": str(path), "households": homes.height, "columns": homes.columns})
    else:
        say("county x tenure is Table 1 of the paper; household sizes other than two persons are ours")
        emit(str(path))
