"""A package, so that its cluster is stopped when the last of its tests is done."""
