"""What the unit of protection is: the distance between datasets, at a resolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final

from stirred.spec.block import Block
from stirred.spec.distances import DISTANCES, Row, records, same_columns
from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.problems import wrong
from stirred.spec.tables import Table, checked, label, lengths_of, shortest


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
            raise wrong(
                f"{self.name!r} is not an input premetric",
                where="input_premetric name",
                remedy=f"one of {', '.join(_KINDS)}, d_Given with your own table, or d_r with your own relation",
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
