"""How one specification follows from others: every step named, with its theorem."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stirred.spec.specification import Specification


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
