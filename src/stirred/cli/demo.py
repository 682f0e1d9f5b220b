"""`stirred demo`: whole demonstrations, which are examples of the repository and run as any reader could."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from stirred.cli.option_words import bad_plan
from stirred.cli.options import Json, opt
from stirred.cli.output import emit_json, facts, shown_progress

app = typer.Typer(help="Demonstrations on synthetic files.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Demonstrations on synthetic files."""


@app.command("census-2020")
def census_2020(
    out: Annotated[Path, opt("--out FOLDER", "Folder to create: files, plans, bundles, ledgers and report.html.")],
    households: Annotated[
        int | None, opt("--households NUMBER", "Of the synthetic census whose largest state is taken. Default: 40000.")
    ] = None,
    json: Json = False,
    quiet: Annotated[bool, opt("--quiet", "Show no progress.")] = False,
) -> None:
    """The 2020 Census, whole: seven plans in one ledger.

    Beside it, the same synthetic state swapped. About a minute.
    """
    if out.exists() or out.is_symlink():
        raise bad_plan("this exists already", where=str(out), remedy="choose another folder, or remove this one")
    demo = _example("census_2020", "demo")
    more = {} if households is None else {"households": households}
    with shown_progress(quiet=quiet) as progress:
        report = demo.main(out, progress=progress, **more)
    if json:
        emit_json({"report": str(report), "ledger": str(out / "census.ledger")})
    else:
        facts([("report", str(report)), ("ledger", str(out / "census.ledger"))])


def _example(name: str, module: str) -> ModuleType:
    """Return a module of an example: of the wheel, which brings them along, or of the clone that is installed."""
    here = Path(__file__).parents[1]
    for folder in (here / "examples", here.parents[1] / "examples"):
        if (folder / name / f"{module}.py").is_file():
            # An example is a package of its own, as it is for whoever copies it.
            sys.path.insert(0, str(folder))
            try:
                return importlib.import_module(f"{name}.{module}")
            finally:
                sys.path.remove(str(folder))
    remedy = "install stirred from its wheel, or from a clone"
    raise bad_plan("the example is not installed", where=name, remedy=remedy)
