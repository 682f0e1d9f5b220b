"""A plan by options: what `swap`, `plan` and `advise` take instead of a plan.toml."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pydantic import BaseModel, BeforeValidator

from stirred.cli.mechanism import completed_names
from stirred.cli.option_words import PLAN_KEYS, SOURCE, InOptions, option_of_setting
from stirred.cli.option_words import option as option_of
from stirred.cli.options import Columns, Names, Place, Text, names, option
from stirred.mechanisms.registry import DEFAULT, full_name, mechanism_class
from stirred.spec.problems import Problem, StirredError

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Settings
    from stirred.release.plan_file import PlanFile
    from stirred.release.prepared import Prepared

# What a plan that is only shown has as its place.
NOWHERE: Final = Path("not-written")
FOLDER: Final = "FOLDER"
# Settings of many mechanisms that have an option of their own, and the other keys of a plan that have one.
_SETTINGS: Final = ("match", "swap", "hold", "rate")
_DATA: Final = ("persons", "hid", "codebook")


def _completed_keys(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the settings of the mechanism that have no option of their own, each with its description."""
    model = mechanism_class(full_name(context.params.get("mechanism") or DEFAULT)).settings_model
    return [
        (f"{key}=", model.model_fields[key].description or "")
        for key in model.setting_names()
        if option_of_setting(key).startswith("--set ") and key.startswith(incomplete)
    ]


def _registered(name: str) -> str:
    return full_name(name, where="--mechanism")


SWAP_HELP: Final = "Variable that is exchanged, such as the geography; or separate by commas."
SET_HELP: Final = (
    "Any other setting of the mechanism or key of a plan, such as fine_match=tenure or stage=edited-file; lists by "
    "commas, tables as JSON. `stirred mechanism show NAME` lists all."
)


class SwapChoice(BaseModel):
    """What is swapped, and how."""

    match: Columns = option(
        "Swap only between records equal on this variable; or separate by commas.", [], form="COLUMN"
    )
    swap: Columns = option(SWAP_HELP, [], form="COLUMN")
    rate: Text = option("Swap rate, exactly: 1/20, 0.05 or 5%.", form="RATE")
    epsilon: Text = option(
        "The loss: a setting of the Mallows swap and of noise; with a rate, `stirred plan` shows which rates reach it.",
        form="NUMBER",
    )
    mechanism: Annotated[Text, BeforeValidator(_registered)] = option(
        "The mechanism: `stirred mechanism list` shows all, the default first. A swap needs no -swap.",
        form="NAME",
        complete=completed_names,
    )
    set_: Names = option(SET_HELP, [], form="KEY=VALUE", complete=_completed_keys)


class RecordOptions(BaseModel):
    """The files of a plan, and what becomes of their columns."""

    hold: Annotated[list[str] | None, BeforeValidator(names)] = option(
        "Other variables to release (default: all); unnamed ones are dropped.", form="COLUMN"
    )
    id: Columns = option("Identifier column: never released.", [], form="COLUMN")
    persons: Place = option("File of the persons in the households.")
    hid: Text = option("Column linking persons to households; re-issued on release.", form="COLUMN")
    codebook: Place = option("Codebook to validate the files against.", form="CODEBOOK.toml")
    table: Names = option(
        "Table to publish, its variables joined by ' x ', such as 'county x tenure'.", [], form="TABLE"
    )
    accept: Columns = option("Doubt about protection that you accept, such as tells:zip.", [], form="NAME")


