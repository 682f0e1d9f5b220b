"""What a plan notes without refusing: attributes that nothing measures, and areas with a code of another."""

from __future__ import annotations

import polars as pl
import pytest

from stirred.mechanisms.registry import settings_for
from stirred.spec.problems import StirredError
from tests.mechanisms.topdown.people import people, topdown, wards


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


def test_a_code_in_several_areas_is_noted_where_most_are_in_one() -> None:
    apart = wards().with_columns(
        pl.concat_str("region", "district").alias("district"), pl.concat_str("region", "district", "ward").alias("ward")
    )
    slip = pl.concat([apart, pl.DataFrame({"region": ["S"], "district": ["Nd2"], "ward": ["Nd21"]})])
    records = people().with_columns(
        pl.concat_str("region", "district").alias("district"), pl.concat_str("region", "district", "ward").alias("ward")
    )
    assert topdown(area_list=apart).plan(records).doubts == ()
    (doubt,) = topdown(area_list=slip).plan(records).doubts
    assert (doubt.name, doubt.refuses) == ("several-parents:district", False)
    assert doubt.what.startswith('"Nd2" is in more than one region')
    assert "Nd2" not in doubt.public
    # Wards 1 to 4 are in all districts: that is how they are numbered.
    assert topdown().plan(people()).doubts == ()


def test_a_setting_that_does_not_exist_is_told_with_all_that_do() -> None:
    with pytest.raises(StirredError, match=r'"attributes", "budget", "rho".*"levels".*"publish"'):
        settings_for("topdown", {"levels": ["ward"], "attributes": ["sex"], "colour": 1})
