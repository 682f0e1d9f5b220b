"""Checks of a promise: exhaustively on small domains, on a finished bundle from its files alone."""

from stirred.audit.bundle import BundleAudit, audit_bundle
from stirred.audit.exhaustive import AuditResult, FiniteMechanism, Verdict, audit
from stirred.audit.statistical import StatisticalAudit, statistical_audit
from stirred.audit.swap import SwapAudit, audit_swap
from stirred.audit.witness import ShiftWitness, Witness

__all__ = [
    "AuditResult",
    "BundleAudit",
    "FiniteMechanism",
    "ShiftWitness",
    "StatisticalAudit",
    "SwapAudit",
    "Verdict",
    "Witness",
    "audit",
    "audit_bundle",
    "audit_swap",
    "statistical_audit",
]
