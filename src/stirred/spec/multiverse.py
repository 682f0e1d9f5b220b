"""Where the protection extends: universes of datasets that agree on the invariants."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import combinations
from typing import Annotated, Any, ClassVar, Self

from stirred.spec.block import Block
from stirred.spec.domain import Domain
from stirred.spec.exact import Exact
from stirred.spec.invariant import ALL, OF_PERSONS, Inequality, Invariant, Margin, Named, plural
from stirred.spec.problems import wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy(Block):
    """A chain of levels from the finest to the coarsest, each value lying inside one value of the next.

    ``geographic`` says whether these are places, or classes of a characteristic such as age groups.

    >>> census = Hierarchy(name="geography", levels=("block", "tract", "county", "state"))
    >>> census.determines("block", "county"), census.determines("county", "block")
    (True, False)
    """

    in_file: ClassVar = ("name", "levels", "geographic")

    name: Annotated[str, "what the hierarchy is called"]
    levels: Annotated[tuple[str, ...], "the levels, the finest first"]
    geographic: Annotated[bool, "whether the levels are areas"] = True

    def __post_init__(self) -> None:
        if len(self.levels) < 2 or len(set(self.levels)) != len(self.levels):
            raise wrong(
                f"levels {', '.join(self.levels) or '(none)'} are not a chain",
                where=f"hierarchy {self.name}",
                remedy="list two or more different levels, the finest first",
            )

    def determines(self, fine: str, coarse: str) -> bool:
        """Say whether knowing ``fine`` tells ``coarse``."""
        if fine not in self.levels or coarse not in self.levels:
            return fine == coarse
        return self.levels.index(fine) <= self.levels.index(coarse)


def check_agreement(hierarchies: tuple[Hierarchy, ...]) -> None:
    """Refuse hierarchies of which one nests two levels the other way round than another."""
    for first in hierarchies:
        for second in hierarchies:
            shared = [level for level in first.levels if level in second.levels]
            if [level for level in second.levels if level in shared] != shared:
                raise wrong(
                    f"hierarchies {first.name} and {second.name} nest {', '.join(shared)} in different orders",
                    where="hierarchies",
                    remedy="list the levels from the finest to the coarsest in both",
                )


def determined_by(variable: str, hierarchies: tuple[Hierarchy, ...]) -> frozenset[str]:
    """Return every variable that ``variable`` tells: itself and all coarser levels above it."""
    told = {variable}
    for hierarchy in hierarchies:
        told |= {level for level in hierarchy.levels if hierarchy.determines(variable, level)}
    return frozenset(told)


class Verdict(Enum):
    """Whether one multiverse refines another, as far as it can be decided."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Refines:
    """The answer to "does this multiverse refine that one?", with the reason, and what was undecidable."""

    verdict: Verdict
    reason: str
    undecidable: tuple[Invariant, ...] = ()
    free: tuple[Invariant, ...] = ()

    def __bool__(self) -> bool:
        return self.verdict is Verdict.YES


