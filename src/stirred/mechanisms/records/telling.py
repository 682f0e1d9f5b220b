"""Held columns that tell a swapped value, or much of it: alone or in pairs, of households and of persons.

Everybody knows the match values. A column tells a swapped value if it determines it. It nearly tells it if the best
guess from match values and column makes at most half of the errors of the best guess from the match values alone. It
partly tells it if a twentieth of the records lie in groups that share the swapped value, where chance would not bring
that about (`looking.py`). A column with many values is also judged by its order: neighbours in it, such as those
of a latitude or of codes that begin with the area, tell of each other. Whoever can guess where a record belongs sees
which records were swapped, and from where.

This looks at the interior of the file. Acting on it is safe where it corrects the role of a column by what the column
*is*; choosing rates by it would void the guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Final

from stirred.data.codes import Codes, differing
from stirred.data.guessing import Guess, may_be_chance
from stirred.data.identifying import named_like_an_identifier
from stirred.data.microdata import Microdata
from stirred.data.problems import listed
from stirred.mechanisms.records.looking import (
    ROWS_OF_PAIRS,
    ROWS_TOGETHER,
    Evidence,
    File,
    FileSample,
    GroupEvidence,
    Joint,
    added_up,
    combined,
    confirmed,
    orders,
    some_values,
    together,
    versions,
)
from stirred.mechanisms.records.plan import SwapPlan
from stirred.spec.doubts import Doubt

LOOKS_INSIDE: Final = (
    "(this looks inside the file: correct the column's role by what it is; choosing settings by this voids the "
    "guarantee)"
)
KEEP: Final = "list the columns to keep with --hold, without"
NOT_LOOKED_AT: Final = "not-looked-at"
# Pairs of so many columns: those that guess best alone. Of households with persons, so many of each.
_MOST_PAIRED: Final = 16
_MOST_CROSSED: Final = 8
# A value that stands in so few records, for many values, holds together what belongs together.
_FEW_TOGETHER: Final = 10
_MANY_GROUPS: Final = 20
# One record of so many agrees with an earlier one, or a column determines what nobody could read from it.
_AGREES: Final = 20
# Of larger files that leave too little to guess, it is the swap value that hardly varies.
_FEW_RECORDS: Final = 100


def telling_columns(data: Microdata, plan: SwapPlan) -> Iterator[Doubt]:
    """Yield a doubt for each held column, or pair of them, that tells a swap value or much of it."""
    held = [name for name in plan.hold if name not in plan.universe.match]
    homes = _Columns(File.of(data, plan, persons=False), held, unit=plan.specification.input_premetric.unit)
    yield from homes.doubts()
    if data.persons is not None:
        people = _Columns(File.of(data, plan, persons=True), data.person_variables, unit="person")
        yield from people.doubts()
        yield from _crossed(homes, people)


@dataclass(slots=True, eq=False)
class _Columns:
    """Columns of one file that are judged; ``clear`` are those that do not tell alone, with how much they guess."""

    file: File
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
        seen = self.file.look(self.file.some(self.file.rows))
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

    def _too_few(self, seen: FileSample) -> Iterator[Doubt]:
        """Say that nothing can be told from so few records, whatever the columns are."""
        if self.file.house is None and seen.targets and not seen.can_tell and seen.height <= _FEW_RECORDS:
            yield Doubt(
                kind=NOT_LOOKED_AT,
                about="+".join(seen.targets),
                what=f"the file has {seen.height:,} records, too few to tell from chance whether a column shows where "
                "a record belongs",
                remedy=f"judge by yourself whether {listed(list(self.names))} could tell {listed([*seen.targets])} "
                f"{LOOKS_INSIDE}",
                refuses=False,
            )

    def _jointly(self, names: Sequence[str]) -> Iterator[Doubt]:
        """Yield the doubt about three columns or more that tell together what no two of them tell."""
        seen = self.file.look(self.file.some(ROWS_TOGETHER)) if len(names) > 2 else None
        if seen is None or not seen.can_tell:
            return
        found = self._together(seen, names) or added_up(seen, {name: versions(seen, name)[1] for name in names})
        if found is None and (few := self._look_at_some_values(ROWS_TOGETHER)) is not None:
            found = self._together(few, names)
            found = found and confirmed(self.file.look(self.file.of_combinations(found.names, ROWS_TOGETHER)), found)
        if found is None:
            return
        if found.codes is not None and self.unit != "household" and _small_groups(found.codes):
            share = f'mostly share their "{found.told}"'
            yield _regroups(found.names, share)
            return
        if found.evidence is not None and not found.guess.telling:
            yield self._partly_tells_together(found.names, found.told, found.evidence.shown)
            return
        yield _pair_tells(found.names, found.told, found.guess, of="", rows="rows", may_move="one of them")

    def _together(self, seen: FileSample, names: Sequence[str]) -> Joint | None:
        """Return columns whose combinations tell, among these; in the order of the file, as doubts name them."""
        return together(seen, {name: versions(seen, name)[1] for name in self.names if name in names})

    def _look_at_some_values(self, most: int) -> FileSample | None:
        """Return a look at all rows of some swap values, where a few rows of each would show nothing."""
        rows = self.file.of_some_values(most)
        return None if rows is None else self.file.look(rows)

    def _partly_tells_together(self, names: Sequence[str], told: str, shown: GroupEvidence) -> Doubt:
        columns = listed(list(names))
        return Doubt(
            kind="partly-tells",
            about="+".join(names),
            what=f'{columns} together show "{told}" of {100 * shown.share:.2g}% of the rows, since all with the same '
            "values share it: anyone could tell which of them were swapped, and reverse it",
            remedy=f"{KEEP} one of them {LOOKS_INSIDE}",
        )

    def _single(self, name: str, seen: FileSample) -> Doubt | None:
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
                seen = self.file.look(some_values(column, seen))
                found = _better(found, seen.evidence(seen.codes(name)))
            for rows, order in orders(column, most=self.file.rows):
                found = _better(found, self.file.look(rows).evidence_in_order(order))
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
        seen = self.look_at_pairs() if len(ranked) > 1 else None
        if seen is None:
            return
        few = self._look_at_some_values(ROWS_OF_PAIRS)
        for pair in combinations([name for name in self.clear if name in ranked[:_MOST_PAIRED]], 2):
            guess, told = _pair(seen, pair)
            if not guess.telling and few is not None and _pair(few, pair)[0].telling:
                guess, told = _pair(self.file.look(self.file.of_combinations(pair, ROWS_OF_PAIRS)), pair)
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

    def look_at_pairs(self) -> FileSample | None:
        """Return a look at the rows that pairs are judged on; None where nothing could be told."""
        seen = self.file.look(self.file.some(ROWS_OF_PAIRS))
        return seen if seen.can_tell else None

    @property
    def _of(self) -> str:
        return "" if self.file.house is None else " of persons"

    @property
    def _rows(self) -> str:
        return "rows" if self.file.house is None else "households"

    def _holds_together(self, name: str, seen: FileSample) -> bool:
        """Say whether a column puts rows into many small groups, as the id of a household does with its persons."""
        return self.file.house is None and _small_groups(seen.codes(name))

    def _remedy(self, name: str, *, together: bool) -> str:
        # A column of persons goes with its household: it can be neither swapped nor matched.
        swap = f"swap it too, or {without(name)}" if self.file.house is None else without(name)
        if together or named_like_an_identifier(name):
            swap += f"; if it is an identifier, such as that of a household, name it with --id {name}"
        return f"if it is about the place, {swap} {LOOKS_INSIDE}"

    def _doubt(self, kind: str, name: str, what: str, *, shared: str, together: bool) -> Doubt:
        # Small groups of households are places; of persons they are households, and so are those of an id.
        if together and (self.unit != "household" or named_like_an_identifier(name)):
            return _regroups(name, shared)
        return Doubt(
            kind=kind, about=name, what=f'"{name}"{self._of} {what}', remedy=self._remedy(name, together=together)
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

    def _partly_tells(self, name: str, told: str, shown: GroupEvidence, *, together: bool) -> Doubt:
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


def _determines(seen: FileSample, name: str, other: str) -> bool:
    """Say whether a column has one value of another for each of its own, and that is not likely to be chance.

    Rows that differ are found among those looked at; where there are none, the whole file is asked.
    """
    if not _agrees(seen, seen.codes(name), other):
        return False
    return seen.rows is None or seen.file.determines(name, other)


def _agrees(seen: FileSample, codes: Codes, other: str) -> bool:
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


def _pair(seen: FileSample, names: Sequence[str]) -> tuple[Guess, str]:
    """Return the best guess from two columns of one file, and of which swap value."""
    one, other = (versions(seen, name) for name in names)
    return _together(seen, one, other)


def _together(seen: FileSample, one: Sequence[Codes], other: Sequence[Codes]) -> tuple[Guess, str]:
    """Return the best guess from two columns, each as it is or in classes, and of which swap value."""
    pairs = [*zip(one, other, strict=True)]
    if one[0] is one[1] and other[0] is other[1]:
        pairs = pairs[:1]
    tried = [seen.guesses(combined(pair)) for pair in pairs]
    return max(
        ((guess, name) for guesses in tried for name, guess in guesses.items()),
        key=lambda each: (each[0].telling, each[0].removed),
    )


def _crossed(homes: _Columns, people: _Columns) -> Iterator[Doubt]:
    """Yield the doubts about a column of households together with one of persons."""
    first, second = homes.best, people.best
    seen = people.look_at_pairs() if first and second else None
    if seen is None:
        return
    of_homes = homes.file.look(seen.homes)
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
        remedy=f"if they are about the place, {move}{KEEP} one of them {LOOKS_INSIDE}",
    )


def _regroups(names: str | Sequence[str], how: str) -> Doubt:
    several = not isinstance(names, str)
    columns = f"{listed(list(names))} together put" if several else f'"{names}" puts'
    alone = f"if it is the id of a household, name it with --id {names}; better, " if isinstance(names, str) else ""
    place = f"otherwise {KEEP} one of them"
    return Doubt(
        kind="regroup",
        about="+".join(names) if several else str(names),
        what=f"{columns} the rows into small groups that {how}: rows that belong together could be found in the "
        "release, and those among them that were swapped",
        remedy=f"{alone}give households and persons as two files, and the swap keeps them together; "
        f"{place if several else f'if it is a place, {without(str(names))}'} {LOOKS_INSIDE}",
    )
