"""What the public holds of a swapped release: its tables, its microdata, and the strata with their rates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import polars as pl

from stirred.data.bundle import stated_mechanism
from stirred.data.child import parquet_below, unreadable_parquet
from stirred.data.frames import read_frame, scan_frame
from stirred.data.problems import DataError, bad_file, bad_plan, counted, listed, number
from stirred.data.sources import unreadable
from stirred.data.table_labels import without_labels
from stirred.mechanisms.protocol import (
    FINE_COLUMNS,
    Mechanism,
    NumberMoved,
    RedrawLaw,
    RedrawnStratum,
    SwapCellLaw,
    SwapFamily,
)
from stirred.mechanisms.registry import DEFAULT, is_installed, mechanism_class
from stirred.spec.given_numbers import fraction, probability
from stirred.spec.problems import Problem, placed

COUNT: Final = "count"
MEMBER: Final = DEFAULT.removesuffix("-swap")
_SHOWN: Final = 3


def as_text(table: pl.DataFrame, *, where: str) -> pl.DataFrame:
    """Return a published table with its variables as text and its counts as integers; labels are left out.

    >>> as_text(pl.DataFrame({"size": [1, 2], "count": ["30", "12"]}), where="table").rows()
    [('1', 30), ('2', 12)]
    """
    if COUNT not in table.columns:
        raise bad_file(
            f"there is no column {listed([COUNT])}",
            where=where,
            remedy=f"write the table in long form, variables and count; it has {listed(table.columns)}",
        )
    table = without_labels(table)
    counts = table[COUNT].cast(pl.Int64, strict=False)
    if counts.null_count():
        rows = counts.is_null().arg_true()
        raise bad_file(
            f"counts are not whole numbers ({counted(rows.head(5).to_list(), total=len(rows))})",
            where=f'{where} "{COUNT}"',
            remedy="use the table as published",
        )
    variables = [name for name in table.columns if name != COUNT]
    text = table.select(*(pl.col(name).cast(pl.String) for name in variables), counts)
    twice = text.select(variables).is_duplicated() if variables else pl.Series([False])
    if twice.any():
        rows = twice.arg_true()
        raise bad_file(
            f"cells occur more than once ({counted(rows.head(5).to_list(), total=len(rows))})",
            where=where,
            remedy="add them up, or remove what repeats",
        )
    return text


def matched(
    given: pl.DataFrame, found: pl.DataFrame, variables: Sequence[str], *, where: str
) -> tuple[pl.DataFrame, int]:
    """Return the cells of ``found`` in the order of the published table, and how many empty ones were added.

    Tables that are counted from records lack their empty cells; those follow at the end, because their
    estimates are not 0 and leaving them out would change every sum. Anything else that differs from the release is
    refused.
    """
    on = list(variables)
    _check_values(given, found, on, where=where)
    joined = given.rename({COUNT: "__given"}).join(found, on=on, how="left", nulls_equal=True, maintain_order="left")
    rest = [name for name in found.columns if name not in on]
    joined = joined.with_columns(pl.col(name).fill_null(0) for name in rest)  # cells that no stratum allows are 0
    other = (joined["__given"] != joined[COUNT]).arg_true()
    if len(other):
        raise bad_file(
            f"{number(len(other), 'count is not that', 'counts are not those')} of the released data "
            f"({counted(other.head(5).to_list(), total=len(other))})",
            where=f'{where} "{COUNT}"',
            remedy="use a table that was published with this bundle, unrounded and unchanged",
        )
    missing = found.join(given, on=on, how="anti", nulls_equal=True)
    _check_missing(missing.filter(pl.col(COUNT) != 0), on, where=where)
    return pl.concat([joined.drop("__given"), missing.select(joined.drop("__given").columns)]), missing.height


def _check_values(given: pl.DataFrame, found: pl.DataFrame, variables: Sequence[str], *, where: str) -> None:
    """Refuse cells that are not empty and have a value that the release does not know."""
    problems = []
    full = given.filter(pl.col(COUNT) != 0)
    for name in variables:
        known = found[name].unique()
        unknown = [str(value) for value in full[name].unique(maintain_order=True) if value not in known]
        if not unknown:
            continue
        short = {value.lstrip("0") for value in known.drop_nulls() if value.startswith("0")}
        lost = any(value.lstrip("0") in short for value in unknown)
        values = ", ".join(unknown[:_SHOWN]) + (", ..." if len(unknown) > _SHOWN else "")
        one = len(unknown) == 1
        what = (
            f"value {values} of {name} is unknown"
            if one
            else f"{len(unknown):,} values of {name} are unknown ({values})"
        )
        zeros = f"; {'it' if one else 'they'} may have lost leading zeros" if lost else ""
        problems.append(
            Problem(
                what=what + zeros,
                where=f'{where} "{name}"',
                remedy=f"read and write {name} as text" if lost else "use the codes of the released data",
            )
        )
    if problems:
        raise DataError(problems)


def _check_missing(missing: pl.DataFrame, variables: Sequence[str], *, where: str) -> None:
    if missing.is_empty():
        return
    first = ", ".join(f"{name} = {missing[name][0]}" for name in variables)
    cells = number(missing.height, "non-empty cell of the release is", "non-empty cells of the release are")
    raise bad_file(
        f"{cells} missing (first: {first})",
        where=where,
        remedy="use the whole table; select its cells after the correction",
    )


def public_part(bundle: Path) -> Path:
    """Return the public folder of a bundle, or the folder itself where it is what was published."""
    public = bundle / "public" if (bundle / "public").is_dir() else bundle
    if not public.is_dir():
        raise bad_file("there is no such folder", where=str(bundle), remedy="name the folder of a bundle")
    return public


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SwappedRelease:
    """The public part of a swapped release, enough to correct its tables.

    ``strata`` has the match variables and ``stratum_rate``; ``key`` links ``persons`` to ``records``. ``moved`` is the
    law of the number of records that the swap moves, or values are ``redrawn`` from ``redraw_law``; ``fine_match`` and
    ``fine_rate`` are a second stage. ``member`` is the swap that was used, as the list of strata names it.
    """

    records: pl.LazyFrame
    match: tuple[str, ...]
    swap: tuple[str, ...]
    strata: pl.DataFrame
    persons: pl.LazyFrame | None = None
    key: str | None = None
    source: str = "release"
    member: str = MEMBER
    moved: NumberMoved | None = None
    redrawn: RedrawnStratum | None = None
    redraw_law: RedrawLaw | None = None
    fine_match: tuple[str, ...] = ()
    fine_rate: str | None = None

    @classmethod
    def of(
        cls,
        released: Any,
        *,
        match: Sequence[str],
        swap: Sequence[str],
        rate: Fraction | str,
        member: str = MEMBER,
        redraw_law: RedrawLaw | None = None,
        fine_match: Sequence[str] = (),
        fine_rate: Fraction | str | None = None,
    ) -> SwappedRelease:
        """Return a release in memory, swapped at one rate.

        >>> SwappedRelease.of(pl.DataFrame({"a": [1], "b": [2]}), match=["a"], swap=["b"], rate="1/20").strata.rows()
        [('1', '1/20')]
        """
        records = released.lazy()
        texts = [pl.col(name).cast(pl.String) for name in match]
        values = records.select(texts).unique().collect() if match else pl.DataFrame({"__one": [0]})
        strata = values.with_columns(pl.lit(str(Fraction(rate))).alias("stratum_rate"))
        return cls(
            records=records,
            match=tuple(match),
            swap=tuple(swap),
            strata=strata.select(*match, "stratum_rate"),
            **_law_of(member),
            redraw_law=redraw_law,
            fine_match=tuple(fine_match),
            fine_rate=None if fine_rate is None else str(Fraction(fine_rate)),
        )

    @classmethod
    def by_law(
        cls, records: pl.LazyFrame, law: SwapCellLaw, *, persons: pl.LazyFrame | None, key: str | None
    ) -> SwappedRelease:
        """Return a release in memory, swapped by a law that is known."""
        values = records.select(law.match).unique().collect() if law.match else pl.DataFrame({"__one": [0]})
        rates = [str(law.rate_of(row)) for row in values.iter_rows(named=True)]
        texts = [pl.col(name).cast(pl.String) for name in law.match]
        return cls(
            records=records,
            match=law.match,
            swap=law.swap,
            strata=values.select(*texts, pl.Series("stratum_rate", rates)),
            persons=persons,
            key=key,
            moved=law.moved,
            redrawn=law.redrawn,
            redraw_law=law.redraw_law,
            fine_match=law.fine_match,
            fine_rate=None if law.fine_rate is None else str(law.fine_rate),
        )

    @classmethod
    def published(
        cls,
        records: pl.LazyFrame,
        strata: pl.DataFrame,
        *,
        match: Sequence[str],
        swap: Sequence[str],
        where: str = "strata",
        **given: Any,
    ) -> SwappedRelease:
        """Return a release with its list of strata as that is published; it also states a second stage."""
        if {*FINE_COLUMNS.values()} <= {*strata.columns} and strata.height:
            given["fine_match"] = _fine_match(strata, records.collect_schema().names(), where=where)
            given["fine_rate"] = _fine_rate(strata, where=where)
        rates = strata.select(*(pl.col(name).cast(pl.String) for name in match), "stratum_rate")
        return cls(records=records, match=tuple(match), swap=tuple(swap), strata=rates, **given)

    @classmethod
    def read(cls, bundle: Path) -> SwappedRelease:
        """Read a bundle, or the public folder of one, as it was published."""
        public = public_part(bundle)
        strata, specification = public / "strata.parquet", public / "specification.json"
        for needed in (strata, specification):
            if not needed.exists():
                raise bad_file(
                    f"there is no {needed.name}, so this is not the bundle of a swap",
                    where=str(public),
                    remedy="name a bundle made by `stirred swap`, or by a plan whose mechanism swaps",
                )
        if damaged := unreadable_parquet(parquet_below(public)):
            raise DataError([unreadable(why, where=str(path)).problems[0] for path, why in damaged.items()])
        rates = read_frame(strata)
        match = tuple(name for name in rates.columns if not name.startswith("stratum_"))
        if "stratum_rate" not in rates.columns:
            raise bad_file("there is no column stratum_rate", where=str(strata), remedy="make the bundle again")
        member = rates["stratum_law"][0] if "stratum_law" in rates.columns and rates.height else MEMBER
        if uncorrected := _family(member).uncorrected:
            what, remedy = uncorrected
            raise bad_file(what, where=str(public), remedy=remedy)
        records = _file(public, "data")
        if records is None:
            raise bad_file(
                "the released microdata (data.parquet or data.csv) are missing",
                where=str(public),
                remedy="correcting needs the margins of every stratum, which are counted from them",
            )
        _check_strata(rates, match, records.collect_schema().names(), member=member, where=str(strata))
        persons = _file(public, "persons")
        swap = _swapped(specification, match, records.collect_schema().names())
        return cls.published(
            records,
            rates,
            match=match,
            swap=swap,
            persons=persons,
            key=None if persons is None else records.collect_schema().names()[0],
            redraw_law=stated_law(specification) if _law_of(member)["redrawn"] is not None else None,
            **_law_of(member),
            source=str(public),
            where=str(strata),
        )

    def check_correctable(self, *, where: str) -> None:
        """Refuse a release whose tables have no closed form, or one that does not say its second stage."""
        made = _made(self.member)
        if self.moved is None and self.redrawn is None:
            what = f"tables of the {self.member} swap have no closed form for their standard errors"
            raise bad_plan(what, where=where, remedy="use it as published")
        if made is not None and "fine_rate" in made.settings_model.model_fields and self.fine_rate is None:
            what = "the release does not say what its second stage does"
            raise bad_plan(what, where=where, remedy="use it as published")

    def known_redraw_law(self) -> RedrawLaw:
        """Return the law of the conditioned swap, or refuse."""
        if self.redraw_law is None:
            raise bad_file(
                "which law the conditioned swap redraws from is not said",
                where=self.source,
                remedy="name it: uniform, proportional, or the probability of each swap value",
            )
        return self.redraw_law

    @property
    def record_variables(self) -> list[str]:
        """Return the variables of the records that a table may use."""
        return [name for name in self.records.collect_schema().names() if name != self.key]

    @property
    def person_variables(self) -> list[str]:
        """Return the variables that only persons have."""
        if self.persons is None:
            return []
        own = self.persons.collect_schema().names()
        return [name for name in own if name != self.key and name not in self.record_variables]

    def check(self, variables: Sequence[str], *, where: str) -> None:
        """Refuse variables that this release does not have."""
        available = [*self.record_variables, *self.person_variables]
        unknown = [name for name in variables if name not in available]
        if unknown:
            more = "" if self.persons is not None else ", and no file of persons"
            raise bad_file(
                f"the release has no variable {listed(unknown)}{more}",
                where=where,
                remedy=f"it has {listed(available)}",
            )
        if len(set(variables)) < len(variables) or not variables:
            raise bad_file("a table needs different variables", where=where, remedy="name each of them once")

    def exact(self, variables: Sequence[str]) -> bool:
        """Say whether swapping leaves a table of these variables as it was (Proposition 4 of the paper)."""
        swapped = any(name in self.swap for name in variables)
        return not swapped or all(name in (*self.swap, *self.match) for name in variables)


def _made(member: str) -> type[Mechanism] | None:
    """Return the mechanism that the list of strata names, None for a law that no mechanism has alone."""
    return mechanism_class(f"{member}-swap") if is_installed(f"{member}-swap") else None


def _law_of(member: str) -> dict[str, Any]:
    """Return the name of a swap and what its tables follow from."""
    family = _family(member)
    return {"member": member, "moved": family.moved, "redrawn": family.redrawn}


def _family(member: str) -> SwapFamily:
    made = _made(member)
    return SwapFamily() if made is None or made.family is None else made.family


def _file(public: Path, name: str) -> pl.LazyFrame | None:
    for ending in ("parquet", "csv"):
        path = public / f"{name}.{ending}"
        if path.exists():
            return scan_frame(path)
    return None


def _check_strata(
    rates: pl.DataFrame, match: Sequence[str], columns: Sequence[str], *, member: str, where: str
) -> None:
    """Refuse a list of strata that is not one of these records: nothing could be corrected by it."""
    other = [name for name in match if name not in columns]
    if other or (rates.select(match).is_duplicated().any() if match else rates.height > 1):
        what = f"the released microdata have no column {listed(other)}" if other else "a stratum is listed twice"
        raise bad_file(what, where=where, remedy="use data and strata of the same release")
    law = _law_of(member)
    if law["moved"] is not None or law["redrawn"] is not None:
        with placed(where):
            for rate in rates["stratum_rate"].cast(pl.String).unique().drop_nulls():
                probability(rate, where="stratum_rate")


def _fine_match(rates: pl.DataFrame, columns: Sequence[str], *, where: str) -> tuple[str, ...]:
    try:
        names = json.loads(str(rates[FINE_COLUMNS["fine_match"]][0]))
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or any(name not in columns for name in names):
        raise bad_file(
            f"{FINE_COLUMNS['fine_match']} is not a list of released variables",
            where=where,
            remedy="use data and strata of the same release",
        )
    return tuple(names)


def _fine_rate(rates: pl.DataFrame, *, where: str) -> str:
    with placed(where):
        return str(probability(str(rates[FINE_COLUMNS["fine_rate"]][0]), where=FINE_COLUMNS["fine_rate"]))


def _swapped(specification: Path, match: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the swapped variables: what the first invariant crosses with the match variables."""
    try:
        content = json.loads(specification.read_text(encoding="utf-8"))
        first = content["multiverse"]["invariants"][0]["variables"]
    except (OSError, ValueError, LookupError, TypeError):
        first = []
    swap = tuple(name for name in first if name not in match and name in columns)
    if not swap:
        raise bad_file(
            "it does not say which variables were swapped",
            where=str(specification),
            remedy="use the specification that was published with the data",
        )
    return swap


def stated_law(specification: Path) -> RedrawLaw:
    """Return the law: its name, or the probability of each swap value."""
    stated = stated_mechanism(specification.parent)
    law = None if stated is None else stated.settings.get("redraw_law")
    if law in ("uniform", "proportional"):
        return str(law)
    if isinstance(law, dict):
        return _masses(law, where=str(specification))
    raise bad_file(
        "it does not say which law the conditioned swap redraws from, or one that tables cannot be corrected for",
        where=str(specification),
        remedy="use the specification that was published with the data",
    )


def _masses(stated: Mapping[str, Any], *, where: str) -> Mapping[str, Fraction]:
    with placed(where):
        law = {name: fraction(str(mass), where="redraw law") for name, mass in stated.items()}
    if any(mass <= 0 for mass in law.values()) or not 0 < sum(law.values()) <= 1:
        raise bad_file(
            f"the probabilities of its redraw law sum to {sum(law.values())}, or one is not above 0",
            where=where,
            remedy="use the specification that was published with the data",
        )
    return law
