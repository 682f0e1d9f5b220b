"""Swaps on whole columns in compiled code, with their plain Python twins. Most modules here load numba."""
