"""`stirred survey`: settings, what sampling does to a loss, and before whom it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from stirred.mechanisms.protocol import Command, Grid, Outcome, Picture, Progress
from stirred.spec.document import number_out
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import fraction, loss, probability
from stirred.spec.problems import StirredError, wrong
from stirred.survey.amplify import IN_PROPORTION, amplify, assumptions, deamplify
from stirred.survey.attackers import attackers
from stirred.survey.compose import compose, conditions
from stirred.survey.designs import KINDS, Design, Listed, Poisson, design_from, integer
from stirred.survey.figures import PANELS, figure_6_1, figure_7_2, two_releases
from stirred.survey.programme import programme_loss
from stirred.survey.sensitivity import compare_settings, poststrat_sensitivity
from stirred.survey.settings import ELEVENTH, Setting, all_settings

_CLOSE: Final = 1e-8


def _option(described: str, form: str = "NUMBER", default: Any = None, **more: Any) -> Any:
    return Field(default=default, description=described, json_schema_extra={"form": form}, **more)


class SettingOptions(BaseModel):
    """`stirred survey settings` and `statement`."""

    start: str | None = _option("Where the promise starts: population, frame, sample or responding.", "STAGE")
    invariant: str | None = _option("The latest stage held fixed; frame-variables for the design alone.", "STAGE")


class SurveyDesignOptions(BaseModel):
    """A sampling design; each takes the numbers that it needs."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    design: str | None = _option(f"One of {', '.join(KINDS)}.", "NAME")
    n: str | None = _option("Units drawn; by stratum with commas.", "NUMBER[,...]")
    N: str | None = _option("Units there are; by stratum with commas.", "NUMBER[,...]")
    pi: str | None = _option("Probabilities: of units, or of clusters drawn one a stratum.", "RATE[,...]")
    m: str | None = _option("Clusters drawn.")
    M: str | None = _option("Clusters there are.")
    K: str | None = _option("Units of the largest cluster; persons of the largest household.")
    equal: bool = Field(default=False, description="cluster: all have K units, so replaced records are enough.")
    n2: str | None = _option("Units drawn in each cluster.", "NUMBER[,...]")
    N2: str | None = _option("Units of each cluster.", "NUMBER[,...]")
    step: str | None = _option("Every how manieth unit is drawn.")
    order: str | None = _option("known (public and independent of the records), random, or by-record.", "NAME")
    allocation: str | None = _option("Takes of strata: fixed, proportional or neyman.", "NAME")
    method: str | None = _option("pps: with-replacement or fixed-size.", "NAME")
    sizes: str | None = _option("poisson: sizes z instead of --pi, with --n and --total.", "NUMBER[,...]")
    total: str | None = _option("poisson: the public total of all sizes.")

    def drawn(self) -> Design:
        """Return the design."""
        given = {
            name: value
            for name in SurveyDesignOptions.model_fields
            if (value := getattr(self, name)) not in (None, False)
        }
        if self.sizes is not None and self.design == "poisson":
            unknown = [name for name in given if name not in ("design", "sizes", "total", "n")]
            if unknown or self.n is None:
                raise wrong("--sizes goes with --n and --total alone", where="sizes", remedy="leave out the others")
            return Poisson.of_sizes(integer(self.n, "n"), tuple(self.sizes.split(",")), total=self.total)
        return design_from(given)


