"""How much may change: the protection loss budget, a function of the universe."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, ClassVar

from stirred.spec.block import Block
from stirred.spec.exact import INFINITE, Exact, largest
from stirred.spec.given_numbers import loss, probability
from stirred.spec.problems import unknown_name, wrong
from stirred.spec.swap_budget import Bound, bounded_psa_epsilon, checked_stratum


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant(Block):
    """The same budget in every universe."""

    in_file: ClassVar = ("name", "value")

    name: ClassVar = "constant"
    value: Exact

    @property
    def realised(self) -> Exact:
        """Return the budget."""
        return self.value

    def __str__(self) -> str:
        return "the same in every universe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Free(Block):
    """A budget left open, as in a definition: it has a letter and no value."""

    in_file: ClassVar = ("name", "symbol")

    name: ClassVar = "free"
    symbol: str = "ε"

    @property
    def realised(self) -> None:
        """Return None: there is no value yet."""
        return None

    def __str__(self) -> str:
        return f"any {self.symbol}, to be chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedStrata(Block):
    """Strata swapped at one rate, of which ``largest_stratum`` is the size of the largest live one."""

    in_file: ClassVar = ("rate", "largest_stratum")

    rate: Fraction
    largest_stratum: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", probability(self.rate, where="budget policy rate"))
        checked_stratum(self.largest_stratum)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermutationSwapping(Block):
    """The budget of permutation swapping: a function of the rate and of the largest live stratum of the universe.

    Rates may differ between strata if they depend on invariants alone; the loss is then the largest
    over the rates (swapping theory R0'). ``bound`` is ``"paper"`` for Theorem 1, or ``"sharp"`` for the
    largest loss of any live stratum of that size (our R1), which is never above it.
    """

    in_file: ClassVar = ("name", "strata", "bound")

    name: ClassVar = "permutation-swapping"
    strata: tuple[SwappedStrata, ...]
    bound: Bound = "paper"

    def __post_init__(self) -> None:
        if not self.strata:
            raise wrong("no strata", where="budget policy", remedy="give at least one rate and largest stratum")
        if self.bound not in ("paper", "sharp"):
            raise unknown_name(self.bound, ("paper", "sharp"), where="budget policy bound", called="a bound")

    @property
    def realised(self) -> Exact:
        """Return the loss at the realised universe."""
        return self._by(self.bound)

    @property
    def paper(self) -> Exact:
        """Return the loss by Theorem 1, whichever bound is used."""
        return self._by("paper")

    def _by(self, bound: Bound) -> Exact:
        return largest(
            [bounded_psa_epsilon(s.rate, largest_stratum=s.largest_stratum, bound=bound) for s in self.strata]
        )

    def __str__(self) -> str:
        parts = "; ".join(f"{s.largest_stratum:,} records at rate {s.rate}" for s in self.strata)
        result = "the paper's bound" if self.bound == "paper" else "the sharp bound"
        return f"a function of the universe ({result}): the largest stratum with something to swap, here {parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Block):
    """A budget computed from others by a theorem; ``formula`` says how, ``value`` is the realised number."""

    in_file: ClassVar = ("name", "formula", "value", "varies")

    name: ClassVar = "derived"
    formula: str
    value: Exact
    varies: bool = False

    @property
    def realised(self) -> Exact:
        """Return the value at the realised universe."""
        return self.value

    def __str__(self) -> str:
        where = "varies with the universe; realised value of" if self.varies else "the same in every universe:"
        return f"{where} {self.formula}"


_MOST_LISTED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ByUniverse(Block):
    """A budget listed by universe, each named by the values of its invariants or the labels of its datasets.

    ``otherwise`` is the budget of every universe that is not listed; left out, there are no others. ``at`` is the
    universe of this file; left out, the largest budget of all stands for it.
    """

    in_file: ClassVar = ("name", "budgets", "otherwise", "at")
    left_out: ClassVar = ("otherwise", "at")
    parts: ClassVar = {"budgets": ("universe", "value")}

    name: ClassVar = "by-universe"
    budgets: tuple[tuple[str, Exact], ...]
    otherwise: Annotated[Exact | None, "the budget of all universes not listed; else none exist"] = None
    at: Annotated[str | None, "the universe of this file; left out, the largest budget is shown"] = None

    def __post_init__(self) -> None:
        names = [name for name, _ in self.budgets]
        if not names or len(set(names)) != len(names):
            what = "a universe stands twice" if names else "no universe is listed"
            raise wrong(what, where="budget policy budgets", remedy="list each universe once, with its budget")
        for value in (*(value for _, value in self.budgets), *([] if self.otherwise is None else [self.otherwise])):
            loss(value, where="budget policy budgets")

    def of(self, universe: str) -> Exact:
        """Return the budget of a universe; nothing is promised where none is stated."""
        return dict(self.budgets).get(universe, INFINITE if self.otherwise is None else self.otherwise)

    @property
    def realised(self) -> Exact:
        """Return the budget of the file's universe, or the largest of all."""
        stated = [value for _, value in self.budgets] + ([] if self.otherwise is None else [self.otherwise])
        return largest(stated) if self.at is None else self.of(self.at)

    def scaled(self, factor: Exact) -> ByUniverse:
        """Return every budget multiplied."""
        budgets = tuple((name, value * factor) for name, value in self.budgets)
        return replace(self, budgets=budgets, otherwise=None if self.otherwise is None else self.otherwise * factor)

    def __str__(self) -> str:
        listed = "; ".join(f"{name}: {value.shown()}" for name, value in self.budgets[:_MOST_LISTED])
        more = f"; {len(self.budgets) - _MOST_LISTED:,} more" if len(self.budgets) > _MOST_LISTED else ""
        other = "" if self.otherwise is None else f"; any other: {self.otherwise.shown()}"
        return f"listed by universe ({listed}{more}{other})"


Policy = Constant | Free | PermutationSwapping | Derived | ByUniverse


def not_above_by_universe(a: Policy, b: Policy, *, same_universes: bool) -> bool | None:
    """Say whether one budget is at most another in every universe, where one is listed by universe; None if unknown."""
    if any(isinstance(one, (Free, PermutationSwapping)) or getattr(one, "varies", False) for one in (a, b)):
        return None
    names = [[name for name, _ in one.budgets] if isinstance(one, ByUniverse) else [] for one in (a, b)]
    if all(names) and not same_universes:
        return None
    pairs = [(_at(a, name), _at(b, name)) for name in (*names[0], *names[1])]
    rest = [one.otherwise if isinstance(one, ByUniverse) else one.realised for one in (a, b)]
    if rest[0] is not None and rest[1] is not None:
        pairs.append((rest[0], rest[1]))
    return all(first <= second for first, second in pairs)


def _at(policy: Policy, universe: str) -> Exact:
    value = policy.of(universe) if isinstance(policy, ByUniverse) else policy.realised
    return INFINITE if value is None else value


def derived(formula: str, value: Exact, *sources: Budget) -> Derived:
    """Return a budget computed from others; where they vary with the universe, its formula says how.

    Two varying budgets are the same function only if their formulas say the same, so nothing may be left out.
    """
    varying = list(dict.fromkeys(str(source.policy) for source in sources if source.varies))
    if len(varying) > _MOST_LISTED:
        whole = hashlib.sha256("\n".join(varying).encode()).hexdigest()
        varying = [*varying[:_MOST_LISTED], f"{len(varying) - _MOST_LISTED:,} more (sha256 of all {whole})"]
    if varying:
        formula = f"{formula}, computed from: {'; and '.join(varying)}"
    return Derived(formula=formula, value=value, varies=bool(varying))


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A policy (the function of the universe) and its value at the realised universe.

    ``paper_epsilon`` is the value of the published bound where the budget itself is a sharper one.
    The number is in the customary parameter of the output premetric: epsilon, rho squared, mu, tau.

    >>> Budget.constant("15.29").shown
    '15.29'
    """

    policy: Policy
    paper_epsilon: Exact | None = None

    def __post_init__(self) -> None:
        if self.policy.realised is not None:
            loss(self.policy.realised, where="budget")
        if self.paper_epsilon is not None:
            loss(self.paper_epsilon, where="budget paper_epsilon_exact")

    @classmethod
    def constant(cls, value: Exact | int | Fraction | str | float) -> Budget:
        """Return a budget that is the same in every universe."""
        return cls(policy=Constant(value=loss(value, where="budget")))

    @classmethod
    def of_swapping(cls, rate: Fraction | str | float, *, largest_stratum: int) -> Budget:
        """Return the budget of permutation swapping at one rate (Theorem 1)."""
        strata = SwappedStrata(rate=probability(rate, where="rate"), largest_stratum=largest_stratum)
        return cls(policy=PermutationSwapping(strata=(strata,)))

    @property
    def is_free(self) -> bool:
        """Say whether the budget has no value yet."""
        return self.policy.realised is None

    @property
    def is_unbounded(self) -> bool:
        """Say whether its value is infinite, so that nothing is promised."""
        return not self.is_free and self.realised.is_infinite

    @property
    def realised(self) -> Exact:
        """Return the value at the realised universe; a free budget has none and says so."""
        value = self.policy.realised
        if value is None:
            raise wrong(
                "the budget is a letter without a value",
                where="budget",
                remedy="choose one, such as `with_budget('1')` or `--budget 1`",
            )
        return value

    @property
    def varies(self) -> bool:
        """Say whether the budget depends on the universe."""
        if isinstance(self.policy, Derived):
            return self.policy.varies
        return isinstance(self.policy, (PermutationSwapping, ByUniverse))

    @property
    def shown(self) -> str:
        """Return the realised value rounded up, or the letter."""
        return self.policy.symbol if isinstance(self.policy, Free) else self.realised.shown()
