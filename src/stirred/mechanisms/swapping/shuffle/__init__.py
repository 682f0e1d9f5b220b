"""The shuffle swap (swapping theory R7)."""
