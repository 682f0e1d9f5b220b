"""A randomised response before a swap (swapping theory R14)."""
