"""`stirred mechanism`: which mechanisms are installed, and the settings of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from stirred.cli.option_words import option_of_setting
from stirred.cli.options import NoOptions, argument, command
from stirred.mechanisms.groups import FactRows, Outcome
from stirred.mechanisms.registry import full_name, mechanism_class, names, package_of, usable

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Mechanism, Settings

_KINDS: Final = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "table",
}


def completed_names(incomplete: str) -> list[str]:
    """Return the mechanisms whose name begins like this."""
    return [name for name in names() if name.startswith(incomplete)]


def listed(_: NoOptions, __: Any) -> Outcome:
    """List the mechanisms: ours, and those of other packages."""
    own = usable()
    found = [
        {"name": name, "what": _line(own[name]) if name in own else "cannot be used", "package": package_of(name)}
        for name in names()
    ]
    rows = [(each["name"], f"{each['what']} ({each['package']})") for each in found]
    return Outcome(values={"mechanisms": found}, rows=rows)


class MechanismShowOptions(BaseModel):
    """`stirred mechanism show`."""

    name: str = argument("NAME", "The mechanism.", complete=completed_names)


def show(options: MechanismShowOptions, _: Any) -> Outcome:
    """Show the settings of a mechanism, and how each is given."""
    full = full_name(options.name, where="NAME")
    found = mechanism_class(full)
    settings = [_setting(key, found.settings_model) for key in found.settings_model.setting_names()]
    values = {"name": full, "what": _line(found), "package": package_of(full), "settings": settings}
    rows = [("mechanism", full), ("what", _line(found)), ("package", package_of(full))]
    words = FactRows([(each["key"], _in_words(each)) for each in settings])
    return Outcome(values=values, rows=rows, blocks=["", words])


def _line(mechanism: type[Mechanism]) -> str:
    """Return the first sentence of a mechanism's description."""
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


COMMANDS: Final = (command("list", NoOptions, listed), command("show", MechanismShowOptions, show))
