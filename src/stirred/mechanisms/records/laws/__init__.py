"""Laws of swaps: each file holds one member, its promise next to its act."""
