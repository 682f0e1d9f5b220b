"""Noisy tables: counts and sums of a confidential file with exact integer noise on every declared cell."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl

from stirred.data.microdata import Microdata, columns_beside
from stirred.data.problems import PlanError, bad_plan
from stirred.mechanisms.protocol import (
    Block,
    Grid,
    Progress,
    PublicFile,
    ReleasedColumns,
    Section,
    Table,
    Typical,
)
from stirred.mechanisms.tables.cells import counted_persons, declared_cells
from stirred.mechanisms.tables.noise import checks
from stirred.mechanisms.tables.noise.measures import Measure, Sum, people_of, tabulated
from stirred.mechanisms.tables.noise.plan import COLUMNS, NoisePlan, published
from stirred.mechanisms.tables.noise.promise import NoisePromise
from stirred.mechanisms.tables.query import (
    TableAnswers,
    with_numbers,
)
from stirred.spec.domain import after_imputation
from stirred.spec.exact import Exact, exact, exp
from stirred.spec.law import Law
from stirred.spec.problems import placed
from stirred.spec.problems import wrong as wrong_setting
from stirred.spec.shift_law import Noise, OutputLaw, ShiftLaw
from stirred.spec.specification import Specification

_SIZES: Final = (0, 1, 5, 20, 100, 1_000, 10_000)  # of counts for which accuracy is shown
_HOLD, _SWAP = "ab", "xy"  # of the files that are audited where a swap comes before
_MOST: Final = 60  # files of one size: all pairs of them are compared
_GIVEN_AWAY: Final = Fraction(1, 1 << 20)  # the decay is a short fraction, and at most so little is lost by that
_DIGITS: Final = 60
_LEAST: Final = Fraction(1, 10**6)


class NoisyTables(NoisePromise):
    """Counts of the plan's tables, and sums, with noise on every declared cell, whether or not anybody is in it.

    ``rho`` (Gaussian noise, zCDP) or ``epsilon`` (Laplace noise) is the loss of all tables together, for one changed
    unit. It is split evenly, by ``shares``, or by the ``precision`` that tables must have. Every number comes with its
    variance and an interval from the exact law. ``keep`` names counts that stay exact. With ``after``, a swap within
    strata, tables are counted from the swapped file, and the sizes of its strata stay exact (R15).

    >>> from stirred.randomness.entropy import Entropy
    >>> homes = pl.DataFrame({"county": list("ABAB"), "tenure": list("oorr")})
    >>> noisy = NoisyTables(tables=[["county", "tenure"]], rho="1/2", values={"county": "ABC", "tenure": "or"})
    >>> print(noisy.plan(homes).disturbed)
    every cell of 1 table gets noise (county x tenure ±3 with 95%); no records are published
    >>> released = noisy.release(homes, Entropy.from_os()).public["county x tenure"]
    >>> released.columns, released.height  # every cell, also those of county C, where nobody lives
    (['county', 'tenure', 'count', 'variance', 'low', 'high'], 6)
    """

    table_columns: ClassVar[tuple[str, ...]] = (*COLUMNS,)

    def check_settings(self) -> None:
        if problems := [*checks.settings_problems(self)]:
            raise PlanError(problems)
        self.measures()

    # ---- the promise and the act

    def draft(self, data: Microdata, *, doubts: bool) -> NoisePlan:
        names = self.declared_columns
        declared = self.declared(data, names)
        of_persons = data.person_variables
        measures = self.measures(of_persons=of_persons, sizes={name: len(own) for name, own in declared.items()})
        for each in measures:
            with placed(f"table '{each.title}'"):
                # What is beyond reach is refused before anything is drawn: the law, the draw, and sums beyond 64 bits.
                checks.check_draw(each, values=data.households.height * (self.persons or 1))
                each.cell.half_width(self.sure)
        cells = {each.title: declared_cells(each.variables, declared) for each in measures}
        exact = {name for by in self.exact_margins.values() for name in by}
        used = [*dict.fromkeys([*names, *(each.column for each in self.sums), *self.coded_columns])]
        shown = {
            "households": [name for name in data.households.columns if name in (*names, *exact)],
            "persons": [name for name in of_persons if name in names],
        }
        specification = self.specification(
            measures,
            name=data.name,
            stage=data.stage,
            post_imputation=after_imputation(data.stage, data.post_imputation),
            columns=[f"person {name}" if name in of_persons else name for name in used],
        )
        kept = {}
        for title, by in self.exact_margins.items():
            if self.swapped is None:
                kept[title] = declared_cells(by, declared)
            else:  # strata: those that occur, which is fixed
                kept[title] = data.households.select(by).unique().sort(by) if by else pl.DataFrame()
        return NoisePlan(
            specification=specification,
            measures=measures,
            cells={**cells, **kept},
            before=None if self.inner is None else self.inner.plan(data, doubts=False),
            releases=shown,
            dropped=columns_beside(data, used),
        )

    def answered(
        self, data: Microdata, plan: NoisePlan, ask: TableAnswers, progress: Progress
    ) -> dict[str, pl.DataFrame]:
        records: dict[bool, pl.DataFrame] = {False: data.households}
        if any(each.of_persons for each in plan.measures):
            columns = [name.removeprefix("person ") for name in plan.specification.domain.columns]
            records[True] = people_of(data, columns, most=self.persons)
        noisy = {}
        for each in plan.measures:
            cells, own = plan.cells[each.title], records[each.of_persons]
            cut = {} if each.added_up is None else {"cut": tabulated(each, cells, own, cut=True)}
            noisy[each.title] = ask(each, tabulated(each, cells, own), inside=cut)
        return published(self, plan.measures, plan.cells, noisy, total=data.households.height)

    def file_of(self, plan: NoisePlan, title: str) -> str:
        return next(each.file for each in plan.measures if each.title == title)

    def published_exactly(self, data: Microdata, plan: NoisePlan) -> dict[str, pl.DataFrame]:
        return {"invariants": self.kept(data, plan)} if self.exact_margins else {}

    def kept(self, data: Microdata, plan: NoisePlan) -> pl.DataFrame:
        """Return the counts that are published exactly, one table below the other."""
        frames = []
        for title, by in self.exact_margins.items():
            margin = Measure(title=title, variables=by, sizes=(), one=0, square=0, gaussian=True)
            counts = tabulated(margin, plan.cells[title], data.households)
            own = with_numbers(plan.cells[title], {"count": counts})
            frames.append(own.select(pl.lit(title).alias("table"), pl.all()))
        return pl.concat(frames, how="diagonal").select("table", pl.exclude("table", "count"), "count")

    # ---- checks, in a module of their own

    check = checks.check
    doubts = checks.doubts
    verify = checks.verify
    verify_exact = checks.verify_kept
    audit_bundle = checks.audit
    audit_unstated = classmethod(checks.audit_published)

    def table_in_words(self, table: Table, data: Microdata, plan: NoisePlan) -> str:
        measure = next(each for each in plan.measures if each.title == table.title)
        return f"{'after a swap, ' * measure.doubled}with noise, ±{plan.width(measure):,} with {plan.percent}"

    def expected_cells(self, data: Microdata, variables: Sequence[str], source: str) -> pl.DataFrame:
        if source == "margins":
            what = "the error of the noise is the same whatever the counts are, and the plan says it (--verbose)"
            raise bad_plan(what, where="--expect-from", remedy="leave it out, or name another file")
        of_persons = {name for each in self.wanted for name in each.columns} - {*data.households.columns}
        measure = next(m for m in self.measures(of_persons=of_persons) if m.variables == tuple(variables))
        cells, files = declared_cells(variables, self.declared(data, variables)), [data.households] * 2
        if data.persons is not None:
            files = [people_of(data, variables, most=most) for most in (None, self.persons)]
        true, mean = (tabulated(measure, cells, file).astype(np.float64) for file in files)
        variance = np.full(true.size, float(measure.cell.variance))
        return with_numbers(cells, {"true": true, "mean": mean, "variance": variance})

    # ---- files and pages

    def files(
        self, released: ReleasedColumns, data: Microdata | None = None, plan: NoisePlan | None = None
    ) -> list[PublicFile]:
        """Return the sums of a plan, and the table of what is published exactly. No record."""
        found = [
            PublicFile(
                name=each.file,
                kind="table",
                columns=(*each.variables, *COLUMNS),
                words=f"{each.title}, with noise; {each.in_bounds}",
            )
            for each in (() if plan is None else plan.measures)
            if each.added_up is not None
        ]
        if exact := self.exact_margins.values():
            words = "the counts that are published exactly"
            columns = ("table", *dict.fromkeys(name for by in exact for name in by), "count")
            found.append(PublicFile(name="invariants", kind="side", columns=columns, words=words))
        return found

    def reading_tables(self, plan: NoisePlan) -> list[str]:
        """Return what a reader of the tables must know, from public facts alone."""
        exact = self.keep or self.inner is not None
        lines = [f"Published exactly: {plan.unchanged}. Nothing else is."] if exact else []
        sums = [f"Of {each.title} {each.in_bounds}." for each in plan.measures if each.in_bounds]
        bounded = " (of a sum: that of the bounded values)" if sums else ""
        if self.inner is not None:
            lines.append(
                f"True numbers are here those after {self.inner.title}, which is not undone: it draws tables that "
                "cross exchanged with held variables towards independence."
            )
        lines += [
            f"Every number is the true one{bounded} plus noise of mean 0, drawn in every cell that could exist; "
            f"`variance` is the variance of the noise. From `low` to `high` is an interval of {plan.percent} by the "
            f"exact law of the noise: at least so often the true number{bounded} lies in it.",
            *sums,
            "Counts may be negative, and tables do not add up to each other. Sums of many cells are right on average "
            "as the numbers stand; cutting at 0 first would make them too large.",
        ]
        if self.persons is not None and plan.releases["persons"]:
            lines.append(
                f"Of a household at most {self.persons} persons are counted, so tables of persons are too small where "
                "households are larger."
            )
        return [*lines, *([f"{plan.after}."] if plan.after else [])]

    def typical_errors(self, plan: NoisePlan, corrected: Mapping[str, pl.DataFrame]) -> list[Typical]:
        """Return the noise of each table, by its law: the same for counts of every size.

        What was cut before the noise was added, persons of large households or values beyond bounds, is not known.
        """
        return [
            Typical(
                table=each.title, cells=each.cells, error=each.deviation,
                within=each.cell.half_width(Fraction(9, 10)), at_least=not each.of_records or each.doubled,
            )
            for each in sorted(plan.measures, key=lambda each: -each.cells)
        ]  # fmt: skip

    def sections(self, plan: NoisePlan) -> list[Section]:
        """Return the sections on noise, on intervals by size of a count, and on the bias of what came afterwards."""
        letter = plan.specification.output_premetric.parameter.removesuffix("2")
        widths = {each.title: plan.width(each) for each in plan.measures}
        header = ("table", "cells", "noise", letter, "standard deviation", f"{plan.percent} interval")
        rows = tuple(
            (m.title, m.cells, m.noise_in_words, exact(m.loss).shown(), f"{m.deviation:.4g}", f"±{widths[m.title]:,}")
            for m in plan.measures
        )
        sizes = [size for size in _SIZES if size]
        relative = Grid(
            header=("table", *(f"count of {size:,}" for size in sizes)),
            rows=tuple((title, *(f"±{100 * width / size:,.3g}%" for size in sizes)) for title, width in widths.items()),
        )
        relation = f"Each {letter} is {plan.relation}; losses of tables add up to {plan.specification.budget_text}."
        also = [plan.also_promised] if plan.also_promised else []
        grid = Grid(header=header, rows=rows)
        noise: tuple[Block, ...] = (
            self.in_words,
            relation,
            *also,
            grid,
            "Half-width of the interval, by the true count:",
        )
        cut = [f"Of {each.title} {each.in_bounds}." for each in plan.measures if each.in_bounds]
        found = [Section(title="Noise and intervals", blocks=(*noise, relative, *cut))]
        if self.nonnegative:
            counts = [each for each in plan.measures if each.added_up is None]
            bias = tuple((m.title, *(f"{m.cell.bias_of_cutting(n):.3g}" for n in _SIZES[:5])) for m in counts)
            words = "By how much a noisy count is too large on average once it is cut off at 0, by the true count"
            least = " (for consistent numbers less: as of a normal error of their own variance)" * self.consistent
            grid = Grid(header=("table", *(f"count of {n}" for n in _SIZES[:5])), rows=bias)
            found.append(Section(title="After the noise", blocks=(f"{words}{least}:", grid)))
        return found

    # ---- small files, for audits

    def _units(self) -> tuple[list[str], list[str], list[Any]]:
        """Return variables, columns of sums, and the units of small files; a variable has two values there.

        Of a column that is added up the bounds decide. A household has no persons, as many alike as count, or one more.
        """
        variables = [*self.coded_columns]
        bounds: dict[str, tuple[int, int]] = {}
        for each in self.sums:
            low, high = bounds.get(each.column, (each.low, each.high))
            bounds[each.column] = (min(low, each.low), max(high, each.high))
        records: list[Any] = [*product(*([0, 1] for _ in variables), *bounds.values())]
        if self.persons is not None:
            large = (records[0],) * self.persons + (records[-1],)
            records = [(), *((each,) * self.persons for each in records), large]
        return variables, [*bounds], records

    def law(self, dataset: Any) -> OutputLaw:
        """Return the exact law of all tables of a small file: its numbers, each with its own integer noise."""
        if self.inner is not None:
            return self._swapped_law(dataset)
        variables, added, _ = self._units()
        people = dataset
        if self.persons is not None:
            people = [person for unit in dataset for person in counted_persons(unit, most=self.persons)]
        centre: list[int] = []
        noises: list[Noise] = []
        fixed: list[list[int]] = []
        for each in self.measures(of_persons=[*variables, *added] if self.persons is not None else ()):
            places = [variables.index(name) for name in each.variables]
            cells = [*product((0, 1), repeat=len(places))]
            for margin in each.kept:
                key = [place for place, name in enumerate(each.variables) if name in margin]
                groups: dict[Hashable, list[int]] = {}
                for number, cell in enumerate(cells, start=len(centre)):
                    groups.setdefault(tuple(cell[place] for place in key), []).append(number)
                fixed += groups.values()
            for cell in cells:
                inside = [person for person in people if tuple(person[place] for place in places) == cell]
                centre.append(_added(inside, each.added_up, len(variables) + added.index(each.added_up.column)) if
                              each.added_up else len(inside))  # fmt: skip
                noises.append(each.cell.noise)
        return ShiftLaw(centre, noises, fixed=fixed)

    def _swapped_law(self, dataset: Any) -> Law:
        """Return the law of tables of a swapped file of one stratum, its records pairs of a held and a swapped value.

        Each noisy count is cut to 0..n, which loses nothing: of all counts below 0, or above n, the likelihoods under
        different files have the same ratios. Its noise has the smallest rational decay just above that of the release.
        """
        assert self.inner is not None
        swap, records = self.swapped, [*dataset]
        assert swap is not None
        tables = []
        for each in self.measures():
            hold = _HOLD if {*each.variables} - {*swap.of, *swap.within} else (None,)
            own = _SWAP if {*each.variables} & {*swap.of} else (None,)
            tables.append(([*product(hold, own)], decay_for(exact(each.loss / each.one))))
        outcomes: dict[Hashable, Fraction] = {}
        inner: Any = self.inner.law(records)
        for rows, chance in inner.probabilities.items():
            found: dict[tuple[int, ...], Fraction] = {(): chance}
            for cells, decay in tables:
                for cell in cells:
                    count = sum(all(want in (None, has) for want, has in zip(cell, row, strict=True)) for row in rows)
                    noisy = truncated_geometric(count, most=len(records), decay=decay)
                    found = {(*o, z): p * q for (o, p), (z, q) in product(found.items(), enumerate(noisy))}
            for outcome, p in found.items():
                outcomes[outcome] = outcomes.get(outcome, Fraction(0)) + p
        return Law(outcomes)

    def audit_universes(self) -> list[list[Hashable]]:
        """Return small files: of one unit, of two, of three, that agree on what is kept."""
        if self.inner is not None:  # of one stratum, with two held and two swapped values
            most = 3 if len(self.wanted) == 1 else 2
            return [[*combinations_with_replacement([*product(_HOLD, _SWAP)], n)] for n in range(1, most + 1)]
        variables, _, records = self._units()
        kept = [[variables.index(name) for name in by] for by in self.margins.values()]
        found = []
        for count in (1, 2, 3):
            files_of = [*combinations_with_replacement(records, count)]
            if count > 1 and len(files_of) > _MOST:
                break
            groups: dict[Hashable, list[Hashable]] = {}
            for file in files_of:
                margins = tuple(tuple(sorted(tuple(row[place] for place in by) for row in file)) for by in kept)
                groups.setdefault(margins, []).append(file)
            found += [group for group in groups.values() if len(group) > 1]
        return found

    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise for a small file."""
        variables, added, _ = self._units()
        columns = [*variables, *added]
        return self.specification(
            self.measures(of_persons=columns if self.persons is not None else ()), name="small", columns=columns
        )


