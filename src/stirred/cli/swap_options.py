"""Options of `swap` and `plan`: what may be told on the command line instead of in a plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import Field, dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from stirred.cli.option_words import SOURCE, InOptions, bad_plan, option, option_of_setting
from stirred.cli.options import Names, Place, Text, opt

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Settings
    from stirred.release.plan_file import Planned


def _registered(name: str | None) -> str | None:
    """Return the name of a mechanism as it is registered."""
    from stirred.mechanisms.registry import full_name

    return None if name is None else full_name(name, where="--mechanism")


def completed_names(incomplete: str) -> list[str]:
    """Return the mechanisms whose name begins like this."""
    from stirred.mechanisms.registry import names

    return [name for name in names() if name.startswith(incomplete)]


def _completed_keys(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the settings of the mechanism that no option of their own is for, each with its description."""
    from stirred.mechanisms.registry import DEFAULT, full_name, mechanism_class

    model = mechanism_class(full_name(context.params.get("mechanism") or DEFAULT)).settings_model
    return [
        (f"{key}=", model.model_fields[key].description or "")
        for key in model.setting_names()
        if option_of_setting(key).startswith("--set ") and key.startswith(incomplete)
    ]


Mechanism = Annotated[
    Text,
    opt(
        "--mechanism NAME",
        "The mechanism: `stirred mechanism list` shows all, the default first. A swap needs no -swap.",
        callback=_registered,
        autocompletion=completed_names,
    ),
]
Verbose = Annotated[
    bool, opt("--verbose", "Print the five answers in full, strata, bounds and losses by rate as well.")
]
Engine = Annotated[Text, opt("--engine NAME", "Where the bulk work runs: local, or spark (a cluster).")]
Master = Annotated[Text, opt("--master URL", "The address of a Spark cluster, such as spark://head:7077.")]
Quiet = Annotated[bool, opt("--quiet", "No progress on stderr.")]
Seed = Annotated[Text, opt("--seed TEXT", "FOR TESTS ONLY: reproducible randomness; the bundle is marked.")]

# What a plan that is only shown has as its place.
NOWHERE = Path("not-written")
# Settings of many mechanisms that have an option of their own.
_OPTIONS = ("match", "swap", "hold", "rate", "epsilon", "unit", "settings_from")


def names(values: list[str] | None) -> list[str]:
    """Return names that were given one by one, or separated by commas."""
    from stirred.spec.problems import option_names

    return [name for value in values or () for name in option_names(value)]


