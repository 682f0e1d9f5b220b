"""policy.toml: what a custodian binds themselves to, read strictly."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, WithJsonSchema

from stirred.release.ledger.problems import LedgerError
from stirred.release.ledger.row import StrictFacts
from stirred.spec.document import invariant_out
from stirred.spec.document_schema import (
    HierarchyDocument,
    InequalityDocument,
    InputPremetricDocument,
    MarginDocument,
    NamedDocument,
)
from stirred.spec.invariant import Invariant
from stirred.spec.misfits import Misfit, misfits
from stirred.spec.problems import Problem

# Decimals of a file arrive as the text they are, so that 15.29 stays the number it shows.
Number = Annotated[str | int, WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}]})]


class UnitDocument(StrictFacts):
    """A stated factor between two units, with its reason."""

    old: str = Field(description="The unit of a release, such as household.")
    new: str = Field(description="The unit of the limit, such as person.")
    factor: Number = Field(description="How many old records one new unit changes at most; a number, or such as 3/2.")
    because: str = Field(description="Why that is so; it stands with every step that uses it.")
    keeps_total: str | None = Field(
        default=None, description="Why the invariants already fix the number of old records, if they do."
    )


class CopiesDocument(StrictFacts):
    """How many records one person's answers may have been copied into."""

    factor: Number = Field(description="The largest number of records that hold one person's answers, 1 or more.")
    because: str = Field(description="Why there are no more of them.")


# Changed, added or removed records, one by one: what a limit "per person" means unless the policy says more.
COUNTING: Final = ("d_HamS", "d_Ham", "d_SymDiff", "d_InsDel")
# By these one changed record is 2 apart, one removed and one added: the distance by which it is 1 apart.
CHANGED: Final = {"d_SymDiff": "d_HamS", "d_InsDel": "d_Ham"}
_Further = Annotated[Literal["d_SymDiff", "d_InsDel", "d_Edge", "d_Node", "d_Euclid"], Tag("name")]


class LimitDocument(StrictFacts):
    """A limit: the total of everything, in this unit and output premetric, stays at or below ``budget``."""

    budget: Number = Field(
        description='The largest total loss: "60", 15.29 or such as "ln(3)"; for zcdp it is rho squared.'
    )
    output: Literal["pure", "zcdp", "gdp", "approximate"] = Field(description="How change in the output is measured.")
    delta: Number | None = Field(default=None, description='delta, for approximate alone: such as "1e-10".')
    unit: str = Field(description="Whose change the limit is about, such as person or household.")
    name: str = Field(default="", description="What messages call this limit.")
    units: list[UnitDocument] = Field(default=[], description="Factors between units, where releases have other ones.")
    distances: list[
        Annotated[
            _Further | Annotated[InputPremetricDocument, Tag("own")],
            Discriminator(lambda value: "name" if isinstance(value, str) else "own"),
        ]
    ] = Field(
        default=[],
        description="Distances between files that the limit accepts as they stand, beside those that count changed "
        "records: d_SymDiff or d_InsDel for added or removed ones (by default one changed record counts as one removed "
        "and one added), a name such as d_Edge, or a distance of your own as a specification states it.",
    )
    copies: CopiesDocument | None = Field(
        default=None, description="Protect people, whose answers may stand in several records after imputation."
    )


Acceptable = list[Annotated[MarginDocument | NamedDocument | InequalityDocument, Field(discriminator="kind")]]


class InvariantsDocument(StrictFacts):
    """What may be held fixed: every invariant of a release must follow from these, or ``"any"`` may be."""

    acceptable: Annotated[
        Annotated[Acceptable, Tag("list")] | Annotated[Literal["any"], Tag("any")],
        Discriminator(lambda value: "any" if isinstance(value, str) else "list"),
    ] = Field(description='Invariants, or "any" if you look at the invariants of every release yourself.')
    hierarchies: list[HierarchyDocument] = Field(
        default=[], description="Levels that nest, the finest first; they decide what follows from what."
    )


class PolicyDocument(StrictFacts):
    """policy.toml.

    A limit means nothing without a word on what may be held fixed: whoever fixes everything loses nothing.
    """

    limits: list[LimitDocument] = Field(default=[], description="How much everything together may cost.")
    who: list[str] | None = Field(default=None, description="Who may release; default anybody.")
    invariants: InvariantsDocument | None = Field(
        default=None, description="What may be held fixed; needed wherever there is a limit."
    )
    exposed_share: Number | None = Field(
        default=None,
        description="The share of records that may be unique on what is published unchanged before the doubt `exposed` "
        'refuses, such as "1/10"; default 1/3.',
    )
    unspecified: Literal["refuse", "not-counted"] = Field(
        default="refuse",
        description="What limits make of entries without a specification: refuse further releases, since what was "
        "spent is not known, or leave these entries out of what is counted.",
    )


def policy_document(data: Any, *, source: str) -> PolicyDocument:
    """Return the policy in plain data; every problem is reported at once."""
    try:
        return PolicyDocument.model_validate(data)
    except ValidationError as error:
        found = misfits(error.errors(), data, PolicyDocument, remedy="see docs/ledger.md")
        raise LedgerError(_problem(each, source) for each in found) from None


def _problem(found: Misfit, source: str) -> Problem:
    if found.kind == "extra_forbidden" and found.place[-1] in PolicyDocument.model_fields:
        found = found._replace(remedy="write it at the top of the file, above the first line in brackets")
    return found.problem(source)


def invariant_toml(invariant: Invariant) -> str:
    """Return an invariant as a policy lists it among what is acceptable, on one line.

    >>> from stirred.spec.invariant import Margin
    >>> print(invariant_toml(Margin(of="household", variables=("size", "county"))))
    { kind = "margin", of = "household", variables = ["size", "county"] }
    """
    from stirred.data.codebook_file import toml_value

    return toml_value(_stated(invariant_out(invariant)))


def _stated(facts: dict[str, Any]) -> dict[str, Any]:
    """Return what is neither empty nor computed."""
    return {k: _stated(v) if isinstance(v, dict) else v for k, v in facts.items() if v and k != "words"}


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a policy, for editors."""
    schema = PolicyDocument.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:stirred:policy:1", **schema}
