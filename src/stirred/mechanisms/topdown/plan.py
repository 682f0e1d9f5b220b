"""The plan of measurements: how many areas, how much noise, and what a change of one record costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

from stirred.data.problems import PlanError
from stirred.mechanisms.protocol import PERSONS, Fact, Grid, Plan, ReleasedTable
from stirred.mechanisms.topdown.budget import DELTA, ChangeCost, Shares
from stirred.mechanisms.topdown.hierarchy.schema import SUMMED
from stirred.mechanisms.topdown.population import Population
from stirred.mechanisms.topdown.settings import UNITS, TopDownDesign
from stirred.mechanisms.topdown.spine import Spine
from stirred.randomness.cell_law import variance_of
from stirred.spec.composition import compose
from stirred.spec.doubts import Doubt
from stirred.spec.problems import StirredError
from stirred.spec.specification import Specification


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TopDownPlan(Plan):
    """What would be measured; nothing random has happened."""

    unreleased: ClassVar[str] = "not used"
    design: TopDownDesign
    spine: Spine
    read_off: bool = False  # whether the areas were read off the file
    one_file: bool = True  # of persons, not one of households and one of persons
    parts: tuple[Population, ...] = field(repr=False)
    own: Specification  # what this draw promises; the specification includes earlier releases

    @property
    def includes(self) -> tuple[ReleasedTable, ...]:
        return self.design.earlier

    @property
    def unrelated(self) -> tuple[ReleasedTable, ...]:
        own = self.own.domain
        return tuple(t for t in self.includes if t.promise is None or not own.is_known_as(t.promise.domain))

    def restated(self, change: Callable[[Specification], Specification]) -> TopDownPlan:
        own = change(self.own)
        self._check_promise(own, self.own)
        return self._resealed(own=own, specification=with_earlier(own, self.includes))

    @property
    def releases(self) -> Mapping[str, Sequence[str]]:
        if "records" not in self.design.settings.publish:
            return {"households": (), "persons": ()}
        columns = {part.name: self.design.record_columns(part) for part in self.measured}
        persons = columns[PERSONS]
        if self.one_file:
            return {"households": persons, "persons": ()}
        return {"households": columns.get(UNITS, ()), "persons": persons}

    @property
    def measured(self) -> list[Population]:
        return [part for part in self.parts if part.measured]

    def costs(self, part: Population) -> list[ChangeCost]:
        """Return what changes of one record cost; areas of some levels may leave their budget to their only child."""
        bypassed = [name for name, some in zip(self.spine.names, self.spine.bypassed, strict=True) if some.any()]
        return part.shares.certificate(part.schema, bypassed=bypassed)

    @property
    def disturbed(self) -> str:
        many = sum(part.numbers for part in self.parts)
        areas = sum(map(len, self.spine.parents)) - sum(int(each.sum()) for each in self.spine.bypassed)
        agrees = "".join(f"; records agree with the earlier release '{each.title}'" for each in self.includes)
        return f"each of {many:,} counts in {areas:,} areas gets discrete Gaussian noise{agrees}"

    @property
    def facts(self) -> tuple[Fact, ...]:
        areas = {name: self.spine.areas(depth) for depth, name in enumerate(self.spine.names)}
        bypassed = sum(int(each.sum()) for each in self.spine.bypassed)
        words = ", ".join(f"{count:,} {name}" for name, count in areas.items())
        words += f"; {bypassed:,} with one child leave their budget to it"
        found = [Fact(label="areas", sentence=words, values={"areas": areas, "bypassed": bypassed})]
        settings = self.design.settings
        published = ", ".join(settings.publish)
        arm = f"; records by the arm {settings.arm}" if "records" in settings.publish else ""
        choices = {"publish": [*settings.publish], "arm": settings.arm}
        found.append(Fact(label="published", sentence=f"{published}{arm}: all from one draw of noise", values=choices))
        for part in self.measured:
            costs, noise = self.costs(part), part.shares.noise
            shown = [f"{n}: " + ", ".join(f"{q} {deviation(own)}" for q, own in noise[n].items()) for n in areas]
            found += [
                Fact(
                    label=f"noise of {part.records}",
                    sentence=f"standard deviation of {'; '.join(shown)}",
                    values={f"{part.name}_sigma2": noise_values(part.shares)},
                    for_plans=True,
                ),
                Fact(
                    label=f"cost of {part.records}",
                    sentence="epsilon at delta 1e-10, by the sharper formula, for a change of "
                    + ", ".join(f"{cost.what} {cost.epsilon.shown()}" for cost in costs),
                    values={f"{part.name}_certificate": cost_values(costs)},
                ),
            ]
        return tuple(found)


def unmeasured(parts: Iterable[Population]) -> Iterator[Doubt]:
    """Yield the attributes that no query counts: records still carry their codes."""
    for part in parts:
        for place, name in enumerate(part.schema.names) if part.measured else ():
            if all(query.kept[place] == SUMMED for query in part.queries.values()):
                yield Doubt(
                    kind="unmeasured",
                    about=name,
                    what=f"no query counts {name}: records get its codes without any measurement, and they say "
                    "nothing about the file",
                    remedy='name it in queries, or "detailed"; or leave it out of attributes',
                    refuses=False,
                )


def area_doubts(spine: Spine, levels: Sequence[str]) -> Iterator[Doubt]:
    """Yield levels that look exchanged."""
    if not {*levels} <= {*spine.leaves.columns}:  # one column of geocodes names all levels
        return
    for depth, (above, name) in enumerate(pairwise(levels), start=1):
        alone = spine.areas(depth) == spine.areas(depth + 1)
        if alone and spine.leaves[name].n_unique() < spine.leaves[above].n_unique():
            yield Doubt(
                kind="levels",
                about=name,
                what=f"every {above} has just one {name}, and several have the same: {name} may be the larger area, "
                "and totals that are published exactly those of small areas",
                remedy=f"name the largest areas first under levels: {name} before {above}",
            )


def deviation(sigma2: Fraction | None) -> str:
    """Return the standard deviation of noise in a few digits."""
    return "-" if sigma2 is None else f"{float(variance_of(sigma2)) ** 0.5:.3g}"


def noise_values(shares: Shares) -> dict[str, dict[str, str]]:
    """Return the variance parameter of each query at each level."""
    return {level: {query: str(sigma2) for query, sigma2 in own.items()} for level, own in shares.noise.items()}


def cost_values(costs: Sequence[ChangeCost]) -> dict[str, dict[str, Any]]:
    """Return what changes of one record cost."""
    return {cost.what: {"rho": str(cost.rho), "epsilon": float(cost.epsilon)} for cost in costs}


def noise_grid(shares: Shares) -> Grid:
    """Return the standard deviation of each query at each level."""
    names = tuple(shares.levels)
    rows = tuple((query, *(deviation(own.get(query)) for own in shares.noise.values())) for query in shares.names)
    return Grid(header=("query", *names), rows=rows, numbers=names)


def cost_grid(costs: Sequence[ChangeCost], *, delta: float = float(DELTA)) -> Grid:
    """Return what changes of one record cost."""
    header = ("a change of", "rho", f"epsilon at delta {delta:g}")
    rows = tuple((cost.what, f"{float(cost.rho):.4f}", cost.epsilon.shown()) for cost in costs)
    return Grid(header=header, rows=rows, numbers=header[1:])


def with_earlier(own: Specification, earlier: Sequence[ReleasedTable]) -> Specification:
    """Return the promise of this draw together with those of earlier releases, whose counts are published again."""
    promises = [table.promise for table in earlier if table.promise is not None]
    if not promises:
        return own
    try:
        both = compose([own, *promises]).specification
    except StirredError as error:
        raise PlanError(
            replace(problem, what=f"it cannot be put together with this release: {problem.what}", where="agrees_with")
            for problem in error.problems
        ) from None
    losses = [
        f"the loss is that of this draw ({own.budget_text}) and of an earlier release: {t.named}" for t in earlier
    ]
    return replace(both, assumptions=(*both.assumptions, *losses))
