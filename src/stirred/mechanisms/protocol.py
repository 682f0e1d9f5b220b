"""The contract: what a mechanism hands over to the rooms around it, and all that they know of it.

``release``, ``report``, ``audit``, ``utility``, ``inference`` and ``cli`` import this module and ``registry``, and no
mechanism's folder. They loop over what is declared here; sentences are made by the mechanism from its own data.

What you **must** write is :class:`Mechanism`, below, and a :class:`Plan`. What you **may** say better than the default
is in ``contract/defaults.py``, and what a mechanism may be able to do besides (a rate that decides its loss, advice,
commands of its own) in ``contract/abilities.py``. The values that pass through are in ``contract/settings.py``,
``plan.py``, ``release.py`` and ``shown.py``. Import all of them from here.

A whole mechanism, for files with one column of answers, 0 or 1. Each is kept or turned round by a biased coin:

>>> from dataclasses import dataclass
>>> from fractions import Fraction
>>> from itertools import product
>>> import polars as pl
>>> from pydantic import Field
>>> from stirred.audit import audit
>>> from stirred.data.given import like
>>> from stirred.mechanisms.opening import opened
>>> from stirred.randomness import bernoulli_array
>>> from stirred.spec import PURE, Budget, Domain, InputPremetric, Law, Margin, Multiverse, ln
>>> from stirred.spec.given_numbers import probability
>>> from stirred.spec.specification import Flavor
>>> class CoinSettings(Settings):
...     keep: Rate = Field(description="The probability that an answer is kept.")
>>> @dataclass(frozen=True, kw_only=True, repr=False)
... class CoinPlan(Plan):
...     specification: Specification
...     doubts: tuple = ()
...     accepted: tuple = ()
...     dropped: tuple = ()
...     disturbed: str = "answer"
>>> @dataclass(frozen=True, kw_only=True)
... class Coin(Mechanism):
...     name = "coin"
...     title = "randomised response"
...     settings_model = CoinSettings
...     keep: Fraction
...     unit: str = "person"
...     settings_from: str | None = None
...
...     def __post_init__(self):
...         object.__setattr__(self, "keep", probability(self.keep, where="keep"))
...
...     @property
...     def in_words(self):
...         return f"Each answer is kept with probability {self.keep}, and turned round otherwise."
...
...     def plan(self, data, *, doubts=True):
...         return CoinPlan(specification=self.audit_specification(()))
...
...     def release(self, data, entropy, *, accept=(), plan=None, progress=None):
...         start = opened(self, data, entropy, accept=accept, plan=plan)
...         answers = start.data.households["answer"].to_numpy()
...         kept = bernoulli_array(self.keep, count=len(answers), entropy=start.entropy, purpose="keep")
...         # Sorted, so that the order of rows does not depend on the input.
...         released = pl.DataFrame({"answer": answers ^ ~kept}).sort("answer")
...         return Release(public=Frames({RECORDS: lambda: [released]}, convert=like(data)),
...                        specification=start.specification)
...
...     def law(self, dataset):
...         outcomes = {}
...         for flips in product((0, 1), repeat=len(dataset)):
...             released = tuple(sorted(answer ^ flip for answer, flip in zip(dataset, flips)))
...             chance = self.keep ** flips.count(0) * (1 - self.keep) ** flips.count(1)
...             outcomes[released] = outcomes.get(released, 0) + chance
...         return Law(outcomes)
...
...     def audit_universes(self):
...         return [[(0,), (1,)], [(0, 0), (0, 1), (1, 1)]]
...
...     def audit_specification(self, universe):
...         flavor = Flavor(
...             domain=Domain(name="survey", dataset="the answers of a survey", columns=("answer",)),
...             multiverse=Multiverse(invariants=(Margin(of=self.unit),)),
...             input_premetric=InputPremetric(name="d_HamS", unit=self.unit),
...             output_premetric=PURE,
...         )
...         return Specification(flavor=flavor, budget=Budget.constant(ln(self.keep / (1 - self.keep))))

The audit compares the laws of all pairs of files with what was promised; a release says what it promises:

>>> coin = Coin.of_settings(CoinSettings(keep="3/4"))
>>> coin.in_words
'Each answer is kept with probability 3/4, and turned round otherwise.'
>>> audit(coin).passed
True
>>> release = coin.release(pl.DataFrame({"answer": [0, 1, 1]}), Entropy.from_os())
>>> release.public["data"].height, release.specification.budget.shown
(3, '1.10')

docs/write-a-mechanism.md goes through it step by step, with the search for doubts that this one leaves out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from stirred.mechanisms.contract.abilities import (
    Advised,
    Adviser,
    Choice,
    Command,
    Exchange,
    Outcome,
    Rated,
    StratumAudit,
    StratumAudited,
    Stronger,
    tunable,
)
from stirred.mechanisms.contract.cells import (
    FINE_COLUMNS,
    Array,
    NumberMoved,
    RedrawLaw,
    RedrawnMoments,
    RedrawnStratum,
    SwapCellLaw,
)
from stirred.mechanisms.contract.defaults import Defaults
from stirred.mechanisms.contract.exposure import exposed_doubts, plan_exposure
from stirred.mechanisms.contract.plan import (
    SAMPLED,
    UNSEARCHED,
    Fact,
    Plan,
    PlanOrigin,
    check_seeded,
    doubt_rows,
    plan_doubts,
    settings_doubts,
)
from stirred.mechanisms.contract.release import (
    PERSONS,
    RECORDS,
    Check,
    Frames,
    Progress,
    PublicFile,
    Release,
    Table,
    VerificationError,
    Written,
    failed,
    not_done,
)
from stirred.mechanisms.contract.settings import (
    Names,
    PublicTable,
    Rate,
    ReleasedFile,
    ReleasedTable,
    Settings,
    TableFile,
    as_part,
    as_parts,
)
from stirred.mechanisms.contract.shown import (
    Bars,
    Block,
    Corrected,
    Curve,
    ExpectedError,
    Grid,
    Headline,
    Picture,
    Plot,
    Section,
    Tiles,
    TooLargeError,
    Typical,
    share_changed,
    smallest_area,
)
from stirred.randomness.entropy import Entropy
from stirred.spec.specification import Specification
from stirred.spec.staged_law import OutputLaw

__all__ = [
    "FINE_COLUMNS",
    "PERSONS",
    "RECORDS",
    "SAMPLED",
    "UNSEARCHED",
    "Advised",
    "Adviser",
    "Array",
    "Bars",
    "Block",
    "Check",
    "Choice",
    "Command",
    "Corrected",
    "Curve",
    "Defaults",
    "Exchange",
    "ExpectedError",
    "Fact",
    "Frames",
    "Grid",
    "Headline",
    "Mechanism",
    "Names",
    "NumberMoved",
    "Outcome",
    "Picture",
    "Plan",
    "PlanOrigin",
    "Plot",
    "Progress",
    "PublicFile",
    "PublicTable",
    "Rate",
    "Rated",
    "RedrawLaw",
    "RedrawnMoments",
    "RedrawnStratum",
    "Release",
    "ReleasedFile",
    "ReleasedTable",
    "Section",
    "Settings",
    "StratumAudit",
    "StratumAudited",
    "Stronger",
    "SwapCellLaw",
    "Table",
    "TableFile",
    "Tiles",
    "TooLargeError",
    "Typical",
    "VerificationError",
    "Written",
    "as_part",
    "as_parts",
    "check_seeded",
    "doubt_rows",
    "exposed_doubts",
    "failed",
    "not_done",
    "plan_doubts",
    "plan_exposure",
    "settings_doubts",
    "share_changed",
    "smallest_area",
    "tunable",
]  # fmt: skip


class Mechanism(Defaults, ABC):
    """A data release mechanism with immutable settings. It never prints, and knows no ledger and no command line.

    Here is what nobody else can know of yours; everything else has a default (:class:`Defaults`).
    """

    __slots__ = ()

    name: ClassVar[str]  # in plans and on the command line
    title: ClassVar[str]  # what a report calls it, such as "permutation swapping"
    settings_model: ClassVar[type[Settings]]

    unit: str
    settings_from: str | None

    @property
    @abstractmethod
    def in_words(self) -> str:
        """Return in one sentence what is done."""

    def check(self, data: Any) -> None:
        """Raise all problems of a file's columns with these settings; nothing is computed."""
        self.plan(data, doubts=False)

    @abstractmethod
    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        """Return the plan; nothing random happens.

        Without ``doubts`` the file is not searched: the one doubt is then ``UNSEARCHED``, which refuses a release.
        """

    @abstractmethod
    def release(
        self,
        data: Any,
        entropy: Entropy,
        *,
        accept: Sequence[str] = (),
        plan: Any = None,
        progress: Progress | None = None,
    ) -> Release:
        """Run the mechanism once, with randomness that has made no release before (``entropy.for_release()``).

        ``accept`` are the names of accepted doubts, and ``plan`` was made before for the same data.
        ``Entropy.expected(entropy)`` comes first: nothing is done with the data in a process that may not draw
        (``opening.opened`` does all that comes before the draw).
        """

    @abstractmethod
    def law(self, dataset: Any) -> OutputLaw:
        """Return the exact law of the released object for a small dataset: slow, obvious code."""

    @abstractmethod
    def audit_universes(self) -> Sequence[Sequence[Hashable]]:
        """Return small universes on which the promise can be checked by enumeration."""

    @abstractmethod
    def audit_specification(self, universe: Sequence[Hashable]) -> Specification:
        """Return the promise in one of these universes."""
