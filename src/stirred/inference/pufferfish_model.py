"""A Pufferfish model as a file: the mechanism, the attackers and the pairs of conjectures."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stirred.inference.kernel import Kernel, bits, geometric_sum, randomised_response
from stirred.inference.pufferfish import Pair, PufferfishLoss, pufferfish_loss, record_pairs
from stirred.inference.weights import OutcomeWeights
from stirred.spec.document import plain_data
from stirred.spec.given_numbers import probability
from stirred.spec.misfits import misfits
from stirred.spec.problems import Problem, SpecificationError, place_of, placed, wrong

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
    """Read a model from JSON; everything that is wrong with it is told at once."""
    given = plain_data(text, source=source, remedy=_MODEL)
    if not isinstance(given, dict):
        raise wrong("this is not a model", where=source, remedy="write mechanism, attackers and pairs")
    try:
        return PufferfishModel.model_validate(given)
    except ValidationError as error:
        details = [detail for detail in error.errors() if _meant(detail["loc"], given)]
        found = misfits(details, given, PufferfishModel, remedy=_MODEL, examples=False)
        raise SpecificationError(
            Problem(
                what=each.what,
                where=" ".join([source, *(place_of([part]) for part in each.place)]),
                remedy=f"add it; {_MODEL}" if each.kind == "missing" else each.remedy,
            )
            for each in found
        ) from None


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
