"""`stirred mechanism`: which mechanisms are installed, and what each can be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stirred.cli.option_words import option_of_setting
from stirred.cli.options import Json, arg
from stirred.cli.output import emit, emit_json, facts
from stirred.cli.swap_options import completed_names

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Mechanism, Settings

app = typer.Typer(help="List the installed mechanisms, and show the settings of one.", no_args_is_help=True)

_KINDS: Final = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "table",
}


@app.command("list")
def list_(json: Json = False) -> None:
    """List the mechanisms: ours, and those of other packages."""
    from stirred.mechanisms.registry import names, package_of, usable

    own = usable()
    found = [
        {"name": name, "what": _line(own[name]) if name in own else "cannot be used", "package": package_of(name)}
        for name in names()
    ]
    if json:
        emit_json({"mechanisms": found})
        return
    facts([(each["name"], f"{each['what']} ({each['package']})") for each in found])


@app.command()
def show(
    name: Annotated[str, arg("NAME", "The mechanism.", autocompletion=completed_names)], json: Json = False
) -> None:
    """Show the settings of a mechanism, and how each is given."""
    from stirred.mechanisms.registry import full_name, mechanism_class, package_of

    full = full_name(name, where="NAME")
    found = mechanism_class(full)
    settings = [_setting(key, found.settings_model) for key in found.settings_model.setting_names()]
    if json:
        emit_json({"name": full, "what": _line(found), "package": package_of(full), "settings": settings})
        return
    facts([("mechanism", full), ("what", _line(found)), ("package", package_of(full))])
    emit()
    facts([(each["key"], _in_words(each)) for each in settings])


def _line(mechanism: type[Mechanism]) -> str:
    """Return the first sentence of what a mechanism says of itself."""
    return (mechanism.__doc__ or mechanism.title).strip().splitlines()[0].replace("``", "")


def _setting(key: str, model: type[Settings]) -> dict[str, Any]:
    field = model.model_fields[key]
    schema = model.model_json_schema()["properties"][key]
    kinds = [
        _KINDS.get(each.get("type", "object" if "$ref" in each else ""), "") for each in schema.get("anyOf", [schema])
    ]
    written = option_of_setting(key)
    written = f"{written}=..." if written.startswith("--set ") else written
    return {
        "key": key,
        "type": " or ".join(dict.fromkeys(kind for kind in kinds if kind)),
        "required": field.is_required(),
        "default": schema.get("default"),
        "description": field.description,
        "example": model.mark(key, "example"),
        "option": written,
    }


def _in_words(setting: dict[str, Any]) -> str:
    given = setting["default"]
    given = given.get("file", given) if isinstance(given, dict) else given  # what a file has in it is read later
    default = "" if given in (None, []) else f"; default {', '.join(given) if isinstance(given, list) else given}"
    needed = "; needed" if setting["required"] else default
    example = "" if setting["example"] is None else f" Such as {setting['example']!r}."
    return f"{setting['description']} ({setting['type']}{needed}; {setting['option']}){example}"
