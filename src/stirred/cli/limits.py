"""`stirred limits`: what anyone can learn from a release with a pure loss."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stirred.cli.option_words import told_by_options, wrong
from stirred.cli.options import Json, Text, arg, opt
from stirred.cli.output import bullets, emit, emit_json, exactly, facts, heading, paragraph

if TYPE_CHECKING:
    from stirred.inference.learned import Learned
    from stirred.inference.weights import Ends

app = typer.Typer(help="What anyone can learn: limits of tests and of posteriors.", no_args_is_help=True)

Epsilon = Annotated[str, opt("--epsilon NUMBER", "The pure loss for one record: 1, 3/4 or ln(3).")]
Apart = Annotated[str, opt("--distance NUMBER", "How many records the two versions differ in; inf if not compared.")]


@app.command()
def power(
    alpha: Annotated[str, opt("--alpha SHARE", "Size of the test: 0.05, 1/20 or 5%.")],
    epsilon: Epsilon,
    distance: Apart = "1",
    json: Json = False,
) -> None:
    """The power that any test can have.

    For an attacker the distance is the number of records in question; for an analyst it is the coupling distance of
    the two models.
    """
    from stirred.inference.geometry import exponent
    from stirred.inference.learned import explain
    from stirred.inference.testing import guessing_bound, power_bounds

    with told_by_options():
        limits, far = power_bounds(alpha, epsilon, distance), exponent(epsilon, distance)
        guess = guessing_bound(epsilon, distance)
    if json:
        emit_json({**_ends(limits), **exactly(epsilon_times_distance=far, guessing=guess)})
        return
    facts(
        [
            ("power", f"from {_percent(limits)[0]} to {_percent(limits)[1]} for a test of size {alpha}"),
            ("guessing", f"right at most {guess.shown(4)} of the time between two equally likely versions"),
            ("reading", explain(epsilon, distance, alpha)),
        ]
    )


@app.command()
def required(
    alpha: Annotated[str, opt("--alpha SHARE", "Size of the test.")],
    power: Annotated[str, opt("--power SHARE", "The power that is wanted.")],
    distance: Apart = "1",
    json: Json = False,
) -> None:
    """The loss that a test needs to have a power.

    Epsilon times distance, and epsilon at the distance.
    """
    from stirred.inference.testing import required_loss
    from stirred.spec.given_numbers import loss

    with told_by_options():
        needed, apart = required_loss(alpha, power), loss(distance, where="distance", called="distance")
    if apart == 0 or apart.is_infinite:
        raise wrong(f"at distance {distance} there is no such epsilon", where="--distance", remedy="write 1 or more")
    each = needed / apart
    if json:
        emit_json(exactly(loss=needed, epsilon=each))
        return
    if needed.is_infinite:
        facts([("loss", "infinite: under no finite epsilon has such a test this power")])
        return
    facts(
        [("loss", f"epsilon times distance of at least {needed.shown()} (exactly {needed})"),
         ("epsilon", f"at least {each.shown()} for versions {distance} apart")]
    )  # fmt: skip


@app.command()
def posterior(
    prior: Annotated[str, opt("--prior SHARE", "What is believed before, given what the exact figures show.")],
    epsilon: Epsilon,
    distance: Apart = "1",
    json: Json = False,
) -> None:
    """How far a belief can move, from prior to posterior."""
    from stirred.inference.geometry import exponent
    from stirred.inference.learned import NO_ASSURANCE_ABOVE
    from stirred.inference.learned import explain as explain_in_words
    from stirred.inference.testing import posterior_bounds

    with told_by_options():
        odds = posterior_bounds(prior, epsilon, distance)
        stated = posterior_bounds(prior, epsilon, distance, form="stated")
    if json:
        emit_json(
            {"odds": list(odds.doubles), "odds_exact": [str(end) for end in odds],
             "stated": list(stated.doubles), "stated_exact": [str(end) for end in stated]}
        )  # fmt: skip
        return
    low, high = _percent(odds)
    unlimited = exponent(epsilon, distance) > NO_ASSURANCE_ABOVE
    facts(
        [
            ("posterior", f"from {low} to {high}, by the odds (the sharper form)"),
            ("stated", f"from {_percent(stated)[0]} to {_percent(stated)[1]} (the form in which the source states it)"),
            ("meaning", "from before to after seeing the release; the prior is that of someone who knows the exact "
             "figures"),
            *([("reading", explain_in_words(epsilon, distance))] if unlimited else []),
        ]
    )  # fmt: skip


@app.command()
def density(
    epsilon: Epsilon,
    records: Annotated[int, opt("--records NUMBER", "How many yes-or-no records the file has.")],
    at: Annotated[Text, opt("--at NUMBER", "The noisy sum that was published; randomised response needs none.")] = None,
    mechanism: Annotated[str, opt("--mechanism NAME", "laplace-sum or randomised-response.")] = "laplace-sum",
    method: Annotated[
        str, opt("--method NAME", "lipschitz (the theorem) or envelope (the mechanism is known).")
    ] = "lipschitz",
    json: Json = False,
) -> None:
    """Bounds on the density of an output, under any model.

    They do not depend on how the data came about. Given the number of records.
    """
    from stirred.inference.density import rr_bounds, sum_bounds

    if mechanism not in ("laplace-sum", "randomised-response"):
        raise wrong(
            f"there is no mechanism {mechanism!r} here",
            where="--mechanism",
            remedy="write laplace-sum or randomised-response",
        )
    if (at is None) == (mechanism == "laplace-sum"):
        raise wrong(
            "a noisy sum needs an output, and randomised response takes none", where="--at", remedy="such as --at 5"
        )
    if method not in ("lipschitz", "envelope"):
        raise wrong(f"there is no method {method!r}", where="--method", remedy="write lipschitz or envelope")
    with told_by_options():
        if at is None:
            limits = rr_bounds(records, epsilon)
        else:
            limits = sum_bounds(at, records=records, epsilon=epsilon, method=method)
    if json:
        emit_json({**_ends(limits), "mechanism": mechanism, "method": method, "distance": records})
        return
    low, high = limits.doubles
    facts(
        [("density", f"from {low:.6g} to {high:.6g}"), ("of", f"{mechanism} of {records} records, any model of them")]
    )


@app.command()
def pufferfish(
    model: Annotated[Path, opt("--model FILE", "Mechanism, attackers and pairs of conjectures, as JSON.")],
    json: Json = False,
) -> None:
    """The loss between conjectures, for stated attackers.

    A list of attackers gives a lower bound on the loss over all of their kind.
    """
    from stirred.inference.pufferfish import read_model
    from stirred.spec.problems import placed

    try:
        text = model.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise wrong(f"cannot read the model: {reason}", where=f"--model {model}", remedy="check the path") from None
    stated = read_model(text, source=str(model))
    with placed(str(model)):
        found = stated.loss()
    skipped = [dict(each._asdict()) for each in found.skipped]
    if json:
        value = {"loss": None, "loss_exact": None} if found.value is None else exactly(loss=found.value)
        emit_json({**value, "vacuous": found.vacuous, "attacker": found.attacker, "pair": found.pair,
                   "output": found.output, "skipped": skipped})  # fmt: skip
        return
    if found.value is None:
        why = "every pair was skipped" if skipped else "there is no pair of conjectures"
        facts([("loss", f"vacuous: {why}, so nothing was examined and nothing is promised")])
    else:
        facts(
            [("loss", found.value.shown()), ("attacker", str(found.attacker)), ("pair", str(found.pair)),
             ("output", str(found.output))]
        )  # fmt: skip
    if skipped:
        emit()
        emit("Skipped:")
        bullets([f"{each['attacker']}, {each['pair']}: {each['reason']}" for each in skipped])


@app.command()
def explain(
    specification: Annotated[str, arg("SPEC.json|BUNDLE", "A specification, a bundle, or a name of the catalogue.")],
    household: Annotated[int, opt("--household NUMBER", "Persons in the household.")] = 4,
    copies: Annotated[int, opt("--copies NUMBER", "Records that imputation copied a person into.")] = 1,
    area: Annotated[int, opt("--area NUMBER", "Records in the analyst's area.")] = 100,
    alpha: Annotated[str, opt("--alpha SHARE", "Size of the test.")] = "0.05",
    prior: Annotated[str, opt("--prior SHARE", "What is believed before.")] = "0.1",
    budget: Annotated[Text, opt("--budget NUMBER", "A value for a budget that is a letter.")] = None,
    json: Json = False,
) -> None:
    """What could be learned, read off a specification."""
    from stirred.cli.spec_given import read
    from stirred.inference.learned import is_zcdp, loss_for_tests, what_could_be_learned

    entry = read(specification, budget=budget)
    loss = loss_for_tests(entry.specification, where=specification)  # refuses other flavors by name
    zcdp = is_zcdp(entry.specification)
    with told_by_options():
        found = what_could_be_learned(
            entry.specification, household=household, copies=copies, area=area, alpha=alpha, prior=prior
        )
    if json:
        stated = exactly(**{"rho2" if zcdp else "epsilon": loss})
        emit_json({**stated, "notation": entry.specification.notation, **_learned(found, zcdp=zcdp)})
        return
    heading(entry.specification.notation)
    if found.refused:
        paragraph(f"No limit can be stated: {found.refused}.")
    else:
        bullets([f"{row.about} ({row.distance} apart): {row.words}" for row in found.rows])
        emit()
        for note in found.notes:
            paragraph(note)
    emit()
    emit("For the exact figures there is no limit: whatever can be computed from them can be learned:")
    bullets(found.reveals)


def _learned(found: Learned, *, zcdp: bool) -> dict[str, Any]:
    from stirred.spec.document import number_out

    def out(value: Any) -> Any:
        return None if value is None else number_out(value)

    far = "rho2_times_squared_distance" if zcdp else "epsilon_times_distance"
    rows = [
        {"about": row.about, "distance": row.distance, far: out(row.far), "power": out(row.power),
         "posterior": out(row.posterior), "assured": row.assured, "words": row.words}
        for row in found.rows
    ]  # fmt: skip
    return {"alpha": str(found.alpha), "prior": str(found.prior), "rows": rows, "notes": list(found.notes),
            "no_limit": found.refused or None, "reveals": list(found.reveals)}  # fmt: skip


@app.command()
def figures(
    out: Annotated[Path, opt("--out FOLDER", "Where to write them; made if it is not there.")],
    json: Json = False,
) -> None:
    """Figures 5.1 to 5.4 and two more, as SVG with their data."""
    from contextlib import nullcontext

    from stirred.data.place import file_at, folder_at
    from stirred.inference.figures import figures as all_figures
    from stirred.report.charts import INSTALL, NOT_DRAWN
    from stirred.report.learned import figure_svg

    made = all_figures()
    taken = [out / f"{figure.name}{end}" for figure in made for end in (".svg", ".csv")]
    if there := next((path for path in taken if path.exists()), None):
        raise wrong("this file exists already", where=str(there), remedy="choose another folder, or remove it")
    texts: dict[Path, str] = {}
    for figure in made:
        svg = figure_svg(figure)
        if svg is None:
            raise wrong(f"{figure.name}: {NOT_DRAWN}", where="--out", remedy=f"charts need {INSTALL}")
        texts[out / f"{figure.name}.svg"] = svg if svg.endswith("\n") else f"{svg}\n"
        lines = [figure.header, *figure.rows]
        texts[out / f"{figure.name}.csv"] = "".join(",".join(_cell(cell) for cell in line) + "\n" for line in lines)
    out.parent.mkdir(parents=True, exist_ok=True)
    with nullcontext(out) if out.is_dir() else folder_at(out, private=False) as folder:
        for path, text in texts.items():
            with file_at(folder / path.name, private=False) as half:
                half.write_text(text, encoding="utf-8")
    if json:
        emit_json({"out": str(out), "files": sorted(path.name for path in texts)})
        return
    facts([("written", f"{len(texts)} files to {out}"), *((figure.name, figure.title) for figure in made)])


def _cell(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if "," in text else text


def _ends(limits: Ends) -> dict[str, Any]:
    """Return both ends, rounded outwards, and beside them the exact expressions."""
    return {"lower": limits.doubles[0], "lower_exact": str(limits.lower), **exactly(upper=limits.upper)}


def _percent(limits: Ends) -> tuple[str, str]:
    """Return both ends in percent, rounded outwards."""
    from stirred.spec.number_text import rounded_up

    low, high = -rounded_up(-100 * limits.lower, 2), rounded_up(100 * limits.upper, 2)
    return f"{abs(low)}%", f"{high}%"
