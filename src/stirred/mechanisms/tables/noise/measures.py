"""What one changed unit can change in each table, how the budget is split, what is counted, and the noise that follows.

Neighbours are bounded: one unit is changed. It leaves the cells it was in and enters others, so a count of records
changes by 1 in two cells (``query`` says what noise loses by that). Losses of tables add up (zCDP: as rho, which is the
square of the distance D_NoR).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from stirred.data.columns import select
from stirred.data.microdata import Microdata
from stirred.data.problems import PlanError, bad_plan, listed
from stirred.mechanisms.protocol import Names, Rate, confidence_of, failed
from stirred.mechanisms.tables.cells import at_most
from stirred.mechanisms.tables.query import Query
from stirred.randomness.cell_law import CellLaw
from stirred.randomness.entropy import Entropy
from stirred.spec.exact import exact
from stirred.spec.given_numbers import Number, fraction
from stirred.spec.problems import Problem, StirredError
from stirred.spec.shift_law import DiscreteGaussian
from stirred.spec.spelling import crossed

_DIGITS: Final = 4  # of a loss that is solved for: it is at most a thousandth larger than it must be
_FAR: Final = 12  # decades in which it is looked for
_WIDE: Final = 10**4  # noise inside margins: its law is listed
Margins = tuple[frozenset[str], ...]
Interaction = frozenset[str]
Floats = npt.NDArray[np.float64]
Given = TypeVar("Given")


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Sum(_Section):
    """The sum of a column in every cell of a table; values beyond the bounds count as the nearer bound."""

    column: str = Field(description="The column that is added up: whole numbers.")
    by: Names = Field(default=[], description="The variables of the table; none for one sum of all records.")
    low: int = Field(default=0, description="The smallest value that counts.")
    high: int = Field(description="The largest value that counts.")

    @property
    def title(self) -> str:
        return f"sum of {self.column}{' by ' if self.by else ''}{' x '.join(self.by)}"


class Precision(_Section):
    """How precise a table must be: its noise stays within a number with a confidence, cell by cell or jointly."""

    table: str = Field(description="The table, such as 'county x tenure' or 'sum of income by county'.")
    within: int = Field(description="The largest error that is meant to occur.", ge=0)
    confidence: Rate = Field(default="95%", description="With which probability it does not occur.")
    jointly: bool = Field(default=False, description="Whether the confidence is for all cells of the table together.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure(Query):
    """A table or sum, as a query.

    ``sizes`` are the numbers of declared values of its variables; ``kept`` are the margins that its noise keeps.
    """

    variables: tuple[str, ...]
    sizes: tuple[int, ...]
    of_persons: bool = False
    added_up: Sum | None = None
    kept: Margins = ()
    doubled: bool = False  # a swap comes before that makes two changed records of one

    @property
    def counts(self) -> Hashable:
        """Return what it counts or adds up: tables of the same can be made to agree."""
        added_up = self.added_up
        return self.of_persons, None if added_up is None else (added_up.column, added_up.low, added_up.high)

    @property
    def of_records(self) -> bool:
        return not self.of_persons and self.added_up is None

    @property
    def file(self) -> str:
        """Return the name under which a release has it: its title, or for a sum the name of its file."""
        if self.added_up is None:
            return self.title
        return "tables/" + re.sub(r"[^\w]+", "-", self.title.lower()).strip("-")

    @property
    def in_bounds(self) -> str:
        """Say of a sum what is added up: noise covers bounded values only. Empty for counts."""
        if self.added_up is None:
            return ""
        low, high = self.added_up.low, self.added_up.high
        return f"values beyond {low:,} to {high:,} are counted as the nearer bound, and the interval is for that sum"

    @property
    def noise_in_words(self) -> str:
        """Return the law of its noise, with its exact parameter, and what it keeps."""
        noise = self.noise
        words = (
            f"discrete Gaussian noise of variance parameter {noise.variance}"
            if isinstance(noise, DiscreteGaussian)
            else f"discrete Laplace noise, loss {noise.loss} for each unit"
        )
        kept = [" x ".join(sorted(each)) or "the total" for each in self.kept]
        return f"{words}, conditioned on keeping {' and '.join(kept)}" if kept else words

    @property
    def cells(self) -> int:
        return math.prod(self.sizes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the cells among which noise sums to 0: none, those of a group, or the sides of a two-way table."""
        inside = dict(zip(self.variables, self.sizes, strict=True))
        if len(self.kept) == 2:
            one, other = self.kept
            return tuple(math.prod(inside[name] for name in side) for side in (one - other, other - one))
        return tuple(math.prod(n for name, n in inside.items() if name not in kept) for kept in self.kept)

    @property
    def cell(self) -> CellLaw:
        return CellLaw(self.noise, self.shape)

    @property
    def deviation(self) -> float:
        return float(self.cell.variance) ** 0.5

    @property
    def purpose(self) -> str:
        """Return by what noise is addressed. Not the title: variables "a" and "b" are not one variable "a x b"."""
        return repr((self.counts, self.variables))

    def drawn(self, count: int, entropy: Entropy, *, chunk: int | None = None) -> npt.NDArray[np.int64]:
        """Return the noise of every cell, in the order of the cells.

        What is kept adds up to 0: in groups of cells with the same values of the kept variables, or in both margins of
        a two-way table, one for each value of the variables that the two margins share.
        """
        if not self.kept:
            return Query.drawn(self, count, entropy)
        from stirred.randomness.lattice import zero_margin_noise, zero_sum_noise

        first, last = self.kept[0], self.kept[-1]
        sides = [first & last, first - last, last - first, {*self.variables} - (first | last)]
        order = [self.variables.index(name) for side in sides for name in sorted(side)]
        sizes = [self.sizes[place] for place in order]
        how: Any = {"entropy": entropy, "purpose": self.purpose}
        number = self.cells // math.prod(self.shape)
        if len(self.kept) == 1:
            drawn = zero_sum_noise(self.noise, groups=[*self.shape] * number, **how)
        else:
            rows, columns = self.shape
            drawn = zero_margin_noise(self.noise, shape=(rows, columns), tables=number, **how)
        return drawn.reshape(sizes).transpose(np.argsort(order)).reshape(-1)

    def check_noise(self, noise: npt.NDArray[np.int64]) -> None:
        for margin in self.kept:
            others = tuple(axis for axis, name in enumerate(self.variables) if name not in margin)
            if noise.reshape(self.sizes).sum(axis=others).any():
                raise failed(f"the noise of {self.title} changes what is kept exactly")


