"""The contract: what a mechanism hands over to the rooms around it, and all that they know of it.

``release``, ``report``, ``audit``, ``utility``, ``inference`` and ``cli`` import this module and ``registry``, and no
mechanism's folder. They loop over what is declared here; sentences are made by the mechanism from its own data.

What you **must** write is :class:`Mechanism`, below, and a :class:`Plan`. What you **may** say better than the default
is in ``contract/defaults.py``, and what a mechanism may be able to do besides (a rate that decides its loss, advice,
commands of its own) in ``contract/abilities.py``. The values that pass through are in ``contract/settings.py``,
``plan.py``, ``release.py`` and ``shown.py``. Import all of them from here.

``stirred.mechanisms.plain`` opens with a whole mechanism in one screen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, Self

from stirred.mechanisms.contract.abilities import (
    AdviceTable,
    Adviser,
    Choice,
    Command,
    Exchange,
    Outcome,
    Rated,
    StratumAudit,
    StratumAudited,
    StrongerMember,
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
    ReleasedColumns,
    Table,
    VerificationError,
    Written,
    failed,
    not_done,
)
from stirred.mechanisms.contract.settings import (
    Names,
    Probability,
    PublicTable,
    Rate,
    ReleasedFile,
    ReleasedTable,
    Settings,
    TableFile,
)
from stirred.mechanisms.contract.shown import (
    Bars,
    Block,
    CorrectedTable,
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

        Without ``doubts`` the file is not searched: the one doubt is then ``UNSEARCHED``, which refuses a release. It
        ends with ``Plan.sealed``, by which a release knows a copy that was changed.
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


class SettingsMechanism(Mechanism):
    """A mechanism with its settings as one frozen model, by keyword or as a plan has them: each is declared once."""

    settings: Any

    def __init__(self, settings: Any = None, **given: Any) -> None:
        if settings is None or given:
            from stirred.mechanisms.registry import python_settings

            # Not dict(settings): a setting may be called `keys`.
            settings = python_settings(type(self), {**dict(iter(settings or ())), **given})
        object.__setattr__(self, "settings", settings)

    @classmethod
    def of_settings(cls, settings: Any, **others: Any) -> Self:
        """Return the mechanism with these settings."""
        return cls(settings, **others)

    def with_settings(self, **changed: Any) -> Self:
        """Return the same mechanism with some settings changed."""
        return type(self)(self.settings, **changed)

    @property
    def unit(self) -> str:  # type: ignore[override]
        """Return what a record is."""
        return str(self.settings.unit)

    @property
    def settings_from(self) -> str | None:  # type: ignore[override]
        """Return on what the settings were based."""
        found: str | None = self.settings.settings_from
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SettingsMechanism) and type(self) is type(other) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.settings.dumped(exclude_defaults=True).items())
        return f"{type(self).__name__}({given})"