_yes, _no, _unknown = (partial(Refines, verdict) for verdict in (Verdict.YES, Verdict.NO, Verdict.CANNOT_TELL))


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiverse(Block):
    """A collection of universes: vacuous (one universe, everything), or induced by invariants.

    Universes induced by invariants partition the domain (section 2.3), so the realised budget may be
    published (Corollary A.2.2). ``universes`` lists overlapping universes explicitly instead, for
    audits. ``nearest`` is a proven lower bound on the distance of two different datasets of one
    universe: 2 for swapping, where no single record can change alone. ``consequences`` says in words what
    follows from the fixed figures of this file and is easily overlooked; it defines no universe, so two
    multiverses that differ only in it are equal.

    >>> counties = Multiverse(invariants=(Margin(of="household", level="county"),))
    >>> print(counties.refines(Multiverse()).reason)
    every universe lies inside the one universe that holds all datasets
    """

    in_file: ClassVar = ("invariants", "hierarchies", "nearest", "nearest_because", "consequences", "universes")
    left_out: ClassVar = ("consequences", "universes")
    needed: ClassVar = ("invariants",)

    invariants: tuple[Invariant, ...] = ()
    hierarchies: tuple[Hierarchy, ...] = ()
    nearest: int = 1
    nearest_because: str = ""
    consequences: Annotated[
        tuple[str, ...], "what follows from the invariants of this file, in words, and defines no universe"
    ] = field(default=(), compare=False)
    universes: Annotated[
        tuple[frozenset[Hashable], ...] | None,
        "universes listed one by one, by labels of their datasets; they may overlap",
    ] = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.nearest < 1:
            raise wrong(f"{self.nearest} is below 1", where="multiverse nearest", remedy="write 1 or more")
        if self.nearest > 1 and not (self.nearest_because.strip() and self.invariants):
            raise wrong(
                f"nothing says why different datasets are at least {self.nearest} apart",
                where="multiverse nearest",
                remedy="give nearest_because; without invariants the nearest datasets are 1 apart",
            )
        check_agreement(self.hierarchies)
        object.__setattr__(self, "invariants", tuple(dict.fromkeys(self.invariants)))

    @classmethod
    def from_file(cls, facts: dict[str, Any], computed: dict[str, Any]) -> Self:
        """Return the multiverse; a file describes universes by invariants, or lists them."""
        listed, described = facts.get("universes"), facts.get("invariants")
        if listed is not None and (described or not listed or not all(listed)):
            empty = "a universe without datasets" if listed else "no universe at all"
            raise wrong(
                "universes both listed and described by invariants" if described else empty,
                where="multiverse universes",
                remedy="list at least one universe, each with its datasets, or leave the list out",
            )
        return cls(**facts)

    def plain(self, *, brief: bool = False) -> dict[str, Any]:
        """Return the multiverse as plain data for JSON; universes are listed by labels of their datasets."""
        universes = self.universes or ()
        if not all(isinstance(dataset, str) for universe in universes for dataset in universe):
            raise wrong(
                "universes listed one by one are written to a file only by labels of their datasets",
                where="multiverse",
                remedy="describe them by invariants, or name each dataset by a text",
            )
        return Block.plain(self, brief=brief)

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
            consequences=self.with_consequences(other.consequences).consequences,
        )

    def with_consequences(self, more: Iterable[str]) -> Multiverse:
        """Return the same universes with more said about what their fixed figures imply."""
        return replace(self, consequences=tuple(dict.fromkeys((*self.consequences, *more))))

    def nearest_in(self, factor: Exact, *, counts: bool) -> Multiverse:
        """Return the multiverse for a distance with ``d_old <= factor * d_new``.

        All that follows for the nearest pair is ``d_new >= nearest / factor``; rounded up where the new distance
        ``counts`` records, and down where it can be a fraction.
        """
        if self.nearest == 1:
            return self
        apart = self.nearest / factor.rational if factor.is_rational else Fraction(1)
        nearest = max(1, math.ceil(apart) if counts else math.floor(apart))
        return replace(self, nearest=nearest, nearest_because=self.nearest_because if nearest > 1 else "")

    def keeps_each(self, unit: str, domain: Domain, *, of_swap: bool = False) -> bool:
        """Say whether the margins of a unit show that none of its records can change alone.

        A record that changes alone stays in its cell of every margin. It is the same record then if the margins
        together tell all columns that are looked at. Where these are not listed, the two tables of a swap show it
        (Proposition 4): match x swap and match x what is held. They say different things, and share the match
        variables or name all characteristics; two margins that share nothing are those of a swap only if the loss is
        (``of_swap``). Records inside others must be held as a whole.

        >>> homes = Domain.of_file("homes", columns=("county", "size", "tenure"))
        >>> tables = tuple(Margin(of="household", variables=("size", own)) for own in ("county", "tenure"))
        >>> [Multiverse(invariants=held).keeps_each("household", homes) for held in (tables, tables[:1])]
        [True, False]
        """
        margins = [margin for margin in self.invariants if isinstance(margin, Margin) and margin.of == unit]
        inside = {record for m in margins if {ALL, OF_PERSONS} & {*m.variables} for record in m.includes}
        if not {*domain.record_types} <= {unit, *inside}:
            return False
        if not domain.columns:
            pairs = [(a, b) for a, b in combinations(margins, 2) if _differ(a, b, self.hierarchies)]
            return any(of_swap or ALL in a.variables + b.variables or self._share(a, b) for a, b in pairs)
        told = frozenset[str]().union(*(_axes(margin, self.hierarchies) for margin in margins))
        missing = {c for c in domain.columns if c not in told and not c.startswith(tuple(f"{r} " for r in inside))}
        if _knows_geography(self.hierarchies) and any(ALL in margin.variables for margin in margins):
            missing &= {level for each in self.hierarchies if each.geographic for level in each.levels}
        return not missing

    def _share(self, one: Margin, other: Margin) -> bool:
        return bool(_axes(one, self.hierarchies) & _axes(other, self.hierarchies))

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
            return _yes("every universe lies inside the one universe that holds all datasets")
        if self.universes is not None or other.universes is not None:
            return _refines_by_listing(self, other)
        hierarchies = tuple(dict.fromkeys((*self.hierarchies, *other.hierarchies)))
        check_agreement(hierarchies)
        given = _with_inherited(self.invariants, (*self.invariants, *other.invariants), hierarchies)
        answers = [(wanted, _implied(wanted, given, hierarchies)) for wanted in other.invariants]
        if free := {wanted: answer for wanted, answer in answers if answer.verdict is Verdict.NO}:
            first = next(iter(free))
            return _no(f"{first}: {free[first].reason}", free=tuple(free))
        if unknown := {wanted: answer for wanted, answer in answers if answer.verdict is Verdict.CANNOT_TELL}:
            reason = "; ".join(f"{wanted}: {answer.reason}" for wanted, answer in unknown.items())
            return _unknown(reason, undecidable=tuple(unknown))
        return _yes("; ".join(dict.fromkeys(f"{wanted}: {answer.reason}" for wanted, answer in answers)))


