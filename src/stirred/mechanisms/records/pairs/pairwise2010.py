"""`pairwise-swap-2010`: the three steps of the 2010 Disclosure Avoidance System, as far as they are public.

Appendix C of the paper collects what is public. Secret are all probabilities, the variables and the area of uniqueness,
thresholds, the rate and the weights of priorities: they are settings without a default here. Step 1 selects households
at random, step 2 pairs each with a household of the same number of adults and minors, tenure and state in another
block, step 3 exchanges county, tract, block group and block together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import floor
from typing import Any, ClassVar, Final, Literal

import numpy as np
import polars as pl
from pydantic import Field

from stirred.data.codes import encode
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.data.problems import bad_file, bad_plan, listed
from stirred.mechanisms.protocol import Names, Rate, Settings
from stirred.mechanisms.records.pairs.choices import Choices, Rows
from stirred.mechanisms.records.pairs.engine import PairLaw, PairSwap, apart, prior_of
from stirred.mechanisms.records.strata import held_parts
from stirred.spec.given_numbers import probability

Priority = Literal["selected", "near", "risk"]
PRIORITIES: Final = ("selected", "near", "risk")


class PairwiseSettings(Settings):
    """What is public stands in the rules; what is secret has no default."""

    state: str = Field(
        description="The column of the state: pairs stay inside.", json_schema_extra={"example": "state"}
    )
    geography: Names = Field(
        description="County, tract, block group and block, the coarsest first: exchanged together.",
        json_schema_extra={"example": "county,tract,block_group,block"},
    )
    adults: str = Field(description="Number of persons of 18 and more.", json_schema_extra={"example": "adults"})
    minors: str = Field(description="Number of persons under 18.", json_schema_extra={"example": "minors"})
    tenure: str = Field(description="Owned, rented: pairs agree on it.", json_schema_extra={"example": "tenure"})
    unique_on: Names = Field(
        description="A household that is unique on these is always selected.",
        json_schema_extra={"example": "size,race"},
    )
    unique_in: str = Field(
        description="The area in which it is unique: one of geography.", json_schema_extra={"example": "tract"}
    )
    by_block_size: dict[str, Rate] = Field(
        description="Probability of selection in blocks of up to so many households; larger blocks have none.",
        json_schema_extra={"example": {"5": "1/10", "50": "1/50"}},
    )
    race: str = Field(
        description="The column of race, of households or persons.", json_schema_extra={"example": "race"}
    )
    unique_race: Rate = Field(
        description="Least probability of selection where a race occurs in no other household of the block.",
        json_schema_extra={"example": "1/2"},
    )
    cap: Rate = Field(
        description="The largest share of a state's households that is swapped.", json_schema_extra={"example": "3%"}
    )
    imputed: str | None = Field(default=None, description="A flag of imputed records, of households or persons.")
    block_imputation_limit: Rate | None = Field(
        default=None, description="In blocks with this share of imputed records or more nobody is selected."
    )
    occupied: str | None = Field(
        default=None, description="A flag: vacant units and group quarters, where it is false, are not swapped."
    )
    priority: list[Priority] = Field(
        default=[*PRIORITIES],
        description="Partners selected too, near, or at high risk; the first counts most.",
    )
    synthetic: list[dict[str, Any]] = Field(
        default=[],
        description="For records that are not occupied households: a column, the share that is replaced, and its law.",
    )
    rate_prior: dict[str, str] | None = Field(
        default=None, description="What an attacker believes about the rate, for what its secrecy would add."
    )

    @property
    def matched(self) -> tuple[str, ...]:
        """Return what pairs agree on."""
        return (self.state, self.adults, self.minors, self.tenure)

    @property
    def synthetic_columns(self) -> list[Synthetic]:
        """Return the columns that are drawn for records that are not occupied households."""
        return [*map(Synthetic.of, self.synthetic)]

    def law(self) -> PairwiseLaw:
        """Return the law; refuse settings that contradict each other."""
        for name in ("unique_race", "cap", "block_imputation_limit"):
            if (given := getattr(self, name)) is not None:
                probability(given, where=name)
        whole = all(str(size).isdecimal() for size in self.by_block_size)
        steps = {size: probability(p, where="by_block_size") for size, p in self.by_block_size.items()}
        falling = [steps[size] for size in sorted(steps, key=int)] if whole else []
        drawn = [each.column for each in self.synthetic_columns]
        for where, wrong, what, remedy in (
            ("unique_in", self.unique_in not in self.geography, f"'{self.unique_in}' is not a level of the geography",
             f"write one of {listed(self.geography)}"),
            ("by_block_size", falling != sorted(falling, reverse=True),
             "probabilities rise with the size of the block", "larger blocks have smaller ones"),
            ("priority", sorted(self.priority) != sorted({*self.priority}),
             "a priority stands twice", f"write each of {listed(PRIORITIES)} once at most"),
            ("imputed", self.block_imputation_limit is not None and self.imputed is None,
             "a limit of imputation needs the flag", "name the column with imputed"),
            ("by_block_size", not whole, "sizes of blocks are not all whole numbers", "write such as { 5 = '1/10' }"),
            ("synthetic", len({*drawn}) < len(drawn) or bool({*drawn} & {*self.matched, *self.geography}),
             "a synthetic column stands twice, or is one that is matched or exchanged", "name another column"),
        ):  # fmt: skip
            if wrong:
                raise bad_plan(what, where=where, remedy=remedy)
        rate, swapped = probability(self.cap, where="cap"), tuple(self.geography)
        flags = [name for name in (self.imputed, self.occupied) if name is not None]
        return PairwiseLaw(
            settings=self,
            swapped=swapped,
            matched=self.matched,
            used=(*self.matched, *swapped, *self.unique_on, self.race, *flags, *drawn),
            rate=rate,
            how_many=f"at most {float(rate):.2%} of a state",
            prior=prior_of(self.rate_prior),
            resampled=tuple(drawn),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseLaw(PairLaw):
    """Select by risk, pair with a matching household elsewhere in the state, exchange the whole location."""

    breaks: ClassVar[str] = (
        "Pairs are disjoint, and who is selected depends on the other records of its block: some files cannot become "
        "others."
    )
    witness: ClassVar[str] = (
        "three blocks with one household each, all alike on what is matched: the cycle {(u, B), (v, C), (w, A)} never "
        "comes out of {(u, A), (v, B), (w, C)}, and comes out of itself"
    )

    settings: PairwiseSettings

    @property
    def small_settings(self) -> Mapping[str, Any]:
        """Return the settings of a small file, in which every household is selected at half."""
        alike = dict.fromkeys(("state", "adults", "minors", "tenure", "race"), "alike")
        nothing = dict.fromkeys(("imputed", "block_imputation_limit", "occupied"))
        own = {**alike, **nothing, "geography": ["area"], "unique_on": [], "unique_in": "area", "unique_race": 0}
        return {**own, "by_block_size": {"9": "1/2"}, "synthetic": [], "cap": 1}

    def check(self, data: Microdata) -> None:
        self._occupied(data)
        self._imputed_share(data)
        for each in self.settings.synthetic_columns:
            each.check(data)

    # ---- step 1: selection

    def selection(self, data: Microdata) -> list[Fraction]:
        """Return the probability of selection of each household."""
        block, occupied = self._area(data, len(self.settings.geography)), self._occupied(data)
        sizes = np.bincount(block[occupied], minlength=block.size)[block]  # of occupied households, as all that follows
        steps = sorted(
            (int(size), probability(p, where="by_block_size")) for size, p in self.settings.by_block_size.items()
        )
        by_size = {int(n): next((p for size, p in steps if n <= size), Fraction(0)) for n in np.unique(sizes)}
        race, unique = self._unique_race(data, block, occupied, sizes), self._unique(data)
        share = self._imputed_share(data)
        in_block = np.bincount(block, weights=share * occupied)[block] / np.maximum(sizes, 1)
        closed = np.zeros(block.size, dtype=bool)
        if (limit := self.settings.block_imputation_limit) is not None:
            closed = in_block >= float(probability(limit, where="block_imputation_limit"))
        unique_race = probability(self.settings.unique_race, where="unique_race")

        @cache
        def chance(size: int, lone_race: bool, own: float, is_unique: bool, shut: bool) -> Fraction:
            if shut or own >= 1:
                return Fraction(0)
            base = max(by_size[size], unique_race if lone_race else Fraction(0))
            return Fraction(1) if is_unique else base * (1 - Fraction(own).limit_denominator(10**6))

        columns = (sizes, race, share, unique, closed | ~occupied)
        return [chance(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _codes(self, data: Microdata, names: Sequence[str]) -> Rows:
        return encode(data.households, [*dict.fromkeys(names)]).codes.astype(np.int64)

    def _area(self, data: Microdata, levels: int) -> Rows:
        return self._codes(data, [self.settings.state, *self.settings.geography[:levels]])

    def _occupied(self, data: Microdata) -> Any:
        if self.settings.occupied is None:
            return np.ones(data.households.height, dtype=bool)
        return _flag(data.households[self.settings.occupied])

    def _imputed_share(self, data: Microdata) -> Any:
        """Return the share of each household's records that are imputed."""
        if self.settings.imputed is None:
            return np.zeros(data.households.height)
        if self.settings.imputed in data.households.columns:
            return _share(data.households[self.settings.imputed])
        assert data.persons is not None
        rows, flags = household_rows(data), _flag(data.persons[self.settings.imputed]).astype(float)
        return np.bincount(rows, weights=flags, minlength=data.households.height) / np.maximum(
            np.bincount(rows, minlength=data.households.height), 1
        )

    def _unique_race(self, data: Microdata, block: Rows, occupied: Any, sizes: Rows) -> Any:
        """Say of each household whether one of its races occurs in no other occupied household of its block."""
        if self.settings.race in data.households.columns:
            rows, race = np.arange(data.households.height), data.households[self.settings.race]
        else:
            assert data.persons is not None
            rows, race = household_rows(data).astype(np.int64), data.persons[self.settings.race]
        seen = pl.DataFrame({"row": rows, "block": block[rows], "race": race}).filter(occupied[rows]).unique()
        lone = seen.filter(pl.len().over("block", "race") == 1)["row"].unique().to_numpy()
        found = np.zeros(data.households.height, dtype=bool)
        found[lone] = sizes[lone] > 1  # nobody else is in the block: it is not the race
        return found

    def _unique(self, data: Microdata) -> Any:
        """Say of each occupied household whether no other one in the area has the same values."""
        rules, there = self.settings, data.households.columns
        if not rules.unique_on:
            return np.zeros(data.households.height, dtype=bool)
        level = rules.geography[: rules.geography.index(rules.unique_in) + 1]
        own = [*dict.fromkeys((rules.state, *level, *(name for name in rules.unique_on if name in there)))]
        parts = held_parts(replace(data, keep_persons=tuple(rules.unique_on)), own)
        if {*rules.unique_on} <= {*there}:
            parts = parts[: len(own)]  # without persons
        unique = self._occupied(data)
        frame = pl.DataFrame([part(None).alias(str(place)) for place, part in enumerate(parts)])
        unique[unique] = frame.filter(unique).is_unique().to_numpy()
        return unique

    # ---- steps 2 and 3: pairs

    def problem(self, data: Microdata) -> Matching:
        return Matching(
            chances=self.selection(data),
            occupied=np.flatnonzero(self._occupied(data)),
            alike=self._codes(data, self.matched),
            state=self._codes(data, [self.settings.state]),
            areas=[self._area(data, levels) for levels in range(1, len(self.settings.geography) + 1)],
            cap=self.rate,
            priority=self.settings.priority,
        )

    # ---- group quarters

    def changed(self, data: Microdata, choices: Choices) -> Microdata:
        """Return the file in which some values of records that are not occupied households are drawn from their law."""
        homes = data.households
        others = np.flatnonzero(~self._occupied(data))
        for each in self.settings.synthetic_columns:
            values = homes[each.column].cast(pl.String).to_list()
            for row in others:
                if choices.happens(each.share):
                    values[row] = each.drawn(choices)
            homes = homes.with_columns(pl.Series(each.column, values).cast(homes[each.column].dtype))
        return replace(data, households=homes, checked=False)


