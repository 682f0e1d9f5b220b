"""The life of a release in the ledger, on both kinds of storage."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import psycopg
import pytest

from stirred.release.ledger import Ledger, LedgerError, Request
from stirred.spec import Specification
from stirred.spec.catalogue import load
from tests.release.ledger.making import limit, released, request, specification
from tests.release.ledger.server import Server


def rho2(ledger: Ledger) -> str:
    found = ledger.total().specification
    return "0" if found is None else str(found.budget.realised)


def test_a_release_is_reserved_drawn_and_committed(ledger: Ledger) -> None:
    entry = ledger.reserve(request("2", parameters={"scale": Fraction(1, 3)}, inputs={"file": "ab"}, place="out"))
    assert (entry.number, entry.status, entry.drawn, entry.who, entry.purpose) == (
        1,
        "reserved",
        False,
        "ana",
        "a test",
    )
    assert ledger.draw(entry.id).state == "reserved, drawing"
    done = ledger.commit(entry.id, bundle="c0ffee")
    assert (done.status, done.bundle, done.number) == ("committed", "c0ffee", 1)
    again = next(Ledger.open(ledger.store._url if hasattr(ledger.store, "_url") else ledger.name).entries())
    assert again == done
    assert again.specification == specification("2")
    assert again.parameters == {"scale": "1/3"}
    assert again.place == str(Path("out").absolute())


@pytest.mark.parametrize(
    ("life", "status", "spent"),
    [
        ((), "reserved", "1"),
        (("draw",), "reserved", "1"),
        (("draw", "commit"), "committed", "1"),
        (("draw", "commit", "withdraw"), "withdrawn", "1"),
        (("abort",), "aborted", "0"),
        (("draw", "abort"), "aborted", "1"),
        (("draw", "abort", "commit"), "committed", "1"),
    ],
)
def test_what_may_have_been_seen_counts_as_spent(
    ledger: Ledger, life: tuple[str, ...], status: str, spent: str
) -> None:
    entry = ledger.reserve(request("1"))
    for step in life:
        act(ledger, step, entry.id)
    assert ledger.entry(entry.id).status == status
    assert rho2(ledger) == spent
    assert ledger.entry(entry.id).is_spent is (spent == "1")


def act(ledger: Ledger, step: str, entry: str) -> None:
    steps: dict[str, Callable[[], object]] = {
        "draw": lambda: ledger.draw(entry),
        "commit": lambda: ledger.commit(entry, bundle="b"),
        "abort": lambda: ledger.abort(entry, reason="why"),
        "withdraw": lambda: ledger.withdraw(entry, reason="why"),
    }
    steps[step]()


@pytest.mark.parametrize(
    ("life", "then", "words"),
    [
        ((), "commit", "before its draw is recorded"),
        ((), "withdraw", "that is reserved cannot be withdrawn"),
        (("draw",), "draw", "nothing may be drawn for an entry that is reserved and drawn"),
        (("draw", "commit"), "draw", "nothing may be drawn for an entry that is committed"),
        (("draw", "commit"), "commit", "that is committed cannot be committed"),
        (("draw", "commit"), "abort", "that is committed cannot be aborted"),
        (("abort",), "draw", "nothing may be drawn for an entry that is aborted"),
        (("abort",), "commit", "that is aborted cannot be committed"),
        (("draw", "abort"), "draw", "nothing may be drawn"),
        (("draw", "commit", "withdraw"), "withdraw", "that is withdrawn cannot be withdrawn"),
        (("draw", "commit", "withdraw"), "commit", "that is withdrawn cannot be committed"),
    ],
)
def test_an_impossible_step_is_refused_and_leaves_no_row(
    ledger: Ledger, life: tuple[str, ...], then: str, words: str
) -> None:
    entry = ledger.reserve(request())
    for step in life:
        act(ledger, step, entry.id)
    before = ledger.head
    with pytest.raises(LedgerError, match=words):
        act(ledger, then, entry.id)
    assert ledger.head == before


def test_two_objects_on_one_ledger_see_each_others_rows(url: str, ledger: Ledger) -> None:
    other = Ledger.open(url)
    first = ledger.reserve(request("1"))
    second = other.reserve(request("2"))
    assert [entry.id for entry in ledger.entries()] == [first.id, second.id]
    assert rho2(ledger) == rho2(other) == "3"
    assert other.draw(first.id).drawn
    with pytest.raises(LedgerError, match="nothing may be drawn"):
        ledger.draw(first.id)


def test_entries_are_found_by_number_and_by_the_beginning_of_their_id(ledger: Ledger) -> None:
    entry = released(ledger)
    assert ledger.entry(1) == ledger.entry("1") == ledger.entry(entry.id[:8]) == ledger.entry(entry.id)
    short = entry.id[:2] if not entry.id[:2].isdecimal() else "a1"  # digits alone are a number
    for wrong in ("2", "0", "²", "zzzz", "", short):
        with pytest.raises(LedgerError, match="there is no such entry"):
            ledger.entry(wrong)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0", "there is no such entry; row 0 is the beginning of the ledger"),
        ("1", "there is no such entry; row 1 is a change of policy"),
        ("4", r"there is no such entry; row 4 is about entry 2 \(committed\)"),
        ("6", "'6': there is no such entry. Fix"),
    ],
)
def test_a_row_that_is_no_entry_is_said_to_be_what_it_is(ledger: Ledger, row: str, words: str) -> None:
    ledger.set_policy(None, reason="none yet")
    released(ledger)
    ledger.reserve(request())
    with pytest.raises(LedgerError, match=f"{words}.*entries are 2, 5"):
        ledger.entry(row)


def test_a_ledger_is_never_created_over_another(url: str, ledger: Ledger) -> None:
    released(ledger)
    with pytest.raises(LedgerError, match="already"):
        Ledger.create(url, dataset="another")
    assert Ledger.open(url).dataset == "the register"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Request(mechanism="noise"), "there is no specification"),
        (Request(mechanism=" ", specification=specification()), "the mechanism has no name"),
        (Request(mechanism="noise", specification=load("zcdp").specification), "a letter without a value"),
        (Request(mechanism="noise", specification=replace(specification(), seeded=True)), "a test run with a seed"),
        (Request(mechanism="noise", specification=specification(), amplified=True), "a sample that has no name"),
        (Request(mechanism="noise", specification=specification(), derived_from=[7]), "there is no such entry"),
        (Request(mechanism="noise", specification=specification(), includes=["abcdef"]), "there is no such entry"),
        (Request(mechanism="noise", specification=specification(), parameters={"a": object()}), "cannot be kept"),
        (Request(mechanism="noise", specification=specification(), parameters={"a": float("nan")}), "nan is not"),
        (Request(mechanism="noise", specification=specification(), purpose="half \ud800"), "half a character"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_and_leaves_no_row(ledger: Ledger, wrong: Request, words: str) -> None:
    before = ledger.head
    for way in (ledger.reserve, ledger.add):
        with pytest.raises(LedgerError, match=words):
            way(wrong)
    assert ledger.head == before


def test_a_derived_product_has_no_loss_of_its_own_and_draws_nothing(ledger: Ledger) -> None:
    first = released(ledger)
    for way in (ledger.reserve, ledger.add):
        with pytest.raises(LedgerError, match="so it has no specification of its own"):
            way(request("1000", derived_from=[first.id]))
    product = ledger.reserve(request(specification=None, derived_from=[first.id]))
    with pytest.raises(LedgerError, match="nothing may be drawn for an entry that is derived"):
        ledger.draw(product.id)
    assert ledger.commit(product.id, bundle="b").status == "committed"


def test_no_reason_is_no_abort(ledger: Ledger) -> None:
    entry = ledger.reserve(request())
    with pytest.raises(LedgerError, match="no reason is given"):
        ledger.abort(entry.id, reason=" ")


def test_sqlite_refuses_changes_and_keeps_others_out(tmp_path: Path) -> None:
    path = tmp_path / "a.ledger"
    released(Ledger.create(path, dataset="d"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["a.ledger"]
    with sqlite3.connect(path) as connection:
        for statement in (
            "UPDATE rows SET facts = '{}'",
            "DELETE FROM rows",
            "UPDATE documents SET text = ''",
            "DELETE FROM documents",
        ):
            with pytest.raises(sqlite3.DatabaseError, match="append-only"):
                connection.execute(statement)


def test_postgres_refuses_changes(postgres: Server) -> None:
    url = postgres.new_url()
    released(Ledger.create(url, dataset="d"))
    for table, column in (("stirred_ledger", "facts"), ("stirred_ledger_documents", "text")):
        for statement in (f"UPDATE {table} SET {column} = ''", f"DELETE FROM {table}", f"TRUNCATE {table}"):
            with psycopg.connect(url) as connection, pytest.raises(psycopg.DatabaseError, match="append-only"):
                connection.execute(statement)  # type: ignore[arg-type, unused-ignore]


def test_every_specification_of_the_catalogue_comes_back_as_it_was(ledger: Ledger) -> None:
    from stirred.spec import catalogue

    wanted: list[Specification] = []
    for name in ("das-2020", "psa-2010-2pct", "das-2020-phsafe", "das-2020-topdown-pl", "psa-1940-massachusetts-5pct"):
        wanted.append(catalogue.load(name).specification)
        ledger.add(Request(mechanism=name, specification=wanted[-1]))
    assert [entry.specification for entry in Ledger(ledger.store).entries()] == wanted


def test_the_right_to_read_insert_and_take_turns_is_enough_in_postgres(postgres: Server) -> None:
    url = postgres.new_url()
    ledger = Ledger.create(url, dataset="d", policy=limit("5"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN")
        (schema,) = connection.execute("SELECT current_schema()").fetchone() or ("",)
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO clerk")
        connection.execute("GRANT SELECT, INSERT ON stirred_ledger, stirred_ledger_documents TO clerk")
        connection.execute("GRANT SELECT, UPDATE ON stirred_ledger_turn TO clerk")
        connection.execute("ALTER ROLE clerk SET default_transaction_isolation = 'repeatable read'")
    clerk = Ledger.open(url.replace("ledger@", "clerk@"))
    released(clerk, "2")
    released(ledger, "2")
    with pytest.raises(LedgerError, match="1 is left"):
        clerk.reserve(request("2"))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE stirred_ledger DISABLE TRIGGER rows_are_never_changed")
    assert clerk.verify().observations == ("the trigger rows_are_never_changed is missing or switched off",)
