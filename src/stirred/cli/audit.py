"""`stirred audit`: check a promise, and show the witness if it is broken."""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.output import bullets, emit, emit_json, facts, heading, paragraph

if TYPE_CHECKING:
    from stirred.mechanisms.swapping.laws.counting import LossWitness

app = typer.Typer(
    help="Check a promise exactly, by repeated runs, or a finished bundle. "
    "Exactly on small domains; a bundle from its files alone.",
    no_args_is_help=True,
)

Json = Annotated[bool, typer.Option("--json", help="Print the same facts as JSON.")]


@app.command()
def swap(
    hold_margin: Annotated[
        str, typer.Option(metavar="NUMBERS", help="How many records have each hold value, such as 3,2.")
    ],
    swap_margin: Annotated[
        str, typer.Option(metavar="NUMBERS", help="How many records have each swap value, such as 2,2,1.")
    ],
    rate: Annotated[str | None, typer.Option(metavar="RATE", help="Swap rate, exactly: 1/20, 0.05 or 5%.")] = None,
    mechanism: Annotated[
        str, typer.Option(metavar="NAME", help="The kind of swapping: permutation, conditioned, mallows or shuffle.")
    ] = "permutation",
    redraw_law: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Conditioned: the law of redrawn values, uniform (default) or proportional."),
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Mallows: its parameter, such as 2 or ln(3).")
    ] = None,
    json: Json = False,
) -> None:
    """The exact loss of swapping on one stratum, and its bounds.

    The loss is the largest over all tables of the stratum.
    """
    from stirred.audit.swap import (
        MemberAudit,
        SwapAudit,
        audit_conditioned,
        audit_mallows,
        audit_shuffle,
        audit_swap,
    )
    from stirred.cli.budget import _rounded_down as rounded_down
    from stirred.spec.document import number_out

    setting = _setting(mechanism, rate=rate, redraw_law=redraw_law, epsilon=epsilon)
    hold, swapped = _margin(hold_margin, "--hold-margin"), _margin(swap_margin, "--swap-margin")
    found: MemberAudit
    if mechanism == "conditioned":
        found = audit_conditioned(hold, swapped, setting["rate"], redraw_law=setting["redraw_law"])
    elif mechanism == "mallows":
        found = audit_mallows(hold, swapped, setting["epsilon"])
    elif mechanism == "shuffle":
        found = audit_shuffle(hold, swapped, setting["rate"])
    else:
        found = audit_swap(hold, swapped, setting["rate"])
    if json:
        bounds: dict[str, Any] = {}
        if isinstance(found, SwapAudit):
            bounds = {
                "theorem_bound": number_out(found.theorem_bound),
                "theorem_bound_exact": str(found.theorem_bound),
                "existential_bound": rounded_down(found.existential_bound),
                "existential_bound_exact": str(found.existential_bound),
            }
        emit_json(
            {
                "hold_margin": hold,
                "swap_margin": swapped,
                **setting,
                "mechanism": mechanism,
                "exact_loss": number_out(found.exact_loss),
                "exact_loss_expression": str(found.exact_loss),
                "sharp_bound": number_out(found.sharp_bound),
                "sharp_bound_exact": str(found.sharp_bound),
                **bounds,
                "tables": found.tables,
                "witness": _witness(found.witness),
                "passed": found.passed,
            }
        )
    else:
        how = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in setting.items())
        scope = {"permutation": " of this size", "mallows": ", whatever its size"}.get(mechanism, " with these margins")
        heading(f"{mechanism.capitalize()} swapping at {how}, {sum(hold)} records, {found.tables:,} tables")
        facts(
            [
                ("exact loss", f"epsilon {found.exact_loss.shown(4)} for this stratum"),
                ("sharp bound", f"epsilon {found.sharp_bound.shown(4)} for every stratum{scope}"),
                *(
                    [("Theorem 1", f"epsilon {found.theorem_bound.shown(4)}, the paper's bound")]
                    if isinstance(found, SwapAudit)
                    else []
                ),
                ("relative to", "files that agree on both margins of the stratum; one record (d_HamS); D_Mult"),
                ("witness", str(found.witness) if found.witness else "none: there is only one table, so it is public"),
            ]
        )
    if not found.passed:
        raise typer.Exit(1)