class PairwiseSwap(PairSwap):
    """Select by risk, pair with a matching household elsewhere in the state, exchange the whole location."""

    name: ClassVar[str] = "pairwise-swap-2010"
    title: ClassVar[str] = "pairwise swapping as in 2010"
    settings_model: ClassVar[type[Settings]] = PairwiseSettings

    swap_law: PairwiseLaw

    @property
    def in_words(self) -> str:
        return (
            f"Pairwise swapping as in 2010: households selected by risk exchange {', '.join(self.swap)} with "
            f"one of the same {', '.join(self.match)} in another block, {self.swap_law.how_many}."
        )


def _flag(column: pl.Series) -> Any:
    known = column.cast(pl.String).str.to_lowercase()
    if column.null_count() or not bool(known.is_in(["true", "false", "1", "0"]).all()):
        raise bad_file(f'"{column.name}" is not true or false', where=column.name, remedy="write true or false, 1 or 0")
    return known.is_in(["true", "1"]).to_numpy().copy()


def _share(column: pl.Series) -> Any:
    """Return the share of a household's records that are imputed: a number from 0 to 1, or a flag."""
    known = column.cast(pl.Float64, strict=False)
    if known.null_count():
        return _flag(column).astype(float)
    if not bool(known.is_between(0, 1).all()):
        remedy = "write a share from 0 to 1, or true or false"
        raise bad_file(f'"{column.name}" is not a share', where=column.name, remedy=remedy)
    return known.to_numpy()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matching:
    """A file as codes: who may be selected, who is alike, and in which areas all are, the coarsest first."""

    chances: Sequence[Fraction]
    occupied: Rows
    alike: Rows
    state: Rows
    areas: Sequence[Rows]
    cap: Fraction
    priority: Sequence[Priority]

    def stuck(self) -> str:
        """Say why no household can be swapped."""
        own = self.occupied
        if not any(self.chances):
            return "no household can be selected"
        if not apart(self.alike[own], self.areas[-1][own]):
            return "no two households that match are in different blocks"
        most = np.bincount(self.state[own]).max(initial=0)
        return "" if self.cap * int(most) >= 2 else "the cap allows no pair in any state"

    def pairs(self, choices: Choices) -> tuple[Rows, list[int]]:
        """Select at random, and pair each selected household with the best partner, ties at random, up to the cap."""
        block, partner = self.areas[-1], np.arange(self.alike.size, dtype=np.int64)
        selected, alone = np.zeros(self.alike.size, dtype=bool), list[int]()
        for row in self.occupied:
            chance = self.chances[row]
            selected[row] = chance > 0 and (chance == 1 or choices.happens(chance))
        allowed = [floor(self.cap * int(n)) for n in np.bincount(self.state[self.occupied])]
        order = self.occupied[np.argsort(self.alike[self.occupied], kind="stable")]
        begins = np.flatnonzero(np.diff(self.alike[order])) + 1
        groups = {int(self.alike[own[0]]): own for own in np.split(order, begins) if own.size}
        sizes, rows = np.bincount(block[self.occupied], minlength=block.size)[block], np.flatnonzero(selected)
        for row in rows[np.asarray(choices.order(rows.size), dtype=np.int64)]:
            if partner[row] != row or allowed[self.state[row]] < 2:
                continue
            own = groups[int(self.alike[row])]
            fits = own[(partner[own] == own) & (block[own] != block[row])]
            if not fits.size:
                alone.append(int(row))
                continue
            for name in self.priority:
                score = self._score(name, fits, row, selected=selected, sizes=sizes)
                fits = fits[score == score.max()]
            other = fits[choices.order(fits.size)[0]]
            partner[row], partner[other] = other, row
            allowed[self.state[row]] -= 2
        return partner, [row for row in alone if partner[row] == row]

    def _score(self, name: Priority, fits: Rows, row: int, *, selected: Any, sizes: Rows) -> Any:
        if name == "near":
            return np.sum([codes[fits] == codes[row] for codes in self.areas], axis=0)
        return selected[fits] if name == "selected" else -sizes[fits]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """A column, the share of its values that is replaced, and the law of what replaces them."""

    column: str
    share: Fraction
    law: Mapping[str, Fraction]

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Synthetic:
        """Return it from plain data."""
        if {*given} != {"column", "share", "law"} or not isinstance(given["law"], Mapping):
            what = "a synthetic column needs column, share and law; one that is fitted to the file has no budget"
            remedy = "declare the law beforehand: {column = 'age', share = '1/2', law = {'20' = '1/2', '30' = '1/2'}}"
            raise bad_plan(what, where="synthetic", remedy=remedy)
        law = {str(value): probability(p, where="synthetic") for value, p in given["law"].items()}
        if sum(law.values()) != 1:
            what, remedy = "the probabilities of a law do not add up to 1", "write each value with its probability"
            raise bad_plan(what, where="synthetic", remedy=remedy)
        return cls(column=str(given["column"]), share=probability(given["share"], where="synthetic"), law=law)

    def check(self, data: Microdata) -> None:
        """Refuse a column of persons, and values that it cannot hold."""
        if self.column not in data.households.columns:
            raise bad_file("it is no column of households", where=f'synthetic "{self.column}"', remedy="name one")
        kind = data.households[self.column].dtype
        if pl.Series([*self.law]).cast(kind, strict=False).null_count():
            what = f"the law has values that are no {kind}, as the column is"
            raise bad_file(what, where=f'synthetic "{self.column}"', remedy="write values of the kind of the column")

    def drawn(self, choices: Choices) -> str:
        """Draw a value."""
        left = Fraction(1)
        for value, mass in self.law.items():
            if mass and choices.happens(mass / left):
                return value
            left -= mass
        raise AssertionError("the law adds up to 1")
