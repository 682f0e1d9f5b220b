"""What an audit checked and what was wrong, collected so that all problems are said at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from stirred.spec.problems import Problem


@dataclass(slots=True)
class Findings:
    """Checks that passed, in words; problems; warnings about a bundle without fault; and what was not checked."""

    checks: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    def bad(self, what: str, *, where: str, remedy: str = "do not publish it, and find out who changed it") -> None:
        """Add a problem."""
        self.problems.append(Problem(what=what, where=where, remedy=remedy))
