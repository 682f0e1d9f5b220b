"""A DP specification: five answers that only mean something together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from typing import Annotated, Any, ClassVar, Final

from stirred.spec.block import Block
from stirred.spec.budget import Budget
from stirred.spec.domain import Domain
from stirred.spec.exact import INFINITE, ZERO, Exact, largest
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Margin
from stirred.spec.multiverse import Multiverse
from stirred.spec.number_text import small
from stirred.spec.output_premetric import Between, OutputPremetric
from stirred.spec.problems import unknown_name
from stirred.spec.shift_law import OutputLaw


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

# On what the settings of the mechanism were based. A mechanism whose design looked at the data it
# protects has no guarantee (section 4.3 of the dissertation), except through the invariants.
SETTINGS_FROM: Final = ("policy", "invariants", "other-data", "this-data")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """The first four building blocks: who, where, what and how. Budgets compare only inside one flavor.

    >>> from stirred.spec import catalogue
    >>> print(catalogue.load("pure-dp").specification.flavor)
    (X_datasets, {X}, d_Ham^record, D_Mult)
    """

    domain: Domain
    multiverse: Multiverse
    input_premetric: InputPremetric
    output_premetric: OutputPremetric

    @property
    def effective_multiverse(self) -> Multiverse:
        """Return the multiverse with what the input premetric fixes by itself.

        A bounded premetric puts datasets of different size infinitely far apart, so the number of
        records is an invariant whether it is listed or not (Propositions A.3.3 and A.4.2).
        """
        if not self.input_premetric.bounded or self.multiverse.universes is not None:
            return self.multiverse
        return self.multiverse.with_invariants([Margin(of=self.input_premetric.unit)])

    def __str__(self) -> str:
        universes = "{X}" if self.multiverse.is_vacuous else "D_c"
        return f"(X_{self.domain.name}, {universes}, {self.input_premetric.symbol}, {self.output_premetric.symbol})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Specification:
    """A flavor and a budget, with what they assume, the theorems behind them and how they were set.

    It is never a bare number: whoever shows the budget shows the other four blocks. Printed, it says what is published
    exactly, and what is promised. ``relies_on`` are those of its assumptions that another release of the same file can
    contradict, as data. ``measured_on`` names the parts of the output that the promise is about, where it is not all.
    ``alone`` are those of its assumptions and consequences that hold of this release alone: other releases of the file
    make them false, and totals leave them out.

    >>> from stirred.spec import catalogue
    >>> catalogue.load("pure-dp").specification
    Specification(ε-DP(X_datasets, {X}, d_Ham^record, D_Mult))
    """

    flavor: Flavor
    budget: Budget
    assumptions: tuple[str, ...] = ()
    theorem: tuple[str, ...] = ()
    settings_from: str | None = None
    seeded: bool = False
    relies_on: tuple[Reliance, ...] = ()
    measured_on: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.settings_from is not None and self.settings_from not in SETTINGS_FROM:
            raise unknown_name(self.settings_from, SETTINGS_FROM, where="settings_from", called="a basis of settings")

    def __repr__(self) -> str:
        return f"Specification({self.notation})"

    def __str__(self) -> str:
        from stirred.spec.explanation import brief  # which explains, and so knows specifications

        return brief(self)

    @property
    def domain(self) -> Domain:
        """Return who is eligible."""
        return self.flavor.domain

    @property
    def multiverse(self) -> Multiverse:
        """Return where the protection extends."""
        return self.flavor.multiverse

    @property
    def input_premetric(self) -> InputPremetric:
        """Return what the unit is."""
        return self.flavor.input_premetric

    @property
    def output_premetric(self) -> OutputPremetric:
        """Return how change is measured."""
        return self.flavor.output_premetric

    @property
    def notation(self) -> str:
        """Return the one-line notation of the paper.

        >>> from stirred.spec import catalogue
        >>> catalogue.load("das-2020").specification.notation
        'ρ²=55.371-DP(X_CEF, D_c, d_HamS^person, D_NoR)'
        """
        return f"{self.budget_text}-DP{self.flavor}"

    @property
    def notes(self) -> dict[str, str]:
        """Return the metadata of released Parquet files: the notation, and the mark of a test run."""
        notes = {"stirred.specification": self.notation}
        return {**notes, "stirred.seeded": "test run with a seed, not for publication"} if self.seeded else notes

    @property
    def budget_text(self) -> str:
        """Return the budget with its letter, rounded up, and delta where there is one."""
        greek, delta = self.output_premetric.greek, self.output_premetric.delta
        text = greek if self.budget.is_free else f"{greek}={self.budget.shown}"
        return f"({text}, δ={small(delta)})" if delta else text

    def with_budget(self, value: Exact | int | Fraction | str | float | Budget) -> Specification:
        """Return the same flavor with another budget."""
        budget = value if isinstance(value, Budget) else Budget.constant(value)
        return replace(self, budget=budget)

    def with_flavor(self, **blocks: Domain | Multiverse | InputPremetric | OutputPremetric) -> Specification:
        """Return the specification with some of the first four blocks replaced; no theorem is applied."""
        return replace(self, flavor=replace(self.flavor, **blocks))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivationStep:
    """One step of a derivation: what was done, by which theorem, and the budgets before and after."""

    action: str
    theorem: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        change = f": {self.before} -> {self.after}" if self.before and self.before != self.after else ""
        return f"{self.action} [{self.theorem}]{change}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivation:
    """A specification and the steps that lead to it. Nothing is converted silently."""

    specification: Specification
    steps: tuple[DerivationStep, ...] = ()

    def then(self, following: Derivation) -> Derivation:
        """Return both derivations one after the other; ``following`` starts from this specification."""
        return Derivation(specification=following.specification, steps=(*self.steps, *following.steps))


def stepped(
    before: Specification, after: Specification, *, action: str, theorem: str, assuming: str = ""
) -> Derivation:
    """Return ``after`` as one step from ``before``, the theorem and assumption added to its evidence."""
    assumptions = (*after.assumptions, assuming) if assuming else after.assumptions
    after = replace(
        after,
        theorem=tuple(dict.fromkeys((*after.theorem, theorem))),
        assumptions=tuple(dict.fromkeys(assumptions)),
    )
    step = DerivationStep(action=action, theorem=theorem, before=before.budget_text, after=after.budget_text)
    return Derivation(specification=after, steps=(step,))


@dataclass(frozen=True, slots=True, kw_only=True)
class UniverseLoss:
    """The protection loss in one universe (Definition 2.4.5), and the pair of datasets that attains it.

    ``loss`` is the Lipschitz constant itself, so for zCDP it is rho and not its square.
    """

    universe: frozenset[Hashable]
    loss: Between
    witness: tuple[Hashable, Hashable] | None


def protection_loss(flavor: Flavor, laws: Mapping[Any, OutputLaw]) -> list[UniverseLoss]:
    """Return the exact loss of a finite mechanism in every universe of the flavor.

    ``laws`` gives the output law of each dataset of the domain. *All* ordered pairs count: under
    invariants there may be no neighbours at distance 1. Pairs at infinite distance are not compared;
    a pair at distance 0 must have equal laws.
    """
    universes = flavor.multiverse.universes_of(laws)
    return [_universe_loss(flavor, laws, universe) for universe in universes]


def _universe_loss(flavor: Flavor, laws: Mapping[Any, OutputLaw], universe: frozenset[Hashable]) -> UniverseLoss:
    low, high, witness = ZERO, ZERO, None
    for x, y in permutations([dataset for dataset in laws if dataset in universe], 2):
        apart = flavor.input_premetric.distance(x, y)
        if apart.is_infinite:
            continue
        change = flavor.output_premetric.distance(laws[x], laws[y])
        rate = Between(_per(change.low, apart), _per(change.high, apart))
        if rate.high > high:
            witness = (x, y)
        low, high = largest([low, rate.low]), largest([high, rate.high])
    return UniverseLoss(universe=universe, loss=Between(low, high), witness=witness)


def _per(change: Exact, apart: Exact) -> Exact:
    if change == 0:
        return ZERO
    return INFINITE if apart == 0 or change.is_infinite else change / apart
