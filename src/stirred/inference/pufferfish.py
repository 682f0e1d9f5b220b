"""Pufferfish: the loss of a mechanism between competing conjectures, in the eyes of stated attackers; and its file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stirred.inference.kernel import Kernel, bits, geometric_sum, randomised_response, telling_output
from stirred.inference.weights import Given, OutcomeWeights, multiplicative_distance
from stirred.spec.document import plain_data
from stirred.spec.exact import INFINITE, Exact, exact
from stirred.spec.given_numbers import probability
from stirred.spec.misfits import misfits
from stirred.spec.problems import SpecificationError, placed, wrong


class Pair(NamedTuple):
    """Two conjectures that compete: sets of datasets, of which at most one holds the true one."""

    first: frozenset[Any]
    second: frozenset[Any]
    name: str = ""


class Skipped(NamedTuple):
    """A pair that an attacker does not weigh at all, and why."""

    attacker: str
    pair: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PufferfishLoss:
    """The largest loss over attackers and pairs, where it is attained, and the pairs that could not be looked at.

    ``value`` is None where every pair was skipped: nothing was examined, and nothing is promised. Over a class of
    attackers of which only some were listed, it is a lower bound.
    """

    value: Exact | None
    attacker: str | None
    pair: str | None
    output: Any
    skipped: tuple[Skipped, ...]

    @property
    def vacuous(self) -> bool:
        """Say whether no pair could be looked at."""
        return self.value is None


def record_pairs(universe: Iterable[Any]) -> list[Pair]:
    """Return all pairs of conjectures about the value of one record (Eq. 5.21).

    >>> [pair.name for pair in record_pairs(["00", "01", "10", "11"])]
    ['record 1 is 0 or 1', 'record 2 is 0 or 1']
    """
    datasets = list(universe)
    pairs = []
    for i in range(max(map(len, datasets), default=0)):
        values = list(dict.fromkeys(x[i] for x in datasets if len(x) > i))
        level = {r: frozenset(x for x in datasets if len(x) > i and x[i] == r) for r in values}
        pairs += [Pair(level[r], level[s], f"record {i + 1} is {r} or {s}") for r, s in combinations(values, 2)]
    return pairs


def pufferfish_loss(kernel: Kernel, attackers: Mapping[str, Given], pairs: Sequence[Pair]) -> PufferfishLoss:
    """Return how far a release can move the odds of two conjectures, in the eyes of each attacker (section 5.7).

    >>> from stirred.inference.kernel import bits, randomised_response
    >>> equal = {"00": "1/2", "11": "1/2"}  # both records are known to be the same
    >>> pufferfish_loss(randomised_response(2, 1), {"equal": equal}, record_pairs(bits(2))).value
    Exact('2')
    """
    laws = {x: OutcomeWeights.probabilities(law, where=f"output law of {x}") for x, law in kernel.items()}
    found: list[tuple[Exact, str, str, Any]] = []
    skipped: list[Skipped] = []
    for name, prior in attackers.items():
        beliefs = OutcomeWeights.probabilities(prior, where=f"attacker {name}")
        if unknown := [x for x in beliefs.values if x not in laws]:
            raise wrong(
                f"the mechanism has no output law for {unknown[0]!r}",
                where=f"attacker {name}",
                remedy=f"write files that it has, such as {next(iter(laws))!r}",
            )
        for pair in pairs:
            told = [seen(laws, beliefs, event) for event in pair[:2]]
            if told[0] is None or told[1] is None:
                gone = " and ".join(side for side, law in zip(("first", "second"), told, strict=True) if law is None)
                skipped.append(Skipped(name, pair.name, f"probability 0 of the {gone} conjecture"))
                continue
            value = multiplicative_distance(told[0], told[1])
            found.append((value, name, pair.name, telling_output(told[0], told[1])))
    if not found:
        return PufferfishLoss(value=None, attacker=None, pair=None, output=None, skipped=tuple(skipped))
    worst = found[0]
    for each in found[1:]:
        worst = each if each[0] > worst[0] else worst
    value, attacker, at, output = worst
    return PufferfishLoss(value=value, attacker=attacker, pair=at, output=output, skipped=tuple(skipped))


def seen(laws: Mapping[Any, OutcomeWeights], beliefs: OutcomeWeights, event: Iterable[Any]) -> OutcomeWeights | None:
    """Return the law of the output that an attacker expects if a conjecture holds; None if it has no chance."""
    given = beliefs.given(event)
    if given is None:
        return None
    mixed: dict[Any, Fraction] = {}
    for x, share in given.values.items():
        for t, weight in laws[x].values.items():
            mixed[t] = mixed.get(t, Fraction(0)) + share * weight
    return OutcomeWeights(mixed, given.rational and all(laws[x].rational for x in given.values))


def pufferfish_distance(first: Given, second: Given, attackers: Mapping[str, Given], pairs: Sequence[Pair]) -> Exact:
    """Return the number of steps from one distribution of datasets to another: ``d_{D,S}`` of section 5.7.

    A step leads from what an attacker believes given one conjecture to what they believe given its competitor. Most
    pairs of distributions are not connected, and infinitely far apart.

    >>> both = {"A": {"0": "1/2", "1": "1/2"}}
    >>> pufferfish_distance({"0": 1}, {"1": 1}, both, record_pairs(["0", "1"]))
    Exact('1')
    """
    steps: dict[frozenset[Any], set[frozenset[Any]]] = {}
    for prior in attackers.values():
        beliefs = OutcomeWeights.probabilities(prior, where="attacker")
        for pair in pairs:
            ends = [beliefs.given(event) for event in pair[:2]]
            if ends[0] is not None and ends[1] is not None:
                one, other = _node(ends[0]), _node(ends[1])
                steps.setdefault(one, set()).add(other)
                steps.setdefault(other, set()).add(one)
    start, end = _node(OutcomeWeights.probabilities(first)), _node(OutcomeWeights.probabilities(second))
    far, queue = {start: 0}, deque([start])
    while queue:
        at = queue.popleft()
        if at == end:
            return exact(far[at])
        for to in steps.get(at, ()):
            if to not in far:
                far[to] = far[at] + 1
                queue.append(to)
    return INFINITE


def _node(law: OutcomeWeights) -> frozenset[Any]:
    return frozenset(law.values.items())


# ---- a Pufferfish model as a file: the mechanism, the attackers and the pairs of conjectures -----------------------

_MODEL: Final = "see docs/limits.md for what a model holds"
_Number = str | int | Decimal
_Table = dict[str, _Number]
# A table of a file called "share" would otherwise be preferred to the form that is meant.
_IN_ORDER: Any = Field(union_mode="left_to_right")


class _ModelPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class KnownMechanism(_ModelPart):
    """A mechanism known by name, on all files of so many yes-or-no records."""

    name: Literal["randomised-response", "geometric-sum"]
    records: int
    epsilon: _Number


class Correlated(_ModelPart):
    """An attacker to whom each record is yes with probability ``share``.

    With probability ``correlation`` all records are one and the same, and otherwise they are independent.
    """

    share: _Number
    correlation: _Number = 0


class Conjectures(_ModelPart):
    """Two sets of files that compete."""

    first: Annotated[list[str], Field(min_length=1)]
    second: Annotated[list[str], Field(min_length=1)]
    name: str = ""


class PufferfishModel(_ModelPart):
    """The file: see docs/limits.md."""

    mechanism: Annotated[KnownMechanism | dict[str, _Table], _IN_ORDER]
    attackers: Annotated[dict[str, Annotated[Correlated | _Table, _IN_ORDER]], Field(min_length=1)]
    pairs: Literal["records"] | list[Conjectures] = "records"

    def loss(self) -> PufferfishLoss:
        """Return the Pufferfish loss of the model."""
        with placed("mechanism"):
            kernel = self._kernel()
        attackers = {name: self._attacker(name, given) for name, given in self.attackers.items()}
        return pufferfish_loss(kernel, attackers, self._pairs(kernel))

    def _kernel(self) -> Kernel:
        if isinstance(self.mechanism, KnownMechanism):
            make = randomised_response if self.mechanism.name == "randomised-response" else geometric_sum
            return make(self.mechanism.records, self.mechanism.epsilon)
        if not self.mechanism:
            raise wrong("there is no file in it", where="", remedy="give the output law of each file")
        return {x: OutcomeWeights.probabilities(law, where=x) for x, law in self.mechanism.items()}

    def _attacker(self, name: str, given: Correlated | Mapping[str, Any]) -> OutcomeWeights:
        with placed(f"attackers {name}"):
            if not isinstance(given, Correlated):
                return OutcomeWeights.probabilities(given, where="")
            if not isinstance(self.mechanism, KnownMechanism):
                raise wrong(
                    "share and correlation are for a mechanism on yes-or-no records",
                    where="",
                    remedy="list the probability of each file",
                )
            share, same = (
                probability(value, where=key)
                for key, value in (("share", given.share), ("correlation", given.correlation))
            )
            return correlated(self.mechanism.records, share, same)

    def _pairs(self, kernel: Kernel) -> list[Pair]:
        if self.pairs == "records":
            return record_pairs(kernel)
        found = []
        for number, given in enumerate(self.pairs, 1):
            name = given.name or f"pair {number}"
            unknown = [x for x in (*given.first, *given.second) if x not in kernel]
            if unknown:
                raise wrong(
                    f"{unknown[0]!r} is not a file of the mechanism", where=f"pairs {name}", remedy="check its spelling"
                )
            if both := {*given.first} & {*given.second}:
                raise wrong(
                    f"{min(both)!r} is in both conjectures", where=f"pairs {name}", remedy="let them exclude each other"
                )
            found.append(Pair(frozenset(given.first), frozenset(given.second), name))
        return found


def correlated(records: int, share: Fraction, correlation: Fraction) -> OutcomeWeights:
    """Return the law of yes-or-no records that are all the same with a probability, and otherwise independent.

    >>> {x: str(w) for x, w in correlated(2, Fraction(1, 2), Fraction(1, 2)).values.items()}
    {'00': '3/8', '01': '1/8', '10': '1/8', '11': '3/8'}
    """
    found = {}
    for x in bits(records):
        yes = x.count("1")
        weight = (1 - correlation) * share**yes * (1 - share) ** (records - yes)
        weight += correlation * share if yes == records else correlation * (1 - share) if yes == 0 else 0
        if weight:
            found[x] = weight
    return OutcomeWeights(found)


def read_model(text: str, *, source: str) -> PufferfishModel:
    """Read a model from JSON; everything that is wrong with it is reported at once."""
    given = plain_data(text, source=source, remedy=_MODEL)
    if not isinstance(given, dict):
        raise wrong("this is not a model", where=source, remedy="write mechanism, attackers and pairs")
    try:
        return PufferfishModel.model_validate(given)
    except ValidationError as error:
        details = [detail for detail in error.errors() if _meant(detail["loc"], given)]
        found = misfits(details, given, PufferfishModel, remedy=_MODEL, examples=False)
        raise SpecificationError(each.problem(source) for each in found) from None


def _meant(place: tuple[int | str, ...], given: Mapping[str, Any]) -> bool:
    """Say whether a problem is about the form that was meant, where something can be written in two."""
    forms = {"KnownMechanism": "name", "Correlated": "share"}
    at: Any = given
    for step, part in enumerate(place):
        form = "KnownMechanism" if place[:1] == ("mechanism",) else "Correlated"
        if str(part) == form or "[" in str(part):
            return (str(part) == form) == (isinstance(at, dict) and forms[form] in at)
        if not isinstance(at, dict) or part not in at or step > 1:
            return True
        at = at[str(part)]
    return True
