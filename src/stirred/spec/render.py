"""A specification on paper: Markdown, and the YAML of OpenDP's deployments registry."""

from __future__ import annotations

import json
from typing import Any

from stirred.spec.document import AccountDocument
from stirred.spec.explanation import explain
from stirred.spec.invariant import plural
from stirred.spec.specification import Specification
from stirred.spec.text import code, plain


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
    words, top, below = explain(specification), "#" * level, "#" * (level + 1)
    lines = [f"{top} {plain(title)}", "", *([plain(method), ""] if method else []), code(specification.notation), ""]
    lines += [f"{below} Not protected", ""]
    lines += [f"- {plain(item)}" for item in words.not_protected]
    lines += ["", f"{below} The five answers", "", "| question | block | answer |", "|---|---|---|"]
    lines += [f"| {a.question} | {a.block.replace('_', ' ')} | {plain(a.answer)} |" for a in words.answers]
    lines += ["", plain(words.how_to_read), "", plain(words.why_not_compare)]
    for heading, items in (("Assumptions", specification.assumptions), ("Proofs", specification.theorem)):
        if items:
            lines += ["", f"{below} {heading}", "", *(f"- {plain(item)}" for item in items)]
    if account is not None:
        lines += ["", f"The release is accounted for as entry {account.entry} of the ledger {code(account.ledger)}."]
    if specification.seeded:
        lines += ["", "**Test run with a seed: not for publication.**"]
    return "\n".join(lines) + "\n"


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
    domain, premetric = specification.domain, specification.input_premetric
    words = explain(specification)
    parameters: dict[str, Any] = {}
    if not specification.budget.is_free:
        value = specification.budget.realised
        number = ".inf" if value.is_infinite else float(value)
        name_ = specification.output_premetric.parameter
        parameters[_REGISTRY_PARAMETERS.get(name_, name_)] = number
    if specification.output_premetric.delta:
        parameters["delta"] = float(specification.output_premetric.delta)
    adjacency = "Records may be added or removed."
    if premetric.bounded:
        adjacency = f"Files of different size are never compared, so the number of {plural(premetric.unit)} is fixed."
    flavor = {
        "name": _REGISTRY_FLAVORS[specification.output_premetric.name],
        "input_metric": premetric.symbol,
        "output_measure": specification.output_premetric.symbol,
        "data_domain": f"{domain.dataset}; {domain.stage_in_words}",
        "unprotected_quantities": "\n".join(f"- {item}" for item in words.not_protected) + "\n",
    }
    loss = {
        "privacy_unit": f"{premetric.unit[:1].upper()}{premetric.unit[1:]}-level",
        "privacy_unit_description": f"{premetric.words}. {adjacency}",
        "privacy_parameters": parameters,
        "privacy_parameters_description": (
            f"{specification.notation}. Exact value: "
            f"{specification.budget.shown if specification.budget.is_free else specification.budget.realised}. "
            f"{words.how_to_read}"
        ),
    }
    accounting = {
        "post_processing": "Any function of the released output has the same specification.",
        "composition": "; ".join(specification.theorem) or "none stated",
    }
    about = {
        "data_curator": curator,
        "intended_use": intended_use,
        "description": description,
        "publication_date": publication_date,
    }
    deployment = {"name": name, **{key: text for key, text in about.items() if text}, "dp_flavor": flavor}
    tree = {"status": "Draft", "deployment": {**deployment, "privacy_loss": loss, "accounting": accounting}}
    return _yaml(tree)


def _yaml(value: Any, indent: int = 0) -> str:
    """Write nested dictionaries of text and numbers as YAML: text as JSON strings, which YAML contains."""
    pad = "  " * indent
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            lines.append(f"{pad}{key}:" + (" {}\n" if not item else "\n" + _yaml(item, indent + 1)))
        elif isinstance(item, str) and "\n" in item:
            body = "".join(f"{pad}  {line}\n" for line in item.rstrip("\n").split("\n"))
            lines.append(f"{pad}{key}: |\n{body}")
        elif item == ".inf":
            lines.append(f"{pad}{key}: .inf\n")
        else:
            lines.append(f"{pad}{key}: {json.dumps(item, ensure_ascii=False)}\n")
    return "".join(lines)
