"""specification.json: the specification as a file, read strictly and written without loss."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from stirred.spec.block import not_computed, plain
from stirred.spec.budget import Budget, ByUniverse, Constant, Derived, Free, PermutationSwapping
from stirred.spec.domain import Domain, file_identity
from stirred.spec.exact import Exact, compare_exact, exact
from stirred.spec.input_premetric import InputPremetric
from stirred.spec.misfits import misfits, refusals
from stirred.spec.multiverse import Multiverse
from stirred.spec.output_premetric import KINDS, OutputPremetric
from stirred.spec.problems import Problem, SpecificationError, placed, refusal, wrong
from stirred.spec.specification import KEYS_ALONE, Flavor, KeysAlone, OneRun, Reliance, Specification, Unpublished

SCHEMA_VERSION: Final = 1
SCHEMA_ID: Final = "urn:stirred:specification:1"
M = TypeVar("M", bound=BaseModel)
_SCHEMA: Final = (
    "see `stirred plan --schema specification`, or an example from `stirred spec export NAME --format json`"
)

Texts = Annotated[tuple[str, ...], Field(strict=False)]
# A loss as a double rounded up; decimals of a file arrive exactly.
Double = Annotated[
    float | int | Literal["inf"], BeforeValidator(lambda value: float(value) if isinstance(value, Decimal) else value)
]


class Strict(BaseModel):
    """What stands in a file of ours: of its own type, and no other key."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class BudgetDocument(Strict):
    """How much may change: the policy and its value at the realised universe, in the customary parameter."""

    policy: Annotated[
        Constant | Free | PermutationSwapping | ByUniverse | Derived,
        Field(discriminator="name", description="the budget as a function of the universe"),
    ]
    parameter: str | None = Field(
        default=None,
        description="the customary number of the output premetric",
        json_schema_extra={"enum": [*dict.fromkeys(kind.parameter for kind in KINDS.values())]},
    )
    realised: Double | None = None
    exact: str | None = None
    shown: str | None = None
    paper_epsilon: Double | None = None
    paper_epsilon_exact: Exact | None = None

    @model_validator(mode="after")
    def _is_budget(self) -> Self:
        try:
            self.budget()
        except SpecificationError as error:
            raise refusal(error.problems) from None
        return self

    def budget(self) -> Budget:
        """Return the budget, whatever the file states of its value."""
        return Budget(policy=self.policy, paper_epsilon=self.paper_epsilon_exact)


class AccountDocument(Strict):
    """Where the release is accounted for. It is no part of the promise: two specifications are equal without it."""

    ledger: str = Field(description="the id of the ledger that accounts for the release")
    entry: int = Field(description="the number of its entry there")


class MechanismDocument(Strict):
    """What was done, for programs: with its settings anybody can compute the law. It is no part of the promise."""

    name: str = Field(description="the name of the mechanism")
    settings: dict[str, Any] = Field(description="its settings, numbers exactly; what stays inside is left out")


