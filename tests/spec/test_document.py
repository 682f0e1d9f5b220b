"""specification.json: written without loss, read strictly, every problem at once."""

import copy
import json
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec import (
    GDP,
    PURE,
    ZCDP,
    Budget,
    Multiverse,
    Specification,
    SpecificationError,
    approximate,
    catalogue,
    change_output,
    exact,
    ln,
)
from stirred.spec.budget import PermutationSwapping, SwappedStrata
from stirred.spec.document import SCHEMA_ID, from_document, from_json, json_schema, to_document, to_json
from tests.spec.strategies import MANY, SOME, specification, specifications

NAMES = catalogue.names()
SCHEMA = json_schema()
CHECKER = jsonschema.Draft202012Validator(SCHEMA)


def good() -> dict[str, Any]:
    """Return a document that reads, to be spoiled."""
    return copy.deepcopy(to_document(catalogue.load("das-2020").specification))


def read(document: Any) -> Specification:
    return from_json(json.dumps(document))


# -- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_of_the_catalogue_survives_writing_and_reading(name: str) -> None:
    written = catalogue.load(name).specification
    assert from_json(to_json(written)) == written
    assert from_document(to_document(written)) == written
    assert to_json(from_json(to_json(written))) == to_json(written)


@MANY
@given(specifications())
def test_any_specification_survives_writing_and_reading(written: Specification) -> None:
    again = from_json(to_json(written))
    assert again == written
    assert to_json(again) == to_json(written)
    assert hash(again.budget.policy) == hash(written.budget.policy)


@pytest.mark.parametrize("value", ["12.48", "ln(3)", "1/3", "0", "inf", "1e6", "1e-300"])
@pytest.mark.parametrize("to", [PURE, ZCDP, GDP, approximate("1/1000")], ids=lambda p: p.symbol)
def test_a_converted_specification_survives_writing_and_reading(value: str, to: Any) -> None:
    written = change_output(specification(PURE, value), to=to).specification
    assert from_json(to_json(written)) == written


def test_a_zcdp_conversion_survives_writing_and_reading() -> None:
    for method in ("bun-steinke", "cks"):
        spec = catalogue.load("das-2020").specification
        written = change_output(spec, to=approximate(Fraction(1, 10**10)), method=method).specification
        assert from_json(to_json(written)) == written


def test_what_is_written_is_plain_json() -> None:
    for name in NAMES:
        text = to_json(catalogue.load(name).specification)
        assert json.loads(text, parse_constant=lambda text: pytest.fail(text))
    infinite = json.loads(to_json(specification(PURE, "inf")))
    assert infinite["budget"]["realised"] == "inf"


def test_a_decimal_is_read_as_it_stands_and_never_through_a_double() -> None:
    document = to_document(specification(ZCDP, "15.29"))
    document["budget"] = {"policy": {"name": "constant", "value": 15.29}}
    assert read(document).budget.realised == Fraction(1529, 100)
    text = json.dumps(document).replace("15.29", "0.10000000000000000000000000000000000001")
    assert from_json(text).budget.realised == Fraction("0.10000000000000000000000000000000000001")


def test_the_realised_value_is_a_double_not_below_the_exact_one() -> None:
    document = to_document(specification(PURE, ln(3)))
    assert Fraction(document["budget"]["realised"]) >= exact("ln(3)")
    assert document["budget"]["exact"] == "ln(3)"
    assert document["budget"]["parameter"] == "epsilon"


def test_what_can_be_computed_may_be_left_out() -> None:
    document = good()
    document["budget"] = {"policy": {"name": "constant", "value": "55.371"}}
    for key in ("assumptions", "theorem", "settings_from", "seeded"):
        del document[key]
    assert read(document).budget.realised == exact("55.371")


def test_universes_listed_one_by_one_are_not_written() -> None:
    listed = specification(PURE, 1, multiverse=Multiverse(universes=(frozenset({1, 2}),)))
    with pytest.raises(SpecificationError):
        to_json(listed)


# -- the schema -----------------------------------------------------------------------------------


def test_the_schema_is_one_and_has_the_published_name() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"] == SCHEMA_ID


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_accepts_every_entry_of_the_catalogue(name: str) -> None:
    CHECKER.validate(json.loads(to_json(catalogue.load(name).specification)))


@SOME
@given(specifications())
def test_the_schema_accepts_whatever_is_written(written: Specification) -> None:
    CHECKER.validate(json.loads(to_json(written)))


