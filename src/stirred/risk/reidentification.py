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
from stirred.risk.attackers import AGE, PERSON, AttackerColumns, attackers_file
from stirred.risk.table_lists import AGES

_Array = npt.NDArray[Any]
VULNERABLE: Final = "nonmodal unique"
ONE_SOLUTION: Final = "nonmodal unique, one solution"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSums:
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

    strata: tuple[LinkSums, ...]

    def __getitem__(self, name: str) -> LinkSums:
        return next(each for each in self.strata if each.name == name)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts of every kind of persons by its name."""
        return {each.name: each.facts for each in self.strata}


def reidentify(
    truth: pl.DataFrame,
    pool: pl.DataFrame,
    *,
    asked: AttackerColumns | None = None,
    attacker: pl.DataFrame | None = None,
    count: str | None = None,
    origin: str | None = None,
    one_solution: pl.DataFrame | None = None,
    targets: Sequence[int] | None = None,
) -> Reidentified:
    """Match an attacker's file to released or reconstructed records, and say how often what is read there is true.

    ``truth`` are the confidential persons with the columns of their household (`stirred.data.uniqueness.of_persons`);
    ``pool`` the released records with the same columns, or those of a reconstruction (``records.parquet``, with
    ``age_from`` for the age and ``count="persons"``). ``attacker`` is made by `attackers_file` or `given_attacker`;
    without it, the attacker has everybody without error. ``origin`` names a column of the pool with the row of the
    truth whose values each record carries: then the attack with the person replaced is computed too.
    ``one_solution`` has the areas whose tables have one solution, ``targets`` the rows of the truth that count.

    >>> people = pl.DataFrame({"block": [1] * 4, "sex": [1, 2, 1, 2], "age": [40, 30, 70, 30],
    ...     "race": [1, 1, 2, 1], "hispanic": [0] * 4})
    >>> found = reidentify(people, people.with_row_index("row"), origin="row")
    >>> found["all"].precision, found["nonmodal unique"].excess
    (1.0, 1.0)
    """
    asked = asked or AttackerColumns()
    file = attackers_file(truth, asked) if attacker is None else attacker
    coded = _coded(truth, file, pool, asked)
    person = file[PERSON].fill_null(-1).to_numpy()
    weight = np.ones(pool.height) if count is None else pool[count].to_numpy().astype(np.float64)
    own = None if origin is None else np.where(person < 0, -1, _places(pool[origin], truth.height)[person])
    complete = file.select(~pl.any_horizontal(pl.col(asked.keys).is_null())).to_series().to_numpy()
    value = np.where(person >= 0, coded.true_values[person], -1)
    odds = _odds_of_replacement(truth, asked)[person]
    sums = _linked(coded.passes, value, coded.pool_values, complete.astype(np.float64), weight, own, odds)
    for name, right in zip(("modal", "proportional"), _guesses(coded, value, weight), strict=True):
        sums[name] = sums["putative"] * right
    kinds = {name: (person >= 0) & mask[person] for name, mask in kinds_of_persons(truth, asked).items()}
    kinds = {"all": np.ones(file.height, np.bool_), **kinds}
    if one_solution is not None:
        areas = one_solution.select(pl.col(name).cast(file.schema[name]) for name in asked.area).unique()
        solved = file.select(asked.area).join(
            areas.with_columns(one=1), on=asked.area, how="left", maintain_order="left"
        )
        kinds[ONE_SOLUTION] = kinds[VULNERABLE] & solved["one"].is_not_null().to_numpy()
    chosen = np.ones(file.height, np.bool_) if targets is None else np.isin(person, np.asarray(targets))
    return Reidentified(strata=tuple(_stratum(name, sums, mask & chosen) for name, mask in kinds.items()))


def kinds_of_persons(truth: pl.DataFrame, asked: AttackerColumns) -> dict[str, _Array]:
    """Return who is modal, nonmodal, and vulnerable: nonmodal, and alone in the truth with area, sex and age group."""
    alike = truth.select(*asked.area, __n=pl.len().over([*asked.area, *asked.learn]))
    modal = alike.select(pl.col("__n") == pl.col("__n").max().over(asked.area)).to_series().to_numpy()
    keys = _grouped(truth.select(asked.keys), asked)
    alone = keys.select(pl.len().over(keys.columns) == 1).to_series().to_numpy()
    return {"modal": modal, "nonmodal": ~modal, VULNERABLE: ~modal & alone}


def _stratum(name: str, sums: dict[str, _Array], mask: _Array) -> LinkSums:
    return LinkSums(name=name, records=int(mask.sum()), **{each: float(of[mask].sum()) for each, of in sums.items()})


def _grouped(keys: pl.DataFrame, asked: AttackerColumns) -> pl.DataFrame:
    """Return keys with the group of the age for the age, where it is one in years."""
    if AGE not in asked.known or not keys[AGE].dtype.is_integer():
        return keys
    place = np.searchsorted(AGES, keys[AGE].cast(pl.Int64).fill_null(-1).to_numpy(), side="right")
    return keys.with_columns(pl.Series(AGE, place))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Coded:
    """Keys and values as numbers: passes from the finest key on, each and the areas of attacker's file and pool."""

    passes: list[tuple[_Array, _Array]]
    areas: tuple[_Array, _Array]
    true_values: _Array
    pool_values: _Array


