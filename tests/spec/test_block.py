"""A block is one object in a file: what is computed is checked, and what stays inside is never written."""

from fractions import Fraction
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from stirred.spec import INFINITE, PURE, Domain, Exact, Inequality, InputPremetric, Margin, Multiverse, exact
from stirred.spec.document import from_document, json_schema, to_document
from stirred.spec.problems import SpecificationError
from tests.spec.strategies import specification


class Held(BaseModel):
    """A model of another room that has blocks and exact numbers as they are."""

    held: Margin | None = None
    loss: Exact = INFINITE


def test_any_model_may_have_a_block_and_an_exact_number_as_a_field() -> None:
    found = Held.model_validate({"held": {"kind": "margin", "of": "household", "variables": ["size"]}, "loss": "ln(3)"})
    assert found.held == Margin(of="household", variables=("size",))
    assert found.loss == Exact.parse("ln(3)")
    assert found.model_dump(mode="json", exclude_defaults=True) == {
        "held": {"kind": "margin", "of": "household", "variables": ["size"]}, "loss": "ln(3)",
    }  # fmt: skip


@pytest.mark.parametrize("value", [True, None, [1], "one third"])
def test_what_is_no_number_is_refused_where_a_number_belongs(value: Any) -> None:
    with pytest.raises(ValidationError):
        Held.model_validate({"loss": value})


def test_what_is_known_of_the_file_besides_words_is_never_written() -> None:
    domain = Domain(name="f", dataset="a file", datasets=((1,), (2,)), identity=frozenset({"file 9f86d0"}))
    assert domain.plain() == {"name": "f", "dataset": "a file", "stage": "as-given", "record_types": []}


def test_an_inequality_holds_its_counts_as_an_object() -> None:
    counts = Margin(of="housing unit", level="block")
    rule = Inequality(name="some", condition="at least one housing unit", on=counts)
    assert rule.plain()["on"] == counts.plain()
    assert rule.plain(brief=True)["on"] == {"kind": "margin", "of": "housing unit", "level": "block"}


@pytest.mark.parametrize(("block", "key", "stated", "said"), [
    ("input_premetric", "bounded", False, "input_premetric: bounded is stated as false, but it is true. Fix: correct"),
    ("budget", "realised", 2.5, "budget realised: realised is stated as 2.5, but it is 1.0. Fix: correct it, or leave"),
    ("budget", "parameter", "mu", "budget parameter: parameter is stated as 'mu', but it is 'epsilon'. Fix: correct"),
])  # fmt: skip
def test_a_file_that_states_something_else_than_is_computed_is_refused(
    block: str, key: str, stated: Any, said: str
) -> None:
    document = to_document(specification(PURE, 1))
    document[block][key] = stated
    with pytest.raises(SpecificationError, match=said):
        from_document(document)


def test_editors_propose_the_names_of_distances_and_measures() -> None:
    shapes = json_schema()["$defs"]
    assert "d_HamS" in shapes["InputPremetric"]["properties"]["name"]["enum"]
    assert "D_NoR" in shapes["OutputPremetric"]["properties"]["name"]["enum"]


def test_universes_are_described_or_listed_and_not_both() -> None:
    margin = Margin(of="household").plain()
    for universes, said in (([["a"]], "both listed and described"), ([], "no universe"), ([[]], "without datasets")):
        document = to_document(specification(PURE, 1))
        invariants = [margin] if universes and universes[0] else []
        document["multiverse"] |= {"invariants": invariants, "universes": universes}
        with pytest.raises(SpecificationError, match=said):
            from_document(document)
    assert Multiverse(universes=(frozenset({"b", "a"}),)).plain()["universes"] == [["a", "b"]]


def test_a_table_of_distances_is_read_exactly() -> None:
    own = {"name": "d_Given", "unit": "file", "relation": "cost", "table": [["a", "b", "1/3"]]}
    document = to_document(specification(PURE, 1)) | {"input_premetric": own}
    assert from_document(document).input_premetric.table == (("a", "b", exact(Fraction(1, 3))),)
    assert isinstance(from_document(document).input_premetric, InputPremetric)
