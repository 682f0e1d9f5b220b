"""specification.json: the specification as a file, read strictly and written without loss."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from stirred.spec.budget import Budget, ByUniverse, Constant, Derived, Free, PermutationSwapping, Policy, SwappedStrata
from stirred.spec.document_schema import (
    SCHEMA_VERSION,
    AccountDocument,
    BudgetDocument,
    InequalityDocument,
    InputPremetricDocument,
    MarginDocument,
    MechanismDocument,
    MultiverseDocument,
    NamedDocument,
    OneRunDocument,
    OutputPremetricDocument,
    PolicyDocument,
    SpecificationDocument,
    UnpublishedDocument,
)
from stirred.spec.domain import Domain
from stirred.spec.exact import Exact, compare_exact, exact
from stirred.spec.given_numbers import fraction, loss
from stirred.spec.hierarchy import Hierarchy
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.invariant import Inequality, Invariant, Margin, Named
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import OutputPremetric
from stirred.spec.problems import Problem, SpecificationError, StirredError, place_of, placed, wrong
from stirred.spec.reliance import ONE_RUN, OneRun, Reliance, Unpublished
from stirred.spec.specification import Flavor, Specification
from stirred.spec.tradeoff import TradeOff

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def to_document(specification: Specification) -> dict[str, Any]:
    """Return the specification as plain data for JSON."""
    domain, multiverse = specification.domain, specification.multiverse
    premetric, output = specification.input_premetric, specification.output_premetric
    universes = multiverse.universes
    if universes is not None and not all(isinstance(each, str) for universe in universes for each in universe):
        raise wrong(
            "universes listed one by one are written to a file only by labels of their datasets",
            where="multiverse",
            remedy="describe them by invariants, or name each dataset by a text",
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "domain": _plain(
            domain, without=("datasets", *(name for name in ("columns", "prepared") if not getattr(domain, name)))
        ),
        "multiverse": {
            "invariants": [invariant_out(invariant) for invariant in multiverse.invariants],
            "hierarchies": [_plain(hierarchy) for hierarchy in multiverse.hierarchies],
            "nearest": multiverse.nearest,
            "nearest_because": multiverse.nearest_because,
            **({"consequences": list(multiverse.consequences)} if multiverse.consequences else {}),
            **({} if universes is None else {"universes": [sorted(map(str, universe)) for universe in universes]}),
        },
        "input_premetric": _without_none(
            name=premetric.name,
            unit=premetric.unit,
            post_imputation=premetric.post_imputation,
            bounded=premetric.bounded,
            within=premetric.within,
            relation=premetric.relation,
            table=[[x, y, str(far)] for x, y, far in premetric.table] or None,
            directed=premetric.directed or None,
            closure=premetric.closure or None,
        ),
        "output_premetric": _without_none(
            name=output.name,
            delta=str(output.delta),
            order=None if output.order is None else str(output.order),
            curve=None if output.curve is None else [[str(a), str(b)] for a, b in output.curve.corners],
        ),
        "budget": _budget_out(specification.budget, parameter=output.parameter),
        "assumptions": list(specification.assumptions),
        "theorem": list(specification.theorem),
        "settings_from": specification.settings_from,
        "seeded": specification.seeded,
        **({"relies_on": [_reliance_out(one) for one in specification.relies_on]} if specification.relies_on else {}),
        **({"measured_on": list(specification.measured_on)} if specification.measured_on else {}),
    }


def _plain(block: Any, *, without: Sequence[str] = ()) -> dict[str, Any]:
    """Return the fields of a block for JSON."""
    facts = {one.name: getattr(block, one.name) for one in fields(block) if one.name not in without}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def invariant_out(invariant: Invariant) -> dict[str, Any]:
    """Return an invariant as plain data, with its words."""
    facts = _plain(invariant, without=("function",))
    if isinstance(invariant, Inequality) and invariant.on is not None:
        facts["on"] = invariant_out(invariant.on)
    return {"kind": invariant.kind, **facts, "words": str(invariant)}


def _reliance_out(reliance: Reliance) -> dict[str, Any]:
    figure = {} if isinstance(reliance, OneRun) else {"figure": invariant_out(reliance.figure)}
    return {"kind": reliance.kind, **figure}


def to_json(
    specification: Specification,
    *,
    account: AccountDocument | None = None,
    mechanism: MechanismDocument | None = None,
) -> str:
    """Return specification.json as text, with the mechanism that has it, and where the release is accounted for."""
    document = to_document(specification)
    if mechanism is not None:
        document["mechanism"] = mechanism.model_dump()
    if account is not None:
        document["account"] = account.model_dump()
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def account_in(text: str) -> AccountDocument | None:
    """Return where specification.json says that the release is accounted for; None if it says nothing readable."""
    return _stated(text, "account", AccountDocument)


def mechanism_in(text: str) -> MechanismDocument | None:
    """Return the mechanism and its public settings as specification.json states them; None if it says nothing."""
    return _stated(text, "mechanism", MechanismDocument)


def _stated(text: str, key: str, model: type[M]) -> M | None:
    try:
        return model.model_validate(json.loads(text)[key])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def from_json(text: str, *, source: str = "specification") -> Specification:
    """Read specification.json; every problem is reported at once, each with its place.

    >>> from stirred.spec import catalogue
    >>> specification = catalogue.load("das-2020").specification
    >>> from_json(to_json(specification)) == specification
    True
    """
    remedy = "write a specification.json; `stirred spec export NAME --format json` gives an example"
    return from_document(plain_data(text, source=source, remedy=remedy), source=source)


def plain_data(text: str, *, source: str, remedy: str) -> Any:
    """Read JSON as plain data, decimals as they are written; no key twice, no NaN, nothing endless."""
    try:
        data = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=_no_key_twice)
        text.encode("utf-8")
        json.dumps(data, ensure_ascii=False, default=str).encode("utf-8")
    except RecursionError:
        raise wrong("the file is nested too deeply", where=source, remedy=remedy) from None
    except UnicodeEncodeError:
        raise wrong("the text holds half a character", where=source, remedy="save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        what = f"this is not JSON ({error})" if text.strip() else "the file is empty"
        raise wrong(what, where=source, remedy=remedy) from None
    except ValueError as error:
        raise wrong(str(error), where=source, remedy="correct it there") from None
    return data


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


# Parts of a place that name one of several kinds that a number can be of, and no key of the file.
_KINDS: Final = ("str", "int", "float", "decimal", "literal['inf']")


def _problems(error: ValidationError, source: str) -> list[Problem]:
    problems: list[Problem] = []
    for detail in error.errors(include_url=False):
        place = place_of(step for step in detail["loc"] if step not in _KINDS)
        message = detail["msg"]
        if detail["type"] == "extra_forbidden":
            what, remedy = f"there is no key '{detail['loc'][-1]}' here", "remove it, or check its spelling"
        elif detail["type"] == "missing":
            what, remedy = f"the key '{detail['loc'][-1]}' is missing", "add it"
        else:
            given = repr(detail.get("input"))
            given = given if len(given) < 60 else given[:57] + "..."
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
        a_list, an_object = "a list in [ ]", "an object in { }"
        wanted = {"string": "text in quotes", "int": "a whole number", "float": "a number", "bool": "true or false",
                  "list": a_list, "tuple": a_list, "model": an_object, "dict": an_object}  # fmt: skip
        return f"{given} stands where {wanted.get(kind.rsplit('_', 1)[0], 'something else')} is needed", schema
    return f"{given}: {message[:1].lower()}{message[1:]}", schema


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
    """Return a loss for JSON: a double rounded up, infinity and what no double reaches as the text ``"inf"``."""
    double = float(value)
    return "inf" if math.isinf(double) else double


def _policy_out(policy: Policy) -> dict[str, Any]:
    if isinstance(policy, Constant):
        return {"name": "constant", "value": str(policy.value)}
    if isinstance(policy, Free):
        return {"name": "free", "symbol": policy.symbol}
    if isinstance(policy, PermutationSwapping):
        strata = [{"rate": str(s.rate), "largest_stratum": s.largest_stratum} for s in policy.strata]
        return {"name": "permutation-swapping", "strata": strata, "bound": policy.bound}
    if isinstance(policy, ByUniverse):
        budgets = [{"universe": universe, "value": str(value)} for universe, value in policy.budgets]
        otherwise = None if policy.otherwise is None else str(policy.otherwise)
        return {"name": "by-universe", "budgets": budgets, **_without_none(otherwise=otherwise, at=policy.at)}
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

    domain = block(lambda: Domain(**dict(document.domain)))
    multiverse = block(lambda: multiverse_of(document.multiverse))
    premetric = block(lambda: _input_in(document.input_premetric))
    output = block(lambda: _output_in(document.output_premetric))
    budget = block(lambda: _budget_in(document.budget, output))
    relies_on = block(lambda: tuple(_reliance_in(one) for one in document.relies_on)) or ()
    if domain is None or multiverse is None or premetric is None or output is None or budget is None or problems:
        raise SpecificationError(problems)
    return Specification(
        flavor=Flavor(domain=domain, multiverse=multiverse, input_premetric=premetric, output_premetric=output),
        budget=budget,
        assumptions=document.assumptions,
        theorem=document.theorem,
        settings_from=document.settings_from,
        seeded=document.seeded,
        relies_on=relies_on,
        measured_on=document.measured_on,
    )


def _reliance_in(document: OneRunDocument | UnpublishedDocument) -> Reliance:
    if isinstance(document, OneRunDocument):
        return ONE_RUN
    return Unpublished(figure=_invariant_in(document.figure))


def _input_in(document: InputPremetricDocument) -> InputPremetric:
    premetric = InputPremetric(**{key: value for key, value in document if key != "bounded"})
    if document.bounded is not None and document.bounded != premetric.bounded:
        raise wrong(
            f"{premetric.name} is {'' if premetric.bounded else 'not '}bounded",
            where="input_premetric bounded",
            remedy="correct it, or leave it out",
        )
    return premetric


def _output_in(document: OutputPremetricDocument) -> OutputPremetric:
    delta, order, curve = document.delta, document.order, document.curve
    where = "output_premetric curve"
    corners = None if curve is None else tuple(tuple(fraction(n, where=where) for n in point) for point in curve)
    return OutputPremetric(
        name=document.name,
        delta=Fraction(0) if delta is None else fraction(delta, where="output_premetric delta"),
        order=None if order is None else fraction(order, where="output_premetric order"),
        curve=None if corners is None else TradeOff(corners),  # type: ignore[arg-type]
    )


def multiverse_of(document: MultiverseDocument) -> Multiverse:
    """Return the multiverse a checked document describes."""
    invariants = tuple(_invariant_in(invariant) for invariant in document.invariants)
    hierarchies = tuple(Hierarchy(**dict(hierarchy)) for hierarchy in document.hierarchies)
    listed = None if document.universes is None else tuple(map(frozenset, document.universes))
    if listed is not None and (invariants or not listed or not all(listed)):
        empty = "a universe without datasets" if listed else "no universe at all"
        raise wrong(
            "universes both listed and described by invariants" if invariants else empty,
            where="multiverse universes",
            remedy="list at least one universe, each with its datasets, or leave the list out",
        )
    return Multiverse(
        **{**dict(document), "invariants": invariants, "hierarchies": hierarchies, "universes": listed},
    )


_INVARIANTS: Final[dict[str, Callable[..., Any]]] = {"margin": Margin, "named": Named, "inequality": Inequality}


def _invariant_in(document: MarginDocument | NamedDocument | InequalityDocument) -> Any:
    facts = {key: value for key, value in document if key not in ("kind", "words")}
    if isinstance(document, InequalityDocument) and document.on is not None:
        facts["on"] = _invariant_in(document.on)
    invariant = _INVARIANTS[document.kind](**facts)
    if document.words is not None and document.words != str(invariant):
        raise wrong(
            f"the invariant says '{document.words}' in words, but it is: {invariant}",
            where="multiverse invariants",
            remedy="leave 'words' out: they are computed",
        )
    return invariant


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
    given = None if document.exact is None else exact(document.exact)
    if given is not None and compare_exact(given, budget.realised) != 0:
        raise _not_its_own("exact", f"{document.exact} is not the value {budget.realised} of")
    if document.realised is not None and document.realised != number_out(budget.realised):
        raise _not_its_own("realised", f"{document.realised} is not {number_out(budget.realised)}, that of")
    if document.shown is not None and document.shown != budget.shown:
        raise wrong(
            f"it is said to show as {document.shown}, but its policy shows as {budget.shown}",
            where="budget shown",
            remedy="leave 'shown' out: it is computed",
        )
    return budget


def _not_its_own(key: str, what: str) -> SpecificationError:
    remedy = "correct one of them, or leave the value out: it is computed"
    return wrong(f"the stated value {what} its own policy", where=f"budget {key}", remedy=remedy)


# What a policy needs, and what it may have besides.
_POLICIES: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "constant": (("value",), ()),
    "free": ((), ("symbol",)),
    "permutation-swapping": (("strata",), ("bound",)),
    "derived": (("value", "formula"), ("varies",)),
    "by-universe": (("budgets",), ("otherwise", "at")),
}


def _policy_in(document: PolicyDocument) -> Policy:
    needed, optional = _POLICIES[document.name]
    for key in needed:
        if getattr(document, key) is None:
            raise wrong(f"a {document.name} policy needs '{key}'", where="budget policy", remedy="add it")
    for key in sorted(document.model_fields_set - {"name", *needed, *optional}):
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
    if document.name == "by-universe":
        listed = [(one.universe, loss(one.value, where="budget policy budgets")) for one in document.budgets or ()]
        rest = None if document.otherwise is None else loss(document.otherwise, where="budget policy otherwise")
        return ByUniverse(budgets=tuple(listed), otherwise=rest, at=document.at)
    assert document.value is not None
    with placed("budget policy value"):
        value = exact(document.value)
    if document.name == "constant":
        return Constant(value=value)
    return Derived(formula=document.formula or "", value=value, varies=bool(document.varies))