@pytest.mark.parametrize("key", ["domain", "multiverse", "input_premetric", "output_premetric", "budget"])
def test_the_schema_wants_all_five_blocks(key: str) -> None:
    document = good()
    del document[key]
    with pytest.raises(jsonschema.ValidationError):
        CHECKER.validate(document)


# -- what is refused ------------------------------------------------------------------------------


def spoiled(path: str, value: Any) -> dict[str, Any]:
    document = good()
    *parents, last = path.split(".")
    place: Any = document
    for part in parents:
        place = place[int(part)] if part.isdigit() else place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


SWAPPING = {"name": "permutation-swapping", "strata": [{"rate": "1/20", "largest_stratum": 100}]}
SPOILED: dict[str, tuple[str, Any]] = {
    "missing key": ("domain", ...),
    "missing inner key": ("domain.dataset", ...),
    "missing policy": ("budget.policy", ...),
    "missing schema version": ("schema_version", ...),
    "another schema version": ("schema_version", 2),
    "schema version as text": ("schema_version", "1"),
    "extra key": ("epsilon", 1),
    "extra inner key": ("domain.size", 3),
    "extra key of an invariant": ("multiverse.invariants.0.values", []),
    "text for a block": ("domain", "CEF"),
    "list for a block": ("domain", []),
    "null for a block": ("budget", None),
    "number for text": ("domain.name", 3),
    "decimal for text": ("domain.name", 1.5),
    "decimal for a unit": ("input_premetric.unit", 2.5),
    "decimal for a stage": ("domain.stage", 1e3),
    "decimal in a list of text": ("assumptions", [1.5]),
    "text for a flag": ("seeded", "yes"),
    "number for a flag": ("seeded", 1),
    "text for a whole number": ("multiverse.nearest", "2"),
    "decimal for a whole number": ("multiverse.nearest", 2.0),
    "empty name": ("domain.name", " "),
    "empty unit": ("input_premetric.unit", ""),
    "unknown invariant kind": ("multiverse.invariants", [{"kind": "median", "of": "person"}]),
    "invariant without kind": ("multiverse.invariants", [{"of": "person"}]),
    "a margin of nothing": ("multiverse.invariants", [{"kind": "margin", "of": ""}]),
    "a hierarchy of one level": ("multiverse.hierarchies", [{"name": "g", "levels": ["block"]}]),
    "nearest zero": ("multiverse.nearest", 0),
    "unknown input premetric": ("input_premetric.name", "d_Manhattan"),
    "bounded flag wrong": ("input_premetric.bounded", False),
    "within zero": ("input_premetric.within", 0),
    "relation missing": ("input_premetric", {"name": "d_r", "unit": "person"}),
    "unknown output premetric": ("output_premetric.name", "D_KL"),
    "delta one": ("output_premetric", {"name": "D_Mult^delta", "delta": "1"}),
    "delta negative": ("output_premetric", {"name": "D_Mult^delta", "delta": "-1/10"}),
    "delta above one": ("output_premetric", {"name": "D_Mult^delta", "delta": "7/4"}),
    "delta missing": ("output_premetric", {"name": "D_Mult^delta"}),
    "delta where there is none": ("output_premetric", {"name": "D_NoR", "delta": "1/10"}),
    "delta no number": ("output_premetric", {"name": "D_Mult^delta", "delta": "small"}),
    "delta true": ("output_premetric", {"name": "D_Mult^delta", "delta": True}),
    "order one": ("output_premetric", {"name": "D_Renyi", "order": "1"}),
    "order missing": ("output_premetric", {"name": "D_Renyi"}),
    "order infinite": ("output_premetric", {"name": "D_Renyi", "order": "inf"}),
    "parameter of another premetric": ("budget.parameter", "epsilon"),
    "unknown policy": ("budget.policy", {"name": "magic"}),
    "constant without value": ("budget", {"policy": {"name": "constant"}}),
    "derived without formula": ("budget", {"policy": {"name": "derived", "value": "1"}}),
    "swapping without strata": ("budget", {"policy": {"name": "permutation-swapping"}}),
    "swapping with no stratum": ("budget", {"policy": {"name": "permutation-swapping", "strata": []}}),
    "negative budget": ("budget", {"policy": {"name": "constant", "value": "-1"}}),
    "negative budget as a number": ("budget", {"policy": {"name": "constant", "value": -1}}),
    "budget NaN as text": ("budget", {"policy": {"name": "constant", "value": "nan"}}),
    "budget no number": ("budget", {"policy": {"name": "constant", "value": "much"}}),
    "budget of a million digits": ("budget", {"policy": {"name": "constant", "value": "9" * 10**6}}),
    "budget of a forbidden tower": ("budget", {"policy": {"name": "constant", "value": "exp(exp(exp(9)))"}}),
    "budget that may be zero": ("budget", {"policy": {"name": "constant", "value": "exp(1)*exp(1)-exp(2)"}}),
    "budget that divides by zero unseen": (
        "budget",
        {"policy": {"name": "constant", "value": "1/(exp(1)*exp(1)-exp(2))"}},
    ),
    "rate above one": (
        "budget",
        {"policy": {"name": "permutation-swapping", "strata": [{"rate": "7/4", "largest_stratum": 100}]}},
    ),
    "a stratum of one": (
        "budget",
        {"policy": {"name": "permutation-swapping", "strata": [{"rate": "1/2", "largest_stratum": 1}]}},
    ),
    "stated exact value not that of the policy": (
        "budget",
        {"policy": {"name": "constant", "value": "1"}, "exact": "2"},
    ),
    "stated double not that of the policy": ("budget", {"policy": {"name": "constant", "value": "1"}, "realised": 2.5}),
    "stated infinity not that of the policy": (
        "budget",
        {"policy": {"name": "constant", "value": "1"}, "realised": "inf"},
    ),
    "shown value not that of the policy": ("budget", {"policy": {"name": "constant", "value": "1"}, "shown": "0.5"}),
    "swapping with a stated value": ("budget", {"policy": SWAPPING, "exact": "1"}),
    "a free budget with a value": ("budget", {"policy": {"name": "free", "symbol": "ε"}, "exact": "3"}),
    "a free policy with a value": ("budget", {"policy": {"name": "free", "value": "3"}}),
    "a constant policy with strata": (
        "budget",
        {"policy": {"name": "constant", "value": "1", "strata": SWAPPING["strata"]}},
    ),
    "published epsilon not that of its exact form": (
        "budget",
        {"policy": {"name": "constant", "value": "1"}, "paper_epsilon": 3.0, "paper_epsilon_exact": "2"},
    ),
    "published epsilon without its exact form": (
        "budget",
        {"policy": {"name": "constant", "value": "1"}, "paper_epsilon": 3.0},
    ),
    "published epsilon negative": (
        "budget",
        {"policy": {"name": "constant", "value": "1"}, "paper_epsilon_exact": "-2"},
    ),
    "unknown basis of settings": ("settings_from", "intuition"),
}


