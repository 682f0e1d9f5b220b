"""What is held fixed need not be published: words about a survey do not say that its frame is."""

from __future__ import annotations

import polars as pl

from stirred.data.microdata import Microdata
from stirred.spec.brief import promise
from stirred.spec.explain import NOT_PROTECTED, explain
from stirred.survey.estimates.mechanism import SurveyEstimates


def test_the_frame_of_a_survey_is_called_held_fixed_and_not_published() -> None:
    data = Microdata(households=pl.DataFrame({"w": [2.0] * 4, "y": [0, 1, 1, 0]}), design={"weights": "w"})
    survey = SurveyEstimates(
        epsilon=1, attest=["design-weights"], weight_bounds=[1, 5],
        estimates=[{"kind": "total", "variable": "y", "bounds": [0, 1]}],
    )  # fmt: skip
    specification = survey.plan(data).specification
    words = explain(specification)
    assert any(item.startswith("the frame of the survey") for item in words.not_protected)
    assert str(words).startswith(f"{NOT_PROTECTED}:\n  - ")
    assert "held fixed" in NOT_PROTECTED
    assert "or taken as known" in NOT_PROTECTED
    (where,) = (each.answer for each in words.answers if each.question == "where")
    assert "held fixed" in where
    assert "publish" not in where + promise(specification)
