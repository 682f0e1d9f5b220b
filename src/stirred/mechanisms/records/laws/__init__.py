"""Laws of swaps: each file holds one member, its promise beside its act."""
