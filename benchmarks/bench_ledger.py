"""How the ledger grows: reading it for a total, and checking all of it, beside reading and hashing the same rows.

A ledger of n entries is one of 3n + 1 rows (reserved, drawn, committed) with 100 different specifications,
pure and zCDP, unless --different says otherwise. The floor reads the rows from SQLite and hashes the text
of each once. Processor time is measured, so that other work on the machine matters less. Ratios travel
between machines; seconds do not.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sections import machine, write_section

from stirred.release.ledger import Ledger, Request
from stirred.release.ledger.request import checked_document
from stirred.release.ledger.row import COMMIT, DRAW, RESERVE, CommitFacts, DrawFacts, OpeningFacts, digest_of, next_row
from stirred.release.ledger.store import store_at
from stirred.spec import PURE, ZCDP, Budget, Domain, Flavor, InputPremetric, Margin, Multiverse, Specification

AT = "2030-01-01T00:00:00.000000+00:00"
ROUNDS = 3


def specification(number: int) -> Specification:
    flavor = Flavor(
        domain=Domain(name="register", dataset="the households of a register"),
        multiverse=Multiverse(invariants=(Margin(of="person", level="state"),)),
        input_premetric=InputPremetric(name="d_HamS", unit="person"),
        output_premetric=(PURE, ZCDP)[number % 2],
    )
    return Specification(flavor=flavor, budget=Budget.constant(f"{number + 1}/10007"))


def build(path: Path, entries: int, different: int) -> None:
    """Write a ledger of this many entries at once, as an import would."""
    Ledger.create(path.with_suffix(".seed"), dataset="the register")
    rows = store_at(path.with_suffix(".seed")).rows()
    texts = [checked_document(specification(i)) for i in range(different)]
    digests = [digest_of(text) for text in texts]
    for i in range(entries):
        id_ = f"{i:08x}-0000-4000-8000-000000000000"
        opening = OpeningFacts(
            at=AT,
            who="ana",
            mechanism="noise",
            purpose=f"table {i}",
            parameters={"rate": "1/20", "columns": ["a", "b"]},
        )
        for kind, facts, own in (
            (RESERVE, opening, id_),
            (DRAW, DrawFacts(at=AT, who="ana"), f"{id_}d"),
            (COMMIT, CommitFacts(at=AT, who="ana", bundle="0" * 64), f"{id_}c"),
        ):
            digest = digests[i % different] if kind == RESERVE else ""
            row = next_row(rows[-1], id_=own, kind=kind, entry=id_, specification=digest, facts=facts.stored())
            rows.append(row)
    store_at(path).create(rows, dict(zip(digests, texts, strict=True)))


def floor(path: Path) -> None:
    for row in store_at(path).rows():
        hashlib.sha256(row.facts.encode()).hexdigest()


def total(path: Path) -> None:
    assert Ledger.open(path).total().specification is not None


def verify(path: Path) -> None:
    assert Ledger(store_at(path)).verify().is_sound


def reserve_again(path: Path) -> Callable[[Path], None]:
    """Return a reservation by a process that has the ledger open already."""
    ledger = Ledger.open(path)

    def again(_: Path) -> None:
        entry = ledger.reserve(Request(mechanism="noise", specification=specification(1)))
        ledger.abort(entry.id, reason="measured")

    return again


def best(action: Callable[[Path], None], path: Path) -> float:
    def once() -> float:
        began = time.process_time()
        action(path)
        return time.process_time() - began

    return min(once() for _ in range(ROUNDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--different", type=int, default=100, help="different specifications among them")
    parser.add_argument("--write", action="store_true", help="put the results into RESULTS.md")
    asked = parser.parse_args()
    lines = [
        f"Reproduce with `make bench-ledger`. {machine()}; processor time, best of {ROUNDS}, {asked.different}",
        "different specifications. A ledger of n entries has 3n + 1 rows; the floor reads them from SQLite and hashes",
        "each once.",
        "",
        "| entries | floor | total / floor | verify / floor | reserve and abort, ledger open / floor |",
        "|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for count in asked.entries:
            path = Path(folder) / f"{count}.ledger"
            build(path, count, asked.different)
            base = best(floor, path)
            times = [best(action, path) for action in (total, verify, reserve_again(path))]
            cells = [f"{seconds / base:.2f} ({seconds:.2f} s)" for seconds in times]
            lines.append(f"| {count:,} | {base:.3f} s | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    if asked.write:
        write_section("The ledger", "\n".join(lines))


if __name__ == "__main__":
    main()
