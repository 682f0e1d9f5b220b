"""The values that a codebook declares, for a response and for the cells of noisy tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stirred.data.codebook import Codebook, Variable
from stirred.data.problems import listed
from stirred.mechanisms.swapping.noisy import NoisySwap
from stirred.mechanisms.swapping.response_swap import ResponseSwap
from stirred.mechanisms.swapping.swap import Swap
from stirred.release.plan_file import Planned
from stirred.spec.problems import StirredError

# More values than any table may have cells.
_MOST_VALUES = 1_000_000


def with_declared_values(planned: Planned) -> Planned:
    """Return the plan with the codes that its codebook declares for the variable of the response.

    They become part of the plan, so that manifest and ledger keep what was declared, whatever becomes of the codebook.
    """
    section = planned.plan.mechanism
    if section.respond is None or section.values or planned.codebook is None:
        return planned
    try:
        codebook = Codebook.read(planned.codebook)
    except StirredError:
        return planned  # reported together with everything else that is wrong
    variable = codebook.of("households").get(section.respond)
    if variable is None:
        return planned
    if variable.type == "true-false":
        values: list[str | int | bool] = [True, False]
    else:
        values = [*_codes(codebook, variable)]
    mechanism = section.model_copy(update={"values": values})
    return replace(planned, plan=planned.plan.model_copy(update={"mechanism": mechanism}))


def with_declared_cells(mechanism: Swap, codebook: Codebook) -> Swap:
    """Return a mechanism that releases tables alone with the values its variables can take; others as they are."""
    if not isinstance(mechanism, NoisySwap):
        return mechanism
    return replace(mechanism, values=_of_tables(codebook, mechanism))


def draft_doubts(planned: Planned, mechanism: Swap, codebook: Codebook | None) -> Iterator[str]:
    """Warn where the values that a mechanism needs declared are those of a draft: they were read off the file.

    ``planned`` has the values that its codebook declares.
    """
    if codebook is None or not codebook.draft:
        return
    learned: list[str] = []
    if isinstance(mechanism, NoisySwap):
        learned = [*mechanism.values]
    elif isinstance(mechanism, ResponseSwap):
        variable = codebook.of("households").get(mechanism.respond)
        if variable is not None and _codes(codebook, variable) == planned.plan.mechanism.values:
            learned = [variable.name]
    if learned:
        yield (
            f"the values of {listed(learned)} are those of a codebook that is still a draft, read off the confidential "
            "file: which values occur is confidential, and the promise needs every value that may occur, declared; "
            "complete the lists, and remove `draft = true` from the codebook"
        )


def _codes(codebook: Codebook, variable: Variable) -> list[str]:
    """Return the declared codes of a variable, and those that a hierarchy file adds."""
    return [*dict.fromkeys((*variable.codes, *sorted(codebook.leaves(variable.name))))]


def _of_tables(codebook: Codebook, mechanism: NoisySwap) -> dict[str, list[str | None]]:
    """Return the values that a codebook declares for variables of the tables: codes, or whole numbers in a range."""
    found: dict[str, list[str | None]] = {}
    wanted = {name for variables in mechanism.tables for name in variables}
    for name, variable in ((name, v) for name, v in codebook.of("households").items() if name in wanted):
        values: list[str | None] = []
        if variable.type == "code":
            values = [*_codes(codebook, variable)]
        elif variable.type == "integer" and variable.min is not None and variable.max is not None:
            last = min(variable.max, variable.min + _MOST_VALUES)
            values = [str(value) for value in range(variable.min, last + 1)]
        if values:
            found[name] = [*values, None] if variable.missing else values
    return found
