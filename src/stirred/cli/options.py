"""The fields of a model of options: `option` is typed as ``--name``, `argument` stands by its place."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from stirred.mechanisms.groups import Command, Outcome

Given = Any  # the value of a field that pydantic fills in
Names = list[str]
Text = str | None
Place = Path | None


class NoOptions(BaseModel):
    """A command without options."""


def option(
    help: str, default: Any = None, *, form: str = "", complete: Callable[..., Any] | None = None, **checks: Any
) -> Any:
    """Return a field that is an option; with ``...`` as the default it is needed, and ``form`` is what follows it."""
    marks: dict[str, Any] = {"form": form, "complete": complete}
    return Field(default, description=help, json_schema_extra={k: v for k, v in marks.items() if v}, **checks)


def argument(form: str, help: str, default: Any = ..., *, complete: Callable[..., Any] | None = None) -> Any:
    """Return a field that is an argument, called ``form`` in the help."""
    marks: dict[str, Any] = {"argument": form} | ({} if complete is None else {"complete": complete})
    return Field(default, description=help, json_schema_extra=marks)


def command(
    name: str, options: type[BaseModel], run: Callable[[Any, Any], Outcome], *, progress: bool = False
) -> Command:
    """Return a command whose help is the docstring of what it runs."""
    return Command(name=name, help=getdoc(run) or name, options=options, run=run, progress=progress)


def names(values: list[str] | None) -> list[str]:
    """Return names that were given one by one, or separated by commas."""
    from stirred.spec.problems import option_names

    return [name for value in values or () for name in option_names(value)]


# Names of columns, given one by one or separated by commas.
Columns = Annotated[list[str], BeforeValidator(names)]
