"""`stirred limits`: what anyone can learn from a release with a pure loss."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel

from stirred.cli.option_words import told_by_options
from stirred.cli.options import Text, argument, command, option
from stirred.cli.output import exactly
from stirred.cli.spec_given import BUDGET, read
from stirred.data.place import file_at, folder_at
from stirred.inference.density import rr_bounds, sum_bounds
from stirred.inference.geometry import exponent
from stirred.inference.learned import (
    NO_ASSURANCE_ABOVE,
    Learned,
    explain,
    is_zcdp,
    loss_for_tests,
    what_could_be_learned,
)
from stirred.inference.pufferfish import read_model
from stirred.inference.testing import guessing_bound, posterior_bounds, power_bounds, required_loss
from stirred.inference.weights import Ends
from stirred.mechanisms.groups import Bullets, Outcome, OutputBlock, Title
from stirred.spec.document import number_out
from stirred.spec.given_numbers import loss
from stirred.spec.number_text import rounded_up
from stirred.spec.problems import placed, wrong


class _DistanceOptions(BaseModel):
    distance: str = option("How many records the two versions differ in; inf if not compared.", "1", form="NUMBER")


class PowerOptions(_DistanceOptions):
    """`stirred limits power`."""

    alpha: str = option("Size of the test: 0.05, 1/20 or 5%.", ..., form="SHARE")
    epsilon: Text = option("The pure loss for one record: 1, 3/4 or ln(3).", form="NUMBER")
    power: Text = option("Instead: the power that is wanted, for the loss that it needs.", form="SHARE")


def power(options: PowerOptions, _: Any) -> Outcome:
    """The power a test can have, or the loss that a power needs.

    For an attacker the distance is the number of records in question; for an analyst it is the coupling distance of
    the two models. The loss is epsilon times distance, and epsilon at the distance.
    """
    alpha, distance = options.alpha, options.distance
    if (options.epsilon is None) == (options.power is None):
        what, remedy = "give either --epsilon or --power", "such as --epsilon 1"
        raise wrong(what, where="stirred limits power", remedy=remedy)
    if options.epsilon is None:
        return _required(alpha, options.power or "", distance)
    epsilon = options.epsilon
    with told_by_options():
        limits, far = power_bounds(alpha, epsilon, distance), exponent(epsilon, distance)
        guess = guessing_bound(epsilon, distance)
    return Outcome(
        values={**_ends(limits), **exactly(epsilon_times_distance=far, guessing=guess)},
        rows=[
            ("power", f"from {_percent(limits)[0]} to {_percent(limits)[1]} for a test of size {alpha}"),
            ("guessing", f"right at most {guess.shown(4)} of the time between two equally likely versions"),
            ("reading", explain(epsilon, distance, alpha)),
        ],
    )


def _required(alpha: str, power: str, distance: str) -> Outcome:
    with told_by_options():
        needed, apart = required_loss(alpha, power), loss(distance, where="distance", called="distance")
    if apart == 0 or apart.is_infinite:
        raise wrong(f"at distance {distance} there is no such epsilon", where="--distance", remedy="write 1 or more")
    each = needed / apart
    rows = [("loss", "infinite: no finite epsilon allows this power")]
    if not needed.is_infinite:
        rows = [
            ("loss", f"epsilon times distance of at least {needed.shown()} (exactly {needed})"),
            ("epsilon", f"at least {each.shown()} for versions {distance} apart"),
        ]
    return Outcome(values=exactly(loss=needed, epsilon=each), rows=rows)


class PosteriorOptions(_DistanceOptions):
    """`stirred limits posterior`."""

    prior: str = option("What is believed before, given what the exact figures show.", ..., form="SHARE")
    epsilon: str = option("The pure loss for one record: 1, 3/4 or ln(3).", ..., form="NUMBER")


def posterior(options: PosteriorOptions, _: Any) -> Outcome:
    """How far a belief can move, from prior to posterior."""
    prior, epsilon, distance = options.prior, options.epsilon, options.distance
    with told_by_options():
        odds = posterior_bounds(prior, epsilon, distance)
        stated = posterior_bounds(prior, epsilon, distance, form="stated")
    low, high = _percent(odds)
    unlimited = exponent(epsilon, distance) > NO_ASSURANCE_ABOVE
    meaning = "from before to after seeing the release; the prior is that of someone who knows the exact figures"
    rows = [
        ("posterior", f"from {low} to {high}, by the odds (the sharper form)"),
        ("stated", f"from {_percent(stated)[0]} to {_percent(stated)[1]} (the form in which the source states it)"),
        ("meaning", meaning),
        *([("reading", explain(epsilon, distance))] if unlimited else []),
    ]
    values = {"odds": list(odds.doubles), "odds_exact": [str(end) for end in odds]}
    values |= {"stated": list(stated.doubles), "stated_exact": [str(end) for end in stated]}
    return Outcome(values=values, rows=rows)


class DensityOptions(BaseModel):
    """`stirred limits density`."""

    epsilon: str = option("The pure loss for one record: 1, 3/4 or ln(3).", ..., form="NUMBER")
    records: int = option("How many yes-or-no records the file has.", ...)
    at: Text = option("The noisy sum that was published; randomised response needs none.", form="NUMBER")
    mechanism: Literal["laplace-sum", "randomised-response"] = option("What published it.", "laplace-sum")
    method: Literal["lipschitz", "envelope"] = option("The theorem, or the known mechanism.", "lipschitz")


def density(options: DensityOptions, _: Any) -> Outcome:
    """Bounds on the density of an output, under any model.

    They do not depend on how the data came about. Given the number of records.
    """
    at, records, mechanism = options.at, options.records, options.mechanism
    if (at is None) == (mechanism == "laplace-sum"):
        what = "a noisy sum needs an output, and randomised response takes none"
        raise wrong(what, where="--at", remedy="such as --at 5")
    with told_by_options():
        if at is None:
            limits = rr_bounds(records, options.epsilon)
        else:
            limits = sum_bounds(at, records=records, epsilon=options.epsilon, method=options.method)
    low, high = limits.doubles
    return Outcome(
        values={**_ends(limits), "mechanism": mechanism, "method": options.method, "distance": records},
        rows=[
            ("density", f"from {low:.6g} to {high:.6g}"),
            ("of", f"{mechanism} of {records} records, any model of them"),
        ],
    )


class PufferfishOptions(BaseModel):
    """`stirred limits pufferfish`."""

    model: Path = option("Mechanism, attackers and pairs of conjectures, as JSON.", ...)


def pufferfish(options: PufferfishOptions, _: Any) -> Outcome:
    """The loss between conjectures, for stated attackers.

    A list of attackers gives a lower bound on the loss over all of their kind.
    """
    model = options.model
    try:
        text = model.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise wrong(f"cannot read the model: {reason}", where=f"--model {model}", remedy="check the path") from None
    stated = read_model(text, source=str(model))
    with placed(str(model)):
        found = stated.loss()
    skipped = [dict(each._asdict()) for each in found.skipped]
    if found.value is None:
        why = "every pair was skipped" if skipped else "there is no pair of conjectures"
        rows = [("loss", f"vacuous: {why}, so nothing was examined and nothing is promised")]
        value: dict[str, Any] = {"loss": None, "loss_exact": None}
    else:
        rows = [("loss", found.value.shown()), ("attacker", str(found.attacker)), ("pair", str(found.pair)),
                ("output", str(found.output))]  # fmt: skip
        value = exactly(loss=found.value)
    blocks: list[OutputBlock] = []
    if skipped:
        lines = [f"{each['attacker']}, {each['pair']}: {each['reason']}" for each in skipped]
        blocks = ["", "Skipped:", Bullets(lines)]
    values = {**value, "vacuous": found.vacuous, "attacker": found.attacker, "pair": found.pair,
              "output": found.output, "skipped": skipped}  # fmt: skip
    return Outcome(values=values, rows=rows, blocks=blocks)


class ExplainOptions(BaseModel):
    """`stirred limits explain`."""

    specification: str = argument("SPEC.json|BUNDLE", "A specification, a bundle, or a name of the catalogue.")
    household: int = option("Persons in the household.", 4)
    copies: int = option("Records that imputation copied a person into.", 1)
    area: int = option("Records in the analyst's area.", 100)
    alpha: str = option("Size of the test.", "0.05", form="SHARE")
    prior: str = option("What is believed before.", "0.1", form="SHARE")
    budget: Text = option(BUDGET, form="NUMBER")


def explained(options: ExplainOptions, _: Any) -> Outcome:
    """What could be learned, read off a specification."""
    name = options.specification
    specification = read(name, budget=options.budget).specification
    stated = loss_for_tests(specification, where=name)  # refuses other flavors by name
    zcdp = is_zcdp(specification)
    given = options.model_dump(include={"household", "copies", "area", "alpha", "prior"})
    with told_by_options():
        found = what_could_be_learned(specification, **given)
    blocks: list[OutputBlock] = [Title(specification.notation)]
    if found.refused:
        blocks += [f"No limit can be stated: {found.refused}."]
    else:
        blocks += [Bullets([f"{row.about} ({row.distance} apart): {row.words}" for row in found.rows]), ""]
        blocks += found.notes
    last = "For the exact figures there is no limit: whatever can be computed from them can be learned:"
    blocks += ["", last, Bullets(found.reveals)]
    losses = exactly(**{"rho2" if zcdp else "epsilon": stated})
    return Outcome(values={**losses, "notation": specification.notation, **_learned(found, zcdp=zcdp)}, blocks=blocks)


def _learned(found: Learned, *, zcdp: bool) -> dict[str, Any]:
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


class LimitsFigureOptions(BaseModel):
    """`stirred limits figures`."""

    out: Path = option("Where to write them; made if it is not there.", ..., form="FOLDER")


def figures(options: LimitsFigureOptions, _: Any) -> Outcome:
    """Figures 5.1 to 5.4 and two more, as SVG with their data."""
    from stirred.inference.figures import figures as all_figures
    from stirred.report.charts import INSTALL, NOT_DRAWN
    from stirred.report.learned import figure_svg

    out, made = options.out, all_figures()
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
    return Outcome(
        values={"out": str(out), "files": sorted(path.name for path in texts)},
        rows=[("written", f"{len(texts)} files to {out}"), *((figure.name, figure.title) for figure in made)],
    )


def _cell(value: Any) -> str:
    text = str(value)
    return f'"{text}"' if "," in text else text


def _ends(limits: Ends) -> dict[str, Any]:
    """Return both ends, rounded outwards, and beside them the exact expressions."""
    return {"lower": limits.doubles[0], "lower_exact": str(limits.lower), **exactly(upper=limits.upper)}


def _percent(limits: Ends) -> tuple[str, str]:
    """Return both ends in percent, rounded outwards."""
    low, high = -rounded_up(-100 * limits.lower, 2), rounded_up(100 * limits.upper, 2)
    return f"{abs(low)}%", f"{high}%"


COMMANDS: Final = (
    command("power", PowerOptions, power),
    command("posterior", PosteriorOptions, posterior),
    command("density", DensityOptions, density),
    command("pufferfish", PufferfishOptions, pufferfish),
    command("explain", ExplainOptions, explained),
    command("figures", LimitsFigureOptions, figures),
)
