"""Reidentification: who is found by an attacker with a file of names, and is what the attacker reads there true?

An attacker's record and a released (or reconstructed) one match where area, sex and age agree, each used once; exact
ages first, then groups of ages. Of equal candidates each is as likely, so all numbers are expectations over that lot,
exact and without a draw: in a class of k attacker's and m other records, min(m, k) match, and each is right with the
share of its true value among the m. A match is *putative*; it is *confirmed* if the values read there are the person's.

Being right is not yet harm: most persons are like their neighbours. So three numbers stand beside the precision.
``modal`` and ``proportional`` guess from the other records of the area, without those that could be the person: by
their most frequent value, or by drawing one of them (on pure noise, a match is right as often as the latter).
``replaced`` is the precision of the same attack on the same release had the person's own values been those of somebody
else of the larger area: what of it is learned about the population. The excess over it is what the person's own record
gives away. (After Abowd et al. 2025; baselines after Kenny et al. 2021, Francis 2022, Ruggles and Van Riper 2022.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import encode
from stirred.risk.attackers import AGE, PERSON, Asked, attackers_file
from stirred.risk.table_lists import AGES

_Array = npt.NDArray[Any]
_GROUP: Final = "__age"
VULNERABLE: Final = "nonmodal unique"
ONE_SOLUTION: Final = "nonmodal unique, one solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Sums over the attacker's records of some kind of persons; ``own`` and ``replaced`` where records are linked."""

    name: str
    records: int
    putative: float
    confirmed: float
    modal: float
    proportional: float
    own: float | None = None
    replaced: float | None = None

    def _of_putative(self, part: float | None) -> float | None:
        return part / self.putative if part is not None and self.putative > 0 else None

    @property
    def precision(self) -> float | None:
        """Return the share of the matches that tell the true values; None where nothing matched."""
        return self._of_putative(self.confirmed)

    @property
    def excess(self) -> float | None:
        """Return the precision above that with the person replaced."""
        without = self._of_putative(self.replaced)
        return None if self.precision is None or without is None else self.precision - without

    @property
    def facts(self) -> dict[str, Any]:
        """Return numbers and rates: of the attacker's records, and precisions of the putative matches."""
        return {
            "records": self.records, "putative": self.putative, "confirmed": self.confirmed,
            "putative_rate": self.putative / self.records if self.records else None,
            "confirmed_rate": self.confirmed / self.records if self.records else None,
            "precision": self.precision,
            "modal_guess": self._of_putative(self.modal), "proportional_guess": self._of_putative(self.proportional),
            "own_record": self._of_putative(self.own), "person_replaced": self._of_putative(self.replaced),
            "excess": self.excess,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Reidentified:
    """What an attacker finds, by kinds of persons. Computed from the truth: it stays inside the agency."""

    strata: tuple[Stratum, ...]

    def __getitem__(self, name: str) -> Stratum:
        return next(each for each in self.strata if each.name == name)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts of every kind of persons by its name."""
        return {each.name: each.facts for each in self.strata}


def reidentify(
    truth: pl.DataFrame,
    pool: pl.DataFrame,
    *,
    asked: Asked | None = None,
    attacker: pl.DataFrame | None = None,
    count: str | None = None,
    origin: str | None = None,
    one_solution: pl.DataFrame | None = None,
    targets: Sequence[int] | None = None,
) -> Reidentified:
    """Match an attacker's file to released or reconstructed records, and say how often what is read there is true.

    ``truth`` are the confidential persons with the columns of their household (`stirred.risk.exposed.of_persons`);
    ``pool`` the released records with the same columns, or those of a reconstruction (``records.parquet``, with
    ``age_from`` for the age and ``count="persons"``). ``attacker`` is made by `attackers_file` or `given_attacker`;
    without it, the attacker has everybody without error. ``origin`` names a column of the pool with the row of the
    truth that each record comes from: then the attack with the person replaced is computed too. ``one_solution``
    has the areas whose tables have one solution, ``targets`` the rows of the truth that count (all compete).

    Persons are: all; modal (with the most frequent values of their true area); nonmodal; nonmodal unique (also alone
    in the truth with area, sex and age group: the vulnerable); and these in areas with one solution.

    >>> people = pl.DataFrame({"block": [1] * 4, "sex": [1, 2, 1, 2], "age": [40, 30, 70, 30],
    ...     "race": [1, 1, 2, 1], "hispanic": [0] * 4})
    >>> found = reidentify(people, people.with_row_index("row"), origin="row")
    >>> found["all"].precision, found["nonmodal unique"].excess
    (1.0, 1.0)
    """
    asked = asked or Asked()
    file = attackers_file(truth, asked) if attacker is None else attacker
    coded = _coded(truth, file, pool, asked)
    person = file[PERSON].fill_null(-1).to_numpy()
    weight = np.ones(pool.height) if count is None else pool[count].to_numpy().astype(np.float64)
    value = np.where(person >= 0, coded.true_values[person], -1)
    own = None if origin is None else _places(pool[origin], truth.height)[person]
    if own is not None:
        own[person < 0] = -1
    complete = file.select(~pl.any_horizontal(pl.col(asked.keys).is_null())).to_series().to_numpy()
    odds = _odds_of_replacement(truth, asked, coded.true_values)[person]
    sums = _linked(coded.passes, value, coded.pool_values, complete.astype(np.float64), weight, own, odds)
    sums["modal"], sums["proportional"] = (sums["putative"] * each for each in _guesses(coded, value, weight))
    chosen = np.ones(file.height, np.bool_) if targets is None else np.isin(person, np.asarray(targets))
    kinds = _kinds(coded, person, file, asked, one_solution)
    return Reidentified(
        strata=tuple(
            Stratum(name=name, records=int((mask & chosen).sum()), **_summed(sums, mask & chosen))
            for name, mask in kinds.items()
        )
    )


def _summed(sums: dict[str, _Array], mask: _Array) -> dict[str, Any]:
    return {name: float(each[mask].sum()) for name, each in sums.items()}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Coded:
    """Keys and values as numbers: passes from the finest key on, of the attacker's file and the pool."""

    passes: list[tuple[_Array, _Array]]
    areas: tuple[_Array, _Array, _Array]  # of the truth, the file, the pool
    true_keys: _Array
    true_values: _Array
    pool_values: _Array


def _coded(truth: pl.DataFrame, file: pl.DataFrame, pool: pl.DataFrame, asked: Asked) -> _Coded:
    years = AGE in asked.known and truth[AGE].dtype.is_integer()
    exact = not years or AGE in pool.columns
    shown = pool if exact else pool.rename({"age_from": AGE})
    kinds = {name: truth.schema[name] for name in (*asked.keys, *asked.learn)}
    frames = [each.select(pl.col(name).cast(kinds[name]) for name in asked.keys) for each in (truth, file, shown)]
    keys = pl.concat(frames)
    ends = np.cumsum([truth.height, file.height])
    coarse = [*asked.keys]
    if years:
        groups = np.searchsorted(AGES, keys[AGE].fill_null(-1).to_numpy(), side="right")
        keys = keys.with_columns(pl.Series(_GROUP, groups))
        coarse = [_GROUP if name == AGE else name for name in coarse]
    levels = ([[*asked.keys]] if exact and years else []) + [coarse]
    coded = [np.split(encode(keys, level).codes.astype(np.int64), ends) for level in levels]
    areas = np.split(encode(keys, [*asked.area]).codes.astype(np.int64), ends)
    values = pl.concat([each.select(pl.col(name).cast(kinds[name]) for name in asked.learn) for each in (truth, shown)])
    numbers = encode(values, [*asked.learn]).codes.astype(np.int64)
    return _Coded(
        passes=[(mine, theirs) for _, mine, theirs in coded],
        areas=(areas[0], areas[1], areas[2]),
        true_keys=coded[-1][0],
        true_values=numbers[: truth.height],
        pool_values=numbers[truth.height :],
    )


def _places(origin: pl.Series, height: int) -> _Array:
    """Return the row of the pool that comes from each row of the truth; -1 where none does."""
    found = np.full(height, -1, dtype=np.int64)
    rows = origin.cast(pl.Int64).fill_null(-1).to_numpy()
    found[rows[rows >= 0]] = np.flatnonzero(rows >= 0)
    return found


def _ratio(part: _Array, whole: _Array) -> _Array:
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole > 0)


