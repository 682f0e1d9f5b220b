"""What can go wrong with a ledger: bad requests, refusals by policy, storage that fails, chains that are broken."""

from __future__ import annotations

from stirred.spec.problems import Problem, StirredError


class LedgerError(StirredError):
    """A request the ledger cannot follow, or storage that cannot be used."""


class OverLimitError(LedgerError):
    """A release that the policy forbids; nothing random has happened."""


class StorageError(LedgerError):
    """The file or database of the ledger cannot be read or written; ``why`` does not say what was written."""

    why: str = ""


class DamagedStorageError(StorageError):
    """The file of the ledger is not as a storage of ours writes it: that is a break of the ledger itself."""


class LostConnectionError(StorageError):
    """The connection broke while something was written, and it is not known whether it arrived."""


class BrokenLedgerError(LedgerError):
    """A ledger whose rows do not follow from each other; ``kind`` says how, ``number`` where."""

    exit_code = 1

    def __init__(self, problems: tuple[Problem, ...], *, kind: str = "unreadable", number: int = 0) -> None:
        super().__init__(problems)
        self.kind = kind
        self.number = number

    def inside(self, place: str) -> BrokenLedgerError:
        """Return the same error, each problem placed inside ``place``."""
        placed = tuple(problem.inside(place) for problem in self.problems)
        return BrokenLedgerError(placed, kind=self.kind, number=self.number)


def bad_request(what: str, *, where: str, remedy: str) -> LedgerError:
    """Return (not raise) the error for one request that cannot be followed."""
    return LedgerError([Problem(what=what, where=where, remedy=remedy)])


def bad_storage(what: str, *, where: str, remedy: str) -> StorageError:
    """Return (not raise) the error for storage that cannot be used."""
    return StorageError([Problem(what=what, where=where, remedy=remedy)])


def broken(what: str, *, kind: str, number: int) -> BrokenLedgerError:
    """Return (not raise) the error for a chain that is broken at row ``number``."""
    remedy = "keep this ledger as it is, restore the last good copy, and find out who could write to it"
    problem = Problem(what=f"{what} ({kind})", where=f"row {number}", remedy=remedy)
    return BrokenLedgerError((problem,), kind=kind, number=number)
