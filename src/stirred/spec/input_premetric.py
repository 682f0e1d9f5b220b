"""What the unit of protection is: the distance between datasets, at a resolution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, product
from typing import Annotated, Any, ClassVar, Final

from stirred.spec.block import Block
from stirred.spec.exact import INFINITE, Exact, add_up, exact, sqrt
from stirred.spec.given_numbers import Number, fraction, loss
from stirred.spec.invariant import plural
from stirred.spec.problems import SpecificationError, unknown_name, wrong

Table = tuple[tuple[str, str, Exact], ...]


def shortest(lengths: dict[tuple[Any, Any], Exact]) -> dict[tuple[Any, Any], Exact]:
    """Return the lengths of shortest weighted and directed paths between all pairs."""
    closed, points = dict(lengths), list(dict.fromkeys(point for pair in lengths for point in pair))
    for middle in points:
        into = [(i, closed[i, middle]) for i in points if not closed[i, middle].is_infinite]
        out = [(j, closed[middle, j]) for j in points if not closed[middle, j].is_infinite]
        for (i, first), (j, second) in product(into, out):
            if (through := first + second) < closed[i, j]:
                closed[i, j] = through
    return closed


def label(dataset: Any) -> str:
    """Return the label of a dataset in a table of distances: a text is its own, a list that of its parts.

    >>> label("north"), label((0, 1)), label(((0, 1), (1, 1))), label(())
    ('north', '0 1', '0 1 1 1', 'empty')
    """
    return (" ".join(map(label, dataset)) or "empty") if isinstance(dataset, (list, tuple)) else str(dataset)


def checked(table: Any, *, directed: bool) -> Table:
    """Return the entries of a table with exact distances; a pair stands once, a dataset is at distance 0 of itself."""
    entries = tuple((str(x), str(y), _far(far)) for x, y, far in table)
    seen: set[tuple[str, str]] = set()
    for x, y, far in entries:
        pair = (x, y) if directed else (min(x, y), max(x, y))
        if pair in seen or (x == y and far != 0):
            what = f"{x} and {y} stand in the table twice" if pair in seen else f"{x} is {far} from itself"
            raise wrong(what, where="input_premetric table", remedy="give each pair once, and 0 for a dataset itself")
        seen.add(pair)
    return entries


def _far(value: Number) -> Exact:
    try:
        return loss(value, where="input_premetric table")
    except SpecificationError:
        what, remedy = f"{str(value)[:60]!r} is not a distance", "write a number of 0 or more, 'ln(2)' or 'inf'"
        raise wrong(what, where="input_premetric table", remedy=remedy) from None


@lru_cache(maxsize=64)
def lengths_of(table: Table, *, directed: bool, closure: bool) -> dict[tuple[str, str], Exact]:
    """Return the distances of a table between all datasets it names, or their shortest paths."""
    points = dict.fromkeys(each for x, y, _ in table for each in (x, y))
    lengths = {(x, y): exact(0) if x == y else INFINITE for x in points for y in points}
    lengths |= {(x, y): far for x, y, far in table}
    if not directed:
        lengths |= {(y, x): far for x, y, far in table}
    return shortest(lengths) if closure else lengths


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


@dataclass(frozen=True, slots=True)
class _Kind:
    words: str
    bounded: bool
    ordered: bool
    counts: bool = True


_KINDS: Final = {
    "d_HamS": _Kind("number of records that must be changed, order ignored", True, False),
    "d_Ham": _Kind("number of positions at which the records differ", True, True),
    "d_SymDiff": _Kind("number of records that must be added or removed", False, False),
    "d_InsDel": _Kind("number of records inserted or deleted, order kept", False, True),
    "d_Edge": _Kind("number of edges of a graph that must be added or removed", False, False),
    "d_Node": _Kind("number of nodes of a graph whose edges must be rewired", True, False),
    "d_Euclid": _Kind("sum of the straight-line distances between points at the same position", True, True, False),
}
_OWN: Final = ("d_r", "d_Given")  # a relation, and a distance, that ``relation`` names


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPremetric(Block):
    """A distance between datasets, counting records of one ``unit``; it can be computed.

    ``name`` is ``d_HamS`` (unordered Hamming, Eq. 3.1), ``d_Ham`` (ordered Hamming), ``d_SymDiff``
    (symmetric difference) or ``d_InsDel`` (ordered insert-delete), all of section A.4 of the
    dissertation; ``d_Edge`` or ``d_Node`` between graphs, each the list of its edges; or ``d_Euclid``
    between lists of points. With ``within`` it is the neighbour relation ``d_r`` instead: 1 between different
    datasets at most ``within`` apart, infinite beyond (Eq. A.2); ``sharpened()`` undoes that. ``d_Given`` is a
    distance of your own: ``relation`` names it, and ``table`` lists it on a finite domain, by labels of datasets (see
    :func:`label`); pairs not listed are infinitely far apart, and the way back is as far unless it is ``directed``.
    ``closure`` takes shortest paths instead (Definition A.4.1), through steps of up to ``within`` changes or through
    the table.
    ``post_imputation`` says that a unit is a record *after* imputation, not a person who answered; None says nothing.

    >>> households = InputPremetric(name="d_HamS", unit="household")
    >>> households.distance([("A", 1), ("B", 2)], [("B", 2), ("A", 3)])
    Exact('1')
    >>> households.distance([("A", 1)], [("A", 1), ("A", 1)])  # bounded: another size is infinitely far
    Exact('inf')
    """

    in_file: ClassVar = (
        "name", "unit", "post_imputation", "bounded", "within", "relation", "table", "directed", "closure",
    )  # fmt: skip
    choices: ClassVar = {"name": (*_KINDS, *_OWN)}
    left_out: ClassVar = ("post_imputation", "within", "relation", "table", "directed", "closure")

    name: Annotated[str, "how two datasets are compared, such as d_HamS: by the number of changed records"]
    unit: Annotated[str, "what a record stands for, such as person or household"]
    post_imputation: Annotated[
        bool | None, "whether a unit is a record after imputation; left out where nothing says so"
    ] = None
    within: Annotated[int | None, "the largest distance that is compared; left out, any"] = None
    relation: Annotated[str | None, "for d_r: which datasets are neighbours, in words"] = None
    table: Annotated[Table, "for d_Given: pairs of datasets by label and their distance; others are not compared"] = ()
    directed: Annotated[bool, "whether a listed distance holds in its own direction only"] = False
    closure: Annotated[bool, "whether shortest paths through neighbours count instead"] = False
    related: Callable[[Any, Any], bool] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.name not in (*_KINDS, *_OWN):
            raise unknown_name(
                self.name, self.choices["name"], where="input_premetric name", called="an input premetric"
            )
        if self.name in _OWN and not self.relation:
            raise wrong(f"{self.name} without a relation", where="input_premetric", remedy="name the relation")
        self._check_own()
        if not self.unit.strip():
            raise wrong("no unit", where="input_premetric unit", remedy="write such as 'person' or 'household'")
        if self.within is not None and self.within < 1:
            raise wrong(f"{self.within} is below 1", where="input_premetric within", remedy="write 1 or more")

    def _check_own(self) -> None:
        """Refuse what only a distance of one's own can have, and a closure of nothing."""
        if (self.table and self.name != "d_Given") or (self.directed and self.name not in _OWN):
            raise wrong(
                f"{self.name} has no table and no direction",
                where="input_premetric",
                remedy="leave them out, or write d_Given and list the distances",
            )
        if self.closure and not (self.name in _OWN or (self.within is not None and _KINDS[self.name].counts)):
            raise wrong(
                f"there is nothing to take the closure of: {self.name} alone is its own",
                where="input_premetric closure",
                remedy="give 'within' with a distance that counts, or leave 'closure' out",
            )
        object.__setattr__(self, "table", checked(self.table, directed=self.directed))

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the datasets that the table lists."""
        return tuple(dict.fromkeys(each for x, y, _ in self.table for each in (x, y)))

    @property
    def counts(self) -> bool:
        """Say whether the distance is a number of changed records, so that a unit can be made of several."""
        return self.name in _KINDS and _KINDS[self.name].counts and not self.closure

    @property
    def related_only(self) -> bool:
        """Say whether it is a relation of one's own, without its closure."""
        return self.name == "d_r" and not self.closure

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
        if self.name == "d_Given" and self.table:
            lengths = lengths_of(self.table, directed=self.directed, closure=self.closure)
            return not self.directed and shortest(lengths) == lengths
        return not self.directed and (self.closure or (self.within is None and self.name in _KINDS))

    @property
    def one_step(self) -> bool:
        """Say whether all datasets that are compared are 1 apart: a relation, for which the budget alone decides."""
        if self.table:
            return all(far == 1 for far in self._apart())
        return self.name != "d_Given" and not self.closure and (self.within is not None or self.name == "d_r")

    @property
    def least(self) -> Exact:
        """Return a distance that no two different datasets are below; 0 if none is known."""
        if self.table:
            return min(self._apart(), default=exact(1))
        return exact(1) if self.closure or self.one_step or self.counts else exact(0)

    def _apart(self) -> list[Exact]:
        lengths = lengths_of(self.table, directed=self.directed, closure=self.closure)
        return [far for far in lengths.values() if far != 0 and not far.is_infinite]

    @property
    def symbol(self) -> str:
        """Return the symbol as in the paper, with the resolution; a star marks the closure."""
        star = "*" if self.closure else ""
        if self.name in _OWN:
            return f"{'d_r' if self.name == 'd_r' else 'd'}{star}[{self.relation}]^{self.unit}"
        if self.within is None:
            return f"{self.name}^{self.unit}"
        return f"d_r{star}[{self.name}<={self.within}]^{self.unit}"

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
        if self.name in _OWN:
            return self._own_words()
        counted = f"{_KINDS[self.name].words} ({self.counted()})"
        if self.within is None:
            return counted
        if self.closure:
            return (
                f"fewest steps from one to the other, where a step is a change of up to {self.within} in the {counted}"
            )
        reach = "exactly 1" if self.within == 1 else f"from 1 to {self.within}"
        reach = reach if self.counts else f"above 0 and at most {self.within}"
        return f"1 where the {counted} is {reach}, infinite beyond"

    def _own_words(self) -> str:
        one_way = ", in this direction only" if self.directed else ""
        if self.name == "d_Given":
            listed = f", listed for {len(self.labels)} datasets" if self.table else ""
            steps = "fewest steps by " if self.closure else ""
            return f"{steps}{self.relation} ({self.unit_in_words}){one_way}{listed}"
        if self.closure:
            return f"fewest steps from one to the other, each by {self.relation} ({self.unit_in_words}){one_way}"
        related = f"related by {self.relation} ({self.unit_in_words}){one_way}"
        return f"1 between two datasets {related}, infinite otherwise"

    def neighbours(self, within: int = 1) -> InputPremetric:
        """Return the neighbour relation of this metric: only datasets at most ``within`` apart count."""
        if self.name in _OWN or self.closure:
            raise wrong(
                f"{self.symbol} has no neighbours that are so many records apart",
                where="input_premetric",
                remedy="state the relation itself",
            )
        return replace(self, within=within)

    def sharpened(self) -> InputPremetric:
        """Return the shortest-path metric of a neighbour relation (Definition A.4.1).

        The shortest path through single changes is the metric itself; through steps of up to k changes it is the
        distance over k, rounded up, where the domain holds every dataset on the way. Elsewhere use `shortest_paths`.

        >>> pairs = InputPremetric(name="d_Ham", unit="person", within=2).sharpened()
        >>> pairs.distance([0, 0, 0], [1, 1, 1]), pairs.symbol
        (Exact('2'), 'd_r*[d_Ham<=2]^person')
        """
        if self.closure or (self.name in _KINDS and self.within is None):
            return self
        if self.name in _KINDS and self.within == 1 and _KINDS[self.name].counts:
            return replace(self, within=None)
        return replace(self, closure=True)

    def distance(self, x: Any, y: Any, *, by: str | None = None) -> Exact:
        """Return the distance between two frames or sequences of rows; order counts only where it should.

        ``by`` names the column that links rows to units: a person file with ``by="hid"`` gives the
        distance in households, each the multiset of its persons; the identifier itself does not count.
        """
        if self.name == "d_Given":
            return self._listed(label(x), label(y))
        same_columns(x, y)
        a, b = records(x, by=by), records(y, by=by)
        if self.name == "d_r":
            return self._relation_distance(a, b)
        plain = DISTANCES[self.name](a, b)
        if self.within is None or plain == 0:
            return plain
        if self.closure:
            return INFINITE if plain.is_infinite else exact(-(-plain.rational // self.within))
        return exact(1) if plain <= self.within else INFINITE

    def _listed(self, x: str, y: str) -> Exact:
        lengths = lengths_of(self.table, directed=self.directed, closure=self.closure)
        for each in (x, y):
            if (each, each) not in lengths:
                listed = f"it lists {', '.join(self.labels[:5])}{', ...' if len(self.labels) > 5 else ''}"
                raise wrong(
                    f"the table of {self.relation} does not list the dataset {each!r}" if self.table
                    else f"the distance {self.relation} is known by name only",
                    where="input_premetric table",
                    remedy=listed if self.table else 'list it: [["a", "b", "1"], ...]',
                )  # fmt: skip
        return lengths[x, y]

    def _relation_distance(self, a: list[Row], b: list[Row]) -> Exact:
        if self.related is None or self.closure:
            raise wrong(
                f"the relation {self.relation} is known by name only"
                if self.related is None
                else f"a closure of {self.relation} depends on the datasets there are",
                where="input_premetric",
                remedy="give it as `related=function of two datasets`, and its closure by `shortest_paths`",
            )
        if a == b:
            return exact(0)
        return exact(1) if self.related(a, b) else INFINITE

    def shortest_paths(self, datasets: Sequence[Any]) -> dict[tuple[int, int], Exact]:
        """Return the sharpening on a finite domain: shortest weighted paths between all pairs (A.4.1).

        Keys are positions in ``datasets``. A metric is its own sharpening.
        """
        base = replace(self, closure=False) if self.name != "d_Given" else self
        indices = range(len(datasets))
        return shortest({(i, j): base.distance(datasets[i], datasets[j]) for i in indices for j in indices})


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


# From the coarsest to the finest; names on one level are of one size.
_PEOPLE: Final = {"person", "individual", "respondent", "user", "patient", "customer", "client", "student"}
_EVENTS: Final = {"visit", "admission", "event", "transaction", "purchase", "trip", "session", "claim", "prescription"}
_CHAINS: Final = [
    [{"household", "family"}, _PEOPLE, _EVENTS], [_PEOPLE, {"attribute"}], [{"record"}, {"attribute"}],
    [{"node"}, {"edge"}],
    [{"company", "business", "firm", "enterprise"}, {"establishment"}, {"employee"}, _EVENTS],
]  # fmt: skip
_TIMES: Final = ("hour", "day", "week", "month", "quarter", "year")


def is_part(unit: str, *, of: str) -> bool:
    """Say whether several of a unit make up one of another, so that protecting one is the weaker promise.

    >>> is_part("person", of="household"), is_part("user-day", of="user"), is_part("person", of="100 persons")
    (True, True, True)
    >>> is_part("household", of="person"), is_part("person", of="tree")
    (False, False)
    """
    number, _, things = of.partition(" ")
    grouped = number.isdecimal() and things in (unit, plural(unit))
    levels = [[next((i for i, names in enumerate(chain) if one in names), None) for one in (of, unit)]
              for chain in _CHAINS]  # fmt: skip
    chained = any(coarse is not None and fine is not None and coarse < fine for coarse, fine in levels)
    return grouped or chained or unit.startswith((f"{of}-", f"{of} "))


def whole_of(unit: str) -> str | None:
    """Return whose the unit is, where one person has many of it as a rule; None where it is a whole.

    >>> whole_of("user-day"), whole_of("patient visit"), whole_of("visit"), whole_of("person")
    ('user', 'patient', 'person', None)
    """
    owner, _, part = unit.replace("-", " ").rpartition(" ")
    if part in _EVENTS or (owner and part in _TIMES):
        return owner or "person"
    return None
