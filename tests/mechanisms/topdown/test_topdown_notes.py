"""What a plan notes without refusing: attributes that nothing measures; and what it takes a record for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stirred.mechanisms.registry import settings_for
from stirred.spec.problems import StirredError
from tests.mechanisms.topdown.people import people, topdown
from tests.world import stirred


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


@pytest.mark.parametrize(("section", "unit"), [("", "household"), ('record = "person"\n', "person")])
def test_a_file_of_households_alone_is_counted_as_households(section: str, unit: str, tmp_path: Path) -> None:
    """The promise was for one person, of a file that the plan called households."""
    (tmp_path / "homes.csv").write_text("ward,tenure\na,own\na,rent\nb,own\n", encoding="utf-8")
    (tmp_path / "plan.toml").write_text(
        f'[data]\nhouseholds = "homes.csv"\n{section}[mechanism]\nname = "topdown"\nlevels = ["ward"]\n'
        'areas = "areas.csv"\nattributes = ["tenure"]\nvalues = { tenure = ["own", "rent"] }\nrho = "1"\n'
        '[release]\nout = "out"\n',
        encoding="utf-8",
    )
    (tmp_path / "areas.csv").write_text("ward\na\nb\n", encoding="utf-8")
    done = stirred("plan", "plan.toml", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["specification"]["input_premetric"]["unit"] == unit
