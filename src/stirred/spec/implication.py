"""Whether one specification implies another on a finite domain, decided exactly; what may be told about a budget.

A pair of datasets costs what the strictest universe that holds both allows, budget times distance. Where the output
premetric obeys the triangle inequality, the cheapest path bounds every pair, and some mechanism attains all of these
bounds at once from one dataset (Bernoulli laws for ``D_Mult``, ``D_Max`` and ``D_TV``, shifted normals for ``D_NoR``
and ``D_GDP``). So the shortest paths decide, not the list of stated pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

from stirred.spec.budget import Budget, ByUniverse
from stirred.spec.exact import INFINITE, ONE, ZERO, Exact, exact, largest
from stirred.spec.input_premetric import allowance, label, shortest
from stirred.spec.multiverse import Multiverse, Verdict
from stirred.spec.problems import ConversionRefusedError, Problem, StirredError, wrong
from stirred.spec.specification import Flavor, Specification

Pair = tuple[Hashable, Hashable]
Costs = dict[Pair, Exact]
_BY_PATHS: Final = ("D_Mult", "D_Max", "D_NoR", "D_GDP", "D_TV")
_MOST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Implication:
    """Whether every mechanism with one specification has the other too, why, and the pair of datasets that decides."""

    verdict: Verdict
    reason: str
    pair: Pair | None = None

    def __bool__(self) -> bool:
        return self.verdict is Verdict.YES


def universes(specification: Specification, datasets: Sequence[Hashable]) -> list[tuple[frozenset[Hashable], Exact]]:
    """Return each universe of a finite domain with its budget, as a Lipschitz constant (rho, not its square)."""
    budget, multiverse = specification.budget, specification.multiverse
    if budget.varies and not isinstance(budget.policy, ByUniverse):
        raise wrong("the budget varies and is not listed by universe", where="budget", remedy="write it by-universe")
    found = multiverse.universes_of(datasets)
    policy = budget.policy
    values = [policy.of(universe_name(multiverse, one)) if isinstance(policy, ByUniverse) else budget.realised
              for one in found]  # fmt: skip
    return [(one, specification.output_premetric.to_distance(value)) for one, value in zip(found, values, strict=True)]


def universe_name(multiverse: Multiverse, universe: frozenset[Hashable]) -> str:
    """Return what a universe is called in a budget by universe.

    >>> universe_name(Multiverse(universes=(frozenset("ab"),)), frozenset("ab"))
    'a, b'
    """
    if multiverse.universes is not None:
        return ", ".join(sorted(map(label, universe)))
    member = next(iter(universe))
    return ", ".join(label(one.function(member)) for one in multiverse.invariants if one.function is not None)


def costs(specification: Specification, datasets: Sequence[Hashable]) -> Costs:
    """Return what each ordered pair may cost: the least of budget times distance over the universes that hold both.

    An output premetric that is the same both ways takes the cheaper direction. A cost of 0 forces equal laws, so it
    holds both ways too.
    """
    if len(datasets) > _MOST:
        raise wrong(f"{len(datasets)} datasets", where="datasets", remedy=f"give at most {_MOST}")
    found = dict.fromkeys(((x, y) for x in datasets for y in datasets), INFINITE)
    for universe, budget in universes(specification, datasets):
        for x, y in permutations([each for each in datasets if each in universe], 2):
            found[x, y] = min(found[x, y], allowance(budget, specification.input_premetric.distance(x, y)))
    one_way = specification.output_premetric.name == "D_Max"
    for x, y in found:
        back = found[y, x]
        found[x, y] = ZERO if x == y else found[x, y] if one_way and back != 0 else min(found[x, y], back)
    return found


def implies(a: Specification, b: Specification, datasets: Sequence[Hashable]) -> Implication:
    """Decide whether every mechanism on these datasets that satisfies ``a`` satisfies ``b``.

    >>> from stirred.spec import catalogue
    >>> two, one = (catalogue.load("pure-dp").specification.with_budget(budget) for budget in ("2", "1"))
    >>> bits = [(0, 0), (0, 1), (1, 0), (1, 1)]
    >>> print(implies(one, two, bits).verdict.value, implies(two, one, bits).verdict.value)
    yes no
    """
    if not _comparable_measures(a, b):
        reason = f"{a.output_premetric.symbol} and {b.output_premetric.symbol} differ: convert one first"
        return Implication(verdict=Verdict.CANNOT_TELL, reason=reason)
    try:
        return _decided(a, costs(a, datasets), costs(b, datasets))
    except StirredError as error:
        return Implication(verdict=Verdict.CANNOT_TELL, reason=error.problems[0].what)


def _comparable_measures(a: Specification, b: Specification) -> bool:
    names = {a.output_premetric.name, b.output_premetric.name}
    return a.output_premetric == b.output_premetric or names == {"D_Mult", "D_Max"}


def _decided(a: Specification, given: Costs, wanted: Costs) -> Implication:
    output = a.output_premetric
    paths = shortest(given)
    capped = output.name == "D_TV"  # no two laws are further apart than 1
    asked = {pair: most for pair, most in wanted.items() if not (most.is_infinite or (capped and most >= ONE))}
    for pair, most in asked.items():
        if output.name in _BY_PATHS and paths[pair] > most:
            return Implication(verdict=Verdict.NO, reason=_short(pair, paths[pair], most), pair=pair)
        if paths[pair].is_infinite and output.infinite_on_disjoint:
            return Implication(verdict=Verdict.NO, reason=_short(pair, INFINITE, most), pair=pair)
    promised = paths if output.is_metric else given
    if all(promised[pair] <= most for pair, most in asked.items()):
        along = ", by adding up along paths" if any(given[pair] > most for pair, most in asked.items()) else ""
        reason = f"each pair that is promised something is promised it already{along}"
        return Implication(verdict=Verdict.YES, reason=reason)
    reason = f"{output.symbol} has no triangle inequality: what follows beyond the stated pairs is not known"
    if output.is_metric:
        reason = f"whether some mechanism comes as far by {output.symbol} as paths allow is not known"
    return Implication(verdict=Verdict.CANNOT_TELL, reason=reason)


def _short(pair: Pair, allowed: Exact, most: Exact) -> str:
    x, y = map(label, pair)
    most_of_it = "any change" if allowed.is_infinite else f"a change of {allowed.shown()}"
    return f"between {x} and {y} the first allows {most_of_it}, and the second only {most.shown()}"


def factor(a: Flavor, b: Flavor, datasets: Sequence[Hashable]) -> Exact:
    """Return the smallest k for which ``a`` at any constant budget implies ``b`` at k times it; infinite if none.

    For output premetrics that obey the triangle inequality; the budget is the Lipschitz constant.
    """
    given, wanted = (costs(Specification(flavor=one, budget=Budget.constant(1)), datasets) for one in (a, b))
    paths = shortest(given)
    ratios = [_ratio(paths[pair], most) for pair, most in wanted.items() if not most.is_infinite]
    return largest([ZERO, *ratios])


def _ratio(cost: Exact, most: Exact) -> Exact:
    if cost == most:  # not as a quotient of two formulas, which would not be seen to be 1
        return ONE if cost != 0 else ZERO
    return ZERO if cost == 0 else INFINITE if most == 0 or cost.is_infinite else cost / most


def components(flavor: Flavor, datasets: Sequence[Hashable]) -> list[frozenset[Hashable]]:
    """Return the classes [x] of datasets that are comparable, directly or through others (Definition A.1.1)."""
    linked: dict[Hashable, set[Hashable]] = {x: {x} for x in datasets}
    for universe in flavor.multiverse.universes_of(datasets):
        for x, y in permutations([each for each in datasets if each in universe], 2):
            if not flavor.input_premetric.distance(x, y).is_infinite and linked[x] is not linked[y]:
                together = linked[x] | linked[y]
                linked |= dict.fromkeys(together, together)
    return list(dict.fromkeys(map(frozenset, linked.values())))


def free_to_tell(flavor: Flavor, values: Mapping[Any, Hashable]) -> bool:
    """Say whether publishing ``values`` costs nothing: iff they are constant on each class [x] (Proposition A.2.1)."""
    return all(len({values[x] for x in one}) == 1 for one in components(flavor, list(values)))


def may_tell_budget(specification: Specification, datasets: Sequence[Hashable]) -> bool:
    """Say whether the budgets of the file's own universes may be told; the list of all budgets always may.

    The condition is that they are the same for every dataset of a class [x]; that no pair lies in two universes, as
    the source has it, does not suffice.
    """
    listed = universes(specification, datasets)
    told = {x: frozenset(str(value) for universe, value in listed if x in universe) for x in datasets}
    return free_to_tell(specification.flavor, told)


def completion(specification: Specification, datasets: Sequence[Hashable]) -> Specification:
    """Return the same promise with universes cut down to what is comparable: {D and [x]} (Proposition A.4.2).

    A universe keeps the smallest budget of those that hold it.
    """
    power = 2 if specification.output_premetric.name == "D_NoR" else 1
    listed = universes(specification, datasets)
    classes = components(specification.flavor, datasets)
    cut = list(dict.fromkeys(universe & one for universe, _ in listed for one in classes if universe & one))
    multiverse = Multiverse(universes=tuple(cut))
    budgets = [
        (universe_name(multiverse, one), min(value for universe, value in listed if one <= universe) ** power)
        for one in cut
    ]
    policy = ByUniverse(budgets=tuple(budgets))
    return specification.with_flavor(multiverse=multiverse).with_budget(Budget(policy=policy))


def implied_budget(
    specification: Specification, finer: Multiverse, datasets: Sequence[Hashable]
) -> dict[frozenset[Hashable], Exact]:
    """Return what a promise means for the universes of a finer multiverse: the least budget of those that hold each.

    Lemma 6.2.7 of the dissertation. A universe that lies in none has no promise, an infinite budget.

    >>> from stirred.spec import catalogue
    >>> policy = ByUniverse(budgets=(("1, 2, 3", ONE), ("1, 2", ONE * 3 / 10)))
    >>> stated = catalogue.load("pure-dp").specification.with_budget(Budget(policy=policy)).with_flavor(
    ...     multiverse=Multiverse(universes=(frozenset({1, 2, 3}), frozenset({1, 2}))))
    >>> finer = Multiverse(universes=(frozenset({1, 2}), frozenset({2, 3})))
    >>> [value.shown() for value in implied_budget(stated, finer, [1, 2, 3]).values()]
    ['0.3', '1']
    """
    listed = universes(specification, datasets)
    return {
        one: min((value for universe, value in listed if one <= universe), default=INFINITE)
        for one in finer.universes_of(datasets)
    }


class OverlappingUniverses(ConversionRefusedError):  # noqa: N818 (the name is the contract)
    """Noise scaled universe by universe, where one dataset is in several."""


def laplace_scale(
    specification: Specification, query: Callable[[Any], Sequence[Any]], datasets: Sequence[Hashable]
) -> dict[frozenset[Hashable], Exact]:
    """Return the scale of Laplace noise in each universe: the largest |q(a) - q(b)| / (budget times distance).

    For ``D_Mult`` and disjoint universes (Theorem 6.4.3): a dataset in two universes would get two scales, and the
    scale itself would tell them apart. Infinite where different answers are to look alike.

    >>> from stirred.spec import catalogue
    >>> pure = catalogue.load("pure-dp").specification.with_budget("1/2")
    >>> [scale.shown() for scale in laplace_scale(pure, lambda x: x, [(0,), (1,)]).values()]
    ['2']
    """
    if specification.output_premetric.name != "D_Mult":
        raise wrong("Laplace noise is for D_Mult", where="output_premetric", remedy="use another noise, or convert")
    listed = universes(specification, datasets)
    if not Multiverse(universes=tuple(one for one, _ in listed)).is_partition:
        what = "a dataset lies in several universes, and its noise would have several scales"
        remedy = "merge universes that overlap, or let the dataset carry what is held fixed"
        raise OverlappingUniverses([Problem(what=what, where="multiverse", remedy=remedy)])
    found = {}
    for universe, budget in listed:
        scales = [ZERO]
        for x, y in permutations([each for each in datasets if each in universe], 2):
            moved = exact(
                sum(abs(exact(p).rational - exact(q).rational) for p, q in zip(query(x), query(y), strict=True))
            )
            scales.append(_ratio(moved, allowance(budget, specification.input_premetric.distance(x, y))))
        found[universe] = largest(scales)
    return found
