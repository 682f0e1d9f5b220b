"""`stirred audit`: check a promise, and show the witness if it is broken."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.option_words import wrong
from stirred.cli.options import Json, Names, Text, arg, opt
from stirred.cli.output import bullets, emit, emit_json, exactly, facts, heading, paragraph, picked

if TYPE_CHECKING:
    from stirred.mechanisms.protocol import StratumAudit

app = typer.Typer(
    help="Check a promise exactly, by repeated runs, or a bundle. "
    "Exactly on small domains; a bundle from its files alone.",
    no_args_is_help=True,
)


@app.command()
def swap(
    hold_margin: Annotated[str, opt("--hold-margin NUMBERS", "How many records have each hold value, such as 3,2.")],
    swap_margin: Annotated[str, opt("--swap-margin NUMBERS", "How many records have each swap value, such as 2,2,1.")],
    rate: Annotated[Text, opt("--rate RATE", "Swap rate, exactly: 1/20, 0.05 or 5%.")] = None,
    mechanism: Annotated[Text, opt("--mechanism NAME", "The kind of swapping; left out, permutation swapping.")] = None,
    redraw_law: Annotated[
        Text, opt("--redraw-law NAME", "The law of redrawn values, where a swap has one: uniform or proportional.")
    ] = None,
    epsilon: Annotated[
        Text, opt("--epsilon NUMBER", "The parameter of a swap without a rate, such as 2 or ln(3).")
    ] = None,
    set_: Annotated[Names, opt("--set KEY=VALUE", "Any other setting of the mechanism.")] = None,
    json: Json = False,
) -> None:
    """The exact loss of swapping on one stratum, and its bounds.

    The loss is the largest over all tables of the stratum.
    """
    from stirred.cli.budget import _rounded_down as rounded_down
    from stirred.mechanisms.registry import build
    from stirred.spec.document import number_out

    name, kind = _stratum_audited(mechanism)
    others = dict(each.partition("=")[::2] for each in set_ or ())
    setting = _setting(kind, rate=rate, redraw_law=redraw_law, epsilon=epsilon, **others)
    hold, swapped = _margin(hold_margin, "--hold-margin"), _margin(swap_margin, "--swap-margin")
    audited: Any = build(name, {"match": [], "swap": ["value"], **setting})
    found: StratumAudit = audited.stratum_audit(hold, swapped)
    if json:
        bounds = {"sharp_bound": (number_out, found.sharp_bound), "theorem_bound": (number_out, found.theorem_bound)}
        bounds["existential_bound"] = (rounded_down, found.existential_bound)
        stated = [(key, out, bound) for key, (out, bound) in bounds.items() if bound is not None]
        emit_json(
            {
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
        )
    else:
        how = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in setting.items())
        title = f"{kind.title[0].upper()}{kind.title[1:]}"
        heading(f"{title} at {how}, {sum(hold)} records, {found.tables:,} tables")
        paper = found.theorem_bound
        facts(
            [
                ("exact loss", f"epsilon {found.exact_loss.shown(4)} for this stratum"),
                ("sharp bound", f"epsilon {found.sharp_bound.shown(4)} for every stratum{found.for_every}"),
                *([] if paper is None else [("paper", f"epsilon {paper.shown(4)}, the bound as published")]),
                ("relative to", "files that agree on both margins of the stratum; one record (d_HamS); D_Mult"),
                ("witness", str(found.witness) if found.witness else "none: there is only one table, so it is public"),
            ]
        )
    if not found.passed:
        raise typer.Exit(1)


def _short(name: str) -> str:
    return name.partition("-")[0]


def _stratum_audited(given: str | None) -> tuple[str, Any]:
    """Return the mechanism of this name, which may be its first word, if it can be audited on one stratum."""
    from stirred.mechanisms.registry import DEFAULT, family, mechanism_class

    swaps = {name: mechanism_class(name) for name in family()}
    known = {name: kind for name, kind in swaps.items() if kind.family and kind.family.stratum_settings is not None}
    for name, kind in known.items():
        if (given or DEFAULT) in (name, _short(name)):
            return name, kind
    remedy = f"write one of {', '.join(map(_short, known))}"
    raise wrong(f"{given!r} is not known", where="--mechanism", remedy=remedy)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _setting(kind: Any, **given: str | None) -> dict[str, str]:
    """Return the settings that this mechanism has on a stratum; refuse missing ones and those it has not."""
    from stirred.spec.problems import Problem, SpecificationError

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


def _margin(text: str, where: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise wrong(
            f"{text!r} is not a margin", where=where, remedy="write whole numbers with commas, such as 3,2"
        ) from None


@app.command()
def mechanism(
    target: Annotated[str, arg("MODULE:OBJECT|NAME", "Where the mechanism is, such as mine:coin, or its name.")],
    set_: Annotated[Names, opt("--set KEY=VALUE", "A setting of an installed mechanism; repeat.")] = None,
    json: Json = False,
) -> None:
    """Audit your own mechanism on all its datasets.

    It needs law(dataset), universe() and specification. An installed mechanism is named, with its settings.

    Without a specification it claims nothing, and an output that gives a dataset away is looked for.
    """
    from stirred.audit.exhaustive import audit
    from stirred.spec.document import number_out

    with _user_code(target):
        result = audit(_load(target) if ":" in target else _installed(target, set_ or ()))
    told = {
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
    title = f"Audit of {target}: {result.verdict.value}"
    _tell(title, result.in_words, told, passed=result.passed, as_json=json)


def _tell(title: str, words: str, told: dict[str, Any], *, passed: bool, as_json: bool) -> None:
    """Print what an audit of somebody's own mechanism found; a failed one ends with 1."""
    if as_json:
        emit_json({**told, "words": words})
    else:
        heading(title)
        paragraph(words if words.endswith(".") else f"{words}.")
    if not passed:
        raise typer.Exit(1)