@pytest.mark.parametrize(("path", "value"), SPOILED.values(), ids=SPOILED.keys())
def test_a_spoiled_document_is_refused_with_its_place_and_remedy(path: str, value: Any) -> None:
    with pytest.raises(SpecificationError) as caught:
        from_json(json.dumps(spoiled(path, value)), source="plan.json")
    for problem in caught.value.problems:
        assert problem.what
        assert problem.where.startswith("plan.json")
        assert problem.remedy
        assert len(str(problem)) < 500


TEXTS = {
    "nothing": "",
    "not JSON": "{",
    "prose": "epsilon is one",
    "a number": "3",
    "a list": "[]",
    "null": "null",
    "trailing comma": '{"schema_version": 1,}',
    "NaN": '{"schema_version": NaN}',
    "minus infinity": '{"schema_version": -Infinity}',
    "a million digits": '{"schema_version": ' + "9" * 10**6 + "}",
    "a million decimals": '{"schema_version": 0.' + "9" * 10**6 + "}",
    "an enormous exponent": '{"schema_version": 1e999999999}',
    "a key twice": '{"schema_version": 1, "schema_version": 1}',
    "half a character": '{"schema_version": "\\ud800"}',
    "a byte order mark": "\ufeff{}",
    "a null character": "\x00",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_text_that_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        from_json(text)
    assert caught.value.problems[0].remedy


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000])
@pytest.mark.parametrize("place", ["realised", "paper_epsilon"])
def test_a_number_that_json_or_doubles_do_not_have_is_refused(place: str, number: str) -> None:
    document = spoiled("budget", {"policy": {"name": "constant", "value": "1"}, place: "HERE"})
    with pytest.raises(SpecificationError):
        from_json(json.dumps(document).replace('"HERE"', number))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -0.5])
def test_plain_data_with_a_number_that_is_no_loss_is_refused(value: float) -> None:
    document = spoiled("budget", {"policy": {"name": "constant", "value": value}})
    if value == float("inf"):
        assert from_document(document).budget.realised.is_infinite
        return
    with pytest.raises(SpecificationError):
        from_document(document)