class ClaimOptions(SurveyDesignOptions, SettingOptions):
    """What is claimed of the inner mechanism and of the sample."""

    inner: Literal["substitute", "edit", "add-remove"] | None = _option(
        "What the inner guarantee covers: records replaced, also added and removed, or only those. Default: what the "
        "design needs."
    )
    frames: Literal["substitute", "add-remove"] = _option("How two frames differ.", default="substitute")
    estimator: Literal["any", "ht-total"] = _option("Any release, or one noisy Horvitz-Thompson total.", default="any")
    bounds: str | None = _option("ht-total: public bounds of the values.", "LOW,HIGH")
    sensitivity: str | None = _option("ht-total: what the noise is scaled to, if to more than is needed.")
    membership: Literal["secret", "public"] = _option("Whether anybody can know the sample.", default="secret")
    response: str | None = _option("Largest probability to respond, each unit by itself; needs --assume-known.", "RATE")
    coverage: str | None = _option(
        "With --start population: largest probability to be on the frame; needs --assume-known.", "RATE"
    )
    assume_known: bool = Field(default=False, description="Take responsibility for --response and --coverage.")
    duplicates: int = _option("Largest number of frame units of one entity.", default=1)

    def claimed(self) -> dict[str, Any]:
        """Return the claim as arguments."""
        bounds = None if self.bounds is None else _pair(self.bounds, "bounds")
        names = ("inner", "frames", "estimator", "sensitivity", "response", "coverage", "assume_known", "duplicates")
        given = {name: getattr(self, name) for name in names}
        return {**given, "bounds": bounds, "secret": self.membership == "secret", "setting": _setting(self) or ELEVENTH}


class AmplifyOptions(ClaimOptions):
    """`stirred survey amplify`."""

    epsilon: str = Field(description="The loss of the inner mechanism on the sample.")
    delta: str = _option("Its delta.", default="0")
    rho: str = _option("What an attacker believes membership to be likely with.", "RATE", "1/2")


class DeamplifyOptions(ClaimOptions):
    """`stirred survey deamplify`."""

    epsilon: str | None = _option("The loss that is wanted for a unit of the frame.")
    target: str | None = _option("The same, by another name.")


class AttackerOptions(AmplifyOptions):
    """`stirred survey attacker`."""

    rate: str | None = _option("Instead of a design: the probability of a unit.", "RATE")


class AuditOptions(SurveyDesignOptions):
    """`stirred survey audit-design`."""

    epsilon: str = Field(description="The loss of the inner mechanisms.")
    inner: Literal["substitute", "edit", "add-remove"] | None = _option("What their guarantee covers.")
    frames: Literal["substitute", "add-remove"] = _option("How two frames differ.", default="substitute")
    samples: str | None = _option("Instead of a design: its samples, such as '1,2: 1/2; 3,4: 1/2'.", "TEXT")


class ComposeOptions(BaseModel):
    """`stirred survey compose`."""

    epsilon: str = Field(description="Losses of the releases on their samples, with commas.")
    pi: str = Field(description="Probabilities of a unit in each sample; one for releases from one sample.")
    joint: str | None = _option("Probability of being in both; or independent; or unknown: losses add up.", "RATE")


class PoststratOptions(BaseModel):
    """`stirred survey poststrat`."""

    N: str = Field(description="Units of the population in each post-stratum, with commas.")
    n: str = Field(description="Sampled units in each, with commas.")
    bounds: str | None = _option("Public bounds of the values.", "LOW,HIGH")
    counts: Literal["public", "confidential"] = _option(
        "Whether the sampled counts are invariants.", default="confidential"
    )
    floor: int | None = _option("A public floor under the sampled counts.")


class CompareOptions(BaseModel):
    """`stirred survey compare`."""

    n: int = _option("Size of the sample.", default=1000)
    weights: str = _option("Smallest and largest design weight.", "LOW,HIGH", "5,40")
    bounds: str = _option("Public bounds of the values.", "LOW,HIGH", "0,1")
    epsilon: str = _option("The loss that is wanted in every setting.", default="1")
    estimator: Literal["any", "ht-total"] = _option("ht-total uses the sharper rule of the eleventh.", default="any")


class FigureOptions(BaseModel):
    """`stirred survey figures`."""

    rate: str = _option("6.1: the share of the frame that is drawn.", "RATE", "1/10")
    epsilon: str = _option("6.1: losses of each of two releases on the sample.", "NUMBER[,...]", "0.5,1,2,3,5")
    out: Path | None = _option("Draw both figures into this folder, as SVG.", "FOLDER")


