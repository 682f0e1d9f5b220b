"""What filled-in answers do to a loss: by enumeration, and in plans that say or do not say how it was done."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from stirred.data.microdata import Microdata
from stirred.spec.exact import exact
from stirred.spec.problems import StirredError
from stirred.survey.amplify import amplify
from stirred.survey.designs import SRSWOR
from stirred.survey.estimates.mechanism import SurveyEstimates
from stirred.survey.imputation import imputation_loss
from stirred.survey.refusals import NotSeparable


def survey(**settings: Any) -> SurveyEstimates:
    given: dict[str, Any] = {
        "epsilon": 1, "attest": ["design-weights"], "weight_bounds": [2, 2], "variance": "none",
        "estimates": [{"kind": "total", "variable": "y", "bounds": [0, 1]}],
    }  # fmt: skip
    return SurveyEstimates(**{**given, **settings})


def sample(**more: Any) -> Microdata:
    own = pl.DataFrame({"w": [2.0, 2.0, 2.0], "y": [0, 1, 1], "y_imputed": [0, 0, 1]}).with_columns(**more)
    return Microdata(households=own, design={"weights": "w"}, record="person")


@pytest.mark.parametrize("settings", [{}, {"imputed": "y_imputed"}])
def test_flagged_answers_are_refused_until_the_plan_says_how_they_came_about(settings: dict[str, Any]) -> None:
    with pytest.raises(StirredError, match="nothing says how"):
        survey(**settings).plan(sample())
    survey(**settings, imputation="own-values").plan(sample())
    survey(**settings).plan(sample(y_imputed=pl.lit(0)))  # nothing was filled in


def test_a_flag_column_that_is_not_there_is_told() -> None:
    with pytest.raises(StirredError, match="flag"):
        survey(imputed="flag", imputation="own-values").plan(sample())


def test_the_noise_of_a_hot_deck_covers_every_copy() -> None:
    plain, deck = (
        survey(imputation=method, donor_cap=cap, attest=["design-weights", "fixed-donors"]).plan(sample())
        for method, cap in (("own-values", None), ("hot-deck", 3))
    )
    one, other = (plan.estimates[0].queries["top"] for plan in (plain, deck))
    assert other.loss == one.loss / 4  # in noise 4 times as wide, for the same promised loss
    assert deck.epsilon == plain.epsilon == imputation_loss(0, other.loss, "hot-deck", donor_cap=3)
    assert "4 times" in str(deck.specification.budget.policy)
    # By enumeration: three records that copy the first answer, which changes.
    moved = 2 * 100 * 4  # weights of 2 in steps of 1/100, 4 records
    assert moved * other.loss / other.one == 1


def test_a_sample_that_amplifies_owes_the_ledger_all_copies() -> None:
    """Three of six drawn: what is amplified is the loss of a person with all copies, before and after the plan."""
    amplified = {"setting": 11, "sample": "s", "sampling": {"design": "srswor", "n": 3, "N": 6},
                 "attest": ["design-weights", "random-sample", "secret-sample", "fixed-donors"]}  # fmt: skip
    plan = survey(imputation="hot-deck", donor_cap=1, **amplified).plan(sample())
    assert plan.sampled is not None
    assert float(amplify(plan.sampled[1]["inner"], SRSWOR(3, 6)).epsilon) == pytest.approx(1)
    assert plan.mechanism.inner_loss == 2 * plan.estimates[0].queries["top"].loss
    assert plan.mechanism.attackers[0] == ("knows nothing", "1.000000")


def test_nobody_is_listed_who_believes_less_than_the_design_says() -> None:
    attest = ["design-weights", "random-sample", "secret-sample"]
    shown = {
        there: [name for name, _ in survey(setting=11, attest=attest, sample="s", sampling=drawn).attackers]
        for there in (4, 12)
        if (drawn := {"design": "srswor", "n": 3, "N": there})
    }
    assert shown[12] == ["knows nothing", "believes", "nosy neighbour", "journalist"]
    assert shown[4] == ["knows nothing", "nosy neighbour", "journalist"]  # 1/2 is below the rate, 3/4


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"imputation": "hot-deck"}, r"NotSeparable.*donor_cap"),
        ({"imputation": "hot-deck", "donor_cap": 2}, "chosen without regard to the answers"),
        ({"donor_cap": 2, "attest": ["design-weights", "fixed-donors"]}, "only a hot deck has donors"),
    ],
)
def test_settings_that_hide_copies_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(StirredError, match=told):
        survey(**settings)


def test_a_hot_deck_without_a_cap_is_refused_by_its_name() -> None:
    with pytest.raises(NotSeparable, match="donor_cap") as caught:
        imputation_loss(0, 1, "hot-deck")
    assert caught.value.counterexamples[0].loss == 4


@pytest.mark.parametrize(("fitted", "method", "told"), [(0, "guess", "no method 'guess'"), (1, "hot-deck", "a model")])
def test_a_loss_of_imputation_that_cannot_be_is_refused(fitted: int, method: str, told: str) -> None:
    assert imputation_loss("1/2", 1, "model") == exact("3/2")
    with pytest.raises(StirredError, match=told):
        imputation_loss(fitted, 1, method, donor_cap=1)
