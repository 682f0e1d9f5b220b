"""What the unit of protection is: the distance between datasets, at a resolution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.problems import wrong

Row = Hashable


@dataclass(frozen=True, slots=True)
class _Kind:
    symbol: str
    words: str
    bounded: bool
    ordered: bool


_KINDS: Final = {
    "d_HamS": _Kind("d_HamS", "number of records that must be changed, order ignored", True, False),
    "d_Ham": _Kind("d_Ham", "number of positions at which the records differ", True, True),
    "d_SymDiff": _Kind("d_SymDiff", "number of records that must be added or removed", False, False),
    "d_InsDel": _Kind("d_InsDel", "number of records inserted or deleted, order kept", False, True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPremetric:
    """A distance between datasets, counting records of one ``unit``; it can be computed.

    ``name`` is ``d_HamS`` (unordered Hamming, Eq. 3.1), ``d_Ham`` (ordered Hamming), ``d_SymDiff``
    (symmetric difference) or ``d_InsDel`` (ordered insert-delete), all of section A.4 of the
    dissertation. With ``within`` it is the neighbour relation ``d_r`` instead: 1 between different
    datasets at most ``within`` apart, infinite beyond (Eq. A.2); ``sharpened()`` undoes that.
    ``post_imputation`` says that a unit is a record *after* imputation, not a person who answered; None says nothing.

    >>> households = InputPremetric(name="d_HamS", unit="household")
    >>> households.distance([("A", 1), ("B", 2)], [("B", 2), ("A", 3)])
    Exact('1')
    >>> households.distance([("A", 1)], [("A", 1), ("A", 1)])  # bounded: another size is infinitely far
    Exact('inf')
    """

    name: str
    unit: str
    post_imputation: bool | None = None
    within: int | None = None
    relation: str | None = None
    related: Callable[[Any, Any], bool] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.name not in _KINDS and self.name != "d_r":
            raise wrong(
                f"{self.name!r} is not an input premetric",
                where="input_premetric name",
                remedy=f"one of {', '.join(_KINDS)}, or d_r with your own relation",
            )
        if self.name == "d_r" and not self.relation:
            raise wrong("d_r without a relation", where="input_premetric", remedy="name the relation")
        if not self.unit.strip():
            raise wrong("no unit", where="input_premetric unit", remedy="write such as 'person' or 'household'")
        if self.within is not None and self.within < 1:
            raise wrong(f"{self.within} is below 1", where="input_premetric within", remedy="write 1 or more")

    @property
    def bounded(self) -> bool:
        """Say whether datasets of different size are infinitely far apart, which fixes the size (A.3.3)."""
        return self.name in _KINDS and _KINDS[self.name].bounded

    @property
    def ordered(self) -> bool:
        """Say whether the order of the records counts."""
        return self.name in _KINDS and _KINDS[self.name].ordered

    @property
    def is_metric(self) -> bool:
        """Say whether the triangle inequality holds; a neighbour relation alone is no metric."""
        return self.within is None and self.name != "d_r"

    @property
    def symbol(self) -> str:
        """Return the symbol as in the paper, with the resolution."""
        base = self.relation if self.name == "d_r" else self.name
        if self.within is None:
            return f"d_r[{base}]^{self.unit}" if self.name == "d_r" else f"{self.name}^{self.unit}"
        return f"d_r[{base}<={self.within}]^{self.unit}"

    @property
    def unit_in_words(self) -> str:
        """Return the unit, with what is known about imputation."""
        return f"{'post-imputation ' if self.post_imputation else ''}{self.unit}"

    def counted(self, number: int | None = None) -> str:
        """Return a number of records of the unit in words, or records in general.

        >>> InputPremetric(name="d_HamS", unit="record").counted(1)
        '1 record'
        >>> InputPremetric(name="d_HamS", unit="household").counted(2)
        '2 household records'
        """
        unit = self.unit_in_words
        one = unit if unit.endswith("record") else f"{unit} record"
        words = one if number == 1 else f"{one}s"
        return words if number is None else f"{number} {words}"

    @property
    def words(self) -> str:
        """Return in plain words what the distance counts."""
        if self.name == "d_r":
            return f"1 between two datasets related by {self.relation} ({self.unit_in_words}), infinite otherwise"
        counted = f"{_KINDS[self.name].words} ({self.counted()})"
        if self.within is None:
            return counted
        reach = "exactly 1" if self.within == 1 else f"from 1 to {self.within}"
        return f"1 where the {counted} is {reach}, infinite beyond"

    def neighbours(self, within: int = 1) -> InputPremetric:
        """Return the neighbour relation of this metric: only datasets at most ``within`` apart count."""
        return replace(self, within=within)

    def sharpened(self) -> InputPremetric:
        """Return the shortest-path metric of a neighbour relation (Definition A.4.1).

        The shortest path through single changes is the metric itself; through steps of several
        changes, or of a relation of your own, it is not one of the named metrics.
        """
        if self.name != "d_r" and self.within in (None, 1):
            return replace(self, within=None)
        raise wrong(
            f"the sharpening of {self.symbol} is not one of the named metrics",
            where="input_premetric",
            remedy="compute it on a finite domain with `shortest_paths`",
        )

    def distance(self, x: Any, y: Any, *, by: str | None = None) -> Exact:
        """Return the distance between two frames or sequences of rows; order counts only where it should.

        ``by`` names the column that links rows to units: a person file with ``by="hid"`` gives the
        distance in households, each the multiset of its persons; the identifier itself does not count.
        """
        _same_columns(x, y)
        a, b = records(x, by=by), records(y, by=by)
        if self.name == "d_r":
            return self._relation_distance(a, b)
        plain = _DISTANCES[self.name](a, b)
        if self.within is None or plain == 0:
            return plain
        return exact(1) if plain <= self.within else INFINITE

    def _relation_distance(self, a: list[Row], b: list[Row]) -> Exact:
        if self.related is None:
            raise wrong(
                f"the relation {self.relation} is known by name only",
                where="input_premetric",
                remedy="give it as `related=function of two datasets`",
            )
        if a == b:
            return exact(0)
        return exact(1) if self.related(a, b) else INFINITE

    def shortest_paths(self, datasets: Sequence[Any]) -> dict[tuple[int, int], Exact]:
        """Return the sharpening on a finite domain: shortest weighted paths between all pairs (A.4.1).

        Keys are positions in ``datasets``. A metric is its own sharpening.
        """
        indices = range(len(datasets))
        lengths = {(i, j): self.distance(datasets[i], datasets[j]) for i in indices for j in indices}
        for middle in indices:
            for i in indices:
                for j in indices:
                    through = lengths[i, middle] + lengths[middle, j]
                    if through < lengths[i, j]:
                        lengths[i, j] = through
        return lengths


def records(frame: Any, *, by: str | None = None) -> list[Row]:
    """Return the records of a frame or sequence, as hashable rows, grouped into units by ``by``.

    >>> records([("h1", 30), ("h2", 40)])
    [('h1', 30), ('h2', 40)]
    """
    names, rows = _names_and_rows(frame)
    if by is None:
        return list(rows)
    if names is None or by not in names:
        raise wrong(
            f"there is no column {by!r}",
            where="distance by",
            remedy=f"choose one of {', '.join(names)}" if names else "give frames or dictionaries, not bare rows",
        )
    at = names.index(by)
    units: dict[Hashable, Counter[Row]] = {}
    for row in rows:
        units.setdefault(row[at], Counter())[tuple(v for i, v in enumerate(row) if i != at)] += 1
    return [frozenset(unit.items()) for unit in units.values()]


def _same_columns(x: Any, y: Any) -> None:
    """Refuse to compare tables with different columns: they are no versions of one file."""
    mine, yours = _names_and_rows(x)[0], _names_and_rows(y)[0]
    if mine is not None and yours is not None and mine != yours and len(x) and len(y):
        raise wrong(
            f"the columns differ: {', '.join(mine)} and {', '.join(yours)}",
            where="distance",
            remedy="compare two versions of the same file",
        )


def _plain(value: Any) -> Any:
    """Return missing and not-a-number values as None, so that a row equals itself."""
    return None if value is None or value != value else value


def _names_and_rows(frame: Any) -> tuple[list[str] | None, list[Any]]:
    if isinstance(frame, (list, tuple)):
        if frame and isinstance(frame[0], dict):
            names = sorted(frame[0])
            if any(sorted(row) != names for row in frame):
                raise wrong("the rows have different keys", where="distance", remedy="give every row the same keys")
            return names, [tuple(_plain(row[name]) for name in names) for row in frame]
        return None, [tuple(map(_plain, row)) if isinstance(row, (tuple, list)) else _plain(row) for row in frame]
    import narwhals as nw  # any frame of any library; imported only when a frame is given

    table = nw.from_native(frame, eager_only=True, pass_through=False)
    names = sorted(table.columns)
    return names, [tuple(map(_plain, row)) for row in table.select(names).rows()]


def _hamming_unordered(a: list[Row], b: list[Row]) -> Exact:
    if len(a) != len(b):
        return INFINITE
    return exact(sum((Counter(a) - Counter(b)).values()))


def _hamming_ordered(a: list[Row], b: list[Row]) -> Exact:
    if len(a) != len(b):
        return INFINITE
    return exact(sum(x != y for x, y in zip(a, b, strict=True)))


def _symmetric_difference(a: list[Row], b: list[Row]) -> Exact:
    first, second = Counter(a), Counter(b)
    return exact(sum((first - second).values()) + sum((second - first).values()))


def _insert_delete(a: list[Row], b: list[Row]) -> Exact:
    """Count the fewest insertions and deletions, by furthest-reaching paths over the edit graph.

    For d edits, ``furthest[k]`` is the largest position in ``a`` reached on diagonal k; the first d
    that reaches both ends is the distance. Time grows with the distance, not with the product of sizes.
    """
    n, m = len(a), len(b)
    furthest = {1: 0}
    for d in range(n + m + 1):
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest[k - 1] < furthest[k + 1])
            i = furthest[k + 1] if down else furthest[k - 1] + 1
            while i < n and i - k < m and a[i] == b[i - k]:
                i += 1
            furthest[k] = i
            if i >= n and i - k >= m:
                return exact(d)
    raise AssertionError("unreachable: n + m edits always suffice")


_DISTANCES: Final[dict[str, Callable[[list[Row], list[Row]], Exact]]] = {
    "d_HamS": _hamming_unordered,
    "d_Ham": _hamming_ordered,
    "d_SymDiff": _symmetric_difference,
    "d_InsDel": _insert_delete,
}


def allowance(budget: Exact, distance: Exact) -> Exact:
    """Return budget times distance, where nothing is promised at an infinite distance.

    0 times infinity is infinity (Remark 2.4.6): even a budget of 0 does not constrain datasets that
    the premetric does not compare. At distance 0 the allowance is 0.

    >>> allowance(exact(0), INFINITE), allowance(INFINITE, exact(0))
    (Exact('inf'), Exact('0'))
    """
    if distance.is_infinite:
        return INFINITE
    if distance == 0:
        return exact(0)
    return budget * distance
