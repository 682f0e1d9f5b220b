"""The design of a file is read as R's survey package reads it."""

from __future__ import annotations

from typing import Any

import pytest

from stirred.spec.problems import SpecificationError
from stirred.survey.sample_design import SurveyDesign


def test_rows_are_their_own_clusters_without_ids() -> None:
    drawn = SurveyDesign(strata=("h",), fpc=("N",)).drawn({"h": ["a", "a", "b"], "N": [10, 10, 3]})
    (stage,) = drawn.stages
    assert stage.stratum.tolist() == [0, 0, 1]
    assert stage.unit.tolist() == [0, 1, 2]
    assert stage.sampled.tolist() == [2, 2, 1]
    assert drawn.weights.tolist() == [5, 5, 3]


def test_fractions_and_sizes_are_the_same_correction() -> None:
    rows = {"h": [1, 1, 2], "N": [10, 10, 3], "f": [0.2, 0.2, 1 / 3]}
    by_size = SurveyDesign(strata=("h",), fpc=("N",)).drawn(rows)
    by_share = SurveyDesign(strata=("h",), fpc=("f",)).drawn(rows)
    assert by_share.weights == pytest.approx(by_size.weights)
    assert by_share.stages[0].population == pytest.approx(by_size.stages[0].population)


def test_weights_of_two_stages_multiply_and_the_second_is_nested_in_the_first() -> None:
    rows = {"psu": [1, 1, 2, 2], "ssu": [1, 2, 1, 2], "M": [6] * 4, "N": [4, 4, 10, 10]}
    drawn = SurveyDesign(ids=("psu", "ssu"), fpc=("M", "N")).drawn(rows)
    assert drawn.stages[1].unit.tolist() == [0, 1, 2, 3]
    assert drawn.stages[1].sampled.tolist() == [2, 2, 2, 2]
    assert drawn.weights.tolist() == [6, 6, 15, 15]


def test_cluster_numbers_that_begin_again_need_nest() -> None:
    rows = {"h": [1, 1, 2, 2], "psu": [1, 2, 1, 2], "w": [1.0] * 4}
    with pytest.raises(SpecificationError, match="more than one stratum"):
        SurveyDesign(ids=("psu",), strata=("h",), weights="w").drawn(rows)
    drawn = SurveyDesign(ids=("psu",), strata=("h",), weights="w", nest=True).drawn(rows)
    assert drawn.stages[0].unit.tolist() == [0, 1, 2, 3]
    assert drawn.stages[0].population is None


@pytest.mark.parametrize(
    ("given", "rows", "told"),
    [
        ({"fpc": ("N",)}, {"N": [10, 0.5]}, "some values are fractions"),
        ({"fpc": ("N",)}, {"N": [10, 11]}, "more than one population size"),
        ({"fpc": ("N",)}, {"N": [1.5, 1.5]}, "fewer units than were drawn"),
        ({"fpc": ("N",)}, {"N": ["x", "y"]}, "not a number"),
        ({"weights": "w"}, {"w": [1.0, float("nan")]}, "missing"),
        ({"weights": "w"}, {"w": [1.0, -1.0]}, "below 0"),
        ({"weights": "w"}, {"v": [1.0]}, "no column 'w'"),
        ({}, {}, "with which probability"),
        ({"weights": "w", "strata": ("a", "b")}, {}, "2 columns for 1 stage"),
    ],
)
def test_designs_that_make_no_sense_are_refused(given: dict[str, Any], rows: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecificationError, match=told):
        SurveyDesign(**given).drawn(rows)
