"""The shape of specification.json: which keys there are and what may stand there."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1
SCHEMA_ID = "urn:stirred:specification:1"


# Decimals of a file stay decimals: 15.29 is the exact number it shows, never a double.
Number = str | int | float | Decimal


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DomainDocument(_Strict):
    """Who is eligible for protection."""

    name: str
    dataset: str
    stage: str
    record_types: list[str] = []
    columns: list[str] = []


class MarginDocument(_Strict):
    """Counts that are published exactly."""

    kind: Literal["margin"]
    of: str
    variables: list[str] = []
    level: str | None = None
    includes: list[str] = []
    words: str | None = Field(default=None, description="the invariant in words; computed, and checked when read")


class NamedDocument(_Strict):
    """A function of the data that is published exactly, known by name."""

    kind: Literal["named"]
    name: str
    description: str = ""
    words: str | None = None


class InequalityDocument(_Strict):
    """A condition whose truth is published exactly."""

    kind: Literal["inequality"]
    name: str
    condition: str
    on: MarginDocument | None = None
    words: str | None = None


class HierarchyDocument(_Strict):
    """Levels that nest, the finest first."""

    name: str
    levels: list[str]
    geographic: bool = True


class MultiverseDocument(_Strict):
    """Where the protection extends: datasets that agree on the invariants."""

    invariants: list[Annotated[MarginDocument | NamedDocument | InequalityDocument, Field(discriminator="kind")]]
    hierarchies: list[HierarchyDocument] = []
    nearest: int = 1
    nearest_because: str = ""


class InputPremetricDocument(_Strict):
    """What the unit of protection is."""

    name: Literal["d_HamS", "d_Ham", "d_SymDiff", "d_InsDel", "d_r"]
    unit: str
    post_imputation: bool = False
    bounded: bool | None = None
    within: int | None = None
    relation: str | None = None


class OutputPremetricDocument(_Strict):
    """How change in the output is measured."""

    name: Literal["D_Mult", "D_Mult^delta", "D_NoR", "D_Renyi", "D_GDP", "D_TV"]
    delta: Number | None = None
    order: Number | None = None


class StrataDocument(_Strict):
    """Strata swapped at one rate."""

    rate: Number
    largest_stratum: int


class PolicyDocument(_Strict):
    """The budget as a function of the universe."""

    name: Literal["constant", "free", "permutation-swapping", "derived"]
    value: Number | None = None
    symbol: str | None = None
    strata: list[StrataDocument] | None = None
    bound: Literal["paper", "sharp"] | None = None
    formula: str | None = None
    varies: bool | None = None


class BudgetDocument(_Strict):
    """How much may change: the policy and its value at the realised universe, in the customary parameter."""

    policy: PolicyDocument
    parameter: Literal["epsilon", "rho2", "mu", "tau"] | None = None
    realised: float | int | Literal["inf"] | None = None
    exact: str | None = None
    shown: str | None = None
    paper_epsilon: float | int | Literal["inf"] | None = None
    paper_epsilon_exact: str | None = None


class SpecificationDocument(_Strict):
    """A differential privacy specification: five answers that only mean something together."""

    schema_version: Literal[1]
    domain: DomainDocument
    multiverse: MultiverseDocument
    input_premetric: InputPremetricDocument
    output_premetric: OutputPremetricDocument
    budget: BudgetDocument
    assumptions: list[str] = []
    theorem: list[str] = []
    settings_from: Literal["policy", "invariants", "other-data", "this-data"] | None = None
    seeded: bool = False


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of specification.json."""
    schema = SpecificationDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
