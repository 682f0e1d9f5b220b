"""From a model of options to a command of the program, loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin

import typer
from typer.core import TyperGroup

from stirred.cli.output import showing, shown_progress
from stirred.cli.places import PLACES, CommandPlace

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

    from stirred.mechanisms.groups import Command
    from stirred.spec.misfits import Misfit
    from stirred.spec.problems import Problem

_FOR_ALL: Final = {"json": "Print the same facts as JSON.", "quiet": "Show no progress."}


class LazyCommands(Mapping[str, Any]):
    """Commands by name; each is made when somebody asks for it."""

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers
        self.made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self.made:
            self.made[name] = self._makers[name]()
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class Root(TyperGroup):
    """The program: its commands are listed from the table of places, and loaded one by one."""

    def __init__(self, **told: Any) -> None:
        super().__init__(**told)
        self.commands: Any = LazyCommands({name: _maker(name, place) for name, place in PLACES.items()})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands without loading them: those of the first page, and the others."""
        for title, first in (("Commands", True), ("More commands", False)):
            rows = [(name, place.help) for name, place in PLACES.items() if place.first is first]
            with formatter.section(title):
                formatter.write_dl(rows)


def _maker(name: str, place: CommandPlace) -> Callable[[], Any]:
    def make() -> Any:
        if not place.group:
            return built(_commands_in(place.module))[name]
        return LazyGroup(place, name=name, help=place.help, no_args_is_help=True)

    return make


class LazyGroup(TyperGroup):
    """A group that loads its commands the first time somebody looks at them."""

    def __init__(self, place: CommandPlace, **told: Any) -> None:
        self._place = place
        self._built: dict[str, Any] | None = None
        super().__init__(rich_markup_mode=None, **told)

    @property  # type: ignore[override]
    def commands(self) -> dict[str, Any]:
        """Return the commands by name."""
        if self._built is None:
            self._built = built(_commands_in(self._place.module))
        return self._built

    @commands.setter
    def commands(self, given: Any) -> None:
        """The library gives an empty list when it makes the group."""


def _commands_in(place: str) -> tuple[Command, ...]:
    """Return the commands of a module, which are called COMMANDS unless the place says otherwise."""
    module, _, name = place.partition(":")
    return tuple(getattr(import_module(module), name or "COMMANDS"))


def built(commands: tuple[Command, ...]) -> dict[str, Any]:
    """Return the commands as the command-line library has them, by name."""
    own = typer.Typer(rich_markup_mode=None)
    own.callback()(_nothing)
    for command in commands:
        own.command(command.name, help=command.help)(_as_function(command))
    return dict(typer.main.get_command(own).commands)  # type: ignore[attr-defined]


def _nothing() -> None:
    """A group needs something to call."""


def _as_function(command: Command) -> Callable[..., Any]:
    """Return a function with one parameter for each option, which runs the command and prints what it found."""
    fields = command.options.model_fields
    hints: dict[str, Any] = {name: _hint(name, info) for name, info in fields.items() if name != "as_json"}
    shared = {
        name: Annotated[bool, opt(f"--{name}", help)]
        for name, help in _FOR_ALL.items()
        if command.progress or name == "json"
    }

    def run(**given: Any) -> None:
        as_json, quiet = given["json"], given.get("quiet", False)
        told = {name: value for name, value in {**given, "as_json": as_json}.items() if name in fields}
        options = checked(command.options, told)
        with shown_progress(quiet=quiet or as_json) as progress:
            outcome = command.run(options, progress)
        if code := showing(outcome, as_json=as_json):
            raise typer.Exit(code)

    own = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=_default(fields[name]))
           for name, hint in hints.items()]  # fmt: skip
    more = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint, default=False) for name, hint in shared.items()]
    run.__signature__ = Signature([*own, *more])  # type: ignore[attr-defined]
    run.__annotations__ = {**hints, **shared}
    return run


