"""Pairwise swapping as in the US Census of 2010, as far as it is public."""