def _linked(
    passes: Sequence[tuple[_Array, _Array]], value: _Array, values: _Array, left: _Array, weight: _Array,
    own: _Array | None, odds: _Array,
) -> dict[str, _Array]:  # fmt: skip
    """Return for each of the attacker's records the probabilities to match, to be right, and the two of its own record.

    What a pass leaves over goes on to the next. In a class of the first pass only one side is left over, so who is
    left and what is left of the candidates' values are independent, and products of expectations are exact.
    """
    sums = {name: np.zeros(value.size) for name in ("putative", "confirmed", "own", "replaced")}
    most = np.int64(max(values.max(initial=0), value.max(initial=0)) + 1)
    for mine, theirs in passes:
        classes = int(max(mine.max(initial=0), theirs.max(initial=0))) + 1
        many, there = np.bincount(mine, left, classes), np.bincount(theirs, weight, classes)
        taken = np.minimum(many, there)
        matched = left * _ratio(taken, many)[mine]
        each = _ratio(matched, there[mine])  # the probability of every single candidate
        alike = _weight_of(mine * most + value, theirs * most + values, weight)
        sums["putative"] += matched
        sums["confirmed"] += each * np.where(value >= 0, alike, 0.0)
        if own is not None:
            inside = (own >= 0) & (theirs[own] == mine)
            found = np.where(inside, each * weight[own], 0.0)
            sums["own"] += found
            sums["replaced"] += found * (odds - (values[own] == value))
        left = left - matched
        weight = weight * (1 - _ratio(taken, there))[theirs]
    if own is None:
        return {name: sums[name] for name in ("putative", "confirmed")}
    sums["replaced"] += sums["confirmed"]
    return sums