def figures(options: FigureOptions, _: Progress | None) -> Outcome:
    """Print the numbers of figures 6.1 and 7.2, and draw them."""
    rows, points, rate = [], [], probability(options.rate, where="rate")
    given = [each.strip() for each in options.epsilon.split(",")]
    for each in given:
        one = loss(each, where="epsilon")
        true, naive = two_releases(one, rate)
        rows.append((each, naive.shown(6), true.shown(6)))
        points.append({"epsilon": float(one), **_exactly(naive=naive, true=true)})
    panels = [(panel, words, "-" if s is None else s.number) for panel, words, s in PANELS]
    told = [{"panel": panel, "words": words, "setting": None if s is None else _told(s)} for panel, words, s in PANELS]
    grids = (Grid(header=("6.1: epsilon of each", "amplified, then added (wrong)", "added, then amplified"),
                  rows=tuple(rows)), Grid(header=("7.2", "starts at", "setting"), rows=tuple(panels)))  # fmt: skip
    drawn: dict[Path, Picture] = {} if options.out is None else {
        options.out / "figure-6-1.svg": figure_6_1(rate, max(given, key=lambda each: loss(each, where="epsilon"))),
        options.out / "figure-7-2.svg": figure_7_2(),
    }  # fmt: skip
    return Outcome(grids=grids, values={"figure_6_1": points, "figure_7_2": told}, pictures=drawn)


def settings(options: SettingOptions, _: Progress | None) -> Outcome:
    """List settings, or show one."""
    one = _setting(options)
    found = all_settings() if one is None else (one,)
    header = ("#", "start", "held fixed", "weights", "amplifies", "advice")
    rows = [
        (s.number, s.start, s.invariant or "-", "fixed" if s.weights_fixed else "vary", ", ".join(s.amplifiers) or "-",
         s.advice) for s in found
    ]  # fmt: skip
    return Outcome(grids=(Grid(header=header, rows=tuple(rows)),), values={"settings": [_told(s) for s in found]})


def statement(options: SettingOptions, _: Progress | None) -> Outcome:
    """Say what one setting protects, and from whom."""
    one = _setting(options)
    if one is None:
        raise wrong("a statement is about one setting", where="start", remedy="such as --start sample")
    before = "anybody who does not know the sample" if one.not_covered else "anybody, whatever they know of the sample"
    rows = [("setting", f"{one.number}: {one.start}, held fixed: {one.invariant or 'nothing'}"),
            ("dataset", one.domain), ("compared", one.multiverse), ("protected", one.protects), ("from", before),
            ("not covered", "; ".join(one.not_covered) or "nobody by what they know of the sample"),
            ("public", "; ".join(one.public) or "nothing"),
            ("weights", "design weights are fixed; adjusted ones never are" if one.weights_fixed else "vary"),
            ("advice", one.advice)]  # fmt: skip
    return Outcome(rows=rows, values={**_told(one), "from": before})


def amplified(options: AmplifyOptions, _: Progress | None) -> Outcome:
    """Show what sampling makes of a loss."""
    design, claimed = options.drawn(), options.claimed()
    found = amplify(options.epsilon, design, delta=options.delta, **claimed)
    beside = attackers(options.epsilon, design, rho=options.rho, **claimed)
    values = {**_exactly(epsilon=found.epsilon, delta=found.delta, inner_epsilon=found.inner), "inner": found.relation,
              "amplifies": found.amplifies, "reason": found.reason, "design": design.document(),
              "assumptions": list(found.assumptions), "attackers": _beside(beside)}  # fmt: skip
    rows = [("loss", f"epsilon {found.epsilon.shown(6)}"), ("delta", found.delta.shown()),
            ("because", found.reason), ("needs", f"an inner guarantee of {found.inner.shown()} by {found.relation}"),
            *(("assumes", each) for each in found.assumptions)]  # fmt: skip
    return Outcome(rows=rows, grids=(_attackers(beside),), values=values)


def deamplified(options: DeamplifyOptions, _: Progress | None) -> Outcome:
    """Show the inner loss that a wanted loss allows."""
    wanted = [given for given in (options.epsilon, options.target) if given is not None]
    if len(wanted) != 1:
        raise wrong("the wanted loss is given once", where="epsilon", remedy="such as --epsilon 1")
    design, claimed = options.drawn(), options.claimed()
    found, assumed = deamplify(wanted[0], design, **claimed), assumptions(design, **claimed)
    low = float(found.rational)
    rows = [("inner loss", f"epsilon {low:.10g}, rounded down"),
            ("for", f"a loss of {wanted[0]} on the {claimed['setting'].start}"),
            *(("assumes", each) for each in assumed)]  # fmt: skip
    values = {"epsilon": low, "epsilon_exact": str(found), "target": wanted[0], "assumptions": [*assumed]}
    return Outcome(rows=rows, values=values)


