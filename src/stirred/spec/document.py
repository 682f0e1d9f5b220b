"""specification.json: the specification as a file, read strictly and written without loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeVar

from pydantic import ValidationError

from stirred.spec.budget import Budget, Constant, Derived, Free, PermutationSwapping, Policy, SwappedStrata
from stirred.spec.document_schema import (
    SCHEMA_VERSION,
    BudgetDocument,
    DomainDocument,
    InequalityDocument,
    InputPremetricDocument,
    MarginDocument,
    MultiverseDocument,
    NamedDocument,
    OutputPremetricDocument,
    PolicyDocument,
    SpecificationDocument,
)
from stirred.spec.domain import Domain
from stirred.spec.exact import Exact, compare_exact, exact
from stirred.spec.given_numbers import fraction, loss
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Inequality, Invariant, Margin, Named
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.problems import Problem, SpecificationError, StirredError, placed, wrong
from stirred.spec.specification import Flavor, Specification

T = TypeVar("T")


def to_document(specification: Specification) -> dict[str, Any]:
    """Return the specification as plain data for JSON."""
    premetric, output = specification.input_premetric, specification.output_premetric
    return {
        "schema_version": SCHEMA_VERSION,
        "domain": {
            "name": specification.domain.name,
            "dataset": specification.domain.dataset,
            "stage": specification.domain.stage,
            "record_types": list(specification.domain.record_types),
            **({"columns": list(specification.domain.columns)} if specification.domain.columns else {}),
        },
        "multiverse": _multiverse_out(specification.multiverse),
        "input_premetric": _without_none(
            name=premetric.name,
            unit=premetric.unit,
            post_imputation=premetric.post_imputation,
            bounded=premetric.bounded,
            within=premetric.within,
            relation=premetric.relation,
        ),
        "output_premetric": _without_none(
            name=output.name,
            delta=str(output.delta),
            order=None if output.order is None else str(output.order),
        ),
        "budget": _budget_out(specification.budget, parameter=output.parameter),
        "assumptions": list(specification.assumptions),
        "theorem": list(specification.theorem),
        "settings_from": specification.settings_from,
        "seeded": specification.seeded,
    }


def to_json(specification: Specification) -> str:
    """Return specification.json as text."""
    return json.dumps(to_document(specification), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, *, source: str = "specification") -> Specification:
    """Read specification.json; every problem is reported at once, each with its place.

    >>> from stirred.spec import catalogue
    >>> specification = catalogue.load("das-2020").specification
    >>> from_json(to_json(specification)) == specification
    True
    """
    try:
        data = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_no_key_twice)
        text.encode("utf-8")
        json.dumps(data, ensure_ascii=False, default=str).encode("utf-8")
    except RecursionError:
        raise wrong("the file is nested too deeply", where=source, remedy="write a specification.json") from None
    except UnicodeEncodeError:
        raise wrong("the text holds half a character", where=source, remedy="save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        empty = not text.strip()
        raise wrong(
            "the file is empty" if empty else f"this is not JSON ({error})",
            where=source,
            remedy="write a specification.json; `stirred spec export NAME --format json` gives an example",
        ) from None
    except ValueError as error:
        raise wrong(str(error), where=source, remedy="correct it there") from None
    return from_document(data, source=source)


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"the key '{key}' stands twice in one place")
    return dict(pairs)


def _no_constant(text: str) -> str:
    raise ValueError(f'{text} is not a number in JSON; write "inf" in quotes for infinity')


def from_document(data: Any, *, source: str = "specification") -> Specification:
    """Read a specification from plain data."""
    if not isinstance(data, dict):
        raise wrong(
            f"this is {type(data).__name__} and not a specification",
            where=source,
            remedy="write an object with domain, multiverse, input_premetric, output_premetric and budget",
        )
    try:
        document = SpecificationDocument.model_validate(_decimals_allowed(data))
    except ValidationError as error:
        raise SpecificationError(_problems(error, source)) from None
    with placed(source):
        return _specification_in(document)


def _decimals_allowed(data: Any) -> Any:
    """Turn the display numbers of a budget back into doubles; exact ones stay as they are."""
    if not isinstance(data, dict) or not isinstance(data.get("budget"), dict):
        return data
    budget = dict(data["budget"])
    for key in ("realised", "paper_epsilon"):
        if isinstance(budget.get(key), Decimal):
            budget[key] = float(budget[key])
    return {**data, "budget": budget}


def _problems(error: ValidationError, source: str) -> list[Problem]:
    problems: list[Problem] = []
    for detail in error.errors(include_url=False):
        place = ".".join(str(part) for part in detail["loc"])
        message = detail["msg"]
        if detail["type"] == "extra_forbidden":
            what, remedy = f"there is no key '{detail['loc'][-1]}' here", "remove it, or check its spelling"
        elif detail["type"] == "missing":
            what, remedy = f"the key '{detail['loc'][-1]}' is missing", "add it"
        else:
            given = repr(detail.get("input"))
            given = given if len(given) < 60 else given[:57] + "..."
            place = (
                place.removesuffix(".str").removesuffix(".int").removesuffix(".float").removesuffix(".literal['inf']")
            )
            what, remedy = _in_words(detail["type"], given, message)
        problem = Problem(what=what, where=f"{source} {place}", remedy=remedy)
        if not any(problem.where == other.where for other in problems):
            problems.append(problem)
    return problems


def _in_words(kind: str, given: str, message: str) -> tuple[str, str]:
    """Return a validation message as a person would say it."""
    schema = "see `stirred schema specification`, or an example from `stirred spec export NAME --format json`"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return "an invariant needs a kind: margin, named or inequality", 'write such as {"kind": "margin", ...}'
    if kind.endswith("_type") or kind.endswith("_parsing"):
        wanted = {"string": "text in quotes", "int": "a whole number", "float": "a number", "bool": "true or false",
                  "list": "a list in [ ]", "model": "an object in { }", "dict": "an object in { }"}  # fmt: skip
        return f"{given} stands where {wanted.get(kind.rsplit('_', 1)[0], 'something else')} is needed", schema
    return f"{given}: {message[:1].lower()}{message[1:]}", schema


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _multiverse_out(multiverse: Multiverse) -> dict[str, Any]:
    if multiverse.universes is not None:
        raise wrong(
            "universes listed one by one cannot be written to a file",
            where="multiverse",
            remedy="describe them by invariants",
        )
    return {
        "invariants": [invariant_out(invariant) for invariant in multiverse.invariants],
        "hierarchies": [
            {"name": h.name, "levels": list(h.levels), "geographic": h.geographic} for h in multiverse.hierarchies
        ],
        "nearest": multiverse.nearest,
        "nearest_because": multiverse.nearest_because,
    }


def invariant_out(invariant: Invariant) -> dict[str, Any]:
    """Return an invariant as plain data, with its words."""
    words = str(invariant)
    if isinstance(invariant, Margin):
        return {
            "kind": "margin",
            "of": invariant.of,
            "variables": list(invariant.variables),
            "level": invariant.level,
            "includes": list(invariant.includes),
            "words": words,
        }
    if isinstance(invariant, Named):
        return {"kind": "named", "name": invariant.name, "description": invariant.description, "words": words}
    on = None if invariant.on is None else invariant_out(invariant.on)
    return {
        "kind": "inequality",
        "name": invariant.name,
        "condition": invariant.condition,
        "on": on,
        "words": words,
    }


def _budget_out(budget: Budget, *, parameter: str) -> dict[str, Any]:
    out: dict[str, Any] = {"policy": _policy_out(budget.policy), "parameter": parameter}
    if not budget.is_free:
        out |= {"realised": number_out(budget.realised), "exact": str(budget.realised), "shown": budget.shown}
    if budget.paper_epsilon is not None:
        out |= {
            "paper_epsilon": number_out(budget.paper_epsilon),
            "paper_epsilon_exact": str(budget.paper_epsilon),
        }
    return out


def number_out(value: Exact) -> float | str:
    """Return a loss for JSON: a double rounded up, infinity as the text ``"inf"``."""
    return "inf" if value.is_infinite else float(value)


def _policy_out(policy: Policy) -> dict[str, Any]:
    if isinstance(policy, Constant):
        return {"name": "constant", "value": str(policy.value)}
    if isinstance(policy, Free):
        return {"name": "free", "symbol": policy.symbol}
    if isinstance(policy, PermutationSwapping):
        strata = [{"rate": str(s.rate), "largest_stratum": s.largest_stratum} for s in policy.strata]
        return {"name": "permutation-swapping", "strata": strata, "bound": policy.bound}
    return {"name": "derived", "formula": policy.formula, "value": str(policy.value), "varies": policy.varies}


def _specification_in(document: SpecificationDocument) -> Specification:
    """Build the five blocks; problems of all of them are reported together."""
    problems: list[Problem] = []

    def block(build: Callable[[], T]) -> T | None:
        try:
            return build()
        except StirredError as error:
            problems.extend(error.problems)
            return None

    domain = block(lambda: _domain_in(document.domain))
    multiverse = block(lambda: multiverse_of(document.multiverse))
    premetric = block(lambda: _input_in(document.input_premetric))
    output = block(lambda: _output_in(document.output_premetric))
    budget = block(lambda: _budget_in(document.budget, output))
    if domain is None or multiverse is None or premetric is None or output is None or budget is None or problems:
        raise SpecificationError(problems)
    return Specification(
        flavor=Flavor(domain=domain, multiverse=multiverse, input_premetric=premetric, output_premetric=output),
        budget=budget,
        assumptions=tuple(document.assumptions),
        theorem=tuple(document.theorem),
        settings_from=document.settings_from,
        seeded=document.seeded,
    )


def _domain_in(document: DomainDocument) -> Domain:
    return Domain(
        name=document.name,
        dataset=document.dataset,
        stage=document.stage,
        record_types=tuple(document.record_types),
        columns=tuple(document.columns),
    )


def _input_in(document: InputPremetricDocument) -> InputPremetric:
    premetric = InputPremetric(
        name=document.name,
        unit=document.unit,
        post_imputation=document.post_imputation,
        within=document.within,
        relation=document.relation,
    )
    if document.bounded is not None and document.bounded != premetric.bounded:
        raise wrong(
            f"{premetric.name} is {'' if premetric.bounded else 'not '}bounded",
            where="input_premetric bounded",
            remedy="correct it, or leave it out",
        )
    return premetric


def _output_in(document: OutputPremetricDocument) -> OutputPremetric:
    delta, order = document.delta, document.order
    return OutputPremetric(
        name=document.name,
        delta=Fraction(0) if delta is None else fraction(delta, where="output_premetric delta"),
        order=None if order is None else fraction(order, where="output_premetric order"),
    )


def multiverse_of(document: MultiverseDocument) -> Multiverse:
    """Return the multiverse a checked document describes."""
    return Multiverse(
        invariants=tuple(_invariant_in(invariant) for invariant in document.invariants),
        hierarchies=tuple(
            Hierarchy(name=h.name, levels=tuple(h.levels), geographic=h.geographic) for h in document.hierarchies
        ),
        nearest=document.nearest,
        nearest_because=document.nearest_because,
    )


def _invariant_in(document: MarginDocument | NamedDocument | InequalityDocument) -> Invariant:
    invariant = _plain_invariant_in(document)
    if document.words is not None and document.words != str(invariant):
        raise wrong(
            f"the invariant says '{document.words}' in words, but it is: {invariant}",
            where="multiverse invariants",
            remedy="leave 'words' out: they are computed",
        )
    return invariant


def _plain_invariant_in(document: MarginDocument | NamedDocument | InequalityDocument) -> Invariant:
    if isinstance(document, MarginDocument):
        return _margin_in(document)
    if isinstance(document, NamedDocument):
        return Named(name=document.name, description=document.description)
    on = None if document.on is None else _margin_in(document.on)
    return Inequality(name=document.name, condition=document.condition, on=on)


def _margin_in(document: MarginDocument) -> Margin:
    return Margin(
        of=document.of,
        variables=tuple(document.variables),
        level=document.level,
        includes=tuple(document.includes),
    )


def _budget_in(document: BudgetDocument, output: OutputPremetric | None) -> Budget:
    if output is not None and document.parameter is not None and document.parameter != output.parameter:
        raise wrong(
            f"a budget of {output.symbol} is stored as {output.parameter}, not {document.parameter}",
            where="budget parameter",
            remedy=f"write {output.parameter}",
        )
    paper = None
    if document.paper_epsilon_exact is not None:
        paper = loss(document.paper_epsilon_exact, where="budget paper_epsilon_exact")
    if document.paper_epsilon is not None and (paper is None or number_out(paper) != document.paper_epsilon):
        raise wrong(
            f"paper_epsilon {document.paper_epsilon} is not the number of paper_epsilon_exact",
            where="budget paper_epsilon",
            remedy="give paper_epsilon_exact, and leave paper_epsilon out: it is computed",
        )
    policy = _policy_in(document.policy)
    if paper is not None and isinstance(policy, PermutationSwapping) and compare_exact(paper, policy.paper) != 0:
        raise wrong(
            f"the stated bound of the paper, {paper}, is not {policy.paper}, that of its own policy",
            where="budget paper_epsilon_exact",
            remedy="correct one of them",
        )
    budget = Budget(policy=policy, paper_epsilon=paper)
    if document.exact is not None and compare_exact(exact(document.exact), budget.realised) != 0:
        raise wrong(
            f"the stated value {document.exact} is not the value {budget.realised} of its own policy",
            where="budget exact",
            remedy="correct one of them, or leave the value out: it is computed",
        )
    if document.realised is not None and document.realised != number_out(budget.realised):
        raise wrong(
            f"the stated value {document.realised} is not {number_out(budget.realised)}, that of its own policy",
            where="budget realised",
            remedy="correct one of them, or leave the value out: it is computed",
        )
    if document.shown is not None and document.shown != budget.shown:
        raise wrong(
            f"it is said to show as {document.shown}, but its policy shows as {budget.shown}",
            where="budget shown",
            remedy="leave 'shown' out: it is computed",
        )
    return budget


def _policy_in(document: PolicyDocument) -> Policy:
    needed = {
        "constant": ("value",),
        "free": (),
        "permutation-swapping": ("strata",),
        "derived": ("value", "formula"),
    }[document.name]
    for key in needed:
        if getattr(document, key) is None:
            raise wrong(f"a {document.name} policy needs '{key}'", where="budget policy", remedy="add it")
    allowed = {
        "name",
        *needed,
        *{"free": ("symbol",), "derived": ("varies",), "permutation-swapping": ("bound",)}.get(document.name, ()),
    }
    for key in sorted(document.model_fields_set - allowed):
        raise wrong(f"a {document.name} policy has no '{key}'", where="budget policy", remedy="remove it")
    if document.name == "free":
        return Free(symbol=document.symbol or "ε")
    if document.name == "permutation-swapping":
        assert document.strata is not None
        strata = tuple(
            SwappedStrata(rate=fraction(s.rate, where="budget policy rate"), largest_stratum=s.largest_stratum)
            for s in document.strata
        )
        return PermutationSwapping(strata=strata, bound=document.bound or "paper")
    assert document.value is not None
    with placed("budget policy value"):
        value = exact(document.value)
    if document.name == "constant":
        return Constant(value=value)
    return Derived(formula=document.formula or "", value=value, varies=bool(document.varies))
