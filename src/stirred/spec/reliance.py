"""What a promise relies on and another release can contradict, as data: its sentence is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from stirred.spec.invariant import Margin


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun:
    """The release is the only run of its plan."""

    kind: ClassVar = "one-run"  # in files

    @property
    def words(self) -> str:
        """Return it as it stands among the assumptions."""
        return "this is the one run of the plan, not one chosen among several after looking at them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpublished:
    """The true counts of ``figure`` are published nowhere.

    >>> Unpublished(figure=Margin(of="household", variables=("tenure",))).words
    'the true counts of tenure are published nowhere else'
    """

    kind: ClassVar = "unpublished"
    figure: Margin

    @property
    def words(self) -> str:
        """Return it as it stands among the assumptions."""
        return f"the true counts of {' x '.join(self.figure.variables) or self.figure} are published nowhere else"


Reliance = OneRun | Unpublished
ONE_RUN: Final = OneRun()
