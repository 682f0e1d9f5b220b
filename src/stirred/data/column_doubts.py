"""Held columns that tell a swapped value, or much of it, and held columns that a swap value determines.

Everybody knows the match values. A column tells a swapped value if it determines it. It nearly tells it if the best
guess from match values and column makes at most half of the errors of the best guess from the match values alone. It
partly tells it if a twentieth of the records lie in groups that share the swapped value, where chance would not bring
that about (``column_evidence``). A column with many values is also judged by its order: neighbours in it, such as those
of a latitude or of codes that begin with the area, tell of each other. Columns are judged alone, in pairs, and three
and more together: these are added one by one, each time the one that guesses best with those before it. Whoever can
guess where a record belongs sees which records were swapped, and from where.

The other way round, a state that is held shows which counties came from elsewhere.

All this looks at the interior of the file. Acting on it is safe where it corrects the role of a column by what the
column *is*; choosing rates by it would void the guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Final

import numpy as np
import polars as pl

from stirred.data.codes import Coded, Codes, differing, encode
from stirred.data.column_evidence import (
    ROWS_OF_PAIRS,
    Evidence,
    RowSample,
    SearchedFile,
    Shown,
    SwapColumns,
    combined,
    orders,
    some_values,
    versions,
)
from stirred.data.guessing import Guess, may_be_chance
from stirred.data.identifying import named_like_an_identifier
from stirred.data.microdata import Microdata
from stirred.data.problems import listed
from stirred.spec.doubts import Doubt
from stirred.spec.problems import as_option

LOOKS_INSIDE: Final = (
    "this looks inside the file: correct the column's role by what it is; choosing settings by this voids the guarantee"
)
KEEP: Final = "list the columns to keep with --hold, without"
NOT_LOOKED_AT: Final = "not-looked-at"
# Pairs of so many columns: those that guess best alone. Of households with persons, so many of each.
_MOST_PAIRED: Final = 16
_MOST_CROSSED: Final = 8
# So many columns at most are put together value by value, in so many rows.
_MOST_TOGETHER: Final = 6
_ROWS_TOGETHER: Final = 20_000
# A value that stands in so few records, for many values, holds together what belongs together.
_FEW_TOGETHER: Final = 10
_MANY_GROUPS: Final = 20
# One record of so many agrees with an earlier one, or a column determines what nobody could read from it.
_AGREES: Final = 20
# So many rows, spread over the file, show of nearly every column that it tells nothing.
_GLANCE: Final = 50_000
# Of larger files that leave too little to guess, it is the swap value that hardly varies.
_FEW_RECORDS: Final = 100


def revealing_columns(data: Microdata, columns: SwapColumns) -> Iterator[Doubt]:
    """Yield doubts about held columns that tell swap values, or are told by them."""
    telling = [*telling_columns(data, columns)]
    yield from telling
    yield from _telling_the_response(data, columns)
    determining = {doubt.about for doubt in telling if doubt.kind in ("tells", "regroup")}
    others = [name for name in columns.exact_hold if name not in determining]
    unbound = {doubt.about: doubt for doubt in _against_the_response(data, columns, others)}
    yield from unbound.values()
    held = [name for name in columns.hold if name not in columns.match]
    yield from _left_behind(data, columns, [name for name in others if name in held and name not in unbound])


def telling_columns(data: Microdata, columns: SwapColumns) -> Iterator[Doubt]:
    """Yield a doubt for each held column, or several of them, that tell a swap value or much of it."""
    held = [name for name in columns.hold if name not in columns.match]
    homes = _Columns(SearchedFile.of(data, columns, persons=False), held, unit=columns.unit)
    yield from homes.doubts()
    if data.persons is not None:
        people = _Columns(SearchedFile.of(data, columns, persons=True), data.person_variables, unit="person")
        yield from people.doubts()
        yield from _crossed(homes, people)


@dataclass(slots=True, eq=False)
class _Columns:
    """Columns of one file that are judged; ``clear`` are those that do not tell alone, with how much they guess."""

    file: SearchedFile
    names: Sequence[str]
    unit: str = field(kw_only=True)
    clear: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> list[str]:
        """Return the columns that do not tell alone, those that guess best first."""
        return sorted(self.clear, key=lambda name: -self.clear[name])

    def doubts(self) -> Iterator[Doubt]:
        """Yield the doubts about single columns first, and then those about pairs of the others."""
        if not self.names or not self.file.columns.height:
            return
        seen = self.file.sample(self.file.some(self.file.rows))
        for name in self.names if seen.targets else ():
            doubt = self._single(name, seen)
            if doubt is not None:
                yield doubt
            seen.known.clear()  # of a wide file the codes of all columns are many
        yield from self._too_few(seen)
        paired = [*self._pairs()]
        yield from paired
        if self.file.house is None:
            told = {name for doubt in paired if doubt.refuses for name in doubt.about.split("+")}
            yield from self._jointly([name for name in self.best if name not in told][:_MOST_PAIRED])

    def _too_few(self, seen: RowSample) -> Iterator[Doubt]:
        """Say that nothing can be told from so few records, whatever the columns are."""
        if self.file.house is None and seen.targets and not seen.can_tell and seen.height <= _FEW_RECORDS:
            yield Doubt(
                kind=NOT_LOOKED_AT,
                about="+".join(seen.targets),
                what=f"the file has {seen.height:,} records, too few to tell from chance whether a column shows where "
                "a record belongs",
                remedy=f"judge by yourself whether {listed(list(self.names))} could tell {listed([*seen.targets])}",
                remark=LOOKS_INSIDE,
                refuses=False,
            )

    def _jointly(self, names: Sequence[str]) -> Iterator[Doubt]:
        """Yield the doubt about three columns or more that tell together what no two of them tell."""
        seen = self.file.sample(self.file.some(_ROWS_TOGETHER)) if len(names) > 2 else None
        if seen is None or not seen.can_tell:
            return
        found = self._together(seen, names)
        if found is None and (few := self._rows_of_some_values(_ROWS_TOGETHER)) is not None:
            found = self._together(few, names)
            found = found and _confirmed(
                self.file.sample(self.file.of_combinations(found.names, _ROWS_TOGETHER)), found
            )
        if found is None:
            return
        if self.unit != "household" and _small_groups(found.codes):
            share = f'mostly share their "{found.told}"'
            yield _regroups(found.names, share)
            return
        if not found.evidence.guess.telling:
            yield self._partly_tells_together(found.names, found.told, found.evidence.shown)
            return
        yield _pair_tells(found.names, found.told, found.evidence.guess, of="", rows="rows", may_move="one of them")

    def _together(self, seen: RowSample, names: Sequence[str]) -> _Joint | None:
        """Return columns whose combinations tell, among these; in the order of the file, as doubts name them."""
        return _joint(seen, {name: versions(seen, name)[1] for name in self.names if name in names})

    def _rows_of_some_values(self, most: int) -> RowSample | None:
        """Return all rows of some swap values, where a few rows of each would show nothing."""
        rows = self.file.of_some_values(most)
        return None if rows is None else self.file.sample(rows)

    def _partly_tells_together(self, names: Sequence[str], told: str, shown: Shown) -> Doubt:
        columns = listed(list(names))
        return Doubt(
            kind="partly-tells",
            about="+".join(names),
            what=f'{columns} together show "{told}" of {100 * shown.share:.2g}% of the rows, since all with the same '
            "values share it: anyone could tell which of them were swapped, and reverse it",
            remedy=f"{KEEP} one of them",
            remark=LOOKS_INSIDE,
        )

    def _single(self, name: str, seen: RowSample) -> Doubt | None:
        """Return the doubt about one column."""
        found = seen.evidence(seen.codes(name))
        begins: dict[str, int] = {}
        if seen.has_many_values(name):
            column = self.file.columns[name]
            for letters, codes in seen.beginnings(name):
                found = _better(found, seen.evidence(codes))
                if seen.rows is None:  # of a larger file the guess tells
                    told_by = [other for other in seen.targets if _agrees(seen, codes, other)]
                    begins = {**dict.fromkeys(told_by, letters), **begins}
            if seen.rows is not None:
                seen = self.file.sample(some_values(column, seen))
                found = _better(found, seen.evidence(seen.codes(name)))
            for rows, order in orders(column, most=self.file.rows):
                found = _better(found, self.file.sample(rows).evidence_in_order(order))
        together = self._holds_together(name, seen)
        told = [other for other in found if _determines(seen, name, other)]
        if told or begins:
            letters = 0 if told else max(begins.values())
            return self._tells(name, told or [*begins], together=together, letters=letters)
        best = max(found, key=lambda other: found[other].guess.removed)
        if found[best].guess.telling:
            return self._nearly_tells(name, best, found[best].guess, together=together)
        partly = max(found, key=lambda other: found[other].shown.rank)
        if found[partly].shown.telling:
            return self._partly_tells(name, partly, found[partly].shown, together=together)
        self.clear[name] = found[best].guess.removed
        return None

    def _pairs(self) -> Iterator[Doubt]:
        """Yield the doubts about pairs of columns that do not tell alone, and say which pairs were not looked at."""
        ranked = self.best
        seen = self.pair_sample() if len(ranked) > 1 else None
        if seen is None:
            return
        few = self._rows_of_some_values(ROWS_OF_PAIRS)
        for pair in combinations([name for name in self.clear if name in ranked[:_MOST_PAIRED]], 2):
            guess, told = _pair(seen, pair)
            if not guess.telling and few is not None and _pair(few, pair)[0].telling:
                guess, told = _pair(self.file.sample(self.file.of_combinations(pair, ROWS_OF_PAIRS)), pair)
            if guess.telling:
                yield _pair_tells(
                    pair, told, guess, of=self._of, rows=self._rows, may_move="" if self._of else "one of them"
                )
        if left := ranked[_MOST_PAIRED:]:
            yield Doubt(
                kind=NOT_LOOKED_AT,
                what=f"of {len(ranked)} columns{self._of} only the {_MOST_PAIRED} that guess the swap values best "
                "alone were paired",
                remedy="judge whether two columns together tell where a record belongs, one of them among "
                f"{listed(left)}",
                refuses=False,
            )

    def pair_sample(self) -> RowSample | None:
        """Return the rows that pairs are judged on; None where nothing could be told."""
        seen = self.file.sample(self.file.some(ROWS_OF_PAIRS))
        return seen if seen.can_tell else None

    @property
    def _of(self) -> str:
        return "" if self.file.house is None else " of persons"

    @property
    def _rows(self) -> str:
        return "rows" if self.file.house is None else "households"

    def _holds_together(self, name: str, seen: RowSample) -> bool:
        """Say whether a column puts rows into many small groups, as the id of a household does with its persons."""
        return self.file.house is None and _small_groups(seen.codes(name))

    def _remedy(self, name: str, *, together: bool) -> str:
        # A column of persons goes with its household: it can be neither swapped nor matched.
        swap = f"swap it too, or {without(name)}" if self.file.house is None else without(name)
        if together or named_like_an_identifier(name):
            swap += f"; if it is an identifier, such as that of a household, name it with --id {as_option(name)}"
        return f"if it is about the place, {swap}"

    def _doubt(self, kind: str, name: str, what: str, *, shared: str, together: bool) -> Doubt:
        # Small groups of households are places; of persons they are households, and so are those of an id.
        if together and (self.unit != "household" or named_like_an_identifier(name)):
            return _regroups(name, shared)
        return Doubt(
            kind=kind,
            about=name,
            what=f'"{name}"{self._of} {what}',
            remedy=self._remedy(name, together=together),
            remark=LOOKS_INSIDE,
        )

    def _tells(self, name: str, told: Sequence[str], *, together: bool, letters: int = 0) -> Doubt:
        which = "the swap values" if len(told) == len(self.file.swap) else listed(told)
        by = f"by its first {'letter' if letters == 1 else f'{letters} letters'} " if letters else ""
        what = f"is published unchanged and {by}determines {which}: anyone could reverse the swap"
        return self._doubt("tells", name, what, shared=f"share {which}", together=together)

    def _nearly_tells(self, name: str, told: str, guess: Guess, *, together: bool) -> Doubt:
        shares = guess.in_words(self._rows)
        what = f'predicts "{told}" for {shares}: anyone could tell which records were swapped, and often reverse it'
        shared = f'mostly share their "{told}": one is guessed from the others for {shares}'
        return self._doubt("nearly-tells", name, what, shared=shared, together=together)

    def _partly_tells(self, name: str, told: str, shown: Shown, *, together: bool) -> Doubt:
        share = f"{100 * shown.share:.2g}% of the {self._rows}"
        what = (
            f'shows "{told}" of {share}, since all with the same or nearly the same "{name}" share it: anyone could '
            "tell which of them were swapped, and reverse it"
        )
        return self._doubt("partly-tells", name, what, shared=f'share their "{told}" for {share}', together=together)


def without(name: str) -> str:
    """Return the advice to leave a column out."""
    return f'{KEEP} "{name}"'


def _better(found: dict[str, Evidence], others: dict[str, Evidence]) -> dict[str, Evidence]:
    """Return the better evidence for each swap value."""
    return {name: each | others[name] if name in others else each for name, each in found.items()}


def _small_groups(codes: Codes) -> bool:
    """Say whether codes put rows into many small groups."""
    values, rows = int(codes.max(initial=0)) + 1, codes.size
    return values > _MANY_GROUPS and rows <= _FEW_TOGETHER * values and _AGREES * (rows - values) >= rows


def _determines(seen: RowSample, name: str, other: str) -> bool:
    """Say whether a column has one value of another for each of its own, and that is not likely to be chance.

    Rows that differ are found among those looked at; where there are none, the whole file is asked.
    """
    if not _agrees(seen, seen.codes(name), other):
        return False
    return seen.rows is None or seen.file.determines(name, other)


def _agrees(seen: RowSample, codes: Codes, other: str) -> bool:
    """Say whether rows with the same code share a swap value, and that is not likely to be chance."""
    target = seen.targets.get(other)
    if target is None:
        return False
    records, groups = int(target.codes.size), int(codes.max(initial=0)) + 1
    repeated = records - groups
    chance = max(target.without / records, 1 / target.values)
    if may_be_chance(repeated, share=chance) or _AGREES * repeated < records:
        return False
    # Persons of a household agree anyway: records are households there.
    values = target.codes if seen.own is None else target.codes[seen.own]
    return not differing(codes, values, count=groups).any()


def _pair(seen: RowSample, names: Sequence[str]) -> tuple[Guess, str]:
    """Return the best guess from two columns of one file, and of which swap value."""
    one, other = (versions(seen, name) for name in names)
    return _together(seen, one, other)


def _together(seen: RowSample, one: Sequence[Codes], other: Sequence[Codes]) -> tuple[Guess, str]:
    """Return the best guess from two columns, each as it is or in classes, and of which swap value."""
    pairs = [*zip(one, other, strict=True)]
    if one[0] is one[1] and other[0] is other[1]:
        pairs = pairs[:1]
    tried = [seen.guesses(combined(pair)) for pair in pairs]
    return max(
        ((guess, name) for guesses in tried for name, guess in guesses.items()),
        key=lambda each: (each[0].telling, each[0].removed),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Joint:
    """Columns that tell together, of which swap value, with the codes of their combinations."""

    names: tuple[str, ...]
    told: str
    evidence: Evidence
    codes: Codes


def _joint(seen: RowSample, columns: Mapping[str, Codes]) -> _Joint | None:
    """Return three or more columns whose combinations tell a swap value; None where none were found."""
    chosen: list[str] = []
    codes: Codes | None = None
    while len(chosen) < min(_MOST_TOGETHER, len(columns)):
        tried = {}
        for name in columns:
            if name not in chosen:
                own = columns[name] if codes is None else combined([codes, columns[name]])
                found = seen.evidence(own)
                told = max(found, key=lambda other: (_is_telling(found[other]), found[other].guess.removed))
                tried[name] = (own, told, found[told])
        best = max(tried, key=lambda name: (_is_telling(tried[name][2]), tried[name][2].guess.removed))
        codes, told, evidence = tried[best]
        chosen.append(best)
        if len(chosen) > 2 and _is_telling(evidence):
            names = tuple(name for name in columns if name in chosen)
            return _Joint(names=names, told=told, evidence=evidence, codes=codes)
    return None


def _confirmed(seen: RowSample, found: _Joint) -> _Joint | None:
    """Return the same columns with what they tell in other rows; None where they do not tell there."""
    codes = combined([versions(seen, name)[1] for name in found.names])
    evidence = seen.evidence(codes).get(found.told)
    if evidence is None or not _is_telling(evidence):
        return None
    return replace(found, evidence=evidence, codes=codes)


def _is_telling(evidence: Evidence) -> bool:
    return evidence.guess.telling or evidence.shown.telling


def _crossed(homes: _Columns, people: _Columns) -> Iterator[Doubt]:
    """Yield the doubts about a column of households together with one of persons."""
    first, second = homes.best, people.best
    seen = people.pair_sample() if first and second else None
    if seen is None:
        return
    of_homes = homes.file.sample(seen.homes)
    for home, person in product(first[:_MOST_CROSSED], second[:_MOST_CROSSED]):
        of_home = [seen.of_homes(codes) for codes in versions(of_homes, home)]
        guess, told = _together(seen, of_home, versions(seen, person))
        if guess.telling:
            yield _pair_tells((home, person), told, guess, of=" of persons", rows="households", may_move=f'"{home}"')
    if len(first) > _MOST_CROSSED or len(second) > _MOST_CROSSED:
        yield Doubt(
            kind=NOT_LOOKED_AT,
            what=f"of {len(first)} columns of households and {len(second)} of persons only the {_MOST_CROSSED} of each "
            "that guess the swap values best alone were paired with each other",
            remedy="judge whether one of a household and one of its persons together tell where a record belongs",
            refuses=False,
        )


def _pair_tells(names: Sequence[str], told: str, guess: Guess, *, of: str, rows: str, may_move: str) -> Doubt:
    move = f"swap {may_move} too, or " if may_move else ""
    columns = " and ".join(f'"{name}"' for name in names)
    return Doubt(
        kind="nearly-tells",
        about="+".join(names),
        what=f'{columns}{of} together predict "{told}" for {guess.in_words(rows)}: anyone could tell which records '
        "were swapped, and often reverse it",
        remedy=f"if they are about the place, {move}{KEEP} one of them",
        remark=LOOKS_INSIDE,
    )


def _regroups(names: str | Sequence[str], how: str) -> Doubt:
    several = not isinstance(names, str)
    columns = f"{listed(list(names))} together put" if several else f'"{names}" puts'
    alone = ""
    if isinstance(names, str):
        alone = f"if it is the id of a household, name it with --id {as_option(names)}; better, "
    place = f"otherwise {KEEP} one of them"
    return Doubt(
        kind="regroup",
        about="+".join(names) if several else str(names),
        what=f"{columns} the rows into small groups that {how}: rows that belong together could be found in the "
        "release, and those among them that were swapped",
        remedy=f"{alone}give households and persons as two files, and the swap keeps them together; "
        f"{place if several else f'if it is a place, {without(str(names))}'}",
        remark=LOOKS_INSIDE,
    )


# ---- columns that a swap value determines, and a randomised response -----------------------------------------


def _telling_the_response(data: Microdata, columns: SwapColumns) -> Iterator[Doubt]:
    """Yield columns that tell the true value of a variable that gets a randomised response."""
    if columns.perturbed is None or columns.perturbed in columns.swap:
        return  # what tells a swap value is doubted as it is for every swap
    others = [name for name in (*columns.exact_hold, *columns.exact_swap) if name not in columns.match]
    for name, _ in told(data.households, others, of=[columns.perturbed]):
        yield Doubt(
            kind="tells-response",
            about=name,
            what=f'"{name}" is released and determines "{columns.perturbed}": the response protects nothing',
            remedy="list the columns to keep with --hold, without one of them",
            remark=LOOKS_INSIDE,
        )


def _left_behind(data: Microdata, columns: SwapColumns, held: Sequence[str]) -> Iterator[Doubt]:
    """Yield held functions of the swap values: where they differ inside a stratum, a swap leaves them behind."""
    frame, names = data.households, list(columns.swap)
    swap = encode(frame, names) if columns.perturbed in names else columns.coded
    for name in _functions(frame, held, of=swap):
        bound = _function(frame[name], columns.strata.codes, count=columns.strata.count)
        if not bound and not may_be_chance(frame.height - swap.count, share=_largest_share(frame[name])):
            yield Doubt(
                kind="left-behind",
                about=name,
                what=f'"{name}" is a function of {listed(names)} and is held: a record whose {listed(names)} does not '
                f'fit shows that it was swapped, and from which "{name}"',
                remedy=f"match on it, swap it too, or {without(name)}",
                remark=LOOKS_INSIDE,
            )


def _against_the_response(data: Microdata, columns: SwapColumns, held: Sequence[str]) -> Iterator[Doubt]:
    """Yield held functions of a variable that gets a response: matching does not bind a response."""
    if columns.perturbed is None:
        return
    frame = data.households
    for name in _functions(frame, held, of=encode(frame, [columns.perturbed])):
        told_already = name not in columns.match and _tells(frame, name, columns.perturbed)
        if not told_already and frame[name].n_unique() > 1:
            yield Doubt(
                kind="shows-response",
                about=name,
                what=f'"{name}" is a function of "{columns.perturbed}" and is released as it is: a record whose '
                f'"{columns.perturbed}" does not fit shows that the response changed it',
                remedy=f'leave "{name}" out, or let another variable get the response',
                remark=LOOKS_INSIDE,
            )


def told(frame: pl.DataFrame, columns: Sequence[str], *, of: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns whose value tells that of another, with those it tells.

    A column that is different on most rows tells everything, and nothing that could be read from it; one
    that never varies has nothing to be told.

    >>> homes = pl.DataFrame({"zip": [1, 2, 2, 3] * 2, "county": ["A", "A", "A", "B"] * 2, "size": [1, 2, 3, 4] * 2})
    >>> list(told(homes, ["zip", "size"], of=["county"]))
    [('zip', ('county',)), ('size', ('county',))]
    >>> list(told(homes.with_columns(size=pl.Series([1, 1, 2, 1] * 2)), ["zip", "size"], of=["county"]))
    [('zip', ('county',))]
    """
    glance = frame.gather_every(max(1, frame.height // _GLANCE))
    for name in columns:
        tells = tuple(other for other in of if _tells(glance, name, other) and _tells(frame, name, other))
        tells = tuple(other for other in tells if frame[other].n_unique() > 1)
        if tells and frame[name].n_unique() <= frame.height // 2:
            yield name, tells


def _functions(frame: pl.DataFrame, columns: Sequence[str], *, of: Coded) -> Iterator[str]:
    """Yield the columns that are functions of some codes; nothing is known where these are different on most rows.

    >>> homes = pl.DataFrame({"place": [11, 12, 21, 21] * 2, "state": [1, 1, 2, 2] * 2, "size": [1, 2, 3, 4] * 2})
    >>> list(_functions(homes, ["state", "size"], of=encode(homes, ["place"])))
    ['state']
    """
    if of.count > frame.height // 2:
        return
    step = max(1, frame.height // _GLANCE)
    few = np.ascontiguousarray(of.codes[::step])
    for name in columns:
        glance = frame[name].gather_every(step)
        if _function(glance, few, count=of.count) and _function(frame[name], of.codes, count=of.count):
            yield name


def _largest_share(column: pl.Series) -> float:
    """Return the share of the records that have the most frequent value."""
    return int(column.value_counts(name="__records")["__records"].max()) / len(column)  # type: ignore[arg-type]


def _tells(frame: pl.DataFrame, name: str, other: str) -> bool:
    column = encode(frame, [name])
    return _function(frame[other], column.codes, count=column.count)


def _function(column: pl.Series, codes: Codes, *, count: int) -> bool:
    """Say whether a column has one value for each code."""
    return not differing(codes, encode(column.to_frame(), [column.name]).codes, count=count).any()
