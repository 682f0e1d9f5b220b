"""What a plan notes without refusing: attributes that nothing measures."""

from __future__ import annotations

import pytest

from stirred.mechanisms.registry import settings_for
from stirred.spec.problems import StirredError
from tests.mechanisms.topdown.people import people, topdown


@pytest.mark.parametrize(
    ("queries", "publish", "noted"),
    [
        (["total", "sex"], ["records"], ["unmeasured:age", "unmeasured:work"]),
        (["total", "sex * age", "work"], ["records"], []),
        (["total", "detailed"], ["records"], []),
        (["total", "sex"], ["measurements", "estimates"], []),
    ],
)
def test_attributes_that_no_query_counts_are_noted_where_records_have_them(
    queries: list[str], publish: list[str], noted: list[str]
) -> None:
    plan = topdown(queries=queries, publish=publish).plan(people())
    assert [doubt.name for doubt in plan.doubts] == noted
    assert not any(doubt.refuses for doubt in plan.doubts)


def test_a_setting_that_does_not_exist_is_told_with_all_that_do() -> None:
    with pytest.raises(StirredError, match=r'"attributes", "budget", "rho".*"levels".*"publish"'):
        settings_for("topdown", {"levels": ["ward"], "attributes": ["sex"], "colour": 1})
