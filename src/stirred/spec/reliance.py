"""What a promise relies on and another release can contradict, as data: its sentence is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from stirred.spec.block import Block
from stirred.spec.invariant import Margin


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun(Block):
    """The release is the only run of its plan."""

    in_file: ClassVar = ("kind",)

    kind: ClassVar = "one-run"
    about: ClassVar = ""  # in names of doubts, after the entries

    @property
    def words(self) -> str:
        """Return it as it stands among the assumptions."""
        return "this is the one run of the plan, not one chosen among several after looking at them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpublished(Block):
    """The true counts of ``figure`` are published nowhere.

    >>> Unpublished(figure=Margin(of="household", variables=("tenure",))).words
    'the true counts of tenure are published nowhere else'
    """

    in_file: ClassVar = ("kind", "figure")

    kind: ClassVar = "unpublished"
    figure: Annotated[Margin, "the counts"]

    @property
    def about(self) -> str:
        """Return what stands in names of doubts, after the entries."""
        return "+".join(self.figure.variables)

    @property
    def words(self) -> str:
        """Return it as it stands among the assumptions."""
        return f"the true counts of {' x '.join(self.figure.variables) or self.figure} are published nowhere else"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysAlone(Block):
    """The record keys, in ``column``, are used for this release alone: in another one noise would not be independent.

    Entries of earlier versions do not say which column it is.
    """

    in_file: ClassVar = ("kind", "column")
    left_out: ClassVar = ("column",)

    kind: ClassVar = "keys-alone"
    about: ClassVar = "record-keys"
    column: Annotated[str, "the column that has them, where it is stated"] = ""

    @property
    def words(self) -> str:
        """Return it as it stands among the assumptions."""
        return "the record keys of the file are used for this table alone, in no other release and no other year"


Reliance = OneRun | Unpublished | KeysAlone
ONE_RUN: Final = OneRun()
KEYS_ALONE: Final = KeysAlone()
