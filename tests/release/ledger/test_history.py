"""What happened to an entry, and to the policy: every row is told, in order, and no total changes."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from stirred.cli.main import run
from stirred.release.ledger import Ledger, LedgerError, OverLimitError, Policy
from stirred.release.ledger.export import exported, imported
from stirred.release.ledger.row import GENESIS, SCHEMA_VERSION, GenesisFacts, next_row
from stirred.release.ledger.store import store_at
from tests.release.ledger.making import limit, released, request

Out = pytest.CaptureFixture[str]


def told(capsys: Out, *arguments: str) -> tuple[int, str, str]:
    code = run(["ledger", *arguments])
    out, err = capsys.readouterr()
    return code, " ".join(out.split()), err


# ---- the day a release was made elsewhere -------------------------------------------------------


def test_the_day_of_a_release_made_elsewhere_is_kept_beside_when_it_was_recorded(ledger: Ledger) -> None:
    entry = ledger.add(request(made="2011-03-24"))
    assert (entry.made, entry.day) == ("2011-03-24", "2011-03-24")
    assert entry.when[:4] == str(datetime.now(UTC).year)
    assert ledger.entry(1) == entry
    assert ledger.add(request("2", made=date(2012, 1, 2))).made == "2012-01-02"
    assert ledger.add(request("3")).made is None
    assert ledger.verify().is_sound


def test_a_published_entry_is_listed_as_published(ledger: Ledger, url: str, capsys: Out) -> None:
    entry = released(ledger, "1")
    assert "published" not in told(capsys, "show", url)[1]
    ledger.publish(entry.id, to="website")
    _, out, _ = told(capsys, "show", url)
    assert "the register: 1 entry " in out
    assert "published" in out.partition("Losses")[0]
    assert f"entry {entry.number}: noise, committed, published" in told(capsys, "show", url, "1")[1]
    _, out, _ = told(capsys, "total", url)
    assert " entry 1 " in out
    assert "entries" not in out


@pytest.mark.parametrize("text", ["2011-13-01", "yesterday", "", "2011", "24.3.2011", "2011-02-29", "2011-03-24T10:00"])
def test_what_is_no_date_is_refused_and_leaves_no_row(ledger: Ledger, text: str) -> None:
    with pytest.raises(LedgerError, match="is not a date"):
        ledger.add(request(made=text))
    assert ledger.head.number == 0


def test_a_day_to_come_is_refused_and_so_is_one_for_a_reservation(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", clock=lambda: datetime(2030, 5, 5, 12, tzinfo=UTC))
    with pytest.raises(LedgerError, match="2030-05-07 has not come yet"):
        ledger.add(request(made="2030-05-07"))
    assert ledger.add(request(made="2030-05-06")).made == "2030-05-06"  # somewhere it is tomorrow already
    with pytest.raises(LedgerError, match="was not made yet"):
        ledger.reserve(request(made="2030-05-01"))


def test_the_day_is_in_every_export_and_comes_back(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.add(request(made="2011-03-24"))
    (tmp_path / "x.json").write_text(exported(ledger, "json"), encoding="utf-8")
    copy = imported(tmp_path / "x.json", tmp_path / "b.ledger")
    assert list(copy.entries()) == list(ledger.entries())
    assert next(copy.entries()).made == "2011-03-24"
    assert "| 1 | 1 | 2011-03-24 | noise |" in exported(copy, "markdown")
    first = next(yaml.safe_load_all(exported(copy, "opendp")))
    assert first["deployment"]["publication_date"] == "2011-03-24"


def test_the_command_takes_a_day_and_shows_it(tmp_path: Path, capsys: Out) -> None:
    place = str(tmp_path / "a.ledger")
    told(capsys, "init", place, "--dataset", "d")
    before = Path(place).read_bytes()
    code, _, err = told(capsys, "add", place, "das-2020", "--when", "2021-8-12")
    assert (code, "'2021-8-12' is not a date. Fix: write such as 2021-08-12" in err) == (2, True)
    assert Path(place).read_bytes() == before
    assert told(capsys, "add", place, "das-2020", "--when", "2021-08-12")[0] == 0
    assert "2021-08-12" in told(capsys, "show", place)[1]
    assert "made 2021-08-12" in told(capsys, "show", place, "1")[1]
    assert json.loads(told(capsys, "show", place, "1", "--json")[1])["made"] == "2021-08-12"


def test_a_day_that_was_forged_into_a_row_is_no_fact(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.add(request(made="2011-03-24"))
    tree = json.loads(exported(ledger, "json"))
    rows = [tree["rows"][0]]
    facts = {**tree["rows"][1]["facts"], "made": "some day"}
    first = ledger.store.rows()[0]
    old = tree["rows"][1]
    forged = next_row(
        first, id_=old["id"], kind="add", entry=old["entry"], specification=old["specification"], facts=facts
    )
    tree["rows"] = [*rows, {**forged._asdict(), "facts": facts}]
    (tmp_path / "x.json").write_text(json.dumps(tree), encoding="utf-8")
    with pytest.raises(LedgerError, match="the facts of this add cannot be read: made"):
        imported(tmp_path / "x.json", tmp_path / "b.ledger")


# ---- publications -------------------------------------------------------------------------------


def test_every_publication_is_a_row_and_costs_nothing(ledger: Ledger) -> None:
    entry = released(ledger, "3")
    before, head = ledger.total(), ledger.head.number
    ledger.publish(entry.id, to="website", who="bo")
    done = ledger.publish(entry.id, to=" data portal ")
    assert ledger.head.number == head + 2
    assert ledger.total() == before
    assert (done.publications[0].to, done.publications[0].who) == ("website", "bo")
    assert [event.what for event in done.publications] == ["published to website", "published to data portal"]
    assert done.status == "committed"
    assert ledger.verify().is_sound
    assert ledger.withdraw(entry.id, reason="r").status == "withdrawn"


@pytest.mark.parametrize("state", ["reserved", "aborted", "withdrawn"])
def test_only_what_is_committed_is_published(ledger: Ledger, state: str) -> None:
    entry = released(ledger) if state == "withdrawn" else ledger.reserve(request())
    if state == "aborted":
        ledger.abort(entry.id, reason="r")
    if state == "withdrawn":
        ledger.withdraw(entry.id, reason="r")
    head = ledger.head
    with pytest.raises(LedgerError, match=f"an entry that is {state} cannot be published"):
        ledger.publish(entry.id, to="website")
    assert ledger.head == head


def test_a_publication_without_a_name_is_refused(ledger: Ledger) -> None:
    released(ledger)
    with pytest.raises(LedgerError, match="the place has no name"):
        ledger.publish(1, to=" ")


def test_publications_are_in_every_export_without_names_of_people(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", who="ana")
    entry = released(ledger)
    ledger.publish(entry.id, to="website | <i>", who="secretary")
    ledger.withdraw(entry.id, reason="a wrong table", who="secretary")
    (tmp_path / "x.json").write_text(exported(ledger, "json"), encoding="utf-8")
    copy = imported(tmp_path / "x.json", tmp_path / "b.ledger")
    assert list(copy.entries()) == list(ledger.entries())
    today = entry.when[:10]
    page = exported(copy, "markdown")
    assert f"published to website \\| &lt;i> on {today}; withdrawn on {today} |" in page
    first = next(yaml.safe_load_all(exported(copy, "opendp")))["deployment"]
    assert first["description"] == f"published to website | &lt;i> on {today}; withdrawn on {today}"
    assert first["publication_date"] == today
    for text in (page, exported(copy, "opendp")):
        assert "secretary" not in text
        assert "a wrong table" not in text


# ---- the history of an entry --------------------------------------------------------------------


def test_the_history_tells_who_did_what_when_and_why(tmp_path: Path, capsys: Out) -> None:
    moments = (datetime(2030, 1, day, 8, tzinfo=UTC) for day in range(1, 9))
    place = tmp_path / "a.ledger"
    ledger = Ledger.create(place, dataset="d", who="ana", clock=lambda: next(moments))
    entry = ledger.reserve(request(who="ana"))
    ledger.draw(entry.id, who="ana")
    ledger.abort(entry.id, reason="the power failed", who="bo")
    ledger.commit(entry.id, bundle="b", who="cy")
    ledger.publish(entry.id, to="website", who="di")
    ledger.withdraw(entry.id, reason="a wrong table", who="ed")
    code, out, _ = told(capsys, "show", str(place), "1")
    assert code == 0
    story = [
        "row 1 2030-01-02 08:00 UTC reserved, ana",
        "row 2 2030-01-03 08:00 UTC draw recorded, ana",
        "row 3 2030-01-04 08:00 UTC aborted, bo: the power failed",
        "row 4 2030-01-05 08:00 UTC committed, cy",
        "row 5 2030-01-06 08:00 UTC published to website, di",
        "row 6 2030-01-07 08:00 UTC withdrawn, ed: a wrong table",
    ]
    assert " ".join(story) in out
    facts = json.loads(told(capsys, "show", str(place), "1", "--json")[1])
    assert facts["who"] == "ana"
    assert facts["reason"] == "a wrong table"
    assert facts["history"][2] == {
        "row": 3,
        "what": "abort",
        "who": "bo",
        "when": "2030-01-04T08:00:00.000000+00:00",
        "reason": "the power failed",
        "to": "",
    }
    assert [event["what"] for event in facts["history"]] == [
        *("reserve", "draw", "abort", "commit", "publish", "withdraw")
    ]


def test_a_committed_entry_has_no_reason_left_from_an_abort(ledger: Ledger) -> None:
    entry = ledger.reserve(request())
    ledger.draw(entry.id)
    assert ledger.abort(entry.id, reason="thought dead").reason == "thought dead"
    assert ledger.commit(entry.id, bundle="b").reason == ""


# ---- the history of the policy ------------------------------------------------------------------


def test_every_change_of_policy_is_shown_with_who_and_why(tmp_path: Path, capsys: Out) -> None:
    place = str(tmp_path / "a.ledger")
    ledger = Ledger.create(place, dataset="d", who="ana", policy=limit("10"))
    ledger.set_policy(limit("20"), reason="the board decided", who="bo")
    ledger.set_policy(None, reason="the project ended", who="cy")
    assert [(c.number, c.who, c.reason, c.policy) for c in ledger.policy_changes] == [
        (0, "ana", "", limit("10")),
        (1, "bo", "the board decided", limit("20")),
        (2, "cy", "the project ended", None),
    ]
    code, out, _ = told(capsys, "policy", place)
    assert code == 0
    for words in (
        "ρ² ≤ 10 per person",
        "ρ² ≤ 20 per person",
        "(bo: the board decided)",
        "none (cy: the project ended)",
    ):
        assert words in out
    facts = json.loads(told(capsys, "policy", place, "--json")[1])
    assert [change["reason"] for change in facts["changes"]] == ["", "the board decided", "the project ended"]
    page = exported(ledger, "markdown")
    assert "| 1 | " in page.partition("## Limits")[2]
    assert "ρ² ≤ 20 per person" in page
    assert "the board decided" not in page


def test_a_page_of_a_ledger_that_never_had_a_policy_says_nothing_of_limits(ledger: Ledger) -> None:
    assert "## Limits" not in exported(ledger, "markdown")


def test_the_people_a_policy_names_stay_inside(tmp_path: Path) -> None:
    named = Policy.from_document({"who": ["secretary"], "invariants": {"acceptable": []}})
    page = exported(Ledger.create(tmp_path / "a.ledger", dataset="d", policy=named), "markdown")
    assert "no limit; may be held fixed: nothing" in page
    assert "secretary" not in page


# ---- a policy from before invariants had to be stated -------------------------------------------

OLD: dict[str, Any] = {"limits": [{"budget": "10", "output": "zcdp", "unit": "person"}]}


@pytest.fixture
def old(tmp_path: Path) -> Ledger:
    """A ledger whose policy has a limit and not a word on invariants."""
    facts = GenesisFacts(
        at="2025-01-01T00:00:00+00:00",
        who="ana",
        ledger="an-id",
        dataset="d",
        schema_version=SCHEMA_VERSION,
        policy=OLD,
    )
    row = next_row(None, id_="first", kind=GENESIS, entry="", specification="", facts=facts.stored())
    store_at(tmp_path / "old.ledger").create([row], {})
    return Ledger.open(tmp_path / "old.ledger")


def test_such_a_policy_is_shown_with_its_remedy_and_can_be_replaced(old: Ledger, tmp_path: Path, capsys: Out) -> None:
    old.add(request("3"))
    code, out, _ = told(capsys, "policy", old.name)
    assert code == 0
    assert "ρ² ≤ 10 per person" in out
    assert "ρ²=3 is spent and 7 is left" in out
    assert "No release is allowed under this policy" in out
    assert "add [invariants] with acceptable" in out
    facts = json.loads(told(capsys, "policy", old.name, "--json")[1])
    assert facts["policy"] == OLD
    assert "nothing says what may be held fixed" in facts["problems"][0]["what"]
    for use in (["show", old.name], ["total", old.name], ["verify", old.name], ["export", old.name]):
        assert told(capsys, *use)[0] == 0
    assert "not stated" in exported(old, "markdown")
    (tmp_path / "new.toml").write_text(
        "[[limits]]\nbudget = 10\noutput = 'zcdp'\nunit = 'person'\n[invariants]\nacceptable = []\n", encoding="utf-8"
    )
    code, out, _ = told(capsys, "policy", old.name, str(tmp_path / "new.toml"), "--reason", "state the invariants")
    assert code == 0
    assert "No release is allowed" not in out
    assert old.reserve(request("1")).status == "reserved"


def test_such_a_policy_refuses_releases_and_lets_free_products_through(old: Ledger) -> None:
    whole = old.add(request("3"))
    with pytest.raises(OverLimitError, match="nothing says what may be held fixed"):
        old.reserve(request("1"))
    assert old.reserve(request(specification=None, derived_from=[whole.id])).status == "reserved"
    with pytest.raises(LedgerError, match="nothing says what may be held fixed"):
        Policy.from_document(OLD)
