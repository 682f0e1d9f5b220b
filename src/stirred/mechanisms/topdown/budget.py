"""Budget files: rho and its shares by level and query, as data that is checked; and what they promise to whom.

Neighbours are bounded: one record changes, and of a query with disjoint cells two counts change by one each. Noise of
variance parameter sigma^2 on every cell then costs 2/(2 sigma^2), and a query with rho_q of the budget gets sigma^2 =
1/rho_q. All numbers are fractions.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from stirred.data.problems import PlanError, bad_file, bad_plan, listed
from stirred.mechanisms.topdown.hierarchy.schema import BUDGETS, SUMMED, TOTAL, MarginalQuery, Schema, shipped
from stirred.spec.convert_output import zcdp_to_epsilon
from stirred.spec.exact import Exact, exact
from stirred.spec.given_numbers import fraction, loss
from stirred.spec.problems import Problem, SpecificationError
from stirred.spec.shift_law import DiscreteGaussian

KEYS: Final = ("title", "source", "schema", "rho", "levels", "queries")
_NONE: Final = Fraction(0)
DELTA: Final = Fraction(1, 10**10)  # the Census Bureau's choice


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCost:
    """What one kind of change costs: rho, and the epsilon that it implies at a delta."""

    what: str
    rho: Fraction
    epsilon: Exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """A budget: rho, the share of each level from the top, and in each level the share of each query.

    >>> even = Shares.even("1/2", levels=["all", "ward"], queries=["total", "detailed"])
    >>> even.sigma2("ward", "total")
    Fraction(8, 1)
    """

    rho: Fraction
    levels: Mapping[str, Fraction]
    queries: Mapping[str, Mapping[str, Fraction]]  # by level, the share of each query
    title: str = ""
    source: str = ""
    schema: str = ""

    @classmethod
    def even(cls, rho: Any, *, levels: Sequence[str], queries: Sequence[str]) -> Shares:
        """Return a budget that is split evenly between the levels, and in each between the queries.

        The total of everything is fixed where neighbours are bounded, and measuring it would spend for nothing.
        """
        if twice := sorted({query for query in queries if queries.count(query) > 1}):
            raise bad_plan(f"{listed(twice)} is named more than once", where="queries", remedy="name each query once")
        problems: list[Problem] = []
        found = _rho(rho, "budget rho", problems)
        if problems:
            raise PlanError(problems)
        below, share = dict.fromkeys(queries, Fraction(1, len(queries))), Fraction(1, len(levels))
        top = [query for query in queries if query != TOTAL] or queries
        shares = dict.fromkeys(levels, below) | {levels[0]: dict.fromkeys(top, Fraction(1, len(top)))}
        return cls(rho=found, levels=dict.fromkeys(levels, share), queries=shares)

    @classmethod
    def none(cls, levels: Sequence[str]) -> Shares:
        """Return the budget of what is not measured."""
        return cls(rho=_NONE, levels=dict.fromkeys(levels, _NONE), queries={level: {} for level in levels})

    @classmethod
    def read(cls, content: Mapping[str, Any], *, where: str = "budget") -> Shares:
        """Return the budget of a budget file; everything that is wrong with it is said at once."""
        problems: list[Problem] = []
        unread: list[Problem] = []

        def number(value: Any, place: str) -> Fraction:
            try:
                found = fraction(value, where=place)
            except SpecificationError as error:
                unread.extend(error.problems)
                return Fraction(0)
            if found < 0:
                problems.append(Problem(what=f"{value} is negative", where=place, remedy="write a share from 0 to 1"))
            return found

        problems += _wrong_keys(content, where)
        rho = _rho(content.get("rho"), f"{where} rho", problems)
        given = content.get("levels") if isinstance(content.get("levels"), Mapping) else {}
        levels = {str(name): number(share, f"{where} levels {name}") for name, share in (given or {}).items()}
        queries: dict[str, dict[str, Fraction]] = {name: {} for name in levels}
        given_shares = content.get("queries") if isinstance(content.get("queries"), Mapping) else {}
        for query, shares in (given_shares or {}).items():
            by_level = shares if isinstance(shares, Mapping) else dict.fromkeys(levels, shares)
            for level, share in by_level.items():
                place = f"{where} queries {query} {level}"
                if level not in levels:
                    remedy = f"there are {listed([*levels])}"
                    problems.append(Problem(what=f"there is no level '{level}'", where=place, remedy=remedy))
                else:
                    queries[level][str(query)] = number(share, place)
        problems += unread or _wrong_sums(levels, queries, where)
        if problems:
            raise PlanError(dict.fromkeys(problems))
        texts = {key: str(content.get(key, "")) for key in ("title", "source", "schema")}
        return cls(rho=rho, levels=levels, queries=queries, **texts)

    def fitted(self, schema: Schema, levels: Sequence[str], *, where: str = "budget") -> Shares:
        """Return the budget with its levels called as in a hierarchy; refuse levels and queries that are not there.

        Names of levels agree whatever their letters' case: ``State`` is the column ``state``.
        """
        called = {name.casefold(): name for name in levels}
        problems = [
            Problem(
                what=f"there is no level '{name}'",
                where=f"{where} levels",
                remedy=f"from the top there are {listed([*levels])}; the name of the first is the setting `top`",
            )
            for name in self.levels
            if name.casefold() not in called
        ]
        named = {name.casefold() for name in self.levels}
        problems += [
            Problem(what=f"the level '{name}' has no share", where=f"{where} levels", remedy='write one, or "0"')
            for name in levels
            if name.casefold() not in named
        ]
        problems += self._wrong_queries(schema, where)
        problems += self._undrawable(where)
        if problems:
            raise PlanError(dict.fromkeys(problems))
        own = {called[name.casefold()]: name for name in self.levels}
        return replace(
            self,
            levels={name: self.levels[own[name]] for name in levels},
            queries={name: self.queries[own[name]] for name in levels},
        )

    def _wrong_queries(self, schema: Schema, where: str) -> Iterator[Problem]:
        seen: dict[MarginalQuery, str] = {}
        for name in self.names:
            try:
                query = schema.query(name)
            except PlanError as error:
                yield from (replace(problem, where=f"{where} queries {name}") for problem in error.problems)
                continue
            if query in seen:
                what = f"'{name}' asks the same as '{seen[query]}', and would be paid for twice"
                yield Problem(what=what, where=f"{where} queries", remedy="add their shares, and name it once")
            seen[query] = name

    def _undrawable(self, where: str) -> Iterator[Problem]:
        """Yield what is wrong with the widest noise, so that it is known before anything is spent.

        Areas that have the shares of bypassed levels have less noise.
        """
        laws = [(sigma2, level, query) for level, own in self.noise.items() for query, sigma2 in own.items()]
        for sigma2, level, query in sorted(laws)[-1:]:
            try:
                DiscreteGaussian(sigma2)
            except SpecificationError as error:
                yield from (replace(each, where=f"{where} queries {query} {level}") for each in error.problems)

    @property
    def names(self) -> list[str]:
        """Return the names of all queries, in the order of the level that has the most."""
        by_level = sorted(self.queries.values(), key=len, reverse=True)
        return list(dict.fromkeys(query for own in by_level for query in own))

    def measured(self, level: str) -> list[str]:
        """Return the queries that have a share of a level."""
        return [query for query, share in self.queries[level].items() if share]

    @property
    def idle(self) -> frozenset[int]:
        """Return the places of the levels at which nothing is measured, not even with the budget of others."""
        return frozenset(depth for depth, level in enumerate(self.levels) if not self.measured(level))

    def of_query(self, level: str, query: str, *, since: str | None = None) -> Fraction:
        """Return rho of a query in an area; ``since`` is the level of its highest bypassed ancestor.

        An area that is the only child is measured for both: it has the shares of all bypassed levels above it, split as
        its own level splits them. An area of a level without queries passes on what it has to all areas inside. The
        sum from the root to a leaf stays rho.
        """
        names = [*self.levels]
        first, last = names.index(since or level), names.index(level)
        share = sum((self.levels[name] for name in names[first : last + 1]), Fraction(0))
        return self.rho * share * self.queries[level].get(query, Fraction(0))

    def sigma2(self, level: str, query: str, *, since: str | None = None) -> Fraction | None:
        """Return the variance parameter of the noise of a query in an area; None where it is not measured."""
        rho = self.of_query(level, query, since=since)
        return 1 / rho if rho else None

    @property
    def noise(self) -> dict[str, dict[str, Fraction]]:
        """Return the variance parameter of each query at each level, in areas with the budget of their level alone."""
        return {
            level: {query: found for query in own if (found := self.sigma2(level, query)) is not None}
            for level, own in self.queries.items()
        }

    def certificate(
        self, schema: Schema, *, delta: Fraction = DELTA, bypassed: Collection[str] = ()
    ) -> list[ChangeCost]:
        """Return what changes of one record cost: any change; of one attribute alone; of the area alone.

        A query that sums over an attribute does not see that it changes. A move inside an area of a level changes
        nothing at this level or above, and below it every query of two areas, by one count each. ``bypassed`` are
        levels some of whose areas leave their budget to their only child, which asks its own queries with it: the cost
        is the largest of all ways that a path may be bypassed.
        """
        levels = [*self.levels]
        queries = {query: schema.query(query) for query in self.names}
        costs = {"anything": self.rho}
        left = [level for level in levels[:-1] if level in bypassed]
        for place, attribute in enumerate(schema.names):
            seen = {
                level: sum(
                    (own for query, own in self.queries[level].items() if queries[query].kept[place] != SUMMED), _NONE
                )
                for level in levels
            }
            costs[attribute] = self.rho * max(
                self._seen(seen, {*ways}) for size in range(len(left) + 1) for ways in combinations(left, size)
            )
        for depth in range(len(levels) - 2, -1, -1):
            below = max(self._below(split, left) for split in self._splits(depth, left))
            costs[f"{levels[-1]} within {levels[depth]}"] = self.rho * below
        return [
            ChangeCost(what=what, rho=rho, epsilon=zcdp_to_epsilon(exact(rho), delta=delta, method="cks"))
            for what, rho in costs.items()
        ]

    def _seen(self, seen: Mapping[str, Fraction], ways: Collection[str]) -> Fraction:
        """Return the share of rho on a path whose levels ``ways`` are bypassed, given what each level sees."""
        found = carried = _NONE
        for level, share in self.levels.items():
            carried += share
            if level not in ways and self.measured(level):
                found, carried = found + carried * seen[level], _NONE
        return found

    def _splits(self, depth: int, left: Collection[str]) -> Iterator[int]:
        """Yield the levels at which two leaves inside an area part: its own, or further down inside only children."""
        for split in range(depth, len(self.levels) - 1):
            yield split
            if [*self.levels][split] not in left:
                return

    def _below(self, split: int, left: Collection[str]) -> Fraction:
        """Return the share of what is measured below a level, with what levels without queries pass on to it."""
        names, shares = [*self.levels], [*self.levels.values()]
        first = split + 1
        if split in self.idle and {*range(first, len(names))} - self.idle:
            first = split
            while first and (first - 1 in self.idle or names[first - 1] in left):
                first -= 1
        return sum(shares[first:], Fraction(0))

    def document(self) -> dict[str, Any]:
        """Return the budget as a budget file has it."""
        table = {
            query: {level: str(own[query]) for level, own in self.queries.items() if query in own}
            for query in self.names
        }
        levels = {name: str(share) for name, share in self.levels.items()}
        texts = {key: getattr(self, key) for key in ("title", "source", "schema") if getattr(self, key)}
        return {**texts, "rho": str(self.rho), "levels": levels, "queries": table}


def _wrong_keys(content: Mapping[str, Any], where: str) -> Iterator[Problem]:
    for key in content:
        if key not in KEYS:
            yield Problem(what=f"there is no key '{key}'", where=where, remedy=f"its keys are {listed(KEYS)}")
    for key in ("rho", "levels", "queries"):
        if content.get(key) is None or (key != "rho" and not content[key]):
            yield Problem(
                what=f"{key} is missing",
                where=where,
                remedy=f"add {key}: see `stirred topdown budget us-2020-pl-persons`",
            )
        elif key != "rho" and not isinstance(content[key], Mapping):
            yield Problem(
                what="this is not a table of shares", where=f"{where} {key}", remedy=f"write [{key}], a share by name"
            )


def _rho(value: Any, where: str, problems: list[Problem]) -> Fraction:
    if value is None:
        return Fraction(1)
    remedy = "write a fraction above 0, such as '1/2', '0.5' or '(542/339)^2'"
    try:
        found = loss(value, where=where)
    except SpecificationError as error:
        # A loss may be 0 or infinite elsewhere: its remedies would be refused here.
        problems.extend(replace(each, remedy=remedy) for each in error.problems)
        return Fraction(1)
    if not found.is_rational or not found.rational:
        what = f"'{value}' is not a fraction above 0, and noise is drawn for fractions"
        problems.append(Problem(what=what, where=where, remedy=remedy))
        return Fraction(1)
    return found.rational


def _wrong_sums(
    levels: Mapping[str, Fraction], queries: Mapping[str, Mapping[str, Fraction]], where: str
) -> Iterator[Problem]:
    if (total := sum(levels.values(), Fraction(0))) != 1:
        remedy = "change them so that they add up to exactly 1"
        yield Problem(what=f"the shares of the levels add up to {total}", where=f"{where} levels", remedy=remedy)
    for level, own in queries.items():
        total = sum(own.values(), Fraction(0))
        if total != 1 and (levels[level] or own):
            what = f"the shares of the queries at {level} add up to {total}"
            yield Problem(what=what, where=f"{where} queries", remedy="change them so that they add up to exactly 1")


def read_budget(name: str) -> dict[str, Any]:
    """Return the content of a budget file by its path, or of one that is shipped ready by its name."""
    if name in BUDGETS:
        return shipped(name)
    remedy = f"name a TOML file, or one that is shipped: {listed(BUDGETS)}"
    try:
        return tomllib.loads(Path(name).read_text(encoding="utf-8"), parse_float=str)
    except OSError as error:
        raise bad_file(f"cannot read the budget file: {error.strerror}", where=name, remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        raise bad_file(f"this is not TOML ({error})", where=name, remedy=remedy) from None
