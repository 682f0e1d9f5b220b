"""PHSafe: persons joined to their households, at most so many of each, and ratios with intervals."""

from stirred.mechanisms.tables.phsafe.mechanism import PHSafe

__all__ = ["PHSafe"]