def _without_implied(invariants: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]) -> tuple[Invariant, ...]:
    kept = list(_with_inherited(invariants, invariants, hierarchies))
    for invariant in list(kept):
        others = tuple(other for other in kept if other is not invariant)
        if _implied(invariant, others, hierarchies).verdict is Verdict.YES:
            kept = [other for other in kept if other is not invariant]
    return tuple(dict.fromkeys(kept))


def _with_inherited(
    invariants: tuple[Invariant, ...], known: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]
) -> tuple[Invariant, ...]:
    """Return the invariants, each margin with the records that any table it determines is known to include."""
    facts = [margin for margin in known if isinstance(margin, Margin) and margin.includes]
    return tuple(_inheriting(i, facts, hierarchies) if isinstance(i, Margin) else i for i in invariants)


def _inheriting(margin: Margin, facts: list[Margin], hierarchies: tuple[Hierarchy, ...]) -> Margin:
    more = [
        record
        for fact in facts
        if fact.of == margin.of and _determines(margin, fact, hierarchies) is Verdict.YES
        for record in fact.includes
    ]
    includes = tuple(dict.fromkeys((*margin.includes, *more)))
    return margin if includes == margin.includes else replace(margin, includes=includes)


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
        return _unknown("one multiverse lists its universes and the other describes them by invariants")
    for universe in fine.universes:
        if not any(universe <= other for other in coarse.universes):
            return _no("a universe lies in none of the other's universes")
    return _yes("each listed universe lies inside one of the other's")


def _implied(wanted: Invariant, given: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]) -> Refines:
    """Say whether fixing ``given`` fixes ``wanted``."""
    if wanted in given:
        return _yes("held fixed in both")
    if isinstance(wanted, Margin):
        return _margin_implied(wanted, given, hierarchies)
    if not given:
        return _no("nothing is held fixed on the other side")
    if isinstance(wanted, Inequality) and wanted.on is not None:
        return _inequality_implied(wanted, wanted.on, given, hierarchies)
    return _unknown("it is known by name only, and whether the other invariants determine it is not stated")


def _inequality_implied(
    wanted: Inequality, on: Margin, given: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]
) -> Refines:
    if _implied(on, given, hierarchies):
        return _yes(f"a function of the {on}, which is fixed")
    if not any(_may_bear_on(g, on) for g in given):
        return _no(f"nothing fixed says anything about {plural(on.of)}")
    return _unknown(f"the {on} may vary, but perhaps not so far that '{wanted.condition}' changes")


def _may_bear_on(given: Invariant, wanted: Margin) -> bool:
    if isinstance(given, Named):
        return True
    margin = given if isinstance(given, Margin) else given.on
    return margin is None or wanted.of in (margin.of, *margin.includes)