def _coded(truth: pl.DataFrame, file: pl.DataFrame, pool: pl.DataFrame, asked: AttackerColumns) -> _Coded:
    in_groups = AGE in asked.known and AGE not in pool.columns
    shown = pool.rename({"age_from": AGE}) if in_groups else pool
    kinds = truth.schema
    keys = pl.concat(each.select(pl.col(name).cast(kinds[name]) for name in asked.keys) for each in (file, shown))
    coarse = _grouped(keys, asked)
    levels = [coarse] if in_groups or coarse is keys else [keys, coarse]

    def split(frame: pl.DataFrame, names: Sequence[str], at: int) -> tuple[_Array, _Array]:
        codes = encode(frame, [*names]).codes.astype(np.int64)
        return codes[:at], codes[at:]

    values = pl.concat(each.select(pl.col(name).cast(kinds[name]) for name in asked.learn) for each in (truth, shown))
    true_values, pool_values = split(values, asked.learn, truth.height)
    return _Coded(
        passes=[split(level, asked.keys, file.height) for level in levels],
        areas=split(keys, asked.area, file.height),
        true_values=true_values,
        pool_values=pool_values,
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


def _odds_of_replacement(truth: pl.DataFrame, asked: AttackerColumns) -> _Array:
    """Return the probability that another person of the larger area, drawn at random, has the same values."""
    inside = pl.len().over(asked.within) if asked.within else pl.len()
    counts = truth.select(n=pl.len().over([*asked.within, *asked.learn]), all=inside)
    return _ratio(counts["n"].to_numpy() - 1.0, counts["all"].to_numpy() - 1.0)


def _guesses(coded: _Coded, value: _Array, weight: _Array) -> tuple[_Array, _Array]:
    """Return how likely a guess from the area is right, by its most frequent values and by drawing one.

    Records with the person's own key are left out; where no other is in the area, all records are taken.
    """
    (mine, theirs), (area, areas) = coded.passes[-1], coded.areas
    pool = pl.LazyFrame({"area": areas, "key": theirs, "value": coded.pool_values, "n": weight})
    file = pl.DataFrame({"area": area, "key": mine, "value": value})
    inside = pool.group_by("key", "value").agg(out=pl.col("n").sum())
    others = (
        file.lazy().select("area", "key").unique()
        .join(pool.group_by("area", "value").agg(pl.col("n").sum()), on="area")
        .join(inside, on=["key", "value"], how="left")
        .select("key", "value", n=pl.col("n") - pl.col("out").fill_null(0.0)).filter(pl.col("n") > 0)
    )  # fmt: skip
    by_key = _shares(others)
    anywhere = _shares(pool.group_by("value").agg(pl.col("n").sum()).with_columns(key=pl.lit(0)))
    found = file.join(by_key, on=["key", "value"], how="left", maintain_order="left")
    beside = file.join(anywhere.drop("key"), on="value", how="left", maintain_order="left")
    alone = ~file["key"].is_in(by_key["key"].unique().implode())
    modal, drawn = (beside[name].zip_with(alone, found[name]).fill_null(0.0).to_numpy() for name in ("modal", "drawn"))
    return modal, drawn


def _shares(counts: pl.LazyFrame) -> pl.DataFrame:
    n, best = pl.col("n"), pl.col("n") == pl.col("n").max().over("key")
    of_best = best.cast(pl.Float64) / best.sum().over("key")
    return counts.select("key", "value", modal=of_best, drawn=n / n.sum().over("key")).collect()
