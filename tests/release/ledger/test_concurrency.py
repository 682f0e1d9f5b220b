"""Many processes at once on one ledger, some of them killed: never overspent, nothing lost, nothing doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np

from stirred.release.ledger import Entry, Ledger, OverLimitError
from stirred.release.ledger.ledger import Ending
from stirred.release.ledger.recover import recover
from tests.release.ledger.making import limit, request

ROOT = Path(__file__).parents[3]
PROCESSES, ROUNDS, LIMIT = 32, 4, 50
# Processes are forked from one that has imported everything, so that 32 of them really are at work at once.
NURSERY = """
import os, sys
from tests.release.ledger import worker
url, rounds, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
for number in range({count}):
    if (pid := os.fork()) == 0:
        out = os.open(f"{{folder}}/{{number}}.out", os.O_WRONLY | os.O_CREAT)
        err = os.open(f"{{folder}}/{{number}}.err", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1); os.dup2(err, 2)
        try:
            worker.main(url, f"process {{number}}", rounds)
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    print(pid, flush=True)
sys.stdin.readline()  # nobody is waited for before the kills are done, so that no number is used again
killed = sum(os.WIFSIGNALED(os.wait()[1]) for _ in range({count}))
print(killed, flush=True)
"""


def test_reading_in_a_transaction_does_not_let_others_write(tmp_path: Path) -> None:
    """What is read between checking and writing must not drop the lock: closing a handle would, by POSIX."""
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d")
    entry = ledger.reserve(request("1"))
    code = (
        f"import sqlite3; sqlite3.connect({ledger.name!r}, timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"
    )
    answers: list[str] = []

    def decide(_: Entry) -> Ending:
        list(Ledger.open(ledger.name).entries())
        answers.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr)
        return Ending(because="a test")

    ledger.settle(entry.id, decide)
    assert "database is locked" in answers[0]


def test_threads_may_share_one_object(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", dataset="d", policy=limit("20"))

    def work(_: int) -> int:
        taken = 0
        for _ in range(6):
            with suppress(OverLimitError):
                ledger.reserve(request("1"))
                taken += 1
            ledger.total()
            list(ledger.entries())
        return taken

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 20
    assert Ledger.open(tmp_path / "a.ledger").verify().is_sound


def test_32_processes_with_kills_never_overspend_and_lose_nothing(url: str, tmp_path: Path) -> None:
    """32 processes want 128 releases of 1 where 50 are allowed; half of them are killed at random moments."""
    ledger = Ledger.create(url, dataset="d", policy=limit(str(LIMIT)))
    process = subprocess.Popen(
        [sys.executable, "-c", NURSERY.format(count=PROCESSES), url, str(ROUNDS), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    pids = [int(process.stdout.readline()) for _ in range(PROCESSES)]
    rng = np.random.default_rng(11)
    for pid in rng.permutation(pids)[: PROCESSES // 2]:
        time.sleep(rng.uniform(0, 0.1))
        os.kill(int(pid), signal.SIGKILL)  # a process that ended is kept by its parent until all are done
    out, _ = process.communicate("go on\n", timeout=120)
    killed = int(out)
    assert killed >= 4, "the kills came too late to prove anything"

    said = [line.split() for path in sorted(tmp_path.glob("*.out")) for line in path.read_text().splitlines()]
    errors = "".join(path.read_text() for path in tmp_path.glob("*.err"))
    assert errors == ""
    entries = {entry.id: entry for entry in Ledger.open(url).entries()}
    assert ledger.verify().is_sound
    # What a process was told is in the ledger, at least as far along.
    for done, *id_ in said:
        if done == "reserved":
            assert id_[0] in entries
        elif done == "drawn":
            assert entries[id_[0]].drawn
        elif done == "committed":
            assert entries[id_[0]].status == "committed"
    # Nothing is there that nobody asked for, and nothing twice.
    assert max(Counter(entry.purpose for entry in entries.values()).values()) == 1
    told = {id_[0] for done, *id_ in said if done == "reserved"}
    assert len(entries) - len(told) <= killed  # those a killed process did not live to hear about
    # The limit was reached and never passed: whoever was refused was refused because nothing was left.
    assert ["refused"] in said, "the processes did not compete"
    found = ledger.total().specification
    assert found is not None
    assert found.budget.realised == LIMIT

    open_before = sum(entry.status == "reserved" for entry in entries.values())
    resolved = recover(Ledger.open(url))
    assert len(resolved) == open_before
    after = {entry.id: entry for entry in ledger.entries()}
    assert all(after[id_].is_spent == (entry.drawn or entry.status == "committed") for id_, entry in entries.items())
