"""Means and variances of tables under a swap, in closed form (swapping theory R18)."""
