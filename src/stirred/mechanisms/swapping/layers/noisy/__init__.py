"""Noise on the tables of a swapped file (swapping theory R15)."""
