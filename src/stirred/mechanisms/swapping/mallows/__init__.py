"""The Mallows swap (swapping theory R5)."""