def changes(*, persons: int | None, added_up: Sum | None, cells: int) -> tuple[int, int]:
    """Return how much one changed unit can change: the sum of all changes in a table, and the sum of their squares.

    A unit has one record in the table, or up to ``persons``. Its part of a sum is at most their bounds added up; what
    it takes from one cell and brings to another counts twice, and inside one cell as the whole range.

    >>> changes(persons=None, added_up=None, cells=10), changes(persons=3, added_up=None, cells=10)
    ((2, 2), (6, 18))
    >>> changes(persons=None, added_up=Sum(column="balance", low=-5, high=5), cells=4)
    (10, 100)
    """
    most = persons or 1
    if added_up is None:
        return 2 * most, 2 * most**2
    low, high = added_up.low, added_up.high
    largest = most * max(abs(low), abs(high))
    span = high - low if persons is None else most * (max(high, 0) - min(low, 0))
    if cells == 1:
        return span, span**2
    return max(2 * largest, span), max(2 * largest**2, span**2)


def kept_in(variables: Sequence[str], keep: Sequence[frozenset[str]], *, title: str) -> Margins:
    """Return the margins of a table that follow from those that are kept, without those that others imply.

    One of them, or two that together have all variables of the table: the noise can be drawn inside these.
    """
    inside = [kept & {*variables} for kept in keep]
    largest = tuple(dict.fromkeys(one for one in inside if not any(one < other for other in inside)))
    where, remedy = f"table '{title}'", "keep less, or leave the table out"
    if {*variables} in largest:
        what = "its counts are published exactly by keep: noise would be spent for nothing"
        raise bad_plan(what, where=where, remedy=remedy)
    if len(largest) > 2 or (len(largest) == 2 and largest[0] | largest[1] != {*variables}):
        kept_margins = ", ".join(" x ".join(name for name in variables if name in one) for one in largest)
        what = f"noise cannot be drawn exactly inside a table that keeps {kept_margins}"
        raise bad_plan(what, where=where, remedy="keep one margin of it, or two that have all its variables together")
    return largest


