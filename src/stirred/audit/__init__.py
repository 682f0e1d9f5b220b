"""Checks of a promise: exhaustively on small domains, by repeated runs, on a finished bundle from its files."""

from stirred.audit.bundle import BundleAudit, audit_bundle
from stirred.audit.exhaustive import AuditResult, FiniteMechanism, Verdict, audit
from stirred.audit.order import OrderAudit, audit_order
from stirred.audit.pair import PairAudit, audit_pair
from stirred.audit.statistical import StatisticalAudit, statistical_audit
from stirred.audit.swap import SwapAudit, audit_swap
from stirred.audit.witness import ShiftWitness, Witness

__all__ = [
    "AuditResult",
    "BundleAudit",
    "FiniteMechanism",
    "OrderAudit",
    "PairAudit",
    "ShiftWitness",
    "StatisticalAudit",
    "SwapAudit",
    "Verdict",
    "Witness",
    "audit",
    "audit_bundle",
    "audit_order",
    "audit_pair",
    "audit_swap",
    "statistical_audit",
]
