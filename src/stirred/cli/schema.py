"""`stirred schema`: the JSON Schemas of the files that people write and programs read."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from stirred.cli.option_words import wrong
from stirred.cli.output import emit_json

# Where the schema of each kind of file is made; `docs/_static/schemas/` publishes them.
SCHEMAS: Final = {
    "plan": "stirred.release.plan_file",
    "codebook": "stirred.data.codebook_file",
    "policy": "stirred.release.ledger.policy",
    "specification": "stirred.spec.document",
}


def schema(name: Annotated[str, typer.Argument(metavar="|".join(SCHEMAS), help="The kind of file.")]) -> None:
    """Print the JSON Schema of a file, for editors and programs.

    The kinds are plan, codebook, policy and specification.
    """
    from importlib import import_module

    if name not in SCHEMAS:
        raise wrong(f"there is no schema of {name!r}", where="stirred schema", remedy=f"one of {', '.join(SCHEMAS)}")
    emit_json(import_module(SCHEMAS[name]).json_schema())