def budgeted(
    asked: Sequence[Measure],
    *,
    letter: str,
    total: Fraction | None,
    shares: Mapping[str, Number],
    precision: Sequence[Precision],
) -> tuple[Measure, ...]:
    """Return every table with its loss: what its precision needs, and of the rest its share."""
    by_precision = _named(asked, {each.table: each for each in precision}, setting="precision")
    if len(by_precision) < len(precision):
        raise bad_plan("a table has two of them", where="precision", remedy="leave one of them out")
    precise = [each for each in asked if each.title in by_precision]
    losses = {each.title: _precise(each, by_precision[each.title]) for each in precise}
    left = [each for each in asked if each.title not in losses]
    if total is None and left:
        remedy = f"add {letter}, or a precision for {listed([each.title for each in left])}"
        raise bad_plan("is needed, since not every table has a precision", where=letter, remedy=remedy)
    spent = sum(losses.values(), Fraction(0))
    if total is not None and (spent >= total if left else spent > total):
        what = f"the stated precision takes {exact(spent).shown()} of {exact(total).shown()}"
        raise bad_plan(what, where=letter, remedy="ask for less precision, or for a larger budget")
    if left:
        weights = _weights(left, shares)
        for each in left:
            assert total is not None
            losses[each.title] = (total - spent) * weights[each.title] / sum(weights.values())
    elif shares:
        raise bad_plan("every table has a precision", where="shares", remedy="leave the shares out")
    return tuple(replace(each, loss=losses[each.title]) for each in asked)


def _weights(asked: Sequence[Measure], shares: Mapping[str, Number]) -> dict[str, Fraction]:
    if not shares:
        return dict.fromkeys((each.title for each in asked), Fraction(1))
    given = _named(asked, shares, setting="shares")
    weights = {title: fraction(share, where=f"shares '{title}'") for title, share in given.items()}
    problems = [
        Problem(what="its share is not above 0", where=f"shares '{title}'", remedy="write a weight such as 1 or '1/3'")
        for title, weight in weights.items()
        if weight <= 0
    ]
    if missing := [each.title for each in asked if each.title not in given]:
        what = f"there is no share for {listed(missing)}"
        problems.append(Problem(what=what, where="shares", remedy="give every table a share, or none of them"))
    if problems:
        raise PlanError(problems)
    return weights


def table_key(title: str) -> tuple[str, frozenset[str]]:
    """Return what a table is known by, however its variables are ordered.

    >>> table_key("tenure x county") == table_key("county,tenure"), table_key("sum of income by county")
    (True, ('income', frozenset({'county'})))
    """
    if title.startswith("sum of "):
        column, _, by = title.removeprefix("sum of ").partition(" by ")
        return column.strip(), frozenset(crossed(by))
    return "", frozenset(crossed(title))


def _named(asked: Sequence[Measure], given: Mapping[str, Given], *, setting: str) -> dict[str, Given]:
    """Return what is given for tables by their titles; all names that no table has are problems."""
    known = {table_key(each.title): each.title for each in asked}
    other = [title for title in given if table_key(title) not in known]
    if other:
        raise PlanError(
            Problem(what=f"there is no table '{title}'", where=setting, remedy=f"there are {listed([*known.values()])}")
            for title in other
        )
    return {known[table_key(title)]: value for title, value in given.items()}


def _precise(asked: Measure, wanted: Precision) -> Fraction:
    """Return the smallest loss, to four digits, with which a table is as precise as it must be: by the exact law."""
    where = f"precision '{wanted.table}'"
    confidence = confidence_of(wanted.confidence, where=where)
    if wanted.jointly:  # none of its cells misses, as a union over them
        confidence = 1 - (1 - confidence) / asked.cells
    # Where a normal or Laplace law is about as precise: far below it, laws of noise inside margins are beyond reach.
    near = (
        Fraction(2 * asked.square, (wanted.within + 1) ** 2)
        if asked.gaussian
        else Fraction(3 * asked.one, wanted.within + 1)
    )
    found = smallest_loss(
        lambda loss: (probability := _within(asked, wanted.within, loss)) is not None and probability >= confidence,
        near=near,
        where=where,
    )
    if _within(asked, wanted.within, found * Fraction(999, 1000)) is None:  # never spend more than is needed instead
        widest = replace(asked, loss=found).cell.half_width(confidence)
        what = f"noise as wide as ±{wanted.within:,} is beyond its exact law here; the widest stays within ±{widest:,}"
        raise bad_plan(what, where=where, remedy="ask for that, or give the table a share of a budget")
    return found


def _within(asked: Measure, most: int, loss: Fraction) -> Fraction | None:
    """Return how sure a table with this loss is to stay within a number; None for noise beyond its exact law."""
    narrow = asked.square / (2 * loss) < _WIDE**2 if asked.gaussian else asked.one / loss < _WIDE
    if asked.kept and not narrow:
        return None
    try:
        return replace(asked, loss=loss).cell.within(most)
    except StirredError:
        return None


