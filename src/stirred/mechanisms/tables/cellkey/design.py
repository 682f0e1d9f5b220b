"""Designing a perturbation table: for each count the noise law of largest entropy under its constraints.

Row i has the values v = j - i of the perturbed counts j from max(i - D, 0) to i + D, without 1, ..., js. Its law p
maximises the entropy under mean 0, variance V, p(0) = pstay where that is given, and, with ``mono``, probabilities that
rise from the left end up to v = 0. Variance and pstay are met as equalities, or the design is refused; where
no whole numbers of keys meet them they are met as nearly as these can, and a note says so. The mean is 0 in any case.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import gcd, log, prod
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from stirred.data.frames import read_frame
from stirred.data.place import file_at
from stirred.data.problems import bad_file, bad_plan
from stirred.mechanisms.protocol import Command, Grid, Outcome, Progress
from stirred.mechanisms.tables.cellkey.ptable import KEY_BYTES, KeyTradeOff, PTable, PTableRow, read_ptable
from stirred.spec.exact import exact
from stirred.spec.given_numbers import fraction, probability

Floats = npt.NDArray[np.float64]
KEYS: Final = 10**8  # as many as eight decimals, which the files of the ptable package have
_MOST: Final = 80
_CHANGED: Final = 11  # numbers of a row that are changed to make all of them whole: the largest
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PTableDesign:
    """A designed table and what became of its constraints: one note for each row where one was not met as asked."""

    table: PTable
    probabilities: tuple[tuple[float, ...], ...]
    notes: tuple[str, ...]


def design_ptable(
    *,
    D: int,
    V: Fraction,
    js: int = 0,
    pstay: Sequence[Fraction | None] = (None,),
    mono: Sequence[bool] = (True,),
    step: int = 1,
    keys: int = KEYS,
) -> PTableDesign:
    """Return the table for counts 1, ..., D (with js: D + js + 1); its last row serves all larger counts.

    ``pstay`` and ``mono`` are given for each row, the last one for all that follow. ``step`` divides the values of v,
    for magnitudes. The probabilities are then turned into whole numbers of ``keys``, with mean 0 exactly.

    >>> table = design_ptable(D=2, V=Fraction(1)).table
    >>> table.rows[0].values, table.rows[0].weights
    ((-1, 0, 1, 2), (37500000, 37500000, 12500000, 12500000))
    """
    _check(D=D, V=V, js=js, step=step, keys=keys)
    rows, laws, notes = [], [], []
    for i in range(1, (D if js == 0 else D + js + 1) + 1):
        support = [j for j in range(max(i - D, 0) * step, (i + D) * step + 1) if not 0 < j <= js * step]
        scaled = np.array([j - i * step for j in support], dtype=np.int64)
        there = 0 in scaled  # whether the count itself is among the values
        stay, rising = _of_row(pstay, i) if there else None, _of_row(mono, i) and there
        row = _RowLaw(values=scaled / step, mono=rising, pstay=None if stay is None else float(stay))
        law = row.solved(float(V))
        if law is None or law.min() <= 0:
            kept = f" that stays with probability {stay}" if stay is not None else ""
            what = f"count {i}: no noise of mean 0 and variance {V}{kept} exists on these values"
            remedy = "choose another V, pstay, D or js"
            remedy += "; or probabilities that need not rise: --mono no, in Python mono=[False]" if rising else ""
            raise bad_plan(f"{what}{', rising up to 0' if rising else ''}", where="ptable", remedy=remedy)
        laws.append(tuple(law.tolist()))
        notes += [f"count {i}: {each}" for each in _above(row, V, law)]
        weights = _whole(scaled, law, keys=keys, V=V * step**2, pstay=stay, mono=rising)
        rows.append(PTableRow(count=i, values=tuple(int(v) for v in scaled), weights=weights))
        has = Fraction(int((scaled**2 * np.array(weights)).sum()), keys * step**2)
        if has != V:
            # With D = 2 and pstay or js few laws are left, whose probabilities need not be whole numbers of keys.
            notes.append(f"count {i}: no whole numbers of {keys:,} keys have variance {V}; it is {float(has):.10g}")
        stays = Fraction(rows[-1].law.get(0, 0), keys)
        if stay is not None and stays != stay:
            notes.append(
                f"count {i}: no whole number of {keys:,} keys is {stay} of them; it stays with {float(stays):.10g}"
            )
    table = PTable(rows=tuple(rows), keys=keys, step=step)
    return PTableDesign(table=table, probabilities=tuple(laws), notes=tuple(notes))


def _of_row(given: Sequence[T], i: int) -> T:
    return given[min(i, len(given)) - 1]


def _check(*, D: int, V: Fraction, js: int, step: int, keys: int) -> None:
    if D < 1 or js < 0 or step < 1 or keys < 2 or (2 * D + js) * step > _MOST:
        raise bad_plan(
            f"D {D}, js {js}, step {step} and {keys} keys make no table",
            where="ptable",
            remedy=f"write D and step from 1, js from 0, keys from 2, and (2 D + js) step up to {_MOST}",
        )
    least = Fraction((js + 1) ** 2 // 4)  # the two-point law on 0 and js + 1
    if not least < V <= D * D and not V == least > 0:
        raise bad_plan(
            f"no noise of mean 0 has variance {V} on values up to {D} away" + (f" without 1 to {js}" if js else ""),
            where="V",
            remedy=f"write a variance above {least} and up to {D * D}",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RowLaw:
    """The values of one row and its constraints; ``pstay`` is an equality."""

    values: Floats
    mono: bool
    pstay: float | None

    def solved(self, V: float | None) -> Floats | None:
        """Return the law of largest entropy with variance V (None: any), or None where there is none.

        Values whose probabilities would fall are pooled, and pools that are not needed any more are opened again.
        """
        last = int(np.searchsorted(self.values, 0)) if self.mono else 0
        tied = np.zeros(self.values.size, dtype=bool)  # whether a value has the probability of its left neighbour
        for _ in range(9 * self.values.size):
            law = self._pooled(tied, V)
            if law is None:
                return None
            falls = [k for k in range(1, last + 1) if law[k - 1] > law[k] * (1 + 1e-12) and not tied[k]]
            if falls:
                tied[max(falls, key=lambda k: law[k - 1] - law[k])] = True
                continue
            needless = [k for k in np.flatnonzero(tied) if self._rises_without(tied, int(k), V)]
            if not needless:
                return law
            tied[needless[0]] = False
        return None

    def _rises_without(self, tied: npt.NDArray[np.bool_], k: int, V: float | None) -> bool:
        """Say whether a tie is not needed: opened, the probabilities rise there by themselves."""
        opened = tied.copy()
        opened[k] = False
        law = self._pooled(opened, V)
        return law is not None and bool(law[k] > law[k - 1] * (1 + 1e-9))

    def _pooled(self, tied: npt.NDArray[np.bool_], V: float | None) -> Floats | None:
        pool = np.cumsum(~tied) - 1
        size = np.bincount(pool).astype(float)
        first: Floats = np.bincount(pool, weights=self.values).astype(float)
        second: Floats = np.bincount(pool, weights=self.values**2).astype(float)
        free = np.ones(size.size, dtype=bool)
        mass, mean, square = 1.0, 0.0, V
        if self.pstay is not None:
            own = int(pool[int(np.searchsorted(self.values, 0))])
            free[own] = False
            mass, mean = 1 - self.pstay * size[own], -self.pstay * first[own]
            square = None if V is None else V - self.pstay * second[own]
        inner = _family(size[free], first[free], second[free], mass=mass, mean=mean, square=square)
        if inner is None:
            return None
        each = np.full(size.size, self.pstay or 0.0)
        each[free] = inner
        return np.asarray(each[pool])


def _family(
    size: Floats, first: Floats, second: Floats, *, mass: float, mean: float, square: float | None
) -> Floats | None:
    """Return probabilities exp(a + b first/size + c second/size) with these sums, by Newton's method on the dual."""
    if mass <= 0 or size.size == 0:
        return None
    statistics = np.stack([first / size, second / size])[: 1 if square is None else 2]
    wanted = np.array([mean, square][: len(statistics)]) / mass
    log_size, at = np.log(size), np.zeros(len(statistics))

    def dual(at: Floats) -> tuple[float, Floats]:
        exponent = log_size + at @ statistics
        top = exponent.max()
        weights = np.exp(exponent - top)
        return float(top + log(weights.sum()) - at @ wanted), weights / weights.sum()

    value, law = dual(at)
    for _ in range(500):
        centred = statistics - (statistics @ law)[:, None]
        gradient = statistics @ law - wanted
        if np.abs(gradient).max() < 1e-15 * max(1.0, float(np.abs(statistics).max())):
            break
        hessian = (centred * law) @ centred.T
        try:
            move = np.linalg.solve(hessian + 1e-300 * np.eye(len(at)), gradient)
        except np.linalg.LinAlgError:
            return None
        scale = 1.0
        while scale > 1e-12:
            new_value, new_law = dual(at - scale * move)
            # Near the minimum values no longer differ in floating point, and gradients still do.
            if new_value < value or np.abs(statistics @ new_law - wanted).max() < np.abs(gradient).max():
                break
            scale /= 2
        else:
            break
        at, value, law = at - scale * move, new_value, new_law
        if np.abs(at).max() > 1e6:
            return None
    met = np.abs(statistics @ law - wanted).max() < 1e-10
    return mass * law / size if met else None


