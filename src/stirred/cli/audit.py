"""`stirred audit`: check a promise, and show the witness if it is broken."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from stirred.cli.options import Names, Text, argument, command, option
from stirred.cli.output import exactly, picked
from stirred.cli.spec_budget import rounded_down
from stirred.mechanisms.groups import FactRows, Outcome, Title
from stirred.mechanisms.registry import DEFAULT, build, family, full_name, mechanism_class, settings_for
from stirred.spec.document import number_out
from stirred.spec.problems import Problem, SpecificationError, StirredError, wrong

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import Progress, StratumAudit


class SwapAuditOptions(BaseModel):
    """`stirred audit swap`."""

    hold_margin: str = option("How many records have each hold value, such as 3,2.", ..., form="NUMBERS")
    swap_margin: str = option("How many records have each swap value, such as 2,2,1.", ..., form="NUMBERS")
    rate: Text = option("Swap rate, exactly: 1/20, 0.05 or 5%.", form="RATE")
    mechanism: Text = option("The kind of swapping; left out, permutation swapping.", form="NAME")
    redraw_law: Text = option("The law of redrawn values, where a swap has one: uniform or proportional.", form="NAME")
    epsilon: Text = option("The parameter of a swap without a rate, such as 2 or ln(3).", form="NUMBER")
    set_: Names = option("Any other setting of the mechanism.", [], form="KEY=VALUE")


def swap(options: SwapAuditOptions, _: Any) -> Outcome:
    """The exact loss of swapping on one stratum, and its bounds.

    The loss is the largest over all tables of the stratum.
    """
    name, kind = _stratum_audited(options.mechanism)
    others = dict(each.partition("=")[::2] for each in options.set_)
    setting = _setting(kind, **picked(options, "rate", "redraw_law", "epsilon"), **others)
    hold = _margin(options.hold_margin, "--hold-margin")
    swapped = _margin(options.swap_margin, "--swap-margin")
    audited: Any = build(name, {"match": [], "swap": ["value"], **setting})
    found: StratumAudit = audited.stratum_audit(hold, swapped)
    bounds = {"sharp_bound": (number_out, found.sharp_bound), "theorem_bound": (number_out, found.theorem_bound)}
    bounds["existential_bound"] = (rounded_down, found.existential_bound)
    stated = [(key, out, bound) for key, (out, bound) in bounds.items() if bound is not None]
    values = {
        "hold_margin": hold,
        "swap_margin": swapped,
        **setting,
        "mechanism": _short(name),
        "exact_loss": number_out(found.exact_loss),
        "exact_loss_expression": str(found.exact_loss),
        **{k: v for key, out, bound in stated for k, v in ((key, out(bound)), (f"{key}_exact", str(bound)))},
        "tables": found.tables,
        "witness": None if found.witness is None else found.witness.facts,
        "passed": found.passed,
    }
    how = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in setting.items())
    title = f"{kind.title[0].upper()}{kind.title[1:]} at {how}, {sum(hold)} records, {found.tables:,} tables"
    paper = found.theorem_bound
    rows = [
        ("exact loss", f"epsilon {found.exact_loss.shown(4)} for this stratum"),
        ("sharp bound", f"epsilon {found.sharp_bound.shown(4)} for every stratum{found.for_every}"),
        *([] if paper is None else [("paper", f"epsilon {paper.shown(4)}, the bound as published")]),
        ("relative to", "files that agree on both margins of the stratum; one record (d_HamS); D_Mult"),
        ("witness", str(found.witness) if found.witness else "none: there is only one table, so it is public"),
    ]
    return Outcome(values=values, blocks=[Title(title), FactRows(rows)], passed=found.passed)


def _short(name: str) -> str:
    return name.partition("-")[0]


def _stratum_audited(given: str | None) -> tuple[str, Any]:
    """Return the mechanism of this name, which may be its first word, if it can be audited on one stratum."""
    swaps = {name: mechanism_class(name) for name in family()}
    known = {name: kind for name, kind in swaps.items() if kind.family and kind.family.stratum_settings is not None}
    for name, kind in known.items():
        if (given or DEFAULT) in (name, _short(name)):
            return name, kind
    remedy = f"write one of {', '.join(map(_short, known))}"
    raise wrong(f"{given!r} is not known", where="--mechanism", remedy=remedy)


def _setting(kind: Any, **given: str | None) -> dict[str, str]:
    """Return the settings that this mechanism has on a stratum; refuse missing ones and those it has not."""
    wanted = kind.family.stratum_settings
    problems = [
        Problem(what=f"{kind.title} has none", where=_option(name), remedy="leave the option out")
        for name, value in given.items()
        if value is not None and name not in wanted
    ]
    setting: dict[str, str] = {}
    for name, default in wanted.items():
        value = default if given.get(name) is None else given[name]
        if value is None:
            example = "such as 2" if name == "epsilon" else "such as 1/20"
            problems.append(Problem(what=f"{kind.title} needs it", where=_option(name), remedy=f"give one, {example}"))
        else:
            setting[name] = value
    if problems:
        raise SpecificationError(problems)
    return setting


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _margin(text: str, where: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        remedy = "write whole numbers with commas, such as 3,2"
        raise wrong(f"{text!r} is not a margin", where=where, remedy=remedy) from None


# ---- a mechanism of the user's own ------------------------------------------------------------------------------


class MechanismAuditOptions(BaseModel):
    """`stirred audit mechanism`."""

    target: str = argument("MODULE:OBJECT|NAME", "Where the mechanism is, such as mine:coin, or its name.")
    set_: Names = option("A setting of an installed mechanism.", [], form="KEY=VALUE")


def mechanism(options: MechanismAuditOptions, _: Any) -> Outcome:
    """Audit your own mechanism on all its datasets.

    It needs law(dataset), universe() and specification. An installed mechanism is named, with its settings.

    Without a specification it claims nothing, and an output that gives a dataset away is looked for.
    """
    from stirred.audit.exhaustive import audit

    target = options.target
    with _user_code(target):
        result = audit(_load(target) if ":" in target else _installed(target, options.set_))
    values = {
        "verdict": result.verdict.value,
        "parameter": result.parameter,
        "loss": [number_out(result.loss.low), number_out(result.loss.high)],
        "loss_exact": [str(result.loss.low), str(result.loss.high)],
        **exactly(budget=result.budget),
        **picked(result, "universes", "pairs"),
        "pairs_left_out": result.left_out,
        "orders": result.orders,
        "orders_not_tried": result.untried,
        "witness": None if result.witness is None else str(result.witness),
    }
    return _found(f"Audit of {target}: {result.verdict.value}", result.in_words, values, passed=result.passed)


def _found(title: str, words: str, values: dict[str, Any], *, passed: bool) -> Outcome:
    """Return what an audit of a user's own mechanism found."""
    sentence = words if words.endswith(".") else f"{words}."
    return Outcome(values={**values, "words": words}, blocks=[Title(title), sentence], passed=passed)