def smallest_loss(reached: Callable[[Fraction], bool], *, near: Fraction = Fraction(1), where: str) -> Fraction:
    """Return the smallest loss of four digits with which something is reached that larger losses reach too.

    It is looked for in the decades around ``near``.

    >>> smallest_loss(lambda loss: loss * loss >= 2, where="here")
    Fraction(283, 200)
    """
    decade = min(max(math.floor(math.log10(near)), -_FAR), _FAR)
    while decade > -_FAR and reached(Fraction(10) ** (decade - 1)):
        decade -= 1
    while decade <= _FAR and not reached(Fraction(10) ** decade):
        decade += 1
    if not -_FAR < decade <= _FAR:
        what = "no budget is large enough for it" if decade > 0 else "hardly any budget is needed for it"
        raise bad_plan(what, where=where, remedy="ask for another precision")
    low, high, step = 10 ** (_DIGITS - 1), 10**_DIGITS, Fraction(10) ** (decade - _DIGITS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle * step) else (middle, high)
    return high * step


def with_kept(asked: Sequence[Measure], keep: Sequence[frozenset[str]]) -> Iterator[Measure]:
    """Yield the tables with the margins that their noise keeps; sums and tables of persons keep none."""
    for each in asked:
        if not keep or each.of_persons or each.added_up is not None:
            yield each
            continue
        kept = kept_in(each.variables, keep, title=each.title)
        # With two margins fixed nobody changes alone, and k changes are at most k in squares (noise-inside.md).
        inside = replace(each, kept=kept, square=1 if len(kept) == 2 else each.square)
        if min(inside.shape) == 1:
            what = "what is kept leaves nothing of it to protect"
            raise bad_plan(what, where=f"table '{each.title}'", remedy="keep less, or leave the table out")
        yield inside


def keeping(given: Sequence[str], columns: Collection[str] | None = None) -> tuple[frozenset[str], ...]:
    """Return the margins that a setting keeps, without those that others imply; "total" is no variable.

    >>> keeping(["total", "county x size"]) == (frozenset({"county", "size"}),)
    True
    """
    margins = [frozenset[str]() if text.strip() == "total" else frozenset(crossed(text)) for text in given]
    if columns is not None:
        for margin in margins:
            if other := sorted(margin - {*columns}):
                remedy = f"write total, or columns of the records: {listed([*columns])}"
                raise bad_plan(f"there is no column {listed(other)}", where="keep", remedy=remedy)
    return tuple(dict.fromkeys(one for one in margins if not any(one < other for other in margins)))


def people_of(data: Microdata, columns: Sequence[str], *, most: int | None) -> pl.DataFrame:
    """Return the persons with these columns of theirs and of their household; of a household at most so many."""
    assert data.persons is not None
    assert data.hid is not None
    own = [name for name in columns if name in data.person_variables]
    homes = data.households.select(data.hid, *(name for name in columns if name not in own))
    people = select(data.persons, [data.hid, *own]).join(homes, on=data.hid, how="left").select(data.hid, *columns)
    if most is None:
        return people.drop(data.hid)
    return at_most(people, data.hid, most).drop(data.hid)


def bounded(added_up: Sum) -> pl.Expr:
    """Return the column that is added up, its values brought inside the bounds."""
    return pl.col(added_up.column).cast(pl.Int64).clip(added_up.low, added_up.high)


def tabulated(
    asked: Measure, cells: pl.DataFrame, records: pl.DataFrame, *, cut: bool = False
) -> npt.NDArray[np.int64]:
    """Return the count or the sum of every cell, in the order of the cells; or how many values its bounds ``cut``."""
    number = pl.len().cast(pl.Int64)
    if asked.added_up is not None:
        own = bounded(asked.added_up)
        number = (own != pl.col(asked.added_up.column).cast(pl.Int64)).sum().cast(pl.Int64) if cut else own.sum()
    names = list(asked.variables)
    if not names:
        return records.select(number).to_series().to_numpy()
    found = records.group_by(names).agg(number.alias("__number"))
    joined = cells.join(found, on=names, how="left", nulls_equal=True, maintain_order="left")
    return joined["__number"].fill_null(0).to_numpy()


