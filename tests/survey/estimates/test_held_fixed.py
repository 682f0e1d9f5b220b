"""What is held fixed need not be published: words about a survey do not say that its frame is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.report.transparency import transparency
from stirred.spec.composition import compose
from stirred.spec.explanation import NOT_PROTECTED, explain, promise
from stirred.spec.multiverse import Verdict
from stirred.spec.problems import StirredError
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


SAMPLE = pl.DataFrame(
    {"w": [2.0] * 8, "w2": [2.0] * 8, "y": [0, 1] * 4, "region": list("aaaabbbb"), "size": list("abababab")}
)


def promised(design: dict[str, Any], **settings: Any) -> Any:
    asked: dict[str, Any] = {"attest": ["design-weights"], "weight_bounds": [1, 5], **settings}
    survey = SurveyEstimates(epsilon=1, estimates=[{"kind": "total", "variable": "y", "bounds": [0, 1]}], **asked)
    return survey.plan(Microdata(households=SAMPLE, design=design)).specification


STRATIFIED = {"design": "stratified", "n": "4,4", "N": "8,8"}
ON_FRAME = {"setting": 11, "sampling": STRATIFIED, "sample": "s", "variance": "none",
            "attest": ["design-weights", "random-sample", "secret-sample"]}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "one", "other"),
    [({}, {"strata": ["region"]}, {"strata": ["size"]}), (ON_FRAME, {"strata": ["region"]}, {"strata": ["size"]}),
     ({"variance": "none"}, {"weights": "w"}, {"weights": "w2"})],
)  # fmt: skip
def test_what_is_held_fixed_of_strata_or_weights_by_other_columns_is_something_else(
    settings: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    ours, theirs = (promised({"weights": "w", **columns}, **settings) for columns in (one, other))
    assert ours.multiverse == promised({"weights": "w", **one}, **settings).multiverse
    assert ours.multiverse.refines(theirs.multiverse).verdict is Verdict.CANNOT_TELL
    both = compose([ours, theirs]).specification.multiverse.invariants
    assert {*both} == {*ours.multiverse.invariants, *theirs.multiverse.invariants}
    coarser = ours.with_flavor(domain=replace(ours.domain, prepared=(("region", "grouped"),)))
    both = compose([ours, coarser]).specification.multiverse.invariants
    assert len(both) == 2 * len(ours.multiverse.invariants)


@pytest.mark.parametrize(
    "drawn", [{"design": "srswr", "n": 8, "N": 16}, {"design": "systematic", "step": 2, "N": 16, "order": "known"}]
)
def test_a_draw_without_strata_is_not_that_of_a_file_with_strata(drawn: dict[str, Any]) -> None:
    given = {**ON_FRAME, "sampling": drawn}
    assert promised({"weights": "w"}, **given)
    with pytest.raises(StirredError, match=f"it has 2 strata, and {drawn['design']} draws without strata"):
        promised({"weights": "w", "strata": ["region"]}, **given)


def test_a_survey_without_clusters_does_not_speak_of_them() -> None:
    rows, clusters = (
        promised({"weights": "w", "strata": ["region"], **ids}, unit="person", most_in_cluster=most)
        for ids, most in (({}, None), ({"ids": ["size"], "nest": True}, 4))
    )
    assert "the number of sampled persons in each stratum" in str(explain(rows))
    assert "cluster" not in str(explain(rows))
    assert "the number of sampled clusters in each stratum" in str(explain(clusters))
    # A release made before has the other words, and the same thing held fixed: the name decides.
    one = rows.multiverse.invariants[-1]
    assert one == replace(one, description="number of sampled clusters in each stratum")


def test_what_is_exact_does_not_name_the_frame() -> None:
    survey = SurveyEstimates(
        epsilon=1, attest=["design-weights"], weight_bounds=[1, 5],
        estimates=[{"kind": "total", "variable": "y", "bounds": [0, 1]}],
    )  # fmt: skip
    plan = survey.plan(Microdata(households=SAMPLE, design={"weights": "w"}))
    assert plan.unchanged.startswith("nothing; held fixed, and so not protected, but not published: the frame of")
    shown = transparency(type(survey), {}, plan.specification, code="stirred 1", exact=plan.published_figures)
    assert next(each.words for each in shown if each.what == "what is exact").startswith("nothing; held fixed")
