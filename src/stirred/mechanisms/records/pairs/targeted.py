"""`targeted-record-swap`: record swapping targeted at households at risk, with the names of sdcMicro."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any, ClassVar

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codes import encode
from stirred.data.columns import select
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_file, bad_plan, number
from stirred.mechanisms.protocol import Names, Rate, Settings
from stirred.mechanisms.records.pairs.choices import Choices, ChoiceTree, ChoiceWeights, Rows
from stirred.mechanisms.records.pairs.engine import PairLaw, PairSwap, apart, prior_of
from stirred.spec.exact import Exact
from stirred.spec.given_numbers import fraction, probability
from stirred.spec.number_text import percent

_MILLION = 1_000_000  # given risks are whole millionths
_MOST = 2_000  # of them 31 bits hold so many


class TargetedSettings(Settings):
    """The arguments of sdcMicro's recordSwap, with the same names and meanings; ``hid`` stands under [data]."""

    hierarchy: Names = Field(
        description="Columns of the geography, the coarsest first.", json_schema_extra={"example": "county,district"}
    )
    similar: Names | list[list[str]] = Field(
        description="Columns on which partners must agree; or lists of columns, of which the first is tried first.",
        json_schema_extra={"example": "hsize"},
    )
    swaprate: Rate = Field(
        default="5%",
        description="The share of each finest area that is exchanged, including those at risk. All at risk are "
        "exchanged, also where they are more.",
    )
    risk_variables: Names = Field(default=[], description="Columns in which persons are counted to find rare ones.")
    k_anonymity: int = Field(default=3, ge=0, description="At risk is whoever shares these columns with fewer others.")
    risk: Names = Field(default=[], description="Instead: columns with the risk at each level, from 0 on.")
    risk_threshold: Rate | None = Field(default=None, description="With risk: above it a household is at risk.")
    carry_along: Names = Field(default=[], description="Further columns that are exchanged with the geography.")
    rate_prior: dict[str, str] | None = Field(
        default=None, description="What an attacker believes about the rate, for what its secrecy would add."
    )

    @property
    def profiles(self) -> list[list[str]]:
        """Return the lists of columns on which partners must agree, the first tried first."""
        alone = [name for name in self.similar if isinstance(name, str)]
        return [alone] if alone else [[*profile] for profile in self.similar]

    def law(self) -> TargetedLaw:
        """Return the law; refuse settings that contradict each other."""
        rate = probability(self.swaprate, where="swaprate")
        for where, wrong, what, remedy in (
            ("hierarchy", not self.hierarchy, "there is no geography to exchange", "name its columns"),
            ("similar", not all(self.profiles), "a profile without columns", "name columns in each profile"),
            ("risk", bool(self.risk) and len(self.risk) != len(self.hierarchy),
             "there is not one column of risk for each level", "name as many as in hierarchy"),
            ("risk", bool(self.risk) and bool(self.risk_variables), "risks are given and counted", "leave one out"),
            ("risk_threshold", bool(self.risk) != (self.risk_threshold is not None),
             "risk_threshold goes with risk, and risk_variables with k_anonymity", "give both or none"),
        ):  # fmt: skip
            if wrong:
                raise bad_plan(what, where=where, remedy=remedy)
        swapped, profiles = tuple(dict.fromkeys((*self.hierarchy, *self.carry_along))), self.profiles
        # As the settings say it: how many are at risk is confidential.
        how_many = share = f"{percent(rate)} of each {self.hierarchy[-1]}"
        if self.risk or self.risk_variables:
            how_many = "all households at risk" + (f", and others until {share} are exchanged" if rate else "")
        return TargetedLaw(
            settings=self,
            swapped=swapped,
            matched=tuple(name for name in profiles[0] if all(name in profile for profile in profiles)),
            used=(*swapped, *(name for profile in profiles for name in profile), *self.risk_variables, *self.risk),
            rate=rate,
            how_many=how_many,
            prior=prior_of(self.rate_prior),
            left_out=tuple(self.risk),  # a risk tells who was likely swapped
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetedLaw(PairLaw):
    """Pair the households at risk, and others until the rate is reached, with similar ones elsewhere."""

    breaks: ClassVar[str] = (
        "Who is swapped depends on the other records, and pairs are disjoint: some files can never become others."
    )
    witness: ClassVar[str] = (
        "the files {(A, u), (B, v)} and {(A, v), (B, u)}, both records at risk: each becomes the other with certainty, "
        "and the output tells which it was; without risks, of three areas with one record each no swap makes a cycle"
    )

    settings: TargetedSettings

    @property
    def small_settings(self) -> Mapping[str, Any]:
        """Return the settings of a small file, in which risks are counted by the held value where they are counted."""
        counted = ["held"] if self.settings.risk_variables else []
        own = {"hierarchy": ["area"], "similar": ["alike"], "carry_along": [], "risk_variables": counted}
        return {**own, "risk": [], "risk_threshold": None}

    def inside_plan(self, data: Microdata) -> str:
        """Say how many are at risk, and how many are exchanged at most. Every swap of an area has one partner."""
        problem = self.problem(data)
        at_risk = problem.risky < len(problem.areas)
        finest = problem.areas[-1]
        sizes, risky = np.bincount(finest), np.bincount(finest[at_risk], minlength=int(finest.max(initial=0)) + 1)
        wanted = [max(int(few), ceil(int(size) * problem.rate / 2)) for few, size in zip(risky, sizes, strict=True)]
        most, count = min(2 * sum(wanted), problem.size), int(at_risk.sum())
        of = f"of {number(problem.size, 'household')}"
        return (
            f"{count:,} {of} ({percent(Fraction(count, problem.size), digits=3)}) are at risk; with their partners and "
            f"those drawn for the swap rate at most {most:,} ({percent(Fraction(most, problem.size), digits=3)}) are "
            "exchanged. This is confidential"
        )

    def advised(self, remedy: str) -> str:
        return PairLaw.advised(self, remedy).replace("swap it too", "carry it along (carry_along)")

    def problem(self, data: Microdata) -> TargetedFile:
        """Return the file as codes."""
        homes = data.households
        levels = range(1, len(self.settings.hierarchy) + 1)
        areas = [encode(homes, list(self.settings.hierarchy[:level])).codes.astype(np.int64) for level in levels]
        profiles = [encode(homes, list(profile)).codes.astype(np.int64) for profile in self.settings.profiles]
        weights, at_risk = zip(*(self._risk(data, area, level) for level, area in enumerate(areas)), strict=True)
        risky = np.full(homes.height, len(areas), dtype=np.int64)
        for level in reversed(range(len(areas))):
            risky[at_risk[level]] = level
        return TargetedFile(areas=areas, weights=weights, risky=risky, profiles=profiles, rate=self.rate)

    def _risk(self, data: Microdata, area: Rows, level: int) -> tuple[ChoiceWeights, Any]:
        """Return the risk of every household at a level, and whether it is at risk there."""
        size = data.households.height
        if self.settings.risk:
            given = self._given(data, self.settings.risk[level])
            limit = fraction(self.settings.risk_threshold or 0, where="risk_threshold") * _MILLION
            return ChoiceWeights.of(given), given > int(limit)
        if not self.settings.risk_variables:
            return ChoiceWeights.inverse(np.ones(size, dtype=np.int64)), np.zeros(size, dtype=bool)
        rows, values = self._counted(data)
        own = encode(values.with_columns(pl.Series("__area", area[rows])), [*values.columns, "__area"])
        counts = np.bincount(own.codes, minlength=own.count)[own.codes]
        fewest = np.full(size, data.households.height + len(rows), dtype=np.int64)
        np.minimum.at(fewest, rows, counts)
        return ChoiceWeights.inverse(fewest), fewest < self.settings.k_anonymity

    def _counted(self, data: Microdata) -> tuple[Rows, pl.DataFrame]:
        """Return whom risks count, by the row of its household, with the variables: persons, or records without any."""
        names = list(self.settings.risk_variables)
        homes = [name for name in names if name in data.households.columns]
        if data.persons is None:
            return np.arange(data.households.height), data.households.select(names)
        rows = household_rows(data).astype(np.int64)
        own = select(data.persons, [name for name in names if name not in homes])
        return rows, pl.DataFrame([*own, *(data.households[name].gather(rows) for name in homes)]).select(names)

    def _given(self, data: Microdata, name: str) -> Rows:
        """Return a given risk of each household in millionths: the largest of its members."""
        column = data.households[name] if name in data.households.columns else data.persons[name]  # type: ignore[index]
        known = column.cast(pl.Float64, strict=False)
        if known.null_count() or not bool(known.is_between(0, _MOST).all()):
            what = f"risks are numbers from 0 to {_MOST:,}"
            raise bad_file(what, where=f'"{name}"', remedy="give every record one, in another unit if need be")
        whole = (known * _MILLION).round().cast(pl.Int64).to_numpy()
        if name in data.households.columns:
            return np.asarray(whole)
        most = np.zeros(data.households.height, dtype=np.int64)
        np.maximum.at(most, household_rows(data).astype(np.int64), whole)
        return most


class TargetedSwap(PairSwap):
    """Swap the geography of households at risk, and of others at a rate, with similar ones elsewhere.

    >>> homes = pl.DataFrame({"area": list("AAABBB"), "hsize": [1, 1, 1, 1, 2, 2], "race": list("xwwwww")})
    >>> swap = TargetedSwap(hierarchy=["area"], similar=["hsize"], risk_variables=["race"], k_anonymity=2, swaprate=0)
    >>> from stirred import Entropy
    >>> released = swap.release(homes, Entropy.from_os(), accept=["nothing-promised"]).public["data"]
    >>> released.filter(pl.col("race") == "x")["area"].to_list()  # the one at risk has moved
    ['B']
    """

    name: ClassVar[str] = "targeted-record-swap"
    title: ClassVar[str] = "targeted record swapping"
    settings_model: ClassVar[type[Settings]] = TargetedSettings

    swap_law: TargetedLaw

    @property
    def in_words(self) -> str:
        return (
            f"Targeted record swapping: {', '.join(self.swap)} is exchanged with that of a similar household "
            f"elsewhere, for {self.swap_law.how_many}."
        )

    def setting_in_words(self, epsilon: Exact) -> str:
        return f"swaprate {percent(self.swap_law.rate)}"


@dataclass(frozen=True, kw_only=True, eq=False)
class TargetedFile:
    """A file as codes: ``areas`` and ``weights`` (the risk) for each level, coarsest first, ``profiles`` to match on.

    ``risky`` says at which level a household is first at risk; the number of levels if at none.
    """

    areas: Sequence[Rows]
    weights: Sequence[ChoiceWeights]
    risky: Rows
    profiles: Sequence[Rows]
    rate: Fraction

    @property
    def size(self) -> int:
        """Return how many households there are."""
        return int(self.risky.size)

    def stuck(self) -> str:
        """Say why no household can be swapped."""
        if not self.rate and (self.risky == len(self.areas)).all():
            return "the swap rate is 0 and no household is at risk"
        if not any(apart(profile, self.areas[-1]) for profile in self.profiles):
            return "no two similar households are in different areas"
        return ""

    def pairs(self, choices: Choices) -> tuple[Rows, list[int]]:
        """Return the partner of each household, itself where it has none, and those at risk that found none."""
        last, target, found = len(self.areas) - 1, _targets(self, choices), _Pairing(self, choices)
        order, starts = _grouped(np.flatnonzero(self.risky == len(self.areas)), self.areas[-1], self.weights[-1])
        for level in range(last + 1):
            found.begin(level)
            at_risk = dict(_by_area(np.flatnonzero(self.risky == level), self, level, choices))
            for area in sorted(at_risk) if level < last else range(len(target)):
                for row in at_risk.get(area, ()):
                    found.swap(row, area)
                if level == last and found.initiated[area] < target[area]:
                    tree = ChoiceTree(order[starts[area] : starts[area + 1]].copy(), self.weights[-1])
                    while found.initiated[area] < target[area] and (drawn := choices.next_of(tree)) is not None:
                        found.swap(drawn, area)
        return np.array(found.partner, dtype=np.int64), [row for row in found.without if found.partner[row] == row]


def _targets(problem: TargetedFile, choices: Choices) -> list[int]:
    """Return how many swaps each finest area initiates: its share rounded down, the rest to areas drawn at random."""
    sizes = np.bincount(problem.areas[-1])
    half = problem.rate / 2
    target = [n * half.numerator // half.denominator for n in sizes.tolist()]
    exact = problem.size * half
    rest = floor(exact) + (exact.denominator > 1 and choices.happens(Fraction(1, 2))) - sum(target)
    for place in choices.order(sizes.size)[:rest] if rest > 0 else ():
        target[place] += 1
    return target


def _by_area(rows: Rows, problem: TargetedFile, level: int, choices: Choices) -> Iterator[tuple[int, list[int]]]:
    """Yield the households of each area, the riskiest first, ties at random."""
    if not rows.size:
        return
    weights, area = problem.weights[level], problem.areas[level][rows]
    risk = -np.ldexp(weights.numerator[rows] / weights.denominator[rows], -weights.level[rows])
    ties = np.empty(rows.size, dtype=np.int64)
    ties[np.asarray(choices.order(rows.size), dtype=np.int64)] = np.arange(rows.size)
    order = np.lexsort((ties, risk, area))
    edges = np.flatnonzero(np.diff(area[order])) + 1
    for own in np.split(rows[order], edges):
        yield int(problem.areas[level][own[0]]), own.tolist()


def _grouped(rows: Rows, codes: Rows, weights: ChoiceWeights) -> tuple[Rows, Rows]:
    """Return rows by code and level of their weight, and where each code begins: one sort, of short numbers."""
    own = codes[rows] * (ChoiceWeights.ZERO + 1) + weights.level[rows]
    short = own.astype(np.uint16) if int(own.max(initial=0)) < 1 << 16 else own
    starts = np.zeros(int(codes.max(initial=0)) + 2, dtype=np.int64)
    np.cumsum(np.bincount(codes[rows], minlength=starts.size - 1), out=starts[1:])
    return rows[np.argsort(short, kind="stable")], starts


class _Pairing:
    """The pairs so far, in lists, which are faster than arrays one by one; and the orders of partners at one level.

    These are trees, one for each profile and value, made when they are first needed.
    """

    def __init__(self, problem: TargetedFile, choices: Choices) -> None:
        self._problem, self._choices = problem, choices
        self.partner = list(range(problem.size))
        self.initiated = [0] * (int(problem.areas[-1].max(initial=0)) + 1)  # by households of each finest area
        self.without = list[int]()

    def begin(self, level: int) -> None:
        """Begin a level with new trees."""
        self._level = level
        self._trees = dict[tuple[int, int], ChoiceTree]()
        self._sorted: dict[int, tuple[Rows, Rows]] = {}
        self._seen: dict[tuple[int, int], tuple[int, int]] = {}  # how far an area has looked through an tree

    def swap(self, row: int, area: int) -> None:
        """Swap a household with the first partner that fits, unless it has one."""
        partner = self.partner
        if partner[row] != row:
            return
        for profile in range(len(self._problem.profiles)):
            if (other := self._found(row, area, profile)) is not None:
                partner[row], partner[other] = other, row
                self.initiated[self._problem.areas[-1].item(row)] += 1
                return
        self.without.append(row)

    def _found(self, row: int, area: int, profile: int) -> int | None:
        problem, partner = self._problem, self.partner
        key = (profile, problem.profiles[profile].item(row))
        if profile not in self._sorted:
            every = np.arange(problem.size, dtype=np.int64)
            self._sorted[profile] = _grouped(every, problem.profiles[profile], problem.weights[self._level])
        if key not in self._trees:
            (order, starts), value = self._sorted[profile], key[1]
            own = order[starts[value] : starts[value + 1]].copy()
            self._trees[key] = ChoiceTree(own, problem.weights[self._level])
        tree, codes = self._trees[key], problem.areas[self._level]
        last, begin = self._seen.get(key, (-1, 0))
        # What an area has looked at and left was of this area, or is used: to the next area all that is unused fits.
        if last != area:
            begin, tree.drawn = 0, [other for other in tree.drawn if partner[other] == other]
        for place in range(begin, len(tree.drawn)):
            other = tree.drawn[place]
            if partner[other] == other:
                self._seen[key] = (area, place)
                return other
        while (drawn := self._choices.next_of(tree)) is not None:
            tree.drawn.append(drawn)
            if partner[drawn] == drawn and codes.item(drawn) != area:
                self._seen[key] = (area, len(tree.drawn) - 1)
                return drawn
        self._seen[key] = (area, len(tree.drawn))
        return None
