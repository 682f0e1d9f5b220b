"""How a block of a specification stands in a file: declared once, for reading, for writing and for the JSON schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from fractions import Fraction
from functools import cache, partial
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from stirred.spec.exact import Exact, number_schema
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import Problem, StirredError, as_given, refusal

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
    from pydantic_core.core_schema import CoreSchema, SerializationInfo


class Block:
    """A frozen dataclass that is also an object in a file: pydantic models may have it as the type of a field.

    ``in_file`` lists the keys of the object in their order. A key is a field of the dataclass, a text of the class
    (the tag that names one of several kinds), or a property: that is computed, so a file may leave it out, and what
    a file states is checked. Fields that are not listed never stand in a file. ``left_out`` are keys that are not
    written where they have their default, ``needed`` those that a file must state although Python has a default.
    ``choices`` are the values of a key that editors propose; the block itself refuses others.
    ``parts`` names the parts of tuples that are objects in a file. A ``bare`` block is the value of its one key.
    """

    __slots__ = ()
    in_file: ClassVar[tuple[str, ...]] = ()
    left_out: ClassVar[tuple[str, ...]] = ()
    needed: ClassVar[tuple[str, ...]] = ()
    parts: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    bare: ClassVar[bool] = False

    def plain(self, *, brief: bool = False) -> dict[str, Any]:
        """Return the object as plain data for JSON; ``brief`` leaves out defaults and what is computed."""
        kind: Any = type(self)
        stored, found = _fields(kind), {}
        for key in self.in_file:
            value = getattr(self, key)
            empty = value == (stored[key].default if key in stored else False)
            computed = key not in stored and not isinstance(getattr(type(self), key), str)
            if (empty and (brief or key in self.left_out)) or (computed and brief):
                continue
            if key in self.parts:
                value = tuple(dict(zip(self.parts[key], one, strict=True)) for one in value)
            found[key] = plain(value, brief=brief)
        return found

    @classmethod
    def from_file(cls, facts: dict[str, Any], computed: dict[str, Any]) -> Self:
        """Return the block that a file describes by its fields, if what it states besides is what is computed."""
        block = cls(**facts)
        for key, stated in computed.items():
            if stated is not None and stated != (own := getattr(block, key)):
                raise refusal([not_computed(key, stated, own)])
        return block

    @classmethod
    def shape(cls) -> type[BaseModel]:
        """Return the pydantic model of the object in a file."""
        kind: Any = cls
        return _shape(kind)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        if cls.bare:
            inner = handler.generate_schema(_in_file(hints_of(cls)[cls.in_file[0]]))
            return core_schema.no_info_after_validator_function(partial(_bare, cls), inner)

        def written(block: Block, info: SerializationInfo) -> dict[str, Any]:
            return block.plain(brief=bool(info.exclude_defaults))

        return core_schema.no_info_after_validator_function(
            partial(_built, cls),
            handler.generate_schema(cls.shape()),
            serialization=core_schema.plain_serializer_function_ser_schema(written, info_arg=True),
        )


def plain(value: Any, *, brief: bool = False) -> Any:
    """Return a value of a block as plain data for JSON: exact numbers as text."""
    if isinstance(value, Block):
        found = value.plain(brief=brief)
        return found[value.in_file[0]] if value.bare else found
    if isinstance(value, dict):
        return {key: plain(one, brief=brief) for key, one in value.items()}
    if isinstance(value, tuple):
        return [plain(one, brief=brief) for one in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return str(value) if isinstance(value, (Exact, Fraction)) else value


@cache
def _fields(block: Any) -> dict[str, Any]:
    return {one.name: one for one in fields(block)}


@cache
def _shape(block: Any) -> type[BaseModel]:
    from pydantic import ConfigDict, Field, create_model

    hints, stored = hints_of(block, include_extras=True), _fields(block)
    found: dict[str, Any] = {}
    for key in block.in_file:
        if key in stored:
            described = getattr(hints[key], "__metadata__", (None,))[0]
            needed = key in block.needed or stored[key].default is MISSING
            default = ... if needed else stored[key].default
            proposed = {"enum": [*block.choices[key]]} if key in block.choices else None
            about = Field(default, description=described, json_schema_extra=proposed)  # type: ignore[arg-type]
            found[key] = _in_file(hints[key], block.parts.get(key)), about
        elif isinstance(own := getattr(block, key), property):
            words = _first_line(own).removeprefix("Return ").removeprefix("Say ").rstrip(".")
            described = f"{words}; computed, and checked when read"
            found[key] = hints_of(own.fget)["return"] | None, Field(None, description=described)
        else:
            found[key] = Literal[own], Field(..., description="which kind this is")
    strict = ConfigDict(strict=True, extra="forbid", frozen=True)
    shape: type[BaseModel] = create_model(block.__name__, __config__=strict, __doc__=_first_line(block), **found)
    return shape


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").partition("\n")[0]


def _in_file(hint: Any, parts: tuple[str, ...] | None = None) -> Any:
    """Return the type that a field of a block has in a file: lists for tuples and sets, one tag for several kinds."""
    from pydantic import Field, GetPydanticSchema

    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return _in_file(inner[0], parts)
    if hint is Fraction:
        return Annotated[Fraction, GetPydanticSchema(lambda *_: number_schema(partial(fraction, where="")))]
    if kind is frozenset:
        return Annotated[frozenset[str], Field(strict=False)]
    if kind is tuple:
        entries = tuple(one if one is ... else _in_file(one) for one in inner)
        if parts is not None:
            entries = (_in_parts(inner[0], parts), ...)
        return Annotated[tuple[entries], Field(strict=False)]  # type: ignore[valid-type]
    if kind in (Union, UnionType):
        either: Any = Union[tuple(map(_in_file, inner))]  # noqa: UP007
        several = all(isinstance(one, type) and issubclass(one, Block) for one in inner)
        return Annotated[either, Field(discriminator=inner[0].in_file[0])] if several else either
    return hint


def _in_parts(hint: Any, parts: tuple[str, ...]) -> Any:
    """Return the type of a tuple that is an object in a file, its parts by their names."""
    from pydantic import AfterValidator, ConfigDict, create_model

    named: dict[str, Any] = {name: (_in_file(one), ...) for name, one in zip(parts, get_args(hint), strict=True)}
    entry = create_model("Entry", __config__=ConfigDict(strict=True, extra="forbid"), **named)
    return Annotated[entry, AfterValidator(lambda one: tuple(getattr(one, name) for name in parts))]


def not_computed(key: str, stated: object, own: object) -> Problem:
    """Return the problem of a file that states something else than what follows from the rest."""
    return Problem(
        what=f"{key} is stated as {as_given(stated)}, but it is {as_given(own)}",
        where="",
        remedy=f"correct it, or leave '{key}' out: it is computed",
    )


def _built(block: type[Block], shape: BaseModel) -> Block:
    kind: Any = block
    stored, facts = _fields(kind), {key: getattr(shape, key) for key in shape.model_fields_set}
    others = {key: facts.pop(key) for key in block.in_file if key in facts and key not in stored}
    computed = {key: value for key, value in others.items() if not isinstance(getattr(block, key), str)}
    return _unless_refused(lambda: block.from_file(facts, computed))


def _bare(block: type[Block], value: Any) -> Block:
    return _unless_refused(lambda: block(value))  # type: ignore[call-arg]


def _unless_refused(make: Callable[[], Block]) -> Block:
    try:
        return make()
    except StirredError as error:
        raise refusal(error.problems) from None
