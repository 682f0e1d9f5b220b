"""Permutation swapping, Algorithm 1 of the paper: promise, law, kernel; rates that vary, imputed records."""