class SpecificationDocument(Strict):
    """A differential privacy specification: five answers that only mean something together."""

    schema_version: Literal[1]
    domain: Domain
    multiverse: Multiverse
    input_premetric: InputPremetric
    output_premetric: OutputPremetric
    budget: BudgetDocument
    assumptions: Texts = ()
    theorem: Texts = ()
    settings_from: Literal["policy", "invariants", "other-data", "this-data"] | None = None
    seeded: bool = False
    relies_on: Annotated[
        tuple[Annotated[OneRun | Unpublished | KeysAlone, Field(discriminator="kind")], ...], Field(strict=False)
    ] = ()
    measured_on: Texts = Field(
        default=(), description="the parts of the output that the promise is about, where it is not all of it"
    )
    alone: Texts = Field(
        default=(),
        description="the assumptions and consequences that hold of this release alone, and not of several together",
    )
    mechanism: MechanismDocument | None = Field(
        default=None, description="the mechanism of the release with its public settings, where it is stated"
    )
    account: AccountDocument | None = Field(
        default=None, description="the entry of the ledger that accounts for the release, where there is one"
    )


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of specification.json."""
    schema = SpecificationDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}


def to_document(specification: Specification) -> dict[str, Any]:
    """Return the specification as plain data for JSON."""
    stated = {key: plain(getattr(specification, key)) for key in ("relies_on", "measured_on", "alone")}
    return {
        "schema_version": SCHEMA_VERSION,
        "domain": specification.domain.plain(),
        "multiverse": specification.multiverse.plain(),
        "input_premetric": specification.input_premetric.plain(),
        "output_premetric": specification.output_premetric.plain(),
        "budget": _budget_out(specification.budget, parameter=specification.output_premetric.parameter),
        "assumptions": list(specification.assumptions),
        "theorem": list(specification.theorem),
        "settings_from": specification.settings_from,
        "seeded": specification.seeded,
        **{key: value for key, value in stated.items() if value},
    }


def _budget_out(budget: Budget, *, parameter: str) -> dict[str, Any]:
    out: dict[str, Any] = {"policy": budget.policy.plain(), "parameter": parameter}
    if not budget.is_free:
        out |= {"realised": number_out(budget.realised), "exact": str(budget.realised), "shown": budget.shown}
    if (paper := budget.paper_epsilon) is not None:
        out |= {"paper_epsilon": number_out(paper), "paper_epsilon_exact": str(paper)}
    return out


def number_out(value: Exact) -> float | str:
    """Return a loss for JSON: a double rounded up, infinity and what no double reaches as the text ``"inf"``."""
    double = float(value)
    return "inf" if math.isinf(double) else double


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
    """Read a specification from plain data; every problem is reported at once."""
    if not isinstance(data, dict):
        raise wrong(
            f"this is {type(data).__name__} and not a specification",
            where=source,
            remedy="write an object with domain, multiverse, input_premetric, output_premetric and budget",
        )
    try:
        document = SpecificationDocument.model_validate(data)
    except ValidationError as error:
        fits = misfits(error.errors(), data, SpecificationDocument, remedy=_SCHEMA, examples=False)
        refused = [problem.inside(source) for problem in refusals(error.errors(), data)]
        raise SpecificationError([*(each.problem(source) for each in fits), *refused]) from None
    budget = _budget_in(document.budget, document.output_premetric, source)
    # The ledger shows which file it is, in whatever words: its id is public, as a checksum of the file must never be.
    ledger = file_identity(ledger="" if document.account is None else document.account.ledger)
    domain = replace(document.domain, identity=document.domain.identity | ledger)
    relies_on, alone = _as_earlier_versions_wrote(document)
    return Specification(
        flavor=Flavor(
            domain=domain,
            multiverse=document.multiverse,
            input_premetric=document.input_premetric,
            output_premetric=document.output_premetric,
        ),
        budget=budget,
        assumptions=document.assumptions,
        theorem=document.theorem,
        settings_from=document.settings_from,
        seeded=document.seeded,
        relies_on=relies_on,
        measured_on=document.measured_on,
        alone=alone,
    )


# How sentences about one release alone began in files of versions that did not mark them.
_ALONE_ONCE: Final = (
    "nothing of the file is published but ",
    "nothing of the sample is published but ",
    "of these figures none is published: ",
)


def _as_earlier_versions_wrote(document: SpecificationDocument) -> tuple[tuple[Reliance, ...], tuple[str, ...]]:
    """Return what the promise relies on and what holds of it alone, which earlier versions said in words only."""
    relies_on = document.relies_on
    if KEYS_ALONE.words in document.assumptions and not any(isinstance(one, KeysAlone) for one in relies_on):
        settings = {} if document.mechanism is None else document.mechanism.settings
        relies_on = (*relies_on, KeysAlone(column=settings.get("record_key") or ""))
    lines = (*document.assumptions, *document.multiverse.consequences)
    return relies_on, document.alone or tuple(line for line in lines if line.startswith(_ALONE_ONCE))


def _budget_in(document: BudgetDocument, output: OutputPremetric, source: str) -> Budget:
    """Return the budget of a file, if all that the file states of it is what its policy says."""
    policy, paper, budget = document.policy, document.paper_epsilon_exact, document.budget()
    with placed(source):
        computed = _budget_out(budget, parameter=output.parameter)
        problems = []
        for key in ("parameter", "realised", "exact", "shown", "paper_epsilon"):
            stated, own = getattr(document, key), computed.get(key)
            if stated is None or stated == own or (key == "exact" and own is not None and _same(stated, own)):
                continue
            problems.append(replace(not_computed(key, stated, own), where=f"budget {key}"))
        if paper is not None and isinstance(policy, PermutationSwapping) and compare_exact(paper, policy.paper) != 0:
            own = f"the stated bound of the paper, {paper}, is not {policy.paper}, that of its own policy"
            problems.append(Problem(what=own, where="budget paper_epsilon_exact", remedy="correct one of them"))
        if problems:
            raise SpecificationError(problems)
    return budget


def _same(stated: str, own: str) -> bool:
    with placed("budget exact"):
        return compare_exact(exact(stated), exact(own)) == 0
