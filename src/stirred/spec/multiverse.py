"""Where the protection extends: universes of datasets that agree on the invariants."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from stirred.spec.exact import Exact
from stirred.spec.hierarchy import Hierarchy, determined_by
from stirred.spec.invariant import ALL, Inequality, Invariant, Margin, Named, plural
from stirred.spec.problems import wrong


class Verdict(Enum):
    """Whether one multiverse refines another, as far as it can be decided."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refines:
    """The answer to "does this multiverse refine that one?", with the reason, and what was undecidable."""

    verdict: Verdict
    reason: str
    undecidable: tuple[Invariant, ...] = ()
    free: tuple[Invariant, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict is Verdict.YES


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiverse:
    """A collection of universes: vacuous (one universe, everything), or induced by invariants.

    Universes induced by invariants partition the domain (section 2.3), so the realised budget may be
    published (Corollary A.2.2). ``universes`` lists overlapping universes explicitly instead, for
    audits. ``nearest`` is a proven lower bound on the distance of two different datasets of one
    universe: 2 for swapping, where no single record can change alone.

    >>> counties = Multiverse(invariants=(Margin(of="household", level="county"),))
    >>> print(counties.refines(Multiverse()).reason)
    every universe lies inside the one universe that holds all datasets
    """

    invariants: tuple[Invariant, ...] = ()
    hierarchies: tuple[Hierarchy, ...] = ()
    nearest: int = 1
    nearest_because: str = ""
    universes: tuple[frozenset[Hashable], ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.nearest < 1:
            raise wrong(f"{self.nearest} is below 1", where="multiverse nearest", remedy="write 1 or more")
        object.__setattr__(self, "invariants", tuple(dict.fromkeys(self.invariants)))

    @property
    def is_vacuous(self) -> bool:
        """Say whether there is no invariant at all."""
        return not self.invariants and self.universes is None

    @property
    def is_partition(self) -> bool:
        """Say whether different universes never share a dataset."""
        if self.universes is None:
            return True
        members = [dataset for universe in set(self.universes) for dataset in universe]
        return len(members) == len(set(members))

    def with_invariants(self, more: Iterable[Invariant]) -> Multiverse:
        """Return the common refinement with further invariants."""
        return self.meet(Multiverse(invariants=tuple(more)))

    def meet(self, other: Multiverse) -> Multiverse:
        """Return the common refinement: all pairwise intersections of universes.

        Both sets of invariants hold; one that the others imply is not repeated.
        """
        if self.universes is not None or other.universes is not None:
            raise wrong(
                "universes listed one by one have no invariants to merge",
                where="multiverse",
                remedy="describe the universes by invariants",
            )
        wider = self if self.nearest >= other.nearest else other
        hierarchies = tuple(dict.fromkeys((*self.hierarchies, *other.hierarchies)))
        return Multiverse(
            invariants=_without_implied((*self.invariants, *other.invariants), hierarchies),
            hierarchies=hierarchies,
            nearest=wider.nearest,
            nearest_because=wider.nearest_because,
        )

    def nearest_in(self, factor: Exact) -> Multiverse:
        """Return the multiverse for a distance with ``d_old <= factor * d_new``.

        All that follows for the nearest pair is ``d_new >= nearest / factor``.
        """
        if self.nearest == 1:
            return self
        nearest = max(1, -int(-self.nearest // factor.rational)) if factor.is_rational else 1
        return replace(self, nearest=nearest, nearest_because=self.nearest_because if nearest > 1 else "")

    def universes_of(self, datasets: Iterable[Hashable]) -> list[frozenset[Hashable]]:
        """Return the universes of a finite domain, by evaluating every invariant on every dataset."""
        if self.universes is not None:
            return [frozenset(universe) for universe in self.universes]
        groups: dict[Hashable, list[Hashable]] = {}
        for dataset in datasets:
            groups.setdefault(tuple(_evaluate(i, dataset) for i in self.invariants), []).append(dataset)
        return [frozenset(group) for group in groups.values()]

    def refines(self, other: Multiverse) -> Refines:
        """Say whether every universe of this multiverse lies inside a universe of ``other``, and why.

        Decided: a margin over fewer variables or at a coarser level follows from a finer one; a
        function of a count follows from the count; a set of invariants refines each of its members.
        A margin that no margin here contains is free to vary while these are fixed, if the domain
        allows every table (each variable having at least two values). A function known by name only is
        undecidable, and named as such.
        """
        if other.is_vacuous:
            return Refines(
                verdict=Verdict.YES,
                reason="every universe lies inside the one universe that holds all datasets",
            )
        if self.universes is not None or other.universes is not None:
            return _refines_by_listing(self, other)
        hierarchies = tuple(dict.fromkeys((*self.hierarchies, *other.hierarchies)))
        answers = [(wanted, _implied(wanted, self.invariants, hierarchies)) for wanted in other.invariants]
        free = [(wanted, answer) for wanted, answer in answers if answer.verdict is Verdict.NO]
        if free:
            return Refines(
                verdict=Verdict.NO,
                reason=f"{free[0][0]}: {free[0][1].reason}",
                free=tuple(wanted for wanted, _ in free),
            )
        unknown = [(wanted, answer) for wanted, answer in answers if answer.verdict is Verdict.CANNOT_TELL]
        if unknown:
            return Refines(
                verdict=Verdict.CANNOT_TELL,
                reason="; ".join(f"{wanted}: {answer.reason}" for wanted, answer in unknown),
                undecidable=tuple(wanted for wanted, _ in unknown),
            )
        reasons = dict.fromkeys(f"{wanted}: {answer.reason}" for wanted, answer in answers)
        return Refines(verdict=Verdict.YES, reason="; ".join(reasons))


def _without_implied(invariants: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]) -> tuple[Invariant, ...]:
    kept = list(dict.fromkeys(invariants))
    for invariant in list(kept):
        others = tuple(other for other in kept if other != invariant)
        if _implied(invariant, others, hierarchies).verdict is Verdict.YES:
            kept.remove(invariant)
    return tuple(kept)


def _evaluate(invariant: Invariant, dataset: Hashable) -> Hashable:
    if invariant.function is None:
        raise wrong(
            f"'{invariant}' cannot be computed: it has no function",
            where="multiverse",
            remedy="give the invariant a `function` of the dataset, or do not enumerate",
        )
    return invariant.function(dataset)


def _refines_by_listing(fine: Multiverse, coarse: Multiverse) -> Refines:
    if fine.universes is None or coarse.universes is None:
        return Refines(
            verdict=Verdict.CANNOT_TELL,
            reason="one multiverse lists its universes and the other describes them by invariants",
        )
    for universe in fine.universes:
        if not any(universe <= other for other in coarse.universes):
            return Refines(verdict=Verdict.NO, reason="a universe lies in none of the other's universes")
    return Refines(verdict=Verdict.YES, reason="each listed universe lies inside one of the other's")


def _implied(wanted: Invariant, given: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]) -> Refines:
    """Say whether fixing ``given`` fixes ``wanted``."""
    if wanted in given:
        return Refines(verdict=Verdict.YES, reason="held fixed in both")
    if isinstance(wanted, Margin):
        return _margin_implied(wanted, given, hierarchies)
    if isinstance(wanted, Inequality) and wanted.on is not None:
        count = _implied(wanted.on, given, hierarchies)
        if count.verdict is Verdict.YES:
            return Refines(verdict=Verdict.YES, reason=f"a function of the {wanted.on}, which is fixed")
        if not given:
            return Refines(verdict=Verdict.NO, reason="nothing is held fixed on the other side")
        related = [g for g in given if _may_bear_on(g, wanted.on)]
        if not related:
            return Refines(verdict=Verdict.NO, reason=f"nothing fixed says anything about {plural(wanted.on.of)}")
        return Refines(
            verdict=Verdict.CANNOT_TELL,
            reason=f"the {wanted.on} may vary, but perhaps not across this condition",
        )
    if not given:
        return Refines(verdict=Verdict.NO, reason="nothing is held fixed on the other side")
    return Refines(
        verdict=Verdict.CANNOT_TELL,
        reason=f"'{wanted}' is known by name only, and whether the other invariants determine it is not stated",
    )


def _may_bear_on(given: Invariant, wanted: Margin) -> bool:
    if isinstance(given, Named):
        return True
    margin = given if isinstance(given, Margin) else given.on
    return margin is None or wanted.of in (margin.of, *margin.includes)


def _margin_implied(wanted: Margin, given: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]) -> Refines:
    margins = [margin for margin in given if isinstance(margin, Margin)]
    for margin in margins:
        if margin.of == wanted.of and _determines(margin, wanted, hierarchies):
            how = "a coarser table of" if wanted != margin else "the same as"
            return Refines(verdict=Verdict.YES, reason=f"{how} the {margin}, which is fixed")
    named = [str(invariant) for invariant in given if isinstance(invariant, Named)]
    if named:
        return Refines(
            verdict=Verdict.CANNOT_TELL,
            reason=f"whether it follows from '{named[0]}' is not stated",
        )
    carrying = [m for m in margins if wanted.of in m.includes and _level_determines(m, wanted, hierarchies)]
    if carrying:
        answers = [_included(wanted, margin) for margin in carrying]
        return next((answer for answer in answers if answer), answers[0])
    same = [margin for margin in margins if margin.of == wanted.of]
    if not same:
        return Refines(
            verdict=Verdict.NO,
            reason=f"nothing fixed on the other side counts {plural(wanted.of)}, so it can vary",
        )
    # Interaction spaces of a contingency table are independent: a margin is a function of others only
    # if one of them contains it.
    return Refines(
        verdict=Verdict.NO,
        reason=f"it can vary while the {' and the '.join(str(margin) for margin in same)} stay fixed",
    )


def _included(wanted: Margin, margin: Margin) -> Refines:
    """Answer for records carried inside others: persons, where the fixed table is one of households."""
    if not wanted.variables or ALL in margin.variables:
        return Refines(
            verdict=Verdict.YES,
            reason=f"every {wanted.of} is part of a {margin.of} record, and the {margin} is fixed",
        )
    return Refines(
        verdict=Verdict.CANNOT_TELL,
        reason=f"whether {', '.join(wanted.variables)} of a {wanted.of} follows from the fixed {margin} is not stated",
    )


def _axes(margin: Margin, hierarchies: tuple[Hierarchy, ...]) -> frozenset[str]:
    named = [variable for variable in margin.variables if variable != ALL]
    if margin.level is not None:
        named.append(margin.level)
    return frozenset().union(*(determined_by(variable, hierarchies) for variable in named))


def _determines(fine: Margin, coarse: Margin, hierarchies: tuple[Hierarchy, ...]) -> bool:
    """Say whether the table ``coarse`` can be added up from the table ``fine``."""
    wanted = {variable for variable in coarse.variables if variable != ALL}
    if coarse.level is not None:
        wanted.add(coarse.level)
    missing = wanted - _axes(fine, hierarchies)
    if ALL in coarse.variables and ALL not in fine.variables:
        return False
    if ALL in fine.variables:
        levels = {level for hierarchy in hierarchies for level in hierarchy.levels}
        missing &= levels | ({coarse.level} if coarse.level else set())
    return not missing


def _level_determines(fine: Margin, coarse: Margin, hierarchies: tuple[Hierarchy, ...]) -> bool:
    return coarse.level is None or coarse.level in _axes(fine, hierarchies)