def _added(people: Sequence[Any], added_up: Sum, place: int) -> int:
    return sum(min(max(person[place], added_up.low), added_up.high) for person in people)


def truncated_geometric(count: int, *, most: int, decay: Fraction) -> list[Fraction]:
    """Return the chances of 0..``most`` for a count with geometric noise, cut to these: ln(1/decay) is lost per unit.

    >>> [str(p) for p in truncated_geometric(0, most=2, decay=Fraction(1, 5))]
    ['5/6', '2/15', '1/30']
    """
    inner, ends = (1 - decay) / (1 + decay), 1 / (1 + decay)  # what falls beyond the ends is added to them
    return [(inner if 0 < value < most else ends) * decay ** abs(value - count) for value in range(most + 1)]


def decay_for(loss: Exact) -> Fraction:
    """Return exp(-loss), or the fraction of smallest denominator a little above it: at most a millionth is given away.

    >>> from stirred.spec.exact import ln
    >>> decay_for(ln(5)), decay_for(exact("1/4"))
    (Fraction(1, 5), Fraction(3468, 4453))
    """
    if loss.is_infinite or loss < exact(_LEAST):
        hides = "nothing" if loss.is_infinite else "everything"
        what = f"noise with a loss of {loss.shown()} for each unit of a count hides {hides}"
        remedy = f"write a loss above 0 and not infinite, from {float(_LEAST):g} for each unit"
        raise wrong_setting(what, where="noise", remedy=remedy)
    sought = exp(-loss)
    if sought.is_rational:
        return sought.rational
    least = Fraction(sought.enclose(_DIGITS).high)
    return _simplest_between(least, Fraction(exp(-loss * (1 - _GIVEN_AWAY)).enclose(_DIGITS).low))


def _simplest_between(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction of smallest denominator from ``low`` to ``high``, by their continued fractions."""
    whole = low.numerator // low.denominator
    if low == whole:
        return Fraction(whole)
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / _simplest_between(1 / (high - whole), 1 / (low - whole))
