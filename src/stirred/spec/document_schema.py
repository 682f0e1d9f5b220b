"""The shape of specification.json: which keys there are and what may stand there."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1
SCHEMA_ID = "urn:stirred:specification:1"


# Decimals of a file stay decimals: 15.29 is the exact number it shows, never a double.
Number = str | int | float | Decimal
# Lists of a file as the blocks keep them.
Texts = Annotated[tuple[str, ...], Field(strict=False)]


class Strict(BaseModel):
    """What stands in a file of ours: of its own type, and no other key."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class DomainDocument(Strict):
    """Who is eligible for protection."""

    name: str
    dataset: str
    stage: str
    record_types: Texts = ()
    columns: Texts = ()
    prepared: Annotated[tuple[Annotated[tuple[str, str], Field(strict=False)], ...], Field(strict=False)] = Field(
        default=(), description="columns that were made coarser before, record by record, and how"
    )
    name_is_stated: bool = Field(
        default=False, description="whether somebody stated the name; otherwise it may be that of a file"
    )


class MarginDocument(Strict):
    """Counts that are published exactly."""

    kind: Literal["margin"] = Field(description="counts of records")
    of: str = Field(description="what is counted, such as person or household")
    variables: Texts = Field(default=(), description="variables the counts are broken down by")
    level: str | None = Field(default=None, description="the geographic level of the counts")
    includes: Texts = Field(default=(), description="records that are counted with these, such as person")
    words: str | None = Field(default=None, description="the invariant in words; computed, and checked when read")


class NamedDocument(Strict):
    """A function of the data that is published exactly, known by name."""

    kind: Literal["named"] = Field(description="a function of the data, known by name")
    name: str = Field(description="what the function is called")
    description: str = Field(default="", description="what it computes")
    words: str | None = Field(default=None, description="the invariant in words; computed, and checked when read")


class InequalityDocument(Strict):
    """A condition whose truth is published exactly."""

    kind: Literal["inequality"] = Field(description="a condition on the data")
    name: str = Field(description="what the condition is called")
    condition: str = Field(description="the condition itself, in words")
    on: MarginDocument | None = Field(default=None, description="the counts that the condition is about")
    words: str | None = Field(default=None, description="the invariant in words; computed, and checked when read")


class HierarchyDocument(Strict):
    """Levels that nest, the finest first."""

    name: str = Field(description="what the hierarchy is called")
    levels: Texts = Field(description="the levels, the finest first")
    geographic: bool = Field(default=True, description="whether the levels are areas")


class MultiverseDocument(Strict):
    """Where the protection extends: datasets that agree on the invariants."""

    invariants: list[Annotated[MarginDocument | NamedDocument | InequalityDocument, Field(discriminator="kind")]]
    hierarchies: list[HierarchyDocument] = []
    nearest: int = 1
    nearest_because: str = ""
    consequences: Texts = Field(
        default=(), description="what follows from the invariants of this file, in words, and defines no universe"
    )
    universes: list[list[str]] | None = Field(
        default=None, description="universes listed one by one, by labels of their datasets; they may overlap"
    )


class InputPremetricDocument(Strict):
    """What the unit of protection is."""

    name: Literal["d_HamS", "d_Ham", "d_SymDiff", "d_InsDel", "d_Edge", "d_Node", "d_Euclid", "d_Given", "d_r"] = Field(
        description="how two datasets are compared, such as d_HamS: by the number of changed records"
    )
    unit: str = Field(description="what a record stands for, such as person or household")
    post_imputation: bool | None = Field(
        default=None, description="whether a unit is a record after imputation; left out where nothing says so"
    )
    bounded: bool | None = Field(default=None, description="whether all datasets have the same number of records")
    within: int | None = Field(default=None, description="the largest distance that is compared; left out, any")
    relation: str | None = Field(default=None, description="for d_r: which datasets are neighbours, in words")
    table: Annotated[tuple[Annotated[tuple[str, str, Number], Field(strict=False)], ...], Field(strict=False)] = Field(
        default=(), description="for d_Given: pairs of datasets by label and their distance; others are not compared"
    )
    directed: bool = Field(default=False, description="whether a listed distance holds in its own direction only")
    closure: bool = Field(default=False, description="whether shortest paths through neighbours count instead")


