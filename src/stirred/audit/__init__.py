"""Checks of a promise: exhaustively on small domains, by repeated runs, on a finished bundle from its files."""

from stirred.audit.bundle import BundleAudit, audit_bundle
from stirred.audit.exhaustive import AuditResult, AuditVerdict, FiniteMechanism, audit
from stirred.audit.memory import Memory, leftover_memory
from stirred.audit.order import OrderAudit, audit_order
from stirred.audit.pair import PairAudit, audit_pair
from stirred.audit.statistical import StatisticalAudit, statistical_audit
from stirred.audit.witness import ShiftWitness, Witness

__all__ = [
    "AuditResult",
    "AuditVerdict",
    "BundleAudit",
    "FiniteMechanism",
    "Memory",
    "OrderAudit",
    "PairAudit",
    "ShiftWitness",
    "StatisticalAudit",
    "Witness",
    "audit",
    "audit_bundle",
    "audit_order",
    "audit_pair",
    "leftover_memory",
    "statistical_audit",
]
