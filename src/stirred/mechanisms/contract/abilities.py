"""What some mechanisms can do besides releasing: give a loss for a rate, audit a stratum, advise, bring commands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from pydantic import BaseModel

from stirred.data.problems import bad_plan
from stirred.mechanisms.contract.plan import Plan
from stirred.mechanisms.contract.release import Progress
from stirred.mechanisms.contract.shown import Grid, Picture
from stirred.spec.doubts import Doubt
from stirred.spec.exact import Exact
from stirred.spec.rows import Row

if TYPE_CHECKING:
    from stirred.data.microdata import Microdata
    from stirred.mechanisms.protocol import Mechanism


# ---- a swap before tables -----------------------------------------------------------------------------------


class Exchange(NamedTuple):
    """A swap whose permutation of the records is drawn by the sizes of its strata alone, whatever the records hold.

    ``of`` are the columns that are exchanged between records with equal values ``within``. Noise on tables of the
    swapped file then has a promise of its own (swapping theory R15).
    """

    within: tuple[str, ...]
    of: tuple[str, ...]

    def crosses(self, columns: Collection[str]) -> bool:
        """Say whether a table of these columns crosses exchanged with held ones: the swap changes no other table."""
        return bool({*columns} & {*self.of}) and not {*columns} <= {*self.of, *self.within}


# ---- a rate that decides the loss -------------------------------------------------------------------------


@runtime_checkable
class Rated(Protocol):
    """A mechanism with a rate, whose loss is known for other rates."""

    rate: Any

    def losses(self, plan: Any, rates: Sequence[Fraction]) -> list[tuple[Fraction, Exact]]:
        """Return the loss that each rate would have for the same file; nothing where no rate changes it."""
        ...


@runtime_checkable
class Tunable(Rated, Protocol):
    """One whose rate decides its loss: there is a gentlest rate that reaches a loss."""

    def rate_reaching(self, plan: Any, epsilon: Exact) -> Fraction:
        """Return the gentlest rate whose loss is at most ``epsilon``; refuse where there is none."""
        ...

    def rates_reaching(self, plan: Any, epsilon: Exact) -> Sequence[tuple[float, Fraction]]:
        """Return all rates where the loss becomes ``epsilon``, each with a fraction that one could use."""
        ...


def tunable(mechanism: Mechanism) -> Tunable | None:
    """Return a mechanism whose rate decides its loss, or None; refuse one with a rate that does not decide it alone."""
    if mechanism.untunable is not None:
        what, remedy = mechanism.untunable
        raise bad_plan(what, where="epsilon", remedy=remedy)
    return mechanism if isinstance(mechanism, Tunable) else None


# ---- audits of one stratum --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumAudit:
    """The loss that a mechanism really has on one stratum, and the bounds on it.

    ``sharp_bound`` is what the mechanism promises ``for_every`` such stratum, ``theorem_bound`` what was published
    before, and some stratum of this size loses at least ``existential_bound``. ``witness`` attains the loss; it prints
    itself, and ``facts`` has it for JSON.
    """

    exact_loss: Exact
    sharp_bound: Exact
    for_every: str
    tables: int
    witness: Any = None
    theorem_bound: Exact | None = None
    existential_bound: Exact | None = None

    @property
    def passed(self) -> bool:
        """Say whether the exact loss keeps within the sharp bound, and that within what was published."""
        within = self.theorem_bound is None or self.sharp_bound <= self.theorem_bound
        return self.exact_loss <= self.sharp_bound and within


@runtime_checkable
class StratumAudited(Protocol):
    """A mechanism whose loss on one stratum can be enumerated, given how often each held and each swapped value occurs.

    ``stratum_settings`` are the settings that matter there, with the default of those that have one.
    """

    stratum_settings: ClassVar[Mapping[str, str | None]]

    def stratum_audit(self, hold: Sequence[int], swap: Sequence[int]) -> StratumAudit:
        """Return the exact loss beside every bound."""
        ...


# ---- advice -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One choice of settings for a file: what it would mean, as rows for people and as values for ``--json``."""

    name: str
    rows: Sequence[Row]
    values: Mapping[str, Any]
    doubts: Sequence[Doubt] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdviceTable:
    """What fits a custodian's wishes, and what else there is; made of data, as a plan is.

    ``candidates`` are all members, the best first: name, setting, loss, share changed, wishes that are not met.
    ``section`` is the first as the section [mechanism] of a plan, where it meets all wishes. ``plan`` is its plan, or
    that of any member, which shows what all keep exactly. ``tables`` are the variables of those that the plan is to
    have.
    """

    wishes: str
    plan: Plan
    section: Mapping[str, Any] | None
    tables: Sequence[Sequence[str]]
    candidates: Grid
    rests_on: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StrongerMember:
    """A relative that promises more than a plan with the same invariants, unit and measure, and changes as much."""

    name: str
    setting: str
    epsilon: Exact
    changed: float


class Adviser(Protocol):
    """Who advises on the settings of a family of mechanisms; nothing random happens, and nothing is written."""

    choosing: str  # what to know before choosing by a list of choices

    def choices(
        self, data: Microdata, *, levels: Sequence[str], cross: Sequence[str], epsilon: Exact | None, unit: str
    ) -> Sequence[Choice]:
        """Return the choices that a geography allows; its levels are given from the finest to the coarsest."""
        ...

    def advise(self, data: Microdata, **wishes: Any) -> AdviceTable:
        """Return what fits the wishes: ``swap``, ``exact``, ``epsilon``, ``undisturbed`` and so on."""
        ...

    def relatives(self, data: Microdata, mechanism: Any, *, equal: str) -> Sequence[tuple[str, Mechanism]]:
        """Return the members of the family, by name, that change as much, or lose as much, as a mechanism."""
        ...

    def stronger(self, mechanism: Any, plan: Any) -> StrongerMember | None:
        """Return the relative that promises most of those that change as many records, if it is more than a plan."""
        ...


# ---- commands of its own ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a command found: rows and tables for people, the same as values for ``--json``.

    ``pictures`` are drawn into new SVG files. A check that failed is not ``passed``: the command then leaves with 1.
    """

    rows: Sequence[Row] = ()
    grids: Sequence[Grid] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    pictures: Mapping[Path, Picture] = field(default_factory=dict)
    passed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command that a mechanism brings along, such as one that estimates from published files.

    ``options`` is a pydantic model: each field with its description is an option ``--name``, or an argument where it
    is marked ``json_schema_extra={"argument": "FILE"}``; ``{"gone": True}`` hides it. ``run`` never prints; it reports
    its progress.
    """

    name: str
    help: str
    options: type[BaseModel]
    run: Callable[[Any, Progress | None], Outcome]
    gone: bool = False  # kept for its refusal alone: not listed, and any option reaches ``run``
