"""A mechanism that hands over no more than it must is compared by its promise alone."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from stirred.data.problems import PlanError
from stirred.inference.swap_moments import expected_errors
from stirred.mechanisms.protocol import Mechanism, Settings
from stirred.mechanisms.records.laws.permutation import PermutationSwap
from stirred.report.comparison import comparison_page, rows
from stirred.utility.comparison import compare_mechanisms

HOMES = pl.DataFrame({"size": [1] * 6, "county": list("AAABBC"), "tenure": list("oorror")})
OURS = PermutationSwap(match=["size"], swap=["county"], rate="1/2")


class Foreign(Mechanism):
    """Promises what our swap does and says nothing else."""

    settings_model = Settings

    def plan(self, data: Any, *, doubts: bool = True) -> Any:
        plan = OURS.plan(data, doubts=doubts)
        return SimpleNamespace(specification=plan.specification, epsilon=plan.epsilon, moved=None)


Foreign.__abstractmethods__ = frozenset()


def test_a_mechanism_of_others_stands_beside_ours() -> None:
    beside = [("ours", OURS), ("theirs", Foreign())]  # type: ignore[abstract]
    ours, theirs = compare_mechanisms(
        HOMES, beside, errors=partial(expected_errors, tables=[("county", "tenure")], source="margins")
    )
    assert len(ours.errors) == 1
    assert (theirs.areas, theirs.changed, theirs.smallest_area, theirs.errors) == (None, None, None, ())
    header, lines = rows([ours, theirs])
    assert lines[1][:3] == ["theirs", "epsilon 1.70", "ε=1.70"]
    assert lines[1][-1] == "not computed"
    assert len(header) == len(lines[1])
    shown = comparison_page("both", [ours, theirs], source="margins")
    assert "theirs beside ours: equal in all five blocks" in shown
    assert "<li>theirs: a 5% test has power at most " in shown.partition("What could be learned")[2]


def test_errors_that_have_no_closed_form_are_refused() -> None:
    with pytest.raises(PlanError, match="the errors of this mechanism have no closed form"):
        Foreign().expected_error(HOMES, variables=["county"], source="margins")  # type: ignore[abstract]