def _above(row: _RowLaw, V: Fraction, law: Floats) -> Iterator[str]:
    """Say where the variance is above that of the row's own entropy maximum: far values become likelier than near."""
    largest = replace(row, pstay=None).solved(None)
    if largest is None or law[row.values == 0].sum() == 0:
        return
    most = float(row.values**2 @ largest)
    if float(V) > most + 1e-9:
        largest_entropy = f"V {float(V):g} is above {most:.6f}, the variance of largest entropy"
        yield f"{largest_entropy}: the right tail is heavier than needed"


# ---- whole numbers of keys --------------------------------------------------------------------------------


def _whole(
    values: npt.NDArray[np.int64], law: Floats, *, keys: int, V: Fraction, pstay: Fraction | None, mono: bool
) -> tuple[int, ...]:
    """Return whole numbers close to ``keys * law`` in squares, with sum ``keys`` and mean 0, rising as the law does.

    Variance and pstay are met exactly too where that can be done with whole numbers.
    """
    wanted = law * keys
    start = np.maximum(np.floor(wanted + 0.5).astype(np.int64), 1)
    zero = int(np.flatnonzero(values == 0)[0]) if 0 in values else -1
    fixed = zero if pstay is not None and zero >= 0 and (pstay * keys).denominator == 1 else -1
    if fixed >= 0 and pstay is not None:
        start[fixed] = int(pstay * keys)
    square = int(V * keys) if (V * keys).denominator == 1 else None
    top = zero if mono else -1  # numbers may not fall before this place
    # Rounding is off by less than a key each: of a long row the largest numbers make up for it.
    free = sorted(sorted((k for k in range(values.size) if k != fixed), key=lambda k: -law[k])[:_CHANGED])
    lower = start.copy()
    lower[: max(top, 0)] = np.maximum(start[: max(top, 0)] - 1, 1)
    for wants_square in dict.fromkeys((square, None)):
        for begin in (start, lower):
            found = _balanced(values, begin, free, keys=keys, square=wants_square, top=top)
            if found is not None:
                found = _nearest(values, found, wanted, free, square=wants_square is not None, top=top)
                if square is None or int((values**2 * found).sum()) == square or law.min() * keys >= 1:
                    return tuple(int(c) for c in found)
                # At the edge of what exists only the nearest values have a probability worth a key.
                remedy = "choose a slightly larger V, or a smaller pstay"
                raise bad_plan(f"no whole numbers of {keys:,} keys have this variance", where="V", remedy=remedy)
    raise bad_plan(f"{keys} keys are too few for this law", where="keys", remedy=f"write more keys, such as {KEYS}")