@pytest.mark.parametrize("depth", [10, 100, 400, 700, 900, 950, 980, 990, 1000, 2000, 10_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting_is_refused_at_every_depth(depth: int, opening: str, closing: str) -> None:
    deep = opening * depth + "1" + closing * depth
    for text in (deep, json.dumps(good()).replace('"CEF"', deep, 1)):
        with pytest.raises(SpecificationError):
            from_json(text)


def test_all_problems_of_shape_are_reported_at_once() -> None:
    document = good()
    del document["domain"]["stage"]
    document["epsilon"] = 1
    document["seeded"] = "yes"
    document["input_premetric"]["unit"] = 3
    with pytest.raises(SpecificationError) as caught:
        read(document)
    places = " ".join(problem.where for problem in caught.value.problems)
    assert len(caught.value.problems) == 4
    assert all(key in places for key in ("domain.stage", "epsilon", "seeded", "input_premetric.unit"))


def test_all_problems_of_meaning_are_reported_at_once() -> None:
    document = good()
    document["domain"]["name"] = " "
    document["input_premetric"]["within"] = 0
    document["output_premetric"] = {"name": "D_Mult^delta", "delta": "7/4"}
    document["budget"] = {"policy": {"name": "constant", "value": "-1"}}
    document["multiverse"]["invariants"] = [{"kind": "margin", "of": " "}]
    with pytest.raises(SpecificationError) as caught:
        read(document)
    assert len(caught.value.problems) == 5


# -- fuzzing --------------------------------------------------------------------------------------

JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
PATHS = st.sampled_from(sorted({path for path, _ in SPOILED.values()}))


@MANY
@given(JSON)
def test_any_json_is_refused_without_another_exception(value: Any) -> None:
    with pytest.raises(SpecificationError):
        from_json(json.dumps(value))
    with pytest.raises(SpecificationError):
        from_document(value)


@MANY
@given(st.text(max_size=40))
def test_any_text_is_refused_without_another_exception(text: str) -> None:
    with pytest.raises(SpecificationError):
        from_json(text)


@MANY
@given(PATHS, JSON)
def test_any_value_anywhere_is_read_or_refused_without_another_exception(path: str, value: Any) -> None:
    document = spoiled(path, value)
    for attempt in (lambda: from_json(json.dumps(document)), lambda: from_document(document)):
        try:
            found = attempt()
        except SpecificationError:
            continue
        else:
            assert from_json(to_json(found)) == found


@SOME
@given(PATHS, st.text(max_size=12))
def test_what_is_read_is_accepted_by_the_schema(path: str, value: str) -> None:
    """The schema is no stricter than the reader; the reader also checks meaning."""
    document = spoiled(path, value)
    try:
        from_document(document)
    except SpecificationError:
        return
    CHECKER.validate(document)


def test_a_budget_is_written_with_its_policy() -> None:
    swapping = specification(PURE, Budget.of_swapping("5%", largest_stratum=264_331))
    policy = to_document(swapping)["budget"]["policy"]
    strata = [{"rate": "1/20", "largest_stratum": 264_331}]
    assert policy == {"name": "permutation-swapping", "strata": strata, "bound": "paper"}


def test_a_swapping_policy_that_names_no_bound_is_the_papers() -> None:
    document = to_document(specification(PURE, Budget.of_swapping("5%", largest_stratum=4)))
    del document["budget"]["policy"]["bound"]
    assert from_document(document).budget.realised == ln(5 * 19)


def test_the_sharp_bound_survives_the_trip_and_carries_the_papers_beside_it() -> None:
    policy = PermutationSwapping(strata=(SwappedStrata(rate=Fraction(1, 2), largest_stratum=4),), bound="sharp")
    sharp = specification(PURE, Budget(policy=policy, paper_epsilon=policy.paper))
    document = to_document(sharp)
    assert (document["budget"]["exact"], document["budget"]["paper_epsilon_exact"]) == ("ln(3)", "ln(5)")
    assert from_document(document) == sharp


def test_a_bound_of_the_paper_that_is_not_that_of_its_policy_is_refused() -> None:
    policy = PermutationSwapping(strata=(SwappedStrata(rate=Fraction(1, 2), largest_stratum=4),), bound="sharp")
    document = to_document(specification(PURE, Budget(policy=policy, paper_epsilon=policy.paper)))
    document["budget"] |= {"paper_epsilon": 0.0, "paper_epsilon_exact": "0"}
    with pytest.raises(SpecificationError, match="is not ln\\(5\\), that of its own policy"):
        from_document(document)
