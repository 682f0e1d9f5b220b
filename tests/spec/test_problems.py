"""A message holds the settings that it names as data, and every reader gets them as they write them."""

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stirred.spec.doubts import Doubt, DoubtError, refuse_doubts
from stirred.spec.problems import (
    NamedSetting,
    Problem,
    SpecificationError,
    in_option,
    in_plan,
    in_python,
    marked,
    option_names,
    setting,
    unknown_name,
    written,
)
from tests.spec.strategies import SOME

KEEP = Problem(what="it tells", where="zip", remedy=f"keep it out of {setting('hold')}; or {setting('id', 'zip code')}")


def test_options_plans_and_python_are_named_in_their_own_form() -> None:
    assert KEEP.remedy == "keep it out of --hold; or --id 'zip code'"
    assert KEEP.written(in_plan).endswith('keep it out of hold under [mechanism]; or id = ["zip code"] under [data].')
    assert str(SpecificationError([KEEP])).endswith('keep it out of hold=; or id=["zip code"].')


def test_settings_stay_data_in_a_problem_that_is_placed_changed_or_sent_to_another_process() -> None:
    python = 'id=["zip code"]'
    for same in (KEEP.inside("homes.csv"), replace(KEEP, what="it shows"), pickle.loads(pickle.dumps(KEEP))):
        assert python in same.written(in_python)
    further = Problem(what="x", where="y", remedy=f"look again, and {marked(KEEP.remedy)}")
    assert python in further.written(in_python)


def test_the_place_of_an_option_is_the_name_of_its_argument_in_python() -> None:
    with pytest.raises(DoubtError) as caught:
        refuse_doubts([], accept=["tells:zip"])
    (problem,) = caught.value.problems
    assert problem.where == "--accept"
    assert str(caught.value).startswith("accept: no doubt")


def test_a_doubt_about_a_plan_file_names_the_lines_to_write() -> None:
    doubt = Doubt(kind="unit", about="hid", what="several rows", remedy=f"say so: {setting('unit', 'person')}")
    assert doubt.problem_of_plan.remedy == (
        'say so: unit = "person" under [mechanism]; or accept it: accept = ["unit:hid"] under [release]'
    )
    assert doubt.remedy == "say so: --unit person"


@SOME
@given(st.text(), st.text(max_size=5))
def test_any_name_can_be_named_and_is_read_back_from_its_option(name: str, key: str) -> None:
    assert NamedSetting("id", (name,)) in _found(f"a {setting('id', name)} b")
    Problem(what=f"\ue000{key}\ue001{name}", where=f"\ue000[{key}]\ue001", remedy=f"\ue000{name}").written(in_python)


def _found(text: str) -> list[NamedSetting]:
    found: list[NamedSetting] = []
    written(text, lambda named: found.append(named) or "")  # type: ignore[func-returns-value]
    return found


def test_names_with_commas_and_blanks_are_one_word_of_the_shell() -> None:
    assert in_option(NamedSetting("accept", ("tells:size, all",))) == "--accept '\"tells:size, all\"'"
    assert option_names('"tells:size, all", zip') == ["tells:size, all", "zip"]


def test_an_unknown_name_is_answered_with_the_nearest_and_all_choices() -> None:
    error = unknown_name("D_Mul", ["D_Mult", "D_NoR"], where="output", called="a measure")
    assert str(error) == "output: 'D_Mul' is not a measure. Fix: did you mean 'D_Mult'? There are: D_Mult, D_NoR."