# ---- tables that agree ----------------------------------------------------------------------------------------
# A table over variables S splits into interactions T, one for each subset of S: what its margin by T has beyond the
# margins by fewer variables (analysis of variance). An interaction is the same in all tables that contain its
# variables, and noise is uncorrelated between interactions, also noise inside a universe: what it keeps has no noise at
# all. So the best linear unbiased estimate of an interaction is the mean over tables, weighted by their precision, and
# a table is the sum of its interactions again. No equations are solved.


class ConsistentTable(NamedTuple):
    """A table that agrees with the others: its values, and the variance of each."""

    values: Floats
    variance: float


def consistent(
    tables: Sequence[Measure], observed: Mapping[str, npt.NDArray[np.int64]], *, total: int | None = None
) -> dict[str, ConsistentTable]:
    """Return for each table, by its title, the least squares estimate from all of them; they count the same records.

    ``total`` is the number of records where that is published exactly.

    >>> from fractions import Fraction
    >>> tables = [Measure(title=t, variables=v, sizes=n, one=2, square=2, gaussian=True, loss=loss) for t, v, n, loss in
    ...           (("all", (), (), Fraction(1, 2)), ("a", ("a",), (2,), Fraction(1, 4)))]
    >>> noisy = {"all": np.array(10), "a": np.array([3, 5])}
    >>> found = consistent(tables, noisy)
    >>> found["a"].values.tolist(), found["all"].values.tolist(), round(found["a"].variance, 6)  # variances 2 and 4
    ([3.8, 5.8], 9.6, 2.4)
    >>> consistent(tables, noisy, total=12)["a"].values.tolist()
    [5.0, 7.0]
    """
    weights: dict[Interaction, dict[str, float]] = {}
    parts: dict[Interaction, Floats] = {}
    if total is not None:
        weights[frozenset()], parts[frozenset()] = {"the number of records": math.inf}, np.array(float(total))
    for table in tables:
        values = observed[table.title].reshape(table.sizes).astype(np.float64)
        for part in _subsets(table.variables):
            weights.setdefault(part, {})[table.title] = _weight(table, part)
            own = _interaction(table, values, part)
            # What some table knows exactly has infinite weight, and no other table counts.
            share = _share(weights[part], table.title)
            parts[part] = own if part not in parts else parts[part] + share * (own - parts[part])
    return {table.title: _estimates(table, weights, parts) for table in tables}


def _subsets(variables: Sequence[str]) -> Iterator[Interaction]:
    """Yield all subsets, small ones first."""
    found = chain.from_iterable(combinations(variables, size) for size in range(len(variables) + 1))
    return map(frozenset, found)


def _size(table: Measure, *, but: Interaction) -> int:
    """Return over how many cells the values of these variables are spread."""
    return math.prod(n for name, n in zip(table.variables, table.sizes, strict=True) if name not in but)


def _weight(table: Measure, part: Interaction) -> float:
    """Return the precision with which a table knows an interaction: infinite where its noise leaves it alone."""
    # Noise that sums to 0 has all its variance in what is left to it.
    free = math.prod(1 - 1 / n for n in table.shape)
    if free == 0 or any(part <= kept for kept in table.kept):
        return math.inf
    return free / (float(table.cell.variance) * _size(table, but=part))


def _share(weights: Mapping[str, float], title: str) -> float:
    if math.isinf(weights[title]):
        return 1.0
    return weights[title] / sum(weights.values())


def _interaction(table: Measure, values: Floats, part: Interaction) -> Floats:
    """Return what the margin by some variables has beyond those by fewer; axes of the others have length 1."""
    for axis, name in enumerate(table.variables):
        values = values - values.mean(axis, keepdims=True) if name in part else values.sum(axis, keepdims=True)
    own = [name for name in table.variables if name in part]
    gone = tuple(axis for axis, name in enumerate(table.variables) if name not in part)
    return values.squeeze(gone).transpose([own.index(name) for name in sorted(part)])


def _estimates(
    table: Measure, weights: Mapping[Interaction, Mapping[str, float]], parts: Mapping[Interaction, Floats]
) -> ConsistentTable:
    values = np.zeros(table.sizes)
    variance = 0.0
    for part in _subsets(table.variables):
        spread = _size(table, but=part)
        names = sorted(part)
        own = parts[part].transpose([names.index(name) for name in table.variables if name in part])
        shape = [n if name in part else 1 for name, n in zip(table.variables, table.sizes, strict=True)]
        values = values + own.reshape(shape) / spread
        inside = math.prod(1 - 1 / n for name, n in zip(table.variables, table.sizes, strict=True) if name in part)
        variance += inside / sum(weights[part].values()) / spread**2
    return ConsistentTable(values=values, variance=variance)
