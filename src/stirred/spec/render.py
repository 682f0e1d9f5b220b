"""A specification on paper: Markdown, and the YAML of OpenDP's deployments registry, each from its template."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from stirred.spec.explanation import explain
from stirred.spec.invariant import plural
from stirred.spec.specification import Specification
from stirred.spec.text import code, plain, sentence

if TYPE_CHECKING:
    from jinja2 import Environment

    from stirred.spec.document import AccountDocument


def filled(template: str, *, of: str = "stirred.spec", **facts: Any) -> str:
    """Return a page: a template of a package's folder ``templates``, filled with facts.

    Templates say ``plain``, ``sentence`` or ``code`` for text that must stay what it is inside Markdown.
    """
    return _templates(of).get_template(template).render(facts)


@cache
def _templates(package: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader(package),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    as_json = partial(json.dumps, ensure_ascii=False)
    pages.filters |= {"plain": plain, "sentence": sentence, "code": code, "json": as_json}
    return pages


def to_markdown(
    specification: Specification,
    *,
    title: str = "DP specification",
    method: str = "",
    account: AccountDocument | None = None,
    level: int = 1,
) -> str:
    """Return the specification as a Markdown page: the notation, the five answers, the invariants, the account.

    ``level`` is that of its first heading, for a page that is part of another.
    """
    return filled(
        "specification.md.j2",
        specification=specification,
        words=explain(specification),
        title=title,
        method=method,
        account=account,
        level=level,
    )


# The registry's names for flavors (opendp/deployments-registry-data).
_REGISTRY_FLAVORS = {
    "D_Mult": "Pure DP",
    "D_Max": "One-sided DP",
    "D_Mult^delta": "Approximate DP",
    "D_NoR": "Zero-concentrated DP",
    "D_Renyi": "Rényi DP",
    "D_GDP": "Gaussian DP",
    "D_TV": "Total variation",
    "D_Tr": "f-DP",
    "D_KL": "KL privacy",
    "D_H": "Hellinger privacy",
    "D_chi2": "Chi-squared privacy",
    "D_W1": "Wasserstein privacy",
}
# The registry calls the customary zCDP number, our rho squared, "rho".
_REGISTRY_PARAMETERS = {"rho2": "rho"}


def to_registry(
    specification: Specification,
    *,
    name: str = "Untitled release",
    curator: str = "",
    intended_use: str = "",
    description: str = "",
    publication_date: str = "",
) -> str:
    """Return the specification as YAML for OpenDP's deployments registry.

    The registry's fields map nearly one to one onto the five blocks. What it has no field for goes
    into its descriptions; fields about the deployment that a specification does not know stay out.
    """
    budget, premetric, output = specification.budget, specification.input_premetric, specification.output_premetric
    parameters: dict[str, Any] = {}
    if not budget.is_free:
        number = ".inf" if budget.realised.is_infinite else float(budget.realised)
        parameters[_REGISTRY_PARAMETERS.get(output.parameter, output.parameter)] = number
    if output.delta:
        parameters["delta"] = float(output.delta)
    fixed = f"Files of different size are never compared, so the number of {plural(premetric.unit)} is fixed."
    return filled(
        "registry.yaml.j2",
        specification=specification,
        words=explain(specification),
        about={
            "name": name,
            "data_curator": curator,
            "intended_use": intended_use,
            "description": description,
            "publication_date": publication_date,
        },
        flavor=_REGISTRY_FLAVORS[output.name],
        adjacency=fixed if premetric.bounded else "Records may be added or removed.",
        parameters=parameters,
        value=budget.shown if budget.is_free else budget.realised,
    )
