"""The picture of a comparison shows what was measured, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from stirred.report.comparison import _picture, risks
from stirred.risk.attacks import DrawRisk, PlanRisk
from stirred.risk.reidentification import VULNERABLE, LinkSums, Reidentified


@pytest.mark.parametrize("measured", [True, False])
def test_what_was_not_measured_is_no_bar_of_0(measured: bool) -> None:
    """One area has no other to compare with, and of nobody who is matched nobody is right or wrong."""
    matched = LinkSums(name=VULNERABLE, records=3, putative=2.0 * measured, confirmed=0.0, modal=0.0, proportional=0.0)
    rebuilt = {
        "agreement": 0.5, "agreement_by_chance": 0.25 if measured else None, "share_of_persons_certain": 0.5,
        "share_of_areas_with_one_solution": 0.5,
    }  # fmt: skip
    faced = PlanRisk(drawn=DrawRisk(reconstruction=rebuilt, reidentified=Reidentified(strata=(matched,))))
    drawn = _picture(cast(Any, [SimpleNamespace(name="a plan")]), [faced])
    assert "reconstructed, right" in drawn
    assert ("the same by chance" in drawn) == ("vulnerable, right" in drawn) == measured
    assert ["persons who are certain, at least", "50.0%"] in risks([faced])