class PlanOptions(RecordOptions, SwapChoice):
    """All that a plan may say by options."""

    ledger: Text = option("Ledger that records the release: a file, or postgresql://user@host/database.", form="LEDGER")

    @property
    def method(self) -> str:
        """Return the name of the mechanism, the default where none is given."""
        return self.mechanism or DEFAULT

    def planned(self, file: Path, *, command: str, out: Path | None) -> PlanFile:
        """Build the plan for a file; raise if a required option of the command is missing."""
        from stirred.data.problems import PlanError
        from stirred.release.plan_file import MechanismSection, plan_from
        from stirred.spec.spelling import crossed

        words, section, kind = InOptions(command), None, mechanism_class(self.method)
        settings, data, release = self._settings()
        problems: list[Problem] = []
        try:
            section = MechanismSection.of({"name": self.method, **settings}, words=words)
        except StirredError as error:
            problems += error.problems
        needed = () if kind.counts_tables or kind.own_tables or self.table else ("tables",)
        for key in (*needed, *(() if out else ("out",))):
            problems.append(Problem(what="is needed", where=option_of(key), remedy=words.needed(key)))
        if problems:
            raise PlanError(problems)
        data |= {key: str(value) for key in _DATA if (value := getattr(self, key)) is not None}
        release = {"out": str(out), "ledger": self.ledger, "accept": self.accept, **release}
        content: dict[str, Any] = {
            "data": {"households": str(file), "id": self.id, **data},
            "mechanism": section,
            "tables": [{"variables": crossed(text)} for text in self.table],
            "release": release,
        }
        return plan_from(content, source=SOURCE, folder=Path())

    def _settings(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the settings of the mechanism, and the keys of [data] and [release] that --set gives."""
        from stirred.data.problems import bad_plan

        model = mechanism_class(self.method).settings_model
        of_own = (*_SETTINGS, *(() if has_rate(self.method) else ("epsilon",)))
        settings = {key: value for key in of_own if (value := getattr(self, key)) not in (None, [])}
        others = given_settings(self.set_, model)
        sections: dict[str, dict[str, Any]] = {"data": {}, "release": {}}
        for key in [*others]:
            if key in PLAN_KEYS and key not in model.model_fields:
                sections[PLAN_KEYS[key]][key] = _plan_value(key, others.pop(key))
        if twice := [key for key in others if key in settings]:
            what = f"{twice[0]} is given by an option and by --set"
            raise bad_plan(what, where="--set", remedy=f"leave one of them out, such as --set {twice[0]}=...")
        return {**settings, **others}, sections["data"], sections["release"]

    def refuse_epsilon(self, file: Path) -> None:
        """Refuse a loss where a rate decides it, and say which rate would reach it."""
        from stirred.data.problems import bad_plan
        from stirred.spec.number_text import percent

        epsilon = self.epsilon
        if epsilon is None or not has_rate(self.method):
            return
        remedy = f"see which rates reach it with `stirred plan {file} ... --epsilon {epsilon}`, and give one as --rate"
        with suppress(StirredError):  # other problems, or no rate reaches it: the plan says so
            rate = self.rate_for(epsilon, file)
            if rate is not None:
                remedy = f"--rate {percent(rate, digits=10)} is the lowest that reaches it; {remedy}"
        what = f"the {self.method.replace('-', ' ')} takes a rate, and its loss follows: {epsilon} would not be kept"
        raise bad_plan(what, where="--epsilon", remedy=remedy)

    def rate_for(self, epsilon: str, file: Path) -> Fraction | None:
        """Return the gentlest rate that reaches a loss; None where nothing is lost at any rate."""
        from stirred.release.prepared import prepare
        from stirred.spec.exact import ZERO
        from stirred.spec.given_numbers import loss

        some = self.model_copy(update={"rate": "1/2"})
        prepared = prepare(some.planned(file, command="plan", out=NOWHERE))
        target = loss(epsilon, where="--epsilon")
        by_rate = prepared.mechanism.rate_losses(prepared.plan)
        if by_rate is None or any(found == ZERO for _, found in by_rate.losses([Fraction(0)])):
            return None
        return by_rate.gentlest(target)


def has_rate(mechanism: str) -> bool:
    """Say whether a mechanism has a rate; for the others ``--epsilon`` is no target but a setting."""
    return "rate" in mechanism_class(mechanism).settings_model.model_fields


def given_settings(texts: Sequence[str], model: type[Settings]) -> dict[str, Any]:
    """Return what ``--set key=value`` gives, as the type of each setting asks for.

    Lists are separated by commas; a text in brackets or braces is JSON, or as a plan has it.
    A key is in any spelling of "-" and "_".

    >>> from stirred.mechanisms.registry import mechanism_class
    >>> given_settings(["fine-match=tenure,age", "fine_rate=1/2"], mechanism_class("two-stage-swap").settings_model)
    {'fine_match': ['tenure', 'age'], 'fine_rate': '1/2'}
    """
    from stirred.data.problems import bad_plan

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
    from stirred.data.problems import bad_plan

    if key not in model.model_fields:
        return text
    schema = model.model_json_schema()["properties"][key]
    kinds = {each.get("type") for each in schema.get("anyOf", [schema])}
    if text[:1] in ("[", "{") or not kinds & {"string", "array"}:
        with suppress(ValueError):
            return json.loads(text, parse_float=Decimal)
        if text[:1] not in ("[", "{") or "string" in kinds:
            return text
        with suppress(ValueError):
            return tomllib.loads(f"value = {text}", parse_float=Decimal)["value"]
        remedy = "write it as in a plan, in quotes for the shell: --set '" + key + "=[{ ... }]'; or write a plan.toml"
        raise bad_plan(f"'{text}' cannot be read", where=f"--set {key}", remedy=remedy)
    return names([text]) if "array" in kinds else text


def _plan_value(key: str, text: str) -> Any:
    """Return the value of a key of [data] or [release] that is not a setting of the mechanism."""
    if key == "missing":  # an empty text stands for blanks
        return json.loads(text) if text[:1] in ("[", "{") else [each.strip() for each in text.split(",")]
    return {"true": True, "false": False}.get(text.lower(), text) if key == "post_imputation" else text


def run_command(options: PlanOptions, file: Path, prepared: Prepared) -> str:
    """Return the command that carries out the plan that was shown: with the same options, or from the same file."""
    if file.suffix == ".toml":
        nowhere = prepared.plan_file.out == NOWHERE.absolute()
        return shlex.join(["stirred", "release", str(file), *(["--out", FOLDER] if nowhere else [])])
    told = {name: getattr(options, name) for name in PlanOptions.model_fields if name in options.model_fields_set}
    if has_rate(prepared.mechanism.name):
        # With --epsilon alone the plan has the rate that reaches it, and a run takes only a rate.
        told.pop("epsilon", None)
        told.setdefault("rate", str(prepared.settings.dumped()["rate"]))
    if prepared.ledger is not None and "://" in str(told.get("ledger")):
        told["ledger"] = prepared.ledger.name  # a password is not printed
    words = ["stirred", "swap", str(file)]
    for name, value in {**told, "out": FOLDER}.items():
        if isinstance(value, list) and name not in ("table", "set_"):
            value = ",".join(f'"{each}"' if "," in each else each for each in value)
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{name.rstrip('_')}", str(each)]
    return shlex.join(words)