# What each kind of swapping is told: its options, with the default where there is one.
_OPTIONS: dict[str, dict[str, str | None]] = {
    "permutation": {"rate": None},
    "conditioned": {"rate": None, "redraw_law": "uniform"},
    "mallows": {"epsilon": None},
    "shuffle": {"rate": None},
}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _setting(mechanism: str, **given: str | None) -> dict[str, str]:
    """Return the options that this kind of swapping has; refuse missing ones and those it has not."""
    from stirred.spec.problems import Problem, SpecificationError, wrong

    if mechanism not in _OPTIONS:
        raise wrong(f"{mechanism!r} is not known", where="--mechanism", remedy=f"write one of {', '.join(_OPTIONS)}")
    wanted = _OPTIONS[mechanism]
    problems = [
        Problem(what=f"{mechanism} swapping has none", where=_option(name), remedy="leave the option out")
        for name, value in given.items()
        if value is not None and name not in wanted
    ]
    setting: dict[str, str] = {}
    for name, default in wanted.items():
        value = given[name] if given[name] is not None else default
        if value is None:
            example = "such as 2" if name == "epsilon" else "such as 1/20"
            problems.append(
                Problem(what=f"{mechanism} swapping needs it", where=_option(name), remedy=f"give one, {example}")
            )
        else:
            setting[name] = value
    if problems:
        raise SpecificationError(problems)
    return setting


def _margin(text: str, where: str) -> list[int]:
    from stirred.spec.problems import wrong

    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise wrong(
            f"{text!r} is not a margin", where=where, remedy="write whole numbers with commas, such as 3,2"
        ) from None


def _witness(witness: LossWitness | None) -> dict[str, Any] | None:
    if witness is None:
        return None
    return {
        "dataset": witness.table,
        "other": witness.other,
        "output": witness.output,
        "distance": witness.distance,
        "probabilities": [str(p) for p in witness.probabilities],
        "words": str(witness),
    }


@app.command()
def mechanism(
    target: Annotated[str, typer.Argument(metavar="MODULE:OBJECT", help="Where the mechanism is, such as mine:coin.")],
    json: Json = False,
) -> None:
    """Audit your own mechanism on all its datasets.

    It needs law(dataset), universe() and specification.

    Without a specification it claims nothing, and an output that gives a dataset away is looked for.
    """
    from stirred.audit.exhaustive import audit
    from stirred.spec.document import number_out

    with _user_code(target):
        result = audit(_load(target))
    if json:
        emit_json(
            {
                "verdict": result.verdict.value,
                "parameter": result.parameter,
                "loss": [number_out(result.loss.low), number_out(result.loss.high)],
                "loss_exact": [str(result.loss.low), str(result.loss.high)],
                "budget": number_out(result.budget),
                "budget_exact": str(result.budget),
                "universes": result.universes,
                "pairs": result.pairs,
                "pairs_left_out": result.left_out,
                "orders": result.orders,
                "orders_not_tried": result.untried,
                "witness": None if result.witness is None else str(result.witness),
                "words": result.in_words,
            }
        )
    else:
        heading(f"Audit of {target}: {result.verdict.value}")
        paragraph(result.in_words)
    if not result.passed:
        raise typer.Exit(1)