Target = Annotated[str, arg("MODULE:OBJECT", "Where it is, such as mine:coin.")]
Quiet = Annotated[bool, opt("--quiet", "Show no progress.")]


@app.command()
def statistical(
    target: Target,
    runs: Annotated[int, opt("--runs NUMBER", "How often to run it on each of the two datasets.", min=10)] = 10_000,
    confidence: Annotated[float, opt("--confidence PROBABILITY", "How sure an alarm must be.")] = 0.99,
    power: Annotated[float, opt("--power PROBABILITY", "How likely the stated loss must be to be seen.")] = 0.99,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Bound your own mechanism's loss from below, by many runs.

    It is run often on each of two datasets.

    It needs sample(dataset, entropy), pair (the two datasets) and specification, and may have event(output); without
    one an event is chosen in pilot runs that are not counted.
    """
    from stirred.audit.exhaustive import promise_for
    from stirred.audit.pair import audit_pair
    from stirred.cli.output import shown_progress

    with _user_code(target), shown_progress(quiet=quiet) as progress:
        own = _load(target)
        _needs(own, "sample", "pair", "specification")
        pair = _value(own.pair)
        promise = promise_for(own, pair)
        if promise is None:
            raise wrong("it promises nothing", where="specification", remedy="return a specification to be checked")
        found = audit_pair(
            own.sample,
            pair,
            promise,
            event=getattr(own, "event", None),
            runs=runs,
            confidence=confidence,
            power=power,
            progress=progress,
        )
    result = found.result
    told = {
        **picked(result, "alarm", "lower_bound", "budget", "delta"),
        "detectable": _json_number(result.detectable),
        **picked(result, "likelihood", "confidence", "power", "hits", "runs", "distance"),
        "event": found.event,
    }
    title = f"Statistical audit of {target}: {'no violation found' if found.passed else 'failed'}"
    _tell(title, found.in_words, told, passed=found.passed, as_json=json)


@app.command()
def order(
    target: Target,
    runs: Annotated[int, opt("--runs NUMBER", "How often to run it.", min=2)] = 200,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Test whether released records tell the input order.

    Looks at their order and at their ids.

    It needs release(data, entropy), data (a small file as a frame) and, if there is an identifier, id (its column).
    With hold (columns it leaves as they are) or swap (columns it exchanges) it can say what it would have seen.
    """
    from stirred.audit.order import audit_order
    from stirred.cli.output import shown_progress

    with _user_code(target), shown_progress(quiet=quiet) as progress:
        own = _load(target)
        _needs(own, "release", "data")
        found = audit_order(own, _value(own.data), id=getattr(own, "id", None), runs=runs, progress=progress)
    told = {
        **picked(found, "alarm", "p_value", "level", "finding", "memory"),
        "detectable": _json_number(found.detectable),
        **picked(found, "followed", "power", "runs"),
    }
    title = f"Order audit of {target}: {'nothing found' if found.passed else 'failed'}"
    _tell(title, found.in_words, told, passed=found.passed, as_json=json)


def _value(given: Any) -> Any:
    return given() if callable(given) else given


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _needs(own: Any, *names: str) -> None:
    missing = [name for name in names if not hasattr(own, name)]
    if missing:
        raise wrong(
            f"it has no {' and no '.join(missing)}", where="object", remedy=f"this audit needs {', '.join(names)}"
        )


@contextmanager
def _user_code(target: str) -> Iterator[None]:
    """Say of which object a problem is, and that a failure inside its code is not one of ours."""
    from stirred.spec.problems import StirredError

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
    from stirred.cli.swap_options import given_settings
    from stirred.mechanisms.registry import build, full_name, mechanism_class, settings_for

    own = full_name(name)
    settings = settings_for(own, given_settings(given, mechanism_class(own).settings_model))
    return build(own, settings.with_files(Path()))


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    if not module or not name:
        raise wrong("this names no object", where="MODULE:OBJECT", remedy="write such as my_module:my_mechanism")
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


@app.command()
def bundle(folder: Annotated[Path, arg("DIR", "The folder of a finished release.")], json: Json = False) -> None:
    """Check a finished bundle from its files alone.

    Also what was published of one; every figure is computed again.
    """
    from stirred.audit.bundle import audit_bundle

    result = audit_bundle(folder)
    if json:
        emit_json(
            {
                "passed": result.passed,
                "problems": [picked(problem, "what", "where", "remedy") for problem in result.problems],
                **picked(result, "warnings", "checks", "unchecked"),
            }
        )
    else:
        empty = ", but read the warning" if result.passed and result.warnings else ""
        heading(f"Audit of {folder}: {f'passed{empty}' if result.passed else 'failed'}")
        for title, items in (
            ("Problems", [str(problem) for problem in result.problems]),
            ("Warnings", result.warnings),
            ("Found right", result.checks),
            ("Not checked", result.unchecked),
        ):
            if items:
                emit()
                heading(title)
                bullets(items)
    if not result.passed:
        raise typer.Exit(1)
