"""What does not fit a model is said once for each place, by keys that the author of the document wrote."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stirred.spec.misfits import Misfit, misfits


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Drop(Strict):
    step: Literal["drop"]
    column: str


class Split(Strict):
    step: Literal["split"]
    into: list[int]


class Known(Strict):
    name: str


class Document(Strict):
    rate: str | int | Decimal = "1/20"
    share: float = 0.5
    seeded: bool = False
    who: list[str] = []
    labels: dict[str, str] = {}
    steps: list[Annotated[Drop | Split, Field(discriminator="step")]] = []
    part: Known | dict[str, int] = {}
    limit: Known = Known(name="one")


def found(given: Any, **more: Any) -> list[Misfit]:
    with pytest.raises(ValidationError) as refusal:
        Document.model_validate(given)
    return [*misfits(refusal.value.errors(), given, Document, **{"remedy": "see the page", **more})]


@pytest.mark.parametrize(
    ("given", "where", "what", "remedy"),
    [
        ({"rate": []}, "rate", "[] is not a number or text that can be used here", "write one such as 0.05 or '1/20'"),
        ({"share": "x"}, "share", "'x' is not a number", "write a number, such as share = 0.5"),
        ({"seeded": 3}, "seeded", "3 is not true or false", "write true or false, such as seeded = true"),
        ({"who": "ana"}, "who", "'ana' is not a list", 'such as who = ["ana"]'),
        ({"who": [3]}, "who entry 1", "3 is not text", 'such as who = ["..."]'),
        ({"labels": 1}, "labels", "1 is not a table", 'such as labels = { a = "b" }'),
        ({"limit": 3}, "limit", "3 is not a section", "write [limit], and its keys below, on a line each"),
        ({"limit": []}, "limit", "it is not a list", "write [limit], with single brackets"),
        ({"steps": {}}, "steps", "it is a list, and this is one entry", "write [[steps]], with double brackets"),
        ({"steps": [{}]}, "steps entry 1", "'step' is missing", "add step: see the page"),
        ({"steps": [{"step": "drp"}]}, "steps entry 1", "there is no step 'drp'", "did you mean 'drop'? There are"),
        ({"steps": [{"step": "pram"}]}, "steps entry 1", "'pram' is not in stirred", "sdcMicro does it"),
        ({"steps": [{"step": "drop"}]}, "steps entry 1 column", "'column' is missing", "add it"),
        (
            {"steps": [{"step": "drop", "colum": "a"}]},
            "steps entry 1 colum",
            "there is no setting called 'colum'",
            "did you mean 'column'?",
        ),
        (
            {"steps": [{"step": "split", "into": [1, "x"]}]},
            "steps entry 1 into entry 2",
            "'x' is not",
            "a whole number",
        ),
        ({"zzz": 1}, "zzz", "there is no setting called 'zzz'", "remove it, or check its spelling"),
        ([], "", "[] is not a table", "see the page"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_each_misfit_is_said_once_in_everyday_words(given: Any, where: str, what: str, remedy: str) -> None:
    (problem,) = [each.problem("") for each in found(given)]
    assert problem.where == where
    assert problem.what.startswith(what)
    assert remedy in problem.remedy


def test_of_several_kinds_that_a_value_may_be_of_no_name_stands_in_its_place() -> None:
    assert {each.problem("file").where for each in found({"part": {"name": 1.5}})} == {"file part.name"}


def test_without_examples_the_remedy_is_that_of_the_document() -> None:
    (problem,) = found({"who": "ana"}, examples=False)
    assert (problem.what, problem.remedy) == ("'ana' is not a list", "see the page")


def test_a_section_is_called_as_it_stands_in_its_file() -> None:
    (problem,) = found({"steps": {}}, called=lambda key: f"mechanism.{key}")
    assert problem.remedy == "write [[mechanism.steps]], with double brackets"
