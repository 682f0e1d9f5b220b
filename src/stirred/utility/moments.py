"""Mean and variance of a swapped cell in closed form: part of the exact law, which lives with its mechanism."""

from __future__ import annotations

from stirred.mechanisms.swapping.moments.class_laws import Moments, shrinkage, swapped_cell

__all__ = ["Moments", "shrinkage", "swapped_cell"]
