"""Distances between two lists of records: what an input premetric counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from itertools import combinations
from typing import Any, Final

from stirred.spec.exact import INFINITE, Exact, add_up, exact, sqrt
from stirred.spec.given_numbers import fraction
from stirred.spec.problems import wrong

Row = Hashable


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


def same_columns(x: Any, y: Any) -> None:
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


def _edges(rows: list[Row]) -> set[frozenset[Any]]:
    """Return the edges of a graph, each the set of its two ends."""
    edges = [frozenset(row) if isinstance(row, tuple) and len(row) == 2 else frozenset() for row in rows]
    if any(len(edge) != 2 for edge in edges):
        raise wrong("a record is not an edge", where="distance", remedy="give each edge as its two different ends")
    return set(edges)


def _edge(a: list[Row], b: list[Row]) -> Exact:
    return exact(len(_edges(a) ^ _edges(b)))


def _node(a: list[Row], b: list[Row]) -> Exact:
    """Count the fewest nodes that touch every edge in which two graphs on the same nodes differ."""
    differing = _edges(a) ^ _edges(b)
    nodes = sorted({node for edge in differing for node in edge}, key=str)
    if len(nodes) > 20:
        raise wrong(f"{len(nodes)} nodes differ", where="distance", remedy="compare smaller graphs: at most 20 nodes")
    covers = (size for size in range(len(nodes) + 1) for some in combinations(nodes, size)
              if all(edge & set(some) for edge in differing))  # fmt: skip
    return exact(next(covers))


def _euclid(a: list[Row], b: list[Row]) -> Exact:
    if len(a) != len(b):
        return INFINITE
    points = [[row if isinstance(row, tuple) else (row,) for row in rows] for rows in (a, b)]
    if any(len(x) != len(y) for x, y in zip(*points, strict=True)):
        raise wrong("points have different numbers of coordinates", where="distance", remedy="give all the same")
    squares = [
        sum(((fraction(u, where="point") - fraction(v, where="point")) ** 2 for u, v in zip(x, y, strict=True)))
        for x, y in zip(*points, strict=True)
    ]
    return add_up(sqrt(square) for square in squares)


DISTANCES: Final[dict[str, Callable[[list[Row], list[Row]], Exact]]] = {
    "d_HamS": _hamming_unordered,
    "d_Ham": _hamming_ordered,
    "d_SymDiff": _symmetric_difference,
    "d_InsDel": _insert_delete,
    "d_Edge": _edge,
    "d_Node": _node,
    "d_Euclid": _euclid,
}