def _margin_implied(wanted: Margin, given: tuple[Invariant, ...], hierarchies: tuple[Hierarchy, ...]) -> Refines:
    margins = [margin for margin in given if isinstance(margin, Margin)]
    same = [(margin, _determines(margin, wanted, hierarchies)) for margin in margins if margin.of == wanted.of]
    for margin, answer in same:
        if answer is Verdict.YES:
            return _yes(f"it can be added up from the {margin}, which is fixed")
    carried = [_included(wanted, margin, hierarchies) for margin in margins if wanted.of in margin.includes]
    if any(carried):
        return next(answer for answer in carried if answer)
    unknown = [answer for answer in carried if answer.verdict is Verdict.CANNOT_TELL]
    if unknown:
        return unknown[0]
    for margin, answer in same:
        if answer is Verdict.CANNOT_TELL:
            return _unknown(f"whether it follows from the fixed {margin} is not stated")
    named = [invariant for invariant in given if isinstance(invariant, Named)]
    if named:
        return _unknown(f"whether it follows from '{named[0]}' is not stated")
    if not same:
        return _no(f"nothing fixed on the other side counts {plural(wanted.of)}, so it can vary")
    # Interaction spaces of a contingency table are independent: a margin is a function of others only
    # if one of them contains it.
    fixed = " and the ".join(str(margin) for margin, _ in same)
    return _no(f"it can vary while the {fixed} {'stays' if len(same) == 1 else 'stay'} fixed")


def _included(wanted: Margin, margin: Margin, hierarchies: tuple[Hierarchy, ...]) -> Refines:
    """Answer for records carried inside others: persons, where the fixed table is one of households."""
    places = _places(wanted, hierarchies)
    if not places <= _axes(margin, hierarchies):
        return _no(f"the fixed {margin} does not tell {', '.join(sorted(places - _axes(margin, hierarchies)))}")
    own = [v for v in wanted.variables if v not in places]
    if not own:
        return _yes(f"every {wanted.of} is part of a {margin.of} record, and the {margin} is fixed")
    if ALL in margin.variables and (ALL in own or _knows_geography(hierarchies)):
        return _yes(f"every {wanted.of} is part of a {margin.of} record with all its characteristics, which are fixed")
    return _unknown(f"whether {', '.join(own)} of a {wanted.of} follows from the fixed {margin} is not stated")


def _places(margin: Margin, hierarchies: tuple[Hierarchy, ...]) -> frozenset[str]:
    """Return the geographic axes of a margin: its level, and variables that are levels of a geography."""
    geography = {level for hierarchy in hierarchies if hierarchy.geographic for level in hierarchy.levels}
    named = {variable for variable in margin.variables if variable in geography}
    return frozenset(named | ({margin.level} if margin.level is not None else set()))


def _knows_geography(hierarchies: tuple[Hierarchy, ...]) -> bool:
    return any(hierarchy.geographic for hierarchy in hierarchies)


def _axes(margin: Margin, hierarchies: tuple[Hierarchy, ...]) -> frozenset[str]:
    named = [variable for variable in margin.variables if variable != ALL]
    if margin.level is not None:
        named.append(margin.level)
    return frozenset().union(*(determined_by(variable, hierarchies) for variable in named))


def _differ(one: Margin, other: Margin, hierarchies: tuple[Hierarchy, ...]) -> bool:
    """Say whether neither of two tables follows from the other, as far as that is decided, and one surely does not."""
    answers = {_determines(one, other, hierarchies), _determines(other, one, hierarchies)}
    return Verdict.NO in answers and Verdict.YES not in answers


def _determines(fine: Margin, coarse: Margin, hierarchies: tuple[Hierarchy, ...]) -> Verdict:
    """Say whether the table ``coarse`` of the same records can be added up from the table ``fine``.

    "*" stands for every characteristic that is not geography. Which variables are geography is known
    only where a geographic hierarchy is declared.
    """
    places = _places(coarse, hierarchies)
    missing = {v for v in coarse.variables if v != ALL} | places
    missing -= _axes(fine, hierarchies)
    if missing & places:
        return Verdict.NO
    if ALL in fine.variables:
        return Verdict.YES if not missing or _knows_geography(hierarchies) else Verdict.CANNOT_TELL
    if missing:
        return Verdict.NO
    if ALL not in coarse.variables:
        return Verdict.YES
    # Whether the named characteristics are all there are is not stated; if none is named, they are not.
    own = set(fine.variables) - _places(fine, hierarchies)
    return Verdict.CANNOT_TELL if own else Verdict.NO
