"""Who may do what with a ledger in PostgreSQL: read, spend, change the policy, and keep others waiting."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import psycopg
import pytest

from stirred.release.ledger import Ledger, LedgerError
from stirred.release.ledger import postgres as module
from stirred.release.ledger.problems import StorageError
from tests.release.ledger.making import limit, released, request
from tests.release.ledger.server import Server

SPENDS = (
    "GRANT SELECT, INSERT ON stirred_ledger, stirred_ledger_documents TO {role}",
    "GRANT SELECT, UPDATE ON stirred_ledger_turn TO {role}",
)
READS = ("GRANT SELECT ON stirred_ledger, stirred_ledger_documents, stirred_ledger_turn TO {role}",)
DECIDES = (*SPENDS, "GRANT INSERT ON stirred_ledger_policy_right TO {role}")


def statement(url: str, *texts: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for text in texts:
            connection.execute(text)  # type: ignore[arg-type, unused-ignore]


@pytest.fixture
def url(postgres: Server) -> str:
    place = postgres.new_url()
    Ledger.create(place, dataset="d", policy=limit("5"))
    return place


@pytest.fixture
def role(url: str) -> Callable[..., str]:
    """Makes a role with rights, and returns the URL under which it opens the ledger."""

    def make(*rights: str) -> str:
        name = f"r{uuid4().hex}"
        schema = url.rpartition("%3D")[2]
        grants = [right.format(role=name) for right in rights]
        statement(url, f"CREATE ROLE {name} LOGIN", f"GRANT USAGE ON SCHEMA {schema} TO {name}", *grants)
        return url.replace("ledger@", f"{name}@")

    return make


def test_a_clerk_spends_and_may_not_change_the_policy(url: str, role: Callable[..., str]) -> None:
    clerk = Ledger.open(role(*SPENDS))
    released(clerk, "2")
    with pytest.raises(StorageError, match="you may not change the policy of this ledger; nothing was written"):
        clerk.set_policy(limit("500"), reason="more")
    with pytest.raises(LedgerError, match="3 is left"):
        clerk.reserve(request("4"))
    assert Ledger.open(url).verify().is_sound


def test_a_clerk_cannot_go_round_the_right_by_names_of_his_own(url: str, role: Callable[..., str]) -> None:
    """The function of the guard asks the system, whatever path of names the clerk sets."""
    place = role(*SPENDS)
    schema, own = url.rpartition("%3D")[2], f"o{uuid4().hex}"
    name = place.partition("//")[2].partition("@")[0]
    statement(url, f"CREATE SCHEMA {own} AUTHORIZATION {name}")
    trick = f"CREATE FUNCTION {own}.has_table_privilege(name, text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    row = f"INSERT INTO {schema}.stirred_ledger VALUES (1, 'x', 'policy', '', '', '{{}}', '', '')"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="may not change the policy"):
        statement(place, trick, f"SET search_path = {own}, pg_catalog", row)


def test_the_board_changes_the_policy_by_a_right_of_its_own(role: Callable[..., str]) -> None:
    board = Ledger.open(role(*DECIDES))
    board.set_policy(limit("50"), reason="decided")
    released(Ledger.open(role(*SPENDS)), "20")
    assert board.verify().observations == ()


def test_a_reader_reads_and_cannot_write(url: str, role: Callable[..., str]) -> None:
    released(Ledger.open(url), "2")
    reader = Ledger.open(role(*READS))
    assert reader.verify().is_sound
    with pytest.raises(StorageError, match="does not let you write"):
        reader.reserve(request("1"))


@pytest.mark.parametrize(
    ("rights", "lock"),
    [
        ((), "SELECT pg_advisory_lock((1398033479::bigint << 31) + 'stirred_ledger'::regclass::oid::bigint)"),
        (READS, "LOCK TABLE stirred_ledger, stirred_ledger_turn IN ACCESS SHARE MODE"),
        (READS, "SELECT * FROM stirred_ledger_turn FOR UPDATE"),
        (READS, "SELECT * FROM stirred_ledger_turn FOR KEY SHARE"),
        (READS, "LOCK TABLE stirred_ledger IN EXCLUSIVE MODE"),
        (READS, "LOCK TABLE stirred_ledger_turn IN SHARE MODE"),
    ],
)
def test_nobody_who_may_not_write_can_keep_writers_waiting(
    url: str, role: Callable[..., str], rights: tuple[str, ...], lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", "2s")
    with psycopg.connect(role(*rights)) as idle:
        try:
            idle.execute(lock)  # type: ignore[arg-type, unused-ignore]
        except psycopg.errors.InsufficientPrivilege:
            idle.rollback()
        assert Ledger.open(url).reserve(request("1")).number == 1


def test_a_writer_that_holds_its_turn_is_named_after_a_while(
    url: str, role: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", "1s")
    with psycopg.connect(role(*SPENDS)) as other:
        other.execute("SELECT turn FROM stirred_ledger_turn FOR UPDATE")
        with pytest.raises(
            StorageError, match="another process has been writing for more than 1s; nothing was written"
        ):
            Ledger.open(url).reserve(request("1"))
    assert Ledger.open(url).reserve(request("1")).number == 1


def test_the_turn_cannot_be_taken_away_by_a_writer(role: Callable[..., str]) -> None:
    place = role(*SPENDS)
    with pytest.raises(psycopg.DatabaseError, match="append-only"):
        statement(place, "UPDATE stirred_ledger_turn SET turn = false")


SWAPPED = "CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS "
CHANGES = {
    "the function of a guard does nothing": (
        SWAPPED.format(name="stirred_ledger_is_append_only") + "$$ BEGIN RETURN NULL; END $$",
        "the trigger rows_are_never_changed, or its function, is not the one it was",
    ),
    "the function of the policy lets everybody": (
        SWAPPED.format(name="stirred_ledger_guards_policy") + "$$ BEGIN RETURN NEW; END $$",
        "the trigger policy_needs_its_right, or its function, is not the one it was",
    ),
    "the path of names is that of the caller": (
        "ALTER FUNCTION stirred_ledger_guards_policy() RESET search_path",
        "the trigger policy_needs_its_right, or its function, is not the one it was",
    ),
    "a guard that looks at one column": (
        "DROP TRIGGER rows_are_never_changed ON stirred_ledger; CREATE TRIGGER rows_are_never_changed BEFORE UPDATE "
        "OF id ON stirred_ledger FOR EACH STATEMENT EXECUTE FUNCTION stirred_ledger_is_append_only()",
        "the trigger rows_are_never_changed, or its function, is not the one it was",
    ),
    "a guard that never applies": (
        "DROP TRIGGER policy_needs_its_right ON stirred_ledger; CREATE TRIGGER policy_needs_its_right BEFORE INSERT "
        "ON stirred_ledger FOR EACH ROW WHEN (false) EXECUTE FUNCTION stirred_ledger_guards_policy()",
        "the trigger policy_needs_its_right, or its function, is not the one it was",
    ),
    "a rule that swallows rows": (
        "CREATE RULE quiet AS ON INSERT TO stirred_ledger DO INSTEAD NOTHING",
        "the rule quiet was not made by stirred",
    ),
    "a guard switched off": (
        "ALTER TABLE stirred_ledger DISABLE TRIGGER policy_needs_its_right",
        "the trigger policy_needs_its_right is missing or switched off",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_guard_that_was_changed_is_noticed_and_nothing_is_written(url: str, name: str) -> None:
    ledger = Ledger.open(url)
    change, words = CHANGES[name]
    statement(url, change)
    assert words in ledger.verify().observations
    with pytest.raises(StorageError, match="nothing was written") as refusal:
        ledger.reserve(request("1"))
    assert words in str(refusal.value)
    assert ledger.verify().rows == 1


def test_a_ledger_of_an_earlier_version_says_what_to_do(url: str) -> None:
    statement(url, "DROP TABLE stirred_ledger_turn")
    with pytest.raises(StorageError, match=r"made by an earlier version.*Fix: `stirred ledger export`"):
        Ledger.open(url).reserve(request("1"))