def _weight_of(wanted: _Array, codes: _Array, weight: _Array) -> _Array:
    """Return the sum of the weights under each wanted code."""
    if not codes.size:
        return np.zeros(wanted.size)
    known, place = np.unique(codes, return_inverse=True)
    total = np.bincount(place, weight)
    at = np.minimum(np.searchsorted(known, wanted), known.size - 1)
    return np.where(known[at] == wanted, total[at], 0.0)


def _odds_of_replacement(truth: pl.DataFrame, asked: Asked, values: _Array) -> _Array:
    """Return the probability that another person of the larger area, drawn at random, has the same values."""
    area = encode(truth, [*asked.within]).codes.astype(np.int64)
    _, place, alike = np.unique(area * np.int64(values.max(initial=0) + 1) + values, return_inverse=True,
                                return_counts=True)  # fmt: skip
    return _ratio(alike[place] - 1.0, np.bincount(area)[area] - 1.0)


def _guesses(coded: _Coded, value: _Array, weight: _Array) -> tuple[_Array, _Array]:
    """Return how likely a guess from the area is right, by its most frequent values and by drawing one.

    Records with the person's own key are left out; where no other is in the area, all records are taken.
    """
    mine, theirs = coded.passes[-1]
    pool = pl.DataFrame({"area": coded.areas[2], "key": theirs, "value": coded.pool_values, "n": weight})
    file = pl.DataFrame({"area": coded.areas[1], "key": mine, "value": value})
    inside = pool.group_by("key", "value").agg(pl.col("n").sum().alias("out"))
    by_area = pool.group_by("area", "value").agg(pl.col("n").sum())
    others = (
        file.lazy().select("area", "key").unique()
        .join(by_area.lazy(), on="area").join(inside.lazy(), on=["key", "value"], how="left")
        .select("key", "value", n=pl.col("n") - pl.col("out").fill_null(0.0)).filter(pl.col("n") > 0.5)
    )  # fmt: skip
    whole = pool.lazy().group_by("value").agg(pl.col("n").sum())
    shares = [_shares(others, ["key"]).collect(), _shares(whole.with_columns(key=pl.lit(0)), ["key"]).collect()]
    found = file.join(shares[0], on=["key", "value"], how="left", maintain_order="left")
    anywhere = file.select("value").join(shares[1].drop("key"), on="value", how="left", maintain_order="left")
    alone = ~file["key"].is_in(shares[0]["key"].unique().implode())
    modal, drawn = (
        anywhere[name].zip_with(alone, found[name]).fill_null(0.0).to_numpy() for name in ("modal", "drawn")
    )
    return modal, drawn


def _shares(counts: pl.LazyFrame, by: list[str]) -> pl.LazyFrame:
    n = pl.col("n")
    best = n == n.max().over(by)
    return counts.select(*by, "value", modal=best.cast(pl.Float64) / best.sum().over(by), drawn=n / n.sum().over(by))


def _kinds(
    coded: _Coded, person: _Array, file: pl.DataFrame, asked: Asked, one_solution: pl.DataFrame | None
) -> dict[str, _Array]:
    """Return which of the attacker's records are of each kind of persons."""
    area, values = coded.areas[0], coded.true_values
    _, place, alike = np.unique(area * np.int64(values.max(initial=0) + 1) + values, return_inverse=True,
                                return_counts=True)  # fmt: skip
    most = np.zeros(int(area.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(most, area, alike[place])
    modal = alike[place] == most[area]
    alone = np.bincount(coded.true_keys)[coded.true_keys] == 1
    real = person >= 0
    kinds = {
        "all": np.ones(person.size, np.bool_),
        "modal": real & modal[person],
        "nonmodal": real & ~modal[person],
        VULNERABLE: real & (~modal & alone)[person],
    }
    if one_solution is not None:
        kept = one_solution.select(pl.col(name).cast(file.schema[name]) for name in asked.area).unique()
        solved = file.select(asked.area).join(kept.with_columns(one=True), on=asked.area, how="left",
                                              maintain_order="left")["one"]  # fmt: skip
        kinds[ONE_SOLUTION] = kinds[VULNERABLE] & solved.fill_null(value=False).to_numpy()
    return kinds