class _TargetOptions(BaseModel):
    target: str = argument("MODULE:OBJECT", "Where it is, such as mine:coin.")


class StatisticalOptions(_TargetOptions):
    """`stirred audit statistical`."""

    runs: int = option("How often to run it on each of the two datasets.", 10_000, ge=10)
    confidence: float = option("How sure an alarm must be.", 0.99, form="PROBABILITY")
    power: float = option("How likely the stated loss must be to be seen.", 0.99, form="PROBABILITY")


def statistical(options: StatisticalOptions, progress: Progress | None) -> Outcome:
    """Bound your own mechanism's loss from below, by many runs.

    It is run often on each of two datasets.

    It needs sample(dataset, entropy), pair (the two datasets) and specification, and may have event(output); without
    one an event is chosen in pilot runs that are not counted.
    """
    from stirred.audit.exhaustive import promise_for
    from stirred.audit.pair import audit_pair

    with _user_code(options.target):
        own = _load(options.target)
        _needs(own, "sample", "pair", "specification")
        pair = _value(own.pair)
        promise = promise_for(own, pair)
        if promise is None:
            raise wrong("it promises nothing", where="specification", remedy="return a specification to be checked")
        more = picked(options, "runs", "confidence", "power")
        found = audit_pair(own.sample, pair, promise, event=getattr(own, "event", None), progress=progress, **more)
    result = found.result
    values = {
        **picked(result, "alarm", "lower_bound", "budget", "delta"),
        "detectable": _json_number(result.detectable),
        **picked(result, "likelihood", "confidence", "power", "hits", "runs", "distance"),
        "event": found.event,
    }
    title = f"Statistical audit of {options.target}: {'no violation found' if found.passed else 'failed'}"
    return _found(title, found.in_words, values, passed=found.passed)