def has_rate(mechanism: str) -> bool:
    """Say whether a mechanism has a rate; for the others ``--epsilon`` is no target but a setting."""
    from stirred.mechanisms.registry import mechanism_class

    return "rate" in mechanism_class(mechanism).settings_model.model_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `swap` and `plan` may be told on the command line instead of in a plan."""

    match: Annotated[
        Names, opt("--match COLUMN", "Swap only between records equal on this variable; repeat, or separate by commas.")
    ] = None
    swap: Annotated[
        Names, opt("--swap COLUMN", "Variable that is exchanged, such as the geography; repeat, or separate by commas.")
    ] = None
    rate: Annotated[Text, opt("--rate RATE", "Swap rate, exactly: 1/20, 0.05 or 5%.")] = None
    mechanism: Mechanism = None
    set_: Annotated[
        Names,
        opt(
            "--set KEY=VALUE",
            "Another setting of the mechanism, such as fine_match=tenure; lists by commas, tables as JSON; "
            "repeat. `stirred mechanism show NAME` lists all.",
            autocompletion=_completed_keys,
        ),
    ] = None
    hold: Annotated[
        Names, opt("--hold COLUMN", "Other variables to release (default: all); unnamed ones are dropped.")
    ] = None
    id: Annotated[Names, opt("--id COLUMN", "Identifier column: never released.")] = None
    persons: Annotated[Place, opt("--persons FILE", "File of the persons in the households.")] = None
    hid: Annotated[Text, opt("--hid COLUMN", "Column linking persons to households; re-issued on release.")] = None
    name: Annotated[
        Text,
        opt(
            "--name TEXT",
            "What the specification calls the dataset; with a ledger its name for it, to say that an edited file "
            "is the same dataset.",
        ),
    ] = None
    stage: Annotated[
        Text,
        opt(
            "--stage NAME",
            "At which stage of its life the file is: as-given (default), raw-responses, edited-file, sample, "
            "population or transmitted-record.",
        ),
    ] = None
    post_imputation: Annotated[
        bool | None,
        opt(
            "--post-imputation/--pre-imputation",
            "Whether records may hold answers that imputation copied from others (default: what --stage says, or "
            "nothing).",
        ),
    ] = None
    codebook: Annotated[Place, opt("--codebook CODEBOOK.toml", "Codebook to validate the files against.")] = None
    missing: Annotated[
        Names,
        opt(
            "--missing TEXTS", "Texts that mean a missing value in every column, such as NA,. (an empty text: blanks)."
        ),
    ] = None
    missing_as: Annotated[
        Text,
        opt(
            "--missing-as code",
            "With code, a missing match or swap value is a code of its own, published as (missing).",
        ),
    ] = None
    table: Annotated[
        Names,
        opt("--table TABLE", "Table to publish, its variables joined by ' x ', such as 'county x tenure'; repeat."),
    ] = None
    unit: Annotated[str, opt("--unit NAME", "What a record is.")] = "household"
    settings_from: Annotated[
        Text,
        opt("--settings-from NAME", "On what the settings were based: policy, invariants, other-data or this-data."),
    ] = None
    ledger: Annotated[
        Text, opt("--ledger LEDGER", "Ledger that records the release: a file, or postgresql://user@host/database.")
    ] = None
    accept: Annotated[
        Names, opt("--accept NAME", "Doubt about protection that you accept, such as tells:zip; repeat.")
    ] = None
    # What the commands have of their own.
    file: Path = NOWHERE
    out: Path | None = None
    epsilon: str | None = None
    format_: str = "parquet"
    purpose: str = ""
    command: str = "swap"

    @property
    def method(self) -> str:
        """Return the name of the mechanism, the default where none is given."""
        from stirred.mechanisms.registry import DEFAULT

        return self.mechanism or DEFAULT

    @property
    def match_or_rate(self) -> bool:
        """Say whether the options settle what is done: what is swapped with what, how often, or by which mechanism."""
        return bool(self.match or self.rate or self.mechanism)

    def named(self, *, but: Sequence[str]) -> list[str]:
        """Return the options that were given, but for some: those that are not as they are by default."""
        others = [field for field in _told() if field.name not in but]
        given = [field.name for field in others if getattr(self, field.name) not in (field.default, [])]
        return [f"--{name.strip('_').replace('_', '-')}" for name in given]

    def with_rate_for(self, epsilon: str | None) -> Options:
        """Return the options with the gentlest rate that reaches a target, where a target and no rate was given."""
        if not has_rate(self.method):
            return replace(self, epsilon=epsilon)
        if self.rate or epsilon is None:
            return self
        return replace(self, rate=str(self._rate_for(epsilon) or "1/2"))

    def _rate_for(self, epsilon: str) -> Fraction | None:
        """Return the gentlest rate that reaches a loss; None where nothing is lost at any rate."""
        from stirred.release.prepared import prepare
        from stirred.spec.exact import ZERO
        from stirred.spec.given_numbers import loss

        prepared = prepare(replace(self, rate="1/2").planned())
        target = loss(epsilon, where="--epsilon")
        by_rate = prepared.mechanism.rate_losses(prepared.plan)
        if by_rate is None or any(found == ZERO for _, found in by_rate.losses([Fraction(0)])):
            return None
        return by_rate.gentlest(target)

    def with_own_epsilon(self, epsilon: str | None) -> Options:
        """Return the options with the loss, where it is a setting; refuse it where a rate decides, and say which."""
        if epsilon is None or not has_rate(self.method):
            return replace(self, epsilon=epsilon)
        from stirred.spec.number_text import percent
        from stirred.spec.problems import StirredError

        plan = f"stirred plan {self.file} ... --epsilon {epsilon}"
        remedy = f"see which rates reach it with `{plan}`, and give one as --rate"
        with suppress(StirredError):  # other problems, or no rate reaches it: the plan says so
            rate = replace(self, out=NOWHERE, command="plan")._rate_for(epsilon)
            if rate is not None:
                remedy = f"--rate {percent(rate, digits=10)} is the lowest that reaches it; {remedy}"
        what = f"the {self.method.replace('-', ' ')} takes a rate, and its loss follows: {epsilon} would not be kept"
        raise bad_plan(what, where="--epsilon", remedy=remedy)

    def _settings(self) -> dict[str, Any]:
        """Return the settings that were given: by options of their own, and by --set."""
        from stirred.mechanisms.registry import mechanism_class

        found: dict[str, Any] = {key: getattr(self, key) for key in _OPTIONS if getattr(self, key) is not None}
        for key in ("match", "swap", "hold"):
            if key in found:
                found[key] = names(found[key])
        if self.unit == "household":
            del found["unit"]
        others = given_settings(self.set_ or (), mechanism_class(self.method).settings_model)
        if twice := [key for key in others if key in found]:
            what = f"{twice[0]} is given by an option and by --set"
            raise bad_plan(what, where="--set", remedy=f"leave one of them out, such as --set {twice[0]}=...")
        return {**found, **others}

    def planned(self) -> Planned:
        """Return the plan that the options amount to; refuse where one is wanting."""
        from stirred.data.problems import PlanError
        from stirred.mechanisms.registry import mechanism_class
        from stirred.release.plan_file import planned
        from stirred.release.plan_sections import MechanismSection
        from stirred.spec.problems import Problem, StirredError
        from stirred.spec.spelling import crossed

        words, section = InOptions(self.command), None
        problems: list[Problem] = []
        try:
            section = MechanismSection.of({"name": self.method, **self._settings()}, words=words)
        except StirredError as error:
            problems += error.problems
        kind = mechanism_class(self.method)
        tables = () if kind.counts_tables or kind.own_tables or self.table else ("tables",)
        for key in (*tables, *(() if self.out else ("out",))):
            problems.append(Problem(what="is needed", where=option(key), remedy=words.needed(key)))
        if problems:
            raise PlanError(problems)
        content: dict[str, Any] = {
            "data": {"households": str(self.file), "id": names(self.id)},
            "mechanism": section,
            "tables": [{"variables": crossed(text)} for text in self.table or ()],
            "release": {
                "out": str(self.out),
                "format": self.format_,
                "purpose": self.purpose,
                "ledger": self.ledger,
                "accept": names(self.accept),
            },
        }
        if self.missing is not None:
            # An empty text stands for blanks.
            content["data"]["missing"] = [text.strip() for given in self.missing for text in given.split(",")]
        for key in ("persons", "hid", "name", "codebook", "missing_as"):
            if (value := getattr(self, key)) is not None:
                content["data"][key] = str(value)
        for key in ("stage", "post_imputation"):
            if (value := getattr(self, key)) is not None:
                content["data"][key] = value
        return planned(content, source=SOURCE, folder=Path())


def given_settings(texts: Sequence[str], model: type[Settings]) -> dict[str, Any]:
    """Return what ``--set key=value`` gives, as the type of each setting asks for.

    Lists are separated by commas, and a text in brackets or braces is JSON; a key in any spelling of "-" and "_".

    >>> from stirred.mechanisms.registry import mechanism_class
    >>> given_settings(["fine-match=tenure,age", "fine_rate=1/2"], mechanism_class("two-stage-swap").settings_model)
    {'fine_match': ['tenure', 'age'], 'fine_rate': '1/2'}
    """
    found: dict[str, Any] = {}
    for given in texts:
        key, is_pair, text = given.partition("=")
        key = key.strip().replace("-", "_")
        if not is_pair or not key or key in found:
            raise bad_plan(
                f"{key} is given twice" if key in found else f"'{given}' is not a setting and its value",
                where="--set",
                remedy=f"write key=value, once for each of {', '.join(model.setting_names())}",
            )
        found[key] = _value(key, text.strip(), model)
    return found


def _value(key: str, text: str, model: type[Settings]) -> Any:
    """Return the value of one setting; what cannot be read so is left as text, and refused by the model."""
    if key not in model.model_fields:
        return text
    schema = model.model_json_schema()["properties"][key]
    kinds = {each.get("type") for each in schema.get("anyOf", [schema])}
    if text[:1] in ("[", "{") or not kinds & {"string", "array"}:
        with suppress(ValueError):
            return json.loads(text, parse_float=Decimal)
        return text
    return names([text]) if "array" in kinds else text


def _told() -> list[Field[Any]]:
    """Return the fields of ``Options`` that every command has an option for."""
    hints = get_type_hints(Options, include_extras=True)
    return [field for field in fields(Options) if hasattr(hints[field.name], "__metadata__")]


def taking_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose argument ``options`` is told by one option for each field of ``Options``."""
    hints = get_type_hints(Options, include_extras=True) | get_type_hints(command, include_extras=True)
    told = [Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default) for field in _told()]
    own = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in signature(command).parameters.values()]
    place = [parameter.name for parameter in own].index("options")
    parameters = [*own[:place], *told, *own[place + 1 :]]

    @wraps(command)
    def run(**given: Any) -> None:
        options = Options(**{each.name: given.pop(each.name) for each in told})
        command(options=replace(options, file=given["file"]), **given)

    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    )
    run.__annotations__ = {parameter.name: hints[parameter.name] for parameter in parameters}
    return run
