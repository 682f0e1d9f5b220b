"""Commands that mechanisms bring along: `stirred GROUP COMMAND`, built from the models of their options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperGroup

from stirred.cli.option_words import wrong
from stirred.cli.options import Json, arg, opt
from stirred.cli.output import emit, emit_json, facts, say, shown_progress, table
from stirred.cli.spec_given import write_new
from stirred.cli.swap_options import Quiet
from stirred.mechanisms.groups import GROUPS

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from stirred.mechanisms.protocol import Command, Picture

FAILED: Final = 1


def own_groups() -> list[tuple[str, typer.Typer]]:
    """Return a group for each family of mechanisms that has commands; these are loaded when one is asked for."""
    return [
        (name, typer.Typer(cls=_lazy(name), help=help_text, no_args_is_help=True, callback=_nothing))
        for name, (_, help_text) in GROUPS.items()
    ]


def _nothing() -> None:
    """A group without commands of its own needs something to call."""


def _lazy(name: str) -> type[TyperGroup]:
    """Return a kind of group that builds its commands the first time somebody looks at them."""

    class Lazy(TyperGroup):
        _built: dict[str, Any] | None = None

        @property  # type: ignore[override]
        def commands(self) -> dict[str, Any]:
            if self._built is None:
                from stirred.mechanisms.registry import commands_of

                own = typer.Typer(rich_markup_mode=None)
                own.callback()(_nothing)
                for command in commands_of(name):
                    own.command(command.name, help=command.help)(_as_function(command))
                self._built = typer.main.get_command(own).commands  # type: ignore[attr-defined]
            return self._built

        @commands.setter
        def commands(self, given: Any) -> None:
            """The library gives an empty list when it makes the group."""

    return Lazy


def _as_function(command: Command) -> Callable[..., Any]:
    """Return a function with one parameter for each option, which runs the command and prints what it found."""
    hints: dict[str, Any] = {name: _hint(name, info) for name, info in command.options.model_fields.items()}
    taken = {"quiet": Quiet, "json": Json}

    def run(**given: Any) -> None:
        as_json, quiet = given.pop("json"), given.pop("quiet")
        options = _checked(command.options, given)
        with shown_progress(quiet=quiet) as progress:
            outcome = command.run(options, progress)
        _draw(outcome.pictures)
        if as_json:
            emit_json(dict(outcome.values))
        else:
            facts([(label, str(text)) for label, text in outcome.rows])
            for grid in outcome.grids:
                emit()
                table(grid.header, [[str(cell) for cell in row] for row in grid.rows])
        if not outcome.passed:
            raise typer.Exit(FAILED)

    told = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=_default(command.options.model_fields[name]))
        for name, hint in hints.items()
    ]
    more = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=False) for name, hint in taken.items()]
    run.__signature__ = Signature([*told, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, **taken}
    return run


def _draw(pictures: Mapping[Path, Picture]) -> None:
    """Draw pictures into new files: all of them, or none."""
    from stirred.report.charts import standing_alone

    for path in pictures:
        if path.suffix != ".svg" or path.exists():
            what = "this file exists already" if path.exists() else "pictures are drawn as SVG"
            raise wrong(what, where=str(path), remedy="choose another file, with the ending .svg")
    for path, text in [(path, standing_alone(block)) for path, block in pictures.items()]:
        with suppress(OSError):  # writing says what is wrong
            path.parent.mkdir(parents=True, exist_ok=True)
        write_new(path, text)
        say(f"wrote {path}")


def _mark(info: FieldInfo, name: str) -> Any:
    extra = info.json_schema_extra
    return extra.get(name) if isinstance(extra, dict) else None


def _default(info: FieldInfo) -> Any:
    if info.annotation is bool:
        return bool(info.default)
    return Parameter.empty if info.is_required() and _mark(info, "argument") else None


def _hint(name: str, info: FieldInfo) -> Any:
    """Return how the command-line library is told about one option."""
    kinds = [each for each in get_args(info.annotation) or (info.annotation,) if each is not type(None)]
    kind = info.annotation if get_origin(info.annotation) is list else kinds[0]
    described = info.description or ""
    if isinstance(info.default, (str, int, float)) and not isinstance(info.default, bool) and info.default != "":
        described += f" Default: {info.default}."
    if info.is_required() and not _mark(info, "argument"):
        described += " Required."
    if form := _mark(info, "argument"):
        return Annotated[Path if kind is Path else str | None, arg(form, described)]
    typed = f"--{name.rstrip('_').replace('_', '-')}"
    if kind is bool:
        return Annotated[bool, opt(typed, described)]
    if get_origin(info.annotation) is list:
        return Annotated[list[str] | None, opt(f"{typed} {_mark(info, 'form') or 'TEXT'}", f"{described} Repeatable.")]
    if get_origin(info.annotation) is Literal or get_origin(kind) is Literal:
        choices = get_args(kind) or get_args(info.annotation)
        return Annotated[str | None, opt(f"{typed} NAME", f"{described} One of {', '.join(map(str, choices))}.")]
    form = _mark(info, "form") or ("FILE" if kind is Path else "NUMBER" if kind in (int, float) else "TEXT")
    return Annotated[str | None, opt(f"{typed} {form}", described)]


def _checked(model: type[BaseModel], given: dict[str, Any]) -> Any:
    """Return the options, checked; everything that is wrong with them is told at once."""
    from pydantic import ValidationError

    from stirred.data.problems import PlanError
    from stirred.spec.misfits import misfits
    from stirred.spec.problems import Problem

    told = {name: value for name, value in given.items() if value is not None and value != []}
    try:
        return model.model_validate(told)
    except ValidationError as error:
        found = misfits(error.errors(), told, model, remedy="see --help for what it takes", examples=False)
        raise PlanError(
            Problem(
                what="is needed" if each.kind == "missing" else each.what,
                where=f"--{str((*each.place, 'options')[0]).rstrip('_').replace('_', '-')}",
                remedy="see --help for what it takes" if each.kind == "missing" else each.remedy,
            )
            for each in found
        ) from None