class OrderOptions(_TargetOptions):
    """`stirred audit order`."""

    runs: int = option("How often to run it.", 200, ge=2)


def order(options: OrderOptions, progress: Progress | None) -> Outcome:
    """Test whether released records tell the input order.

    Looks at their order and at their ids.

    It needs release(data, entropy), data (a small file as a frame) and, if there is an identifier, id (its column).
    With hold (columns it leaves as they are) or swap (columns it exchanges) it can say what it would have seen.
    """
    from stirred.audit.order import audit_order

    with _user_code(options.target):
        own = _load(options.target)
        _needs(own, "release", "data")
        id = getattr(own, "id", None)
        found = audit_order(own, _value(own.data), id=id, runs=options.runs, progress=progress)
    values = {
        **picked(found, "alarm", "p_value", "level", "finding", "memory"),
        "detectable": _json_number(found.detectable),
        **picked(found, "followed", "power", "runs"),
    }
    title = f"Order audit of {options.target}: {'nothing found' if found.passed else 'failed'}"
    return _found(title, found.in_words, values, passed=found.passed)


def _value(given: Any) -> Any:
    return given() if callable(given) else given


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _needs(own: Any, *names: str) -> None:
    missing = [name for name in names if not hasattr(own, name)]
    if missing:
        what = f"it has no {' and no '.join(missing)}"
        raise wrong(what, where="object", remedy=f"this audit needs {', '.join(names)}")


@contextmanager
def _user_code(target: str) -> Iterator[None]:
    """Say of which object a problem is, and that a failure inside its code is not one of ours."""
    try:
        yield
    except StirredError as error:
        raise error.inside(target) from None
    except Exception as error:
        if os.environ.get("STIRRED_DEBUG"):
            raise
        what = f"it failed while it was audited ({type(error).__name__}: {error})"
        raise wrong(what, where=target, remedy="fix it; STIRRED_DEBUG=1 shows where it happened") from None


def _installed(name: str, given: Sequence[str]) -> Any:
    """Return an installed mechanism with settings given one by one."""
    from stirred.cli.plan_options import given_settings

    own = full_name(name)
    settings = settings_for(own, given_settings(given, mechanism_class(own).settings_model))
    return build(own, settings.with_files(Path()))


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    if not module or not name:
        raise wrong("there is no object here", where="MODULE:OBJECT", remedy="write MODULE:OBJECT, such as mine:coin")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
        return found() if isinstance(found, type) else found
    except Exception as error:  # whatever a user's module does wrong is said, not thrown
        raise wrong(
            f"it cannot be loaded ({type(error).__name__}: {error})",
            where="MODULE:OBJECT",
            remedy="run the command in the folder of the module, and check the names",
        ) from None


COMMANDS: Final = (
    command("swap", SwapAuditOptions, swap),
    command("mechanism", MechanismAuditOptions, mechanism),
    command("statistical", StatisticalOptions, statistical, progress=True),
    command("order", OrderOptions, order, progress=True),
)
