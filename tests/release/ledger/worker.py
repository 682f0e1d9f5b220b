"""One of many processes that release from one ledger until the policy stops it; it may be killed anywhere.

It prints a line for whatever it was told was done, as soon as it was told.
"""

from __future__ import annotations

import sys

from stirred.release.ledger import Ledger, OverLimitError
from tests.release.ledger.making import request


def main(url: str, name: str, rounds: int) -> None:
    ledger = Ledger.open(url)
    for turn in range(rounds):
        try:
            entry = ledger.reserve(request("1", who=name, purpose=f"{name} {turn}"))
        except OverLimitError:
            print("refused", flush=True)
            return
        print("reserved", entry.id, flush=True)
        ledger.draw(entry.id)
        print("drawn", entry.id, flush=True)
        ledger.commit(entry.id, bundle=name)
        print("committed", entry.id, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