class OutputPremetricDocument(Strict):
    """How change in the output is measured."""

    name: Literal[
        "D_Mult", "D_Max", "D_Mult^delta", "D_NoR", "D_Renyi", "D_GDP", "D_TV", "D_Tr", "D_KL", "D_H", "D_chi2", "D_W1"
    ]
    delta: Number | None = None
    order: Number | None = None
    curve: list[Annotated[tuple[Number, Number], Field(strict=False)]] | None = Field(
        default=None, description="for D_Tr: size and power of the best test, at the corners of the curve"
    )


class StrataDocument(Strict):
    """Strata swapped at one rate."""

    rate: Number
    largest_stratum: int


class UniverseBudgetDocument(Strict):
    """The budget of one universe."""

    universe: str = Field(description="the values of the invariants there, or the labels of its datasets")
    value: Number


class BudgetPolicyDocument(Strict):
    """The budget as a function of the universe."""

    name: Literal["constant", "free", "permutation-swapping", "by-universe", "derived"]
    value: Number | None = None
    symbol: str | None = None
    strata: list[StrataDocument] | None = None
    bound: Literal["paper", "sharp"] | None = None
    formula: str | None = None
    varies: bool | None = None
    budgets: list[UniverseBudgetDocument] | None = None
    otherwise: Number | None = Field(
        default=None, description="the budget of all universes not listed; else none exist"
    )
    at: str | None = Field(default=None, description="the universe of this file; left out, the largest budget is shown")


class BudgetDocument(Strict):
    """How much may change: the policy and its value at the realised universe, in the customary parameter."""

    policy: BudgetPolicyDocument
    parameter: Literal["epsilon", "rho2", "mu", "tau", "steps", "eta", "chi2", "w"] | None = None
    realised: float | int | Literal["inf"] | None = None
    exact: str | None = None
    shown: str | None = None
    paper_epsilon: float | int | Literal["inf"] | None = None
    paper_epsilon_exact: str | None = None


class AccountDocument(Strict):
    """Where the release is accounted for. It is no part of the promise: two specifications are equal without it."""

    ledger: str = Field(description="the id of the ledger that accounts for the release")
    entry: int = Field(description="the number of its entry there")


class MechanismDocument(Strict):
    """What was done, for programs: with its settings anybody can compute the law. It is no part of the promise."""

    name: str = Field(description="the name of the mechanism")
    settings: dict[str, Any] = Field(description="its settings, numbers exactly; what stays inside is left out")


class OneRunDocument(Strict):
    """The release is the only run of its plan."""

    kind: Literal["one-run"] = Field(description="the release is the only run of its plan")


class KeysAloneDocument(Strict):
    """The record keys of the file are used for this release alone."""

    kind: Literal["keys-alone"] = Field(description="the record keys of the file are used for this release alone")
    column: str = Field(default="", description="the column that has them, where it is said")


class UnpublishedDocument(Strict):
    """Counts that the promise assumes are published nowhere else."""

    kind: Literal["unpublished"] = Field(description="counts that are assumed to be published nowhere else")
    figure: MarginDocument = Field(description="the counts")


class SpecificationDocument(Strict):
    """A differential privacy specification: five answers that only mean something together."""

    schema_version: Literal[1]
    domain: DomainDocument
    multiverse: MultiverseDocument
    input_premetric: InputPremetricDocument
    output_premetric: OutputPremetricDocument
    budget: BudgetDocument
    assumptions: Texts = ()
    theorem: Texts = ()
    settings_from: Literal["policy", "invariants", "other-data", "this-data"] | None = None
    seeded: bool = False
    relies_on: list[
        Annotated[OneRunDocument | UnpublishedDocument | KeysAloneDocument, Field(discriminator="kind")]
    ] = []
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
