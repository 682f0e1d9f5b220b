"""One list of doubts: what refuses, what a person may accept, and by which name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stirred.spec.doubts import MEANINGS, Doubt, DoubtError, accepted_in_words, refuse_doubts
from stirred.spec.problems import setting

TELLS = Doubt(kind="tells", about="zip", what="zip determines county", remedy="leave zip out")
NOTE = Doubt(kind="similar-values", about="town", what="two towns look alike", remedy="correct them", refuses=False)
FINAL = Doubt(kind="nothing-moves", what="nothing can be swapped", remedy="match on less", final=True)


def refusals(*doubts: Doubt, accept: tuple[str, ...] = ()) -> list[str]:
    with pytest.raises(DoubtError) as caught:
        refuse_doubts(doubts, accept=accept)
    assert caught.value.exit_code == 2
    return [str(problem) for problem in caught.value.problems]


def test_a_doubt_refuses_until_its_name_is_accepted() -> None:
    (said,) = refusals(TELLS, NOTE)
    assert said.startswith("zip: zip determines county. Fix: leave zip out; or accept it: --accept tells:zip ")
    assert said.endswith(' (in a plan: accept = ["tells:zip"] under [release]).')
    assert refuse_doubts([TELLS, NOTE], accept=["tells:zip"]) == (TELLS,)


def test_a_final_doubt_cannot_be_accepted_and_does_not_say_how() -> None:
    assert not any("--accept" in said for said in refusals(FINAL))
    first, second = refusals(FINAL, accept=("nothing-moves",))
    assert first.startswith("nothing-moves: nothing can be swapped")
    assert "no doubt that can be accepted is called 'nothing-moves'" in second


@pytest.mark.parametrize("name", ["tells:county", "similar-values:town", "tells", "TELLS:zip"])
def test_a_name_that_is_no_standing_doubt_is_refused_and_the_names_are_listed(name: str) -> None:
    (said,) = refusals(TELLS, NOTE, accept=("tells:zip", name))
    assert f"no doubt that can be accepted is called '{name}'" in said
    assert "the doubts are tells:zip" in said


def test_all_refusals_are_said_at_once() -> None:
    assert len(refusals(TELLS, FINAL, accept=("other",))) == 3


def test_the_condition_names_what_was_accepted_and_nothing_from_the_file() -> None:
    assert accepted_in_words([]) == ""
    assert accepted_in_words(["tells:zip", "tells:zip"]).endswith(
        "by name: tells:zip (zip shows which records were swapped, and from where)"
    )


def test_every_doubt_that_can_be_accepted_has_a_meaning_for_readers() -> None:
    kinds = set()
    for path in (Path(__file__).resolve().parents[2] / "src" / "stirred").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Doubt":
                given = {each.arg: getattr(each.value, "value", None) for each in node.keywords}
                if given.get("refuses", True) is not False and not given.get("final"):
                    kinds.add(given["kind"])
    # These are named by a variable, which the tree does not tell.
    by_variable = {
        "contradicted-by",
        "contradicts",
        "exposed",
        "more-runs",
        "nothing-promised",
        "partly-tells",
        "tells",
    }
    assert {*kinds - {None}} | by_variable == {*MEANINGS}


def test_a_long_remark_that_doubts_share_is_said_once() -> None:
    remark = f"{'this looks inside the file ' * 3}again"
    first, second = refusals(
        *(Doubt(kind="tells", about=name, what="told", remedy="leave it out", remark=remark) for name in "ab")
    )
    assert f"leave it out ({remark}); or accept it: --accept tells:a" in first
    assert "leave it out; or accept it: --accept tells:b" in second


def test_python_names_arguments_where_the_command_line_names_options() -> None:
    with pytest.raises(DoubtError) as caught:
        refuse_doubts(
            [
                Doubt(
                    kind="identifier",
                    about="mark",
                    what='"mark" is unique',
                    remedy=f"name it with {setting('id', 'mark')}",
                )
            ]
        )
    assert "--id mark; or accept it: --accept identifier:mark" in str(caught.value.problems[0])
    assert 'with id=["mark"]; or accept it: accept=["identifier:mark"]' in str(caught.value)
