"""Assumptions that the same ledger contradicts: no total rests on them, and a plan is told beforehand."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stirred import PermutationSwap
from stirred.cli.main import run as command
from stirred.mechanisms.records.steps.response import ResponseSwap
from stirred.mechanisms.tables.cellkey.design import design_ptable
from stirred.mechanisms.tables.cellkey.mechanism import CellKey
from stirred.mechanisms.tables.noise.mechanism import NoisyTables
from stirred.release.ledger import Ledger, LedgerError, Policy
from stirred.release.ledger.export import exported
from stirred.release.plan_file import plan_from
from stirred.release.prepared import Prepared, prepare
from stirred.release.reservation import ledger_doubts
from stirred.release.run import release_request
from stirred.spec import Margin, Multiverse, Named, Specification
from stirred.spec.composition import compose
from stirred.spec.document import from_json, to_json
from stirred.spec.doubts import with_accepted_names
from stirred.spec.problems import StirredError
from stirred.spec.specification import KEYS_ALONE, ONE_RUN, KeysAlone, Unpublished
from tests.release.ledger.making import request, specification
from tests.world import households

ROLES: dict[str, Any] = {"match": ["size"], "swap": ["county"], "rate": "1/2"}
PLAIN = PermutationSwap(**ROLES)
RESPONSE = ResponseSwap(**ROLES, respond="tenure", values=["owned", "rented", "free"], change="1/5")
UNPUBLISHED = Unpublished(figure=Margin(of="household", variables=("tenure",)))
HOMES = households(60).drop("hid")


def promised(swap: PermutationSwap | ResponseSwap) -> Specification:
    return swap.plan(HOMES).specification


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "homes.ledger", dataset="homes")


def run_of(swap: PermutationSwap | ResponseSwap, *, settings: dict[str, Any] | None = None, file: str = "a") -> Any:
    parameters = {"mechanism": settings or {"rate": "1/2"}, "data": {"name": "homes"}}
    return request(specification=promised(swap), parameters=parameters, inputs={"households": file})


def test_what_a_promise_relies_on_is_data_and_stands_among_its_assumptions() -> None:
    relied = promised(RESPONSE)
    assert relied.relies_on == (ONE_RUN, UNPUBLISHED)
    assert promised(PLAIN).relies_on == (ONE_RUN,)
    for one in relied.relies_on:
        assert one.words in relied.assumptions
    assert from_json(to_json(relied)) == relied


@pytest.mark.parametrize("response_first", [True, False])
def test_a_swap_that_publishes_what_a_response_protects_is_told_in_the_total(
    ledger: Ledger, response_first: bool
) -> None:
    for swap in (RESPONSE, PLAIN) if response_first else (PLAIN, RESPONSE):
        ledger.add(request(specification=promised(swap)))
    response, plain = (1, 2) if response_first else (2, 1)
    found = ledger.total()
    (one,) = found.contradicted
    assert (one.reliance, one.entries, one.by, one.certain) == (UNPUBLISHED, (response,), (plain,), True)
    assert one.then == (
        f"Entry {plain} publishes the counts of tenure exactly. The loss of entry {response} then holds only between "
        "files that agree on them, and the counts of tenure are not protected."
    )
    assert found.specification is not None
    assert UNPUBLISHED.words not in found.specification.assumptions
    assert UNPUBLISHED not in found.specification.relies_on
    assert "Contradicted, and what then holds" in exported(ledger, "markdown")


def test_a_response_beside_another_response_is_contradicted_by_nothing(ledger: Ledger) -> None:
    ledger.add(request(specification=promised(RESPONSE)))
    ledger.add(request(specification=promised(RESPONSE.with_settings(rate="1/3"))))
    found = ledger.total()
    assert found.contradicted == ()
    assert found.specification is not None
    assert UNPUBLISHED.words in found.specification.assumptions


def test_what_may_be_published_is_told_as_such_and_the_assumption_stays(ledger: Ledger) -> None:
    ledger.add(request(specification=promised(RESPONSE)))
    seats = promised(RESPONSE).with_flavor(multiverse=Multiverse(invariants=(Named(name="seats"),)))
    ledger.add(request(specification=replace(seats, relies_on=(), assumptions=())))
    found = ledger.total()
    (one,) = found.contradicted
    assert not one.certain
    assert "Entry 2 may publish the counts of tenure exactly" in one.then
    assert found.specification is not None
    assert UNPUBLISHED.words in found.specification.assumptions


def test_a_plan_that_was_run_twice_is_not_the_one_run(ledger: Ledger) -> None:
    ledger.add(run_of(PLAIN))
    ledger.add(run_of(PLAIN))
    (one,) = ledger.total().contradicted
    assert (one.reliance, one.entries) == (ONE_RUN, (1, 2))
    assert "the loss of all of them together, which the total counts" in one.then
    total = ledger.total().specification
    assert total is not None
    assert not any("the one run" in line for line in total.assumptions)
    assert total.budget.realised == 2 * promised(PLAIN).budget.realised
    other = promised(PLAIN.with_settings(rate="1/3"))
    ledger.add(request(specification=other, parameters={"mechanism": {"rate": "1/3"}}, inputs={"households": "a"}))
    kept = ledger.total().specification
    assert kept is not None
    assert f"{ONE_RUN.words} (entry 3)" in kept.assumptions


def test_only_runs_that_were_drawn_for_the_same_file_are_runs_of_one_plan(ledger: Ledger) -> None:
    ledger.add(run_of(PLAIN))
    ledger.reserve(run_of(PLAIN))
    ledger.add(run_of(PLAIN, file="b"))
    ledger.add(request(specification=promised(PLAIN)))  # nothing is known about its file
    drawn = ledger.reserve(run_of(PLAIN))
    ledger.draw(drawn.id)
    ledger.abort(drawn.id, reason="it has no bundle, so nobody can choose it")
    assert ledger.total().contradicted == ()


def test_a_plan_is_the_same_however_its_settings_are_written(ledger: Ledger) -> None:
    ledger.add(run_of(PLAIN))
    ledger.add(run_of(PLAIN.with_settings(rate="50%"), settings={"rate": "50%"}))
    ledger.add(
        run_of(PLAIN.with_settings(hold=["size", "tenure"]), settings={"rate": "0.5", "hold": ["size", "tenure"]})
    )
    (one,) = ledger.total().contradicted
    assert one.entries == one.by == (1, 2, 3)


def test_of_noisy_tables_other_tables_or_rates_are_another_plan(ledger: Ledger) -> None:
    """With noise on every count neither is part of the promise."""

    def noisy(rate: str, *tables: list[str]) -> Any:
        parameters = {
            "mechanism": {"name": "noisy-swap", "rate": rate},
            "tables": [{"variables": each} for each in tables],
        }
        return request(specification=promised(PLAIN), parameters=parameters, inputs={"households": "a"})

    for each in (noisy("1/4", ["county", "size"]), noisy("1/5", ["county", "size"]), noisy("1/4", ["county"])):
        ledger.add(each)
    assert ledger.total().contradicted == ()
    ledger.add(noisy("25%", ["size", "county"]))
    (one,) = ledger.total().contradicted
    assert one.by == (1, 4)


def test_a_run_that_does_not_claim_to_be_the_one_still_contradicts_those_that_do(ledger: Ledger) -> None:
    ledger.add(run_of(PLAIN))
    accepted = with_accepted_names(promised(PLAIN), ["more-runs:1"])
    assert ONE_RUN not in accepted.relies_on
    assert ONE_RUN.words not in accepted.assumptions
    ledger.add(request(specification=accepted, parameters=run_of(PLAIN).parameters, inputs={"households": "a"}))
    (one,) = ledger.total().contradicted
    assert (one.entries, one.by) == ((1,), (1, 2))
    assert "Entries 1-2 are runs of one plan on one file" in str(one)


def test_of_two_runs_that_are_planned_at_the_same_time_one_is_refused_before_it_is_reserved(ledger: Ledger) -> None:
    first = ledger.reserve(run_of(PLAIN), only_run=True)
    with pytest.raises(LedgerError, match="entry 1 of the ledger runs this plan on this file too"):
        ledger.reserve(run_of(PLAIN), only_run=True)
    assert len([*ledger.entries()]) == 1
    ledger.abort(first.id, reason="it died")
    ledger.reserve(run_of(PLAIN), only_run=True)


def test_specifications_that_rely_on_nothing_read_no_plan(ledger: Ledger) -> None:
    ledger.add(
        request(specification=specification("1"), parameters={"mechanism": {"a": 1}}, inputs={"households": "a"})
    )
    ledger.add(
        request(specification=specification("1"), parameters={"mechanism": {"a": 1}}, inputs={"households": "a"})
    )
    assert ledger.total().contradicted == ()


# ---- plans ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    HOMES.write_csv(tmp_path / "homes.csv")
    Ledger.create(tmp_path / "homes.ledger", dataset="homes")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(out: str, **mechanism: Any) -> Prepared:
    content = {
        "data": {"households": "homes.csv"},
        "mechanism": {**ROLES, **mechanism},
        "release": {"out": out, "ledger": "homes.ledger"},
    }
    return prepare(plan_from(content, source="plan.toml", folder=Path()))


def release(made: Prepared) -> None:
    """Record the release as its run would."""
    assert made.ledger is not None
    made.ledger.add(release_request(made, seeded=False))


SETTINGS = {"name": "response-swap", "respond": "tenure", "values": ["owned", "rented", "free"], "change": "1/5"}


def test_a_plan_that_would_take_away_what_an_entry_protects_is_doubted(folder: Path) -> None:
    release(prepared("first", **SETTINGS))
    (doubt,) = prepared("second").doubts
    assert (doubt.name, doubt.refuses) == ("contradicts:1:tenure", True)
    assert doubt.what == (
        "Entry 1 assumes that the true counts of tenure are published nowhere else, and this release publishes them "
        "exactly: the counts of tenure would not be protected"
    )
    assert prepared("second", hold=["size"], match=[]).doubts == ()


def test_a_plan_whose_promise_an_entry_contradicts_is_doubted(folder: Path) -> None:
    release(prepared("first"))
    (doubt,) = prepared("second", **SETTINGS).doubts
    assert (doubt.name, doubt.refuses) == ("contradicted-by:1:tenure", True)
    assert doubt.what.startswith(
        "this release assumes that the true counts of tenure are published nowhere else, and entry 1"
    )


def test_accepting_one_contradiction_accepts_no_other(folder: Path) -> None:
    release(prepared("first", **SETTINGS))
    release(prepared("second", **{**SETTINGS, "change": "1/4"}))
    release(prepared("third", **{**SETTINGS, "respond": "county", "values": ["East", "North", "South", "West"]}))
    names = [doubt.name for doubt in prepared("fourth").doubts]
    assert len(names) == len({*names}) == 3
    assert {*names} == {"contradicts:1:tenure", "contradicts:2:tenure", "contradicts:3:county"}


def test_a_second_run_of_a_plan_refuses_and_both_stand_in_the_total(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepared("first").doubts == ()
    release(prepared("first"))
    again = prepared("second")
    (doubt,) = again.doubts
    assert (doubt.name, doubt.refuses) == ("more-runs:1", True)
    assert "Entry 1 ran this plan on this file before" in doubt.what
    assert "change the plan" not in doubt.remedy
    assert str(doubt.problem).startswith("more-runs:1: Entry 1 ran")
    release(again)
    assert command(["ledger", "total", "homes.ledger"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "contradicted inside this ledger, and what then holds: - Entries 1-2 assume that this is the one" in shown
    assert command(["ledger", "total", "homes.ledger", "--json"]) == 0
    (stated,) = json.loads(capsys.readouterr().out)["contradicted"]
    assert (stated["kind"], stated["entries"], stated["certain"]) == ("one-run", [1, 2], True)


KEYED = CellKey(
    ptable=design_ptable(D=2, V=Fraction(9, 10)).table, tables=[["county"]], zeros="fixed", keys="additive",
    record_key="rk", values={name: HOMES[name].unique().sort().to_list() for name in ("county", "tenure")},
)  # fmt: skip
HOMES_WITH_KEYS = HOMES.with_columns(rk=pl.Series([n * 61_803_399 % 10**8 for n in range(60)]))


def keyed(*variables: str) -> Specification:
    return KEYED.with_settings(tables=[variables]).plan(HOMES_WITH_KEYS).specification


def test_two_tables_by_the_same_record_keys_have_no_total(ledger: Ledger) -> None:
    """Their noise is not independent: their sum is less than what is lost."""
    ledger.add(request(specification=keyed("county")))
    assert ledger.total().specification is not None
    ledger.add(request(specification=replace(keyed("tenure"), relies_on=(), assumptions=())))
    assert ledger.total().specification is not None  # another mechanism does not use the keys
    asked = request(specification=keyed("tenure"))
    found = ledger.would(asked)
    assert found.specification is None
    assert [aside.entries for aside in found.alone] == [(1,), (3,)]
    assert all("use the same record keys" in aside.reason for aside in found.alone)
    (one,) = found.contradicted
    assert (one.reliance, one.entries, one.by, one.certain) == (KeysAlone(column="rk"), (1, 3), (1, 3), True)
    assert [one.reliance for one in ledger.contradicted(asked)] == [KeysAlone(column="rk")]
    with pytest.raises(StirredError, match="record keys"):
        compose([keyed("county"), keyed("tenure")])
    with pytest.raises(StirredError, match="record keys"):
        compose([keyed("county")], times=[2])


def test_a_release_that_looks_at_the_record_keys_of_another_contradicts_it(ledger: Ledger) -> None:
    """If the keys are published, the noise that they give is known."""
    ledger.add(request(specification=keyed("county")))
    beside = KEYED.with_settings(tables=[("tenure", "rk")], keys="prf", record_key=None, values={
        "tenure": KEYED.values["tenure"], "rk": HOMES_WITH_KEYS["rk"].to_list()})  # fmt: skip
    found = ledger.would(request(specification=beside.plan(HOMES_WITH_KEYS).specification))
    (one,) = found.contradicted
    assert (one.entries, one.by) == ((1,), (2,))
    assert [aside.entries for aside in found.alone] == [(1,)]
    assert "use rk, the record keys of entry 1" in one.then.replace("uses", "use")


def test_what_is_left_out_of_the_sum_for_its_keys_keeps_no_limit(ledger: Ledger) -> None:
    rules = {"budget": "10", "output": "approximate", "delta": "9/10", "unit": "household", "distances": ["d_SymDiff"]}
    ledger.set_policy(
        Policy.from_document({"limits": [rules], "invariants": {"acceptable": "any"}}), reason="a limit for all"
    )
    ledger.reserve(request(specification=keyed("county")))
    with pytest.raises(LedgerError, match="record keys"):
        ledger.reserve(request(specification=keyed("tenure")))


def test_record_keys_of_an_older_ledger_are_known_by_their_sentence() -> None:
    older = json.loads(to_json(keyed("county")))
    older["relies_on"] = [one for one in older["relies_on"] if one["kind"] == "one-run"]
    read, said = from_json(json.dumps(older)), keyed("county")
    assert read == replace(said, relies_on=(ONE_RUN, KEYS_ALONE))  # which column it was is not said
    assert KEYS_ALONE.words in keyed("county").assumptions


def as_an_earlier_version(ledger: Ledger, **parameters: object) -> None:
    """Add an entry as a version wrote it that did not say in its specification which column the keys are."""
    silent = replace(keyed("county"), relies_on=(ONE_RUN, KEYS_ALONE))
    ledger.add(request(specification=silent, parameters={"mechanism": {"name": "cell-key", **parameters}}))


LOOKING = KEYED.with_settings(tables=[("tenure", "rk")], keys="prf", record_key=None, values={
    "tenure": KEYED.values["tenure"], "rk": HOMES_WITH_KEYS["rk"].to_list()})  # fmt: skip


def test_an_older_ledger_knows_the_column_of_record_keys_from_its_plan(ledger: Ledger) -> None:
    as_an_earlier_version(ledger, record_key="rk")
    beside = KEYED.with_settings(tables=[("tenure",)], keys="prf", record_key=None)
    assert ledger.would(request(specification=beside.plan(HOMES).specification)).specification is not None
    found = ledger.would(request(specification=LOOKING.plan(HOMES_WITH_KEYS).specification))
    assert found.specification is None
    (one,) = found.contradicted
    assert (one.reliance, one.by, one.certain) == (KeysAlone(column="rk"), (2,), True)


def test_record_keys_of_an_unknown_column_add_up_with_nothing(ledger: Ledger) -> None:
    """Any release may look at them; a plan says so in a doubt, and a person who knows the column answers for it."""
    as_an_earlier_version(ledger)
    found = ledger.would(request(specification=LOOKING.plan(HOMES_WITH_KEYS).specification))
    assert [aside.entries for aside in found.alone] == [(1,)]
    assert "Entry 2 may use the record keys, whose column is not known, of entry 1" in found.alone[0].reason
    (doubt,) = ledger_doubts(ledger, mechanism="cell-key", parameters={}, inputs={},
        specification=LOOKING.plan(HOMES_WITH_KEYS).specification)  # fmt: skip
    assert doubt.name == "contradicts:1:record-keys"
    assert "this release may use the column of these keys" in doubt.what


def test_a_release_that_lists_no_columns_may_look_at_record_keys(ledger: Ledger) -> None:
    """Nothing listed means everything."""
    ledger.add(request(specification=keyed("county")))
    silent = promised(PLAIN)
    silent = silent.with_flavor(domain=replace(silent.domain, columns=()))
    found = ledger.would(request(specification=silent))
    assert [(one.by, one.certain) for one in found.contradicted] == [((2,), False)]
    assert [aside.entries for aside in found.alone] == [(1,)]


def test_the_column_of_record_keys_is_known_from_the_published_settings() -> None:
    older = json.loads(to_json(replace(keyed("county"), relies_on=(ONE_RUN,))))
    older["mechanism"] = {"name": "cell-key", "settings": {"record_key": "rk"}}
    assert KeysAlone(column="rk") in from_json(json.dumps(older)).relies_on


def test_a_total_says_why_cell_keys_do_not_add_up_with_a_swap() -> None:
    keys = KEYED.with_settings(keys="prf", record_key=None).plan(HOMES).specification
    with pytest.raises(StirredError, match="compares neighbours only, and nothing follows for groups of 2"):
        compose([keys, promised(PLAIN)])


def test_what_holds_of_one_release_alone_is_data_and_known_in_older_files() -> None:
    noise = NoisyTables(tables=[["county"]], values=KEYED.values, rho=1).plan(HOMES).specification
    (alone,) = noise.alone
    assert alone in noise.assumptions
    other = replace(noise, assumptions=(*noise.assumptions, "in words of their own"), alone=("in words of their own",))
    total = compose([other, promised(PLAIN)]).specification
    assert "in words of their own" not in total.assumptions
    assert alone in total.assumptions  # words alone say nothing
    older = json.loads(to_json(noise))
    del older["alone"]
    assert from_json(json.dumps(older)) == noise


def test_a_total_does_not_say_what_holds_of_one_release_alone(ledger: Ledger) -> None:
    """What a swap before cell keys keeps inside, the same swap publishes; and tables are not all that is published."""
    after = {"name": "permutation-swap", **ROLES}
    inside = CellKey(ptable=KEYED.ptable, tables=[["county", "tenure"]], values=KEYED.values, after=after)
    tables = NoisyTables(tables=[["county"]], values=KEYED.values, rho=1)
    kept, noise = (each.plan(HOMES).specification for each in (inside, tables))
    alone = {"none is published": kept, "nothing of the file": noise}
    for false, own in alone.items():
        assert false in to_json(own)
        assert false in to_json(compose([own]).specification)
        assert false not in to_json(compose([own, promised(PLAIN)]).specification)
    ledger.add(request(specification=alone["nothing of the file"]))
    found = ledger.total().specification
    assert found is not None
    assert "nothing of the file" in to_json(found)
    ledger.add(request(specification=None, unspecified="made before there was a ledger"))
    found = ledger.total().specification
    assert found is not None
    assert "nothing of the file" not in to_json(found)
