"""The ledger: the append-only account of everything released from one confidential dataset."""

from stirred.release.ledger.ledger import Ledger
from stirred.release.ledger.policy import Policy
from stirred.release.ledger.problems import LedgerError, OverLimitError
from stirred.release.ledger.request import Request
from stirred.release.ledger.row import Entry
from stirred.release.ledger.total import Total

__all__ = ["Entry", "Ledger", "LedgerError", "OverLimitError", "Policy", "Request", "Total"]