def attacked(options: AttackerOptions, _: Progress | None) -> Outcome:
    """Show the loss before those who know the sample."""
    if (options.rate is None) == (options.design is None):
        raise wrong("give a rate, or a design", where="rate", remedy="such as --rate 0.1")
    design = options.drawn() if options.rate is None else Poisson((probability(options.rate, where="rate"),))
    beside = attackers(options.epsilon, design, rho=options.rho, **options.claimed())
    assumed = assumptions(design, **options.claimed())
    rows = [("assumes", each) for each in assumed]
    return Outcome(
        rows=rows, grids=(_attackers(beside),), values={"attackers": _beside(beside), "assumptions": assumed}
    )


def composed(options: ComposeOptions, _: Progress | None) -> Outcome:
    """Show the loss of several releases from samples."""
    rates = options.pi.split(",")
    found, assumed = (
        compose(options.epsilon.split(","), rates, joint=options.joint),
        conditions(len(rates), options.joint),
    )
    rows = [("together", f"epsilon {found.shown(6)}"), *(("assumes", each) for each in assumed)]
    return Outcome(rows=rows, values={**_exactly(epsilon=found), "assumptions": [*assumed]})


def poststratified(options: PoststratOptions, _: Progress | None) -> Outcome:
    """Show the sensitivity of a post-stratified total."""
    counts = [integer(x, "n") for x in options.n.split(",")]
    bounds = None if options.bounds is None else _pair(options.bounds, "bounds")
    public = options.counts == "public"
    found = poststrat_sensitivity(options.N.split(","), counts, bounds=bounds, floor=options.floor, public=public)
    holds = "given the counts, which are then invariants and must be listed in the specification" if public else (
        f"for all samples with at least {options.floor} in every cell" if options.floor
        else "at these counts only: they are confidential, so do not scale noise to it; give --floor or --counts public"
    )  # fmt: skip
    usable = public or options.floor is not None
    values = {**_exactly(sensitivity=exact(found)), "holds": holds, "usable": usable}
    return Outcome(rows=[("sensitivity", exact(found).shown(6)), ("holds", holds)], values=values)


def compared(options: CompareOptions, _: Progress | None) -> Outcome:
    """Set the eleven settings side by side."""
    found = compare_settings(
        n=options.n, weights=_pair(options.weights, "weights"), bounds=_pair(options.bounds, "bounds"),
        epsilon=options.epsilon, estimator=options.estimator,
    )  # fmt: skip
    rows = [
        (c.setting.number, c.setting.start, c.setting.invariant or "-", exact(c.sensitivity).shown(2), c.inner.shown(3),
         c.sd.shown(2), "; ".join(c.not_covered) or "-") for c in found
    ]  # fmt: skip
    header = ("#", "start", "held fixed", "sensitivity", "inner epsilon", "noise sd", "not covered")
    values = [
        {**_told(c.setting), "not_covered": [*c.not_covered],
         **_exactly(sensitivity=exact(c.sensitivity), inner_epsilon=c.inner, scale=c.scale, sd=c.sd)} for c in found
    ]  # fmt: skip
    assumed = [IN_PROPORTION] if options.estimator == "ht-total" else []
    told = {"rows": values, "epsilon": options.epsilon, **({"assumptions": assumed} if assumed else {})}
    grid = Grid(header=header, rows=tuple(rows))
    return Outcome(rows=[("assumes", each) for each in assumed], grids=(grid,), values=told)