def _fits(whole: npt.NDArray[np.int64], top: int) -> bool:
    return whole.min() >= 1 and all(whole[k] <= whole[k + 1] for k in range(top))


def _balanced(
    values: npt.NDArray[np.int64],
    start: npt.NDArray[np.int64],
    free: Sequence[int],
    *,
    keys: int,
    square: int | None,
    top: int,
) -> npt.NDArray[np.int64] | None:
    """Change as little as possible so that sum, mean and, if given, the sum of squares are right."""
    sums = [keys, 0] if square is None else [keys, 0, square]
    missing = [wanted - int((values**k * start).sum()) for k, wanted in enumerate(sums)]
    best: tuple[Fraction, npt.NDArray[np.int64]] | None = None
    for columns in combinations(free, len(sums)):
        change = _changes([int(values[c]) for c in columns], missing)
        if any(x.denominator != 1 for x in change):
            continue
        new = start.copy()
        new[list(columns)] += np.array([int(x) for x in change])
        size = sum((x * x for x in change), Fraction(0))
        if _fits(new, top) and (best is None or size < best[0]):
            best = (size, new)
    return None if best is None else best[1]


def _changes(at: Sequence[int], missing: Sequence[int]) -> list[Fraction]:
    """Return x with sum x v^k = missing[k] over values v: the coefficients of Lagrange's polynomials say it."""
    found = []
    for v in at:
        others, powers = [w for w in at if w != v], [1]
        for w in others:
            powers = [a - w * b for a, b in zip([0, *powers], [*powers, 0], strict=True)]
        found.append(Fraction(sum(a * b for a, b in zip(powers, missing, strict=True)), prod(v - w for w in others)))
    return found


