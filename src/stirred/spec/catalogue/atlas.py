"""The atlas: toys of each definition, which definition implies which, and those that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import chain, combinations, combinations_with_replacement, product
from math import prod
from typing import Any, Final

from stirred.spec.budget import Budget, ByUniverse
from stirred.spec.catalogue import load, raw_atlas
from stirred.spec.exact import Exact, exact
from stirred.spec.implication import factor, universe_name
from stirred.spec.input_premetric import InputPremetric, label
from stirred.spec.invariant import Named
from stirred.spec.law import Law
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.output_rules import change_output
from stirred.spec.specification import Flavor, Specification

Dataset = tuple[Any, ...]
Bits = Callable[[Dataset], Dataset]
_BITS: Final = (0, 1)
_EDGES: Final = tuple(combinations(range(3), 2))
_DOMAINS: Final[dict[str, Callable[..., Sequence[Dataset]]]] = {
    "bits": lambda n: list(product(_BITS, repeat=n)),
    "lists": lambda n: [x for size in range(n + 1) for x in product(_BITS, repeat=size)],
    "multisets": lambda n: list(combinations_with_replacement(_BITS, n)),
    "counts": lambda n: [("r",) * size for size in range(n + 1)],
    "values": lambda n: [(value,) for value in range(n)],
    "people": lambda n, m: list(product(product(_BITS, repeat=m), repeat=n)),
    "corners": lambda: [(point,) for point in product(_BITS, repeat=2)],
    "graphs": lambda _three: [x for size in range(4) for x in combinations(_EDGES, size)],
}
_WORDS: Final = {
    "bits": "{}-bit files", "lists": "lists of up to {} bits", "multisets": "{} bits, order ignored",
    "counts": "up to {} records", "values": "one record of {} values", "people": "{} x {} bits (persons x bits)",
    "corners": "the corners of a square", "graphs": "graphs on {} nodes",
}  # fmt: skip
# What a resolution makes of a dataset: the whole file as one record, or each value a record of its own.
_VIEWS: Final[dict[str, Bits]] = {
    "file": lambda x: (x,),
    "attribute": lambda x: flat(x),
    "event": lambda x: flat(x),
}
_STATISTICS: Final[dict[str, Callable[[Dataset], Hashable]]] = {
    "sum": sum,
    "features": lambda x: tuple(record[0] for record in x),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Toy:
    """A finite domain, a mechanism that satisfies the definition with this budget, and one that does not."""

    domain: str
    specification: Specification
    laws: Mapping[Dataset, Law]
    broken: Mapping[Dataset, Law]
    broken_loss: Exact
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """That one definition implies another: every mechanism that satisfies it satisfies the other at ``there`` times it.

    ``how`` is ``decided`` (on a finite domain, exactly), ``converted`` (by a theorem on outputs) or ``stated``.
    """

    stronger: str
    weaker: str
    how: str
    words: str
    because: str
    there: Exact | None = None
    back: Exact | None = None


def absent() -> dict[str, str]:
    """Return the definitions that are not here, and why.

    >>> "pair by pair" in absent()["random-dp"]
    True
    """
    return dict(raw_atlas()["absent"])


@lru_cache(maxsize=64)
def toy(name: str) -> Toy:
    """Return the toys of a definition.

    >>> toy("free-lunch").specification.budget.realised
    Exact('ln(9)')
    """
    row = raw_atlas()["definitions"][name]
    blocks, (on, law, loss, broken, broken_loss) = row["blocks"], row["toy"]
    datasets = domain(on)
    flavor = _flavor(name, blocks, viewed=None)
    if isinstance(loss, dict):
        budget = Budget(policy=ByUniverse(budgets=tuple((key, exact(value)) for key, value in loss.items())))
    else:
        budget = Budget.constant(loss)
    bits = edges_kept if str(on).startswith("graphs") else flat
    laws, failing = (_laws(flavor.multiverse, given, datasets, bits) for given in (law, broken))
    greek, over = flavor.output_premetric.greek, exact(broken_loss)
    words = (
        f"on {domain_words(on)}: {greek}={budget.shown} with {_law_words(law)}; "
        f"not with {_law_words(broken)}, which loses {over.shown()}"
    )
    return Toy(domain=domain_words(on), specification=Specification(flavor=flavor, budget=budget), laws=laws,
               broken=failing, broken_loss=over, words=words)  # fmt: skip


@lru_cache(maxsize=1)
def arrows() -> tuple[Arrow, ...]:
    """Return which definition implies which; factors are decided here and not read off a list."""
    atlas = raw_atlas()
    decided = [_decided(*row) for row in atlas["decided"]]
    measured = [_measured(*row) for row in atlas["measures"]]
    return (*decided, *measured, *(_stated(*row) for row in atlas["stated"]))


def path(stronger: str, weaker: str) -> list[Arrow]:
    """Return the fewest arrows that lead from one definition to another; none if the map has no such way.

    >>> [arrow.weaker for arrow in path("free-lunch", "event-dp")]
    ['user-dp', 'event-dp']
    """
    ways: dict[str, list[Arrow]] = {stronger: []}
    while weaker not in ways:
        further = {a.weaker: [*ways[a.stronger], a] for a in arrows() if a.stronger in ways and a.weaker not in ways}
        if not further:
            return []
        ways |= further
    return ways[weaker]


def _decided(stronger: str, weaker: str, on: Any, words: str) -> Arrow:
    datasets = domain(on)
    a, b = (_flavor(name, raw_atlas()["definitions"][name]["blocks"], viewed=datasets) for name in (stronger, weaker))
    there, back = factor(a, b, datasets), factor(b, a, datasets)
    because = f"decided on {domain_words(on)}: a factor of {there.shown()} there, {back.shown()} back"
    return Arrow(stronger=stronger, weaker=weaker, how="decided", words=words, because=because, there=there, back=back)


def _measured(stronger: str, weaker: str) -> Arrow:
    before, wanted = load(stronger).specification.with_budget("1"), load(weaker).specification.output_premetric
    step = change_output(before, to=wanted)
    words = f"{before.output_premetric.greek} 1 → {wanted.greek} {step.specification.budget.shown}"
    because = "; ".join(str(each) for each in step.steps)
    return Arrow(stronger=stronger, weaker=weaker, how="converted", words=words, because=because)


def _stated(stronger: str, weaker: str, words: str, because: str) -> Arrow:
    return Arrow(stronger=stronger, weaker=weaker, how="stated", words=words, because=because)


def flat(dataset: Dataset) -> Dataset:
    """Return the values of a dataset one by one."""
    return tuple(chain.from_iterable(flat(part) if isinstance(part, tuple) else (part,) for part in dataset))


def edges_kept(graph: Dataset) -> Dataset:
    """Return which of all edges a graph has."""
    return tuple(int(edge in graph) for edge in _EDGES)


def domain(on: str | list[Any]) -> list[Dataset]:
    """Return the datasets of a toy domain: an enumeration by name, or each listed one."""
    if isinstance(on, list):
        return [tuple(one) if isinstance(one, list) else (one,) for one in on]
    name, *sizes = on.split()
    return list(_DOMAINS[name](*map(int, sizes)))


def domain_words(on: str | list[Any]) -> str:
    """Return a toy domain in words."""
    if isinstance(on, list):
        return ", ".join(map(label, domain(on)))
    name, *sizes = on.split()
    return _WORDS[name].format(*sizes)


def _flavor(name: str, blocks: Mapping[str, Any], *, viewed: list[Dataset] | None) -> Flavor:
    """Return the flavor of a definition on a toy domain; ``viewed`` lists its distances between given datasets."""
    flavor = load(name).specification.flavor
    premetric = InputPremetric(**blocks["toy_input"]) if "toy_input" in blocks else flavor.input_premetric
    output = OutputPremetric(**blocks["toy_output"]) if "toy_output" in blocks else flavor.output_premetric
    statistic = blocks.get("where")
    held = () if statistic is None else (Named(name=statistic, function=_STATISTICS[statistic]),)
    if viewed is not None:
        premetric = _listed(premetric, viewed)
    return Flavor(domain=flavor.domain, multiverse=Multiverse(invariants=held), input_premetric=premetric,
                  output_premetric=output)  # fmt: skip


def _listed(premetric: InputPremetric, datasets: list[Dataset]) -> InputPremetric:
    seen = [(label(x), _VIEWS[premetric.unit](x) if premetric.unit in _VIEWS else x) for x in datasets]
    table = tuple((x, y, premetric.distance(a, b)) for (x, a), (y, b) in product(seen, repeat=2))
    return InputPremetric(name="d_Given", unit=premetric.unit, relation=premetric.symbol, table=table, directed=True)


def _laws(multiverse: Multiverse, given: Any, datasets: list[Dataset], bits: Bits) -> dict[Dataset, Law]:
    if isinstance(given, list):
        rows = [list(map(int, row.split())) for row in given]
        laws = [Law({place: Fraction(weight, sum(row)) for place, weight in enumerate(row)}) for row in rows]
        return dict(zip(datasets, laws, strict=True))
    if isinstance(given, dict):
        names = {x: universe_name(multiverse, frozenset([x])) for x in datasets}
        return {x: _response(given[names[x]], bits(x)) if names[x] in given else Law.certain("-") for x in datasets}
    return {x: _response(given, bits(x)) for x in datasets}


def _response(text: str, bits: Dataset) -> Law:
    """Return randomised response, bit by bit: 'rr 3 x' keeps the first with odds 3 and publishes the second."""
    kept = [Fraction(1) if each == "x" else Fraction(int(each), int(each) + 1) for each in text.split()[1:]]
    return Law({
        out: prod((k if u == v else 1 - k for k, u, v in zip(kept, bits, out, strict=True)), start=Fraction(1))
        for out in product(_BITS, repeat=len(bits))
    })  # fmt: skip


def _law_words(given: Any) -> str:
    if isinstance(given, dict):
        return " and ".join(f"{_law_words(law)} where the statistics are {at}" for at, law in given.items())
    if isinstance(given, list):
        return f"outputs in the proportions {', '.join(row.replace(' ', ':') for row in given)}"
    return f"randomised response with odds {', '.join('infinite' if o == 'x' else o for o in given.split()[1:])}"
