"""SafeTab-P and SafeTab-H: counts of population groups, in tables that are finer for larger groups."""

from stirred.mechanisms.tables.safetab.households import SafeTabH
from stirred.mechanisms.tables.safetab.persons import SafeTabP

__all__ = ["SafeTabH", "SafeTabP"]