Target = Annotated[str, typer.Argument(metavar="MODULE:OBJECT", help="Where it is, such as mine:coin.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


@app.command()
def statistical(
    target: Target,
    runs: Annotated[
        int, typer.Option(metavar="NUMBER", min=10, help="How often to run it on each of the two datasets.")
    ] = 10_000,
    confidence: Annotated[float, typer.Option(metavar="PROBABILITY", help="How sure an alarm must be.")] = 0.99,
    power: Annotated[
        float, typer.Option(metavar="PROBABILITY", help="How likely the stated loss must be to be seen.")
    ] = 0.99,
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
    from stirred.cli.progress import shown_progress
    from stirred.spec.problems import wrong

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
    if json:
        result = found.result
        emit_json(
            {
                "alarm": result.alarm,
                "lower_bound": result.lower_bound,
                "budget": result.budget,
                "delta": result.delta,
                "detectable": _json_number(result.detectable),
                "likelihood": result.likelihood,
                "confidence": result.confidence,
                "power": result.power,
                "hits": list(result.hits),
                "runs": result.runs,
                "distance": result.distance,
                "event": found.event,
                "words": found.in_words,
            }
        )
    else:
        heading(f"Statistical audit of {target}: {'no violation found' if found.passed else 'failed'}")
        paragraph(found.in_words)
    if not found.passed:
        raise typer.Exit(1)


@app.command()
def order(
    target: Target,
    runs: Annotated[int, typer.Option(metavar="NUMBER", min=2, help="How often to run it.")] = 200,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Test whether released records tell the input order.

    Looks at their order and at their ids.

    It needs release(data, entropy), data (a small file as a frame) and, if there is an identifier, id (its column).
    With hold (columns it leaves as they are) or swap (columns it exchanges) it can say what it would have seen.
    """
    from stirred.audit.order import audit_order
    from stirred.cli.progress import shown_progress

    with _user_code(target), shown_progress(quiet=quiet) as progress:
        own = _load(target)
        _needs(own, "release", "data")
        found = audit_order(own, _value(own.data), id=getattr(own, "id", None), runs=runs, progress=progress)
    if json:
        emit_json(
            {
                "alarm": found.alarm,
                "p_value": found.p_value,
                "level": found.level,
                "finding": found.finding,
                "detectable": _json_number(found.detectable),
                "followed": found.followed,
                "power": found.power,
                "runs": found.runs,
                "words": found.in_words,
            }
        )
    else:
        heading(f"Order audit of {target}: {'nothing found' if found.passed else 'failed'}")
        paragraph(f"{found.in_words}.")
    if not found.passed:
        raise typer.Exit(1)


def _value(given: Any) -> Any:
    return given() if callable(given) else given


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _needs(own: Any, *names: str) -> None:
    from stirred.spec.problems import wrong

    missing = [name for name in names if not hasattr(own, name)]
    if missing:
        raise wrong(
            f"it has no {' and no '.join(missing)}", where="object", remedy=f"this audit needs {', '.join(names)}"
        )


@contextmanager
def _user_code(target: str) -> Iterator[None]:
    """Say of which object a problem is, and that a failure inside its code is not one of ours."""
    from stirred.spec.problems import StirredError, wrong

    try:
        yield
    except StirredError as error:
        raise error.inside(target) from None
    except Exception as error:
        if os.environ.get("STIRRED_DEBUG"):
            raise
        raise wrong(
            f"it failed while it was audited ({type(error).__name__}: {error})",
            where=target,
            remedy="mend it; STIRRED_DEBUG=1 shows where it happened",
        ) from None


def _load(target: str) -> Any:
    from stirred.spec.problems import wrong

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
def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a finished release.")],
    json: Json = False,
) -> None:
    """Check a finished bundle from its files alone.

    Also what was published of one; everything is computed anew.
    """
    from stirred.audit.bundle import audit_bundle

    result = audit_bundle(folder)
    if json:
        emit_json(
            {
                "passed": result.passed,
                "problems": [{"what": p.what, "where": p.where, "remedy": p.remedy} for p in result.problems],
                "warnings": list(result.warnings),
                "checks": list(result.checks),
                "unchecked": list(result.unchecked),
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
