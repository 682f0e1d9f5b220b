"""Who is alone with what is known of them: classes of records that share their keys, and whom a release exposes.

A class has ``f`` records. A record is unique where f = 1; a file is k-anonymous if no class is smaller than k. In a
population file an attacker who finds the class is right with probability 1/f. In a sample, the number F of the class
in the population is unknown: F - f is negative binomial with the class's sampling rate (Benedetti and Franconi 1998),
and the risk is E[1/F]. A missing value is a value like any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stirred.data.codes import encode
from stirred.data.columns import select
from stirred.data.household_rows import household_rows
from stirred.data.microdata import Microdata
from stirred.spec.doubts import Doubt
from stirred.spec.invariant import ALL, Margin, plural
from stirred.spec.number_text import percent
from stirred.spec.problems import setting
from stirred.spec.specification import Specification

_Array = npt.NDArray[Any]
# From this f on a series ends soon; below it, a recurrence is exact and short.
_SMALL: Final = 30
_TERMS: Final = 400
BANDS: Final = ((1, "alone"), (2, "1 other"), (3, "2 to 3 others"), (5, "4 to 8 others"), (10, "9 and more others"))
_SIZE, _WEIGHT, _COUNTED = "__size", "__weight", "__counted"
_RISKS: Final = {"__fk": "fk", "__Fk": "Fk", "__risk": "risk"}  # a key may have such a name itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Uniqueness:
    """How many records share their keys with how many others.

    ``sizes`` are the sizes of classes that occur, each with how many classes have it. ``expected_matches`` is the sum
    of the individual risks: how many records an attacker who links every one finds. ``population_uniques`` are the
    unique records that are unique in the population too: expected from weights, counted from a population file, and
    the unique records themselves where the file is the population.
    """

    of: str
    keys: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    expected_matches: float
    population_uniques: float
    unique_match: float | None = None

    @property
    def records(self) -> int:
        """Return the number of records."""
        return sum(size * many for size, many in self.sizes)

    @property
    def classes(self) -> int:
        """Return the number of different combinations of keys."""
        return sum(many for _, many in self.sizes)

    @property
    def k(self) -> int:
        """Return the size of the smallest class: the file is k-anonymous for this k."""
        return min((size for size, _ in self.sizes), default=0)

    @property
    def unique(self) -> int:
        """Return the number of records that are alone."""
        return self.below(2)

    def below(self, size: int) -> int:
        """Return the number of records in classes smaller than ``size``."""
        return sum(f * many for f, many in self.sizes if f < size)

    @property
    def bands(self) -> list[tuple[str, int]]:
        """Return the number of records that are alone, share their keys with one other, and so on."""
        starts = [start for start, _ in BANDS]
        ends = [*starts[1:], math.inf]
        return [
            (label, sum(f * many for f, many in self.sizes if start <= f < end))
            for (start, label), end in zip(BANDS, ends, strict=True)
        ]

    @property
    def share_unique(self) -> str:
        """Return the share of records that are alone, in percent."""
        return share_in_words(self.unique, self.records)

    @property
    def named(self) -> str:
        """Return the names of the keys, of many the first and how many more there are."""
        return ", ".join([*self.keys] if len(self.keys) <= 3 else [*self.keys[:2], f"{len(self.keys) - 2} more"])


def share_in_words(part: float, whole: float) -> str:
    """Return a share in percent that says "all" and "none" only where it is so.

    >>> share_in_words(2999, 3000), share_in_words(3, 3), share_in_words(1, 10**6), share_in_words(1, 3)
    ('99.97%', '100%', '0.0001%', '33.3%')
    """
    if not whole or part in (0, whole):
        return "100%" if part else "0%"
    share = part / whole
    near = min(share, 1 - share)
    digits = 1 if near >= 0.005 else -math.floor(math.log10(near * 100))
    return f"{100 * share:.{min(digits, 6)}f}%"


def uniqueness(
    frame: pl.DataFrame,
    keys: Sequence[str],
    *,
    of: str = "records",
    weight: str | None = None,
    population: pl.DataFrame | None = None,
    hidden: Sequence[str] = (),
) -> Uniqueness:
    """Return how many records of a frame share their keys.

    ``weight`` names the sampling weights where the file is a sample; ``population`` is the file that it comes from.
    ``hidden`` are columns of our own that stand for further keys, and are not named.

    >>> rows = pl.DataFrame({"age": [1, 1, 2, 3], "sex": ["f", "f", "f", "m"]})
    >>> found = uniqueness(rows, ["age", "sex"])
    >>> found.unique, found.k, found.expected_matches
    (2, 1, 3.0)
    """
    named = [name for name in keys if name not in hidden]
    by = [*dict.fromkeys((*(name for name in keys if name in frame.columns), *hidden))]
    classes = _classes(frame, by, weight=weight, population=population)
    f, F, risk = (classes[name].to_numpy() for name in _RISKS)
    alone, match = float(((f == 1) & (F == 1)).sum()), None
    if weight is not None and population is None:
        alone = float((f[f == 1] / F[f == 1]).sum())
        match = unique_match(f, fraction=float(f.sum()) / max(float(classes[_WEIGHT].sum()), float(f.sum())))
    sizes, many = np.unique(f, return_counts=True)
    return Uniqueness(
        of=of,
        keys=tuple(named),
        sizes=tuple(zip(sizes.tolist(), many.tolist(), strict=True)),
        expected_matches=float((risk * f).sum()),
        population_uniques=alone,
        unique_match=match,
    )


def record_risks(
    frame: pl.DataFrame,
    keys: Sequence[str],
    *,
    weight: str | None = None,
    population: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return for each record, in its order, how many share its keys and how likely a match with it is right.

    The columns have sdcMicro's names: ``fk`` in the file, ``Fk`` in the population (known, or the sum of the weights),
    ``risk`` the individual risk.

    >>> rows = pl.DataFrame({"age": [1, 2, 1], "weight": [4.0, 5.0, 6.0]})
    >>> record_risks(rows, ["age"]).rows()
    [(2, 2.0, 0.5), (1, 1.0, 1.0), (2, 2.0, 0.5)]
    >>> record_risks(rows, ["age"], weight="weight")["Fk"].to_list()
    [10.0, 5.0, 10.0]
    """
    classes = _classes(frame, keys, weight=weight, population=population)
    joined = frame.select(keys).join(classes, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
    return joined.select(pl.col(name).alias(shown) for name, shown in _RISKS.items())


def _classes(
    frame: pl.DataFrame, by: Sequence[str], *, weight: str | None, population: pl.DataFrame | None
) -> pl.DataFrame:
    """Return each combination of keys with its size in the file and in the population, and the risk of a record."""
    weights = [] if weight is None else [pl.col(weight).cast(pl.Float64).sum().alias(_WEIGHT)]
    classes = frame.lazy().group_by(by).agg(pl.len().alias(_SIZE), *weights).collect()
    f = F = classes[_SIZE].to_numpy()
    if population is not None:
        counted = population.lazy().group_by(by).agg(pl.len().alias(_COUNTED)).collect()
        known = classes.join(counted, on=by, how="left", nulls_equal=True, maintain_order="left")[_COUNTED]
        F = np.maximum(
            known.fill_null(0).to_numpy(), f
        )  # a class that the population file lacks is at least as large as in the sample
    elif weight is not None:
        F = np.minimum(np.maximum(classes[_WEIGHT].to_numpy(), f), f * 1e12)
    risk = individual_risk(f, f / F) if weight is not None and population is None else 1 / F
    numbers = (f, F.astype(np.float64), risk)
    return classes.with_columns(pl.Series(name, values) for name, values in zip(_RISKS, numbers, strict=True))


def individual_risk(f: _Array, p: _Array) -> _Array:
    """Return E[1/F] for classes of ``f`` records in a sample with sampling rate ``p``.

    (p^f / f) 2F1(f, f; f + 1; 1 - p) is p times the integral of u^(f-1) / (p + (1 - p) u) from 0 to 1, which has a
    recurrence in f that is stable for p below a half, and a series in 1 - p that ends soon otherwise.

    >>> individual_risk(np.array([1, 2, 3]), np.array([0.1, 0.1, 0.1])).round(6).tolist()
    [0.255843, 0.082684, 0.046368]
    """
    f, p = np.asarray(f, dtype=np.int64), np.asarray(p, dtype=np.float64)
    found = np.empty(f.shape)
    steps = (f <= _SMALL) & (p < 0.5)
    found[steps] = _by_recurrence(f[steps], p[steps])
    found[~steps] = _by_series(f[~steps], p[~steps])
    return found


def _by_recurrence(f: _Array, p: _Array) -> _Array:
    q = 1 - p
    integral = np.log(1 / p) / q
    found = integral.copy()
    for order in range(1, int(f.max(initial=1))):
        integral = (1 / order - p * integral) / q
        found = np.where(f == order + 1, integral, found)
    return p * found


def _by_series(f: _Array, p: _Array) -> _Array:
    term = p / f
    total = term.copy()
    for k in range(1, _TERMS):
        term = term * (1 - p) * k / (f + k)
        total += term
        if not term.size or float((term / total).max()) < 1e-12:
            break
    return total


def unique_match(f: _Array, *, fraction: float) -> float | None:
    """Return the probability that a unique match is right (Skinner and Elliot 2002); None without unique records.

    It is estimated from the classes of one and of two records: theta = pi n1 / (pi n1 + 2 (1 - pi) n2).

    >>> unique_match(np.array([1, 1, 1, 1, 2, 3]), fraction=0.5)
    0.6666666666666666
    """
    ones, twos = int((f == 1).sum()), int((f == 2).sum())
    return fraction * ones / (fraction * ones + 2 * (1 - fraction) * twos) if ones else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diversity:
    """How much classes leave open of a sensitive value.

    ``distinct`` and ``entropy`` are those of the class that leaves least open, ``closeness`` the largest distance
    (total variation) of a class from the file, ``told`` the records whose class has one value only.
    """

    sensitive: str
    distinct: int
    entropy: float
    closeness: float
    told: int


def class_diversity(frame: pl.DataFrame, keys: Sequence[str], sensitive: str) -> pl.DataFrame:
    """Return of each class its records ``__n``, distinct values, exp of their entropy, and distance from the file.

    These are l-diversity (Machanavajjhala et al. 2007) and t-closeness (Li et al. 2007), the latter by total variation.

    >>> rows = pl.DataFrame({"key": list("AAABBBCC"), "value": [1, 1, 2, 1, 1, 1, 2, 3]})
    >>> class_diversity(rows, ["key"], "value").sort("key").select("__distinct", "__entropy", "__closeness").rows()
    [(2, 1.8898815748..., 0.125), (1, 1.0, 0.375), (2, 2.0, 0.625)]
    """
    by = [name for name in keys if name != sensitive]
    cells = frame.lazy().group_by([*by, sensitive]).agg(pl.len().alias("__n"))
    overall = frame.lazy().group_by(sensitive).agg((pl.len() / frame.height).alias("__q"))
    share = pl.col("__n") / pl.col("__n").sum()
    # Values that a class lacks count with their share of the file: 1 less what its own values have there.
    distance = ((share - pl.col("__q")).abs().sum() + (1 - pl.col("__q").sum())) / 2
    return (
        cells.join(overall, on=sensitive, nulls_equal=True)
        .group_by(by if by else pl.lit(0))
        .agg(
            pl.len().alias("__distinct"),
            (-(share * share.log()).sum()).exp().round(12).alias("__entropy"),
            distance.round(12).alias("__closeness"),
            pl.col("__n").sum(),
        )
        .collect()
    )


def diversity(frame: pl.DataFrame, keys: Sequence[str], sensitive: str) -> Diversity:
    """Return l-diversity (distinct, and exp of the entropy) and t-closeness of a sensitive column.

    >>> rows = pl.DataFrame({"key": list("AAABBBCC"), "value": [1, 1, 2, 1, 1, 1, 2, 3]})
    >>> found = diversity(rows, ["key"], "value")
    >>> found.distinct, found.entropy, found.closeness, found.told
    (1, 1.0, 0.625, 3)
    """
    distinct, entropy, closeness, told = (
        class_diversity(frame, keys, sensitive)
        .select(
            pl.col("__distinct").min(),
            pl.col("__entropy").min(),
            pl.col("__closeness").max(),
            pl.col("__n").filter(pl.col("__distinct") == 1).sum().alias("__told"),
        )
        .row(0)
    )
    return Diversity(sensitive=sensitive, distinct=int(distinct), entropy=entropy, closeness=closeness, told=int(told))


# ---- uniqueness on the tables that a specification fixes -----------------------------------------------------------
# A margin of the multiverse is a table of records that leaves as it is. A record that is alone in it can be found there
# by anybody who knows these values, whatever was done to the others. Which tables these are is read from the
# specification, so it holds for every mechanism, for a plan as for a published bundle; the number is a function of what
# is published.

# Of larger files a plan and a report do not count: `stirred risk` does.
MOST_RECORDS: Final = 20_000_000
# Above this share of unique records a release of records needs a person's word, where no policy says another.
MOST_EXPOSED: Final = Fraction(1, 3)
EXPOSED: Final = "exposed"
SUMS: Final = ("__persons_1", "__persons_2", "__persons")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactTable:
    """A table of records that is published exactly: whose records, by which columns, with or without their persons."""

    of: str
    keys: tuple[str, ...]
    person_keys: tuple[str, ...] = ()
    by_persons: bool = False  # whether the records are the persons themselves


def exact_tables(specification: Specification, data: Microdata) -> Iterator[ExactTable]:
    """Yield the tables that a specification fixes and that are made of a file's columns, the finest ones.

    Totals of areas (margins with a level) say nothing of what records are like, and are left out.
    """
    homes, people = data.variables, data.person_variables
    found = []
    for margin in specification.multiverse.invariants:
        if not isinstance(margin, Margin) or margin.level is not None:
            continue
        named = homes if ALL in margin.variables else margin.variables
        keys = tuple(name for name in named if name in homes)
        if margin.of == "person" and people:
            own = tuple(name for name in named if name in people)
            found.append(ExactTable(of="persons", keys=(*keys, *own), by_persons=True))
        elif margin.of in (data.record, specification.input_premetric.unit):
            inside = tuple(people) if margin.includes else ()
            found.append(ExactTable(of=plural(margin.of), keys=keys, person_keys=inside))
    for table in found:
        columns = {*table.keys, *table.person_keys}
        others = [each for each in found if each.by_persons == table.by_persons]
        if columns and not any(columns < {*each.keys, *each.person_keys} for each in others):
            yield table


def exposure(
    specification: Specification, data: Microdata, *, exchanged: Sequence[str] = ()
) -> tuple[Uniqueness, ExactTable] | None:
    """Return the exact table that exposes most, with the uniqueness on it; None where no table is exact.

    It is the one in which most records are alone, or where none are, in which most would be found. Tables with columns
    that are ``exchanged`` come last: who is alone there stands as a 1 in a table, and the record beside it may be
    another's.

    >>> from stirred.spec import catalogue
    >>> data = Microdata(households=pl.DataFrame({"size": [1, 2]}))
    >>> exposure(catalogue.load("pure-dp").specification, data) is None
    True
    """
    tables = [*exact_tables(specification, data)]
    stays = [each for each in tables if not {*each.keys} & {*exchanged}]
    found = [(unique_in(data, table), table) for table in stays or tables]
    return max(found, key=lambda each: _exposes(each[0]), default=None)


def _exposes(found: Uniqueness) -> tuple[float, float]:
    many = max(found.records, 1)
    return found.unique / many, found.expected_matches / many


def unique_in(data: Microdata, table: ExactTable, *, weight: str | None = None) -> Uniqueness:
    """Return the uniqueness of the records of an exact table."""
    if table.by_persons:
        return uniqueness(of_persons(data), table.keys, of=table.of, weight=weight)
    if not table.person_keys:
        return uniqueness(data.households, table.keys, of=table.of, weight=weight)
    frame = with_persons(data, table.person_keys)
    named = (*table.keys, *table.person_keys)
    found = uniqueness(frame, (*table.keys, *SUMS), of=table.of, hidden=SUMS, weight=weight)
    return replace(found, keys=named)


def with_persons(data: Microdata, columns: Sequence[str]) -> pl.DataFrame:
    """Return the households with numbers that are equal where their persons are, in any order.

    These are sums over the persons of two hashes of 64 bits with different seeds, and their number: two households
    with different persons agree by chance once in about 10^38 pairs.
    """
    assert data.persons is not None
    house = household_rows(data)
    people = select(data.persons, list(columns))
    sums = [np.zeros(data.households.height, dtype=np.uint64) for _ in range(2)]
    for number, total in enumerate(sums):
        np.add.at(total, house, people.hash_rows(seed=number + 1).to_numpy())
    counted = np.bincount(house, minlength=data.households.height)
    return data.households.with_columns(
        pl.Series(name, values) for name, values in zip(SUMS, (*sums, counted), strict=True)
    )


def person_code(data: Microdata, columns: Sequence[str]) -> pl.Series:
    """Return the persons of each household as one column, ``persons``: equal where all of them are."""
    sums = with_persons(data, columns).select(SUMS)
    taken = {*data.households.columns}
    name = next(name for name in ("persons", "its persons", "all persons inside") if name not in taken)
    return pl.Series(name, encode(sums, list(SUMS)).codes)


def of_persons(data: Microdata) -> pl.DataFrame:
    """Return the persons with the columns of their household."""
    assert data.persons is not None
    homes = data.households.select(data.variables)[household_rows(data)]
    return homes.hstack(select(data.persons, data.person_variables))


def exposed_in_words(found: Uniqueness) -> str:
    """Say in one line whom a release exposes by what it publishes exactly.

    >>> exposed_in_words(uniqueness(pl.DataFrame({"size": [1, 1, 2]}), ["size"], of="households"))
    '33.3% of the households are unique on what is published unchanged (size)'
    """
    return f"{found.share_unique} of the {found.of} are unique on what is published unchanged ({found.named})"


def exposed_doubt(found: Uniqueness, *, most: Fraction, set_by: str) -> Doubt | None:
    """Return the doubt about records that anybody finds who knows what is published unchanged; None up to ``most``.

    >>> found = uniqueness(pl.DataFrame({"size": [1, 1, 2]}), ["size"], of="households")
    >>> exposed_doubt(found, most=Fraction(1, 3), set_by="the default") is None
    True
    >>> print(exposed_doubt(found, most=Fraction(1, 10), set_by="the policy of the ledger").what)
    33.3% of the households are unique on what is published unchanged (size): anyone who knows these values of one ...
    """
    if Fraction(found.unique, max(found.records, 1)) <= most:
        return None
    return Doubt(
        kind=EXPOSED,
        what=f"{exposed_in_words(found)}: anyone who knows these values of one of them finds its record, and reads the "
        f"rest of it. {set_by[:1].upper()}{set_by[1:]} allows {percent(most, digits=3)}",
        remedy=f"publish fewer columns, named with {setting('hold')}, or coarser ones: [[prepare]] of a plan bands, "
        "rounds and recodes those of a file; `stirred risk` shows which columns make records unique",
    )


def counted(data: Microdata) -> bool:
    """Say whether a plan counts the uniqueness of a file: the largest would take minutes."""
    persons = 0 if data.persons is None else data.persons.height
    return max(data.households.height, persons) <= MOST_RECORDS