def opt(form: str, help: str, **more: Any) -> Any:
    """Return an option from how it is typed, such as ``--hid COLUMN``."""
    name, _, metavar = form.partition(" ")
    return typer.Option(name, metavar=metavar or None, help=help, **more)


def _mark(info: FieldInfo, name: str) -> Any:
    extra = info.json_schema_extra
    return extra.get(name) if isinstance(extra, dict) else None


def _default(info: FieldInfo) -> Any:
    if info.annotation is bool:
        return bool(info.default)
    return Parameter.empty if info.is_required() and _mark(info, "argument") else None


def _hint(name: str, info: FieldInfo) -> Any:
    """Return one option as the command-line library takes it; the model checks its value."""
    kinds = [each for each in get_args(info.annotation) or (info.annotation,) if each is not type(None)]
    several = get_origin(info.annotation) is list or any(get_origin(each) is list for each in kinds)
    kind = info.annotation if get_origin(info.annotation) in (list, Literal) else kinds[0]
    more = {"autocompletion": _mark(info, "complete")}
    described = info.description or ""
    if isinstance(info.default, (str, int, float)) and not isinstance(info.default, bool) and info.default != "":
        described += f" Default: {info.default}."
    if form := _mark(info, "argument"):
        single = Path | None if kind is Path else str | None
        return Annotated[list[str] | None if several else single, typer.Argument(metavar=form, help=described, **more)]
    if info.is_required():
        described += " Required."
    typed = f"--{name.rstrip('_').replace('_', '-')}"
    if kind is bool:
        return Annotated[bool, opt(typed, described)]
    if several:
        form = f"{typed} {_mark(info, 'form') or 'TEXT'}"
        return Annotated[list[str] | None, opt(form, f"{described} Repeatable.", **more)]
    if _is_choice(kind):
        choices = ", ".join(map(str, get_args(kind)))
        return Annotated[str | None, opt(f"{typed} NAME", f"{described} One of {choices}.", **more)]
    form = _mark(info, "form") or ("FILE" if kind is Path else "NUMBER" if kind in (int, float) else "TEXT")
    return Annotated[str | None, opt(f"{typed} {form}", described, **more)]


def checked(model: type[BaseModel], given: Mapping[str, Any]) -> Any:
    """Return the options, checked; all problems are raised at once."""
    from pydantic import ValidationError

    from stirred.data.problems import PlanError
    from stirred.spec.misfits import misfits

    told = {name: value for name, value in given.items() if value not in (None, [], False)}
    try:
        return model.model_validate(told)
    except ValidationError as error:
        found = misfits(error.errors(), told, model, remedy="see --help for what it takes", examples=False)
        raise PlanError(_problem(model, told, each) for each in found) from None


def _problem(model: type[BaseModel], told: Mapping[str, Any], found: Misfit) -> Problem:
    """Return what is wrong with an option in the words of the command line."""
    from stirred.spec.problems import Problem

    name = str((*found.place, "options")[0])
    field = model.model_fields.get(name)
    what, remedy = found.what, found.remedy
    if found.kind == "missing":
        what, remedy = "is needed", "see --help for what it takes"
    elif field is not None and found.kind == "literal_error":
        choices = next(get_args(each) for each in (field.annotation, *get_args(field.annotation)) if _is_choice(each))
        what, remedy = f"{told[name]!r} is not known", f"one of {', '.join(map(str, choices))}"
    elif field is not None and found.kind == "greater_than_equal":
        least = next(each.ge for each in field.metadata if hasattr(each, "ge"))
        what, remedy = f"{told[name]} is below {least}", f"write {least} or more"
    typed = f"--{name.rstrip('_').replace('_', '-')}"
    return Problem(what=what, where=(field and _mark(field, "argument")) or typed, remedy=remedy)


def _is_choice(kind: Any) -> bool:
    return get_origin(kind) is Literal
