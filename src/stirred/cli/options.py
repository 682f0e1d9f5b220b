"""Options and arguments as they are typed, and those that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Text = str | None
Names = list[str] | None
Place = Path | None


def opt(form: str, help: str, **more: Any) -> Any:
    """Return an option from how it is typed, such as ``--hid COLUMN``."""
    name, _, metavar = form.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=help, **more)


def arg(form: str, help: str, **more: Any) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=form, help=help, **more)


Json = Annotated[bool, opt("--json", "Print the same facts as JSON.")]
