"""The settings of a mechanism: what a plan, ``--set``, the manifest and the specification know of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    SerializationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from stirred.data.problems import bad_plan
from stirred.data.public_tables import PublicTable, ReleasedTable
from stirred.data.sources import read_toml
from stirred.spec.given_numbers import Number, fraction, probability
from stirred.spec.problems import StirredError, placed

SettingsFrom = Literal["policy", "invariants", "other-data", "this-data"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# A single name may be written without brackets, and the schema says so.
Names = Annotated[list[str], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]


def _as_published(value: Any, info: SerializationInfo) -> Any:
    """Return a number as it was written, or in public in its one exact form: 1/20 for 5%."""
    if not info.context:
        return str(value) if isinstance(value, Decimal) else value
    try:
        return str(fraction(value, where=""))
    except StirredError:
        return str(value)


# A number that is exact in each form: "1/20", "5%", 2, or a decimal of a file.
Rate = Annotated[str | int | Decimal, PlainSerializer(_as_published, when_used="json")]


def _as_probability(value: Any) -> Fraction:
    try:
        return probability(value, where="")
    except StirredError as error:
        problem = error.problems[0]
        raise PydanticCustomError("exact", "{what}", {"what": problem.what, "remedy": problem.remedy}) from None


def confidence_of(given: Number, *, where: str) -> Fraction:
    """Return a confidence as a fraction between 0 and 1."""
    found = fraction(given, where=where)
    if not 0 < found < 1:
        hint = f"; did you mean {given}%?" if 1 < found < 100 and "%" not in str(given) else ""
        raise bad_plan(f"{given} is not a confidence", where=where, remedy=f"write one such as '95%' or 0.99{hint}")
    return found


# A probability, which is an exact fraction however it was written. Field(ge=..., lt=...) narrows it: of an InstanceOf
# pydantic takes such bounds and never checks them.
Probability = Annotated[
    Fraction,
    BeforeValidator(_as_probability, json_schema_input_type=str | int | Decimal),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "number"}]}),
]


# A setting that names a public table.
TableFile = Annotated[
    InstanceOf[PublicTable],
    BeforeValidator(PublicTable.of, json_schema_input_type=str),
    PlainSerializer(PublicTable.kept, return_type=dict[str, str]),
    WithJsonSchema({"type": "string"}),
]
# A setting that names a table of an earlier release.
ReleasedFile = Annotated[
    InstanceOf[ReleasedTable],
    BeforeValidator(ReleasedTable.of, json_schema_input_type=str),
    PlainSerializer(ReleasedTable.kept, return_type=dict[str, Any]),
    WithJsonSchema({"type": "string"}),
]


class Settings(BaseModel):
    """The settings of a mechanism: the section [mechanism] of a plan, its schema, ``--set``, and what is kept of it.

    Every field has a description. ``json_schema_extra`` may say ``{"example": "1/20"}``, how a value is written;
    ``{"document": True}``, that a text may name a TOML file, and its content then stands in its place;
    ``{"path": True}``, that a text names a file that the mechanism reads itself, from the folder of the plan;
    ``{"section": True}``, that it may stand in a plan as a section of its own; and
    ``{"internal": True}``, that the setting stays inside the agency. A ``TableFile`` is read as well.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    unit: str = Field(default="household", description="What a record is.")
    settings_from: SettingsFrom | None = Field(
        default=None, description="On what the settings were based; this-data voids the guarantee and is refused."
    )

    @classmethod
    def mark(cls, key: str, name: str) -> Any:
        """Return what a setting is marked with: its example, whether it is internal."""
        extra = cls.model_fields[key].json_schema_extra
        return extra.get(name) if isinstance(extra, dict) else None

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the names of all settings, those that every mechanism has at the end."""
        common = [*Settings.model_fields]
        return [*(key for key in cls.model_fields if key not in common), *common]

    def dumped(self, *, mode: str = "json", exclude_defaults: bool = False, context: str = "") -> dict[str, Any]:
        """Return the settings as plain data; for JSON, decimals are exact texts."""
        found = self.model_dump(mode=mode, exclude_defaults=exclude_defaults, context=context)
        return {key: found[key] for key in self.setting_names() if key in found}

    def with_files(self, folder: Path) -> Self:
        """Return the settings with what the files hold that they name, from this folder on."""
        found: dict[str, Any] = {}
        for key in self.setting_names():
            given = getattr(self, key)
            with placed(key):
                if isinstance(given, Settings):
                    found[key] = given.with_files(folder)
                elif isinstance(given, PublicTable):
                    found[key] = given.read(folder)
                elif isinstance(given, BaseModel):  # a part of the settings
                    tables = {name: own.read(folder) for name, own in given if isinstance(own, PublicTable)}
                    found[key] = given.model_copy(update=tables)
                elif not isinstance(given, str):
                    continue
                elif self.mark(key, "document") and given.endswith(".toml"):
                    found[key] = read_toml(folder / given, called=f"the {key}")
                elif self.mark(key, "path"):
                    found[key] = str((folder / given).absolute())
        return self.model_copy(update=found)

    @property
    def impossible(self) -> Sequence[Mapping[str, Sequence[str]]]:
        """Return the codes of some columns that no record has together, where the settings state any."""
        return ()

    def public(self) -> dict[str, Any]:
        """Return the settings that may be published, as plain data for JSON."""
        return {key: value for key, value in self.dumped(context="public").items() if not self.mark(key, "internal")}