def audited(options: AuditOptions, _: Progress | None) -> Outcome:
    """Examine all inner mechanisms of a small design."""
    design = options.drawn() if options.samples is None else _listed(options.samples)
    inner = loss(options.epsilon, where="epsilon")
    found = programme_loss(design, float(inner), inner=options.inner, frames=options.frames)
    claim = None
    if options.samples is None:
        claim = amplify(inner, design, inner=options.inner, frames=options.frames).epsilon
    within = claim is None or found <= float(claim) + _CLOSE
    values = {"epsilon": number_out(exact(found)) if found < float("inf") else "inf", "design": design.name,
              **({} if claim is None else _exactly(claimed=claim)), "within": within}  # fmt: skip
    verdict = [] if claim is None else [("verdict", "as claimed" if within else "the formula is exceeded")]
    told = "no formula is known" if claim is None else f"epsilon {claim.shown(10)}"
    rows = [("largest", f"epsilon {found:.10f} over all inner mechanisms, to within {_CLOSE}"), ("formula", told),
            *verdict]  # fmt: skip
    return Outcome(rows=rows, values=values, passed=within)


def _listed(text: str) -> Listed:
    parts = [part.split(":") for part in text.split(";") if part.strip()]
    if any(len(part) != 2 for part in parts) or not parts:
        raise wrong("a sample is its units, a colon and its probability", where="samples", remedy="'1,2: 1/2; 3: 1/2'")
    drawn = [(tuple(integer(u.strip(), "samples") for u in units.split(",") if u.strip()),
              fraction(p.strip(), where="samples")) for units, p in parts]  # fmt: skip
    return Listed(tuple(drawn))


def _setting(options: SettingOptions) -> Setting | None:
    if options.start is None and options.invariant is None:
        return None
    return Setting(options.start or "frame", None if options.invariant in (None, "none") else options.invariant)


def _told(one: Setting) -> dict[str, Any]:
    return {
        "number": one.number, "start": one.start, "invariant": one.invariant, "domain": one.domain,
        "multiverse": one.multiverse, "weights_fixed": one.weights_fixed, "amplifiers": list(one.amplifiers),
        "protects": one.protects, "public": list(one.public), "not_covered": list(one.not_covered),
        "advice": one.advice,
    }  # fmt: skip


def _pair(text: str, where: str) -> tuple[str, str]:
    ends = tuple(end.strip() for end in text.split(","))
    if len(ends) != 2:
        raise wrong(f"{text!r} is not two numbers", where=where, remedy="write such as 0,1")
    return ends[0], ends[1]


def _exactly(**values: Exact) -> dict[str, Any]:
    return {key: out for name, v in values.items() for key, out in ((name, number_out(v)), (f"{name}_exact", str(v)))}


def _beside(found: Any) -> list[dict[str, Any]]:
    return [{"attacker": a.name, "knows": a.knows, **_exactly(epsilon=a.epsilon)} for a in found]


def _attackers(found: Any) -> Grid:
    rows = [(a.name, a.knows, a.epsilon.shown(6)) for a in found]
    return Grid(header=("attacker", "knows", "epsilon"), rows=tuple(rows))


def _by_options(run: Callable[[Any, Progress | None], Outcome]) -> Callable[[Any, Progress | None], Outcome]:
    """Name options in problems that name arguments."""

    def told(options: Any, progress: Progress | None) -> Outcome:
        try:
            return run(options, progress)
        except StirredError as error:
            names = {name: name for name in type(options).model_fields}
            if getattr(options, "target", None) is None:
                names["target"] = "epsilon"
            raise type(error)(
                replace(p, where=f"--{names[p.where].replace('_', '-')}") if p.where in names else p
                for p in error.problems
            ) from None

    return told


COMMANDS: Final = tuple(
    Command(name=name, help=run.__doc__ or name, options=options, run=_by_options(run))
    for name, options, run in (
        ("settings", SettingOptions, settings), ("statement", SettingOptions, statement),
        ("amplify", AmplifyOptions, amplified), ("deamplify", DeamplifyOptions, deamplified),
        ("compose", ComposeOptions, composed), ("poststrat", PoststratOptions, poststratified),
        ("attacker", AttackerOptions, attacked), ("compare", CompareOptions, compared),
        ("audit-design", AuditOptions, audited), ("figures", FigureOptions, figures),
    )
)  # fmt: skip
