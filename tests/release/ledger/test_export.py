"""Exports come back without loss, tell the public only what is public, and fuzzed imports write nothing."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stirred.release.ledger import Ledger, LedgerError
from stirred.release.ledger.export import exported, from_json, imported
from stirred.spec.problems import StirredError
from tests.release.ledger.making import limit, pure, released, request, specification
from tests.spec.strategies import MANY


def filled(url: str) -> Ledger:
    ledger = Ledger.create(url, dataset="the register <b>", policy=limit("100"), who="ana")
    odd = {
        "text": 'line\nbreak "zebra" | <i> \u2028 é',
        "numbers": [1, -2.5e-300, 10**30, True, None],
        "deep": {"a": [{}]},
    }
    released(ledger, "1/3", parameters=odd, purpose="quarterly | tables\n<script>", inputs={"file": "ab" * 32})
    entry = ledger.reserve(request(specification=pure("ln(3)"), place="/secret/place"))
    ledger.draw(entry.id)
    ledger.abort(entry.id, reason="stopped")
    ledger.add(request(specification=specification("2", unit="household"), who="bo"))
    ledger.add(request(specification=None, derived_from=[1]))
    ledger.withdraw(7, reason="an error")
    return ledger


def test_an_import_is_the_same_ledger_on_either_storage(url: str, tmp_path: Path) -> None:
    ledger = filled(url)
    text = exported(ledger, "json")
    (tmp_path / "export.json").write_text(text, encoding="utf-8")
    copied = imported(tmp_path / "export.json", tmp_path / "copy.ledger")
    assert copied.store.rows() == ledger.store.rows()
    assert copied.store.documents() == ledger.store.documents()
    assert list(copied.entries()) == list(ledger.entries())
    assert copied.policy == ledger.policy
    assert exported(copied, "json") == text
    copied.add(request("1"))  # and it goes on from there
    assert copied.verify().is_sound


def test_an_import_never_replaces_anything(tmp_path: Path) -> None:
    ledger = filled(str(tmp_path / "a.ledger"))
    (tmp_path / "export.json").write_text(exported(ledger, "json"), encoding="utf-8")
    head = ledger.head
    with pytest.raises(LedgerError, match="already there"):
        imported(tmp_path / "export.json", tmp_path / "a.ledger")
    assert Ledger.open(tmp_path / "a.ledger").head == head


def test_registry_yaml_holds_every_release_and_the_total(tmp_path: Path) -> None:
    text = exported(filled(str(tmp_path / "a.ledger")), "opendp", curator="The Office")
    documents = list(yaml.safe_load_all(text))
    names = [document["deployment"]["name"] for document in documents]
    assert len(documents) == 4  # two with a specification of their own, two parts of the total
    assert names[2].endswith("everything together, entries 1, 4")
    first = documents[0]["deployment"]
    assert first["data_curator"] == "The Office"
    assert first["intended_use"] == "quarterly | tables &lt;script>"
    assert len(first["publication_date"]) == 10
    assert first["privacy_loss"]["privacy_parameters"]["rho"] >= 1 / 3


@pytest.mark.parametrize("format_", ["opendp", "markdown"])
def test_what_is_inside_stays_inside(tmp_path: Path, format_: str) -> None:
    text = exported(filled(str(tmp_path / "a.ledger")), format_)
    for secret in ("ana", "/secret/place", "ab" * 32, "stopped", "zebra"):
        assert secret not in text
    assert "<b>" not in text
    assert "<script>" not in text


def test_the_page_lists_releases_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    text = exported(filled(str(tmp_path / "a.ledger")), "markdown")
    assert "| noise | quarterly \\| tables &lt;script> | ρ²=0.334 | committed |" in text
    assert "| none: derived | committed |" in text
    assert "There is no one number for everything" in text
    assert "The ledger knows only the releases that are recorded in it." in text


def test_the_page_numbers_releases_from_one_beside_the_numbers_of_their_rows(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    ledger.set_policy(limit("10"), reason="begin")
    for budget in ("1", "2"):
        released(ledger, budget)
    text = exported(ledger, "markdown")
    table = text.partition("|---")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split(" | ")[:2] for line in table] == [["| 1", "2"], ["| 2", "5"]]
    assert "An entry has the number of the row of the ledger that opened it" in text


def test_the_public_is_not_told_how_to_use_the_command(tmp_path: Path) -> None:
    ledger = filled(str(tmp_path / "a.ledger"))
    ledger.add(request("1", sample="s", amplified=True))
    ledger.add(request("2", sample="s", amplified=True))
    for format_ in ("markdown", "opendp"):
        text = exported(ledger, format_)
        for words in ("Fix", "--", "`stirred"):
            assert words not in text.replace("|---", "").replace("---\nstatus", "")
    assert "the releases protect different units" in exported(ledger, "markdown")


# ---- broken and fuzzed imports ------------------------------------------------------------------


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    ledger = filled(str(tmp_path_factory.mktemp("tree") / "a.ledger"))
    found: dict[str, Any] = json.loads(exported(ledger, "json"))
    return found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not an export"),
        ("[]", "is not a table"),
        ("[" * 100_000, "not an export"),
        ('{"format": "stirred-ledger"}', "'rows' is missing"),
        ('{"format": "x", "schema_version": 1, "rows": [], "documents": {}}', "and not 'stirred-ledger'"),
        ('{"format": "stirred-ledger", "schema_version": 2, "rows": [], "documents": {}}', "of version 2"),
        ('{"format": "stirred-ledger", "schema_version": 1, "rows": [], "documents": {}}', "has no rows"),
        ('{"format": "stirred-ledger", "schema_version": NaN, "rows": [], "documents": {}}', "NaN is not a number"),
        ('{"format": "a", "format": "stirred-ledger", "schema_version": 1, "rows": [], "documents": {}}', "twice"),
        ('{"format": "stirred-ledger", "schema_version": ' + "9" * 5000 + ', "rows": [], "documents": {}}', "not an"),
    ],
)
def test_what_is_no_export_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "export.json").write_text(text, encoding="utf-8")
    with pytest.raises(LedgerError, match=words):
        imported(tmp_path / "export.json", tmp_path / "copy.ledger")
    assert [path.name for path in tmp_path.iterdir()] == ["export.json"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a tree."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@MANY
@given(st.data())
def test_an_import_with_anything_changed_is_refused_without_a_trace(tree: dict[str, Any], data: st.DataObject) -> None:
    changed = copy.deepcopy(tree)
    place = data.draw(st.sampled_from(places(tree)[1:]))
    holder: Any = changed
    for key in place[:-1]:
        holder = holder[key]
    if data.draw(st.booleans()):
        holder[place[-1]] = data.draw(values)
    elif isinstance(holder, list):
        holder.insert(place[-1], copy.deepcopy(holder[place[-1]]))
    else:
        del holder[place[-1]]
    if json.dumps(changed, sort_keys=True) == json.dumps(tree, sort_keys=True):
        return
    with pytest.raises(StirredError):
        from_json(json.dumps(changed))


@MANY
@given(st.text(max_size=40) | values.map(json.dumps))
def test_an_import_of_anything_is_refused_without_a_traceback(text: str) -> None:
    with pytest.raises(StirredError):
        from_json(text)


def test_an_import_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "export.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LedgerError, match="not text in UTF-8"):
        imported(tmp_path / "export.json", tmp_path / "copy.ledger")
    with pytest.raises(LedgerError, match="cannot read it"):
        imported(tmp_path / "missing.json", tmp_path / "copy.ledger")
    assert not (tmp_path / "copy.ledger").exists()


@pytest.mark.parametrize("format_", ["markdown", "opendp"])
def test_the_public_total_is_without_reservations(tmp_path: Path, format_: str) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    released(ledger, "3")
    spent = ledger.reserve(request("5"))
    ledger.draw(spent.id)
    ledger.abort(spent.id, reason="stopped")
    before = exported(ledger, format_).partition("This page is row")[0]
    assert "entries 1, 4" in before  # drawn, so it counts
    assert ("Entry 4 was drawn and not published" in before) is (format_ == "markdown")
    ledger.reserve(request("7"))
    assert exported(ledger, format_).partition("This page is row")[0] == before
    drawing = ledger.reserve(request("11"))
    ledger.draw(drawing.id)
    ledger.add(request(specification=None, derived_from=[drawing.id]))
    assert "ρ²=8" in exported(ledger, "markdown")
