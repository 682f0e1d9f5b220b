"""What was wrong, where, and how to mend it: the one shape every error of the house has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong: the value, the place and the remedy.

    >>> print(Problem(what="7/4 is not a probability", where="rate", remedy="write 0 to 1, such as '1/20'"))
    rate: 7/4 is not a probability. Mend: write 0 to 1, such as '1/20'.
    >>> print(Problem(what="no such key", where="", remedy="did you mean 'rate'? "))
    no such key. Mend: did you mean 'rate'?
    """

    what: str
    where: str
    remedy: str

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        remedy = f" Mend: {_sentence(self.remedy)}" if self.remedy.strip() else ""
        return f"{place}{_sentence(self.what)}{remedy}"

    def inside(self, place: str) -> Problem:
        """Return the same problem with the outer place put in front, as the layer that knows the file does."""
        return Problem(what=self.what, where=f"{place} {self.where}".strip(), remedy=self.remedy)


def _sentence(text: str) -> str:
    """Return text with one mark at its end: its own question mark or the dots of a list cut short, or a full stop."""
    text = text.strip()
    return text if text.endswith(("?", "...")) else f"{text.rstrip('.')}."


class StirredError(Exception):
    """Bad input or a refused request, as one or more :class:`Problem`."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def inside(self, place: str) -> StirredError:
        """Return the same error, each problem placed inside ``place``."""
        return type(self)(problem.inside(place) for problem in self.problems)


class SpecificationError(StirredError):
    """A specification, or a part of one, that does not make sense."""


class ConversionRefusedError(StirredError):
    """A conversion, composition or comparison for which no theorem is known."""


def wrong(what: str, *, where: str, remedy: str = "") -> SpecificationError:
    """Return (not raise) the error for one wrong value."""
    return SpecificationError([Problem(what=what, where=where, remedy=remedy)])


def refused(what: str, *, where: str, remedy: str = "") -> ConversionRefusedError:
    """Return (not raise) the refusal of one request."""
    return ConversionRefusedError([Problem(what=what, where=where, remedy=remedy)])


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Put ``place`` in front of every problem raised inside the block."""
    try:
        yield
    except StirredError as error:
        raise error.inside(place) from None
