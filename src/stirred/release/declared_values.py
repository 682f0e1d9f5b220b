"""The values of a response from the codebook, where a plan does not list them itself."""

from __future__ import annotations

from dataclasses import replace

from stirred.data.codebook import Codebook
from stirred.release.plan_file import Planned
from stirred.spec.problems import StirredError


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
        values = [*dict.fromkeys((*variable.codes, *sorted(codebook.leaves(variable.name))))]
    mechanism = section.model_copy(update={"values": values})
    return replace(planned, plan=planned.plan.model_copy(update={"mechanism": mechanism}))
