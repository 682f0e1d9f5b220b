"""Means and variances of tables under swaps that treat all records of a stratum alike, in closed form (R18)."""
