"""specification.json: the specification as a file, read strictly and written without loss."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from stirred.spec.budget import Budget, ByUniverse, Constant, Free, PermutationSwapping, Policy
from stirred.spec.document_blocks import number_out, specification_in
from stirred.spec.document_schema import (
    SCHEMA_VERSION,
    AccountDocument,
    MechanismDocument,
    SpecificationDocument,
)
from stirred.spec.invariant import Inequality, Invariant
from stirred.spec.misfits import misfits
from stirred.spec.problems import SpecificationError, placed, wrong
from stirred.spec.reliance import KeysAlone, Reliance, Unpublished
from stirred.spec.specification import Specification

__all__ = [
    "account_in", "from_document", "from_json", "invariant_out", "mechanism_in", "number_out", "plain_data",
    "to_document", "to_json",
]  # fmt: skip

M = TypeVar("M", bound=BaseModel)
_SCHEMA: Final = (
    "see `stirred plan --schema specification`, or an example from `stirred spec export NAME --format json`"
)


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
        "domain": {
            **_plain(
                domain,
                without=(
                    "datasets",
                    "identity",
                    *(name for name in ("columns", "prepared") if not getattr(domain, name)),
                ),
            ),
            **({"name_is_stated": True} if domain.name_is_stated else {}),
        },
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
        **({"alone": list(specification.alone)} if specification.alone else {}),
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
    figure = {"figure": invariant_out(reliance.figure)} if isinstance(reliance, Unpublished) else {}
    column = {"column": reliance.column} if isinstance(reliance, KeysAlone) and reliance.column else {}
    return {"kind": reliance.kind, **figure, **column}


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


def from_toml(text: str, *, source: str = "specification") -> Specification:
    """Read a specification in TOML: the keys of specification.json, checked as strictly."""
    try:
        data = tomllib.loads(text, parse_float=_decimal)
    except RecursionError:
        raise wrong("the file is nested too deeply", where=source, remedy="see docs/specifications.md") from None
    except ValueError as error:  # of TOML, and of what no number is
        raise wrong(f"this is not TOML ({error})", where=source, remedy="correct it there") from None
    if "domain" not in data and {"data", "mechanism", "release"} & {*data}:
        raise wrong("this is a plan file, not a specification", where=source, remedy=f"run `stirred plan {source}`")
    return from_document(data, source=source)


def _decimal(text: str) -> Decimal:
    if text.lstrip("+-") in ("inf", "nan"):
        raise ValueError(f'{text} is not a number here; write "inf" in quotes for infinity')
    return Decimal(text)


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
        document = SpecificationDocument.model_validate(given := _decimals_allowed(data))
    except ValidationError as error:
        found = misfits(error.errors(), given, SpecificationDocument, remedy=_SCHEMA, examples=False)
        raise SpecificationError(each.problem(source) for each in found) from None
    with placed(source):
        return specification_in(document)


def _decimals_allowed(data: Any) -> Any:
    """Turn the display numbers of a budget back into doubles; exact ones stay as they are."""
    if not isinstance(data, dict) or not isinstance(data.get("budget"), dict):
        return data
    budget = dict(data["budget"])
    for key in ("realised", "paper_epsilon"):
        if isinstance(budget.get(key), Decimal):
            budget[key] = float(budget[key])
    return {**data, "budget": budget}


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