def _nearest(
    values: npt.NDArray[np.int64],
    whole: npt.NDArray[np.int64],
    wanted: Floats,
    free: Sequence[int],
    *,
    square: bool,
    top: int,
) -> npt.NDArray[np.int64]:
    """Take the steps that keep all sums and bring the numbers closer to what is wanted, until there is none."""
    steps = _steps(values, free, size=4 if square else 3)
    for _ in range(1_000):
        new = [whole + step for step in steps]
        closer = [each for each in new if _fits(each, top) and _apart(each, wanted) < _apart(whole, wanted) - 1e-9]
        if not closer:
            break
        whole = min(closer, key=lambda each: _apart(each, wanted))
    return whole


def _apart(whole: npt.NDArray[np.int64], wanted: Floats) -> float:
    return float(((whole - wanted) ** 2).sum())


def _steps(values: npt.NDArray[np.int64], free: Sequence[int], *, size: int) -> list[npt.NDArray[np.int64]]:
    """Return the shortest changes of ``size`` numbers that keep sum, mean and (of four) the sum of squares."""
    found = []
    for columns in combinations(free, size):
        at = [int(values[c]) for c in columns]
        # Divided differences: the coefficients 1 / prod (v - w) are orthogonal to all lower powers.
        parts = [Fraction(1, prod(v - w for w in at if w != v)) for v in at]
        numbers = [int(x * prod(y.denominator for y in parts)) for x in parts]
        step = np.zeros(values.size, dtype=np.int64)
        step[list(columns)] = [x // gcd(*numbers) for x in numbers]
        found += [step, -step]
    for a, b, c, d in combinations(free, 4) if size == 3 else ():
        if values[a] + values[d] == values[b] + values[c]:
            step = np.zeros(values.size, dtype=np.int64)
            step[[a, b, c, d]] = 1, -1, -1, 1
            found += [step, -step]
    return found


_WIDTH: Final = 24
_DRAWN: Final = 12  # rows
_ONS_KEYS: Final = 1 << 16
_EPSILONS: Final = ("0", "1/2", "1", "2")
_FILE: Final[dict[str, Any]] = {"argument": "FILE"}


class PTableDesignOptions(BaseModel):
    """`stirred ptable design`."""

    D: int = Field(description="The largest change of a count.")
    V: str = Field(description="The variance of the noise, such as 2 or 9/10.")
    js: int = Field(default=0, description="Perturbed counts from 1 to js do not occur.")
    pstay: list[str] = Field(
        default=[], description="The probability that a count stays: of count 1, 2, ...; the last for all others."
    )
    mono: Literal["yes", "no"] = Field(default="yes", description="Whether probabilities rise up to no change.")
    step: int = Field(default=1, description="For sums: values of noise are multiples of 1/step.")
    keys: int = Field(default=KEYS, description="How many keys there are: probabilities are whole numbers of them.")
    compat: bool = Field(default=False, description="No longer there: give a table of the R package ptable instead.")
    out: Path | None = Field(default=None, description="Where to write the table; must not exist.")
    format: Literal["ptable", "ons"] = Field(default="ptable", description="Columns i;j;p;v;p_int_ub, or one a key.")


class ShowOptions(BaseModel):
    """`stirred ptable show`."""

    file: Path = Field(description="A perturbation table.", json_schema_extra=_FILE)
    tables: int = Field(default=1, ge=1, description="For how many tables delta is computed.")


class KeyOptions(BaseModel):
    """`stirred ptable key`."""

    file: Path = Field(description="Where the key goes; must not exist.", json_schema_extra=_FILE)


def design(options: Any, progress: Progress | None) -> Outcome:
    """Compute a table, say which constraints it meets, and write it."""
    del progress
    ons = options.format == "ons"
    if options.compat:
        what, remedy = (
            "tables are no longer designed as the R package ptable does",
            "write one there, and name its file",
        )
        raise bad_plan(f"{what}; the last commit that has it is 6e233e26", where="--compat", remedy=remedy)
    if options.out is not None:
        _check_free(options.out)
    if ons and options.keys > _ONS_KEYS:
        what = f"the format of the ONS has a row for each of {options.keys:,} keys"
        raise bad_plan(what, where="--keys", remedy="write as many as record keys have values: --keys 256 or 4096")
    designed = design_ptable(
        D=options.D,
        V=fraction(options.V, where="--V"),
        js=options.js,
        pstay=[probability(each, where="--pstay") for each in options.pstay] or [None],
        mono=[options.mono == "yes"],
        step=options.step,
        keys=options.keys,
    )
    rows = [("note", note) for note in designed.notes]
    if options.out is not None:
        with file_at(options.out, private=False) as half:
            designed.table.frame(ons=ons).write_csv(half, separator="," if ons else ";")
        rows.append(("wrote", str(options.out)))
    return _shown(designed.table, rows=rows, values={"notes": list(designed.notes)})


def show(options: Any, progress: Progress | None) -> Outcome:
    """Draw a table, and say what it would promise."""
    del progress
    table = read_ptable(read_frame(options.file), where=str(options.file))
    if table.step != 1:
        return _shown(table, rows=[("use", "for sums: it has fractions")], values={})
    many = options.tables
    rows, values = [], dict[str, Any]()
    for label, trade in (
        ("one table", KeyTradeOff(table=table)),
        ("zeros fixed", KeyTradeOff(table=table, zeros_fixed=True)),
        ("keys used again", KeyTradeOff(table=table, tables=many, alone=False)),
        ("by definition", KeyTradeOff(table=table, tables=many, keyed_by="definition")),
    ):
        deltas = {e: exact(trade.delta(exact(e))) for e in _EPSILONS}
        rows.append((label, ", ".join(f"delta {each.shown(6)} at epsilon {e}" for e, each in deltas.items())))
        values[label.replace(" ", "_")] = {e: float(each) for e, each in deltas.items()}
    return _shown(table, rows=rows, values={"delta": values})


def key(options: Any, progress: Progress | None) -> Outcome:
    """Write a new key, for its owner alone."""
    del progress
    _check_free(options.file)
    with file_at(options.file, private=True) as half:
        half.write_text(secrets.token_hex(KEY_BYTES) + "\n", encoding="utf-8")
    keep = "keep it secret, as long as tables are to be consistent; whoever has it can undo the noise"
    return Outcome(rows=[("wrote", str(options.file)), ("keep", keep)], values={"file": str(options.file)})


def _check_free(path: Path) -> None:
    if path.exists() or not path.parent.is_dir():
        what = "something is already there" if path.exists() else "there is no such folder"
        raise bad_file(what, where=str(path), remedy="choose a new file")


def _shown(table: PTable, *, rows: list[tuple[str, str]], values: dict[str, Any]) -> Outcome:
    laws, drawn, moments = [], [], []
    for row in table.rows:
        v = [float(Fraction(each, table.step)) for each in row.law]
        p = [float(Fraction(each, table.keys)) for each in row.law.values()]
        own = {name: float(getattr(table, name)(row.count)) for name in ("bias", "variance", "pstay")}
        laws.append({"count": row.count, "values": v, "probabilities": p, **own})
        if row.count <= _DRAWN:
            moments.append((row.count, *(f"{number:.8g}" for number in own.values())))
            bars = ["#" * round(_WIDTH * each / max(p)) for each in p]
            drawn += [(row.count, f"{x:+g}", f"{y:.8f}", bar) for x, y, bar in zip(v, p, bars, strict=True)]
    grids = [
        Grid(header=("count", "bias", "variance", "stays"), rows=tuple(moments)),
        Grid(header=("count", "added", "probability", ""), rows=tuple(drawn)),
    ]
    return Outcome(rows=rows, grids=grids, values={"keys": table.keys, "rows": laws, **values})


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        name="design", help="Compute a perturbation table by maximum entropy.", options=PTableDesignOptions, run=design
    ),
    Command(name="show", help="Draw a perturbation table, and say what it promises.", options=ShowOptions, run=show),
    Command(name="key", help="Make a secret key for record keys.", options=KeyOptions, run=key),
)
